"""Slurm's commands as they print on real machines, and their traps one by one."""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from synthetic_logs_more import BEGIN_S, Spans, read_files, read_texts, taken

from bft.models import InputError
from bft.replay.logs import Account, Ingested, IngestOptions, detect, ingested
from bft.replay.trace.node_trace import SECOND_NS

HEADER = "JobID|JobName|NodeList|AllocNodes|Start|End|State"
# The begin of times in this file, and what they are in the spans that are read.
T, MIDNIGHT_S = "2021-02-10T00:0", 1_612_915_200 - BEGIN_S
AMBIGUOUS = (
    "has another number of fields than columns, and which belong together is not clear"
)
CUT_OFF = "has fewer fields than columns: cut off?"


def at(*spans: tuple[str, float, float]) -> Spans:
    """Spans whose times are seconds since midnight; nodes may be several."""
    return {
        (node, MIDNIGHT_S + start, MIDNIGHT_S + end)
        for nodes, start, end in spans
        for node in nodes.split()
    }


N1 = at(("n1", 60, 120))
ROW = f"1|n1|1|{T}1:00|{T}2:00|COMPLETED"


def reasons(account: Account) -> dict[str, tuple[int, int]]:
    """Count and first line of all that was not used."""
    return {
        why: (tally.count, tally.line)
        for why, tally in {**account.skipped, **account.left_out}.items()
    }


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("1|j|n1|1|{T}1:00|{T}2:00|COMPLETED", N1),
        ("1_7|j|n[1-2]|2|{T}1:00|{T}2:00|CANCELLED by 77", at(("n1 n2", 60, 120))),
        ("1_[3-9%2]|j|None assigned|0|Unknown|Unknown|PENDING", "job that never started"),
        ("1+1|j|n1|1|{T}1:00|{T}2:00|NODE_FAIL", N1),
        ("1.batch|batch|n1|1|{T}1:00|{T}2:00|COMPLETED", "job step"),
        ("1|j|None assigned|0|None|{T}2:00|CANCELLED by 5", "job that never started"),
        ("1|j|None assigned|0|{T}2:00|{T}2:00|CANCELLED by 5", "job that never started"),
        ("1|j|n1|1|{T}2:00|{T}2:00|FAILED", "job of zero length"),
        ("1|j|n1|1|{T}3:00|{T}2:00|FAILED", "ends before it starts"),
        ("1|j|n1|1|{T}3:00|Unknown|COMPLETED", "has ended, but its end is missing"),
        ("1|j|None assigned|1|{T}1:00|{T}2:00|COMPLETED", "job ran, but names no nodes"),
        ("1|j|n[1-|1|{T}1:00|{T}2:00|COMPLETED", "column NodeList holds no host list"),
        ("1|j|n[0-99999999]|1|{T}1:00|{T}2:00|COMPLETED", "column NodeList holds no host list"),
        ("1|j|n1|1|yesterday|{T}2:00|COMPLETED", "column Start holds no time"),
        ("1|j|n1|1|{T}1:00|2021-02-31T00:00:00|COMPLETED", "column End holds no time"),
        ("1|j|n1|1|1612915260|1612915320|COMPLETED", N1),
        ("1|a|b|c|n1|1|{T}1:00|{T}2:00|COMPLETED", N1),
        ("1|a\nb\n|c|n1|1|{T}1:00|{T}2:00|COMPLETED", N1),
        ("1|j|n1|1|{T}1:00|{T}2:00", CUT_OFF),
        ("1|j|n1", CUT_OFF),
        ("1|j|n1|1|{T}1:00|{T}2:00|COMPLETED|more", AMBIGUOUS),
        *((f"1|j|n1|1|{{T}}1:00|Unknown|{state}", at(("n1", 60, float("inf"))))
          for state in ("RUNNING", "SUSPENDED", "COMPLETING", "RUNNING+")),
    ],
)  # fmt: skip
def test_one_row(row: str, found: Spans | str) -> None:
    text = f"{HEADER}\n{row.replace('{T}', T)}\n9|j|n9|1|{T}0:00|{T}9:00|COMPLETED\n"
    spans, account = read_files("slurm", text)
    expected = set() if isinstance(found, str) else found
    assert spans - {("n1", float(MIDNIGHT_S), float("inf"))} == expected | at(
        ("n9", 0, 540)
    )
    assert account.rows == 2
    if isinstance(found, str):
        assert reasons(account) == {found: (1, 2)}
        if found in account.skipped:
            with pytest.raises(InputError, match=r"log\.0: line 2: "):
                read_files("slurm", text, strict=True)


