"""Solve sharing problems: column generation, the search of its gap, then a MILP of items (docs/model.md).

Among several optima, keeping everything comes first, then the allocation that column generation and the search of its
gap lead to: then no solver influences the answer. Otherwise a solver decides which jobs are active and who shares with
whom, which may differ between solvers in case of ties; the exact DP then distributes the units of items among them.

What ξ makes of a job's value is in `milp/values.py`.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace

from bft.milp.formulations.column_generation import (
    Relaxation,
    relax,
    rounded,
    search_gap,
)
from bft.milp.formulations.items import Choice, Items
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel, Nonsense
from bft.milp.formulations.transfers import (
    Shares,
    complaint_about,
    keep_shared,
    transport,
    value_of,
)
from bft.milp.problem import Problem, Solution
from bft.milp.tables import tables_of
from bft.milp.tolerances import PROVEN_GAP, SOLVER_ZERO

Ask = Callable[[LinearModel, Limits], LinearAnswer]


def carry_out(
    problem: Problem, counts: tuple[int, ...], shares: Shares, formulation: str
) -> Solution | None:
    """Return the allocation with its moves and value, or None when it requires a migration; its bound is infinite."""
    moves = transport(problem, counts, shares)
    if moves is None:
        return None
    complaint = complaint_about(problem, counts, moves)
    if complaint:
        raise Nonsense(complaint)
    value = value_of(problem, counts, shares)
    return Solution(
        "feasible", counts, value, math.inf, "", formulation, transfers=moves
    )


def keep(problem: Problem) -> Solution:
    """Return the answer in which all jobs keep what they have: always possible, without a solver; no bound."""
    answer = carry_out(problem, *keep_shared(problem), "keep")
    if answer is None:
        raise Nonsense("keeping the present allocation requires a migration")
    return answer


def keep_answer(problem: Problem, note: str) -> Solution:
    """Return the answer in which all jobs keep what they have, with a bound."""
    answer = keep(problem)
    return replace(
        answer, bound=max(answer.objective, tables_of(problem).ceiling), note=note
    )


def solve_sharing(
    problem: Problem, ask: Ask, limits: Limits, tolerance: float
) -> Solution:
    """Solve a sharing problem.

    Parameters
    ----------
    problem
        With pairs.
    ask
        Solves a linear model within limits; may raise.
    limits
        For the whole search, not for each model.
    tolerance
        Relative difference of claimed and recomputed objective that counts as an error.

    Raises
    ------
    Nonsense
        When an answer of the solver contradicts itself.
    """
    deadline = math.inf
    if limits.seconds is not None:
        deadline = time.monotonic() + limits.seconds
    items = Items(problem)
    relaxation = relax(items)
    start = rounded(items, relaxation)
    best = _better(keep(problem), _carried_out(items, start, "column_generation"))
    bound = relaxation.bound
    if not _met(best.objective, bound, limits.gap):
        loss, choice = search_gap(items, relaxation, _max_loss(relaxation, best))
        bound = min(bound, relaxation.bound - loss)
        if choice:
            start = items.shared_out([i for i, _ in choice])
            found = _carried_out(items, start, "column_generation")
            best = _better(best, found)
    left = deadline - time.monotonic()
    if left <= 0 or _met(best.objective, bound, limits.gap):
        return _answer(best, bound, limits.gap, "column_generation")
    model = items.model(relaxation.loss <= _max_loss(relaxation, best), start)
    seconds = None if left == math.inf else left
    answer = ask(model.model, replace(limits, seconds=seconds)).above(items.base)
    if answer.x is None:
        if answer.status == "nothing":
            return _answer(best, bound, limits.gap, "items")
        raise Nonsense(
            f"answered {answer.said!r}, but the allocation without any units is feasible"
        )
    zero = SOLVER_ZERO * max(map(abs, model.model.objective), default=0.0)
    bound = min(bound, _claimed_bound(answer, best, zero, limits.gap + tolerance))
    chosen = model.decode(answer.values(model.model))
    choice = items.shared_out([i for i, _ in chosen])
    found = _carried_out(items, choice, "items")
    proven = answer.status == "optimal"
    if found is None:
        stopped_by = "the best items take a migration" if proven else "time limit"
        return _answer(best, bound, limits.gap, "items", stopped_by)
    # A value above the claimed one is no error: the solver did not fill the segments in order.
    slack = zero + tolerance * max(abs(found.objective), abs(best.objective))
    if not found.objective >= answer.objective - slack:
        raise Nonsense(
            f"claims {answer.objective!r} for an answer of value {found.objective!r}"
        )
    best = _better(best, found)
    if proven and not limits.gap:
        bound = best.objective
    return _answer(best, bound, limits.gap, "items")


def _carried_out(items: Items, choice: Choice, method: str) -> Solution | None:
    """Return the answer for a choice of items, None when it requires a migration."""
    counts, shares = items.named(choice)
    return carry_out(items.problem, counts, shares, method)


def _better(best: Solution, found: Solution | None) -> Solution:
    """Return the better of two answers, the first one unless the other exceeds it by more than rounding."""
    if found is None:
        return best
    value, known = found.objective, best.objective
    exceeds = value - known > PROVEN_GAP * max(abs(value), abs(known))
    return found if exceeds else best


def _max_loss(relaxation: Relaxation, best: Solution) -> float:
    """Return the most that a choice better than the best known loses at the dual prices."""
    bound, known = relaxation.bound, best.objective
    return bound - known + PROVEN_GAP * max(abs(bound), abs(known))


def _claimed_bound(
    answer: LinearAnswer, best: Solution, zero: float, tolerance: float
) -> float:
    """Return the upper bound that the solver proved; raise Nonsense for an optimum below a known value."""
    known, claimed = best.objective, answer.objective
    if answer.status != "optimal":
        return max(answer.bound, known) if math.isfinite(answer.bound) else math.inf
    if claimed < known - zero - tolerance * max(abs(claimed), abs(known)):
        raise Nonsense(f"reports the optimum {claimed!r}, but {known!r} is known")
    return max(answer.bound, claimed, known)


def _answer(
    best: Solution,
    bound: float,
    gap: float,
    method: str,
    stopped_by: str = "time limit",
) -> Solution:
    """Return the best answer with its bound: as the optimum, found by `method` where it is to keep, or with a note."""
    bound = max(bound, best.objective)
    kept = best.formulation == "keep"
    if _met(best.objective, bound, gap):
        formulation = method if kept else best.formulation
        return replace(best, status="optimal", bound=bound, formulation=formulation)
    note = f"{stopped_by}: {'kept' if kept else 'best known'}"
    return replace(best, bound=bound, note=note)


def _met(value: float, bound: float, gap: float) -> bool:
    """Tell whether a value reaches a bound, up to a relative gap."""
    return bound - value <= max(gap, PROVEN_GAP) * max(abs(value), abs(bound))
