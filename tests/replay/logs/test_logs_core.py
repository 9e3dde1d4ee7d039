"""What all readers of logs share: times, opening, the union of intervals, and the way from them to a node trace."""

from __future__ import annotations

import bz2
import gzip
import lzma
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from synthetic_logs import stamp
from synthetic_logs_more import (
    BEGIN_S,
    read_files,
    read_lines,
    read_texts,
    taken,
)

from bft.models import InputError
from bft.replay.logs.ingest import IngestOptions, ingested

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/St_Johns",
)
HEADER = "node,start,end"

# -- times


@given(
    times=st.lists(
        st.integers(10**9, 4_000_000_000) | st.integers(1_603_500_000, 1_603_800_000),
        min_size=1,
        max_size=9,
    ),
    zone=st.sampled_from(ZONES),
    between=st.sampled_from("T "),
)
def test_local_stamps_follow_their_zone(
    times: list[int], zone: str, between: str
) -> None:
    rows, expected = [], []
    for node, time in enumerate(times):
        start, end = (
            datetime.fromtimestamp(at, ZoneInfo(zone)).replace(tzinfo=None)
            for at in (time, time + 60)
        )
        rows.append(f"n{node},{start.isoformat(between)},{end.isoformat(between)}")
        both = (start.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1))
        expected.append({f"n{node}", *(each.timestamp() - BEGIN_S for each in both)})
    around = (min(times) - BEGIN_S - 9999, max(times) - BEGIN_S + 9999)
    busy, account = read_lines("intervals", HEADER, *rows, tz=zone, window=around)
    assert not account.skipped  # none ends before it starts
    assert all(any({name, start} <= each for each in expected) for name, start, _ in busy)  # fmt: skip
    assert len(busy) == len(times)


ONE = datetime(2020, 10, 25, 0, 30, tzinfo=UTC).timestamp() - BEGIN_S
OTHER = datetime(2021, 3, 28, 1, 30, tzinfo=UTC).timestamp() - BEGIN_S


@pytest.mark.parametrize(
    ("row", "zone", "expected", "noted"),
    [
        ("2021-02-10T01:16:40+05:30,1612900060", None, (0, 60), 0),
        ("1612900000.25,1612900000.5", None, (0.25, 0.5), 0),
        ("2021-02-09T19:46:40.250Z,2021-02-09T19:47:00.75Z", None, (0.25, 20.75), 0),
        ("2021-02-09T19:46:40,2021-02-09T19:47:40", None, (0, 60), 1),
        # An hour comes twice: the first is taken, or the one that is not before the start. Another is left out.
        ("2020-10-25T02:30:00,2020-10-25T02:40:00", "Europe/Berlin", (ONE, ONE + 600), 2),
        ("2020-10-25T02:30:00,2020-10-25T02:20:00", "Europe/Berlin", (ONE, ONE + 3000), 2),
        ("2021-03-28T02:30:00,2021-03-28T04:00:00", "Europe/Berlin", (OTHER, OTHER + 1800), 1),
    ],
)  # fmt: skip
def test_times(row: str, zone: str | None, expected: object, noted: int) -> None:
    everything = (-200 * 86_400, 200 * 86_400)
    lines = (HEADER, f"n1,{row}")
    busy, account = read_lines("intervals", *lines, tz=zone, window=everything)
    assert busy == {("n1", *expected)}  # type: ignore[misc]
    told = [(tally.count, tally.line) for tally in account.notes.values() if tally.line]
    assert told == ([(noted, 2)] if noted else [])
    assert any("--tz" in note for note in account.notes) == (noted and zone is None)
    for why, day in (("came twice", "2020-10-25"), ("does not exist", "2021-03-28")):
        assert any(why in note for note in account.notes) == row.startswith(day)


@pytest.mark.parametrize(
    "text",
    ["2021-02-30T00:00:00", "2021-02-10", "2021-02-10T25:00:00", "20210210", "now", "1969-01-01T00:00:00",
     "2300-01-01T00:00:00", "0000-00-00T00:00:00", "2021-W07-1T00:00:00", "2021-02-10T20:21:61", "99999999999999", "-5",
     "2021-02-10T20:21:15+99:00", "٢٠٢١-02-10T20:21:15", "2021-02-10T20:21:15 PM", "nan", "inf", "1e99", "9300000000"],
)  # fmt: skip
def test_what_is_no_time(text: str) -> None:
    rows = (f"n1,{text},{stamp(9)}", f"n2,{stamp(0)},{text}", f"n3,{stamp(0)},{stamp(9)}")  # fmt: skip
    busy, account = read_lines("intervals", HEADER, *rows)
    assert busy == {("n3", 0, 9)}
    told = {why: each.detail.partition(": ")[0] for why, each in account.skipped.items()}  # fmt: skip
    assert told == {f"column {each} holds no time": ascii(text) for each in ("start", "end")}  # fmt: skip


# -- opening

