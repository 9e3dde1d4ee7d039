"""What rows of logs state: one schema for all formats, in blocks of columns; and the account of rows.

A reader is given a `Log` and yields `Block`s of rows, or single rows as dictionaries with the same names. It states
what its rows say, as text or as numbers, and why a row is left out or skipped; the rules that hold for all formats are
`Records._add`.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.hosts import (
    HostListError,
    HostLists,
    Nodes,
    Ranges,
    expand,
    flags,
    keys_of,
    literal,
    of_keys,
    united,
)
from bft.replay.logs.lines import Lines, objects
from bft.replay.logs.states import Snapshots, counts_as
from bft.replay.logs.times import NONE, Clock, Mask, Whole, by_word, limits, no_time
from bft.replay.trace.node_trace import consecutive

Texts: TypeAlias = Any
"""A column of text (pyarrow.Array)."""
Places = NDArray[np.int64]
Row = Mapping[str, Any]

# --- what a reader says of rows that are not used -------------------------------------------------------------------

LEFT_OUT, SKIPPED, FOREIGN = "left out: ", "skipped: ", "no record: "
# Begins what is worth telling on standard error as well.
LOUD = "! "
# Jobs of which it is known how long they waited (`trace`).
NEVER_STARTED = LEFT_OUT + "job that never started"


class Refused(Exception):  # noqa: N818 - it ends the reading of a row, not the program
    """A row is not used; `why` says so as the column of that name does."""

    kind = SKIPPED

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.why, self.detail = self.kind + reason, detail


class Unusable(Refused):
    """A row that should have said something of nodes and cannot be read."""


class Foreign(Refused):
    """A row that is no record of the format at all; a file of nothing else is refused."""

    kind = FOREIGN


class LeftOut(Refused):
    """A row of a kind that says nothing of nodes."""

    kind = LEFT_OUT


class Why:
    """The reason for which each row of a block is not used, and a detail for messages; the first reason counts.

    Parameters
    ----------
    rows
        How many rows the block has.

    Examples
    --------
    >>> why = Why(3)
    >>> why.where(np.array([True, False, True]), "left out: job step")
    >>> why.where(np.array([False, True, True]), "skipped: column End holds no time", lambda row: f"cell {row}")
    >>> [why.reasons[code] for code in why.code]
    ['left out: job step', 'skipped: column End holds no time', 'left out: job step']
    """

    def __init__(self, rows: int) -> None:
        self.code = np.zeros(rows, dtype=np.int16)
        self.reasons = [""]
        self._details: list[Callable[[int], str]] = [lambda row: ""]

    def where(
        self, rows: Mask, reason: str, detail: str | Callable[[int], str] = ""
    ) -> None:
        """Rows are not used for a reason, those that have one already apart."""
        mine = rows & self.used
        if mine.any():
            if reason not in self.reasons:
                self.reasons.append(reason)
                self._details.append(detail if callable(detail) else lambda row: detail)
            self.code[mine] = self.reasons.index(reason)

    def taken(self, rows: Places) -> Why:
        """Return the reasons of some rows."""
        some = Why(len(rows))
        some.code, some.reasons = self.code[rows], list(self.reasons)
        some._details = [lambda row: self.detail(rows[row])] * len(self.reasons)
        return some

    @property
    def used(self) -> Mask:
        """The rows that have no reason."""
        used: Mask = self.code == 0
        return used

    def detail(self, row: int) -> str:
        """The detail of a row's reason."""
        return self._details[int(self.code[row])](row)


# --- rows in blocks -------------------------------------------------------------------------------------------------

# What a row says: a job ran; one began, ended, or kept only some of its nodes by records of their own; nodes were down,
# or went down and came back by such records; nodes were idle; nodes were in a state at an instant; the whole machine
# was down; a job was suspended, or resumed; a node belongs to the machine; or nothing.
KINDS = ("ran", "began", "ended", "shrank", "down", "went down", "came back", "idle", "seen", "all down", "suspended",
         "resumed",          "listed", "nothing")  # fmt: skip
_TEXTS = ("id", "hosts", "user", "partition", "cluster", "state")


@dataclass(slots=True, kw_only=True)
class Block:
    """Rows of one kind, one entry of each column a row; None: the rows do not state it.

    Parameters
    ----------
    line
        Where each row begins.
    kind
        One of `KINDS`.
    why
        Why rows are not used.
    id
        Tells a job (or an outage) from others; rows with the same id and start state the same run.
    hosts, count
        Host lists; or how many nodes, where the log names none (with host lists: how many it says there are).
    known, start, end, limit, suspended
        Since when a job could run (eligible, else submitted), its start, end and time limit, and for how long it was
        suspended: text, or int64 nanoseconds, `NONE` where there is none. An end of `NONE` is still to come.
    user, partition, cluster, state
        What filters go by, and of which one value in all rows means that others were left out.
    units
        What a job held of its nodes, where `Settings.unit` asks for it (`units.Stated`).
    rows
        The rows that it was made of, if any.
    literal
        Brackets in lists of hosts are parts of names.
    again
        Rows that are counted by an earlier record of the same line.
    once
        Whether a job has one run at a time, so that a later start ends the run before.
    notes
        Rows, of which something is worth telling where they are used: which, what, and a detail of each.
    dropped
        Rows that are not in the block at all, such as job steps: reason, how many, line of the first.
    """

    line: Whole
    why: Why = field(default_factory=lambda: Why(0))
    kind: str = "ran"
    id: Texts | None = None
    hosts: Any = None
    count: Whole | None = None
    known: Any = None
    start: Any = None
    end: Any = None
    limit: Any = None
    suspended: Any = None
    user: Texts | None = None
    partition: Texts | None = None
    cluster: Texts | None = None
    state: Texts | None = None
    units: Sequence[Any] | None = None
    rows: Sequence[Row] = ()
    literal: bool = False
    again: Mask | None = None
    once: bool = False
    notes: list[tuple[Mask, str, Callable[[int], str]]] = field(default_factory=list)
    dropped: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.why.code) != len(self.line):
            self.why = Why(len(self.line))

    def __len__(self) -> int:
        return len(self.line)

    def text(self, name: str) -> Texts:
        """A column of text; empty where rows do not state it."""
        column = getattr(self, name)
        return pa.repeat("", len(self)) if column is None else column


