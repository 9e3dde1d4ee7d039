"""The value of an allocation: `value` is v_j(n) of docs/model.md, the one place where it is defined.

`fill` calls it once a decision for each job and number of units. All that decides or checks reads the tables that it
fills (`tables.tables_of`), so whoever changes `value`, or gives a problem another one, changes them all. Nothing here
imports Numba, which loads slowly: `fill` is compiled when it is first used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from inspect import signature
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from bft.milp.jobs import FloatArray, IntArray, ProblemError

Value = Callable[..., float]
"""A function with the parameters of `value`."""
# Columns of the points of curves (`Arrays`).
NS, OS, SLOPES = range(3)


def value(
    objective: float,
    xi: float,
    rate: float,
    n: int,
    held: int,
    tcup: float,
    tcdw: float,
    weight: float,
    tfwd: float,
    stall: bool,
) -> float:
    """v(n), the value of giving a job n units for the next Tfwd seconds: plain numbers, as Numba compiles it.

    Parameters
    ----------
    objective
        O(n), objective per second on n units by itself.
    xi
        By how much a partner slows it down; 1 without one, and where n is 0.
    rate
        Objective per second now; 0 where it holds nothing, or cannot run on what it holds.
    n, held
        Units that it gets, and that it holds now. On another kind of units than it holds now, `held` is 0.
    tcup, tcdw, weight, tfwd
        As in `Job` and `Problem`.
    stall
        Whether the cost model is `stall`.

    Examples
    --------
    >>> value(40.0, 1.0, 10.0, 4, 1, 20.0, 10.0, 1.0, 120.0, False)
    4600.0
    """
    lost_s = 0.0
    if n < held:
        lost_s = tcdw
    elif n > held:
        lost_s = tcup
    gained = tfwd * objective / xi
    if stall:
        gained *= max(tfwd - lost_s, 0.0) / tfwd
    else:
        gained -= lost_s * rate
    return gained * weight


def check_value(worth: Value) -> None:
    """Refuse what cannot be called as `value` is, before Numba does so in its own words."""
    parameters = signature(value).parameters
    try:
        signature(worth).bind(*parameters)
    except (TypeError, ValueError) as error:
        what = f"value: expected a function of {', '.join(parameters)}, as bft.milp.value is"
        raise ProblemError(
            f"{what}, not {getattr(worth, '__name__', repr(worth))}: {error}"
        ) from None


class Scores(NamedTuple):
    """What the exact programme makes of tables, for the next search: of each table, in the places of its knots.

    Parameters
    ----------
    whole
        Columns of whole numbers: the choice at each corner, its score, and what each unit up to the next one adds; the
        corners on the concave hull of scores, what each unit from the one before adds, and where the last of them is.
    known, quanta
        At the first knot of a table: its best value and its least; and the quantum of its scores (0: nothing is known,
        < 0: no scores are of use).
    """

    whole: IntArray
    known: FloatArray
    quanta: FloatArray

    @classmethod
    def of(cls, knots: int) -> Scores:
        """Room for tables with so many knots."""
        return cls(
            np.empty((knots, 6), np.int64), np.empty((knots, 2)), np.zeros(knots)
        )


class Pool(NamedTuple):
    """Tables of values, to which more are added; none is changed, so that those of earlier problems stand.

    Parameters
    ----------
    values, knots
        Values by choice, -inf where it is not allowed. The allowed choices but those on a straight part of the job's
        curve, between their neighbours: no count is there where some have ratios of their own. Ascending.
    used
        How many of each are used, shape (2,).
    by_row, weight
        The latest table of each row in the terms: where its values begin, where its knots begin and end, the units held
        (-1: none to take), and how many choices; shape (rows, 5). The job's weight.
    scores
        As in `Tables`.
    """

    values: FloatArray
    knots: IntArray
    used: IntArray
    by_row: IntArray
    weight: FloatArray
    scores: dict[int, Scores]

    @classmethod
    def of(cls, size: int, rows: int) -> Pool:
        """A pool for so many values of jobs with so many rows."""
        return cls(
            np.empty(size), np.empty(size, np.int64), np.zeros(2, np.int64), np.full((rows, 5), -1), np.empty(rows),
            {},
        )  # fmt: skip


def fill(
    shape: IntArray, tcup: FloatArray, tcdw: FloatArray, points: FloatArray, stretches: IntArray, ends: IntArray,
    positions: IntArray, rows: IntArray, held: IntArray, kind: IntArray, weight: FloatArray,
    xi: FloatArray, named_ends: IntArray, named: FloatArray,
    units: IntArray, tfwd: float, stall: bool, simple: bool,
    values: FloatArray, knots: IntArray, used: IntArray, by_row: IntArray, known: FloatArray,
    begin: IntArray, at: IntArray, kept: IntArray,
) -> tuple[bool, float]:  # fmt: skip
    """Fill the tables of some jobs, but those that the pool has.

    Parameters
    ----------
    shape, tcup, tcdw, points, stretches, ends
        The terms (`Arrays`).
    positions
        Which job each table is of.
    rows, held, kind, weight
        Of each job: its row in the terms, the units that it holds, their kind, and its weight.
    xi, named_ends, named
        How each table's job runs beside a partner: its ratio and the ratio now, shape (tables, 2); counts with a ratio
        of their own, shape (counts, 2), those of table t before named_ends[t + 1].
    units
        Idle units of each kind.
    tfwd, stall
        As for `value`.
    simple
        Whether units are of one kind and nobody may share them: then the debt is told apart, and tables may be taken
        from the pool.
    values, knots, used, by_row, known
        The pool (`Pool`), of problems with the same `tfwd` and `stall`.
    begin
        Filled with how many choices the tables before each have, and all.
    at
        Filled with where each table is, as in `by_row`; shape (tables, 5).
    kept
        Filled with the choice with which each job keeps what it may.

    Returns
    -------
    fits
        Whether the tables fit into the pool; if not only `begin` is filled.
    debt
        What jobs that must shrink pay whatever is decided. It is not in their values, where it would hide differences.
    """
    tables, kinds = len(positions), len(units)
    earlier, debt = np.empty(kinds, np.int64), 0.0
    _begins(shape, stretches, ends, positions, rows, units, begin, earlier)
    filled, bends = used
    if filled + begin[tables] > len(values) or len(by_row) < len(shape):
        return False, debt
    for t in range(tables):
        j = positions[t]
        row, now, own, factor = rows[j], held[j], kind[j], weight[j]
        choices, place, last = begin[t + 1] - begin[t], at[t], by_row[row]
        if simple and last[3] == now and last[4] == choices and known[row] == factor:
            kept[t] = now
            for i in range(5):
                place[i] = last[i]
            continue
        place[0], place[1], table = filled, bends, values[filled : filled + choices]
        table[:], knots[bends], bends = -np.inf, 0, bends + 1
        while shape[row, own] < 0:
            own += 1
        s = shape[row, own]
        up, down, off = tcup[row, own], tcdw[row, own], points[ends[s, 0], OS]
        keeps, rate = _now(points, stretches, ends, s, now, xi[t, 1])
        # A literal 0 would have `value` compiled once more.
        idle = value(off, 1.0, rate, earlier[0], now, up, down, factor, tfwd, stall)
        if simple and keeps < now:
            debt += idle
            rate = 0.0
            idle = value(off, 1.0, rate, earlier[0], now, up, down, factor, tfwd, stall)
            debt -= idle
        table[0] = idle
        for k in range(kinds):
            s = shape[row, k]
            if s >= 0:
                bends = _on_kind(
                    points[ends[s, 0] : ends[s + 1, 0]], stretches[ends[s, 1] : ends[s + 1, 1]], units[k],
                    xi[t, 0], named[named_ends[t] : named_ends[t + 1]], rate, now if k == own else 0,
                    tcup[row, k], tcdw[row, k], factor, tfwd, stall, table, earlier[k], knots, bends,
                )  # fmt: skip
        before = earlier[own]
        while keeps and table[before + keeps] == -np.inf:
            keeps -= 1  # as another `value` may rule it out
        kept[t] = before + keeps if keeps else 0
        filled += choices
        place[2], place[3], place[4] = bends, -1, choices
        if simple and keeps == now:
            place[3], known[row] = now, factor
        # Before the row says so: `value` may raise at a later table.
        used[0], used[1] = filled, bends
        for i in range(5):
            last[i] = place[i]
    return True, debt


def _on_kind(
    points: FloatArray, stretches: IntArray, units: int, xi: float, named: FloatArray, rate: float, has: int,
    up: float, down: float, factor: float, tfwd: float, stall: bool,
    table: FloatArray, at: int, knots: IntArray, filled: int,
) -> int:  # fmt: skip
    """Fill the choices of units of one kind, from `at`; return how many knots there are now."""
    p, end = 0, len(points)
    for i in range(len(stretches)):
        low, high = stretches[i, 0], min(stretches[i, 1], units)
        least = low
        while least <= high:
            while p + 1 < end and points[p + 1, NS] <= least:
                p += 1
            # The counts from `least` to `last` are on this piece of the curve, those from a to b off its ends.
            a, last, b = low + 1, high, high - 1
            if points[p, NS] > low:
                a = math.ceil(points[p, NS]) + 1
            if p + 1 < end and points[p + 1, NS] <= high:
                last = math.ceil(points[p + 1, NS]) - 1
                b = int(points[p + 1, NS]) - 1
            shift, height, rise = points[p]
            for n in range(least, last + 1):
                ratio = xi
                for e in range(len(named)):
                    if named[e, 0] == n:
                        ratio = named[e, 1]
                if ratio == np.inf:
                    continue
                worth = value(
                    rise * (n - shift) + height, ratio, rate, n, has, up, down, factor, tfwd, stall
                )  # fmt: skip
                table[at + n] = worth
                # Ratios of their own bend the line.
                bends = not a <= n <= b or abs(n - has) <= 1 or len(named) > 0
                if bends and worth > -np.inf:
                    knots[filled] = at + n
                    filled += 1
            least = last + 1
    return filled


def _begins(
    shape: IntArray, stretches: IntArray, ends: IntArray, positions: IntArray, rows: IntArray, units: IntArray,
    begin: IntArray, earlier: IntArray,
) -> None:  # fmt: skip
    """Find how many choices the tables before each have, and how many units of earlier kinds there are."""
    before, begin[0] = 0, 0
    for k in range(len(units)):
        earlier[k] = before
        before += units[k]
    for t in range(len(positions)):
        begin[t + 1] = begin[t] + 1
        for k in range(len(units)):
            s = shape[rows[positions[t]], k]
            if s >= 0:
                most = min(stretches[ends[s + 1, 1] - 1, 1], units[k])
                begin[t + 1] = begin[t] + earlier[k] + most + 1


def _now(
    points: FloatArray, stretches: IntArray, ends: IntArray, s: int, now: int, xi: float
) -> tuple[int, float]:
    """How many of the units that a job holds it may keep, and its objective per second on them."""
    kept, rate = 0, 0.0
    if now:
        most = min(now, stretches[ends[s + 1, 1] - 1, 1])
        for i in range(ends[s, 1], ends[s + 1, 1]):
            if stretches[i, 0] <= now:
                kept = min(now, stretches[i, 1])
        if kept == most:
            p = ends[s + 1, 0] - 1
            while points[p, NS] > now:
                p -= 1
            rate = (points[p, SLOPES] * (now - points[p, NS]) + points[p, OS]) / xi
    return kept, rate


@cache
def filled_by(worth: Value | None) -> Callable[..., tuple[bool, float]]:
    """`fill` compiled with a value function, None for `value`; only with this one the compiled code is kept on disk."""
    from bft.milp.exact.compiled import compiled

    own = compiled(value, keep=False)
    if worth is None:
        worth = own
    elif isinstance(worth, FunctionType):
        # It may call ours.
        known = {
            name: own if each is value else each
            for name, each in worth.__globals__.items()
        }
        python = FunctionType(worth.__code__, known, "worth", None, worth.__closure__)
        worth = compiled(python, keep=False)
    names: dict[str, Any] = {**fill.__globals__, "value": worth}
    for part in (_begins, _now, _on_kind, fill):
        python = FunctionType(part.__code__, names, part.__name__)
        names[part.__name__] = compiled(python, keep=worth is own)
    made: Callable[..., tuple[bool, float]] = names["fill"]
    return made
