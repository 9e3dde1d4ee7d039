"""Logs as lines of text, whatever they are packed in and whatever bytes they hold."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bft.models import InputError
from bft.models.limited_reading import unpacking, whole_lines

if TYPE_CHECKING:
    import pyarrow as pa

_FOREIGN = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite data base",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}
_PARQUET = b"PAR1"
_ROWS = 50_000
# Bytes of text in so many rows: 5 kB a row, on average.
_MOST_TEXT = 256 << 20
# All rows may hold this many times the size of the file, and a quarter of what a part may.
_TIMES_STORED = 100

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

    @classmethod
    def of(cls, lines: Iterable[str]) -> LogLines:
        """Return lines as they are if they are those of a log, else as ones."""
        return lines if isinstance(lines, LogLines) else cls(lines=lines)

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

    def peek(
        self, is_last: Callable[[str], object], limit: int | None = None
    ) -> list[str]:
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
        if head.startswith(_PARQUET):
            if name != str(path):  # its end is read first
                why = "is a Parquet file: name it, as it cannot be read from standard input"
                raise InputError(why, file=name)
            yield LogLines(lines=_parquet_lines(path))
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


def _parquet_lines(path: str | Path) -> Iterator[str]:
    """A Parquet file as lines of CSV, all fields quoted, so that readers of text can take it.

    Times are written as ISO stamps, with Z where the column has a zone; lists with commas between their items; line
    breaks in text become blanks; columns of other nested types are left out.

    Raises
    ------
    InputError
        When it is no Parquet file, or its rows hold more text than rows of a log do.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        schema = parquet.read_schema(path)
        # As a dictionary, as they are stored: a few kB may state any number of copies of a long text.
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            options = csv.WriteOptions(quoting_style="all_valid", include_header=True)
            first = True
            # Of all rows; those of a few bytes may be any number.
            left = _MOST_TEXT // 4 + _TIMES_STORED * Path(path).stat().st_size
            for batch in file.iter_batches(batch_size=_ROWS):
                left -= _text(batch, str(path))
                if left < 0:
                    why = f"its rows hold more than {_TIMES_STORED} times its size of text: no table of a log"
                    raise InputError(why, file=path)
                columns = {
                    name: _as_text(batch.column(name)) for name in batch.schema.names
                }
                table = pa.table(
                    {
                        name: column
                        for name, column in columns.items()
                        if column is not None
                    }
                )
                text = io.BytesIO()
                csv.write_csv(table, text, options)
                lines = text.getvalue().decode("utf-8", "surrogateescape").split("\n")
                yield from lines[0 if first else 1 : -1]
                first = False
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"cannot be read as Parquet: {str(error).splitlines()[0]}", file=path
        ) from error


def _text(batch: pa.RecordBatch, path: str) -> int:
    """The bytes that the cells of rows take; refuses more than a log has, before they are written out."""
    import pyarrow as pa
    from pyarrow import compute

    size = others = 0
    for column in batch.columns:
        kind = column.type
        if pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
            lengths = compute.binary_length(column.dictionary).cast(pa.int64())
            size += compute.sum(lengths.take(column.indices)).as_py() or 0
        else:
            others += column.nbytes
    if size > _MOST_TEXT:
        what = f"{len(batch):,} of its rows hold {size >> 20:,} MiB of text: no table of a log"
        raise InputError(what, file=path)
    return size + others


def _as_text(column: pa.Array) -> pa.Array | None:
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_nested(kind.value_type):
            return None
        column = compute.binary_join(column.cast(pa.list_(pa.string())), ",")
    elif pa.types.is_nested(kind):
        return None
    elif pa.types.is_floating(
        kind
    ):  # seconds since 1970, and whole numbers beside missing ones
        whole = compute.all(compute.equal(column, compute.floor(column))).as_py()
        column = column.cast(pa.int64()) if whole else column
    text = compute.fill_null(column.cast(pa.string()), "")
    return compute.replace_substring_regex(text, "[\r\n]+", " ")
