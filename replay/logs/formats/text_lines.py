"""Lines of a log as columns of text, block by block, and what columns of fields hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bft.replay.logs.hosts import flags
from bft.replay.logs.records import SKIPPED, Log, Texts
from bft.replay.logs.times import MOST_EPOCH_S, NONE, Mask, Times, Whole
from bft.replay.trace.node_trace import SECOND_NS

UNCLEAR = (
    SKIPPED + "has another number of fields, and which belong together is not clear"
)


def text_lines(log: Log, comment: str = "#") -> Iterator[tuple[Whole, Texts]]:
    """Yield the lines of each block that are neither blank nor comments, with their numbers.

    Bytes that are not UTF-8 become replacement characters.
    """
    while True:
        first = log.lines.read + 1
        block = log.lines.block()
        if block is None:
            return
        lines = _texts(block)
        numbers = np.arange(first, first + len(lines))
        blank = pc.equal(pc.binary_length(pc.ascii_trim_whitespace(lines)), 0)
        wanted = flags(pc.invert(pc.or_(blank, pc.starts_with(lines, comment))))
        if wanted.any():
            yield numbers[wanted], lines.filter(pa.array(wanted))


def _texts(block: bytes) -> Texts:
    """The lines of a block."""
    try:
        whole = pa.array([block], pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        whole = pa.array([block.decode("utf-8", "replace")])
    return pc.split_pattern(whole, "\n").flatten()


def fields_of(lists: pa.Array, places: Iterable[int]) -> list[Texts]:
    """Return fields of each row as columns, by their places from 0 on; what a row does not have is empty."""
    begins = lists.offsets.to_numpy()
    lengths, cells = np.diff(begins), lists.values
    columns = []
    for place in places:
        missing = lengths <= place
        index = pa.array(begins[:-1] + place, mask=missing if missing.any() else None)
        columns.append(cells.take(index).fill_null(""))
    return columns


def has(column: Texts, pattern: str) -> Mask:
    """Tell in which cells a regular expression matches somewhere."""
    return flags(pc.match_substring_regex(column, pattern))


def matches(column: Texts, pattern: str) -> Mask:
    """Tell which cells match a regular expression as a whole."""
    return has(column, rf"^(?:{pattern})$")


def numbers(column: Texts, pattern: str, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Return the cells that match a pattern as numbers, others as null; and which those others are."""
    good = matches(column, pattern)
    if not good.all():
        column = pc.if_else(pa.array(good), column, None)
    return column.cast(kind), ~good


def epochs(column: Texts) -> Times:
    """Read seconds since 1970, with a fraction or in milliseconds; an empty cell, 0 and -/- state no time.

    >>> epochs(pa.array(["1612900000", "1612900000250", "0", "soon"])).ns.tolist()
    [1612900000000000000, 1612900000250000000, -1, -1]
    """
    if matches(column, r"\d{9,10}").all():
        seconds = column.cast(pa.int64()).to_numpy()
        fine = (seconds > 0) & (seconds < MOST_EPOCH_S)
        return Times(np.where(fine, seconds * SECOND_NS, NONE), ~fine)
    # 13 digits are seconds not before the year 33,658.
    column = pc.replace_substring_regex(column, r"^(\d{10})(\d{3})$", r"\1.\2")
    parts = fields_of(pc.split_pattern(column, ".", max_splits=1), (0, 1))
    none = matches(column, r"0?|-/-")
    good = matches(column, r"\d{9,10}(\.\d*)?")
    seconds, below = (
        pc.if_else(pa.array(good), part, "0").cast(pa.int64()).to_numpy()
        for part in (
            parts[0],
            pc.ascii_rpad(pc.utf8_slice_codeunits(parts[1], 0, 9), 9, "0"),
        )
    )
    good &= (seconds > 0) & (seconds < MOST_EPOCH_S)
    return Times(np.where(good, seconds * SECOND_NS + below, NONE), ~good & ~none)


def cell(*columns: Texts) -> Callable[[int], str]:
    """Return what shows the cells of a row in a message."""
    return lambda row: ascii(
        " ".join(column[row].as_py() or "" for column in columns)[:60]
    )


def shown(text: str, record: re.Pattern[str]) -> str:
    """Describe a line that is no record, for a message; `record` finds one that does not begin the line."""
    found = record.search(text)
    if found is None or not found.start():
        return ascii(text[:60])
    before = ascii(text[: found.start()][:60])
    return f"{before} stands before the record, as grep without -h or syslog put it"
