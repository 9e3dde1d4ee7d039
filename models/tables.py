"""One function by which job tables and matrix traces are read, whatever file they are in."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models.cells import GAPS
from bft.models.errors import InputError
from bft.models.files import (
    BLOCK,
    MAX_LINE,
    gathered,
    out_of_memory,
    parse_json,
    reading,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

# Rows of a Parquet file that are written together: those that Arrow takes where nobody says.
ROW_GROUP: Final = 1024 * 1024
# Keys by which pandas and Arrow describe columns to themselves, in the metadata of a Parquet file.
_OWN_METADATA: Final = frozenset({b"pandas", b"ARROW:schema", b"PANDAS_ATTRS"})
_HEAD: Final = 512
# Columns of CSV tables that hold names.
TEXT_COLUMNS: Final = frozenset(
    (
        "node", "name", "job", "job_id", "jobname", "application", "placement", "user", "vc", "flag", "log_a", "log_b",
        "model", "model_a", "model_b", "model1", "model2", "model_name", "dataset1", "dataset2",
    )
)  # fmt: skip

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

# SHA-256 of the published data set's pickles (BFTrainer/Replayer 515f0e5), which need no --trust-pickle.
_PUBLISHED: Final = frozenset(
    (
        "ad8c980a647d35fd1698ff6c19b0bb06a4a935102a88c31adc24d7a3be15d16f",  # ndstat-10sdn6-evt, also in its .tar.gz
        "0e052296387d51eb5004c4fa7a5d76ebcb363729b44dbd22dda5c22b8b5c8eaa",  # ImageNet-imgps-Jbnd, -spdup-Jbnd-1001J
        "e6e7e12af9d24b3cb670ed5e5f784ecbde7343e85a9c0abef8962bc5034f7483",  # ImageNet-imgps-JNPs-1001J
        "222cad5c8211f6e808b7cfbdc6e1b2945a000004333c0bd329eaf8850859ae8d",  # ImageNet-spdup-JNPs-1001J
        "49123d7d13ab74e254209667dec533b21c4cb0cb6309fae29478e4cf9d7cb147",  # hps-shufflenet-Jbnd-1000J
        "5836455268e82bb55ec791b9e206d1ec04f77faee4ef62c1deea17951ac82133",  # hps-shufflenet-JNPs-1000J
        "59587af255e337ef2e79f579d478d6d613e6f17ca29281e12ef73472abf9c21f",  # hps-shufflenet-Jbnd-10J
        "799e21876bd10e9729badcc4ea8c987ccfc6d59acce6927862d74ede7fb150cd",  # hps-shufflenet-JNPs-10J
    )
)
_trusted: ContextVar[bool] = ContextVar("pickles may be opened", default=False)

Columns: TypeAlias = Mapping[str, NDArray[Any]]
Reader: TypeAlias = "Callable[[BinaryIO, str], pd.DataFrame]"


@contextmanager
def trusting_pickles(trust: bool) -> Iterator[None]:
    """Let pickles be opened inside the block if `trust` says so, or a block around it."""
    token = _trusted.set(trust or _trusted.get())
    try:
        yield
    finally:
        _trusted.reset(token)


def read_table(path: str | Path, *, trust_pickle: bool = False) -> pd.DataFrame:
    r"""Read a job table or a matrix trace by the suffix of its file.

    | suffix                       | is                                                               |
    |------------------------------|------------------------------------------------------------------|
    | .parquet                     | Parquet; a pandas index is restored                              |
    | .csv, .csv.gz                | CSV in UTF-8 with a header line; rows are numbered, no index;    |
    |                              | semicolons or tabs may separate columns, and decimals be commas  |
    | .jsonl, .jsonl.gz            | one object per line                                              |
    | .pkl, .pickle, .pkl.gz       | a pickled DataFrame                                              |
    | .tar.gz, .tgz                | an archive with exactly one file of the above kinds              |
    | none, and no such file       | that name with .pkl, else with .tar.gz, as the published ones    |

    Parameters
    ----------
    path
        The file.
    trust_pickle
        Open a pickle, which runs whatever program is in it; the published ones are opened anyway.

    Returns
    -------
    DataFrame
        With `attrs["metadata"]`, a dict of str to str, of a Parquet file's own key-value metadata.

    Raises
    ------
    InputError
        Naming the file, if it is missing, unreadable, empty, cut short, not what its suffix says, a pickle
        that is not trusted, or does not fit into memory.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "table.csv")
    ...     _ = file.write_text("units;rate\n1;1,5\n2;2,5\n")
    ...     read_table(file)["rate"].tolist()
    [1.5, 2.5]
    """
    path = _found(Path(path))
    suffix = _suffix(path.name)
    with trusting_pickles(trust_pickle), reading(path), path.open("rb") as stream:
        if suffix is None:
            known = ", ".join((*_READERS, *_PACKED, *_ARCHIVES))
            content = _sniffed(stream.read(_HEAD))
            raise InputError(
                f"has none of the suffixes {known}",
                file=path,
                hint=f"it looks like {content}" if content else None,
            )
        if suffix in _READERS:
            return _read(stream, suffix, str(path))
        _expect(stream, "gzip-compressed", suffix, str(path))
        with gzip.GzipFile(fileobj=stream) as unpacked:
            if suffix in _ARCHIVES:
                return _read_archive(unpacked, str(path))
            return _read(
                gathered(unpacked, path), suffix.removesuffix(".gz"), str(path)
            )


def _found(path: Path) -> Path:
    """Give the file meant by `path`: itself, or the published one of that name without suffix."""
    if os.path.lexists(path) or _suffix(path.name) is not None:
        return path
    tried = [path.with_name(path.name + suffix) for suffix in (".pkl", ".tar.gz")]
    for published in tried:
        if published.is_file():
            return published
    names = ", ".join(each.name for each in tried)
    raise InputError(f"no such file, nor {names} beside it", file=path)


def _suffix(name: str) -> str | None:
    """Find the longest known suffix."""
    known = (
        suffix
        for suffix in (*_READERS, *_ARCHIVES, *_PACKED)
        if name.lower().endswith(suffix)
    )
    return max(known, key=len, default=None)


def _sniffed(head: bytes) -> str | None:
    """Say what a file is by its first bytes; None for text and for what is not known."""
    if head[257:262] == b"ustar":
        return "a tar archive"
    return next((content for magic, content in _MAGIC if head.startswith(magic)), None)


def _expect(stream: IO[bytes], expected: str | None, suffix: str, file: str) -> None:
    """Raise for an empty file, or one whose first bytes contradict its suffix.

    Of a pickle (protocols 0 and 1) and of text one cannot be sure, hence what is not known passes.
    """
    head = stream.read(_HEAD)
    stream.seek(0)
    if not head:
        raise InputError("is empty", file=file)
    form = _sniffed(head)
    sure = expected in ("gzip-compressed", "a Parquet file")
    if form != expected and (sure or form is not None):
        raise InputError(
            f"is {form or 'not ' + str(expected)}, though its name ends in {suffix}",
            file=file,
            hint="rename it to what it is"
            if form and not form.startswith("a Git")
            else "fetch it again",
        )


def _read(stream: BinaryIO, suffix: str, file: str) -> pd.DataFrame:
    """Read what no longer is compressed."""
    expected, reader = _READERS[suffix]
    _expect(stream, expected, suffix, file)
    return reader(stream, file)


def _read_archive(unpacked: gzip.GzipFile, file: str) -> pd.DataFrame:
    """Read the one table of an archive, forward and without writing anything to disk."""
    names: list[str] = []
    tables: dict[str, io.BytesIO] = {}
    with tarfile.open(fileobj=unpacked, mode="r|") as archive:
        for member in archive:
            names.append(ascii(member.name)[1:-1])
            hidden = Path(member.name).name.startswith("._")  # macOS's
            is_table = member.isreg() and _suffix(member.name) in _READERS
            if is_table and not hidden and (content := archive.extractfile(member)):
                tables[names[-1]] = gathered(content, file)
    while unpacked.read(BLOCK):  # to the end, where gzip compares its check sum
        pass
    if len(tables) != 1:
        shown = ", ".join((list(tables) or names)[:10])
        raise InputError(
            f"holds {len(tables) or 'no'} tables, expected one ({', '.join(_READERS)})",
            file=file,
            hint=f"it holds {shown or 'nothing'}",
        )
    name, table = tables.popitem()
    return _read(table, _suffix(name) or "", f"{file}, {name}")


def _read_pickle(stream: BinaryIO, file: str) -> pd.DataFrame:
    import pandas as pd

    # In memory, so that the very bytes are opened that were looked at.
    content = stream if isinstance(stream, io.BytesIO) else gathered(stream, file)
    if not _trusted.get():
        digest = hashlib.sha256(content.getbuffer()).hexdigest()
        if digest not in _PUBLISHED:
            raise InputError(
                "is a pickle and none of the published ones: opening it runs any program that is in it",
                file=file,
                hint="add $trust_pickle if you trust whoever made it",
            )
    try:
        frame = pd.read_pickle(content)  # noqa: S301 - on the user's word  # nosec B301
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged pickle comes upon
        raise InputError(
            f"not a readable pickle: {type(error).__name__}: {error}", file=file
        ) from error
    if not isinstance(frame, pd.DataFrame):
        raise InputError(
            f"holds a {type(frame).__name__}, expected a DataFrame", file=file
        )
    return frame


def _read_parquet(source: BinaryIO, file: str) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _frame_of(pq.ParquetFile(source).read())
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError | MemoryError):  # Arrow's are of both kinds
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "worker thread" in reason:
            raise out_of_memory(error, file) from error
        raise InputError(
            f"not a readable Parquet file: {reason}", file=file, hint="is it complete?"
        ) from error


def _frame_of(table: pa.Table) -> pd.DataFrame:
    """A table as a frame, with its file's own key-value metadata, without what pandas and Arrow add to it."""
    table.validate(full=True)
    frame: pd.DataFrame = table.to_pandas()
    frame.attrs["metadata"] = {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (table.schema.metadata or {}).items()
        if key not in _OWN_METADATA
    }
    return frame


