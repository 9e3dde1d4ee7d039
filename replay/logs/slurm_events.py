"""When nodes were down or drained, as `sacctmgr -P show event` prints it."""

from __future__ import annotations

from bft.replay.logs.clusters import Clusters
from bft.replay.logs.node_states import state_of
from bft.replay.logs.reading import Reading
from bft.replay.logs.slurm_table import Table
from bft.replay.logs.slurm_times import outage

COMMAND = "sacctmgr -P show event all_time format=NodeName,TimeStart,TimeEnd,State"


def read(reading: Reading) -> None:
    """Read events of nodes: whatever made a node unfit for jobs makes it unavailable, until the event's end.

    Slurm records an event when a node stops being able to run jobs: a state that is not known is an outage.

    Events of a whole cluster, which name no node, tell of its size and are left out.
    """
    names = (("timestart", "start"), ("timeend", "end"), ("nodename", "nodelist"))
    optional = (("state",), ("cluster",))
    table = Table(reading, needed=names, optional=optional, command=COMMAND)
    at_start, at_end, at_node = (table.at[name[0]] for name in names)
    at_state, at_cluster = (table.at[name[0]] for name in optional)
    file, diagnosis, clusters = reading.file, reading.diagnosis, Clusters(reading)
    for number, fields in table:
        cluster = fields[at_cluster] if at_cluster >= 0 else ""
        if clusters.other(cluster, number):
            diagnosis.leave_out("event of another cluster", file, number)
        elif not fields[at_node]:
            diagnosis.leave_out("event of the whole cluster", file, number)
        elif at_state >= 0 and state_of(fields[at_state]) in ("idle", "busy"):
            diagnosis.leave_out("event of a node that could run jobs", file, number)
        else:
            outage(fields[at_node], fields[at_start], fields[at_end], number, clusters, cluster=cluster)
