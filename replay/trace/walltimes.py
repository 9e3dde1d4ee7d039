"""What a batch scheduler knew of its jobs and reservations, kept beside a node trace (docs/walltimes.md).

`Outlook` is what follows: how long idle nodes may be expected to stay idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.trace.node_trace import (
    SECOND_NS,
    IndexArray,
    NodeTrace,
    TimeArray,
    consecutive,
)
from bft.replay.trace.trace_statistics import fragments

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


# Bounds of the bins of expected lengths that `calibration` reports, s.
BINS_S = (60, 600, 3600, 6 * 3600, 86_400)
_QUANTILES = (10, 50, 90)


class Outlook:
    """Forecast of how long each idle node of a machine stays idle, without knowledge of the future.

    A node stays idle until its next reservation, and until the job at the head of the queue begins, whichever comes
    first. That job is the first one that waits (by when it became eligible) and wants more nodes than are idle. It
    begins, as EASY backfilling reserves nodes for it (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001: the shadow time),
    when running jobs have returned enough nodes at the end of their time limits; one beyond its limit may end at once.
    A job that fits on the idle nodes and waits nevertheless is held back by what no log states, and is passed over; so
    is one that wants more nodes than those that are known to return.

    At each instant only those rows count that were known then, without what came of them later.

    Parameters
    ----------
    walltimes
        What the scheduler knew.
    trace
        When which nodes of the whole machine are idle.
    nodes
        The nodes that are looked at, by name, in this order; by default those of the trace.

    Raises
    ------
    InputError
        When the walltimes name nodes, and the trace has none of them, or is one of units.

    Examples
    --------
    Two of three nodes are idle. A job waits for three; the job on the third may run until 100 s:

    >>> import numpy as np
    >>> from bft.replay.trace.node_trace import from_fragments
    >>> from bft.replay.trace.walltimes import from_rows
    >>> s = SECOND_NS
    >>> trace = from_fragments(["a", "b", "c"], np.array([0, 1]), np.array([0, 0]), np.array([60, 60]) * s, 0, 90 * s)
    >>> running = "job", 0, 0, 60 * s, 100 * s, 1, ["c"]
    >>> waiting = "job", 5 * s, 60 * s, NEVER, NEVER, 3, ["a", "b", "c"]
    >>> outlook = Outlook(from_rows([running, waiting]), trace)
    >>> outlook.expected(0), outlook.expected(5 * s)
    ([None, None, None], [100000000000, 100000000000, None])
    """

    def __init__(
        self, walltimes: Walltimes, trace: NodeTrace, nodes: Sequence[str] | None = None
    ) -> None:
        if trace.by_unit:
            raise InputError(
                "walltimes are for nodes that turn idle as a whole",
                file=trace.source or None,
            )
        check_nodes(walltimes, trace)
        self.walltimes = walltimes
        place = {name: index for index, name in enumerate(trace.nodes)}
        places = np.array(
            [place.get(name, -1) for name in walltimes.names], dtype=np.int64
        )
        self.strangers = int((places < 0).sum())
        self._trace = trace
        self._shown = (
            slice(None)
            if nodes is None
            else np.array([place[name] for name in nodes], dtype=np.int64)
        )
        order = np.argsort(walltimes.known, kind="stable")
        self._reserved, self._known = walltimes.reserved[order], walltimes.known[order]
        self._start, self._end = walltimes.start[order], walltimes.end[order]
        self._until, self._count = walltimes.expected_end[order], walltimes.count[order]
        self._sizes, self._first = (
            np.diff(walltimes.offsets)[order],
            walltimes.offsets[:-1][order],
        )
        self._nodes = places[walltimes.nodes]
        self._begin()

    def _begin(self) -> None:
        """Start before the first row and event, which are taken as time goes on."""
        self._now = -NEVER
        self._rows = np.empty(0, dtype=np.int64)  # known, and not over
        self._next_row = self._next_event = 0
        self._idle = np.zeros(len(self._trace.nodes), dtype=bool)

    def expected(self, time_ns: int) -> list[int | None]:
        """Return when each node's idle time is expected to end, UTC nanoseconds; None: not idle, or not known."""
        return [None if end == NEVER else end for end in self.until(time_ns).tolist()]

    def until(self, time_ns: int) -> TimeArray:
        """Return each node's expected return as an array: int64 of shape (nodes,), `NEVER` for None."""
        rows, idle = self._at(time_ns)
        jobs, reservations = rows[~self._reserved[rows]], rows[self._reserved[rows]]
        begun = self._start[jobs] <= time_ns
        ahead = self._start[reservations] > time_ns
        # Who holds a node during a reservation, the node is not returned before the reservation ends.
        times, counts = self._returned(
            np.concatenate([jobs[begun], reservations[~ahead]]), idle, time_ns
        )
        until = np.full(
            len(idle),
            self._head_begins(jobs[~begun], int(np.count_nonzero(idle)), times, counts),
        )
        node, which = self._nodes_of(reservations[ahead])
        np.minimum.at(until, node, self._start[which])
        until[~idle] = NEVER
        return until[self._shown]

    def _at(self, time_ns: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows that are known and not over, in the order in which they were known, and which nodes are idle."""
        if time_ns < self._now:
            self._begin()
        trace, self._now = self._trace, time_ns
        until = int(np.searchsorted(self._known, time_ns, side="right"))
        rows = np.concatenate([self._rows, np.arange(self._next_row, until)])
        self._rows, self._next_row = rows[self._end[rows] > time_ns], until
        last = int(np.searchsorted(trace.times, time_ns, side="right"))
        for event in range(self._next_event, last):
            self._idle[trace.leaves(event)] = False
            self._idle[trace.joins(event)] = True
        self._next_event = last
        return self._rows, self._idle

    def _nodes_of(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Nodes of rows that the trace has, and for each the row that has it."""
        sizes = self._sizes[rows]
        which = np.repeat(rows, sizes)
        node = self._nodes[consecutive(self._first[rows], sizes)]
        there = node >= 0
        return node[there], which[there]

    def _returned(
        self, rows: NDArray[np.int64], idle: NDArray[np.bool_], time_ns: int
    ) -> tuple[TimeArray, NDArray[np.int64]]:
        """Return when nodes that are not idle are expected to be returned, and how many, in order of time."""
        node, which = self._nodes_of(rows)
        latest = np.full(len(idle), -NEVER)
        np.maximum.at(latest, node, self._until[which])  # jobs may share a node
        latest = latest[(latest > -NEVER) & ~idle]
        nameless = rows[self._sizes[rows] == 0]
        times = np.concatenate([latest, self._until[nameless]])
        counts = np.concatenate(
            [np.ones(len(latest), dtype=np.int64), self._count[nameless]]
        )
        known = times < NEVER
        times, counts = np.maximum(times[known], time_ns), counts[known]
        order = np.argsort(times, kind="stable")
        return times[order], counts[order]

    def _head_begins(
        self,
        waiting: NDArray[np.int64],
        idle: int,
        times: TimeArray,
        counts: NDArray[np.int64],
    ) -> int:
        """Return when the job at the head of the queue is expected to begin; `NEVER` without one."""
        returned = np.cumsum(counts)
        lacks = self._count[waiting] - idle
        heads = (lacks > 0) & (lacks <= (returned[-1] if len(returned) else 0))
        if not heads.any():
            return NEVER
        return int(times[np.searchsorted(returned, lacks[np.argmax(heads)])])


def calibration(trace: NodeTrace, outlook: Outlook) -> dict[str, Any]:
    """Compare expectations with the outcome: each idle fragment's at its begin, beside how long it lasted.

    Fragments that the window cuts are left out, as their lengths are not known.

    Returns
    -------
    dict
        `fragments` and `cut`, how many there are, and how many were left out; `expected`, for how many something was
        expected, as a share of all by count and by node-time; `ratio`, quantiles of real over expected lengths; and
        `bins` by expected length, with counts, shares, median lengths (s), and the share that ended `before`.
        Quantiles are None where nothing was expected; a length of 0 has no ratio.
    """
    pieces = fragments(trace)
    whole = ~pieces.censored
    node, begin = pieces.node[whole], pieces.start_ns[whole]
    real_s = pieces.seconds[whole]
    expected_s = np.full(len(node), np.inf)
    order = np.argsort(begin, kind="stable")
    instants, firsts = np.unique(begin[order], return_index=True)
    for instant, first, last in zip(
        instants.tolist(), firsts, [*firsts, len(order)][1:], strict=True
    ):
        those = order[first:last]
        until = outlook.until(instant)[node[those]]
        there = until < NEVER
        expected_s[those[there]] = (until[there] - instant) / SECOND_NS
    some = np.isfinite(expected_s)
    positive = some & (expected_s > 0)
    bins = []
    for low, high in zip((-np.inf, *BINS_S), (*BINS_S, np.inf), strict=True):
        those = some & (expected_s > low) & (expected_s <= high)
        bins.append(
            {
                "up_to_s": None if high == np.inf else high,
                **_bin(those, expected_s, real_s),
            }
        )
    return {
        "fragments": len(node),
        "cut": int((~whole).sum()),
        "expected": {
            "by_count": float(some.mean()) if len(node) else None,
            "by_node_time": float(real_s[some].sum() / real_s.sum())
            if len(node)
            else None,
        },
        "ratio": _quantiles(real_s[positive] / expected_s[positive]),
        "bins": bins,
        "none": {"count": int((~some).sum()), "real_s": _quantiles(real_s[~some])},
    }


def _bin(
    those: NDArray[np.bool_],
    expected_s: NDArray[np.float64],
    real_s: NDArray[np.float64],
) -> dict[str, Any]:
    """Return one bin of `calibration`."""
    expected, real = expected_s[those], real_s[those]
    return {
        "count": len(real),
        "node_s": float(real.sum()),
        "expected_s": _quantiles(expected),
        "real_s": _quantiles(real),
        "before": float((real < expected).mean()) if len(real) else None,
    }


def _quantiles(values: NDArray[np.float64]) -> dict[str, float] | None:
    if not len(values):
        return None
    return {
        f"p{q}": float(v)
        for q, v in zip(_QUANTILES, np.percentile(values, _QUANTILES), strict=True)
    }
