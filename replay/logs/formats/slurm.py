"""What Slurm prints: jobs of `sacct -P`, of `scontrol show job` and of JSON, events of nodes, and reservations.

All three forms of jobs become columns of text with the same names, which one set of rules judges. With -d, scontrol
states which GPUs of each node a job has.

Any columns of sacct are read, in any order, with any delimiter; files without a header need `--fields
JobID,NodeList,...` or `--fields xdmod`. sacct escapes nothing: fields in excess go to columns of free text, and a row
whose fields cannot be placed for sure is skipped, never read by position. A job that runs by its State and states an
End in the past counts as running, with a warning; a row whose Start, End and Elapsed contradict each other is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bft.models import InputError
from bft.replay.logs.formats.entries import stated
from bft.replay.logs.formats.text_lines import cell, numbers
from bft.replay.logs.hosts import NO_HOSTS, HostListError, expand, flags
from bft.replay.logs.lines import Lines
from bft.replay.logs.records import (
    LEFT_OUT,
    LOUD,
    POWERED_OFF,
    RESERVED,
    SKIPPED,
    Block,
    Log,
    Row,
    Texts,
    Unusable,
    decoded,
    each_line,
    each_object,
    in_blocks,
    texts,
)
from bft.replay.logs.states import power_of, state_of
from bft.replay.logs.tables import SACCT_FIELDS, Rows, Table
from bft.replay.logs.times import NONE, Mask, are_missing, limits
from bft.replay.logs.units import Stated, amount, indices
from bft.replay.trace.node_trace import SECOND_NS

# What prints all of jobs that is used here.
COMMAND = f"sacct -a -X -D -P -S 2024-01-01 -E 2024-02-01 --format={SACCT_FIELDS}"
EVENTS_COMMAND = (
    "sacctmgr -P show event all_time format=NodeName,TimeStart,TimeEnd,State"
)
RESERVATIONS_COMMAND = "sacctmgr -P show reservation format=NodeNames,TimeStart,TimeEnd"
# Names of what a job states: in the header of a table, in lower case, where the first that is there counts.
_COLUMNS = {
    "id": ("jobid", "jobidraw"),
    "start": ("start",),
    "end": ("end",),
    "nodes": ("nodelist", "allocnodes", "nnodes"),
    "hosts": ("nodelist",),
    "count": (
        "nnodes",
        "allocnodes",
        "reqnodes",
    ),  # NNodes is what a job asks for while it has none
    "known": ("eligible", "submit"),
    "limit": ("timelimit", "timelimitraw"),
    "suspended": ("suspended",),
    "elapsed": ("elapsedraw", "elapsed"),
    "state": ("state",),
    "user": ("user",),
    "partition": ("partition",),
    "cluster": ("cluster",),
}
_OPTIONAL = frozenset(
    {"count", "known", "limit", "elapsed", "state", "user", "partition"}
)
# What a job held of its nodes; AllocGRES up to 20.02.
_UNITS = {
    "tres": ("alloctres",),
    "per_node": ("trespernode",),
    "cores": ("alloccpus", "ncpus"),
    "shared": ("oversubscribe",),
    "exclusive": ("exclusive",),
    "gres": ("allocgres",),
}
# In scontrol's text, in the JSON of squeue and scontrol, and in that of sacct, which of each job counts that states it.
_ENTRY = {
    "id": ("JobId", "job_id", "nodes"),
    "hosts": ("NodeList", "nodes"),
    "start": ("StartTime", "start_time", "time.start"),
    "end": ("EndTime", "end_time", "time.end"),
    "known": (
        "EligibleTime",
        "eligible_time",
        "time.eligible",
        "SubmitTime",
        "submit_time",
        "time.submission",
    ),
    "limit": ("TimeLimit",),
    "suspended": ("time.suspended",),
    "state": ("JobState", "job_state", "state.current"),
    "user": ("UserId", "user_name", "user"),
    "partition": ("Partition", "partition"),
    "cluster": ("cluster",),
}
_UNITS_OF_ENTRY = {
    "tres": ("AllocTRES", "TRES", "tres_alloc_str", "allocated"),
    "per_node": ("TresPerNode", "tres_per_node"),
    "cores": ("NumCPUs",),
    "shared": ("OverSubscribe", "shared"),
    "exclusive": ("Exclusive", "exclusive"),
    "gres": ("JOB_GRES",),
}
# States in which a job that has started holds its nodes, as squeue abbreviates them and as numbers of Slurm's data
# base; of one that changed its size, or states nothing, the end says whether it does.
_OPEN = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "STOPPED", "R", "S", "CG", "CF",
     "SO", "SI", "ST", "1", "2"}
)  # fmt: skip
_HOLDING = _OPEN | {"RESIZING", ""}
# States of jobs that have not started, and of those that may end before they do.
_WAITING = frozenset(
    {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD", "PD", "RQ", "RH", "RF",
     "SE", "RD", "0"}
)  # fmt: skip
_MAY_NEVER_START = _WAITING | {
    "CANCELLED",
    "DEADLINE",
    "REVOKED",
    "CA",
    "DL",
    "RV",
    "4",
}
# In OverSubscribe of a job up to 25.11, or `shared` in JSON: nobody else's jobs run on its nodes. The same in
# Exclusive, from 26.05 on beside an OverSubscribe that says NO of jobs as they are by default; in JSON from 23.11 on.
_NOT_SHARED = frozenset({"NO", "EXCLUSIVE", "USER", "MCS", "TOPO", "NONE"})
_EXCLUSIVE = frozenset({"NODE", "USER", "MCS", "TOPO", "TRUE", "EXCLUSIVE"})
_NOWHERE = pa.array(sorted(NO_HOSTS))
# What Start, End and Elapsed may differ by: stamps may be cut to minutes.
_SLACK_NS, _HOUR_NS = 60 * SECOND_NS, 3600 * SECOND_NS


def read(log: Log) -> Iterator[Block | Row]:
    """Read the jobs of `sacct -P` or `-p`, with any delimiter and any columns that hold those of `COMMAND`.

    Job steps are left out; each record of a requeued job counts, as each held nodes of its own. Without a column
    NodeList jobs are counted only. A file that begins with a job of `scontrol show job` is read as such.
    """
    head = "".join(log.lines.head(limit=1))
    if _JOB.match(head) or head.startswith("No jobs in the system"):
        yield from _listing(log)
        return
    log.words = {"start": "column Start", "end": "column End", "known": "column Eligible",
                 "limit": "column Timelimit", "hosts": "column NodeList"}  # fmt: skip
    unit = log.settings.unit
    needed = ("id", "start", "end", "nodes")
    columns = _COLUMNS if unit is None else _COLUMNS | _UNITS
    optional = _OPTIONAL.difference(log.settings.asked())
    table = Table(log, columns, needed=needed, optional=optional, command=COMMAND)
    lacking = [name for name in ("partition", "user") if name not in table]
    log.refuse_unstated(
        {
            name: f"the column {name.capitalize()} (export with {COMMAND})"
            for name in lacking
        }
    )
    if unit and table.found.keys().isdisjoint(
        {"tres", "cores"} if unit.cores else {"tres", "per_node", "gres"}
    ):
        why = "the table has no column AllocTRES, which states what jobs held of their nodes"
        raise InputError(why, file=log.name, hint=f"export with {COMMAND}")
    for rows in table:
        steps = flags(pc.match_substring(rows.cells["id"], "."))
        block = _of_table(log, table, rows.taken(~steps) if steps.any() else rows)
        if steps.any():
            first = int(rows.line[steps.argmax()])
            block.dropped.append((LEFT_OUT + "job step", int(steps.sum()), first))
        yield block


def _of_table(log: Log, table: Table, rows: Rows) -> Block:
    """Return the jobs of some rows of a table."""
    cells = rows.cells
    block = Block(
        line=rows.line,
        why=rows.why,
        **{name: cells[name] for name in _ENTRY if name in cells},
    )
    if table.found.get("limit") == "timelimitraw":
        block.limit = limits(cells["limit"], minutes=True).ns
    if "count" in cells:
        counts, odd = numbers(cells["count"], r"\d{1,9}", pa.int64())
        block.count = pc.fill_null(counts, 0).to_numpy()
        if "hosts" not in cells:
            odd &= ~flags(pc.is_in(cells["count"], _NOWHERE))
            block.why.where(
                odd,
                SKIPPED + "the column of the number of nodes holds no number",
                cell(cells["count"]),
            )
    _judge(block)
    if "elapsed" in cells:
        _compare(log, block, cells["elapsed"])
    if log.settings.unit is not None:
        block.units = _units_of(block, cells)
    return block


def _judge(block: Block) -> None:
    """Say why jobs are not used: each has run, runs, waits, or has never started."""
    why, start, end = block.why, block.start, block.end
    state = texts([""] * len(block)) if block.state is None else block.state
    coded = state.dictionary_encode()
    words = pc.utf8_upper(
        pc.replace_substring_regex(coded.dictionary, r"[ +*].*", "")
    ).take(coded.indices)

    def are(states: Iterable[str]) -> Mask:
        """Where jobs are in one of some states: CANCELLED by 7, RUNNING+, COMPLETED+REQUEUED."""
        return flags(pc.is_in(words, pa.array(sorted(states))))

    block.once = True
    no_nodes = (
        np.asarray(block.count) == 0
        if block.hosts is None
        else flags(pc.is_in(block.hosts, _NOWHERE))
    )
    has_start, has_end = ~are_missing(start), ~are_missing(end)
    goes_on = has_start & has_end & are(_OPEN)
    if goes_on.any():  # its end is a guess, or in the past
        told = "jobs whose state says that they run state an end: they count as running"
        block.notes.append((goes_on, LOUD + told, lambda row: decoded(end, row)))
        block.end = pc.if_else(pa.array(goes_on), "", end)
        has_end &= ~goes_on
    same = has_end & flags(pc.equal(start, end))
    never = ~has_start | (no_nodes & (~has_end | same | are(_MAY_NEVER_START)))
    if (never & has_start).any():
        block.start = pc.if_else(pa.array(never), "", start)
    for rows, reason in (
        (
            has_start & ~has_end & ~no_nodes & ~are(_HOLDING),
            SKIPPED + "has ended, but its end is missing",
        ),
        (same & ~never, LEFT_OUT + "job of zero length"),
        (no_nodes & ~never, SKIPPED + "job ran, but names no nodes"),
    ):
        why.where(rows, reason, lambda row: decoded(state, row))


def _compare(log: Log, block: Block, column: Texts) -> None:
    """Hold how long jobs ran against their Start and End: longer ones were suspended, or the row contradicts itself."""
    clock = copy(log.clock)  # which tells nothing of times that are read again
    elapsed, start = limits(column).ns, clock.times(block.start).ns
    end = clock.times(block.end, not_before=start).ns
    suspended = (
        0 if block.suspended is None else np.maximum(limits(block.suspended).ns, 0)
    )
    known = block.why.used & (elapsed != NONE) & (start != NONE) & (end > start)
    over = np.where(known, end - start - elapsed - suspended, 0)
    # Stamps beside a change of clocks may be off by an hour.
    differs = (np.abs(over) > _SLACK_NS) & (np.abs(np.abs(over) - _HOUR_NS) > _SLACK_NS)

    if np.count_nonzero(differs) * 2 > np.count_nonzero(known):
        log.note(
            "column Elapsed is not the time from Start to End: not read",
            int(block.line[0]),
        )
        return
    longer = differs & (over > 0) & (block.suspended is None)
    block.why.where(
        differs & ~longer,
        SKIPPED + "Start, End and Elapsed contradict each other",
        cell(column),
    )
    if longer.any():
        block.suspended = np.where(longer, over, 0)
        why = "without the column Suspended jobs that ran for less than from Start to End count as suspended between"
        block.notes.append((longer, why, cell(column)))


# --- units ----------------------------------------------------------------------------------------------------------


@cache
def _held(
    tres: str, per_node: str, cores: str, shared: str, exclusive: str, gres: str
) -> Stated:
    """Return what a job held by its AllocTRES, those of each of its nodes, its cores, and its generic resources.

    Words of Exclusive, where there are any, say whether it has its nodes alone; else those of OverSubscribe do.

    >>> [_held("", "", "", *words, "").alone for words in (("NO", ""), ("NO", "NO"), ("OK", "NODE"))]
    [True, False, True]
    """
    words = set(exclusive.upper().split(",")) - {"", "NONE", "(NULL)"}
    alone = (
        bool(words & _EXCLUSIVE)
        if words
        else not _NOT_SHARED.isdisjoint(shared.upper().split(","))
    )
    gpus, shares = amount(tres, "gpu"), amount(tres, "shares")
    gpus = amount(gres, "gpu") if gpus is None else gpus
    shares = amount(gres, "shares") if shares is None else shares
    by_node = amount(per_node, "gpu"), amount(per_node, "shares")
    if gpus is None and shares is None and any(by_node):
        return Stated(by_node[0] or 0, None, by_node[1], each=True, alone=alone)
    if gpus is None and (tres or per_node):
        gpus = 0
    all_cores = amount(tres, "cpu") or (int(cores) if cores.isdecimal() else None)
    return Stated(gpus, all_cores, shares, alone=alone)


def _units_of(block: Block, cells: Mapping[str, Texts]) -> list[Stated]:
    """Return what the jobs of a table held."""
    columns = {name: cells.get(name, texts([""] * len(block))) for name in _UNITS}
    if "gres" in cells:
        columns["gres"] = pc.if_else(
            pc.equal(cells["gres"], ""), "gpu:0", cells["gres"]
        )
    if (
        "shared" in cells and "exclusive" not in cells
    ):  # sacct has both columns from 26.05 on
        unclear = pc.equal(cells["shared"], "NO")
        columns["shared"] = pc.if_else(unclear, "", cells["shared"])
        why = "OverSubscribe=NO is no statement: the column Exclusive states which jobs have their nodes alone"
        block.notes.append((flags(unclear), LOUD + why, lambda row: ""))
    return [
        _held(*each)
        for each in zip(
            *(column.to_pylist() for column in columns.values()), strict=True
        )
    ]


# --- scontrol show job, and JSON ------------------------------------------------------------------------------------

# A job begins a line; lines of -o hold all of it, else the lines of one are indented.
_JOB = re.compile(r"JobId=\d+(?= )")
# A user chooses the name, which may look like any field: it ends where the next field of Slurm's begins.
_NAME = re.compile(
    r" JobName=.*?(?=\s+UserId=[^\s()]*\(\d+\) GroupId=[^\s()]*\(\d+\)\s)", re.DOTALL
)
_PAIR = re.compile(r"(?<!\S)([A-Za-z]\w*)=(\S*)")
# Of some nodes: which cores and GPUs of each. Older releases say GRES_IDX, and leave out the type.
_DETAIL = re.compile(r"(?<!\S)Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES(?:_IDX)?=(\S*)")
# What a job states by all means, in each of the three forms.
_NEEDED = (
    {"NodeList", "StartTime", "EndTime"},
    {"nodes", "start_time", "end_time"},
    {"nodes", "start", "end"},
)
_NO_JOB = (
    "job: expected NodeList (nodes), StartTime (time.start) and EndTime (time.end)"
)
# Parts of jobs, by the ids of the whole and of the part.
_PARTS = (
    ("ArrayJobId", "ArrayTaskId", "_"),
    ("HetJobId", "HetJobOffset", "+"),
    ("PackJobId", "PackJobOffset", "+"),
)
_NODES = re.compile(r"(?:^|,)node=(\d+)")


def _listing(log: Log) -> Iterator[Block | Row]:
    """Read jobs of an instant, or of several one after the other: `scontrol show job`, with -d, -o or neither.

    Each record of a job counts; one without an end is closed by a later one, or by that of sacct: ids are those of its
    column JobID. Once a job has ended, Slurm prints its nodes still, but which GPUs it had no more.
    """

    def row(text: str, line: int) -> Iterator[Row]:
        text = _NAME.sub("", text, count=1)
        # The first of a name counts: what users choose too comes last.
        job: dict[str, Any] = dict(reversed(_PAIR.findall(text)))
        for whole, part, mark in _PARTS:
            if whole in job and part in job:
                # Elements that wait are one record.
                element = job[part] if job[part].isdecimal() else f"[{job[part]}]"
                job["JobId"] = f"{job[whole]}{mark}{element}"
        return _entry(log, job, _DETAIL.findall(text))

    records = cast(Lines, _records(log.lines, _JOB))
    yield from _judged(
        log, each_line(replace(log, lines=records), row, expected=_NO_JOB)
    )


def _records(lines: Lines, begins: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield number of its first line and text of each record; lines before the first are left out."""
    record: list[str] = []
    begun = 0
    for number, line in lines:
        if begins.match(line):
            if begun:
                yield begun, "\n".join(record)
            record, begun = [], number
        record.append(line)
    if begun:
        yield begun, "\n".join(record)


