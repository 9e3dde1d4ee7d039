"""Rigid policies and Tiresias against Tiresias' public simulator, job by job.

python benchmarks/fidelity_tiresias.py

One table a purpose. Every cell is a cluster, a trace and a policy of the simulator, which counts GPUs only (so we place
jobs anywhere) and charges nothing for preemption. `differ` counts jobs that start or finish at another second.

1. As the simulator does it: late demotion and its look-up of the Gittins index are switched on. All jobs agree, but for
   those that the simulator ends too early (docs/decisions/0010-tiresias.md).
2. As published: what each of the two deviations is worth, and both. Average JCT against the simulator's, in percent.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd
from _published import reference_folder
from _tables import print_head, print_row

from bft.models.workloads.rigid_jobs import read_tiresias_jobs
from bft.replay import Policy, Replay, Rules, always_idle
from bft.replay.policies.fifo import Fifo
from bft.replay.policies.shortest import ShortestRemainingFirst
from bft.replay.policies.tiresias import TiresiasG, TiresiasL
from bft.replay.trace.node_trace import SECOND_NS

CELLS = [
    ("n4g4", "60_job"),
    ("n4g4", "60_job_x20"),
    ("n32g4", "60_job_x20"),
    ("n160g8", "60_job"),
    ("n160g8", "60_job_x20"),
    ("n8g8", "venus_vcHvQ"),
]
YEARS_NS = 10**8 * SECOND_NS
# Average JCT of what is replayed as the simulator does it: the jobs that it ends too early are worth less.
CLOSE = 1e-4


def exactly(samples: str) -> dict[str, Callable[[], Policy]]:
    """The simulator's policies, with its habits."""
    return {
        "fifo": lambda: Fifo(consolidate=False),
        "fjf": lambda: Fifo(backfill=True, consolidate=False),
        "shortest": lambda: ShortestRemainingFirst(consolidate=False),
        "shortest-gpu": lambda: ShortestRemainingFirst(
            by="unit-time", consolidate=False
        ),
        "sjf": lambda: ShortestRemainingFirst(by="units", consolidate=False),
        "dlas-gpu": lambda: TiresiasL(late_demotion=True),
        "dlas-gpu-1": lambda: TiresiasL(late_demotion=True, promote=1),
        "dlas-gpu-8": lambda: TiresiasL(late_demotion=True, promote=8),
        "dlas-gpu-gittins": lambda: TiresiasG(
            samples=samples, late_demotion=True, next_sample=True
        ),
    }


def finished(
    folder: Path, cluster: str, trace: str, policy: Policy
) -> tuple[pd.DataFrame, float]:
    """Replay a cell: start and end second of each job, and the average JCT."""
    shape = pd.read_csv(folder / f"{cluster}.csv", index_col=False).iloc[0]
    nodes = int(shape.num_switch * shape.num_node_p_switch)
    jobs = read_tiresias_jobs(folder / f"{trace}.csv")
    machine = always_idle(nodes, 0, YEARS_NS, units_per_node=int(shape.num_gpu_p_node))
    records = Replay(machine, jobs, policy, Rules(max_jobs=0)).run().records
    rows = [(r.job.name, r.start_ns, r.finish_ns, r.job.tsub_ns) for r in records]
    frame = pd.DataFrame(
        rows, columns=["job_id", "start_time", "end_time", "submit"]
    ).set_index("job_id")
    frame = (frame / SECOND_NS).round().astype("int64")
    return frame[["start_time", "end_time"]], float(
        (frame.end_time - frame.submit).mean()
    )


def golden(folder: Path, cluster: str, trace: str, policy: str) -> pd.DataFrame | None:
    """The simulator's records of each job; None where only averages are known."""
    file = folder / "golden" / f"{cluster}-{trace}-{policy}.job.csv.gz"
    if not file.exists():
        return None
    records = pd.read_csv(file, dtype={"job_id": str}, index_col="job_id")
    return records[["start_time", "end_time"]]


def main() -> None:
    """Replay all cells and print both tables."""
    folder = reference_folder() / "tiresias"
    samples = str(folder / "yarn-gput1000.csv")
    summary: Any = (
        pd.read_csv(folder / "golden" / "summary.csv")
        .set_index(["cluster", "trace", "schedule"])
        .avg_jct
    )
    print_head("policy", "cluster", "trace", "simulator", "ours", "jobs", "differ")
    for name, make in exactly(samples).items():
        for cluster, trace in CELLS:
            theirs = float(summary[cluster, trace, name])
            ours, average = finished(folder, cluster, trace, make())
            expected = golden(folder, cluster, trace, name)
            differ = "-"
            if expected is not None:
                other = (ours != expected.loc[ours.index]).any(axis=1)
                differ = str(other.sum())
            print_row(
                name,
                cluster,
                trace,
                f"{theirs:.2f}",
                f"{average:.2f}",
                len(ours),
                differ,
            )
            assert abs(average / theirs - 1) < CLOSE
            assert name.startswith("dlas") or differ == "0"
    print("\naverage JCT against the simulator's, %\n")
    print_head("policy", *(f"{cluster} {trace}" for cluster, trace in CELLS))
    variants: dict[str, tuple[str, Policy]] = {
        "tiresias-l": ("dlas-gpu", TiresiasL()),
        "tiresias-g": ("dlas-gpu-gittins", TiresiasG(samples=samples)),
        "tiresias-g, timely demotion only": (
            "dlas-gpu-gittins",
            TiresiasG(samples=samples, next_sample=True),
        ),
        "tiresias-g, own index only": (
            "dlas-gpu-gittins",
            TiresiasG(samples=samples, late_demotion=True),
        ),
    }
    for name, (schedule, policy) in variants.items():
        cells = []
        for cluster, trace in CELLS:
            theirs = float(summary[cluster, trace, schedule])
            ours_s = finished(folder, cluster, trace, deepcopy(policy))[1]
            # Without a minus sign before 0.
            cells.append(f"{round(100 * (ours_s / theirs - 1), 2) + 0.0:.2f}")
        print_row(name, *cells)


if __name__ == "__main__":
    main()
