"""`bft-replay ingest`: from logs to a trace that can be replayed, and messages for invalid input."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_logs import interval_table, sacct, sacctmgr_events, stamp
from synthetic_logs_more import SyntheticJob

from bft.models.atomic_files import drafted
from bft.replay.cli.main import run
from bft.replay.cli.recipes import RECIPES, SNAPSHOTS
from bft.replay.trace.trace_files import read_trace

JOBS = [
    SyntheticJob(("n01", "n02"), 0, 40, 0),
    SyntheticJob(("n01",), 45, 100, 2),
    SyntheticJob(("n02",), 60, 120, 1),
    SyntheticJob(("n03",), 50, 50, 0),
]
LACKING = [
    "warning: no --nodes: the machine is taken to have the nodes that jobs name; 1 % of nodes that ran none are 1 % of "
    "idle time too little",
    "warning: no --events and no --reservations: nodes that were down or reserved look idle (a test log: 27.9 instead "
    "of 24.9 % idle)",
]
WINDOW = ("--from", stamp(0), "--to", stamp(120), "--tz", "UTC")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with the log of some jobs."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.sacct").write_text(sacct(JOBS))
    return tmp_path


def idle(path: str) -> dict[str, float]:
    """Idle seconds of each node."""
    trace = read_trace(path)
    from bft.replay.trace.trace_statistics import fragments

    found = fragments(trace)
    return {
        name: float(found.seconds[found.node == k].sum())
        for k, name in enumerate(trace.nodes)
    }


def test_a_log_becomes_a_trace(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(
            [
                "ingest",
                "slurm",
                "jobs.sacct",
                "-o",
                "t.parquet",
                *WINDOW,
                "--machine",
                "toy",
            ]
        )
        == 0
    )
    out, err = capsys.readouterr()
    assert idle("t.parquet") == {"n01": 20, "n02": 20, "n03": 120}
    assert read_trace("t.parquet").machine == "toy"
    assert "job of zero length: 1 (first: jobs.sacct, line 6)" in out
    assert "job step: 1 (first: jobs.sacct, line 5)" in out
    assert "short gaps" in out
    assert err.splitlines() == LACKING


@pytest.mark.parametrize(
    "fields", ["JobID,NodeList,AllocNodes,Start,End,State", "node,start,end,state"]
)
def test_auto_takes_the_format_from_the_fields(here: Path, fields: str) -> None:
    Path("bare.sacct").write_text(
        "1|n1|1|2021-02-10T00:00:00|2021-02-10T01:00:00|COMPLETED\n"
    )
    Path("bare.csv").write_text("n1,1612915200,1612918800,busy\n")
    file = "bare.csv" if fields.startswith("node") else "bare.sacct"
    window = [
        "--from",
        "2021-02-10T00:00:00",
        "--to",
        "2021-02-10T02:00:00",
        "--tz",
        "UTC",
    ]
    assert (
        run(["ingest", "auto", file, "--fields", fields, "-o", "t.csv", *window]) == 0
    )
    assert idle("t.csv") == {"n1": 3600}


def test_json_holds_the_whole_account(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ingest", "auto", "jobs.sacct", "-o", "t.csv", *WINDOW, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["lines"], told["rows"], told["used"]) == (6, 5, 3)
    assert {entry["reason"]: entry["count"] for entry in told["left_out"]} == {
        "job step": 1,
        "job of zero length": 1,
    }
    shares = [
        told["coverage"][part] for part in ("busy", "unavailable", "idle", "short_gaps")
    ]
    assert sum(shares) == pytest.approx(1)
    assert told["coverage"]["gaps_closed"] == 1
    assert told["coverage"]["nodes_never_busy"] == 1


def test_all_sources_together(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("down.txt").write_text(sacctmgr_events([SyntheticJob(("n03",), 10, 30, 0)]))
    Path("down.csv").write_text(interval_table([SyntheticJob(("n04",), 0, 120, 1)]))
    Path("res.txt").write_text(
        f"ReservationName=m StartTime={stamp(100)} EndTime={stamp(110)}\n   Nodes=n[03-04]\n"
    )
    args = [
        "--events",
        "down.txt",
        "--events",
        "down.csv",
        "--reservations",
        "res.txt",
        "--nodes",
        "n[01-04]",
    ]
    assert (
        run(
            [
                "ingest",
                "slurm",
                "jobs.sacct",
                "-o",
                "t.parquet",
                *WINDOW,
                *args,
                "--min-gap",
                "0",
            ]
        )
        == 0
    )
    assert idle("t.parquet") == {"n01": 25, "n02": 20, "n03": 90, "n04": 0}
    Path("nodes.txt").write_text("NodeName=n02 State=IDLE\n")
    assert (
        run(
            [
                "ingest",
                "slurm",
                "jobs.sacct",
                "-o",
                "t.parquet",
                *WINDOW,
                "--nodes",
                "nodes.txt",
                "--force",
            ]
        )
        == 0
    )
    assert idle("t.parquet") == {"n02": 20}
    out, err = capsys.readouterr()
    assert (
        "jobs ran on nodes that are not in the list of nodes: left out: 1 of 2 nodes with jobs"
        in out
    )
    assert "warning: jobs ran on nodes that are not in the list of nodes" in err


def test_several_files_are_one_log(here: Path) -> None:
    lines = sacct(JOBS).splitlines(keepends=True)
    Path("a").write_text("".join(lines[:4]))
    Path("b.gz").write_bytes(gzip.compress("".join([lines[0], *lines[4:]]).encode()))
    assert run(["ingest", "auto", "a", "b.gz", "-o", "two.csv", *WINDOW]) == 0
    assert run(["ingest", "slurm", "jobs.sacct", "-o", "one.csv", *WINDOW]) == 0
    assert Path("one.csv").read_bytes() == Path("two.csv").read_bytes()


def test_what_ingest_assumed_travels_with_the_trace(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into parts of the trace and the summary of its replays, but not into what is made to be shown to others."""
    (here / "logs").mkdir()
    Path("jobs.sacct").rename("logs/jobs.sacct")
    argv = ["ingest", "slurm", "logs/jobs.sacct", "-o", "trace.parquet"]
    argv += ["--uncertain", "idle"]
    assert run([*argv, "--tz", "Europe/Berlin", "--to", "2021-02-10T03:00:00"]) == 0
    part = ["trace", "slice", "trace.parquet", "--from", "2021-02-10T00:50:00"]
    assert run([*part, "--tz", "Europe/Berlin", "-o", "part.parquet"]) == 0
    replay = ["-ndmap", "part.parquet", "--backend", "exact", "--no-u"]
    assert run([*replay, "--out", "run"]) == 0
    capsys.readouterr()
    trace = json.loads(Path("run/summary.json").read_text())["inputs"]["trace"]
    assert trace["zone"] == "Europe/Berlin"
    assumptions = "\n".join(trace["assumptions"])
    assert "the window begins with the first end of a job" in assumptions
    assert "no --events and no --reservations" in assumptions
    assert "logs/" not in assumptions
    assert run(["trace", "info", "part.parquet"]) == 0
    assert "no --events and no --reservations" in capsys.readouterr().out
    Path("key").write_bytes(b"sixteen bytes or more")
    shown = [
        "trace",
        "anonymise",
        "part.parquet",
        "--key",
        "key",
        "-o",
        "shown.parquet",
    ]
    assert run(shown) == 0
    made = read_trace("shown.parquet")
    assert (made.assumptions, made.zone) == ((), "")


