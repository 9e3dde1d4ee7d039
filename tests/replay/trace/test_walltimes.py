"""What schedulers knew of their jobs: kept in a file, and until when it lets idle nodes be expected to stay idle."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.datasets import generate_log
from bft.models import InputError
from bft.replay import NodeTrace, write_trace
from bft.replay.cli.main import run
from bft.replay.trace.node_trace import SECOND_NS, from_fragments
from bft.replay.trace.parts import (
    anonymised,
    anonymised_walltimes,
    cut,
    cut_walltimes,
    keyed_names,
    merged,
    merged_walltimes,
    walltimes_with_nodes,
    with_nodes,
)
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.walltimes import (
    NEVER,
    Outlook,
    Walltimes,
    calibration,
    from_rows,
    read_walltimes,
    write_walltimes,
)

# kind, known, start, end, expected end, count, nodes
Row = tuple[str, int, int, int, int, int, tuple[str, ...]]
Piece = tuple[int, int, int]
NAMES = ("a", "b", "c", "d")
END = 30


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Jobs that ran or only waited, with limits and names or not, and reservations; times are small."""
    made: list[Row] = []
    for _ in range(draw(st.integers(0, 7))):
        kind = draw(st.sampled_from(["job", "job", "job", "reservation"]))
        known = draw(st.integers(0, 15))
        start = known + draw(st.integers(0, 10))
        end = start + draw(st.integers(0, 12))
        if kind == "job" and draw(st.booleans()):
            made.append(
                (
                    kind,
                    known,
                    NEVER,
                    draw(st.sampled_from([end, NEVER])),
                    NEVER,
                    draw(st.integers(0, 5)),
                    (),
                )
            )
            continue
        expected = draw(st.sampled_from([start, start + 3, start + 8, NEVER]))
        nodes = tuple(
            draw(
                st.lists(st.sampled_from([*NAMES, "stranger"]), unique=True, max_size=4)
            )
        )
        count = len(nodes) or draw(st.integers(0, 3))
        made.append(
            (
                kind,
                known,
                start,
                draw(st.sampled_from([end, end, NEVER])),
                expected,
                count,
                nodes,
            )
        )
    return made


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    """Idle fragments of the four nodes."""
    made = []
    for node in range(len(NAMES)):
        bounds = sorted(draw(st.sets(st.integers(0, END), max_size=6)))
        made += [
            (node, low, high)
            for low, high in zip(bounds[::2], bounds[1::2], strict=False)
        ]
    return made


def traced(idle: list[Piece], end: int = END) -> NodeTrace:
    columns = np.array(idle, dtype=np.int64).reshape(-1, 3)
    return from_fragments(
        NAMES, columns[:, 0].astype(np.int32), columns[:, 1], columns[:, 2], 0, end
    )


def outlook(known: list[Row], trace: NodeTrace) -> Outlook:
    """Of rows, which name one node of the trace at least."""
    return Outlook(from_rows([*known, ("job", 0, 0, 0, NEVER, 1, ("a",))]), trace)


def by_hand(known: list[Row], idle: set[str], now: int) -> dict[str, int]:
    """Until when the idle nodes are expected to stay idle: the clock is moved on until the head of the queue fits."""
    alive = [
        row for row in sorted(known, key=lambda row: row[1]) if row[1] <= now < row[3]
    ]
    begins = NEVER
    for head in (row for row in alive if row[0] == "job" and row[2] > now):
        wanted = head[5]
        if wanted <= len(idle):
            continue
        for later in range(now, 200):
            back = set()
            nameless = 0
            for node in set(NAMES) - idle:
                mine = [row for row in alive if row[2] <= now and node in row[6]]
                if mine and all(row[4] <= later for row in mine):
                    back.add(node)
            for row in alive:
                if row[2] <= now and not row[6] and row[4] <= later:
                    nameless += row[5]
            if len(idle) + len(back) + nameless >= wanted:
                begins = later
                break
        if begins < NEVER:
            break
    ends = {}
    for node in idle:
        reserved = [
            row[2]
            for row in alive
            if row[0] == "reservation" and row[2] > now and node in row[6]
        ]
        ends[node] = min([begins, *reserved])
    return {node: end for node, end in ends.items() if end < NEVER}


