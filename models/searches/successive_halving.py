"""Hyper-parameter search by asynchronous successive halving: at each rung, trials that are not among the best stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bft.models.checks import Number, check_fields, whole
from bft.models.jobs import Job
from bft.models.plugins import constant
from bft.models.searches.workload_api import NOTHING, Event, Orders

# What a trial scores when it has done a part f of its work: its quality times f to this power, and noise.
LEARNING = 0.25


@dataclass
class SuccessiveHalving:
    """Every job is a trial; at a rung it goes on if it is among the best 1/eta of those that have come so far.

    Rung k = 1, ..., K lies at Pmax / eta^(K+1-k) samples. The trial's score there is compared with the n scores that
    this rung has seen, its own included: it goes on if fewer than max(1, floor(n / eta)) of them are better, otherwise
    it is cancelled. Nobody waits for anybody, so a rung's first trials go on too easily.

    The scores are made up. A trial's quality q is drawn evenly from [0, 1) by `seed` and its name; at a part f of its
    work it scores q · f^0.25, and at rungs a normal error of deviation noise · (1 - f) on top.

    References
    ----------
    Li et al., A System for Massively Parallel Hyperparameter Tuning, MLSys 2020: algorithm 2, ASHA, in the variant that
    stops trials and never pauses them.

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 4], [0, 40])
    >>> job = Job("a", 0, 1, 4, 8100.0, 5.0, 5.0, curve, curve)
    >>> SuccessiveHalving().rungs(job)
    [100.0, 300.0, 900.0, 2700.0]
    """

    eta: int = constant(3, "one of so many trials goes on at a rung", whole(2))
    levels: int = constant(4, "how many rungs there are", whole(1))
    noise: float = constant(
        0.05, "how far a score early on may be from what it shows", Number(0)
    )
    seed: int = 0
    name: str = field(default="hpo", init=False)
    _scores: dict[int, list[float]] = field(
        default_factory=dict, init=False, repr=False
    )  # at each rung, in order

    def __post_init__(self) -> None:
        check_fields(self)

    def rungs(self, job: Job) -> Sequence[float]:
        """Return the samples at which a job's score is compared with others'."""
        return [job.pmax / self.eta**k for k in range(self.levels, 0, -1)]

    def on(self, event: Event) -> Orders:
        """Score the trial of an event; cancel it when it is not among the best."""
        if event.kind == "start":
            return NOTHING
        score = self._score(event)
        if event.kind == "finish":
            return Orders(score=score)
        seen = self._scores.setdefault(event.rung, [])
        seen.append(score)
        stays = sum(other > score for other in seen) < max(1, len(seen) // self.eta)
        return Orders(cancel=() if stays else (event.job.name,), score=score)

    def _score(self, event: Event) -> float:
        rng = np.random.default_rng((self.seed, *event.job.name.encode()))
        quality, errors = rng.uniform(), rng.standard_normal(self.levels)
        part = event.progress / event.job.pmax
        error = (
            self.noise * (1 - part) * errors[event.rung - 1]
            if event.kind == "rung"
            else 0.0
        )
        return float(quality * part**LEARNING + error)
