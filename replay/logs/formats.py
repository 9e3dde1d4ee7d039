"""The formats of logs that are read, and what their readers are told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from bft.models import InputError
from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.slurm_columns import PRESETS
from bft.replay.logs.times import Clock

# Format -> (module that reads it, what it is). Modules are imported when used.
FORMATS: dict[str, tuple[str, str]] = {
    "slurm": ("bft.replay.logs.slurm", "Slurm: sacct -p or -P"),
    "slurm-json": ("bft.replay.logs.slurm_json", "Slurm: sacct --json"),
    "slurm-events": ("bft.replay.logs.slurm_events", "Slurm: sacctmgr -p show event (down and drained nodes)"),
    "slurm-reservations": (
        "bft.replay.logs.slurm_reservations",
        "Slurm: scontrol show reservation, or sacctmgr -p show reservation",
    ),
    "slurm-nodes": (
        "bft.replay.logs.slurm_nodes",
        "Slurm: scontrol show node, sinfo -N, slurm.conf, or a host list",
    ),
    "pbs": ("bft.replay.logs.pbs", "PBS Pro, OpenPBS, Torque: accounting files"),
    "lsf": ("bft.replay.logs.lsf", "LSF: lsb.acct"),
    "lsf-events": ("bft.replay.logs.lsf_events", "LSF: lsb.events"),
    "sge": ("bft.replay.logs.sge", "Grid Engine: accounting file"),
    "cobalt": ("bft.replay.logs.cobalt", "Cobalt: job table as CSV (DIM_JOB_COMPOSITE)"),
    "swf": ("bft.replay.logs.swf", "Standard Workload Format: node counts, no names"),
    "intervals": ("bft.replay.logs.intervals", "CSV with a row an interval: node,start,end[,state]"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user says about a log.

    Parameters
    ----------
    fields
        Names of the columns, for a file without a header line; empty when the file has one.
    delimiter
        What separates columns; empty: found from the header line.
    cluster
        Use only the rows of this cluster, where rows name theirs; empty: all.
    processors_per_node
        Where a log counts processors (SWF), how many make a node; None: as the log's header says, else 1.
    events
        The file states when nodes were unavailable, beside logs of jobs.
    """

    fields: tuple[str, ...] = ()
    delimiter: str = ""
    cluster: str = ""
    processors_per_node: int | None = None
    events: bool = False


class Reader(Protocol):
    """How every reader is called.

    Parameters
    ----------
    lines
        The file's lines without their line ends.
    file
        Its name, for messages.
    settings, clock
        What the user says of the file, and of its times.
    into, diagnosis
        What receives the intervals, and the account of every line.

    Raises
    ------
    InputError
        When the file is not of this format, and under --strict at the first row that cannot be used.
    """

    def __call__(
        self,
        lines: Iterable[str],
        file: str,
        settings: Settings,
        into: Collector,
        diagnosis: Diagnosis,
        clock: Clock,
    ) -> None:
        """Read one log."""


# What the first line of a log that is no comment looks like, for those that can be told from it.
_LOOKS: tuple[tuple[str, str], ...] = (
    ("slurm-json", r"\s*\{"),
    ("slurm-events", r"(?=.*\bNodeName\b)(?=.*\bTimeStart\b)"),
    ("slurm", r"(?=.*\bJobID(Raw)?\b)(?=.*\bStart\b)(?=.*\bEnd\b)"),
    ("pbs", r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;\w;"),
    ("lsf", r'"JOB_FINISH" '),
    ("lsf-events", r'"[A-Z_]+[A-Z]" "'),
    ("cobalt", r"(?=.*\bSTART_TIMESTAMP\b)(?=.*\bEND_TIMESTAMP\b)"),
    ("intervals", r"(?i)(?=.*\b(node|host)s?(list)?\b)(?=.*\bstart\b)(?=.*\bend\b)"),
    ("sge", r"([^:]*:){30}"),
    ("swf", r"\s*(-?[\d.]+\s+){10}"),
)


def detect(line: str, fields: Sequence[str] = ()) -> str | None:
    """The format whose logs have such a first line, comments apart; None when it might be any.

    `fields`, as `Settings` has them, tell where the line does not.
    """
    header = "|".join(PRESETS.get(fields[0], fields)) if fields else line
    return next((name for text in (line, header) for name, look in _LOOKS if re.match(look, text)), None)


def reader(name: str) -> Reader:
    """The reader of a format of `FORMATS`."""
    if name not in FORMATS:
        raise InputError(f"unknown format {name!r}; known are {', '.join(FORMATS)}")
    read_lines = cast(Reader, import_module(FORMATS[name][0]).read)

    def read(
        lines: Iterable[str], file: str, settings: Settings, into: Collector, diagnosis: Diagnosis, clock: Clock
    ) -> None:
        with into.beside(settings.events), diagnosis.reading(file):
            read_lines(lines, file, settings, into, diagnosis, clock)

    return read