def test_the_same_input_gives_the_same_bytes(here: Path) -> None:
    for folder in ("a", "b"):
        assert (
            run(["ingest", "slurm", "jobs.sacct", "-o", f"{folder}/t.parquet", *WINDOW])
            == 0
        )
    assert Path("a/t.parquet").read_bytes() == Path("b/t.parquet").read_bytes()


def test_times_are_local(here: Path) -> None:
    Path("berlin.sacct").write_text(sacct(JOBS, tz="Europe/Berlin"))
    window = [
        "--from",
        stamp(0, "Europe/Berlin"),
        "--to",
        stamp(120, "Europe/Berlin"),
        "--tz",
        "Europe/Berlin",
    ]
    assert run(["ingest", "slurm", "berlin.sacct", "-o", "b.csv", *window]) == 0
    assert run(["ingest", "slurm", "jobs.sacct", "-o", "u.csv", *WINDOW]) == 0
    assert Path("b.csv").read_bytes() == Path("u.csv").read_bytes()


def test_without_a_zone_the_guess_is_reported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ingest", "slurm", "jobs.sacct", "-o", "t.csv"]) == 0
    assert "--tz names the machine's" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["slurm", "none.sacct"], "none.sacct: no such file"),
        (["slurm", "."], ".: is a directory"),
        (["slurm", "empty"], "empty: is empty"),
        (["slurm", "binary"], "binary: is a program"),
        (["slurm", "odd"], "odd: line 1: expected a header"),
        (["auto", "odd"], "odd: is of no format"),
        (
            ["auto", "bare.sacct"],
            "fits slurm --fields JobID,NodeList,AllocNodes,Start,End,State",
        ),
        (
            ["slurm", "bare.sacct"],
            "fits slurm --fields JobID,NodeList,AllocNodes,Start,End,State",
        ),
        (["intervals", "bare.csv"], "fits intervals --fields node,start,end,state"),
        (["auto", "bare.csv"], "fits intervals --fields node,start,end,state"),
        (
            [
                "auto",
                "bare.sacct",
                "--fields",
                "JobID,AllocNodes,NodeList,Start,End,State",
            ],
            "column 2, by --fields alloc",
        ),
        (["moab", "jobs.sacct"], "'moab' is not one of 'auto', 'slurm'"),
        (["pbs", "jobs.sacct"], "jobs.sacct: "),
        (["slurm", "jobs.sacct", "--tz", "Berlin"], "unknown time zone 'Berlin'"),
        (["slurm", "jobs.sacct", "--from", "yesterday"], "--from: expected a date"),
        (
            ["slurm", "jobs.sacct", "--from", "2021-03-01", "--to", "2021-02-01"],
            "the window of observation is empty",
        ),
        (
            ["slurm", "jobs.sacct", "--nodes", "n[1-"],
            "--nodes: neither a file nor a host list",
        ),
        (["slurm", "jobs.sacct", "--min-gap", "-1"], "--min-gap"),
        (
            ["slurm", "bad.sacct", "--strict"],
            "bad.sacct: line 2: column Start holds no time: 'soon'",
        ),
        (
            ["slurm", "bad.sacct"],
            "column Start holds no time: 1 (first: bad.sacct, line 2",
        ),
        (["slurm", "jobs.sacct", "--units-per-node", "0"], "--units-per-node"),
        (["slurm", "jobs.sacct", "--events", "odd"], "odd: line 1: expected a header"),
        (["slurm"], "FILE..."),
        (["slurm", "jobs.sacct", "--recipe", "moab"], "no recipe for 'moab'"),
    ],
)
def test_invalid_input(
    here: Path, capsys: pytest.CaptureFixture[str], args: list[str], what: str
) -> None:
    Path("empty").touch()
    Path("binary").write_bytes(b"\x7fELF" + bytes(range(256)))
    Path("odd").write_text("hello\nworld\n")
    Path("bare.sacct").write_text(
        "1|n1|1|2021-02-10T00:00:00|2021-02-10T01:00:00|COMPLETED\n"
    )
    Path("bare.csv").write_text("n1,1612915200,1612918800,idle\n")
    Path("bad.sacct").write_text(
        "JobID|NodeList|Start|End\n1|n1|soon|2021-02-10T00:00:00\n"
    )
    assert run(["ingest", *args, "-o", "t.parquet"]) == 2
    out, err = capsys.readouterr()
    assert what in err
    assert "Traceback" not in err + out
    assert not Path("t.parquet").exists()
    assert not list(here.glob(".part*"))


