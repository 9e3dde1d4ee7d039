"""Lists of a machine's nodes, as every command prints them: which nodes there are, and which were down."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_logs_more import BEGIN_S, read_texts

from bft.models import InputError
from bft.replay.logs import Ingested

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


def machine(text: str, host: str = "n1", **options: object) -> Ingested:
    """What is made of a list, and of a job that ran on one of its nodes all the time."""
    log = f"node,start,end\n{host},{BEGIN_S},{BEGIN_S + 100}\n"
    return read_texts(
        "intervals",
        log,
        nodes=["list"],
        files={"list": text},
        window=(0, 100),
        **options,
    )


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
    made = machine(text)
    assert made.trace.nodes == ("n1", "n2")
    assert not made.account.skipped


# What commands print of n2 where its state is ?; n1 is busy.
STATES = {
    "Slurm": "down* drain drng down~ maint DOWN+NOT_RESPONDING IDLE+DRAIN fail inval idle~ idle% IDLE+POWERED_DOWN",
    "PBS": "offline down stale,down offline,job-exclusive state-unknown,down",
    "SGE": "au d E",
    "LSF": "unavail unreach closed_Adm",
    "": "down",
}
POWER_SAVING = "idle~ idle% IDLE+POWERED_DOWN"


def json_of(key: str, *entries: object) -> str:
    return json.dumps(
        {key: entries, "kind": "NodeList"} if key == "items" else {key: entries}
    )


def kube(name: str, ready: str = "True", **spec: object) -> dict[str, object]:
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"conditions": conditions},
    }


DOWN = {
    "scontrol": (
        "Slurm",
        "NodeName=n1 Arch=x\n   State=MIXED\n\nNodeName=n2 Arch=x\n   State=? ThreadsPerCore=1\n",
    ),
    "scontrol -o": (
        "Slurm",
        "NodeName=n1 State=ALLOCATED CPUTot=1\nNodeName=n2 State=? CPUTot=1 Partitions=a,b\n",
    ),
    "slurm.conf": ("Slurm", "NodeName=n1 CPUs=4\nNodeName=n2 CPUs=4 State=?\n"),
    "sinfo": (
        "Slurm",
        "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\np up 1:00 1 mix n1\np up 1:00 1 ? n2\n",
    ),
    "sinfo -h": ("Slurm", "p up infinite 1 mix n1\np up infinite 1 ? n2\n"),
    "sinfo -N": ("Slurm", "NODELIST NODES PARTITION STATE\nn1 1 p mix\nn2 1 p ?\n"),
    "sinfo -N -h": ("Slurm", "n1 1 p mix\nn2 1 p ?\n"),
    "sinfo -N -l": (
        "Slurm",
        "NODELIST NODES PARTITION STATE CPUS REASON\nn1 1 p mix 4 none\nn2 1 p ? 4 Not responding\n",
    ),
    "sinfo -h -o": ("Slurm", "n1|mix\nn2|?\n"),
    "sinfo -h -o, blanks": ("Slurm", "n1 mix\nn2 ?\n"),
    "sinfo --json": (
        "Slurm",
        json_of(
            "sinfo",
            *(
                {"node": {"state": [state]}, "nodes": {"nodes": [name]}}
                for name, state in (("n1", "MIXED"), ("n2", "?"))
            ),
        ),
    ),
    "scontrol --json": (
        "Slurm",
        json_of(
            "nodes", {"name": "n1", "state": ["MIXED"]}, {"name": "n2", "state": ["?"]}
        ),
    ),
    "scontrol --json, word": (
        "Slurm",
        json_of("nodes", {"name": "n1", "state": "mix"}, {"name": "n2", "state": "?"}),
    ),
    "scontrol --json, flags": (
        "Slurm",
        json_of(
            "nodes",
            {"name": "n1", "state": "mixed", "state_flags": []},
            {"name": "n2", "state": "idle", "state_flags": ["?"]},
        ),
    ),
    "CSV": ("Slurm", "node,state\nn1,mix\nn2,?\n"),
    "pbsnodes -a": (
        "PBS",
        "n1\n     state = free\n     jobs = 1.s/0\n\nn2\n     state = ?\n",
    ),
    "pbsnodes -aS": (
        "PBS",
        "vnode state OS hardware host\n----- ----- -- -------- ----\nn1 free -- -- n1\nn2 ? -- -- n2\n",
    ),
    "pbsnodes dsv": ("PBS", "Name=n1|Mom=n1|state=free\nName=n2|Mom=n2|state=?\n"),
    "pbsnodes json": (
        "PBS",
        json.dumps({"nodes": {"n1": {"state": "free"}, "n2": {"state": "?"}}}),
    ),
    "bhosts": (
        "LSF",
        "HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP RSV\nn1 ok - 9 3 3 0 0\nn2 ? - 9 0 0 0 0\n",
    ),
    "qstat -f": (
        "SGE",
        "queuename qtype resv/used/tot. load_avg arch states\nq@n1 BIP 0/2/16 1.01 lx-amd64\n"
        "q@n2 BIP 0/0/16 -NA- lx-amd64 ?\n",
    ),
    "qhost": (
        "",
        "HOSTNAME ARCH NCPU LOAD MEMTOT\nglobal - - - -\nn1 lx-amd64 4 0.1 8G\nn2 lx-amd64 4 - 8G\n",
    ),
    "kubectl": ("", json_of("items", kube("n1"), kube("n2", "Unknown"))),
    "kubectl, not ready": ("", json_of("items", kube("n1"), kube("n2", "False"))),
    "kubectl, cordoned": (
        "",
        json_of("items", kube("n1"), kube("n2", unschedulable=True)),
    ),
}


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (each, state)
        for each, (kind, _) in DOWN.items()
        for state in STATES[kind].split()
    ],
)
def test_nodes_that_are_down_in_the_list_are_not_idle(command: str, state: str) -> None:
    """Also those that ran no job: they count as unavailable; those that power saving took down are told of."""
    made = machine(DOWN[command][1].replace("?", state), uncertain="unavailable")
    saves = state in POWER_SAVING.split()
    assert made.trace.nodes == ("n1", "n2")
    assert (made.coverage.busy, made.coverage.unavailable) == (
        0.5,
        0.0 if saves else 0.5,
    )
    told = (
        "power saving takes nodes of the list down"
        if saves
        else "are DOWN or drained in the list of nodes"
    )
    assert any(told in each and "50.00%" in each for each in made.account.warnings())


def test_a_resource_set_of_flux_that_contradicts_itself() -> None:
    made = machine(json.dumps(FLUX_R).replace("n2,n2", "n2"))
    assert made.trace.nodes == ("n1", "n2")
    assert "R of Flux has another number of hosts than of ranks" in made.account.notes
    for before, after, reason in (
        ('"nodelist"', '"hosts"', "expected execution with R_lite and nodelist"),
        ("n2,n2", "n[2-", "a list of nodes or ranks cannot be read"),
        ("1-2", "2-1", "a list of nodes or ranks cannot be read"),
    ):
        with pytest.raises(InputError, match=reason):
            machine(json.dumps(FLUX_R).replace(before, after))


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("n1,4\nn2\n", "skipped", "holds names and numbers: a row of a table"),
        ("NODES STATE\n2 idle\nn2 idle\n", "skipped", "column NODES names no node"),
        ("cores,node\n4\n4,n2\n", "skipped", "column NODE names no node"),
        (
            "PARTITION NODELIST STATE\np idle\np n2 idle\n",
            "skipped",
            "column NODELIST names no node",
        ),
        ("n[1-\nn2\n", "skipped", "is no list of nodes"),
        ("node,since\nn3,\udcff\nn2,\n", "skipped", "column since holds no time"),
        (
            "node,since,until\nn3,2024-01-02,2024-01-01\nn2,,\n",
            "skipped",
            "column until is before since",
        ),
        (
            "node,was\nn[3-4],m3\nn2,\n",
            "skipped",
            "column was holds another number of names",
        ),
        ('{"nodes": [{"name": "n2"}, {"cpus": 4}]}', "skipped", "is no JSON of nodes"),
        (
            "NodeName=n2\nNodeName=n[3-4] State=FUTURE\n",
            "left_out",
            "a node that is not there yet (state FUTURE)",
        ),
        (
            "ClusterName=c\nInclude more.conf\nNodeName=n2\n",
            "notes",
            "an included file was not read",
        ),
        ("n2 n3\n", "notes", "only the first word of a line was read as a node"),
    ],
)
def test_rows_of_a_list_that_are_not_read_are_reported(
    text: str, kind: str, reason: str
) -> None:
    made = machine(text, "n2")
    assert made.trace.nodes == ("n2",)
    assert [why for why in getattr(made.account, kind) if why.startswith(reason)]
    if kind == "skipped":
        with pytest.raises(InputError, match=rf"list: line \d: {reason}"):
            machine(text, "n2", strict=True)


@pytest.mark.parametrize("text", ["\n", "# n1\n", "PARTITION NODELIST\n", "NodeName=n1 State=FUTURE\n", '{"nodes": []}',
                                  '{"jobs": []}', "PartitionName=p Nodes=ALL\n"])  # fmt: skip
def test_a_list_that_names_no_node_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"names no node|not JSON with a list 'sinfo' or 'nodes'"
    ):
        machine(text)


def test_vnodes_of_the_list_are_the_hosts_of_the_jobs() -> None:
    record = "02/09/2021 20:00:00;E;{0}.srv;exec_vnode=({1}[0]:ncpus=4)+({1}[1]:ncpus=4) start={2} end={3}\n"
    jobs = [(1, "n1", 0, 600), (2, "n2", 300, 900), (3, "n1", 800, 1200)]
    text = "".join(record.format(k, n, BEGIN_S + a, BEGIN_S + b) for k, n, a, b in jobs)
    trace = read_texts(
        "pbs", text, nodes=["list"], files={"list": AV}, window=(600, 1200)
    ).trace
    assert trace.nodes == ("n1", "n2")
    assert trace.idle_node_seconds() == 200 + 300


LINES = [
    *ASJ.split("\n"), *AV.split("\n"), "NODELIST", "n[1-2]", "{", '"nodes": {"n1": {', "}}", "#", "NodeName=n1 \\",
    "CLUSTER: a", "p up 1 2 idle n1", "n1,4", "a;node",
]  # fmt: skip


@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_any_mixture_of_lines_is_read_or_refused(lines: list[str]) -> None:
    try:
        made = machine("\n".join(lines))
    except InputError:
        return
    assert made.trace.nodes
