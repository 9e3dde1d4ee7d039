"""The formats of logs: ours, and those that other packages register in the entry-point group `bft.logs`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from bft.models import InputError
from bft.models.plugins import PluginGroup
from bft.replay.logs.records import Block, Log, Row

GROUP = "bft.logs"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A format of logs, and the function that reads it.

    Parameters
    ----------
    about
        What it is, in a line.
    read
        Yields what the rows of one file state (`bft.replay.logs.records`). It raises InputError when the file is not
        of this format.
    first_line
        Regular expression that matches the beginning of the first line that is no comment; empty when the format cannot
        be recognised by it.
    states
        What its rows may state: `cluster`, `partition` and `user`, by which rows are filtered; `units` (GPUs and cores
        of a job, for `ingest --unit`); `outages`, so that it may be given as --events.
    only_ended
        Rows exist of jobs that have ended alone: those that ran when the log ended are missing.
    samples
        Rows are samples of nodes, no jobs: one that is skipped hides nothing for long.

    Examples
    --------
    >>> def read(log):
    ...     for line, text in log.lines:
    ...         job, hosts, start, end = text.split(";")
    ...         yield {"line": line, "id": job, "hosts": hosts, "start": start, "end": end}
    >>> LogFormat("One job per line, with semicolons", read).states
    ()
    """

    about: str
    read: Callable[[Log], Iterable[Block | Row]]
    first_line: str = ""
    states: tuple[str, ...] = ()
    only_ended: bool = False
    samples: bool = False

    def __post_init__(self) -> None:
        re.compile(self.first_line)


def _read(reader: str, log: Log) -> Iterable[Block | Row]:
    """Call a reader in one of our modules, which is imported when it is first used."""
    module, _, function = reader.partition(".")
    rows: Iterable[Block | Row] = getattr(
        import_module(f"{__name__}.{module}"), function
    )(log)
    return rows


