"""When nodes were down or drained (`sacctmgr show event`), or reserved (`scontrol` or `sacctmgr show reservation`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from bft.replay.logs.hostlists import HostListError, expand
from bft.replay.logs.node_states import state_of
from bft.replay.logs.reading import (
    Clusters,
    Ignored,
    Outage,
    Reading,
    Record,
    Reserved,
    Skipped,
    is_missing,
    no_time,
)
from bft.replay.logs.slurm_table import Table


def outage(
    nodes: str,
    start: str,
    end: str,
    line: int,
    clusters: Clusters,
    *,
    cluster: str = "",
    reserved: bool = False,
) -> Iterator[Record]:
    """Yield the records of one row: these nodes were down, or reserved; an end that is missing is still to come."""
    reading = clusters.reading
    file, clock = reading.file, reading.clock
    began = clock.parse(start, file, line)
    ended = clock.parse(end, file, line, began)
    try:
        hosts = expand(nodes)
    except HostListError as error:
        yield Skipped(line, "names no nodes that can be read", str(error))
        return
    if began is None:
        yield Skipped(line, "its start is no time", no_time(start))
    elif ended is None and not is_missing(end):
        yield Skipped(line, "its end is no time", no_time(end))
    elif ended is not None and ended < began:
        before = f"{(began - ended) / 1e9:g} s before"
        yield Skipped(line, "ends before it starts", before)
    elif not hosts:
        yield Ignored(line, "names no nodes")
    else:
        indices = clusters.indices(hosts, cluster)
        yield Outage(line, nodes, indices, began, ended, reserved)
        if reading.settings.walltimes:
            yield Reserved(indices, began, ended)


EVENTS_COMMAND = (
    "sacctmgr -P show event all_time format=NodeName,TimeStart,TimeEnd,State"
)


def read_events(reading: Reading) -> Iterator[Record]:
    """Read events of nodes: whatever made a node unfit for jobs makes it unavailable, until the event's end.

    Slurm records an event when a node stops being able to run jobs: a state that is not known is an outage.

    Events of a whole cluster, which name no node, tell of its size and are left out.
    """
    names = (("timestart", "start"), ("timeend", "end"), ("nodename", "nodelist"))
    optional = (("state",), ("cluster",))
    table = Table(reading, needed=names, optional=optional, command=EVENTS_COMMAND)
    at_start, at_end, at_node = (table.at[name[0]] for name in names)
    at_state, at_cluster = (table.at[name[0]] for name in optional)
    clusters = Clusters(reading)
    for number, fields in table:
        if fields is None:
            yield table.skipped
            continue
        cluster = fields[at_cluster] if at_cluster >= 0 else ""
        if reading.other(number, cluster=cluster):
            yield Ignored(number, "event of another cluster")
        elif not fields[at_node]:
            yield Ignored(number, "event of the whole cluster")
        elif at_state >= 0 and state_of(fields[at_state]) in ("idle", "busy"):
            yield Ignored(number, "event of a node that could run jobs")
        else:
            yield from outage(
                fields[at_node],
                fields[at_start],
                fields[at_end],
                number,
                clusters,
                cluster=cluster,
            )


RESERVATIONS_COMMAND = "sacctmgr -P show reservation format=NodeNames,TimeStart,TimeEnd"
_PAIRS = re.compile(r"(?<!\S)(\w+)=(\S*)")
# A reservation takes some ten lines.
_MOST_LINES = 1_000


def read_reservations(reading: Reading) -> Iterator[Record]:
    """Read reservations: reserved nodes are unavailable, also when only some of their cores are reserved.

    What scontrol shows of itself it knows of the past only what has not been purged; sacctmgr knows all.
    """
    clusters = Clusters(reading)
    source = iter(reading.lines)
    before: list[str] = []
    for line in source:
        before.append(line)
        if line.strip():
            break
    if before and (
        "ReservationName=" in before[-1] or before[-1].startswith("No reservations")
    ):
        yield from _blocks(chain(before, source), clusters)
        return
    names = (
        ("timestart", "start"),
        ("timeend", "end"),
        # The field is called NodeNames, its column NodeName.
        ("nodename", "nodenames", "nodes", "nodelist"),
    )
    whole = replace(reading, lines=chain(before, source))
    table = Table(
        whole, needed=names, optional=[("cluster",)], command=RESERVATIONS_COMMAND
    )
    at_start, at_end, at_nodes = (table.at[name[0]] for name in names)
    at_cluster = table.at["cluster"]
    for number, fields in table:
        if fields is None:
            yield table.skipped
            continue
        cluster = fields[at_cluster] if at_cluster >= 0 else ""
        if reading.other(number, cluster=cluster):
            yield Ignored(number, "reservation of another cluster")
        else:
            yield from outage(
                fields[at_nodes],
                fields[at_start],
                fields[at_end],
                number,
                clusters,
                cluster=cluster,
                reserved=True,
            )


def _blocks(lines: Iterable[str], clusters: Clusters) -> Iterator[Record]:
    """Blocks of key=value that begin with ReservationName, over several lines or on one (scontrol -o)."""

    def use(block: list[str], number: int) -> Iterator[Record]:
        pairs = dict(_PAIRS.findall("\n".join(block[:_MOST_LINES])))
        times = pairs.get("StartTime", ""), pairs.get("EndTime", "")
        nodes = pairs.get("Nodes", "")
        return outage(nodes, *times, number, clusters, reserved=True)

    block: list[str] = []
    begun = 0
    for number, line in enumerate(lines, 1):
        clusters.reading.seen.lines += 1
        if line.lstrip().startswith("ReservationName="):
            if block:
                yield from use(block, begun)
            block, begun = [line], number
            continue
        if block and len(block) < _MOST_LINES:
            block.append(line)
    if block:
        yield from use(block, begun)
