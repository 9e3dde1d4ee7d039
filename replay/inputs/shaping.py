"""Other workloads of the same jobs: repeated, capped, submitted at other times, without those that can never run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from bft.models import Curve, InputError, Job, JobTable
from bft.models.tolerances import whole_above
from bft.models.writing import duration
from bft.replay.inputs.notes import Watcher
from bft.replay.options.options import Options
from bft.replay.pools import Pool
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

# The year 2200: later instants and their sums leave the range of timestamps, which ends in 2262.
LAST_NS = 230 * 365 * 86_400 * SECOND_NS
HOUR_S = 3600.0
# Jobs that a message names; the summary names all.
MAX_NAMED = 5


def shaped(jobs: JobTable, options: Options, notes: Watcher) -> JobTable:
    """The jobs as the options want them; a note for each option that changes them.

    First `unit_memory_gib` leaves out sizes whose units have too little memory together. Then, in this order: `repeat`,
    `cap_units`, `shuffle_submits`, then `arrival` or `scale_arrivals`. What is drawn at random follows `seed`; each
    option has its own random stream, so that one does not change the draws of another.

    Raises
    ------
    InputError
        When a job would be submitted beyond the calendar.
    """
    jobs = _with_memory(jobs, options.unit_memory_gib, notes)
    if options.repeat > 1:
        count, times = len(jobs), options.repeat
        jobs = repeated(jobs, times)
        notes.note(
            f"--option repeat={times}: {len(jobs):,} jobs, the {count:,} of the table {times} times in turn, submitted "
            f"over {apart(_span(jobs))}"
        )
    if options.cap_units is not None:
        jobs = _capped(jobs, options.cap_units, notes)
    if options.shuffle_submits:
        jobs = shuffled(jobs, np.random.default_rng((options.seed, 1)))
        notes.note(
            f"--option shuffle-submits=yes: the {len(jobs):,} jobs come at the same instants in another order (--seed "
            f"{options.seed})"
        )
    before = apart(_span(jobs))
    if options.arrival is not None:
        rate = float(options.arrival.partition(":")[2])
        jobs = with_arrivals(jobs, rate, np.random.default_rng((options.seed, 2)))
        notes.note(
            f"--option arrival={options.arrival}: jobs are submitted at random, {rate:g} an hour on average, over "
            f"{apart(_span(jobs))}, not {before} (--seed {options.seed})"
        )
    if options.scale_arrivals != 1:
        jobs = spread(jobs, options.scale_arrivals)
        notes.note(
            f"--option scale-arrivals={options.scale_arrivals:g}: jobs are submitted over {apart(_span(jobs))}, "
            f"not {before}"
        )
    late = next((job for job in jobs if job.tsub_ns > LAST_NS), None)
    if late is not None:
        raise InputError(
            "would be submitted after the year 2200: $repeat, $arrival or $scale_arrivals spread jobs too far",
            file=jobs.source or None,
            job=late.name,
        )
    return jobs


def repeated(jobs: JobTable, times: int) -> JobTable:
    """The jobs `times` times in turn: each round follows the one before after a mean distance between submissions.

    Jobs of later rounds are called `NAME~2`, `NAME~3` and so on. Jobs that all come at once come so in all rounds.
    """
    between = _span(jobs) // (len(jobs) - 1) if len(jobs) > 1 else 0
    period = _span(jobs) + between
    again = [
        replace(job.at(job.tsub_ns + period * (k - 1)), name=f"{job.name}~{k}")
        for k in range(2, times + 1)
        for job in jobs
    ]
    return replace(jobs, jobs=(*jobs.jobs, *again))


def shuffled(jobs: JobTable, rng: np.random.Generator) -> JobTable:
    """Deal the instants of submission out to the jobs at random; deadlines keep their distance."""
    instants = [job.tsub_ns for job in jobs]
    return jobs.at([instants[k] for k in rng.permutation(len(instants))])


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
    return jobs.at(instants)


def spread(jobs: JobTable, factor: float) -> JobTable:
    """Multiply the time from the first submission to each by `factor`; deadlines keep their distance."""
    first = min(job.tsub_ns for job in jobs)
    exact = Fraction(factor)
    return jobs.at([first + round((job.tsub_ns - first) * exact) for job in jobs])


def _with_memory(jobs: JobTable, gib: float | None, notes: Watcher) -> JobTable:
    """The jobs with only those of their sizes whose units have as much memory together as the job needs."""
    needing = sum(bool(job.total_memory_gib) for job in jobs)
    if gib is None or not needing:
        if needing:
            notes.note(
                f"{needing:,} jobs state total_memory_gib, which counts with --option unit-memory only"
            )
        return jobs
    made = [_fitting(job, gib, jobs.source) for job in jobs]
    fewer = sum(
        after.jmin > before.jmin for before, after in zip(jobs, made, strict=True)
    )
    notes.note(
        f"--option unit-memory={gib:g}: {fewer:,} of {len(jobs):,} jobs need more units than Jmin for their memory"
    )
    return replace(jobs, jobs=tuple(made))


def _fitting(job: Job, gib: float, source: str) -> Job:
    """The job with those of its sizes that have the memory it needs, on units of `gib` each."""
    needed, column = job.total_memory_gib or 0.0, "total_memory_gib"
    what = f"needs {needed:g} GiB, and {job.jmax} units (Jmax) of {gib:g} GiB ($unit_memory_gib) have less"
    try:
        large = job.between(whole_above(needed / gib), job.jmax) if needed else job
    except InputError as error:
        large, column = None, error.column or column
        what = f"{error.what}: {needed:g} GiB of memory in all, $unit_memory_gib {gib:g} a unit"
    if large is None:
        raise InputError(what, file=source or None, column=column, job=job.name)
    return large


def _capped(jobs: JobTable, units: int, notes: Watcher) -> JobTable:
    large = [job for job in jobs if job.jmax > units]
    fixed = sum(job.jmin == job.jmax for job in large)
    same = f"; {fixed:,} of them have one size and keep their duration" if fixed else ""
    notes.note(
        f"--cap-units {units}: {len(large):,} of {len(jobs):,} jobs could use more units{same}"
        if large
        else f"--cap-units {units} changes nothing: no job can use more"
    )
    made = (capped(job, units) if job.jmax > units else job for job in jobs)
    return replace(jobs, jobs=tuple(made))


def _span(jobs: JobTable) -> int:
    instants = [job.tsub_ns for job in jobs]
    return max(instants) - min(instants)


def apart(nanoseconds: int) -> str:
    """A span of time in words."""
    return duration(nanoseconds / SECOND_NS)


def fit_sizes(
    jobs: JobTable, pools: Sequence[Pool], options: Options, notes: Watcher
) -> tuple[JobTable, Sequence[Pool], tuple[str, ...]]:
    """Deal with jobs that need more units than are ever idle at once, as --option oversized says.

    Returns
    -------
    jobs, pools
        The same, with capped jobs in the place of theirs.
    never_run
        Names of the jobs that are left out; they count as jobs that never started.

    Raises
    ------
    InputError
        With `refuse`, when there are such jobs; names them.
    """
    mode, rigid = options.oversized, options.traits.rigid
    if (
        mode == "wait"
    ):  # they do, perhaps for ever: how many will be idle is not known yet
        return jobs, pools, ()
    made = list(jobs)
    never_run: list[str] = []
    for pool in pools:
        largest = max_idle(pool.trace)
        large = [
            position
            for position, job in zip(pool.positions, pool.jobs, strict=True)
            if needed(job, rigid=rigid) > largest
        ]
        if not large:
            continue
        what = _sentence([made[each] for each in large], pool, largest, rigid=rigid)
        if mode == "refuse":
            raise InputError(
                what,
                file=jobs.source or None,
                column="Jreq" if rigid else "Jmin",
                hint="$oversized=skip leaves them out, $oversized=cap runs them on what there is",
            )
        if mode == "skip":
            never_run += [made[each].name for each in large]
            notes.note(f"{what}; they never run (--option oversized=skip)")
            continue
        if not largest:
            what = f"{what}, so no size can be capped to it"
            raise InputError(what, file=jobs.source or None)
        for each in large:
            made[each] = capped(made[each], largest)
        notes.note(f"{what}; they run on {largest} (--option oversized=cap)")
    table = replace(jobs, jobs=tuple(made))
    return table, [pool.of(table) for pool in pools], tuple(never_run)


def max_idle(trace: NodeTrace) -> int:
    """The most units, of one kind where there are several, that are ever idle at once."""
    parts = [trace.of_kind(kind) for kind in dict.fromkeys(trace.kinds)] or [trace]
    return max(int(max(part.idle_units(), default=0)) for part in parts)


def needed(job: Job, *, rigid: bool) -> int:
    """Fewest units on which a job runs."""
    return job.request if rigid else max(job.jmin, 1)


def cap_all(pool: Pool, *, rigid: bool, but: Collection[str] = ()) -> tuple[Pool, int]:
    """The pool with every job capped that needs more than it has, but for those of some names; and how many were."""
    largest = max_idle(pool.trace)
    large = {
        job.name
        for job in pool.jobs
        if needed(job, rigid=rigid) > largest and job.name not in but
    }
    jobs = (capped(job, largest) if job.name in large else job for job in pool.jobs)
    return replace(pool, jobs=replace(pool.jobs, jobs=tuple(jobs))), len(large)


def capped(job: Job, units: int) -> Job:
    """A job that asks for at most `units` units.

    A job of one size keeps its duration, as in the published simulators: its rate on fewer units is unknown. Others
    run at the rate that their curve has for fewer.
    """
    size: dict[str, Any] = {"jmin": units, "jmax": units, "jreq": units}
    if job.jmin < job.jmax:
        fewer = replace(job, jreq=None).between(0, units)
        if fewer is None:
            return replace(job, **size, sizes=None)
        return replace(fewer, jreq=fewer.at_most(job.request))
    points = np.array([0.0, float(units)])
    rate, value = (
        Curve(points, np.array([0.0, float(curve.at(job.jmax))]))
        for curve in (job.scalability, job.objective)
    )
    return replace(job, **size, scalability=rate, objective=value)


def _sentence(jobs: Sequence[Job], pool: Pool, largest: int, *, rigid: bool) -> str:
    named = ", ".join(
        f"{job.name} ({needed(job, rigid=rigid)})" for job in jobs[:MAX_NAMED]
    )
    more = f" and {len(jobs) - MAX_NAMED} more" if len(jobs) > MAX_NAMED else ""
    total = pool.trace.units
    ever = (
        f"than the {total} there are"
        if largest == total
        else f"than the {largest} of {total} that are ever idle at once"
    )
    where = f" in {pool.name}" if pool.name else ""
    some = f"{len(jobs)} jobs need" if len(jobs) > 1 else "1 job needs"
    return f"{some} more units {ever}{where}: {named}{more}"
