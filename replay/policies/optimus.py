"""Optimus (EuroSys'18): units go where they shorten the remaining time most; it is known, or predicted from loss."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal
from zlib import crc32

import numpy as np

from bft.models import InputError, Job, JobTable
from bft.models.checks import Number
from bft.models.speed.dynamics import ApplicationDynamics
from bft.models.tolerances import rounded
from bft.replay.engine.policy_api import Decision, JobView, State, Traits
from bft.replay.policies._constants import constant
from bft.replay.policies._rounds import Nodes, Rounds
from bft.replay.policies.predictions import number_in

# Columns of a job whose loss is followed: samples of an epoch, and its curve (replay/policies/optimus.py).
EPOCH = "epoch_samples"
LOSS = ("loss_b0", "loss_b1", "loss_b2")
# Number of losses remembered per job; beyond it every second one is dropped.
_MAX_LOSSES = 64


@dataclass
class Optimus(Rounds):
    """Give each job its minimum, then each unit to the job whose time it reduces most, as long as it reduces any.

    The remaining time of a job on n units is its remaining work over its rate on n consolidated units. Jobs whose
    count does not change stay where they are; the others are placed anew, small jobs first, on the nodes with the
    most free units.

    The remaining work is known, as in Pollux' artifact; or, with `online`, predicted as in the paper: the loss of a
    job is observed at each decision, the curve 1 / (b0·k + b1) + b2 is fitted to all observations, and the job is
    expected to end when an epoch lowers the loss by `threshold` or less. A job with fewer than five observed losses is
    expected to need one more epoch. The job's total work and true curve are not used then.

    Parameters
    ----------
    remaining
        Source of the remaining work.
    threshold
        A job has converged when an epoch lowers its loss by this much or less.
    noise
        Relative standard deviation of the observed losses.
    seed
        Seed of the noise.
    """

    remaining: Literal["known", "online"] = constant(
        "known", "remaining work: known, or predicted from the loss curve"
    )
    threshold: float = constant(
        0.01,
        "online: drop of the loss in an epoch at convergence",
        Number(0, above=True),
    )
    noise: float = constant(
        0.0,
        "online: relative standard deviation of losses seen",
        Number(0, 1, below=True),
    )
    seed: int = 0
    name: str = field(default="optimus", init=False)
    traits: ClassVar[Traits] = Traits(
        migrates=True, clairvoyant=True
    )  # online looks at what was done, not at what is left
    _seen: dict[str, list[tuple[float, float]]] = field(
        default_factory=dict, init=False, repr=False
    )
    _count: dict[str, int] = field(
        default_factory=dict, init=False, repr=False
    )  # losses seen, including dropped ones

    def prepare(self, jobs: JobTable) -> JobTable:
        """The jobs unchanged; raise if `online` needs columns that they lack.

        Raises
        ------
        InputError
            Naming job and column.
        """
        if self.remaining == "online":
            for job in jobs:
                _loss_of(job)
        return jobs

    def round(self, state: State) -> Decision:
        """Distribute the idle units."""
        left = self._work_left(state) if self.remaining == "online" else None
        counts = share(state, left)
        # All placements on nodes of one unit are equal; the engine moves as little as possible.
        if state.machine.units_per_node == 1:
            return Decision(tuple(counts))
        changed = sorted(
            (
                position
                for position, view in enumerate(state.jobs)
                if counts[position] != view.units
            ),
            key=lambda position: counts[position],
        )
        nodes = Nodes(state, set(range(len(state.jobs))) - set(changed))
        placement = {
            position: nodes.take(nodes.emptiest(counts[position]))
            for position in changed
        }
        return Decision.placed(placement)

    def _work_left(self, state: State) -> list[float]:
        """Samples that each job is predicted to need until its end."""
        for view in state.finished:
            self._seen.pop(view.job.name, None)
            self._count.pop(view.job.name, None)
        left = []
        for view in state.jobs:
            epoch, true = _loss_of(view.job)
            done = view.progress / epoch
            seen = self._seen.setdefault(view.job.name, [])
            if done > (seen[-1][0] if seen else 0.0):
                seen.append((done, true.at(done) * self._factor(view.job.name)))
                if len(seen) > _MAX_LOSSES:
                    del seen[1::2]
            fitted = (
                fit_loss(*zip(*seen, strict=True))
                if len(seen) >= LEAST_LOSSES
                else None
            )
            total = done + 1 if fitted is None else fitted.converged(self.threshold)
            left.append(
                max(total - done, 1.0) * epoch
            )  # an unfinished job needs at least one epoch
        return left

    def _factor(self, name: str) -> float:
        """Noise on a job's next observed loss; determined by the seed, the job and the number of earlier ones."""
        count = self._count[name] = self._count.get(name, 0) + 1
        if not self.noise:
            return 1.0
        drawn = np.random.default_rng(
            (self.seed, crc32(name.encode()), count)
        ).standard_normal()
        return max(1 + self.noise * float(drawn), 0.01)


def _loss_of(job: Job) -> tuple[float, LossCurve]:
    """Samples per epoch, and the loss as a function of epochs, from a job's columns.

    Raises
    ------
    InputError
        Naming job and column.
    """
    values = [number_in(job, column) for column in (EPOCH, *LOSS)]
    known = [value for value in values if value is not None]
    for column, value in zip((EPOCH, *LOSS), values, strict=True):
        if value is None or value < 0 or (value == 0 and column != LOSS[2]):
            expected = "a number >= 0" if column == LOSS[2] else "a number > 0"
            raise InputError(
                f"expected {expected}, from which --set remaining=online makes its loss",
                column=column,
                job=job.name,
            )
    return known[0], LossCurve(*known[1:])


