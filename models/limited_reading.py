"""Readers for files whose content may be far larger than the file: content is counted, and refused above a limit.

A few kB can expand to any amount of content (compression, dictionaries, references), and a byte of text to a hundred
bytes of memory (`[],`). Every reader takes its bytes from here, and says what a block of them becomes in memory.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

from bft.models.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK: Final = 1 << 20
# Host lists of large jobs take some 100 kB; a row of a matrix of a million nodes 2 MB, its header 10 MB.
MAX_LINE: Final = 16 << 20
# Memory that an input may take, unless this many times its size is more.
MEMORY: Final = 1 << 30
TIMES_STORED: Final = 20
HINT: Final = "--max-input raises the limit"

_PACKED: Final = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
}
_limit: ContextVar[int | None] = ContextVar("memory limit", default=None)

Read: TypeAlias = Callable[[int], bytes]
# Bytes of memory per block of content.
Weigh: TypeAlias = Callable[[bytes], int]


class Budget:
    """Memory that the content of one file may take, and how much it has been found to take.

    Parameters
    ----------
    file
        Its name, for messages.
    stored
        Its size in bytes, as far as known.
    """

    def __init__(self, file: str, stored: int = 0) -> None:
        given = _limit.get()
        self.file = file
        self.limit = max(MEMORY, TIMES_STORED * stored) if given is None else given
        self.taken = 0

    def take(self, size: int) -> None:
        """Count bytes of memory; InputError beyond the limit."""
        self.taken += size
        if self.taken > self.limit:
            raise InputError(
                f"its content would take more than {readable(self.limit)} of memory",
                file=self.file,
                hint=f"it takes {readable(self.taken)} or more; {HINT}",
            )


@contextmanager
def memory_limit(size: int | None) -> Iterator[None]:
    """Let an input take `size` bytes of memory inside the block; None: what is usual."""
    token = _limit.set(size)
    try:
        yield
    finally:
        _limit.reset(token)


def readable(size: int) -> str:
    """A size in bytes for people: 1.5 GiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


