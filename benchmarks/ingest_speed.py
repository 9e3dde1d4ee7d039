"""Reading sacct: rows per second and peak memory, compared with csv.reader on the same file in the same run.

python benchmarks/ingest_speed.py [--rows 1000000] [--steps 1] [--largest 64] [--wide] [--runs 2] [--keep FILE]

The log is that of a full machine of 4,096 nodes: jobs want 1 to 64 nodes (as likely 1 to 2 as 2 to 4 ...) for 90
minutes on average and get those that are free first, so that hardly any host list of several nodes comes twice. Each
part runs in a process of its own, some times: the best counts. Seconds are those of the processor, as machines are
shared. `read` ends with the intervals, `trace` with the node trace.
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
WIDE = {
    "|Partition|QOS|Account|Group|GID|User|UID|ExitCode|NCPUS|ReqCPUS|ReqMem|ReqTRES|Timelimit":
    "|p|normal|acct12|grp|1001|user17|20017|0:0|64|64|256G|billing=64,cpu=64,mem=256G,node=1|1-00:00:00"
}  # fmt: skip


def host_list(nodes: list[int]) -> str:
    """As Slurm writes it."""
    if len(nodes) == 1:
        return f"n{nodes[0]:04}"
    runs = [
        [node for _, node in group]
        for _, group in groupby(enumerate(nodes), lambda at: at[1] - at[0])
    ]
    return f"n[{','.join(f'{run[0]:04}-{run[-1]:04}' if len(run) > 1 else f'{run[0]:04}' for run in runs)}]"


def generate(path: Path, rows: int, steps: int, largest: int, wide: bool) -> None:
    """Write a log of `rows` rows, `steps` of them job steps after each job's own."""
    rng = np.random.default_rng(0)
    jobs = rows // (steps + 1)
    free = np.zeros(NODES, dtype=np.int64)
    lengths = rng.exponential(MEAN_S, jobs).astype(np.int64) + 1
    sizes = (largest ** rng.random(jobs)).round().astype(int)
    ((extra, more),) = WIDE.items() if wide else (("", ""),)
    with path.open("w", encoding="utf-8") as log:
        log.write(f"JobID|NodeList|AllocNodes|Start|End|State|JobName{extra}\n")
        for job in range(jobs):
            size = int(sizes[job])
            taken = np.argpartition(free, size - 1)[:size]
            start = int(free[taken].max()) + 1
            end = start + int(lengths[job])
            free[taken] = end
            begin, finish = (np.array([start, end]) + 1_704_067_200).astype(
                "datetime64[s]"
            )
            nodes = host_list(sorted(taken.tolist()))
            state = "COMPLETED" if job % 9 else "FAILED"
            line = f"|{nodes}|{size}|{begin}|{finish}|{state}|{NAMES[job % 4]}{more}\n"
            log.write(f"{job + 1}{line}")
            for step in range(steps):
                log.write(f"{job + 1}.{step}{line}")


def measure(part: str, path: Path) -> dict[str, float]:
    """Seconds, and the counts of rows."""
    import_module(
        "bft.replay.logs.slurm_blocks"
    )  # what is imported once is no part of it
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
    parser.add_argument("--steps", type=int, default=1, help="job steps of each job")
    parser.add_argument(
        "--largest", type=int, default=64, help="nodes of the largest jobs"
    )
    parser.add_argument("--wide", action="store_true", help="20 columns instead of 7")
    parser.add_argument("--runs", type=int, default=2, help="of each part")
    parser.add_argument(
        "--keep", type=Path, help="write the log here, or use the one that is"
    )
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        measured = measure(given.part, given.keep)
        measured["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(measured))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = given.keep or Path(folder, "jobs.sacct")
        if not path.exists():
            generate(path, given.rows, given.steps, given.largest, given.wide)
        print(f"{path.stat().st_size / 2**20:,.0f} MiB")
        head = f"{'part':<6}{'rows':>12}{'seconds':>9}{'rows/s':>10}{'x csv':>7}{'peak MiB':>9}"
        print(f"{head}{'intervals':>13}{'fragments':>12}")
        plain = 0.0
        for part in PARTS:
            command = [sys.executable, __file__, "--part", part, "--keep", str(path)]
            runs = [
                json.loads(
                    subprocess.run(command, check=True, capture_output=True).stdout
                )
                for _ in range(given.runs)
            ]
            best = min(runs, key=lambda run: float(run["seconds"]))
            plain = plain or best["seconds"]
            speed = best["rows"] / best["seconds"]
            row = f"{part:<6}{best['rows']:>12,}{best['seconds']:>9.2f}{speed:>10,.0f}{best['seconds'] / plain:>7.2f}"
            print(
                f"{row}{best['peak_mib']:>9,.0f}{best['intervals']:>13,}{best['fragments']:>12,}"
            )


if __name__ == "__main__":
    main()