# Rows that make one block, so that columns pay.
_ROWS = 5_000


def hosts_of(row: Row) -> tuple[str, ...]:
    """The hosts of a row of a list of nodes."""
    return expand(row["hosts"])


def in_blocks(rows: Iterable[Block | Row]) -> Iterator[Block]:
    """Yield what a reader yields, single rows put together into blocks of one kind."""
    waiting: dict[str, list[Row]] = {}
    for row in rows:
        if isinstance(row, Block):
            yield row
            continue
        kind = row.get("kind", "ran")
        waiting.setdefault(kind, []).append(row)
        if len(waiting[kind]) == _ROWS:
            yield block_of(kind, waiting.pop(kind))
    yield from (block_of(kind, some) for kind, some in waiting.items())


def block_of(kind: str, rows: Sequence[Row]) -> Block:
    """Make a block of single rows.

    A row is a dictionary of the names of `Block`'s columns. `hosts` may be a sequence of names, times may be text or
    nanoseconds (None: none), `why` is a reason as the column has it with `detail` beside it, and `notes` are pairs of
    what is worth telling and a detail. Another name is a TypeError.

    Examples
    --------
    >>> block = block_of("ran", [{"line": 1, "id": "7", "hosts": ["n1", "n2"], "start": 10, "end": None}])
    >>> block.hosts.to_pylist(), block.start.tolist(), block.end.tolist()
    (['n1,n2'], [10], [-1])
    """
    stated = set().union(*rows)
    if kind not in ("listed", "seen") and (unknown := stated - _OF_ROWS):
        expected = ", ".join(sorted(_OF_ROWS))
        raise TypeError(f"rows have no column {min(unknown)!r}: expected {expected}")
    line = np.array([row["line"] for row in rows], dtype=np.int64)
    once = any(row.get("once") for row in rows)
    block = Block(kind=kind, line=line, rows=rows, once=once)
    for name in stated & _COLUMNS.keys():
        setattr(block, name, _COLUMNS[name]([row.get(name) for row in rows]))
    reasons = [row.get("why") or "" for row in rows]
    for reason in {*reasons} - {""}:
        mine = np.array([each == reason for each in reasons])
        block.why.where(mine, reason, lambda row: rows[row].get("detail", ""))
    notes: dict[str, dict[int, str]] = {}
    for place, row in enumerate(rows):
        for reason, detail in row.get("notes", ()):
            notes.setdefault(reason, {})[place] = detail
    for reason, told in notes.items():
        mine = np.isin(np.arange(len(rows)), list(told))
        block.notes.append((mine, reason, told.__getitem__))
    return block


def _texts(cells: Sequence[Any]) -> Texts:
    """Texts of single rows, or sequences of names, as a column."""
    return texts(
        [each if isinstance(each, str) else ",".join(each or ()) for each in cells]
    )


def _times(cells: Sequence[Any]) -> Any:
    """Times of single rows as nanoseconds, or all of them as text."""
    if any(isinstance(cell, str) for cell in cells):
        return texts(["" if cell is None else str(cell) for cell in cells])
    return np.array([NONE if cell is None else cell for cell in cells], dtype=np.int64)


def _numbers(cells: Sequence[Any]) -> Whole:
    return np.array([cell or 0 for cell in cells], dtype=np.int64)


_COLUMNS: dict[str, Callable[[Sequence[Any]], Any]] = {
    **dict.fromkeys(_TEXTS, _texts),
    **dict.fromkeys(("known", "start", "end", "limit", "suspended"), _times),
    **dict.fromkeys(("count", "again"), _numbers),
    "units": list,
}
_OF_ROWS = {*_COLUMNS, "line", "kind", "once", "why", "detail", "notes"}


def texts(cells: Sequence[str]) -> Texts:
    """Return texts as a column; bytes that are no UTF-8, which cannot be one, become question marks."""
    try:
        return pa.array(cells, pa.string())
    except (UnicodeEncodeError, pa.ArrowInvalid):
        return pa.array(
            [cell.encode("utf-8", "replace").decode() for cell in cells], pa.string()
        )


def decoded(column: Texts, row: int) -> str:
    """The text of a cell."""
    cell = column[row].as_py()
    return cell if isinstance(cell, str) else ""


def _host_error(column: Texts, row: int) -> str:
    """What is wrong with a host list."""
    try:
        expand(decoded(column, row))
    except HostListError as error:
        return str(error)
    return _shown(column, row)


def _shown(column: Texts, row: int) -> str:
    """The text of a cell, for a message."""
    return ascii(decoded(column, row)[:80])


