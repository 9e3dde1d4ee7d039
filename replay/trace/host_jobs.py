"""The machine's own ("host") jobs and reservations, kept in a file beside a node trace (docs/walltimes.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError

# Where there is no time: nothing has happened so far, or no limit is known. Null in a file.
NEVER = 2**63 - 1
# Columns of a file that hold instants.
_TIMES = ("known", "start", "end", "expected_end")
# Key of a trace's metadata that names the file of its host jobs; key of such a file's metadata with the trace's window.
HOST_JOBS, _WINDOW = "host_jobs", "window_ns"
_SUFFIXES: Final = (".parquet", ".csv", ".csv.gz")


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

    Raises
    ------
    InputError
        When a row contradicts itself; names the row, counted from 1.

    Examples
    --------
    >>> jobs = from_rows([("job", 0, 10, 60, 100, 1, ("n0",)), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
    >>> len(jobs), jobs.names, jobs.count.tolist()
    (2, ('n0',), [1, 2])
    """

    names: tuple[str, ...]
    reserved: NDArray[np.bool_]
    known: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    expected_end: NDArray[np.int64]
    count: NDArray[np.int64]
    nodes: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        sizes, began = self.sizes, self.start < NEVER
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
                raise InputError(f"host jobs: {why}", row=int(np.argmax(invalid)) + 1)

    def __len__(self) -> int:
        return len(self.known)

    @property
    def sizes(self) -> NDArray[np.int64]:
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
        return {
            "jobs": int((~self.reserved).sum()),
            "begun": int(began.sum()),
            "with_limit": int((began & (self.expected_end < NEVER)).sum()),
            "waited": int((began & (self.known < self.start)).sum()),
            "nameless": int((began & (self.sizes == 0) & (self.count > 0)).sum()),
            "reservations": int(self.reserved.sum()),
        }

    def lacks(self) -> list[str]:
        """Say what the jobs do not state, and what follows.

        Examples
        --------
        >>> from_rows([("job", 0, 10, 60, 100, 1, ("n0",))]).lacks()
        []
        """
        counts = self.counts()
        begun, told = counts["begun"], []
        if counts["with_limit"] < begun:
            told.append(
                f"{begun - counts['with_limit']:,} of {begun:,} host jobs state no time limit: until when their nodes "
                "are busy is not expected"
            )
        if begun and not counts["waited"]:
            told.append(
                "host jobs do not state since when they waited: neither the queue is known nor which starts could "
                "have been announced"
            )
        if counts["nameless"]:
            told.append(
                f"{counts['nameless']:,} of {begun:,} host jobs name no nodes: what they wait is not counted"
            )
        return told

    def take(self, rows: NDArray[np.int64]) -> HostJobs:
        """Return selected rows, with the names of nodes that they need."""
        sizes = self.sizes[rows]
        before = np.cumsum(sizes) - sizes
        places = np.repeat(self.offsets[:-1][rows] - before, sizes)
        places += np.arange(len(places))
        used, nodes = np.unique(self.nodes[places], return_inverse=True)
        return HostJobs(
            tuple(self.names[node] for node in used.tolist()),
            self.reserved[rows],
            self.known[rows],
            self.start[rows],
            self.end[rows],
            self.expected_end[rows],
            self.count[rows],
            nodes=nodes.astype(np.int32),
            offsets=np.concatenate([[0], np.cumsum(sizes)]),
        )

    def within(self, start: int, end: int) -> HostJobs:
        """Return the rows that count inside a window, as they are: known by its end, and not over when it begins.

        Examples
        --------
        >>> jobs = from_rows([("job", 0, 10, 60, 100, 1, ("n0",)), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
        >>> len(jobs.within(0, 60)), len(jobs.within(60, 90))
        (2, 1)
        """
        return self.take(np.flatnonzero((self.known <= end) & (self.end > start)))

    def with_nodes(self, names: Collection[str]) -> HostJobs:
        """Return the host jobs of some nodes as if these were a machine: jobs count with their nodes among them.

        Jobs that name no nodes, as those that never began, are left out.

        Examples
        --------
        >>> jobs = from_rows([("job", 0, 10, 60, 100, 2, ("n0", "n1")), ("job", 5, NEVER, NEVER, NEVER, 2, ())])
        >>> jobs.with_nodes(["n1"]).count.tolist()
        [1]
        """
        wanted = set(names)
        is_wanted = np.array([name in wanted for name in self.names], dtype=bool)
        chosen = is_wanted[self.nodes]
        row = np.repeat(np.arange(len(self)), self.sizes)
        counts = np.bincount(row[chosen], minlength=len(self))
        some = replace(
            self,
            nodes=self.nodes[chosen],
            offsets=np.concatenate([[0], np.cumsum(counts)]),
            count=np.where(self.start < NEVER, counts, 0),
        )
        return some.take(np.flatnonzero(counts))


