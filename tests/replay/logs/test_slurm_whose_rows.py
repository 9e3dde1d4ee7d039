"""Whose row it is: the cluster, partition and units of a row of `sacct`, by columns and row by row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bft.models import InputError
from bft.replay.cli.main import run
from bft.replay.logs.from_files import Ingested, IngestOptions, ingested
from bft.replay.logs.slurm_table import Table

# 2024-01-01, UTC.
T, HOUR = 1_704_067_200, 3600
HOURS = [T + hour * HOUR for hour in range(11)]
AMBIGUOUS = (
    "has another number of fields than columns, and which belong together is not clear"
)
CUT_OFF = "has fewer fields than columns: cut off?"


@pytest.fixture(params=["by columns", "row by row"])
def logs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder for logs, which are read in this way."""
    monkeypatch.chdir(tmp_path)
    if request.param == "row by row":
        monkeypatch.setattr(Table, "columnar", False)
    return tmp_path


def idle(*files: str, hours: int, form: str = "slurm", **options: Any) -> float:
    """Share of the node-time that is idle."""
    return read(*files, hours=hours, form=form, **options).coverage.idle


def read(*files: str, hours: int, form: str = "slurm", **options: Any) -> Ingested:
    asked = IngestOptions(
        tz="UTC",
        begin="2024-01-01T00:00:00",
        end=f"2024-01-01T{hours:02}:00:00",
        allow_few=True,
        **options,
    )
    return ingested(form, files, asked)


def write(name: str, *lines: str) -> str:
    Path(name).write_text("\n".join(lines) + "\n")
    return name


WITH_CLUSTER = (
    "JobID|Cluster|NodeList|Start|End|State",
    f"1|alpha|n1|{HOURS[0]}|{HOURS[1]}|COMPLETED",
    f"3|alpha|n2|{HOURS[8]}|{HOURS[10]}|FAILED",
)
RUNNING = (
    "JobID|NodeList|Start|End|State",
    f"1|n1|{HOURS[0]}|Unknown|RUNNING",
)
LISTED = (
    "JobId=1 JobName=x",
    "   UserId=u(1) GroupId=u(1) MCS_label=N/A",
    "   JobState=RUNNING Reason=None",
    "   StartTime=2024-01-01T00:00:00 EndTime=2024-01-05T00:00:00 Deadline=N/A",
    "   Partition=gpu AllocNode:Sid=l:1",
    "   NodeList=n1",
    "   NumNodes=1 NumCPUs=1",
)


@pytest.mark.parametrize("open_record", [RUNNING, LISTED], ids=["sacct", "scontrol"])
@pytest.mark.parametrize("cluster", [None, "alpha", "Alpha"])
@pytest.mark.parametrize("first", [True, False])
def test_a_record_without_a_cluster_is_of_the_only_one(
    logs: Path, open_record: tuple[str, ...], cluster: str | None, first: bool
) -> None:
    files = [write("open", *open_record), write("ended", *WITH_CLUSTER)]
    files = files if first else files[::-1]
    made = read(*files, hours=10, nodes=("n[1-2]",), cluster=cluster)
    assert made.coverage.idle == pytest.approx(1 - 3 / 20)
    assert not any("several clusters" in why for why in made.diagnosis.notes)


@pytest.mark.parametrize("cluster", [None, "a"])
def test_json_and_tables_state_one_job_alike(logs: Path, cluster: str | None) -> None:
    table = write(
        "table",
        "JobID|Cluster|NodeList|Start|End|State",
        f"1|a|g1|{HOURS[0]}|Unknown|RUNNING",
        f"9|a|g2|{HOURS[0]}|{HOURS[3]}|FAILED",
    )
    times = {"start": HOURS[0], "end": HOURS[1]}
    jobs = [{"job_id": 1, "cluster": "a", "nodes": "g1", "time": times}]
    text = write("jobs.json", json.dumps({"jobs": jobs}, indent=1))
    share = idle(table, text, hours=3, form="auto", nodes=("g[1-2]",), cluster=cluster)
    assert share == pytest.approx(1 - 4 / 6)