# --- what a reader is given -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """How an option chooses rows by what they state in the column of its name.

    Parameters
    ----------
    help
        Says in a sentence what it does, for the command line.
    of_jobs
        Whether it is for jobs alone: a job that states nothing is left out, and logs that state nothing are refused.
        Otherwise it is also for nodes and outages, and what states nothing is used, which is noted.
    """

    help: str
    of_jobs: bool

    def keeps(self, wanted: str, stated: str) -> bool:
        """Tell whether a row is used that states this; capitals and blanks around names do not matter.

        >>> Filter("", of_jobs=True).keeps("gpu", "batch, GPU"), Filter("", of_jobs=False).keeps("gpu", "")
        (True, True)
        """
        names = [name.strip() for name in stated.casefold().split(",")]
        return wanted.strip().casefold() in names or (
            names == [""] and not self.of_jobs
        )


# Each is a field of `Settings`, and an option of `ingest`.
FILTERS = {
    "cluster": Filter("Use only rows of this cluster. [all]", of_jobs=False),
    "partition": Filter(
        "Use only jobs of this partition or queue. [all]", of_jobs=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user says of a file.

    Parameters
    ----------
    cluster, partition
        What rows have to state to be used; None: anything.
    fields, delimiter
        Names of the columns of a table without a header line, and what separates them; empty: as the file shows.
    table
        How a published table, or one of `--map`, is read (`tables.PublicTable`); None: as it is.
    processors_per_node, machine_nodes
        Of logs that count processors (SWF), and that name no nodes; None: as the log says.
    beside
        The file lies beside logs of jobs: it states when nodes were unavailable, or which there are.
    mtime
        Take the time of a file's last change for that of its snapshot, where nothing else states one.
    count_as
        What words for states of nodes count as, where that is not what `states.state_of` has, such as
        `completing=idle,powered_down=idle`.
    unit
        What turns idle by itself (`units.Unit`); None: nodes turn idle as a whole.
    allow_few
        Accept what is refused as an export that lacks something.

    Raises
    ------
    InputError
        When the value of a filter is empty, or names several partitions.
    """

    cluster: str | None = None
    partition: str | None = None
    fields: tuple[str, ...] = ()
    delimiter: str = ""
    table: Any = None
    processors_per_node: int | None = None
    machine_nodes: int | None = None
    beside: bool = False
    mtime: bool = False
    count_as: str = ""
    unit: Any = None
    allow_few: bool = False

    def __post_init__(self) -> None:
        for name, wanted in self.asked().items():
            is_name = isinstance(wanted, str) and bool(wanted.strip())
            if not is_name or (FILTERS[name].of_jobs and "," in wanted):
                raise InputError(
                    f"--{name}: expected the name of a {name}, not {ascii(wanted)[:80]}",
                    hint=f"without --{name}, rows of all {name}s are used",
                )

    def asked(self) -> dict[str, str]:
        """Return what the user asks for, by the names of the filters."""
        each = {name: getattr(self, name) for name in FILTERS}
        return {name: wanted for name, wanted in each.items() if wanted is not None}

    @property
    def counts_as(self) -> Mapping[str, Any]:
        """What words for states of nodes count as."""
        return counts_as(self.count_as)


@dataclass(slots=True)
class Log:
    """One file on its way through a reader.

    Parameters
    ----------
    name
        Of the file, for messages.
    lines
        Its lines; `tables`, `each_line` and `each_object` take them.
    settings, clock, account
        What the user says, what turns times into UTC nanoseconds, and what notes go to.
    words
        What messages call the columns `start` and `end` of its rows, such as "column Start".

    Attributes
    ----------
    items
        How many objects were read, where these count as lines; None: lines do.
    machine, machine_nodes
        Name of the machine and how many nodes it has, where the log states that.
    observed
        The window that the log itself states, UTC nanoseconds.
    shown_until, states_begins
        Until when it shows what happens, where it is written as things happen; None: it is not. Whether what began
        has records of its own there.
    """

    name: str
    lines: Lines
    settings: Settings
    clock: Clock
    account: Account
    words: dict[str, str] = field(default_factory=dict)
    items: int | None = None
    machine: str = ""
    machine_nodes: int | None = None
    observed: tuple[int, int] | None = None
    shown_until: int | None = None
    states_begins: bool = False

    def note(
        self,
        reason: str,
        line: int,
        detail: str = "",
        *,
        count: int = 1,
        loud: bool = False,
    ) -> None:
        """Tell something of rows that are used, the first at `line`, or (line 0) of the file."""
        self.account.note(reason, self.name, line, detail, count=count, loud=loud)

    def tell(
        self,
        block: Block,
        rows: Mask,
        reason: str,
        detail: Callable[[int], str] = lambda row: "",
    ) -> None:
        """Tell something of some rows of a block, if there are any, with a detail of the first."""
        if rows.any():
            first, count = int(rows.argmax()), int(np.count_nonzero(rows))
            line, is_loud = int(block.line[first]), reason.startswith(LOUD)
            text = reason.removeprefix(LOUD)
            self.note(text, line, detail(first), count=count, loud=is_loud)

    def refuse_unstated(self, expected: Mapping[str, str]) -> None:
        """Refuse a file that does not state of jobs what the user filters them by.

        Parameters
        ----------
        expected
            What the file lacks: by the name of a filter what would state it, such as a column.

        Raises
        ------
        InputError
            When the user asks for some jobs by what the file does not state.
        """
        for name in self.settings.asked():
            if FILTERS[name].of_jobs and name in expected:
                why = f"--{name}: the file states no {name}s: expected {expected[name]}"
                raise InputError(why, file=self.name)


def each_line(
    log: Log,
    row: Callable[[str, int], Iterable[Row]],
    *,
    comment: str = "#",
    expected: str = "record of this format",
) -> Iterator[Row]:
    """Yield the rows of each line that is neither blank nor a comment.

    Parameters
    ----------
    log
        As every reader has it.
    row
        Yields the rows of a line, given with its number, without `line` (it is added), or raises `Refused`. What Python
        raises where a line has other parts than it takes for granted means that the line is no record at all.
    comment
        What comments begin with.
    expected
        What a line of another shape is not, for a message.
    """
    why = f"{FOREIGN}is no {expected}"
    for number, line in log.lines:
        if line and not line.isspace() and not line.startswith(comment):
            yield from _rows(row, (line, number), number, why, ascii(line[:60]))


# What an object of another shape raises in a reader that takes it for granted.
MISSHAPEN = (KeyError, TypeError, AttributeError, IndexError, ValueError)


