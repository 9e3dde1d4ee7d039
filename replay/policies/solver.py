"""Which solver makes a decision, and how: one value for the command line, config files, policies and Python."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from bft.models.checks import MAX_LIMIT_S, Flag, Maybe, Name, Number, check_fields, checked, seconds, whole
from bft.models.plugins import PluginGroup

if TYPE_CHECKING:
    from bft.milp import KindsProblem, Problem, Solution

# As in `bft.milp.backend_names`, whose import would be too slow for printing help.
BACKENDS = ("auto", "cbc", "highs", "scipy", "gurobi", "exact")
FORMULATIONS = ("auto", "modes", "node", "items", "flow")
TIES = ("canonical", "solver")
# Including those of other packages; loaded by `bft.milp`.
_BACKENDS = PluginGroup("bft.backends", "backend", BACKENDS)


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """The solver arguments of `bft.milp.solve`, as a value that checks itself.

    Parameters
    ----------
    backend
        The solver; `auto` is exact where it applies, else cbc.
    formulation
        The model: `modes` or `node`; with sharing `items` or `flow`; `auto` takes modes or items.
    strict_reference
        Keep the published model's big-M, which is too small (formulation `node`).
    time_limit_s
        Seconds for one decision; None for no limit.
    gap
        Relative gap at which a solver may stop.
    threads
        Threads that a solver may use.
    ties
        Among several optima: the `canonical` one, whatever the backend, or the `solver`'s own.
    verify
        Check every answer by the exact dynamic programme (DP), even if `ties` or `gap` keep the solver's own.

    Raises
    ------
    InputError
        When a value is not allowed; names the option as on the command line.

    Examples
    --------
    >>> SolverOptions("exact").backend
    'exact'
    >>> SolverOptions(gap=1.5)
    Traceback (most recent call last):
    bft.models.errors.InputError: --gap: expected a finite number >= 0 and < 1, not 1.5
    """

    backend: str = checked("--backend", Name(_BACKENDS.each), "cbc")
    formulation: str = checked("--formulation", Name(FORMULATIONS), "auto")
    strict_reference: bool = checked("--strict-reference", Flag(), default=False)
    time_limit_s: float | None = checked("-optTL", Maybe(seconds(high=MAX_LIMIT_S)), None)
    gap: float = checked("--gap", Number(0, 1, below=True), 0.0)
    threads: int = checked("--threads", whole(1), 1)
    ties: Literal["canonical", "solver"] = checked("--ties", Name(TIES), "canonical")
    verify: bool = checked("--verify", Flag(), default=False)

    def __post_init__(self) -> None:
        check_fields(self)

    def solve(self, problem: Problem | KindsProblem) -> Solution:
        """Solve an allocation problem; see `bft.milp.solve` for what may be raised."""
        from bft import milp  # imported late: the command line reads options before it needs NumPy and Numba

        given: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return milp.solve(problem, time_limit=given.pop("time_limit_s"), **given)
