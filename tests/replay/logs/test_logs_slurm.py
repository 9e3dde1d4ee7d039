"""Slurm's commands as they print on real machines, and their traps one by one."""

from __future__ import annotations

import csv
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from synthetic_logs_more import read_into

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import (
    Clock,
    Collector,
    Diagnosis,
    Reading,
    Settings,
    detect,
    open_log,
    read_log,
)
from bft.replay.logs.repeated_records import Suspensions
from bft.replay.logs.slurm_table import layout
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import read_trace

HEADER = "JobID|JobName|NodeList|AllocNodes|Start|End|State"
T = "2021-02-10T00:0"
XDMOD = Settings(fields=("xdmod",))
COST = Settings(
    fields=("State", "JobID", "ReqCPUS", "ReqMem", "ReqNodes", "Constraints", "Submit", "Eligible", "Start", "Elapsed",
            "Suspended", "End", "ExitCode", "DerivedExitCode", "AllocNodes", "NCPUS", "MaxDiskRead", "MaxDiskWrite",
            "MaxPages", "MaxRSS", "MaxVMSize", "CPUTime", "UserCPU", "SystemCPU", "TotalCPU")
)  # fmt: skip


def read_file(
    path: Path, kind: str = "slurm", settings: Settings | None = None
) -> tuple[Collector, Diagnosis]:
    collected, diagnosis = Collector(), Diagnosis()
    with open_log(path) as lines:
        clock = Clock("UTC", diagnosis)
        read_log(
            kind,
            Reading(
                lines, path.name, collected, diagnosis, clock, settings or Settings()
            ),
        )
    diagnosis.balance()
    return collected, diagnosis


def read_text(
    text: str,
    kind: str = "slurm",
    settings: Settings | None = None,
    strict: bool = False,
) -> tuple[Collector, Diagnosis]:
    collected, diagnosis = Collector(), Diagnosis(strict=strict)
    read_into(collected, diagnosis, kind, text, settings=settings, tz="UTC")
    return collected, diagnosis


