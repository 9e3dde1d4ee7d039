"""The best mix over time of what can be done at once, bounded by prices of work: column generation.

Time is cut into periods; what jobs do at once yields rates, one number a class of jobs. Work of a class done by the end
of period p is at most W[p], the work of those of its jobs that were submitted by then. With prices pi[p] >= 0 of these
limits a sample in period q is worth 1 - sum over p >= q of pi[p], and

    sum over p, c of pi[p, c] W[p, c] + sum over q of the most worth that period q can yield

bounds the samples of every schedule (docs/bounds.md). Its minimum is the linear programme over all mixes; columns are
made when prices ask for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bft.replay.results.bounds.supply import FloatArray

logger = logging.getLogger(__name__)
# The bound is good enough when it is so near what a mix attains, relative, or after so many rounds.
ENOUGH, ROUNDS = 1e-5, 100
# Rounds without a better bound after which it is left as it is: with hundreds of classes prices are found slowly.
PATIENCE = 10
# How near the best prices so far the next ones are, of 1; half as near each time that nothing is gained, down to FAR.
NEAR, FAR = 0.8, 0.1


class Period(Protocol):
    """What can be done in a period."""

    @property
    def parts(self) -> int:
        """Parts of the period between which nothing is exchanged."""

    def best(self, worth: FloatArray) -> FloatArray:
        """The work that is worth most at these worths of a sample: shape (parts, classes), samples in each part."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A bound by prices.

    Parameters
    ----------
    bound
        Samples that no schedule exceeds.
    attained
        Samples of a mix that keeps to all limits, were changes free: how far the bound may be from the best. None where
        a limit was left aside, so that nobody knows.
    rounds
        How often prices were set.
    """

    bound: float
    attained: float | None
    rounds: int


def bound_by_prices(periods: Sequence[Period], limits: FloatArray, worth: FloatArray | None = None) -> Priced:
    """The least bound over prices, and what a mix attains.

    Parameters
    ----------
    periods
        In order of time.
    limits
        Most work of each class by the end of each period, samples: shape (periods, classes), not falling over periods.
    worth
        What a sample of each class may be worth in each period, not falling, at most 1: prices to begin with.
    """
    master = _Master(periods, limits)
    all_work = float(limits[-1].sum())
    bound, attained = all_work, 0.0
    best = prices = np.zeros_like(limits)
    if worth is not None:
        best = prices = -np.diff(1.0 - worth, axis=0, append=0.0)
    near, rounds, gained = NEAR, 0, 0
    while rounds < ROUNDS and rounds - gained < PATIENCE and bound - attained > ENOUGH * bound:
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
        if solved is None:  # any prices bound: these are only not the best
            break
        # Prices of few columns swing: near the best ones known, until these are the best of all.
        prices, attained = near * best + (1 - near) * solved[0], solved[1]
    return Priced(bound, min(attained, bound), rounds)


class _Master:
    """The linear programme over the columns made so far: which part of each period's part goes to which."""

    def __init__(self, periods: Sequence[Period], limits: FloatArray) -> None:
        self.limits = limits
        self.total = max(float(limits[-1].sum()), 1e-300)
        # A limit that is the next period's too follows from that.
        grows = np.append(limits[1:] > limits[:-1], limits[-1:] > 0, axis=0) & (limits > 0)
        self.row = np.where(grows, np.cumsum(grows.ravel()).reshape(grows.shape) - 1, -1)
        self.rows = int(grows.sum())
        self.first = np.concatenate([[0], np.cumsum([period.parts for period in periods])])
        self.known: list[set[bytes]] = [set() for _ in range(int(self.first[-1]))]
        self.value: list[float] = []
        self.part: list[int] = []
        self.entries: list[tuple[FloatArray, FloatArray]] = []  # rows and entries of a column

    def add(self, q: int, done: FloatArray) -> None:
        """Columns of a period: what is done in each of its parts."""
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
            self.entries.append((self.row[rows, classes][used], (work[classes] / scale)[used]))

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
        at = np.concatenate([np.repeat(np.arange(columns), counts), np.arange(columns)])
        rows = np.concatenate([*(rows for rows, _ in self.entries), self.rows + np.array(self.part)])
        entries = np.concatenate([*(entries for _, entries in self.entries), np.ones(columns)])
        matrix = coo_matrix((entries, (rows, at)), shape=(self.rows + parts, columns)).tocsc()
        found = linprog(-np.array(self.value), A_ub=matrix, b_ub=np.ones(self.rows + parts), method="highs")
        if found.status != 0:
            logger.warning("a bound is less tight than it could be: %s", found.message)
            return None
        duals = np.maximum(-found.ineqlin.marginals[: self.rows], 0.0) * self.total
        prices[self.row >= 0] = duals[self.row[self.row >= 0]] / self.limits[self.row >= 0]
        return prices, -float(found.fun) * self.total
