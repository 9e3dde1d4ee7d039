"""Slurm's accounting as `sacct -P` prints it, and its jobs as `scontrol show job` prints them.

With -d, scontrol states which GPUs of each node a job has.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterator
from dataclasses import replace

from bft.replay.logs.log_files import LogLines
from bft.replay.logs.reading import (
    MISSING,
    MOST_ELEMENT,
    Clusters,
    HostListError,
    JobGone,
    JobPlanned,
    JobRan,
    LeftOut,
    Reading,
    Record,
    Skipped,
    Unusable,
    limit_ns,
    no_time,
    refusal,
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
    plan,
    so_far,
)
from bft.replay.logs.slurm_table import Table


def read(reading: Reading) -> Iterator[Record]:
    """Read the jobs of `sacct -P` or `-p`, with any delimiter and any columns that hold those of `COMMAND`.

    Job steps are left out; each record of a requeued job counts, as each held nodes of its own. Without a column
    NodeList jobs are counted only (`Collector.count`). Where lines come in blocks, those of the most frequent kind are
    read by columns, with the same result (`slurm_blocks`). A file that begins with a job of `scontrol show job` is read
    by `read_text`.
    """
    source = (
        reading.lines
        if isinstance(reading.lines, LogLines)
        else LogLines(lines=reading.lines)
    )
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
    optional: list[tuple[str, ...]] = [
        ("state",),
        ("allocnodes", "nnodes"),
        ("cluster",),
    ]
    optional += [("user",), ("partition",)]
    if reading.units is not None:
        optional += UNITS
    if reading.settings.walltimes:
        optional += PLANNED
    table = Table(reading, needed=names, optional=optional, command=COMMAND)
    rows = Rows(reading, table)
    if source.in_blocks and table.columnar and rows.columnar:
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
    head = []
    for line in lines:
        head.append(line)
        if line.strip() or len(head) == _LOOKED_AT:
            break
    lines.unread(head)
    return bool(head) and (
        _JOB.match(head[-1]) is not None or head[-1].startswith("No jobs in the system")
    )


def read_text(reading: Reading) -> Iterator[Record]:
    """Read jobs of an instant, or of several one after the other: `scontrol show job`, with -d, -o or neither.

    Each record of a job counts; one without an end is closed by a later one, or by that of sacct: ids are those of its
    column JobID. Once a job has ended, Slurm prints its nodes still, but which GPUs it had no more.
    """
    clusters = Clusters(reading)
    listings = _Listings()
    for number, text in _blocks(reading):
        try:
            for record in _records(text, clusters, number):
                if isinstance(record, JobRan):
                    listings.see(record)
                yield record
        except HostListError as error:
            why = "NodeList or Nodes holds no host list"
            yield Skipped(number, why, str(error))
        except (Unusable, LeftOut) as refused:
            yield refusal(refused, number)
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


def _blocks(reading: Reading) -> Iterator[tuple[int, str]]:
    """Number of its first line and text of each job; other lines are accounted for."""
    block: list[str] = []
    begun = size = 0
    for number, line in reading.numbered():
        if _JOB.match(line):
            if block:
                yield begun, "\n".join(block)
            block, begun, size = [line], number, len(line)
            continue
        size += len(line)
        if block and size < MOST_ELEMENT:
            block.append(line)
    if block:
        yield begun, "\n".join(block)


def _records(text: str, clusters: Clusters, line: int) -> Iterator[Record]:
    text = _NAME.sub("", text, count=1)
    stated: dict[str, str] = {}
    for key, value in _PAIR.findall(text):
        stated.setdefault(
            key, value
        )  # the first: comments and paths, which users choose too, come last
    missing = [key for key in _NEEDED if key not in stated]
    if missing:
        raise Unusable(f"is no job: expected {', '.join(_NEEDED)}", f"no {missing[0]}")
    reading, state = clusters.reading, stated["JobState"]
    # the text names no cluster
    reading.keep(line, cluster="", partition=stated.get("Partition", ""))
    nodes: array[int] = clusters.lists("")(stated["NodeList"])
    times = [_time(stated, key, reading, line) for key in ("StartTime", "EndTime")]
    start, end = so_far(state, times[0], times[1])
    key, log = _id(stated), reading.units
    has_run = bool(nodes) and start is not None and (end is None or end > start)
    has = (
        None
        if log is None or not has_run
        else held(_stated(text, stated, nodes, clusters), nodes, log, reading, line)
    )
    job = Job(key, state, start, end, nodes, _whole(stated, "NumNodes") or 0, has)
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
    text: str, stated: dict[str, str], nodes: array[int], clusters: Clusters
) -> Stated:
    """Return the units that the text of a job states of its nodes."""
    of_node: dict[int, str] = {}
    for listed, resources in _DETAIL.findall(text):
        of_node.update(dict.fromkeys(clusters.lists("")(listed), resources))
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
