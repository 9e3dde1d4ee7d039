"""Parts of node traces and of their walltimes, several made one, and names that may be shown to others."""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.trace.node_trace import (
    IndexArray,
    NodeTrace,
    TimeArray,
    consecutive,
    from_fragments,
)
from bft.replay.trace.trace_statistics import fragments, iso
from bft.replay.trace.uncertainty import together
from bft.replay.trace.walltimes import NEVER, Walltimes, from_rows

# Number of hexadecimal digits of a keyed hash that make a name: two of a million nodes have the same with a chance of
# 2e-3, and then `anonymised` refuses.
_DIGITS = 12
MIN_KEY = 16
# Whether it is a reservation, known, start, expected end, count, names of nodes: all of a row but its end.
_Row: TypeAlias = tuple[bool, int, int, int, int, tuple[str, ...]]


def cut(trace: NodeTrace, start: int | None, end: int | None) -> NodeTrace:
    """Return the part of a trace that lies in a window; nodes idle when it begins turn idle then.

    Parameters
    ----------
    trace
        The whole.
    start, end
        UTC nanoseconds; None: the trace's own.

    Raises
    ------
    InputError
        When the window is empty, or reaches beyond what was observed.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> cut(always_idle(2, 0, 60 * 10**9), 10 * 10**9, None).idle_node_seconds()
    100.0
    """
    first, last = (
        trace.start if start is None else start,
        trace.end if end is None else end,
    )
    window = f"the window {iso(first)} to {iso(last)}"
    if first >= last:
        raise InputError(f"{window} is empty", file=trace.source or None)
    if first < trace.start or last > trace.end:
        known = f"the trace was observed from {iso(trace.start)} to {iso(trace.end)}"
        raise InputError(
            f"{window} reaches beyond the trace", file=trace.source or None, hint=known
        )
    idle = fragments(trace)
    begins, ends = np.maximum(idle.start_ns, first), np.minimum(idle.end_ns, last)
    some = begins < ends
    made = from_fragments(
        trace.nodes,
        idle.node[some],
        begins[some],
        ends[some],
        first,
        last,
        units_per_node=trace.units_per_node,
        node_units=trace.node_units,
    )
    return described(made, trace)


