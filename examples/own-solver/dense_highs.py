"""A backend in a package of its own: SciPy's HiGHS on one dense matrix."""

import numpy as np

from bft.milp import Availability, Limits, LinearAnswer, LinearModel


class DenseHighs:
    """Solve `modes` and `node`; no start, one thread."""

    name = "dense-highs"
    formulations = ("modes", "node")
    features = ()

    def available(self) -> Availability:
        """SciPy is always there."""
        return Availability(
            version="1.0", licence="MIT", limits="the whole matrix in memory"
        )

    def solve(self, model: LinearModel, limits: Limits) -> LinearAnswer:
        """Maximise objective·x; rows·x `<` or `=` right, 0 <= x <= upper, some x whole."""
        from scipy.optimize import (
            Bounds,
            LinearConstraint,
            milp,
        )  # a solver is imported when it is first asked

        matrix = np.zeros((len(model.rows), len(model.objective)))
        low, high = np.full(len(model.rows), -np.inf), np.zeros(len(model.rows))
        for row, (indices, coefficients, sense, right) in enumerate(model.rows):
            matrix[row, indices], high[row] = coefficients, right
            if sense == "=":
                low[row] = right
        options = {"mip_rel_gap": limits.gap, "time_limit": limits.seconds or np.inf}
        bounds, rows = (
            Bounds(0, np.array(model.upper)),
            LinearConstraint(matrix, low, high),
        )
        costs = -np.array(model.objective)  # SciPy minimises
        result = milp(
            costs,
            integrality=model.integer,
            bounds=bounds,
            constraints=rows,
            options=options,
        )
        if result.x is None:
            return LinearAnswer(
                "infeasible" if result.status == 2 else "time limit",
                None,
                np.nan,
                np.nan,
            )
        word = "optimal" if result.status == 0 else "feasible"
        return LinearAnswer(word, result.x, -result.fun, -result.mip_dual_bound)
