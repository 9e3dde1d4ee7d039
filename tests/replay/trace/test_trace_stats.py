"""Idle fragments and their usable time, compared with a scan of every node through every second."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import Idle, of_seconds, tables

from bft.replay.trace.node_trace import SECOND_NS, always_idle
from bft.replay.trace.trace_statistics import (
    STARTUPS_S,
    fragments,
    idle_over_time,
    trace_statistics,
    usable_share,
)

NODES, LENGTH_S = 4, 20
TABLES = tables(NODES, LENGTH_S)


def scan(idle: Idle) -> list[tuple[int, int, int, bool]]:
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
def test_fragments_equal_those_of_a_scan_of_every_node(
    idle: Idle, at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bft.replay.trace.trace_statistics.AT_ONCE", at_once, raising=False)  # fmt: skip
        found = fragments(of_seconds(idle))
    bounds = (found.start_ns // SECOND_NS, found.end_ns // SECOND_NS)
    columns = (column.tolist() for column in (found.node, *bounds, found.censored))
    assert list(zip(*columns, strict=True)) == scan(idle)


@given(TABLES)
def test_statistics_agree_with_the_scan(idle: Idle) -> None:
    found, told = scan(idle), trace_statistics(of_seconds(idle))
    assert told["joins"] == len(found)
    assert told["idle_nodes_max"] == idle.sum(axis=0).max()
    assert told["nodes_never_idle"] == NODES - idle.any(axis=1).sum()
    assert told["idle_node_seconds"] == pytest.approx(idle.sum())
    if not found:
        assert "fragments" not in told
        return
    pieces = told["fragments"]
    assert (pieces["count"], pieces["censored"]) == (len(found), sum(cut for *_, cut in found))  # fmt: skip
    assert pieces["up_to_10_min"]["by_count"] == 1.0
    json.dumps(told, allow_nan=False)


def test_the_usable_share_of_equal_fragments_has_a_closed_form() -> None:
    shares = [usable_share(np.full(7, 100.0), startup) for startup in (25.0, 100.0, 0.0)]  # fmt: skip
    assert shares == [0.75, 0.0, 1.0]
    assert usable_share(np.zeros(0), 30.0) is None


def test_ten_minutes_and_an_hour_count_as_up_to_themselves() -> None:
    lengths = [600, 601, 3600, 3601]
    idle = np.concatenate([np.arange(length + 10) < length for length in lengths])
    told = trace_statistics(of_seconds(np.array([[False, *idle]])))["fragments"]
    shares = [told[name]["by_count"] for name in ("up_to_10_min", "up_to_1_h")]
    assert shares == [0.25, 0.75]
    times = [told[name]["by_node_time"] for name in ("up_to_10_min", "up_to_1_h")]
    assert times == pytest.approx([600 / sum(lengths), 4801 / sum(lengths)])
    assert told["seconds_mean"] == sum(lengths) / 4
    for startup in STARTUPS_S:
        share = (sum(lengths) - 4 * startup) / sum(lengths)
        assert told["share_outliving_startup"][f"{startup} s"] == pytest.approx(share)


def test_an_idle_share_counts_the_nodes_that_are_never_idle() -> None:
    told = trace_statistics(of_seconds(np.zeros((2, 10), dtype=bool)))
    assert told["idle_share"] == told["idle_nodes_mean"] == told["idle_nodes_max"] == 0
    assert (told["nodes"], told["nodes_never_idle"]) == (2, 2)
    assert told["start"] == "1970-01-01T00:00:00Z"


def test_a_window_without_length_has_no_shares() -> None:
    told = trace_statistics(always_idle(3, 5, 5))
    assert (told["idle_share"], told["idle_nodes_mean"]) == (None, 0.0)
    assert told["fragments"]["up_to_1_h"]["by_node_time"] is None
    assert set(told["fragments"]["share_outliving_startup"].values()) == {None}
    json.dumps(told, allow_nan=False)


@given(TABLES, st.sampled_from([1, 2, 4, 5, 10, 20, 40, 100]))
def test_idle_over_time_adds_up_and_is_what_each_part_holds(
    idle: Idle, parts: int
) -> None:
    """Parts of whole hundredths of a second, held against the mean over these."""
    fine = np.repeat(idle.sum(axis=0), 100).reshape(parts, -1)
    means = idle_over_time(of_seconds(idle), parts)
    assert means == pytest.approx(fine.mean(axis=1), abs=1e-6)
