"""Sia's artifact: average job completion times of its own program, and ours with `--compat sia`.

    python benchmarks/fidelity_sia.py [--cells sia-philly-1-homogeneous,...] [--seeds N] [--set NAME=VALUE ...]
    python benchmarks/fidelity_sia.py --inputs FOLDER

16 nodes of 4 T4, or 6 of 4 T4, 2 of 8 A100 and 3 of 8 RTX 2080 Ti: rounds of 60 s, speed and restart seconds by
application. Rows are means over orders of ties (`--seeds`), with the least and the largest deviation of the mean JCT.
`--inputs` writes the workloads and the folder of applications for the command line (docs/fidelity.md).
`--set` changes a constant of the policy, to see what it is worth. BFT_REFERENCE names the folder of reference data.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from _common import reference_folder

import bft

# Without a kind are the measurements of T4, which are Pollux'.
YOLOV3_MOST = 16
# Cells of the artifact with other set-ups -> the restart seconds of all applications, None: as in its table.
WITHOUT_SLOWDOWN = {"noslowdown": None, "noslowdown-restart30": 30}


# Columns of its profiles, as they are called here.
COLUMNS = {
    "nodes": "num_nodes",
    "replicas": "num_replicas",
    "step_s": "step_time",
    "sync_s": "sync_time",
}


def clusters(reference: Path) -> dict[str, str]:
    """The clusters of the artifact by name, as --cluster takes them: 6x4:aws+2x8:dgx-ext+3x8:rtx."""
    table = pd.read_csv(reference / "sia" / "clusters.csv")
    return {
        str(name): "+".join(
            f"{row.nodes}x{row.gpus_per_node}:{row.gpu}" for row in rows.itertuples()
        )
        for name, rows in table.groupby("cluster")
    }


def write_inputs(reference: Path, folder: Path) -> None:
    """Write `traces` (measurements by kind, speed and restart seconds by application) and the workloads.

    Folders `traces-NAME` are the same for the cells of other set-ups.
    """
    for path in sorted((reference / "sia" / "workloads" / "philly").glob("*.csv")):
        shutil.copy(path, folder / path.name)
    stated = pd.read_csv(reference / "sia" / "applications.csv")
    measured = {
        name: pd.read_csv(
            reference / "sia" / "profiles" / f"{name}.csv.gz", dtype={"placement": str}
        )
        for name in ("placements", "scalability")
    }
    columns = ["application", "slowdown", "restart_s", "policy_restart_s"]
    for variant in ("", *WITHOUT_SLOWDOWN):
        traces = folder / f"traces-{variant}".rstrip("-")
        shutil.copytree(reference / "pollux" / "traces", traces, dirs_exist_ok=True)
        for name, table in measured.items():
            for (application, gpu), rows in table.groupby(["application", "gpu"]):
                if (traces / application).is_dir():
                    path = traces / application / f"{name}-{gpu}.csv"
                    rows.rename(columns=COLUMNS).to_csv(path, index=False)
        table = stated[columns].copy()
        # Pollux' artifact allows yolov3 8 samples a replica, Sia's all that were measured.
        table["max_local_bsz"] = table["application"].map({"yolov3": YOLOV3_MOST})
        if variant:
            table["slowdown"] = 1.0
        if WITHOUT_SLOWDOWN.get(variant) is not None:
            table[["restart_s", "policy_restart_s"]] = WITHOUT_SLOWDOWN[variant]
        table.to_csv(traces / "applications.csv", index=False)


def replay(folder: Path, cell: str, machine: str, constants: dict[str, str]) -> bft.Run:
    """Replay a cell, such as sia-philly-1-homogeneous."""
    _, _, workload, _, *variant = cell.split("-", 4)
    return bft.replay(
        jobs=folder / f"workload-{workload}.csv",
        jobs_format="pollux",
        applications=folder / "-".join(["traces", *variant]),
        cluster=machine,
        policy="sia",
        compat="sia",
        backend="exact",
        policy_options=constants,
        dedicated=False,
    )


def main() -> None:
    """Print the table, or write the inputs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", help="default: all that are known")
    parser.add_argument(
        "--seeds", type=int, default=3, help="orders of ties; 0: the canonical one"
    )
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
    machines = clusters(reference)
    known = list(golden.index[golden["policy"] == "sia"])
    cells = known if given.cells is None else given.cells.split(",")
    constants = dict(pair.split("=", 1) for pair in given.set)
    print(
        f"{'cell':44} {'theirs, h':>9} {'ours, h':>9} {'mean':>7} {'least':>7} {'most':>7} {'p99':>9} "
        f"{'makespan':>9} {'GPU-h':>9} {'restarts':>13}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        write_inputs(reference, Path(scratch))
        for cell in cells:
            machine, begun = machines[cell.split("-")[3]], time.process_time()
            runs = [
                replay(Path(scratch), cell, machine, {"ties": str(seed), **constants})
                for seed in range(1, given.seeds + 1) or (0,)
            ]
            line = row(cell, golden.loc[cell], runs)
            print(f"{line} ({time.process_time() - begun:.0f} s CPU)", flush=True)


def row(cell: str, goal: pd.Series, runs: Sequence[bft.Run]) -> str:
    """Compare replays, one for each order of ties, with the artifact's run: a line of the table of means."""
    ours = pd.DataFrame(
        {
            "mean_jct_h": run.metrics["jct_s"]["mean"] / 3600,
            "p99_jct_h": run.metrics["jct_s"]["p99"] / 3600,
            "makespan_from_first_submit_h": run.metrics["makespan_s"] / 3600,
            "gpu_h_per_job": run.metrics["unit_hours"] / len(run.jobs),
            "restarts_per_job": (run.jobs["rescales"] + run.jobs["restarts"]).mean(),
        }
        for run in runs
    )
    off = ours / goal[list(ours)].astype(float) - 1
    least, most = off["mean_jct_h"].min(), off["mean_jct_h"].max()
    means = [f"{off[name].mean():+9.1%}" for name in list(ours)[1:4]]
    return (
        f"{cell:44} {goal['mean_jct_h']:9.3f} {ours['mean_jct_h'].mean():9.3f} "
        f"{off['mean_jct_h'].mean():+7.1%} {least:+7.1%} {most:+7.1%} {' '.join(means)} "
        f"{goal['restarts_per_job']:6.2f} {ours['restarts_per_job'].mean():6.2f}"
    )


if __name__ == "__main__":
    main()
