"""Snapshots of nodes' states: the output of each command is read alike, and limits of sampling are reported."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import BEGIN_S, Spans, damages, read_texts, survives, taken

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import fragments

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


class Shape(NamedTuple):
    """What a command prints: something before all nodes, between two and after them, and of node NODE in each state."""

    idle: str
    busy: str
    down: str
    before: str = ""
    between: str = "\n"
    after: str = ""


def listed(name: str, entry: str, idle: str, busy: str, down: str) -> Shape:
    """A list of JSON of entries in which STATE stands for the state, on one line each."""
    states = (entry.replace("STATE", state) for state in (idle, busy, down))
    return Shape(*states, f'{{"{name}": [\n', ",\n", "\n]}")


LONG = "NODE                 1  batch*      "
WIDE = "all*         up   infinite 1-infinite   no       NO        all      1"
SHAPES = {
    "sinfo -N -h -o": Shape("NODE idle\nNODE idle", "NODE allocated\nNODE allocated", "NODE drained\nNODE drained"),
    "sinfo -N -l": Shape(f"{LONG}idle", f"{LONG} mix", f"{LONG}down*", "NODELIST  NODES PARTITION STATE\n"),
    "sinfo --json": listed("sinfo", '{"node": {"state": [STATE]}, "nodes": {"nodes": ["NODE"]}}', '"IDLE"', '"MIXED"',
                           '"IDLE", "DRAIN"'),
    # Up to 22.05: one word, and flags beside it.
    "sinfo --json, flags apart": listed(
        "nodes", '{"name": "NODE", "hostname": "vm", "state": "idle", "state_flags": [STATE]}', '"PLANNED"',
        '"COMPLETING"', '"MAINTENANCE", "RESERVED", "PLANNED"',
    ),
    # From 23.02 on: a column that is blank but for reserved nodes.
    "sinfo -l, blank column": Shape(
        f"{WIDE}  idle             NODE", f"{WIDE} mixed             NODE", f"{WIDE} maint          m1 NODE",
        "PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE RESERVATION NODELIST\n",
    ),
    "scontrol show node": Shape(*(
        f"NodeName=NODE Arch=x86_64\n   CPUAlloc=0 CPUTot=2\n   State={state} ThreadsPerCore=1\n"
        for state in ("IDLE", "MIXED+PLANNED", "DOWN+NOT_RESPONDING")
    )),
    "pbsnodes -a": Shape(*(
        f"NODE\n     Mom = NODE\n     state = {state}\n     resources_available.ncpus = 4\n"
        for state in ("free", "free\n     jobs = 7.srv/0, 8.srv/1", "offline")
    )),
    "pbsnodes -F json": Shape(
        '"NODE": {"state": "free"}', '"NODE": {"state": "free", "jobs": ["7.srv"]}', '"NODE": {"state": "down"}',
        '{"timestamp": 1,\n"nodes": {', ",\n", "\n}}",
    ),
    "bhosts -w": Shape(
        "NODE ok - 16 0 0 0 0 0", "NODE ok - 16 3 3 0 0 0", "NODE closed_Adm - 16 0 0 0 0 0",
        "HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV\n",
    ),
    "qstat -f": Shape(
        "q0@NODE BIP 0/0/16 0.01 lx-amd64\nq1@NODE BIP 0/0/16 0.01 lx-amd64      d",
        "q0@NODE BIP 0/0/16 1.01 lx-amd64\nq1@NODE BIP 0/2/16 1.01 lx-amd64\n   7 0.5 job u r 02/10/2021",
        "q0@NODE BIP 0/0/16 -NA- lx-amd64 au\nq1@NODE BIP 0/0/16 -NA- lx-amd64 au",
        "queuename qtype resv/used/tot. load_avg arch states\n", f"\n{'-' * 80}\n",
    ),
}  # fmt: skip
WRITERS = ("csv", "semicolons", *SHAPES)


def written(name: str, samples: Samples) -> str:
    """Snapshots as a table, or with a line with the time before what a command prints."""
    if name not in SHAPES:
        return table(samples, "," if name == "csv" else ";")
    shape, texts = SHAPES[name], []
    for stamp, states in samples.items():
        nodes = (
            getattr(shape, state).replace("NODE", node)
            for node, state in states.items()
        )
        texts.append(f"{stamp}\n{shape.before}{shape.between.join(nodes)}{shape.after}")
    return "\n".join(texts)


@st.composite
def sampled(draw: st.DrawFn) -> dict[int, dict[str, str]]:
    """Two to eight snapshots, a period apart, of all nodes."""
    states = st.sampled_from(["idle", "busy", "down"])
    count = draw(st.integers(2, 8))
    return {
        BEGIN_S + k * PERIOD_S: {node: draw(states) for node in NODES}
        for k in range(count)
    }


def trace_of(*texts: str, **options: object) -> NodeTrace:
    return read_texts("snapshots", *texts, window=None, **options).trace


def idle_periods(trace: NodeTrace) -> dict[str, set[int]]:
    """Seconds since 1970 of the periods during which each node is idle."""
    idle: dict[str, set[int]] = {node: set() for node in trace.nodes}
    found = fragments(trace)
    columns = (column.tolist() for column in (found.node, found.start_ns, found.end_ns))
    for node, start, end in zip(*columns, strict=True):
        idle[trace.nodes[node]] |= set(
            range(start // SECOND_NS, end // SECOND_NS, PERIOD_S)
        )
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
    trace = trace_of(written(name, samples))
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
    text = data.draw(damages(written(name, samples)))
    survives("snapshots", text)


def idle_at(stamps: Sequence[int], **others: Sequence[int]) -> str:
    """A table in which n1, and each of the others, is idle at some stamps, seconds since BEGIN_S."""
    of = {"n1": stamps, **others}
    return table(
        {
            BEGIN_S + at: {name: "idle" for name, those in of.items() if at in those}
            for at in stamps
        }
    )


@pytest.mark.parametrize(
    ("text", "nodes", "spans", "told"),
    [
        (idle_at(range(0, 300, 60), n2=(0, 60, 180, 240)), [], {("n2", 120, 180)}, ""),
        # A pause of the snapshots.
        (
            idle_at([0, 60, 120, 180, 780, 840]),
            [],
            {("n1", 330, 780)},
            "snapshots are missing",
        ),
        # A node of the list that no snapshot names.
        (idle_at([0, 60, 120]), ["n[1-2]"], {("n2", 0, math.inf)}, ""),
    ],
)
def test_what_no_snapshot_says_is_not_idle(
    text: str, nodes: list[str], spans: Spans, told: str
) -> None:
    made = read_texts("snapshots", text, nodes=nodes, window=None)
    assert taken(made.trace) == spans
    assert told in "".join(made.account.warnings())


def test_the_command_line_says_how_well_snapshots_tell(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = {
        BEGIN_S + 60 * k: {"n1": "idle" if k % 4 else "busy", "n2": "busy"}
        for k in range(40)
    }
    (here / "s.txt.gz").write_bytes(
        gzip.compress(written("sinfo -N -h -o", samples).encode())
    )
    run(["ingest", "snapshots", "s.txt.gz", "-o", "t.parquet"])
    out, err = capsys.readouterr()
    assert (
        "warning: nodes were looked at every 60 s: begin and end of an idle fragment are known to 60 s"
        in err
    )
    assert "40 snapshots; 9 fragments were seen whole" in err
    assert "2 nodes" in out
    assert len(read_trace(here / "t.parquet")) == 19  # ten begin, nine end


NAMES = ("nodes-{:%Y%m%dT%H%M%SZ}.txt", "{:%Y-%m-%d_%H-%M-%SZ}.sinfo", "{}.epoch")


@pytest.mark.parametrize("name", [*NAMES, "mtime"])
def test_a_stamp_in_the_name_of_the_file_or_of_its_last_change(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stamps = [BEGIN_S, BEGIN_S + 60]
    files = [
        f"{stamp % 100}.txt"
        if name == "mtime"
        else name.format(stamp if "{}" in name else datetime.fromtimestamp(stamp, UTC))
        for stamp in stamps
    ]
    for file, stamp, state in zip(files, stamps, ["idle", "busy"], strict=True):
        Path(file).write_text(f"\nn1 {state}\n")
        os.utime(file, (stamp, stamp))
    code = run(["ingest", "snapshots", *files, "-o", "t.csv"])
    if name == "mtime":
        assert code == 2
        assert "0.txt: line 2: a snapshot without a time" in capsys.readouterr().err
        run(["ingest", "snapshots", "--mtime", *files, "-o", "t.csv"])
    trace = read_trace("t.csv")
    assert [trace.start // SECOND_NS, trace.end // SECOND_NS] == stamps


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
        (
            "timestamp,node,state\n1612900000,n1",
            "has fewer fields than columns: cut off.: 1",
        ),
    ],
)
def test_what_is_no_log_of_snapshots_is_refused(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        trace_of(text)


# What is shown of n1, each minute for six minutes, and seconds for which it is idle; n2 is busy.
VNODES = (
    "n1\n     Mom = n1\n     state = <various>\n\nn1[0]\n     Mom = n1\n     state = free\n\n"
    "n1[1]\n     Mom = n1\n     state = job-busy\n\nn2\n     Mom = n2\n     state = job-busy"
)
SHOWN = {
    "flux resource list": ("n1 free\nn2 allocated", 300),
    "vnodes that differ": (VNODES, 0),
    "vnodes alike": (VNODES.replace("job-busy\n\nn2", "free\n\nn2"), 300),
    "vnodes, one down": (VNODES.replace("state = job-busy\n\nn2", "state = offline\n\nn2"), 0),
    "vnodes, json": (json.dumps({"nodes": {"n1[0]": {"state": "free"}, "n1[1]": {"state": "job-busy"},
                                           "n2": {"state": "free", "jobs": ["7"]}}}), 0),
    "two partitions": ("n1 idle\nn1 mix\nn2 mix", 0),
    "a node that is not there yet": ("n1 idle\nn2 mix\nn3 future", 300),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_of_a_host_is_no_skipped_row(name: str) -> None:
    body, idle_s = SHOWN[name]
    text = "\n".join(f"{BEGIN_S + 60 * k}\n{body}" for k in range(6))
    made = read_texts("snapshots", text, window=None, strict=True)
    assert made.trace.nodes == ("n1", "n2")
    assert made.trace.idle_node_seconds() == idle_s
    told = "".join(made.account.warnings())
    assert "skipped" not in told
    assert "uncertain" not in told


@pytest.mark.parametrize(
    ("words", "idle_s"),
    [
        ("", 60),
        ("completing=idle", 180),
        ("comp=idle,powered_down=idle", 300),
        ("completing=idle,idle=busy", 120),
    ],
)
def test_what_states_count_as_may_be_asked_for(words: str, idle_s: int) -> None:
    states = ["idle", "completing", "comp", "idle~", "IDLE+POWERED_DOWN", "allocated"]
    rows = [f"{BEGIN_S + 60 * k},n1,{state}\n" for k, state in enumerate(states)]
    trace = trace_of("timestamp,node,state\n" + "".join(rows), count_as=words)
    assert trace.idle_node_seconds() == idle_s


@pytest.mark.parametrize("words", ["comp", "comp=fine", "winged=idle", "absent=idle"])
def test_words_that_are_no_states_are_refused(words: str) -> None:
    with pytest.raises(InputError, match="--count-as: expected WORD=idle"):
        trace_of("timestamp,node,state\n", count_as=words)
