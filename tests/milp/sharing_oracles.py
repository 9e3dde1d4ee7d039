"""Sharing without compiled loops and without shortcuts: the grid of a pair, cell by cell, and all units in one flow."""

from collections.abc import Mapping
from dataclasses import dataclass

import networkx as nx
import numpy as np

from bft.milp import Limits, LinearModel, Pair, Problem
from bft.milp.backends import scipy_milp
from bft.milp.formulations.transfers import Holders, held_now
from bft.milp.jobs import FloatArray, IntArray
from bft.milp.tables import tables_of


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
    table_a, table_b = (
        tables_of(problem).of(pair.a, pair),
        tables_of(problem).of(pair.b, pair),
    )
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
            np.where(
                less_b, np.maximum(n_a, n_b + c_a - s), np.maximum(both, c_a + c_b - s)
            ),
        ),
    )
    value = table_a[:, None] + table_b[None, :]
    split = np.zeros(value.shape, dtype=bool)
    if s:
        apart = (
            tables_of(problem).of(pair.a)[:, None]
            + tables_of(problem).of(pair.b)[None, :]
        )
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
    return (
        int(chosen[-2]),
        int(chosen[-1]),
        int(grid.union[chosen]),
        bool(grid.split[chosen]),
    )


def cut_to(grid: PairGrid, most_a: int | None, most_b: int | None) -> PairGrid:
    """The grid, limited to some n_a and n_b."""
    value = grid.value.copy()
    if most_a is not None:
        value[..., most_a + 1 :, :] = -np.inf
    if most_b is not None:
        value[..., :, most_b + 1 :] = -np.inf
    return PairGrid(value, grid.union, grid.split)


def allowed(
    before: Holders, after: Holders, may_lose: set[int], may_gain: set[int]
) -> bool:
    """Whether units may go from these holders to those."""
    return all(j in may_lose for j in before if j not in after) and all(
        j in may_gain for j in after if j not in before
    )


def sent(
    supply: Mapping[Holders, int],
    demand: Mapping[Holders, int],
    may_lose: set[int],
    may_gain: set[int],
) -> dict[tuple[Holders, Holders], int] | None:
    """Units from each class to each new holders, None if not all find a place."""
    # Nodes are numbers: with strings, the order in which units are pushed would change from run to run.
    source, sink = 0, 1
    origin = {before: 2 + i for i, before in enumerate(supply)}
    target = {after: 2 + len(supply) + i for i, after in enumerate(demand)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from((source, sink))
    for before, units in supply.items():
        graph.add_edge(source, origin[before], capacity=units)
        for after in demand:
            if allowed(before, after, may_lose, may_gain):
                graph.add_edge(origin[before], target[after])
    for after, units in demand.items():
        graph.add_edge(target[after], sink, capacity=units)
    value, flow = nx.maximum_flow(graph, source, sink)
    if value != sum(supply.values()):
        return None
    return {
        (before, after): int(flow[origin[before]].get(target[after], 0))
        for before in supply
        for after in demand
    }


def best_by_flow(problem: Problem) -> float:
    """Return the optimum by a MILP of where units go, which knows neither items nor classes of jobs; by HiGHS.

    `moved` of the units that g hold go to h. A job has one count, alone or beside one partner. A pair that is together
    shares at least one unit, and no more than each of the two has. A job gains or loses units, not both.
    """
    model = LinearModel()
    pairs = {(pair.a, pair.b): pair for pair in problem.pairs}
    targets: list[Holders] = [(), *((j,) for j in range(len(problem.jobs))), *pairs]
    moved = {}
    for before, units in held_now(problem).items():
        mine = {h: model.variable(0.0, float(units)) for h in targets}
        model.row([*mine.values()], [1.0] * len(mine), "=", float(units))
        moved.update({(before, after): index for after, index in mine.items()})
    together = {key: model.variable(0.0, 1.0) for key in pairs}
    for j in range(len(problem.jobs)):
        modes = [None, *(key for key in pairs if j in key)]
        ones, held = [model.variable(float(tables_of(problem).of(j)[0]), 1.0)], []
        for key in modes:
            table = tables_of(problem).of(j, None if key is None else pairs[key])
            counts = np.flatnonzero(table[1:] > -np.inf) + 1
            some = [(model.variable(float(table[n]), 1.0), float(n)) for n in counts]
            held += some
            binaries = [index for index, _ in some]
            ones += binaries
            if key is not None:
                shared = [index for (_, after), index in moved.items() if after == key]
                both = [1.0] * len(shared)
                model.row(
                    [*binaries, together[key]], [*[1.0] * len(some), -1.0], "=", 0.0
                )
                model.row(
                    [*shared, *binaries], [*both, *(-n for _, n in some)], "<", 0.0
                )
                model.row(
                    [together[key], *shared], [1.0, *(-1.0 for _ in shared)], "<", 0.0
                )
        model.row(ones, [1.0] * len(ones), "=", 1.0)
        own = [index for (_, after), index in moved.items() if j in after]
        model.row(
            [*own, *(index for index, _ in held)],
            [*[1.0] * len(own), *(-n for _, n in held)],
            "=",
            0.0,
        )
        change = [model.variable(0.0, 1.0), model.variable(0.0, 1.0)]
        model.row(change, [1.0, 1.0], "<", 1.0)
        for way, direction in enumerate(change):
            some_moves = [
                index
                for arc, index in moved.items()
                if j in arc[1 - way] and j not in arc[way]
            ]
            limit = -float(problem.units)
            model.row(
                [*some_moves, direction], [*[1.0] * len(some_moves), limit], "<", 0.0
            )
    answer = scipy_milp.solve(model, Limits())
    assert answer.status == "optimal"
    return answer.objective
