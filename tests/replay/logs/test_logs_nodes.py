"""Snapshots and lists of nodes as every command prints them; what is odd are cases: snapshots.toml, nodes.toml."""

import gzip
import os
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from log_cases import FOLDER
from synthetic_logs import BEGIN_S, damages, read_texts, survives

from bft.models import InputError
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import fragments

NODES = ("n1", "n2", "rack-3.cluster.org")
PERIOD_S = 60
# Samples below: stamp in seconds -> node -> state.


def table(samples, mark: str = ",") -> str:
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


def written(name: str, samples) -> str:
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
    return {
        BEGIN_S + k * PERIOD_S: {node: draw(states) for node in NODES}
        for k in range(draw(st.integers(2, 8)))
    }


def agrees(samples, *texts: str) -> None:
    """A node is idle from a snapshot that shows it so to the next one."""
    trace = read_texts("snapshots", *texts, window=None).trace
    assert (trace.start, trace.end) == (min(samples) * SECOND_NS, max(samples) * SECOND_NS)  # fmt: skip
    found = fragments(trace)
    columns = (column.tolist() for column in (found.node, found.start_ns, found.end_ns))
    idle = {
        (trace.nodes[node], at)
        for node, start, end in zip(*columns, strict=True)
        for at in range(start // SECOND_NS, end // SECOND_NS, PERIOD_S)
    }
    states = [(node, at, state) for at, each in samples.items() for node, state in each.items()]  # fmt: skip
    last = max(samples)
    assert idle == {(node, at) for node, at, state in states if state == "idle" and at < last}  # fmt: skip


@pytest.mark.parametrize("name", ["csv", "semicolons", *SHAPES])
@examples(100, quick=6)
@given(samples=sampled())
def test_each_state_holds_until_the_next_snapshot(name: str, samples) -> None:
    agrees(samples, written(name, samples))


@examples(100, quick=8)
@given(samples=sampled(), order=st.randoms())
def test_files_may_come_in_any_order_and_repeat_one_another(
    samples, order: st.randoms
) -> None:
    texts = [table({stamp: states}) for stamp, states in samples.items()] * 2
    order.shuffle(texts)
    agrees(samples, *texts)


@pytest.mark.parametrize(
    "name", ["csv", "sinfo -N -l", "sinfo --json", "pbsnodes -a", "qstat -f"]
)
@examples(100, quick=6)
@given(samples=sampled(), data=st.data())
def test_damage_does_no_harm(name: str, samples, data: st.DataObject) -> None:
    survives("snapshots", data.draw(damages(written(name, samples))))


def test_the_command_line_says_how_well_snapshots_tell(
    here: Path, told: Callable[..., str]
) -> None:
    samples = {
        BEGIN_S + 60 * k: {"n1": "idle" if k % 4 else "busy", "n2": "busy"}
        for k in range(40)
    }
    packed = gzip.compress(written("sinfo -N -h -o", samples).encode())
    (here / "s.txt.gz").write_bytes(packed)
    known = "warning: nodes were looked at every 60 s: begin and end of an idle fragment are known to 60 s"
    whole = "40 snapshots; 9 fragments were seen whole"
    told("ingest snapshots s.txt.gz -o t.parquet", known, whole, "2 nodes")
    assert len(read_trace(here / "t.parquet")) == 19  # ten begin, nine end


@pytest.mark.parametrize(
    "name",
    [
        "nodes-{:%Y%m%dT%H%M%SZ}.txt",
        "{:%Y-%m-%d_%H-%M-%SZ}.sinfo",
        "{}.epoch",
        "mtime",
    ],
)
def test_a_stamp_in_the_name_of_the_file_or_of_its_last_change(
    name: str, here: Path, told: Callable[..., str]
) -> None:
    stamps, files = [BEGIN_S, BEGIN_S + 60], []
    for stamp, state in zip(stamps, ["idle", "busy"], strict=True):
        moment = stamp if "{}" in name else datetime.fromtimestamp(stamp, UTC)
        files.append(f"{stamp % 100}.txt" if name == "mtime" else name.format(moment))
        Path(files[-1]).write_text(f"\nn1 {state}\n")
        os.utime(files[-1], (stamp, stamp))
    ingest = f"ingest snapshots {' '.join(files)} -o t.csv"
    if name == "mtime":
        told(ingest, "0.txt: line 2: a snapshot without a time", code=2)
        ingest += " --mtime"
    told(ingest)
    trace = read_trace("t.csv")
    assert [trace.start // SECOND_NS, trace.end // SECOND_NS] == stamps


# What commands print of n2 where its state is ?; n1 is busy.
PRINTED = tomllib.loads((FOLDER / "states" / "down.toml").read_text("utf-8"))
STATES = {
    "Slurm": "down* drain drng down~ maint DOWN+NOT_RESPONDING IDLE+DRAIN fail inval idle~ idle% IDLE+POWERED_DOWN",
    "PBS": "offline down stale,down offline,job-exclusive state-unknown,down",
    "SGE": "au d E",
    "LSF": "unavail unreach closed_Adm",
    "": "down",
}
POWER_SAVING = ("idle~", "idle%", "IDLE+POWERED_DOWN")
TABLE = """\
                                                        mem       ncpus   nmics   ngpus
vnode           state           njobs   run   susp      f/t        f/t     f/t     f/t   jobs
--------------- --------------- ------ ----- ------ ------------ ------- ------- ------- -------
n1              free                 0     0      0      0 b/0 b    48/48     0/0     0/0 --
n1
     Mom = n1.cluster
     state = free
     resources_available.vnode = n1

n1[0]
     jobs = 7.srv/0, 7.srv/1
NODELIST
n[1-2]
{
"nodes": {"n1": {
}}
#
NodeName=n1 \\
CLUSTER: a
p up 1 2 idle n1
n1,4
a;node
node,since
n3,\udcff"""


def machine(text: str, **options: object):
    """What is made of a list, and of a job that ran on one of its nodes all the time."""
    log = f"node,start,end\nn1,{BEGIN_S},{BEGIN_S + 100}\n"
    return read_texts(
        "intervals",
        log,
        nodes=["list"],
        files={"list": text},
        window=(0, 100),
        **options,
    )


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (command, state)
        for command, each in PRINTED.items()
        for state in STATES[each["scheduler"]].split()
    ],
)
def test_nodes_that_are_down_in_the_list_are_not_idle(command: str, state: str) -> None:
    """Also those that ran no job: they count as unavailable; those that power saving took down are told of."""
    made = machine(
        PRINTED[command]["list"].replace("?", state), uncertain="unavailable"
    )
    saves = state in POWER_SAVING
    share = 0.0 if saves else 0.5
    told = "are DOWN or drained in the list of nodes"
    if saves:
        told = "power saving takes nodes of the list down"
    assert made.trace.nodes == ("n1", "n2")
    assert (made.coverage.busy, made.coverage.unavailable) == (0.5, share)
    assert any(told in each and "50.00%" in each for each in made.account.warnings())


@given(st.lists(st.sampled_from(TABLE.split("\n")), max_size=12))
def test_any_mixture_of_lines_is_read_or_refused(lines: list[str]) -> None:
    try:
        made = machine("\n".join(lines))
    except InputError:
        return
    assert made.trace.nodes