def looked(ahead: Outlook, now: int) -> dict[str, int]:
    expected = zip(NAMES, ahead.expected(now), strict=True)
    return {node: end for node, end in expected if end is not None}


@given(rows(), pieces(), st.lists(st.integers(0, END), min_size=1, max_size=4))
def test_expectations_are_those_by_hand_at_any_instant_in_any_order(
    known: list[Row], idle: list[Piece], instants: list[int]
) -> None:
    ahead = outlook(known, traced(idle))
    for now in instants:
        nodes = {
            NAMES[node]
            for node, low, high in idle
            if low <= now and (now < high or high == END)
        }
        assert looked(ahead, now) == by_hand(known, nodes, now)


def as_known_at(row: Row, now: int) -> Row:
    """A row as it was at an instant: what came later had not come."""
    kind, known, start, end, expected, count, nodes = row
    end = end if end <= now else NEVER
    if start <= now or kind == "reservation":
        return kind, known, start, end, expected, count, nodes
    return kind, known, NEVER, end, NEVER, count, ()


@given(rows(), pieces(), st.integers(0, END - 1))
def test_nothing_of_the_future_is_looked_at(
    known: list[Row], idle: list[Piece], now: int
) -> None:
    then = [as_known_at(row, now) for row in known if row[1] <= now]
    before = [
        (node, low, min(high, END) if high <= now else END)
        for node, low, high in idle
        if low <= now
    ]
    assert looked(outlook(known, traced(idle)), now) == looked(
        outlook(then, traced(before)), now
    )


@given(rows())
def test_files_keep_all_of_it(
    tmp_path_factory: pytest.TempPathFactory, known: list[Row]
) -> None:
    folder = tmp_path_factory.mktemp("walltimes")
    written = from_rows(known)
    write_walltimes(written, folder / "a.parquet")
    read = read_walltimes(folder / "a.parquet")
    assert as_rows(read) == as_rows(written)
    write_walltimes(read, folder / "b.parquet")
    assert (folder / "a.parquet").read_bytes() == (folder / "b.parquet").read_bytes()


