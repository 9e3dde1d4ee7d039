"""What Slurm prints: jobs of `sacct -P`, of `scontrol show job` and of JSON, events of nodes, and reservations.

With -d, scontrol states which GPUs of each node a job has.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from bft.replay.logs.hostlists import expand
from bft.replay.logs.log_files import LogLines
from bft.replay.logs.node_states import power_of, state_of
from bft.replay.logs.reading import (
    MISSING,
    MOST_ELEMENT,
    MOST_EPOCH_S,
    HostListError,
    Ignored,
    JobGone,
    JobPlanned,
    JobRan,
    LeftOut,
    OfOthers,
    Origin,
    Outage,
    Reading,
    Record,
    Reserved,
    Skipped,
    Unusable,
    each_object,
    first_line,
    is_missing,
    limit_ns,
    no_time,
)
from bft.replay.logs.slurm_jobs import (
    COMMAND,
    PLANNED,
    UNITS,
    Job,
    Rows,
    Stated,
    held,
    is_alone,
    judge,
    of_entry,
    plan,
    so_far,
    suspension,
)
from bft.replay.logs.slurm_table import Table
from bft.replay.trace.node_trace import SECOND_NS


def read(reading: Reading) -> Iterator[Record]:
    """Read the jobs of `sacct -P` or `-p`, with any delimiter and any columns that hold those of `COMMAND`.

    Job steps are left out; each record of a requeued job counts, as each held nodes of its own. Without a column
    NodeList jobs are counted only (`Collector.count`). Where lines come in blocks, those of the most frequent kind are
    read by columns, with the same result (`slurm_blocks`). A file that begins with a job of `scontrol show job` is read
    by `read_text`. Rows that cannot be used are yielded as `Skipped`, and counted in `reading.diagnosis`.
    """
    source = LogLines.of(reading.lines)
    reading = replace(reading, lines=source)
    if begins_as_text(source):
        yield from read_text(reading)
        return
    names = (
        ("jobid", "jobidraw"),
        ("start",),
        ("end",),
        ("nodelist", "allocnodes", "nnodes"),
    )
    decisive: list[tuple[str, ...]] = [("cluster",), ("suspended",)]
    decisive += [(name,) for name in reading.filters]
    if reading.units is not None:
        decisive += UNITS
    if reading.settings.walltimes:
        decisive += PLANNED
    optional = [("state",), ("allocnodes", "nnodes"), ("user",), ("partition",)]
    table = Table(
        reading, needed=names, decisive=decisive, optional=optional, command=COMMAND
    )
    rows = Rows(reading, table)
    if source.in_blocks and table.columnar and rows.named:
        # imported late: it takes pyarrow
        from bft.replay.logs.slurm_blocks import read_blocks

        yield from read_blocks(reading, source, table, rows)
    else:
        yield from rows.each(table)
    yield from rows.counted()


# A job begins a line; lines of -o hold all of it, else the lines of one are indented.
_JOB = re.compile(r"JobId=\d+(?= )")
# A user chooses the name, which may look like any field: it ends where the next field of Slurm's begins.
_NAME = re.compile(
    r" JobName=.*?(?=\s+UserId=[^\s()]*\(\d+\) GroupId=[^\s()]*\(\d+\)\s)", re.DOTALL
)
_PAIR = re.compile(r"(?<!\S)([A-Za-z]\w*)=(\S*)")
# Of some nodes: which cores and GPUs of each. Older releases say GRES_IDX, and leave out the type.
_DETAIL = re.compile(r"(?<!\S)Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES(?:_IDX)?=(\S*)")
# Lines looked at for the first that is not blank.
_LOOKED_AT = 1_000
# Running jobs of a listing, and the share of them in the next, from which on the latter is one of all jobs.
_ENOUGH_LISTED, _LEAST_LISTED = 10, 0.25
_NEEDED = ("JobState", "StartTime", "EndTime", "NodeList")


def begins_as_text(lines: LogLines) -> bool:
    """Whether jobs of `scontrol show job` come next; nothing is taken."""
    head = lines.peek(str.strip, _LOOKED_AT)
    return bool(head) and (
        _JOB.match(head[-1]) is not None or head[-1].startswith("No jobs in the system")
    )


def read_text(reading: Reading) -> Iterator[Record]:
    """Read jobs of an instant, or of several one after the other: `scontrol show job`, with -d, -o or neither.

    Each record of a job counts; one without an end is closed by a later one, or by that of sacct: ids are those of its
    column JobID. Once a job has ended, Slurm prints its nodes still, but which GPUs it had no more.
    """
    listings = _Listings()
    for number, text in _blocks(reading, _JOB):
        try:
            for record in _records(text, reading, number):
                if isinstance(record, JobRan):
                    listings.see(record)
                yield record
        except HostListError as error:
            why = "NodeList or Nodes holds no host list"
            yield Skipped(number, why, str(error))
        except (Unusable, LeftOut) as refused:
            again = partial(_records, text, reading, number)
            for record in reading.refused(refused, number, again):
                # Listings are told apart by all of their jobs.
                if isinstance(record, OfOthers) and isinstance(record.record, JobRan):
                    listings.see(record.record)
                yield record
    yield from listings.vanished()


class _Listings:
    """Which jobs each of several listings has, as cron puts them one after the other.

    One begins where a job comes again. When it was made no line says: not before any start or end that it states.
    """

    def __init__(self) -> None:
        self._ids: set[Hashable] = set()
        # Of each listing the latest time in it.
        self._times = [0]
        # Of jobs that ran when they were listed last, by which listing that was.
        self._running: dict[Hashable, tuple[int, JobRan]] = {}

        # Of each listing how many jobs run, and how many of those that ran in the one before it has.
        self._counts = [[0, 0]]

    def see(self, job: JobRan) -> None:
        """A job is listed that has started."""
        if job.key in self._ids:
            self._ids.clear()
            self._times.append(0)
            self._counts.append([0, 0])
        self._ids.add(job.key)
        latest = job.start_ns if job.end_ns is None else job.end_ns
        self._times[-1] = max(self._times[-1], latest)
        now = len(self._times) - 1
        before, _ = self._running.pop(job.key, (-1, job))
        self._counts[-1][1] += before == now - 1
        if job.end_ns is None:
            self._running[job.key] = now, job
            self._counts[-1][0] += 1

    def vanished(self) -> Iterator[Record]:
        """Yield jobs that ran in one listing and are in none after it: they had ended when the next one was made.

        That is taken for a listing of all jobs which has many of those that ran in the one before.
        """
        for number, job in self._running.values():
            if number + 1 >= len(self._times):
                continue
            ran, known = self._counts[number][0], self._counts[number + 1][1]
            if ran < _ENOUGH_LISTED or known < _LEAST_LISTED * ran:
                continue
            seen_ns = max(self._times[number], job.start_ns)
            gone_ns = max(self._times[number + 1], seen_ns)
            yield JobGone(job.key, job.start_ns, seen_ns, gone_ns)


def _blocks(reading: Reading, begins: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield number of its first line and text of each block; lines before the first block are left out."""
    block: list[str] = []
    begun = size = 0
    for number, line in reading.numbered():
        if begins.match(line):
            if block:
                yield begun, "\n".join(block)
            block, begun, size = [line], number, len(line)
            continue
        size += len(line)
        if block and size < MOST_ELEMENT:
            block.append(line)
    if block:
        yield begun, "\n".join(block)


