"""One function by which job tables and matrix traces are read, whatever file they are in."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import struct
import subprocess
import sys
import tarfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from bft.models.cells import GAPS
from bft.models.errors import InputError
from bft.models.limited_reading import (
    Budget,
    Weigh,
    bounded,
    out_of_memory,
    parse_json,
    readable,
    reading,
    weigh_json,
    weigh_lines,
)
from bft.models.pickles.safe_pickle import read_frame

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
_CHUNK: Final = 1 << 20
# Memory, measured: a column of a table; a cell of CSV, empty or not, while it is read; a list in a cell.
_COLUMN_BYTES: Final = 1_300
_CELL_BYTES: Final = 32
_LIST_BYTES: Final = 150
# Of an archive: files in it, and bytes of what describes one (long names, further attributes).
_MAX_MEMBERS: Final = 10_000
_MAX_DESCRIPTION: Final = 1 << 20
_DESCRIPTIONS: Final = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)

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

Columns: TypeAlias = Mapping[str, NDArray[Any]]
Reader: TypeAlias = "Callable[[BinaryIO, str, Budget], pd.DataFrame]"


def read_table(path: str | Path, *, row_bytes: int = 0) -> pd.DataFrame:
    r"""Read a job table or a matrix trace by the suffix of its file.

    | suffix                       | is                                                               |
    |------------------------------|------------------------------------------------------------------|
    | .parquet                     | Parquet; a pandas index is restored                              |
    | .csv, .csv.gz                | CSV in UTF-8 with a header line; rows are numbered, no index;    |
    |                              | semicolons or tabs may separate columns, and decimals be commas  |
    | .jsonl, .jsonl.gz            | one object per line                                              |
    | .pkl, .pickle, .pkl.gz       | a pickled DataFrame, read by `bft.models.pickles.safe_pickle`            |
    | .tar.gz, .tgz                | an archive with exactly one file of the above kinds              |
    | none, and no such file       | that name with .pkl, else with .tar.gz, as the published ones    |

    Parameters
    ----------
    path
        The file.
    row_bytes
        Memory that the caller will take for each row, for the bound.

    Returns
    -------
    DataFrame
        With `attrs["metadata"]`, a dict of str to str, of a Parquet file's own key-value metadata.
        The values of a large pickled matrix are read-only.

    Raises
    ------
    InputError
        Naming the file, if it is missing, unreadable, empty, cut short, not what its suffix says,
        a pickle that would run code, or far larger in memory than it is as a file (`bft.models.limited_reading`).

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
    with reading(path), path.open("rb") as stream:
        budget = Budget(str(path), path.stat().st_size)
        if suffix is None:
            raise _unknown(stream.peek(_HEAD), str(path))
        if suffix in _ARCHIVES:
            frame = _read_archive(stream, str(path), budget)
        else:
            frame = _read(stream, suffix, str(path), budget)
        budget.take(len(frame) * row_bytes)
        return frame


def read_blocks(
    path: str | Path,
    in_blocks: Callable[[pa.Schema], bool],
    *,
    row_bytes: int = 0,
    at_once: int | None = None,
) -> Iterator[pd.DataFrame]:
    """Read a table as `read_table` does, a Parquet file in blocks of rows: only one of them is in memory.

    Parameters
    ----------
    path
        The file.
    in_blocks
        Whether a Parquet file of this schema is wanted in blocks.
    row_bytes
        Memory that the caller will keep of each row, for the bound.
    at_once
        Rows of a block, `ROW_GROUP` where None.

    Yields
    ------
    DataFrame
        At least one, in the order of the file; as `read_table` returns them.
    """
    path = _found(Path(path))
    if _suffix(path.name) != ".parquet":
        yield read_table(path, row_bytes=row_bytes)
        return
    file = str(path)
    with reading(path), path.open("rb") as stream:
        _expect(_peek(stream), _READERS[".parquet"][0], ".parquet", file)
        budget = Budget(file, path.stat().st_size)
        with _parquet_errors(file):
            import pyarrow.parquet as pq

            parquet = pq.ParquetFile(stream)
            budget.take(parquet.metadata.num_rows * row_bytes)
            rows = (at_once or ROW_GROUP) if in_blocks(parquet.schema_arrow) else 0
            tables = _arrow_tables(stream, file, budget, rows)
        while True:
            with _parquet_errors(file):
                table = next(tables, None)
                frame = None if table is None else _frame_of(table)
            del table
            if frame is None:
                return
            yield frame
            del frame


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
    raise InputError(
        f"no such file{f', nor {names} beside it' if names else ''}", file=path
    )


