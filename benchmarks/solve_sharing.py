"""Time decisions with sharing, and count what showed their optimum.

python benchmarks/solve_sharing.py [--quick]
python benchmarks/solve_sharing.py --queues     100 that run and some thousand that wait, by classes of jobs;
                                                with 0 that wait: 100 jobs with 150 pairs, a part of which run
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter

import numpy as np

from bft.datasets import dnn_scalability
from bft.milp import Job, Pair, Problem, SolverProcess, solve

# Jobs, units, pairs: a small and a large case, and two in between
CASES = ((10, 100, 15), (10, 500, 15), (20, 500, 30), (30, 1000, 45))
PARTNERS = 3


def instance(
    rng: np.random.Generator, jobs: int, units: int, pairs: int, sharing: float
) -> Problem:
    """DNN trainings with random holdings; a share `sharing` of the possible pairs shares units now."""
    curves = list(dnn_scalability().values())
    made = []
    for j in range(jobs):
        curve = curves[j % len(curves)]
        ns, ps = (
            np.array([0, *curve], dtype=float),
            np.array([0, *curve.values()], dtype=float),
        )
        made.append(
            Job(
                f"j{j}",
                1,
                64,
                ns,
                ps,
                float(rng.uniform(17, 19)),
                float(rng.uniform(11, 13)),
            )
        )
    candidates = list(itertools.combinations(range(jobs), 2))
    rng.shuffle(candidates)
    degree: Counter[int] = Counter()
    chosen = []
    for a, b in candidates:
        if len(chosen) < pairs and max(degree[int(a)], degree[int(b)]) < PARTNERS:
            chosen.append((int(a), int(b)))
            degree.update(chosen[-1])
    left = units - int(rng.integers(0, units // 3 + 1))
    current, busy, result = [0] * jobs, set(), []
    for a, b in chosen:
        shared = 0
        if busy.isdisjoint((a, b)) and rng.random() < sharing:
            n_a, n_b = (int(n) for n in rng.integers(1, 33, 2))
            both = int(rng.integers(1, min(n_a, n_b) + 1))
            if n_a + n_b - both <= left:
                shared, current[a], current[b] = both, n_a, n_b
                left -= n_a + n_b - both
                busy |= {a, b}
        xi_a, xi_b = (1 + 0.6 * rng.random(2)).tolist()
        result.append(Pair(a, b, xi_a, xi_b, shared))
    for j in range(jobs):
        n = int(rng.integers(1, 65))
        if not current[j] and rng.random() < 0.7 and n <= left:
            current[j] = n
            left -= n
    return Problem(units, 120.0, tuple(made), tuple(current), pairs=tuple(result))


def queue(
    rng: np.random.Generator, running: int, waiting: int, units: int, sharing: float
) -> Problem:
    """So many that run, a part of them in pairs, on all units; those that wait are of seven kinds, a group each."""
    curves = list(dnn_scalability().values())
    kinds = len(curves)
    ratios = 1.1 + 0.5 * rng.random((kinds, kinds))

    def job(j: int) -> Job:
        curve = curves[j % kinds]
        ns, ps = (
            np.array([0, *curve], dtype=float),
            np.array([0, *curve.values()], dtype=float),
        )
        return Job(
            f"j{j}",
            1,
            64,
            ns,
            ps,
            float(rng.uniform(17, 19)),
            float(rng.uniform(11, 13)),
        )

    def pair(a: int, b: int, shared: int = 0) -> Pair:
        return Pair(
            a,
            b,
            float(ratios[a % kinds, b % kinds]),
            float(ratios[b % kinds, a % kinds]),
            shared,
        )

    jobs = tuple(job(j) for j in range(running + waiting))
    current, pairs = [0] * len(jobs), []
    together = 2 * int(sharing * running / 2)
    holders = [(j, j + 1) for j in range(0, together, 2)] + [
        (j,) for j in range(together, running)
    ]
    each = (
        rng.multinomial(units - len(holders), np.ones(len(holders)) / len(holders)) + 1
    )
    for held, n in zip(holders, each.tolist(), strict=True):
        for j in held:
            current[j] = min(n, 64)
        if len(held) == 2:
            pairs.append(pair(*held, current[held[0]]))
    groups = tuple(tuple(range(running + k, len(jobs), kinds)) for k in range(kinds))
    degree: Counter[int] = Counter()
    for a, b in rng.permutation(
        list(itertools.combinations(range(running), 2))
    ).tolist():
        if (
            max(degree[a], degree[b]) < PARTNERS
            and current[a] + current[b]
            and not (b == a + 1 < together and a % 2 == 0)
        ):
            degree.update((a, b))
            pairs.append(pair(a, b))
    pairs += [
        pair(j, groups[k][0])
        for j in range(running)
        for k in rng.permutation(kinds)[:PARTNERS].tolist()
    ]
    pairs += [
        pair(*sorted((a[0], b[0] if a is not b else a[1])))
        for a, b in itertools.combinations_with_replacement(groups, 2)
    ]
    return Problem(units, 60.0, jobs, tuple(current), pairs=tuple(pairs), alike=groups)


def queues() -> None:
    """Print one row for each length of the queue: CPU time of a decision, solver apart, and what showed the optimum."""
    print("running waiting units sharing | median max CPU ms | shown by")
    worker = SolverProcess()
    solve(
        queue(np.random.default_rng(0), 10, 50, 40, 0.4), backend="cbc", process=worker
    )  # compiles
    for waiting, sharing in (
        (0, 0.0),
        (0, 0.4),
        *itertools.product((300, 3000), (0.0, 0.4, 1.0)),
    ):
        rng, seconds, shown = np.random.default_rng(5), [], Counter[str]()
        for _ in range(10):
            problem = (
                queue(rng, 100, waiting, 500, sharing)
                if waiting
                else instance(rng, 100, 500, 150, sharing)
            )
            start = time.process_time()
            answer = solve(problem, backend="cbc", process=worker)
            seconds.append((time.process_time() - start) * 1e3)
            shown[f"{answer.formulation} {answer.status}"] += 1
        by = ", ".join(f"{name} {count}" for name, count in sorted(shown.items()))
        print(
            f"{100:7} {waiting:7} {500:5} {sharing:7.0%} | {np.median(seconds):6.0f} {max(seconds):6.0f} | {by}",
            flush=True,
        )


def main() -> None:
    """Print one row a case and share of pairs that share at the start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="5 problems a case instead of 25"
    )
    parser.add_argument(
        "--queues", action="store_true", help="100 that run, thousands that wait"
    )
    asked = parser.parse_args()
    if asked.queues:
        queues()
        return
    repetitions = 5 if asked.quick else 25
    worker = SolverProcess()
    solve(
        instance(np.random.default_rng(0), 8, 40, 10, 0.4),
        backend="cbc",
        process=worker,
    )
    print("jobs units pairs sharing | median p90 max ms | shown by")
    for jobs, units, pairs in CASES:
        for sharing in (0.0, 0.4):
            rng, took_ms, shown = np.random.default_rng(5), [], Counter[str]()
            for _ in range(repetitions):
                problem = instance(rng, jobs, units, pairs, sharing)
                answer = solve(problem, backend="cbc", process=worker)
                took_ms.append(answer.seconds * 1e3)
                shown[f"{answer.formulation} {answer.status}"] += 1
            median, p90, longest = np.percentile(took_ms, (50, 90, 100))
            by = ", ".join(f"{name} {count}" for name, count in sorted(shown.items()))
            print(
                f"{jobs:4} {units:5} {pairs:5} {sharing:7.0%} | {median:7.1f} {p90:7.1f} {longest:7.1f} | {by}",
                flush=True,
            )


if __name__ == "__main__":
    main()
