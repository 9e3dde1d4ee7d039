"""Node traces from and to files: the native long form and the published matrix form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.tables import (
    ROW_GROUP,
    Columns,
    parquet_metadata,
    read_blocks,
    row_groups,
)
from bft.replay.trace.node_trace import (
    IndexArray,
    NodeTrace,
    TimeArray,
    TraceBuilder,
    from_changes,
    row_offsets,
)
from bft.replay.trace.uncertainty import Uncertainty

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

NATIVE_COLUMNS = ("time", "node", "idle")
# Columns that only job tables have.
_JOB_COLUMNS = ("Jmin", "Jmax", "Pmax")
# In a native file whose units turn idle one by one: the number of the unit on its node, from 0 on.
UNIT = "unit"
# In a native file made of a matrix: the number of the row there, from 1 on, so that --skip-rows counts the same.
ROW = "matrix_row"
# Rows of a matrix that are compared at once: bounds the memory of a 100,000-node matrix to some 50 MB.
CHUNK_CELLS = 16 * 2**20
# Units of a node, and of all nodes if each were as large as the largest: a small file must not ask for any memory.
MAX_UNITS, MAX_SLOTS = 1024, 2**26
# Memory that a row of a native file keeps: the node in an event.
ROW_BYTES = 4
TIME_HINT = "expected a date and time such as 2021-02-10T20:21:15Z"


def read_trace(
    path: str | Path,
    *,
    first_node: int = 0,
    node_count: int | None = None,
    skip_rows: int = 0,
    sort: bool = False,
) -> NodeTrace:
    """Read a node trace, native or matrix; recognised by its columns.

    Parameters
    ----------
    path
        Parquet or CSV (native, matrix), pickle or tar.gz (matrix); compressed or not.
    first_node, node_count
        Use only the columns (nodes) from this one on, and this many.
    skip_rows
        Leave out that many first rows of a matrix, or of the native form as many distinct times: start and end of the
        observation count as such. Where the native form was made of a matrix it still counts the rows of that.
    sort
        Accept rows that are not in order of time.

    Raises
    ------
    InputError
        When the file is not a trace; names file, row and column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pandas as pd
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "idle.csv")
    ...     rows = {"time": ["2021-02-10T00:00:00Z", "2021-02-10T01:00:00Z"], "node": "n0", "idle": [True, False]}
    ...     pd.DataFrame(rows).to_csv(file, index=False)
    ...     read_trace(file).idle_node_seconds()
    3600.0
    """
    for label, value in (
        ("-nis", first_node),
        ("-nN", 1 if node_count is None else node_count),
    ):
        if value < (1 if label == "-nN" else 0):
            raise InputError(
                f"{label} must be at least {1 if label == '-nN' else 0}, not {value}"
            )
    if skip_rows < 0:
        raise InputError(f"--skip-rows must be >= 0, not {skip_rows}")

    def in_blocks(schema: pa.Schema) -> bool:
        names, metadata = set(schema.names), parquet_metadata(schema)
        native = names.issuperset(NATIVE_COLUMNS) and not names & {*_JOB_COLUMNS, ROW}
        known = "nodes" in metadata and (UNIT not in names or "node_units" in metadata)
        return native and known and not skip_rows and not sort

    blocks = read_blocks(path, in_blocks, row_bytes=ROW_BYTES)
    trace = _from_blocks(blocks, str(path), skip_rows, sort)
    if first_node or node_count is not None:
        trace = select_nodes(trace, first_node, node_count)
    return trace


def trace_from_frame(
    frame: pd.DataFrame,
    *,
    source: str = "",
    skip_rows: int = 0,
    sort: bool = False,
    metadata: dict[str, str] | None = None,
) -> NodeTrace:
    """Make a node trace from a frame in either form; see `read_trace`.

    >>> import pandas as pd
    >>> matrix = pd.DataFrame([[1, 0], [1, 1], [0, 1]], columns=["n0", "n1"])
    >>> matrix.index = pd.date_range("2021-02-10", periods=3, freq="10s")
    >>> trace_from_frame(matrix).idle_node_seconds()
    30.0
    """
    if metadata is not None:
        frame = frame.copy(deep=False)
        frame.attrs["metadata"] = metadata
    return _from_blocks(iter([frame]), source, skip_rows, sort)


def _from_blocks(
    blocks: Iterator[pd.DataFrame], source: str, skip_rows: int, sort: bool
) -> NodeTrace:
    """Make a node trace of a frame, or of a native one that comes in blocks."""
    frame = next(blocks)
    names = {str(column) for column in frame.columns}
    if names.issuperset(_JOB_COLUMNS):
        hint = "give it as --jobs; a trace has the columns time, node, idle (docs/formats.md)"
        raise InputError(
            "is a job table, expected a node trace", file=source or None, hint=hint
        )
    native = names.issuperset(NATIVE_COLUMNS)
    known = frame.attrs.get("metadata", {})
    # A native trace without any change still states that its nodes were busy from start to end.
    if not len(frame) and not (native and {"nodes", "start", "end"} <= known.keys()):
        raise InputError(
            "the trace is empty: no row follows the header", file=source or None
        )
    if native:
        frames = chain([frame], blocks)
        del frame
        return _from_native(frames, known, source, skip_rows, sort)
    missing = [column for column in NATIVE_COLUMNS if column not in names]
    if len(missing) == 1:
        raise InputError(
            f"missing column {missing[0]}; a native trace has time, node, idle",
            file=source or None,
        )
    return _from_matrix(frame, source, skip_rows, sort)


def select_nodes(trace: NodeTrace, first: int, count: int | None) -> NodeTrace:
    """The trace of nodes first ... first + count - 1 alone; events of other nodes are left out.

    >>> from bft.replay import always_idle
    >>> select_nodes(always_idle(4, 0, 60 * 10**9), 1, 2).nodes
    ('n00001', 'n00002')
    """
    total = len(trace.nodes)
    if first >= total:
        raise InputError(
            f"-nis {first} lies beyond the trace's {total} nodes",
            file=trace.source or None,
        )
    stop = total if count is None else min(first + count, total)
    low, high = (
        bound * (trace.units_per_node if trace.by_unit else 1)
        for bound in (first, stop)
    )

    def part(slots: IndexArray, at: TimeArray) -> tuple[IndexArray, NDArray[np.int64]]:
        event = np.repeat(np.arange(len(trace), dtype=np.int64), np.diff(at))
        inside = (slots >= low) & (slots < high)
        return slots[inside] - np.int32(low), event[inside]

    joined, joined_event = part(trace.joined, trace.joined_at)
    left, left_event = part(trace.left, trace.left_at)
    events = np.union1d(joined_event, left_event)
    notes = trace.notes
    if count is not None and first + count > total:
        notes = (
            *notes,
            f"-nN {count} reaches beyond the trace's {total} nodes: all from {first} on are used",
        )

    return replace(
        trace,
        nodes=trace.nodes[first:stop],
        times=trace.times[events],
        joined=joined,
        joined_at=row_offsets(joined_event, events),
        left=left,
        left_at=row_offsets(left_event, events),
        notes=notes,
        node_units=None if trace.node_units is None else trace.node_units[first:stop],
    )


def write_trace(trace: NodeTrace, path: str | Path) -> None:
    """Write the native form as Parquet or CSV (also .csv.gz), by suffix.

    CSV has no place for metadata: its first rows state every node at the start, and a last one marks the end. Where
    units turn idle one by one, a column `unit` has their numbers.

    Raises
    ------
    InputError
        For another suffix, and for CSV when whole nodes have several units, which CSV cannot state.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from bft.replay import always_idle
    >>> with TemporaryDirectory() as folder:
    ...     write_trace(always_idle(2, 0, 60 * 10**9), f"{folder}/trace.csv")
    ...     print(Path(folder, "trace.csv").read_text())
    ...     read_trace(f"{folder}/trace.csv").duration_s
    time,node,idle
    1970-01-01T00:00:00.000000Z,n00000,1
    1970-01-01T00:00:00.000000Z,n00001,1
    1970-01-01T00:01:00.000000Z,n00000,1
    <BLANKLINE>
    60.0
    """
    path = Path(path)
    suffixes = "".join(path.suffixes[-2:]).lower()
    if not suffixes.endswith((".parquet", ".csv", ".csv.gz")):
        raise InputError(
            "a node trace is written as .parquet, .csv or .csv.gz", file=path
        )
    parquet = suffixes.endswith(".parquet")
    if not parquet and trace.units_per_node != 1 and not trace.by_unit:
        raise InputError(
            f"CSV has no place for {trace.units_per_node} units a node",
            file=path,
            hint="write .parquet instead",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if parquet and trace.rows is None:
        _write_parquet(trace, _parts_of(trace), path)
        return
    time, node, idle = _changes(trace)
    if not parquet:
        time, node, idle = _opened_and_closed(trace, time, node, idle)
    rows = None
    if trace.rows is not None:
        time, node, idle, rows = _with_rows(trace, trace.rows, time, node, idle)
    columns = _in_order(trace, time, node, idle, rows)
    if parquet:
        _write_parquet(trace, [columns], path)
    else:
        _write_csv(trace, columns, path)


def _parts_of(trace: NodeTrace) -> Iterator[Columns]:
    """All changes of a trace in order, those of some events at a time."""
    until = trace.joined_at + trace.left_at
    wanted = np.arange(ROW_GROUP, int(until[-1]), ROW_GROUP)
    bounds = [0, *np.searchsorted(until, wanted).tolist(), len(trace)]
    for first, last in pairwise(dict.fromkeys(bounds) if len(trace) else bounds):
        yield _in_order(trace, *_changes(trace, first, last))


def _in_order(
    trace: NodeTrace,
    time: TimeArray,
    node: IndexArray,
    idle: NDArray[np.bool_],
    rows: NDArray[np.int32] | None = None,
) -> Columns:
    """Columns of a native file."""
    # By node within an instant: the first rows of a CSV then name the nodes in their order.
    order = np.lexsort((node, time) if rows is None else (node, rows, time))
    columns: dict[str, NDArray[Any]] = {"time": time[order], "node": node[order]}
    if trace.by_unit:
        columns["node"], columns[UNIT] = np.divmod(
            columns["node"], np.int32(trace.units_per_node)
        )
    columns["idle"] = idle[order]
    if rows is not None:
        columns[ROW] = rows[order]
    return columns


Changes = tuple[TimeArray, IndexArray, NDArray[np.bool_]]
"""Instants, nodes, and whether they are idle from then on; one row per change."""


def _changes(trace: NodeTrace, first: int = 0, last: int | None = None) -> Changes:
    """The changes of events first ... last - 1."""
    events = slice(first, len(trace) if last is None else last)
    bounds = slice(events.start, events.stop + 1)
    left_at, joined_at = trace.left_at[bounds], trace.joined_at[bounds]
    times = trace.times[events]
    left = trace.left[left_at[0] : left_at[-1]]
    joined = trace.joined[joined_at[0] : joined_at[-1]]
    return (
        np.concatenate(
            [np.repeat(times, np.diff(left_at)), np.repeat(times, np.diff(joined_at))]
        ),
        np.concatenate([left, joined]),
        np.repeat([False, True], [len(left), len(joined)]),
    )


def _opened_and_closed(
    trace: NodeTrace, time: TimeArray, node: IndexArray, idle: NDArray[np.bool_]
) -> Changes:
    """Add first rows that state every node at the start, and a last row that marks the end."""
    opening = trace.members()
    at_start = (
        trace.joins(0) if len(trace) and trace.times[0] == trace.start else opening[:0]
    )
    opening = np.setdiff1d(opening, at_start)
    time = np.concatenate([np.full(len(opening), trace.start), time])
    node = np.concatenate([opening, node])
    idle = np.concatenate([np.zeros(len(opening), dtype=bool), idle])
    if trace.end > time.max(
        initial=trace.start - 1
    ):  # the only record of how long was observed
        closing_idle = bool(len(trace)) and int(trace.idle_counts()[-1]) == len(
            trace.members()
        )
        closing = 0 if closing_idle or not len(trace) else _busy_at_end(trace)
        time, node = np.append(time, trace.end), np.append(node, np.int32(closing))
        idle = np.append(idle, closing_idle)
    return time, node, idle


def _write_parquet(trace: NodeTrace, parts: Iterable[Columns], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array(list(trace.nodes), type=pa.string())
    metadata = _metadata(trace)
    # What pandas.read_parquet puts into `attrs`: the window is in no row.
    for_pandas = {"PANDAS_ATTRS": json.dumps({"metadata": metadata})}
    writer = None
    try:
        for columns in row_groups(parts):
            typed = {
                "time": pa.array(columns["time"], type=pa.timestamp("ns", tz="UTC")),
                "node": pa.DictionaryArray.from_arrays(
                    pa.array(columns["node"].astype(np.int32)), names
                ),
            }
            table = pa.table(
                {
                    name: typed[name] if name in typed else pa.array(column)
                    for name, column in columns.items()
                }
            ).replace_schema_metadata({**metadata, **for_pandas})
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table, ROW_GROUP)
    finally:
        if writer is not None:
            writer.close()


def _write_csv(trace: NodeTrace, columns: Columns, path: Path) -> None:
    import pandas as pd

    unit: Literal["us", "ns"] = "us" if not (columns["time"] % 1000).any() else "ns"
    stamps = np.datetime_as_string(columns["time"].astype("datetime64[ns]"), unit=unit)
    written = {
        "time": np.char.add(stamps, "Z"),
        "node": np.asarray(trace.nodes, dtype=object)[columns["node"]],
        "idle": columns["idle"].astype(int),
    }
    frame = pd.DataFrame({name: written.get(name, columns[name]) for name in columns})
    frame.to_csv(
        path,
        index=False,
        compression={"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None,
    )


def _with_rows(
    trace: NodeTrace,
    instants: TimeArray,
    time: TimeArray,
    node: IndexArray,
    idle: NDArray[np.bool_],
) -> tuple[TimeArray, IndexArray, NDArray[np.bool_], NDArray[np.int32]]:
    """Rows of a file with the numbers of the rows that they were made of; one more for each that changed nothing.

    Of rows of one time the last counts, so changes are its. Others repeat the state that the first node has.
    """
    rows = np.searchsorted(instants, time, side="right").astype(np.int32)
    empty = np.setdiff1d(np.arange(1, len(instants) + 1, dtype=np.int32), rows)
    instant = instants[empty - 1]
    joins = trace.times[
        np.searchsorted(
            trace.joined_at, np.flatnonzero(trace.joined == 0), side="right"
        )
        - 1
    ]
    leaves = trace.times[
        np.searchsorted(trace.left_at, np.flatnonzero(trace.left == 0), side="right")
        - 1
    ]
    state = np.searchsorted(joins, instant, side="left") > np.searchsorted(
        leaves, instant, side="left"
    )
    return (
        np.concatenate([time, instant]),
        np.concatenate([node, np.zeros(len(instant), dtype=np.int32)]),
        np.concatenate([idle, state]),
        np.concatenate([rows, empty]),
    )


def _busy_at_end(trace: NodeTrace) -> int:
    state = np.zeros(trace.slots, dtype=bool)
    for event in range(len(trace)):
        state[trace.leaves(event)] = False
        state[trace.joins(event)] = True
    members = trace.members()
    return int(members[np.argmin(state[members])])


def _metadata(trace: NodeTrace) -> dict[str, str]:
    return {
        "machine": trace.machine,
        "nodes": json.dumps(list(trace.nodes)),
        "units_per_node": str(trace.units_per_node),
        **(
            {}
            if trace.node_units is None
            else {"node_units": json.dumps(trace.node_units)}
        ),
        "source": trace.source,
        "start": _iso(trace.start),
        "end": _iso(trace.end),
        **({"altered": trace.altered} if trace.altered else {}),
        **({"uncertain": trace.uncertain.as_json()} if trace.uncertain else {}),
        **({"assumptions": json.dumps(trace.assumptions)} if trace.assumptions else {}),
        **({"zone": trace.zone} if trace.zone else {}),
    }


def _iso(instant_ns: int) -> str:
    return str(np.datetime64(instant_ns, "ns")) + "Z"


@dataclass(frozen=True, slots=True)
class _Window:
    """Metadata of a native trace file: window, nodes and their units; what was assumed."""

    nodes: list[str] | None
    units_per_node: int
    node_units: list[int] | None
    start: int | None
    end: int | None
    assumptions: tuple[str, ...]


def _window(metadata: dict[str, str], source: str) -> _Window:
    try:
        nodes = _texts(metadata["nodes"], "nodes") if "nodes" in metadata else None
        units_per_node = int(metadata.get("units_per_node", "1"))
        if units_per_node < 1:
            raise ValueError(f"units_per_node is {units_per_node}, expected at least 1")
        node_units = (
            _counts(metadata["node_units"]) if "node_units" in metadata else None
        )
        start = _stamp(metadata["start"]) if "start" in metadata else None
        end = _stamp(metadata["end"]) if "end" in metadata else None
        assumptions = tuple(_texts(metadata.get("assumptions", "[]"), "assumptions"))
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the file's metadata are damaged: {error}", file=source or None
        ) from error
    if nodes is not None and len(set(nodes)) != len(nodes):
        raise InputError("the metadata name a node twice", file=source or None)
    if node_units is not None and (nodes is None or len(node_units) != len(nodes)):
        raise InputError(
            "the metadata state node_units, but not of each node", file=source or None
        )
    return _Window(nodes, units_per_node, node_units, start, end, assumptions)


def _nodes_of(
    raw: pd.Series, known: list[str] | None, source: str
) -> tuple[NDArray[np.int64], list[str]]:
    """Return each row's node as an index into the nodes, and the nodes: `known`, or those that occur."""
    import pandas as pd

    categories = raw.cat.categories if hasattr(raw, "cat") else None
    missing = raw.isna()
    if categories is None or "" in categories:
        missing |= raw == ""
    _refuse_first(missing, source, "node", lambda _: "the node's name is missing")
    if known is None:
        codes, names = pd.factorize(raw.astype(str))
        return codes, [str(name) for name in names]
    values = pd.Index(raw.astype(object) if categories is None else categories)
    codes = pd.Index(known, dtype=object).get_indexer(values.astype(object))
    if categories is not None:
        codes = codes[raw.cat.codes.to_numpy()]
    _refuse_first(
        codes < 0,
        source,
        "node",
        lambda row: f"node {raw.iloc[row]!r} is not among the trace's nodes",
    )
    return codes, known


