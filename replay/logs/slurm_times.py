"""Outages of nodes in Slurm's events and reservations."""

from __future__ import annotations

from bft.replay.logs.clusters import Clusters
from bft.replay.logs.hostlists import HostListError, expand
from bft.replay.logs.times import MISSING, no_time


def outage(
    nodes: str, start: str, end: str, line: int, clusters: Clusters, *, cluster: str = "", reserved: bool = False
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
        diagnosis.skip("ends before it starts", file, line, f"{(began - ended) / 1e9:g} s before")
    elif not hosts:
        diagnosis.leave_out("names no nodes", file, line)
    else:
        indices = clusters.indices(hosts, cluster)
        reading.into.outage(nodes, indices, began, ended, file, line, reserved=reserved)
        if reading.settings.walltimes:
            reading.into.plans.reservation(indices, began, ended)
        diagnosis.used += 1
