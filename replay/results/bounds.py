"""The bound, which is the samples that no policy can exceed, and the least completion times (docs/bounds.md).

A sample takes at least 1 / max P(n)/n unit-seconds of idle units. Changes of size, restarts and preemptions count as
free, so the bound holds for every policy and cost model. Where two jobs may share a unit, idle units count times the
largest gain of a pair.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bft.models import Job, JobTable
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.rules import Interference
from bft.replay.results.census import census_of, counted, until_ns
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

logger = logging.getLogger(__name__)
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What no policy can exceed, even if changing sizes were free; None where nothing is known.

    Parameters
    ----------
    bound
        Samples.
    jct_mean_s
        The least mean of the seconds from submission to completion; a job that is not done counts up to the trace's
        end. Jobs that admission refuses do not count; None where it is not known which these are.
    makespan_s
        The least seconds from the first submission to the last completion; also None where not all jobs can be done.
    why_none
        Why nothing is known.
    """

    bound: float | None = None
    jct_mean_s: float | None = None
    makespan_s: float | None = None
    why_none: str = ""


def bounds_of(
    pools: Iterable[tuple[NodeTrace, JobTable]],
    interference: Interference | None = None,
    without: Collection[str] = (),
    refused: Collection[str] | None = (),
) -> Bounds:
    """Bounds for jobs on nodes.

    Parameters
    ----------
    pools
        Nodes, and the jobs that may use only these nodes.
    interference
        How much two jobs on one unit slow each other down; None: no sharing.
    without
        Names of jobs that are left out.
    refused
        Names of jobs that admission refuses, which count in all but the completion times: another policy may have them
        admitted. None: these are not known.

    Examples
    --------
    >>> from bft.models import Curve
    >>> from bft.replay import always_idle
    >>> curve = Curve([0, 2, 4], [0, 20, 30])
    >>> job = Job("a", 0, 1, 4, pmax=3000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> bounds_of([(always_idle(4, 0, 60 * 10**9), JobTable((job,)))])  # alone it does 30 samples/s
    Bounds(bound=1800.0, jct_mean_s=60.0, makespan_s=None, why_none='')
    """
    some = [
        (
            trace,
            replace(jobs, jobs=tuple(job for job in jobs if job.name not in without)),
        )
        for trace, jobs in pools
    ]
    every = [job for _, jobs in some for job in jobs]
    measured = sum(job.profile is not None for job in every)
    if measured:
        why = f"no bound is known: {measured:,} of the jobs follow a measured profile, not a curve"
        return Bounds(why_none=why)
    first_ns = min((job.tsub_ns for job in every), default=0)
    samples, completions_s, last_s, counted = [], [], [], 0
    for trace, jobs in some:
        gain = largest_gain(jobs, interference)
        kinds = idle_by_kind(trace)
        own = [job for job in jobs if job.tsub_ns < trace.end]
        work = work_of(trace, own, kinds)
        idle = idle_units(trace).times(gain)
        samples.append(_most_samples([of.times(gain) for of in kinds.values()], work))
        since_s = (trace.start - first_ns) / SECOND_NS
        all_come = len(own) == len(jobs)
        last_s.append(_last_completion(idle, work) + since_s if all_come else math.inf)
        is_in = np.array([job.name not in (refused or ()) for job in own], np.bool_)
        admitted = Work(*(column[is_in] for column in work))
        completions_s.append(_least_completions(idle, admitted))
        counted += len(admitted.total)
    makespan_s = max(last_s, default=math.inf)
    return Bounds(
        math.fsum(samples),
        math.fsum(completions_s) / counted if counted and refused is not None else None,
        makespan_s if every and math.isfinite(makespan_s) else None,
    )


def beside_bounds(outcome: Outcome, bounds: Bounds) -> dict[str, Any]:
    """The metrics of an outcome relative to its bounds: `bound`, `share_of_bound`, `bounds`, `jct_to_end_mean_s`.

    The last one counts a job that a workload has cancelled until then, and one that is not done to the end. An
    interrupted replay has no share.
    """
    spans_s = [
        (until_ns(record, outcome.end_ns) - record.job.tsub_ns) / SECOND_NS
        for record in counted(
            census_of(outcome.records, outcome.end_ns), "jct_to_end_mean_s"
        )
    ]
    whole = not outcome.interrupted
    return {
        "bound": bounds.bound,
        "share_of_bound": outcome.work / bounds.bound
        if bounds.bound and whole
        else None,
        "bounds": {
            "jct_mean_s": bounds.jct_mean_s,
            "makespan_s": bounds.makespan_s,
            "why_none": bounds.why_none,
        },
        "jct_to_end_mean_s": math.fsum(spans_s) / len(spans_s)
        if spans_s and whole
        else None,
    }


