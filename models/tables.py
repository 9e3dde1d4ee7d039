"""One function by which job tables and matrix traces are read, whatever file they are in."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import tarfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias, cast

from bft.models.errors import InputError
from bft.models.pickles.safe_pickle import read_frame

if TYPE_CHECKING:
    import pandas as pd

# Keys by which pandas and Arrow describe columns to themselves, in the metadata of a Parquet file.
_OWN_METADATA: Final = frozenset({b"pandas", b"ARROW:schema", b"PANDAS_ATTRS"})
_HEAD: Final = 512
# Columns of CSV tables that hold names.
TEXT_COLUMNS: Final = ("node", "name", "job", "model", "model_a", "model_b", "user", "vc")
_CHUNK: Final = 1 << 20

# First bytes and what they say a file is; a tar header has its name further on.
_MAGIC: Final = (
    (b"PAR1", "a Parquet file"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"PK\x03\x04", "a zip archive (or a spreadsheet)"),
    (b"BZh", "bzip2-compressed"),
    (b"\xfd7zXZ", "xz-compressed"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed"),
    (b"ARROW1", "an Arrow (Feather) file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite format 3", "an SQLite data base"),
    (b"version https://git-lfs", "a Git LFS pointer, in place of the file itself"),
    (b"<!DOCTYPE", "a web page"),
    (b"<!doctype", "a web page"),
    (b"<html", "a web page"),
    *((bytes([0x80, protocol]), "a pickle") for protocol in range(2, 6)),
    (b"ccopy_reg\n", "a pickle"),
)

Reader: TypeAlias = "Callable[[BinaryIO, str], pd.DataFrame]"


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a job table or a matrix trace by the suffix of its file.

    | suffix                       | is                                                               |
    |------------------------------|------------------------------------------------------------------|
    | .parquet                     | Parquet; a pandas index is restored                              |
    | .csv, .csv.gz                | CSV in UTF-8 with a header line; rows are numbered, no index     |
    | .jsonl, .jsonl.gz            | an object a line                                                 |
    | .pkl, .pickle, .pkl.gz       | a pickled DataFrame, read by `bft.models.pickles.safe_pickle`            |
    | .tar.gz, .tgz                | an archive with exactly one file of the above kinds              |
    | none, and no such file       | that name with .pkl, else with .tar.gz, as the published ones    |

    Returns
    -------
    DataFrame
        With `attrs["metadata"]`, a dict of str to str, of a Parquet file's own key-value metadata.
        The values of a large pickled matrix are read-only.

    Raises
    ------
    InputError
        Naming the file, if it is missing, unreadable, empty, cut short, not what its suffix says,
        or a pickle that would run code.
    """
    path = _found(Path(path))
    suffix = _suffix(path.name)
    try:
        with path.open("rb") as stream:
            if suffix is None:
                raise _unknown(stream.peek(_HEAD), str(path))
            if suffix in _ARCHIVES:
                return _read_archive(stream, str(path))
            return _read(stream, suffix, str(path))
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise InputError(f"damaged or cut short: {error}", file=path, hint="copy it again") from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error


def _found(path: Path) -> Path:
    """Give the file meant by `path`: itself, or the published one of that name without suffix."""
    if path.is_dir():
        raise InputError("is a directory, expected a file", file=path)
    if os.path.lexists(path):
        return path
    tried = [path]
    if _suffix(path.name) is None and path.name:
        for suffix in (".pkl", ".tar.gz"):
            tried.append(path.with_name(path.name + suffix))
            if tried[-1].is_file():
                return tried[-1]
    names = ", ".join(other.name for other in tried[1:])
    raise InputError(f"no such file{f', nor {names} beside it' if names else ''}", file=path)


def _suffix(name: str) -> str | None:
    """Find the longest known suffix."""
    known = (suffix for suffix in (*_READERS, *_ARCHIVES, *_PACKED) if name.lower().endswith(suffix))
    return max(known, key=len, default=None)


def _unknown(head: bytes, file: str) -> InputError:
    what = _sniffed(head)
    return InputError(
        f"has none of the suffixes {', '.join((*_READERS, *_PACKED, *_ARCHIVES))}",
        file=file,
        hint=f"it looks like {what}" if what else None,
    )


def _sniffed(head: bytes) -> str | None:
    """Say what a file is by its first bytes; None for text and for what is not known."""
    if head[257:262] == b"ustar":
        return "a tar archive"
    return next((what for magic, what in _MAGIC if head.startswith(magic)), None)


def _read(stream: IO[bytes], suffix: str, file: str) -> pd.DataFrame:
    """Read a stream as what `suffix` says, after a look at its first bytes."""
    if suffix in _PACKED:
        _expect(_peek(stream), "gzip-compressed", suffix, file)
        with gzip.GzipFile(fileobj=stream, mode="rb") as unpacked:
            frame = _read(cast("IO[bytes]", unpacked), suffix.removesuffix(".gz"), file)
            _drain(unpacked)
        return frame
    expected, reader = _READERS[suffix]
    _expect(_peek(stream), expected, suffix, file)
    return reader(cast("BinaryIO", stream), file)


def _peek(stream: IO[bytes]) -> bytes:
    # All streams here are buffered: files, members of archives, and GzipFile.
    return bytes(cast("io.BufferedReader", stream).peek(_HEAD))[:_HEAD]


