"""What a real Slurm prints of suspended jobs, an epilog, power saving, shares and single GPUs is read correctly.

All of it is recorded (tests/data/recorded/README.md), and run anew where a Slurm is installed, which takes minutes.
"""

import re
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from real_slurm import PATIENCE_S, Slurm, idle_seconds, polled, slurm_cluster

from bft.replay.cli.main import run
from bft.replay.logs.tables import SACCT_FIELDS
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

RECORDED = Path(__file__).parents[2] / "data" / "recorded"
SOURCES = ["recorded", pytest.param("run anew", marks=pytest.mark.slow)]
NODES = 3
# Nodes, GPUs of each, and seconds of jobs that share nodes.
GPU_JOBS = ((1, 1, 3), (2, 2, 5), (1, 3, 7), (1, 0, 3), (1, 1, 9), (1, 2, 1))
SINCE = ("-a", "-D", "-S", "now-1days")


def submit(slurm: Slurm, command: str, *options: str) -> str:
    given = ("--parsable", "-o", "/dev/null", *options, "--wrap", command)
    return slurm.run("sbatch", *given).strip()


def export(slurm: Slurm, name: str) -> None:
    """Write what the recipe asks of all jobs so far, as a table and as JSON, and the nodes."""
    folder = slurm.folder
    (folder / "nodes.txt").write_text(slurm.run("scontrol", "-o", "show", "node"))
    slurm.env["SLURM_TIME_FORMAT"] = "%s"
    table = slurm.run("sacct", "-X", "-P", *SINCE, f"--format={SACCT_FIELDS}")
    (folder / f"{name}.txt").write_text(table)
    events = "format=NodeName,TimeStart,TimeEnd,State"
    shown = slurm.run("sacctmgr", "-P", "show", "event", "all_time", events)
    (folder / "events.txt").write_text(shown)
    del slurm.env["SLURM_TIME_FORMAT"]
    (folder / f"{name}.json").write_text(slurm.run("sacct", *SINCE, "--json"))


