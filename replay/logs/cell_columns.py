"""Columns of cells as Arrow and NumPy hold them, and what readers by columns share."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Whole: TypeAlias = NDArray[np.int64]


def raw(column: pa.Array) -> tuple[Bytes, Whole]:
    """The bytes of all cells of a column of `binary`, and where each begins and ends in them: one entry more."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(offsets, dtype=np.int32, count=column.offset + len(column) + 1)[column.offset :]
    return np.frombuffer(data or b"", dtype=np.uint8), places.astype(np.int64)


def mask_of(column: pa.Array) -> NDArray[np.bool_]:
    """A column of booleans."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)


def spread(begins: Whole, lengths: Whole) -> Whole:
    """The numbers begin, begin + 1, ... of each entry, so many as its length says, one entry after the other.

    >>> spread(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(total)


def digits(cells: Bytes) -> tuple[Whole, NDArray[np.bool_]]:
    """Numbers of cells of the same width, shape (cells, width), and which of them hold digits only."""
    values = cells - np.uint8(48)  # what is no digit wraps around
    powers = 10 ** np.arange(cells.shape[1] - 1, -1, -1, dtype=np.int64)
    return values.astype(np.int64) @ powers, np.asarray((values <= 9).all(axis=1))
