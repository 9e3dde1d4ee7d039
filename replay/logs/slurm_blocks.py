"""Blocks of `sacct -P` by columns: the most frequent rows at once, all others one by one, with the same result.

A row is read by columns when it has as many fields as the table, is of a job that has run, and its times, host list and
number of nodes are of the usual form. Any other row goes to `Rows.row`, in its place; lines that are no row of their
own (of another number of fields) go to `Table.careful` with those after them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from bft.replay.logs.hostlists import MOST_HOSTS, NodeLists
from bft.replay.logs.log_files import LogLines
from bft.replay.logs.reading import (
    MISSING,
    MOST_EPOCH_S,
    Clock,
    HostListError,
    JobBlock,
    JobPlanned,
    OfOthers,
    Reading,
    Record,
    Skipped,
    Unusable,
)
from bft.replay.logs.repeated_records import MOST_DIGITS
from bft.replay.logs.slurm_jobs import Job, Rows, plan
from bft.replay.logs.slurm_table import Table
from bft.replay.logs.units import Held
from bft.replay.trace.node_trace import SECOND_NS, consecutive

Bytes: TypeAlias = NDArray[np.uint8]
Whole: TypeAlias = NDArray[np.int64]


def raw(column: pa.Array) -> tuple[Bytes, Whole]:
    """The bytes of all cells of a column of `binary`, and where each begins and ends in them: one entry more."""
    _, offsets, data = column.buffers()
    places = np.frombuffer(
        offsets, dtype=np.int32, count=column.offset + len(column) + 1
    )[column.offset :]
    return np.frombuffer(data or b"", dtype=np.uint8), places.astype(np.int64)


def mask_of(column: pa.Array) -> NDArray[np.bool_]:
    """A column of booleans, none of them missing.

    >>> mask_of(booleans(np.array([True, False, True]))).tolist()
    [True, False, True]
    """
    bits = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    flags = np.unpackbits(bits, count=column.offset + len(column), bitorder="little")
    return flags[column.offset :].view(bool)


def booleans(mask: NDArray[np.bool_]) -> pa.Array:
    """Return a mask as an Arrow column."""
    bits = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def codes(encoded: pa.DictionaryArray) -> NDArray[np.int32]:
    """Which entry of the dictionary each cell is, none of them missing."""
    indices = encoded.indices
    return np.frombuffer(
        indices.buffers()[1], dtype=np.int32, count=indices.offset + len(indices)
    )[indices.offset :]


def integers(numbers: Whole) -> pa.Array:
    """Return whole numbers as an Arrow column."""
    stored = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, stored])


def cells_of(texts: Sequence[bytes]) -> pa.Array:
    """A column of `binary`.

    >>> cells_of([b"ab", b""]).to_pylist()
    [b'ab', b'']
    """
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(),
        len(texts),
        [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))],
    )


def cells_at(data: Bytes, offsets: Whole, width: int) -> tuple[Whole, Bytes]:
    """The rows whose cells are so wide, and their bytes, shape (width, rows)."""
    rows = np.flatnonzero(np.diff(offsets) == width)
    if len(rows) == len(offsets) - 1:  # then they lie side by side
        cells = data[offsets[0] : offsets[-1]].reshape(-1, width).T
    else:
        cells = bytes_of(windows(data, width)[offsets[rows]])
    return rows, np.ascontiguousarray(cells)


def windows(data: Bytes, width: int) -> NDArray[np.bytes_]:
    """The texts of `width` bytes that begin at each byte; none of them is copied.

    >>> windows(np.frombuffer(b"abc", dtype=np.uint8), 2).tolist()
    [b'ab', b'bc']
    """
    count = max(0, len(data) - width + 1)
    return np.ndarray(count, dtype=f"S{width}", buffer=data, strides=(1,))


def bytes_of(texts: NDArray[np.bytes_]) -> Bytes:
    """The bytes of texts of one width, shape (width, texts)."""
    return texts.view(np.uint8).reshape(len(texts), texts.itemsize).T


def numbers_of(column: pa.Array) -> Whole | None:
    """The whole numbers that all cells are, without leading zeros; None where any is none.

    >>> numbers_of(cells_of([b"7", b"12"])).tolist()
    [7, 12]
    """
    data, offsets = raw(column)
    numbers = np.zeros(len(column), dtype=np.int64)
    for width in np.flatnonzero(np.bincount(np.diff(offsets))).tolist():
        if not 0 < width <= MOST_DIGITS:
            return None
        rows, cells = cells_at(data, offsets, width)
        numbers[rows], right = digits(cells)
        if not right.all() or (cells[0] == ord("0")).any():
            return None
    return numbers


def digits(cells: Bytes) -> tuple[Whole, NDArray[np.bool_]]:
    """Numbers of cells of the same width, shape (width, cells), and which of them hold digits only.

    >>> digits(np.frombuffer(b"10234x", dtype=np.uint8).reshape(3, 2).T)
    (array([ 10,  23, 112]), array([ True,  True, False]))
    """
    numbers = np.zeros(cells.shape[1], dtype=np.int64)
    right = np.ones(cells.shape[1], dtype=bool)
    for place in cells:
        values = place - np.uint8(48)  # what is no digit wraps around
        right &= values <= 9
        numbers *= 10
        numbers += values
    return numbers, right


_STAMP, _EPOCH = 19, 10
_MARKS = ((4, b"-"), (7, b"-"), (13, b":"), (16, b":"))


def times_of(column: pa.Array, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    """UTC nanoseconds of each cell, and where that is known; elsewhere `Clock.parse` decides."""
    data, offsets = raw(column)
    times, known = (
        np.zeros(len(column), dtype=np.int64),
        np.zeros(len(column), dtype=bool),
    )
    for width, read in ((_STAMP, _stamps), (_EPOCH, _epochs)):
        rows, cells = cells_at(data, offsets, width)
        if len(rows):
            times[rows], known[rows] = read(cells, clock)
    return times, known


def _epochs(cells: Bytes, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    seconds, right = digits(cells)
    right &= (seconds > 0) & (seconds < MOST_EPOCH_S)
    return np.where(right, seconds, 0) * SECOND_NS, right


def _stamps(cells: Bytes, clock: Clock) -> tuple[Whole, NDArray[np.bool_]]:
    year, right = digits(cells[:4])
    parts = []
    for place in (5, 8, 11, 14, 17):
        part, are = digits(cells[place : place + 2])
        parts.append(part)
        right &= are
    for place, mark in _MARKS:
        right &= cells[place] == mark[0]
    right &= (cells[10] == ord("T")) | (cells[10] == ord(" "))
    month, day, hour, minute, second = parts
    right &= (year > 1970) & (year < 2262) & (month >= 1) & (month <= 12) & (day >= 1)
    right &= (hour < 24) & (minute < 60) & (second < 60)
    months = (np.where(right, year, 1971) - 1970) * 12 + np.where(right, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (
        (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    )
    right &= day <= after - first
    hours = np.where(right, (first + day - 1) * 24 + hour, 0)
    met, which = np.unique(hours, return_inverse=True)
    begins = [clock.hour_ns(one) if one else None for one in met.tolist()]
    plain = np.array([begin is not None for begin in begins])
    begun = np.array([begin or 0 for begin in begins], dtype=np.int64)
    right &= plain[which]
    return np.where(right, begun[which] + (minute * 60 + second) * SECOND_NS, 0), right


_BRACKET = re.compile(rb"([\w.:+@-]{1,200}\[)(\d{1,6})[\d,-]*\]")
_PLAIN = re.compile(rb"([A-Za-z][\w.:+@-]{0,200}?)(\d{1,6})")
# Names before the bracket that are tried in a block, and that are known at the most: each takes up to 4 MB.
_MOST_PREFIXES, _MOST_KNOWN = 4, 16
_COMMA, _HYPHEN, _CLOSING = b",-]"
# Hosts of a block that are expanded together, some 40 bytes each; the lists after them are read one by one.
_MOST_TOGETHER = 1 << 22


class HostColumns:
    """Expands columns of host lists.

    Parameters
    ----------
    indices
        `Collector.indices`.
    lists
        What expands a list that is not of the usual form.
    """

    def __init__(
        self, indices: Callable[[Sequence[str]], array[int]], lists: NodeLists
    ) -> None:
        self._indices, self._lists = indices, lists
        # Of a name and the width of its numbers: the node of each number, -1 where there is none yet.
        self._known: dict[tuple[bytes, int], NDArray[np.int32]] = {}
        self._room_for = _MOST_TOGETHER

    def expanded(
        self, column: pa.Array, wanted: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int32], Whole]:
        """Nodes of the wanted lists, one list after the other, and how many each list of the column has.

        Lists that are none, or not wanted, have 0 nodes; so have those that would be too many together.
        """
        self._room_for = _MOST_TOGETHER
        data, offsets = raw(column)
        sizes = np.zeros(len(column), dtype=np.int64)
        parts: list[tuple[Whole, NDArray[np.int32]]] = []
        left = wanted.copy()
        ends = np.zeros(len(column), dtype=np.uint8)
        some = offsets[1:] > offsets[:-1]
        ends[some] = data[offsets[1:][some] - 1]
        bracketed = left & (ends == _CLOSING)
        marks = np.flatnonzero((data == _COMMA) | (data == _CLOSING))
        for _ in range(_MOST_PREFIXES):
            rows = np.flatnonzero(bracketed)
            if not len(rows):
                break
            bracketed[rows[0]] = False
            match = _BRACKET.fullmatch(
                data[offsets[rows[0]] : offsets[rows[0] + 1]].tobytes()
            )
            if match is None or not self._room((match[1], len(match[2]))):
                continue
            done, nodes, counts = self._of_prefix(
                data, offsets, marks, rows, match[1], len(match[2])
            )
            bracketed[done] = left[done] = False
            sizes[done] = counts
            parts.append((done, nodes))
        plain = self._one_host_each(data, offsets, np.flatnonzero(left & (sizes == 0)))
        if plain is not None:
            left[plain[0]] = False
            sizes[plain[0]] = 1
            parts.append(plain)
        rest = np.flatnonzero(left)
        if len(rest):
            nodes, counts = self._each(column.take(integers(rest)))
            sizes[rest] = counts
            parts.append((rest, nodes))
        if len(parts) == 1:
            return parts[0][1], sizes
        return joined(parts, sizes), sizes

    def _each(self, column: pa.Array) -> tuple[NDArray[np.int32], Whole]:
        """Lists one by one, each that comes several times once."""
        encoded = column.dictionary_encode()
        lists = []
        held = 0
        for text in encoded.dictionary.to_pylist():
            nodes = array("i")
            if held <= self._room_for:
                with suppress(HostListError):
                    nodes = self._lists(text.decode("utf-8", "surrogateescape"))
            lists.append(nodes)
            held += len(nodes)
        counts = np.array([len(nodes) for nodes in lists], dtype=np.int64)
        flat = np.frombuffer(
            b"".join(nodes.tobytes() for nodes in lists), dtype=np.int32
        )
        which = codes(encoded)
        begins = (np.cumsum(counts) - counts)[which]
        sizes = self._within(counts[which])
        return flat[consecutive(begins, sizes)], sizes

    def _within(self, sizes: Whole) -> Whole:
        """Lists of these many hosts: 0 from the one on that would be too many together."""
        sizes = np.where(np.cumsum(sizes) <= self._room_for, sizes, 0)
        self._room_for -= int(sizes.sum())
        return sizes

    def _one_host_each(
        self, data: Bytes, offsets: Whole, rows: Whole
    ) -> tuple[Whole, NDArray[np.int32]] | None:
        """Those of the rows that are one host with the name and the width of the first's; their nodes."""
        if not len(rows):
            return None
        text = data[offsets[rows[0]] : offsets[rows[0] + 1]].tobytes()
        match = _PLAIN.fullmatch(text)
        if match is None or not self._room((match[1] + b"[", len(match[2]))):
            return None
        rows = rows[offsets[rows + 1] - offsets[rows] == len(text)]
        cells = np.ascontiguousarray(bytes_of(windows(data, len(text))[offsets[rows]]))
        name = len(match[1])
        numbers, right = digits(cells[name:])
        for place, letter in zip(cells, match[1], strict=False):
            right &= place == letter
        return rows[right], self._nodes(match[1] + b"[", len(match[2]), numbers[right])

    def _of_prefix(
        self,
        data: Bytes,
        offsets: Whole,
        all_marks: Whole,
        rows: Whole,
        prefix: bytes,
        width: int,
    ) -> tuple[Whole, NDArray[np.int32], Whole]:
        """Those of the rows that are `prefix`, rising numbers of `width` digits, and a bracket; nodes, and how many.

        `all_marks` are the places of commas and closing brackets in `data`.
        """
        begins, ends = offsets[rows] + len(prefix), offsets[rows + 1]
        long = ends - begins > width
        rows, begins, ends = rows[long], begins[long], ends[long]
        heads = windows(data, len(prefix))[begins - len(prefix)]
        mine = heads == np.frombuffer(prefix, dtype=heads.dtype)
        rows, begins, ends = rows[mine], begins[mine], ends[mine]
        # All commas of these rows, and the closing bracket of each: its last character.
        first, until = np.searchsorted(all_marks, (begins, ends))
        many = until - first
        marks = all_marks[first[0] : until[-1]]
        if len(marks) > many.sum():
            marks = all_marks[consecutive(first, many)]
        first = np.cumsum(many) - many
        starts = np.empty_like(marks)
        starts[1:] = marks[:-1] + 1
        starts[first] = begins
        lengths = marks - starts
        ranges = lengths == 2 * width + 1
        right = ranges | (lengths == width)
        cells = windows(data, width)
        low, are = digits(bytes_of(cells[np.minimum(starts, len(cells) - 1)]))
        right &= are
        high = low.copy()
        of = np.flatnonzero(ranges)
        high[of], are = digits(bytes_of(cells[starts[of] + width + 1]))
        right[of] &= are & (data[starts[of] + width] == _HYPHEN)
        right &= high >= low
        # Pieces of a row must rise.
        rising = np.ones(len(low), dtype=bool)
        rising[1:] = low[1:] > high[:-1]
        rising[first] = True
        whole = np.logical_and.reduceat(right & rising, first)
        spans = np.where(right, high - low + 1, 0)
        counts = np.add.reduceat(spans, first)
        whole &= counts <= MOST_HOSTS
        whole &= self._within(np.where(whole, counts, 0)) > 0
        spans[np.repeat(~whole, many)] = 0
        numbers = consecutive(low, spans)
        return rows[whole], self._nodes(prefix, width, numbers), counts[whole]

    def _room(self, key: tuple[bytes, int]) -> bool:
        """Whether nodes of a name and width can be looked up."""
        return key in self._known or len(self._known) < _MOST_KNOWN

    def _nodes(self, prefix: bytes, width: int, numbers: Whole) -> NDArray[np.int32]:
        """Nodes by their numbers; new ones get an index in the order in which they come."""
        key = prefix, width
        if key not in self._known:
            self._known[key] = np.full(10**width, -1, dtype=np.int32)
        known = self._known[key]
        nodes = known.take(numbers)
        if nodes.min(initial=0) < 0:
            strange = numbers[nodes < 0]
            _, first = np.unique(strange, return_index=True)
            new = strange[np.sort(first)]
            name = prefix[:-1].decode()
            known[new] = self._indices(
                [f"{name}{number:0{width}}" for number in new.tolist()]
            )
            nodes = known.take(numbers)
        return nodes


