"""Which counts an optimum can contain, proven by a price per unit; others are not posed to a solver (docs/model.md).

Let there be tables v_c, m_c members of class c, and a price p per unit. Then

    D(p) = sum over c of m_c · max_n (v_c(n) - p·n)  +  p·N

is at least the value of any allocation. An allocation in which a member has n units has a value of at most D(p) minus
the loss max_m (v_c(m) - p·m) - (v_c(n) - p·n). So a count is in no optimum if its loss exceeds D(p) minus the value of
some allocation. (Known as variable fixing by reduced costs: Nemhauser and Wolsey 1988, II.5.2.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bft.milp.problem import BoolArray, FloatArray, IntArray

# Halvings of the price interval.
ROUNDS = 40
# Gains per unit that differ by less than this part belong to one slope of a curve.
NEAR = 1e-9
# Sums of values may differ by this part of the values through rounding.
NOISE = 1e-10


def prune(tables: Sequence[FloatArray], sizes: IntArray, units: int) -> list[FloatArray]:
    """The tables of the classes, -inf at counts that are in no optimum; all optima remain.

    Parameters
    ----------
    tables
        v_c(n) of each class, -inf where not allowed, finite at 0.
    sizes
        Members of each class.
    units
        Units to give.
    """
    market = _Market(tables, sizes, units)
    price, fewest = market.clear()
    worth, best = market.worth(price)
    bound = float((sizes * best).sum()) + price * units
    value = market.fill(fewest)
    # Relative to the values themselves: at the price of a straight curve the best differences are pure rounding.
    size = np.maximum.reduceat(np.where(np.isfinite(market.values), np.abs(market.values), 0.0), market.begins)
    slack = NOISE * float((sizes * size).sum())
    within = worth >= best[market.owner] - (bound - value + slack)
    return np.split(np.where(within, market.values, -np.inf), market.begins[1:])


class _Market:
    """Classes of jobs that buy units, all their tables in one array."""

    def __init__(self, tables: Sequence[FloatArray], sizes: IntArray, units: int) -> None:
        lengths = np.array([len(table) for table in tables], dtype=np.int64)
        self.sizes, self.units = sizes, units
        self.values = np.concatenate(tables)
        self.begins = np.cumsum(lengths) - lengths
        self.owner = np.repeat(np.arange(len(tables)), lengths)
        self.counts = np.arange(len(self.values)) - self.begins[self.owner]

    def worth(self, price: float) -> tuple[FloatArray, FloatArray]:
        """Value minus price·n at every count, and the best of each class."""
        worth = self.values - price * self.counts
        return worth, np.maximum.reduceat(worth, self.begins)

    def clear(self) -> tuple[float, IntArray]:
        """A price near the best at which the units suffice, and the smallest count that each member then wants."""
        rise = (self.values - self.values[self.begins][self.owner])[self.counts > 0]
        low, high = 0.0, 2.0 * max(float((rise / self.counts[self.counts > 0]).max(initial=0.0)), 0.0)
        price = 0.0
        for _ in range(ROUNDS):
            at_best = self._at_best(price)
            if (self.sizes * self._least(at_best)).sum() > self.units:
                low = price
            else:
                high = price
                if price == 0.0 or (self.sizes * self._most(at_best)).sum() >= self.units:
                    break
            price = (low + high) / 2
        return high, self._least(self._at_best(high))

    def fill(self, counts: IntArray) -> float:
        """The value of an allocation: each member has `counts`, and units left over go where they gain most.

        Classes come in the order of their best gain per unit; a member grows as long as it gains nearly as much.
        """
        chosen = self.begins + counts
        left = self.units - int((self.sizes * counts).sum())
        value = float((self.sizes * self.values[chosen]).sum())
        steps = self.counts - counts[self.owner]
        gains = np.full(len(steps), -np.inf)
        np.divide(self.values - self.values[chosen][self.owner], steps, out=gains, where=(steps > 0) & (steps <= left))
        best = np.maximum.reduceat(gains, self.begins)
        for c in np.argsort(-best, kind="stable").tolist():
            if left == 0 or not best[c] > 0:
                break
            mine = slice(self.begins[c], self.begins[c + 1] if c + 1 < len(self.begins) else None)
            near = np.flatnonzero(gains[mine] >= best[c] * (1 - NEAR))
            grown, members = steps[mine][near], int(self.sizes[c])
            while members and left >= grown[0]:
                last = int(np.searchsorted(grown, left, side="right")) - 1
                times = min(members, left // int(grown[last]))
                members -= times
                left -= times * int(grown[last])
                value += times * float(self.values[self.begins[c] + near[last]] - self.values[chosen[c]])
        return value

    def _at_best(self, price: float) -> BoolArray:
        worth, best = self.worth(price)
        return np.asarray(worth == best[self.owner])

    def _least(self, at_best: BoolArray) -> IntArray:
        return np.minimum.reduceat(np.where(at_best, self.counts, len(self.counts)), self.begins)

    def _most(self, at_best: BoolArray) -> IntArray:
        return np.maximum.reduceat(np.where(at_best, self.counts, 0), self.begins)
