"""What rows of logs state: one schema for all formats, in blocks of columns; and the account of rows.

A reader is given a `Log` and yields `Block`s of rows, or single rows as dictionaries with the same names. It states
what its rows say, as text or as numbers, and why a row is left out or skipped; the rules that hold for all formats are
`Records.add`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.hosts import (
    HostListError,
    HostLists,
    Nodes,
    Ranges,
    bytes_of,
    expand,
    of_keys,
    united,
)
from bft.replay.logs.lines import Lines, objects
from bft.replay.logs.states import Snapshots
from bft.replay.logs.times import NONE, Clock, Mask, Whole, limits, no_time
from bft.replay.trace.node_trace import consecutive

logger = logging.getLogger(__name__)
Texts: TypeAlias = Any
"""A column of text (pyarrow.Array)."""
Places = NDArray[np.int64]

# --- what a reader says of rows that are not used -------------------------------------------------------------------

LEFT_OUT, SKIPPED, FOREIGN = "left out: ", "skipped: ", "no record: "
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
    >>> [why.reason(row) for row in range(3)]
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
        mine = rows & (self.code == 0)
        if mine.any():
            if reason not in self.reasons:
                self.reasons.append(reason)
                self._details.append(detail if callable(detail) else lambda row: detail)
            self.code[mine] = self.reasons.index(reason)

    def taken(self, rows: Places) -> Why:
        """Return the reasons of some rows."""
        some = Why(len(rows))
        for code, reason in enumerate(self.reasons[1:], 1):
            mine = self.code[rows] == code
            some.where(mine, reason, lambda row: self.detail(int(rows[row])))
        return some

    @property
    def used(self) -> Mask:
        """The rows that have no reason."""
        used: Mask = self.code == 0
        return used

    def reason(self, row: int) -> str:
        """The reason of a row; empty: it is used."""
        return self.reasons[int(self.code[row])]

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
_TIMES = ("known", "start", "end", "limit", "suspended")
_OF_ROWS = {*_TEXTS, *_TIMES, "line", "kind", "count", "units", "again", "once"}
_OF_ROWS |= {"why", "detail", "notes"}


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
    literal
        The lists of hosts are names with commas between them, in which brackets have no meaning.
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


Row = Mapping[str, Any]
# Rows that make one block, so that columns pay.
_ROWS = 5_000


def hosts_of(row: Row) -> tuple[str, ...]:
    """The hosts of a row of a list of nodes."""
    hosts = row["hosts"]
    return expand(hosts) if isinstance(hosts, str) else tuple(hosts)


def in_blocks(rows: Iterable[Block | Row]) -> Iterator[Block | Row]:
    """Yield what a reader yields, single rows put together into blocks of one kind; those of lists of nodes stay."""
    waiting: dict[str, list[Row]] = {}
    count = 0
    for row in rows:
        if isinstance(row, Block) or row.get("kind") == "listed":
            yield row
            continue
        waiting.setdefault(row.get("kind", "ran"), []).append(row)
        count += 1
        if count >= _ROWS:
            yield from (block_of(kind, some) for kind, some in waiting.items())
            waiting, count = {}, 0
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
    size = len(rows)
    stated = set().union(*rows)
    if kind not in ("listed", "seen") and (unknown := stated - _OF_ROWS):
        raise TypeError(
            f"rows have no column {min(unknown)!r}: expected {', '.join(sorted(_OF_ROWS))}"
        )
    why = Why(size)
    columns: dict[str, Any] = {}
    for name in stated.intersection(_TEXTS):
        cells = [row.get(name) or "" for row in rows]
        if name == "hosts":
            cells = [
                cell if isinstance(cell, str) else ",".join(cell) for cell in cells
            ]
        columns[name] = texts(cells)
    for name in stated.intersection(_TIMES):
        columns[name] = _times([row.get(name) for row in rows])
    if "count" in stated:
        columns["count"] = np.array(
            [row.get("count") or 0 for row in rows], dtype=np.int64
        )
    if "units" in stated:
        columns["units"] = [row.get("units") for row in rows]
    if "again" in stated:
        columns["again"] = np.array(
            [row.get("again", False) for row in rows], dtype=bool
        )
    if "why" in stated:
        details = [row.get("detail", "") for row in rows]
        for reason in dict.fromkeys(row["why"] for row in rows if row.get("why")):
            mine = np.array([row.get("why") == reason for row in rows], dtype=bool)
            why.where(mine, reason, details.__getitem__)
    notes: dict[str, dict[int, str]] = {}
    if "notes" in stated:
        for place, row in enumerate(rows):
            for reason, detail in row.get("notes", ()):
                notes.setdefault(reason, {})[place] = detail
    block = Block(
        line=np.array([row["line"] for row in rows], dtype=np.int64),
        why=why,
        kind=kind,
        **columns,
    )
    for reason, told in notes.items():
        mine = np.isin(np.arange(size), list(told))
        block.notes.append((mine, reason, told.__getitem__))
    block.once = any(row.get("once") for row in rows)
    return block


def _times(values: list[Any]) -> Any:
    """Return times of single rows as nanoseconds, or all of them as text."""
    if any(isinstance(value, str) for value in values):
        return texts(["" if value is None else str(value) for value in values])
    return np.array(
        [NONE if value is None else value for value in values], dtype=np.int64
    )


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


# --- what a reader is given -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """How a filter chooses rows.

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
        name = _plain(wanted)
        if self.of_jobs:
            return name in map(_plain, stated.split(","))
        return _plain(stated) in ("", name)


