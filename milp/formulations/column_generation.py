"""Bound and start for sharing problems of any size without a MILP: column generation over items (docs/model.md).

The linear relaxation over items (`items`) has a dual price for a unit, for a member of each class, and for each row of
a present pair. At any prices an item on u units loses what its rows and units cost, less its gain: its reduced cost. No
choice is worth more than all rows at their prices, and one that has an item on u units is worth less by that item's
loss. Few columns matter: those that gain at the present prices are added until none does.

`search_gap` closes the gap that is left by dynamic programming over labels with dominance. A choice of items loses the
reduced costs of its items at the dual prices, and the price of the rows and units that it leaves unused; the best
choice loses least. Stages add one item after the other. Of labels that leave the same units and rows to later items
only the one of least loss is kept, and only if its loss is within a limit. What no later item can use is lost at once.
The limit begins low and rises until a choice is found, so that few entries are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from bft.milp.formulations.items import Choice, Items
from bft.milp.formulations.linear import Nonsense, power_of_two_scale
from bft.milp.jobs import FloatArray, IntArray
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


# Entries that are looked at: those of least loss, then more of them.
ENTRY_COUNTS = (100, 200, 400, 800)
# With more labels than this a MILP is faster.
MAX_LABELS = 300_000
# Bits of the whole number that says what a label leaves to later items.
KEY_BITS = 63


def search_gap(
    items: Items, relaxation: Relaxation, max_loss: float
) -> tuple[float, Choice]:
    """Find the choice that loses least.

    Parameters
    ----------
    items
        The items of a problem.
    relaxation
        Their relaxation.
    max_loss
        Choices that lose more are of no interest.

    Returns
    -------
    float, Choice
        A lower bound, up to `max_loss`, of what every choice loses, and the choice that loses just that; it is empty
        where none was found.
    """
    losses = np.sort(relaxation.loss[relaxation.loss <= max_loss])
    shown = 0.0
    for count in ENTRY_COUNTS:
        limit = float(losses[count]) if count < len(losses) else max_loss
        found = least_loss(items, relaxation, limit)
        if found is None:
            break
        shown, choice = found
        if choice or limit == max_loss:
            return shown, choice
    return shown, ()


def least_loss(
    items: Items, relaxation: Relaxation, max_loss: float
) -> tuple[float, Choice] | None:
    """Return the choice that loses least, if one loses at most `max_loss`, else `max_loss` and nothing.

    None says that there were too many labels.
    """
    stages = _stages(items, relaxation, max_loss)
    used = {row for stage in stages for row in stage.demand}
    unused = [row for row in range(len(items.limits)) if row not in used]
    lost = float(relaxation.row_prices[unused] @ items.limits[unused])
    labels = _Labels(items, relaxation, max_loss, lost)
    for stage in stages:
        if not labels.open_rows(stage):
            return None
        labels.extend(stage)
        labels.close_rows(stage)
        if labels.count > MAX_LABELS:
            return None
    return labels.best()


@dataclass(frozen=True, slots=True)
class _Stage:
    """An item with the entries that are within the limit.

    Parameters
    ----------
    entries, units
        Positions of its entries in `Items.gains`, and their units.
    max_times
        The most often that it can be chosen.
    demand
        How much of each of its rows it takes once; of row 0, the units, at most.
    use_from_here, use_later
        How much of these rows this and later stages can use, and later stages alone.
    """

    entries: IntArray
    units: IntArray
    max_times: int
    demand: Mapping[int, int]
    use_from_here: Mapping[int, int]
    use_later: Mapping[int, int]


class _RowUse:
    """How much of each row the stages from here on can use, where stages are added from the last to the first.

    Items with the same first row exclude each other: together they are chosen at most as often as that row allows.
    """

    def __init__(self, limits: IntArray) -> None:
        self._limits = limits
        self._first_row: int | None = None
        self._later: defaultdict[int, int] = defaultdict(int)
        # How often the items with this first row can be chosen that take some of a row, and the most they take at once.
        self._group: dict[int, tuple[int, int]] = {}

    def of(self, row: int) -> int:
        """Return how much of a row the stages added so far can use."""
        times, amount = self._group.get(row, (0, 0))
        if self._first_row is not None:
            times = min(times, int(self._limits[self._first_row]))
        return self._later[row] + amount * times

    def add(self, demand: Mapping[int, int], max_times: int) -> None:
        """Add a stage with the first row that has begun."""
        for row, amount in demand.items():
            times, max_amount = self._group.get(row, (0, 0))
            self._group[row] = times + max_times, max(max_amount, amount)

    def begin(self, first_row: int) -> None:
        """Begin the stages of the items with this first row, unless they have begun."""
        if first_row == self._first_row:
            return
        for row in self._group:
            self._later[row] = self.of(row)
        self._first_row = first_row
        self._group = {}


def _stages(items: Items, relaxation: Relaxation, max_loss: float) -> list[_Stage]:
    """Return the stages of the items with entries within the limit; those with rows in common are close."""
    entries = np.flatnonzero(relaxation.loss <= max_loss)
    owners, begins = np.unique(items.owner[entries], return_index=True)
    entries_of = np.split(entries, begins[1:])
    position = _row_positions(items, owners)
    rows_of = [items.all[owner].rows for owner in owners.tolist()]
    positions_of = [sorted(position[row] for row in rows) for rows in rows_of]
    use = _RowUse(items.limits)
    stages: list[_Stage] = []
    for index in sorted(range(len(owners)), key=positions_of.__getitem__, reverse=True):
        mine = entries_of[index]
        rows = rows_of[index]
        units = items.units[mine]
        max_times = min(
            items.all[int(owners[index])].members, int(items.limits[0] // units.min())
        )
        min_loss = float(relaxation.loss[mine].min())
        if max_times * min_loss > max_loss:
            max_times = int(max_loss // min_loss)
        demand = {0: int(units.max())}
        for row in rows:
            demand[row] = rows.count(row)
        first_row = min(rows, key=position.__getitem__)
        use.begin(first_row)
        use_later = {row: use.of(row) for row in demand}
        use.add(demand, max_times)
        use_from_here = {row: use.of(row) for row in demand}
        stages.append(_Stage(mine, units, max_times, demand, use_from_here, use_later))
    stages.reverse()
    return stages


def _row_positions(items: Items, owners: IntArray) -> dict[int, int]:
    """Return an order of rows in which those that items have in common are close; those of many members come last.

    The rows of one member are in the order of reverse Cuthill and McKee, where rows of one item are neighbours.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    rows_of = [items.all[owner].rows for owner in owners.tolist()]
    used = sorted({row for rows in rows_of for row in rows})
    single = [row for row in used if items.limits[row] == 1]
    many = [row for row in used if items.limits[row] != 1]
    number = {row: k for k, row in enumerate(single)}
    links: list[tuple[int, int]] = []
    for all_rows in rows_of:
        linked = [number[row] for row in all_rows if row in number]
        links += [(a, b) for a in linked for b in linked]
    if links:
        ends = np.array(links, dtype=np.int32).T
        shape = (len(single), len(single))
        graph = csr_array((np.ones(len(links)), (ends[0], ends[1])), shape=shape)
        order = reverse_cuthill_mckee(graph, symmetric_mode=True)
        single = [single[k] for k in order.tolist()]
    return {row: position for position, row in enumerate([*single, *many])}


