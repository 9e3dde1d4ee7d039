"""Host jobs, which `ingest` writes beside the trace; in the words of each scheduler: tests/data/logs/host-jobs.toml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bft.replay.cli.main import run
from bft.replay.trace.trace_files import read_trace


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_from_a_log_to_a_trace_with_its_host_jobs(
    scheduler: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--nodes", "8", "--days", "1", "-o", "log"]
    assert run(["generate", "log", scheduler, *size]) == 0
    assert run(["ingest", scheduler, "log", "--tz", "UTC", "-o", "trace.parquet"]) == 0
    trace = read_trace("trace.parquet")
    assert (here / "trace.jobs.parquet").exists()
    jobs = trace.host_jobs.counts()
    assert jobs["jobs"] == jobs["begun"] == jobs["with_limit"] > 20
    assert f"{jobs['jobs']} jobs" in capsys.readouterr().out
    assert run(["trace", "info", "trace.parquet", "--expected", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["expected"]
    # Jobs end before their limits: nodes leave no later than expected, but where later jobs go first.
    assert found["ratio"]["p90"] <= 1
