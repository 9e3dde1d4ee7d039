"""Job tables of other simulators: Tiresias' traces, the Standard Workload Format, Philly's log."""

from __future__ import annotations

import csv
import gzip
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from refusals import refused

from bft.models import JobTable
from bft.models.workloads.cluster_jobs import read_tiresias_jobs, read_venus_jobs
from bft.models.workloads.jobs_philly import read_philly_jobs
from bft.models.workloads.jobs_swf import read_swf_jobs

SECOND_NS = 10**9
TABLES: dict[str, Callable[..., JobTable]] = {
    "tiresias": read_tiresias_jobs,
    "swf": read_swf_jobs,
    "philly": read_philly_jobs,
    "venus": read_venus_jobs,
}
READERS: dict[str, Callable[[Path], JobTable]] = {
    "tiresias.csv": read_tiresias_jobs,
    "log.swf": read_swf_jobs,
    "cluster_job_log": read_philly_jobs,
}


def complaint(read: Callable[[Path], JobTable], path: Path) -> str:
    message = str(refused("", read, path))
    assert message.startswith(str(path))
    return message


CASES = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "read.toml").read_text("utf-8")
)["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["reader"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_jobs_of_a_table(case: dict[str, Any], packed: bool, tmp_path: Path) -> None:  # fmt: skip
    path = (
        tmp_path
        / f"table.{'swf' if case['reader'] == 'swf' else 'csv'}{'.gz' * packed}"
    )
    text = case["text"].encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    found = TABLES[case["reader"]](path, **case.get("options", {}))
    assert list(found.notes) == case.get("notes", [])
    for job, told in zip(found, case["jobs"], strict=True):
        for name, value in told.items():
            read = job.rates.tolist() if name == "rates" else getattr(job, name)
            assert read == (None if value == "none" else value), name


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
