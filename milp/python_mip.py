"""Solving a linear model with python-mip. Runs in the solver process, see `worker`."""

from __future__ import annotations

import mip
import numpy as np

from bft.milp.linear import Limits, LinearAnswer, LinearModel, power_of_two_scale

STATUS = {
    mip.OptimizationStatus.OPTIMAL: "optimal",
    mip.OptimizationStatus.FEASIBLE: "feasible",
    mip.OptimizationStatus.INFEASIBLE: "infeasible",
    mip.OptimizationStatus.INT_INFEASIBLE: "infeasible",
    mip.OptimizationStatus.NO_SOLUTION_FOUND: "nothing",
}


def solve(model: LinearModel, solver_name: str, limits: Limits) -> LinearAnswer:
    """Solve `model` with the python-mip solver `solver_name` (CBC or HIGHS)."""
    solver = mip.Model(sense=mip.MAXIMIZE, solver_name=solver_name)
    solver.verbose = 0
    scale = power_of_two_scale(model.objective)
    variables = [
        solver.add_var(obj=cost * scale, ub=upper, var_type=mip.INTEGER if integer else mip.CONTINUOUS)
        for cost, upper, integer in zip(model.objective, model.upper, model.integer, strict=True)
    ]
    for indices, coefficients, sense, right in model.rows:
        solver.add_constr(mip.LinExpr([variables[i] for i in indices], coefficients, -right, sense))
    # python-mip's defaults stop at 1e-4 relative; an answer within 1e-9 counts as proven.
    solver.max_mip_gap = max(limits.gap, 1e-9)
    solver.max_mip_gap_abs = 1e-9
    # These models are small and tight: presolve and cuts cost more than they save (benchmarks/solve_modes.py).
    solver.preprocess = 0
    solver.cuts = 0
    solver.threads = limits.threads
    status = solver.optimize() if limits.seconds is None else solver.optimize(max_seconds=limits.seconds)
    word = STATUS.get(status, f"solver said {status.name}")
    if word not in ("optimal", "feasible"):
        return LinearAnswer(word, None, float("nan"), float("nan"))
    x = np.fromiter((variable.x for variable in variables), dtype=np.float64, count=len(variables))
    objective = float(solver.objective_value) / scale
    bound = objective if word == "optimal" and not limits.gap else float(solver.objective_bound) / scale
    return LinearAnswer(word, x, objective, bound)