def _expect(head: bytes, expected: str | None, suffix: str, file: str) -> None:
    """Refuse an empty file, and one that is something else than its suffix says.

    Of a pickle (protocols 0 and 1) and of text one cannot be sure, hence what is not known passes.
    """
    if not head:
        raise InputError("is empty", file=file)
    found = _sniffed(head)
    sure = expected in ("gzip-compressed", "a Parquet file")
    if found != expected and (sure or found is not None):
        raise InputError(
            f"is {found or 'not ' + str(expected)}, though its name ends in {suffix}",
            file=file,
            hint="rename it to what it is" if found and not found.startswith("a Git") else "fetch it again",
        )


def _drain(unpacked: gzip.GzipFile) -> None:
    """Read to the end, where gzip compares its check sum; a pickle and an archive end before that."""
    while not unpacked.closed and unpacked.read(_CHUNK):  # pandas closes what it has read to the end
        pass


def _read_archive(stream: BinaryIO, file: str) -> pd.DataFrame:
    """Read the one table of a .tar.gz out of the stream; nothing is written to disk."""
    _expect(_peek(stream), "gzip-compressed", ".tar.gz", file)
    with gzip.GzipFile(fileobj=stream, mode="rb") as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as archive:
        members = archive.getmembers()
        tables = [
            member
            for member in members
            # Links lead elsewhere, sparse files are as large as they claim, ._ files are macOS's.
            if member.isreg()
            and not member.issparse()
            and not Path(member.name).name.startswith("._")
            and any(member.name.lower().endswith(suffix) for suffix in _READERS)
        ]
        if len(tables) != 1:
            names = [ascii(member.name)[1:-1] for member in tables or members]
            listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise InputError(
                f"holds {len(tables) or 'no'} tables, expected one ({', '.join(_READERS)})",
                file=file,
                hint=f"{'they are' if tables else 'it holds'} {listed or 'nothing'}",
            )
        member = archive.extractfile(tables[0])
        if member is None:  # only what is no regular file
            raise InputError("holds no file", file=file)
        inside = ascii(tables[0].name)[1:-1]
        with member:
            frame = _read(member, _suffix(tables[0].name) or "", f"{file}, {inside}")
        _drain(unpacked)
        return frame


def _read_pickle(stream: BinaryIO, file: str) -> pd.DataFrame:
    return read_frame(stream, file=file)


def _read_parquet(stream: BinaryIO, file: str) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Arrow reads from the end: a member of an archive, slow to seek in, is brought into memory.
    source = stream if type(stream) is io.BufferedReader else io.BytesIO(stream.read())
    try:
        table = pq.read_table(source)
        frame: pd.DataFrame = table.to_pandas()
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"not a readable Parquet file: {reason}", file=file, hint="is it complete?") from error
    frame.attrs["metadata"] = {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (table.schema.metadata or {}).items()
        if key not in _OWN_METADATA
    }
    return frame


def _read_csv(stream: BinaryIO, file: str) -> pd.DataFrame:
    import pandas as pd

    names = _header(stream, file)
    try:
        with warnings.catch_warnings():
            # A row with more fields than the header would otherwise lose them, with a warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # index_col=False: pandas would else take the first of one field too many as an index.
            # round_trip: the exact value, as Python reads it; the default up to pandas 3.0 is an ulp off.
            exact = tuple(int(part) for part in pd.__version__.split(".")[:2]) >= (3, 1)
            text: Any = {name: str for name in TEXT_COLUMNS if name in names}
            options: Any = {} if exact else {"float_precision": "round_trip"}
            frame: pd.DataFrame = pd.read_csv(
                stream,
                index_col=False,
                low_memory=False,
                # Names are text, whatever they look like: 007 is not 7, and NA is a node, not a gap.
                converters=text,
                **options,
            )
    except pd.errors.ParserWarning as error:
        raise InputError("its rows have more fields than its header line has names", file=file) from error
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text at byte {error.start}", file=file, hint="save it as UTF-8") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise InputError(f"not a readable CSV file: {str(error).strip()}", file=file) from error
    return frame


def _header(stream: BinaryIO, file: str) -> list[str]:
    """The columns that the header line names; refused when it names one twice, as pandas would rename the second."""
    header = stream.readline()
    stream.seek(0)
    try:
        names = next(csv.reader([header.decode("utf-8-sig", "replace")]), [])
    except csv.Error as error:  # such as a lone carriage return
        raise InputError(f"not a readable CSV file: {error}", file=file, row=1) from error
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError("the header line has two columns of this name", file=file, column=twice[0])
    return names


def _read_jsonl(stream: BinaryIO, file: str) -> pd.DataFrame:
    import pandas as pd

    records: list[dict[str, Any]] = []
    for row, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8-sig" if row == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"not UTF-8 text at byte {error.start}", file=file, row=row) from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a line of JSON: {error}", file=file, row=row) from error
        if not isinstance(record, dict):
            raise InputError(
                f"expected a JSON object, found {type(record).__name__}",
                file=file,
                row=row,
                hint="JSON lines have an object a line, and no brackets around them",
            )
        records.append(record)
    if not records:
        raise InputError("is empty", file=file)
    return pd.DataFrame(records)


# By suffix: what the first bytes must say (None: text), and what reads it.
_READERS: Final[dict[str, tuple[str | None, Reader]]] = {
    ".parquet": ("a Parquet file", _read_parquet),
    ".csv": (None, _read_csv),
    ".jsonl": (None, _read_jsonl),
    ".pkl": ("a pickle", _read_pickle),
    ".pickle": ("a pickle", _read_pickle),
}
_PACKED: Final = (".csv.gz", ".jsonl.gz", ".pkl.gz", ".pickle.gz")
_ARCHIVES: Final = (".tar.gz", ".tgz")
