"""Ways in which admins really export: each on a machine of which all is known, through the command line.

A trace is **right** when at most 0.2 % of the node-time is idle in it and was not, or the other way round. What is
wrong must be said on standard error with a share that is right within a third; nothing may be wrong and silent.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import export_world as made_up
import pandas as pd
import pytest
from export_world import BEGIN_S, COLUMNS, DAY_S, LENGTH_S, NODES, WINDOW, World

from bft.replay.cli.main import run
from bft.replay.trace.trace_files import read_trace

Verdict = Literal["right", "refused", "loud", "silent"]
# Of a trace that is right: when a node was added or a job ended that left no record is known by the next job alone.
RIGHT = 0.002
# What a stated share may be off by, as part of the truth.
WITHIN = 1 / 3
BESIDE = (
    "--nodes",
    "nodes.txt",
    "--events",
    "events.txt",
    "--reservations",
    "reservations.txt",
)
UTC = ("--tz", "UTC")


@dataclass(frozen=True)
class Habit:
    """A way to export: what it writes, what `ingest` is told, and what should come of it; the jobs, if by GPU."""

    name: str
    write: Callable[[World], None]
    arguments: tuple[str, ...]
    expected: Verdict
    said: str = ""
    by_gpu: str = ""


HABITS: list[Habit] = []


def only_ada(world: World) -> World:
    """Return the world as an export of one user shows it."""
    return made_up.without_runs(
        world, [each for each in world.runs if each.user == "ada"]
    )


def habit(
    name: str,
    *arguments: str,
    expected: Verdict = "right",
    said: str = "",
    by_gpu: str = "",
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def keep(write: Callable[[World], None]) -> Callable[[World], None]:
        HABITS.append(Habit(name, write, arguments, expected, said, by_gpu))
        return write

    return keep


def put(name: str, text: str) -> None:
    Path(name).write_text(text)


# -- complete exports


@habit("the recipe", "slurm", "jobs", *BESIDE)
def _recipe(world: World) -> None:
    put("jobs", made_up.sacct(world))


@habit("local stamps", "slurm", "jobs", *BESIDE, "--tz", "Europe/Berlin")
def _local(world: World) -> None:
    put("jobs", made_up.sacct(world, zone="Europe/Berlin"))


def days(world: World) -> None:
    """A file for each day; a job that runs at midnight is in two of them, without an end in the first."""
    for day in range(made_up.DAYS):
        begin, end = day * DAY_S, (day + 1) * DAY_S
        rows = []
        for each in world.runs:
            if each.start_s < end and each.end_s > begin:
                cut = (
                    replace(each, end_s=LENGTH_S + 1, state="RUNNING")
                    if each.end_s > end
                    else each
                )
                rows.append(made_up.row(cut))
        put(f"day{day}", made_up.table(rows))


DAY_FILES = tuple(f"day{day}" for day in range(made_up.DAYS))


@habit("a file a day", "slurm", *DAY_FILES, *BESIDE)
def _days(world: World) -> None:
    days(world)


@habit(
    "a file a day, in any order", "slurm", *DAY_FILES[::-2], *DAY_FILES[1::2], *BESIDE
)
def _days_mixed(world: World) -> None:
    days(world)


@habit("with job steps", "slurm", "jobs", *BESIDE)
def _steps(world: World) -> None:
    rows = []
    for each in world.runs:
        plain = made_up.row(each)
        rows += [
            plain,
            plain | {"JobID": f"{each.job}.batch"},
            plain | {"JobID": f"{each.job}.0"},
        ]
    put("jobs", made_up.table(rows))


@habit("all cells quoted", "slurm", "jobs.csv", *BESIDE, *UTC)
def _quoted(world: World) -> None:
    rows = [made_up.row(each, "UTC") for each in world.runs]
    put("jobs.csv", made_up.table(rows, mark=";", quoted=True))


@habit("commas", "slurm", "jobs.csv", *BESIDE)
def _commas(world: World) -> None:
    put("jobs.csv", made_up.sacct(world, mark=","))


@habit("names with delimiters in them", "slurm", "jobs", *BESIDE)
def _free_text(world: World) -> None:
    rows = [
        made_up.row(each) | {"JobName": "a|b" if each.job % 7 == 0 else "run"}
        for each in world.runs
    ]
    put(
        "jobs", made_up.table(rows, ("JobID", "JobName", *COLUMNS[1:])).replace('"', "")
    )


@habit(
    "no header, columns named", "slurm", "jobs", *BESIDE, "--fields", ",".join(COLUMNS)
)
def _fields(world: World) -> None:
    put("jobs", made_up.sacct(world).partition("\n")[2])


@habit("no header", "auto", "jobs", *BESIDE, expected="refused", said="--fields")
def _no_header(world: World) -> None:
    put("jobs", made_up.sacct(world).partition("\n")[2])


@habit(
    "sacct's own columns",
    "slurm",
    "jobs",
    *BESIDE,
    expected="refused",
    said="expected a header",
)
def _default_columns(world: World) -> None:
    rows = [made_up.row(each) | {"JobName": "j"} for each in world.runs]
    put("jobs", made_up.table(rows, ("JobID", "JobName", "Partition", "User", "State")))


@habit("columns of spaces", "slurm", "jobs", *BESIDE, expected="refused", said="spaces")
def _spaces(world: World) -> None:
    lines = [f"{name:>12}" for name in COLUMNS]
    rows = [
        " ".join(f"{made_up.row(each)[name][:12]:>12}" for name in COLUMNS)
        for each in world.runs
    ]
    put("jobs", "\n".join([" ".join(lines), *rows]))


@habit(
    "milliseconds", "slurm", "jobs", *BESIDE, expected="refused", said="milliseconds"
)
def _milliseconds(world: World) -> None:
    rows = [made_up.row(each) for each in world.runs]
    late = [
        each
        | {
            name: each[name] + "000"
            for name in ("Start", "End")
            if each[name].isdecimal()
        }
        for each in rows
    ]
    put("jobs", made_up.table(late))


@habit("compressed", "slurm", "jobs.gz", *BESIDE)
def _gzip(world: World) -> None:
    Path("jobs.gz").write_bytes(gzip.compress(made_up.sacct(world).encode()))


@habit("pandas, with its index", "auto", "jobs.csv", *BESIDE, *UTC)
def _pandas(world: World) -> None:
    pd.DataFrame([made_up.row(each, "UTC") for each in world.runs]).to_csv("jobs.csv")


MAP = "JobID=id,NodeList=hosts,AllocNodes=count,Start=began,End=ended,State=status"


@habit("Parquet of another site", "slurm", "jobs.parquet", *BESIDE, "--map", MAP)
def _parquet(world: World) -> None:
    frame = pd.DataFrame(
        {
            "id": [each.job for each in world.runs],
            "hosts": [[NODES[node] for node in each.nodes] for each in world.runs],
            "count": [len(each.nodes) for each in world.runs],
            "began": pd.to_datetime(
                [BEGIN_S + each.start_s for each in world.runs], unit="s", utc=True
            ),
            "ended": pd.to_datetime(
                [None if each.running else BEGIN_S + each.end_s for each in world.runs],
                unit="s",
                utc=True,
            ),
            "status": [each.state for each in world.runs],
        }
    )
    frame.to_parquet("jobs.parquet")


SQL = "JobID=id_job,NodeList=nodelist,AllocNodes=nodes_alloc,Start=time_start,End=time_end,State=state"


@habit("a dump of the data base", "slurm", "dump.tsv", *BESIDE, "--map", SQL)
def _sql(world: World) -> None:
    numbers = {
        "COMPLETED": 3,
        "FAILED": 5,
        "TIMEOUT": 6,
        "NODE_FAIL": 7,
        "RUNNING": 1,
        "CANCELLED by 1001": 4,
    }
    lines = [
        "id_job\tnodelist\tnodes_alloc\ttime_start\ttime_end\tstate",
        "7\tNone assigned\t0\t0\t0\t0",
    ]
    lines += [
        f"{each.job}\t{made_up.host_list(each.nodes)}\t{len(each.nodes)}\t{BEGIN_S + each.start_s}\t"
        f"{0 if each.running else BEGIN_S + each.end_s}\t{numbers[each.state]}"
        for each in world.runs
    ]
    put("dump.tsv", "\n".join(lines) + "\n")


@habit("JSON", "slurm-json", "jobs.json", *BESIDE)
def _json(world: World) -> None:
    put("jobs.json", jobs_json(world))


def jobs_json(world: World) -> str:
    """`sacct --json`."""
    entries: list[dict[str, Any]] = [
        {
            "job_id": each.job, "nodes": made_up.host_list(each.nodes), "state": {"current": [each.state.split()[0]]},
            "time": {"start": BEGIN_S + each.start_s, "end": 0 if each.running else BEGIN_S + each.end_s,
                     "suspended": each.suspended[1] - each.suspended[0] if each.suspended else 0},
            "user": each.user, "partition": each.partition,
        }
        for each in world.runs
    ]  # fmt: skip
    waited = {
        "job_id": 7,
        "nodes": "None assigned",
        "state": {"current": ["CANCELLED"]},
    }
    entries.append(waited | {"time": {"start": 2**32 - 2, "end": BEGIN_S + 60}})
    return json.dumps({"jobs": entries}, indent=1)


@habit(
    "full names of nodes in the list",
    "slurm",
    "jobs",
    "--nodes",
    "full.txt",
    *BESIDE[2:],
)
def _full_names(world: World) -> None:
    put("jobs", made_up.sacct(world))
    put("full.txt", made_up.nodes_text(names=[f"{name}.cluster.org" for name in NODES]))


@habit(
    "leading zeros",
    "slurm",
    "jobs",
    "--nodes",
    "cn[1-32]",
    *BESIDE[2:],
    expected="refused",
    said="leading zeros",
)
def _zeros(world: World) -> None:
    rows = [each for each in world.runs if max(each.nodes) < 9]
    put("jobs", made_up.table([made_up.row(each) for each in rows]))
    put("events.txt", "NodeName|TimeStart|TimeEnd|State\n")


@habit("snapshots", "snapshots", "nodes.snapshots", "--nodes", "nodes.txt")
def _snapshots(world: World) -> None:
    put("nodes.snapshots", made_up.snapshots(world, 60))


@habit(
    "snapshots in JSON of 22.05", "snapshots", "nodes.snapshots", "--nodes", "nodes.txt"
)
def _flags(world: World) -> None:
    put("nodes.snapshots", made_up.snapshots(world, 120, flags=True))


@habit(
    "accounting of PBS",
    "pbs",
    "accounting",
    "--nodes",
    "nodes.txt",
    "--events",
    "closed.csv",
    *UTC,
)
def _pbs(world: World) -> None:
    put("accounting", made_up.pbs(world))


@habit(
    "accounting of Grid Engine",
    "sge",
    "accounting",
    "--nodes",
    "nodes.txt",
    "--events",
    "closed.csv",
)
def _sge(world: World) -> None:
    ended = made_up.without_runs(
        world, [each for each in world.runs if not each.running]
    )
    put("accounting", made_up.sge(ended))


@habit(
    "two clusters, with their column",
    "slurm",
    "jobs",
    *BESIDE,
    expected="refused",
    said="cluster",
)
def _two_named(world: World) -> None:
    rows = [made_up.row(each) for each in world.runs]
    rows += [made_up.row(each) | {"Cluster": "other"} for each in made_up.made(1).runs]
    put("jobs", made_up.table(rows, (*COLUMNS, "Cluster")))


# -- exports that hide something


@habit("rows of one user", "slurm", "jobs", *BESIDE, expected="refused", said="User")
def _one_user(world: World) -> None:
    mine = only_ada(world)
    put("jobs", made_up.sacct(mine, (*COLUMNS, "User")))


@habit(
    "rows of one partition",
    "slurm",
    "jobs",
    *BESIDE,
    expected="refused",
    said="Partition",
)
def _one_partition(world: World) -> None:
    mine = made_up.without_runs(
        world, [each for each in world.runs if each.partition == "batch"]
    )
    put("jobs", made_up.sacct(mine, (*COLUMNS, "Partition")))


@habit("rows of one state", "slurm", "jobs", *BESIDE, expected="refused", said="State")
def _one_state(world: World) -> None:
    mine = made_up.without_runs(
        world, [each for each in world.runs if each.state == "COMPLETED"]
    )
    put("jobs", made_up.sacct(mine))


@habit("no requeued runs", "slurm", "jobs", *BESIDE, expected="loud", said="-D")
def _no_duplicates(world: World) -> None:
    last = {each.job: each for each in world.runs}
    put("jobs", made_up.sacct(made_up.without_runs(world, last.values())))


@habit(
    "no events, no reservations",
    "slurm",
    "jobs",
    "--nodes",
    "nodes.txt",
    expected="loud",
    said="no --events",
)
def _no_events(world: World) -> None:
    put("jobs", made_up.sacct(world))


def broken(world: World) -> World:
    """Three nodes fail in the middle of the week, one after the other, and stay down."""
    gone = {2: 2 * DAY_S, 11: 3 * DAY_S, 27: 4 * DAY_S}
    runs = [
        each
        for each in world.runs
        if not any(
            node in each.nodes and each.end_s > since for node, since in gone.items()
        )
    ]
    outages = tuple(each for each in world.outages if each.node not in gone)
    down = tuple(
        made_up.Outage(node, since, LENGTH_S, "DOWN*") for node, since in gone.items()
    )
    return replace(world, runs=tuple(runs), outages=outages + down)


@habit(
    "nodes down in the list, without an outage",
    "slurm",
    "jobs",
    *BESIDE,
    said="last sign of life",
)
def _down(world: World) -> None:
    put("jobs", made_up.sacct(world))
    gone = {each.node for each in world.outages if each.end_s == LENGTH_S}
    put("nodes.txt", made_up.nodes_text(dict.fromkeys(gone, "DOWN*")))
    known = replace(
        world, outages=tuple(each for each in world.outages if each.node not in gone)
    )
    put("events.txt", made_up.events(known))


@habit("whole minutes", "slurm", "jobs", *BESIDE, expected="loud", said="whole minutes")
def _minutes(world: World) -> None:
    cut = [
        replace(each, start_s=each.start_s // 60 * 60, end_s=each.end_s // 60 * 60)
        for each in world.runs
    ]
    put("jobs", made_up.sacct(made_up.without_runs(world, cut)))


@habit(
    "a day's file is missing",
    "slurm",
    *DAY_FILES[:3],
    *DAY_FILES[4:],
    *BESIDE,
    expected="loud",
    said="no job starts or ends",
)
def _missing_day(world: World) -> None:
    days(world)
    rows = [
        each
        for each in world.runs
        if each.start_s >= 3 * DAY_S and each.end_s <= 4 * DAY_S
    ]
    assert rows


@habit(
    "two clusters, without their column",
    "slurm",
    "jobs",
    *BESIDE,
    expected="refused",
    said="cluster",
)
def _two_clusters(world: World) -> None:
    rows = [made_up.row(each) for each in (*world.runs, *made_up.made(1).runs)]
    put("jobs", made_up.table(rows))


@habit(
    "series of overlapping partitions",
    "prometheus",
    "week.json",
    expected="refused",
    said="partition",
)
def _prometheus(world: World) -> None:
    put("week.json", made_up.prometheus(world, by_partition=True))


@habit("series of all nodes", "prometheus", "week.json")
def _prometheus_plain(world: World) -> None:
    put("week.json", made_up.prometheus(world, by_partition=False))


@habit("a summary of Grid Engine", "sge", "accounting", "--nodes", "nodes.txt", "--events", "closed.csv",
       expected="refused", said="accounting_summary")  # fmt: skip
def _sge_summary(world: World) -> None:
    ended = made_up.without_runs(
        world, [each for each in world.runs if not each.running]
    )
    put("accounting", made_up.sge(ended, summary=True))


@habit("runaway jobs", "slurm", "jobs", *BESIDE, said="later job")
def _runaway(world: World) -> None:
    lost = made_up.lost_ends(world, 8)
    rows = [
        made_up.row(
            replace(each, end_s=LENGTH_S + 1, state="RUNNING")
            if each.job in lost
            else each
        )
        for each in world.runs
    ]
    put("jobs", made_up.table(rows))


@habit("lost E records of PBS", "pbs", "accounting", "--nodes", "nodes.txt", "--events", "closed.csv", *UTC,
       said="later job")  # fmt: skip
def _lost_ends(world: World) -> None:
    put("accounting", made_up.pbs(world, made_up.lost_ends(world, 8)))


def renamed_rows(world: World) -> list[dict[str, str]]:
    """Nodes got new names in the middle of the week."""
    middle = LENGTH_S // 2
    new = [f"nd{name[2:]}" for name in NODES]
    return [
        made_up.row(each)
        | (
            {"NodeList": made_up.host_list(each.nodes, new)}
            if each.start_s >= middle
            else {}
        )
        for each in world.runs
    ]


@habit("renamed nodes", "slurm", "jobs", "--events", "events.txt", "--reservations", "reservations.txt",
       expected="refused", said="renamed")  # fmt: skip
def _renamed(world: World) -> None:
    put("jobs", made_up.table(renamed_rows(world)))


@habit(
    "renamed nodes, with a table of names",
    "slurm",
    "jobs",
    "--nodes",
    "names.csv",
    *BESIDE[2:],
)
def _renamed_known(world: World) -> None:
    put("jobs", made_up.table(renamed_rows(world)))
    put("names.csv", "node,was\n" + "".join(f"{name},nd{name[2:]}\n" for name in NODES))


def late(world: World) -> World:
    """Four nodes are there from the third day on."""
    runs = [
        each
        for each in world.runs
        if not (each.start_s < 2 * DAY_S and set(each.nodes) & {20, 21, 22, 23})
    ]
    outages = [
        each
        for each in world.outages
        if not (each.node in range(20, 24) and each.start_s < 2 * DAY_S)
    ]
    absent = [made_up.Outage(node, 0, 2 * DAY_S, "absent") for node in range(20, 24)]
    return World(tuple(runs), tuple(outages), world.reservations, tuple(absent))


@habit("added nodes", "slurm", "jobs", *BESIDE, said="last sign of life")
def _added(world: World) -> None:
    put("jobs", made_up.sacct(world))


@habit(
    "added nodes, with their dates",
    "slurm",
    "jobs",
    "--nodes",
    "since.csv",
    *BESIDE[2:],
)
def _added_known(world: World) -> None:
    put("jobs", made_up.sacct(world))
    since = made_up.stamp(2 * DAY_S) + "Z"
    put(
        "since.csv",
        "node,since,until\ncn[01-20],,\n" + f"cn[21-24],{since},\n" + "cn[25-32],,\n",
    )


@habit("cut lists of nodes", "slurm", "jobs", *BESIDE, expected="refused", said="cut")
def _cut(world: World) -> None:
    rows = [made_up.row(each) for each in world.runs]
    put("jobs", made_up.table([each | {"NodeList": f"{each['NodeList'][:8]}+"} if len(each["NodeList"]) > 9 else each
                               for each in rows]))  # fmt: skip


@habit("scontrol show job alone", "slurm", "jobs.txt", *BESIDE, *UTC)
def _scontrol(world: World) -> None:
    put("jobs.txt", made_up.scontrol_text(world, 300, 300))


# -- the scheduler's own view of a node

SUSPENDED = (*COLUMNS, "Suspended")


@habit("suspended jobs", "slurm", "jobs", *BESIDE, expected="loud", said="suspended")
def _suspended(world: World) -> None:
    put("jobs", made_up.sacct(world, SUSPENDED))


@habit(
    "suspended jobs, in JSON",
    "slurm-json",
    "jobs.json",
    *BESIDE,
    expected="loud",
    said="suspended",
)
def _suspended_json(world: World) -> None:
    put("jobs.json", jobs_json(world))


@habit("suspended jobs, listed by cron", "slurm", "jobs", "list.txt", *BESIDE, *UTC)
def _suspended_listed(world: World) -> None:
    put("jobs", made_up.sacct(world, SUSPENDED))
    put("list.txt", made_up.scontrol_text(world, 300, 300))


@habit("jobs suspended while others run", "slurm", "jobs", *BESIDE)
def _preempted(world: World) -> None:
    put("jobs", made_up.sacct(world, SUSPENDED))


@habit("an epilog", "slurm", "jobs", *BESIDE, expected="loud", said="--completing 61")
def _epilog(world: World) -> None:
    put("jobs", made_up.sacct(world))


@habit("an epilog, stated", "slurm", "jobs", *BESIDE, "--completing", "60")
def _epilog_known(world: World) -> None:
    put("jobs", made_up.sacct(world))


def powered(world: World, flag: str) -> None:
    """The jobs, and a list of nodes from when four of them are powered off."""
    put("jobs", made_up.sacct(world))
    off = [each for each in world.outages if each.state == "IDLE~"]
    now, down = next(
        (begin, down)
        for begin in sorted(each.start_s for each in off)
        if len(down := {one.node for one in off if one.start_s <= begin < one.end_s})
        >= 4
    )
    idle = world.idle()[:, now]
    states = {
        node: f"{'IDLE' if idle[node] else 'ALLOCATED'}{flag}"
        for node in range(len(NODES))
    }
    states |= dict.fromkeys(down, f"IDLE{flag}+POWERED_DOWN")
    put("nodes.txt", made_up.nodes_text(states))


def without_power(world: World) -> World:
    return replace(
        world, outages=tuple(each for each in world.outages if each.state != "IDLE~")
    )


@habit(
    "a cloud, without its events",
    "slurm",
    "jobs",
    *BESIDE,
    expected="loud",
    said="power saving",
)
def _cloud(world: World) -> None:
    powered(world, "+CLOUD")
    put("events.txt", made_up.events(without_power(world)))


@habit(
    "power saving, without its events",
    "slurm",
    "jobs",
    *BESIDE,
    expected="loud",
    said="power saving",
)
def _power(world: World) -> None:
    powered(world, "")
    put("events.txt", made_up.events(without_power(world)))


@habit("power saving, with its events", "slurm", "jobs", *BESIDE)
def _power_known(world: World) -> None:
    powered(world, "")


BY_GPU = ("--nodes", "gpus.txt", "--events", "none.txt", "--unit", "gpu")


def by_gpu(kind: str, *, tracked: bool = True) -> None:
    put("jobs", made_up.gpu_sacct(made_up.gpu_runs(kind), tracked=tracked))
    put("gpus.txt", made_up.gpu_nodes())
    put("none.txt", "NodeName|TimeStart|TimeEnd|State\n")


@habit("GPUs", "slurm", "jobs", *BY_GPU, by_gpu="plain")
def _gpus(world: World) -> None:
    by_gpu("plain")


@habit("shards of GPUs", "slurm", "jobs", *BY_GPU, by_gpu="shards")
def _shards(world: World) -> None:
    by_gpu("shards")


@habit("jobs on all cores", "slurm", "jobs", *BY_GPU, by_gpu="cores")
def _all_cores(world: World) -> None:
    by_gpu("cores")


@habit(
    "GPUs that are not tracked",
    "slurm",
    "jobs",
    *BY_GPU,
    expected="refused",
    said="gres/gpu",
    by_gpu="plain",
)
def _untracked(world: World) -> None:
    by_gpu("plain", tracked=False)


# -- the same in other formats


@habit(
    "one user, in JSON",
    "slurm-json",
    "jobs.json",
    *BESIDE,
    expected="refused",
    said="User",
)
def _one_user_json(world: World) -> None:
    put(
        "jobs.json",
        jobs_json(only_ada(world)),
    )


@habit("one user, of PBS", "pbs", "accounting", "--nodes", "nodes.txt", "--events", "closed.csv", *UTC,
       expected="refused", said="User")  # fmt: skip
def _one_user_pbs(world: World) -> None:
    put(
        "accounting",
        made_up.pbs(only_ada(world)),
    )


@habit("one user, of Grid Engine", "sge", "accounting", "--nodes", "nodes.txt", "--events", "closed.csv",
       expected="refused", said="User")  # fmt: skip
def _one_user_sge(world: World) -> None:
    put(
        "accounting",
        made_up.sge(only_ada(world)),
    )


@habit("one queue, of PBS", "pbs", "accounting", "--nodes", "nodes.txt", "--events", "closed.csv", *UTC,
       expected="refused", said="Partition")  # fmt: skip
def _one_queue_pbs(world: World) -> None:
    put(
        "accounting",
        made_up.pbs(
            made_up.without_runs(
                world, [each for each in world.runs if each.partition == "gpu"]
            )
        ),
    )


@habit(
    "one state, in JSON",
    "slurm-json",
    "jobs.json",
    *BESIDE,
    expected="refused",
    said="State",
)
def _one_state_json(world: World) -> None:
    ended = [each for each in world.runs if each.state == "COMPLETED"]
    put("jobs.json", jobs_json(made_up.without_runs(world, ended)))


@habit("lost ends in lsb.events", "lsf-events", "lsb.events", "--nodes", "nodes.txt", "--events", "closed.csv",
       said="later job")  # fmt: skip
def _lost_lsf(world: World) -> None:
    put("lsb.events", made_up.lsf_events(world, made_up.lost_ends(world, 8)))


WORLDS: dict[str, Callable[[World], World]] = {
    "suspended jobs": made_up.suspended,
    "suspended jobs, in JSON": made_up.suspended,
    "suspended jobs, listed by cron": made_up.suspended,
    "jobs suspended while others run": lambda world: made_up.suspended(
        world, preempted=True
    ),
    "an epilog": lambda _: made_up.made(epilog_s=60),
    "an epilog, stated": lambda _: made_up.made(epilog_s=60),
    "a cloud, without its events": made_up.power_saved,
    "power saving, without its events": made_up.power_saved,
    "power saving, with its events": made_up.power_saved,
    "nodes down in the list, without an outage": broken,
    "added nodes": late,
    "added nodes, with their dates": late,
    "accounting of Grid Engine": lambda world: made_up.without_runs(
        world, [each for each in world.runs if not each.running]
    ),
    "a summary of Grid Engine": lambda world: made_up.without_runs(
        world, [each for each in world.runs if not each.running]
    ),
}


@pytest.fixture(scope="module")
def world() -> World:
    made = made_up.made()
    made_up.check(made)
    return made


def tried(
    each: Habit, world: World, capsys: pytest.CaptureFixture[str]
) -> tuple[Verdict, float, str]:
    """What comes of a habit: the verdict, the share of the node-time that is wrong, and standard error."""
    truth = WORLDS.get(each.name, lambda same: same)(world)
    put("nodes.txt", made_up.nodes_text())
    put("events.txt", made_up.events(truth))
    put("reservations.txt", made_up.reservations(truth))
    closed = [*truth.outages, *truth.reservations]
    put("closed.csv", "node,start,end,state\n" + "".join(
        f"{NODES[one.node]},{BEGIN_S + one.start_s},{BEGIN_S + one.end_s},down\n" for one in closed))  # fmt: skip
    each.write(truth)
    code = run(["ingest", *each.arguments, *WINDOW, "-o", "t.parquet", "--force"])
    said = capsys.readouterr().err
    if code:
        return "refused", 0.0, said
    if each.by_gpu:
        runs = made_up.gpu_runs(each.by_gpu)
        wrong = made_up.gpu_share_wrong(read_trace(Path("t.parquet")), runs)
        return _verdict(wrong, said), wrong, said
    sums = each.arguments[0] in ("prometheus", "snapshots")
    wrong = made_up.share_wrong(read_trace(Path("t.parquet")), truth, sums=sums)
    return _verdict(wrong, said), wrong, said


def _verdict(wrong: float, said: str) -> Verdict:
    if wrong <= RIGHT:
        return "right"
    return "loud" if said.strip() else "silent"


@pytest.mark.parametrize("each", HABITS, ids=lambda each: each.name)
def test_what_comes_of_a_habit(
    each: Habit, world: World, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict, wrong, said = tried(each, world, capsys)
    assert verdict == each.expected, f"{wrong:.2%} wrong: {said}"
    lines = [line for line in said.splitlines() if each.said in line]
    assert lines or not each.said
    if verdict == "loud":
        assert abs(stated(lines) - wrong) <= WITHIN * wrong, (
            f"{wrong:.2%} wrong: {said}"
        )


def stated(lines: list[str]) -> float:
    """The share of the node-time that lines of standard error state."""
    text = "\n".join(lines)
    shares = [
        float(share) for share in re.findall(r"about ([\d.]+)% of the node-time", text)
    ]
    pairs = re.findall(r"([\d.]+) instead of ([\d.]+) % idle", text)
    shares += [float(told) - float(truth) for told, truth in pairs]
    return sum(shares) / 100


def test_few_habits_are_wrong_and_none_is_silent() -> None:
    """Of forty habits at most six are wrong; `test_what_comes_of_a_habit` holds each against what is expected."""
    wrong = [each.name for each in HABITS if each.expected == "loud"]
    assert len(HABITS) >= 40
    assert not [each.name for each in HABITS if each.expected == "silent"]
    assert len(wrong) / len(HABITS) <= 6 / 40 + 1e-9 or len(HABITS) - len(wrong) >= 34


def test_habits_that_are_right_raise_no_alarm_of_an_epilog_or_of_power_saving(
    world: World, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ("the recipe", "snapshots", "series of all nodes", "accounting of PBS")
    for each in HABITS:
        if each.name in plain or each.name == "jobs suspended while others run":
            _, _, said = tried(each, world, capsys)
            assert "epilog" not in said, each.name
            assert "power saving" not in said, each.name
            assert "suspended" not in said, each.name


def test_the_share_of_jobs_that_vanish_between_listings_is_a_bound(
    world: World, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sparse = Habit(
        "",
        lambda made: put("jobs.txt", made_up.scontrol_text(made, 1200, 300)),
        ("slurm", "jobs.txt", *BESIDE, *UTC),
        "loud",
    )
    verdict, wrong, said = tried(sparse, world, capsys)
    (most,) = re.findall(r"jobs vanished .* at most ([\d.]+)% of the node-time", said)
    assert verdict == "loud"
    assert 0 < wrong <= float(most) / 100


def one_user(form: str, users: int) -> str:
    """A hundred jobs of so many users, an hour each, one after the other on one node, as a format has them."""
    jobs = []
    for number in range(1, 101):
        start = BEGIN_S + 3600 * number
        jobs.append((number, f"u{number % users}", start, start + 3000))
    if form == "swf":
        rows = [
            f"{n} {s - BEGIN_S} 0 {e - s} 1 -1 -1 1 -1 -1 1 {user[1:]} 1 -1 1 -1 -1 -1"
            for n, user, s, e in jobs
        ]
        return f"; UnixStartTime: {BEGIN_S}\n" + "\n".join(rows)
    if form == "lsf":
        return "\n".join(
            f'"JOB_FINISH" "10.1" {e} {n} 1 0 1 {s} 0 0 {s} "{user}" "q" "" "" "" "l" "/" "" "" "" "j" 0 1 "n1" 64 6.0'
            for n, user, s, e in jobs
        )
    if form == "flux":
        rows = [f"f{n}|n1|{s}|{e}|{user}" for n, user, s, e in jobs]
        return "\n".join(["JOBID|NODELIST|T_RUN|T_INACTIVE|USER", *rows])
    if form == "cobalt":
        rows = [
            f"{n},m,{made_up.stamp(s - BEGIN_S)},{made_up.stamp(e - BEGIN_S)},1,n1,{user}"
            for n, user, s, e in jobs
        ]
        head = "JOB_NAME,MACHINE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION,USERNAME_GENID"
        return "\n".join([head, *rows])
    entries: dict[str, Callable[[int, str, int, int], dict[str, Any]]] = {
        "oar": lambda n, user, s, e: {
            "startTime": s, "stopTime": e, "assigned_network_address": ["n1"], "state": "Terminated", "owner": user,
        },
        "htcondor": lambda n, user, s, e: {
            "ClusterId": n, "ProcId": 0, "JobStatus": 4, "JobCurrentStartDate": s, "CompletionDate": e,
            "LastRemoteHost": "n1", "Owner": user,
        },
        "philly": lambda n, user, s, e: {
            "jobid": n, "user": user, "status": ("Pass", "Failed")[n % 2], "attempts": [
                {"start_time": made_up.stamp(s - BEGIN_S).replace("T", " "),
                 "end_time": made_up.stamp(e - BEGIN_S).replace("T", " "), "detail": [{"ip": "n1", "gpus": ["gpu0"]}]}
            ],
        },
    }  # fmt: skip
    made = [entries[form](*job) for job in jobs]
    listed: Any = made
    if form == "oar":
        listed = {str(number): each for number, each in enumerate(made, 1)}
    return json.dumps(listed, indent=1)


@pytest.mark.parametrize(
    "form", ["lsf", "swf", "flux", "cobalt", "oar", "htcondor", "philly"]
)
def test_one_user_is_refused_in_every_format_that_names_users(
    form: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ingest", form, "log", "--tz", "UTC", "-o", "t.csv", "--force"]
    put("log", one_user(form, 1) + "\n")
    assert run(command) == 2
    assert "all 100 rows have the User" in capsys.readouterr().err
    put("log", one_user(form, 2) + "\n")
    assert run(command) == 0
