"""Bound and start for sharing problems of any size without a MILP: column generation over items (docs/model.md).

The linear relaxation over items (`items`) has a dual price for a unit, for a member of each class, and for each row of
a present pair. At any prices an item on u units loses what its rows and units cost, less its gain: its reduced cost. No
choice is worth more than all rows at their prices, and one that has an item on u units is worth less by that item's
loss. Few columns matter: those that gain at the present prices are added until none does.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from bft.milp.formulations.items import Choice, Items
from bft.milp.formulations.linear import Nonsense, power_of_two_scale
from bft.milp.problem import FloatArray, IntArray
from bft.milp.tolerances import NO_LOSS, WHOLE_ITEMS

# Rounds of columns; five mostly suffice, and every round bounds.
MAX_ROUNDS = 50
# Halvings of the price interval for a first guess.
HALVINGS = 12
# Items beside those of the relaxation that may take what rounding leaves over: the square of this, each so often.
EXTRA = 8


@dataclass(frozen=True)
class Relaxation:
    """The solved linear relaxation: a bound, dual prices, reduced costs, and how often each item is chosen.

    Parameters
    ----------
    bound
        No allocation is worth more.
    loss
        Reduced cost of each entry of `Items.gains`, >= 0, inf where not allowed.
    times
        How often each item is active, float64.
    row_prices
        The dual price of each row, that of the units first.
    """

    bound: float
    loss: FloatArray
    times: FloatArray
    row_prices: FloatArray


class _Master:
    """The master problem: the relaxation over some of the columns."""

    def __init__(self, items: Items) -> None:
        from scipy.sparse import csr_array

        self.items = items
        self.scale = power_of_two_scale([float(items.gains.max())])
        rows_of = [item.rows for item in items.all]
        ends = np.cumsum([len(rows) for rows in rows_of])
        rows = np.fromiter(chain.from_iterable(rows_of), dtype=np.int64)
        begins = np.concatenate(([0], ends))
        # Row 0, the units, has a coefficient that differs by column; a pair within a class counts twice in its row.
        self.rows = csr_array(
            (np.ones(len(rows)), rows, begins), shape=(len(rows_of), len(items.limits))
        )
        self.rows.sum_duplicates()

    def solve(self, columns: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the dual prices of the rows, and how much of each column is chosen."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, vstack

        items = self.items
        owners = items.owner[columns]
        units = csr_array(items.units[columns].astype(np.float64)[None, :])
        other_rows = self.rows[owners].T.tocsr()[1:]
        answer = linprog(
            -self.scale * items.gains[columns],
            A_ub=vstack([units, other_rows], format="csc"),
            b_ub=items.limits.astype(np.float64),
            method="highs-ds",
        )
        if answer.x is None:
            raise Nonsense(f"linear relaxation: {answer.message}")
        prices = np.maximum(-answer.ineqlin.marginals, 0.0) / self.scale
        return prices, answer.x

    def loss(self, row_prices: FloatArray) -> FloatArray:
        """Return what each entry loses at these prices, below 0 where it gains."""
        items = self.items
        row_costs = self.rows @ row_prices
        unit_costs = row_prices[0] * items.units
        loss: FloatArray = row_costs[items.owner] + unit_costs - items.gains
        return loss


@dataclass(frozen=True, eq=False)
class _Hull:
    """The entries that are best for their item at some unit price: the upper concave hull of its table.

    Parameters
    ----------
    entries
        Their positions in `Items.gains`, ascending.
    begins
        Where in `entries` those of each item begin that has some.
    max_price, min_price
        The unit prices between which each is the item's best.
    """

    entries: IntArray
    begins: IntArray
    max_price: FloatArray
    min_price: FloatArray

    @classmethod
    def of(cls, items: Items) -> _Hull:
        """Return the hulls of all items."""
        from bft.milp.formulations.kernels import on_hull

        entries = on_hull(items.gains, items.begins)
        gains, units = items.gains[entries], items.units[entries]
        is_first = np.concatenate(([True], np.diff(items.owner[entries]) > 0))
        gains_before = np.where(is_first, 0.0, np.roll(gains, 1))
        units_before = np.where(is_first, 0, np.roll(units, 1))
        slopes = (gains - gains_before) / (units - units_before)
        is_last = np.roll(is_first, -1)
        next_slopes = np.where(is_last, 0.0, np.roll(slopes, -1))
        return cls(entries, np.flatnonzero(is_first), slopes, next_slopes)

    def between(self, low: float, high: float) -> IntArray:
        """Return the entries that are their item's best at some price in between."""
        return self.entries[(self.max_price >= low) & (self.min_price <= high)]

    def least(self, loss: FloatArray) -> IntArray:
        """Return the entry of each item that loses least, the first among equals."""
        losses = loss[self.entries]
        counts = np.diff(np.append(self.begins, len(self.entries)))
        least = np.minimum.reduceat(losses, self.begins)
        owner = np.repeat(np.arange(len(counts)), counts)
        found = np.flatnonzero(losses == least[owner])
        is_first = np.concatenate(([True], np.diff(owner[found]) > 0))
        return self.entries[found[is_first]]


