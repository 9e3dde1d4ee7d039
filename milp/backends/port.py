"""What a backend is: the port through which anything that solves a linear model is used."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel

MILP_FORMULATIONS = ("modes", "node", "items", "flow")


class Feature(StrEnum):
    """What not every backend can do. A backend is not asked for what it does not declare."""

    START = "start"
    """Begins from a solution known beforehand. Without it, `LinearModel.start` is empty."""
    THREADS = "threads"
    """Can use more than one thread. Without it, `Limits.threads` is 1 and `--threads` is reported as without effect."""


@dataclass(frozen=True, slots=True)
class Availability:
    """What a backend is on this machine.

    Parameters
    ----------
    version
        Of what solves and of what it is reached through, empty when not installed.
    available
        Whether it can be used now.
    licence
        Under which it solves.
    limits
        What it does not do, empty for nothing of note.
    how_to_get
        What to do to use it, or to lift its limits; empty when there is nothing to do.

    """

    version: str = ""
    available: bool = True
    licence: str = ""
    limits: str = ""
    how_to_get: str = ""


@runtime_checkable
class Listed(Protocol):
    """What every backend states about itself; its module imports no solver until it is asked.

    Attributes
    ----------
    name
        As users write it; for a package of your own also the name of its entry point.
    formulations
        Those of `MILP_FORMULATIONS` that it solves. All four are plain mixed-integer linear models.
    features
        Which of `Feature` it has, as members or as their words.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see the class
    @property
    def formulations(self) -> Collection[str]: ...  # noqa: D102
    @property
    def features(self) -> Collection[str]: ...  # noqa: D102

    def available(self) -> Availability:
        """Whether it can be used on this machine, and what is missing."""


@runtime_checkable
class Backend(Listed, Protocol):
    """What solves linear models. It runs in the solver process, where its death costs one answer."""

    def solve(self, model: LinearModel, limits: Limits) -> LinearAnswer:
        """Solve `model` within `limits`, deterministically; raise whatever explains why it cannot be done.

        The answer is checked afterwards, and an invalid one is replaced: it needs no checks of its own.
        """
