"""Which units go to whom: counts and partners turned into moves without migration.

Units fall into classes by their present holders: nobody, one job, or two. An answer of the sharing formulations gives
the units of each job, its partner, and how many units they share. A transport from classes to new holders then
determines which units those are; no job both loses and gains units on its arcs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import networkx as nx

from bft.milp.problem import Problem, Transfer
from bft.milp.values import keep, table_of

Holders = tuple[int, ...]

# Up to this many jobs all units are in one network. With more, only those that change hands, because it takes time.
FEW = 40


def classes(problem: Problem) -> dict[Holders, int]:
    """Units by their present holders: () for nobody, (j,), (j, k) with j < k. Empty classes are left out."""
    alone = list(problem.current)
    sizes: dict[Holders, int] = {}
    for pair in problem.pairs:
        if pair.shared:
            sizes[(pair.a, pair.b)] = pair.shared
            alone[pair.a] -= pair.shared
            alone[pair.b] -= pair.shared
    for j, units in enumerate(alone):
        if units:
            sizes[(j,)] = units
    if problem.units > problem.held:
        sizes[()] = problem.units - problem.held
    return sizes


def demands(problem: Problem, counts: Sequence[int], shares: Mapping[tuple[int, int], int]) -> dict[Holders, int]:
    """Units by their future holders: `shares` gives how many units each sharing pair (a, b) shares."""
    alone = list(counts)
    wanted: dict[Holders, int] = {}
    for (a, b), units in shares.items():
        if units:
            wanted[(a, b)] = units
            alone[a] -= units
            alone[b] -= units
    for j, units in enumerate(alone):
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
    may_lose = {j for j, n in enumerate(counts) if n < problem.current[j]}
    may_gain = {j for j, n in enumerate(counts) if n > problem.current[j]}
    stays: dict[Holders, int] = {}
    leave, come = supply, demand
    if len(counts) > FEW:
        # What can stay, stays: if one unit leaves a class and another joins it, the first can stay and the second can
        # go all the way, because a job that may lose or gain units in two steps may do so in one.
        stays = {holders: min(units, demand.get(holders, 0)) for holders, units in supply.items()}
        leave = {before: units - stays[before] for before, units in supply.items() if units > stays[before]}
        come = {after: units - stays.get(after, 0) for after, units in demand.items() if units > stays.get(after, 0)}
    # Nodes are numbers: with strings, the order in which units are pushed would change from run to run.
    source, sink = 0, 1
    origin = {before: 2 + i for i, before in enumerate(leave)}
    target = {after: 2 + len(leave) + i for i, after in enumerate(come)}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from((source, sink))
    for before, units in leave.items():
        graph.add_edge(source, origin[before], capacity=units)
        for after in come:
            if all(j in may_lose for j in before if j not in after) and all(
                j in may_gain for j in after if j not in before
            ):
                graph.add_edge(origin[before], target[after])
    for after, units in come.items():
        graph.add_edge(target[after], sink, capacity=units)
    value, flow = nx.maximum_flow(graph, source, sink) if leave else (0, {})
    if value != sum(leave.values()):
        return None
    place = {after: i for i, after in enumerate(demand)}
    moves = []
    for before in supply:
        given = {after: int(flow[origin[before]].get(target[after], 0)) for after in come} if before in leave else {}
        if before in stays:
            given[before] = stays[before]
        moves += [
            Transfer(before, after, n) for after, n in sorted(given.items(), key=lambda m: place.get(m[0], 0)) if n
        ]
    return tuple(moves)


def complaint_about(problem: Problem, counts: Sequence[int], transfers: Iterable[Transfer]) -> str:
    """Why `transfers` do not lead to `counts`; an empty string if they do."""
    left = classes(problem)
    held = [0] * len(counts)
    lost, gained = [0] * len(counts), [0] * len(counts)
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
    for j, n in enumerate(counts):
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
    with_whom = {j: problem.pair_of(*pair) for pair, units in shares.items() if units for j in pair}
    total = 0.0
    for j, n in enumerate(counts):
        if not (n or problem.current[j]):  # as `table_of` to the bit, for thousands that wait
            total += problem.tfwd * float(problem.jobs[j].os[0]) * problem.jobs[j].weight
            continue
        table = table_of(problem, j, with_whom.get(j))
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
