"""Which units go to whom: counts and partners turned into moves without migration.

Units fall into classes by their present holders: nobody, one job, or two. An answer of the sharing formulations gives
the units of each job, its partner, and how many units they share. A transport from classes to new holders then
determines which units those are; no job both loses and gains units on its arcs.

`flow_model` is the formulation `flow` of sharing (docs/model.md): general and exact, and slower than `items`. With
classes g by present holders, {} or {j} or {j, k}, of s_g units, y[g, h] of them go to holders h.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from typing import TYPE_CHECKING

import numpy as np

from bft.milp.formulations.linear import LinearModel
from bft.milp.formulations.modes import add_runs, mode_runs
from bft.milp.problem import FloatArray, Pair, Problem, Transfer
from bft.milp.values import keep

if TYPE_CHECKING:
    import networkx as nx


Holders = tuple[int, ...]
Arc = tuple[Holders, Holders]
Node = tuple[str, Holders]

# Nodes of the network beside the present and the future holders.
SOURCE: Node = ("source", ())
SINK: Node = ("sink", ())
MARKET: Node = ("market", ())


def classes(problem: Problem) -> dict[Holders, int]:
    """Units by their present holders: () for nobody, (j,), (j, k) with j < k. Empty classes are left out."""
    alone = {j: problem.current[j] for j in problem.holders}
    sizes: dict[Holders, int] = {}
    for pair in problem.pairs:
        if pair.shared:
            sizes[(pair.a, pair.b)] = pair.shared
            alone[pair.a] -= pair.shared
            alone[pair.b] -= pair.shared
    for j, units in alone.items():
        if units:
            sizes[(j,)] = units
    if problem.units > problem.held:
        sizes[()] = problem.units - problem.held
    return sizes


def demands(
    problem: Problem, counts: Sequence[int], shares: Mapping[tuple[int, int], int]
) -> dict[Holders, int]:
    """Units by their future holders: `shares` gives how many units each sharing pair (a, b) shares."""
    alone = defaultdict(int, {j: units for j, units in enumerate(counts) if units})
    wanted: dict[Holders, int] = {}
    for (a, b), units in shares.items():
        if units:
            wanted[(a, b)] = units
            alone[a] -= units
            alone[b] -= units
    for j, units in alone.items():
        if units:
            wanted[(j,)] = units
    wanted[()] = problem.units - sum(wanted.values())
    return wanted


def transport(
    problem: Problem, counts: Sequence[int], shares: Mapping[tuple[int, int], int]
) -> tuple[Transfer, ...] | None:
    """Return moves that bring every job to its count and its shares, or None when that requires a migration.

    A job that grows or keeps its count loses no unit; one that shrinks or keeps its count gains none. Units that can
    stay with their holders stay: if one unit leaves a class and another joins it, the first can stay and the second can
    go all the way, because a job that may lose or gain units in two steps may do so in one.
    """
    supply = classes(problem)
    demand = demands(problem, counts, shares)
    if min(demand.values()) < 0:
        return None
    may_lose = {j for j in problem.holders if counts[j] < problem.current[j]}
    may_gain = {j for j, n in enumerate(counts) if n and n > problem.current[j]}
    staying = {
        holders: min(units, demand.get(holders, 0)) for holders, units in supply.items()
    }
    moved = _moved(_less(supply, staying), _less(demand, staying), may_lose, may_gain)
    if moved is None:
        return None
    for holders, units in staying.items():
        moved[holders, holders] = units
    supply_order = {before: i for i, before in enumerate(supply)}
    demand_order = {after: i for i, after in enumerate(demand)}
    arcs = [arc for arc, units in moved.items() if units]
    arcs.sort(key=lambda arc: (supply_order[arc[0]], demand_order[arc[1]]))
    return tuple(
        Transfer(before, after, moved[before, after]) for before, after in arcs
    )


def _less(
    units_of: Mapping[Holders, int], staying: Mapping[Holders, int]
) -> dict[Holders, int]:
    """Return the units that do not stay, without empty classes."""
    rest = {
        holders: units - staying.get(holders, 0) for holders, units in units_of.items()
    }
    return {holders: units for holders, units in rest.items() if units}


def _moved(
    leaving: Mapping[Holders, int],
    joining: Mapping[Holders, int],
    may_lose: set[int],
    may_gain: set[int],
) -> dict[Arc, int] | None:
    """Return how many units go from which holders to which: a maximum flow, None if not all units find a place."""
    if not leaving:
        return {}
    import networkx as nx
    from networkx.algorithms.flow import shortest_augmenting_path

    arcs = _direct_arcs(leaving, joining, may_lose, may_gain)
    network = _network(arcs, leaving, joining, may_lose, may_gain)
    # This algorithm goes through no set, whose order would change from run to run.
    total, flow = nx.maximum_flow(
        network, SOURCE, SINK, flow_func=shortest_augmenting_path
    )
    if total != sum(leaving.values()):
        return None
    moved = {
        (before, after): int(flow["from", before]["to", after])
        for before, after in arcs
    }
    offered = dict(leaving)
    wanted = dict(joining)
    for (before, after), units in moved.items():
        offered[before] -= units
        wanted[after] -= units
    for before, after, units in _paired(offered.items(), wanted.items()):
        moved[before, after] = moved.get((before, after), 0) + units
    return moved


def _direct_arcs(
    leaving: Mapping[Holders, int],
    joining: Mapping[Holders, int],
    may_lose: set[int],
    may_gain: set[int],
) -> list[Arc]:
    """Return the moves between holders with a job in common that are allowed, each once."""
    joining_of: dict[int, list[Holders]] = {}
    for after in joining:
        for j in after:
            joining_of.setdefault(j, []).append(after)
    arcs: dict[Arc, None] = {}
    for before in leaving:
        for j in before:
            for after in joining_of.get(j, ()):
                losers = set(before).difference(after)
                gainers = set(after).difference(before)
                if losers <= may_lose and gainers <= may_gain:
                    arcs[before, after] = None
    return list(arcs)


def _network(
    arcs: Iterable[Arc],
    leaving: Mapping[Holders, int],
    joining: Mapping[Holders, int],
    may_lose: set[int],
    may_gain: set[int],
) -> nx.DiGraph[Node]:
    """Return the network of units that change hands: direct arcs, and a market for the other units.

    Holders with no job in common exchange units by way of the market, where all of them may lose and gain units. Those
    without a direct arc have no node of their own, so that the network stays small where thousands of jobs wait.
    """
    import networkx as nx

    network: nx.DiGraph[Node] = nx.DiGraph()
    for before, after in arcs:
        network.add_edge(("from", before), ("to", after), capacity=leaving[before])
    market_supply = 0
    for before, units in leaving.items():
        is_free = may_lose.issuperset(before)
        if ("from", before) in network:
            network.add_edge(SOURCE, ("from", before), capacity=units)
            if is_free:
                network.add_edge(("from", before), MARKET, capacity=units)
        elif is_free:
            market_supply += units
    market_demand = 0
    for after, units in joining.items():
        is_free = may_gain.issuperset(after)
        if ("to", after) in network:
            network.add_edge(("to", after), SINK, capacity=units)
            if is_free:
                network.add_edge(MARKET, ("to", after), capacity=units)
        elif is_free:
            market_demand += units
    network.add_edge(SOURCE, MARKET, capacity=market_supply)
    network.add_edge(MARKET, SINK, capacity=market_demand)
    return network


def _paired(
    offered: Iterable[tuple[Holders, int]], wanted: Iterable[tuple[Holders, int]]
) -> Iterator[tuple[Holders, Holders, int]]:
    """Yield who gives how many units to whom: the first who offer to the first who want."""
    takers = iter(wanted)
    after: Holders = ()
    missing = 0
    for before, units in offered:
        left = units
        while left:
            if not missing:
                after, missing = next(takers)
            given = min(left, missing)
            left -= given
            missing -= given
            yield before, after, given


def complaint_about(
    problem: Problem, counts: Sequence[int], transfers: Iterable[Transfer]
) -> str:
    """Why `transfers` do not lead to `counts`; an empty string if they do."""
    left = classes(problem)
    held, lost, gained = (
        defaultdict[int, int](int),
        defaultdict[int, int](int),
        defaultdict[int, int](int),
    )
    partners: dict[int, set[int]] = {}
    for transfer in transfers:
        left[transfer.before] = left.get(transfer.before, 0) - transfer.units
        if len(transfer.after) == 2:
            if problem.pair_of(*transfer.after) is None:
                return f"jobs {transfer.after} share units, but are no pair"
            a, b = transfer.after
            partners.setdefault(a, set()).add(b)
            partners.setdefault(b, set()).add(a)
        elif len(transfer.after) > 2:
            return f"{len(transfer.after)} jobs on a unit"
        for j in transfer.after:
            held[j] += transfer.units
            gained[j] += transfer.units * (j not in transfer.before)
        for j in transfer.before:
            lost[j] += transfer.units * (j not in transfer.after)
    if any(left.values()):
        return f"units appear from nowhere or vanish: {left}"
    wanted = {j: n for j, n in enumerate(counts) if n}
    for j in sorted({*wanted, *held, *lost}):
        n = wanted.get(j, 0)
        if held[j] != n:
            return f"job {problem.jobs[j].name!r} holds {held[j]} units, not {n}"
        if lost[j] and gained[j]:
            return f"job {problem.jobs[j].name!r} migrates: it loses {lost[j]} units and gains {gained[j]}"
        if len(partners.get(j, ())) > 1:
            return f"job {problem.jobs[j].name!r} shares with {len(partners[j])} jobs"
    return ""


def shares_of(transfers: Iterable[Transfer]) -> dict[tuple[int, int], int]:
    """Units that each pair shares after the transfers."""
    shares: dict[tuple[int, int], int] = {}
    for transfer in transfers:
        if len(transfer.after) == 2:
            a, b = transfer.after
            shares[a, b] = shares.get((a, b), 0) + transfer.units
    return shares


def value_of(
    problem: Problem, counts: Sequence[int], shares: Mapping[tuple[int, int], int]
) -> float:
    """Objective of an allocation; -inf where a count is not allowed."""
    tables = problem.tables
    with_whom = {
        j: problem.pair_of(*pair)
        for pair, units in shares.items()
        if units
        for j in pair
    }
    worth = tables.idle != 0.0
    worth |= np.array(counts, dtype=np.int64) != 0
    worth[list(problem.holders)] = True
    total = 0.0
    for j in np.flatnonzero(worth).tolist():
        n, table = counts[j], tables.of(j, with_whom.get(j))
        total += float(table[n]) if n < len(table) else float("-inf")
    return total


def keep_shared(problem: Problem) -> tuple[tuple[int, ...], dict[tuple[int, int], int]]:
    """Counts and shares in which every job keeps what it has, as far as its bounds allow.

    A pair that may not share on these counts is separated: its second job stops.
    """
    counts = list(keep(problem))
    shares = {}
    for pair in problem.pairs:
        if pair.shared:
            a, b = counts[pair.a], counts[pair.b]
            if a and b and math.inf in (pair.xi(pair.a, a), pair.xi(pair.b, b)):
                b = counts[pair.b] = 0
            cut_a, cut_b = problem.current[pair.a] - a, problem.current[pair.b] - b
            # A job that must shrink to its Jmax leaves shared units first, so the pair shares the remainder.
            shares[pair.a, pair.b] = (
                max(0, pair.shared - cut_a - cut_b) if a and b else 0
            )
    return tuple(counts), {pair: units for pair, units in shares.items() if units}


@dataclass(frozen=True)
class FlowModel:
    """A linear model of a sharing problem; `held` gives the variable that counts the units of holders h."""

    model: LinearModel
    problem: Problem
    held: dict[Holders, int]

    def decode(
        self, x: FloatArray
    ) -> tuple[tuple[int, ...], dict[tuple[int, int], int]]:
        """Counts per job, and shared units per pair."""
        counts = [0] * len(self.problem.jobs)
        shares = {}
        for holders, index in self.held.items():
            units = round(float(x[index]))
            for j in holders:
                counts[j] += units
            if len(holders) == 2 and units:
                shares[holders[0], holders[1]] = units
        return tuple(counts), shares


def flow_model(problem: Problem) -> FlowModel:
    """Formulate a sharing problem.

    With d_h = sum_g y[g, h] integer, n_j = sum over h with j of d_h, and n_{j,k} the units of j in its mode k (alone,
    or beside partner k, at 1/xi of its rate):

        sum_h y[g, h] = s_g                                   every unit has a destination
        one mode's run per job, or off; mode k of j if and only if p_jk = 1; sum_k p_jk <= 1 follows
        p_jk <= d_{jk} <= n_{j,k},  d_{jk} <= n_{k,j}         a pair shares at least one unit; both are in that mode
        sum over g without j, h with j of y <= N·up_j         no migration:
        sum over g with j, h without j of y <= c_j·dw_j       a job gains or loses, not both
        up_j + dw_j <= 1
    """
    model = LinearModel()
    supply = classes(problem)
    targets: list[Holders] = [
        (),
        *((j,) for j in range(len(problem.jobs))),
        *((p.a, p.b) for p in problem.pairs),
    ]
    held: dict[Holders, int] = {}
    gains: dict[int, list[int]] = defaultdict(list)
    losses: dict[int, list[int]] = defaultdict(list)
    arriving: dict[Holders, list[int]] = defaultdict(list)
    for before, units in supply.items():
        leaving = []
        for after in targets:
            moved = model.variable(0.0, float(units), integer=False)
            leaving.append(moved)
            arriving[after].append(moved)
            for j in after:
                if j not in before:
                    gains[j].append(moved)
            for j in before:
                if j not in after:
                    losses[j].append(moved)
        model.row(leaving, [1.0] * len(leaving), "=", float(units))
    for after in targets[1:]:
        held[after] = model.variable(0.0, float(problem.units))
        model.row(
            [held[after], *arriving[after]],
            [1.0, *[-1.0] * len(arriving[after])],
            "=",
            0.0,
        )
    together = {(pair.a, pair.b): model.variable(0.0, 1.0) for pair in problem.pairs}
    for key, both in together.items():
        model.row([both, held[key]], [1.0, -1.0], "<", 0.0)

    for j, job in enumerate(problem.jobs):
        partners: list[Pair | None] = [
            None,
            *(pair for pair in problem.pairs if j in (pair.a, pair.b)),
        ]
        off = model.variable(float(problem.tables.of(j)[0]), 1.0)
        binaries, parts = [off], []
        for pair in partners:
            values, line = problem.tables.of(j, pair), problem.tables.line_of(j, pair)
            runs = list(mode_runs(values, line, problem.current[j]))
            chosen, mode_binaries = add_runs(model, runs)
            mode_parts = [(index, float(units)) for index, units in chosen.parts]
            binaries += mode_binaries
            parts += mode_parts
            if pair is not None:
                key = (pair.a, pair.b)
                model.row(
                    [*mode_binaries, together[key]],
                    [*[1.0] * len(mode_binaries), -1.0],
                    "=",
                    0.0,
                )
                model.row(
                    [held[key], *(i for i, _ in mode_parts)],
                    [1.0, *(-u for _, u in mode_parts)],
                    "<",
                    0.0,
                )
        model.row(binaries, [1.0] * len(binaries), "=", 1.0)
        mine = [index for holders, index in held.items() if j in holders]
        model.row(
            [*mine, *(i for i, _ in parts)],
            [*[1.0] * len(mine), *(-u for _, u in parts)],
            "=",
            0.0,
        )
        up = model.variable(0.0, 1.0)
        if gains[j]:
            max_units = float(min(problem.units, job.jmax))
            model.row([*gains[j], up], [*[1.0] * len(gains[j]), -max_units], "<", 0.0)
        if losses[j]:
            down = model.variable(0.0, 1.0)
            model.row(
                [*losses[j], down],
                [*[1.0] * len(losses[j]), -float(problem.current[j])],
                "<",
                0.0,
            )
            model.row([up, down], [1.0, 1.0], "<", 1.0)
    return FlowModel(model, problem, held)


def settle(
    current: Sequence[Sequence[int]], counts: Sequence[int], free: Iterable[int]
) -> list[list[int]]:
    """Give each job its count: a shrinking job releases its newest units, a growing one takes free ones.

    Parameters
    ----------
    current
        Units of each job, oldest first.
    counts
        Units that each job will have.
    free
        Units without a holder; lowest numbers are taken first. Units released here become free too.

    Returns
    -------
    list of lists
        Units of each job, oldest first. Each is a prefix or an extension of what it was.

    Examples
    --------
    >>> settle([[0, 1], []], [1, 2], free=[2, 3])
    [[0], [1, 2]]
    """
    kept = [list(units[:n]) for units, n in zip(current, counts, strict=True)]
    pool = [
        *free,
        *(unit for units, n in zip(current, counts, strict=True) for unit in units[n:]),
    ]
    heapify(pool)
    for units, n in zip(kept, counts, strict=True):
        units.extend(heappop(pool) for _ in range(n - len(units)))
    return kept


def settle_shared(
    current: Sequence[Sequence[int]], transfers: Sequence[Transfer], units: int
) -> list[list[int]]:
    """Carry out transfers between classes of units 0 ... units - 1. Jobs keep the oldest units of a class.

    Parameters
    ----------
    current
        Units of each job, oldest first; a unit may appear under two jobs.
    transfers
        As in `Solution.transfers`.
    units
        Number of units.

    Returns
    -------
    list of lists
        Units of each job: what it keeps in the order it had, then what it gains.
    """
    holders: dict[int, tuple[int, ...]] = {}
    for j, held in enumerate(current):
        for unit in held:
            holders[unit] = (*holders.get(unit, ()), j)
    classes: dict[tuple[int, ...], list[int]] = {}
    for unit in holders:
        classes.setdefault(holders[unit], []).append(unit)
    classes[()] = [unit for unit in range(units) if unit not in holders]
    return move(current, classes, transfers)


def move(
    current: Sequence[Sequence[int]],
    classes: Mapping[tuple[int, ...], Sequence[int]],
    transfers: Sequence[Transfer],
) -> list[list[int]]:
    """Units of each job after the transfers; `classes` lists the units of each class, those to be kept first.

    >>> stays, goes = Transfer((0,), (0,), units=1), Transfer((0,), (1,), units=1)
    >>> move([[0, 1], []], {(0,): [0, 1]}, [stays, goes])
    [[0], [1]]
    """
    gone: list[set[int]] = [set() for _ in current]
    gained: list[list[int]] = [[] for _ in current]
    taken: dict[tuple[int, ...], int] = {}
    # The more holders keep the units of a transfer, the older the units it takes.
    for transfer in sorted(transfers, key=lambda t: -len(set(t.before) & set(t.after))):
        begin = taken.get(transfer.before, 0)
        taken[transfer.before] = begin + transfer.units
        if transfer.before == transfer.after:
            continue
        picked = classes[transfer.before][begin : begin + transfer.units]
        for j in transfer.before:
            if j not in transfer.after:
                gone[j].update(picked)
        for j in transfer.after:
            if j not in transfer.before:
                gained[j].extend(picked)
    return [
        [unit for unit in held if unit not in lost] + new
        for held, lost, new in zip(current, gone, gained, strict=True)
    ]
