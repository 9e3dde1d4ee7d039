"""`--live`: its display, and that it changes no result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from packages import plant
from rich.console import Console

from bft.replay.cli import live
from bft.replay.cli.main import run

RUN = ["--policy", "fifo", "--no-u", "-maxJ", "5"]
FILES = ("summary.json", "steps.parquet", "jobs.parquet", "allocations.parquet")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("terminal", [False, True])
def test_results_are_the_same_bytes_and_the_last_figures_are_theirs(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*RUN, "--out", "without"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(live, "LINES_S", 0.0)
    monkeypatch.setattr(live, "TABLE_S", 0.0)
    if terminal:
        console = Console(stderr=True, force_terminal=True, width=200)
        monkeypatch.setattr(live, "live", live.LiveTable)
        monkeypatch.setattr(live, "console", lambda: console)
    assert run([*RUN, "--out", "shown", "--live"]) == 0
    shown = capsys.readouterr().err
    assert all(
        Path("shown", name).read_bytes() == Path("without", name).read_bytes()
        for name in FILES
    )
    metrics = json.loads(Path("shown/summary.json").read_text())["metrics"]
    steps = pd.read_parquet("shown/steps.parquet")
    last = shown[shown.rindex("2021-02-12 00:00:00 (100%)") :]
    by_status = ", ".join(
        f"{count} {status}" for status, count in metrics["decisions_by_status"].items()
    )
    assert f"{metrics['decisions']}, " in last
    assert by_status in last
    assert f"{metrics['outcome']:,.0f} samples done" in last
    assert f"{metrics['jobs_finished']} finished" in last
    assert f"{steps['idle'].iloc[-1]} idle" in last
    assert re.search(
        r"last decision:? +2021-02-1\d \d\d:\d\d:\d\d, (decided|nothing idle), \d+ jobs rescaled",
        last,
    )


@pytest.mark.usefixtures("here")
def test_lines_come_every_few_seconds_the_first_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*RUN, "--out", "out", "--live"]) == 0
    shown = capsys.readouterr().err
    assert "  0 decisions" not in shown  # of the usual tenths
    lines = [line for line in shown.splitlines() if line.startswith("  time: ")]
    assert "(100%)" in lines[-1]
    assert len(lines) >= 2


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("options", [["-q"], ["-print", "0"]])
def test_who_wants_no_progress_gets_none(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*RUN, "--out", "out", "--live", *options]) == 0
    assert "time: " not in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_the_published_replay_shows_its_clock(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        run(
            [
                "--compat",
                "reference",
                "--policy",
                "equal-share",
                "--out",
                "out",
                "--live",
            ]
        )
        == 0
    )
    assert re.search(r"time: 2021-.*decisions: [1-9]", capsys.readouterr().err)


@pytest.mark.usefixtures("here")
def test_a_policy_that_fails_leaves_the_last_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "class Own:\n    name = 'own'\n    def decide(self, state):\n        return state.time_ns / 0\n"
    monkeypatch.syspath_prepend(
        plant(
            {"own_live.py": body},
            {"bft.policies": {"own": "own_live:Own"}},
            tmp_path / "s",
        )
    )
    assert run(["--policy", "own", "--no-u", "--out", "out", "--live"]) == 2
    error = capsys.readouterr().err
    assert error.index("units: ") < error.index("Error: policy 'own' was stopped")