def busy(
    collected: Collector, *, unavailable: bool = False
) -> list[tuple[str, int, int]]:
    """Node, start and end in seconds since 2021-02-10."""
    names, base = list(collected.names), 1_612_915_200
    merged = (
        collected.unavailable_intervals if unavailable else collected.busy_intervals
    ).merged()
    node, start, end = (column.tolist() for column in merged)
    return [
        (names[n], s // SECOND_NS - base, e // SECOND_NS - base)
        for n, s, e in zip(node, start, end, strict=True)
    ]


def reasons(diagnosis: Diagnosis) -> dict[str, tuple[int, int]]:
    """Count and first line of all that was not used."""
    return {
        why: (tally.count, tally.line)
        for why, tally in {**diagnosis.skipped, **diagnosis.left_out}.items()
    }


# -- rows


hosts = st.sampled_from(
    ["n1", "n[1-3]", "n[1,3-4]", "n[1,3],m2", "n1,m2", "a[1,2]-b[3,4]", "x-1.org,y"]
)
names = st.sampled_from(["run", "a,b", "n1", "x=1,y", "n[1", "[2]", ""])


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


@given(st.permutations(COMMAS), st.lists(st.tuples(hosts, names), max_size=4))
@example(
    ["Start", "End", "AllocTRES", "JobName", "NodeList"], [("n1", "run")]
)  # or node=1 is the name, run a node
def test_lists_in_a_table_with_commas_are_read_whole_or_the_row_is_skipped(
    order: list[str], jobs: list[tuple[str, str]]
) -> None:
    """Nothing says where a host list ends that stands between commas: no other nodes may come of it."""
    columns = ["JobID", *order]
    rows = [
        {"JobID": str(k), "NodeList": nodes, "JobName": name, "AllocTRES": "billing=4,cpu=4,mem=2G,node=1",
         "Start": f"{T}{k}:00", "End": f"{T}{k}:30"}
        for k, (nodes, name) in enumerate(jobs)
    ]  # fmt: skip
    for row in rows:
        cells = [row[name] for name in columns]
        expected, _ = read_text("|".join(columns) + "\n" + "|".join(cells) + "\n")
        read, diagnosis = read_text(",".join(columns) + "\n" + ",".join(cells) + "\n")
        possible = ways(order, ",".join(cells).split(",")[1:])
        if len(possible) == 1:
            assert busy(read) == busy(expected)
            assert diagnosis.used == 1
        else:
            assert busy(read) == []
            assert sum(tally.count for tally in diagnosis.skipped.values()) == 1


def test_lists_in_a_table_with_commas_that_can_end_at_two_places() -> None:
    header = "JobID,JobName,NodeList,Start,End"
    collected, diagnosis = read_text(
        f"{header}\n1,a,n1,n2,{T}0:00,{T}1:00\n2,a,n[1,2],{T}2:00,{T}3:00\n"
    )
    assert busy(collected) == [("n1", 120, 180), ("n2", 120, 180)]
    assert reasons(diagnosis) == {
        "has another number of fields than columns, and which belong together is not clear": (
            1,
            2,
        )
    }


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ("1|j|n1|1|{T}1:00|{T}2:00|COMPLETED", [("n1", 60, 120)]),
        ("1_7|j|n[1-2]|2|{T}1:00|{T}2:00|CANCELLED by 77", [("n1", 60, 120), ("n2", 60, 120)]),
        ("1_[3-9%2]|j|None assigned|0|Unknown|Unknown|PENDING", "job that never started"),
        ("1+1|j|n1|1|{T}1:00|{T}2:00|NODE_FAIL", [("n1", 60, 120)]),
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
        ("1|j|n1|1|1612915260|1612915320|COMPLETED", [("n1", 60, 120)]),
        ("1|a|b|c|n1|1|{T}1:00|{T}2:00|COMPLETED", [("n1", 60, 120)]),
        ("1|a\nb\n|c|n1|1|{T}1:00|{T}2:00|COMPLETED", [("n1", 60, 120)]),
        ("1|j|n1|1|{T}1:00|{T}2:00", "has fewer fields than columns: cut off?"),
        ("1|j|n1", "has fewer fields than columns: cut off?"),
        ("1|j|n1|1|{T}1:00|{T}2:00|COMPLETED|more", "has another number of fields than columns, and which belong "
         "together is not clear"),
    ],
)  # fmt: skip
def test_one_row(row: str, found: list[tuple[str, int, int]] | str) -> None:
    text = f"{HEADER}\n{row.replace('{T}', T)}\n9|j|n9|1|{T}0:00|{T}9:00|COMPLETED\n"
    collected, diagnosis = read_text(text)
    expected = found if isinstance(found, list) else []
    assert busy(collected) == [*expected, ("n9", 0, 540)]
    assert diagnosis.rows == 2
    if isinstance(found, str):
        assert reasons(diagnosis) == {found: (1, 2)}
        if found in diagnosis.skipped:
            with pytest.raises(InputError, match=r"log\.0: line 2: "):
                read_text(text, strict=True)


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "COMPLETING", "RUNNING+"])
def test_what_still_runs_has_no_end(state: str) -> None:
    collected, _ = read_text(f"{HEADER}\n1|j|n1|1|{T}1:00|Unknown|{state}\n")
    assert collected.running == 1


def test_requeued_jobs_count_each_time() -> None:
    collected, diagnosis = read_text(
        f"{HEADER}\n1|j|n1|1|{T}1:00|{T}2:00|REQUEUED\n1|j|n2|1|{T}3:00|{T}4:00|NODE_FAIL\n"
        f"1|j|n1|1|{T}5:00|{T}6:00|COMPLETED\n"
    )
    assert busy(collected) == [("n1", 60, 120), ("n1", 300, 360), ("n2", 180, 240)]
    assert diagnosis.used == 3


def test_a_contradicting_number_of_nodes_is_reported() -> None:
    _, diagnosis = read_text(f"{HEADER}\n1|j|n1|2|{T}1:00|{T}2:00|COMPLETED\n")
    assert [note.line for note in diagnosis.notes.values()] == [2]


