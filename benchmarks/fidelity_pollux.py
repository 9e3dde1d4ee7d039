"""Pollux' artifact reproduced: average job completion times of Tiresias, Optimus and Pollux on its workloads.

    python benchmarks/fidelity_pollux.py [--policies tiresias,optimus,pollux] [--workloads 1,2,6] [--seeds 3]
    python benchmarks/fidelity_pollux.py --interference [--cells inter50,inter25] [--workloads 1,2,6] [--seeds 1]

16 nodes of 4 units, rounds of 60 s, 30 s for every start and restart, epochs that end at whole seconds: as there.
Tiresias and Optimus must agree to the digit; Pollux' search is random, there as here.
`--interference`: Pollux without its avoidance of interference, where jobs on several nodes that meet lose a share.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from _published import reference_folder
from _tables import print_head, print_row, program

from bft.models.workloads.jobs_pollux import read_pollux_jobs
from bft.replay import Replay, Rules, always_idle
from bft.replay.policies import Policy
from bft.replay.policies.optimus import Optimus
from bft.replay.policies.pollux import Pollux
from bft.replay.policies.tiresias import TiresiasPollux
from bft.replay.trace.node_trace import SECOND_NS

NODES, UNITS_PER_NODE = 16, 4
RULES = Rules(max_jobs=0, start_overhead_s=30.0, restart_overhead=((1, 30.0),))
# Cells of the artifact's table -> whether interference is avoided, and what jobs lose that meet.
INTERFERENCE = {
    "avoid": (True, 0.0),
    "noavoid": (False, 0.0),
    "inter25": (False, 0.25),
    "inter50": (False, 0.5),
}
LOADS = {"0.5": "workloads-0.5", "1.0": "workloads"}


def average_jct_s(workload: Path, policy: Policy, rules: Rules = RULES) -> float:
    """Average completion time in s."""
    jobs = read_pollux_jobs(workload, units_per_node=UNITS_PER_NODE, whole_seconds=True)
    trace = always_idle(NODES, 0, 10**7 * SECOND_NS, units_per_node=UNITS_PER_NODE)
    records = Replay(trace, jobs, policy, rules).run().records
    return (
        sum(record.finish_ns - record.job.tsub_ns for record in records)
        / SECOND_NS
        / len(records)
    )


def published(
    folder: Path, table: str = "results-jobload"
) -> dict[tuple[str, str], float]:
    """(policy-load, or cell of another table, workload) -> average completion time in s."""
    rows = pd.read_csv(folder / "published_avg_jct.csv").set_index("set").loc[table]
    runs = zip(rows["policy"], rows["workload"], strict=True)
    return dict(zip(runs, rows["avg_jct"], strict=True))


def interference(
    folder: Path, workloads: list[str], cells: list[str], seeds: int
) -> None:
    """Print the artifact's table of interference as deviations from it, or some of its cells."""
    golden = published(folder, "results-inter")
    print_head("loss", *(f"workload {workload}" for workload in workloads))
    for cell in cells:
        avoid, lost = INTERFERENCE[cell]
        rules = replace(RULES, network_interference=lost)
        row = []
        for workload in workloads:
            path = folder / LOADS["1.0"] / f"workload-{workload}.csv"
            goal = golden[cell, path.stem]
            off = [
                average_jct_s(path, Pollux(seed=seed, avoid=avoid), rules) / goal - 1
                for seed in range(seeds)
            ]
            each = ", ".join(f"{run:+.1%}" for run in off)
            row.append(each if seeds == 1 else f"{np.mean(off):+.1%} ({each})")
        print_row(f"{lost:.0%}, avoided" if avoid else f"{lost:.0%}", *row)


def main() -> None:
    """Print the tables."""
    parser = program(__doc__)
    parser.add_argument("--policies", default="tiresias,optimus,pollux")
    parser.add_argument("--workloads", default="1,2,6")
    parser.add_argument(
        "--seeds", type=int, default=3, help="runs of Pollux, with seeds 0, 1, ..."
    )
    parser.add_argument(
        "--interference", action="store_true", help="the table of interference instead"
    )
    parser.add_argument(
        "--cells", default=",".join(INTERFERENCE), help="of the table of interference"
    )
    given = parser.parse_args()
    folder = reference_folder() / "pollux"
    if given.interference:
        interference(
            folder, given.workloads.split(","), given.cells.split(","), given.seeds
        )
        return
    golden = published(folder)
    print_head("load", "workload", "policy", "published", "ours", "off by", "runs")
    for load, workloads in LOADS.items():
        for workload in given.workloads.split(","):
            path = folder / workloads / f"workload-{workload}.csv"
            if not path.is_file():
                continue
            for name in given.policies.split(","):
                policies: dict[str, list[Policy]] = {
                    "tiresias": [TiresiasPollux()],
                    "optimus": [Optimus()],
                    "pollux": [Pollux(seed=seed) for seed in range(given.seeds)],
                }
                runs = [average_jct_s(path, policy) for policy in policies[name]]
                goal, mean = (
                    golden[f"{name}-{load}", f"workload-{workload}"],
                    float(np.mean(runs)),
                )
                each = " ".join(f"{run:.2f}" for run in runs)
                figures = (f"{goal:,.2f}", f"{mean:,.2f}", f"{mean / goal - 1:+.1%}")
                print_row(load, workload, name, *figures, each)


if __name__ == "__main__":
    main()
