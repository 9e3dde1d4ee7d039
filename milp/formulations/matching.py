"""A bound and a start for sharing problems without a MILP: Lagrangian relaxation and a matching (docs/model.md).

With a price on a unit, the problem becomes a choice of disjoint jobs and pairs: a maximum-weight matching of the jobs.
Every price gives an upper bound of the optimum: the highest of the lines value - price · (units - N), one line per
choice. Take two choices, one that uses more than N units and one that does not: the next price is where their lines
cross. If no choice is better at that price, no price gives a lower bound (Kelley 1960, in one dimension).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bft.milp.exact.dp import share_units
from bft.milp.formulations.items import PairTable, cell
from bft.milp.formulations.transfers import keep_shared, transport, value_of
from bft.milp.problem import FloatArray, Problem
from bft.milp.values import value_tables

# Number of prices to try; ten are mostly enough.
ROUNDS = 30
# Two bounds may differ by this part through rounding.
SAME = 1e-12


@dataclass(frozen=True)
class Start:
    """A feasible allocation and an upper bound of any allocation."""

    counts: tuple[int, ...]
    shares: Mapping[tuple[int, int], int]
    objective: float
    bound: float


def start(problem: Problem, tables: Sequence[PairTable], rounds: int = ROUNDS) -> Start:
    """The bound of the best price, and the best allocation made of the jobs' choices near that price.

    The choice at a price determines which jobs form pairs and which are off. Given that, the exact dynamic programme
    distributes the units over the chosen tables. If no choice is possible without migration, all jobs keep their units.
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
            break  # no price gives a lower bound
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
    """The best counts and shares with the same jobs active, alone or in pairs; the canonical one among equals.

    None if present partners part and both stay active: then it matters, too, which units they leave.
    """
    parted = (pair for pair in problem.pairs if pair.shared and not shares.get((pair.a, pair.b)))
    if any(counts[pair.a] and counts[pair.b] for pair in parted):
        return None
    paired = {j for pair in shares for j in pair}
    structure = [j for j, n in enumerate(counts) if n and j not in paired]
    structure += [len(counts) + i for i, table in enumerate(tables) if shares.get((table.pair.a, table.pair.b))]
    return _Market(problem, tables).share_out(tuple(structure))


_Structure = tuple[int, ...]
"""The active items: j for job j alone, number of jobs + i for pair i; sorted."""


@dataclass(frozen=True)
class _Choice:
    """The active items at some price, the units they want, and their value without the price."""

    structure: _Structure
    units: int
    worth: float

    def bound(self, price: float, units: int) -> float:
        """The value at a price, if missing units were bought and units left over were sold."""
        return self.worth + price * (units - self.units)


class _Market:
    """Jobs and pairs that buy units."""

    def __init__(self, problem: Problem, tables: Sequence[PairTable]) -> None:
        self.problem = problem
        self.solo = value_tables(problem)
        self.together = tables
        # Present partners have one blank in common. A job is alone if it is matched with a blank, so only one of them
        # can be alone: for both apart there is the pair's split. Other jobs take what is best for them.
        # Blanks are numbers, like jobs: the order of a set of strings would change from run to run.
        blanks = len(problem.jobs)
        self.blank = {j: blanks + pair.a for pair in problem.pairs if pair.shared for j in (pair.a, pair.b)}

    def nothing(self) -> _Choice:
        """The choice when a unit is too expensive for every job."""
        return _Choice((), 0, math.fsum(float(table[0]) for table in self.solo))

    def choose(self, price: float) -> _Choice:
        """The best choice when a unit costs `price`: a matching."""
        import networkx as nx

        off = [float(table[0]) for table in self.solo]
        alone = [_best(table[1:], 1, price) for table in self.solo]
        # The value of each job when it is matched with nobody.
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
        total, wanted = math.fsum(base), 0
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
        """The best counts and shares when only these items may be active."""
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
        """Units that a pair holds now, in union, if it shares any."""
        pair = self.together[index].pair
        return self.problem.current[pair.a] + self.problem.current[pair.b] - pair.shared if pair.shared else 0


def _best(table: FloatArray, first: int, price: float) -> tuple[int, float]:
    """Units and value of the best entry when a unit costs `price`; entry 0 stands for `first` units."""
    if not len(table):
        return 0, -np.inf
    worth = table - price * np.arange(first, first + len(table))
    n = int(np.argmax(worth))
    return first + n, float(worth[n])
