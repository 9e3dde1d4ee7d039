"""Where Cobalt says that a job ran: lists of hosts, ranges of node numbers, and blocks of a Blue Gene/Q torus."""

from __future__ import annotations

import re
from itertools import product
from math import prod

from bft.replay.logs.records import Unusable, host_names

_MOST_NODES = 262_144
_MOST_NAME = 255
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)
# MIR-00C00-33F71-1-1024: corners in the torus' five dimensions as hexadecimal digits, wiring, number of nodes.
_BLOCK = re.compile(r"([A-Z]{3,8})-([0-9A-F]{4}[01])-([0-9A-F]{4}[01])(?:-[0-9A-F]+)*-(\d{1,6})", re.ASCII)
# Names of hosts have small letters and a digit; names of partitions of other machines have capitals (R00-M0-N04).
_NAME = re.compile(r"[\w.:@+-]*[a-z][\w.:@+-]*\d[\w.:@+-]*", re.ASCII)


def expand(location: str) -> tuple[str, ...]:
    """Names of the nodes of a location.

    | location                | nodes                                                     |
    |-------------------------|-----------------------------------------------------------|
    | x3005c0s19b1n0,x3006... | these hosts                                               |
    | 0-63,128                | nid00000 to nid00063, nid00128 (a Cray's node numbers)    |
    | MIR-088C0-3BBF1-512     | MIR-088C0 to MIR-3BBF1: a box of coordinates A B C D E    |

    Raises
    ------
    Unusable
        When it names no nodes.

    Examples
    --------
    >>> expand("0-2,128")
    ('nid00000', 'nid00001', 'nid00002', 'nid00128')
    """
    block = _BLOCK.fullmatch(location)
    if block:
        return _box(*block.groups())
    names: list[str] = []
    for word in location.split(","):
        names.extend(_word(word.strip()))
        if len(names) > _MOST_NODES:
            raise Unusable(f"LOCATION names more than {_MOST_NODES:,} nodes", ascii(location[:40]))
    if not names:
        raise Unusable("LOCATION names no nodes")
    return host_names(names, "LOCATION")


def listed(location: str) -> tuple[str, ...]:
    """Names of the nodes of a location that is cut off: its last word may be the beginning of another name.

    Raises
    ------
    Unusable
        When it names no nodes.

    Examples
    --------
    >>> listed("x3005c0s19b1n0,x3006c0s1")
    ('x3005c0s19b1n0',)
    """
    words = [word.strip() for word in location.split(",")]
    whole = [word for word in words if word]
    last = words[-1]
    if _RANGE.fullmatch(last) or (len(whole) > 1 and _shape(last) != _shape(whole[0])):
        whole = whole[: len(whole) - bool(last)]
    return expand(",".join(whole))


def _shape(name: str) -> str:
    return re.sub(r"\d+", "0", name)


def _word(word: str) -> list[str]:
    number = _RANGE.fullmatch(word)
    if number is None:
        if not word:
            return []
        if len(word) > _MOST_NAME or not _NAME.fullmatch(word):
            raise Unusable("LOCATION is neither a list of hosts nor a block whose nodes are known", ascii(word[:40]))
        return [word]
    first, last = int(number[1]), int(number[2] or number[1])
    if not 0 <= last - first < _MOST_NODES:
        raise Unusable("LOCATION has a range of nodes that runs backwards or is too long", word)
    return [f"nid{node:05}" for node in range(first, last + 1)]


def _box(machine: str, low: str, high: str, size: str) -> tuple[str, ...]:
    """Nodes of a block, in the order of their coordinates."""
    sides = [range(int(a, 16), int(b, 16) + 1) for a, b in zip(low, high, strict=True)]
    # A block that is wrapped around the torus has a corner below the other; how long the torus is, is not stated.
    if prod(map(len, sides)) != int(size):
        raise Unusable("LOCATION is a block whose corners do not hold as many nodes as it says", f"{low}-{high}-{size}")
    return tuple(f"{machine}-{''.join(f'{digit:X}' for digit in corner)}" for corner in product(*sides))
