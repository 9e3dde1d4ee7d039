"""Sharing problems solved: matching, then items, refined where they entangle, then flow (DESIGN §6.3).

Of several optima that of keeping is taken, else that of the matching, as far as they are known to be optimal: no solver
has a say in them. Else a solver says who is active and who shares with whom, which may differ by solver where several
ways are equally good; among those so chosen the units are shared out by the exact programme.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bft.milp.formulations import flow, items, matching
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel, Nonsense
from bft.milp.formulations.transfers import complaint_about, keep_shared, shares_of, transport, value_of
from bft.milp.problem import Problem, Status, Transfer
from bft.milp.values import table_of, value_tables

Ask = Callable[[LinearModel, Limits], LinearAnswer]
Shares = Mapping[tuple[int, int], int]

# A solver's zero is one to this part of its largest coefficient.
ZERO = 1e-9
# A bound this close to a value, relative, is the value.
MET = 1e-9


@dataclass(frozen=True, slots=True)
class SharingAnswer:
    """Counts and moves, what they are worth, what nothing can exceed, and what showed it."""

    status: Status
    counts: tuple[int, ...]
    transfers: tuple[Transfer, ...]
    objective: float
    bound: float
    formulation: str
    note: str = ""


def carry_out(problem: Problem, counts: tuple[int, ...], shares: Shares, formulation: str) -> SharingAnswer | None:
    """The allocation with its moves and value, or None when it takes a migration; its bound is still open."""
    moves = transport(problem, counts, shares)
    if moves is None:
        return None
    wrong = complaint_about(problem, counts, moves)
    if wrong:
        raise Nonsense(wrong)
    value = value_of(problem, counts, shares)
    return SharingAnswer("feasible", counts, moves, value, math.inf, formulation)


def keep_answer(problem: Problem, note: str) -> SharingAnswer:
    """Everybody keeps what they have: always possible, and needs no solver."""
    answer = carry_out(problem, *keep_shared(problem), "keep")
    if answer is None:
        raise Nonsense("keeping takes a migration")
    best = [float(table.max()) for table in value_tables(problem)]
    for pair in problem.pairs:  # who shares has a smaller objective, and so a larger one below 0
        for j in (pair.a, pair.b):
            best[j] = max(best[j], float(table_of(problem, j, pair).max()))
    return replace(answer, bound=max(answer.objective, sum(best)), note=note)


def solve_sharing(problem: Problem, formulation: str, ask: Ask, limits: Limits, tolerance: float) -> SharingAnswer:
    """Solve a sharing problem by `items` (with refinement, and `flow` where needed) or by `flow` alone.

    Parameters
    ----------
    problem
        With pairs.
    formulation
        `items` or `flow`.
    ask
        Solves a linear model within limits; may raise.
    limits
        For the whole of it, not for each model.
    tolerance
        Relative difference of claimed and recomputed objective that counts as an error.

    Raises
    ------
    Nonsense
        When an answer of the solver contradicts itself.
    """
    deadline = None if limits.seconds is None else time.monotonic() + limits.seconds
    best = keep_answer(problem, "")
    bound = best.bound
    tables = items.pair_tables(problem) if formulation == "items" else ()
    if formulation == "items":
        start = matching.start(problem, tables)
        if start is not None:
            bound = min(bound, max(start.bound, best.objective))
            found = carry_out(problem, start.counts, start.shares, "matching")
            if found is not None and _exceeds(found.objective, best.objective):
                best = found
    refined: frozenset[tuple[int, int]] = frozenset()
    while not _met(best.objective, bound, limits.gap):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        model: items.SharingModel | flow.FlowModel
        if formulation == "items":
            model = items.build(problem, tables, refined)
            if not refined:
                model.begin_from(best.counts, shares_of(best.transfers))
        else:
            model = flow.build(problem)
        answer = ask(model.model, replace(limits, seconds=left))
        if answer.x is None:
            if answer.status != "nothing":
                raise Nonsense(f"answered {answer.said!r}, but giving nobody anything is feasible")
            break
        counts, shares = model.decode(answer.values(model.model))
        claimed = answer.objective
        zero = ZERO * max((abs(worth) for worth in model.model.objective), default=0.0)
        if answer.status == "optimal":
            if claimed < best.objective - zero - (tolerance + limits.gap) * max(abs(claimed), abs(best.objective)):
                raise Nonsense(f"calls {claimed!r} optimal, but {best.objective!r} is known")
            bound = min(bound, max(answer.bound, claimed, best.objective))
        elif math.isfinite(answer.bound):
            bound = min(bound, max(answer.bound, best.objective))
        found = carry_out(problem, counts, shares, formulation)
        if found is not None:
            # An answer that is worth more than claimed is none the worse: its segments were not filled in order.
            slack = zero + tolerance * max(abs(found.objective), abs(best.objective))
            if not found.objective >= claimed - slack:
                raise Nonsense(f"claims {claimed!r} for an answer that is worth {found.objective!r}")
            if _exceeds(found.objective, best.objective):
                best = _settled(problem, tables, found) if answer.status == "optimal" and not limits.gap else found
            if answer.status == "optimal":
                bound = max(bound, best.objective) if limits.gap else best.objective
            break
        if formulation == "flow":
            raise Nonsense("flow's answer takes a migration")
        entangled = items.entangled(problem, counts, shares) - refined
        if answer.status != "optimal":
            break
        if entangled:
            refined |= entangled
        else:
            formulation = "flow"
    bound = max(bound, best.objective)
    if _met(best.objective, bound, limits.gap):
        by = "items" if best.formulation == "keep" else best.formulation
        return replace(best, status="optimal", bound=bound, formulation=by)
    note = "time limit: kept" if best.formulation == "keep" else "time limit: best known"
    return replace(best, status="feasible", bound=bound, note=note)


def _settled(problem: Problem, tables: Sequence[items.PairTable], found: SharingAnswer) -> SharingAnswer:
    """An optimum with the same jobs active, alone or in the same pairs, but the units shared out canonically."""
    again = matching.shared_out(problem, tables, found.counts, shares_of(found.transfers)) if tables else None
    settled = None if again is None else carry_out(problem, *again, found.formulation)
    return found if settled is None or _exceeds(found.objective, settled.objective) else settled


def _exceeds(value: float, other: float) -> bool:
    """Whether a value is better than another by more than rounding."""
    return value - other > MET * max(abs(value), abs(other))


def _met(value: float, bound: float, gap: float) -> bool:
    return bound - value <= max(gap, MET) * max(abs(value), abs(bound))
