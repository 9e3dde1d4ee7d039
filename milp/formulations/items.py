"""Sharing problems of any size: jobs and pairs of jobs posed by classes, so that many that wait alike are one.

An item is a job of a class alone, or a pair of jobs of two classes (or of one), and its table says what that is worth
on so many units beyond what its jobs are worth without any. Of each class with m members at most m may be in items. A
pair that shares now is posed by variants of what its jobs do apart, so that mostly the best choice of items can be
carried out without migration.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bft.milp.classes import Classes
from bft.milp.exact.dp import share_units
from bft.milp.formulations.linear import LinearModel
from bft.milp.formulations.modes import Chosen, Run, add_runs, concave_runs
from bft.milp.problem import FloatArray, IntArray, Pair, Problem
from bft.milp.values import tables_of

# Slopes of a dense table that differ by less than this, relative to its largest value, count as equal (rounding).
NOISE = 1e-13

Choice = Sequence[tuple[int, int]]
"""Items that are active, each as often as it is, with the units it has (a pair: in union)."""
Shares = Mapping[tuple[int, int], int]
Variant = tuple[int | None, tuple[int, ...]]
"""The most units of a job apart from its partner of now, and the rows of that pair in which it counts then."""


@dataclass(frozen=True, slots=True)
class Item:
    """A job alone, or two that share or are split.

    Parameters
    ----------
    classes
        Of its job or jobs.
    table
        Gain on u units, float64, -inf where not allowed and at 0.
    members
        As often as it can be chosen.
    rows
        The rows of the model it counts in, once each; row 0, the units, left out.
    pair, most
        The pair that it is, and the most units of each side in this variant (None: any).
    """

    classes: tuple[int, ...]
    table: FloatArray
    members: int
    rows: tuple[int, ...]
    pair: Pair | None = None
    most: tuple[int | None, int | None] = (None, None)


class Items:
    """All items of a problem, and the rows that say which go together.

    Attributes
    ----------
    limits
        Right-hand sides of the rows, int64: the units; the members of each class; three rows for each pair of now, at
        most one of its jobs active alone, and what its variants allow (`variants`).
    base
        What the jobs are worth without a unit.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._tables = tables_of(problem)
        self.classes: Classes = self._tables.classes
        self._alone = [self._tables.of(j) for j in self.classes.first]
        self._off = [float(table[0]) for table in self._alone]
        self._of: list[int] = self.classes.of.tolist()
        self.sizes: list[int] = self.classes.sizes.tolist()
        self.base = math.fsum(m * off for m, off in zip(self.sizes, self._off, strict=True))
        now = [pair for pair in problem.pairs if pair.shared]
        self._now = {j: (at, pair) for at, pair in enumerate(now) for j in (pair.a, pair.b)}
        self._first_now = 1 + len(self.sizes)
        self.limits: IntArray = np.array([problem.units, *self.sizes, *[1] * (3 * len(now))], dtype=np.int64)
        self.all: list[Item] = [*self._solos(), *self._pairs()]
        lengths = [len(item.table) for item in self.all]
        self.begins: IntArray = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        self.gains = np.concatenate([item.table for item in self.all]) if self.all else np.empty(0)
        self.owner = np.repeat(np.arange(len(self.all)), lengths)
        self.units = np.arange(len(self.gains)) - self.begins[self.owner]

    def _solos(self) -> Iterable[Item]:
        for c, j in enumerate(self.classes.first):
            gains = self._alone[c] - self._off[c]
            gains[0] = -np.inf
            for most, apart in self._variants(j):
                table = gains if most is None else gains[: most + 1]
                if table.max() > 0.0:
                    rows = (1 + c, *apart)
                    if j in self._now:
                        rows = (*rows, self._first_now + 3 * self._now[j][0])
                    yield Item((c,), table, self.sizes[c], rows)

    def _pairs(self) -> Iterable[Item]:
        from bft.milp.formulations.kernels import all_together

        posed: list[tuple[Pair, int, tuple[int | None, int | None], tuple[int, ...]]] = []
        places, held, off, lengths = [], [], [], [0]
        ways = {j: self._variants(j) for pair in self.problem.pairs for j in (pair.a, pair.b)}
        for pair in self.problem.pairs:
            a, b = self._of[pair.a], self._of[pair.b]
            members = self.sizes[a] // 2 if a == b else min(self.sizes[a], self.sizes[b])
            if not members:
                continue
            units = min(self.problem.units, self.problem.jobs[pair.a].jmax + self.problem.jobs[pair.b].jmax)
            sides = [self._tables.place(j, beside) for beside in (pair, None) for j in (pair.a, pair.b)]
            for most_a, apart_a in _FREE if pair.shared else ways[pair.a]:
                for most_b, apart_b in _FREE if pair.shared else ways[pair.b]:
                    if most_a is not None and most_b is not None:
                        continue  # both shrink: then two that share nothing now have no unit in common
                    posed.append((pair, members, (most_a, most_b), (1 + a, 1 + b, *apart_a, *apart_b)))
                    places.append([_cut(sides[0], most_a), _cut(sides[1], most_b), *sides[2:]])
                    held.append((self.problem.current[pair.a], self.problem.current[pair.b], pair.shared))
                    off.append(self._off[a] + self._off[b])
                    lengths.append(units + 1)
        if not posed:
            return
        at = np.cumsum(lengths)
        gains = all_together(self._tables.values, np.array(places), np.array(held), np.array(off), at)
        for k in np.flatnonzero(np.maximum.reduceat(gains, at[:-1]) > 0.0).tolist():
            pair, members, most, rows = posed[k]
            classes = self._of[pair.a], self._of[pair.b]
            yield Item(classes, gains[at[k] : at[k + 1]], members, rows, pair, most)

    def _variants(self, j: int) -> Sequence[Variant]:
        """How far a job may shrink, apart from its partner of now."""
        if j not in self._now:
            return _FREE
        at, pair = self._now[j]
        least = max(self.problem.jobs[j].jmin, 1)
        less_a, less_b = self._first_now + 3 * at + 1, self._first_now + 3 * at + 2
        rows: dict[str, tuple[int, ...]] = {"clear": (), "any": (less_a, less_b)}
        rows["less"] = (less_a if j == pair.a else less_b,)
        found = variants(self.problem.current[j], pair.shared)
        return [(most, rows[kind]) for kind, most in found if most is None or most >= least]

    def shared_out(self, chosen: Sequence[int]) -> Choice:
        """The best units for these items, an item as often as it is named; those that get none are left out."""
        tables = [self.all[i].table.copy() for i in chosen]
        for table in tables:
            table[0] = 0.0
        held = np.array([self._held(self.all[i]) for i in chosen], dtype=np.int64)
        given = share_units(tables, held, self.problem.units)
        return [(i, units) for i, units in zip(chosen, given, strict=True) if units]

    def _held(self, item: Item) -> int:
        """Units that its jobs hold now, if they are together now as in it."""
        if item.pair is None:
            return self.problem.current[self.classes.first[item.classes[0]]]
        pair = item.pair
        return self.problem.current[pair.a] + self.problem.current[pair.b] - pair.shared if pair.shared else 0

    def worth(self, choice: Choice) -> float:
        """What a choice is worth, migrations not looked at."""
        return self.base + math.fsum(self.all[i].table[units] for i, units in choice)

    def named(self, choice: Choice) -> tuple[tuple[int, ...], dict[tuple[int, int], int]]:
        """Counts and shares of the jobs themselves: of a class, those that come first have most."""
        parts: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        # Of thousands that wait many are in the same item on as many units.
        cells = {each: self._cell(*each) for each in set(choice)}
        for number, (i, units) in enumerate(choice):
            for side, (c, n) in enumerate(zip(self.all[i].classes, cells[i, units], strict=False)):
                parts[c].append((-n, number, side))
        members = self.classes.members()
        counts = [0] * len(self.problem.jobs)
        who: list[list[int]] = [[-1, -1] for _ in choice]
        for c, mine in parts.items():
            for j, (units, number, side) in zip(members[c].tolist(), sorted(mine), strict=False):
                counts[j] = -units
                who[number][side] = j
        shares = {}
        for (a, b), each in zip(who, choice, strict=True):
            shared = cells[each][2]
            if shared:
                shares[min(a, b), max(a, b)] = shared
        return tuple(counts), shares

    def _cell(self, i: int, units: int) -> tuple[int, int, int]:
        """Units of both jobs of an item on so many units, and how many of these they share."""
        from bft.milp.formulations.kernels import best_cell

        pair, (most_a, most_b) = self.all[i].pair, self.all[i].most
        if pair is None:
            return units, 0, 0
        tables, current, a, b = self._tables, self.problem.current, pair.a, pair.b
        begin_a, end_a = _cut(tables.place(a, pair), most_a)
        begin_b, end_b = _cut(tables.place(b, pair), most_b)
        beside = tables.values[begin_a:end_a], tables.values[begin_b:end_b]
        held_a, held_b, shared = current[a], current[b], pair.shared
        n_a, n_b, union, split = best_cell(*beside, tables.of(a), tables.of(b), held_a, held_b, shared, units)
        return n_a, n_b, 0 if split else n_a + n_b - union

    def model(self, allowed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], begin: Choice) -> ItemsModel:
        """A MILP over those entries of `gains` that are allowed; a solver may begin from the choice `begin`."""
        model, chosen = LinearModel(), {}
        rows: defaultdict[int, list[int]] = defaultdict(list)
        for i in np.unique(self.owner[allowed]).tolist():
            item, mine = self.all[i], allowed[self.begins[i] : self.begins[i + 1]]
            runs = list(_stretches(np.where(mine, item.table, -np.inf)))
            chosen[i], binaries = add_runs(model, runs, item.members)
            for row in item.rows:
                rows[row].extend(binaries)
        for row, variables in sorted(rows.items()):
            # A pair of two of one class counts twice in its row.
            counted: defaultdict[int, float] = defaultdict(float)
            for variable in variables:
                counted[variable] += 1.0
            model.row(list(counted), list(counted.values()), "<", float(self.limits[row]))
        parts = [part for each in chosen.values() for part in each.parts]
        model.row([index for index, _ in parts], [float(each) for _, each in parts], "<", float(self.limits[0]))
        start: defaultdict[int, float] = defaultdict(float)
        for i, units in begin:
            for variable, value in (chosen[i].filled(units) if i in chosen else None) or ():
                start[variable] += value
        model.start = [(variable, value) for variable, value in start.items()]
        return ItemsModel(model, self, chosen)