def joined(
    parts: list[tuple[Whole, NDArray[np.int32]]], sizes: Whole
) -> NDArray[np.int32]:
    """Nodes of several sets of rows, in the order of the rows."""
    begins = np.cumsum(sizes) - sizes
    joined = np.zeros(int(sizes.sum()), dtype=np.int32)
    for rows, nodes in parts:
        joined[consecutive(begins[rows], sizes[rows])] = nodes
    return joined


# Lines that are read one by one from one of another number of fields on: its record may have several.
_CAREFUL = 100
# From so many such lines in a block on, all of it is read one by one.
_MANY_ODD = 50
_BYTES = pa.binary()


def read_blocks(
    reading: Reading, source: LogLines, table: Table, rows: Rows
) -> Iterator[Record]:
    """Read what follows the header."""
    table.after_header()
    columns = _Columns(reading, table, rows)
    block = source.block()
    while block is not None:
        rest = yield from columns.use(block)
        if rest is not None:
            lines = rest.decode("utf-8", "surrogateescape").split("\n")
            some = lines if columns.odd > _MANY_ODD else lines[:_CAREFUL]
            if len(some) < len(lines):
                source.unread(lines[len(some) :])
            yield from rows.each(table.careful(source, some))
        block = source.block()


class _Columns:
    """A reader of the columns of blocks."""

    def __init__(self, reading: Reading, table: Table, rows: Rows) -> None:
        self._reading, self._table, self._rows = reading, table, rows
        # By cluster, as far as rows state theirs.
        self._hosts: dict[str, HostColumns] = {}
        # By filter, of the rows that it leaves out.
        self._left_out: dict[str, HostColumns] = {}
        self._names = [str(place) for place in range(len(table.columns))]
        places = [*rows.places, rows.at_cluster, rows.at_suspended]
        places += rows.at_filters.values()
        if rows.units is not None:
            places += rows.units.places
        if rows.planned is not None:
            places += [rows.planned.known, rows.planned.limit, rows.planned.nodes]
        self._places = {place for place in places if place >= 0}
        # What rows have stated so far in the columns of filters.
        self._met: set[tuple[str, ...]] = set()
        # Lines of another number of fields in the block that was read last, up to where it was given up.
        self.odd = 0

    def use(self, block: bytes) -> Generator[Record, None, bytes | None]:
        """Yield the rows of a block; returns what is left from the first line on of another number of fields."""
        if b"\r" in block or b"\0" in block or not _is_text(block):
            self.odd = _MANY_ODD + 1
            return block
        parsed, odd = self._parsed(block)
        self.odd = len(odd)
        if self.odd > _MANY_ODD:
            return block
        rest = None
        if odd:
            before = odd[0] - 1
            parsed = parsed.slice(0, before)
            lines = block.split(b"\n", before)
            rest = lines[before]
            block = b"\n".join(lines[:before])
        if len(parsed):
            yield from self._read(parsed.combine_chunks(), block)
        return rest

    def _parsed(self, block: bytes) -> tuple[pa.Table, list[int]]:
        """The wanted columns, and the numbers of lines (from 1 on) of another number of fields."""
        odd: list[int] = []
        places = sorted(self._places.union(self._rows.watched.values()))
        wanted = [self._names[place] for place in places]

        def note(row: csv.InvalidRow) -> str:
            odd.append(row.number)
            return "skip"

        parsed = csv.read_csv(
            pa.BufferReader(block + b"\n"),  # so that an empty last line is one
            read_options=csv.ReadOptions(
                use_threads=False, column_names=self._names, block_size=len(block) + 1
            ),
            parse_options=csv.ParseOptions(
                delimiter=self._table.delimiter,
                quote_char=False,
                escape_char=False,
                ignore_empty_lines=False,
                invalid_row_handler=note,
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, _BYTES),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
        return parsed, odd

    def _column(self, parsed: pa.Table, place: int) -> pa.Array:
        """Cells of a column of the file; empty ones where there is none."""
        if place < 0:
            return cells_of([b""] * len(parsed))
        return parsed.column(self._names[place]).chunk(0)

    def _read(self, parsed: pa.Table, block: bytes) -> Iterator[Record]:
        """Yield the rows that have a field for each column."""
        rows, total = self._rows, len(parsed)
        at_id, at_start, at_end, at_nodes, at_count = rows.places
        line = self._table.counted(total)
        ids = self._column(parsed, at_id)
        steps = mask_of(pc.match_substring(ids, "."))
        count = int(np.count_nonzero(steps))
        if count:
            rows.steps(line + int(steps.argmax()), count)
        numbered = _begin_with_digit(ids)
        are_jobs = ~steps
        self._leave_out_no_rows(are_jobs, numbered, block, line)
        if not are_jobs.all():
            parsed = parsed.filter(booleans(are_jobs)).combine_chunks()
        jobs = np.flatnonzero(are_jobs)
        if not len(jobs):
            return
        origins = self._origins(parsed)
        ids, start_texts, end_texts, lists = (
            self._column(parsed, place) for place in (at_id, at_start, at_end, at_nodes)
        )
        start, start_ok = times_of(start_texts, self._reading.clock)
        end, end_ok = times_of(end_texts, self._reading.clock)
        usual = start_ok & end_ok & (start < end) & numbered[jobs]
        usual &= origins.usual
        if rows.at_suspended >= 0:
            usual &= _never(self._column(parsed, rows.at_suspended))
        plans = self._plans(parsed)
        if plans is not None:
            usual &= plans.usual
        nodes, sizes = self._nodes(lists, usual, origins)
        usual &= sizes > 0
        if at_count >= 0:
            usual &= _equal_numbers(self._column(parsed, at_count), sizes)
        self._see(parsed, usual)
        batch = _Batch(
            keys=self._keys(ids, origins, jobs + line),
            nodes=nodes,
            sizes=sizes,
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
            start=start,
            end=end,
            lines=jobs + line,
            usual=usual,
            rows=rows,
            plans=plans,
            units=self._units(parsed),
        )
        done = 0
        alone = np.flatnonzero(~usual & ~origins.out).tolist()
        texts = block.split(b"\n") if alone else []
        # Rows without a start or an end add no interval, whose place among the others matters.
        adds = np.ones(len(jobs), dtype=bool)
        if alone and batch.units is None and plans is None:
            adds = ~(_missing(start_texts) | _missing(end_texts))
        for place in alone:
            if adds[place]:
                yield from batch.records(done, place)
                done = place
            yield from self._alone(texts[jobs[place]], line + int(jobs[place]))
        yield from batch.records(done, len(jobs))
        self._count(origins, np.flatnonzero(usual | origins.out), jobs + line)
        if origins.out.any() and rows.named:
            ended = start_ok & end_ok & (start < end)
            yield from self._of_others(parsed, block, origins, batch, ended, line)

    def _of_others(
        self,
        parsed: pa.Table,
        block: bytes,
        origins: _Origins,
        batch: _Batch,
        ended: NDArray[np.bool_],
        line: int,
    ) -> Iterator[Record]:
        """Yield what rows that filters leave out say of when nodes were alive; `line` is the first of the block."""
        _, at_start, _, at_nodes, _ = batch.rows.places
        begun = origins.out & ~_missing(self._column(parsed, at_start))
        lists = self._column(parsed, at_nodes)
        names = [self._reading.belongs(**each) for each in origins.stated]
        for name in dict.fromkeys(filter(None, names)):
            of_name = np.array([each == name for each in names], dtype=bool)
            mine = begun & of_name[origins.which]
            nodes, sizes = self._apart(name).expanded(lists, mine & ended)
            some = np.flatnonzero(sizes)
            if len(some):
                columns = sizes[some], batch.start[some], batch.end[some]
                yield OfOthers(name, JobBlock(some, some, nodes, *columns))
            odd = np.flatnonzero(mine & (sizes == 0)).tolist()
            texts = block.split(b"\n") if odd else []
            for place in odd:
                number = int(batch.lines[place])
                fields = self._cells(texts[number - line])
                yield from batch.rows.of_others(name, number, fields)

    def _leave_out_no_rows(
        self,
        are_jobs: NDArray[np.bool_],
        numbered: NDArray[np.bool_],
        block: bytes,
        first: int,
    ) -> None:
        """Mark blank lines and headers as no jobs, among those of a block whose id begins with no digit."""
        strange = np.flatnonzero(are_jobs & ~numbered).tolist()
        texts = block.split(b"\n") if strange else []
        for place in strange:
            text = texts[place].decode("utf-8", "surrogateescape")
            are_jobs[place] = text and not self._table.is_header(text, first + place)

    def _count(self, origins: _Origins, places: Whole, lines: Whole) -> None:
        """Count the rows at these places by what they state in the columns of filters."""
        if not origins.stated:
            return
        which = origins.which[places]
        met, first, counts = np.unique(which, return_index=True, return_counts=True)
        for number, place, count in zip(
            met.tolist(), first.tolist(), counts.tolist(), strict=True
        ):
            line = int(lines[places[place]])
            self._rows.other(origins.stated[number], line, count)

    def _see(self, parsed: pa.Table, usual: NDArray[np.bool_]) -> None:
        """Hand over what the watched columns hold in usual rows."""
        values = {}
        for name, place in self._rows.watched.items():
            cells = self._column(parsed, place).filter(booleans(usual))
            texts = cells.dictionary_encode().dictionary.to_pylist()
            values[name] = [text.decode("utf-8", "surrogateescape") for text in texts]
        self._rows.see(int(np.count_nonzero(usual)), values)

    def _alone(self, text: bytes, number: int) -> Iterator[Record]:
        """Yield one row that is not of the usual form."""
        yield from self._rows.row(number, self._cells(text))

    def _cells(self, text: bytes) -> list[str]:
        """The fields of a line."""
        return text.decode("utf-8", "surrogateescape").split(self._table.delimiter)

    def _origins(self, parsed: pa.Table) -> _Origins:
        """The clusters of rows, and which rows are left out by what they state in the columns of filters."""
        rows = self._rows
        none = np.zeros(len(parsed), dtype=bool)
        origins = _Origins(~none, none.copy(), none)
        if rows.at_cluster >= 0:
            clusters, of_cluster = self._coded(parsed, rows.at_cluster)
            origins = replace(origins, clusters=clusters, of_cluster=of_cluster)
        if not rows.at_filters:
            return origins
        columns = {
            name: self._coded(parsed, place) for name, place in rows.at_filters.items()
        }
        combined = np.zeros(len(parsed), dtype=np.int64)
        for names, which in columns.values():
            combined = combined * len(names) + which
        _, first, which = np.unique(combined, return_index=True, return_inverse=True)
        stated = [
            {name: names[of[begin]] for name, (names, of) in columns.items()}
            for begin in first.tolist()
        ]
        are_other = [bool(self._reading.belongs(**each)) for each in stated]
        other = np.array(are_other, dtype=bool)[which]
        usual, out = ~other, other.copy()
        for begin, each in zip(first.tolist(), stated, strict=True):
            values = tuple(each.values())
            if values not in self._met:
                # The first one is read by itself: it says what is to be noted, in its place.
                self._met.add(values)
                usual[begin] = out[begin] = False
        return replace(
            origins, usual=usual, out=out, other=other, stated=stated, which=which
        )

    def _coded(self, parsed: pa.Table, place: int) -> tuple[list[str], Whole]:
        """The different texts of a column, and which of them each row has."""
        encoded = self._column(parsed, place).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        names = [text.decode("utf-8", "surrogateescape") for text in texts]
        return names, codes(encoded).astype(np.int64)

    def _keys(
        self, ids: pa.Array, origins: _Origins, lines: Whole
    ) -> list[Hashable] | Whole:
        """The keys of jobs, or their numbers where these are enough, which is the usual case."""
        rows, names = self._rows, self._cluster_names(origins, lines)
        if not any(names) and rows.planned is None and rows.units is None:
            numbers = numbers_of(ids)
            if numbers is not None:
                return numbers
        texts: list[str] = ids.cast(pa.string()).to_pylist()
        if not any(names):
            return list(texts)
        keys: list[Hashable] = []
        for job, code in zip(texts, origins.of_cluster.tolist(), strict=True):
            keys.append((names[code], job) if names[code] else job)
        return keys

    def _cluster_names(self, origins: _Origins, lines: Whole) -> list[str]:
        """What tells each cluster from the first one of the log (`JobKeys.name`)."""
        clusters = origins.clusters or [""]
        names = [""] * len(clusters)
        read = np.flatnonzero(~origins.other)
        of_cluster = origins.of_cluster if origins.clusters else np.zeros_like(lines)
        _, first = np.unique(of_cluster[read], return_index=True)
        file, keys = self._reading.file, self._reading.into.job_keys
        for place in np.sort(first).tolist():
            code, line = int(of_cluster[read[place]]), int(lines[read[place]])
            names[code] = keys.name(clusters[code], file, line)
        return names

    def _nodes(
        self, lists: pa.Array, usual: NDArray[np.bool_], origins: _Origins
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Nodes of the usual rows, one row after the other, and how many each row has; of others none."""
        if self._rows.planned is not None:
            return self._nodes_in_order(lists, usual, origins)
        if not len(origins.clusters):
            return self._of_cluster("").expanded(lists, usual)
        parts: list[tuple[NDArray[np.int64], NDArray[np.int32]]] = []
        sizes = np.zeros(len(usual), dtype=np.int64)
        for code, cluster in enumerate(origins.clusters):
            mine = usual & (origins.of_cluster == code)
            if mine.any():
                nodes, counts = self._of_cluster(cluster).expanded(lists, mine)
                parts.append((np.flatnonzero(counts), nodes))
                sizes += counts
        if len(parts) == 1:
            return parts[0][1], sizes
        return joined(parts, sizes), sizes

    def _nodes_in_order(
        self, lists: pa.Array, usual: NDArray[np.bool_], origins: _Origins
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Look nodes up row by row: plans of equal jobs are sorted by their nodes, as rows name these first."""
        sizes = np.zeros(len(usual), dtype=np.int64)
        parts = []
        held = 0
        of_cluster = origins.of_cluster.tolist() or [0] * len(usual)
        clusters = origins.clusters or [""]
        lists_of = self._reading.lists
        for place, cell in enumerate(lists.to_pylist()):
            if origins.other[place]:
                continue
            text = cell.decode("utf-8", "surrogateescape")
            try:
                nodes = lists_of(clusters[of_cluster[place]])(text)
            except HostListError:
                continue
            if usual[place] and held + len(nodes) <= _MOST_TOGETHER:
                sizes[place] = len(nodes)
                held += len(nodes)
                parts.append(nodes.tobytes())
        return np.frombuffer(b"".join(parts), dtype=np.int32), sizes

    def _of_cluster(self, cluster: str) -> HostColumns:
        if cluster not in self._hosts:
            reading = self._reading
            self._hosts[cluster] = HostColumns(
                lambda hosts: reading.nodes(hosts, cluster), reading.lists(cluster)
            )
        return self._hosts[cluster]

    def _apart(self, name: str) -> HostColumns:
        """Return what expands the host lists of rows that a filter leaves out."""
        if name not in self._left_out:
            indices = self._reading.into.others(name).indices
            self._left_out[name] = HostColumns(indices, NodeLists(indices))
        return self._left_out[name]

    def _plans(self, parsed: pa.Table) -> _PlanCells | None:
        """Read what the scheduler knew of jobs; rows that need a closer look are not usual."""
        planned = self._rows.planned
        if planned is None:
            return None
        known, usual = times_of(
            self._column(parsed, planned.known), self._reading.clock
        )
        texts, which = self._coded(parsed, planned.limit)
        are_limits = np.array([planned.is_limit(text) for text in texts], dtype=bool)
        limits = [planned.limit_ns(text) for text in texts]
        usual &= are_limits[which]
        return _PlanCells(known, [limits[code] for code in which.tolist()], usual)

    def _units(self, parsed: pa.Table) -> list[list[str]] | None:
        """The cells that state what jobs held, a list a column."""
        if self._rows.units is None:
            return None
        return [
            [
                cell.decode("utf-8", "surrogateescape")
                for cell in self._column(parsed, place).to_pylist()
            ]
            for place in self._rows.units.places
        ]


@dataclass(frozen=True, slots=True)
class _Origins:
    """Clusters that the rows of a block state, and what they state in the columns of filters.

    Parameters
    ----------
    usual, out, other
        Of each row whether it may be read by columns; whether it is left out and counted together with others; and
        whether it is left out at all.
    clusters, of_cluster
        Names of the clusters, and which of them each row states; empty without such a column.
    stated, which
        What rows state in the columns of filters, and which of these each row does; empty without filters.
    """

    usual: NDArray[np.bool_]
    out: NDArray[np.bool_]
    other: NDArray[np.bool_]
    clusters: list[str] = field(default_factory=list)
    of_cluster: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )
    stated: list[dict[str, str]] = field(default_factory=list)
    which: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(0, dtype=np.int64)
    )


