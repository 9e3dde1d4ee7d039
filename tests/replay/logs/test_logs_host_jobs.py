"""Host jobs, which `ingest` writes beside the trace: the same jobs in the words of each scheduler are the same."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from synthetic_logs_more import BEGIN_S, read_texts

from bft.replay.cli.main import run
from bft.replay.trace.host_jobs import NEVER, HostJobs
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import read_trace

T0 = 1_704_067_200  # 2024-01-01, UTC
# Seconds after T0: eligible, start, end, expected end; number of nodes, nodes. None: never, or not known.
Job = tuple[int | None, int | None, int | None, int | None, int, list[str]]
JOBS: list[Job] = [
    (0, 10, 700, 3610, 2, ["n1", "n2"]),
    (5, 700, 900, None, 1, ["n1"]),
    (20, None, 650, None, 3, []),
    (30, 700, None, 7900, 1, ["n2"]),
    (40, None, None, None, 2, []),
]
RAN = [job for job in JOBS if job[1] is not None]
HEAD = "JobID|NodeList|NNodes|Start|End|State|Eligible|Timelimit\n"
SACCT = f"""{HEAD}1|n[1-2]|2|2024-01-01T00:00:10|2024-01-01T00:11:40|COMPLETED|2024-01-01T00:00:00|01:00:00
2|n1|1|2024-01-01T00:11:40|2024-01-01T00:15:00|COMPLETED|2024-01-01T00:00:05|UNLIMITED
3|None assigned|3|Unknown|2024-01-01T00:10:50|CANCELLED by 7|2024-01-01T00:00:20|1-00:00:00
4|n2|1|2024-01-01T00:11:40|Unknown|RUNNING|2024-01-01T00:00:30|02:00:00
4.0|n2|1|2024-01-01T00:11:40|Unknown|RUNNING|2024-01-01T00:00:30|
5|None assigned|2|Unknown|Unknown|PENDING|2024-01-01T00:00:40|10:00
6|None assigned|2|Unknown|Unknown|PENDING|Unknown|10:00
"""
MINUTES = SACCT.replace("Timelimit", "TimelimitRaw").replace("01:00:00", "60").replace("02:00:00", "120")  # fmt: skip
# Exports that overlap: what waits in one runs in the next, and has ended in the third.
WAITS = (
    f"{HEAD}4|None assigned|1|Unknown|Unknown|PENDING|2024-01-01T00:00:30|02:00:00\n"
)
ENDED = HEAD + SACCT.splitlines()[4].replace("Unknown|RUNNING", "2024-01-01T01:00:00|COMPLETED")  # fmt: skip
LATER = [*JOBS[:3], (30, 700, 3600, 7900, 1, ["n2"]), JOBS[4]]
# A requeued job of whose first runs the ends are not stated.
AGAIN = f"{HEAD}1|n1|1|{T0 + 10}|Unknown|RUNNING|{T0 + 1}|\n"
AGAIN += f"1|n1|1|{T0 + 30}|{T0 + 50}|COMPLETED|{T0 + 1}|\n1|n1|1|{T0 + 20}|Unknown|RUNNING|{T0 + 1}|\n"
SWF = f"; UnixStartTime: {T0}\n; MaxNodes: 4\n; MaxProcs: 4\n1 0 10 690 2 -1 -1 2 3600 -1 1 1 1 1 1 1 -1 -1\n"
SWF += "2 5 695 200 1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n"


def at(second: int | None) -> int:
    return 0 if second is None else T0 + second


def state(job: Job) -> str:
    _, start, end, *_, nodes = job
    if start is end is None:
        return "PENDING"
    return "RUNNING" if end is None else "COMPLETED" if nodes else "CANCELLED"


def lines(form: str, jobs: list[Job] = JOBS) -> str:
    """Jobs as scontrol, sacct, squeue, PBS, Flux or Cobalt print them.

    What Slurm shows of jobs that run has their limit for an end, and what waits a guess for a start: neither is read.
    """
    found = []
    for number, job in enumerate(jobs, 1):
        known, start, end, expected, count, nodes = job
        limit = None if expected is None else expected - (start or 0)
        begun = (
            at(start) if start is not None else T0 + 9999 if end is None else at(end)
        )
        hosts, stamp = ",".join(nodes), "01/01/2024 00:{:02}:{:02};{};"
        pbs = f"{number}.s;etime={at(known)} exec_host={'+'.join(f'{n}/0*4' for n in nodes)} start={at(start)}"
        pbs += (
            "" if limit is None else f" Resource_List.walltime={limit // 3600:02}:00:00"
        )
        entry = {"job_id": number, "nodes": hosts or "None assigned"}
        minutes = {"set": True, "infinite": limit is None, "number": (limit or 0) // 60}
        found += {
            "scontrol": [f"JobId={number} JobName=x UserId=u(1) GroupId=g(1) JobState={state(job)} SubmitTime={T0 - 5} "
                         f"TimeLimit={'UNLIMITED' if limit is None else f'00:{limit // 60}:00'} "
                         f"EligibleTime={at(known)} StartTime={begun} EndTime={T0 + (9999 if end is None else end)} "
                         f"NodeList={hosts or '(null)'} NumNodes={count}{'' if nodes else f'-{count}'}"],
            "sacct": [json.dumps(entry | {
                "state": {"current": [state(job)]}, "tres": {"requested": [{"type": "node", "count": count}]},
                "time": {"eligible": at(known), "start": at(start), "end": at(end), "limit": minutes}})],
            "squeue": [json.dumps(entry | {
                "job_state": [state(job)], "time_limit": minutes, "node_count": count, "start_time": begun,
                "eligible_time": {"set": True, "infinite": False, "number": at(known)},
                "end_time": T0 + 9999 if end is None else at(end)})],
            "pbs": [stamp.format(*divmod(start or 0, 60), "S") + pbs, *(
                [] if end is None else [stamp.format(*divmod(end, 60), "E") + f"{pbs} end={at(end)}"])],
            "flux": [f"f{number}|{hosts}|{at(known)}.0|{at(start) or ''}|{at(end) or ''}|{limit or 0}.0"],
            "cobalt": [f'{number},{at(known)},{at(start)},{at(end) or ""},{limit or ""},{count},"{hosts}"'],
        }[form]  # fmt: skip
    if form in ("sacct", "squeue"):
        return '{"jobs": [' + ",\n".join(found) + "]}"
    heads = {
        "flux": "JOBID|NODELIST|T_SUBMIT|T_RUN|T_INACTIVE|DURATION\n",
        "cobalt": "COBALT_JOBID,QUEUED_TIMESTAMP,START_TIMESTAMP,END_TIMESTAMP,WALLTIME_SECONDS,NODES_USED,"
        "LOCATION\n",
    }
    return (
        heads.get(form, "")
        + "\n".join(sorted(found) if form == "pbs" else found)
        + "\n"
    )


def rows(jobs: HostJobs | None) -> list[Job]:
    """As JOBS has them."""
    assert jobs is not None
    columns = (jobs.known, jobs.start, jobs.end, jobs.expected_end)
    times = [
        [None if ns == NEVER else ns // SECOND_NS - T0 for ns in column.tolist()]
        for column in columns
    ]
    names = [jobs.names[node] for node in jobs.nodes.tolist()]
    lists = [names[low:high] for low, high in pairwise(jobs.offsets.tolist())]
    return list(zip(*times, jobs.count.tolist(), lists, strict=True))  # fmt: skip


@pytest.mark.parametrize(
    ("form", "texts", "expected"),
    [
        ("slurm", [SACCT], JOBS),
        ("slurm", [MINUTES], JOBS),
        ("slurm", [WAITS, SACCT, WAITS, SACCT, ENDED], LATER),
        ("slurm", [AGAIN], [(1, 10, 20, None, 1, ["n1"]), (1, 20, 30, None, 1, ["n1"]), (1, 30, 50, None, 1, ["n1"])]),
        ("slurm-json", [lines("sacct")], JOBS),
        ("slurm-json", [lines("squeue")], JOBS),
        ("slurm", [lines("scontrol")], JOBS),
        # Of jobs that never began no record of PBS states how many nodes they wanted.
        ("pbs", [lines("pbs", RAN)], RAN),
        ("flux", [lines("flux", RAN)], RAN),
        ("cobalt", [lines("cobalt", RAN)], RAN),
        # Of jobs that count their nodes nobody knows which they had.
        ("swf", [SWF], [(*job[:5], []) for job in JOBS[:2]]),
        # Every form of a limit that Slurm prints.
        *(("slurm", [f"{HEAD}1|n1|1|{T0}|{T0 + 9}|COMPLETED|{T0}|{limit}\n"], [(0, 0, 9, expected, 1, ["n1"])])
          for limit, expected in (("1-02:03:04", 93_784), ("10:00", 600), ("30", 30), ("00:01:30.5", 90), ("", None),
                                  ("Partition_Limit", None), ("-1", None), ("1-2", None), ("x:1", None))),
    ],
)  # fmt: skip
def test_the_same_jobs_in_the_words_of_each_scheduler(
    form: str, texts: list[str], expected: list[Job]
) -> None:
    made = read_texts(form, *texts, window=(T0 - BEGIN_S, T0 - BEGIN_S + 3600))
    assert rows(made.trace.host_jobs) == expected


def test_reservations_count_as_announced_a_day_before() -> None:
    begin = 2 * 86_400
    reserved = (
        "NodeNames|TimeStart|TimeEnd\nn[1-2]|2024-01-03T00:00:00|2024-01-03T06:00:00\n"
    )
    beside: dict[str, Any] = {"files": {"res": reserved}, "reservations": ["res"]}
    window = (T0 - BEGIN_S, T0 - BEGIN_S + 3 * 86_400)
    jobs = read_texts("slurm", SACCT, window=window, **beside).trace.host_jobs
    over = begin + 6 * 3600
    assert rows(jobs)[-1] == (begin - 86_400, begin, over, over, 2, ["n1", "n2"])
    assert jobs is not None
    assert jobs.reserved.tolist() == [False] * 5 + [True]


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_from_a_log_to_a_trace_with_its_host_jobs(
    scheduler: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--nodes", "8", "--days", "1", "-o", "log"]
    assert run(["generate", "log", scheduler, *size]) == 0
    assert run(["ingest", scheduler, "log", "--tz", "UTC", "-o", "trace.parquet"]) == 0
    trace = read_trace("trace.parquet")
    assert (here / "trace.jobs.parquet").exists()
    assert trace.host_jobs is not None
    jobs = trace.host_jobs.counts()
    assert jobs["jobs"] == jobs["begun"] == jobs["with_limit"] > 20
    assert f"{jobs['jobs']} jobs" in capsys.readouterr().out
    assert run(["trace", "info", "trace.parquet", "--expected", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["expected"]
    # Jobs end before their limits: nodes leave no later than expected, but where later jobs go first.
    assert found["ratio"]["p90"] <= 1
