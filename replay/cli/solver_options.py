"""Options of the solver for commands that solve single decisions."""

from __future__ import annotations

from bft.models.option_fields import option_fields
from bft.replay.cli.parameters import Decorator, option, together
from bft.replay.policies.solver import SolverOptions


def solver_options(default: SolverOptions) -> Decorator:
    """Give a command all options of the solver but --verify, which counts over the decisions of a replay."""
    fields = [
        each for each in option_fields(SolverOptions).values() if each.name != "verify"
    ]
    return together(*(option(each.with_default(each.of(default))) for each in fields))
