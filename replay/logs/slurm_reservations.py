"""When nodes were reserved, as `scontrol show reservation` or `sacctmgr -P show reservation` print it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from bft.replay.logs.clusters import Clusters
from bft.replay.logs.reading import Reading
from bft.replay.logs.slurm_table import Table
from bft.replay.logs.slurm_times import outage

COMMAND = "sacctmgr -P show reservation format=NodeNames,TimeStart,TimeEnd"
_PAIRS = re.compile(r"(?<!\S)(\w+)=(\S*)")
# A reservation takes some ten lines.
_MOST_LINES = 1_000


def read(reading: Reading) -> None:
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
    if before and ("ReservationName=" in before[-1] or before[-1].startswith("No reservations")):
        _blocks(chain(before, source), clusters)
        return
    names = (("timestart", "start"), ("timeend", "end"), ("nodenames", "nodes", "nodelist"))
    whole = replace(reading, lines=chain(before, source))
    table = Table(whole, needed=names, optional=[("cluster",)], command=COMMAND)
    at_start, at_end, at_nodes = (table.at[name[0]] for name in names)
    at_cluster = table.at["cluster"]
    for number, fields in table:
        cluster = fields[at_cluster] if at_cluster >= 0 else ""
        if clusters.other(cluster, number):
            diagnosis.leave_out("reservation of another cluster", file, number)
        else:
            outage(fields[at_nodes], fields[at_start], fields[at_end], number, clusters, cluster=cluster, reserved=True)


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
