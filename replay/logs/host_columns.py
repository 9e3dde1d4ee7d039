"""Host lists of a whole column: those of one name with numbers of one width at once, the others one by one."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bft.replay.logs.cell_columns import Bytes, Whole, codes, digits, raw, rows_of, spread
from bft.replay.logs.hostlists import MOST_HOSTS, HostListError, NodeLists

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

    def __init__(self, indices: Callable[[Sequence[str]], array[int]], lists: NodeLists) -> None:
        self._indices, self._lists = indices, lists
        # Of a name and the width of its numbers: the node of each number, -1 where there is none yet.
        self._known: dict[tuple[bytes, int], NDArray[np.int32]] = {}

    def expanded(self, column: pa.Array, wanted: NDArray[np.bool_]) -> tuple[NDArray[np.int32], Whole]:
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
            match = _BRACKET.fullmatch(data[offsets[rows[0]] : offsets[rows[0] + 1]].tobytes())
            if match is None or not self._room((match[1], len(match[2]))):
                continue
            done, nodes, counts = self._of_prefix(data, offsets, rows, match[1], len(match[2]))
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
        return _joined(parts, sizes), sizes

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
        flat = np.frombuffer(b"".join(nodes.tobytes() for nodes in lists), dtype=np.int32)
        which = codes(encoded)
        begins = np.cumsum(counts) - counts
        return flat[spread(begins[which], counts[which])], counts[which]

    def _one_host_each(self, data: Bytes, offsets: Whole, rows: Whole) -> tuple[Whole, NDArray[np.int32]] | None:
        """Those of the rows that are one host with the name and the width of the first's; their nodes."""
        if not len(rows):
            return None
        text = data[offsets[rows[0]] : offsets[rows[0] + 1]].tobytes()
        match = _PLAIN.fullmatch(text)
        if match is None or not self._room((match[1] + b"[", len(match[2]))):
            return None
        rows = rows[offsets[rows + 1] - offsets[rows] == len(text)]
        cells = np.ascontiguousarray(data[offsets[rows][:, None] + np.arange(len(text))].T)
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
        text = data[spread(begins, ends - begins)]  # of all rows, each with its closing bracket
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
        high[of], are = digits(text[(starts[of] + width + 1) + np.arange(width)[:, None]])
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
            known[new] = self._indices([f"{name}{number:0{width}}" for number in new.tolist()])
            nodes = known[numbers]
        return nodes


def _joined(parts: list[tuple[Whole, NDArray[np.int32]]], sizes: Whole) -> NDArray[np.int32]:
    """Nodes of several sets of rows, in the order of the rows."""
    begins = np.cumsum(sizes) - sizes
    joined = np.zeros(int(sizes.sum()), dtype=np.int32)
    for rows, nodes in parts:
        joined[spread(begins[rows], sizes[rows])] = nodes
    return joined
