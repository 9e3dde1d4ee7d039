"""Cobalt: job tables and machine status tables as CSV, as Argonne's ALCF publishes them (DIM_JOB_COMPOSITE).

A table of jobs has START_TIMESTAMP, END_TIMESTAMP, NODES_USED and LOCATION, a list of hosts or of node numbers; the
table of machine status states when the whole machine was down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from bft.replay.logs.formats.text_lines import cell, whole_numbers
from bft.replay.logs.hosts import flags
from bft.replay.logs.lines import first_line
from bft.replay.logs.records import LEFT_OUT, NEVER_STARTED, SKIPPED, Block, Log
from bft.replay.logs.tables import Rows, Table, converted
from bft.replay.logs.times import are_missing

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
}
_STATUS = {
    **{name: _COLUMNS[name] for name in ("start", "end", "cluster")},
    "down": ("is_all_machine_down",),
}
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
    expected = "ALCF's DIM_JOB_COMPOSITE or machine status as CSV"
    is_status = "is_all_machine_down" in first_line(log.lines).lower()
    columns = _STATUS if is_status else _COLUMNS
    needed = ("start", "end", "down" if is_status else "count")
    table = Table(log, columns, needed=needed, expected=expected)
    log.words = {ours: theirs.upper() for ours, theirs in table.found.items()}
    log.words["count"] = (
        "LOCATION is cut off, or names other nodes than NODES_USED counts"
    )
    for rows in table:
        block = _outages(rows) if is_status else _jobs(rows)
        if "cluster" in table and "cluster" not in log.settings.asked():
            names = rows.cells["cluster"].filter(pa.array(rows.why.used)).to_pylist()
            log.machine = log.machine or "".join(names[:1])[:200]
        yield block


def _outages(rows: Rows) -> Block:
    """Return when the whole machine was down."""
    cells = dict(rows.cells)
    down = pc.is_in(pc.utf8_lower(cells.pop("down")), pa.array(["1", "1.0", "true"]))
    part = (
        "IS_ALL_MACHINE_DOWN is not 1: which part of the machine was down is not stated"
    )
    rows.why.where(~flags(down), LEFT_OUT + part)
    never = are_missing(cells["start"])
    rows.why.where(never, f"{LEFT_OUT}no START_TIMESTAMP: it never began")
    return Block(kind="all down", line=rows.line, why=rows.why, **cells)


def _jobs(rows: Rows) -> Block:
    """Return the jobs of some rows."""
    cells, why = dict(rows.cells), rows.why
    stated = cells["count"]
    # Ids are often names, and a job may have several lists of nodes.
    identity = [
        column for name, column in cells.items() if name not in ("end", "limit")
    ]
    cells["id"] = pc.binary_join_element_wise(*identity, "|")
    cells["count"] = count = whole_numbers(stated)
    why.where(count < 0, f"{SKIPPED}NODES_USED is no number of nodes", cell(stated))
    if "hosts" in cells:
        why.where(are_missing(cells["start"]), NEVER_STARTED)
        places = cells["hosts"]
        why.where(are_missing(places), f"{SKIPPED}job ran, but names no nodes")
        counted = pc.binary_join_element_wise(
            places, pa.array(count).cast(pa.string()), "|"
        )
        cells["hosts"] = converted(counted, _host_list)
        odd = "LOCATION is neither a list of hosts nor one of node numbers"
        why.where(flags(pc.equal(cells["hosts"], "")), SKIPPED + odd, cell(places))
    return Block(line=rows.line, why=why, **cells)


def _host_list(counted: str) -> str:
    """Return the hosts of a location, behind which stands how many there are; nothing for what is no list of them.

    Locations are lists of hosts, or of a Cray's node numbers.

    >>> _host_list("0-2,128|4"), _host_list("x3005c0s19b1n0,x3006c0s1|9")
    ('nid[00000-00002],nid[00128]', 'x3005c0s19b1n0')
    """
    location, _, count = counted.rpartition("|")
    words = [word.strip() for word in location.split(",") if word.strip()] or ["-"]
    ranges = [_RANGE.fullmatch(word) for word in words]
    sizes = [int(each[2] or each[1]) - int(each[1]) if each else 0 for each in ranges]
    # The last word of a list that is cut off may be the beginning of another.
    first, last = (_NUMBER.sub("0", word) for word in (words[0], words[-1]))
    if sum(sizes) + len(words) < int(count) and (ranges[-1] or first != last):
        words.pop()
    hosts = []
    for word in words:
        if not (_RANGE.fullmatch(word) or _HOST_NAME.fullmatch(word)):
            return ""
        number = _NUMBER.sub(lambda found: found[0].zfill(5), word)
        hosts.append(f"nid[{number}]" if _RANGE.fullmatch(word) else word)
    return ",".join(hosts)
