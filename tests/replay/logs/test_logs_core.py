"""What all readers of logs share: times, opening, host lists, and the union of intervals."""

import bz2
import gzip
import lzma
import tracemalloc
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refused
from synthetic_logs import (
    BEGIN_S,
    idle_seconds_of,
    read_files,
    read_texts,
    stamp,
    taken,
)

from bft.replay.cli.main import run
from bft.replay.logs import HostListError, detect, expand_hosts, ingested
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import fragments

HEADER = "node,start,end"


@given(
    times=st.lists(
        st.integers(10**9, 4_000_000_000) | st.integers(1_603_500_000, 1_603_800_000),
        min_size=1,
        max_size=9,
    ),
    zone=st.sampled_from(
        (
            "UTC",
            "Europe/Berlin",
            "America/New_York",
            "Australia/Lord_Howe",
            "Asia/Kolkata",
            "America/St_Johns",
        )
    ),
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
    busy, account = read_files(
        "intervals", "\n".join([HEADER, *rows]), tz=zone, window=around
    )
    assert not account.skipped  # none ends before it starts
    assert all(any({name, start} <= each for each in expected) for name, start, _ in busy)  # fmt: skip
    assert len(busy) == len(times)


def test_fractions_keep_nanoseconds() -> None:
    begin, end = read_texts(
        "intervals", f"{HEADER}\nn1,1612900000.123456789,1612900001.1234567899\n"
    ).trace.times.tolist()[1:3]
    assert (begin, end) == (1_612_900_000_123_456_789, 1_612_900_001_123_456_789)


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
    assert (busy, account.lines, account.rows) == ({("n1", 0, 9), ("n2", 0, 5)}, 5, 2)
    Path("log").write_bytes(PACKED[name])  # no suffix tells
    told: list[int] = []
    ingested("intervals", ["log"], progress=lambda _: nullcontext(told.append))
    assert told[-1] == len(PACKED[name])
    if name != "plain":
        refused("damaged or cut short", read_files, "intervals", PACKED[name][:-20])


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
    refused(what, read_files, "slurm", data, tz=zone)


@pytest.mark.parametrize("form", ["intervals", "slurm"])
def test_a_quoted_host_list_may_be_long(form: str) -> None:
    hosts = ",".join(f"node{number:05}" for number in range(20_000))
    row = '"{}","{}","{}","{}"'.format
    header = row("JobID", "NodeList", "Start", "End")
    jobs = row(1, hosts, stamp(0), stamp(9)), row(2, "node00000", stamp(9), stamp(20))
    made = read_texts(form, "\n".join([header, *jobs]), window=(0, 20))
    assert (made.account.used, made.coverage.nodes) == (2, 20_000)
    assert made.coverage.busy == pytest.approx(9 / 20, rel=1e-4)


@pytest.mark.parametrize(
    "line",
    """\
flux {"timestamp":1605115080.03,"name":"submit"}
flux JOBID|NODELIST|T_RUN|T_INACTIVE
htcondor *** Offset = 0 ClusterId = 1
slurm-json {
slurm-json {"jobs": [
slurm JobID|JobName|NodeList|AllocNodes|Start|End|State
slurm-events Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|
pbs 06/06/2005 14:04:25;D;408.ign1;requestor=guest
lsf "JOB_FINISH" "10.1" 1644", 5
lsf-events "JOB_NEW" "10.1" 1644", 5
lsf-events "JOB_STATUS" "10.1" 1612900000 1 64 0 0 0.1 0 0 0 0 0
intervals node,start,end
intervals node,start,end,state
swf 1 0 5 10 4 -1 -1 4 9 -1 1 1 1 -1 -1 1 -1 -1
swf   184   561553      0     61   16     -1    -1   16  43200 819200  1   6   1  -1 -1  1 -1 -1
prometheus {"status":"success","data":{"resultType":"matrix"
batsim job_id,starting_time,finish_time,allocated_resources
None hello world
""".splitlines(),
)
@pytest.mark.usefixtures("example_logs")
def test_formats_are_recognised_by_the_first_line(line: str) -> None:
    form, _, text = line.partition(" ")
    assert str(detect(text)) == form


def test_the_recipe_of_intervals_is_read_as_it_says(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ingest", "--recipe", "intervals"]) == 0
    text = capsys.readouterr().out.replace("#   ", "")
    first = text.index("node,start,end,state")
    Path("recipe.csv").write_text("".join(text[first:].splitlines(keepends=True)[:3]))
    args = "ingest intervals recipe.csv --nodes cn[001-005] --from 2024-01-01 --to 2024-01-01T08:00 --tz UTC -o t.csv"
    assert run(args.split()) == 0
    assert fragments(read_trace("t.csv")).node.tolist() == [0]


# -- the union of intervals


def union(rows, gap: int):
    """The union by going through the rows of each node."""
    found: list[list[int]] = []
    for node, start, length in sorted(row for row in rows if row[2]):
        if found and found[-1][0] == node and start - found[-1][2] < max(gap, 1):
            found[-1][2] = max(found[-1][2], start + length)
        else:
            found.append([node, start, start + length])
    return [(node, start, end) for node, start, end in found]


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 30)),
        min_size=1,
        max_size=60,
    ),
    gap=st.integers(0, 12),
    unit_ns=st.sampled_from([1, 10**6, 10**9, 60 * 10**9]),
    at_once=st.sampled_from([1, 3, 50_000]),
    many=st.sampled_from([1, 8 << 20]),
    nodes=st.sampled_from(["n[0-3]", "n[0-1023]"]),
)
@example([(0, 0, 5), (0, 10, 5)], 5, 10**9, 3, 1, "n[0-3]")  # a gap of the least length
def test_what_is_busy_is_the_union(
    rows, gap: int, unit_ns: int, at_once: int, many: int, nodes: str
) -> None:
    """Also where instants and nodes together need more than 64 bits, and whatever is read at once."""

    def instant(units: int) -> str:
        second, ns = divmod(units * unit_ns, 10**9)
        return f"{stamp(second)}.{ns:09}Z"

    lines = [f"n{node},{instant(start)},{instant(start + length)}" for node, start, length in rows]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bft.replay.logs.records._NODES", at_once, raising=False)
        patch.setattr("bft.replay.logs.spans._MANY", many, raising=False)
        around = {"window": (-86_400, 60 * 86_400), "nodes": [nodes]}
        text = "\n".join([HEADER, *lines])
        made = read_texts("intervals", text, min_gap_s=gap * unit_ns / 1e9, **around)
    expected = {
        (f"n{node}", *(BEGIN_S + bound * unit_ns / 1e9 - BEGIN_S for bound in bounds))
        for node, *bounds in union(rows, gap)
    }
    assert (taken(made.trace), made.coverage.intervals) == (expected, len({*rows}))


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 50), st.integers(1, 30)),
        min_size=1,
        max_size=20,
    )
)
def test_jobs_that_only_state_how_many_nodes_they_had_keep_as_many_busy(
    jobs,
) -> None:
    rows = [
        f"{number}|{count}|{stamp(start)}|{stamp(start + length)}|COMPLETED"
        for number, (count, start, length) in enumerate(jobs)
    ]
    made = read_texts(
        "slurm", "\n".join(["JobID|NNodes|Start|End|State", *rows]), window=(0, 80)
    )
    needed = np.zeros(80, dtype=int)
    for count, start, length in jobs:
        needed[start : start + length] += count
    assert made.coverage.nodes == needed.max()
    assert (~idle_seconds_of(made.trace, 80)).sum(axis=0).tolist() == needed.tolist()