# --- idle units and work ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Supply:
    """A piecewise constant rate, such as the idle units of a trace.

    Parameters
    ----------
    edges
        Instants at which it changes, and its end, seconds since the trace's start: float64 of shape (pieces + 1,).
    rates
        The rate in each piece, at least 0: shape (pieces,).
    """

    edges: FloatArray
    rates: FloatArray

    @cached_property
    def _cumulated(self) -> FloatArray:
        return np.concatenate([[0.0], np.cumsum(self.rates * np.diff(self.edges))])

    @property
    def total(self) -> float:
        """The integral over all time."""
        return float(self._cumulated[-1])

    def until(self, instants: ArrayLike) -> FloatArray:
        """Return the integral up to each instant."""
        return np.interp(
            np.asarray(instants, dtype=np.float64), self.edges, self._cumulated
        )

    def when(self, amounts: ArrayLike) -> FloatArray:
        """The first instants at which the integral reaches these amounts; infinite where it never does."""
        wanted = np.asarray(amounts, dtype=np.float64)
        after = np.clip(
            np.searchsorted(self._cumulated, wanted, side="left"), 1, len(self.rates)
        )
        missing = wanted - self._cumulated[after - 1]
        rates = self.rates[after - 1]
        instants = self.edges[after - 1] + np.divide(
            missing, rates, out=np.zeros_like(wanted), where=rates > 0
        )
        return np.where(wanted > self.total, np.inf, instants)

    def times(self, factor: float) -> Supply:
        """Return the supply at another rate."""
        return Supply(self.edges, self.rates * factor)


def idle_units(trace: NodeTrace) -> Supply:
    """The idle units of a trace over time."""
    edges = np.concatenate([[trace.start], trace.times, [trace.end]]) - trace.start
    units = np.concatenate([[0], trace.idle_units()])
    return Supply(edges / SECOND_NS, units.astype(np.float64))


def idle_by_kind(trace: NodeTrace) -> dict[str, Supply]:
    """The idle units of each kind; all under "" where they are alike."""
    if not trace.kinds:
        return {"": idle_units(trace)}
    return {kind: idle_units(trace.of_kind(kind)) for kind in sorted(set(trace.kinds))}


class Work(NamedTuple):
    """Jobs that are submitted before the trace ends: arrays of shape (jobs,).

    - `submit`: seconds since the trace's start; negative if before it. `release`: the same, 0 where it is negative.
    - `total`: the whole work, samples.
    - `alone`: when a job would be done if it had all idle units for itself; infinite if never. `limit`: the most
      samples that it could do so.
    - `per_unit`: its best rate per unit on each kind, samples/(unit x s): shape (jobs, kinds).
    """

    submit: FloatArray
    release: FloatArray
    total: FloatArray
    alone: FloatArray
    limit: FloatArray
    per_unit: FloatArray

    @property
    def unit_seconds(self) -> FloatArray:
        """The fewest unit-seconds for each job's work; infinite where it can do nothing."""
        best = self.per_unit.max(axis=1)
        needed = np.full(len(best), np.inf)
        np.divide(self.total, best, out=needed, where=best > 0)
        return needed


def work_of(trace: NodeTrace, own: Sequence[Job], idle: dict[str, Supply]) -> Work:
    """The work of jobs whose idle units of each kind are `idle`."""
    submit = np.array([(job.tsub_ns - trace.start) / SECOND_NS for job in own])
    release, total = np.maximum(submit, 0.0), np.array([job.pmax for job in own])
    alone, limit = np.empty(len(own)), np.empty(len(own))
    per_unit = np.empty((len(own), len(idle)))
    most = {kind: int(of.rates.max(initial=0.0)) for kind, of in idle.items()}
    alike: defaultdict[tuple[bytes, ...], list[int]] = defaultdict(list)
    for position, job in enumerate(own):
        rates = [job.on(kind).rates[: top + 1] for kind, top in most.items()]
        alike[tuple(of.tobytes() for of in rates)].append(position)
    for same, of_same in alike.items():
        rates = [np.frombuffer(of) for of in same]
        fastest = [
            np.maximum.accumulate(of)[np.minimum(supply.rates, len(of) - 1).astype(int)]
            for supply, of in zip(idle.values(), rates, strict=True)
        ]
        edges = next(iter(idle.values())).edges
        all_units = Supply(edges, np.max(fastest, axis=0))
        before = all_units.until(release[of_same])
        alone[of_same] = all_units.when(before + total[of_same])
        limit[of_same] = np.minimum(total[of_same], all_units.total - before)
        per_unit[of_same] = [
            np.max(of[1:] / np.arange(1, len(of)), initial=0.0) for of in rates
        ]
    return Work(submit, release, total, alone, limit, per_unit)


