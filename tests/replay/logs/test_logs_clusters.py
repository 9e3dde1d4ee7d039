"""Rows of several clusters: refused if nodes have equal names, else reported; selected with --cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from synthetic_logs_more import AROUND_S, BEGIN_S, read_files, read_texts, taken

from bft.models import InputError
from bft.replay.logs.ingest import Ingested

A, B = BEGIN_S, BEGIN_S + 600
SACCT = (
    f"Cluster|JobID|NodeList|Start|End\na|1|n[1-2]|{A}|{B}\nb|1|{{0}}|{A}|{B}\n".format
)
COUNTS = f"Cluster|JobID|NNodes|Start|End\na|1|2|{A}|{B}\nb|1|3|{A}|{B}\n"
EVENTS = f"Cluster|NodeName|TimeStart|TimeEnd|State\na|n1|{A}|{B}|DOWN\nb|{{0}}|{A}|{B}|DOWN\n".format


def jobs_json(node: str) -> str:
    jobs = [
        {"cluster": c, "nodes": n, "time": {"start": A, "end": B}}
        for c, n in (("a", "n[1-2]"), ("b", node))
    ]
    return json.dumps({"jobs": jobs})


def sinfo_json(node: str) -> str:
    rows = (("a", "n1"), ("b", node))
    lists = [{"cluster": c, "nodes": {"nodes": [n]}} for c, n in rows]
    return json.dumps({"sinfo": lists})


FORMS: dict[str, tuple[str, Callable[[str], str]]] = {
    "sacct": ("slurm", SACCT),
    "sacct --json": ("slurm-json", jobs_json),
    "intervals": ("intervals", f"cluster,node,start,end\na,n1,{A},{B}\nb,{{0}},{A},{B}\n".format),
    "events": ("slurm-events", EVENTS),
    "reservations": ("slurm-reservations",
                     f"Cluster|Name|NodeNames|TimeStart|TimeEnd\na|r|n1|{A}|{B}\nb|r|{{0}}|{A}|{B}\n".format),
    "cobalt": ("cobalt", "MACHINE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION\n"
               "a,2021-02-09 20:00:00,2021-02-09 21:00:00,1,n1\n"
               "b,2021-02-09 20:00:00,2021-02-09 21:00:00,1,{0}\n".format),
    "sinfo -M": ("slurm-nodes",
                 "CLUSTER: a\nNODELIST STATE\nn1 idle\n\nCLUSTER: b\nNODELIST STATE\n{0} idle\n".format),
    "sinfo --federation": ("slurm-nodes", "CLUSTER NODELIST STATE\na n1 idle\nb {0} idle\n".format),
    "sinfo --json": ("slurm-nodes", sinfo_json),
}  # fmt: skip
TOLD = "rows of several clusters were read as one machine: --cluster uses those of one"
CLASH = r"log\.0: node n1 is named by rows of cluster 'a' and of cluster 'b'.*--cluster"


@pytest.mark.parametrize("form", FORMS)
def test_two_clusters(form: str) -> None:
    """Of equal names of nodes they are refused, of others they are one machine with a note, or one is chosen."""
    kind, write = FORMS[form]
    with pytest.raises(InputError, match=CLASH):
        read_texts(kind, write("n1"))
    made = read_texts(kind, write("m1"))
    assert {"n1", "m1"} <= set(made.trace.nodes)
    assert str(made.account.notes[TOLD]) == "'a, b'"
    made = read_texts(kind, write("n1"), cluster="B")
    account = made.account
    assert made.trace.nodes == ("n1",)
    assert account.used == 1
    (why,) = account.left_out
    assert "another cluster" in why or "another machine" in why
    assert TOLD not in account.notes


def test_clusters_are_distinguished_over_files_and_formats() -> None:
    lines = SACCT("m1").splitlines(keepends=True)
    one, other = "".join(lines[:2]), "".join([lines[0], lines[2].replace("m1", "n2")])
    down = EVENTS("n2").replace("a|n1", "a|n2")
    beside: dict[str, Any] = {"files": {"down": down}, "events": ["down"]}
    clash = "node n2 is named by rows of cluster 'a' and of cluster 'b'"
    with pytest.raises(InputError, match=f"log.1: {clash}"):
        read_texts("slurm", one, other)
    with pytest.raises(InputError, match=f"down: {clash}"):
        read_texts("slurm", one, **beside)
    made = read_texts("slurm", one, other, cluster="a", **beside)
    assert taken(made.trace) == {("n1", 0, 600), ("n2", 0, 600)}


def test_the_short_name_of_one_cluster_is_not_the_full_one_of_another() -> None:
    for cluster, nodes in (("a", ("n1", "n2")), ("b", ("n1", "n1.b.org", "n2"))):
        text = f"Cluster|JobID|NodeList|Start|End\na|1|n[1-2]|{A}|{B}\n{cluster}|2|n1.b.org|{A}|{B + 60}\n"
        assert read_texts("slurm", text).trace.nodes == nodes


def test_counts_of_several_clusters_are_reported() -> None:
    made = read_texts("slurm", COUNTS)
    assert made.coverage.nodes == 5
    assert made.coverage.busy == pytest.approx(600 / 2 / AROUND_S)
    assert TOLD in made.account.notes


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("slurm", f"JobID|NodeList|Start|End\n1|n1|{A}|{B}\n"),
        ("intervals", f"node,start,end\nn1,{A},{B}\n"),
        ("swf", f"1 {A} 0 600 4 -1 -1 4 9 -1 1 1 1 -1 -1 1 -1 -1\n"),
    ],
)
def test_a_cluster_that_cannot_be_selected_is_reported(form: str, text: str) -> None:
    busy, account = read_files(form, text, cluster="a")
    assert {span[1:] for span in busy} == {(0, 600)}
    assert "no cluster is stated: --cluster was not applied" in account.notes


def test_a_row_without_a_cluster_among_others_is_of_any() -> None:
    made: Ingested = read_texts("slurm", f"{SACCT('m1')}|2|n1|{A}|{B}\n", cluster="b")
    assert made.trace.nodes == ("m1", "n1")
    (tally,) = (each for each in made.account.notes.values() if each.line)
    assert (tally.count, tally.line) == (1, 4)
