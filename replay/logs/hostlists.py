"""Names of nodes: host lists such as cn[001-128], and which names are those of one node."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from math import prod

from bft.models import InputError

# What schedulers write where a job has no nodes.
NO_HOSTS = frozenset(
    {"", "None assigned", "None", "(null)", "N/A", "NONE", "Unknown", "-"}
)
MOST_HOSTS = 262_144
# Characters of the names of one list: as many hosts with names of 64.
_MOST_TEXT = 16 << 20
# Longest name that the name service knows.
MAX_NAME = 255
CACHE_BYTES = 64 << 20
# Names that a character of different lists stands for on the largest machines; and how many more all may have.
_USUAL_NAMES, _MOST_BEYOND = 400, 5_000_000
# Names of hosts and what may be in brackets; brackets as found by _PARTS have no brackets inside.
_PARTS = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)|(,)")
_NAME = re.compile(r"[\w.:+@-]+", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})(?:/(\d{1,9}))?", re.ASCII)


class HostListError(ValueError):
    """A text that is no host list, or one of more hosts than any job has."""


def expand(text: str, *, max_hosts: int = MOST_HOSTS) -> tuple[str, ...]:
    """Host names of a host list, in its order, each once.

    Brackets hold numbers and ranges with leading zeros kept (`[08-11]`), with an optional step (`[0-8/2]`); several
    of them make a product, the last running fastest. `None assigned` and its like are no hosts. How many hosts that
    makes is known before the first name is: a few characters may stand for any number of them.

    Raises
    ------
    HostListError
        When brackets do not match, a range is none or runs backwards, a name has characters no host has or is longer
        than any, or there are more than `max_hosts` hosts, those named twice counted twice.

    Examples
    --------
    >>> expand("cn[08-10],login")
    ('cn08', 'cn09', 'cn10', 'login')
    """
    if text in NO_HOSTS:
        return ()
    if "[" not in text and "," not in text:  # one host, the most frequent list
        _check_name(text)
        return (text,)
    words = _words(text)
    if _size(words) > max_hosts:
        raise HostListError(f"{_short(text)} has more than {max_hosts:,} hosts")
    return _written(words, text)


def count(text: str) -> int:
    """How many hosts a host list has, those named twice counted twice; HostListError as `expand`.

    >>> count("cn[001-128]")
    128
    """
    return 0 if text in NO_HOSTS else _size(_words(text))


class _Part:
    """A part of a word: plain text, or a bracket as the numbers and ranges in it, of which none is written out."""

    __slots__ = ("_pieces", "size", "width")

    def __init__(self, pieces: list[str | tuple[range, int]]) -> None:
        self._pieces = pieces
        self.size = sum(
            1 if isinstance(piece, str) else len(piece[0]) for piece in pieces
        )
        self.width = max(
            len(piece)
            if isinstance(piece, str)
            else max(piece[1], len(str(piece[0][-1])))
            for piece in pieces
        )

    def texts(self) -> list[str]:
        """All that it stands for: 08-10,12 is 08 09 10 12."""
        texts: list[str] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                texts.append(piece)
            else:
                texts.extend(map(f"{{:0{piece[1]}}}".format, piece[0]))
        return texts


def _words(text: str) -> list[list[_Part]]:
    """The comma-separated words of a host list, each as its parts."""
    words: list[list[_Part]] = [[]]
    index = 0
    while index < len(text):
        part = _PARTS.match(text, index)
        if part is None:
            raise HostListError(f"brackets do not match in {_short(text)}")
        index = part.end()
        bracket, plain, _ = part.groups()
        if bracket is not None:
            words[-1].append(_numbers(bracket))
        elif plain is not None:
            _check_name(plain)
            words[-1].append(_Part([plain]))
        else:
            words.append([])
    for word in words:
        if not word:
            raise HostListError(f"a name is missing beside a comma in {_short(text)}")
        if sum(part.width for part in word) > MAX_NAME:
            raise HostListError(
                f"{_short(text)} has a name of more than {MAX_NAME} characters"
            )
    return words


def _written(words: list[list[_Part]], text: str) -> tuple[str, ...]:
    """All names; HostListError where they are longer together than those of any machine, before one is written."""
    size = sum(_size([word]) * sum(part.width for part in word) for word in words)
    if size > _MOST_TEXT:
        raise HostListError(f"{_short(text)} has names of {size:,} characters")
    names: list[str] = []
    for word in words:
        choices = [part.texts() for part in word]
        if len(choices) == 2 and len(choices[0]) == 1:  # n[1-3], the most frequent
            names.extend(map(choices[0][0].__add__, choices[1]))
        else:
            names.extend(map("".join, product(*choices)))
    return tuple(dict.fromkeys(names))


def _size(words: list[list[_Part]]) -> int:
    return sum(prod(part.size for part in word) for word in words)


def _check_name(text: str) -> None:
    if text.endswith("+"):
        raise HostListError(f"{_short(text)} ends in +: a list that was cut")
    if len(text) > MAX_NAME or not _NAME.fullmatch(text):
        raise HostListError(f"{_short(text)} is no name of a host")


def _numbers(bracket: str) -> _Part:
    """A bracket: 08-10,12."""
    pieces: list[str | tuple[range, int]] = []
    for piece in bracket.split(","):
        if piece.isdecimal() and piece.isascii():
            pieces.append(piece)
            continue
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise HostListError(f"{_short(piece)} in brackets is no range of numbers")
        low, high, step = match.groups()
        first, last, stride = int(low), int(high), int(step or 1)
        if last < first or not stride:
            raise HostListError(f"the range {_short(piece)} runs backwards")
        pieces.append((range(first, last + 1, stride), len(low)))
    return _Part(pieces)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


class NodeLists:
    """Looks up what a reader has expanded before, in bounded memory.

    On a busy machine hardly any list of many nodes comes twice, but its pieces do: `n[0007,0100-0103]` is looked up as
    `n[0007]` and `n[0100-0103]` when it is not known as a whole.

    Parameters
    ----------
    indices
        `Collector.indices`.
    """

    def __init__(self, indices: Callable[[Sequence[str]], array[int]]) -> None:
        self._indices = indices
        self._known: dict[str, array[int]] = {}
        self._pieces: dict[str, dict[str, bytes]] = {}
        self._bytes = self._beyond = 0

    def __call__(self, text: str) -> array[int]:
        """Node indices of a host list.

        Raises
        ------
        HostListError
            When it is none.
        InputError
            When all lists so far name more nodes than those of any log.
        """
        nodes = self._known.get(text)
        if nodes is None:
            if (
                self._bytes > CACHE_BYTES
            ):  # as good as dropping the oldest, and free for what is found
                self._known.clear()
                self._pieces.clear()
                self._bytes = 0
            prefix, _, rest = text.partition("[")
            # Each piece is checked when it is met first; a second bracket would not belong to all pieces.
            if "," in rest and "[" not in rest and rest.endswith("]"):
                nodes = self._together(prefix, rest[:-1].split(","))
            else:
                nodes = self._met(expand(text), text)
            self._bytes += 300 + len(text) + 4 * len(nodes)
            self._known[text] = nodes
        return nodes

    def _together(self, prefix: str, pieces: list[str]) -> array[int]:
        known = self._pieces.setdefault(prefix, {})
        try:
            parts = list(map(known.__getitem__, pieces))
        except KeyError:
            # All are parsed and counted before any is written out: overlapping ranges are many hosts together.
            new = {
                piece: _words(f"{prefix}[{piece}]")
                for piece in pieces
                if piece not in known
            }
            sizes = {piece: _size(words) for piece, words in new.items()}
            item = array("i").itemsize
            if (
                sum(
                    sizes[piece] if piece in sizes else len(known[piece]) // item
                    for piece in pieces
                )
                > MOST_HOSTS
            ):
                raise HostListError(
                    f"{_short(prefix)}[...] has more than {MOST_HOSTS:,} hosts"
                ) from None
            for piece, words in new.items():
                known[piece] = self._met(_written(words, piece), piece).tobytes()
                self._bytes += 300 + len(known[piece])
            parts = [known[piece] for piece in pieces]
        nodes = array("i")
        if sum(map(len, parts)) > MOST_HOSTS * nodes.itemsize:
            raise HostListError(
                f"{_short(prefix)}[...] has more than {MOST_HOSTS:,} hosts"
            )
        nodes.frombytes(b"".join(parts))
        return (
            nodes if len(set(nodes)) == len(nodes) else array("i", dict.fromkeys(nodes))
        )

    def _met(self, names: tuple[str, ...], text: str) -> array[int]:
        """Node indices of a text that is met first; InputError where few characters stand for very many names."""
        self._beyond += len(names) - _USUAL_NAMES * len(text)
        if self._beyond > _MOST_BEYOND:
            why = f"the host lists name too many nodes together, {_short(text)} is one of them"
            usual = f"{_USUAL_NAMES} nodes a character and {_MOST_BEYOND:,} more"
            raise InputError(why, hint=f"expected at most {usual}")
        return self._indices(names)


_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def other_forms(
    names: Sequence[str], listed: Collection[int], owners: Mapping[int, str]
) -> dict[int, int]:
    """Short and full forms of one name: for the index of the one to be replaced the index of the other.

    `cn001` and `cn001.cluster.org` are one node if no other full name has this short form, and if the list of nodes
    does not have both. The form that the list has stays, else the one that comes first in `names`.

    Parameters
    ----------
    names
        All names that were read.
    listed
        Indices of those that are in the list of nodes; empty without a list.
    owners
        Cluster of a node by its index, as far as logs state it: nodes of two clusters are two nodes.

    Examples
    --------
    >>> other_forms(["cn1", "cn1.cluster.org"], listed=[], owners={})
    {1: 0}
    """
    index = {name: k for k, name in enumerate(names)}
    full: dict[str, list[int]] = {}
    for k, name in enumerate(names):
        short = _short_names(name)
        if short != name and short in index:
            full.setdefault(short, []).append(k)
    forms: dict[int, int] = {}
    for short, candidates in full.items():
        pair = index[short], candidates[0]
        two = pair[0] in listed and pair[1] in listed
        two |= len({owners[k] for k in pair if k in owners}) > 1
        if len(candidates) > 1 or two:
            continue
        kept = next((k for k in pair if k in listed), min(pair))
        forms[pair[0] if kept == pair[1] else pair[1]] = kept
    return forms


def unclear_forms(
    names: Sequence[str], nodes: Collection[int], owners: Mapping[int, str]
) -> list[tuple[str, ...]]:
    """Short names among some nodes whose full forms are among them too, so that it is not clear which node they are.

    Parameters
    ----------
    names, owners
        As `other_forms` has them.
    nodes
        Indices of the nodes that are looked at.

    Returns
    -------
    list
        The short name, then its full forms, for each such name.

    Examples
    --------
    >>> unclear_forms(["cn1", "cn1.a.org", "cn1.b.org"], nodes=[0, 1, 2], owners={})
    [('cn1', 'cn1.a.org', 'cn1.b.org')]
    """
    index = {names[k]: k for k in sorted(nodes)}
    full: dict[str, list[str]] = {}
    for name, k in index.items():
        short = _short_names(name)
        if short == name or short not in index:
            continue
        clusters = {owners[node] for node in (k, index[short]) if node in owners}
        if len(clusters) < 2:
            full.setdefault(short, []).append(name)
    return [(short, *forms) for short, forms in full.items()]


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
    if set(map(_short_names, plain)) & set(map(_short_names, expected)):
        return "they differ in their domains, or one short name has several"
    return ""


def _short_names(name: str) -> str:
    """A name without its domain; an address such as 10.0.0.1 has none."""
    short = name.partition(".")[0]
    return name if short.isdecimal() else short
