"""Tables with a delimiter between their fields, CSV and Parquet, as columns of text; and tables that others published.

What Slurm and its like print is not escaped: a delimiter or a line break in a job's name, comment or command line is
printed as it is. Rows of the usual form, one a line, are divided by Arrow; the others by `Table._record`, which joins
lines until all fields are there and gives fields in excess to columns of free text, such that the columns of a known
kind (times, numbers, ids) hold what they should.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from csv import Error, reader
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from bft.models import InputError
from bft.models.cells import read_number
from bft.models.checks import did_you_mean
from bft.replay.logs.hosts import HostListError, expand, flags
from bft.replay.logs.lines import PARQUET
from bft.replay.logs.records import Log, Refused, Unusable, Why, texts
from bft.replay.logs.times import MISSING, NONE, Clock, Mask, Whole, limit_ns
from bft.replay.trace.node_trace import SECOND_NS

# --- what columns hold ----------------------------------------------------------------------------------------------

# Columns of sacct that tell all of jobs that is used here. Of jobs that wait, NNodes is what they ask for.
SACCT_FIELDS = "JobID,NodeList,NNodes,Submit,Eligible,Start,End,Timelimit,Partition,User,State,Suspended,AllocTRES"
# What XDMoD's ingestion has sacct print, without a header.
PRESETS = {
    "xdmod": ("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit",
              "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem",
              "ReqTRES", "AllocTRES", "Timelimit", "NodeList", "JobName"),
}  # fmt: skip
# What is exported without a header: what it is called, the delimiter that need not be named, and its columns.
_LAYOUTS = [
    ("xdmod", "|", PRESETS["xdmod"]),
    *((text, "|", text.split(",")) for text in (
        SACCT_FIELDS, "JobID,NodeList,AllocNodes,Start,End,State", "JobID,NodeList,NNodes,Start,End",
        "JobID,NodeList,Start,End,State", "JobID,NodeList,Start,End",
    )),
    ("node,start,end", ",", ["node", "start", "end"]),
    ("node,start,end,state", ",", ["node", "start", "end", "word"]),
    # sacct -n -P without --format
    ("", "", ["JobID", "JobName", "Partition", "Account", "AllocCPUS", "State", "ExitCode"]),
]  # fmt: skip
_BY_DEFAULT = "it has no header and looks like the columns that sacct prints by default, which lack nodes and times"
# Columns in which a user (or admin: reason) may have written anything.
_FREE_TEXT = frozenset(
    {"admincomment", "comment", "constraints", "container", "extra", "jobname", "reason", "stderr", "stdin", "stdout",
     "submitline", "systemcomment", "wckey", "workdir"}
)  # fmt: skip
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d{9,11}(\.\d+)?$")
_LENGTH = re.compile(
    r"(\d+-)?(\d+:)?\d+:\d+(\.\d+)?$|Partition_Limit$|UNLIMITED$|INVALID$"
)
_WHOLE = re.compile(r"\d+$")
_STATE = re.compile(r"[A-Z_]+[*~#!%$@^-]?( by \d+)?(\+[A-Z_]+)*[*~#!%$@^-]?$")
_HOST = r"(?=[^,])[\w.:+@-]*(\[[\w,-]+\][\w.:+@-]*)*"
_AMOUNT = r"[^,=]+=[^,=]*"
# Columns that hold lists with commas, and what they hold: in a table with commas between its fields, nothing says where
# such a list ends.
_LISTS_OF_NODES = ("nodelist", "nodename")
_LISTS = {
    **dict.fromkeys(_LISTS_OF_NODES, re.compile(f"({_HOST}(,{_HOST})*|None assigned)$", re.ASCII)),
    **dict.fromkeys(("alloctres", "reqtres", "tres"), re.compile(f"{_AMOUNT}(,{_AMOUNT})*$")),
}  # fmt: skip
_KINDS = _LISTS | {
    "jobid": re.compile(r"\d+(_(\d+|\[[^\]]*\]))?(\+\d+)?(\.\S+)?$"),
    "jobidraw": re.compile(r"\d+(\.\S+)?$"),
    **dict.fromkeys(("exitcode", "derivedexitcode"), re.compile(r"\d+:\d+$")),
    "state": _STATE,
    **dict.fromkeys(("submit", "eligible", "start", "end", "timestart", "timeend"), _STAMP),
    **dict.fromkeys(("elapsed", "timelimit", "cputime", "reserved", "planned", "suspended", "totalcpu"), _LENGTH),
    **dict.fromkeys(
        ("nnodes", "ncpus", "reqcpus", "allocnodes", "alloccpus", "elapsedraw", "cputimeraw", "uid", "gid", "dbindex",
         "associd", "priority", "qosraw", "ntasks", "timelimitraw", "consumedenergyraw", "wckeyid"), _WHOLE
    ),
}  # fmt: skip
_QUOTED = re.compile(r'"[^"]*"(\W)".*"\s*$')
# Most frequent delimiters, and any other that a header shows. pandas writes its index as a first column without a name.
_MARKS = "|,;\t"
_HEADER = re.compile(
    r'(?:"?(?:Unnamed: \d+)?"?[,;|\t])*"?[A-Za-z]\w*"?([^\w"]+)"?[A-Za-z]'
)


def _is_kind(column: str, text: str) -> bool:
    """Whether a text is what a column holds: of columns of no known kind, anything."""
    column = column.lower()
    if text in MISSING or column not in _KINDS:
        return True
    odd = column in _LISTS_OF_NODES and any(
        kind.match(text) for kind in (_STAMP, _LENGTH, _WHOLE)
    )
    return not odd and _KINDS[column].match(text) is not None


def layout(line: str, delimiter: str = "") -> str:
    """Return a hint on the first line of a table without a header: the `--fields` that fit it; empty when none do."""
    mark = delimiter or next((mark for mark in _MARKS if mark in line), "\t")
    cells = next(reader([line], delimiter=mark), [])
    for fields, usual, columns in _LAYOUTS:
        # sacct -p ends a line with a delimiter.
        extra = cells[len(columns) :]
        if (
            len(cells) < len(columns)
            or extra not in ([], [""])
            or not all(map(_is_kind, columns, cells))
        ):
            continue
        form = "slurm" if usual == "|" else "intervals"
        option = "" if usual == mark else f" --delimiter '{mark}'".replace("\t", "\\t")
        return (
            f"it has no header; its first line fits {form} --fields {fields}{option}"
            if fields
            else _BY_DEFAULT
        )
    return ""


def _holds_a_row(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


# --- tables ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table: the line on which each begins, the cells of its columns, and why rows have none."""

    line: Whole
    cells: dict[str, pa.Array]
    why: Why

    def __len__(self) -> int:
        return len(self.line)

    def taken(self, rows: Mask) -> Rows:
        """Return some of the rows."""
        at = np.flatnonzero(rows)
        cells = {
            name: column.filter(pa.array(rows)) for name, column in self.cells.items()
        }
        return Rows(self.line[at], cells, self.why.taken(at))


