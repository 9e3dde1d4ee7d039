"""Columns of cells as Arrow and NumPy hold them: their bytes, times and host lists of a whole column.

Values go from one to the other as bytes: the converters of Arrow (`to_numpy`, `pyarrow.array`) import pandas on their
first call, which takes as long as reading 100,000 rows.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bft.replay.logs.hostlists import MOST_HOSTS, HostListError, NodeLists
from bft.replay.logs.times import MOST_EPOCH_S, Clock
from bft.replay.trace.node_trace import SECOND_NS

Bytes: TypeAlias = NDArray[np.uint8]
Whole: TypeAlias = NDArray[np.int64]


def raw(column: pa.Array) -> tuple[Bytes, Whole]:
    """The bytes of all cells of a column of `binary`, and where each begins and ends in them: one entry more."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(
        offsets, dtype=np.int32, count=column.offset + len(column) + 1
    )[column.offset :]
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
    return np.frombuffer(
        indices.buffers()[1], dtype=np.int32, count=indices.offset + len(indices)
    )[indices.offset :]


def rows_of(column: pa.Array, rows: Whole) -> pa.Array:
    """These rows of a column."""
    return column.take(
        pa.Array.from_buffers(
            pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))]
        )
    )


def cells_of(texts: Sequence[bytes]) -> pa.Array:
    """A column of `binary`.

    >>> cells_of([b"ab", b""]).to_pylist()
    [b'ab', b'']
    """
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(),
        len(texts),
        [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))],
    )


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


_STAMP, _EPOCH = 19, 10
_MARKS = ((4, b"-"), (7, b"-"), (13, b":"), (16, b":"))


