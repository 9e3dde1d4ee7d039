"""Options for the solver, for every command that solves decisions."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from bft.replay.cli.parameters import Decorator, option, together
from bft.replay.policies.solver import SolverOptions


def solver_options(default: SolverOptions, *, backend: str | None = None) -> Decorator:
    """Give a command --backend, --formulation, --strict-reference, --time-limit, --gap, --threads, --ties.

    `backend` says what the backend is unless it is given, where that depends on other options.
    """
    checks = {each.name: each.metadata["check"] for each in fields(SolverOptions)}

    def of(name: str, *flags: str, **more: Any) -> Decorator:
        return option(name, *flags, **{"check": checks[name], "default": getattr(default, name), **more})

    solves = "The solver of the MILP; `bft-replay backends` lists the available ones."
    depends = {} if backend is None else {"default": None}
    limit = "Time limit of one decision, seconds." + (" [none]" if default.time_limit_s is None else "")
    return together(
        of("backend", "--backend", help=solves + (f" [{backend}]" if backend else ""), **depends),
        of(
            "formulation",
            "--formulation",
            help="Formulation of the MILP: modes, or node as published; with xi items, or flow.",
        ),
        of(
            "strict_reference",
            "--strict-reference",
            help="Keep the too small big-M of the published model (formulation node).",
        ),
        of("time_limit_s", "-optTL", "--time-limit", help=limit),
        of("gap", "--gap", help="Relative gap at which a solver may stop."),
        of("threads", "--threads", help="Threads of the solver."),
        of("ties", "--ties", help="Which of several optima: the canonical one, or the solver's own."),
    )
