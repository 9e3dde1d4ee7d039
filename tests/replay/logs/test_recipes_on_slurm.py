"""Every line that `ingest --recipe` prints for Slurm is run on a real one, and what it writes is ingested."""

import json
import os
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from real_slurm import Slurm, commands, idle_seconds, polled, slurm_cluster

from bft.replay.cli.main import run
from bft.replay.cli.recipes import RECIPES, crontab_line
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_files import read_trace

pytestmark = pytest.mark.slow
NODES = ("n1", "n2", "n3", "n4")
# Seconds by which states of nodes lag behind the accounting: a node completes before it is idle.
LAG_S = 5
DATES = {
    "2024-01-01": "{begin}",
    "2024-02-01": "{end}",
    "Europe/Berlin": "UTC",
    "cn[001-128]": "n[1-4]",
}


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
        begin = int(time.time())
        with polled(slurm) as printed:
            _use(slurm)
        end = max(printed)
        (folder / "seen.json").write_text(json.dumps(printed))
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


def _agrees(cluster: Path, trace: NodeTrace) -> None:
    """Nodes are idle when sinfo said so, but near a change."""
    begin, end = map(int, (cluster / "window").read_text().split())
    assert set(trace.nodes) == set(NODES)
    seen = {
        int(second) - begin: dict(line.split() for line in printed.splitlines())
        for second, printed in json.loads((cluster / "seen.json").read_text()).items()
    }
    for node, idle in zip(NODES, idle_seconds(trace, begin, end), strict=True):
        said = {s: states[node] in ("idle", "planned") for s, states in seen.items()}
        changes = np.flatnonzero(np.diff(idle.astype(int))).tolist()
        changes += [s for s in said if said[s] != said.get(s - 1, said[s])]
        far = [
            s
            for s in said
            if 0 <= s < end - begin
            and all(abs(s - change) > LAG_S for change in changes)
        ]
        assert far
        assert all(idle[second] == said[second] for second in far)


BESIDE = "--events events.txt --reservations reservations.txt --from {begin} --to {end}"
LISTED = f"ingest slurm jobs.sacct.xz gpus.txt --nodes nodes.txt {BESIDE} -o trace.parquet"  # fmt: skip


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("slurm", "{command}"),
        ("slurm-json", f"{{command}} {BESIDE}"),  # it has no events and reservations
        ("slurm", LISTED),  # with the jobs that scontrol shows
    ],
)
def test_the_recipe_is_run_and_read(
    name: str, command: str, cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    begin, end = map(int, (cluster / "window").read_text().split())
    monkeypatch.chdir(cluster)
    own = _dated(_reading(name), begin, end)
    words = command.format(command=own, begin=begin, end=end).replace('"', "").split()
    assert run([*words, "--force", "--min-gap", "0", "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert account["skipped"] == []
    # Host jobs lie beside it, those that waited and never ran as well; the one without a limit has none.
    assert account["host_jobs"]["jobs"] > account["host_jobs"]["begun"] >= 4
    assert account["host_jobs"]["with_limit"] < account["host_jobs"]["begun"]
    _agrees(cluster, read_trace(words[words.index("-o") + 1]))


def _reading(name: str) -> str:
    """The command of a recipe that reads what the others have written, without the program's name."""
    (command,) = [
        each for each in commands(RECIPES[name]) if each.startswith("bft-replay")
    ]
    return command.removeprefix("bft-replay ")


def test_lines_of_cron_make_snapshots(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cluster)
    assert run([*_reading("snapshots").split(), "--force"]) == 0
    assert set(read_trace("trace.parquet").nodes) == set(NODES)
