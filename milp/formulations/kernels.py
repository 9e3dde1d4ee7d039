"""Compiled loops over pairs of jobs; imported only when they are used, because Numba takes its time."""

import numpy as np

from bft.milp.exact.compiled import compiled
from bft.milp.jobs import FloatArray, IntArray


@compiled
def fewest(n_a: int, n_b: int, held_a: int, held_b: int, shared: int) -> int:
    """Return the fewest units in union on which two jobs share that hold so many now, `shared` of them in common."""
    if n_a < held_a and n_b < held_b:
        return max(n_a, n_b, n_a + n_b - shared)
    if n_a < held_a:
        return max(n_b, n_a + held_b - shared)
    if n_b < held_b:
        return max(n_a, n_b + held_a - shared)
    return max(n_a, n_b, held_a + held_b - shared)


@compiled
def may_split(n_a: int, n_b: int, held_a: int, held_b: int, shared: int) -> bool:
    """Tell whether two jobs that share now can both stay active without overlap."""
    if shared == 0:
        return False
    if n_a < held_a and n_b < held_b:
        return n_a + n_b <= held_a + held_b - shared
    return (n_a < held_a and n_a <= held_a - shared) or (
        n_b < held_b and n_b <= held_b - shared
    )


@compiled
def best_together(
    beside_a: FloatArray,
    beside_b: FloatArray,
    apart_a: FloatArray,
    apart_b: FloatArray,
    held_a: int,
    held_b: int,
    shared: int,
    best: FloatArray,
) -> None:
    """Write w(u) of a pair for u = 0 ... to `best`: the best value of both jobs on at most u units in union.

    `beside` are the jobs' tables in this pair, `apart` those by themselves (looked at only if they share now); tables
    cut short allow a job no more.
    """
    units = len(best) - 1
    best[:] = -np.inf
    if shared == 0 and (held_a == 0 or held_b == 0):
        # Both as good as may be on u units: who holds nothing may share whatever the other has or gets.
        top_a, top_b = -np.inf, -np.inf
        for u in range(1, units + 1):
            if u < len(beside_a):
                top_a = max(top_a, beside_a[u])
            if u < len(beside_b):
                top_b = max(top_b, beside_b[u])
            best[u] = top_a + top_b
        return
    for n_a in range(1, len(beside_a)):
        # Two that share nothing now and both shrink have no unit in common.
        for n_b in range(
            held_b + 1 if shared == 0 and n_a < held_a else 1, len(beside_b)
        ):
            union = fewest(n_a, n_b, held_a, held_b, shared)
            value = beside_a[n_a] + beside_b[n_b]
            if union <= units and union != n_a + n_b and value > best[union]:
                best[union] = value
    for n_a in range(1, min(len(beside_a), len(apart_a)) if shared else 0):
        for n_b in range(1, min(len(beside_b), len(apart_b), units - n_a + 1)):
            value = apart_a[n_a] + apart_b[n_b]
            if value > best[n_a + n_b] and may_split(n_a, n_b, held_a, held_b, shared):
                best[n_a + n_b] = value
    for u in range(1, units + 1):
        best[u] = max(best[u], best[u - 1])


@compiled
def all_together(
    values: FloatArray,
    spans: IntArray,
    held: IntArray,
    off: FloatArray,
    begins: IntArray,
) -> FloatArray:
    """Return the gains of many pairs, one after another: `best_together` less what the jobs are worth without units.

    Parameters
    ----------
    values
        All tables.
    spans
        Where in `values` each pair's tables begin and end, in the order of `best_together`: (pairs, 4, 2).
    held
        Units that both jobs of each pair hold, and that they share: (pairs, 3).
    off
        What both are worth without units.
    begins
        Where the gains of each pair begin, and the end of the last.
    """
    gains = np.empty(begins[-1])
    for k in range(len(off)):
        mine = gains[begins[k] : begins[k + 1]]
        best_together(
            values[spans[k, 0, 0] : spans[k, 0, 1]],
            values[spans[k, 1, 0] : spans[k, 1, 1]],
            values[spans[k, 2, 0] : spans[k, 2, 1]],
            values[spans[k, 3, 0] : spans[k, 3, 1]],
            held[k, 0],
            held[k, 1],
            held[k, 2],
            mine,
        )
        mine -= off[k]
    return gains


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
    """Return what is behind the last of `best_together`: n_a, n_b, units in union, and whether the jobs are split.

    Ties go to the fewest units in union, then to the smallest n_a.
    """
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
    """Return the entries on the upper concave hull of their table and of no gain on no unit, ascending.

    Table i is gains[begins[i]:begins[i+1]], an entry for 0, 1, ... units, -inf where not allowed. Only those above 0.
    """
    found = np.empty(len(gains), np.int64)
    filled = 0
    for i in range(len(begins) - 1):
        first = filled
        for entry in range(begins[i] + 1, begins[i + 1]):
            if not gains[entry] > 0.0 or (
                filled > first and gains[entry] <= gains[found[filled - 1]]
            ):
                continue
            while filled > first:
                last = found[filled - 1]
                before = found[filled - 2] if filled > first + 1 else begins[i]
                height = gains[before] if filled > first + 1 else 0.0
                if (gains[last] - height) * (entry - before) > (
                    gains[entry] - height
                ) * (last - before):
                    break
                filled -= 1
            found[filled] = entry
            filled += 1
    return found[:filled]
