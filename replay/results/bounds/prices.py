"""The best mix of allocations over time, bounded by prices of work: column generation.

Time is cut into periods; the jobs running at a time yield rates, one number per class of jobs. By the end of period p,
at most W[p] of a class's work can be done: the work of its jobs that were submitted by then. With prices pi[p] >= 0 on
these limits, a sample in period q has the value 1 - sum over p >= q of pi[p], and

    sum over p, c of pi[p, c] W[p, c] + sum over q of the highest value that period q can yield

bounds the samples of every schedule (docs/bounds.md). The minimum over prices is the linear programme over all mixes;
its columns are generated when prices ask for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bft.replay.results.bounds.work import FloatArray

logger = logging.getLogger(__name__)
# The bound is good enough at this relative distance from what a mix attains, or after this many rounds.
ENOUGH, ROUNDS = 1e-5, 100
# Without a better bound for this many rounds the search ends: with hundreds of classes prices converge slowly.
PATIENCE = 10
# Weight of the best prices so far in the next ones; halved after each round without gain, and 0 below FAR.
NEAR, FAR = 0.8, 0.1


class Period(Protocol):
    """A period of time, and the work that can be done in it."""

    @property
    def parts(self) -> int:
        """Number of parts of the period that do not exchange work."""

    def best(self, worth: FloatArray) -> FloatArray:
        """Return the most valuable work at given values of a sample: shape (parts, classes), samples in each part."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A bound computed by prices.

    Parameters
    ----------
    bound
        Samples that no schedule exceeds.
    attained
        Samples of a mix that satisfies all limits if changes are free: the best schedule lies between this and `bound`.
        None if a limit was dropped, so that the distance is unknown.
    rounds
        How often prices were computed.
    """

    bound: float
    attained: float | None
    rounds: int


def bound_by_prices(
    periods: Sequence[Period], limits: FloatArray, worth: FloatArray | None = None
) -> Priced:
    """The smallest bound over prices, and the samples that a mix attains.

    Parameters
    ----------
    periods
        In order of time.
    limits
        Most work of each class by the end of each period, samples: shape (periods, classes), never falling over time.
    worth
        Value of a sample of each class in each period, at most 1, never falling over time: defines the first prices.
    """
    master = _Master(periods, limits)
    all_work = float(limits[-1].sum())
    bound, attained = all_work, 0.0
    best = prices = np.zeros_like(limits)
    if worth is not None:
        best = prices = -np.diff(1.0 - worth, axis=0, append=0.0)
    near, rounds, gained = NEAR, 0, 0
    while (
        rounds < ROUNDS
        and rounds - gained < PATIENCE
        and bound - attained > ENOUGH * bound
    ):
        rounds += 1
        worth = 1.0 - np.cumsum(prices[::-1], axis=0)[::-1]
        value = float((prices * limits).sum())
        for q, period in enumerate(periods):
            done = period.best(worth[q])
            value += float((done @ np.maximum(worth[q], 0.0)).sum())
            master.add(q, done)
        if value < bound or rounds == 1:
            bound, best, gained = min(bound, value), prices, rounds
        else:
            near = near / 2 if near > FAR else 0.0
        solved = master.solve()
        if solved is None:  # the bound is valid at any prices, only not the smallest
            break
        # Prices from few columns oscillate, so the next ones stay near the best known.
        prices, attained = near * best + (1 - near) * solved[0], solved[1]
    return Priced(bound, min(attained, bound), rounds)


class _Master:
    """The linear programme over the columns made so far: which share of each part's time goes to which column."""

    def __init__(self, periods: Sequence[Period], limits: FloatArray) -> None:
        self.limits = limits
        self.total = max(float(limits[-1].sum()), 1e-300)
        # A limit equal to the next period's follows from that one.
        grows = np.append(limits[1:] > limits[:-1], limits[-1:] > 0, axis=0) & (
            limits > 0
        )
        self.row = np.where(
            grows, np.cumsum(grows.ravel()).reshape(grows.shape) - 1, -1
        )
        self.rows = int(grows.sum())
        self.first = np.concatenate(
            [[0], np.cumsum([period.parts for period in periods])]
        )
        self.known: list[set[bytes]] = [set() for _ in range(int(self.first[-1]))]
        self.value: list[float] = []
        self.part: list[int] = []
        self.entries: list[
            tuple[FloatArray, FloatArray]
        ] = []  # rows and entries of a column

    def add(self, q: int, done: FloatArray) -> None:
        """Add columns of a period: the work done in each of its parts."""
        rows, classes = np.nonzero(self.row[q:] >= 0)
        rows += q
        scale = self.limits[rows, classes]
        for part, work in enumerate(done, start=int(self.first[q])):
            key = work.tobytes()
            if key in self.known[part] or not work.any():
                continue
            self.known[part].add(key)
            self.value.append(float(work.sum()) / self.total)
            self.part.append(part)
            used = work[classes] > 0
            self.entries.append(
                (self.row[rows, classes][used], (work[classes] / scale)[used])
            )

    def solve(self) -> tuple[FloatArray, float] | None:
        """Prices of the limits, and the samples of the best mix; None when the solver gives up."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_matrix

        prices = np.zeros_like(self.limits)
        if not self.value:
            return prices, 0.0
        columns = len(self.value)
        parts = int(self.first[-1])
        counts = np.array([len(rows) for rows, _ in self.entries])
        column_of = np.concatenate(
            [np.repeat(np.arange(columns), counts), np.arange(columns)]
        )
        rows = np.concatenate(
            [*(rows for rows, _ in self.entries), self.rows + np.array(self.part)]
        )
        entries = np.concatenate(
            [*(entries for _, entries in self.entries), np.ones(columns)]
        )
        matrix = coo_matrix(
            (entries, (rows, column_of)), shape=(self.rows + parts, columns)
        ).tocsc()
        result = linprog(
            -np.array(self.value),
            A_ub=matrix,
            b_ub=np.ones(self.rows + parts),
            method="highs",
        )
        if result.status != 0:
            logger.warning("a bound is less tight than it could be: %s", result.message)
            return None
        duals = np.maximum(-result.ineqlin.marginals[: self.rows], 0.0) * self.total
        prices[self.row >= 0] = (
            duals[self.row[self.row >= 0]] / self.limits[self.row >= 0]
        )
        return prices, -float(result.fun) * self.total