@pytest.fixture(scope="module", params=SOURCES)
def logs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with what a real Slurm wrote of `GPU_JOBS`."""
    if request.param == "recorded":
        return RECORDED / "slurm-gpus"
    folder = tmp_path_factory.mktemp("slurm")
    with slurm_cluster(folder, NODES) as slurm:
        run_gpu_jobs(slurm)
        export(slurm, "gpus")
    return folder


def run_gpu_jobs(slurm: Slurm) -> None:
    """Keep what scontrol shows of `GPU_JOBS` every second; each node of a job writes down which GPUs it was given.

    A job goes on only when scontrol has shown that it runs, however long that takes.
    """
    tell = "echo $SLURM_JOB_ID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES >> told"
    for nodes, gpus, seconds in GPU_JOBS:
        asked = (f"--gres=gpu:{gpus}",) if gpus else ()
        seen = "until [ -e seen-$SLURM_JOB_ID ]; do sleep 0.2; done"
        command = f"srun --ntasks-per-node=1 sh -c '{tell}; {seen}; sleep {seconds}'"
        submit(slurm, command, "-N", str(nodes), *asked)
    end = time.monotonic() + PATIENCE_S
    with (slurm.folder / "gpus.listed").open("w") as file:
        while slurm.run("squeue", "-h").strip():
            assert time.monotonic() < end, "jobs of Slurm did not end"
            shown = slurm.run("scontrol", "-o", "-d", "show", "job")
            file.write(shown)
            for job in re.findall(r"(?m)^JobId=(\d+) .* JobState=RUNNING ", shown):
                (slurm.folder / f"seen-{job}").touch()
            time.sleep(1)
    slurm.wait_accounted()


class Sampled(NamedTuple):
    """What snapshots show: a row of seconds for each node, their window, and the longest time between two."""

    seen: np.ndarray
    start: int
    end: int
    period: int

    @property
    def window(self) -> tuple[str, ...]:
        return ("--from", str(self.start), "--to", str(self.end))


def ingested(folder: Path, kind: str, *files: str, options: tuple[str, ...] = ()) -> NodeTrace:  # fmt: skip
    packed = [folder / f"{name}.xz" for name in files]  # long ones that are recorded
    paths = [str(path if path.exists() else path.with_suffix("")) for path in packed]
    given = ["--nodes", str(folder / "nodes.txt"), "--min-gap", "0", "--allow-few", *options]  # fmt: skip
    assert run(["ingest", kind, *paths, "-o", "t.parquet", "--force", *given]) == 0
    return read_trace("t.parquet")


def sampled(folder: Path) -> Sampled:
    trace = ingested(folder, "snapshots", "nodes.snapshots")
    assert trace.nodes == ("n1", "n2", "n3")
    start, end = trace.start // SECOND_NS, trace.end // SECOND_NS
    lines = (folder / "nodes.snapshots").read_text().splitlines()
    stamps = [int(line) for line in lines if line.isdecimal()]
    seen = idle_seconds(trace, start, end)
    return Sampled(seen, start, end, int(np.diff(stamps).max()))


def agree(exact: np.ndarray, seen: np.ndarray, slack: int) -> None:
    """Snapshots may be wrong next to a change only: by their period, and by how long Slurm takes to clean a node."""
    for node, other in zip(exact, seen, strict=True):
        changes = np.flatnonzero(np.diff(node)) + 1
        wrong = np.flatnonzero(node != other)
        assert all(np.abs(changes - second).min() <= slack for second in wrong)


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    header, *lines = [line.split("|") for line in (folder / name).read_text().splitlines()]  # fmt: skip
    return [dict(zip(header, line, strict=True)) for line in lines]


def test_gpus_that_jobs_were_given_are_busy_as_long_as_sacct_says(
    logs: Path, here: Path
) -> None:
    rows = rows_of(logs, "gpus.txt")[-len(GPU_JOBS) :]
    runs = {row["JobID"]: (int(row["Start"]), int(row["End"])) for row in rows}
    start = min(first for first, _ in runs.values())
    end = max(last for _, last in runs.values()) + 5
    window = ("--from", str(start), "--to", str(end), "--unit", "gpu")
    trace = ingested(logs, "slurm", "gpus.txt", "gpus.listed", options=window)
    idle = idle_seconds(trace, start, end)
    expected = np.ones_like(idle)
    told = [line.split() for line in (logs / "told").read_text().splitlines()]
    assert len(told) == sum(nodes for nodes, _, _ in GPU_JOBS)
    for job, node, *gpus in told:
        for gpu in gpus[0].split(",") if gpus else ():
            first, last = runs[job]
            slot = sorted(trace.nodes).index(node) * 4 + int(gpu)
            expected[slot, first - start : last - start] = False
    assert np.array_equal(idle, expected)


# --- the scheduler's own view: suspended jobs, an epilog, shares of GPUs, power saving ------------------------------

EPILOG_S = 5
SHARES = "gpu:a100:4,shard:32"


@pytest.fixture(scope="module", params=SOURCES)
def own_view(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with logs of a job that was suspended, of shards, of all cores, and of a node that was powered off."""
    if request.param == "recorded":
        return RECORDED / "slurm"
    folder = tmp_path_factory.mktemp("own-view")
    for name, command in (("epilog", f"sleep {EPILOG_S}\n"), ("power", "")):
        (folder / name).write_text(f"#!/bin/sh\n{command}")
        (folder / name).chmod(0o755)
    more = "\n".join(
        [f"Epilog={folder}/epilog", "AccountingStorageTRES=gres/gpu,gres/shard", f"SuspendProgram={folder}/power",
         f"ResumeProgram={folder}/power", "SuspendTime=5", "SuspendTimeout=5", "SuspendExcNodes=n1,n2"]
    )  # fmt: skip
    with slurm_cluster(folder, NODES, more, gres=SHARES) as slurm:
        with polled(slurm) as printed:
            first = submit(slurm, "sleep 40", "--exclusive", "-w", "n1")
            submit(slurm, "sleep 15", "-n", "1", "--gres=shard:4", "-w", "n2")
            submit(slurm, "sleep 8", "-N", "1", "-n", "4", "-w", "n2")
            time.sleep(8)
            slurm.run("scontrol", "suspend", first)
            list_jobs(slurm, seconds=12)
            slurm.run("scontrol", "resume", first)
            list_jobs(slurm, seconds=6)
            slurm.wait_idle()
            time.sleep(3)
        texts = (f"{second}\n{states}" for second, states in printed.items())
        (folder / "nodes.snapshots").write_text("".join(texts))
        export(slurm, "sacct")
    return folder


