"""What benchmarks.speed measures on: problems, jobs, node traces and the log of a machine, all made up."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from bft.datasets import dnn_scalability, generate_dnn_jobs
from bft.milp import Job, Pair, Problem
from bft.models import Curve, JobTable
from bft.models import Job as ReplayedJob
from bft.replay import NodeTrace

SECOND_NS = 10**9


def queue_problem(jobs: int, units: int, running: int, *, apart: bool) -> Problem:
    """A long queue as in the published log: seven curves, rescale costs of each job's own, nine units of ten held.

    Parameters
    ----------
    jobs, units, running
        How many jobs are in play, how many units are idle, and how many jobs hold some.
    apart
        Whether no two jobs have the same curve.
    """
    rng = np.random.default_rng(0)
    frame = generate_dnn_jobs(
        jobs=jobs, seed=0, first_submit="2021-02-10", jmin=1, jmax=64
    )
    factors = rng.uniform(0.9, 1.1, jobs) if apart else np.ones(jobs)
    table = []
    for row, factor in zip(frame.itertuples(index=False), factors, strict=True):
        ns = np.array(row.Ns, dtype=np.float64)
        os = np.array(row.Os) * factor
        table.append(Job(row.name, 1, 64, ns, os, row.Tcup, row.Tcdw))
    current = np.zeros(jobs, dtype=np.int64)
    runs = rng.choice(jobs, running, replace=False)
    held = units * 9 // 10 - running
    current[runs] = 1 + rng.multinomial(held, np.full(running, 1 / running))
    return Problem(units, 60.0, tuple(table), tuple(current.tolist()))


def stopped(problem: Problem) -> Problem:
    """The same problem without what its first running job holds."""
    current = list(problem.current)
    current[problem.holders[0]] = 0
    return replace(problem, current=tuple(current))


def sharing_problem(
    running: int, waiting: int, units: int, together: float, seed: int
) -> Problem:
    """Jobs that run on all units, a part of them in pairs; those that wait are of seven kinds, a group each."""
    rng = np.random.default_rng(seed)
    curves = list(dnn_scalability().values())
    kinds = len(curves)
    ratios = rng.uniform(1.1, 1.6, (kinds, kinds)).tolist()
    jobs = []
    for j in range(running + waiting):
        curve = {0: 0.0, **curves[j % kinds]}
        costs = float(rng.uniform(17, 19)), float(rng.uniform(11, 13))
        ns, os = (np.array(list(part), float) for part in (curve, curve.values()))
        jobs.append(Job(f"j{j}", 1, 64, ns, os, *costs))

    def pair(a: int, b: int, shared: int = 0) -> Pair:
        beside = ratios[a % kinds][b % kinds], ratios[b % kinds][a % kinds]
        return Pair(a, b, *beside, shared)

    paired = 2 * int(together * running / 2)
    holders = [(j, j + 1) for j in range(0, paired, 2)]
    holders += [(j,) for j in range(paired, running)]
    current = [0] * len(jobs)
    shares = np.full(len(holders), 1 / len(holders))
    each = 1 + rng.multinomial(units - len(holders), shares)
    for held, n in zip(holders, each.tolist(), strict=True):
        for j in held:
            current[j] = min(n, 64)
    pairs = [pair(*held, current[held[0]]) for held in holders if len(held) == 2]
    # Each running job may also share with one of those that run and three kinds of those that wait.
    pairs += [pair(j, j + 1) for j in range(1, running - 1, 2)]
    groups = tuple(tuple(range(running + k, len(jobs), kinds)) for k in range(kinds))
    for j, k in itertools.product(range(running), range(3)):
        pairs.append(pair(j, groups[(j + k) % kinds][0]))
    for a, b in itertools.combinations_with_replacement(groups, 2):
        pairs.append(pair(*sorted((a[0], b[0] if a is not b else a[1]))))
    return Problem(
        units, 60.0, tuple(jobs), tuple(current), pairs=tuple(pairs), alike=groups
    )


def flickering(units: int, events: int, spare: int = 1) -> NodeTrace:
    """A machine of `units` that are always idle, and `spare` ones that join and leave by turns, an event a second."""
    always = np.arange(units, dtype=np.int32)
    others = np.arange(units, units + spare, dtype=np.int32)
    odd = np.arange(1, events) % 2 == 1
    joins = [always, *(others if each else others[:0] for each in odd)]
    leaves = [others[:0], *(others[:0] if each else others for each in odd)]
    parts = []
    for groups in (joins, leaves):
        ends = np.concatenate([[0], np.cumsum([len(group) for group in groups])])
        parts += [np.concatenate(groups), ends.astype(np.int64)]
    names = tuple(f"n{node}" for node in range(units + spare))
    times = np.arange(events, dtype=np.int64) * SECOND_NS
    return NodeTrace(names, times, *parts, 0, events * SECOND_NS)


def linear_jobs(count: int, jmax: int, short: int = 0) -> JobTable:
    """`count` jobs of 1 ... `jmax` units, all submitted at once; every `short`-th of them is short."""
    curve = Curve(np.array([0.0, jmax]), np.array([0.0, jmax]))
    jobs = []
    for k in range(count):
        work = 40.0 + k % 7 if short and k % short == 0 else 1e9
        jobs.append(ReplayedJob(f"j{k}", 0, 1, jmax, work, 0.0, 0.0, curve, curve))
    return JobTable(tuple(jobs))


START = "2023-01-01"
MEAN_S, LARGEST = 5400, 64
# After a third of the jobs their nodes stay idle, this long on average: about 7 % of the machine.
IDLE_AFTER, MEAN_IDLE_S = 1 / 3, 1200
DRAWS = 10_000


def host_list(nodes: Sequence[int]) -> str:
    """Nodes in order as Slurm writes them.

    >>> host_list([3]), host_list([3, 4, 5, 9])
    ('n00003', 'n[00003-00005,00009]')
    """
    parts = []
    for _, group in groupby(enumerate(nodes), lambda pair: pair[1] - pair[0]):
        run = [node for _, node in group]
        parts.append(f"{run[0]:05}-{run[-1]:05}" if len(run) > 1 else f"{run[0]:05}")
    return f"n{parts[0]}" if len(nodes) == 1 else f"n[{','.join(parts)}]"


def sacct_lines(nodes: int, days: int) -> Iterator[str]:
    """Rows of `sacct -P` of a full machine: jobs of 1 to 64 nodes (as likely 1 to 2 as 2 to 4 ...), 90 minutes each.

    Each gets the nodes that are free first. Idle are those that wait until it has enough of them, and those of some
    jobs that have ended, as if the queue had none that fits.
    """
    yield "JobID|NodeList|AllocNodes|Start|End|State|JobName\n"
    rng = np.random.default_rng(0)
    begin = np.datetime64(START, "s")
    # What is freed together, by the instant; what a job leaves of it goes back.
    freed: list[tuple[int, int, list[int]]] = [(0, -1, list(range(nodes)))]
    number, now, end_s = 0, 0, days * 86_400
    while now < end_s:
        sizes = np.rint(LARGEST ** rng.random(DRAWS)).astype(int).tolist()
        lengths = (rng.exponential(MEAN_S, DRAWS).astype(np.int64) + 1).tolist()
        waits = rng.exponential(MEAN_IDLE_S, DRAWS) * (rng.random(DRAWS) < IDLE_AFTER)
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
        instants = begin + np.array([row[3:] for row in rows]).reshape(-1, 2)
        texts = np.datetime_as_string(instants).tolist()
        for (job, hosts, size, _, _), (start, end) in zip(rows, texts, strict=True):
            state = "COMPLETED" if job % 9 else "FAILED"
            yield f"{job}|{hosts}|{size}|{start}|{end}|{state}|run{job % 7}\n"
