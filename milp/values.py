"""What an allocation is worth: the value tables v_j(n) of DESIGN §6, and answers measured by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bft.milp.problem import CostModel, FloatArray, Job, Problem


def value_table(job: Job, current: int, units: int, tfwd: float, cost_model: CostModel) -> FloatArray:
    """v_j(n) for n = 0 ... min(jmax, units): float64, objective units, -inf where n is not allowed.

    `bftrainer`: Tfwd·O(n) - T·r with r = O(current), T = Tcup when n > current, Tcdw when n < current.
    `stall`: max(Tfwd - T, 0)·O(n) for n != current. Both times the job's weight (DESIGN §6).
    """
    most = min(job.jmax, units)
    values = tfwd * job.table[: most + 1]
    if cost_model == "bftrainer":
        rate = job.rate(current)
        if rate:
            values[:current] -= job.tcdw * rate
            values[current + 1 :] -= job.tcup * rate
    else:
        values[:current] *= max(tfwd - job.tcdw, 0.0) / tfwd
        values[current + 1 :] *= max(tfwd - job.tcup, 0.0) / tfwd
    if job.weight != 1.0:
        values *= job.weight
    values[1 : job.jmin] = -np.inf
    return values


def value_tables(problem: Problem) -> list[FloatArray]:
    """The value table of every job, in the order of the problem."""
    return [
        value_table(job, current, problem.units, problem.tfwd, problem.cost_model)
        for job, current in zip(problem.jobs, problem.current, strict=True)
    ]


def total_value(tables: Sequence[FloatArray], counts: Sequence[int]) -> float:
    """Sum of v_j(n_j), always added in the same order so that equal counts give equal bits."""
    return float(sum(float(table[n]) for table, n in zip(tables, counts, strict=True)))


def keep(problem: Problem) -> tuple[int, ...]:
    """Counts that leave every job what it has, as far as its bounds allow: the least a solver must reach."""
    return tuple(
        min(held, job.jmax) if held >= job.jmin else 0 for job, held in zip(problem.jobs, problem.current, strict=True)
    )


def complaint(problem: Problem, tables: Sequence[FloatArray], counts: Sequence[int]) -> str:
    """Say what makes `counts` infeasible, or return an empty string."""
    if len(counts) != len(problem.jobs):
        return f"{len(counts)} counts for {len(problem.jobs)} jobs"
    for job, table, n in zip(problem.jobs, tables, counts, strict=True):
        if not 0 <= n < len(table) or table[n] == -np.inf:
            return f"job {job.name!r} gets {n} units, outside 0 and [{job.jmin}, {len(table) - 1}]"
    if sum(counts) > problem.units:
        return f"{sum(counts)} units given, {problem.units} idle"
    return ""