def _read_csv(stream: BinaryIO, file: str) -> pd.DataFrame:
    import pandas as pd

    delimiter, names = _header(stream, file)
    # Names are text, whatever they look like: 007 is not 7, and NA is a node; nothing at all is a gap. So are the cells
    # of a file with another delimiter, until it is known whether it has decimal commas.
    text: dict[str, type] = {
        name: str for name in names if delimiter != "," or name in TEXT_COLUMNS
    }
    gaps = {name: [""] if name in TEXT_COLUMNS else sorted(GAPS) for name in names}
    # round_trip: the exact value, as Python reads it; the default up to pandas 3.0 is an ulp off.
    exact = tuple(int(part) for part in pd.__version__.split(".")[:2]) >= (3, 1)
    options: Any = {} if exact else {"float_precision": "round_trip"}
    try:
        with warnings.catch_warnings():
            # A row with more fields than the header would otherwise lose them, with a warning.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame: pd.DataFrame = pd.read_csv(
                stream,
                sep=delimiter,
                header=0,
                names=names,
                # Otherwise pandas would use the first column as an index when there is one field too many.
                index_col=False,
                # A quote after a stray space is a quote.
                skipinitialspace=True,
                dtype=text,
                keep_default_na=False,
                na_values=gaps,
                low_memory=False,
                **options,
            )
    except pd.errors.ParserWarning as error:
        raise InputError(
            "its rows have more fields than its header line has names", file=file
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 text at byte {error.start}", file=file, hint="save it as UTF-8"
        ) from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        if "out of memory" in str(error):  # as the parser, written in C, calls it
            raise MemoryError from error
        raise InputError(
            f"not a readable CSV file: {str(error).strip()}", file=file
        ) from error
    return frame if delimiter == "," else _with_numbers(frame, file)


