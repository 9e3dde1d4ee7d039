"""The exact dynamic programme (DP): no solver, milliseconds, and the canonical one of several optima.

Its answer is proven unless it reaches a limit (`Optimum.limit`).

The canonical optimum has the highest sum of scores (`scores`: values in whole multiples of a quantum, minus a charge
for every job that changes, larger than any rounding error). Among equal sums it is the one that gives the last job
fewest units, then the job before it, and so on. In plain words: the best allocation; among several, the one that
changes the fewest jobs; among those, units go to the jobs that come first.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bft.milp.classes import Classes, JobArrays, apart, classes_of, job_arrays
from bft.milp.problem import BoolArray, FloatArray, IntArray, Job, Problem
from bft.milp.tolerances import CHARGE_QUANTA

# Up to this many steps (choices x units, summed over jobs) the plain programme takes half a millisecond. (The core
# programme is faster from a tenth of that on, but takes seconds to compile when it is first used.)
PLAIN_STEPS = 2**19
# A search of up to this many steps takes about 20 ms and needs no timer.
QUICK_STEPS = 2**24
NO_LIMIT = 2**62 - 1


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
    if posed.is_small:
        counts = _plain(posed.scores(), problem.units)
        proven, more, values = True, 0.0, posed.values(counts)
    else:
        _compile_core()
        found = _in_time(posed.search, time_limit)
        proven, counts, lost, values, quantum = found
        more = _worth(quantum, lost, len(counts), problem.units)
    value = math.fsum(values.tolist())
    bound = value if proven else value + more
    units, kinds = problem.named(counts)
    return Optimum(units, value, bound, proven, kinds)


def solve_plain(problem: Problem) -> tuple[int, ...]:
    """Solve with the plain programme over every count of every job (`knapsack`)."""
    return tuple(_plain(scores_of(problem), problem.units).tolist())


def solve_core(problem: Problem, classes: Classes | None = None) -> tuple[int, ...]:
    """Solve by excluding what cannot be part of an optimum (`core`): 1,000 jobs x 100,000 units take less than 1 s.

    `classes` groups the jobs; by default `classes_of`.
    """
    return tuple(_core(scores_of(problem, classes), problem.units).tolist())


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
    posed = Scores(*made, np.arange(len(tables)), sizes, kept)
    solve = _plain if posed.steps(units) <= PLAIN_STEPS else _core
    return tuple(solve(posed, units).tolist())


def objective(problem: Problem, counts: Sequence[int]) -> float:
    """The value of an allocation: equals `values.total_value` bit by bit, without a table of all counts."""
    if not problem.jobs:
        return 0.0
    values = _Posed.of(problem).values(np.array(counts, dtype=np.int64))
    return math.fsum(values.tolist())


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


@dataclass(frozen=True, eq=False)
class _Posed:
    """A problem as arrays for compiled code: `held` is what each member of a class holds."""

    problem: Problem
    classes: Classes
    arrays: JobArrays
    held: IntArray

    @classmethod
    def of(cls, problem: Problem, classes: Classes | None = None) -> _Posed:
        """Pose a problem, with its jobs grouped by `classes_of` if no classes are given."""
        classes = classes_of(problem) if classes is None else classes
        held = problem.counts[classes.positions]
        return cls(problem, classes, job_arrays(problem.jobs), held)

    @property
    def is_small(self) -> bool:
        """Whether the plain programme takes few steps: as `Scores.steps`, of all that the jobs can use."""
        jobs, units = len(self.problem.jobs), self.problem.units
        wanted = min(self.arrays.wanted, jobs * units)
        return wanted <= units or (wanted + jobs) * units <= PLAIN_STEPS

    @cached_property
    def kept_and_runs(self) -> tuple[IntArray, BoolArray]:
        """What each member keeps when every job keeps what it may, and whether it makes progress on what it holds."""
        from bft.milp.exact.scores import kept_counts

        return kept_counts(self.arrays.terms, self.classes.positions, self.held)

    def points(self) -> tuple[IntArray, FloatArray, BoolArray, IntArray]:
        """The points that define the values of all classes: see `scores.value_points`."""
        from bft.milp.exact.scores import value_points

        problem, first = self.problem, self.classes.positions
        stall = problem.cost_model == "stall"
        units, tfwd = problem.units, problem.tfwd
        return value_points(self.arrays.terms, first, self.held, units, tfwd, stall)

    def scores(self) -> Scores:
        """The scores of all classes."""
        from bft.milp.exact.scores import scores_of

        problem, classes = self.problem, self.classes
        kept, _ = self.kept_and_runs
        made = scores_of(
            self.arrays.terms,
            classes.positions,
            self.held,
            kept,
            classes.sizes,
            problem.units,
            problem.tfwd,
            problem.cost_model == "stall",
        )
        return Scores(*made, classes.of, classes.sizes, kept)

    def values(self, counts: IntArray) -> FloatArray:
        """The values of jobs that are not 0: their sum equals `values.total_value` bit by bit."""
        from bft.milp.exact.scores import values_of

        problem, classes = self.problem, self.classes
        return values_of(
            self.arrays.terms,
            classes.positions,
            self.held,
            self.kept_and_runs[1],
            classes.of,
            counts,
            problem.tfwd,
            problem.cost_model == "stall",
        )

    def search(
        self, most_steps: int, stop: NDArray[np.uint8]
    ) -> tuple[bool, IntArray, int, FloatArray, float]:
        """The answer of `blocks.scored_search`."""
        from bft.milp.exact.blocks import scored_search

        problem, classes = self.problem, self.classes
        return scored_search(
            self.arrays.terms,
            classes.of,
            classes.positions,
            classes.sizes,
            self.held,
            problem.units,
            problem.tfwd,
            problem.cost_model == "stall",
            most_steps,
            stop,
        )


def _plain(scores: Scores, capacity: int) -> IntArray:
    from bft.milp.exact.knapsack import best_counts

    return best_counts(
        scores.of, scores.units, scores.scores, scores.slopes, scores.offsets, capacity
    )


def _core(scores: Scores, capacity: int) -> IntArray:
    from bft.milp.exact.blocks import search

    scored = scores.units, scores.scores, scores.slopes, scores.offsets
    posed = scores.of, scores.sizes, scores.kept, scored
    return search(*posed, capacity, NO_LIMIT, _running())[1]


Answer = TypeVar("Answer", bound=tuple[Any, ...])


def _in_time(
    search: Callable[[int, NDArray[np.uint8]], Answer], time_limit: float | None
) -> Answer:
    """The answer of a search that is given a number of steps and a flag; its first item tells whether it is proven.

    A quick search has no timer: starting a thread can take 2 ms.
    """
    if time_limit is None:
        return search(NO_LIMIT, _running())
    deadline = time.monotonic() + time_limit
    stop = _running()
    stop[0] = time.monotonic() >= deadline
    answer = search(QUICK_STEPS, stop)
    if answer[0] or time.monotonic() >= deadline:
        return answer
    with alarm(deadline) as stop:
        return search(NO_LIMIT, stop)


@cache
def _compile_core() -> None:
    """Compile the kernels of a search, or load them from the cache: that takes seconds outside the time limit."""
    curve = np.arange(3.0)
    jobs = tuple(Job(name, 1, 2, curve, curve, 0.0, 0.0) for name in "abc")
    _Posed.of(Problem(2, 1.0, jobs, (0, 0, 0))).search(NO_LIMIT, _running())


def _worth(quantum: float, lost: int, jobs: int, capacity: int) -> float:
    """Return how much more an allocation may be worth if its score is at most `lost` higher."""
    return quantum * (lost + jobs * (CHARGE_QUANTA + capacity))


def _running() -> NDArray[np.uint8]:
    """A flag that nobody sets."""
    return np.zeros(1, dtype=np.uint8)


@contextmanager
def alarm(deadline: float) -> Iterator[NDArray[np.uint8]]:
    """A flag that is set when the time is up; compiled code checks it and lets other threads run."""
    flag = _running()
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
