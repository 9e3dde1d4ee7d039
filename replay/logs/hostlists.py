"""Host lists as Slurm writes them: n[01-03,7],login1,r[1-2]c[0-3]."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from itertools import product

# What schedulers write where a job has no nodes.
NO_HOSTS = frozenset({"", "None assigned", "None", "(null)", "N/A", "NONE", "Unknown", "-"})
MOST_HOSTS = 262_144
CACHE_BYTES = 64 << 20
# Names of hosts and what may be in brackets; brackets as found by _PARTS have no brackets inside.
_PARTS = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)|(,)")
_NAME = re.compile(r"[\w.:+@-]+", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})(?:/(\d{1,9}))?", re.ASCII)


class HostListError(ValueError):
    """A text that is no host list, or one of more hosts than any job has."""


def expand(text: str, *, most: int = MOST_HOSTS) -> tuple[str, ...]:
    """Host names of a host list, in its order, each once.

    Brackets hold numbers and ranges with leading zeros kept (`[08-11]`), with an optional step (`[0-8/2]`); several
    of them make a product, the last running fastest. `None assigned` and its like are no hosts.

    Raises
    ------
    HostListError
        When brackets do not match, a range is none or runs backwards, a name has characters no host has, or there
        are more than `most` hosts.
    """
    if text in NO_HOSTS:
        return ()
    if "[" not in text and "," not in text:  # one host, the most frequent list
        if not _NAME.fullmatch(text):
            raise HostListError(f"{_short(text)} is no name of a host")
        return (text,)
    names: list[str] = []
    word: list[tuple[str, ...]] = []
    at = 0
    while at < len(text):
        part = _PARTS.match(text, at)
        if part is None:
            raise HostListError(f"brackets do not match in {_short(text)}")
        at = part.end()
        bracket, plain, _ = part.groups()
        if bracket is not None:
            word.append(_numbers(bracket, most))
        elif plain is not None:
            if not _NAME.fullmatch(plain):
                raise HostListError(f"{_short(plain)} is no name of a host")
            word.append((plain,))
        else:
            _finish(word, names, text, most)
    _finish(word, names, text, most)
    return tuple(dict.fromkeys(names))


def _finish(word: list[tuple[str, ...]], names: list[str], text: str, most: int) -> None:
    """Append the hosts of one comma-separated word and empty it."""
    if not word:
        raise HostListError(f"a name is missing beside a comma in {_short(text)}")
    total = len(names)
    size = 1
    for choices in word:
        size *= len(choices)
    if total + size > most:
        raise HostListError(f"{_short(text)} has more than {most:,} hosts")
    if len(word) == 2 and len(word[0]) == 1:  # n[1-3], the most frequent
        names.extend(map(word[0][0].__add__, word[1]))
    else:
        names.extend(map("".join, product(*word)))
    word.clear()


def _numbers(bracket: str, most: int) -> tuple[str, ...]:
    """What a bracket stands for: 08-10,12 is 08 09 10 12."""
    found: list[str] = []
    for piece in bracket.split(","):
        if piece.isdecimal() and piece.isascii():
            found.append(piece)
            continue
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise HostListError(f"{_short(piece)} in brackets is no range of numbers")
        low, high, step = match.groups()
        first, last, stride = int(low), int(high), int(step or 1)
        if last < first or not stride:
            raise HostListError(f"the range {_short(piece)} runs backwards")
        if (last - first) // stride + len(found) >= most:
            raise HostListError(f"[{_short(bracket)}] has more than {most:,} hosts")
        found.extend(map(f"{{:0{len(low)}}}".format, range(first, last + 1, stride)))
    return tuple(found)


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
        self._bytes = 0

    def __call__(self, text: str) -> array[int]:
        """Node indices of a host list.

        Raises
        ------
        HostListError
            When it is none.
        """
        found = self._known.get(text)
        if found is None:
            if self._bytes > CACHE_BYTES:  # as good as dropping the oldest, and free for what is found
                self._known.clear()
                self._pieces.clear()
                self._bytes = 0
            prefix, _, rest = text.partition("[")
            # Each piece is checked when it is met first; a second bracket would not belong to all pieces.
            if "," in rest and "[" not in rest and rest.endswith("]"):
                found = self._together(prefix, rest[:-1].split(","))
            else:
                found = self._indices(expand(text))
            self._bytes += 300 + len(text) + 4 * len(found)
            self._known[text] = found
        return found

    def _together(self, prefix: str, pieces: list[str]) -> array[int]:
        known = self._pieces.setdefault(prefix, {})
        try:
            parts = list(map(known.__getitem__, pieces))
        except KeyError:
            for piece in pieces:
                if piece not in known:
                    known[piece] = self._indices(expand(f"{prefix}[{piece}]")).tobytes()
                    self._bytes += 300 + len(known[piece])
            parts = [known[piece] for piece in pieces]
        found = array("i")
        if sum(map(len, parts)) > MOST_HOSTS * found.itemsize:
            raise HostListError(f"{_short(prefix)}[...] has more than {MOST_HOSTS:,} hosts")
        found.frombytes(b"".join(parts))
        return found if len(set(found)) == len(found) else array("i", dict.fromkeys(found))
