"""The formats of logs: ours, and those that other packages register in the entry-point group `bft.logs`."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from bft.models import InputError
from bft.models.plugins import PluginGroup
from bft.replay.logs.intake import collect
from bft.replay.logs.reading import Reading, Record
from bft.replay.logs.slurm_table import PRESETS

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
        Yields the records of one file (`bft.replay.logs.reading`). It raises InputError when the file is not of this
        format. Readers that hand rows to `Reading.into` themselves and return nothing are deprecated.
    first_line
        Regular expression that matches the beginning of the first line that is no comment; empty when the format cannot
        be recognised by it.
    clusters
        Rows may state their cluster.
    partitions, users
        Jobs may state their partition or queue, and their user. What a format states its reader hands to
        `Reading.keep` or `Reading.other`, which apply the filters of that name (`filters.Filters`).
    events
        May also be given as --events: rows may state when nodes were unavailable.
    units
        Rows state the GPUs and cores of a job: the reader gives `Collector.job` what it held (`ingest --unit`).
    walltimes
        States time limits and since when jobs waited, which `read` hands over where `Settings.walltimes` asks for them.
    only_ended
        Rows exist of jobs that have ended alone: those that ran when the log ended are missing.
    """

    about: str
    read: Callable[[Reading], Iterable[Record] | None]
    first_line: str = ""
    clusters: bool = False
    events: bool = False
    units: bool = False
    walltimes: bool = False
    only_ended: bool = False
    partitions: bool = False
    users: bool = False

    def __post_init__(self) -> None:
        if not callable(self.read):
            raise TypeError(f"read must be a function of a Reading, not {self.read!r}")
        try:
            re.compile(self.first_line)
        except (re.error, TypeError) as error:
            raise ValueError(
                f"first_line {self.first_line!r} is no regular expression: {error}"
            ) from error


# Any object that is none of the others here.
_SLURM_JSON = r'\s*\{(?!"status":"success","data"|"timestamp":)'


def _module(name: str, function: str = "read") -> Callable[[Reading], Iterator[Record]]:
    """Return a reader in one of our modules, which is imported when it is first used."""

    def read(reading: Reading) -> Iterator[Record]:
        module = import_module(f"bft.replay.logs.{name}")
        records: Iterator[Record] = getattr(module, function)(reading)
        return records

    return read


