"""What prices leave open, searched without a MILP: few items are left, and those that exclude each other fewer still.

A choice loses what its items lose at their prices, and what rows and units cost that are left over; the best loses
least. Once a choice is known nothing that loses more need be looked at. What is left falls into groups of items that
share rows: every way to choose in a group, by the units it takes, and then the groups one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from bft.milp.formulations.grouped import Choice, Items
from bft.milp.formulations.prices import Prices

# Entries left open, and ways to choose in a group, beyond which a MILP is the better way.
ENTRIES = 300
MOST = 1_000

Ways = dict[tuple[tuple[int, ...], int], tuple[float, tuple[tuple[int, int], ...]]]
"""Least loss and its choice, by what is left of the rows in hand and the units taken."""


def least_loss(items: Items, prices: Prices, most: float) -> tuple[float, Choice] | None:
    """The choice that loses least, if one loses at most `most`: else (most, nothing). None: there are too many ways."""
    points: dict[int, list[tuple[int, float]]] = defaultdict(list)
    entries = np.flatnonzero(prices.loss <= most).tolist()
    if len(entries) > ENTRIES:
        return None
    for at in entries:
        points[int(items.owner[at])].append((int(items.units[at]), float(prices.loss[at])))
    touched = {row for i in points for row in items.all[i].rows}
    idle = [row for row in range(1, len(items.limits)) if row not in touched]
    all_ways: dict[int, tuple[float, tuple[tuple[int, int], ...]]] = {
        0: (float(prices.rows[idle] @ items.limits[idle]), ())
    }
    for group in _groups(items, points):
        ways = _ways(items, prices, group, points, most)
        if ways is None or len(ways) * len(all_ways) > MOST**2:
            return None
        together: dict[int, tuple[float, tuple[tuple[int, int], ...]]] = {}
        for taken, (lost, choice) in all_ways.items():
            for units, (loss, mine) in ways.items():
                total = lost + loss
                if total <= most and taken + units <= items.limits[0]:
                    known = together.get(taken + units)
                    if known is None or total < known[0]:
                        together[taken + units] = (total, choice + mine)
        all_ways = together
    idle_price, units = float(prices.rows[0]), int(items.limits[0])
    found = min(
        ((lost + idle_price * (units - taken), choice) for taken, (lost, choice) in all_ways.items()), default=None
    )
    return (most, ()) if found is None or found[0] > most else found


def _groups(items: Items, points: Iterable[int]) -> list[list[int]]:
    """Items that have rows in common, directly or by others; in order of their rows."""
    parent: dict[int, int] = {}

    def root(row: int) -> int:
        while parent.setdefault(row, row) != row:
            parent[row] = row = parent[parent[row]]
        return row

    for i in points:
        rows = items.all[i].rows
        for row in rows[1:]:
            parent[root(row)] = root(rows[0])
    groups: dict[int, list[int]] = defaultdict(list)
    for i in sorted(points, key=lambda i: (items.all[i].rows, i)):
        groups[root(items.all[i].rows[0])].append(i)
    return list(groups.values())


def _ways(
    items: Items, prices: Prices, group: list[int], points: dict[int, list[tuple[int, float]]], most: float
) -> dict[int, tuple[float, tuple[tuple[int, int], ...]]] | None:
    """For each number of units that a group can take the least loss and its choice; None: too many ways."""
    last = {row: i for i in group for row in items.all[i].rows}
    rows: list[int] = []
    ways: Ways = {((), 0): (0.0, ())}
    for i in group:
        mine = items.all[i].rows
        fresh = [row for row in dict.fromkeys(mine) if row not in rows]
        rows += fresh
        full = tuple(int(items.limits[row]) for row in fresh)
        ways = {((*left, *full), taken): way for (left, taken), way in ways.items()}
        take = [mine.count(row) for row in rows]
        edge = ways
        for _ in range(items.all[i].members):
            edge = _once_more(edge, i, take, points[i], most)
            if not edge:
                break
            for key, way in edge.items():
                if key not in ways or way[0] < ways[key][0]:
                    ways[key] = way
            if len(ways) > MOST:
                return None
        ways = _without_done(ways, [last[row] == i for row in rows], [float(prices.rows[row]) for row in rows], most)
        rows = [row for row in rows if last[row] != i]
    return {taken: way for (_, taken), way in ways.items()}


def _once_more(ways: Ways, i: int, take: list[int], points: list[tuple[int, float]], most: float) -> Ways:
    """The ways with item i once more."""
    found: Ways = {}
    for (left, taken), (lost, choice) in ways.items():
        after = tuple(have - need for have, need in zip(left, take, strict=True))
        if min(after) < 0:
            continue
        for units, loss in points:
            key = (after, taken + units)
            if lost + loss <= most and (key not in found or lost + loss < found[key][0]):
                found[key] = (lost + loss, (*choice, (i, units)))
    return found


def _without_done(ways: Ways, done: list[bool], costs: list[float], most: float) -> Ways:
    """The ways without the rows that no further item is in: what is left of them is lost."""
    found: Ways = {}
    for (left, taken), (lost, choice) in ways.items():
        total = lost + sum(cost * have for cost, have, over in zip(costs, left, done, strict=True) if over)
        key = (tuple(have for have, over in zip(left, done, strict=True) if not over), taken)
        if total <= most and (key not in found or total < found[key][0]):
            found[key] = (total, choice)
    return found
