"""The own answer of a solver to a problem with several kinds of units, checked; `solve` has the chain around it."""

from __future__ import annotations

import math
from collections.abc import Callable

from bft.milp.checking import Checked, Known, checked
from bft.milp.formulations.kinds import build
from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel
from bft.milp.kinds import (
    OFF,
    Choice,
    KindsProblem,
    hopeful,
    kept_choices,
    kinds_complaint,
    kinds_tables,
    kinds_value,
)
from bft.milp.problem import Solution


def solver_answer(
    problem: KindsProblem,
    backend: str,
    ask: Callable[[LinearModel], LinearAnswer],
    limits: Limits,
) -> Solution:
    """The answer of the solver that is asked by `ask`; raise Nonsense when it contradicts itself."""
    width = len(problem.units)
    tables, kept = kinds_tables(problem), kept_choices(problem)
    formulated = build(problem, hopeful(tables, kept))
    answer = ask(formulated.model)

    def choices_of(counts: tuple[int, ...]) -> list[Choice]:
        rows = (counts[first : first + width] for first in range(0, len(counts), width))
        return [
            next(((kind, units) for kind, units in enumerate(row) if units), OFF)
            for row in rows
        ]

    def complaint(counts: tuple[int, ...]) -> str:
        choices = choices_of(counts)
        if sum(units for _, units in choices) != sum(counts):
            return "a job gets units of several kinds"
        return kinds_complaint(problem, tables, choices)

    values = [table.points()[2] for table in tables]
    known = Known(
        tuple(
            units if kind == place else 0
            for place, units in kept
            for kind in range(width)
        ),
        math.fsum(float(mine.max()) for mine in values),
        max((float(abs(mine).max()) for mine in values), default=0.0),
        lambda counts: kinds_value(tables, choices_of(counts)),
        complaint,
    )
    found: Checked = checked(answer, formulated, known, limits)
    choices, names = choices_of(found.counts), list(problem.units)
    return Solution(
        found.status,
        tuple(units for _, units in choices),
        known.value(found.counts),
        found.bound,
        backend,
        "modes",
        note=found.note,
        kinds=tuple(names[kind] if units else None for kind, units in choices),
    )
