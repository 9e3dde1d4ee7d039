"""Idle fragments and their usable time, compared with a scan of every node through every event."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bft.replay.trace.node_trace import NodeTrace, always_idle, from_changes
from bft.replay.trace.trace_statistics import (
    STARTUPS_S,
    fragments,
    idle_over_time,
    trace_statistics,
    usable_share,
)

SECOND = 1_000_000_000
NODES = 4


@st.composite
def traces(draw: st.DrawFn) -> NodeTrace:
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 20), st.integers(0, NODES - 1), st.booleans()),
            min_size=1,
            max_size=40,
        )
    )
    rows.sort(key=lambda row: row[0])
    times = np.array([row[0] for row in rows], dtype=np.int64) * SECOND
    node = np.array([row[1] for row in rows], dtype=np.int32)
    idle = np.array([row[2] for row in rows], dtype=bool)
    early, late = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    return from_changes(
        [f"n{i}" for i in range(NODES)],
        times,
        node,
        idle,
        start=int(times[0]) - early * SECOND,
        end=int(times[-1]) + late * SECOND,
    )


def scan(trace: NodeTrace) -> list[tuple[int, int, int, bool]]:
    """Node, start, end and whether cut: one node after the other, one event after the other."""
    found = []
    for node in range(len(trace.nodes)):
        since: int | None = None
        for event, time in enumerate(trace.times.tolist()):
            if node in trace.leaves(event):
                assert since is not None
                found.append((node, since, time, since == trace.start))
                since = None
            if node in trace.joins(event):
                since = time
        if since is not None:
            found.append((node, since, trace.end, True))
    return found


@given(traces(), st.sampled_from([1, 3, 10**6]))
def test_fragments_equal_those_of_a_scan_of_every_node(
    trace: NodeTrace, at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bft.replay.trace.trace_statistics.AT_ONCE", at_once)
        found = fragments(trace)
    told = zip(
        found.node.tolist(),
        found.start_ns.tolist(),
        found.end_ns.tolist(),
        found.censored.tolist(),
        strict=True,
    )
    assert list(told) == scan(trace)


@given(traces())
def test_statistics_agree_with_the_scan(trace: NodeTrace) -> None:
    found, told = scan(trace), trace_statistics(trace)
    assert told["joins"] == len(found)
    assert told["idle_nodes_max"] == max(trace.idle_counts(), default=0)
    assert told["nodes_never_idle"] == NODES - len({node for node, *_ in found})
    assert told["idle_node_seconds"] == pytest.approx(
        sum(end - start for _, start, end, _ in found) / SECOND
    )
    if not found:
        assert "fragments" not in told
        return
    assert told["fragments"]["count"] == len(found)
    assert told["fragments"]["censored"] == sum(cut for *_, cut in found)
    assert told["fragments"]["up_to_10_min"]["by_count"] == 1.0
    json.dumps(told, allow_nan=False)


def test_the_usable_share_of_equal_fragments_has_a_closed_form() -> None:
    assert usable_share(np.full(7, 100.0), 25.0) == 0.75
    assert usable_share(np.full(7, 100.0), 100.0) == 0.0
    assert usable_share(np.full(7, 100.0), 0.0) == 1.0
    assert usable_share(np.zeros(0), 30.0) is None


def test_ten_minutes_and_an_hour_count_as_up_to_themselves() -> None:
    lengths = [600, 601, 3600, 3601]
    times = [0, *np.cumsum([length + 10 for length in lengths[:-1]]).tolist()]
    rows = [(t, True) for t in times] + [
        (t + length, False) for t, length in zip(times, lengths, strict=True)
    ]
    rows.sort()
    trace = from_changes(
        ["a"],
        np.array([t * SECOND for t, _ in rows]),
        np.zeros(len(rows), dtype=np.int32),
        np.array([idle for _, idle in rows]),
        start=-SECOND,
    )
    told = trace_statistics(trace)["fragments"]
    assert told["up_to_10_min"] == {
        "by_count": 0.25,
        "by_node_time": pytest.approx(600 / sum(lengths)),
    }
    assert told["up_to_1_h"] == {
        "by_count": 0.75,
        "by_node_time": pytest.approx((600 + 601 + 3600) / sum(lengths)),
    }
    assert told["seconds_mean"] == sum(lengths) / 4
    for startup in STARTUPS_S:
        share = (sum(lengths) - 4 * startup) / sum(lengths)
        assert told["share_outliving_startup"][f"{startup} s"] == pytest.approx(share)


def test_an_idle_share_counts_the_nodes_that_are_never_idle() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    trace = from_changes(
        ["a", "b"],
        nothing,
        nothing.astype(np.int32),
        nothing.astype(bool),
        start=0,
        end=10 * SECOND,
        machine="m",
    )
    told = trace_statistics(trace)
    assert told["idle_share"] == told["idle_nodes_mean"] == told["idle_nodes_max"] == 0
    assert (told["machine"], told["nodes"], told["nodes_never_idle"]) == ("m", 2, 2)
    assert told["start"] == "1970-01-01T00:00:00Z"


def test_a_window_without_length_has_no_shares() -> None:
    told = trace_statistics(always_idle(3, 5, 5))
    assert told["idle_share"] is None
    assert told["idle_nodes_mean"] == 0.0
    assert told["fragments"]["up_to_1_h"]["by_node_time"] is None
    assert set(told["fragments"]["share_outliving_startup"].values()) == {None}
    json.dumps(told, allow_nan=False)


@given(traces(), st.integers(1, 9))
def test_idle_over_time_adds_up_and_is_what_each_part_holds(
    trace: NodeTrace, parts: int
) -> None:
    assume(trace.end > trace.start)
    means = idle_over_time(trace, parts)
    assert len(means) == parts
    length = trace.end - trace.start
    assert means.mean() * length / SECOND == pytest.approx(
        trace.idle_node_seconds(), abs=1e-6
    )
    for part, mean in enumerate(means):
        low, high = (
            trace.start + length * part / parts,
            trace.start + length * (part + 1) / parts,
        )
        held = sum(
            max(0.0, min(end, high) - max(start, low))
            for _, start, end, _ in scan(trace)
        )
        assert mean == pytest.approx(held / (high - low), abs=1e-6)