# A record's lines, fields in excess of its columns, and ways to divide it; records that are held against the kinds of
# columns, and values from which on a column whose name says another kind is taken for one of none.
_MOST_LINES, _MOST_EXCESS, _MOST_WAYS, _CHECKED, _ENOUGH = 1_000, 64, 8, 100, 5
# What the time from Start to End may be shorter than Elapsed by: an hour where clocks change, and seconds cut off.
_SLACK_NS = 3660 * SECOND_NS
_UTC = Clock("UTC")
_BATCH = 50_000
_BOM, _UNIT_SEPARATOR = "\ufeff", "\x1f"
_UNCLEAR = (
    "has another number of fields than columns, and which belong together is not clear"
)
_CUT_OFF = "has fewer fields than columns: cut off?"
# Score of a way to divide fields, and by what is read of it the fields.
_Ways: TypeAlias = tuple[int, dict[tuple[str, ...], list[str]]]


def _of_several_characters(lines: Sequence[str]) -> str:
    """The delimiter of a header in which one of several characters stands between all names; else nothing."""
    parts = _HEADER.match(lines[0].strip()) if lines else None
    several = "" if parts is None or len(parts[1]) < 2 else parts[1]
    names = lines[0].strip().removesuffix(several).split(several) if several else []
    return several if len(names) > 2 and all(map(str.isidentifier, names)) else ""


