"""First fit of jobs on units of nodes, compiled; imported only when it is used, because Numba loads slowly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np

from bft.replay.logs.times import Whole

COUNTED, LISTED, ALL, SHARED = range(4)
F = TypeVar("F", bound=Callable[..., object])


def _compiled(function: F) -> F:
    try:
        kernel = numba.njit(cache=True)(function)
    except RuntimeError:  # no folder can be written: each run compiles anew
        kernel = numba.njit(function)
    return cast(F, kernel)


@_compiled
def _is_named(
    unit: int, start: int, end: int, bounds: Whole, starts: Whole, reach: Whole
) -> bool:
    """Whether a job names this unit during [start, end)."""
    first = bounds[unit]
    before = first + np.searchsorted(starts[first : bounds[unit + 1]], end)
    return bool(before > first and reach[before - 1] > start)


@_compiled
def _lowest(units: tuple[int, int], job: tuple[int, int], part: int, of: int, until: Whole, used: Whole,
            bounds: Whole, starts: Whole, reach: Whole) -> int:  # fmt: skip
    """Return the lowest unit with room, one that a job names meanwhile only where there is no other; -1: none."""
    found = -1
    for unit in range(units[0], units[1]):
        free = used[unit] > 0 or until[unit] <= job[0]
        if not free or used[unit] + part > of:
            continue
        if not _is_named(unit, job[0], job[1], bounds, starts, reach):
            return unit
        if found < 0:
            found = unit
    return found


@_compiled
def first_fit(
    start: Whole, end: Whole, low: Whole, high: Whole, what: Whole,
    kind: Whole, count: Whole, of: Whole, begin: Whole, numbers: Whole,
    bounds: Whole, starts: Whole, reach: Whole, taken: Whole,
) -> int:  # fmt: skip
    """Give jobs units; returns how many were taken.

    Parameters
    ----------
    start, end, low, high, what
        Of each job on a node, by node and start: when it runs, the first unit of the node and the one after its last,
        and what it holds.
    kind, count, of, begin, numbers
        Of all that is held: a kind, how many units or shares, how many shares a unit has, and where in `numbers` the
        units that it names begin.
    bounds, starts, reach
        Of each unit, where those jobs begin that name it: their starts, ascending, and the latest end up to each.
    taken
        Receives the job, and the unit, of each that is taken.
    """
    until = np.full(len(bounds) - 1, np.iinfo(np.int64).min)
    # How many shares of each unit are held; and until when, of which unit, how many.
    used = np.zeros(len(until), dtype=np.int64)
    shares = np.empty((3, taken.shape[1]), dtype=np.int64)
    alive = got = 0
    for row in range(len(start)):
        still = 0
        for share in range(alive):
            if shares[0, share] > start[row]:
                shares[:, still] = shares[:, share]
                still += 1
            else:
                used[shares[1, share]] -= shares[2, share]
        alive = still
        held = what[row]
        mine, size = kind[held], of[held]
        left = high[row] - low[row] if mine == ALL else count[held]
        while left > 0:
            left -= size
            part = min(size, left + size)
            if mine == ALL:
                unit = low[row] + left
            elif mine == LISTED:
                unit = low[row] + numbers[begin[held] + left]
            else:
                unit = _lowest((low[row], high[row]), (start[row], end[row]), part, size, until, used, bounds, starts,
                               reach)  # fmt: skip
                if unit < 0:
                    break
            if unit >= high[row]:
                continue
            if mine == SHARED:
                shares[0, alive], shares[1, alive], shares[2, alive] = (
                    end[row],
                    unit,
                    part,
                )
                used[unit] += part
                alive += 1
            until[unit] = max(until[unit], end[row])
            taken[0, got], taken[1, got] = row, unit
            got += 1
    return got