FIELDS = ("JobID", "NodeList", "AllocNodes", "Start", "End", "State")
JSON = (
    '{"nodes": "n1", "state": {"current": "COMPLETED"}, "time": {"start": 1612915260, "end": 1612915320}}',
    '{"nodes": "n2", "state": {"current": ["RUNNING"]}, "time": {"start": 1612915260, "end": 0}}',
    '{"nodes": "None assigned", "state": {"current": ["PENDING"]}, "time": {"start": 0, "end": 0}}',
    '{"nodes": "n3", "time": {"start": "soon", "end": 0}}',
    '{"nodes": 3, "time": {}}',
    '{"nodes": "n[", "time": {"start": 1612915260, "end": 1612915320}}',
    '{"nodes": "n4", "time": {"start": {"set": true, "number": 1612915260}, "end": 1612915320,}}',
)
NO_JOB = "is no job: expected nodes and time.start, time.end as whole numbers"


@pytest.mark.parametrize(
    ("form", "text", "fields", "found", "others", "note"),
    [
        ("slurm", f"{HEADER}\n1|j|n1|1|{T}1:00|{T}2:00|REQUEUED\n1|j|n2|1|{T}3:00|{T}4:00|NODE_FAIL\n"
         f"1|j|n1|1|{T}5:00|{T}6:00|COMPLETED\n", (), at(("n1", 60, 120), ("n1", 300, 360), ("n2", 180, 240)), {}, ""),
        # Columns in any order, any delimiter, headers in between, comments and blank lines.
        ("slurm", "\n# exported\n" + f"Start;State;End;NodeList;JobIDRaw\n{T}1:00;COMPLETED;{T}2:00;n1;5\n\n" * 2, (),
         N1, {"a record that repeats another one of the same job": (1, 7)}, ""),
        # What is cut off does not swallow the next row.
        ("slurm", f"{HEADER}\n1|j|n1|1|{T}1:00|{T}2:\n2|j|n2|1|{T}1:00|{T}2:00|COMPLETED\n"
         f"3|j|n3|1|{T}1:00|{T}2:00|CANC", (), at(("n2 n3", 60, 120)), {CUT_OFF: (1, 2)}, ""),
        ("slurm", f'"JobID","JobName","NodeList","Start","End"\n"1","a\n"2","j","n2","{T}1:00","{T}2:00"\n"3","j"\n'
         f'"4","j","n4","{T}1:00","{T}2:00"\n"5","', (), at(("n2 n4", 60, 120)), {CUT_OFF: (3, 2)}, ""),
        # A spreadsheet quotes what it likes.
        ("slurm", f'JobID,NodeList,Start,End\n1,"n1",{T}1:00,{T}2:00\n"2","n[2,4]","{T}1:00",{T}2:00\n', (),
         at(("n1 n2 n4", 60, 120)), {}, ""),
        # A list between commas may end at two places.
        ("slurm", f"JobID,JobName,NodeList,Start,End\n1,a,n1,n2,{T}0:00,{T}1:00\n2,a,n[1,2],{T}2:00,{T}3:00\n", (),
         at(("n1 n2", 120, 180)), {AMBIGUOUS: (1, 2)}, ""),
        # RUNNING beside an End in the past runs.
        ("slurm", f"{HEADER}\n1|j|n1|1|{T}1:00|{T}2:00|RUNNING\n2|j|n2|1|{T}3:00|{T}4:00|COMPLETED\n", (),
         at(("n1", 60, float("inf")), ("n2", 180, 240)), {}, "state an End in the past: they count as running: 1 "),
        # What is odd of rows that are used, or among them.
        ("slurm", f"{HEADER}\n1|j|n1|2|{T}1:00|{T}2:00|COMPLETED\n", (), N1, {},
         "tell different numbers of nodes: 1 (first: log.0, line 2, 1 and 2)"),
        ("slurm", ROW, ("JobID", "NodeList", "ExitCode", "Start", "End", "State"), N1, {},
         "column 3, by --fields exitcode, never holds such in the first rows: is the order of --fields right?: 1 "
         "(first: log.0, line 1, '1')"),
        ("slurm", f"x|1|n|soon|never|odd\n{ROW}\n" + f"x|1|n|soon|{T}1:00|odd\n" * 200, FIELDS, N1,
         {"column Start holds no time": (201, 1)}, "skipped: the nodes of jobs among them look idle"),
        # JSON on one line and on several, and one that is truncated.
        *(("slurm-json", f'{{"jobs": [{join.join(JSON)}]}}', (), at(("n1", 60, 120), ("n2", 60, float("inf"))),
           {"job that never started": (1, lines[0]), NO_JOB: (2, lines[1]), "nodes holds no host list": (1, lines[2]),
            "is not JSON": (1, lines[3])}, "")
          for join, lines in ((",", (1, 1, 1, 1)), (",\n", (3, 4, 6, 7)))),
        ("slurm-json", f'{{"jobs": [\n{JSON[0]},\n{{"nodes": "n2", "ti', (), N1, {"is not JSON": (1, 3)}, ""),
    ],
)  # fmt: skip
def test_several_rows(
    form: str, text: str, fields: tuple[str, ...], found: Spans, others: dict[str, tuple[int, int]], note: str
) -> None:  # fmt: skip
    spans, account = read_files(form, text, fields=fields)
    assert spans == found
    assert reasons(account) == others
    assert note in "".join(f"{why}: {tally}\n" for why, tally in account.notes.items())


