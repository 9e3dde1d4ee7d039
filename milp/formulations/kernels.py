"""Compiled loops over pairs of jobs; imported only when they are used, because Numba takes its time."""

from __future__ import annotations

import numpy as np

from bft.milp.exact.compiled import compiled
from bft.milp.problem import FloatArray, IntArray


@compiled
def fewest(n_a: int, n_b: int, held_a: int, held_b: int, shared: int) -> int:
    """The fewest units in union on which two jobs share (`items.pair_grid`)."""
    if n_a < held_a and n_b < held_b:
        return max(n_a, n_b, n_a + n_b - shared)
    if n_a < held_a:
        return max(n_b, n_a + held_b - shared)
    if n_b < held_b:
        return max(n_a, n_b + held_a - shared)
    return max(n_a, n_b, held_a + held_b - shared)


@compiled
def may_split(n_a: int, n_b: int, held_a: int, held_b: int, shared: int) -> bool:
    """Whether two jobs that share now can both stay active without overlap (`items.pair_grid`)."""
    if shared == 0:
        return False
    if n_a < held_a and n_b < held_b:
        return n_a + n_b <= held_a + held_b - shared
    return (n_a < held_a and n_a <= held_a - shared) or (n_b < held_b and n_b <= held_b - shared)


@compiled
def best_together(
    beside_a: FloatArray,
    beside_b: FloatArray,
    apart_a: FloatArray,
    apart_b: FloatArray,
    held_a: int,
    held_b: int,
    shared: int,
    units: int,
) -> FloatArray:
    """w(u) of a pair for u = 0 ... units: `items.best_by_units` of its `items.pair_grid`, without the grid.

    `beside` are the jobs' tables in this pair, `apart` those by themselves (looked at only if they share now); tables
    cut short allow a job no more.
    """
    best = np.full(units + 1, -np.inf)
    if shared == 0 and (held_a == 0 or held_b == 0):
        # Both as good as may be on u units: who holds nothing may share whatever the other has or gets.
        top_a, top_b = -np.inf, -np.inf
        for u in range(1, units + 1):
            if u < len(beside_a):
                top_a = max(top_a, beside_a[u])
            if u < len(beside_b):
                top_b = max(top_b, beside_b[u])
            best[u] = top_a + top_b
        return best
    for n_a in range(1, len(beside_a)):
        for n_b in range(1, len(beside_b)):
            union = fewest(n_a, n_b, held_a, held_b, shared)
            if union <= units and union != n_a + n_b:
                best[union] = max(best[union], beside_a[n_a] + beside_b[n_b])
            if n_a + n_b > units or n_a >= len(apart_a) or n_b >= len(apart_b):
                continue
            if may_split(n_a, n_b, held_a, held_b, shared):
                best[n_a + n_b] = max(best[n_a + n_b], apart_a[n_a] + apart_b[n_b])
    for u in range(1, units + 1):
        best[u] = max(best[u], best[u - 1])
    return best


@compiled
def best_cell(
    beside_a: FloatArray,
    beside_b: FloatArray,
    apart_a: FloatArray,
    apart_b: FloatArray,
    held_a: int,
    held_b: int,
    shared: int,
    units: int,
) -> tuple[int, int, int, bool]:
    """The cell behind the last of `best_together`, as `items.cell` has it: n_a, n_b, units in union, split."""
    best, found = -np.inf, (0, 0, 0, False)
    for n_a in range(1, len(beside_a)):
        for n_b in range(1, len(beside_b)):
            union = fewest(n_a, n_b, held_a, held_b, shared)
            if union > units or union == n_a + n_b:
                continue
            value = beside_a[n_a] + beside_b[n_b]
            if value > best or (value == best and union < found[2]):
                best, found = value, (n_a, n_b, union, False)
    if shared == 0:
        return found
    for n_a in range(1, min(len(beside_a), len(apart_a))):
        for n_b in range(1, min(len(beside_b), len(apart_b))):
            union = n_a + n_b
            if union > units or not may_split(n_a, n_b, held_a, held_b, shared):
                continue
            value = apart_a[n_a] + apart_b[n_b]
            if value > best or (value == best and union < found[2]):
                best, found = value, (n_a, n_b, union, True)
    return found


@compiled
def on_hull(gains: FloatArray, begins: IntArray) -> IntArray:
    """Which entries lie on the upper concave hull of their table and of no gain on no unit, ascending.

    Table i is gains[begins[i]:begins[i+1]], an entry for 0, 1, ... units, -inf where not allowed. Only those above 0.
    """
    found = np.empty(len(gains), np.int64)
    filled = 0
    for i in range(len(begins) - 1):
        first = filled
        for at in range(begins[i] + 1, begins[i + 1]):
            if not gains[at] > 0.0 or (filled > first and gains[at] <= gains[found[filled - 1]]):
                continue
            while filled > first:
                last = found[filled - 1]
                before = found[filled - 2] if filled > first + 1 else begins[i]
                height = gains[before] if filled > first + 1 else 0.0
                if (gains[last] - height) * (at - before) > (gains[at] - height) * (last - before):
                    break
                filled -= 1
            found[filled] = at
            filled += 1
    return found[:filled]
