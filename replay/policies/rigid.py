"""Walking a queue of jobs that run with the units they ask for, or not at all.

All walks take positions in `State.jobs`, most urgent first. A running job is never moved: it keeps its units, or gives
all of them to a more urgent job.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, TypeAlias

from bft.models import Job
from bft.replay.engine.policy_api import Decision, State, Traits
from bft.replay.engine.units import FreeList
from bft.replay.policies._constants import consolidates, constant

# Whether a job may lie on more nodes than it needs.
Spreads: TypeAlias = Callable[[Job], bool]


@dataclass
class Queue(ABC):
    """Start waiting jobs in the order of `queue`; running jobs are not touched.

    Parameters
    ----------
    backfill
        Skip a job that does not fit, and continue; otherwise it blocks all later ones.
    consolidate
        Place each job on as few nodes as possible; otherwise on any units.
    """

    backfill: bool = constant(
        default=False, text="skip jobs that do not fit, and continue"
    )
    consolidate: bool = consolidates()
    traits: ClassVar[Traits] = Traits(rigid=True)

    @abstractmethod
    def queue(self, state: State) -> Iterable[int]:
        """Positions of the waiting jobs, most urgent first."""

    def decide(self, state: State) -> Decision:
        """Start the jobs at the head of the queue."""
        return start(
            state,
            self.queue(state),
            spreads=lambda job: not self.consolidate,
            blocks=not self.backfill,
        )


def start(
    state: State,
    waiting: Iterable[int],
    *,
    spreads: Spreads,
    blocks: bool = False,
    places: FreeList | None = None,
) -> Decision:
    """Start waiting jobs in turn on free units; running jobs are not touched.

    Parameters
    ----------
    state
        The moment.
    waiting
        Jobs that hold no units, most urgent first.
    spreads
        Which jobs may lie on more nodes than they need.
    blocks
        Stop at the first job that does not fit; otherwise skip it.
    places
        The free units that may be used; None: all.
    """
    if places is None and not state.free:
        return Decision.keep()
    places = state.machine.placement() if places is None else places
    refused = Refused()
    placed: dict[int, tuple[int, ...]] = {}
    for position in waiting if len(places) else ():
        job = state.jobs[position].job
        spread = spreads(job)
        units = None
        if not refused.surely(job.request, spread):
            units = places.take(job.request, spread=spread)
        if units is not None:
            placed[position] = units
        elif blocks:
            break
        else:
            refused.note(job.request, spread, False)
        if not len(places):
            break
    return Decision.placed(placed)


def within_quota(state: State, order: Iterable[int]) -> list[int]:
    """The most urgent jobs whose requests together fit the number of idle units; a job that does not fit is skipped.

    Parameters
    ----------
    state
        The moment.
    order
        Jobs in play, most urgent first.
    """
    left = state.idle
    runs = []
    for position in order:
        if not left:
            break
        request = state.jobs[position].job.request
        if request <= left:
            left -= request
            runs.append(position)
    return runs


def run_by_quota(state: State, order: Iterable[int], *, spreads: Spreads) -> Decision:
    """Run the most urgent jobs that fit by number of units, as Lucid's artifact does; all others stop.

    The waiting jobs among those that fit then look for a place in turn. A job without a place waits on, and its share
    goes to no other job.

    Parameters
    ----------
    state
        The moment.
    order
        All jobs in play, most urgent first.
    spreads
        Which jobs may lie on more nodes than they need.
    """
    runs = within_quota(state, order)
    stopped = sorted(set(state.jobs.running).difference(runs))
    places = state.machine.placement()
    for position in stopped:
        places.give_back(state.jobs[position].held)
    waiting = [position for position in runs if not state.jobs[position].units]
    started = start(state, waiting, spreads=spreads, places=places)
    return Decision.placed({**dict.fromkeys(stopped, ()), **(started.placement or {})})


def run(state: State, order: Iterable[int], *, spreads: Spreads) -> Decision:
    """Run the most urgent jobs that fit, preempting those that no longer do.

    Each job in turn takes its request from the units not taken by earlier jobs; a job that does not fit is skipped. A
    newcomer with too few or too scattered free units takes units of less urgent running jobs: first of jobs for which,
    by number of units, no room is left behind it anyway, then of the least urgent ones. A job gives way only if its
    units are needed. If it gave way although enough other units are free, the decision asks to be woken at once, so
    that the job gets its chance.

    Parameters
    ----------
    state
        The moment.
    order
        All jobs in play, most urgent first; iterated several times, each time only as far as there are units.
    spreads
        Which jobs may lie on more nodes than they need.
    """
    excess = _excess(state, order)
    if excess is None:
        return Decision.keep()
    places = state.machine.placement()
    per = state.machine.units_per_node
    refused = Refused()
    placed: dict[int, tuple[int, ...]] = {}
    ahead: set[int] = set()  # running jobs that are more urgent than the one in turn
    left = state.idle
    for position in order:
        if not left:
            break
        view = state.jobs[position]
        if view.units:
            ahead.add(position)
            left -= view.units if position not in placed else 0
            continue
        needed = view.job.request
        spread = spreads(view.job)
        if needed > left or refused.surely(needed, spread):
            continue
        units = places.take(needed, spread=spread)
        if units is None:
            running = set(state.jobs.running)
            ordered = (other for other in order if other in running)
            behind = [
                other
                for other in islice(ordered, len(running))
                if other not in ahead and other not in placed
            ]
            behind.sort(
                key=lambda other: other in excess
            )  # stable: the last ones give way first
            for other in _giving_way(
                state, behind, places, needed, spread=spread, per=per
            ):
                placed[other] = ()
                places.give_back(state.jobs[other].held)
            units = places.take(needed, spread=spread)
        if units is None:
            refused.note(needed, spread, False)
            continue
        placed[position] = units
        left -= needed
    elsewhere = any(
        not units and state.jobs[position].units <= len(places)
        for position, units in placed.items()
    )
    return Decision.placed(placed, wake_ns=state.time_ns + 1 if elsewhere else None)


def _excess(state: State, order: Iterable[int]) -> set[int] | None:
    """Running jobs without room, by number of units, after earlier jobs have theirs; None: no job starts."""
    left = state.idle
    starts = False
    running = set(state.jobs.running)
    for position in order:
        view = state.jobs[position]
        needed = view.units or view.job.request
        if needed <= left:
            left -= needed
            starts = starts or not view.units
            running.discard(position)
            if not left:
                break
    return running if starts else None


def _giving_way(
    state: State,
    behind: Sequence[int],
    places: FreeList,
    needed: int,
    *,
    spread: bool,
    per: int,
) -> list[int]:
    """Return the running jobs, most important first, that make room for a newcomer; empty if all are too few."""
    room = places.by_node()

    def change(position: int, sign: int) -> None:
        for unit in state.jobs[position].held:
            room[unit // per] = room.get(unit // per, 0) + sign

    chosen: list[int] = []
    for position in reversed(behind):
        change(position, 1)
        chosen.append(position)
        if _fits(room, needed, spread=spread, per=per):
            break
    else:
        return []
    for position in chosen[::-1]:  # most important first: is its room needed at all?
        change(position, -1)
        if _fits(room, needed, spread=spread, per=per):
            chosen.remove(position)
        else:
            change(position, 1)
    return chosen


def _fits(room: dict[int, int], needed: int, *, spread: bool, per: int) -> bool:
    """Whether `FreeList` with this much room on each node would have units for a job."""
    if spread or per == 1:
        return sum(room.values()) >= needed
    full_nodes, rest = divmod(needed, per)
    full = sum(free == per for free in room.values())
    if not rest:
        return full >= full_nodes
    return full >= full_nodes and (
        full > full_nodes or any(rest <= free < per for free in room.values())
    )


class Refused:
    """Sizes that found no room. Free room only shrinks during a walk, so nothing larger need be tried after them."""

    def __init__(self) -> None:
        self._least: dict[Hashable, int] = {}

    def note(self, units: int, *groups: Hashable) -> None:
        """Record that this many units were not available to jobs of these groups.

        Jobs that may be spread are of group True: what is not available to them is not to those of group False either.
        """
        for group in groups:
            self._least[group] = min(units, self._least.get(group, units))

    def surely(self, units: int, group: Hashable) -> bool:
        """Whether this many units are known to be unavailable to a job of a group."""
        return units >= self._least.get(group, math.inf)
