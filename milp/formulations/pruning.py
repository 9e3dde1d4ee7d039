"""Which counts an optimum may need; others are not posed to a solver (docs/model.md).

Let there be tables v_c, m_c members of class c, and a price p per unit. Then

    D(p) = sum over c of m_c · max_n (v_c(n) - p·n)  +  p·N

is at least the value of any allocation. An allocation has a value of at most D(p) minus the sum of its members' losses
max_m (v_c(m) - p·m) - (v_c(n) - p·n). So the losses of an optimum add up to at most D(p) minus the value of some
allocation. (Known as variable fixing by reduced costs: Nemhauser and Wolsey 1988, II.5.2.) In the same way the units
that members have above their smallest counts add up to at most what is left when all have their smallest. Both say
which counts are in no optimum, and how many members may have another count than the one that costs nothing: of members
who are nearly alike only that many are needed (`_Market.within`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bft.milp.problem import BoolArray, FloatArray, IntArray
from bft.milp.tolerances import EQUAL_GAINS, PRUNING_SUMS

# Halvings of the price interval.
ROUNDS = 40


def prune(
    tables: Sequence[FloatArray], sizes: IntArray, units: int
) -> list[FloatArray]:
    """The tables of the classes, -inf at counts that are not needed; at least one optimum remains.

    Parameters
    ----------
    tables
        v_c(n) of each class, -inf where not allowed, finite at 0.
    sizes
        Members of each class.
    units
        Units to give.
    """
    market, before = _Market.of(tables, sizes, units), 0
    while len(market.counts) != before:
        before = len(market.counts)
        market = market.by_price().by_units()
    return market.tables([len(table) for table in tables])


@dataclass(frozen=True, eq=False)
class _Market:
    """Classes of jobs that buy units: the counts that each may have, ascending, and their values, all in one array.

    `owner` is the class of each entry.
    """

    sizes: IntArray
    units: int
    owner: IntArray
    counts: IntArray
    values: FloatArray

    @classmethod
    def of(cls, tables: Sequence[FloatArray], sizes: IntArray, units: int) -> _Market:
        owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        counts = np.concatenate([np.arange(len(table)) for table in tables])
        whole = cls(sizes, units, owner, counts, np.concatenate(tables))
        return whole.only(whole.values > -np.inf)

    def only(self, chosen: BoolArray) -> _Market:
        """The market with these counts only."""
        return replace(
            self,
            owner=self.owner[chosen],
            counts=self.counts[chosen],
            values=self.values[chosen],
        )

    def tables(self, lengths: Sequence[int]) -> list[FloatArray]:
        """The tables of the classes, -inf at other counts."""
        ends = np.cumsum(lengths)
        begins = ends - lengths
        values = np.full(ends[-1], -np.inf)
        values[begins[self.owner] + self.counts] = self.values
        return np.split(values, begins[1:])

    @cached_property
    def begins(self) -> IntArray:
        """Where the entries of each class begin."""
        return np.flatnonzero(np.diff(self.owner, prepend=-1))

    def by_price(self) -> _Market:
        """Without what loses more than the difference of the bound and the value of an allocation."""
        price, fewest = self.clear()
        worth, best = self.worth(price)
        bound = float((self.sizes * best).sum()) + price * self.units
        # Relative to the values themselves: at the price of a straight curve the best differences are pure rounding.
        slack = PRUNING_SUMS * float(
            (self.sizes * np.maximum.reduceat(np.abs(self.values), self.begins)).sum()
        )
        loss = best[self.owner] - worth
        return self.within(
            loss, bound - self.fill(fewest) + slack, self._first(loss == 0.0)
        )

    def by_units(self) -> _Market:
        """Without what takes more units than there are if everybody else has their smallest count."""
        fewest = self.counts[self.begins]
        return self.within(
            self.counts - fewest[self.owner],
            self.units - int((self.sizes * fewest).sum()),
            self.begins,
        )

    def within(
        self, costs: FloatArray | IntArray, budget: float, free: IntArray
    ) -> _Market:
        """Without what costs more than all together may cost, and without those whom others can stand in for.

        `free` is an entry of each class that costs nothing. Let k members at most be able to afford another one. Then
        an optimum exists in which a step of d units is taken only by the k members who gain most by it: of these, one
        at least is at its free count if somebody else takes the step, and can take it instead.
        """
        taken = np.zeros(len(costs), dtype=bool)
        taken[free] = True
        least = np.minimum.reduceat(np.where(taken, np.inf, costs), self.begins)
        movers = np.count_nonzero(
            np.cumsum(np.sort(np.repeat(least, self.sizes))) <= budget
        )
        steps = self.counts - self.counts[free][self.owner]
        gains = self.values - self.values[free][self.owner]
        moves = np.flatnonzero((costs <= budget) & ~taken)
        moves = moves[np.lexsort((-gains[moves], steps[moves]))]
        members = self.sizes[self.owner[moves]]
        ahead = np.cumsum(members) - members
        ahead -= ahead[
            np.searchsorted(steps[moves], steps[moves])
        ]  # only those who take the same step
        taken[moves[ahead < movers]] = True
        return self.only(taken)

    def worth(self, price: float) -> tuple[FloatArray, FloatArray]:
        """Value minus price·n at every count, and the best of each class."""
        worth = self.values - price * self.counts
        return worth, np.maximum.reduceat(worth, self.begins)

    def clear(self) -> tuple[float, IntArray]:
        """A price near the best at which the units suffice, and where the smallest count is that each member wants."""
        steps, rise = (
            array - array[self.begins][self.owner]
            for array in (self.counts, self.values)
        )
        low, high = (
            0.0,
            2.0
            * max(float((rise[steps > 0] / steps[steps > 0]).max(initial=0.0)), 0.0),
        )
        price = 0.0
        for _ in range(ROUNDS):
            at_best = self._at_best(price)
            if (self.sizes * self.counts[self._first(at_best)]).sum() > self.units:
                low = price
            else:
                high = price
                if (
                    price == 0.0
                    or (self.sizes * self._most(at_best)).sum() >= self.units
                ):
                    break
            price = (low + high) / 2
        return high, self._first(self._at_best(high))

    def fill(self, chosen: IntArray) -> float:
        """The value of an allocation: each member has the count chosen, and units left over go where they gain most.

        Classes come in the order of their best gain per unit; a member grows as long as it gains nearly as much.
        """
        counts = self.counts[chosen]
        left = self.units - int((self.sizes * counts).sum())
        value = float((self.sizes * self.values[chosen]).sum())
        steps = self.counts - counts[self.owner]
        gains = np.full(len(steps), -np.inf)
        np.divide(
            self.values - self.values[chosen][self.owner],
            steps,
            out=gains,
            where=(steps > 0) & (steps <= left),
        )
        best = np.maximum.reduceat(gains, self.begins)
        for c in np.argsort(-best, kind="stable").tolist():
            if left == 0 or not best[c] > 0:
                break
            mine = slice(
                self.begins[c], self.begins[c + 1] if c + 1 < len(self.begins) else None
            )
            near = np.flatnonzero(gains[mine] >= best[c] * (1 - EQUAL_GAINS))
            grown, members = steps[mine][near], int(self.sizes[c])
            while members and left >= grown[0]:
                last = int(np.searchsorted(grown, left, side="right")) - 1
                times = min(members, left // int(grown[last]))
                members -= times
                left -= times * int(grown[last])
                value += times * float(
                    self.values[self.begins[c] + near[last]] - self.values[chosen[c]]
                )
        return value

    def _at_best(self, price: float) -> BoolArray:
        worth, best = self.worth(price)
        return np.asarray(worth == best[self.owner])

    def _first(self, at_best: BoolArray) -> IntArray:
        return np.minimum.reduceat(
            np.where(at_best, np.arange(len(self.counts)), len(self.counts)),
            self.begins,
        )

    def _most(self, at_best: BoolArray) -> IntArray:
        return np.maximum.reduceat(np.where(at_best, self.counts, 0), self.begins)
