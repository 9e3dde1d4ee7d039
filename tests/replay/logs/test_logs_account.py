"""Exports that overlap and events beside them, held against an account of our own, second by second.

What is made of other logs as people export them are cases: tests/data/logs/account.toml.
"""

import json
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from synthetic_logs import BEGIN_S, idle_seconds_of, read_texts, stamp

DAY = 86_400
Job = tuple[str, str, int, int | None]
NODES = ["n1", "n2", "n3"]


def busy_seconds(
    jobs: Iterable[Job], nodes: list[str], seconds: int
) -> NDArray[np.bool_]:
    """The oracle: whether each node is busy during each second. Of an id and start only the latest record counts."""
    runs: dict[tuple[str, int], tuple[str, int]] = {}
    for job, node, start, end in jobs:
        if end is not None or (job, start) not in runs:
            runs[job, start] = (node, seconds if end is None else end)
    busy = np.zeros((len(nodes), seconds), dtype=bool)
    for (_, start), (node, end) in runs.items():
        busy[nodes.index(node), start:end] = True
    return busy


def table(head: str, row: str, open_end: str = "") -> Callable[[Iterable[Job]], str]:
    """A table of jobs with stamps: id, node, start, end and state; those without an end run."""

    def write(jobs: Iterable[Job]) -> str:
        lines = [head]
        for job, node, start, end in jobs:
            ended = (open_end, "RUNNING") if end is None else (stamp(end), "COMPLETED")
            lines.append(row.format(job, node, stamp(start), *ended))
        return "\n".join([*lines, ""])

    return write


def sacct_json(jobs: Iterable[Job]) -> str:
    entries = []
    for job, node, start, end in jobs:
        state = "RUNNING" if end is None else "COMPLETED"
        time = {"start": BEGIN_S + start, "end": 0 if end is None else BEGIN_S + end}
        entry = {"job_id": job, "cluster": "c", "nodes": node, "time": time}
        entries.append({**entry, "state": {"current": [state]}})
    return json.dumps({"jobs": entries}, indent=1)


SACCT = table("JobID|NodeList|AllocNodes|Start|End|State", "{0}|{1}|1|{2}|{3}|{4}", "Unknown")  # fmt: skip
WRITERS = {
    "slurm": SACCT,
    "slurm, counts": table("JobID|AllocNodes|Start|End|State", "{0}|1|{2}|{3}|{4}", "Unknown"),
    "slurm-json": sacct_json,
    "cobalt": table("JOB_NAME,MACHINE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION", "{0}.m,m,{2},{3},1,{1}"),
    "intervals": table("node,start,end", "{1},{2},{3}"),
    "intervals, of jobs": table("id,node,start,end", "{0},{1},{2},{3}"),
}  # fmt: skip


@st.composite
def exports(draw: st.DrawFn) -> list[list[Job]]:
    """Jobs of three nodes as four exports show them, each a quarter of 400 s: what runs at its end has no end yet."""
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 390))
        node, end = draw(st.sampled_from(NODES)), draw(st.integers(start + 1, 400))
        jobs.append((str(number), node, start, end))
    files: list[list[Job]] = []
    for now in range(100, 500, 100):
        mine = [job for job in jobs if job[2] < now and job[3] >= now - 100]
        # Exported days later what ran at midnight is in both days with its end.
        late = draw(st.booleans())
        files.append([(*job[:3], job[3] if late or job[3] <= now else None) for job in mine])  # fmt: skip
    return [file for file in draw(st.permutations(files)) if file]


@pytest.mark.parametrize("name", WRITERS)
@examples(100, quick=12)
@given(files=exports())
def test_exports_by_the_day_are_one_log(name: str, files: list[list[Job]]) -> None:
    counted = name == "slurm, counts"
    machine = {"machine_nodes": 20} if counted else {"nodes": [",".join(NODES)]}
    texts = [WRITERS[name](jobs) for jobs in files]
    made = read_texts(name.partition(",")[0], *texts, window=(0, 400), **machine)
    jobs = [job for file in files for job in file]
    idle = idle_seconds_of(made.trace, 400)
    if counted:
        jobs = [(job, job, *times) for job, _, *times in jobs]
        busy = busy_seconds(jobs, sorted({job for job, *_ in jobs}), 400)
        assert np.array_equal(idle.sum(axis=0), 20 - busy.sum(axis=0))
        return
    if name == "intervals":  # no ids: two jobs on a node from the same second on are one  # fmt: skip
        jobs = sorted(((node, node, *times) for _, node, *times in jobs), key=lambda job: job[3] or 0)  # fmt: skip
    busy = busy_seconds(jobs, NODES, 400)
    assert np.array_equal(idle, ~busy)
    assert made.coverage.busy == pytest.approx(busy.mean(), abs=1e-9)
    if name != "intervals":
        assert made.account.used == len({(job, start) for job, _, start, _ in jobs})
        assert made.coverage.intervals == made.account.used


MANY = SACCT((str(k), f"n{k % 4}", 600 * k, 600 * k + 500) for k in range(432))
BESIDE = {
    "csv": ("events", "node,start,end,state\nn1,{0},{1},down\n"),
    "sacctmgr": ("events", "NodeName|TimeStart|TimeEnd|State\nn1|{0}|{2}|DOWN\n"),
    "reservation": ("reservations", "ReservationName=r StartTime={0} EndTime={2} Nodes=n1\n"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BESIDE)
@pytest.mark.parametrize("when", [(DAY, DAY + 6 * 3600), (-900 * DAY, 900 * DAY), (2 * DAY, None)])  # fmt: skip
def test_events_do_not_change_the_window(
    kind: str, when: tuple[int, int | None]
) -> None:
    option, row = BESIDE[kind]
    end = "" if when[1] is None else stamp(when[1])
    files = {"beside": row.format(stamp(when[0]), end, end or "Unknown")}
    before = read_texts("slurm", MANY, window=None)
    after = read_texts("slurm", MANY, window=None, files=files, **{option: ["beside"]})
    assert (after.trace.start, after.trace.end) == (before.trace.start, before.trace.end)  # fmt: skip
    assert after.coverage.busy == before.coverage.busy
    up = np.ones((4, 3 * DAY), dtype=bool)
    # An outage without an end lasts to the next job's start on n1.
    until = 289 * 600 if when[1] is None and option == "events" else when[1]
    up[1, max(0, when[0]) : until] = False
    idle = idle_seconds_of(before.trace, 3 * DAY) & up
    assert np.array_equal(idle_seconds_of(after.trace, 3 * DAY), idle)
