"""Job tables of other simulators: Tiresias' traces, the Standard Workload Format, Philly's log."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from refusals import refused

from bft.models import JobTable
from bft.models.workloads.cluster_jobs import read_tiresias_jobs
from bft.models.workloads.jobs_philly import read_philly_jobs
from bft.models.workloads.jobs_swf import read_swf_jobs

SECOND_NS = 10**9
READERS: dict[str, Callable[[Path], JobTable]] = {
    "tiresias.csv": read_tiresias_jobs,
    "log.swf": read_swf_jobs,
    "cluster_job_log": read_philly_jobs,
}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def complaint(read: Callable[[Path], JobTable], path: Path) -> str:
    message = str(refused("", read, path))
    assert message.startswith(str(path))
    return message


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_of_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert "no such file" in complaint(READERS[name], path).lower()
    path.mkdir()
    assert "is a directory" in complaint(READERS[name], path)
    path.rmdir()
    path.touch()
    assert "empty" in complaint(READERS[name], path)
    path.write_bytes(bytes(range(256)))
    complaint(READERS[name], path)
    path.write_bytes(b"PAR1" + bytes(100))
    complaint(READERS[name], path)
    if name != "tiresias.csv":
        path.write_bytes(gzip.compress(b"1 " * 10_000)[:-20])
        assert "damaged or cut short" in complaint(READERS[name], path)


@pytest.mark.parametrize("name", READERS)
@examples(
    30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(content=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_anything_is_a_table_or_an_input_error(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    complaint(READERS[name], path)


# --- Tiresias ---------------------------------------------------------------------------------------------------------

HEAD = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"


def test_a_trace_of_tiresias(tmp_path: Path) -> None:
    path = written(
        tmp_path, "t.csv", HEAD + "7,8,30,133,vgg11,147,23\n8,1,30.5,9,resnet50,2.5,0\n"
    )
    first, second = read_tiresias_jobs(path)
    assert (first.name, first.tsub_ns, first.jmin, first.request, first.jmax) == (
        "7",
        30 * SECOND_NS,
        8,
        8,
        8,
    )
    assert (first.model, first.pmax, first.rates[8], first.tcup_s, first.tcdw_s) == (
        "vgg11",
        147,
        1,
        0,
        0,
    )
    assert dict(first.extra) == {"iterations": 133, "interval": 23}
    assert (second.tsub_ns, second.pmax) == (30_500_000_000, 2.5)


def test_skew_may_be_a_column(tmp_path: Path) -> None:
    text = "job_id,num_gpu,submit_time,duration,skew,spread_slowdown\na,2,0,1,0.7,1.5\nb,2,0,1,,\n"
    first, second = read_tiresias_jobs(written(tmp_path, "t.csv", text))
    assert (first.skew, first.spread_slowdown) == (0.7, 1.5)
    assert (second.skew, second.spread_slowdown) == (None, 1.0)


def test_jobs_that_need_nothing_are_left_out(tmp_path: Path) -> None:
    path = written(
        tmp_path, "t.csv", HEAD + "1,0,0,1,a,5,0\n2,1,0,1,a,0,0\n3,1,0,1,a,5,0\n"
    )
    jobs = read_tiresias_jobs(path)
    assert [job.name for job in jobs] == ["3"]
    assert jobs.notes == ("jobs left out: 2 without GPUs or duration",)
    assert "no job to replay" in complaint(
        read_tiresias_jobs, written(tmp_path, "t.csv", HEAD + "1,0,0,1,a,5,0\n")
    )


@pytest.mark.reference
@pytest.mark.parametrize(("name", "jobs"), [("60_job", 60), ("venus_vcHvQ", 2654)])
def test_published_traces(reference: Path, name: str, jobs: int) -> None:
    path = reference / "tiresias" / f"{name}.csv"
    found = [
        (job.name, job.tsub_ns, job.request, job.pmax, job.model)
        for job in read_tiresias_jobs(path)
    ]
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = ("job_id", "submit_time", "num_gpu", "duration", "model_name")
    told = [tuple(row[column] for column in columns) for row in rows]
    assert len(found) == jobs
    assert found == [
        (name, int(at) * SECOND_NS, int(gpus), float(took), model)
        for name, at, gpus, took, model in told
    ]


# --- the Standard Workload Format -------------------------------------------------------------------------------------

SWF = """; Version: 2.2
; UnixStartTime: 1000000000
; MaxNodes: 10
; MaxProcs: 80
;
 1  10  5 100  16 -1 -1 32 3600 -1 1 7 2 3 4 1 -1 -1
 2  20  5 50.5 -1 -1 -1 9 -1 -1 1 -1 -1 -1 -1 -1 -1 -1
 3  30 -1 -1   -1 -1 -1 8 60 -1 5 7 2 3 4 1 -1 -1
 4  30  1 10    8 -1 -1 8 60 -1 2 7 2 3 4 1 -1 -1
