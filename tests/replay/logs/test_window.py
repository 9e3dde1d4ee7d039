"""The window of observation that is derived from a log, held against logs of which the idle share is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bft.datasets import generate_log
from bft.replay.cli.main import run
from bft.replay.logs.repeated_records import OPEN, JobTimes
from bft.replay.trace.node_trace import SECOND_NS

HEADER = "JobID|JobName|NodeList|AllocNodes|Start|End|State"
FROM, TO = "2024-03-06T00:00:00", "2024-03-16T00:00:00"
NODES = 32
Row = list[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def exported() -> list[Row]:
    """What `sacct -S FROM -E TO` shows of a machine: jobs that ran in the window, with their true ends."""
    rows = [
        line.split("|")
        for line in generate_log("slurm", nodes=NODES, days=16).splitlines()[1:]
    ]
    assert all(len(row) == 7 for row in rows)
    rows[::9] = [
        [*row[:6], "TIMEOUT"] if row[6] == "COMPLETED" else row for row in rows[::9]
    ]
    return [row for row in rows if row[4] < TO and row[5] > FROM]


def ingest(
    capsys: pytest.CaptureFixture[str], rows: list[Row], *args: str
) -> tuple[dict[str, Any], str]:
    """Coverage and standard error of `ingest slurm` as the README has it, apart from these options."""
    Path("sacct.txt").write_text(
        "\n".join([HEADER, *("|".join(row) for row in rows)]) + "\n"
    )
    capsys.readouterr()
    assert (
        run(
            [
                "ingest",
                "slurm",
                "sacct.txt",
                "--tz",
                "UTC",
                "-o",
                "t.parquet",
                "--force",
                "--json",
                *args,
            ]
        )
        == 0
    )
    told = capsys.readouterr()
    return json.loads(told.out)["coverage"], told.err


def last_to_run(rows: list[Row]) -> int:
    """Place of the latest job that still ran at the end of the export."""
    return max(
        (k for k, row in enumerate(rows) if row[5] > TO), key=lambda k: rows[k][4]
    )


def with_end(rows: list[Row], place: int, end: str) -> list[Row]:
    return [
        [*row[:5], end, row[6]] if k == place else row for k, row in enumerate(rows)
    ]


@pytest.mark.parametrize("long_job", [False, True])
def test_without_a_window_the_idle_share_is_that_of_the_time_in_which_jobs_could_be_shown(
    here: Path, capsys: pytest.CaptureFixture[str], exported: list[Row], long_job: bool
) -> None:
    rows = (
        with_end(exported, last_to_run(exported), "2024-03-22T20:00:00")
        if long_job
        else exported
    )
    truth, _ = ingest(
        capsys, rows, "--nodes", f"cn[01-{NODES}]", "--from", FROM, "--to", TO
    )
    derived, _ = ingest(capsys, rows)
    assert derived["idle"] == pytest.approx(truth["idle"], abs=0.01)
    assert derived["node_seconds"] == pytest.approx(truth["node_seconds"], rel=0.03)
    assert (
        max(row[5] for row in rows) > TO
    )  # ends beyond the export are shown, starts are not


def test_a_mistyped_year_stretches_no_window_and_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], exported: list[Row]
) -> None:
    place = last_to_run(exported)
    truth, before = ingest(capsys, exported)
    assert "mistyped" not in before
    derived, err = ingest(capsys, with_end(exported, place, "2034-03-16T01:00:00"))
    assert derived["node_seconds"] == truth["node_seconds"]
    assert derived["idle"] == pytest.approx(truth["idle"], abs=0.01)
    assert (
        "warning: one job ends long after all others, and its nodes are busy until the window ends: a mistyped year?: "
        f"2034-03-16T01:00:00Z (sacct.txt, line {place + 2})" in err
    )


@pytest.mark.parametrize(
    ("column", "year", "what"),
    [
        (4, "2034", "one job starts long after all others and stretches the window"),
        (5, "2014", "one job ends long before all others and stretches the window"),
    ],
)
def test_a_record_that_stretches_the_window_is_named(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    exported: list[Row],
    column: int,
    year: str,
    what: str,
) -> None:
    row = list(exported[20])
    row[4], row[5] = f"{year}-03-08T10:00:00", f"{year}-03-08T11:00:00"
    _, err = ingest(capsys, [*exported[:20], row, *exported[21:]], "--allow-few")
    assert f"warning: {what}: a mistyped year?" in err
    assert "sacct.txt, line 22" in err
    _, err = ingest(
        capsys, [*exported[:20], row, *exported[21:]], "--from", FROM, "--to", TO
    )
    assert "mistyped" not in err


def test_a_window_that_ends_long_after_the_last_start_gives_a_warning(
    here: Path, capsys: pytest.CaptureFixture[str], exported: list[Row]
) -> None:
    long = with_end(exported, last_to_run(exported), "2024-03-22T20:00:00")
    _, err = ingest(capsys, long, "--from", FROM, "--to", "2024-03-22T20:00:00")
    assert (
        "warning: no job starts in the last part of the window: does the log show jobs up to its end?"
        in err
    )
    _, err = ingest(capsys, long, "--from", FROM, "--to", TO)
    assert "no job starts" not in err


@pytest.mark.parametrize("scheduler", ["lsf", "sge"])
def test_accounting_of_ended_jobs_says_how_much_of_the_jobs_time_is_missing(
    here: Path, capsys: pytest.CaptureFixture[str], scheduler: str
) -> None:
    Path("log").write_text(generate_log(scheduler, nodes=NODES, days=2))
    args = ["ingest", scheduler, "log", "--tz", "UTC", "-o", "t.parquet", "--force"]
    window = ["--from", "2024-03-04", "--to"]
    assert run([*args, *window, "2024-03-06"]) == 0
    assert (
        "jobs that ran when the log ended are not in it, and their nodes look idle"
        in capsys.readouterr().err
    )
    assert (
        run([*args, *window, "2024-03-05T06:00:00"]) == 0
    )  # 18 hours before, most jobs had ended
    assert "jobs that ran when the log ended" not in capsys.readouterr().err


def test_records_as_they_happen_show_the_machine_up_to_the_last_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stamps = [
        "01/02/2024 10:00:00",
        "01/02/2024 10:30:00",
        "01/02/2024 11:00:00",
        "01/02/2024 13:00:00",
    ]
    begin = 1704189600
    job = "exec_host=n{0}/0 start={1}"
    lines = [
        f"{stamps[0]};S;1;{job.format(1, begin)}",
        f"{stamps[1]};E;1;{job.format(1, begin)} end={begin + 1800}",
        f"{stamps[2]};S;2;{job.format(2, begin + 3600)}",
        f"{stamps[3]};E;2;{job.format(2, begin + 3600)} end={begin + 10800}",
    ]
    Path("acct").write_text("\n".join(lines) + "\n")
    assert (
        run(["ingest", "pbs", "acct", "--tz", "UTC", "-o", "t.parquet", "--json"]) == 0
    )
    coverage = json.loads(capsys.readouterr().out)["coverage"]
    assert coverage["node_seconds"] == 2 * (
        10800 - 1800
    )  # to the last record, which is an end


def by_simulation(
    length: Callable[[np.random.Generator, int], Any], cut_s: int, span_s: int
) -> tuple[float, float]:
    """Share of the jobs' time before `cut_s` that jobs beyond the log's end had: as it is, and as it is estimated."""
    rng = np.random.default_rng(5)
    starts = np.sort(rng.integers(0, span_s, 20_000))
    ends = starts + length(rng, len(starts))
    shown = ends <= span_s
    times = JobTimes()
    times.add_together(starts[shown] * SECOND_NS, ends[shown] * SECOND_NS)
    of_all, of_shown = (
        np.clip(np.minimum(ends[some], cut_s) - starts[some], 0, None).sum()
        for some in (shown | True, shown)
    )
    estimate = times.missing_share(
        int(ends[shown].min()) * SECOND_NS, cut_s * SECOND_NS, only_ended=True
    )
    return (of_all - of_shown) / of_shown, estimate


@pytest.mark.parametrize("early_s", [0, 3600, 20_000])
def test_the_estimate_of_what_is_missing_is_that_of_a_simulation(early_s: int) -> None:
    def exponential(rng: np.random.Generator, count: int) -> Any:
        return 60 + rng.exponential(7200, count).astype(np.int64)

    missing, estimate = by_simulation(exponential, 200_000 - early_s, 200_000)
    assert estimate == pytest.approx(missing, rel=0.15, abs=5e-4)


def test_jobs_that_still_run_are_no_sign_of_missing_ones() -> None:
    times = JobTimes()
    starts = np.arange(0, 1000, 10) * SECOND_NS
    times.add_together(
        starts, np.where(starts < 700 * SECOND_NS, starts + 300 * SECOND_NS, OPEN)
    )
    assert times.missing_share(0, 995 * SECOND_NS, only_ended=False) == 0


# -- sources that are missing, and outages that have no end


LACK = ["no --events and no --reservations", "no --nodes", "no job ran twice"]
EVENTS = "NodeName|TimeStart|TimeEnd|State\n"


def lacking(err: str) -> list[str]:
    """What standard error says is missing; each in one line."""
    lines = err.splitlines()
    return [
        what
        for what in LACK
        if sum(line.startswith(f"warning: {what}") for line in lines) == 1
    ]


def test_each_source_that_is_missing_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], exported: list[Row]
) -> None:
    Path("events").write_text(
        f"{EVENTS}cn01|2024-03-01T00:00:00|2024-03-02T00:00:00|DOWN\n"
    )
    Path("reservations").write_text("NodeNames|TimeStart|TimeEnd\n")
    window = ["--from", FROM, "--to", TO]
    _, err = ingest(capsys, exported, *window)
    assert lacking(err) == LACK
    assert "27.9 instead of 24.9 % idle" in err
    again = [
        *exported[50][:4],
        "2024-03-15T23:00:00",
        "2024-03-15T23:00:05",
        "COMPLETED",
    ]  # that job, once more
    sources = [
        "--events",
        "events",
        "--reservations",
        "reservations",
        "--nodes",
        f"cn[01-{NODES}]",
    ]
    _, err = ingest(capsys, [*exported, again], *window, *sources)
    assert lacking(err) == []
    _, err = ingest(
        capsys, exported[:99], *window, *sources[:2], "--allow-few"
    )  # too few jobs to miss a requeued one
    assert "warning: no --reservations: nodes that were reserved look idle\n" in err
    assert lacking(err) == ["no --nodes"]


def test_an_outage_without_an_end_ends_when_a_job_starts_on_the_node(
    here: Path, capsys: pytest.CaptureFixture[str], exported: list[Row]
) -> None:
    window = ["--from", FROM, "--to", TO, "--nodes", f"cn[01-{NODES}]"]
    plain, _ = ingest(capsys, exported, *window)
    Path("events").write_text(
        f"{EVENTS}cn[01-{NODES}]|2020-01-01T00:00:00|Unknown|DOWN\n"
    )
    stale, err = ingest(capsys, exported, *window, "--events", "events")
    assert stale["busy"] == plain["busy"]
    assert stale["idle"] == pytest.approx(
        plain["idle"], abs=0.02
    )  # idle until each node's first job apart
    assert (
        f"it ends on each node with the first one: {NODES} (first: events, line 2)"
        in err
    )
    Path("reserved").write_text(
        f"NodeNames|TimeStart|TimeEnd\ncn[01-{NODES}]|2020-01-01T00:00:00|Unknown\n"
    )
    kept, err = ingest(capsys, exported, *window, "--reservations", "reserved")
    assert kept["idle"] == 0  # jobs run in a reservation, and it goes on
    assert "ends on each node" not in err


def test_an_outage_of_a_node_without_later_jobs_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [[str(k), "r", "n[1-2]" if k < 3 else "n1", "2" if k < 3 else "1", f"2024-03-08T0{k}:00:00",
             f"2024-03-08T0{k}:30:00", "COMPLETED"] for k in range(6)]  # fmt: skip
    Path("events").write_text(
        f"{EVENTS}n[1-2]|2024-03-08T01:15:00|Unknown|DRAIN\nn2|2024-03-08T02:45:00||DOWN\n"
    )
    window = [
        "--from",
        "2024-03-08",
        "--to",
        "2024-03-08T06:00:00",
        "--nodes",
        "n[1-2]",
    ]
    coverage, err = ingest(capsys, rows, *window, "--events", "events")
    hours = coverage["node_seconds"] / 3600
    # Both nodes drain until the jobs at 2:00, n2 is down from 2:45 to the end: 0.5 h each, and 3.25 h.
    assert coverage["unavailable"] * hours == pytest.approx(2 * 0.5 + 3.25)
    assert "it ends on each node with the first one: 2 (first: events, line 2)" in err


def test_nodes_that_events_alone_name_are_left_out(
    here: Path, capsys: pytest.CaptureFixture[str], exported: list[Row]
) -> None:
    Path("events").write_text(
        f"{EVENTS}login9,cn01|2024-03-08T00:00:00|2024-03-08T01:00:00|DOWN\n"
    )
    coverage, err = ingest(
        capsys, exported, "--from", FROM, "--to", TO, "--events", "events"
    )
    assert coverage["nodes"] == NODES
    assert (
        "warning: nodes that only --events or --reservations name are left out" in err
    )
    assert "1, such as login9" in err
    listed = ["--nodes", f"login9,cn[01-{NODES}]"]
    coverage, err = ingest(
        capsys, exported, "--from", FROM, "--to", TO, "--events", "events", *listed
    )
    assert coverage["nodes"] == NODES + 1
    assert "left out" not in err


@pytest.mark.parametrize("names", ["cn01,cn01.a.de,cn01.b.de", "cn01,cn01.a.de"])
def test_a_list_with_two_names_of_a_node_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], exported: list[Row], names: str
) -> None:
    Path("sacct.txt").write_text(
        "\n".join([HEADER, *("|".join(row) for row in exported)]) + "\n"
    )
    listed = f"cn[02-{NODES}],{names}"
    assert (
        run(
            [
                "ingest",
                "slurm",
                "sacct.txt",
                "--tz",
                "UTC",
                "-o",
                "t.parquet",
                "--nodes",
                listed,
            ]
        )
        == 2
    )
    assert (
        "the list of nodes has the short name cn01 and the full name cn01.a.de"
        in capsys.readouterr().err
    )


def test_short_names_with_several_full_ones_are_said(
    here: Path, capsys: pytest.CaptureFixture[str], exported: list[Row]
) -> None:
    rows = [
        [*row[:2], name, "1", *row[4:]]
        for row, name in zip(exported, ["n1", "n1.a.de", "n1.b.de"], strict=False)
    ]
    coverage, err = ingest(capsys, rows, "--allow-few")
    assert coverage["nodes"] == 3
    assert (
        "warning: short names have several full ones: each counts as a node of its own: 1, such as n1"
        in err
    )
