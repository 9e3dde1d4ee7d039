"""Files: read whole or by lines, compressed or not, and written completely or not at all; an error names the file."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import logging
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from bft.models.errors import InputError

logger = logging.getLogger(__name__)

BLOCK: Final = 1 << 20
# Host lists of large jobs take some 100 kB; a row of a matrix of a million nodes 2 MB, its header 10 MB.
MAX_LINE: Final = 16 << 20
# A few kB can unpack to any number of bytes: this many are taken into memory.
MAX_UNPACKED: Final = 4 << 30


@contextmanager
def reading(file: str | Path) -> Iterator[None]:
    """Tell what goes wrong in reading a file: it is missing or damaged, or its content does not fit into memory."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError("no such file", file=file) from error
    except IsADirectoryError as error:
        raise InputError("is a directory, expected a file", file=file) from error
    except (
        OSError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        tarfile.TarError,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(
                f"cannot be read: {error.strerror or error}", file=file
            ) from error
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"damaged or cut short: {reason}", file=file, hint="copy it again"
        ) from error
    except MemoryError as error:
        raise out_of_memory(error, file) from error


def out_of_memory(error: Exception, file: str | Path | None = None) -> InputError:
    """The text for a MemoryError of Python, NumPy, or Arrow, and for a thread that cannot be started."""
    detail = str(error).strip().splitlines()
    return InputError(
        f"not enough memory{f': {detail[0]}' if detail else ''}",
        file=file,
        hint="a limit such as ulimit -v may be too low, or the input too large",
    )


def unpacked(stored: io.BufferedReader) -> io.BufferedReader:
    """The content of an open file at its begin: gzip, xz, zstd and bzip2 are known by their first bytes.

    Reading it raises what `reading` tells.
    """
    head = stored.peek(6)
    if head.startswith(b"\x1f\x8b"):
        content: Any = gzip.GzipFile(fileobj=stored)
    elif head.startswith(b"\xfd7zXZ\x00"):
        content = lzma.LZMAFile(stored)  # noqa: SIM115 - it is returned
    elif head.startswith(b"BZh"):
        content = bz2.BZ2File(stored)
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        import pyarrow as pa  # here: it takes long to import

        content = pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), "zstd")
    else:
        return stored
    return io.BufferedReader(content, BLOCK)


def gathered(stream: IO[bytes] | gzip.GzipFile, file: str | Path) -> io.BytesIO:
    """The rest of a stream in memory, at most `MAX_UNPACKED` bytes."""
    content = io.BytesIO()
    while block := stream.read(BLOCK):
        content.write(block)
        if content.tell() > MAX_UNPACKED:
            raise InputError(
                f"unpacks to more than {MAX_UNPACKED >> 30} GiB",
                file=file,
                hint="unpack it first, or keep it as Parquet",
            )
    content.seek(0)
    return content


@contextmanager
def opened(path: str | Path) -> Iterator[io.BufferedReader]:
    """Open a file, compressed or not, as a stream of its content.

    Raises
    ------
    InputError
        When it is missing, a directory, or damaged.
    """
    with reading(path), Path(path).open("rb") as stored:
        yield unpacked(stored)


def read_content(path: str | Path) -> bytes:
    """The content of a file, compressed or not; InputError as `opened`."""
    with opened(path) as stream:
        return gathered(stream, path).getvalue()