@dataclass(frozen=True, slots=True)
class _PlanCells:
    """When the job of each row could run, its limit (nanoseconds), and whether both are of the usual form."""

    known: NDArray[np.int64]
    limits: list[int | None]
    usual: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Jobs of a block, of which some are usual.

    Parameters
    ----------
    keys, start, end, lines, usual
        One entry a job.
    nodes, sizes, offsets
        Nodes of all jobs, one after the other, how many each has, and where they begin: one entry more.
    rows
        Reads what units jobs held.
    plans, units
        What the scheduler knew, and the cells that state units; None: not asked for.
    """

    keys: list[Hashable] | Whole
    nodes: NDArray[np.int32]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    lines: NDArray[np.int64]
    usual: NDArray[np.bool_]
    rows: Rows
    plans: _PlanCells | None
    units: list[list[str]] | None

    def records(self, low: int, high: int) -> Iterator[Record]:
        """Yield the usual ones of those from `low` to before `high`."""
        mine = low + np.flatnonzero(self.usual[low:high])
        if not len(mine):
            return
        if self.plans is not None:
            yield from self._planned(self.plans, mine)
        held = None
        if self.units is not None:
            mine, held = yield from self._held(self.units, mine)
        sizes = self.sizes[mine]
        nodes = self.nodes[self.offsets[low] : self.offsets[high]]
        if len(nodes) != sizes.sum():
            nodes = self.nodes[consecutive(self.offsets[mine], sizes)]
        keys = self.keys
        if isinstance(keys, np.ndarray):
            keys = keys[mine]
        elif len(mine) < len(keys):
            keys = [keys[place] for place in mine.tolist()]
        if len(mine):
            yield JobBlock(
                self.lines[mine],
                keys,
                nodes,
                sizes,
                self.start[mine],
                self.end[mine],
                held,
            )

    def _nodes_of(self, place: int) -> array[int]:
        return array(
            "i", self.nodes[self.offsets[place] : self.offsets[place + 1]].tobytes()
        )

    def _planned(
        self, plans: _PlanCells, mine: NDArray[np.int64]
    ) -> Iterator[JobPlanned]:
        """Yield what the scheduler knew of jobs."""
        for place in mine.tolist():
            nodes, key = self._nodes_of(place), self.keys[place]
            start, end = int(self.start[place]), int(self.end[place])
            job = Job(key, "", start, end, nodes)
            known = int(plans.known[place])
            yield JobPlanned(key, plan(job, known, plans.limits[place]))

    def _held(
        self, cells: list[list[str]], mine: NDArray[np.int64]
    ) -> Generator[Record, None, tuple[NDArray[np.int64], list[Sequence[Held]]]]:
        """Return the jobs whose units can be read, and these; yields why others cannot be used."""
        held: list[Sequence[Held]] = []
        good: list[int] = []
        units = self.rows.units
        if units is None:
            return mine, held
        for place in mine.tolist():
            nodes, line = self._nodes_of(place), int(self.lines[place])
            try:
                some = units.of_cells([column[place] for column in cells], nodes, line)
            except Unusable as why:
                yield Skipped(line, why.reason, why.detail)
            else:
                good.append(place)
                held.append(some or ())
        return np.array(good, dtype=np.int64), held


def _is_text(block: bytes) -> bool:
    """Whether all of it is UTF-8."""
    if block.isascii():
        return True
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _begin_with_digit(ids: pa.Array) -> NDArray[np.bool_]:
    """Tell which ids begin with a digit, as those of jobs do; headers and blank lines do not."""
    data, offsets = raw(ids)
    first = np.zeros(len(ids), dtype=np.uint8)
    some = offsets[1:] > offsets[:-1]
    first[some] = data[offsets[:-1][some]]
    return (first >= 48) & (first <= 57)


def _equal_numbers(column: pa.Array, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a column holds just these numbers."""
    texts = integers(sizes).cast(pa.string()).cast(pa.binary())
    return mask_of(pc.equal(column, texts))


def _never(column: pa.Array) -> NDArray[np.bool_]:
    """Where a job was never suspended."""
    return mask_of(pc.is_in(column, value_set=cells_of([b"00:00:00", b""])))


def _missing(column: pa.Array) -> NDArray[np.bool_]:
    """Where a column holds what Slurm writes for a time that it does not know."""
    return mask_of(
        pc.is_in(
            column, value_set=cells_of([text.encode() for text in sorted(MISSING)])
        )
    )
