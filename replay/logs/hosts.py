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

from bft.replay.logs.times import Mask, Whole, by_word
from bft.replay.trace.node_trace import consecutive

# What schedulers write where a job has no nodes.
NO_HOSTS = frozenset(
    {"", "None assigned", "None", "(null)", "N/A", "NONE", "Unknown", "-"}
)
MOST_HOSTS = 262_144
_DIGITS, _NO_NUMBER, _BITS = 6, 9, 20
_MASK = (1 << _BITS) - 1
# Brackets that are parts of names, see `literal`.
_OF_NAMES = str.maketrans("⟨⟩", "[]")
_NAME = r"[\w.:@+⟨⟩-]"
_RANGE = r"\d{1,18}(?:-\d{1,18}(?:/[1-9]\d{0,8})?)?"
# A name that ends in + is the last of a list that was cut.
_WORD = re.compile(
    rf"(?:(?!{_NAME}{{256}}){_NAME}++|\[{_RANGE}(?:,{_RANGE})*+\])++(?<!\+)", re.ASCII
)
# The usual words: names, and numbers in brackets behind a stem that does not end with a digit.
_PIECE = rf"\d{{1,{_DIGITS}}}(?:-\d{{1,{_DIGITS}}})?"
_USUAL = (
    rf"(?:{_NAME}*[\w.:@⟨⟩-]|(?:{_NAME}*[A-Za-z_.:@+⟨⟩-])?\[{_PIECE}(?:,{_PIECE})*\])"
)


class HostListError(ValueError):
    """A text that is no host list, or one of more hosts than any job has."""


def expand(text: str) -> tuple[str, ...]:
    """Host names of a host list, in its order, each once.

    Brackets hold numbers and ranges with leading zeros kept (`[08-11]`), with an optional step (`[0-8/2]`); several
    of them make a product, the last running fastest. `None assigned` and its like are no hosts.

    Raises
    ------
    HostListError
        When a word is neither a name nor one with numbers in brackets, when a range runs backwards, or when there are
        more than `MOST_HOSTS` hosts.

    Examples
    --------
    >>> expand("cn[08-10],login")
    ('cn08', 'cn09', 'cn10', 'login')
    """
    if text in NO_HOSTS:
        return ()
    names: dict[str, None] = {}
    at, room = 0, MOST_HOSTS
    while at <= len(text):
        word = _WORD.match(text, at)
        end = word.end() if word else at
        if word is None or text[end : end + 1] not in ("", ","):
            shown = ascii(text[at : at + 80])
            raise HostListError(f"{shown} is no list of hosts such as cn1,cn[08-11]")
        parts = re.split(r"\[([^\]]*)\]", word[0])  # every second is a bracket's
        brackets = [[*map(_numbers, part.split(","))] for part in parts[1::2]]
        room -= prod(sum(len(each) for _, each in part) for part in brackets)
        if room < 0:
            raise HostListError(f"{text[:80]!a} has more than {MOST_HOSTS:,} hosts")
        written = (
            [f"{number:0{width}}" for width, each in part for number in each]
            for part in brackets
        )
        form = "{}".join(parts[::2])
        names.update(dict.fromkeys(form.format(*each) for each in product(*written)))
        at = end + 1
    return tuple(names)


def _numbers(piece: str) -> tuple[int, range]:
    """How wide the numbers of a piece in brackets are written, and these."""
    low, _, rest = piece.partition("-")
    high, _, step = rest.partition("/")
    numbers = range(int(low), int(high or low) + 1, int(step or 1))
    if not numbers:
        raise HostListError(f"the range {piece} runs backwards")
    return len(low), numbers


def _written(text: str) -> str | None:
    """A host list as names with commas between them; None where it is none."""
    try:
        return ",".join(expand(text))
    except HostListError:
        return None


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

    def read(self, lists: pa.Array) -> Ranges:
        """Read a column of lists, of which empty ones, and what schedulers write for no hosts, have none."""
        nowhere = pc.is_in(lists, value_set=pa.array(sorted(NO_HOSTS)))
        lists = pc.if_else(nowhere, "", lists)
        found = self._usual(lists)
        if found.bad.any():  # written out, lists of other forms are usual ones
            bad = pa.array(found.bad)
            written = pa.array(
                map(_written, lists.filter(bad).to_pylist()), pa.string()
            )
            found = self._usual(pc.replace_with_mask(lists, bad, written))
        return found

    def _usual(self, lists: pa.Array) -> Ranges:
        """Read lists of names and of names with a bracket at their end; others are bad, and have no ranges."""
        usual = pc.match_substring_regex(lists, f"^({_USUAL}(,{_USUAL})*)?$")
        lists = pc.if_else(pc.fill_null(usual, False), lists, "")
        pieces = pc.split_pattern(lists, ",")
        row, text = pc.list_parent_indices(pieces).to_numpy(), pieces.flatten()
        length = pc.binary_length(text).to_numpy()
        opens, closes = (pc.count_substring(text, each).to_numpy() for each in "[]")
        is_name = np.cumsum(opens - closes) + closes == 0
        if is_name.any():
            names = text.filter(pa.array(is_name)).dictionary_encode()
            pattern = rf"^(.*?)(\d{{0,{_DIGITS}}})$"
            written = pc.replace_substring_regex(names.dictionary, pattern, r"\1[\2")
            bracketed = written.take(names.indices)
            text = pc.replace_with_mask(text, pa.array(is_name), bracketed)
        begins = is_name | (opens > 0)
        stems, numbers = _first_and_last(text, "[")
        stem = by_word(
            stems.filter(pa.array(begins)),
            lambda name: self.stems.setdefault(
                name.translate(_OF_NAMES), len(self.stems)
            ),
        )[np.cumsum(begins) - 1]
        lows, highs = _first_and_last(pc.ascii_rtrim(numbers, "]"), "-")
        low, high = (
            pc.if_else(pc.equal(each, ""), "0", each).cast(pa.int64()).to_numpy()
            for each in (lows, highs)
        )
        digits = pc.binary_length(lows).to_numpy()
        padded = flags(pc.starts_with(lows, "0")) & (digits > 1)
        width = np.where(digits == 0, _NO_NUMBER, np.where(padded, digits, 0))
        # From the first number without a leading zero on, the names of a range have another width.
        least = 10 ** np.maximum(digits - 1, 0)
        over = padded & (high >= least)
        at = np.repeat(np.arange(len(row)), (length > 0) + over.astype(int))
        above = np.append(False, at[1:] == at[:-1])
        low, row = np.where(above, least[at], low[at]), row[at]
        high = np.where(over[at] & ~above, least[at] - 1, high[at])
        width = np.where(above, 0, width[at])
        bad = ~flags(usual)
        bad[row[high < low]] = True
        bad |= np.bincount(row, high - low + 1, len(lists)) > MOST_HOSTS
        good = ~bad[row]
        made = (10 * stem[at] + width) << 2 * _BITS | low << _BITS | high
        made, row = _each_once(made[good], row[good])
        sizes = np.bincount(row, sizes_of(made), len(lists)).astype(np.int64)
        counts = np.bincount(row, minlength=len(lists)).astype(np.int32)
        return Ranges(made, counts, sizes, bad)


