"""Decides which running job a new one may join on its units (Lucid's Affine-jobpair Binder, ASPLOS'23)."""

from __future__ import annotations

from dataclasses import dataclass

from bft.models import Job
from bft.replay.engine.sharing_rules import Interference


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that may share, with the data of its profile.

    Parameters
    ----------
    job, position
        The job, and its position in `State.jobs`.
    units
        The units it holds; a newcomer holds none.
    priority
        Predicted duration x units in unit-seconds: smaller comes first.
    score
        Sharing score 0, 1 or 2: how much it slows down other jobs, see `bft.models.prediction.packing`.
    """

    job: Job
    position: int
    units: tuple[int, ...]
    priority: float
    score: float


@dataclass(frozen=True, slots=True)
class PairRules:
    """The rules for pairs that may share.

    Parameters
    ----------
    score_sum
        Upper bound of the sum of two partners' scores.
    priority_ratio
        Upper bound of a newcomer's priority over that of the job that it joins: a long job must not slow down one that
        is nearly done.
    unit_memory_gib
        Two jobs together must need less than this; None: no check of memory. With a check, a job without known memory
        does not share.
    interference
        The pairs known to the run; only pairs that it allows are made. None allows no pair.
    """

    score_sum: float = 2.0
    priority_ratio: float = 2.0
    unit_memory_gib: float | None = None
    interference: Interference | None = None

    def allow(self, newcomer: Candidate, running: Candidate) -> bool:
        """Whether a newcomer may join a job that runs alone."""
        return (
            newcomer.job.request == len(running.units)
            and newcomer.score + running.score <= self.score_sum
            and newcomer.priority <= self.priority_ratio * running.priority
            and self._fit(newcomer.job, running.job)
            and self.interference is not None
            and self.interference.xi(
                newcomer.job, running.job, newcomer.job.request, len(running.units)
            )
            is not None
        )

    def _fit(self, a: Job, b: Job) -> bool:
        if self.unit_memory_gib is None:
            return True
        return (
            a.memory_gib is not None
            and b.memory_gib is not None
            and a.memory_gib + b.memory_gib < self.unit_memory_gib
        )


class Binder:
    """The jobs that run alone at a decision, in the order in which they started."""

    def __init__(self, rules: PairRules) -> None:
        self._rules = rules
        self._alone: dict[int, list[Candidate]] = {}  # by number of units

    def __len__(self) -> int:
        return sum(map(len, self._alone.values()))

    def add(self, running: Candidate) -> None:
        """Add a job that runs alone; it started after those added before."""
        self._alone.setdefault(len(running.units), []).append(running)

    def bind(self, newcomer: Candidate) -> Candidate | None:
        """The first job that the newcomer may join, None if there is none; it then no longer runs alone."""
        alone = self._alone.get(newcomer.job.request, [])
        for position, running in enumerate(alone):
            if self._rules.allow(newcomer, running):
                return alone.pop(position)
        return None
