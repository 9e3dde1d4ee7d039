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

NO_CLUSTER = "no cluster is stated: --cluster was not applied"
OTHER_PARTITIONS = "jobs of other partitions were left out: nodes of this trace on which they ran look idle meanwhile"


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
    partition
        Use only the jobs of this partition or queue; empty: all.
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
    partition: str = ""
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

    def need_partitions(self, states_them: bool, expected: str) -> None:
        """Refuse a file that states no partitions where those of one are asked for.

        Parameters
        ----------
        states_them
            Whether the file states them, as its header shows.
        expected
            What states them: a column, or another form of the log.

        Raises
        ------
        InputError
            When they are asked for and not stated.
        """
        if self.settings.partition and not states_them:
            raise InputError(
                f"--partition: the file states no partitions: expected {expected}",
                file=self.file,
            )

    def other(
        self, line: int, *, cluster: str | None = None, partition: str | None = None
    ) -> str:
        """Say by which of its properties a record is left out: `cluster`, `partition`, or empty for one that counts.

        These are the filters of all formats. Capitals do not matter.

        Parameters
        ----------
        line
            Where the record begins.
        cluster
            As the record states it. Where it states none (empty), the record counts, which is noted. None: records of
            this kind belong to all clusters.
        partition
            Partition or queue as the record states it; several with commas between them, of a job that waits. A job
            that states none is of no partition. None: records of this kind belong to all partitions.
        """
        settings = self.settings
        if settings.cluster and cluster is not None:
            if not cluster:
                self.diagnosis.note(NO_CLUSTER, self.file, line)
            elif cluster.casefold() != settings.cluster.casefold():
                return "cluster"
        if settings.partition and partition is not None:
            stated = partition.casefold().split(",")
            if settings.partition.casefold() not in stated:
                self.into.other_partitions.setdefault(partition[:80])
                self.diagnosis.note(
                    OTHER_PARTITIONS, self.file, line, ascii(partition[:80]), loud=True
                )
                return "partition"
            self.into.partition_met = True
        return ""


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
        self._lists: dict[str, NodeLists] = {}

    def lists(self, cluster: str) -> NodeLists:
        """Host lists in rows of this cluster; empty where a row states none."""
        lists = self._lists.get(cluster)
        if lists is None:
            lists = self._lists[cluster] = NodeLists(
                lambda hosts: self.indices(hosts, cluster)
            )
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
