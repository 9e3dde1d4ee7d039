"""A node trace of a scheduler's files, read in the order in which they must be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bft.models import InputError
from bft.models.instants import strict_instant
from bft.replay.logs.collector import Collector
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.formats import detect, format_names, log_format, read_log
from bft.replay.logs.hostlists import HostListError, expand
from bft.replay.logs.log_files import LogLines, open_log
from bft.replay.logs.reading import NO_CLUSTER, Reading, Settings
from bft.replay.logs.slurm_columns import layout
from bft.replay.logs.tables import column_map, public_table, renamed
from bft.replay.logs.times import Clock
from bft.replay.logs.to_trace import Coverage, node_trace
from bft.replay.logs.units import Unit, UnitLog
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.walltimes import Walltimes

AUTO = "auto"
# What is meant as the name of a file, although names of hosts have dots as well.
_FILE = re.compile(r"/|\.(txt|csv|tsv|json|conf|list|lst|log|out|dat|gz|xz|zst|bz2)$", re.IGNORECASE)
# Jobs of Slurm among which some are requeued, on most machines.
_ENOUGH_JOBS = 100
# Lines looked at to find a log's format.
_LOOKED_AT = 100
Progress = Callable[[str], AbstractContextManager[Callable[[int], None] | None]]


class Ingested(NamedTuple):
    """A node trace made of logs, what became of every row, and how the time of the nodes divides.

    `walltimes`: what the scheduler knew of its jobs, where that was asked for.
    """

    trace: NodeTrace
    diagnosis: Diagnosis
    coverage: Coverage
    walltimes: Walltimes | None = None


@contextmanager
def _silent(name: str) -> Iterator[None]:
    yield None


def ingested(
    form: str,
    files: Sequence[str],
    *,
    nodes: Sequence[str] = (),
    events: Sequence[str] = (),
    reservations: Sequence[str] = (),
    tz: str | None = None,
    begin: str | None = None,
    end: str | None = None,
    min_gap_s: float = 10.0,
    fields: tuple[str, ...] = (),
    delimiter: str = "",
    columns: str = "",
    cluster: str = "",
    processors_per_node: int | None = None,
    mtime: bool = False,
    walltimes: bool = False,
    machine_nodes: int | None = None,
    machine: str = "",
    units_per_node: int | None = None,
    unit: str = "node",
    max_nodes: int = 1_000_000,
    max_fragments: int = 10_000_000,
    strict: bool = False,
    allow_few: bool = False,
    progress: Progress = _silent,
) -> Ingested:
    """Make a node trace of log files; the options are those of `bft-replay ingest`.

    Parameters
    ----------
    form
        Format of the logs, one of `format_names()`, or `auto`.
    files
        The logs, in order; several are one log.
    nodes
        Nodes of the machine: host lists such as cn[001-128], or files.
    events, reservations
        Files that state when nodes were down or drained, and reserved.
    tz
        Zone of times that state none; None: UTC, with a note.
    begin, end
        Window of observation, as dates and times; None: as the logs say.
    min_gap_s
        Idle gaps shorter than this many seconds do not count as idle.
    fields, delimiter
        Columns of a file without a header line, and what separates them.
    columns
        Names of the columns of a table in those of its format, as `node=hosts,start=begin`, or the name of a public
        data set (`PUBLIC_TABLES`); empty: they are those.
    cluster
        Use only rows of this cluster; empty: all.
    processors_per_node, machine_nodes
        Of logs that count processors, and that name no nodes.
    mtime
        Of snapshots: take the time of the file's last change where nothing else states one.
    walltimes
        Collect time limits, the queue and reservations as well.
    machine
        Its name, for people.
    units_per_node
        Units of each node of which no list of nodes says how many it has; None: 1 where nodes turn idle as a whole.
    unit
        What turns idle: `node`, `gpu`, or `cpu:N` for N cores.
    max_nodes, max_fragments
        Refuse logs with more nodes, and with more intervals of single nodes.
    strict
        Refuse the first row that would be skipped.
    allow_few
        Accept files of which fewer than half of the rows can be used, and windows that lie mostly outside the logs.
    progress
        Yields what is called with the bytes read so far of the file of that name, or None.

    Raises
    ------
    InputError
        When a file cannot be read; names file and line.
    """
    diagnosis = Diagnosis(strict=strict, allow_few=allow_few)
    clock = Clock(tz, diagnosis)
    start_ns, end_ns = instant(begin, "--from", clock), instant(end, "--to", clock)
    settings = Settings(
        fields=fields,
        delimiter=delimiter.replace("\\t", "\t"),
        cluster=cluster,
        processors_per_node=processors_per_node,
        machine_nodes=machine_nodes,
        mtime=mtime,
        walltimes=walltimes,
    )
    turns_idle = Unit.of(unit)
    if walltimes and turns_idle is not None:
        raise InputError(f"--walltimes is for nodes that turn idle as a whole, not for --unit {unit}")
    collected = Collector(min_gap_ns=round(min_gap_s * SECOND_NS), most_nodes=max_nodes, max_fragments=max_fragments)

    if turns_idle is not None:
        collected.units = UnitLog(turns_idle, units_per_node)

    public = public_table(columns.strip(), form) if columns.strip() and "=" not in columns else None
    ours = column_map(public.columns if public else columns) if columns.strip() else {}
    convert, header = (public.convert, public.header) if public else ({}, ())
    if public:
        form = public.form
    if header:
        theirs = {name: mine for mine, name in ours.items()}
        settings = replace(settings, fields=tuple(theirs.get(name, f"their_{name}") for name in header))

    def read(name: str, kind: str, how: Settings) -> None:
        with progress(name) as so_far, open_log(name, so_far) as stored:
            mapped = ours and how is settings
            lines = renamed(stored, ours, how.delimiter, name, convert=convert, header=header) if mapped else stored
            _read(lines, kind, Reading(lines, name, collected, diagnosis, clock, how))

    for name in nodes:
        if Path(name).exists():
            read(name, "slurm-nodes", Settings(cluster=cluster))
        else:
            collected.known(node_list(name))
    for name in files:
        read(name, form, settings)
    states_outages = collected.states_outages()
    for kind, names in (("slurm-events", events), ("slurm-reservations", reservations)):
        for name in names:  # after the jobs: an outage may be one of all nodes known so far
            known = walltimes and kind == "slurm-reservations"
            read(name, kind, Settings(cluster=cluster, events=True, walltimes=known))
    source = ", ".join(files)
    made, coverage = node_trace(
        collected, diagnosis, start_ns=start_ns, end_ns=end_ns, machine_nodes=machine_nodes, source=source
    )
    _say_what_lies_not_beside(diagnosis, events, reservations, states_outages)
    _say_requeued_runs_are_missing(collected, diagnosis)
    made = replace(made, machine=machine or collected.machine, source=source)
    if not made.by_unit:
        made = replace(made, units_per_node=units_per_node or 1)
    if not walltimes:
        return Ingested(made, diagnosis, coverage)
    planned = collected.plans.walltimes(collected.names, collected.universe, collected.owners)
    return Ingested(made, diagnosis, coverage, planned)


def _say_what_lies_not_beside(
    diagnosis: Diagnosis, events: Sequence[str], reservations: Sequence[str], states_outages: bool
) -> None:
    """Say which options with outages were not given, and what that did on a log of which the truth is known.

    Logs that state outages by themselves (`states_outages`) need neither.
    """
    beside = (("--events", "down", events), ("--reservations", "reserved", reservations))
    lacking = [(name, what) for name, what, files in beside if not files]
    if states_outages or not lacking:
        return
    names = " and no ".join(name for name, _ in lacking)
    states = " or ".join(what for _, what in lacking)
    cost = " (a test log: 27.9 instead of 24.9 % idle)" if "--events" in names else ""
    diagnosis.note(f"no {names}: nodes that were {states} look idle{cost}", "", 0, loud=True)


def _say_requeued_runs_are_missing(collected: Collector, diagnosis: Diagnosis) -> None:
    """Say so where a log of Slurm with many jobs has none that ran twice."""
    runs = collected.job_runs
    if runs.requeues_looked_for >= _ENOUGH_JOBS and not runs.requeued:
        diagnosis.note("no job ran twice: did sacct lack -D? without it requeued runs are missing (a test log: 27.3 "
                       "instead of 24.9 % idle)", "", 0, loud=True)  # fmt: skip


def _read(lines: Iterable[str], kind: str, reading: Reading) -> None:
    """Read one file as a format, as what it looks like (auto), or, of events, as the CSV it may be instead."""
    settings = reading.settings
    head: list[str] = []
    lines = lines if isinstance(lines, LogLines) else LogLines(lines=lines)
    if kind in (AUTO, "slurm-events"):
        for line in lines:
            head.append(line)
            if (line.strip() and line[0] not in "#;") or len(head) == _LOOKED_AT:
                break
        looks_like = detect(head[-1], settings.fields) if head else None
        if kind == AUTO and looks_like is None:
            hint = layout(head[-1], settings.delimiter) if head else ""
            raise InputError(
                "is of no format that its first line shows; name its FORMAT", file=reading.file, hint=hint or None
            )
        kind = looks_like if looks_like and (kind == AUTO or log_format(looks_like).events) else kind
    if settings.cluster and not log_format(kind).clusters:
        reading.diagnosis.note(NO_CLUSTER, reading.file, 0)
    beside = settings.events or kind == "slurm-nodes"
    if reading.into.units is not None and not (log_format(kind).units or beside):
        raise InputError(
            f"logs of format {kind} do not state which units of a node a job had",
            file=reading.file,
            hint=f"--unit {reading.into.units.unit} is for {', '.join(_with_units())}",
        )
    if settings.walltimes and not (beside or log_format(kind).walltimes):
        able = ", ".join(name for name in format_names() if log_format(name).walltimes)
        raise InputError(f"--walltimes: the format {kind} states no time limits; {able} do", file=reading.file)
    lines.unread(head)
    read_log(kind, replace(reading, lines=lines))


def _with_units() -> Iterator[str]:
    return (name for name in format_names() if log_format(name).units)


def node_list(text: str) -> tuple[str, ...]:
    """Names of nodes: of a file as `ingest --nodes` takes it, or of a host list such as cn[001-128].

    Raises
    ------
    InputError
        When it is neither.
    """
    if not Path(text).exists():
        if _FILE.search(text):
            hint = "expected a file, or a host list such as cn[001-128]"
            raise InputError("--nodes: there is no such file", file=text, hint=hint)
        try:
            return expand(text)
        except HostListError as error:
            raise InputError(f"--nodes: neither a file nor a host list: {error}") from error
    collected, diagnosis = Collector(), Diagnosis()
    with open_log(text) as lines:
        read_log("slurm-nodes", Reading(lines, text, collected, diagnosis, Clock("UTC", diagnosis)))
    names = list(collected.names)
    return tuple(names[node] for node in sorted(collected.universe))


def instant(text: str | None, option: str, clock: Clock) -> int | None:
    """UTC nanoseconds of a date, or of a date and time, that an option gives; None stays None."""
    if text is None:
        return None
    strict = strict_instant(text)
    stamp = None if strict is None else clock.parse(strict, option, 0)
    if stamp is None:
        raise InputError(f"{option}: expected a date and time such as 2021-02-10T20:21:15, not {text!r}")
    return stamp