def _from_native(
    frames: Iterator[pd.DataFrame],
    metadata: dict[str, str],
    source: str,
    skip_rows: int,
    sort: bool,
) -> NodeTrace:
    window = _window(metadata, source)
    builder, rows = TraceBuilder(), _Rows(window, source, skip_rows, sort)
    for frame in frames:
        builder.add(*rows.read(frame))
    builder.add(*rows.rest())
    trace = builder.trace(
        rows.nodes,
        start=rows.start,
        end=window.end,
        source=source or metadata.get("source", ""),
        rows=rows.numbered,
    )
    trace = replace(
        trace,
        machine=metadata.get("machine", ""),
        units_per_node=rows.units_per_node,
        node_units=rows.node_units,
        assumptions=window.assumptions,
        zone=metadata.get("zone", ""),
    )
    altered = metadata.get("altered", "")
    if altered:
        note = f"the trace is not as observed, but perturbed: {altered}"
        trace = replace(trace, altered=altered, notes=(*trace.notes, note))
    if "uncertain" in metadata:
        trace = _uncertain(trace, metadata["uncertain"], source)
    if rows.numbered is None:
        return _after_skipped(trace.read_from(rows.instants()), skip_rows, "times")
    return _after_skipped(trace, skip_rows, "rows")


class _Rows:
    """The rows of a native file that comes in blocks: checked, with nodes or units as numbers.

    The rows of the last instant wait for the next block. A file whose rows are skipped, sorted or numbered comes as one
    block.

    Attributes
    ----------
    start
        Begin of the window, as far as stated.
    nodes, units_per_node, node_units
        As of the trace.
    numbered
        Instants of the rows of a matrix, where the file names its rows.
    """

    def __init__(
        self, window: _Window, source: str, skip_rows: int, sort: bool
    ) -> None:
        self._window, self._source = window, source
        self._skip_rows, self._sort = skip_rows, sort
        self._count = 0
        self._waiting: Changes = (
            np.zeros(0, dtype=np.int64),
            np.zeros(0, dtype=np.int32),
            np.zeros(0, dtype=bool),
        )
        self._times: list[TimeArray] = []
        self.start = window.start
        self.nodes: list[str] = window.nodes or []
        self.units_per_node = window.units_per_node
        self.node_units: tuple[int, ...] | None = None
        self.numbered: TimeArray | None = None

    def read(self, frame: pd.DataFrame) -> Changes:
        """Return the rows of all instants that are complete with this block."""
        before = self._waiting[0][-1:]
        try:
            times, codes, idle = self._checked(frame)
        except InputError as error:
            _count_on(error, self._count)
            raise
        try:
            after = np.concatenate([before, times])
            order = _check_order(after, self._source, self._sort)
        except InputError as error:
            _count_on(error, self._count - len(before))
            raise
        self._count += len(frame)
        if order is not None:
            times, codes, idle = times[order], codes[order], idle[order]
        if ROW in frame.columns or self._skip_rows:
            numbers = None
            if ROW in frame.columns:
                column = frame[ROW] if order is None else frame[ROW].iloc[order]
                numbers = _row_numbers(column, times, self._source)
            times, codes, idle = self._without_first(times, codes, idle, numbers)
        self._times.append(np.unique(times))
        waiting = self._waiting
        times = np.concatenate([waiting[0], times])
        codes = np.concatenate([waiting[1], codes])
        idle = np.concatenate([waiting[2], idle])
        complete = int(np.searchsorted(times, times[-1])) if len(times) else 0
        self._waiting = times[complete:], codes[complete:], idle[complete:]
        return times[:complete], codes[:complete], idle[:complete]

    def rest(self) -> Changes:
        """Return the rows of the last instant."""
        return self._waiting

    def instants(self) -> TimeArray:
        """Return the distinct times of all rows, start and end of the window among them."""
        bounds = [at for at in (self.start, self._window.end) if at is not None]
        return np.unique(np.concatenate([*self._times, np.array(bounds, np.int64)]))

    def _checked(self, frame: pd.DataFrame) -> Changes:
        """Times, nodes or units, and states of rows in their order."""
        window, source = self._window, self._source
        times = _instants(frame["time"], source, "time")
        codes, self.nodes = _nodes_of(frame["node"], window.nodes, source)
        if UNIT in frame.columns:
            units = _unit_numbers(frame[UNIT], source)
            self.units_per_node, self.node_units = _units_of_nodes(
                units, codes, self.nodes, window, source
            )
            codes = codes * self.units_per_node + units
        elif window.node_units is not None:
            raise InputError(
                f"missing column {UNIT}: the metadata state units of nodes",
                file=source or None,
            )
        return times, codes.astype(np.int32), _states(frame["idle"], source)

    def _without_first(
        self,
        times: TimeArray,
        codes: IndexArray,
        idle: NDArray[np.bool_],
        numbers: NDArray[np.int64] | None,
    ) -> Changes:
        """Leave out the first rows; the rest starts from the state at the end of the skipped part."""
        if numbers is None:
            self._times.append(times)
            instants = self.instants()
            self._times.clear()
        else:
            instants = times[np.unique(numbers, return_index=True)[1]]
        if self._skip_rows:
            counted = "times" if numbers is None else "rows"
            if self._skip_rows >= len(instants):
                raise InputError(
                    f"--skip-rows {self._skip_rows} leaves none of the {len(instants)} {counted}",
                    file=self._source or None,
                )
            self.start = int(instants[self._skip_rows])
            gone = (
                times < self.start
                if numbers is None
                else numbers <= np.unique(numbers)[self._skip_rows - 1]
            )
            times, codes, idle = _carried_over(times, codes, idle, gone, self.start)
        if numbers is not None:
            self.numbered = instants[self._skip_rows :]
        return times, codes, idle