def largest_gain(jobs: Iterable[Job], interference: Interference | None) -> float:
    """The most that two jobs on a unit do of what each would do there alone: max of 1/xi + 1/xi; at least 1."""
    if interference is None:
        return 1.0
    # Without a table of memory, memory decides only whether two jobs may share, so that those with the least count.
    # With one, ratios depend on memory, and on which of two jobs came first.
    only_fits = interference.memory is None
    alike: defaultdict[Any, list[Job]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: (job.tsub_ns, job.name)):
        kind = interference.job_class(job)
        alike[kind[:2] if only_fits else kind].append(job)
    some = [
        heapq.nsmallest(2, same, key=_memory) if only_fits else [same[0], same[-1]]
        for same in alike.values()
    ]
    gains = [1.0]
    for pair in combinations_with_replacement(some, 2):
        for one, other in product(*pair):
            sides = interference.sides(one, other)
            if one is not other and sides and interference.ever(one, other):
                gains.append(math.fsum(1 / side.least() for side in sides))
    return max(gains)


def _memory(job: Job) -> float:
    return math.inf if job.memory_gib is None else job.memory_gib


# --- samples ----------------------------------------------------------------------------------------------------------


def _most_samples(idle: Sequence[Supply], work: Work) -> float:
    """The most samples that the idle unit-seconds of each kind allow.

    With u_jk unit-seconds of kind k for job j, e_jk its best rate per unit there, and L_j the most that it could do:

    maximise  sum of e_jk u_jk   with   sum over k of e_jk u_jk <= L_j   and, for every kind k and instant r,
    sum over jobs submitted at r or later of u_jk <= unit-seconds of kind k from r on
    """
    releases = np.unique(work.release)
    offered = np.stack([supply.total - supply.until(releases) for supply in idle])
    # Jobs with the same rates and release count as one.
    limits: defaultdict[tuple[float, ...], list[float]] = defaultdict(list)
    first = np.searchsorted(releases, work.release)
    columns = (work.limit.tolist(), work.per_unit.tolist(), first.tolist())
    for most, rates, release in zip(*columns, strict=True):
        if most > 0:
            limits[(*rates, release)].append(most)
    if not limits:
        return 0.0
    keys = np.array(sorted(limits))
    limit = np.array([math.fsum(limits[tuple(key)]) for key in keys.tolist()])
    solve = _of_one_kind if len(idle) == 1 else _of_kinds
    return solve(limit, keys[:, :-1], keys[:, -1].astype(np.int64), offered)


def _of_one_kind(
    limit: FloatArray, rates: FloatArray, first: NDArray[np.int64], offered: FloatArray
) -> float:
    """Solve it for one kind: the sets of jobs submitted at r or later form a chain, so best first is optimal.

    Parameters
    ----------
    limit, rates, first
        Of each group of jobs: most samples, best rate per unit on each kind, and the index of its release.
    offered
        Unit-seconds of each kind from each release on: shape (kinds, releases).
    """
    left = offered[0]  # unit-seconds from each release on, minus those already taken
    samples = []
    for group in np.lexsort((first, -rates[:, 0])).tolist():
        chain = left[: first[group] + 1]
        wanted = limit[group] / rates[group, 0]
        taken = max(0.0, min(wanted, float(chain.min())))
        chain -= taken
        samples.append(rates[group, 0] * taken)
    return math.fsum(samples)


def _of_kinds(
    limit: FloatArray, rates: FloatArray, first: NDArray[np.int64], offered: FloatArray
) -> float:
    """Bound it by a linear programme; arguments as in `_of_one_kind`.

    Of the programme only the prices y_kr of unit-seconds are used: at any prices >= 0 (docs/bounds.md)

        sum over j of L_j max(0, max over k of 1 - lambda_jk / e_jk) + sum of y_kr (unit-seconds)

    is a bound, lambda_jk = sum over r <= r_j of y_kr. So the solver's tolerances do not matter.
    """
    prices = _prices(limit, rates, first, offered)
    price = np.cumsum(prices, axis=1)[:, first].T
    gain = 1.0 - np.divide(price, rates, out=np.ones_like(rates), where=rates > 0)
    return float(limit @ np.maximum(gain.max(axis=1), 0.0) + (prices * offered).sum())


