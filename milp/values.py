"""The value of an allocation: `value` is v_j(n) of docs/model.md, the one place where it is defined.

`fill` calls it once a decision for each job and number of units. All that decides or checks reads the tables that it
fills (`tables.tables_of`), so whoever changes `value`, or gives a problem another one, changes them all. Nothing here
imports Numba, which loads slowly: `fill` is compiled when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import signature
from types import FunctionType

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
        named = getattr(worth, "__name__", repr(worth))
        raise ProblemError(f"{what}, not {named}: {error}") from None


Filled = tuple[FloatArray, IntArray, float]


def fill(
    shape: IntArray, tcup: FloatArray, tcdw: FloatArray, points: FloatArray, stretches: IntArray, ends: IntArray,
    positions: IntArray, rows: IntArray, held: IntArray, kind: IntArray, weight: FloatArray,
    xi: FloatArray, named_ends: IntArray, named: FloatArray,
    units: IntArray, tfwd: float, stall: bool, simple: bool, begin: IntArray, kept: IntArray,
) -> Filled:  # fmt: skip
    """Fill the tables of some jobs, one after another.

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
        Whether units are of one kind and nobody may share them: then the debt is told apart.
    begin, kept
        Filled with where each table begins, and the end of the last; and with the choice with which each job keeps
        what it may.

    Returns
    -------
    values
        The value of choice c (`Problem`) at begin[t] + c, -inf where it is not allowed.
    knots
        The entries of allowed choices but those on a straight part of the job's curve, between their neighbours: no
        count is there where some have ratios of their own. Ascending.
    debt
        What jobs that must shrink pay whatever is decided. It is not in their values, where it would hide differences.
    """
    tables, kinds = len(positions), len(units)
    before = _begins(shape, stretches, ends, positions, rows, units, begin)
    debt = 0.0
    values, filled = np.empty(begin[tables]), 0
    values[:], knots = -np.inf, np.empty(begin[tables], np.int64)
    for t in range(tables):
        j, base = positions[t], begin[t]
        row, now, own, factor = rows[j], held[j], kind[j], weight[j]
        alone, first, names = xi[t, 0], named_ends[t], named_ends[t + 1]
        while shape[row, own] < 0:
            own += 1
        s = shape[row, own]
        up, down, off = tcup[row, own], tcdw[row, own], points[ends[s, 0], OS]
        keeps, rate = _now(points, stretches, ends, s, now, xi[t, 1])
        values[base] = value(off, 1.0, rate, 0, now, up, down, weight[j], tfwd, stall)
        if simple and keeps < now:
            debt += values[base]
            rate = 0.0
            values[base] = value(
                off, 1.0, rate, 0, now, up, down, weight[j], tfwd, stall
            )
            debt -= values[base]
        knots[filled] = base
        filled += 1
        for k in range(kinds):
            s = shape[row, k]
            if s < 0:
                continue
            has, at = now if k == own else 0, base + before[k]
            p, end = ends[s, 0], ends[s + 1, 0]
            up, down = tcup[row, k], tcdw[row, k]
            for i in range(ends[s, 1], ends[s + 1, 1]):
                low, high = stretches[i, 0], min(stretches[i, 1], units[k])
                least = low
                while least <= high:
                    while p + 1 < end and points[p + 1, NS] <= least:
                        p += 1
                    # The counts from `least` to `last` are on this piece of the curve, those from a to b off its ends.
                    a, last, b = low + 1, high, high - 1
                    if points[p, NS] > low:
                        a = int(np.ceil(points[p, NS])) + 1
                    if p + 1 < end and points[p + 1, NS] <= high:
                        last = int(np.ceil(points[p + 1, NS])) - 1
                        b = int(points[p + 1, NS]) - 1
                    shift, height, rise = points[p]
                    # A slice and a count from 0 let the compiler do several at once.
                    run = values[at + least : at + last + 1]
                    if alone < np.inf:
                        for u in range(len(run)):
                            n = least + u
                            objective = rise * (n - shift) + height
                            run[u] = value(
                                objective, alone, rate, n, has, up, down, factor, tfwd, stall
                            )  # fmt: skip
                    for e in range(first, names):
                        n, ratio = int(named[e, 0]), named[e, 1]
                        if least <= n <= last:
                            objective = rise * (n - shift) + height
                            worth = value(
                                objective, ratio, rate, n, has, up, down, factor, tfwd, stall
                            )  # fmt: skip
                            run[n - least] = worth if ratio < np.inf else -np.inf
                    # Ratios of their own bend the line.
                    filled = _add_knots(
                        knots, filled, run, at, least, a, b if first == names else -1, has
                    )  # fmt: skip
                    least = last + 1
        while keeps and values[base + before[own] + keeps] == -np.inf:
            keeps -= 1  # as another `value` may rule it out
        kept[t] = before[own] + keeps if keeps else 0
    return values, knots[:filled], debt


def _add_knots(
    knots: IntArray, filled: int, run: FloatArray, at: int, least: int, a: int, b: int, has: int
) -> int:  # fmt: skip
    """Add the entries of the counts from `least`, but those from a to b that are not beside what the job holds."""
    n = least
    while n < least + len(run):
        if a <= n <= b and abs(n - has) > 1:
            n = min(b, has - 2) + 1 if n < has else b + 1
            continue
        if run[n - least] > -np.inf:
            knots[filled] = at + n
            filled += 1
        n += 1
    return filled


def _begins(
    shape: IntArray, stretches: IntArray, ends: IntArray, positions: IntArray, rows: IntArray, units: IntArray,
    begin: IntArray,
) -> IntArray:  # fmt: skip
    """How many units of earlier kinds there are; `begin` gets where the choices of each table begin."""
    before = np.empty(len(units), np.int64)
    earlier = 0
    for k in range(len(units)):
        before[k] = earlier
        earlier += units[k]
    begin[0] = 0
    for t in range(len(positions)):
        begin[t + 1] = begin[t] + 1
        for k in range(len(units)):
            s = shape[rows[positions[t]], k]
            if s >= 0:
                most = min(stretches[ends[s + 1, 1] - 1, 1], units[k])
                begin[t + 1] = begin[t] + before[k] + most + 1
    return before


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
def filled_by(worth: Value | None) -> Callable[..., Filled]:
    """`fill` compiled with a value function, None for `value`; only with this one the compiled code is kept on disk."""
    from bft.milp.exact.compiled import compiled

    own = compiled(value, keep=False)
    parts = {each.__name__: compiled(each) for each in (_add_knots, _begins, _now)}
    if worth is None:
        worth = own
    elif isinstance(worth, FunctionType):
        # It may call ours.
        names = {
            name: own if each is value else each
            for name, each in worth.__globals__.items()
        }
        python = FunctionType(worth.__code__, names, "worth", None, worth.__closure__)
        worth = compiled(python, keep=False)
    names = {**fill.__globals__, **parts, "value": worth}
    filler = FunctionType(fill.__code__, names, "fill")
    made: Callable[..., Filled] = compiled(filler, keep=worth is own)
    return made
