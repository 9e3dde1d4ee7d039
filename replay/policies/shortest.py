"""Shortest job first, with known durations."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from typing import ClassVar, Literal

from bft.models import Job
from bft.models.tolerances import rounded
from bft.replay.engine.policy_api import Decision, JobView, Kind, State
from bft.replay.policies._constants import consolidates, constant
from bft.replay.policies.rigid import Queue, run, run_by_quota

Key = tuple[float, bool, int]


@dataclass
class ShortestFirst(Queue):
    """Run jobs by total time at the requested size, shortest first, without preemption; uses true durations."""

    name: str = field(default="sjf", init=False)
    kind: ClassVar[Kind] = Kind(rigid=True, clairvoyant=True)
    _seconds: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _positions: Mapping[str, int] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _order: list[int] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def queue(self, state: State) -> Iterable[int]:
        """The waiting jobs, shortest first."""
        if state.free and state.positions is not self._positions:
            self._positions = state.positions  # the jobs in play have changed
            self._order = sorted(
                range(len(state.jobs)),
                key=lambda position: self._total_s(state.jobs[position].job),
            )
        counts = state.counts
        return (position for position in self._order if not counts[position])

    def _total_s(self, job: Job) -> float:
        seconds = self._seconds.get(job.name)
        if seconds is None:
            seconds = self._seconds[job.name] = seconds_at_request(job, job.pmax)
        return seconds


@dataclass(slots=True)
class _Order:
    """Jobs in play, most urgent first: running and waiting ones, merged only as far as they are read."""

    running: list[tuple[Key, int]]
    waiting: list[tuple[Key, int]]

    def __iter__(self) -> Iterator[int]:
        return (position for _, position in merge(self.running, self.waiting))


@dataclass(slots=True)
class _Waiting:
    """The waiting jobs, most urgent first, kept from one decision to the next.

    A job's key does not change while it waits. So only jobs that ran, or that the last decision changed, get a new
    place; all are sorted anew when the jobs in play change.
    """

    moved: set[int] = field(default_factory=set)
    _positions: Mapping[str, int] | None = None
    _keys: dict[int, Key] = field(default_factory=dict)
    _order: list[tuple[Key, int]] = field(default_factory=list)

    def merged(self, state: State, key: Callable[[JobView], Key]) -> _Order:
        """Return all jobs in play, in the order of a key, then of their admission."""
        if state.positions is not self._positions:
            self._positions = state.positions
            self._keys = {
                position: key(state.jobs[position]) for position in state.waiting
            }
            self._order = sorted(
                (one, position) for position, one in self._keys.items()
            )
        else:
            for position in self.moved:
                self._move(position, state.jobs[position], key)
        self.moved = set(state.running)
        return _Order(
            sorted((key(state.jobs[position]), position) for position in state.running),
            self._order,
        )

    def _move(
        self, position: int, view: JobView, key: Callable[[JobView], Key]
    ) -> None:
        if position in self._keys:
            del self._order[
                bisect_left(self._order, (self._keys.pop(position), position))
            ]
        if not view.units:
            self._keys[position] = key(view)
            insort(self._order, (self._keys[position], position))


@dataclass
class ShortestRemainingFirst:
    """Run jobs with the shortest remaining time at the requested size, with preemption; uses true durations.

    Parameters
    ----------
    by
        The quantity to sort by: remaining `time`; remaining `unit-time`, time x units; or `units`, without time.
    consolidate
        Place each job on as few nodes as possible; otherwise on any units.
    compat
        As in Lucid's artifact: a job that fits by number of units but finds no place keeps its share from all other
        jobs.
    """

    by: Literal["time", "unit-time", "units"] = constant(
        "time", "what is short: remaining time, remaining unit-time, or units"
    )
    consolidate: bool = consolidates()
    compat: bool = constant(
        default=False, text="give units out by quota, as Lucid's artifact"
    )
    name: str = field(default="srtf", init=False)
    kind: ClassVar[Kind] = Kind(rigid=True, clairvoyant=True)
    _waiting: _Waiting = field(
        default_factory=_Waiting, init=False, repr=False, compare=False
    )

    def decide(self, state: State) -> Decision:
        """Run the shortest jobs; among equals running jobs first, then those with fewer units, then by submission."""
        order = self._waiting.merged(state, self._key)
        walk = run_by_quota if self.compat else run
        decision = walk(state, order, spreads=lambda job: not self.consolidate)
        self._waiting.moved.update(decision.placement or ())
        return decision

    def _key(self, view: JobView) -> Key:
        units = view.job.request
        if self.by == "units":
            return units, not view.units, 0
        seconds = seconds_at_request(view.job, view.remaining)
        return (
            (seconds, not view.units, 0)
            if self.by == "time"
            else (rounded(seconds * units), not view.units, units)
        )


def seconds_at_request(job: Job, work: float) -> float:
    """Seconds that so many samples take on the units that a job asks for; infinite where it makes no progress.

    Rounded, so that jobs which need equally long are equal, however their rates and their work are written.
    """
    rate = float(job.rates[job.request])
    return rounded(work / rate) if rate else float("inf")