def _records(text: str, reading: Reading, line: int) -> Iterator[Record]:
    text = _NAME.sub("", text, count=1)
    stated: dict[str, str] = {}
    for key, value in _PAIR.findall(text):
        stated.setdefault(
            key, value
        )  # the first: comments and paths, which users choose too, come last
    missing = [key for key in _NEEDED if key not in stated]
    if missing:
        raise Unusable(f"is no job: expected {', '.join(_NEEDED)}", f"no {missing[0]}")
    state = stated["JobState"]
    user, partition = (stated.get(key, "") for key in ("UserId", "Partition"))
    origin = Origin(user.partition("(")[0], partition, state)
    # the text names no cluster
    reading.keep(line, cluster="", partition=partition, user=origin.user)
    nodes: array[int] = reading.lists()(stated["NodeList"])
    times = [_time(stated, key, reading, line) for key in ("StartTime", "EndTime")]
    start, end = so_far(state, times[0], times[1])
    key, log = reading.job_key(_id(stated), "", line), reading.units
    has_run = bool(nodes) and start is not None and (end is None or end > start)
    has = (
        None
        if log is None or not has_run
        else held(_stated(text, stated, nodes, reading), nodes, log, reading, line)
    )
    job = Job(
        key, state, start, end, nodes, _whole(stated, "NumNodes") or 0, has,
        origin=origin,
    )  # fmt: skip
    before = _whole(stated, "SecsPreSuspend")
    before_ns = None if before is None else before * SECOND_NS
    changed = None
    if before or state == "SUSPENDED":
        changed = _time(stated, "SuspendTime", reading, line)
    if start is not None and end is not None and changed is not None and before_ns:
        job = replace(job, suspended_ns=max(0, changed - start - before_ns))
    yield from suspension(job, changed, before_ns)
    if reading.settings.walltimes:
        known = next(
            (
                t
                for name in ("EligibleTime", "SubmitTime")
                if (t := _time(stated, name, reading, line))
            ),
            None,
        )
        limit = limit_ns(stated.get("TimeLimit", ""))
        yield JobPlanned(key, plan(job, known, limit))
    yield judge(job, line)


