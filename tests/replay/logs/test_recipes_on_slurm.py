"""Every line that `ingest --recipe` prints for Slurm is run on a real one, and what it writes is ingested."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from real_slurm import Slurm, commands, slurm_cluster

from bft.replay.cli.main import run
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

NODES = ("n1", "n2", "n3", "n4")
# Seconds by which states of nodes lag behind the accounting: a node completes before it is idle.
LAG_S = 5
DATES = {
    "2024-01-01": "{begin}",
    "2024-02-01": "{end}",
    "Europe/Berlin": "UTC",
    "cn[001-128]": "n[1-4]",
}


class Poll(threading.Thread):
    """Asks for the states of nodes each second."""

    def __init__(self, slurm: Slurm) -> None:
        super().__init__()
        self.slurm, self.over = slurm, threading.Event()
        self.states: dict[int, dict[str, str]] = {}

    def run(self) -> None:
        while not self.over.wait(0.8):
            now = int(time.time())
            printed = self.slurm.run("sinfo", "-N", "-h", "-o", "%N %T")
            self.states[now] = dict(line.split() for line in printed.splitlines())


def recipe(name: str, *more: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["ingest", "--recipe", name, *more]) == 0
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all recipes for Slurm were run, and the begin and end of what they saw.

    A node is drained while nothing runs on it and one is reserved; a job is cancelled while it waits, one has no limit
    and one is requeued.
    """
    folder = tmp_path_factory.mktemp("recipes")
    with slurm_cluster(folder, len(NODES)) as slurm:
        slurm.env["HOME"] = str(folder)
        slurm.env["PATH"] = (
            f"{Path(sys.executable).parent}{os.pathsep}{slurm.env['PATH']}"
        )
        poll = Poll(slurm)
        poll.start()
        begin = int(time.time())
        try:
            _use(slurm)
        finally:
            poll.over.set()
            poll.join()
        end = max(poll.states)
        with (folder / "seen").open("w") as file:
            for second, states in poll.states.items():
                file.write(
                    f"{second} " + " ".join(states[node] for node in NODES) + "\n"
                )
        (folder / "window").write_text(f"{begin} {end}")
        _run_recipes(slurm, begin, end)
    return folder


def _use(slurm: Slurm) -> None:
    def batch(*options: str, seconds: int) -> str:
        job = slurm.run(
            "sbatch",
            "--parsable",
            "-o",
            "/dev/null",
            *options,
            "--wrap",
            f"sleep {seconds}",
        )
        return job.strip()

    batch("-N1", "--exclusive", "-w", "n1", seconds=15)
    again = batch("-N1", "--exclusive", "-w", "n2", "--requeue", seconds=60)
    time.sleep(8)
    slurm.run("scontrol", "update", "nodename=n3", "state=drain", "reason=broken")
    slurm.run("scontrol", "create", "reservation", "reservationname=upkeep", "starttime=now", "duration=1",
              "nodes=n4", "users=root", "flags=maint,ignore_jobs")  # fmt: skip
    waiting = batch("-N1", "-w", "n3", seconds=5)
    time.sleep(12)
    slurm.run("scancel", waiting)
    slurm.run("scontrol", "requeue", again)
    batch("-N1", "--exclusive", "-w", "n1", "--time=UNLIMITED", seconds=14)
    time.sleep(14)
    slurm.run("scontrol", "update", "nodename=n3", "state=resume")
    slurm.run("scontrol", "delete", "reservationname=upkeep")
    # A requeued job may start after two minutes; it is not waited for.
    slurm.run("scontrol", "hold", again)
    time.sleep(14)
    batch("-N2", "--exclusive", "-w", "n[3-4]", seconds=12)
    time.sleep(26)


