"""Units of nodes from logs of jobs with GPU counts: held against a count of every unit in every second.

Rows and lists of nodes one by one are cases: tests/data/logs/units.toml.
"""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs import BEGIN_S, damages, read_texts, taken
from synthetic_logs import stamp as moment

from bft.models import InputError

LENGTH_S = 60
SIZES = {"n1": 4, "n2": 4, "n3": 2}
NODES = "".join(
    f"NodeName={name} CPUTot={8 * size}\n   Gres=gpu:a100:{size}(S:0-1)\n   CfgTRES=cpu={8 * size},gres/gpu={size}\n"
    for name, size in SIZES.items()
)


@dataclass(frozen=True)
class GpuJob:
    """A job of one node: so many GPUs, or just these, or all; seconds since BEGIN_S, an end of None: it still runs."""

    node: str
    gpus: int | tuple[int, ...] | None
    start_s: int
    end_s: int | None

    @property
    def named(self) -> tuple[int, ...]:
        return self.gpus if isinstance(self.gpus, tuple) else ()

    @property
    def count(self) -> int:
        return self.gpus if isinstance(self.gpus, int) else len(self.named)

    @property
    def last_s(self) -> int:
        return LENGTH_S if self.end_s is None else self.end_s

    @property
    def state(self) -> str:
        return "RUNNING" if self.end_s is None else "COMPLETED"


@st.composite
def gpu_jobs(draw: st.DrawFn, *, named: bool) -> list[GpuJob]:
    jobs = []
    for _ in range(draw(st.integers(1, 12))):
        node = draw(st.sampled_from(sorted(SIZES)))
        some = st.integers(0, SIZES[node]) | st.none()
        if named:
            units = st.sets(st.integers(0, SIZES[node] - 1), min_size=1)
            some |= units.map(lambda units: tuple(sorted(units)))
        start = draw(st.integers(0, LENGTH_S - 2))
        end = draw(st.integers(start + 1, LENGTH_S) | st.none())
        jobs.append(GpuJob(node, draw(some), start, end))
    return jobs


def no_units():
    units = [(node, unit) for node, size in SIZES.items() for unit in range(size)]
    return {unit: np.zeros(LENGTH_S, dtype=bool) for unit in units}


def busy_units(jobs: list[GpuJob]):
    """Which second each unit is busy in, by the rules and nothing else: second by second, unit by unit."""
    busy = no_units()

    def rank(job: GpuJob) -> tuple[int, bool, int, int]:
        """Those that name their units, the long and the large first."""
        size = SIZES[job.node] if job.gpus is None else job.count
        return job.start_s, isinstance(job.gpus, int), -(job.end_s or 10**9), -size

    for job in sorted(jobs, key=rank):
        chosen = [*(range(SIZES[job.node]) if job.gpus is None else job.named)]
        if isinstance(job.gpus, int):
            free = [
                unit
                for unit in range(SIZES[job.node])
                if not busy[job.node, unit][job.start_s]
            ]
            others = [
                other
                for other in jobs
                if other.node == job.node
                and other.start_s < job.last_s
                and job.start_s < other.last_s
            ]
            wanted = {unit for other in others for unit in other.named}
            chosen = sorted(free, key=lambda unit: (unit in wanted, unit))[: job.gpus]
        for unit in chosen:
            busy[job.node, unit][job.start_s : job.last_s] = True
    return busy


def units_taken(trace):
    busy = no_units()
    for name, start, end in taken(trace):
        node, _, unit = name.rpartition("/")
        busy[node, int(unit)][int(start) : int(min(end, LENGTH_S))] = True
    return busy


def stamp(second: int | None) -> str:
    return "Unknown" if second is None else moment(second)


