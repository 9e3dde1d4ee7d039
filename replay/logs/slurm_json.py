"""Slurm's accounting as `sacct --json` prints it, and its jobs as `squeue --json` and `scontrol show job --json` do."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bft.replay.logs.reading import (
    MOST_EPOCH_S,
    Clusters,
    JobPlanned,
    Reading,
    Record,
    each_object,
)
from bft.replay.logs.slurm_jobs import Job, held, judge, of_entry, plan, so_far
from bft.replay.trace.node_trace import SECOND_NS


def read(reading: Reading) -> Iterator[Record]:
    """Read the jobs of `sacct --json`, one at a time, so that a month of them need not fit the memory.

    Times are seconds since 1970 there. Releases differ in how they print numbers and states; all ways are taken. What
    `squeue` and `scontrol show job` print are the jobs of an instant: the end of one that runs is its limit there, and
    the start of one that waits is a guess; neither is read as what came.
    """
    clusters = Clusters(reading)

    def record(entry: dict[str, Any], _: str, line: int) -> Iterator[Record]:
        return _records(entry, clusters, line)

    yield from each_object(
        reading,
        record,
        keys=("jobs",),
        expected="job: expected nodes and time.start, time.end as whole numbers",
        command="sacct --json",
        bare=False,
        nodes="nodes holds no host list",
    )


def _records(entry: dict[str, Any], clusters: Clusters, line: int) -> Iterator[Record]:
    reading = clusters.reading
    cluster = str(entry.get("cluster") or "")
    partition = str(entry.get("partition") or "")
    reading.keep(line, cluster=cluster, partition=partition)
    queued = "time" not in entry  # of squeue or scontrol
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
    nodes: array[int] = clusters.lists(cluster)(text)
    if queued:
        start, end = so_far(
            state, _instant(entry["start_time"]), _instant(entry["end_time"])
        )
    else:
        start, end = (_instant(entry["time"][name]) for name in ("start", "end"))
    key = cluster, str(entry["job_id"]) if "job_id" in entry else text
    log = reading.units
    has_run = start is not None and (end is None or end > start)
    some = (
        held(of_entry(entry), nodes, log, reading, line)
        if log is not None and has_run
        else None
    )
    job = Job(key, state, start, end, nodes, held=some)
    if reading.settings.walltimes:
        job = replace(job, count=_nodes(entry, queued=queued))
        names = (
            ("eligible_time", "submit_time") if queued else ("eligible", "submission")
        )
        stated = entry if queued else entry["time"]
        known = next(
            (
                time
                for time in (_instant(stated.get(name, 0)) for name in names)
                if time is not None
            ),
            None,
        )
        minutes = _number(stated.get("time_limit" if queued else "limit", 0))
        limit = minutes * 60 * SECOND_NS or None
        yield JobPlanned(key, plan(job, known, limit))
    yield judge(job, line)


def _nodes(entry: dict[str, Any], *, queued: bool) -> int:
    """How many nodes a job asks for; 0 where that is not stated."""
    if queued:
        return _number(entry.get("node_count", 0))
    asked = [
        each
        for each in entry.get("tres", {}).get("requested", [])
        if each.get("type") == "node"
    ]
    return (
        _number(asked[0].get("count", 0))
        if asked
        else _number(entry.get("allocation_nodes", 0))
    )


# What Slurm's data base has for a number that is not known, and for an infinite one, of 32 and of 64 bits.
_UNSET = frozenset({2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1})


def _number(value: Any) -> int:
    """A whole number; 0 for one that is unset (null, or as `_UNSET` has it) or infinite."""
    if isinstance(value, dict):  # {"set": true, "infinite": false, "number": 5}
        no_value = value.get("infinite") or not value.get("set", True)
        value = 0 if no_value else value["number"]
    if value is None or value == "Infinity" or value in _UNSET:
        return 0
    if not isinstance(value, int) or not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _instant(value: Any) -> int | None:
    """Return UTC nanoseconds; 0 and unset numbers are no time."""
    return _number(value) * SECOND_NS or None
