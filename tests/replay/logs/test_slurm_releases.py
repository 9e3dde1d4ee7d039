"""JSON of Slurm's releases: one log, written as each release prints it, is read alike.

22.05 is what a real one printed (`test_real_slurm.py` runs it); the others are by the shapes in their sources:
src/plugins/data_parser/v0.0.39/parsers.c of slurm-23-02-8-1, v0.0.41 of slurm-24-05-8-1, v0.0.43 of slurm-25-05-8-1 and
v0.0.45 of slurm-26-05-3-1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bft.replay.logs.from_files import Ingested, IngestOptions, ingested

BEGIN_S = 1_704_067_200
RELEASES = ("22.05", "23.02", "24.05", "25.05", "26.05")
NO_VAL = 2**32 - 2


@dataclass(frozen=True)
class Job:
    """A job of n[1-2] or n3: seconds since BEGIN_S (None: not yet), state, limit in minutes (None: unlimited), GPUs."""

    number: int
    nodes: str
    start_s: int | None
    end_s: int | None
    state: str
    limit: int | None
    gpus: int


JOBS = (
    Job(1, "n[1-2]", 0, 600, "COMPLETED", 60, 4),
    Job(2, "n3", 300, 900, "TIMEOUT", None, 1),
    Job(3, "n1", 1200, None, "RUNNING", 60, 2),
    Job(4, "None assigned", None, 700, "CANCELLED", 5, 0),
    Job(5, "None assigned", None, None, "PENDING", None, 0),
    Job(6, "n2", 700, 1300, "FAILED", 10, 0),
)


def number(release: str, value: int | None, *, infinite: bool = False) -> Any:
    """A number of 32 bits that may be unset or infinite."""
    if release == "22.05":
        return value
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


def time(release: str, second: int | None, *, cancelled: bool = False) -> int | None:
    """A time of sacct: of a job that was cancelled while it waited the start is not known."""
    if second is not None:
        return BEGIN_S + second
    if not cancelled:
        return 0
    return NO_VAL if release in ("23.02", "24.05") else None


def sacct(release: str) -> str:
    entries = []
    for job in JOBS:
        listed = release not in ("22.05", "23.02")
        waiting = job.start_s is None
        kinds = [
            ("cpu", "", 1, 8),
            ("energy", "", 3, None),
            ("node", "", 4, 1),
            ("billing", "", 5, 8),
        ]
        kinds += [("gres", "gpu", 1001, job.gpus)] if job.gpus else []
        tres = [
            {
                "type": kind,
                "name": name or ("" if listed else None),
                "id": place,
                "count": count,
            }
            for kind, name, place, count in kinds
        ]
        entry: dict[str, Any] = {
            "cluster": "sandbox", "partition": "all", "job_id": job.number, "nodes": job.nodes,
            "state": {"current": [job.state] if listed else job.state, "reason": "None"},
            "time": {
                "elapsed": 0, "eligible": BEGIN_S, "submission": BEGIN_S, "suspended": 0,
                "start": time(release, job.start_s, cancelled=waiting and job.end_s is not None),
                "end": time(release, job.end_s),
                "limit": number(release, job.limit, infinite=job.limit is None and release != "22.05"),
            },
            "tres": {"allocated": [] if waiting else tres, "requested": tres},
        }  # fmt: skip
        if release == "26.05":
            entry |= {"exclusive": "NO", "oversubscribe": "NO"}
        entries.append(entry)
    return json.dumps(
        {"meta": {"Slurm": {"release": release}}, "jobs": entries}, indent=1
    )


def queue(release: str) -> str:
    """`squeue --json` and `scontrol show job --json`: the end of a job that runs is its limit."""
    entries = []
    for job in JOBS:
        waiting = job.start_s is None
        guess = BEGIN_S + 5000
        start = guess if waiting else BEGIN_S + (job.start_s or 0)
        if waiting and job.end_s is not None:  # cancelled: both are the end
            start = BEGIN_S + job.end_s
        end = guess + 10**9 if job.end_s is None else BEGIN_S + job.end_s
        old = release == "22.05"
        plain = release in ("22.05", "23.02")
        entry: dict[str, Any] = {
            "job_id": job.number, "nodes": "" if waiting else job.nodes, "partition": "all",
            "job_state": job.state if plain else [job.state],
            "start_time": start if plain else number(release, start),
            "end_time": end if plain else number(release, end),
            "submit_time": BEGIN_S if plain else number(release, BEGIN_S),
            "eligible_time": BEGIN_S if plain else number(release, BEGIN_S),
            "time_limit": number(release, job.limit, infinite=job.limit is None and not old),
            "node_count": 1 if old else number(release, 1),
            "tres_alloc_str": "" if waiting else f"cpu=8,node=1{f',gres/gpu={job.gpus}' if job.gpus else ''}",
            "gres_detail": [],
        }  # fmt: skip
        shared: dict[str, dict[str, Any]] = {
            "22.05": {"shared": None},
            "23.02": {"shared": [], "exclusive": []},
            "24.05": {"shared": [], "exclusive": ["false"]},
            "25.05": {"shared": []},
            "26.05": {"exclusive": "NO", "oversubscribe": "NO"},
        }
        entries.append(entry | shared[release])
    return json.dumps({"meta": {}, "jobs": entries}, indent=1)


def nodes(release: str) -> str:
    """`sinfo --json` and `scontrol show node --json`: sinfo lists groups of nodes from 23.02 on."""
    entries: list[dict[str, Any]] = []
    for name in ("n1", "n2", "n3"):
        entry: dict[str, Any] = {
            "name": name,
            "hostname": name,
            "cpus": 16,
            "gres": "gpu:4",
            "tres": "cpu=16,gres/gpu=4",
        }
        words = (
            {"state": "idle", "state_flags": ["PLANNED"]}
            if release == "22.05"
            else {"state": ["IDLE", "PLANNED"]}
        )
        entries.append(entry | words)
    return json.dumps({"nodes": entries}, indent=1)


def read(folder: Path, release: str, text: str, **more: Any) -> Ingested:
    (folder / "jobs.json").write_text(text)
    (folder / "nodes.json").write_text(nodes(release))
    options = IngestOptions(
        nodes=(str(folder / "nodes.json"),),
        begin="2024-01-01T00:00:00", end="2024-01-01T00:30:00", min_gap_s=0, allow_few=True, **more,
    )  # fmt: skip
    return ingested("slurm-json", [str(folder / "jobs.json")], options)


@pytest.mark.parametrize("writer", [sacct, queue])
@pytest.mark.parametrize("release", RELEASES)
def test_json_of_each_release_is_read_without_a_false_alarm(
    release: str, writer: Any, tmp_path: Path
) -> None:
    made = read(tmp_path, release, writer(release))
    # n1 600 + 600, n2 600 + 600, n3 600 of three nodes and 1800 s.
    assert made.trace.idle_node_seconds() == 3 * 1800 - (600 + 600 + 600 + 600 + 600)
    assert not made.diagnosis.skipped
    assert made.diagnosis.used == len(made.trace.nodes) + 4


@pytest.mark.parametrize("writer", [sacct, queue])
@pytest.mark.parametrize("release", RELEASES)
def test_limits_of_each_release(release: str, writer: Any, tmp_path: Path) -> None:
    made = read(tmp_path, release, writer(release), walltimes=True)
    assert not made.diagnosis.skipped
    assert made.walltimes is not None
    assert made.trace.idle_node_seconds() == 2400


@pytest.mark.parametrize("writer", [sacct, queue])
@pytest.mark.parametrize("release", RELEASES)
def test_gpus_of_each_release(release: str, writer: Any, tmp_path: Path) -> None:
    made = read(tmp_path, release, writer(release), unit="gpu")
    assert not made.diagnosis.skipped
    # Job 6 has no GPU: it leaves all four of n2 idle.
    assert made.trace.idle_unit_seconds() == 12 * 1800 - (4 * 600 + 600 + 2 * 600)
