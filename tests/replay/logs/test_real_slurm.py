"""Logs of a real Slurm are read correctly: sacct, sacct --json and snapshots of sinfo agree; so do GPUs."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from real_slurm import PATIENCE_S, Slurm, slurm_cluster

from bft.replay.cli.main import run
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

NODES = 3
# Nodes and seconds of the jobs, submitted together; Slurm places them one after the other.
JOBS = ((1, 8), (2, 10), (3, 6), (1, 12), (1, 7))
# Nodes, GPUs of each, and seconds of jobs that share nodes.
GPU_JOBS = ((1, 1, 3), (2, 2, 5), (1, 3, 7), (1, 0, 3), (1, 1, 9), (1, 2, 1))
# Seconds by which Slurm's own states of nodes lag behind its accounting: a node completes before it is idle.
LAG_S = 6


class _Cron(threading.Thread):
    """Takes a snapshot every second, as the recipe's line does, into a file."""

    def __init__(self, slurm: Slurm) -> None:
        super().__init__()
        self.slurm, self.over = slurm, threading.Event()

    def run(self) -> None:
        with (self.slurm.folder / "nodes.snapshots").open("w") as file:
            while not self.over.is_set():
                states = self.slurm.run("sinfo", "-N", "-h", "-o", "%N %T")
                file.write(f"{int(time.time())}\n{states}")
                self.over.wait(1)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a real Slurm wrote of `JOBS`."""
    folder = tmp_path_factory.mktemp("slurm")
    with slurm_cluster(folder, NODES) as slurm:
        cron = _Cron(slurm)
        cron.start()
        try:
            for nodes, seconds in JOBS:
                slurm.run(
                    "sbatch",
                    "-N",
                    str(nodes),
                    "--exclusive",
                    "-o",
                    "/dev/null",
                    "--wrap",
                    f"sleep {seconds}",
                )
            slurm.wait_idle()
            time.sleep(3)  # so that snapshots see the end
        finally:
            cron.over.set()
            cron.join()
        (folder / "nodes.txt").write_text(slurm.run("scontrol", "-o", "show", "node"))
        columns = "--format=JobID,NodeList,AllocNodes,Start,End,State"
        slurm.env["SLURM_TIME_FORMAT"] = "%s"
        (folder / "sacct.txt").write_text(
            slurm.run("sacct", "-a", "-X", "-D", "-P", "-S", "now-1days", columns)
        )
        del slurm.env["SLURM_TIME_FORMAT"]
        (folder / "sacct.json").write_text(
            slurm.run("sacct", "-a", "-D", "-S", "now-1days", "--json")
        )
        _run_gpu_jobs(slurm)
    return folder


def _run_gpu_jobs(slurm: Slurm) -> None:
    """Keep what scontrol shows of `GPU_JOBS` every second; each node of a job writes down which GPUs it was given.

    A job goes on only when scontrol has shown that it runs, however long that takes.
    """
    tell = "echo $SLURM_JOB_ID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES >> told"
    for nodes, gpus, seconds in GPU_JOBS:
        asked = (f"--gres=gpu:{gpus}",) if gpus else ()
        seen = "until [ -e seen-$SLURM_JOB_ID ]; do sleep 0.2; done"
        command = f"srun --ntasks-per-node=1 sh -c '{tell}; {seen}; sleep {seconds}'"
        slurm.run(
            "sbatch", "-N", str(nodes), *asked, "-o", "/dev/null", "--wrap", command
        )
    with (slurm.folder / "gpus.txt").open("w") as file:
        end = time.monotonic() + PATIENCE_S
        while slurm.run("squeue", "-h").strip():
            assert time.monotonic() < end, "jobs of Slurm did not end"
            shown = slurm.run("scontrol", "-o", "-d", "show", "job")
            file.write(shown)
            for job in re.findall(
                r"^JobId=(\d+) .* JobState=RUNNING ", shown, re.MULTILINE
            ):
                (slurm.folder / f"seen-{job}").touch()
            time.sleep(1)
    columns = "--format=JobID,NodeList,AllocNodes,Start,End,State,AllocTRES"
    (slurm.folder / "gpus.sacct").write_text(
        slurm.run("sacct", "-a", "-X", "-D", "-P", "-S", "now-1days", columns)
    )


def _trace(logs: Path, kind: str, file: str, target: Path, *more: str) -> NodeTrace:
    arguments = [
        "ingest",
        kind,
        str(logs / file),
        "--nodes",
        str(logs / "nodes.txt"),
        "-o",
        str(target),
    ]
    assert run([*arguments, "--min-gap", "0", *more]) == 0
    return read_trace(target)


def _idle(trace: NodeTrace, start_s: int, end_s: int) -> np.ndarray:
    """Whether each node, in the order of names, is idle in each second."""
    idle = np.zeros((len(trace.nodes), end_s - start_s), dtype=bool)
    for event, time_ns in enumerate(trace.times.tolist()):
        second = max(0, time_ns // SECOND_NS - start_s)
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    return idle[np.argsort(np.array(trace.nodes))]


@pytest.mark.slow
def test_three_exports_of_a_real_slurm_agree(logs: Path, here: Path) -> None:
    sampled = _trace(logs, "snapshots", "nodes.snapshots", here / "snapshots.parquet")
    start, end = sampled.start // SECOND_NS, sampled.end // SECOND_NS
    window = ("--from", str(start), "--to", str(end), "--allow-few")
    table = _trace(logs, "slurm", "sacct.txt", here / "table.parquet", *window)
    json = _trace(logs, "slurm-json", "sacct.json", here / "json.parquet", *window)
    assert table.nodes == json.nodes == sampled.nodes == ("n1", "n2", "n3")
    exact = _idle(table, start, end)
    assert np.array_equal(exact, _idle(json, start, end))
    assert (~exact).sum() >= sum(
        nodes * seconds for nodes, seconds in JOBS
    )  # all of them ran
    # A snapshot may be wrong next to a change only: by its own period, and by how long Slurm takes to clean a node.
    stamps = [
        int(line)
        for line in (logs / "nodes.snapshots").read_text().splitlines()
        if line.isdecimal()
    ]
    slack = LAG_S + int(np.diff(stamps).max())
    for node, seen in zip(exact, _idle(sampled, start, end), strict=True):
        changes = np.flatnonzero(np.diff(node)) + 1
        wrong = np.flatnonzero(node != seen)
        assert all(np.abs(changes - second).min() <= slack for second in wrong)


@pytest.mark.slow
def test_gpus_that_jobs_were_given_are_busy_as_long_as_sacct_says(
    logs: Path, here: Path
) -> None:
    rows = [
        line.split("|") for line in (logs / "gpus.sacct").read_text().splitlines()[1:]
    ][-len(GPU_JOBS) :]
    runs = {row[0]: (_epoch_s(row[3]), _epoch_s(row[4])) for row in rows}
    start, end = (
        min(first for first, _ in runs.values()),
        max(last for _, last in runs.values()) + 5,
    )
    files = [str(logs / name) for name in ("gpus.sacct", "gpus.txt")]
    window = [
        "--from",
        str(start),
        "--to",
        str(end),
        "--allow-few",
        "--min-gap",
        "0",
        "--unit",
        "gpu",
    ]
    assert (
        run(
            [
                "ingest",
                "slurm",
                *files,
                "--nodes",
                str(logs / "nodes.txt"),
                "-o",
                "gpus.parquet",
                *window,
            ]
        )
        == 0
    )
    trace = read_trace(here / "gpus.parquet")
    idle = np.zeros((trace.slots, end - start), dtype=bool)
    for event, time_ns in enumerate(trace.times.tolist()):
        second = max(0, time_ns // SECOND_NS - start)
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    expected = np.ones_like(idle)
    told = [line.split() for line in (logs / "told").read_text().splitlines()]
    assert len(told) == sum(nodes for nodes, _, _ in GPU_JOBS)
    for job, node, *gpus in told:
        for gpu in gpus[0].split(",") if gpus else ():
            first, last = runs[job]
            expected[
                trace.nodes.index(node) * 4 + int(gpu), first - start : last - start
            ] = False
    assert np.array_equal(idle, expected)


def _epoch_s(stamp: str) -> int:
    return int(np.datetime64(stamp, "s").astype(int))
