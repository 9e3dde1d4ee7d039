"""The nodes of a machine, from scontrol, sinfo, slurm.conf, pbsnodes, bhosts, qhost, or a list of names."""

from __future__ import annotations

from bft.models import InputError
from bft.replay.logs.node_reports import Sink, read_report
from bft.replay.logs.node_states import State
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
    nodes = _Nodes(reading)
    read_report(enumerate(reading.lines, 1), nodes)
    if not nodes.used:
        hint = reading.diagnosis.losses() or f"export with {_COMMANDS}"
        raise InputError("names no node of the machine", file=reading.file, hint=hint)


class _Nodes(Sink):
    """Takes all nodes for those of the machine, whatever their state."""

    def use(self, hosts: tuple[str, ...], state: State | None) -> None:
        nodes = self.clusters.indices(hosts, self.cluster)
        into = self.clusters.reading.into
        into.known(hosts)
        if into.units is not None:
            into.units.state_size(nodes, into.units.unit.had(self.has.gpus, self.has.cores), part=self.part)

    def wrong(self, text: str, hosts: tuple[str, ...], state: str) -> tuple[str, str]:
        if "[" in text or len({host.isdecimal() for host in hosts}) < 2:
            return "", ""
        why = "holds names and numbers: a row of a table? Name its columns in a first line, such as node,cores"
        return why, ascii(text[:80])