# Bytes that are no UTF-8, lines of other systems and more than a block, in a comment and a column that nothing reads.
LOG = b"# \xff\r\nnode,start,end,remark\r\n\nn1,%d,%d,\xff" + b"x" * 3_000_000 + b"\nn2,%d,%d,"  # fmt: skip
DATA = LOG % (BEGIN_S, BEGIN_S + 9, BEGIN_S, BEGIN_S + 5)
PACKED = {
    "plain": DATA,
    "gz": gzip.compress(DATA[:100]) + gzip.compress(DATA[100:]),
    "xz": lzma.compress(DATA),
    "bz2": bz2.compress(DATA),
    "zst": pa.compress(DATA, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("name", PACKED)
def test_whatever_a_log_is_packed_in(name: str, here: Path) -> None:
    busy, account = read_files("intervals", PACKED[name])
    assert busy == {("n1", 0, 9), ("n2", 0, 5)}
    assert (account.lines, account.rows) == (5, 2)
    Path("log").write_bytes(PACKED[name])  # no suffix tells
    told: list[int] = []
    ingested("intervals", ["log"], progress=lambda _: nullcontext(told.append))
    assert told[-1] == len(PACKED[name])
    if name != "plain":
        with pytest.raises(InputError, match="damaged or cut short"):
            read_files("intervals", PACKED[name][:-20])


@pytest.mark.parametrize(
    ("data", "zone", "what"),
    [
        (b"", "UTC", "is empty"),
        (b"PAR1....", "UTC", "Parquet"),
        (b"\x7fELF\x02\x01", "UTC", "a program"),
        ("JobID|".encode("utf-16"), "UTC", "UTF-16"),
        (bytes(range(32)) * 9, "UTC", "binary"),
        (b"a" * (17 << 20), "UTC", "longer than"),
        (gzip.compress(b"", mtime=0), "UTC", "holds no table"),
        *((DATA, zone, "time zone") for zone in ("Mars/Base", "", "../../etc/passwd", "/etc/passwd", "Europe", "a\0b")),
    ],
)  # fmt: skip
def test_what_is_no_log_and_no_zone(data: bytes, zone: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_files("slurm", data, tz=zone)


# -- the union of intervals

Rows = list[tuple[int, int, int]]
ROW = st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 30))
ROWS = st.lists(ROW, min_size=1, max_size=60)


def union(rows: Rows, gap: int) -> Rows:
    """The union by going through the rows of each node."""
    found: list[list[int]] = []
    for node, start, length in sorted(row for row in rows if row[2]):
        if found and found[-1][0] == node and start - found[-1][2] < max(gap, 1):
            found[-1][2] = max(found[-1][2], start + length)
        else:
            found.append([node, start, start + length])
    return [(node, start, end) for node, start, end in found]


@given(
    rows=ROWS,
    gap=st.integers(0, 12),
    unit_ns=st.sampled_from([1, 10**6, 10**9, 60 * 10**9]),
    at_once=st.sampled_from([1, 3, 50_000]),
    many=st.sampled_from([1, 8 << 20]),
    nodes=st.sampled_from(["n[0-3]", "n[0-1023]"]),
)
@example([(0, 0, 5), (0, 10, 5)], 5, 10**9, 3, 1, "n[0-3]")  # a gap of the least length
def test_what_is_busy_is_the_union(
    rows: Rows, gap: int, unit_ns: int, at_once: int, many: int, nodes: str
) -> None:
    """Also where instants and nodes together need more than 64 bits, and whatever is read at once."""

    def instant(units: int) -> str:
        second, ns = divmod(units * unit_ns, 10**9)
        return f"{stamp(second)}.{ns:09}Z"

    lines = [f"n{node},{instant(start)},{instant(start + length)}" for node, start, length in rows]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bft.replay.logs.records._NODES", at_once)
        patch.setattr("bft.replay.logs.spans._MANY", many)
        around = {"window": (-86_400, 60 * 86_400), "nodes": [nodes]}
        made = read_texts(
            "intervals",
            "\n".join([HEADER, *lines]),
            min_gap_s=gap * unit_ns / 1e9,
            **around,
        )
    expected = {
        (f"n{node}", *(BEGIN_S + bound * unit_ns / 1e9 - BEGIN_S for bound in bounds))
        for node, *bounds in union(rows, gap)
    }
    assert taken(made.trace) == expected
    assert made.coverage.intervals == len({*rows})


# -- jobs that only state how many nodes they had


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 50), st.integers(1, 30)),
        min_size=1,
        max_size=20,
    )
)
def test_counted_jobs_keep_as_many_nodes_busy(jobs: Rows) -> None:
    rows = [
        f"{number}|{count}|{stamp(start)}|{stamp(start + length)}|COMPLETED"
        for number, (count, start, length) in enumerate(jobs)
    ]
    text = "\n".join(["JobID|NNodes|Start|End|State", *rows])
    made = read_texts("slurm", text, window=(0, 80))
    needed = np.zeros(80, dtype=int)
    for count, start, length in jobs:
        needed[start : start + length] += count
    assert made.coverage.nodes == needed.max()
    counts = np.zeros(80, dtype=int)
    for _, start, end in taken(made.trace):
        counts[int(start) : int(min(end, 80))] += 1
    assert counts.tolist() == needed.tolist()


def test_options_check_themselves() -> None:
    for wrong in (
        {"min_gap_s": -1},
        {"uncertain": "busy"},
        {"units_per_node": 0},
        {"nodes": "n1"},
        {"partition": ""},
    ):
        with pytest.raises(InputError, match="expected"):
            IngestOptions(**wrong)  # type: ignore[arg-type]