def _count_on(error: InputError, rows: int) -> None:
    """Let an error in a block of rows name the row of the file."""
    if error.row is not None:
        error.row += rows


def _uncertain(trace: NodeTrace, stated: str, source: str) -> NodeTrace:
    """The trace with what its logs leave open, as a note from a share on that matters."""
    try:
        uncertain = Uncertainty.from_json(stated)
    except ValueError as error:
        raise InputError(
            f"the file's metadata are damaged: {error}", file=source or None
        ) from error
    notes = trace.notes
    if uncertain.is_large:
        notes = (*notes, str(uncertain))
    return replace(trace, uncertain=uncertain, notes=notes)


def _unit_numbers(column: pd.Series, source: str) -> NDArray[np.int64]:
    """Numbers of units on their nodes."""
    numbers = column.to_numpy()
    invalid = np.ones(len(numbers), dtype=bool)
    if numbers.dtype.kind in "iu":
        invalid = (numbers < 0) | (numbers >= MAX_UNITS)
    expected = f"expected the number of a unit of the node, from 0 to {MAX_UNITS - 1}"
    _refuse_first(invalid, source, UNIT, lambda row: f"{expected}, not {numbers[row]}")
    return numbers.astype(np.int64)


def _units_of_nodes(
    units: NDArray[np.int64],
    codes: NDArray[np.int64],
    nodes: list[str],
    window: _Window,
    source: str,
) -> tuple[int, tuple[int, ...]]:
    """Units of the largest node, and of each: as the metadata state, or else up to the highest number in any row."""
    if window.node_units is None:
        counts = np.ones(len(nodes), dtype=np.int64)
        np.maximum.at(counts, codes, units + 1)
        per = int(counts.max(initial=1))
    else:
        counts, per = np.array(window.node_units, dtype=np.int64), window.units_per_node
        beyond = units >= counts[codes] if len(counts) else np.zeros(0, dtype=bool)
        _refuse_first(
            beyond,
            source,
            UNIT,
            lambda row: (
                f"node {nodes[codes[row]]} has {counts[codes[row]]} units, numbered from 0 on, not one {units[row]}"
            ),
        )
    if per * len(nodes) > MAX_SLOTS:
        raise InputError(
            f"{len(nodes)} nodes of up to {per} units are more than a trace may have",
            file=source or None,
        )
    return per, tuple(counts.tolist())


