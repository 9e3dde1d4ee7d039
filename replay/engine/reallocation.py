"""From a policy's decision to the units that each job releases and gets; forbidden moves are refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.milp import Counts, Transfer, move
from bft.models.jobs import shown_sizes
from bft.replay.engine.policy_api import Decision, PolicyCall
from bft.replay.engine.running import HELD, InPlay, Running
from bft.replay.engine.units import Holdings

IntArray = NDArray[np.int64]
_INT64 = np.dtype(np.int64)


@dataclass(slots=True)
class Change:
    """The change of one job: units it releases, then how many it gets (of a kind), and which ones if they are named.

    `elsewhere`: it gives up all units of one kind for units of another.
    """

    running: Running
    released: Sequence[int] = ()
    gains: int = 0
    granted: Sequence[int] = ()
    kind: str = ""
    elsewhere: bool = False


def changes(
    decision: Decision, in_play: InPlay, held: Holdings, policy: PolicyCall
) -> list[Change]:
    """The changes of a decision: jobs that only release come first, then in order of admission.

    Raises
    ------
    PolicyError
        For an invalid answer: unknown jobs, sizes out of bounds, more units than there are, three jobs on a
        unit, a migration where it is forbidden, another size for a running job where the policy is rigid.
    """
    found: list[Change] = []
    if decision.placement is not None:
        if decision.placement or in_play.short:
            found = _placed(decision.placement, in_play, held, policy)
    elif decision.transfers is not None:
        found = _transferred(decision.transfers, in_play, held, policy)
    elif decision.counts is not None:
        counts = _whole(decision.counts, in_play, policy)
        found = _counted(counts, decision.kinds, in_play, held, policy)
    for change in found:
        name, released = change.running.job.name, len(change.released)
        moves = released and change.gains and not change.elsewhere
        if moves and not policy.traits.migrates:
            raise policy.refusal(
                f"job {name!r} migrates: it loses {released} units and gains others"
            )
        kept = change.gains or released < len(change.running.units)
        if policy.traits.rigid and change.running.units and kept:
            raise policy.refusal(
                f"job {name!r} runs and is rigid: its units cannot change"
            )
    if len(found) > 1:
        found.sort(key=lambda change: change.gains > 0)
    return found


def _whole(
    counts: Sequence[object] | IntArray, in_play: InPlay, policy: PolicyCall
) -> IntArray:
    """Return the counts in a policy's answer, which may be of any type, as int64 of shape (jobs,)."""
    jobs = len(in_play.line)
    answer = counts.array if isinstance(counts, Counts) else np.asarray(counts)
    if answer.shape != (jobs,):
        raise policy.refusal(f"it answered {len(counts)} counts for {jobs} jobs")
    if answer.dtype is not _INT64 and jobs:
        answer = answer.astype(np.int64, casting="safe")
    return answer


def _check_size(running: Running, count: int, policy: PolicyCall) -> None:
    """Refuse a number of units on which a job does not run."""
    job = running.job
    if not count:
        return
    if job.sizes is not None and not job.runs_on(count):
        sizes = shown_sizes(job.sizes)
        raise policy.refusal(
            f"it gave job {job.name!r} {count} units, and not 0 or one of its sizes, {sizes}"
        )
    if not job.jmin <= count <= job.jmax:
        raise policy.refusal(
            f"it gave job {job.name!r} {count} units, outside 0 and [{job.jmin}, {job.jmax}]"
        )


def _counted(
    answer: IntArray,
    kinds: Sequence[Any],
    in_play: InPlay,
    held: Holdings,
    policy: PolicyCall,
) -> list[Change]:
    """Return the changes of counts: shrinking jobs release their newest units, growing ones get free ones.

    A job keeps its kind of units, or gives up all that it has.
    """
    if len(kinds) != len(answer) and held.kinds:
        raise policy.refusal(
            f"it named {len(kinds)} kinds for {len(answer)} jobs; expected one for each"
        )
    # Jobs whose counts are as they were are not looked at, unless they may change to another kind or must not stay.
    differs = (answer != in_play.live(HELD)).nonzero()[0]
    others = [in_play.position(running) for running in in_play.short.values()]
    if held.kinds:
        others += in_play.running
    if others:
        differs = np.union1d(differs, others)
    left = held.free_by_kind()
    found = []
    for position, count in zip(differs.tolist(), answer[differs].tolist(), strict=True):
        running = in_play.line[position]
        _check_size(running, count, policy)
        units = running.units
        kind = kinds[position] if held.kinds else ""
        if count and kind not in left:
            raise policy.refusal(
                f"it gave job {running.job.name!r} units of {kind!r}; expected {', '.join(left)}"
            )
        before = held.kind_of(units[0]) if units and held.kinds else kind
        grows = count - len(units)
        if count and kind != before:
            found.append(Change(running, list(units), count, (), kind, elsewhere=True))
            left[before] += len(units)
            left[kind] -= count
        elif grows > 0:
            found.append(Change(running, (), grows, (), kind))
            left[kind] -= grows
        elif grows < 0:
            found.append(Change(running, held.newest(units, -grows)))
            left[before] -= grows
    for kind, units_left in left.items():
        if units_left < 0:
            idle = held.idle_by_kind().get(kind, held.idle)
            of_kind = f" of kind {kind!r}" if kind else ""
            raise policy.refusal(
                f"it gave {idle - units_left} units{of_kind} of {idle} idle ones"
            )
    return found


