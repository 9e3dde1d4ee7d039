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

import pyarrow as pa

from bft.models import InputError
from bft.models.files import reading, unpacked, whole_lines

_FOREIGN = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite data base",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}


class Lines:
    r"""The lines of one file, in blocks of bytes or one by one, from any line on.

    Bytes that are not UTF-8 become lone surrogates in text, so that nothing is lost. Lines end with \n or \r\n.

    Parameters
    ----------
    blocks
        Whole lines, without the end of the last of each block.
    columns
        Names of the columns of a Parquet file, which has no lines (`tables` reads its rows); None: it is text.

    Attributes
    ----------
    read
        How many lines were taken so far, which is the number of the line before the next.
    """

    def __init__(
        self, blocks: Iterator[bytes], columns: list[str] | None = None
    ) -> None:
        self._blocks = blocks
        self.columns = columns
        self.read = 0

    def block(self) -> bytes | None:
        """Take the next lines as bytes, without the end of the last; None when there are none."""
        block = next(self._blocks, None)
        if block is not None:
            self.read += block.count(b"\n") + 1
        return block

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Take the lines one by one, each with its number."""
        for block in self._blocks:
            for line in block.decode("utf-8", "surrogateescape").split("\n"):
                self.read += 1
                yield self.read, line

    def head(
        self, wanted: Callable[[str], object] = str.strip, limit: int = 100
    ) -> list[str]:
        """Return the first lines that are `wanted`, at most `limit` of the next block's; none is taken."""
        for block in self._blocks:
            if block.strip():
                self._blocks = chain([block], self._blocks)
                lines = block.decode("utf-8", "surrogateescape").split("\n")
                return [line for line in lines if wanted(line)][:limit]
            self.read += block.count(b"\n") + 1
        return []


@contextmanager
def open_lines(
    path: str | Path, progress: Callable[[int], None] | None = None
) -> Iterator[Lines]:
    r"""Open a log as lines; at most a block of 1 MiB and one line are in memory.

    gzip, xz, zstd and bzip2 are known by their first bytes, not by the suffix.

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
        is longer than any of a log (`bft.models.files.MAX_LINE`).

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
    is_input = str(path) == "-"
    name = "standard input" if is_input else str(path)
    if is_input and sys.stdin is None:  # and another file may have its number
        raise InputError("is closed", file=name)
    with reading(name):
        stored = open(os.dup(0) if is_input else path, "rb")  # noqa: PTH123, SIM115 - closed below

    def report() -> None:
        if progress and stored.seekable():
            progress(stored.tell())

    with stored:
        head = stored.peek(512)[:512]
        if not head:
            raise InputError("is empty", file=name)
        if head.startswith(b"PAR1"):
            from pyarrow import parquet  # here: few logs are Parquet

            with parquet_damage(name):
                names = parquet.read_schema(name).names
            yield Lines(iter(()), names)
            return
        with reading(name):
            content = unpacked(stored)
            _refuse_binary(name, content.peek(512))
        yield Lines(whole_lines(content, name, report))


def first_line(lines: Lines) -> str:
    """Return the first line that is no blank and no comment, which is not taken; of Parquet the names of columns."""
    head = lines.head(lambda line: line.strip() and line[0] not in "#;", 1)
    return "".join(head) if lines.columns is None else ",".join(lines.columns)


@contextmanager
def parquet_damage(name: str) -> Iterator[None]:
    """Raise InputError where a Parquet file is damaged."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        why = f"cannot be read as Parquet: {str(error).splitlines()[0]}"
        raise InputError(why, file=name) from error


def _refuse_binary(name: str, head: bytes) -> None:
    """Refuse what is no text: a log keeps blocks of NUL bytes after a crash, but does not begin with such."""
    kinds = [kind for magic, kind in _FOREIGN.items() if head.startswith(magic)]
    odd = sum(byte < 32 and byte not in (9, 10, 13, 31) for byte in head[:512])
    if odd > len(head[:512]) // 4:
        kinds.append("binary")
    if kinds:
        raise InputError(f"is {kinds[0]}, expected the text of a log", file=name)


# A job takes some 10 kB, with 10,000 steps some 30 MB.
_MOST_OBJECT = 64 << 20
_DECODER = json.JSONDecoder()
_BLOCK = 1 << 20
_BEGIN = re.compile(r"[^\s,:]")


class _Json:
    """JSON texts of which a part is in memory."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self._text, self._at = lines, "", 0
        self.line = lines.read + 1

    def next(self) -> str:
        """Return the next character that is neither blank nor between values; empty at the end."""
        while True:
            found = _BEGIN.search(self._text, self._at)
            self._move(found.start() if found else len(self._text))
            if found:
                return found[0]
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
            except ValueError:
                if len(self._text) - self._at > _MOST_OBJECT or not self._more():
                    raise
            else:
                self._move(end)
                return value

    def _move(self, at: int) -> None:
        self.line += self._text.count("\n", self._at, at)
        self._at = at

    def _more(self) -> bool:
        """Read as much again as waits, so that a long value is tried a few times only."""
        rest = self._text[self._at :]
        read = (self._lines.block() for _ in range(1 + len(rest) // _BLOCK))
        blocks = [block for block in read if block is not None]
        more = (f"{block.decode('utf-8', 'surrogateescape')}\n" for block in blocks)
        self._text, self._at = "".join([rest, *more]), 0
        return len(blocks) > 0


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
    text, opened = _Json(lines), within if keys is None else keys
    try:
        while mark := text.next():
            if mark not in "{[":
                raise ValueError(f"expected an object, not {mark!r}")
            yield from _members(text, opened, bare=bare, every=keys is None)
    except (ValueError, RecursionError) as error:
        yield text.line, "", ValueError(str(error))


def _members(
    text: _Json, opened: Collection[str], *, bare: bool, every: bool
) -> Iterator[tuple[int, str, Any]]:
    """Yield what is wanted of a list or an object, and take all of it."""
    is_list, begun = text.next() == "[", text.line
    text.take()
    others: dict[str, Any] = {}
    found = False
    while text.next() != ("]" if is_list else "}"):
        name = "" if is_list else str(text.value())
        if text.next() in ("[", "{") and name in opened:
            found = True
            yield from _members(text, (), bare=True, every=True)
            continue
        line, value = text.line, text.value()
        if isinstance(value, dict) and (every or (bare and is_list)):
            yield line, name, value
        elif not is_list:
            others[name] = value
    text.take()
    if bare and not (every or is_list or found):
        yield begun, "", others
