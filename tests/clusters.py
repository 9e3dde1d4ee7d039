"""Small clusters and rigid jobs for tests, and a second implementation of schedules by numbers of units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from bft.models import JobTable
from bft.models.workloads.rigid_jobs import rigid_job
from bft.replay import (
    Decision,
    Outcome,
    Policy,
    Replay,
    Rules,
    State,
    Traits,
    always_idle,
)

SECOND_NS = 10**9
END_NS = 10**8 * SECOND_NS


@dataclass(eq=False)
class Job:
    """A job as the second implementation knows it; times in seconds."""

    submit: int
    units: int
    duration: int
    done: Fraction = Fraction(0)
    running: bool = False
    start: Fraction | None = None
    finish: Fraction | None = None
    queue: int = 0
    waited: Fraction = Fraction(0)
    counted: Fraction = Fraction(0)

    @property
    def left(self) -> Fraction:
        return self.duration - self.done


@st.composite
def workloads(
    draw: st.DrawFn, *, most_units: int = 6, most_jobs: int = 12, longest: int = 40
) -> list[Job]:
    """Jobs in order of submission, many at the same second and many alike."""
    count = draw(st.integers(1, most_jobs))
    submits = sorted(draw(st.lists(st.integers(0, 60), min_size=count, max_size=count)))
    return [
        Job(at, draw(st.integers(1, most_units)), draw(st.integers(1, longest)))
        for at in submits
    ]


def table(
    jobs: Sequence[Job], names: Sequence[str] | None = None, **further: Any
) -> JobTable:
    """The jobs as a job table."""
    names = names or [f"j{at}" for at in range(len(jobs))]
    return JobTable(
        tuple(
            rigid_job(
                name, job.submit * SECOND_NS, job.units, float(job.duration), **further
            )
            for name, job in zip(names, jobs, strict=True)
        )
    )


def replay(
    policy: Policy, jobs: JobTable, nodes: int, units_per_node: int, **rules: Any
) -> Outcome:
    """Replay on a fixed cluster."""
    trace = always_idle(nodes, 0, END_NS, units_per_node=units_per_node)
    return Replay(trace, jobs, policy, Rules(max_jobs=0, **rules)).run()


def seconds(outcome: Outcome) -> list[tuple[float, float]]:
    """When each job started and finished."""
    return [
        ((r.start_ns or 0) / SECOND_NS, (r.finish_ns or 0) / SECOND_NS)
        for r in outcome.records
    ]


class Watched:
    """A policy with a check of every decision."""

    def __init__(self, policy: Policy, look: Callable[[State, Decision], None]) -> None:
        self.policy, self.look, self.name = policy, look, policy.name
        self.traits = Traits.of(policy)

    def decide(self, state: State) -> Decision:
        decision = self.policy.decide(state)
        self.look(state, decision)
        return decision


def feedback_queues(
    jobs: Sequence[Job],
    units: int,
    limits: Sequence[int],
    promote: int,
) -> list[tuple[float, float]]:
    """Start and finish of each job under Tiresias-L, whose demotions are discovered as its public simulator does.

    By numbers of units; jobs are spent.
    """
    now, queues = Fraction(0), [[] for _ in range(len(limits) + 1)]  # type: list[list[Job]]
    while any(job.finish is None for job in jobs):
        here = [job for job in jobs if job.submit <= now and job.finish is None]
        queues[0] += [job for job in here if not any(job in queue for queue in queues)]
        for job in here:
            service = (job.done - job.counted) * job.units
            at_limit = job.queue < len(limits) and service >= limits[job.queue]
            if job.running and at_limit:
                queues[job.queue].remove(job)
                job.queue += 1
                queues[job.queue].append(job)
            if (
                promote
                and not job.running
                and job.queue
                and job.waited >= promote * (job.done - job.counted) > 0
            ):
                queues[job.queue].remove(job)
                queues[0].append(job)
                job.queue, job.waited, job.counted = 0, Fraction(0), job.done
        free = units
        for job in [job for queue in queues for job in queue]:
            job.running = job.units <= free
            if job.running:
                free -= job.units
                job.start = now if job.start is None else job.start
        for queue in queues:
            queue.sort(key=lambda job: not job.running)
        instants = [Fraction(job.submit) for job in jobs if job.submit > now]
        for job in here:
            executed = job.done - job.counted
            if job.running:
                instants.append(now + job.left)
                if job.queue < len(limits):
                    limit = limits[job.queue]
                    instants.append(now + (limit - executed) // job.units)
            elif promote and job.queue and executed > 0:
                instants.append(now + promote * executed - job.waited)
        then = min(instant for instant in instants if instant > now)
        for job in here:
            if job.running:
                job.done += then - now
                if not job.left:
                    job.running, job.finish = False, then
            elif job.done > job.counted:
                job.waited += then - now
        queues = [[job for job in queue if job.finish is None] for queue in queues]
        now = then
    return [(float(job.start or 0), float(job.finish or 0)) for job in jobs]
