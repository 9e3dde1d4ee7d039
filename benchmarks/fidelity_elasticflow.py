"""Admission by deadlines and the accounting against ElasticFlow's own run: 100 jobs on 16 nodes of 8 A100.

python benchmarks/fidelity_elasticflow.py

The data come with the repository (tests/data/elasticflow).

1. With the allocations of its run (policy `schedule`) and `--option admission=deadline`: how many jobs are accepted,
   and how far ends are from its log, with what its simulator does switched on one by one.
2. Our own policies on the same jobs and machine, with the same admission.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from _tables import print_head, print_row
from numpy.typing import NDArray

from bft.models import Curve, Job, JobTable
from bft.replay import EqualShare, Policy, Replay, Rules, always_idle
from bft.replay.policies.optimus import Optimus
from bft.replay.policies.schedule import Schedule
from bft.replay.trace.node_trace import SECOND_NS

FloatArray = NDArray[np.float64]
FOLDER = Path(__file__).parents[1] / "tests" / "data" / "elasticflow"
# Its own ends by job: submit_s, end_s, jct_s; and the GPUs of each job from each of its decisions on, 0 when it ends.
RUN = FOLDER / "elasticflow.jobs.csv"
ALLOCATIONS = FOLDER / "elasticflow.allocations.csv.gz"
UNITS = 128
SLOT_S = 240
HORIZON_S = 2_000_000
# The most GPUs of a job by model and batch size, where that is not 64 (its simulator's table).
MOST = {
    ("bert", 64): 8,
    ("bert", 128): 16,
    ("gpt2", 128): 16,
    ("gpt2", 256): 32,
    ("inception3", 64): 16,
    ("inception3", 128): 32,
    ("resnet50", 64): 32,
    ("vgg16", 64): 32,
    ("deepspeech2", 32): 32,
}
# Seconds of a start or restart, by number of GPUs: 2 + 2 (log2 GPUs + 1); 2 where its GPUs were in use before.
BY_SIZE = tuple((2**step, 2.0 + 2 * (step + 1)) for step in range(7))
CACHED = ((64, 2.0),)


def read_jobs(folder: Path) -> JobTable:
    """The jobs: power-of-two sizes, iterations as work, deadlines."""
    jobs = []
    for row in pd.read_csv(folder / "jobs.csv").itertuples(index=False):
        rates = pd.read_csv(folder / "throughputs_A100" / f"{row.model}.csv")
        measured = rates.set_index("global_batch_size").loc[row.batch_size]
        most = MOST.get((row.model, row.batch_size), 64)
        sizes = [2**step for step in range(most.bit_length())]
        curve = Curve(
            np.array([0, *sizes]),
            np.array([0.0, *(float(measured[str(size)]) for size in sizes)]),
        )
        jobs.append(
            Job(
                str(row.job),
                row.submit_s * SECOND_NS,
                1,
                most,
                float(row.iterations),
                0.0,
                0.0,
                curve,
                curve,
                deadline_ns=row.deadline_s * SECOND_NS,
                sizes=tuple(sizes),
            )
        )
    return JobTable(tuple(jobs))


def schedule(allocations: pd.DataFrame) -> Schedule:
    """The recorded allocations; a job keeps its last one until its work is done, whenever that is.

    Each job has 64 units of its own, so that one that ends late does not take those of others.
    """
    rows = []
    for job, mine in allocations.groupby("job"):
        running = mine[mine["gpus"] > 0]
        until = [*mine["time_s"].tolist()[1:], HORIZON_S]
        until[len(running) - 1] = HORIZON_S
        for start, end, gpus in zip(mine["time_s"], until, mine["gpus"], strict=True):
            if gpus and end > start:
                first = 64 * int(str(job))
                rows.append((str(job), first, first + gpus - 1, start, end))
    frame = pd.DataFrame(
        rows, columns=["job", "first_unit", "last_unit", "start", "end"]
    )
    for column in ("start", "end"):
        frame[column] = pd.to_datetime(frame[column], unit="s", utc=True)
    return Schedule.of(frame)


def replayed(
    jobs: JobTable,
    policy: Policy,
    restart_s: tuple[tuple[int, float], ...] = (),
    *,
    units: int = UNITS,
) -> tuple[FloatArray, int]:
    """Replay the jobs with admission by deadlines on 128 units: ends in s (NaN: none), and how many are refused."""
    rules = Rules(
        max_jobs=0,
        admission="deadline",
        admission_units=UNITS,
        start_overhead_s=restart_s[-1][1] if restart_s else 0.0,
        restart_overhead=restart_s,
    )
    machine = always_idle(units, 0, HORIZON_S * SECOND_NS)
    outcome = Replay(machine, jobs, policy, rules).run()
    ends = [
        np.nan if record.finish_ns is None else record.finish_ns / SECOND_NS
        for record in outcome.records
    ]
    refused = sum(record.refused_ns is not None for record in outcome.records)
    return np.array(ends), refused


def in_slots(allocations: pd.DataFrame, end_s: FloatArray, cost_s: float) -> FloatArray:
    """Move each end as its simulator does: to a whole number of slots after the job's last decision, and its cost."""
    moved = []
    for job, mine in allocations[allocations["gpus"] > 0].groupby("job"):
        last = float(mine["time_s"].iloc[-1]) + cost_s
        slots = np.ceil(max(end_s[int(str(job))] - last, 1e-9) / SLOT_S)
        moved.append(last + slots * SLOT_S)
    return np.array(moved)


