"""Node traces in files: reading returns what was written, and errors name file, row and column."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bft.models import InputError
from bft.models.tables import write_parquet
from bft.replay.trace.node_trace import NodeTrace, always_idle, from_changes
from bft.replay.trace.trace_files import read_trace, trace_from_frame, write_trace

EPOCH = 1_613_000_000_000_000_000
SUFFIXES = (".parquet", ".csv", ".csv.gz")
# One folder serves all examples of a property: each writes its own file anew.
IN_ONE_FOLDER = examples(
    30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def content(trace: NodeTrace) -> dict[str, Any]:
    """The nodes and times of a trace."""
    return {
        "nodes": trace.nodes,
        "times": trace.times.tolist(),
        "joined": [sorted(trace.joins(event).tolist()) for event in range(len(trace))],
        "left": [sorted(trace.leaves(event).tolist()) for event in range(len(trace))],
        "window": (trace.start, trace.end),
    }


def meta(trace: NodeTrace) -> tuple[str, int]:
    return trace.machine, trace.units_per_node


# Names that a file could confuse with something else, but none that is a number.
names = st.lists(
    st.sampled_from(
        [
            "n0",
            "n1",
            "a,b",
            'a"b',
            "two words",
            "Knoten-ü",
            "x;y",
            "time",
            "True",
            "-",
            "2021-01-01",
        ]
    ),
    unique=True,
    min_size=1,
    max_size=5,
)


@st.composite
def traces(draw: st.DrawFn) -> NodeTrace:
    nodes = draw(names)
    gaps = draw(
        st.lists(
            st.sampled_from([1, 999, 1_000, 10**6, 10**9, 3_600 * 10**9]), max_size=8
        )
    )
    times = EPOCH + np.cumsum(np.array([0, *gaps], dtype=np.int64))
    state = draw(
        st.lists(
            st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes)),
            min_size=len(times),
            max_size=len(times),
        )
    )
    cells = np.array(state, dtype=bool)
    early, late = (
        draw(st.sampled_from([0, 1, 10**9])),
        draw(st.sampled_from([0, 1, 10**9])),
    )
    return from_changes(
        nodes,
        np.repeat(times, len(nodes)),
        np.tile(np.arange(len(nodes), dtype=np.int32), len(times)),
        cells.ravel(),
        start=int(times[0]) - early,
        end=int(times[-1]) + late,
    )


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@IN_ONE_FOLDER
@given(trace=traces(), at_once=st.sampled_from([1, 3, 2**20]))
def test_what_is_written_is_read_back(
    tmp_path: Path, suffix: str, trace: NodeTrace, at_once: int
) -> None:
    path = tmp_path / f"trace{suffix}"
    with pytest.MonkeyPatch.context() as patch:
        for module in ("bft.models.tables", "bft.replay.trace.trace_files"):
            patch.setattr(f"{module}.ROW_GROUP", at_once)
        write_trace(trace, path)
    assert content(read_trace(path)) == content(trace)


@pytest.mark.parametrize("rows", [1, 2, 5])
@IN_ONE_FOLDER
@given(drawn=st.data())
def test_blocks_of_rows_give_the_trace_and_the_errors_of_the_whole(
    tmp_path: Path, rows: int, drawn: st.DataObject
) -> None:
    path = tmp_path / "blocks.parquet"
    count = drawn.draw(st.integers(1, 12))
    seconds = drawn.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    if drawn.draw(st.booleans()):
        seconds.sort()
    of = [st.sampled_from(kind) for kind in (("a", "b", "c"), (True, False))]
    node, idle = (
        drawn.draw(st.lists(one, min_size=count, max_size=count)) for one in of
    )
    frame = pd.DataFrame({"time": EPOCH, "node": node, "idle": idle})
    frame["time"] = pd.to_datetime(EPOCH + np.array(seconds) * 10**9, utc=True)
    known = {"nodes": '["a", "b"]' if drawn.draw(st.booleans()) else '["a", "b", "c"]'}
    write_parquet(frame, path, known)

    def read(at_once: int) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bft.models.tables.ROW_GROUP", at_once)
            try:
                trace = read_trace(path)
            except InputError as error:
                return str(error)
        return content(trace), trace.notes

    # All rows are checked one way before the next: the whole may have another first error, never another trace.
    whole, blocks = read(1_000), read(rows)
    assert type(whole) is type(blocks)
    if not isinstance(whole, str) or "order" in whole:
        np.testing.assert_equal(blocks, whole)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nodes_that_are_never_idle_survive(tmp_path: Path, suffix: str) -> None:
    never = always_idle(2, EPOCH, EPOCH + 60 * 10**9)
    never = replace(
        never, nodes=("spare", *never.nodes), joined=never.joined + np.int32(1)
    )
    write_trace(never, tmp_path / f"t{suffix}")
    assert content(read_trace(tmp_path / f"t{suffix}")) == content(never)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_trace_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    trace = trace_from_frame(matrix([[1, 0], [0, 1], [1, 1]]))
    for name in "ab":
        write_trace(trace, tmp_path / name / f"t{suffix}")
    assert (tmp_path / "a" / f"t{suffix}").read_bytes() == (
        tmp_path / "b" / f"t{suffix}"
    ).read_bytes()


def test_parquet_holds_utc_times_names_and_truth_values(tmp_path: Path) -> None:
    write_trace(trace_from_frame(matrix([[1], [0]])), tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert list(frame.columns) == ["time", "node", "idle"]
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert frame["node"].tolist() == ["a", "a"]
    assert frame["idle"].tolist() == [True, False]


# --- the matrix form --------------------------------------------------------------------------------------------------


def matrix(
    rows: list[list[int]], dtype: str = "int8", start: str = "2021-02-10T00:00:00"
) -> pd.DataFrame:
    index = pd.date_range(start, periods=len(rows), freq="30s")
    return pd.DataFrame(
        rows, index=index, columns=list("abcdefgh")[: len(rows[0])], dtype=dtype
    )


def to_csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path)


def to_csv_gz(frame: pd.DataFrame, path: Path) -> None:
    with gzip.open(path, "wt") as file:
        frame.to_csv(file)


def to_tar(frame: pd.DataFrame, path: Path) -> None:
    inside = path.with_name("inside.pkl")
    frame.to_pickle(inside)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(inside, arcname="trace.pkl")


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".csv": to_csv,
    ".csv.gz": to_csv_gz,
    ".pkl": lambda frame, path: frame.to_pickle(path),
    ".pkl.gz": lambda frame, path: frame.to_pickle(path, compression="gzip"),
    ".tar.gz": to_tar,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_matrix_gives_the_same_trace_from_every_kind_of_file(
    tmp_path: Path, suffix: str
) -> None:
    frame = matrix([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 0, 0]])
    WRITERS[suffix](frame, tmp_path / f"m{suffix}")
    assert content(read_trace(tmp_path / f"m{suffix}")) == content(
        trace_from_frame(frame)
    )


@pytest.mark.parametrize(
    "dtype", ["int8", "int64", "uint8", "bool", "float64", "Int64", "boolean", "object"]
)
def test_a_matrix_gives_the_same_trace_for_every_cell_type(dtype: str) -> None:
    rows = [[1, 0], [0, 0], [1, 1]]
    assert content(trace_from_frame(matrix(rows, dtype))) == content(
        trace_from_frame(matrix(rows))
    )


@pytest.mark.parametrize("zone", ["Asia/Seoul", "America/Chicago", "UTC"])
def test_a_zone_moves_the_times_to_utc(zone: str) -> None:
    frame = matrix([[1], [0]])
    there = frame.set_axis(
        pd.DatetimeIndex(frame.index).tz_localize("UTC").tz_convert(zone), axis=0
    )
    assert content(trace_from_frame(there)) == content(trace_from_frame(frame))


@given(
    st.lists(
        st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=1, max_size=8
    )
)
def test_matrix_and_native_form_of_one_content_give_one_trace(
    rows: list[list[int]],
) -> None:
    frame = matrix(rows)
    native = pd.DataFrame(
        [
            (time, node, bool(frame.at[time, node]))
            for time in frame.index
            for node in frame.columns
        ],
        columns=["time", "node", "idle"],
    )
    assert content(trace_from_frame(native, metadata={})) == content(
        trace_from_frame(frame)
    )


def test_a_matrix_larger_than_a_chunk_reads_as_in_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = np.random.default_rng(5).integers(0, 2, (50, 4)).tolist()
    whole = trace_from_frame(matrix(cells))
    for size in (1, 4, 9, 12):  # 1, 1, 2 and 3 rows a chunk
        monkeypatch.setattr("bft.replay.trace.trace_files.CHUNK_CELLS", size)
        assert content(trace_from_frame(matrix(cells))) == content(whole)


@pytest.mark.parametrize(
    ("rows", "dropped"),
    [
        ([[1, 0], [1, 0], [1, 0], [0, 0]], 2),
        ([[0, 0], [0, 0], [1, 0]], 1),
        ([[0, 0], [1, 0]], 0),
        ([[1, 0], [0, 0]], 0),
        ([[0, 0], [0, 0]], 1),
    ],
)
def test_rows_equal_to_their_predecessor_are_dropped_and_counted(
    rows: list[list[int]], dropped: int
) -> None:
    notes = trace_from_frame(matrix(rows)).notes
    assert notes == (
        (f"{dropped} rows equal to their predecessor were dropped",) if dropped else ()
    )


# --- the native form --------------------------------------------------------------------------------------------------


def native(rows: list[tuple[str, str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["time", "node", "idle"])


def at(minute: int) -> str:
    return f"2021-02-10T00:{minute:02}:00Z"


@pytest.mark.parametrize(
    "words",
    [
        (True, False),
        (1, 0),
        ("true", "false"),
        ("True", "FALSE"),
        (1.0, 0.0),
        ("1", "0"),
    ],
)
def test_idle_may_be_stated_in_several_ways(words: tuple[Any, Any]) -> None:
    trace = trace_from_frame(native([(at(0), "a", words[0]), (at(1), "a", words[1])]))
    assert (len(trace.joined), len(trace.left)) == (1, 1)


# --- what is wrong is named -------------------------------------------------------------------------------------------


def complaint(path: Path, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read_trace(path, **options)
    return caught.value


NATIVE = [at(0) + ",a,1", at(1) + ",b,0", at(2) + ",b,1", at(3) + ",a,0"]


@pytest.mark.parametrize("row", [1, 3, 4])
@pytest.mark.parametrize(
    ("line", "column"),
    [
        (",a,1", "time"),
        ("soon,a,1", "time"),
        ("now,a,1", "time"),
        ("today,a,1", "time"),
        ("2021-02-30T00:00:00Z,a,1", "time"),
        ("9999-01-01T00:00:00Z,a,1", "time"),
        ("1066-10-14T00:00:00Z,a,1", "time"),
        ("1612915200,a,1", "time"),
        (at(2) + ",,1", "node"),
        (at(2) + ",a,2", "idle"),
        (at(2) + ",a,-1", "idle"),
        (at(2) + ",a,", "idle"),
        (at(2) + ",a,0.5", "idle"),
        (at(2) + ",a,busy", "idle"),
        (at(2) + ",a,nan", "idle"),
    ],
)
def test_an_invalid_cell_of_the_native_form_is_named(
    tmp_path: Path, row: int, line: str, column: str
) -> None:
    lines = list(NATIVE)
    lines[row - 1] = line
    path = tmp_path / "t.csv"
    path.write_text("time,node,idle\n" + "\n".join(lines) + "\n")
    error = complaint(path, sort=True)
    assert (error.file, error.row, error.column) == (str(path), row, column)
    assert str(error).startswith(f"{path}, row {row}, column {column}: ")
    assert "np." not in str(error)


@pytest.mark.parametrize("row", [1, 2, 4])
@pytest.mark.parametrize("cell", ["", "2", "-1", "0.5", "nan", "idle", "inf"])
def test_an_invalid_cell_of_a_matrix_is_named(
    tmp_path: Path, row: int, cell: str
) -> None:
    lines = [f"{at(minute)},1,0,1" for minute in range(4)]
    lines[row - 1] = f"{at(row - 1)},1,{cell},1"
    path = tmp_path / "m.csv"
    path.write_text("time,a,b,c\n" + "\n".join(lines) + "\n")
    error = complaint(path)
    assert (error.file, error.row, error.column) == (str(path), row, "b")


def test_the_row_of_an_invalid_cell_counts_skipped_and_sorted_rows() -> None:
    frame = matrix([[1, 0], [0, 1], [1, 7], [0, 0], [1, 1]])
    with pytest.raises(InputError) as caught:
        trace_from_frame(frame, skip_rows=1)
    assert (caught.value.row, caught.value.column) == (3, "b")
    with pytest.raises(InputError) as caught:
        trace_from_frame(frame.iloc[::-1], sort=True)
    assert (caught.value.row, caught.value.column) == (3, "b")


@pytest.mark.parametrize(
    ("row", "text"),
    [(2, "00:01:00.000000000 follows 2021-02-10T00:05:00"), (4, "00:02:00")],
)
def test_rows_out_of_order_are_an_error_that_offers_to_sort(
    tmp_path: Path, row: int, text: str
) -> None:
    minutes = [5, 1, 2, 3] if row == 2 else [1, 3, 4, 2]
    path = tmp_path / "t.csv"
    path.write_text(
        "time,node,idle\n" + "".join(f"{at(minute)},a,1\n" for minute in minutes)
    )
    error = complaint(path)
    assert (error.file, error.row) == (str(path), row)
    assert text in str(error)
    assert "--sort" in str(error)
    assert len(read_trace(path, sort=True)) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        {"nodes": "[1"},
        {"nodes": "5"},
        {"units_per_node": "two"},
        {"end": "tomorrow"},
        {"start": "9999-01-01T00:00:00Z"},
    ],
)
def test_damaged_metadata_are_an_error(metadata: dict[str, str]) -> None:
    frame = native([(at(0), "a", True), (at(1), "a", False)])
    with pytest.raises(
        InputError, match=r"t\.parquet: the file's metadata are damaged: [^\n]+$"
    ):
        trace_from_frame(frame, source="t.parquet", metadata=metadata)


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({"nodes": '["a", "a"]'}, "a node twice"),
        ({"start": at(1)}, "outside the window"),
        ({"end": at(0)}, "outside the window"),
        ({"start": at(3), "end": at(2)}, "ends before it starts"),
    ],
)
def test_metadata_that_contradict_the_rows_are_an_error(
    metadata: dict[str, str], what: str
) -> None:
    frame = native([(at(0), "a", True), (at(1), "a", False)])
    with pytest.raises(InputError, match=what):
        trace_from_frame(frame, metadata=metadata)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"skip_rows": 2}, "--skip-rows 2 leaves none of the 2 rows"),
        ({"first_node": 2}, "-nis 2 lies beyond the trace's 2 nodes"),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error(
    tmp_path: Path, options: dict[str, int], what: str
) -> None:
    path = tmp_path / "m.pkl"
    matrix([[1, 0], [0, 1]]).to_pickle(path)
    assert what in str(complaint(path, **options))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time,node\n1,1\n", "missing column idle"),
        ("node,idle\n1,1\n", "missing column time"),
        ("idle,node,x\n1,1,1\n", "missing column time"),
        ("time,node,idle\n", "empty"),
        ("time,a,b\n", "empty"),
        ("", "empty"),
        (f"time\n{at(0)}\n", "no node columns"),
        (f"time,x,x\n{at(0)},1,1\n", "column x"),
        ("Jmin,Jmax,Pmax\n1,2,3\n", "is a job table"),
        ("a,b\n1,2\n", "not a node trace"),
        (f"time,a\n{at(1)},1\n{at(0)},0\n", "row 2: the rows are not in order of time"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_said(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert told in str(complaint(path))


def test_nodes_are_those_of_the_metadata() -> None:
    rows = [(at(0), "b", True), (at(1), "z", False)]
    known = {"nodes": '["c", "b", "a"]'}
    trace = trace_from_frame(native(rows[:1]), metadata=known)
    assert (trace.nodes, trace.joined.tolist()) == (("c", "b", "a"), [1])
    with pytest.raises(InputError, match="row 2, column node: node 'z' is not among"):
        trace_from_frame(native(rows), source="t.parquet", metadata=known)
    nameless = native([(at(0), "a", 1), (at(0), None, 1)])  # type: ignore[list-item]
    with pytest.raises(InputError, match="row 2, column node: the node's name is miss"):
        trace_from_frame(nameless)


def test_what_a_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    trace = replace(always_idle(3, EPOCH, EPOCH + 5, units_per_node=4), machine="Söul")
    write_trace(trace, tmp_path / "t.parquet")
    read = read_trace(tmp_path / "t.parquet")
    assert (read.machine, read.units_per_node) == ("Söul", 4)
    for name, told in (
        ("t.csv.gz", "CSV has no place for 4 units a node"),
        ("t.pkl", r"\.parquet, \.csv or \.csv\.gz"),
    ):
        with pytest.raises(InputError, match=told):
            write_trace(trace, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


# --- the published trace ----------------------------------------------------------------------------------------------

MEASURE = """
import json, sys
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import trace_statistics
trace = read_trace(sys.argv[1], skip_rows=int(sys.argv[2]))
found = trace_statistics(trace)
# Not getrusage: that begins with what the parent had when it forked.
found["peak_mib"] = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
print(json.dumps(found))
"""


def statistics(reference: Path, skip_rows: int) -> dict[str, Any]:
    path = reference / "bftrainer" / "ndstat-10sdn6-evt.tar.gz"
    command = [sys.executable, "-c", MEASURE, str(path), str(skip_rows)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(found.stdout)
    return result


@pytest.mark.reference
def test_the_summit_trace_has_the_published_facts(reference: Path) -> None:
    found = statistics(reference, 0)
    assert found["peak_mib"] < 600
    assert found["nodes"] == 4734
    assert found["nodes_never_idle"] == 54
    assert found["duration_s"] / 86400 == pytest.approx(14.9, abs=0.05)
    assert found["idle_nodes_mean"] == pytest.approx(391, abs=0.5)
    assert found["idle_share"] == pytest.approx(0.083, abs=0.0005)
    fragments = found["fragments"]
    assert fragments["count"] == pytest.approx(423_000, abs=1000)
    assert fragments["seconds_mean"] == pytest.approx(1192, abs=1)
    told = {
        "p1": 71,
        "p5": 81,
        "p10": 91,
        "p25": 162,
        "p50": 475,
        "p75": 1397,
        "p90": 3269,
        "p95": 4723,
        "p99": 9246,
    }
    assert fragments["seconds_quantiles"] == pytest.approx(told, abs=1)
    assert fragments["up_to_10_min"]["by_count"] == pytest.approx(0.56, abs=0.005)
    assert fragments["up_to_10_min"]["by_node_time"] == pytest.approx(0.109, abs=0.001)
    assert fragments["up_to_1_h"]["by_count"] == pytest.approx(0.91, abs=0.005)
    assert fragments["up_to_1_h"]["by_node_time"] == pytest.approx(0.56, abs=0.005)
    joins, leaves = found["nodes_per_join_event"], found["nodes_per_leave_event"]
    assert [joins[q] for q in ("p50", "p75", "p90", "p95", "p99", "max")] == [
        4,
        16,
        50,
        108,
        512,
        2780,
    ]
    assert [leaves[q] for q in ("p50", "p75", "p90", "p95", "max")] == [
        3,
        13,
        50,
        120,
        4601,
    ]
    assert found["event_gap_s"]["median"] == 30
    assert found["event_gap_s"]["max"] == 12_176
