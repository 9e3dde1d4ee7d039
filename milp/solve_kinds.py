"""Solve a problem with several kinds of units: the exact DP where it is small enough, and any solver."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bft.milp.backends.process import SolverFailure, SolverProcess, shared_process
from bft.milp.backends.registry import able, describe
from bft.milp.checking import Checked, Known, checked, contradiction
from bft.milp.exact.kinds import MAX_ROWS, KindsOptimum, kinds_optimum
from bft.milp.formulations.kinds import build
from bft.milp.formulations.linear import Limits, Nonsense
from bft.milp.kinds import (
    OFF,
    Choice,
    KindsProblem,
    KindsTable,
    hopeful,
    kept_choices,
    kinds_complaint,
    kinds_tables,
    kinds_value,
)
from bft.milp.problem import ProblemError, Solution

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AskedKinds:
    """The checked arguments of `solve`."""

    problem: KindsProblem
    backend: str
    limits: Limits
    process: SolverProcess | None


def solve_kinds(asked: AskedKinds, *, canonical: bool, verify: bool) -> Solution:
    """Solve the problem; see `solve` for arguments and errors.

    Where the exact DP would have to examine too many combinations, the solver's own optimum is the answer.
    """
    began = time.perf_counter()
    canonical = canonical and not asked.limits.gap
    best = kinds_optimum(asked.problem) if canonical or verify or asked.backend in ("exact", "auto") else None
    if asked.backend == "auto":
        other = "cbc" if describe("cbc").available else "scipy"
        asked = replace(asked, backend=other if best is None else "exact")
    return replace(_solved(asked, best, canonical=canonical), seconds=time.perf_counter() - began)


def _solved(asked: AskedKinds, best: KindsOptimum | None, *, canonical: bool) -> Solution:
    if asked.backend == "exact":
        if best is None:
            others = ", ".join(name for name in able("modes") if name != "exact")
            raise ProblemError(
                f"backend 'exact' would have to examine more than {MAX_ROWS:,} combinations of units of several kinds: "
                f"choose auto or one of {others}"
            )
        return _of(best, asked)
    try:
        solution = _alone(asked)
    except (SolverFailure, Nonsense) as failure:
        note = f"{asked.backend}: {failure}"
        logger.info("fallback: %s", note)
        best = best or kinds_optimum(asked.problem)
        if best is None:
            return _kept(asked, note)
        return replace(_of(best, asked), status="fallback", backend="exact", note=note)
    if best is None:
        note = solution.note or "too many combinations for the exact DP: the solver's own optimum"
        return replace(solution, note=note) if canonical else solution
    conflict = contradiction(solution, best.plain(), asked.limits.gap)
    if conflict:
        logger.info("fallback: %s", conflict)
        better = _of(best, asked) if best.objective >= solution.objective else solution
        return replace(better, status="fallback", note=conflict, verified=False)
    return _of(best, asked) if canonical else replace(solution, verified=True)


def _answer(asked: AskedKinds, choices: Sequence[Choice], value: float, of: Checked) -> Solution:
    kinds = list(asked.problem.units)
    counts = tuple(units for _, units in choices)
    names = tuple(kinds[kind] if units else None for kind, units in choices)
    return Solution(of.status, counts, value, of.bound, asked.backend, "modes", note=of.note, kinds=names)


def _of(best: KindsOptimum, asked: AskedKinds) -> Solution:
    """The answer of the exact DP, returned under the name of the backend."""
    return replace(_answer(asked, best.choices, best.objective, Checked("optimal", (), best.objective)), verified=True)


def _kept(asked: AskedKinds, note: str) -> Solution:
    """Every job keeps what it has."""
    tables, kept = kinds_tables(asked.problem), kept_choices(asked.problem)
    of = Checked("fallback", (), sum(map(max, map(_values, tables))), f"{note}; kept")
    return _answer(asked, kept, kinds_value(tables, kept), of)


def _alone(asked: AskedKinds) -> Solution:
    """The solver's own answer, checked; raise Nonsense when it contradicts itself."""
    problem, width = asked.problem, len(asked.problem.units)
    tables, kept = kinds_tables(problem), kept_choices(problem)
    formulated = build(problem, hopeful(tables, kept))
    process = asked.process or shared_process()
    answer = process.solve(formulated.model, asked.backend, asked.limits)

    def choices_of(counts: tuple[int, ...]) -> list[Choice]:
        rows = (counts[first : first + width] for first in range(0, len(counts), width))
        return [next(((kind, units) for kind, units in enumerate(row) if units), OFF) for row in rows]

    def complaint(counts: tuple[int, ...]) -> str:
        choices = choices_of(counts)
        if sum(units for _, units in choices) != sum(counts):
            return "a job gets units of several kinds"
        return kinds_complaint(problem, tables, choices)

    values = list(map(_values, tables))
    known = Known(
        tuple(units if kind == place else 0 for place, units in kept for kind in range(width)),
        sum(map(max, values)),
        max((abs(value) for mine in values for value in mine), default=0.0),
        lambda counts: kinds_value(tables, choices_of(counts)),
        complaint,
    )
    found = checked(answer, formulated, known, asked.limits)
    return _answer(asked, choices_of(found.counts), known.value(found.counts), found)


def _values(table: KindsTable) -> list[float]:
    return [value for _, value in table.choices()]
