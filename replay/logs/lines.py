"""Logs as blocks of whole lines of text, whatever they are packed in and whatever bytes they hold."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from bft.models import InputError
from bft.models.limited_reading import unpacking, whole_lines

_FOREIGN = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite data base",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}
PARQUET = b"PAR1"


class Lines:
    r"""The lines of one file, in blocks of bytes or one by one, from any line on.

    Bytes that are not UTF-8 become lone surrogates in text, so that nothing is lost. Lines end with \n or \r\n.

    Parameters
    ----------
    blocks
        Whole lines, without the end of the last of each block.

    Attributes
    ----------
    read
        How many lines were taken so far, which is the number of the line before the next.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.read = 0

    def block(self) -> bytes | None:
        """Take the next lines as bytes, without the end of the last; None when there are none."""
        block = next(self._blocks, None)
        if block is not None:
            self.read += block.count(b"\n") + 1
        return block

    def unread(self, block: bytes) -> None:
        """Give lines back that come next, again."""
        self.read -= block.count(b"\n") + 1
        self._blocks = chain([block], self._blocks)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Take the lines one by one, each with its number."""
        while (block := next(self._blocks, None)) is not None:
            for line in block.decode("utf-8", "surrogateescape").split("\n"):
                self.read += 1
                yield self.read, line

    def head(
        self, wanted: Callable[[str], object] = str.strip, limit: int = 100
    ) -> list[str]:
        """Return the first lines that are `wanted`, at most `limit` of the next block's; none is taken."""
        block = next(self._blocks, None)
        while block is not None and block.isspace():
            self.read += block.count(b"\n") + 1
            block = next(self._blocks, None)
        if block is None:
            return []
        self._blocks = chain([block], self._blocks)
        text = block.decode("utf-8", "surrogateescape")
        return [line for line in text.split("\n") if wanted(line)][:limit]


@contextmanager
def open_lines(
    path: str | Path, progress: Callable[[int], None] | None = None
) -> Iterator[Lines]:
    r"""Open a log as lines; at most a block of 1 MiB and one line are in memory.

    gzip, xz, zstd and bzip2 are known by their first bytes, not by the suffix. A Parquet file has no lines: `Lines`
    without any are yielded, and `tables` reads its columns.

    Parameters
    ----------
    path
        File, or `-` for standard input.
    progress
        Called after each block with the bytes read of the file as it is stored.

    Raises
    ------
    InputError
        When there is no such file, when it is a directory or binary, when its compression is damaged, or when a line
        is longer than any of a log (`bft.models.limited_reading.MAX_LINE`).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "log.txt")
    ...     _ = file.write_text("a\r\nb\n")
    ...     with open_lines(file) as log:
    ...         list(log)
    [(1, 'a'), (2, 'b')]
    """
    name = "standard input" if str(path) == "-" else str(path)
    if str(path) == "-" and sys.stdin is None:  # and another file may have its number
        raise InputError("is closed", file=name)
    try:
        stored = open(os.dup(0) if str(path) == "-" else path, "rb")  # noqa: PTH123, SIM115 - closed below
        head = stored.peek(512)[:512]
    except OSError as error:
        known = {
            IsADirectoryError: "is a directory, expected a file",
            FileNotFoundError: "no such file",
        }
        raise InputError(
            known.get(type(error), f"cannot be read: {error.strerror}"), file=name
        ) from error

    def report() -> None:
        if progress and stored.seekable():
            progress(stored.tell())

    with stored:
        if not head:
            raise InputError("is empty", file=name)
        is_parquet = head.startswith(PARQUET)
        if is_parquet and name != str(path):  # its end is read first
            why = "is a Parquet file: name it, as it cannot be read from standard input"
            raise InputError(why, file=name)
        blocks = whole_lines(
            unpacking(stored, head, name),
            name,
            first=lambda block: _refuse_binary(block, name),
            on_block=report,
        )
        yield Lines(iter(()) if is_parquet else blocks)


def first_line(lines: Lines, path: str) -> str:
    """Return the first line that is no blank and no comment, which is not taken; of Parquet the names of columns."""
    head = lines.head(lambda line: line.strip() and line[0] not in "#;", 1)
    if head or not Path(path).is_file():
        return "".join(head)
    with Path(path).open("rb") as stored:
        if stored.read(len(PARQUET)) != PARQUET:
            return ""
    from pyarrow import parquet  # here: few logs are Parquet

    return ",".join(parquet.read_schema(path).names)


