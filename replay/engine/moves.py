"""From a policy's decision to the units that each job releases and gets; whatever no scheduler may do is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral

from bft.milp import move
from bft.replay.engine.holdings import Holdings
from bft.replay.engine.port import Decision, Kind, Policy, PolicyError, State
from bft.replay.engine.running import Running


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
        """As the policy's `Kind` states them."""
        kind = Kind.of(policy)
        return cls(policy.name, kind.rigid, kind.migrates, kind.clairvoyant, kind.tunes)

    def refusal(self, what: str) -> PolicyError:
        """Why the policy is stopped."""
        return PolicyError(f"policy {self.name!r} was stopped: {what}")


@dataclass(slots=True)
class Change:
    """What becomes of one job: units it releases, then units it gets, named or (`wanted`) any free ones."""

    running: Running
    released: list[int] = field(default_factory=list)
    granted: list[int] = field(default_factory=list)
    wanted: int = 0


def changes(
    decision: Decision, state: State, in_play: Sequence[Running], held: Holdings, traits: Traits
) -> list[Change]:
    """What a decision changes, those that only release first, in order of admission.

    Raises
    ------
    PolicyError
        When the policy answers what it may not: unknown jobs, sizes out of bounds, more than there is, three jobs on a
        unit, a migration where it is forbidden, another size for a running job where the policy is rigid.
    """
    _check_counts(decision, state, traits)
    if decision.placement is not None:
        found = _placed(decision.placement, in_play, held, traits)
    elif decision.transfers:
        found = _transferred(decision, in_play, held, traits)
    else:
        if sum(decision.counts) > state.idle + held_twice(in_play):
            raise traits.refusal(f"it gave {sum(decision.counts)} units of {state.idle} idle ones")
        found = _counted(decision.counts, in_play, held)
    for change in found:
        gains = change.granted or change.wanted
        if change.released and gains and not traits.migrates:
            raise traits.refusal(
                f"job {change.running.job.name!r} migrates: it loses {len(change.released)} units and gains others"
            )
        if traits.rigid and change.running.units and (gains or len(change.released) < len(change.running.units)):
            raise traits.refusal(f"job {change.running.job.name!r} runs and is rigid: its units cannot change")
    return sorted(found, key=lambda change: bool(change.granted or change.wanted))


def _check_counts(decision: Decision, state: State, traits: Traits) -> None:
    if len(decision.counts) != len(state.jobs):
        raise traits.refusal(f"it answered {len(decision.counts)} counts for {len(state.jobs)} jobs")
    answered: tuple[object, ...] = decision.counts  # third parties may answer anything
    for view, count in zip(state.jobs, answered, strict=True):
        if not isinstance(count, Integral):
            raise traits.refusal(f"it gave job {view.job.name!r} {count!r} units, which is no whole number")
        if count and not max(view.job.jmin, 1) <= int(count) <= view.job.jmax:
            raise traits.refusal(
                f"it gave job {view.job.name!r} {count} units, outside 0 and [{view.job.jmin}, {view.job.jmax}]"
            )


def held_twice(in_play: Sequence[Running]) -> int:
    """Units that two jobs hold."""
    return sum(sum(running.partners.values()) for running in in_play) // 2


def _counted(counts: Sequence[int], in_play: Sequence[Running], held: Holdings) -> list[Change]:
    """Shrinking jobs release their newest units, growing ones take free ones."""
    found = []
    for running, count in zip(in_play, counts, strict=True):
        now = len(running.units)
        if count < now:
            found.append(Change(running, held.newest(running.units, now - count)))
        elif count > now:
            found.append(Change(running, wanted=count - now))
    return found


def _placed(
    placement: Mapping[int, tuple[int, ...]], in_play: Sequence[Running], held: Holdings, traits: Traits
) -> list[Change]:
    """Exactly the units that are named; a unit has at most two holders afterwards."""
    found = []
    holders: dict[int, int] = {}  # of the units that somebody gets
    for position, units in sorted(placement.items()):
        if not 0 <= position < len(in_play):
            raise traits.refusal(f"it placed job {position} of {len(in_play)}")
        running = in_play[position]
        wanted, old = set(units), set(running.units)
        if len(wanted) != len(units) or not all(0 <= unit < len(held) and held.is_idle(unit) for unit in wanted):
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


def _transferred(decision: Decision, in_play: Sequence[Running], held: Holdings, traits: Traits) -> list[Change]:
    """Move units between classes of holders as the decision's transfers say."""
    position = {running.index: at for at, running in enumerate(in_play)}
    current = [running.units for running in in_play]
    classes: dict[tuple[int, ...], list[int]] = {}
    for at, units in enumerate(current):
        for unit in units:
            holders = tuple(sorted(position[index] for index in held.holders(unit)))
            if holders[0] == at:
                classes.setdefault(holders, []).append(unit)
    wanted = [transfer for transfer in decision.transfers if transfer.before or transfer.after]
    for transfer in wanted:
        known = len(held.free) if not transfer.before else len(classes.get(transfer.before, ()))
        if transfer.units > known or len(set(transfer.after)) > 2:
            raise traits.refusal(f"it moved {transfer.units} units of {known} from {transfer.before}")
    new = sum(transfer.units for transfer in wanted if not transfer.before)
    if new > len(held.free):
        raise traits.refusal(f"it gave {new} free units of {len(held.free)}")
    classes[()] = held.take(new)
    found = []
    for running, before, after in zip(in_play, current, move(current, classes, wanted), strict=True):
        kept, old = set(after), set(before)
        released = [unit for unit in before if unit not in kept]
        granted = [unit for unit in after if unit not in old]
        if released or granted:
            found.append(Change(running, released, granted))
    after_all = {change.running.index: len(change.granted) - len(change.released) for change in found}
    if tuple(len(r.units) + after_all.get(r.index, 0) for r in in_play) != tuple(decision.counts):
        raise traits.refusal("its transfers do not lead to its counts")
    return found
