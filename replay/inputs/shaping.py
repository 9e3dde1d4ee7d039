"""Another workload from the same jobs: more of them, smaller ones, in another order, at other times.

Also what of it cannot run: jobs that need more units than there ever are, and kinds of units that no curve knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bft.models import Curve, InputError, Job, JobTable
from bft.models.cells import Rows
from bft.models.tables import read_table
from bft.models.tolerances import whole_above
from bft.replay.engine.watcher import NoteTaker
from bft.replay.options.table import OptionTable
from bft.replay.pools import Pool
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

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


def read_kinds(path: str) -> dict[str, str]:
    """The kind of each node: columns node and kind, one row per node.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    rows = Rows(read_table(path), path)
    rows.require(("node", "kind"))
    kinds: dict[str, str] = {}
    for row in rows:
        node, kind = row.name("node"), row.name("kind")
        if kinds.setdefault(node, kind) != kind:
            raise row.error(
                "node",
                f"node {node!r} has the kind {kinds[node]!r} already; expected one row per node",
            )
    return kinds


def with_kinds(trace: NodeTrace, kinds: dict[str, str], path: str) -> NodeTrace:
    """The trace with the kind of each of its nodes.

    Raises
    ------
    InputError
        When a node has no kind.
    """
    missing = [node for node in trace.nodes if node not in kinds]
    if missing:
        message = f"no row for {len(missing):,} of the trace's {len(trace.nodes):,} nodes, {missing[0]!r} among them"
        raise InputError(message, file=path, column="node")
    return replace(trace, kinds=tuple(kinds[node] for node in trace.nodes))


def check_kinds(kinds: Sequence[str], jobs: JobTable) -> list[str]:
    """Notes on the kinds, on curves of kinds that no node has, and on curves that are missing; `kinds` of each node."""
    known = dict.fromkeys(kinds)
    stated = dict.fromkeys(kind for job in jobs for kind in job.by_kind)
    if not known:
        if not stated:
            return []
        return [
            f"curves and measurements by kind ({', '.join(stated)}) have no effect on units without kinds"
        ]
    notes = [
        f"units are of {len(known)} kinds: {', '.join(known)}; a job runs on one kind at a time"
    ]
    strange = [kind for kind in stated if kind not in known]
    if strange:
        notes.append(
            f"the job table has curves on kinds that no node has: {', '.join(strange)}"
        )
    # A kind for which no job has a curve is left to the usual one on purpose.
    for kind in known:
        without = sum(kind not in job.by_kind for job in jobs)
        if kind in stated and without:
            notes.append(
                f"{without:,} of {len(jobs):,} jobs have no curve of their own on kind {kind} (column Ps@{kind}): "
                "there they run as the column Ps says"
            )
    if not stated.keys() & known.keys():
        notes.append(
            "the job table has no curves by kind (columns Ps@KIND): jobs run on all kinds as the column Ps says"
        )
    return notes


Mode = Literal["refuse", "skip", "cap"]
# Jobs that a message names; the summary names all.
MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Fitted:
    """Jobs and virtual clusters after oversized jobs were dealt with.

    Parameters
    ----------
    jobs, pools
        The same, with capped jobs in the place of theirs.
    never_run
        Names of the jobs that are left out.
    notes
        What was done, in sentences.
    """

    jobs: JobTable
    pools: tuple[Pool, ...]
    never_run: tuple[str, ...]
    notes: tuple[str, ...]


def fit_sizes(
    jobs: JobTable, pools: Sequence[Pool], mode: Mode, *, rigid: bool
) -> Fitted:
    """Deal with jobs that need more units than are ever idle at once.

    Parameters
    ----------
    jobs
        All jobs.
    pools
        Whose nodes they may use.
    mode
        `refuse`: an error. `skip`: they are left out, and count as jobs that never started. `cap`: they run on what
        there is, see `capped`.
    rigid
        Whether a job needs what it asks for (Jreq); otherwise Jmin is enough.

    Raises
    ------
    InputError
        With `refuse`, when there are such jobs; names them.
    """
    made = list(jobs)
    never_run: list[str] = []
    notes = []
    for pool in pools:
        largest = max_idle(pool.trace)
        positions = [
            position
            for position, job in zip(pool.positions, pool.jobs, strict=True)
            if needed(job, rigid=rigid) > largest
        ]
        if not positions:
            continue
        message = _sentence(
            [jobs.jobs[position] for position in positions], pool, largest, rigid=rigid
        )
        if mode == "refuse":
            raise InputError(
                message,
                file=jobs.source or None,
                column="Jreq" if rigid else "Jmin",
                hint="--oversized skip leaves them out, --oversized cap runs them on what there is",
            )
        if mode == "skip":
            never_run += [jobs.jobs[position].name for position in positions]
            notes.append(f"{message}; they never run (--oversized skip)")
        elif not largest:
            raise InputError(
                f"{message}, so no size can be capped to it", file=jobs.source or None
            )
        else:
            for position in positions:
                made[position] = capped(made[position], largest)
            notes.append(f"{message}; they run on {largest} (--oversized cap)")
    table = replace(jobs, jobs=tuple(made))
    return Fitted(
        table, tuple(pool.of(table) for pool in pools), tuple(never_run), tuple(notes)
    )


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
    large = [
        needed(job, rigid=rigid) > largest and job.name not in but for job in pool.jobs
    ]
    jobs = tuple(
        capped(job, largest) if is_large else job
        for job, is_large in zip(pool.jobs, large, strict=True)
    )
    return replace(pool, jobs=replace(pool.jobs, jobs=jobs)), sum(large)


def capped(job: Job, units: int) -> Job:
    """A job that asks for at most `units` units.

    A job of one size keeps its duration, as in the published simulators: its rate on fewer units is unknown. Others
    run at the rate that their curve has for fewer.
    """
    if job.jmin < job.jmax:
        fewer = replace(job, jreq=None).between(0, units)
        if fewer is None:
            return replace(job, jmin=units, jmax=units, jreq=units, sizes=None)
        return replace(fewer, jreq=fewer.at_most(job.request))
    rate, value = float(job.rates[job.jmax]), float(job.objective.table(job.jmax)[-1])
    points = np.array([0.0, float(units)])
    return replace(
        job,
        jmin=units,
        jmax=units,
        jreq=units,
        scalability=Curve(points, np.array([0.0, rate])),
        objective=Curve(points, np.array([0.0, value])),
    )


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
