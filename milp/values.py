"""The value of an allocation: the value tables v_j(n) of docs/model.md, with ξ, and the objective made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from bft.milp.classes import classes_of
from bft.milp.problem import CostModel, FloatArray, Job, Pair, Problem
from bft.milp.tolerances import EQUAL_SUMS

Named = tuple[tuple[int, float], ...]
"""Units and the ratio there, where it differs (`Pair.at_a`)."""


def value_table(
    job: Job,
    current: int,
    units: int,
    tfwd: float,
    cost_model: CostModel,
    *,
    xi: float | FloatArray = 1.0,
    xi_now: float = 1.0,
    given_up: float = 0.0,
) -> FloatArray:
    """v_j(n) for n = 0 ... min(jmax, units): float64, objective units, -inf where n is not allowed.

    `bftrainer`: Tfwd·O(n) - T·r with r = O(current), T = Tcup when n > current, Tcdw when n < current.
    `stall`: max(Tfwd - T, 0)·O(n) for n != current. Both are multiplied by the job's weight (docs/model.md).
    `xi` divides the O(n) of one unit and more, `xi_now` the current rate: a sharing job is slower by that ratio.
    An array gives the ratio for n = 0 ... min(jmax, units), infinite where n is not allowed; with several rows of
    ratios the result has a table in each. `given_up` is the rate on units of another kind, which the job leaves for
    these: under `bftrainer` that costs Tcup·given_up. `exact.scores` computes the same in compiled code, bit by bit.

    >>> job = Job("a", 1, 4, ns=[0, 4], os=[0, 40], tcup=20.0, tcdw=10.0)
    >>> value_table(job, current=1, units=4, tfwd=120.0, cost_model="bftrainer").tolist()
    [-100.0, 1200.0, 2200.0, 3400.0, 4600.0]
    """
    max_units = min(job.jmax, units)
    values = tfwd * job.table_to(max_units)
    ratios: float | FloatArray | None = None
    if isinstance(xi, np.ndarray):
        values, ratios = np.broadcast_to(values, xi.shape).copy(), xi[..., 1:]
    elif xi != 1.0:
        ratios = xi
    if ratios is not None:
        values[..., 1:] /= ratios
    if cost_model == "bftrainer":
        rate = job.rate(current) / xi_now
        if rate:
            values[..., :current] -= job.tcdw * rate
            values[..., current + 1 :] -= job.tcup * rate
    else:
        values[..., :current] *= max(tfwd - job.tcdw, 0.0) / tfwd
        values[..., current + 1 :] *= max(tfwd - job.tcup, 0.0) / tfwd
    if job.weight != 1.0:
        values *= job.weight
    if given_up and cost_model == "bftrainer":
        values -= job.weight * job.tcup * given_up
    first = 1
    for low, high in job.stretches:
        values[..., first:low] = -np.inf
        first = high + 1
    if ratios is not None:
        values[..., 1:][np.isinf(ratios)] = -np.inf
    return values


def value_tables(problem: Problem) -> list[FloatArray]:
    """The value table of every job without sharing, in the order of the problem; read-only.

    Interchangeable jobs have one table in common. Entry c is the value of choice c (`Problem`), -inf where it is not
    allowed: where all units are alike, that is v_j(c).
    """
    classes = classes_of(problem)
    tables = [table_of(problem, j) for j in classes.first]
    return [tables[c] for c in classes.of.tolist()]


def table_of(problem: Problem, j: int, pair: Pair | None = None) -> FloatArray:
    """The value table of job j without sharing, or with its partner in `pair`."""
    if problem.several_kinds:
        return _table_on_kinds(problem, j)
    if pair is None:
        return _slowed(problem, j, 1.0)
    named = pair.named(j)
    return _slowed(
        problem,
        j,
        _ratios(problem, j, [(pair.xi(j), named)])[0] if named else pair.xi(j),
    )


def _table_on_kinds(problem: Problem, j: int) -> FloatArray:
    """The value table of job j over the choices of all kinds, one kind after another."""
    holds, held, tfwd, model = (
        problem.jobs[j],
        problem.current[j],
        problem.tfwd,
        problem.cost_model,
    )
    table: FloatArray = np.full(problem.units + 1, -np.inf)
    table[0] = value_table(holds, held, 0, tfwd, model)[0]
    rate = holds.rate(held)
    for side in problem.sides(j):
        own = value_table(
            side.job,
            side.held,
            side.units,
            tfwd,
            model,
            given_up=0.0 if side.held else rate,
        )
        table[side.first + 1 : side.first + len(own)] = own[1:]
    return table


def _slowed(problem: Problem, j: int, xi: float | FloatArray) -> FloatArray:
    """Return the value table of job j at given interference ratios."""
    job, held, now = (
        problem.jobs[j],
        problem.current[j],
        problem.partner(j) if problem.pairs else None,
    )
    xi_now = 1.0 if now is None else now.xi(j, held)
    return value_table(
        job, held, problem.units, problem.tfwd, problem.cost_model, xi=xi, xi_now=xi_now
    )


def _ratios(
    problem: Problem, j: int, ways: Sequence[tuple[float, Named]]
) -> FloatArray:
    """The ratios of job j on each number of units that its table has, a row for each of these partners."""
    max_units = min(problem.jobs[j].jmax, problem.units)
    ratios = np.repeat(np.array([[xi] for xi, _ in ways]), max_units + 1, axis=1)
    for row, (_, named) in zip(ratios, ways, strict=True):
        for units, ratio in named:
            if units <= max_units:
                row[units] = ratio
    return ratios


class Tables:
    """The value tables of a problem's jobs, alone and beside each partner, all made once; read-only.

    Jobs of one class have a table in common, and one beside all partners that slow them down alike.

    Attributes
    ----------
    values
        All tables, one after another (`place`).
    idle
        What each job is worth that holds no units and gets none; 0 for one that holds some. float64, one per job.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.classes = classes = classes_of(problem)
        self._of: list[int] = classes.of.tolist()
        self._places: list[dict[tuple[float, Named], tuple[int, int]]] = [
            {(1.0, ()): (0, 0)} for _ in classes.first
        ]
        for pair in problem.pairs:
            self._places[self._of[pair.a]][pair.xi_a, pair.at_a] = 0, 0
            self._places[self._of[pair.b]][pair.xi_b, pair.at_b] = 0, 0
        made, end = [np.empty(0)], 0
        for j, places in zip(classes.first, self._places, strict=True):
            tables = _slowed(problem, j, _ratios(problem, j, list(places)))
            made.append(tables.ravel())
            for way in places:
                places[way] = end, end + tables.shape[1]
                end += tables.shape[1]
        self.values: FloatArray = np.concatenate(made)
        off = [
            0.0 if problem.current[j] else float(self.of(j)[0]) for j in classes.first
        ]
        self.idle: FloatArray = np.array(off)[classes.of]

    def of(self, j: int, pair: Pair | None = None) -> FloatArray:
        """The value table of job j without sharing, or with its partner in `pair`."""
        begin, end = self.place(j, pair)
        return self.values[begin:end]

    def place(self, j: int, pair: Pair | None = None) -> tuple[int, int]:
        """Return where the table of job j, beside its partner in `pair`, begins and ends in `values`."""
        return self._places[self._of[j]][
            (1.0, ()) if pair is None else (pair.xi(j), pair.named(j))
        ]


