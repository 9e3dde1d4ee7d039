"""Node traces from and to files: the native long form and the published matrix form."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError, read_table
from bft.replay.trace.node_trace import (
    IndexArray,
    NodeTrace,
    TimeArray,
    from_changes,
    row_offsets,
)
from bft.replay.trace.uncertainty import Uncertainty

if TYPE_CHECKING:
    import pandas as pd

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
    frame = read_table(path)
    trace = trace_from_frame(frame, source=str(path), skip_rows=skip_rows, sort=sort)
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
    names = {str(column) for column in frame.columns}
    if names.issuperset(_JOB_COLUMNS):
        hint = "give it as --jobs; a trace has the columns time, node, idle (docs/formats.md)"
        raise InputError(
            "is a job table, expected a node trace", file=source or None, hint=hint
        )
    native = names.issuperset(NATIVE_COLUMNS)
    known = frame.attrs.get("metadata", {}) if metadata is None else metadata
    # A native trace without any change still states that its nodes were busy from start to end.
    if not len(frame) and not (native and {"nodes", "start", "end"} <= known.keys()):
        raise InputError(
            "the trace is empty: no row follows the header", file=source or None
        )
    if native:
        return _from_native(frame, known, source, skip_rows, sort)
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
    time, node, idle = (
        _changes(trace) if parquet else _opened_and_closed(trace, *_changes(trace))
    )
    rows = np.zeros(len(time), dtype=np.int32)
    if trace.rows is not None:
        time, node, idle, rows = _with_rows(trace, trace.rows, time, node, idle)
    # By node within an instant: the first rows of a CSV then name the nodes in their order.
    order = np.lexsort((node, rows, time))
    columns: dict[str, NDArray[Any]] = {
        "time": time[order],
        "node": node[order],
        "idle": idle[order],
    }
    if trace.by_unit:
        node, unit = np.divmod(columns["node"], np.int32(trace.units_per_node))
        columns = {
            "time": columns["time"],
            "node": node,
            UNIT: unit,
            "idle": columns["idle"],
        }
    if trace.rows is not None:
        columns[ROW] = rows[order]
    path.parent.mkdir(parents=True, exist_ok=True)
    (_write_parquet if parquet else _write_csv)(trace, columns, path)


Changes = tuple[TimeArray, IndexArray, NDArray[np.bool_]]
"""Instants, nodes, and whether they are idle from then on; one row per change."""


def _changes(trace: NodeTrace) -> Changes:
    return (
        np.concatenate(
            [
                np.repeat(trace.times, np.diff(trace.left_at)),
                np.repeat(trace.times, np.diff(trace.joined_at)),
            ]
        ),
        np.concatenate([trace.left, trace.joined]),
        np.concatenate(
            [
                np.zeros(len(trace.left), dtype=bool),
                np.ones(len(trace.joined), dtype=bool),
            ]
        ),
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


def _write_parquet(
    trace: NodeTrace, columns: dict[str, NDArray[Any]], path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.DictionaryArray.from_arrays(
        pa.array(columns["node"].astype(np.int32)),
        pa.array(list(trace.nodes), type=pa.string()),
    )
    typed = {
        "time": pa.array(columns["time"], type=pa.timestamp("ns", tz="UTC")),
        "node": names,
    }
    table = pa.table(
        {
            name: typed[name] if name in typed else pa.array(columns[name])
            for name in columns
        }
    )
    metadata = _metadata(trace)
    # What pandas.read_parquet puts into `attrs`: the window is in no row.
    for_pandas = {"PANDAS_ATTRS": json.dumps({"metadata": metadata})}
    described = table.replace_schema_metadata({**metadata, **for_pandas})
    pq.write_table(described, path, compression="zstd")


def _write_csv(trace: NodeTrace, columns: dict[str, NDArray[Any]], path: Path) -> None:
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

    missing = raw.isna() | (raw == "")
    if missing.any():
        raise InputError(
            "the node's name is missing",
            file=source,
            row=_first(missing) + 1,
            column="node",
        )
    if known is None:
        codes, names = pd.factorize(raw.astype(str))
        return codes, [str(name) for name in names]
    codes = pd.Index(known, dtype=object).get_indexer(pd.Index(raw.astype(object)))
    if (codes < 0).any():
        row = _first(codes < 0)
        raise InputError(
            f"node {raw.iloc[row]!r} is not among the trace's nodes",
            file=source,
            row=row + 1,
            column="node",
        )
    return codes, known


def _from_native(
    frame: pd.DataFrame,
    metadata: dict[str, str],
    source: str,
    skip_rows: int,
    sort: bool,
) -> NodeTrace:
    window = _window(metadata, source)
    start, end = window.start, window.end
    times = _instants(frame["time"], source, "time")
    codes, universe = _nodes_of(frame["node"], window.nodes, source)
    per, node_units = window.units_per_node, None
    if UNIT in frame.columns:
        units = _unit_numbers(frame[UNIT], source)
        per, node_units = _units_of_nodes(units, codes, universe, window, source)
        codes = codes * per + units
    elif window.node_units is not None:
        raise InputError(
            f"missing column {UNIT}: the metadata state units of nodes",
            file=source or None,
        )
    idle = _states(frame["idle"], source)
    order = _check_order(times, source, sort)
    if order is not None:
        times, codes, idle = times[order], codes[order], idle[order]
    numbers = None
    if ROW in frame.columns:
        numbers = _row_numbers(
            frame[ROW] if order is None else frame[ROW].iloc[order], times, source
        )
        instants = times[np.unique(numbers, return_index=True)[1]]
    else:
        bounds = [bound for bound in (start, end) if bound is not None]
        instants = np.unique(np.append(times, np.array(bounds, dtype=np.int64)))
    if skip_rows:
        counted = "times" if numbers is None else "rows"
        if skip_rows >= len(instants):
            raise InputError(
                f"--skip-rows {skip_rows} leaves none of the {len(instants)} {counted}",
                file=source or None,
            )
        # The rest starts from the state at the end of the skipped part.
        start = int(instants[skip_rows])
        gone = (
            times < start
            if numbers is None
            else numbers <= np.unique(numbers)[skip_rows - 1]
        )
        times, codes, idle = _carried_over(times, codes, idle, gone, start)
        instants = instants[skip_rows:]
    trace = from_changes(
        universe,
        times,
        codes.astype(np.int32),
        idle,
        start=start,
        end=end,
        machine=metadata.get("machine", ""),
        source=source or metadata.get("source", ""),
        units_per_node=per,
        node_units=node_units,
        rows=None if numbers is None else instants,
    )
    trace = replace(
        trace, assumptions=window.assumptions, zone=metadata.get("zone", "")
    )
    altered = metadata.get("altered", "")
    if altered:
        note = f"the trace is not as observed, but perturbed: {altered}"
        trace = replace(trace, altered=altered, notes=(*trace.notes, note))
    if "uncertain" in metadata:
        trace = _uncertain(trace, metadata["uncertain"], source)
    if numbers is None:
        return _after_skipped(trace.read_from(instants), skip_rows, "times")
    return _after_skipped(trace, skip_rows, "rows")


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
    if invalid.any():
        row = _first(invalid)
        message = f"expected the number of a unit of the node, from 0 to {MAX_UNITS - 1}, not {numbers[row]}"
        raise InputError(message, file=source or None, row=row + 1, column=UNIT)
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
        if beyond.any():
            row = _first(beyond)
            of = f"node {nodes[codes[row]]} has {counts[codes[row]]} units, numbered from 0 on, not one {units[row]}"
            raise InputError(of, file=source or None, row=row + 1, column=UNIT)
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
    if invalid.any():
        row = _first(invalid)
        message = f"expected the number of a row of a matrix, ascending and each of one time, not {numbers[row]!r}"
        raise InputError(
            message,
            file=source or None,
            row=row + 1,
            column=ROW,
            hint="leave the column out",
        )
    return numbers.astype(np.int64)


def _carried_over(
    times: TimeArray,
    codes: NDArray[np.int64],
    idle: NDArray[np.bool_],
    gone: NDArray[np.bool_],
    start: int,
) -> tuple[TimeArray, NDArray[np.int64], NDArray[np.bool_]]:
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
    """Row number, node and new state of every change in a matrix, chunk by chunk."""
    before = np.zeros(values.shape[1], dtype=bool)
    step = max(1, CHUNK_CELLS // max(1, values.shape[1]))
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]] = []
    for begin in range(0, len(rows), step):
        picked = rows[begin : begin + step]
        consecutive = (
            len(picked) == picked[-1] - picked[0] + 1 and (np.diff(picked) == 1).all()
        )
        chunk = values[picked[0] : picked[-1] + 1] if consecutive else values[picked]
        state = chunk.astype(bool)
        invalid = (
            chunk != state
        )  # NaN, negative and other values differ from their own truth value
        if invalid.any():
            row, column = (int(i) for i in np.argwhere(invalid)[0])
            raise InputError(
                f"expected 0 (busy) or 1 (idle), not {chunk[row, column]}",
                file=source or None,
                row=int(picked[row]) + 1,
                column=nodes[column],
            )
        difference = np.empty_like(state)
        difference[0] = state[0] != before
        np.not_equal(state[1:], state[:-1], out=difference[1:])
        at, node = np.nonzero(difference)
        parts.append((at + begin, node, state[at, node]))
        before = state[-1]
    changed_rows, changed_nodes, states = zip(*parts, strict=True)
    return (
        np.concatenate(changed_rows),
        np.concatenate(changed_nodes).astype(np.int32),
        np.concatenate(states),
    )


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
    if invalid.any():
        row = _first(invalid)
        raise InputError(
            f"{TIME_HINT}, not {str(column.iloc[row])!r}",
            file=source or None,
            row=row + 1,
            column=name,
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
    if states.isna().any():
        row = _first(states.isna())
        raise InputError(
            f"expected 0 (busy) or 1 (idle), not {str(column.iloc[row])!r}",
            file=source or None,
            row=row + 1,
            column=name,
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


def _some(columns: pd.Index) -> str:
    shown = ", ".join(str(column) for column in columns[:5])
    return f"{shown}, ..." if len(columns) > 5 else shown
