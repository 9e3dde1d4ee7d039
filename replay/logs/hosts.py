"""Names of nodes: host lists as ranges of whole numbers, and which names are those of one node.

A name is a stem and a number of at most six digits. A number with leading zeros is as wide as it is written, any other
has width 0, so that cn[0998-1001] and cn1000 agree. A range is one whole number: stem and width, least and largest
number. Nodes get their places once all logs were read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bft.replay.logs.times import Mask, Whole
from bft.replay.trace.node_trace import consecutive

Bytes = NDArray[np.uint8]
# What schedulers write where a job has no nodes.
NO_HOSTS = frozenset(
    {"", "None assigned", "None", "(null)", "N/A", "NONE", "Unknown", "-"}
)
MOST_HOSTS = 262_144
_MOST_NAME = 255
_DIGITS, _NO_NUMBER, _BITS = 6, 9, 20
_MASK = (1 << _BITS) - 1
_COMMA, _DASH, _OPEN, _CLOSE, _PLUS, _ZERO, _NINE = b",-[]+09"
_PIECE = rf"\d{{1,{_DIGITS}}}(?:-\d{{1,{_DIGITS}}})?"
# A name, or a bracket behind a stem that does not end with a digit; a comma follows.
_WORD = (
    rf"^(?:(?P<alone>[\w.:@+-]*?)\d{{0,{_DIGITS}}}"
    rf"|(?P<before>(?:[\w.:@+-]*[A-Za-z_.:@+-])?)\[{_PIECE}(?:,{_PIECE})*\]),$"
)
_NAME = re.compile(r"[\w.:+@-]+", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?:/(\d{1,9}))?)?", re.ASCII)
_ANY_NAME = re.compile(r"[!-~]{1,255}", re.ASCII)
# A bracket, a plain part, or a comma of a host list.
_PARTS = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)|(,)")


class HostListError(ValueError):
    """A text that is no host list, or one of more hosts than any job has."""


def expand(text: str) -> tuple[str, ...]:
    """Host names of a host list, in its order, each once.

    Brackets hold numbers and ranges with leading zeros kept (`[08-11]`), with an optional step (`[0-8/2]`); several
    of them make a product, the last running fastest. `None assigned` and its like are no hosts.

    Raises
    ------
    HostListError
        When brackets do not match, a range is none or runs backwards, a name has characters no host has or is longer
        than any, or there are more than `MOST_HOSTS` hosts.

    Examples
    --------
    >>> expand("cn[08-10],login")
    ('cn08', 'cn09', 'cn10', 'login')
    """
    if text in NO_HOSTS:
        return ()
    words: list[list[list[tuple[str, range]]]] = [[]]
    at = 0
    while at < len(text):
        part = _PARTS.match(text, at)
        if part is None:
            raise HostListError(f"brackets do not match in {_short(text)}")
        at = part.end()
        bracket, plain, _ = part.groups()
        if bracket is not None:
            words[-1].append([_numbers(piece) for piece in bracket.split(",")])
        elif plain is not None:
            _check_name(plain)
            words[-1].append([(plain, range(1))])
        else:
            words.append([])
    if not all(words):
        raise HostListError(f"a name is missing beside a comma in {_short(text)}")
    size = sum(
        prod(sum(len(numbers) for _, numbers in part) for part in word)
        for word in words
    )
    if size > MOST_HOSTS:
        raise HostListError(f"{_short(text)} has more than {MOST_HOSTS:,} hosts")
    names: dict[str, None] = {}
    for word in words:
        choices = [
            [form.format(number) for form, numbers in part for number in numbers]
            for part in word
        ]
        names.update(dict.fromkeys(map("".join, product(*choices))))
    if max(map(len, names)) > _MOST_NAME:
        raise HostListError(
            f"{_short(text)} has a name of more than {_MOST_NAME} characters"
        )
    return tuple(names)


def _numbers(piece: str) -> tuple[str, range]:
    """Return how the numbers of a piece in brackets are written, and these."""
    match = _RANGE.fullmatch(piece)
    if match is None:
        raise HostListError(f"{_short(piece)} in brackets is no range of numbers")
    low, high, step = match.groups()
    first, last, stride = int(low), int(high or low), int(step or 1)
    if last < first or not stride:
        raise HostListError(f"the range {_short(piece)} runs backwards")
    return f"{{:0{len(low)}}}", range(first, last + 1, stride)


def _check_name(text: str) -> None:
    if text.endswith("+"):
        raise HostListError(f"{_short(text)} ends in +: a list that was cut")
    if len(text) > _MOST_NAME or not _NAME.fullmatch(text):
        raise HostListError(f"{_short(text)} is no name of a host")


def _written(text: str) -> str:
    """A host list as names with commas between them; empty where it is none."""
    try:
        return ",".join(expand(text))
    except HostListError:
        return ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


# --- columns of host lists ------------------------------------------------------------------------------------------


class Ranges(NamedTuple):
    """The ranges of all lists of a column, one list after the other.

    Parameters
    ----------
    made
        Stem and width, least and largest number of each range, in one int64.
    counts, sizes
        How many ranges and how many nodes each list has.
    bad
        Which lists are none.
    """

    made: Whole
    counts: NDArray[np.int32]
    sizes: Whole
    bad: Mask


class HostLists:
    """Reads columns of host lists; stems keep their numbers from one column to the next."""

    def __init__(self) -> None:
        self.stems: dict[str, int] = {}

    def read(self, lists: pa.Array, *, literal: bool = False) -> Ranges:
        """Read a column of lists, of which empty ones, and what schedulers write for no hosts, have none.

        With `literal`, commas separate names, and brackets are no more than parts of them.
        """
        nowhere = pc.is_in(lists, value_set=pa.array(sorted(NO_HOSTS)))
        if pc.any(nowhere).as_py():
            lists = pc.if_else(nowhere, "", lists)
        found = self._usual(lists)
        if not found.bad.any():
            return found
        # Lists of other forms are written out, and read as names.
        rows = np.flatnonzero(found.bad)
        written = lists.take(pa.array(rows)).to_pylist()
        others = (
            self._literal(written)
            if literal
            else self._usual(pa.array(map(_written, written), pa.string()))
        )
        counts, sizes, bad = (
            found.counts.astype(np.int64),
            found.sizes.copy(),
            found.bad.copy(),
        )
        counts[rows], sizes[rows], bad[rows] = (
            others.counts,
            others.sizes,
            others.counts == 0,
        )
        made = np.empty(int(counts.sum()), dtype=np.int64)
        begins = np.cumsum(counts) - counts
        good = np.flatnonzero(~found.bad)
        made[consecutive(begins[good], counts[good])] = found.made
        made[consecutive(begins[rows], counts[rows])] = others.made
        return Ranges(made, counts.astype(np.int32), sizes, bad)

    def _literal(self, lists: list[str]) -> Ranges:
        """Read lists of names that hold any characters but commas; each is a stem without a number."""
        each = [list(dict.fromkeys(text.split(","))) for text in lists]
        bad = np.array(
            [not all(map(_ANY_NAME.fullmatch, names)) for names in each], dtype=bool
        )
        counts = np.array(
            [0 if odd else len(names) for names, odd in zip(each, bad, strict=True)],
            dtype=np.int32,
        )
        named = [
            name
            for names, odd in zip(each, bad, strict=True)
            if not odd
            for name in names
        ]
        stems = np.array(
            [self.stems.setdefault(name, len(self.stems)) for name in named],
            dtype=np.int64,
        )
        return Ranges(
            (10 * stems + _NO_NUMBER) << 2 * _BITS, counts, counts.astype(np.int64), bad
        )

    def _usual(self, lists: pa.Array) -> Ranges:
        """Read lists of names and of names with a bracket at their end; others are bad, and have no ranges."""
        odd = pc.not_equal(
            pc.count_substring(lists, "["), pc.count_substring(lists, "]")
        )
        text, offsets = bytes_of(
            pc.binary_join_element_wise(pc.if_else(odd, "", lists), "", ",")
        )
        depth = (text == _OPEN).view(np.int8) - (text == _CLOSE).view(np.int8)
        inside = np.cumsum(depth, dtype=np.int8) > 0
        # A comma ends each word, the last of a list as well.
        is_end = (text == _COMMA) & ~inside
        ends = np.flatnonzero(is_end) + 1
        begins = np.append(0, ends)[: len(ends)].astype(np.int32)
        owner = np.searchsorted(offsets, begins, side="right") - 1
        some = np.diff(offsets)[owner] > 1
        named, stem = self._stems(text, begins)
        word, low, high, width = _ranges(text, begins, inside, is_end)
        kept = some[word]
        word, low, high, width = word[kept], low[kept], high[kept], width[kept]
        named |= ~some
        of_row = owner[word]
        sizes = np.bincount(of_row, high - low + 1, len(lists)).astype(np.int64)
        bad = (sizes > MOST_HOSTS) | flags(odd)
        bad[owner[~named]] = True
        bad[of_row[high < low]] = True
        made = (10 * stem[word] + width) << 2 * _BITS | low << _BITS | high
        kept = ~bad[of_row]
        order = np.argsort(of_row[kept], kind="stable")
        made, of_row = made[kept][order], of_row[kept][order]
        made, of_row, sizes = _each_once(made, of_row, sizes)
        sizes[bad] = 0
        counts = np.bincount(of_row, minlength=len(lists)).astype(np.int32)
        return Ranges(made, counts, sizes, bad)

    def _stems(self, text: Bytes, begins: NDArray[np.int32]) -> tuple[Mask, Whole]:
        """Which words are names, and the number of the stem of each."""
        offsets = np.append(begins, np.int32(len(text)))
        words = pa.StringArray.from_buffers(
            len(begins), pa.py_buffer(offsets), pa.py_buffer(text)
        )
        parts = pc.extract_regex(words, _WORD)
        both = pc.binary_join_element_wise(
            pc.struct_field(parts, "alone"), pc.struct_field(parts, "before"), ""
        )
        coded = pc.fill_null(both, "").dictionary_encode()
        stems = coded.dictionary.to_pylist()
        known = np.array(
            [self.stems.setdefault(stem, len(self.stems)) for stem in stems],
            dtype=np.int64,
        )
        named = ~flags(pc.is_null(parts))
        # Each ends with a comma, and none is empty, or ends with a plus as lists do that were cut.
        named &= (np.diff(offsets) > 1) & (text[offsets[1:] - 2] != _PLUS)
        which = coded.indices.to_numpy()
        fits = np.array(
            [len(stem) <= _MOST_NAME - _DIGITS for stem in stems], dtype=bool
        )
        return named & fits[which], known[which]


def _each_once(made: Whole, of_row: Whole, sizes: Whole) -> tuple[Whole, Whole, Whole]:
    """Drop ranges that a row has twice, such as a host for each of its slots."""
    same_row = of_row[1:] == of_row[:-1]
    unordered = same_row & (made[1:] <= made[:-1])
    if not unordered.any():
        return made, of_row, sizes
    rows = np.zeros(len(sizes), dtype=bool)
    rows[of_row[1:][unordered]] = True
    mine = np.flatnonzero(rows[of_row])
    order = mine[np.lexsort((made[mine], of_row[mine]))]
    again = order[1:][
        (made[order[1:]] == made[order[:-1]])
        & (of_row[order[1:]] == of_row[order[:-1]])
    ]
    kept = np.ones(len(made), dtype=bool)
    kept[again] = False
    made, of_row = made[kept], of_row[kept]
    return (
        made,
        of_row,
        np.bincount(of_row, sizes_of(made), len(sizes)).astype(np.int64),
    )


def sizes_of(made: Whole) -> Whole:
    """How many nodes each range has."""
    size: Whole = (made & _MASK) - (made >> _BITS & _MASK) + 1
    return size


def keys_of(made: Whole) -> Whole:
    """A number for each node of ranges, one range after the other."""
    return consecutive(made >> _BITS, sizes_of(made))


def of_keys(keys: Whole) -> Whole:
    """A range for each node that is given by its number."""
    made: Whole = keys << _BITS | (keys & _MASK)
    return made


def _ranges(
    text: Bytes, begins: NDArray[np.int32], inside: Mask, is_end: Mask
) -> tuple[Whole, Whole, Whole, Whole]:
    """Word, least and largest number, and width of all ranges: numbers in brackets or at the end of a word."""
    digit = ((text >= _ZERO) & (text <= _NINE)).view(np.int8)
    edges = np.flatnonzero(np.diff(digit, prepend=np.int8(0)))
    left, right = edges[::2], edges[1::2]
    counts = inside[left] | is_end[right]
    left, right = left[counts], right[counts]
    size = np.minimum(right - left, _DIGITS)
    value = np.zeros(len(left), dtype=np.int64)
    for place in range(_DIGITS, 0, -1):
        digits = text[right - np.minimum(place, size)] - np.int64(_ZERO)
        value = np.where(place <= size, value * 10 + digits, value)
    goes_on = text[right] == _DASH  # to the number behind it
    at = np.flatnonzero(~np.append(False, goes_on)[:-1])
    high = value[np.minimum(at + goes_on[at], len(value) - 1)]
    low, size, first = value[at], size[at], text[right[at] - size[at]]
    padded = (first == _ZERO) & (size > 1)
    # Numbers from here on have no leading zero.
    least = np.where(padded, 10 ** np.maximum(size - 1, 0), 0)
    over = padded & (high >= least)
    word = np.searchsorted(begins, left[at], side="right") - 1
    bare = np.flatnonzero(np.bincount(word, minlength=len(begins)) == 0)
    nothing = np.zeros(len(bare), dtype=np.int64)
    wide = np.zeros(int(over.sum()), dtype=np.int64)
    return (
        np.concatenate([word, word[over], bare]),
        np.concatenate([low, np.maximum(low, least)[over], nothing]),
        np.concatenate([np.where(over, least - 1, high), high[over], nothing]),
        np.concatenate([np.where(padded, size, 0), wide, nothing + _NO_NUMBER]),
    )


def bytes_of(column: pa.Array) -> tuple[Bytes, NDArray[np.int32]]:
    """The bytes of all cells of a column of text, and where each cell begins, with the end of the last."""
    _, offsets, data = column.buffers()
    begins = np.frombuffer(offsets, dtype=np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    text = np.frombuffer(data or b"", dtype=np.uint8)[begins[0] : begins[-1]]
    return text, begins - begins[0]


def flags(column: pa.Array) -> Mask:
    """Arrow's booleans as NumPy's; what is null is false."""
    made: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return made


# --- nodes by their places ------------------------------------------------------------------------------------------


def united(ranges: Iterable[Whole]) -> Whole:
    """The ranges that cover what these do, disjoint and ascending."""
    made = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *ranges]))
    if not len(made):
        return made
    low, high = made >> _BITS, (made >> 2 * _BITS << _BITS) | (made & _MASK)
    reach = np.maximum.accumulate(high)
    opens = np.append(True, low[1:] > reach[:-1] + 1)
    closes = np.append(opens[1:], True)
    whole: Whole = low[opens] << _BITS | (reach[closes] & _MASK)
    return whole


class Nodes:
    """All nodes of some ranges, by their places, which are consecutive within a range.

    Parameters
    ----------
    lists
        What has read the ranges.
    ranges
        Disjoint and ascending, as `united` gives them.

    Examples
    --------
    >>> lists = HostLists()
    >>> read = lists.read(pa.array(["cn[08-10],login", "cn9", "cn09"]))
    >>> nodes = Nodes(lists, united([read.made]))
    >>> sorted(nodes.names), [nodes.names[place] for place in nodes.of(read.made, read.counts)[0]]
    (['cn08', 'cn09', 'cn10', 'cn9', 'login'], ['cn08', 'cn09', 'cn10', 'login', 'cn9', 'cn09'])
    """

    def __init__(self, lists: HostLists, ranges: Whole) -> None:
        self._low = ranges >> _BITS
        self._sizes = sizes_of(ranges)
        self._first = np.cumsum(self._sizes) - self._sizes
        stems = list(lists.stems)
        self.keys = keys_of(ranges)
        self.names: list[str] = []
        for key, number in zip(
            (self.keys >> _BITS).tolist(), (self.keys & _MASK).tolist(), strict=True
        ):
            stem, width = stems[key // 10], key % 10
            self.names.append(
                stem if width == _NO_NUMBER else f"{stem}{number:0{width}}"
            )

    def __len__(self) -> int:
        return len(self.names)

    def places(self, made: Whole) -> tuple[Whole, Whole]:
        """First place, and how many, of ranges; the latter 0 where a range is not among these."""
        low = made >> _BITS
        at = np.searchsorted(self._low, low, side="right") - 1
        inside = low - self._low[at] if len(self._low) else low
        known = (
            (at >= 0) & (inside < self._sizes[at])
            if len(self._low)
            else np.zeros(len(low), dtype=bool)
        )
        return np.where(known, self._first[at] + inside, 0), np.where(
            known, sizes_of(made), 0
        )

    def of(self, made: Whole, counts: NDArray[np.int32]) -> tuple[Whole, Whole]:
        """Place of each node of some lists, and the number of its list."""
        first, sizes = self.places(made)
        row = np.repeat(np.repeat(np.arange(len(counts)), counts), sizes)
        return consecutive(first, sizes), row


def difference(names: Iterable[str], listed: Iterable[str]) -> str:
    """Why no name is in a list of nodes, for a message; empty if that is not clear.

    >>> difference(["cn1"], ["cn001"])
    'they differ in leading zeros: write cn[001-128], not cn[1-128]'
    """
    plain, expected = set(names), set(listed)
    if {_ZEROS.sub("", name) for name in plain} & {
        _ZEROS.sub("", name) for name in expected
    }:
        return "they differ in leading zeros: write cn[001-128], not cn[1-128]"
    if {name.casefold() for name in plain} & {name.casefold() for name in expected}:
        return "they differ in capital letters"
    if set(map(short_name, plain)) & set(map(short_name, expected)):
        return "they differ in their domains, or one short name has several"
    return ""


_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def short_name(name: str) -> str:
    """A name without its domain; an address such as 10.0.0.1 has none."""
    short = name.partition(".")[0]
    return name if short.isdecimal() else short


def full_forms(names: Sequence[str], nodes: Iterable[int]) -> dict[int, list[int]]:
    """For the place of each short name among some nodes the places of its full forms among them, if there are any.

    >>> full_forms(["cn1", "cn1.a.org", "cn1.b.org", "cn2"], range(4))
    {0: [1, 2]}
    """
    place = {names[node]: node for node in nodes}
    found: dict[int, list[int]] = {}
    for name, node in place.items():
        short = short_name(name)
        if short != name and short in place:
            found.setdefault(place[short], []).append(node)
    return found


def natural(name: str) -> list[str | int]:
    """Key that sorts n2 before n10; every second entry is a number."""
    return [
        int(part) if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", name))
    ]