"""


def test_a_workload(tmp_path: Path) -> None:
    jobs = read_swf_jobs(written(tmp_path, "log.swf", SWF))
    first, second = jobs
    assert jobs.notes == (
        "jobs left out: 1 that are parts of others (status 2 to 4), 1 that never ran",
    )
    assert (first.name, first.tsub_ns, first.request, first.pmax) == (
        "1",
        1_000_000_010 * SECOND_NS,
        2,
        100,
    )
    assert (first.user, first.vc) == ("7", "1")
    assert first.extra == {
        "requested_s": 3600.0,
        "status": "1",
        "group": "2",
        "executable": "3",
        "queue": "4",
    }
    assert (second.request, second.pmax, second.user, second.vc) == (2, 50.5, "", "")
    assert second.extra == {"status": "1"}


def test_units_may_be_processors(tmp_path: Path) -> None:
    path = written(tmp_path, "log.swf", SWF)
    assert [job.request for job in read_swf_jobs(path, processors_per_unit=1)] == [
        16,
        9,
    ]
    assert [job.request for job in read_swf_jobs(path, processors_per_unit=5)] == [4, 2]
    without_header = written(tmp_path, "plain.swf", SWF.replace("; Max", "; Least"))
    assert [job.request for job in read_swf_jobs(without_header)] == [16, 9]


def test_submits_may_be_epochs_and_the_file_compressed(tmp_path: Path) -> None:
    text = SWF.replace(" 1  10  5", " 1  1600000000  5")
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress(text.encode()))
    first, _ = read_swf_jobs(path)
    assert first.tsub_ns == 1_600_000_000 * SECOND_NS


@pytest.mark.reference
def test_a_published_workload(reference: Path) -> None:
    found = read_swf_jobs(reference / "logs" / "swf" / "alea-hpc2n-excerpt.swf.gz")
    assert len(found) == 3145
    first = found.jobs[0]
    assert (first.tsub_ns, first.request, first.pmax) == (
        1_027_839_845 * SECOND_NS,
        30,
        31405.0,
    )
    assert max(job.request for job in found) <= 240


# --- Philly -----------------------------------------------------------------------------------------------------------


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [
        {"ip": f"m{node}", "gpus": [f"gpu{k}" for k in range(count)]}
        for node, count in enumerate(gpus)
    ]
    return {"start_time": start, "end_time": end, "detail": detail}


def entry(name: str, *attempts: dict[str, Any], **other: Any) -> dict[str, Any]:
    known = {
        "status": "Pass",
        "vc": "ee9",
        "user": "ce2",
        "submitted_time": "2017-10-07 01:11:39",
    }
    return {**known, "jobid": name, "attempts": list(attempts), **other}


def test_a_log_of_philly(tmp_path: Path) -> None:
    once = entry("once", attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8))
    twice = entry(
        "twice",
        attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00", 8, 4),
        attempt("2017-10-07 02:00:00", "2017-10-07 02:00:30", 8),
        attempt("2017-10-07 02:01:00", "None", 8),
        attempt(None, "2017-10-07 02:00:30", 8),
        user=None,
    )
    never, cpu = (
        entry("never"),
        entry("cpu", attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23")),
    )
    path = written(tmp_path, "cluster_job_log", json.dumps([once, twice, never, cpu]))
    jobs = read_philly_jobs(path)
    first, second = jobs
    assert jobs.notes == (
        "jobs left out: 2 without an attempt that has GPUs, start and end",
    )
    assert (first.name, first.request, first.pmax, first.user, first.vc) == (
        "once",
        8,
        74.0,
        "ce2",
        "ee9",
    )
    assert (
        first.tsub_ns == 1_507_363_899 * SECOND_NS
    )  # 08:11:39 UTC: Pacific daylight saving time
    assert first.extra == {"status": "Pass", "attempts": 1}
    assert (second.request, second.pmax, second.user, second.extra["attempts"]) == (
        12,
        90.0,
        "",
        2,
    )


def test_clocks_that_are_put_back_do_not_shorten_jobs(tmp_path: Path) -> None:
    over = entry("a", attempt("2017-11-05 00:30:00", "2017-11-05 03:30:00", 1))
    path = written(tmp_path, "log.json", json.dumps([over]))
    assert read_philly_jobs(path).jobs[0].pmax == 4 * 3600
