"""Logs as lines of text, whatever they are packed in and whatever bytes they hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from bft.models import InputError

BLOCK = 1 << 20
# Host lists of large jobs take some 100 kB, JSON on one line is read by pieces: this is no line of a log.
MOST_LINE = 16 << 20
_PACKED = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_FOREIGN = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite data base",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}


@contextmanager
def open_log(path: str | Path, told: Callable[[int], None] | None = None) -> Iterator[Iterator[str]]:
    r"""The lines of a log without their ends; at most a block of 1 MiB and one line are in memory.

    gzip, xz, zstd and bzip2 are known by their first bytes, not by the suffix. Bytes that are not UTF-8 become lone
    surrogates, so that nothing is lost. Lines end with \n or \r\n.

    Parameters
    ----------
    path
        File, or `-` for standard input.
    told
        Called after each block with the bytes read of the file as it is stored.

    Raises
    ------
    InputError
        When there is no such file, when it is a directory or binary, when its compression is damaged, or when a line
        is longer than any of a log.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        stored = open(os.dup(0) if str(path) == "-" else path, "rb")  # noqa: PTH123, SIM115 - closed below
        head = stored.peek(512)[:512]
    except OSError as error:
        known = {IsADirectoryError: "is a directory, expected a file", FileNotFoundError: "no such file"}
        raise InputError(known.get(type(error), f"cannot be read: {error.strerror}"), file=name) from error
    with stored:
        if not head:
            raise InputError("is empty", file=name)
        read, errors = _unpacked(stored, head)
        yield _lines(read, errors, name, lambda: told(stored.tell()) if told and stored.seekable() else None)


def _unpacked(stored: BufferedReader, head: bytes) -> tuple[Callable[[int], bytes], tuple[type[Exception], ...]]:
    """What reads the contents, and what it raises when they are damaged."""
    packing = next((how for magic, how in _PACKED.items() if head.startswith(magic)), None)
    errors: tuple[type[Exception], ...] = (OSError, EOFError, ValueError)
    if packing == "gzip":
        import gzip
        import zlib

        return gzip.GzipFile(fileobj=stored).read, (*errors, zlib.error)
    if packing == "xz":
        import lzma

        return lzma.LZMAFile(stored).read, (*errors, lzma.LZMAError)
    if packing == "bz2":
        import bz2

        return bz2.BZ2File(stored).read, errors
    if packing == "zstd":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd").read, errors
    return stored.read, errors


def _lines(
    read: Callable[[int], bytes], errors: tuple[type[Exception], ...], name: str, told: Callable[[], None]
) -> Iterator[str]:
    rest = b""
    first = True
    while True:
        try:
            block = read(BLOCK)
        except errors as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"cannot be read or unpacked: {reason}", file=name, hint="is it complete?") from error
        if first:
            first = False
            _refuse_binary(block, name)
            block = block.removeprefix(b"\xef\xbb\xbf")
        told()
        if not block:
            break
        cut = block.rfind(b"\n")
        if cut < 0:
            rest += block
            if len(rest) > MOST_LINE:
                raise InputError(f"has a line longer than {MOST_LINE >> 20} MiB: no log has", file=name)
            continue
        text = rest + block[:cut]
        rest = block[cut + 1 :]
        if b"\r\n" in text or text.endswith(b"\r"):
            text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
        yield from text.decode("utf-8", "surrogateescape").split("\n")
    if rest:
        yield rest.removesuffix(b"\r").decode("utf-8", "surrogateescape")


def _refuse_binary(head: bytes, name: str) -> None:
    what = next((kind for magic, kind in _FOREIGN.items() if head.startswith(magic)), None)
    # A log keeps blocks of NUL bytes after a crash, but does not begin with mostly control characters.
    start = head[:512]
    odd = sum(byte < 32 and byte not in (9, 10, 13, 31) for byte in start)
    if what is None and odd > len(start) // 4:
        what = "binary"
    if what is not None:
        raise InputError(f"is {what}, expected the text of a log", file=name)