def _suffix(name: str) -> str | None:
    """Find the longest known suffix."""
    known = (
        suffix
        for suffix in (*_READERS, *_ARCHIVES, *_PACKED)
        if name.lower().endswith(suffix)
    )
    return max(known, key=len, default=None)


def _unknown(head: bytes, file: str) -> InputError:
    content = _sniffed(head)
    return InputError(
        f"has none of the suffixes {', '.join((*_READERS, *_PACKED, *_ARCHIVES))}",
        file=file,
        hint=f"it looks like {content}" if content else None,
    )


def _sniffed(head: bytes) -> str | None:
    """Say what a file is by its first bytes; None for text and for what is not known."""
    if head[257:262] == b"ustar":
        return "a tar archive"
    return next((content for magic, content in _MAGIC if head.startswith(magic)), None)


def _read(stream: BinaryIO, suffix: str, file: str, budget: Budget) -> pd.DataFrame:
    """Read a file as what `suffix` says, after a look at its first bytes."""
    if suffix in _PACKED:
        _expect(_peek(stream), "gzip-compressed", suffix, file)
        return _read_content(
            gzip.GzipFile(fileobj=stream).read, suffix.removesuffix(".gz"), file, budget
        )
    if suffix == ".parquet":  # Arrow reads of the file what it needs
        _expect(_peek(stream), _READERS[suffix][0], suffix, file)
        return _read_parquet(stream, file, budget)
    return _read_content(stream.read, suffix, file, budget)


def _read_content(
    read: Callable[[int], bytes], suffix: str, file: str, budget: Budget
) -> pd.DataFrame:
    """Read content after decompression, within limits."""
    expected, reader = _READERS[suffix]
    weigh = weigh_lines(_WEIGH[suffix], file) if suffix in _WEIGH else len
    stream = bounded(read, budget, weigh)
    _expect(_peek(stream), expected, suffix, file)
    frame = reader(cast("BinaryIO", stream), file, budget)
    _drain(stream)
    return frame


def _peek(stream: IO[bytes]) -> bytes:
    # All streams here are buffered: files, members of archives, and GzipFile.
    return bytes(cast("io.BufferedReader", stream).peek(_HEAD))[:_HEAD]


def _expect(head: bytes, expected: str | None, suffix: str, file: str) -> None:
    """Raise for an empty file, or one whose content contradicts its suffix.

    Of a pickle (protocols 0 and 1) and of text one cannot be sure, hence what is not known passes.
    """
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


def _drain(stream: IO[bytes] | gzip.GzipFile) -> None:
    """Read to the end, where gzip compares its check sum; a pickle and an archive end before that."""
    while not stream.closed and stream.read(
        _CHUNK
    ):  # pandas closes what it has read to the end
        pass


class _Member(tarfile.TarInfo):
    """A member of an archive; what describes it is bounded before it is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read the header of a member as TarInfo does, and refuse sparse files and huge descriptions."""
        made = super().frombuf(buf, encoding, errors)
        if made.type == tarfile.GNUTYPE_SPARSE:
            raise InputError(
                "holds a sparse file, which may be as large as it claims; expected a table as it is"
            )
        if made.type in _DESCRIPTIONS and made.size > _MAX_DESCRIPTION:
            raise InputError(
                f"describes a file in more than {readable(_MAX_DESCRIPTION)}"
            )
        return made


