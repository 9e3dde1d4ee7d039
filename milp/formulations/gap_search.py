"""What prices leave open, searched without a MILP: few items are left, and those that exclude each other fewer still.

A choice loses what its items lose at their prices, and what rows and units cost that are left over; the best loses
least. Items are gone through one after the other. Of ways that leave as much of units and rows to later items only the
one that loses least goes on, and only if it loses no more than a limit. What no later item can use is lost at once. The
limit begins low and rises until a way is found, so that few entries have to be looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bft.milp.formulations.column_generation import Prices
from bft.milp.formulations.items import Choice, Items
from bft.milp.problem import FloatArray, IntArray

# Entries looked at: those that lose least, then more of them.
ENTRIES = (100, 200, 400, 800)
# Ways looked at, beyond which a MILP is the better way.
MOST = 300_000
# Bits of a whole number that says what a way leaves.
BITS = 63


def search(items: Items, prices: Prices, most: float) -> tuple[float, Choice]:
    """What every choice loses at least, as far as shown up to `most`, and the one that loses just that, if found."""
    losses = np.sort(prices.loss[prices.loss <= most])
    shown = 0.0
    for entries in ENTRIES:
        limit = float(losses[entries]) if entries < len(losses) else most
        found = least_loss(items, prices, limit)
        if found is None:
            break
        shown, choice = found
        if choice or limit == most:
            return shown, choice
    return shown, ()


def least_loss(items: Items, prices: Prices, most: float) -> tuple[float, Choice] | None:
    """The choice that loses least, if one loses at most `most`: else (most, nothing). None: there are too many ways."""
    steps = _steps(items, prices, np.flatnonzero(prices.loss <= most), most)
    touched = {row for step in steps for row in step.takes}
    idle = [row for row in range(len(items.limits)) if row not in touched]
    ways = _Ways(items, prices, most, float(prices.rows[idle] @ items.limits[idle]))
    for step in steps:
        if not ways.enter(step):
            return None
        ways.choose(step)
        ways.leave(step)
        if ways.made > MOST:
            return None
    return ways.best()


@dataclass(frozen=True, slots=True)
class _Step:
    """An item with entries that are open.

    Parameters
    ----------
    entries, units
        Of the item, in `Items.gains`, and their units.
    times
        As often as it can be chosen.
    takes
        How much of each of its rows it takes; of row 0, the units, at most.
    before, after
        How much of these rows it and later items can use, and later ones.
    """

    entries: IntArray
    units: IntArray
    times: int
    takes: Mapping[int, int]
    before: Mapping[int, int]
    after: Mapping[int, int]


def _steps(items: Items, prices: Prices, entries: IntArray, most: float) -> list[_Step]:
    """The items with these entries, those next to each other that have rows in common."""
    owners, begins = np.unique(items.owner[entries], return_index=True)
    position = _positions(items, owners)

    def place(at: int) -> list[int]:
        return sorted(position[row] for row in items.all[int(owners[at])].rows)

    parts = np.split(entries, begins[1:])
    steps: list[_Step] = []
    # Items with the same first row exclude each other: together they are chosen at most as often as it allows.
    first: int | None = None
    later: defaultdict[int, int] = defaultdict(int)
    here: dict[int, tuple[int, int]] = {}

    def use(row: int) -> int:
        times, take = here.get(row, (0, 0))
        return later[row] + take * (times if first is None else min(times, int(items.limits[first])))

    for at in sorted(range(len(owners)), key=place, reverse=True):
        rows, part = items.all[int(owners[at])].rows, parts[at]
        units = items.units[part]
        times = min(items.all[int(owners[at])].members, int(items.limits[0] // units.min()))
        if times * float(prices.loss[part].min()) > most:
            times = int(most // float(prices.loss[part].min()))
        mine = min(rows, key=position.__getitem__)
        if mine != first:
            for row in here:
                later[row] = use(row)
            first, here = mine, {}
        takes = {0: int(units.max()), **{row: rows.count(row) for row in rows}}
        after = {row: use(row) for row in takes}
        for row, take in takes.items():
            known = here.get(row, (0, 0))
            here[row] = known[0] + times, max(known[1], take)
        steps.append(_Step(part, units, times, takes, {row: use(row) for row in takes}, after))
    return steps[::-1]


def _positions(items: Items, owners: IntArray) -> dict[int, int]:
    """An order of the rows in which those that items have in common are close; those of many members come last."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    used = sorted({row for i in owners.tolist() for row in items.all[i].rows})
    few = [row for row in used if items.limits[row] == 1]
    number = {row: k for k, row in enumerate(few)}
    links = [
        (number[a], number[b])
        for i in owners.tolist()
        for a in items.all[i].rows
        for b in items.all[i].rows
        if a in number and b in number
    ]
    order = few
    if links:
        at = np.array(links, dtype=np.int32).T
        graph = csr_array((np.ones(len(links)), (at[0], at[1])), shape=(len(few), len(few)))
        order = [few[k] for k in reverse_cuthill_mckee(graph, symmetric_mode=True).tolist()]
    return {row: k for k, row in enumerate([*order, *(row for row in used if row not in number)])}