class Table:
    """The rows of one file, whose columns a header line, `Settings.fields` or `Settings.table` names.

    Parameters
    ----------
    log
        As every reader has it.
    columns
        Our names of columns, and for each those that it may have in the file, in lower case: the first that is there
        counts.
    needed
        Those without which a file is refused.
    optional
        Those that a row may lack, or of which it may be unclear what they hold.
    command, expected
        What exports such a table, and what it is, for messages.

    Attributes
    ----------
    names
        All columns of the file, in lower case, those that `Settings.table` renames by their new names.
    found
        By our names, those that the columns have in the file.

    Raises
    ------
    InputError
        When there is no header, or it lacks a column.
    """

    def __init__(
        self,
        log: Log,
        columns: Mapping[str, Sequence[str]],
        *,
        needed: Collection[str],
        optional: Collection[str] = (),
        command: str = "",
        expected: str = "",
    ) -> None:
        self._log = log
        self._table = cast(PublicTable, log.settings.table or PublicTable(""))
        renamed = column_map(self._table.columns)
        self._ours = {theirs: ours for ours, theirs in renamed.items()}
        self._needed = [set(columns[name]) for name in needed]
        self._hint = f"export with {command}" if command else f"expected {expected}"
        first = ", ".join(columns[name][0] for name in needed)
        self._expected = expected or f"a header with the columns {first}"
        self._mark, self._is_csv, self._is_parquet = ",", False, False
        lines = log.lines.head(_holds_a_row, _CHECKED)
        self._text = log.settings.delimiter or _of_several_characters(lines)
        self._given = self._text if len(self._text.encode()) < 2 else _UNIT_SEPARATOR
        head = [self._plain(line) for line in lines]
        self._raw = self._begin(head[0]) if head else self._parquet_columns()
        for theirs in renamed.values():
            if theirs not in self._raw:
                why = f"--map: no column {theirs!r}{did_you_mean(theirs, self._raw)}"
                has = f"the header has {', '.join(self._raw)[:400]}"
                raise InputError(why, file=log.name, hint=has)
        self.names = self._renamed(self._raw)
        there = {
            ours: [name for name in names if name in self.names]
            for ours, names in columns.items()
        }
        self.found = {ours: names[0] for ours, names in there.items() if names}
        for ours in needed:
            if ours not in self.found:
                why = f"the table has no column {' or '.join(columns[ours])}; it has {', '.join(self.names)[:400]}"
                name = self.names[0] if self.names else ""
                before = name.rpartition(":")[0] + ":"
                if name.removeprefix(before) in columns[ours]:
                    why = f"{before!r} stands before the header, as grep without -h puts it"
                raise InputError(why, file=log.name, hint=self._hint)
        self._at = {ours: self.names.index(name) for ours, name in self.found.items()}
        self._needed_at = [self._at[ours] for ours in needed]
        self._sure = {place for ours, place in self._at.items() if ours not in optional}
        records = map(self._split, head)
        self._kinds = self._learned(
            [fields for fields in records if len(fields) == len(self.names)]
        )

    def __contains__(self, ours: str) -> bool:
        return ours in self.found

    # --- the header -------------------------------------------------------------------------------------------------

    def _begin(self, line: str) -> list[str]:
        """Return the names of the columns by the first line, or by what the user says; finds the delimiter."""
        log, quoted, parts = self._log, _QUOTED.match(line), _HEADER.match(line.strip())
        wanted = set().union(*self._needed)
        if not self._given and len(wanted.intersection(line.lower().split())) > 1:
            why = "is a table with spaces between its columns, which cut what is long"
            raise InputError(why, file=log.name, hint=self._hint)
        mark = max(_MARKS, key=line.count)
        mark = parts[1] if parts and mark not in line else mark
        self._mark = self._given or (quoted[1] if quoted else mark)
        names = self._cells(line)
        met = len(wanted.intersection(self._renamed(names)))
        fields = log.settings.fields
        fields = self._table.header or PRESETS.get(",".join(fields), fields)
        if self._table.header or not (self._ours or met >= min(2, len(self._needed))):
            if not fields:
                hint = (
                    layout(line, log.settings.delimiter)
                    or f"{self._hint}, or name the columns with --fields"
                )
                raise InputError(
                    f"line {log.lines.read + 1}: expected {self._expected}",
                    file=log.name,
                    hint=hint,
                )
            names = [name.split("%")[0] for name in fields]
            if not (self._given or quoted):
                counts = {mark: line.count(mark) + 1 - len(names) for mark in _MARKS}
                self._mark = next(
                    (mark for mark, more in counts.items() if more in (0, 1)), "|"
                )
            cells = line.split(self._mark)
            if (
                len(cells) == len(names) + 1
                and not cells[-1]
                and all(map(_is_kind, names, cells))
            ):
                names.append("")  # sacct -p ends every line with a delimiter
        self._is_csv = quoted is not None or self._mark == ","
        return names

    def _cells(self, header: str) -> list[str]:
        """The names in a header line, which may begin with a byte order mark."""
        return [
            cell.strip().strip('"')
            for cell in header.removeprefix(_BOM).split(self._mark)
        ]

    def _renamed(self, raw: Sequence[str]) -> list[str]:
        """Our names of columns, in lower case; one of theirs that is one of ours and is not meant gets a mark."""
        taken = {name.lower() for name in self._ours.values()}
        marked = [f"{name}_" if name.lower() in taken else name for name in raw]
        return [
            self._ours.get(name, other).lower()
            for name, other in zip(raw, marked, strict=True)
        ]

    def _is_header(self, line: str, number: int) -> bool:
        """Whether a line is the header, which files put together repeat; InputError where another table begins."""
        usual = {self._raw[0].lower()}.union(*self._needed[:1])
        if not any(name in line.lower() for name in usual):
            return False
        cells = self._cells(line)
        if [cell.lower() for cell in cells] == [name.lower() for name in self._raw]:
            return True
        names = set(self._renamed(cells))
        if not self._needed or any(names.isdisjoint(each) for each in self._needed):
            return False
        why = f"line {number}: a header with other columns than the first: {line[:400]}"
        hint = f"expected {self._mark.join(self.names)[:400]}: give each table as a file of its own"
        raise InputError(why, file=self._log.name, hint=hint)

    def _learned(self, records: list[list[str]]) -> set[int]:
        """The columns that hold what their names say, by the first records; refuses another order of `--fields`."""
        kinds, order = set(), "--fields names the columns in their order in the file"
        for place, name in enumerate(self.names):
            cells = [
                record[place] for record in records if record[place] not in MISSING
            ]
            fits = not cells or any(_is_kind(name, cell) for cell in cells)
            if fits or len(cells) < _ENOUGH:
                kinds.add(place)
            in_capitals = any(_is_kind(name, cell.upper()) for cell in cells)
            if fits or in_capitals or not self._log.settings.fields:
                continue
            why = f"column {place + 1}, by --fields {name}, never holds such in the first rows"
            if place in self._at.values():
                raise InputError(
                    f"{why}, but {cells[0][:80]!a}", file=self._log.name, hint=order
                )
            self._log.note(
                f"{why}: is the order of --fields right?", 1, ascii(cells[0][:80])
            )
        ends = [self._at[name] for name in ("start", "end") if name in self._at]
        stamps = [
            [record[place] for place in ends]
            for record in records
            if self._log.settings.fields
        ]
        ordered = {
            pair[0] < pair[1]
            for pair in stamps
            if len(set(pair)) == 2 and all(map(_STAMP.match, pair))
        }
        if ordered == {False}:
            why = "by --fields each of the first rows ends before it starts"
            raise InputError(why, file=self._log.name, hint=order)
        return kinds

    # --- blocks of rows ---------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Rows]:
        if self._is_parquet:
            yield from self._parquet_rows()
            return
        lines = self._log.lines
        number, block = lines.read + 1, lines.block()
        while block is not None:
            after = lines.block()
            rows, rest = self._read(
                self._plain_bytes(block), number, is_last=after is None
            )
            if len(rows):
                yield rows
            number += block.count(b"\n") + 1
            if rest and after is not None:
                number -= rest.count(b"\n") + 1
                after = rest + b"\n" + after
            block = after

    def _plain_bytes(self, block: bytes) -> bytes:
        """The bytes as UTF-8, in which only line feeds end lines, with a delimiter of one byte."""
        if self._given == _UNIT_SEPARATOR:
            block = block.replace(self._text.encode(), self._given.encode())
        block = block.replace(b"\r", b" ")
        return block if block.isascii() else block.decode("utf-8", "replace").encode()

    def _plain(self, line: str) -> str:
        return self._plain_bytes(line.encode("utf-8", "surrogateescape")).decode()

    def _read(self, block: bytes, first: int, *, is_last: bool) -> tuple[Rows, bytes]:
        """Divide a block into rows; what is left is a record at its end that may go on in the next block."""
        table, is_usual = self._divide(block)
        at = np.flatnonzero(is_usual)
        singles: dict[int, list[str] | Refused] = {}
        end, rest = 0, ""
        lines = [] if is_usual.all() else block.decode().split("\n")
        for begin in np.flatnonzero(~is_usual).tolist():
            if begin < end:
                continue
            end, record = self._record(lines, begin, first, is_last=is_last)
            if not end:
                rest, end = "\n".join(lines[begin:]), len(lines)
            is_usual[begin:end] = False
            if record is not None:
                singles[begin] = record
        line = np.concatenate(
            [np.flatnonzero(is_usual), np.array(list(singles), dtype=np.int64)]
        )
        if lines:
            cells = {
                name: [
                    "" if isinstance(record, Refused) else record[int(name)]
                    for record in singles.values()
                ]
                for name in table.column_names
            }
            others = pa.table({name: texts(column) for name, column in cells.items()})
            order = np.argsort(line)
            table = pa.concat_tables(
                [table.filter(pa.array(is_usual[at])), others]
            ).take(pa.array(order))
            line = line[order]
        why = Why(len(line))
        refused = {
            begin: record
            for begin, record in singles.items()
            if isinstance(record, Refused)
        }
        for reason in {record.why for record in refused.values()}:
            mine = [begin for begin, record in refused.items() if record.why == reason]
            why.where(
                np.isin(line, mine), reason, lambda row: refused[int(line[row])].detail
            )
        columns = {
            ours: self._readable(table[str(place)], self._raw[place])
            for ours, place in self._at.items()
        }
        return Rows(first + line, columns, why), rest.encode()

    def _divide(self, block: bytes) -> tuple[pa.Table, Mask]:
        """Return the columns of rows of the usual form, and which lines these are.

        Lines that are blank, or a header, are none; in a table in which rows take several lines none is.
        """
        odd: list[int] = []

        def skip(row: csv.InvalidRow) -> str:
            odd.append(row.number - 1)
            return "skip"

        names = [str(place) for place in range(len(self.names))]
        wanted = [str(place) for place in sorted(set(self._at.values()))]
        table = pa.table({name: texts([]) for name in wanted})
        is_usual = np.ones(block.count(b"\n") + 1, dtype=bool)
        quote = '"' if self._is_csv else False
        with suppress(pa.ArrowInvalid):
            table = csv.read_csv(
                pa.py_buffer(block),
                csv.ReadOptions(
                    use_threads=False, block_size=len(block) + 1, column_names=names
                ),
                csv.ParseOptions(
                    delimiter=self._mark,
                    quote_char=quote,
                    invalid_row_handler=skip,
                    ignore_empty_lines=False,
                ),
                csv.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict.fromkeys(names, pa.string()),
                ),
            )
        is_usual[odd] = False
        if len(table) != np.count_nonzero(is_usual):
            return table.slice(0, 0), np.zeros_like(is_usual)
        begins = table[str(self._needed_at[0])] if self._needed_at else table[wanted[0]]
        doubtful = flags(
            pc.is_in(
                begins, pa.array(["", *self._raw, *(_BOM + name for name in self._raw)])
            )
        )
        if (
            is_usual[-1]
            and self._is_csv
            and block.count(b'"', block.rfind(b"\n") + 1) % 2
        ):
            doubtful[-1] = True
        if doubtful.any():
            table = table.filter(pa.array(~doubtful))
            is_usual[np.flatnonzero(is_usual)[doubtful]] = False
        return table, is_usual

    def _readable(self, column: pa.ChunkedArray, theirs: str) -> pa.Array:
        """Return a column without quotes around cells, those of a published table made readable."""
        cells = column.combine_chunks()
        if not self._is_csv and pc.any(pc.starts_with(cells, '"')).as_py():
            cells = pc.replace_substring_regex(cells, '^"(.*)"$', r"\1")
        convert = self._table.convert.get(theirs)
        if convert is None:
            return cells
        coded = cells.dictionary_encode()
        return pa.array(
            [convert(cell) for cell in coded.dictionary.to_pylist()], pa.string()
        ).take(coded.indices)

    # --- records that are no line of the usual form -----------------------------------------------------------------

    def _split(self, text: str) -> list[str]:
        """The fields of a record, of which some may be in quotes."""
        with suppress(Error):
            quoted = (
                next(reader([text], delimiter=self._mark), []) if '"' in text else []
            )
            if (self._is_csv and quoted) or len(quoted) == len(self.names):
                return quoted
        return text.split(self._mark)

    def _record(
        self, lines: Sequence[str], begin: int, first: int, *, is_last: bool
    ) -> tuple[int, list[str] | Refused | None]:
        """Return the line after the record that begins on a line, and its fields, why there are none, or no record.

        The line after it is 0 where the record may go on in the next block.
        """
        if not _holds_a_row(lines[begin]) or self._is_header(
            lines[begin], first + begin
        ):
            return begin + 1, None
        columns, end, text = len(self.names), begin, ""
        marks = quotes = 0
        for line in lines[begin : begin + _MOST_LINES]:
            if end > begin and (
                self._is_header(line, first + end) or self._begins(line)
            ):
                break
            end += 1
            marks += line.count(self._mark)
            quotes += line.count('"')
            text = f"{text}\n{line}" if text else line
            is_open = self._is_csv and quotes % 2
            if (
                marks + 1 >= columns
                and not is_open
                and len(fields := self._split(text)) >= columns
            ):
                ways = self._ways(fields)
                unclear = Unusable(_UNCLEAR, f"{len(fields)} of {columns}")
                return end, ways[0] if len(ways) == 1 else unclear
        if end == len(lines) and not is_last and end - begin < _MOST_LINES:
            return 0, None
        fields = self._split(text)
        padded = fields + [""] * (columns - len(fields))
        if (
            max(self._sure) + 1 < len(fields) <= columns
            and self._begins(lines[begin])
            and self._agrees(padded)
        ):
            self._log.note(
                "has fewer fields than columns, but those that are needed",
                first + begin,
            )
            return end, padded
        return end, Unusable(_CUT_OFF, f"{len(fields)} of {columns}")

    def _begins(self, line: str) -> bool:
        """Whether a line is a record of its own rather than the continuation of one."""
        fields = self._split(line)
        is_open = self._is_csv and line.count('"') % 2
        if (
            is_open
            or len(fields) <= max(self._needed_at, default=0)
            or not fields[self._needed_at[0]]
        ):
            return False
        if len(fields) > len(self.names):
            return len(self._ways(fields)) > 0
        return None not in [
            self._score(place, fields[place]) for place in self._needed_at
        ]

    def _score(self, place: int, text: str) -> int | None:
        """How well a text fits a column; None when it cannot be what the column holds."""
        name = self.names[place]
        if text in MISSING or name not in _KINDS or place not in self._kinds:
            return 0
        if _is_kind(name, text):
            return 1
        is_list = self._mark == "," and name in _LISTS
        return None if is_list or place in self._needed_at else -1

    def _ways(self, fields: list[str]) -> list[list[str]]:
        """The best ways to give fields in excess to columns that may hold delimiters, by what is read; a few of them.

        Of all ways the one is best in which most fields are what their column should hold.
        """
        columns, mark = len(self.names), self._mark
        open_ended = _FREE_TEXT.union(_LISTS if mark == "," else ())

        @cache
        def best(place: int, at: int) -> _Ways | None:
            """Return the best ways to give the fields from one on to the columns from one on."""
            if place == columns:
                return (0, {(): []}) if at == len(fields) else None
            found: _Ways | None = None
            spare = len(fields) - at - (columns - place)
            for excess in range(
                spare + 1 if self.names[place] in open_ended else min(spare + 1, 1)
            ):
                text = mark.join(fields[at : at + 1 + excess])
                score = self._score(place, text)
                rest = None if score is None else best(place + 1, at + 1 + excess)
                total = None if score is None or rest is None else score + rest[0]
                if rest is None or total is None or (found and found[0] > total):
                    continue
                read = (text,) if place in self._sure else ()
                ways = {
                    read + others: [text, *cells] for others, cells in rest[1].items()
                }
                if found and found[0] == total:
                    ways |= found[1]
                found = total, dict(list(ways.items())[:_MOST_WAYS])
            return found

        if len(fields) == columns:
            return [fields]
        found = best(0, 0) if len(fields) - columns <= _MOST_EXCESS else None
        return list(filter(self._agrees, found[1].values())) if found else []

    def _agrees(self, fields: list[str]) -> bool:
        """Whether a record has as many nodes as it says, and lasts from its start to its end as long as it says."""
        stated = dict(zip(self.names, fields, strict=True))
        count = stated.get("allocnodes") or stated.get("nnodes", "")
        with suppress(HostListError):
            nodes = len(expand(stated.get("nodelist", "")))
            if nodes and count.isdecimal() and int(count) != nodes:
                return False
        length = limit_ns(stated.get("elapsed") or stated.get("elapsedraw", ""))
        if length == NONE:
            return True
        start, end = (_UTC.time(stated.get(name, "")) for name in ("start", "end"))
        return NONE in (start, end) or end - start > length - _SLACK_NS

    # --- Parquet ----------------------------------------------------------------------------------------------------

    def _parquet_columns(self) -> list[str]:
        """The names of the columns of a Parquet file, but for those of nested types."""
        path = Path(self._log.name)
        with path.open("rb") if path.is_file() else BytesIO() as file:
            self._is_parquet = file.read(4) == PARQUET
        if not self._is_parquet:
            raise InputError(f"holds no table; {self._hint}", file=self._log.name)
        with _damage_told(path):
            return [
                each.name
                for each in parquet.read_schema(path)
                if not pa.types.is_struct(each.type)
            ]

    def _parquet_rows(self) -> Iterator[Rows]:
        """Read the columns of a Parquet file; its first row is line 2, as in a table with a header."""
        path, number = Path(self._log.name), 2
        names = {ours: self._raw[place] for ours, place in self._at.items()}
        with _damage_told(path), parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH, columns=sorted(set(names.values()))):
                columns = {
                    name: pa.chunked_array([_as_text(batch.column(name))])
                    for name in batch.schema.names
                }
                cells = {
                    ours: self._readable(columns[name], name)
                    for ours, name in names.items()
                }
                yield Rows(
                    np.arange(number, number + len(batch)), cells, Why(len(batch))
                )
                number += len(batch)
                self._log.items = number - 1


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """Raise InputError where a Parquet file is damaged."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"cannot be read as Parquet: {str(error).splitlines()[0]}", file=path
        ) from error


def _as_text(column: pa.Array) -> pa.Array:
    """A column of Parquet as text: lists with commas, times as ISO stamps, with Z where the column has a zone."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _as_text(column.dictionary_decode())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        column = pc.binary_join(column.cast(pa.list_(pa.string())), ",")
    # Seconds without a fraction, and whole numbers beside missing ones, are the usual ones.
    shorter = pa.timestamp("s", kind.tz) if pa.types.is_timestamp(kind) else pa.int64()
    if pa.types.is_timestamp(kind) or pa.types.is_floating(kind):
        whole = column.cast(shorter, safe=False)
        column = whole if whole.cast(kind).equals(column) else column
    return pc.fill_null(column.cast(pa.string()), "")


