"""A year of a large machine, from the log to the page: processor time and peak memory of each stage, and how they grow.

    python -m benchmarks.year [--nodes 10000] [--days 30 365] [--jobs 1000 5000] [--only fifo best] [--folder DIR]

Makes the log of a full machine for each of `--days`, runs `ingest` once, then `replay` and `report` of each setting
with each number of training jobs. A quick look: `--nodes 500 --days 3 30 --jobs 100`. Seconds are those of all
processes of a command, as machines are shared; the peak is the largest process. The exponent is the slope from the
first to the last of `--days` in logarithms: 1 is linear. What lies in `--folder` is used again.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

START = "2023-01-01"
MEAN_S, LARGEST = 5400, 64
# After a third of the jobs their nodes stay idle, this long on average: about 7 % of the machine.
IDLE_AFTER, MEAN_IDLE_S = 1 / 3, 1200
# Work for all jobs together, a node and day: as much as the best setting does of it.
SAMPLES = 1e7
SETTINGS: dict[str, tuple[str, ...]] = {
    "fifo": ("--policy", "fifo"),
    "published": (),
    "published-exact": ("--backend", "exact"),
    "best": ("--preset", "best"),
    "harm": ("--policy", "fifo", "--return-time", "120", "--reserve", "8"),
}
"""Options of `replay`, by the name of the setting."""


class Usage(NamedTuple):
    """What a command took: seconds of the processor, and its peak memory in MiB."""

    seconds: float
    mib: float


@dataclass
class Table:
    """What each stage took, by its name and the length of the log; kept in a file."""

    path: Path
    taken: dict[str, dict[str, Usage]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.exists():
            for stage, row in json.loads(self.path.read_text()).items():
                self.taken[stage] = {days: Usage(*usage) for days, usage in row.items()}

    def add(self, stage: str, days: int, usage: Usage) -> None:
        """Print and keep what a stage took."""
        self.taken.setdefault(stage, {})[str(days)] = usage
        self.path.write_text(json.dumps(self.taken, indent=1))
        print(f"{stage:<24}{days:>5} d{usage.seconds:>10.1f} s{usage.mib:>9,.0f} MiB")

    def print(self, lengths: Sequence[int]) -> None:
        """Print all stages side by side, with the exponents of time and memory."""
        first, last = str(lengths[0]), str(lengths[-1])
        longer = math.log(lengths[-1] / lengths[0]) if first != last else math.nan
        head = "".join(f"{days:>8} d: s{'MiB':>8}" for days in lengths)
        print(f"{'stage':<24}{head}{'exponents':>14}")
        for stage, row in self.taken.items():
            if not all(str(days) in row for days in lengths):
                continue
            usages = [row[str(days)] for days in lengths]
            cells = "".join(f"{use.seconds:>12.1f}{use.mib:>8,.0f}" for use in usages)
            slopes = [
                math.log(row[last][at] / row[first][at]) / longer for at in (0, 1)
            ]
            print(f"{stage:<24}{cells}{slopes[0]:>7.2f}{slopes[1]:>7.2f}")


def host_list(nodes: Sequence[int]) -> str:
    """Nodes in order as Slurm writes them.

    >>> host_list([3]), host_list([3, 4, 5, 9])
    ('n00003', 'n[00003-00005,00009]')
    """
    if len(nodes) == 1:
        return f"n{nodes[0]:05}"
    parts = []
    for _, group in groupby(enumerate(nodes), lambda pair: pair[1] - pair[0]):
        run = [node for _, node in group]
        parts.append(f"{run[0]:05}-{run[-1]:05}" if len(run) > 1 else f"{run[0]:05}")
    return f"n[{','.join(parts)}]"


def lines(nodes: int, days: int) -> Iterator[str]:
    """Rows of `sacct -P` of a full machine: jobs of 1 to 64 nodes (as likely 1 to 2 as 2 to 4 ...), 90 minutes each.

    Each gets the nodes that are free first. Idle are those that wait until it has enough of them, and those of some
    jobs that have ended, as if the queue had none that fits.
    """
    rng = np.random.default_rng(0)
    begin = np.datetime64(START, "s").astype(np.int64)
    # What is freed together, by the instant; what a job leaves of it goes back.
    freed: list[tuple[int, int, list[int]]] = [(0, -1, list(range(nodes)))]
    number, now, end_s = 0, 0, days * 86_400
    while now < end_s:
        draws = 10_000
        sizes = np.rint(LARGEST ** rng.random(draws)).astype(int).tolist()
        lengths = (rng.exponential(MEAN_S, draws).astype(np.int64) + 1).tolist()
        waits = rng.exponential(MEAN_IDLE_S, draws) * (rng.random(draws) < IDLE_AFTER)
        gaps, rows = waits.astype(np.int64).tolist(), []
        for size, length, gap in zip(sizes, lengths, gaps, strict=True):
            taken: list[int] = []
            while len(taken) < size:
                when, owner, group = heapq.heappop(freed)
                taken += group
            now = when + 1
            if now >= end_s:
                break
            if len(taken) > size:
                heapq.heappush(freed, (when, owner, taken[size:]))
                del taken[size:]
            heapq.heappush(freed, (now + length + gap, number, taken))
            rows.append((number, host_list(sorted(taken)), size, now, now + length))
            number += 1
        instants = np.array([row[3:] for row in rows]).reshape(-1, 2) + begin
        texts = np.datetime_as_string(instants.astype("datetime64[s]")).tolist()
        for (job, hosts, size, _, _), (start, end) in zip(rows, texts, strict=True):
            state = "COMPLETED" if job % 9 else "FAILED"
            yield f"{job}|{hosts}|{size}|{start}|{end}|{state}|run{job % 7}\n"


def make_log(path: Path, nodes: int, days: int) -> None:
    """Write the log, unless it is there."""
    if path.exists():
        return
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as log:
        log.write("JobID|NodeList|AllocNodes|Start|End|State|JobName\n")
        log.writelines(lines(nodes, days))
    draft.rename(path)


def run(*arguments: str | Path) -> Usage:
    """Run the command line and return what it took."""
    program = shutil.which("bft-replay", path=Path(sys.executable).parent)
    if program is None:
        raise SystemExit("the command bft-replay is not installed beside this Python")
    words = [program, *map(str, arguments)]
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(program, words, os.environ, file_actions=quiet)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{' '.join(words)}: exit status {status}")
    return Usage(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure(table: Table, folder: Path, days: int, given: argparse.Namespace) -> None:
    """Run all stages on a log of one length."""
    log, trace = folder / f"{days}.sacct", folder / f"{days}.parquet"
    make_log(log, given.nodes, days)
    if not trace.exists():
        usage = run("ingest", "slurm", log, "-o", trace, "--tz", "UTC", "-q")
        table.add("ingest", days, usage)
    for count in given.jobs:
        jobs = folder / f"{days}-{count}.jobs.parquet"
        if not jobs.exists():
            run("generate", "jobs", "--jobs", str(count), "--first-submit", START,
                "--pmax", f"{SAMPLES * given.nodes * days / count:.6g}", "-o", jobs, "-q")  # fmt: skip
        for name in given.only:
            out, page = folder / f"{days}-{count}-{name}", folder / "page.html"
            common = ("-ndmap", trace, "--jobs", jobs, "-print", "0")
            usage = run("replay", *common, *SETTINGS[name], "--out", out, "--force")
            table.add(f"replay {name} {count:,}", days, usage)
            usage = run("report", out, "-o", page, "--force", "-q")
            table.add(f"report {name} {count:,}", days, usage)
            shutil.rmtree(out)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--days", type=int, nargs="+", default=[30, 365])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument(
        "--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS)
    )
    parser.add_argument("--folder", type=Path, help="of all files [removed at the end]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        table = Table(folder / "table.json")
        for days in given.days:
            measure(table, folder, days, given)
        table.print(given.days)


if __name__ == "__main__":
    main()
