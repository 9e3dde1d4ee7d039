"""From a problem to a checked answer: pick a backend, ask it, check what it returns, and fall back if it is invalid.

In a replay with the defaults the exact programme decides, and CBC is asked for a second opinion: the answer is the
canonical optimum of the exact programme, whatever CBC found, and a step where the two contradict each other is marked.
For CBC has returned false optima of such models, and a mistake of ours would show as well: two methods that share
nothing but the definition of a job's value must agree. Only with sharing, a gap, or ties by the solver does its own
answer count. The backend `exact` decides alike and asks nobody.
"""

import logging
import math
import time
from dataclasses import dataclass, replace
from functools import cache

from bft.milp.backends.process import SolverFailure, SolverProcess, shared_process
from bft.milp.backends.registry import able, describe, listed
from bft.milp.exact.dp import Optimum, optimum
from bft.milp.exact.kinds import kinds_optimum
from bft.milp.formulations import modes, node
from bft.milp.formulations.linear import (
    Formulated,
    Limits,
    LinearAnswer,
    LinearModel,
    Nonsense,
)
from bft.milp.formulations.sharing import keep_answer, solve_sharing
from bft.milp.formulations.transfers import shares_of, value_of
from bft.milp.jobs import ProblemError
from bft.milp.problem import TIES, Problem, Solution, Status, Ties
from bft.milp.tables import complaint, keep, rules_all_out, tables_of, tamed
from bft.milp.tolerances import SOLVER_ZERO, TOLERANCE

logger = logging.getLogger(__name__)

FORMULATIONS = ("auto", "modes", "node", "items")
# The formulation in which two jobs may share units.
SHARING = "items"


