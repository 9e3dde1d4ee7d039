"""Node traces in memory, compared with a dictionary of node states and with matrices of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.models import InputError
from bft.replay.trace.node_trace import NodeTrace, from_changes
from bft.replay.trace.trace_files import (
    select_nodes,
    trace_from_frame,
)

EPOCH = 1_600_000_000_000_000_000
Row = tuple[int, int, bool]
Events = list[tuple[int, list[int], list[int]]]


def make(
    nodes: int, rows: Sequence[Row], start: int | None = None, end: int | None = None
) -> NodeTrace:
    times = np.array([EPOCH + time for time, _, _ in rows], dtype=np.int64)
    node = np.array([node for _, node, _ in rows], dtype=np.int32)
    idle = np.array([idle for _, _, idle in rows], dtype=bool)
    names = [f"n{i}" for i in range(nodes)]
    return from_changes(names, times, node, idle, start=start, end=end)


def events(trace: NodeTrace) -> Events:
    """Time, leaves and joins of every event: what two equal traces share."""
    return [
        (int(time) - EPOCH, trace.leaves(event).tolist(), trace.joins(event).tolist())
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
        left = sorted(
            node
            for node, idle in said[time].items()
            if not idle and state.get(node, False)
        )
        joined = sorted(
            node
            for node, idle in said[time].items()
            if idle and not state.get(node, False)
        )
        state.update(said[time])
        if left or joined:
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
    assert (trace.start - EPOCH, trace.end - EPOCH) == (rows[0][0], rows[-1][0])


@given(st.data())
def test_the_order_of_rows_within_an_instant_does_not_matter(
    data: st.DataObject,
) -> None:
    cells = st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, 4)), st.booleans(), min_size=1
    )
    rows = [(time, node, idle) for (time, node), idle in data.draw(cells).items()]
    shuffled = sorted(data.draw(st.permutations(rows)), key=lambda row: row[0])
    one, other = make(5, sorted(rows)), make(5, shuffled)
    assert events(one) == events(other)
    assert (one.start, one.end, one.notes) == (other.start, other.end, other.notes)


def test_unchanged_rows_are_dropped_and_counted() -> None:
    trace = make(
        2, [(0, 0, True), (0, 1, False), (3, 0, True), (4, 1, False), (5, 0, False)]
    )
    assert events(trace) == [(0, [], [0]), (5, [0], [])]
    assert trace.notes == ("2 rows repeated a node's state and were dropped",)


def test_no_rows_within_a_stated_window_make_a_trace_without_events() -> None:
    trace = make(2, [], start=EPOCH, end=EPOCH + 7_000_000_000)
    assert len(trace) == 0
    assert trace.duration_s == 7.0
    assert trace.idle_node_seconds() == 0.0
    assert trace.idle_counts().tolist() == []


@pytest.mark.parametrize(
    ("rows", "start", "end", "what"),
    [
        ([], None, None, "names no time at all"),
        ([(3, 0, True)], EPOCH + 4, EPOCH + 9, "outside the window"),
        ([(3, 0, True)], EPOCH, EPOCH + 2, "outside the window"),
        ([], EPOCH + 2, EPOCH, "ends before it starts"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(
    rows: list[Row], start: int | None, end: int | None, what: str
) -> None:
    with pytest.raises(InputError, match=what):
        make(1, rows, start, end)


# --- against matrices -------------------------------------------------------------------------------------------------

matrices = st.integers(1, 6).flatmap(
    lambda nodes: st.lists(
        st.tuples(
            st.integers(1, 10**7),
            st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes),
        ),
        min_size=1,
        max_size=10,
    )
)
Matrix = list[tuple[int, list[int]]]


def frame_of(matrix: Matrix) -> pd.DataFrame:
    times = EPOCH + np.cumsum([gap for gap, _ in matrix])
    index = pd.to_datetime(times, unit="ns", utc=True)
    cells = np.array([row for _, row in matrix], dtype=np.int8)
    return pd.DataFrame(
        cells, index=index, columns=[f"n{i}" for i in range(cells.shape[1])]
    )


def matrix_of(trace: NodeTrace, instants: Sequence[int]) -> list[list[int]]:
    """State of all nodes at each instant, by walking through the events."""
    state = [0] * len(trace.nodes)
    rows, event = [], 0
    for instant in instants:
        while event < len(trace) and trace.times[event] <= instant:
            for node in trace.leaves(event).tolist():
                assert state[node] == 1
                state[node] = 0
            for node in trace.joins(event).tolist():
                assert state[node] == 0
                state[node] = 1
            event += 1
        rows.append(list(state))
    return rows


@given(matrices)
def test_a_matrix_can_be_read_back_from_its_trace(matrix: Matrix) -> None:
    frame = frame_of(matrix)
    trace = trace_from_frame(frame)
    assert (
        matrix_of(trace, frame.index.astype("int64").tolist())
        == frame.to_numpy().tolist()
    )


@given(matrices)
def test_the_resource_integral_is_the_sum_over_rows_of_idle_nodes_times_seconds(
    matrix: Matrix,
) -> None:
    frame = frame_of(matrix)
    at = frame.index.astype("int64").tolist()
    idle = frame.to_numpy().sum(axis=1, dtype=int).tolist()
    exact = sum(idle[k] * (at[k + 1] - at[k]) for k in range(len(at) - 1))
    assert trace_from_frame(frame).idle_node_seconds() == pytest.approx(
        exact / 1e9, rel=1e-12
    )


@given(matrices, st.data())
def test_selecting_nodes_is_slicing_the_matrix(
    matrix: Matrix, data: st.DataObject
) -> None:
    frame = frame_of(matrix)
    first = data.draw(st.integers(0, frame.shape[1] - 1))
    count = data.draw(st.none() | st.integers(1, 8))
    selected = select_nodes(trace_from_frame(frame), first, count)
    sliced = trace_from_frame(
        frame.iloc[:, first : None if count is None else first + count]
    )
    assert selected.nodes == sliced.nodes
    assert events(selected) == events(sliced)
    assert (selected.start, selected.end) == (sliced.start, sliced.end)


@given(matrices, st.data())
def test_skipping_rows_is_dropping_them_from_the_matrix(
    matrix: Matrix, data: st.DataObject
) -> None:
    frame = frame_of(matrix)
    skipped = data.draw(st.integers(1, 12))
    if skipped >= len(frame):
        with pytest.raises(
            InputError,
            match=f"--skip-rows {skipped} leaves none of the {len(frame)} rows",
        ):
            trace_from_frame(frame, skip_rows=skipped)
        return
    one, other = (
        trace_from_frame(frame, skip_rows=skipped),
        trace_from_frame(frame.iloc[skipped:]),
    )
    assert events(one) == events(other)
    assert (one.start, one.end) == (other.start, other.end)
    assert one.notes == (f"{skipped} first rows skipped", *other.notes)


@given(matrices, st.data())
def test_a_sorted_matrix_is_what_sort_makes_of_a_shuffled_one(
    matrix: Matrix, data: st.DataObject
) -> None:
    frame = frame_of(matrix)
    shuffled = frame.iloc[data.draw(st.permutations(range(len(frame))))]
    skipped = data.draw(st.integers(0, len(frame) - 1))
    one = trace_from_frame(shuffled, sort=True, skip_rows=skipped)
    assert events(one) == events(trace_from_frame(frame, skip_rows=skipped))


def test_a_selection_beyond_the_last_node_takes_all_with_a_note() -> None:
    trace = trace_from_frame(frame_of([(1, [1, 0, 1])]))
    selected = select_nodes(trace, 1, 9)
    assert selected.nodes == ("n1", "n2")
    assert selected.notes == (
        "-nN 9 reaches beyond the trace's 3 nodes: all from 1 on are used",
    )