def with_nodes(trace: NodeTrace, names: Collection[str]) -> NodeTrace:
    """The trace of some nodes alone, in their order in the trace.

    Raises
    ------
    InputError
        When a name is not one of the trace's nodes, or no name is given.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> with_nodes(always_idle(3, 0, 10**9), ["n00002", "n00000"]).nodes
    ('n00000', 'n00002')
    """
    wanted = set(names)
    kept = [place for place, name in enumerate(trace.nodes) if name in wanted]
    strangers = sorted(wanted - set(trace.nodes))
    if strangers:
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        has = (
            f"it has {len(trace.nodes)}, such as {trace.nodes[0]}"
            if trace.nodes
            else "it has none"
        )
        raise InputError(
            f"no node {strangers[0]}{more}", file=trace.source or None, hint=has
        )
    if not kept:
        raise InputError("no node is left", file=trace.source or None)
    place = np.full(len(trace.nodes), -1, dtype=np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    idle = fragments(trace)
    slot = _moved(idle.node, place, trace)
    some = slot >= 0
    chosen = [trace.nodes[k] for k in kept]
    units = (
        None if trace.node_units is None else tuple(trace.node_units[k] for k in kept)
    )
    made = from_fragments(
        chosen, slot[some], idle.start_ns[some], idle.end_ns[some], trace.start, trace.end,
        units_per_node=trace.units_per_node, node_units=units,
    )  # fmt: skip
    return described(made, trace)


def merged(traces: Sequence[NodeTrace]) -> NodeTrace:
    """Traces of one machine, one after the other, as one trace.

    Where one ends when the next begins, a node idle in both stays idle. Between windows nothing is known, so that no
    node is idle; a note states how long. The nodes are those of all traces, in order of their first appearance; a note
    states how many are not in all of them.

    Raises
    ------
    InputError
        When there is no trace, when windows overlap, when nodes differ in their number of units, or when the traces are
        of different machines: they state different names, or two that follow one another have no node in common.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> one, two = (always_idle(1, start * 10**9, (start + 60) * 10**9) for start in (0, 60))
    >>> len(merged([two, one])), merged([two, one]).idle_node_seconds()
    (1, 120.0)
    """
    if not traces:
        raise InputError("no trace to merge")
    order = sorted(traces, key=lambda trace: (trace.start, trace.end))
    if len({(trace.units_per_node, trace.by_unit) for trace in order}) > 1:
        raise InputError(
            "the traces differ in the units of a node", file=order[0].source or None
        )
    _check_machine(order)
    units: dict[str, int] = {}
    for trace in order:
        for name, count in zip(trace.nodes, trace.node_units or (), strict=False):
            if units.setdefault(name, count) != count:
                raise InputError(
                    f"the traces differ in the units of node {name}",
                    file=trace.source or None,
                )
    unknown_ns = 0
    for before, after in pairwise(order):
        if after.start < before.end:
            raise InputError(
                f"begins at {iso(after.start)}, before {before.source or 'the one before it'} ends ({iso(before.end)})",
                file=after.source or None,
                hint="bft-replay trace slice cuts a window out of a trace",
            )
        unknown_ns += after.start - before.end
    names = {
        name: place
        for place, name in enumerate(
            dict.fromkeys(n for trace in order for n in trace.nodes)
        )
    }
    columns = []
    for trace in order:
        idle = fragments(trace)
        place = np.array([names[name] for name in trace.nodes], dtype=np.int32)
        columns.append((_moved(idle.node, place, trace), idle.start_ns, idle.end_ns))
    node, begins, ends = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
    by_node = np.lexsort((begins, node))
    node, begins, ends = node[by_node], begins[by_node], ends[by_node]
    # A fragment that begins at the end of the previous one on its node continues it.
    goes_on = np.zeros(len(node), dtype=bool)
    goes_on[1:] = (node[1:] == node[:-1]) & (begins[1:] == ends[:-1])
    first = np.flatnonzero(~goes_on)
    last = np.append(first[1:], len(node))[: len(first)] - 1
    made = from_fragments(
        list(names), node[first], begins[first], ends[last], order[0].start, order[-1].end,
        units_per_node=order[0].units_per_node,
        node_units=tuple(units[name] for name in names) if order[0].by_unit else None,
    )  # fmt: skip
    notes = tuple(note for trace in order for note in trace.notes)
    if unknown_ns:
        hours, share = (
            unknown_ns / 3.6e12,
            unknown_ns / (order[-1].end - order[0].start),
        )
        notes += (
            f"{hours:.4g} hours between the windows of the merged traces, {share:.0%} of the whole, were not observed: "
            "no node is idle",
        )
    in_all = len(set(names).intersection(*(trace.nodes for trace in order)))
    if in_all < len(names):
        notes += (
            f"{len(names) - in_all:,} of {len(names):,} nodes are not in all of the merged traces",
        )
    source = ", ".join(trace.source for trace in order if trace.source)
    altered = "; ".join(
        dict.fromkeys(trace.altered for trace in order if trace.altered)
    )
    assumptions = dict.fromkeys(text for trace in order for text in trace.assumptions)
    return replace(
        described(made, order[0]),
        notes=notes,
        source=source,
        altered=altered,
        uncertain=together(
            [(each.uncertain, len(each.nodes) * each.duration_s) for each in order]
        ),
        assumptions=tuple(assumptions),
    )


def _check_machine(order: Sequence[NodeTrace]) -> None:
    """Refuse traces that are not of one machine."""
    named = [trace for trace in order if trace.machine]
    for trace in named:
        if trace.machine != named[0].machine:
            raise InputError(
                f"is of the machine {trace.machine}, {named[0].source or 'another one'} of {named[0].machine}",
                file=trace.source or None,
                hint="traces of one machine are merged; ingest --machine names it",
            )
    for before, after in pairwise(order):
        if before.nodes and after.nodes and not set(before.nodes) & set(after.nodes):
            raise InputError(
                f"has no node in common with {before.source or 'the one before it'}: {after.nodes[0]}, ... and "
                f"{before.nodes[0]}, ...",
                file=after.source or None,
                hint="traces of one machine are merged",
            )


def anonymised(trace: NodeTrace, key: bytes) -> NodeTrace:
    """The trace with nodes named by a keyed hash, and without machine, source, notes, assumptions and time zone.

    Nodes come in the order of their new names, so that their places in a public list of nodes say nothing. Times stay:
    somebody who knows when a node was idle recognises it. The same key gives a node the same name in every trace.

    Raises
    ------
    InputError
        When the key is shorter than 16 bytes, or two names have one hash.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> anonymised(always_idle(2, 0, 10**9), b"sixteen bytes or more").nodes
    ('n01cb108a5288', 'n82bfd4ea84b4')
    """
    names = keyed_names(trace.nodes, key)
    order = sorted(range(len(names)), key=names.__getitem__)
    shuffled = _reordered(trace, order)
    new_names = tuple(names[node] for node in order)
    return replace(
        shuffled,
        nodes=new_names,
        machine="",
        source="",
        notes=(),
        assumptions=(),
        zone="",
    )


def _reordered(trace: NodeTrace, order: Sequence[int]) -> NodeTrace:
    """The trace with its nodes in another order, given as their places in this one."""
    place = np.empty(len(order), dtype=np.int32)
    place[list(order)] = np.arange(len(order), dtype=np.int32)

    def moved(slots: IndexArray, at: TimeArray) -> IndexArray:
        event = np.repeat(np.arange(len(trace)), np.diff(at))
        new = _moved(slots, place, trace)
        return new[np.lexsort((new, event))]

    units, kinds = trace.node_units, trace.kinds
    return replace(
        trace,
        nodes=tuple(trace.nodes[node] for node in order),
        joined=moved(trace.joined, trace.joined_at),
        left=moved(trace.left, trace.left_at),
        node_units=None if units is None else tuple(units[node] for node in order),
        kinds=tuple(kinds[node] for node in order) if kinds else (),
    )


def keyed_names(names: Sequence[str], key: bytes) -> tuple[str, ...]:
    """Keyed hashes (HMAC-SHA256) in the place of names of nodes; InputError as `anonymised`.

    >>> keyed_names(["n00000"], b"sixteen bytes or more")
    ('n01cb108a5288',)
    """
    if len(key) < MIN_KEY:
        raise InputError(
            f"a key of {len(key)} bytes can be guessed; expected {MIN_KEY} or more"
        )
    hashes = (
        hmac.new(
            key, name.encode("utf-8", "surrogateescape"), hashlib.sha256
        ).hexdigest()
        for name in names
    )
    made = tuple(f"n{digits[:_DIGITS]}" for digits in hashes)
    if len(set(made)) < len(made):
        raise InputError("two nodes have one hash; take another key")
    return made


def _moved(slots: IndexArray, place: IndexArray, trace: NodeTrace) -> IndexArray:
    """Nodes, or units of nodes, of a trace in another one where each node has a new place; -1: it has none."""
    if not len(slots):
        return slots
    if not trace.by_unit:
        return place[slots]
    per = np.int32(trace.units_per_node)
    node, unit = np.divmod(slots, per)
    return np.where(place[node] < 0, np.int32(-1), place[node] * per + unit)


def described(made: NodeTrace, of: NodeTrace) -> NodeTrace:
    """A trace with another's words for people."""
    return replace(
        made,
        machine=of.machine,
        source=of.source,
        notes=of.notes,
        altered=of.altered,
        uncertain=of.uncertain,
        assumptions=of.assumptions,
        zone=of.zone,
    )


# --- walltimes beside a trace ---------------------------------------------------------------------------------------


def cut_walltimes(walltimes: Walltimes, start: int, end: int) -> Walltimes:
    """The rows that count inside a window, as they are: what was known, and was not over when it begins.

    Parameters
    ----------
    walltimes
        The whole.
    start, end
        UTC nanoseconds.

    Examples
    --------
    >>> from bft.replay.trace.walltimes import from_rows
    >>> jobs = from_rows([("job", 0, 10, 60, 100, 1, ("n0",)), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
    >>> len(cut_walltimes(jobs, 0, 60)), len(cut_walltimes(jobs, 60, 90))
    (2, 1)
    """
    return _rows(
        walltimes, np.flatnonzero((walltimes.known <= end) & (walltimes.end > start))
    )


def walltimes_with_nodes(walltimes: Walltimes, names: Collection[str]) -> Walltimes:
    """Return walltimes of some nodes as if these were a machine of their own: jobs count with their nodes among them.

    Jobs that never began name no nodes, and are left out.

    Raises
    ------
    InputError
        When jobs that began name no nodes, as those of a log that only counts them.

    Examples
    --------
    >>> from bft.replay.trace.walltimes import from_rows
    >>> jobs = from_rows([("job", 0, 10, 60, 100, 2, ("n0", "n1")), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
    >>> walltimes_with_nodes(jobs, ["n1"]).count.tolist()
    [1]
    """
    began = walltimes.start < NEVER
    sizes = np.diff(walltimes.offsets)
    nameless = began & (sizes == 0) & (walltimes.count > 0)
    if nameless.any():
        message = "walltimes: a job that began names no nodes, so that those of some nodes are not known"
        raise InputError(message, row=int(np.argmax(nameless)) + 1)
    wanted = set(names)
    chosen = np.array([name in wanted for name in walltimes.names], dtype=bool)[
        walltimes.nodes
    ]
    row = np.repeat(np.arange(len(walltimes)), sizes)
    counts = np.bincount(row[chosen], minlength=len(walltimes))
    kept = np.concatenate([[0], np.cumsum(counts)])
    some = replace(
        walltimes,
        nodes=walltimes.nodes[chosen],
        offsets=kept,
        count=np.where(began, counts, 0),
    )
    return _rows(some, np.flatnonzero(counts))


def merged_walltimes(pairs: Sequence[tuple[Walltimes, NodeTrace]]) -> Walltimes:
    """Merge walltimes of traces of one machine whose windows follow one another, each with its trace, in any order.

    A row that several state counts once, with the end that the last of them states. What had not ended when a trace
    did, and no later one states, counts until the end of that trace. A job that waits in one and has begun in a later
    one counts as that one states it.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> from bft.replay.trace.walltimes import from_rows
    >>> one, two = (always_idle(1, start, start + 60) for start in (0, 60))
    >>> runs, ended = (from_rows([("job", 0, 10, end, 100, 1, ("n00000",))]) for end in (NEVER, 90))
    >>> merged_walltimes([(ended, two), (runs, one)]).end.tolist()
    [90]
    """
    rows: dict[
        tuple[_Row, int], tuple[int, int]
    ] = {}  # end, and the end of the last window in which it is stated
    for walltimes, trace in sorted(
        pairs, key=lambda pair: (pair[1].start, pair[1].end)
    ):
        ends_by_row = defaultdict(list)
        for row, end in _each(walltimes):
            ends_by_row[row].append(end)
        _forget_begun(rows, ends_by_row)
        for row, ends in ends_by_row.items():
            # Of jobs that are alike the last to end are those that the next window has too.
            rows.update(
                ((row, rank), (end, trace.end))
                for rank, end in enumerate(sorted(ends, reverse=True))
            )
    last = max((trace.end for _, trace in pairs), default=0)
    made = []
    for (row, _), (end, until) in rows.items():
        reserved, known, start, expected, count, nodes = row
        begin = known if start == NEVER else start
        if end == NEVER and until < last and not reserved and begin < until:
            end = until
        made.append(
            (
                "reservation" if reserved else "job",
                known,
                start,
                end,
                expected,
                count,
                nodes,
            )
        )
    made.sort(
        key=lambda row: (row[1], row[0] == "reservation", row[2], row[5], row[6])
    )  # as ingest has them
    return from_rows(made)


def _forget_begun(
    rows: dict[tuple[_Row, int], tuple[int, int]], later: Mapping[_Row, Sequence[int]]
) -> None:
    """Forget jobs that wait in the windows so far, and that a later window states as begun.

    Files name no jobs: a job is found again by since when it was known, of several by the number of its nodes.
    """
    begun = defaultdict(list)
    for row, ends in later.items():
        reserved, known, start, _, count, _ = row
        if not reserved and start < NEVER and (row, 0) not in rows:
            begun[known].extend([count] * len(ends))
    for same_count in (True, False):
        for row, rank in sorted(rows, key=lambda entry: entry[1], reverse=True):
            reserved, known, start, _, count, _ = row
            counts = begun.get(known)
            waits = start == NEVER and rows[row, rank][0] == NEVER
            # Ranks of equal rows stay without gaps: the last one goes first.
            if reserved or not counts or not waits or rank < len(later.get(row, ())):
                continue
            if count in counts:
                counts.remove(count)
                del rows[row, rank]
            elif not same_count:
                counts.pop()
                del rows[row, rank]


def _each(walltimes: Walltimes) -> Iterator[tuple[_Row, int]]:
    """Yield each row and its end."""
    names = (
        tuple(walltimes.names[node] for node in walltimes.nodes[low:high].tolist())
        for low, high in pairwise(walltimes.offsets.tolist())
    )
    columns = (
        walltimes.reserved,
        walltimes.known,
        walltimes.start,
        walltimes.expected_end,
        walltimes.count,
    )
    rows = zip(*(column.tolist() for column in columns), names, strict=True)
    return zip(rows, walltimes.end.tolist(), strict=True)


def anonymised_walltimes(walltimes: Walltimes, key: bytes) -> Walltimes:
    """Return walltimes with the node names that `anonymised` gives with the same key.

    Raises
    ------
    InputError
        As `anonymised`.

    Examples
    --------
    >>> from bft.replay.trace.walltimes import from_rows
    >>> jobs = from_rows([("job", 0, 10, 60, 100, 1, ("n00000",))])
    >>> anonymised_walltimes(jobs, b"sixteen bytes or more").names
    ('n01cb108a5288',)
    """
    return replace(walltimes, names=keyed_names(walltimes.names, key))


def _rows(walltimes: Walltimes, rows: NDArray[np.int64]) -> Walltimes:
    """Return selected rows, with the names of nodes that they need."""
    sizes = np.diff(walltimes.offsets)[rows]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    places = consecutive(walltimes.offsets[:-1][rows], sizes)
    used, nodes = np.unique(walltimes.nodes[places], return_inverse=True)
    return Walltimes(
        tuple(walltimes.names[node] for node in used.tolist()),
        walltimes.reserved[rows],
        known=walltimes.known[rows],
        start=walltimes.start[rows],
        end=walltimes.end[rows],
        expected_end=walltimes.expected_end[rows],
        count=walltimes.count[rows],
        nodes=nodes.astype(np.int32),
        offsets=offsets,
    )