def _with_numbers(frame: pd.DataFrame, file: str) -> pd.DataFrame:
    """Convert columns of text that hold only numbers; spreadsheets in many countries write 1,5 for 1.5.

    Where one column has decimal commas, points in another one may separate thousands: 1.500 is refused.
    """
    import pandas as pd

    number = r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?"
    cells = {
        name: frame[name].str.strip()
        for name in frame.columns
        if name not in TEXT_COLUMNS
    }
    like = {
        name: column.str.fullmatch(number, flags=re.ASCII).fillna(False).astype(bool)
        for name, column in cells.items()
    }
    commas = {
        name: like[name] & column.str.contains(",", regex=False, na=False)
        for name, column in cells.items()
    }
    decimal = next((name for name, matches in commas.items() if matches.any()), None)
    for name, column in cells.items():
        numeric = (like[name] | column.isna() | (column == "")).all()
        points = like[name] & column.str.contains(".", regex=False, na=False)
        if decimal is not None and numeric and points.any():
            row = int(points.to_numpy().argmax())
            raise InputError(
                f"{column.iloc[row]!r} has a point, while column {decimal} has decimal commas",
                file=file,
                row=row + 1,
                column=name,
                hint="write all numbers one way",
            )
        column = column.mask(commas[name], column.str.replace(",", ".", regex=False))
        frame[name] = pd.to_numeric(column.mask(column == "")) if numeric else column
    return frame


