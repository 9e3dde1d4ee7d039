"""The generic format: CSV with a row an interval, for logs of which no reader is here."""

from __future__ import annotations

from bft.models import InputError
from bft.replay.logs.clusters import Clusters
from bft.replay.logs.collector import OPEN
from bft.replay.logs.fields import split_fields
from bft.replay.logs.hostlists import HostListError
from bft.replay.logs.node_states import state_of
from bft.replay.logs.reading import Reading, Settings
from bft.replay.logs.slurm_columns import layout
from bft.replay.logs.times import MISSING, no_time

_NAMES = {
    "node": ("node", "nodes", "nodelist", "host", "hosts"),
    "start": ("start",),
    "end": ("end",),
    "state": ("state",),
    "cluster": ("cluster",),
}


def read(reading: Reading) -> None:
    """Read `node,start,end[,state]` with a header line; further columns do not matter.

    node: a name or, in quotes, a host list. start, end: ISO stamps or seconds since 1970; an empty end is still to
    come. state: busy (default), idle, unavailable, or any word that `node_states.state_of` knows. Once a row states
    idle, nodes are idle nowhere else, see `Collector.idle_nodes`. The window of observation spans the
    busy and idle rows; all rows if there are only others.
    """
    file, into, settings, diagnosis = reading.file, reading.into, reading.settings, reading.diagnosis
    clock, clusters = reading.clock, Clusters(reading)
    add = {"busy": into.job, "idle": into.idle, "unavailable": into.outage}
    delimiter = settings.delimiter
    at: dict[str, int] = {}
    header = ""
    # First start and last end of busy and idle rows, and of those that say that nodes were unavailable.
    observed, outages = [OPEN, 0], [OPEN, 0]
    for number, line in enumerate(reading.lines, 1):
        diagnosis.lines += 1
        if not line.strip() or line.startswith("#") or line == header:
            diagnosis.no_record += 1
            continue
        if not at:
            delimiter = delimiter or next((mark for mark in ",;|\t" if mark in line), ",")
            at = _header(line, delimiter, settings, file, number)
            diagnosis.no_record += not settings.fields
            if not settings.fields:
                header = line
                continue
        diagnosis.rows += 1
        fields = split_fields(line, delimiter)
        if len(fields) <= max(at.values()):
            diagnosis.skip("has fewer fields than columns", file, number, str(len(fields)))
            continue
        word = fields[at["state"]].strip() if "state" in at else ""
        state = state_of(word) if word else "busy"
        if state is None:
            diagnosis.skip("column state: expected busy, idle, down, drain, maintenance, reserved, or what sinfo or "
                           "pbsnodes print", file, number, ascii(word[:80]))  # fmt: skip
            continue
        if state == "absent":
            diagnosis.leave_out("a node that is not there yet (state future)", file, number)
            continue
        start_text, end_text = fields[at["start"]].strip(), fields[at["end"]].strip()
        start = clock.parse(start_text, file, number)
        end = clock.parse(end_text, file, number, start)
        cluster = fields[at["cluster"]].strip() if "cluster" in at else ""
        if clusters.other(cluster, number):
            diagnosis.leave_out("row of another cluster", file, number)
            continue
        try:
            text = fields[at["node"]].strip()
            nodes = clusters.lists(cluster)(text)
        except HostListError as error:
            diagnosis.skip("column node holds no host list", file, number, str(error))
            continue
        if start is None:
            diagnosis.skip("column start holds no time", file, number, no_time(start_text))
        elif end is None and end_text not in MISSING:
            diagnosis.skip("column end holds no time", file, number, no_time(end_text))
        elif end is not None and end < start:
            diagnosis.skip("ends before it starts", file, number, f"{(start - end) / 1e9:g} s before")
        elif not nodes:
            diagnosis.skip("column node names none", file, number)
        elif state == "idle" and settings.events:
            diagnosis.leave_out("idle row of an --events file: says only that the node could run jobs", file, number)
        else:
            diagnosis.used += 1
            span = outages if state == "unavailable" else observed
            span[:] = min(span[0], start), max(span[1], start if end is None else end)
            if word.lower() == "free":
                diagnosis.note("state free, with which PBS means that some cores are, was taken for idle", file, number)
            add[state](text, nodes, start, end, file, number)
    if not at:
        raise InputError("holds no table; expected a header node,start,end[,state]", file=file)
    for (first, last), only_outages in ((observed, False), (outages, True)):
        if first < last:
            into.observe(first, last, outages=only_outages)


def _header(line: str, delimiter: str, settings: Settings, file: str, number: int) -> dict[str, int]:
    names = [name.strip().lower() for name in settings.fields or split_fields(line, delimiter)]
    at = {
        column: next(names.index(alias) for alias in aliases if alias in names)
        for column, aliases in _NAMES.items()
        if set(aliases) & set(names)
    }
    for column in ("node", "start", "end"):
        if column not in at:
            raise InputError(
                f"line {number}: no column {column}; expected a header node,start,end[,state]",
                file=file,
                hint=layout(line, settings.delimiter) or None,
            )
    return at
