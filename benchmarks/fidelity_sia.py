"""Sia's artifact: average job completion times of its own program, and ours with `--option compat=sia`.

    python benchmarks/fidelity_sia.py [--cells sia-philly-1-homogeneous,...] [--seeds N] [--set NAME=VALUE ...]
    python benchmarks/fidelity_sia.py --inputs FOLDER

16 nodes of 4 T4, or 6 of 4 T4, 2 of 8 A100 and 3 of 8 RTX 2080 Ti: rounds of 60 s, speed and restart seconds by
application. Rows are means over orders of ties (`--seeds`), with the least and the largest deviation of the mean JCT.
`--inputs` writes the workloads and the folder of applications for the command line (benchmarks/README.md).
`--set` changes a constant of the policy, to see what it is worth. BFT_REFERENCE names the folder of reference data.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from _published import reference_folder
from _tables import print_head, print_row, program

import bft

# What a cell of the artifact is called in the table, after the number of its workload.
SET_UPS = {
    "homogeneous": "",
    "homogeneous-noslowdown": ", without slowdowns",
    "homogeneous-noslowdown-restart30": ", without slowdowns, restarts of 30 s",
    "heterogeneous": ", three kinds",
}
# Variants without slowdowns -> the restart seconds of all applications, None: as in its table.
RESTARTS_WITHOUT_SLOWDOWN = {"noslowdown": None, "noslowdown-restart30": 30}
# Pollux' artifact allows yolov3 8 samples a replica, Sia's all that were measured.
YOLOV3_MOST = 16
# Columns of its profiles, as they are called here.
PROFILE_COLUMNS = {
    "nodes": "num_nodes",
    "replicas": "num_replicas",
    "step_s": "step_time",
    "sync_s": "sync_time",
}


def main() -> None:
    """Print the table, or write the inputs."""
    parser = program(__doc__)
    parser.add_argument("--cells", help="default: all that are known")
    parser.add_argument(
        "--seeds", type=int, default=3, help="orders of ties; 0: the canonical one"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--inputs", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    reference = reference_folder() / "sia"
    if given.inputs is not None:
        write_inputs(reference, given.inputs)
        print(f"{given.inputs}: workloads and applications for --jobs-format pollux")
        return
    golden = pd.read_csv(reference / "golden" / "summary.csv", index_col="run")
    # As --cluster takes them: 6x4:aws+2x8:dgx-ext+3x8:rtx.
    machines = {
        name: "+".join(
            f"{row.nodes}x{row.gpus_per_node}:{row.gpu}" for row in rows.itertuples()
        )
        for name, rows in pd.read_csv(reference / "clusters.csv").groupby("cluster")
    }
    known = list(golden.index[golden["policy"] == "sia"])
    constants = dict(pair.split("=", 1) for pair in given.set)
    print_head(
        *("workload (philly)", "its simulator, h", "ours, h", "off by", "least, most"),
        *("p99", "makespan", "GPU-hours", "restarts"),
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_inputs(reference, folder)
        for cell in given.cells.split(",") if given.cells else known:
            _, _, workload, cluster = cell.split("-")[:4]
            set_up = cell.removeprefix(f"sia-philly-{workload}-")
            runs = [
                replay(
                    folder / f"workload-{workload}.csv",
                    folder / set_up.replace(cluster, "traces"),
                    machines[cluster],
                    {"ties": str(seed), **constants},
                )
                for seed in range(1, given.seeds + 1) or (0,)
            ]
            print_row(workload + SET_UPS[set_up], *compared(golden.loc[cell], runs))


def write_inputs(reference: Path, folder: Path) -> None:
    """Write `traces` (measurements by kind, speed and restart seconds by application) and the workloads.

    Folders `traces-NAME` are the same for the cells of other set-ups. Measurements without a kind are those of T4,
    which are Pollux'.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((reference / "workloads" / "philly").glob("*.csv")):
        shutil.copy(path, folder / path.name)
    traces = folder / "traces"
    pollux = reference.parent / "pollux" / "traces"
    shutil.copytree(pollux, traces, dirs_exist_ok=True)
    for name in ("placements", "scalability"):
        measured = pd.read_csv(
            reference / "profiles" / f"{name}.csv.gz", dtype={"placement": str}
        )
        for (application, gpu), rows in measured.groupby(["application", "gpu"]):
            if (traces / application).is_dir():
                path = traces / application / f"{name}-{gpu}.csv"
                rows.rename(columns=PROFILE_COLUMNS).to_csv(path, index=False)
    columns = ["application", "slowdown", "restart_s", "policy_restart_s"]
    stated = pd.read_csv(reference / "applications.csv")[columns]
    stated["max_local_bsz"] = stated["application"].map({"yolov3": YOLOV3_MOST})
    stated.to_csv(traces / "applications.csv", index=False)
    for variant, restart_s in RESTARTS_WITHOUT_SLOWDOWN.items():
        others = folder / f"traces-{variant}"
        shutil.copytree(traces, others, dirs_exist_ok=True)
        table = stated.assign(slowdown=1.0)
        if restart_s is not None:
            table[["restart_s", "policy_restart_s"]] = restart_s
        table.to_csv(others / "applications.csv", index=False)


def replay(
    jobs: Path, applications: Path, cluster: str, constants: dict[str, str]
) -> bft.Run:
    """Replay a workload with the policy of the artifact."""
    return bft.replay(
        jobs=jobs,
        jobs_format="pollux",
        applications=applications,
        cluster=cluster,
        policy="sia",
        compat="sia",
        backend="exact",
        policy_options=constants,
        dedicated=False,
    )


def compared(goal: pd.Series, runs: Sequence[bft.Run]) -> list[str]:
    """Compare replays, one for each order of ties, with the artifact's run: cells of the table of means."""
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
    return [
        f"{goal['mean_jct_h']:.3f}",
        f"{ours['mean_jct_h'].mean():.3f}",
        f"{off['mean_jct_h'].mean():+.1%}",
        f"{least:+.1%}, {most:+.1%}",
        *(f"{mean:+.1%}" for mean in off.mean().iloc[1:]),
    ]


if __name__ == "__main__":
    main()
