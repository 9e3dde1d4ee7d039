"""Tables with a delimiter between their fields, CSV and Parquet, as columns of text; and tables that others published.

What Slurm and its like print is not escaped: a delimiter or a line break in a job's name, comment or command line is
printed as it is. Arrow divides rows of the usual form, one a line; `Table._record` makes such rows of all others: it
joins lines until all fields are there and gives fields in excess to columns of free text, such that the columns of a
known kind (times, numbers, ids) hold what they should.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from csv import Error, reader
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from bft.models import InputError
from bft.models.cells import read_number
from bft.models.checks import did_you_mean
from bft.replay.logs.hosts import HostListError, expand, flags
from bft.replay.logs.lines import parquet_damage
from bft.replay.logs.records import SKIPPED, Log, Why, texts
from bft.replay.logs.times import MISSING, Mask, Whole

# --- what columns hold ----------------------------------------------------------------------------------------------

# Columns of sacct that tell all of jobs that is used here. Of jobs that wait, NNodes is what they ask for.
SACCT_FIELDS = "JobID,NodeList,NNodes,Submit,Eligible,Start,End,Timelimit,Partition,User,State,Suspended,AllocTRES"
# What XDMoD's ingestion has sacct print, without a header.
PRESETS = {
    "xdmod": ("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit",
              "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem",
              "ReqTRES", "AllocTRES", "Timelimit", "NodeList", "JobName"),
}  # fmt: skip
# What is exported without a header: the format with its --fields, and the columns.
_LAYOUTS = {
    "slurm --fields xdmod": PRESETS["xdmod"],
    **{f"slurm --fields {names}": names.split(",") for names in (
        SACCT_FIELDS, "JobID,NodeList,AllocNodes,Start,End,State", "JobID,NodeList,NNodes,Start,End",
        "JobID,NodeList,Start,End,State", "JobID,NodeList,Start,End",
    )},
    "intervals --fields node,start,end": ("node", "start", "end"),
    "intervals --fields node,start,end,state": ("node", "start", "end", "word"),
    "what sacct prints by default, which lack nodes and times":
        ("JobID", "JobName", "Partition", "Account", "AllocCPUS", "State", "ExitCode"),
}  # fmt: skip
# Columns in which a user (or admin: reason) may have written anything.
_FREE_TEXT = frozenset(
    {"admincomment", "comment", "constraints", "container", "extra", "jobname", "reason", "stderr", "stdin", "stdout",
     "submitline", "systemcomment", "wckey", "workdir"}
)  # fmt: skip
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d{9,11}(\.\d+)?$"
_LENGTH = r"(\d+-)?(\d+:)?\d+:\d+(\.\d+)?$|Partition_Limit$|UNLIMITED$|INVALID$"
_WHOLE = r"\d+$"
_HOST = rf"(?!{_STAMP})(?=[^,])[\w.:+@-]*(\[[\w,-]+\][\w.:+@-]*)*"
_HOSTS = rf"(?!{_LENGTH}|{_WHOLE})({_HOST}(,{_HOST})*|None assigned)$"
_AMOUNT = r"[^,=]+=[^,=]*"
# Columns that hold lists with commas: in a table with commas between its fields, nothing says where such a list ends.
_LISTS = {
    **dict.fromkeys(("nodelist", "nodename"), _HOSTS),
    **dict.fromkeys(("alloctres", "reqtres", "tres"), f"{_AMOUNT}(,{_AMOUNT})*$"),
}
_KINDS = {
    name: re.compile(kind, re.ASCII)
    for name, kind in {
        **_LISTS,
        "jobid": r"\d+(_(\d+|\[[^\]]*\]))?(\+\d+)?(\.\S+)?$",
        "jobidraw": r"\d+(\.\S+)?$",
        **dict.fromkeys(("exitcode", "derivedexitcode"), r"\d+:\d+$"),
        "state": r"[A-Z_]+[*~#!%$@^-]?( by \d+)?(\+[A-Z_]+)*[*~#!%$@^-]?$",
        **dict.fromkeys(("submit", "eligible", "start", "end", "timestart", "timeend"), _STAMP),
        **dict.fromkeys(("elapsed", "timelimit", "cputime", "reserved", "planned", "suspended", "totalcpu"), _LENGTH),
        **dict.fromkeys(
            ("nnodes", "ncpus", "reqcpus", "allocnodes", "alloccpus", "elapsedraw", "cputimeraw", "uid", "gid",
             "dbindex", "associd", "priority", "qosraw", "ntasks", "timelimitraw", "consumedenergyraw", "wckeyid"),
            _WHOLE,
        ),
    }.items()
}  # fmt: skip


def _is_kind(column: str, text: str) -> bool:
    """Whether a text is what a column holds: of columns of no known kind, anything."""
    kind = _KINDS.get(column.lower())
    return kind is None or text in MISSING or kind.match(text) is not None


# Most frequent delimiters, and any other that stands between two names of a header.
_MARKS = "|,;\t"
_OTHER_MARK = re.compile(r'[A-Za-z]\w*"?([^\w\s"]+)"?[A-Za-z]')


def _cells(text: str, mark: str, *, quoted: bool = True) -> list[str]:
    """The fields of a record, of which some may be in quotes."""
    if quoted and '"' in text and len(mark) == 1:
        with suppress(Error):
            return next(reader([text], delimiter=mark), [])
    return text.split(mark)


def layout(line: str, delimiter: str = "") -> str:
    """Return a hint on the first line of a table without a header: the `--fields` that fit it; empty when none do."""
    mark = delimiter or next((mark for mark in _MARKS if mark in line), "\t")
    cells = _cells(line, mark)
    for fields, columns in _LAYOUTS.items():
        # sacct -p ends a line with a delimiter.
        is_long_enough = cells[len(columns) :] in ([], [""]) and len(cells) >= len(
            columns
        )
        if is_long_enough and all(map(_is_kind, columns, cells)):
            usual = "," if fields.startswith("intervals") else "|"
            option = "" if mark == usual else f" --delimiter '{mark}'"
            return f"it has no header; its first line fits {fields}{option}".replace(
                "\t", "\\t"
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
        mine = pa.array(rows)
        cells = {name: column.filter(mine) for name, column in self.cells.items()}
        return Rows(self.line[rows], cells, self.why.taken(np.flatnonzero(rows)))


# A record's lines; lines that are held against the kinds of columns, and values from which on one may be of none.
_MOST_LINES, _CHECKED, _ENOUGH = 1_000, 100, 5
_BATCH = 50_000
_UNCLEAR = (
    "has another number of fields than columns, and which belong together is not clear"
)
_CUT_OFF = "has fewer fields than columns: cut off?"


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
        self._public: PublicTable = log.settings.table or PublicTable()
        renamed = column_map(self._public.columns)
        self._ours = {theirs: ours for ours, theirs in renamed.items()}
        self._needed = [set(columns[name]) for name in needed]
        hint = f"export with {command}" if command else f"expected {expected}"
        self._text = self._mark = ","
        self._is_csv = False
        head = "\n".join(log.lines.head(_holds_a_row, _CHECKED))
        plain = head.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        lines = plain.replace("\r", " ").split("\n") if head else []
        if log.lines.columns is not None:
            self._raw = log.lines.columns
        elif lines:
            first = ", ".join(columns[name][0] for name in needed)
            wanted = expected or f"a header with the columns {first}"
            self._raw = self._begin(lines[0], wanted, hint)
        else:
            raise InputError(f"holds no table; {hint}", file=log.name)
        for theirs in self._ours.keys() - set(self._raw):
            why = f"--map: no column {theirs!r}{did_you_mean(theirs, self._raw)}"
            has = f"the header has {', '.join(self._raw)[:400]}"
            raise InputError(why, file=log.name, hint=has)
        self.names = self._renamed(self._raw)
        self.found: dict[str, str] = {}
        for ours, names in columns.items():
            there = [name for name in names if name in self.names]
            if there:
                self.found[ours] = there[0]
            elif ours in needed:
                why = f"the table has no column {' or '.join(names)}; it has {', '.join(self.names)[:400]}"
                if any(":" in name for name in self.names):
                    why += " (grep without -h puts a name before the header)"
                raise InputError(why, file=log.name, hint=hint)
        log.refuse_unstated(
            {
                ours: f"the column {' or '.join(names)} ({hint})"
                for ours, names in columns.items()
                if ours not in self.found
            }
        )
        self._at = {ours: self.names.index(name) for ours, name in self.found.items()}
        self._needed_at = [self._at[ours] for ours in needed]
        self._sure = [place for ours, place in self._at.items() if ours not in optional]
        holds_marks = _FREE_TEXT.union(_LISTS if self._mark == "," else ())
        places = range(len(self.names))
        self._open = [place for place in places if self.names[place] in holds_marks]
        self._kinds = self._learned(lines)

    def __contains__(self, ours: str) -> bool:
        return ours in self.found

    # --- the header -------------------------------------------------------------------------------------------------

    def _begin(self, line: str, expected: str, hint: str) -> list[str]:
        """Return the names of the columns by the first line, or by what the user says; finds the delimiter."""
        settings, other = self._log.settings, _OTHER_MARK.search(line)
        marks = [other[1], *_MARKS] if other else list(_MARKS)
        wanted = set().union(*self._needed)
        fields = PRESETS.get(",".join(settings.fields), settings.fields)
        fields = tuple(self._public.header or fields)

        def fit(mark: str) -> tuple[int, int]:
            cells = _cells(line, mark)
            filled = len([cell for cell in cells if cell])
            near = -abs(len(cells) - len(fields)) if fields else filled
            return len(wanted.intersection(self._renamed(cells))), near

        text = settings.delimiter or max(marks, key=fit)
        names = [cell.strip() for cell in _cells(line, text)]
        if self._public.header or not (self._ours or fit(text)[0] > 1):
            if not fields:
                why = f"line {self._log.lines.read + 1}: expected {expected}"
                if not settings.delimiter and len(wanted & {*line.lower().split()}) > 1:
                    why = "is a table with spaces between its columns, which cut what is long"
                hint = f"{hint}, or name the columns with --fields"
                hint = layout(line, settings.delimiter) or hint
                raise InputError(why, file=self._log.name, hint=hint)
            # sacct -p ends every line with a delimiter.
            columns = [name.split("%")[0] for name in fields]
            fits = all(map(_is_kind, columns, names))
            ends = fits and names[len(columns) :] == [""]
            names = [*columns, ""] if ends else columns
        self._is_csv = text == "," or f'"{text}' in line
        self._text, self._mark = text, text if len(text.encode()) < 2 else "\x1f"
        return names

    def _renamed(self, raw: Sequence[str]) -> list[str]:
        """Our names of columns, in lower case; one of theirs that is one of ours and is not meant gets a mark."""
        taken = {ours.lower() for ours in self._ours.values()}
        marked = [f"{name}_" if name.lower() in taken else name for name in raw]
        named = zip(raw, marked, strict=True)
        return [self._ours.get(name, other).strip().lower() for name, other in named]

    def _is_header(self, line: str, number: int) -> bool:
        """Whether a line is the header, which files put together repeat; InputError where another table begins."""
        names = self._renamed(self._split(line))
        if any(each.isdisjoint(names) for each in self._needed):
            return False
        if names != self.names:
            why = f"line {number}: a header with other columns than the first: {line[:400]}"
            hint = f"expected {self._mark.join(self.names)[:400]}: give each table as a file of its own"
            raise InputError(why, file=self._log.name, hint=hint)
        return True

    def _learned(self, lines: Sequence[str]) -> list[str]:
        """Return the names of columns that hold what these say by the first lines, else nothing.

        Raises
        ------
        InputError
            When `--fields` has columns in another order.
        """
        records = [self._split(self._plain(line)) for line in lines]
        blanks = [cell != cell.strip() for fields in records for cell in fields]
        self._has_blanks = self._mark != "|" or any(blanks)
        kinds = list(self.names)
        for place, name in enumerate(self.names):
            cells = [fields[place] for fields in records if len(fields) == len(kinds)]
            cells = [cell for cell in cells if cell not in (*MISSING, self._raw[place])]
            if not cells or any(_is_kind(name, cell) for cell in cells):
                continue
            kinds[place] = "" if len(cells) >= _ENOUGH else name
            in_capitals = any(_is_kind(name, cell.upper()) for cell in cells)
            is_read = place in self._at.values()
            if self._log.settings.fields and is_read and not in_capitals:
                why = f"column {place + 1}, by --fields {name}, never holds such in the first rows, "
                why += f"but {cells[0][:80]!a}"
                order = "--fields names the columns in their order in the file"
                raise InputError(why, file=self._log.name, hint=order)
        return kinds

    # --- blocks of rows ---------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Rows]:
        if self._log.lines.columns is not None:
            yield from self._parquet_rows()
            return
        lines, rest = self._log.lines, ""
        while (block := lines.block()) is not None or rest:
            text = "" if block is None else block.decode("utf-8", "replace")
            between = "\n" if rest and block is not None else ""
            text = rest + between + self._plain(text)
            first = lines.read - text.count("\n")
            rows, rest = self._read(text, first, is_last=block is None)
            if len(rows):
                yield rows

    def _plain(self, text: str) -> str:
        """The text in which only line feeds end lines, with a delimiter of one byte."""
        text = text.replace("\r", " ").replace("\ufeff", "")
        return text.replace(self._text, self._mark)

    def _read(self, text: str, first: int, *, is_last: bool) -> tuple[Rows, str]:
        """Divide a block into rows; what is left is a record at its end that may go on in the next block."""
        table, is_usual = self._divide(text)
        column = pc.utf8_lower(table[str(self._needed_at[0])])
        doubtful = flags(pc.is_in(column, texts(["", *map(str.lower, self._raw)])))
        is_open = self._is_csv and text.rpartition("\n")[2].count('"') % 2 == 1
        doubtful[-1:] |= is_open
        is_usual[np.flatnonzero(is_usual)[doubtful]] = False
        begins, why, rest = np.arange(len(table)), Why(len(table)), ""
        if not is_usual.all():
            lines = text.split("\n")
            records, end = self._records(lines, is_usual, first, is_last=is_last)
            rest = "\n".join(lines[end:])
            found = list(records.values())
            table, _ = self._divide("\n".join(usual for usual, *_ in found))
            begins, why = np.array(list(records), dtype=np.int64), Why(len(found))
            for reason in {reason for _, reason, _ in found if reason}:
                mine = np.array([each == reason for _, each, _ in found])
                why.where(mine, reason, lambda row: found[row][2])
        cells = {
            ours: self._readable(table[str(place)].combine_chunks(), self._raw[place])
            for ours, place in self._at.items()
        }
        if self._has_blanks:
            trim = pc.ascii_trim_whitespace
            cells = {name: trim(column) for name, column in cells.items()}
        return Rows(first + begins, cells, why), rest

    def _divide(self, text: str) -> tuple[pa.Table, Mask]:
        """Return the columns of rows of the usual form, and which lines these are.

        Of a table in which rows take several lines, there are none.
        """
        block = text.encode()
        odd: list[int] = []

        def skip(row: csv.InvalidRow) -> str:
            odd.append(row.number - 1)
            return "skip"

        names = [str(place) for place in range(len(self.names))]
        wanted = [str(place) for place in {*self._at.values()}]
        read = csv.ReadOptions(
            use_threads=False, block_size=len(block) + 1, column_names=names
        )
        parse = csv.ParseOptions(
            delimiter=self._mark,
            quote_char='"' if self._is_csv else False,
            invalid_row_handler=skip,
            ignore_empty_lines=False,
        )
        convert = csv.ConvertOptions(
            include_columns=wanted, column_types=dict.fromkeys(names, pa.string())
        )
        is_usual = np.ones(block.count(b"\n") + 1, dtype=bool)
        with suppress(pa.ArrowInvalid):
            table = csv.read_csv(pa.py_buffer(block), read, parse, convert)
            is_usual[odd] = False
            if len(table) == np.count_nonzero(is_usual):
                return table, is_usual
        return pa.table({name: texts([]) for name in wanted}), is_usual & False

    def _readable(self, cells: pa.Array, theirs: str) -> pa.Array:
        """Return a column, that of a published table made readable."""
        convert = self._public.convert.get(theirs)
        return cells if convert is None else converted(cells, convert)

    # --- records that are no line of the usual form -----------------------------------------------------------------

    def _records(
        self, lines: Sequence[str], is_usual: Mask, first: int, *, is_last: bool
    ) -> tuple[dict[int, tuple[str, str, str]], int]:
        """Return the records by the lines on which they begin, and the line after the last.

        Of each a line of the usual form, and why it is not used. One that may go on in the next block is left.
        """
        records: dict[int, tuple[str, str, str]] = {}
        begin = 0
        while begin < len(lines):
            end, text = begin + 1, lines[begin]
            if is_usual[begin]:
                records[begin] = text, "", ""
            elif _holds_a_row(text) and not self._is_header(text, first + begin):
                fields = self._split(text)
                while (
                    end < len(lines)
                    and end - begin < _MOST_LINES
                    and len(fields) < len(self.names)
                ):
                    if self._is_header(lines[end], first + end) or self._ways(
                        self._split(lines[end])
                    ):
                        break
                    end += 1
                    fields = self._split("\n".join(lines[begin:end]))
                is_cut = len(fields) < len(self.names)
                if is_cut and end == len(lines) and not is_last:
                    break
                ways = [fields]
                if len(fields) != len(self.names):
                    is_enough = len(fields) > max(self._sure) + 1
                    ways = self._ways(fields) if is_enough else []
                if len(ways) == 1:
                    records[begin] = self._usual_form(ways[0]), "", ""
                else:
                    nothing = self._mark * (len(self.names) - 1)
                    why = SKIPPED + (_CUT_OFF if is_cut else _UNCLEAR)
                    detail = f"{len(fields)} of {len(self.names)}"
                    records[begin] = nothing, why, detail
            begin = end
        return records, begin

    def _split(self, text: str) -> list[str]:
        """The fields of a record; none while a quote is open."""
        is_open = self._is_csv and text.count('"') % 2
        return [] if is_open else _cells(text, self._mark, quoted=self._is_csv)

    def _ways(self, fields: Sequence[str]) -> list[list[str]]:
        """Return the ways to give fields to columns by which most of these, and all needed, hold what they should.

        Those by which the same is read are one. There are none for a line that does not begin a record.
        """
        spare, last = len(fields) - len(self.names), max(self._needed_at)
        if spare <= 0 and (len(fields) <= last or not fields[self._needed_at[0]]):
            return []
        fields = [*fields, *[""] * -spare]
        # By how many fields are taken: how many hold what they should, and the cells by what of them is read.
        ways: dict[int, tuple[int, dict[tuple[str, ...], list[str]]]] = {
            0: (0, {(): []})
        }
        for place, kind in enumerate(self._kinds):
            before, ways = ways, {}
            most = place + 1 + (max(spare, 0) if place in self._open else 0)
            for taken, (score, found) in before.items():
                for end in range(taken + 1, max(taken + 1, most) + 1):
                    text = self._mark.join(fields[taken:end])
                    fits = _is_kind(kind, text)
                    if not fits and place in (*self._needed_at, *self._open):
                        continue
                    is_told = kind in _KINDS and text not in MISSING
                    more = score + (is_told if fits else -1)
                    best, others = ways.get(end, (more, {}))
                    if more < best:
                        continue
                    read = (text,) if place in self._sure else ()
                    mine = {
                        known + read: [*cells, text] for known, cells in found.items()
                    }
                    ways[end] = more, mine | (others if more == best else {})
        _, found = ways.get(len(fields), (0, {}))
        return [cells for cells in found.values() if spare <= 0 or self._agrees(cells)]

    def _agrees(self, cells: Sequence[str]) -> bool:
        """Whether a record has as many nodes as it says."""
        stated = dict(zip(self.names, cells, strict=True))
        count = stated.get("allocnodes") or stated.get("nnodes", "")
        try:
            nodes = len(expand(stated.get("nodelist", "")))
        except HostListError:
            return False
        return not (nodes and count.isdecimal()) or nodes == int(count)

    def _usual_form(self, fields: Sequence[str]) -> str:
        """Return a record as a line that Arrow divides; of free text, delimiters and quotes are lost."""
        quote = '"' if self._is_csv else ""
        cells = (
            cell.replace("\n", " ").replace(quote or self._mark, " ") for cell in fields
        )
        return self._mark.join(f"{quote}{cell}{quote}" for cell in cells)

    # --- Parquet ----------------------------------------------------------------------------------------------------

    def _parquet_rows(self) -> Iterator[Rows]:
        """Read the columns of a Parquet file; its first row is line 2, as in a table with a header."""
        log, begin = self._log, 2
        theirs = {ours: self._raw[place] for ours, place in self._at.items()}
        with parquet_damage(log.name), parquet.ParquetFile(log.name) as file:
            for batch in file.iter_batches(_BATCH, columns=list(theirs.values())):
                cells = {
                    ours: self._readable(_as_text(batch.column(name)), name)
                    for ours, name in theirs.items()
                }
                log.items = begin + len(batch) - 1
                yield Rows(np.arange(begin, log.items + 1), cells, Why(len(batch)))
                begin = log.items + 1


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
# A printed list that may be a host list as well.
_NUMBERS = re.compile(r"\[[\d,-]+\]", re.ASCII)
# An item of a printed list, without its quotes: a name, or a host list of its own.
_ITEM = re.compile(r"[\w.:+@-]+(?:\[[\d,-]+\][\w.:+@-]*)*", re.ASCII)
# Relative times are below: a hundred years.
_MOST_RELATIVE_S = 3.2e9
# What is added to them, as no log has times of 1970: whole weeks, so that days of the week stay.
_ADDED_S = 104 * 7 * 86_400


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
            why = f"--map: expected OURS=THEIRS,... such as start=start_time, not {item!r}"
            raise InputError(why)
        if ours in pairs:
            raise InputError(f"--map: {ours} is given twice")
        pairs[ours] = theirs
    return pairs


def list_of_names(text: str) -> str:
    """A list as Python, NumPy or JSON prints it, as a host list; a host list stays.

    >>> [list_of_names(text) for text in ("['r1-n2', 'r3-n4']", "[1, 2]", "cn[001-003]", "[1-3]")]
    ['r1-n2,r3-n4', '1,2', 'cn[001-003]', '[1-3]']
    """
    is_printed = text.startswith("[") and not _NUMBERS.fullmatch(text)
    return ",".join(_ITEM.findall(text)) if is_printed else text


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


def converted(column: pa.Array, convert: Convert) -> pa.Array:
    """Return a column with other cells, which are made once of each different one."""
    coded = column.dictionary_encode()
    made = texts([convert(cell) for cell in coded.dictionary.to_pylist()])
    return made.take(coded.indices)


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

    form: str = ""
    columns: str = ""
    header: Sequence[str] = ()
    convert: Mapping[str, Convert] = field(default_factory=lambda: MappingProxyType({}))
    lookup: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    processors_per_node: int | None = None
    machine_nodes: int | None = None


@cache
def public_tables() -> dict[str, PublicTable]:
    """Return all published tables that have a map here, by name."""
    file = Path(__file__).with_name("formats") / "public_tables.toml"
    tables = {}
    for name, stated in tomllib.loads(file.read_text("utf-8")).items():
        convert = {
            theirs: _CONVERSIONS.get(how) or partial(_extracted, how)
            for theirs, how in stated.pop("convert", {}).items()
        }
        tables[name] = PublicTable(**stated, convert=convert)
    return tables


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
        why = f"--map: expected OURS=THEIRS,... or one of {there}, not {name!r}{meant}"
        raise InputError(why)
    if form not in ("auto", table.form):
        raise InputError(f"--map {name} is read as {table.form}, not as {form}")
    return table


def looked_up(log: Log, key: str, column: str) -> dict[str, str] | None:
    """Cells of a column by the cells of another, those of one key with commas between; None without these columns."""
    columns = {name: (name.lower(),) for name in (key, column)}
    try:
        table = Table(log, columns, needed=columns)
    except InputError:
        return None
    found: dict[str, list[str]] = defaultdict(list)
    for rows in table:
        cells = (rows.cells[name].to_pylist() for name in columns)
        for one, other in zip(*cells, strict=True):
            found[one].append(other)
    return {one: ",".join(others) for one, others in found.items()}
