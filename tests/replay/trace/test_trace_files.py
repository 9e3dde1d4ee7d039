"""Node traces in memory and in files: what is read is what was written, errors name the cell; idle fragments."""

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from agreeing import agree
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from processes import result_of
from refusals import refused
from small_traces import of_seconds, seconds_of, tables

from bft.models import InputError, write_parquet
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, always_idle, from_changes
from bft.replay.trace.trace_files import (
    read_trace,
    select_nodes,
    trace_from_frame,
    write_trace,
)
from bft.replay.trace.trace_statistics import (
    STARTUPS_S,
    fragments,
    idle_over_time,
    trace_statistics,
    usable_share,
)

EPOCH = 1_613_000_000_000_000_000
# One folder serves all examples of a property: each writes its own file anew.
IN_ONE_FOLDER = examples(
    30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# Names that a file could confuse with something else, but none that is a number.
NAMES = ["n0", "n1", "a,b", 'a"b', "two words", "Knoten-ü", "x;y", "time", "True", "-", "2021-01-01"]  # fmt: skip


def content(trace: NodeTrace):
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
    gaps = draw(
        st.lists(sample([1, 999, 1_000, 10**6, 10**9, 3_600 * 10**9]), max_size=8)
    )
    times = EPOCH + np.cumsum(np.array([0, *gaps], dtype=np.int64))
    count = len(nodes) * len(times)
    cells = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    node = np.tile(np.arange(len(nodes), dtype=np.int32), len(times))
    early, late = (draw(sample([0, 1, 10**9])) for _ in range(2))
    bounds = {"start": int(times[0]) - early, "end": int(times[-1]) + late}
    idle = np.array(cells) & (node >= draw(sample([0, 0, 1])))
    return from_changes(nodes, np.repeat(times, len(nodes)), node, idle, **bounds)


# --- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
@IN_ONE_FOLDER
@given(trace=traces(), at_once=st.sampled_from([1, 3, 2**20]))
def test_what_is_written_is_read_back_and_twice_the_same_bytes(
    tmp_path, suffix: str, trace: NodeTrace, at_once: int
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
    tmp_path, rows: int, drawn: st.DataObject
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

    def read(at_once: int):
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


def test_parquet_holds_utc_times_names_and_truth_values(tmp_path) -> None:
    write_trace(trace_from_frame(matrix([[1], [0]])), tmp_path / "t.parquet")
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert list(frame.columns) == ["time", "node", "idle"]
    kind = pd.DatetimeTZDtype("ns", "UTC")
    agree(frame, {"time.dtype": kind, "node": ["a", "a"], "idle": [True, False]})


def test_what_a_file_cannot_hold_is_refused(tmp_path) -> None:
    trace = replace(always_idle(3, EPOCH, EPOCH + 5, units_per_node=4), machine="Söul")
    write_trace(trace, tmp_path / "t.parquet")
    agree(read_trace(tmp_path / "t.parquet"), {"machine": "Söul", "units_per_node": 4})
    for name, told in (
        ("t.csv.gz", "CSV has no place for 4 units a node"),
        ("t.pkl", r"\.parquet, \.csv or \.csv\.gz"),
    ):
        refused(told, write_trace, trace, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


# --- the matrix form --------------------------------------------------------------------------------------------------


def matrix(rows: list[list[int]]) -> pd.DataFrame:
    index = pd.date_range("2021-02-10T00:00:00", periods=len(rows), freq="30s")
    return pd.DataFrame(rows, index, [*"abcdefgh"[: len(rows[0])]], dtype="int8")


def from_file(suffix: str):
    write = {".parquet": "to_parquet", ".csv": "to_csv", ".pkl": "to_pickle"}[suffix]

    def read(frame: pd.DataFrame) -> NodeTrace:
        getattr(frame, write)(f"m{suffix}")
        return read_trace(f"m{suffix}", trust_pickle=True)

    return read


TYPES = ["int64", "uint8", "bool", "float64", "Int64", "boolean", "object"]
ZONES = ("Asia/Seoul", "America/Chicago", "UTC")
FORMS = {
    **{suffix: from_file(suffix) for suffix in (".parquet", ".csv", ".pkl")},
    **{kind: lambda frame, kind=kind: trace_from_frame(frame.astype(kind)) for kind in TYPES},
    **{zone: lambda frame, zone=zone: trace_from_frame(frame.tz_localize("UTC").tz_convert(zone)) for zone in ZONES},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_gives_the_same_trace_from_every_file_cell_type_and_zone(
    form: str, here
) -> None:
    frame = matrix([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 0, 0]])
    assert content(FORMS[form](frame)) == content(trace_from_frame(frame))


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
        patch.setattr("bft.replay.trace.trace_files.CHUNK_CELLS", size, raising=False)
        assert content(trace_from_frame(frame)) == content(whole)


# --- what is wrong is named -------------------------------------------------------------------------------------------


def native(rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["time", "node", "idle"])


def at(minute: int) -> str:
    return f"2021-02-10T00:{minute:02}:00Z"


@pytest.mark.parametrize("words", ["1 0", "true false", "True FALSE", "1.0 0.0"])
def test_idle_may_be_stated_in_several_ways(tmp_path, words: str) -> None:
    rows = "".join(f"{at(k)},a,{word}\n" for k, word in enumerate(words.split()))
    (tmp_path / "t.csv").write_text(f"time,node,idle\n{rows}")
    trace = read_trace(tmp_path / "t.csv")
    assert (len(trace.joined), len(trace.left)) == (1, 1)


def test_the_row_of_an_invalid_cell_counts_skipped_and_sorted_rows() -> None:
    frame = matrix([[1, 0], [0, 1], [1, 7], [0, 0], [1, 1]])
    refused("row 3, column b", trace_from_frame, frame, skip_rows=1)
    refused("row 3, column b", trace_from_frame, frame.iloc[::-1], sort=True)


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
    trace = trace_from_frame(
        native([(at(0), "b", True)]), metadata={"nodes": '["c", "b", "a"]'}
    )
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
    "idle_nodes_mean": (391, 0.5), "idle_share": (0.083, 0.0005), "event_gap_s.median": (30, 0),
    "event_gap_s.max": (12_176, 0), "fragments.count": (423_000, 1000), "fragments.seconds_mean": (1192, 1),
    "fragments.up_to_10_min.by_count": (0.56, 0.005), "fragments.up_to_10_min.by_node_time": (0.109, 0.005),
    "fragments.up_to_1_h.by_count": (0.91, 0.005), "fragments.up_to_1_h.by_node_time": (0.56, 0.005),
}  # fmt: skip
QUANTILES = {
    "fragments.seconds_quantiles": "p1 71 p5 81 p10 91 p25 162 p50 475 p75 1397 p90 3269 p95 4723 p99 9246",
    "nodes_per_join_event": "p50 4 p75 16 p90 50 p95 108 p99 512 max 2780",
    "nodes_per_leave_event": "p50 3 p75 13 p90 50 p95 120 max 4601",
}


@pytest.mark.reference
def test_the_summit_trace_has_the_published_facts(reference) -> None:
    path = reference / "bftrainer" / "ndstat-10sdn6-evt.tar.gz"
    found = json.loads(
        result_of([sys.executable, "-c", MEASURE, str(path)], cold=True).stdout
    )
    assert found["peak_mib"] < 600
    facts = dict(SUMMIT)
    for name, text in QUANTILES.items():
        pairs = re.findall(r"(\w+) (\d+)", text)
        facts |= {f"{name}.{at}": (int(count), 1) for at, count in pairs}
    agree(
        found,
        {name: pytest.approx(fact, abs=off) for name, (fact, off) in facts.items()},
    )


ZERO = 1_600_000_000_000_000_000


def make(
    nodes: int, rows, start: int | None = None, end: int | None = None
) -> NodeTrace:
    times, node, idle = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    changes = (ZERO + times, node.astype(np.int32), idle.astype(bool))
    return from_changes([f"n{i}" for i in range(nodes)], *changes, start=start, end=end)


def events(trace: NodeTrace):
    """Time, leaves and joins of every event: what two equal traces share."""
    return [
        (int(time) - ZERO, trace.leaves(event).tolist(), trace.joins(event).tolist())
        for event, time in enumerate(trace.times)
    ]


def naive_events(rows):
    """What the rows mean, by a dictionary: the last row for a node at a time counts, all nodes start busy."""
    said: dict[int, dict[int, bool]] = {}
    for time, node, idle in rows:
        said.setdefault(time, {})[node] = idle
    state: dict[int, bool] = {}
    found = []
    for time in sorted(said):
        changed = sorted(each for each in said[time].items() if each[1] != state.get(each[0], False))  # fmt: skip
        left, joined = ([node for node, idle in changed if idle == way] for way in (False, True))  # fmt: skip
        state.update(said[time])
        if changed:
            found.append((time, left, joined))
    return found


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 4), st.booleans()),
        min_size=1,
        max_size=40,
    ).map(lambda rows: sorted(rows, key=lambda row: row[0]))
)
def test_changes_equal_those_of_a_dictionary_of_states(rows) -> None:
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
    rows, start: int | None, end: int | None, what: str
) -> None:
    refused(what, make, 1, rows, start, end)


