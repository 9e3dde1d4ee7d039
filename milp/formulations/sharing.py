"""Solve sharing problems: column generation, the search of its gap, a MILP of items, then flow (docs/model.md).

Among several optima, keeping everything comes first, then the allocation that column generation and the search of its
gap lead to: then no solver influences the answer. Otherwise a solver decides which jobs are active and who shares with
whom, which may differ between solvers in case of ties; the exact DP then distributes the units of items among them.

What ξ makes of a job's value is in `milp/values.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bft.milp.formulations.column_generation import relax, rounded, search_gap
from bft.milp.formulations.items import Choice, Items
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel, Nonsense
from bft.milp.formulations.transfers import (
    complaint_about,
    flow_model,
    keep_shared,
    transport,
    value_of,
)
from bft.milp.problem import Problem, Status, Transfer
from bft.milp.tolerances import PROVEN_GAP, SOLVER_ZERO

Ask = Callable[[LinearModel, Limits], LinearAnswer]
Shares = Mapping[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class SharingAnswer:
    """Counts and moves, their value, an upper bound, and the method that produced them."""

    status: Status
    counts: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    objective: float
    bound: float
    formulation: str
    note: str = ""


def carry_out(
    problem: Problem, counts: tuple[int, ...], shares: Shares, formulation: str
) -> SharingAnswer | None:
    """Return the allocation with its moves and value, or None when it requires a migration; its bound is infinite."""
    moves = transport(problem, counts, shares)
    if moves is None:
        return None
    complaint = complaint_about(problem, counts, moves)
    if complaint:
        raise Nonsense(complaint)
    value = value_of(problem, counts, shares)
    return SharingAnswer("feasible", counts, moves, value, math.inf, formulation)


def keep(problem: Problem) -> SharingAnswer:
    """Return the answer in which all jobs keep what they have: always possible, without a solver; no bound."""
    answer = carry_out(problem, *keep_shared(problem), "keep")
    if answer is None:
        raise Nonsense("keeping the present allocation requires a migration")
    return answer


def keep_answer(problem: Problem, note: str) -> SharingAnswer:
    """Return the answer in which all jobs keep what they have, with a bound."""
    answer = keep(problem)
    return replace(
        answer, bound=max(answer.objective, problem.tables.ceiling), note=note
    )


def solve_sharing(
    problem: Problem, formulation: str, ask: Ask, limits: Limits, tolerance: float
) -> SharingAnswer:
    """Solve a sharing problem by `items` (and `flow` where needed) or by `flow` alone.

    Parameters
    ----------
    problem
        With pairs.
    formulation
        `items` or `flow`.
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
    search = _Search(problem, formulation, ask, limits, tolerance)
    search.begin()
    while not _met(search.best.objective, search.bound, limits.gap):
        if search.time_is_up() or not search.step():
            break
    return search.answer()