def _row_numbers(column: pd.Series, times: TimeArray, source: str) -> NDArray[np.int64]:
    """Numbers of the rows of the matrix that the rows of a native file were made of: ascending, one time each."""
    numbers = column.to_numpy()
    invalid = np.zeros(len(numbers), dtype=bool)
    if numbers.dtype.kind in "iu":
        invalid[1:] = (numbers[1:] < numbers[:-1]) | (
            (numbers[1:] == numbers[:-1]) & (times[1:] != times[:-1])
        )
    else:
        invalid[:] = True
    expected = (
        "expected the number of a row of a matrix, ascending and each of one time"
    )
    _refuse_first(
        invalid,
        source,
        ROW,
        lambda row: f"{expected}, not {numbers[row]!r}",
        hint="leave the column out",
    )
    return numbers.astype(np.int64)


def _carried_over(
    times: TimeArray,
    codes: IndexArray,
    idle: NDArray[np.bool_],
    gone: NDArray[np.bool_],
    start: int,
) -> Changes:
    """Replace the rows that are gone by the states that they leave at the start, one row per node."""
    kept, last = np.unique(codes[gone][::-1], return_index=True)
    states = idle[gone][::-1][last]
    at_start = np.unique(codes[~gone][times[~gone] == start])
    before = ~np.isin(kept, at_start)
    return (
        np.concatenate(
            [np.full(int(before.sum()), start, dtype=np.int64), times[~gone]]
        ),
        np.concatenate([kept[before], codes[~gone]]),
        np.concatenate([states[before], idle[~gone]]),
    )