@dataclass(frozen=True)
class ItemsModel:
    """A MILP over items, and the way back to who has what."""

    model: LinearModel
    items: Items
    chosen: Mapping[int, Chosen]

    def decode(self, x: FloatArray) -> Choice:
        """What an answer chooses."""
        return [
            (i, units)
            for i, chosen in self.chosen.items()
            for units in chosen.counts(x, self.items.all[i].members)
            if units
        ]


_FREE: Sequence[Variant] = ((None, ()),)


def variants(current: int, shared: int) -> tuple[tuple[str, int | None], ...]:
    """How a job that shares now may go on apart from its partner, and the most units that it has then (None: any)."""
    return ("clear", current - shared), ("less", current - 1), ("any", None)


def dense_runs(values: FloatArray) -> list[Run]:
    """Cut a dense table, without its leading -inf, into concave runs with as few points as it has slopes."""
    finite = np.flatnonzero(values > -np.inf)
    if not len(finite):
        return []
    first, last = int(finite[0]), int(finite[-1])
    stretch = values[first : last + 1]
    slopes = np.diff(stretch)
    noise = NOISE * max(1e-300, float(np.abs(stretch).max()))
    kinks = np.flatnonzero(np.abs(np.diff(slopes)) > noise) + 1
    points = sorted({0, *kinks.tolist(), last - first})
    return list(concave_runs([(first + p, float(stretch[p])) for p in points]))


def _cut(place: tuple[int, int], most: int | None) -> tuple[int, int]:
    """Where a table is, with at most so many units."""
    begin, end = place
    return (begin, end) if most is None else (begin, min(end, begin + most + 1))


def _stretches(table: FloatArray) -> Iterable[Run]:
    """The concave runs of a table that is -inf here and there."""
    for allowed, places in groupby(range(len(table)), key=lambda n: bool(table[n] > -np.inf)):
        if allowed:
            stretch = list(places)
            values = np.full(stretch[-1] + 1, -np.inf)
            values[stretch] = table[stretch]
            yield from dense_runs(values)
