"""Exports that overlap, events beside them, and rows that are filtered: against our own account, in all formats."""

import json
from datetime import UTC, datetime
from string import Template

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from synthetic_logs import BEGIN_S, idle_seconds_of, read_texts, stamp, taken

from bft.replay.logs import Ingested, format_names, log_format

DAY = 86_400
NODES = ["n1", "n2", "n3"]


def busy_seconds(jobs, nodes: list[str], seconds: int):
    """The oracle: whether each node is busy during each second. Of an id and start only the latest record counts."""
    runs: dict[tuple[str, int], tuple[str, int]] = {}
    for job, node, start, end in jobs:
        if end is not None or (job, start) not in runs:
            runs[job, start] = (node, seconds if end is None else end)
    busy = np.zeros((len(nodes), seconds), dtype=bool)
    for (_, start), (node, end) in runs.items():
        busy[nodes.index(node), start:end] = True
    return busy


def table(head: str, row: str, open_end: str = ""):
    """A table of jobs with stamps: id, node, start, end and state; those without an end run."""

    def write(jobs) -> str:
        rows = [
            row.format(job, node, stamp(start), open_end, "RUNNING")
            if end is None
            else row.format(job, node, stamp(start), stamp(end), "COMPLETED")
            for job, node, start, end in jobs
        ]
        return "\n".join([head, *rows, ""])

    return write


def sacct_json(jobs) -> str:
    entries = [
        {
            "job_id": job, "cluster": "c", "nodes": node,
            "time": {"start": BEGIN_S + start, "end": 0 if end is None else BEGIN_S + end},
            "state": {"current": ["RUNNING" if end is None else "COMPLETED"]},
        }
        for job, node, start, end in jobs
    ]  # fmt: skip
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
def exports(draw: st.DrawFn):
    """Jobs of three nodes as four exports show them, each a quarter of 400 s: what runs at its end has no end yet."""
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 390))
        node, end = draw(st.sampled_from(NODES)), draw(st.integers(start + 1, 400))
        jobs.append((str(number), node, start, end))
    files = []
    for now in range(100, 500, 100):
        mine = [job for job in jobs if job[2] < now and job[3] >= now - 100]
        # Exported days later what ran at midnight is in both days with its end.
        late = draw(st.booleans())
        files.append([(*job[:3], job[3] if late or job[3] <= now else None) for job in mine])  # fmt: skip
    return [file for file in draw(st.permutations(files)) if file]


@pytest.mark.parametrize("name", WRITERS)
@examples(100, quick=6)
@given(files=exports())
def test_exports_by_the_day_are_one_log(name: str, files) -> None:
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


# Id, host, seconds after the beginning, and partition.
ROWS = [
    (1, "n1", 60, 600, "batch"),
    (2, "n2", 120, 900, "gpu"),
    (3, "n1", 900, 2500, "batch"),
    (4, "n3", 300, 2400, "gpu"),
]
BATCH = [row for row in ROWS if row[4] == "batch"]
HOUR = 3600
_SWF = "$id $s 0 $length 1 -1 -1 1 9 -1 1 1 1 1 "
# By name the format, what stands before and after the rows, and a row: $s and $e are seconds, $start and $end stamps.
FILTERED = {
    "sacct": ("slurm", "JobID|Partition|NodeList|Start|End\n", "", "$id|$of|$host|$start|$end"),
    "scontrol": ("slurm", "", "", "JobId=$id JobName=x UserId=u(1) GroupId=g(1) JobState=COMPLETED Partition=$of "
                 "StartTime=$start EndTime=$end NodeList=$host NumNodes=1"),
    "sacct --json": ("slurm-json", '{"jobs": [', "]}", '{"job_id": $id, "partition": "$of", "nodes": "$host", '
                     '"state": {"current": ["COMPLETED"]}, "time": {"start": $s, "end": $e}}'),
    "pbs": ("pbs", "", "", "$us;S;$id.s;queue=$of exec_host=$host/0 start=$s\n"
            "$ue;E;$id.s;queue=$of exec_host=$host/0 start=$s end=$e"),
    "lsf": ("lsf", "", "", '"JOB_FINISH" "10.1" $e $id 1 33 16 $s 0 0 $s "u" "$of" "" "" "" "login" "/" "" "" "" '
            '"file" 0 1 "$host" 64 100.0'),
    "sge": ("sge", "", "", "$of:$host:g:u:name:$id:sge:0:$s:$s:$e:0:0:1" + ":0" * 19 + ":NONE:1:0"),
    "cobalt": ("cobalt", "COBALT_JOBID,QUEUE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION\n", "",
               "$id,$of,$start,$end,1,$host"),
    "swf": ("swf", "; MaxNodes: 3\n; MaxProcs: 3\n", "", f"{_SWF}1 $number -1 -1 $host"),
    "swf by queue": ("swf", "; MaxNodes: 3\n; MaxProcs: 3\n", "", f"{_SWF}$number -1 -1 -1 $host"),
    "flux": ("flux", "JOBID|QUEUE|NODELIST|T_RUN|T_INACTIVE\n", "", "f$id|$of|$host|$start|$end"),
    "flux --json": ("flux", '{"jobs": [', "]}", '{"id": $id, "queue": "$of", "nodelist": "$host", "t_run": $s, '
                    '"t_inactive": $e}'),
    "oar": ("oar", "{", "}", '"$id": {"queue": "$of", "state": "Terminated", "startTime": $s, "stopTime": $e, '
            '"assigned_network_address": ["$host"]}'),
    "intervals": ("intervals", "queue,node,start,end\n", "", "$of,$host,$start,$end"),
    "intervals of jobs": ("intervals", "id,partition,hosts,start,end\n", "", "$id,$of,$host,$start,$end"),
}  # fmt: skip
# The numbers of partitions in SWF are those of `write`.
NAMED = sorted(FILTERED.keys() - {"swf", "swf by queue"})


