"""The exact dynamic programme (DP) over several resources: kinds of units, and limits on groups of jobs.

It goes over vectors of what is used, one number per resource. The canonical optimum is the one of `dp`: the highest sum
of scores, where a changed job is charged; among equal sums the one that gives the last job fewest units, of the first
kind among these, then the job before it, and so on.

With prices per unit of each resource (those of the linear relaxation) every allocation has a loss against a common
bound:

    loss = sum over jobs of (best - (score - price·use)) + sum over resources of price · (what is left over) >= 0

The programme looks for an allocation whose loss is at most B, which starts low and rises until there is one. Only
choices and vectors within B are kept: most jobs have one choice left and are set aside. Vectors that are equal are
merged (`knapsack`), so jobs that are alike do not multiply them, and there are never more of them than products of
(what there is of a resource + 1). The same steps with few vectors, those of least loss, give the first allocation,
which limits B.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bft.milp.exact.dp import Optimum, alarm
from bft.milp.jobs import FloatArray, IntArray, Job
from bft.milp.problem import Problem
from bft.milp.tables import tables_of
from bft.milp.tolerances import CHARGE_QUANTA, SCORE_BITS

# The first bound on the loss, as a part of that of the first allocation, and the factor to the next bound.
FIRST = 2**10
WIDEN = 8
# Vectors that are kept for the first allocation.
BEAM = 64
# Choices that a search may examine (some seconds), and vectors that it may keep for the way back (100 MB).
MAX_ROWS = 2**27
MAX_VECTORS = 2**22
# A vector's number must fit 64 bits.
MAX_CODE = 2**62
# What a job's choices use of each resource, what they lose, and their ranks.
Choices = tuple[IntArray, IntArray, IntArray]
TOO_MANY = "too many combinations"
IN_TIME = "time limit"


def kinds_optimum(problem: Problem, time_limit: float | None = None) -> Optimum:
    """The canonical optimum.

    At the time limit (seconds), or where more than `MAX_ROWS` combinations would have to be examined, the best known
    allocation with an upper bound.
    """
    if not problem.jobs:
        return Optimum((), 0.0, 0.0)
    _compile()
    return _optimum(
        problem, math.inf if time_limit is None else time.monotonic() + time_limit
    )


def _optimum(problem: Problem, deadline: float) -> Optimum:
    tables = tables_of(problem)
    kept = tables.kept[tables.classes.of]
    quantum, lines = _lines(problem, tables.hopeful())
    most = np.sum([line.use.max(axis=0) for line in lines], axis=0)
    limits = [limit.most for limit in problem.limits]
    capacity = np.minimum(np.append(problem.capacity, limits).astype(np.int64), most)
    prices, priced = _relaxed(lines, capacity)
    search = _Search([priced[id(line)] for line in lines], capacity, prices, deadline)
    best = [line.rank(choice) for line, choice in zip(lines, kept, strict=True)]
    ranks = search.canonical(
        best,
        sum(int(line.scores[rank]) for line, rank in zip(lines, best, strict=True)),
    )
    choices = [int(line.choices[rank]) for line, rank in zip(lines, ranks, strict=True)]
    value = tables.value(choices)
    counts, names = problem.named(choices)
    # How much more another allocation may be worth: its score is higher by at most what is not excluded.
    more = (
        quantum * (search.lost - search.excluded + len(lines) * (CHARGE_QUANTA + 1))
        if search.limit
        else 0.0
    )
    return Optimum(counts, value, value + more, not search.limit, names, search.limit)


@cache
def _compile() -> None:
    """Compile the kernel, or load it from the cache, which takes seconds outside the time limit."""
    jobs = [
        {
            kind: Job(name, 1, 2, np.arange(3.0), np.arange(3.0), 0.0, 0.0)
            for kind in "ab"
        }
        for name in "xyz"
    ]
    _optimum(Problem.of_kinds({"a": 2, "b": 1}, 1.0, jobs, [None] * 3), math.inf)


@dataclass(frozen=True, eq=False)
class _Line:
    """The choices of a job in order of preference (their rank), with their scores; jobs that are alike share one.

    Scores are values in whole quanta S / 2^60 below the job's best, less a charge for a change: see `scores`. S is the
    larger of the largest value and the sum over jobs of best less worst, rounded up to a power of two. Values of a job
    that differ by at most the charge are equal.
    """

    kinds: IntArray
    units: IntArray
    use: IntArray
    scores: IntArray
    choices: IntArray

    def rank(self, choice: int) -> int:
        """Return the rank of a choice among the choices of the job."""
        return int(np.flatnonzero(self.choices == choice)[0])

    def corners(self) -> IntArray:
        """Ranks of the choices that can matter to the relaxation: on each kind the others lie between them or below."""
        found = [np.flatnonzero(self.units == 0)]
        for kind in range(int(self.kinds.max()) + 1):
            mine = np.flatnonzero((self.kinds == kind) & (self.units > 0))
            slopes = np.diff(self.scores[mine]) / np.diff(self.units[mine])
            falls = (
                np.diff(slopes) < 0
                if len(mine) > 2
                else np.ones(max(len(mine) - 2, 0), dtype=np.bool_)
            )
            found += [mine[:1], mine[1:-1][falls], mine[1:][-1:]]
        return np.concatenate(found)

    def at(self, prices: IntArray, mean: FloatArray) -> _Priced:
        """Price the choices at given prices of units; `mean` is the use of such a job in the relaxation."""
        reduced = self.scores - self.use @ prices
        best = int(reduced.max())
        order = np.argsort(best - reduced, kind="stable")
        return _Priced(self.use[order], (best - reduced)[order], order, best, mean)


def _lines(problem: Problem, tables: Sequence[FloatArray]) -> tuple[float, list[_Line]]:
    """The quantum, and the choices of each job with what they use: fewest units first, then in the order of kinds."""
    each = []
    for table in tables:
        choices = np.flatnonzero(table > -np.inf)
        kinds, units = problem.kinds_and_units(choices)
        order = np.lexsort((kinds, units))
        each.append((choices[order], kinds[order], units[order], table[choices[order]]))
    spread = math.fsum(float(values.max() - values.min()) for *_, values in each)
    at_stake = max(spread, *(float(np.abs(values).max()) for *_, values in each))
    exponent = math.ceil(math.log2(at_stake)) if at_stake > 0 else 0
    quantum = 2.0 ** max(exponent - SCORE_BITS, -1000)
    known: dict[bytes, _Line] = {}
    lines = []
    for j, (choices, kinds, units, values) in enumerate(each):
        changes = (kinds != problem.held_kinds[j]) | (units != problem.current[j])
        scores = (
            _levelled(np.rint((values - values.max()) / quantum).astype(np.int64))
            - CHARGE_QUANTA * changes
        )
        use = np.zeros((len(choices), len(problem.capacity)), np.int64)
        use[np.arange(len(choices)), kinds] = units
        for limit in problem.limits:
            own = limit.per_unit.get(j, 0) * units + limit.if_any.get(j, 0) * (
                units > 0
            )
            use = np.column_stack((use, own))
        key = b"".join(part.tobytes() for part in (choices, scores, use))
        lines.append(known.setdefault(key, _Line(kinds, units, use, scores, choices)))
    return quantum, lines


def _levelled(scores: IntArray) -> IntArray:
    """Return scores where groups that only rounding tells apart are raised to their highest score.

    Choices of a job that are worth the same, such as two kinds on which it is equally fast, are computed on different
    ways, so their values may differ in the last bits. Then these bits, and not the rule, would name the optimum.
    """
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    begins = np.concatenate([[True], falling[:-1] - falling[1:] > CHARGE_QUANTA])
    level = np.cumsum(begins) - 1
    levelled = np.empty_like(scores)
    levelled[order] = falling[begins][level]
    return levelled


def _relaxed(
    lines: Sequence[_Line], capacity: IntArray
) -> tuple[IntArray, dict[int, _Priced]]:
    """Price of a unit of each resource, in quanta, >= 0: the duals of the linear relaxation; and lines at them, by id.

    Any prices are valid; these keep the search small.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    different = list({id(line): line for line in lines}.values())
    place = {id(line): row for row, line in enumerate(different)}
    members = np.bincount([place[id(line)] for line in lines]).astype(np.float64)
    corners = [line.corners() for line in different]
    rows = np.repeat(np.arange(len(different)), [len(ranks) for ranks in corners])
    use = np.concatenate(
        [line.use[at] for line, at in zip(different, corners, strict=True)]
    )
    scores = np.concatenate(
        [line.scores[at] for line, at in zip(different, corners, strict=True)]
    )
    scale = max(float(np.abs(scores).max()), 1.0)
    columns = np.arange(len(rows))
    one = csr_array(
        (np.ones(len(rows)), (rows, columns)), shape=(len(different), len(rows))
    )
    relaxed = linprog(
        -scores / scale,
        A_ub=csr_array(use.T.astype(np.float64)),
        b_ub=capacity,
        A_eq=one,
        b_eq=members,
        bounds=(0, None),
        method="highs",
    )
    prices, means = (
        np.zeros(len(capacity), dtype=np.int64),
        np.zeros((len(different), len(capacity))),
    )
    if relaxed.success:
        duals: FloatArray = np.maximum(-relaxed.ineqlin.marginals * scale, 0.0)
        # All of a resource is not worth more than what is at stake; larger prices could overflow.
        ceiling = 2.0**SCORE_BITS / (np.maximum(capacity, 1) * len(capacity))
        prices = np.rint(np.minimum(duals, ceiling)).astype(np.int64)
        np.add.at(means, rows, use * (relaxed.x / members[rows])[:, None])
    return prices, {
        id(line): line.at(prices, mean)
        for line, mean in zip(different, means, strict=True)
    }