def _refuse_binary(head: bytes, name: str) -> None:
    """Refuse what is no text: a log keeps blocks of NUL bytes after a crash, but does not begin with such."""
    what = next(
        (kind for magic, kind in _FOREIGN.items() if head.startswith(magic)), None
    )
    start = head[:512]
    odd = sum(byte < 32 and byte not in (9, 10, 13, 31) for byte in start)
    if what is None and odd > len(start) // 4:
        what = "binary"
    if what is not None:
        raise InputError(f"is {what}, expected the text of a log", file=name)


# A job takes some 10 kB, with 10,000 steps some 30 MB.
_MOST_OBJECT = 64 << 20
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[\s,:]*")


class _Texts:
    """JSON texts of which a part is in memory."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._text, self._at = "", 0
        self.line = 1

    def next(self) -> str:
        """Return the next character that is neither blank nor between values; empty at the end."""
        while True:
            blank = _SPACE.match(self._text, self._at)
            self._move(blank.end() if blank else self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self) -> None:
        """Take one character."""
        self._move(self._at + 1)

    def value(self) -> Any:
        """Take a whole value; ValueError where the text is none, or ends within it."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except ValueError as error:
                place = getattr(error, "pos", len(self._text))
                cut = place >= len(self._text) - 16 or "Unterminated" in str(error)
                if len(self._text) - self._at > _MOST_OBJECT or not (
                    cut and self._more()
                ):
                    raise
                continue
            self._move(end)
            return value

    def _move(self, at: int) -> None:
        self.line += self._text.count("\n", self._at, at)
        self._at = at

    def _more(self) -> bool:
        """Read as much again as waits, so that a long value is tried a few times only."""
        self._text, self._at = self._text[self._at :], 0
        parts, size = [self._text], 0
        while size <= len(self._text):
            block = self._lines.block()
            if block is None:
                break
            parts.append(block.decode("utf-8", "surrogateescape") + "\n")
            size += len(block) + 1
        self._text = "".join(parts)
        return size > 0


def objects(
    lines: Lines,
    keys: Collection[str] | None,
    *,
    bare: bool = False,
    within: Collection[str] = (),
) -> Iterator[tuple[int, str, Any]]:
    """Yield each object in the list, or in the object, that the outermost object has under one of the keys.

    Each comes with the line on which it begins and its own key (empty in a list). Several JSON texts may follow one
    another. Where a text is damaged or cut short a ValueError comes in the place of an object, as the last.

    Parameters
    ----------
    lines
        The text, of which all lines are read.
    keys
        None: all objects that the outermost object holds, whatever their keys.
    bare
        Also the objects of an outermost list, and outermost objects that have none of the keys.
    within
        Where all objects are taken: those under these keys are opened, and each object in them is taken instead.
    """
    texts = _Texts(lines)
    try:
        while mark := texts.next():
            if mark not in "{[":
                raise ValueError(f"expected an object, not {mark!r}")
            yield from _members(texts, keys, bare, within)
    except (ValueError, RecursionError) as error:
        yield texts.line, "", ValueError(str(error))


def _members(
    texts: _Texts, keys: Collection[str] | None, bare: bool, within: Collection[str]
) -> Iterator[tuple[int, str, Any]]:
    """Yield what is wanted of an outermost list or object, and take all of it."""
    outer, begun = texts.next(), texts.line
    texts.take()
    if outer == "[":
        for line, name, value in _each(texts, "]"):
            if bare:
                yield line, name, value
        return
    opened = within if keys is None else keys
    others: dict[str, Any] = {}
    found = False
    while (mark := texts.next()) != "}":
        if not mark:
            raise ValueError("the text ends within an object")
        name = str(texts.value())
        inner = texts.next()
        if name in opened and inner in ("[", "{"):
            found = True
            texts.take()
            yield from _each(texts, "]" if inner == "[" else "}")
            continue
        line, value = texts.line, texts.value()
        if keys is None and isinstance(value, dict):
            yield line, name, value
        elif bare:
            others[name] = value
    texts.take()
    if bare and keys is not None and not found:
        yield begun, "", others


def _each(texts: _Texts, closes: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the objects of a list or of an object, up to its end, which is taken."""
    while (mark := texts.next()) != closes:
        if not mark:
            raise ValueError("the text ends within a list")
        name = str(texts.value()) if closes == "}" else ""
        texts.next()
        line, value = texts.line, texts.value()
        if isinstance(value, dict):
            yield line, name, value
    texts.take()
