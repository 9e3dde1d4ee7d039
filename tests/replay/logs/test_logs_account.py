"""The account of logs as people export them: shares, windows, overlapping exports, and names that do not match.

Traces are held against an account of our own, second by second: `busy_seconds`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from synthetic_logs import stamp
from synthetic_logs_more import BEGIN_S

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import (
    Clock,
    Collector,
    Coverage,
    Diagnosis,
    Reading,
    node_trace,
    read_log,
)
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

S = SECOND_NS
DAY = 86_400
HEADER = "JobID|NodeList|AllocNodes|Start|End|State"


def ingest(
    capsys: pytest.CaptureFixture[str], *args: str, code: int = 0
) -> tuple[dict[str, Any], str]:
    """Run `bft-replay ingest ... --json -o t.parquet`: its account (empty when refused), and stderr."""
    assert (
        run(["ingest", *args, "-o", "t.parquet", "--force", "--json", "--tz", "UTC"])
        == code
    )
    out, err = capsys.readouterr()
    return (json.loads(out) if code == 0 else {}), err


def idle_at(trace: NodeTrace, seconds: int) -> NDArray[np.bool_]:
    """Whether each node is idle during each second since BEGIN_S."""
    idle = np.zeros((len(trace.nodes), seconds), dtype=bool)
    for event, time in enumerate(trace.times.tolist()):
        second = max(0, (time - BEGIN_S * S) // S)
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    return idle


def busy_seconds(
    jobs: Iterable[tuple[str, str, int, int | None]], nodes: list[str], seconds: int
) -> NDArray[np.bool_]:
    """The oracle: whether each node is busy during each second. Of an id and start only the latest record counts."""
    runs: dict[tuple[str, int], tuple[str, int]] = {}
    for job, node, start, end in jobs:
        known = runs.get((job, start), (node, -1))
        until = seconds if end is None else end
        if end is None and known[1] >= 0:
            continue
        runs[job, start] = (node, until)
    busy = np.zeros((len(nodes), seconds), dtype=bool)
    for (_, start), (node, end) in runs.items():
        busy[nodes.index(node), start:end] = True
    return busy


def losses(account: dict[str, Any]) -> dict[str, int]:
    return {
        entry["reason"]: entry["count"]
        for entry in account["skipped"] + account["left_out"]
    }


def notes(account: dict[str, Any]) -> str:
    return "\n".join(
        f"{entry['reason']}: {entry['detail']}" for entry in account["notes"]
    )


# -- 1. shares


def test_shares_of_a_month_of_ten_thousand_nodes_do_not_overflow(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(
        f"{HEADER}\n1|n[1-10000]|10000|{stamp(0)}|{stamp(31 * DAY)}|COMPLETED\n"
    )
    account, _ = ingest(
        capsys, "slurm", "jobs", "--from", stamp(0), "--to", stamp(31 * DAY)
    )
    coverage = account["coverage"]
    assert coverage["node_seconds"] == 31 * DAY * 10_000
    assert (
        coverage["busy"],
        coverage["unavailable"],
        coverage["idle"],
        coverage["short_gaps"],
    ) == (1, 0, 0, 0)


def test_shares_of_a_workload_of_counts_do_not_overflow(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        f"{k} {k * DAY} 0 {DAY * 3 // 4} 1531 -1 -1 -1 -1 -1 1 {k % 3} 1 -1 -1 1 -1 -1"
        for k in range(100)
    ]
    Path("w.swf").write_text(
        f"; UnixStartTime: {BEGIN_S}\n; MaxNodes: 1531\n; MaxProcs: 1531\n"
        + "\n".join(lines)
    )
    account, _ = ingest(
        capsys, "swf", "w.swf", "--from", stamp(0), "--to", stamp(100 * DAY)
    )
    assert account["coverage"]["busy"] == pytest.approx(0.75, rel=1e-12)
    assert account["coverage"]["idle"] == pytest.approx(0.25, rel=1e-12)


def test_short_gaps_and_outages_do_not_overflow() -> None:
    into = Collector(min_gap_ns=400 * DAY * S)
    hosts = [f"n{k}" for k in range(800)]
    into.busy(hosts, 0, 1)
    into.unavailable(hosts[:400], 0, 365 * DAY * S)
    into.busy(hosts[:1], 365 * DAY * S - 1, 365 * DAY * S)
    _, coverage = node_trace(into, Diagnosis(), start_ns=0, end_ns=365 * DAY * S)
    assert coverage.unavailable == pytest.approx(0.5, abs=1e-9)
    assert coverage.short_gaps == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize(
    ("busy", "idle", "what"),
    [
        (-0.609, 1.609, "not between 0 and 1"),
        (0.31, 0.0, "do not add up to 1"),
        (float("nan"), 0.5, "not between"),
    ],
)
def test_shares_that_do_not_balance_are_our_mistake(
    busy: float, idle: float, what: str
) -> None:
    with pytest.raises(RuntimeError, match=what):
        Coverage(1, 0, 0, 1.0, busy, 0.0, idle, 0.0, 1, 0, 0)


# -- 2. events and the window


@pytest.mark.parametrize("events", ["csv", "sacctmgr", "reservation"])
@pytest.mark.parametrize(
    "when", [(DAY, DAY + 6 * 3600), (-900 * DAY, 900 * DAY), (2 * DAY, None)]
)
def test_events_do_not_change_the_window(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    events: str,
    when: tuple[int, int | None],
) -> None:
    rows = [
        f"{k}|n{k % 4}|1|{stamp(600 * k)}|{stamp(600 * k + 500)}|{'FAILED' if k % 9 == 0 else 'COMPLETED'}"
        for k in range(432)
    ]
    Path("jobs").write_text("\n".join([HEADER, *rows]) + "\n")
    start, end = stamp(when[0]), "" if when[1] is None else stamp(when[1])
    Path("csv").write_text(f"node,start,end,state\nn1,{start},{end},down\n")
    Path("sacctmgr").write_text(
        f"NodeName|TimeStart|TimeEnd|State\nn1|{start}|{end or 'Unknown'}|DOWN\n"
    )
    Path("reservation").write_text(
        f"ReservationName=r StartTime={start} EndTime={end or 'Unknown'} Nodes=n1\n"
    )
    option = "--reservations" if events == "reservation" else "--events"
    plain, _ = ingest(capsys, "slurm", "jobs")
    before = read_trace("t.parquet")
    account, _ = ingest(capsys, "slurm", "jobs", option, events)
    after = read_trace("t.parquet")
    assert (after.start, after.end) == (before.start, before.end)
    assert account["coverage"]["busy"] == plain["coverage"]["busy"]
    down = np.ones((4, 3 * DAY), dtype=bool)
    until = (
        289 * 600 if when[1] is None and events != "reservation" else when[1]
    )  # the next job's start on n1
    down[1, max(0, when[0]) : until] = False
    assert np.array_equal(idle_at(after, 3 * DAY), idle_at(before, 3 * DAY) & down)


def test_busy_rows_among_events_do_not_change_the_window(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(
        f"{HEADER}\n1|n1|1|{stamp(0)}|{stamp(60)}|COMPLETED\n2|n2|1|{stamp(9)}|{stamp(90)}|COMPLETED\n"
    )
    Path("csv").write_text(
        f"node,start,end,state\nn1,{stamp(-5000)},{stamp(-4000)},busy\nn1,{stamp(80)},,busy\n"
    )
    ingest(capsys, "slurm", "jobs", "--events", "csv", "--min-gap", "0")
    trace = read_trace("t.parquet")
    assert [time // S - BEGIN_S for time in (trace.start, trace.end)] == [60, 90]
    assert idle_at(trace, 90).sum(axis=1).tolist() == [20, 0]


def test_intervals_beside_another_log_do_not_replace_its_window(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(
        f"{HEADER}\n1|n1|1|{stamp(0)}|{stamp(60)}|COMPLETED\n2|n2|1|{stamp(9)}|{stamp(900)}|COMPLETED\n"
        f"3|n1|1|{stamp(900)}|{stamp(990)}|COMPLETED\n"
    )
    Path("more.csv").write_text(f"node,start,end\nn3,{stamp(100)},{stamp(200)}\n")
    ingest(capsys, "auto", "jobs", "more.csv")
    trace = read_trace("t.parquet")
    assert [time // S - BEGIN_S for time in (trace.start, trace.end)] == [60, 900]


def test_outages_in_a_log_of_intervals_do_not_widen_its_window(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("down").write_text(f"node,start,end,state\nn1,{stamp(-900 * DAY)},,down\n")
    Path("log").write_text(
        f"node,start,end,state\nn1,{stamp(-800 * DAY)},{stamp(50)},down\nn2,{stamp(0)},{stamp(90)},busy\n"
    )
    for files in (("log",), ("down", "log"), ("log", "down")):
        ingest(capsys, "intervals", *files)
        trace = read_trace("t.parquet")
        assert [time // S - BEGIN_S for time in (trace.start, trace.end)] == [0, 90]
    Path("down").write_text(
        f"node,start,end,state\nn1,{stamp(10)},{stamp(20)},down\nn2,{stamp(0)},{stamp(20)},down\n"
    )
    ingest(
        capsys, "intervals", "down"
    )  # where there is nothing else, outages are what was observed
    assert read_trace("t.parquet").duration_s == 20


def test_events_that_do_not_touch_the_window_are_reported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(
        f"{HEADER}\n1|n1|1|{stamp(0)}|{stamp(60)}|COMPLETED\n2|n1|1|{stamp(70)}|{stamp(90)}|COMPLETED\n"
    )
    Path("csv").write_text(
        f"node,start,end,state\nn1,{stamp(-5000)},{stamp(-4000)},down\n"
    )
    _, err = ingest(capsys, "slurm", "jobs", "--events", "csv")
    assert "warning: no outage or reservation falls into the window" in err


# -- 3. exports by the day


def sacct_rows(jobs: Iterable[tuple[str, str, int, int | None]]) -> str:
    rows = [
        f"{job}|{node}|1|{stamp(start)}|{'Unknown|RUNNING' if end is None else stamp(end) + '|COMPLETED'}"
        for job, node, start, end in jobs
    ]
    return "\n".join([HEADER, *rows]) + "\n"


def sacct_counts(jobs: Iterable[tuple[str, str, int, int | None]]) -> str:
    lines = sacct_rows(jobs).splitlines()
    return (
        "\n".join(
            "|".join(f for k, f in enumerate(line.split("|")) if k != 1)
            for line in lines
        )
        + "\n"
    )


def sacct_as_json(jobs: Iterable[tuple[str, str, int, int | None]]) -> str:
    entries = [
        {
            "job_id": job,
            "cluster": "c",
            "nodes": node,
            "state": {"current": ["RUNNING" if end is None else "COMPLETED"]},
            "time": {
                "start": BEGIN_S + start,
                "end": 0 if end is None else BEGIN_S + end,
            },
        }
        for job, node, start, end in jobs
    ]
    return json.dumps({"jobs": entries}, indent=1)


def cobalt_rows(jobs: Iterable[tuple[str, str, int, int | None]]) -> str:
    rows = [
        f"{job}.m,m,{stamp(start)},{'' if end is None else stamp(end)},1,{node}"
        for job, node, start, end in jobs
    ]
    return (
        "\n".join(
            [
                "JOB_NAME,MACHINE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION",
                *rows,
            ]
        )
        + "\n"
    )


def interval_rows(jobs: Iterable[tuple[str, str, int, int | None]]) -> str:
    rows = [
        f"{node},{stamp(start)},{'' if end is None else stamp(end)}"
        for _, node, start, end in jobs
    ]
    return "\n".join(["node,start,end", *rows]) + "\n"


WRITERS: dict[str, Callable[[Iterable[tuple[str, str, int, int | None]]], str]] = {
    "slurm": sacct_rows,
    "slurm-json": sacct_as_json,
    "cobalt": cobalt_rows,
    "intervals": interval_rows,
}
NODES = ["n1", "n2", "n3"]


@st.composite
def exports(draw: st.DrawFn) -> list[list[tuple[str, str, int, int | None]]]:
    """Jobs of three nodes as four exports show them, each a quarter of 400 s: what runs at its end has no end yet."""
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 390))
        jobs.append(
            (
                str(number),
                draw(st.sampled_from(NODES)),
                start,
                draw(st.integers(start + 1, 400)),
            )
        )
    files: list[list[tuple[str, str, int, int | None]]] = []
    for day in range(4):
        since, now = 100 * day, 100 * (day + 1)
        touched = [job for job in jobs if job[2] < now and job[3] >= since]
        late = draw(
            st.booleans()
        )  # exported days later: what ran at midnight is in both days with its end
        files.append(
            [(*job[:3], job[3] if late or job[3] <= now else None) for job in touched]
        )
    return draw(st.permutations(files))


@pytest.mark.parametrize("name", WRITERS)
@given(files=exports())
def test_exports_by_the_day_are_one_log(
    name: str, files: list[list[tuple[str, str, int, int | None]]]
) -> None:
    into, diagnosis = Collector(min_gap_ns=0), Diagnosis(allow_few=True)
    clock = Clock("UTC", diagnosis)
    into.known(NODES)
    for number, jobs in enumerate(files):
        if jobs:
            read_log(
                name,
                Reading(
                    WRITERS[name](jobs).split("\n"),
                    f"day{number}",
                    into,
                    diagnosis,
                    clock,
                ),
            )
    trace, coverage = node_trace(
        into, diagnosis, start_ns=BEGIN_S * S, end_ns=(BEGIN_S + 400) * S
    )
    jobs = [job for file in files for job in file]
    if (
        name == "intervals"
    ):  # which have no ids: two jobs on a node from the same second on are one
        jobs = [(node, node, start, end) for _, node, start, end in jobs]
        closed = {
            job[:3]: max(
                e for *other, e in jobs if e is not None and tuple(other) == job[:3]
            )
            for job in jobs
            if job[3]
        }
        jobs = [(*job[:3], closed.get(job[:3])) for job in jobs]
    busy = busy_seconds(jobs, NODES, 400)
    assert np.array_equal(idle_at(trace, 400), ~busy)
    assert coverage.busy == pytest.approx(busy.mean(), abs=1e-9)
    if name != "intervals":
        assert diagnosis.used == len({(job, start) for job, _, start, _ in jobs})
        assert coverage.intervals == diagnosis.used


@given(files=exports())
def test_counted_jobs_of_exports_by_the_day_are_one_log(
    files: list[list[tuple[str, str, int, int | None]]],
) -> None:
    into, diagnosis = Collector(min_gap_ns=0), Diagnosis(allow_few=True)
    clock = Clock("UTC", diagnosis)
    for number, jobs in enumerate(files):
        if jobs:
            read_log(
                "slurm",
                Reading(
                    sacct_counts(jobs).split("\n"),
                    f"day{number}",
                    into,
                    diagnosis,
                    clock,
                ),
            )
    trace, _ = node_trace(
        into,
        diagnosis,
        start_ns=BEGIN_S * S,
        end_ns=(BEGIN_S + 400) * S,
        machine_nodes=20,
    )
    runs = {job[:3]: 400 for file in files for job in file} | {
        job[:3]: job[3] for file in files for job in file if job[3] is not None
    }
    busy = np.zeros(400, dtype=int)
    for (_, _, start), end in runs.items():
        busy[start:end] += 1
    assert np.array_equal(idle_at(trace, 400).sum(axis=0), 20 - busy)


def test_a_job_running_at_the_end_of_a_day_ends_in_the_next_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("day1").write_text(
        sacct_rows([("1", "n1", 0, 100), ("2", "n1", 120, None), ("3", "n2", 0, None)])
    )
    Path("day2").write_text(
        sacct_rows(
            [("2", "n1", 120, 250), ("4", "n1", 300, None), ("3", "n2", 0, 1000)]
        )
    )
    for order in (("day1", "day2"), ("day2", "day1"), ("day1", "day2", "day1", "day2")):
        account, _ = ingest(
            capsys,
            "slurm",
            *order,
            "--from",
            stamp(0),
            "--to",
            stamp(1000),
            "--min-gap",
            "0",
        )
        assert account["coverage"]["busy"] == pytest.approx(
            (100 + 130 + 700 + 1000) / 2000
        )
        assert account["used"] == 4
        assert (
            losses(account)[
                "job without an end, of which another record states the end"
            ]
            == 2
        )
        assert (
            "job without an end in any record: taken to last to the end of the window"
            in notes(account)
        )
    assert losses(account)["a record that repeats another one of the same job"] == 6
    assert account["coverage"]["intervals"] == 4


def test_a_job_that_starts_again_had_ended(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("day1").write_text(sacct_rows([("1", "n1", 0, None), ("2", "n2", 0, 50)]))
    Path("day2").write_text(
        sacct_rows([("1", "n2", 400, 500), ("2", "n1", 500, 1000)])
    )  # requeued, sacct without -D
    for order in (("day1", "day2"), ("day2", "day1")):
        account, _ = ingest(
            capsys,
            "slurm",
            *order,
            "--from",
            stamp(0),
            "--to",
            stamp(1000),
            "--min-gap",
            "0",
        )
        assert account["coverage"]["busy"] == pytest.approx(
            (400 + 50 + 100 + 500) / 2000
        )
        assert "job without an end starts again later" in notes(account)


@pytest.mark.parametrize("what", ["cluster", "element", "component", "start"])
def test_what_makes_another_job(
    here: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    one, other = {
        "cluster": ("a|1", "b|1"),
        "element": ("a|1_1", "a|1_2"),
        "component": ("a|1+0", "a|1+1"),
        "start": ("a|1", "a|1"),
    }[what]
    again = stamp(0 if what != "start" else 10)
    Path("jobs").write_text(
        f"Cluster|{HEADER}\n{one}|n1|1|{stamp(0)}|{stamp(100)}|COMPLETED\n{other}|n2|1|{again}|{stamp(100)}|COMPLETED\n"
    )
    account, _ = ingest(capsys, "slurm", "jobs", "--from", stamp(0), "--to", stamp(100))
    assert account["used"] == 2
    assert account["coverage"]["busy"] == pytest.approx(1 if what != "start" else 0.95)


def test_two_ends_of_one_job_are_reported_and_the_later_counts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [("1", "n1", 0, 50), ("1", "n1", 0, 80), ("2", "n1", 90, 100)]
    Path("jobs").write_text(sacct_rows(jobs))
    Path("counts").write_text(sacct_counts(jobs))
    for log in ("jobs", "counts"):
        account, _ = ingest(
            capsys,
            "slurm",
            log,
            "--from",
            stamp(0),
            "--to",
            stamp(100),
            "--min-gap",
            "0",
        )
        assert account["coverage"]["busy"] == pytest.approx(0.9)
        assert "have different ends or nodes: the latest end counts" in notes(account)


def test_outages_of_exports_by_the_day_end_too(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(sacct_rows([("1", "n1", 0, 10), ("2", "n2", 0, 1000)]))
    head = "NodeName|TimeStart|TimeEnd|State"
    Path("down1").write_text(f"{head}\nn1|{stamp(100)}|Unknown|DOWN\n")
    Path("down2").write_text(f"{head}\nn1|{stamp(100)}|{stamp(200)}|DOWN\n")
    Path("down.csv").write_text(
        f"node,start,end,state\nn1,{stamp(300)},,down\nn1,{stamp(300)},{stamp(400)},down\n"
    )
    args = [
        part for file in ("down1", "down2", "down.csv") for part in ("--events", file)
    ]
    account, _ = ingest(
        capsys, "slurm", "jobs", *args, "--from", stamp(0), "--to", stamp(1000)
    )
    assert account["coverage"]["unavailable"] == pytest.approx(200 / 2000)
    assert losses(account) == {
        "outage without an end, of which another record states the end": 2
    }


def test_idle_rows_of_exports_by_the_day_end_too(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("day1").write_text(
        f"node,start,end,state\nn1,{stamp(0)},{stamp(10)},idle\nn1,{stamp(80)},,idle\n"
    )
    Path("day2").write_text(
        f"node,start,end,state\nn1,{stamp(80)},{stamp(120)},idle\nn1,{stamp(190)},{stamp(200)},idle\n"
    )
    account, _ = ingest(capsys, "intervals", "day1", "day2", "--min-gap", "0")
    assert account["coverage"]["idle"] == pytest.approx((10 + 40 + 10) / 200)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("name", ["pbs", "lsf-events"])
def test_a_job_under_way_through_several_files_is_one_interval_of_each_node(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, ended: bool
) -> None:
    def at(second: int) -> int:
        return BEGIN_S + second

    pbs = [
        f"02/09/2021 19:46:40;S;1.s;exec_host=n1/0+n2/0 start={at(0)}",
        *(
            f"02/09/2021 19:46:40;E;{job}.s;exec_host=n3/0 start={at(9 * job)} end={at(9 * job + 5)}"
            for job in (2, 3, 4)
        ),
        f"02/09/2021 19:46:40;E;1.s;exec_host=n1/0+n2/0 start={at(0)} end={at(50)}",
    ]
    lsf = [
        f'"JOB_START" "10.1" {at(0)} 1 4 1 1 60.0 2 "n1" "n2" "" "" 0 "" 0\n'
        f'"HOST_CTRL" "10.1" {at(0)} 2 "n4" 1 "root" "disk"',
        *(
            f'"JOB_START" "10.1" {at(9 * job)} {job} 4 1 1 60.0 1 "n3" "" "" 0 "" 0\n'
            f'"JOB_STATUS" "10.1" {at(9 * job + 5)} {job} 64 0 0 0.0 {at(9 * job + 5)} 0 0 0'
            for job in (2, 3, 4)
        ),
        f'"JOB_STATUS" "10.1" {at(50)} 1 64 0 0 0.0 {at(50)} 0 0 0\n"HOST_CTRL" "10.1" {at(50)} 1 "n4" 1 "root" ""',
    ]
    parts = {"pbs": pbs, "lsf-events": lsf}[name][: None if ended else -1]
    for number, part in enumerate(parts):
        Path(f"log{number}").write_text(part + "\n")
    Path("whole").write_text("\n".join(parts) + "\n")
    window = ["--from", stamp(0), "--to", stamp(50)]
    cut, _ = ingest(
        capsys, name, *(f"log{number}" for number in range(len(parts))), *window
    )
    whole, _ = ingest(capsys, name, "whole", *window)
    assert cut["coverage"] == whole["coverage"]
    assert cut["coverage"]["intervals"] == 3 + 2 + (name == "lsf-events")


@pytest.mark.parametrize("name", ["pbs", "lsf-events", "lsf", "sge", "swf"])
def test_a_file_given_twice_counts_once(
    here: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    a, b, c = BEGIN_S, BEGIN_S + 100, BEGIN_S + 300
    texts = {
        "pbs": f"02/09/2021 19:46:40;S;1.s;exec_host=n1/0 start={a}\n"
        f"02/09/2021 19:48:20;E;1.s;exec_host=n1/0 start={a} end={b}\n"
        f"02/09/2021 19:51:40;E;2.s;exec_host=n2/0 start={b} end={c}\n",
        "lsf-events": f'"JOB_START" "10.1" {a} 7 4 1 1 60.0 1 "n1" "" "" 0 "" 0\n'
        f'"JOB_STATUS" "10.1" {b} 7 64 0 0 0.0 {b} 0 0 0\n'
        f'"JOB_START" "10.1" {b} 8 4 1 1 60.0 1 "n2" "" "" 0 "" 0\n'
        f'"JOB_STATUS" "10.1" {c} 8 64 0 0 0.0 {c} 0 0 0\n',
        "sge": "".join(
            f"q:{host}:g:u:j:{job}:sge:0:{start}:{start}:{end}:0:0\n"
            for job, host, start, end in ((1, "n1", a, b), (2, "n2", b, c))
        ),
        "swf": f"; UnixStartTime: {a}\n1 0 0 100 1 -1 -1 -1 -1 -1 1 1 1 -1 -1 1 -1 -1\n"
        "2 100 0 200 1 -1 -1 -1 -1 -1 1 1 1 -1 -1 1 -1 -1\n",
        "lsf": "".join(
            f'"JOB_FINISH" "10.1" {end} {job} 1 33554450 1 {start} 0 0 {start} "u" "q" "" "" "" "h" "" "" "" "" "" '
            f'0 1 "{host}" 64 60.0\n'
            for job, host, start, end in ((1, "n1", a, b), (2, "n2", b, c))
        ),
    }
    Path("log").write_text(texts[name])
    args = [
        "--from",
        stamp(0),
        "--to",
        stamp(300),
        *(["--machine-nodes", "2"] if name == "swf" else []),
    ]
    once, _ = ingest(capsys, name, "log", *args)
    twice, _ = ingest(capsys, name, "log", "log", *args)
    assert twice["coverage"] == once["coverage"]
    assert once["coverage"]["busy"] == pytest.approx(300 / 600)
    assert twice["used"] == once["used"]
    assert losses(twice) == {
        "a record that repeats another one of the same job": once["used"]
    }


def test_a_start_that_is_read_after_its_end_does_not_run_on(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("day1").write_text(
        f"02/09/2021 19:46:40;S;1.s;exec_host=n1/0 start={BEGIN_S}\n"
    )
    Path("day2").write_text(
        f"02/09/2021 19:48:20;E;1.s;exec_host=n1/0 start={BEGIN_S} end={BEGIN_S + 100}\n"
    )
    Path("day3").write_text(
        f"02/09/2021 19:51:40;E;2.s;exec_host=n2/0 start={BEGIN_S} end={BEGIN_S + 300}\n"
    )
    account, err = ingest(
        capsys, "pbs", "day2", "day1", "day3", "--from", stamp(0), "--to", stamp(300)
    )
    assert account["coverage"]["busy"] == pytest.approx(400 / 600)
    assert (
        "warning: a file ends before the one read before it: give files in order of time"
        in err
    )


# -- 4. a list of nodes and logs of counts


def test_a_list_of_nodes_is_the_machine_of_counted_jobs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(sacct_counts([("1", "", 0, 60), ("2", "", 0, 100)]))
    window = ("--from", stamp(0), "--to", stamp(100))
    account, _ = ingest(capsys, "slurm", "jobs", "--nodes", "cn[001-004]", *window)
    trace = read_trace("t.parquet")
    assert trace.nodes == ("cn001", "cn002", "cn003", "cn004")
    assert account["coverage"]["busy"] == pytest.approx(160 / 400)
    assert account["coverage"]["nodes_never_busy"] == 2
    _, err = ingest(
        capsys,
        "slurm",
        "jobs",
        "--nodes",
        "cn[001-004]",
        "--machine-nodes",
        "5",
        *window,
        code=2,
    )
    assert "--machine-nodes: 5, but --nodes lists 4" in err


def test_another_size_in_the_header_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.swf").write_text(
        f"; UnixStartTime: {BEGIN_S}\n; MaxNodes: 9\n; MaxProcs: 9\n1 0 0 100 5 -1 -1 -1 -1 -1 1 1 1 -1 -1 1 -1 -1\n"
    )
    account, err = ingest(
        capsys,
        "swf",
        "w.swf",
        "--nodes",
        "cn[1-4]",
        "--from",
        stamp(0),
        "--to",
        stamp(100),
    )
    assert account["coverage"]["nodes"] == 4
    assert (
        "warning: the log states another number of nodes than the list of nodes" in err
    )
    assert "9, listed are 4" in err
    assert "warning: jobs wanted more nodes than were free" in err


def test_counted_jobs_keep_clear_of_nodes_that_are_down(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(sacct_counts([("1", "", 0, 60), ("2", "", 10, 100)]))
    Path("down.csv").write_text(
        f"node,start,end,state\ncn1,{stamp(0)},{stamp(100)},down\ncn2,{stamp(0)},{stamp(5)},down\n"
    )
    args = [
        "slurm",
        "jobs",
        "--events",
        "down.csv",
        "--from",
        stamp(0),
        "--to",
        stamp(100),
        "--min-gap",
        "0",
    ]
    account, _ = ingest(capsys, *args, "--nodes", "cn[1-3]")
    assert account["coverage"]["busy"] == pytest.approx(150 / 300)
    assert account["coverage"]["unavailable"] == pytest.approx(105 / 300)
    account, _ = ingest(
        capsys, *args, "--machine-nodes", "3"
    )  # the nodes that were down are some of the three
    assert account["coverage"]["nodes"] == 3
    assert account["coverage"]["idle"] == pytest.approx(45 / 300)


def test_machine_nodes_without_effect_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(sacct_rows([("1", "n1", 0, 60)]))
    _, err = ingest(
        capsys,
        "slurm",
        "jobs",
        "--machine-nodes",
        "9",
        "--from",
        stamp(0),
        "--to",
        stamp(90),
    )
    assert "warning: --machine-nodes has no effect: the logs name the nodes" in err


# -- 6. names, windows and rows that do not fit


@pytest.mark.parametrize(
    ("listed", "used"), [("cn[1-3]", "cn{}.hpc.org"), ("cn[1-3].hpc.org", "cn{}")]
)
def test_short_and_full_names_are_one_node(
    here: Path, capsys: pytest.CaptureFixture[str], listed: str, used: str
) -> None:
    Path("jobs").write_text(
        sacct_rows([("1", used.format(1), 0, 60), ("2", used.format(2), 0, 100)])
    )
    Path("down.csv").write_text(
        f"node,start,end,state\ncn1,{stamp(50)},{stamp(70)},down\n"
    )
    args = (
        "slurm",
        "jobs",
        "--events",
        "down.csv",
        "--from",
        stamp(0),
        "--to",
        stamp(100),
        "--min-gap",
        "0",
    )
    account, err = ingest(capsys, *args, "--nodes", listed)
    assert err == "warning: no --reservations: nodes that were reserved look idle\n"
    assert (
        "nodes go by their short and their full name: taken for the same nodes"
        in notes(account)
    )
    assert account["coverage"]["nodes"] == 3
    assert account["coverage"]["foreign_nodes"] == 0
    assert account["coverage"]["busy"] == pytest.approx(160 / 300)
    assert account["coverage"]["unavailable"] == pytest.approx(10 / 300)
    ingest(capsys, *args)  # without a list
    assert len(read_trace("t.parquet").nodes) == 2


@pytest.mark.parametrize(
    ("listed", "used", "why"),
    [
        ("cn[1-3]", "cn001", "they differ in leading zeros"),
        ("cn[1-3]", "CN1", "they differ in capital letters"),
        ("cn[1-3].a,cn[1-3].b", "cn1", "one short name has several"),
        ("cn[1-3].a", "cn1.b", "they differ in their domains"),
        ("10.0.0.[1-3]", "10", "is it the list of another machine?"),
        ("gpu[1-9]", "cn1", "is it the list of another machine?"),
    ],
)
def test_no_job_on_a_listed_node_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], listed: str, used: str, why: str
) -> None:
    Path("jobs").write_text(sacct_rows([("1", used, 0, 60)]))
    _, err = ingest(
        capsys,
        "slurm",
        "jobs",
        "--nodes",
        listed,
        "--from",
        stamp(0),
        "--to",
        stamp(90),
        code=2,
    )
    assert (
        f"jobs: no job ran on a node of the list of nodes: jobs ran on {used}, the list has"
        in err
    )
    assert why in err


def test_the_number_of_unlisted_nodes_gives_a_warning(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(
        sacct_rows([(str(k), f"cn{k}", 0, 10 * k) for k in range(1, 5)])
    )
    account, err = ingest(
        capsys,
        "slurm",
        "jobs",
        "--nodes",
        "cn[1-2]",
        "--from",
        stamp(0),
        "--to",
        stamp(40),
    )
    assert (
        "warning: jobs ran on nodes that are not in the list of nodes: left out: 2 of 4 nodes with jobs, 70.0% of "
        "the jobs' node-time, such as cn3, cn4" in err
    )
    assert account["coverage"]["foreign_nodes"] == 2


def test_events_without_a_listed_node_give_a_warning(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(sacct_rows([("1", "cn1", 0, 60)]))
    Path("down.csv").write_text(
        f"node,start,end,state\ncn001,{stamp(0)},{stamp(50)},down\n"
    )
    args = (
        "slurm",
        "jobs",
        "--nodes",
        "cn[1-2]",
        "--events",
        "down.csv",
        "--from",
        stamp(0),
        "--to",
        stamp(60),
    )
    _, err = ingest(capsys, *args)
    assert (
        "warning: nodes that are not in the list of nodes were down or reserved: left out: 1, such as cn001"
        in err
    )


@pytest.mark.parametrize(
    ("window", "code", "what"),
    [
        (
            ("--from", "2020-02-09", "--to", "2020-02-20"),
            2,
            "the window of observation lies outside the logs",
        ),
        (
            ("--from", "2022-02-09", "--to", "2022-02-20"),
            2,
            "the window of observation lies outside the logs",
        ),
        (
            ("--from", "2020-02-09"),
            2,
            "99% of the window of observation lie outside the logs",
        ),
        (
            ("--to", "2022-02-09"),
            2,
            "99% of the window of observation lie outside the logs",
        ),
        (
            ("--from", "2020-02-09", "--allow-few"),
            0,
            "warning: part of the window lies before the first or after",
        ),
        (
            ("--from", stamp(-DAY)),
            0,
            "warning: part of the window lies before the first or after",
        ),
        (("--from", stamp(0), "--to", stamp(3 * DAY)), 0, ""),
    ],
)
def test_windows_outside_the_log(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    window: tuple[str, ...],
    code: int,
    what: str,
) -> None:
    rows = sacct_rows(
        [(str(k), f"n{k % 3}", 600 * k, 600 * k + 500) for k in range(432)]
    )
    Path("jobs").write_text(rows.replace("COMPLETED", "FAILED", 9))
    _, err = ingest(capsys, "slurm", "jobs", *window, code=code)
    assert what in err
    assert bool(what) == ("outside the logs" in err or "before the first" in err)


def test_few_usable_rows_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = sacct_rows([("1", "n1", 0, 60), ("2", "n2", 0, 90)])
    Path("good").write_text(rows)
    Path("bad").write_text(
        rows + "".join(f"{k}|n1|1|soon|later|COMPLETED\n" for k in range(50))
    )
    _, err = ingest(capsys, "slurm", "good", "bad", code=2)
    assert (
        "bad: only 2 of 52 rows can be used: column Start holds no time: 50 (first: bad, line 4, 'soon')"
        in err
    )
    assert "--allow-few" in err
    assert not Path("t.parquet").exists()
    account, _ = ingest(capsys, "slurm", "good", "bad", "--allow-few")
    assert account["used"] == 2


def test_skipped_rows_are_a_warning(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = sacct_rows(
        [(str(k), f"n{k % 3}", 600 * k, 600 * k + 500) for k in range(99)]
    )
    Path("one").write_text(f"{rows}99|n1|1|soon|later|COMPLETED\n")
    Path("two").write_text(
        f"{rows}99|n1|1|soon|later|COMPLETED\n100|n1|1|soon|later|COMPLETED\n"
    )
    assert "were skipped" not in ingest(capsys, "slurm", "one")[1]
    expected = "warning: 2.0% of the rows with information on nodes were skipped: "
    expected += "the nodes of jobs among them look idle\n"
    assert expected in ingest(capsys, "slurm", "two")[1]


def test_rows_that_are_left_out_are_not_few_usable_ones(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = "".join(f"1.{k}|n1|1|{stamp(0)}|{stamp(60)}|COMPLETED\n" for k in range(99))
    Path("jobs").write_text(
        sacct_rows([("1", "n1", 0, 60), ("2", "n2", 0, 90)]) + steps
    )
    account, _ = ingest(capsys, "slurm", "jobs")
    assert account["used"] == 2


def test_a_log_without_any_job_is_not_an_idle_machine(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("jobs").write_text(
        f"Cluster|{HEADER}\na|1|n1|1|{stamp(0)}|{stamp(60)}|COMPLETED\n"
    )
    Path("down.csv").write_text(
        f"node,start,end,state\nn1,{stamp(0)},{stamp(50)},down\n"
    )
    args = ("slurm", "jobs", "--cluster", "b", "--nodes", "n[1-2]", "--events", "down.csv", "--from", stamp(0), "--to",
            stamp(90))  # fmt: skip
    _, err = ingest(capsys, *args, code=2)
    assert (
        "no row reports when a node was busy or down: all nodes would look idle" in err
    )
    assert "job of another cluster: 1" in err
    account, _ = ingest(capsys, *args, "--allow-few")
    assert account["coverage"]["unavailable"] == pytest.approx(50 / 180)


def test_python_users_get_the_same_refusals() -> None:
    diagnosis = Diagnosis()
    into, clock = Collector(), Clock("UTC", diagnosis)
    bad = [HEADER, *(f"{k}|n1|1|soon|later|COMPLETED" for k in range(50))]
    read_log("slurm", Reading(bad, "bad", into, diagnosis, clock))
    with pytest.raises(InputError, match="only 0 of 50 rows can be used"):
        node_trace(into, diagnosis, start_ns=0, end_ns=S)
