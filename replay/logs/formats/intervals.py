"""The generic table, for logs without a reader of their own: one row per interval of nodes, or one per job."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.replay.logs.formats.text_lines import cell, whole_numbers
from bft.replay.logs.hosts import flags
from bft.replay.logs.records import LEFT_OUT, LOUD, SKIPPED, Block, Log
from bft.replay.logs.states import state_of
from bft.replay.logs.tables import Rows, Table, converted
from bft.replay.logs.times import are_missing

_COLUMNS = {
    "id": ("id", "jobid", "job_id"),
    "hosts": ("node", "nodelist", "host", "hosts", "nodes"),
    "known": ("eligible", "submit"),
    "start": ("start",),
    "end": ("end",),
    "limit": ("limit", "timelimit"),
    "count": ("count", "nnodes"),
    "state": ("state",),
    "cluster": ("cluster",),
    "partition": ("partition", "queue"),
    "user": ("user",),
}
# Words for states of jobs that are words for states of nodes as well.
_OF_JOBS = frozenset({"failed", "error", "suspended", "blocked", "unknown"})
# States of jobs whose end is still to come, whatever end a row states.
_GOES_ON = pa.array(["running", "suspended", "completing"])
_KINDS = {"busy": "ran", "idle": "idle", "unavailable": "down", "absent": "absent"}
_OF_BLOCKS = {"absent": "nothing", "odd": "nothing"}
# Why rows of a kind are not used; idle ones of an --events file.
_REASONS = {
    "idle": f"{LEFT_OUT}idle row of an --events file: says only that the node could run jobs",
    "absent": f"{LEFT_OUT}a node that is not there yet (state future)",
    "odd": f"{SKIPPED}column state: expected busy, idle, down, drain, maintenance, reserved, or what sinfo or pbsnodes "
    "print",
}


def read(log: Log) -> Iterator[Block]:
    """Read `node,start,end[,state]`, or jobs as `id,hosts,start,end[,state]`, with a header line or as Parquet.

    Nodes are names or host lists. Times are ISO stamps or seconds since 1970; an empty end is still to come. A state is
    busy (default), idle, unavailable, or any word that `states.state_of` knows. Once a row states idle, nodes are idle
    nowhere else. With a column `id` other states, and `_OF_JOBS`, are those of jobs: rows with the same id and start
    count once, and one without a start is a job that waits. Further columns are read where there are any: eligible or
    submit, limit, count, user, partition, cluster. The window of observation spans the busy and idle rows; all rows if
    there are only others.
    """
    expected = "a header node,start,end[,state] or id,hosts,start,end[,state]"
    needed = ("hosts", "start", "end")
    table = Table(log, _COLUMNS, needed=needed, expected=expected)
    log.words = {ours: f"column {theirs}" for ours, theirs in table.found.items()}
    # First and last instants of rows, those of outages apart.
    observed: dict[bool, list[int]] = {True: [], False: []}
    for rows in table:
        kinds = _kinds(log, rows)
        for kind in np.unique(kinds).tolist():
            block = _block(kind, rows.taken(kinds == kind), beside=log.settings.beside)
            yield block
            # By now the rules for rows of all formats have been applied to the block.
            used = pa.array(block.why.used)
            start = log.clock.times(block.start.filter(used)).ns
            end = log.clock.times(block.end.filter(used), not_before=start).ns
            if len(start) and not log.settings.beside:
                until = np.maximum(start, end).max()
                observed[kind == "down"] += int(start.min()), int(until)
    instants = observed[False] or observed[True] or [0]
    if min(instants) < max(instants):
        log.observed = min(instants), max(instants)


def _kinds(log: Log, rows: Rows) -> NDArray[np.str_]:
    """Return the kind of each row, by its state; absent and odd are none that is used."""

    def kind(word: str) -> str:
        if not word or ("id" in rows.cells and word.lower() in _OF_JOBS):
            return "ran"
        state = state_of(word, log.settings.counts_as)
        other = "ran" if "id" in rows.cells else "odd"
        return _KINDS[state] if state else other

    states = rows.cells.get("state", pa.repeat("", len(rows)))
    return np.array(converted(states, kind).to_pylist(), dtype=str)


def _block(kind: str, rows: Rows, *, beside: bool) -> Block:
    """Return the rows of one kind, and say why they are not used."""
    cells, why = dict(rows.cells), rows.why
    hosts, start, end = (cells[name] for name in ("hosts", "start", "end"))
    words = cells.get("state", pa.repeat("", len(rows)))
    goes_on = np.zeros(len(rows), dtype=bool)
    if kind == "ran" and "id" in cells:
        goes_on = flags(pc.is_in(pc.utf8_lower(words), _GOES_ON)) & ~are_missing(end)
        cells["end"] = pc.if_else(pa.array(goes_on), "", end)
    else:
        cells.pop("state", None)  # it is none of a job
        no_start = f"{SKIPPED}column start holds no time"
        why.where(are_missing(start), no_start, cell(start))
    if kind in _REASONS and (kind != "idle" or beside):
        why.where(goes_on | True, _REASONS[kind], cell(words))
    ids = cells.get("id", hosts)
    cells["id"] = pc.if_else(pc.equal(ids, ""), hosts, ids)
    count = cells.pop("count", None)
    if kind == "absent":
        del cells["hosts"]  # no node of the machine
    block = Block(kind=_OF_BLOCKS.get(kind, kind), line=rows.line, why=why, **cells)
    if count is not None:
        block.count = np.maximum(whole_numbers(count), 0)
    open_end = "jobs whose state says that they run state an end: they count as running"
    free = flags(pc.equal(pc.utf8_lower(words), "free")) & (kind == "idle")
    told = "state free, with which PBS means that some cores are, was taken for idle"
    block.notes = [
        (goes_on, LOUD + open_end, lambda row: ""),
        (free, told, lambda row: ""),
    ]
    return block
