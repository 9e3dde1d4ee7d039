"""The `modes` formulation (DESIGN §6.1): counts only, no big-M, no SOS."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from bft.milp.linear import Formulated, LinearModel
from bft.milp.problem import FloatArray, Job, Problem
from bft.milp.values import keep, total_value, value_tables

# Two slopes closer than this, relative to the larger, count as equal: the kink is rounding, not the user's.
SLOPE_TOLERANCE = 1e-12
# Costs this many times what is at stake are out of the question, and too large for a solver's tolerances.
BLINDING = 1e4

Run = list[tuple[int, float]]
"""Points (units, value) of a stretch of a value table that is linear between them and concave over all."""


def mode_intervals(job: Job, current: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield shrink [jmin, current-1], stay {current}, grow [max(current+1, jmin), most], where not empty."""
    least = max(job.jmin, 1)
    if least <= min(current - 1, most):
        yield least, min(current - 1, most)
    if least <= current <= most:
        yield current, current
    if max(current + 1, least) <= most:
        yield max(current + 1, least), most


def break_points(ns: FloatArray, low: int, high: int) -> list[int]:
    """Whole numbers in [low, high] between which a curve with breakpoints `ns` is linear."""
    inner = ns[(ns > low) & (ns < high)]
    return sorted({low, high, *np.floor(inner).astype(int).tolist(), *np.ceil(inner).astype(int).tolist()})


def concave_runs(points: Run) -> Iterator[Run]:
    """Cut a piecewise linear function, given by its points, into maximal concave runs.

    A run ends where the slope rises, and the next one starts at that very point.
    """
    run = points[:1]
    slope = np.inf
    for (n0, v0), (n1, v1) in itertools.pairwise(points):
        step = (v1 - v0) / (n1 - n0)
        if step > slope + SLOPE_TOLERANCE * max(abs(step), abs(slope)):
            yield run
            run = [(n0, v0)]
        run.append((n1, v1))
        slope = step
    yield run


def mode_runs(job: Job, current: int, values: FloatArray) -> Iterator[Run]:
    """Yield the concave runs of a job's value table, mode by mode (n = 0 is the off mode, not among them)."""
    for low, high in mode_intervals(job, current, len(values) - 1):
        yield from concave_runs([(n, float(values[n])) for n in break_points(job.ns, low, high)])


def build(problem: Problem) -> Formulated:
    """Formulate `problem`.

    For each job one binary t a run with points p0 < p1 < ..., one off binary, and whole numbers
    0 <= x_i <= (p_{i+1} - p_i)·t a segment. Subject to

        sum of t over the job's runs + off = 1
        sum over all runs of p0·t + x <= units

    maximise the sum of v(p0)·t + slope_i·x_i. Concavity fills the segments in order.
    """
    model = LinearModel()
    in_use: tuple[list[int], list[float]] = ([], [])
    weights: list[list[tuple[int, int]]] = []
    tables = value_tables(problem)
    # A run that can never pay, however well the others do, and whose cost is BLINDING times what is at stake, is left
    # out: its coefficient would blind the solver to all others.
    best = [float(table.max()) for table in tables]
    stake = sum(best) - total_value(tables, keep(problem))
    blinding = BLINDING * max([stake, *map(abs, best)], default=0.0)
    for job, current, values in zip(problem.jobs, problem.current, tables, strict=True):
        floor = min(float(values.max()) - 2 * stake, -blinding)
        choice = [model.variable(float(values[0]), 1.0)] if values[0] >= floor else []
        parts: list[tuple[int, int]] = []
        for run in mode_runs(job, current, values):
            first, value = run[0]
            if max(value for _, value in run) < floor:
                continue
            chosen = model.variable(value, 1.0)
            choice.append(chosen)
            parts.append((chosen, first))
            for (n0, v0), (n1, v1) in itertools.pairwise(run):
                length = n1 - n0
                segment = model.variable((v1 - v0) / length, float(length))
                model.row([segment, chosen], [1.0, -float(length)], "<", 0.0)
                parts.append((segment, 1))
        model.row(choice, [1.0] * len(choice), "=", 1.0)
        weights.append(parts)
        in_use[0].extend(index for index, _ in parts)
        in_use[1].extend(float(units) for _, units in parts)
    if in_use[0]:
        model.row(*in_use, "<", float(problem.units))

    def decode(x: FloatArray) -> tuple[int, ...]:
        return tuple(round(sum(x[index] * units for index, units in parts)) for parts in weights)

    return Formulated(model, decode)
