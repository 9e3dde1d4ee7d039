"""Solve a linear model with CBC through python-mip. Runs in the solver process, see `worker`."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec

# mipster, a small build of CBC by python-mip's author, is preferred where it is installed (docs/install.md). python-mip
# reads the variable when it is imported.
if "PMIP_CBC_LIBRARY" not in os.environ and find_spec("mipster"):
    import mipster

    os.environ["PMIP_CBC_LIBRARY"] = str(mipster.lib_path())
# CBC prints every option that differs from its default on standard error, whatever its log level.
CHATTY = "mipster" in os.environ.get("PMIP_CBC_LIBRARY", "")

import mip  # noqa: E402
import numpy as np  # noqa: E402

from bft.milp.formulations.linear import (  # noqa: E402
    Limits,
    LinearAnswer,
    LinearModel,
    power_of_two_scale,
)
from bft.milp.tolerances import PROVEN_GAP  # noqa: E402

# CBC's primal heuristics take longer than the whole search of a small model such as `modes`, but find the solutions
# of a large one (docs/decisions/0008-solvers.md).
FEW_VARIABLES = 1000


def solve(model: LinearModel, limits: Limits) -> LinearAnswer:
    """Solve `model` with CBC."""
    if not model.objective:  # python-mip cannot solve a model without variables
        return LinearAnswer("optimal", np.zeros(0), 0.0, 0.0)
    # When maximising, CBC compares the value of a start with the wrong sign: if it is negative, every better solution
    # looks worse and the start is reported as optimal. So the model is minimised.
    solver = mip.Model(sense=mip.MINIMIZE, solver_name=mip.CBC)
    solver.verbose = 0
    scale = -power_of_two_scale(model.objective)
    variables = [
        solver.add_var(
            obj=worth * scale,
            ub=upper,
            var_type=mip.INTEGER if integer else mip.CONTINUOUS,
        )
        for worth, upper, integer in zip(
            model.objective, model.upper, model.integer, strict=True
        )
    ]
    for indices, coefficients, sense, right in model.rows:
        expression = mip.LinExpr(
            [variables[i] for i in indices], coefficients, -right, sense
        )
        if len(expression.expr) != len(indices):
            raise ValueError(f"a row names a variable twice: {indices}")
        solver.add_constr(expression)
    if model.start:
        solver.start = [(variables[index], value) for index, value in model.start]
    solver.max_mip_gap = max(limits.gap, PROVEN_GAP)
    solver.max_mip_gap_abs = PROVEN_GAP
    _set_cbc(solver, limits, len(variables))
    with _silence() if CHATTY else nullcontext():
        status = (
            solver.optimize()
            if limits.seconds is None
            else solver.optimize(max_seconds=limits.seconds)
        )
    if status not in (mip.OptimizationStatus.OPTIMAL, mip.OptimizationStatus.FEASIBLE):
        return LinearAnswer(status.name, None, math.nan, math.nan)
    x = np.fromiter(
        (variable.x for variable in variables), dtype=np.float64, count=len(variables)
    )
    objective = float(solver.objective_value) / scale
    proven = status is mip.OptimizationStatus.OPTIMAL and not limits.gap
    return LinearAnswer(
        status.name,
        x,
        objective,
        objective if proven else float(solver.objective_bound) / scale,
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress what C libraries write to standard error while the block runs."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _set_cbc(solver: mip.Model, limits: Limits, variables: int) -> None:
    """Options for small, tight models; measured on 3,907 real decisions (decision 0008)."""
    # Preprocessing, cuts and the feasibility pump cost more than they save. (A model with a large big-M would take
    # minutes without them; `node` has none.)
    solver.preprocess = 0
    solver.cuts = 0
    solver.pump_passes = 0
    if variables <= FEW_VARIABLES:
        mip.cbc.cbc_set_parameter(solver.solver, "heur", "off")
    # With one thread CBC starts a second one, at about 1-5 ms per solve; with none it does the same search without.
    solver.threads = limits.threads if limits.threads > 1 else 0