@pytest.mark.parametrize("cut", ["n[1-3+", "n1,n2+", "n[1-3],gpu+"])
def test_a_cut_list_of_nodes_is_refused(cut: str) -> None:
    """sacct marks what a column's width cuts with +: which nodes are missing nobody knows."""
    right = f"1|a|n1|1|{T}1:00|{T}2:00|COMPLETED"
    text = f"{HEADER}\n{right}\n{right.replace('n1', cut)}\n"
    why = r"line 3: the lists of nodes are cut: .* ends in \+"
    with pytest.raises(InputError, match=why):
        read_files("slurm", text)


def test_without_node_names_jobs_are_counted() -> None:
    text = f"JobID|NNodes|Start|End\n1|3|{T}1:00|{T}2:00\n2|x|{T}1:00|{T}2:00\n"
    made = read_texts("slurm", text, machine_nodes=4)
    assert made.trace.idle_node_seconds() == 4 * 2 * 86_400 - 3 * 60
    assert reasons(made.account) == {
        "the column of the number of nodes holds no number": (1, 3)
    }


COMMAS = ["JobName", "NodeList", "AllocTRES", "Start", "End"]
HOST = r"(?=[^,])[\w.-]*(\[[\d,-]+\][\w.-]*)*"
# What a column of that table holds; the number of a job stands first, and a name may be anything.
HELD = {
    "JobName": re.compile(r".*"),
    "NodeList": re.compile(rf"{HOST}(,{HOST})*"),
    "AllocTRES": re.compile(r"(\w+=\w+(,\w+=\w+)*)?"),
    "Start": re.compile(r"[\d-]+T[\d:]+"),
    "End": re.compile(r"[\d-]+T[\d:]+"),
}


def ways(columns: list[str], fields: list[str]) -> set[tuple[tuple[str, str], ...]]:
    """All that nodes, start and end may be, with each column of one field or more, by trying every place to cut."""
    if not columns:
        return set() if fields else {()}
    first, *others = columns
    found = set()
    for size in range(1, len(fields) - len(others) + 1):
        text = ",".join(fields[:size])
        if HELD[first].fullmatch(text):
            held = () if first in ("JobName", "AllocTRES") else ((first, text),)
            found |= {(*held, *rest) for rest in ways(others, fields[size:])}
    return found


JOBS = st.tuples(
    st.sampled_from(["n1", "n[1-3]", "n[1,3-4]", "n[1,3],m2", "n1,m2", "a[1,2]-b[3,4]", "x-1.org,y"]),
    st.sampled_from(["run", "a,b", "n1", "x=1,y", "n[1", "[2]", ""]),
)  # fmt: skip


