"""Which units go to whom: counts and partners turned into moves without migration.

Units fall into classes by their present holders: nobody, one job, or two. An answer of the sharing formulations gives
the units of each job, its partner, and how many units they share. A transport from classes to new holders then
determines which units those are; no job both loses and gains units on its arcs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from bft.milp.problem import Problem, Transfer
from bft.milp.values import keep, tables_of

Holders = tuple[int, ...]

# Up to this many jobs all units are in one network, with an arc for everyone. With more, that takes too long.
FEW = 40


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


def demands(problem: Problem, counts: Sequence[int], shares: Mapping[tuple[int, int], int]) -> dict[Holders, int]:
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
    """Moves that bring every job to its count and its shares, or None when that requires a migration.

    A job that grows or keeps its count loses no unit; one that shrinks or keeps its count gains none.
    """
    supply, demand = classes(problem), demands(problem, counts, shares)
    if any(units < 0 for units in demand.values()):
        return None
    may_lose = {j for j in problem.holders if counts[j] < problem.current[j]}
    may_gain = {j for j, n in enumerate(counts) if n and n > problem.current[j]}
    if len(counts) > FEW:
        return _few_moves(supply, demand, may_lose, may_gain)
    sent = _sent(supply, demand, may_lose, may_gain)
    return None if sent is None else _as_moves(supply, demand, sent)


def _few_moves(
    supply: Mapping[Holders, int], demand: Mapping[Holders, int], may_lose: set[int], may_gain: set[int]
) -> tuple[Transfer, ...] | None:
    """The same, with only those units in the network that change hands.

    What can stay, stays: if one unit leaves a class and another joins it, the first can stay and the second can go all
    the way, because a job that may lose or gain units in two steps may do so in one.
    """
    stays = {holders: units for holders in supply if (units := min(supply[holders], demand.get(holders, 0)))}
    leave = {before: units - stays.get(before, 0) for before, units in supply.items() if units > stays.get(before, 0)}
    come = {after: units - stays.get(after, 0) for after, units in demand.items() if units > stays.get(after, 0)}
    sent = _sent_by_market(leave, come, may_lose, may_gain)
    if sent is None:
        return None
    sent.update({(holders, holders): units for holders, units in stays.items()})
    return _as_moves(supply, demand, sent)


def _as_moves(
    supply: Mapping[Holders, int], demand: Mapping[Holders, int], sent: Mapping[tuple[Holders, Holders], int]
) -> tuple[Transfer, ...]:
    """Transfers by the order of the present holders, then of the future ones."""
    origin = {before: i for i, before in enumerate(supply)}
    target = {after: i for i, after in enumerate(demand)}
    arcs = sorted(sent, key=lambda arc: (origin[arc[0]], target[arc[1]]))
    return tuple(Transfer(*arc, sent[arc]) for arc in arcs if sent[arc])


def _allowed(before: Holders, after: Holders, may_lose: set[int], may_gain: set[int]) -> bool:
    return all(j in may_lose for j in before if j not in after) and all(j in may_gain for j in after if j not in before)


def _sent(
    supply: Mapping[Holders, int], demand: Mapping[Holders, int], may_lose: set[int], may_gain: set[int]
) -> dict[tuple[Holders, Holders], int] | None:
    """Units from each class to each new holders, None if not all find a place."""
    import networkx as nx

    # Nodes are numbers: with strings, the order in which units are pushed would change from run to run.
    source, sink = 0, 1
    origin = {before: 2 + i for i, before in enumerate(supply)}
    target = {after: 2 + len(supply) + i for i, after in enumerate(demand)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from((source, sink))
    for before, units in supply.items():
        graph.add_edge(source, origin[before], capacity=units)
        for after in demand:
            if _allowed(before, after, may_lose, may_gain):
                graph.add_edge(origin[before], target[after])
    for after, units in demand.items():
        graph.add_edge(target[after], sink, capacity=units)
    value, flow = nx.maximum_flow(graph, source, sink)
    if value != sum(supply.values()):
        return None
    return {(before, after): int(flow[origin[before]].get(target[after], 0)) for before in supply for after in demand}


def _sent_by_market(
    leave: Mapping[Holders, int], come: Mapping[Holders, int], may_lose: set[int], may_gain: set[int]
) -> dict[tuple[Holders, Holders], int] | None:
    """As `_sent`, with few arcs: where all may lose and all may gain, units go by way of a market.

    Holders with no job in common exchange units only there, so arcs of their own are needed only by those with one.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    if not leave:
        return {}
    before, after = list(leave), list(come)
    market, sink = 1 + len(before) + len(after), 2 + len(before) + len(after)
    joined: dict[int, list[int]] = {}
    for k, holders in enumerate(after):
        for j in holders:
            joined.setdefault(j, []).append(k)
    arcs = [(0, 1 + i, leave[holders]) for i, holders in enumerate(before)]
    arcs += [(1 + len(before) + k, sink, come[holders]) for k, holders in enumerate(after)]
    arcs += [(1 + i, market, leave[holders]) for i, holders in enumerate(before) if may_lose.issuperset(holders)]
    arcs += [
        (market, 1 + len(before) + k, come[holders]) for k, holders in enumerate(after) if may_gain.issuperset(holders)
    ]
    for i, holders in enumerate(before):
        for k in sorted({k for j in holders for k in joined.get(j, ())}):
            if _allowed(holders, after[k], may_lose, may_gain):
                arcs.append((1 + i, 1 + len(before) + k, min(leave[holders], come[after[k]])))
    rows, columns, capacities = np.array(arcs, dtype=np.int32).T
    network = csr_array((capacities, (rows, columns)), shape=(sink + 1, sink + 1))
    answer = maximum_flow(network, 0, sink)
    if answer.flow_value != sum(leave.values()):
        return None
    flow = answer.flow.tocoo()
    sent: dict[tuple[Holders, Holders], int] = {}
    offered: list[tuple[int, int]] = []
    wanted: list[tuple[int, int]] = []
    for row, column, units in sorted(zip(flow.row.tolist(), flow.col.tolist(), flow.data.tolist(), strict=True)):
        if units <= 0 or row == 0 or column == sink:
            continue
        if column == market:
            offered.append((row - 1, units))
        elif row == market:
            wanted.append((column - 1 - len(before), units))
        else:
            sent[before[row - 1], after[column - 1 - len(before)]] = units
    for i, k, units in _paired(offered, wanted):
        sent[before[i], after[k]] = sent.get((before[i], after[k]), 0) + units
    return sent


def _paired(offered: Iterable[tuple[int, int]], wanted: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Who gives how many units to whom: those who come first to those who come first."""
    takers = iter(wanted)
    k, need = -1, 0
    for i, units in offered:
        left = units
        while left:
            if not need:
                k, need = next(takers)
            given = min(left, need)
            left, need = left - given, need - given
            yield i, k, given


def complaint_about(problem: Problem, counts: Sequence[int], transfers: Iterable[Transfer]) -> str:
    """Why `transfers` do not lead to `counts`; an empty string if they do."""
    left = classes(problem)
    held, lost, gained = defaultdict[int, int](int), defaultdict[int, int](int), defaultdict[int, int](int)
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


def value_of(problem: Problem, counts: Sequence[int], shares: Mapping[tuple[int, int], int]) -> float:
    """Objective of an allocation; -inf where a count is not allowed."""
    tables = tables_of(problem)
    with_whom = {j: problem.pair_of(*pair) for pair, units in shares.items() if units for j in pair}
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
            shares[pair.a, pair.b] = max(0, pair.shared - cut_a - cut_b) if a and b else 0
    return tuple(counts), {pair: units for pair, units in shares.items() if units}
