"""The nodes of a machine, from scontrol, sinfo, slurm.conf, pbsnodes, bhosts, qhost, or a list of names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.formats import Settings
from bft.replay.logs.hostlists import HostListError, expand
from bft.replay.logs.times import Clock

_NODE_NAME = re.compile(r"(?<!\S)NodeName=(\S+)", re.IGNORECASE)
# Headers of the column that names nodes: sinfo, sinfo -N, bhosts, qhost, a CSV of names.
_HEADERS = ("NODELIST", "HOSTNAMES", "HOSTNAME", "HOST_NAME", "NODES", "NODE")


def read(
    lines: Iterable[str], file: str, settings: Settings, into: Collector, diagnosis: Diagnosis, clock: Clock
) -> None:
    """Read a list of nodes, which then are the machine's.

    Taken are `NodeName=LIST` (scontrol show node, slurm.conf), the column of names below a header (sinfo, bhosts,
    qhost), and otherwise the first word of each line that is not indented (pbsnodes, `sinfo -h -o %N`, plain names).
    """
    column = 0
    for number, line in enumerate(lines, 1):
        diagnosis.lines += 1
        words = line.split("#")[0].split()
        headers = [k for name in _HEADERS for k, word in enumerate(words) if word.upper() == name]
        named = _NODE_NAME.search(line)
        text = named[1] if named and not line.startswith("#") else ""
        if headers:
            column = headers[0]
        elif not named and words and "=" not in line and (column or not line[0].isspace()):
            text = words[column] if column < len(words) else ""
        if not text or text.upper() == "DEFAULT" or text == "global" or not text.strip("-"):
            diagnosis.no_record += 1
            continue
        diagnosis.rows += 1
        try:
            hosts = expand(text)
        except HostListError as error:
            diagnosis.skip("is no list of nodes", file, number, str(error))
            continue
        into.known(hosts)
        diagnosis.used += 1
