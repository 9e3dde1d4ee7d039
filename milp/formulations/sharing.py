"""Solve sharing problems: prices, what they leave open, then a MILP of items, then flow (docs/model.md).

Among several optima, keeping everything comes first, then the allocation that the prices lead to, if it is known to be
optimal: then no solver influences the answer. Otherwise a solver decides which jobs are active and who shares with
whom, which may differ between solvers in case of ties; the exact DP then distributes the units of items among them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bft.milp.classes import classes_of
from bft.milp.formulations import column_generation, flow, gap_search, items
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel, Nonsense
from bft.milp.formulations.transfers import complaint_about, keep_shared, transport, value_of
from bft.milp.problem import Problem, Status, Transfer
from bft.milp.values import table_of

Ask = Callable[[LinearModel, Limits], LinearAnswer]
Shares = Mapping[tuple[int, int], int]

# A solver treats this part of its largest coefficient as zero.
ZERO = 1e-9
# A bound this close to a value, relatively, counts as reached.
MET = 1e-9


@dataclass(frozen=True, slots=True)
class SharingAnswer:
    """Counts and moves, their value, an upper bound, and the formulation that produced them."""

    status: Status
    counts: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    objective: float
    bound: float
    formulation: str
    note: str = ""


def carry_out(problem: Problem, counts: tuple[int, ...], shares: Shares, formulation: str) -> SharingAnswer | None:
    """The allocation with its moves and value, or None when it requires a migration; the bound is not known yet."""
    moves = transport(problem, counts, shares)
    if moves is None:
        return None
    complaint = complaint_about(problem, counts, moves)
    if complaint:
        raise Nonsense(complaint)
    value = value_of(problem, counts, shares)
    return SharingAnswer("feasible", counts, moves, value, math.inf, formulation)


def keep(problem: Problem) -> SharingAnswer:
    """All jobs keep what they have: always possible, and needs no solver; the bound is still open."""
    answer = carry_out(problem, *keep_shared(problem), "keep")
    if answer is None:
        raise Nonsense("keeping the present allocation requires a migration")
    return answer


def highest(problem: Problem) -> float:
    """An upper bound: every job at its own best."""
    classes = classes_of(problem)
    best = [float(table_of(problem, j).max()) for j in classes.first]
    for pair in problem.pairs:  # sharing makes an objective smaller in size, so a negative one larger
        for j in (pair.a, pair.b):
            best[classes.of[j]] = max(best[classes.of[j]], float(table_of(problem, j, pair).max()))
    return math.fsum(best[c] for c in classes.of.tolist())


def keep_answer(problem: Problem, note: str) -> SharingAnswer:
    """Everybody keeps what they have, with a bound."""
    answer = keep(problem)
    return replace(answer, bound=max(answer.objective, highest(problem)), note=note)


def solve_sharing(problem: Problem, formulation: str, ask: Ask, limits: Limits, tolerance: float) -> SharingAnswer:
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
    """The best answer and the smallest bound so far, and the next question.

    Attributes
    ----------
    best, bound
        The best answer known, and an upper bound of any answer.
    formulation
        What to ask next: `items`, then `flow` where its answer could not be carried out.
    """

    def __init__(self, problem: Problem, formulation: str, ask: Ask, limits: Limits, tolerance: float) -> None:
        self.problem, self.formulation, self.ask, self.limits = problem, formulation, ask, limits
        self.tolerance = tolerance
        self.best = keep(problem)
        self.bound = math.inf
        self._deadline = None if limits.seconds is None else time.monotonic() + limits.seconds
        self.stopped, self.shown_by = "time limit", formulation

    def begin(self) -> None:
        """Bound and start without a MILP: by prices of units and jobs."""
        if self.formulation == "flow":
            self.bound = max(self.best.objective, highest(self.problem))
            return
        self.shown_by = "column_generation"
        self._items = items.Items(self.problem)
        self._prices = column_generation.price(self._items)
        self.bound = max(self._prices.bound, self.best.objective)
        self._chosen = column_generation.rounded(self._items, self._prices)
        self._try(self._chosen)
        if not _met(self.best.objective, self.bound, self.limits.gap):
            self._search_open()

    def time_is_up(self) -> bool:
        """Whether the search is over."""
        return self._deadline is not None and self._deadline <= time.monotonic()

    def step(self) -> bool:
        """Ask the solver once. Returns whether to ask again, by flow."""
        if self.formulation == "flow":
            self._ask_flow()
            return False
        self.shown_by = "items"
        return self._ask_items()

    def answer(self) -> SharingAnswer:
        """The result of the search."""
        best, bound = self.best, max(self.bound, self.best.objective)
        if _met(best.objective, bound, self.limits.gap):
            by = self.shown_by if best.formulation == "keep" else best.formulation
            return replace(best, status="optimal", bound=bound, formulation=by)
        note = f"{self.stopped}: {'kept' if best.formulation == 'keep' else 'best known'}"
        return replace(best, status="feasible", bound=bound, note=note)

    def _search_open(self) -> None:
        """Look at what the prices leave open."""
        lost, choice = gap_search.search(self._items, self._prices, self._open())
        self.bound = max(self.best.objective, min(self.bound, self._prices.bound - lost))
        if choice:
            self._chosen = self._items.shared_out([i for i, _ in choice])
            self._try(self._chosen)

    def _try(self, choice: items.Choice) -> None:
        result = self._carried_out(choice, "column_generation")
        if result is not None and _exceeds(result.objective, self.best.objective):
            self.best = result

    def _open(self) -> float:
        """What may be lost at the prices by a choice that is better than the best known."""
        bound, known = self._prices.bound, self.best.objective
        return bound - known + MET * max(abs(bound), abs(known))

    def _ask_items(self) -> bool:
        """Ask the solver for what may be better than the best known; whether to ask again, by flow."""
        model = self._items.model(self._prices.loss <= self._open(), self._chosen)
        answer = self._asked(model.model, self._items.base)
        if answer is None:
            return False
        chosen = model.decode(answer.values(model.model))
        result = self._carried_out(self._items.shared_out([i for i, _ in chosen]), "items")
        if result is not None:
            self._take(result, answer, _zero(model.model))
            return False
        self.formulation = "flow"
        if answer.status == "optimal" and self.problem.alike:
            self.stopped = "the optimum of items takes a migration, and flow is too large for groups"
            return False
        return answer.status == "optimal"

    def _ask_flow(self) -> None:
        """Ask the solver for the general answer."""
        model = flow.build(self.problem)
        answer = self._asked(model.model)
        if answer is None:
            return
        result = carry_out(self.problem, *model.decode(answer.values(model.model)), "flow")
        if result is None:
            raise Nonsense("the answer of formulation flow requires a migration")
        self._take(result, answer, _zero(model.model))

    def _asked(self, model: LinearModel, constant: float = 0.0) -> LinearAnswer | None:
        """The solver's answer, with its bound taken; None when it has no solution."""
        left = None if self._deadline is None else max(self._deadline - time.monotonic(), 1e-3)
        answer = self.ask(model, replace(self.limits, seconds=left)).above(constant)
        if answer.x is None:
            if answer.status != "nothing":
                raise Nonsense(f"answered {answer.said!r}, but the allocation without any units is feasible")
            return None
        self._take_bound(answer, _zero(model))
        return answer

    def _take_bound(self, answer: LinearAnswer, zero: float) -> None:
        """Lower the bound to what the solver proved. It may not report an optimum below a known value."""
        known, claimed = self.best.objective, answer.objective
        if answer.status == "optimal":
            if claimed < known - zero - (self.tolerance + self.limits.gap) * max(abs(claimed), abs(known)):
                raise Nonsense(f"reports the optimum {claimed!r}, but {known!r} is known")
            self.bound = min(self.bound, max(answer.bound, claimed, known))
        elif math.isfinite(answer.bound):
            self.bound = min(self.bound, max(answer.bound, known))

    def _take(self, result: SharingAnswer, answer: LinearAnswer, zero: float) -> None:
        """Take an answer that can be carried out, if it is better. Its value may not be below the claimed one."""
        # A value above the claimed one is no error: the solver did not fill the segments in order.
        slack = zero + self.tolerance * max(abs(result.objective), abs(self.best.objective))
        if not result.objective >= answer.objective - slack:
            raise Nonsense(f"claims {answer.objective!r} for an answer of value {result.objective!r}")
        if _exceeds(result.objective, self.best.objective):
            self.best = result
        if answer.status == "optimal":
            self.bound = max(self.bound, self.best.objective) if self.limits.gap else self.best.objective

    def _carried_out(self, choice: items.Choice, by: str) -> SharingAnswer | None:
        return carry_out(self.problem, *self._items.named(choice), by)


def _zero(model: LinearModel) -> float:
    """What a solver treats as zero in this model."""
    return ZERO * max((abs(worth) for worth in model.objective), default=0.0)


def _exceeds(value: float, other: float) -> bool:
    """Whether a value is better than another one by more than rounding."""
    return value - other > MET * max(abs(value), abs(other))


def _met(value: float, bound: float, gap: float) -> bool:
    return bound - value <= max(gap, MET) * max(abs(value), abs(bound))
