"""OAR: jobs as `oarstat -J --gantt` and `oarstat -J -f` print them.

When resources were dead is read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bft.replay.logs.formats.entries import stated
from bft.replay.logs.records import LEFT_OUT, SKIPPED, Block, Log, Row, each_object

COMMAND = 'oarstat -J --gantt "2024-01-01 00:00:00, 2024-02-01 00:00:00"'
# oarstat spells its fields in two ways.
_FIELDS = {
    "id": ("Job_Id", "job_id", "id"),
    "partition": ("queue", "queue_name"),
    "user": ("owner", "job_user", "user"),
    "known": ("submissionTime", "submission_time"),
    "limit": ("walltime",),
    "start": ("startTime", "start_time"),
    "end": ("stopTime", "stop_time"),
    "hosts": ("assigned_network_address", "network_address"),
}
# A start that is stated of these is a forecast, and an end of the others.
_WAITING = frozenset({"Waiting", "Hold", "toLaunch", "toAckReservation", "toError"})
_RUNNING = frozenset({"Running", "Launching", "Suspended", "Resuming", "Finishing"})
_ENDED = frozenset({"Terminated", "Error"})


def read(log: Log) -> Iterator[Block | Row]:
    """Read jobs; a job without an end that has not ended is running.

    With -f jobs are an object by their ids; with --gantt that object is called `jobs`, and beside it are `resources`
    and `dead_resources`, which states when each was Absent, Suspected or Dead: a node with one that was is unavailable.
    """
    log.words = {"start": "startTime", "end": "stopTime", "known": "submissionTime"}
    # Of each resource its node; resources such as licences have none.
    host_of: dict[str, str] = {}
    dead: list[Row] = []

    def row(entry: dict[str, Any], name: str, line: int) -> Iterator[Row]:
        if name == "dead_resources":
            dead.extend(
                {
                    "line": line,
                    "kind": "down",
                    "id": resource,
                    "start": str(begin or ""),
                    "end": str(end or ""),
                    "why": ""
                    if begin
                    else SKIPPED + "a resource is dead since no time",
                }
                for resource, spans in entry.items()
                for begin, end, *_ in spans
            )
            yield {"kind": "nothing"}
        elif "resource_id" in entry and not isinstance(entry["resource_id"], list):
            host_of[str(entry["resource_id"])] = stated(entry, "network_address")
            yield {"kind": "nothing", "why": LEFT_OUT + "a resource"}
        else:
            yield _job(entry, name)

    expected = "job of OAR: expected startTime, stopTime and assigned_network_address"
    within = ("jobs", "resources")
    yield from each_object(
        log, row, keys=None, expected=expected, command=COMMAND, within=within
    )
    for outage in dead:
        if host := host_of.get(outage["id"]):
            log.items = (log.items or 0) + 1
            yield {**outage, "hosts": host}
        else:
            why = "a resource was dead that is no node, or that the file does not list"
            log.note(why, outage["line"], outage["id"][:80])


def _job(entry: dict[str, Any], name: str) -> Row:
    """Return the row of a job; `name` is the key of its object."""
    row = {ours: stated(entry, *theirs) for ours, theirs in _FIELDS.items()}
    row["id"] = row["id"] or name
    state = stated(entry, "state")
    if state in _WAITING or not row["start"]:
        row |= {"start": "", "end": "", "hosts": ""}
    elif not row["hosts"]:
        row["why"] = (
            LEFT_OUT + "job without nodes (of deploy queues, or that never started)"
        )
    elif state in _RUNNING:
        row["end"] = ""
    elif state in _ENDED and not row["end"]:
        row |= {"why": SKIPPED + "has ended, but its end is missing", "detail": state}
    return row
