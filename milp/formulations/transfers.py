"""Which units go to whom: counts and partners turned into moves without migration.

Units fall into classes by their present holders: nobody, one job, or two. An answer of the sharing formulations gives
the units of each job, its partner, and how many units they share. A transport from classes to new holders then
determines which units those are; no job both loses and gains units on its arcs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop
from typing import TYPE_CHECKING

import numpy as np

from bft.milp.problem import Problem, Transfer
from bft.milp.tables import keep, tables_of

if TYPE_CHECKING:
    import networkx as nx


Holders = tuple[int, ...]
Arc = tuple[Holders, Holders]
Shares = Mapping[tuple[int, int], int]
Node = tuple[str, Holders]

# Nodes of the network beside the present and the future holders.
SOURCE: Node = ("source", ())
SINK: Node = ("sink", ())
MARKET: Node = ("market", ())


def by_holders(
    units: int, counts: Mapping[int, int], shares: Shares
) -> Counter[Holders]:
    """Units by their holders: (j, k) with j < k, (j,), and () for nobody; without empty classes.

    Parameters
    ----------
    units
        All units.
    counts
        Units that each job holds.
    shares
        Units that each pair (a, b) shares.
    """
    alone = Counter(counts)
    sizes: Counter[Holders] = Counter(shares)
    for pair, shared in shares.items():
        for j in pair:
            alone[j] -= shared
    sizes.update({(j,): held for j, held in alone.items()})
    sizes[()] = units - sizes.total()
    return Counter({holders: held for holders, held in sizes.items() if held})


def held_now(problem: Problem) -> Counter[Holders]:
    """Units by their present holders."""
    counts = {j: problem.current[j] for j in problem.holders}
    shares = {(pair.a, pair.b): pair.shared for pair in problem.pairs}
    return by_holders(problem.units, counts, shares)


def transport(
    problem: Problem, counts: Sequence[int], shares: Shares
) -> tuple[Transfer, ...] | None:
    """Return moves that bring every job to its count and its shares, or None when that requires a migration.

    A job that grows or keeps its count loses no unit; one that shrinks or keeps its count gains none. Units that can
    stay with their holders stay: if one unit leaves a class and another joins it, the first can stay and the second can
    go all the way, because a job that may lose or gain units in two steps may do so in one.
    """
    wanted = {j: n for j, n in enumerate(counts) if n}
    supply, demand = held_now(problem), by_holders(problem.units, wanted, shares)
    if min(demand.values(), default=0) < 0:
        return None
    may_lose = {j for j in problem.holders if counts[j] < problem.current[j]}
    may_gain = {j for j, n in wanted.items() if n > problem.current[j]}
    staying = supply & demand
    moved = _moved(supply - staying, demand - staying, may_lose, may_gain)
    if moved is None:
        return None
    moved.update({(holders, holders): units for holders, units in staying.items()})
    supply_order = {before: i for i, before in enumerate(supply)}
    demand_order = {after: i for i, after in enumerate(demand)}
    arcs = [arc for arc, units in moved.items() if units]
    arcs.sort(key=lambda arc: (supply_order[arc[0]], demand_order[arc[1]]))
    return tuple(Transfer(*arc, moved[arc]) for arc in arcs)


def _moved(
    leaving: Counter[Holders],
    joining: Counter[Holders],
    may_lose: set[int],
    may_gain: set[int],
) -> Counter[Arc] | None:
    """Return how many units go from which holders to which: a maximum flow, None if not all units find a place.

    Direct arcs lead between holders with a job in common. Others exchange units by way of a market, where all of them
    may lose and gain units. Those without a direct arc have no node of their own, so that the network stays small where
    thousands of jobs wait.
    """
    if not leaving:
        return Counter()
    import networkx as nx
    from networkx.algorithms.flow import shortest_augmenting_path

    arcs = _direct_arcs(leaving, joining, may_lose, may_gain)
    network: nx.DiGraph[Node] = nx.DiGraph()
    for before, after in arcs:
        network.add_edge(("from", before), ("to", after), capacity=leaving[before])
    market_supply = market_demand = 0
    for before, units in leaving.items():
        node, free = ("from", before), may_lose.issuperset(before)
        if node in network:
            network.add_edge(SOURCE, node, capacity=units)
            if free:
                network.add_edge(node, MARKET, capacity=units)
        elif free:
            market_supply += units
    for after, units in joining.items():
        node, free = ("to", after), may_gain.issuperset(after)
        if node in network:
            network.add_edge(node, SINK, capacity=units)
            if free:
                network.add_edge(MARKET, node, capacity=units)
        elif free:
            market_demand += units
    network.add_edge(SOURCE, MARKET, capacity=market_supply)
    network.add_edge(MARKET, SINK, capacity=market_demand)
    # This algorithm goes through no set, whose order would change from run to run.
    total, flow = nx.maximum_flow(
        network, SOURCE, SINK, flow_func=shortest_augmenting_path
    )
    if total != leaving.total():
        return None
    moved: Counter[Arc] = Counter()
    offered, wanted = Counter(leaving), Counter(joining)
    for before, after in arcs:
        units = int(flow["from", before]["to", after])
        moved[before, after] = units
        offered[before] -= units
        wanted[after] -= units
    # What goes through the market: the first who offer give to the first who want.
    moved.update(zip(offered.elements(), wanted.elements(), strict=True))
    return moved


def _direct_arcs(
    leaving: Iterable[Holders],
    joining: Iterable[Holders],
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


def complaint_about(
    problem: Problem, counts: Sequence[int], transfers: Iterable[Transfer]
) -> str:
    """Why `transfers` do not lead to `counts`; an empty string if they do."""
    left = held_now(problem)
    held, lost, gained = Counter[int](), Counter[int](), Counter[int]()
    partners: defaultdict[int, set[int]] = defaultdict(set)
    for transfer in transfers:
        before, after, units = transfer.before, transfer.after, transfer.units
        left[before] -= units
        if len(after) > 2:
            return f"{len(after)} jobs on a unit"
        if len(after) == 2 and problem.pair_of(*after) is None:
            return f"jobs {after} share units, but are no pair"
        for j in after:
            held[j] += units
            gained[j] += units * (j not in before)
            partners[j] |= {*after} - {j}
        for j in before:
            lost[j] += units * (j not in after)
    if any(left.values()):
        return f"units appear from nowhere or vanish: {left}"
    for j in sorted({*np.flatnonzero(counts).tolist(), *held, *lost}):
        name = problem.jobs[j].name
        if held[j] != counts[j]:
            return f"job {name!r} holds {held[j]} units, not {counts[j]}"
        if lost[j] and gained[j]:
            return (
                f"job {name!r} migrates: it loses {lost[j]} units and gains {gained[j]}"
            )
        if len(partners[j]) > 1:
            return f"job {name!r} shares with {len(partners[j])} jobs"
    return ""


def shares_of(transfers: Iterable[Transfer]) -> Counter[tuple[int, int]]:
    """Units that each pair shares after the transfers."""
    shares: Counter[tuple[int, int]] = Counter()
    for transfer in transfers:
        if len(transfer.after) == 2:
            a, b = transfer.after
            shares[a, b] += transfer.units
    return shares


def value_of(problem: Problem, counts: Sequence[int], shares: Shares) -> float:
    """Objective of an allocation; -inf where a count is not allowed."""
    tables = tables_of(problem)
    with_whom = {
        j: problem.pair_of(*pair)
        for pair, units in shares.items()
        if units
        for j in pair
    }
    worth = tables.values[tables.begin[tables.classes.of]] != 0.0
    worth |= np.array(counts, dtype=np.int64) != 0
    worth[list(problem.holders)] = True
    total = tables.debt
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