@given(st.permutations(COMMAS), st.lists(JOBS, max_size=4))
# Either node=1 is the name, or a node is called run.
@example(["Start", "End", "AllocTRES", "JobName", "NodeList"], [("n1", "run")])
def test_lists_in_a_table_with_commas_are_read_whole_or_the_row_is_skipped(
    order: list[str], jobs: list[tuple[str, str]]
) -> None:
    """Nothing says where a host list ends that stands between commas: no other nodes may come of it."""
    columns = ["JobID", *order]
    for number, (nodes, name) in enumerate(jobs):
        row = {"JobID": str(number), "NodeList": nodes, "JobName": name, "Start": f"{T}{number}:00",
               "AllocTRES": "billing=4,cpu=4,mem=2G,node=1", "End": f"{T}{number}:30"}  # fmt: skip
        cells = [row[column] for column in columns]
        whole, apart = (
            read_files(
                "slurm",
                f"{mark.join(columns)}\n{mark.join(cells)}\n",
                nodes=["n[1-4],m2,a[1,2]-b[3,4],x-1.org,y"],
            )
            for mark in ",|"
        )
        is_clear = len(ways(order, ",".join(cells).split(",")[1:])) == 1
        assert (whole[1].used, sum(t.count for t in whole[1].skipped.values())) == (
            (1, 0) if is_clear else (0, 1)
        )
        assert whole[0] == (apart[0] if is_clear else set())


@pytest.mark.parametrize("mark", [",", ";", "|", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_fully_quoted_table(mark: str, end: str) -> None:
    """Delimiters, line breaks and doubled quotes inside quotes belong to their field."""
    rows = [
        ("JobID", "JobName", "NodeList", "Start", "End", "State"),
        ("1", f"a{mark}b", "n[1,3]", f"{T}1:00", f"{T}2:00", "COMPLETED"),
        ("2", f'a\n"" said{mark}\n', "n2", f"{T}1:00", f"{T}2:00", "COMPLETED"),
        ("1.batch", "b", "n1", f"{T}1:00", f"{T}2:00", "COMPLETED"),
    ]
    header, *lines = [mark.join(f'"{field}"' for field in row) for row in rows]
    for text, fields in ((end.join([header, *lines]), ()), (end.join(lines), rows[0])):
        spans, account = read_files("slurm", text + end, fields=fields)
        assert spans == at(("n1 n2 n3", 60, 120))
        assert (account.rows, account.used) == (3, 2)
        assert account.lines == 6 - bool(fields)


# --- headers, and columns that the user names -----------------------------------------------------------------------

LONGER = f"1|n1|1|{T}0:00|{T}0:30|{T}1:00|{T}2:00|02:00:00|p|me|COMPLETED|00:00:00|cpu=4,node=1"


@pytest.mark.parametrize(
    ("text", "fields", "why"),
    [
        ("\n\n", "", "holds no table; export with sacct -a -X -D -P -S"),
        ("JobID|Start|End\n", "", "no column nodelist or allocnodes or nnodes.*export with sacct -a -X -D -P -S"),
        ("JobID|Start|NodeList\n", "", "no column end"),
        ("a|b\n1|2\n", "", "line 1: expected a header"),
        ("       JobID    NodeList               Start                 End\n----\n", "", "spaces between its columns"),
        ("JobID NodeList Start End\n", "", "spaces between its columns"),
        # Another order of fields than the user says.
        (ROW, "NodeList,JobID,AllocNodes,Start,End,State", "column 1, by --fields nodelist, never holds such.*'1'"),
        (ROW, "JobID,NodeList,AllocNodes,End,Start,State", "each of the first rows ends before it starts"),
        (ROW, "JobID,NodeList,Start,AllocNodes,End,State", "column 3, by --fields start,"),
        (ROW, "JobID,AllocNodes,NodeList,Start,End,State", "column 2, by --fields allocnodes,"),
        (ROW, "JobID,NodeList,State,Start,End,AllocNodes", "column 3, by --fields state,"),
        # A first line without a header names the fields that fit.
        (ROW, "", "fits slurm --fields JobID,NodeList,AllocNodes,Start,End,State"),
        (f"{ROW}|", "", "fits slurm --fields JobID,NodeList,AllocNodes,Start,End,State"),
        (ROW.replace("|", ";"), "", "JobID,NodeList,AllocNodes,Start,End,State --delimiter ';'"),
        (f"7|n[1-2]|{T}1:00|Unknown", "", "fits slurm --fields JobID,NodeList,Start,End"),
        (f"7|n[1-2]|2|{T}1:00|{T}2:00", "", "fits slurm --fields JobID,NodeList,NNodes,Start,End"),
        (LONGER, "", "fits slurm --fields JobID,NodeList,NNodes,Submit,Eligible,Start,End,Timelimit,"),
        ("7|j|batch|a|4|COMPLETED|0:0", "", "sacct prints by default, which lack nodes and times"),
        (f"n1,{T}1:00,{T}2:00,idle", "", "fits intervals --fields node,start,end,state"),
        ("n1\t1612915260\t", "", r"fits intervals --fields node,start,end --delimiter '\\t'"),
        *((text, "", "export with sacct -a -X -D -P -S") for text in ("hello world", "a|b", "1|2|3|4|5|6")),
    ],
)  # fmt: skip
def test_what_is_no_table_or_another_one_is_refused(
    text: str, fields: str, why: str
) -> None:
    more = f"2|n2|1|{T}3:00|{T}4:00|TIMEOUT" if fields else ""
    with pytest.raises(InputError, match=why):
        read_files("slurm", f"{text}\n{more}\n", fields=tuple(filter(None, fields.split(","))))  # fmt: skip


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (HEADER, "slurm"),
        ("Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|", "slurm-events"),
        ('{"jobs": [', "slurm-json"),
        ("06/06/2005 14:04:25;D;408.ign1;requestor=guest", "pbs"),
        ('"JOB_FINISH" "10.1" 1644", 5', "lsf"),
        ('"JOB_NEW" "10.1" 1644", 5', "lsf-events"),
        ("node,start,end", "intervals"),
        ("  184   561553      0     61   16     -1    -1   16  43200 819200  1   6   1  -1 -1  1 -1 -1", "swf"),
        ("hello world", None),
    ],
)  # fmt: skip
def test_formats_recognised_by_the_first_line(line: str, kind: str | None) -> None:
    assert detect(line) == kind


