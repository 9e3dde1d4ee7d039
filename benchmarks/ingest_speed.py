"""Reading sacct: rows per second and peak memory, compared with csv.reader on the same file in the same run.

python benchmarks/ingest_speed.py [--rows 1000000] [--largest 64] [--kinds recipe,wide,steps] [--runs 2] [--keep FOLDER]

The logs are those of a full machine of 4,096 nodes: jobs want 1 to 64 nodes (as likely 1 to 2 as 2 to 4 ...) for 90
minutes on average and get those that are free first, so that hardly any host list of several nodes comes twice.
`recipe` has the columns and times that `ingest --recipe slurm` exports, `wide` has 30 columns, `steps` a job step after
each job. Each part runs in a process of its own, some times: the best counts. Seconds are those of the processor, as
machines are shared. `read` ends with the intervals, `trace` with the node trace.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from itertools import groupby
from pathlib import Path

import numpy as np

NODES, MEAN_S = 4096, 5400
PARTS = ("csv", "read", "trace")
NAMES = ("relax", "md_run-7", "séquence", "train_resnet50")
RECIPE = "JobID|NodeList|AllocNodes|Start|End|State"
STEPS = f"{RECIPE}|JobName"
WIDE = (
    f"{STEPS}|Partition|QOS|Account|Group|GID|User|UID|ExitCode|NCPUS|ReqCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|Submit|"
    "Eligible|Elapsed|ElapsedRaw|WorkDir|Priority|Reason|DerivedExitCode|SubmitLine"
)
KINDS = {"recipe": RECIPE, "wide": WIDE, "steps": STEPS}


def host_list(nodes: list[int]) -> str:
    """As Slurm writes it."""
    if len(nodes) == 1:
        return f"n{nodes[0]:04}"
    runs = [
        [node for _, node in group]
        for _, group in groupby(enumerate(nodes), lambda at: at[1] - at[0])
    ]
    return f"n[{','.join(f'{run[0]:04}-{run[-1]:04}' if len(run) > 1 else f'{run[0]:04}' for run in runs)}]"


def generate(path: Path, rows: int, largest: int, kind: str) -> None:
    """Write a log of `rows` rows."""
    rng = np.random.default_rng(0)
    steps = int(kind == "steps")
    jobs = rows // (steps + 1)
    free = np.zeros(NODES, dtype=np.int64)
    lengths = rng.exponential(MEAN_S, jobs).astype(np.int64) + 1
    sizes = (largest ** rng.random(jobs)).round().astype(int)
    names = KINDS[kind].split("|")
    fixed = dict.fromkeys(names, "123") | {
        "Partition": "p",
        "QOS": "normal",
        "ExitCode": "0:0",
        "ReqTRES": "billing=64,cpu=64,mem=256G,node=1",
        "AllocTRES": "billing=64,cpu=64,energy=0,mem=256G,node=1",
        "Timelimit": "1-00:00:00",
        "WorkDir": "/home/user/runs/2024",
        "SubmitLine": "sbatch --nodes=1 --time=1-00:00:00 job.sh",
    }
    with path.open("w", encoding="utf-8") as log:
        log.write("|".join(names) + "\n")
        for job in range(jobs):
            size = int(sizes[job])
            taken = np.argpartition(free, size - 1)[:size]
            start = int(free[taken].max()) + 1
            end = start + int(lengths[job])
            free[taken] = end
            times = np.array([start, end]) + 1_704_067_200
            if kind != "recipe":
                times = times.astype("datetime64[s]")
            row = fixed | {
                "NodeList": host_list(sorted(taken.tolist())),
                "AllocNodes": str(size),
                "Start": str(times[0]),
                "End": str(times[1]),
                "State": "COMPLETED" if job % 9 else "FAILED",
                "JobName": NAMES[job % 4],
                "User": f"user{job % 50}",
            }
            for step in range(steps + 1):
                row["JobID"] = f"{job + 1}.{step - 1}" if step else str(job + 1)
                log.write("|".join(row[name] for name in names) + "\n")


def measure(part: str, path: Path) -> dict[str, float]:
    """Seconds, and the counts of rows."""
    for name in ("slurm", "slurm_blocks"):  # what is imported once is no part of it
        import_module(f"bft.replay.logs.{name}")
    from bft.replay.logs import (
        Clock,
        Collector,
        Diagnosis,
        Reading,
        node_trace,
        open_log,
        read_log,
    )

    started = time.process_time()
    if part == "csv":
        with path.open(encoding="utf-8", newline="") as log:
            count = sum(1 for _ in csv.reader(log, delimiter="|"))
        return {
            "seconds": time.process_time() - started,
            "rows": count - 1,
            "intervals": 0,
            "fragments": 0,
        }
    diagnosis, collected = Diagnosis(), Collector()
    with open_log(path) as lines:
        clock = Clock("Europe/Berlin", diagnosis)
        read_log("slurm", Reading(lines, path.name, collected, diagnosis, clock))
    diagnosis.balance()
    fragments = 0
    if part == "trace":
        fragments = len(node_trace(collected, diagnosis)[0].joined)
    else:
        collected.busy_intervals.merged()
    seconds = time.process_time() - started
    intervals = collected.busy_intervals.given
    return {
        "seconds": seconds,
        "rows": diagnosis.rows,
        "intervals": intervals,
        "fragments": fragments,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--largest", type=int, default=64, help="nodes of the largest jobs"
    )
    parser.add_argument("--kinds", default="recipe,wide,steps", help="of logs")
    parser.add_argument("--runs", type=int, default=2, help="of each part")
    parser.add_argument(
        "--keep", type=Path, help="write the logs here, or use those that are"
    )
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        measured = measure(given.part, given.keep)
        measured["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(measured))
        return
    head = f"{'log':<7}{'part':<6}{'rows':>12}{'seconds':>9}{'rows/s':>10}{'x csv':>7}{'peak MiB':>9}"
    print(f"{head}{'intervals':>13}{'fragments':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in given.kinds.split(","):
            path = Path(given.keep or folder, f"{kind}.sacct")
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                generate(path, given.rows, given.largest, kind)
            compare(kind, path, given.runs)


def compare(kind: str, path: Path, runs: int) -> None:
    """Print the rows of one log, all parts measured in turn."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(runs):
        for part in PARTS:
            command = [sys.executable, __file__, "--part", part, "--keep", str(path)]
            run = subprocess.run(command, check=True, capture_output=True)
            measured = json.loads(run.stdout)
            if part not in best or measured["seconds"] < best[part]["seconds"]:
                best[part] = measured
    for part, found in best.items():
        speed = found["rows"] / found["seconds"]
        ratio = found["seconds"] / best["csv"]["seconds"]
        row = f"{kind:<7}{part:<6}{found['rows']:>12,}{found['seconds']:>9.2f}{speed:>10,.0f}{ratio:>7.2f}"
        print(
            f"{row}{found['peak_mib']:>9,.0f}{found['intervals']:>13,}{found['fragments']:>12,}"
        )


if __name__ == "__main__":
    main()
