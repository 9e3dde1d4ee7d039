"""The `node` formulation (docs/model.md): the published model, node by node, used for cross-checks.

It is much larger than `modes`, which solves the same problem: it has a binary for every job and node instead of one for
every run of a job's curve.
"""

import numpy as np

from bft.milp.formulations.linear import Formulated, LinearModel
from bft.milp.formulations.modes import Chosen, add_limit, add_runs, mode_runs
from bft.milp.jobs import FloatArray, ProblemError
from bft.milp.problem import Problem
from bft.milp.tables import tables_of


def build(problem: Problem, *, strict_reference: bool = False) -> Formulated:
    """Formulate `problem` node by node.

    Binaries x[j,n]: job j gets idle node n. c[j,n] is the current map: idle nodes are interchangeable, so job 0 holds
    the first c_0 of them, job 1 the next c_1, and so on. Since c is known, x xor c is x or 1 - x, so the nodes that a
    job gains and loses are the sums

        gained_j = sum of x[j,n] where c[j,n] = 0        lost_j = sum of 1 - x[j,n] where c[j,n] = 1

    Binaries up_j, down_j. Subject to

        sum over j of x[j,n] <= 1                                              a node serves one job
        2 gained_j <= M·up_j     2 lost_j <= M·down_j     up_j + down_j <= 1   no migration
        sum over n of x[j,n] = units of j in its runs                          none, or as many as it may have

    maximise the sum of v_j(n_j), a choice of the concave runs of the job's value table as in `modes`; its x_i need no
    integrality of their own, because x is integer. The published objective Tfwd·O_j - Tcup_j·r_j·up_j -
    Tcdw_j·r_j·down_j is the same: up_j is 1 only where n_j is above c_j, down_j where it is below.

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
            "the node formulation gives every unit to one job: remove xi, or choose items"
        )
    model = LinearModel()
    takers: list[list[int]] = [[] for _ in range(problem.units)]
    ours: list[list[int]] = []
    runs: list[list[Chosen]] = []
    first = 0
    for j, held in enumerate(problem.current):
        given = [model.variable(0.0, 1.0) for _ in range(problem.units)]
        for taker, x in zip(takers, given, strict=True):
            taker.append(x)
        ours.append(given)
        strict = strict_reference
        runs.append(
            [_add_job(model, problem, j, given, first, strict_reference=strict)]
        )
        first += held
    for taker in takers:
        if len(taker) > 1:
            model.row(taker, [1.0] * len(taker), "<", 1.0)
    for limit in problem.limits:
        add_limit(model, limit, runs)

    def decode(x: FloatArray) -> tuple[int, ...]:
        return tuple(round(float(np.sum(x[given]))) for given in ours)

    return Formulated(model, decode, tables_of(problem).debt)


def _add_job(
    model: LinearModel,
    problem: Problem,
    j: int,
    given: list[int],
    first: int,
    *,
    strict_reference: bool,
) -> Chosen:
    """Add job j, which holds the nodes from `first` on and gets those of its binaries x = `given`; return its runs."""
    job, held, nodes = problem.jobs[j], problem.current[j], problem.units
    reference = nodes + 1
    # 2 gained <= M·up is the same as gained <= ⌊M/2⌋·up, which makes the relaxation tighter.
    max_changed = reference // 2 if strict_reference else nodes
    kept, new = given[first : first + held], given[:first] + given[first + held :]
    up, down = model.variable(0.0, 1.0), model.variable(0.0, 1.0)
    model.row([up, down], [1.0, 1.0], "<", 1.0)
    if new:
        limit = min(len(new), max(job.jmax - held, 0), max_changed)
        model.row([*new, up], [1.0] * len(new) + [-float(limit)], "<", 0.0)
    if kept:
        limit = min(held, max_changed)
        model.row([*kept, down], [-1.0] * held + [-float(limit)], "<", -float(held))
    table, line = tables_of(problem).of(j), tables_of(problem).line_of(j)
    off = model.variable(float(table[0]), 1.0)
    runs = list(mode_runs(table, line, held))
    chosen, binaries = add_runs(model, runs, integer=False)
    model.row([off, *binaries], [1.0] * (1 + len(binaries)), "=", 1.0)
    if nodes:
        counted = [-float(count) for _, count in chosen.parts]
        parts = [index for index, _ in chosen.parts]
        model.row([*given, *parts], [1.0] * nodes + counted, "=", 0.0)
    if strict_reference and job.jmin > reference:  # the curve enforces a smaller Jmin
        model.row(
            [*given, off],
            [-1.0] * nodes + [-float(reference)],
            "<",
            -float(job.jmin),
        )
    return chosen