def _placed(
    placement: Mapping[int, Sequence[int]],
    in_play: InPlay,
    held: Holdings,
    policy: PolicyCall,
) -> list[Change]:
    """Return the changes of an answer that names units; a unit has at most two holders afterwards."""
    found = []
    for running in in_play.short.values():  # these have too few units to continue
        if in_play.position(running) not in placement:
            _check_size(running, len(running.units), policy)
    for position, units in sorted(placement.items()):
        if not 0 <= position < len(in_play.line):
            raise policy.refusal(f"it placed job {position} of {len(in_play.line)}")
        running = in_play.line[position]
        _check_size(running, len(units), policy)
        name, distinct = running.job.name, set(units)
        if len(distinct) != len(units) or not held.all_idle(distinct):
            raise policy.refusal(
                f"it gave job {name!r} units twice, or such as are not idle: {units}"
            )
        if held.kinds and len({held.kind_of(unit) for unit in units}) > 1:
            raise policy.refusal(
                f"it gave job {name!r} units of several kinds: {units}"
            )
        change = _changed_units(running, units)
        if change is not None:
            found.append(change)
    _check_holders(found, held, policy)
    return found


def _changed_units(running: Running, after: Sequence[int]) -> Change | None:
    """Return the change from a job's units to those named, None where they are the same."""
    before = running.units
    released: Sequence[int] = before
    granted = after
    if before and after:
        kept, old = set(after), set(before)
        released = [unit for unit in before if unit not in kept]
        granted = [unit for unit in after if unit not in old]
    if not released and not granted:
        return None
    return Change(running, released, len(granted), granted)


def _check_holders(found: Sequence[Change], held: Holdings, policy: PolicyCall) -> None:
    """Refuse a third holder of a unit."""
    holders: dict[int, int] = {}  # of the units that any job gets
    for change in found:
        for unit in change.granted:
            if unit not in holders:
                holders[unit] = held.count(unit)
            holders[unit] += 1
    for change in found:
        for unit in change.released:
            if unit in holders:
                holders[unit] -= 1
    for unit, count in holders.items():
        if count > 2:
            raise policy.refusal(f"it gave unit {unit} to {count} jobs")


def _transferred(
    transfers: Sequence[Transfer], in_play: InPlay, held: Holdings, policy: PolicyCall
) -> list[Change]:
    """Return the changes of an answer that moves units between classes of holders."""
    current = [running.units for running in in_play.line]
    classes = _units_by_holders(in_play, held)
    wanted = [transfer for transfer in transfers if transfer.before or transfer.after]
    for transfer in wanted:
        before, after = transfer.before, transfer.after
        known = len(classes.get(before, ())) if before else held.free
        possible = len(set(after)) <= 2 and all(
            0 <= position < len(in_play.line) for position in after
        )
        if transfer.units > known or not possible:
            raise policy.refusal(
                f"it moved {transfer.units} units of {known} from {before} to {after}"
            )
    new = sum(transfer.units for transfer in wanted if not transfer.before)
    if new > held.free:
        raise policy.refusal(f"it gave {new} free units of {held.free}")
    classes[()] = list(held.take(new))
    moved = move(current, classes, wanted)
    return _placed(dict(enumerate(moved)), in_play, held, policy)


def _units_by_holders(
    in_play: InPlay, held: Holdings
) -> dict[tuple[int, ...], list[int]]:
    """Return the held units by the positions of the jobs that hold them."""
    # A shared unit stands with its first holder.
    holders_of = {
        unit: held.holders(unit) for running in in_play.line for unit in running.units
    }
    classes: dict[tuple[int, ...], list[int]] = {}
    for unit, holders in holders_of.items():
        classes.setdefault(holders, []).append(unit)
    return {
        tuple(map(in_play.position, in_play.of(holders))): units
        for holders, units in classes.items()
    }