# --- tables that others published -----------------------------------------------------------------------------------

Convert = Callable[[str], str]
_PRINTED_LIST = re.compile(r"\[.*\]", re.DOTALL)
# What a host list may be as well.
_NUMBERS = re.compile(r"\[[\d,-]+\]", re.ASCII)
# An item of a printed list, without its quotes: a name, or a host list of its own.
_ITEM = re.compile(r"[\w.:+@-]+(?:\[[\d,-]+\][\w.:+@-]*)*", re.ASCII)
# Relative times are below: a hundred years.
_MOST_RELATIVE_S = 3.2e9
# What is added to them, as no log has times of 1970: whole weeks, so that days of the week stay.
_ADDED_S = 104 * 7 * 86_400
# The Standard Workload Format has 18; converters append others.
_SWF_FIELDS = 18


def column_map(text: str) -> dict[str, str]:
    """`--map` as a dictionary from a column's name here to its name in the file.

    Raises
    ------
    InputError
        When it is not OURS=THEIRS, separated by commas, or names one column twice.

    Examples
    --------
    >>> column_map("node=nodes,start=start_time,end=end_time")
    {'node': 'nodes', 'start': 'start_time', 'end': 'end_time'}
    """
    pairs: dict[str, str] = {}
    for item in text.split(",") if text else ():
        ours, _, theirs = (part.strip() for part in item.partition("="))
        if not (ours and theirs):
            raise InputError(
                f"--map: expected OURS=THEIRS,... such as start=start_time, not {item!r}"
            )
        if ours in pairs:
            raise InputError(f"--map: {ours} is given twice")
        pairs[ours] = theirs
    return pairs


