"""From a policy's decision to the units that each job releases and gets; forbidden moves are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from bft.milp import Transfer, move
from bft.models.jobs import shown_sizes
from bft.replay.engine.holdings import Holdings
from bft.replay.engine.in_play import InPlay
from bft.replay.engine.port import Decision, Kind, Policy, PolicyError
from bft.replay.engine.running import Running

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Traits:
    """Name and kind of the policy that is asked; see `Kind`."""

    name: str
    rigid: bool
    migrates: bool
    clairvoyant: bool
    tunes: bool

    @classmethod
    def of(cls, policy: Policy) -> Traits:
        """From the policy's `Kind`."""
        kind = Kind.of(policy)
        return cls(policy.name, kind.rigid, kind.migrates, kind.clairvoyant, kind.tunes)

    def refusal(self, what: str) -> PolicyError:
        """The error with which the policy is stopped."""
        return PolicyError(f"policy {self.name!r} was stopped: {what}")


@dataclass(slots=True)
class Change:
    """The change of one job: units it releases, then units it gets, named ones or any `wanted` free ones."""

    running: Running
    released: list[int] = field(default_factory=list)
    granted: list[int] = field(default_factory=list)
    wanted: int = 0


def changes(decision: Decision, idle: int, in_play: InPlay, held: Holdings, traits: Traits) -> list[Change]:
    """The changes of a decision: jobs that only release come first, then in order of admission.

    Raises
    ------
    PolicyError
        For an invalid answer: unknown jobs, sizes out of bounds, more units than there are, three jobs on a
        unit, a migration where it is forbidden, another size for a running job where the policy is rigid.
    """
    found: list[Change] = []
    if decision.placement is not None:
        found = _placed(decision.placement, in_play, held, traits)
    elif decision.transfers is not None:
        found = _transferred(decision.transfers, in_play, held, traits)
    elif decision.counts is not None:
        found = _counted(_whole(decision.counts, in_play, traits), idle, in_play, held, traits)
    for change in found:
        gains = change.granted or change.wanted
        if change.released and gains and not traits.migrates:
            raise traits.refusal(
                f"job {change.running.job.name!r} migrates: it loses {len(change.released)} units and gains others"
            )
        if traits.rigid and change.running.units and (gains or len(change.released) < len(change.running.units)):
            raise traits.refusal(f"job {change.running.job.name!r} runs and is rigid: its units cannot change")
    return sorted(found, key=lambda change: bool(change.granted or change.wanted)) if len(found) > 1 else found


def _whole(counts: Sequence[object] | IntArray, in_play: InPlay, traits: Traits) -> IntArray:
    """The counts in a policy's answer, which may be of any type: int64 of shape (jobs,)."""
    if len(counts) != len(in_play):
        raise traits.refusal(f"it answered {len(counts)} counts for {len(in_play)} jobs")
    try:
        answer = np.asarray(counts)
    except (ValueError, TypeError, OverflowError):  # lists of several lengths and the like
        answer = np.empty(0, dtype=object)
    if answer.dtype.kind not in "bi" or answer.ndim != 1:
        for running, count in zip(in_play, counts, strict=True):
            if not isinstance(count, Integral):
                raise traits.refusal(f"it gave job {running.job.name!r} {count!r} units, which is no whole number")
            _check_size(running, int(count), traits)
        return np.array([int(count) for count in counts if isinstance(count, Integral)], dtype=np.int64)
    return answer.astype(np.int64, copy=False)


def _check_size(running: Running, count: int, traits: Traits) -> None:
    job = running.job
    if count and job.sizes is not None and not job.runs_on(count):
        sizes = shown_sizes(job.sizes)
        raise traits.refusal(f"it gave job {job.name!r} {count} units, and not 0 or one of its sizes, {sizes}")
    if count and not max(job.jmin, 1) <= count <= job.jmax:
        raise traits.refusal(f"it gave job {job.name!r} {count} units, outside 0 and [{job.jmin}, {job.jmax}]")


