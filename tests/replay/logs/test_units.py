"""Units of nodes from logs of jobs with GPU counts: held against a count of every unit in every second."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs.diagnosis import Unusable
from bft.replay.logs.from_files import Ingested, IngestOptions, ingested
from bft.replay.logs.units import spread
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace, write_trace

BEGIN_S, LENGTH_S = 1_613_000_000, 60
GPU = "nvidia.com/gpu"
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


@st.composite
def gpu_jobs(draw: st.DrawFn, *, named: bool) -> list[GpuJob]:
    jobs = []
    for _ in range(draw(st.integers(1, 12))):
        node = draw(st.sampled_from(sorted(SIZES)))
        some = st.integers(0, SIZES[node]) | st.none()
        if named:
            some |= st.sets(st.integers(0, SIZES[node] - 1), min_size=1).map(
                lambda units: tuple(sorted(units))
            )
        start = draw(st.integers(0, LENGTH_S - 2))
        end = draw(st.integers(start + 1, LENGTH_S) | st.none())
        jobs.append(GpuJob(node, draw(some), start, end))
    return jobs


def busy_units(jobs: list[GpuJob]) -> dict[tuple[str, int], NDArray[np.bool_]]:
    """Which second each unit is busy in, by the rules and nothing else: second by second, unit by unit."""
    busy = {
        (node, unit): np.zeros(LENGTH_S, dtype=bool)
        for node, size in SIZES.items()
        for unit in range(size)
    }

    def size(job: GpuJob) -> int:
        return (
            SIZES[job.node]
            if job.gpus is None
            else job.gpus
            if isinstance(job.gpus, int)
            else len(job.gpus)
        )

    def rank(
        job: GpuJob,
    ) -> tuple[
        int, bool, int, int
    ]:  # those that name their units, the long and the large first
        return job.start_s, isinstance(job.gpus, int), -(job.end_s or 10**9), -size(job)

    named = [job for job in jobs if isinstance(job.gpus, tuple)]
    for job in sorted(jobs, key=rank):
        end = LENGTH_S if job.end_s is None else job.end_s
        units = range(SIZES[job.node])
        if isinstance(job.gpus, int):
            free = [
                unit
                for unit in units
                if not busy[job.node, unit][job.start_s :][:1].any()
            ]
            wanted = {
                unit for other in named if other.node == job.node for unit in other.gpus or ()  # type: ignore[union-attr]
                if other.start_s < end and job.start_s < (LENGTH_S if other.end_s is None else other.end_s)
            }  # fmt: skip
            chosen = sorted(free, key=lambda unit: (unit in wanted, unit))[: job.gpus]
        else:
            chosen = list(units if job.gpus is None else job.gpus)
        for unit in chosen:
            busy[job.node, unit][job.start_s : end] = True
    return busy


def idle_units(trace: NodeTrace) -> dict[tuple[str, int], NDArray[np.bool_]]:
    """Which second each unit of a trace is idle in."""
    idle = np.zeros((trace.slots, (trace.end - trace.start) // SECOND_NS), dtype=bool)
    for event, time in enumerate(trace.times.tolist()):
        second = (time - trace.start) // SECOND_NS
        idle[trace.leaves(event), second:] = False
        idle[trace.joins(event), second:] = True
    names = [trace.name_of(slot).rsplit("/", 1) for slot in trace.members().tolist()]
    return {
        (name, int(unit)): idle[slot]
        for (name, unit), slot in zip(names, trace.members().tolist(), strict=True)
    }


def stamp(second: int | None) -> str:
    return "Unknown" if second is None else f"{np.datetime64(BEGIN_S + second, 's')}"


def sacct(jobs: list[GpuJob]) -> str:
    lines = ["JobID|NodeList|Start|End|State|AllocTRES|OverSubscribe"]
    for number, job in enumerate(jobs):
        tres = "cpu=4" + (
            f",gres/gpu:a100={job.gpus},gres/gpu={job.gpus}" if job.gpus else ""
        )
        state = "RUNNING" if job.end_s is None else "COMPLETED"
        alone = "EXCLUSIVE" if job.gpus is None else "OK"
        lines.append(
            "|".join(
                [
                    str(number),
                    job.node,
                    stamp(job.start_s),
                    stamp(job.end_s),
                    state,
                    tres,
                    alone,
                ]
            )
        )
    return "\n".join(lines)


def scontrol_json(jobs: list[GpuJob]) -> str:
    entries = []
    for number, job in enumerate(jobs):
        count = job.gpus if isinstance(job.gpus, int) else len(job.gpus or ())
        named = isinstance(job.gpus, tuple)
        entries.append({
            "job_id": number, "nodes": job.node, "job_state": ["RUNNING" if job.end_s is None else "COMPLETED"],
            "start_time": {"set": True, "number": BEGIN_S + job.start_s},
            "end_time": {"set": True, "number": BEGIN_S + (job.end_s or 10**6)},
            "tres_alloc_str": "cpu=4" + (f",gres/gpu={count}" if count else ""),
            "gres_detail": [f"gpu:a100:{count}(IDX:{','.join(map(str, job.gpus))})"] if named else [],  # type: ignore[arg-type]
            "shared": ["none"] if job.gpus is None else [],
        })  # fmt: skip
    return json.dumps({"jobs": entries})


def pbs(jobs: list[GpuJob]) -> str:
    lines = []
    for number, job in enumerate(jobs):
        named = isinstance(job.gpus, tuple)
        count = 0 if job.gpus is None or isinstance(job.gpus, tuple) else job.gpus
        values = [f"start={BEGIN_S + job.start_s}", f"exec_host={job.node}/0*4",
                  f"exec_vnode=({job.node}:ncpus=4:ngpus={count})"]  # fmt: skip
        values += ["Resource_List.place=exclhost"] if job.gpus is None else []
        values += (
            ["exec_gpus=" + "+".join(f"{job.node}-gpu/{unit}" for unit in job.gpus)]
            if named
            else []
        )  # type: ignore[union-attr]
        lines.append((job.start_s, f"S;{number}.s;{' '.join(values)}"))
        if job.end_s is not None:
            lines.append(
                (
                    job.end_s,
                    f"E;{number}.s;{' '.join([*values, f'end={BEGIN_S + job.end_s}'])}",
                )
            )
    lines.append((LENGTH_S, f"L;x;license at {BEGIN_S + LENGTH_S}"))
    stamps = {
        second: np.datetime64(BEGIN_S + second, "s").item() for second, _ in lines
    }
    return "\n".join(
        f"{stamps[second]:%m/%d/%Y %H:%M:%S};{text}" for second, text in sorted(lines)
    )


def scontrol_job(number: int, job: GpuJob, *, ended: bool) -> str:
    """A job as `scontrol show job -d` prints it: of one that has ended not which GPUs it had; all styles in turn."""
    count = (
        SIZES[job.node]
        if job.gpus is None
        else job.gpus
        if isinstance(job.gpus, int)
        else len(job.gpus)
    )
    listed = (
        ",".join(map(str, job.gpus))
        if isinstance(job.gpus, tuple) and not ended
        else ""
    )
    detail = (f"GRES_IDX=gpu(IDX:{listed})", f"GRES=gpu:a100:{count}(IDX:{listed}),nic:1(IDX:9)",
              f"GRES=gpu:{count}(IDX:{listed})")[number % 3] if listed else "GRES="  # fmt: skip
    lines = [
        f"JobId={100 + number} ArrayJobId=7 ArrayTaskId={number} JobName=of a user NodeList=n9 JobState=PENDING a=b",
        "UserId=root(0) GroupId=root(0) MCS_label=N/A",
        f"JobState={'COMPLETED' if ended else 'RUNNING'} Reason=None Dependency=(null)",
        f"StartTime={stamp(job.start_s)} EndTime={stamp(job.end_s if ended else LENGTH_S)} Deadline=N/A",
        "ReqNodeList=(null) ExcNodeList=(null)",
        f"NodeList={job.node}",
        "NumNodes=1 NumCPUs=4 NumTasks=1",
        f"TRES=cpu=4,node=1{f',gres/gpu={count}' if number % 2 else ''}",
        f"JOB_GRES={f'gpu:a100:{count}' if count else '(null)'}",
        f"  Nodes={job.node} CPU_IDs=0-3 Mem=0 {detail}",
        f"OverSubscribe={'NO' if job.gpus is None else 'OK'} Contiguous=0",
        "Comment=NodeList=n8 TRES=gres/gpu=4",
    ]
    return (" " if number % 2 else "\n   ").join(lines) + (
        "" if number % 2 else "\n   \n"
    )


def scontrol(jobs: list[GpuJob]) -> str:
    """What cron kept of it: each job while it ran, and after its end."""
    while_running = [
        scontrol_job(number, job, ended=False) for number, job in enumerate(jobs)
    ]
    ended = [
        scontrol_job(number, job, ended=True)
        for number, job in enumerate(jobs)
        if job.end_s is not None
    ]
    return "\n".join(["", *while_running, *ended])


def zulu(second: int) -> str:
    return f"{stamp(second)}Z"


def pod(number: int, job: GpuJob) -> dict[str, Any]:
    """A pod of one or two containers that ask for the GPUs together; one that runs before them asks for all at once."""
    assert isinstance(job.gpus, int)
    parts = [job.gpus // 2, job.gpus - job.gpus // 2] if number % 2 else [job.gpus]
    asked = [
        {"requests": {"cpu": "500m", "nvidia.com/gpu": str(some)}} if some else {}
        for some in parts
    ]
    containers = [{"resources": resources} for resources in asked]
    first = (
        [{"resources": {"limits": {"nvidia.com/gpu": job.gpus}}}]
        if number % 3 and job.gpus
        else []
    )
    status: dict[str, Any] = {"phase": "Running", "startTime": zulu(job.start_s)}
    if job.end_s is not None:
        ended = {"state": {"terminated": {"finishedAt": zulu(job.end_s)}}}
        status |= {"phase": "Succeeded", "containerStatuses": [ended]}
    spec = {"nodeName": job.node, "containers": containers, "initContainers": first}
    return {
        "kind": "Pod",
        "metadata": {"uid": str(number), "name": "p"},
        "spec": spec,
        "status": status,
    }


def kubernetes(jobs: list[GpuJob]) -> str:
    return json.dumps(
        {"kind": "List", "items": [pod(number, job) for number, job in enumerate(jobs)]}
    )


def philly(jobs: list[GpuJob]) -> str:
    entries = []
    for number, job in enumerate(jobs):
        assert isinstance(job.gpus, tuple)
        times = {
            "start_time": stamp(job.start_s),
            "end_time": None if job.end_s is None else stamp(job.end_s),
        }
        detail = [{"ip": job.node, "gpus": [f"gpu{gpu}" for gpu in job.gpus]}]
        entries.append(
            {
                "jobid": f"application_{number}",
                "attempts": [{**times, "detail": detail}],
            }
        )
    return json.dumps(entries, indent=1)


def as_stated(form: str, job: GpuJob) -> GpuJob:
    """The job as a format can state it: of Kubernetes all GPUs are a number of them, of Philly all are named."""
    gpus = job.gpus
    if form == "kubernetes":
        gpus = SIZES[job.node] if gpus is None else gpus
    elif form == "philly":
        gpus = (
            tuple(range(SIZES[job.node] if gpus is None else gpus))
            if not isinstance(gpus, tuple)
            else gpus
        )
    end = (
        LENGTH_S if job.end_s is None and form == "pbs" else job.end_s
    )  # what runs lasts to the last record there is
    return GpuJob(job.node, gpus, job.start_s, end)


WRITERS = {
    "slurm": sacct, "slurm-json": scontrol_json, "pbs": pbs, "scontrol": scontrol, "kubernetes": kubernetes,
    "philly": philly,
}  # fmt: skip


def read(
    folder: Path, form: str, text: str, *, unit: str = "gpu", nodes: str = NODES, also: Sequence[Path] = (),
    **more: object,
) -> Ingested:  # fmt: skip
    form = "slurm" if form == "scontrol" else form
    (folder / "log").write_text(text)
    (folder / "nodes").write_text(nodes)
    window = {"begin": stamp(0), "end": stamp(LENGTH_S)}
    logs = [str(folder / "log"), *map(str, also)]
    options = {
        "nodes": [str(folder / "nodes")],
        "unit": unit,
        "min_gap_s": 0,
        "tz": "UTC",
        "allow_few": True,
        "uncertain": "idle",
    }
    return ingested(form, logs, IngestOptions(**{**options, **window, **more}))  # type: ignore[arg-type]


@pytest.mark.parametrize("form", WRITERS)
@given(data=st.data())
def test_units_are_idle_in_the_seconds_in_which_no_job_holds_them(
    form: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    jobs = [
        as_stated(form, job)
        for job in data.draw(gpu_jobs(named=form not in ("slurm", "kubernetes")))
    ]
    if (
        form == "scontrol"
    ):  # of ten jobs the second half would be taken for a later listing
        jobs = jobs[:9]
    folder = tmp_path_factory.mktemp("units")
    trace, diagnosis, coverage, _ = read(folder, form, WRITERS[form](jobs))
    busy, idle = busy_units(jobs), idle_units(trace)
    assert idle.keys() == busy.keys()
    assert not [unit for unit in busy if not np.array_equal(idle[unit], ~busy[unit])]
    # Conservation: each unit-second went somewhere, and once.
    total = sum(SIZES.values()) * LENGTH_S
    assert coverage.units == sum(SIZES.values())
    assert coverage.node_seconds == total
    assert coverage.busy * total == pytest.approx(
        sum(int(seconds.sum()) for seconds in busy.values())
    )
    assert (
        coverage.idle + coverage.busy + coverage.unavailable + coverage.short_gaps
        == pytest.approx(1)
    )
    assert diagnosis.used >= len(jobs)
    # The files hold the same.
    for name in ("trace.parquet", "trace.csv"):
        write_trace(trace, folder / name)
        again = read_trace(folder / name)
        assert all(np.array_equal(idle_units(again)[unit], idle[unit]) for unit in idle)
        assert (again.node_units, again.nodes, again.end) == (
            trace.node_units,
            trace.nodes,
            trace.end,
        )


@given(jobs=gpu_jobs(named=True), counted=st.booleans(), swapped=st.booleans())
def test_which_units_is_what_scontrol_knew_while_jobs_ran_and_how_long_is_what_sacct_knows(
    jobs: list[GpuJob],
    counted: bool,
    swapped: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lines = ["JobID|NodeList|Start|End|State|AllocTRES|OverSubscribe"]
    for number, job in enumerate(jobs):
        count = job.gpus if isinstance(job.gpus, int) else len(job.gpus or ())
        # Where gres/gpu is no AccountingStorageTRES sacct knows of no GPU: only scontrol does.
        tres = "cpu=4" + (
            f",gres/gpu={count}"
            if count and (counted or isinstance(job.gpus, int))
            else ""
        )
        state = "RUNNING" if job.end_s is None else "COMPLETED"
        alone = "EXCLUSIVE" if job.gpus is None else "OK"
        lines.append(
            "|".join(
                [
                    f"7_{number}",
                    job.node,
                    stamp(job.start_s),
                    stamp(job.end_s),
                    state,
                    tres,
                    alone,
                ]
            )
        )
    table = "\n".join([*lines, *lines[1:2]])  # the first job twice
    kept = "\n".join(
        scontrol_job(number, job, ended=False) for number, job in enumerate(jobs)
    )
    folder = tmp_path_factory.mktemp("joined")
    first, second = (kept, table) if swapped else (table, kept)
    (folder / "second").write_text(second)
    made = read(folder, "slurm", first, also=[folder / "second"])
    busy, idle = busy_units(jobs), idle_units(made.trace)
    assert not [unit for unit in busy if not np.array_equal(idle[unit], ~busy[unit])]
    assert made.coverage.overlaps_merged >= 0
    assert made.diagnosis.used == len(jobs) + len(
        SIZES
    )  # and the rows of the list of nodes


@given(
    total=st.integers(0, 40), sizes=st.lists(st.integers(0, 8), min_size=1, max_size=5)
)
def test_units_of_several_nodes_are_spread_evenly(total: int, sizes: list[int]) -> None:
    if total > sum(sizes):
        with pytest.raises(Unusable):
            spread(total, sizes)
        return
    given_units = spread(total, sizes)
    assert sum(given_units) == total
    assert all(some <= size for some, size in zip(given_units, sizes, strict=True))
    # No node has two more than another one that has room.
    assert all(
        a - b <= 1 or b == size
        for a in given_units
        for b, size in zip(given_units, sizes, strict=True)
    )


def one_job(**cells: str) -> str:
    row = {
        "JobID": "1",
        "NodeList": "n[1-2]",
        "Start": stamp(10),
        "End": stamp(40),
        "State": "COMPLETED",
        **cells,
    }
    return "\n".join("|".join(line) for line in (row.keys(), row.values()))


def held(tmp_path: Path, text: str, **more: object) -> dict[tuple[str, int], int]:
    """Busy seconds of the units that are busy at all."""
    trace = read(tmp_path, "slurm", text, **more).trace  # type: ignore[arg-type]
    return {
        unit: int((~idle).sum())
        for unit, idle in idle_units(trace).items()
        if not idle.all()
    }


def test_units_are_cores_where_so_many_are_one(tmp_path: Path) -> None:
    row = one_job(
        AllocTRES="cpu=18,mem=4G"
    )  # nine cores of each node are three units of four
    assert held(tmp_path, row, unit="cpu:4") == {
        (node, unit): 30 for node in ("n1", "n2") for unit in range(3)
    }
    assert held(tmp_path, one_job(NCPUS="18"), unit="cpu:4").keys() == {
        (node, unit) for node in ("n1", "n2") for unit in range(3)
    }


def test_per_node_counts_and_jobs_without_gpus(tmp_path: Path) -> None:
    assert len(held(tmp_path, one_job(TresPerNode="gres:gpu:a100:1"))) == 2
    assert not held(tmp_path, one_job(AllocTRES="cpu=18"))  # leaves the GPUs idle
    alone = one_job(AllocTRES="cpu=18", OverSubscribe="EXCLUSIVE")
    assert len(held(tmp_path, alone)) == 8
    assert len(held(tmp_path, one_job(AllocTRES=""))) == 8  # nothing known


TEXT = (
    "JobId=1 JobName=a\n   UserId=u(1) GroupId=u(1)\n   JobState=RUNNING\n   StartTime={start} EndTime={end}\n"
    "   NodeList=n[1-3]\n   NumNodes=3 NumCPUs=24\n   TRES=cpu=24,node=3\n   JOB_GRES=gpu:a100:5\n"
    "     Nodes=n[1-2] CPU_IDs=0-7 Mem=0 GRES=gpu:a100:2(IDX:1,3)\n     Nodes=n3 CPU_IDs=0-7 Mem=0 GRES={third}\n"
)


def shown(**more: str) -> str:
    return TEXT.format(
        **{"start": stamp(10), "end": stamp(40), "third": "gpu:a100:1(IDX:1)", **more}
    )


@pytest.mark.parametrize(
    ("shared", "exclusive", "units"),
    [
        ("NO", "NO", 2),
        ("NO", "NODE", 8),
        ("OK", "USER", 8),
        ("YES", "NO", 2),
        ("NO", "", 8),
    ],
)
def test_from_26_05_on_exclusive_says_which_jobs_have_their_nodes_alone(
    shared: str, exclusive: str, units: int, tmp_path: Path
) -> None:
    """Words by job_exclusive_display_string and job_oversubscribe_string of slurm-26-05-3-1; empty: older jobs."""
    cells = {"AllocTRES": "cpu=4,gres/gpu=2", "OverSubscribe": shared}
    table = one_job(**cells, Exclusive=exclusive)
    assert len(held(tmp_path, table)) == units
    text = (
        f"JobId=1 JobName=a JobState=COMPLETED\n   StartTime={stamp(10)} EndTime={stamp(40)}\n   NodeList=n[1-2]\n"
        f"   NumNodes=2 AllocTRES=cpu=4,gres/gpu=2\n   OverSubscribe={shared} "
        f"{f'Exclusive={exclusive} ' if exclusive else ''}Contiguous=0\n"
    )
    assert len(held(tmp_path, text)) == units
    entry = {
        "job_id": 1, "nodes": "n[1-2]", "state": {"current": ["COMPLETED"]},
        "time": {"start": BEGIN_S + 10, "end": BEGIN_S + 40}, "exclusive": exclusive,
        "tres": {"allocated": [
            {"type": "cpu", "name": "", "id": 1, "count": 4}, {"type": "gres", "name": "gpu", "id": 1001, "count": 2},
            {"type": "energy", "name": "", "id": 3, "count": None},
        ]},
        **({"oversubscribe": shared} if exclusive else {"shared": ["none"]}),
    }  # fmt: skip
    trace = read(tmp_path, "slurm-json", json.dumps({"jobs": [entry]})).trace
    assert sum(not idle.all() for idle in idle_units(trace).values()) == units


def test_over_subscribe_without_exclusive_is_no_statement_in_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = one_job(AllocTRES="cpu=4,gres/gpu=2", OverSubscribe="NO")
    made = read(tmp_path, "slurm", table)
    assert sum(not idle.all() for idle in idle_units(made.trace).values()) == 2
    assert any(
        "the column Exclusive states" in each for each in made.diagnosis.warnings()
    )


def test_gres_of_old_releases(tmp_path: Path) -> None:
    """AllocGRES is of all nodes together (_get_gres_alloc of slurm-19-05); empty: none."""
    assert len(held(tmp_path, one_job(AllocGRES="gpu:6"))) == 6
    assert len(held(tmp_path, one_job(AllocGRES="7696487:2"))) == 2
    assert not held(tmp_path, one_job(AllocGRES=""))
    assert len(held(tmp_path, one_job(AllocTRES="cpu=4", AllocGRES="gpu:2"))) == 2


def test_lines_of_scontrol_may_be_of_several_nodes(tmp_path: Path) -> None:
    jobs = (
        shown()
        + "\n"
        + shown()
        .replace("RUNNING", "COMPLETED")
        .replace("(IDX:1,3)", "")
        .replace("(IDX:1)", "")
    )
    busy = {("n1", 1): 30, ("n1", 3): 30, ("n2", 1): 30, ("n2", 3): 30, ("n3", 1): 30}
    assert held(tmp_path, jobs) == busy
    # Where GPUs have no numbers their counts by node are read.
    counts = (
        shown(third="gpu:a100:1(CNT:1)")
        .replace("(IDX:1,3)", "(CNT:2)")
        .replace("RUNNING", "FAILED")
    )
    assert held(tmp_path, counts) == {
        ("n1", 0): 30,
        ("n1", 1): 30,
        ("n2", 0): 30,
        ("n2", 1): 30,
        ("n3", 0): 30,
    }
    # Of one that has ended the sum alone is printed: spread evenly.
    ended = "\n".join(
        line.partition(" GRES=")[0]
        for line in shown().replace("RUNNING", "FAILED").split("\n")
    )
    assert sorted(held(tmp_path, ended)) == [
        ("n1", 0),
        ("n1", 1),
        ("n2", 0),
        ("n2", 1),
        ("n3", 0),
    ]
    assert len(held(tmp_path, ended, unit="cpu:4")) == 6


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            shown(third="gpu:a100:1(IDX:2)"),
            "a job has more units than its nodes",
        ),  # n3 has two GPUs
        (shown(third="gpu:a100:3(CNT:3)"), "a job has more units than its nodes"),
        (
            shown().replace("Nodes=n3", "Nodes=n4"),
            "states GPUs of nodes that NodeList does not have",
        ),
        (
            shown().replace("NodeList=n[1-3]", "NodeList=n[3-1]"),
            "NodeList or Nodes holds no host list",
        ),
        (
            shown().replace("Nodes=n[1-2]", "Nodes=n[1-"),
            "NodeList or Nodes holds no host list",
        ),
        (
            shown().replace("NodeList=n[1-3]\n", "\n"),
            "is no job: expected JobState, StartTime, EndTime, NodeList",
        ),
        (shown(start="noon"), "StartTime holds no time"),
    ],
)
def test_damaged_jobs_of_scontrol_are_refused_by_row(
    text: str, reason: str, tmp_path: Path
) -> None:
    made = read(tmp_path, "slurm", f"{one_shown()}\n{text}")
    assert made.diagnosis.skipped[reason].line == one_shown().count("\n") + 2
    with pytest.raises(InputError, match=reason):
        read(tmp_path, "slurm", f"{one_shown()}\n{text}", strict=True)


def one_shown() -> str:
    return shown().replace("JobId=1 ", "JobId=2 ")


@given(data=st.data())
def test_hostile_bytes_of_scontrol_do_no_harm(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = bytearray((one_shown() + shown()).encode() * 2)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 40))] = data.draw(
            st.binary(max_size=8)
        )
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "nodes").write_text(NODES)
    (folder / "log").write_bytes(b"JobId=3 \n" + bytes(text))
    with contextlib.suppress(InputError):
        options = IngestOptions(nodes=[str(folder / "nodes")], unit="gpu", tz="UTC", allow_few=True,
                                begin=stamp(0), end=stamp(LENGTH_S))  # fmt: skip
        made = ingested("slurm", [str(folder / "log")], options)
        assert made.coverage.units == 10


def test_outages_take_all_units(tmp_path: Path) -> None:
    (tmp_path / "events").write_text(
        f"node,start,end,state\nn1,{stamp(0)},{stamp(LENGTH_S)},down\n"
    )
    row = one_job(AllocTRES="cpu=18,gres/gpu=2")
    found = read(tmp_path, "slurm", row, events=[str(tmp_path / "events")])
    assert {
        node
        for node, _ in (
            u for u, idle in idle_units(found.trace).items() if not idle.any()
        )
    } == {"n1"}
    assert found.coverage.busy * 600 == pytest.approx(60)
    assert found.coverage.unavailable * 600 == pytest.approx(210)


@pytest.mark.parametrize("tres", ["gres/gpu=9", "gres/gpu=999999999"])
def test_more_units_than_nodes_have_are_refused_by_row(
    tres: str, tmp_path: Path
) -> None:
    made = read(tmp_path, "slurm", one_job(AllocTRES=f"cpu=1,{tres}"))
    assert made.diagnosis.skipped["a job has more units than its nodes"].line == 2
    with pytest.raises(InputError, match="line 2: a job has more units than its nodes"):
        read(tmp_path, "slurm", one_job(AllocTRES=f"cpu=1,{tres}"), strict=True)


@pytest.mark.parametrize(
    "cells",
    ["gres/gpu=", "gres/gpu=x", "gres/gpu=-1", "gres/gpu=1e9", "gres/gpu=4=4", ",,,", "gpu:4", "gres/gpu=99999999999",
     "\udcff", "gres/gpu:=3"],
)  # fmt: skip
def test_damaged_counts_do_no_harm(cells: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(one_job(AllocTRES=cells), "utf-8", "surrogateescape")
    options = IngestOptions(unit="gpu", units_per_node=4, tz="UTC", allow_few=True,
                            begin=stamp(0), end=stamp(LENGTH_S))  # fmt: skip
    made = ingested("slurm", [str(tmp_path / "log")], options)
    assert made.coverage.units == 8


@pytest.mark.parametrize(
    ("nodes", "options", "sizes"),
    [
        ("NodeName=n[1-3] CPUs=16 Gres=gpu:h100:2,nvme:1\n", {}, (2, 2, 2)),  # slurm.conf
        ("NodeName=DEFAULT Gres=gpu:2\nNodeName=n[1-2]\nNodeName=n3 Gres=gpu:4\n", {}, (2, 2, 4)),
        ("n1\nn2\nn3\n", {"units_per_node": 4}, (4, 4, 4)),
        ("NodeName=n1 Gres=gpu:8\nNodeName=n[2-3]\n", {"units_per_node": 4}, (8, 4, 4)),  # the list comes first
        ("NodeName=n[1-2] Gres=gpu:2\nNodeName=n3 Gres=(null)\n", {}, (2, 2)),
        ("n1\n     state = free\n     resources_available.ngpus = 2\nn2\n     resources_available.ngpus = 4\n", {},
         (2, 4)),
        ("n1[0]\n     resources_available.ngpus = 2\nn1[1]\n     resources_available.ngpus = 2\nn2\n     "
         "resources_available.ngpus = 4\n", {}, (4, 4)),
        (json.dumps({"kind": "List", "items": [
            {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": "95500m", **gpus}}}
            for name, gpus in (("n1", {GPU: "4"}), ("n2", {"amd.com/gpu": 2}), ("n3", {}))]}, indent=1), {},
         (4, 2)),
        ('{"nodes": [{"name": "n1", "tres": "cpu=8,gres/gpu=4"}, {"name": "n2", "gres": "gpu:a100:2(S:0)"}]}', {},
         (4, 2)),
    ],
)  # fmt: skip
def test_lists_of_nodes_state_their_units(
    nodes: str, options: dict[str, int], sizes: tuple[int, ...], tmp_path: Path
) -> None:
    made = read(
        tmp_path, "slurm", one_job(AllocTRES="cpu=2,gres/gpu=2"), nodes=nodes, **options
    )
    assert made.trace.node_units == sizes


def lsf(hosts: str, count: int, requirements: str) -> str:
    start, end = BEGIN_S + 10, BEGIN_S + 40
    return (
        f'"JOB_FINISH" "10.1" {end} 7 1 33 16 {start} 0 0 {start} "u" "q" "" "" "" "login" "/" "" "" "" "7.1" 0 '
        f'{count} {hosts} 64 60.0 "" "command" "{requirements}"'
    )


@pytest.mark.parametrize(
    ("hosts", "count", "requirements", "unit", "units"),
    [
        (
            '"n1" "n1" "n2"',
            3,
            "select[type == any] rusage[ngpus_physical=2.00]",
            "gpu",
            {"n1": 2, "n2": 2},
        ),
        (
            '"2*n1" "n2"',
            2,
            "rusage[mem=10.00,ngpus_physical=1.00]",
            "gpu",
            {"n1": 1, "n2": 1},
        ),
        ('"2*n1" "n2"', 2, "rusage[mem=10.00]", "gpu", {}),
        ('"12*n1" "n2"', 2, "", "cpu:8", {"n1": 2, "n2": 1}),
        ('"n1" "n1" "n2" "n2"', 4, "", "cpu:1", {"n1": 2, "n2": 2}),
    ],
)
def test_units_from_lsf(
    hosts: str,
    count: int,
    requirements: str,
    unit: str,
    units: dict[str, int],
    tmp_path: Path,
) -> None:
    made = read(tmp_path, "lsf", lsf(hosts, count, requirements), unit=unit)
    busy = [
        name for (name, _), idle in idle_units(made.trace).items() if not idle.all()
    ]
    assert {name: busy.count(name) for name in busy} == units


def test_what_pods_ask_for(tmp_path: Path) -> None:
    def busy(unit: str, spec: dict[str, Any]) -> int:
        text = json.dumps(
            {**pod(0, GpuJob("n1", 0, 10, 40)), "spec": {"nodeName": "n1", **spec}}
        )
        made = read(tmp_path, "kubernetes", text, unit=unit)
        return sum(not idle.all() for idle in idle_units(made.trace).values())

    some = {
        "resources": {
            "requests": {"cpu": "2500m", "nvidia.com/gpu": 1},
            "limits": {"cpu": 8, "nvidia.com/gpu": 1},
        }
    }
    assert busy("gpu", {"containers": [some, some]}) == 2
    assert busy("cpu:4", {"containers": [some, some]}) == 2  # five cores
    assert busy("gpu", {"containers": [{}]}) == 0
    assert (
        busy(
            "gpu",
            {
                "containers": [{}],
                "initContainers": [{**some, "restartPolicy": "Always"}, some],
            },
        )
        == 1
    )
    assert (
        busy(
            "gpu",
            {
                "containers": [some],
                "initContainers": [{**some, "restartPolicy": "Always"}],
            },
        )
        == 2
    )


@pytest.mark.parametrize(
    ("form", "text", "reason"),
    [
        (
            "kubernetes",
            kubernetes([GpuJob("n3", 3, 1, 9)]),
            "a job has more units than its nodes",
        ),
        (
            "kubernetes",
            kubernetes([GpuJob("n3", 2, 1, 9)]).replace('"2"', '"two"'),
            "a quantity of GPUs or cores is no",
        ),
        (
            "kubernetes",
            kubernetes([GpuJob("n3", 2, 1, 9)]).replace('"2"', "true"),
            "a quantity of GPUs",
        ),
        (
            "kubernetes",
            kubernetes([GpuJob("n3", 2, 1, 9)]).replace('"containers"', '"c"'),
            "is no pod or event",
        ),
        (
            "philly",
            philly([GpuJob("n3", (2,), 1, 9)]),
            "a job has more units than its nodes",
        ),
        (
            "philly",
            philly([GpuJob("n3", (1,), 1, 9)]).replace("gpu1", "gpux"),
            "gpus holds what is no name of a GPU",
        ),
        (
            "philly",
            philly([GpuJob("n3", (1,), 1, 9)]).replace("gpu1", "gpu9999"),
            "gpus holds what is no name of a GPU",
        ),
    ],
)
def test_pods_and_attempts_that_cannot_be_are_refused(
    form: str, text: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=reason):
        read(tmp_path, form, text, strict=True)
    skipped = read(
        tmp_path, form, text, begin=stamp(0), end=stamp(LENGTH_S)
    ).diagnosis.skipped
    assert [why.startswith(reason) for why in skipped] == [True]


def test_events_of_pods_hold_all_units(tmp_path: Path) -> None:
    involved = {"kind": "Pod", "name": "p", "uid": "u"}
    events = [
        {"kind": "Event", "involvedObject": involved, "reason": "Scheduled", "eventTime": zulu(5),
         "message": "Successfully assigned users/p to n3"},
        {"kind": "Event", "involvedObject": involved, "reason": "Killing", "lastTimestamp": zulu(25)},
    ]  # fmt: skip
    made = read(tmp_path, "kubernetes", "\n".join(map(json.dumps, events)))
    assert [
        unit for unit, idle in idle_units(made.trace).items() if not idle.all()
    ] == [("n3", 0), ("n3", 1)]
    assert any(
        "it counts as on all units" in note for note in made.diagnosis.warnings()
    )


def test_damaged_nodes_of_kubernetes_are_accounted_for(tmp_path: Path) -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"nvidia.com/gpu": "4"}},
    }
    nodes = json.dumps(
        {
            "items": [
                node,
                {**node, "metadata": {}},
                {**node, "status": {"allocatable": {"cpu": "x"}}},
            ]
        }
    )
    made = read(
        tmp_path, "kubernetes", kubernetes([GpuJob("n1", 1, 1, 9)]), nodes=nodes
    )
    assert made.trace.node_units == (4,)
    assert len(made.diagnosis.skipped) == 2


def test_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "log", tmp_path / "trace.parquet"

    def say(*options: str, text: str = one_job(AllocTRES="cpu=2,gres/gpu=2")) -> str:
        log.write_text(text)
        code = run(
            [
                "ingest",
                "slurm",
                str(log),
                "-o",
                str(out),
                "--tz",
                "UTC",
                "--force",
                "--from",
                stamp(0),
                *options,
            ]
        )
        told = capsys.readouterr()
        return f"{code} {told.err}{told.out}"

    unknown = say("--unit", "gpu")
    assert unknown.startswith("2 ")
    assert "how many GPUs a node has is not known of n1, n2" in unknown
    assert "--units-per-node N" in unknown
    done = say("--unit", "gpu", "--units-per-node", "4")
    assert done.startswith("0 ")
    assert (
        "warning: the log states how many GPUs of a node a job had, not which" in done
    )
    assert "2 nodes of 8 units" in done
    assert "unit-time" in done
    assert "--unit: expected node, gpu or cpu:N" in say("--unit", "gpus")
    assert "has no column AllocTRES" in say(
        "--unit", "gpu", "--units-per-node", "4", text=one_job()
    )
    assert (
        run(["ingest", "sge", str(log), "-o", str(out), "--force", "--unit", "gpu"])
        == 2
    )
    assert "do not state which units of a node a job had" in capsys.readouterr().err
    assert run(["trace", "info", str(out)]) == 0
    assert "8, up to 4 a node" in capsys.readouterr().out
