"""Tables as Slurm's commands print them with -p or -P: fields with a delimiter between them, and nothing escaped.

A delimiter or a line break in a job's name, comment or command line is therefore printed as it is. Records are put
together again here: lines are joined until all fields are there, and fields in excess go to columns of free text such
that the columns of a known kind (times, numbers, ids) hold what they should. Tables in which every field is quoted are
CSV, which spreadsheets and data bases make of it, and are read as such.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import TypeAlias

from bft.models import InputError
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.log_files import LogLines
from bft.replay.logs.reading import MISSING, Reading, Settings, Skipped
from bft.replay.logs.tables import split_fields

# What XDMoD's ingestion has sacct print, without a header.
PRESETS = {
    "xdmod": ("JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit",
              "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem",
              "ReqTRES", "AllocTRES", "Timelimit", "NodeList", "JobName"),
}  # fmt: skip
# What is exported without a header as well: what it is called in --fields, and its columns.
LAYOUTS = {
    "xdmod": PRESETS["xdmod"],
    **{text: tuple(text.split(",")) for text in ("JobID,NodeList,AllocNodes,Start,End,State",
                                                 "JobID,NodeList,NNodes,Start,End",
                                                 "JobID,NodeList,Start,End,State", "JobID,NodeList,Start,End")},
}  # fmt: skip
# sacct -n -P without --format.
_DEFAULT = (
    "JobID",
    "JobName",
    "Partition",
    "Account",
    "AllocCPUS",
    "State",
    "ExitCode",
)
# Records whose fields are held against the kinds of columns that the user has named.
CHECKED = 100
# Columns in which a user (or admin: reason) may have written anything.
FREE_TEXT = frozenset(
    {"admincomment", "comment", "constraints", "container", "extra", "jobname", "reason", "stderr", "stdin", "stdout",
     "submitline", "systemcomment", "wckey", "workdir"}
)  # fmt: skip
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d{9,11}$")
_LENGTH = re.compile(
    r"(\d+-)?(\d+:)?\d+:\d+(\.\d+)?$|Partition_Limit$|UNLIMITED$|INVALID$"
)
_WHOLE = re.compile(r"\d+$")
_STATE = re.compile(r"[A-Z_]+[*~#!%$@^-]?( by \d+)?(\+[A-Z_]+)*[*~#!%$@^-]?$")
KINDS = {
    "jobid": re.compile(r"\d+(_(\d+|\[[^\]]*\]))?(\+\d+)?(\.\S+)?$"),
    "jobidraw": re.compile(r"\d+(\.\S+)?$"),
    "exitcode": re.compile(r"\d+:\d+$"),
    "derivedexitcode": re.compile(r"\d+:\d+$"),
    "state": _STATE,
    "nodelist": re.compile(r"[\w.,:+@\[\]-]+$|None assigned$", re.ASCII),
    "nodename": re.compile(r"[\w.,:+@\[\]-]+$", re.ASCII),
    **dict.fromkeys(("submit", "eligible", "start", "end", "timestart", "timeend"), _STAMP),
    **dict.fromkeys(("elapsed", "timelimit", "cputime", "reserved", "planned", "suspended", "totalcpu"), _LENGTH),
    **dict.fromkeys(
        ("nnodes", "ncpus", "reqcpus", "allocnodes", "alloccpus", "elapsedraw", "cputimeraw", "uid", "gid", "dbindex",
         "associd", "priority", "qosraw", "ntasks", "timelimitraw", "consumedenergyraw", "wckeyid"), _WHOLE
    ),
}  # fmt: skip
_NODES = frozenset({"nodelist", "nodename"})
_HOST = r"(?=[^,])[\w.:+@-]*(\[[\w,-]+\][\w.:+@-]*)*"
_AMOUNT = r"[^,=]+=[^,=]*"
# Columns that hold lists with commas, and what they hold: in a table with commas between its fields, nothing says where
# such a list ends.
LISTS = {
    **dict.fromkeys(("nodelist", "nodename"), re.compile(f"({_HOST}(,{_HOST})*|None assigned)$", re.ASCII)),
    **dict.fromkeys(("alloctres", "reqtres", "tres"), re.compile(f"{_AMOUNT}(,{_AMOUNT})*$")),
}  # fmt: skip
QUOTED = re.compile(r'"[^"]*"(\W)".*"\s*$')


def layout(line: str, delimiter: str = "") -> str:
    """Return a hint on the first line of a table without a header: the `--fields` that fit it; empty when none do."""
    quoted = QUOTED.match(line)
    mark = delimiter or (
        quoted[1] if quoted else next((mark for mark in "|,;\t" if mark in line), "")
    )
    if not mark:
        return ""
    fields = split_fields(line, mark) if quoted or mark == "," else line.split(mark)
    slurm = fields[:-1] if fields and not fields[-1] else fields  # sacct -p
    for name, columns in LAYOUTS.items():
        if _fits(columns, slurm):
            return f"it has no header; its first line fits slurm --fields {name}{_option(mark, '|')}"
    if _fits(_DEFAULT, slurm):
        return "it has no header and looks like the columns that sacct prints by default, which lack nodes and times"
    if (
        len(fields) in (3, 4)
        and _STAMP.match(fields[1])
        and (_STAMP.match(fields[2]) or fields[2] in MISSING)
    ):
        names = ",".join(("node", "start", "end", "state")[: len(fields)])
        return f"it has no header; its first line fits intervals --fields {names}{_option(mark, ',')}"
    return ""


def _option(mark: str, default: str) -> str:
    return "" if mark == default else f" --delimiter '{mark}'".replace("\t", "\\t")


def _fits(columns: Sequence[str], fields: list[str]) -> bool:
    return len(columns) == len(fields) and all(
        text in MISSING or _is_kind(name.lower(), text)
        for name, text in zip(columns, fields, strict=True)
    )


def _is_kind(column: str, text: str) -> bool:
    """Whether a text is what a column holds: of columns of no known kind, anything."""
    if column in _NODES and any(kind.match(text) for kind in (_STAMP, _LENGTH, _WHOLE)):
        return False
    return column not in KINDS or KINDS[column].match(text) is not None


def delimiter_of(line: str, columns: int) -> str:
    """Between the columns of a line without a header; Slurm's where none makes as many."""
    return next(
        (mark for mark in "|,;\t" if line.count(mark) + 1 in (columns, columns + 1)),
        "|",
    )


class Order:
    """Holds the order of columns that the user has named against what the first records hold.

    Parameters
    ----------
    columns, used
        All of them, and the indices of those that are read.
    file, diagnosis
        As the table has them.
    """

    def __init__(
        self,
        columns: Sequence[str],
        used: Collection[int],
        file: str,
        diagnosis: Diagnosis,
    ) -> None:
        self._columns, self._used, self._file, self._diagnosis = (
            columns,
            used,
            file,
            diagnosis,
        )
        self._right: set[int] = set()
        self._odd: dict[int, str] = {}
        self._ordered: set[bool] = set()
        names = {name: k for k, name in reversed(list(enumerate(columns)))}
        self._ends = [
            names.get("start", names.get("timestart", -1)),
            names.get("end", names.get("timeend", -1)),
        ]

    def see(self, fields: Sequence[str]) -> None:
        """Note the values of the columns in one record."""
        for k, (name, text) in enumerate(zip(self._columns, fields, strict=True)):
            if text in MISSING:
                continue
            if _is_kind(name, text):
                self._right.add(k)
            else:
                self._odd.setdefault(k, text)
        start, end = (fields[index] if index >= 0 else "" for index in self._ends)
        if (
            len(start) == len(end)
            and start != end
            and _STAMP.match(start)
            and _STAMP.match(end)
        ):
            self._ordered.add(start < end)

    def judge(self) -> None:
        """Refuse columns that never hold what they should.

        Raises
        ------
        InputError
            When such a column is one that is read; of others it is noted.
        """
        wrong = {k: text for k, text in self._odd.items() if k not in self._right}
        for k, text in wrong.items():
            why = f"column {k + 1}, by --fields {self._columns[k]}, never holds such in the first rows"
            if k in self._used:
                raise InputError(f"{why}, but {text[:80]!a}", file=self._file,
                                 hint="--fields names the columns in their order in the file")  # fmt: skip
            self._diagnosis.note(
                f"{why}: is the order of --fields right?",
                self._file,
                1,
                ascii(text[:80]),
            )
        if self._ordered == {False}:
            raise InputError("by --fields each of the first rows ends before it starts", file=self._file,
                             hint="--fields names the columns in their order in the file")  # fmt: skip


Fields: TypeAlias = list[str] | Skipped
"""The fields of a record, or why it cannot be divided into them."""
# A record's lines, their characters, and fields in excess of its columns.
MOST_JOINED = 1_000
MOST_LENGTH = 4 << 20
MOST_EXCESS = 64
# pandas writes its index as a first column without a name, and calls it Unnamed: 0 when it writes it again.
_INDEX = r'(?:"?(?:Unnamed: \d+)?"?[,;|\t])*'
_HEADER = re.compile(rf'{_INDEX}"?([A-Za-z]\w*)"?([^\w"]+)"?[A-Za-z]')
_BOM = "\ufeff"


class Table:
    """The records of one table.

    Parameters
    ----------
    reading
        As a reader receives it.
    needed
        Columns that are read: each a name, or several of which the first that is there counts. In lower case.
    decisive
        Further ones that a file may lack. Where it has them, a row counts only if it is clear what they hold.
    optional
        Further ones that a file, or a row, may lack.

    Attributes
    ----------
    at
        For each name of `needed`, `decisive` and `optional` (the first of several) the index of its column, or -1.

    Raises
    ------
    InputError
        When there is no header, or it lacks a column.
    """

    def __init__(
        self,
        reading: Reading,
        *,
        needed: Sequence[Sequence[str]],
        decisive: Sequence[Sequence[str]] = (),
        optional: Sequence[Sequence[str]] = (),
        command: str,
    ) -> None:
        self._lines = enumerate(reading.lines, 1)
        self._file, self._diagnosis = reading.file, reading.diagnosis
        self._seen = reading.seen
        self._first: tuple[int, str] | None = None
        self._header = ""
        self._accounted = self._number = 0
        self._pending: list[str] = []  # lines of a record that has lines to come
        self._quoted = False
        self._unsure: list[str] = []
        wanted = {names[0]: names for names in (*needed, *decisive, *optional)}
        self._needed = needed
        self.columns = self._begin(reading.settings, needed, command)
        places = {name: k for k, name in reversed(list(enumerate(self.columns)))}
        self.at = {
            first: next((places[name] for name in names if name in places), -1)
            for first, names in wanted.items()
        }
        for names in needed:
            if self.at[names[0]] < 0:
                raise InputError(
                    f"the table has no column {' or '.join(names)}; it has {', '.join(self.columns)[:400]}",
                    file=self._file,
                    hint=f"export with {command}",
                )
        needed_at = [self.at[names[0]] for names in needed]
        self._at_first = needed_at[0]
        read_at = [self.at[names[0]] for names in (*needed, *decisive)]
        self._last_read = max(read_at)
        columns = needed_at, sorted({place for place in read_at if place >= 0})
        self._aligner = _Aligner(self.columns, *columns, self.delimiter)
        if self._unsure:  # sacct -p ends every line with a delimiter; a name with a delimiter in it looks alike
            ended = _Aligner([*self.columns, ""], *columns, self.delimiter)
            if ended.begins(self._unsure):
                self.columns, self._aligner = [*self.columns, ""], ended

    def __iter__(self) -> Iterator[tuple[int, Fields]]:
        """Number of its first line and fields of each record, one field a column, or why there are none."""
        # Generators within generators would cost each record a detour.
        records = self._csv() if self._quoted else self._plain(self._numbered())
        return records if self._header else self._ordered(records)

    def _ordered(
        self, records: Iterator[tuple[int, Fields]]
    ) -> Iterator[tuple[int, Fields]]:
        """The records, of which the first are held against the columns that the user has named."""
        order = Order(
            self.columns,
            {index for index in self.at.values() if index >= 0},
            self._file,
            self._diagnosis,
        )
        for number, fields in islice(records, CHECKED):
            if not isinstance(fields, Skipped):
                order.see(fields)
            yield number, fields
        order.judge()
        yield from records

    def _account(self, number: int) -> None:
        """The lines up to this one were read."""
        self._seen.lines += number - self._accounted
        self._accounted = number

    @property
    def columnar(self) -> bool:
        """Whether blocks of this table may be read by columns: it has a header, and nothing in it is quoted."""
        plain = (
            len(self.delimiter) == 1
            and self.delimiter.isascii()
            and self.delimiter not in ',"'
        )
        return bool(self._header) and not self._quoted and plain

    def after_header(self) -> None:
        """The header has been read: what follows is taken by `counted` and `careful`."""
        self._number = self._first[0] if self._first else 0
        self._account(self._number)

    def counted(self, lines: int) -> int:
        """So many further lines were read by columns; returns the number of the first."""
        first = self._number + 1
        self._number += lines
        self._account(self._number)
        return first

    def careful(
        self, source: LogLines, lines: list[str]
    ) -> Iterator[tuple[int, Fields]]:
        """The records of these lines, the last of which may go on in those that the source has next."""
        return self._plain(self._until_whole(source, lines))

    def _until_whole(
        self, source: LogLines, lines: list[str]
    ) -> Iterator[tuple[int, str]]:
        for line in lines:
            self._number += 1
            yield self._number, line
        if self._pending:
            for line in source:
                self._number += 1
                yield self._number, line
                if not self._pending:
                    return

    def is_header(self, line: str, number: int) -> bool:
        """Whether a line repeats the header, as in files put together.

        Raises
        ------
        InputError
            When it is the header of another table: the rows after it have other columns.
        """
        line = line.removeprefix(_BOM)
        if not _HEADER.match(line):
            return False
        names = self._columns_of(line)
        if any(set(names).isdisjoint(each) for each in self._needed):
            return False
        if names != self.columns:
            raise InputError(
                f"line {number}: a header with other columns than the first: {line[:400]}",
                file=self._file,
                hint=f"expected {self.delimiter.join(self.columns)[:400]}: give each table as a file of its own",
            )
        return True

    def _columns_of(self, header: str) -> list[str]:
        """The names of columns, in lower case."""
        texts = header.strip("\r").split(self.delimiter)
        return [text.strip('"').strip().lower() for text in texts]

    def _csv(self) -> Iterator[tuple[int, Fields]]:
        """Records of a table whose fields are quoted; line breaks and delimiters inside quotes belong to the field."""
        pending: list[str] = []
        begun = length = quotes = number = 0
        columns, delimiter = len(self.columns), self.delimiter
        try:
            for number, line in self._numbered():
                if (
                    pending
                    and line.startswith('"')
                    and len(split_fields(line, delimiter)) == columns
                ):
                    yield begun, self._cut_short(pending, begun)
                    pending = []
                if not pending:
                    if not line.strip() or line.startswith("#"):
                        continue
                    if self.is_header(line, number):
                        continue
                    begun, length, quotes = number, 0, 0
                pending.append(line)
                length += len(line)
                quotes += line.count('"')
                if quotes % 2:  # inside a field
                    if len(pending) > MOST_JOINED or length > MOST_LENGTH:
                        yield begun, self._cut_short(pending, begun)
                        pending = []
                    continue
                fields = split_fields("\n".join(pending), delimiter)
                if len(fields) == columns or (
                    len(fields) == columns + 1 and not fields[-1]
                ):
                    yield begun, fields[:columns]
                else:
                    yield begun, self._cut_short(pending, begun)
                pending = []
            if pending:
                yield begun, self._cut_short(pending, begun)
        finally:
            self._account(number)

    def _cut_short(self, pending: list[str], begun: int) -> Skipped:
        fields = split_fields("\n".join(pending), self.delimiter)
        return self._skip(begun, "has another number of fields than columns", fields)

    def _skip(self, number: int, why: str, fields: list[str]) -> Skipped:
        """Return why a record has no fields."""
        return Skipped(number, why, f"{len(fields)} of {len(self.columns)}")

    def _plain(
        self, numbered: Iterable[tuple[int, str]]
    ) -> Iterator[tuple[int, Fields]]:
        """Records of a table in which nothing is escaped."""
        columns, delimiter, first = len(self.columns), self.delimiter, self._at_first
        pending = self._pending = []
        begun = size = length = 0
        number = self._accounted
        commas = delimiter == ","
        try:
            for number, line in numbered:
                fields = line.split(delimiter)
                if (
                    commas and '"' in line
                ):  # no output of Slurm's, but what spreadsheets make of it
                    quoted = split_fields(line, delimiter)
                    fields = (
                        quoted
                        if len(fields) != columns or len(quoted) == columns
                        else fields
                    )
                if len(fields) == columns and not pending:
                    # Most rows begin so; headers do not.
                    is_row = fields[first][:1].isdecimal()
                    if is_row or not self.is_header(line, number):
                        yield number, fields
                    continue
                is_header = self.is_header(line, number)
                if pending:
                    if is_header or self._aligner.begins(fields):
                        yield begun, self._cut_off(pending, begun)
                        pending = self._pending = []
                    else:
                        pending.append(line)
                        size += len(fields) - 1
                        length += len(line)
                        if (
                            size >= columns
                            or len(pending) > MOST_JOINED
                            or length > MOST_LENGTH
                        ):
                            parts = "\n".join(pending).split(delimiter)
                            yield begun, self._whole(parts, begun)
                            pending = self._pending = []
                        continue
                if not line.strip() or line.startswith("#") or is_header:
                    continue
                if len(fields) < columns:
                    pending = self._pending = [line]
                    begun, size, length = number, len(fields), len(line)
                else:
                    yield number, self._whole(fields, number)
            if pending:
                yield begun, self._cut_off(pending, begun)
        finally:
            self._account(number)

    def _whole(self, fields: list[str], number: int) -> Fields:
        """A record with at least one field a column."""
        aligned = self._aligner.align(fields)
        if aligned is not None:
            return aligned
        why = "has another number of fields than columns, and which belong together is not clear"
        return self._skip(number, why, fields)

    def _cut_off(self, pending: list[str], number: int) -> Fields:
        """A record that ends too early: of use when the rest was not needed."""
        fields = "\n".join(pending).split(self.delimiter)
        if len(fields) > self._last_read + 1 and self._aligner.begins(fields):
            self._diagnosis.note(
                "has fewer fields than columns, but those that are needed",
                self._file,
                number,
            )
            return fields + [""] * (len(self.columns) - len(fields))
        return self._skip(number, "has fewer fields than columns: cut off?", fields)

    def _numbered(self) -> Iterator[tuple[int, str]]:
        return chain([] if self._first is None else [self._first], self._lines)

    def _begin(
        self, settings: Settings, needed: Sequence[Sequence[str]], command: str
    ) -> list[str]:
        """Read up to the header, or to the first record when the user names the columns."""
        wanted = {name for names in needed for name in names}
        for number, line in self._lines:
            self._first = number, line
            if not line.strip() or line.startswith("#"):
                continue
            parts = _HEADER.match(line.strip())
            quoted = QUOTED.match(line)
            self._quoted = quoted is not None
            self.delimiter = settings.delimiter or (
                quoted[1] if quoted else parts[2] if parts else "|"
            )
            names = self._columns_of(line)
            if parts and len(wanted.intersection(names)) >= 2:
                if not self.delimiter.strip(" "):
                    break
                self._header = line
                return names
            if (
                parts and len(wanted.intersection(line.lower().split())) >= 2
            ):  # columns of spaces
                break
            if settings.fields:
                columns = [
                    name.split("%")[0].lower()
                    for name in PRESETS.get(settings.fields[0], settings.fields)
                ]
                self.delimiter = settings.delimiter or (
                    quoted[1] if quoted else delimiter_of(line, len(columns))
                )
                fields = (
                    split_fields(line, self.delimiter)
                    if quoted
                    else line.split(self.delimiter)
                )
                self._unsure = (
                    fields if len(fields) == len(columns) + 1 and not fields[-1] else []
                )
                return columns
            raise InputError(
                f"line {number}: expected a header with the columns {', '.join(names[0] for names in needed)}",
                file=self._file,
                hint=layout(line, settings.delimiter)
                or f"export with {command}, or name the columns with --fields",
            )
        else:
            raise InputError(f"holds no table; export with {command}", file=self._file)
        raise InputError(
            "is a table with spaces between its columns, which cut what is long", file=self._file,
            hint=f"export with {command}",
        )  # fmt: skip


