"""Packages of the extra `report`, imported when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bft.models import InputError
from bft.models.extras import how_to_install


@contextmanager
def needs(what: str, otherwise: str = "") -> Iterator[None]:
    """Guard a block that imports a package of an extra: if it is missing, InputError says how to install it."""
    try:
        yield
    except ImportError as error:
        hint = how_to_install("report")
        raise InputError(
            f"{what} needs the package {error.name}, which is not installed",
            hint=f"{hint}; {otherwise}" if otherwise else hint,
        ) from error
