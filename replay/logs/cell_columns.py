"""Columns of cells as Arrow and NumPy hold them, and what readers by columns share.

Values go from one to the other as bytes: the converters of Arrow (`to_numpy`, `pyarrow.array`) import pandas on their
first call, which takes as long as reading 100,000 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """A column of booleans, none of them missing.

    >>> mask_of(booleans(np.array([True, False, True]))).tolist()
    [True, False, True]
    """
    bits = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    flags = np.unpackbits(bits, count=column.offset + len(column), bitorder="little")
    return flags[column.offset :].view(bool)


def booleans(mask: NDArray[np.bool_]) -> pa.Array:
    """The same as a column."""
    bits = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def codes(encoded: pa.DictionaryArray) -> NDArray[np.int32]:
    """Which entry of the dictionary each cell is, none of them missing."""
    indices = encoded.indices
    return np.frombuffer(indices.buffers()[1], dtype=np.int32, count=indices.offset + len(indices))[indices.offset :]


def rows_of(column: pa.Array, rows: Whole) -> pa.Array:
    """These rows of a column."""
    return column.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))]))


def cells_of(texts: Sequence[bytes]) -> pa.Array:
    """A column of `binary`.

    >>> cells_of([b"ab", b""]).to_pylist()
    [b'ab', b'']
    """
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def spread(begins: Whole, lengths: Whole) -> Whole:
    """The numbers begin, begin + 1, ... of each entry, so many as its length says, one entry after the other.

    >>> spread(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(total)


def cells_at(data: Bytes, offsets: Whole, width: int) -> tuple[Whole, Bytes]:
    """The rows whose cells are so wide, and their bytes, shape (width, rows)."""
    rows = np.flatnonzero(np.diff(offsets) == width)
    if len(rows) == len(offsets) - 1:  # then they lie side by side
        cells = data[offsets[0] : offsets[-1]].reshape(-1, width)
    else:
        cells = data[offsets[rows][:, None] + np.arange(width)]
    return rows, np.ascontiguousarray(cells.T)


def digits(cells: Bytes) -> tuple[Whole, NDArray[np.bool_]]:
    """Numbers of cells of the same width, shape (width, cells), and which of them hold digits only.

    >>> digits(np.frombuffer(b"10234x", dtype=np.uint8).reshape(3, 2).T)
    (array([ 10,  23, 112]), array([ True,  True, False]))
    """
    numbers = np.zeros(cells.shape[1], dtype=np.int64)
    right = np.ones(cells.shape[1], dtype=bool)
    for place in cells:
        values = place - np.uint8(48)  # what is no digit wraps around
        right &= values <= 9
        numbers *= 10
        numbers += values
    return numbers, right
