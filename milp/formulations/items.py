"""The `items` formulation of sharing (docs/model.md): jobs and pairs of jobs by classes, and the rows that limit them.

An item is a job of a class alone, or a pair of jobs of two classes (or of one); its table says what that is worth on
each number of units beyond what its jobs are worth without any. Of a class with m members at most m may be in items. A
pair that shares now is posed by variants of what its jobs do apart, so that mostly the best choice of items can be
carried out without migration.

Choose disjoint items, each a job alone (with the table v_j) or a pair, with u units in union.
For a pair that shares s units now

    w_jk(u) = max over n_j, n_k > 0 with u_min(n_j, n_k) ≤ u of  v_j(n_j | ξ(j|k)) + v_k(n_k | ξ(k|j))

    u_min = max(n_j, n_k, c_j + c_k − s)      if neither shrinks
            max(n_k, n_j + c_k − s)           if only j shrinks (and the mirror image)
            max(n_j, n_k, n_j + n_k − s)      if both shrink

A pair that shares now also has *split* items without overlap, u = n_j + n_k, if only j shrinks and n_j ≤ c_j − s, or if
both shrink and n_j + n_k ≤ c_j + c_k − s.

Items are formed from classes of jobs: a job that holds units, or a group of m waiting jobs.
A pair of two classes can be chosen as often as both have members.
Each job is in at most one item, Σ u ≤ N.
The optimum of items is an upper bound of the true one.
Every present pair is posed with its refinement (docs/decisions/0005), so it is exact unless a job gets a third job as
partner while its former partner stays active in a way that the refinement does not see; then the best allocation known
is the answer, as `feasible`, with the optimum of items as its bound.
Units fall into classes by their present holders (nobody; j; j and k); a maximum flow from these to the holders that an
answer wants says which units move, or that a job would have to lose some and gain others.

**How items are solved.** The linear relaxation over the items is solved by column generation, which gives an upper
bound and a reduced cost for each item; a dynamic programme over the items that are left then finds the optimum with its
proof (`formulation`: `column_generation`; `milp/formulations/column_generation.py` has the argument).
Where there are too many partial choices, or where that optimum would need a migration, a MILP over the remaining
entries is solved (`items`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bft.milp.exact.dp import share_units
from bft.milp.formulations.linear import LinearModel
from bft.milp.formulations.modes import Chosen, Run, add_runs, concave_runs, limit_units
from bft.milp.jobs import BoolArray, FloatArray, IntArray
from bft.milp.problem import Pair, Problem
from bft.milp.tables import Classes, tables_of
from bft.milp.tolerances import EQUAL_DENSE_SLOPES

Choice = Sequence[tuple[int, int]]
"""Items that are active, each as often as it is, with the units it has (a pair: in union)."""
MaxUnits = tuple[int | None, int | None]
"""The most units of both jobs of an item (None: any)."""
Cell = tuple[int, int, int]
"""Units of both jobs of an item, and how many of these they share."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way for a job to go on apart from its present partner.

    Parameters
    ----------
    max_units
        The most units that the job has then (None: any).
    rows
        The rows of that pair in which it counts then.
    """

    max_units: int | None = None
    rows: tuple[int, ...] = ()


ANYHOW = (Variant(),)


@dataclass(frozen=True, slots=True)
class Item:
    """A job alone, or two that share or are split.

    Parameters
    ----------
    classes
        The classes of its job or jobs.
    table
        Gain on u units, float64, -inf where not allowed and at 0.
    members
        The most often that it can be chosen.
    rows
        The rows of the model it counts in, once each; row 0, the units, left out.
    pair, max_units
        The pair that it is, and the most units of each side in this variant (None: any).
    """

    classes: tuple[int, ...]
    table: FloatArray
    members: int
    rows: tuple[int, ...]
    pair: Pair | None = None
    max_units: MaxUnits = (None, None)


class Items:
    """All items of a problem, and the rows that say which go together.

    Attributes
    ----------
    limits
        Right-hand sides of the rows, int64: the units; the members of each class; three rows for each present pair.
    base
        What the jobs are worth without a unit.
    gains, units, owner
        The tables of all items, one after another; the units of each entry, and its item.
    begins
        Where the table of each item begins in there, and the end of the last.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._tables = tables_of(problem)
        self.classes: Classes = self._tables.classes
        self._class_of: list[int] = self.classes.of.tolist()
        self.sizes: list[int] = self.classes.sizes.tolist()
        self._alone = [self._tables.of(j) for j in self.classes.positions.tolist()]
        self._off = [float(table[0]) for table in self._alone]
        self.base = math.fsum(
            size * off for size, off in zip(self.sizes, self._off, strict=True)
        )
        self.base += self._tables.debt
        present = [pair for pair in problem.pairs if pair.shared]
        self._present: dict[int, tuple[Pair, int]] = {}
        for k, pair in enumerate(present):
            first_row = 1 + len(self.sizes) + 3 * k
            self._present[pair.a] = pair, first_row
            self._present[pair.b] = pair, first_row
        self._variants = {j: self._job_variants(j) for j in self._present}
        limits = [problem.units, *self.sizes, *[1] * (3 * len(present))]
        self.limits: IntArray = np.array(limits, dtype=np.int64)
        self.all: list[Item] = [*self._solos(), *self._pairs()]
        lengths = [len(item.table) for item in self.all]
        self.begins: IntArray = np.concatenate(
            ([0], np.cumsum(lengths, dtype=np.int64))
        )
        self.gains = (
            np.concatenate([item.table for item in self.all])
            if self.all
            else np.empty(0)
        )
        self.owner = np.repeat(np.arange(len(self.all)), lengths)
        self.units = np.arange(len(self.gains)) - self.begins[self.owner]

    def _solos(self) -> Iterable[Item]:
        """Yield the items of one job, by its variants."""
        for c, j in enumerate(self.classes.positions.tolist()):
            gains = self._alone[c] - self._off[c]
            gains[0] = -np.inf
            rows: tuple[int, ...] = ()
            if j in self._present:
                rows = (self._present[j][1],)
            for variant in self._variants.get(j, ANYHOW):
                table = (
                    gains
                    if variant.max_units is None
                    else gains[: variant.max_units + 1]
                )
                if table.max() > 0.0:
                    yield Item(
                        (c,), table, self.sizes[c], (1 + c, *variant.rows, *rows)
                    )

    def _pairs(self) -> Iterable[Item]:
        """Yield the items of two jobs, by the variants of both, that gain on some number of units."""
        from bft.milp.formulations.kernels import all_together

        problem = self.problem
        posed: list[tuple[Pair, int, MaxUnits, tuple[int, ...]]] = []
        spans, held, off, lengths = [], [], [], [0]
        for pair in problem.pairs:
            a, b = self._class_of[pair.a], self._class_of[pair.b]
            members = min(self.sizes[a], self.sizes[b])
            if a == b:
                members = self.sizes[a] // 2
            if not members:
                continue
            beside = [self._tables.place(j, pair) for j in (pair.a, pair.b)]
            alone = [self._tables.place(j) for j in (pair.a, pair.b)]
            max_union = min(
                problem.units, problem.jobs[pair.a].jmax + problem.jobs[pair.b].jmax
            )
            for max_units, rows in self._pair_variants(pair):
                cut = [
                    _cut(span, most)
                    for span, most in zip(beside, max_units, strict=True)
                ]
                posed.append((pair, members, max_units, (1 + a, 1 + b, *rows)))
                spans.append([*cut, *alone])
                held.append(
                    (problem.current[pair.a], problem.current[pair.b], pair.shared)
                )
                off.append(self._off[a] + self._off[b])
                lengths.append(max_union + 1)
        if not posed:
            return
        begins = np.cumsum(lengths)
        gains = all_together(
            self._tables.values, np.array(spans), np.array(held), np.array(off), begins
        )
        best = np.maximum.reduceat(gains, begins[:-1])
        for k in np.flatnonzero(best > 0.0).tolist():
            pair, members, max_units, rows = posed[k]
            classes = self._class_of[pair.a], self._class_of[pair.b]
            yield Item(
                classes,
                gains[begins[k] : begins[k + 1]],
                members,
                rows,
                pair,
                max_units,
            )

    def _job_variants(self, j: int) -> tuple[Variant, ...]:
        """Return how a job that shares now may go on apart from its partner.

        It leaves all shared units, or it shrinks, or anything. When both jobs of the pair are active apart, one of them
        must leave all shared units, or both must shrink:

            any_a + any_b + shrinks_a <= 1,   any_a + any_b + shrinks_b <= 1

        Two that shrink may still have too many units together; `transfers.transport` detects that.
        """
        pair, first_row = self._present[j]
        held = self.problem.current[j]
        row_a, row_b = first_row + 1, first_row + 2
        own_row = row_a if j == pair.a else row_b
        leaves = Variant(held - pair.shared)
        shrinks = Variant(held - 1, (own_row,))
        anything = Variant(None, (row_a, row_b))
        min_units = max(self.problem.jobs[j].jmin, 1)
        return (
            *(each for each in (leaves, shrinks) if (each.max_units or 0) >= min_units),
            anything,
        )

    def _pair_variants(self, pair: Pair) -> Iterable[tuple[MaxUnits, tuple[int, ...]]]:
        """Yield the most units of both jobs of a pair, and the rows of their present pairs in which it counts."""
        if pair.shared:
            yield (None, None), ()
            return
        for of_a in self._variants.get(pair.a, ANYHOW):
            for of_b in self._variants.get(pair.b, ANYHOW):
                # If both shrink, two that share nothing now have no unit in common.
                if of_a.max_units is None or of_b.max_units is None:
                    yield (of_a.max_units, of_b.max_units), (*of_a.rows, *of_b.rows)

    def shared_out(self, chosen: Sequence[int]) -> Choice:
        """Return the best units for these items, an item as often as it is named, without those that get none."""
        tables = [self.all[i].table.copy() for i in chosen]
        for table in tables:
            table[0] = 0.0
        held = np.array([self._held(self.all[i]) for i in chosen], dtype=np.int64)
        given = share_units(tables, held, self.problem.units)
        return [(i, units) for i, units in zip(chosen, given, strict=True) if units]

    def _held(self, item: Item) -> int:
        """Return the units that the jobs of an item hold now, if they are together now as in it."""
        current, pair = self.problem.current, item.pair
        if pair is None:
            return current[int(self.classes.positions[item.classes[0]])]
        if not pair.shared:
            return 0
        return current[pair.a] + current[pair.b] - pair.shared

    def worth(self, choice: Choice) -> float:
        """Return what a choice is worth, whether it needs a migration or not."""
        gains = math.fsum(self.all[i].table[units] for i, units in choice)
        return self.base + gains

    def named(
        self, choice: Choice
    ) -> tuple[tuple[int, ...], dict[tuple[int, int], int]]:
        """Return counts per job and shared units per pair: of a class, the jobs that come first have most units."""
        # Of thousands that wait many are in the same item on as many units.
        cells = {each: self._cell(*each) for each in set(choice)}
        parts_of: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for index, (i, units) in enumerate(choice):
            for side, c in enumerate(self.all[i].classes):
                parts_of[c].append((-cells[i, units][side], index, side))
        members = self.classes.members()
        counts = [0] * len(self.problem.jobs)
        jobs_of: list[list[int]] = [[-1, -1] for _ in choice]
        for c, parts in parts_of.items():
            for j, (less, index, side) in zip(
                members[c].tolist(), sorted(parts), strict=False
            ):
                counts[j] = -less
                jobs_of[index][side] = j
        shares = {}
        for jobs, each in zip(jobs_of, choice, strict=True):
            shared = cells[each][2]
            if shared:
                shares[min(jobs), max(jobs)] = shared
        return tuple(counts), shares

    def _cell(self, i: int, units: int) -> Cell:
        """Return the units of both jobs of an item on so many units in union, and how many of them they share."""
        from bft.milp.formulations.kernels import best_cell

        item, tables, current = self.all[i], self._tables, self.problem.current
        pair = item.pair
        if pair is None:
            return units, 0, 0
        begin_a, end_a = _cut(tables.place(pair.a, pair), item.max_units[0])
        begin_b, end_b = _cut(tables.place(pair.b, pair), item.max_units[1])
        beside = tables.values[begin_a:end_a], tables.values[begin_b:end_b]
        alone = tables.of(pair.a), tables.of(pair.b)
        held = current[pair.a], current[pair.b]
        n_a, n_b, union, split = best_cell(*beside, *alone, *held, pair.shared, units)
        return n_a, n_b, 0 if split else n_a + n_b - union

    def model(self, allowed: BoolArray, start: Choice) -> ItemsModel:
        """Return a MILP over those entries of `gains` that are allowed; a solver may begin from the choice `start`."""
        model = LinearModel()
        chosen: dict[int, Chosen] = {}
        # How often each variable counts in a row: a pair of two jobs of one class counts twice.
        rows: defaultdict[int, defaultdict[int, float]] = defaultdict(
            lambda: defaultdict(float)
        )
        for i in np.unique(self.owner[allowed]).tolist():
            item = self.all[i]
            mine = allowed[self.begins[i] : self.begins[i + 1]]
            runs = list(_runs(np.where(mine, item.table, -np.inf)))
            chosen[i], binaries = add_runs(model, runs, item.members)
            for row in item.rows:
                for binary in binaries:
                    rows[row][binary] += 1.0
        for row, counted in sorted(rows.items()):
            model.row(
                list(counted), list(counted.values()), "<", float(self.limits[row])
            )
        limit_units(model, chosen.values(), int(self.limits[0]))
        values: defaultdict[int, float] = defaultdict(float)
        for i, units in start:
            filled = chosen[i].filled(units) if i in chosen else None
            for variable, value in filled or ():
                values[variable] += value
        model.start = list(values.items())
        return ItemsModel(model, self, chosen)


