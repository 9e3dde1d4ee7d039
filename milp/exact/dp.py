"""The exact programme (DESIGN §6.4): no solver, milliseconds, always a proof, and of several optima the canonical one.

The canonical optimum has the highest sum of scores (`_scores`: values in whole multiples of a quantum, and a charge for
every job that changes which rounding errors do not reach); of those with the same sum it is the one that gives the last
job fewest units, then the last but one, and so on. In plain words: the best; of several the one that changes fewest
jobs; of those, units go to the jobs that come first.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bft.milp.problem import FloatArray, IntArray, Problem
from bft.milp.values import keep, objective

# Steps (choices x units, summed over jobs) up to which the plain programme takes half a millisecond. (The core
# programme takes less from a tenth of that, but seconds to be compiled when it is first used.)
PLAIN_STEPS = 2**19
# The first bound on the total loss, as a part of that of the start, and the factor to the next.
FIRST = 64
WIDEN = 8


@dataclass(frozen=True, slots=True)
class Optimum:
    """What the exact programme answers.

    Parameters
    ----------
    counts
        Units a job.
    objective, bound
        What they are worth, and what nothing can exceed.
    proven
        Whether the counts are the canonical optimum: always, but for a time limit.
    """

    counts: tuple[int, ...]
    objective: float
    bound: float
    proven: bool = True


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of all jobs: int64 arrays, points of job j at [offsets[j]:offsets[j+1]]; see `_scores.scores`."""

    units: IntArray
    scores: IntArray
    slopes: IntArray
    offsets: IntArray
    quantum: float

    @property
    def jobs(self) -> int:
        """How many jobs."""
        return len(self.offsets) - 1

    def steps(self, capacity: int) -> int:
        """Steps of the plain programme, 0 when nobody stands in another's way."""
        last = self.units[self.offsets[1:] - 1]
        wanted = int(np.minimum(last, capacity).sum())
        return 0 if wanted <= capacity else (wanted + self.jobs) * capacity


def solve_exact(problem: Problem) -> tuple[int, ...]:
    """The counts of the canonical optimum."""
    return optimum(problem).counts


def optimum(problem: Problem, time_limit: float | None = None) -> Optimum:
    """The canonical optimum; at the time limit (seconds) the best known, and a bound of any."""
    if not problem.jobs:
        return Optimum((), 0.0, 0.0)
    scores = scores_of(problem)
    if scores.steps(problem.units) <= PLAIN_STEPS:
        counts = _plain(scores, problem.units)
        value = objective(problem, counts)
        return Optimum(counts, value, value)
    counts, lost = _core(scores, keep(problem), problem.units, time_limit)
    value = objective(problem, counts)
    return Optimum(counts, value, value if lost is None else value + _worth(scores, lost, problem.units), lost is None)


def solve_plain(problem: Problem) -> tuple[int, ...]:
    """Solve with the plain programme over every count of every job (`_knapsack`)."""
    return _plain(scores_of(problem), problem.units)


def solve_core(problem: Problem) -> tuple[int, ...]:
    """Solve by leaving out what cannot be part of an optimum (`_core`): 1,000 jobs x 100,000 units take well < 1 s.

    Unless hundreds of jobs are interchangeable: all their ways to be equally good are looked at.
    """
    return _core(scores_of(problem), keep(problem), problem.units, None)[0]


def share_units(tables: Sequence[FloatArray], current: IntArray, units: int) -> tuple[int, ...]:
    """Units for each table that maximise the sum, at most `units` in all: the canonical optimum.

    Entry n of a table is its value on n units, -inf where not allowed; entry 0 is finite. `current` is what each holds.
    """
    from bft.milp.exact.scores import scores

    if not tables:
        return ()
    allowed = [np.flatnonzero(table > -np.inf) for table in tables]
    values = [table[counts] for table, counts in zip(tables, allowed, strict=True)]
    kept = np.array([n if n < len(t) and t[n] > -np.inf else 0 for t, n in zip(tables, current.tolist(), strict=True)])
    if kept.sum() > units:
        kept[:] = 0
    points = (np.concatenate(allowed), np.concatenate(values), _offsets(values))
    return _plain(Scores(*scores(*points, current, kept)), units)


def scores_of(problem: Problem) -> Scores:
    """The scores of a problem with jobs."""
    from bft.milp.exact.scores import scores, value_points

    jobs, held = problem.jobs, np.array(problem.current, dtype=np.int64)

    def each(numbers: Iterator[float]) -> FloatArray:
        return np.fromiter(numbers, np.float64, len(jobs))

    def count(numbers: Iterator[int]) -> IntArray:
        return np.fromiter(numbers, np.int64, len(jobs))

    points = value_points(
        np.concatenate([job.ns for job in jobs]),
        np.concatenate([job.os for job in jobs]),
        _offsets([job.ns for job in jobs]),
        count(job.jmin for job in jobs),
        count(job.jmax for job in jobs),
        held,
        each(job.tcup for job in jobs),
        each(job.tcdw for job in jobs),
        each(job.weight for job in jobs),
        problem.units,
        problem.tfwd,
        problem.cost_model == "stall",
    )
    return Scores(*scores(*points, held, np.array(keep(problem), dtype=np.int64)))


def _plain(scores: Scores, capacity: int) -> tuple[int, ...]:
    from bft.milp.exact.knapsack import best_counts

    counts = best_counts(scores.units, scores.scores, scores.slopes, scores.offsets, capacity)
    return tuple(counts.tolist())


def _core(
    scores: Scores, kept: Sequence[int], capacity: int, time_limit: float | None
) -> tuple[tuple[int, ...], int | None]:
    """Canonical counts and None; at the time limit the best known, and by how much at most a better one scores more.

    The bound on the loss starts low and rises until something within it is found, which is then the optimum, as all
    within the bound has been looked at. In the worst case nothing can be left out, and each of the last two rounds
    costs O(points x capacity) time and O(sqrt(jobs) x capacity) memory.
    """
    from bft.milp.exact.core import improve, losses, price_of, start, survivors

    units, slopes, offsets = scores.units, scores.slopes, scores.offsets
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    with _alarm(time_limit) as stop:
        price = price_of(units, scores.scores, offsets, capacity)
        loss, most = losses(units, scores.scores, slopes, offsets, price, capacity)
        base, total = start(units, slopes, loss, offsets, np.array(kept, dtype=np.int64), price, capacity)
        bound, excluded = total if total <= capacity * FIRST else total // FIRST, 0
        while True:
            stop[0] |= time.monotonic() >= deadline
            stretches = survivors(units, slopes, loss, offsets, most, price, bound)
            counts = improve(*stretches, capacity, price, bound, stop)
            if counts is not None:
                return tuple(counts.tolist()), None
            if stop[0]:
                return tuple(base.tolist()), total - excluded
            excluded = bound + 1
            bound = total if total < 2 * WIDEN * bound else bound * WIDEN


def _worth(scores: Scores, lost: int, capacity: int) -> float:
    """How much more an allocation may be worth that scores at most `lost` more."""
    from bft.milp.exact.scores import CHARGE

    return scores.quantum * (lost + scores.jobs * (int(CHARGE) + capacity))


@contextmanager
def _alarm(seconds: float | None) -> Iterator[NDArray[np.uint8]]:
    """A flag that is set when the time has come: compiled code looks at it, and lets threads run meanwhile."""
    flag = np.zeros(1, dtype=np.uint8)
    if seconds is None:
        yield flag
        return

    def ring() -> None:
        flag[0] = 1

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield flag
    finally:
        timer.cancel()


def _offsets(parts: Sequence[FloatArray]) -> IntArray:
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets
