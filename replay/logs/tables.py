"""Tables of other people: fields of a line, names of columns in ours, published tables."""

from __future__ import annotations

import csv
import math
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bft.models import InputError
from bft.models.cells import read_number
from bft.models.checks import did_you_mean


def split_fields(line: str, delimiter: str) -> list[str]:
    """Fields of a line, quoted ones (CSV) without their quotes, however long; none when they are no CSV.

    >>> split_fields('1,"cn[1,2]",idle', ",")
    ['1', 'cn[1,2]', 'idle']
    """
    if '"' not in line or len(delimiter) != 1:
        return line.split(delimiter)
    limit = csv.field_size_limit()
    try:
        if (
            len(line) > limit
        ):  # the host list of a large job; whoever reads lines bounds their length
            csv.field_size_limit(len(line))
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
    finally:
        csv.field_size_limit(limit)


_MARKS = ",;|\t"
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
    for item in text.split(","):
        ours, equals, theirs = (part.strip() for part in item.partition("="))
        if not (ours and equals and theirs):
            raise InputError(
                f"--map: expected OURS=THEIRS,... such as start=start_time, not {item!r}"
            )
        if ours in pairs:
            raise InputError(f"--map: {ours} is given twice")
        pairs[ours] = theirs
    return pairs


def renamed(
    lines: Iterable[str],
    names: Mapping[str, str],
    delimiter: str,
    file: str,
    *,
    convert: Mapping[str, Callable[[str], str]] | None = None,
    header: Sequence[str] = (),
) -> Iterator[str]:
    """The lines of a table whose header has our names; a column that has one of ours and is not meant gets a mark.

    Parameters
    ----------
    lines, file, delimiter
        Of the table; an empty delimiter: as in the header.
    names
        Our names of columns, and theirs; where ours are numbers, fields of a table without a header whose fields are
        separated by blanks (SWF): those beyond the standard ones are read only where they are named.
    convert
        What makes the cells of columns, by their names there, readable.
    header
        Names of all columns of a table without a header line: none is looked for.

    Raises
    ------
    InputError
        When the header lacks a column.

    Examples
    --------
    >>> list(renamed(["id,begin,end", "1,2,3"], {"start": "begin", "end": "id"}, "", "f"))
    ['end,start,end_', '1,2,3']
    """
    if names and all(name.isdecimal() for name in names):
        yield from _moved_fields(lines, names, convert or {})
        return
    row = _rewritten(header, ",", convert or {}) if header else None
    longest = max(names.values(), key=len, default="")
    begun, mark = bool(header), delimiter
    for line in lines:
        if begun:
            # Files put together have several headers.
            is_header = not header and longest in line and _is_header(line, names, mark)
        else:
            is_header = bool(line.strip()) and not line.startswith("#")
        if is_header:
            begun, mark = True, mark or max(_MARKS, key=line.count)
            fields, new = _headers(line, names, mark, file)
            if convert:
                row = _rewritten(fields, mark, convert)
                new = _quoted(split_fields(new, mark), mark)
            yield new
        else:
            yield row(line) if row and line.strip() else line


def _moved_fields(
    lines: Iterable[str],
    names: Mapping[str, str],
    convert: Mapping[str, Callable[[str], str]],
) -> Iterator[str]:
    """The lines of SWF with fields in the places of others; rows that lack a field that is named stay as they are."""
    if not all(0 < int(name) <= _SWF_FIELDS for name in names) or not all(
        name.isdecimal() and int(name) > 0 for name in names.values()
    ):
        raise InputError(
            f"--map: expected OURS=THEIRS with numbers of fields, ours from 1 to {_SWF_FIELDS}, such as 5=21"
        )
    for line in lines:
        fields = line.split()
        if line.startswith(";") or len(fields) < max(map(int, names.values())):
            yield line
            continue
        new = fields[:_SWF_FIELDS]
        for ours, theirs in names.items():
            cell = fields[int(theirs) - 1]
            new[int(ours) - 1] = convert.get(theirs, str)(cell)
        yield " ".join(new)


def _rewritten(
    columns: Sequence[str], mark: str, convert: Mapping[str, Callable[[str], str]]
) -> Callable[[str], str]:
    """Return a function that rewrites a row, all of its cells quoted; a row of another width stays as it is."""
    wanted = [
        (columns.index(name), change)
        for name, change in convert.items()
        if name in columns
    ]

    def rewrite(line: str) -> str:
        cells = split_fields(line, mark)
        if len(cells) != len(columns):
            return line
        for place, change in wanted:
            cells[place] = change(cells[place])
        return _quoted(cells, mark)

    return rewrite


def _quoted(cells: Iterable[str], mark: str) -> str:
    doubled = (cell.replace('"', '""') for cell in cells)
    return mark.join(f'"{cell}"' for cell in doubled)


def _names_in(header: str, mark: str) -> list[str]:
    """The names of the columns, of a header that may begin with a byte order mark."""
    return [text.strip() for text in split_fields(header.removeprefix("\ufeff"), mark)]


def _is_header(line: str, names: Mapping[str, str], mark: str) -> bool:
    """Whether a line holds the names of all columns that are renamed, and of more than one."""
    return len(names) > 1 and not set(names.values()).difference(_names_in(line, mark))


def _headers(
    line: str, names: Mapping[str, str], mark: str, file: str
) -> tuple[list[str], str]:
    """Return the names of the columns there, and the header with ours."""
    fields = _names_in(line, mark)
    for theirs in names.values():
        if theirs not in fields:
            meant = did_you_mean(theirs, fields)
            has = f"the header has {', '.join(fields)[:400]}"
            raise InputError(f"--map: no column {theirs!r}{meant}", file=file, hint=has)
    ours = {theirs: name for name, theirs in names.items()}
    taken = {name.lower() for name in names}
    new = [
        ours.get(field, f"{field}_" if field.lower() in taken else field)
        for field in fields
    ]
    quote = '"' if line.lstrip().startswith('"') else ""
    return fields, mark.join(f"{quote}{field}{quote}" for field in new)


_PRINTED_LIST = re.compile(r"\[.*\]", re.DOTALL)
# What a host list may be as well.
_NUMBERS = re.compile(r"\[[\d,-]+\]", re.ASCII)
# An item of a printed list, without its quotes: a name, or a host list of its own.
_ITEM = re.compile(r"[\w.:+@-]+(?:\[[\d,-]+\][\w.:+@-]*)*", re.ASCII)
# Relative times are below: a hundred years.
_MOST_RELATIVE_S = 3.2e9
# What is added to them, as no log has times of 1970: whole weeks, so that days of the week stay.
_ADDED_S = 104 * 7 * 86_400
Convert = Callable[[str], str]


def list_of_names(text: str) -> str:
    """A list as Python, NumPy or JSON prints it, as a host list; a host list stays.

    >>> [list_of_names(text) for text in ("['r1-n2', 'r3-n4']", "[1, 2]", "cn[001-003]", "[1-3]")]
    ['r1-n2,r3-n4', '1,2', 'cn[001-003]', '[1-3]']
    """
    stripped = text.strip()
    if not _PRINTED_LIST.fullmatch(stripped) or _NUMBERS.fullmatch(stripped):
        return stripped
    return ",".join(_ITEM.findall(stripped[1:-1]))


def time_or_none(text: str) -> str:
    """An empty cell where 0 stands for a time that has not come, as in Slurm's data base; anything else stays."""
    return "" if text.strip() in ("0", "0.0") else text


def stamp_of_seconds(text: str) -> str:
    """Seconds since an instant that is not stated, as a stamp from 1971-12-30 on; anything else stays.

    >>> stamp_of_seconds("2081336.0")
    '1972-01-23T02:08:56.000000Z'
    """
    seconds = read_number(text)
    if math.isnan(seconds) or not 0 <= seconds < _MOST_RELATIVE_S:
        return text
    return f"{datetime.fromtimestamp(_ADDED_S + seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


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
        for name, pattern in rest.pop("extract", {}).items():
            convert[name] = _extracting(pattern)
        return cls(**rest, convert=convert)


_CONVERSIONS: dict[str, Convert] = {
    "list": list_of_names,
    "zero-is-none": time_or_none,
    "relative-seconds": stamp_of_seconds,
}


def _extracting(pattern: str) -> Convert:
    """Return what gives the first group of a cell that matches as a whole, else -1, as SWF calls the unknown."""
    compiled = re.compile(pattern, re.ASCII)

    def extract(text: str) -> str:
        match = compiled.fullmatch(text.strip())
        return match[1] if match else "-1"

    return extract


@cache
def public_tables() -> dict[str, PublicTable]:
    """Return all published tables that have a map here, by name."""
    text = Path(__file__).with_name("public_tables.toml").read_text("utf-8")
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
        meant = did_you_mean(name, public_tables())
        there = ", ".join(public_tables())
        raise InputError(
            f"--map: expected OURS=THEIRS,... or one of {there}, not {name!r}{meant}"
        )
    if form not in ("auto", table.form):
        raise InputError(f"--map {name} is read as {table.form}, not as {form}")
    return table


def looked_up(
    lines: Iterable[str], key: str, column: str, delimiter: str
) -> dict[str, str] | None:
    """Cells of a column by the cells of another, those of one key with commas between; None without these columns.

    >>> looked_up(["id,node", "7,a", "8,b", "7,c"], "id", "node", "")
    {'7': 'a,c', '8': 'b'}
    """
    rows = iter(lines)
    header = next(rows, "")
    mark = delimiter or max(_MARKS, key=header.count)
    names = [name.strip() for name in split_fields(header, mark)]
    if not {key, column} <= set(names):
        return None
    from_column, to_column = names.index(key), names.index(column)
    cells: dict[str, list[str]] = {}
    for row in rows:
        fields = split_fields(row, mark)
        if len(fields) == len(names):
            cells.setdefault(fields[from_column], []).append(
                sys.intern(fields[to_column].strip())
            )
    return {key: ",".join(values) for key, values in cells.items()}
