"""OAR: jobs as `oarstat -J --gantt` and `oarstat -J -f` print them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bft.replay.logs.records import LEFT_OUT, SKIPPED, Block, Log, Row, each_object

COMMAND = 'oarstat -J --gantt "2024-01-01 00:00:00, 2024-02-01 00:00:00"'
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
            dead.extend(_outages(entry, line))
            yield {"kind": "nothing"}
        elif "resource_id" in entry and not isinstance(entry["resource_id"], list):
            host_of[str(entry["resource_id"])] = _text(entry, "network_address")
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
    state = _text(entry, "state")
    hosts = _first(entry, "assigned_network_address", "network_address") or []
    row: dict[str, Any] = {
        "id": _text(entry, "Job_Id", "job_id", "id") or name,
        "partition": _text(entry, "queue", "queue_name"),
        "user": _text(entry, "owner", "job_user", "user"),
        "known": _text(entry, "submissionTime", "submission_time"),
        "limit": _text(entry, "walltime"),
    }
    start, end = (
        _text(entry, "startTime", "start_time"),
        _text(entry, "stopTime", "stop_time"),
    )
    if state in _WAITING or not start:
        return row
    row |= {"start": start, "end": "" if state in _RUNNING else end}
    if not isinstance(hosts, list):
        return row | {
            "why": SKIPPED + "assigned_network_address is no list",
            "detail": repr(hosts)[:80],
        }
    if not hosts:
        return row | {
            "why": LEFT_OUT
            + "job without nodes (of deploy queues, or that never started)"
        }
    if state in _ENDED and not end:
        row |= {"why": SKIPPED + "has ended, but its end is missing", "detail": state}
    return row | {"hosts": list(map(str, hosts))}


def _outages(entry: dict[str, Any], line: int) -> Iterator[Row]:
    """Yield when resources were dead; an end of 0: it still is."""
    for resource, spans in entry.items():
        for span in spans:
            start, end = str(span[0] or ""), str(span[1] or "")
            why = "" if start else SKIPPED + "a resource is dead since no time"
            yield {
                "line": line,
                "kind": "down",
                "why": why,
                "id": resource,
                "start": start,
                "end": end,
            }


def _text(entry: dict[str, Any], *names: str) -> str:
    """Return the first of these that an object has as text: oarstat spells them in two ways, and 0 is no time."""
    value = _first(entry, *names)
    return "" if value in (None, 0, "0") else str(value)


def _first(entry: dict[str, Any], *names: str) -> Any:
    return next((entry[name] for name in names if name in entry), None)
