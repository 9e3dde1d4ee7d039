"""All bounds of a replay, and the metrics of an outcome relative to them.

The bounds on completion times, and on the outcome with a limited number of jobs in play (`fluid_bound`), are stated
here. `unit_time.py` bounds the outcome by unit-seconds, also of several kinds or of units that two jobs share
(`shared_bound`). `prices.py` solves the linear programmes that `fluid_bound` and `shared_bound` pose (docs/bounds.md).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bft.models import JobTable
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.rules import Interference
from bft.replay.results.bounds.prices import Priced, bound_by_prices
from bft.replay.results.bounds.unit_time import (
    pairs_of,
    shared_bound,
    unit_time_bound,
    unit_time_by_kind,
)
from bft.replay.results.bounds.work import (
    FloatArray,
    IntArray,
    Supply,
    Work,
    by_period,
    idle_units,
    work_of,
)
from bft.replay.results.census import Census
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

# Number of parts into which all periods are cut, each of similar numbers of idle units. With more parts there are fewer
# rounds, but each takes longer.
PARTS = 256
# A round needs at most this many additions: beyond, a limit is dropped, and the bound is looser but still valid.
MAX_ADDITIONS = 1e9
_ENOUGH_MEMBERS = 2**40


@dataclass(frozen=True, eq=False)
class Levels:
    """A period with given numbers of idle units, each for some seconds; see `prices.Period`."""

    rates: FloatArray  # samples/s of a class on 0, 1, ... units
    members: IntArray  # jobs of each class by then
    cap: int
    units: IntArray
    seconds: FloatArray
    first: IntArray  # of the levels of each part

    @property
    def parts(self) -> int:
        """Number of parts that do not exchange work."""
        return len(self.first)

    def best(self, worth: FloatArray) -> FloatArray:
        """The work with the highest value."""
        from bft.replay.results.bounds.mixes import best_mixes

        if not len(self.units):
            return np.zeros((0, len(worth)))
        _, rate = best_mixes(self.rates, worth, self.members, self.cap, self.units)
        return np.add.reduceat(rate * self.seconds[:, None], self.first, axis=0)


def fluid_bound(idle: Supply, work: Work, max_jobs: int) -> Priced:
    """The most samples of at most `max_jobs` jobs at once (0: any number), each on as many units as it may have.

    Jobs with the same curve share their work; jobs submitted within a period count as submitted at its begin
    (`by_period`).
    """
    grouped = by_period(work)
    rates = np.zeros(
        (len(work.curves), max((len(curve) for curve in work.curves), default=1))
    )
    for row, curve in zip(rates, work.curves, strict=True):
        row[: len(curve)] = curve
    per_period = max(1, PARTS // len(grouped.begins))
    periods: list[Levels] = []
    exact = True
    for (begin, end), members in zip(
        grouped.spans(idle.end), grouped.members, strict=True
    ):
        units, seconds = idle.levels(begin, end)
        parts = min(per_period, len(units))
        first = np.arange(parts) * len(units) // max(parts, 1)
        cap, members, unchanged = _affordable(
            rates,
            members,
            max_jobs,
            int(units[-1]) if len(units) else 0,
            MAX_ADDITIONS / len(grouped.begins),
        )
        exact &= unchanged
        periods.append(
            Levels(rates, members, cap, units.astype(np.int64), seconds, first)
        )
    priced = bound_by_prices(
        periods, grouped.limits, _worth_by_unit_time(idle, work, len(grouped.begins))
    )
    return priced if exact else replace(priced, attained=None)


def _worth_by_unit_time(idle: Supply, work: Work, periods: int) -> FloatArray:
    """Value of a sample if only unit-seconds were scarce and all jobs submitted at first: shape (periods, curves)."""
    per_unit = work.per_unit
    order = np.argsort(-per_unit, kind="stable")
    limits = np.bincount(work.curve, weights=work.limit, minlength=len(per_unit))
    needed = np.divide(limits, per_unit, out=np.zeros_like(limits), where=per_unit > 0)[
        order
    ]
    last = np.searchsorted(
        np.cumsum(needed), idle.total - float(idle.until(work.release.min()))
    )
    unit_second = per_unit[order[last]] if last < len(order) else 0.0
    worth = np.divide(
        unit_second, per_unit, out=np.ones_like(per_unit), where=per_unit > unit_second
    )
    return np.broadcast_to(worth, (periods, len(per_unit)))


def _affordable(
    rates: FloatArray, members: IntArray, max_jobs: int, units: int, additions: float
) -> tuple[int, IntArray, bool]:
    """The limits on jobs at once, in total and by class, that fit the allowed additions; and whether all limits do."""
    cap = 0 if max_jobs >= min(int(members.sum()), units) else max_jobs
    each = units * (rates.shape[1] - 1)
    if cap * each > additions:
        return 0, np.where(members > 0, _ENOUGH_MEMBERS, 0), False
    scarce = members[members < (cap or units)].sum()
    if scarce * (cap or 1) * each > additions:
        return cap, np.where(members > 0, _ENOUGH_MEMBERS, 0), False
    return cap, members, True


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


def completion_bound(idle: Supply, work: Work, speed: float = 1.0) -> float:
    """The smallest sum over jobs of seconds from submission to completion; for jobs not done, up to the trace's end.

    Measured in unit-seconds, all idle units are one machine of varying speed, which serves the job with the least
    remaining work first; and no job is done before it would be alone. `speed`: the largest speed-up by sharing.
    """
    together = math.fsum(_shortest_first(idle, work, speed).tolist())
    alone = math.fsum(np.minimum(work.alone, idle.end).tolist())
    return max(together, alone) - math.fsum(work.submit.tolist())


def _shortest_first(idle: Supply, work: Work, speed: float) -> FloatArray:
    """Completions on one machine with preemption, shortest remaining work first; the trace's end for jobs not done."""
    # The clock counts the work that the machine has offered so far: on it the speed is constant.
    release = idle.until(work.release) * speed
    needed = work.unit_seconds
    order = np.argsort(release, kind="stable")
    done = np.full(len(needed), np.inf)
    waiting: list[tuple[float, int]] = []
    now, coming = 0.0, 0
    while waiting or coming < len(order):
        if not waiting:
            now = max(now, float(release[order[coming]]))
        while coming < len(order) and release[order[coming]] <= now:
            job = int(order[coming])
            heapq.heappush(waiting, (float(needed[job]), job))
            coming += 1
        left, job = heapq.heappop(waiting)
        until = float(release[order[coming]]) if coming < len(order) else math.inf
        if now + left <= until:
            now += left
            done[job] = now
            if math.isinf(left):  # then so are all waiting jobs
                break
        else:
            heapq.heappush(waiting, (left - (until - now), job))
            now = until
    return np.minimum(idle.when(done / speed), idle.end)


def last_completion_bound(idle: Supply, work: Work, speed: float = 1.0) -> float:
    """The earliest time at which all jobs can be done, seconds since the trace's start; infinite when not all can be.

    From every instant on there must be enough unit-seconds for the jobs submitted then or later, and no job is done
    before it would be alone.
    """
    release, index = np.unique(work.release, return_inverse=True)
    needed = np.bincount(index, weights=work.unit_seconds, minlength=len(release))
    from_then_on = np.cumsum(needed[::-1])[::-1]
    together = idle.when(idle.until(release) + from_then_on / speed)
    return float(max(together.max(initial=0.0), work.alone.max(initial=0.0)))
