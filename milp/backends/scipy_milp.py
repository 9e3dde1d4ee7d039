"""Solve a linear model with scipy.optimize.milp, SciPy's own HiGHS. Runs in the solver process, see `worker`."""

import math

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from bft.milp.formulations.linear import (
    Limits,
    LinearAnswer,
    LinearModel,
    LinearStatus,
    power_of_two_scale,
)
from bft.milp.tolerances import PROVEN_GAP

# Meaning of the status numbers of scipy.optimize.milp.
STATUS = ("optimal", "time limit", "infeasible", "unbounded")


def solve(model: LinearModel, limits: Limits) -> LinearAnswer:
    """Solve `model` with SciPy's HiGHS, deterministically."""
    if not model.objective:  # SciPy refuses a model without variables
        return LinearAnswer("optimal", np.zeros(0), 0.0, 0.0)
    scale = -power_of_two_scale(model.objective)  # SciPy minimises
    options: dict[str, object] = {"mip_rel_gap": max(limits.gap, PROVEN_GAP)}
    if limits.seconds is not None:
        options["time_limit"] = limits.seconds
    result = milp(
        scale * np.array(model.objective),
        integrality=np.array(model.integer, dtype=np.uint8),
        bounds=Bounds(0.0, np.array(model.upper)),
        constraints=_rows(model),
        options=options,
    )
    word = STATUS[result.status] if result.status < len(STATUS) else result.message
    if word == STATUS[3] and all(map(math.isfinite, model.upper)):
        word = "infeasible"  # HiGHS says "unbounded or infeasible"
    answer = LinearAnswer(word, result.x, math.nan, math.nan)
    if answer.status not in (LinearStatus.OPTIMAL, LinearStatus.FEASIBLE):
        return LinearAnswer(word, None, math.nan, math.nan)
    objective = result.fun / scale
    bound = (
        objective
        if answer.status is LinearStatus.OPTIMAL and not limits.gap
        else result.mip_dual_bound / scale
    )
    return LinearAnswer(word, result.x, objective, bound)


def _rows(model: LinearModel) -> LinearConstraint | tuple[()]:
    """The constraints as one sparse matrix."""
    if not model.rows:
        return ()
    ends = np.cumsum([0, *(len(indices) for indices, *_ in model.rows)])
    indices = np.concatenate([row[0] for row in model.rows])
    coefficients = np.concatenate([row[1] for row in model.rows])
    right = np.array([row[3] for row in model.rows])
    left = np.where([row[2] == "=" for row in model.rows], right, -np.inf)
    shape = (len(model.rows), len(model.objective))
    return LinearConstraint(
        csr_array((coefficients, indices, ends), shape=shape), left, right
    )
