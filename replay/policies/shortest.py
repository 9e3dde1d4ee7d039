"""Shortest job first, with known durations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from bft.models import Job
from bft.replay.engine.port import Decision, JobView, Kind, State
from bft.replay.policies.rigid import run, run_by_quota, start

By = Literal["time", "unit-time", "units"]


@dataclass
class ShortestFirst:
    """Run jobs by total time at the requested size, shortest first, without preemption; uses true durations.

    Parameters
    ----------
    backfill
        Skip a job that does not fit, and continue.
    consolidate
        Place each job on as few nodes as possible; otherwise on any units.
    """

    backfill: bool = field(default=False, metadata={"help": "skip jobs that do not fit, and continue"})
    consolidate: bool = field(default=True, metadata={"help": "place each job on as few nodes as it needs"})
    name: str = field(default="sjf", init=False)
    kind: ClassVar[Kind] = Kind(rigid=True, clairvoyant=True)
    _seconds: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def decide(self, state: State) -> Decision:
        """Start the shortest jobs."""
        if not state.free:
            return Decision.keep()
        waiting = sorted(state.waiting, key=lambda position: self._total_s(state.jobs[position].job))
        return start(state, waiting, spreads=lambda job: not self.consolidate, blocks=not self.backfill)

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

    by: By = field(default="time", metadata={"help": "what is short: remaining time, remaining unit-time, or units"})
    consolidate: bool = field(default=True, metadata={"help": "place each job on as few nodes as it needs"})
    compat: bool = field(default=False, metadata={"help": "give units out by quota, as Lucid's artifact"})
    name: str = field(default="srtf", init=False)
    kind: ClassVar[Kind] = Kind(rigid=True, clairvoyant=True)

    def decide(self, state: State) -> Decision:
        """Run the shortest; among equals running jobs first, then those with fewer units, then by submission."""
        order = sorted(range(len(state.jobs)), key=lambda position: self._key(state.jobs[position]))
        walk = run_by_quota if self.compat else run
        return walk(state, order, spreads=lambda job: not self.consolidate)

    def _key(self, view: JobView) -> tuple[float, bool, int]:
        units = view.job.request
        if self.by == "units":
            return units, not view.units, 0
        seconds = seconds_at_request(view.job, view.remaining)
        return (seconds, not view.units, 0) if self.by == "time" else (seconds * units, not view.units, units)


def seconds_at_request(job: Job, work: float) -> float:
    """Seconds that so many samples take on the units that a job asks for; infinite where it makes no progress."""
    rate = float(job.rates[job.request])
    return work / rate if rate else float("inf")