def test_columns_in_any_order_with_any_delimiter_and_headers_in_between() -> None:
    one = f"Start;State;End;NodeList;JobIDRaw\n{T}1:00;COMPLETED;{T}2:00;n1;5\n"
    collected, diagnosis = read_text(f"\n# exported\n{one}\n{one}")
    assert busy(collected) == [("n1", 60, 120)]
    assert (diagnosis.rows, diagnosis.no_record) == (2, 6)


@pytest.mark.parametrize("cut", ["n[1-3+", "n1,n2+", "n[1-3],gpu+"])
def test_a_cut_list_of_nodes_is_refused(cut: str) -> None:
    """sacct marks what a column's width cuts with +: which nodes are missing nobody knows."""
    with pytest.raises(
        InputError, match=r"line 3: the lists of nodes are cut: .* ends in \+"
    ):
        read_text(
            f"{HEADER}\n{ROW.replace('|n1|', '|a|n1|')}\n2|a|{cut}|3|{T}1:00|{T}2:00|COMPLETED\n"
        )


def test_a_row_that_is_cut_off_does_not_swallow_the_next() -> None:
    collected, diagnosis = read_text(
        f"{HEADER}\n1|j|n1|1|{T}1:00|{T}2:\n2|j|n2|1|{T}1:00|{T}2:00|COMPLETED\n3|j|n3|1|{T}1:00|{T}2:00|CANC"
    )
    assert busy(collected) == [("n2", 60, 120), ("n3", 60, 120)]
    assert reasons(diagnosis) == {"has fewer fields than columns: cut off?": (1, 2)}


def test_without_node_names_jobs_are_counted() -> None:
    collected, diagnosis = read_text(
        f"JobID|NNodes|Start|End\n1|3|{T}1:00|{T}2:00\n2|x|{T}1:00|{T}2:00\n"
    )
    assert collected.counted()[0].tolist() == [3]
    assert reasons(diagnosis) == {
        "the column of the number of nodes holds no number": (1, 3)
    }


def test_one_cluster_of_several() -> None:
    text = f"Cluster|{HEADER}\na|1|j|n1|1|{T}1:00|{T}2:00|COMPLETED\nb|1|j|n2|1|{T}1:00|{T}2:00|COMPLETED\n"
    collected, diagnosis = read_text(text, settings=Settings(cluster="b"))
    assert busy(collected) == [("n2", 60, 120)]
    assert reasons(diagnosis) == {"job of another cluster": (1, 2)}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "holds no table"),
        ("\n\n", "holds no table"),
        ("JobID|Start|End\n", "no column nodelist or allocnodes or nnodes"),
        ("JobID|Start|NodeList\n", "no column end"),
        ("a|b\n1|2\n", "line 1: expected a header"),
        (
            "       JobID    NodeList               Start                 End\n----\n",
            "spaces between its columns",
        ),
        ("JobID NodeList Start End\n", "spaces between its columns"),
    ],
)
def test_what_is_no_table_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_text(text)


def test_a_spreadsheet_quotes_node_lists() -> None:
    collected, _ = read_text(f'JobID,NodeList,Start,End\n1,"n[1,3]",{T}1:00,{T}2:00\n')
    assert busy(collected) == [("n1", 60, 120), ("n3", 60, 120)]


ROW = f"1|n1|1|{T}1:00|{T}2:00|COMPLETED"


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
    text = end.join(mark.join(f'"{field}"' for field in row) for row in rows) + end
    collected, diagnosis = read_text(text.replace("\r", ""))
    assert busy(collected) == [(f"n{k}", 60, 120) for k in (1, 3, 2)]
    assert (diagnosis.rows, diagnosis.used, diagnosis.lines) == (3, 2, 7)
    settings = Settings(fields=rows[0])
    again, diagnosis = read_text(
        text.replace("\r", "").partition("\n")[2], settings=settings
    )
    assert (busy(again), diagnosis.used) == (busy(collected), 2)


def test_a_quoted_row_that_is_cut_off_does_not_swallow_the_next() -> None:
    header = '"JobID","JobName","NodeList","Start","End"'
    whole = f'"%d","j","n%d","{T}1:00","{T}2:00"'
    rows = [header, '"1","a', whole % (2, 2), '"3","j"', whole % (4, 4), '"5","']
    collected, diagnosis = read_text("\n".join(rows))
    assert busy(collected) == [("n2", 60, 120), ("n4", 60, 120)]
    assert reasons(diagnosis) == {"has another number of fields than columns": (3, 2)}


