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
    while (block := log.lines.block()) is not None:
        whole = pa.array([block.decode("utf-8", "replace")])
        lines = pc.split_pattern(whole, "\n").flatten()
        numbers = np.arange(log.lines.read - len(lines), log.lines.read) + 1
        blank = pc.equal(pc.binary_length(pc.ascii_trim_whitespace(lines)), 0)
        wanted = flags(pc.invert(pc.or_(blank, pc.starts_with(lines, comment))))
        if wanted.any():
            yield numbers[wanted], lines.filter(pa.array(wanted))


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


def whole_numbers(column: Texts) -> Whole:
    """Return the whole numbers of a column, which may be written 1.0000; `NONE` where a cell holds none."""
    found, _ = numbers(column, r"\d{1,7}(\.0*)?", pa.float64())
    whole: Whole = pc.fill_null(found, NONE).cast(pa.int64()).to_numpy()
    return whole


def epochs(column: Texts) -> Times:
    """Read seconds since 1970, with a fraction or in milliseconds; an empty cell, 0 and -/- state no time.

    >>> epochs(pa.array(["1612900000", "1612900000250", "0", "soon"])).ns.tolist()
    [1612900000000000000, 1612900000250000000, -1, -1]
    """
    good = matches(column, r"\d{9}|\d{10}(\.\d*|\d{3})?")
    digits = pc.if_else(pa.array(good), column, "0")
    seconds = pc.utf8_slice_codeunits(digits, 0, 10).cast(pa.int64()).to_numpy()
    ns = seconds * SECOND_NS
    if pc.max(pc.binary_length(digits)).as_py() > 10:
        below = pc.replace_substring(pc.utf8_slice_codeunits(digits, 10, 20), ".", "")
        below = pc.ascii_rpad(pc.utf8_slice_codeunits(below, 0, 9), 9, "0")
        ns += below.cast(pa.int64()).to_numpy()
    good &= (seconds > 0) & (seconds < MOST_EPOCH_S)
    return Times(np.where(good, ns, NONE), ~good & ~matches(column, "0?|-/-"))


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
