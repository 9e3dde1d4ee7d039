"""The check of a solver's answer: feasible, worth what it claims, in agreement with the exact DP."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bft.milp.exact.dp import Optimum
from bft.milp.formulations.linear import Formulated, Limits, LinearAnswer, Nonsense
from bft.milp.problem import Solution, Status
from bft.milp.tolerances import SOLVER_ZERO, TOLERANCE

# A choice of each job (`Problem`): a number of units where all are alike.
Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """Facts about a problem that a solver's answer is checked against.

    Parameters
    ----------
    kept
        The choices with which every job keeps what it may.
    ceiling
        An upper bound that does not depend on the solver: every job at its own best.
    largest
        The largest value of a job, in magnitude.
    value, complaint
        Of choices: their value, and why they are infeasible (empty where they are feasible).
    """

    kept: Counts
    ceiling: float
    largest: float
    value: Callable[[Counts], float]
    complaint: Callable[[Counts], str]


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked answer of a solver: status, counts, an upper bound, and a note."""

    status: Status
    counts: Counts
    bound: float
    note: str = ""


def checked(
    answer: LinearAnswer,
    formulated: Formulated,
    known: Known,
    limits: Limits,
    *,
    strict: bool = False,
) -> Checked:
    """Check a solver's answer; raise Nonsense when it contradicts itself. `strict`: of the model as published."""
    kept, ceiling, kept_value = known.kept, known.ceiling, known.value(known.kept)
    if answer.x is None:
        if answer.status == "nothing":
            return Checked("feasible", kept, ceiling, "time limit, no answer: kept")
        if answer.status == "infeasible" and strict:
            return Checked("infeasible", (0,) * len(kept), -math.inf, "as published")
        raise Nonsense(
            f"answered {answer.said!r}, but the allocation without any units is feasible"
        )
    counts = formulated.decode(answer.values(formulated.model))
    invalid = known.complaint(counts)
    if invalid:
        raise Nonsense(f"invalid answer: {invalid}")
    value = known.value(counts)
    slack = TOLERANCE * max(abs(value), abs(kept_value)) + SOLVER_ZERO * known.largest
    # A value above the claimed one is no error: the solver did not fill the segments in the best order.
    if not value >= answer.objective - slack:
        raise Nonsense(f"claims {answer.objective!r} for an answer of value {value!r}")
    if answer.status == "optimal":
        if limits.gap and value < kept_value:
            return Checked(
                "optimal",
                kept,
                max(kept_value, answer.bound),
                "within the gap, and keeping is better",
            )
        if value < kept_value - slack and not strict:
            raise Nonsense(
                f"reports the optimum {value!r}, but keeping has {kept_value!r}"
            )
        if value > answer.bound + slack:
            return Checked(
                "feasible",
                counts,
                ceiling,
                f"value above the reported bound {answer.bound!r}",
            )
        return Checked("optimal", counts, max(value, answer.bound))
    bound = min(ceiling, answer.bound) if math.isfinite(answer.bound) else ceiling
    if value >= kept_value:
        return Checked("feasible", counts, max(value, bound), "time limit: incumbent")
    return Checked(
        "feasible",
        kept,
        max(kept_value, bound),
        "time limit: kept, better than the incumbent",
    )


def contradiction(solution: Solution, best: Optimum, gap: float = 0.0) -> str:
    """Describe how a solver's answer contradicts that of the exact DP; empty when they agree."""
    slack = TOLERANCE * max(abs(best.objective), abs(solution.objective))
    backend, value, bound = solution.backend, solution.objective, solution.bound
    if solution.status == "optimal" and value < best.objective - slack - gap * abs(
        best.objective
    ):
        return f"{backend}: reports the optimum {value!r}, but {best.objective!r} is possible"
    if bound < best.objective - slack:
        return f"{backend}: reports the upper bound {bound!r}, but {best.objective!r} is possible"
    if value > best.bound + slack:
        return f"exact: reports the upper bound {best.bound!r}, but {backend} has {value!r}"
    return ""