@contextmanager
def reading(file: str | Path) -> Iterator[None]:
    """Tell what goes wrong in reading a file: it is missing or damaged, or its content does not fit into memory."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError("no such file", file=file) from error
    except IsADirectoryError as error:
        raise InputError("is a directory, expected a file", file=file) from error
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise damaged(error, file) from error
    except MemoryError as error:
        raise out_of_memory(error, file) from error


def out_of_memory(error: Exception, file: str | Path | None = None) -> InputError:
    """The text for a MemoryError of Python, NumPy, or Arrow."""
    detail = str(error).strip().splitlines()
    message = f"not enough memory{f': {detail[0]}' if detail else ''}"
    return InputError(
        message,
        file=file,
        hint="a limit such as ulimit -v may be too low, or the input too large",
    )


def unpacking(stored: BinaryIO, head: bytes, file: str) -> Read:
    """The reader of an open file's content, compressed or not, which raises InputError where the content is damaged.

    Parameters
    ----------
    stored
        The file, at its begin.
    head
        Its first bytes, by which gzip, xz, zstd and bzip2 are known.
    file
        Its name, for messages.
    """
    packing = next(
        (name for magic, name in _PACKED.items() if head.startswith(magic)), None
    )
    errors: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error)
    read: Read = stored.read
    if packing == "gzip":
        read = gzip.GzipFile(fileobj=stored).read
    elif packing == "xz":
        import lzma

        read = lzma.LZMAFile(stored).read  # noqa: SIM115 - its reader is returned
        errors += (lzma.LZMAError,)
    elif packing == "bz2":
        import bz2

        read = bz2.BZ2File(stored).read
    elif packing == "zstd":
        import pyarrow as pa

        read = pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd").read

    def checked(size: int) -> bytes:
        try:
            return read(size)
        except MemoryError as error:
            raise out_of_memory(error, file) from error
        except errors as error:
            raise damaged(error, file) from error

    return checked


class _Bounded(io.RawIOBase):
    """A stream that counts what it gives."""

    def __init__(self, read: Read, budget: Budget, weigh: Weigh) -> None:
        self._read, self._budget, self._weigh = read, budget, weigh

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        block = self._read(min(len(view), BLOCK))
        self._budget.take(self._weigh(block))
        view[: len(block)] = block
        return len(block)


def damaged(error: Exception, file: str | Path) -> InputError:
    """The text for a file that cannot be read to its end: no permission, or damaged content."""
    if isinstance(error, OSError) and error.errno is not None:
        return InputError(f"cannot be read: {error.strerror or error}", file=file)
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(
        f"damaged or cut short: {reason}", file=file, hint="copy it again"
    )


def bounded(read: Read, budget: Budget, weigh: Weigh) -> io.BufferedReader:
    """A stream over `read` that refuses to give more than the budget has memory for.

    Parameters
    ----------
    read
        Reads at most a given number of bytes of content.
    budget
        Of the file.
    weigh
        Size of a block of content in memory; each block is counted once.
    """
    return io.BufferedReader(_Bounded(read, budget, weigh), BLOCK)


@contextmanager
def opened(path: str | Path, weigh: Weigh) -> Iterator[io.BufferedReader]:
    """Open a file, compressed or not, as a stream of its content, within the bounds that `weigh` finds.

    Raises
    ------
    InputError
        When it is missing, a directory, damaged, or larger than its budget.
    """
    with reading(path), Path(path).open("rb") as stored:
        budget = Budget(str(path), Path(path).stat().st_size)
        head = stored.peek(8)[:8]
        if Path(path).suffix == ".gz" and not head.startswith(b"\x1f\x8b"):
            raise InputError(
                "damaged: not gzip-compressed, though its name ends in .gz",
                file=path,
            )
        yield bounded(unpacking(stored, head, budget.file), budget, weigh)


def whole_lines(
    read: Read,
    file: str,
    *,
    first: Callable[[bytes], None] | None = None,
    on_block: Callable[[], None] | None = None,
) -> Iterator[bytes]:
    r"""The content in blocks of whole lines, without the line end of the last; line ends are \n.

    Parameters
    ----------
    read
        Reads at most a given number of bytes of content.
    file
        Name, for messages.
    first, on_block
        Called with the first block, and after each block.

    Raises
    ------
    InputError
        When a line is longer than `MAX_LINE` bytes.
    """
    rest = b""
    begun = False
    while True:
        block = read(BLOCK)
        if not begun:
            begun = True
            if first is not None:
                first(block)
            block = block.removeprefix(b"\xef\xbb\xbf")
        if on_block is not None:
            on_block()
        if not block:
            break
        cut = block.rfind(b"\n")
        if cut < 0:
            rest += block
            if len(rest) > MAX_LINE:
                raise too_long(file)
            continue
        text = rest + block[:cut]
        rest = block[cut + 1 :]
        if b"\r" in text and (
            b"\r\n" in text or text.endswith(b"\r")
        ):  # one byte is found much faster than two
            text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
        yield text
    if rest:
        yield rest.removesuffix(b"\r")


def lines(
    read: Read,
    file: str,
    *,
    decode: str = "surrogateescape",
    first: Callable[[bytes], None] | None = None,
) -> Iterator[str]:
    r"""The lines of UTF-8 text without their ends (\n or \r\n); a block and one line are in memory.

    Parameters
    ----------
    read, file, first
        As `whole_lines` has them.
    decode
        What becomes of bytes that are not UTF-8, as `bytes.decode` has it.

    Raises
    ------
    InputError
        As `whole_lines`.
    """
    for text in whole_lines(read, file, first=first):
        yield from text.decode("utf-8", decode).split("\n")


def too_long(file: str) -> InputError:
    """The text for a line longer than the limit."""
    return InputError(
        f"has a line longer than {readable(MAX_LINE)}: no table or log has", file=file
    )


def weigh_json(block: bytes) -> int:
    """Memory of JSON as Python values, measured with lists and objects of each kind of value."""
    count = block.count
    return (
        len(block)
        + 64 * (count(b"[") + count(b"{"))
        + 60 * count(b":")
        + 40 * (count(b",") + count(b"\n"))
        + 12 * count(b'"')
    )


def weigh_lines(weigh: Weigh, file: str) -> Weigh:
    """Return a weight function that also refuses blocks with a line longer than `MAX_LINE` bytes."""
    length = 0

    def weighed(block: bytes) -> int:
        nonlocal length
        cut = block.rfind(b"\n")
        length = length + len(block) if cut < 0 else len(block) - cut - 1
        if length > MAX_LINE:
            raise too_long(file)
        return weigh(block)

    return weighed


def parse_json(content: bytes | str, **further: Any) -> Any:
    """The value that a JSON text states; `further` goes to `json.loads`.

    Raises
    ------
    ValueError
        When it is not JSON, or when an object has the same key twice.
    """
    return json.loads(content, object_pairs_hook=_unique, **further)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return made


def read_json(path: str | Path) -> Any:
    """The value that a JSON file states, compressed or not.

    Raises
    ------
    InputError
        When it cannot be read, is empty, is not UTF-8 or JSON, has a key twice in an object, or is too large.
    """
    with opened(path, weigh_json) as stream:
        return decoded_json(stream.read(), path)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables that a TOML file states.

    Raises
    ------
    InputError
        When it cannot be read, is not UTF-8 or TOML, or is too large.
    """
    import tomllib  # here: most commands read none

    with opened(path, weigh_json) as stream:
        content = stream.read()
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not TOML: {error}", file=path) from error


def decoded_json(content: bytes, file: str | Path) -> Any:
    """The value that the content of a file states; InputError as `read_json`."""
    if not content.strip():
        raise InputError("not JSON: it is empty", file=file)
    try:
        return parse_json(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        message = f"not JSON: not UTF-8 text at byte {error.start}"
        raise InputError(message, file=file, hint="save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", file=file) from error
