"""The account of logs as people export them: shares, windows, overlapping exports, and names that do not match.

Traces are held against an account of our own, second by second: `busy_seconds`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from synthetic_logs import stamp
from synthetic_logs_more import BEGIN_S, Spans, idle_seconds_of, read_texts, taken

from bft.models import InputError
from bft.replay.logs.trace import Coverage

DAY = 86_400
HEADER = "JobID|NodeList|AllocNodes|Start|End|State"
DOWN = "node,start,end,state\n"
Job = tuple[str, str, int, int | None]


def sacct(jobs: Iterable[Job]) -> str:
    """A table of jobs: id, node, start and end; those without an end run."""
    rows = [
        f"{job}|{node}|1|{stamp(start)}|{'Unknown|RUNNING' if end is None else stamp(end) + '|COMPLETED'}"
        for job, node, start, end in jobs
    ]
    return "\n".join([HEADER, *rows]) + "\n"


def counts(jobs: Iterable[Job]) -> str:
    """The same without names of nodes."""
    rows = (line.split("|") for line in sacct(jobs).splitlines())
    return "".join("|".join([job, *rest]) + "\n" for job, _, *rest in rows)


def some(text: str) -> str:
    """A table of jobs given in short: `1 n1 0 60, 2 n2 0 -`."""
    jobs = [job.split() for job in text.split(",")]
    return sacct(
        (job, node, int(start), None if end == "-" else int(end))
        for job, node, start, end in jobs
    )


def busy_seconds(
    jobs: Iterable[Job], nodes: list[str], seconds: int
) -> NDArray[np.bool_]:
    """The oracle: whether each node is busy during each second. Of an id and start only the latest record counts."""
    runs: dict[tuple[str, int], tuple[str, int]] = {}
    for job, node, start, end in jobs:
        if end is not None or (job, start) not in runs:
            runs[job, start] = (node, seconds if end is None else end)
    busy = np.zeros((len(nodes), seconds), dtype=bool)
    for (_, start), (node, end) in runs.items():
        busy[nodes.index(node), start:end] = True
    return busy


# -- what is made of logs


@dataclass(frozen=True)
class Case:
    """Logs, how they are read, and what comes of it: what is taken, shares, losses, notes, or why they are refused."""

    name: str
    texts: Sequence[str]
    taken: Spans | None = None
    form: str = "slurm"
    window: tuple[float, float] | None = (0, 100)
    files: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    coverage: Mapping[str, float] = field(default_factory=dict)
    observed: tuple[int, int] | None = None
    losses: Mapping[str, int] | None = None
    said: Sequence[str] = ()
    not_said: Sequence[str] = ()
    refused: str = ""


REPEATS = "a record that repeats another one of the same job"
STATED = "job without an end, of which another record states the end"
NO_END = "job without an end in any record: taken to last to the end of the window"
AGAIN = "job without an end starts again later"
ENDS = "have different ends or nodes: the latest end counts"
MONTH = f"{HEADER}\n1|n[1-10000]|10000|{stamp(0)}|{stamp(31 * DAY)}|COMPLETED\n"
YEAR = f"""node,start,end,state
n[0-799],{stamp(0)},{stamp(1)},busy
n[0-399],{stamp(0)},{stamp(365 * DAY)},down
n0,{stamp(365 * DAY - 1)},{stamp(365 * DAY)},busy
"""
SWF = f"; UnixStartTime: {BEGIN_S}\n; MaxNodes: {{0}}\n; MaxProcs: {{0}}\n".format
THIRD = "".join(
    f"{k} {k * DAY} 0 {DAY * 3 // 4} 1531 -1 -1 -1 -1 -1 1 {k % 3} 1 -1 -1 1 -1 -1\n"
    for k in range(100)
)
BAD = "".join(f"{k}|n1|1|soon|later|COMPLETED\n" for k in range(50))
STEPS = "".join(f"1.{k}|n1|1|{stamp(0)}|{stamp(60)}|COMPLETED\n" for k in range(99))
MANY = some(", ".join(f"{k} n{k % 4} {600 * k} {600 * k + 500}" for k in range(432)))
MANY = MANY.replace("COMPLETED", "FAILED", 50)
OF_A = f"Cluster|{HEADER}\na|1|n1|1|{stamp(0)}|{stamp(60)}|COMPLETED\n"
PARTLY = "part of the window lies before the first or after"
DOWN_1 = f"NodeName|TimeStart|TimeEnd|State\nn1|{stamp(100)}|Unknown|DOWN\n"
DAYS = (some("1 n1 0 100, 2 n1 120 -, 3 n2 0 -"), some("2 n1 120 250, 4 n1 300 -, 3 n2 0 1000"))  # fmt: skip
TWO_ENDS: tuple[Job, ...] = (("1", "n1", 0, 50), ("1", "n1", 0, 80), ("2", "n1", 90, 100))  # fmt: skip
ENDED_2 = f"NodeName|TimeStart|TimeEnd|State\nn1|{stamp(100)}|{stamp(200)}|DOWN\n"
TWICE = f"{DOWN}n1,{stamp(300)},,down\nn1,{stamp(300)},{stamp(400)},down\n"
IDLE = (f"{DOWN}n1,{stamp(0)},{stamp(10)},idle\nn1,{stamp(80)},,idle\n",
        f"{DOWN}n1,{stamp(80)},{stamp(120)},idle\nn1,{stamp(190)},{stamp(200)},idle\n")  # fmt: skip
PBS = "02/09/2021 {0};{1};{2}.s;exec_host={3}/0 start={4}{5}\n".format
PBS_DAYS = (PBS("19:48:20", "E", 1, "n1", BEGIN_S, f" end={BEGIN_S + 100}"), PBS("19:46:40", "S", 1, "n1", BEGIN_S, ""),
            PBS("19:51:40", "E", 2, "n2", BEGIN_S, f" end={BEGIN_S + 300}"))  # fmt: skip
CN = counts([("1", "", 0, 60), ("2", "", 0, 100)])
CLEAR = counts([("1", "", 0, 60), ("2", "", 10, 100)])
CN_DOWN = f"{DOWN}cn1,{stamp(0)},{stamp(100)},down\ncn2,{stamp(0)},{stamp(5)},down\n"
NAMED = f"{DOWN}cn1,{stamp(50)},{stamp(70)},down\n"
SAME = "nodes go by their short and their full name: taken for the same nodes"
EVENTS = "NodeName|TimeStart|TimeEnd|State\n"
FOREIGN = "which belong to the machine: 1, such as login9"
DRAINED = f"{EVENTS}n[1-2]|{stamp(4500)}|Unknown|DRAIN\nn2|{stamp(9900)}||DOWN\n"
HOURLY = some(
    ", ".join(
        f"{k} {'n[1-2]' if k < 3 else 'n1'} {3600 * k} {3600 * k + 1800}"
        for k in range(6)
    )
).replace("n[1-2]|1", "n[1-2]|2")
LOGIN = f"{EVENTS}login9,n1|{stamp(0)}|{stamp(50)}|DOWN\n"
AS_THEY_HAPPEN = "".join(
    PBS(clock, kind, job, f"n{job}", BEGIN_S + start, end)
    for clock, kind, job, start, end in (
        ("19:46:40", "S", 1, 0, ""), ("19:48:20", "E", 1, 0, f" end={BEGIN_S + 100}"), ("19:49:10", "S", 2, 150, ""),
        ("19:51:40", "E", 2, 150, f" end={BEGIN_S + 300}"),
    )
)  # fmt: skip
BUSY_AND_DOWN = f"""node,start,end,state
n2,{stamp(100)},{stamp(200)},busy
n10,{stamp(120)},{stamp(150)},busy
n2,{stamp(205)},{stamp(300)},busy
n10,{stamp(290)},,busy
n10,{stamp(200)},{stamp(250)},down
"""
CASES = [
    # from jobs to a trace, and the window of observation
    Case("jobs, outages and short gaps", (BUSY_AND_DOWN,),
         {("n2", 100, 300), ("n10", 120, 150), ("n10", 200, 250), ("n10", 290, inf)}, form="intervals",
         window=(100, 400), options={"nodes": ["n2,n10,n1"], "min_gap_s": 10.0},
         coverage={"busy": 335 / 900, "unavailable": 50 / 900, "idle": 510 / 900, "short_gaps": 5 / 900,
                   "nodes_never_busy": 1, "node_seconds": 900, "intervals": 5, "overlaps_merged": 0, "gaps_closed": 1}),
    Case("all end at once", (some("1 a 0 100, 2 b 40 100"),), {("a", 0, inf), ("b", 40, inf)}, window=None,
         observed=(0, 100), said=("all jobs started before the first one ended",)),
    Case("from the first end to the last start", (some("1 a 0 500, 2 b 90 100, 3 b 130 200, 4 a 600 700"),),
         {("a", 100, 500), ("b", 130, 200)}, window=None, observed=(100, 600),
         said=("the window begins with the first end of a job", "the window ends with the last start of a job")),
    Case("jobs that run", (some("1 a 0 50, 2 a 100 -, 3 b 0 400, 4 c 400 -"),), {("a", 100, inf), ("b", 50, inf)},
         window=None, observed=(50, 400), said=(NO_END,)),
    Case("a job that runs again", (some("7 a 0 10, 7 a 40 -, 1 b 5 60, 2 b 80 90"),),
         {("a", 40, inf), ("b", 10, 60)}, window=None, observed=(10, 80), said=(NO_END,), losses={}),
    Case("records as they happen", (AS_THEY_HAPPEN,), {("n2", 150, inf)}, form="pbs", window=None, observed=(100, 300)),
    *(Case(f"a window that is none {number}", (f"{HEADER}\n",), window=window, options={"nodes": ["a"]},
           refused="window|began") for number, window in enumerate(((5, 5), (9, 2), None))),
    Case("a machine too small for its jobs", (counts([("1", "", 0, 60)]).replace("|1|", "|5|", 1),),
         {(f"n{k:05}", 0, 60) for k in range(3)}, options={"machine_nodes": 3},
         said=("--machine-nodes may be too small",)),
    Case("several ends of counts", (counts([("1", "", 0, end) for end in (10, 30, 20)]),), {("n00000", 0, 30)},
         said=(ENDS,)),
    Case("an outage without a later job", (HOURLY,), window=(0, 6 * 3600), files={"e": DRAINED},
         options={"nodes": ["n[1-2]"], "events": ["e"]}, coverage={"unavailable": (2 * 1800 + 11700) / (12 * 3600)},
         said=("it ends on each node with the first one: 2 (first: e, line 2",)),
    # names
    *(Case(f"nodes that events alone name {listed}", (some("1 n1 60 100, 2 n2 0 100"),), files={"e": LOGIN},
           options={"nodes": listed, "events": ["e"]}, coverage={"nodes": 2 + len(listed)},
           said=(FOREIGN,) * (not listed), not_said=(FOREIGN,) * len(listed)) for listed in ((), ("login9,n[1-2]",))),
    *(Case(f"two names of a node {names}", (some("1 n1 0 60"),), options={"nodes": [names]},
           refused="the list of nodes has the short name n1 and the full name n1.a.de")
      for names in ("n2,n1,n1.a.de,n1.b.de", "n2,n1,n1.a.de")),
    Case("several full names of a short one", (some("1 n1 0 60, 2 n1.a.de 0 60, 3 n1.b.de 0 60"),),
         coverage={"nodes": 3},
         said=("short names have several full ones: each counts as a node of its own: 1, such as n1",)),
    # shares
    Case("a month of ten thousand nodes", (MONTH,), window=(0, 31 * DAY),
         coverage={"node_seconds": 31 * DAY * 10_000, "busy": 1, "unavailable": 0, "idle": 0, "short_gaps": 0}),
    Case("a workload of counts", (SWF(1531) + THIRD,), form="swf", window=(0, 100 * DAY),
         coverage={"busy": 0.75, "idle": 0.25}),
    Case("a year of short gaps and outages", (YEAR,), form="intervals", window=(0, 365 * DAY),
         options={"min_gap_s": 400.0 * DAY}, coverage={"unavailable": 0.5, "short_gaps": 0.5}),
    # events and the window
    Case("busy rows among events", (some("1 n1 0 60, 2 n2 9 90"),), {("n1", 80, inf), ("n2", 60, inf)}, window=None,
         files={"more": f"{DOWN}n1,{stamp(-5000)},{stamp(-4000)},busy\nn1,{stamp(80)},,busy\n"},
         options={"events": ["more"]}, observed=(60, 90)),
    Case("intervals beside another log",
         (some("1 n1 0 60, 2 n2 9 900, 3 n1 900 990"), f"node,start,end\nn3,{stamp(100)},{stamp(200)}\n"),
         form="auto", window=None, observed=(60, 900)),
    *(Case(f"outages in a log of intervals {number}", order, form="intervals", window=None, observed=(0, 90))
      for number, order in enumerate(permutations((
          f"{DOWN}n1,{stamp(-900 * DAY)},,down\n",
          f"{DOWN}n1,{stamp(-800 * DAY)},{stamp(50)},down\nn2,{stamp(0)},{stamp(90)},busy\n")))),
    Case("outages alone", (f"{DOWN}n1,{stamp(10)},{stamp(20)},down\nn2,{stamp(0)},{stamp(20)},down\n",),
         form="intervals", window=None, observed=(0, 20)),
    Case("events outside", (some("1 n1 0 60, 2 n1 70 90"),), window=None,
         files={"old": f"{DOWN}n1,{stamp(-5000)},{stamp(-4000)},down\n"}, options={"events": ["old"]},
         said=("no outage or reservation falls into the window",)),
    # exports by the day
    *(Case(f"a job at midnight {number}", order, {("n1", 0, 100), ("n1", 120, 250), ("n1", 300, inf), ("n2", 0, inf)},
           window=(0, 1000), losses={STATED: 2} | ({REPEATS: 6} if len(order) > 2 else {}), said=(NO_END,),
           coverage={"intervals": 4})
      for number, order in enumerate((DAYS, DAYS[::-1], DAYS * 2))),
    *(Case(f"a requeued job {number}", order, {("n1", 0, 400), ("n2", 400, 500), ("n2", 0, 50), ("n1", 500, inf)},
           window=(0, 1000), said=(AGAIN,))
      for number, order in enumerate(permutations(
          (some("1 n1 0 -, 2 n2 0 50"), some("1 n2 400 500, 2 n1 500 1000"))))),
    *(Case(f"{what} of its own", (f"Cluster|{HEADER}\na|{one}|n1|1|{stamp(0)}|{stamp(100)}|COMPLETED\n"
                                  f"{other}|n2|1|{stamp(start)}|{stamp(100)}|COMPLETED\n",),
           {("n1", 0, inf), ("n2", start, inf)}, losses={})
      for what, one, other, start in (("cluster", "1", "b|1", 0), ("element", "1_1", "a|1_2", 0),
                                      ("component", "1+0", "a|1+1", 0), ("start", "1", "a|1", 10))),
    Case("two ends", (sacct(TWO_ENDS),), {("n1", 0, 80), ("n1", 90, inf)}, said=(ENDS,)),
    Case("two ends of counts", (counts(TWO_ENDS),), coverage={"busy": 0.9}, said=(ENDS,)),
    Case("outages by the day", (some("1 n1 0 10, 2 n2 0 1000"),), window=(0, 1000),
         files={"1": DOWN_1, "2": ENDED_2, "3": TWICE}, options={"events": ["1", "2", "3"]},
         coverage={"unavailable": 0.1}, losses={"outage without an end, of which another record states the end": 2}),
    Case("idle rows by the day", IDLE, {("n1", 10, 80), ("n1", 120, 190)}, form="intervals", window=None),
    Case("a start after its end", PBS_DAYS, {("n1", 0, 100), ("n2", 0, inf)}, form="pbs", window=(0, 300),
         said=("a file ends before the one read before it: give files in order of time",)),
    # a list of nodes and logs of counts
    Case("a list of nodes and counts", (CN,), {("cn001", 0, 60), ("cn002", 0, inf)},
         options={"nodes": ["cn[001-004]"]}, coverage={"busy": 0.4, "nodes_never_busy": 2}),
    Case("another number of nodes", (CN,), options={"nodes": ["cn[001-004]"], "machine_nodes": 5},
         refused="--machine-nodes: 5, but --nodes lists 4"),
    Case("another size in the header", (SWF(9) + "1 0 0 100 5 -1 -1 -1 -1 -1 1 1 1 -1 -1 1 -1 -1\n",), form="swf",
         options={"nodes": ["cn[1-4]"]}, coverage={"nodes": 4},
         said=("the log states another number of nodes than the list of nodes, which is taken: 9, listed are 4",
               "jobs wanted more nodes than were free")),
    Case("counts and nodes that are down", (CLEAR,), files={"down": CN_DOWN},
         options={"nodes": ["cn[1-3]"], "events": ["down"]}, coverage={"busy": 0.5, "unavailable": 0.35}),
    Case("counts and nodes of the machine that are down", (CLEAR,), files={"down": CN_DOWN},
         options={"machine_nodes": 3, "events": ["down"]}, coverage={"nodes": 3, "idle": 0.15}),
    Case("a size without effect", (some("1 n1 0 60"),), options={"machine_nodes": 9},
         said=("--machine-nodes has no effect: the logs name the nodes",)),
    # names
    *(Case(f"short and full names {number}", (some(f"1 {used.format(1)} 0 60, 2 {used.format(2)} 0 100"),),
           files={"down": NAMED}, options={"nodes": [listed], "events": ["down"]},
           coverage={"nodes": 3, "foreign_nodes": 0, "busy": 160 / 300, "unavailable": 10 / 300}, said=(SAME,))
      for number, (listed, used) in enumerate((("cn[1-3]", "cn{}.hpc.org"), ("cn[1-3].hpc.org", "cn{}")))),
    Case("short and full names without a list", (some("1 cn1.hpc.org 0 60, 2 cn2.hpc.org 0 100"),),
         files={"down": NAMED}, options={"events": ["down"]}, coverage={"nodes": 2}, said=(SAME,)),
    *(Case(f"{used} in {listed}", (some(f"1 {used} 0 60"),), options={"nodes": [listed]},
           refused=f"log.0: no job ran on a node of the list of nodes: jobs ran on {used}, the list has.*{why}")
      for listed, used, why in (
          ("cn[1-3]", "cn001", "they differ in leading zeros"), ("cn[1-3]", "CN1", "they differ in capital letters"),
          ("cn[1-3].a,cn[1-3].b", "cn1", "one short name has several"),
          ("cn[1-3].a", "cn1.b", "they differ in their domains"),
          ("10.0.0.[1-3]", "10", r"is it the list of another machine\?"),
          ("gpu[1-9]", "cn1", r"is it the list of another machine\?"))),
    Case("nodes that are not in the list", (some("1 cn1 0 10, 2 cn2 0 20, 3 cn3 0 30, 4 cn4 0 40"),), window=(0, 40),
         options={"nodes": ["cn[1-2]"]}, coverage={"foreign_nodes": 2},
         said=("jobs ran on nodes that are not in the list of nodes: left out: 2 of 4 nodes with jobs, 70.0% of the "
               "jobs' node-time, such as cn3, cn4",)),
    Case("events of nodes that are not in the list", (some("1 cn1 0 60"),),
         files={"down": f"{DOWN}cn001,{stamp(0)},{stamp(50)},down\n"},
         options={"nodes": ["cn[1-2]"], "events": ["down"]},
         said=("nodes that are not in the list of nodes were down or reserved: left out: 1, such as cn001",)),
    # windows and rows that do not fit
    *(Case(f"a window outside {number}", (MANY,), window=None, options={"allow_few": False, **window}, refused=refused,
           said=said, not_said=() if said else (PARTLY,))
      for number, (window, refused, said) in enumerate((
          ({"begin": "2020-02-09", "end": "2020-02-20"}, "the window of observation lies outside the logs", ()),
          ({"begin": "2022-02-09", "end": "2022-02-20"}, "the window of observation lies outside the logs", ()),
          ({"begin": "2020-02-09"}, "99% of the window of observation lie outside the logs", ()),
          ({"end": "2022-02-09"}, "99% of the window of observation lie outside the logs", ()),
          ({"begin": "2020-02-09", "allow_few": True}, "", (PARTLY,)), ({"begin": stamp(-DAY)}, "", (PARTLY,)),
          ({"begin": stamp(0), "end": stamp(3 * DAY)}, "", ())))),
    Case("few usable rows", (some("1 n1 0 60, 2 n2 0 90"), some("1 n1 0 60, 2 n2 0 90") + BAD), window=None,
         options={"allow_few": False}, refused=r"log.1: only 2 of 52 rows can be used: column Start holds no time: 50 "
                                               r"\(first: log.1, line 4, 'soon'\).*--allow-few"),
    Case("few usable rows that are accepted", (some("1 n1 0 60, 2 n2 0 90") + BAD,), {("n1", 0, 60), ("n2", 0, 90)},
         losses={"column Start holds no time": 50}),
    Case("no usable row", (f"{HEADER}\n{BAD}",), options={"allow_few": False}, refused="only 0 of 50 rows can be used"),
    Case("one row in a hundred", (MANY.partition("\n100|")[0] + "\n" + BAD.partition("\n")[0],), window=None,
         losses={"column Start holds no time": 1}, not_said=("were skipped",)),
    Case("two rows in a hundred", (MANY.partition("\n98|")[0] + "\n" + "\n".join(BAD.splitlines()[:2]),), window=None,
         said=("2.0% of the rows with information on nodes were skipped: the nodes of jobs among them look idle",)),
    Case("rows that are left out", (some("1 n1 0 60, 2 n2 0 90") + STEPS,), options={"allow_few": False},
         losses={"job step": 99}),
    Case("no job at all", (OF_A,), files={"down": f"{DOWN}n1,{stamp(0)},{stamp(50)},down\n"},
         options={"cluster": "b", "nodes": ["n[1-2]"], "events": ["down"], "allow_few": False},
         refused="no row reports when a node was busy or down: all nodes would look idle.*job of another cluster: 1"),
    Case("no job at all, which is accepted", (OF_A,), files={"down": f"{DOWN}n1,{stamp(0)},{stamp(50)},down\n"},
         options={"cluster": "b", "nodes": ["n[1-2]"], "events": ["down"]}, coverage={"unavailable": 0.25}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_made_of_logs(case: Case) -> None:
    options = {"window": case.window, "files": case.files, **case.options}
    if case.refused:
        with pytest.raises(InputError, match=case.refused):
            read_texts(case.form, *case.texts, **options)
        return
    made = read_texts(case.form, *case.texts, **options)
    account, trace = made.account, made.trace
    assert case.taken in (None, taken(trace))
    for name, value in case.coverage.items():
        assert getattr(made.coverage, name) == pytest.approx(value, abs=1e-6), name
    if case.observed is not None:
        bounds = [time / 1e9 - BEGIN_S for time in (trace.start, trace.end)]
        assert bounds == [*case.observed]
    lost = {why: each.count for why, each in {**account.skipped, **account.left_out}.items()}  # fmt: skip
    assert case.losses in (None, lost)
    said = "\n".join(f"{why}: {each}" for why, each in account.notes.items())
    assert [part for part in case.said if part not in said] == []
    assert [part for part in case.not_said if part in said] == []


@pytest.mark.parametrize(
    ("busy", "idle", "what"),
    [
        (-0.609, 1.609, "not between 0 and 1"),
        (0.31, 0.0, "do not add up to 1"),
        (float("nan"), 0.5, "not between"),
    ],
)
def test_shares_that_do_not_balance_are_our_mistake(
    busy: float, idle: float, what: str
) -> None:
    with pytest.raises(RuntimeError, match=what):
        Coverage(1, 0, 0, 1.0, busy, 0.0, idle, 0.0, 1, 0, 0)


@pytest.mark.parametrize("kind", ["csv", "sacctmgr", "reservation"])
@pytest.mark.parametrize("when", [(DAY, DAY + 6 * 3600), (-900 * DAY, 900 * DAY), (2 * DAY, None)])  # fmt: skip
def test_events_do_not_change_the_window(
    kind: str, when: tuple[int, int | None]
) -> None:
    start, end = stamp(when[0]), "" if when[1] is None else stamp(when[1])
    files = {
        "csv": f"{DOWN}n1,{start},{end},down\n",
        "sacctmgr": f"NodeName|TimeStart|TimeEnd|State\nn1|{start}|{end or 'Unknown'}|DOWN\n",
        "reservation": f"ReservationName=r StartTime={start} EndTime={end or 'Unknown'} Nodes=n1\n",
    }
    option = "reservations" if kind == "reservation" else "events"
    before = read_texts("slurm", MANY, window=None)
    after = read_texts("slurm", MANY, window=None, files=files, **{option: [kind]})
    assert (after.trace.start, after.trace.end) == (before.trace.start, before.trace.end)  # fmt: skip
    assert after.coverage.busy == before.coverage.busy
    up = np.ones((4, 3 * DAY), dtype=bool)
    # An outage without an end lasts to the next job's start on n1.
    until = 289 * 600 if when[1] is None and option == "events" else when[1]
    up[1, max(0, when[0]) : until] = False
    idle = idle_seconds_of(before.trace, 3 * DAY) & up
    assert np.array_equal(idle_seconds_of(after.trace, 3 * DAY), idle)


# -- exports by the day


def sacct_json(jobs: Iterable[Job]) -> str:
    entries = [
        {
            "job_id": job,
            "cluster": "c",
            "nodes": node,
            "state": {"current": ["RUNNING" if end is None else "COMPLETED"]},
            "time": {"start": BEGIN_S + start, "end": 0 if end is None else BEGIN_S + end},
        }
        for job, node, start, end in jobs
    ]  # fmt: skip
    return json.dumps({"jobs": entries}, indent=1)


def table(head: str, row: str) -> Callable[[Iterable[Job]], str]:
    """A table of jobs with stamps."""

    def write(jobs: Iterable[Job]) -> str:
        stamps = ((*job[:2], *("" if at is None else stamp(at) for at in job[2:])) for job in jobs)  # fmt: skip
        return "\n".join([head, *(row.format(*each) for each in stamps)])

    return write


WRITERS = {
    "slurm": sacct,
    "slurm, counts": counts,
    "slurm-json": sacct_json,
    "cobalt": table("JOB_NAME,MACHINE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION", "{0}.m,m,{2},{3},1,{1}"),
    "intervals": table("node,start,end", "{1},{2},{3}"),
    "intervals of jobs": table("id,node,start,end", "{0},{1},{2},{3}"),
}  # fmt: skip
NODES = ["n1", "n2", "n3"]


@st.composite
def exports(draw: st.DrawFn) -> list[list[Job]]:
    """Jobs of three nodes as four exports show them, each a quarter of 400 s: what runs at its end has no end yet."""
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 390))
        node, end = draw(st.sampled_from(NODES)), draw(st.integers(start + 1, 400))
        jobs.append((str(number), node, start, end))
    files: list[list[Job]] = []
    for now in range(100, 500, 100):
        mine = [job for job in jobs if job[2] < now and job[3] >= now - 100]
        # Exported days later what ran at midnight is in both days with its end.
        late = draw(st.booleans())
        files.append([(*job[:3], job[3] if late or job[3] <= now else None) for job in mine])  # fmt: skip
    return [file for file in draw(st.permutations(files)) if file]


@pytest.mark.parametrize("name", WRITERS)
@given(files=exports())
def test_exports_by_the_day_are_one_log(name: str, files: list[list[Job]]) -> None:
    counted = name == "slurm, counts"
    machine = {"machine_nodes": 20} if counted else {"nodes": [",".join(NODES)]}
    texts = [WRITERS[name](jobs) for jobs in files]
    made = read_texts(name.partition(",")[0].partition(" ")[0], *texts, window=(0, 400), **machine)  # fmt: skip
    jobs = [job for file in files for job in file]
    idle = idle_seconds_of(made.trace, 400)
    if counted:
        jobs = [(job, job, *times) for job, _, *times in jobs]
        busy = busy_seconds(jobs, sorted({job for job, *_ in jobs}), 400)
        assert np.array_equal(idle.sum(axis=0), 20 - busy.sum(axis=0))
        return
    if (
        name == "intervals"
    ):  # no ids: two jobs on a node from the same second on are one
        jobs = sorted(((node, node, *times) for _, node, *times in jobs), key=lambda job: job[3] or 0)  # fmt: skip
    busy = busy_seconds(jobs, NODES, 400)
    assert np.array_equal(idle, ~busy)
    assert made.coverage.busy == pytest.approx(busy.mean(), abs=1e-9)
    if name != "intervals":
        assert made.account.used == len({(job, start) for job, _, start, _ in jobs})
        assert made.coverage.intervals == made.account.used


def at(second: int) -> int:
    return BEGIN_S + second


UNDER_WAY = {
    "pbs": [
        PBS("19:46:40", "S", 1, "n1/0+n2", at(0), ""),
        *(PBS("19:46:40", "E", job, "n3", at(9 * job), f" end={at(9 * job + 5)}") for job in (2, 3, 4)),
        PBS("19:46:40", "E", 1, "n1/0+n2", at(0), f" end={at(50)}"),
    ],
    "lsf-events": [
        f'"JOB_START" "10.1" {at(0)} 1 4 1 1 60.0 2 "n1" "n2" "" "" 0 "" 0\n'
        f'"HOST_CTRL" "10.1" {at(0)} 2 "n4" 1 "root" "disk"\n',
        *(
            f'"JOB_START" "10.1" {at(9 * job)} {job} 4 1 1 60.0 1 "n3" "" "" 0 "" 0\n'
            f'"JOB_STATUS" "10.1" {at(9 * job + 5)} {job} 64 0 0 0.0 {at(9 * job + 5)} 0 0 0\n'
            for job in (2, 3, 4)
        ),
        f'"JOB_STATUS" "10.1" {at(50)} 1 64 0 0 0.0 {at(50)} 0 0 0\n"HOST_CTRL" "10.1" {at(50)} 1 "n4" 1 "root" ""\n',
    ],
}  # fmt: skip


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("name", UNDER_WAY)
def test_a_job_under_way_through_several_files_is_one_interval_of_each_node(
    name: str, ended: bool
) -> None:
    parts = UNDER_WAY[name][: None if ended else -1]
    cut = read_texts(name, *parts, window=(0, 50)).coverage
    assert cut == read_texts(name, "".join(parts), window=(0, 50)).coverage
    assert cut.intervals == 3 + 2 + (name == "lsf-events")