def each_object(
    log: Log,
    row: Callable[[dict[str, Any], str, int], Iterable[Row]],
    *,
    keys: Collection[str] | None,
    expected: str,
    command: str,
    bare: bool = True,
    within: Collection[str] = (),
) -> Iterator[Row]:
    """Yield the rows of each object of JSON; objects count as lines.

    Parameters
    ----------
    log, row
        As `each_line` has them; `row` is given an object, its key and its line.
    keys, bare, within
        As `lines.objects` has them.
    expected
        What an object of another shape is not, for a message.
    command
        What exports such a file.

    Raises
    ------
    InputError
        When there is no such object.
    """
    log.items = log.items or 0
    for number, name, entry in objects(log.lines, keys, bare=bare, within=within):
        log.items += 1
        if isinstance(entry, ValueError):
            why = SKIPPED + "is not JSON"
            yield {"line": number, "kind": "nothing", "why": why, "detail": str(entry)}
        else:
            why = f"{SKIPPED}is no {expected}"
            yield from _rows(row, (entry, name, number), number, why)
    if not log.items:
        wanted = f"with a list {' or '.join(map(repr, keys))}" if keys else "of objects"
        raise InputError(
            f"is not JSON {wanted}", file=log.name, hint=f"export with {command}"
        )


def _rows(
    row: Callable[..., Iterable[Row]],
    of: tuple[Any, ...],
    line: int,
    misshapen: str,
    shown: str = "",
) -> Iterator[Row]:
    """Yield the rows of a line or an object, or one that says why there is none."""
    try:
        for found in row(*of):
            yield {"line": line, **found}
        return
    except InputError:  # of the whole log; it is a ValueError as well
        raise
    except Refused as refused:
        why, detail = refused.why, refused.detail
    except MISSHAPEN as error:
        told = f"no {error}" if isinstance(error, KeyError) else str(error)
        why, detail = misshapen, shown or told[:200]
    yield {"line": line, "kind": "nothing", "why": why, "detail": detail}


# --- the account ----------------------------------------------------------------------------------------------------

# Of the rows of a file that should say something of nodes, the share that has to.
LEAST_USABLE = 0.5
# Of the rows of all files, the share skipped from which on a warning is due.
MOST_SKIPPED = 0.01


@dataclass(slots=True)
class Tally:
    """How often something was met, and where first."""

    count: int
    file: str
    line: int
    detail: str = ""
    loud: bool = False

    def __str__(self) -> str:
        if not self.line:  # of a file, or of all
            return self.detail
        return f"{self.count:,} (first: {self.file}, line {self.line}{f', {self.detail}' if self.detail else ''})"


class Account:
    """Accounts for every line of the logs that were read.

    A line is a **row** (the beginning of a record), or it holds none: blank, comment, header, the continuation of a
    record. Each row is **used**, **left out** because a record of its kind says nothing of nodes (a job step, a job
    that never started), or **skipped** because it should have said something and could not be read.

    Parameters
    ----------
    strict
        Refuse the first row that would be skipped.
    allow_few
        Accept files of which fewer than half of the rows can be used, and windows that hardly overlap the logs.
    zone
        Time zone of instants in messages; empty: UTC.
    """

    def __init__(
        self, *, strict: bool = False, allow_few: bool = False, zone: str = ""
    ) -> None:
        self.strict, self.allow_few, self.zone = strict, allow_few, zone
        self.lines = self.rows = self.used = 0
        self.skipped: dict[str, Tally] = {}
        self.left_out: dict[str, Tally] = {}
        self.notes: dict[str, Tally] = {}

    def note(
        self,
        reason: str,
        file: str,
        line: int,
        detail: str = "",
        *,
        count: int = 1,
        loud: bool = False,
    ) -> None:
        """Something worth telling about a row that is used, or (line 0) about a file. Never an error.

        With `loud` it is likely to make the trace another machine's than the user has in mind: the command line
        prints it on stderr too.
        """
        self.add(self.notes, reason, Tally(count, file, line, detail[:200], loud))

    def add(self, into: dict[str, Tally], reason: str, found: Tally) -> None:
        """Count something under its reason; where it was met first stays."""
        known = into.setdefault(reason, found)
        if known is not found:
            known.count += found.count
            known.loud |= found.loud
            # Columns are read one after the other, each for many rows.
            if known.file == found.file and 0 < found.line < known.line:
                known.line, known.detail = found.line, found.detail

    def warnings(self) -> list[str]:
        """The loud notes, a line each."""
        return [_line(reason, t) for reason, t in self.notes.items() if t.loud]

    def assumptions(self) -> tuple[str, ...]:
        """Return skipped rows and notes, a sentence each, without the folders of files: for the trace."""
        kinds = ((self.skipped, "rows were skipped: "), (self.notes, ""))
        return tuple(
            kind + _line(reason, replace(each, file=PurePath(each.file).name))
            for tallies, kind in kinds
            for reason, each in tallies.items()
        )

    def losses(self) -> str:
        """Why rows were skipped or left out, in one line."""
        lost = {**self.skipped, **self.left_out}
        return "; ".join(_line(reason, each) for reason, each in lost.items())

    def as_dict(self) -> dict[str, Any]:
        """The account as plain values, for JSON."""
        each = {"skipped": self.skipped, "left_out": self.left_out, "notes": self.notes}
        names = ("count", "file", "line", "detail")
        plain = {
            kind: [
                {"reason": reason, **{name: getattr(t, name) for name in names}}
                for reason, t in tallies.items()
            ]
            for kind, tallies in each.items()
        }
        return {"lines": self.lines, "rows": self.rows, "used": self.used, **plain}


def _line(reason: str, found: Tally) -> str:
    return f"{reason}: {found}" if str(found) else reason


# --- the table of records -------------------------------------------------------------------------------------------