def _read_archive(stream: BinaryIO, file: str, budget: Budget) -> pd.DataFrame:
    """Read the one table of a .tar.gz out of the stream; nothing is written to disk."""
    _expect(_peek(stream), "gzip-compressed", ".tar.gz", file)
    members: list[tarfile.TarInfo] = []
    tables: list[tarfile.TarInfo] = []
    frame: pd.DataFrame | None = None
    damage: InputError | None = None
    with _members(stream, file) as archive:
        for member in archive:
            members.append(member)
            if len(members) > _MAX_MEMBERS:
                raise InputError(
                    f"holds more than {_MAX_MEMBERS:,} files, expected one table",
                    file=file,
                )
            if not _is_table(member):
                continue
            tables.append(member)
            if len(tables) == 1:  # read in passing: to unpack a large one takes long
                try:
                    frame = _read_member(archive, member, file, budget)
                except InputError as error:
                    damage = error
    if len(tables) != 1:
        names = [ascii(member.name)[1:-1] for member in tables or members]
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise InputError(
            f"holds {len(tables) or 'no'} tables, expected one ({', '.join(_READERS)})",
            file=file,
            hint=f"{'they are' if tables else 'it holds'} {listed or 'nothing'}",
        )
    if damage is not None:
        raise damage
    return cast("pd.DataFrame", frame)


def _is_table(member: tarfile.TarInfo) -> bool:
    # Links lead elsewhere, sparse files are as large as they claim, ._ files are macOS's.
    regular = member.isreg() and not member.issparse()
    known = any(member.name.lower().endswith(suffix) for suffix in _READERS)
    return regular and known and not Path(member.name).name.startswith("._")


def _read_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, file: str, budget: Budget
) -> pd.DataFrame:
    content = archive.extractfile(member)
    if content is None:  # only what is no regular file
        raise InputError("holds no file", file=file)
    inside = ascii(member.name)[1:-1]
    with content:
        return _read_content(
            content.read, _suffix(member.name) or "", f"{file}, {inside}", budget
        )


@contextmanager
def _members(stream: BinaryIO, file: str) -> Iterator[tarfile.TarFile]:
    """The archive, read once and forward: what passes by takes no memory."""
    with gzip.GzipFile(fileobj=stream, mode="rb") as unpacked:
        try:
            with tarfile.open(fileobj=unpacked, mode="r|", tarinfo=_Member) as archive:
                yield archive
        except InputError as error:
            error.file = error.file or file
            raise
        _drain(unpacked)


def _read_pickle(stream: BinaryIO, file: str, budget: Budget) -> pd.DataFrame:
    return read_frame(stream, file=file, budget=budget)


def _read_parquet(stream: BinaryIO, file: str, budget: Budget) -> pd.DataFrame:
    # Arrow reads from the end: a member of an archive, which cannot be sought in, is brought into memory.
    source = stream if stream.seekable() else io.BytesIO(stream.read())
    with _parquet_errors(file):
        return _frame_of(next(_arrow_tables(source, file, budget)))


@contextmanager
def _parquet_errors(file: str) -> Iterator[None]:
    """Tell what Arrow finds wrong with a file."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except MemoryError as error:  # Arrow's are of both kinds
        raise out_of_memory(error, file) from error
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"not a readable Parquet file: {reason}", file=file, hint="is it complete?"
        ) from error


def _frame_of(table: pa.Table) -> pd.DataFrame:
    """A table as a frame, with what its file says of itself."""
    frame: pd.DataFrame = table.to_pandas()
    frame.attrs["metadata"] = parquet_metadata(table.schema)
    return frame


def parquet_metadata(schema: pa.Schema) -> dict[str, str]:
    """Return a Parquet file's own key-value metadata, without what pandas and Arrow add."""
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (schema.metadata or {}).items()
        if key not in _OWN_METADATA
    }


