"""What every reader is given: one file, what the user says about it, and what receives its intervals."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bft.models import InputError
from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.hostlists import NodeLists
from bft.replay.logs.times import Clock


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user says about a log.

    Parameters
    ----------
    fields
        Names of the columns, for a file without a header line; empty when the file has one.
    delimiter
        What separates columns; empty: as in the header line.
    cluster
        Use only the rows of this cluster, where rows name theirs; empty: all.
    processors_per_node
        Where a log counts processors (SWF), how many make a node; None: as the log's header says, else 1.
    machine_nodes
        How many nodes the machine has, where a log counts idle ones; None: as the log says.
    events
        The file states when nodes were unavailable, beside logs of jobs.
    mtime
        Take the time of a file's last change for that of its snapshot, where nothing else states one.
    walltimes
        Hand over time limits and the queue as well (`Collector.plans`), of jobs or of reservations.
    """

    fields: tuple[str, ...] = ()
    delimiter: str = ""
    cluster: str = ""
    processors_per_node: int | None = None
    machine_nodes: int | None = None
    events: bool = False
    mtime: bool = False
    walltimes: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """One file on its way through a reader.

    Parameters
    ----------
    lines
        The file's lines without their line ends.
    file
        Its name, for messages.
    into, diagnosis
        What receives the intervals, and the account of every line. Both are those of all files that make one trace.
    clock
        Turns the times of the log into UTC nanoseconds.
    settings
        What the user says about the file.
    """

    lines: Iterable[str]
    file: str
    into: Collector
    diagnosis: Diagnosis
    clock: Clock
    settings: Settings = field(default_factory=Settings)


NO_CLUSTER = "no cluster is stated: --cluster was not applied"


class Clusters:
    """Looks nodes up for the rows of one file, each of the cluster that the row states.

    A node trace is of one machine. Clusters whose nodes have names of their own may be read as one, which is noted; a
    node that two of them name would be one node that runs the jobs of both, and is refused.

    Parameters
    ----------
    reading
        As every reader has it. What was met stays with its collector, for the files to come.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._into, self._diagnosis = reading.into, reading.diagnosis
        self._wanted = reading.settings.cluster.casefold()
        self._lists: dict[str, NodeLists] = {}

    def other(self, cluster: str, line: int) -> bool:
        """Whether the row in this line is of a cluster that is not wanted; notes a row that states none."""
        if self._wanted and not cluster:
            self._diagnosis.note(NO_CLUSTER, self.reading.file, line)
            return False
        return bool(self._wanted) and cluster.casefold() != self._wanted

    def lists(self, cluster: str) -> NodeLists:
        """Host lists in rows of this cluster; empty where a row states none."""
        lists = self._lists.get(cluster)
        if lists is None:
            lists = self._lists[cluster] = NodeLists(lambda hosts: self.indices(hosts, cluster))
        return lists

    def meet(self, cluster: str) -> None:
        """A row is used of this cluster, whose nodes may have no names."""
        met = self._into.clusters
        if cluster and cluster not in met:
            met[cluster] = None
            if len(met) > 1:
                why = "rows of several clusters were read as one machine: --cluster uses those of one"
                self._diagnosis.note(why, "", 0, ascii(", ".join(list(met)[:2]))[:80])

    def indices(self, hosts: Sequence[str], cluster: str) -> array[int]:
        """`Collector.indices` of nodes that a row of this cluster names.

        Raises
        ------
        InputError
            When a row of another cluster names one of them.
        """
        nodes = self._into.indices(hosts)
        if cluster:
            self.meet(cluster)
            owners = self._into.owners
            for node, host in zip(nodes, hosts, strict=True):
                owner = owners.setdefault(node, cluster)
                if owner != cluster:
                    raise InputError(
                        f"node {host} is named by rows of cluster {owner[:80]!a} and of cluster {cluster[:80]!a}",
                        file=self.reading.file,
                        hint="--cluster NAME uses the rows of one",
                    )
        return nodes