@lru_cache(maxsize=2)
def tables_of(problem: Problem) -> Tables:
    """The tables of a problem; cached, because several parts of a search for its optimum need them."""
    return Tables(problem)


def total_value(tables: Sequence[FloatArray], choices: Sequence[int]) -> float:
    """Sum of the values of choices, correctly rounded: equal ones give equal bits, in any order and on any Python.

    >>> total_value([np.array([0.0, 10.0]), np.array([0.0, 5.0, 7.0])], (1, 2))
    17.0
    """
    return math.fsum(float(table[c]) for table, c in zip(tables, choices, strict=True))


def tamed(problem: Problem) -> Problem:
    """Return a problem with extremely large costs lowered to a size that still rules out a change.

    A coefficient of 1e9 times the total value makes a solver's other coefficients vanish in its tolerances. A change
    that costs more than twice what all jobs together can gain is never part of an optimum, so its exact cost does not
    matter. A job that holds more than it may keep must pay for a change: that shifts all answers by the same amount.
    """
    modest = all(
        max(job.tcup, job.tcdw) <= problem.tfwd
        for job in map(problem.jobs.__getitem__, problem.holders)
    )
    # With several kinds `hopeful` leaves such changes out.
    if modest or problem.cost_model != "bftrainer" or problem.several_kinds:
        return problem
    rates, stake, largest = [], 0.0, 0.0
    for j, (job, held) in enumerate(zip(problem.jobs, keep(problem), strict=True)):
        min_units, max_units = max(job.jmin, 1), min(job.jmax, problem.units)
        between = job.ns[(job.ns > min_units) & (job.ns < max_units)]
        counts = np.concatenate(
            ([0.0], [min_units, max_units] if min_units <= max_units else [], between)
        )
        curve = np.interp(counts, job.ns, job.os) * (problem.tfwd * job.weight)
        best = max(
            float(curve.max()), 0.0 if problem.pairs else -np.inf
        )  # sharing raises negative values up to 0
        now = problem.partner(j) if problem.pairs else None
        kept = float(np.interp(float(held), job.ns, job.os)) * problem.tfwd * job.weight
        rate = job.weight * job.rate(problem.current[j])
        if now is not None:
            named = (now.xi(j), *(ratio for _, ratio in now.named(j)))
            kept = min(kept, kept / max(ratio for ratio in named if np.isfinite(ratio)))
            if not np.isfinite(
                named
            ).all():  # who may not share on what it keeps may have to stop
                kept = min(kept, float(job.os[0]) * problem.tfwd * job.weight)
            rate /= now.xi(j, problem.current[j])
        rates.append(rate)
        stake += best - kept + max(0.0, -rate) * max(job.tcup, job.tcdw)
        largest = max(
            largest, float(np.abs(curve).max()), abs(kept), rate * problem.tfwd
        )
    never = 2.0 * stake + largest
    if all(
        rate * max(job.tcup, job.tcdw) <= never
        for rate, job in zip(rates, problem.jobs, strict=True)
    ):
        return problem
    jobs = [
        replace(job, tcup=min(job.tcup, never / rate), tcdw=min(job.tcdw, never / rate))
        if rate > 0
        else job
        for rate, job in zip(rates, problem.jobs, strict=True)
    ]
    return problem.with_jobs(jobs)


