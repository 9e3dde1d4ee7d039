"""The nodes of a machine, from scontrol, sinfo, slurm.conf, pbsnodes, bhosts, qhost, or a list of names."""

from __future__ import annotations

from bft.models import InputError
from bft.replay.logs.clusters import Clusters
from bft.replay.logs.hostlists import HostListError, expand
from bft.replay.logs.node_reports import read_report
from bft.replay.logs.node_states import state_of
from bft.replay.logs.pbs import host_of
from bft.replay.logs.reading import Reading

_COMMANDS = "scontrol show node, sinfo -N, pbsnodes -a, bhosts or qhost, or list the names one a line"


def read(reading: Reading) -> None:
    """Read a list of nodes, which then are the machine's; see `node_reports.read_report` for what is taken.

    Nodes in Slurm's state FUTURE are not there yet and are left out.

    Raises
    ------
    InputError
        When no node is named.
    """
    nodes = _Nodes(Clusters(reading))
    read_report(enumerate(reading.lines, 1), nodes, reading.file)
    if not nodes.used:
        hint = reading.diagnosis.losses() or f"export with {_COMMANDS}"
        raise InputError("names no node of the machine", file=reading.file, hint=hint)


class _Nodes:
    """Accounts for lines, and hands nodes over."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters, self._into = clusters, clusters.reading.into
        self._diagnosis, self._file = clusters.reading.diagnosis, clusters.reading.file
        self.used = 0
        self.cluster = ""  # of the lines that follow, as far as they state it

    def line(self, line: str = "") -> None:
        """A line of which nothing is known yet but that it holds no node; sinfo -M begins clusters with such."""
        self._diagnosis.lines += 1
        self._diagnosis.no_record += 1
        if line.startswith("CLUSTER:"):
            self.cluster = line.partition(":")[2].strip()

    def take(self, text: str, number: int, state: str = "", *, vnode: bool = False) -> None:
        """A node, a list of nodes or a vnode, in a line that `line` has counted."""
        if not text or text == "global" or not text.strip("-"):  # qhost's line for all hosts, a ruler
            return
        try:
            hosts = () if text == "n/a" else expand(host_of(text) if vnode else text)
        except HostListError as error:
            self.bad("is no list of nodes", number, str(error))
            return
        if "[" not in text and len({host.isdecimal() for host in hosts}) > 1:
            why = "holds names and numbers: a row of a table? Name its columns in a first line, such as node,cores"
            self.bad(why, number, ascii(text[:80]))
            return
        self._diagnosis.no_record -= 1
        self._diagnosis.rows += 1
        if not hosts:
            self._diagnosis.leave_out("a partition without nodes", self._file, number)
        elif self.cluster and self._clusters.other(self.cluster, number):
            self._diagnosis.leave_out("node of another cluster", self._file, number)
        elif state_of(state) == "absent":
            self._diagnosis.leave_out("a node that is not there yet (state FUTURE)", self._file, number)
        else:
            self._clusters.indices(hosts, self.cluster)
            self._into.known(hosts)
            self._diagnosis.used += 1
            self.used += 1

    def bad(self, reason: str, number: int, detail: str) -> None:
        """A row, in a line that `line` has counted, that should name nodes and does not."""
        self._diagnosis.no_record -= 1
        self._diagnosis.rows += 1
        self._diagnosis.skip(reason, self._file, number, detail)

    def note(self, reason: str, number: int, detail: str) -> None:
        self._diagnosis.note(reason, self._file, number, detail)
