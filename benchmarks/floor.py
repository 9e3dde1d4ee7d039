"""The minimum cost of a replay: read the trace, integrate progress, solve each decision; no records, no checks.

    python benchmarks/floor.py [--rounds 2]

On the real log (reference data) with ten jobs in play, beside `Replay`, by turns in one process. Both decide by the
compiled exact dynamic programme. What the floor leaves out: which unit is which, stalls, costs by kind, results.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _common import published_log

from bft.milp import Job as Term
from bft.milp import Problem
from bft.milp.exact.dp import solve_exact
from bft.models import Job, JobTable
from bft.replay import MilpPolicy, NodeTrace, Options, Replay, Rules, SolverOptions
from bft.replay.inputs.load import load
from bft.replay.inputs.notes import Watcher
from bft.replay.trace.node_trace import SECOND_NS

TFWD_S = 120.0
MAX_JOBS = 10


@dataclass
class Floor:
    """Jobs in play: their progress, and their numbers of units."""

    running: list[tuple[Job, Term]] = field(default_factory=list)
    progress: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    work: float = 0.0
    decisions: int = 0

    def rates(self) -> list[float]:
        """Samples/s of each."""
        return [
            float(job.rates[units])
            for (job, _), units in zip(self.running, self.counts, strict=True)
        ]

    def next_finish(self, now: int) -> int:
        """The next instant at which a job finishes."""
        lacking = [
            job.pmax - done
            for (job, _), done in zip(self.running, self.progress, strict=True)
        ]
        seconds = [
            left / rate
            for left, rate in zip(lacking, self.rates(), strict=True)
            if rate
        ]
        return now + int(min(seconds, default=1e9) * SECOND_NS) + 1

    def go(self, seconds: float) -> None:
        """Let time pass; finished jobs leave."""
        self.progress = [
            done + rate * seconds
            for done, rate in zip(self.progress, self.rates(), strict=True)
        ]
        left = [
            at
            for at, (job, _) in enumerate(self.running)
            if self.progress[at] < job.pmax
        ]
        if len(left) < len(self.running):
            self.work += sum(
                job.pmax for at, (job, _) in enumerate(self.running) if at not in left
            )
            self.running = [self.running[at] for at in left]
            self.progress = [self.progress[at] for at in left]
            self.counts = [self.counts[at] for at in left]

    def change(self, counts: list[int]) -> None:
        """Give the jobs these counts; rescaled jobs pay."""
        for at, ((job, _), before, after) in enumerate(
            zip(self.running, self.counts, counts, strict=True)
        ):
            if before != after:
                cost = (job.tcup_s if after > before else job.tcdw_s) * float(
                    job.rates[before]
                )
                self.progress[at] -= min(cost, self.progress[at])
        self.counts = counts

    def shrink_to(self, idle: int) -> None:
        """The largest jobs lose the units that are no longer idle."""
        counts = self.counts.copy()
        while sum(counts) > idle:
            largest = counts.index(max(counts))
            counts[largest] -= min(counts[largest], sum(counts) - idle)
        self.change(counts)

    def decide(self, idle: int) -> None:
        """Solve a decision, and carry it out."""
        terms = tuple(term for _, term in self.running)
        self.change(list(solve_exact(Problem(idle, TFWD_S, terms, tuple(self.counts)))))
        self.decisions += 1


def _term(job: Job) -> Term:
    curve = job.objective
    return Term(
        job.name,
        job.jmin,
        job.jmax,
        curve.ns,
        curve.ps,
        job.tcup_s,
        job.tcdw_s,
        job.weight,
    )


def floor(trace: NodeTrace, jobs: JobTable) -> tuple[float, int]:
    """Work done and number of decisions, by the floor program."""
    world, queue = Floor(), [jobs.jobs[index] for index in jobs.by_submit()]
    now, event, idle, admitted = trace.start, 0, 0, 0
    idle_counts = trace.idle_units().tolist()
    times = [*trace.times.tolist(), trace.end + 1]
    while world.running or admitted < len(queue):
        instant = min(world.next_finish(now), times[event])
        if admitted < len(queue) and len(world.running) < MAX_JOBS:
            instant = min(instant, max(queue[admitted].tsub_ns, now))
        world.go((min(instant, trace.end) - now) / SECOND_NS)
        now = instant
        if now >= trace.end:
            break
        if times[event] == now:
            idle = idle_counts[event]
            event += 1
            world.shrink_to(idle)
        while (
            admitted < len(queue)
            and len(world.running) < MAX_JOBS
            and queue[admitted].tsub_ns <= now
        ):
            world.running.append((queue[admitted], _term(queue[admitted])))
            world.progress.append(0.0)
            world.counts.append(0)
            admitted += 1
        if world.running and idle:
            world.decide(idle)
    return world.work + sum(world.progress), world.decisions


def engine(trace: NodeTrace, jobs: JobTable) -> tuple[float, int]:
    """The same by `Replay`."""
    outcome = Replay(
        trace,
        jobs,
        MilpPolicy(TFWD_S, SolverOptions("exact")),
        Rules(max_jobs=MAX_JOBS),
    ).run()
    return outcome.work, len(outcome.decision_seconds)


def main(rounds: int = 2) -> None:
    """Run both alternately."""
    log: dict[str, Any] = {**published_log(), "skip_rows": 1000, "node_count": 256}

    def once(
        replay: Callable[[NodeTrace, JobTable], tuple[float, int]],
    ) -> tuple[float, float, int]:
        began = time.process_time()
        inputs = load(Options(**log), Watcher())
        work, decisions = replay(inputs.pools[0].trace, inputs.jobs)
        return time.process_time() - began, work, decisions

    # The first round does not count: code is compiled and loaded in it.
    results = [(once(floor), once(engine)) for _ in range(rounds + 1)][1:]
    for name, of in zip(("floor", "engine"), zip(*results, strict=True), strict=True):
        seconds, work, decisions = min(of)
        each = seconds / decisions * 1e3
        print(
            f"{name:8}{seconds:8.1f} s{decisions:8,} decisions of {each:.2f} ms{work:16.6g} samples"
        )
    ratio = min(one[0] for _, one in results) / min(one[0] for one, _ in results)
    print(f"engine / floor: {ratio:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    main(parser.parse_args().rounds)
