"""Sia's artifact: average job completion times of its own program, and ours with `--compat sia`.

    python benchmarks/fidelity_sia.py [--cells sia-philly-1-homogeneous,...] [--set NAME=VALUE ...]
    python benchmarks/fidelity_sia.py --inputs FOLDER

16 nodes of 4 T4, or 6 of 4 T4, 2 of 8 A100 and 3 of 8 RTX 2080 Ti: rounds of 60 s, speed and restart seconds by
application. `--inputs` writes the workloads and the folder of applications for the command line (docs/fidelity.md).
`--set` changes a constant of the policy, to see what it is worth. BFT_REFERENCE names the folder of reference data.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import pandas as pd
from _common import reference_folder

import bft

CLUSTERS = {"homogeneous": "16x4"}
YOLOV3_MOST = 16
# Cells of the artifact with other set-ups -> the restart seconds of all applications, None: as in its table.
WITHOUT_SLOWDOWN = {"noslowdown": None, "noslowdown-restart30": 30}


def write_inputs(reference: Path, folder: Path) -> None:
    """Write `traces` (measurements of T4, speed and restart seconds by application) and the workloads.

    Folders `traces-NAME` are the same for the cells of other set-ups.
    """
    for path in sorted((reference / "sia" / "workloads" / "philly").glob("*.csv")):
        shutil.copy(path, folder / path.name)
    stated = pd.read_csv(reference / "sia" / "applications.csv")
    columns = ["application", "slowdown", "restart_s", "policy_restart_s"]
    for variant in ("", *WITHOUT_SLOWDOWN):
        traces = folder / f"traces-{variant}".rstrip("-")
        shutil.copytree(reference / "pollux" / "traces", traces, dirs_exist_ok=True)
        table = stated[columns].copy()
        # Pollux' artifact allows yolov3 8 samples a replica, Sia's all that were measured.
        table["max_local_bsz"] = table["application"].map({"yolov3": YOLOV3_MOST})
        if variant:
            table["slowdown"] = 1.0
        if WITHOUT_SLOWDOWN.get(variant) is not None:
            table[["restart_s", "policy_restart_s"]] = WITHOUT_SLOWDOWN[variant]
        table.to_csv(traces / "applications.csv", index=False)


def replay(folder: Path, cell: str, constants: dict[str, str]) -> tuple[bft.Run, float]:
    """Replay a cell, such as sia-philly-1-homogeneous; also returns the CPU seconds."""
    _, _, workload, cluster, *variant = cell.split("-", 4)
    begun = time.process_time()
    run = bft.replay(
        jobs=folder / f"workload-{workload}.csv",
        jobs_format="pollux",
        applications=folder / "-".join(["traces", *variant]),
        cluster=CLUSTERS[cluster],
        policy="sia",
        compat="sia",
        policy_options=constants,
        dedicated=False,
    )
    return run, time.process_time() - begun


def main() -> None:
    """Print the table, or write the inputs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", help="default: all that are known")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--inputs", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    reference = reference_folder()
    if given.inputs is not None:
        given.inputs.mkdir(parents=True, exist_ok=True)
        write_inputs(reference, given.inputs)
        print(f"{given.inputs}: workloads and applications for --jobs-format pollux")
        return
    golden = pd.read_csv(reference / "sia" / "golden" / "summary.csv", index_col="run")
    known = [
        name
        for name in golden.index[golden["policy"] == "sia"]
        if name.split("-")[3] in CLUSTERS
    ]
    cells = known if given.cells is None else given.cells.split(",")
    constants = dict(pair.split("=", 1) for pair in given.set)
    print(
        f"{'cell':44} {'theirs, h':>9} {'ours, h':>9} {'mean':>9} {'p99':>9} {'makespan':>9} {'GPU-h':>9} "
        f"{'restarts':>13}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        write_inputs(reference, Path(scratch))
        for cell in cells:
            run, cpu_s = replay(Path(scratch), cell, constants)
            print(row(cell, golden.loc[cell], run), f"({cpu_s:.0f} s CPU)", flush=True)


def row(cell: str, goal: pd.Series, run: bft.Run) -> str:
    """Compare a replay with the artifact's run: a line of the table."""
    jobs, metrics = run.jobs, run.metrics
    mean_h = metrics["jct_s"]["mean"] / 3600
    ours = {
        "mean_jct_h": mean_h,
        "p99_jct_h": metrics["jct_s"]["p99"] / 3600,
        "makespan_from_first_submit_h": metrics["makespan_s"] / 3600,
        "gpu_h_per_job": metrics["unit_hours"] / len(jobs),
    }
    off = " ".join(f"{ours[name] / goal[name] - 1:+9.1%}" for name in ours)
    changes = (jobs["rescales"] + jobs["restarts"]).mean()
    return (
        f"{cell:44} {goal['mean_jct_h']:9.3f} {mean_h:9.3f} {off} "
        f"{goal['restarts_per_job']:6.2f} {changes:6.2f}"
    )


if __name__ == "__main__":
    main()
