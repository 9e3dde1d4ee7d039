"""Ways in which admins really export: each on a machine of which all is known, through the command line.

A trace is **right** when at most 0.2 % of the node-time is idle in it and was not, or the other way round. What is
wrong must be said on standard error, with a share that is right within a third where the log can tell one; nothing may
be wrong and silent.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import export_world as made_up
import pandas as pd
import pytest
from export_world import BEGIN_S, COLUMNS, DAY_S, LENGTH_S, NODES, WINDOW, Run, World

from bft.replay.cli.main import run
from bft.replay.trace.trace_files import read_trace

pytestmark = pytest.mark.usefixtures("example_logs")
Files = dict[str, str | bytes]
# Of a trace that is right: when a node was added or a job ended that left no record is known by the next job alone.
RIGHT = 0.002
# What a stated share may be off by, as part of the truth.
WITHIN = 1 / 3
# Of what these lack, a log does not show how much it is.
NO_SHARE = ("no requeued runs", "no events, no reservations")
# Nothing is wrong with these, and no alarm is due.
ALARMS = ("epilog", "power saving", "suspended")
OUTAGES = "--events events.txt --reservations reservations.txt"
BESIDE = f"--nodes nodes.txt {OUTAGES}"
GRID = "accounting --nodes nodes.txt --events closed.csv"
GPUS = "jobs --nodes gpus.txt --events none.txt --unit gpu"
DAY_FILES = [f"day{day}" for day in range(made_up.DAYS)]
MAP = "JobID=id,NodeList=hosts,AllocNodes=count,Start=began,End=ended,State=status"
SQL = "JobID=id_job,NodeList=nodelist,AllocNodes=nodes_alloc,Start=time_start,End=time_end,State=state"
CODES = {"COMPLETED": 3, "FAILED": 5, "TIMEOUT": 6, "NODE_FAIL": 7, "RUNNING": 1, "CANCELLED by 1001": 4}  # fmt: skip


@dataclass(frozen=True)
class Habit:
    """A way to export: what `ingest` is told, the files, what comes of it and is said, the world, and jobs by GPU."""

    name: str
    command: str
    files: Callable[[World], Files]
    expected: str = "right"  # or refused, loud, silent
    said: str = ""
    world: Callable[[World], World] = lambda same: same
    by_gpu: str = ""


# -- worlds


def only(keep: Callable[[Run], bool]) -> Callable[[World], World]:
    return lambda world: replace(world, runs=tuple(filter(keep, world.runs)))


def of_each(change: Callable[[Run], Run]) -> Callable[[World], World]:
    return lambda world: replace(world, runs=tuple(map(change, world.runs)))


ended = only(lambda each: not each.running)
ada = only(lambda each: each.user == "ada")
completed = only(lambda each: each.state == "COMPLETED")


def broken(world: World) -> World:
    """Three nodes fail in the middle of the week, one after the other, and stay down."""
    gone = {2: 2 * DAY_S, 11: 3 * DAY_S, 27: 4 * DAY_S}
    spared = only(
        lambda run: not any(run.end_s > gone.get(node, LENGTH_S * 2) for node in run.nodes)
    )  # fmt: skip
    outages = [each for each in world.outages if each.node not in gone]
    down = [made_up.Outage(*each, LENGTH_S, "DOWN*") for each in gone.items()]
    return replace(spared(world), outages=(*outages, *down))


def late(world: World) -> World:
    """Four nodes are there from the third day on."""
    mine = range(20, 24)
    there = only(lambda run: run.start_s >= 2 * DAY_S or not {*run.nodes} & {*mine})
    outages = [
        each for each in world.outages if each.node not in mine or each.start_s >= 2 * DAY_S
    ]  # fmt: skip
    absent = [made_up.Outage(node, 0, 2 * DAY_S, "absent") for node in mine]
    return replace(there(world), outages=tuple(outages), absent=tuple(absent))


# -- files


def jobs(change: Callable[[Run], dict[str, str]], *columns: str) -> Callable[[World], Files]:  # fmt: skip
    """A table of sacct, with other cells and further columns."""
    names = (*COLUMNS, *columns)
    return lambda world: {
        "jobs": made_up.table([made_up.row(each) | change(each) for each in world.runs], names)
    }  # fmt: skip


plain = jobs(lambda each: {})


def shown(world: Callable[[World], World], *columns: str) -> Callable[[World], Files]:
    return lambda truth: jobs(lambda each: {}, *columns)(world(truth))


def days(world: World) -> Files:
    """A file for each day; a job that runs at midnight is in two of them, without an end in the first."""
    files: Files = {}
    for name, begin in zip(DAY_FILES, range(0, LENGTH_S, DAY_S), strict=True):
        end = begin + DAY_S
        rows = [
            made_up.row(still_running(each) if each.end_s > end else each)
            for each in world.runs
            if each.start_s < end and each.end_s > begin
        ]
        files[name] = made_up.table(rows)
    return files


def still_running(each: Run) -> Run:
    return replace(each, end_s=LENGTH_S + 1, state="RUNNING")


def steps(world: World) -> Files:
    rows = [
        made_up.row(each) | {"JobID": f"{each.job}{step}"}
        for each in world.runs
        for step in ("", ".batch", ".0")
    ]
    return {"jobs": made_up.table(rows)}


def named(world: World) -> Files:
    """Names of jobs with delimiters in them, that nothing quotes."""
    rows = [made_up.row(each) | {"JobName": ("run", "a|b")[each.job % 7 == 0]} for each in world.runs]  # fmt: skip
    return {
        "jobs": made_up.table(rows, ("JobID", "JobName", *COLUMNS[1:])).replace('"', "")
    }


def spaces(world: World) -> Files:
    """Columns of spaces, which cut what is long."""
    rows = [COLUMNS, *([row[name] for name in COLUMNS] for row in map(made_up.row, world.runs))]  # fmt: skip
    return {"jobs": "\n".join(" ".join(f"{cell[:12]:>12}" for cell in row) for row in rows)}  # fmt: skip


def parquet(world: World) -> Files:
    """A table of another site, with lists, numbers and times."""
    frame = pd.DataFrame(
        {
            "id": [each.job for each in world.runs],
            "hosts": [[NODES[node] for node in each.nodes] for each in world.runs],
            "count": [len(each.nodes) for each in world.runs],
            "began": [BEGIN_S + each.start_s for each in world.runs],
            "ended": [None if each.running else BEGIN_S + each.end_s for each in world.runs],
            "status": [each.state for each in world.runs],
        }
    )  # fmt: skip
    times = frame[["began", "ended"]].apply(pd.to_datetime, unit="s", utc=True)
    frame.assign(**times).to_parquet(packed := BytesIO())
    return {"jobs.parquet": packed.getvalue()}


def dump(world: World) -> Files:
    lines = [
        "id_job\tnodelist\tnodes_alloc\ttime_start\ttime_end\tstate",
        "7\tNone assigned\t0\t0\t0\t0",
    ]
    lines += [
        f"{each.job}\t{made_up.host_list(each.nodes)}\t{len(each.nodes)}\t{BEGIN_S + each.start_s}\t"
        f"{0 if each.running else BEGIN_S + each.end_s}\t{CODES[each.state]}"
        for each in world.runs
    ]
    return {"dump.tsv": "\n".join(lines) + "\n"}


def jobs_json(world: World) -> Files:
    entries: list[dict[str, Any]] = [
        {
            "job_id": each.job, "nodes": made_up.host_list(each.nodes), "state": {"current": [each.state.split()[0]]},
            "time": {"start": BEGIN_S + each.start_s, "end": 0 if each.running else BEGIN_S + each.end_s,
                     "suspended": each.suspended[1] - each.suspended[0] if each.suspended else 0},
            "user": each.user, "partition": each.partition,
        }
        for each in world.runs
    ]  # fmt: skip
    waited = {"job_id": 7, "nodes": "None assigned", "state": {"current": ["CANCELLED"]}}  # fmt: skip
    entries.append(waited | {"time": {"start": 2**32 - 2, "end": BEGIN_S + 60}})
    return {"jobs.json": json.dumps({"jobs": entries}, indent=1)}


def two_clusters(*columns: str) -> Callable[[World], Files]:
    other = [
        made_up.row(each) | {"Cluster": "other"} for each in made_up.made("other").runs
    ]
    return lambda world: {
        "jobs": made_up.table([*map(made_up.row, world.runs), *other], (*COLUMNS, *columns))
    }  # fmt: skip


def down(world: World) -> Files:
    """Nodes that are down to the end, which the list of nodes says and no event."""
    gone = {each.node for each in world.outages if each.end_s == LENGTH_S}
    known = [each for each in world.outages if each.node not in gone]
    return {
        **plain(world),
        "nodes.txt": made_up.nodes_text(dict.fromkeys(gone, "DOWN*")),
        "events.txt": made_up.events(replace(world, outages=tuple(known))),
    }


def renamed(world: World) -> Files:
    """Nodes got new names in the middle of the week."""
    new = tuple(f"nd{name[2:]}" for name in NODES)
    names = "".join(f"{name},{other}\n" for name, other in zip(NODES, new, strict=True))
    rows = jobs(
        lambda each: {"NodeList": made_up.host_list(each.nodes, new if 2 * each.start_s >= LENGTH_S else NODES)}
    )  # fmt: skip
    return {**rows(world), "names.csv": f"node,was\n{names}"}


def powered(flag: str, *, told: bool = False) -> Callable[[World], Files]:
    """The jobs, and a list of nodes from when four of them are powered off, which events tell or do not."""

    def files(world: World) -> Files:
        off = [each for each in world.outages if each.state == "IDLE~"]
        for now in sorted(each.start_s for each in off):
            gone = {each.node for each in off if each.start_s <= now < each.end_s}
            if len(gone) >= 4:
                break
        states = {
            node: f"{'IDLE' if idle else 'ALLOCATED'}{flag}"
            for node, idle in enumerate(world.idle()[:, now])
        } | dict.fromkeys(gone, f"IDLE{flag}+POWERED_DOWN")
        known = [each for each in world.outages if told or each.state != "IDLE~"]
        events = made_up.events(replace(world, outages=tuple(known)))
        return {**plain(world), "nodes.txt": made_up.nodes_text(states), "events.txt": events}  # fmt: skip

    return files


def by_gpu(kind: str, *, tracked: bool = True) -> Callable[[World], Files]:
    return lambda world: {
        "jobs": made_up.gpu_sacct(made_up.gpu_runs(kind), tracked=tracked),
        "gpus.txt": made_up.gpu_nodes(),
        "none.txt": "NodeName|TimeStart|TimeEnd|State\n",
    }


def runaway(world: World) -> Files:
    gone = made_up.lost_ends(world, 8)
    return shown(of_each(lambda each: still_running(each) if each.job in gone else each))(world)  # fmt: skip


def minutes(each: Run) -> Run:
    start_s, end_s = (second // 60 * 60 for second in (each.start_s, each.end_s))
    return replace(each, start_s=start_s, end_s=end_s)


def accounting(
    text: Callable[[World], str], world: Callable[[World], World] = lambda same: same
) -> Callable[[World], Files]:
    return lambda truth: {"accounting": text(world(truth))}


HABITS = [
    # complete exports
    Habit("the recipe", f"slurm jobs {BESIDE}", plain),
    Habit("local stamps", f"slurm jobs {BESIDE} --tz Europe/Berlin",
          lambda world: {"jobs": made_up.sacct(world, zone="Europe/Berlin")}),
    Habit("a file a day", f"slurm {' '.join(DAY_FILES)} {BESIDE}", days),
    Habit("a file a day, in any order", f"slurm {' '.join(DAY_FILES[::-2] + DAY_FILES[1::2])} {BESIDE}", days),
    Habit("with job steps", f"slurm jobs {BESIDE}", steps),
    Habit("all cells quoted", f"slurm jobs.csv {BESIDE} --tz UTC",
          lambda world: {"jobs.csv": made_up.table([made_up.row(each, "UTC") for each in world.runs],
                                                   mark=";", quoted=True)}),
    Habit("commas", f"slurm jobs.csv {BESIDE}", lambda world: {"jobs.csv": made_up.sacct(world, mark=",")}),
    Habit("names with delimiters in them", f"slurm jobs {BESIDE}", named),
    Habit("no header, columns named", f"slurm jobs {BESIDE} --fields {','.join(COLUMNS)}",
          lambda world: {"jobs": made_up.sacct(world).partition("\n")[2]}),
    Habit("no header", f"auto jobs {BESIDE}", lambda world: {"jobs": made_up.sacct(world).partition("\n")[2]},
          "refused", "--fields"),
    Habit("sacct's own columns", f"slurm jobs {BESIDE}", lambda world: {"jobs": made_up.table(
        map(made_up.row, world.runs), ("JobID", "Partition", "User", "State"))}, "refused", "expected a header"),
    Habit("columns of spaces", f"slurm jobs {BESIDE}", spaces, "refused", "spaces"),
    Habit("milliseconds", f"slurm jobs {BESIDE}", jobs(lambda each: {
        name: f"{cell}000" for name, cell in made_up.row(each).items() if name in ("Start", "End") and cell.isdecimal()
    }), "refused", "milliseconds"),
    Habit("compressed", f"slurm jobs.gz {BESIDE}",
          lambda world: {"jobs.gz": gzip.compress(made_up.sacct(world).encode())}),
    Habit("pandas, with its index", f"auto jobs.csv {BESIDE} --tz UTC",
          lambda world: {"jobs.csv": pd.DataFrame([made_up.row(each, "UTC") for each in world.runs]).to_csv()}),
    Habit("Parquet of another site", f"slurm jobs.parquet {BESIDE} --map {MAP}", parquet),
    Habit("a dump of the data base", f"slurm dump.tsv {BESIDE} --map {SQL}", dump),
    Habit("JSON", f"slurm-json jobs.json {BESIDE}", jobs_json),
    Habit("full names of nodes in the list", f"slurm jobs --nodes full.txt {OUTAGES}", lambda world: {
        **plain(world), "full.txt": made_up.nodes_text(names=[f"{name}.cluster.org" for name in NODES])}),
    Habit("leading zeros", f"slurm jobs --nodes cn[1-32] {OUTAGES}", lambda world: {
        **plain(only(lambda each: max(each.nodes) < 9)(world)), "events.txt": "NodeName|TimeStart|TimeEnd|State\n",
    }, "refused", "leading zeros"),
    Habit("snapshots", "snapshots nodes.snapshots --nodes nodes.txt",
          lambda world: {"nodes.snapshots": made_up.snapshots(world, 900)}),
    Habit("snapshots in JSON of 22.05", "snapshots nodes.snapshots --nodes nodes.txt",
          lambda world: {"nodes.snapshots": made_up.snapshots(world, 1200, flags=True)}),
    Habit("accounting of PBS", f"pbs {GRID} --tz UTC", accounting(made_up.pbs)),
    Habit("accounting of Grid Engine", f"sge {GRID}", accounting(made_up.sge), world=ended),
    Habit("two clusters, with their column", f"slurm jobs {BESIDE}", two_clusters("Cluster"), "refused", "cluster"),
    # exports that hide something
    Habit("rows of one user", f"slurm jobs {BESIDE}", shown(ada, "User"), "refused", "User"),
    Habit("rows of one partition", f"slurm jobs {BESIDE}",
          shown(only(lambda each: each.partition == "batch"), "Partition"), "refused", "Partition"),
    Habit("rows of one state", f"slurm jobs {BESIDE}", shown(completed), "refused", "State"),
    Habit("no requeued runs", f"slurm jobs {BESIDE}",
          shown(lambda world: replace(world, runs=tuple({run.job: run for run in world.runs}.values()))), "loud", "-D"),
    Habit("no events, no reservations", "slurm jobs --nodes nodes.txt", plain, "loud", "no --events"),
    Habit("nodes down in the list, without an outage", f"slurm jobs {BESIDE}", down,
          said="last sign of life", world=broken),
    Habit("whole minutes", f"slurm jobs {BESIDE}", shown(of_each(minutes)), "loud", "whole minutes"),
    Habit("a day's file is missing", f"slurm {' '.join(DAY_FILES[:3] + DAY_FILES[4:])} {BESIDE}", days,
          "loud", "no job starts or ends"),
    Habit("two clusters, without their column", f"slurm jobs {BESIDE}", two_clusters(), "refused", "cluster"),
    Habit("series of overlapping partitions", "prometheus week.json",
          lambda world: {"week.json": made_up.prometheus(world, by_partition=True)}, "refused", "partition"),
    Habit("series of all nodes", "prometheus week.json",
          lambda world: {"week.json": made_up.prometheus(world, by_partition=False)}),
    Habit("a summary of Grid Engine", f"sge {GRID}", accounting(lambda world: made_up.sge(world, summary=True)),
          "refused", "accounting_summary", ended),
    Habit("runaway jobs", f"slurm jobs {BESIDE}", runaway, said="later job"),
    Habit("lost E records of PBS", f"pbs {GRID} --tz UTC",
          accounting(lambda world: made_up.pbs(world, made_up.lost_ends(world, 8))), said="later job"),
    Habit("renamed nodes", f"slurm jobs {OUTAGES}", renamed, "refused", "renamed"),
    Habit("renamed nodes, with a table of names", f"slurm jobs --nodes names.csv {OUTAGES}", renamed),
    Habit("added nodes", f"slurm jobs {BESIDE}", plain, said="last sign of life", world=late),
    Habit("added nodes, with their dates", f"slurm jobs --nodes since.csv {OUTAGES}", lambda world: {
        **plain(world), "since.csv": "node,since,until\ncn[01-20],,\ncn[25-32],,\n"
                                     f"cn[21-24],{made_up.stamp(2 * DAY_S)}Z,\n",
    }, world=late),
    Habit("cut lists of nodes", f"slurm jobs {BESIDE}", jobs(lambda each: {
        name: f"{cell[:8]}+" for name, cell in made_up.row(each).items() if name == "NodeList" and len(cell) > 9
    }), "refused", "cut"),
    Habit("scontrol show job alone", f"slurm list.txt {BESIDE} --tz UTC",
          lambda world: {"list.txt": made_up.scontrol_text(world, 1800, 1800)}),
    # the scheduler's own view of a node
    Habit("suspended jobs", f"slurm jobs {BESIDE}", jobs(lambda each: {}, "Suspended"),
          "loud", "suspended", made_up.suspended),
    Habit("suspended jobs, in JSON", f"slurm-json jobs.json {BESIDE}", jobs_json,
          "loud", "suspended", made_up.suspended),
    Habit("suspended jobs, listed by cron", f"slurm jobs list.txt {BESIDE} --tz UTC", lambda world: {
        "jobs": made_up.sacct(world, (*COLUMNS, "Suspended")), "list.txt": made_up.scontrol_text(world, 1800, 1800),
    }, world=made_up.suspended),
    Habit("jobs suspended while others run", f"slurm jobs {BESIDE}", jobs(lambda each: {}, "Suspended"),
          world=lambda world: made_up.suspended(world, preempted=True)),
    Habit("an epilog", f"slurm jobs {BESIDE}", plain, "loud", "--completing 61", lambda _: made_up.made("epilog", 60)),
    Habit("an epilog, stated", f"slurm jobs {BESIDE} --completing 60", plain,
          world=lambda _: made_up.made("epilog", 60)),
    Habit("a cloud, without its events", f"slurm jobs {BESIDE}", powered("+CLOUD"),
          "loud", "power saving", made_up.power_saved),
    Habit("power saving, without its events", f"slurm jobs {BESIDE}", powered(""),
          "loud", "power saving", made_up.power_saved),
    Habit("power saving, with its events", f"slurm jobs {BESIDE}", powered("", told=True), world=made_up.power_saved),
    Habit("GPUs", f"slurm {GPUS}", by_gpu("plain"), by_gpu="plain"),
    Habit("shards of GPUs", f"slurm {GPUS}", by_gpu("shards"), by_gpu="shards"),
    Habit("jobs on all cores", f"slurm {GPUS}", by_gpu("cores"), by_gpu="cores"),
    Habit("GPUs that are not tracked", f"slurm {GPUS}", by_gpu("plain", tracked=False),
          "refused", "gres/gpu", by_gpu="plain"),
    # the same in other formats
    Habit("one user, in JSON", f"slurm-json jobs.json {BESIDE}", lambda world: jobs_json(ada(world)),
          "refused", "User"),
    Habit("one user, of PBS", f"pbs {GRID} --tz UTC", accounting(made_up.pbs, ada), "refused", "User"),
    Habit("one user, of Grid Engine", f"sge {GRID}", accounting(made_up.sge, ada), "refused", "User"),
    Habit("one queue, of PBS", f"pbs {GRID} --tz UTC",
          accounting(made_up.pbs, only(lambda each: each.partition == "gpu")), "refused", "Partition"),
    Habit("one state, in JSON", f"slurm-json jobs.json {BESIDE}", lambda world: jobs_json(completed(world)),
          "refused", "State"),
    Habit("lost ends in lsb.events", "lsf-events lsb.events --nodes nodes.txt --events closed.csv",
          lambda world: {"lsb.events": made_up.lsf_events(world, made_up.lost_ends(world, 8))},
          said="later job"),
]  # fmt: skip


def write(truth: World, files: Files) -> None:
    """Write what lies beside all exports, and the files of one, which may replace it."""
    closed = [
        f"{NODES[one.node]},{BEGIN_S + one.start_s},{BEGIN_S + one.end_s},down\n"
        for one in (*truth.outages, *truth.reservations)
    ]
    beside: Files = {
        "nodes.txt": made_up.nodes_text(),
        "events.txt": made_up.events(truth),
        "reservations.txt": made_up.reservations(truth),
        "closed.csv": "node,start,end,state\n" + "".join(closed),
    }
    for name, data in {**beside, **files}.items():
        Path(name).write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.mark.parametrize("each", HABITS, ids=lambda each: each.name)
def test_what_comes_of_a_habit(
    each: Habit, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = each.world(made_up.made())
    write(truth, each.files(truth))
    code = run(["ingest", *each.command.split(), *WINDOW, "-o", "t.parquet"])
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if each.said in line]
    assert lines or not each.said
    if code:
        assert each.expected == "refused", said
        return
    trace = read_trace(Path("t.parquet"))
    if each.by_gpu:
        wrong = made_up.gpu_share_wrong(trace, made_up.gpu_runs(each.by_gpu))
    else:
        wrong = made_up.share_wrong(
            trace, truth, sums=each.command.startswith(("prometheus", "snapshots"))
        )
    verdict = "right" if wrong <= RIGHT else "loud" if said.strip() else "silent"
    assert verdict == each.expected, f"{wrong:.2%} wrong: {said}"
    if verdict == "right":
        assert not any(alarm in said for alarm in ALARMS), said
    elif each.name not in NO_SHARE:
        shares = re.findall(r"about ([\d.]+)% of the node-time", "\n".join(lines))
        stated = sum(map(float, shares)) / 100
        assert abs(stated - wrong) <= WITHIN * wrong, f"{wrong:.2%} wrong: {said}"


def test_few_habits_are_wrong_and_none_is_silent() -> None:
    """Of forty habits at most six are wrong; `test_what_comes_of_a_habit` holds each against what is expected."""
    verdicts = Counter(each.expected for each in HABITS)
    assert verdicts == {"right": 35, "refused": 20, "loud": 9}