def _time(stated: dict[str, str], key: str, reading: Reading, line: int) -> int | None:
    text = stated.get(key, "")
    time_ns = reading.clock.parse(text, reading.file, line)
    if time_ns is None and text not in MISSING:
        raise Unusable(f"{key} holds no time", no_time(text))
    return time_ns


def _whole(stated: dict[str, str], key: str) -> int | None:
    """A number, of a range such as 2-4 its lower end; None where it states none."""
    text = stated.get(key, "").partition("-")[0]
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _id(stated: dict[str, str]) -> str:
    """The id as sacct's column JobID has it: of an array 6_1, of a heterogeneous job 8+0."""
    for whole, part, mark in (
        ("ArrayJobId", "ArrayTaskId", "_"), ("HetJobId", "HetJobOffset", "+"), ("PackJobId", "PackJobOffset", "+"),
    ):  # fmt: skip
        if whole in stated and part in stated:
            # Elements that wait are one record.
            element = stated[part] if stated[part].isdecimal() else f"[{stated[part]}]"
            return f"{stated[whole]}{mark}{element}"
    return stated["JobId"]


def _stated(
    text: str, stated: dict[str, str], nodes: array[int], reading: Reading
) -> Stated:
    """Return the units that the text of a job states of its nodes."""
    of_node: dict[int, str] = {}
    for listed, resources in _DETAIL.findall(text):
        of_node.update(dict.fromkeys(reading.lists()(listed), resources))
    strangers = len(of_node.keys() - set(nodes))
    if strangers:
        raise Unusable(
            "states GPUs of nodes that NodeList does not have", f"{strangers} of them"
        )
    return Stated(
        allocated=stated.get("AllocTRES", stated.get("TRES", "")),
        together=stated.get("JOB_GRES", ""),
        per_node=stated.get("TresPerNode", ""),
        cores=_whole(stated, "NumCPUs"),
        alone=is_alone(
            [stated.get("OverSubscribe", "")], [stated.get("Exclusive", "")]
        ),
        detail=tuple(of_node.get(node, "") for node in nodes) if of_node else (),
    )


def read_json(reading: Reading) -> Iterator[Record]:
    """Read the jobs of `sacct --json`, one at a time, so that a month of them need not fit the memory.

    Times are seconds since 1970 there. Releases differ in how they print numbers and states; all ways are taken. What
    `squeue` and `scontrol show job` print are the jobs of an instant: the end of one that runs is its limit there, and
    the start of one that waits is a guess; neither is read as what came.
    """
    yield from each_object(
        reading,
        partial(_entry_records, reading),
        keys=("jobs",),
        expected="job: expected nodes and time.start, time.end as whole numbers",
        command="sacct --json",
        bare=False,
        nodes="nodes holds no host list",
    )