def _prices(
    limit: FloatArray, rates: FloatArray, first: NDArray[np.int64], offered: FloatArray
) -> FloatArray:
    """Prices of unit-seconds of each kind from each release on: samples/(unit x s), shape (kinds, releases).

    Columns: the part of a group's limit that is done on each kind; then the unit-seconds of each kind used from each
    release on. Rows: what is used from a release on is what is used from the next one on, and by jobs of this release.
    """
    from scipy.optimize import linprog
    from scipy.sparse import block_diag, coo_array, eye_array, hstack, kron

    (kinds, releases), groups = offered.shape, len(limit)
    scale = float(offered.max())
    needed = np.divide(limit, rates.T, out=np.zeros_like(rates.T), where=rates.T > 0)
    by_group = np.arange(groups)
    used = block_diag([
        coo_array((of / scale, (first, by_group)), shape=(releases, groups)) for of in needed
    ])  # fmt: skip
    chain = kron(eye_array(kinds), eye_array(releases) - eye_array(releases, k=1))
    whole = hstack(
        [*[eye_array(groups)] * kinds, coo_array((groups, kinds * releases))]
    )
    worth = np.where(rates.T > 0, limit / limit.sum(), 0.0)
    done_at_most = np.where(rates.T > 0, np.inf, 0.0)
    result = linprog(
        -np.concatenate([worth.ravel(), np.zeros(kinds * releases)]),
        A_ub=whole.tocsc(),
        b_ub=np.ones(groups),
        A_eq=hstack([-used, chain]).tocsc(),
        b_eq=np.zeros(kinds * releases),
        bounds=[
            (0.0, top) for top in (*done_at_most.ravel(), *offered.ravel() / scale)
        ],
        method="highs",
    )
    if result.status != 0:
        logger.warning("a bound is less tight than it could be: %s", result.message)
        return np.zeros_like(offered)
    of_tails = result.upper.marginals[groups * kinds :]
    prices: FloatArray = np.maximum(-of_tails, 0.0) * limit.sum() / scale
    return prices.reshape(kinds, releases)


# --- times ------------------------------------------------------------------------------------------------------------


def _least_completions(idle: Supply, work: Work) -> float:
    """The smallest sum over jobs of seconds from submission to completion; for jobs not done, up to the trace's end.

    Measured in unit-seconds, all idle units are one machine of varying speed, which serves the job with the least
    remaining work first; and no job is done before it would be alone.
    """
    end_s = idle.edges[-1]
    together = np.minimum(idle.when(_shortest_first(idle, work)), end_s)
    alone = np.minimum(work.alone, end_s)
    least = max(math.fsum(together.tolist()), math.fsum(alone.tolist()))
    return least - math.fsum(work.submit.tolist())


def _shortest_first(idle: Supply, work: Work) -> list[float]:
    """What one machine has offered at each completion, the shortest remaining work first; infinite for jobs not done.

    The clock is what has been offered so far, on which the machine's speed is constant.
    """
    comes = sorted(
        zip(idle.until(work.release).tolist(), work.unit_seconds.tolist(), strict=True)
    )
    waiting: list[float] = []
    done: list[float] = []
    now = 0.0
    for (release, needed), (until, _) in pairwise([*comes, (math.inf, 0.0)]):
        now = max(now, release)
        heapq.heappush(waiting, needed)
        while waiting and now + waiting[0] <= until:
            now += heapq.heappop(waiting)
            done.append(now)
        if waiting:
            heapq.heapreplace(waiting, waiting[0] - (until - now))
            now = until
    return done


def _last_completion(idle: Supply, work: Work) -> float:
    """The earliest time at which all jobs can be done, seconds since the trace's start; infinite when not all can be.

    From every instant on there must be enough unit-seconds for the jobs submitted then or later, and no job is done
    before it would be alone.
    """
    by_release: defaultdict[float, list[float]] = defaultdict(list)
    for release, needed in zip(
        work.release.tolist(), work.unit_seconds.tolist(), strict=True
    ):
        by_release[release].append(needed)
    releases = sorted(by_release, reverse=True)
    from_then_on = np.cumsum([math.fsum(by_release[release]) for release in releases])
    together = idle.when(idle.until(releases) + from_then_on)
    return float(max(together.max(initial=0.0), work.alone.max(initial=0.0)))