def sacct(jobs: list[GpuJob], prefix: str = "", uncounted: bool = False) -> str:
    """A table of jobs; of those that name their GPUs none are counted where gres/gpu is no AccountingStorageTRES."""
    rows = [
        f"{prefix}{number}|{job.node}|{stamp(job.start_s)}|{stamp(job.end_s)}|{job.state}|cpu=4"
        + (
            f",gres/gpu:a100={job.count},gres/gpu={job.count}"
            if job.count and not (job.named and uncounted)
            else ""
        )
        + ("|EXCLUSIVE" if job.gpus is None else "|OK")
        for number, job in enumerate(jobs)
    ]
    return "\n".join(["JobID|NodeList|Start|End|State|AllocTRES|OverSubscribe", *rows])


def scontrol_json(jobs: list[GpuJob]) -> str:
    entries = [
        {
            "job_id": number, "nodes": job.node, "job_state": [job.state],
            "start_time": {"set": True, "number": BEGIN_S + job.start_s},
            "end_time": {"set": True, "number": BEGIN_S + (job.end_s or 10**6)},
            "tres_alloc_str": "cpu=4" + (f",gres/gpu={job.count}" if job.count else ""),
            "gres_detail": [f"gpu:a100:{job.count}(IDX:{','.join(map(str, job.named))})"] if job.named else [],
            "shared": ["none"] if job.gpus is None else [],
        }
        for number, job in enumerate(jobs)
    ]  # fmt: skip
    return json.dumps({"jobs": entries})


def pbs(jobs: list[GpuJob]) -> str:
    lines = [(LENGTH_S, f"L;x;license at {BEGIN_S + LENGTH_S}")]
    for number, job in enumerate(jobs):
        vnode = f"exec_vnode=({job.node}:ncpus=4:ngpus={0 if job.named else job.count})"
        alone = " Resource_List.place=exclhost" if job.gpus is None else ""
        named = "+".join(f"{job.node}-gpu/{unit}" for unit in job.named)
        text = f"{number}.s;start={BEGIN_S + job.start_s} exec_host={job.node}/0*4 {vnode}{alone}"
        text += f" exec_gpus={named}" if named else ""
        lines.append((job.start_s, f"S;{text}"))
        if job.end_s is not None:
            lines.append((job.end_s, f"E;{text} end={BEGIN_S + job.end_s}"))
    stamps = {
        at: f"{datetime.fromtimestamp(BEGIN_S + at, UTC):%m/%d/%Y %H:%M:%S}"
        for at, _ in lines
    }
    return "\n".join(f"{stamps[at]};{text}" for at, text in sorted(lines))


def scontrol_job(number: int, job: GpuJob) -> str:
    """A job that runs as `scontrol show job -d` prints it; all styles in turn."""
    count = SIZES[job.node] if job.gpus is None else job.count
    listed = ",".join(map(str, job.named))
    detail = (f"GRES_IDX=gpu(IDX:{listed})", f"GRES=gpu:a100:{count}(IDX:{listed}),nic:1(IDX:9)",
              f"GRES=gpu:{count}(IDX:{listed})")[number % 3] if listed else "GRES="  # fmt: skip
    lines = [
        f"JobId={100 + number} ArrayJobId=7 ArrayTaskId={number} JobName=of a user NodeList=n9 JobState=PENDING a=b",
        "UserId=root(0) GroupId=root(0) MCS_label=N/A",
        "JobState=RUNNING Reason=None Dependency=(null)",
        f"StartTime={stamp(job.start_s)} EndTime={stamp(LENGTH_S)} Deadline=N/A",
        "ReqNodeList=(null) ExcNodeList=(null)",
        f"NodeList={job.node}",
        "NumNodes=1 NumCPUs=4 NumTasks=1",
        f"TRES=cpu=4,node=1{f',gres/gpu={count}' if number % 2 else ''}",
        f"JOB_GRES={f'gpu:a100:{count}' if count else '(null)'}",
        f"  Nodes={job.node} CPU_IDs=0-3 Mem=0 {detail}",
        f"OverSubscribe={'NO' if job.gpus is None else 'OK'} Contiguous=0",
        "Comment=NodeList=n8 TRES=gres/gpu=4",
    ]
    return " ".join(lines) if number % 2 else "\n   ".join([*lines, "\n"])


WRITERS = {"slurm": sacct, "slurm-json": scontrol_json, "pbs": pbs}