def _arrow_tables(
    source: BinaryIO, file: str, budget: Budget, rows: int = 0
) -> Iterator[pa.Table]:
    """The table of a Parquet file, whole or in blocks of so many rows.

    A few kB can state any number of rows, and of copies of long texts. How many values there are, the file says before
    any is read. Texts are read as a dictionary, as they are stored, and written out once their lengths are known.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(source)
    schema, total = parquet.schema_arrow, parquet.metadata.num_rows
    at_once = min(rows, total) if rows else total
    nested = sum(pa.types.is_nested(field.type) for field in schema)
    row_bytes = sum(_width(field.type) for field in schema)
    size = 8 * _values(source, file) if nested else row_bytes * at_once
    budget.take(2 * size)  # Arrow's, and pandas'
    budget.take(at_once * (nested * _LIST_BYTES + 1) + len(schema) * _COLUMN_BYTES)
    texts = [field.name for field in schema if _is_text(field.type)]
    if texts:
        source.seek(0)
        parquet = pq.ParquetFile(source, read_dictionary=texts)
    if not rows or not total:
        yield _checked(parquet.read(), schema, texts, file, budget)
        return
    taken = budget.taken
    for batch in parquet.iter_batches(rows):
        budget.taken = taken  # the block before is gone
        table = pa.Table.from_batches([batch])
        yield _checked(table, schema, texts, file, budget)


def _checked(
    table: pa.Table, schema: pa.Schema, texts: list[str], file: str, budget: Budget
) -> pa.Table:
    """A table with its texts written out, after Arrow's own check of all values."""
    import pyarrow as pa

    for index, field in enumerate(schema):
        column = table.column(index)
        if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
            budget.take(sum(_text_bytes(chunk) for chunk in column.chunks))
            if field.name in texts:
                column = column.cast(field.type)
                table = table.set_column(index, field, column)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            message = (
                "not UTF-8 text"
                if "UTF8" in str(error)
                else f"damaged: {str(error).splitlines()[0]}"
            )
            raise InputError(
                message, file=file, column=field.name, hint="save it as UTF-8"
            ) from error
    return table


# The footer of a Parquet file ends with its length and a mark.
_FOOTER_END = struct.Struct("<I4s")
_COUNT_VALUES = """
import io, sys
import pyarrow.parquet as pq
described = pq.read_metadata(io.BytesIO(b"PAR1" + sys.stdin.buffer.read()))
groups = map(described.row_group, range(described.num_row_groups))
print(sum(group.column(k).num_values for group in groups for k in range(group.num_columns)))
"""


def _values(source: BinaryIO, file: str) -> int:
    """How many values the footer of a Parquet file states, those within lists included.

    Arrow ends the whole process when the statistics in a footer contradict one another, so another process reads them.
    """
    size = source.seek(0, io.SEEK_END)
    source.seek(max(0, size - _FOOTER_END.size))
    length, _ = _FOOTER_END.unpack(source.read(_FOOTER_END.size))
    source.seek(max(0, size - _FOOTER_END.size - length))
    footer = source.read()
    source.seek(0)
    counted = subprocess.run(  # noqa: S603 - our own text
        [sys.executable, "-P", "-c", _COUNT_VALUES], input=footer, capture_output=True
    )
    if counted.returncode:
        raise InputError(
            "not a readable Parquet file: its footer is damaged",
            file=file,
            hint="is it complete?",
        )
    return int(counted.stdout)


def _width(kind: pa.DataType) -> int:
    """Bytes of a value, without the texts that it may refer to."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.index_type
    return max(1, int(kind.bit_width) // 8) if pa.types.is_primitive(kind) else 8


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return any(
        of(kind)
        for of in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    )


def _text_bytes(chunk: pa.DictionaryArray) -> int:
    """Bytes of a column of texts when each is written out."""
    import pyarrow.compute as pc

    lengths = pc.binary_length(chunk.dictionary).cast("int64")
    return int(pc.sum(lengths.take(chunk.indices)).as_py() or 0)


def _read_csv(stream: BinaryIO, file: str, budget: Budget) -> pd.DataFrame:
    import pandas as pd

    first, delimiter, names = _header(stream, file)
    budget.take(_COLUMN_BYTES * len(names))
    stream = cast(
        "BinaryIO", bounded(_rejoined(first, stream.read), budget, lambda block: 0)
    )
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
    except InputError:  # of the bounds of the stream
        raise
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
    numeric = {
        name
        for name, column in cells.items()
        if (like[name] | column.isna() | (column == "")).all()
    }
    commas = {
        name: like[name] & column.str.contains(",", regex=False, na=False)
        for name, column in cells.items()
    }
    decimal = next((name for name, matches in commas.items() if matches.any()), None)
    for name, column in cells.items():
        points = like[name] & column.str.contains(".", regex=False, na=False)
        if decimal is not None and name in numeric and points.any():
            row = int(points.to_numpy().argmax())
            message = f"{column.iloc[row]!r} has a point, while column {decimal} has decimal commas"
            raise InputError(
                message,
                file=file,
                row=row + 1,
                column=name,
                hint="write all numbers one way",
            )
        column = column.mask(commas[name], column.str.replace(",", ".", regex=False))
        frame[name] = (
            pd.to_numeric(column.mask(column == "")) if name in numeric else column
        )
    return frame


def _rejoined(first: bytes, rest: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Read what was taken off the begin of a stream, and then the stream."""
    taken = io.BytesIO(first)
    return lambda size: taken.read(size) or rest(size)


