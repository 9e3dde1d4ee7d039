"""From a problem to a checked answer: pick a backend, ask it, check what it returns, and fall back if it is invalid."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from functools import cache

from bft.milp.backends.process import SolverFailure, SolverProcess, shared_process
from bft.milp.backends.registry import able, describe, listed
from bft.milp.checking import TOLERANCE, Known, checked, contradiction
from bft.milp.exact.dp import Optimum, optimum
from bft.milp.formulations import modes, node
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel, Nonsense
from bft.milp.formulations.sharing import SharingAnswer, keep_answer, solve_sharing
from bft.milp.formulations.transfers import shares_of, value_of
from bft.milp.kinds import KindsProblem
from bft.milp.problem import TIES, Problem, ProblemError, Solution, Status, Ties
from bft.milp.solve_kinds import AskedKinds, solve_kinds
from bft.milp.values import complaint, keep, largest_value, objective, tamed, total_value, value_tables

logger = logging.getLogger(__name__)

FORMULATIONS = ("auto", "modes", "node", "items", "flow")
# Formulations in which two jobs may share units.
SHARING = ("items", "flow")


def solve(
    problem: Problem | KindsProblem,
    *,
    backend: str = "auto",
    formulation: str = "auto",
    strict_reference: bool = False,
    time_limit: float | None = None,
    gap: float = 0.0,
    threads: int = 1,
    ties: Ties = "canonical",
    verify: bool = False,
    process: SolverProcess | None = None,
) -> Solution:
    """Solve one allocation problem.

    Parameters
    ----------
    problem
        The problem to solve. With several kinds of units (`KindsProblem`) the formulation is `modes`.
    backend
        One of `backend_names()`: `cbc`, `highs`, `scipy`, `gurobi`, `exact` (modes only), or another package's; or
        `auto`: exact where it applies, else cbc.
    formulation
        `modes` or `node`; with sharing `items` or `flow`; `auto` takes modes or items.
    strict_reference
        With `node`: keep the published model's big-M, which is too small. The answer may then be infeasible, or worse
        than keeping the present allocation.
    time_limit
        Seconds, None for no limit. At the limit the best known answer is used if it is better than keeping everything.
    gap
        Relative gap at which a solver may stop.
    threads
        Threads a solver may use.
    ties
        Which of several optima: `canonical`, the one described in `exact`, whatever the backend; or `solver`, the one
        that the solver returns. The exact dynamic programme (DP) computes the canonical one and checks the solver's
        answer against it; it also replaces what a solver has at its time limit. With a gap above 0, strict_reference
        or sharing the solver's own optimum is returned (sharing: see `formulations.sharing`).
    verify
        Check the answer against the exact DP even if the solver's own is returned; without sharing only.
    process
        Solver process to use, for tests and for callers that manage their own processes.

    Returns
    -------
    Solution
        Always feasible, and never worse than keeping the present allocation (except with `strict_reference`).

    Raises
    ------
    ProblemError
        For a backend or formulation that is unknown, not installed, or unsuitable for the problem, or an invalid
        limit. For `exact` also where a problem with several kinds of units has too many combinations.

    Examples
    --------
    >>> from bft.milp import Job
    >>> a, b = (Job(name, 1, 4, ns=[0, 1, 4], os=[0, 10, 30], tcup=20.0, tcdw=10.0) for name in "ab")
    >>> solution = solve(Problem(units=5, tfwd=120.0, jobs=(a, b), current=(1, 0)), backend="exact")
    >>> solution.status, solution.counts
    ('optimal', (1, 4))
    """
    if formulation not in FORMULATIONS:
        raise ProblemError(f"unknown formulation {formulation!r}: choose one of {', '.join(FORMULATIONS)}")
    if ties not in TIES:
        raise ProblemError(f"unknown ties {ties!r}: choose one of {', '.join(TIES)}")
    if time_limit is not None and not time_limit > 0:
        raise ProblemError(f"the time limit must be > 0 seconds, not {time_limit!r}")
    if not 0 <= gap < 1:
        raise ProblemError(f"the gap must lie in [0, 1), not {gap!r}")
    if threads < 1:
        raise ProblemError(f"threads must be >= 1, not {threads!r}")
    if isinstance(problem, KindsProblem):
        if formulation not in ("auto", "modes") or strict_reference:
            raise ProblemError("several kinds of units: expected formulation 'modes', without strict_reference")
        _require("exact" if backend == "auto" else backend, "modes")
        asked_kinds = AskedKinds(problem, backend, Limits(time_limit, gap, threads), process)
        return solve_kinds(asked_kinds, canonical=ties == "canonical", verify=verify)
    if formulation == "auto":
        formulation = "node" if strict_reference else "items" if problem.pairs else "modes"
    if strict_reference and formulation != "node":
        raise ProblemError(f"strict_reference belongs to formulation 'node', not {formulation!r}")
    if problem.pairs and formulation not in SHARING:
        raise ProblemError(f"formulation {formulation!r} knows no sharing; with xi choose {' or '.join(SHARING)}")
    if backend == "auto":
        backend = "exact" if formulation == "modes" else "cbc"
    _require(backend, formulation)
    asked = _Asked(
        problem, tamed(problem), backend, formulation, strict_reference, Limits(time_limit, gap, threads), process
    )
    solution = _solve(asked, canonical=ties == "canonical", verify=verify)
    return replace(solution, seconds=time.perf_counter() - asked.started)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The checked arguments of `solve`; `posed` is the problem as solvers get it."""

    problem: Problem
    posed: Problem
    backend: str
    formulation: str
    strict: bool
    limits: Limits
    process: SolverProcess | None
    started: float = field(default_factory=time.perf_counter)

    def left(self, part: float = 1.0) -> float | None:
        """Seconds left of this part of the time limit, None for no limit."""
        if self.limits.seconds is None:
            return None
        return max(1e-3, part * self.limits.seconds - (time.perf_counter() - self.started))