def as_rows(walltimes: Walltimes) -> list[tuple[object, ...]]:
    names = [walltimes.names[node] for node in walltimes.nodes.tolist()]
    offsets = walltimes.offsets.tolist()
    lists = [names[low:high] for low, high in pairwise(offsets)]
    columns = (
        walltimes.reserved,
        walltimes.known,
        walltimes.start,
        walltimes.end,
        walltimes.expected_end,
    )
    return list(
        zip(
            *(column.tolist() for column in columns),
            walltimes.count.tolist(),
            lists,
            strict=True,
        )
    )


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            ("job", 5, 4, 9, 9, 1, ("a",)),
            "row 1: walltimes: it began before it was known",
        ),
        (("job", 0, 4, 3, 9, 1, ("a",)), "it ends before it begins"),
        (("job", 0, 4, 9, 3, 1, ("a",)), "its end is expected before it begins"),
        (
            ("job", 0, NEVER, 9, 3, 1, ()),
            "never began, but states when its end was expected",
        ),
        (("job", 0, 4, 9, 9, 2, ("a",)), "count is not the number of its nodes"),
        (("job", 0, 4, 9, 9, -1, ()), "its number of nodes is negative"),
        (
            ("reservation", 0, NEVER, NEVER, NEVER, 1, ()),
            "a reservation states no start",
        ),
    ],
)
def test_rows_that_contradict_themselves_are_refused(row: Row, why: str) -> None:
    with pytest.raises(InputError, match=why):
        from_rows([row])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda table: table.drop_columns(["count"]),
            "missing column count; walltimes have kind, known",
        ),
        (
            lambda table: table.set_column(0, "kind", pa.array(["jo"])),
            "row 1, column kind: expected job or reserv",
        ),
        (
            lambda table: table.set_column(
                1, "known", pa.array([None], pa.timestamp("ns"))
            ),
            "row 1, column known: is",
        ),
        (
            lambda table: table.set_column(5, "count", pa.array(["x"])),
            "is no file of walltimes",
        ),
        (
            lambda table: table.set_column(6, "nodes", pa.array([["a", None]])),
            "a name of a node is missing",
        ),
    ],
)
def test_files_of_something_else_are_refused(
    tmp_path: Path, change: object, why: str
) -> None:
    file = tmp_path / "walltimes.parquet"
    write_walltimes(from_rows([("job", 0, 1, 5, 9, 1, ("a",))]), file)
    pq.write_table(change(pq.read_table(file)), file)  # type: ignore[operator]
    with pytest.raises(InputError, match=why):
        read_walltimes(file)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_walltimes(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("nodes")
    with pytest.raises(InputError, match="is no Parquet file of walltimes"):
        read_walltimes(tmp_path / "text.parquet")


# Node b runs a job with a limit of 100 s that ends after 50 s. Meanwhile a is idle; from 10 s on a job waits for both.
SMALL = [
    ("job", 0, 0, 50, 100, 1, ("b",)),
    ("job", 10, 50, 90, 110, 2, ("a", "b")),
    ("reservation", 0, 140, 160, 160, 1, ("a",)),
]


@pytest.fixture
def small(tmp_path: Path) -> tuple[str, str]:
    """Trace and walltimes: a is idle 20-50 and 90-130, b 90-200, which the window cuts."""
    ns = [
        [value * SECOND_NS if value < NEVER else value for value in row[1:5]]
        for row in SMALL
    ]
    known = [(row[0], *times, *row[5:]) for row, times in zip(SMALL, ns, strict=True)]
    trace, walltimes = (
        str(tmp_path / "trace.parquet"),
        str(tmp_path / "walltimes.parquet"),
    )
    write_walltimes(from_rows(known), walltimes)  # type: ignore[arg-type]
    idle = np.array([[0, 20, 50], [0, 90, 130], [1, 90, 200]])
    starts, ends = idle[:, 1] * SECOND_NS, idle[:, 2] * SECOND_NS
    write_trace(
        from_fragments(
            ["a", "b"], idle[:, 0].astype(np.int32), starts, ends, 0, 200 * SECOND_NS
        ),
        trace,
    )
    return trace, walltimes


def test_calibration_by_hand(
    small: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["trace", "info", small[0], "--walltimes", small[1], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["walltimes"]
    assert (found["fragments"], found["cut"], found["none"]["count"]) == (2, 1, 0)
    assert found["expected"] == {"by_count": 1.0, "by_node_time": 1.0}
    # Expected at 20 s: until 100 s, real 30 of 80 s; at 90 s: until the reservation, real 40 of 50 s.
    assert found["ratio"]["p50"] == pytest.approx((30 / 80 + 40 / 50) / 2)
    counts = {
        each["up_to_s"]: (each["count"], each["before"]) for each in found["bins"]
    }
    assert counts == {
        60: (1, 1.0),
        600: (1, 1.0),
        3600: (0, None),
        21600: (0, None),
        86400: (0, None),
        None: (0, None),
    }
    assert run(["trace", "info", *small[:1], "--walltimes", small[1]]) == 0
    out = capsys.readouterr().out
    assert (
        "100.0% of 2 fragments, 100.0% of their node-time; 1 more are cut by the window"
        in out
    )
    assert "1: median 50 s expected, 40 s real; 100% ended before" in out


def test_a_trace_without_whole_fragments_has_no_calibration() -> None:
    trace = traced([])
    found = calibration(trace, outlook([], trace))
    assert (found["fragments"], found["ratio"], found["expected"]["by_count"]) == (
        0,
        None,
        None,
    )


def test_walltimes_of_another_machine_are_refused(
    small: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_walltimes(from_rows([("job", 0, 1, 5, 9, 1, ("z",))]), small[1])
    assert run(["trace", "info", small[0], "--walltimes", small[1]]) == 2
    assert (
        "the walltimes are of other nodes than the trace: they name 'z', the trace 'a'"
        in capsys.readouterr().err
    )


JOBS = """name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os
j,1,2,1e9,1970-01-01T00:00:00Z,9,9,"[0, 1, 2]","[0, 10, 20]","[0, 10, 20]"
"""


def test_a_replay_looks_at_the_whole_machine_and_says_what_has_no_effect(
    small: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(JOBS)
    usual = [
        "-ndmap",
        small[0],
        "--jobs",
        "jobs.csv",
        "--backend",
        "exact",
        "-Tfwd",
        "300",
        "--force",
    ]
    with_them, expected = ["--walltimes", small[1]], ["--set", "window=expected"]
    for more, note in (
        (
            with_them,
            "--walltimes has no effect with --policy milp, which does not look at them",
        ),
        (expected, "without --walltimes nothing is known"),
        ([*with_them, *expected], ""),
    ):
        assert run([*usual, *more]) == 0
        notes = [
            line for line in capsys.readouterr().err.splitlines() if "walltimes" in line
        ]
        assert [note in line for line in notes] == [True] * bool(note)
    # Of node b alone, by what is known of both: at 90 s nothing is expected of b, and a has its reservation.
    trace = from_fragments(
        ["a", "b"], np.array([0]), np.array([0]), np.array([9]), 0, 9
    )
    assert outlook([("reservation", 0, 5, 9, 9, 1, ("a",))], trace).expected(0) == [
        5,
        None,
    ]
    assert Outlook(
        from_rows([("reservation", 0, 5, 9, 9, 1, ("a",))]), trace, ["b"]
    ).expected(0) == [None]


KEY = b"a key of more than sixteen bytes"
BESIDE = ["--walltimes", "known.parquet", "--walltimes-output"]
ANY: Row = (
    "job",
    0,
    0,
    0,
    NEVER,
    1,
    ("a",),
)  # so that one node of the trace is named, as `outlook` has it


def whole(known: list[Row]) -> Walltimes:
    """In the order in which ingest writes them."""
    return from_rows(sorted([*known, ANY], key=in_order))


def in_order(row: Row) -> tuple[object, ...]:
    return row[1], row[0] == "reservation", row[2], row[5], row[6]


def expected(walltimes: Walltimes, trace: NodeTrace) -> list[list[int | None]]:
    made = Outlook(walltimes, trace)
    return [made.expected(now) for now in range(trace.start, trace.end)]


@given(
    known=rows(),
    idle=pieces(),
    bounds=st.sets(st.integers(0, END), min_size=2, max_size=2),
)
def test_a_window_expects_what_the_whole_does(
    known: list[Row], idle: list[Piece], bounds: set[int]
) -> None:
    first, last = sorted(bounds)
    trace, walltimes = traced(idle), whole(known)
    part = cut_walltimes(walltimes, first, last)
    made = Outlook(of_this_machine(part), cut(trace, first, last))
    before = Outlook(walltimes, trace)
    assert [made.expected(now) for now in range(first, last)] == [
        before.expected(now) for now in range(first, last)
    ]
    assert len(part) <= len(walltimes)


@given(
    known=rows(),
    idle=pieces(),
    at=st.sets(st.integers(1, END - 1), min_size=1, max_size=3),
)
def test_windows_merged_are_the_whole(
    known: list[Row], idle: list[Piece], at: set[int]
) -> None:
    trace, walltimes = traced(idle), whole(known)
    bounds = [0, *sorted(at), END]
    traces = [cut(trace, first, last) for first, last in pairwise(bounds)]
    pairs = [(cut_walltimes(walltimes, part.start, part.end), part) for part in traces]
    again = merged_walltimes(pairs[::-1])
    assert lines(again) == [
        line for line in lines(walltimes) if line[1] <= END and line[2] > 0
    ]
    assert expected(of_this_machine(again), merged(traces)) == expected(
        walltimes, trace
    )


def of_this_machine(part: Walltimes) -> Walltimes:
    """The same, also where the nodes named are strangers alone: an outlook on nodes of another machine is refused."""
    return (
        part
        if set(part.names) & set(NAMES)
        else replace(part, names=(*part.names, NAMES[0]))
    )


def lines(walltimes: Walltimes) -> list[tuple[int, ...]]:
    names = ("reserved", "known", "end", "start", "expected_end", "count")
    return sorted(
        zip(*(getattr(walltimes, name).tolist() for name in names), strict=True)
    )


@given(known=rows(), idle=pieces(), at=st.integers(1, END - 1))
def test_exports_of_two_months_are_merged_to_that_of_both(
    known: list[Row], idle: list[Piece], at: int
) -> None:
    """The first was taken at `at`: what ran or waited then has no end in it, and what waited no start."""

    def so_far(row: Row) -> Row:
        kind, since, start, end, limit, count, nodes = row
        if kind == "job" and start >= at and end > at:
            return kind, since, NEVER, NEVER, NEVER, count, ()
        return (
            kind,
            since,
            start,
            NEVER if kind == "job" and end > at else end,
            limit,
            count,
            nodes,
        )

    trace = traced(idle)
    first = whole([so_far(row) for row in known if row[1] < at])
    second = whole([row for row in known if row[3] > at])
    again = merged_walltimes(
        [(first, cut(trace, 0, at)), (second, cut(trace, at, END))]
    )
    assert expected(again, trace) == expected(whole(known), trace)
    assert queue(again) == queue(whole(known))


def queue(walltimes: Walltimes) -> list[tuple[int, ...]]:
    """Who waits from when to when: a job that two exports state must not wait twice."""
    names = ("reserved", "known", "start", "count")
    return sorted(
        zip(*(getattr(walltimes, name).tolist() for name in names), strict=True)
    )


@given(known=rows(), idle=pieces())
def test_other_names_and_the_same_expectations(
    known: list[Row], idle: list[Piece]
) -> None:
    trace, walltimes = traced(idle), whole(known)
    made = anonymised_walltimes(walltimes, KEY)
    names = keyed_names(trace.nodes, KEY)
    shown = anonymised(trace, KEY)
    assert shown.nodes == tuple(sorted(names))
    order = [names.index(name) for name in shown.nodes]
    before = expected(walltimes, trace)
    assert expected(made, shown) == [[now[node] for node in order] for now in before]
    assert not set(made.names) & set(walltimes.names)


@given(known=rows(), idle=pieces())
def test_some_nodes_are_a_machine_of_their_own(
    known: list[Row], idle: list[Piece]
) -> None:
    trace, some = traced(idle), ("b", "d")
    named = [row for row in known if row[6] or row[2] == NEVER or not row[5]]
    walltimes = whole(named)
    alone = []
    for kind, since, start, end, limit, _, nodes in sorted(named, key=in_order):
        kept = tuple(node for node in nodes if node in some)
        if kept:
            alone.append((kind, since, start, end, limit, len(kept), kept))
    part = walltimes_with_nodes(walltimes, some)
    assert len(part) == len(alone)
    if alone:
        assert expected(part, with_nodes(trace, some)) == expected(
            from_rows(alone), with_nodes(trace, some)
        )


def test_jobs_without_names_of_nodes_cannot_be_selected() -> None:
    nameless = from_rows([ANY, ("job", 1, 2, 3, 4, 2, ())])
    with pytest.raises(
        InputError, match="row 2: walltimes: a job that began names no nodes"
    ):
        walltimes_with_nodes(nameless, ["a"])


@pytest.fixture
def pair(here: Path) -> Path:
    """A made log of two days, its trace and walltimes, in here."""
    (here / "log").write_text(
        generate_log("slurm", nodes=12, days=2, seed=3, walltimes=True)
    )
    target = ["-o", "trace.parquet", "--walltimes", "known.parquet"]
    assert run(["ingest", "slurm", "log", "--tz", "UTC", *target]) == 0
    (here / "key").write_bytes(KEY)
    return here


def outcome(
    folder: Path, name: str, trace: str, known: str, *more: str
) -> dict[str, object]:
    """What a replay that looks at what is expected makes of a pair."""
    arguments = [
        "-ndmap",
        trace,
        "--walltimes",
        known,
        "--policy",
        "milp",
        "--set",
        "window=expected",
        "-Tfwd",
        "600",
    ]
    assert run([*arguments, "--backend", "exact", "--no-u", "--out", name, *more]) == 0
    metrics: dict[str, object] = json.loads(
        (folder / name / "summary.json").read_text()
    )["metrics"]
    return metrics


def test_replays_of_parts_with_their_walltimes_are_those_with_the_whole(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    middle = str(
        int(
            np.mean(
                [read_trace("trace.parquet").start, read_trace("trace.parquet").end]
            )
        )
        // SECOND_NS
    )
    assert (
        run(
            [
                "trace",
                "slice",
                "trace.parquet",
                "--to",
                middle,
                *BESIDE,
                "k1.parquet",
                "-o",
                "t1.parquet",
            ]
        )
        == 0
    )
    assert (
        run(
            [
                "trace",
                "slice",
                "trace.parquet",
                "--from",
                middle,
                *BESIDE,
                "k2.parquet",
                "-o",
                "t2.parquet",
            ]
        )
        == 0
    )
    both = [
        "--walltimes",
        "k2.parquet",
        "--walltimes",
        "k1.parquet",
        "--walltimes-output",
        "k.parquet",
    ]
    assert (
        run(["trace", "merge", "t2.parquet", "t1.parquet", *both, "-o", "t.parquet"])
        == 0
    )
    assert run(["trace", "anonymise", "t.parquet", "--key", "key", "--walltimes", "k.parquet", "--walltimes-output",
                "ka.parquet", "-o", "ta.parquet"]) == 0  # fmt: skip
    assert " rows of walltimes" in capsys.readouterr().out
    first = outcome(pair, "first", "t1.parquet", "k1.parquet")
    assert first == outcome(pair, "first-whole", "t1.parquet", "known.parquet")
    assert outcome(pair, "shown", "ta.parquet", "ka.parquet") == outcome(
        pair, "whole", "trace.parquet", "known.parquet"
    )
    assert not set(read_walltimes("ka.parquet").names) & set(
        read_trace("t.parquet").nodes
    )
    nodes = ",".join(read_trace("t.parquet").nodes[:5])
    assert (
        run(
            [
                "trace",
                "select",
                "trace.parquet",
                "--nodes",
                nodes,
                *BESIDE,
                "ks.parquet",
                "-o",
                "ts.parquet",
            ]
        )
        == 0
    )
    assert set(read_walltimes("ks.parquet").names) <= set(nodes.split(","))
    assert outcome(pair, "some", "ts.parquet", "ks.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["slice", "trace.parquet", "--walltimes", "known.parquet"], "are given together, or neither"),
        (["anonymise", "trace.parquet", "--key", "key", "--walltimes-output", "k.parquet"], "are given together"),
        (["merge", "trace.parquet", "b.parquet", *BESIDE, "k.parquet"],
         "--walltimes: expected one for each of the 2 traces, not 1"),
        (["slice", "trace.parquet", *BESIDE, "k.csv"], "written as .parquet"),
        (["slice", "trace.parquet", *BESIDE, "t.parquet"], "the same file"),
        (["slice", "trace.parquet", *BESIDE, "known.parquet"], "exists"),
        (["slice", "trace.parquet", "--walltimes", "log", "--walltimes-output", "k.parquet"], "no Parquet file of"),
        (["slice", "trace.parquet", "--walltimes", "foreign.parquet", "--walltimes-output", "k.parquet"],
         "the walltimes are of other nodes than the trace: they name 'elsewhere'"),
    ],
)  # fmt: skip
def test_walltimes_that_cannot_be_carried_are_refused(
    arguments: list[str], message: str, pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_walltimes(
        from_rows([("job", 0, 0, 0, NEVER, 1, ("elsewhere",))]), "foreign.parquet"
    )
    assert run(["trace", *arguments, "-o", "t.parquet"]) == 2
    assert message in capsys.readouterr().err
    assert not (pair / "t.parquet").exists()
    assert not (pair / "k.parquet").exists()


def test_jobs_that_never_began_are_said_to_be_left_out(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(traced([(0, 1, 9), (1, 2, 8)]), here / "trace.parquet")
    write_walltimes(whole([("job", 3, NEVER, NEVER, NEVER, 2, ())]), "known.parquet")
    made = [
        "-o",
        "t.parquet",
        "--walltimes",
        "known.parquet",
        "--walltimes-output",
        "k.parquet",
    ]
    assert run(["trace", "select", "trace.parquet", "--nodes", "a", *made]) == 0
    told = capsys.readouterr()
    assert (
        "walltimes: 1 jobs that never began name no nodes: they are left out of the queue"
        in told.err
    )
    assert "k.parquet: 1 of 2 rows of walltimes" in told.out
