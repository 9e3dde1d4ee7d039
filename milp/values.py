"""The value of an allocation: `value` is v_j(n) of docs/model.md, the one place where it is defined.

`fill` calls it once a decision for each job and number of units. All that decides or checks reads the tables that it
fills (`tables.tables_of`), so whoever changes `value`, or gives a problem another one, changes them all. Nothing here
imports Numba, which loads slowly: `fill` is compiled when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import NamedTuple

import numpy as np

from bft.milp.jobs import BoolArray, FloatArray, IntArray
from bft.milp.terms import Arrays
from bft.milp.tolerances import EQUAL_SLOPES

Value = Callable[..., float]
"""A function with the parameters of `value`."""


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


class Ways(NamedTuple):
    """How each table's job runs beside a partner: its ratio, the ratio now, and counts with a ratio of their own."""

    xi: FloatArray
    xi_now: FloatArray
    named_ends: IntArray
    named_units: IntArray
    named_xi: FloatArray


Filled = tuple[FloatArray, BoolArray, IntArray, IntArray, float]


def fill(
    terms: Arrays,
    rows: IntArray,
    held: IntArray,
    kind: IntArray,
    weight: FloatArray,
    ways: Ways,
    units: IntArray,
    tfwd: float,
    stall: bool,
    straight: bool,
    simple: bool,
) -> Filled:
    """Fill the tables of some jobs, one after another.

    Parameters
    ----------
    terms, rows
        The terms, and which job each table is of.
    held, kind, weight, ways
        Of each table: the units that the job holds, their kind, its weight, and how it runs beside a partner.
    units
        Idle units of each kind.
    tfwd, stall
        As for `value`.
    straight
        Whether values of a curve's straight part lie on a straight line, as by our own `value`.
    simple
        Whether units are of one kind and nobody may share them: then `debt` is told apart.

    Returns
    -------
    values, line, begin
        The value of choice c (`Problem`) at begin[t] + c, -inf where it is not allowed, and whether it lies on the
        line between its neighbours.
    kept
        The choice with which each job keeps what it may.
    debt
        What jobs that must shrink pay whatever is decided. It is not in their values, where it would hide differences.
    """
    tables, kinds = len(rows), len(units)
    before, begin = _begins(terms, rows, units)
    kept = np.zeros(tables, np.int64)
    debt = 0.0
    values = np.full(begin[-1], -np.inf)
    line = np.zeros(begin[-1], np.bool_)
    for t in range(tables):
        row, now, own, base = rows[t], held[t], kind[t], begin[t]
        while terms.shape[row, own] < 0:
            own += 1
        s = terms.shape[row, own]
        named, named_end = ways.named_ends[t], ways.named_ends[t + 1]
        tcup, tcdw, off = (
            terms.tcup[row, own],
            terms.tcdw[row, own],
            terms.os[terms.ends[s]],
        )
        kept[t], rate = _now(terms, s, now, ways.xi_now[t])
        values[base] = value(off, 1.0, rate, 0, now, tcup, tcdw, weight[t], tfwd, stall)
        if simple and kept[t] < now:
            debt += values[base]
            rate = 0.0
            values[base] = value(
                off, 1.0, rate, 0, now, tcup, tcdw, weight[t], tfwd, stall
            )
            debt -= values[base]
        for k in range(kinds):
            s = terms.shape[row, k]
            if s < 0:
                continue
            has = now if k == own else 0
            p, end = terms.ends[s], terms.ends[s + 1]
            tcup, tcdw = terms.tcup[row, k], terms.tcdw[row, k]
            for i in range(terms.stretch_ends[s], terms.stretch_ends[s + 1]):
                low, high = terms.lows[i], min(terms.highs[i], units[k])
                for n in range(low, high + 1):
                    while p + 1 < end and terms.ns[p + 1] <= n:
                        p += 1
                    bends = n in (low, high) or abs(n - has) <= 1
                    bends |= terms.ns[p] > n - 1
                    bends |= p + 1 < end and terms.ns[p + 1] < n + 1
                    xi = ways.xi[t]
                    for e in range(named, named_end):
                        if ways.named_units[e] == n:
                            xi = ways.named_xi[e]
                        bends |= abs(ways.named_units[e] - n) <= 1
                    if xi == np.inf:
                        continue
                    at = base + before[k] + n
                    objective = terms.slopes[p] * (n - terms.ns[p]) + terms.os[p]
                    values[at] = value(
                        objective, xi, rate, n, has, tcup, tcdw, weight[t], tfwd, stall
                    )
                    line[at] = not bends
        while kept[t] and values[base + before[own] + kept[t]] == -np.inf:
            kept[t] -= 1  # as another `value` may rule it out
        if kept[t]:
            kept[t] += before[own]
        if not straight:
            _straighten(values[base : begin[t + 1]], line[base : begin[t + 1]])
    return values, line, begin, kept, debt


def _begins(
    terms: Arrays, rows: IntArray, units: IntArray
) -> tuple[IntArray, IntArray]:
    """How many units of earlier kinds there are, and where the choices of each table begin."""
    before = np.zeros(len(units), np.int64)
    for k in range(1, len(units)):
        before[k] = before[k - 1] + units[k - 1]
    begin = np.zeros(len(rows) + 1, np.int64)
    for t in range(len(rows)):
        begin[t + 1] = begin[t] + 1
        for k in range(len(units)):
            s = terms.shape[rows[t], k]
            if s >= 0:
                most = min(terms.highs[terms.stretch_ends[s + 1] - 1], units[k])
                begin[t + 1] = begin[t] + before[k] + most + 1
    return before, begin


def _now(terms: Arrays, s: int, now: int, xi: float) -> tuple[int, float]:
    """How many of the units that a job holds it may keep, and its objective per second on them."""
    kept, rate = 0, 0.0
    if now:
        most = min(now, terms.highs[terms.stretch_ends[s + 1] - 1])
        for i in range(terms.stretch_ends[s], terms.stretch_ends[s + 1]):
            if terms.lows[i] <= now:
                kept = min(now, terms.highs[i])
        if kept == most:
            p = terms.ends[s + 1] - 1
            while terms.ns[p] > now:
                p -= 1
            rate = (terms.slopes[p] * (now - terms.ns[p]) + terms.os[p]) / xi
    return kept, rate


def _straighten(values: FloatArray, line: BoolArray) -> None:
    """Take values from the line between their neighbours that another `value` bends."""
    largest = 0.0
    for worth in values:
        if worth > -np.inf:
            largest = max(largest, abs(worth))
    for at in range(1, len(values) - 1):
        if line[at]:
            bend = abs(values[at + 1] - 2 * values[at] + values[at - 1])
            line[at] = bend <= EQUAL_SLOPES * largest


@cache
def filled_by(worth: Value | None) -> Callable[..., Filled]:
    """`fill` compiled with a value function, None for `value`; only with this one the compiled code is kept on disk."""
    from bft.milp.exact.compiled import compiled

    own = compiled(value, keep=False)
    parts = {each.__name__: compiled(each) for each in (_begins, _now, _straighten)}
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
