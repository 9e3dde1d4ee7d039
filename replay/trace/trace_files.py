"""Node traces from and to files: the native long form and the published matrix form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.atomic_files import drafted, refuse_existing
from bft.models.tables import (
    ROW_GROUP,
    parquet_metadata,
    read_blocks,
)
from bft.replay.trace.host_jobs import (
    HOST_JOBS,
    digest,
    file_beside,
    file_named,
    read_host_jobs,
    window_text,
    write_host_jobs,
)
from bft.replay.trace.node_trace import (
    IndexArray,
    NodeTrace,
    TimeArray,
    TraceBuilder,
    from_changes,
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
# Rows of a matrix that are compared at once: bounds the memory of a 100,000-node matrix to some 50 MB.
CHUNK_CELLS = 16 * 2**20
# More than any node has; a typing error must not ask for so much memory.
MAX_UNITS = 1024
# Metadata that are parts of the node-time.
_SHARES = ("busy_share", "unavailable_share")
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
        Leave out that many first rows of a matrix, as the published replayer does.
    sort
        Accept rows that are not in order of time.

    Returns
    -------
    NodeTrace
        With the host jobs that lie beside it; where they do not, although the trace names them, a note says so.

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

    def in_blocks(schema: pa.Schema) -> bool:
        names, metadata = set(schema.names), parquet_metadata(schema)
        native = names.issuperset(NATIVE_COLUMNS) and not names & {*_JOB_COLUMNS}
        known = "nodes" in metadata and (UNIT not in names or "node_units" in metadata)
        return native and known and not sort

    try:
        blocks = read_blocks(path, in_blocks)
        trace = _from_blocks(blocks, str(path), skip_rows, sort)
    except InputError as error:
        if error.hint is None and error.row is None and Path(path).is_file():
            error.hint = "a scheduler's log becomes a trace by bft-replay ingest"
        raise
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
        if skip_rows:
            raise InputError(
                "--skip-rows counts the rows of a matrix, and this is none",
                file=source or None,
                hint="trace cut --from leaves out the begin; --skip-rows 0 takes all of it",
            )
        return _from_native(frame, blocks, source, sort)
    missing = [column for column in NATIVE_COLUMNS if column not in names]
    if len(missing) == 1:
        raise InputError(
            f"missing column {missing[0]}; a native trace has time, node, idle",
            file=source or None,
        )
    return _from_matrix(frame, source, skip_rows, sort)


def select_nodes(trace: NodeTrace, first: int, count: int | None) -> NodeTrace:
    """The trace of nodes first ... first + count - 1 alone, with the host jobs of the whole machine.

    >>> from bft.replay import always_idle
    >>> select_nodes(always_idle(4, 0, 60 * 10**9), 1, 2).nodes
    ('n00001', 'n00002')
    """
    total = len(trace.nodes)
    if not 0 <= first < total:
        raise InputError(
            f"-nis {first} lies beyond the trace's {total} nodes",
            file=trace.source or None,
        )
    stop = total if count is None else min(first + count, total)
    notes = trace.notes
    if count is not None and first + count > total:
        notes = (
            *notes,
            f"-nN {count} reaches beyond the trace's {total} nodes: all from {first} on are used",
        )
    return replace(trace.of_nodes(range(first, stop)), notes=notes)


def write_trace(trace: NodeTrace, path: str | Path, *, force: bool = True) -> None:
    """Write the native form as Parquet or CSV (also .csv.gz), by suffix, completely or not at all.

    Host jobs are written beside it: those of trace.parquet or trace.csv as trace.jobs.parquet, of which the metadata
    have name and SHA-256; `force` tells whether another file of that name is replaced.

    CSV has no place for metadata: its first rows state every node at the start, and a last one marks the end. Where
    units turn idle one by one, a column `unit` has their numbers.

    Raises
    ------
    InputError
        For another suffix, for CSV when whole nodes have several units, which CSV cannot state, and where a file that
        is there may not be replaced.

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
    beside = file_beside(path)
    if beside is None:
        raise InputError(
            "a node trace is written as .parquet, .csv or .csv.gz", file=path
        )
    parquet = path.suffix.lower() == ".parquet"
    if not parquet and trace.units_per_node != 1 and not trace.by_unit:
        raise InputError(
            f"CSV has no place for {trace.units_per_node} units a node",
            file=path,
            hint="write .parquet instead",
        )
    metadata = _metadata(trace)
    with ExitStack() as drafts:
        if trace.host_jobs is not None:
            jobs = drafts.enter_context(drafted(beside))
            write_host_jobs(trace.host_jobs, jobs, trace.start, trace.end)
            if not beside.exists() or digest(beside) != digest(jobs):
                refuse_existing(beside, force=force)
            named = {"file": beside.name, "sha256": digest(jobs)}
            metadata[HOST_JOBS] = json.dumps(named)
        draft = drafts.enter_context(drafted(path))
        if parquet:
            _write_parquet(trace, metadata, draft)
        else:
            _write_csv(trace, draft)