def read(form: str, *texts: str, nodes: str = NODES):
    return read_texts(
        form,
        *texts,
        unit="gpu",
        window=(0, LENGTH_S),
        nodes=["nodes"],
        files={"nodes": nodes},
    )


@pytest.mark.parametrize("form", WRITERS)
@given(data=st.data())
def test_units_are_idle_in_the_seconds_in_which_no_job_holds_them(
    form: str, data: st.DataObject
) -> None:
    jobs = data.draw(gpu_jobs(named=form != "slurm"))
    if form == "pbs":  # what runs lasts to the last record there is
        jobs = [replace(job, end_s=job.last_s) for job in jobs]
    made = read(form, WRITERS[form](jobs))
    coverage, busy = made.coverage, busy_units(jobs)
    np.testing.assert_equal(units_taken(made.trace), busy)
    # Conservation: each unit-second went somewhere, and once.
    units = sum(SIZES.values())
    total = units * LENGTH_S
    assert (coverage.units, coverage.node_seconds) == (units, total)
    assert coverage.busy * total == pytest.approx(np.sum([*busy.values()]))
    parts = (coverage.idle, coverage.busy, coverage.unavailable, coverage.short_gaps)
    assert sum(parts) == pytest.approx(1)
    assert made.account.used >= len(jobs)


@given(jobs=gpu_jobs(named=True), uncounted=st.booleans(), swapped=st.booleans())
def test_which_units_is_what_scontrol_knew_while_jobs_ran_and_how_long_is_what_sacct_knows(
    jobs: list[GpuJob], uncounted: bool, swapped: bool
) -> None:
    table = sacct(jobs, "7_", uncounted)
    table = "\n".join([table, *table.split("\n")[1:2]])  # the first job twice
    kept = "\n".join(scontrol_job(number, job) for number, job in enumerate(jobs))
    made = read("slurm", *((kept, table) if swapped else (table, kept)))
    np.testing.assert_equal(units_taken(made.trace), busy_units(jobs))
    # And the rows of the list of nodes.
    assert made.account.used == len(jobs) + len(SIZES)


def one_job(nodes: str, gpus: int) -> str:
    row = f"1|{nodes}|{moment(10)}|{moment(40)}|COMPLETED|cpu=2,gres/gpu={gpus}"
    return f"JobID|NodeList|Start|End|State|AllocTRES\n{row}"


@given(
    total=st.integers(0, 40), sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5)
)
def test_units_of_several_nodes_are_spread_evenly(total: int, sizes: list[int]) -> None:
    listed = [f"NodeName=n{k} Gres=gpu:{size}\n" for k, size in enumerate(sizes)]
    made = read(
        "slurm", one_job(f"n[0-{len(sizes) - 1}]", total), nodes="".join(listed)
    )
    units = [name.partition("/")[0] for name, *_ in taken(made.trace)]
    given_units = [units.count(f"n{number}") for number in range(len(sizes))]
    if total > sum(sizes):
        assert [*made.account.skipped] == ["a job has more units than its nodes"]
        return
    assert sum(given_units) == total
    # No node has two more than another one that has room.
    pairs = [*zip(given_units, sizes, strict=True)]
    assert all(a - b <= 1 or b == size for a in given_units for b, size in pairs)


@given(data=st.data())
def test_hostile_bytes_of_scontrol_do_no_harm(data: st.DataObject) -> None:
    jobs = [GpuJob("n1", (1, 3), 10, None), GpuJob("n3", (1,), 10, 40)] * 2
    text = "\n".join(scontrol_job(number, job) for number, job in enumerate(jobs))
    with suppress(InputError):
        read("slurm", data.draw(damages(text)))


def test_what_is_told_of_units(here: Path, told) -> None:
    Path("log").write_text(one_job("n[1-2]", 2))
    command = "ingest slurm log -o t.csv --tz UTC --unit gpu --units-per-node 4 --from"
    which = "the log states how many GPUs of a node a job had, not which"
    told(f"{command} {moment(0)}", which, "2 nodes of 8 units", "unit-time")
    told("trace info t.csv", "8, up to 4 a node")
