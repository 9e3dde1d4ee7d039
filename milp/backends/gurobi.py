"""Solve a linear model with gurobipy. Runs in the solver process, see `worker`; needs the extra `gurobi`."""

import math
from functools import cache

import gurobipy as gp
import numpy as np

from bft.milp.formulations.linear import (
    Limits,
    LinearAnswer,
    LinearModel,
    power_of_two_scale,
)
from bft.milp.tolerances import INTEGRALITY

GRB = gp.GRB
# Gurobi's error codes
NO_LICENCE = 10009
TOO_LARGE = 10010

SIZE_LIMIT = 2000
"""Largest number of variables, and of rows, that the licence bundled with gurobipy solves."""


class LicenceError(RuntimeError):
    """Gurobi may not solve this model. The message gives the limit of the licence and what to do."""


@cache
def environment() -> gp.Env:
    """Return the Gurobi environment of this process, without output. Starting one reads the licence, so it is kept."""
    try:
        env = gp.Env(empty=True)
        env.setParam("OutputFlag", 0)
        env.start()
    except gp.GurobiError as error:
        raise LicenceError(f"Gurobi does not start: {error}. {ADVICE}") from error
    return env


ADVICE = (
    "Install a licence (free for academics: https://www.gurobi.com/academia) and let GRB_LICENSE_FILE name it, "
    "or choose the backend exact, cbc or highs"
)


def size_limited() -> bool:
    """Whether the licence is the one bundled with gurobipy, which solves small models only."""
    with gp.Model(env=environment()) as probe:
        probe.addVars(SIZE_LIMIT + 1)
        try:
            probe.optimize()
        except gp.GurobiError as error:
            if error.errno == TOO_LARGE:
                return True
            raise
    return False


def solve(model: LinearModel, limits: Limits) -> LinearAnswer:
    """Solve `model` with Gurobi, deterministically.

    Raises
    ------
    LicenceError
        Without a licence, or with one that does not cover a model of this size.

    """
    if not model.objective:
        return LinearAnswer("optimal", np.zeros(0), 0.0, 0.0)
    scale = power_of_two_scale(model.objective)
    with gp.Model(env=environment()) as solver:
        solver.Params.Seed = 0
        solver.Params.Threads = limits.threads
        solver.Params.MIPGap = limits.gap
        solver.Params.MIPGapAbs = 0.0
        solver.Params.IntFeasTol = INTEGRALITY
        if limits.seconds is not None:
            solver.Params.TimeLimit = limits.seconds
        added = solver.addVars(
            range(len(model.objective)),
            obj=[cost * scale for cost in model.objective],
            ub=model.upper,
            vtype=[
                GRB.INTEGER if integer else GRB.CONTINUOUS for integer in model.integer
            ],
        )
        variables = list(added.values())
        for indices, coefficients, sense, right in model.rows:
            row = gp.LinExpr(coefficients, [variables[i] for i in indices])
            solver.addLConstr(row, GRB.EQUAL if sense == "=" else GRB.LESS_EQUAL, right)
        if model.start:
            # Gurobi does not assume 0 for variables missing from a start: it searches for values that complete it.
            known = dict(model.start)
            for index, variable in enumerate(variables):
                variable.Start = known.get(index, 0.0)
        solver.ModelSense = GRB.MAXIMIZE
        try:
            solver.optimize()
            if solver.Status == GRB.INF_OR_UNBD:
                solver.Params.DualReductions = 0
                solver.optimize()
        except gp.GurobiError as error:
            if error.errno in (NO_LICENCE, TOO_LARGE):
                raise LicenceError(
                    f"the model has {len(model.objective)} variables and {len(model.rows)} constraints, "
                    f"Gurobi's licence covers {SIZE_LIMIT} of each ({error}). {ADVICE}"
                ) from error
            raise
        if solver.Status == GRB.INFEASIBLE:
            return LinearAnswer("infeasible", None, math.nan, math.nan)
        if solver.Status == GRB.UNBOUNDED:
            return LinearAnswer("unbounded", None, math.nan, math.nan)
        if not solver.SolCount:
            return LinearAnswer("nothing", None, math.nan, math.nan)
        x = np.fromiter(
            (variable.X for variable in variables),
            dtype=np.float64,
            count=len(variables),
        )
        word = "optimal" if solver.Status == GRB.OPTIMAL else "feasible"
        return LinearAnswer(word, x, solver.ObjVal / scale, solver.ObjBound / scale)