def test_any_quoting_of_a_spreadsheet_is_read() -> None:
    collected, _ = read_text(
        f'JobID,NodeList,Start,End\n1,"n1",{T}1:00,{T}2:00\n"2","n[2,3]","{T}1:00",{T}2:00\n'
    )
    assert busy(collected) == [(f"n{k}", 60, 120) for k in (1, 2, 3)]


# -- columns that the user names


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (
            "NodeList,JobID,AllocNodes,Start,End,State",
            "column 1, by --fields nodelist, never holds such.*'1'",
        ),
        (
            "JobID,NodeList,AllocNodes,End,Start,State",
            "each of the first rows ends before it starts",
        ),
        ("JobID,NodeList,Start,AllocNodes,End,State", "column 3, by --fields start,"),
        (
            "JobID,AllocNodes,NodeList,Start,End,State",
            "column 2, by --fields allocnodes,",
        ),
        ("JobID,NodeList,State,Start,End,AllocNodes", "column 3, by --fields state,"),
    ],
)
def test_another_order_of_fields_is_refused(fields: str, what: str) -> None:
    text = f"{ROW}\n2|n2|1|{T}3:00|{T}4:00|TIMEOUT\n"
    with pytest.raises(InputError, match=what):
        read_text(text, settings=Settings(fields=tuple(fields.split(","))))


def test_columns_in_an_odd_order_that_are_not_read_are_reported() -> None:
    fields = ("JobID", "NodeList", "Elapsed", "Start", "End", "State")
    _, diagnosis = read_text(f"{ROW}\n", settings=Settings(fields=fields))
    ((reason, tally),) = [
        item for item in diagnosis.notes.items() if "--fields" in item[0]
    ]
    assert reason.startswith("column 3, by --fields elapsed, never holds such")
    assert tally.detail == "'1'"


def test_rows_that_are_odd_among_right_ones_refuse_nothing() -> None:
    fields = ("JobID", "NodeList", "AllocNodes", "Start", "End", "State")
    text = f"x|1|n|soon|never|odd\n{ROW}\n" + f"x|1|n|soon|{T}1:00|odd\n" * 200
    collected, _ = read_text(text, settings=Settings(fields=fields))
    assert ("n1", 60, 120) in busy(collected)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (ROW, "slurm --fields JobID,NodeList,AllocNodes,Start,End,State"),
        (f"{ROW}|", "slurm --fields JobID,NodeList,AllocNodes,Start,End,State"),
        (
            ROW.replace("|", ";"),
            "slurm --fields JobID,NodeList,AllocNodes,Start,End,State --delimiter ';'",
        ),
        (f"7|n[1-2]|{T}1:00|Unknown", "slurm --fields JobID,NodeList,Start,End"),
        (
            f"7|n[1-2]|2|{T}1:00|{T}2:00",
            "slurm --fields JobID,NodeList,NNodes,Start,End",
        ),
        (
            "7|j|batch|a|4|COMPLETED|0:0",
            "sacct prints by default, which lack nodes and times",
        ),
        (f"n1,{T}1:00,{T}2:00,idle", "intervals --fields node,start,end,state"),
        ("n1\t1612915260\t", "intervals --fields node,start,end --delimiter '\\t'"),
        ("hello world", ""),
        ("a|b", ""),
        ("1|2|3|4|5|6", ""),
    ],
)
def test_a_first_line_without_a_header_names_the_fields_that_fit(
    line: str, hint: str
) -> None:
    found = layout(line)
    assert found.endswith(hint)
    assert bool(found) == bool(hint)


# -- JSON, events, reservations, nodes


