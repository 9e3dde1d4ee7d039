"""The published data of other systems, which a clone does not have (benchmarks.data)."""

from __future__ import annotations

import os
from contextlib import redirect_stdout
from pathlib import Path
from sys import stderr

from bft.replay.cli.main import run

# Names of BFTrainer's job tables: seven networks, as speed-ups, and the search of ShuffleNets.
MIX, SEARCH = "ImageNet-imgps-{}-1001J", "hps-shufflenet-{}-1000J"
SACCT = "logs/slurm/xdmod-phillips.sacct.log.gz"


def reference_folder() -> Path:
    """The folder with published and golden data, which a clone does not have."""
    beside = Path(__file__).parents[2] / "shared" / "reference"
    folder = Path(os.environ.get("BFT_REFERENCE", beside))
    if not folder.is_dir():
        raise SystemExit(
            f"no reference data at {folder}: set BFT_REFERENCE to a folder that holds them"
        )
    return folder


def published_jobs(name: str = MIX) -> dict[str, str]:
    """Options that name a job table of BFTrainer."""
    file = str(reference_folder() / "bftrainer" / f"{name}.pkl")
    return {"job_bounds": file.format("Jbnd"), "job_curves": file.format("JNPs")}


def published_log() -> dict[str, str]:
    """Options that name the log of Summit and the 1,001 jobs of BFTrainer."""
    log = reference_folder() / "bftrainer" / "ndstat-10sdn6-evt.tar.gz"
    return {"node_trace": str(log), **published_jobs()}


def sacct_log(folder: Path) -> dict[str, str]:
    """Options that name the node trace of a log of 46 nodes, ingested into a folder, and BFTrainer's jobs."""
    trace = folder / "trace.parquet"
    if not trace.exists():
        log = str(reference_folder() / SACCT)
        words = ["--fields", "xdmod", "--tz", "UTC", "-o", str(trace)]
        with redirect_stdout(stderr):
            code = run(["ingest", "slurm", log, *words])
        assert code == 0
    return {"node_trace": str(trace), **published_jobs()}
