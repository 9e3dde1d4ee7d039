"""The unit-time bound: every sample takes at least 1 / max P(n)/n unit-seconds of idle units.

Where units are of several kinds, it is a linear programme over unit-seconds of each kind. Where two jobs may share a
unit, each is slowed down by its factor xi.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from bft.models import Job, JobTable
from bft.models.sharing.xi_table import SizedRatio
from bft.replay.engine.rules import Interference
from bft.replay.results.bounds.prices import Priced, bound_by_prices
from bft.replay.results.bounds.work import (
    FloatArray,
    IntArray,
    Supply,
    Work,
    best_per_unit,
    by_period,
)

logger = logging.getLogger(__name__)


def unit_time_bound(idle: Supply, work: Work) -> float:
    """The most samples that the idle unit-seconds allow.

    A fractional knapsack: u_j unit-seconds for job j yield e_j u_j, up to its work. For every instant r, the jobs
    submitted at r or later use at most the unit-seconds offered from r on. These sets of jobs form a chain, so taking
    jobs by their rate per unit, best first, is optimal (docs/bounds.md).
    """
    per_unit = work.per_unit[work.curve]
    able = per_unit > 0
    releases, release = np.unique(work.release[able], return_inverse=True)
    left = idle.total - idle.until(
        releases
    )  # unit-seconds from each release on, minus those already taken
    # Jobs with the same rate and release count as one.
    groups, group = np.unique(
        np.stack([-per_unit[able], release], axis=1), axis=0, return_inverse=True
    )
    wanted = np.bincount(
        group.ravel(), weights=work.limit[able] / per_unit[able], minlength=len(groups)
    )
    samples = 0.0
    for (rate, first), want in zip(groups.tolist(), wanted.tolist(), strict=True):
        chain = left[: int(first) + 1]
        taken = max(0.0, min(want, float(chain.min())))
        chain -= taken
        samples -= rate * taken
    return samples


def unit_time_by_kind(idle: Sequence[Supply], work: Work) -> float:
    """The most samples that the idle unit-seconds of all kinds allow; `idle` of each kind, as in `work.by_kind`.

    maximise  sum of e_jk u_jk   with   sum over k of e_jk u_jk <= L_j   and, for every kind k and instant r,
    sum over jobs submitted at r or later of u_jk <= unit-seconds of kind k from r on

    Of the programme only the prices y_kr of unit-seconds are used: at any prices >= 0 (docs/bounds.md)

        sum over j of L_j max(0, max over k of 1 - lambda_jk / e_jk) + sum of y_kr (unit-seconds)

    is a bound, lambda_jk = sum over r <= r_j of y_kr. So the solver's tolerances do not matter.
    """
    releases, release = np.unique(work.release, return_inverse=True)
    # Jobs with the same curve and release count as one.
    groups, group = np.unique(
        np.stack([work.curve, release]), axis=1, return_inverse=True
    )
    curve, first = groups
    limit: FloatArray = np.bincount(group.ravel(), weights=work.limit).astype(
        np.float64
    )
    rates, offered = (
        work.by_kind[curve],
        np.stack([supply.total - supply.until(releases) for supply in idle]),
    )
    values = _prices(limit, rates, first, offered)
    price = np.cumsum(values, axis=1)[:, first].T
    gain = 1.0 - np.divide(price, rates, out=np.ones_like(rates), where=rates > 0)
    return float(limit @ np.maximum(gain.max(axis=1), 0.0) + (values * offered).sum())


def _prices(
    limit: FloatArray, rates: FloatArray, first: IntArray, offered: FloatArray
) -> FloatArray:
    """Values of unit-seconds of each kind from each release on: samples/(unit x s), shape (kinds, releases).

    Parameters
    ----------
    limit, rates, first
        Of each group of jobs: most samples, best rate per unit on each kind, and the index of its release.
    offered
        Unit-seconds of each kind from each release on: shape (kinds, releases).
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    (kinds, releases), scale = offered.shape, max(float(offered.max()), 1e-300)
    group, kind = np.nonzero((rates > 0) & (limit[:, None] > 0))
    if not len(group):
        return np.zeros_like(offered)
    # Columns: the part of a group's limit that is done on a kind; then the unit-seconds used from each release on.
    done, tail = np.arange(len(group)), len(group) + np.arange(kinds * releases)
    # Rows: what is used from a release on is what is used from the next one on, and by jobs of this release.
    row = kind * releases + first[group]
    later = np.arange(kinds * releases) % releases < releases - 1
    balance = coo_array(
        (
            np.concatenate(
                [
                    np.ones(len(tail)),
                    -np.ones(int(later.sum())),
                    -limit[group] / rates[group, kind] / scale,
                ]
            ),
            (
                np.concatenate([np.arange(len(tail)), np.flatnonzero(later), row]),
                np.concatenate([tail, tail[1:][later[:-1]], done]),
            ),
        ),
        shape=(len(tail), len(group) + len(tail)),
    )
    whole = coo_array(
        (np.ones(len(done)), (group, done)), shape=(len(limit), len(group) + len(tail))
    )
    worth = np.concatenate([limit[group] / limit.sum(), np.zeros(len(tail))])
    upper = np.concatenate([np.full(len(done), np.inf), offered.ravel() / scale])
    result = linprog(
        -worth,
        A_ub=whole.tocsc(),
        b_ub=np.ones(len(limit)),
        A_eq=balance.tocsc(),
        b_eq=np.zeros(len(tail)),
        bounds=np.stack([np.zeros(len(upper)), upper], axis=1),
        method="highs",
    )
    if result.status != 0:
        logger.warning("a bound is less tight than it could be: %s", result.message)
        return np.zeros_like(offered)
    values: FloatArray = (
        np.maximum(-result.upper.marginals[tail], 0.0) * limit.sum() / scale
    )
    return values.reshape(kinds, releases)


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
