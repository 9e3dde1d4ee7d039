"""A small problem, and stand-ins for a solver process that answer what they are made to."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bft.milp import Job, Limits, LinearAnswer, LinearModel, Problem, keep, solve
from bft.milp.formulations.modes import build
from bft.milp.tables import tables_of


def job(name: str, jmin: int = 1, jmax: int = 4) -> Job:
    return Job(
        name,
        jmin,
        jmax,
        np.array([0.0, 1.0, 4.0]),
        np.array([0.0, 10.0, 30.0]),
        20.0,
        10.0,
    )


# Keeping is worth 3,200, the optimum 4,600 at counts (3, 2).
PROBLEM = Problem(5, 120.0, (job("a"), job("b")), (1, 2))
KEPT = tables_of(PROBLEM).value(keep(PROBLEM))
OPTIMUM = solve(PROBLEM, backend="exact").objective


def point(problem: Problem, counts: tuple[int, ...]) -> np.ndarray:
    """The best point of the model that decodes to `counts`; if there is none, one that only keeps the bounds."""
    formulated = build(problem)
    model = formulated.model
    axes = [range(int(upper) + 1) for upper in model.upper]
    points = [np.array(x, dtype=float) for x in itertools.product(*axes)]
    fitting = [x for x in points if formulated.decode(x) == counts]

    def worth(x: np.ndarray) -> tuple[bool, float]:
        totals = [
            (x[i] @ np.array(c), sense, right) for i, c, sense, right in model.rows
        ]
        obeys = all(
            np.isclose(total, right) if sense == "=" else total <= right + 1e-9
            for total, sense, right in totals
        )
        return obeys, float(x @ np.array(model.objective))

    return max(fitting, key=worth)


@dataclass
class Liar:
    """A stand-in for a solver process: it has a point, and claims what that is worth times a factor, and a bound."""

    counts: tuple[int, ...] | None = (3, 2)
    status: str = "optimal"
    factor: float = 1.0
    bound: float | None = None
    garble: Callable[[np.ndarray], np.ndarray] = lambda x: x
    problem: Problem = field(default=PROBLEM)

    def solve(self, model: LinearModel, backend: str, limits: Limits) -> LinearAnswer:
        if self.counts is None:
            return LinearAnswer(self.status, None, np.nan, np.nan)
        x = point(self.problem, self.counts)
        garbled = self.garble(x)
        whole = garbled if len(garbled) == len(x) else x
        value = float(np.array(model.objective) @ np.nan_to_num(whole, posinf=1.0))
        bound = value if self.bound is None else self.bound
        return LinearAnswer(self.status, garbled, value * self.factor, bound)
