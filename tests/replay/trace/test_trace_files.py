"""Node traces in memory and in files: what is read is what was written, and errors name file, row and column."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from processes import result_of
from refusals import refused
from small_traces import Idle, seconds_of, tables

from bft.models import InputError
from bft.models.tables import write_parquet
from bft.replay.trace.node_trace import NodeTrace, always_idle, from_changes
from bft.replay.trace.trace_files import (
    read_trace,
    select_nodes,
    trace_from_frame,
    write_trace,
)

EPOCH = 1_613_000_000_000_000_000
SUFFIXES = (".parquet", ".csv", ".csv.gz")
# One folder serves all examples of a property: each writes its own file anew.
IN_ONE_FOLDER = examples(
    30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# Names that a file could confuse with something else, but none that is a number.
NAMES = ["n0", "n1", "a,b", 'a"b', "two words", "Knoten-ü", "x;y", "time", "True", "-", "2021-01-01"]  # fmt: skip
GAPS = [1, 999, 1_000, 10**6, 10**9, 3_600 * 10**9]


def content(trace: NodeTrace) -> dict[str, Any]:
    """The nodes and times of a trace."""
    return {
        "nodes": trace.nodes,
        "times": trace.times.tolist(),
        "joined": [sorted(trace.joins(event).tolist()) for event in range(len(trace))],
        "left": [sorted(trace.leaves(event).tolist()) for event in range(len(trace))],
        "window": (trace.start, trace.end),
    }


@st.composite
def traces(draw: st.DrawFn) -> NodeTrace:
    """Traces of nodes with odd names, of which some are never idle."""
    sample = st.sampled_from
    nodes = draw(st.lists(sample(NAMES), unique=True, min_size=1, max_size=5))
    gaps = draw(st.lists(sample(GAPS), max_size=8))
    times = EPOCH + np.cumsum(np.array([0, *gaps], dtype=np.int64))
    count = len(nodes) * len(times)
    cells = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    node = np.tile(np.arange(len(nodes), dtype=np.int32), len(times))
    early, late = (draw(sample([0, 1, 10**9])) for _ in range(2))
    bounds = {"start": int(times[0]) - early, "end": int(times[-1]) + late}
    idle = np.array(cells) & (node >= draw(sample([0, 0, 1])))
    changes = (np.repeat(times, len(nodes)), node, idle)
    return from_changes(nodes, *changes, **bounds)


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@IN_ONE_FOLDER
@given(trace=traces(), at_once=st.sampled_from([1, 3, 2**20]))
def test_what_is_written_is_read_back_and_twice_the_same_bytes(
    tmp_path: Path, suffix: str, trace: NodeTrace, at_once: int
) -> None:
    one, other = (tmp_path / folder / f"trace{suffix}" for folder in "ab")
    with pytest.MonkeyPatch.context() as patch:
        for module in ("bft.models.tables", "bft.replay.trace.trace_files"):
            patch.setattr(f"{module}.ROW_GROUP", at_once, raising=False)
        write_trace(trace, one)
        write_trace(trace, other)
    assert content(read_trace(one)) == content(trace)
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("rows", [1, 2, 5])
@IN_ONE_FOLDER
@given(drawn=st.data())
def test_blocks_of_rows_give_the_trace_and_the_errors_of_the_whole(
    tmp_path: Path, rows: int, drawn: st.DataObject
) -> None:
    path = tmp_path / "blocks.parquet"
    cells = st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.booleans())
    table = drawn.draw(st.lists(cells, min_size=1, max_size=12))
    if drawn.draw(st.booleans()):
        table.sort(key=lambda row: row[0])
    frame = pd.DataFrame(table, columns=["time", "node", "idle"])
    frame["time"] = pd.to_datetime(EPOCH + frame["time"] * 10**9, utc=True)
    known = drawn.draw(st.sampled_from(['["a", "b"]', '["a", "b", "c"]']))
    write_parquet(frame, path, {"nodes": known})

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


def test_parquet_holds_utc_times_names_and_truth_values(tmp_path: Path) -> None:
    write_trace(trace_from_frame(matrix([[1], [0]])), tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert list(frame.columns) == ["time", "node", "idle"]
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert (frame["node"].tolist(), frame["idle"].tolist()) == (["a", "a"], [True, False])  # fmt: skip


def test_what_a_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    trace = replace(always_idle(3, EPOCH, EPOCH + 5, units_per_node=4), machine="Söul")
    write_trace(trace, tmp_path / "t.parquet")
    read = read_trace(tmp_path / "t.parquet")
    assert (read.machine, read.units_per_node) == ("Söul", 4)
    for name, told in (
        ("t.csv.gz", "CSV has no place for 4 units a node"),
        ("t.pkl", r"\.parquet, \.csv or \.csv\.gz"),
    ):
        refused(told, write_trace, trace, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


# --- the matrix form --------------------------------------------------------------------------------------------------


def matrix(rows: list[list[int]], dtype: str = "int8") -> pd.DataFrame:
    index = pd.date_range("2021-02-10T00:00:00", periods=len(rows), freq="30s")
    columns = list("abcdefgh")[: len(rows[0])]
    return pd.DataFrame(rows, index=index, columns=columns, dtype=dtype)


WRITERS: dict[str, Callable[..., Any]] = {
    ".parquet": pd.DataFrame.to_parquet,
    ".csv": pd.DataFrame.to_csv,
    ".pkl": pd.DataFrame.to_pickle,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_matrix_gives_the_same_trace_from_every_kind_of_file(
    tmp_path: Path, suffix: str
) -> None:
    frame = matrix([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 0, 0]])
    path = tmp_path / f"m{suffix}"
    WRITERS[suffix](frame, path)
    read = read_trace(path, trust_pickle=True)
    assert content(read) == content(trace_from_frame(frame))


@pytest.mark.parametrize(
    "dtype", ["int8", "int64", "uint8", "bool", "float64", "Int64", "boolean", "object"]
)
def test_a_matrix_gives_the_same_trace_for_every_cell_type(dtype: str) -> None:
    rows = [[1, 0], [0, 0], [1, 1]]
    one, other = (trace_from_frame(matrix(rows, each)) for each in (dtype, "int8"))
    assert content(one) == content(other)


@pytest.mark.parametrize("zone", ["Asia/Seoul", "America/Chicago", "UTC"])
def test_a_zone_moves_the_times_to_utc(zone: str) -> None:
    frame = matrix([[1], [0]])
    there = frame.tz_localize("UTC").tz_convert(zone)
    assert content(trace_from_frame(there)) == content(trace_from_frame(frame))


@given(
    st.lists(
        st.lists(st.integers(0, 1), min_size=3, max_size=3), min_size=1, max_size=8
    ),
    st.sampled_from([1, 4, 6, 9]),
)
def test_native_form_and_matrix_in_chunks_give_one_trace(
    rows: list[list[int]], size: int
) -> None:
    frame = matrix(rows)
    whole = trace_from_frame(frame)
    cells = frame.astype(bool).rename_axis("time").reset_index()
    table = cells.melt("time", var_name="node", value_name="idle")
    table = table.sort_values("time", kind="stable")
    assert content(trace_from_frame(table, metadata={})) == content(whole)
    with pytest.MonkeyPatch.context() as patch:
        path = "bft.replay.trace.trace_files.CHUNK_CELLS"
        patch.setattr(path, size, raising=False)
        assert content(trace_from_frame(frame)) == content(whole)


# --- what is wrong is named -------------------------------------------------------------------------------------------


def native(rows: list[tuple[str, Any, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["time", "node", "idle"])


def at(minute: int) -> str:
    return f"2021-02-10T00:{minute:02}:00Z"


@pytest.mark.parametrize("words", ["1 0", "true false", "True FALSE", "1.0 0.0"])
def test_idle_may_be_stated_in_several_ways(tmp_path: Path, words: str) -> None:
    rows = "".join(f"{at(k)},a,{word}\n" for k, word in enumerate(words.split()))
    (tmp_path / "t.csv").write_text(f"time,node,idle\n{rows}")
    trace = read_trace(tmp_path / "t.csv")
    assert (len(trace.joined), len(trace.left)) == (1, 1)


# The rows of a file, what takes the place of one, and the column that is named then.


def test_the_row_of_an_invalid_cell_counts_skipped_and_sorted_rows() -> None:
    frame = matrix([[1, 0], [0, 1], [1, 7], [0, 0], [1, 1]])
    for rows, options in ((frame, {"skip_rows": 1}), (frame.iloc[::-1], {"sort": True})):  # fmt: skip
        caught = refused("", trace_from_frame, rows, **options)
        assert (caught.row, caught.column) == (3, "b")


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        *((damaged, r"t\.parquet: the file's metadata are damaged: [^\n]+$") for damaged in (
            {"nodes": "[1"}, {"units_per_node": "two"}, {"end": "tomorrow"},
            {"start": "9999-01-01T00:00:00Z"})),
        ({"start": at(1)}, "outside the window"),
        ({"end": at(0)}, "outside the window"),
        ({"start": at(3), "end": at(2)}, "ends before it starts"),
        ({"nodes": '["b"]'}, "row 1, column node: expected the name of one of the nodes, not 'a'"),
    ],
)  # fmt: skip
def test_metadata_that_are_damaged_or_contradict_the_rows_are_an_error(
    metadata: dict[str, str], what: str
) -> None:
    frame = native([(at(0), "a", True), (at(1), "a", False)])
    refused(what, trace_from_frame, frame, source="t.parquet", metadata=metadata)


def test_nodes_are_those_of_the_metadata() -> None:
    known = {"nodes": '["c", "b", "a"]'}
    trace = trace_from_frame(native([(at(0), "b", True)]), metadata=known)
    assert (trace.nodes, trace.joined.tolist()) == (("c", "b", "a"), [1])
    refused(
        "row 2, column node: expected the name of one",
        trace_from_frame,
        native([(at(0), "a", 1), (at(0), None, 1)]),
    )


# --- the published trace ----------------------------------------------------------------------------------------------

MEASURE = """
import json, sys
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import trace_statistics
trace = read_trace(sys.argv[1])
found = trace_statistics(trace)
# Not getrusage: that begins with what the parent had when it forked.
found["peak_mib"] = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
print(json.dumps(found))
"""


# Each with how far it may be off: of the trace, of its fragments, and counts by quantile.
SUMMIT = {
    "nodes": (4734, 0), "nodes_never_idle": (54, 0), "duration_s": (14.9 * 86400, 0.05 * 86400),
    "idle_nodes_mean": (391, 0.5), "idle_share": (0.083, 0.0005), "event_gap_s median": (30, 0),
    "event_gap_s max": (12_176, 0), "fragments count": (423_000, 1000), "fragments seconds_mean": (1192, 1),
    "fragments up_to_10_min by_count": (0.56, 0.005), "fragments up_to_10_min by_node_time": (0.109, 0.005),
    "fragments up_to_1_h by_count": (0.91, 0.005), "fragments up_to_1_h by_node_time": (0.56, 0.005),
}  # fmt: skip
QUANTILES = {
    "fragments seconds_quantiles": "p1 71 p5 81 p10 91 p25 162 p50 475 p75 1397 p90 3269 p95 4723 p99 9246",
    "nodes_per_join_event": "p50 4 p75 16 p90 50 p95 108 p99 512 max 2780",
    "nodes_per_leave_event": "p50 3 p75 13 p90 50 p95 120 max 4601",
}


@pytest.mark.reference
def test_the_summit_trace_has_the_published_facts(reference: Path) -> None:
    path = reference / "bftrainer" / "ndstat-10sdn6-evt.tar.gz"
    done = result_of([sys.executable, "-c", MEASURE, str(path)], cold=True)
    found = json.loads(done.stdout)
    assert found["peak_mib"] < 600
    facts = dict(SUMMIT)
    for name, text in QUANTILES.items():
        words = text.split()
        pairs = zip(words[::2], words[1::2], strict=True)
        facts |= {f"{name} {at}": (int(count), 1) for at, count in pairs}
    for name, (fact, off) in facts.items():
        value = reduce(getitem, name.split(), found)
        assert value == pytest.approx(fact, abs=off), name


ZERO = 1_600_000_000_000_000_000
Row = tuple[int, int, bool]
Events = list[tuple[int, list[int], list[int]]]


def make(
    nodes: int, rows: Sequence[Row], start: int | None = None, end: int | None = None
) -> NodeTrace:
    times, node, idle = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    changes = (ZERO + times, node.astype(np.int32), idle.astype(bool))
    return from_changes([f"n{i}" for i in range(nodes)], *changes, start=start, end=end)


def events(trace: NodeTrace) -> Events:
    """Time, leaves and joins of every event: what two equal traces share."""
    return [
        (int(time) - ZERO, trace.leaves(event).tolist(), trace.joins(event).tolist())
        for event, time in enumerate(trace.times)
    ]


def naive_events(rows: Sequence[Row]) -> Events:
    """What the rows mean, by a dictionary: the last row for a node at a time counts, all nodes start busy."""
    said: dict[int, dict[int, bool]] = {}
    for time, node, idle in rows:
        said.setdefault(time, {})[node] = idle
    state: dict[int, bool] = {}
    found: Events = []
    for time in sorted(said):
        changed = sorted(each for each in said[time].items() if each[1] != state.get(each[0], False))  # fmt: skip
        left, joined = ([node for node, idle in changed if idle == way] for way in (False, True))  # fmt: skip
        state.update(said[time])
        if changed:
            found.append((time, left, joined))
    return found


row_lists = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 4), st.booleans()),
    min_size=1,
    max_size=40,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@given(row_lists)
def test_changes_equal_those_of_a_dictionary_of_states(rows: list[Row]) -> None:
    trace = make(5, rows)
    assert events(trace) == naive_events(rows)
    assert (trace.start - ZERO, trace.end - ZERO) == (rows[0][0], rows[-1][0])


@pytest.mark.parametrize(
    ("rows", "start", "end", "what"),
    [
        ([], None, None, "names no time at all"),
        ([(3, 0, True)], ZERO + 4, ZERO + 9, "outside the window"),
        ([(3, 0, True)], ZERO, ZERO + 2, "outside the window"),
        ([], ZERO + 2, ZERO, "ends before it starts"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(
    rows: list[Row], start: int | None, end: int | None, what: str
) -> None:
    refused(what, make, 1, rows, start, end)


@given(tables(4, 12), st.data())
def test_a_matrix_can_be_read_back_from_its_trace_sorted_cut_and_in_part(
    idle: Idle, data: st.DataObject
) -> None:
    """Its integral is the sum over rows of idle nodes times seconds."""
    at = sorted(data.draw(st.sets(st.integers(0, 50), min_size=12, max_size=12)))
    index = pd.to_datetime(ZERO + np.array(at) * 10**9, unit="ns", utc=True)
    frame = pd.DataFrame(idle.T.astype(int), index, [f"n{i}" for i in range(4)])
    shuffled = frame.iloc[data.draw(st.permutations(range(12)))]
    skipped = data.draw(st.integers(0, 11))
    trace = trace_from_frame(shuffled, sort=True, skip_rows=skipped)
    assert (f"{skipped} first rows skipped" in trace.notes) == (skipped > 0)
    seconds = np.repeat(idle[:, skipped:-1], np.diff(at[skipped:]), axis=1)
    assert np.array_equal(seconds_of(trace), seconds)
    assert trace.idle_node_seconds() == pytest.approx(seconds.sum(), rel=1e-12)
    first, count = (
        data.draw(st.integers(0, 3)),
        data.draw(st.none() | st.integers(1, 6)),
    )
    part = select_nodes(trace, first, count)
    chosen = slice(first, None if count is None else first + count)
    assert part.nodes == (*frame.columns[chosen],)
    assert np.array_equal(seconds_of(part), seconds[chosen])
    beyond = f"reaches beyond the trace's 4 nodes: all from {first} on are used"
    too_many = count is not None and first + count > 4
    assert any(beyond in note for note in part.notes) == too_many