@dataclass(frozen=True, eq=False)
class _Priced:
    """The choices of a job, least loss first, of equal losses by rank.

    `best` is the score of the first less its price, `mean` what such a job uses in the relaxation.
    """

    use: IntArray
    losses: IntArray
    ranks: IntArray
    best: int
    mean: FloatArray

    def within(self, bound: int) -> int:
        """Return how many choices lose at most `bound`."""
        return int(np.searchsorted(self.losses, bound, "right"))

    def first(self, able: int) -> Choices:
        """The first so many choices: what they use, losses, ranks."""
        return self.use[:able], self.losses[:able], self.ranks[:able]


class _Vectors(NamedTuple):
    """Vectors of used units: shape (vectors, kinds).

    With what they lose, at `least` with the units that remain unused for certain; and of the last job: which vector was
    before it, and the rank of its choice.
    """

    used: IntArray
    lost: IntArray
    least: IntArray
    before: IntArray
    rank: IntArray

    def near(self, use: FloatArray, prices: IntArray) -> _Vectors:
        """The `BEAM` of least loss, where a unit more or less than `use` counts as one lost."""
        away = np.abs(self.used - use) @ np.maximum(prices, 1)
        best = np.sort(np.argsort(self.least + away, kind="stable")[:BEAM])
        return _Vectors(*(part[best] for part in self))


