"""The exact DP from 10 jobs x 50 units to 1,000 x 100,000: plain and core side by side, in one interleaved run.

python benchmarks/solve_exact.py [--quick]

All times are of the processor: on a machine that others use, too, any other clock has their time slices in it.

The second table has queues of interchangeable jobs: `pose` makes the problem, `cold` solves one whose jobs have not
been seen before, `warm` as at the next decision.

`plain` goes through every count of every job; `core` leaves out what cannot be part of an optimum; `solve` is what
`solve_exact` picks, with the value tables or points made anew each time. The last part poses what is hard for the core.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from _common import dnn_problem, milliseconds, queue_problem

from bft.milp import Job, Problem
from bft.milp.exact.dp import solve_exact
from bft.milp.tables import tables_of

# jobs, units, factor on the curves' 64 units, Jmin
SIZES = [
    (10, 50, 1, 1),
    (10, 500, 1, 1),
    (30, 500, 1, 1),
    (30, 1000, 1, 1),
    (30, 4734, 1, 1),
    (30, 4734, 8, 1),
    (100, 10000, 8, 1),
    (1000, 100000, 8, 1),
    (1000, 100000, 8, 100),
    (1000, 100000, 1563, 1),
]
# jobs, units, jobs that run
QUEUES = [
    (100, 500, 20),
    (1000, 500, 20),
    (1000, 500, 300),
    (10000, 5000, 20),
    (10000, 5000, 1000),
]


def compare(sizes: list[tuple[int, int, int, int]], instances: int) -> None:
    """Print a row for every size."""
    head = f"{'jobs':>4} {'units':>6} {'Jmax':>6} {'Jmin':>4}"
    print(f"{head} {'solve ms':>9} {'p99':>9}")
    for jobs, units, stretch, jmin in sizes:
        seconds = []
        for seed in range(instances):
            problem = dnn_problem(
                jobs, units, seed, stretch=stretch, jmax=64 * stretch, jmin=jmin
            )
            started = time.thread_time()
            solve_exact(problem)
            seconds.append(time.thread_time() - started)
        print(
            f"{jobs:4} {units:6} {64 * stretch:6} {jmin:4} {milliseconds(seconds)}",
            flush=True,
        )


def queues(sizes: list[tuple[int, int, int]], instances: int) -> None:
    """Print a row for every queue and cost model."""
    head = f"{'jobs':>5} {'units':>5} {'running':>7} {'costs':9} {'classes':>7}"
    print(
        f"\n{head} {'pose ms':>9} {'p99':>9} {'cold ms':>9} {'p99':>9} {'warm ms':>9} {'p99':>9}"
    )
    for jobs, units, running in sizes:
        for cost_model in ("bftrainer", "stall"):
            seconds: dict[str, list[float]] = {"pose": [], "cold": [], "warm": []}
            for seed in range(instances):
                problem = queue_problem(jobs, units, running, seed, cost_model)
                ways = {"cold": solve_exact, "warm": solve_exact, "pose": replace}
                for name, way in ways.items():
                    started = time.thread_time()
                    way(problem)
                    seconds[name].append(time.thread_time() - started)
            times = " ".join(milliseconds(taken) for taken in seconds.values())
            label = f"{jobs:5} {units:5} {running:7} {cost_model:9} {len(tables_of(problem).classes.first):7}"
            print(f"{label} {times}", flush=True)


def hard(jobs: int, units: int) -> None:
    """Print times for problems with many ties, in which few choices can be skipped."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(100, 1000, jobs)

    def all_or_nothing(worth: Callable[[int], float]) -> list[Job]:
        return [
            Job(
                f"j{j}", int(n), int(n), np.array([0, n]), np.array([0, worth(n)]), 0, 0
            )
            for j, n in enumerate(sizes)
        ]

    def convex(top: Callable[[int], float]) -> list[Job]:
        ns = np.array([0, 128, 256])
        return [
            Job(f"j{j}", 1, 256, ns, np.array([0, 1, top(j)]), 0, 0)
            for j in range(jobs)
        ]

    steps = np.floor(np.arange(513) / 8) ** 0.8
    problems = {
        "subset sum: all or nothing, value = units": all_or_nothing(lambda n: n),
        "all or nothing, value = units + 100": all_or_nothing(lambda n: n + 100),
        "all or nothing, even units, odd capacity": [
            Job(
                f"j{j}",
                2 * int(n),
                2 * int(n),
                np.array([0, 2 * n]),
                np.array([0, n]),
                0,
                0,
            )
            for j, n in enumerate(sizes)
        ],
        "random increments, 300 breakpoints": [
            Job(
                f"j{j}",
                1,
                300,
                np.arange(301),
                np.append(0, np.sort(rng.uniform(0, 1000, 300))),
                0,
                0,
            )
            for j in range(jobs)
        ],
        "steps of 8, all alike": [
            Job(f"j{j}", 8, 512, np.arange(513), steps, 0, 0) for j in range(jobs)
        ],
        "convex, all alike": convex(lambda j: 100),
        "convex, nearly alike": convex(lambda j: 100 + 0.001 * j),
    }
    print(f"\n{jobs} jobs x {units + 7} units, hard ones")
    for name, table in problems.items():
        problem = Problem(units + 7, 1.0, tuple(table), (0,) * jobs)
        started = time.thread_time()
        solve_exact(problem)
        print(f"{name:45} {(time.thread_time() - started) * 1e3:9.1f} ms", flush=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few instances, small hard ones"
    )
    quick = parser.parse_args().quick
    solve_exact(dnn_problem(2, 4, 0))  # compiled before the clock starts
    compare(SIZES[:8] if quick else SIZES, 3 if quick else 20)
    queues(QUEUES[:3] if quick else QUEUES, 3 if quick else 20)
    hard(100 if quick else 1000, 10_000 if quick else 100_000)
    print(
        f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
