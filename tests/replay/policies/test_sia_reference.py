"""Sia against its own simulator: the first jobs of a workload end in the same second, on as many GPU-seconds.

On a cluster of several kinds of GPUs any first start is a tie: there means are compared.
"""

import csv
import gzip
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from reference_data import folder

from bft.models.workloads.jobs_pollux import read_pollux_jobs
from bft.replay import Replay, Rules, always_idle
from bft.replay.policies.sia import Sia
from bft.replay.trace.node_trace import SECOND_NS

REFERENCE = folder()
needs_reference = pytest.mark.skipif(
    not (REFERENCE / "sia").is_dir(), reason="no reference data of Sia (BFT_REFERENCE)"
)


@pytest.mark.slow
@pytest.mark.reference
@needs_reference
def test_jobs_that_no_tie_concerns_end_in_the_same_second(tmp_path: Path) -> None:
    """Jobs of the first hour, in which no job is submitted but those that are kept here."""
    traces = tmp_path / "traces"
    shutil.copytree(REFERENCE / "pollux" / "traces", traces)
    shutil.copy(REFERENCE / "sia" / "applications.csv", traces)
    rows = (REFERENCE / "sia" / "workloads" / "philly" / "workload-1.csv").read_text()
    workload = tmp_path / "workload.csv"
    workload.write_text("\n".join(rows.splitlines()[:23]) + "\n")
    jobs = read_pollux_jobs(workload, traces, whole_seconds=True, published_fit=True)
    rules = Rules(
        max_jobs=0,
        start_overhead_s=30.0,
        restart_overhead=((1, 30.0),),
        free_moves=True,
    )
    policy = Sia(freeze=True, user_batch=True, free_moves=True)
    trace = always_idle(16, 0, 10**6 * SECOND_NS, units_per_node=4)
    replay = Replay(trace, jobs, policy, rules)
    records = replay.run(should_stop=lambda: replay.now > 3900 * SECOND_NS).records
    golden = REFERENCE / "sia" / "golden" / "sia-philly-1-homogeneous.jobs.csv.gz"
    with gzip.open(golden, "rt") as stream:
        theirs = {row["job"]: row for row in csv.DictReader(stream)}
    ours = {record.job.name: record for record in records}
    same = []
    for name, record in ours.items():
        end_s, held = (
            float(theirs[name][column]) for column in ("end_s", "held_gpu_s")
        )
        if record.finish_ns == end_s * SECOND_NS and record.unit_seconds == held:
            same.append(name)
    assert same == ["cifar10-0", "cifar10-6", "cifar10-7", "cifar10-10", "cifar10-12"]


@pytest.mark.slow
@pytest.mark.reference
@needs_reference
def test_on_three_kinds_of_gpus_the_mean_is_theirs_but_for_ties() -> None:
    """One order of ties moves the mean JCT by up to some 5 %; the page has means over three."""
    command = Path(__file__).parents[3] / "benchmarks" / "fidelity_sia.py"
    cell = "sia-philly-1-heterogeneous"
    done = subprocess.run(
        [sys.executable, str(command), "--cells", cell, "--seeds", "1"],
        capture_output=True,
        text=True,
        check=True,
    )
    row = next(line for line in done.stdout.splitlines() if line.startswith("| 1, "))
    theirs, ours = row.split("|")[2:4]
    assert float(ours) == pytest.approx(float(theirs), rel=0.06)
