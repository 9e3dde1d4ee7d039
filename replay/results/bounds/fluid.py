"""The bound for a limited number of jobs in play: at each number of idle units at most that many jobs run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bft.replay.results.bounds.prices import Priced, bound_by_prices
from bft.replay.results.bounds.supply import FloatArray, IntArray, Supply
from bft.replay.results.bounds.work import Work, by_period

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
