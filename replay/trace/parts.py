"""Parts of node traces with their host jobs, several made one, and names that may be shown to others."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models import InputError
from bft.replay.trace.host_jobs import COLUMNS, NEVER, HostJobs, from_rows
from bft.replay.trace.node_trace import (
    SECOND_NS,
    NodeTrace,
    fragment_events,
    from_changes,
)
from bft.replay.trace.trace_statistics import fragments, iso
from bft.replay.trace.uncertainty import together

if TYPE_CHECKING:
    import pandas as pd

# Number of hexadecimal digits of a keyed hash that make a name: two of a million nodes have the same with a chance of
# 2e-3, and then `anonymised` refuses.
_DIGITS = 12
_MIN_KEY = 16
# All of a row of host jobs but its end.
_ROW = [*(name for name in COLUMNS if name != "end"), "nodes"]


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
    start = trace.start if start is None else start
    end = trace.end if end is None else end
    window = f"the window {iso(start)} to {iso(end)}"
    if start >= end:
        raise trace.error(f"{window} is empty")
    if start < trace.start or end > trace.end:
        known = f"the trace was observed from {iso(trace.start)} to {iso(trace.end)}"
        raise trace.error(f"{window} reaches beyond the trace", known)
    idle, jobs = fragments(trace).within(start, end), trace.host_jobs
    events = fragment_events(idle.node, idle.start_ns, idle.end_ns, end)
    if jobs is not None:
        jobs = jobs.take(np.flatnonzero((jobs.known <= end) & (jobs.end > start)))
    return replace(
        trace,
        **events,
        start=start,
        end=end,
        host_jobs=jobs,
        busy_share=None,
        unavailable_share=None,
    )


def with_nodes(trace: NodeTrace, names: Collection[str]) -> NodeTrace:
    """The trace of some nodes alone, in their order in the trace, as a machine of its own.

    Host jobs count with their nodes among these; a note says how many name none.

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
    if strangers := sorted(wanted - set(trace.nodes)):
        more = f" and {len(strangers) - 1} more" if len(strangers) > 1 else ""
        has = f"it has {len(trace.nodes)}, such as {', '.join(trace.nodes[:1])}"
        raise trace.error(f"no node {strangers[0]}{more}", has)
    if not wanted:
        raise trace.error("no node is left")
    kept = [number for number, name in enumerate(trace.nodes) if name in wanted]
    jobs, notes = trace.host_jobs, trace.notes
    if jobs is not None:
        nameless = int((~jobs.reserved & (jobs.sizes == 0)).sum())
        if nameless:
            left_out = "host jobs name no nodes, most of them as they never began: they are left out"
            notes += (f"{nameless:,} {left_out}",)
        is_wanted = np.array([name in wanted for name in jobs.names], dtype=bool)
        chosen = is_wanted[jobs.nodes]
        row = np.repeat(np.arange(len(jobs)), jobs.sizes)[chosen]
        counts = np.bincount(row, minlength=len(jobs))
        offsets = np.append(0, np.cumsum(counts))
        nodes = jobs.nodes[chosen]
        some = replace(jobs, nodes=nodes, offsets=offsets, count=counts)
        jobs = some.take(np.flatnonzero(counts)) if jobs.names_nodes else None
    return replace(
        trace.of_nodes(kept),
        host_jobs=jobs,
        notes=notes,
        busy_share=None,
        unavailable_share=None,
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
        raise trace.error(
            "--node-class: the trace states no classes of nodes",
            "a list of nodes states them: bft-replay ingest --nodes",
        )
    chosen = [
        node
        for node, each in zip(trace.nodes, trace.classes, strict=True)
        if name in (each, *each.split("/", 1))
    ]
    if not chosen:
        known = ", ".join(dict.fromkeys(trace.classes))
        raise trace.error(
            f"--node-class: no node is of the class {name!r}; there are {known}"
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
    for before, after in pairwise(order):
        _check_follows(before, after)
    first, last = order[0], order[-1]
    names = dict.fromkeys(name for trace in order for name in trace.nodes)
    number = {name: position for position, name in enumerate(names)}
    per, parts = first.slots_per_node, []
    for trace in order:
        idle = fragments(trace)
        place = np.array([number[name] for name in trace.nodes], dtype=np.int32)
        slot = place[idle.node // per] * per + idle.node % per
        parts.append((slot, idle.start_ns, idle.end_ns))
    slot, begins, ends = (np.concatenate(part) for part in zip(*parts, strict=True))
    closed = ends < last.end

    fields: dict[str, Any] = {}
    for field in ("machine", "source", "altered"):
        texts = (getattr(trace, field) for trace in order)
        fields[field] = "; ".join(dict.fromkeys(filter(None, texts)))
    for field in ("node_units", "classes"):
        of_node: dict[str, Any] = {}
        for trace in order:
            values = getattr(trace, field) or ()
            of_node |= dict(zip(trace.nodes, values, strict=False))
        if of_node and len(of_node) == len(names):
            fields[field] = tuple(of_node[name] for name in names)
    doubts = [(each.uncertain, len(each.nodes) * each.duration_s) for each in order]
    with_jobs = sum(trace.host_jobs is not None for trace in order)
    made = from_changes(
        tuple(names),
        # A fragment that begins at the end of the previous one on its node continues it: the last row counts.
        np.concatenate([ends[closed], begins]),
        np.concatenate([slot[closed], slot]),
        np.repeat([False, True], [closed.sum(), len(slot)]),
        start=first.start,
        end=last.end,
        units_per_node=first.units_per_node,
        **fields,
        zone=first.zone,
        assumptions=tuple(dict.fromkeys(text for t in order for text in t.assumptions)),
        uncertain=together(doubts),
        host_jobs=_merged_jobs(order) if with_jobs == len(order) else None,
    )
    return replace(made, notes=tuple(_merging_notes(order, len(names), with_jobs)))


def _check_follows(before: NodeTrace, after: NodeTrace) -> None:
    """Refuse traces that are not of one machine, or whose windows overlap."""
    name = before.source or "the one before it"
    one, other = set(before.nodes), set(after.nodes)
    refused = {
        f"begins at {iso(after.start)}, before {name} ends ({iso(before.end)})":
        after.start < before.end,
        f"is of the machine {after.machine}, {name} of {before.machine}":
        len({before.machine, after.machine} - {""}) > 1,
        f"has no node in common with {name}: {', '.join(after.nodes[:1])} ... and {', '.join(before.nodes[:1])} ...":
        one and other and one.isdisjoint(other),
        f"differs from {name} in the units of a node":
        (before.units_per_node, before.by_unit) != (after.units_per_node, after.by_unit),
    }  # fmt: skip
    for why, is_so in refused.items():
        if is_so:
            raise after.error(
                why,
                "traces of one machine are merged; bft-replay trace cut --from cuts off what both have",
            )


def _merging_notes(order: Sequence[NodeTrace], nodes: int, with_jobs: int) -> list[str]:
    """Return the notes of traces that are merged, and what is not known."""
    span_s = (order[-1].end - order[0].start) / SECOND_NS
    unknown_s = span_s - math.fsum(trace.duration_s for trace in order)
    lacking = nodes - len(set.intersection(*(set(trace.nodes) for trace in order)))
    share = f"{unknown_s / span_s:.0%} of the whole" if span_s else ""
    told = {
        f"{unknown_s / 3600:.4g} hours between the windows of the merged traces, {share}, were not observed: no node "
        "is idle": unknown_s > 0,
        f"{lacking:,} of {nodes:,} nodes are not in all of the merged traces": lacking,
        f"host jobs are known of {with_jobs} of the {len(order)} merged traces: they are left out":
        0 < with_jobs < len(order),
    }  # fmt: skip
    notes = [note for trace in order for note in trace.notes]
    return notes + [text for text, is_so in told.items() if is_so]


def _merged_jobs(order: Sequence[NodeTrace]) -> HostJobs:
    """Merge host jobs of traces whose windows follow one another.

    A row that several state counts once, with the end that the last of them states. What had not ended when a trace
    did, and no later one states, counts until the end of that trace. A job that waits in one and has begun in a later
    one counts as that one states it.
    """
    import pandas as pd

    tables = []
    for window, trace in enumerate(order):
        columns: dict[str, Any] = {"window": window, "until": trace.end}
        if (jobs := trace.host_jobs) is not None:
            columns |= {name: getattr(jobs, name) for name in COLUMNS}
            names = [jobs.names[node] for node in jobs.nodes.tolist()]
            bounds = pairwise(jobs.offsets.tolist())
            columns["nodes"] = [tuple(names[a:b]) for a, b in bounds]
            tables.append(pd.DataFrame(columns))
    rows = pd.concat(tables, ignore_index=True)
    # Of jobs that are alike the last to end are those that the next window has too.
    rows = rows.sort_values(["window", "end"], ascending=[True, False])
    rows["rank"] = rows.groupby([*_ROW, "window"], sort=False).cumcount()
    rows["first"] = rows.groupby(_ROW, sort=False)["window"].transform("min")
    rows = rows.drop_duplicates([*_ROW, "rank"], keep="last").reset_index(drop=True)
    rows = rows.drop(_begun_later(rows[~rows["reserved"]]))
    since = rows["known"].where(rows["start"] == NEVER, rows["start"])
    open_ = ~rows["reserved"] & (rows["end"] == NEVER) & (since < rows["until"])
    not_told = open_ & (rows["until"] < rows["until"].max())
    rows["end"] = rows["end"].mask(not_told, rows["until"])
    # As ingest has them.
    rows = rows.sort_values(["known", "reserved", "start", "count", "nodes"])
    kind = rows["reserved"].map({True: "reservation", False: "job"})
    fields = rows[["known", "start", "end", "expected_end", "count", "nodes"]]
    return from_rows(list(zip(kind, *(fields[name] for name in fields), strict=True)))


def _begun_later(jobs: pd.DataFrame) -> pd.Series:
    """Return the index of jobs that wait, and that a later window states as begun.

    Files name no jobs: a job is found again by since when it was known, and the number of its nodes.
    """
    keys = ["known", "count"]
    waits = jobs[(jobs["start"] == NEVER) & (jobs["end"] == NEVER)]
    begun = jobs[(jobs["start"] < NEVER) & (jobs["first"] > 0)].sort_values("first")
    waits, begun = (
        some.assign(nth=some.groupby(keys).cumcount()).reset_index()
        for some in (waits.sort_values("window"), begun)
    )
    met = waits.merge(begun, on=[*keys, "nth"])
    return met["index_x"][met["first_y"] > met["window_x"]]


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
    if jobs is not None:
        jobs = replace(jobs, names=keyed_names(jobs.names, key))
    return replace(
        trace.of_nodes(order),
        nodes=tuple(sorted(names)),
        machine="",
        source="",
        notes=(),
        assumptions=(),
        zone="",
        host_jobs=jobs,
    )


def keyed_names(names: Sequence[str], key: bytes) -> tuple[str, ...]:
    """Keyed hashes (HMAC-SHA256) in the place of names of nodes; InputError as `anonymised`.

    >>> keyed_names(["n00000"], b"sixteen bytes or more")
    ('n01cb108a5288',)
    """
    if len(key) < _MIN_KEY:
        raise InputError(
            f"a key of {len(key)} bytes can be guessed; expected {_MIN_KEY} or more"
        )
    texts = (name.encode("utf-8", "surrogateescape") for name in names)
    hashes = (hmac.new(key, text, hashlib.sha256).hexdigest() for text in texts)
    made = tuple(f"n{digits[:_DIGITS]}" for digits in hashes)
    if len(set(made)) < len(made):
        raise InputError("two nodes have one hash; take another key")
    return made
