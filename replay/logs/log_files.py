"""Logs as lines of text, whatever they are packed in and whatever bytes they hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from bft.models import InputError
from bft.models.limited_reading import unpacking, whole_lines
from bft.replay.logs.tables import MAGIC, parquet_lines

_FOREIGN = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite data base",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}


# Blank lines, and nothing else in a block, from which on a file is refused.
_MOST_BLANK = 100_000


class LogLines:
    """The lines of a log, which a reader may also take in blocks of bytes, from any line on.

    Parameters
    ----------
    blocks
        Whole lines of UTF-8 text, without the end of the last; None: the log is made of `lines` alone.
    lines
        What comes before the blocks.

    Attributes
    ----------
    in_blocks
        Whether there are blocks: `block` would else put all lines together.
    """

    def __init__(
        self, blocks: Iterable[bytes] | None = None, lines: Iterable[str] = ()
    ) -> None:
        self.in_blocks = blocks is not None
        self._blocks = iter(blocks or ())
        self._lines = iter(lines)

    def __iter__(self) -> Iterator[str]:
        while True:
            # `yield from` would close a generator of lines when the loop around this one is left.
            for line in self._lines:  # noqa: UP028
                yield line
            block = next(self._blocks, None)
            if block is None:
                return
            self._lines = iter(block.decode("utf-8", "surrogateescape").split("\n"))

    def __next__(self) -> str:
        return next(iter(self))

    def peek(self, is_last: Callable[[str], object], limit: int) -> list[str]:
        """Return the next lines, up to the first that is true of `is_last`, or as many as the limit; none is taken."""
        head: list[str] = []
        for line in self:
            head.append(line)
            if is_last(line) or len(head) == limit:
                break
        self.unread(head)
        return head

    def unread(self, lines: Iterable[str]) -> None:
        """Lines that come next, again."""
        self._lines = chain(lines, self._lines)

    def block(self) -> bytes | None:
        """The next lines as bytes, without the end of the last; None when there are none."""
        for first in self._lines:  # what is left of the block before
            rest = "\n".join([first, *self._lines])
            return rest.encode("utf-8", "surrogateescape")
        return next(self._blocks, None)


@contextmanager
def open_log(
    path: str | Path, progress: Callable[[int], None] | None = None
) -> Iterator[LogLines]:
    r"""The lines of a log without their ends; at most a block of 1 MiB and one line are in memory.

    gzip, xz, zstd and bzip2 are known by their first bytes, not by the suffix. Bytes that are not UTF-8 become lone
    surrogates, so that nothing is lost. Lines end with \n or \r\n. Parquet is read as lines of CSV.

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
    ...     with open_log(file) as log:
    ...         list(log)
    ['a', 'b']
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
    with stored:
        if not head:
            raise InputError("is empty", file=name)
        if head.startswith(MAGIC):
            yield LogLines(lines=_lines_of_parquet(path, name))
            return
        blocks = whole_lines(
            unpacking(stored, head, name),
            name,
            first=lambda block: _refuse_binary(block, name),
            on_block=lambda: (
                progress(stored.tell()) if progress and stored.seekable() else None
            ),
        )
        yield LogLines(_refusing_blank(blocks, name))


def _refusing_blank(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The blocks; refuses one of blank lines alone, as each takes as long as one of a job."""
    begun = 1
    for block in blocks:
        lines = block.count(b"\n") + 1
        if lines > _MOST_BLANK and block.isspace():
            why = f"line {begun} and the {lines - 1:,} after it are blank: no log"
            raise InputError(why, file=name)
        begun += lines
        yield block


def _lines_of_parquet(path: str | Path, name: str) -> Iterator[str]:
    if name != str(path):  # its end is read first
        raise InputError(
            "is a Parquet file: name it, as it cannot be read from standard input",
            file=name,
        )
    return parquet_lines(path)


def _refuse_binary(head: bytes, name: str) -> None:
    what = next(
        (kind for magic, kind in _FOREIGN.items() if head.startswith(magic)), None
    )
    # A log keeps blocks of NUL bytes after a crash, but does not begin with mostly control characters.
    start = head[:512]
    odd = sum(byte < 32 and byte not in (9, 10, 13, 31) for byte in start)
    if what is None and odd > len(start) // 4:
        what = "binary"
    if what is not None:
        raise InputError(f"is {what}, expected the text of a log", file=name)