# --- JSON, events, reservations, suspended jobs ---------------------------------------------------------------------


EVENTS = (
    "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|\n"
    f"c||{T}0:00|Unknown|8|Cluster registered TRES||\nc|n1|{T}1:00|{T}2:00|DOWN*|Not responding|slurm|\n"
    f"c|n[2-3]|{T}1:00|Unknown|DRAINED|bad | disk\nagain|root|\nc|n4|{T}1:00|{T}2:00|IDLE|||\n"
    f"c|n5|{T}1:00|{T}2:00|MIXED+DRAIN|||\nc|n6|Unknown|{T}2:00|DOWN|||\nc|n7|{T}1:00|{T}2:00|IDLE+PLANNED|||\n"
    f"c|n8|{T}1:00|{T}2:00|IDLE*|||\n"
)
NOT_USED = {"its start is no time": (1, 8), "event of the whole cluster": (1, 2),
            "event of a node that could run jobs": (2, 6)}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "down", "others"),
    [
        ("events", EVENTS, at(("n2 n3", 60, float("inf")), ("n1 n5 n8", 60, 120)), NOT_USED),
        ("reservations", "No reservations in the system\n", set(), {}),
        ("reservations", f"ReservationName=m StartTime={T}1:00 EndTime={T}2:00\n   Nodes=n[1-2] NodeCnt=2\n",
         at(("n1 n2", 60, 120)), {}),
        ("reservations", f"NodeNames|TimeStart|TimeEnd\nn[1-2]|{T}1:00|{T}2:00\n", at(("n1 n2", 60, 120)), {}),
    ],
)  # fmt: skip
def test_outages(
    name: str, text: str, down: Spans, others: dict[str, tuple[int, int]]
) -> None:
    """A file of outages beside a job of n9 that lasts the whole window."""
    jobs = f"{HEADER}\n1|j|n9|1|{T}0:00|{T}9:00|COMPLETED\n"
    options: dict[str, Any] = {name: ["beside"], "files": {"beside": text}}
    window = (MIDNIGHT_S, MIDNIGHT_S + 540)
    spans, account = read_files("slurm", jobs, window=window, nodes=["n[1-9]"], **options)  # fmt: skip
    assert spans == down | at(("n9", 0, float("inf")))
    assert reasons(account) == others


