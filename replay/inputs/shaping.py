"""Another workload from the same jobs: more of them, smaller ones, in another order, at other times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from bft.models import InputError, Job, JobTable
from bft.models.rounding import whole_above
from bft.replay.engine.watcher import NoteTaker
from bft.replay.inputs.oversized import capped
from bft.replay.options.table import OptionTable
from bft.replay.trace.node_trace import SECOND_NS

# The year 2200: later instants and their sums leave the range of timestamps, which ends in 2262.
LAST_NS = 230 * 365 * 86_400 * SECOND_NS
HOUR_S = 3600.0


def shaped(jobs: JobTable, options: OptionTable, notes: NoteTaker) -> JobTable:
    """The jobs as the options want them; a note for each option that changes them.

    First --unit-memory leaves out sizes whose units have too little memory together. Then, in this order: --repeat,
    --cap-units, --shuffle-submits, then --arrival or --scale-arrivals. What is drawn at random follows --seed; each
    option has its own random stream, so that one does not change the draws of another.

    Raises
    ------
    InputError
        When a job would be submitted beyond the calendar.
    """
    if not len(jobs):
        return jobs
    jobs = _with_memory(jobs, options, notes)
    if options.repeat > 1:
        count = len(jobs)
        jobs = _within_calendar(
            repeated(jobs, options.repeat), "--repeat", "fewer repetitions"
        )
        turns = f"the {count:,} of the table {options.repeat} times in turn"
        notes.note(
            f"--repeat {options.repeat}: {len(jobs):,} jobs, {turns}, submitted over {apart(_span(jobs))}"
        )
    if options.cap_units is not None:
        jobs = _capped(jobs, options.cap_units, notes)
    if options.shuffle_submits:
        jobs = shuffled(jobs, np.random.default_rng((options.seed, 1)))
        notes.note(
            f"--shuffle-submits: the {len(jobs):,} jobs come at the same instants in another order (--seed "
            f"{options.seed})"
        )
    before = apart(_span(jobs))
    if options.arrival is not None:
        rate = jobs_per_hour(options.arrival)
        jobs = with_arrivals(jobs, rate, np.random.default_rng((options.seed, 2)))
        jobs = _within_calendar(jobs, "--arrival", "more jobs an hour")
        notes.note(
            f"--arrival {options.arrival}: jobs are submitted at random, {rate:g} an hour on average, over "
            f"{apart(_span(jobs))}, not {before} (--seed {options.seed})"
        )
    if options.scale_arrivals != 1:
        jobs = _within_calendar(
            jobs.spread(options.scale_arrivals), "--scale-arrivals", "a smaller factor"
        )
        notes.note(
            f"--scale-arrivals {options.scale_arrivals:g}: jobs are submitted over {apart(_span(jobs))}, not {before}"
        )
    return jobs


def repeated(jobs: JobTable, times: int) -> JobTable:
    """The jobs `times` times in turn: each round follows the one before after a mean distance between submissions.

    Jobs of later rounds are called `NAME~2`, `NAME~3` and so on. Jobs that all come at once come so in all rounds.
    """
    between = _span(jobs) // (len(jobs) - 1) if len(jobs) > 1 else 0
    rounds = [jobs.shifted((_span(jobs) + between) * k) for k in range(times)]
    again = [
        replace(job, name=f"{job.name}~{k}")
        for k, each in enumerate(rounds[1:], start=2)
        for job in each
    ]
    return replace(jobs, jobs=(*jobs.jobs, *again))


def shuffled(jobs: JobTable, rng: np.random.Generator) -> JobTable:
    """Deal the instants of submission out to the jobs at random; deadlines keep their distance."""
    instants = [job.tsub_ns for job in jobs]
    return _submitted(jobs, [instants[k] for k in rng.permutation(len(instants))])


def with_arrivals(
    jobs: JobTable, per_hour: float, rng: np.random.Generator
) -> JobTable:
    """Submit the jobs in their order with exponential gaps, of mean 1 / `per_hour` h.

    The first keeps its instant. Deadlines keep their distance.
    """
    gaps = rng.exponential(HOUR_S / per_hour, len(jobs) - 1)
    # Past the calendar in any case, where floats no longer fit.
    since = np.minimum(np.cumsum(gaps), LAST_NS / SECOND_NS * 2)
    order = jobs.by_submit()
    first = jobs.jobs[order[0]].tsub_ns
    instants = [first] * len(jobs)
    for index, seconds in zip(order[1:], since.tolist(), strict=True):
        instants[index] = first + round(seconds * SECOND_NS)
    return _submitted(jobs, instants)


def jobs_per_hour(arrival: str) -> float:
    """The rate that an `Arrival` states."""
    return float(arrival.partition(":")[2])


def _with_memory(jobs: JobTable, options: OptionTable, notes: NoteTaker) -> JobTable:
    """The jobs with only those of their sizes whose units have as much memory together as the job needs."""
    gib = options.unit_memory_gib
    needing = sum(bool(job.total_memory_gib) for job in jobs)
    if gib is None or not needing:
        if needing:
            notes.note(
                f"{needing:,} jobs state total_memory_gib, which counts with --unit-memory only"
            )
        return jobs
    made = [
        job if not job.total_memory_gib else _fitting(job, gib, jobs.source)
        for job in jobs
    ]
    fewer = sum(
        after.jmin > before.jmin for before, after in zip(jobs, made, strict=True)
    )
    notes.note(
        f"--unit-memory {gib:g}: {fewer:,} of {len(jobs):,} jobs need more units than Jmin for their memory"
    )
    return replace(jobs, jobs=tuple(made))


def _fitting(job: Job, gib: float, source: str) -> Job:
    """The job with those of its sizes that have the memory it needs, on units of `gib` each."""
    needed = job.total_memory_gib or 0.0
    try:
        large = job.between(whole_above(needed / gib), job.jmax)
    except InputError as error:
        raise InputError(
            f"{error.what}: {needed:g} GiB of memory in all, --unit-memory {gib:g} a unit",
            file=source or None,
            column=error.column,
            job=job.name,
        ) from error
    if large is None:
        raise InputError(
            f"needs {needed:g} GiB, and {job.jmax} units (Jmax) of {gib:g} GiB (--unit-memory) have less",
            file=source or None,
            column="total_memory_gib",
            job=job.name,
        )
    return large


def _capped(jobs: JobTable, units: int, notes: NoteTaker) -> JobTable:
    large = [job for job in jobs if job.jmax > units]
    if not large:
        notes.note(f"--cap-units {units} changes nothing: no job can use more")
        return jobs
    fixed = sum(job.jmin == job.jmax for job in large)
    same = f"; {fixed:,} of them have one size and keep their duration" if fixed else ""
    notes.note(
        f"--cap-units {units}: {len(large):,} of {len(jobs):,} jobs could use more units{same}"
    )
    return replace(
        jobs,
        jobs=tuple(capped(job, units) if job.jmax > units else job for job in jobs),
    )


def _submitted(jobs: JobTable, instants: Iterable[int]) -> JobTable:
    return replace(
        jobs,
        jobs=tuple(
            _moved(job, instant) for job, instant in zip(jobs, instants, strict=True)
        ),
    )


def _moved(job: Job, tsub_ns: int) -> Job:
    """The job, submitted and due so much earlier or later."""
    due = None if job.deadline_ns is None else job.deadline_ns + tsub_ns - job.tsub_ns
    return replace(job, tsub_ns=tsub_ns, deadline_ns=due)


def _within_calendar(jobs: JobTable, flag: str, expected: str) -> JobTable:
    late = next((job for job in jobs if job.tsub_ns > LAST_NS), None)
    if late is not None:
        message = f"{flag}: would be submitted after the year 2200; expected {expected}"
        raise InputError(message, file=jobs.source or None, job=late.name)
    return jobs


def _span(jobs: JobTable) -> int:
    instants = [job.tsub_ns for job in jobs]
    return max(instants) - min(instants)


def apart(nanoseconds: int) -> str:
    """A span of time in words."""
    seconds = nanoseconds / SECOND_NS
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:g} s"
