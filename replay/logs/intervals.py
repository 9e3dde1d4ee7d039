"""The generic format: CSV with one row per interval, for logs without a reader of their own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bft.models import InputError
from bft.replay.logs.node_states import state_of
from bft.replay.logs.reading import (
    HostListError,
    Ignored,
    JobRan,
    NodesIdle,
    Observed,
    OtherJob,
    Outage,
    Reading,
    Record,
    Settings,
    Skipped,
    columns_of,
    is_missing,
    no_time,
)
from bft.replay.logs.slurm_table import layout
from bft.replay.logs.tables import split_fields

_NAMES = {
    "node": ("node", "nodes", "nodelist", "host", "hosts"),
    "start": ("start",),
    "end": ("end",),
    "state": ("state",),
    "cluster": ("cluster",),
    "partition": ("partition", "queue"),
    "user": ("user",),
}
# Columns that are read where a filter needs them.
_FILTERED = ("partition", "user")


def read(reading: Reading) -> Iterator[Record]:
    """Read `node,start,end[,state]` with a header line; further columns do not matter.

    node: a name or, in quotes, a host list. start, end: ISO stamps or seconds since 1970; an empty end is still to
    come. state: busy (default), idle, unavailable, or any word that `node_states.state_of` knows. Once a row states
    idle, nodes are idle nowhere else, see `Collector.idle_nodes`. The window of observation spans the
    busy and idle rows; all rows if there are only others.
    """
    table = _Table(reading)
    header = ""
    for number, line in reading.numbered():
        if not line.strip() or line.startswith("#") or line == header:
            continue
        if not table.column and table.begin(line, number):
            header = line
            continue
        try:
            yield table.row(line, number)
        except OtherJob as why:
            again = partial(map, table.row, [line], [number])
            yield from reading.refused(why, number, again)
    if not table.column:
        raise InputError(
            "holds no table; expected a header node,start,end[,state]",
            file=reading.file,
        )
    for only_outages, (first, last) in sorted(table.observed.items()):
        if first < last:
            yield Observed(first, last, only_outages)


class _Table:
    """The table of one file: where its columns are, and first start and last end of its rows."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.delimiter = reading.settings.delimiter
        self.column: dict[str, int] = {}
        # First start and last end of busy and idle rows, and of those (True) that say that nodes were unavailable.
        self.observed: dict[bool, tuple[int, int]] = {}

    def begin(self, line: str, number: int) -> bool:
        """Settle the columns by the first line; True when it is a header."""
        settings = self.reading.settings
        self.delimiter = self.delimiter or next(
            (mark for mark in ",;|\t" if mark in line), ","
        )
        self.column = _header(line, self.delimiter, settings, self.reading.file, number)
        self.reading.refuse_unstated(
            {
                name: f"the column {' or '.join(_NAMES[name])}"
                for name in _FILTERED
                if name not in self.column
            }
        )
        return not settings.fields

    def row(self, line: str, number: int) -> Record:
        """Return what one row says."""
        reading = self.reading
        file, clock = reading.file, reading.clock
        fields = split_fields(line, self.delimiter)
        if len(fields) <= max(self.column.values()):
            return Skipped(number, "has fewer fields than columns", str(len(fields)))
        stated = {name: fields[index].strip() for name, index in self.column.items()}
        word, cluster = stated.get("state", ""), stated.get("cluster", "")
        state = state_of(word, reading.settings.counts_as) if word else "busy"
        if state is None:
            expected = "busy, idle, down, drain, maintenance, reserved"
            why = f"column state: expected {expected}, or what sinfo or pbsnodes print"
            return Skipped(number, why, ascii(word[:80]))
        if state == "absent":
            return Ignored(number, "a node that is not there yet (state future)")
        text, start_text, end_text = stated["node"], stated["start"], stated["end"]
        start = clock.parse(start_text, file, number)
        end = clock.parse(end_text, file, number, start)
        # An outage is of no partition, and an idle node need not be.
        filtered = () if state == "unavailable" else _FILTERED
        unstated = None if state == "idle" else ""
        of_job = {name: stated.get(name) or unstated for name in filtered}
        other = reading.other(number, cluster=cluster, **of_job)
        if other:
            raise OtherJob(other, f"row of another {other}")
        try:
            nodes = reading.lists(cluster)(text)
        except HostListError as error:
            return Skipped(number, "column node holds no host list", str(error))
        if start is None:
            return Skipped(number, "column start holds no time", no_time(start_text))
        if end is None and not is_missing(end_text):
            return Skipped(number, "column end holds no time", no_time(end_text))
        if end is not None and end < start:
            before = f"{(start - end) / 1e9:g} s before"
            return Skipped(number, "ends before it starts", before)
        if not nodes:
            return Skipped(number, "column node names none")
        if state == "idle" and reading.settings.events:
            why = "idle row of an --events file: says only that the node could run jobs"
            return Ignored(number, why)
        is_outage = state == "unavailable"
        until = start if end is None else end
        first, last = self.observed.get(is_outage, (start, until))
        if not reading.elsewhere:
            self.observed[is_outage] = min(first, start), max(last, until)
        if word.lower() == "free":
            why = "state free, with which PBS means that some cores are, was taken for idle"
            reading.note(why, number)
        if is_outage:
            return Outage(number, text, nodes, start, end)
        if state == "idle":
            return NodesIdle(number, text, nodes, start, end)
        return JobRan(number, text, nodes, start, end)


def _header(
    line: str, delimiter: str, settings: Settings, file: str, number: int
) -> dict[str, int]:
    names = [
        name.strip().lower()
        for name in settings.fields or split_fields(line, delimiter)
    ]
    columns = {
        column: place
        for column, place in columns_of(names, _NAMES).items()
        if place >= 0 and (column not in _FILTERED or column in settings.asked())
    }
    for column in ("node", "start", "end"):
        if column not in columns:
            raise InputError(
                f"line {number}: no column {column}; expected a header node,start,end[,state]",
                file=file,
                hint=layout(line, settings.delimiter) or None,
            )
    return columns