def _plain(name: str) -> str:
    return name.strip().casefold()


def _filter(help: str, *, of_jobs: bool) -> Any:  # noqa: A002 - as click calls it
    return field(default=None, metadata={"filter": Filter(help, of_jobs)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The values that rows of a log have to state to be used; None: any. Each is an option of `ingest`.

    Raises
    ------
    InputError
        When a value is empty, or names several partitions.
    """

    cluster: str | None = _filter("Use only rows of this cluster. [all]", of_jobs=False)
    partition: str | None = _filter(
        "Use only jobs of this partition or queue. [all]", of_jobs=True
    )

    def __post_init__(self) -> None:
        for name, wanted in self.asked().items():
            if not isinstance(wanted, str) or not wanted.strip():
                raise InputError(
                    f"--{name}: expected the name of a {name}, not {wanted!r}",
                    hint=f"without --{name}, rows of all {name}s are used",
                )
            if FILTERS[name].of_jobs and "," in wanted:
                raise InputError(
                    f"--{name}: expected the name of one {name}, not {ascii(wanted)[:80]}"
                )

    def asked(self) -> dict[str, str]:
        """Return what the user asks for, by the names of the filters."""
        each = {name: getattr(self, name) for name in FILTERS}
        return {name: wanted for name, wanted in each.items() if wanted is not None}


FILTERS: dict[str, Filter] = {
    each.name: each.metadata["filter"] for each in fields(Filters)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Filters):
    """What the user says of a file.

    Parameters
    ----------
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
    counts_as
        What words for states of nodes count as, where that is not what `states.state_of` has.
    unit
        What turns idle by itself (`units.Unit`); None: nodes turn idle as a whole.
    allow_few
        Accept what is refused as an export that lacks something.
    """

    fields: tuple[str, ...] = ()
    delimiter: str = ""
    table: Any = None
    processors_per_node: int | None = None
    machine_nodes: int | None = None
    beside: bool = False
    mtime: bool = False
    counts_as: Mapping[str, Any] = field(default_factory=dict)
    unit: Any = None
    allow_few: bool = False


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
    for number, line in log.lines:
        if line and not line.isspace() and not line.startswith(comment):
            try:
                yield from _rows(row(line, number), number)
            except InputError:  # of the whole log; it is a ValueError as well
                raise
            except MISSHAPEN:
                why = f"{FOREIGN}is no {expected}"
                yield {"line": number, "kind": "nothing", "why": why, "detail": ascii(line[:60])}  # fmt: skip


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
            yield {
                "line": number,
                "kind": "nothing",
                "why": SKIPPED + "is not JSON",
                "detail": str(entry),
            }
            continue
        try:
            yield from _rows(row(entry, name, number), number)
        except InputError:  # of the whole log; it is a ValueError as well
            raise
        except MISSHAPEN as error:
            why = f"{SKIPPED}is no {expected}"
            yield {
                "line": number,
                "kind": "nothing",
                "why": why,
                "detail": repr(error)[:200],
            }
    if not log.items:
        wanted = f"with a list {' or '.join(map(repr, keys))}" if keys else "of objects"
        raise InputError(
            f"is not JSON {wanted}", file=log.name, hint=f"export with {command}"
        )


def _rows(found: Iterable[Row], line: int) -> Iterator[Row]:
    """Yield rows with their line, or one that says why there is none."""
    try:
        for row in found:
            yield row if "line" in row else {"line": line, **row}
    except Refused as why:
        yield {"line": line, "kind": "nothing", "why": why.why, "detail": why.detail}


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

    def in_short(self) -> str:
        """Return the note without the folder of its file."""
        return str(replace(self, file=PurePath(self.file).name))

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
        tally(self.notes, reason, Tally(count, file, line, detail[:200], loud))

    def warnings(self) -> list[str]:
        """The loud notes, a line each."""
        return [
            f"{reason}{f': {t}' if str(t) else ''}"
            for reason, t in self.notes.items()
            if t.loud
        ]

    def assumptions(self) -> tuple[str, ...]:
        """Return skipped rows and notes, a sentence each, without the folders of files: for the trace."""
        kinds = ((self.skipped, "rows were skipped: "), (self.notes, ""))
        return tuple(
            f"{kind}{reason}{f': {tally.in_short()}' if str(tally) else ''}"
            for tallies, kind in kinds
            for reason, tally in tallies.items()
        )

    def losses(self) -> str:
        """Why rows were skipped or left out, in one line."""
        return "; ".join(
            f"{reason}: {found}"
            for reason, found in {**self.skipped, **self.left_out}.items()
        )

    def as_dict(self) -> dict[str, Any]:
        """The account as plain values, for JSON."""
        each = {"skipped": self.skipped, "left_out": self.left_out, "notes": self.notes}
        plain = {
            name: [
                {
                    "reason": reason,
                    "count": t.count,
                    "file": t.file,
                    "line": t.line,
                    "detail": t.detail,
                }
                for reason, t in tallies.items()
            ]
            for name, tallies in each.items()
        }
        return {"lines": self.lines, "rows": self.rows, "used": self.used, **plain}


def tally(into: dict[str, Tally], reason: str, found: Tally) -> None:
    """Count something under its reason; where it was met first stays."""
    known = into.get(reason)
    if known is None:
        into[reason] = found
    else:
        known.count += found.count
        known.loud |= found.loud
        # Columns are read one after the other, each for many rows.
        if known.file == found.file and 0 < found.line < known.line:
            known.line, known.detail = found.line, found.detail


# --- the table of records -------------------------------------------------------------------------------------------

# Columns of the table of records, in which no text is left.
COLUMNS = {
    "file": np.int16, "line": np.uint32, "kind": np.int8, "why": np.int16, "otherwise": np.int16, "filter": np.int8,
    "cluster": np.int16, "id": np.uint64, "known": np.int64, "start": np.int64, "end": np.int64, "limit": np.int64,
    "suspended": np.int64, "count": np.int32, "ranges": np.int32, "units": np.int32, "once": bool, "again": bool,
    "beside": bool, "samples": bool,
}  # fmt: skip
# What rows have where nothing is stated; and the columns that are settled once all records are there.
_EMPTY = dict.fromkeys(("known", "start", "end", "limit", "suspended"), NONE)
_ASSIGNED = frozenset({"why", "kind", "end", "count", "ranges"})
KIND = {name: number for number, name in enumerate(KINDS)}
RESERVED, POWERED_OFF = "reserved", "powered off"
# Different texts of a column that are kept: one alone is suspicious.
_MOST_VALUES = 2
# Nodes of rows that are written out together.
_NODES = 1 << 17
# Bytes that are hashed together: each takes thirty meanwhile.
_HASHED = 1 << 20
_POWERS = np.cumprod(np.full(4096, 1_099_511_628_211, dtype=np.uint64))
_OF_JOBS = frozenset({"ran", "began"})
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
    clusters
        Clusters that rows state, folded; the first is that of rows that state none.
    listed
        The rows of lists of nodes.
    """

    def __init__(self, account: Account, *, keep: bool = False) -> None:
        self.account = account
        self.hosts = HostLists()
        self.files: list[str] = []
        self.reasons = [""]
        self.values: dict[str, set[str]] = {}
        self.looked_at: dict[str, int] = {}
        self.chosen: set[str] = set()
        self.others: dict[str, dict[str, None]] = {}
        self.clusters: list[str] = []
        self.spelled: list[str] = []
        self.unstated: tuple[str, int] | None = None
        self.listed: list[tuple[str, Row]] = []
        self.snapshots = Snapshots()
        # What logs state of the machine and of their window.
        self.machine = ""
        self.machine_nodes: list[int] = []
        self.observed: tuple[int, int] | None = None
        self.observed_outages: tuple[int, int] | None = None
        self.shown_until = 0
        self.ends_ns: int | None = None
        self.only_ended = self.says_requeues = self.states_idle = False
        self.states_starts = False
        self.unit: Any = None
        self.units_per_node: int | None = None
        self.units: list[Any] = [None]
        self._units: dict[Any, int] = {None: 0}
        self.kept: list[pa.Table] | None = [] if keep else None
        # Why rows are left out of which others say the same.
        self.repeats: set[int] = set()
        self._dropped: list[tuple[int, int, int, int]] = []
        self._details: dict[int, tuple[int, int, str]] = {}
        # Of each block its size, and the columns that do not have the same in all rows.
        self._sizes: list[int] = []
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
        before = len(self._parts)
        for found in in_blocks(rows):
            if isinstance(found, Block):
                self._add(log, found, samples)
            else:
                self._list(log, found)
        self.account.lines += log.lines.read if log.items is None else log.items
        foreign = [
            code
            for code, reason in enumerate(self.reasons)
            if reason.startswith(FOREIGN)
        ]
        whys = [part["why"] for part in self._parts[before:]]
        why = np.concatenate([np.zeros(0, dtype=np.int16), *whys])
        others = any(file == len(self.files) - 1 for _, file, *_ in self._dropped)
        if len(why) and np.isin(why, foreign).all() and not others:
            _, line, detail = self._details[int(why[0])]
            reason = self.reasons[int(why[0])].removeprefix(FOREIGN)
            raise InputError(
                f"is no log of this format: line {line} {reason}: {detail}",
                file=log.name,
            )

    def observe(self, log: Log) -> None:
        """Take the window of observation that a log states; several make the one that spans them."""
        if log.observed is None:
            return
        used = [KIND[kind] for kind in ("ran", "began", "idle", "seen")]
        number = len(self.files) - 1
        mine = [part for part in self._parts if part.get("file", _ZERO)[0] == number]
        of_jobs = any(
            (np.isin(part.get("kind", 0), used) & (part["why"] == 0)).any()
            for part in mine
        )
        name = "observed" if of_jobs else "observed_outages"
        known = getattr(self, name) or log.observed
        setattr(
            self, name, (min(known[0], log.observed[0]), max(known[1], log.observed[1]))
        )

    def states_outages(self) -> bool:
        """Whether logs state when nodes were unavailable, or idle."""
        kinds = [KIND[kind] for kind in ("down", "went down", "all down", "idle")]
        return bool(self.snapshots) or any(
            bool(
                (
                    np.isin(part.get("kind", 0), kinds)
                    & ((part["why"] == 0) | (part.get("filter", 0) > 0))
                ).any()
            )
            for part in self._parts
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
        code = self.reason(why.why)
        place = int(table["file"][row]), int(table["line"][row])
        self._details.setdefault(code, (*place, why.detail))
        if self.account.strict:
            text = f"line {place[1]}: {why.why.partition(': ')[2]}"
            detail = f": {why.detail}" if why.detail else ""
            raise InputError(text + detail, file=self.files[place[0]])
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
        each = (row["hosts"] for _, row in self.listed)
        return [text if isinstance(text, str) else ",".join(text) for text in each]

    def _list(self, log: Log, row: Row) -> None:
        """Take in a row of a list of nodes."""
        why = row.get("why", "")
        cluster = row.get("cluster", "")
        wanted = log.settings.asked().get("cluster")
        if not why and wanted is not None:
            if not FILTERS["cluster"].keeps(wanted, cluster):
                why = LEFT_OUT + "node of another cluster"
            elif not cluster:
                log.note(NOT_STATED.format("cluster"), row["line"])
        block = block_of("listed", [{**row, "why": why}])
        self._add(log, block, samples=True)
        if not why and not block.why.code.any():
            self.listed.append((log.name, row))

    def _add(self, log: Log, block: Block, samples: bool) -> None:
        """Apply the rules for rows of all formats to a block, and keep it as numbers."""
        size, why = len(block), block.why
        for reason, count, line in block.dropped:
            self._dropped.append(
                (self.reason(reason), len(self.files) - 1, line, count)
            )
        if not size:
            return
        self.states_starts |= block.kind == "began"
        left_by = self._filtered(log, block)
        part: dict[str, NDArray[Any]] = {"start": self._time(log, block, "start")}
        part["end"] = self._time(log, block, "end", part["start"])
        for name in ("known", "limit", "suspended"):
            if getattr(block, name) is not None:
                read = self._time if name == "known" else self._limit
                part[name] = read(log, block, name)
        ranges = self._hosts(log, block)
        self._judge(block, part, ranges)
        if block.kind == "seen":
            self._see(block, part["start"], why.used)
        part["id"] = self._keys(log, block, part)
        self._watch(block, part)
        self._say(log, block)
        fixed = {
            "file": len(self.files) - 1,
            "kind": KIND[block.kind],
            "once": block.once,
        }
        fixed |= {"beside": log.settings.beside, "samples": samples}
        part |= {name: np.full(size, value) for name, value in fixed.items() if value}
        part["line"], part["ranges"], part["count"] = (
            block.line,
            ranges.counts,
            ranges.sizes,
        )
        if block.count is not None:
            part["count"] = np.where(ranges.sizes > 0, ranges.sizes, block.count)
        if left_by.any():
            part["filter"] = left_by
        if block.again is not None:
            part["again"] = block.again
        if block.units is not None:
            part["units"] = np.array(
                [self._unit(stated) for stated in block.units], dtype=np.int32
            )
        self._settle_why(log, block, part)
        if self.kept is not None:
            self._keep(self.kept, block, part)
        out = np.repeat(left_by > 0, ranges.counts)
        self.named["left out"].append(united([ranges.made[out]]))
        self.named["beside" if log.settings.beside else "jobs"].append(
            united([ranges.made[~out]])
        )
        self._ranges.append(ranges.made)
        self._sizes.append(size)
        self._parts.append(
            {
                name: column.astype(COLUMNS[name], copy=False)
                for name, column in part.items()
            }
        )

    def _filtered(self, log: Log, block: Block) -> NDArray[np.int8]:
        """Leave out what filters do not keep; returns which filter does, by its number from 1 on."""
        left_by = np.zeros(len(block), dtype=np.int8)
        for name, wanted in log.settings.asked().items():
            number = list(FILTERS).index(name) + 1
            each, column = FILTERS[name], getattr(block, name)
            if block.kind in ("nothing", "listed") or (
                each.of_jobs and block.kind not in (*_OF_JOBS, "idle")
            ):
                continue
            encoded = (
                texts([""] * len(block)).dictionary_encode()
                if column is None
                else column.dictionary_encode()
            )
            stated, which = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
            keeps = [
                each.keeps(wanted, text)
                or (block.kind == "idle" and each.of_jobs and not text)
                for text in stated
            ]
            kept = np.array(keeps, dtype=bool)[which]
            out = ~kept & block.why.used
            for code in np.unique(which[block.why.used]).tolist():
                self._chosen(
                    log,
                    block,
                    name,
                    stated[code],
                    kept=keeps[code],
                    mine=block.why.used & (which == code),
                )
            what = (
                "event"
                if log.settings.beside
                else "job"
                if each.of_jobs or block.kind in _OF_JOBS
                else "row"
            )
            block.why.where(out, f"{LEFT_OUT}{what} of another {name}")
            left_by[out] = number
        return left_by

    def _chosen(
        self, log: Log, block: Block, name: str, stated: str, *, kept: bool, mine: Mask
    ) -> None:
        """Tell what rows state in the column of a filter."""
        line, count = int(block.line[int(mine.argmax())]), int(np.count_nonzero(mine))
        if not FILTERS[name].of_jobs:
            if not stated:
                log.note(NOT_STATED.format(name), line, count=count)
        elif kept:
            self.chosen.add(name)
        else:
            self.others.setdefault(name, {}).setdefault(stated[:80])
            if stated:
                log.note(
                    OTHERS.format(name),
                    line,
                    ascii(stated[:80]),
                    count=count,
                    loud=True,
                )

    def _time(
        self, log: Log, block: Block, name: str, start: Whole | None = None
    ) -> Whole:
        """The times of a column as UTC nanoseconds; rows that hold something else are skipped."""
        column = getattr(block, name)
        if column is None:
            return np.full(len(block), NONE, dtype=np.int64)
        if isinstance(column, np.ndarray):
            return column

        def tell(rows: Mask, why: str) -> None:
            first = int(rows.argmax())
            line = int(block.line[first])
            log.note(
                why, line, decoded(column, first), count=int(np.count_nonzero(rows))
            )

        ns, bad = log.clock.times(column, tell, start)
        if bad.any():
            what = f"{log.words.get(name, name)} holds no time"
            if name == "known":
                block.notes.append(
                    (bad, what, lambda row: no_time(decoded(column, row)))
                )
            else:
                block.why.where(
                    bad, SKIPPED + what, lambda row: no_time(decoded(column, row))
                )
        return ns

    def _limit(self, log: Log, block: Block, name: str) -> Whole:
        """The lengths of a column in nanoseconds."""
        column = getattr(block, name)
        if isinstance(column, np.ndarray):
            return column
        ns, bad = limits(column)
        if bad.any():
            what = f"{log.words.get(name, name)} holds no limit: taken for unlimited"
            block.notes.append(
                (bad, what, lambda row: ascii(decoded(column, row)[:40]))
            )
        return ns

    def _hosts(self, log: Log, block: Block) -> Ranges:
        """The nodes that rows name, be they used or not."""
        size = len(block)
        nothing = np.zeros(size, dtype=np.int64)
        none = Ranges(
            nothing[:0],
            nothing.astype(np.int32),
            nothing,
            np.zeros(size, dtype=bool),
        )
        if block.hosts is None:
            return none
        hosts = block.hosts
        ranges = self.hosts.read(hosts, literal=block.literal)
        if ranges.bad.any():
            first = int(ranges.bad.argmax())
            text = decoded(hosts, first)
            if text.rstrip().endswith("+") and block.why.used[first]:
                why = f"line {block.line[first]}: the lists of nodes are cut: {text[-40:]!a} ends in +"
                raise InputError(
                    why, file=log.name, hint="export columns without a width"
                )
            what = log.words.get("hosts", "its list of nodes")
            block.why.where(
                ranges.bad,
                f"{SKIPPED}{what} holds no host list",
                lambda row: _host_error(decoded(hosts, row)),
            )
        if block.kind == "seen":  # too many to be kept
            return none
        if block.count is not None:
            differ = (
                (ranges.sizes > 0) & (block.count > 0) & (ranges.sizes != block.count)
            )
            counts, stated = ranges.sizes, block.count
            what = log.words.get(
                "count",
                "the list of nodes and their number tell different numbers of nodes",
            )
            block.notes.append(
                (differ, what, lambda row: f"{counts[row]} and {stated[row]}")
            )
        return ranges

    def _judge(
        self, block: Block, part: dict[str, NDArray[Any]], ranges: Ranges
    ) -> None:
        """Leave out and skip rows whose times and nodes say so."""
        why, start, end = block.why, part["start"], part["end"]
        if block.kind in ("ran", "began"):
            why.where(start == NONE, NEVER_STARTED)
        if block.kind in ("ran", "down", "idle"):
            before = (end != NONE) & (end < start)
            why.where(
                before,
                SKIPPED + "ends before it starts",
                lambda row: f"{(start[row] - end[row]) / 1e9:g} s before",
            )
        if block.hosts is not None and block.kind in (
            "ran",
            "began",
            "idle",
            "down",
            "went down",
        ):
            nowhere = (ranges.sizes == 0) & ~ranges.bad
            if block.count is not None and block.kind == "ran":
                nowhere &= block.count == 0
            of_job = block.kind in ("ran", "began")
            why.where(
                nowhere,
                SKIPPED + "job ran, but names no nodes"
                if of_job
                else LEFT_OUT + "names no nodes",
            )

    def _see(self, block: Block, start: Whole, used: Mask) -> None:
        """Hand snapshots over, whose rows are too many to be kept."""
        rows = np.flatnonzero(used)
        take = pa.array(rows)
        self.snapshots.add(
            start[rows],
            block.hosts.take(take).to_pylist(),
            block.state.take(take).to_pylist() if block.state else [],
        )

    def _keys(
        self, log: Log, block: Block, part: dict[str, NDArray[Any]]
    ) -> NDArray[np.uint64]:
        """A number for the id of each row, and for its cluster unless that is the first."""
        found = (
            np.zeros(len(block), dtype=np.uint64)
            if block.id is None
            else hashes(block.id)
        )
        used = block.why.used
        if block.kind in ("nothing", "listed", "seen") or not used.any():
            return found
        if block.cluster is None:
            if block.kind in _OF_JOBS and not log.settings.beside:
                self.unstated = self.unstated or (
                    log.name,
                    int(block.line[int(used.argmax())]),
                )
            return found
        encoded = block.cluster.dictionary_encode()
        stated, which = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        codes = np.zeros(len(stated), dtype=np.int16)
        met, first = np.unique(which[used], return_index=True)
        for code in met[np.argsort(first)].tolist():
            folded = stated[code].casefold()
            if not folded:
                line = int(block.line[int((used & (which == code)).argmax())])
                self.unstated = self.unstated or (log.name, line)
                continue
            if folded not in self.clusters:
                self.clusters.append(folded)
                self.spelled.append(stated[code])
            codes[code] = self.clusters.index(folded) + 1
        part["cluster"] = codes[which]
        other = np.maximum(part["cluster"].astype(np.uint64), np.uint64(1)) - np.uint64(
            1
        )
        return found ^ (other * np.uint64(0x9E3779B97F4A7C15))

    def _watch(self, block: Block, part: dict[str, NDArray[Any]]) -> None:
        """Keep a few values of columns of which one value in all rows of jobs means that others are missing."""
        if block.kind not in _OF_JOBS:
            return
        ran = (
            block.why.used
            & (part["start"] != NONE)
            & ((part["end"] == NONE) | (part["end"] > part["start"]))
        )
        if not ran.any():
            return
        for name in ("user", "partition", "state"):
            column = getattr(block, name)
            held = self.values.setdefault(name, set())
            if column is None or len(held) >= _MOST_VALUES:
                continue
            cells = (
                column.filter(pa.array(ran)).dictionary_encode().dictionary.to_pylist()
            )
            held.update(text.partition(" ")[0] for text in cells if text)
            self.looked_at[name] = self.looked_at.get(name, 0) + int(
                np.count_nonzero(ran)
            )

    def _say(self, log: Log, block: Block) -> None:
        """Tell what is worth telling of rows that are used."""
        for rows, reason, detail in block.notes:
            mine = rows & block.why.used
            if mine.any():
                first = int(mine.argmax())
                loud = reason.startswith(LOUD)
                text = reason.removeprefix(LOUD)
                log.note(
                    text,
                    int(block.line[first]),
                    detail(first),
                    count=int(np.count_nonzero(mine)),
                    loud=loud,
                )

    def _unit(self, stated: Any) -> int:
        """The number of what a job held."""
        if stated not in self._units:
            self._units[stated] = len(self.units)
            self.units.append(stated)
        return self._units[stated]

    def _settle_why(
        self, log: Log, block: Block, part: dict[str, NDArray[Any]]
    ) -> None:
        """Number the reasons of a block, and keep the first detail of each."""
        codes = np.zeros(len(block.why.reasons), dtype=np.int16)
        order = np.argsort(block.line, kind="stable")
        _, firsts = np.unique(block.why.code[order], return_index=True)
        for first in order[np.sort(firsts)].tolist():
            code = int(block.why.code[first])
            if not code:
                continue
            reason = block.why.reasons[code]
            codes[code] = self.reason(reason)
            file, line = len(self.files) - 1, int(block.line[first])
            known = self._details.get(int(codes[code]))
            if known is None or (file, line) < known[:2]:
                self._details[int(codes[code])] = file, line, block.why.detail(first)
            if self.account.strict and not reason.startswith(LEFT_OUT):
                detail = block.why.detail(first)
                text = reason.partition(": ")[2]
                raise InputError(
                    f"line {line}: {text}{f': {detail}' if detail else ''}",
                    file=log.name,
                )
        part["why"] = codes[block.why.code]
        if (
            block.kind in ("ended", "shrank", "came back", "went down", "down")
            and block.state is not None
        ):
            encoded = block.state.dictionary_encode()
            words = encoded.dictionary.to_pylist()
            plain = {RESERVED: RESERVED, POWERED_OFF: POWERED_OFF, "": ""}
            plain |= {word: word for word in words if word.startswith(SKIPPED)}
            numbers = [self.reason(plain.get(word, LEFT_OUT + word)) for word in words]
            part["otherwise"] = np.array(numbers, dtype=np.int16)[
                encoded.indices.to_numpy()
            ]

    def _keep(
        self, kept: list[pa.Table], block: Block, part: dict[str, NDArray[Any]]
    ) -> None:
        """Keep a block as text, for `--records`."""
        size = len(block)
        empty = texts([""] * size)
        columns: dict[str, Any] = {
            "file": [self.files[-1]] * size,
            "line": block.line,
            "kind": [block.kind] * size,
        }
        for name in _TEXTS:
            column = getattr(block, name)
            columns[name] = empty if column is None else column
        columns["count"] = part["count"]
        for name in ("known", "start", "end", "limit"):
            times = part.get(name, np.full(size, NONE, dtype=np.int64))
            columns[name] = pa.array(times, pa.int64(), mask=times == NONE)
        columns["units"] = [
            "" if stated is None else str(stated)
            for stated in block.units or [None] * size
        ]
        kept.append(pa.table(columns))

    def settle(self) -> RecordTable:
        """Return the table of all records, which are given up here."""
        pa.default_memory_pool().release_unused()  # what reading columns took
        columns = {name: self._column(name) for name in COLUMNS}
        self._parts = []
        made = np.concatenate([np.zeros(0, dtype=np.int64), *self._ranges])
        self._ranges = []
        return RecordTable(
            columns,
            made,
            np.cumsum(columns["ranges"], dtype=np.int64) - columns["ranges"],
        )

    def _column(self, name: str) -> NDArray[Any]:
        """A column of all blocks, which give it up; the same value in all rows takes no memory."""
        empty, kind = np.array(_EMPTY.get(name, 0)), COLUMNS[name]
        if name not in _ASSIGNED and not any(name in part for part in self._parts):
            return np.broadcast_to(empty.astype(kind), sum(self._sizes))
        parts = [np.zeros(0, dtype=kind)]
        for part, size in zip(self._parts, self._sizes, strict=True):
            parts.append(
                part.pop(name) if name in part else np.full(size, empty, dtype=kind)
            )
        return np.concatenate(parts)

    def fill(self, table: RecordTable) -> None:
        """Count all rows by why they are not used: the account is one group-by of that column.

        Raises
        ------
        InputError
            When of a file fewer than half of the rows used or skipped were used, unless few are allowed.
        """
        account, counted = self.account, ~table["again"]
        why, file, line = (table[name][counted] for name in ("why", "file", "line"))
        size = len(self.reasons)
        by_file = np.bincount(
            file.astype(np.int64) * size + why, minlength=len(self.files) * size
        )
        by_file = by_file.reshape(len(self.files), size)
        order = np.lexsort((line, file))
        _, first = np.unique(why[order], return_index=True)
        found = [
            (int(file[row]), int(line[row]), int(why[row]))
            for row in order[first].tolist()
        ]
        for code, at_file, at_line, count in self._dropped:
            by_file[at_file, code] += count
            if not any(known == code for *_, known in found):
                found.append((at_file, at_line, code))
        if logger.isEnabledFor(logging.DEBUG):
            self._list_unused(file, line, why)
        account.rows, account.used = int(by_file.sum()), int(by_file[:, 0].sum())
        for at_file, at_line, code in sorted(found):
            if not code:
                continue
            kind, _, reason = self.reasons[code].partition(": ")
            *_, detail = self._details.get(code, (0, 0, ""))
            told = Tally(
                int(by_file[:, code].sum()), self.files[at_file], at_line, detail[:200]
            )
            tally(
                account.left_out if f"{kind}: " == LEFT_OUT else account.skipped,
                reason,
                told,
            )
        skips = self.skips()
        lost = by_file[:, skips].sum(axis=1)
        used = by_file[:, [0, *self.repeats]].sum(axis=1)
        for number in np.flatnonzero(used < LEAST_USABLE * (used + lost)).tolist():
            if not account.allow_few:
                mine = [code for code in np.flatnonzero(skips) if by_file[number, code]]
                reasons = "; ".join(
                    f"{why}: {account.skipped[why]}"
                    for why in (self.reasons[c].partition(": ")[2] for c in mine)
                )
                raise InputError(
                    f"only {used[number]:,} of {used[number] + lost[number]:,} rows can be used: {reasons}",
                    file=self.files[number],
                    hint="is FORMAT the right one? --allow-few accepts such a file",
                )
        if lost.sum() > MOST_SKIPPED * (lost.sum() + used.sum()):
            share = f"{lost.sum() / (lost.sum() + used.sum()):.1%} of the rows with information on nodes were skipped"
            account.note(
                f"{share}: the nodes of jobs among them look idle", "", 0, loud=True
            )

    def _list_unused(
        self, file: NDArray[Any], line: NDArray[Any], why: NDArray[Any]
    ) -> None:
        """Log each row that is not used."""
        rows = np.flatnonzero(why)
        each = [(int(file[row]), int(line[row]), int(why[row]), 1) for row in rows]
        dropped = [(at, line, code, count) for code, at, line, count in self._dropped]
        for at, number, code, count in sorted([*each, *dropped]):
            *place, detail = self._details.get(code, (-1, -1, ""))
            told = f": {detail}" if detail and place == [at, number] else ""
            told += f" (and {count - 1:,} more of a block)" if count > 1 else ""
            logger.debug("%s, line %d %s%s", self.files[at], number, self.reasons[code], told)  # fmt: skip


_ZERO = np.zeros(1, dtype=np.int16)
# Begins what is worth telling on standard error as well.
LOUD = "! "


def hashes(column: Texts) -> NDArray[np.uint64]:
    """A number for each text, of 64 bits, so that different ones hardly ever share one.

    >>> a, b, c = hashes(texts(["7", "8", "7"])).tolist()
    >>> a == c, a == b
    (True, False)
    """
    size = max(1, int(_HASHED * len(column) / max(1, column.nbytes)))
    parts = [_hashes(column.slice(low, size)) for low in range(0, len(column), size)]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *parts])


def _hashes(column: Texts) -> NDArray[np.uint64]:
    data, begins = bytes_of(column)
    found = np.zeros(len(column), dtype=np.uint64)
    some = np.flatnonzero(np.diff(begins))
    if len(some):
        place = (np.arange(len(data)) - np.repeat(begins[:-1], np.diff(begins))) % len(
            _POWERS
        )
        found[some] = np.add.reduceat(
            (data + np.uint64(1)) * _POWERS[place], begins[:-1][some]
        )
    return found


def _host_error(text: str) -> str:
    """What is wrong with a host list."""
    try:
        expand(text)
    except HostListError as error:
        return str(error)
    return ascii(text[:80])


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
        self.first[row], self["ranges"][row], self["count"][row] = (
            len(self.made),
            len(keys),
            len(keys),
        )
        self.made = np.append(self.made, of_keys(keys))

    def add(self, row: int, keys: Whole, end_ns: int) -> None:
        """Add a run as a row has it, of these nodes and with this end; it is counted with that row."""
        for name, column in self.columns.items():
            self.columns[name] = np.append(column, column[row])
        self.first = np.append(self.first, 0)
        self["again"][-1], self["once"][-1], self["end"][-1], self["kind"][-1] = (
            True,
            False,
            end_ns,
            KIND["ran"],
        )
        self["id"][-1] ^= np.uint64(end_ns)
        self.set_nodes(len(self) - 1, keys)