def test_ids_without_a_cluster_beside_several_clusters_are_said(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several = write("several", *WITH_CLUSTER, f"1|beta|m1|{HOURS[0]}|{HOURS[9]}|x")
    unstated = write("unstated", *RUNNING, f"2|n2|{HOURS[0]}|{HOURS[1]}|COMPLETED")
    args = ["ingest", "slurm", several, unstated, "--tz", "UTC", "--allow-few"]
    assert run([*args, "-o", "t.csv"]) == 0
    said = capsys.readouterr().err
    assert "warning: jobs of several clusters were read, and jobs whose cluster" in said
    assert "taken for that of a job of cluster 'alpha'" in said
    assert "unstated, line 2" in said


NAMED = (
    "JobID|JobName|{}|Comment|Start|End|NodeList|State",
    f"1|run|gpu||{HOURS[0]}|{HOURS[1]}|g1|COMPLETED",
    f"2|my|name|gpu||{HOURS[1]}|{HOURS[4]}|g1|COMPLETED",
    f"3|run|gpu||{HOURS[4]}|{HOURS[5]}|g1|FAILED",
    f"4|run|gpu||{HOURS[0]}|{HOURS[5]}|g2|COMPLETED",
)


@pytest.mark.parametrize("column", ["Partition", "Cluster"])
def test_a_row_whose_partition_or_cluster_is_not_clear_is_skipped(
    logs: Path, capsys: pytest.CaptureFixture[str], column: str
) -> None:
    file = write("log", NAMED[0].format(column), *NAMED[1:])
    args = ["--tz", "UTC", "--from", "2024-01-01", "--to", "2024-01-01T05:00:00"]
    asked = [f"--{column.lower()}", "gpu", *args, "-o", "t.csv"]
    assert run(["ingest", "slurm", file, *asked]) == 0
    said = capsys.readouterr()
    assert f"{AMBIGUOUS}: 1 (first: log, line 3, 9 of 8)" in said.out
    assert "25.0% of the rows with information on nodes were skipped" in said.err
    assert "uncertain: 23.3% of the node-time (skipped rows 23.3%)" in said.err


def test_a_row_whose_partition_nobody_asks_for_is_used(logs: Path) -> None:
    made = read(write("log", NAMED[0].format("Partition"), *NAMED[1:]), hours=5)
    assert not made.diagnosis.skipped
    assert made.coverage.idle == 0


def test_what_a_job_holds_is_where_it_looks_like_resources(logs: Path) -> None:
    held = "cpu=1,gres/gpu=4"
    file = write(
        "log",
        "JobID|JobName|AllocTRES|Comment|Start|End|NodeList|State",
        f"1|a|{held}||{HOURS[0]}|{HOURS[1]}|g1|COMPLETED",
        f"2|p|q|{held}||{HOURS[1]}|{HOURS[3]}|g1|COMPLETED",
        f"3|a|{held}||{HOURS[3]}|{HOURS[4]}|g1|FAILED",
    )
    made = read(file, hours=4, unit="gpu", units_per_node=4)
    assert not made.diagnosis.skipped
    assert made.coverage.idle == 0


TWO_HEADERS = (
    "JobID|User|Partition|NodeList|Start|End|State",
    f"1|gpu|cpu|g1|{HOURS[0]}|{HOURS[1]}|COMPLETED",
    f"2|al|gpu|g1|{HOURS[2]}|{HOURS[3]}|COMPLETED",
    "JobID|Partition|User|NodeList|Start|End|State",
    f"3|gpu|al|g1|{HOURS[4]}|{HOURS[5]}|FAILED",
)


@pytest.mark.parametrize("partition", [None, "gpu"])
@pytest.mark.parametrize("before", [[], ["2|al|gpu|g1"]], ids=["", "after a cut row"])
@pytest.mark.parametrize("more", ["", "|JobName"])
def test_a_header_with_other_columns_within_a_file_is_refused(
    logs: Path, partition: str | None, before: list[str], more: str
) -> None:
    *rows, header, last = TWO_HEADERS
    file = write("log", *rows, *before, header + more, last)
    line = 4 + len(before)
    with pytest.raises(
        InputError, match=f"line {line}: a header with other columns"
    ) as why:
        read(file, hours=6, partition=partition)
    assert "expected jobid|user|partition|nodelist|start|end|state" in str(why.value)


@pytest.mark.parametrize("mark", ["|", ","])
@pytest.mark.parametrize("quote", ["", '"'])
def test_so_is_one_whose_columns_are_renamed(logs: Path, mark: str, quote: str) -> None:
    theirs = [line.replace("Partition", "Queue") for line in TWO_HEADERS]
    rows = [
        mark.join(f"{quote}{cell}{quote}" for cell in line.split("|"))
        for line in theirs
    ]
    stated = ",".join(
        f"{name}={name}" for name in ("JobID", "NodeList", "Start", "End")
    )
    with pytest.raises(InputError, match="line 4: a header with other columns"):
        read(
            write("log", *rows),
            hours=6,
            partition="gpu",
            columns=f"Partition=Queue,{stated}",
        )


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("columns", ["", "Partition=Queue,JobID=Job"])
def test_a_header_that_repeats_is_no_row(logs: Path, mark: str, columns: str) -> None:
    header = "JobID|NodeList|Start|End|State|Partition"
    if columns:
        header = header.replace("JobID", "Job").replace("Partition", "Queue")
    file = write(
        "log",
        header,
        f"1|g1|{HOURS[0]}|{HOURS[1]}|COMPLETED|gpu",
        mark + header,
        f"2|g1|{HOURS[1]}|{HOURS[2]}|FAILED|gpu",
    )
    made = read(file, hours=2, partition="gpu", columns=columns)
    assert (made.diagnosis.rows, made.diagnosis.used) == (2, 2)
    assert not any("partitions" in why for why in made.diagnosis.notes)
    assert made.coverage.idle == 0


@pytest.mark.parametrize("partition", [None, "gpu"])
def test_a_row_that_ends_before_its_partition_is_skipped(
    logs: Path, partition: str | None
) -> None:
    file = write(
        "log",
        "JobID|NodeList|Start|End|State|User|Partition",
        f"1|g1|{HOURS[0]}|{HOURS[1]}|COMPLETED|a|gpu",
        f"2|g1|{HOURS[1]}|{HOURS[4]}|COMPLETED|a",
        f"3|g1|{HOURS[4]}|{HOURS[5]}|FAILED|a|gpu",
        f"4|g2|{HOURS[0]}|{HOURS[5]}|COMPLETED|a|gpu",
    )
    made = read(file, hours=5, partition=partition)
    assert not made.diagnosis.left_out
    assert list(made.diagnosis.skipped) == ([CUT_OFF] if partition else [])
    assert made.coverage.idle == pytest.approx(0.3 if partition else 0)
    # As long as the other three jobs on average.
    lost = [(1 + 1 + 5) / 3 / 10] if partition else []
    uncertain = made.trace.uncertain
    shares = [] if uncertain is None else [share for _, share in uncertain.parts]
    assert shares == pytest.approx(lost)


def test_blank_lines_are_no_rows_of_another_partition(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        f"{k}|g1|{HOURS[k]}|{HOURS[k + 1]}|{state}|gpu"
        for k, state in enumerate(("COMPLETED", "COMPLETED", "FAILED"))
    ]
    header = "JobID|NodeList|Start|End|State|Partition"
    file = write("log", header, rows[0], "", rows[1], "", rows[2], "")
    assert run(["ingest", "slurm", file, "--partition", "gpu", "-o", "t.csv"]) == 0
    said = capsys.readouterr()
    assert "rows 3" in said.out
    assert "other partitions" not in said.err


def test_rows_without_a_cluster_are_counted_once(logs: Path) -> None:
    ends = (HOURS[1], "Unknown", "Unknown", HOURS[2])
    rows = [
        f"{k}||n{k}|{HOURS[0]}|{end}|{'RUNNING' if end == 'Unknown' else 'FAILED'}"
        for k, end in enumerate(ends)
    ]
    file = write("log", *WITH_CLUSTER, *rows)
    made = read(file, hours=3, cluster="alpha")
    why = "no cluster is stated: --cluster was not applied"
    assert made.diagnosis.notes[why].count == len(rows)