def _entry_records(
    reading: Reading, entry: dict[str, Any], _: str, line: int
) -> Iterator[Record]:
    cluster = str(entry.get("cluster") or "")
    partition = str(entry.get("partition") or "")
    queued = "time" not in entry  # of squeue or scontrol
    user = str(entry.get("user_name" if queued else "user") or "")
    reading.keep(line, cluster=cluster, partition=partition, user=user)
    state = (
        entry.get("job_state", "")
        if queued
        else entry.get("state", {}).get("current", "")
    )
    state = state[0] if isinstance(state, list) and state else state
    state = state if isinstance(state, str) else ""
    text = entry["nodes"]
    if not isinstance(text, str):
        raise TypeError("nodes is no text")
    nodes: array[int] = reading.lists(cluster)(text)
    if queued:
        start, end = so_far(
            state,
            _entry_instant(entry["start_time"]),
            _entry_instant(entry["end_time"]),
        )
    else:
        start, end = (_entry_instant(entry["time"][name]) for name in ("start", "end"))
    job_id = str(entry["job_id"]) if "job_id" in entry else text
    key = reading.job_key(job_id, cluster, line)
    log = reading.units
    has_run = start is not None and (end is None or end > start)
    some = (
        held(of_entry(entry), nodes, log, reading, line)
        if log is not None and has_run
        else None
    )
    origin = Origin(user, partition, state)
    job = Job(key, state, start, end, nodes, held=some, origin=origin)
    if queued:
        before_ns = _entry_number(entry.get("pre_sus_time", 0)) * SECOND_NS
        yield from suspension(job, _entry_instant(entry.get("suspend_time")), before_ns)
    else:
        lost_ns = _entry_number(entry["time"].get("suspended", 0)) * SECOND_NS
        job = replace(job, suspended_ns=lost_ns)
    if reading.settings.walltimes:
        job = replace(job, count=_entry_nodes(entry, queued=queued))
        names = (
            ("eligible_time", "submit_time") if queued else ("eligible", "submission")
        )
        stated = entry if queued else entry["time"]
        known = next(
            (
                time
                for time in (_entry_instant(stated.get(name, 0)) for name in names)
                if time is not None
            ),
            None,
        )
        minutes = _entry_number(stated.get("time_limit" if queued else "limit", 0))
        limit = minutes * 60 * SECOND_NS or None
        yield JobPlanned(key, plan(job, known, limit))
    yield judge(job, line)


def _entry_nodes(entry: dict[str, Any], *, queued: bool) -> int:
    """How many nodes a job asks for; 0 where that is not stated."""
    if queued:
        return _entry_number(entry.get("node_count", 0))
    asked = [
        each
        for each in entry.get("tres", {}).get("requested", [])
        if each.get("type") == "node"
    ]
    return (
        _entry_number(asked[0].get("count", 0))
        if asked
        else _entry_number(entry.get("allocation_nodes", 0))
    )


# What Slurm's data base has for a number that is not known, and for an infinite one, of 32 and of 64 bits.
_UNSET = frozenset({2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1})


def _entry_number(value: Any) -> int:
    """A whole number; 0 for one that is unset (null, or as `_UNSET` has it) or infinite."""
    if isinstance(value, dict):  # {"set": true, "infinite": false, "number": 5}
        no_value = value.get("infinite") or not value.get("set", True)
        value = 0 if no_value else value["number"]
    if value is None or value == "Infinity" or value in _UNSET:
        return 0
    if not isinstance(value, int) or not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _entry_instant(value: Any) -> int | None:
    """Return a time in UTC nanoseconds; None for 0 and unset numbers."""
    return _entry_number(value) * SECOND_NS or None


