"""Parts of a saved model, checked: it may come from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError

# Of larger numbers, sums and products could overflow.
MAX_VALUE: Final = 1e30


def part(document: Any, key: str, kind: type) -> Any:
    """The value under `key`, which must be of a type."""
    if not isinstance(document, Mapping) or not isinstance(document.get(key), kind):
        raise InputError(
            f"not a model that can be used: {key!r} should be there and be a {kind.__name__}"
        )
    return document[key]


def number(document: Any, key: str) -> float:
    """A number up to 1e30, not NaN."""
    value = document.get(key) if isinstance(document, Mapping) else None
    return float(_array([value], key)[0])


def floats(document: Any, key: str) -> FloatArray:
    """Numbers up to 1e30, not NaN: float64 of shape (n,)."""
    return _array(part(document, key, list), key)


def wholes(document: Any, key: str, *, low: int, below: int) -> NDArray[np.int64]:
    """Whole numbers in [least, below): int64 of shape (n,)."""
    values = part(document, key, list)
    if not all(type(value) is int and low <= value < below for value in values):
        raise InputError(
            f"not a model that can be used: {key!r} should hold whole numbers in {low}..{below - 1}"
        )
    return np.array(values, dtype=np.int64)


def strings(document: Any, key: str) -> tuple[str, ...]:
    """Strings."""
    values = part(document, key, list)
    if not all(isinstance(value, str) for value in values):
        raise InputError(f"not a model that can be used: {key!r} should hold strings")
    return tuple(values)


def same_length(key: str, *columns: Any) -> None:
    """Refuse columns of different lengths."""
    if len({len(column) for column in columns}) > 1:
        raise InputError(
            f"not a model that can be used: the parts of {key} differ in length"
        )


def _array(values: list[Any], key: str) -> FloatArray:
    # bool is an int to Python, and no number of a model.
    if not all(
        type(value) in (int, float) and abs(value) <= MAX_VALUE for value in values
    ):
        raise InputError(
            f"not a model that can be used: {key!r} should hold numbers up to {MAX_VALUE:g}"
        )
    return np.array(values, dtype=np.float64)
