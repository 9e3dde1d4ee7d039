"""The exact dynamic programme (DP): no solver, milliseconds, and the canonical one of several optima.

The canonical optimum has the highest sum of scores (`kernel`: values in whole multiples of a quantum, minus a charge
for every job that changes, larger than any rounding error). Among equal sums it is the one that gives the last job
fewest units, then the job before it, and so on. In plain words: the best allocation; among several, the one that
changes the fewest jobs; among those, units go to the jobs that come first.
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bft.milp.jobs import FloatArray, IntArray, Job
from bft.milp.problem import Problem
from bft.milp.tables import Tables, compiled_kernel, tables_of
from bft.milp.values import Scores

# A search of up to this many steps takes about 20 ms and needs no timer, which can take 2 ms to start.
QUICK_STEPS = 2**24
NO_LIMIT = 2**62 - 1


class Optimum(NamedTuple):
    """The answer of the exact DP; `proven` unless `limit` was reached: then `bound` is above the objective."""

    counts: Sequence[int]
    objective: float
    bound: float
    proven: bool = True
    kinds: tuple[str | None, ...] = ()
    limit: str = "time limit"


def optimum(problem: Problem, time_limit: float | None = None) -> Optimum:
    """The canonical optimum; at the time limit (seconds) the best known allocation, with an upper bound."""
    if not problem.jobs:
        return Optimum((), 0.0, 0.0)
    _compile()
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    # Filling the tables counts.
    tables = tables_of(problem)
    flag, steps = np.zeros(1, np.uint8), NO_LIMIT
    if time_limit is not None:
        flag[0], steps = time.monotonic() >= deadline, QUICK_STEPS
    proven, counts, value, more = _search(tables, problem, steps, flag)
    if not proven and time.monotonic() < deadline:
        with alarm(deadline) as flag:
            proven, counts, value, more = _search(tables, problem, NO_LIMIT, flag)
    units, kinds = problem.named(counts)
    return Optimum(units, value, value + more, proven, kinds)


def _search(
    tables: Tables, problem: Problem, most_steps: int, stop: NDArray[np.uint8]
) -> tuple[bool, IntArray, float, float]:
    """Whether proven, the counts, their value, and how much more another allocation may be worth."""
    of, first, sizes = tables.classes
    held, units = problem.counts[first], problem.units
    counts, worth = np.empty(len(of), np.int64), np.empty(len(of))
    scores = tables.scores.pop(0, None) or Scores.of(len(tables.bends))
    proven, filled, more = compiled_kernel().search(
        of, sizes, tables.begin, tables.pool, tables.bends, tables.at, held, tables.kept, *scores, units, most_steps,
        stop, counts, worth,
    )  # fmt: skip
    tables.scores[0] = scores
    value = math.fsum(worth[:filled].tolist()) + tables.debt
    return proven, counts, value, more


@cache
def _compile() -> None:
    """Compile the kernels, or load them from the cache: that takes seconds outside the time limit."""
    curve = np.arange(3.0)
    jobs = tuple(Job(name, 1, 2, curve, curve, 0.0, 0.0) for name in "abc")
    problem = Problem(2, 1.0, jobs, (0, 0, 0))
    _search(tables_of(problem), problem, NO_LIMIT, np.zeros(1, np.uint8))


def share_units(
    tables: Sequence[FloatArray], current: IntArray, units: int
) -> tuple[int, ...]:
    """Units for each table that maximise the sum, at most `units` in total: the canonical optimum.

    Entry n of a table is its value on n units, -inf where not allowed; entry 0 is finite. `current`: units held now.
    """
    if not tables:
        return ()
    offsets = np.concatenate([[0], np.cumsum([len(table) for table in tables])])
    may = [
        now if now < len(table) and table[now] > -np.inf else 0
        for table, now in zip(tables, current, strict=True)
    ]
    kept = np.array(may, dtype=np.int64) * (sum(may) <= units)
    allowed = [np.flatnonzero(table > -np.inf) for table in tables]
    ends = np.cumsum([0, *map(len, allowed)])
    at = np.column_stack([offsets[:-1], ends[:-1], ends[1:]])
    of, held, one = np.arange(len(tables)), np.asarray(current), np.ones_like(current)
    flag, counts, worth = np.zeros(1, np.uint8), np.empty_like(of), np.empty(len(of))
    compiled_kernel().search(
        of, one, offsets, np.concatenate(tables), np.concatenate(allowed), at, held, kept, *Scores.of(ends[-1]),
        units, NO_LIMIT, flag, counts, worth,
    )  # fmt: skip
    return tuple(counts.tolist())


@contextmanager
def alarm(deadline: float) -> Iterator[NDArray[np.uint8]]:
    """A flag that is set when the time is up; compiled code checks it and lets other threads run."""
    flag = np.zeros(1, dtype=np.uint8)
    timer = threading.Timer(
        max(deadline - time.monotonic(), 0.0), flag.__setitem__, (0, 1)
    )
    timer.daemon = True
    if deadline < math.inf:
        timer.start()
    try:
        yield flag
    finally:
        timer.cancel()
