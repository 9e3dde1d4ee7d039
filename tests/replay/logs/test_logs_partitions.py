"""Whose rows count: `--partition` and `--cluster` give the trace of a log without the other jobs, in every format."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any

import pytest
from synthetic_logs_more import BEGIN_S, read_texts, taken

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import Ingested, IngestOptions, format_names, log_format
from bft.replay.logs.records import FILTERS

# Id, host, seconds after the beginning, and partition.
Row = tuple[int, str, int, int, str]
ROWS: list[Row] = [
    (1, "n1", 60, 600, "batch"),
    (2, "n2", 120, 900, "gpu"),
    (3, "n1", 900, 2500, "batch"),
    (4, "n3", 300, 2400, "gpu"),
]
BATCH = [row for row in ROWS if row[4] == "batch"]
_SWF = "$id $s 0 $length 1 -1 -1 1 9 -1 1 1 1 1 "
# By name the format, what stands before and after the rows, and a row: $s and $e are seconds, $start and $end stamps.
WRITERS = {
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
NAMED = sorted(WRITERS.keys() - {"swf", "swf by queue"})
HOUR = 3600
# A part of a log of `sacct` that states what it likes.
COLUMNS = "JobID|Cluster|Partition|NodeList|Start|End|State"


def stamp(second: int, form: str = "%Y-%m-%dT%H:%M:%S") -> str:
    return datetime.fromtimestamp(BEGIN_S + second, UTC).strftime(form)


def write(name: str, rows: list[Row]) -> str:
    _, head, foot, line = WRITERS[name]
    numbers = {"batch": 7, "gpu": 8}
    us = "%m/%d/%Y %H:%M:%S"
    lines = [
        Template(line).substitute(
            id=number, host=host, s=BEGIN_S + start, e=BEGIN_S + end, length=end - start, start=stamp(start),
            end=stamp(end), us=stamp(start, us), ue=stamp(end, us), of=of, number=numbers.get(of, 9),
        )
        for number, host, start, end, of in rows
    ]  # fmt: skip
    if name == "pbs":  # written as things happen
        lines = sorted("\n".join(lines).split("\n"))
    return head + (",\n" if foot else "\n").join(lines) + foot + "\n"


def around(host: str) -> list[Row]:
    """Jobs before and after an outage, and one of another partition in the midst of it."""
    hours = [(1, "n1", 0, 1, "gpu"), (2, host, 2, 3, "cpu"), (3, "n1", 8, 10, "gpu")]
    return [(job, node, begin * HOUR, end * HOUR, of) for job, node, begin, end, of in hours]  # fmt: skip


def read(form: str, *texts: str, hours: float = 1, **options: Any) -> Ingested:
    """Read texts; doubtful time counts as unavailable."""
    window = (0, round(hours * HOUR))
    return read_texts(form, *texts, window=window, **{"uncertain": "unavailable", **options})  # fmt: skip


def percent(made: Ingested) -> tuple[float, float, float]:
    """What part of the node-time was busy, unavailable and idle."""
    shares = (made.coverage.busy, made.coverage.unavailable, made.coverage.idle)
    return tuple(round(100 * share, 1) for share in shares)  # type: ignore[return-value]


# --- every format ---------------------------------------------------------------------------------------------------


def test_each_format_that_states_partitions_is_tested_here() -> None:
    forms = {form for form in format_names() if "partition" in log_format(form).states}
    assert {form for form, *_ in WRITERS.values()} == forms


@pytest.mark.parametrize("name", WRITERS)
def test_the_trace_is_that_of_a_log_without_the_other_jobs(name: str) -> None:
    form = WRITERS[name][0]
    wanted = "7" if form == "swf" else " BATCH"
    some = read(form, write(name, ROWS), partition=wanted, keep_records=True)
    whole = read(form, write(name, BATCH))
    assert taken(some.trace) == taken(whole.trace) != set()
    assert some.coverage == whole.coverage
    assert "jobs of other partitions were left out" in str(some.account.warnings())
    (tally,) = some.account.left_out.values()
    assert tally.count == (4 if form == "pbs" else 2)
    stated = set(some.records["partition"].to_pylist())
    assert stated == ({"7", "8"} if form == "swf" else {"batch", "gpu"})
    there = "7, 8" if form == "swf" else "batch, gpu"
    why = f"--partition: the logs have no job of 'bath'; they have {there}"
    with pytest.raises(InputError, match=why):
        read(form, write(name, ROWS), partition="bath")


@pytest.mark.parametrize(
    "form", [name for name in format_names() if "partition" not in log_format(name).states]
)  # fmt: skip
def test_a_format_that_states_no_partitions_is_refused_by_name(form: str) -> None:
    why = f"--partition: the format {form} states no partitions; slurm, slurm-json, pbs"
    with pytest.raises(InputError, match=why):
        read(form, "any\n", partition="batch")


@pytest.mark.parametrize("name", NAMED)
def test_jobs_of_any_partition_are_signs_of_life(name: str) -> None:
    """An outage without an end ends with one, and a log lasts to the last one."""
    form, *_ = WRITERS[name]
    jobs = around("n1")
    down = f"node,start,end,state\nn1,{stamp(HOUR * 3 // 2)},,down\n"
    beside: dict[str, Any] = {"files": {"down": down}, "events": ["down"], "hours": 10}
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


# --- rows that are odd ----------------------------------------------------------------------------------------------


def at(hour: float) -> str:
    return str(BEGIN_S + round(hour * HOUR))


def sacct(*rows: str, header: str = COLUMNS) -> str:
    """A table of sacct, in whose rows @1.5 is the time of 1.5 hours."""
    lines = [
        "|".join(at(float(cell[1:])) if cell.startswith("@") else cell for cell in row.split("|"))
        for row in rows
    ]  # fmt: skip
    return "\n".join([header, *lines, ""])


def minutes(of: str, host: str = "n1", begin: int = 10, end: int = 40) -> list[str]:
    """Jobs of a minute each, one after the other."""
    return [
        f"{of}{k}||{of}|{host}|@{k / 60:.9f}|@{(k + 1) / 60:.9f}|COMPLETED"
        for k in range(begin, end)
    ]


def record(hour: int, kind: str, job: int, message: str) -> str:
    """A record of PBS."""
    return f"{stamp(hour * HOUR, '%m/%d/%Y %H:%M:%S')};{kind};{job}.s;{message}\n"


BEGUN = f"start={BEGIN_S} exec_host=n"
CLUSTERS = sacct("1|alpha||n1|@0|@1|COMPLETED", "3|alpha||n2|@8|@10|FAILED")
RUNNING = sacct("1|n1|@0|Unknown|RUNNING", header="JobID|NodeList|Start|End|State")
LISTED = (
    "JobId=1 JobName=x\n   UserId=u(1) GroupId=u(1) MCS_label=N/A\n   JobState=RUNNING Reason=None\n"
    f"   StartTime={stamp(0)} EndTime={stamp(90_000)} Deadline=N/A\n   Partition=gpu AllocNode:Sid=l:1\n"
    "   NodeList=n1\n   NumNodes=1 NumCPUs=1\n"
)
JSON = json.dumps({"jobs": [{"job_id": 1, "cluster": "alpha", "nodes": "n1", "time": {
    "start": BEGIN_S, "end": BEGIN_S + HOUR}}]}, indent=1)  # fmt: skip
FREE = "JobID|JobName|{}|Comment|Start|End|NodeList|State"
UNCLEAR = ("1|run|gpu||@0|@1|g1|COMPLETED", "2|my|name|gpu||@1|@4|g1|COMPLETED", "3|run|gpu||@4|@5|g1|FAILED",
           "4|run|gpu||@0|@5|g2|COMPLETED")  # fmt: skip
TRES = "cpu=1,gres/gpu=4"
TO_PARTITION = "JobID|NodeList|Start|End|State|User|Partition"
SHORT = sacct("1|g1|@0|@1|COMPLETED|a|gpu", "2|g1|@1|@4|COMPLETED|a", "3|g1|@4|@5|FAILED|a|gpu",
              "4|g2|@0|@5|FAILED|a|gpu",
              header=TO_PARTITION)  # fmt: skip
AMBIGUOUS = "which belong together is not clear"
LOST = sacct("1||gpu|n1|@1|Unknown|RUNNING", *minutes("gpu"), "2||cpu|n1|@2|@3|COMPLETED")  # fmt: skip
SHARED = LOST + "".join(f"{row}\n" for row in sacct(*minutes("cpu")).splitlines()[1:])
DAYS = sacct(
    *(f"{k}||{'gpu' if k < 144 else 'cpu'}|n1|@{k / 6:.9f}|@{k / 6 + 1 / 12:.9f}|COMPLETED" for k in range(576))
)  # fmt: skip
STATED = "node,start,end,state,partition\n" + "".join(
    f"{node},{at(begin)},{at(end)},{state},{of}\n"
    for node, begin, end, state, of in (
        ("n1", 0, 1, "busy", "gpu"), ("n1", 1, 2, "idle", "{}"), ("n1", 5, 6, "busy", "gpu"),
        ("n2", 0, 6, "busy", "gpu"))
)  # fmt: skip
NO_EVENTS = "no --events and no --reservations"
GPU: dict[str, Any] = {"partition": "gpu"}


@pytest.mark.parametrize(
    ("form", "texts", "hours", "options", "shares", "said"),
    [
        # A record without a cluster is of the only one there is, and JSON and tables state one job alike.
        *(("auto", texts[::way], 10, {"cluster": cluster, "nodes": ["n[1-2]"]}, (15, 0, 85), "-several clusters")
          for texts in ((RUNNING, CLUSTERS), (LISTED, CLUSTERS), (JSON, CLUSTERS)) for way in (1, -1)
          for cluster in (None, "Alpha")),
        ("slurm", [CLUSTERS + sacct("1|beta||m1|@0|@9|x").partition("\n")[2], RUNNING], 10, {"nodes": ["n[1-2]"]}, None,
         "jobs whose cluster is not stated: an id among the latter is taken for that of a job of cluster 'alpha'"),
        # Where the partition or cluster of a row is not clear it is skipped, but not where nobody asks for it.
        *(("slurm", [sacct(*UNCLEAR, header=FREE.format(name))], 5, {name: "gpu"}, None,
           f"{AMBIGUOUS}: 1 (first: log.0, line 3, 9 of 8)") for name in ("partition", "cluster")),
        ("slurm", [sacct(*UNCLEAR, header=FREE.format("Partition"))], 5, {}, (100, 0, 0), "-" + AMBIGUOUS),
        ("slurm", [SHORT], 5, GPU,
         (70, 0, 30), "has fewer fields than columns: cut off?: 1"),
        ("slurm", [SHORT], 5, {}, (100, 0, 0), "-cut off"),
        # What a job holds is where it looks like resources.
        ("slurm", [sacct(f"1|a|{TRES}||@0|@1|g1|COMPLETED", f"2|p|q|{TRES}||@1|@3|g1|COMPLETED",
                         f"3|a|{TRES}||@3|@4|g1|FAILED", header=FREE.format("AllocTRES"))], 4,
         {"unit": "gpu", "units_per_node": 4}, (100, 0, 0), "-" + AMBIGUOUS),
        # A header that repeats, and a blank line, is no row.
        *(("slurm", [sacct("1||gpu|g1|@0|@1|COMPLETED", odd, "2||gpu|g1|@1|@2|FAILED")], 2, GPU, (100, 0, 0),
           "-other partitions") for odd in ("", COLUMNS, "\ufeff" + COLUMNS)),
        ("slurm", [sacct("1||gpu|g1|@0|@1|COMPLETED", "Job|Cluster|Queue|NodeList|Start|End|State",
                         "2||gpu|g1|@1|@2|FAILED", header="Job|Cluster|Queue|NodeList|Start|End|State")], 2,
         {**GPU, "columns": "Partition=Queue,JobID=Job"}, (100, 0, 0), "-other partitions"),
        # Of several partitions a job is of each; blanks do not matter.
        ("slurm", [sacct("9||gpu,batch|None assigned|Unknown|Unknown|PENDING", "1||long, batch |n1|@0|@1|FAILED",
                         "8||gpu|n9|@0|@2|FAILED")], 2, {"partition": " batch"}, (50, 0, 50),
         "jobs of other partitions"),
        # Each job of swf that was chosen by its queue is counted.
        ("swf", [write("swf", ROWS)], 1, {"partition": "7"}, (59.4, 0, 40.6), "-was taken for it"),
        ("swf", [write("swf by queue", ROWS[:2]) + write("swf", ROWS[2:])], 1, {"partition": "7"}, (59.4, 0, 40.6),
         "field 16 states no partition: the queue in field 15 was taken for it: 1 (first: log.0, line 3"),
        # A job of another cluster ends no outage of a node of that name, and is no sign of life.
        ("slurm", [sacct("1|gpu||n1|@0|@1|FAILED", "2|cpu||n1|@2|@3|FAILED", "3|gpu||n1|@8|@10|FAILED")], 10,
         {"cluster": "gpu", "events": ["down"], "files": {"down": f"node,start,end,state\nn1,{at(1.5)},,down\n"}},
         (30, 65, 5), "-jobs of other clusters"),
        # A machine that is down comes back with a job of any partition.
        ("cobalt", [write("cobalt", around("n2")),
                    f"START_TIMESTAMP,END_TIMESTAMP,IS_ALL_MACHINE_DOWN\n{stamp(HOUR * 3 // 2)},,1\n"], 10, GPU,
         (30, 5, 65), ""),
        # A job of PBS that goes on when the log ends lasts to its last record, of any partition.
        ("pbs", ["".join(write("pbs", [(1, "g1", 0, 30 * HOUR, "gpu"), (2, "g2", 0, 16 * HOUR, "gpu"),
                                       (3, "c1", 0, 20 * HOUR, "cpu")]).splitlines(keepends=True)[:-1])], 20,
         {**GPU, "nodes": ["g[1-2]"]}, (90, 0, 10), "-the logs hold"),
        # Nodes are idle only where stated, if any row states an idle one.
        *(("intervals", [STATED.format(of)], 6, GPU, (66.7, 33.3 - idle, idle), "") for of, idle in
          (("", 8.3), ("gpu", 8.3), ("cpu", 0.0))),
        # Nodes that only jobs of other clusters name are told.
        *(("slurm", [sacct("1|alpha||n1|@0|@1|x", "2|alpha||n2|@0|@1|x", "3|beta||n2|@1|@2|x",
                           "4|beta||m1|@0|@1|x")], 2, {"cluster": "alpha", "nodes": nodes}, None, said)
          for nodes, said in ((["n[1-2],m1"], "on which they ran look idle meanwhile: 1, such as m1"),
                              ((), "-on which they ran"))),
        # Rows without a cluster are counted once each.
        ("slurm", [CLUSTERS + "".join(f"{k}|||n{k}|{at(0)}|{end}|RUNNING\n" for k, end in
                                      enumerate((at(1), "Unknown", "Unknown", at(2))))], 3, {"cluster": "alpha"}, None,
         "no cluster is stated: --cluster was not applied: 4 "),
        # A record of PBS without a queue is of that of its job, also where this began in the file before.
        ("pbs", [record(0, "S", 1, f"queue=gpu {BEGUN}1/0") + record(0, "S", 2, f"queue=gpu {BEGUN}2/0")
                 + record(0, "S", 3, f"queue=cpu {BEGUN}3/0"), record(1, "R", 1, "") + record(1, "R", 3, "")
                 + record(4, "E", 2, f"{BEGUN}2/0 end={at(4)}")], 4, {**GPU, "nodes": ["n[1-2]"]}, (62.5, 0, 37.5),
         "look idle meanwhile: 1 (first: log.0, line 3, 'cpu')"),
        # A job without an end ends with a job of any partition, unless jobs share nodes.
        ("slurm", [LOST], 10, GPU, (15, 81.7, 3.3), ""),
        ("slurm", [SHARED], 10, GPU, (95, 1.7, 3.3), ""),
        # Jobs of other partitions show that the log and its nodes go on.
        ("slurm", [DAYS], 96, GPU, (12.5, 0, 87.5), "-no job starts in the last part"),
        ("slurm", [DAYS.partition("144||")[0]], 96, GPU, None, "no job starts in the last part"),
    ],
)  # fmt: skip
def test_odd_rows(
    form: str, texts: list[str], hours: int, options: dict[str, Any], shares: tuple[float, ...] | None, said: str
) -> None:  # fmt: skip
    made = read(form, *texts, hours=hours, **options)
    assert shares is None or percent(made) == pytest.approx(shares, abs=0.11)
    told = {**made.account.skipped, **made.account.notes}
    text = "\n".join(f"{reason}: {tally}" for reason, tally in told.items())
    assert (said.removeprefix("-") in text) != said.startswith("-")


def test_an_end_that_states_no_partition_is_of_that_of_its_begin() -> None:
    us = "%m/%d/%Y %H:%M:%S"
    began = f"{stamp(60, us)};S;3.s;queue=gpu exec_host=n2/0 start={BEGIN_S + 60}\n"
    text = f"{began}{stamp(90, us)};A;3.s;\n" + write("pbs", BATCH)
    made = read("pbs", text, partition="batch")
    left_out = {why: tally.count for why, tally in made.account.left_out.items()}
    assert left_out == {"job of another partition": 2}


def test_what_is_idle_elsewhere_shows_that_the_log_states_outages() -> None:
    rows = f"n1,{stamp(0)},{stamp(60)},busy,gpu\nn2,{stamp(0)},{stamp(60)},{{}},cpu\n"
    told = [
        str(read("intervals", STATED.partition("\n")[0] + "\n" + rows.format(state), **GPU).account.notes)
        for state in ("idle", "busy")
    ]  # fmt: skip
    assert [NO_EVENTS in text for text in told] == [False, True]


# --- what is refused ------------------------------------------------------------------------------------------------

OTHER = sacct("1|gpu|cpu|g1|@0|@1|x", "2|al|gpu|g1|@2|@3|x",
              "JobID|Partition|Cluster|NodeList|Start|End|State", "3|gpu|al|g1|@4|@5|x")  # fmt: skip
RENAMED = OTHER.replace("Partition", "Queue")
MAP = "Partition=Queue,JobID=JobID,NodeList=NodeList,Start=Start,End=End"


@pytest.mark.parametrize(
    ("form", "text", "options", "why"),
    [
        ("slurm", write("sacct", ROWS).replace("Partition", "QOS"), {},
         "the column Partition .export with sacct -a -X"),
        ("cobalt", write("cobalt", ROWS).replace("QUEUE_NAME", "OTHER"), {}, "the column QUEUE_NAME or QUEUE_GENID"),
        ("flux", write("flux", ROWS).replace("QUEUE", "RANKS"), {}, "the column QUEUE"),
        ("flux", '{"timestamp": 1.0, "name": "submit"}\n', {},
         "flux jobs --json, or a table of it with the column QUEUE"),
        ("intervals", write("intervals", ROWS).replace("queue,", "x,"), {}, "the column partition or queue"),
        ("slurm", write("sacct", ROWS).replace("|batch|", "|long, batch|"), {"partition": "bath"},
         "they have long, batch, gpu; did you mean 'batch'?"),
        # A header with other columns within a file, whole, after a row that is cut off, in quotes, with other names.
        ("slurm", OTHER, GPU, "line 4: a header with other columns"),
        ("slurm", OTHER, {"partition": None},
         r"line 4: .*expected jobid\|cluster\|partition\|nodelist\|start\|end\|state"),
        ("slurm", OTHER.replace("JobID|P", "2|al|gpu|g1\nJobID|P"), GPU, "line 5: a header with other columns"),
        *(("slurm", '"' + RENAMED.replace("\n", '"\n"').replace("|", f'"{mark}"')[:-1] if quoted else
           RENAMED.replace("|", mark), {**GPU, "columns": MAP}, "line 4: a header with other columns")
          for mark in "|," for quoted in (False, True)),
        *(("slurm", write("sacct", ROWS), {name: value}, f"--{name}: expected the name of a {name}")
          for name in FILTERS for value in ("", " ")),
        ("slurm", write("sacct", ROWS), {"partition": "gpu,batch"}, "the name of one partition, not 'gpu,batch'"),
        # Options check themselves.
        ("slurm", "", {"min_gap_s": -1.0}, "--min-gap: expected a number of seconds from 0 on, not -1.0"),
        ("slurm", "", {"min_gap_s": float("nan")}, "--min-gap: expected a number of seconds from 0 on, not nan"),
        ("slurm", "", {"units_per_node": 0}, "--units-per-node: expected a whole number from 1 on, not 0"),
        ("slurm", "", {"unit": "core"}, "--unit: expected node, gpu or cpu:N"),
        ("slurm", "", {"nodes": "cn1"}, "nodes: expected a sequence of texts, not one text"),
    ],
)  # fmt: skip
def test_what_is_refused(form: str, text: str, options: dict[str, Any], why: str) -> None:  # fmt: skip
    with pytest.raises(InputError, match=why):
        read(form, text, **{"partition": "batch", **options})


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_that_is_given_twice_is_refused(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ingest", "slurm", "log", f"--{name}", "batch", f"--{name}", "gpu", "-o", "t.csv"]) == 2  # fmt: skip
    expected = f"'--{name}': given 2 times (batch, gpu); expected one"
    assert expected in " ".join(capsys.readouterr().err.split())
    assert getattr(IngestOptions(**{name: None}), name) is None  # type: ignore[arg-type]


# --- nodes of a partition, in lists of nodes as sinfo prints them ---------------------------------------------------

SINFO = "NODELIST PARTITION STATE\nn1 batch* idle\nn2 gpu idle\nn3 gpu,batch idle\nn4 gpu down\n"
OUTSIDE = [*ROWS, (5, "n4", 60, 600, "batch")]
ALONE = [(k, "n2", 20 * k, 20 * k + 10, "gpu") for k in range(150)]


@pytest.mark.parametrize(
    ("rows", "sinfo", "options", "nodes", "said"),
    [
        # A default partition has an asterisk.
        (ROWS, SINFO, {"partition": "BATCH"}, "n1 n3",
         "nodes of the list are of other partitions than 'BATCH': left out of the machine: 2, such as n2, n4"),
        (ROWS, SINFO, {"partition": "batch", "nodes": ["sinfo", "x1"]}, "n1 n3 x1",
         "nodes of the list state no partition, as others do: they count as nodes of 'batch': 1, such as x1"),
        (OUTSIDE, SINFO, {"partition": "batch"}, "n1 n3", "left out: 1 of 2 nodes with jobs"),
        (ROWS, SINFO.replace("batch", "cpu"), {"partition": "batch"}, "",
         "--partition: no node of the list is of 'batch'; they are of cpu, gpu"),
        (ALONE, "NODELIST PARTITION STATE\nn1 batch idle\nn2 gpu idle\n", {"allow_few": False}, "",
         "all 150 rows have the Partition 'gpu'"),
        (ALONE, "NODELIST PARTITION STATE\nn1 batch idle\nn2 gpu idle\n", {"allow_few": False, **GPU}, "n2", ""),
    ],
)  # fmt: skip
def test_the_machine_is_the_listed_nodes_of_the_partition(
    rows: list[Row], sinfo: str, options: dict[str, Any], nodes: str, said: str
) -> None:
    beside = {"files": {"sinfo": sinfo}, "nodes": ["sinfo"], **options}
    try:
        made = read("slurm", write("sacct", rows), **beside)
    except InputError as error:
        told, found = str(error), ()
    else:
        told, found = "\n".join(made.account.warnings()), made.trace.nodes
    assert (found, said in told) == (tuple(nodes.split()), True)
    # Nodes of other partitions are listed, and nothing says that they were down.
    assert ("not in the list" in told) == (rows is OUTSIDE)