Changes = tuple[TimeArray, IndexArray, NDArray[np.bool_]]
"""Instants, nodes (or units), and whether they are idle from then on; one row per change."""


def _changes(trace: NodeTrace, first: int, last: int) -> Changes:
    """The changes of events first ... last - 1, in order of time and node."""
    bounds = slice(first, last + 1)
    left_at, joined_at = trace.left_at[bounds], trace.joined_at[bounds]
    left = trace.left[left_at[0] : left_at[-1]]
    joined = trace.joined[joined_at[0] : joined_at[-1]]
    counts = np.concatenate([np.diff(left_at), np.diff(joined_at)])
    time = np.repeat(np.tile(trace.times[first:last], 2), counts)
    node = np.concatenate([left, joined])
    idle = np.repeat([False, True], [len(left), len(joined)])
    order = np.lexsort((node, time))
    return time[order], node[order], idle[order]


def _columns(
    trace: NodeTrace, time: TimeArray, node: IndexArray, idle: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """The columns of a native file."""
    if not trace.by_unit:
        return {"time": time, "node": node, "idle": idle}
    node, unit = np.divmod(node, np.int32(trace.units_per_node))
    return {"time": time, "node": node, UNIT: unit, "idle": idle}


def _write_parquet(trace: NodeTrace, metadata: dict[str, str], path: Path) -> None:
    """Write the changes of some events at a time, so that a year of a large machine needs little memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array(list(trace.nodes), type=pa.string())
    stamp = pa.timestamp("ns", tz="UTC")
    fields = {"time": stamp, "node": pa.dictionary(pa.int32(), pa.string())}
    fields |= {UNIT: pa.int32()} if trace.by_unit else {}
    # What pandas.read_parquet puts into `attrs`: the window is in no row.
    for_pandas = {"PANDAS_ATTRS": json.dumps({"metadata": metadata})}
    schema = pa.schema({**fields, "idle": pa.bool_()}, {**metadata, **for_pandas})
    until = trace.joined_at + trace.left_at
    wanted = np.arange(ROW_GROUP, int(until[-1]), ROW_GROUP)
    bounds = [0, *np.unique(np.searchsorted(until, wanted)).tolist(), len(trace)]
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first, last in pairwise(bounds):
            columns = _columns(trace, *_changes(trace, first, last))
            node = pa.DictionaryArray.from_arrays(pa.array(columns["node"]), names)
            arrays = {**columns, "node": node, "time": pa.array(columns["time"], stamp)}
            writer.write_table(
                pa.table([arrays[name] for name in columns], schema=schema)
            )


def _write_csv(trace: NodeTrace, path: Path) -> None:
    """Write the changes after rows that state every node at the start, and before one that marks the end."""
    import pandas as pd

    time, node, idle = _changes(trace, 0, len(trace))
    members = trace.members()
    opening = np.setdiff1d(members, node[time == trace.start])
    closing = members[: int(trace.end > time.max(initial=trace.start - 1))]
    joined, left = (np.isin(part, closing).sum() for part in (trace.joined, trace.left))
    time = np.concatenate(
        [np.full(len(opening), trace.start), time, np.full(len(closing), trace.end)]
    )
    node = np.concatenate([opening, node, closing])
    idle = np.concatenate(
        [np.zeros(len(opening), bool), idle, np.full(len(closing), joined > left)]
    )
    order = np.lexsort((node, time))
    columns = _columns(trace, time[order], node[order], idle[order])
    unit: Literal["us", "ns"] = "us" if not (time % 1000).any() else "ns"
    stamps = np.datetime_as_string(columns["time"].astype("datetime64[ns]"), unit=unit)
    columns["time"] = np.char.add(stamps, "Z")
    columns["node"] = np.asarray(trace.nodes, dtype=object)[columns["node"]]
    columns["idle"] = columns["idle"].astype(int)
    pd.DataFrame(columns).to_csv(
        path,
        index=False,
        compression={"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None,
    )


def _metadata(trace: NodeTrace) -> dict[str, str]:
    """What no row of a file states; only what is known."""
    names = tuple(dict.fromkeys(trace.classes))
    classes = {"names": names, "of": [names.index(name) for name in trace.classes]}
    stated = {
        "machine": trace.machine,
        "nodes": json.dumps(list(trace.nodes)),
        "units_per_node": str(trace.units_per_node),
        "node_units": json.dumps(trace.node_units) if trace.by_unit else None,
        "source": trace.source,
        "start": f"{np.datetime64(trace.start, 'ns')}Z",
        "end": f"{np.datetime64(trace.end, 'ns')}Z",
        "altered": trace.altered or None,
        "uncertain": trace.uncertain.as_json() if trace.uncertain else None,
        "assumptions": json.dumps(trace.assumptions) if trace.assumptions else None,
        "zone": trace.zone or None,
        "classes": json.dumps(classes) if names else None,
    }
    shares = {name: getattr(trace, name) for name in _SHARES}
    stated |= {name: repr(of) for name, of in shares.items() if of is not None}
    return {name: text for name, text in stated.items() if text is not None}


# --- reading ----------------------------------------------------------------------------------------------------------


def _stated(metadata: dict[str, str]) -> dict[str, Any]:
    """The fields of a trace that the metadata of its file state; start and end are None where they do not."""

    def values(name: str, otherwise: str = "[]") -> Any:
        return json.loads(metadata.get(name, otherwise))

    uncertain = metadata.get("uncertain")
    known = None if uncertain is None else Uncertainty.from_json(uncertain)
    altered = metadata.get("altered", "")
    notes = []
    if altered:
        notes.append(f"the trace is not as observed, but perturbed: {altered}")
    if known is not None and known.is_large:
        notes.append(str(known))
    classes = values("classes", '{"names": [], "of": []}')
    return {
        "nodes": tuple(str(name) for name in values("nodes")),
        "units_per_node": int(metadata.get("units_per_node", "1")),
        "node_units": tuple(map(int, values("node_units"))) or None,
        "start": _stamp(metadata["start"]) if "start" in metadata else None,
        "end": _stamp(metadata["end"]) if "end" in metadata else None,
        "source": metadata.get("source", ""),
        "machine": metadata.get("machine", ""),
        "zone": metadata.get("zone", ""),
        "assumptions": tuple(str(text) for text in values("assumptions")),
        "altered": altered,
        "uncertain": known,
        "notes": tuple(notes),
        "classes": tuple(str(classes["names"][number]) for number in classes["of"]),
        **{name: float(metadata[name]) for name in _SHARES if name in metadata},
    }


def _stamp(text: str) -> int:
    import pandas as pd

    return int(pd.to_datetime(text, utc=True, format="ISO8601").as_unit("ns").value)


def _from_native(
    frame: pd.DataFrame, blocks: Iterator[pd.DataFrame], source: str, sort: bool
) -> NodeTrace:
    """Make a trace of a native file, of which the first block is given."""
    import pandas as pd

    metadata = frame.attrs.get("metadata", {})
    try:
        stated = _stated(metadata)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise _damaged(error, source) from error
    # Where the metadata do not state nodes and units, the file comes as one block.
    named = stated["nodes"] or pd.unique(frame["node"].astype(str))
    nodes = pd.Index(named, dtype=object)
    if not nodes.is_unique:
        raise InputError("the metadata name a node twice", file=source or None)
    if UNIT in frame.columns and stated["node_units"] is None:
        units = _unit_numbers(frame[UNIT], source)
        codes = nodes.get_indexer(pd.Index(frame["node"].astype(object)))
        counts = np.ones(len(nodes), dtype=np.int64)
        np.maximum.at(counts, codes, units + 1)
        stated["node_units"] = tuple(counts.tolist())
        stated["units_per_node"] = int(counts.max(initial=1))
    builder = TraceBuilder()
    checked = _checked(chain([frame], blocks), nodes, stated, source, sort)
    del frame
    for changes in _whole_instants(checked):
        builder.add(*changes)
    window = {name: stated.pop(name) for name in ("start", "end")}
    trace = builder.trace(nodes.tolist(), **window)
    stated |= {"nodes": trace.nodes, "notes": (*trace.notes, *stated["notes"])}
    trace = replace(trace, **{**stated, "source": source or stated["source"]})
    try:
        return _with_host_jobs(trace, source, metadata.get(HOST_JOBS))
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(error, source) from error


def _damaged(error: Exception, source: str) -> InputError:
    why = " ".join(str(error).split())
    return InputError(f"the file's metadata are damaged: {why}", file=source or None)


def _checked(
    frames: Iterator[pd.DataFrame],
    nodes: pd.Index,
    stated: dict[str, Any],
    source: str,
    sort: bool,
) -> Iterator[Changes]:
    """Yield times, nodes or units, and states of the rows of each block; errors name the row of the file."""
    rows, last = 0, np.zeros(0, dtype=np.int64)
    for frame in frames:
        try:
            times = _instants(frame["time"], source, "time")
            codes = _node_numbers(frame["node"], nodes, source)
            if stated["node_units"] is not None:
                codes = _slots(frame, codes, nodes, stated, source)
            states = _states(frame["idle"], source)
            order = _check_order(times, last, source, sort)
        except InputError as error:
            if error.row is not None:
                error.row += rows
            raise
        if order is not None:
            times, codes, states = times[order], codes[order], states[order]
        rows, last = rows + len(frame), times[-1:]
        yield times, codes.astype(np.int32), states


def _whole_instants(blocks: Iterator[Changes]) -> Iterator[Changes]:
    """Yield the same rows in blocks that do not part the rows of one time."""
    times, codes = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    states = np.zeros(0, dtype=bool)
    for block in blocks:
        times, codes = np.append(times, block[0]), np.append(codes, block[1])
        states = np.append(states, block[2])
        complete = int(np.searchsorted(times, times[-1:]).sum())
        yield times[:complete], codes[:complete], states[:complete]
        times, codes, states = times[complete:], codes[complete:], states[complete:]
    yield times, codes, states


def _node_numbers(column: pd.Series, nodes: pd.Index, source: str) -> NDArray[np.int64]:
    """Each row's node as an index into the nodes."""
    texts = column.astype("category").cat
    names = texts.categories.astype(str).astype(object)
    of = texts.codes.to_numpy()  # -1 where there is none
    missing = np.append(names == "", True)[of]
    _refuse_first(missing, source, "node", lambda _: "the node's name is missing")
    codes = np.append(nodes.get_indexer(names), -1)[of]
    _refuse_first(
        codes < 0,
        source,
        "node",
        lambda row: f"node {column.iloc[row]!r} is not among the trace's nodes",
    )
    return codes


def _unit_numbers(column: pd.Series, source: str) -> NDArray[np.int64]:
    """Numbers of units on their nodes."""
    numbers = column.to_numpy()
    invalid = np.ones(len(numbers), dtype=bool)
    if numbers.dtype.kind in "iu":
        invalid = (numbers < 0) | (numbers >= MAX_UNITS)
    expected = f"expected the number of a unit of the node, from 0 to {MAX_UNITS - 1}"
    _refuse_first(invalid, source, UNIT, lambda row: f"{expected}, not {numbers[row]}")
    return numbers.astype(np.int64)


def _slots(
    frame: pd.DataFrame,
    codes: NDArray[np.int64],
    nodes: pd.Index,
    stated: dict[str, Any],
    source: str,
) -> NDArray[np.int64]:
    """Each row's unit as a number among those of all nodes."""
    if UNIT not in frame.columns:
        raise InputError(
            f"missing column {UNIT}: the metadata state units of nodes",
            file=source or None,
        )
    units, sizes = _unit_numbers(frame[UNIT], source), np.array(stated["node_units"])
    _refuse_first(
        units >= sizes[codes],
        source,
        UNIT,
        lambda row: (
            f"node {nodes[codes[row]]} has {sizes[codes[row]]} units, numbered from 0 on, not one {units[row]}"
        ),
    )
    slots: NDArray[np.int64] = codes * stated["units_per_node"] + units
    return slots


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
        columns = ", ".join(map(str, frame.columns[:5]))
        raise InputError(
            f"not a node trace: its index holds {frame.index.dtype}, its columns begin with {columns}; expected "
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
    order = _check_order(times, times[:0], source, sort)
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
    )
    return replace(trace, notes=tuple(_matrix_notes(trace, instants, skip_rows)))


def _matrix_notes(trace: NodeTrace, rows: TimeArray, skipped: int) -> Iterator[str]:
    """Yield what was left out of a matrix: first rows, and those that repeat a time or change nothing."""
    if skipped:
        yield f"{skipped} first rows skipped"
    distinct = np.unique(rows)
    if len(distinct) < len(rows):
        yield f"{len(rows) - len(distinct)} rows repeated a time: the last one counts"
    equal = int((~np.isin(distinct[1:], trace.times)).sum())
    if equal:
        yield f"{equal} rows equal to their predecessor were dropped"


def _cells(frame: pd.DataFrame, source: str) -> NDArray[np.generic]:
    """Values of a matrix as one array of numbers or truth values."""
    values = frame.to_numpy()
    if values.dtype.kind in "buif":
        return values
    # Columns of several types, or of text.
    columns = [_states(of, source, str(name)) for name, of in frame.items()]
    return np.column_stack(columns)


def _matrix_changes(
    values: NDArray[np.generic], rows: NDArray[np.int64], nodes: list[str], source: str
) -> tuple[NDArray[np.int64], IndexArray, NDArray[np.bool_]]:
    """Row number, node and new state of every change in a matrix, in order of row and node, some nodes at a time."""
    consecutive = (np.diff(rows) == 1).all()
    picked = slice(int(rows[0]), int(rows[-1]) + 1) if consecutive else rows
    step = max(1, CHUNK_CELLS // len(rows))
    found = []
    for begin in range(0, len(nodes), step):
        # A pickled frame has the values of a node side by side.
        cells = np.ascontiguousarray(values[picked, begin : begin + step].T)
        state = cells.astype(bool)
        # NaN, negative and other values differ from their own truth value.
        invalid = cells != state
        if invalid.any():
            first, column = np.argwhere(invalid.T)[0].tolist()
            raise InputError(
                f"expected 0 (busy) or 1 (idle), not {cells[column, first]}",
                file=source or None,
                row=int(rows[first]) + 1,
                column=nodes[begin + column],
            )
        changed = np.diff(state, axis=1, prepend=False)
        node, row = np.nonzero(changed)
        found.append((row, node + begin, state[changed]))
    row, node, states = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((node, row))
    return row[order], node[order].astype(np.int32), states[order]


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


def _check_order(
    times: TimeArray, last: TimeArray, source: str, sort: bool
) -> NDArray[np.int64] | None:
    """Return None when rows are sorted, and the sorting order when that is wanted; raise an error otherwise.

    `last` is the time of the row before them, if any.
    """
    after = np.append(last, times)
    backwards = after[1:] < after[:-1]
    if not backwards.any():
        return None
    if sort:
        return np.argsort(times, kind="stable")
    at = int(np.argmax(backwards))
    earlier, later = after[at : at + 2].astype("datetime64[ns]")
    raise InputError(
        f"the rows are not in order of time: {later} follows {earlier}",
        file=source or None,
        row=at + 2 - len(last),
        hint="sort the file, or let --sort do it",
    )


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
        row = int(np.argmax(np.asarray(wrong)))
        raise InputError(
            what(row), file=source or None, row=row + 1, column=column, hint=hint
        )


def _with_host_jobs(trace: NodeTrace, path: str, stated: str | None) -> NodeTrace:
    """Return a trace with the host jobs of the file beside it, or with a note that says why they are not known.

    Parameters
    ----------
    trace
        The trace.
    path
        Its file.
    stated
        What its metadata say of the file of host jobs. None: nothing, and only a trace in CSV, which has no metadata,
        takes a file by its name and window.
    """
    named = file_named(path, stated)
    if named is None:
        return trace
    file, fits = named
    if file.is_file() and fits in (window_text(trace.start, trace.end), digest(file)):
        return replace(trace, host_jobs=read_host_jobs(file))
    why = "is not the file that the trace was written with"
    why = why if file.exists() else "is missing"
    note = f"{file} {why}: the machine's own jobs are taken as not known"
    return replace(trace, notes=(*trace.notes, note))
