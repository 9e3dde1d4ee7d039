"""What a batch scheduler knew of its jobs and reservations, kept beside a node trace (docs/walltimes.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.trace.node_trace import IndexArray, NodeTrace, TimeArray

# Where there is no time: nothing has happened so far, or no limit is known. Null in a file.
NEVER = 2**63 - 1
KINDS = ("job", "reservation")
# Columns of a file that hold instants; of these, those that may be null.
_TIMES, _OPEN = (
    ("known", "start", "end", "expected_end"),
    ("start", "end", "expected_end"),
)
COLUMNS = ("kind", *_TIMES, "count", "nodes")


@dataclass(frozen=True, eq=False)
class Walltimes:
    """Table of walltimes, one row per job or reservation; all times are UTC nanoseconds, `NEVER` where there is none.

    Parameters
    ----------
    names
        Names of the nodes that `nodes` counts.
    reserved
        Whether a row is a reservation, bool of shape (rows,).
    known
        From when on the scheduler knew of it: when the job could run, or the reservation was announced.
    start, end
        When it began and ended; `NEVER` for a job that never began, and for what the log does not state.
    expected_end
        When the scheduler had to expect its end: start and time limit. `NEVER`: no limit is known.
    count
        Nodes that it has, or waits for.
    nodes, offsets
        The nodes of all rows, one after the other, int32; those of row r are `nodes[offsets[r]:offsets[r + 1]]`. A row
        may have none: a job that never began, or of a log that only counts nodes.

    Raises
    ------
    InputError
        When a row contradicts itself; names the row, counted from 1.

    Examples
    --------
    >>> walltimes = from_rows([("job", 0, 10, 60, 100, 1, ("n0",)), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
    >>> len(walltimes), walltimes.names, walltimes.count.tolist()
    (2, ('n0',), [1, 2])
    """

    names: tuple[str, ...]
    reserved: NDArray[np.bool_]
    known: TimeArray
    start: TimeArray
    end: TimeArray
    expected_end: TimeArray
    count: NDArray[np.int64]
    nodes: IndexArray
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        sizes = np.diff(self.offsets)
        began = self.start < NEVER
        for invalid, why in (
            (self.known > self.start, "it began before it was known"),
            (began & (self.end < self.start), "it ends before it begins"),
            (self.end < self.known, "it ends before it was known"),
            (
                began & (self.expected_end < self.start),
                "its end is expected before it begins",
            ),
            (
                ~began & (self.expected_end < NEVER),
                "it never began, but states when its end was expected",
            ),
            (self.count < 0, "its number of nodes is negative"),
            (
                (sizes > 0) & (sizes != self.count),
                "count is not the number of its nodes",
            ),
            (~began & (sizes > 0), "it never began, but has nodes"),
            (self.reserved & ~began, "a reservation states no start"),
        ):
            if invalid.any():
                raise InputError(f"walltimes: {why}", row=int(np.argmax(invalid)) + 1)

    def __len__(self) -> int:
        return len(self.known)

    def counts(self) -> dict[str, int]:
        """Count the `jobs` and `reservations`; of the jobs, how many `begun`, and of these `with_limit`."""
        begun = ~self.reserved & (self.start < NEVER)
        return {
            "jobs": int((~self.reserved).sum()),
            "begun": int(begun.sum()),
            "with_limit": int((begun & (self.expected_end < NEVER)).sum()),
            "reservations": int(self.reserved.sum()),
        }


def from_rows(
    rows: Sequence[tuple[str, int, int, int, int, int, Sequence[str]]],
) -> Walltimes:
    """Walltimes of rows in the order of `COLUMNS`."""
    names: dict[str, int] = {}
    nodes = [names.setdefault(name, len(names)) for row in rows for name in row[6]]
    numbers = np.array([row[1:6] for row in rows], dtype=np.int64).reshape(-1, 5)
    return Walltimes(
        tuple(names),
        np.array([row[0] == "reservation" for row in rows], dtype=bool),
        known=numbers[:, 0].copy(),
        start=numbers[:, 1].copy(),
        end=numbers[:, 2].copy(),
        expected_end=numbers[:, 3].copy(),
        count=numbers[:, 4].copy(),
        nodes=np.array(nodes, dtype=np.int32),
        offsets=np.cumsum([0, *(len(row[6]) for row in rows)], dtype=np.int64),
    )


def write_walltimes(walltimes: Walltimes, path: str | Path) -> None:
    """Write walltimes as Parquet; the same rows give the same bytes.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_walltimes(from_rows([("job", 0, 10, 60, 100, 1, ("n0",))]), f"{folder}/walltimes.parquet")
    ...     read_walltimes(f"{folder}/walltimes.parquet").expected_end.tolist()
    [100]
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if Path(path).suffix.lower() != ".parquet":
        raise InputError("walltimes are written as .parquet", file=path)
    stamps = {
        name: pa.array(
            getattr(walltimes, name), pa.int64(), mask=getattr(walltimes, name) == NEVER
        ).cast(_stamp_type())
        for name in _TIMES
    }
    names = pa.DictionaryArray.from_arrays(
        pa.array(walltimes.nodes), pa.array(walltimes.names, pa.string())
    )
    table = pa.table(
        {
            "kind": pa.array(
                np.where(walltimes.reserved, "reservation", "job").tolist(), pa.string()
            ),
            **stamps,
            "count": pa.array(walltimes.count),
            "nodes": pa.ListArray.from_arrays(
                pa.array(walltimes.offsets.astype(np.int32)), names.cast(pa.string())
            ),
        }
    )
    pq.write_table(table, path, compression="zstd")


def read_walltimes(path: str | Path) -> Walltimes:
    """Read what `write_walltimes` or `bft-replay ingest --walltimes` wrote.

    Raises
    ------
    InputError
        When there is no such file, or it holds something else; names row and column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, read_dictionary=["nodes.list.element"])
        table.validate(full=True)
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"is no Parquet file of walltimes: {' '.join(str(error).split())}",
            file=path,
        ) from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        message = (
            f"missing column {', '.join(missing)}; walltimes have {', '.join(COLUMNS)}"
        )
        raise InputError(
            message, file=path, hint="bft-replay ingest --walltimes FILE writes them"
        )
    columns: dict[str, Any] = {
        name: table.column(name).combine_chunks() for name in COLUMNS
    }
    for name in ("kind", "known", "count", "nodes"):
        if columns[name].null_count:
            row = (
                int(np.argmax(columns[name].is_null().to_numpy(zero_copy_only=False)))
                + 1
            )
            raise InputError("is empty", file=path, row=row, column=name)
    try:
        stamps = {
            name: columns[name].cast(_stamp_type()).cast(pa.int64()) for name in _TIMES
        }
        times = {
            name: stamp.fill_null(NEVER).to_numpy() for name, stamp in stamps.items()
        }
        counts = columns["count"].cast(pa.int64()).to_numpy()
        lists = columns["nodes"].cast(pa.list_(pa.dictionary(pa.int32(), pa.string())))
        encoded = lists.flatten()
        if encoded.null_count:
            raise ValueError("a name of a node is missing")
        names, nodes = (
            encoded.dictionary.to_pylist(),
            encoded.indices.cast(pa.int32()).to_numpy(zero_copy_only=False),
        )
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InputError(
            f"is no file of walltimes: {' '.join(str(error).split())}", file=path
        ) from error
    kinds = columns["kind"].to_pylist()
    odd = next((row for row, kind in enumerate(kinds) if kind not in KINDS), None)
    if odd is not None:
        message = f"expected {' or '.join(KINDS)}, not {kinds[odd]!r}"
        raise InputError(message, file=path, row=odd + 1, column="kind")
    sizes = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    reserved = np.array([kind == "reservation" for kind in kinds], dtype=bool)
    try:
        return Walltimes(
            tuple(names),
            reserved,
            count=counts,
            nodes=nodes,
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            **times,
        )
    except InputError as error:
        raise InputError(error.what, file=path, row=error.row) from None


def check_nodes(walltimes: Walltimes, trace: NodeTrace) -> None:
    """Raise InputError where walltimes name nodes, and the trace has none of them."""
    if walltimes.names and not set(walltimes.names) & set(trace.nodes):
        raise InputError(
            f"the walltimes are of other nodes than the trace: they name {walltimes.names[0]!r}, the trace "
            f"{trace.nodes[0]!r}",
            file=trace.source or None,
        )


def _stamp_type() -> Any:
    import pyarrow as pa

    return pa.timestamp("ns", "UTC")