def _counted(answer: IntArray, idle: int, in_play: InPlay, held: Holdings, traits: Traits) -> list[Change]:
    """Shrinking jobs release their newest units, growing ones take free ones."""
    differs = (answer != in_play.counts).nonzero()[0]
    if in_play.short:  # these have too few units to continue
        differs = np.union1d(differs, [in_play.position(running) for running in in_play.short.values()])
    total = in_play.held
    found = []
    for position, count in zip(differs.tolist(), answer[differs].tolist(), strict=True):
        running = in_play[position]
        _check_size(running, count, traits)
        grows = count - len(running.units)
        total += grows
        if grows > 0:
            found.append(Change(running, wanted=grows))
        elif grows < 0:
            found.append(Change(running, held.newest(running.units, -grows)))
    if total > idle + in_play.twice:
        raise traits.refusal(f"it gave {total} units of {idle} idle ones")
    return found


def _placed(placement: Mapping[int, Sequence[int]], in_play: InPlay, held: Holdings, traits: Traits) -> list[Change]:
    """Exactly the units that are named; a unit has at most two holders afterwards."""
    found = []
    machine = len(held)
    holders: dict[int, int] = {}  # of the units that somebody gets
    for running in in_play.short.values():  # these have too few units to continue
        if in_play.position(running) not in placement:
            _check_size(running, len(running.units), traits)
    for position, units in sorted(placement.items()):
        if not 0 <= position < len(in_play):
            raise traits.refusal(f"it placed job {position} of {len(in_play)}")
        running = in_play[position]
        _check_size(running, len(units), traits)
        wanted, old = set(units), set(running.units)
        if len(wanted) != len(units) or not all(0 <= unit < machine and held.is_idle(unit) for unit in wanted):
            raise traits.refusal(f"it gave job {running.job.name!r} units twice, or such as are not idle: {units}")
        released = [unit for unit in running.units if unit not in wanted]
        granted = [unit for unit in units if unit not in old]
        if released or granted:
            found.append(Change(running, released, granted))
        for unit in granted:
            holders[unit] = holders.get(unit, len(held.holders(unit))) + 1
    for change in found:
        for unit in change.released:
            if unit in holders:
                holders[unit] -= 1
    crowded = next((unit for unit, count in holders.items() if count > 2), None)
    if crowded is not None:
        raise traits.refusal(f"it gave unit {crowded} to {holders[crowded]} jobs")
    return found


def _transferred(transfers: Sequence[Transfer], in_play: InPlay, held: Holdings, traits: Traits) -> list[Change]:
    """Move units between classes of holders."""
    current = [running.units for running in in_play]
    classes: dict[tuple[int, ...], list[int]] = {}
    for at, units in enumerate(current):
        for unit in units:
            holders = tuple(map(in_play.position, in_play.of(held.holders(unit))))
            if holders[0] == at:
                classes.setdefault(holders, []).append(unit)
    wanted = [transfer for transfer in transfers if transfer.before or transfer.after]
    for transfer in wanted:
        known = held.free if not transfer.before else len(classes.get(transfer.before, ()))
        strange = any(not 0 <= position < len(in_play) for position in transfer.after) or len(set(transfer.after)) > 2
        if transfer.units > known or strange:
            raise traits.refusal(
                f"it moved {transfer.units} units of {known} from {transfer.before} to {transfer.after}"
            )
    new = sum(transfer.units for transfer in wanted if not transfer.before)
    if new > held.free:
        raise traits.refusal(f"it gave {new} free units of {held.free}")
    classes[()] = held.take(new)
    found = []
    for running, before, after in zip(in_play, current, move(current, classes, wanted), strict=True):
        _check_size(running, len(after), traits)
        kept, old = set(after), set(before)
        released = [unit for unit in before if unit not in kept]
        granted = [unit for unit in after if unit not in old]
        if released or granted:
            found.append(Change(running, released, granted))
    return found
