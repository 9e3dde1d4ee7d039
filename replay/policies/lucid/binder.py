"""Which running job a new one may join on its units (Lucid's Affine-jobpair Binder, ASPLOS'23)."""

from __future__ import annotations

from dataclasses import dataclass

from bft.models import Job
from bft.replay.engine.sharing_rules import Interference


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that may share: what its profile says of it.

    Parameters
    ----------
    job, position
        Which, and where it is in `State.jobs`.
    units
        Those that it holds; a newcomer has none.
    priority
        Predicted duration x units in unit-seconds: less comes first.
    score
        Sharing score 0, 1 or 2: how much it slows down others, see `bft.models.prediction.packing`.
    """

    job: Job
    position: int
    units: tuple[int, ...]
    priority: float
    score: float


@dataclass(frozen=True, slots=True)
class PairRules:
    """Who may share with whom.

    Parameters
    ----------
    score_sum
        The scores of two partners may add up to so much.
    priority_ratio
        A newcomer's priority may be so many times that of the job that it joins: who is nearly done is not held up by
        a long job.
    unit_memory_gib
        Two jobs must take less than this together; None: memory is not looked at. A job that states none then shares
        with nobody.
    interference
        What the run knows of pairs; one that it does not allow is not made. None allows none.
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
            and self.interference.xi(newcomer.job, running.job, newcomer.job.request, len(running.units)) is not None
        )

    def _fit(self, a: Job, b: Job) -> bool:
        if self.unit_memory_gib is None:
            return True
        return (
            a.memory_gib is not None and b.memory_gib is not None and a.memory_gib + b.memory_gib < self.unit_memory_gib
        )


class Binder:
    """The jobs that run alone at a decision, in the order in which they started."""

    def __init__(self, rules: PairRules) -> None:
        self._rules = rules
        self._alone: dict[int, list[Candidate]] = {}  # by how many units they hold

    def __len__(self) -> int:
        return sum(map(len, self._alone.values()))

    def add(self, running: Candidate) -> None:
        """A job runs alone; it started after those that were added before."""
        self._alone.setdefault(len(running.units), []).append(running)

    def bind(self, newcomer: Candidate) -> Candidate | None:
        """The first job that the newcomer may join, which then runs alone no more; None when there is none."""
        alone = self._alone.get(newcomer.job.request, [])
        for position, running in enumerate(alone):
            if self._rules.allow(newcomer, running):
                return alone.pop(position)
        return None
