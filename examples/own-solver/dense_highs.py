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
        # A solver is imported when it is first asked.
        from scipy.optimize import Bounds, LinearConstraint, milp

        matrix = np.zeros((len(model.rows), len(model.objective)))
        low, high = np.full(len(model.rows), -np.inf), np.zeros(len(model.rows))
        for row, (indices, coefficients, sense, right) in enumerate(model.rows):
            matrix[row, indices], high[row] = coefficients, right
            if sense == "=":
                low[row] = right
        options = {"mip_rel_gap": limits.gap, "time_limit": limits.seconds or np.inf}
        result = milp(
            -np.array(model.objective),  # SciPy minimises
            integrality=model.integer,
            bounds=Bounds(0, np.array(model.upper)),
            constraints=LinearConstraint(matrix, low, high),
            options=options,
        )
        if result.x is None:
            word = "infeasible" if result.status == 2 else "time limit"
            return LinearAnswer(word, None, np.nan, np.nan)
        word = "optimal" if result.status == 0 else "feasible"
        return LinearAnswer(word, result.x, -result.fun, -result.mip_dual_bound)
