"""The unit-time bound where two jobs may share a unit, each slowed down by its factor xi."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from bft.models import Job, JobTable
from bft.models.sharing.xi_table import SizedRatio
from bft.replay.engine.sharing_rules import Interference
from bft.replay.results.bounds.prices import Priced, bound_by_prices
from bft.replay.results.bounds.supply import FloatArray, IntArray, Supply
from bft.replay.results.bounds.work import Work, best_per_unit, by_period


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rates of a unit with one or two jobs on it: arrays with one entry per curve or pair of curves.

    Parameters
    ----------
    first, second
        Indices of the two curves; equal for a single job (`second_rate` 0) and for two jobs with the same curve.
    first_rate, second_rate
        Upper bounds of the samples/(unit x s) of each.
    """

    first: IntArray
    second: IntArray
    first_rate: FloatArray
    second_rate: FloatArray

    def speed(self, per_unit: FloatArray) -> float:
        """The largest speed-up of two jobs on a unit over one alone; 1 where sharing never gains."""
        sums = np.zeros(len(self.first))
        for curve, rate in (
            (self.first, self.first_rate),
            (self.second, self.second_rate),
        ):
            alone = per_unit[curve]
            sums += np.divide(rate, alone, out=np.zeros_like(rate), where=alone > 0)
        return float(sums.max(initial=1.0))


def pairs_of(work: Work, jobs: JobTable, interference: Interference) -> Pairs:
    """Return all pairs that may share; each curve of `work` must belong to one kind of jobs (`Interference.kind`)."""
    members = [
        [jobs.jobs[position] for position in work.positions[work.curve == curve]]
        for curve in range(len(work.curves))
    ]
    entries = [
        (curve, curve, rate, 0.0) for curve, rate in enumerate(work.per_unit.tolist())
    ]
    for a, b in combinations_with_replacement(range(len(members)), 2):
        first_best = second_best = 0.0
        for one, other in _each_order(members[a], members[b]):
            sides = (
                interference.sides(one, other)
                if interference.ever(one, other)
                else None
            )
            if sides is not None:
                first_best = max(first_best, _beside(work.curves[a], sides[0]))
                second_best = max(second_best, _beside(work.curves[b], sides[1]))
        if first_best or second_best:
            entries.append((a, b, first_best, second_best))
    table = np.array(entries, dtype=np.float64).reshape(-1, 4)
    return Pairs(
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.int64),
        table[:, 2],
        table[:, 3],
    )


def _each_order(some: Sequence[Job], others: Sequence[Job]) -> list[tuple[Job, Job]]:
    """Pairs of jobs in both orders of submission, as far as they exist: ratios may depend on the order."""

    def when(job: Job) -> tuple[int, str]:
        return job.tsub_ns, job.name

    pairs = [
        (min(some, key=when), max(others, key=when)),
        (max(some, key=when), min(others, key=when)),
    ]
    return [(one, other) for one, other in pairs if one.name != other.name]


def _beside(rates: FloatArray, ratio: SizedRatio) -> float:
    """The best rate per unit beside another job."""
    slowed = rates.copy()
    slowed[1:] /= [ratio.of(n) for n in range(1, len(rates))]
    return best_per_unit(slowed)


@dataclass(frozen=True, eq=False)
class UnitSeconds:
    """A period with a given number of idle unit-seconds; see `prices.Period`."""

    amount: float
    there: IntArray  # the pairs of which both jobs are submitted
    pairs: Pairs

    @property
    def parts(self) -> int:
        """Number of parts of the machine's time, 1: all units and seconds are equal."""
        return 1

    def best(self, worth: FloatArray) -> FloatArray:
        """The work of the most valuable pair, on all units all the time."""
        pairs, of = self.pairs, np.maximum(worth, 0.0)
        done = np.zeros((1, len(worth)))
        if len(self.there):
            values = (
                of[pairs.first] * pairs.first_rate
                + of[pairs.second] * pairs.second_rate
            )
            top = self.there[int(np.argmax(values[self.there]))]
            done[0, pairs.first[top]] += pairs.first_rate[top] * self.amount
            done[0, pairs.second[top]] += pairs.second_rate[top] * self.amount
        return done


def shared_bound(idle: Supply, work: Work, pairs: Pairs) -> Priced:
    """The most samples that idle unit-seconds allow where two jobs may share each unit."""
    grouped = by_period(work)
    periods = []
    for (begin, end), members in zip(
        grouped.spans(idle.end), grouped.members, strict=True
    ):
        there = np.flatnonzero((members[pairs.first] > 0) & (members[pairs.second] > 0))
        periods.append(
            UnitSeconds(float(np.diff(idle.until([begin, end]))[0]), there, pairs)
        )
    return bound_by_prices(periods, grouped.limits)
