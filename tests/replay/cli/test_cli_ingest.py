"""`bft-replay ingest`: from logs to a trace that can be replayed, and messages for invalid input."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from synthetic_logs import SyntheticJob, stamp, taken, written

from bft.replay.cli.main import run
from bft.replay.cli.recipes import RECIPES, SNAPSHOTS, crontab_line
from bft.replay.trace.trace_files import read_trace

JOBS = [
    SyntheticJob(("n01", "n02"), 0, 40, 0),
    SyntheticJob(("n01",), 45, 100, 2),
    SyntheticJob(("n02",), 60, 120, 1),
    SyntheticJob(("n03",), 50, 50, 0),
]
LACKING = [
    "warning: no --nodes: the machine is taken to have the nodes that jobs name; nodes that ran none are missing in "
    "its size and in its idle time",
    "warning: no --events and no --reservations: nodes that were down or reserved look idle",
]
UTC = ("--tz", "UTC")
WINDOW = ("--from", stamp(0), "--to", stamp(120), *UTC)
Ingest = Callable[..., tuple[str, str]]


@pytest.fixture
def here(here: Path) -> Path:
    """A working folder with the log of some jobs."""
    Path("jobs.sacct").write_text(written("sacct", JOBS))
    return here


@pytest.fixture
def ingest(here: Path, capsys: pytest.CaptureFixture[str]) -> Ingest:
    """Runs the command in that folder; what it prints, on standard output and as errors."""

    def call(*args: str, code: int = 0) -> tuple[str, str]:
        found = run(["ingest", *args])
        told = capsys.readouterr()
        assert found == code, told.err
        return told.out, told.err

    return call


def idle(path: str) -> dict[str, float]:
    """Idle seconds of each node in a window of two minutes."""
    trace = read_trace(path)
    seconds = dict.fromkeys(trace.nodes, trace.duration_s)
    for node, start, end in taken(trace):
        seconds[node] -= min(end, trace.duration_s) - start
    return seconds


def test_a_log_becomes_a_trace(ingest: Ingest) -> None:
    Path("other").mkdir()
    for path in ("t.parquet", "other/t.parquet"):
        out, err = ingest("slurm", "jobs.sacct", "-o", path, *WINDOW, "--machine", "toy")  # fmt: skip
        assert idle(path) == {"n01": 20, "n02": 20, "n03": 120}
        assert read_trace(path).machine == "toy"
    assert "job of zero length: 1 (first: jobs.sacct, line 6" in out
    assert "job step: 1 (first: jobs.sacct, line 5)" in out
    assert "short gaps" in out
    assert err.splitlines() == LACKING
    for name in ("t.parquet", "t.jobs.parquet"):
        assert Path(name).read_bytes() == Path("other", name).read_bytes()
    out, _ = ingest("auto", "jobs.sacct", "-o", "n.csv", *WINDOW[:4], "--json")
    told = json.loads(out)
    assert (told["lines"], told["rows"], told["used"]) == (6, 5, 3)
    assert any("--tz names the machine's" in note["reason"] for note in told["notes"])
    left = {entry["reason"]: entry["count"] for entry in told["left_out"]}
    assert left == {"job step": 1, "job of zero length": 1}
    assert told["coverage"]["nodes_never_busy"] == 1
    assert told["host_jobs"]["jobs"] == 3


@pytest.mark.parametrize("name", ["records.csv", "records.parquet"])
def test_the_table_of_records_says_what_became_of_each_row(ingest: Ingest, name: str) -> None:  # fmt: skip
    Path("bad").write_text(written("sacct", JOBS) + "9|x|n09|1|soon|later|COMPLETED|\n")
    ingest("slurm", "bad", "-o", "t.csv", *WINDOW, "--records", name)
    table = pd.read_csv(name) if name.endswith("csv") else pd.read_parquet(name)
    rows = table[["line", "hosts", "why"]].astype(object).fillna("").to_numpy().tolist()
    assert rows == [
        [2, "n01,n02", ""],
        [3, "n01", ""],
        [4, "n02", ""],
        [6, "n03", "left out: job of zero length"],
        [7, "n09", "skipped: column Start holds no time"],
    ]
    _, err = ingest("slurm", "bad", "-o", "u.csv", "--records", "r.txt", code=2)
    assert "r.txt: a table of records is written as .parquet, .csv" in err


@pytest.mark.parametrize("fields", ["JobID,NodeList,AllocNodes,Start,End,State", "node,start,end,state"])  # fmt: skip
def test_auto_takes_the_format_from_the_fields(ingest: Ingest, fields: str) -> None:
    row = "1|n1|1|2021-02-10T00:00:00|2021-02-10T01:00:00|COMPLETED\n"
    row = "n1,1612915200,1612918800,busy\n" if fields.startswith("node") else row
    Path("bare").write_text(row)
    window = ("--from", "2021-02-10", "--to", "2021-02-10T02:00:00", *UTC)
    ingest("auto", "bare", "--fields", fields, "-o", "t.csv", *window)
    assert read_trace("t.csv").idle_node_seconds() == 3600


def test_all_sources_together(ingest: Ingest) -> None:
    files = {
        "down.txt": written("events", [SyntheticJob(("n03",), 10, 30, 0)]),
        "down.csv": written("intervals", [SyntheticJob(("n04",), 0, 120, 1)]),
        "res.txt": f"ReservationName=m StartTime={stamp(100)} EndTime={stamp(110)}\n   Nodes=n[03-04]\n",
        "nodes.txt": "NodeName=n02 State=IDLE\n",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    command = ("slurm", "jobs.sacct", "-o", "t.parquet", *WINDOW, "--force")
    beside = "--events down.txt --events down.csv --reservations res.txt --nodes n[01-04] --min-gap 0"
    ingest(*command, *beside.split())
    assert idle("t.parquet") == {"n01": 25, "n02": 20, "n03": 90, "n04": 0}
    out, err = ingest(*command, "--nodes", "nodes.txt")
    assert idle("t.parquet") == {"n02": 20}
    why = "jobs ran on nodes that are not in the list of nodes: left out: 1 of 2 nodes with jobs"
    assert why in out
    assert f"warning: {why}" in err
    _, err = ingest(*command, "--nodes", "n[01-10]")
    never = "and has the log all of its jobs?: 8 of 10 nodes"
    assert (
        f"warning: most nodes of the list ran no job: is it the list of this machine, {never}"
        in err
    )


def test_several_files_are_one_log_and_times_are_local(ingest: Ingest) -> None:
    lines = written("sacct", JOBS).splitlines(keepends=True)
    Path("a").write_text("".join(lines[:4]))
    Path("b.gz").write_bytes(gzip.compress("".join([lines[0], *lines[4:]]).encode()))
    zone = "Europe/Berlin"
    Path("c").write_text(written("sacct", JOBS, tz=zone))
    local = ("--from", stamp(0, zone), "--to", stamp(120, zone), "--tz", zone)
    ingest("slurm", "jobs.sacct", "-o", "one.csv", *WINDOW)
    ingest("auto", "a", "b.gz", "-o", "two.csv", *WINDOW)
    ingest("slurm", "c", "-o", "three.csv", *local)
    one = Path("one.csv").read_bytes()
    assert one == Path("two.csv").read_bytes() == Path("three.csv").read_bytes()


def test_what_ingest_assumed_travels_with_the_trace(
    ingest: Ingest, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into parts of the trace and the summary of its replays, but not into what is made to be shown to others."""
    Path("logs").mkdir()
    Path("jobs.sacct").rename("logs/jobs.sacct")
    berlin = ("--tz", "Europe/Berlin")
    argv = ("slurm", "logs/jobs.sacct", "-o", "trace.parquet", "--uncertain", "idle")
    ingest(*argv, *berlin, "--to", "2021-02-10T03:00:00")
    part = ["trace", "cut", "trace.parquet", "--from", "2021-02-10T00:50:00", *berlin]
    assert run([*part, "-o", "part.parquet"]) == 0
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
    shown = ["trace", "anonymise", "part.parquet", "--key", "key"]
    assert run([*shown, "-o", "shown.parquet"]) == 0
    made = read_trace("shown.parquet")
    assert (made.assumptions, made.zone) == ((), "")


