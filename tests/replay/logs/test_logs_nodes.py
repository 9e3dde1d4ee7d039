"""Lists of a machine's nodes, as every command prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import BEGIN_S, read_into

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import Collector, Diagnosis
from bft.replay.trace.trace_files import read_trace

ASJ = """\
                                                        mem       ncpus   nmics   ngpus
vnode           state           njobs   run   susp      f/t        f/t     f/t     f/t   jobs
--------------- --------------- ------ ----- ------ ------------ ------- ------- ------- -------
n1              free                 0     0      0      0 b/0 b    48/48     0/0     0/0 --
n2              job-busy             1     1      0  100gb/503gb    0/32     0/0     0/4 12.srv,13.srv
"""
AV = """\
n1
     Mom = n1.cluster
     state = free
     resources_available.vnode = n1

n1[0]
     Mom = n1.cluster
     state = job-busy

n1[1]
     Mom = n1.cluster
     state = free

n2[0]
     Mom = n2.cluster
     state = offline
     jobs = 7.srv/0, 7.srv/1
"""
SINFO_JSON = {
    "meta": {"nodes": ["x"], "plugin": {"type": "sinfo"}},
    "sinfo": [
        {
            "node": {"state": ["IDLE"]},
            "nodes": {"total": 2, "hostnames": ["x9"], "nodes": ["n1", "n2"]},
        },
        {"node": {"state": ["FUTURE"]}, "nodes": {"total": 1, "nodes": ["n3"]}},
        {
            "node": {"state": ["ALLOCATED", "DRAIN"]},
            "nodes": {"total": 2, "nodes": ["n[1-2]"]},
        },
    ],
    "errors": [],
}
SCONTROL_JSON = {
    "nodes": [
        {
            "hostname": "n1",
            "name": "n1",
            "state": ["MIXED", "PLANNED"],
            "partitions": ["nodes"],
        },
        {"hostname": "n2", "state": "idle", "reservation": {"nodes": "x"}},
        {"name": "n3", "state": ["FUTURE"]},
    ]
}
PBS_JSON = {
    "timestamp": 1,
    "pbs_server": "srv",
    "nodes": {
        "n1[0]": {"Mom": "n1", "resources_available": {"vnode": "n1[0]"}},
        "n2": {"state": "free", "jobs": ["1"]},
    },
}
# RFC 20; the two brokers of n2 have a rank each.
FLUX_R = {
    "version": 1,
    "execution": {
        "R_lite": [
            {"rank": "0", "children": {"core": "0-3"}},
            {"rank": "1-2", "children": {"core": "0-1"}},
        ],
        "nodelist": ["n1", "n2,n2"],
        "starttime": 0.0,
        "expiration": 0.0,
        "properties": {"batch": "0-2"},
    },
}


def machine(text: str) -> tuple[list[str], Diagnosis]:
    """Nodes of the machine, and the account."""
    collected, diagnosis = Collector(), Diagnosis()
    read_into(collected, diagnosis, "slurm-nodes", text)
    return sorted(
        name for name, node in collected.names.items() if node in collected.universe
    ), diagnosis


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ASJ, id="pbsnodes -aSj"),
        pytest.param(ASJ.partition("\n")[2].replace(" njobs ", " OS "), id="pbsnodes -aS"),
        pytest.param(ASJ.replace("n1  ", "n1[0]").replace("n2 ", "n2[1]"), id="pbsnodes -avSj"),
        pytest.param(AV, id="pbsnodes -av"),
        pytest.param("Name=n1[0]|Mom=n1.cluster|state=free\nName=n2|Mom=n2.cluster|state=offline\n", id="pbsnodes dsv"),
        pytest.param(json.dumps(PBS_JSON), id="pbsnodes json"),
        pytest.param(json.dumps(PBS_JSON, indent=4), id="pbsnodes json, lines"),
        pytest.param("batch*   up   infinite   1   idle n1\ndebug  up 30:00 1 mix n2\nnone up 1:00 0 n/a\n",
                     id="sinfo -h"),
        pytest.param("batch*   up   infinite   1/1/0/2 n[1-2]\n", id="sinfo -s -h"),
        pytest.param("n1   1   batch*  idle\nn2   1   batch*  mix\n", id="sinfo -N -h"),
        pytest.param("Tue Apr  2 14:00:00 2024\nPARTITION AVAIL TIMELIMIT NODES STATE RESERVATION NODELIST\n"
                     "batch*   up infinite     2  idle  n[1-2]\n", id="sinfo -l"),
        pytest.param("Tue Apr  2 14:00:00 2024\nNODELIST NODES PARTITION STATE CPUS REASON\n"
                     "n1     1  batch*  idle 4 none\nn2 1 batch* down* 4 Not responding\n", id="sinfo -N -l"),
        pytest.param("CLUSTER: a\nPARTITION AVAIL TIMELIMIT NODES STATE NODELIST\np up infinite 1 idle n1\n\n"
                     "CLUSTER: a\nPARTITION AVAIL TIMELIMIT NODES STATE NODELIST\np up infinite 1 idle n2\n",
                     id="sinfo -M"),
        pytest.param("NODELIST|STATE\nn[1-2]|idle\n", id="sinfo -o, bars"),
        pytest.param("n1|idle\nn2|mix\n", id="sinfo -h -o, bars"),
        pytest.param(json.dumps(SINFO_JSON), id="sinfo --json"),
        pytest.param(json.dumps(SINFO_JSON, indent=1), id="sinfo --json, lines"),
        pytest.param(json.dumps(SCONTROL_JSON), id="scontrol --json"),
        pytest.param(json.dumps(FLUX_R), id="flux resource R"),
        pytest.param(json.dumps(FLUX_R, indent=2), id="flux resource R, lines"),
        pytest.param("node,cores\nn1,4\nn2,4\n", id="CSV"),
        pytest.param('"cores";"Node"\n"4";"n[1,2]"\n', id="CSV, quoted"),
        pytest.param("host\tstate\nn1\tup\nn2\tup\n\n", id="TSV"),
        pytest.param("n1,n2\n", id="host list"),
        pytest.param("  n1\n  n2\n", id="indented names"),
        pytest.param("n1 slots=4\nn2 slots=4\n", id="hostfile of MPI"),
        pytest.param("NodeName=n1 State=IDLE+CLOUD\n\nNodeName=n2 Arch=x\n   State=IDLE\n   Extra=1\n\n"
                     "NodeName=n3 Arch=x\n   State=FUTURE ThreadsPerCore=1\n", id="scontrol, FUTURE"),
        pytest.param("ClusterName=c\nNodeName=n[1-2] \\\n  CPUs=4\nNodeName=n3 State=FUTURE\n"
                     "PartitionName=p State=UP\n", id="slurm.conf, FUTURE"),
        pytest.param("NodeName=n1\nNodeName=DEFAULT CPUs=4 \\\n State=FUTURE\nNodeName=n3\nNodeName=n2 State=UNKNOWN\n",
                     id="slurm.conf, FUTURE by default"),
        pytest.param("NODELIST NODES STATE\nn1 1 idle\nn2 1 mix-\nn3 1 futr\n", id="sinfo -N, FUTURE"),
        pytest.param("p up infinite 2 idle n[1-2]\np up infinite 1 future n3\n", id="sinfo -h, FUTURE"),
    ],
)  # fmt: skip
def test_lists_of_nodes(text: str) -> None:
    found, diagnosis = machine(text)
    assert found == ["n1", "n2"]
    assert not diagnosis.skipped


def test_a_resource_set_of_flux_that_contradicts_itself() -> None:
    found, diagnosis = machine(json.dumps(FLUX_R).replace("n2,n2", "n2"))
    assert found == ["n1", "n2"]
    (note,) = diagnosis.notes
    assert note == "R of Flux has another number of hosts than of ranks"
    for before, after, reason in (
        ('"nodelist"', '"hosts"', "expected execution with R_lite and nodelist"),
        ("n2,n2", "n[2-", "a list of nodes or ranks cannot be read"),
        ("1-2", "2-1", "a list of nodes or ranks cannot be read"),
    ):
        with pytest.raises(InputError, match=reason):
            machine(json.dumps(FLUX_R).replace(before, after))


@pytest.mark.parametrize(
    ("text", "nodes", "reason"),
    [
        ("n1,4\nn2\n", ["n2"], "holds names and numbers: a row of a table"),
        ("NODES STATE\n2 idle\nn2 idle\n", ["n2"], "column NODES names no node"),
        ("cores,node\n4\n4,n2\n", ["n2"], "column NODE names no node"),
        (
            "PARTITION NODELIST STATE\np idle\np n2 idle\n",
            ["n2"],
            "column NODELIST names no node",
        ),
        ("n[1-\nn2\n", ["n2"], "is no list of nodes"),
        ('{"nodes": [{"name": "n2"}, {"cpus": 4}]}', ["n2"], "is no JSON of nodes"),
    ],
)
def test_rows_that_name_no_node_are_reported(
    text: str, nodes: list[str], reason: str
) -> None:
    found, diagnosis = machine(text)
    assert found == nodes
    (told,) = diagnosis.skipped
    assert told.startswith(reason)


def test_unread_columns_are_reported() -> None:
    _, diagnosis = machine("ClusterName=c\nInclude more.conf\nNodeName=n1\n")
    assert [(tally.line, tally.detail) for tally in diagnosis.notes.values()] == [
        (2, "'Include more.conf'")
    ]
    _, diagnosis = machine("n1 n2\nn3\n")
    assert [(reason, tally.line) for reason, tally in diagnosis.notes.items()] == [
        ("only the first word of a line was read as a node", 1)
    ]


def test_nodes_that_are_not_there_yet_are_left_out_with_a_word() -> None:
    _, diagnosis = machine("NodeName=n1\nNodeName=n[2-3] State=FUTURE\n")
    assert [(reason, tally.line) for reason, tally in diagnosis.left_out.items()] == [
        ("a node that is not there yet (state FUTURE)", 2)
    ]


@pytest.mark.parametrize("text", ["\n", "# n1\n", "PARTITION NODELIST\n", "NodeName=n1 State=FUTURE\n", '{"nodes": []}',
                                  '{"jobs": []}', "PartitionName=p Nodes=ALL\n"])  # fmt: skip
def test_a_list_that_names_no_node_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"names no node|not JSON with a list 'sinfo' or 'nodes'"
    ):
        machine(text)


def test_vnodes_of_the_list_are_the_hosts_of_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes.txt").write_text(AV)
    record = "02/09/2021 20:00:00;E;{0}.srv;exec_vnode=({1}[0]:ncpus=4)+({1}[1]:ncpus=4) start={2} end={3}\n"
    jobs = [(1, "n1", 0, 600), (2, "n2", 300, 900), (3, "n1", 800, 1200)]
    Path("acct").write_text(
        "".join(record.format(k, n, BEGIN_S + a, BEGIN_S + b) for k, n, a, b in jobs)
    )
    window = ["--from", str(BEGIN_S + 600), "--to", str(BEGIN_S + 1200)]
    assert (
        run(
            [
                "ingest",
                "pbs",
                "acct",
                "--nodes",
                "nodes.txt",
                "--tz",
                "UTC",
                "-o",
                "t.parquet",
                *window,
            ]
        )
        == 0
    )
    trace = read_trace("t.parquet")
    assert trace.nodes == ("n1", "n2")
    assert trace.idle_node_seconds() == 200 + 300


LINES = [
    *ASJ.split("\n"), *AV.split("\n"), "NODELIST", "n[1-2]", "{", '"nodes": {"n1": {', "}}", "#", "NodeName=n1 \\",
    "CLUSTER: a", "p up 1 2 idle n1", "n1,4", "a;node",
]  # fmt: skip


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_any_mixture_of_lines_is_read_or_refused(lines: list[str]) -> None:
    collected, diagnosis = Collector(), Diagnosis()
    try:
        read_into(collected, diagnosis, "slurm-nodes", "\n".join(lines))
    except InputError:
        return
    assert collected.universe