def hopeful(tables: Sequence[FloatArray], kept: Sequence[int]) -> list[FloatArray]:
    """The tables without what no optimum can contain, however much the other jobs gain: it has the value -inf.

    So a cost of 1e9 times the total value does not make other values vanish in a solver's tolerances. `kept` are
    choices that all jobs can have together (`keep`).
    """
    best = [float(table.max()) for table in tables]
    keeping = [float(table[c]) for table, c in zip(tables, kept, strict=True)]
    stake = math.fsum(high - value for high, value in zip(best, keeping, strict=True))
    # Rounding must not exclude an optimum.
    stake += EQUAL_SUMS * (stake + max(map(abs, [*best, *keeping]), default=0.0))
    return [
        np.where(table >= high - stake, table, -np.inf)
        for table, high in zip(tables, best, strict=True)
    ]


def keep(problem: Problem) -> tuple[int, ...]:
    """Choices with which every job keeps what it has, as far as its bounds allow: a lower bound of any optimum.

    >>> a, b = (Job(name, 1, 4, ns=[0, 1, 4], os=[0, 10, 30], tcup=20.0, tcdw=10.0) for name in "ab")
    >>> keep(Problem(units=5, tfwd=120.0, jobs=(a, b), current=(1, 0)))
    (1, 0)
    """
    choices = [0] * len(problem.jobs)
    for j in problem.holders:
        kept = problem.jobs[j].at_most(problem.current[j])
        choices[j] = problem.choice(problem.held_kind(j), kept)
    return tuple(choices)


def largest_value(tables: Sequence[FloatArray]) -> float:
    """The largest magnitude in the tables: rounding errors of a solver are relative to it."""
    different = {id(table): table for table in tables}.values()
    return max(
        (float(np.abs(table[table > -np.inf]).max()) for table in different),
        default=0.0,
    )


def complaint(
    problem: Problem, tables: Sequence[FloatArray], choices: Sequence[int]
) -> str:
    """Why `choices` are infeasible; an empty string if they are feasible."""
    if len(choices) != len(problem.jobs):
        return f"{len(choices)} counts for {len(problem.jobs)} jobs"
    for job, table, choice in zip(problem.jobs, tables, choices, strict=True):
        if 0 <= choice < len(table) and table[choice] > -np.inf:
            continue
        if problem.several_kinds:
            return f"job {job.name!r} gets choice {choice} of units by kind, which it may not have"
        allowed = [job.jmin, len(table) - 1] if job.sizes is None else [*job.sizes]
        return f"job {job.name!r} gets {choice} units, outside 0 and {allowed}"
    if problem.several_kinds:
        return _overspent(problem, choices)
    if sum(choices) > problem.units:
        return f"{sum(choices)} units given, {problem.units} idle"
    return ""


def _overspent(problem: Problem, choices: Sequence[int]) -> str:
    """Say of which kind more units are given than are idle; an empty string if of none."""
    counts, kinds = problem.named(choices)
    idle = {} if problem.kinds is None else problem.kinds.units
    for name, units in idle.items():
        given = sum(n for n, kind in zip(counts, kinds, strict=True) if kind == name)
        if given > units:
            return f"{given} units of kind {name!r} given, {units} idle"
    return ""
