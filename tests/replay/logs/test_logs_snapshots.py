"""Snapshots of nodes' states: the output of each command is read alike, and limits of sampling are reported."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import BEGIN_S, damages, read_into, survives

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import Collector, Diagnosis, node_trace
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace

NODES = ("n1", "n2", "rack-3.cluster.org")
PERIOD_S = 60
# Stamp in seconds -> node -> state.
Samples = Mapping[int, Mapping[str, str]]


def table(samples: Samples, mark: str = ",") -> str:
    words = {
        "idle": ("idle", "planned"),
        "busy": ("mixed", "alloc"),
        "down": ("down*", "IDLE+DRAIN"),
    }
    rows = [
        mark.join((str(stamp), node, words[state][stamp // PERIOD_S % 2]))
        for stamp, states in samples.items()
        for node, state in states.items()
    ]
    return "\n".join([f"timestamp{mark}node{mark}state", *rows])


def bodies(body: Callable[[Mapping[str, str]], str]) -> Callable[[Samples], str]:
    """A writer that puts a line with the time before what a command prints."""

    def write(samples: Samples) -> str:
        return "\n".join(
            f"{stamp}\n{body(states)}" for stamp, states in samples.items()
        )

    return write


def sinfo(states: Mapping[str, str]) -> str:
    words = {"idle": "idle", "busy": "allocated", "down": "drained"}
    return "\n".join(
        f"{node} {words[state]}" for node, state in states.items() for _ in range(2)
    )  # two partitions


def sinfo_long(states: Mapping[str, str]) -> str:
    words = {"idle": "idle", "busy": "mix", "down": "down*"}
    rows = "\n".join(
        f"{node:20} 1  batch* {words[state]:>8}" for node, state in states.items()
    )
    return "NODELIST  NODES PARTITION STATE\n" + rows


def sinfo_json(states: Mapping[str, str]) -> str:
    words = {"idle": ["IDLE"], "busy": ["MIXED"], "down": ["IDLE", "DRAIN"]}
    nodes = [
        {"node": {"state": words[state]}, "nodes": {"nodes": [node]}}
        for node, state in states.items()
    ]
    return json.dumps({"sinfo": nodes}, indent=1)


def sinfo_json_flags(states: Mapping[str, str]) -> str:
    """`sinfo --json` up to 22.05: one word, and flags beside it."""
    words = {
        "idle": ("idle", ["PLANNED"]),
        "busy": ("idle", ["COMPLETING"]),
        "down": ("idle", ["MAINTENANCE", "RESERVED", "PLANNED"]),
    }
    nodes = [
        {"name": node, "hostname": "vm", "state": state, "state_flags": flags}
        for node, (state, flags) in (
            (node, words[state]) for node, state in states.items()
        )
    ]
    return json.dumps(
        {"meta": {"Slurm": {"release": "22.05.8"}}, "nodes": nodes}, indent=1
    )


def sinfo_l(states: Mapping[str, str]) -> str:
    """`sinfo -l` from 23.02 on: a column RESERVATION that is blank but for reserved nodes."""
    words = {"idle": "idle", "busy": "mixed", "down": "maint"}
    head = "PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE RESERVATION NODELIST"
    rows = [
        f"all*         up   infinite 1-infinite   no       NO        all      1 {words[state]:>11} "
        f"{'m1' if state == 'down' else '':>11} {node}"
        for node, state in states.items()
    ]
    return "\n".join([head, *rows])


def scontrol(states: Mapping[str, str]) -> str:
    words = {"idle": "IDLE", "busy": "MIXED+PLANNED", "down": "DOWN+NOT_RESPONDING"}
    return "\n".join(
        f"NodeName={node} Arch=x86_64\n   CPUAlloc=0 CPUTot=2\n   State={words[state]} ThreadsPerCore=1\n"
        for node, state in states.items()
    )


def pbsnodes(states: Mapping[str, str]) -> str:
    words = {
        "idle": "free",
        "busy": "free\n     jobs = 7.srv/0, 8.srv/1",
        "down": "offline",
    }
    return "\n".join(
        f"{node}\n     Mom = {node}\n     state = {words[state]}\n     resources_available.ncpus = 4\n"
        for node, state in states.items()
    )


def pbsnodes_json(states: Mapping[str, str]) -> str:
    words = {
        "idle": {"state": "free"},
        "busy": {"state": "free", "jobs": ["7.srv"]},
        "down": {"state": "down"},
    }
    return json.dumps(
        {
            "timestamp": 1,
            "nodes": {node: words[state] for node, state in states.items()},
        },
        indent=1,
    )


def bhosts(states: Mapping[str, str]) -> str:
    words = {
        "idle": "ok          -  16      0      0      0      0      0",
        "busy": "ok          -  16      3      3      0      0      0",
        "down": "closed_Adm  -  16      0      0      0      0      0",
    }
    rows = "\n".join(f"{node:18} {words[state]}" for node, state in states.items())
    return (
        "HOST_NAME          STATUS  JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV\n"
        + rows
    )


def qstat(states: Mapping[str, str]) -> str:
    queues = {
        "idle": (
            "0/0/16         0.01     lx-amd64",
            "0/0/16         0.01     lx-amd64      d",
        ),
        "busy": (
            "0/0/16         1.01     lx-amd64",
            "0/2/16         1.01     lx-amd64\n   7 0.5 job u r 02/10/2021",
        ),
        "down": (
            "0/0/16         -NA-     lx-amd64      au",
            "0/0/16         -NA-     lx-amd64      au",
        ),
    }
    rows = [
        f"q{k}@{node} BIP   {row}"
        for node, state in states.items()
        for k, row in enumerate(queues[state])
    ]
    rule = "-" * 80
    head = "queuename                      qtype resv/used/tot. load_avg arch          states"
    return "\n".join([head, *(f"{rule}\n{row}" for row in rows)])


WRITERS: dict[str, Callable[[Samples], str]] = {
    "csv": table,
    "semicolons": lambda samples: table(samples, ";"),
    "sinfo -N -h -o": bodies(sinfo),
    "sinfo -N -l": bodies(sinfo_long),
    "sinfo --json": bodies(sinfo_json),
    "sinfo --json, flags apart": bodies(sinfo_json_flags),
    "sinfo -l, blank column": bodies(sinfo_l),
    "scontrol show node": bodies(scontrol),
    "pbsnodes -a": bodies(pbsnodes),
    "pbsnodes -F json": bodies(pbsnodes_json),
    "bhosts -w": bodies(bhosts),
    "qstat -f": bodies(qstat),
}


@st.composite
def sampled(draw: st.DrawFn) -> dict[int, dict[str, str]]:
    """Two to eight snapshots, a period apart, of all nodes."""
    states = st.sampled_from(["idle", "busy", "down"])
    count = draw(st.integers(2, 8))
    return {
        BEGIN_S + k * PERIOD_S: {node: draw(states) for node in NODES}
        for k in range(count)
    }


def trace_of(*texts: str, diagnosis: Diagnosis | None = None) -> NodeTrace:
    collected, diagnosis = Collector(min_gap_ns=0), diagnosis or Diagnosis()
    read_into(collected, diagnosis, "snapshots", *texts)
    return node_trace(collected, diagnosis)[0]


def idle_periods(trace: NodeTrace) -> dict[str, set[int]]:
    """Seconds since 1970 of the periods during which each node is idle."""
    idle: dict[str, set[int]] = {node: set() for node in trace.nodes}
    since: dict[int, int] = {}
    ends = [(time, event) for event, time in enumerate(trace.times.tolist())]
    for time, event in ends:
        for node in trace.leaves(event).tolist():
            idle[trace.nodes[node]] |= set(
                range(since.pop(node), time // SECOND_NS, PERIOD_S)
            )
        since |= dict.fromkeys(trace.joins(event).tolist(), time // SECOND_NS)
    for node, start in since.items():
        idle[trace.nodes[node]] |= set(range(start, trace.end // SECOND_NS, PERIOD_S))
    return idle


def expected(samples: Samples) -> dict[str, set[int]]:
    stamps = list(samples)[:-1]
    return {
        node: {stamp for stamp in stamps if samples[stamp][node] == "idle"}
        for node in NODES
    }


@pytest.mark.parametrize("name", WRITERS)
@given(samples=sampled())
def test_each_state_holds_until_the_next_snapshot(name: str, samples: Samples) -> None:
    trace = trace_of(WRITERS[name](samples))
    assert idle_periods(trace) == expected(samples)
    assert (trace.start, trace.end) == (
        min(samples) * SECOND_NS,
        max(samples) * SECOND_NS,
    )


@given(samples=sampled(), order=st.randoms())
def test_files_may_come_in_any_order_and_repeat_one_another(
    samples: Samples, order: st.randoms
) -> None:
    texts = [table({stamp: states}) for stamp, states in samples.items()] * 2
    order.shuffle(texts)
    assert idle_periods(trace_of(*texts)) == expected(samples)


@pytest.mark.parametrize(
    "name", ["csv", "sinfo -N -l", "sinfo --json", "pbsnodes -a", "qstat -f"]
)
@given(samples=sampled(), data=st.data())
def test_damage_does_no_harm(name: str, samples: Samples, data: st.DataObject) -> None:
    text = data.draw(damages(WRITERS[name](samples)))
    survives("snapshots", text)


def test_what_no_snapshot_says_is_not_idle() -> None:
    begin = BEGIN_S
    samples = {
        begin + 60 * k: {"n1": "idle"} | ({} if k == 2 else {"n2": "idle"})
        for k in range(5)
    }
    idle = idle_periods(trace_of(table(samples)))
    assert idle["n1"] == {begin + 60 * k for k in range(4)}
    assert idle["n2"] == {begin, begin + 60, begin + 180}


def test_a_pause_of_the_snapshots_is_not_idle_and_is_reported() -> None:
    stamps = [BEGIN_S + 60 * k for k in (0, 1, 2, 3, 13, 14)]
    diagnosis = Diagnosis()
    trace = trace_of(
        table({stamp: {"n1": "idle"} for stamp in stamps}), diagnosis=diagnosis
    )
    edges = [(time // SECOND_NS - BEGIN_S) for time in trace.times.tolist()]
    assert edges == [0, 180 + 150, 13 * 60]
    assert any(
        "snapshots are missing" in warning and "0.125 hours" in warning
        for warning in diagnosis.warnings()
    )


def test_the_command_line_says_how_well_snapshots_tell(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = {
        BEGIN_S + 60 * k: {"n1": "idle" if k % 4 else "busy", "n2": "busy"}
        for k in range(40)
    }
    (here / "s.txt.gz").write_bytes(gzip.compress(bodies(sinfo)(samples).encode()))
    run(["ingest", "snapshots", "s.txt.gz", "-o", "t.parquet"])
    out, err = capsys.readouterr()
    assert (
        "warning: nodes were looked at every 60 s: begin and end of an idle fragment are known to 60 s"
        in err
    )
    assert "40 snapshots; 9 fragments were seen whole" in err
    assert "2 nodes" in out
    assert len(read_trace(here / "t.parquet")) == 19  # ten begin, nine end


@pytest.mark.parametrize(
    "name", ["nodes-{:%Y%m%dT%H%M%SZ}.txt", "{:%Y-%m-%d_%H-%M-%SZ}.sinfo", "{}.epoch"]
)
def test_a_stamp_in_the_name_of_the_file(name: str, here: Path) -> None:
    files = []
    for k, state in enumerate(["idle", "busy"]):
        stamp = datetime.fromtimestamp(BEGIN_S + 60 * k, UTC)
        file = name.format(BEGIN_S + 60 * k if "{}" in name else stamp)
        (here / file).write_text(f"n1 {state}\n")
        files.append(file)
    run(["ingest", "snapshots", *files, "-o", "t.parquet"])
    trace = read_trace(here / "t.parquet")
    assert (trace.start, trace.end) == (BEGIN_S * SECOND_NS, (BEGIN_S + 60) * SECOND_NS)


def test_a_file_without_a_time_needs_mtime(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k, state in enumerate(["idle", "busy"]):
        (here / f"{k}.txt").write_text(f"\nn1 {state}\n")
        os.utime(here / f"{k}.txt", (BEGIN_S + 60 * k,) * 2)
    assert run(["ingest", "snapshots", "0.txt", "1.txt", "-o", "t.parquet"]) == 2
    assert "0.txt: line 2: a snapshot without a time" in capsys.readouterr().err
    run(["ingest", "snapshots", "--mtime", "0.txt", "1.txt", "-o", "t.parquet"])
    assert read_trace(here / "t.parquet").start == BEGIN_S * SECOND_NS


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1612900000\nn1 idle", "one snapshot is no log"),
        ("1612900000\n1612900060\n", "holds no state of any node"),
        (
            "timestamp,node,state\n1612900000,n1,happy\n1612900060,n1,sad",
            "states no state of a node that is known",
        ),
        (
            "timestamp,node,state\nyesterday,n1,idle",
            "column timestamp holds no time: .*'yesterday'",
        ),
        ("timestamp,node,state\n1612900000,,idle", "column node names none"),
        ("timestamp,node,state\n1612900000,n1", "2 instead of 3"),
    ],
)
def test_what_is_no_log_of_snapshots_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        trace_of(text)


def test_nodes_of_a_list_that_no_snapshot_names_are_never_idle(here: Path) -> None:
    samples = {BEGIN_S + 60 * k: {"n1": "idle"} for k in range(3)}
    (here / "s.csv").write_text(table(samples))
    run(["ingest", "auto", "s.csv", "--nodes", "n[1-2]", "-o", "t.parquet"])
    assert {
        node: len(idle)
        for node, idle in idle_periods(read_trace(here / "t.parquet")).items()
    } == {
        "n1": 2,
        "n2": 0,
    }


@pytest.mark.parametrize(
    ("words", "idle_s"),
    [
        ("", 60),
        ("completing=idle", 180),
        ("comp=idle,powered_down=idle", 300),
        ("completing=idle,idle=busy", 120),
    ],
)
def test_what_states_count_as_may_be_asked_for(
    words: str, idle_s: int, here: Path
) -> None:
    states = ["idle", "completing", "comp", "idle~", "IDLE+POWERED_DOWN", "allocated"]
    rows = [f"{BEGIN_S + 60 * k},n1,{state}\n" for k, state in enumerate(states)]
    Path("s.csv").write_text("timestamp,node,state\n" + "".join(rows))
    asked = ["--count-as", words] if words else []
    assert run(["ingest", "snapshots", "s.csv", *asked, "-o", "t.csv"]) == 0
    assert read_trace(Path("t.csv")).idle_node_seconds() == idle_s


@pytest.mark.parametrize("words", ["comp", "comp=fine", "winged=idle", "absent=idle"])
def test_words_that_are_no_states_are_refused(
    words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.csv").write_text("timestamp,node,state\n")
    assert run(["ingest", "snapshots", "s.csv", "--count-as", words, "-o", "t.csv"])
    assert "--count-as: expected WORD=idle" in capsys.readouterr().err
