"""Pages and small runs for the tests of reports."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bft.replay.cli.main import run

JOB = {"Jmin": 1, "Jmax": 1, "Tsub": "2021-02-10T00:00:00Z", "Tcup": 0, "Tcdw": 0, "Ns": [0, 1], "Ps": [0, 1],
       "Os": [0, 1]}  # fmt: skip


@pytest.fixture
def traced(here: Path) -> Callable[..., str]:
    """Writes a trace of one day, by nodes of one letter and rows such as `02:00 01`: who is idle from 2 o'clock on."""

    def write(nodes: str, *rows: str) -> str:
        lines = [f"time,{','.join(nodes)}"]
        for row in rows:
            time, idle = row.split()
            lines.append(f"2021-02-10T{time}:00Z,{','.join(idle)}")
        (here / "trace.csv").write_text("\n".join(lines) + "\n")
        return "trace.csv"

    return write


@pytest.fixture
def ran(here: Path) -> Callable[..., Path]:
    """Replays jobs, each stated by what differs from `JOB`, on the trace that is there; returns the run directory."""

    def replay(jobs: list[dict[str, Any]], *options: str, out: str = "run") -> Path:
        rows = (json.dumps({"name": f"j{k}", **JOB, **job}) for k, job in enumerate(jobs))  # fmt: skip
        (here / "jobs.jsonl").write_text("\n".join(rows) + "\n")
        files = ["-ndmap", "trace.csv", "--jobs", "jobs.jsonl"]
        assert run([*files, *options, "--out", out]) == 0
        return here / out

    return replay


@pytest.fixture
def page(here: Path) -> Callable[..., str]:
    """Writes a page, and returns what is in it."""

    def write(*args: str | Path) -> str:
        assert run(["report", *map(str, args), "-o", "page.html", "--force"]) == 0
        return (here / "page.html").read_text("utf-8")

    return write
