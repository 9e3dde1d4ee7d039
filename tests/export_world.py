"""A machine that is made up, of which all is known, and what admins export of it."""

import csv
import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from ClusterShell.NodeSet import NodeSet
from small_traces import of_seconds
from synthetic_logs import idle_told

from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_statistics import fragments

WORLDS = Path(__file__).parent / "data" / "worlds"
BEGIN_S = 1_709_510_400  # Monday 2024-03-04, UTC
DAY_S = 86_400
DAYS = 7
LENGTH_S = DAYS * DAY_S
NODES = tuple(f"cn{number:02}" for number in range(1, 33))
WINDOW = ("--from", str(BEGIN_S), "--to", str(BEGIN_S + LENGTH_S))


@dataclass(frozen=True)
class Run:
    """A run of a job: seconds since BEGIN_S, an end beyond the window where it still runs; nodes by number.

    `suspended`: from when to when it was suspended, if it was.
    """

    job: int
    nodes: tuple[int, ...]
    start_s: int
    end_s: int
    state: str
    user: str
    partition: str
    suspended: tuple[int, int] | None = None

    @property
    def running(self) -> bool:
        return self.end_s > LENGTH_S


@dataclass(frozen=True)
class Outage:
    """A node that was down or reserved: seconds since BEGIN_S."""

    node: int
    start_s: int
    end_s: int
    state: str


@dataclass(frozen=True)
class World:
    runs: tuple[Run, ...]
    outages: tuple[Outage, ...]
    reservations: tuple[Outage, ...]
    # When nodes were not there: nothing that is exported says so.
    absent: tuple[Outage, ...] = ()
    # How long a node completes after a job.
    epilog_s: int = 0

    def idle(self):
        """Whether each node is idle in each second: bool of shape (nodes, seconds)."""
        idle = np.ones((len(NODES), LENGTH_S), dtype=bool)
        for run in self.runs:
            first, last = run.suspended or (run.end_s, run.end_s)
            idle[list(run.nodes), max(0, run.start_s) : first] = False
            idle[list(run.nodes), last : run.end_s + self.epilog_s] = False
        for outage in (*self.outages, *self.reservations, *self.absent):
            idle[outage.node, outage.start_s : outage.end_s] = False
        return idle


