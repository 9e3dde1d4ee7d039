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
    slurm.wait_accounted()
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


# -- the scheduler's own view: suspended jobs, an epilog, shares of GPUs, power saving

EPILOG_S = 5
SHARES = "gpu:a100:4,shard:32"


@pytest.fixture(scope="module")
def own_view(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with logs of a job that was suspended, of shards, of all cores, and of a node that was powered off."""
    folder = tmp_path_factory.mktemp("own-view")
    (folder / "epilog").write_text(f"#!/bin/sh\nsleep {EPILOG_S}\n")
    (folder / "power").write_text("#!/bin/sh\n")
    for name in ("epilog", "power"):
        (folder / name).chmod(0o755)
    more = "\n".join(
        [f"Epilog={folder}/epilog", "AccountingStorageTRES=gres/gpu,gres/shard", f"SuspendProgram={folder}/power",
         f"ResumeProgram={folder}/power", "SuspendTime=5", "SuspendTimeout=5", "SuspendExcNodes=n1,n2"]
    )  # fmt: skip
    with slurm_cluster(folder, NODES, more, gres=SHARES) as slurm:
        cron = _Cron(slurm)
        cron.start()
        try:
            first = _submit(slurm, "sleep 40", "--exclusive", "-w", "n1")
            _submit(slurm, "sleep 15", "-n", "1", "--gres=shard:4", "-w", "n2")
            _submit(slurm, "sleep 8", "-N", "1", "-n", "4", "-w", "n2")
            time.sleep(8)
            slurm.run("scontrol", "suspend", first)
            _list_jobs(slurm, seconds=12)
            slurm.run("scontrol", "resume", first)
            _list_jobs(slurm, seconds=6)
            slurm.wait_idle()
            time.sleep(3)
        finally:
            cron.over.set()
            cron.join()
        (folder / "nodes.txt").write_text(slurm.run("scontrol", "-o", "show", "node"))
        slurm.env["SLURM_TIME_FORMAT"] = "%s"
        columns = (
            "--format=JobID,NodeList,AllocNodes,Start,End,State,Suspended,AllocTRES"
        )
        since = ("-a", "-D", "-S", "now-1days")
        (folder / "sacct.txt").write_text(
            slurm.run("sacct", "-X", "-P", *since, columns)
        )
        events = "format=NodeName,TimeStart,TimeEnd,State"
        (folder / "events.txt").write_text(
            slurm.run("sacctmgr", "-P", "show", "event", "all_time", events)
        )
        del slurm.env["SLURM_TIME_FORMAT"]
        (folder / "sacct.json").write_text(slurm.run("sacct", *since, "--json"))
    return folder


def _submit(slurm: Slurm, command: str, *options: str) -> str:
    return slurm.run(
        "sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", command
    ).strip()


def _list_jobs(slurm: Slurm, seconds: int) -> None:
    """List all jobs every two seconds, as cron does."""
    texts, queues = slurm.folder / "jobs.txt", slurm.folder / "queue.json"
    with texts.open("a") as file, queues.open("a") as queue:
        for _ in range(seconds // 2):
            file.write(slurm.run("scontrol", "-a", "-o", "-d", "show", "job"))
            queue.write(slurm.run("squeue", "-a", "--json") + "\n")
            time.sleep(2)


@pytest.mark.slow
def test_a_suspended_job_and_its_epilog_are_where_slurm_has_them(
    own_view: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = _trace(
        own_view, "snapshots", "nodes.snapshots", here / "snapshots.parquet"
    )
    start, end = sampled.start // SECOND_NS, sampled.end // SECOND_NS
    window = (
        "--from",
        str(start),
        "--to",
        str(end),
        "--allow-few",
        "--events",
        str(own_view / "events.txt"),
    )
    capsys.readouterr()
    blind = _trace(own_view, "slurm", "sacct.txt", here / "blind.parquet", *window)
    assert "jobs were suspended" in capsys.readouterr().err
    assert blind.uncertain is not None
    (row,) = [
        line
        for line in (own_view / "sacct.txt").read_text().splitlines()
        if "|n1|" in line
    ]
    lost_s = int(
        np.dot([3600, 60, 1], [int(part) for part in row.split("|")[6].split(":")])
    )
    assert lost_s >= 12
    assert dict(blind.uncertain.parts)["suspended jobs"] == pytest.approx(
        lost_s / (NODES * (end - start))
    )
    json = _trace(own_view, "slurm-json", "sacct.json", here / "json.parquet", *window)
    assert json.uncertain is not None
    assert json.uncertain.parts == blind.uncertain.parts
    listed = (str(own_view / "jobs.txt"), *window, "--completing", str(EPILOG_S))
    exact = _idle(
        _trace(own_view, "slurm", "sacct.txt", here / "listed.parquet", *listed),
        start,
        end,
    )
    listed = (str(own_view / "queue.json"), *listed[1:])
    target = here / "queue.parquet"
    queued = _trace(own_view, "slurm-json", "sacct.json", target, *listed)
    assert np.array_equal(exact, _idle(queued, start, end))
    seen = _idle(sampled, start, end)
    stamps = [
        int(line)
        for line in (own_view / "nodes.snapshots").read_text().splitlines()
        if line.isdecimal()
    ]
    slack = 3 + int(np.diff(stamps).max())
    for node in (0, 1):
        changes = np.flatnonzero(np.diff(exact[node])) + 1
        wrong = np.flatnonzero(exact[node] != seen[node])
        assert all(np.abs(changes - second).min() <= slack for second in wrong)
    # Slurm calls the node of the suspended job idle, and so does the trace.
    assert np.count_nonzero(np.diff(exact[0])) >= 4
    assert (
        np.count_nonzero(exact[0] & seen[0] & ~_idle(blind, start, end)[0])
        >= lost_s - 2 * slack
    )


@pytest.mark.slow
def test_power_saving_is_in_the_events_of_slurm_and_suspected_without_them(
    own_view: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = _trace(
        own_view, "snapshots", "nodes.snapshots", here / "snapshots.parquet"
    )
    start, end = sampled.start // SECOND_NS, sampled.end // SECOND_NS
    window = ("--from", str(start), "--to", str(end), "--allow-few")
    capsys.readouterr()
    _trace(own_view, "slurm", "sacct.txt", here / "blind.parquet", *window)
    assert "power saving takes nodes of the list down" in capsys.readouterr().err
    events = ("--events", str(own_view / "events.txt"))
    known = _idle(
        _trace(
            own_view, "slurm", "sacct.txt", here / "known.parquet", *window, *events
        ),
        start,
        end,
    )
    assert "power saving" not in capsys.readouterr().err
    seen = _idle(sampled, start, end)
    assert not known[2][-1]
    assert not seen[2][-1]
    # Events begin when the node is off: Slurm calls it idle% for as long as SuspendTimeout before.
    off = int(np.flatnonzero(~known[2])[0])
    assert not seen[2][off:].any()
    assert 0 < off - int(np.flatnonzero(~seen[2])[0]) <= 5 + 30


@pytest.mark.slow
def test_shards_and_jobs_on_all_cores_take_the_gpus_that_slurm_cannot_give(
    own_view: Path, here: Path
) -> None:
    rows = [
        line.split("|")
        for line in (own_view / "sacct.txt").read_text().splitlines()[1:]
    ]
    runs = {row[7]: (int(row[3]), int(row[4])) for row in rows}
    (shard,) = [tres for tres in runs if "gres/shard=4" in tres]
    (cores,) = [tres for tres in runs if "gres" not in tres and "cpu=4" in tres]
    start, end = (
        min(first for first, _ in runs.values()),
        max(last for _, last in runs.values()) + 5,
    )
    window = ("--from", str(start), "--to", str(end), "--allow-few", "--unit", "gpu")
    trace = _trace(own_view, "slurm", "sacct.txt", here / "gpus.parquet", *window)
    idle = np.zeros((trace.slots, end - start), dtype=bool)
    for event, time_ns in enumerate(trace.times.tolist()):
        second = max(0, time_ns // SECOND_NS - start)
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    counts = idle.reshape(NODES, 4, -1).sum(axis=1)[1]
    expected = np.full(end - start, 4)
    expected[runs[shard][0] - start : runs[shard][1] - start] -= 1
    expected[runs[cores][0] - start : runs[cores][1] - start] = 0
    assert counts.tolist() == expected.tolist()
