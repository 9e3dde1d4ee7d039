"""Packages of the extras, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bft.models.errors import InputError


def extra(module: str, name: str = "ml") -> Any:
    """Import a module of an extra of ours.

    Raises
    ------
    InputError
        When it is not installed, telling how to install it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"this needs the package {error.name}, which is not installed", hint=f"pip install 'bft-replay[{name}]'"
        ) from error