class _Labels:
    """The labels of the stages so far: what each leaves of units and rows, and what it loses.

    Attributes
    ----------
    count
        Labels made so far.
    """

    def __init__(
        self, items: Items, relaxation: Relaxation, max_loss: float, lost: float
    ) -> None:
        self.count = 1
        self._items = items
        self._relaxation = relaxation
        self._max_loss = max_loss
        # What is left of a row is in some bits of the key: the first of them, and a mask.
        self._bits: dict[int, tuple[int, int]] = {}
        self._key = np.zeros(1, dtype=np.int64)
        self._loss = np.array([lost])
        self._label = np.zeros(1, dtype=np.int64)
        # By number of a label: the label that it came from, and the entry that was added.
        self._predecessor = [np.zeros(1, dtype=np.int64)]
        self._entry = [np.full(1, -1, dtype=np.int64)]

    def open_rows(self, stage: _Stage) -> bool:
        """Add rows that no earlier stage uses to the key; return False where it has too few bits."""
        for row, use in stage.use_from_here.items():
            if row in self._bits:
                continue
            limit = int(self._items.limits[row])
            left = min(limit, use)
            shift = self._free_bits(left.bit_length())
            if shift is None:
                return False
            self._bits[row] = shift, (1 << left.bit_length()) - 1
            self._key = self._key + (left << shift)
            self._loss = self._loss + float(self._relaxation.row_prices[row]) * (
                limit - left
            )
        return True

    def _free_bits(self, length: int) -> int | None:
        """Return the first of so many free bits of the key, None if there are none."""
        taken = sum(mask << shift for shift, mask in self._bits.values())
        mask = (1 << length) - 1
        for shift in range(KEY_BITS - length + 1):
            if not taken >> shift & mask:
                return shift
        return None

    def extend(self, stage: _Stage) -> None:
        """Add the labels with the stage's item, once or more often."""
        key, loss, label = self._key, self._loss, self._label
        keys, losses, labels = [key], [loss], [label]
        unit_shift, unit_mask = self._bits[0]
        unit_keys = stage.units << unit_shift
        entry_loss = self._relaxation.loss[stage.entries]
        row_keys = sum(
            amount << self._bits[row][0] for row, amount in stage.demand.items() if row
        )
        for _ in range(stage.max_times):
            fits = np.ones(len(key), dtype=np.bool_)
            for row, amount in stage.demand.items():
                shift, mask = self._bits[row]
                fits &= (key >> shift & mask) >= (amount if row else 0)
            old = np.flatnonzero(fits)
            enough = (key[old] >> unit_shift & unit_mask)[:, None] >= stage.units
            within = loss[old][:, None] + entry_loss <= self._max_loss
            extended, added = np.nonzero(enough & within)
            if not len(extended):
                break
            old = old[extended]
            key = key[old] - row_keys - unit_keys[added]
            loss = loss[old] + entry_loss[added]
            best = _undominated(key, loss)
            key, loss = key[best], loss[best]
            self._predecessor.append(label[old[best]])
            self._entry.append(stage.entries[added[best]])
            label = self.count + np.arange(len(best))
            self.count += len(best)
            keys.append(key)
            losses.append(loss)
            labels.append(label)
            if self.count > MAX_LABELS:
                return
        self._key = np.concatenate(keys)
        self._loss = np.concatenate(losses)
        self._label = np.concatenate(labels)

    def close_rows(self, stage: _Stage) -> None:
        """Charge what no later stage can use, and drop the labels that lose too much or are dominated."""
        for row, use in stage.use_later.items():
            shift, mask = self._bits[row]
            unused = np.maximum((self._key >> shift & mask) - use, 0)
            self._key = self._key - (unused << shift)
            self._loss = self._loss + float(self._relaxation.row_prices[row]) * unused
            if not use:
                del self._bits[row]
        kept = np.flatnonzero(self._loss <= self._max_loss)
        kept = kept[_undominated(self._key[kept], self._loss[kept])]
        self._key = self._key[kept]
        self._loss = self._loss[kept]
        self._label = self._label[kept]

    def best(self) -> tuple[float, Choice]:
        """Return the loss of the best choice, and its items with their units, after the last stage."""
        # All rows are closed, so that at most one label is left.
        if not len(self._label) or self._loss[0] > self._max_loss:
            return self._max_loss, ()
        predecessor = np.concatenate(self._predecessor)
        entries = np.concatenate(self._entry)
        owner, units = self._items.owner, self._items.units
        label, choice = int(self._label[0]), []
        while entries[label] >= 0:
            entry = entries[label]
            choice.append((int(owner[entry]), int(units[entry])))
            label = int(predecessor[label])
        return float(self._loss[0]), tuple(choice)


def _undominated(key: IntArray, loss: FloatArray) -> IntArray:
    """Return the position of the least loss for each key."""
    order = np.lexsort((loss, key))
    if not len(order):
        return order
    ordered = key[order]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    return order[is_first]