def outage(
    nodes: str,
    start: str,
    end: str,
    line: int,
    reading: Reading,
    *,
    cluster: str = "",
    reserved: bool = False,
    powered_off: bool = False,
) -> Iterator[Record]:
    """Yield the records of one row: these nodes were down, or reserved; an end that is missing is still to come."""
    file, clock = reading.file, reading.clock
    began = clock.parse(start, file, line)
    ended = clock.parse(end, file, line, began)
    try:
        hosts = expand(nodes)
    except HostListError as error:
        yield Skipped(line, "names no nodes that can be read", str(error))
        return
    if began is None:
        yield Skipped(line, "its start is no time", no_time(start))
    elif ended is None and not is_missing(end):
        yield Skipped(line, "its end is no time", no_time(end))
    elif ended is not None and ended < began:
        before = f"{(began - ended) / 1e9:g} s before"
        yield Skipped(line, "ends before it starts", before)
    elif not hosts:
        yield Ignored(line, "names no nodes")
    else:
        indices = reading.nodes(hosts, cluster)
        yield Outage(line, nodes, indices, began, ended, reserved, powered_off)
        if reading.settings.walltimes:
            yield Reserved(indices, began, ended)


EVENTS_COMMAND = (
    "sacctmgr -P show event all_time format=NodeName,TimeStart,TimeEnd,State"
)


def read_events(reading: Reading) -> Iterator[Record]:
    """Read events of nodes: whatever made a node unfit for jobs makes it unavailable, until the event's end.

    Slurm records an event when a node stops being able to run jobs: a state that is not known is an outage.

    Events of a whole cluster, which name no node, tell of its size and are left out.
    """
    names = (("timestart", "start"), ("timeend", "end"), ("nodename", "nodelist"))
    table = Table(
        reading,
        needed=names,
        decisive=[("cluster",)],
        optional=[("state",)],
        command=EVENTS_COMMAND,
    )
    yield from _table_outages(reading, table, "event")


def _table_outages(reading: Reading, table: Table, what: str) -> Iterator[Record]:
    """Yield the outages of a table of events or of reservations; `what` is one row of it."""
    at_state, at_cluster = table.at.get("state", -1), table.at["cluster"]
    for number, fields in table:
        if isinstance(fields, Skipped):
            yield fields
            continue
        nodes = fields[table.at["nodename"]]
        start, end = fields[table.at["timestart"]], fields[table.at["timeend"]]
        cluster = fields[at_cluster] if at_cluster >= 0 else ""
        state = fields[at_state] if at_state >= 0 else ""
        if reading.other(number, cluster=cluster):
            yield Ignored(number, f"{what} of another cluster")
        elif what == "event" and not nodes:
            yield Ignored(number, "event of the whole cluster")
        elif state_of(state, reading.settings.counts_as) in ("idle", "busy"):
            yield Ignored(number, "event of a node that could run jobs")
        else:
            yield from outage(
                nodes,
                start,
                end,
                number,
                reading,
                cluster=cluster,
                reserved=what == "reservation",
                powered_off="off" in power_of(state),
            )


RESERVATIONS_COMMAND = "sacctmgr -P show reservation format=NodeNames,TimeStart,TimeEnd"
_RESERVATION = re.compile(r"\s*ReservationName=")
_WORDS = re.compile(r"(?<!\S)(\w+)=(\S*)")


def read_reservations(reading: Reading) -> Iterator[Record]:
    """Read reservations: reserved nodes are unavailable, also when only some of their cores are reserved.

    What scontrol shows of itself it knows of the past only what has not been purged; sacctmgr knows all.
    """
    first, reading = first_line(reading)
    if "ReservationName=" in first or first.startswith("No reservations"):
        for number, text in _blocks(reading, _RESERVATION):
            stated = dict(_WORDS.findall(text))
            nodes, start, end = (
                stated.get(name, "") for name in ("Nodes", "StartTime", "EndTime")
            )
            yield from outage(nodes, start, end, number, reading, reserved=True)
        return
    names = (
        ("timestart", "start"),
        ("timeend", "end"),
        # The field is called NodeNames, its column NodeName.
        ("nodename", "nodenames", "nodes", "nodelist"),
    )
    table = Table(
        reading, needed=names, decisive=[("cluster",)], command=RESERVATIONS_COMMAND
    )
    yield from _table_outages(reading, table, "reservation")
