"""Shortest job first, with known durations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from bft.models import Job
from bft.models.tolerances import rounded
from bft.replay.engine.policy_api import Decision, JobView, State, Traits
from bft.replay.policies._constants import consolidates, constant
from bft.replay.policies.rigid import Queue, run, run_by_quota

Key = tuple[float, bool, int]


@dataclass
class ShortestFirst(Queue):
    """Run jobs by total time at the requested size, shortest first, without preemption; uses true durations."""

    name: str = field(default="sjf", init=False)
    traits: ClassVar[Traits] = Traits(rigid=True, clairvoyant=True)
    _seconds: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _positions: Mapping[str, int] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _order: list[int] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def queue(self, state: State) -> Iterable[int]:
        """The waiting jobs, shortest first."""
        if not state.free:
            return ()
        if state.jobs.positions is not self._positions:  # the jobs in play have changed
            self._positions = state.jobs.positions
            self._order = sorted(
                range(len(state.jobs)),
                key=lambda position: self._total_s(state.jobs[position].job),
            )
        counts = state.jobs.counts
        return (position for position in self._order if not counts[position])

    def _total_s(self, job: Job) -> float:
        seconds = self._seconds.get(job.name)
        if seconds is None:
            seconds = self._seconds[job.name] = seconds_at_request(job, job.pmax)
        return seconds


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
    traits: ClassVar[Traits] = Traits(rigid=True, clairvoyant=True)
    # Keys of the jobs in play and their order, kept from one decision to the next: a job's key does not change while it
    # waits, so that only those that ran, or that the last decision changed, get a new one.
    _positions: Mapping[str, int] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _keys: list[tuple[Key, int]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    _order: list[int] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    _moved: set[int] = field(default_factory=set, init=False, repr=False, compare=False)

    def decide(self, state: State) -> Decision:
        """Run the shortest jobs; among equals running jobs first, then those with fewer units, then by submission."""
        if state.jobs.positions is not self._positions:
            self._positions = state.jobs.positions
            self._keys = [(self._key(view), p) for p, view in enumerate(state.jobs)]
            self._order, self._moved = list(range(len(self._keys))), set()
        for position in self._moved.union(state.jobs.running):
            self._keys[position] = self._key(state.jobs[position]), position
        self._order.sort(key=self._keys.__getitem__)
        walk = run_by_quota if self.compat else run
        decision = walk(state, self._order, spreads=lambda job: not self.consolidate)
        self._moved = {*state.jobs.running, *(decision.placement or ())}
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
