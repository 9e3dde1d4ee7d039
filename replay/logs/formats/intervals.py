"""The generic table, for logs without a reader of their own: one row per interval of nodes, or one per job."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.replay.logs.hosts import flags
from bft.replay.logs.records import LEFT_OUT, LOUD, SKIPPED, Block, Log, Why, decoded
from bft.replay.logs.states import state_of
from bft.replay.logs.tables import Rows, Table
from bft.replay.logs.times import MISSING, OPEN, Whole, no_time

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
_FILTERED = {"partition": "the column partition or queue", "user": "the column user"}
# Words for states of jobs that are words for states of nodes as well.
_OF_JOBS = frozenset({"failed", "error", "suspended", "blocked", "unknown"})
# States of jobs whose end is still to come, whatever end a row states.
_GOES_ON = pa.array(["running", "suspended", "completing"])
_KINDS = {"busy": "ran", "idle": "idle", "unavailable": "down", "absent": "absent"}
# Why rows of a kind are not used; idle ones of an --events file.
_REASONS = {
    "ran": "",
    "down": "",
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
    expected = "node,start,end[,state] or id,hosts,start,end[,state]"
    table = Table(
        log, _COLUMNS, needed=("hosts", "start", "end"), expected=f"a header {expected}"
    )
    named = ("hosts", "known", "start", "end", "limit")
    log.words = {name: f"column {table.found[name]}" for name in named if name in table}
    log.refuse_unstated(
        {name: text for name, text in _FILTERED.items() if name not in table}
    )
    observed: dict[bool, tuple[int, int]] = {}
    for rows in table:
        for block in _blocks(log, rows):
            yield block
            # By now the rules for rows of all formats have been applied to the block.
            used = block.why.used
            start = log.clock.times(block.start).ns
            end = log.clock.times(block.end, not_before=start).ns
            if used.any() and not log.settings.beside:
                is_outage = block.kind == "down"
                first, last = observed.get(is_outage, (OPEN, 0))
                until = np.maximum(start, end)[used].max()
                observed[is_outage] = (
                    min(first, int(start[used].min())),
                    max(last, int(until)),
                )
    first, last = observed.get(False) or observed.get(True) or (0, 0)
    if first < last:
        log.observed = first, last


def _blocks(log: Log, rows: Rows) -> Iterator[Block]:
    """Yield the rows of each kind."""
    reasons = _REASONS if log.settings.beside else {**_REASONS, "idle": ""}
    kinds = _kinds(log, rows)
    for kind in np.unique(kinds).tolist():
        mine = np.flatnonzero(kinds == kind)
        cells = {
            name: pc.utf8_trim_whitespace(column.take(pa.array(mine)))
            for name, column in rows.cells.items()
        }
        yield _block(kind, rows.line[mine], rows.why.taken(mine), cells, reasons[kind])


def _kinds(log: Log, rows: Rows) -> NDArray[np.str_]:
    """Return the kind of each row, by its state; absent and odd are none that is used."""
    states = rows.cells.get("state")
    if states is None:
        return np.full(len(rows.line), "ran")

    def kind(word: str) -> str:
        if not word or ("id" in rows.cells and word.lower() in _OF_JOBS):
            return "ran"
        state = state_of(word, log.settings.counts_as)
        return _KINDS[state] if state else "ran" if "id" in rows.cells else "odd"

    words = states.dictionary_encode()
    kinds = np.array([kind(word.strip()) for word in words.dictionary.to_pylist()])
    return np.asarray(kinds[words.indices.to_numpy()])


def _block(
    kind: str, line: Whole, why: Why, cells: dict[str, pa.Array], reason: str
) -> Block:
    """Return the rows of one kind, and why they are not used."""
    hosts, counts, state = cells["hosts"], cells.pop("count", None), cells.get("state")
    if kind != "ran" or "id" not in cells:
        cells.pop("state", None)  # it is none of a job
        none = flags(pc.is_in(cells["start"], pa.array(MISSING)))
        why.where(
            none,
            f"{SKIPPED}column start holds no time",
            lambda row: no_time(decoded(cells["start"], row)),
        )
    if reason:
        every = np.ones(len(line), dtype=bool)
        why.where(every, reason, lambda row: ascii(decoded(state, row)[:80]))
    if "id" in cells:
        cells["id"] = pc.if_else(pc.equal(cells["id"], ""), hosts, cells["id"])
    if kind == "absent":
        del cells["hosts"]  # no node of the machine
    goes_on = np.zeros(len(line), dtype=bool)
    if kind == "ran" and "id" in cells and state is not None:
        goes_on = flags(pc.is_in(pc.utf8_lower(state), _GOES_ON))
        goes_on &= ~flags(pc.is_in(cells["end"], pa.array(MISSING)))
        cells["end"] = pc.if_else(pa.array(goes_on), "", cells["end"])
    of_rows = kind if kind in ("ran", "idle", "down") else "nothing"
    block = Block(kind=of_rows, line=line, why=why, **{"id": hosts, **cells})
    if counts is not None:
        block.count = np.array(
            [int(text) if text.isdecimal() else 0 for text in counts.to_pylist()]
        )
    why_open = "jobs whose state says that they run state an end: they count as running"
    block.notes.append((goes_on, LOUD + why_open, lambda row: ""))
    if kind == "idle":
        free = (
            "state free, with which PBS means that some cores are, was taken for idle"
        )
        block.notes.append(
            (flags(pc.equal(pc.utf8_lower(state), "free")), free, lambda row: "")
        )
    return block
