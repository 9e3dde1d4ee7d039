"""Tables of the past of a replay: rows are added at the end, and go to nameless Parquet files as they grow."""

import logging
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from struct import Struct
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

# Bytes of rows in memory that make a part on disk; and rows in a group of it, which can be read alone.
PART_BYTES = 32 * 2**20
GROUP_ROWS = 2**14

Block = Mapping[str, NDArray[Any]]
"""Columns of a table, or of some rows of it; texts as numbers into its vocabulary."""


class Table:
    """A table of numbers and texts; rows are added at the end.

    Parameters
    ----------
    columns
        Type of each column by its name, as `struct` names them: `i` and `q` for whole numbers of 32 and 64 bits, `d`
        for floats; empty for texts.
    order
        Columns by which `sorted_blocks` sorts, the first of which counts most and holds small numbers >= 0.

    Attributes
    ----------
    folder
        Where parts lie, in files that vanish with the process; None: all rows stay in memory.

    Examples
    --------
    >>> table = Table({"when": "q", "what": ""})
    >>> for row in ((5, "join"), (7, "leave"), (8, "join")):
    ...     table.add(row)
    >>> len(table), table.arrays()["what"].tolist()
    (3, ['join', 'leave', 'join'])
    """

    def __init__(self, columns: Mapping[str, str], order: Sequence[str] = ()) -> None:
        self.folder: Path | None = None
        letters = {name: letter or "i" for name, letter in columns.items()}
        self._row = np.dtype([*letters.items()])
        # Packed as they come: the objects of rows that wait are ten times as large, and slow to come back to.
        self._pack = Struct("=" + "".join(letters.values())).pack
        self._rows = bytearray()
        self._codes: dict[str, dict[str, int]] = {
            name: {} for name, letter in columns.items() if not letter
        }
        self._texts = [
            (list(columns).index(name), codes) for name, codes in self._codes.items()
        ]
        self._order = order
        self._parts: list[IO[bytes]] = []
        self._before = 0  # rows in parts

    def __len__(self) -> int:
        return self._before + len(self._rows) // self._row.itemsize

    def add(self, row: Sequence[Any]) -> None:
        """Add a row: one value per column, in their order."""
        if self._texts:
            row = list(row)
            for place, codes in self._texts:
                row[place] = codes.setdefault(row[place], len(codes))
        self._rows += self._pack(*row)
        if len(self._rows) >= PART_BYTES and self.folder is not None:
            self._put_away(self.folder)

    def _put_away(self, folder: Path) -> None:
        """Put the rows in memory into a part."""
        try:
            part = TemporaryFile(dir=folder)  # noqa: SIM115 - kept open
            weakref.finalize(self, part.close)
            self._write(part)
        except OSError as error:
            logger.warning("the history stays in memory: %s", error.strerror)
            self.folder = None
            return
        self._parts.append(part)
        self._before, self._rows = len(self), bytearray()

    def _memory(self) -> Block:
        """The rows in memory, on the same memory: no row can be added while this is in use."""
        rows = np.frombuffer(self._rows, self._row)
        return {name: rows[name] for name in self._row.names or ()}

    def _write(self, file: IO[bytes]) -> None:
        """Write the rows in memory as Parquet, in order."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = _in_order(self._memory(), self._order)
        columns = {name: pa.array(column) for name, column in rows.items()}
        for name, codes in self._codes.items():
            texts = pa.array(list(codes), pa.string())
            columns[name] = pa.DictionaryArray.from_arrays(columns[name], texts)
        plain: dict[str, Any] = {"compression": "none", "use_dictionary": False}
        pq.write_table(pa.table(columns), file, row_group_size=GROUP_ROWS, **plain)

    def _read(self, file: IO[bytes], **some: Any) -> Block:
        """Rows of a part: all, or `some` columns and rows."""
        import pyarrow.parquet as pq

        rows = pq.read_table(file, use_threads=False, **some)
        found = {}
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if name in self._codes:
                codes = self._codes[name]
                column = [codes[text] for text in column.to_pylist()]
            found[name] = np.asarray(column, self._row[name])
        return found

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        """Yield some columns of all rows, part by part."""
        for part in self._parts:
            yield self._read(part, columns=list(columns))
        memory = self._memory()
        yield {name: memory[name] for name in columns}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, texts as objects."""
        found = {}
        for name in self._row.names or ():
            found[name] = np.concatenate([block[name] for block in self.blocks([name])])
            if name in self._codes:
                texts = np.array([*self._codes[name], ""], dtype=object)
                found[name] = texts[found[name]]
        return found

    def sorted_blocks(self) -> Iterator[Block]:
        """Yield all rows in order, block by block; rows that agree in the first column are in one block."""
        first = self._order[0]
        counts = np.zeros(0, dtype=np.int64)
        for block in self.blocks([first]):
            more = np.bincount(block[first], minlength=len(counts))
            more[: len(counts)] += counts
            counts = more
        block_of = np.cumsum(counts) // max(1, PART_BYTES // self._row.itemsize)
        begins = np.flatnonzero(np.diff(block_of)) + 1
        for low, high in pairwise([0, *begins.tolist(), len(counts)]):
            within = [(first, ">=", low), (first, "<", high)]
            some = [self._read(part, filters=within) for part in self._parts]
            memory = self._memory()
            rows = (memory[first] >= low) & (memory[first] < high)
            some.append({name: column[rows] for name, column in memory.items()})
            whole = {
                name: np.concatenate([each[name] for each in some]) for name in memory
            }
            yield _in_order(whole, self._order)

    def saved(self) -> Iterator[bytes]:
        """Yield all rows as Parquet files."""
        for part in self._parts:
            part.seek(0)
            yield part.read()
        rest = BytesIO()
        self._write(rest)
        yield rest.getvalue()

    def restore(self, saved: Iterable[bytes]) -> None:
        """Add the rows that `saved` has yielded."""
        import pyarrow.parquet as pq

        for part in saved:
            columns = pq.read_table(BytesIO(part)).to_pydict()
            for row in zip(*columns.values(), strict=True):
                self.add(row)


def _in_order(rows: Block, order: Sequence[str]) -> Block:
    """Sort rows by some columns, the first of which counts most."""
    if not order:
        return rows
    places = np.lexsort([rows[name] for name in reversed(order)])
    return {name: column[places] for name, column in rows.items()}
