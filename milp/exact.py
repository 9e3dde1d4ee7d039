"""The exact dynamic programme (DESIGN §6.4): no solver, milliseconds, always a proof."""

from __future__ import annotations

import numpy as np

from bft.milp.problem import FloatArray, IntArray, Problem
from bft.milp.values import value_points, value_tables

# Steps (a job's table length x units, summed) up to which the plain programme takes a millisecond or two.
PLAIN_STEPS = 2**21
# Entries of all value tables together up to which they are made at all.
TABLE_ENTRIES = 2**20


def solve_exact(problem: Problem) -> tuple[int, ...]:
    """Return the counts of an optimal allocation.

    Ties: a job keeps what it has, else the last ones take least. Problems of more than some two million steps go
    to the core programme, whose base is chosen by the same preference and left only for something better, so that
    among equals it may name another optimum than the plain one would.
    """
    if not problem.jobs:
        return ()
    most = [min(job.jmax, problem.units) for job in problem.jobs]
    wanted = sum(most)
    entries = wanted + len(most)
    if entries > TABLE_ENTRIES or (wanted > problem.units and entries * problem.units > PLAIN_STEPS):
        return solve_core(problem)
    return solve_plain(problem)


def solve_plain(problem: Problem) -> tuple[int, ...]:
    """Solve with the plain programme over whole value tables (`_knapsack`)."""
    return share_units(value_tables(problem), _current(problem), problem.units)


def share_units(tables: list[FloatArray], current: IntArray, units: int) -> tuple[int, ...]:
    """Units for each table that maximise the sum, at most `units` in all; ties prefer `current`, then least."""
    from bft.milp._knapsack import best_counts

    if not tables:
        return ()
    return tuple(best_counts(np.concatenate(tables), _offsets(tables), current, units).tolist())


def solve_core(problem: Problem) -> tuple[int, ...]:
    """Solve by leaving out what cannot be part of an optimum (`_core`): 1,000 jobs x 100,000 units take well < 1 s."""
    from bft.milp._core import core_counts, envelope

    points = [value_points(problem, j) for j in range(len(problem.jobs))]
    units = np.concatenate([counts for counts, _ in points])
    values = np.concatenate([values for _, values in points])
    offsets = _offsets([counts for counts, _ in points])
    slopes, lengths = envelope(units, values, offsets)
    steepest = np.argsort(-slopes, kind="stable")
    filled = np.cumsum(lengths[steepest])
    at = int(np.searchsorted(filled, problem.units, side="right"))
    price = float(slopes[steepest[at]]) if at < len(filled) else 0.0
    counts = core_counts(units, values, offsets, _current(problem), problem.units, price)
    return tuple(counts.tolist())


def _offsets(parts: list[IntArray] | list[FloatArray]) -> IntArray:
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    return offsets


def _current(problem: Problem) -> IntArray:
    return np.asarray(problem.current, dtype=np.int64)