def test_a_target_is_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.csv").write_text("mine")
    assert run(["ingest", "slurm", "jobs.sacct", "-o", "t.csv"]) == 2
    assert run(["ingest", "slurm", "jobs.sacct", "-o", "t.txt"]) == 2
    err = capsys.readouterr().err
    assert "--force replaces it" in err
    assert ".parquet, .csv or .csv.gz" in err
    assert Path("t.csv").read_text() == "mine"


@pytest.mark.parametrize("scheduler", RECIPES)
def test_recipes(capsys: pytest.CaptureFixture[str], scheduler: str) -> None:
    assert run(["ingest", "--recipe", scheduler]) == 0
    out = capsys.readouterr().out
    assert f"bft-replay ingest {scheduler}" in out
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("scheduler", SNAPSHOTS)
def test_the_recipe_of_snapshots_for_one_scheduler(
    capsys: pytest.CaptureFixture[str], scheduler: str
) -> None:
    assert run(["ingest", "--recipe", "snapshots"]) == 0
    all_lines = capsys.readouterr().out.splitlines()
    assert (
        run(["ingest", "--scheduler", scheduler.upper(), "--recipe", "snapshots"]) == 0
    )
    (line,) = capsys.readouterr().out.splitlines()
    assert line in all_lines
    assert line.startswith(r"* * * * * (date +\%s; ")
    assert "%" not in line.replace(r"\%", "")


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (
            ["--recipe", "snapshots", "--scheduler", "slrum"],
            "no snapshots of 'slrum'; there are those of slurm, pbs",
        ),
        (
            ["--recipe", "slurm", "--scheduler", "slurm"],
            "--scheduler belongs to --recipe snapshots",
        ),
        (
            ["slurm", "jobs.sacct", "-o", "t.csv", "--scheduler", "slurm"],
            "--scheduler belongs to --recipe snapshots",
        ),
    ],
)
def test_schedulers_without_a_recipe(
    capsys: pytest.CaptureFixture[str], args: list[str], what: str
) -> None:
    assert run(["ingest", *args]) == 2
    assert what in capsys.readouterr().err


