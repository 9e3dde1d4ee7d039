"""Slurm's accounting as `sacct --json` prints it, and its jobs as `squeue --json` and `scontrol show job --json` do."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from typing import Any

from bft.models import InputError
from bft.replay.logs.diagnosis import LeftOut, Unusable
from bft.replay.logs.hostlists import HostListError
from bft.replay.logs.reading import Clusters, Reading
from bft.replay.logs.records import MISSHAPEN, elements
from bft.replay.logs.slurm_jobs import Job, held, judge, of_entry, plan, so_far
from bft.replay.logs.times import MOST_EPOCH_S
from bft.replay.trace.node_trace import SECOND_NS


def read(reading: Reading) -> None:
    """Read the jobs of `sacct --json`, one at a time, so that a month of them need not fit the memory.

    Times are seconds since 1970 there. Releases differ in how they print numbers and states; all ways are taken. What
    `squeue` and `scontrol show job` print are the jobs of an instant: the end of one that runs is its limit there, and
    the start of one that waits is a guess; neither is read as what came.
    """
    file, diagnosis, clusters = reading.file, reading.diagnosis, Clusters(reading)
    for number, _, text in elements(reading.lines, ("jobs",), file, "sacct --json"):
        diagnosis.lines += 1
        diagnosis.rows += 1
        try:
            job = _job(json.loads(text), clusters, number)
        except (
            InputError
        ):  # of the whole log, such as too many nodes; it is a ValueError as well
            raise
        except HostListError as error:
            diagnosis.skip("nodes holds no host list", file, number, str(error))
        except Unusable as why:
            diagnosis.skip(why.reason, file, number, why.detail)
        except LeftOut as why:
            diagnosis.leave_out(str(why), file, number)
        except (ValueError, RecursionError) as error:
            diagnosis.skip("is not JSON", file, number, str(error))
        except MISSHAPEN as error:
            diagnosis.skip(
                "is no job: expected nodes and time.start, time.end as whole numbers",
                file,
                number,
                repr(error),
            )
        else:
            diagnosis.used += judge(job, reading, number)


def _job(entry: dict[str, Any], clusters: Clusters, line: int) -> Job:
    cluster = str(entry.get("cluster") or "")
    other = clusters.reading.other(
        line, cluster=cluster, partition=str(entry.get("partition") or "")
    )
    if other:
        raise LeftOut(f"job of another {other}")
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
    log, has_run = (
        clusters.reading.into.units,
        start is not None and (end is None or end > start),
    )
    some = (
        held(of_entry(entry), nodes, log, clusters.reading, line)
        if log is not None and has_run
        else None
    )
    job = Job(key, state, start, end, nodes, held=some)
    if clusters.reading.settings.walltimes:
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
        clusters.reading.into.plans.job(
            key, plan(job, known, minutes * 60 * SECOND_NS or None)
        )
    return job


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


def _number(value: Any) -> int:
    """A whole number; 0 for one that is unset or infinite."""
    if isinstance(value, dict):
        value = (
            0
            if value.get("infinite") or not value.get("set", True)
            else value["number"]
        )
    if not isinstance(value, int) or not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _instant(value: Any) -> int | None:
    """UTC nanoseconds; 0 and unset numbers are no time."""
    if isinstance(value, dict):  # {"set": true, "infinite": false, "number": 5}
        value = value["number"] if value.get("set", True) else 0
    if not isinstance(value, int) or not 0 <= value < MOST_EPOCH_S:
        raise TypeError(f"{value!r} is no time")
    return value * SECOND_NS or None
