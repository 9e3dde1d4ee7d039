"""OAR: jobs as `oarstat -J --gantt` and `oarstat -J -f` print them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bft.replay.logs.reading import (
    JobRan,
    LeftOut,
    Origin,
    Outage,
    Reading,
    Record,
    RowUsed,
    Unusable,
    each_object,
    host_names,
    in_order,
    instant_ns,
)

COMMAND = 'oarstat -J --gantt "2024-01-01 00:00:00, 2024-02-01 00:00:00"'
_WAITING = frozenset({"Waiting", "Hold", "toLaunch", "toAckReservation", "toError"})
_ENDED = frozenset({"Terminated", "Error"})
# An end that is stated of these is a forecast.
_RUNNING = frozenset({"Running", "Launching", "Suspended", "Resuming", "Finishing"})


def read(reading: Reading) -> Iterator[Record]:
    """Read jobs; see `LogFormat` for errors. A job without an end that has not ended is running.

    With -f jobs are an object by their ids; with --gantt that object is called `jobs`, and beside it are `resources`
    and `dead_resources`, which states when each was Absent, Suspected or Dead.
    """
    log = _Gantt(reading)
    expected = "job of OAR: expected startTime, stopTime and assigned_network_address"
    yield from each_object(
        reading,
        log.record,
        keys=None,
        expected=expected,
        command=COMMAND,
        within=("jobs", "resources"),
    )
    yield from log.outages()


class _Gantt:
    """Yields the jobs of one file, and, once its resources are known, when they were dead."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        # Of each resource its node; resources such as licences have none.
        self._hosts_of: dict[str, tuple[str, ...]] = {}
        # Line, resource, start and end of each time that a resource was dead; an end of None: it still is.
        self._dead: list[tuple[int, str, int, int | None]] = []

    def record(self, entry: dict[str, Any], name: str, line: int) -> Iterator[Record]:
        """Yield what one object of the file says."""
        if name == "dead_resources":
            self._dead = list(_dead(entry, line))
            yield RowUsed(line)
        elif "resource_id" in entry and not isinstance(entry["resource_id"], list):
            host = entry.get("network_address")
            hosts = host_names([str(host)], "network_address") if host else ()
            self._hosts_of[str(entry["resource_id"])] = hosts
            raise LeftOut("a resource")
        else:
            yield self._job(entry, name, line)

    def _job(self, entry: dict[str, Any], name: str, line: int) -> JobRan:
        queue = str(_of(entry, "queue", "queue_name") or "")
        user = str(_of(entry, "owner", "job_user", "user") or "")
        self._reading.keep(line, partition=queue, user=user)
        state = str(entry.get("state", ""))
        start_ns = _instant(_of(entry, "startTime", "start_time"))
        end_ns = _instant(_of(entry, "stopTime", "stop_time"))
        if start_ns is None or state in _WAITING:
            raise LeftOut("job that never started")
        nodes = _of(entry, "assigned_network_address", "network_address") or []
        if not isinstance(nodes, list):
            raise Unusable("assigned_network_address is no list", repr(nodes)[:80])
        if not nodes:
            raise LeftOut("job without nodes (of deploy queues, or that never started)")
        if end_ns is None and state in _ENDED:
            raise Unusable("has ended, but its end is missing", state)
        if state in _RUNNING:
            end_ns = None
        in_order(start_ns, end_ns)
        hosts = host_names(map(str, nodes), "assigned_network_address")
        key = ("oar", str(_of(entry, "Job_Id", "job_id", "id") or name))
        nodes = self._reading.nodes(hosts)
        return JobRan(line, key, nodes, start_ns, end_ns, origin=Origin(user, queue))

    def outages(self) -> Iterator[Record]:
        """Yield when resources were dead: a node with one that was is unavailable."""
        reading = self._reading
        for line, resource, start_ns, end_ns in self._dead:
            hosts = self._hosts_of.get(resource, ())
            if not hosts:
                why = "a resource was dead that is no node, or that the file does not list"
                reading.note(why, line, resource[:80])
                continue
            reading.seen.lines += 1  # they count as objects
            key = ("oar", resource)
            yield Outage(line, key, reading.nodes(hosts), start_ns, end_ns)


def _dead(
    entry: dict[str, Any], line: int
) -> Iterator[tuple[int, str, int, int | None]]:
    for resource, spans in entry.items():
        for span in spans:
            start_ns, end_ns = (_instant(time) for time in span[:2])
            if start_ns is None:
                raise Unusable("a resource is dead since no time", repr(span)[:80])
            in_order(start_ns, end_ns)
            yield line, resource, start_ns, end_ns


def _instant(value: Any) -> int | None:
    """`instant_ns`; older releases, and data bases other than PostgreSQL, have numbers as texts."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:
        value = int(value)
    return instant_ns(value)


def _of(entry: dict[str, Any], *names: str) -> Any:
    """The first of these that an object has: oarstat spells them in two ways."""
    return next((entry[name] for name in names if name in entry), None)