def list_of_names(text: str) -> str:
    """A list as Python, NumPy or JSON prints it, as a host list; a host list stays.

    >>> [list_of_names(text) for text in ("['r1-n2', 'r3-n4']", "[1, 2]", "cn[001-003]", "[1-3]")]
    ['r1-n2,r3-n4', '1,2', 'cn[001-003]', '[1-3]']
    """
    stripped = text.strip()
    if not _PRINTED_LIST.fullmatch(stripped) or _NUMBERS.fullmatch(stripped):
        return stripped
    return ",".join(_ITEM.findall(stripped[1:-1]))


def stamp_of_seconds(text: str) -> str:
    """Seconds since an instant that is not stated, as a stamp from 1971-12-30 on; anything else stays.

    >>> stamp_of_seconds("2081336.0")
    '1972-01-23T02:08:56.000000Z'
    """
    seconds = read_number(text)
    if math.isnan(seconds) or not 0 <= seconds < _MOST_RELATIVE_S:
        return text
    return f"{datetime.fromtimestamp(_ADDED_S + seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _extracted(pattern: str, text: str) -> str:
    """The first group of a cell that matches as a whole, else -1, as SWF calls the unknown."""
    match = re.fullmatch(pattern, text.strip(), re.ASCII)
    return match[1] if match else "-1"


