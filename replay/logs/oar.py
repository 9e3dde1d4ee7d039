"""OAR: jobs as `oarstat -J -f` prints them, an object whose keys are the ids of the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bft.replay.logs.reading import (
    JobRan,
    LeftOut,
    Reading,
    Record,
    Unusable,
    each_object,
    host_names,
    in_order,
    instant_ns,
)

COMMAND = 'oarstat -J -f --gantt "2024-01-01 00:00:00, 2024-02-01 00:00:00"'
_WAITING = frozenset({"Waiting", "Hold", "toLaunch", "toAckReservation", "toError"})
_ENDED = frozenset({"Terminated", "Error"})


def read(reading: Reading) -> Iterator[Record]:
    """Read jobs; see `LogFormat` for errors. A job without an end that has not ended is running."""

    def record(entry: dict[str, Any], name: str, line: int) -> Iterator[Record]:
        reading.keep(line, partition=str(entry.get("queue") or ""))
        state = str(entry.get("state", ""))
        start_ns = instant_ns(_of(entry, "startTime", "start_time"))
        end_ns = instant_ns(_of(entry, "stopTime", "stop_time"))
        if start_ns is None or state in _WAITING:
            raise LeftOut("job that never started")
        nodes = entry.get("assigned_network_address") or []
        if not isinstance(nodes, list):
            raise Unusable("assigned_network_address is no list", repr(nodes)[:80])
        if not nodes:
            raise LeftOut("job without nodes (of deploy queues, or that never started)")
        if end_ns is None and state in _ENDED:
            raise Unusable("has ended, but its end is missing", state)
        if end_ns is not None:
            in_order(start_ns, end_ns)
        hosts = host_names(map(str, nodes), "assigned_network_address")
        key = ("oar", str(entry.get("Job_Id", name)))
        yield JobRan(line, key, reading.nodes(hosts), start_ns, end_ns)

    expected = "job of OAR: expected startTime, stopTime and assigned_network_address"
    yield from each_object(
        reading, record, keys=None, expected=expected, command=COMMAND
    )


def _of(entry: dict[str, Any], *names: str) -> Any:
    """The first of these that an object has: oarstat and the REST interface spell them in two ways."""
    return next((entry[name] for name in names if name in entry), None)
