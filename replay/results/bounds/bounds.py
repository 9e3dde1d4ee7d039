"""All bounds of a replay, and the metrics of an outcome relative to them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bft.models import JobTable
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.sharing_rules import Interference
from bft.replay.results.bounds.fluid import fluid_bound
from bft.replay.results.bounds.shared import pairs_of, shared_bound
from bft.replay.results.bounds.supply import Supply, idle_units
from bft.replay.results.bounds.times import completion_bound, last_completion_bound
from bft.replay.results.bounds.unit_time import unit_time_bound, unit_time_by_kind
from bft.replay.results.bounds.work import Work, work_of
from bft.replay.results.census import Census
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that no policy can exceed, even if changing sizes were free; None where nothing is known.

    Parameters
    ----------
    outcome
        Samples: the smallest of the valid bounds below.
    unit_time
        Every sample at its job's best rate per unit; without sharing. Where units are of several kinds, unit-seconds of
        each kind count apart, and the other two bounds on the outcome are unknown.
    fluid
        With a limited number of jobs in play, each on as many units as it may have; without sharing.
    fluid_attained
        Samples that a mix of allocations attains if changes are free: `fluid` minus this bounds the error of `fluid`.
    shared
        With two jobs allowed on a unit.
    jct_mean_s
        Mean seconds from submission to completion; for a job not done at the trace's end, up to that end. Jobs that
        admission refuses do not count; None where it is not known which these are.
    makespan_s
        Seconds from the first submission to the last completion; also None where not all jobs can be done.
    why_none
        Why nothing is known.
    """

    outcome: float | None = None
    unit_time: float | None = None
    fluid: float | None = None
    fluid_attained: float | None = None
    shared: float | None = None
    jct_mean_s: float | None = None
    makespan_s: float | None = None
    why_none: str = ""


def bounds_of(
    pools: Sequence[tuple[NodeTrace, JobTable]],
    max_jobs: int = 0,
    interference: Interference | None = None,
    without: Collection[str] = (),
    refused: Collection[str] | None = (),
) -> Bounds:
    """Bounds for jobs on nodes.

    Parameters
    ----------
    pools
        Nodes, and the jobs that may use only these nodes.
    max_jobs
        Jobs in play at once in each pool, 0 for all.
    interference
        How much two jobs on one unit slow each other down; None: no sharing.
    without
        Names of jobs that are left out.
    refused
        Names of jobs that admission refuses, which count in all but the completion times: another policy may have them
        admitted. None: these are not known.
    """
    pools = [
        (
            trace,
            replace(jobs, jobs=tuple(job for job in jobs if job.name not in without)),
        )
        for trace, jobs in pools
    ]
    measured = sum(job.profile is not None for _, jobs in pools for job in jobs)
    if measured:
        subject, of = (
            (f"{measured} jobs follow", "them")
            if measured > 1
            else ("1 job follows", "it")
        )
        return Bounds(
            why_none=f"{subject} a measured profile, not a curve: no bound is known for {of}"
        )
    parts = [
        _of_pool(trace, jobs, max_jobs, interference, refused or ())
        for trace, jobs in pools
    ]
    jobs_of_all = [job for _, jobs in pools for job in jobs]
    counted, admitted = (
        sum(part.jobs for part in parts),
        sum(part.admitted for part in parts),
    )
    known = refused is not None and admitted > 0
    first = min((job.tsub_ns for job in jobs_of_all), default=0)
    last = max((part.last_ns for part in parts), default=math.inf)
    unit_time = _sum([part.unit_time for part in parts])
    fluid = _sum([part.fluid for part in parts])
    shared = _sum([part.shared for part in parts])
    return Bounds(
        outcome=min(bound for bound in (unit_time, fluid, shared) if bound is not None),
        unit_time=unit_time,
        fluid=fluid,
        fluid_attained=_sum([part.attained for part in parts]),
        shared=shared,
        jct_mean_s=math.fsum(part.completions_s for part in parts) / admitted
        if known
        else None,
        makespan_s=(last - first) / SECOND_NS
        if 0 < counted == len(jobs_of_all) and math.isfinite(last)
        else None,
    )