# Columns of the table of records, in which no text is left.
COLUMNS = {
    "file": np.int16, "kind": np.int8, "why": np.int16, "otherwise": np.int16, "filter": np.int8,
    "cluster": np.int16, "id": np.uint64, "known": np.int64, "start": np.int64, "end": np.int64, "limit": np.int64,
    "suspended": np.int64, "count": np.int32, "ranges": np.int32, "units": np.int32, "once": bool, "again": bool,
    "beside": bool, "samples": bool, "line": np.uint32,
}  # fmt: skip
# What rows have where nothing is stated.
_EMPTY = dict.fromkeys(("known", "start", "end", "limit", "suspended"), NONE)
KIND = {name: number for number, name in enumerate(KINDS)}
RESERVED, POWERED_OFF = "reserved", "powered off"
# Different texts of a column that are kept: one alone is suspicious.
_MOST_VALUES = 2
# Nodes of rows that are written out together.
_NODES = 1 << 17
_PRIME = np.uint64(1_099_511_628_211)
_OF_JOBS = frozenset({"ran", "began"})
# Kinds of rows that state what becomes of nodes, but when these were unavailable; and kinds that state that.
_OF_NODES = _OF_JOBS | {"idle", "seen"}
_OF_OUTAGES = frozenset({"down", "went down", "all down", "idle", "seen"})
_ENDING = frozenset({"ended", "shrank", "came back", "went down", "down"})
_NAMING = frozenset({"ran", "began", "idle", "down", "went down"})
NOT_STATED = "no {0} is stated: --{0} was not applied"
OTHERS = "jobs of other {}s were left out: nodes of this trace on which they ran look idle meanwhile"