_OF_JOBS = ("partition", "user")
BUILT_IN: dict[str, LogFormat] = {
    "slurm": LogFormat(
        "Slurm: sacct -p or -P, scontrol show job -d",
        partial(_read, "slurm.read"),
        r"(?!\s*\{)(?=.*\bJobID(Raw)?\b)(?=.*\bStart\b)(?=.*\bEnd\b)|JobId=\d",
        ("cluster", *_OF_JOBS, "units"),
    ),
    "slurm-json": LogFormat(
        "Slurm: sacct --json, squeue --json, scontrol show job --json",
        partial(_read, "slurm.read_json"),
        r'\s*\{(?!"status":"success","data"|"timestamp":)',  # any object that is none of the others here
        ("cluster", *_OF_JOBS, "units"),
    ),
    "slurm-events": LogFormat(
        "Slurm: sacctmgr -p show event (down and drained nodes)",
        partial(_read, "slurm.read_events"),
        r"(?=.*\bNodeName\b)(?=.*\bTimeStart\b)",
        ("cluster", "outages"),
    ),
    "slurm-reservations": LogFormat(
        "Slurm: scontrol show reservation, or sacctmgr -P show reservation",
        partial(_read, "slurm.read_reservations"),
        states=("cluster",),
    ),
    "slurm-nodes": LogFormat(
        "Nodes: scontrol show node, sinfo -N, slurm.conf, pbsnodes, bhosts, qhost, or a host list",
        partial(_read, "nodes.read_nodes"),
        states=("cluster",),
        samples=True,
    ),
    "pbs": LogFormat(
        "PBS Pro, OpenPBS, Torque: accounting files",
        partial(_read, "pbs.read"),
        r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;\w;",
        (*_OF_JOBS, "units"),
    ),
    "lsf": LogFormat(
        "LSF: lsb.acct",
        partial(_read, "lsf.read"),
        r'"JOB_FINISH" ',
        (*_OF_JOBS, "units"),
        only_ended=True,
    ),
    "lsf-events": LogFormat(
        "LSF: lsb.events", partial(_read, "lsf.read_events"), r'"[A-Z_]+[A-Z]" "'
    ),
    "sge": LogFormat(
        "Grid Engine: accounting file",
        partial(_read, "sge.read"),
        r"([^:]*:){30}",
        _OF_JOBS,
        only_ended=True,
    ),
    "cobalt": LogFormat(
        "Cobalt: job table as CSV (DIM_JOB_COMPOSITE)",
        partial(_read, "cobalt.read"),
        r"(?=.*\bSTART_TIMESTAMP\b)(?=.*\bEND_TIMESTAMP\b)",
        ("cluster", *_OF_JOBS, "outages"),
    ),
    "swf": LogFormat(
        "Standard Workload Format: node counts, no names",
        partial(_read, "swf.read"),
        r"\s*(-?[\d.]+\s+){10}",
        _OF_JOBS,
    ),
    "flux": LogFormat(
        "Flux: flux jobs (table or --json), eventlogs of jobs with their R",
        partial(_read, "flux.read"),
        r'(?i)(?=.*\bnodelist\b)(?=.*\bt_run\b)|\{"timestamp":',
        _OF_JOBS,
    ),
    "oar": LogFormat("OAR: oarstat -J -f", partial(_read, "oar.read"), states=_OF_JOBS),
    "htcondor": LogFormat(
        "HTCondor: condor_history -l or -json",
        partial(_read, "htcondor.read"),
        r"\*\*\* Offset",
        ("user",),
    ),
    "kubernetes": LogFormat(
        "Kubernetes: kubectl get pods (or events) -o json",
        partial(_read, "kubernetes.read"),
        states=("units",),
    ),
    "snapshots": LogFormat(
        "States of nodes at single instants: CSV timestamp,node,state, or what sinfo, pbsnodes, ... print",
        partial(_read, "nodes.read_snapshots"),
        r"(?i)(?=.*\b(time|timestamp|stamp|date)\b)(?=.*\b(node|host)(s|list|name)?\b)(?=.*\bstate\b)",
        ("cluster",),
        samples=True,
    ),
    "intervals": LogFormat(
        "CSV or Parquet with a row per interval, node,start,end[,state], or per job, id,hosts,start,end[,state]",
        partial(_read, "intervals.read"),
        r"(?i)(?=.*\b(node|host)s?(list)?\b)(?=.*\bstart\b)(?=.*\bend\b)",
        ("cluster", *_OF_JOBS, "outages"),
    ),
}
_FORMATS = PluginGroup(GROUP, "format", BUILT_IN)


# All formats that can be read here, those of other packages last: one after the other, which need not look for packages
# at first, or all at once.
each_format_name = _FORMATS.each
format_names = _FORMATS.names


def log_format(name: str) -> LogFormat:
    """A format by its name.

    Raises
    ------
    InputError
        When there is no such format, or the package that brings it cannot be loaded or brings something else.

    Examples
    --------
    >>> "cluster" in log_format("slurm").states
    True
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    loaded, label = _FORMATS.load(name)
    if not isinstance(loaded, LogFormat):
        raise InputError(
            f"{label} is a {type(loaded).__name__}, expected a bft.replay.logs.LogFormat"
        )
    return loaded


def able(feature: str) -> str:
    """Name the formats whose rows state something."""
    return ", ".join(
        name for name in format_names() if feature in log_format(name).states
    )


def detect(line: str, fields: Sequence[str] = ()) -> str | None:
    """The format whose logs have such a first line, comments apart; None when it might be any.

    `fields`, the names of columns that the user gives, count where the line does not match. A package that cannot be
    loaded hides no other format; it is named, as its format may be meant.

    >>> detect("JobID|NodeList|Start|End")
    'slurm'
    """
    for text in filter(None, (line, "|".join(fields))):
        for name in each_format_name():
            try:
                look = log_format(name).first_line
            except InputError as error:
                logger.warning("%s", error)
            else:
                if look and re.match(look, text):
                    return name
    return None
