"""The machine's own ("host") jobs and reservations, kept in a file beside a node trace (docs/host-jobs.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
# Where there is no time: nothing has happened so far, or no limit is known. Null in a file.
NEVER = 2**63 - 1
# Columns of a file that hold instants, and all that have a value for each row.
_TIMES = ("known", "start", "end", "expected_end")
COLUMNS = ("reserved", *_TIMES, "count")
# Key of a trace's metadata that names the file of its host jobs; key of such a file's metadata with the trace's window.
HOST_JOBS, _WINDOW = "host_jobs", "window_ns"


@dataclass(frozen=True, eq=False)
class HostJobs:
    """Table of host jobs, one row per job or reservation; all times are UTC nanoseconds, `NEVER` where there is none.

    Parameters
    ----------
    names
        Names of the nodes that `nodes` counts.
    reserved
        Whether a row is a reservation, bool of shape (rows,).
    known
        From when on the scheduler knew of it: when the job could run, or the reservation was announced. The start of a
        job of which the log does not say it.
    start, end
        When it began and ended; `NEVER` for a job that never began, and for what the log does not state.
    expected_end
        When the scheduler had to expect its end: start and time limit. `NEVER`: no limit is known.
    count
        Nodes that it has, or waits for.
    nodes, offsets
        The nodes of all rows, one after the other, int32; those of row r are `nodes[offsets[r]:offsets[r + 1]]`. A row
        may have none: a job that never began, or of a log that only counts nodes.

    Examples
    --------
    >>> jobs = from_rows([("job", 0, 10, 60, 100, 1, ("n0",)), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
    >>> len(jobs), jobs.names, jobs.count.tolist()
    (2, ('n0',), [1, 2])
    """

    names: tuple[str, ...]
    reserved: NDArray[np.bool_]
    known: IntArray
    start: IntArray
    end: IntArray
    expected_end: IntArray
    count: IntArray
    nodes: NDArray[np.int32]
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.known)

    @property
    def sizes(self) -> IntArray:
        """How many nodes each row names."""
        return np.diff(self.offsets)

    @property
    def began(self) -> NDArray[np.bool_]:
        """Whether a row is a job that began."""
        return ~self.reserved & (self.start < NEVER)

    @property
    def names_nodes(self) -> bool:
        """Whether most jobs that began name their nodes, so that starts can be told by job."""
        counts = self.counts()
        return 2 * counts["nameless"] <= counts["begun"]

    def counts(self) -> dict[str, int]:
        """Count the `jobs` and `reservations`; of the jobs, how many `begun`, and of these `with_limit` and so on."""
        began = self.began
        counted = {
            "jobs": ~self.reserved,
            "begun": began,
            "with_limit": began & (self.expected_end < NEVER),
            "waited": began & (self.known < self.start),
            "nameless": began & (self.sizes == 0) & (self.count > 0),
            "reservations": self.reserved,
        }
        return {name: int(rows.sum()) for name, rows in counted.items()}

    def lacks(self) -> list[str]:
        """Say what the jobs do not state, and what follows.

        Examples
        --------
        >>> from_rows([("job", 0, 10, 60, 100, 1, ("n0",))]).lacks()
        []
        """
        counts = self.counts()
        begun, nameless = counts["begun"], counts["nameless"]
        endless = begun - counts["with_limit"]
        told = {
            f"{endless:,} of {begun:,} host jobs state no time limit: until when their nodes are busy is not expected":
            endless,
            "host jobs do not state since when they waited: neither the queue is known nor which starts could have "
            "been announced": begun and not counts["waited"],
            f"{nameless:,} of {begun:,} host jobs name no nodes: what they wait is not counted": nameless,
        }  # fmt: skip
        return [lack for lack, is_so in told.items() if is_so]

    def take(self, rows: IntArray) -> HostJobs:
        """Return selected rows, with the names of nodes that they need."""
        sizes = self.sizes[rows]
        ends = np.cumsum(sizes)
        first = np.repeat(self.offsets[:-1][rows] - (ends - sizes), sizes)
        positions = first + np.arange(len(first))
        used, nodes = np.unique(self.nodes[positions], return_inverse=True)
        return HostJobs(
            tuple(self.names[node] for node in used.tolist()),
            **{name: getattr(self, name)[rows] for name in COLUMNS},
            nodes=nodes.astype(np.int32),
            offsets=np.append(0, ends),
        )


def from_rows(
    rows: Sequence[tuple[str, int, int, int, int, int, Sequence[str]]],
) -> HostJobs:
    """Host jobs of rows of kind (job or reservation), known, start, end, expected end, count and nodes."""
    names: dict[str, int] = {}
    nodes = [names.setdefault(name, len(names)) for row in rows for name in row[6]]
    numbers = np.array([row[1:6] for row in rows], dtype=np.int64).reshape(-1, 5)
    columns = dict(zip(COLUMNS[1:], np.ascontiguousarray(numbers.T), strict=True))
    return HostJobs(
        tuple(names),
        np.array([row[0] == "reservation" for row in rows], dtype=bool),
        **columns,
        nodes=np.array(nodes, dtype=np.int32),
        offsets=np.cumsum([0, *(len(row[6]) for row in rows)], dtype=np.int64),
    )


# --- the file beside a trace ----------------------------------------------------------------------------------------


def file_beside(trace: str | Path) -> Path | None:
    """Name the file of host jobs beside a trace; None: a trace is not written under such a name.

    >>> str(file_beside("logs/trace.csv.gz"))
    'logs/trace.jobs.parquet'
    """
    path = Path(trace)
    for suffix in (".parquet", ".csv.gz", ".csv"):
        if path.name.lower().endswith(suffix):
            return path.with_name(f"{path.name[: -len(suffix)]}.jobs.parquet")
    return None


def write_host_jobs(jobs: HostJobs, path: str | Path, start: int, end: int) -> None:
    """Write host jobs as Parquet, with the window of the trace that they lie beside, UTC nanoseconds.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     jobs = from_rows([("job", 0, 10, 60, 100, 1, ("n0",))])
    ...     write_host_jobs(jobs, f"{folder}/jobs.parquet", 0, 9)
    ...     read_host_jobs(f"{folder}/jobs.parquet").expected_end.tolist()
    [100]
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    named, kinds = pa.DictionaryArray.from_arrays, ["job", "reservation"]
    columns = {"kind": named(pa.array(jobs.reserved.astype(np.int8)), kinds)}
    for name in _TIMES:
        times = getattr(jobs, name)
        known = pa.array(times, pa.int64(), mask=times == NEVER)
        columns[name] = known.cast(pa.timestamp("ns", "UTC"))
    columns["count"] = pa.array(jobs.count)
    columns["nodes"] = pa.ListArray.from_arrays(
        pa.array(jobs.offsets.astype(np.int32)),
        named(pa.array(jobs.nodes), pa.array(jobs.names, pa.string())),
    )
    table = pa.table(columns, metadata={_WINDOW: f"{start} {end}"})
    pq.write_table(table, path, compression="zstd")


def read_host_jobs(path: str | Path) -> HostJobs:
    """Read what `write_host_jobs` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path, read_dictionary=["kind", "nodes.list.element"])
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    times = {
        name: columns[name].cast(pa.int64()).fill_null(NEVER).to_numpy()
        for name in _TIMES
    }
    kinds = columns["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    nodes = columns["nodes"].flatten()
    sizes = columns["nodes"].value_lengths().to_numpy()
    return HostJobs(
        tuple(nodes.dictionary.to_pylist()),
        np.asarray(kinds == "reservation", dtype=bool),
        **times,
        count=columns["count"].to_numpy(),
        nodes=nodes.indices.to_numpy(),
        offsets=np.append(0, np.cumsum(sizes, dtype=np.int64)),
    )


def named_file(trace: str | Path) -> tuple[Path, str] | None:
    """Return the file of host jobs that a trace file names, and its digest; of CSV the one beside it, and its window.

    None: it has none.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, beside = Path(trace), file_beside(trace)
    holder = path if path.suffix.lower() == ".parquet" else beside
    if holder is None or beside is None or not holder.is_file():
        return None
    try:
        stated = pq.read_metadata(holder).metadata or {}
    except pa.ArrowInvalid:  # Who reads it says what is wrong with it.
        return None
    if holder == path and HOST_JOBS.encode() in stated:
        named = json.loads(stated[HOST_JOBS.encode()])
        return path.parent / named["file"], named["sha256"]
    if holder == beside and _WINDOW.encode() in stated:
        return beside, stated[_WINDOW.encode()].decode()
    return None


def digest(file: Path) -> str:
    """Return the SHA-256 of a file, so that a result identifies its input exactly."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
