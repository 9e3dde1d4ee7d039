"""Packages of our extras, imported when they are needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, metadata
from typing import Any

from bft.models.errors import InputError


def how_to_install(name: str) -> str:
    """The command that installs an extra of this package, in a clone as well as from a wheel.

    >>> how_to_install("gurobi")
    'pip install gurobipy'
    """
    needed = [
        line
        for line in metadata.requires("bft-replay") or []
        if f'extra == "{name}"' in line
    ]
    return " ".join(
        ["pip install", *(re.split(r"[<>=!~; ]", line)[0] for line in needed)]
    )


def extra(module: str, name: str = "ml") -> Any:
    """Import a module of an extra of ours.

    Raises
    ------
    InputError
        When it is not installed; the hint is the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        what = f"this needs the package {error.name}, which is not installed"
        raise InputError(what, hint=how_to_install(name)) from error


@contextmanager
def needs(what: str, name: str, otherwise: str = "") -> Iterator[None]:
    """Guard a block that imports a package of the extra `name`: if it is missing, InputError says how to install it."""
    try:
        yield
    except ImportError as error:
        hint = how_to_install(name)
        raise InputError(
            f"{what} needs the package {error.name}, which is not installed",
            hint=f"{hint}; {otherwise}" if otherwise else hint,
        ) from error
