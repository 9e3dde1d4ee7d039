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
        return content(trace), trace.notes, trace.rows

    # All rows are checked one way before the next: the whole may have another first error, never another trace.
    whole, blocks = read(1_000), read(rows)
    assert type(whole) is type(blocks)
    if not isinstance(whole, str) or "order" in whole:
        np.testing.assert_equal(blocks, whole)


def test_parquet_keeps_the_metadata(tmp_path: Path) -> None:
    trace = replace(always_idle(3, EPOCH, EPOCH + 5, units_per_node=4), machine="Söul")
    write_trace(trace, tmp_path / "t.parquet")
    assert meta(read_trace(tmp_path / "t.parquet")) == ("Söul", 4)


@pytest.mark.parametrize("name", ["", None])
def test_a_node_without_a_name_is_refused_by_row(
    tmp_path: Path, name: str | None
) -> None:
    times = pd.to_datetime(["2021-02-10", "2021-02-10"], utc=True)
    pd.DataFrame({"time": times, "node": ["a", name], "idle": [1, 1]}).to_parquet(
        tmp_path / "t.parquet"
    )
    with pytest.raises(
        InputError, match="row 2, column node: the node's name is missing"
    ):
        read_trace(tmp_path / "t.parquet")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_csv_is_refused_where_it_would_lose_units_per_node(
    tmp_path: Path, suffix: str
) -> None:
    with pytest.raises(InputError, match="CSV has no place for 4 units a node"):
        write_trace(always_idle(1, 0, 9, units_per_node=4), tmp_path / f"t{suffix}")
    assert not list(tmp_path.iterdir())


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


def test_writing_under_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.parquet, \.csv or \.csv\.gz"):
        write_trace(always_idle(1, 0, 1), tmp_path / "t.pkl")


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


