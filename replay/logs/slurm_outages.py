"""When nodes were down or drained (`sacctmgr show event`), or reserved (`scontrol` or `sacctmgr show reservation`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from bft.replay.logs.hostlists import HostListError, expand
from bft.replay.logs.node_states import state_of
from bft.replay.logs.reading import Clusters, Reading
from bft.replay.logs.slurm_table import Table
from bft.replay.logs.times import MISSING, no_time


def outage(
    nodes: str,
    start: str,
    end: str,
    line: int,
    clusters: Clusters,
    *,
    cluster: str = "",
    reserved: bool = False,
) -> None:
    """Account for one row: these nodes were down, or reserved; an end that is missing is still to come."""
    reading = clusters.reading
    file, diagnosis, clock = reading.file, reading.diagnosis, reading.clock
    began = clock.parse(start, file, line)
    ended = clock.parse(end, file, line, began)
    try:
        hosts = expand(nodes)
    except HostListError as error:
        diagnosis.skip("names no nodes that can be read", file, line, str(error))
        return
    if began is None:
        diagnosis.skip("its start is no time", file, line, no_time(start))
    elif ended is None and end not in MISSING:
        diagnosis.skip("its end is no time", file, line, no_time(end))
    elif ended is not None and ended < began:
        diagnosis.skip(
            "ends before it starts", file, line, f"{(began - ended) / 1e9:g} s before"
        )
    elif not hosts:
        diagnosis.leave_out("names no nodes", file, line)
    else:
        indices = clusters.indices(hosts, cluster)
        reading.into.outage(nodes, indices, began, ended, file, line, reserved=reserved)
        if reading.settings.walltimes:
            reading.into.plans.reservation(indices, began, ended)
        diagnosis.used += 1


EVENTS_COMMAND = (
    "sacctmgr -P show event all_time format=NodeName,TimeStart,TimeEnd,State"
)


def read_events(reading: Reading) -> None:
    """Read events of nodes: whatever made a node unfit for jobs makes it unavailable, until the event's end.

    Slurm records an event when a node stops being able to run jobs: a state that is not known is an outage.

    Events of a whole cluster, which name no node, tell of its size and are left out.
    """
    names = (("timestart", "start"), ("timeend", "end"), ("nodename", "nodelist"))
    optional = (("state",), ("cluster",))
    table = Table(reading, needed=names, optional=optional, command=EVENTS_COMMAND)
    at_start, at_end, at_node = (table.at[name[0]] for name in names)
    at_state, at_cluster = (table.at[name[0]] for name in optional)
    file, diagnosis, clusters = reading.file, reading.diagnosis, Clusters(reading)
    for number, fields in table:
        cluster = fields[at_cluster] if at_cluster >= 0 else ""
        if reading.other(number, cluster=cluster):
            diagnosis.leave_out("event of another cluster", file, number)
        elif not fields[at_node]:
            diagnosis.leave_out("event of the whole cluster", file, number)
        elif at_state >= 0 and state_of(fields[at_state]) in ("idle", "busy"):
            diagnosis.leave_out("event of a node that could run jobs", file, number)
        else:
            outage(
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


def read_reservations(reading: Reading) -> None:
    """Read reservations: reserved nodes are unavailable, also when only some of their cores are reserved.

    What scontrol shows of itself it knows of the past only what has not been purged; sacctmgr knows all.
    """
    file, diagnosis, clusters = reading.file, reading.diagnosis, Clusters(reading)
    source = iter(reading.lines)
    before: list[str] = []
    for line in source:
        before.append(line)
        if line.strip():
            break
    if before and (
        "ReservationName=" in before[-1] or before[-1].startswith("No reservations")
    ):
        _blocks(chain(before, source), clusters)
        return
    names = (
        ("timestart", "start"),
        ("timeend", "end"),
        ("nodenames", "nodes", "nodelist"),
    )
    whole = replace(reading, lines=chain(before, source))
    table = Table(
        whole, needed=names, optional=[("cluster",)], command=RESERVATIONS_COMMAND
    )
    at_start, at_end, at_nodes = (table.at[name[0]] for name in names)
    at_cluster = table.at["cluster"]
    for number, fields in table:
        cluster = fields[at_cluster] if at_cluster >= 0 else ""
        if reading.other(number, cluster=cluster):
            diagnosis.leave_out("reservation of another cluster", file, number)
        else:
            outage(
                fields[at_nodes],
                fields[at_start],
                fields[at_end],
                number,
                clusters,
                cluster=cluster,
                reserved=True,
            )


def _blocks(lines: Iterable[str], clusters: Clusters) -> None:
    """Blocks of key=value that begin with ReservationName, over several lines or on one (scontrol -o)."""

    def use(block: list[str], number: int) -> None:
        pairs = dict(_PAIRS.findall("\n".join(block[:_MOST_LINES])))
        times = pairs.get("StartTime", ""), pairs.get("EndTime", "")
        outage(pairs.get("Nodes", ""), *times, number, clusters, reserved=True)

    block: list[str] = []
    begun = 0
    for number, line in enumerate(lines, 1):
        clusters.reading.diagnosis.lines += 1
        if line.lstrip().startswith("ReservationName="):
            if block:
                use(block, begun)
            clusters.reading.diagnosis.rows += 1
            block, begun = [line], number
            continue
        clusters.reading.diagnosis.no_record += 1
        if block and len(block) < _MOST_LINES:
            block.append(line)
    if block:
        use(block, begun)
