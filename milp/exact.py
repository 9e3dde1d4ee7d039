"""The exact dynamic programme (DESIGN §6.4): no solver, milliseconds, always a proof."""

from __future__ import annotations

import numpy as np

from bft.milp.problem import Problem
from bft.milp.values import value_tables


def solve_exact(problem: Problem) -> tuple[int, ...]:
    """Return the counts of an optimal allocation (ties: keep what a job has, else give least)."""
    from bft.milp._knapsack import best_counts

    tables = value_tables(problem)
    if not tables:
        return ()
    offsets = np.zeros(len(tables) + 1, dtype=np.int64)
    np.cumsum([len(table) for table in tables], out=offsets[1:])
    current = np.asarray(problem.current, dtype=np.int64)
    counts = best_counts(np.concatenate(tables), offsets, current, problem.units)
    return tuple(counts.tolist())