FITS = "fits slurm --fields JobID,NodeList,AllocNodes,Start,End,State"
DATES = ("10/02/2021", "13/02/2021", "2021-2-10", "20210210", "Feb 10 2021", "2021-02-30")  # fmt: skip


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ("slurm none.sacct", "none.sacct: no such file"),
        ("slurm .", ".: is a directory"),
        ("slurm empty", "empty: is empty"),
        ("slurm odd", "odd: line 1: expected a header"),
        ("auto odd", "odd: is of no format"),
        *((f"{name} idle.csv", "idle.csv: is a node trace, which ingest writes, and no log")
          for name in ("auto", "slurm", "slurm jobs.sacct --events")),
        ("auto gpus.csv", "(bft-replay -ndmap gpus.csv replays it; evaluate needs the logs"),
        ("auto bare.sacct", FITS),
        ("slurm bare.sacct", FITS),
        ("intervals bare.csv", "fits intervals --fields node,start,end,state"),
        ("auto bare.csv", "fits intervals --fields node,start,end,state"),
        ("auto bare.sacct --fields JobID,AllocNodes,NodeList,Start,End,State", "column 2, by --fields alloc"),
        ("moab jobs.sacct", "'moab' is not one of 'auto', 'slurm'"),
        ("pbs jobs.sacct", "jobs.sacct: "),
        ("slurm jobs.sacct --tz Berlin", "unknown time zone 'Berlin'"),
        ("slurm jobs.sacct --from yesterday", "--from: expected a date"),
        ("slurm jobs.sacct --from 2021-03-01 --to 2021-02-01", "the window of observation is empty"),
        ("slurm jobs.sacct --nodes n[1-", "--nodes: neither a file nor a host list"),
        ("slurm jobs.sacct --nodes missing.txt", "missing.txt: --nodes: there is no such file"),
        ("slurm jobs.sacct --nodes lists/nodes", "lists/nodes: --nodes: there is no such file"),
        ("slurm jobs.sacct --min-gap -1", "--min-gap"),
        ("slurm bad.sacct --strict", "bad.sacct: line 2: column Start holds no time: 'soon'"),
        ("slurm bad.sacct", "column Start holds no time: 1 (first: bad.sacct, line 2"),
        ("slurm jobs.sacct --units-per-node 0", "--units-per-node"),
        ("slurm jobs.sacct --events odd", "odd: line 1: expected a header"),
        ("slurm jobs.sacct -o t.txt", ".parquet, .csv, .csv.gz"),
        ("slurm jobs.sacct -o mine.csv", "--force replaces it"),
        # Whatever stands between, and even with --force.
        ("auto mine.csv -o here/mine.csv --force", "mine.csv: is an input of this command; choose another target"),
        *((f"slurm jobs.sacct {option} mine.csv -o here/mine.csv --force", "mine.csv: is an input of this command")
          for option in ("--nodes", "--events", "--reservations")),
        ("slurm", "FILE..."),
        ("slurm jobs.sacct --recipe moab", "'moab' is not one of 'slurm', 'pbs'"),
    ],
)  # fmt: skip
def test_invalid_input(
    here: Path, refused: Callable[..., str], args: str, what: str
) -> None:
    mine = "node,start,end\nn1,1612915200,1612918800\n"
    files = {
        "empty": "",
        "odd": "hello\nworld\n",
        "bare.sacct": "1|n1|1|2021-02-10T00:00:00|2021-02-10T01:00:00|COMPLETED\n",
        "bare.csv": "n1,1612915200,1612918800,idle\n",
        "idle.csv": "time,node,idle\n2021-02-10T00:00:00Z,n1,1\n",
        "gpus.csv": "time,node,unit,idle\n2021-02-10T00:00:00Z,n1,0,1\n",
        "bad.sacct": "JobID|NodeList|Start|End\n1|n1|soon|2021-02-10T00:00:00\n",
        "mine.csv": mine,
    }
    for name, text in files.items():
        Path(name).write_text(text)
    Path("here").symlink_to(here)
    target = "" if " -o " in args else "-o t.parquet "
    refused(f"ingest {target}{args}", what)