class Records:
    """The records of all logs as one table of numbers, and what else their rows state.

    Parameters
    ----------
    account
        Receives notes; `settle` fills in its rows.
    keep
        Keep the columns of text as well, for `--records`.

    Attributes
    ----------
    reasons
        Why rows are not used, by their number in the columns `why` and `otherwise`; 0: they are used.
    values, looked_at
        A few different values of the columns user, partition and state in rows of jobs that ran, and how many rows
        were looked at.
    chosen, others
        Filters by which some job was kept, and what they left out.
    spelled
        Clusters as rows spell them; the first is that of rows that state none.
    listed
        The rows of lists of nodes.
    states_outages
        Whether logs of jobs state when nodes were unavailable, or idle.
    """

    def __init__(self, account: Account, *, keep: bool = False) -> None:
        self.account = account
        self.hosts = HostLists()
        self.files: list[str] = []
        self.reasons = [""]
        self.values: dict[str, set[str]] = {}
        self.looked_at: Counter[str] = Counter()
        self.chosen: set[str] = set()
        self.others: dict[str, dict[str, None]] = {}
        self.spelled: list[str] = []
        self._clusters: dict[str, int] = {}
        self.listed: list[tuple[str, Row]] = []
        self.snapshots = Snapshots()
        # What logs state of the machine and of their window.
        self.machine = ""
        self.machine_nodes: list[int] = []
        self.observed: tuple[int, int] | None = None
        self.observed_outages: tuple[int, int] | None = None
        self.shown_until = 0
        self.ends_ns: int | None = None
        self.only_ended = self.says_requeues = False
        self.states_starts = self.states_outages = False
        self.unit: Any = None
        self.units_per_node: int | None = None
        self.units: list[Any] = []
        self._units: dict[Any, int] = {None: 0}
        self.kept: list[pa.Table] | None = [] if keep else None
        # Why rows are left out of which others say the same.
        self.repeats: set[int] = set()
        # By reason and file: rows of which nothing was read. By reason: where it was met first, and a detail.
        self._dropped: Counter[tuple[int, int]] = Counter()
        self._details: dict[int, tuple[int, int, str]] = {}
        # The columns of each block that do not have the same in all rows.
        self._parts: list[dict[str, NDArray[Any]]] = []
        self._ranges: list[Whole] = []
        # Nodes that rows name: of logs of jobs, of files beside them, and in rows that filters leave out.
        self.named: dict[str, list[Whole]] = {"jobs": [], "beside": [], "left out": []}

    def read(
        self, log: Log, rows: Iterable[Block | Row], *, samples: bool = False
    ) -> None:
        """Take in what a reader yields of one file.

        Parameters
        ----------
        log, rows
            What the reader was given, and what it yields.
        samples
            Rows are samples of nodes, no jobs.
        """
        self.files.append(log.name)
        name = "observed_outages"
        for block in in_blocks(rows):
            self._add(log, block, samples)
            if block.kind in _OF_NODES and block.why.used.any():
                name = "observed"
        self.account.lines += log.lines.read if log.items is None else log.items
        if log.observed is not None:  # several windows make the one that spans them
            known = getattr(self, name) or log.observed
            setattr(
                self,
                name,
                (min(known[0], log.observed[0]), max(known[1], log.observed[1])),
            )

    def names_of(self, lists: Sequence[str]) -> Whole:
        """The ranges of host lists; of names one each."""
        return self.hosts.read(texts(lists)).made

    def nodes_of(self, made: Whole) -> Nodes:
        """The nodes of ranges."""
        return Nodes(self.hosts, united([made]))

    def tell(
        self,
        table: RecordTable,
        rows: NDArray[np.int64],
        why: str,
        detail: str = "",
        *,
        loud: bool = False,
    ) -> None:
        """Note something of rows, by the first of them."""
        if len(rows):
            first = int(rows[np.lexsort((table["line"][rows], table["file"][rows]))[0]])
            file = self.files[int(table["file"][first])]
            self.account.note(
                why, file, int(table["line"][first]), detail, count=len(rows), loud=loud
            )

    def place(self, table: RecordTable, row: int) -> str:
        """File and line of a row."""
        return f"{self.files[int(table['file'][row])]}, line {table['line'][row]}"

    def refuse(self, table: RecordTable, row: int, why: Refused) -> int:
        """The number of why a row is not used after all, whose detail is kept where it is the first."""
        place = int(table["file"][row]), int(table["line"][row])
        return self._refused(why.why, *place, why.detail)

    def _refused(self, reason: str, file: int, line: int, detail: str) -> int:
        """The number of why a row is not used, whose place and detail are kept where it is the first."""
        code, found = self.reason(reason), (file, line, detail)
        self._details[code] = min(self._details.get(code, found), found)
        return code

    def reason(self, text: str) -> int:
        """The number of a reason."""
        if text not in self.reasons:
            self.reasons.append(text)
        return self.reasons.index(text)

    def skips(self) -> Mask:
        """Tell of which numbers of reasons rows should have said something, which could not be read."""
        each = [bool(text) and not text.startswith(LEFT_OUT) for text in self.reasons]
        return np.array(each, dtype=bool)

    def listed_hosts(self) -> list[str]:
        """The host list of each row of lists of nodes."""
        return [row["hosts"] for _, row in self.listed]

    def _add(self, log: Log, block: Block, samples: bool) -> None:
        """Apply the rules for rows of all formats to a block, and keep it as numbers."""
        why, file, beside = block.why, len(self.files) - 1, log.settings.beside
        for reason, count, line in block.dropped:
            self._dropped[self._refused(reason, file, line, ""), file] += count
        if not len(block):
            return
        left_by = self._filtered(log, block)
        part: dict[str, NDArray[Any]] = {"start": self._times(log, block, "start")}
        part["end"] = self._times(log, block, "end", part["start"])
        for name in ("known", "limit", "suspended"):
            if getattr(block, name) is not None:
                part[name] = self._times(log, block, name)
        ranges = self._hosts(log, block)
        self._judge(block, part, ranges)
        if block.kind == "seen":
            ranges = self._see(block, part["start"], ranges)
        self._identify(block, part)
        self._watch(block, part)
        for rows, text, detail in block.notes:
            log.tell(block, rows & why.used, text, detail)
        if block.kind == "listed":
            used = np.flatnonzero(why.used).tolist()
            self.listed += [(log.name, block.rows[row]) for row in used]
        self.states_starts |= block.kind == "began"
        if block.kind in _OF_OUTAGES and not beside:
            self.states_outages |= bool((why.used | (left_by > 0)).any())
        if block.units is not None:
            numbers = [
                self._units.setdefault(each, len(self._units)) for each in block.units
            ]
            part["units"] = np.array(numbers)
        if block.again is not None:
            part["again"] = block.again
        if block.kind in _ENDING:
            part["otherwise"] = by_word(block.text("state"), self._otherwise)
        size = ranges.sizes
        counted = size if block.count is None else np.where(size > 0, size, block.count)
        part |= {
            "line": block.line,
            "filter": left_by,
            "ranges": ranges.counts,
            "count": counted,
        }
        part["why"] = self._reasons(block, file)
        same = {
            "file": file,
            "kind": KIND[block.kind],
            "once": block.once,
            "beside": beside,
            "samples": samples,
        }
        part |= {name: np.full(len(block), value) for name, value in same.items()}
        if self.kept is not None:
            self.kept.append(self._kept(block, part))
        out = np.repeat(left_by > 0, ranges.counts)
        self.named["left out"].append(united([ranges.made[out]]))
        self.named["beside" if beside else "jobs"].append(united([ranges.made[~out]]))
        self._ranges.append(ranges.made)
        self._parts.append(
            {
                name: each.astype(COLUMNS[name], copy=False)
                for name, each in part.items()
            }
        )

    def _filtered(self, log: Log, block: Block) -> NDArray[np.int8]:
        """Leave out what filters do not keep; returns which filter does, by its number from 1 on."""
        left_by = np.zeros(len(block), dtype=np.int8)
        for number, (name, each) in enumerate(FILTERS.items(), 1):
            wanted = log.settings.asked().get(name)
            kinds = {*_OF_JOBS, "idle"} if each.of_jobs else KIND.keys() - {"nothing"}
            if wanted is None or block.kind not in kinds:
                continue
            column, used = block.text(name), block.why.used
            stated = by_word(column, str.strip) != ""
            kept = by_word(column, partial(each.keeps, wanted))
            kept |= (block.kind == "idle") & ~stated
            out = used & ~kept
            if each.of_jobs:
                if (used & kept).any():
                    self.chosen.add(name)
                others = column.filter(pa.array(out)).unique().to_pylist()
                self.others.setdefault(name, {}).update(dict.fromkeys(others))
                log.tell(
                    block,
                    out & stated,
                    LOUD + OTHERS.format(name),
                    partial(_shown, column),
                )
            else:
                log.tell(block, used & ~stated, NOT_STATED.format(name))
            words = {"listed": "node", "ran": "job", "began": "job"}
            what = words.get(block.kind, "event" if log.settings.beside else "row")
            block.why.where(out, f"{LEFT_OUT}{what} of another {name}")
            left_by[out] = number
        return left_by

    def _times(
        self, log: Log, block: Block, name: str, start: Whole | None = None
    ) -> Whole:
        """A column of times as UTC nanoseconds, or one of lengths as nanoseconds."""
        column, called = getattr(block, name), log.words.get(name, name)
        if column is None:
            return np.full(len(block), NONE, dtype=np.int64)
        if isinstance(column, np.ndarray):
            return column

        def tell(rows: Mask, why: str) -> None:
            log.tell(block, rows, why, partial(decoded, column))

        def shown(row: int) -> str:
            return no_time(decoded(column, row))

        if name in ("limit", "suspended"):
            ns, bad = limits(column)
            why = f"{called} holds no limit: taken for unlimited"
            block.notes.append((bad, why, partial(_shown, column)))
            return ns
        ns, bad = log.clock.times(column, tell, start)
        if name == "known":
            block.notes.append((bad, f"{called} holds no time", shown))
        else:
            block.why.where(bad, f"{SKIPPED}{called} holds no time", shown)
        return ns

    def _hosts(self, log: Log, block: Block) -> Ranges:
        """The nodes that rows name, be they used or not."""
        hosts, words = block.text("hosts"), log.words
        ranges = self.hosts.read(literal(hosts) if block.literal else hosts)
        cut = ranges.bad & flags(pc.match_substring_regex(hosts, r"\+\s*$"))
        if (cut & block.why.used).any():
            row = int((cut & block.why.used).argmax())
            why = f"line {block.line[row]}: the lists of nodes are cut: {decoded(hosts, row)[-40:]!a} ends in +"
            raise InputError(why, file=log.name, hint="export columns without a width")
        why = f"{SKIPPED}{words.get('hosts', 'its list of nodes')} holds no host list"
        block.why.where(ranges.bad, why, partial(_host_error, hosts))
        if block.count is not None and block.kind != "seen":
            sizes, stated = ranges.sizes, block.count
            differ = (sizes > 0) & (stated > 0) & (sizes != stated)
            why = words.get(
                "count",
                "the list of nodes and their number tell different numbers of nodes",
            )
            block.notes.append(
                (differ, why, lambda row: f"{sizes[row]} and {stated[row]}")
            )
        return ranges

    def _judge(
        self, block: Block, part: dict[str, NDArray[Any]], ranges: Ranges
    ) -> None:
        """Leave out and skip rows whose times and nodes say so."""
        why, start, end = block.why, part["start"], part["end"]
        lacking = LEFT_OUT + "names no nodes"
        if block.kind in _OF_JOBS:
            why.where(start == NONE, NEVER_STARTED)
            lacking = SKIPPED + "job ran, but names no nodes"
        if block.kind in ("ran", "down", "idle"):
            before = (end != NONE) & (end < start)
            why.where(
                before,
                SKIPPED + "ends before it starts",
                lambda row: f"{(start[row] - end[row]) / 1e9:g} s before",
            )
        if block.kind in _NAMING:
            counted = 0 if block.count is None else block.count
            why.where((ranges.sizes == 0) & (counted == 0), lacking)

    def _see(self, block: Block, start: Whole, ranges: Ranges) -> Ranges:
        """Hand snapshots over, whose rows are too many to be kept: they have no ranges afterwards."""
        used, state = block.why.used, block.state
        states = [] if state is None else state.filter(pa.array(used)).to_pylist()
        keys = keys_of(ranges.made[np.repeat(used, ranges.counts)])
        self.snapshots.add(start[used], keys, ranges.sizes[used], states)
        none = np.zeros_like(ranges.sizes)
        return Ranges(ranges.made[:0], none.astype(np.int32), none, ranges.bad)

    def _identify(self, block: Block, part: dict[str, NDArray[Any]]) -> None:
        """Number the id of each row, and the cluster, which makes another id unless it is the first."""
        cluster = block.text("cluster")
        if block.kind not in ("nothing", "listed", "seen"):
            used = cluster.filter(pa.array(block.why.used)).unique().to_pylist()
            for name in filter(None, used):
                if name.casefold() not in self._clusters:
                    self.spelled.append(name)
                    self._clusters[name.casefold()] = len(self.spelled)
        numbers = self._clusters
        part["cluster"] = by_word(cluster, lambda name: numbers.get(name.casefold(), 0))
        other = np.maximum(part["cluster"], 1).astype(np.uint64) - np.uint64(1)
        part["id"] = hashes(block.text("id")) ^ (other * np.uint64(0x9E3779B97F4A7C15))

    def _watch(self, block: Block, part: dict[str, NDArray[Any]]) -> None:
        """Keep a few values of columns of which one value in all rows of jobs means that others are missing."""
        if block.kind not in _OF_JOBS:
            return
        start, end = part["start"], part["end"]
        ran = block.why.used & (start != NONE) & ((end == NONE) | (end > start))
        for name in ("user", "partition", "state"):
            held = self.values.setdefault(name, set())
            if getattr(block, name) is not None and len(held) < _MOST_VALUES:
                words = block.text(name).filter(pa.array(ran)).unique().to_pylist()
                held.update(text.partition(" ")[0] for text in words if text)
                self.looked_at[name] += int(np.count_nonzero(ran))

    def _reasons(self, block: Block, file: int) -> NDArray[np.int16]:
        """Number why rows of a block are not used, the reasons that come first first."""
        code, reasons = block.why.code, block.why.reasons
        order = np.argsort(block.line, kind="stable")
        _, firsts = np.unique(code[order], return_index=True)
        codes = np.zeros(len(reasons), dtype=np.int16)
        for row in order[np.sort(firsts)].tolist():
            if code[row]:
                why, line = reasons[code[row]], int(block.line[row])
                codes[code[row]] = self._refused(why, file, line, block.why.detail(row))
        return codes[code]

    def _otherwise(self, state: str) -> int:
        """The number of why what ends is not used where nothing began, or of what an outage is."""
        is_plain = state in ("", RESERVED, POWERED_OFF) or state.startswith(SKIPPED)
        return self.reason(state if is_plain else LEFT_OUT + state)

    def _kept(self, block: Block, part: dict[str, NDArray[Any]]) -> pa.Table:
        """A block as text, for `--records`."""
        nowhere = np.full(len(block), NONE, dtype=np.int64)
        times = {
            name: part.get(name, nowhere) for name in ("known", "start", "end", "limit")
        }
        units = block.units or [None] * len(block)
        columns = {
            "file": [self.files[-1]] * len(block),
            "line": block.line,
            "kind": [block.kind] * len(block),
            **{name: block.text(name) for name in _TEXTS},
            "count": part["count"],
            **{name: pa.array(ns, mask=ns == NONE) for name, ns in times.items()},
            "units": ["" if stated is None else str(stated) for stated in units],
        }
        return pa.table(columns)

    def settle(self) -> RecordTable:
        """Return the table of all records, which are given up here."""
        self.units = list(self._units)
        columns = {name: self._column(name) for name in COLUMNS}
        made = np.concatenate([np.zeros(0, dtype=np.int64), *self._ranges])
        self._parts, self._ranges = [], []
        release_memory()
        first = np.cumsum(columns["ranges"], dtype=np.int64) - columns["ranges"]
        return RecordTable(columns, made, first)

    def _column(self, name: str) -> NDArray[Any]:
        """A column of all blocks, which give it up; one that none has takes no memory."""
        kind, empty = COLUMNS[name], _EMPTY.get(name, 0)
        sizes = [len(part["line"]) for part in self._parts]
        if not any(name in part for part in self._parts):
            same = np.array(empty, dtype=kind)
            return np.broadcast_to(same, sum(sizes)) if sizes else np.zeros(0, kind)
        pairs = zip(self._parts, sizes, strict=True)
        return np.concatenate(
            [
                part.pop(name) if name in part else np.full(size, empty, dtype=kind)
                for part, size in pairs
            ]
        )

    def fill(self, table: RecordTable) -> None:
        """Count all rows by why they are not used: the account is one group-by of that column.

        Raises
        ------
        InputError
            When of a file fewer than half of the rows used or skipped were used, unless few are allowed; and under
            `strict` when a row was skipped.
        """
        account, skips = self.account, self.skips()
        counted = ~table["again"]
        why, file, line = (table[name][counted] for name in ("why", "file", "line"))
        shape = len(self.files), len(skips)
        cells = file.astype(np.int64) * shape[1] + why
        by_file = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
        places = {code: self._details[code][:2] for code, _ in self._dropped}
        for (code, at_file), count in self._dropped.items():
            by_file[at_file, code] += count
        unused = np.flatnonzero(why)
        unused = unused[np.lexsort((line[unused], file[unused]))]
        for code, at in zip(*np.unique(why[unused], return_index=True), strict=True):
            places[int(code)] = int(file[unused[at]]), int(line[unused[at]])
        account.rows, account.used = int(by_file.sum()), int(by_file[:, 0].sum())
        for code in sorted(places, key=lambda code: (places[code], code)):
            name, at_line = self.files[places[code][0]], places[code][1]
            detail = self._details.get(code, (0, 0, ""))[2][:200]
            reason = self.reasons[code].partition(": ")[2]
            told = Tally(int(by_file[:, code].sum()), name, at_line, detail)
            account.add(
                account.skipped if skips[code] else account.left_out, reason, told
            )
            if account.strict and skips[code]:
                text = f"{reason}: {detail}" if detail else reason
                raise InputError(f"line {at_line}: {text}", file=name)
        lost = by_file[:, skips].sum(axis=1)
        used = by_file[:, [0, *self.repeats]].sum(axis=1)
        few = np.flatnonzero(used < LEAST_USABLE * (used + lost))
        if len(few) and not account.allow_few:
            number = int(few[0])
            rows = f"{used[number]:,} of {used[number] + lost[number]:,} rows"
            told_of = (_line(*each) for each in account.skipped.items())
            hint = "is FORMAT the right one? --allow-few accepts such a file"
            why_few = f"only {rows} can be used: {'; '.join(told_of)}"
            raise InputError(why_few, file=self.files[number], hint=hint)
        share = lost.sum() / max(1, lost.sum() + used.sum())
        if share > MOST_SKIPPED:
            text = f"{share:.1%} of the rows with information on nodes were skipped: the nodes of jobs among them "
            account.note(f"{text}look idle", "", 0, loud=True)
        if len(self.spelled) > 1:
            text = "jobs of several clusters were read, and jobs whose cluster is not stated: an id among the "
            text += "latter is taken for that of a job of cluster "
            text += f"{self.spelled[0][:80]!a}; --cluster uses those of one"
            unstated = (table["cluster"] == 0) & (table["kind"] == KIND["ran"])
            unstated &= np.isin(table["why"], [0, *self.repeats]) & ~table["beside"]
            self.tell(table, np.flatnonzero(unstated), text, loud=True)