def test_a_matrix_may_mix_truth_values_and_numbers(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(
        "time,a,b\n2021-02-10T00:00:00,True,1\n2021-02-10T00:00:30,False,1\n2021-02-10T00:01:00,True,0\n"
    )
    assert content(read_trace(path)) == content(
        trace_from_frame(matrix([[1, 1], [0, 1], [1, 0]]))
    )


@pytest.mark.parametrize("zone", ["Asia/Seoul", "America/Chicago", "UTC"])
def test_a_zone_moves_the_times_to_utc(zone: str) -> None:
    frame = matrix([[1], [0]])
    there = frame.set_axis(
        pd.DatetimeIndex(frame.index).tz_localize("UTC").tz_convert(zone), axis=0
    )
    assert content(trace_from_frame(there)) == content(trace_from_frame(frame))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_unit_in_which_times_are_stored_does_not_matter(unit: Any) -> None:
    frame = matrix([[1], [0]])
    stored = frame.set_axis(pd.DatetimeIndex(frame.index).as_unit(unit), axis=0)
    assert trace_from_frame(stored).times.tolist() == [
        1612915200 * 10**9,
        1612915230 * 10**9,
    ]


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


def test_of_rows_with_one_time_the_last_counts() -> None:
    frame = matrix([[1, 0], [0, 1], [1, 1]])
    frame = frame.set_axis(frame.index[[0, 1, 1]], axis=0)
    trace = trace_from_frame(frame)
    assert content(trace) == content(trace_from_frame(matrix([[1, 0], [1, 1]])))
    assert trace.notes == ("1 rows repeated a time: the last one counts",)


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


def test_extra_columns_are_let_be() -> None:
    frame = native([(at(0), "a", 1), (at(1), "a", 0)])
    assert content(trace_from_frame(frame.assign(why="drained"))) == content(
        trace_from_frame(frame)
    )


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


def test_skipping_times_starts_from_what_held_then() -> None:
    rows: list[tuple[str, str, Any]] = [
        (at(0), "a", True),
        (at(1), "b", True),
        (at(2), "a", False),
        (at(2), "c", True),
        (at(4), "b", False),
    ]
    trace = trace_from_frame(native(rows), skip_rows=2)
    minute = 60 * 10**9
    assert trace.start == trace.times[0] == trace.times[-1] - 2 * minute
    assert [trace.nodes[n] for n in trace.joins(0)] == ["b", "c"]
    assert [trace.nodes[n] for n in trace.leaves(1)] == ["b"]


@given(st.data())
def test_skipping_times_does_not_depend_on_the_order_that_sort_mends(
    data: st.DataObject,
) -> None:
    cells = data.draw(
        st.dictionaries(
            st.tuples(st.integers(0, 5), st.sampled_from("abc")),
            st.booleans(),
            min_size=1,
        )
    )
    rows = sorted((at(minute), node, idle) for (minute, node), idle in cells.items())
    skipped = data.draw(st.integers(0, len({row[0] for row in rows}) - 1))
    meta = {"nodes": json.dumps(list("abc"))}
    shuffled = data.draw(st.permutations(rows))
    one = trace_from_frame(
        native(shuffled), sort=True, skip_rows=skipped, metadata=meta
    )
    other = trace_from_frame(native(rows), skip_rows=skipped, metadata=meta)
    assert content(one) == content(other)


def test_skipping_times_tells_nothing_of_rows_that_nobody_repeated() -> None:
    rows = [
        (at(minute), node, (minute + k) % 2)
        for minute in range(6)
        for k, node in enumerate("abc")
    ]
    assert trace_from_frame(native(rows), skip_rows=4).notes == (
        "4 first times skipped",
    )


def test_csv_and_parquet_of_one_trace_count_the_same_times(tmp_path: Path) -> None:
    times = np.array([1, 3, 4], dtype=np.int64) * 60 * 10**9
    trace = from_changes(
        "ab",
        times,
        np.array([0, 1, 0], dtype=np.int32),
        np.array([True, True, False]),
        start=0,
    )
    for name in ("t.parquet", "t.csv"):
        write_trace(trace, tmp_path / name)
    for skipped in range(4):
        one, other = (
            read_trace(tmp_path / name, skip_rows=skipped)
            for name in ("t.parquet", "t.csv")
        )
        assert content(one) == content(other)


@pytest.mark.parametrize("numbers", [[1, 3, 2], [1, 1, 2], ["a", "b", "c"]])
def test_numbers_of_rows_that_are_none_are_refused_by_row(numbers: list[Any]) -> None:
    frame = native([(at(0), "a", 1), (at(1), "a", 0), (at(2), "a", 1)]).assign(
        matrix_row=numbers
    )
    with pytest.raises(
        InputError, match="column matrix_row: expected the number of a row"
    ):
        trace_from_frame(frame, source="t.csv")


def test_skipping_all_times_is_refused() -> None:
    with pytest.raises(InputError, match="--skip-rows 2 leaves none of the 2 times"):
        trace_from_frame(native([(at(0), "a", 1), (at(1), "a", 0)]), skip_rows=2)


def test_the_universe_of_the_metadata_sets_the_order_of_nodes() -> None:
    trace = trace_from_frame(
        native([(at(0), "b", 1)]), metadata={"nodes": '["c", "b", "a"]'}
    )
    assert trace.nodes == ("c", "b", "a")
    assert trace.joined.tolist() == [1]


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
    ("header", "missing"),
    [
        ("time,node", "idle"),
        ("node,idle", "time"),
        ("time,idle", "node"),
        ("idle,node,x", "time"),
    ],
)
def test_a_missing_column_is_named(tmp_path: Path, header: str, missing: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{','.join('1' * len(header.split(',')))}\n")
    assert f"missing column {missing}" in str(complaint(path))


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


def test_a_matrix_out_of_order_is_an_error_that_names_the_row(tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    matrix([[1], [0], [1], [0]]).iloc[[0, 2, 1, 3]].to_pickle(path)
    error = complaint(path)
    assert (error.file, error.row) == (str(path), 3)
    assert len(read_trace(path, sort=True)) == 4


@pytest.mark.parametrize("text", ["time,node,idle\n", "time,a,b\n", ""])
def test_an_empty_file_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert "empty" in str(complaint(path))


def test_two_nodes_of_one_name_are_an_error_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    matrix([[1, 0], [0, 1]]).set_axis(["x7", "x7"], axis=1).to_pickle(path)
    error = complaint(path)
    assert (error.file, error.column) == (str(path), "x7")


def test_a_table_that_is_no_trace_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "jobs.pkl"
    pd.DataFrame({"Jmin": [1], "Jmax": [2]}, index=["job"]).to_pickle(path)
    assert "not a node trace" in str(complaint(path))


def test_a_matrix_without_nodes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(f"time\n{at(0)}\n")
    assert "no node columns" in str(complaint(path))


@pytest.mark.parametrize(
    "metadata",
    [
        {"nodes": "[1"},
        {"nodes": "5"},
        {"nodes": '"abc"'},
        {"nodes": '{"a": 1}'},
        {"units_per_node": "two"},
        {"units_per_node": "0"},
        {"units_per_node": "-1"},
        {"start": ""},
        {"start": "NaT"},
        {"start": "now"},
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


def test_a_node_outside_the_universe_is_named() -> None:
    frame = native([(at(0), "a", True), (at(1), "z", False)])
    with pytest.raises(
        InputError, match="'z' is not among the trace's nodes"
    ) as caught:
        trace_from_frame(frame, source="t.parquet", metadata={"nodes": '["a"]'})
    assert (caught.value.file, caught.value.row, caught.value.column) == (
        "t.parquet",
        2,
        "node",
    )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"first_node": -1}, "-nis must be at least 0, not -1"),
        ({"node_count": 0}, "-nN must be at least 1, not 0"),
        ({"node_count": -3}, "-nN must be at least 1, not -3"),
        ({"skip_rows": -1}, "--skip-rows must be >= 0, not -1"),
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


def test_options_select_from_a_file_what_they_select_from_the_matrix(
    tmp_path: Path,
) -> None:
    frame = matrix([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]])
    frame.to_pickle(tmp_path / "m.pkl")
    trace = read_trace(tmp_path / "m.pkl", first_node=1, node_count=1, skip_rows=2)
    assert content(trace) == content(trace_from_frame(frame.iloc[2:, 1:2]))


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


@pytest.mark.slow
@pytest.mark.reference
def test_the_summit_trace_after_its_first_thousand_rows_has_411k_joins_and_leaves(
    reference: Path,
) -> None:
    found = statistics(reference, 1000)
    assert found["joins"] == pytest.approx(411_000, abs=500)
    assert found["leaves"] == pytest.approx(411_000, abs=500)
    assert found["events"] == 22_883
