"""From a problem to a checked answer: pick a backend, ask it, trust nothing, fall back."""

from __future__ import annotations

import math
import time

from bft.milp import modes
from bft.milp.exact import solve_exact
from bft.milp.linear import Limits, LinearAnswer, LinearModel
from bft.milp.problem import Problem, ProblemError, Solution, Status
from bft.milp.process import SolverFailure, SolverProcess, shared_process
from bft.milp.sharing import Nonsense, keep_answer, solve_sharing
from bft.milp.values import complaint, keep, total_value, value_tables

# python-mip's name of each MILP backend
SOLVER_NAMES = {"cbc": "CBC"}
BACKENDS = ("auto", "cbc", "exact")
FORMULATIONS = ("auto", "modes", "items", "flow")
# Those that let two jobs share units, and those that do not.
SHARING = ("items", "flow")

# Objectives of one answer, computed in two ways, agree to this, relative (DESIGN §6.4).
TOLERANCE = 1e-6


def solve(
    problem: Problem,
    *,
    backend: str = "auto",
    formulation: str = "auto",
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
        `cbc`, `exact` (without sharing), or `auto`: exact where it applies, else cbc.
    formulation
        `modes`; with sharing `items` or `flow`; `auto` takes modes or items.
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
        Feasible always, and never worse than keeping the current allocation.

    Raises
    ------
    ProblemError
        For an unknown backend or formulation, one that does not fit the problem, or a limit that makes no sense.
    """
    if backend not in BACKENDS:
        raise ProblemError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    if formulation not in FORMULATIONS:
        raise ProblemError(f"unknown formulation {formulation!r}: choose one of {', '.join(FORMULATIONS)}")
    if time_limit is not None and not time_limit > 0:
        raise ProblemError(f"the time limit must be > 0 seconds, not {time_limit!r}")
    if not 0 <= gap < 1:
        raise ProblemError(f"the gap must lie in [0, 1), not {gap!r}")
    if threads < 1:
        raise ProblemError(f"threads must be >= 1, not {threads!r}")
    if formulation == "auto":
        formulation = "items" if problem.pairs else "modes"
    if problem.pairs and formulation not in SHARING:
        raise ProblemError(f"formulation {formulation!r} knows no sharing; with xi choose {' or '.join(SHARING)}")
    if backend == "auto":
        backend = "cbc" if formulation in SHARING else "exact"
    if backend == "exact" and formulation in SHARING:
        raise ProblemError("the exact programme knows no sharing: choose a MILP backend, or leave xi out")
    started = time.perf_counter()
    if backend == "exact":
        return _exact(problem, started)
    limits = Limits(time_limit, gap, threads)
    worker = process or shared_process()
    try:
        if formulation in SHARING:
            return _shared(problem, backend, formulation, limits, worker, started)
        return _alone(problem, backend, limits, worker, started)
    except (SolverFailure, Nonsense) as failure:
        if formulation in SHARING:
            kept = keep_answer(problem, f"{backend}: {failure}; kept")
            return Solution(
                "fallback",
                kept.counts,
                kept.objective,
                kept.bound,
                backend,
                formulation,
                time.perf_counter() - started,
                kept.note,
                kept.transfers,
            )
        return _exact(problem, started, fallback=f"{backend}: {failure}")


def _exact(problem: Problem, started: float, fallback: str = "") -> Solution:
    counts = solve_exact(problem)
    value = total_value(value_tables(problem), counts)
    status: Status = "fallback" if fallback else "optimal"
    return Solution(status, counts, value, value, "exact", "modes", time.perf_counter() - started, fallback)


def _shared(
    problem: Problem, backend: str, formulation: str, limits: Limits, process: SolverProcess, started: float
) -> Solution:
    def ask(model: LinearModel, within: Limits) -> LinearAnswer:
        return process.solve(model, SOLVER_NAMES[backend], within)

    found = solve_sharing(problem, formulation, ask, limits, TOLERANCE)
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


def _alone(problem: Problem, backend: str, limits: Limits, process: SolverProcess, started: float) -> Solution:
    tables = value_tables(problem)
    formulated = modes.build(problem)
    answer = process.solve(formulated.model, SOLVER_NAMES[backend], limits)
    kept = keep(problem)
    kept_value = total_value(tables, kept)
    slack = TOLERANCE * max(1.0, abs(kept_value))
    # An upper bound that holds whatever the solver says: every job at its own best.
    ceiling = float(sum(float(table.max()) for table in tables))

    def solution(status: Status, counts: tuple[int, ...], value: float, bound: float, note: str = "") -> Solution:
        return Solution(status, counts, value, bound, backend, "modes", time.perf_counter() - started, note)

    if answer.x is None:
        if answer.status == "nothing":
            return solution("feasible", kept, kept_value, ceiling, "time limit, no answer: kept")
        raise Nonsense(f"answered {answer.status!r}, but giving nobody anything is feasible")
    counts = formulated.decode(answer.x)
    wrong = complaint(problem, tables, counts)
    if wrong:
        raise Nonsense(f"answered nonsense: {wrong}")
    value = total_value(tables, counts)
    if not math.isclose(value, answer.objective, rel_tol=TOLERANCE, abs_tol=slack):
        raise Nonsense(f"claims {answer.objective!r} for an answer that is worth {value!r}")
    if answer.status == "optimal":
        if value < kept_value - slack:
            raise Nonsense(f"calls {value!r} optimal, but keeping is worth {kept_value!r}")
        return solution("optimal", counts, value, max(value, answer.bound))
    bound = min(ceiling, answer.bound) if math.isfinite(answer.bound) else ceiling
    if value >= kept_value:
        return solution("feasible", counts, value, max(value, bound), "time limit: incumbent")
    return solution("feasible", kept, kept_value, max(kept_value, bound), "time limit: kept, better than the incumbent")
