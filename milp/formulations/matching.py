"""A bound and a start for sharing problems without a MILP: Lagrange and a matching (docs/model.md).

With a price on a unit the problem falls apart into a choice of disjoint jobs and pairs: a maximum-weight matching of
the jobs. Every price bounds the optimum from above, by the highest of the lines worth - price · (units - N), one for
each choice. Two choices, one that wants more units than there are and one that does not, give the next price: where
their lines meet. When no choice is better there, no price bounds better (Kelley 1960, in one dimension).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

from bft.milp.exact.dp import share_units
from bft.milp.formulations.items import PairTable, cell
from bft.milp.formulations.transfers import keep_shared, transport, value_of
from bft.milp.problem import FloatArray, Problem
from bft.milp.values import value_tables

# Prices to try; ten mostly suffice.
ROUNDS = 30
# Part of a bound by which it may differ from another by rounding.
SAME = 1e-12


@dataclass(frozen=True)
class Start:
    """A feasible allocation and an upper bound of any."""

    counts: tuple[int, ...]
    shares: Mapping[tuple[int, int], int]
    objective: float
    bound: float


def start(problem: Problem, tables: Sequence[PairTable], rounds: int = ROUNDS) -> Start:
    """The bound of the best price found, and the best allocation made of the jobs' choices near it.

    The choice at a price says which jobs pair up and which are off. With that settled the units are shared out exactly
    by the dynamic programme over the chosen tables. Where no choice can be carried out without migration, all keep.
    """
    market = _Market(problem, tables)
    low, high = market.choose(0.0), market.nothing()
    bound, near = low.bound(0.0, problem.units), [low]
    for _ in range(rounds if low.units > problem.units else 0):
        price = (low.worth - high.worth) / (low.units - high.units)
        met = low.bound(price, problem.units)
        asked = market.choose(price)
        height = asked.bound(price, problem.units)
        bound, near = min(bound, height), [low, high, asked]
        if asked.units == problem.units or height <= met + SAME * abs(met):
            break  # no price bounds better
        if asked.units > problem.units:
            low = asked
        else:
            high = asked
    kept = keep_shared(problem)
    best = Start(*kept, value_of(problem, *kept), bound)
    for structure in {choice.structure: None for choice in near}:
        counts, shares = market.share_out(structure)
        if transport(problem, counts, shares) is not None:
            value = value_of(problem, counts, shares)
            if value > best.objective:
                best = Start(counts, shares, value, bound)
    return best if best.objective <= bound else replace(best, bound=best.objective)


def shared_out(
    problem: Problem, tables: Sequence[PairTable], counts: Sequence[int], shares: Mapping[tuple[int, int], int]
) -> tuple[tuple[int, ...], dict[tuple[int, int], int]] | None:
    """The best counts and shares with the same jobs active, alone or in pairs, canonical among equals.

    None where a pair of now has parted and both are still active: then which units they leave matters too.
    """
    parted = (pair for pair in problem.pairs if pair.shared and not shares.get((pair.a, pair.b)))
    if any(counts[pair.a] and counts[pair.b] for pair in parted):
        return None
    paired = {j for pair in shares for j in pair}
    structure = [j for j, n in enumerate(counts) if n and j not in paired]
    structure += [len(counts) + i for i, table in enumerate(tables) if shares.get((table.pair.a, table.pair.b))]
    return _Market(problem, tables).share_out(tuple(structure))


_Structure = tuple[int, ...]
"""Who is active: j for job j alone, number of jobs + i for pair i; sorted."""


@dataclass(frozen=True)
class _Choice:
    """Who is active at some price, the units they want, and what those are worth to them, the price not paid."""

    structure: _Structure
    units: int
    worth: float

    def bound(self, price: float, units: int) -> float:
        """What it is worth at a price, were the units left over or lacking sold or bought."""
        return self.worth + price * (units - self.units)


class _Market:
    """Jobs and pairs that buy units."""

    def __init__(self, problem: Problem, tables: Sequence[PairTable]) -> None:
        self.problem = problem
        self.solo = value_tables(problem)
        self.together = tables
        # Partners of now have one blank between them: to be active alone a job is matched with it, so that only one of
        # them is, since both alone is what a pair's split is for. Other jobs just do what is best for them.
        # Blanks are numbers as jobs are: the hashes of strings, and with them the order of sets, change by the run.
        blanks = len(problem.jobs)
        self.blank = {j: blanks + pair.a for pair in problem.pairs if pair.shared for j in (pair.a, pair.b)}

    def nothing(self) -> _Choice:
        """What is chosen when a unit is too dear for anybody."""
        return _Choice((), 0, sum(float(table[0]) for table in self.solo))

    def choose(self, price: float) -> _Choice:
        """What is best when a unit costs `price`: a matching."""
        off = [float(table[0]) for table in self.solo]
        alone = [_best(table[1:], 1, price) for table in self.solo]
        # What a job is worth if it is matched with nobody.
        base = [v if j in self.blank else max(v, alone[j][1]) for j, v in enumerate(off)]
        graph: nx.Graph[int] = nx.Graph()
        for j, blank in self.blank.items():
            units, worth = alone[j]
            if worth > base[j]:
                graph.add_edge(j, blank, weight=worth - base[j], units=units, item=j)
        for index, both in enumerate(self.together):
            a, b = both.pair.a, both.pair.b
            units, worth = _best(both.best, 0, price)
            if worth > base[a] + base[b]:
                gain = worth - base[a] - base[b]
                graph.add_edge(a, b, weight=gain, units=units, item=len(off) + index)
        total, wanted = sum(base), 0
        structure: list[int] = []
        matched: set[int] = set()
        for a, b in sorted(nx.max_weight_matching(graph)):
            edge = graph.edges[a, b]
            structure.append(edge["item"])
            wanted += edge["units"]
            total += edge["weight"]
            matched |= {a, b}
        for j, (units, worth) in enumerate(alone):
            if j not in matched and j not in self.blank and worth > off[j]:
                structure.append(j)
                wanted += units
        return _Choice(tuple(sorted(structure)), wanted, total + price * wanted)

    def share_out(self, structure: _Structure) -> tuple[tuple[int, ...], dict[tuple[int, int], int]]:
        """The best counts and shares when exactly these items, or fewer, are active."""
        jobs = len(self.solo)
        tables = []
        for item in structure:
            if item < jobs:
                tables.append(self.solo[item])
            else:
                pair, table = self.together[item - jobs].pair, self.together[item - jobs].best.copy()
                table[0] = self.solo[pair.a][0] + self.solo[pair.b][0]
                tables.append(table)
        counts = [0] * jobs
        shares = {}
        held = np.array([self.problem.current[item] if item < jobs else self._union(item - jobs) for item in structure])
        for item, units in zip(structure, share_units(tables, held, self.problem.units), strict=True):
            if item < jobs:
                counts[item] = units
            elif units:
                pair = self.together[item - jobs].pair
                counts[pair.a], counts[pair.b], union, split = cell(self.together[item - jobs].grid, units)
                if not split:
                    shares[pair.a, pair.b] = counts[pair.a] + counts[pair.b] - union
        return tuple(counts), shares

    def _union(self, index: int) -> int:
        """Units that a pair holds now, both together, if it shares any."""
        pair = self.together[index].pair
        return self.problem.current[pair.a] + self.problem.current[pair.b] - pair.shared if pair.shared else 0


def _best(table: FloatArray, first: int, price: float) -> tuple[int, float]:
    """Units and worth of the best entry when a unit costs `price`; entry 0 stands for `first` units."""
    if not len(table):
        return 0, -np.inf
    worth = table - price * np.arange(first, first + len(table))
    n = int(np.argmax(worth))
    return first + n, float(worth[n])