def checked(
    answer: LinearAnswer,
    formulated: Formulated,
    problem: Problem,
    gap: float,
    *,
    strict: bool = False,
) -> tuple[Status, tuple[int, ...], float, str]:
    """Check a solver's answer; raise Nonsense when it contradicts itself. `strict`: of the model as published.

    Returns
    -------
    status, choices, bound, note
        As in `Solution`; the choices (`Problem`) of the jobs.
    """
    tables, kept = tables_of(problem), keep(problem)
    ceiling, kept_value = tables.ceiling, tables.value(kept)
    if answer.x is None:
        if answer.status == "nothing":
            return ("feasible", kept, ceiling, "time limit, no answer: kept")
        if answer.status == "infeasible" and strict:
            return ("infeasible", (0,) * len(kept), -math.inf, "as published")
        raise Nonsense(
            f"answered {answer.said!r}, but the allocation without any units is feasible"
        )
    counts = formulated.decode(answer.values(formulated.model))
    invalid = complaint(problem, counts)
    if invalid:
        raise Nonsense(f"invalid answer: {invalid}")
    value = tables.value(counts)
    slack = TOLERANCE * max(abs(value), abs(kept_value)) + SOLVER_ZERO * tables.largest
    # A value above the claimed one is no error: the solver did not fill the segments in the best order.
    if not value >= answer.objective - slack:
        raise Nonsense(f"claims {answer.objective!r} for an answer of value {value!r}")
    if answer.status == "optimal":
        if gap and value < kept_value:
            return (
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
            return (
                "feasible",
                counts,
                ceiling,
                f"value above the reported bound {answer.bound!r}",
            )
        return "optimal", counts, max(value, answer.bound), ""
    bound = min(ceiling, answer.bound) if math.isfinite(answer.bound) else ceiling
    if value >= kept_value:
        return ("feasible", counts, max(value, bound), "time limit: incumbent")
    return (
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


def solve(
    problem: Problem,
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
        The problem to solve. With kinds of units the formulation is `modes`.
    backend
        One of `backend_names()`: `cbc`, `highs`, `gurobi`, `exact` (modes only), or another package's; or
        `auto`: exact where it applies, else cbc. With kinds of units or limits, `exact` leaves what is too much for it
        to cbc (highs where cbc is not installed), and the note says so.
    formulation
        `modes` or `node`; with sharing `items`; `auto` takes modes or items.
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
        Which of several optima: `canonical`, the one described in `exact.dp`, whatever the backend; or `solver`, the
        one that the solver returns. The exact dynamic programme (DP) computes the canonical one and checks the
        solver's answer against it; it also replaces what a solver has at its time limit. With a gap above 0,
        strict_reference or sharing the solver's own optimum is returned (sharing: see `formulations.sharing`).
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
        limit.

    Examples
    --------
    >>> from bft.milp import Job
    >>> a, b = (Job(name, 1, 4, ns=[0, 1, 4], os=[0, 10, 30], tcup=20.0, tcdw=10.0) for name in "ab")
    >>> solution = solve(Problem(units=5, tfwd=120.0, jobs=(a, b), current=(1, 0)), backend="exact")
    >>> solution.status, solution.counts
    ('optimal', (1, 4))
    """
    started = time.perf_counter()
    if formulation not in FORMULATIONS:
        raise ProblemError(
            f"unknown formulation {formulation!r}: choose one of {', '.join(FORMULATIONS)}"
        )
    if ties not in TIES:
        raise ProblemError(f"unknown ties {ties!r}: choose one of {', '.join(TIES)}")
    if time_limit is not None and not time_limit > 0:
        raise ProblemError(f"the time limit must be > 0 seconds, not {time_limit!r}")
    if not 0 <= gap < 1:
        raise ProblemError(f"the gap must lie in [0, 1), not {gap!r}")
    if threads < 1:
        raise ProblemError(f"threads must be >= 1, not {threads!r}")
    formulation = _formulation(problem, formulation, strict_reference=strict_reference)
    if backend == "auto":
        backend = "exact" if formulation == "modes" else "cbc"
    _require(backend, formulation)
    asked = _Asked(
        problem,
        backend,
        formulation,
        strict_reference,
        time_limit,
        gap,
        threads,
        process,
        started,
    )
    solution = _solve(asked, canonical=ties == "canonical", verify=verify)
    if not solution.note and rules_all_out(problem):
        solution.note = "value: -inf for all units that a job could get"
    solution.seconds = time.perf_counter() - started
    return solution


def _formulation(problem: Problem, formulation: str, *, strict_reference: bool) -> str:
    """The formulation that is meant, for which the problem is suitable."""
    if problem.kinds is not None:
        if formulation not in ("auto", "modes") or strict_reference:
            raise ProblemError(
                "several kinds of units: expected formulation 'modes', without strict_reference"
            )
        return "modes"
    if formulation == "auto":
        formulation = (
            "node" if strict_reference else "items" if problem.pairs else "modes"
        )
    if strict_reference and formulation != "node":
        raise ProblemError(
            f"strict_reference belongs to formulation 'node', not {formulation!r}"
        )
    if problem.pairs and formulation != SHARING:
        raise ProblemError(
            f"formulation {formulation!r} knows no sharing; with xi choose {SHARING}"
        )
    return formulation


@dataclass(slots=True)
class _Asked:
    """The checked arguments of `solve`, when it was called, and the value of the best allocation that is known."""

    problem: Problem
    backend: str
    formulation: str
    strict: bool
    seconds: float | None
    gap: float
    threads: int
    process: SolverProcess | None
    started: float
    known: float | None = None

    @property
    def limits(self) -> Limits:
        """The limits of a solver: what is left of the time."""
        return Limits(self.left(), self.gap, self.threads)

    def left(self, part: float = 1.0) -> float | None:
        """Seconds left of this part of the time limit, None for no limit."""
        if self.seconds is None:
            return None
        return max(1e-3, part * self.seconds - (time.perf_counter() - self.started))

    def exact(self, part: float = 1.0) -> Optimum:
        """The answer of the exact DP within this part of the time limit."""
        find = optimum if self.problem.plain else kinds_optimum
        return find(self.problem, self.left(part))

    def ask(self, model: LinearModel, within: Limits | None = None) -> LinearAnswer:
        """The solver's answer, by default within what is left of the time limit."""
        process = self.process or shared_process()
        return process.solve(model, self.backend, within or self.limits)

    def own(self) -> Solution:
        """The solver's own answer, checked; raise Nonsense when it contradicts itself."""
        return (_shared if self.formulation == SHARING else _alone)(self.problem, self)


@cache
def _require(backend: str, formulation: str) -> None:
    """Raise once for a backend that cannot solve the problem, rather than fall back at every decision."""
    if formulation not in listed(backend).formulations:
        what = f"backend {backend!r} cannot solve formulation {formulation!r}"
        raise ProblemError(f"{what}: choose one of {', '.join(able(formulation))}")
    state = describe(backend)
    if not state.available:
        raise ProblemError(
            f"backend {backend!r} is not available ({state.licence}): {state.how_to_get}"
        )


def _solve(asked: _Asked, *, canonical: bool, verify: bool) -> Solution:
    problem, best = asked.problem, None
    pairs = bool(problem.pairs)
    if asked.backend == "exact":
        best = asked.exact(1.0 if problem.plain else 0.5)
        if best.proven or problem.plain:
            return _of(best, "exact", "modes")
        # With kinds of units or limits a solver may be faster, and has the rest of the time.
        asked.backend = "cbc" if describe("cbc").available else "highs"
    canonical = canonical and not (pairs or asked.gap or asked.strict)
    compared = best is not None or canonical or (verify and not pairs)
    # The exact DP goes first, as it takes milliseconds; if it takes longer, the solver has the other half of the time.
    if best is None and (compared or (problem.plain and not pairs)):
        best = asked.exact(0.5)
    asked.known = None if best is None else best.objective
    try:
        solution = asked.own()
    except (SolverFailure, Nonsense) as failure:
        note = f"{asked.backend}: {failure}"
        logger.info("fallback: %s", note)
        if asked.formulation == SHARING:
            kept = keep_answer(problem, f"{note}; kept")
            return replace(kept, status="fallback", backend=asked.backend)
        return _of(best or asked.exact(), "exact", "modes", fallback=note)
    if best is None or not compared:
        return solution
    conflict = contradiction(solution, best, asked.gap)
    if asked.strict:  # the published model may be worse than keeping
        return replace(solution, verified=not conflict)
    if conflict:
        logger.info("fallback: %s", conflict)
        better = (
            _of(best, "exact", "modes")
            if best.objective >= solution.objective
            else solution
        )
        return replace(better, status="fallback", note=conflict, verified=False)
    if not best.proven:
        if solution.status == "optimal" or solution.objective > best.objective:
            note = (
                solution.note
                or f"exact DP: {best.limit}; {asked.backend}'s own optimum"
            )
            return replace(
                solution,
                bound=max(solution.objective, min(solution.bound, best.bound)),
                note=note,
            )
        return _of(best, asked.backend, asked.formulation)
    return (
        _of(best, asked.backend, asked.formulation)
        if canonical
        else replace(solution, verified=True)
    )


def _of(best: Optimum, backend: str, formulation: str, fallback: str = "") -> Solution:
    """The answer of the exact DP, returned under the name of a backend."""
    status: Status = (
        "fallback" if fallback else "optimal" if best.proven else "feasible"
    )
    note = fallback if best.proven or fallback else f"{best.limit}: best known"
    verified = True if best.proven and not fallback else None
    return Solution(
        status,
        best.counts,
        best.objective,
        best.bound,
        backend,
        formulation,
        note=note,
        verified=verified,
        kinds=best.kinds,
    )


def _shared(problem: Problem, asked: _Asked) -> Solution:
    posed = tamed(problem)
    answer = solve_sharing(posed, asked.ask, asked.limits, TOLERANCE)
    answer.backend = asked.backend
    if posed is not problem:
        value = value_of(problem, answer.counts, shares_of(answer.transfers))
        answer = replace(answer, objective=value, bound=max(answer.bound, value))
    return answer


def _alone(problem: Problem, asked: _Asked) -> Solution:
    posed = tamed(problem)
    formulated = (
        modes.build(posed, asked.known)
        if asked.formulation == "modes"
        else node.build(posed, strict_reference=asked.strict)
    )
    answer = asked.ask(formulated.model).above(formulated.constant)
    status, choices, bound, note = checked(
        answer, formulated, posed, asked.gap, strict=asked.strict
    )
    value = tables_of(problem).value(choices)
    if status != "infeasible":
        bound = max(bound, value)
    counts, kinds = problem.named(choices)
    backend, formulation = asked.backend, asked.formulation
    return Solution(
        status, counts, value, bound, backend, formulation, note=note, kinds=kinds
    )