def _run_recipes(slurm: Slurm, begin: int, end: int) -> None:
    """Run each command; what ingests is run by the tests."""
    from bft.replay.cli.recipes import RECIPES, crontab_line

    for text in (RECIPES["slurm"], RECIPES["slurm-json"], crontab_line("slurm")):
        for command in commands(text):
            if command.startswith("bft-replay"):
                continue
            if shutil.which("jq") is None:
                command = command.replace("jq .", f"{sys.executable} -m json.tool")
            slurm.run("bash", "-o", "pipefail", "-c", _dated(command, begin, end))
    time.sleep(1.1)
    slurm.run("bash", "-c", commands(crontab_line("slurm"))[0])


def _dated(command: str, begin: int, end: int) -> str:
    for theirs, ours in DATES.items():
        command = command.replace(theirs, ours)
    begin_text, end_text = (
        f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        for second in (begin, end)
    )
    return (
        command.format(begin=begin_text, end=end_text)
        if "{begin}" in command
        else command
    )


def _idle(trace: NodeTrace, begin: int, end: int) -> dict[str, np.ndarray]:
    idle = np.zeros((len(trace.nodes), end - begin), dtype=bool)
    for event, time_ns in enumerate(trace.times.tolist()):
        second = max(0, time_ns // SECOND_NS - begin)
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    return dict(zip(trace.nodes, idle, strict=True))


def _agrees(cluster: Path, trace: NodeTrace) -> None:
    """Nodes are idle when sinfo said so, but near a change."""
    begin, end = map(int, (cluster / "window").read_text().split())
    idle = _idle(trace, begin, end)
    assert set(idle) == set(NODES)
    seen = [line.split() for line in (cluster / "seen").read_text().splitlines()]
    for place, node in enumerate(NODES):
        said = {
            int(row[0]) - begin: row[1 + place] in ("idle", "planned") for row in seen
        }
        told = np.flatnonzero(np.diff(idle[node].astype(int)))
        changes = [
            *told.tolist(),
            *(s for s in said if s - 1 in said and said[s] != said[s - 1]),
        ]
        far = [
            s
            for s in said
            if 0 <= s < end - begin
            and all(abs(s - change) > LAG_S for change in changes)
        ]
        assert far
        assert all(idle[node][second] == said[second] for second in far)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slurm", "slurm-json"])
def test_the_recipe_is_run_and_read(
    name: str,
    cluster: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begin, end = map(int, (cluster / "window").read_text().split())
    monkeypatch.chdir(cluster)
    (command,) = [
        each
        for each in commands(recipe(name, capsys=capsys))
        if each.startswith("bft-replay")
    ]
    words = _dated(command, begin, end).replace('"', "").split()[1:]
    target = words[words.index("-o") + 1]
    if name == "slurm-json":  # it has no events and reservations
        words += [
            "--events",
            "events.txt",
            "--reservations",
            "reservations.txt",
            "--from",
            str(begin),
            "--to",
            str(end),
        ]
    assert run([*words, "--force", "--min-gap", "0", "--json"]) == 0
    account = capsys.readouterr().out
    assert '"skipped": []' in account
    _agrees(cluster, read_trace(target))


@pytest.mark.slow
def test_jobs_that_scontrol_shows_are_read_beside(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, end = map(int, (cluster / "window").read_text().split())
    monkeypatch.chdir(cluster)
    words = [
        "ingest",
        "slurm",
        "jobs.sacct.xz",
        "gpus.txt",
        "--nodes",
        "nodes.txt",
        "--events",
        "events.txt",
    ]
    words += [
        "--reservations",
        "reservations.txt",
        "--from",
        str(begin),
        "--to",
        str(end),
        "-o",
        "both.parquet",
    ]
    assert run([*words, "--force", "--min-gap", "0", "--json"]) == 0
    assert '"skipped": []' in capsys.readouterr().out
    _agrees(cluster, read_trace("both.parquet"))


@pytest.mark.slow
def test_lines_of_cron_make_snapshots(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(cluster)
    (command,) = [
        each
        for each in commands(recipe("snapshots", capsys=capsys))
        if each.startswith("bft-replay")
    ]
    assert run([*command.split()[1:], "--force"]) == 0
    assert set(read_trace("trace.parquet").nodes) == set(NODES)
