"""JSON of Slurm's releases: one log, written as each release prints it, is read alike.

22.05 is what a real one printed (`test_real_slurm.py` runs it); the others are by the shapes in their sources:
src/plugins/data_parser/v0.0.39/parsers.c of slurm-23-02-8-1, v0.0.41 of slurm-24-05-8-1, v0.0.43 of slurm-25-05-8-1 and
v0.0.45 of slurm-26-05-3-1.
"""

from __future__ import annotations

import json
from collections import namedtuple
from typing import Any

import pytest
from synthetic_logs_more import BEGIN_S, read_texts

from bft.replay.trace.host_jobs import NEVER
from bft.replay.trace.node_trace import SECOND_NS

START_S = 1_704_067_200
RELEASES = ("22.05", "23.02", "24.05", "25.05", "26.05")
NO_VAL = 2**32 - 2


# A job of n[1-2] or n3: seconds since START_S (None: not yet), limit in minutes (None: unlimited).
Job = namedtuple("Job", "number nodes start_s end_s state limit gpus")
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
        return START_S + second
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
                "elapsed": 0, "eligible": START_S, "submission": START_S, "suspended": 0,
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
        guess = START_S + 5000
        start = guess if waiting else START_S + (job.start_s or 0)
        if waiting and job.end_s is not None:  # cancelled: both are the end
            start = START_S + job.end_s
        end = guess + 10**9 if job.end_s is None else START_S + job.end_s
        old = release == "22.05"
        plain = release in ("22.05", "23.02")
        entry: dict[str, Any] = {
            "job_id": job.number, "nodes": "" if waiting else job.nodes, "partition": "all",
            "job_state": job.state if plain else [job.state],
            "start_time": start if plain else number(release, start),
            "end_time": end if plain else number(release, end),
            "submit_time": START_S if plain else number(release, START_S),
            "eligible_time": START_S if plain else number(release, START_S),
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
    old = {"state": "idle", "state_flags": ["PLANNED"]}
    words = old if release == "22.05" else {"state": ["IDLE", "PLANNED"]}
    listed = {"cpus": 16, "gres": "gpu:4", "tres": "cpu=16,gres/gpu=4", **words}
    entries = [{"name": name, "hostname": name, **listed} for name in ("n1", "n2", "n3")]  # fmt: skip
    return json.dumps({"nodes": entries}, indent=1)


@pytest.mark.parametrize("unit", ["node", "gpu"])
@pytest.mark.parametrize("writer", [sacct, queue])
@pytest.mark.parametrize("release", RELEASES)
def test_json_of_each_release_is_read_without_a_false_alarm(
    release: str, writer: Any, unit: str
) -> None:
    window = (START_S - BEGIN_S, START_S - BEGIN_S + 1800)
    listed: dict[str, Any] = {"files": {"nodes.json": nodes(release)}, "nodes": ["nodes.json"]}  # fmt: skip
    made = read_texts("slurm-json", writer(release), window=window, unit=unit, **listed)
    assert not made.account.skipped
    if unit == "gpu":  # job 6 has none: it leaves all four of n2 idle
        assert made.trace.idle_unit_seconds() == 12 * 1800 - (4 * 600 + 600 + 2 * 600)
        return
    # n1 600 + 600, n2 600 + 600, n3 600 of three nodes and 1800 s.
    assert made.trace.idle_node_seconds() == 3 * 1800 - 5 * 600
    assert made.account.used == len(made.trace.nodes) + 4
    jobs = made.trace.host_jobs
    assert jobs is not None
    ends = jobs.expected_end[jobs.expected_end != NEVER] // SECOND_NS - START_S
    assert sorted(ends.tolist()) == [1300, 3600, 4800]
    assert sorted(jobs.count.tolist()) == [1, 1, 1, 1, 1, 2]
    assert (jobs.counts()["begun"], set(jobs.known // SECOND_NS)) == (4, {START_S})