def read_json(log: Log) -> Iterator[Block | Row]:
    """Read the jobs of `sacct --json`, one at a time, so that a month of them need not fit the memory.

    Times are seconds since 1970 there. Releases differ in how they print numbers and states; all ways are taken. What
    `squeue` and `scontrol show job` print are the jobs of an instant: the end of one that runs is its limit there, and
    the start of one that waits is a guess; neither is read as what came.
    """

    def row(entry: dict[str, Any], _: str, line: int) -> Iterator[Row]:
        for name, listed in (entry.get("tres") or {}).items():
            kinds = (
                f"{each['type']}/{each.get('name') or ''}={each.get('count')}"
                for each in listed
            )
            entry[name] = ",".join(kinds).replace("/=", "=")  # cpu=8,gres/gpu=2
        detail = entry.get("gres_detail") or []
        hosts = expand(entry["nodes"]) if detail else ()
        return _entry(log, entry, [*zip(hosts, map(str, detail), strict=False)])

    yield from _judged(
        log,
        each_object(
            log,
            row,
            keys=("jobs",),
            expected=_NO_JOB,
            command="sacct --json",
            bare=False,
        ),
    )


def _judged(log: Log, rows: Iterable[Row]) -> Iterator[Block | Row]:
    """Yield jobs in blocks, and what else is said of them."""
    log.words = {"start": "StartTime (time.start)", "end": "EndTime (time.end)", "known": "EligibleTime",
                 "limit": "TimeLimit", "hosts": "NodeList (nodes)"}  # fmt: skip
    for block in in_blocks(rows):
        if isinstance(block, Block) and block.kind == "ran":
            _judge(block)
        yield block


