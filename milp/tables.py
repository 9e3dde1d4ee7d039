"""What each job of a problem is worth by its value function, as tables, and what is read of them.

The exact programme, the linear models, the check of answers and the bounds read the same tables (`tables_of`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from types import ModuleType
from typing import NamedTuple

import numpy as np

from bft.milp.jobs import BoolArray, FloatArray, IntArray, ProblemError
from bft.milp.problem import Pair, Problem
from bft.milp.tolerances import EQUAL_SLOPES, EQUAL_SUMS
from bft.milp.values import Pool, Scores, filled_by

# How many times what is needed a pool has room for; and who holds it adds to a pool.
POOLED, FILLING = 8, threading.Lock()

Named = tuple[tuple[int, float], ...]
"""Units and the ratio there, where it differs (`Pair.at_a`)."""
Ways = tuple[FloatArray, IntArray, FloatArray]
"""How the job of each table runs beside a partner: `xi`, `named_ends` and `named` of `fill`."""


class Classes(NamedTuple):
    """Classes of interchangeable jobs, in the order of their first members.

    Jobs that hold no units and are worth the same on any number of them are interchangeable. Under the cost model
    `bftrainer` a job without units has no rate to lose, so Tcup and Tcdw do not enter its value. A job that holds
    units, may share them or stands in a limit is a class of its own, except for groups that the problem lists in
    `alike`; so is each job where units are of several kinds.

    Parameters
    ----------
    of
        The class of each job, int64.
    positions
        Position of the first member of each class, int64.
    sizes
        Number of members of each class, int64.
    """

    of: IntArray
    positions: IntArray
    sizes: IntArray

    def members(self) -> list[IntArray]:
        """Positions of the members of each class, ascending."""
        order = np.argsort(self.of, kind="stable")
        return (
            np.split(order, np.cumsum(self.sizes)[:-1]) if len(self.positions) else []
        )


def classes_of(problem: Problem) -> Classes:
    """Group the jobs of a problem."""
    jobs = len(problem.current)
    if problem.several_kinds or problem.limits or not jobs:
        return Classes(np.arange(jobs), np.arange(jobs), np.ones(jobs, dtype=np.int64))
    like = problem.posed.terms.like[problem.posed.rows]
    alone, numbers = problem.counts, len(problem.posed.terms.numbers)
    if problem.pairs or problem.alike:
        alone = alone.copy()
        alone[[j for pair in problem.pairs for j in (pair.a, pair.b)]] = 1
        for jobs_alike in map(list, problem.alike):
            like[jobs_alike] = numbers if alone[jobs_alike[0]] else like[jobs_alike[0]]
            alone[jobs_alike] = 0
            numbers += 1
    of, first, sizes = np.empty((3, jobs), np.int64)
    # By their bits: 0.0 and -0.0 make two classes, whose jobs are decided alike.
    terms = problem.waiting_terms.view(np.int64)
    found = compiled_kernel().group(like, alone, terms, of, first, sizes)
    return Classes(of, first[:found], sizes[:found])


@dataclass(eq=False)
class Tables:
    """The value tables of a problem's jobs, alone and beside each partner; read-only.

    Jobs of one class have a table in common, and one beside all partners that slow them down alike.

    Parameters
    ----------
    classes, owner
        The classes, and the class of each table: first a table of each class alone, then those beside partners.
    pool, bends, at
        The values and the knots of `Pool`, and where those of each table are, as `fill` returns it.
    scores
        `Scores` of these knots that the last search left, at 0; whoever searches takes them out meanwhile.
    begin, kept, debt
        As `fill` returns them.
    beside
        What a job that shares now is worth where it keeps what it may beside its partner, by class.
    places
        The table of a class beside a partner with these ratios.
    """

    classes: Classes
    owner: IntArray
    pool: FloatArray
    bends: IntArray
    at: IntArray
    scores: dict[int, Scores]
    begin: IntArray
    kept: IntArray
    debt: float
    beside: dict[int, float]
    places: dict[tuple[int, float, Named], int]

    @classmethod
    def of_problem(cls, problem: Problem) -> Tables:
        """Fill the tables of a problem."""
        classes, posed = classes_of(problem), problem.posed
        terms, window = posed.terms, (float(problem.tfwd), problem.stall)
        owner, ways = _alone(len(classes.positions))
        positions = classes.positions
        places: dict[tuple[int, float, Named], int] = {}
        if problem.pairs:
            owner, ways = _beside(problem, classes, places)
            positions = positions[owner]
        begin, kept = np.empty(len(owner) + 1, np.int64), np.empty(len(owner), np.int64)
        at = np.empty((len(owner), 5), np.int64)
        arguments = (
            *terms.arrays, positions, posed.rows, problem.counts, problem.held_kinds, posed.weight, *ways,
            problem.capacity, *window, not (problem.several_kinds or problem.pairs),
        )  # fmt: skip
        filler = filled_by(problem.value)
        with FILLING:
            pool = terms.pools.get((problem.value, *window)) or Pool.of(0, 0)
            fits, debt = filler(*arguments, *pool[:-1], begin, at, kept)
            if not fits:
                # The first tables of these jobs may be their last.
                size = int(begin[-1]) * (POOLED if terms.pools else 1)
                pool = Pool.of(size, len(terms))
                terms.pools = {(problem.value, *window): pool}
                _, debt = filler(*arguments, *pool[:-1], begin, at, kept)
        for limit in problem.limits:
            if limit.used(problem.kinds_and_units(kept)[1]) > limit.most:
                kept[list(limit.jobs)] = 0
        beside = {}
        for pair in problem.pairs:
            for j in (pair.a, pair.b) if pair.shared else ():
                c = int(classes.of[j])
                base = at[places[c, pair.xi(j), pair.named(j)], 0]
                worth = pool.values[base + kept[c]]
                # If it may not share on what it keeps it may have to stop.
                beside[c] = float(pool.values[base] if worth == -np.inf else worth)
        made = cls(
            classes, owner, pool.values, pool.knots, at, pool.scores, begin, kept, debt, beside, places
        )  # fmt: skip
        return (
            made
            if problem.value is None
            else _bent(made, [posed[j].name for j in positions])
        )

    def of(self, j: int, pair: Pair | None = None) -> FloatArray:
        """The value table of job j without sharing, or with its partner in `pair`; entry c is that of choice c."""
        begin, end = self.place(j, pair)
        return self.values[begin:end]

    def line_of(self, j: int) -> BoolArray:
        """Whether each entry of `of` without sharing lies on the line between its neighbours."""
        return self.line[slice(*self.place(j))]

    def place(self, j: int, pair: Pair | None = None) -> tuple[int, int]:
        """Return where the table of job j, beside its partner in `pair`, begins and ends in `values`."""
        t = int(self.classes.of[j])
        if pair is not None:
            t = self.places[t, pair.xi(j), pair.named(j)]
        return int(self.begin[t]), int(self.begin[t + 1])

    @cached_property
    def values(self) -> FloatArray:
        """All tables, one after another: table t begins at begin[t]."""
        begins = (self.at[:, 0] - self.begin[:-1]).repeat(np.diff(self.begin))
        values: FloatArray = self.pool[begins + np.arange(len(begins))]
        return values

    @cached_property
    def line(self) -> BoolArray:
        """Whether each of `values` lies on the line between its neighbours."""
        line = self.values > -np.inf
        for base, (_, first, end, *_) in zip(
            self.begin.tolist(), self.at.tolist(), strict=False
        ):
            line[base + self.bends[first:end]] = False
        return line

    @cached_property
    def alone(self) -> list[FloatArray]:
        """The tables of the classes."""
        ends = self.begin[: len(self.classes.positions) + 1].tolist()
        return [self.values[begin:end] for begin, end in pairwise(ends)]

    def value(self, choices: IntArray | Sequence[int]) -> float:
        """The value of choices, one per job, correctly rounded: equal ones give equal bits, in any order of jobs."""
        at = self.begin[self.classes.of] + np.asarray(choices, dtype=np.int64)
        worth = self.values[at]
        return math.fsum(worth[worth != 0.0].tolist()) + self.debt

    @cached_property
    def best(self) -> FloatArray:
        """The best value of each class, alone or beside any partner."""
        highs = np.empty(0)
        if len(self.owner):
            highs = np.maximum.reduceat(self.values, self.begin[:-1])
        best = highs[: len(self.classes.positions)].copy()
        np.maximum.at(best, self.owner, highs)
        return best

    @cached_property
    def ceiling(self) -> float:
        """An upper bound of any allocation: every job at its best."""
        return math.fsum((self.best * self.classes.sizes).tolist()) + self.debt

    @cached_property
    def largest(self) -> float:
        """The largest magnitude: rounding errors of a solver are relative to it."""
        return float(np.abs(self.values[self.values > -np.inf]).max(initial=0.0))

    @cached_property
    def stake(self) -> tuple[float, float]:
        """What all jobs together can gain beyond what they keep, and the largest of these values."""
        count = len(self.classes.positions)
        keeping = self.values[self.begin[:count] + self.kept[:count]]
        for c, worth in self.beside.items():
            keeping[c] = min(keeping[c], worth)
        gain = math.fsum(((self.best - keeping) * self.classes.sizes).tolist())
        return gain, float(np.abs([self.best, keeping]).max(initial=0.0))

    def hopeful(self) -> list[FloatArray]:
        """The tables of the classes without what no optimum can contain, however much the other jobs gain: -inf.

        So a cost of 1e9 times the total value does not make other values vanish in a solver's tolerances.
        """
        gain, largest = self.stake
        gain += EQUAL_SUMS * (gain + largest)  # rounding must not exclude an optimum
        return [
            np.where(table >= high - gain, table, -np.inf)
            for table, high in zip(self.alone, self.best.tolist(), strict=True)
        ]


def tables_of(problem: Problem) -> Tables:
    """The tables of a problem: filled once, then read by all that decides or checks."""
    tables: Tables | None = problem.__dict__.get("tables")
    if tables is None:
        tables = problem.__dict__["tables"] = Tables.of_problem(problem)
    return tables


@cache
def compiled_kernel() -> ModuleType:
    """The compiled part of the exact programme, which Numba loads slowly: imported when it is first used."""
    from bft.milp.exact import kernel

    return kernel


@lru_cache(maxsize=64)
def _alone(count: int) -> tuple[IntArray, Ways]:
    """The class of each table and how it runs, for so many classes without partners."""
    ends = np.zeros(count + 1, np.int64)
    return np.arange(count), (np.ones((count, 2)), ends, np.empty((0, 2)))


def _beside(
    problem: Problem, classes: Classes, places: dict[tuple[int, float, Named], int]
) -> tuple[IntArray, Ways]:
    """The class of each table, alone or beside partners, and how it runs; `places` gets the numbers of the latter."""
    of, count = classes.of.tolist(), len(classes.positions)
    now = np.ones(count)
    for pair in problem.pairs:
        for j in (pair.a, pair.b):
            way = of[j], pair.xi(j), pair.named(j)
            places.setdefault(way, count + len(places))
            if pair.shared:
                now[of[j]] = pair.xi(j, problem.current[j])
    owner = np.append(np.arange(count), [c for c, _, _ in places]).astype(np.int64)
    named = [each for _, _, exceptions in places for each in exceptions]
    lengths = np.cumsum([len(exceptions) for _, _, exceptions in places])
    xi = np.append(np.ones(count), [xi for _, xi, _ in places])
    ends = np.append(np.zeros(count + 1), lengths).astype(np.int64)
    listed = np.array(named, np.float64).reshape(-1, 2)
    return owner, (np.column_stack([xi, now[owner]]), ends, listed)


def _bent(tables: Tables, names: list[str]) -> Tables:
    """Refuse what a value function of a user must not return; return the tables with knots where it bends as well."""
    values, begin, line = tables.values, tables.begin, tables.line
    wrong = ~(values < np.inf)
    wrong[begin[:-1]] |= np.isneginf(values[begin[:-1]])
    if wrong.any():
        first = int(wrong.argmax())
        which = int(begin.searchsorted(first, side="right")) - 1
        units = first - begin[which]
        expected = "a number, or -inf to rule it out" if units else "a number"
        raise ProblemError(
            f"value: expected {expected}, not {values[first]} for job {names[which]!r} with {units} units"
        )
    allowed = values > -np.inf
    finite = np.where(allowed, np.abs(values), 0.0)
    largest = np.maximum.reduceat(finite, begin[:-1])
    found = np.flatnonzero(line)
    with np.errstate(invalid="ignore"):
        bend = np.abs(values[found + 1] - 2 * values[found] + values[found - 1])
    table = np.searchsorted(begin, found, side="right") - 1
    line[found] = bend <= EQUAL_SLOPES * largest[table]
    found = np.flatnonzero(allowed & ~line)
    ends = found.searchsorted(begin)
    bends = found - begin[:-1].repeat(np.diff(ends))
    at = np.column_stack([tables.at[:, 0], ends[:-1], ends[1:]])
    return replace(tables, bends=bends, at=at, scores={})


def rules_all_out(problem: Problem) -> bool:
    """Whether a value function of a user is -inf for all units that any job could get."""
    if problem.value is None:
        return False
    given, usual = tables_of(problem), tables_of(replace(problem, value=None))
    worth, otherwise = (np.isfinite(each.values).sum() for each in (given, usual))
    return bool(worth <= len(given.owner) and otherwise > len(usual.owner))


def tamed(problem: Problem) -> Problem:
    """Return the problem with extremely low values raised to a size that still rules them out.

    A coefficient of 1e9 times the total value makes a solver's other coefficients vanish in its tolerances. A choice
    that costs more than twice what all jobs together can gain is never part of an optimum, so its exact value does not
    matter.
    """
    tables = tables_of(problem)
    gain, largest = tables.stake
    below = 2.0 * gain + 16.0 * largest or np.inf
    floor = (tables.best - below)[tables.owner].repeat(np.diff(tables.begin))
    low = (tables.values < floor) & (tables.values > -np.inf)
    if not low.any():
        return problem
    other = copy(problem)  # what was checked of this one holds for the other
    other.__dict__["tables"] = raised = replace(tables)
    raised.__dict__["values"] = np.where(low, floor, tables.values)
    return other


def complaint(problem: Problem, choices: Sequence[int]) -> str:
    """Why `choices` are infeasible; an empty string if they are feasible."""
    if len(choices) != len(problem.jobs):
        return f"{len(choices)} counts for {len(problem.jobs)} jobs"
    tables = tables_of(problem)
    for j, choice in enumerate(choices):
        table = tables.of(j)
        if 0 <= choice < len(table) and table[choice] > -np.inf:
            continue
        job = problem.jobs[j]
        if problem.several_kinds:
            return f"job {job.name!r} gets choice {choice} of units by kind, which it may not have"
        allowed = [job.jmin, len(table) - 1] if job.sizes is None else [*job.sizes]
        return f"job {job.name!r} gets {choice} units, outside 0 and {allowed}"
    kinds, counts = problem.kinds_and_units(choices)
    given = np.bincount(kinds, counts, len(problem.capacity)).astype(np.int64)
    over = np.flatnonzero(given > problem.capacity)
    if len(over):
        k = int(over[0])
        of_kind = f" of kind {problem.kinds.names[k]!r}" if problem.kinds else ""
        return f"{given[k]} units{of_kind} given, {problem.capacity[k]} idle"
    for limit in problem.limits:
        if limit.used(counts) > limit.most:
            return f"{limit} is exceeded: {limit.used(counts)}"
    return ""


def keep(problem: Problem) -> tuple[int, ...]:
    """Choices with which every job keeps what it has, as far as its bounds and the limits allow.

    That is a lower bound of any optimum. The jobs of a limit that is exceeded keep nothing.

    >>> from bft.milp import Job, Problem
    >>> a, b = (Job(name, 1, 4, ns=[0, 1, 4], os=[0, 10, 30], tcup=20.0, tcdw=10.0) for name in "ab")
    >>> keep(Problem(units=5, tfwd=120.0, jobs=(a, b), current=(1, 0)))
    (1, 0)
    """
    tables = tables_of(problem)
    return tuple(tables.kept[tables.classes.of].tolist())
