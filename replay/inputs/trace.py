"""The node trace of a run: its nodes and their kinds, and how long they may be expected to stay idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bft.datasets import load_bundled
from bft.models import InputError, JobTable, jobs_from_frame
from bft.models.cells import Rows
from bft.models.tables import read_table
from bft.replay.inputs.files import Files
from bft.replay.inputs.notes import Watcher
from bft.replay.options.options import Options
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.outlook import Outlook
from bft.replay.trace.parts import of_class
from bft.replay.trace.trace_files import read_trace, select_nodes, trace_from_frame

# The published replayer skips the rows of its matrix before row 1,000.
PUBLISHED_SKIP_ROWS = 1000


def traces(
    options: Options, notes: Watcher, files: Files
) -> tuple[NodeTrace, NodeTrace]:
    """Return the trace of the whole machine, and that of the nodes that the options name."""
    if options.node_trace is None:
        whole, _ = files.once(bundled)
        trace = whole
    else:
        whole = trace = _read(options, options.node_trace, notes, files)
        if options.node_class is not None:
            trace = of_class(trace, options.node_class)
        if options.first_node or options.node_count is not None:
            trace = select_nodes(trace, options.first_node, options.node_count)
    for note in trace.notes:
        notes.note(note)
    if options.kinds is not None:
        trace = _with_kinds(trace, options.kinds)
    if not len(trace.joined):
        raise InputError(
            "no node is ever idle in this trace, so there is nothing to give",
            file=trace.source or None,
        )
    return whole, trace


def bundled() -> tuple[NodeTrace, JobTable]:
    """Return trace and jobs of the bundled data set."""
    table, jobs = load_bundled()
    trace = trace_from_frame(
        table.frame, source="bundled: summit-like-512", metadata=table.metadata
    )
    return trace, jobs_from_frame(jobs, source="bundled: jobs-60")


def _read(options: Options, path: str, notes: Watcher, files: Files) -> NodeTrace:
    held, skip = files.held.get("node_trace"), options.skip_rows
    if isinstance(held, NodeTrace):
        if skip:
            raise InputError(
                "$skip_rows counts the rows of a file or frame; a NodeTrace has none"
            )
        return held
    if skip is None and options.published:
        skip = PUBLISHED_SKIP_ROWS
        notes.note(
            f"the first {skip} rows are skipped, as published; --skip-rows says otherwise"
        )
    if held is not None:
        return trace_from_frame(
            held, source=path, skip_rows=skip or 0, sort=options.sort
        )
    return files.once(read_trace, path, skip_rows=skip or 0, sort=options.sort)


def outlook(
    options: Options, trace: NodeTrace, whole: NodeTrace, notes: Watcher
) -> Outlook | None:
    """Return what is expected of the trace's nodes, by the jobs of the whole machine, where the policy looks at it.

    Notes say what the host jobs lack, where it is used.
    """
    jobs = whole.host_jobs
    expects = options.traits.expects and not options.published
    if jobs is not None and (expects or options.rules.return_time_s is not None):
        for lack in jobs.lacks():
            notes.note(lack)
    if not expects:
        return None
    name = f"--policy {options.policy}"
    if jobs is None or whole.by_unit:
        notes.note(
            f"{name} looks at how long nodes may stay idle: of this trace nothing is known, since no host jobs lie "
            "beside it"
        )
        return None
    if options.rules.takes_free_first:
        raise InputError(
            f"{name} expects nodes of the log to stay idle, and with $return_time_s or $reserve other nodes fill "
            "their places",
            hint="$free_first lets host jobs take the nodes that the log names",
        )
    return Outlook(jobs, whole, trace.nodes)


def _with_kinds(trace: NodeTrace, path: str) -> NodeTrace:
    """The trace with the kinds of its nodes, from a table with the columns node and kind."""
    kinds: dict[str, str] = {}
    for row in Rows(read_table(path), path).require(("node", "kind")):
        node, kind = row.name("node"), row.name("kind")
        if kinds.setdefault(node, kind) != kind:
            raise row.error(
                "node",
                f"node {node!r} has the kind {kinds[node]!r} already; expected one row per node",
            )
    missing = [node for node in trace.nodes if node not in kinds]
    if missing:
        raise InputError(
            f"no row for {len(missing):,} of the trace's {len(trace.nodes):,} nodes, {missing[0]!r} among them",
            file=path,
            column="node",
        )
    return replace(trace, kinds=tuple(kinds[node] for node in trace.nodes))


def kind_notes(kinds: Sequence[str], jobs: JobTable) -> Iterator[str]:
    """Yield notes on the kinds, on curves of kinds that no node has, and on curves that are missing.

    `kinds` are those of each node.
    """
    known = dict.fromkeys(kinds)
    stated = dict.fromkeys(kind for job in jobs for kind in job.by_kind)
    if not known:
        if stated:
            yield f"curves and measurements by kind ({', '.join(stated)}) have no effect on units without kinds"
        return
    yield f"units are of {len(known)} kinds: {', '.join(known)}; a job runs on one kind at a time"
    if strange := ", ".join(kind for kind in stated if kind not in known):
        yield f"the job table has curves on kinds that no node has: {strange}"
    # A kind for which no job has a curve is left to the usual one on purpose.
    for kind in known:
        without = sum(kind not in job.by_kind for job in jobs)
        if kind in stated and without:
            yield (
                f"{without:,} of {len(jobs):,} jobs have no curve of their own on kind {kind} (column Ps@{kind}): "
                "there they run as the column Ps says"
            )
    if not stated.keys() & known.keys():
        yield "the job table has no curves by kind (columns Ps@KIND): jobs run on all kinds as the column Ps says"