@cache
def _require(backend: str, formulation: str) -> None:
    """Raise once for a backend that cannot solve the problem, rather than fall back at every decision."""
    if formulation not in listed(backend).formulations:
        what = f"backend {backend!r} cannot solve formulation {formulation!r}"
        raise ProblemError(f"{what}: choose one of {', '.join(able(formulation))}")
    state = describe(backend)
    if not state.available:
        raise ProblemError(f"backend {backend!r} is not available ({state.licence}): {state.how_to_get}")


def _solve(asked: _Asked, *, canonical: bool, verify: bool) -> Solution:
    problem, sharing = asked.problem, asked.formulation in SHARING
    if asked.backend == "exact":
        return _of(optimum(problem, asked.left()), "exact", "modes")
    canonical = canonical and not (problem.pairs or asked.limits.gap or asked.strict)
    # The exact DP goes first, as it takes milliseconds; if it takes longer, the solver has the other half of the time.
    best = optimum(problem, asked.left(0.5)) if canonical or (verify and not problem.pairs) else None
    try:
        solution = _shared(asked) if sharing else _alone(asked)
    except (SolverFailure, Nonsense) as failure:
        note = f"{asked.backend}: {failure}"
        logger.info("fallback: %s", note)
        if sharing:
            return replace(_as_solution(keep_answer(problem, f"{note}; kept"), asked), status="fallback")
        return _of(best or optimum(problem, asked.left()), "exact", "modes", fallback=note)
    if best is None:
        return solution
    conflict = contradiction(solution, best, asked.limits.gap)
    if asked.strict:  # the published model may be worse than keeping
        return replace(solution, verified=not conflict)
    if conflict:
        logger.info("fallback: %s", conflict)
        better = _of(best, "exact", "modes") if best.objective >= solution.objective else solution
        return replace(better, status="fallback", note=conflict, verified=False)
    if not best.proven:
        if solution.status == "optimal" or solution.objective > best.objective:
            note = solution.note or "the exact DP was not done in time: the solver's own optimum"
            return replace(solution, bound=max(solution.objective, min(solution.bound, best.bound)), note=note)
        return _of(best, asked.backend, asked.formulation)
    return _of(best, asked.backend, asked.formulation) if canonical else replace(solution, verified=True)


def _of(best: Optimum, backend: str, formulation: str, fallback: str = "") -> Solution:
    """The answer of the exact DP, returned under the name of a backend."""
    status: Status = "fallback" if fallback else "optimal" if best.proven else "feasible"
    note = fallback if best.proven or fallback else "time limit: best known"
    verified = True if best.proven and not fallback else None
    return Solution(status, best.counts, best.objective, best.bound, backend, formulation, note=note, verified=verified)


def _shared(asked: _Asked) -> Solution:
    problem, posed, process = asked.problem, asked.posed, asked.process or shared_process()

    def ask(model: LinearModel, within: Limits) -> LinearAnswer:
        return process.solve(model, asked.backend, within)

    answer = solve_sharing(posed, asked.formulation, ask, asked.limits, TOLERANCE)
    if posed is not problem:
        value = value_of(problem, answer.counts, shares_of(answer.transfers))
        answer = replace(answer, objective=value, bound=answer.bound + value - answer.objective)
    return _as_solution(answer, asked)


def _as_solution(answer: SharingAnswer, asked: _Asked) -> Solution:
    return Solution(
        answer.status,
        answer.counts,
        answer.objective,
        answer.bound,
        asked.backend,
        answer.formulation,
        note=answer.note,
        transfers=answer.transfers,
    )


def _alone(asked: _Asked) -> Solution:
    """The solver's own answer, checked; raise Nonsense when it contradicts itself."""
    problem, posed, limits = asked.problem, asked.posed, replace(asked.limits, seconds=asked.left())
    formulated = (
        modes.build(posed) if asked.formulation == "modes" else node.build(posed, strict_reference=asked.strict)
    )
    process = asked.process or shared_process()
    answer = process.solve(formulated.model, asked.backend, limits).above(formulated.constant)
    tables, kept = value_tables(posed), keep(posed)
    highest = {id(table): float(table.max()) for table in tables}
    known = Known(
        kept,
        sum(highest[id(table)] for table in tables),
        largest_value(tables),
        lambda counts: total_value(tables, counts),
        lambda counts: complaint(posed, tables, counts),
    )
    found = checked(answer, formulated, known, limits, strict=asked.strict)
    value, bound = known.value(found.counts), found.bound
    if posed is not problem:  # a job that must shrink pays in full, which shifts every answer by the same amount
        shift = objective(problem, kept) - known.value(kept)
        value, bound = objective(problem, found.counts), bound + shift
        if found.status != "infeasible":
            bound = max(bound, value)  # rounding of the shift
    return Solution(found.status, found.counts, value, bound, asked.backend, asked.formulation, note=found.note)