def print_accounting(jobs: JobTable) -> None:
    """Print acceptance and ends with the allocations of its run."""
    run = pd.read_csv(RUN, index_col="job")
    allocations = pd.read_csv(ALLOCATIONS)
    policy, units = schedule(allocations), 64 * len(jobs)
    long = (run["jct_s"] > run["jct_s"].mean()).to_numpy()
    print("1. with its allocations: error of JCT; jobs that end in the same second\n")
    print_head(
        "a start or restart costs", "jobs end", "accepted", "JCT off, median", "p90",
        "long jobs, largest", "same second", "mean JCT, s",
    )  # fmt: skip
    for label, restart_s, slots in (
        ("nothing", (), False),
        ("4 to 16 s by size", BY_SIZE, False),
        ("2 s", CACHED, False),
        ("nothing", (), True),
        ("4 to 16 s by size", BY_SIZE, True),
        ("2 s", CACHED, True),
    ):
        end_s, refused = replayed(jobs, policy, restart_s, units=units)
        cost_s = 2.0 if restart_s == CACHED else 0.0
        ends = in_slots(allocations, end_s, cost_s) if slots else end_s
        late = ends - run["end_s"].to_numpy()
        off = np.abs(late / run["jct_s"].to_numpy())
        print_row(
            label,
            f"in slots of {SLOT_S:.0f} s" if slots else "when their work is done",
            len(jobs) - refused,
            f"{np.median(off):.2%}",
            f"{np.quantile(off, 0.9):.2%}",
            f"{off[long].max():.2%}",
            np.sum(np.abs(late) < 1),
            f"{np.mean(ends - run['submit_s']):,.0f}",
        )
    print_row("its log", "", len(run), "", "", "", "", f"{run['jct_s'].mean():,.0f}")


def print_policies(jobs: JobTable) -> None:
    """Print what our policies do with the same jobs."""
    deadline = np.array([(job.deadline_ns or 0) / SECOND_NS for job in jobs])
    submit = np.array([job.tsub_ns / SECOND_NS for job in jobs])
    print("\n2. our policies on 128 GPUs, restarts of 4 to 16 s by size\n")
    print_head("policy", "accepted", "deadlines kept", "mean JCT, s")
    policies: dict[str, Policy] = {
        "equal-share": EqualShare(),
        "optimus, every 240 s": Optimus(interval_s=SLOT_S),
        "optimus, at events": Optimus(interval_s=0.0),
    }
    for name, policy in policies.items():
        end_s, refused = replayed(jobs, policy, BY_SIZE)
        print_row(
            name,
            len(jobs) - refused,
            np.sum(end_s <= deadline),
            f"{np.nanmean(end_s - submit):,.0f}",
        )


def main() -> None:
    """Print both tables."""
    jobs = read_jobs(FOLDER)
    print_accounting(jobs)
    print_policies(jobs)


if __name__ == "__main__":
    main()