@given(tables(4, 12), st.data())
def test_a_matrix_can_be_read_back_from_its_trace_sorted_cut_and_in_part(
    idle, data: st.DataObject
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
    counts = st.none() | st.integers(1, 6)
    first, count = data.draw(st.tuples(st.integers(0, 3), counts))
    part = select_nodes(trace, first, count)
    chosen = slice(first, None if count is None else first + count)
    assert part.nodes == (*frame.columns[chosen],)
    assert np.array_equal(seconds_of(part), seconds[chosen])
    beyond = f"reaches beyond the trace's 4 nodes: all from {first} on are used"
    too_many = count is not None and first + count > 4
    assert any(beyond in note for note in part.notes) == too_many


STATS_NODES, LENGTH_S = 4, 20
TABLES = tables(STATS_NODES, LENGTH_S)


def scan(idle) -> list[tuple[int, int, int, bool]]:
    """Node, start, end and whether cut: one node after the other, one second after the other."""
    found = []
    for node, seconds in enumerate(idle.tolist()):
        since: int | None = None
        for second, now in enumerate([*seconds, False]):
            if now and since is None:
                since = second
            elif not now and since is not None:
                found.append((node, since, second, since == 0 or second == LENGTH_S))
                since = None
    return found


@given(TABLES, st.sampled_from([1, 3, 10**6]))
def test_fragments_equal_those_of_a_scan_of_every_node(idle, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bft.replay.trace.trace_statistics.AT_ONCE", at_once, raising=False)  # fmt: skip
        found = fragments(of_seconds(idle))
    bounds = (found.start_ns // SECOND_NS, found.end_ns // SECOND_NS)
    columns = (column.tolist() for column in (found.node, *bounds, found.censored))
    assert list(zip(*columns, strict=True)) == scan(idle)


@given(TABLES)
def test_statistics_agree_with_the_scan(idle) -> None:
    found, told = scan(idle), trace_statistics(of_seconds(idle))
    counts = {
        "joins": len(found),
        "idle_nodes_max": idle.sum(axis=0).max(),
        "nodes_never_idle": STATS_NODES - idle.any(axis=1).sum(),
        "idle_node_seconds": pytest.approx(idle.sum()),
    }
    if found:
        counts["fragments.count"] = len(found)
        counts["fragments.censored"] = sum(cut for *_, cut in found)
        counts["fragments.up_to_10_min.by_count"] = 1.0
    agree(told, counts)
    assert ("fragments" in told) == bool(found)
    json.dumps(told, allow_nan=False)


def test_the_usable_share_of_equal_fragments_has_a_closed_form() -> None:
    shares = [usable_share(np.full(7, 100.0), startup) for startup in (25.0, 100.0, 0.0)]  # fmt: skip
    assert (shares, usable_share(np.zeros(0), 30.0)) == ([0.75, 0.0, 1.0], None)


def test_ten_minutes_and_an_hour_count_as_up_to_themselves() -> None:
    lengths = [600, 601, 3600, 3601]
    idle = np.concatenate([np.arange(length + 10) < length for length in lengths])
    whole, shares = sum(lengths), "share_outliving_startup"
    expected = {
        "up_to_10_min": {"by_count": 0.25, "by_node_time": 600 / whole},
        "up_to_1_h": {"by_count": 0.75, "by_node_time": 4801 / whole},
        shares: {f"{each} s": (whole - 4 * each) / whole for each in STARTUPS_S},
    }
    told = trace_statistics(of_seconds(np.array([[False, *idle]])))["fragments"]
    assert told["seconds_mean"] == whole / 4
    for name, each in expected.items():
        assert {key: told[name][key] for key in each} == pytest.approx(each)


def test_an_idle_share_counts_nodes_that_are_never_idle_and_no_time_has_none() -> None:
    nothing = {"idle_share": 0, "idle_nodes_mean": 0, "idle_nodes_max": 0, "nodes": 2}
    start = {"nodes_never_idle": 2, "start": "1970-01-01T00:00:00Z"}
    agree(trace_statistics(of_seconds(np.zeros((2, 10), dtype=bool))), nothing | start)
    told = trace_statistics(always_idle(3, 5, 5))
    no_share = "fragments.up_to_1_h.by_node_time"
    agree(told, {"idle_share": None, "idle_nodes_mean": 0.0, no_share: None})
    assert {*told["fragments"]["share_outliving_startup"].values()} == {None}
    json.dumps(told, allow_nan=False)


@given(TABLES, st.sampled_from([1, 2, 4, 5, 10, 20, 40, 100]))
def test_idle_over_time_adds_up_and_is_what_each_part_holds(idle, parts: int) -> None:
    """Parts of whole hundredths of a second, held against the mean over these."""
    assert idle_over_time(of_seconds(idle), parts) == pytest.approx(
        np.repeat(idle.sum(axis=0), 100).reshape(parts, -1).mean(axis=1), abs=1e-6
    )