def relax(items: Items) -> Relaxation:
    """Solve the linear relaxation over all items by column generation."""
    if not items.all:
        return Relaxation(
            items.base, np.empty(0), np.empty(0), np.zeros(len(items.limits))
        )
    master = _Master(items)
    hull = _Hull.of(items)
    tolerance = NO_LOSS * float(items.gains.max())
    members = np.array([item.members for item in items.all], dtype=np.float64)
    columns = hull.between(*_price_interval(items))
    for _ in range(MAX_ROUNDS):
        row_prices, amounts = master.solve(columns)
        times = np.bincount(
            items.owner[columns], weights=amounts, minlength=len(items.all)
        )
        loss = master.loss(row_prices)
        gained = np.maximum(-np.minimum.reduceat(loss, items.begins[:-1]), 0.0)
        bound = (
            items.base
            + float(row_prices @ items.limits)
            + float((members * gained).sum())
        )
        candidates = hull.least(loss)
        gaining = candidates[loss[candidates] < -tolerance]
        new = np.setdiff1d(gaining, columns, assume_unique=True)
        if not len(new):
            break
        columns = np.union1d(columns, new)
    # Prices raised so that nothing gains: what an item gained is paid by it alone.
    loss += gained[items.owner]
    return Relaxation(bound, loss, times.astype(np.float64), row_prices)


def _price_interval(items: Items) -> tuple[float, float]:
    """Return unit prices between which the one that clears the market mostly lies: that without pairs, and twice it."""
    low, high = 0.0, float((items.gains / np.maximum(items.units, 1)).max())
    solos = sum(item.pair is None for item in items.all)
    if not solos:
        return low, high
    end = int(items.begins[solos])
    begins = items.begins[:solos]
    gains, units, owner = items.gains[:end], items.units[:end], items.owner[:end]
    members = np.array([item.members for item in items.all[:solos]], dtype=np.int64)
    for _ in range(HALVINGS):
        price = (low + high) / 2
        worth = gains - price * units
        best = np.maximum.reduceat(worth, begins)
        wanted = np.maximum.reduceat(np.where(worth == best[owner], units, 0), begins)
        wanted = np.where(best > 0, wanted, 0)
        if (members * wanted).sum() > items.limits[0]:
            low = price
        else:
            high = price
    return low, 2.0 * high


def rounded(items: Items, relaxation: Relaxation) -> Choice:
    """Return items as often as the relaxation has them, rounded up where they fit, on the units that are best for them.

    A few more that lose little may take units that rounding has left over.
    """
    if not items.all:
        return []
    whole = np.floor(relaxation.times + WHOLE_ITEMS)
    rest = relaxation.times - whole
    rest[rest <= WHOLE_ITEMS] = 0.0
    least_loss = np.minimum.reduceat(relaxation.loss, items.begins[:-1])
    by_rest = np.argsort(-rest, kind="stable").tolist()
    by_loss = np.argsort(least_loss, kind="stable").tolist()
    wanted = [(i, int(whole[i])) for i in np.flatnonzero(whole).tolist()]
    wanted += [(i, 1) for i in by_rest if rest[i]]
    wanted += [(i, EXTRA) for i in by_loss[: EXTRA * EXTRA]]
    left = items.limits.tolist()
    active: list[int] = []
    for i, times in wanted:
        rows = items.all[i].rows
        for _ in range(times):
            if any(left[row] < rows.count(row) for row in rows):
                break
            for row in rows:
                left[row] -= 1
            active.append(i)
    return items.shared_out(active)
