"""Kinds of units: which node has which, from a table (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bft.models import InputError, JobTable
from bft.models.cells import Rows
from bft.models.tables import read_table
from bft.replay.trace.node_trace import NodeTrace


def read_kinds(path: str) -> dict[str, str]:
    """The kind of each node: columns node and kind, one row per node.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    rows = Rows(read_table(path), path)
    rows.require(("node", "kind"))
    kinds: dict[str, str] = {}
    for row in rows:
        node, kind = row.name("node"), row.name("kind")
        if kinds.setdefault(node, kind) != kind:
            raise row.error(
                "node",
                f"node {node!r} has the kind {kinds[node]!r} already; expected one row per node",
            )
    return kinds


def with_kinds(trace: NodeTrace, kinds: dict[str, str], path: str) -> NodeTrace:
    """The trace with the kind of each of its nodes.

    Raises
    ------
    InputError
        When a node has no kind.
    """
    missing = [node for node in trace.nodes if node not in kinds]
    if missing:
        message = f"no row for {len(missing):,} of the trace's {len(trace.nodes):,} nodes, {missing[0]!r} among them"
        raise InputError(message, file=path, column="node")
    return replace(trace, kinds=tuple(kinds[node] for node in trace.nodes))


def check_kinds(kinds: Sequence[str], jobs: JobTable) -> list[str]:
    """Notes on the kinds, on curves of kinds that no node has, and on curves that are missing; `kinds` of each node.

    Raises
    ------
    InputError
        For jobs whose rate does not follow a curve.
    """
    file, known = jobs.source or None, dict.fromkeys(kinds)
    for job in jobs:
        if known and job.profile is not None:
            raise InputError(
                "kinds of units need jobs with curves; this one has a profile",
                file=file,
                job=job.name,
            )
    stated = dict.fromkeys(kind for job in jobs for kind in job.by_kind)
    if not known:
        if not stated:
            return []
        return [
            f"the columns of kinds ({', '.join(stated)}) of the job table have no effect without --kinds"
        ]
    notes = [
        f"units are of {len(known)} kinds: {', '.join(known)}; a job runs on one kind at a time"
    ]
    strange = [kind for kind in stated if kind not in known]
    if strange:
        notes.append(
            f"the job table has curves on kinds that no node has: {', '.join(strange)}"
        )
    # A kind for which no job has a curve is left to the usual one on purpose.
    for kind in known:
        without = sum(kind not in job.by_kind for job in jobs)
        if kind in stated and without:
            notes.append(
                f"{without:,} of {len(jobs):,} jobs have no curve of their own on kind {kind} (column Ps@{kind}): "
                "there they run as the column Ps says"
            )
    if not stated.keys() & known.keys():
        notes.append(
            "the job table has no curves by kind (columns Ps@KIND): jobs run on all kinds as the column Ps says"
        )
    return notes
