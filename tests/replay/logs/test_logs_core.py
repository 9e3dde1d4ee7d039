"""Shared by all readers of logs: times, opening, merging, and the way from intervals to a node trace."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bft.models import InputError
from bft.replay.logs import Clock, Collector, Diagnosis, node_trace, open_log
from bft.replay.logs.collector import OPEN, Intervals, merge
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_statistics import fragments

S = SECOND_NS
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/St_Johns",
)


def clock(zone: str | None = "UTC") -> tuple[Clock, Diagnosis]:
    diagnosis = Diagnosis()
    return Clock(zone, diagnosis), diagnosis


# -- times


@given(
    times=st.lists(
        st.integers(31_700_000, 4_000_000_000)
        | st.integers(1_603_500_000, 1_603_800_000),
        min_size=1,
    ),
    zone=st.sampled_from(ZONES),
)
def test_local_stamps_follow_their_zone(times: list[int], zone: str) -> None:
    read, _ = clock(zone)
    for time in times:
        naive = datetime.fromtimestamp(time, ZoneInfo(zone)).replace(tzinfo=None)
        found = read.parse(naive.isoformat(), "f", 1)
        assert found in {
            int(naive.replace(tzinfo=ZoneInfo(zone), fold=k).timestamp()) * S
            for k in (0, 1)
        }
        assert found == read.parse(naive.isoformat(" "), "f", 1)
        assert (
            read.parse(naive.isoformat(), "f", 1, not_before=time * S) == time * S
            or found < time * S
        )  # type: ignore[operator]


@given(st.integers(31_700_000, 9_000_000_000))
def test_stamps_with_a_zone_and_epochs_need_none(time: int) -> None:
    read, diagnosis = clock(None)
    zoned = datetime.fromtimestamp(time, ZoneInfo("Asia/Kolkata")).isoformat()
    assert (
        read.parse(zoned, "f", 1)
        == read.parse(str(time) if time > 10**8 else zoned, "f", 1)
        == time * S
    )
    assert read.epoch(str(time)) == time * S
    assert not diagnosis.notes


def test_the_hour_that_comes_twice() -> None:
    read, diagnosis = clock("Europe/Berlin")
    first = int(datetime(2020, 10, 25, 0, 30, tzinfo=UTC).timestamp()) * S
    assert read.parse("2020-10-25T02:30:00", "f", 7) == first
    assert (
        read.parse("2020-10-25T02:30:00", "f", 8, not_before=first + 60 * S)
        == first + 3600 * S
    )
    (note,) = diagnosis.notes.values()
    assert (note.count, note.line) == (2, 7)


def test_the_hour_that_is_left_out() -> None:
    read, diagnosis = clock("Europe/Berlin")
    assert (
        read.parse("2021-03-28T02:30:00", "f", 3)
        == int(datetime(2021, 3, 28, 1, 30, tzinfo=UTC).timestamp()) * S
    )
    assert [note.line for note in diagnosis.notes.values()] == [3]


def test_without_a_zone_utc_is_taken_and_told_once() -> None:
    read, diagnosis = clock(None)
    for line in (4, 5, 6):
        assert read.parse("2021-02-10T20:21:15", "f", line) == 1_612_988_475 * S
    ((reason, note),) = diagnosis.notes.items()
    assert "--tz" in reason
    assert (note.count, note.line) == (1, 4)


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b"]
)
def test_unknown_zones_are_refused(zone: str) -> None:
    with pytest.raises(InputError, match="time zone"):
        clock(zone)


@pytest.mark.parametrize(
    "text",
    ["", "Unknown", "None", "2021-02-30T00:00:00", "2021-02-10", "2021-02-10T25:00:00", "20210210", "now",
     "1969-01-01T00:00:00", "2300-01-01T00:00:00", "0000-00-00T00:00:00", "2021-W07-1T00:00:00", "2021-02-10T20:21:61",
     "99999999999999",
     "2021-02-10T20:21:15+99:00", "٢٠٢١-02-10T20:21:15", "1970-01-01T01:00:00", "2021-02-10T20:21:15 PM"],
)  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    assert clock()[0].parse(text, "f", 1) is None


def test_fractions() -> None:
    read, _ = clock()
    assert read.parse("2021-02-10T20:21:15.25", "f", 1) == 1_612_988_475_250_000_000
    assert (
        read.parse("2021-02-10T20:21:15.123456789Z", "f", 1)
        == 1_612_988_475_123_456_789
    )
    assert read.epoch("1612988475.5") == 1_612_988_475_500_000_000
    assert [
        read.epoch(text)
        for text in ("0", "-5", "nan", "inf", "1e99", "x", "", "9300000000")
    ] == [None] * 8


# -- opening

TEXT = "first\nsecond é\r\n\n  last"


@pytest.mark.parametrize("name", ["plain", "gz", "xz", "bz2", "zst"])
def test_whatever_a_log_is_packed_in(tmp_path: Path, name: str) -> None:
    data = TEXT.encode() + b"\xff\n" + b"x" * 3_000_000 + b"\nend"
    packed = {
        "plain": data,
        "gz": gzip.compress(data[:100]) + gzip.compress(data[100:]),
        "xz": lzma.compress(data),
        "bz2": bz2.compress(data),
        "zst": pa.compress(data, codec="zstd", asbytes=True),
    }
    path = tmp_path / "log"  # no suffix tells
    path.write_bytes(packed[name])
    told: list[int] = []
    with open_log(path, told.append) as lines:
        read = list(lines)
    assert read == ["first", "second é", "", "  last\udcff", "x" * 3_000_000, "end"]
    assert told[-1] == len(packed[name])
    if name != "plain":
        path.write_bytes(packed[name][:-20])
        with (
            open_log(path) as lines,
            pytest.raises(InputError, match="damaged or cut short"),
        ):
            list(lines)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b"PAR1....", "Parquet"),
        (b"\x7fELF\x02\x01", "a program"),
        ("JobID|".encode("utf-16"), "UTF-16"),
        (bytes(range(32)) * 9, "binary"),
        (b"a" * (17 << 20), "longer than"),
        (gzip.compress(b"", mtime=0), None),
    ],
)
def test_what_is_no_log(tmp_path: Path, data: bytes, what: str | None) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    if what is None:
        with open_log(path) as lines:
            assert list(lines) == []
        return
    with pytest.raises(InputError, match=what), open_log(path) as lines:
        list(lines)


def test_no_file_and_no_folder(tmp_path: Path) -> None:
    for path, what in ((tmp_path, "directory"), (tmp_path / "none", "no such file")):
        with pytest.raises(InputError, match=what), open_log(path):
            pass


def test_standard_input() -> None:
    code = "from bft.replay.logs import open_log\nwith open_log('-') as lines: print(list(lines))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=gzip.compress(b"a\nb\n"),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"['a', 'b']\n"


# -- merging

INTERVALS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 60), st.integers(-3, 30) | st.just(OPEN)
    ),
    min_size=1,
    max_size=60,
)


def brute(rows: list[tuple[int, int, int]], gap: int) -> list[tuple[int, int, int]]:
    """The union by going through the rows of each node."""
    found: list[list[int]] = []
    for node, start, end in sorted(rows):
        if end <= start:
            continue
        if found and found[-1][0] == node and start - found[-1][2] < max(gap, 1):
            found[-1][2] = max(found[-1][2], end)
        else:
            found.append([node, start, end])
    return [(node, start, end) for node, start, end in found]


@given(rows=INTERVALS, gap=st.integers(0, 12), unit=st.sampled_from([1, 10**6, S, 10**16, 7 * 10**15, 10**16 + 1]),
       stretch=st.sampled_from([1, 50_000, 900_000]), at_once=st.sampled_from([1, 3, 10**6]))  # fmt: skip
@example(
    rows=[(0, 0, 5), (0, 10, 3)], gap=5, unit=S, stretch=1, at_once=9
)  # a gap of exactly that length stays
@example(
    rows=[(0, 0, 9), (0, 1, 1), (0, 4, 2), (3, 0, 1)],
    gap=0,
    unit=10**16 + 1,
    stretch=50_000,
    at_once=9,
)  # a long one over two
@example(
    rows=[(1, 0, 2), (1, 1, 4)], gap=0, unit=1, stretch=1, at_once=1
)  # more rows than are taken at once, after a node without any
def test_merging_is_the_union(
    rows: list[tuple[int, int, int]], gap: int, unit: int, stretch: int, at_once: int
) -> None:
    scaled = [
        (node * stretch, start * unit, end if end == OPEN else (start + end) * unit)
        for node, start, end in rows
    ]
    node, start, end = (np.array(column) for column in zip(*scaled, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bft.replay.logs.collector.AT_ONCE", at_once)
        merged = merge(
            node.astype(np.int32),
            start.astype(np.int64),
            end.astype(np.int64),
            gap_ns=gap * unit,
        )
    assert [column.dtype for column in merged] == [np.int32, np.int64, np.int64]
    assert list(zip(*(column.tolist() for column in merged), strict=True)) == brute(
        scaled, gap * unit
    )


@given(rows=INTERVALS, block=st.integers(1, 20), many=st.integers(1, 40))
def test_blocks_change_nothing_but_short_gaps(
    rows: list[tuple[int, int, int]], block: int, many: int
) -> None:
    scaled = [
        (node, start, end if end == OPEN else start + end) for node, start, end in rows
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bft.replay.logs.collector.BLOCK", block)
        patch.setattr("bft.replay.logs.collector.MANY", many)
        intervals = Intervals(min_gap_ns=5)
        collector = Collector()
        nodes = [collector.indices([f"n{node}"]) for node in range(4)]
        for node, start, end in scaled:
            intervals.add(nodes[node], start, end)
        merged = intervals.merged()
    assert intervals.given == len(scaled)
    assert list(
        zip(*(c.tolist() for c in merge(*merged, gap_ns=5)), strict=True)
    ) == brute(scaled, 5)


# -- intervals to trace


def collected(
    rows: list[tuple[str, int, int | None]], min_gap_s: int = 10
) -> Collector:
    into = Collector(min_gap_ns=min_gap_s * S)
    for node, start, end in rows:
        into.busy([node], start * S, None if end is None else end * S)
    return into


def idle(trace: NodeTrace) -> list[tuple[str, int, int]]:
    found = fragments(trace)
    columns = (
        found.node.tolist(),
        (found.start_ns // S).tolist(),
        (found.end_ns // S).tolist(),
    )
    return [
        (trace.nodes[node], start, end)
        for node, start, end in zip(*columns, strict=True)
    ]


def test_idle_time_is_the_time_without_jobs_and_outages() -> None:
    into = collected(
        [("n2", 100, 200), ("n10", 120, 150), ("n2", 205, 300), ("n10", 290, None)]
    )
    into.unavailable(["n10"], 200 * S, 250 * S)
    into.known(["n2", "n10", "n1"])
    trace, coverage = node_trace(into, Diagnosis(), start_ns=100 * S, end_ns=400 * S)
    assert trace.nodes == ("n1", "n2", "n10")
    assert idle(trace) == [
        ("n1", 100, 400),
        ("n2", 300, 400),
        ("n10", 100, 120),
        ("n10", 150, 200),
        ("n10", 250, 290),
    ]
    assert coverage.nodes_never_busy == 1
    assert coverage.node_seconds == 900
    shares = (coverage.busy, coverage.unavailable, coverage.idle, coverage.short_gaps)
    assert [round(900 * share) for share in shares] == [
        100 + 95 + 30 + 110,
        50,
        300 + 100 + 20 + 50 + 40,
        5,
    ]
    assert (coverage.intervals, coverage.overlaps_merged, coverage.gaps_closed) == (
        5,
        0,
        1,
    )


@pytest.mark.parametrize(("length", "found"), [(9, []), (10, [("a", 50, 60)])])
def test_a_gap_of_the_shortest_length_is_idle_and_a_shorter_one_is_not(
    length: int, found: list[object]
) -> None:
    into = collected([("a", 0, 50), ("a", 50 + length, 400)])
    trace, _ = node_trace(into, Diagnosis(), start_ns=0, end_ns=400 * S)
    assert idle(trace) == found


def test_jobs_that_all_end_at_once_are_observed_from_the_first_start() -> None:
    trace, _ = node_trace(collected([("a", 0, 100), ("b", 40, 100)]), Diagnosis())
    assert (trace.start, trace.end) == (0, 100 * S)
    assert idle(trace) == [("b", 0, 40)]


def test_the_window_begins_with_the_first_end_and_ends_with_the_last_start() -> None:
    diagnosis = Diagnosis()
    trace, _ = node_trace(
        collected([("a", 0, 500), ("b", 90, 100), ("b", 130, 200), ("a", 600, 700)]),
        diagnosis,
    )
    assert (trace.start // S, trace.end // S) == (100, 600)
    assert idle(trace) == [("a", 500, 600), ("b", 100, 130), ("b", 200, 600)]
    assert len(diagnosis.notes) == 3  # the first end, the last start, no list of nodes


def test_of_several_records_of_a_counted_job_the_latest_end_counts() -> None:
    into = Collector()
    for line, end in enumerate((10, 30, 20), 1):
        into.job("1", 3, 0, end * S, "log", line)
    into.settle(Diagnosis())
    assert [column.tolist() for column in into.counted()] == [[3], [0], [30 * S]]


def test_a_job_that_runs_again_is_not_closed_by_its_earlier_run() -> None:
    into = Collector()
    nodes = into.indices(["a"])
    into.job("1", nodes, 0, 10 * S, "log", 1)
    into.job("1", nodes, 40 * S, None, "log", 2)
    into.settle(Diagnosis())
    assert [column.tolist() for column in into.busy_intervals.merged()] == [
        [0, 0],
        [0, 40 * S],
        [10 * S, OPEN],
    ]


def test_jobs_that_run_on_hold_their_nodes_to_the_end() -> None:
    diagnosis = Diagnosis()
    trace, _ = node_trace(
        collected([("a", 0, 50), ("a", 100, None), ("b", 0, 400), ("c", 400, None)]),
        diagnosis,
    )
    assert trace.end == 400 * S
    assert idle(trace) == [("a", 50, 100), ("c", 50, 400)]
    assert not any("ran when the log ended" in note for note in diagnosis.notes)


def test_nodes_of_other_machines_are_left_out_with_a_note() -> None:
    into, diagnosis = (
        collected([("a", 0, 50), ("login", 0, 400), ("a", 60, 400)]),
        Diagnosis(),
    )
    into.known(["a"])
    trace, coverage = node_trace(into, diagnosis)
    assert trace.nodes == ("a",)
    assert coverage.foreign_nodes == 1
    assert any("login" in note.detail for note in diagnosis.notes.values())


@pytest.mark.parametrize("window", [(None, None), (5, 5), (9, 2)])
def test_a_window_must_be_there(window: tuple[int | None, int | None]) -> None:
    start, end = (None if time is None else time * S for time in window)
    into = Collector()
    into.known(["a"])
    with pytest.raises(InputError, match=r"window|began"):
        node_trace(into, Diagnosis(), start_ns=start, end_ns=end)


def test_too_many_nodes_are_refused() -> None:
    into = Collector(most_nodes=3)
    with pytest.raises(InputError, match="more than 3 nodes"):
        into.busy(["a", "b", "c", "d"], 0, 1)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 50), st.integers(0, 30)),
        min_size=1,
        max_size=20,
    )
)
def test_counted_jobs_keep_as_many_nodes_busy(jobs: list[tuple[int, int, int]]) -> None:
    into = Collector(min_gap_ns=0)
    for count, start, length in jobs:
        into.count(count, start * S, (start + length) * S)
    needed = [
        sum(c for c, start, length in jobs if start <= at < start + length)
        for at in range(80)
    ]
    if not any(needed):
        return
    trace, coverage = node_trace(into, Diagnosis(), start_ns=0, end_ns=80 * S)
    assert coverage.nodes == max(needed)
    counts = np.concatenate([[0], trace.idle_counts()])
    at = counts[np.searchsorted(trace.times, np.arange(80) * S, side="right")]
    assert at.tolist() == [coverage.nodes - n for n in needed]


def test_a_machine_too_small_for_its_jobs_is_reported() -> None:
    into, diagnosis = Collector(), Diagnosis()
    into.count(5, 0, 100 * S)
    trace, coverage = node_trace(
        into, diagnosis, start_ns=0, end_ns=200 * S, machine_nodes=3
    )
    assert coverage.nodes == 3
    assert any("--machine-nodes" in note for note in diagnosis.notes)
    assert idle(trace) == [(f"n{k:05}", 100, 200) for k in range(3)]


def test_a_reader_that_loses_count_is_detected() -> None:
    diagnosis = Diagnosis()
    diagnosis.lines = diagnosis.rows = 1
    with pytest.raises(RuntimeError, match="1 rows"):
        diagnosis.balance()


def test_strict_refuses_the_first_row_that_would_be_skipped() -> None:
    with pytest.raises(InputError, match=r"a\.log: line 5: odd: 'x'"):
        Diagnosis(strict=True).skip("odd", "a.log", 5, "'x'")
