"""The formats of schedulers' logs: each case is a text, when it says nodes were taken, and what is said of its rows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs import interval_table
from synthetic_logs_more import (
    BEGIN_S,
    HOSTS,
    LENGTH_S,
    Spans,
    SyntheticJob,
    cobalt,
    damages,
    idle_seconds,
    idle_seconds_of,
    ingest,
    job_lists,
    lsb_acct,
    lsb_events,
    pbs,
    read_texts,
    sge,
    survives,
    swf,
    taken,
)
from synthetic_logs_sources import zulu

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import detect
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import fragments

# Texts of files, when nodes were taken, what is said of rows, and options.
Case = tuple[tuple[str, ...], str, list[str], dict[str, Any]]


def case(
    text: str | list[str] | tuple[str, ...], expected: str, *says: str, **options: Any
) -> Case:
    """A case; a list of lines is one file, a tuple of texts several.

    `expected` says when nodes were taken, as `a 0-9 20-, b 3-9`. `says` are parts of reasons after the kind, which is
    left out, skipped, noted or warned; nothing else is left out or skipped.
    """
    texts = (
        ("\n".join(text),)
        if isinstance(text, list)
        else (text,)
        if isinstance(text, str)
        else text
    )
    return texts, expected, [*says], options


def spans(text: str) -> Spans:
    """What a case expects as `taken` has it."""
    found = set()
    for part in filter(None, text.split(", ")):
        host, *each = part.split()
        edges = [re.fullmatch(r"(-?[\d.]+)-(-?[\d.]*)", one) for one in each]
        found |= {
            (host, float(one[1]), float(one[2] or math.inf)) for one in edges if one
        }
    return found


def check(
    form: str, texts: tuple[str, ...], expected: str, says: list[str], **options: Any
) -> None:
    """Hold what is read against what is expected. What is skipped is refused by --strict, with its file and line."""
    made = read_texts(form, *texts, **options)
    account = made.account
    assert taken(made.trace) == spans(expected)
    unused = {"left out": account.left_out, "skipped": account.skipped}
    assert sum(map(len, unused.values())) == sum(
        each.startswith((*unused,)) for each in says
    ), unused
    told = {
        kind: [f"{why}: {found}" for why, found in tallies.items()]
        for kind, tallies in {**unused, "noted": account.notes}.items()
    }
    told["warned"] = account.warnings()
    for kind, _, why in (each.partition(": ") for each in says):
        assert any(why in each for each in told[kind]), (kind, why, told)
    for reason, found in account.skipped.items():
        with pytest.raises(
            InputError, match=rf"{found.file}: line {found.line}: {re.escape(reason)}"
        ):
            read_texts(form, *texts, **options, strict=True)


# --- PBS ------------------------------------------------------------------------------------------------------------


def pbs_record(second: int, kind: str, message: str, job: str = "1") -> str:
    return f"{datetime.fromtimestamp(BEGIN_S + second, UTC):%m/%d/%Y %H:%M:%S};{kind};{job};{message}"


def ran(
    hosts: str,
    start: int = 0,
    end: int | None = 9,
    kind: str = "E",
    job: str = "1",
    more: str = "",
) -> str:
    """A record of a run by exec_host, or by what else names hosts."""
    hosts = hosts if "=" in hosts else f"exec_host={hosts}"
    stop = "" if end is None else f" end={BEGIN_S + end}"
    at = start if end is None else end
    return pbs_record(
        at, kind, f"user=u {hosts} start={BEGIN_S + start}{stop}{more}", job
    )


OK = {"pbs": ran("ok1/0", job="ok")}
NAMES = (
    '"two words"',
    '"a;b;c start=5 end=6"',
    "'x exec_host=z/0'",
    "it's",
    '5"',
    "a=b=c",
    "x;E;9;y",
    '"',
    "''",
    'a"b',
)
PBS = {
    "slots": case(ran("a/7+a/6+b/1+b/0"), "a 0-9, b 0-9"),
    "slots, times": case(ran("a/0*13+b/0*13"), "a 0-9, b 0-9"),
    "slots, ranges": case(ran("a/0-3+b/0-7,9"), "a 0-9, b 0-9"),
    "port": case(ran("a.x.org:15002/0*8"), "a.x.org:15002 0-9"),
    "no slot": case(ran("a"), "a 0-9"),
    "quoted host": case(ran('"a/0"'), "a 0-9"),
    "vnodes": case(
        ran("exec_vnode=(a[0]:ncpus=4+a[1]:ncpus=4)+(b:ncpus=8:mem=1gb)"),
        "a 0-9, b 0-9",
    ),
    **{
        f"jobname={name}": case(ran(f"jobname={name} exec_host=a/0"), "a 0-9")
        for name in NAMES
    },
    **{
        f"in {q}": case(ran("a/0", more=f" argument_list={q}x end=5 y{q}"), "a 0-9")
        for q in "\"'"
    },
    "requeued": case(
        [
            ran("a/0", 0, None, "S"),
            ran("a/0", 0, 10, "R"),
            ran("b/0", 20, None, "S"),
            ran("b/0", 20, 30),
        ],
        "a 0-10, b 20-30",
    ),
    "requeued without times": case(
        [ran("a/0", 0, None, "S"), pbs_record(10, "R", "")], "a 0-10"
    ),
    "aborted": case(
        [
            ran("a/0", 0, None, "S"),
            pbs_record(7, "A", "Job aborted by PBS Server"),
            pbs_record(8, "A", "", "2"),
        ],
        "a 0-7",
        "left out: record type A: aborted before it started",
    ),
    "starts again": case(
        [
            ran("a/0", 0, None, "S"),
            ran("b/0", 20, None, "S"),
            ran("c/0", 0, 30, job="2"),
        ],
        "a 0-20, b 20-30, c 0-30",
        "noted: starts again",
    ),
    "never ends": case(
        (ran("a/0", 3, None, "S"), ran("z/0", 30, 40, job="9")),
        "a 3-40, z 30-40",
        "noted: jobs had not ended at the end of the logs",
    ),
    "ends in the next file": case(
        (
            f"{ran('a/0', 3, None, 'S')}\n{pbs_record(5, 'Q', 'queue=q', '2')}",
            f"{ran('a/0', 3, 20)}\n{ran('b/0', 80, 90, job='2')}",
        ),
        "a 3-20, b 80-90",
        "left out: record type Q: says nothing",
    ),
    "from before the log": case(ran("a/0", -9000, 5), "a -9000-5"),
    "released nodes": case(
        [
            ran("a/0+b/0+c/0", 0, None, "S"),
            ran("a/0", 0, 10, "c").replace(f" end={BEGIN_S + 10}", ""),
            ran("a/0+b/0+c/0", 0, 30),
        ],
        "a 0-30, b 0-10, c 0-10",
    ),
    "reserved": case(
        [
            pbs_record(
                10,
                "B",
                f'start={BEGIN_S + 10} end={BEGIN_S + 90} nodes="(a:ncpus=2)+(b:ncpus=2)"',
                "R1",
            ),
            pbs_record(60, "F", "owner=o", "R1"),
            ran("c/0", 0, 99),
        ],
        "a 10-60, b 10-60, c 0-99",
    ),
    "local stamps": case(
        pbs_record(-21600 + 60, "E", f"exec_host=a/0 start={BEGIN_S}"),
        "a 0-60",
        tz="America/Chicago",
    ),
    "array parent": case(
        [ran("array_indices=1-3", -BEGIN_S, 9, job="7[].s"), ran("a/0", job="7[1].s")],
        "a 0-9",
        "left out: an array parent, whose jobs have records of their own",
    ),
    "array parent without a time": case(
        [
            pbs_record(9, "E", "user=u run_count=0 Exit_status=0", "7[].s"),
            ran("a/0", job="7[1].s"),
        ],
        "a 0-9",
        "left out: ",
    ),
    "no hosts": case(ran("queue=q"), "", "skipped: names no nodes"),
    "no start": case(
        pbs_record(1, "E", f"exec_host=a/0 end={BEGIN_S + 1}"),
        "",
        "skipped: states no start",
    ),
    "no number": case(
        pbs_record(1, "E", f"exec_host=a/0 start=soon end={BEGIN_S}"),
        "",
        "skipped: start= is no time",
    ),
    "ends first": case(ran("a/0", 5, 0), "", "skipped: ends before it starts"),
    "no name": case(ran("a\x07/0"), "", "skipped: holds no host list"),
    "no date": case(
        pbs_record(1, "S", "exec_host=a/0").replace("02/09", "02/31"),
        "",
        "skipped: does not exist",
    ),
    "foreign line": case("hello", "", "skipped: is no record of PBS"),
    "released, alone": case(
        [
            pbs_record(1, "c", "exec_host=a/0", "2"),
            ran("a/0", 0, None, "S"),
            ran("a/0"),
        ],
        "a 0-9",
        "left out: record type c: nodes",
    ),
}

# --- LSF ------------------------------------------------------------------------------------------------------------


def finish(
    hosts: str = '1 "a"',
    start: int = 0,
    end: int = 9,
    asked: str = "0",
    tail: str = "",
    job: int = 7,
) -> str:
    """A record of lsb.acct."""
    began = 0 if start < 0 else BEGIN_S + start
    return (
        f'"JOB_FINISH" "10.1" {BEGIN_S + end} {job} 1 33 1 {BEGIN_S} 0 0 {began} "u" "q" "" "" "" "h" "/" "" "" "" "f" '
        f'{asked} {hosts} 64 1.0 "" "cmd"{tail}'
    )


def event(second: int, kind: str, rest: str) -> str:
    return f'"{kind}" "10.1" {BEGIN_S + second} {rest}'


def began(second: int, hosts: str, job: int = 1, index: int = 0) -> str:
    return event(second, "JOB_START", f'{job} 4 0 0 1.0 {hosts} "" "" 0 "" {index} ""')


def ended(second: int, status: int = 64, rest: str = "0 0 0 0 0", job: int = 1) -> str:
    return event(second, "JOB_STATUS", f"{job} {status} 0 0 0.1 {rest}")


OK["lsf"] = finish('1 "ok1"', job=8)
LSF = {
    "a host for each slot": case(finish('3 "a" "a" "b"'), "a 0-9, b 0-9"),
    "slots of hosts": case(finish('2 "16*a" "b"'), "a 0-9, b 0-9"),
    "host of another cluster": case(
        finish('1 "a@far"'), "a@far 0-9", "noted: hosts of another cluster"
    ),
    "quotes in quotes": case(finish().replace('"f"', '"say ""a b"" 1 ;"'), "a 0-9"),
    "asked hosts": case(finish(asked='2 "x" "all"'), "a 0-9"),
    "asked hosts alone": case(
        finish('0.5 "x"', asked='1 "a"').replace('0.5 "x" 64', "64"),
        "a 0-9",
        "noted: numExHosts is missing",
    ),
    "two records": case([finish(), finish(job=9)], "a 0-9"),
    "never started": case(finish("0", -1), "", "left out: job that never started"),
    "cut": case(finish()[:40], "", "skipped: ends before numAskedHosts"),
    "too few hosts": case(finish('3 "a"'), "", "skipped: not as many hosts"),
    "no hosts": case(finish("1 5"), "", "skipped: not as many hosts"),
    "fewer than none": case(finish("-1"), "", "skipped: not as many hosts"),
    "no number": case(
        finish(asked='"x"'), "", "skipped: numAskedHosts is no whole number"
    ),
    "too few asked": case(finish(asked='9 "x"'), "", "skipped: askedHosts are not"),
    "ends first": case(finish(start=10), "", "skipped: ends before it starts"),
    "no start": case(finish(start=-1), "", "skipped: ends before"),
    "no name": case(finish('1 "a\x01"'), "", "skipped: holds no host list"),
    "open quote": case(finish(tail=' "open'), "", "skipped: quote is not closed"),
    "foreign line": case("hello", "", "skipped: is no record of lsb.acct"),
    "other record": case(event(1, "JOB_RESIZE", "1"), "", "left out: resized jobs"),
}
OK["lsf-events"] = "\n".join([began(0, '1 "ok1"', 8), ended(9, job=8)])
LSF_EVENTS = {
    "requeued, and an array": case(
        [
            began(0, '1 "a"'),
            began(0, '1 "b"', index=2),
            ended(10, 1),
            began(20, '1 "c"'),
            ended(30, rest=f"{BEGIN_S + 29} 0 0 0 0"),
            ended(40, 32, f"{BEGIN_S + 39} 1{' 0' * 19} 9 2 0"),
        ],
        "a 0-10, b 0-39, c 20-29",
    ),
    "JOB_REQUEUE": case([began(0, '1 "a"'), event(10, "JOB_REQUEUE", "1 0")], "a 0-10"),
    "suspended": case(
        [
            began(0, '1 "a"'),
            *(ended(5, status) for status in (8, 16, 4, 65536)),
            ended(50),
        ],
        "a 0-50",
        "left out: neither takes nodes nor gives them back",
    ),
    "closed hosts": case(
        [
            event(10, "HOST_CTRL", '2 "a" 1 "root" "disk"'),
            event(20, "HOST_CTRL", '2 "a" 1 "root" "again"'),
            event(30, "HOST_CTRL", '1 "a" 1 "root" ""'),
            event(40, "HOST_CTRL", '4 "b" 1 "root" ""'),
            event(50, "HOST_CTRL", '1 "c" 1 "root" ""'),
            event(LENGTH_S, "MBD_DIE", '"m" 0 0'),
        ],
        "a 10-30, b 40-120",
        "left out: closed already",
        "left out: not closed in these logs",
        "left out: records of other types",
        nodes=["a,b,c"],
    ),
    "nothing": case('"JOB_NEW"', "", "skipped: ends before event time"),
    "too few hosts": case(
        event(0, "JOB_START", '1 4 0 0 1.0 2 "a"'), "", "skipped: not as many hosts"
    ),
    "no host": case(event(0, "JOB_START", "1 4 0 0 1.0 0"), "", "skipped: on no host"),
    "control": case(event(0, "HOST_CTRL", '7 "a"'), "", "skipped: opCode"),
    "no host controlled": case(
        event(0, "HOST_CTRL", "2"), "", "skipped: names no host"
    ),
    "cut": case(event(0, "JOB_STATUS", "1 64"), "", "skipped: ends before ru"),
    "ended alone": case(ended(5, job=5), "", "left out: had not started in these logs"),
}

# --- Grid Engine ----------------------------------------------------------------------------------------------------


def sge_record(
    host: str = "a",
    start: object = BEGIN_S,
    end: object = BEGIN_S + 9,
    job: object = 7,
    pe: str = "NONE:1:0",
    account: str = "sge",
    lasted: object = 0,
) -> str:
    head = f"q:{host}:g:u:name:{job}:{account}:0:{BEGIN_S}:{start}:{end}:0:0:{lasted}"
    return f"{head}{':0' * 19}:{pe}:0:0:0:-l h_rt=1:0:NONE:0:0:0"


OK["sge"] = sge_record("ok1", job=8)
NEVER = "left out: a job that never ran: no start, no end or no host"
SMP, WIDE = (
    sge_record("b", job=100, pe="smp:32:0"),
    [sge_record(job=number, pe="mpi:64:0") for number in range(10)],
)
COLONS = sge_record(lasted=9)
SGE = {
    "milliseconds": case(
        sge_record(start=f"{BEGIN_S}250", end=f"{BEGIN_S + 9}750"), "a 0.25-9.75"
    ),
    "never, 0": case(sge_record(start=0, end=0), "", NEVER),
    "no end": case(sge_record(end=0), "", NEVER),
    "never, -/-": case(sge_record(start="-/-", end="-/-"), "", NEVER),
    "never, no host": case(sge_record("UNKNOWN"), "", NEVER),
    "rescheduled": case(
        [sge_record(), sge_record("b", BEGIN_S + 20, BEGIN_S + 30)], "a 0-9, b 20-30"
    ),
    "parallel": case(
        [
            sge_record(pe="mpi:64:0"),
            sge_record(pe="mpi:64:1"),
            sge_record("b", pe="mpi:64:1"),
            sge_record(pe="smp:1:0", job=8),
        ],
        "a 0-9, b 0-9",
        "noted: names one host only",
    ),
    "a summary": case(
        [SMP, *WIDE], "a 0-9, b 0-9", "warned: their other hosts look idle"
    ),
    "start": case(
        sge_record(start="x"), "", "skipped: start_time, field 10, is no time"
    ),
    "end": case(
        sge_record(end="1612900000123456"),
        "",
        "skipped: end_time, field 11, is no time",
    ),
    "ends first": case(
        sge_record(end=BEGIN_S - 1), "", "skipped: ends before it starts"
    ),
    "job": case(sge_record(job="x"), "", "skipped: job_number"),
    "name": case(sge_record("a b"), "", "skipped: holds no host list"),
    "no name": case(sge_record(""), "", "skipped: names no nodes"),
    "few fields": case(
        "a:b:c", "", "skipped: is no record of Grid Engine, with at least 13 fields"
    ),
    "letter": case("d", "", "left out: a line of one character"),
    "colon in the account": case(
        [COLONS, sge_record("b", account="a:b", lasted=9)], "a 0-9, b 0-9"
    ),
    "colon in the name": case(
        [COLONS, sge_record("b", lasted=9).replace(":name:", ":n:7:ame:")],
        "a 0-9, b 0-9",
    ),
    "colons in both": case(
        [
            COLONS,
            sge_record("b", account="a:1:2", lasted=9).replace(":name:", ":na:me:"),
        ],
        "a 0-9, b 0-9",
    ),
    "unclear colons": case(
        [COLONS, sge_record("b", account="a:b", lasted=500_000)],
        "a 0-9",
        "skipped: has another number of fields",
    ),
    "durations": case(
        [sge_record(job=n, lasted=500_000) for n in range(12)],
        "a 0-9",
        "warned: ru_wallclock, field 14, is another time",
    ),
}

# --- SWF ------------------------------------------------------------------------------------------------------------


def swf_line(
    submit: object = 0,
    wait: object = 5,
    run: object = 10,
    procs: object = 4,
    asked: object = 4,
    status: int = 1,
    beyond: str = "",
) -> str:
    return f"1 {submit} {wait} {run} {procs} -1 -1 {asked} 9 -1 {status} 1 1 -1 -1 1 -1 -1 {beyond}".rstrip()


UNIX = f"; UnixStartTime: {BEGIN_S}"
EIGHT = f"{UNIX}\n; MaxNodes: 8\n; MaxProcs: 8"


def counted(count: int, span: str) -> str:
    """What so many nodes of a workload are expected to do."""
    return ", ".join(f"n{node:05} {span}" for node in range(count))


FOUR = counted(4, "5-15")
SWF = {
    "relative times": case(
        [EIGHT, swf_line(7.5, 5, "10.25")], counted(4, "12.5-22.75")
    ),
    "epochs": case([EIGHT, swf_line(BEGIN_S)], FOUR),
    "processors asked for": case(
        [EIGHT, swf_line(procs=-1, asked=6)], counted(6, "5-15")
    ),
    "nodes of two": case(
        [f"{UNIX}\n; MaxNodes: 120\n; MaxProcs: 240", swf_line()], counted(2, "5-15")
    ),
    "nodes of three": case(
        [f"{UNIX}\n; MaxProcs: 241", swf_line()],
        counted(2, "5-15"),
        processors_per_node=3,
    ),
    "a note behind": case(
        [f"{UNIX}\n; MaxNodes: 60 (of 64)\n; MaxProcs: 240", swf_line()],
        counted(1, "5-15"),
    ),
    "no numbers": case(
        [f"{UNIX}\n; MaxNodes: many", swf_line()],
        FOUR,
        "noted: each processor is taken for a node",
    ),
    "processors alone": case(
        [f"{UNIX}\n; MaxProcs: 240", swf_line()], FOUR, "noted: --processors-per-node"
    ),
    "no header": case(
        swf_line(BEGIN_S),
        FOUR,
        "noted: each processor is taken",
        "noted: neither log nor --machine-nodes",
    ),
    "cancelled": case(
        [
            EIGHT,
            swf_line(run=-1, status=5),
            swf_line(wait=-1, status=5),
            swf_line(status=5),
        ],
        FOUR,
        "left out: job that never started",
        "left out: a cancelled job (status 5) without",
    ),
    "parts": case(
        [EIGHT, swf_line(), *(swf_line(run=30, status=part) for part in (2, 3, 4))],
        FOUR,
        "left out: a part of a job",
    ),
    "short line": case(
        [EIGHT, swf_line(), "1 2 3"], FOUR, "skipped: has not 18 fields"
    ),
    "run": case(
        [EIGHT, swf_line(), swf_line(run=-1)],
        FOUR,
        "skipped: run time, field 4, is not known",
    ),
    "wait": case(
        [EIGHT, swf_line(), swf_line(wait=-1)],
        FOUR,
        "skipped: wait time, field 3, is not known",
    ),
    "submit": case(
        [EIGHT, swf_line(), swf_line("x")], FOUR, "skipped: field 2 is no number"
    ),
    "nan": case(
        [EIGHT, swf_line(), swf_line(run="nan")], FOUR, "skipped: field 4 is no number"
    ),
    "negative": case(
        [EIGHT, swf_line(), swf_line(run=-3)], FOUR, "skipped: a time is negative"
    ),
    "late": case(
        [EIGHT, swf_line(), swf_line(run="1e17")],
        FOUR,
        "skipped: later than the year 2262",
    ),
    "no processors": case(
        [EIGHT, swf_line(), swf_line(procs=-1, asked=-1)],
        FOUR,
        "skipped: how many processors",
    ),
    "many processors": case(
        [EIGHT, swf_line(), swf_line(procs=1e18)], FOUR, "skipped: how many processors"
    ),
    **{
        f"nodes {beyond}": case(
            [EIGHT, swf_line(run=-1, status=5), swf_line(beyond=beyond)],
            expected,
            "noted: field 19 lists nodes",
            "left out: never started",
        )
        for beyond, expected in {
            "n[1-3]": "n1 5-15, n2 5-15, n3 5-15",
            "n1,n3": "n1 5-15, n3 5-15",
            "n1+n2+n2": "n1 5-15, n2 5-15",
            "n1/0*2+n2/0-1": "n1 5-15, n2 5-15",
            "n1;n2 extra": "n1 5-15, n2 5-15",
        }.items()
    },
    "nodes of some": case(
        [EIGHT, swf_line(beyond="n[1-4]"), swf_line(beyond="-1"), swf_line()],
        "n1 5-15, n2 5-15, n3 5-15, n4 5-15",
        "skipped: field 19 lists no nodes, as it does",
    ),
    **{
        f"no nodes {beyond}": case(
            [EIGHT, swf_line(beyond=beyond)], FOUR, "noted: fields beyond the 18"
        )
        for beyond in (
            "-1",
            "7",
            "0,1,2,3",
            "linux:gpu",
            "cpu,gpu",
            "n[1-5]",
            "0.25 3",
            "n[1-",
        )
    },
}

# --- Cobalt ---------------------------------------------------------------------------------------------------------


def at(second: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return f"{datetime.fromtimestamp(BEGIN_S + second, UTC):{form}}"


def cobalt_row(
    location: str, start: str = at(0), end: str = at(9), nodes: object = 1
) -> str:
    return f'"{start}","{end}",{nodes},"{location}"'


HEADER = "START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION"
STATUS = "START_TIMESTAMP,END_TIMESTAMP,IS_ALL_MACHINE_DOWN"
OK["cobalt"] = cobalt_row("ok1")
CUT = {
    "x3005c0s19b0n0,x3005c0s1": "x3005c0s19b0n0 0-9",
    "x3005c0s19b0n0,x": "x3005c0s19b0n0 0-9",
    "x3005c0s19b0n0,": "x3005c0s19b0n0 0-9",
    "x3005c0s19b0n0,x3005c0s7b1n0": "x3005c0s19b0n0 0-9, x3005c0s7b1n0 0-9",
    "0-1,128-1": "nid00000 0-9, nid00001 0-9",
    "0-1,12": "nid00000 0-9, nid00001 0-9",
}
COBALT = {
    "hosts": case(
        [HEADER, cobalt_row("x3005c0s7b0n0,x3005c0s7b1n0", nodes=2)],
        "x3005c0s7b0n0 0-9, x3005c0s7b1n0 0-9",
    ),
    "numbers": case(
        [HEADER, cobalt_row("0-1,7", nodes="3.0")],
        "nid00000 0-9, nid00001 0-9, nid00007 0-9",
    ),
    "blanks": case(
        [HEADER, cobalt_row("cc001, cc002,cc001", nodes=2)], "cc001 0-9, cc002 0-9"
    ),
    **{
        f"cut off, {text}": case(
            [HEADER, cobalt_row(text, nodes=900)], nodes, "noted: cut off"
        )
        for text, nodes in CUT.items()
    },
    "local times": case(
        [HEADER, cobalt_row("x1", "2021-02-09 13:46:40.0", "2021-02-09T19:46:45Z")],
        "x1 0-5",
        tz="America/Chicago",
    ),
    "older names, other machines": case(
        [
            "USED_NODES,MACHINE_PARTITION,MACHINE_NAME,END_TIMESTAMP,START_TIMESTAMP",
            f'"1.0000",x1,theta,{at(9)},{at(0)}',
            f'"1.0000",x2,cooley,{at(9)},{at(0)}',
        ],
        "x1 0-9",
        "left out: job of another cluster",
        cluster="Theta",
    ),
    "counts": case(
        ["START_TIMESTAMP,END_TIMESTAMP,NODES_USED", f"{at(0)},{at(9)},2.0"],
        counted(2, "0-9"),
    ),
    "no end, no start": case(
        [
            HEADER,
            cobalt_row("x1", end=""),
            cobalt_row("x2", start="", end=""),
            cobalt_row("x3"),
        ],
        "x1 0-, x3 0-9",
        "left out: job that never started",
    ),
    "the header again": case(
        [HEADER, cobalt_row("x1"), HEADER, cobalt_row("x2")], "x1 0-9, x2 0-9"
    ),
    "outages": case(
        (
            "\n".join(
                [
                    HEADER,
                    cobalt_row("a1", at(0), at(10)),
                    cobalt_row("b1", at(100), at(119)),
                ]
            ),
            f"{STATUS}\n{at(10)},{at(30)},1\n{at(80)},,1\n{at(30)},{at(100)},0\n",
        ),
        "a1 0-30 80-100, b1 10-30 80-119",
        "noted: an outage has no end",
        "left out: ",
    ),
    "fields": case([HEADER, "a,b"], "", "skipped: fields"),
    "start": case(
        [HEADER, cobalt_row("x1", start="soon")],
        "",
        "skipped: START_TIMESTAMP holds no time",
    ),
    "end": case(
        [HEADER, cobalt_row("x1", end="later")],
        "",
        "skipped: END_TIMESTAMP holds no time",
    ),
    "ends first": case(
        [HEADER, cobalt_row("x1", end=at(-9))], "", "skipped: ends before it starts"
    ),
    "nodes": case(
        [HEADER, cobalt_row("x1", nodes="many")], "", "skipped: NODES_USED is no number"
    ),
    "fewer than none": case(
        [HEADER, cobalt_row("x1", nodes=-1)], "", "skipped: NODES_USED is no number"
    ),
    "partition": case(
        [HEADER, cobalt_row("MIR-R00-M0-512")],
        "",
        "skipped: neither a list of hosts nor",
    ),
    "Blue Gene": case(
        [HEADER, cobalt_row("MIR-00C00-33F71-1-1024")],
        "",
        "skipped: neither a list of hosts nor",
    ),
    "no place": case([HEADER, cobalt_row("")], "", "skipped: names no nodes"),
    "too long": case([HEADER, cobalt_row("x" * 300_000)], "", "skipped: "),
    "backwards": case([HEADER, cobalt_row("9-3")], "", "skipped: "),
    "quote": case([HEADER, cobalt_row('x1"')], "", "skipped: fields"),
}

# --- Flux, HTCondor, OAR, Kubernetes --------------------------------------------------------------------------------


def objects(*entries: object) -> str:
    """Objects, one a line."""
    return "\n".join(map(json.dumps, entries))


def flux(name: str, second: float) -> dict[str, object]:
    return {"timestamp": BEGIN_S + second, "name": name}


R = {"version": 1, "execution": {"nodelist": ["n[1-2]"], "starttime": 0.0}}
LOST = [flux("submit", 0), flux("alloc", 0)]
FLUX = {
    "events": case(
        objects(*LOST, R, flux("submit", 0), flux("alloc", 2), flux("free", 9), R),
        "n1 0-, n2 0-",
        "left out: event that says nothing",
    ),
    "no R": case(
        objects(*LOST, *LOST, flux("free", 9), R),
        "n1 0-9, n2 0-9",
        "warned: its R does not follow its events",
        "left out: event",
    ),
    "neither": case(
        objects(*LOST, {"a": 1}, flux("free", 9), R),
        "n1 0-9, n2 0-9",
        "skipped: is neither an event nor an R",
        "left out: event",
    ),
    "no JSON": case(
        f"{objects(*LOST)}\n{{\n{objects(flux('free', 9), R)}",
        "n1 0-9, n2 0-9",
        "skipped: is not JSON",
        "left out: event",
    ),
    "table": case(
        [
            "JOBID|NODELIST|T_RUN|T_INACTIVE|DURATION",
            f"f1|n1|{BEGIN_S}.25|{BEGIN_S + 9}.5|0.0",
            "f2||||60.0",
            f"f3|n2|{BEGIN_S + 5}.0|0.0|60",
        ],
        "n1 0.25-9.5, n2 5-",
        "left out: job that never started",
    ),
}


def ad(**more: object) -> str:
    entry = {
        "ClusterId": 1,
        "ProcId": 0,
        "JobStatus": 4,
        "JobUniverse": 5,
        "NumJobStarts": 1,
        "NumShadowStarts": 1,
        "JobCurrentStartDate": BEGIN_S,
        "CompletionDate": BEGIN_S + 9,
        "LastRemoteHost": "slot1@a",
    }
    ok = {**entry, "ClusterId": 2, "LastRemoteHost": "ok1"}
    return json.dumps(
        [{name: value for name, value in {**entry, **more}.items() if value != ""}, ok]
    )


def condor(expected: str, *says: str, **more: object) -> Case:
    return case(ad(**more), f"{expected}, ok1 0-9".removeprefix(", "), *says)


HTCONDOR = {
    "completed": condor("a 0-9"),
    "hosts": condor("a 0-9, b 0-9", AllRemoteHosts="slot1@a,slot2_1@a,slot1@b"),
    "running": condor("a 0-", JobStatus=2, CompletionDate=0),
    "removed": condor(
        "a 0-20", JobStatus=3, CompletionDate=0, RemoteWallClockTime=20.0
    ),
    "removed later": condor(
        "a 0-70",
        "noted: it may have waited",
        JobStatus=3,
        NumShadowStarts=2,
        EnteredCurrentStatus=BEGIN_S + 70,
    ),
    "held": condor("", "left out: job that waits or is held", JobStatus=5),
    "local": condor("", "left out: which has no slot", JobUniverse=12),
    "never started": condor(
        "", "left out: job that never started", JobCurrentStartDate=None
    ),
    "several runs": condor("a 0-9", "warned: a job ran more than once", NumJobStarts=3),
    "no end": condor(
        "", "skipped: CompletionDate, EnteredCurrentStatus", CompletionDate=0
    ),
    "no host": condor(
        "", "skipped: the attribute LastRemoteHost is missing", LastRemoteHost=""
    ),
    "no status": condor(
        "", "skipped: the attribute JobStatus is missing", JobStatus=""
    ),
    "text": case(
        [
            "ClusterId = 1",
            "JobStatus = 4",
            f"JobCurrentStartDate = {BEGIN_S}",
            f"CompletionDate = {BEGIN_S + 9}",
            'LastRemoteHost = "a"',
        ],
        "a 0-9",
    ),
}


def pod(
    name: str = "p",
    node: str = "a",
    status: object = None,
    meta: object = None,
    **more: object,
) -> dict[str, Any]:
    status = {"phase": "Running", "startTime": zulu(0)} if status is None else status
    meta = {"uid": name, "name": name, "namespace": "users", **(meta or {})}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": node, "containers": []},
        "status": status,
        **more,
    }


def over(
    phase: str = "Succeeded",
    conditions: Mapping[str, object] = {},
    ends: Sequence[int | None] = (),
    **more: object,
) -> dict[str, Any]:
    """The status of a pod that is over, by its conditions and since when, and the ends of its containers."""
    listed = [
        {
            "type": each,
            "status": str(each in ("PodScheduled", "DisruptionTarget")),
            "lastTransitionTime": zulu(at),
        }
        for each, at in conditions.items()
    ]
    containers = [
        {"state": {"terminated": {"finishedAt": None if end is None else zulu(end)}}}
        for end in ends
    ]
    return {
        "phase": phase,
        "startTime": zulu(0),
        "conditions": listed,
        "containerStatuses": containers,
        **more,
    }


def pods(expected: str, *says: str, **of: object) -> Case:
    ok = pod("ok", "ok1", over(ends=[9]))
    return case(
        json.dumps({"items": [pod(**of), ok]}),
        f"{expected}, ok1 0-9".removeprefix(", "),
        *says,
    )


def events(**more: object) -> list[dict[str, object]]:
    involved = {"involvedObject": {"kind": "Pod", "name": "p", "uid": "u"}}
    assigned = "Successfully assigned users/p to a"
    return [
        {
            "kind": "Event",
            **involved,
            "reason": "Scheduled",
            "message": assigned,
            "eventTime": zulu(5),
        },
        {
            "kind": "Event",
            **involved,
            "reason": "Killing",
            "lastTimestamp": zulu(25),
            **more,
        },
    ]


DAEMON = {"ownerReferences": [{"kind": "DaemonSet"}]}
KUBERNETES = {
    "running": pods("a 0-"),
    "containers": pods("a 0-30", status=over(ends=[20, 30])),
    "scheduled before": pods(
        "a -5-30", status=over(conditions={"PodScheduled": -5}, ends=[30])
    ),
    "evicted": pods(
        "a 0-40",
        status=over("Failed", {"DisruptionTarget": 40, "Ready": 41}, reason="Evicted"),
    ),
    "not ready": pods("a 0-41", status=over("Failed", {"Ready": 41}, [None])),
    "containers not ready": pods(
        "a 0-42", status=over("Failed", {"ContainersReady": 42}, [20, None])
    ),
    "deleted": pods(
        "a 0-50", status=over("Failed"), meta={"deletionTimestamp": zulu(50)}
    ),
    "no end": pods(
        "",
        "skipped: neither a container nor a condition says when",
        status=over("Failed"),
    ),
    "rejected": pods(
        "", "left out: never ran", status=over("Failed", reason="OutOfcpu")
    ),
    "rejected by words": pods(
        "",
        "left out: never ran",
        status=over("Failed", message="Pod was rejected: no GPU"),
    ),
    "evicted before": pods(
        "", "left out: never ran", status={"phase": "Failed", "reason": "Evicted"}
    ),
    "evicted while it waited": pods(
        "",
        "left out: never ran",
        status=over(
            "Failed",
            containerStatuses=[{"state": {"waiting": {"reason": "ContainerCreating"}}}],
        ),
    ),
    "of every node": pods("", "left out: on every node", meta=DAEMON),
    "of the cluster": pods(
        "", "left out: of the cluster itself", meta={"namespace": "kube-system"}
    ),
    "not scheduled": pods("", "left out: never started", node=""),
    "pending": pods("", "left out: never started", status={"phase": "Pending"}),
    "Kueue": pods("", "left out: Workload of Kueue", kind="Workload"),
    "damaged": pods("", "skipped: is no pod or event", spec=7),
    "events": case(
        objects(*events()),
        "a 5-25",
        "warned: events do not say when a pod ended by itself",
    ),
    "other events": case(
        objects(*events(), *events(reason="Pulled")[1:]),
        "a 5-25",
        "left out: an event that says nothing",
    ),
    "event without a time": case(
        objects(*events(), {**events()[0], "eventTime": None}),
        "a 5-25",
        "skipped: an event without a time",
    ),
    "killed alone": case(
        objects(*events(), events(involvedObject={"kind": "Pod", "name": "x"})[1]),
        "a 5-25",
        "noted: is not in the file",
    ),
}

# --- Slurm: states beside an end in the past (all else of it is in files of its own) ---------------------------------


def sacct_of(state: str, end: str) -> str:
    """Jobs one after the other on node a, and one on node b with a state and an end long ago."""
    stamps = [at(second, "%Y-%m-%dT%H:%M:%S") for second in range(0, 600, 100)]
    others = [
        f"{number}|a|{since}|{until}|COMPLETED"
        for number, (since, until) in enumerate(pairwise(stamps))
    ]
    return "\n".join(
        ["JobID|NodeList|Start|End|State", *others, f"99|b|{stamps[1]}|{end}|{state}"]
    )


LONG_AGO = at(150, "%Y-%m-%dT%H:%M:%S")
OPEN_STATES = (
    "RUNNING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "STOPPED",
    "STAGE_OUT",
)
OVER_STATES = (
    "PREEMPTED",
    "NODE_FAIL",
    "REVOKED",
    "DEADLINE",
    "REQUEUED",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "CANCELLED by 1",
)
SLURM = {
    **{
        each: case(
            sacct_of(each, LONG_AGO),
            "a 0-500, b 100-",
            "warned: state an End in the past: they count as running: 1",
        )
        for each in OPEN_STATES
    },
    **{
        each: case(sacct_of(each, LONG_AGO), "a 0-500, b 100-150")
        for each in OVER_STATES
    },
    "RUNNING, no end": case(
        sacct_of("RUNNING", "Unknown"), "a 0-500, b 100-", "noted: without an end"
    ),
    "FAILED, no end": case(
        sacct_of("FAILED", "Unknown"),
        "a 0-500",
        "skipped: has ended, but its end is missing",
    ),
}

# --- tables of intervals --------------------------------------------------------------------------------------------


def table(*rows: str, columns: str = "node,start,end,state") -> str:
    """Rows of the generic table; `@9` is second 9 of the log."""
    return (
        re.sub(
            r"@(-?\d+)",
            lambda second: str(BEGIN_S + int(second[1])),
            "\n".join([columns, *rows]),
        )
        + "\n"
    )


IDLE = ("n1,@0,@60,idle", "n1,@180,@240,idle", "n2,@120,@300,idle")
IDLE_TAKEN = "n1 60-180 240-, n2 0-120"
ENDS = (
    "1612900003.25",
    "1612900003.250",
    "2021-02-09T19:46:43.25Z",
    "2021-02-09T19:46:43.25z",
    "2021-02-09 19:46:43.25 UTC",
    "2021-02-09T20:46:43.25+01:00",
    "2021-02-09T20:46:43.25+0100",
    "2021-02-09 20:46:43.25 +0100",
    "2021-02-09 19:46:43.25",
)
FINE = {"000": "milliseconds", "000000": "microseconds", "000.5": "milliseconds"}
OK["intervals"] = table("ok1,@0,@9,").partition("\n")[2]
INTERVALS = {
    "idle rows": case(
        table(*IDLE),
        IDLE_TAKEN,
        "noted: at all other times nodes count as busy: 50.0% of the node-time",
        window=None,
    ),
    "idle rows, more nodes": case(
        table(*IDLE), f"{IDLE_TAKEN}, n3 0-, n4 0-", nodes=["n[1-4]"], window=None
    ),
    "idle rows, files": case(
        (table(IDLE[0]), table(*IDLE[1:])), IDLE_TAKEN, window=None
    ),
    "idle rows, the header again": case(
        table(IDLE[0], "node,start,end,state", *IDLE[1:]), IDLE_TAKEN, window=None
    ),
    "of all kinds": case(
        table(
            "n1,@0,@2,idle",
            "n1,@1,@3,busy",
            "n2,@0,@1,down",
            "n2,@2,@4,idle",
            "n3,@0,@4,",
        ),
        "n1 1-, n2 0-2, n3 0-",
        "noted: idle rows overlap busy or unavailable ones: nodes count as not idle there: 0.000278 node-hours",
        "noted: time that no row covers counts as unavailable: 16.7%",
        window=None,
    ),
    "idle rows beside": case(
        table("n1,@0,@60", "n2,@0,@300", columns="node,start,end"),
        "n1 0-120, n2 0-",
        "left out: idle row of an --events file: says only that the node could run jobs: 1 (first: e, line 3",
        events=["e"],
        files={"e": table("n1,@60,@120,drng", "n1,@120,,idle")},
        window=(0, 300),
    ),
    "not there yet": case(
        table("n1,@0,@9,future", "n2,@0,@9,idle", "n3,@0,@9,alloc"),
        "n3 0-",
        "left out: not there yet",
        window=None,
    ),
    "odd word": case(
        table("n1,@0,@9,odd"), "", "skipped: column state: expected busy, idle, down"
    ),
    "free": case(
        table("n1,@0,@9,free", "n2,@0,@9,alloc"),
        "n2 0-",
        "noted: state free, with which PBS means",
        window=None,
    ),
    **{
        f"end {end}": case(
            table(f"n1,1612900000.5,{end}", columns="node,start,end"), "n1 0.5-3.25"
        )
        for end in ENDS
    },
    **{
        f"start {start}": case(
            table(f"n1,{start},,"), "", "skipped: column start holds no time"
        )
        for start in (
            "161290.5",
            "1612903600.",
            ".5",
            "9300000000.5",
            "1612903600.5e3",
            "-1612903600.5",
        )
    },
    **{
        f"{unit}, {digits}": case(
            table(f"n1,1612900000{digits},1612903600{digits},"),
            "",
            f"skipped: '1612900000{digits}' looks like {unit} since 1970: expected seconds, or 2024-01-31T12:00:00",
        )
        for digits, unit in FINE.items()
    },
    "quoted": case(
        table('"n[1,3]","@0","@9","alloc"', columns='"node","start","end","state"'),
        "n1 0-9, n3 0-9",
    ),
    "no end": case(
        table("n1,@3,,", "n2,@0,@9,"), "n1 3-, n2 0-9", "noted: without an end"
    ),
    "jobs": case(
        table(
            '7,"n1,n2",@0,@9,COMPLETED',
            '7,"n1,n2",@0,@9,COMPLETED',
            '7,"n1,n2",@20,@30,FAILED',
            "8,n3,,,PENDING",
            "9,n3,@5,,RUNNING",
            "10,n4,@0,@9,failed",
            columns="id,hosts,start,end,state",
        ),
        "n1 0-9 20-30, n2 0-9 20-30, n3 5-, n4 0-9",
        "left out: a record that repeats another one of the same job",
        "left out: job that never started",
    ),
    "jobs that run, with an end": case(
        table(
            "7,n1,@0,@9,Running",
            "8,n2,@0,@9,SUSPENDED",
            "9,n3,@0,@9,DONE",
            columns="id,hosts,start,end,state",
        ),
        "n1 0-, n2 0-, n3 0-9",
        "warned: jobs whose state says that they run state an end: they count as running: 2",
    ),
    "jobs that are twice": case(
        table("7,n1,@0,@9", "8,n1,@0,@9", ",n1,@20,@30", columns="id,hosts,start,end"),
        "n1 0-9 20-30",
    ),
}

ALL = {
    "pbs": PBS,
    "lsf": LSF,
    "lsf-events": LSF_EVENTS,
    "sge": SGE,
    "swf": SWF,
    "cobalt": COBALT,
    "flux": FLUX,
    "htcondor": HTCONDOR,
    "kubernetes": KUBERNETES,
    "intervals": INTERVALS,
    "slurm": SLURM,
}
EACH = [
    pytest.param(form, *one, id=f"{form}, {name}")
    for form, cases in ALL.items()
    for name, one in cases.items()
]


@pytest.mark.parametrize(("form", "texts", "expected", "says", "options"), EACH)
def test_what_rows_say(
    form: str,
    texts: tuple[str, ...],
    expected: str,
    says: list[str],
    options: dict[str, Any],
) -> None:
    if not expected:  # some job has to run
        texts, expected = (f"{texts[0]}\n{OK[form]}",), "ok1 0-9"
    check(form, texts, expected, says, **options)


# --- logs written from known jobs -----------------------------------------------------------------------------------

WRITERS: dict[str, Callable[[Iterable[SyntheticJob]], str]] = {
    "pbs": pbs,
    "lsf": lsb_acct,
    "lsf-events": lsb_events,
    "sge": sge,
    "cobalt": cobalt,
    "swf": lambda jobs: swf(jobs, 4),
    "intervals": interval_table,
}
STATUS_ROWS = f"{STATUS}\n{at(0)},{at(9)},1\n{at(20)},,1\n{at(30)},,0\n"


@pytest.mark.parametrize("form", ["pbs", "lsf", "lsf-events", "sge", "cobalt"])
@given(jobs=job_lists(), cut=st.none() | st.integers(0, 40))
def test_round_trip(form: str, jobs: list[SyntheticJob], cut: int | None) -> None:
    """Also of a log that is split into files, as those are that are written as things happen."""
    lines = WRITERS[form](jobs).split("\n")
    whole = cut is None or form not in ("pbs", "lsf-events")
    parts = [lines] if whole else [lines[:cut], lines[cut:]]
    texts = ["\n".join(part) for part in parts if any(part)]
    trace = ingest(form, *texts, tz="America/Chicago" if form == "cobalt" else "UTC")
    assert np.array_equal(idle_seconds_of(trace), idle_seconds(jobs))


@given(job_lists(apart=True), st.sampled_from([1, 2, 16, 48]))
def test_round_trip_of_how_many_nodes_are_idle(
    jobs: list[SyntheticJob], processors_per_node: int
) -> None:
    trace = read_texts(
        "swf", swf(jobs, processors_per_node), window=(0, LENGTH_S)
    ).trace
    assert len(trace.nodes) == len(HOSTS)
    assert np.array_equal(
        idle_seconds_of(trace).sum(axis=0), idle_seconds(jobs).sum(axis=0)
    )


@given(job_lists())
def test_round_trip_of_states(jobs: list[SyntheticJob]) -> None:
    """Rows busy, idle and down by the style of a job, against a grid of seconds."""
    states = ("alloc", "idle", "down*", "idle")
    made = read_texts(
        "intervals",
        interval_table(jobs, states),
        nodes=[",".join(HOSTS)],
        window=(0, LENGTH_S),
    )
    idle_rows = [job for job in jobs if states[job.style % 4] == "idle"]
    not_idle = ~idle_seconds([job for job in jobs if job not in idle_rows])
    stated = ~idle_seconds(idle_rows) if idle_rows else np.ones_like(not_idle)
    assert np.array_equal(idle_seconds_of(made.trace), stated & ~not_idle)
    overlap = any("idle rows overlap" in note for note in made.account.notes)
    assert overlap == bool(idle_rows and (stated & not_idle).any())


@pytest.mark.parametrize("form", [*WRITERS, "status"])
@given(data=st.data())
def test_damaged_logs_are_read_or_refused(form: str, data: st.DataObject) -> None:
    jobs = data.draw(job_lists(apart=True))
    if form == "status":
        survives("cobalt", cobalt(jobs), data.draw(damages(STATUS_ROWS)))
    else:
        survives(form, data.draw(damages(WRITERS[form](jobs))))


# --- what is no such log --------------------------------------------------------------------------------------------

NO_RECORD = r"log\.0: is no log of this format: line 1 is no record of lsb\."


@pytest.mark.parametrize(
    ("form", "text", "why"),
    [
        (
            "pbs",
            "\nhello\nworld",
            "is no log of this format: line 2 is no record of PBS",
        ),
        (
            "pbs",
            f"acct:{ran('a/0')}",
            "stands before the record, as grep without -h or syslog put it",
        ),
        ("lsf", began(0, '1 "a"'), NO_RECORD),
        ("lsf", "Accounting information about jobs that are:", NO_RECORD),
        ("lsf-events", finish(), NO_RECORD),
        ("lsf-events", 'JOB_NEW "10" 1 1', NO_RECORD),
        (
            "sge",
            "a:b:c\ndd",
            "line 1 is no record of Grid Engine, with at least 13 fields: 3 fields",
        ),
        (
            "sge",
            "\n".join([SMP, *WIDE]),
            r"line 2: 10 jobs of MPI have more slots .* \(32\)",
        ),
        ("swf", "1;2;3;4", "line 1 has not 18 fields separated by blanks: 1 fields"),
        (
            "flux",
            "JOBID|USER|NODELIST\nf1|u|n1",
            "the table has no column t_run; it has jobid, user, nodelist",
        ),
        *(
            ("cobalt", header, r"log\.0")
            for header in (
                "a,b,c",
                HEADER.replace("_USED", ""),
                "START_TIMESTAMP;END_TIMESTAMP",
                '"',
            )
        ),
        ("cobalt", STATUS_ROWS, "no row names a node that was busy, down or known"),
        (
            "intervals",
            table("n1,1612900000000,,"),
            "only 0 of 1 rows can be used: column start holds no time",
        ),
    ],
)
def test_what_is_no_log_is_refused(form: str, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_texts(form, text, allow_few=False)


@pytest.mark.parametrize(
    "rows",
    [
        [SMP, *WIDE[:9]],
        [SMP, *WIDE, *(row.replace(":a:", ":b:") for row in WIDE[8:])],
        [SMP, *(row.replace(":64:", ":32:") for row in WIDE)],
    ],
)
def test_what_is_no_summary_of_grid_engine_is_read(rows: list[str]) -> None:
    read_texts("sge", "\n".join(rows), allow_few=False, window=(0, 9))


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ('{"timestamp":1605115080.03,"name":"submit"}', "flux"),
        ("JOBID|NODELIST|T_RUN|T_INACTIVE", "flux"),
        ("*** Offset = 0 ClusterId = 1", "htcondor"),
        ("{", "slurm-json"),
        (ran("a/0"), "pbs"),
        (finish(), "lsf"),
        (ended(0), "lsf-events"),
        (swf_line(), "swf"),
        (table(), "intervals"),
    ],
)
def test_first_lines(line: str, form: str) -> None:
    assert detect(line) == form


# --- words, long cells, the recipe ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (
            "busy",
            "busy alloc allocated ALLOCATED mix mixed MIXED+PLANNED comp completing alloc- mix! running job-exclusive "
            "job-busy IDLE+COMPLETING",
        ),
        ("idle", "idle IDLE planned plnd IDLE+PLANNED idle- free IDLE+CLOUD idle@"),
        (
            "unavailable",
            "unavailable down down* drain drained drng drng* draining offline down,offline IDLE+DRAIN "
            "MIXED+DRAIN resv reserved resv-exclusive maint MAINTENANCE idle* idle~ alloc# idle% idle$ fail failg "
            "state-unknown,down unk offline,job-exclusive stale DOWN+NOT_RESPONDING provisioning idle^",
        ),
    ],
)
def test_words_of_sinfo_and_pbsnodes(share: str, words: str) -> None:
    rows = [f'n{number},@0,@60,"{word}"' for number, word in enumerate(words.split())]
    made = read_texts("intervals", table(*rows), window=(0, 60))
    assert getattr(made.coverage, share) == 1
    assert made.account.used == len(made.trace.nodes) == len(rows)


@pytest.mark.parametrize("form", ["intervals", "slurm"])
def test_a_quoted_host_list_may_be_long(form: str) -> None:
    hosts = ",".join(f"node{number:05}" for number in range(20_000))
    rows = [f'"1","{hosts}","@0","@9"', '"2","node00000","@9","@20"']
    made = read_texts(
        form, table(*rows, columns='"JobID","NodeList","Start","End"'), window=(0, 20)
    )
    assert (made.account.used, made.coverage.nodes, made.coverage.busy) == (
        2,
        20_000,
        pytest.approx(9 / 20, rel=1e-4),
    )


def test_shares_of_the_node_time() -> None:
    """Once rows state idle, nodes are busy at all other times that no outage covers."""
    coverage = read_texts(
        "intervals", table(*IDLE, "n1,@60,@120,down"), window=None
    ).coverage
    assert (coverage.busy, coverage.unavailable, coverage.idle) == pytest.approx(
        (0.4, 0.1, 0.5)
    )
    assert (
        coverage.intervals,
        coverage.overlaps_merged,
        coverage.nodes_never_busy,
    ) == (4, 0, 0)


def test_fractions_keep_nanoseconds() -> None:
    text = table("n1,1612900000.123456789,1612900001.1234567899,")
    begin, end = read_texts("intervals", text).trace.times.tolist()[1:3]
    assert (begin, end) == (1_612_900_000_123_456_789, 1_612_900_001_123_456_789)


def test_the_recipe_of_intervals_is_read_as_it_says(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ingest", "--recipe", "intervals"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("#   node,start,end,state")
    Path("recipe.csv").write_text(
        "\n".join(line.removeprefix("#   ") for line in lines[first : first + 3])
    )
    args = "ingest intervals recipe.csv --nodes cn[001-005] --from 2024-01-01 --to 2024-01-01T08:00 --tz UTC -o t.csv"
    assert run(args.split()) == 0
    assert fragments(read_trace("t.csv")).node.tolist() == [0]
