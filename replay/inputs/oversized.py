"""Jobs that need more units than there ever are: they would wait for ever, and a queue behind them with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bft.models import Curve, InputError, Job, JobTable
from bft.replay.pools import Pool
from bft.replay.trace.node_trace import NodeTrace

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
