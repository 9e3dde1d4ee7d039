"""Workloads by name: ours, and those that other packages register in the entry-point group `bft.workloads`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, cast

from bft.models.constants import built, constants_of
from bft.models.errors import InputError
from bft.models.plugins import PluginGroup
from bft.models.searches.workload_api import Workload

# Name -> where it lives; a module is imported when its workload is asked for.
BUILT_IN = {"hpo": "successive_halving:SuccessiveHalving", "nas": "evolution:Evolution"}
_WORKLOADS = PluginGroup("bft.workloads", "workload", BUILT_IN)


def make_workload(text: str, settings: Mapping[str, Any]) -> Workload:
    """Make a workload.

    Parameters
    ----------
    text
        Its name and, behind a colon, values of its constants: `hpo:eta=2,noise=0`.
    settings
        What the run knows, by name: fields of these names are filled from it.

    Raises
    ------
    InputError
        When there is no such workload or constant, or a value does not fit.

    Examples
    --------
    >>> make_workload("hpo:eta=2", {"seed": 7})
    SuccessiveHalving(eta=2, levels=4, noise=0.05, seed=7, name='hpo')
    >>> make_workload("hpo:eta=1", {})
    Traceback (most recent call last):
    bft.models.errors.InputError: workload 'hpo': eta must be at least 2, not 1
    """
    name, _, constants = text.partition(":")
    owner = f"workload {name!r}"
    given: dict[str, str] = {}
    for part in constants.split(",") if constants else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(
                f"{owner}: expected NAME=VALUE behind the colon, not {part!r}"
            )
        given[key] = value
    made = built(owner, _factory(name), settings, given)
    check_workload(name, made)
    return cast("Workload", made)


def takes(text: str, setting: str) -> bool:
    """Whether the workload that a text names has a field of this name, which the run fills."""
    return any(
        each.name == setting for each in constants_of(_factory(text.partition(":")[0]))
    )


def check_workload(name: str, made: object) -> None:
    """Refuse what is no workload, before anything is replayed."""
    owner = f"workload {name!r}"
    if not is_dataclass(made):
        raise InputError(
            f"{owner}: expected a dataclass, whose fields a checkpoint keeps"
        )
    if not isinstance(getattr(made, "name", None), str):
        raise InputError(f"{owner}: it needs a `name`, which the results record")
    for method in ("rungs", "on"):
        if not callable(getattr(made, method, None)):
            raise InputError(f"{owner}: it needs a method {method}()")


def _factory(name: str) -> Callable[..., Any]:
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name].split(":")
        built_in: Callable[..., Any] = getattr(
            import_module(f"bft.models.searches.{module}"), attribute
        )
        return built_in
    loaded, label = _WORKLOADS.load(name)
    if not callable(loaded):
        raise InputError(
            f"{label} is a {type(loaded).__name__}, expected a class or function that makes a workload"
        )
    return loaded