def literal(lists: pa.Array) -> pa.Array:
    """Host lists in which brackets are no more than parts of names, to be read as others."""
    return pc.replace_substring(pc.replace_substring(lists, "[", "⟨"), "]", "⟩")


def _first_and_last(column: pa.Array, mark: str) -> tuple[pa.Array, pa.Array]:
    """What stands before the first and behind the last mark in each cell, which is the whole cell without any."""
    parts = pc.split_pattern(column, mark)
    bounds = parts.offsets.to_numpy()
    return parts.values.take(bounds[:-1]), parts.values.take(bounds[1:] - 1)


def _each_once(made: Whole, row: Whole) -> tuple[Whole, Whole]:
    """Drop ranges that a row has twice, such as a host for each of its slots."""
    unordered = (row[1:] == row[:-1]) & (made[1:] <= made[:-1])
    mine = np.flatnonzero(np.isin(row, row[1:][unordered]))
    order = mine[np.lexsort((made[mine], row[mine]))]
    again = (np.diff(made[order]) == 0) & (np.diff(row[order]) == 0)
    kept = np.ones(len(made), dtype=bool)
    kept[order[1:][again]] = False
    return made[kept], row[kept]


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


def flags(column: pa.Array) -> Mask:
    """Arrow's booleans as NumPy's; what is null is false."""
    made: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return made


# --- nodes by their places ------------------------------------------------------------------------------------------


def united(ranges: Iterable[Whole]) -> Whole:
    """The ranges that cover what these do, disjoint and ascending."""
    made = np.sort(
        np.concatenate([np.zeros(0, dtype=np.int64), *ranges]), kind="stable"
    )
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
        self.keys = keys_of(ranges)
        # Ahead of all, one without a node.
        self._low = np.append(np.int64(-1), ranges >> _BITS)
        self._sizes = np.append(0, sizes_of(ranges))
        self._first = np.cumsum(self._sizes) - self._sizes
        stems = list(lists.stems)
        self.names: list[str] = []
        for key, number in zip(self.keys >> _BITS, self.keys & _MASK, strict=True):
            width = int(key % 10)
            written = "" if width == _NO_NUMBER else f"{number:0{width}}"
            self.names.append(stems[key // 10] + written)

    def __len__(self) -> int:
        return len(self.names)

    def places(self, made: Whole) -> tuple[Whole, Whole]:
        """First place, and how many, of ranges; the latter 0 where a range is not among these."""
        low = made >> _BITS
        at = np.searchsorted(self._low, low, side="right") - 1
        inside = low - self._low[at]
        known = inside < self._sizes[at]
        return self._first[at] + inside, np.where(known, sizes_of(made), 0)

    def of(self, made: Whole, counts: NDArray[np.int32]) -> tuple[Whole, Whole]:
        """Place of each node of some lists, and the number of its list."""
        first, sizes = self.places(made)
        row = np.repeat(np.repeat(np.arange(len(counts)), counts), sizes)
        return consecutive(first, sizes), row


def difference(names: Iterable[str], listed: Iterable[str]) -> str:
    """Why no name is in a list of nodes, for a message; empty if that is not clear.

    >>> difference(["cn1"], ["CN001.a.org"])
    'they differ in leading zeros (cn[001-128] is not cn[1-128]), in capital letters or in their domains'
    """

    def plain(name: str) -> str:
        return re.sub(r"(?<!\d)0+(?=\d)", "", short_name(name).casefold())

    if set(map(plain, names)).isdisjoint(map(plain, listed)):
        return ""
    return "they differ in leading zeros (cn[001-128] is not cn[1-128]), in capital letters or in their domains"


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