def us_stamp(second: int) -> str:
    return f"{datetime.fromtimestamp(BEGIN_S + second, UTC):%m/%d/%Y %H:%M:%S}"


def write(name: str, rows) -> str:
    _, head, foot, line = FILTERED[name]
    numbers = {"batch": 7, "gpu": 8}
    lines = [
        Template(line).substitute(
            id=number, host=host, s=BEGIN_S + start, e=BEGIN_S + end, length=end - start, start=stamp(start),
            end=stamp(end), us=us_stamp(start), ue=us_stamp(end), of=of, number=numbers.get(of, 9),
        )
        for number, host, start, end, of in rows
    ]  # fmt: skip
    if name == "pbs":  # written as things happen
        lines = sorted("\n".join(lines).split("\n"))
    return head + (",\n" if foot else "\n").join(lines) + foot + "\n"


def read(form: str, text: str, hours: int = 1, **options) -> Ingested:
    return read_texts(
        form, text, window=(0, hours * HOUR), uncertain="unavailable", **options
    )


def percent(made: Ingested) -> tuple[float, ...]:
    shares = (made.coverage.busy, made.coverage.unavailable, made.coverage.idle)
    return tuple(round(100 * share, 1) for share in shares)


def test_each_format_that_states_partitions_is_tested_here() -> None:
    forms = {form for form in format_names() if "partition" in log_format(form).states}
    assert {form for form, *_ in FILTERED.values()} == forms


@pytest.mark.parametrize("name", FILTERED)
def test_the_trace_is_that_of_a_log_without_the_other_jobs(name: str) -> None:
    form = FILTERED[name][0]
    wanted, other = ("7", "8") if form == "swf" else (" BATCH", "gpu")
    some = read(form, write(name, ROWS), partition=wanted, keep_records=True)
    whole = read(form, write(name, BATCH))
    assert taken(some.trace) == taken(whole.trace) != set()
    assert some.coverage == whole.coverage
    assert "jobs of other partitions were left out" in str(some.account.warnings())
    (tally,) = some.account.left_out.values()
    assert tally.count == (4 if form == "pbs" else 2)
    stated = sorted({*some.records["partition"].to_pylist()})
    assert stated == [wanted.strip().lower(), other]
    why = f"--partition: the logs have no job of 'bath'; they have {', '.join(stated)}"
    refused(why, read, form, write(name, ROWS), partition="bath")


@pytest.mark.parametrize(
    "form", [name for name in format_names() if "partition" not in log_format(name).states]
)  # fmt: skip
def test_a_format_that_states_no_partitions_is_refused_by_name(form: str) -> None:
    why = f"--partition: the format {form} states no partitions; slurm, slurm-json, pbs"
    refused(why, read, form, "any\n", partition="batch")


@pytest.mark.parametrize("name", NAMED)
def test_jobs_of_any_partition_are_signs_of_life(name: str) -> None:
    """An outage without an end ends with one, and a log lasts to the last one."""
    form, *_ = FILTERED[name]
    hours = [(1, "n1", 0, 1, "gpu"), (2, "n1", 2, 3, "cpu"), (3, "n1", 8, 10, "gpu")]
    jobs = [(job, node, begin * HOUR, end * HOUR, of) for job, node, begin, end, of in hours]  # fmt: skip
    down = f"node,start,end,state\nn1,{stamp(HOUR * 3 // 2)},,down\n"
    beside = {"files": {"down": down}, "events": ["down"], "hours": 10}
    assert percent(read(form, write(name, jobs), **beside)) == (40, 5, 55)
    some = read(form, write(name, jobs), partition="gpu", **beside)
    assert percent(some) == (30, 5, 65)
    why = "an outage has no end, but jobs start on its nodes later: it ends on each node with the first one"
    assert some.account.notes[why].count == 1
    jobs = [(1, "g1", 0, 16 * HOUR, "gpu"), (2, "g2", 0, 12 * HOUR, "gpu"), (3, "c1", 0, 20 * HOUR, "cpu")]  # fmt: skip
    for partition in (None, "gpu"):
        made = read(form, write(name, jobs), nodes=["g[1-2]"], hours=20, partition=partition)  # fmt: skip
        assert percent(made) == (70, 0, 30)
        assert "the logs hold" not in str(made.account.warnings())


@pytest.mark.parametrize("name", ["cluster", "partition"])
def test_a_filter_that_is_given_twice_is_refused(name: str, told) -> None:
    line = f"ingest slurm log --{name} batch --{name} gpu -o t.csv"
    assert f"--{name} is given twice" in " ".join(told(line, code=2).split())