class _LimitError(Exception):
    """A limit was reached."""


@dataclass(eq=False)
class _Search:
    """The search for the canonical optimum among jobs with these choices.

    `lost` is what the best known allocation loses; allocations that lose less than `excluded` do not exist. `limit`
    says why a search ended without a proof.
    """

    lines: Sequence[_Priced]
    capacity: IntArray
    prices: IntArray
    deadline: float
    lost: int = 0
    excluded: int = 0
    rows: int = 0
    limit: str = ""

    def canonical(self, kept: list[int], of_kept: int) -> list[int]:
        """Ranks of the choices in the canonical optimum; in the best known allocation if a limit is reached."""
        best, self.lost = (
            kept,
            sum(line.best for line in self.lines)
            + int(self.prices @ self.capacity)
            - of_kept,
        )
        with alarm(self.deadline) as stop:
            try:
                first = self._within(self.lost, stop, beam=True)
                if first is not None:
                    best, self.lost = first
                bound = self.lost // FIRST
                while (found := self._within(bound, stop)) is None:
                    self.excluded = bound + 1
                    bound = min(self.lost, max(bound, 1) * WIDEN)
            except _LimitError as reason:
                self.limit = str(reason)
                return best
        return found[0]

    def _within(
        self, bound: int, stop: NDArray[np.uint8], *, beam: bool = False
    ) -> tuple[list[int], int] | None:
        """Return the canonical allocation of the smallest loss, and that loss; None where it is above `bound`.

        With `beam` few vectors are kept, and the allocation is one of little loss.
        """
        if time.monotonic() > self.deadline:
            raise _LimitError(IN_TIME)
        able = [line.within(bound) for line in self.lines]
        ranks = [int(line.ranks[0]) for line in self.lines]
        left = self.capacity.copy()
        for line, choices in zip(self.lines, able, strict=True):
            if choices == 1:
                left -= line.use[0]
        undecided = [j for j, choices in enumerate(able) if choices > 1]
        if (left < 0).any():
            return None
        # What later jobs use at least and at most.
        low, high = np.zeros((2, len(undecided) + 1, len(left)), dtype=np.int64)
        for i, j in reversed(list(enumerate(undecided))):
            use = self.lines[j].use[: able[j]]
            low[i], high[i] = (
                low[i + 1] + use.min(axis=0),
                high[i + 1] + use.max(axis=0),
            )
        none = np.zeros(1, dtype=np.int64)
        vectors = _Vectors(
            none[:, None] * left, none, np.array([self.prices @ left]), none, none
        )
        past: list[_Vectors] = []
        mean, kept = np.zeros(len(left)), 0
        for i, j in enumerate(undecided):
            window = left - low[i + 1], left - high[i + 1]
            vectors = self._add(
                vectors, self.lines[j].first(able[j]), left, window, bound, stop
            )
            if beam:
                mean += self.lines[j].mean
                vectors = vectors.near(mean, self.prices)
            past.append(vectors)
            kept += len(vectors.lost)
            if kept > MAX_VECTORS:
                raise _LimitError(TOO_MANY)
        if not len(vectors.lost) or (least := int(vectors.least.min())) > bound:
            return None
        tied = np.flatnonzero(vectors.least == least)
        for j, each in zip(reversed(undecided), reversed(past), strict=True):
            ranks[j] = int(each.rank[tied].min())
            tied = np.unique(each.before[tied[each.rank[tied] == ranks[j]]])
        return ranks, least

    def _add(
        self,
        vectors: _Vectors,
        choices: Choices,
        left: IntArray,
        window: tuple[IntArray, IntArray],
        bound: int,
        stop: NDArray[np.uint8],
    ) -> _Vectors:
        """The vectors with one more job: within `bound`, and with the most and fewest units of `window`."""
        from bft.milp.exact.knapsack import add_job

        sizes = [units + 1 for units in left.tolist()]
        if math.prod(sizes) > MAX_CODE:
            raise _LimitError(TOO_MANY)
        strides = np.array(
            [math.prod(sizes[:kind]) for kind in range(len(sizes))], dtype=np.int64
        )
        slots = 8 << len(vectors.lost).bit_length()
        while True:
            budget = MAX_ROWS - self.rows
            rows, *parts = add_job(
                vectors.used,
                vectors.lost,
                choices,
                window,
                self.prices,
                bound,
                strides,
                slots,
                budget,
                stop,
            )
            self.rows += abs(rows)
            if stop[0]:
                raise _LimitError(IN_TIME)
            if self.rows > MAX_ROWS or (rows < 0 and slots > MAX_VECTORS):
                raise _LimitError(TOO_MANY)
            if rows >= 0:
                return _Vectors(*parts)
            slots *= 4