def _from_matrix(
    frame: pd.DataFrame, source: str, skip_rows: int, sort: bool
) -> NodeTrace:
    import pandas as pd

    if isinstance(frame.index, pd.RangeIndex):  # CSV: the first column holds the times
        first = frame.columns[0]
        times = _instants(frame[first], source, str(first))
        frame = frame.drop(columns=first)
    elif isinstance(frame.index, pd.DatetimeIndex):
        times = _instants(frame.index.to_series(), source, "index")
    else:
        raise InputError(
            f"not a node trace: its index holds {frame.index.dtype}, its columns are {_some(frame.columns)}; expected "
            "columns time, node, idle, or a matrix with timestamps as index and one 0/1 column a node",
            file=source or None,
        )
    if not len(frame.columns):
        raise InputError("the matrix has no node columns", file=source or None)
    nodes = [str(column) for column in frame.columns]
    if len(set(nodes)) != len(nodes):
        twice = next(name for name in nodes if nodes.count(name) > 1)
        raise InputError(
            "the matrix has two columns of this name", file=source or None, column=twice
        )
    order = _check_order(times, source, sort)
    if skip_rows >= len(times):
        raise InputError(
            f"--skip-rows {skip_rows} leaves none of the {len(times)} rows",
            file=source or None,
        )
    values = _cells(frame, source)
    rows = np.arange(skip_rows, len(times)) if order is None else order[skip_rows:]
    instants = times[rows]
    # Of rows with one time the last counts.
    rows = rows[np.append(instants[1:] != instants[:-1], True)]
    row, node, idle = _matrix_changes(values, rows, nodes, source)
    trace = from_changes(
        nodes,
        times[rows][row],
        node,
        idle,
        start=int(instants[0]),
        end=int(instants[-1]),
        source=source,
        rows=instants,
    )
    return _after_skipped(trace, skip_rows, "rows")