def _entry(
    log: Log, job: Mapping[str, Any], detail: Sequence[tuple[str, str]]
) -> Iterator[Row]:
    """Yield the cells of a job, and when it was suspended or resumed last.

    Parameters
    ----------
    log
        As every reader has it.
    job
        What it states, by the names of `_ENTRY`.
    detail
        Host lists, and the generic resources that it has of each of these nodes.
    """
    keys = job.keys() | job.get("time", {}).keys()
    if not any(needed <= keys for needed in _NEEDED):
        raise Unusable(f"is no {_NO_JOB}")
    row: dict[str, Any] = {name: stated(job, *names) for name, names in _ENTRY.items()}
    row |= {
        name: re.split(r"[(,]", row[name], maxsplit=1)[0] for name in ("user", "state")
    }
    count = stated(job, "NumNodes", "node_count", "allocation_nodes").partition("-")[0]
    asked = _NODES.search(stated(job, "requested"))
    row["count"] = int(count or (asked[1] if asked else 0))
    if minutes := stated(job, "time_limit", "time.limit"):
        row["limit"] = f"{minutes}:00"
    if "time" not in job and row["state"] in _WAITING:  # both are guesses
        row |= {"start": "", "end": ""}
    elif "time" not in job and row["state"] in _HOLDING:  # its limit
        row["end"] = ""
    # When it was suspended or resumed last, and for how long it had run when it was suspended.
    changed = stated(job, "SuspendTime", "suspend_time")
    ran_s = int(stated(job, "SecsPreSuspend", "pre_sus_time") or 0)
    goes_on = row["state"] == "SUSPENDED"
    if changed and row["start"] and (ran_s or goes_on):
        clock = copy(log.clock)  # which tells nothing of times that are read again
        start_ns, changed_ns = clock.time(row["start"]), clock.time(changed)
        if row["end"]:
            row["suspended"] = str(max(0, (changed_ns - start_ns) // SECOND_NS - ran_s))
        kind = "suspended" if goes_on else "resumed"
        yield {"kind": kind, "again": True, "id": row["id"], "cluster": row["cluster"], "start": start_ns,
               "end": changed_ns, "suspended": ran_s * SECOND_NS}  # fmt: skip
    if log.settings.unit is not None:
        try:
            row["units"] = _units_of_entry(log, job, row["hosts"], detail)
        except HostListError as error:
            raise Unusable("NodeList or Nodes holds no host list", str(error)) from None
    yield row


def _units_of_entry(
    log: Log, job: Mapping[str, Any], hosts: str, detail: Sequence[tuple[str, str]]
) -> Stated:
    """Return what a job held: by detail, the GPUs of each node."""
    held = _held(*(stated(job, *names) for names in _UNITS_OF_ENTRY.values()))
    if held.alone or log.settings.unit.cores:
        return held
    named = {
        host: indices(text) or amount(text, "gpu") or 0
        for listed, text in detail
        for host in expand(listed)
    }
    strangers = named.keys() - set(expand(hosts))
    if strangers:
        raise Unusable(
            "states GPUs of nodes that NodeList does not have",
            f"{len(strangers)} of them",
        )
    # A job that has ended has returned its own.
    return Stated(named=tuple(named.items())) if any(named.values()) else held


# --- events and reservations ----------------------------------------------------------------------------------------

_RESERVATION = re.compile(r"\s*ReservationName=")
_OUTAGE = {
    "start": ("timestart", "start"),
    "end": ("timeend", "end"),
    # The field is called NodeNames, its column NodeName.
    "hosts": ("nodename", "nodenames", "nodes", "nodelist"),
    "cluster": ("cluster",),
    "state": ("state",),
}


def read_events(log: Log) -> Iterator[Block]:
    """Read events of nodes: whatever made a node unfit for jobs makes it unavailable, until the event's end.

    Slurm records an event when a node stops being able to run jobs: a state that is not known is an outage.

    Events of a whole cluster, which name no node, tell of its size and are left out.
    """
    yield from _outages(log, EVENTS_COMMAND)


def read_reservations(log: Log) -> Iterator[Block | Row]:
    """Read reservations: reserved nodes are unavailable, also when only some of their cores are reserved.

    What scontrol shows of itself it knows of the past only what has not been purged; sacctmgr knows all.
    """
    head = "".join(log.lines.head(limit=1))
    if "ReservationName=" not in head and not head.startswith("No reservations"):
        yield from _outages(log, RESERVATIONS_COMMAND, RESERVED)
    for number, text in _records(log.lines, _RESERVATION):
        pairs = dict(_PAIR.findall(text))
        nodes, start, end = (
            pairs.get(name, "") for name in ("Nodes", "StartTime", "EndTime")
        )
        yield {"line": number, "kind": "down", "state": RESERVED, "id": nodes, "hosts": nodes, "start": start,
               "end": end}  # fmt: skip


def _outages(log: Log, command: str, kind: str = "") -> Iterator[Block]:
    """Read a table of events, or of reservations; an end that is missing is still to come."""
    log.words = {"start": "its start", "end": "its end"}
    for rows in Table(
        log,
        _OUTAGE,
        needed=("start", "end", "hosts"),
        optional=("state",),
        command=command,
    ):
        cells, why = rows.cells, rows.why
        words = cells["state"].to_pylist() if "state" in cells else [""] * len(rows)
        able = [
            state_of(word, log.settings.counts_as) in ("idle", "busy") for word in words
        ]
        why.where(
            flags(pc.equal(cells["hosts"], "")), LEFT_OUT + "event of the whole cluster"
        )
        why.where(
            np.array(able, dtype=bool), LEFT_OUT + "event of a node that could run jobs"
        )
        why.where(
            are_missing(cells["start"]),
            SKIPPED + "its start is no time",
            cell(cells["start"]),
        )
        kinds = texts(
            [kind or (POWERED_OFF if "off" in power_of(word) else "") for word in words]
        )
        yield Block(
            line=rows.line,
            why=why,
            kind="down",
            **{**cells, "id": cells["hosts"], "state": kinds},
        )
