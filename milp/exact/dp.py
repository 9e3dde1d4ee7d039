"""The exact dynamic programme (DP): no solver, milliseconds, always a proof, and the canonical one of several optima.

The canonical optimum has the highest sum of scores (`scores`: values in whole multiples of a quantum, minus a charge
for every job that changes, larger than any rounding error). Among equal sums it is the one that gives the last job
fewest units, then the job before it, and so on. In plain words: the best allocation; among several, the one that
changes the fewest jobs; among those, units go to the jobs that come first.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bft.milp.classes import Classes, apart, classes_of, job_arrays
from bft.milp.problem import BoolArray, FloatArray, IntArray, Job, Problem

if TYPE_CHECKING:
    from bft.milp.exact.scores import Terms

# Up to this many steps (choices x units, summed over jobs) the plain programme takes half a millisecond. (The core
# programme is faster from a tenth of that on, but takes seconds to compile when it is first used.)
PLAIN_STEPS = 2**19
# A search of up to this many steps takes about 20 ms and needs no timer; starting a thread can take 2 ms.
QUICK_STEPS = 2**24


@dataclass(frozen=True, slots=True)
class Optimum:
    """The answer of the exact DP.

    Parameters
    ----------
    counts
        Units per job.
    objective, bound
        Their value, and an upper bound of any value.
    proven
        Whether the counts are the canonical optimum: always, unless a limit was reached.
    kinds
        Kind of each job's units, None where it gets none; empty for a problem without kinds.
    limit
        The limit that was reached where it is not proven.
    """

    counts: tuple[int, ...]
    objective: float
    bound: float
    proven: bool = True
    kinds: tuple[str | None, ...] = ()
    limit: str = "time limit"


@dataclass(frozen=True, slots=True)
class Scores:
    """The input of the exact DP: int64 arrays; the scores of class c are at [offsets[c]:offsets[c+1]] (`scores`).

    `of` is the class of each job, `kept` the count of each member of a class when every job keeps what it may.
    """

    units: IntArray
    scores: IntArray
    slopes: IntArray
    offsets: IntArray
    quantum: float
    of: IntArray
    sizes: IntArray
    kept: IntArray

    @property
    def jobs(self) -> int:
        """Number of jobs."""
        return len(self.of)

    def steps(self, capacity: int) -> int:
        """Steps of the plain programme; 0 when there are units enough for all."""
        last = self.units[self.offsets[1:] - 1]
        wanted = int((np.minimum(last, capacity) * self.sizes).sum())
        return 0 if wanted <= capacity else (wanted + self.jobs) * capacity


def solve_exact(problem: Problem) -> tuple[int, ...]:
    """The counts of the canonical optimum."""
    return optimum(problem).counts


def optimum(problem: Problem, time_limit: float | None = None) -> Optimum:
    """The canonical optimum; at the time limit (seconds) the best known allocation, with an upper bound.

    Units are of one kind; `kinds.kinds_optimum` is for several.
    """
    if not problem.jobs:
        return Optimum((), 0.0, 0.0)
    posed = _Posed.of(problem)
    scores = posed.scores()
    found, lost = _best(scores, problem.units, time_limit)
    value = posed.objective(found)
    bound = value if lost is None else value + _worth(scores, lost, problem.units)
    counts, kinds = problem.named(found.tolist())
    return Optimum(counts, value, bound, lost is None, kinds)


def solve_plain(problem: Problem) -> tuple[int, ...]:
    """Solve with the plain programme over every count of every job (`knapsack`)."""
    return tuple(_plain(scores_of(problem), problem.units).tolist())


def solve_core(problem: Problem, classes: Classes | None = None) -> tuple[int, ...]:
    """Solve by excluding what cannot be part of an optimum (`core`): 1,000 jobs x 100,000 units take less than 1 s.

    `classes` groups the jobs; by default `classes_of`.
    """
    return tuple(_core(scores_of(problem, classes), problem.units, None)[0].tolist())


def share_units(
    tables: Sequence[FloatArray], current: IntArray, units: int
) -> tuple[int, ...]:
    """Units for each table that maximise the sum, at most `units` in total: the canonical optimum.

    Entry n of a table is its value on n units, -inf where not allowed; entry 0 is finite. `current`: units held now.
    """
    from bft.milp.exact.scores import scores

    if not tables:
        return ()
    begins = _offsets(tables)
    values = np.concatenate(tables)
    allowed = np.flatnonzero(values > -np.inf)
    offsets = np.searchsorted(allowed, begins)
    counts = allowed - np.repeat(begins[:-1], np.diff(offsets))
    linear = np.append(
        np.diff(counts) == 1, False
    )  # not across tables, as each begins with 0
    last = np.diff(begins) - 1
    at = begins[:-1] + np.minimum(current, last)
    kept = np.where((current <= last) & (values[at] > -np.inf), current, 0)
    if kept.sum() > units:
        kept[:] = 0
    sizes = np.ones(len(tables), dtype=np.int64)
    made = scores(counts, values[allowed], linear, offsets, current, kept, sizes)
    return tuple(
        _best(Scores(*made, np.arange(len(tables)), sizes, kept), units, None)[
            0
        ].tolist()
    )


def objective(problem: Problem, counts: Sequence[int]) -> float:
    """The value of an allocation: equals `values.total_value` bit by bit, without a table of all counts."""
    if not problem.jobs:
        return 0.0
    return _Posed.of(problem).objective(np.array(counts, dtype=np.int64))


def value_points(problem: Problem) -> list[tuple[IntArray, FloatArray, BoolArray]]:
    """For each job the few points that define v_j: see `scores.value_points`."""
    counts, values, linear, offsets = _Posed.of(problem, apart(problem)).points()
    return [
        (counts[begin:end], values[begin:end], linear[begin:end])
        for begin, end in pairwise(offsets.tolist())
    ]


def scores_of(problem: Problem, classes: Classes | None = None) -> Scores:
    """The scores of a problem with jobs."""
    return _Posed.of(problem, classes).scores()


@dataclass(frozen=True, slots=True)
class _Posed:
    """A problem as arrays for compiled code, one entry for each class of jobs.

    `kept` is the count of each member when every job keeps what it may, `runs` whether it makes progress on `held`.
    """

    problem: Problem
    classes: Classes
    terms: Terms
    held: IntArray
    kept: IntArray
    runs: BoolArray

    @classmethod
    def of(cls, problem: Problem, classes: Classes | None = None) -> _Posed:
        """Pose a problem, with its jobs grouped by `classes_of` if no classes are given."""
        from bft.milp.exact.scores import kept_counts

        classes = classes_of(problem) if classes is None else classes
        terms = job_arrays(problem.jobs).terms
        held = problem.counts[classes.positions]
        kept, runs = kept_counts(terms, classes.positions, held)
        return cls(problem, classes, terms, held, kept, runs)

    def points(self) -> tuple[IntArray, FloatArray, BoolArray, IntArray]:
        """The points that define the values of all classes: see `scores.value_points`."""
        from bft.milp.exact.scores import value_points

        problem, first = self.problem, self.classes.positions
        stall = problem.cost_model == "stall"
        units, tfwd = problem.units, problem.tfwd
        return value_points(self.terms, first, self.held, units, tfwd, stall)

    def scores(self) -> Scores:
        """The scores of all classes."""
        from bft.milp.exact.scores import scores_of

        problem, classes = self.problem, self.classes
        made = scores_of(
            self.terms,
            classes.positions,
            self.held,
            self.kept,
            classes.sizes,
            problem.units,
            problem.tfwd,
            problem.cost_model == "stall",
        )
        return Scores(*made, classes.of, classes.sizes, self.kept)

    def objective(self, counts: IntArray) -> float:
        """The value of an allocation: equals `values.total_value` bit by bit."""
        from bft.milp.exact.scores import values_of

        problem, classes = self.problem, self.classes
        values = values_of(
            self.terms,
            classes.positions,
            self.held,
            self.runs,
            classes.of,
            counts,
            problem.tfwd,
            problem.cost_model == "stall",
        )
        # Most jobs that wait are worth 0, which a sum need not have.
        return math.fsum(values[values != 0.0].tolist())


def _best(
    scores: Scores, capacity: int, time_limit: float | None
) -> tuple[IntArray, int | None]:
    """The canonical counts by the quicker of the two programmes, as `_core` has them."""
    if scores.steps(capacity) <= PLAIN_STEPS:
        return _plain(scores, capacity), None
    return _core(scores, capacity, time_limit)


def _plain(scores: Scores, capacity: int) -> IntArray:
    from bft.milp.exact.knapsack import best_counts

    return best_counts(
        scores.of, scores.units, scores.scores, scores.slopes, scores.offsets, capacity
    )


def _core(
    scores: Scores, capacity: int, time_limit: float | None
) -> tuple[IntArray, int | None]:
    """Canonical counts and None; at the time limit the best known counts, and an upper bound of the missing score.

    The bound on the loss starts low and rises until an allocation lies within it. That allocation is the optimum,
    because every choice within the bound was examined. In the worst case nothing can be excluded, and each of the last
    two rounds costs O(points x capacity) time and O(sqrt(jobs) x capacity) memory.
    """
    _compile_core()
    return _search(scores, capacity, time_limit)


def _search(
    scores: Scores, capacity: int, time_limit: float | None
) -> tuple[IntArray, int | None]:
    """The answer of `_core`, from kernels that may still have to be compiled."""
    from bft.milp.exact.blocks import search
    from bft.milp.exact.core import NEVER, relaxed

    units, slopes, offsets = scores.units, scores.slopes, scores.offsets
    of, sizes = scores.of, scores.sizes
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    price, loss, max_units, base, total = relaxed(
        of, units, scores.scores, slopes, offsets, sizes, scores.kept, capacity
    )
    posed = of, sizes, units, slopes, loss, offsets, max_units, price
    most_steps = int(NEVER) if time_limit is None else QUICK_STEPS
    until, lost = math.inf, total
    while time.monotonic() < deadline:
        with alarm(until) as stop:
            found, counts, lost = search(posed, total, capacity, most_steps, stop)
        if found:
            return counts, None
        if until == deadline:
            break
        most_steps, until = int(NEVER), deadline
    return base, lost


@cache
def _compile_core() -> None:
    """Compile the kernels of `_search`, or load them from the cache: that takes seconds outside the time limit."""
    curve = np.arange(3.0)
    jobs = tuple(Job(name, 1, 2, curve, curve, 0.0, 0.0) for name in "abc")
    _search(scores_of(Problem(2, 1.0, jobs, (0, 0, 0))), 2, None)


def _worth(scores: Scores, lost: int, capacity: int) -> float:
    """Return how much more an allocation may be worth if its score is at most `lost` higher."""
    from bft.milp.exact.scores import CHARGE

    return scores.quantum * (lost + scores.jobs * (int(CHARGE) + capacity))


@contextmanager
def alarm(deadline: float) -> Iterator[NDArray[np.uint8]]:
    """A flag that is set when the time is up; compiled code checks it and lets other threads run."""
    flag = np.zeros(1, dtype=np.uint8)
    if deadline == math.inf:
        yield flag
        return

    def ring() -> None:
        flag[0] = 1

    timer = threading.Timer(max(deadline - time.monotonic(), 0.0), ring)
    timer.daemon = True
    timer.start()
    try:
        yield flag
    finally:
        timer.cancel()


def _offsets(parts: Sequence[Sized]) -> IntArray:
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets
