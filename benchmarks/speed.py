"""What things cost in processor time and memory: a registry of specs, each with phases, beside those of a commit.

python benchmarks/speed.py                              all specs but those of LONG, this checkout alone
python benchmarks/speed.py --against COMMIT             beside a commit, by turns; says what got slower (make speed)
python benchmarks/speed.py --only "30 days" "365 days"  specs whose name has one of these texts, long ones too
python benchmarks/speed.py --list

Each measurement is a process of its own, and of each phase the least over the rounds counts, as machines are shared.
Seconds are those of the processor, of all processes of a phase; the peak is that of the process, or of the largest that
it started. What was measured is appended to build/speed.csv: when, of which commit, spec, phase, seconds, MiB.
"""

from __future__ import annotations

import csv
import gc
import json
import os
import resource
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from _tables import chosen, print_head, print_row, program
from _workloads import (
    START,
    flickering,
    linear_jobs,
    queue_problem,
    sacct_lines,
    sharing_problem,
    stopped,
)

import bft
from bft.datasets import generate_node_trace
from bft.milp import SolverProcess, solve
from bft.replay import Decision, EqualShare, Policy, Replay, Rules, State, Traits
from bft.replay.policies.fifo import Fifo

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "build" / "speed.csv"
# A phase is slower from this ratio on, and from so many seconds on.
RATIO, LEAST_S = 1.1, 0.01
COMMAND = "import sys; from bft.replay.cli.main import run; sys.exit(run(sys.argv[1:]))"


def processor_s() -> float:
    """Seconds of the processor of this process and all that it started, those that still run included."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + ended.ru_utime + ended.ru_stime
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            # Its clock, as clock_getcpuclockid(3) of glibc has it.
            seconds += time.clock_gettime((~pid << 3) | 2)
    return seconds


@dataclass
class Clock:
    """What the phases of a spec took: seconds, and MiB at the peak."""

    taken: dict[str, tuple[float, float]] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str, times: int = 1) -> Iterator[None]:
        """Measure what is done within; `times` says how often it does the same."""
        gc.collect()
        began = processor_s()
        yield
        seconds = (processor_s() - began) / times
        who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
        self.taken[name] = seconds, max(resource.getrusage(each).ru_maxrss for each in who) / 1024  # fmt: skip

    def command(self, name: str, *words: object) -> None:
        """Measure a command of bft-replay; without a name it is only run."""
        child = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *map(str, words)], stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(child.pid, 0)
        if status:
            raise SystemExit(f"bft-replay {' '.join(map(str, words))}: failed")
        if name:
            self.taken[name] = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


class Keeps:
    """Fills the machine once and then changes nothing: with almost no policy, the engine's cost remains."""

    name = "keeps"
    traits: ClassVar[Traits] = Traits(rigid=True)

    def decide(self, state: State) -> Decision:
        """Fill the machine once."""
        return Fifo().decide(state) if not len(state.jobs.running) else Decision.keep()


def bundled(clock: Clock) -> None:
    """The command line on the bundled data set."""
    clock.command("help", "--help")
    clock.command("replay", "replay", "-Tfwd", 120, "--no-u", "--out", "out", "-q")
    clock.command("report", "report", "out", "-o", "page.html", "-q")


def engine(units: int, jobs: int, policy: type[Policy], events: int, clock: Clock) -> None:  # fmt: skip
    """An event, with so many jobs of one unit in play."""
    many = events > 10**4
    table = linear_jobs(jobs, 25 if many else 1, short=3 if many else 0)
    trace = flickering(units, events, spare=5 if many else 1)
    replay = Replay(trace, table, policy(), Rules(max_jobs=0))
    for _ in range(events // 10):
        replay.step()
    steps = events * 9 // 10
    with clock.phase("event", steps):
        for _ in range(steps):
            replay.step()


def decision(jobs: int, units: int, running: int, apart: bool, clock: Clock) -> None:
    """A decision of jobs that nothing has seen before, and the one after a job has stopped."""
    process = SolverProcess()
    first = queue_problem(jobs, units, running, apart=apart)
    after = stopped(first)
    for backend in ("exact", "cbc"):
        options: dict[str, Any] = {"backend": backend, "ties": "solver", "process": process}  # fmt: skip
        solve(queue_problem(20, 10, 2, apart=True), **options)  # compiles, and starts
        for name, problem in (("first", first), ("next", after)):
            with clock.phase(f"{backend}, {name}"):
                answer = solve(problem, **options)
            assert answer.status == "optimal", answer.note
    process.close()


def sharing(waiting: int, together: float, clock: Clock) -> None:
    """A decision of 100 jobs that run on 500 units, a share of them together, and of others that wait."""
    process = SolverProcess()
    solve(sharing_problem(10, 50, 40, 0.4, 0), backend="cbc", process=process)
    problems = [
        sharing_problem(100, waiting, 500, together, seed) for seed in range(10)
    ]
    with clock.phase("mean of ten", len(problems)):
        for problem in problems:
            solve(problem, backend="cbc", process=process)
    process.close()


def sweep(clock: Clock) -> None:
    """A point of a sweep: two days of 24 nodes."""
    trace = generate_node_trace(nodes=24, days=2.0, seed=0).frame
    options: dict[str, Any] = {"tfwd": 120, "backend": "exact", "workers": 0}
    bft.sweep(trace, grid={"max_jobs": [1]}, study="compiled", **options)
    with clock.phase("point", 50):
        bft.sweep(trace, grid={"max_jobs": range(1, 51)}, study="study", **options)


def ingest(clock: Clock) -> None:
    """Logs of 400 nodes and 30 days in the form of each scheduler."""
    for scheduler in ("slurm", "pbs", "lsf", "sge", "cobalt", "flux"):
        words = ("--nodes", 400, "--days", 30, "-o", scheduler, "-q")
        clock.command("", "generate", "log", scheduler, *words)
        words = (scheduler, "--tz", "UTC", "-o", f"{scheduler}.parquet", "-q")
        clock.command(scheduler, "ingest", scheduler, *words)


# Options of `replay`, by the name of the setting.
SETTINGS: dict[str, tuple[object, ...]] = {
    "fifo": ("--policy", "fifo"),
    "harm": ("--policy", "fifo", "--return-time", 120, "--reserve", 8),
    "best": ("--preset", "best"),
    "published-exact": ("--backend", "exact"),
}
# Work for all jobs together, a node and day: as much as the best setting does of it.
SAMPLES = 1e7


def machine(nodes: int, days: int, jobs: int, clock: Clock) -> None:
    """A large machine, from its log to the page."""
    with Path("log").open("w", encoding="utf-8") as log:
        log.writelines(sacct_lines(nodes, days))
    clock.command("ingest", "ingest", "slurm", "log", "-o", "t.parquet", "--tz", "UTC", "-q")  # fmt: skip
    pmax = f"{SAMPLES * nodes * days / jobs:.6g}"
    words = ("--first-submit", START, "--pmax", pmax, "-o", "jobs.parquet", "-q")
    clock.command("", "generate", "jobs", "--jobs", jobs, *words)
    inputs = ("-ndmap", "t.parquet", "--jobs", "jobs.parquet", "-print", 0)
    for name, options in SETTINGS.items():
        clock.command(f"replay {name}", "replay", *inputs, *options, "--out", name)
        clock.command(f"report {name}", "report", name, "-o", f"{name}.html", "-q")


Spec = Callable[[Clock], None]
SPECS: dict[str, Spec] = {
    "bundled data set": bundled,
    "event, 1,000 jobs run, nothing changes": partial(engine, 1000, 1010, Keeps, 3000),
    "event, 1,000 jobs run, one is rescaled": partial(engine, 1000, 1010, EqualShare, 3000),
    "event, 20 jobs run, 10,000 wait": partial(engine, 20, 10_020, Fifo, 3000),
    **{
        f"decision, 1,000 jobs x 500 units, {running} run": partial(decision, 1000, 500, running, False)
        for running in (20, 60, 300)
    },
    "decision, 10,000 jobs x 10,000 units, 1,000 run": partial(decision, 10_000, 10_000, 1000, False),
    "decision, 10,000 jobs x 10,000 units, 1,000 run, no two alike": partial(decision, 10_000, 10_000, 1000, True),
    **{
        f"sharing, {waiting:,} wait, {together:.0%} share": partial(sharing, waiting, together)
        for waiting, together in ((300, 1.0), (3000, 0.4), (3000, 1.0))
    },
    "sweep, 50 points": sweep,
    "ingest, 400 nodes, 30 days": ingest,
    "machine, 500 nodes, 3 days": partial(machine, 500, 3, 100),
}  # fmt: skip
LONG: dict[str, Spec] = {
    "event, 10,000 jobs in play, a million": partial(engine, 500, 10_000, Fifo, 10**6),
    "machine, 10,000 nodes, 30 days": partial(machine, 10_000, 30, 1000),
    "machine, 10,000 nodes, 365 days": partial(machine, 10_000, 365, 1000),
}


def commit_of(name: str) -> str:
    """The short name of a commit; of HEAD with `+` if files differ from it."""
    words = [
        "git",
        "-C",
        str(ROOT),
        "describe",
        "--always",
        *(["--dirty=+"] if name == "HEAD" else [name]),
    ]
    done = subprocess.run(words, capture_output=True, check=False, text=True)
    if done.returncode:
        raise SystemExit(f"--against: no commit {name}")
    return done.stdout.strip()


def checked_out(commit: str, folder: Path) -> Path:
    """Unpack a commit, and return a folder from which Python imports its packages as `bft`."""
    words = ["git", "-C", str(ROOT), "archive", commit]
    archive = subprocess.run(words, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder / "tree", filter="data")
    package = folder / "path" / "bft"
    package.mkdir(parents=True)
    for part in ("milp", "models", "datasets", "replay"):
        (package / part).symlink_to(folder / "tree" / part)
    for file in (folder / "tree" / "api").iterdir():
        (package / file.name).symlink_to(file)
    return package.parent


def measured(spec: str, path: Path | None) -> dict[str, tuple[float, float]]:
    """Measure a spec in a process of its own, with the packages of a folder; empty where these lack what it needs."""
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    with TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--measure", spec]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False)  # fmt: skip
    if done.returncode and path is None:
        raise SystemExit(f"{spec}: failed\n{done.stderr.decode()}")
    lines = done.stdout.splitlines() if not done.returncode else ["{}"]
    taken: dict[str, tuple[float, float]] = json.loads(lines[-1])
    return taken


def main() -> int:
    """Print a row for each phase; 1 where one got slower."""
    parser = program(__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="also measure this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", metavar="SPEC", help="in this process, and print JSON")  # fmt: skip
    specs, given = chosen(SPECS | LONG, parser)
    if given.measure:
        clock = Clock()
        (SPECS | LONG)[given.measure](clock)
        print(json.dumps(clock.taken))
        return 0
    slower = []
    with TemporaryDirectory() as scratch:
        sides: dict[str, Path | None] = {commit_of("HEAD"): None}
        if given.against:
            sides[commit_of(given.against)] = checked_out(given.against, Path(scratch))
        columns = [f"{unit}, {side}" for side in sides for unit in ("ms", "MiB")]
        print_head("spec", "phase", *columns, *["ratio"][: len(sides) - 1])
        for spec in specs:
            if spec in LONG and given.only == [""]:
                continue
            least = least_of(spec, sides, 1 if spec in LONG else given.rounds)
            keep(spec, least)
            here, *there = least.values()
            for phase, (seconds, mib) in here.items():
                cells: list[str] = [f"{seconds * 1e3:.3g}", f"{mib:,.0f}"]
                for other in there:
                    before, peak = other.get(phase, (float("nan"),) * 2)
                    ratio = seconds / before
                    cells += [f"{before * 1e3:.3g}", f"{peak:,.0f}", f"{ratio:.2f}"]
                    if ratio > RATIO and seconds - before > LEAST_S:
                        slower.append(f"{spec}, {phase}: {ratio:.2f} times")
                print_row(spec, phase, *cells)
    print(*[f"slower: {each}" for each in slower], sep="\n", file=sys.stderr)
    return int(bool(slower))


def least_of(
    spec: str, sides: dict[str, Path | None], rounds: int
) -> dict[str, dict[str, tuple[float, float]]]:
    """Measure a spec on all sides by turns: the least seconds and MiB of each phase."""
    least: dict[str, dict[str, tuple[float, float]]] = {side: {} for side in sides}
    for _ in range(rounds):
        for side, path in sides.items():
            for phase, taken in measured(spec, path).items():
                seconds, mib = least[side].get(phase, taken)
                least[side][phase] = min(seconds, taken[0]), min(mib, taken[1])
    return least


def keep(spec: str, least: dict[str, dict[str, tuple[float, float]]]) -> None:
    """Append what was measured to the history of this machine."""
    HISTORY.parent.mkdir(exist_ok=True)
    with HISTORY.open("a", newline="") as file:
        for side, phases in least.items():
            rows = (
                (f"{datetime.now(UTC):%Y-%m-%d %H:%M}", side, spec, phase, *taken)
                for phase, taken in phases.items()
            )
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
