"""The textbook model of the decision, to measure against: λ on the curve's points, big-M on the change of units."""

from __future__ import annotations

import numpy as np

from bft.milp import Problem
from bft.milp.formulations.linear import Formulated, LinearModel
from bft.milp.jobs import FloatArray


def _points(ns: FloatArray, low: int, high: int) -> list[int]:
    """Whole numbers in [low, high] between which a curve with breakpoints `ns` is linear."""
    inner = ns[(ns > low) & (ns < high)]
    near = np.concatenate(([low, high], np.floor(inner), np.ceil(inner)))
    return np.unique(near).astype(int).tolist()


def build(problem: Problem) -> Formulated:
    """Formulate `problem` on counts n_j, cost model `bftrainer`.

    n_j = Σ λ_p·N_p over 0 and the points of [Jmin, Jmax], Σ λ_p = 1, λ nonzero at the two ends of one segment at most:
    λ_p <= sum of the binaries of its segments, Σ binaries = 1 (0 alone is a segment of its own). Binaries up, down with
    n_j - c_j <= M·up and c_j - n_j <= M·down pay Tcup·r_j and Tcdw·r_j.
    """
    model = LinearModel()
    given: list[list[tuple[int, float]]] = []
    for job, current in zip(problem.jobs, problem.current, strict=True):
        low, high = max(job.jmin, 1), min(job.jmax, problem.units)
        points = _points(job.ns, low, high) if low <= high else []
        worth = problem.tfwd * job.weight
        off = model.variable(worth * float(job.os[0]), 1.0)
        weights = [
            model.variable(
                worth * float(np.interp(n, job.ns, job.os)), 1.0, integer=False
            )
            for n in points
        ]
        segments = (
            [model.variable(0.0, 1.0) for _ in range(max(1, len(points) - 1))]
            if points
            else []
        )
        model.row([off, *weights], [1.0] * (1 + len(weights)), "=", 1.0)
        model.row([off, *segments], [1.0] * (1 + len(segments)), "=", 1.0)
        for p, weight in enumerate(weights):
            beside = segments[max(0, p - 1) : p + 1]
            model.row([weight, *beside], [1.0, *[-1.0] * len(beside)], "<", 0.0)
        units = model.variable(0.0, float(problem.units))
        model.row([units, *weights], [1.0, *(-float(n) for n in points)], "=", 0.0)
        rate = float(np.interp(current, job.ns, job.os)) * job.weight * (current > 0)
        up, down = (
            model.variable(-job.tcup * rate, 1.0),
            model.variable(-job.tcdw * rate, 1.0),
        )
        model.row([units, up], [1.0, -float(problem.units)], "<", float(current))
        model.row([units, down], [-1.0, -float(problem.units)], "<", -float(current))
        given.append([(units, 1.0)])
    model.row(
        [index for parts in given for index, _ in parts],
        [1.0] * len(given),
        "<",
        float(problem.units),
    )

    def decode(x: FloatArray) -> tuple[int, ...]:
        return tuple(
            round(sum(float(x[index]) * factor for index, factor in parts))
            for parts in given
        )

    return Formulated(model, decode)