@pytest.mark.parametrize(
    "listed",
    [
        # Suspended after 19 s and after 23, resumed at 31 and at 39; what is seen of it.
        [("31", 19, "RUNNING"), ("35", 23, "SUSPENDED"), ("39", 23, "RUNNING")],
        # What was never listed while it was suspended is known by how long it had run.
        [("31", 19, "RUNNING"), ("39", 23, "RUNNING")],
    ],
)
def test_a_suspended_job_runs_in_pieces_and_its_epilog_follows_its_end(
    listed: list[tuple[str, int, str]],
) -> None:
    jobs = "JobID|NodeList|AllocNodes|Start|End|State|Suspended\n"
    jobs += f"1|n1|1|{T}0:08|{T}1:30|COMPLETED|00:00:08\n2|n2|1|{T}0:00|{T}2:00|COMPLETED|00:00:00\n"
    text = "".join(
        f"JobId=1 JobName=j UserId=a(1) GroupId=u(1) JobState={state} StartTime={T}0:08 EndTime=Unknown "
        f"SuspendTime={T}0:{changed} SecsPreSuspend={before} Partition=p NodeList=n1 NumNodes=1\n"
        for changed, before, state in listed
    )
    pieces = at(("n1", 8, 27), ("n1", 31, 35), ("n1", 39, 95), ("n2", 0, 125))
    assert read_files("slurm", jobs, text, completing_s=5)[0] == pieces


# --- real files -----------------------------------------------------------------------------------------------------

COST = (
    "State", "JobID", "ReqCPUS", "ReqMem", "ReqNodes", "Constraints", "Submit", "Eligible", "Start", "Elapsed",
    "Suspended", "End", "ExitCode", "DerivedExitCode", "AllocNodes", "NCPUS", "MaxDiskRead", "MaxDiskWrite",
    "MaxPages", "MaxRSS", "MaxVMSize", "CPUTime", "UserCPU", "SystemCPU", "TotalCPU",
)  # fmt: skip


def seconds(stamp: str) -> int:
    """Seconds since 1970 of a stamp in UTC."""
    return int(np.datetime64(stamp, "s").astype(np.int64))


def read_real(path: Path, form: str = "slurm", **options: Any) -> Ingested:
    asked = {"tz": "UTC", "allow_few": True, "min_gap_s": 0.0, **options}
    return ingested(form, [str(path)], IngestOptions(**asked))


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "lines", "rows", "used", "others", "nodes"),
    [
        ("xdmod-phillips.sacct.log.gz", 4285, 4285, 4024, {"job that never started": 239, "job of zero length": 22},
         46),
        ("xdmod-unit-accounting-logs-with-job-arrays.log", 6, 6, 6, {}, 32),
        ("xdmod-unit-accounting-logs.log", 4, 4, 3, {"job of zero length": 1}, 41),
        ("xdmod-unit-utf8-multibyte-chars.log", 1, 1, 1, {}, 1),
        ("slurm2sql-test-data1.csv", 6, 5, 1, {"job step": 3, "has ended, but its end is missing": 1}, 1),
        ("slurmsimtools-sacct_dump2101.log", 16, 15, 6, {"job step": 2, "job that never started": 6,
         "has fewer fields than columns: cut off?": 1}, 2),
        ("slurmsimtools-sacct_dump2110.log", 8, 7, 1, {"job step": 2,
         "a record that repeats another one of the same job": 4}, 1),
        ("slurmsimtools-sacct_simple.log", 5, 4, 4, {}, 4),
        ("slurmsimtools-sacct_submitline_multiline.log", 19, 13, 2, {"job step": 7,
         "a record that repeats another one of the same job": 4}, 17),
    ],
)  # fmt: skip
def test_real_files_with_names_of_nodes(
    reference: Path, name: str, lines: int, rows: int, used: int, others: dict[str, int], nodes: int
) -> None:  # fmt: skip
    fields = ("xdmod",) if name.startswith("xdmod") else ()
    made = read_real(reference / "logs/slurm" / name, fields=fields)
    account = made.account
    assert (account.lines, account.rows, account.used) == (lines, rows, used)
    assert {why: count for why, (count, _) in reasons(account).items()} == others
    assert len(made.trace.nodes) == nodes


