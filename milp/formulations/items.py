"""The `items` formulation of sharing (docs/model.md): choose disjoint jobs and pairs of jobs, and their units.

It always gives a bound. It is exact unless a job leaves its present partner for a third job while that partner stays
active: then the units may not work out without migration, which `transfers.transport` detects. Such pairs are then
refined (`build`), and where even that proves nothing, `flow` decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bft.milp.classes import classes_of
from bft.milp.formulations.linear import LinearModel
from bft.milp.formulations.modes import Chosen, Run, add_runs, concave_runs, limit_units, mode_runs
from bft.milp.problem import FloatArray, IntArray, Pair, Problem
from bft.milp.values import table_of

# Slopes of a dense table that differ by less than this, relative to its largest value, count as equal (rounding).
NOISE = 1e-13


@dataclass(frozen=True, eq=False)
class PairGrid:
    """Every way for two jobs to be active together: value and fewest units in union, one cell per (n_a, n_b).

    Parameters
    ----------
    value
        Best value of the cell, float64 of shape (n_a + 1, n_b + 1), -inf where not allowed.
    union
        Units it takes, int64 of the same shape.
    split
        Whether the best choice of the cell is that both are active without overlap, bool of the same shape.
    """

    value: FloatArray
    union: IntArray
    split: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def pair_grid(problem: Problem, pair: Pair) -> PairGrid:
    """The grid of a pair that shares or, for present partners only, splits and stays active.

    With s the units shared now, sharing takes a union of at least

        max(n_a, n_b, c_a + c_b - s)     when neither shrinks
        max(n_b, n_a + c_b - s)          when only a shrinks, and mirrored
        max(n_a, n_b, n_a + n_b - s)     when both shrink

    units, and a split takes n_a + n_b. A split is possible when only a shrinks if n_a <= c_a - s, when both shrink if
    n_a + n_b <= c_a + c_b - s, and never when neither shrinks.
    """
    table_a, table_b = table_of(problem, pair.a, pair), table_of(problem, pair.b, pair)
    c_a, c_b, s = problem.current[pair.a], problem.current[pair.b], pair.shared
    n_a = np.arange(len(table_a), dtype=np.int64)[:, None]
    n_b = np.arange(len(table_b), dtype=np.int64)[None, :]
    less_a, less_b = n_a < c_a, n_b < c_b
    both = np.maximum(n_a, n_b)
    union = np.where(
        less_a & less_b,
        np.maximum(both, n_a + n_b - s),
        np.where(
            less_a,
            np.maximum(n_b, n_a + c_b - s),
            np.where(less_b, np.maximum(n_a, n_b + c_a - s), np.maximum(both, c_a + c_b - s)),
        ),
    )
    value = table_a[:, None] + table_b[None, :]
    split = np.zeros(value.shape, dtype=bool)
    if s:
        apart = table_of(problem, pair.a)[:, None] + table_of(problem, pair.b)[None, :]
        possible = np.where(
            less_a & less_b,
            n_a + n_b <= c_a + c_b - s,
            (less_a & (n_a <= c_a - s)) | (less_b & (n_b <= c_b - s)),
        )
        # A split cell has a higher value but may take more units: both stay candidates, in one table over the units.
        value, union, split = (
            np.stack([value, np.where(possible, apart, -np.inf)]),
            np.stack([union, np.broadcast_to(n_a + n_b, value.shape)]),
            np.stack([split, np.ones(value.shape, dtype=bool)]),
        )
    # Being together without a common unit is never better than being alone.
    value[~split & (union == n_a + n_b)] = -np.inf
    value[..., 0, :] = -np.inf
    value[..., :, 0] = -np.inf
    value[union > problem.units] = -np.inf
    return PairGrid(value, union, split)


def best_by_units(grid: PairGrid, units: int) -> FloatArray:
    """w(u) for u = 0 ... units: the best value in the grid that takes at most u units."""
    best = np.full(units + 1, -np.inf)
    inside = grid.value > -np.inf
    np.maximum.at(best, grid.union[inside], grid.value[inside])
    return np.maximum.accumulate(best)


def cell(grid: PairGrid, units: int) -> tuple[int, int, int, bool]:
    """The cell behind w(units): n_a, n_b, units in union, split. Ties go to the fewest units, then the smallest n_a."""
    value = np.where(grid.union <= units, grid.value, -np.inf)
    best = np.argwhere(value == value.max())
    union = grid.union[tuple(best.T)]
    chosen = tuple(best[int(np.argmin(union))])
    return int(chosen[-2]), int(chosen[-1]), int(grid.union[chosen]), bool(grid.split[chosen])


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


@dataclass(frozen=True, eq=False)
class PairTable:
    """A pair, its grid, and the w(u) of the grid."""

    pair: Pair
    grid: PairGrid
    best: FloatArray


def pair_tables(problem: Problem) -> tuple[PairTable, ...]:
    """The tables of all pairs, for `build` and for `matching.start`."""
    tables = []
    for pair in problem.pairs:
        grid = pair_grid(problem, pair)
        max_units = min(problem.units, problem.jobs[pair.a].jmax + problem.jobs[pair.b].jmax)
        tables.append(PairTable(pair, grid, best_by_units(grid, max_units)))
    return tuple(tables)


def solo_beats(problem: Problem, pair: Pair, best: FloatArray) -> bool:
    """Whether the two jobs, each alone or off, are always at least as good as together on as many units.

    Only called for jobs that share with nobody now: for others, being alone together is restricted.
    """
    table_a, table_b = table_of(problem, pair.a), table_of(problem, pair.b)
    alone = PairGrid(
        table_a[:, None] + table_b[None, :],
        np.arange(len(table_a), dtype=np.int64)[:, None] + np.arange(len(table_b), dtype=np.int64)[None, :],
        np.zeros((len(table_a), len(table_b)), dtype=bool),
    )
    alone.value[alone.union > problem.units] = -np.inf
    apart = best_by_units(alone, len(best) - 1)
    return bool((best <= apart).all())


@dataclass(frozen=True)
class SharingModel:
    """A linear model of a sharing problem, with the decoder to counts and shares.

    `solos` are the jobs by themselves: the members of a class and its variables. `off` is, for each class, the variable
    that counts members without units.
    """

    model: LinearModel
    problem: Problem
    solos: tuple[tuple[tuple[int, ...], Chosen], ...]
    pairs: tuple[tuple[Pair, PairGrid, Chosen], ...]
    off: tuple[tuple[tuple[int, ...], int], ...]

    def begin_from(self, counts: Sequence[int], shares: Mapping[tuple[int, int], int]) -> None:
        """Let a solver begin from a feasible allocation, where the model can express it."""
        rest = {j: n for j, n in enumerate(counts) if n}
        start: defaultdict[int, float] = defaultdict(float)
        for pair, _, chosen in self.pairs:
            units = shares.get((pair.a, pair.b))
            if units and pair.a in rest:
                filled = chosen.filled(rest.pop(pair.a) + rest.pop(pair.b) - units)
                if filled is None:
                    return
                start.update(filled)
        solo = {j: chosen for members, chosen in self.solos for j in members}
        for j, n in rest.items():
            filled = solo[j].filled(n)
            if filled is None:
                return
            for variable, value in filled:
                start[variable] += value
        for members, variable in self.off:
            start[variable] += sum(not counts[j] for j in members)
        self.model.start = [(variable, value) for variable, value in start.items() if value]

    def decode(self, x: FloatArray) -> tuple[tuple[int, ...], dict[tuple[int, int], int]]:
        """Counts per job, and shared units per pair."""
        counts = [0] * len(self.problem.jobs)
        for members, chosen in self.solos:
            for j, n in zip(members, chosen.counts(x, len(members)), strict=True):
                counts[j] += n
        shares = {}
        for pair, grid, chosen in self.pairs:
            units = chosen.units(x)
            if units:
                counts[pair.a], counts[pair.b], union, split = cell(grid, units)
                if not split:
                    shares[pair.a, pair.b] = counts[pair.a] + counts[pair.b] - union
        return tuple(counts), {pair: units for pair, units in shares.items() if units}


def entangled(
    problem: Problem, counts: Sequence[int], shares: Mapping[tuple[int, int], int]
) -> frozenset[tuple[int, int]]:
    """Pairs that share now, and of which both stay active but apart, one with a third job: `build` must refine them."""
    sharing = {j for pair in shares for j in pair}
    return frozenset(
        (pair.a, pair.b)
        for pair in problem.pairs
        if pair.shared
        and counts[pair.a]
        and counts[pair.b]
        and (pair.a, pair.b) not in shares
        and (pair.a in sharing or pair.b in sharing)
    )


def build(
    problem: Problem, tables: Sequence[PairTable], refined: frozenset[tuple[int, int]] = frozenset()
) -> SharingModel:
    """Formulate a sharing problem; `tables` are its `pair_tables`.

    One binary per concave run of each item's table as in `modes`; jobs that are in no pair are grouped in classes.
    Subject to

        off_j + runs of j alone + runs of j's pairs = 1        for each job (m for a class of m)
        runs of a alone + runs of b alone <= 1                 for each pair that shares now
        units of all items <= units

    The pairs in `refined` share s units now and may part only if each of those units gets one holder. Each item of such
    a job, alone or with another partner, comes in three variants: `clear`, the job leaves all s (n <= c - s); `less`,
    it shrinks; `any`. When both are active apart, one must be `clear`, or both `less`:

        any_a + any_b + less_a <= 1,   any_a + any_b + less_b <= 1

    Two `less` jobs may still have too many units together; `transfers.transport` detects that.
    """
    model = LinearModel()
    now = {j: pair for pair in problem.pairs if pair.shared for j in (pair.a, pair.b)}
    careful = {j for pair in refined for j in pair}
    kinds = [variants(problem.current[j], now[j].shared) if j in careful else _FREE for j in range(len(problem.jobs))]
    apart: dict[tuple[int, str], list[int]] = defaultdict(list)
    members = [tuple(each.tolist()) for each in classes_of(problem).members()]
    taken: dict[int, list[int]] = {}  # by the first member of a class; a job of a pair is a class alone
    solo_binaries: dict[int, list[int]] = defaultdict(list)
    solos: list[tuple[tuple[int, ...], Chosen]] = []
    for each in members:
        j, values = each[0], table_of(problem, each[0])
        taken[j] = [model.variable(float(values[0]), float(len(each)))]
        for kind, max_units in kinds[j]:
            reachable = values if max_units is None else values[: max_units + 1]
            runs = list(mode_runs(problem.jobs[j], problem.current[j], reachable))
            chosen, binaries = add_runs(model, runs, len(each))
            solos.append((each, chosen))
            solo_binaries[j].extend(binaries)
            apart[j, kind].extend(binaries)
        taken[j].extend(solo_binaries[j])
    pairs = []
    for table in tables:
        pair, grid, best = table.pair, table.grid, table.best
        if not {pair.a, pair.b} & now.keys() and solo_beats(problem, pair, best):
            continue
        together = pair.shared > 0
        for kind_a, most_a in _FREE if together else kinds[pair.a]:
            for kind_b, most_b in _FREE if together else kinds[pair.b]:
                cut = grid if most_a is None and most_b is None else cut_to(grid, most_a, most_b)
                chosen, binaries = add_runs(
                    model, dense_runs(best if cut is grid else best_by_units(cut, len(best) - 1))
                )
                if not binaries:
                    continue
                pairs.append((pair, cut, chosen))
                for j, kind in ((pair.a, kind_a), (pair.b, kind_b)):
                    taken[j].extend(binaries)
                    if not together:
                        apart[j, kind].extend(binaries)
    for each in members:
        binaries = taken[each[0]]
        model.row(binaries, [1.0] * len(binaries), "=", float(len(each)))
    for pair in problem.pairs:
        if pair.shared:
            _at_most_one(model, [*solo_binaries[pair.a], *solo_binaries[pair.b]])
        if (pair.a, pair.b) in refined:
            anyhow = [*apart[pair.a, "any"], *apart[pair.b, "any"]]
            _at_most_one(model, [*anyhow, *apart[pair.a, "less"]])
            _at_most_one(model, [*anyhow, *apart[pair.b, "less"]])
    limit_units(model, [*(chosen for _, chosen in solos), *(chosen for *_, chosen in pairs)], problem.units)
    off = tuple((each, taken[each[0]][0]) for each in members)
    return SharingModel(model, problem, tuple(solos), tuple(pairs), off)


_FREE: tuple[tuple[str, int | None], ...] = (("any", None),)


def variants(current: int, shared: int) -> tuple[tuple[str, int | None], ...]:
    """How a job that shares now may go on apart from its partner, and the most units that it has then (None: any)."""
    return ("clear", current - shared), ("less", current - 1), ("any", None)


def cut_to(grid: PairGrid, most_a: int | None, most_b: int | None) -> PairGrid:
    """The grid, limited to some n_a and n_b."""
    value = grid.value.copy()
    if most_a is not None:
        value[..., most_a + 1 :, :] = -np.inf
    if most_b is not None:
        value[..., :, most_b + 1 :] = -np.inf
    return PairGrid(value, grid.union, grid.split)


def _at_most_one(model: LinearModel, binaries: list[int]) -> None:
    if len(binaries) > 1:
        model.row(binaries, [1.0] * len(binaries), "<", 1.0)
