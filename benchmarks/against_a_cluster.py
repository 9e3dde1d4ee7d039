"""Replay what a cluster measured: Shockwave's runs of 120 jobs on 32 V100s (benchmarks/README.md).

python benchmarks/against_a_cluster.py [--runs NAME,...] [--png FILE]

The authors published, for runs on their cluster and in their simulator, which worker each job had in each round, and
when each job ended (`reference/shockwave`). The policy `schedule` gives our engine these allocations. What was not
recorded is when rounds began. The tables:

1. Completion times (JCT). The clock of rounds is fixed, or taken from the ends of the other jobs: each job is replayed
   with a clock that does not know its end. Errors are relative to the measured JCT.
2. Work: whether the seconds that a job ran, and the rounds that it held, are those that its work needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _published import reference_folder
from _tables import print_head, print_row, program
from numpy.typing import NDArray

from bft.models import Curve, Job, JobTable
from bft.replay import Replay, Rules, always_idle
from bft.replay.policies.schedule import Schedule
from bft.replay.trace.node_trace import SECOND_NS

FloatArray = NDArray[np.float64]
POLICIES = (
    "min_total_duration",
    "max_sum_throughput_perf",
    "shockwave",
    "finish_time_fairness",
)
WORKERS = 32
ROUND_S = 120.0
# The first rounds, in which data sets are loaded.
LOADING = 12
# A job ends this much before its last round does, so that rounding cannot move its end into the next one.
SHORT_OF_ROUND_S = 1e-3


@dataclass(frozen=True)
class Recorded:
    """A run as its authors recorded it.

    Parameters
    ----------
    table
        The workload: arrival_s, gpus, exclusive_s and others; the index is the number of a job.
    jobs
        What became of each job: arrival_s, end_s, jct_s, rho_static, rho_themis, rounds, last_round, worker_run_s.
    held
        One row for each job and round: round, job, first and last worker of a range, from 0.
    rates
        Steps/s of a job at the end of some rounds, over those of the job alone: job, round, ratio.
    """

    table: pd.DataFrame
    jobs: pd.DataFrame
    held: pd.DataFrame
    rates: pd.DataFrame

    @cached_property
    def rounds(self) -> int:
        """Number of rounds."""
        return int(self.held["round"].max()) + 1

    @cached_property
    def rounds_of(self) -> dict[int, NDArray[np.int64]]:
        """The rounds of each job, ascending."""
        return {
            int(job): np.unique(rows["round"].to_numpy(dtype=np.int64))
            for job, rows in self.held.groupby("job")
        }

    @property
    def run_s(self) -> pd.Series:
        """Seconds that the workers of each job ran."""
        return self.jobs["worker_run_s"] / self.table["gpus"]


def read(folder: Path, name: str) -> Recorded:
    """Read one run, such as `fidelity-shockwave-physical`."""
    golden = folder / "golden" / name
    table = pd.read_csv(folder / "jobs.csv").set_index("job")
    jobs = pd.read_csv(f"{golden}.jobs.csv.gz").set_index("job")
    rounds = pd.read_csv(f"{golden}.rounds.csv.gz", dtype={"workers": str})
    rates = pd.read_csv(f"{golden}.throughput.csv.gz")
    rates = rates.join(table[["model", "gpus"]], on="job")
    alone = pd.read_csv(folder / "throughputs_tacc.csv")
    alone = alone[(alone["gpu"] == "v100") & (alone["consolidated"] == 1)]
    rates = rates.merge(
        alone[["model", "batch_size", "gpus", "steps_per_s"]],
        on=["model", "batch_size", "gpus"],
        suffixes=("", "_alone"),
    )
    rates["ratio"] = rates["steps_per_s"] / rates["steps_per_s_alone"]
    rows = []
    for row in rounds.itertuples(index=False):
        rows += [(row.round, row.job, *ends) for ends in ranges(str(row.workers))]
    held = pd.DataFrame(rows, columns=["round", "job", "first_unit", "last_unit"])
    order = rates.sort_values(["job", "round"])
    return Recorded(table, jobs, held, order[["job", "round", "ratio"]])


def ranges(workers: str) -> list[tuple[int, int]]:
    """Return the first and last of each range of consecutive workers, from a list with spaces.

    >>> ranges("4 0 1 7")
    [(0, 1), (4, 4), (7, 7)]
    """
    found: list[tuple[int, int]] = []
    for worker in sorted(map(int, workers.split())):
        if found and found[-1][1] == worker - 1:
            found[-1] = (found[-1][0], worker)
        else:
            found.append((worker, worker))
    return found


def measured_clock(run: Recorded, without: int | None = None) -> FloatArray:
    """When each round began, and the last one ended, in seconds: float64 of shape (rounds + 1,).

    A job ends in its last round, so that the ends of jobs date the ends of rounds: the median of several, and linear
    between them.

    Parameters
    ----------
    run
        A run.
    without
        A job whose end is not used.
    """
    ended = run.jobs if without is None else run.jobs.drop(index=without)
    known = ended.groupby("last_round")["end_s"].median()
    rounds = np.concatenate([[0.0], known.index.to_numpy(dtype=np.float64) + 1])
    ends = np.concatenate([[0.0], np.maximum.accumulate(known.to_numpy())])
    clock: FloatArray = np.interp(np.arange(run.rounds + 1.0), rounds, ends)
    beyond = np.arange(run.rounds + 1.0) - rounds[-1]
    return clock + np.maximum(beyond, 0) * ends[-1] / rounds[-1]


def fixed_clock(run: Recorded, seconds: float = ROUND_S) -> FloatArray:
    """The same with rounds of one length."""
    return np.arange(run.rounds + 1) * seconds


def loading_clock(run: Recorded) -> FloatArray:
    """The first rounds as measured, in which data sets are loaded, and 120 s for each later one."""
    clock = measured_clock(run)
    later = np.arange(run.rounds - LOADING) + 1.0
    return np.concatenate([clock[: LOADING + 1], clock[LOADING] + later * ROUND_S])


def jct_s(run: Recorded, clock: FloatArray) -> FloatArray:
    """Replay the recorded allocations on this clock, and return the JCT of each job in seconds.

    Each job gets the workers that it had in each round; its work is the time that it held them.
    """
    instants = np.round(clock * SECOND_NS).astype(np.int64)
    start, end = instants[run.held["round"]], instants[run.held["round"] + 1]
    rows = run.held.assign(
        job=run.held["job"].map("job {}".format),
        start=pd.to_datetime(start, unit="ns", utc=True),
        end=pd.to_datetime(end, unit="ns", utc=True),
    )
    jobs = []
    for number, row in run.table.iterrows():
        arrival = round(row["arrival_s"] * SECOND_NS)
        mine = run.rounds_of[int(number)]
        begin = np.maximum(instants[mine], arrival)
        held_s = np.maximum(instants[mine + 1] - begin, 0).sum() / SECOND_NS
        jobs.append(as_job(int(number), row, arrival, held_s - SHORT_OF_ROUND_S))
    machine = always_idle(WORKERS, 0, int(instants[-1]) + SECOND_NS)
    outcome = Replay(
        machine,
        JobTable(tuple(jobs)),
        Schedule.of(rows[rows["end"] > rows["start"]]),
        Rules(max_jobs=0),
    ).run()
    return np.array(
        [
            np.nan
            if record.finish_ns is None
            else (record.finish_ns - record.job.tsub_ns) / SECOND_NS
            for record in outcome.records
        ]
    )


def as_job(number: int, row: Any, arrival_ns: int, seconds: float) -> Job:
    """A job that needs so many seconds on its GPUs."""
    gpus = int(row["gpus"])
    curve = Curve(np.array([0, gpus]), np.array([0.0, 1.0]))
    return Job(f"job {number}", arrival_ns, gpus, gpus, seconds, 0.0, 0.0, curve, curve)


def left_out_jct_s(run: Recorded) -> FloatArray:
    """The JCT of each job on a clock from the ends of all others."""
    return np.array(
        [
            jct_s(run, measured_clock(run, without=int(job)))[position]
            for position, job in enumerate(run.jobs.index)
        ]
    )


# --- work -------------------------------------------------------------------------------------------------------------


def lost_s(run: Recorded) -> tuple[float, float]:
    """Seconds without progress for each round held, and for each start of a job, by least squares over the jobs.

    They explain the difference between the time that a job held its workers and the time that these ran.
    """
    lengths = np.diff(measured_clock(run))
    rows, differences = [], []
    for job, rounds in run.rounds_of.items():
        rows.append((len(rounds), starts(rounds).sum()))
        differences.append(lengths[rounds].sum() - run.run_s[job])
    (by_round, by_start), *_ = np.linalg.lstsq(
        np.array(rows, dtype=np.float64), np.array(differences), rcond=None
    )
    return float(by_round), float(by_start)


def starts(rounds: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of a job's rounds follow a round without it."""
    return np.concatenate([[True], np.diff(rounds) > 1])


def rounds_off(
    run: Recorded,
    needed_s: pd.Series,
    *,
    as_given: bool,
    by_round: float,
    by_start: float,
) -> FloatArray:
    """By how many of its rounds the work of each job ends after (or, < 0, before) its last round.

    Parameters
    ----------
    run
        A run.
    needed_s
        Seconds of work by job.
    as_given
        Take the rates that were recorded; otherwise those of the jobs alone.
    by_round, by_start
        Seconds without progress in a round, and after a start.
    """
    lengths = np.diff(measured_clock(run))
    rates = dict(iter(run.rates.groupby("job")))
    off = []
    for job, rounds in run.rounds_of.items():
        seconds = lengths[rounds] - by_round - by_start * starts(rounds)
        if as_given:
            stated = rates[job]
            place = np.searchsorted(stated["round"].to_numpy(), rounds)
            place = np.minimum(place, len(stated) - 1)
            seconds = seconds * stated["ratio"].to_numpy()[place]
        done = seconds.sum()
        off.append((needed_s[job] - done) / (done / len(rounds)))
    return np.array(off)


# --- tables and figure ------------------------------------------------------------------------------------------------


def spread(errors: FloatArray) -> str:
    """Median, 90th percentile and maximum in percent."""
    median, high, largest = np.quantile(np.abs(errors), [0.5, 0.9, 1.0]) * 100
    return f"{median:.2f}, {high:.2f}, {largest:.2f}"


