"""What a fixed cluster consists of, as text names it: nodes, the units of each, and their kinds."""

from __future__ import annotations

import re
from typing import NamedTuple

from bft.models.errors import InputError

_SIZE = re.compile(r"(\d+)x(\d+)(?::([^+]+))?", re.ASCII)
# Units of all pools together: several times those of any machine, and some 400 MB.
MAX_UNITS = 1_000_000


class Nodes(NamedTuple):
    """Equal nodes of a cluster: how many, the units of each, and their kind, empty where all units are alike."""

    nodes: int
    units: int
    kind: str


def cluster_nodes(cluster: str) -> list[Nodes] | None:
    """The nodes of a cluster such as 8x8 or 6x4:t4+2x8:a100; None when it is not written like that.

    Raises
    ------
    InputError
        When there are too many units, or some nodes of several sizes have no kind.

    Examples
    --------
    >>> cluster_nodes("6x4:t4+2x8:a100")
    [Nodes(nodes=6, units=4, kind='t4'), Nodes(nodes=2, units=8, kind='a100')]
    """
    parts = []
    for text in cluster.split("+"):
        match = _SIZE.fullmatch(text)
        if match is None:
            return None
        # Python refuses to read a number of thousands of digits; these are beyond the limit with ten.
        nodes, units = (
            int(digits.lstrip("0")[:10] or "0") for digits in match.group(1, 2)
        )
        parts.append(Nodes(nodes, units, match[3] or ""))
    if len(parts) > 1 and not all(part.kind for part in parts):
        what = (
            "nodes of several sizes or kinds each need a kind, such as 6x4:t4+2x8:a100"
        )
        raise InputError(what, file=cluster)
    check_total(sum(part.nodes * part.units for part in parts), cluster)
    return parts


def cluster_kinds(cluster: str | None) -> bool:
    """Whether a cluster names kinds of units."""
    parts = None if cluster is None else cluster_nodes(cluster)
    return any(part.kind for part in parts or ())


def check_total(units: int, cluster: str) -> None:
    """Refuse a cluster of more units than any machine has."""
    if units > MAX_UNITS:
        raise InputError(
            f"a cluster may have {MAX_UNITS:,} units (nodes x units of each), no more",
            file=cluster,
        )