def list_jobs(slurm: Slurm, seconds: int) -> None:
    """List all jobs every two seconds, as cron does."""
    texts, queues = slurm.folder / "jobs.txt", slurm.folder / "queue.json"
    with texts.open("a") as file, queues.open("a") as queue:
        for _ in range(seconds // 2):
            file.write(slurm.run("scontrol", "-a", "-o", "-d", "show", "job"))
            queue.write(slurm.run("squeue", "-a", "--json") + "\n")
            time.sleep(2)


def test_a_suspended_job_and_its_epilog_are_where_slurm_has_them(
    own_view: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = sampled(own_view)
    bounds = (known.start, known.end)
    options = (*known.window, "--events", str(own_view / "events.txt"))
    capsys.readouterr()
    blind = ingested(own_view, "slurm", "sacct.txt", options=options)
    assert "jobs were suspended" in capsys.readouterr().err
    (row,) = [row for row in rows_of(own_view, "sacct.txt") if row["NodeList"] == "n1"]
    lost_s = int(np.dot([3600, 60, 1], [int(part) for part in row["Suspended"].split(":")]))  # fmt: skip
    assert lost_s >= 12
    json = ingested(own_view, "slurm-json", "sacct.json", options=options)
    for trace in (blind, json):
        assert trace.uncertain is not None
        share = lost_s / (NODES * (known.end - known.start))
        assert dict(trace.uncertain.parts)["suspended jobs"] == pytest.approx(share)
    options = (*options, "--completing", str(EPILOG_S))
    listed = ingested(own_view, "slurm", "sacct.txt", "jobs.txt", options=options)
    exact = idle_seconds(listed, *bounds)
    queued = ingested(own_view, "slurm-json", "sacct.json", "queue.json", options=options)  # fmt: skip
    assert np.array_equal(exact, idle_seconds(queued, *bounds))
    slack = 3 + known.period
    agree(exact[:2], known.seen[:2], slack)
    # Slurm calls the node of the suspended job idle, and so does the trace.
    assert np.count_nonzero(np.diff(exact[0])) >= 4
    gained = exact[0] & known.seen[0] & ~idle_seconds(blind, *bounds)[0]
    assert np.count_nonzero(gained) >= lost_s - 2 * slack


def test_power_saving_is_in_the_events_of_slurm_and_suspected_without_them(
    own_view: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = sampled(own_view)
    capsys.readouterr()
    ingested(own_view, "slurm", "sacct.txt", options=known.window)
    assert "power saving takes nodes of the list down" in capsys.readouterr().err
    events = (*known.window, "--events", str(own_view / "events.txt"))
    trace = ingested(own_view, "slurm", "sacct.txt", options=events)
    assert "power saving" not in capsys.readouterr().err
    told, seen = idle_seconds(trace, known.start, known.end)[2], known.seen[2]
    assert not told[-1]
    # Events begin when the node is off: Slurm calls it idle% for as long as SuspendTimeout before.
    off = int(np.flatnonzero(~told)[0])
    assert not seen[off:].any()
    assert 0 < off - int(np.flatnonzero(~seen)[0]) <= 5 + 30


def test_shards_and_jobs_on_all_cores_take_the_gpus_that_slurm_cannot_give(
    own_view: Path, here: Path
) -> None:
    rows = rows_of(own_view, "sacct.txt")
    runs = {row["AllocTRES"]: (int(row["Start"]), int(row["End"])) for row in rows}
    (shard,) = [tres for tres in runs if "gres/shard=4" in tres]
    (cores,) = [tres for tres in runs if "gres" not in tres and "cpu=4" in tres]
    start = min(first for first, _ in runs.values())
    end = max(last for _, last in runs.values()) + 5
    window = ("--from", str(start), "--to", str(end), "--unit", "gpu")
    trace = ingested(own_view, "slurm", "sacct.txt", options=window)
    idle = idle_seconds(trace, start, end)
    counts = idle.reshape(NODES, 4, -1).sum(axis=1)[1]
    expected = np.full(end - start, 4)
    expected[runs[shard][0] - start : runs[shard][1] - start] -= 1
    expected[runs[cores][0] - start : runs[cores][1] - start] = 0
    assert counts.tolist() == expected.tolist()