def test_json_of_any_release() -> None:
    jobs = (
        '{"nodes": "n1", "state": {"current": "COMPLETED"}, "time": {"start": 1612915260, "end": 1612915320}}',
        '{"nodes": "n2", "state": {"current": ["RUNNING"]}, "time": {"start": 1612915260, "end": 0}}',
        '{"nodes": "None assigned", "state": {"current": ["PENDING"]}, "time": {"start": 0, "end": 0}}',
        '{"nodes": "n3", "time": {"start": "soon", "end": 0}}',
        '{"nodes": 3, "time": {}}',
        '{"nodes": "n[", "time": {}}',
        '{"nodes": "n4", "time": {"start": {"set": true, "number": 1612915260}, "end": 1612915320,}}',
    )
    for join in (",", ",\n"):
        collected, diagnosis = read_text(
            f'{{"jobs": [{join.join(jobs)}]}}', "slurm-json"
        )
        assert collected.running == 1
        assert ("n1", 60, 120) in busy(collected)
        assert {why: count for why, (count, _) in reasons(diagnosis).items()} == {
            "job that never started": 1,
            "is no job: expected nodes and time.start, time.end as whole numbers": 2,
            "nodes holds no host list": 1,
            "is not JSON": 1,
        }


def test_truncated_or_foreign_json() -> None:
    whole = '{"jobs": [\n{"nodes": "n1", "time": {"start": 1612915260, "end": 1612915320}},\n{"nodes": "n2", "ti'
    collected, diagnosis = read_text(whole, "slurm-json")
    assert busy(collected) == [("n1", 60, 120)]
    assert reasons(diagnosis) == {"is not JSON": (1, 3)}
    with pytest.raises(InputError, match="sacct --json"):
        read_text('{"nodes": []}', "slurm-json")


def test_events() -> None:
    collected, diagnosis = read_text(
        "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|\n"
        f"c||{T}0:00|Unknown|8|Cluster registered TRES||\n"
        f"c|n1|{T}1:00|{T}2:00|DOWN*|Not responding|slurm|\n"
        f"c|n[2-3]|{T}1:00|Unknown|DRAINED|bad | disk\nagain|root|\n"
        f"c|n4|{T}1:00|{T}2:00|IDLE|||\n"
        f"c|n5|{T}1:00|{T}2:00|MIXED+DRAIN|||\n"
        f"c|n6|Unknown|{T}2:00|DOWN|||\n"
        f"c|n7|{T}1:00|{T}2:00|IDLE+PLANNED|||\n"
        f"c|n8|{T}1:00|{T}2:00|IDLE*|||\n",
        "slurm-events",
    )
    found = busy(collected, unavailable=True)
    assert [(node, start) for node, start, _ in found] == [
        ("n1", 60),
        ("n2", 60),
        ("n3", 60),
        ("n5", 60),
        ("n8", 60),
    ]
    assert reasons(diagnosis) == {
        "its start is no time": (1, 8),
        "event of the whole cluster": (1, 2),
        "event of a node that could run jobs": (2, 6),
    }


def test_no_reservations() -> None:
    collected, diagnosis = read_text(
        "No reservations in the system\n", "slurm-reservations"
    )
    assert not collected.names
    assert diagnosis.rows == 0


@pytest.mark.parametrize(
    "text",
    [
        "NodeName=n1 Arch=x86_64 CoresPerSocket=16\n   State=IDLE ThreadsPerCore=1\n\nNodeName=n2 Arch=x86_64\n",
        "# slurm.conf\nNodeName=DEFAULT CPUs=4\nnodename=n[1-2] CPUs=4 \\\n  RealMemory=1\nPartitionName=p Nodes=ALL\n",
        "n[1-2]\n",
        "NODELIST   NODES PARTITION STATE\nn1             1    batch* idle\nn2             1    batch* down\n",
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nbatch*       up   infinite      2   idle n[1-2]\n",
        "n1\n     Mom = n1.example\n     state = free\n     np = 4\n\nn2\n     state = offline\n",
        "HOST_NAME          STATUS          JL/U    MAX\nn1 ok - 8\nn2 closed - 8\n",
        "HOSTNAME                ARCH         NCPU\n-----------------------\nglobal - -\nn1 lx 4\nn2 lx 4\n",
        "node\nn1\nn2\n",
    ],
)
def test_lists_of_nodes(text: str) -> None:
    collected, _ = read_text(text, "slurm-nodes")
    assert sorted(
        name for name, node in collected.names.items() if node in collected.universe
    ) == ["n1", "n2"]


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
        (
            "  184   561553      0     61   16     -1    -1   16  43200 819200  1   6   1  -1 -1  1 -1 -1",
            "swf",
        ),
        ("hello world", None),
    ],
)
def test_formats_recognised_by_the_first_line(line: str, kind: str | None) -> None:
    assert detect(line) == kind


