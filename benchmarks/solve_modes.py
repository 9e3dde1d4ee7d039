"""Formulations and backends side by side: size, time to build, time to solve, in one interleaved run.

python benchmarks/solve_modes.py [--quick] [--instances K] [--node-limit VARIABLES]
python benchmarks/solve_modes.py --queues [--quick]      only the queues of 1,000 jobs
python benchmarks/solve_modes.py --options [--quick]     CBC's options instead, also on recorded decisions
python benchmarks/solve_modes.py --largest [--quick]     10,000 jobs on 10,000 units, exact and cbc

Solve times include the way to the solver process and back; every answer must be worth the exact DP's.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from unittest.mock import patch

import _lambda
import mip
import numpy as np
from _common import dnn_problem, milliseconds, published, queue_problem

from bft.milp import (
    Pair,
    Problem,
    SolverProcess,
    Ties,
    solve,
)
from bft.milp.backends import python_mip
from bft.milp.backends.process import SolverFailure
from bft.milp.backends.registry import SOLVERS, describe
from bft.milp.exact.dp import solve_exact
from bft.milp.formulations import modes, node
from bft.milp.formulations.linear import Limits, LinearModel
from bft.milp.tables import tables_of

SIZES = [(j, n) for j in (5, 10, 20, 30) for n in (50, 100, 200, 500, 1000)] + [
    (30, 4734)
]
QUICK = [(5, 50), (10, 100), (10, 500), (30, 1000)]
FORMULATIONS = {"modes": modes.build, "lambda": _lambda.build, "node": node.build}
# Pairs per job in the rows about sharing: 15 for 10 jobs, 45 for 30.
PAIRS = 1.5
SECONDS = 60.0


def bounds(jobs: int, units: int) -> dict[str, int]:
    """Curves so long that the units never suffice for all jobs."""
    stretch = max(1, -(-2 * units // (64 * jobs)))
    return {"stretch": stretch, "jmax": 64 * stretch}


def compare(sizes: Iterable[tuple[int, int]], instances: int, node_limit: int) -> None:
    """Print a row for every size, formulation and backend."""
    backends = [name for name in SOLVERS if describe(name).available]
    # The licence that comes with gurobipy.
    largest = (
        {"gurobi": 2000} if "gurobi" in backends and describe("gurobi").limits else {}
    )
    process = SolverProcess()
    for backend in (
        backends
    ):  # processes, libraries and compiled kernels are there before the clock starts
        process.solve(modes.build(dnn_problem(2, 4, 0)).model, backend, Limits())
    solve_exact(dnn_problem(2, 4, 0))
    head = f"{'jobs':>4} {'units':>5} {'formulation':11} {'backend':7} {'vars':>6} {'rows':>6}"
    print(
        f"{head} {'build ms':>9} {'p99':>9} {'solve ms':>9} {'p99':>9} {'/ modes cbc':>11} {'/ exact':>8}  of note"
    )
    for jobs, units in sizes:
        builds: defaultdict[str, list[float]] = defaultdict(list)
        solves: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        shape: dict[str, tuple[int, int]] = {}
        notes: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for seed in range(instances):
            problem = dnn_problem(jobs, units, seed, **bounds(jobs, units))
            started = time.perf_counter()
            counts = solve_exact(problem)
            solves["modes", "exact"].append(time.perf_counter() - started)
            best = tables_of(problem).value(counts)
            for formulation, build in FORMULATIONS.items():
                if formulation == "node" and jobs * units > node_limit:
                    continue
                started = time.perf_counter()
                built = build(problem)
                builds[formulation].append(time.perf_counter() - started)
                shape[formulation] = len(built.model.objective), len(built.model.rows)
                for name in backends:
                    at = formulation, name
                    if max(shape[formulation]) > largest.get(name, math.inf):
                        notes[at].add("licence too small")
                        continue
                    started = time.perf_counter()
                    try:
                        answer = process.solve(built.model, name, Limits(SECONDS))
                    except SolverFailure as failure:
                        notes[at].add(str(failure))
                        continue
                    solves[at].append(time.perf_counter() - started)
                    if answer.status != "optimal":
                        notes[at].add(f"{answer.status} at {SECONDS:g} s")
                    else:
                        value = tables_of(problem).value(built.decode(answer.x))
                        assert math.isclose(value, best, rel_tol=1e-6), (
                            jobs,
                            units,
                            seed,
                            at,
                            value,
                            best,
                        )
            shared = solve(with_pairs(problem, seed), backend="cbc", process=process)
            assert shared.objective >= best * (1 - 1e-9), "sharing loses to exclusive"
            solves["items", "cbc"].append(shared.seconds)
            notes["items", "cbc"].add(f"build and solve; {round(PAIRS * jobs)} pairs")
        fast, exact = (
            float(np.median(solves["modes", name])) for name in ("cbc", "exact")
        )
        for formulation, name in [
            ("modes", "exact"),
            *((f, b) for f in shape for b in backends),
            ("items", "cbc"),
        ]:
            taken = solves[formulation, name]
            variables, rows = (
                shape[formulation]
                if name != "exact" and formulation in shape
                else ("", "")
            )
            median = float(np.median(taken)) if taken else math.nan
            built_ms = milliseconds(builds[formulation] if name != "exact" else [])
            ratios = f"{median / fast:11.2f} {median / exact:8.1f}"
            label = (
                f"{jobs:4} {units:5} {formulation:11} {name:7} {variables:>6} {rows:>6}"
            )
            print(
                f"{label} {built_ms} {milliseconds(taken)} {ratios}  {', '.join(notes[formulation, name])}",
                flush=True,
            )
    compare_queues(process, instances)
    round_trip(process)


def compare_queues(process: SolverProcess, instances: int) -> None:
    """Print a row for every queue of 1,000 jobs: CPU time of CBC on its classes, both processes.

    `whole` is CBC with all counts posed, also those that no optimum can contain.
    """
    head = f"{'jobs':>5} {'units':>5} {'running':>7} {'vars':>6} {'rows':>6} {'cbc ms':>9} {'p99':>9}"
    print(
        f"\n{head} {'whole ms':>9} {'p99':>9} {'whole / cbc':>11} {'cbc / exact':>11}"
    )
    for jobs, units, running in ((1000, 500, 20), (1000, 500, 60), (1000, 500, 300)):
        seconds: dict[str, list[float]] = {"cbc": [], "whole": [], "exact": []}
        for seed in range(-1, instances):
            problem = queue_problem(jobs, units, running, seed + 1)
            best = solve(
                problem, backend="exact"
            ).objective  # after that as at a decision that is not the first
            for name, taken in seconds.items():
                backend = "exact" if name == "exact" else "cbc"
                with patch.object(
                    modes,
                    "POSED_WHOLE",
                    math.inf if name == "whole" else modes.POSED_WHOLE,
                ):
                    begin = cpu_seconds(process)
                    answer = solve(
                        problem, backend=backend, ties="solver", process=process
                    )
                    used = cpu_seconds(process) - begin
                assert answer.status == "optimal", (
                    jobs,
                    units,
                    running,
                    seed,
                    name,
                    answer.note,
                )
                assert math.isclose(answer.objective, best, rel_tol=1e-6), (
                    jobs,
                    units,
                    running,
                    seed,
                    name,
                )
                if seed >= 0:  # the first starts what is not yet there
                    taken.append(used)
        model = modes.build(problem, best).model
        cbc, whole, exact = (float(np.median(taken)) for taken in seconds.values())
        label = f"{jobs:5} {units:5} {running:7} {len(model.objective):6} {len(model.rows):6}"
        times = f"{milliseconds(seconds['cbc'])} {milliseconds(seconds['whole'])}"
        print(f"{label} {times} {whole / cbc:11.1f} {cbc / exact:11.1f}", flush=True)


def compare_largest(size: int) -> None:
    """Print CPU time, peak memory and status of a decision with as many jobs as units, of few classes and of many.

    `first` is of jobs that nothing has seen before; `next` of the same jobs, of which one has stopped.
    """
    print("classes backend  ties     first ms   next ms   MiB  status")
    for running, apart in ((1000, False), (1000, True), (5000, True)):
        for backend, ties in (("exact", "canonical"), ("cbc", "solver")):
            with ProcessPoolExecutor(1, get_context("spawn")) as own:
                print(
                    own.submit(largest, size, running, apart, backend, ties).result(),
                    flush=True,
                )


def largest(size: int, running: int, apart: bool, backend: str, ties: Ties) -> str:
    """Return a row of `compare_largest`; the peak memory is that of this process and of the solver's."""
    problem = queue_problem(size, size, running * size // 10_000, 0)
    if apart:
        draw = np.random.default_rng(1)
        problem = replace(
            problem,
            jobs=tuple(
                replace(job, os=job.os * draw.uniform(0.9, 1.1)) for job in problem.jobs
            ),
        )
    process, seconds = SolverProcess(), []
    for each in (queue_problem(20, 10, 2, 0), problem, stopped(problem)):
        begin = cpu_seconds(process)
        answer = solve(each, backend=backend, ties=ties, process=process)
        seconds.append(cpu_seconds(process) - begin)
    classes = len(tables_of(problem).classes.first)
    process.close()
    mib = sum(
        resource.getrusage(of).ru_maxrss / 1024
        for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    times = f"{seconds[1] * 1e3:9.0f} {seconds[2] * 1e3:9.1f}"
    return f"{classes:7} {backend:8} {ties:9} {times} {mib:5.0f}  {answer.status}"


def stopped(problem: Problem) -> Problem:
    """The same problem without what its first running job holds."""
    current = list(problem.current)
    current[problem.holders[0]] = 0
    return replace(problem, current=tuple(current))


def cpu_seconds(process: SolverProcess) -> float:
    """CPU time of this process and of the solver's so far."""
    clock = (
        None if process.pid is None else (~process.pid << 3) | 2
    )  # as clock_getcpuclockid(3) of glibc
    return time.process_time() + (0.0 if clock is None else time.clock_gettime(clock))


def with_pairs(problem: Problem, seed: int) -> Problem:
    """The same problem with pairs that may share, at ratios between 1 and 1.6; nobody shares yet."""
    rng = np.random.default_rng(seed)
    jobs = len(problem.jobs)
    every = [(a, b) for a in range(jobs) for b in range(a + 1, jobs)]
    chosen = rng.permutation(len(every))[: round(PAIRS * jobs)]
    pairs = tuple(
        Pair(*every[i], *(1 + 0.6 * rng.random(2)).tolist()) for i in sorted(chosen)
    )
    return replace(problem, pairs=pairs)


def round_trip(process: SolverProcess) -> None:
    """Print the cost of a call of the solver process: rows to transfer, and nothing to solve."""
    for jobs, units in ((10, 100), (30, 1000)):
        model = modes.build(dnn_problem(jobs, units, 0, **bounds(jobs, units))).model
        empty = LinearModel(
            upper=model.objective, integer=model.integer, rows=model.rows
        )
        seconds = []
        for _ in range(500):
            started = time.perf_counter()
            process.solve(empty, "cbc", Limits())
            seconds.append(time.perf_counter() - started)
        print(
            f"round trip to the solver process, {jobs} x {units}: {milliseconds(seconds)} ms (median, p99)"
        )


def compare_options(every: int) -> None:
    """Print times of CBC under several options, on the `modes` of recorded and scaled decisions."""

    def options(**settings: object) -> Callable[..., None]:
        def configure(solver: mip.Model, limits: Limits, variables: int) -> None:
            for name, value in settings.items():
                if name == "heuristics":
                    mip.cbc.cbc_set_parameter(solver.solver, "heur", value)
                else:
                    setattr(solver, name, value)

        return configure

    plain = {"preprocess": 0, "cuts": 0}
    variants = {
        "ours": python_mip._set_cbc,
        "python-mip's defaults": options(),
        "no preprocessing, no cuts, 1 thread": options(**plain, threads=1),
        "the same, 0 threads": options(**plain),
        "and no pump": options(**plain, pump_passes=0),
        "and no heuristics": options(**plain, heuristics="off"),
        "no heuristics, preprocessing": options(cuts=0, heuristics="off"),
        "no heuristics, cuts": options(preprocess=0, heuristics="off"),
    }
    problems: dict[str, list[Problem]] = {
        "generated, 5-30 jobs x 50-1,000": [
            dnn_problem(j, n, 0, **bounds(j, n)) for j, n in SIZES[:-1]
        ]
    }
    try:
        for name in ("scaling-instances", "corner-cases", "instances"):
            step = 1 if name == "scaling-instances" else every
            problems[name] = [problem for _, problem in published(name)][::step]
    except SystemExit as missing:
        print(missing)
    python_mip.solve(
        modes.build(dnn_problem(2, 4, 0)).model, "CBC", Limits()
    )  # loads CBC before the clock starts
    print(
        f"{'problems':32} {'options':36} {'median ms':>9} {'p99':>9} {'mean':>9} {'max':>9} {'wrong':>5}"
    )
    for label, chosen in problems.items():
        seconds: defaultdict[str, list[float]] = defaultdict(list)
        wrong: defaultdict[str, int] = defaultdict(int)
        for problem in chosen:
            model = modes.build(problem).model
            best = tables_of(problem).value(solve_exact(problem))
            for name, configure in variants.items():
                with patch.object(python_mip, "_set_cbc", configure):
                    started = time.perf_counter()
                    answer = python_mip.solve(model, "CBC", Limits(SECONDS))
                    seconds[name].append(time.perf_counter() - started)
                close = math.isclose(answer.objective, best, rel_tol=1e-6, abs_tol=1e-6)
                wrong[name] += answer.status != "optimal" or not close
        for name, taken in seconds.items():
            mean, maximum = np.mean(taken) * 1e3, np.max(taken) * 1e3
            print(
                f"{label:32} {name:36} {milliseconds(taken)} {mean:9.2f} {maximum:9.2f} {wrong[name]:5}",
                flush=True,
            )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few sizes, few instances")
    parser.add_argument(
        "--instances", type=int, default=10, metavar="K", help="of every size"
    )
    parser.add_argument(
        "--node-limit",
        type=int,
        default=6000,
        help="maximum of jobs x units for the node formulation",
    )
    parser.add_argument(
        "--queues", action="store_true", help="only the queues of 1,000 jobs"
    )
    parser.add_argument("--options", action="store_true", help="compare CBC's options")
    parser.add_argument(
        "--largest", action="store_true", help="only 10,000 jobs on 10,000 units"
    )
    chosen = parser.parse_args()
    if chosen.largest:
        compare_largest(1000 if chosen.quick else 10_000)
    elif chosen.options:
        compare_options(40 if chosen.quick else 1)
    elif chosen.queues:
        compare_queues(SolverProcess(), 3 if chosen.quick else chosen.instances)
    elif chosen.quick:
        compare(QUICK, 3, 1000)
    else:
        compare(SIZES, chosen.instances, chosen.node_limit)


if __name__ == "__main__":
    main()
