"""A node trace of a scheduler's files, read in the order in which they must be read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple

from bft.models import InputError
from bft.models.checks import strict_instant
from bft.replay.logs.formats import able, detect, log_format
from bft.replay.logs.hosts import HostListError, expand
from bft.replay.logs.lines import first_line, open_lines
from bft.replay.logs.records import (
    FILTERS,
    NOT_STATED,
    Account,
    Log,
    Records,
    Settings,
)
from bft.replay.logs.states import counts_as
from bft.replay.logs.tables import (
    PRESETS,
    PublicTable,
    column_map,
    layout,
    looked_up,
    public_table,
)
from bft.replay.logs.times import NONE, Clock
from bft.replay.logs.trace import Asked, Coverage, trace_of
from bft.replay.logs.units import Unit
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import NATIVE_COLUMNS

AUTO = "auto"
# What is meant as the name of a file, although names of hosts have dots as well.
_FILE = re.compile(
    r"/|\.(txt|csv|tsv|json|conf|list|lst|log|out|dat|gz|xz|zst|bz2)$", re.IGNORECASE
)
Progress = Callable[[str], AbstractContextManager[Callable[[int], None] | None]]


def _no_progress(name: str) -> AbstractContextManager[None]:
    return nullcontext()


class Ingested(NamedTuple):
    """A node trace made of logs with its host jobs, what became of every row, and how the time of the nodes divides."""

    trace: NodeTrace
    account: Account
    coverage: Coverage
    records: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions(Settings):
    """The options of `ingested`, which are those of `bft-replay ingest`, beyond what readers are told (`Settings`).

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
    columns
        Names of the columns of a table in those of its format, as `node=hosts,start=begin`, or the name of a public
        data set (`public_tables`); empty: they are those.
    uncertain
        What time counts as of which the logs may not show what nodes did: `unavailable` or `idle`.
    completing_s
        Seconds for which the nodes of a job that has ended complete (an epilog), which no log of jobs states: they are
        busy so long.
    machine
        Its name, for people.
    units_per_node
        Units of each node of which no list of nodes says how many it has; None: 1 where nodes turn idle as a whole.
    unit
        What turns idle: `node`, `gpu`, or `cpu:N` for N cores.
    strict
        Refuse the first row that would be skipped.
    allow_few
        Accept files of which fewer than half of the rows can be used, and windows that lie mostly outside the logs.
    keep_records
        Keep the text of all records (`Ingested.records`).

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
    columns: str = ""
    machine: str = ""
    unit: Any = "node"
    units_per_node: int | None = None
    uncertain: Literal["unavailable", "idle"] = "unavailable"
    completing_s: float = 0.0
    strict: bool = False
    keep_records: bool = False

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        counts_as(self.count_as)  # a mistake in it is found before any file is read
        if isinstance(self.unit, str):
            object.__setattr__(self, "unit", Unit.of(self.unit))
        seconds, whole = "a number of seconds from 0 on", "a whole number from 1 on"
        checks = (
            ("min_gap_s", 0 <= self.min_gap_s < math.inf, seconds),
            ("completing_s", 0 <= self.completing_s < math.inf, seconds),
            *(
                (name, getattr(self, name) is None or getattr(self, name) > 0, whole)
                for name in ("processors_per_node", "machine_nodes", "units_per_node")
            ),
            (
                "uncertain",
                self.uncertain in ("unavailable", "idle"),
                "unavailable or idle",
            ),
            *(
                (name, not isinstance(getattr(self, name), str), "a sequence of texts")
                for name in ("nodes", "events", "reservations")
            ),
        )
        for name, is_fine, expected in checks:
            if not is_fine:
                option, value = (
                    name.removesuffix("_s").replace("_", "-"),
                    getattr(self, name),
                )
                raise InputError(f"--{option}: expected {expected}, not {value!r}")


_DEFAULTS = IngestOptions()