@pytest.mark.reference
def test_fields_in_excess_are_put_where_they_belong(reference: Path) -> None:
    """Names, constraints and command lines with delimiters in them, over several lines."""
    log = reference / "logs/slurm/slurmsimtools-sacct_submitline_multiline.log"
    jobs = read_real(log).trace.host_jobs
    assert jobs is not None
    lengths = (jobs.end - jobs.start) // SECOND_NS
    names = [jobs.names[node] for node in jobs.nodes.tolist()]
    assert lengths.tolist() == [56, 9600]  # Elapsed 00:00:56, 02:40:00
    assert (names[0], "cpn-u25-36" in names[1:], len(names)) == ("cpn-v09-10", True, 17)


@pytest.mark.reference
@pytest.mark.parametrize(
    "folder",
    ["", "array", "multi-node", "issues/17", "issues/gl-20"],
)
def test_jobs_without_names_of_nodes_agree_with_what_others_made_of_them(
    reference: Path, folder: str
) -> None:
    base = reference / "logs/slurm/hpc-cost-simulator" / folder
    version = "" if folder else "-v1"
    log = base / f"sacct-output{version}.txt"
    made = read_real(log, fields=COST, machine_nodes=100)
    with (base / f"exp_jobs{version}.csv").open(newline="") as table:
        expected = [
            row
            for row in csv.DictReader(table)
            if row["start_time"] and row["start_time"] < row["finish_time"]
        ]
    jobs = made.trace.host_jobs
    assert jobs is not None
    begun = jobs.start < jobs.end
    columns = (jobs.count, jobs.start // SECOND_NS, jobs.end // SECOND_NS)
    ours = sorted(zip(*(column[begun].tolist() for column in columns), strict=True))
    theirs = sorted(
        (int(row["num_hosts"]), *(seconds(row[name]) for name in ("start_time", "finish_time")))
        for row in expected
    )  # fmt: skip
    if folder == "issues/gl-20":  # theirs leaves out jobs whose memory it cannot read
        assert (set(theirs), len(theirs)) == (set(ours), 7)
        assert len(ours) == 11
    elif folder == "issues/17":  # theirs makes a job of a step whose job is not in it
        assert set(ours) < set(theirs)
    else:
        assert ours == theirs


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("slurmsimtools-jobs500.csv", "slurm", "line 1: expected a header"),
        ("xdmod-sacct.json", "slurm-json", "no.* list 'jobs'|not JSON with a list"),
        ("xdmod-unit-accounting-logs.log", "slurm", "line 1: expected a header.*--fields"),
        ("xdmod-phillips.sacct.log.gz", "slurm", "fits slurm --fields xdmod"),
        ("xdmod-unit-non-ended-job-state.log", "slurm", "job that never started: 1"),
        ("xdmod-unit-unknown-job-state.log", "slurm", "job of zero length: 1"),
        ("hpc-cost-simulator/issues/5/sacct-output.txt", "slurm", "job that never started: 3"),
        ("hpc-cost-simulator/issues/61/sacct-output.txt", "slurm", "another number of fields than columns, .*: 2"),
        ("hpc-cost-simulator/issues/63/sacct-output.txt", "slurm", "job step: 1"),
    ],
)  # fmt: skip
def test_real_files_that_are_no_log_of_jobs(
    reference: Path, name: str, kind: str, what: str
) -> None:
    fields = ("xdmod",) if name.endswith("-job-state.log") else ()
    fields = COST if "/" in name else fields
    with pytest.raises(InputError, match=what):
        read_real(reference / "logs/slurm" / name, kind, fields=fields)


@pytest.mark.reference
def test_the_short_gaps_of_a_real_log(reference: Path) -> None:
    """2,202 gaps with a median of 1 s, where jobs of zero length split gaps too: without these 22, 2,180."""
    log = reference / "logs/slurm/xdmod-phillips.sacct.log.gz"
    window = {"begin": "2005-01-01", "end": "2020-01-01"}
    made = read_real(log, fields=("xdmod",), uncertain="idle", **window)
    gaps = sorted(
        start - end
        for (one, _, end), (other, start, _) in pairwise(sorted(taken(made.trace)))
        if one == other
    )
    assert len(gaps) == 2202 - 22
    assert gaps[len(gaps) // 2] == 1
