"""Small inputs for tests of studies."""

from pathlib import Path

import numpy as np
import pytest

from bft.models import Curve, Job, JobTable, write_jobs
from bft.replay import from_changes
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import write_trace


@pytest.fixture
def files(here: Path) -> list[str]:
    """A few nodes for a few hours, and jobs for them."""
    rng = np.random.default_rng(5)
    times = np.sort(rng.integers(0, 6 * 3600, 24)) * SECOND_NS
    trace = from_changes(
        [f"n{k}" for k in range(4)],
        times,
        rng.integers(0, 4, 24).astype(np.int32),
        np.arange(24) % 3 < 2,
        end=6 * 3600 * SECOND_NS,
    )
    curve = Curve([0, 1, 4], [0, 10, 30])
    jobs = [
        Job(
            f"j{k}",
            k * 900 * SECOND_NS,
            1,
            4,
            6e4 * (1 + k % 3),
            30,
            20,
            curve,
            curve,
            jreq=1,
        )
        for k in range(8)
    ]
    write_trace(trace, here / "trace.parquet")
    write_jobs(JobTable(tuple(jobs)), here / "jobs.parquet")
    return [
        "-ndmap",
        "trace.parquet",
        "--jobs",
        "jobs.parquet",
        "--backend",
        "exact",
        "--no-u",
    ]
