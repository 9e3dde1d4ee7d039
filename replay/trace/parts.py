"""Parts of node traces, several made one, and names that may be shown to others."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypedDict

import numpy as np

from bft.models import InputError
from bft.replay.trace.node_trace import IndexArray, NodeTrace, from_fragments
from bft.replay.trace.trace_statistics import fragments, iso
from bft.replay.trace.uncertainty import together

# Number of hexadecimal digits of a keyed hash that make a name: two of a million nodes have the same with a chance of
# 2e-3, and then `anonymised` refuses.
_DIGITS = 12
MIN_KEY = 16


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
        **units_of(trace),
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

    The order of nodes stays, so that replays give the same numbers; it may reveal which nodes are neighbours. Times
    stay too. The same key gives a node the same name in every trace.

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
    nodes = keyed_names(trace.nodes, key)
    return replace(
        trace,
        nodes=nodes,
        machine="",
        source="",
        notes=(),
        assumptions=(),
        zone="",
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


class Units(TypedDict):
    """The arguments of `from_fragments` that say what turns idle."""

    units_per_node: int
    node_units: tuple[int, ...] | None


def units_of(trace: NodeTrace) -> Units:
    """Return the units of a trace as arguments for another trace of the same nodes."""
    return {"units_per_node": trace.units_per_node, "node_units": trace.node_units}


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
