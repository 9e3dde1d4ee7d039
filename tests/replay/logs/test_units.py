"""Units of nodes from logs of jobs with GPU counts: held against a count of every unit in every second."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from synthetic_logs_more import BEGIN_S, damages, read_texts

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import Ingested
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_statistics import fragments

LENGTH_S = 60
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

    @property
    def named(self) -> tuple[int, ...]:
        """The GPUs that it names."""
        return self.gpus if isinstance(self.gpus, tuple) else ()

    @property
    def count(self) -> int:
        """How many GPUs it states to have; none where it has all."""
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


def busy_units(jobs: list[GpuJob]) -> dict[tuple[str, int], NDArray[np.bool_]]:
    """Which second each unit is busy in, by the rules and nothing else: second by second, unit by unit."""
    busy = {
        (node, unit): np.zeros(LENGTH_S, dtype=bool)
        for node, size in SIZES.items()
        for unit in range(size)
    }

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


def idle_units(trace: NodeTrace) -> dict[tuple[str, int], NDArray[np.bool_]]:
    """Which second each unit of a trace is idle in."""
    idle = np.zeros((trace.slots, (trace.end - trace.start) // SECOND_NS), dtype=bool)
    found = fragments(trace)
    columns = (column.tolist() for column in (found.node, found.start_ns, found.end_ns))
    for slot, start, end in zip(*columns, strict=True):
        idle[
            slot, (start - trace.start) // SECOND_NS : (end - trace.start) // SECOND_NS
        ] = True
    names = {
        slot: trace.name_of(slot).rsplit("/", 1) for slot in trace.members().tolist()
    }
    return {(name, int(unit)): idle[slot] for slot, (name, unit) in names.items()}


def stamp(second: int | None) -> str:
    return "Unknown" if second is None else f"{np.datetime64(BEGIN_S + second, 's')}"


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
        lines += (
            []
            if job.end_s is None
            else [(job.end_s, f"E;{text} end={BEGIN_S + job.end_s}")]
        )
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


def zulu(second: int | None) -> str:
    return f"{stamp(second)}Z"


def pod(gpus: object = "2", **spec: Any) -> str:
    """A pod on n1 that wants GPUs."""
    containers = [{"resources": {"requests": {"cpu": "500m", GPU: gpus}}}]
    ended = {"state": {"terminated": {"finishedAt": zulu(40)}}}
    status = {"phase": "Succeeded", "startTime": zulu(10), "containerStatuses": [ended]}
    spec = {"nodeName": "n1", "containers": containers, **spec}
    return json.dumps(
        {
            "kind": "Pod",
            "metadata": {"uid": "1", "name": "p"},
            "spec": spec,
            "status": status,
        }
    )


WRITERS = {"slurm": sacct, "slurm-json": scontrol_json, "pbs": pbs}


def read(
    form: str, *texts: str, unit: str = "gpu", nodes: str = NODES, **more: Any
) -> Ingested:
    files = {"nodes": nodes, **more.pop("files", {})}
    return read_texts(
        form,
        *texts,
        nodes=["nodes"],
        files=files,
        unit=unit,
        window=(0, LENGTH_S),
        **more,
    )


def held(form: str, *texts: str, **more: Any) -> dict[tuple[str, int], int]:
    """Busy seconds of the units that are busy at all."""
    idle = idle_units(read(form, *texts, **more).trace)
    return {
        unit: int((~seconds).sum())
        for unit, seconds in idle.items()
        if not seconds.all()
    }


@pytest.mark.parametrize("form", WRITERS)
@given(data=st.data())
def test_units_are_idle_in_the_seconds_in_which_no_job_holds_them(
    form: str, data: st.DataObject
) -> None:
    jobs = data.draw(gpu_jobs(named=form != "slurm"))
    if form == "pbs":  # what runs lasts to the last record there is
        jobs = [replace(job, end_s=job.last_s) for job in jobs]
    made = read(form, WRITERS[form](jobs))
    coverage, busy, idle = made.coverage, busy_units(jobs), idle_units(made.trace)
    assert idle.keys() == busy.keys()
    assert not [unit for unit in busy if not np.array_equal(idle[unit], ~busy[unit])]
    # Conservation: each unit-second went somewhere, and once.
    total = sum(SIZES.values()) * LENGTH_S
    assert (coverage.units, coverage.node_seconds) == (sum(SIZES.values()), total)
    assert coverage.busy * total == pytest.approx(
        sum(int(seconds.sum()) for seconds in busy.values())
    )
    assert (
        coverage.idle + coverage.busy + coverage.unavailable + coverage.short_gaps
        == pytest.approx(1)
    )
    assert made.account.used >= len(jobs)


@given(jobs=gpu_jobs(named=True), uncounted=st.booleans(), swapped=st.booleans())
def test_which_units_is_what_scontrol_knew_while_jobs_ran_and_how_long_is_what_sacct_knows(
    jobs: list[GpuJob], uncounted: bool, swapped: bool
) -> None:
    table = sacct(jobs, "7_", uncounted)
    table = "\n".join([table, *table.split("\n")[1:2]])  # the first job twice
    kept = "\n".join(scontrol_job(number, job) for number, job in enumerate(jobs))
    made = read("slurm", *((kept, table) if swapped else (table, kept)))
    busy, idle = busy_units(jobs), idle_units(made.trace)
    assert not [unit for unit in busy if not np.array_equal(idle[unit], ~busy[unit])]
    assert made.account.used == len(jobs) + len(
        SIZES
    )  # and the rows of the list of nodes


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


COUNTED = one_job(AllocTRES="cpu=2,gres/gpu=2")
TOO_MANY = "a job has more units than its nodes"


@given(
    total=st.integers(0, 40), sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5)
)
def test_units_of_several_nodes_are_spread_evenly(total: int, sizes: list[int]) -> None:
    nodes = "".join(
        f"NodeName=n{number} Gres=gpu:{size}\n" for number, size in enumerate(sizes)
    )
    row = one_job(
        NodeList=f"n[0-{len(sizes) - 1}]", AllocTRES=f"cpu=1,gres/gpu={total}"
    )
    made = read("slurm", row, nodes=nodes)
    given_units = [0] * len(sizes)
    for (name, _), idle in idle_units(made.trace).items():
        given_units[int(name[1:])] += not idle.all()
    if total > sum(sizes):
        assert [*made.account.skipped] == [TOO_MANY]
        return
    assert sum(given_units) == total
    # No node has two more than another one that has room.
    pairs = [*zip(given_units, sizes, strict=True)]
    assert all(a - b <= 1 or b == size for a in given_units for b, size in pairs)


@pytest.mark.parametrize(
    ("cells", "unit", "units"),
    [
        (
            {"AllocTRES": "cpu=18,mem=4G"},
            "cpu:4",
            6,
        ),  # nine cores of each node are three units of four
        ({"NCPUS": "18"}, "cpu:4", 6),
        ({"TresPerNode": "gres:gpu:a100:1"}, "gpu", 2),
        ({"AllocTRES": "cpu=18"}, "gpu", 0),  # leaves the GPUs idle
        ({"AllocTRES": "cpu=18", "OverSubscribe": "EXCLUSIVE"}, "gpu", 8),
        ({"AllocTRES": ""}, "gpu", 8),  # nothing known
        ({"AllocTRES": "cpu=64"}, "gpu", 8),  # all cores
        # Of all nodes together (_get_gres_alloc of slurm-19-05); empty: none.
        ({"AllocGRES": "gpu:6"}, "gpu", 6),
        ({"AllocGRES": "7696487:2"}, "gpu", 2),
        ({"AllocGRES": ""}, "gpu", 0),
        ({"AllocTRES": "cpu=4", "AllocGRES": "gpu:2"}, "gpu", 2),
        # OverSubscribe without Exclusive is no statement in a table.
        ({"AllocTRES": "cpu=4,gres/gpu=2", "OverSubscribe": "NO"}, "gpu", 2),
        ({"AllocTRES": "cpu=1,gres/gpu=9"}, "gpu", None),
        ({"AllocTRES": "cpu=1,gres/gpu=999999999"}, "gpu", None),
    ],
)
def test_units_of_a_row_of_sacct(
    cells: dict[str, str], unit: str, units: int | None
) -> None:
    made = read("slurm", one_job(**cells), unit=unit)
    assert sum(not idle.all() for idle in idle_units(made.trace).values()) == (
        units or 0
    )
    assert [*made.account.skipped] == [TOO_MANY] * (units is None)
    told = any(
        "the column Exclusive states" in each for each in made.account.warnings()
    )
    assert told == (cells.get("OverSubscribe") == "NO")
    if units is None:
        with pytest.raises(InputError, match=f"line 2: {TOO_MANY}"):
            read("slurm", one_job(**cells), strict=True)


TEXT = (
    "JobId=1 JobName=a\n   UserId=u(1) GroupId=u(1)\n   JobState=RUNNING\n   StartTime={start} EndTime={end}\n"
    "   NodeList=n[1-3]\n   NumNodes=3 NumCPUs=24\n   TRES=cpu=24,node=3\n   JOB_GRES=gpu:a100:5\n"
    "     Nodes=n[1-2] CPU_IDs=0-7 Mem=0 GRES=gpu:a100:2(IDX:1,3)\n     Nodes=n3 CPU_IDs=0-7 Mem=0 GRES={third}\n"
)


def shown(
    third: str = "gpu:a100:1(IDX:1)", start: str = stamp(10), *replaced: tuple[str, str]
) -> str:
    text = TEXT.format(start=start, end=stamp(40), third=third)
    for before, after in replaced:
        text = text.replace(before, after)
    return text


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
    shared: str, exclusive: str, units: int
) -> None:
    """Words by job_exclusive_display_string and job_oversubscribe_string of slurm-26-05-3-1; empty: older jobs."""
    table = one_job(
        AllocTRES="cpu=4,gres/gpu=2", OverSubscribe=shared, Exclusive=exclusive
    )
    text = (
        f"JobId=1 JobName=a JobState=COMPLETED\n   StartTime={stamp(10)} EndTime={stamp(40)}\n   NodeList=n[1-2]\n"
        f"   NumNodes=2 AllocTRES=cpu=4,gres/gpu=2\n   OverSubscribe={shared} "
        f"{f'Exclusive={exclusive} ' if exclusive else ''}Contiguous=0\n"
    )
    counts = (("cpu", "", 4), ("gres", "gpu", 2), ("energy", "", None))
    allocated = [
        {"type": kind, "name": name, "id": 1, "count": count}
        for kind, name, count in counts
    ]
    entry = {"job_id": 1, "nodes": "n[1-2]", "state": {"current": ["COMPLETED"]}, "exclusive": exclusive,
             "time": {"start": BEGIN_S + 10, "end": BEGIN_S + 40}, "tres": {"allocated": allocated},
             **({"oversubscribe": shared} if exclusive else {"shared": ["none"]})}  # fmt: skip
    for form, log in (
        ("slurm", table),
        ("slurm", text),
        ("slurm-json", json.dumps({"jobs": [entry]})),
    ):
        assert len(held(form, log)) == units


NAMED = {("n1", 1): 30, ("n1", 3): 30, ("n2", 1): 30, ("n2", 3): 30, ("n3", 1): 30}
LOWEST = {("n1", 0): 30, ("n1", 1): 30, ("n2", 0): 30, ("n2", 1): 30, ("n3", 0): 30}
ENDED = [("RUNNING", "FAILED"), ("(IDX:1,3)", ""), ("(IDX:1)", "")]


@pytest.mark.parametrize(
    ("texts", "busy"),
    [
        ([shown(), shown("gpu:a100:1", stamp(10), *ENDED)], NAMED),
        # Where GPUs have no numbers their counts by node are read.
        ([shown("gpu:a100:1(CNT:1)", stamp(10), ("(IDX:1,3)", "(CNT:2)"), ("RUNNING", "FAILED"))], LOWEST),
        # Of one that has ended the sum alone is printed: spread evenly.
        (["\n".join(line.partition(" GRES=")[0] for line in shown().replace("RUNNING", "FAILED").split("\n"))], LOWEST),
    ],
)  # fmt: skip
def test_lines_of_scontrol_may_be_of_several_nodes(
    texts: list[str], busy: dict[tuple[str, int], int]
) -> None:
    assert held("slurm", "\n".join(texts)) == busy


OTHER = shown().replace("JobId=1 ", "JobId=2 ")


@pytest.mark.parametrize(
    ("form", "text", "reason"),
    [
        ("slurm", shown("gpu:a100:1(IDX:2)"), TOO_MANY),  # n3 has two GPUs
        ("slurm", shown("gpu:a100:3(CNT:3)"), TOO_MANY),
        (
            "slurm",
            shown().replace("Nodes=n3", "Nodes=n4"),
            "states GPUs of nodes that NodeList does not have",
        ),
        (
            "slurm",
            shown().replace("NodeList=n[1-3]", "NodeList=n[3-1]"),
            "holds no host list",
        ),
        ("slurm", shown().replace("Nodes=n[1-2]", "Nodes=n[1-"), "holds no host list"),
        (
            "slurm",
            shown().replace("NodeList=n[1-3]\n", "\n"),
            "is no job: expected JobState, StartTime, EndTime, NodeList",
        ),
        ("slurm", shown(start="noon"), "StartTime holds no time"),
        ("kubernetes", pod(5), TOO_MANY),
        ("kubernetes", pod("two"), "a quantity of GPUs or cores is no"),
        ("kubernetes", pod(True), "a quantity of GPUs"),
        ("kubernetes", pod().replace('"containers"', '"c"'), "is no pod or event"),
    ],
)
def test_damaged_rows_are_refused(form: str, text: str, reason: str) -> None:
    log = f"{OTHER}\n{text}" if form == "slurm" else text
    ((skipped, tally),) = read(form, log).account.skipped.items()
    assert reason in skipped
    assert tally.line == (OTHER.count("\n") + 2 if form == "slurm" else 1)
    with pytest.raises(InputError, match=rf"log\.0: line {tally.line}: .*{reason}"):
        read(form, log, strict=True)


@given(data=st.data())
def test_hostile_bytes_of_scontrol_do_no_harm(data: st.DataObject) -> None:
    with suppress(InputError):
        read("slurm", data.draw(damages((OTHER + shown()) * 2)))


@pytest.mark.parametrize(
    "cell",
    ["gres/gpu=", "gres/gpu=x", "gres/gpu=-1", "gres/gpu=1e9", "gres/gpu=4=4", ",,,", "gpu:4", "gres/gpu=99999999999",
     "\udcff", "gres/gpu:=3"],
)  # fmt: skip
def test_damaged_counts_do_no_harm(cell: str) -> None:
    assert read("slurm", one_job(AllocTRES=cell)).coverage.units == 10


def test_outages_take_all_units() -> None:
    events = f"node,start,end,state\nn1,{stamp(0)},{stamp(LENGTH_S)},down\n"
    row = one_job(AllocTRES="cpu=18,gres/gpu=2")
    found = read("slurm", row, events=["events"], files={"events": events})
    down = {
        node for (node, _), idle in idle_units(found.trace).items() if not idle.any()
    }
    assert down == {"n1"}
    assert (
        found.coverage.busy * 600,
        found.coverage.unavailable * 600,
    ) == pytest.approx((60, 210))


def kube_node(name: str, **allocatable: object) -> dict[str, object]:
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": allocatable},
    }


def kube_nodes(*nodes: dict[str, object]) -> str:
    return json.dumps({"kind": "List", "items": nodes}, indent=1)


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
        (kube_nodes(kube_node("n1", cpu="95500m", **{GPU: "4"}), kube_node("n2", **{"amd.com/gpu": 2}),
                    kube_node("n3")), {}, (4, 2)),
        ('{"nodes": [{"name": "n1", "tres": "cpu=8,gres/gpu=4"}, {"name": "n2", "gres": "gpu:a100:2(S:0)"}]}', {},
         (4, 2)),
        ("NODELIST PARTITION STATE GRES\nn1 p idle gpu:4\nn2 p idle gpu:2(S:0)\nn3 p idle (null)\n", {}, (4, 2)),
    ],
)  # fmt: skip
def test_lists_of_nodes_state_their_units(
    nodes: str, options: dict[str, int], sizes: tuple[int, ...]
) -> None:
    made = read("slurm", COUNTED, nodes=nodes, **options)
    assert made.trace.node_units == sizes


def lsf(hosts: str, count: int, requirements: str) -> str:
    start, end = BEGIN_S + 10, BEGIN_S + 40
    return (
        f'"JOB_FINISH" "10.1" {end} 7 1 33 16 {start} 0 0 {start} "u" "q" "" "" "" "login" "/" "" "" "" "7.1" 0 '
        f'{count} {hosts} 64 60.0 "" "command" "{requirements}"'
    )


SOME = {
    "resources": {"requests": {"cpu": "2500m", GPU: 1}, "limits": {"cpu": 8, GPU: 1}}
}
BESIDE = {**SOME, "restartPolicy": "Always"}
FOUR = {"n1": 2, "n2": 2}
INVOLVED = {"kind": "Event", "involvedObject": {"kind": "Pod", "name": "p", "uid": "u"}}
EVENTS = "\n".join(
    json.dumps({**INVOLVED, **event})
    for event in (
        {
            "reason": "Scheduled",
            "eventTime": zulu(5),
            "message": "Successfully assigned users/p to n3",
        },
        {"reason": "Killing", "lastTimestamp": zulu(25)},
    )
)


@pytest.mark.parametrize(
    ("form", "text", "unit", "units"),
    [
        (
            "lsf",
            lsf('"n1" "n1" "n2"', 3, "select[type == any] rusage[ngpus_physical=2.00]"),
            "gpu",
            FOUR,
        ),
        (
            "lsf",
            lsf('"2*n1" "n2"', 2, "rusage[mem=10.00,ngpus_physical=1.00]"),
            "gpu",
            {"n1": 1, "n2": 1},
        ),
        ("lsf", lsf('"2*n1" "n2"', 2, "rusage[mem=10.00]"), "gpu", {}),
        ("lsf", lsf('"12*n1" "n2"', 2, ""), "cpu:8", {"n1": 2, "n2": 1}),
        ("lsf", lsf('"n1" "n1" "n2" "n2"', 4, ""), "cpu:1", FOUR),
        ("kubernetes", pod(containers=[SOME, SOME]), "gpu", {"n1": 2}),
        (
            "kubernetes",
            pod(containers=[SOME, SOME]),
            "cpu:4",
            {"n1": 2},
        ),  # five cores
        ("kubernetes", pod(containers=[{}]), "gpu", {}),
        (
            "kubernetes",
            pod(containers=[{}], initContainers=[BESIDE, SOME]),
            "gpu",
            {"n1": 1},
        ),
        (
            "kubernetes",
            pod(containers=[SOME], initContainers=[BESIDE]),
            "gpu",
            {"n1": 2},
        ),
        ("kubernetes", EVENTS, "gpu", {"n3": 2}),
    ],
)
def test_units_that_rows_state(
    form: str, text: str, unit: str, units: dict[str, int]
) -> None:
    made = read(form, text, unit=unit)
    busy = [
        name for (name, _), idle in idle_units(made.trace).items() if not idle.all()
    ]
    assert {name: busy.count(name) for name in busy} == units
    assert any(
        "it counts as on all units" in note for note in made.account.warnings()
    ) == (text == EVENTS)


def test_damaged_nodes_of_kubernetes_are_accounted_for() -> None:
    good, nameless = kube_node("n1", **{GPU: "4"}), {**kube_node("x"), "metadata": {}}
    made = read(
        "kubernetes",
        pod(),
        nodes=kube_nodes(good, nameless, kube_node("n2", cpu="x")),
    )
    assert made.trace.node_units == (4,)
    assert len(made.account.skipped) == 2


DONE = (
    "0 ",
    "warning: the log states how many GPUs of a node a job had, not which",
    "2 nodes of 8 units",
    "unit-time",
)


@pytest.mark.parametrize(
    ("form", "options", "text", "told"),
    [
        (
            "slurm",
            "--unit gpu",
            COUNTED,
            (
                "2 ",
                "how many GPUs a node has is not known of n1, n2",
                "--units-per-node N",
            ),
        ),
        ("slurm", "--unit gpu --units-per-node 4", COUNTED, DONE),
        (
            "slurm",
            "--unit gpus",
            COUNTED,
            ("2 ", "--unit: expected node, gpu or cpu:N"),
        ),
        (
            "slurm",
            "--unit gpu --units-per-node 4",
            one_job(),
            ("2 ", "has no column AllocTRES"),
        ),
        (
            "sge",
            "--unit gpu",
            COUNTED,
            ("2 ", "logs of format sge do not state which units of a node a job had"),
        ),
    ],
)
def test_messages(
    form: str,
    options: str,
    text: str,
    told: tuple[str, ...],
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("log").write_text(text)
    code = run(
        [
            "ingest",
            form,
            "log",
            "-o",
            "t.csv",
            "--tz",
            "UTC",
            "--from",
            stamp(0),
            *options.split(),
        ]
    )
    said = capsys.readouterr()
    for each in told:
        assert each in f"{code} {said.err}{said.out}"
    if code == 0:
        assert run(["trace", "info", "t.csv"]) == 0
        assert "8, up to 4 a node" in capsys.readouterr().out