def _header(stream: BinaryIO, file: str) -> tuple[bytes, str, list[str]]:
    """The header line, its delimiter, and its column names without spaces around them.

    Refused when it has a name twice: pandas renames the second.
    """
    header = stream.readline()
    while not header.strip(b"\xef\xbb\xbf \t\r\n") and (
        more := stream.readline()
    ):  # empty lines before it
        header = more
    while header.count(b'"') % 2 and (
        more := stream.readline()
    ):  # a name goes on in the next line
        header += more
    text = header.decode("utf-8-sig", "replace")
    try:
        for delimiter in (",", ";", "\t"):
            names = next(
                csv.reader([text], delimiter=delimiter, skipinitialspace=True), []
            )
            if len(names) > 1:
                break
        else:
            delimiter, names = ",", names[:1]
    except csv.Error as error:  # such as a lone carriage return
        raise InputError(
            f"not a readable CSV file: {error}", file=file, row=1
        ) from error
    names = [
        name.strip() or f"Unnamed: {index}" for index, name in enumerate(names)
    ]  # as pandas calls it
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            "the header line has two columns of this name", file=file, column=twice[0]
        )
    return header, delimiter, names


def _read_jsonl(stream: BinaryIO, file: str, budget: Budget) -> pd.DataFrame:
    import pandas as pd

    records: list[dict[str, Any]] = []
    columns: set[str] = set()
    for row, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            record = parse_json(line.decode("utf-8-sig" if row == 1 else "utf-8"))
            if b"\\ud" in line or b"\\uD" in line:
                json.dumps(record, ensure_ascii=False).encode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"not UTF-8 text at byte {error.start}", file=file, row=row
            ) from error
        except UnicodeEncodeError as error:
            message = f"a text holds {error.object[error.start : error.end]!a}, half of a character"
            raise InputError(message, file=file, row=row) from error
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
        columns.update(record)
    if not records:
        raise InputError("is empty", file=file)
    budget.take(
        len(columns) * (_COLUMN_BYTES + 8 * len(records))
    )  # a table has a cell where an object lacks a key
    try:
        return pd.DataFrame(records)
    except OverflowError as error:  # a whole number beyond all floats; from pandas 3.1 on the column is one of objects
        column = next(
            column
            for column in columns
            if any(_is_huge(record.get(column)) for record in records)
        )
        raise InputError(
            "expected a finite number, found one beyond 1.8e308",
            file=file,
            column=column,
        ) from error


def _is_huge(value: object) -> bool:
    return isinstance(value, int) and abs(value) > sys.float_info.max


# By suffix: what the first bytes must say (None: text), and what reads it.
_READERS: Final[dict[str, tuple[str | None, Reader]]] = {
    ".parquet": ("a Parquet file", _read_parquet),
    ".csv": (None, _read_csv),
    ".jsonl": (None, _read_jsonl),
    ".pkl": ("a pickle", _read_pickle),
    ".pickle": ("a pickle", _read_pickle),
}
# Memory of a block of content; content other than text is as large as it is.
_WEIGH: Final[dict[str, Weigh]] = {
    ".csv": lambda block: (
        len(block) + _CELL_BYTES * sum(map(block.count, (b",", b";", b"\t", b"\n")))
    ),
    ".jsonl": weigh_json,
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
    waiting: list[Columns] = []
    count = 0
    for part in chain(parts, [None]):
        if part is not None:
            waiting.append(part)
            count += len(next(iter(part.values())))
        while waiting and (count >= ROW_GROUP or part is None):
            rows = {
                name: np.concatenate([one[name] for one in waiting])
                for name in waiting[0]
            }
            waiting.clear()
            yield {name: column[:ROW_GROUP] for name, column in rows.items()}
            count -= ROW_GROUP
            if count > 0:
                waiting = [{name: column[ROW_GROUP:] for name, column in rows.items()}]
            else:
                count = 0