class _Search:
    """The state of a search: the best answer and the smallest bound so far, and the next formulation to solve.

    Attributes
    ----------
    best, bound
        The best answer known, and an upper bound of any answer.
    formulation
        The formulation to solve next: `items`, then `flow` where its answer could not be carried out.
    """

    def __init__(
        self,
        problem: Problem,
        formulation: str,
        ask: Ask,
        limits: Limits,
        tolerance: float,
    ) -> None:
        self.problem = problem
        self.formulation = formulation
        self.ask = ask
        self.limits = limits
        self.tolerance = tolerance
        self.best = keep(problem)
        self.bound = math.inf
        self._deadline = (
            math.inf if limits.seconds is None else time.monotonic() + limits.seconds
        )
        self._stopped_by = "time limit"
        self._proven_by = formulation

    def begin(self) -> None:
        """Find a bound and a start without a MILP."""
        if self.formulation == "flow":
            self.bound = max(self.best.objective, self.problem.tables.ceiling)
            return
        self._proven_by = "column_generation"
        self._items = Items(self.problem)
        self._relaxation = relax(self._items)
        self.bound = max(self._relaxation.bound, self.best.objective)
        self._start = rounded(self._items, self._relaxation)
        self._take_choice(self._start)
        if not _met(self.best.objective, self.bound, self.limits.gap):
            self._search_gap()

    def time_is_up(self) -> bool:
        """Tell whether the time limit has passed."""
        return self._deadline <= time.monotonic()

    def step(self) -> bool:
        """Ask the solver once; return whether to ask again, by flow."""
        if self.formulation == "flow":
            self._solve_flow()
            return False
        self._proven_by = "items"
        return self._solve_items()

    def answer(self) -> SharingAnswer:
        """Return the result of the search."""
        best = self.best
        bound = max(self.bound, best.objective)
        kept = best.formulation == "keep"
        if _met(best.objective, bound, self.limits.gap):
            method = self._proven_by if kept else best.formulation
            return replace(best, status="optimal", bound=bound, formulation=method)
        note = f"{self._stopped_by}: {'kept' if kept else 'best known'}"
        return replace(best, status="feasible", bound=bound, note=note)

    def _search_gap(self) -> None:
        """Search the entries that may be part of a better choice than the best known."""
        loss, choice = search_gap(self._items, self._relaxation, self._max_loss())
        self.bound = max(
            self.best.objective, min(self.bound, self._relaxation.bound - loss)
        )
        if choice:
            self._start = self._items.shared_out([i for i, _ in choice])
            self._take_choice(self._start)

    def _take_choice(self, choice: Choice) -> None:
        """Take a choice of items if it can be carried out and is better than the best known."""
        result = self._carried_out(choice, "column_generation")
        if result is not None and _exceeds(result.objective, self.best.objective):
            self.best = result

    def _max_loss(self) -> float:
        """Return the most that a choice better than the best known loses at the dual prices."""
        bound, known = self._relaxation.bound, self.best.objective
        return bound - known + PROVEN_GAP * max(abs(bound), abs(known))

    def _solve_items(self) -> bool:
        """Ask the solver for items better than the best known; return whether to ask again, by flow."""
        model = self._items.model(
            self._relaxation.loss <= self._max_loss(), self._start
        )
        answer = self._asked(model.model, self._items.base)
        if answer is None:
            return False
        chosen = model.decode(answer.values(model.model))
        shared_out = self._items.shared_out([i for i, _ in chosen])
        result = self._carried_out(shared_out, "items")
        if result is not None:
            self._take(result, answer, _zero(model.model))
            return False
        self.formulation = "flow"
        proven = answer.status == "optimal"
        if proven and self.problem.alike:
            self._stopped_by = "the optimum of items takes a migration, and flow is too large for groups"
            return False
        return proven

    def _solve_flow(self) -> None:
        """Ask the solver for the optimum of the general formulation."""
        model = flow_model(self.problem)
        answer = self._asked(model.model)
        if answer is None:
            return
        counts, shares = model.decode(answer.values(model.model))
        result = carry_out(self.problem, counts, shares, "flow")
        if result is None:
            raise Nonsense("the answer of formulation flow requires a migration")
        self._take(result, answer, _zero(model.model))

    def _asked(self, model: LinearModel, constant: float = 0.0) -> LinearAnswer | None:
        """Return the solver's answer and take its bound; None when it has no solution."""
        seconds = (
            None
            if self._deadline == math.inf
            else max(self._deadline - time.monotonic(), 1e-3)
        )
        answer = self.ask(model, replace(self.limits, seconds=seconds)).above(constant)
        if answer.x is None:
            if answer.status != "nothing":
                raise Nonsense(
                    f"answered {answer.said!r}, but the allocation without any units is feasible"
                )
            return None
        self._take_bound(answer, _zero(model))
        return answer

    def _take_bound(self, answer: LinearAnswer, zero: float) -> None:
        """Lower the bound to what the solver proved; raise Nonsense for an optimum below a known value."""
        known, claimed = self.best.objective, answer.objective
        if answer.status == "optimal":
            slack = zero + (self.tolerance + self.limits.gap) * max(
                abs(claimed), abs(known)
            )
            if claimed < known - slack:
                raise Nonsense(
                    f"reports the optimum {claimed!r}, but {known!r} is known"
                )
            self.bound = min(self.bound, max(answer.bound, claimed, known))
        elif math.isfinite(answer.bound):
            self.bound = min(self.bound, max(answer.bound, known))

    def _take(self, result: SharingAnswer, answer: LinearAnswer, zero: float) -> None:
        """Take an answer that can be carried out, if it is better; raise Nonsense for a value below the claimed one."""
        # A value above the claimed one is no error: the solver did not fill the segments in order.
        slack = zero + self.tolerance * max(
            abs(result.objective), abs(self.best.objective)
        )
        if not result.objective >= answer.objective - slack:
            raise Nonsense(
                f"claims {answer.objective!r} for an answer of value {result.objective!r}"
            )
        if _exceeds(result.objective, self.best.objective):
            self.best = result
        if answer.status == "optimal":
            self.bound = (
                max(self.bound, self.best.objective)
                if self.limits.gap
                else self.best.objective
            )

    def _carried_out(self, choice: Choice, method: str) -> SharingAnswer | None:
        """Return the answer for a choice of items, None when it requires a migration."""
        counts, shares = self._items.named(choice)
        return carry_out(self.problem, counts, shares, method)


def _zero(model: LinearModel) -> float:
    """Return what a solver treats as zero in this model."""
    return SOLVER_ZERO * max((abs(worth) for worth in model.objective), default=0.0)


def _exceeds(value: float, other: float) -> bool:
    """Tell whether a value is better than another one by more than rounding."""
    return value - other > PROVEN_GAP * max(abs(value), abs(other))


def _met(value: float, bound: float, gap: float) -> bool:
    """Tell whether a value reaches a bound, up to a relative gap."""
    return bound - value <= max(gap, PROVEN_GAP) * max(abs(value), abs(bound))