# -- real files


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "settings", "lines", "rows", "used", "others", "nodes"),
    [
        ("xdmod-phillips.sacct.log.gz", XDMOD, 4285, 4285, 4024,
         {"job that never started": 239, "job of zero length": 22}, 46),
        ("xdmod-unit-accounting-logs-with-job-arrays.log", XDMOD, 6, 6, 6, {}, 32),
        ("xdmod-unit-accounting-logs.log", XDMOD, 4, 4, 3, {"job of zero length": 1}, 41),
        ("xdmod-unit-non-ended-job-state.log", XDMOD, 2, 2, 0,
         {"job of zero length": 1, "job that never started": 1}, 1),
        ("xdmod-unit-unknown-job-state.log", XDMOD, 2, 2, 0,
         {"job of zero length": 1, "job that never started": 1}, 1),
        ("xdmod-unit-utf8-multibyte-chars.log", XDMOD, 1, 1, 1, {}, 1),
        ("slurm2sql-test-data1.csv", None, 6, 5, 1, {"job step": 3, "has ended, but its end is missing": 1}, 1),
        ("slurmsimtools-sacct_dump2101.log", None, 16, 15, 6, {"job step": 2, "job that never started": 6,
         "has fewer fields than columns: cut off?": 1}, 2),
        ("slurmsimtools-sacct_dump2110.log", None, 8, 7, 5, {"job step": 2}, 1),
        ("slurmsimtools-sacct_simple.log", None, 5, 4, 4, {}, 4),
        ("slurmsimtools-sacct_submitline_multiline.log", None, 19, 13, 6, {"job step": 7}, 17),
    ],
)  # fmt: skip
def test_real_files_with_names_of_nodes(
    reference: Path, name: str, settings: Settings | None, lines: int, rows: int, used: int, others: dict[str, int],
    nodes: int,
) -> None:  # fmt: skip
    collected, diagnosis = read_file(reference / "logs/slurm" / name, settings=settings)
    assert (diagnosis.lines, diagnosis.rows, diagnosis.used) == (lines, rows, used)
    assert {why: count for why, (count, _) in reasons(diagnosis).items()} == others
    assert len(collected.names) == nodes


@pytest.mark.reference
def test_a_real_file_without_a_header_names_the_fields_that_fit(
    reference: Path,
) -> None:
    with open_log(reference / "logs/slurm/xdmod-phillips.sacct.log.gz") as lines:
        assert layout(next(lines)).endswith("fits slurm --fields xdmod")


@pytest.mark.reference
def test_fields_in_excess_are_put_where_they_belong(reference: Path) -> None:
    """Names, constraints and command lines with delimiters in them, over several lines."""
    collected, _ = read_file(
        reference / "logs/slurm/slurmsimtools-sacct_submitline_multiline.log"
    )
    intervals = {(node, end - start) for node, start, end in busy(collected)}
    assert ("cpn-v09-10", 56) in intervals  # Elapsed 00:00:56
    assert ("cpn-u25-36", 9600) in intervals  # 02:40:00
    assert len(intervals) == 17


