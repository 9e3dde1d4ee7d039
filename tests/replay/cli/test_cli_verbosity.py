"""Output on standard error: by default, with -v and -vv, with -q."""

import json
import logging
import os
import pty
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from packages import planted
from processes import AMPLE_S, SCRIPT
from stated import once

from bft.milp import Job, Problem, SolverProcess, solve
from bft.replay.cli.main import run

LOG = """\
JobID|NodeList|AllocNodes|Start|End|State
1|n1|1|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED
1.0|n1|1|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED
2|n[1-|1|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED
3|n2|1|2024-05-01T10:00:00|2024-05-01T11:00:00|COMPLETED
"""
# Most of the window lies outside of the log: a warning.
WINDOW = ("--tz", "UTC", "--to", "2024-05-09", "--allow-few")
INGEST = ["ingest", "slurm", "jobs.log", "-o", "trace.csv", "--force", *WINDOW]


@pytest.fixture
def here(here: Path) -> Path:
    (here / "jobs.log").write_text(LOG)
    rows = [
        f"2024-01-01T0{h}:{n}0:00Z,n{n},{str((h + n) % 2 == 0).lower()}"
        for h in range(4)
        for n in range(4)
    ]
    (here / "idle.csv").write_text("\n".join(["time,node,idle", *rows]))
    return here


def replay(*options: str) -> list[str]:
    return [
        "-ndmap",
        "idle.csv",
        "-Tfwd",
        "600",
        "--no-u",
        "--force",
        "--out",
        "out",
        "--backend",
        "exact",
        *options,
    ]


def ingested(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run([*INGEST, *options]) == 0
    return capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_more_is_said_with_v_and_nothing_is_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = ingested(capsys)
    assert [line.partition(":")[0] for line in plain.splitlines()] == ["warning"] * len(
        plain.splitlines()
    )
    assert "warning: 33.3% of the rows with information on nodes were skipped" in plain
    assert (
        "warning: part of the window lies before the first or after the last record"
        in plain
    )
    assert ingested(capsys, "-v") == plain
    detailed = ingested(capsys, "-vv")
    assert plain in detailed
    assert ingested(capsys) == plain  # and one command leaves the next as it was


@pytest.mark.usefixtures("here")
def test_quiet_leaves_errors_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert ingested(capsys, "-q") == ""
    assert run([*INGEST, "--quiet", "--strict"]) == 2
    assert "column NodeList holds no host list" in capsys.readouterr().err
    assert run(replay("--quiet")) == 0
    assert capsys.readouterr().err == ""
    # What changes the result is on file all the same, and said by default.
    notes = json.loads(Path("out/summary.json").read_text())["notes"]
    assert notes
    assert run(replay()) == 0
    loud = capsys.readouterr().err
    assert all(f"note: {note}" in loud for note in notes)
    assert "100 %" in loud


@pytest.mark.usefixtures("here")
def test_checkpoints_are_reported_with_v(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(replay("--checkpoint-every", "1e9", "-v")) == 0
    assert re.search(
        r"^info: checkpoint written: .*out\.checkpoint\.zip$",
        capsys.readouterr().err,
        re.M,
    )
    assert run(replay("--checkpoint-every", "1e9")) == 0
    assert "info:" not in capsys.readouterr().err


def test_fallbacks_and_solver_processes_are_reported_with_v(tmp_path: Path) -> None:
    body = """
import os
from bft.milp import Availability
class own:
    name, formulations, features = 'own', ('modes',), ()
    def available(self): return Availability('1')
    def solve(self, model, limits):
        if len(model.objective) > 1:
            os.abort()
"""
    call = planted(
        {"theirs.py": body}, {"bft.backends": {"own": "theirs:own"}}, tmp_path
    )
    job = {
        "Jmin": 1,
        "Jmax": 4,
        "Ns": [0, 1, 4],
        "Os": [0, 10, 30],
        "Tcup": 20,
        "Tcdw": 10,
    }
    (tmp_path / "problem.json").write_text(
        json.dumps({"units": 4, "Tfwd": 120, "jobs": [{"name": "a", **job}]})
    )
    said = call("solve", "problem.json", "--backend", "own", "-v").stderr
    lines = [
        re.sub(r"\d+", "N", line)
        for line in said.splitlines()
        if line.startswith("info: ")
    ]
    assert lines == [
        "info: solver process N has started with backend own",
        "info: solver process N has ended: signal N",
        "info: fallback: own: died (signal N)",
    ]
    assert "info:" not in call("solve", "problem.json", "--backend", "own").stderr


def test_a_solver_process_that_grew_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    curve = {
        "ns": np.array([0.0, 4.0]),
        "os": np.array([0.0, 40.0]),
        "tcup": 1.0,
        "tcdw": 1.0,
    }
    process = SolverProcess(recycle_bytes=-1)
    with caplog.at_level(logging.INFO, logger="bft"):
        solve(
            Problem(3, 10.0, (Job("a", 1, 4, **curve),), (0,)),
            backend="cbc",
            process=process,
        )
    assert [re.sub(r"\d+", "N", message) for message in caplog.messages] == [
        "solver process N has started with backend cbc",
        "solver process N has grown by N MiB and is replaced",
    ]


def test_lines_do_not_mix_with_the_progress_bar(here: Path) -> None:
    ours, theirs = pty.openpty()
    command = [
        *SCRIPT,
        *once(replay("--backend", "cbc", "-v", "--checkpoint-every", "1e9")),
    ]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    running = subprocess.Popen(
        command, cwd=here, env=environment, stderr=theirs, stdout=subprocess.DEVNULL
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not block:
            break
        shown += block
    os.close(ours)
    assert running.wait(AMPLE_S) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    lines = re.split(r"[\r\n]+", text)
    assert any(
        re.fullmatch(r"info: solver process \d+ has started with backend cbc *", line)
        for line in lines
    ), lines
    assert any(
        re.fullmatch(r"info: checkpoint written: .*checkpoint.zip *", line)
        for line in lines
    ), lines
    assert any("replay" in line and "100%" in line for line in lines), lines