@dataclass(frozen=True)
class ItemsModel:
    """A MILP over items, and the way back to a choice of items."""

    model: LinearModel
    items: Items
    chosen: Mapping[int, Chosen]

    def decode(self, x: FloatArray) -> Choice:
        """Return the choice that a solution `x` of the model stands for."""
        choice = []
        for i, chosen in self.chosen.items():
            counts = chosen.counts(x, self.items.all[i].members)
            choice += [(i, units) for units in counts if units]
        return choice


def _cut(span: tuple[int, int], max_units: int | None) -> tuple[int, int]:
    """Return where a table begins and ends if no more than `max_units` are allowed."""
    begin, end = span
    if max_units is None:
        return span
    return begin, min(end, begin + max_units + 1)


def _runs(table: FloatArray) -> Iterable[Run]:
    """Yield the concave runs of a table that is -inf here and there."""
    for allowed, positions in groupby(
        range(len(table)), key=lambda n: bool(table[n] > -np.inf)
    ):
        if allowed:
            stretch = list(positions)
            yield from _dense_runs(stretch[0], table[stretch])


def _dense_runs(first: int, values: FloatArray) -> Iterable[Run]:
    """Cut the values on `first` and more units into concave runs with as few points as they have slopes."""
    slopes = np.diff(values)
    noise = EQUAL_DENSE_SLOPES * max(1e-300, float(np.abs(values).max()))
    kinks = np.flatnonzero(np.abs(np.diff(slopes)) > noise) + 1
    points = sorted({0, *kinks.tolist(), len(values) - 1})
    return concave_runs([(first + p, float(values[p])) for p in points])