def rows_of(name: str) -> list[dict[str, str]]:
    with (WORLDS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


@cache
def made(name: str = "week", epilog_s: int = 0) -> World:
    """A week of two partitions; nodes fail, their jobs run again; four hours of maintenance on some."""
    runs, outages = [], []
    for each in rows_of(name):
        times = int(each["start_s"]), int(each["end_s"]), each["state"]
        if each["job"]:
            nodes = numbers(each["nodes"])
            runs.append(Run(int(each["job"]), nodes, *times, each["user"], each["partition"]))  # fmt: skip
        else:
            outages.append(Outage(int(each["nodes"]), *times))
    upkeep = (3 * DAY_S + 28_800, 3 * DAY_S + 43_200, "MAINT")
    reserved = tuple(Outage(node, *upkeep) for node in (4, 5, 6, 7))
    return World(tuple(runs), tuple(outages), reserved, epilog_s=epilog_s)


def share_wrong(trace: NodeTrace, world: World, *, sums: bool = False) -> float:
    """The share of the node-time of which a trace says idle and it was not, or the other way round.

    Nodes that the trace has beyond those of the machine count as well, all of their idle time being wrong. With `sums`,
    of sampled logs and of counts, how far the idle node-time of each day is off.
    """
    truth, told = world.idle(), idle_told(trace, BEGIN_S, LENGTH_S)
    if sums:
        off = told.sum(axis=0).astype(int) - truth.sum(axis=0)
        return float(abs(off.reshape(-1, DAY_S).sum(axis=1)).sum() / truth.size)
    of_name = {name: row for row, name in zip(truth, NODES, strict=True)}
    never = np.zeros(LENGTH_S, dtype=bool)
    rows = [of_name.pop(node.partition(".")[0], never) for node in trace.nodes]
    wrong = (told != np.array(rows)).sum() + sum(row.sum() for row in of_name.values())
    return float(wrong / truth.size)


# -- what is exported


@cache
def host_list(nodes: tuple[int, ...], names: tuple[str, ...] = NODES) -> str:
    return str(NodeSet.fromlist([names[node] for node in nodes]))


def stamp(second: int, zone: str = "UTC") -> str:
    return (
        f"{datetime.fromtimestamp(BEGIN_S + second, ZoneInfo(zone)):%Y-%m-%dT%H:%M:%S}"
    )


COLUMNS = ("JobID", "NodeList", "AllocNodes", "Start", "End", "State")


def row(run: Run, zone: str | None = None) -> dict[str, str]:
    """A row of sacct, with epochs or, in a zone, with stamps."""

    def time(second: int) -> str:
        return str(BEGIN_S + second) if zone is None else stamp(second, zone)

    return {
        "JobID": str(run.job), "NodeList": host_list(run.nodes), "AllocNodes": str(len(run.nodes)),
        "Start": time(run.start_s), "End": "Unknown" if run.running else time(run.end_s), "State": run.state,
        "User": run.user, "Partition": run.partition, "Cluster": "made", "Suspended": span(run),
    }  # fmt: skip


def span(run: Run) -> str:
    """For how long a job was suspended, as sacct prints it."""
    first, last = run.suspended or (0, 0)
    return f"{(last - first) // 3600:02}:{(last - first) // 60 % 60:02}:{(last - first) % 60:02}"


def table(
    rows,
    columns=COLUMNS,
    mark: str = "|",
    quoted: bool = False,
) -> str:
    def line(cells) -> str:
        return mark.join(
            f'"{cell}"' if quoted or mark in cell else cell for cell in cells
        )

    return (
        "\n".join(
            [line(columns), *(line(each[name] for name in columns) for each in rows)]
        )
        + "\n"
    )


def sacct(
    world: World,
    columns=COLUMNS,
    zone: str | None = None,
    mark: str = "|",
) -> str:
    return table((row(run, zone) for run in world.runs), columns, mark)


def nodes_text(states: dict[int, str] | None = None, names=NODES) -> str:
    """`scontrol -o show node`."""
    return "".join(
        f"NodeName={name} Arch=x86_64 CPUAlloc=0 CPUTot=32 State={(states or {}).get(place, 'IDLE')} ThreadsPerCore=1 "
        f"Partitions={'gpu' if place >= 24 else 'batch'} BootTime=2024-01-01T00:00:00\n"
        for place, name in enumerate(names)
    )


def events(world: World) -> str:
    """`sacctmgr -P show event format=NodeName,TimeStart,TimeEnd,State`; the first row is of the cluster."""
    lines = ["NodeName|TimeStart|TimeEnd|State", f"|{BEGIN_S - 10**6}|Unknown|"]
    lines += [
        f"{NODES[each.node]}|{BEGIN_S + each.start_s}|{BEGIN_S + each.end_s}|{each.state}"
        for each in world.outages
    ]
    return "\n".join(lines) + "\n"


def reservations(world: World) -> str:
    """`sacctmgr -P show reservation format=NodeNames,TimeStart,TimeEnd`."""
    lines = ["NodeName|TimeStart|TimeEnd"]
    for start, end in sorted({(each.start_s, each.end_s) for each in world.reservations}):  # fmt: skip
        nodes = tuple(each.node for each in world.reservations if each.start_s == start)
        lines.append(f"{host_list(nodes)}|{BEGIN_S + start}|{BEGIN_S + end}")
    return "\n".join(lines) + "\n"


def pbs(world: World, lost: frozenset[int] = frozenset()) -> str:
    """Accounting of PBS: S and E records; the E records of `lost` jobs are missing."""
    records = []
    for run in world.runs:
        hosts = "+".join(f"{NODES[node]}/0*32" for node in run.nodes)
        what = f"{run.job}.srv;user={run.user} queue={run.partition} exec_host={hosts} start={BEGIN_S + run.start_s}"
        records.append((run.start_s, f"S;{what}"))
        if not run.running and run.job not in lost:
            records.append(
                (run.end_s, f"E;{what} end={BEGIN_S + run.end_s} Exit_status=0")
            )
    return "".join(
        f"{datetime.fromtimestamp(BEGIN_S + second, ZoneInfo('UTC')):%m/%d/%Y %H:%M:%S};{text}\n"
        for second, text in sorted(records)
    )


def sge(world: World, summary: bool = False) -> str:
    """Accounting of Grid Engine: a record for each host of a job, or one for all (accounting_summary)."""
    ended = [run for run in world.runs if not run.running]
    lines = [
        f"{run.partition}.q:{NODES[node]}:users:{run.user}:j:{run.job}:sge:0:{BEGIN_S + run.start_s}:"
        f"{BEGIN_S + run.start_s}:{BEGIN_S + run.end_s}:0:0:1{':0' * 17}:project:default:"
        f"{'mpi' if len(run.nodes) > 1 else 'smp'}:{32 * len(run.nodes)}:0:0:0:0:NONE:0:{task or 'NONE'}:0:0:0"
        for run in sorted(ended, key=lambda run: run.end_s)
        for task, node in enumerate(run.nodes[:1] if summary else run.nodes)
    ]
    return "\n".join(lines) + "\n"


def lsf_events(world: World, lost: frozenset[int] = frozenset()) -> str:
    records = []
    for number, run in enumerate(world.runs, 1):
        hosts = " ".join(f'"{NODES[node]}"' for node in run.nodes)
        begin = f'{BEGIN_S + run.start_s} {number} 4 7 7 60.0 {len(run.nodes)} {hosts} "" "" 0 "" 0'
        records.append((run.start_s, f'"JOB_START" "10.1" {begin}'))
        if not run.running and run.job not in lost:
            end = BEGIN_S + run.end_s
            status = f'"JOB_STATUS" "10.1" {end} {number} 64 0 0 1.0 {end} 0 0 0'
            records.append((run.end_s, status))
    return "\n".join(text for _, text in sorted(records)) + "\n"


def suspended(world: World, *, preempted: bool = False) -> World:
    """Every second job of two hours and more is suspended for half of its time; another may run there meanwhile."""
    runs: list[Run] = []
    for run in world.runs:
        length = run.end_s - run.start_s
        pause = run.start_s + length // 4, run.start_s + length // 4 + length // 2
        keeps_on = run.start_s < 0 or run.running or length < 7200 or run.job % 2
        runs.append(run if keeps_on else replace(run, suspended=pause))
        if preempted and not keeps_on:
            runs.append(
                replace(run, job=10**6 + len(runs), start_s=pause[0], end_s=pause[1])
            )
    return replace(world, runs=tuple(sorted(runs, key=lambda run: run.start_s)))


def power_saved(world: World, after_s: int = 600) -> World:
    """Nodes that are idle so long are powered off until they are not idle any more."""
    idle = fragments(of_seconds(world.idle()))
    off = [
        Outage(int(node), int(begin) + after_s, int(end), "IDLE~")
        for node, begin, end in zip(
            idle.node, idle.start_ns // SECOND_NS, idle.end_ns // SECOND_NS, strict=True
        )
        if end - begin > after_s
    ]
    return replace(world, outages=(*world.outages, *off))


def scontrol_text(world: World, period_s: int, remembered_s: int) -> str:
    """`scontrol -o show job` by cron: jobs that run, and those that ended not longer ago than Slurm remembers."""
    return "".join(
        _listed(run, second)
        for second in range(0, LENGTH_S, period_s)
        for run in world.runs
        if run.start_s <= second and run.end_s > second - remembered_s
    )


def _listed(run: Run, second: int) -> str:
    """A job as it is listed then; the end of one that runs is its limit."""
    over = run.end_s <= second
    first, last = run.suspended or (LENGTH_S, 0)
    end = run.end_s if over else run.start_s + 20 * DAY_S
    state = run.state.split()[0] if over else "RUNNING"
    state = "SUSPENDED" if first <= second < last else state
    changed = stamp(first if second < last else last) if second >= first else "None"
    before = first - run.start_s if second >= first else 0
    return (
        f"JobId={run.job} JobName=j UserId={run.user}(1) GroupId=u(1) JobState={state} StartTime={stamp(run.start_s)} "
        f"EndTime={stamp(end)} SuspendTime={changed} SecsPreSuspend={before} Partition={run.partition} "
        f"NodeList={host_list(run.nodes)} NumNodes={len(run.nodes)}\n"
    )


def states(world: World, period_s: int):
    """The state of each node at times of that distance: of shape (nodes, times)."""
    busy = np.zeros((len(NODES), LENGTH_S), dtype=bool)
    for run in world.runs:
        busy[list(run.nodes), max(0, run.start_s) : run.end_s] = True
    at = slice(0, LENGTH_S, period_s)
    return np.where(
        world.idle()[:, at], "idle", np.where(busy[:, at], "allocated", "drained")
    )


def snapshots(world: World, period_s: int, flags: bool = False) -> str:
    """States of all nodes by cron: `sinfo -N -h -o "%N %T"`, or JSON of 22.05, where flags say that a node is down."""
    row, rows = "{0} {1}", "{}\n"
    if flags:
        row, rows = '{{"name": "{0}", "state": "{2}", "state_flags": [{3}]}}', '{{"nodes": [\n{}\n]}}\n'  # fmt: skip
    parts = []
    for number, column in enumerate(states(world, period_s).T.tolist()):
        lines = [
            row.format(name, word, word.replace("drained", "idle"), '"DRAIN"' * (word == "drained"))
            for name, word in zip(NODES, column, strict=True)
        ]  # fmt: skip
        body = rows.format((",\n" if flags else "\n").join(lines))
        parts.append(f"{BEGIN_S + number * period_s}\n{body}")
    return "".join(parts)


def range_query(
    series,
    begin_s: int = BEGIN_S,
    step_s: int = 60,
) -> str:
    """What Prometheus answers: labels of series and their values."""
    result = [
        {"metric": metric, "values": [[begin_s + step_s * k, str(count)] for k, count in enumerate(counts)]}
        for metric, counts in series
    ]  # fmt: skip
    told = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return json.dumps(told, separators=(",", ":"))


def prometheus(world: World, *, by_partition: bool) -> str:
    """Numbers of nodes in each state, each minute; by partition: one of all nodes, and one of those with GPUs."""
    found = states(world, 60)
    groups = {"all": found, "gpu": found[24:]} if by_partition else {"": found}
    return range_query(
        (
            {"__name__": f"slurm_nodes_{name}"} | ({"partition": partition} if partition else {}),
            (mine == word).sum(axis=0).tolist(),
        )
        for word, name in (("idle", "idle"), ("allocated", "alloc"), ("drained", "drain"))
        for partition, mine in groups.items()
    )  # fmt: skip


def lost_ends(world: World, many: int) -> frozenset[int]:
    """Jobs whose end is lost: single runs from the middle of the week."""
    counts = Counter(run.job for run in world.runs)
    middle = [run.job for run in world.runs if counts[run.job] == 1 and not run.running
              and 2 * DAY_S < run.start_s < 5 * DAY_S]  # fmt: skip
    return frozenset(middle[:: max(1, len(middle) // many)][:many])


# -- a machine whose GPUs turn idle one by one: 8 nodes of 4 GPUs, 32 cores, and 8 shards a GPU

GPU_HOSTS = tuple(f"g{number}" for number in range(1, 9))
GPUS, CORES, SHARDS = 4, 32, 8


@dataclass(frozen=True)
class GpuRun:
    """A run of a job on one node: GPUs, or shards of one GPU; without either it has cores alone."""

    job: int
    node: int
    start_s: int
    end_s: int
    cores: int
    gpus: tuple[int, ...] = ()
    shards: int = 0

    @property
    def tres(self) -> str:
        more = f",gres/gpu={len(self.gpus)}" if self.gpus and not self.shards else ""
        more += f",gres/shard={self.shards}" if self.shards else ""
        return f"billing={self.cores},cpu={self.cores}{more},mem=1G,node=1"


@cache
def gpu_runs(kind: str) -> list[GpuRun]:
    """Runs of a kind: `plain`, or beside jobs with GPUs those with `shards` of one or with `cores` alone."""
    return [
        GpuRun(
            *(int(each[name]) for name in ("job", "node", "start_s", "end_s", "cores")),
            numbers(each["gpus"]), int(each["shards"]),
        )
        for each in rows_of(f"gpu-{kind}")
    ]  # fmt: skip


def gpu_sacct(runs, *, tracked: bool = True) -> str:
    """`sacct` with AllocTRES; where GPUs are not tracked it states none."""
    rows = [
        f"{run.job}|{GPU_HOSTS[run.node]}|1|{BEGIN_S + run.start_s}|{BEGIN_S + run.end_s}|"
        f"{'COMPLETED' if run.job % 7 else 'FAILED'}|{run.tres if tracked else f'cpu={run.cores},mem=1G,node=1'}\n"
        for run in runs
    ]
    return "JobID|NodeList|AllocNodes|Start|End|State|AllocTRES\n" + "".join(rows)


def gpu_nodes() -> str:
    """`scontrol -o show node` of Slurm 22.05."""
    return "".join(
        f"NodeName={name} CPUAlloc=0 CPUEfctv={CORES} CPUTot={CORES} Gres=gpu:a100:{GPUS},shard:a100:{GPUS * SHARDS} "
        f"State=IDLE Partitions=gpu CfgTRES=cpu={CORES},mem=3000M,gres/gpu={GPUS},gres/shard={GPUS * SHARDS}\n"
        for name in GPU_HOSTS
    )


def gpu_share_wrong(trace: NodeTrace, runs) -> float:
    """By how much the number of idle GPUs of each node is off, as a share of all GPU-time.

    A GPU is idle while no job has it or a share of it, and cores of its node are left.
    """
    idle = np.ones((len(GPU_HOSTS), GPUS, LENGTH_S), dtype=bool)
    for run in runs:
        gpus = list(range(GPUS)) if run.cores == CORES else list(run.gpus)
        idle[run.node, gpus, run.start_s : run.end_s] = False
    assert trace.nodes == GPU_HOSTS
    counts = (
        idle_told(trace, BEGIN_S, LENGTH_S).reshape(idle.shape).sum(axis=1).astype(int)
    )
    return float(abs(counts - idle.sum(axis=1)).sum() / idle.size)