def _after_skipped(trace: NodeTrace, count: int, counted: str) -> NodeTrace:
    return (
        replace(trace, notes=(f"{count} first {counted} skipped", *trace.notes))
        if count
        else trace
    )


def _cells(frame: pd.DataFrame, source: str) -> NDArray[np.generic]:
    """Values of a matrix as one array of numbers or truth values."""
    values = frame.to_numpy()
    if values.dtype.kind in "buif":
        return values
    states = np.empty(values.shape, dtype=bool)  # columns of several types, or of text
    for k, column in enumerate(frame.columns):
        states[:, k] = _states(frame.iloc[:, k], source, str(column))
    return states


def _matrix_changes(
    values: NDArray[np.generic], rows: NDArray[np.int64], nodes: list[str], source: str
) -> tuple[NDArray[np.int64], IndexArray, NDArray[np.bool_]]:
    """Row number, node and new state of every change in a matrix, in order of row and node, some nodes at a time."""
    consecutive = (np.diff(rows) == 1).all()
    picked = slice(int(rows[0]), int(rows[-1]) + 1) if consecutive else rows
    step = max(1, CHUNK_CELLS // len(rows))
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]] = []
    wrong: list[tuple[int, int]] = []
    for begin in range(0, len(nodes), step):
        # A pickled frame has the values of a node side by side.
        cells = np.ascontiguousarray(values[picked, begin : begin + step].T)
        state = cells.astype(bool)
        # NaN, negative and other values differ from their own truth value.
        invalid = cells != state
        if invalid.any():
            first, column = np.argwhere(invalid.T)[0].tolist()
            wrong.append((first, column + begin))
            continue
        difference = state.copy()
        np.not_equal(state[:, 1:], state[:, :-1], out=difference[:, 1:])
        where = _true_places(difference.ravel())
        node, row = np.divmod(where, len(rows))
        found.append((row, node + begin, state.ravel()[where]))
    if wrong:
        first, column = min(wrong)
        raise InputError(
            f"expected 0 (busy) or 1 (idle), not {values[rows[first], column]}",
            file=source or None,
            row=int(rows[first]) + 1,
            column=nodes[column],
        )
    row, node, states = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((node, row))
    return row[order], node[order].astype(np.int32), states[order]