def test_a_closed_pipe_is_no_failure(here: Path) -> None:
    command = f"{sys.executable} -c 'from bft.replay.cli import main; main()' ingest slurm - -o t.csv < jobs.sacct"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 1"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr.decode().splitlines()) == (0, LACKING)
    assert Path("t.csv").exists()


@pytest.mark.reference
def test_a_real_log_replays(
    here: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = reference / "logs/slurm/xdmod-phillips.sacct.log.gz"
    args = [
        "--fields",
        "xdmod",
        "--tz",
        "America/New_York",
        "--from",
        "2017-01-01",
        "--to",
        "2017-01-02",
    ]
    assert run(["ingest", "slurm", str(log), *args, "-o", "phillips.parquet"]) == 0
    assert run(["trace", "info", "phillips.parquet", "--json"]) == 0
    out = capsys.readouterr().out
    told = json.loads(out[out.index("{") :])
    assert told["nodes"] == 46
    assert told["duration_s"] == 86_400
    assert len(told["idle_nodes_over_time"]) == 72
    assert set(told["fragments"]["share_outliving_startup"]) == {
        "30 s",
        "60 s",
        "120 s",
        "300 s",
    }
    assert (
        run(
            [
                "-ndmap",
                "phillips.parquet",
                "-Tfwd",
                "120",
                "--backend",
                "exact",
                "--out",
                "run",
            ]
        )
        == 0
    )
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary


@pytest.mark.parametrize("option", ["FILE", "--nodes", "--events", "--reservations"])
def test_a_target_that_is_an_input_is_refused_even_with_force(
    here: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    log = Path("log.csv")
    log.write_text("node,start,end\nn1,1612915200,1612918800\n")
    before = log.read_bytes()
    named = ["log.csv"] if option == "FILE" else ["jobs.sacct", option, "log.csv"]
    Path("other").symlink_to(here)
    assert run(["ingest", "auto", *named, "-o", "other/log.csv", "--force"]) == 2
    assert (
        "log.csv: is an input of this command; choose another target"
        in capsys.readouterr().err
    )
    assert log.read_bytes() == before


def test_what_a_killed_command_left_is_removed_by_the_next(here: Path) -> None:
    script = (
        "import os, signal\n"
        "from bft.models.atomic_files import drafted\n"
        "with drafted('t.parquet') as draft:\n"
        "    draft.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert len(list(here.glob(".part*"))) == 1
    with drafted("other.txt") as draft:
        draft.write_text("whole")
        with drafted("second.txt") as second:  # what is still being written stays
            second.write_text("too")
    assert sorted(path.name for path in here.iterdir()) == [
        "jobs.sacct",
        "other.txt",
        "second.txt",
    ]


def test_a_list_of_nodes_that_is_no_file_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("missing.txt", "lists/nodes"):
        assert (
            run(["ingest", "slurm", "jobs.sacct", "-o", "t.csv", "--nodes", name]) == 2
        )
        assert f"{name}: --nodes: there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["10/02/2021", "13/02/2021", "2021-2-10", "20210210", "Feb 10 2021", "2021-02-30"],
)
def test_all_commands_read_dates_by_the_same_rule(
    here: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    Path("points.csv").write_text("model,units,throughput\na,1,10\na,2,19\n")
    for command in (
        ["generate", "trace", "--start", text, "-o", "made.parquet"],
        ["generate", "jobs", "--first-submit", text, "-o", "made.csv"],
        ["ingest", "slurm", "jobs.sacct", "--from", text, "-o", "made.csv"],
        ["trace", "slice", "trace.csv", "--to", text, "-o", "made.csv"],
        ["jobs", "fit", "points.csv", "--submit", text, "-o", "made.csv"],
    ):
        run(["ingest", "slurm", "jobs.sacct", "-o", "trace.csv", *WINDOW, "--force"])
        capsys.readouterr()
        assert run(command) == 2, command
        err = capsys.readouterr().err
        assert text in err
        assert "2021-02-10T" in err  # how to write it
    assert not list(here.glob("made*"))
