"""Two searches: by asynchronous successive halving, where trials stop at rungs, and by ageing evolution of networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
        if event.type == "start":
            return NOTHING
        score = self._score(event)
        if event.type == "finish":
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
            if event.type == "rung"
            else 0.0
        )
        return float(quality * part**LEARNING + error)


# Lots of random numbers: whose quality a draw is, and what a child is.
_QUALITY, _CHILD = 1, 2


@dataclass
class Evolution:
    """The jobs are a first generation; whenever a member finishes, one of the best has a child, which is submitted.

    A finished member joins the population, of which the `population` youngest count. Of `sample` of these, drawn with
    replacement, the one with the best score becomes the parent. Its child is a job of the same kind: curves and sizes
    are the parent's, the work is the parent's times exp(x), x normal of deviation `growth`. After `children` children
    there are no more.

    The scores are made up: those of the first generation are drawn evenly from [0, 1), a child's is its parent's plus
    a normal change of deviation `step`, within [0, 1]. All follows `seed` and the order in which members finish.

    References
    ----------
    Real et al., Regularized Evolution for Image Classifier Architecture Search, AAAI 2019: algorithm 1.

    Examples
    --------
    >>> from bft.models import Curve
    >>> curve = Curve([0, 4], [0, 40])
    >>> job = Job("a", 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve)
    >>> orders = Evolution().on(Event("finish", job, 60 * 10**9, 3000.0, jobs={"a": job}))
    >>> [child.name for child in orders.submit]
    ['a+1']
    """

    children: int = constant(100, "how many members are spawned in all", whole(0))
    population: int = constant(
        20, "how many of the youngest members may be parents", whole(1)
    )
    sample: int = constant(5, "of how many of these the best is taken", whole(1))
    step: float = constant(
        0.05, "how much a child's score differs from its parent's", Number(0)
    )
    growth: float = constant(
        0.1, "how much a child's work differs, as a logarithm", Number(0)
    )
    seed: int = 0
    name: str = field(default="nas", init=False)
    _spawned: int = field(default=0, init=False, repr=False)
    _scores: dict[str, float] = field(
        default_factory=dict, init=False, repr=False
    )  # of children under way
    _members: list[tuple[str, float]] = field(
        default_factory=list, init=False, repr=False
    )  # finished, youngest last

    def __post_init__(self) -> None:
        check_fields(self)

    def rungs(self, job: Job) -> Sequence[float]:
        """Return no rungs: only finished members count."""
        return ()

    def on(self, event: Event) -> Orders:
        """Score a member that has finished, and submit a child of one of the best."""
        if event.type != "finish":
            return NOTHING
        score = self._scores.pop(event.job.name, None)
        if score is None:  # of the first generation
            score = float(
                np.random.default_rng(
                    (self.seed, _QUALITY, *event.job.name.encode())
                ).uniform()
            )
        self._members = [*self._members, (event.job.name, score)][-self.population :]
        if self._spawned == self.children:
            return Orders(score=score)
        self._spawned += 1
        return Orders(submit=(self._child(event),), score=score)

    def _child(self, event: Event) -> Job:
        rng = np.random.default_rng((self.seed, _CHILD, self._spawned))
        drawn = [
            self._members[k] for k in rng.integers(len(self._members), size=self.sample)
        ]
        parent, score = max(drawn, key=lambda member: member[1])
        change, growth = rng.standard_normal(2)
        root = event.jobs[parent]
        name = f"{parent.rpartition('+')[0] or parent}+{self._spawned}"
        self._scores[name] = min(max(score + self.step * float(change), 0.0), 1.0)
        pmax = root.pmax * math.exp(self.growth * float(growth))
        return replace(
            root, name=name, tsub_ns=event.time_ns, pmax=pmax, deadline_ns=None
        )
