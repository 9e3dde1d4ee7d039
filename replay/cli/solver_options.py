"""Options that say what solves a decision, for every command that solves one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from bft.models.checks import whole
from bft.replay.cli.parameters import Checked, Finite, OneOf
from bft.replay.options.options import BACKENDS, FORMULATIONS, TIES

F = TypeVar("F", bound=Callable[..., Any])


def solver_options(default_backend: str) -> Callable[[F], F]:
    """Give a command --backend, --formulation, --strict-reference, --gap, --threads, --ties."""
    options = (
        click.option("--backend", type=OneOf(BACKENDS), default=default_backend, show_default=True,
                     help="What solves the MILP; `bft-replay backends` tells which are there."),
        click.option("--formulation", type=OneOf(FORMULATIONS), default="auto", show_default=True,
                     help="How the MILP is written: modes, or node as published; with xi items, or flow."),
        click.option("--strict-reference", is_flag=True,
                     help="Keep the too small big-M of the published model (formulation node)."),
        click.option("--gap", type=Finite(min=0, max=1, max_open=True), default=0.0, show_default=True,
                     help="Relative gap at which a solver may stop."),
        click.option("--threads", type=Checked(whole(1)), default=1, show_default=True,
                     help="Threads of the solver."),
        click.option("--ties", type=OneOf(TIES), default="canonical", show_default=True,
                     help="Of several optima: the canonical one, whatever solves, or the solver's own."),
    )  # fmt: skip

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
