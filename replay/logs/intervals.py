"""The generic format: CSV with one row per interval, for logs without a reader of their own."""

from __future__ import annotations

from bft.models import InputError
from bft.replay.logs.collector import OPEN
from bft.replay.logs.hostlists import HostListError
from bft.replay.logs.node_states import state_of
from bft.replay.logs.reading import Clusters, Reading, Settings
from bft.replay.logs.slurm_columns import layout
from bft.replay.logs.tables import split_fields
from bft.replay.logs.times import MISSING, no_time

_NAMES = {
    "node": ("node", "nodes", "nodelist", "host", "hosts"),
    "start": ("start",),
    "end": ("end",),
    "state": ("state",),
    "cluster": ("cluster",),
    "partition": ("partition", "queue"),
}


def read(reading: Reading) -> None:
    """Read `node,start,end[,state]` with a header line; further columns do not matter.

    node: a name or, in quotes, a host list. start, end: ISO stamps or seconds since 1970; an empty end is still to
    come. state: busy (default), idle, unavailable, or any word that `node_states.state_of` knows. Once a row states
    idle, nodes are idle nowhere else, see `Collector.idle_nodes`. The window of observation spans the
    busy and idle rows; all rows if there are only others.
    """
    table = _Table(reading)
    header = ""
    for number, line in enumerate(reading.lines, 1):
        reading.diagnosis.lines += 1
        if not line.strip() or line.startswith("#") or line == header:
            reading.diagnosis.no_record += 1
        elif not table.column and table.begin(line, number):
            reading.diagnosis.no_record += 1
            header = line
        else:
            reading.diagnosis.rows += 1
            table.row(line, number)
    if not table.column:
        raise InputError(
            "holds no table; expected a header node,start,end[,state]",
            file=reading.file,
        )
    for (first, last), only_outages in ((table.observed, False), (table.outages, True)):
        if first < last:
            reading.into.observe(first, last, outages=only_outages)


class _Table:
    """One file: where its columns are, and first start and last end of its rows."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.clusters = Clusters(reading)
        into = reading.into
        self.add = {"busy": into.job, "idle": into.idle, "unavailable": into.outage}
        self.delimiter = reading.settings.delimiter
        self.column: dict[str, int] = {}
        # Of busy and idle rows, and of those that say that nodes were unavailable.
        self.observed, self.outages = [OPEN, 0], [OPEN, 0]

    def begin(self, line: str, number: int) -> bool:
        """Settle the columns by the first line; True when it is a header."""
        settings = self.reading.settings
        self.delimiter = self.delimiter or next(
            (mark for mark in ",;|\t" if mark in line), ","
        )
        self.column = _header(line, self.delimiter, settings, self.reading.file, number)
        self.reading.need_partitions(
            "partition" in self.column, "the column partition or queue"
        )
        return not settings.fields

    def row(self, line: str, number: int) -> None:
        """Use one row, or account for why not."""
        file, diagnosis, clock = (
            self.reading.file,
            self.reading.diagnosis,
            self.reading.clock,
        )
        fields = split_fields(line, self.delimiter)
        if len(fields) <= max(self.column.values()):
            diagnosis.skip(
                "has fewer fields than columns", file, number, str(len(fields))
            )
            return
        stated = {name: fields[index].strip() for name, index in self.column.items()}
        word, cluster = stated.get("state", ""), stated.get("cluster", "")
        state = state_of(word) if word else "busy"
        if state is None:
            diagnosis.skip("column state: expected busy, idle, down, drain, maintenance, reserved, or what sinfo or "
                           "pbsnodes print", file, number, ascii(word[:80]))  # fmt: skip
            return
        if state == "absent":
            diagnosis.leave_out(
                "a node that is not there yet (state future)", file, number
            )
            return
        text, start_text, end_text = stated["node"], stated["start"], stated["end"]
        start = clock.parse(start_text, file, number)
        end = clock.parse(end_text, file, number, start)
        partition = (
            None if state == "unavailable" else stated.get("partition", "")
        )  # an outage is of no partition
        other = self.reading.other(number, cluster=cluster, partition=partition)
        if other:
            diagnosis.leave_out(f"row of another {other}", file, number)
            return
        try:
            nodes = self.clusters.lists(cluster)(text)
        except HostListError as error:
            diagnosis.skip("column node holds no host list", file, number, str(error))
            return
        if start is None:
            diagnosis.skip(
                "column start holds no time", file, number, no_time(start_text)
            )
        elif end is None and end_text not in MISSING:
            diagnosis.skip("column end holds no time", file, number, no_time(end_text))
        elif end is not None and end < start:
            diagnosis.skip(
                "ends before it starts",
                file,
                number,
                f"{(start - end) / 1e9:g} s before",
            )
        elif not nodes:
            diagnosis.skip("column node names none", file, number)
        elif state == "idle" and self.reading.settings.events:
            diagnosis.leave_out(
                "idle row of an --events file: says only that the node could run jobs",
                file,
                number,
            )
        else:
            diagnosis.used += 1
            span = self.outages if state == "unavailable" else self.observed
            span[:] = min(span[0], start), max(span[1], start if end is None else end)
            if word.lower() == "free":
                diagnosis.note(
                    "state free, with which PBS means that some cores are, was taken for idle",
                    file,
                    number,
                )
            self.add[state](text, nodes, start, end, file, number)


def _header(
    line: str, delimiter: str, settings: Settings, file: str, number: int
) -> dict[str, int]:
    names = [
        name.strip().lower()
        for name in settings.fields or split_fields(line, delimiter)
    ]
    columns = {
        column: next(names.index(alias) for alias in aliases if alias in names)
        for column, aliases in _NAMES.items()
        if set(aliases) & set(names) and (settings.partition or column != "partition")
    }
    for column in ("node", "start", "end"):
        if column not in columns:
            raise InputError(
                f"line {number}: no column {column}; expected a header node,start,end[,state]",
                file=file,
                hint=layout(line, settings.delimiter) or None,
            )
    return columns