def share(state: State, work_left: Sequence[float] | None = None) -> list[int]:
    """Units for each job, by how much its next size reduces its remaining time per unit.

    `work_left`: samples if predicted.
    """
    per, left = state.machine.units_per_node, state.idle
    counts = [0] * len(state.jobs)
    for position in sorted(
        range(len(counts)), key=lambda position: state.jobs[position].job.jmin
    ):
        fewest = max(state.jobs[position].job.jmin, 1)
        if fewest <= left:
            counts[position] = fewest
            left -= fewest
    heap: list[tuple[float, int]] = []

    def offer(position: int) -> None:
        view, count = state.jobs[position], counts[position]
        after = view.job.above(count) if count else None
        most = view.job.jmax
        if isinstance(view.dynamics, ApplicationDynamics):
            most = min(most, view.dynamics.most)
        if after is not None and after <= min(most, count + left):
            work = None if work_left is None else work_left[position]
            saved = remaining_s(view, count, per, work) - remaining_s(
                view, after, per, work
            )
            if saved > 0:
                heapq.heappush(heap, (-rounded(saved / (after - count)), position))

    for position in range(len(counts)):
        offer(position)
    while left and heap:
        position = heapq.heappop(heap)[1]
        more = (state.jobs[position].job.above(counts[position]) or 0) - counts[
            position
        ]
        if more <= left:  # else a size that no longer fits
            counts[position] += more
            left -= more
            offer(position)
    return counts


def remaining_s(
    view: JobView, units: int, units_per_node: int, work: float | None = None
) -> float:
    """Remaining seconds of a job on this many units; for `work` samples where the remaining work is predicted."""
    if work is None and isinstance(view.dynamics, ApplicationDynamics):
        return view.dynamics.iterations_left(view.progress) * view.dynamics.step_s(
            units, units_per_node
        )
    rate = float(view.job.rates[units])
    return (view.remaining if work is None else work) / rate if rate else float("inf")


# Losses from which a curve of three parameters is fitted.
LEAST_LOSSES = 5
# Final losses that are tried first, between 0 and the smallest loss seen.
_TRIED = 20


@dataclass(frozen=True, slots=True)
class LossCurve:
    """Loss after k epochs: l(k) = 1 / (b0 · k + b1) + b2, as of first-order methods, which converge as 1/k.

    Parameters
    ----------
    b0, b1, b2
        At least 0; b0 + b1 > 0.

    Examples
    --------
    >>> curve = LossCurve(1.0, 0.5, 0.1)
    >>> curve.at(0), round(curve.converged(0.01), 3)
    (2.1, 9.012)
    """

    b0: float
    b1: float
    b2: float

    def at(self, epochs: float) -> float:
        """The loss after a given number of epochs."""
        return 1 / (self.b0 * epochs + self.b1) + self.b2

    def converged(self, threshold: float) -> float:
        """Epochs after which one more lowers the loss by `threshold` or less; 0 of a loss that does not fall.

        With u = b0 · k + b1, l(k) − l(k + 1) = b0 / (u · (u + b0)), which is the threshold at a root of a square.
        """
        if self.b0 <= 0:
            return 0.0
        u = (math.sqrt(self.b0**2 + 4 * self.b0 / threshold) - self.b0) / 2
        return max((u - self.b1) / self.b0, 0.0)


def fit_loss(epochs: Sequence[float], losses: Sequence[float]) -> LossCurve | None:
    """The curve through losses seen after so many epochs; None of fewer than five losses, or of one number of epochs.

    For a given b2, 1 / (l − b2) = b0 · k + b1 is linear, and non-negative least squares (NNLS) give b0 and b1; each
    equation is weighed by (l − b2)², to first order its error in the loss. b2 is the one whose curve fits best.

    Examples
    --------
    >>> true = LossCurve(0.5, 0.2, 0.3)
    >>> found = fit_loss(range(8), [true.at(k) for k in range(8)])
    >>> round(found.b0, 4), round(found.b1, 4), round(found.b2, 4)
    (0.5, 0.2, 0.3)
    """
    from scipy.optimize import minimize_scalar, nnls

    k, loss = np.asarray(epochs, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if len(k) < LEAST_LOSSES or len(np.unique(k)) < 2 or not (loss > 0).all():
        return None
    highest = float(loss.min()) * (1 - 1e-6)

    def curve(b2: float) -> LossCurve:
        above = loss - b2
        weight = above**2
        (b0, b1), _ = nnls(
            np.column_stack([k, np.ones_like(k)]) * weight[:, None], weight / above
        )
        return LossCurve(float(b0), float(b1), b2)

    def error(b2: float) -> float:
        fitted = curve(b2)
        if fitted.b1 <= 0 and (fitted.b0 <= 0 or k.min() <= 0):
            return math.inf
        return float(((1 / (fitted.b0 * k + fitted.b1) + b2 - loss) ** 2).sum())

    tried = np.linspace(0.0, highest, _TRIED)
    best = int(np.argmin([error(float(b2)) for b2 in tried]))
    low, high = tried[max(best - 1, 0)], tried[min(best + 1, _TRIED - 1)]
    found = minimize_scalar(
        error, bounds=(low, high), method="bounded", options={"xatol": 1e-9}
    )
    b2 = (
        float(found.x) if found.fun <= error(float(tried[best])) else float(tried[best])
    )
    return curve(b2) if math.isfinite(error(b2)) else None