def _true_places(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return where flags are true, of which few are: eight of them are looked at together."""
    whole = len(flags) // 8 * 8
    some = np.flatnonzero(flags[:whole].view(np.uint64))
    places = (some[:, np.newaxis] * 8 + np.arange(8)).ravel()
    rest = np.arange(whole, len(flags))
    places = np.concatenate([places, rest])
    true: NDArray[np.int64] = places[flags[places]]
    return true


def _instants(column: pd.Series, source: str, name: str) -> TimeArray:
    """UTC nanoseconds of a column of times; times without a zone count as UTC."""
    import pandas as pd

    if not len(column):
        return np.zeros(0, dtype=np.int64)
    if column.dtype.kind in "iufb":
        raise InputError(
            f"not a node trace: {TIME_HINT}, not {column.iloc[0]}",
            file=source or None,
            row=1,
            column=name,
        )
    as_text = column.dtype.kind != "M"
    stamps = pd.to_datetime(
        column, utc=True, errors="coerce", format="ISO8601" if as_text else None
    )
    # pandas reads years that nanoseconds cannot reach, and these two words as the time of reading.
    invalid = ~stamps.between(
        pd.Timestamp.min.tz_localize("UTC"), pd.Timestamp.max.tz_localize("UTC")
    )
    if as_text:
        invalid |= column.isin(("now", "today"))
    _refuse_first(
        invalid,
        source,
        name,
        lambda row: f"{TIME_HINT}, not {str(column.iloc[row])!r}",
    )
    return np.asarray(stamps.dt.as_unit("ns").astype("int64"), dtype=np.int64)


def _states(column: pd.Series, source: str, name: str = "idle") -> NDArray[np.bool_]:
    words = {
        "true": True,
        "false": False,
        "1": True,
        "0": False,
        "1.0": True,
        "0.0": False,
    }
    if column.dtype == bool:
        return column.to_numpy()
    states = column.astype(str).str.lower().map(words)
    _refuse_first(
        states.isna(),
        source,
        name,
        lambda row: f"expected 0 (busy) or 1 (idle), not {str(column.iloc[row])!r}",
    )
    return states.astype(bool).to_numpy()


def _check_order(times: TimeArray, source: str, sort: bool) -> NDArray[np.int64] | None:
    """Return None when rows are sorted, and the sorting order when that is wanted; raise an error otherwise."""
    backwards = times[1:] < times[:-1]
    if not backwards.any():
        return None
    if sort:
        return np.argsort(times, kind="stable")
    row = _first(backwards) + 2
    raise InputError(
        f"the rows are not in order of time: {np.datetime64(int(times[row - 1]), 'ns')} follows "
        f"{np.datetime64(int(times[row - 2]), 'ns')}",
        file=source or None,
        row=row,
        hint="sort the file, or let --sort do it",
    )


def _texts(text: str, what: str) -> list[str]:
    entries = json.loads(text)
    if not isinstance(entries, list):
        raise TypeError(f"{what} is no list of texts")
    return [str(entry) for entry in entries]


def _counts(text: str) -> list[int]:
    counts = json.loads(text)
    if not isinstance(counts, list) or not all(
        type(count) is int and 0 < count <= MAX_UNITS for count in counts
    ):
        raise TypeError(f"node_units is no list of numbers from 1 to {MAX_UNITS}")
    return counts


def _stamp(text: str) -> int:
    import pandas as pd

    stamp = pd.to_datetime(text, utc=True, format="ISO8601", errors="coerce")
    if pd.isna(stamp) or not text[:1].isdigit():  # pandas knows words such as now
        raise ValueError(f"{TIME_HINT}, not {text!r}")
    return int(stamp.as_unit("ns").value)


def _first(flags: pd.Series | NDArray[np.bool_]) -> int:
    return int(np.argmax(np.asarray(flags)))


def _refuse_first(
    wrong: pd.Series | NDArray[np.bool_],
    source: str,
    column: str,
    what: Callable[[int], str],
    *,
    hint: str | None = None,
) -> None:
    """Raise InputError for the first row that is wrong, if any is; `what` says why of its place."""
    if wrong.any():
        row = _first(wrong)
        raise InputError(
            what(row), file=source or None, row=row + 1, column=column, hint=hint
        )


def _some(columns: pd.Index) -> str:
    shown = ", ".join(str(column) for column in columns[:5])
    return f"{shown}, ..." if len(columns) > 5 else shown