@pytest.mark.parametrize("scheduler", RECIPES)
def test_recipes(ingest: Ingest, scheduler: str) -> None:
    out, _ = ingest("--recipe", scheduler)
    assert f"bft-replay ingest {scheduler}" in out
    assert max(map(len, out.splitlines())) <= 120
    for name in SNAPSHOTS if scheduler == "snapshots" else ():
        line = crontab_line(name)
        assert line in out.splitlines()
        assert line.startswith(r"* * * * * (date +\%s; ")
        assert "%" not in line.replace(r"\%", "")


def test_a_closed_pipe_is_no_failure(here: Path) -> None:
    """Standard input may be packed."""
    call = f"{sys.executable} -c 'from bft.replay.cli import main; main()' ingest slurm - -o t.csv"
    command = f"set -o pipefail; gzip -c jobs.sacct | {call} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode().splitlines()) == (0, LACKING)
    assert Path("t.csv").exists()


@pytest.mark.reference
def test_a_real_log_replays(
    ingest: Ingest, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = reference / "logs/slurm/xdmod-phillips.sacct.log.gz"
    window = ("--tz", "America/New_York", "--from", "2017-01-01", "--to", "2017-01-02")
    ingest("slurm", str(log), "--fields", "xdmod", *window, "-o", "phillips.parquet")
    assert run(["trace", "info", "phillips.parquet", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["nodes"], told["duration_s"]) == (46, 86_400)
    assert len(told["idle_nodes_over_time"]) == 72
    outliving = told["fragments"]["share_outliving_startup"]
    assert {*outliving} == {"30 s", "60 s", "120 s", "300 s"}
    replay = ["-ndmap", "phillips.parquet", "-Tfwd", "120", "--backend", "exact"]
    assert run([*replay, "--out", "run"]) == 0
    assert json.loads(Path("run/summary.json").read_text())


@pytest.mark.parametrize("text", DATES)
def test_all_commands_read_dates_by_the_same_rule(
    ingest: Ingest, here: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    Path("points.csv").write_text("model,units,throughput\na,1,10\na,2,19\n")
    ingest("slurm", "jobs.sacct", "-o", "trace.csv", *WINDOW)
    for command in (
        ["generate", "trace", "--start", text, "-o", "made.parquet"],
        ["generate", "jobs", "--first-submit", text, "-o", "made.csv"],
        ["ingest", "slurm", "jobs.sacct", "--from", text, "-o", "made.csv"],
        ["trace", "cut", "trace.csv", "--to", text, "-o", "made.csv"],
        ["jobs", "fit", "points.csv", "--submit", text, "-o", "made.csv"],
    ):
        assert run(command) == 2, command
        err = capsys.readouterr().err
        assert text in err
        assert "2021-02-10T" in err  # how to write it
    assert not list(here.glob("made*"))