def ingested(
    form: str,
    files: Sequence[str],
    options: IngestOptions = _DEFAULTS,
    *,
    progress: Progress = _no_progress,
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
    account = Account(
        strict=options.strict, allow_few=options.allow_few, zone=options.tz or ""
    )
    records = Records(account, keep=options.keep_records)
    records.unit, records.units_per_node = options.unit, options.units_per_node
    clock = Clock(options.tz)
    start_ns, end_ns = (
        instant(text, option, clock, account)
        for text, option in ((options.begin, "--from"), (options.end, "--to"))
    )
    read = partial(_read, records, clock, progress)
    beside = replace(options, beside=True, partition=None, fields=(), delimiter="")
    for text in options.nodes:
        if Path(text).exists():
            read("slurm-nodes", text, beside)
        else:
            records.listed.append(("", {"hosts": ",".join(node_list(text)), "line": 0}))
    table = _table(form, options.columns)
    table, left = _with_cells_of(table, files, options, clock, account)
    settings = replace(
        options,
        table=table,
        processors_per_node=options.processors_per_node or table.processors_per_node,
        machine_nodes=options.machine_nodes or table.machine_nodes,
    )
    for name in left:
        read(table.form, name, settings)
    for name in options.events:
        read("slurm-events", name, beside)
    for name in options.reservations:
        read("slurm-reservations", name, beside)
    source = ", ".join(files)
    asked = Asked(
        start_ns=start_ns,
        end_ns=end_ns,
        min_gap_ns=round(options.min_gap_s * SECOND_NS),
        completing_ns=round(options.completing_s * SECOND_NS),
        counts_idle=options.uncertain == "idle",
        machine_nodes=settings.machine_nodes,
        filters=options.asked(),
        counts_as=options.counts_as,
        source=source,
    )
    made, coverage, kept = trace_of(records, asked)
    beside_of = (
        ("--events", "down", options.events),
        ("--reservations", "reserved", options.reservations),
    )
    lacking = [(name, what) for name, what, given in beside_of if not given]
    if lacking and not records.states_outages:
        names = " and no ".join(name for name, _ in lacking)
        states = " or ".join(what for _, what in lacking)
        account.note(
            f"no {names}: nodes that were {states} look idle", "", 0, loud=True
        )
    stated_units = options.units_per_node or 1
    made = replace(
        made,
        machine=options.machine or records.machine,
        source=source,
        assumptions=account.assumptions(),
        zone=options.tz or "",
        units_per_node=made.units_per_node if made.by_unit else stated_units,
    )
    return Ingested(made, account, coverage, kept)


def _read(
    records: Records,
    clock: Clock,
    progress: Progress,
    kind: str,
    name: str,
    settings: Settings,
) -> None:
    """Read one file as a format, as what it looks like (auto), or, of events, as the table it may be instead."""
    account = records.account
    with progress(name) as so_far, open_lines(name, so_far) as lines:
        log = Log(name, lines, settings, clock, account)
        if {*NATIVE_COLUMNS} <= {*first_line(lines).split(",")}:
            why = "is a node trace, which ingest writes, and no log: it does not say which jobs held the other nodes"
            hint = f"bft-replay -ndmap {quote(name)} replays it; evaluate needs the logs that it was made of"
            raise InputError(why, file=name, hint=hint)
        kind = _kind(kind, log)
        form = log_format(kind)
        _check(kind, log)
        records.read(log, form.read(log), samples=form.samples)
    if settings.beside:
        return
    records.says_requeues |= kind in ("slurm", "slurm-json")
    records.machine = records.machine or log.machine
    if log.machine_nodes is not None:
        records.machine_nodes.append(log.machine_nodes)
    records.only_ended |= form.only_ended
    if log.shown_until is None:
        return
    before = records.ends_ns or 0
    if log.shown_until < before:
        why = "a file ends before the one read before it: give files in order of time, or what begins in one "
        why += "and ends in another is lost"
        account.note(why, name, 0, name, loud=True)
    records.ends_ns = max(before, log.shown_until)
    # Of jobs that still run nothing but their begins is known.
    records.only_ended = log.states_begins and not records.states_starts
    if not records.only_ended:
        records.shown_until = max(records.shown_until, records.ends_ns)


def _kind(kind: str, log: Log) -> str:
    """The format that a file is read as."""
    if kind not in (AUTO, "slurm-events"):
        return kind
    settings, head = log.settings, first_line(log.lines)
    names: Sequence[str] = PRESETS.get(",".join(settings.fields), settings.fields)
    if not names and settings.table is not None:
        names = tuple(column_map(settings.table.columns))
    looks_like = detect(head, names) if head else None
    if kind == AUTO and looks_like is None:
        hint = layout(head, settings.delimiter) if head else ""
        why = "is of no format that its first line shows; name its format, one of `bft-replay list formats`"
        raise InputError(why, file=log.name, hint=hint or None)
    if looks_like and (kind == AUTO or "outages" in log_format(looks_like).states):
        return looks_like
    return kind


def _check(kind: str, log: Log) -> None:
    """Refuse filters by what a format does not state, and units that it does not state."""
    states, settings = log_format(kind).states, log.settings
    for name in [name for name in settings.asked() if name not in states]:
        if FILTERS[name].of_jobs:
            why = f"--{name}: the format {kind} states no {name}s; {able(name)} do"
            raise InputError(why, file=log.name)
        log.note(NOT_STATED.format(name), 0)
    if settings.unit is not None and not settings.beside and "units" not in states:
        raise InputError(
            f"logs of format {kind} do not state which units of a node a job had",
            file=log.name,
            hint=f"--unit {settings.unit} is for {able('units')}",
        )


def _table(form: str, columns: str) -> PublicTable:
    """Return how a table is read whose columns have the names that `--map` states: no names, as it is."""
    if columns.strip() and "=" not in columns:
        return public_table(columns.strip(), form)
    column_map(columns)  # a mistake in it is found before any file is read
    return PublicTable(form, columns)


def _with_cells_of(
    table: PublicTable,
    files: Sequence[str],
    settings: Settings,
    clock: Clock,
    account: Account,
) -> tuple[PublicTable, list[str]]:
    """Look up the cells of a table that other files have; return how the files that are left are read, and these.

    Raises
    ------
    InputError
        When none of the files has such a column, or none is left.
    """
    left, convert = list(files), dict(table.convert)
    for key, column in table.lookup.items():
        cells: dict[str, str] = {}
        for name in files:
            with open_lines(name) as lines:
                log = Log(name, lines, settings, clock, account)
                found = looked_up(log, key, column)
            if found is not None:
                cells |= found
                left.remove(name)
                what = f"the column {column} was looked up for {len(found):,} different {key}"
                account.note(what, name, 0)
        if not cells or not left:
            why = f"expected two files, one of them with the columns {key} and {column}"
            raise InputError(f"--map: {why}")
        convert[key] = partial(_cell_of, cells)
    return replace(table, convert=convert), left


def _cell_of(cells: Mapping[str, str], key: str) -> str:
    return cells.get(key.strip(), "")


def node_list(text: str) -> tuple[str, ...]:
    """Names of nodes: of a file as `ingest --nodes` takes it, or of a host list such as cn[001-128].

    Raises
    ------
    InputError
        When it is neither.
    """
    if Path(text).exists():
        records, beside = Records(Account()), Settings(beside=True)
        _read(records, Clock("UTC"), _no_progress, "slurm-nodes", text, beside)
        lists = map(expand, records.listed_hosts())
        return tuple(dict.fromkeys(name for each in lists for name in each))
    if _FILE.search(text):
        hint = "expected a file, or a host list such as cn[001-128]"
        raise InputError("--nodes: there is no such file", file=text, hint=hint)
    try:
        return expand(text)
    except HostListError as error:
        raise InputError(f"--nodes: neither a file nor a host list: {error}") from error


def instant(
    text: str | None, option: str, clock: Clock, account: Account
) -> int | None:
    """UTC nanoseconds of a date, or of a date and time, that an option gives; None stays None."""
    if text is None:
        return None
    strict = strict_instant(text)
    stamp = (
        NONE
        if strict is None
        else clock.time(strict, lambda why: account.note(why, option, 0, text))
    )
    if stamp == NONE:
        raise InputError(
            f"{option}: expected a date and time such as 2021-02-10T20:21:15, not {text!r}"
        )
    return stamp
