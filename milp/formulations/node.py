"""The `node` formulation (docs/model.md): the published model, node by node, used for cross-checks.

It is much larger than `modes`, which solves the same problem: it has a binary for every job and node instead of one for
every run of a job's curve.
"""

from __future__ import annotations

import itertools

import numpy as np

from bft.milp.formulations.linear import Formulated, LinearModel
from bft.milp.formulations.modes import break_points, concave_runs
from bft.milp.problem import FloatArray, Job, Problem, ProblemError


def build(problem: Problem, *, strict_reference: bool = False) -> Formulated:
    """Formulate `problem` node by node.

    Binaries x[j,n]: job j gets idle node n. c[j,n] is the current map: idle nodes are interchangeable, so job 0 holds
    the first c_0 of them, job 1 the next c_1, and so on. Since c is known, x xor c is x or 1 - x, so the nodes that a
    job gains and loses are the sums

        gained_j = sum of x[j,n] where c[j,n] = 0        lost_j = sum of 1 - x[j,n] where c[j,n] = 1

    Binaries up_j, down_j. Subject to

        sum over j of x[j,n] <= 1                                              a node serves one job
        2 gained_j <= M·up_j     2 lost_j <= M·down_j     up_j + down_j <= 1   no migration
        sum over n of x[j,n] = units of j on its curve                         none, or as many as it may have

    maximise the sum of Tfwd·O_j - Tcup_j·r_j·up_j - Tcdw_j·r_j·down_j. The curve is a choice of concave runs, see
    `modes`; its x_i need no integrality of their own, because x is integer.

    In the published model the left-hand side is |n_j - c_j|, the size of the symmetric difference, and a big-M switches
    off one direction: gained + lost <= n_j - c_j + M·(1 - up_j) and gained + lost <= c_j - n_j + M·up_j. Because
    n_j - c_j = gained - lost, these are the constraints above.

    Parameters
    ----------
    problem
        The problem; without sharing.
    strict_reference
        Keep the published M, the number of nodes plus one. Twice the number of nodes is needed: with the published M no
        job can change by more than M / 2 nodes, and because `Jmin - M·off` bounds the nodes of a job from below, a Jmin
        above M makes everything infeasible. Otherwise M is as large as needed, and the bound from Jmin has no M.

    Raises
    ------
    ProblemError
        If jobs may share units.

    """
    if problem.pairs:
        raise ProblemError(
            "the node formulation gives every unit to one job: remove xi, or choose flow or items"
        )
    model = LinearModel()
    takers: list[list[int]] = [[] for _ in range(problem.units)]
    ours: list[list[int]] = []
    first = 0
    for j, held in enumerate(problem.current):
        given = [model.variable(0.0, 1.0) for _ in range(problem.units)]
        for taker, x in zip(takers, given, strict=True):
            taker.append(x)
        ours.append(given)
        _add_job(model, problem, j, given, first, strict_reference=strict_reference)
        first += held
    for taker in takers:
        if len(taker) > 1:
            model.row(taker, [1.0] * len(taker), "<", 1.0)

    def decode(x: FloatArray) -> tuple[int, ...]:
        return tuple(round(float(np.sum(x[given]))) for given in ours)

    return Formulated(model, decode)


def _add_job(
    model: LinearModel,
    problem: Problem,
    j: int,
    given: list[int],
    first: int,
    *,
    strict_reference: bool,
) -> None:
    """Add constraints of job j, which holds the nodes from `first` on, and the value of its binaries x = `given`."""
    job, held, nodes = problem.jobs[j], problem.current[j], problem.units
    reference = nodes + 1
    # 2 gained <= M·up is the same as gained <= ⌊M/2⌋·up, which makes the relaxation tighter.
    max_changed = reference // 2 if strict_reference else nodes
    kept, new = given[first : first + held], given[:first] + given[first + held :]
    rate = job.rate(held) * job.weight
    charged = problem.cost_model == "bftrainer"
    up = model.variable(-job.tcup * rate if charged else 0.0, 1.0)
    down = model.variable(-job.tcdw * rate if charged else 0.0, 1.0)
    model.row([up, down], [1.0, 1.0], "<", 1.0)
    if new:
        limit = min(len(new), max(job.jmax - held, 0), max_changed)
        model.row([*new, up], [1.0] * len(new) + [-float(limit)], "<", 0.0)
    if kept:
        limit = min(held, max_changed)
        model.row([*kept, down], [-1.0] * held + [-float(limit)], "<", -float(held))
    if not charged or rate < 0:
        # A change could pay by itself (a job with negative rates loses nothing while it stalls): up only if it gains
        # nodes, down only if it loses some.
        model.row([up, *new], [1.0] + [-1.0] * len(new), "<", 0.0)
        model.row([down, *kept], [1.0] * (1 + held), "<", float(held))
    off, units = _worths(model, problem, j, up, down)
    if nodes:
        counted = [-float(count) for _, count in units]
        model.row(
            [*given, *(index for index, _ in units)], [1.0] * nodes + counted, "=", 0.0
        )
    if strict_reference and job.jmin > reference:  # the curve enforces a smaller Jmin
        model.row(
            [*given, *off],
            [-1.0] * nodes + [-float(reference)] * len(off),
            "<",
            -float(job.jmin),
        )


def _worths(
    model: LinearModel, problem: Problem, j: int, up: int, down: int
) -> tuple[list[int], list[tuple[int, int]]]:
    """Add the value of job j's units; return as `_curve`."""
    job, nodes = problem.jobs[j], problem.units
    worth = problem.tfwd * job.weight
    if problem.cost_model == "bftrainer":
        return _curve(model, job, nodes, worth, None)
    # In a stall the curve counts for the remaining part of Tfwd: one copy each for staying, growing and shrinking.
    off: list[int] = []
    units: list[tuple[int, int]] = []
    stay = model.variable(0.0, 1.0)
    model.row([stay, up, down], [1.0, 1.0, 1.0], "=", 1.0)
    for switch, lost_s in ((stay, 0.0), (up, job.tcup), (down, job.tcdw)):
        factor = max(problem.tfwd - lost_s, 0.0) / problem.tfwd
        none, some = _curve(model, job, nodes, worth * factor, switch)
        off, units = off + none, units + some
    return off, units


def _curve(
    model: LinearModel, job: Job, nodes: int, worth: float, switch: int | None
) -> tuple[list[int], list[tuple[int, int]]]:
    """Add worth·O(n) for n = 0 and the counts that the job may have, if `switch` is on (None: always).

    Return the binary of n = 0, as a list, and what makes up n as (variable, units).
    """
    off = model.variable(worth * float(job.table[0]), 1.0)
    choice: list[int] = [off]
    units: list[tuple[int, int]] = []
    for min_units, last in job.stretches:
        max_units = min(last, nodes)
        if min_units > max_units:
            break
        points = [
            (n, worth * float(job.table[n]))
            for n in break_points(job.ns, min_units, max_units)
        ]
        for run in concave_runs(points):
            chosen = model.variable(run[0][1], 1.0)
            choice.append(chosen)
            units.append((chosen, run[0][0]))
            for (n0, v0), (n1, v1) in itertools.pairwise(run):
                length = float(n1 - n0)
                segment = model.variable((v1 - v0) / length, length, integer=False)
                model.row([segment, chosen], [1.0, -length], "<", 0.0)
                units.append((segment, 1))
    if switch is None:
        model.row(choice, [1.0] * len(choice), "=", 1.0)
    else:
        model.row([*choice, switch], [1.0] * len(choice) + [-1.0], "=", 0.0)
    return [off], units