_CONVERSIONS: dict[str, Convert] = {
    "list": list_of_names,
    "relative-seconds": stamp_of_seconds,
}


@dataclass(frozen=True, slots=True)
class PublicTable:
    """How a table of others is read: a published one as public_tables.toml has it, or as `--map` states.

    Parameters
    ----------
    form
        The format that it is read as.
    columns
        Names of columns in the words of the format, and theirs, as `--map` has them; empty: the file is read as it is.
    header
        All of its columns, for files without a header line.
    convert
        What makes cells of some of their columns readable.
    lookup
        Columns whose cells are replaced by those of another file: by the column that both have, that of the other.
    processors_per_node, machine_nodes
        As the options of `ingest`, where these are not given.
    """

    form: str
    columns: str = ""
    header: tuple[str, ...] = ()
    convert: Mapping[str, Convert] = field(default_factory=lambda: MappingProxyType({}))
    lookup: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    processors_per_node: int | None = None
    machine_nodes: int | None = None

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> PublicTable:
        """Make one of its section in public_tables.toml."""
        rest = {**stated, "header": tuple(stated.get("header", ()))}
        convert = {
            name: _CONVERSIONS[word] for name, word in rest.pop("convert", {}).items()
        }
        convert |= {
            name: partial(_extracted, pattern)
            for name, pattern in rest.pop("extract", {}).items()
        }
        return cls(**rest, convert=convert)


