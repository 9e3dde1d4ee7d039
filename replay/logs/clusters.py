"""Rows of several clusters: which nodes are whose."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from bft.models import InputError
from bft.replay.logs.hostlists import NodeLists
from bft.replay.logs.reading import Reading

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