@st.composite
def brackets(draw: st.DrawFn) -> str:
    width = draw(st.integers(1, 4))
    pieces = []
    for _ in range(draw(st.integers(1, 3))):
        low = draw(st.integers(0, 9999 % 10**width))
        high = draw(st.integers(low, min(low + 12, 10**width - 1)))
        pieces.append(
            f"{low:0{width}}" if low == high else f"{low:0{width}}-{high:0{width}}"
        )
    return f"[{','.join(pieces)}]"


PREFIXES = st.sampled_from(["n", "cn-", "rack-x", "d07n", "a_b"])
PARTS = st.tuples(brackets(), st.sampled_from(["-", "-x", "n"])).map("".join)
WORDS = st.tuples(PREFIXES, st.lists(PARTS, max_size=2).map("".join)).map("".join)
LISTS = st.lists(WORDS, min_size=1, max_size=4).map(",".join)


@given(LISTS)
def test_the_same_hosts_as_clustershell(text: str) -> None:
    found = expand_hosts(text)
    assert (len(set(found)), set(found)) == (len(found), set(NodeSet(text)))


@given(st.lists(LISTS | st.text("n01[]-,/", max_size=9), min_size=1, max_size=8))
def test_a_column_of_lists_names_the_hosts_that_each_list_names(
    texts: list[str],
) -> None:
    expected, refused, without = set(), 0, 0
    for row, text in enumerate(texts):
        try:
            hosts = expand_hosts(text)
        except HostListError:
            hosts, refused = (), refused + 1
        without += not hosts
        expected |= {(host, 10.0 * row, 10.0 * row + 5) for host in hosts}
    rows = [
        f"{row}|{text}|{stamp(10 * row)}|{stamp(10 * row + 5)}"
        for row, text in enumerate(texts)
    ]
    rows.append(f"last|last|{stamp(0)}|{stamp(5)}")
    spans, account = read_files("slurm", "\n".join(["JobID|NodeList|Start|End", *rows]))
    assert spans == expected | {("last", 0.0, 5.0)}
    why = "column NodeList holds no host list"
    assert sum(tally.count for tally in account.skipped.values()) == without
    assert (why in account.skipped) == (refused > 0)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[3,1,1-2]", "n3 n1 n2"),
        ("r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"),
        ("a,b[1-2]c,a", "a b1c b2c"),
        ("n-13-[01-02],n-14-[01-02]", "n-13-01 n-13-02 n-14-01 n-14-02"),
        ("n[0-8/4]", "n0 n4 n8"),
        ("n[9-10]", "n9 n10"),
        *[(nothing, "") for nothing in ("", "None assigned", "(null)", "None", "N/A")],
    ],
)  # fmt: skip
def test_expansion(text: str, hosts: str) -> None:
    assert list(expand_hosts(text)) == hosts.split()


