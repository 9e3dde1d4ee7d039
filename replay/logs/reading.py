"""What every reader is given: one file, what the user says about it, and what receives its intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Diagnosis
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
