"""The generic format: CSV with a row an interval, for logs of which no reader is here."""

from __future__ import annotations

from collections.abc import Iterable

from bft.models import InputError
from bft.replay.logs.collector import OPEN, Collector
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.fields import split_fields
from bft.replay.logs.formats import Settings
from bft.replay.logs.hostlists import HostListError, NodeLists
from bft.replay.logs.times import MISSING, Clock

_NAMES = {
    "node": ("node", "nodes", "nodelist", "host", "hosts"),
    "start": ("start",),
    "end": ("end",),
    "state": ("state",),
}
_BUSY = frozenset({"", "busy", "allocated", "running"})
_UNAVAILABLE = frozenset(
    {"unavailable", "down", "drain", "drained", "draining", "maint", "maintenance", "reserved", "fail"}
)


def read(
    lines: Iterable[str], file: str, settings: Settings, into: Collector, diagnosis: Diagnosis, clock: Clock
) -> None:
    """Read `node,start,end[,state]` with a header line; further columns do not matter.

    node: a name or, in quotes, a host list. start, end: ISO stamps or seconds since 1970; an empty end is still to
    come. state: busy (default), idle (says only that the node belongs to the machine and was observed), or one of
    unavailable, down, drain, maintenance, reserved. The window of observation spans all intervals.
    """
    nodes_of = NodeLists(into.indices)
    delimiter = settings.delimiter
    at: dict[str, int] = {}
    first, last = OPEN, 0
    for number, line in enumerate(lines, 1):
        diagnosis.lines += 1
        if not line.strip() or line.startswith("#"):
            diagnosis.no_record += 1
            continue
        if not at:
            delimiter = delimiter or next((mark for mark in ",;|\t" if mark in line), ",")
            at = _header(line, delimiter, settings, file, number)
            diagnosis.no_record += not settings.fields
            if not settings.fields:
                continue
        diagnosis.rows += 1
        fields = split_fields(line, delimiter)
        if len(fields) <= max(at.values()):
            diagnosis.skip("has fewer fields than columns", file, number, str(len(fields)))
            continue
        state = fields[at["state"]].strip().lower() if "state" in at else ""
        if state not in _BUSY and state not in _UNAVAILABLE and state != "idle":
            diagnosis.skip("column state: expected busy, idle, unavailable, down, drain, maintenance or reserved", file,
                           number, ascii(state[:80]))  # fmt: skip
            continue
        start_text, end_text = fields[at["start"]].strip(), fields[at["end"]].strip()
        start = clock.parse(start_text, file, number)
        end = clock.parse(end_text, file, number, start)
        try:
            nodes = nodes_of(fields[at["node"]].strip())
        except HostListError as error:
            diagnosis.skip("column node holds no host list", file, number, str(error))
            continue
        if start is None:
            diagnosis.skip("column start holds no time", file, number, ascii(start_text[:80]))
        elif end is None and end_text not in MISSING:
            diagnosis.skip("column end holds no time", file, number, ascii(end_text[:80]))
        elif end is not None and end < start:
            diagnosis.skip("ends before it starts", file, number, f"{(start - end) / 1e9:g} s before")
        elif not nodes:
            diagnosis.skip("column node names none", file, number)
        else:
            diagnosis.used += 1
            first, last = min(first, start), max(last, start if end is None else end)
            if state in _BUSY:
                into.busy_nodes(nodes, start, end)
            elif state in _UNAVAILABLE:
                into.unavailable_nodes(nodes, start, end)
    if not at:
        raise InputError("holds no table; expected a header node,start,end[,state]", file=file)
    if first < last:
        into.observe(first, last)


def _header(line: str, delimiter: str, settings: Settings, file: str, number: int) -> dict[str, int]:
    names = [name.strip().lower() for name in settings.fields or split_fields(line, delimiter)]
    at = {
        column: next(names.index(alias) for alias in aliases if alias in names)
        for column, aliases in _NAMES.items()
        if set(aliases) & set(names)
    }
    for column in ("node", "start", "end"):
        if column not in at:
            raise InputError(f"line {number}: no column {column}; expected a header node,start,end[,state]", file=file)
    return at
