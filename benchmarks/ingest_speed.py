"""Processor time and peak memory of `ingest`, as a whole command, against another checkout in the same run.

python benchmarks/ingest_speed.py [--rows 1000000] [--largest 8] [--kinds recipe,pbs]
    [--against /path/to/bft-replay] [--runs 2]

The logs of sacct are those of a full machine of 4,096 nodes: jobs want 1 to `--largest` nodes (as likely 1 to 2 as 2 to
4 ...) for 90 minutes on average and get those that are free first, so that hardly any host list of several nodes comes
twice. `recipe` has the columns that `ingest --recipe slurm` exported at e4783eb, `wide` has 30 columns, `steps` has
a job step after each job; `swf` has the same jobs. The logs of pbs, lsf and sge are those of `generate log`, of as many
jobs as `--rows` asks for at the least. The commands alternate, and of each the least counts, as machines are shared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import groupby
from pathlib import Path

import numpy as np

NODES, MEAN_S = 4096, 5400
GENERATED = ("pbs", "lsf", "sge")
# Jobs of `generate log` a day on so many nodes.
DAYS, JOBS_A_DAY = 200, 1_000
NAMES = ("relax", "md_run-7", "séquence", "train_resnet50")
RECIPE = "JobID|NodeList|AllocNodes|Start|End|State"
STEPS = f"{RECIPE}|JobName"
WIDE = (
    f"{STEPS}|Partition|QOS|Account|Group|GID|User|UID|ExitCode|NCPUS|ReqCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|Submit|"
    "Eligible|Elapsed|ElapsedRaw|WorkDir|Priority|Reason|DerivedExitCode|SubmitLine"
)
SWF_HEADER = f"; UnixStartTime: 1704067200\n; MaxNodes: {NODES}\n; MaxProcs: {NODES}"
KINDS = {"recipe": RECIPE, "wide": WIDE, "steps": STEPS, "swf": SWF_HEADER}


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
            if kind == "swf":
                asked = f"{size} 86400 -1 1 {job % 50} 1 1 1 1 -1 -1"
                log.write(f"{job + 1} {start} 0 {end - start} {size} -1 -1 {asked}\n")
                continue
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


def generate_log(path: Path, rows: int, kind: str) -> None:
    """Write a log of another scheduler, of at least so many jobs."""
    days = max(1, rows // JOBS_A_DAY)
    command = [
        "generate",
        "log",
        kind,
        "--nodes",
        "400",
        "--days",
        str(days),
        "--seed",
        "1",
        "-o",
        str(path),
    ]
    subprocess.run([*ours(), *command], check=True, capture_output=True)


def ours() -> list[str]:
    """The command of this checkout."""
    return [str(Path(sys.executable).with_name("bft-replay"))]


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command: its seconds of processor time, and its peak memory in MiB."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument(
        "--largest", type=int, default=8, help="nodes of the largest jobs"
    )
    parser.add_argument(
        "--kinds", default="recipe,wide,steps,pbs,lsf,sge,swf", help="of logs"
    )
    parser.add_argument("--against", help="the command bft-replay of another checkout")
    parser.add_argument("--runs", type=int, default=2, help="of each command")
    parser.add_argument(
        "--keep", type=Path, help="write the logs here, or use those that are"
    )
    given = parser.parse_args()
    commands = {"this": ours(), **({"other": [given.against]} if given.against else {})}
    print(
        f"{'log':<8}{'MB':>7}{'seconds':>9}{'MiB':>7}{'other s':>9}{'MiB':>7}{'ratio':>7}{'MiB':>6}"
    )
    with tempfile.TemporaryDirectory() as folder:
        kept = given.keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        for kind in given.kinds.split(","):
            path = kept / f"{kind}.log"
            if not path.exists() and kind in GENERATED:
                generate_log(path, given.rows, kind)
            elif not path.exists():
                generate(path, given.rows, given.largest, kind)
            form = kind if kind in (*GENERATED, "swf") else "slurm"
            rest = [
                "ingest",
                form,
                str(path),
                "--tz",
                "UTC",
                "--force",
                "-o",
                str(Path(folder, "trace.parquet")),
            ]
            best = {name: (float("inf"), float("inf")) for name in commands}
            for _ in range(given.runs):
                for name, command in commands.items():
                    best[name] = min(best[name], measure([*command, *rest]))
            row = f"{kind:<8}{path.stat().st_size / 1e6:>7.0f}" + "".join(
                f"{s:>9.2f}{m:>7.0f}" for s, m in best.values()
            )
            if given.against:
                row += "".join(
                    f"{mine / other:>{width}.2f}"
                    for mine, other, width in zip(*best.values(), (7, 6), strict=True)
                )
            print(row, flush=True)


if __name__ == "__main__":
    main()
