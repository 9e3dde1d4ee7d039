"""What a real Slurm prints is read correctly: jobs, GPUs, its view of nodes, and all that the recipes ask for."""

import json
import os
import re
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from real_slurm import (
    PATIENCE_S,
    commands,
    idle_seconds,
    polled,
    recipe,
    slurm_cluster,
)

from bft.replay.cli.main import run
from bft.replay.cli.recipes import RECIPES, crontab_line
from bft.replay.logs.tables import SACCT_FIELDS
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

RECORDED = Path(__file__).parents[2] / "data" / "recorded"
SOURCES = ["recorded", pytest.param("run anew", marks=pytest.mark.slow)]
NODES = 3
# Nodes, GPUs of each, and seconds of jobs that share nodes.
GPU_JOBS = ((1, 1, 3), (2, 2, 5), (1, 3, 7), (1, 0, 3), (1, 1, 9), (1, 2, 1))


# What the recipe asks of all jobs so far, as a table and as JSON, and the nodes.
EXPORT = f"""
scontrol -o show node > nodes.txt
sacct -a -D -S now-1days --json > $1.json
export SLURM_TIME_FORMAT=%s
sacct -X -P -a -D -S now-1days --format={SACCT_FIELDS} > $1.txt
sacctmgr -P show event all_time format=NodeName,TimeStart,TimeEnd,State > events.txt
"""
SBATCH = "sbatch --parsable -o /dev/null"


@pytest.fixture(scope="module", params=SOURCES)
def logs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with what a real Slurm wrote of `GPU_JOBS`: what scontrol shows, and which GPUs a job has."""
    if request.param == "recorded":
        return RECORDED / "slurm-gpus"
    folder = tmp_path_factory.mktemp("slurm")
    with slurm_cluster(folder, NODES) as slurm:
        # A job goes on only when scontrol has shown that it runs, however long that takes.
        told = "echo $SLURM_JOB_ID $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES >> told"
        seen = "until [ -e seen-$SLURM_JOB_ID ]; do sleep 0.2; done"
        for nodes, gpus, seconds in GPU_JOBS:
            task = f"srun --ntasks-per-node=1 sh -c '{told}; {seen}; sleep {seconds}'"
            asked = [f"--gres=gpu:{gpus}"] if gpus else []
            slurm.run(*SBATCH.split(), "-N", str(nodes), *asked, "--wrap", task)
        end = time.monotonic() + PATIENCE_S
        with (folder / "gpus.listed").open("w") as file:
            while slurm.run("squeue", "-h").strip():
                assert time.monotonic() < end, "jobs of Slurm did not end"
                shown = slurm.run("scontrol", "-o", "-d", "show", "job")
                file.write(shown)
                for job in re.findall(r"(?m)^JobId=(\d+) .* JobState=RUNNING ", shown):
                    (folder / f"seen-{job}").touch()
                time.sleep(1)
        slurm.wait_accounted()
        slurm.run("bash", "-ec", EXPORT, "bash", "gpus")
    return folder


class Sampled(NamedTuple):
    """What snapshots show: a row of seconds for each node, their window, the longest time between two, and options."""

    seen: np.ndarray
    start: int
    end: int
    period: int
    window: tuple[str, ...]


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
    text = (folder / "nodes.snapshots").read_text()
    stamps = [*map(int, re.findall(r"^\d+$", text, re.M))]
    window = ("--from", str(start), "--to", str(end))
    seen = idle_seconds(trace, start, end)
    return Sampled(seen, start, end, int(np.diff(stamps).max()), window)


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
# A job is suspended while others have shards or all cores of a node; all jobs are listed every two seconds, as by cron.
OWN_VIEW = f"""
listed() {{
    for _ in $(seq $1); do
        scontrol -a -o -d show job >> jobs.txt
        squeue -a --json >> queue.json
        echo >> queue.json
        sleep 2
    done
}}
first=$({SBATCH} --exclusive -w n1 --wrap 'sleep 40')
{SBATCH} -n 1 --gres=shard:4 -w n2 --wrap 'sleep 15'
{SBATCH} -N 1 -n 4 -w n2 --wrap 'sleep 8'
sleep 8
scontrol suspend $first
listed 6
scontrol resume $first
listed 3
"""


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
    with slurm_cluster(folder, NODES, more, gres="gpu:a100:4,shard:32") as slurm:
        with polled(slurm) as printed:
            slurm.run("bash", "-ec", OWN_VIEW)
            slurm.wait_idle()
            time.sleep(3)
        texts = (f"{second}\n{states}" for second, states in printed.items())
        (folder / "nodes.snapshots").write_text("".join(texts))
        slurm.run("bash", "-ec", EXPORT, "bash", "sacct")
    return folder


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
    counts = idle_seconds(trace, start, end).reshape(NODES, 4, -1).sum(axis=1)[1]
    expected = np.full(end - start, 4)
    expected[runs[shard][0] - start : runs[shard][1] - start] -= 1
    expected[runs[cores][0] - start : runs[cores][1] - start] = 0
    assert counts.tolist() == expected.tolist()


FOUR = ("n1", "n2", "n3", "n4")
# Seconds by which states of nodes lag behind the accounting: a node completes before it is idle.
SINFO_LAG_S = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all recipes for Slurm were run, and the begin and end of what they saw.

    A node is drained while nothing runs on it and one is reserved; a job is cancelled while it waits, one has no limit
    and one is requeued.
    """
    folder = tmp_path_factory.mktemp("recipes")
    with slurm_cluster(folder, len(FOUR)) as slurm:
        slurm.env["HOME"] = str(folder)
        slurm.env["PATH"] = (
            f"{Path(sys.executable).parent}{os.pathsep}{slurm.env['PATH']}"
        )
        begin = int(time.time())
        with polled(slurm) as printed:
            slurm.run("bash", "-ec", USE)
        end = max(printed)
        (folder / "seen.json").write_text(json.dumps(printed))
        (folder / "window").write_text(f"{begin} {end}")
        for text in (RECIPES["slurm"], RECIPES["slurm-json"], crontab_line("slurm")):
            for command in commands(text):
                if not command.startswith("bft-replay"):  # the tests run these
                    slurm.run(
                        "bash", "-o", "pipefail", "-c", _dated(command, begin, end)
                    )
        time.sleep(1.1)
        slurm.run("bash", "-c", commands(crontab_line("slurm"))[0])
    return folder


