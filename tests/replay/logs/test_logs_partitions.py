"""Whose rows count: `--partition` and `--cluster` give the trace of a log without the other jobs, in every format.

Rows that are odd and what is refused are cases: tests/data/logs/partitions.toml.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from string import Template
from typing import Any

import pytest
from refusals import refused
from synthetic_logs import BEGIN_S, read_texts, taken

from bft.replay.logs import Ingested, format_names, log_format

# Id, host, seconds after the beginning, and partition.
Row = tuple[int, str, int, int, str]
ROWS: list[Row] = [
    (1, "n1", 60, 600, "batch"),
    (2, "n2", 120, 900, "gpu"),
    (3, "n1", 900, 2500, "batch"),
    (4, "n3", 300, 2400, "gpu"),
]
BATCH = [row for row in ROWS if row[4] == "batch"]
HOUR = 3600
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


def read(form: str, text: str, hours: int = 1, **options: Any) -> Ingested:
    """Read a text; doubtful time counts as unavailable."""
    asked = {"window": (0, hours * HOUR), "uncertain": "unavailable", **options}
    return read_texts(form, text, **asked)


def percent(made: Ingested) -> tuple[float, ...]:
    """What part of the node-time was busy, unavailable and idle."""
    shares = (made.coverage.busy, made.coverage.unavailable, made.coverage.idle)
    return tuple(round(100 * share, 1) for share in shares)


def test_each_format_that_states_partitions_is_tested_here() -> None:
    forms = {form for form in format_names() if "partition" in log_format(form).states}
    assert {form for form, *_ in WRITERS.values()} == forms


@pytest.mark.parametrize("name", WRITERS)
def test_the_trace_is_that_of_a_log_without_the_other_jobs(name: str) -> None:
    form = WRITERS[name][0]
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
    form, *_ = WRITERS[name]
    hours = [(1, "n1", 0, 1, "gpu"), (2, "n1", 2, 3, "cpu"), (3, "n1", 8, 10, "gpu")]
    jobs = [(job, node, begin * HOUR, end * HOUR, of) for job, node, begin, end, of in hours]  # fmt: skip
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


@pytest.mark.parametrize("name", ["cluster", "partition"])
def test_a_filter_that_is_given_twice_is_refused(
    name: str, told: Callable[..., str]
) -> None:
    line = f"ingest slurm log --{name} batch --{name} gpu -o t.csv"
    assert f"--{name} is given twice" in " ".join(told(line, code=2).split())