def _header(stream: BinaryIO, file: str) -> tuple[str, list[str]]:
    """The delimiter of a table and its column names without spaces around them; the stream is at its begin again.

    Refused when it has a name twice: pandas renames the second.
    """
    for delimiter in (",", ";", "\t"):
        rows = csv.reader(
            _texts(stream, file), delimiter=delimiter, skipinitialspace=True
        )
        try:
            named = (row for row in rows if len(row) > 1 or "".join(row).strip())
            names = next(named, [])
        except csv.Error as error:  # such as a lone carriage return
            raise InputError(
                f"not a readable CSV file: {error}", file=file, row=1
            ) from error
        if len(names) > 1:
            break
    else:
        delimiter = ","
    stream.seek(0)
    names = [
        name.strip() or f"Unnamed: {index}" for index, name in enumerate(names)
    ]  # as pandas calls it
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            "the header line has two columns of this name", file=file, column=twice[0]
        )
    return delimiter, names


def _texts(stream: BinaryIO, file: str) -> Iterator[str]:
    """The lines of a stream from its begin on."""
    stream.seek(0)
    while line := stream.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise InputError(
                f"has a header line longer than {MAX_LINE >> 20} MiB: no table has",
                file=file,
            )
        yield line.decode("utf-8-sig", "replace")


def _read_jsonl(stream: BinaryIO, file: str) -> pd.DataFrame:
    import pandas as pd

    records: list[dict[str, Any]] = []
    for row, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            record = parse_json(line.decode("utf-8-sig" if row == 1 else "utf-8"))
            if b"\\ud" in line.lower():  # may escape half of a character
                json.dumps(record, ensure_ascii=False).encode()
        except UnicodeError as error:
            raise InputError(f"not UTF-8 text: {error}", file=file, row=row) from error
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"not a line of JSON: {error}", file=file, row=row
            ) from error
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


def write_parquet(
    frame: pd.DataFrame, path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write a frame without its index; the same frame gives the same bytes.

    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> with TemporaryDirectory() as folder:
    ...     write_parquet(pd.DataFrame({"units": [1, 2]}), Path(folder, "table.parquet"))
    ...     read_table(Path(folder, "table.parquet"))["units"].tolist()
    [1, 2]
    """
    write_parquet_parts([frame], path, metadata)


def write_parquet_parts(
    frames: Iterable[pd.DataFrame], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write one table that comes as frames of `ROW_GROUP` rows, the last one fewer: the same bytes as of one frame.

    Parameters
    ----------
    frames
        At least one; of the same columns.
    path
        The file.
    metadata
        What the file says of itself.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    try:
        for frame in frames:
            table = pa.Table.from_pandas(
                frame, preserve_index=False
            ).replace_schema_metadata(metadata or {})
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table, ROW_GROUP)
    finally:
        if writer is not None:
            writer.close()


def row_groups(parts: Iterable[Columns]) -> Iterator[Columns]:
    """Yield the same rows in parts of `ROW_GROUP`; the last one, or the only one of no rows, has fewer.

    >>> [part["k"].shape for part in row_groups([{"k": np.arange(2)}, {"k": np.arange(3)}])]
    [(5,)]
    """
    rows: Columns = {}
    for part in parts:
        rows = {
            name: np.concatenate([rows[name], column]) if rows else column
            for name, column in part.items()
        }
        while len(next(iter(rows.values()))) > ROW_GROUP:
            yield {name: column[:ROW_GROUP] for name, column in rows.items()}
            rows = {name: column[ROW_GROUP:] for name, column in rows.items()}
    if rows:
        yield rows