@pytest.mark.parametrize(
    "text",
    ["n[1-2", "n1-2]", "n[2-1]", "n[]", "n[a-b]", "n[1--2]", "n[[1-2]]", "a,,b", ",a", "a,", "a b", "ä1", "n\0",
     "n[1]\n", "n[0-8/0]", "n[0-999999999]", "n[0-9][0-99][0-999][0-9]", "n[1-2],m[0-999999]", "n[٣]", "[", "n[1-2][",
     "\udcff", "a[0-9999]b[0-9999]c[0-9999]", "n[" + ",".join(["0-200000"] * 5) + "]", "n" + "[1-262143]" * 300,
     "n[" + ",".join(f"{low}-262143" for low in range(1, 4000)) + "]", "n[" + ",".join(["0-" + "9" * 18] * 20) + "]",
     "n" * 200_000 + "[1-262143]", "n[" + "0" * 100_000 + ",1-100000]"],
    ids=lambda text: ascii(text[:24]),
)  # fmt: skip
def test_what_is_no_host_list_is_refused_before_it_takes_memory(text: str) -> None:
    tracemalloc.start()
    refused("", expand_hosts, text, error=HostListError)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.reference
def test_the_lists_of_real_logs(reference: Path) -> None:
    logs = reference / "logs/slurm"
    with gzip.open(logs / "xdmod-phillips.sacct.log.gz", "rt", encoding="utf-8") as log:
        lines = log.readlines()
    lines += (logs / "xdmod-unit-accounting-logs.log").read_text().splitlines()
    texts = {line.split("|")[24] for line in lines} - {"None assigned"}
    assert [
        text for text in texts if set(expand_hosts(text)) != set(NodeSet(text))
    ] == []