def print_jct(runs: dict[str, Recorded]) -> dict[str, dict[str, FloatArray]]:
    """Print errors of JCT by clock, median, p90 and maximum in percent; return them by run and clock."""
    clocks = (
        "rounds of 120 s",
        "rounds of the mean length",
        f"first {LOADING} as measured, then 120 s",
        "clock of the other jobs",
    )
    print("1. error of JCT by the clock of rounds, %: median, p90, largest\n")
    print_head("run", "rounds", "mean, s", *clocks, "median of the last, %")
    errors: dict[str, dict[str, FloatArray]] = {}
    for name, run in runs.items():
        measured = run.jobs["jct_s"].to_numpy()
        mean = float(run.jobs["end_s"].max()) / run.rounds
        replayed = (
            jct_s(run, fixed_clock(run)),
            jct_s(run, fixed_clock(run, mean)),
            jct_s(run, loading_clock(run)),
            left_out_jct_s(run),
        )
        errors[name] = {
            clock: ours / measured - 1
            for clock, ours in zip(clocks, replayed, strict=True)
        }
        cells = [spread(error) for error in errors[name].values()]
        print_row(name, run.rounds, f"{mean:.1f}", *cells, cells[-1].split(",")[0])
    return errors


def print_work(runs: dict[str, Recorded]) -> None:
    """Print how the work of jobs agrees with the seconds that they ran and the rounds that they held."""
    print(
        "\n2. seconds run / exclusive seconds, also x (rate given / rate alone): median, 5-95 %;"
        "\n   seconds lost by round and start; share of jobs whose work ends in their last round +- 1\n"
    )
    print_head(
        "run",
        "seconds run / exclusive: median, 5-95 %",
        "the same × rate given / rate alone",
        "lost by round, start, s",
        "work ends in the last round ± 1",
        "with rates given, 20 s a start",
        "with the seconds run",
    )
    for name, run in runs.items():
        ran = (run.run_s / run.table["exclusive_s"]).to_numpy()
        given = ran * run.rates.groupby("job")["ratio"].mean().to_numpy()
        by_round, by_start = lost_s(run)
        lost = {"by_round": by_round, "by_start": by_start}
        exclusive = run.table["exclusive_s"]
        offs = (
            rounds_off(run, exclusive, as_given=True, by_round=0.0, by_start=20.0),
            rounds_off(run, exclusive, as_given=False, **lost),
            rounds_off(run, run.run_s, as_given=False, **lost),
        )
        within = [float(np.mean(np.abs(off) <= 1)) for off in offs]
        print_row(
            name,
            around(ran),
            around(given),
            f"{by_round:.1f}, {by_start:.1f}",
            f"{within[1]:.0%}",
            f"{within[0]:.0%}",
            f"{within[2]:.0%}",
        )


def around(ratios: FloatArray) -> str:
    """Median, and the 5th and 95th percentile."""
    low, median, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    return f"{median:.3f}, {low:.3f}-{high:.3f}"


def draw(
    runs: dict[str, Recorded], errors: dict[str, dict[str, FloatArray]], file: str
) -> None:
    """Draw the error of each job's JCT under a fixed clock and under that of the cluster."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    marks = {
        "rounds of 120 s": ("#d95f02", "x"),
        "clock of the other jobs": ("#1b5e8c", "o"),
    }
    for axis, (name, run) in zip(axes.flat, runs.items(), strict=False):
        hours = run.jobs["jct_s"] / 3600
        for clock, (color, marker) in marks.items():
            off = 100 * errors[name][clock]
            axis.scatter(
                hours, off, s=14, c=color, marker=marker, linewidths=1.0, label=clock
            )
        axis.axhline(0, color="black", linewidth=0.6)
        axis.set_title(name, fontsize=10)
        axis.grid(alpha=0.25)
    figure.supxlabel("JCT measured on the cluster, hours", fontsize=10)
    figure.supylabel("JCT replayed against measured, %", fontsize=10)
    axes.flat[0].legend(fontsize=8, loc="lower right")
    figure.savefig(file, dpi=110, metadata={"Software": None})


def main() -> None:
    """Print the tables, and draw the figure."""
    parser = program(__doc__)
    parser.add_argument("--runs", default=",".join(POLICIES), help="policies, with commas")  # fmt: skip
    parser.add_argument("--png", help="draw the figure into this file")
    options = parser.parse_args()
    names = options.runs.split(",")
    folder = reference_folder() / "shockwave"
    cluster = {name: read(folder, f"fidelity-{name}-physical") for name in names}
    simulated = {name: read(folder, f"fidelity-{name}-simulation") for name in names}
    errors = print_jct(cluster)
    both = {f"{name}, cluster": run for name, run in cluster.items()}
    both |= {f"{name}, simulated": run for name, run in simulated.items()}
    print_work(both)
    if options.png:
        draw(cluster, errors, options.png)


if __name__ == "__main__":
    main()
