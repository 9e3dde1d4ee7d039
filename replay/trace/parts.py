"""Parts of node traces with their host jobs, several made one, and names that may be shown to others."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models import InputError
from bft.replay.trace.host_jobs import NEVER, HostJobs, from_rows
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, from_changes
from bft.replay.trace.trace_statistics import fragments, iso
from bft.replay.trace.uncertainty import together

if TYPE_CHECKING:
    import pandas as pd

# Number of hexadecimal digits of a keyed hash that make a name: two of a million nodes have the same with a chance of
# 2e-3, and then `anonymised` refuses.
_DIGITS = 12
MIN_KEY = 16
# All of a row of host jobs but its end.
_ROW = ["reserved", "known", "start", "expected_end", "count", "nodes"]


def cut(trace: NodeTrace, start: int | None, end: int | None) -> NodeTrace:
    """Return the part of a trace that lies in a window; nodes idle when it begins turn idle then.

    Of the host jobs those stay that count inside the window; which share of it jobs ran is not known without them.

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
    made = trace.with_fragments(idle.node[some], begins[some], ends[some], first, last)
    jobs = trace.host_jobs
    return replace(
        made,
        host_jobs=None if jobs is None else jobs.within(first, last),
        busy_share=None,
        unavailable_share=None,
    )


