"""A node trace of a scheduler's files, read in the order in which they must be read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from bft.models import InputError
from bft.models.checks import did_you_mean, strict_instant
from bft.replay.logs.collector import MOST_NODES, Collector, most_fragments
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.formats import detect, format_names, log_format, read_log
from bft.replay.logs.hostlists import HostListError, expand
from bft.replay.logs.log_files import LogLines, open_log
from bft.replay.logs.reading import (
    FILTERS,
    NOT_STATED,
    OTHERS,
    Clock,
    Filters,
    Reading,
    Settings,
    counts_as,
)
from bft.replay.logs.slurm_table import layout
from bft.replay.logs.tables import (
    PublicTable,
    column_map,
    looked_up,
    public_table,
    renamed,
)
from bft.replay.logs.to_trace import Coverage, node_trace
from bft.replay.logs.units import Unit, UnitLog
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.walltimes import Walltimes

AUTO = "auto"
# What is meant as the name of a file, although names of hosts have dots as well.
_FILE = re.compile(
    r"/|\.(txt|csv|tsv|json|conf|list|lst|log|out|dat|gz|xz|zst|bz2)$", re.IGNORECASE
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions(Filters):
    """The options of `ingested`, which are those of `bft-replay ingest`, with its filters.

    Parameters
    ----------
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
        data set (`public_tables`); empty: they are those.
    processors_per_node, machine_nodes
        Of logs that count processors, and that name no nodes.
    mtime
        Of snapshots: take the time of the file's last change where nothing else states one.
    walltimes
        Collect time limits, the queue and reservations as well.
    uncertain
        What time counts as of which the logs may not show what nodes did: `unavailable` or `idle`.
    count_as
        What states of nodes count as instead of the default, as `completing=idle,powered_down=idle`: of snapshots,
        tables of intervals and events.
    completing_s
        Seconds for which the nodes of a job that has ended complete (an epilog), which no log of jobs states: they are
        busy so long.
    machine
        Its name, for people.
    units_per_node
        Units of each node of which no list of nodes says how many it has; None: 1 where nodes turn idle as a whole.
    unit
        What turns idle: `node`, `gpu`, or `cpu:N` for N cores.
    max_nodes, max_fragments
        Refuse logs with more nodes, and with more intervals of single nodes; None: than ten million, or so many that
        they take 20 times as much memory as the logs.
    strict
        Refuse the first row that would be skipped.
    allow_few
        Accept files of which fewer than half of the rows can be used, and windows that lie mostly outside the logs.

    Raises
    ------
    InputError
        When an option has no valid value, or two contradict each other.
    """

    nodes: Sequence[str] = ()
    events: Sequence[str] = ()
    reservations: Sequence[str] = ()
    tz: str | None = None
    begin: str | None = None
    end: str | None = None
    min_gap_s: float = 10.0
    fields: tuple[str, ...] = ()
    delimiter: str = ""
    columns: str = ""
    processors_per_node: int | None = None
    machine_nodes: int | None = None
    machine: str = ""
    unit: str = "node"
    units_per_node: int | None = None
    max_nodes: int = MOST_NODES
    max_fragments: int | None = None
    mtime: bool = False
    walltimes: bool = False
    uncertain: Literal["unavailable", "idle"] = "unavailable"
    count_as: str = ""
    completing_s: float = 0.0
    strict: bool = False
    allow_few: bool = False

    def __post_init__(self) -> None:
        Filters.__post_init__(self)
        counts_as(self.count_as)
        for option, seconds in (
            ("--min-gap", self.min_gap_s),
            ("--completing", self.completing_s),
        ):
            if not 0 <= seconds < math.inf:
                raise InputError(
                    f"{option}: expected a number of seconds from 0 on, not {seconds!r}"
                )
        for name in (
            "processors_per_node",
            "machine_nodes",
            "units_per_node",
            "max_nodes",
            "max_fragments",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(
                    f"--{name.replace('_', '-')}: expected a whole number from 1 on, not {value!r}"
                )
        if self.uncertain not in ("unavailable", "idle"):
            raise InputError(
                f"--uncertain: expected unavailable or idle, not {self.uncertain!r}"
            )
        for name in ("nodes", "events", "reservations"):
            if isinstance(getattr(self, name), str):
                raise InputError(f"{name}: expected a sequence of texts, not one text")
        if self.turns_idle is not None and self.walltimes:
            raise InputError(
                f"--walltimes is for nodes that turn idle as a whole, not for --unit {self.unit}"
            )

    @property
    def turns_idle(self) -> Unit | None:
        """The unit that turns idle by itself; None where nodes turn idle as a whole."""
        return Unit.of(self.unit)

    def settings(self) -> Settings:
        """Return the settings that readers of the logs are given."""
        return Settings(
            fields=self.fields,
            delimiter=self.delimiter.replace("\\t", "\t"),
            processors_per_node=self.processors_per_node,
            machine_nodes=self.machine_nodes,
            mtime=self.mtime,
            walltimes=self.walltimes,
            counts_as=counts_as(self.count_as),
            **self.asked(),
        )


def _table(form: str, columns: str) -> PublicTable:
    """Return how a table is read whose columns have the names that `--map` states: no names, as it is."""
    if not columns.strip():
        return PublicTable(form)
    if "=" in columns:
        column_map(columns)  # a mistake in it is found before any file is read
        return PublicTable(form, columns)
    return public_table(columns.strip(), form)


def _with_header(settings: Settings, table: PublicTable) -> Settings:
    """Add what a table is known to have: all columns, in the words of its format, and its machine."""
    fields = settings.fields
    if table.header:
        ours = {theirs: name for name, theirs in column_map(table.columns).items()}
        fields = tuple(ours.get(name, f"their_{name}") for name in table.header)
    return replace(
        settings,
        processors_per_node=settings.processors_per_node or table.processors_per_node,
        machine_nodes=settings.machine_nodes or table.machine_nodes,
        fields=fields,
    )


def _with_cells_of(
    table: PublicTable,
    files: Sequence[str],
    settings: Settings,
    diagnosis: Diagnosis,
) -> tuple[PublicTable, list[str]]:
    """Look up the cells that other files have; return how the files that are left are read, and these.

    Raises
    ------
    InputError
        When none of the files has such a column, or none is left.
    """
    left = list(files)
    convert = dict(table.convert)
    for key, column in table.lookup.items():
        cells: dict[str, str] = {}
        for name in files:
            with open_log(name) as lines:
                found = looked_up(lines, key, column, settings.delimiter)
            if found is not None:
                cells |= found
                left.remove(name)
                what = f"the column {column} was looked up for {len(found):,} different {key}"
                diagnosis.note(what, name, 0)
        if not cells or not left:
            raise InputError(
                f"--map: expected two files, one of them with the columns {key} and {column}"
            )
        convert[key] = partial(_cell_of, cells)
    return replace(table, convert=convert), left


def _cell_of(cells: Mapping[str, str], key: str) -> str:
    return cells.get(key.strip(), "")


_DEFAULTS = IngestOptions()


def ingested(
    form: str,
    files: Sequence[str],
    options: IngestOptions = _DEFAULTS,
    *,
    progress: Progress = lambda name: nullcontext(),
) -> Ingested:
    """Make a node trace of log files.

    Parameters
    ----------
    form
        Format of the logs, one of `format_names()`, or `auto`.
    files
        The logs, in order; several are one log.
    options
        What is asked for.
    progress
        Yields what is called with the bytes read so far of the file of that name, or None.

    Raises
    ------
    InputError
        When a file cannot be read; names file and line.
    """
    diagnosis = Diagnosis(strict=options.strict, allow_few=options.allow_few)
    clock = Clock(options.tz, diagnosis)
    start_ns, end_ns = (
        instant(options.begin, "--from", clock),
        instant(options.end, "--to", clock),
    )
    collected = Collector(
        min_gap_ns=round(options.min_gap_s * SECOND_NS),
        most_nodes=options.max_nodes,
        max_fragments=options.max_fragments or most_fragments(files),
    )
    if options.turns_idle is not None:
        collected.units = UnitLog(options.turns_idle, options.units_per_node)

    def read(name: str, table: PublicTable, settings: Settings) -> None:
        with progress(name) as so_far, open_log(name, so_far) as stored:
            lines: Iterable[str] = stored
            if table.columns:
                lines = renamed(
                    stored,
                    column_map(table.columns),
                    settings.delimiter,
                    name,
                    convert=table.convert,
                    header=table.header,
                )
            reading = Reading(lines, name, collected, diagnosis, clock, settings)
            _read(table.form, reading)

    table = _table(form, options.columns)
    for name in options.nodes:
        if Path(name).exists():
            beside_jobs = Settings(**options.beside_jobs())
            read(name, PublicTable("slurm-nodes"), beside_jobs)
        else:
            collected.known(node_list(name))
    stated = _with_header(options.settings(), table)
    table, tables = _with_cells_of(table, files, stated, diagnosis)
    for name in tables:
        read(name, table, stated)
    _refuse_unknown(collected, options)
    _keep_partition(collected, options, diagnosis)
    states_outages = collected.states_outages()
    for kind, names in (
        ("slurm-events", options.events),
        ("slurm-reservations", options.reservations),
    ):
        known = options.walltimes and kind == "slurm-reservations"
        settings = Settings(
            events=True,
            walltimes=known,
            counts_as=counts_as(options.count_as),
            **options.beside_jobs(),
        )
        for (
            name
        ) in names:  # after the jobs: an outage may be one of all nodes known so far
            read(name, PublicTable(kind), settings)
    source = ", ".join(files)
    made, coverage = node_trace(
        collected,
        diagnosis,
        start_ns=start_ns,
        end_ns=end_ns,
        machine_nodes=stated.machine_nodes,
        source=source,
        uncertain=options.uncertain,
        completing_ns=round(options.completing_s * SECOND_NS),
    )
    if made.uncertain is not None and made.uncertain.is_large:
        diagnosis.note(str(made.uncertain), "", 0, loud=True)
    _say_what_lies_not_beside(
        diagnosis, options.events, options.reservations, states_outages
    )
    _say_requeued_runs_are_missing(collected, diagnosis)
    _say_whose_jobs_are_taken_for_the_first_clusters(collected, diagnosis)
    _say_nodes_are_of_other_clusters(collected, diagnosis)
    made = replace(
        made,
        machine=options.machine or collected.machine,
        source=source,
        assumptions=diagnosis.assumptions(),
        zone=options.tz or "",
    )
    if not made.by_unit:
        made = replace(made, units_per_node=options.units_per_node or 1)
    if not options.walltimes:
        return Ingested(made, diagnosis, coverage)
    planned = collected.plans.walltimes(
        collected.names, collected.universe, collected.owners
    )
    return Ingested(made, diagnosis, coverage, planned)


def _refuse_unknown(collected: Collector, filters: Filters) -> None:
    """Refuse logs of which a filter leaves all jobs out."""
    columns = collected.columns
    for name, wanted in filters.asked().items():
        if not FILTERS[name].of_jobs or name in columns.chosen:
            continue
        cells = ",".join(columns.others.get(name, ())).split(",")
        others = list(dict.fromkeys(filter(None, map(str.strip, cells))))
        known = f"; they have {', '.join(others[:20])}" if others else ""
        meant = did_you_mean(wanted, others)
        raise InputError(
            f"--{name}: the logs have no job of {ascii(wanted)[:80]}{known}{meant}"
        )


def _keep_partition(
    collected: Collector, filters: Filters, diagnosis: Diagnosis
) -> None:
    """Leave nodes out of the machine that the list of nodes says to be of other partitions than that of the jobs."""
    wanted = filters.partition
    if wanted is None:
        return
    stated = collected.listed.partitions
    others = {
        node
        for node in collected.universe & stated.keys()
        if not FILTERS["partition"].keeps(wanted, ",".join(stated[node]))
    }
    if others and others == collected.universe:
        there = sorted({name for node in others for name in stated[node]})
        raise InputError(
            f"--partition: no node of the list is of {ascii(wanted)[:80]}; they are of {', '.join(there[:20])}",
            hint="a host list such as cn[001-128] names its nodes whatever their partitions",
        )
    collected.universe -= others
    unstated = collected.universe - stated.keys() if stated else set()
    names = list(collected.names)
    asked = ascii(wanted)[:80]
    for nodes, why in (
        (others, f"are of other partitions than {asked}: left out of the machine"),
        (unstated, f"state no partition, as others do: they count as nodes of {asked}"),
    ):
        if nodes:
            some = ", ".join(names[node] for node in sorted(nodes)[:3])
            detail = f"{len(nodes):,}, such as {some}"
            diagnosis.note(f"nodes of the list {why}", "", 0, detail, loud=True)


def _say_what_lies_not_beside(
    diagnosis: Diagnosis,
    events: Sequence[str],
    reservations: Sequence[str],
    states_outages: bool,
) -> None:
    """Say which options with outages were not given, and what that did on a log of which the truth is known.

    Logs that state outages by themselves (`states_outages`) need neither.
    """
    beside = (
        ("--events", "down", events),
        ("--reservations", "reserved", reservations),
    )
    lacking = [(name, what) for name, what, files in beside if not files]
    if states_outages or not lacking:
        return
    names = " and no ".join(name for name, _ in lacking)
    states = " or ".join(what for _, what in lacking)
    cost = " (a test log: 27.9 instead of 24.9 % idle)" if "--events" in names else ""
    diagnosis.note(
        f"no {names}: nodes that were {states} look idle{cost}", "", 0, loud=True
    )


def _say_requeued_runs_are_missing(collected: Collector, diagnosis: Diagnosis) -> None:
    """Say so where a log of Slurm with many jobs has none that ran twice."""
    runs = collected.job_runs
    if runs.requeues_looked_for >= _ENOUGH_JOBS and not runs.requeued:
        diagnosis.note("no job ran twice: did sacct lack -D? without it requeued runs are missing (a test log: 27.3 "
                       "instead of 24.9 % idle)", "", 0, loud=True)  # fmt: skip


def _say_whose_jobs_are_taken_for_the_first_clusters(
    collected: Collector, diagnosis: Diagnosis
) -> None:
    """Say so where logs state several clusters, and records of jobs that state none."""
    keys = collected.job_keys
    if keys.several and keys.unstated is not None:
        file, line = keys.unstated
        why = "jobs of several clusters were read, and jobs whose cluster is not stated: an id among the latter is "
        why += f"taken for that of a job of cluster {keys.first[:80]!a}; --cluster uses those of one"
        diagnosis.note(why, file, line, loud=True)


def _say_nodes_are_of_other_clusters(
    collected: Collector, diagnosis: Diagnosis
) -> None:
    """Warn of nodes of the trace that only rows of other clusters name, which were left out."""
    for name, others in collected.left_out.items():
        if FILTERS[name].of_jobs:
            continue
        machine = collected.universe or set(collected.names.values())
        machine = machine - collected.owners.keys()
        # Sorted, as blocks name them in another order than single rows.
        foreign = sorted(
            host for host in others.names if collected.names.get(host) in machine
        )
        if foreign:
            detail = f"{len(foreign)}, such as {', '.join(foreign[:3])}"
            diagnosis.note(OTHERS.format(name), "", 0, detail, loud=True)


def _read(kind: str, reading: Reading) -> None:
    """Read one file as a format, as what it looks like (auto), or, of events, as the CSV it may be instead."""
    settings = reading.settings
    lines = LogLines.of(reading.lines)
    if kind in (AUTO, "slurm-events"):
        head = lines.peek(lambda line: line.strip() and line[0] not in "#;", _LOOKED_AT)
        looks_like = detect(head[-1], settings.fields) if head else None
        if kind == AUTO and looks_like is None:
            hint = layout(head[-1], settings.delimiter) if head else ""
            raise InputError(
                "is of no format that its first line shows; name its FORMAT",
                file=reading.file,
                hint=hint or None,
            )
        kind = (
            looks_like
            if looks_like and (kind == AUTO or log_format(looks_like).events)
            else kind
        )
    for name in reading.filters:
        if getattr(log_format(kind), f"{name}s"):
            continue
        if FILTERS[name].of_jobs:
            raise InputError(
                f"--{name}: the format {kind} states no {name}s; {_able(f'{name}s')} do",
                file=reading.file,
            )
        reading.diagnosis.note(NOT_STATED.format(name), reading.file, 0)
    beside = settings.events or kind == "slurm-nodes"
    if reading.units is not None and not (log_format(kind).units or beside):
        raise InputError(
            f"logs of format {kind} do not state which units of a node a job had",
            file=reading.file,
            hint=f"--unit {reading.units.unit} is for {_able('units')}",
        )
    if settings.walltimes and not (beside or log_format(kind).walltimes):
        raise InputError(
            f"--walltimes: the format {kind} states no time limits; {_able('walltimes')} do",
            file=reading.file,
        )
    read_log(kind, replace(reading, lines=lines))


def _able(feature: str) -> str:
    """Name the formats that have a feature, as fields of `LogFormat` are called."""
    able = (name for name in format_names() if getattr(log_format(name), feature))
    return ", ".join(able)


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
            raise InputError(
                f"--nodes: neither a file nor a host list: {error}"
            ) from error
    collected, diagnosis = Collector(), Diagnosis()
    with open_log(text) as lines:
        read_log(
            "slurm-nodes",
            Reading(lines, text, collected, diagnosis, Clock("UTC", diagnosis)),
        )
    names = list(collected.names)
    return tuple(names[node] for node in sorted(collected.universe))


def instant(text: str | None, option: str, clock: Clock) -> int | None:
    """UTC nanoseconds of a date, or of a date and time, that an option gives; None stays None."""
    if text is None:
        return None
    strict = strict_instant(text)
    stamp = None if strict is None else clock.parse(strict, option, 0)
    if stamp is None:
        raise InputError(
            f"{option}: expected a date and time such as 2021-02-10T20:21:15, not {text!r}"
        )
    return stamp
