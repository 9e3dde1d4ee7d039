"""A bound and a start for sharing problems of any size without a MILP: prices of units and of jobs (docs/model.md).

The linear relaxation over items (`grouped`) has a price for a unit, for a member of each class, and for each row of a
pair of now. At any prices an item on u units loses what its rows and units cost less its gain; no choice is worth more
than all rows at their prices, and one that has an item on u units less by that item's loss. Few columns matter: those
that gain at the present prices are added until none does (column generation).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bft.milp.formulations.items import Choice, Items
from bft.milp.formulations.linear import Nonsense, power_of_two_scale
from bft.milp.problem import FloatArray, IntArray

# Rounds of columns; five mostly suffice, and every round bounds.
ROUNDS = 50
# A loss that is less than this part of the largest gain is none.
NO_LOSS = 1e-10
# Halvings of the price interval for a first guess.
HALVINGS = 12
# Items beside those of the relaxation that may take what rounding leaves over: so many kinds squared, each so often.
EXTRA = 8
# A number of items this close to a whole one is that.
NEAR = 1e-6


@dataclass(frozen=True)
class Prices:
    """What prices tell: a bound, what each entry of `Items.gains` loses, and how often which item is chosen.

    Parameters
    ----------
    bound
        What nothing can exceed.
    loss
        Of each entry, >= 0, inf where not allowed.
    chosen
        How often each item is active in the relaxation, float64.
    rows
        The price of each row, that of the units first.
    """

    bound: float
    loss: FloatArray
    chosen: FloatArray
    rows: FloatArray


class _Master:
    """The relaxation over some of the columns."""

    def __init__(self, items: Items) -> None:
        from scipy.sparse import csr_array

        self.items = items
        rows = [item.rows for item in items.all]
        ends = np.cumsum([len(each) for each in rows])
        flat = np.fromiter((row for each in rows for row in each), dtype=np.int64, count=int(ends[-1]))
        # Row 0, the units, has a coefficient that differs by column; a pair within a class counts twice in its row.
        self.rows = csr_array(
            (np.ones(len(flat)), flat, np.concatenate(([0], ends))), shape=(len(rows), len(items.limits))
        )
        self.rows.sum_duplicates()
        self.scale = power_of_two_scale([float(items.gains.max())])

    def solve(self, columns: IntArray) -> tuple[FloatArray, FloatArray]:
        """Prices of the rows, and how much of each column is chosen."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array, vstack

        items = self.items
        of = self.rows[items.owner[columns]]
        units = csr_array(items.units[columns].astype(np.float64)[None, :])
        table = vstack([units, of.T.tocsr()[1:]], format="csc")
        answer = linprog(
            -self.scale * items.gains[columns], A_ub=table, b_ub=items.limits.astype(np.float64), method="highs-ds"
        )
        if answer.x is None:
            raise Nonsense(f"linear relaxation: {answer.message}")
        return np.maximum(-answer.ineqlin.marginals, 0.0) / self.scale, answer.x

    def loss(self, prices: FloatArray) -> FloatArray:
        """What each entry loses at these prices, below 0 where it gains."""
        items = self.items
        cost = self.rows @ prices
        loss: FloatArray = cost[items.owner] + prices[0] * items.units - items.gains
        return loss


@dataclass(frozen=True, eq=False)
class _Hull:
    """Entries that are best at some unit price, ascending: those of an item between two `begins`.

    Parameters
    ----------
    entries
        Where in `Items.gains`.
    begins
        Where in `entries` those of each item begin that has some.
    dear, cheap
        The unit prices between which each is the item's best.
    """

    entries: IntArray
    begins: IntArray
    dear: FloatArray
    cheap: FloatArray

    @classmethod
    def of(cls, items: Items) -> _Hull:
        from bft.milp.formulations.kernels import on_hull

        entries = on_hull(items.gains, items.begins)
        first = np.concatenate(([True], np.diff(items.owner[entries]) > 0))
        gains, units = items.gains[entries], items.units[entries]
        before = np.where(first, 0.0, np.roll(gains, 1)), np.where(first, 0, np.roll(units, 1))
        dear = (gains - before[0]) / (units - before[1])
        return cls(entries, np.flatnonzero(first), dear, np.where(np.roll(first, -1), 0.0, np.roll(dear, -1)))

    def between(self, low: float, high: float) -> IntArray:
        """Those that are an item's best at some price in between."""
        return self.entries[(self.dear >= low) & (self.cheap <= high)]

    def lowest(self, loss: FloatArray) -> IntArray:
        """The one of each item that loses least."""
        lowest = np.minimum.reduceat(loss[self.entries], self.begins)
        counts = np.diff(np.append(self.begins, len(self.entries)))
        at = np.flatnonzero(loss[self.entries] == np.repeat(lowest, counts))
        owner = np.repeat(np.arange(len(counts)), counts)[at]
        return self.entries[at[np.concatenate(([True], np.diff(owner) > 0))]]


def _guess(items: Items) -> tuple[float, float]:
    """Unit prices between which the one that clears mostly lies: that without pairs, and twice it."""
    low, high = 0.0, float((items.gains / np.maximum(items.units, 1)).max())
    solos = sum(item.pair is None for item in items.all)
    if not solos:
        return low, high
    members = np.array([item.members for item in items.all[:solos]], dtype=np.int64)
    ends = int(items.begins[solos])
    gains, units, begins = items.gains[:ends], items.units[:ends], items.begins[:solos]
    owner = items.owner[:ends]
    for _ in range(HALVINGS):
        price = (low + high) / 2
        worth = gains - price * units
        best = np.maximum.reduceat(worth, begins)
        wanted = np.maximum.reduceat(np.where(worth == best[owner], units, 0), begins)
        if (members * np.where(best > 0, wanted, 0)).sum() > items.limits[0]:
            low = price
        else:
            high = price
    return low, 2.0 * high


def price(items: Items) -> Prices:
    """Prices at which the relaxation clears."""
    if not items.all:
        return Prices(items.base, np.empty(0), np.empty(0), np.zeros(len(items.limits)))
    master, hull = _Master(items), _Hull.of(items)
    least = NO_LOSS * float(items.gains.max())
    members = np.array([item.members for item in items.all], dtype=np.float64)
    columns = hull.between(*_guess(items))
    for _ in range(ROUNDS):
        prices, x = master.solve(columns)
        loss = master.loss(prices)
        lowest = np.minimum.reduceat(loss, items.begins[:-1])
        gained = float((members * np.maximum(-lowest, 0.0)).sum())
        bound = items.base + float(prices @ items.limits) + gained
        new = hull.lowest(loss)
        new = np.setdiff1d(new[loss[new] < -least], columns, assume_unique=True)
        if not len(new):
            break
        columns = np.union1d(columns, new)
    chosen = np.bincount(items.owner[columns], weights=x, minlength=len(items.all)).astype(np.float64)
    # Prices raised so that nothing gains: what an item gained is paid by it alone.
    loss += np.maximum(-lowest, 0.0)[items.owner]
    return Prices(bound, loss, chosen, prices)


def rounded(items: Items, prices: Prices) -> Choice:
    """Items as often as the relaxation has them, rounded up where they fit, on the units that are best for them.

    A few more that lose little may take units that rounding has left over.
    """
    if not items.all:
        return []
    whole = np.floor(prices.chosen + NEAR)
    rest = np.where(prices.chosen - whole > NEAR, prices.chosen - whole, 0.0)
    lowest = np.minimum.reduceat(prices.loss, items.begins[:-1])
    order = [(i, int(whole[i])) for i in np.flatnonzero(whole).tolist()]
    order += [(i, 1) for i in np.argsort(-rest, kind="stable").tolist() if rest[i]]
    order += [(i, EXTRA) for i in np.argsort(lowest, kind="stable").tolist()[: EXTRA * EXTRA]]
    left = items.limits.tolist()
    active: list[int] = []
    for i, times in order:
        rows = items.all[i].rows
        for _ in range(times):
            if any(left[row] < rows.count(row) for row in rows):
                break
            for row in rows:
                left[row] -= 1
            active.append(i)
    return items.shared_out(active)
