"""Which solver makes a decision, and how: one value for the command line, config files, policies and Python."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from bft.models.checks import (
    FLAG,
    MAX_LIMIT_S,
    SOLVER,
    Condition,
    Name,
    Number,
    check_fields,
    option,
    seconds,
    whole,
)
from bft.models.plugins import PluginGroup

if TYPE_CHECKING:
    from bft.milp import Problem, Solution

# As in `bft.milp.backend_names`, whose import would be too slow for printing help.
BACKENDS = ("auto", "cbc", "highs", "gurobi", "exact")
FORMULATIONS = ("auto", "modes", "node", "items")
TIES = ("canonical", "solver")
# Including those of other packages; loaded by `bft.milp`.
_BACKENDS = PluginGroup("bft.backends", "backend", BACKENDS)


def _threaded(backend: str) -> bool:
    """Tell whether a backend can use more than one thread."""
    from bft.milp import (
        Feature,
    )  # imported late: the command line reads options before it needs NumPy and Numba
    from bft.milp.backends.registry import listed

    return backend == "auto" or Feature.THREADS in listed(backend).features


_SOLVES = Condition(
    lambda run, _: "solver" in run.policy_type.settings, "with $policy {policy}"
)
_NODE = Condition(
    lambda run, _: run.solver.formulation in ("auto", "node"),
    "without $formulation=node",
    refused=True,
)
_INEXACT = Condition(
    lambda run, _: run.solver.backend != "exact",
    "with $backend exact",
)
_THREADED = Condition(
    lambda run, _: _threaded(run.solver.backend),
    "with $backend {backend}, which uses one thread",
)
_OTHER_THAN_EXACT = Condition(
    lambda run, _: run.solver.backend != "exact",
    "with $backend exact, which is what answers are verified by",
)
_UNVERIFIED = Condition(
    lambda run, _: run.solver.keeps_own_answers or run.solver.ties == "solver",
    "with $ties=canonical, where every decision without sharing is verified anyway",
)


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """The solver arguments of `bft.milp.solve`, as a value that checks itself.

    Parameters
    ----------
    backend
        The solver; `auto` is exact where it applies, else cbc.
    formulation
        The model: `modes` or `node`; with sharing `items`; `auto` takes modes or items.
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
    bft.models.errors.InputError: --option gap: expected a finite number >= 0 and < 1, not 1.5
    """

    backend: str = option(
        "--backend",
        Name(_BACKENDS.each),
        "cbc",
        help="The solver of the MILP; `bft-replay list backends` lists the available ones.",
        section=SOLVER,
        conditions=(_SOLVES,),
        published=True,
    )
    formulation: str = option(
        "--formulation",
        Name(FORMULATIONS),
        "auto",
        help="Formulation of the MILP: modes, or node as published; with xi items.",
        section=SOLVER,
        conditions=(_SOLVES,),
        rare=True,
    )
    strict_reference: bool = option(
        "--strict-reference",
        FLAG,
        default=False,
        help="Keep the too small big-M of the published model (formulation node).",
        section=SOLVER,
        conditions=(_NODE, _SOLVES),
        rare=True,
    )
    time_limit_s: float | None = option(
        "-optTL --time-limit",
        seconds(high=MAX_LIMIT_S),
        help="Time limit of one decision, seconds.",
        section=SOLVER,
        shown="none",
        conditions=(_SOLVES,),
        published=True,
    )
    gap: float = option(
        "--gap",
        Number(0, 1, below=True),
        0.0,
        help="Relative gap at which a solver may stop.",
        section=SOLVER,
        conditions=(_SOLVES, _INEXACT),
        rare=True,
    )
    threads: int = option(
        "--threads",
        whole(1),
        1,
        help="Threads of the solver.",
        section=SOLVER,
        conditions=(_SOLVES, _THREADED),
        rare=True,
    )
    ties: Literal["canonical", "solver"] = option(
        "--ties",
        Name(TIES),
        "canonical",
        help="Which of several optima: the canonical one, or the solver's own.",
        section=SOLVER,
        conditions=(_SOLVES, _INEXACT),
        rare=True,
    )
    verify: bool = option(
        "--verify",
        FLAG,
        default=False,
        help="Check every answer by the exact dynamic programme (DP), also with ties=solver or a gap above 0.",
        section=SOLVER,
        conditions=(_SOLVES, _OTHER_THAN_EXACT, _UNVERIFIED),
        rare=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def keeps_own_answers(self) -> bool:
        """Whether the solver's own answers count, so that no canonical optimum is found."""
        return self.gap > 0 or self.strict_reference

    def solve(self, problem: Problem) -> Solution:
        """Solve an allocation problem; see `bft.milp.solve` for what may be raised."""
        from bft import (
            milp,
        )  # imported late: the command line reads options before it needs NumPy and Numba

        return milp.solve(problem, **arguments(self))


@cache
def arguments(options: SolverOptions) -> dict[str, Any]:
    """The arguments of `bft.milp.solve` by name: the options, of which one is called otherwise."""
    given = {each.name: getattr(options, each.name) for each in fields(options)}
    return {"time_limit": given.pop("time_limit_s"), **given}
