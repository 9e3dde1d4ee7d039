"""Cobalt: job tables and machine status tables as CSV, as Argonne's ALCF publishes them (DIM_JOB_COMPOSITE)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bft.models import InputError
from bft.models.cells import read_number
from bft.replay.logs.hosts import flags
from bft.replay.logs.records import LEFT_OUT, SKIPPED, Block, Log, decoded, texts
from bft.replay.logs.tables import Rows, Table
from bft.replay.logs.times import MISSING, NONE, Mask, Whole

_COLUMNS = {
    "id": ("cobalt_jobid", "jobid", "job_name"),
    "known": ("queued_timestamp",),
    "start": ("start_timestamp",),
    "end": ("end_timestamp",),
    "limit": ("walltime_seconds",),
    "count": ("nodes_used", "used_nodes"),
    "hosts": ("location", "machine_partition"),
    "cluster": ("machine_name",),
    "partition": ("queue_name", "queue_genid"),
    "user": ("username_genid", "cobalt_user_name_genid"),
    "down": ("is_all_machine_down",),
}
_FILTERED = {
    "partition": "the column QUEUE_NAME or QUEUE_GENID",
    "user": "the column USERNAME_GENID",
}
_MOST_NODES = 10**7
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)
# Names of hosts have small letters and a digit; names of partitions of other machines have capitals (R00-M0-N04).
_HOST_NAME = re.compile(
    r"(?=.{1,255}$)(?=[^a-z]*[a-z])(?=.*[a-z].*\d)[\w.:@+-]+", re.ASCII
)


def read(log: Log) -> Iterator[Block]:
    """Read a job table or a machine status table.

    An outage of the whole machine is one of all nodes that job tables name.
    """
    log.words = {"start": "START_TIMESTAMP", "end": "END_TIMESTAMP", "known": "QUEUED_TIMESTAMP",
                 "limit": "WALLTIME_SECONDS", "hosts": "LOCATION"}  # fmt: skip
    expected = "ALCF's DIM_JOB_COMPOSITE or machine status as CSV"
    table = Table(log, _COLUMNS, needed=("start", "end"), expected=expected)
    if "down" in table:
        yield from map(_outages, table)
        return
    if "count" not in table:
        why = "is no table of Cobalt's: no column NODES_USED or USED_NODES"
        raise InputError(why, file=log.name, hint=f"expected {expected}")
    log.refuse_unstated(
        {name: text for name, text in _FILTERED.items() if name not in table}
    )
    for rows in table:
        block = _jobs(rows)
        if "cluster" in table and "cluster" not in log.settings.asked():
            used = rows.cells["cluster"].filter(pa.array(block.why.used))
            machines = filter(None, used.unique().to_pylist())
            log.machine = log.machine or next(machines, "")[:200]
        yield block


def _outages(rows: Rows) -> Block:
    """Return when the whole machine was down."""
    block = _block("all down", rows, "start", "end", "cluster")
    down = pc.is_in(rows.cells["down"], pa.array(["1", "1.0", "true", "True", "TRUE"]))
    why = f"{LEFT_OUT}IS_ALL_MACHINE_DOWN is not 1: which part of the machine was down is not stated"
    block.why.where(~flags(down), why)
    block.why.where(
        _missing(block.start), f"{LEFT_OUT}no START_TIMESTAMP: it never began"
    )
    return block


def _jobs(rows: Rows) -> Block:
    """Return the jobs of some rows."""
    block = _block(
        "ran",
        rows,
        "known",
        "start",
        "end",
        "limit",
        "hosts",
        "cluster",
        "partition",
        "user",
    )
    block.id = _identities(rows.cells)
    stated = rows.cells["count"]
    count = _counts(stated)
    why = f"{SKIPPED}NODES_USED is no number of nodes"
    block.why.where(count == NONE, why, lambda row: ascii(decoded(stated, row)[:40]))
    open_end = "a job has no end: it counts as still running"
    block.notes.append((_missing(block.end), open_end, lambda row: ""))
    if block.hosts is None:
        block.count = count
    else:
        _place(block, count)
    return block


def _block(kind: str, rows: Rows, *names: str) -> Block:
    """Return the columns of some names, without blanks around their cells."""
    cells = {
        name: pc.utf8_trim_whitespace(rows.cells[name])
        for name in names
        if name in rows.cells
    }
    return Block(kind=kind, line=rows.line, why=rows.why, **cells)


def _missing(times: pa.Array) -> Mask:
    return flags(pc.is_in(times, pa.array(MISSING)))


def _identities(cells: dict[str, pa.Array]) -> pa.Array:
    """Return what tells jobs apart: ids are often names, and a job may have several lists of nodes."""
    identity = pc.binary_join_element_wise(*cells.values(), ",")
    if "id" in cells:
        identity = pc.if_else(pc.equal(cells["id"], ""), identity, cells["id"])
    place = cells["hosts"] if "hosts" in cells else cells["count"]
    return pc.binary_join_element_wise(identity, cells.get("cluster", ""), place, "|")


def _counts(column: pa.Array) -> Whole:
    """Return numbers of nodes, which may be written 1.0000; NONE where a cell holds none."""
    cells = column.dictionary_encode()
    numbers = np.array(
        [read_number(text.strip()) for text in cells.dictionary.to_pylist()],
        dtype=float,
    )
    fine = (numbers >= 0) & (numbers <= _MOST_NODES) & (numbers == np.floor(numbers))
    counts = np.where(fine, numbers, NONE).astype(np.int64)
    return np.asarray(counts[cells.indices.to_numpy()])


def _place(block: Block, count: Whole) -> None:
    """Read the locations of jobs as host lists."""
    places = [
        _location(text, nodes)
        for text, nodes in zip(block.hosts.to_pylist(), count.tolist(), strict=True)
    ]
    block.hosts = texts([hosts for hosts, *_ in places])
    why = f"{SKIPPED}LOCATION is neither a list of hosts nor one of node numbers"
    unknown = np.array([bool(word) for _, _, word in places])
    block.why.where(unknown, why, lambda row: ascii(places[row][2][:40]))
    cut_off = np.array([bool(sizes) for _, sizes, _ in places])
    why = "LOCATION is cut off: it names fewer nodes than NODES_USED, the others look idle"
    block.notes.append((cut_off, why, lambda row: places[row][1]))


@lru_cache(10_000)
def _location(location: str, nodes: int) -> tuple[str, str, str]:
    """Return a host list, how many nodes it has where it is cut off, and a word of the location that names no node.

    Locations are lists of hosts, or of a Cray's node numbers.

    >>> _location("0-2,128", 4), _location("x3005c0s19b1n0,x3006c0s1", 9)
    (('nid[00000-00002],nid[00128]', '', ''), ('x3005c0s19b1n0', '1 of 9', ''))
    """
    words = (
        [] if location in MISSING else [word.strip() for word in location.split(",")]
    )
    named = list(dict.fromkeys(filter(None, words)))
    odd = [
        word
        for word in named
        if not _RANGE.fullmatch(word) and not _HOST_NAME.fullmatch(word)
    ]
    cut = len(named) > 1 and _size(named) < nodes
    if odd and not (cut and odd == words[-1:]):
        return "", "", odd[0]
    if _size(named) >= nodes:
        return _host_list(named), "", ""
    # The last word of a list that is cut off may be the beginning of another.
    last = words[-1] if words else ""
    if _RANGE.fullmatch(last) or (
        last and len(named) > 1 and _shape(last) != _shape(named[0])
    ):
        named.remove(last)
    return _host_list(named), f"{_size(named)} of {nodes}", ""


def _size(words: list[str]) -> int:
    ranges = [_RANGE.fullmatch(word) for word in words]
    return sum(
        int(each[2]) - int(each[1]) + 1 if each and each[2] else 1 for each in ranges
    )


def _host_list(words: list[str]) -> str:
    return ",".join(
        f"nid[{_NUMBER.sub(lambda number: number[0].zfill(5), word)}]"
        if _RANGE.fullmatch(word)
        else word
        for word in words
    )


def _shape(name: str) -> str:
    return _NUMBER.sub("0", name)
