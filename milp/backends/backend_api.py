"""The interface of a backend: any solver of linear models is used through it."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from bft.milp.formulations.linear import Limits, LinearAnswer, LinearModel

MILP_FORMULATIONS = ("modes", "node", "items")


class Feature(StrEnum):
    """Abilities that some backends lack. A backend is only asked to use features that it declares."""

    START = "start"
    """Can begin from a known solution. Without it, `LinearModel.start` is empty."""
    THREADS = "threads"
    """Can use more than one thread. Without it, `Limits.threads` is 1 and the option `threads` has no effect."""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether and how a backend can be used on this machine.

    Parameters
    ----------
    version
        Versions of the solver and of its Python interface; empty when not installed.
    available
        Whether it can be used now.
    licence
        Licence under which it solves.
    limits
        What it cannot do; empty if nothing is worth mentioning.
    how_to_get
        How to install it, or to lift its limits; empty when there is nothing to do.

    """

    version: str = ""
    available: bool = True
    licence: str = ""
    limits: str = ""
    how_to_get: str = ""


@runtime_checkable
class Listed(Protocol):
    """The description of a backend, which every backend has.

    Its module imports no solver before `available` or `solve` is called.

    Attributes
    ----------
    name
        The name that users type; for a package of your own also the name of its entry point.
    formulations
        The members of `MILP_FORMULATIONS` that it solves. All are plain mixed-integer linear models.
    features
        The features it has: members of `Feature`, or their values as strings.
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
    """A solver of linear models. It runs in the solver process, so that a crash costs one answer, not the replay."""

    def solve(self, model: LinearModel, limits: Limits) -> LinearAnswer:
        """Solve `model` within `limits`, deterministically. Any exception is reported to the user.

        The caller checks the answer and replaces an invalid one, so a backend needs no checks of its own.
        """
