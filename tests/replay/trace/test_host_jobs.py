"""Host jobs beside a trace: found without an option, carried along, and until when they let nodes be expected idle."""

import json
import shutil
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from agreeing import agree, at
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from small_traces import KEY, of_seconds, tables

import bft
from bft.replay import NodeTrace, write_trace
from bft.replay.cli.main import run
from bft.replay.trace.host_jobs import (
    NEVER,
    HostJobs,
    digest,
    from_rows,
)
from bft.replay.trace.node_trace import SECOND_NS, from_fragments
from bft.replay.trace.outlook import Outlook, calibration
from bft.replay.trace.parts import anonymised, cut, keyed_names, merged, with_nodes
from bft.replay.trace.perturbing import Perturbation, perturbed
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import fragments

# Rows below: kind, known, start, end, expected end, count, nodes.
NAMES = ("a", "b", "c", "d")
END = 30
TABLES = tables(len(NAMES), END)
# So that one node of the trace is named.
ANY = ("job", 0, 0, 0, NEVER, 1, ("a",))


@st.composite
def rows(draw: st.DrawFn):
    """Jobs that ran or only waited, with limits and names or not, and reservations; times are small."""
    made = []
    for _ in range(draw(st.integers(0, 7))):
        kind = draw(st.sampled_from(["job", "job", "job", "reservation"]))
        known = draw(st.integers(0, 15))
        start = known + draw(st.integers(0, 10))
        end = draw(st.sampled_from([start + draw(st.integers(0, 12)), NEVER]))
        if kind == "job" and draw(st.booleans()):
            count = draw(st.integers(0, 5))
            made.append((kind, known, NEVER, end, NEVER, count, ()))
            continue
        limit = draw(st.sampled_from([start, start + 3, start + 8, NEVER]))
        some = st.lists(st.sampled_from([*NAMES, "stranger"]), unique=True, max_size=4)
        nodes = tuple(draw(some))
        count = len(nodes) or draw(st.integers(0, 3))
        made.append((kind, known, start, end, limit, count, nodes))
    return made


