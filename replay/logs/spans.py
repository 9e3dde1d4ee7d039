"""Spans of nodes as pairs of whole numbers, the node above the time: the union of many is a sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bft.replay.logs.times import Whole
from bft.replay.trace.node_trace import SECOND_NS, distinct

# Spans that wait to be united with the others.
_MANY = 1 << 20
# Spans whose gaps are looked at together.
_FEW = 1 << 18
_EMPTY = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Scale:
    """Instants as small whole numbers: in the coarsest unit that holds all, or their ranks where that is too fine.

    Parameters
    ----------
    low, unit
        The first instant and the unit, nanoseconds.
    bits
        Bits that the largest takes, and one more.
    instants
        All of them, ascending, where their ranks are taken; else empty.

    Examples
    --------
    >>> scale = Scale.of([np.array([5, 65]) * SECOND_NS], nodes=10)
    >>> scale.ticks(np.array([65]) * SECOND_NS).tolist(), scale.bits
    ([60], 7)
    """

    low: int
    unit: int
    bits: int
    instants: Whole = field(default_factory=lambda: _EMPTY)

    @classmethod
    def of(cls, times: Sequence[Whole], nodes: int) -> Scale:
        """Return the scale for these instants, and as many nodes."""
        stated = [part for part in times if len(part)]
        low = min((int(part.min()) for part in stated), default=0)
        high = max((int(part.max()) for part in stated), default=0)
        units = (SECOND_NS, 10**6, 10**3, 1)
        unit = next(
            unit
            for unit in units
            if all(not ((part - low) % unit).any() for part in stated)
        )
        bits = 1 + ((high - low) // unit).bit_length()
        if bits + max(1, nodes).bit_length() < 63:
            return cls(low, unit, bits)
        instants = distinct(np.concatenate(stated))
        return cls(low, 1, 1 + len(instants).bit_length(), instants)

    def ticks(self, ns: Whole) -> Whole:
        """The number of each instant, of those it was made for."""
        if len(self.instants):
            return np.searchsorted(self.instants, ns)
        return (ns - self.low) // self.unit

    def ns(self, ticks: Whole) -> Whole:
        """The instant of each number, nanoseconds."""
        if len(self.instants):
            return self.instants[np.minimum(ticks, len(self.instants) - 1)]
        return ticks * self.unit + self.low


@dataclass(frozen=True, slots=True)
class Spans:
    """Disjoint spans [begin, end) of nodes, ascending.

    Parameters
    ----------
    scale
        What turns instants into numbers.
    begins, ends
        Node << bits | instant.
    """

    scale: Scale
    begins: Whole = field(default_factory=lambda: _EMPTY)
    ends: Whole = field(default_factory=lambda: _EMPTY)

    @classmethod
    def of(cls, scale: Scale, node: Whole, begin_ns: Whole, end_ns: Whole) -> Spans:
        """Return the union of spans of nodes in any order; those that end where they begin, or before, are none."""
        some = end_ns > begin_ns
        above = node[some].astype(np.int64) << scale.bits
        return cls(
            scale,
            *union(
                above | scale.ticks(begin_ns[some]), above | scale.ticks(end_ns[some])
            ),
        )

    def __len__(self) -> int:
        return len(self.begins)

    def __or__(self, other: Spans) -> Spans:
        """The union of both."""
        if not (len(self) and len(other)):
            return self if len(self) else other
        return Spans(self.scale, *union(*self._with(other)))

    def __sub__(self, other: Spans) -> Spans:
        """What of these the others do not have."""
        return (other & self.hull()).gaps(self) if len(other) and len(self) else self

    def __and__(self, other: Spans) -> Spans:
        """What both have: where two of all begins are ahead of the ends."""
        begins, ends = self._with(other)
        at = np.concatenate([begins, ends])
        step = np.concatenate(
            [np.ones(len(begins), dtype=np.int8), np.full(len(ends), -1, dtype=np.int8)]
        )
        order = np.lexsort((step, at))
        at, depth = at[order], np.cumsum(step[order])
        inside = np.flatnonzero((depth == 2)[:-1] & (at[:-1] < at[1:]))
        return Spans(self.scale, at[inside], at[inside + 1])

    def _with(self, other: Spans) -> tuple[Whole, Whole]:
        return np.concatenate([self.begins, other.begins]), np.concatenate(
            [self.ends, other.ends]
        )

    def hull(self) -> Spans:
        """From the first begin to the last end of each node that has any."""
        first, last = self.firsts()
        return Spans(self.scale, self.begins[first], self.ends[last])

    def firsts(self) -> tuple[Whole, Whole]:
        """Places of the first and of the last span of each node that has any."""
        node = self.node
        changes = np.flatnonzero(node[1:] != node[:-1])
        if not len(node):
            return _EMPTY, _EMPTY
        return np.append(0, changes + 1), np.append(changes, len(node) - 1)

    def gaps(self, within: Spans) -> Spans:
        """What these leave of spans that cover all of these."""
        # An end of ours and the next begin, or a bound, are the ends of a gap.
        begins = np.concatenate([within.begins, self.ends])
        ends = np.concatenate([self.begins, within.ends])
        begins.sort(kind="stable")  # both parts are ascending, and merged
        ends.sort(kind="stable")
        some = begins < ends
        begins = begins[some]  # one after the other, as both may take much memory
        ends = ends[some]
        return Spans(self.scale, begins, ends)

    def clipped(self, start_ns: int, end_ns: int) -> Spans:
        """What of these lies within a window whose bounds the scale has."""
        low, high = self.scale.ticks(np.array([start_ns, end_ns])).tolist()
        above = self.begins >> self.scale.bits << self.scale.bits
        begins, ends = (
            np.maximum(self.begins, above | low),
            np.minimum(self.ends, above | high),
        )
        some = begins < ends
        return Spans(self.scale, begins[some], ends[some])

    def filled(self, gap_ns: int, start_ns: int, end_ns: int) -> tuple[Spans, int]:
        """The same without the gaps on a node that are shorter, and the time of these within a window, nanoseconds."""
        if len(self.scale.instants):
            return self, 0
        # Gaps between two nodes are longer than half of all instants.
        gone = self.begins[1:] - self.ends[:-1] < -(-gap_ns // self.scale.unit)
        low, high = self.scale.ticks(np.array([start_ns, end_ns])).tolist()
        mask, ticks = (1 << self.scale.bits) - 1, 0
        for part in np.array_split(np.flatnonzero(gone), 1 + len(gone) // _FEW):
            begins, ends = self.ends[part] & mask, self.begins[part + 1] & mask
            ticks += int((np.clip(ends, low, high) - np.clip(begins, low, high)).sum())
        begins = self.begins[np.append(True, ~gone)]
        return Spans(
            self.scale, begins, self.ends[np.append(~gone, True)]
        ), ticks * self.scale.unit

    def longer(self, by_ns: int) -> Spans:
        """Spans that end later; the scale has the later ends."""
        return Spans.of(self.scale, self.node, self.begin_ns, self.end_ns + by_ns)

    def where(self, rows: np.ndarray) -> Spans:
        """Some of them."""
        if rows.all():
            return self
        return Spans(self.scale, self.begins[rows], self.ends[rows])

    @property
    def node(self) -> Whole:
        """Node of each."""
        return self.begins >> self.scale.bits

    @property
    def begin_ns(self) -> Whole:
        """Begin of each, UTC nanoseconds."""
        return self.scale.ns(self.begins & ((1 << self.scale.bits) - 1))

    @property
    def end_ns(self) -> Whole:
        """End of each, UTC nanoseconds."""
        return self.scale.ns(self.ends & ((1 << self.scale.bits) - 1))

    @property
    def lengths_ns(self) -> Whole:
        """Length of each, nanoseconds."""
        if len(self.scale.instants):
            return self.end_ns - self.begin_ns
        return (self.ends - self.begins) * self.scale.unit

    def pauses_ns(self) -> Whole:
        """Time between two spans of one node, nanoseconds."""
        first, last = self.firsts()
        ends, begins = np.delete(self.ends, last), np.delete(self.begins, first)
        return Spans(self.scale, ends, begins).lengths_ns

    def total_ns(self) -> int:
        """Length of all together. In one sum, 64 bits of nanoseconds hold no more than 292 node-years."""
        if not len(self.scale.instants):
            return int((self.ends - self.begins).sum()) * self.scale.unit
        lengths = self.lengths_ns
        whole = int((lengths // SECOND_NS).sum()) * SECOND_NS
        return whole + int((lengths % SECOND_NS).sum())

    def next_begin(self, node: Whole, after_ns: Whole) -> Whole:
        """The first begin after an instant on each node, nanoseconds; -1 where there is none."""
        key = node.astype(np.int64) << self.scale.bits | self.scale.ticks(after_ns)
        at = np.searchsorted(self.begins, key, side="right")
        there = at < len(self.begins)
        at = np.minimum(at, max(0, len(self.begins) - 1))
        if not len(self.begins):
            return np.full(len(key), -1)
        there &= self.node[at] == node
        return np.where(there, self.begin_ns[at], -1)


def union(begins: Whole, ends: Whole) -> tuple[Whole, Whole]:
    """Where the i-th begin is after the (i-1)-th end, all spans before have ended, and another begins; sorts both."""
    begins.sort(kind="stable")  # what is sorted already is merged
    ends.sort(kind="stable")
    opens = np.append(True, begins[1:] > ends[:-1])[: len(begins)]
    begins = begins[opens]
    return begins, ends[np.append(opens[1:], True)[: len(ends)]]


def everywhere(scale: Scale, nodes: int, start_ns: int, end_ns: int) -> Spans:
    """The whole window on each of so many nodes."""
    node = np.arange(nodes, dtype=np.int64)
    return Spans.of(scale, node, np.full(nodes, start_ns), np.full(nodes, end_ns))


class Gathered:
    """The union of spans that come in parts; those that wait are united now and then, which saves memory."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._begins, self._ends = [_EMPTY], [_EMPTY]
        self._waiting = self.given = 0

    def add(self, node: Whole, begin: Whole, end: Whole) -> None:
        """Take spans of nodes; begins and ends in ticks."""
        some = begin < end
        if not some.all():
            node, begin, end = node[some], begin[some], end[some]
        above = node << self._scale.bits
        self._begins.append(above | begin)
        self._ends.append(above | end)
        self._waiting += len(above)
        self.given += len(some)
        if self._waiting > max(_MANY, len(self._begins[0]) // 2):
            self.spans()

    def spans(self) -> Spans:
        """Unite all that came so far."""
        begins, ends = union(_emptied(self._begins), _emptied(self._ends))
        self._begins, self._ends, self._waiting = [begins], [ends], 0
        return Spans(self._scale, begins, ends)


def _emptied(parts: list[Whole]) -> Whole:
    """Return parts as one, and empty their list: each may take a good share of the memory."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole
