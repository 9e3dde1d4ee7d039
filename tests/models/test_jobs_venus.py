"""Helios job tables and measured pairs, as Lucid's artifact has them."""

from __future__ import annotations

import gzip
import runpy
from pathlib import Path

import pytest
from refusals import refused

from bft.models import Job
from bft.models.sharing.xi_table import XiTable
from bft.models.workloads.cluster_jobs import read_venus_jobs

read_colocation = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "_colocation.py")
)["read_colocation"]
PAIRS = "model1,batchsize1,amp1,speed1,model2,batchsize2,amp2,speed2"


def table(
    folder: Path, *rows: str, header: str = PAIRS, name: str = "jobs.csv"
) -> Path:
    path = folder / name
    path.write_text("\n".join((header, *rows)) + "\n")
    return path


def job(tmp_path: Path, model: str, batch: int, amp: int) -> Job:
    header = "job_id,gpu_num,submit_time,duration,model,batchsize,amp"
    return read_venus_jobs(
        table(tmp_path, f"a,1,0,1,{model},{batch},{amp}", header=header, name="one.csv")
    ).jobs[0]


def ratios(table: XiTable, a: Job, b: Job) -> tuple[float, float] | None:
    sides = table.sides(a, b)
    return None if sides is None else (sides[0].of(), sides[1].of())


def test_speeds_become_ratios(tmp_path: Path) -> None:
    xi = read_colocation(table(tmp_path, "A,32,0,0.8,B,64,1,1.25"), indifferent=["Big"])
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


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("A,32,0,0,B,64,1,1", "speed1"),
        ("A,32,0,1,B,x,1,1", "batchsize2"),
        (",32,0,1,B,1,1,1", "model1"),
    ],
)
def test_bad_pairs_are_named(tmp_path: Path, row: str, column: str) -> None:
    caught = refused("", read_colocation, table(tmp_path, row))
    assert (caught.row, caught.column) == (1, column)


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