def unit_time_of(
    pools: Sequence[tuple[NodeTrace, JobTable]], without: Collection[str] = ()
) -> float | None:
    """`Bounds.unit_time` alone, which is fast; None where jobs follow a measured profile."""
    if any(job.profile is not None for _, jobs in pools for job in jobs):
        return None
    some = [
        (
            trace,
            replace(jobs, jobs=tuple(job for job in jobs if job.name not in without)),
        )
        for trace, jobs in pools
    ]
    total = 0.0
    for trace, jobs in some:
        idle, kinds = idle_units(trace), _by_kind(trace)
        work = work_of(trace, jobs, idle, kinds=kinds)
        total += _unit_time(idle, kinds, work)
    return total


def _by_kind(trace: NodeTrace) -> dict[str, Supply]:
    """The idle units of each kind; empty where all are alike."""
    return {
        kind: idle_units(trace.of_kind(kind)) for kind in dict.fromkeys(trace.kinds)
    }


def _unit_time(idle: Supply, kinds: Mapping[str, Supply], work: Work) -> float:
    if not len(work.submit):
        return 0.0
    return (
        unit_time_by_kind(list(kinds.values()), work)
        if kinds
        else unit_time_bound(idle, work)
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """The bounds of one pool: samples, the sum of completion times of admitted jobs, and the last completion."""

    jobs: int
    admitted: int
    completions_s: float
    last_ns: float
    unit_time: float | None
    fluid: float | None
    attained: float | None
    shared: float | None


def _of_pool(
    trace: NodeTrace,
    jobs: JobTable,
    max_jobs: int,
    interference: Interference | None,
    refused: Collection[str],
) -> _Part:
    idle, kinds = idle_units(trace), _by_kind(trace)
    work = work_of(
        trace, jobs, idle, None if interference is None else interference.kind, kinds
    )
    unit_time = fluid = attained = shared = None
    speed = 1.0
    if kinds:
        unit_time = _unit_time(idle, kinds, work)
    elif not len(work.submit):
        unit_time, fluid, attained, shared = (
            (0.0, 0.0, 0.0, None) if interference is None else (None, None, None, 0.0)
        )
    elif interference is None:
        unit_time, priced = (
            unit_time_bound(idle, work),
            fluid_bound(idle, work, max_jobs),
        )
        fluid, attained = priced.bound, priced.attained
    else:
        pairs = pairs_of(work, jobs, interference)
        shared, speed = (
            shared_bound(idle, work, pairs).bound,
            pairs.speed(work.per_unit),
        )
    last_ns = trace.start + last_completion_bound(idle, work, speed) * SECOND_NS
    admitted = work
    if refused:
        some = replace(jobs, jobs=tuple(job for job in jobs if job.name not in refused))
        admitted = work_of(
            trace,
            some,
            idle,
            None if interference is None else interference.kind,
            kinds,
        )
    completions_s = completion_bound(idle, admitted, speed)
    return _Part(
        len(work.submit),
        len(admitted.submit),
        completions_s,
        last_ns,
        unit_time,
        fluid,
        attained,
        shared,
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def beside_bounds(outcome: Outcome, bounds: Bounds) -> dict[str, Any]:
    """The metrics of an outcome relative to its bounds: `bound`, `share_of_bound`, `bounds`, `jct_to_end_mean_s`.

    The last one counts a job that a workload has cancelled until then, and one that is not done to the end. An
    interrupted replay has no share.
    """
    comes = Census.of(outcome).counted_by("jct_to_end_mean_s")
    ends = [
        outcome.end_ns if record.ended_ns is None else record.ended_ns
        for record in comes
    ]
    spans = [
        (end - record.job.tsub_ns) / SECOND_NS
        for end, record in zip(ends, comes, strict=True)
    ]
    whole = not outcome.interrupted
    return {
        "bound": bounds.outcome,
        "share_of_bound": outcome.work / bounds.outcome
        if bounds.outcome and whole
        else None,
        "bounds": asdict(bounds),
        "jct_to_end_mean_s": math.fsum(spans) / len(spans) if spans and whole else None,
    }