def times_of(column: pa.Array, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    """UTC nanoseconds of each cell, and where that is known; elsewhere `Clock.parse` decides."""
    data, offsets = raw(column)
    times, known = (
        np.zeros(len(column), dtype=np.int64),
        np.zeros(len(column), dtype=bool),
    )
    for width, read in ((_STAMP, _stamps), (_EPOCH, _epochs)):
        rows, cells = cells_at(data, offsets, width)
        if len(rows):
            times[rows], known[rows] = read(cells, clock)
    return times, known


def _epochs(cells: Bytes, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    seconds, right = digits(cells)
    right &= (seconds > 0) & (seconds < MOST_EPOCH_S)
    return np.where(right, seconds, 0) * SECOND_NS, right


def _stamps(cells: Bytes, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    year, right = digits(cells[:4])
    parts = []
    for place in (5, 8, 11, 14, 17):
        part, are = digits(cells[place : place + 2])
        parts.append(part)
        right &= are
    for place, mark in _MARKS:
        right &= cells[place] == mark[0]
    right &= (cells[10] == ord("T")) | (cells[10] == ord(" "))
    month, day, hour, minute, second = parts
    right &= (year > 1970) & (year < 2262) & (month >= 1) & (month <= 12) & (day >= 1)
    right &= (hour < 24) & (minute < 60) & (second < 60)
    months = (np.where(right, year, 1971) - 1970) * 12 + np.where(right, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (
        (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    )
    right &= day <= after - first
    hours = np.where(right, (first + day - 1) * 24 + hour, 0)
    met, which = np.unique(hours, return_inverse=True)
    begins = [clock.hour_ns(one) if one else None for one in met.tolist()]
    plain = np.array([begin is not None for begin in begins])
    begun = np.array([begin or 0 for begin in begins], dtype=np.int64)
    right &= plain[which]
    return np.where(right, begun[which] + (minute * 60 + second) * SECOND_NS, 0), right


_BRACKET = re.compile(rb"([\w.:+@-]{1,200}\[)(\d{1,6})[\d,-]*\]")
_PLAIN = re.compile(rb"([A-Za-z][\w.:+@-]{0,200}?)(\d{1,6})")
# Names before the bracket that are tried in a block, and that are known at the most: each takes up to 4 MB.
_MOST_PREFIXES, _MOST_KNOWN = 4, 16
_COMMA, _HYPHEN, _CLOSING = b",-]"


class HostColumns:
    """Expands columns of host lists.

    Parameters
    ----------
    indices
        `Collector.indices`.
    lists
        What expands a list that is not of the usual form.
    """

    def __init__(
        self, indices: Callable[[Sequence[str]], array[int]], lists: NodeLists
    ) -> None:
        self._indices, self._lists = indices, lists
        # Of a name and the width of its numbers: the node of each number, -1 where there is none yet.
        self._known: dict[tuple[bytes, int], NDArray[np.int32]] = {}

    def expanded(
        self, column: pa.Array, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], Whole]:
        """Nodes of the wanted lists, one list after the other, and how many each list of the column has.

        Lists that are none, or not wanted, have 0 nodes.
        """
        data, offsets = raw(column)
        sizes = np.zeros(len(column), dtype=np.int64)
        parts: list[tuple[Whole, NDArray[np.int32]]] = []
        left = wanted.copy()
        ends = np.zeros(len(column), dtype=np.uint8)
        some = offsets[1:] > offsets[:-1]
        ends[some] = data[offsets[1:][some] - 1]
        bracketed = left & (ends == _CLOSING)
        for _ in range(_MOST_PREFIXES):
            rows = np.flatnonzero(bracketed)
            if not len(rows):
                break
            bracketed[rows[0]] = False
            match = _BRACKET.fullmatch(
                data[offsets[rows[0]] : offsets[rows[0] + 1]].tobytes()
            )
            if match is None or not self._room((match[1], len(match[2]))):
                continue
            done, nodes, counts = self._of_prefix(
                data, offsets, rows, match[1], len(match[2])
            )
            bracketed[done] = left[done] = False
            sizes[done] = counts
            parts.append((done, nodes))
        plain = self._one_host_each(data, offsets, np.flatnonzero(left & (sizes == 0)))
        if plain is not None:
            left[plain[0]] = False
            sizes[plain[0]] = 1
            parts.append(plain)
        rest = np.flatnonzero(left)
        if len(rest):
            nodes, counts = self._each(rows_of(column, rest))
            sizes[rest] = counts
            parts.append((rest, nodes))
        if len(parts) == 1:
            return parts[0][1], sizes
        return joined(parts, sizes), sizes

    def _each(self, column: pa.Array) -> tuple[NDArray[np.int32], Whole]:
        """Lists one by one, each that comes several times once."""
        encoded = column.dictionary_encode()
        lists = []
        for text in encoded.dictionary.to_pylist():
            try:
                lists.append(self._lists(text.decode("utf-8", "surrogateescape")))
            except HostListError:
                lists.append(array("i"))
        counts = np.array([len(nodes) for nodes in lists], dtype=np.int64)
        flat = np.frombuffer(
            b"".join(nodes.tobytes() for nodes in lists), dtype=np.int32
        )
        which = codes(encoded)
        begins = np.cumsum(counts) - counts
        return flat[spread(begins[which], counts[which])], counts[which]

    def _one_host_each(
        self, data: Bytes, offsets: Whole, rows: Whole
    ) -> tuple[Whole, NDArray[np.int32]] | None:
        """Those of the rows that are one host with the name and the width of the first's; their nodes."""
        if not len(rows):
            return None
        text = data[offsets[rows[0]] : offsets[rows[0] + 1]].tobytes()
        match = _PLAIN.fullmatch(text)
        if match is None or not self._room((match[1] + b"[", len(match[2]))):
            return None
        rows = rows[offsets[rows + 1] - offsets[rows] == len(text)]
        cells = np.ascontiguousarray(
            data[offsets[rows][:, None] + np.arange(len(text))].T
        )
        name = len(match[1])
        numbers, right = digits(cells[name:])
        for place, letter in zip(cells, match[1], strict=False):
            right &= place == letter
        return rows[right], self._nodes(match[1] + b"[", len(match[2]), numbers[right])

    def _of_prefix(
        self, data: Bytes, offsets: Whole, rows: Whole, prefix: bytes, width: int
    ) -> tuple[Whole, NDArray[np.int32], Whole]:
        """Those of the rows that are `prefix`, rising numbers of `width` digits, and a bracket; nodes, and how many."""
        begins, ends = offsets[rows] + len(prefix), offsets[rows + 1]
        long = ends - begins > width
        rows, begins, ends = rows[long], begins[long], ends[long]
        heads = data[(begins - len(prefix))[:, None] + np.arange(len(prefix))]
        mine = (heads == np.frombuffer(prefix, dtype=np.uint8)).all(axis=1)
        rows, begins, ends = rows[mine], begins[mine], ends[mine]
        text = data[
            spread(begins, ends - begins)
        ]  # of all rows, each with its closing bracket
        marks = np.flatnonzero((text == _COMMA) | (text == _CLOSING))
        starts = np.concatenate([[0], marks[:-1] + 1])
        lengths = marks - starts
        ranges = lengths == 2 * width + 1
        right = ranges | (lengths == width)
        firsts = np.minimum(starts, max(0, len(text) - width))
        low, are = digits(text[firsts + np.arange(width)[:, None]])
        right &= are
        high = low.copy()
        of = np.flatnonzero(ranges)
        high[of], are = digits(
            text[(starts[of] + width + 1) + np.arange(width)[:, None]]
        )
        right[of] &= are & (text[starts[of] + width] == _HYPHEN)
        right &= high >= low
        # The first piece of each row; pieces of a row must rise.
        last = np.searchsorted(marks, np.cumsum(ends - begins) - 1)
        first = np.concatenate([[0], last[:-1] + 1])
        rising = np.ones(len(low), dtype=bool)
        rising[1:] = low[1:] > high[:-1]
        rising[first] = True
        whole = np.logical_and.reduceat(right & rising, first)
        spans = np.where(right, high - low + 1, 0)
        counts = np.add.reduceat(spans, first)
        whole &= counts <= MOST_HOSTS
        kept = np.repeat(whole, np.diff(np.concatenate([first, [len(low)]])))
        numbers = spread(low[kept], spans[kept])
        return rows[whole], self._nodes(prefix, width, numbers), counts[whole]

    def _room(self, key: tuple[bytes, int]) -> bool:
        """Whether nodes of a name and width can be looked up."""
        return key in self._known or len(self._known) < _MOST_KNOWN

    def _nodes(self, prefix: bytes, width: int, numbers: Whole) -> NDArray[np.int32]:
        """Nodes by their numbers; new ones get an index in the order in which they come."""
        key = prefix, width
        if key not in self._known:
            self._known[key] = np.full(10**width, -1, dtype=np.int32)
        known = self._known[key]
        nodes = known[numbers]
        strange = numbers[nodes < 0]
        if len(strange):
            _, first = np.unique(strange, return_index=True)
            new = strange[np.sort(first)]
            name = prefix[:-1].decode()
            known[new] = self._indices(
                [f"{name}{number:0{width}}" for number in new.tolist()]
            )
            nodes = known[numbers]
        return nodes


def joined(
    parts: list[tuple[Whole, NDArray[np.int32]]], sizes: Whole
) -> NDArray[np.int32]:
    """Nodes of several sets of rows, in the order of the rows."""
    begins = np.cumsum(sizes) - sizes
    joined = np.zeros(int(sizes.sum()), dtype=np.int32)
    for rows, nodes in parts:
        joined[spread(begins[rows], sizes[rows])] = nodes
    return joined