class _Ways:
    """Ways to choose items so far: what they leave of units and rows, and the least loss for each.

    Attributes
    ----------
    made
        Ways looked at so far.
    """

    def __init__(self, items: Items, prices: Prices, most: float, lost: float) -> None:
        self._items, self._prices, self._most = items, prices, most
        # What is left of a row is in some bits of the key: where they begin, and a mask. A way came from another one
        # by an entry.
        self._at: dict[int, tuple[int, int]] = {}
        self._key, self._loss = np.zeros(1, dtype=np.int64), np.array([lost])
        self._way = np.zeros(1, dtype=np.int64)
        self._from, self._by = [np.zeros(1, dtype=np.int64)], [np.full(1, -1, dtype=np.int64)]
        self.made = 1

    def enter(self, step: _Step) -> bool:
        """Make room in the key for rows that no earlier item is in; False if there is none."""
        for row, use in step.before.items():
            if row in self._at:
                continue
            full = int(self._items.limits[row])
            left = min(full, use)
            taken = sum(mask << shift for shift, mask in self._at.values())
            mask = (1 << left.bit_length()) - 1
            shift = next((n for n in range(BITS - left.bit_length() + 1) if not taken >> n & mask), None)
            if shift is None:
                return False
            self._at[row] = shift, mask
            self._key = self._key + (left << shift)
            self._loss = self._loss + float(self._prices.rows[row]) * (full - left)
        return True

    def choose(self, step: _Step) -> None:
        """Add the ways with this item, once or more often."""
        key, loss, way = self._key, self._loss, self._way
        shift, mask = self._at[0]
        units, lost = step.units << shift, self._prices.loss[step.entries]
        found = [(key, loss, way)]
        for _ in range(step.times):
            fits = np.ones(len(key), dtype=np.bool_)
            for row, take in step.takes.items():
                if row:
                    begin, bits = self._at[row]
                    fits &= (key >> begin & bits) >= take
            old = np.flatnonzero(fits)
            room = (key[old] >> shift & mask)[:, None] >= step.units
            who, which = np.nonzero(room & (loss[old][:, None] + lost <= self._most))
            if not len(who):
                break
            taken = sum(take << self._at[row][0] for row, take in step.takes.items() if row)
            old = old[who]
            key, loss = key[old] - taken - units[which], loss[old] + lost[which]
            pick = _least(key, loss)
            key, loss = key[pick], loss[pick]
            self._from.append(way[old[pick]])
            self._by.append(step.entries[which[pick]])
            way = self.made + np.arange(len(pick))
            self.made += len(pick)
            found.append((key, loss, way))
            if self.made > MOST:
                return
        self._key, self._loss, self._way = (np.concatenate(each) for each in zip(*found, strict=True))

    def leave(self, step: _Step) -> None:
        """Drop what no later item can use, at its price, and then the ways that lose too much or more than a like."""
        for row, use in step.after.items():
            shift, mask = self._at[row]
            unused = np.maximum((self._key >> shift & mask) - use, 0)
            self._key = self._key - (unused << shift)
            self._loss = self._loss + float(self._prices.rows[row]) * unused
            if not use:
                del self._at[row]
        pick = np.flatnonzero(self._loss <= self._most)
        pick = pick[_least(self._key[pick], self._loss[pick])]
        self._key, self._loss, self._way = self._key[pick], self._loss[pick], self._way[pick]

    def best(self) -> tuple[float, Choice]:
        """The loss of the best, and its items with their units; all bits have gone, so at most one is left."""
        if not len(self._way) or self._loss[0] > self._most:
            return self._most, ()
        return float(self._loss[0]), tuple(self._chosen(int(self._way[0])))

    def _chosen(self, way: int) -> Iterator[tuple[int, int]]:
        came, by = np.concatenate(self._from), np.concatenate(self._by)
        while by[way] >= 0:
            yield int(self._items.owner[by[way]]), int(self._items.units[by[way]])
            way = int(came[way])


def _least(key: IntArray, loss: FloatArray) -> IntArray:
    """Of each key the place of the least loss."""
    order = np.lexsort((loss, key))
    if not len(order):
        return order
    arranged = key[order]
    return order[np.concatenate(([True], arranged[1:] != arranged[:-1]))]