def from_rows(
    rows: Sequence[tuple[str, int, int, int, int, int, Sequence[str]]],
) -> HostJobs:
    """Host jobs of rows of kind (job or reservation), known, start, end, expected end, count and nodes."""
    names: dict[str, int] = {}
    nodes = [names.setdefault(name, len(names)) for row in rows for name in row[6]]
    numbers = np.array([row[1:6] for row in rows], dtype=np.int64).reshape(-1, 5)
    known, start, end, expected_end, count = np.ascontiguousarray(numbers.T)
    return HostJobs(
        tuple(names),
        np.array([row[0] == "reservation" for row in rows], dtype=bool),
        known,
        start,
        end,
        expected_end,
        count,
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
    suffix = max(
        (s for s in _SUFFIXES if path.name.lower().endswith(s)), key=len, default=None
    )
    return (
        None
        if suffix is None
        else path.with_name(f"{path.name[: -len(suffix)]}.jobs.parquet")
    )


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

    times = {name: getattr(jobs, name) for name in _TIMES}
    stamp = pa.timestamp("ns", "UTC")
    nodes = pa.DictionaryArray.from_arrays(
        pa.array(jobs.nodes), pa.array(jobs.names, pa.string())
    )
    table = pa.table(
        {
            "kind": pa.DictionaryArray.from_arrays(
                pa.array(jobs.reserved.astype(np.int8)), ["job", "reservation"]
            ),
            **{
                name: pa.array(at, pa.int64(), mask=at == NEVER).cast(stamp)
                for name, at in times.items()
            },
            "count": pa.array(jobs.count),
            "nodes": pa.ListArray.from_arrays(
                pa.array(jobs.offsets.astype(np.int32)), nodes
            ),
        },
        metadata={_WINDOW: window_text(start, end)},
    )
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
    named = columns["nodes"].flatten()
    sizes = columns["nodes"].value_lengths().to_numpy()
    return HostJobs(
        tuple(named.dictionary.to_pylist()),
        np.asarray(kinds == "reservation", dtype=bool),
        **times,
        count=columns["count"].to_numpy(),
        nodes=named.indices.to_numpy(),
        offsets=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
    )


def named_file(trace: str | Path) -> Path | None:
    """Return the file of host jobs that a trace file names, or that lies beside one of CSV; None: it has none."""
    named = file_named(trace, _metadata_of(Path(trace)).get(HOST_JOBS))
    return None if named is None else named[0]


def file_named(trace: str | Path, stated: str | None) -> tuple[Path, str] | None:
    """Return the file of host jobs that a trace names, and its digest; of CSV the one beside it, and its window."""
    if stated is not None:
        named = json.loads(stated)
        return Path(trace).parent / Path(named["file"]).name, named["sha256"]
    beside = file_beside(trace)
    if beside is None or Path(trace).suffix.lower() == ".parquet":
        return None
    window = _metadata_of(beside).get(_WINDOW)
    return None if window is None else (beside, window)


def _metadata_of(file: Path) -> dict[str, str]:
    """The metadata of a Parquet file; empty where there is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(file).metadata or {}
    except (OSError, pa.ArrowException):
        return {}
    return {key.decode(): text.decode() for key, text in metadata.items()}


def window_text(start: int, end: int) -> str:
    """How the file of host jobs states the window of its trace."""
    return f"{start} {end}"


def digest(file: Path) -> str:
    """Return the SHA-256 of a file, so that a result identifies its input exactly."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
