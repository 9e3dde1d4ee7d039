"""Node traces from and to files: the native long form and the published matrix form."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.files import drafted, refuse_existing
from bft.models.tables import ROW_GROUP, read_table
from bft.replay.trace.host_jobs import (
    HOST_JOBS,
    digest,
    file_beside,
    named_file,
    read_host_jobs,
    write_host_jobs,
)
from bft.replay.trace.node_trace import (
    BoolArray,
    IndexArray,
    NodeTrace,
    TimeArray,
    from_changes,
)
from bft.replay.trace.uncertainty import Uncertainty

if TYPE_CHECKING:
    import pandas as pd

NATIVE_COLUMNS = ("time", "node", "idle")
# Columns that only job tables have.
_JOB_COLUMNS = {"Jmin", "Jmax", "Pmax"}
# In a native file whose units turn idle one by one: the number of the unit on its node, from 0 on.
UNIT = "unit"
# More than any node has; a typing error must not ask for so much memory.
MAX_UNITS = 1024
# Fields of a trace that the metadata of its file have as text, and as JSON.
_TEXTS = ("machine", "source", "altered", "zone")
_VALUES = (
    "nodes",
    "units_per_node",
    "node_units",
    "assumptions",
    "classes",
    "busy_share",
    "unavailable_share",
    "uncertain",
)


def read_trace(
    path: str | Path,
    *,
    first_node: int = 0,
    node_count: int | None = None,
    skip_rows: int = 0,
    sort: bool = False,
    trust_pickle: bool = False,
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
    trust_pickle
        Open a pickle that is none of the published ones (`bft.models.read_table`).

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
    try:
        trace = trace_from_frame(
            read_table(path, trust_pickle=trust_pickle),
            source=str(path),
            skip_rows=skip_rows,
            sort=sort,
        )
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
    known = frame.attrs.get("metadata", {}) if metadata is None else metadata
    try:
        trace = _from_frame(frame, known, skip_rows, sort)
    except InputError as error:
        error.file = source or None
        raise
    trace = replace(trace, source=source or trace.source)
    beside = named_file(source)
    if beside is None:
        return trace
    file, fits = beside
    if file.is_file() and fits in (f"{trace.start} {trace.end}", digest(file)):
        return replace(trace, host_jobs=read_host_jobs(file))
    why = "is not the file that the trace was written with"
    why = why if file.exists() else "is missing"
    note = f"{file} {why}: the machine's own jobs are taken as not known"
    return replace(trace, notes=(*trace.notes, note))


def select_nodes(trace: NodeTrace, first: int, count: int | None) -> NodeTrace:
    """The trace of nodes first ... first + count - 1 alone, with the host jobs of the whole machine.

    >>> from bft.replay import always_idle
    >>> select_nodes(always_idle(4, 0, 60 * 10**9), 1, 2).nodes
    ('n00001', 'n00002')
    """
    total = len(trace.nodes)
    chosen = range(total)[first:][:count]
    if not chosen:
        raise trace.error(f"-nis {first} lies beyond the trace's {total} nodes")
    notes = trace.notes
    if count is not None and len(chosen) < count:
        beyond = f"-nN {count} reaches beyond the trace's {total} nodes"
        notes += (f"{beyond}: all from {first} on are used",)
    return replace(trace.of_nodes(chosen), notes=notes)


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


def _changes(
    trace: NodeTrace, first: int, last: int
) -> tuple[TimeArray, IndexArray, BoolArray]:
    """Instants, nodes (or units) and their new states of events first ... last - 1, in order of time and node."""
    bounds = slice(first, last + 1)
    left_at, joined_at = trace.left_at[bounds], trace.joined_at[bounds]
    left = trace.left[left_at[0] : left_at[-1]]
    joined = trace.joined[joined_at[0] : joined_at[-1]]
    counts = np.concatenate([np.diff(left_at), np.diff(joined_at)])
    event = np.repeat(np.tile(np.arange(first, last), 2), counts)
    slot = np.concatenate([left, joined])
    idle = np.repeat([False, True], [len(left), len(joined)])
    # Both parts are in order: as one whole number each they are merged.
    order = np.argsort(event * (1 + int(slot.max(initial=0))) + slot, kind="stable")
    return trace.times[event[order]], slot[order], idle[order]


def _write_parquet(trace: NodeTrace, metadata: dict[str, str], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = pa.array(trace.nodes, pa.string())
    fields = {
        "time": pa.timestamp("ns", tz="UTC"),
        "node": pa.dictionary(pa.int32(), pa.string()),
        UNIT: pa.int32(),
        "idle": pa.bool_(),
    }
    if not trace.by_unit:
        del fields[UNIT]
    # What pandas.read_parquet puts into `attrs`: the window is in no row.
    for_pandas = {"PANDAS_ATTRS": json.dumps({"metadata": metadata})}
    schema = pa.schema(fields, {**metadata, **for_pandas})
    # Some events at a time, so that a year of a large machine needs little memory.
    step = 1 + ROW_GROUP * len(trace) // (1 + len(trace.joined) + len(trace.left))
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, len(trace), step):
            last = min(first + step, len(trace))
            time, slot, idle = _changes(trace, first, last)
            node, unit = np.divmod(slot, np.int32(trace.slots_per_node))
            columns = {
                "time": pa.array(time, fields["time"]),
                "node": pa.DictionaryArray.from_arrays(pa.array(node), names),
                UNIT: unit,
                "idle": idle,
            }
            writer.write_table(pa.table([columns[name] for name in fields], schema))


def _write_csv(trace: NodeTrace, path: Path) -> None:
    """Write the changes after rows that state every node at the start, and before one that marks the end."""
    import pandas as pd

    members, (time, slot, idle) = trace.members(), _changes(trace, 0, len(trace))
    opening, later = np.isin(members, slot[time == trace.start]), time > trace.start
    time = np.append(np.full(len(members), trace.start), time[later])
    slot, idle = np.append(members, slot[later]), np.append(opening, idle[later])
    if len(members) and trace.end > time[-1]:
        # The first node again, as it was last.
        idle = np.append(idle, idle[slot == members[0]][-1])
        time, slot = np.append(time, trace.end), np.append(slot, members[0])
    node, unit = np.divmod(slot, trace.slots_per_node)
    digits: Literal["us", "ns"] = "us" if not (time % 1000).any() else "ns"
    stamps = np.datetime_as_string(time.astype("datetime64[ns]"), unit=digits)
    frame = pd.DataFrame({"time": np.char.add(stamps, "Z")})
    frame["node"] = np.asarray(trace.nodes, dtype=object)[node]
    if trace.by_unit:
        frame[UNIT] = unit
    frame["idle"] = idle.astype(int)
    packing = {"method": "gzip", "mtime": 0} if path.suffix == ".gz" else None
    frame.to_csv(path, index=False, compression=packing)


def _metadata(trace: NodeTrace) -> dict[str, str]:
    """What no row of a file states; only what is known."""
    fields = {name: getattr(trace, name) for name in (*_TEXTS, *_VALUES)}
    stated = {
        name: value
        if name in _TEXTS
        else json.dumps(value, default=Uncertainty.as_dict)
        for name, value in fields.items()
        if value not in (None, "", ())
    }
    for name in ("start", "end"):
        stated[name] = f"{np.datetime64(getattr(trace, name), 'ns')}Z"
    return stated


# --- reading ----------------------------------------------------------------------------------------------------------


def _stated(metadata: dict[str, str]) -> dict[str, Any]:
    """The fields of a trace that the metadata of its file state."""
    import pandas as pd

    stated: dict[str, Any] = {"notes": ()}
    for name, text in metadata.items():
        if name in _TEXTS:
            stated[name] = text
        elif name in _VALUES:
            value = json.loads(text)
            stated[name] = tuple(value) if isinstance(value, list) else value
        elif name in ("start", "end"):
            stated[name] = int(pd.Timestamp(text).as_unit("ns").value)
    if altered := stated.get("altered"):
        told = f"the trace is not as observed, but perturbed: {altered}"
        stated["notes"] += (told,)
    if uncertain := stated.get("uncertain"):
        shares = tuple(uncertain["parts"].items())
        stated["uncertain"] = known = Uncertainty(shares, uncertain["counts_as"])
        stated["notes"] += (str(known),) if known.is_large else ()
    return stated


def _from_frame(
    frame: pd.DataFrame, metadata: dict[str, str], skip_rows: int, sort: bool
) -> NodeTrace:
    names = {str(column) for column in frame.columns}
    if names >= _JOB_COLUMNS:
        hint = "give it as --jobs; a trace has the columns time, node, idle (docs/formats.md)"
        raise InputError("is a job table, expected a node trace", hint=hint)
    missing = [column for column in NATIVE_COLUMNS if column not in names]
    if len(missing) == 1:
        raise InputError(
            f"missing column {missing[0]}; a native trace has time, node, idle"
        )
    if missing:
        return _from_matrix(frame, skip_rows, sort)
    if skip_rows:
        raise InputError(
            "$skip_rows counts the rows of a matrix, and this is none",
            hint="trace cut --from leaves out the begin; $skip_rows 0 takes all of it",
        )
    try:
        stated = _stated(metadata)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise InputError(f"the file's metadata are damaged: {error}") from error
    return _from_native(frame, stated, sort)


def _from_native(frame: pd.DataFrame, stated: dict[str, Any], sort: bool) -> NodeTrace:
    import pandas as pd

    times = _instants(frame["time"], "time")
    idle = _states(frame["idle"].to_numpy(), "idle")
    named = frame["node"].astype("category").cat
    names, codes = named.categories.astype(str), named.codes.to_numpy()
    nodes = stated.pop("nodes", None)
    if nodes is None:
        first = pd.unique(codes)
        nodes = [name for name in names[first[first >= 0]] if name]
    # A code of -1, where there is no name, takes the last entry.
    node = np.append(pd.Index(nodes, dtype=object).get_indexer(names), -1)[codes]
    _expect(node >= 0, frame["node"], "node", "expected the name of one of the nodes")
    if UNIT in frame.columns:
        sizes = np.array(stated.get("node_units", [MAX_UNITS] * len(nodes)))
        unit = pd.to_numeric(frame[UNIT], errors="coerce").to_numpy()
        valid = (unit >= 0) & (unit < sizes[node]) & (unit % 1 == 0)
        expected = "expected the number of a unit of the node, from 0 on"
        _expect(valid, frame[UNIT], UNIT, expected)
        if "node_units" not in stated:
            sizes = np.ones(len(nodes), dtype=np.int64)
            np.maximum.at(sizes, node, unit.astype(np.int64) + 1)
            stated["node_units"] = tuple(sizes.tolist())
            stated["units_per_node"] = int(sizes.max(initial=1))
        node = node * stated["units_per_node"] + unit
    if not sort:
        _check_order(times)
    return from_changes(nodes, times, node.astype(np.int32), idle, **stated)


def _from_matrix(frame: pd.DataFrame, skip_rows: int, sort: bool) -> NodeTrace:
    import pandas as pd

    if isinstance(frame.index, pd.RangeIndex):  # CSV: the first column holds the times
        frame = frame.set_index(frame.columns[0])
    times = _instants(
        frame.index.to_series(),
        str(frame.index.name or "index"),
        hint="not a node trace? It has columns time, node, idle, or is a matrix of times and one 0/1 column a node",
    )
    if not len(frame.columns):
        raise InputError("the matrix has no node columns")
    nodes = [str(column) for column in frame.columns]
    twice = frame.columns[frame.columns.astype(str).duplicated()]
    if len(twice):
        raise InputError("the matrix has two columns of this name", column=twice[0])
    order: NDArray[Any] | slice = slice(None)
    if sort:
        order = np.argsort(times, kind="stable")
    else:
        _check_order(times)
    instants = times[order][skip_rows:]
    if not len(instants):
        left = f"--skip-rows {skip_rows} leaves none of the {len(times)} rows below the header"
        raise InputError(f"the trace is empty: {left}")
    rows, states = [], []
    for name, cells in zip(nodes, frame.to_numpy().T, strict=True):
        idle = _states(cells, name)[order][skip_rows:]
        rows.append(np.flatnonzero(np.diff(idle, prepend=False)))
        states.append(idle[rows[-1]])
    made = from_changes(
        nodes,
        instants[np.concatenate(rows)],
        np.repeat(np.arange(len(nodes), dtype=np.int32), [len(row) for row in rows]),
        np.concatenate(states),
        start=int(instants[0]),
        end=int(instants[-1]),
    )
    skipped = (f"{skip_rows} first rows skipped",) if skip_rows else ()
    return replace(made, notes=(*skipped, *made.notes))


def _instants(column: pd.Series, name: str, hint: str | None = None) -> TimeArray:
    """UTC nanoseconds of a column of times; times without a zone count as UTC."""
    import pandas as pd

    as_text = column.dtype.kind != "M"
    stamps = pd.to_datetime(
        column.astype(str) if as_text else column,
        utc=True,
        errors="coerce",
        format="ISO8601" if as_text else None,
    )
    # pandas reads years that nanoseconds cannot reach, and these two words as the time of reading.
    low, high = pd.Timestamp.min, pd.Timestamp.max
    valid = stamps.between(low.tz_localize("UTC"), high.tz_localize("UTC"))
    if as_text:
        valid &= column.dtype.kind not in "iufb" and ~column.isin(("now", "today"))
    expected = "expected a date and time such as 2021-02-10T20:21:15Z"
    _expect(valid, column, name, expected, hint)
    return np.asarray(stamps.dt.as_unit("ns").astype("int64"), dtype=np.int64)


def _states(cells: NDArray[Any], name: str) -> BoolArray:
    import pandas as pd

    if cells.dtype.kind in "biuf":
        busy, idle = cells == 0, cells == 1
    else:
        words = pd.Series(cells).astype(str).str.lower()
        busy = words.isin(("0", "0.0", "false")).to_numpy()
        idle = words.isin(("1", "1.0", "true")).to_numpy()
    _expect(busy | idle, cells, name, "expected 0 (busy) or 1 (idle)")
    return np.asarray(idle, dtype=bool)


def _check_order(times: TimeArray) -> None:
    backwards = np.flatnonzero(times[1:] < times[:-1])
    if len(backwards):
        row = int(backwards[0])
        earlier, later = times[row : row + 2].astype("datetime64[ns]")
        raise InputError(
            f"the rows are not in order of time: {later} follows {earlier}",
            row=row + 2,
            hint="sort the file, or let $sort do it",
        )


def _expect(
    valid: pd.Series | NDArray[Any],
    cells: pd.Series | NDArray[Any],
    column: str,
    expected: str,
    hint: str | None = None,
) -> None:
    """Raise InputError for the first cell that is not valid, if any is."""
    wrong = np.flatnonzero(~np.asarray(valid))
    if len(wrong):
        row = int(wrong[0])
        what = f"{expected}, not {str(np.asarray(cells)[row])!r}"
        raise InputError(what, row=row + 1, column=column, hint=hint)