def hashes(column: Texts) -> NDArray[np.uint64]:
    """A number for each text, of 64 bits, so that different ones hardly ever share one.

    >>> a, b, c = hashes(texts(["7", "8", "7"])).tolist()
    >>> a == c, a == b
    (True, False)
    """
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset :][: len(column) + 1]
    text = np.frombuffer(data or b"", dtype=np.uint8)
    found = np.zeros(len(column), dtype=np.uint64)
    rows, at = np.arange(len(column)), ends[:-1].astype(np.int64)
    while len(rows):
        rows, at = rows[at < ends[rows + 1]], at[at < ends[rows + 1]]
        found[rows] = (found[rows] + text[at] + np.uint64(1)) * _PRIME
        at += 1
    return found


def release_memory() -> None:
    """Give the system back what reading took: the many small arrays of blocks leave holes, half of all memory."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
    if trim is not None:
        trim(0)


@dataclass(slots=True)
class RecordTable:
    """The table of records: a column of numbers for each of `COLUMNS`, and the ranges of nodes of all rows.

    Parameters
    ----------
    columns
        By name.
    made, first
        Ranges of nodes, one row after the other, and where those of each row begin.
    """

    columns: dict[str, NDArray[Any]]
    made: Whole
    first: Whole

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.first)

    def of_kind(self, *kinds: str) -> NDArray[np.int64]:
        """Rows of these kinds that are used."""
        mine = np.isin(self["kind"], [KIND[kind] for kind in kinds]) & (
            self["why"] == 0
        )
        return np.flatnonzero(mine)

    def ranges_of(self, rows: NDArray[np.int64]) -> tuple[Whole, NDArray[np.int32]]:
        """The ranges of some rows, one row after the other, and how many each has."""
        counts = self["ranges"][rows]
        return self.made[consecutive(self.first[rows], counts)], counts

    def in_parts(self, rows: Places) -> Iterator[Places]:
        """Yield some rows at a time, so few that their nodes take little memory where they are written out."""
        if len(rows):
            part = np.cumsum(self["count"][rows], dtype=np.int64) // _NODES
            yield from np.split(rows, np.flatnonzero(part[1:] != part[:-1]) + 1)

    def set_nodes(self, row: int, keys: Whole) -> None:
        """Give a row other nodes."""
        self.first[row] = len(self.made)
        for name in ("ranges", "count"):
            self[name][row] = len(keys)
        self.made = np.append(self.made, of_keys(keys))

    def add(self, row: int, keys: Whole, end_ns: int) -> None:
        """Add a run as a row has it, of these nodes and with this end; it is counted with that row."""
        other = {"again": True, "once": False, "end": end_ns, "kind": KIND["ran"]}
        other["id"] = self["id"][row] ^ np.uint64(end_ns)
        for name, column in self.columns.items():
            cell = np.array(other.get(name, column[row])).astype(column.dtype)
            self.columns[name] = np.append(column, cell)
        self.first = np.append(self.first, 0)
        self.set_nodes(len(self) - 1, keys)