def with_nodes(trace: NodeTrace, names: Collection[str]) -> NodeTrace:
    """The trace of some nodes alone, in their order in the trace, as a machine of its own.

    Host jobs count with their nodes among these ; a note says how many name none.

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
    made = replace(trace.of_nodes(kept), busy_share=None, unavailable_share=None)
    if trace.host_jobs is None:
        return made
    jobs, notes = trace.host_jobs.with_nodes(made.nodes), trace.notes
    nameless = int((~trace.host_jobs.reserved & (trace.host_jobs.sizes == 0)).sum())
    if nameless:
        notes += (
            f"{nameless:,} host jobs name no nodes, most of them as they never began: they are left out",
        )
    return replace(
        made, host_jobs=jobs if trace.host_jobs.names_nodes else None, notes=notes
    )


def of_class(trace: NodeTrace, name: str) -> NodeTrace:
    """The trace of the nodes of one class: by its full name, or the part before or after the slash in gpu/debug.

    Raises
    ------
    InputError
        When the trace states no classes, or has no node of this one.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> trace = replace(always_idle(3, 0, 10**9), classes=("gpu/debug", "gpu/main", "cpu"))
    >>> of_class(trace, "gpu").nodes, of_class(trace, "main").nodes
    (('n00000', 'n00001'), ('n00001',))
    """
    if not trace.classes:
        raise InputError(
            "--node-class: the trace states no classes of nodes",
            file=trace.source or None,
            hint="a list of nodes states them: bft-replay ingest --nodes",
        )
    named = [(each, *each.split("/", 1)) for each in trace.classes]
    chosen = [
        node for node, names in zip(trace.nodes, named, strict=True) if name in names
    ]
    if not chosen:
        known = ", ".join(dict.fromkeys(trace.classes))
        raise InputError(
            f"--node-class: no node is of the class {name!r}; there are {known}",
            file=trace.source or None,
        )
    return with_nodes(trace, chosen)


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
    if len(traces) == 1:
        return traces[0]
    order = sorted(traces, key=lambda trace: (trace.start, trace.end))
    first, last = order[0], order[-1]
    for before, after in pairwise(order):
        _check_follows(before, after)
    names = {name: None for trace in order for name in trace.nodes}
    nodes = {name: place for place, name in enumerate(names)}
    parts = []
    for trace in order:
        idle, per = fragments(trace), trace.units_per_node if trace.by_unit else 1
        place = np.array([nodes[name] for name in trace.nodes], dtype=np.int32)
        slot = place[idle.node // per] * per + idle.node % per
        parts.append((slot, idle.start_ns, idle.end_ns))
    node, begins, ends = (np.concatenate(part) for part in zip(*parts, strict=True))
    # A fragment that begins at the end of the previous one on its node continues it: of rows of one time the last
    # counts.
    closed = ends < last.end
    times = np.concatenate([ends[closed], begins])
    order_of_time = np.argsort(times, kind="stable")
    made = from_changes(
        tuple(nodes),
        times[order_of_time],
        np.concatenate([node[closed], node])[order_of_time],
        (np.arange(len(times)) >= closed.sum())[order_of_time],
        start=first.start,
        end=last.end,
        units_per_node=first.units_per_node,
    )

    def of_each(field: str) -> tuple[Any, ...]:
        pairs = (zip(t.nodes, getattr(t, field) or (), strict=False) for t in order)
        known = dict(pair for each in pairs for pair in each)
        return tuple(known[name] for name in nodes) if len(known) == len(nodes) else ()

    jobs = [(trace.host_jobs, trace) for trace in order]
    known = [(some, trace) for some, trace in jobs if some is not None]
    return replace(
        made,
        machine=next((trace.machine for trace in order if trace.machine), ""),
        zone=first.zone,
        notes=tuple(_merging_notes(order, len(nodes), len(known))),
        source=", ".join(filter(None, (trace.source for trace in order))),
        altered="; ".join(dict.fromkeys(t.altered for t in order if t.altered)),
        uncertain=together(
            [(each.uncertain, len(each.nodes) * each.duration_s) for each in order]
        ),
        assumptions=tuple(dict.fromkeys(text for t in order for text in t.assumptions)),
        node_units=of_each("node_units") if first.by_unit else None,
        classes=of_each("classes"),
        host_jobs=merged_host_jobs(known) if len(known) == len(order) else None,
    )


def _check_follows(before: NodeTrace, after: NodeTrace) -> None:
    """Refuse traces that are not of one machine, or whose windows overlap."""
    name, hint = (
        before.source or "the one before it",
        "traces of one machine are merged",
    )
    if after.start < before.end:
        why = f"begins at {iso(after.start)}, before {name} ends ({iso(before.end)})"
        hint = "bft-replay trace cut --from cuts off what both have"
    elif before.machine and after.machine and before.machine != after.machine:
        why = f"is of the machine {after.machine}, {name} of {before.machine}"
    elif before.nodes and after.nodes and not set(before.nodes) & set(after.nodes):
        why = f"has no node in common with {name}: {after.nodes[0]}, ... and {before.nodes[0]}, ..."
    elif (before.units_per_node, before.by_unit) != (
        after.units_per_node,
        after.by_unit,
    ):
        why = f"differs from {name} in the units of a node"
    else:
        return
    raise InputError(why, file=after.source or None, hint=hint)


def _merging_notes(
    order: Sequence[NodeTrace], nodes: int, with_jobs: int
) -> Iterator[str]:
    """Yield notes of traces that are merged, and on what is not known."""
    yield from (note for trace in order for note in trace.notes)
    span_s = (order[-1].end - order[0].start) / SECOND_NS
    unknown_s = span_s - math.fsum(trace.duration_s for trace in order)
    if unknown_s > 0:
        yield (
            f"{unknown_s / 3600:.4g} hours between the windows of the merged traces, {unknown_s / span_s:.0%} of the "
            "whole, were not observed: no node is idle"
        )
    in_all = len(set(order[0].nodes).intersection(*(trace.nodes for trace in order)))
    if in_all < nodes:
        yield (
            f"{nodes - in_all:,} of {nodes:,} nodes are not in all of the merged traces"
        )
    if 0 < with_jobs < len(order):
        yield (
            f"host jobs are known of {with_jobs} of the {len(order)} merged traces: they are left out"
        )


def anonymised(trace: NodeTrace, key: bytes) -> NodeTrace:
    """The trace with nodes named by a keyed hash, and without machine, source, notes, assumptions and time zone.

    Host jobs name them so too. Nodes come in the order of their new names, so that their places in a public list of
    nodes say nothing. Times stay:
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
    names, jobs = keyed_names(trace.nodes, key), trace.host_jobs
    order = sorted(range(len(names)), key=names.__getitem__)
    return replace(
        trace.of_nodes(order),
        nodes=tuple(names[node] for node in order),
        machine="",
        source="",
        notes=(),
        assumptions=(),
        zone="",
        host_jobs=None
        if jobs is None
        else replace(jobs, names=keyed_names(jobs.names, key)),
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


# --- host jobs --------------------------------------------------------------------------------------------------------


def merged_host_jobs(pairs: Sequence[tuple[HostJobs, NodeTrace]]) -> HostJobs:
    """Merge host jobs of traces of one machine whose windows follow one another, each with its trace, in any order.

    A row that several state counts once, with the end that the last of them states. What had not ended when a trace
    did, and no later one states, counts until the end of that trace. A job that waits in one and has begun in a later
    one counts as that one states it.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> from bft.replay.trace.host_jobs import from_rows
    >>> one, two = (always_idle(1, start, start + 60) for start in (0, 60))
    >>> runs, ended = (from_rows([("job", 0, 10, end, 100, 1, ("n00000",))]) for end in (NEVER, 90))
    >>> merged_host_jobs([(ended, two), (runs, one)]).end.tolist()
    [90]
    """
    import pandas as pd

    tables = []
    for number, (jobs, trace) in enumerate(sorted(pairs, key=_window_of)):
        table = _table(jobs).assign(window=number, until=trace.end)
        # Of jobs that are alike the last to end are those that the next window has too.
        table = table.sort_values("end", ascending=False, kind="stable")
        rank = table.groupby(_ROW, sort=False).cumcount()
        tables.append(table.assign(rank=rank))
    rows = pd.concat(tables, ignore_index=True)
    rows["first"] = rows.groupby(_ROW, sort=False)["window"].transform("min")
    rows = rows.drop_duplicates([*_ROW, "rank"], keep="last")
    rows = rows[~_begun_later(rows)]
    since = rows["known"].where(rows["start"] == NEVER, rows["start"])
    open_ = ~rows["reserved"] & (rows["end"] == NEVER) & (since < rows["until"])
    not_told = open_ & (rows["until"] < rows["until"].max())
    rows["end"] = rows["end"].mask(not_told, rows["until"])
    # As ingest has them.
    rows = rows.sort_values(["known", "reserved", "start", "count", "nodes"])
    kind = rows["reserved"].map({True: "reservation", False: "job"})
    columns = (
        rows[name]
        for name in ("known", "start", "end", "expected_end", "count", "nodes")
    )
    return from_rows(list(zip(kind, *columns, strict=True)))


def _window_of(pair: tuple[HostJobs, NodeTrace]) -> tuple[int, int]:
    return pair[1].start, pair[1].end


def _table(jobs: HostJobs) -> pd.DataFrame:
    """The rows as a table, with names of nodes."""
    import pandas as pd

    names = [jobs.names[node] for node in jobs.nodes.tolist()]
    bounds = pairwise(jobs.offsets.tolist())
    columns = {name: getattr(jobs, name) for name in (*_ROW[:-1], "end")}
    return pd.DataFrame({**columns, "nodes": [tuple(names[a:b]) for a, b in bounds]})


def _begun_later(rows: pd.DataFrame) -> pd.Series:
    """Tell which rows are jobs that wait, and that a later window states as begun.

    Files name no jobs: a job is found again by since when it was known, and the number of its nodes.
    """
    import pandas as pd

    jobs, keys = rows[~rows["reserved"]], ["known", "count"]
    waits = jobs[(jobs["start"] == NEVER) & (jobs["end"] == NEVER)]
    begun = jobs[(jobs["start"] < NEVER) & (jobs["first"] > 0)].sort_values("first")
    waits, begun = (
        some.assign(nth=some.groupby(keys).cumcount()).reset_index()
        for some in (waits.sort_values("window"), begun)
    )
    met = waits.merge(begun, on=[*keys, "nth"])
    met = met[met["first_y"] > met["window_x"]]
    return pd.Series(rows.index.isin(met["index_x"]), index=rows.index)