# A requeued job may start after two minutes; it is not waited for.
USE = f"""
{SBATCH} -N1 --exclusive -w n1 --wrap 'sleep 15'
again=$({SBATCH} -N1 --exclusive -w n2 --requeue --wrap 'sleep 60')
sleep 8
scontrol update nodename=n3 state=drain reason=broken
scontrol create reservation reservationname=upkeep starttime=now duration=1 nodes=n4 users=root flags=maint,ignore_jobs
waiting=$({SBATCH} -N1 -w n3 --wrap 'sleep 5')
sleep 12
scancel $waiting
scontrol requeue $again
{SBATCH} -N1 --exclusive -w n1 --time=UNLIMITED --wrap 'sleep 14'
sleep 14
scontrol update nodename=n3 state=resume
scontrol delete reservationname=upkeep
scontrol hold $again
sleep 14
{SBATCH} -N2 --exclusive -w 'n[3-4]' --wrap 'sleep 12'
sleep 26
"""


def _dated(command: str, begin: int, end: int) -> str:
    first, last = (
        f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        for second in (begin, end)
    )
    for theirs, ours in (
        ("2024-01-01", first),
        ("2024-02-01", last),
        ("Europe/Berlin", "UTC"),
        ("cn[001-128]", "n[1-4]"),
    ):
        command = command.replace(theirs, ours)
    if shutil.which("jq") is None:
        return command.replace("jq .", f"{sys.executable} -m json.tool")
    return command


def _agrees(cluster: Path, trace: NodeTrace) -> None:
    """Nodes are idle when sinfo said so, but near a change."""
    begin, end = map(int, (cluster / "window").read_text().split())
    assert set(trace.nodes) == set(FOUR)
    seen = {
        int(second) - begin: dict(line.split() for line in printed.splitlines())
        for second, printed in json.loads((cluster / "seen.json").read_text()).items()
    }
    for node, idle in zip(FOUR, idle_seconds(trace, begin, end), strict=True):
        said = {s: states[node] in ("idle", "planned") for s, states in seen.items()}
        changes = np.flatnonzero(np.diff(idle.astype(int))).tolist()
        changes += [s for s in said if said[s] != said.get(s - 1, said[s])]
        far = [
            idle[s] == said[s]
            for s in said
            if 0 <= s < end - begin
            and all(abs(s - change) > SINFO_LAG_S for change in changes)
        ]
        assert {*far} == {True}


BESIDE = "--events events.txt --reservations reservations.txt --from {begin} --to {end}"
LISTED = f"ingest slurm jobs.sacct.xz gpus.txt --nodes nodes.txt {BESIDE} -o trace.parquet"  # fmt: skip


@pytest.mark.slow
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
    own = _dated(recipe(name), begin, end)
    words = command.format(command=own, begin=begin, end=end).replace('"', "").split()
    assert run([*words, "--force", "--min-gap", "0", "--json"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert account["skipped"] == []
    # Host jobs lie beside it, those that waited and never ran as well; the one without a limit has none.
    assert account["host_jobs"]["jobs"] > account["host_jobs"]["begun"] >= 4
    assert account["host_jobs"]["with_limit"] < account["host_jobs"]["begun"]
    _agrees(cluster, read_trace(words[words.index("-o") + 1]))


@pytest.mark.slow
def test_lines_of_cron_make_snapshots(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, told
) -> None:
    monkeypatch.chdir(cluster)
    told(f"{recipe('snapshots')} --force")
    assert set(read_trace("trace.parquet").nodes) == set(FOUR)