@cache
def public_tables() -> dict[str, PublicTable]:
    """Return all published tables that have a map here, by name."""
    text = (
        Path(__file__)
        .with_name("formats")
        .joinpath("public_tables.toml")
        .read_text("utf-8")
    )
    return {name: PublicTable.of(part) for name, part in tomllib.loads(text).items()}


def public_table(name: str, form: str) -> PublicTable:
    """The table of a name; `form` is the format that the user asks for, or auto.

    Raises
    ------
    InputError
        When there is none, or it is read as another format.
    """
    table = public_tables().get(name.lower())
    if table is None:
        meant, there = did_you_mean(name, public_tables()), ", ".join(public_tables())
        raise InputError(
            f"--map: expected OURS=THEIRS,... or one of {there}, not {name!r}{meant}"
        )
    if form not in ("auto", table.form):
        raise InputError(f"--map {name} is read as {table.form}, not as {form}")
    return table


def looked_up(log: Log, key: str, column: str) -> dict[str, str] | None:
    """Cells of a column by the cells of another, those of one key with commas between; None without these columns."""
    table = Table(log, {key: (key.lower(),), column: (column.lower(),)}, needed=())
    if key not in table or column not in table:
        return None
    cells: dict[str, list[str]] = {}
    for rows in table:
        for one, other in zip(
            rows.cells[key].to_pylist(), rows.cells[column].to_pylist(), strict=True
        ):
            cells.setdefault(one.strip(), []).append(other.strip())
    return {one: ",".join(others) for one, others in cells.items()}


def moved_fields(log: Log) -> dict[int, tuple[int, Convert]]:
    """Fields of SWF that `--map` takes from elsewhere: places from 0 on, and for each its source and a conversion.

    Raises
    ------
    InputError
        When the map has other names than numbers of fields.
    """
    table = cast(PublicTable, log.settings.table or PublicTable(""))
    moved: dict[int, tuple[int, Convert]] = {}
    for ours, theirs in column_map(table.columns).items():
        if not (
            ours.isdecimal()
            and theirs.isdecimal()
            and 0 < int(ours) <= _SWF_FIELDS
            and int(theirs)
        ):
            why = f"--map: expected OURS=THEIRS with numbers of fields, ours from 1 to {_SWF_FIELDS}, such as 5=21"
            raise InputError(why)
        moved[int(ours) - 1] = int(theirs) - 1, table.convert.get(theirs, str)
    return moved
