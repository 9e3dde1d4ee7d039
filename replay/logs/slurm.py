"""Slurm's accounting as `sacct -P` prints it."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from dataclasses import replace

from bft.replay.logs.clusters import Clusters
from bft.replay.logs.hostlists import NO_HOSTS, HostListError
from bft.replay.logs.reading import Reading
from bft.replay.logs.slurm_jobs import Job, judge
from bft.replay.logs.slurm_table import Table
from bft.replay.logs.times import MISSING, no_time

COMMAND = "sacct -P -X --format=JobID,NodeList,AllocNodes,Start,End,State"


def read(reading: Reading) -> None:
    """Read the jobs of `sacct -P` or `-p`, with any delimiter and any columns that hold those of `COMMAND`.

    Job steps are left out; each record of a requeued job counts, as each held nodes of its own. Without a column
    NodeList jobs are counted only (`Collector.count`).
    """
    file, settings, diagnosis = reading.file, reading.settings, reading.diagnosis
    names = (("jobid", "jobidraw"), ("start",), ("end",), ("nodelist", "allocnodes", "nnodes"))
    optional = (("state",), ("allocnodes", "nnodes"), ("cluster",))
    table = Table(reading, needed=names, optional=optional, command=COMMAND)
    at_id, at_start, at_end, at_nodes = (table.at[name[0]] for name in names)
    at_state, at_count, at_cluster = (table.at[name[0]] for name in optional)
    named = at_nodes >= 0 and table.columns[at_nodes] == "nodelist"
    clusters = Clusters(reading)
    nodes_of, parse, ran = clusters.lists(""), reading.clock.parse, reading.into.job
    cluster, clustered = "", at_cluster >= 0 or bool(settings.cluster)
    steps = first_step = others = first_other = used = 0
    try:
        for number, fields in table:
            key: Hashable = fields[at_id]
            if "." in fields[at_id]:
                steps += 1
                first_step = first_step or number
                continue
            if clustered:
                cluster = fields[at_cluster] if at_cluster >= 0 else ""
                if settings.cluster and clusters.other(cluster, number):
                    others += 1
                    first_other = first_other or number
                    continue
                nodes_of = clusters.lists(cluster)
                if cluster:  # ids of several clusters are distinguished where the table names the cluster
                    key = cluster, fields[at_id]
            start_text, end_text, nodes_text = fields[at_start], fields[at_end], fields[at_nodes]
            start = parse(start_text, file, number)
            end = parse(end_text, file, number, start)
            nodes: array[int] | None
            try:
                nodes = nodes_of(nodes_text) if named else None
            except HostListError as error:
                diagnosis.skip("column NodeList holds no host list", file, number, str(error))
                continue
            # The most frequent row, without a detour.
            if nodes and start is not None and end is not None and start < end:
                ran(key, nodes, start, end, file, number, once=True)
                used += 1
                if at_count >= 0 and fields[at_count] != str(len(nodes)):
                    diagnosis.note("NodeList and AllocNodes (NNodes) tell different numbers of nodes", file, number,
                                   f"{len(nodes)} and {fields[at_count]!r}")  # fmt: skip
                continue
            state = fields[at_state] if at_state >= 0 else ""
            job = Job(key, state, start, end, nodes)
            used += _other(job, (start_text, end_text), "" if named else nodes_text, clusters, cluster, number)
    finally:
        diagnosis.used += used
        diagnosis.leave_out("job step", file, first_step, count=steps)
        diagnosis.leave_out("job of another cluster", file, first_other, count=others)


def _other(job: Job, times: tuple[str, str], counted: str, clusters: Clusters, cluster: str, line: int) -> bool:
    """A row that is not of the most frequent kind; True when it is used.

    `times` are start and end as the table has them, and `counted` the number of nodes where it does not name them.
    """
    file, diagnosis = clusters.reading.file, clusters.reading.diagnosis
    for column, text, time in (("Start", times[0], job.start), ("End", times[1], job.end)):
        if time is None and text not in MISSING:
            diagnosis.skip(f"column {column} holds no time", file, line, no_time(text))
            return False
    if job.nodes is None:
        if not counted.isdecimal() and counted not in NO_HOSTS:
            why = "the column of the number of nodes holds no number"
            diagnosis.skip(why, file, line, ascii(counted[:80]))
            return False
        job = replace(job, count=int(counted[:9]) if counted.isdecimal() else 0)
        clusters.meet(cluster)
    return judge(job, clusters.reading, line)
