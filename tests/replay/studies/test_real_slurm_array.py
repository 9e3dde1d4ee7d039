"""A sweep on a real Slurm, as a job array: the results of this process; its jobs make a trace."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_slurm import Slurm, slurm_cluster

from bft.replay.cli.main import run
from bft.replay.trace.trace_files import read_trace

GRID = ["-Tfwd", "30,600", "-maxJ", "1,0"]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Two nodes."""
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), 2) as cluster:
        yield cluster


@pytest.mark.slow
def test_a_sweep_through_sbatch_and_its_jobs_back_through_sacct(
    files: list[str], slurm: Slurm
) -> None:
    assert run(["sweep", *files, "--workers", "0", *GRID, "--out", "here"]) == 0
    assert run(["sweep", *files, *GRID, "--script", "slurm", "--out", "array"]) == 0
    subprocess.run(
        ["sbatch", "array/sweep.slurm.sh"],
        env=slurm.env,
        check=True,
        capture_output=True,
    )
    slurm.wait_idle(patience_s=900)
    Path("nodes.txt").write_text(slurm.run("scontrol", "-o", "show", "node"))
    slurm.env["SLURM_TIME_FORMAT"] = "%s"
    columns = "--format=JobID,NodeList,AllocNodes,Start,End,State"
    jobs = slurm.run("sacct", "-a", "-X", "-D", "-P", "-S", "now-1days", columns)
    Path("sacct.txt").write_text(jobs)
    logs = {log.name: log.read_text() for log in Path("array/logs").iterdir()}
    assert jobs.count("COMPLETED") == 4, (jobs, logs)
    assert run(["sweep", "--collect", "--out", "array"]) == 0
    assert (
        Path("array/results.parquet").read_bytes()
        == Path("here/results.parquet").read_bytes()
    )
    # What Slurm wrote of these four jobs is a log like any other.
    assert (
        run(
            [
                "ingest",
                "slurm",
                "sacct.txt",
                "--nodes",
                "nodes.txt",
                "--min-gap",
                "0",
                "-o",
                "own.parquet",
            ]
        )
        == 0
    )
    assert read_trace("own.parquet").nodes == ("n1", "n2")
