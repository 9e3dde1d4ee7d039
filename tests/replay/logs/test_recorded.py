"""What a real Slurm, Grid Engine and OAR printed is read correctly; it is recorded: tests/data/recorded/README.md."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from real_slurm import commands, idle_seconds

from bft.replay.cli.main import run
from bft.replay.cli.recipes import RECIPES, crontab_line
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

RECORDED = Path(__file__).parents[2] / "data" / "recorded"
OWN_VIEW, GPUS = RECORDED / "slurm", RECORDED / "slurm-gpus"
NODES = 3
EPILOG_S = 5
# Nodes, GPUs of each, and seconds of jobs that share nodes.
GPU_JOBS = ((1, 1, 3), (2, 2, 5), (1, 3, 7), (1, 0, 3), (1, 1, 9), (1, 2, 1))


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
    paths = [str(folder / name) for name in files]
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


def test_gpus_that_jobs_were_given_are_busy_as_long_as_sacct_says(here: Path) -> None:
    rows = rows_of(GPUS, "gpus.txt")[-len(GPU_JOBS) :]
    runs = {row["JobID"]: (int(row["Start"]), int(row["End"])) for row in rows}
    start = min(first for first, _ in runs.values())
    end = max(last for _, last in runs.values()) + 5
    window = ("--from", str(start), "--to", str(end), "--unit", "gpu")
    trace = ingested(GPUS, "slurm", "gpus.txt", "gpus.listed.xz", options=window)
    idle = idle_seconds(trace, start, end)
    expected = np.ones_like(idle)
    told = [line.split() for line in (GPUS / "told").read_text().splitlines()]
    assert len(told) == sum(nodes for nodes, _, _ in GPU_JOBS)
    for job, node, *gpus in told:
        for gpu in gpus[0].split(",") if gpus else ():
            first, last = runs[job]
            slot = sorted(trace.nodes).index(node) * 4 + int(gpu)
            expected[slot, first - start : last - start] = False
    assert np.array_equal(idle, expected)


def test_a_suspended_job_and_its_epilog_are_where_slurm_has_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = sampled(OWN_VIEW)
    bounds = (known.start, known.end)
    options = (*known.window, "--events", str(OWN_VIEW / "events.txt"))
    capsys.readouterr()
    blind = ingested(OWN_VIEW, "slurm", "sacct.txt", options=options)
    assert "jobs were suspended" in capsys.readouterr().err
    (row,) = [row for row in rows_of(OWN_VIEW, "sacct.txt") if row["NodeList"] == "n1"]
    lost_s = int(np.dot([3600, 60, 1], [int(part) for part in row["Suspended"].split(":")]))  # fmt: skip
    assert lost_s >= 12
    json = ingested(OWN_VIEW, "slurm-json", "sacct.json.xz", options=options)
    for trace in (blind, json):
        share = lost_s / (NODES * (known.end - known.start))
        assert dict(trace.uncertain.parts)["suspended jobs"] == pytest.approx(share)
    options = (*options, "--completing", str(EPILOG_S))
    listed = ingested(OWN_VIEW, "slurm", "sacct.txt", "jobs.txt.xz", options=options)
    exact = idle_seconds(listed, *bounds)
    queued = ingested(OWN_VIEW, "slurm-json", "sacct.json.xz", "queue.json.xz", options=options)  # fmt: skip
    assert np.array_equal(exact, idle_seconds(queued, *bounds))
    slack = 3 + known.period
    agree(exact[:2], known.seen[:2], slack)
    # Slurm calls the node of the suspended job idle, and so does the trace.
    assert np.count_nonzero(np.diff(exact[0])) >= 4
    gained = exact[0] & known.seen[0] & ~idle_seconds(blind, *bounds)[0]
    assert np.count_nonzero(gained) >= lost_s - 2 * slack


def test_power_saving_is_in_the_events_of_slurm_and_suspected_without_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = sampled(OWN_VIEW)
    capsys.readouterr()
    ingested(OWN_VIEW, "slurm", "sacct.txt", options=known.window)
    assert "power saving takes nodes of the list down" in capsys.readouterr().err
    events = (*known.window, "--events", str(OWN_VIEW / "events.txt"))
    trace = ingested(OWN_VIEW, "slurm", "sacct.txt", options=events)
    assert "power saving" not in capsys.readouterr().err
    told, seen = idle_seconds(trace, known.start, known.end)[2], known.seen[2]
    assert not told[-1]
    # Events begin when the node is off: Slurm calls it idle% for as long as SuspendTimeout before.
    off = int(np.flatnonzero(~told)[0])
    assert not seen[off:].any()
    assert 0 < off - int(np.flatnonzero(~seen)[0]) <= 5 + 30


def test_shards_and_jobs_on_all_cores_take_the_gpus_that_slurm_cannot_give(
    here: Path,
) -> None:
    rows = rows_of(OWN_VIEW, "sacct.txt")
    runs = {row["AllocTRES"]: (int(row["Start"]), int(row["End"])) for row in rows}
    (shard,) = [tres for tres in runs if "gres/shard=4" in tres]
    (cores,) = [tres for tres in runs if "gres" not in tres and "cpu=4" in tres]
    start = min(first for first, _ in runs.values())
    end = max(last for _, last in runs.values()) + 5
    window = ("--from", str(start), "--to", str(end), "--unit", "gpu")
    trace = ingested(OWN_VIEW, "slurm", "sacct.txt", options=window)
    idle = idle_seconds(trace, start, end)
    counts = idle.reshape(NODES, 4, -1).sum(axis=1)[1]
    expected = np.full(end - start, 4)
    expected[runs[shard][0] - start : runs[shard][1] - start] -= 1
    expected[runs[cores][0] - start : runs[cores][1] - start] = 0
    assert counts.tolist() == expected.tolist()


HOSTS = ("n1", "n2", "n3", "n4")
# Seconds by which a scheduler's times may be off those of a job: it prepares the job, and cleans up.
LAG_S = 4


@pytest.mark.parametrize(
    ("scheduler", "noted"),
    [("sge", "a parallel job names one host only"), ("oar", '"skipped": []')],
)
def test_what_the_recipe_wrote_is_where_jobs_say_that_they_ran(
    scheduler: str, noted: str, here: Path, told: Callable[..., str]
) -> None:
    shutil.copytree(RECORDED / scheduler, here, dirs_exist_ok=True)
    *exported, command = commands(RECIPES[scheduler])
    exported += commands(crontab_line(scheduler)) if scheduler == "sge" else []
    assert Path("commands.txt").read_text().splitlines() == exported
    options = "--force --min-gap 0 --json"
    told(f"{command.removeprefix('bft-replay ')} {options}", '"skipped": []', noted)
    trace = read_trace("trace.parquet")
    assert trace.nodes == HOSTS
    begin, end = trace.start // SECOND_NS, trace.end // SECOND_NS
    idle = idle_seconds(trace, begin, end)
    taken, near = np.zeros_like(idle), np.zeros_like(idle)
    for line in Path("truth.txt").read_text().splitlines():
        host, *edges = line.split()
        low, high = (max(0, int(edge) - begin) for edge in edges)
        taken[HOSTS.index(host), low:high] = True
        for edge in (low, high):
            near[HOSTS.index(host), max(0, edge - LAG_S) : edge + LAG_S] = True
    assert (~near & taken).sum() > 5
    assert (~near & ~taken).sum() > 20
    assert (idle == ~taken)[~near].all()


def test_the_line_for_cron_made_snapshots_of_grid_engine(
    here: Path, told: Callable[..., str]
) -> None:
    shutil.copy(RECORDED / "sge" / "nodes.snapshots", here)
    *_, command = commands(RECIPES["snapshots"])
    told(f"{command.removeprefix('bft-replay ')} --force --min-gap 0")
    trace = read_trace("trace.parquet")
    assert trace.nodes == HOSTS
    assert 0 < trace.idle_node_seconds() < 4 * (trace.end - trace.start) / SECOND_NS
