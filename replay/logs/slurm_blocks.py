"""Blocks of `sacct -P` by columns: the most frequent rows at once, all others one by one, with the same result.

A row is read by columns when it has as many fields as the table, is of a job that has run, and its times, host list and
number of nodes are of the usual form. Any other row goes to `Rows.row`, in its place; lines that are no row of their
own (of another number of fields) go to `Table.careful` with those after them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from bft.replay.logs.arrow_columns import (
    HostColumns,
    booleans,
    cells_of,
    codes,
    mask_of,
    raw,
    spread,
    times_of,
)
from bft.replay.logs.log_files import LogLines
from bft.replay.logs.reading import Reading
from bft.replay.logs.slurm_jobs import Rows
from bft.replay.logs.slurm_table import Table
from bft.replay.logs.times import MISSING

# Lines that are read one by one from one of another number of fields on: its record may have several.
_CAREFUL = 100
# From so many such lines in a block on, all of it is read one by one.
_MANY_ODD = 50
_BYTES = pa.binary()


def read_blocks(reading: Reading, source: LogLines, table: Table, rows: Rows) -> None:
    """Read what follows the header."""
    table.after_header()
    columns = _Columns(reading, table, rows)
    block = source.block()
    while block is not None:
        rest = columns.use(block)
        if rest is None:
            block = source.block()
            continue
        lines = rest.decode("utf-8", "surrogateescape").split("\n")
        some = lines if columns.odd > _MANY_ODD else lines[:_CAREFUL]
        if len(some) < len(lines):
            source.unread(lines[len(some) :])
        for number, fields in table.careful(source, some):
            rows.row(number, fields)
        block = source.block()


class _Columns:
    """Reads blocks."""

    def __init__(self, reading: Reading, table: Table, rows: Rows) -> None:
        self._reading, self._table, self._rows = reading, table, rows
        self._hosts = HostColumns(reading.into.indices, rows.nodes_of)
        self._names = [str(place) for place in range(len(table.columns))]
        wanted = sorted({place for place in rows.places if place >= 0})
        self._wanted = [self._names[place] for place in wanted]
        # Lines of another number of fields in the block that was read last, up to where it was given up.
        self.odd = 0

    def use(self, block: bytes) -> bytes | None:
        """Use the rows of a block; returns what is left from the first line on that is no row of its own."""
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
            self._read(parsed.combine_chunks(), block)
        return rest

    def _parsed(self, block: bytes) -> tuple[pa.Table, list[int]]:
        """The wanted columns, and the numbers of lines (from 1 on) of another number of fields."""
        odd: list[int] = []

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
                column_types=dict.fromkeys(self._wanted, _BYTES),
                include_columns=self._wanted,
                strings_can_be_null=False,
            ),
        )
        return parsed, odd

    def _column(self, parsed: pa.Table, place: int) -> pa.Array:
        return parsed.column(self._names[self._rows.places[place]]).chunk(0)

    def _read(self, parsed: pa.Table, block: bytes) -> None:
        """Rows that have a field for each column."""
        reading, rows, total = self._reading, self._rows, len(parsed)
        line = self._table.counted(total, total)
        steps = mask_of(pc.match_substring(self._column(parsed, 0), "."))
        count = int(np.count_nonzero(steps))
        if count:
            rows.steps += count
            rows.first_step = rows.first_step or line + int(steps.argmax())
            parsed = parsed.filter(booleans(~steps)).combine_chunks()
        jobs = np.flatnonzero(~steps)
        if not len(jobs):
            return
        ids, start_texts, end_texts, lists = (
            self._column(parsed, place) for place in range(4)
        )
        start, start_ok = times_of(start_texts, reading.clock)
        end, end_ok = times_of(end_texts, reading.clock)
        usual = start_ok & end_ok & (start < end) & _begin_with_digit(ids)
        keys = ids.cast(pa.string()).to_pylist()
        nodes, sizes = self._hosts.expanded(lists, usual)
        usual &= sizes > 0
        if rows.places[4] >= 0:
            usual &= _equal_numbers(self._column(parsed, 4), sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        batch = _Batch(keys, nodes, sizes, offsets, start, end, jobs + line, usual)
        done = 0
        alone = np.flatnonzero(~usual).tolist()
        texts = block.split(b"\n") if alone else []
        # Rows without a start or an end add no interval, whose place among the others matters.
        adds = ~(_missing(start_texts) | _missing(end_texts)) if alone else usual
        for place in alone:
            if adds[place]:
                batch.add(reading, rows, done, place)
                done = place
            self._alone(texts[jobs[place]], line + int(jobs[place]))
        batch.add(reading, rows, done, len(jobs))

    def _alone(self, text: bytes, number: int) -> None:
        """One row that is not of the usual form."""
        line = text.decode("utf-8", "surrogateescape")
        if not line or self._table.is_header(line):
            self._table.no_row()
        else:
            self._rows.row(number, line.split(self._table.delimiter))


@dataclass(frozen=True, slots=True)
class _Batch:
    """Jobs of a block, of which some are usual.

    Parameters
    ----------
    keys, start, end, lines, usual
        One entry a job.
    nodes, sizes, offsets
        Nodes of all jobs, one after the other, how many each has, and where they begin: one entry more.
    """

    keys: list[str]
    nodes: NDArray[np.int32]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    lines: NDArray[np.int64]
    usual: NDArray[np.bool_]

    def add(self, reading: Reading, rows: Rows, low: int, high: int) -> None:
        """Hand over the usual ones of those from `low` to before `high`."""
        mine = low + np.flatnonzero(self.usual[low:high])
        if not len(mine):
            return
        sizes = self.sizes[mine]
        nodes = self.nodes[self.offsets[low] : self.offsets[high]]
        if len(nodes) != sizes.sum():
            nodes = self.nodes[spread(self.offsets[mine], sizes)]
        keys = (
            self.keys
            if len(mine) == len(self.keys)
            else [self.keys[place] for place in mine.tolist()]
        )
        rows.used += len(mine)
        reading.into.jobs(
            keys,
            nodes,
            sizes,
            self.start[mine],
            self.end[mine],
            reading.file,
            self.lines[mine],
        )


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
    """As ids of jobs do; a header that comes again does not, nor does a blank line."""
    data, offsets = raw(ids)
    first = np.zeros(len(ids), dtype=np.uint8)
    some = offsets[1:] > offsets[:-1]
    first[some] = data[offsets[:-1][some]]
    return (first >= 48) & (first <= 57)


def _equal_numbers(column: pa.Array, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where a column holds just these numbers."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    plain = (
        len(text) < 10 and text.isdigit() and (text[:1] != b"0" or text == b"0")
        for text in texts
    )
    numbers = np.array(
        [
            int(text) if is_one else -1
            for text, is_one in zip(texts, plain, strict=True)
        ],
        dtype=np.int64,
    )
    return np.asarray(numbers[codes(encoded)] == sizes)


def _missing(column: pa.Array) -> NDArray[np.bool_]:
    """Where a column holds what Slurm writes for a time that it does not know."""
    return mask_of(
        pc.is_in(
            column, value_set=cells_of([text.encode() for text in sorted(MISSING)])
        )
    )