class _Aligner:
    """Finds which fields belong together in a record that has more fields than columns.

    Columns that may hold delimiters, those of free text and in a table with commas also lists, cut the table into
    segments. All columns of a segment are shifted by as many fields as the columns before them hold in excess. Of all
    ways to spread the excess, the one is taken in which most fields are what their column should hold; when two such
    ways differ in what is read, none.

    Parameters
    ----------
    columns
        Names of all columns.
    needed, read
        Places of those that have to hold what they should, and of these with all others that are read.
    delimiter
        What separates fields.
    """

    def __init__(
        self,
        columns: Sequence[str],
        needed: Sequence[int],
        read: Sequence[int],
        delimiter: str,
    ) -> None:
        self._columns, self._needed, self._delimiter = columns, needed, delimiter
        self._read = read
        self._lists = LISTS if delimiter == "," else {}
        kinds = KINDS | {
            columns[k]: LISTS[columns[k]]
            for k in read
            if columns[k] in LISTS and columns[k] not in KINDS
        }
        self._typed = [
            (k, kinds[name], k in needed)
            for k, name in enumerate(columns)
            if name in kinds
        ]
        free = [
            k
            for k, name in enumerate(columns)
            if name in FREE_TEXT or name in self._lists
        ]
        self._free = free
        bounds = [-1, *free, len(columns)]
        # Typed columns between two that may hold delimiters.
        self._segments = [
            [column for column in self._typed if low < column[0] < high]
            for low, high in pairwise(bounds)
        ]
        self._read_between = [
            [place for place in read if low < place < high]
            for low, high in pairwise(bounds)
        ]

    def begins(self, fields: list[str]) -> bool:
        """Whether a line is a record of its own rather than the continuation of one."""
        if len(fields) <= max(self._needed) or not fields[self._needed[0]]:
            return False
        if len(fields) > len(self._columns):
            return bool(self._ways(fields))
        return (
            _score(
                [column for column in self._typed if column[0] < len(fields)], fields, 0
            )
            is not None
        )

    def align(self, fields: list[str]) -> list[str] | None:
        """One field a column, or None."""
        if len(fields) == len(self._columns):
            return fields
        ways = self._ways(fields)
        if len(ways) != 1:
            return None
        ((_, path),) = ways.items()
        aligned: list[str] = []
        for k in range(len(self._columns)):
            segment = sum(k > index for index in self._free)
            begin = k + path[segment]
            end = k + path[segment + 1] + 1 if k in self._free else begin + 1
            aligned.append(self._delimiter.join(fields[begin:end]))
        return aligned

    def _ways(self, fields: list[str]) -> dict[tuple[str, ...], tuple[int, ...]]:
        """The best ways to spread fields in excess: by what is read, the shifts of all segments; at most two."""
        excess = len(fields) - len(self._columns)
        if not self._free or not 0 < excess <= MOST_EXCESS:
            return {}
        # Shift so far -> (score, {what is read: shifts of all segments}).
        start = _score(self._segments[0], fields, 0)
        if start is None:
            return {}
        best: Mapping[int, tuple[int, dict[tuple[str, ...], tuple[int, ...]]]]
        best = {0: (start, {self._values(0, fields, 0): (0,)})}
        last = len(self._segments) - 1
        for s in range(1, last + 1):
            grown: dict[int, tuple[int, dict[tuple[str, ...], tuple[int, ...]]]] = {}
            for shift in range(excess + 1) if s < last else (excess,):
                score = _score(self._segments[s], fields, shift)
                if score is None:
                    continue
                values = self._values(s, fields, shift)
                for before, (so_far, ways) in best.items():
                    held = self._held(self._free[s - 1], fields, before, shift)
                    if held is None:
                        continue
                    more = {
                        (*known, *held, *values): (*path, shift)
                        for known, path in ways.items()
                    }
                    total, others = grown.get(shift, (-(10**9), {}))
                    if so_far + score > total:
                        grown[shift] = so_far + score, more
                    elif so_far + score == total:
                        # Two that differ are as bad as more; of equal ones the first path stays.
                        grown[shift] = total, dict(list({**more, **others}.items())[:2])
            best = grown
        return best[excess][1] if excess in best else {}

    def _held(
        self, column: int, fields: list[str], before: int, shift: int
    ) -> tuple[str, ...] | None:
        """Join the fields of a column that may hold delimiters; None when it cannot hold these fields."""
        if before > shift:
            return None
        kind = self._lists.get(self._columns[column])
        if kind is None:
            return ()
        text = self._delimiter.join(fields[column + before : column + shift + 1])
        if text not in MISSING and not kind.match(text):
            return None
        return (text,) if column in self._read else ()

    def _values(self, segment: int, fields: list[str], shift: int) -> tuple[str, ...]:
        return tuple(fields[k + shift] for k in self._read_between[segment])


def _score(
    segment: Sequence[tuple[int, re.Pattern[str], bool]], fields: list[str], shift: int
) -> int | None:
    """How well fields fit the columns of a segment; None when one that is needed does not."""
    score = 0
    for k, kind, needed in segment:
        text = fields[k + shift]
        if text in MISSING:
            continue
        if kind.match(text):
            score += 1
        elif needed:
            return None
        else:
            score -= 1
    return score