BUILT_IN: dict[str, LogFormat] = {
    "slurm": LogFormat(
        "Slurm: sacct -p or -P, scontrol show job -d",
        _module("slurm"),
        r"(?!\s*\{)(?=.*\bJobID(Raw)?\b)(?=.*\bStart\b)(?=.*\bEnd\b)|JobId=\d",
        clusters=True,
        units=True,
        walltimes=True,
        partitions=True,
        users=True,
    ),
    "slurm-json": LogFormat(
        "Slurm: sacct --json, squeue --json, scontrol show job --json",
        _module("slurm", "read_json"),
        _SLURM_JSON,
        clusters=True,
        units=True,
        walltimes=True,
        partitions=True,
        users=True,
    ),
    "slurm-events": LogFormat(
        "Slurm: sacctmgr -p show event (down and drained nodes)",
        _module("slurm", "read_events"),
        r"(?=.*\bNodeName\b)(?=.*\bTimeStart\b)",
        clusters=True,
        events=True,
    ),
    "slurm-reservations": LogFormat(
        "Slurm: scontrol show reservation, or sacctmgr -p show reservation",
        _module("slurm", "read_reservations"),
        clusters=True,
    ),
    "slurm-nodes": LogFormat(
        "Slurm: scontrol show node, sinfo -N, slurm.conf, or a host list",
        _module("node_reports", "read_nodes"),
        clusters=True,
    ),
    "pbs": LogFormat(
        "PBS Pro, OpenPBS, Torque: accounting files",
        _module("pbs"),
        r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;\w;",
        units=True,
        walltimes=True,
        partitions=True,
        users=True,
    ),
    "lsf": LogFormat(
        "LSF: lsb.acct",
        _module("lsf"),
        r'"JOB_FINISH" ',
        units=True,
        only_ended=True,
        partitions=True,
        users=True,
    ),
    "lsf-events": LogFormat(
        "LSF: lsb.events", _module("lsf", "read_events"), r'"[A-Z_]+[A-Z]" "'
    ),
    "sge": LogFormat(
        "Grid Engine: accounting file",
        _module("sge"),
        r"([^:]*:){30}",
        only_ended=True,
        partitions=True,
        users=True,
    ),
    "cobalt": LogFormat(
        "Cobalt: job table as CSV (DIM_JOB_COMPOSITE)",
        _module("cobalt"),
        r"(?=.*\bSTART_TIMESTAMP\b)(?=.*\bEND_TIMESTAMP\b)",
        clusters=True,
        events=True,
        partitions=True,
        users=True,
    ),
    "swf": LogFormat(
        "Standard Workload Format: node counts, no names",
        _module("swf"),
        r"\s*(-?[\d.]+\s+){10}",
        walltimes=True,
        partitions=True,
        users=True,
    ),
    "flux": LogFormat(
        "Flux: flux jobs (table or --json), eventlogs of jobs with their R",
        _module("flux"),
        r'(?i)(?=.*\bnodelist\b)(?=.*\bt_run\b)|\{"timestamp":',
        partitions=True,
        users=True,
    ),
    "oar": LogFormat("OAR: oarstat -J -f", _module("oar"), partitions=True, users=True),
    "htcondor": LogFormat(
        "HTCondor: condor_history -l or -json",
        _module("htcondor"),
        r"\*\*\* Offset",
        users=True,
    ),
    "kubernetes": LogFormat(
        "Kubernetes: kubectl get pods (or events) -o json",
        _module("kubernetes"),
        units=True,
    ),
    "batsim": LogFormat(
        "Batsim: jobs.csv, as evalys reads it",
        _module("batsim"),
        r"(?=.*\bstarting_time\b)(?=.*\ballocated_(resources|processors)\b)",
    ),
    "philly": LogFormat(
        "Microsoft's Philly trace: cluster_job_log",
        _module("philly"),
        units=True,
        partitions=True,
        users=True,
    ),
    "prometheus": LogFormat(
        "Prometheus: range query of numbers of nodes by state, JSON",
        _module("prometheus"),
        r'\{"status":"success","data"',
    ),
    "ldms": LogFormat("LDMS: CSV of store_csv with job_id", _module("ldms")),
    "snapshots": LogFormat(
        "States of nodes at single instants: CSV timestamp,node,state, or what sinfo, pbsnodes, ... print",
        _module("node_reports", "read_snapshots"),
        r"(?i)(?=.*\b(time|timestamp|stamp|date)\b)(?=.*\b(node|host)(s|list|name)?\b)(?=.*\bstate\b)",
        clusters=True,
    ),
    "intervals": LogFormat(
        "CSV with one row per interval: node,start,end[,state]",
        _module("intervals"),
        r"(?i)(?=.*\b(node|host)s?(list)?\b)(?=.*\bstart\b)(?=.*\bend\b)",
        clusters=True,
        events=True,
        partitions=True,
        users=True,
    ),
}
_FORMATS = PluginGroup(GROUP, "format", BUILT_IN)


def each_format_name() -> Iterator[str]:
    """Yield all formats that can be read here, those of other packages last."""
    return _FORMATS.each()


def format_names() -> tuple[str, ...]:
    """Return the names of all formats at once.

    >>> "slurm" in format_names()
    True
    """
    return _FORMATS.names()


def log_format(name: str) -> LogFormat:
    """A format by its name.

    Raises
    ------
    InputError
        When there is no such format, or the package that brings it cannot be loaded or brings something else.

    Examples
    --------
    >>> log_format("slurm").clusters
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


def read_log(name: str, reading: Reading) -> None:
    """Read one file as a format, and account for it.

    Raises
    ------
    InputError
        When there is no such format, or the file is not of it.
    """
    form = log_format(name)
    with (
        reading.into.beside(reading.settings.events),
        reading.diagnosis.reading(reading.file),
    ):
        records = form.read(reading)
        if records is None:
            why = (
                f"the reader of {name} yields no records: see docs/add-a-log-format.md"
            )
            warnings.warn(why, DeprecationWarning, stacklevel=2)
        else:
            collect(records, reading)
        reading.into.only_ended |= form.only_ended


def detect(line: str, fields: Sequence[str] = ()) -> str | None:
    """The format whose logs have such a first line, comments apart; None when it might be any.

    `fields`, as `Settings` has them, count where the line does not match.

    >>> detect("JobID|NodeList|Start|End")
    'slurm'
    """
    header = "|".join(PRESETS.get(fields[0], fields)) if fields else line
    return next(
        (
            name
            for text in (line, header)
            for name, look in _looks()
            if re.match(look, text)
        ),
        None,
    )


def _looks() -> Iterator[tuple[str, str]]:
    """Formats that their first line shows. A broken package hides no other; it is named, as its format may be meant."""
    for name in each_format_name():
        try:
            look = log_format(name).first_line
        except InputError as error:
            logger.warning("%s", error)
        else:
            if look:
                yield name, look
