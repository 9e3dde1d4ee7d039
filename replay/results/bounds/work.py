"""What bounds are made of: the rate of supply over time, and the curve, release time and work of each job."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bft.models import Job, JobTable
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


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

    @property
    def end(self) -> float:
        """The end of the last piece."""
        return float(self.edges[-1])

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

    def levels(self, begin: float, end: float) -> tuple[FloatArray, FloatArray]:
        """The rates above 0 between two instants, ascending, with the seconds that each lasts."""
        seconds = np.clip(self.edges[1:], begin, end) - np.clip(
            self.edges[:-1], begin, end
        )
        rates, index = np.unique(self.rates, return_inverse=True)
        total = np.zeros(len(rates))
        np.add.at(total, index, seconds)
        there = (rates > 0) & (total > 0)
        return rates[there], total[there]


def idle_units(trace: NodeTrace) -> Supply:
    """The idle units of a trace over time."""
    edges = np.concatenate([[trace.start], trace.times, [trace.end]]) - trace.start
    units = np.concatenate([[0], trace.idle_units()])
    return Supply(edges / SECOND_NS, units.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Work:
    """Jobs that are submitted before the trace ends. Jobs with the same curve differ only in release and work.

    Parameters
    ----------
    curves
        The distinct tables of rates, samples/s on 0, 1, ... units up to the most ever idle; 0 where not allowed. Where
        units are of several kinds, on the best of them.
    curve
        Index of each job's curve: int64 of shape (jobs,).
    release
        The earliest time at which it may run, seconds since the trace's start.
    submit
        When it was submitted; negative if before the trace began.
    total
        Its whole work, samples.
    alone
        When it would be done if it had all idle units for itself; infinite if never.
    limit
        The most work that it could do alone.
    positions
        Positions of these jobs in their table.
    by_kind
        The best rate per unit of each curve on each kind of units, samples/(unit x s): shape (curves, kinds).
    """

    curves: tuple[FloatArray, ...]
    curve: IntArray
    release: FloatArray
    submit: FloatArray
    total: FloatArray
    alone: FloatArray
    limit: FloatArray
    positions: IntArray
    by_kind: FloatArray

    @property
    def per_unit(self) -> FloatArray:
        """The best rate of each curve per unit, samples/(unit x s)."""
        return np.fromiter(
            map(best_per_unit, self.curves), dtype=np.float64, count=len(self.curves)
        )

    @property
    def unit_seconds(self) -> FloatArray:
        """The fewest unit-seconds for each job's work; infinite where it can do nothing."""
        per_unit = self.per_unit[self.curve]
        needed = np.full(len(self.total), np.inf)
        np.divide(self.total, per_unit, out=needed, where=per_unit > 0)
        return needed


def best_per_unit(rates: FloatArray) -> float:
    """Max over n > 0 of rates[n] / n."""
    return float(np.max(rates[1:] / np.arange(1, len(rates)), initial=0.0))


def work_of(
    trace: NodeTrace,
    jobs: JobTable,
    idle: Supply,
    alike: Callable[[Job], Hashable] | None = None,
    kinds: Mapping[str, Supply] | None = None,
) -> Work:
    """The jobs of a pool whose idle units are `idle`, in all and of each of `kinds`, if there are several.

    Curves of jobs of which `alike` differs count as different.
    """
    supplies = kinds or {"": idle}
    sizes = {
        kind: int(supply.rates.max(initial=0.0)) + 1
        for kind, supply in supplies.items()
    }
    known: dict[Hashable, int] = {}
    curves: list[list[FloatArray]] = []
    curve, positions = [], []
    for position, job in enumerate(jobs):
        if job.tsub_ns >= trace.end:
            continue
        rates = [job.on(kind).rates[:size] for kind, size in sizes.items()]
        key = None if alike is None else alike(job), *(of.tobytes() for of in rates)
        if key not in known:
            known[key] = len(curves)
            curves.append(rates)
        curve.append(known[key])
        positions.append(position)
    index = np.array(curve, dtype=np.int64)
    own = [jobs.jobs[position] for position in positions]
    submit = np.array([(job.tsub_ns - trace.start) / SECOND_NS for job in own])
    release = np.maximum(submit, 0.0)
    total = np.array([job.pmax for job in own])
    alone, limit = np.full(len(own), np.inf), np.zeros(len(own))
    for k, rates in enumerate(curves):
        fastest = Supply(
            idle.edges, np.max(list(map(_fastest, supplies.values(), rates)), axis=0)
        )
        of_curve = index == k
        before = fastest.until(release[of_curve])
        alone[of_curve] = fastest.when(before + total[of_curve])
        limit[of_curve] = np.minimum(total[of_curve], fastest.total - before)
    by_kind = np.array([list(map(best_per_unit, rates)) for rates in curves]).reshape(
        len(curves), len(supplies)
    )
    best = tuple(map(_on_the_best, curves))
    return Work(
        best,
        index,
        release,
        submit,
        total,
        alone,
        limit,
        np.array(positions, dtype=np.int64),
        by_kind,
    )


def _fastest(supply: Supply, rates: FloatArray) -> FloatArray:
    """The highest rate on at most all idle units, in each piece of their supply."""
    best = np.maximum.accumulate(rates)
    return best[np.minimum(supply.rates, len(rates) - 1).astype(np.int64)]


def _on_the_best(rates: Sequence[FloatArray]) -> FloatArray:
    """The highest of several rates on each number of units."""
    if len(rates) == 1:
        return rates[0]
    best = np.zeros(max(map(len, rates)))
    for of in rates:
        best[: len(of)] = np.maximum(best[: len(of)], of)
    return best


# Number of periods. Submissions within one count as one instant, its begin; more periods give a tighter, slower bound.
PERIODS = 16


@dataclass(frozen=True, eq=False)
class ByPeriod:
    """Work submitted by each period; a job counts as submitted when its period begins.

    Parameters
    ----------
    begins
        Begin of each period, seconds since the trace's start; the last period ends with the trace.
    limits
        Most work by jobs of each curve submitted by each period: samples, shape (periods, curves).
    members
        Number of those jobs that can do any work: int64 of the same shape.
    """

    begins: FloatArray
    limits: FloatArray
    members: IntArray

    def spans(self, end: float) -> Iterator[tuple[float, float]]:
        """Begin and end of each period."""
        yield from zip(
            self.begins.tolist(), [*self.begins[1:].tolist(), end], strict=True
        )


def by_period(work: Work) -> ByPeriod:
    """The work by at most `PERIODS` periods: one per instant of submission if these are few, else of similar work."""
    begins, index = np.unique(work.release, return_inverse=True)
    if len(begins) > PERIODS:
        brought = np.cumsum(np.bincount(index, weights=work.limit))
        before = np.concatenate([[0.0], brought[:-1]])
        begins = begins[
            np.unique(
                np.searchsorted(before, brought[-1] * np.arange(PERIODS) / PERIODS)
            )
        ]
    cells = np.searchsorted(begins, work.release, side="right") - 1, work.curve
    limits = np.zeros((len(begins), len(work.curves)))
    members = np.zeros(limits.shape, dtype=np.int64)
    np.add.at(limits, cells, work.limit)
    np.add.at(members, cells, work.limit > 0)
    return ByPeriod(begins, np.cumsum(limits, axis=0), np.cumsum(members, axis=0))
