"""The exact dynamic programme (DP) where units are of several kinds: over vectors of used units, one number per kind.

The canonical optimum is the one of `dp`: the highest sum of scores, where a changed job is charged; among equal sums
the one that gives the last job fewest units, of the first kind among these, then the job before it, and so on.

With prices per unit of each kind (those of the linear relaxation) every allocation has a loss against a common bound:

    loss = sum over jobs of (best - (score - price·units)) + sum over kinds of price · (units left over) >= 0

The programme looks for an allocation whose loss is at most B, which starts low and rises until there is one. Only
choices and vectors within B are kept, mostly a few; vectors that are equal are merged, so there are never more of them
than products of (units of a kind + 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bft.milp.exact.dp import FIRST, WIDEN, Optimum
from bft.milp.kinds import (
    Choice,
    KindsProblem,
    KindsTable,
    hopeful,
    kept_choices,
    kinds_tables,
    kinds_value,
)
from bft.milp.problem import FloatArray, IntArray

BITS = 60
# Charge for a changed job, in quanta.
CHARGE = 2**14
# Rows (vectors x choices of a job) up to which a step takes a few tenths of a second.
MAX_ROWS = 2**20


@dataclass(frozen=True, slots=True)
class KindsOptimum:
    """The canonical optimum: what each job gets, and its value."""

    choices: tuple[Choice, ...]
    objective: float

    def plain(self) -> Optimum:
        """Without the kinds."""
        return Optimum(tuple(units for _, units in self.choices), self.objective, self.objective)


def kinds_optimum(problem: KindsProblem) -> KindsOptimum | None:
    """The canonical optimum, None where more than `MAX_ROWS` rows would have to be examined."""
    tables, kept = kinds_tables(problem), kept_choices(problem)
    if not tables:
        return KindsOptimum((), 0.0)
    now = [problem.now(j) for j in range(len(tables))]
    capacity = np.array(list(problem.units.values()), dtype=np.int64)
    scored, of_kept = _scored(hopeful(tables, kept), now, kept)
    prices = _prices(scored, capacity)
    lines = [_Line.of(choices, scores, prices) for choices, scores in scored]
    # What keeping loses: the search succeeds there at the latest.
    enough = sum(line.best for line in lines) + int(prices @ capacity) - of_kept
    bound = enough // FIRST
    while True:
        chosen, fits = _search(lines, capacity, prices, bound)
        if chosen is not None:
            choices = tuple(line.choices[index] for line, index in zip(lines, chosen, strict=True))
            return KindsOptimum(choices, kinds_value(tables, choices))
        if not fits:
            return None
        bound = min(enough, max(bound, 1) * WIDEN)


Scored = tuple[list[Choice], IntArray]


def _scored(tables: Sequence[KindsTable], now: Sequence[Choice], kept: Sequence[Choice]) -> tuple[list[Scored], int]:
    """Choices and scores of each job, and the sum of the scores of `kept`.

    Scores are values in whole quanta S / 2^60 below the job's best, less a charge for a change: see `scores`. S is the
    larger of the largest value and the sum over jobs of best less worst, rounded up to a power of two.
    """
    each = [list(table.choices()) for table in tables]
    values = [np.array([value for _, value in choices]) for choices in each]
    spread = math.fsum(float(of.max() - of.min()) for of in values)
    at_stake = max(spread, *(float(np.abs(of).max()) for of in values))
    exponent = math.ceil(math.log2(at_stake)) if at_stake > 0 else 0
    quantum = 2.0 ** max(exponent - BITS, -1000)
    scored: list[Scored] = []
    of_kept = 0
    for choices, of, held, keep in zip(each, values, now, kept, strict=True):
        names = [choice for choice, _ in choices]
        changes = np.array([choice != held for choice in names])
        scores = np.rint((of - of.max()) / quantum).astype(np.int64) - CHARGE * changes
        of_kept += int(scores[names.index(keep)])
        scored.append((names, scores))
    return scored, of_kept


def _prices(scored: Sequence[Scored], capacity: IntArray) -> IntArray:
    """Price of a unit of each kind, in quanta, >= 0: the duals of the linear relaxation, rounded.

    Any prices are valid; these keep the search small.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    jobs = np.concatenate([np.full(len(scores), j) for j, (_, scores) in enumerate(scored)])
    kinds, units = np.array([choice for choices, _ in scored for choice in choices], dtype=np.int64).T
    value = np.concatenate([scores for _, scores in scored]).astype(np.float64)
    scale = max(float(np.abs(value).max()), 1.0)
    columns = np.arange(len(jobs))
    one = csr_array((np.ones(len(jobs)), (jobs, columns)), shape=(len(scored), len(jobs)))
    use = csr_array((units.astype(np.float64), (kinds, columns)), shape=(len(capacity), len(jobs)))
    relaxed = linprog(
        -value / scale, A_ub=use, b_ub=capacity, A_eq=one, b_eq=np.ones(len(scored)), bounds=(0, None), method="highs"
    )
    if not relaxed.success:
        return np.zeros(len(capacity), dtype=np.int64)
    duals: FloatArray = np.maximum(-relaxed.ineqlin.marginals * scale, 0.0)
    # All units of a kind are not worth more than what is at stake; larger prices could overflow.
    ceiling = 2.0**BITS / (np.maximum(capacity, 1) * len(capacity))
    return np.rint(np.minimum(duals, ceiling)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Line:
    """The choices of a job, in order of preference, with their losses."""

    choices: list[Choice]
    kinds: IntArray
    units: IntArray
    losses: IntArray
    best: int

    @classmethod
    def of(cls, choices: list[Choice], scores: IntArray, prices: IntArray) -> _Line:
        kinds, units = np.array(choices, dtype=np.int64).T
        reduced = scores - prices[kinds] * units
        best = int(reduced.max())
        return cls(choices, kinds, units, best - reduced, best)


def _search(lines: Sequence[_Line], capacity: IntArray, prices: IntArray, bound: int) -> tuple[list[int] | None, bool]:
    """Index of each job's choice in the canonical optimum if its loss is at most `bound`; whether all was examined."""
    strides = np.cumprod(np.concatenate([[1.0], capacity[:-1] + 1.0]))
    if strides[-1] * (capacity[-1] + 1.0) > 2.0**62:
        return None, False
    stride = strides.astype(np.int64)
    used, lost = np.zeros((1, len(capacity)), dtype=np.int64), np.zeros(1, dtype=np.int64)
    past: list[tuple[IntArray, IntArray]] = []  # for each job: the vector before, and the choice
    for line in lines:
        able = np.flatnonzero(line.losses <= bound)
        if len(able) * len(lost) > MAX_ROWS:
            return None, False
        before, choice = (each.ravel() for each in np.meshgrid(np.arange(len(lost)), able, indexing="ij"))
        kinds, units = line.kinds[choice], line.units[choice]
        loss = lost[before] + line.losses[choice]
        good = (loss <= bound) & (used[before, kinds] + units <= capacity[kinds])
        before, choice, kinds, units, loss = before[good], choice[good], kinds[good], units[good], loss[good]
        code = used[before] @ stride + units * stride[kinds]
        order = np.lexsort((choice, loss, code))
        first = order[np.concatenate([[True], np.diff(code[order]) != 0])[: len(order)]]
        before, choice, loss = before[first], choice[first], loss[first]
        past.append((before, choice))
        used = used[before]
        used[np.arange(len(choice)), line.kinds[choice]] += line.units[choice]
        lost = loss
    total = lost + (capacity - used) @ prices
    within = np.flatnonzero(total <= bound)
    if not len(within):
        return None, True
    tied = within[total[within] == total[within].min()]
    chosen: list[int] = []
    for before, choice in reversed(past):
        least = choice[tied].min()
        tied = np.unique(before[tied[choice[tied] == least]])
        chosen.append(int(least))
    return chosen[::-1], True