def whole_lines(
    stream: IO[bytes],
    file: str,
    on_block: Callable[[], None] | None = None,
) -> Iterator[bytes]:
    r"""The content in blocks of whole lines, without the line end of the last; line ends are \n.

    Parameters
    ----------
    stream
        Text in UTF-8, or nearly.
    file
        Name, for messages.
    on_block
        Called after each block.

    Raises
    ------
    InputError
        When it is damaged, or a line is longer than `MAX_LINE` bytes.
    """
    rest = b""
    mark = b"\xef\xbb\xbf"
    while True:
        with reading(file):
            block = stream.read(BLOCK)
        if on_block is not None:
            on_block()
        if not block:
            break
        block = block.removeprefix(mark)
        mark = b""
        cut = block.rfind(b"\n")
        if cut < 0:
            rest += block
            if len(rest) > MAX_LINE:
                raise InputError(
                    f"has a line longer than {MAX_LINE >> 20} MiB: no table or log has",
                    file=file,
                )
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
    stream: IO[bytes], file: str, *, decode: str = "surrogateescape"
) -> Iterator[str]:
    r"""The lines of UTF-8 text without their ends (\n or \r\n); a block and one line are in memory.

    Parameters
    ----------
    stream, file
        As `whole_lines` has them.
    decode
        What becomes of bytes that are not UTF-8, as `bytes.decode` has it.

    Raises
    ------
    InputError
        As `whole_lines`.
    """
    for text in whole_lines(stream, file):
        yield from text.decode("utf-8", decode).split("\n")


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
        When it cannot be read, is empty, is not UTF-8 or JSON, or has a key twice in an object.
    """
    with reading(path):  # a document may not fit into memory
        return decoded_json(read_content(path), path)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables that a TOML file states.

    Raises
    ------
    InputError
        When it cannot be read, or is not UTF-8 or TOML.
    """
    import tomllib  # here: most commands read none

    try:
        return tomllib.loads(read_content(path).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not TOML: {error}", file=path) from error


def decoded_json(content: bytes, file: str | Path) -> Any:
    """The value that the content of a file states; InputError as `read_json`."""
    if not content.strip():
        raise InputError("not JSON: it is empty", file=file)
    try:
        return parse_json(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(
            f"not JSON: not UTF-8 text at byte {error.start}",
            file=file,
            hint="save it as UTF-8",
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", file=file) from error


# --- files that are written completely or not at all ---


def refuse_existing(output: str | Path, *, force: bool) -> None:
    """Raise InputError when a file exists and may not be replaced; called before the work."""
    if not force and Path(output).exists():
        raise InputError("exists; $force replaces it", file=output)


def refuse_inputs(output: str | Path, inputs: Iterable[str]) -> None:
    """Raise InputError when a target is a file that the command reads; called before the work."""
    for name in inputs:
        if (
            Path(name).exists()
            and Path(output).exists()
            and Path(output).samefile(name)
        ):
            raise InputError(
                "is an input of this command; choose another target", file=output
            )


def unwritable(target: Path, error: OSError) -> InputError:
    """Return the error that names a file or folder which could not be written, and the system's reason."""
    # Not strerror: pyarrow puts the name of a hidden file there.
    reason = os.strerror(error.errno) if error.errno else str(error)
    if isinstance(error, FileExistsError):  # by mkdir
        reason = "its folder is a file"
    return InputError(f"cannot be written: {reason}", file=target)


@contextmanager
def drafted(output: str | Path) -> Iterator[Path]:
    """Yield a path of the same name in a hidden folder beside `output`; when the block ends well it becomes `output`.

    Folders that lack are made. When the block raises, the hidden folder goes and `output` is as it was. Only writing
    belongs into the block: its OSErrors are reported as errors of `output`. A device or a pipe gets the content; a file
    must not take its place. Where `output` is a link, the file that it leads to is written, and a warning names it.
    """
    target = Path(output)
    if not target.name or target.is_dir():
        raise InputError("is a directory, expected a file", file=target)
    is_stream = target.exists() and not target.is_file()
    if target.is_symlink() and not is_stream:
        target = Path(os.path.realpath(target))
        logger.warning("%s is a link: %s is written", output, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = None if is_stream else target.parent
        with tempfile.TemporaryDirectory(prefix=".part.", dir=beside) as folder:
            # The same name: gzip writes it into its header.
            draft = Path(folder, target.name)
            try:
                yield draft
            except InputError as error:
                error.file = target if error.file == draft else error.file
                raise
            if is_stream:
                with draft.open("rb") as content, target.open("wb") as stream:
                    shutil.copyfileobj(content, stream)
            else:
                draft.replace(target)
    except OSError as error:
        raise unwritable(target, error) from error


@contextmanager
def figure_folder(target: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden folder to fill; when the block ends well its files are put into `target`, else nothing is.

    Files of the same names are replaced only with `force`.
    """
    is_file = target.exists() and not target.is_dir()
    if is_file or target.suffix in (".png", ".svg", ".pdf"):
        raise InputError(
            "is a file, expected a folder for one file a chart", file=target
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part.", dir=target) as folder:
            yield Path(folder)
            made = sorted(Path(folder).iterdir())
            for file in made:
                refuse_existing(target / file.name, force=force)
            for file in made:
                file.replace(target / file.name)
    except OSError as error:
        raise unwritable(target, error) from error