def traced(idle, known=None) -> NodeTrace:
    """A trace whose seconds are nanoseconds, as the times of rows are."""
    fine = fragments(of_seconds(idle))
    bounds = (fine.start_ns // SECOND_NS, fine.end_ns // SECOND_NS)
    made = from_fragments(NAMES, fine.node.astype(np.int32), *bounds, 0, END)
    return replace(made, host_jobs=None if known is None else whole(known))


def in_order(row) -> tuple[object, ...]:
    return row[1], row[0] == "reservation", row[2], row[5], row[6]


def whole(known) -> HostJobs:
    return from_rows(sorted([*known, ANY], key=in_order))


def by_hand(known, idle: set[str], now: int) -> dict[str, int]:
    """Until when the idle nodes are expected to stay idle: the clock is moved on until the head of the queue fits."""
    alive = [
        row for row in sorted(known, key=lambda row: row[1]) if row[1] <= now < row[3]
    ]
    running = [row for row in alive if row[2] <= now]
    begins = NEVER
    for head in (row for row in alive if row[0] == "job" and row[2] > now):
        for later in range(now, 200) if head[5] > len(idle) else ():
            mine = {n: [r for r in running if n in r[6]] for n in set(NAMES) - idle}
            back = sum(
                bool(held) and all(row[4] <= later for row in held)
                for held in mine.values()
            )
            back += sum(row[5] for row in running if not row[6] and row[4] <= later)
            if len(idle) + back >= head[5]:
                begins = min(begins, later)
        if begins < NEVER:
            break
    ahead = [row for row in alive if row[0] == "reservation" and row[2] > now]
    ends = {
        node: min([begins, *(row[2] for row in ahead if node in row[6])])
        for node in idle
    }
    return {node: end for node, end in ends.items() if end < NEVER}


def expected(trace: NodeTrace) -> list[list[int | None]]:
    ahead = Outlook(trace.host_jobs, trace)
    return [ahead.expected(now) for now in range(trace.start, trace.end)]


@given(rows(), TABLES, st.lists(st.integers(0, END), min_size=1, max_size=4))
def test_expectations_are_those_by_hand_at_any_instant_in_any_order(
    known, idle, instants: list[int]
) -> None:
    ahead = Outlook(whole(known), traced(idle))
    for now in instants:
        nodes = {NAMES[node] for node in np.flatnonzero(idle[:, min(now, END - 1)])}
        found = dict(zip(NAMES, ahead.expected(now), strict=True))
        assert {node: end for node, end in found.items() if end is not None} == by_hand(
            [*known, ANY], nodes, now
        )


# --- parts of traces --------------------------------------------------------------------------------------------------


@examples(100, quick=12)
@given(rows(), TABLES, st.sets(st.integers(0, END), min_size=2, max_size=2))
def test_a_window_expects_what_the_whole_does(known, idle, bounds: set[int]) -> None:
    first, last = sorted(bounds)
    trace = traced(idle, known)
    assert expected(cut(trace, first, last)) == expected(trace)[first:last]


@examples(100, quick=12)
@given(rows(), TABLES, st.sets(st.integers(1, END - 1), min_size=1, max_size=3))
def test_windows_merged_are_the_whole(known, idle, at: set[int]) -> None:
    trace = traced(idle, known)
    parts = [cut(trace, *bounds) for bounds in pairwise([0, *sorted(at), END])]
    again = merged(parts[::-1])
    told = merged([replace(parts[0], host_jobs=None), *parts[1:]]).notes
    assert f"{len(at)} of the {len(parts)} merged traces: they are left out" in told[-1]
    assert expected(again) == expected(trace)
    inside = [line for line in lines(trace) if line[1] <= END and line[2] > 0]
    assert lines(again) == inside


def lines(trace: NodeTrace, end: bool = True) -> list[tuple[int, ...]]:
    names = ("reserved", "known", *(["end"] * end), "start", "count")
    return sorted(zip(*(at(trace.host_jobs, name) for name in names), strict=True))


@examples(100, quick=12)
@given(rows(), TABLES, st.integers(1, END - 1))
def test_exports_of_two_months_are_merged_to_that_of_both(known, idle, at: int) -> None:
    """The first was taken at `at`: what ran or waited then has no end in it, and what waited no start."""

    def so_far(row):
        kind, since, start, end, limit, count, nodes = row
        if kind == "job" and start >= at and end > at:
            return kind, since, NEVER, NEVER, NEVER, count, ()
        until = NEVER if kind == "job" and end > at else end
        return kind, since, start, until, limit, count, nodes

    trace = traced(idle, known)
    first = whole([so_far(row) for row in known if row[1] < at])
    second = whole([row for row in known if row[3] > at])
    halves = cut(trace, 0, at), cut(trace, at, END)
    again = merged(
        [replace(halves[0], host_jobs=first), replace(halves[1], host_jobs=second)]
    )
    assert expected(again) == expected(trace)
    assert lines(again, end=False) == lines(trace, end=False)


@examples(100, quick=12)
@given(rows(), TABLES)
def test_other_names_and_the_same_expectations(known, idle) -> None:
    trace = traced(idle, known)
    shown, names = anonymised(trace, KEY), keyed_names(trace.nodes, KEY)
    order = [names.index(name) for name in shown.nodes]
    assert expected(shown) == [[now[node] for node in order] for now in expected(trace)]
    assert not set(shown.host_jobs.names) & {*NAMES, "stranger"}


@examples(100, quick=12)
@given(rows(), TABLES)
def test_some_nodes_are_a_machine_of_their_own(known, idle) -> None:
    named = [row for row in known if row[6] or row[2] == NEVER]
    alone = [
        (*row[:5], len(kept), kept)
        for row in sorted(named, key=in_order)
        if (kept := tuple(node for node in row[6] if node in ("b", "d")))
    ]
    part = with_nodes(traced(idle, named), ("b", "d"))
    if alone:
        assert expected(part) == expected(replace(part, host_jobs=from_rows(alone)))
    assert any("name no nodes" in note for note in part.notes) == bool(
        sum(row[0] == "job" and not row[6] for row in named)
    )


# --- the file beside a trace ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".csv.gz"])
@examples(100, quick=12)
@given(rows(), TABLES)
def test_files_keep_all_of_it(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    known,
    idle,
) -> None:
    folder = tmp_path_factory.mktemp("host-jobs")
    written, again = folder / f"a{suffix}", folder / f"b{suffix}"
    trace = traced(idle, known)
    write_trace(trace, written)
    read = read_trace(written)
    write_trace(read, again)
    both = [folder / f"{name}.jobs.parquet" for name in "ab"]
    assert both[0].read_bytes() == both[1].read_bytes()
    for field in fields(HostJobs):
        one, other = (getattr(made.host_jobs, field.name) for made in (trace, read))
        assert np.array_equal(one, other)


# Node b runs a job with a limit of 100 s that ends after 50 s. Meanwhile a is idle; from 10 s on a job waits for both.
SMALL = [
    ("job", 0, 0, 50, 100, 1, ("b",)),
    ("job", 10, 50, 90, 110, 2, ("a", "b")),
    ("reservation", 0, 140, 160, 160, 1, ("a",)),
]
JOBS = """name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os
j,1,2,1e9,2021-02-10T00:00:00Z,9,9,"[0, 1, 2]","[0, 10, 20]","[0, 10, 20]"
"""
FIRST_S = 1_612_915_200
AT_90 = "2021-02-10T00:01:30"
EXPECTED = ["--set", "window=expected"]


def in_seconds(jobs) -> HostJobs:
    """Host jobs of rows in seconds since FIRST_S."""

    def instants(row) -> list[int]:
        return [at if at == NEVER else (FIRST_S + at) * SECOND_NS for at in row[1:5]]

    return from_rows([(row[0], *instants(row), *row[5:]) for row in jobs])


@pytest.fixture
def small(here: Path) -> NodeTrace:
    """t.parquet with host jobs, in here: a is idle 20-50 and 90-130, b 90-200, which the window cuts."""
    idle = np.zeros((2, 200), dtype=bool)
    idle[0, 20:50] = idle[0, 90:130] = idle[1, 90:200] = True
    trace = of_seconds(idle, FIRST_S, ("a", "b"))
    trace = replace(trace, host_jobs=in_seconds(SMALL))
    write_trace(trace, "t.parquet")
    Path("jobs.csv").write_text(JOBS)
    (here / "key").write_bytes(KEY)
    return trace


def replayed(trace: str, *more: str):
    usual = ["-ndmap", trace, "--jobs", "jobs.csv", "--backend", "exact", "-Tfwd"]
    assert run([*usual, "300", "--no-u", "--out", "r", "--force", *more]) == 0
    return json.loads(Path("r/summary.json").read_text())


def test_commands_find_and_carry_host_jobs_without_an_option(
    small: NodeTrace, told
) -> None:
    told("convert t.parquet -o c.csv")
    told(f"trace cut c.csv --to {AT_90} -o 0.parquet")
    told(f"trace cut c.csv --from {AT_90} -o 1.parquet")
    told("trace cut 1.parquet 0.parquet -o both.parquet")
    told("trace anonymise both.parquet --key key -o shown.csv.gz")
    told(
        "trace cut t.parquet --nodes b -o some.parquet",
        "some.jobs.parquet: 2 host jobs",
    )
    gone = perturbed(read_trace("t.parquet"), Perturbation(drop=1))
    write_trace(gone, "p.parquet")
    assert "the host jobs are left out" in " ".join(gone.notes)
    assert not Path("p.jobs.parquet").exists()
    wanted = replayed("t.parquet", *EXPECTED)["metrics"]
    for name in ("c.csv", "both.parquet", "shown.csv.gz"):
        assert replayed(name, *EXPECTED)["metrics"] == wanted
    jobs = read_trace("shown.csv.gz").host_jobs
    assert set(jobs.names) == set(keyed_names(["a", "b"], KEY))


def test_a_replay_names_host_jobs_by_digest_and_python_finds_them_too(
    small: NodeTrace,
) -> None:
    summary = replayed("t.parquet", "--return-time", "9")
    assert summary["metrics"]["host"]["by_job"]
    known = digest(Path("t.jobs.parquet"))
    assert summary["inputs"]["digests_sha256"]["host_jobs"] == known
    stated = json.loads(pd.read_parquet("t.parquet").attrs["metadata"]["host_jobs"])
    assert stated == {"file": "t.jobs.parquet", "sha256": known}
    options = {"return_time_s": 9, "policy": "equal-share", "dedicated": False}
    assert [
        bft.replay(trace, "jobs.csv", **options).metrics["host"]["starts"]
        for trace in ("t.parquet", small)
    ] == [2, 2]
    alone = bft.replay(replace(small, host_jobs=None), "jobs.csv", **options)
    assert "host_jobs" not in alone.summary["inputs"]["digests_sha256"]


@pytest.mark.parametrize("trace", ["t.parquet", "t.csv"])
@pytest.mark.parametrize("moved", [False, True])
def test_a_file_that_is_missing_or_another_is_said_and_not_used(
    small: NodeTrace, trace: str, moved: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(small, trace)
    if moved:
        Path("t.jobs.parquet").unlink()
    else:
        write_trace(cut(small, None, small.start + SECOND_NS), "other.parquet")
        shutil.copy("other.jobs.parquet", "t.jobs.parquet")
    why = "is missing" if moved else "is not the file that the trace was written with"
    told = f"t.jobs.parquet {why}: the machine's own jobs are taken as not known"
    assert not replayed(trace, "--return-time", "9")["metrics"]["host"]["by_job"]
    wanted = not (moved and trace == "t.csv")  # which cannot name it
    assert (told in capsys.readouterr().err) == wanted
    assert run(["trace", "cut", trace, "--from", AT_90, "-o", "x.parquet"]) == 0
    assert (told in capsys.readouterr().err) == wanted


def test_another_file_of_that_name_is_replaced_with_force_only(
    small: NodeTrace, told
) -> None:
    Path("x.jobs.parquet").write_text("precious")
    part = f"trace cut t.parquet --to {AT_90} -o x.parquet"
    told(part, "x.jobs.parquet: exists; --force", code=2)
    assert Path("x.jobs.parquet").read_text() == "precious"
    assert not Path("x.parquet").exists()
    told(f"{part} --force")
    assert read_trace("x.parquet").host_jobs is not None
    # One that is nobody's host jobs is let be.
    write_trace(replace(small, host_jobs=None), "y.csv")
    shutil.copy("t.parquet", "y.jobs.parquet")
    assert read_trace("y.csv").notes == ()


def test_calibration_by_hand(small: NodeTrace, told) -> None:
    found = json.loads(told("trace info t.parquet --expected --json"))
    agree(found["host_jobs"], {"jobs": 2, "with_limit": 2})
    # Expected at 20 s: until 100 s, real 30 of 80 s; at 90 s: until the reservation, real 40 of 50 s.
    ratio = pytest.approx((30 / 80 + 40 / 50) / 2)
    shares = {"expected": {"by_count": 1.0, "by_node_time": 1.0}, "ratio.p50": ratio}
    agree(found["expected"], {"fragments": 2, "cut": 1, "before": 1.0, **shares})
    told(
        "trace info t.parquet --expected",
        "100.0% of 2 fragments, 100.0% of their node-time; 1 more are cut",
        "median 65 s expected, 35 s real; 100% ended before",
        "2, 2 of the 2 that began with a time limit; 1 reservations",
    )
    write_trace(replace(small, host_jobs=None), "none.parquet")
    none = "no host jobs lie beside the trace"
    told("trace info none.parquet --expected", none, code=2)
    nothing = traced(np.zeros((len(NAMES), END), dtype=bool))
    empty = calibration(nothing, Outlook(whole([]), nothing))
    agree(empty, {"fragments": 0, "ratio": None, "expected.by_count": None})


def test_what_host_jobs_lack_is_said_once_where_it_is_used(
    small: NodeTrace, told
) -> None:
    bare = [
        ("job", 50, 50, 90, NEVER, 2, ("a", "b")),
        ("job", 0, 0, 9, NEVER, 1, ()),
    ]
    write_trace(replace(small, host_jobs=in_seconds(bare)), "bare.parquet")
    lacks = (
        "2 of 2 host jobs state no time limit",
        "host jobs do not state since when they waited",
        "1 of 2 host jobs name no nodes",
    )
    for more, wanted in (([], 0), (["--return-time", "9"], 1), (EXPECTED, 1)):
        notes = replayed("bare.parquet", *more)["notes"]
        assert [sum(lack in note for note in notes) for lack in lacks] == [wanted] * 3
    host = replayed("bare.parquet", "--return-time", "9")["metrics"]["host"]
    assert "announced" not in host
    assert told("trace info bare.parquet").count("no time limit") == 1


def test_a_replay_looks_at_the_whole_machine_and_says_where_nothing_is_known(
    small: NodeTrace, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(replace(small, host_jobs=None), "none.parquet")
    for trace, wanted in (("none.parquet", True), ("t.parquet", False)):
        replayed(trace, *EXPECTED)
        assert ("no host jobs lie beside it" in capsys.readouterr().err) == wanted
    # Of node b alone, by what is known of both: nothing is expected of b.
    jobs = from_rows([("reservation", 0, 5, 9, 9, 1, ("a",))])
    one = traced(np.arange(END) < np.array([9, 0, 0, 0])[:, np.newaxis])
    found = [Outlook(jobs, one).expected(now) for now in (0, 5)]
    assert found == [[5, None, None, None], [None] * 4]
    assert Outlook(jobs, one, ["b"]).expected(0) == [None]


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_from_a_log_to_a_trace_with_its_host_jobs(
    scheduler: str, here: Path, told
) -> None:
    told(f"generate log {scheduler} --nodes 8 --days 1 -o log")
    said = told(f"ingest {scheduler} log --tz UTC -o trace.parquet")
    jobs = read_trace("trace.parquet").host_jobs.counts()
    assert jobs["jobs"] == jobs["begun"] == jobs["with_limit"] > 20
    assert f"{jobs['jobs']} jobs" in said
    found = json.loads(told("trace info trace.parquet --expected --json"))
    # Jobs end before their limits: nodes leave no later than expected, but where later jobs go first.
    assert found["expected"]["ratio"]["p90"] <= 1