@pytest.mark.reference
@pytest.mark.parametrize(
    "folder",
    [
        "",
        "array",
        "multi-node",
        "issues/5",
        "issues/17",
        "issues/61",
        "issues/63",
        "issues/gl-20",
    ],
)
def test_jobs_without_names_of_nodes_agree_with_what_others_made_of_them(
    reference: Path, folder: str
) -> None:
    base = reference / "logs/slurm/hpc-cost-simulator" / folder
    version = "" if folder else "-v1"
    collected, diagnosis = read_file(base / f"sacct-output{version}.txt", settings=COST)
    with (base / f"exp_jobs{version}.csv").open(newline="") as table:
        expected = [
            row
            for row in csv.DictReader(table)
            if row["start_time"] < row["finish_time"]
        ]
    clock = Clock("UTC", diagnosis)
    theirs = sorted(
        (
            int(row["num_hosts"]),
            clock.parse(row["start_time"], "", 0),
            clock.parse(row["finish_time"], "", 0),
        )
        for row in expected
        if row["start_time"]
    )
    ours = sorted(
        zip(*(column.tolist() for column in collected.counted()), strict=True)
    )
    if folder == "issues/gl-20":  # theirs leaves out jobs whose memory it cannot read
        assert set(theirs) <= set(ours)
        assert len(theirs) < len(ours)
    elif folder in (
        "issues/17",
        "issues/63",
    ):  # theirs makes a job of a step whose job is not in the log
        assert set(ours) < set(theirs)
    else:
        assert ours == theirs
    assert diagnosis.used == len(ours)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("slurmsimtools-jobs500.csv", "slurm", "line 1: expected a header"),
        ("xdmod-sacct.json", "slurm-json", "no.* list 'jobs'|not JSON with a list"),
        (
            "xdmod-unit-accounting-logs.log",
            "slurm",
            "line 1: expected a header.*--fields",
        ),
    ],
)
def test_real_files_that_are_no_log_of_jobs(
    reference: Path, name: str, kind: str, what: str
) -> None:
    with pytest.raises(InputError, match=what):
        read_file(reference / "logs/slurm" / name, kind)


@pytest.mark.reference
def test_the_short_gaps_of_a_real_log(reference: Path) -> None:
    """2,202 gaps with a median of 1 s, where jobs of zero length split gaps too: without these 22, 2,180."""
    collected, _ = read_file(
        reference / "logs/slurm/xdmod-phillips.sacct.log.gz", settings=XDMOD
    )
    merged = busy(collected)
    gaps = sorted(
        start - end
        for (one, _, end), (other, start, _) in pairwise(merged)
        if one == other
    )
    assert len(gaps) == 2202 - 22
    assert gaps[len(gaps) // 2] == 1


def test_a_job_that_was_suspended_twice_runs_in_three_pieces() -> None:
    """As Slurm 22.05 listed one: begun at 18, suspended after 19 s and after 23, resumed at 41 and at 49."""
    seen = {(41, 19, False), (45, 23, True), (49, 23, False)}
    known = Suspensions(seen={("2", 18): seen})
    assert known.running(("2", 18), 51) == [(18, 37), (41, 45), (49, 51)]
    assert Suspensions().running(("2", 18), 51) == [(18, 51)]
    # What was never listed while it was suspended is known by how long it had run.
    later = Suspensions(seen={("2", 18): {(41, 19, False), (49, 23, False)}})
    assert later.running(("2", 18), 51) == known.running(("2", 18), 51)


def test_an_epilog_follows_the_end_of_a_job_and_not_its_suspension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sacct.txt").write_text(
        "JobID|NodeList|AllocNodes|Start|End|State|Suspended\n"
        f"1|n1|1|{T}0:10|{T}1:30|COMPLETED|00:00:20\n"
        f"2|n2|1|{T}0:00|{T}2:00|COMPLETED|00:00:00\n"
    )
    Path("list.txt").write_text(
        "\n".join(
            f"JobId=1 JobName=j UserId=a(1) GroupId=u(1) JobState={state} StartTime={T}0:10 EndTime=Unknown "
            f"SuspendTime={T}{changed} SecsPreSuspend=30 Partition=p NodeList=n1 NumNodes=1"
            for state, changed in (("SUSPENDED", "0:40"), ("RUNNING", "1:00"))
        )
        + "\n"
    )
    arguments = ["ingest", "slurm", "sacct.txt", "list.txt", "--allow-few", "--min-gap", "0", "-o", "trace.parquet",
                 "--from", f"{T}0:00Z", "--to", f"{T}2:00Z", "--completing", "5"]  # fmt: skip
    assert run(arguments) == 0
    trace = read_trace("trace.parquet")
    base = trace.start
    changes = [
        ((int(time) - base) // SECOND_NS, len(trace.joins(k)) - len(trace.leaves(k)))
        for k, time in enumerate(trace.times)
    ]
    assert changes == [(0, 1), (10, -1), (40, 1), (60, -1), (95, 1)]
