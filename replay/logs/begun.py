"""What has begun in a log that states its ends in records of their own, as a file leaves it for the next."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from bft.replay.logs.units import Held


@dataclass(frozen=True, slots=True)
class Begun:
    """What has begun: its hosts, UTC nanoseconds of its start, where its record is, and what it holds of each host.

    None for the latter: all of it.
    """

    hosts: tuple[str, ...]
    start_ns: int
    file: str
    line: int
    held: tuple[Held, ...] | None = None


@dataclass(slots=True)
class Kept:
    """Jobs and outages under way by key, and what the end of the last file made of them.

    `starts`: whether any record stated a start by itself, so that jobs that still run are known.
    """

    jobs: dict[Hashable, Begun] = field(default_factory=dict)
    outages: dict[Hashable, Begun] = field(default_factory=dict)
    running: int = 0
    counts: tuple[int, int] = (0, 0)  # node-intervals of both that were added at the end of the last file
    last_ns: int = 0
    starts: bool = False
