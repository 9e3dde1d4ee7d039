"""Job tables of other simulators (tests/data/read.toml): Tiresias', Helios', SWF, Philly's log; and measured pairs."""

import csv
import gzip
import runpy
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from refusals import refused

from bft.models import Job, JobTable
from bft.models.sharing.xi_table import XiTable
from bft.models.workloads.rigid_jobs import (
    read_philly_jobs,
    read_swf_jobs,
    read_tiresias_jobs,
    read_venus_jobs,
)

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


read_colocation = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "_published.py")
)["read_colocation"]
PAIRS = "model1,batchsize1,amp1,speed1,model2,batchsize2,amp2,speed2"


def job(tmp_path: Path, model: str, batch: int, amp: int) -> Job:
    path = tmp_path / "one.csv"
    row = f"a,1,0,1,{model},{batch},{amp}\n"
    path.write_text(f"job_id,gpu_num,submit_time,duration,model,batchsize,amp\n{row}")
    return read_venus_jobs(path).jobs[0]


def ratios(table: XiTable, a: Job, b: Job) -> tuple[float, float] | None:
    sides = table.sides(a, b)
    return None if sides is None else (sides[0].of(), sides[1].of())


def test_speeds_become_ratios(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(f"{PAIRS}\nA,32,0,0.8,B,64,1,1.25\n")
    xi = read_colocation(path, indifferent=["Big"])
    a, b, big = (
        job(tmp_path, "A", 32, 0),
        job(tmp_path, "B", 64, 1),
        job(tmp_path, "Big", 7, 1),
    )
    assert ratios(xi, a, b) == (1.25, 1.0)  # faster together is noise
    assert ratios(xi, b, a) == (1.0, 1.25)
    assert xi.clipped == 1
    assert (
        ratios(xi, a, job(tmp_path, "B", 64, 0)) is None
    )  # mixed precision is another load
    assert ratios(xi, a, job(tmp_path, "B", 32, 1)) is None
    assert ratios(xi, a, a) is None
    for one, other in ((a, big), (big, b), (big, big)):
        assert ratios(xi, one, other) == (1.0, 1.0)


@pytest.mark.reference
def test_the_venus_trace(reference: Path) -> None:
    folder = reference / "lucid"
    jobs = read_venus_jobs(folder / "venus_sept_jobs_relative.csv.gz")
    with gzip.open(folder / "venus_sept_original_order.txt.gz", "rt") as lines:
        assert [job.name for job in jobs] == lines.read().split()
    assert len(jobs) == 23_859
    assert len({job.vc for job in jobs}) == 15
    assert jobs.by_submit() == list(range(len(jobs)))
    xi = read_colocation(folder / "colocate_info.csv")
    kinds = list(
        {(job.model, job.batch_size): job for job in jobs if job.request <= 8}.values()
    )
    assert len(kinds) == 66
    assert all(ratios(xi, a, b) is not None for a in kinds for b in kinds)
