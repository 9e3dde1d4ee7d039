"""From a problem to a checked answer: pick a backend, ask it, trust nothing, fall back."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cache

from bft.milp import modes, node
from bft.milp.backends import BACKENDS, describe
from bft.milp.exact import solve_exact
from bft.milp.linear import Limits, LinearAnswer, LinearModel, Nonsense
from bft.milp.problem import Problem, ProblemError, Solution, Status
from bft.milp.process import SolverFailure, SolverProcess, shared_process
from bft.milp.sharing import SharingAnswer, keep_answer, solve_sharing
from bft.milp.values import complaint, keep, objective, total_value, value_tables

FORMULATIONS = ("auto", "modes", "node", "items", "flow")
# Those that let two jobs share units.
SHARING = ("items", "flow")

# Objectives of one answer, computed in two ways, agree to this, relative (DESIGN §6.4).
TOLERANCE = 1e-6


def solve(
    problem: Problem,
    *,
    backend: str = "auto",
    formulation: str = "auto",
    strict_reference: bool = False,
    time_limit: float | None = None,
    gap: float = 0.0,
    threads: int = 1,
    process: SolverProcess | None = None,
) -> Solution:
    """Solve one allocation problem.

    Parameters
    ----------
    problem
        What to decide.
    backend
        One of `BACKENDS`: `cbc`, `highs`, `gurobi`, `exact` (modes only); or `auto`: exact where it applies, else cbc.
    formulation
        `modes` or `node`; with sharing `items` or `flow`; `auto` takes modes or items.
    strict_reference
        With `node`: keep the too small big-M of the published model. The answer may then be infeasible, or worse than
        keeping.
    time_limit
        Seconds for the solver, None for none. At the limit its best answer is used if it beats keeping the
        current allocation.
    gap
        Relative gap at which a solver may stop.
    threads
        Threads a solver may use.
    process
        Solver process to use, for tests and for callers that mind their processes.

    Returns
    -------
    Solution
        Feasible always, and never worse than keeping the current allocation (but for `strict_reference`).

    Raises
    ------
    ProblemError
        For a backend or formulation that is unknown, not installed, or does not fit the problem, or a limit that makes
        no sense.
    """
    if backend != "auto" and backend not in BACKENDS:
        raise ProblemError(f"unknown backend {backend!r}: choose one of auto, {', '.join(BACKENDS)}")
    if formulation not in FORMULATIONS:
        raise ProblemError(f"unknown formulation {formulation!r}: choose one of {', '.join(FORMULATIONS)}")
    if time_limit is not None and not time_limit > 0:
        raise ProblemError(f"the time limit must be > 0 seconds, not {time_limit!r}")
    if not 0 <= gap < 1:
        raise ProblemError(f"the gap must lie in [0, 1), not {gap!r}")
    if threads < 1:
        raise ProblemError(f"threads must be >= 1, not {threads!r}")
    if formulation == "auto":
        formulation = "node" if strict_reference else "items" if problem.pairs else "modes"
    if strict_reference and formulation != "node":
        raise ProblemError(f"strict_reference belongs to formulation 'node', not {formulation!r}")
    if problem.pairs and formulation not in SHARING:
        raise ProblemError(f"formulation {formulation!r} knows no sharing; with xi choose {' or '.join(SHARING)}")
    if backend == "auto":
        backend = "exact" if formulation == "modes" else "cbc"
    if formulation not in BACKENDS[backend].formulations:
        able = ", ".join(name for name, able in BACKENDS.items() if formulation in able.formulations)
        raise ProblemError(f"backend {backend!r} cannot solve formulation {formulation!r}: choose one of {able}")
    _require(backend)
    started = time.perf_counter()
    if backend == "exact":
        return _exact(problem, started)
    limits = Limits(time_limit, gap, threads)
    worker = process or shared_process()
    try:
        if formulation in SHARING:
            return _shared(problem, backend, formulation, limits, worker, started)
        return _alone(problem, backend, formulation, strict_reference, limits, worker, started)
    except (SolverFailure, Nonsense) as failure:
        if formulation in SHARING:
            kept = replace(
                keep_answer(problem, f"{backend}: {failure}; kept"), status="fallback", formulation=formulation
            )
            return _told(kept, backend, started)
        return _exact(problem, started, fallback=f"{backend}: {failure}")


@cache
def _require(backend: str) -> None:
    """Refuse a backend that is not there, once and for all, rather than fall back at every decision."""
    state = describe(backend)
    if not state.available:
        raise ProblemError(f"backend {backend!r} is not available ({state.licence}): {state.how_to_get}")


def _exact(problem: Problem, started: float, fallback: str = "") -> Solution:
    counts = solve_exact(problem)
    value = objective(problem, counts)
    status: Status = "fallback" if fallback else "optimal"
    return Solution(status, counts, value, value, "exact", "modes", time.perf_counter() - started, fallback)


def _shared(
    problem: Problem, backend: str, formulation: str, limits: Limits, process: SolverProcess, started: float
) -> Solution:
    solver = BACKENDS[backend].solver or ""

    def ask(model: LinearModel, within: Limits) -> LinearAnswer:
        return process.solve(model, solver, within)

    return _told(solve_sharing(problem, formulation, ask, limits, TOLERANCE), backend, started)


def _told(found: SharingAnswer, backend: str, started: float) -> Solution:
    return Solution(
        found.status,
        found.counts,
        found.objective,
        found.bound,
        backend,
        found.formulation,
        time.perf_counter() - started,
        found.note,
        found.transfers,
    )


def _alone(
    problem: Problem,
    backend: str,
    formulation: str,
    strict: bool,
    limits: Limits,
    process: SolverProcess,
    started: float,
) -> Solution:
    tables = value_tables(problem)
    formulated = modes.build(problem) if formulation == "modes" else node.build(problem, strict_reference=strict)
    answer = process.solve(formulated.model, BACKENDS[backend].solver or "", limits)
    kept = keep(problem)
    kept_value = total_value(tables, kept)
    # An upper bound that holds whatever the solver says: every job at its own best.
    ceiling = float(sum(float(table.max()) for table in tables))

    def solution(status: Status, counts: tuple[int, ...], value: float, bound: float, note: str = "") -> Solution:
        return Solution(status, counts, value, bound, backend, formulation, time.perf_counter() - started, note)

    if answer.x is None:
        if answer.status == "nothing":
            return solution("feasible", kept, kept_value, ceiling, "time limit, no answer: kept")
        if answer.status == "infeasible" and strict:
            nothing = (0,) * len(problem.jobs)
            return solution("infeasible", nothing, total_value(tables, nothing), -math.inf, "as published")
        raise Nonsense(f"answered {answer.status!r}, but giving nobody anything is feasible")
    counts = formulated.decode(answer.values(formulated.model))
    wrong = complaint(problem, tables, counts)
    if wrong:
        raise Nonsense(f"answered nonsense: {wrong}")
    value = total_value(tables, counts)
    slack = TOLERANCE * max(abs(value), abs(kept_value))
    if not math.isclose(value, answer.objective, rel_tol=TOLERANCE, abs_tol=slack):
        raise Nonsense(f"claims {answer.objective!r} for an answer that is worth {value!r}")
    if answer.status == "optimal":
        if limits.gap and value < kept_value:
            return solution(
                "optimal", kept, kept_value, max(kept_value, answer.bound), "within the gap, and kept is better"
            )
        if value < kept_value - slack and not strict:
            raise Nonsense(f"calls {value!r} optimal, but keeping is worth {kept_value!r}")
        return solution("optimal", counts, value, max(value, answer.bound))
    bound = min(ceiling, answer.bound) if math.isfinite(answer.bound) else ceiling
    if value >= kept_value:
        return solution("feasible", counts, value, max(value, bound), "time limit: incumbent")
    return solution("feasible", kept, kept_value, max(kept_value, bound), "time limit: kept, better than the incumbent")
