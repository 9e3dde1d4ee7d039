"""Rows of several clusters: refused if nodes have equal names, else reported; selected with --cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic_logs_more import BEGIN_S, read_into

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs import Collector, Diagnosis, Settings, node_trace

A, B = BEGIN_S, BEGIN_S + 600
SACCT = f"Cluster|JobID|NodeList|Start|End\na|1|n[1-2]|{A}|{B}\nb|1|{{0}}|{A}|{B}\n"
COUNTS = f"Cluster|JobID|NNodes|Start|End\na|1|2|{A}|{B}\nb|1|3|{A}|{B}\n"
CSV = f"cluster,node,start,end\na,n1,{A},{B}\nb,{{0}},{A},{B}\n"
EVENTS = f"Cluster|NodeName|TimeStart|TimeEnd|State\na|n1|{A}|{B}|DOWN\nb|{{0}}|{A}|{B}|DOWN\n"
RESERVATIONS = (
    f"Cluster|Name|NodeNames|TimeStart|TimeEnd\na|r|n1|{A}|{B}\nb|r|{{0}}|{A}|{B}\n"
)
COBALT = (
    "MACHINE_NAME,START_TIMESTAMP,END_TIMESTAMP,NODES_USED,LOCATION\n"
    "a,2021-02-09 20:00:00,2021-02-09 21:00:00,1,n1\nb,2021-02-09 20:00:00,2021-02-09 21:00:00,1,{0}\n"
)
SINFO = "CLUSTER: a\nNODELIST STATE\nn1 idle\n\nCLUSTER: b\nNODELIST STATE\n{0} idle\n"
FEDERATION = "CLUSTER NODELIST STATE\na n1 idle\nb {0} idle\n"


def jobs_json(node: str) -> str:
    jobs = [
        {"cluster": c, "nodes": n, "time": {"start": A, "end": B}}
        for c, n in (("a", "n[1-2]"), ("b", node))
    ]
    return json.dumps({"jobs": jobs})


def sinfo_json(node: str) -> str:
    return json.dumps(
        {
            "sinfo": [
                {"cluster": c, "nodes": {"nodes": [n]}}
                for c, n in (("a", "n1"), ("b", node))
            ]
        }
    )


FORMS = {
    "sacct": ("slurm", SACCT.format),
    "sacct --json": ("slurm-json", jobs_json),
    "intervals": ("intervals", CSV.format),
    "events": ("slurm-events", EVENTS.format),
    "reservations": ("slurm-reservations", RESERVATIONS.format),
    "cobalt": ("cobalt", COBALT.format),
    "sinfo -M": ("slurm-nodes", SINFO.format),
    "sinfo --federation": ("slurm-nodes", FEDERATION.format),
    "sinfo --json": ("slurm-nodes", sinfo_json),
}
TOLD = "rows of several clusters were read as one machine: --cluster uses those of one"


def told(
    *texts: str, kind: str, cluster: str | None = None
) -> tuple[Collector, Diagnosis]:
    collected, diagnosis = Collector(), Diagnosis()
    read_into(
        collected, diagnosis, kind, *texts, settings=Settings(cluster=cluster), tz="UTC"
    )
    return collected, diagnosis


@pytest.mark.parametrize("form", FORMS)
def test_equal_names_of_nodes_of_two_clusters_are_refused(form: str) -> None:
    kind, write = FORMS[form]
    with pytest.raises(
        InputError,
        match=r"log\.0: node n1 is named by rows of cluster 'a' and of cluster 'b'.*--cluster",
    ):
        told(write("n1"), kind=kind)


@pytest.mark.parametrize("form", FORMS)
def test_clusters_with_distinct_names_are_one_machine_with_a_note(form: str) -> None:
    kind, write = FORMS[form]
    collected, diagnosis = told(write("m1"), kind=kind)
    assert {"n1", "m1"} <= set(collected.names)
    assert str(diagnosis.notes[TOLD]) == "'a, b'"


@pytest.mark.parametrize("form", FORMS)
def test_one_cluster_is_selected(form: str) -> None:
    kind, write = FORMS[form]
    collected, diagnosis = told(write("n1"), kind=kind, cluster="B")
    assert list(collected.names) == ["n1"]
    assert diagnosis.used == 1
    assert [
        ("another cluster" in why or "another machine" in why)
        for why in diagnosis.left_out
    ] == [True]
    assert not diagnosis.notes


def test_clusters_are_distinguished_over_files_and_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = SACCT.format("m1").splitlines(keepends=True)
    Path("a.sacct").write_text("".join(lines[:2]))
    Path("b.sacct").write_text("".join([lines[0], lines[2].replace("m1", "n2")]))
    Path("events").write_text(EVENTS.format("n2").replace("a|n1", "a|n2"))
    assert run(["ingest", "slurm", "a.sacct", "b.sacct", "-o", "t.csv"]) == 2
    assert (
        "b.sacct: node n2 is named by rows of cluster 'a' and of cluster 'b'"
        in capsys.readouterr().err
    )
    assert run(["ingest", "slurm", "a.sacct", "--events", "events", "-o", "t.csv"]) == 2
    assert (
        "events: node n2 is named by rows of cluster 'a' and of cluster 'b'"
        in capsys.readouterr().err
    )
    window = [
        "--from",
        "2021-02-09T19:46:40",
        "--to",
        "2021-02-09T20:06:40",
        "--tz",
        "UTC",
    ]
    args = ["a.sacct", "b.sacct", "--events", "events", "--cluster", "a", *window]
    assert run(["ingest", "slurm", *args, "-o", "t.csv"]) == 0


def test_the_short_name_of_one_cluster_is_not_the_full_one_of_another() -> None:
    for cluster, nodes in (("a", ["n1", "n2"]), ("b", ["n1", "n1.b.org", "n2"])):
        text = f"Cluster|JobID|NodeList|Start|End\na|1|n[1-2]|{A}|{B}\n{cluster}|2|n1.b.org|{A}|{B + 60}\n"
        collected, diagnosis = told(text, kind="slurm")
        trace, _ = node_trace(collected, diagnosis)
        assert list(trace.nodes) == nodes


def test_too_many_nodes_in_json_are_refused() -> None:
    with pytest.raises(InputError, match="more than 1 nodes"):
        read_into(Collector(most_nodes=1), Diagnosis(), "slurm-json", jobs_json("n3"))


def test_counts_of_several_clusters_are_reported() -> None:
    collected, diagnosis = told(COUNTS, kind="slurm")
    assert collected.counted()[0].tolist() == [2, 3]
    assert TOLD in diagnosis.notes


@pytest.mark.parametrize(
    ("log_format", "text"),
    [
        ("slurm", f"JobID|NodeList|Start|End\n1|n1|{A}|{B}\n"),
        ("intervals", f"node,start,end\nn1,{A},{B}\n"),
        ("swf", f"1 {A} 0 600 4 -1 -1 4 9 -1 1 1 1 -1 -1 1 -1 -1\n"),
    ],
)
def test_a_cluster_that_cannot_be_selected_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    log_format: str,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log").write_text(text)
    window = [
        "--from",
        "2021-02-09T19:46:40",
        "--to",
        "2021-02-09T20:06:40",
        "--tz",
        "UTC",
    ]
    assert (
        run(["ingest", log_format, "log", "--cluster", "a", "-o", "t.csv", *window])
        == 0
    )
    assert "no cluster is stated: --cluster was not applied" in capsys.readouterr().out


def test_a_row_without_a_cluster_among_others_is_of_any() -> None:
    collected, diagnosis = told(
        f"{SACCT.format('m1')}|2|n1|{A}|{B}\n", kind="slurm", cluster="b"
    )
    assert list(collected.names) == ["m1", "n1"]
    assert [(tally.count, tally.line) for tally in diagnosis.notes.values()] == [(1, 4)]
