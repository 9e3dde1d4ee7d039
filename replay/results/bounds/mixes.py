"""The most valuable allocation at given prices, for every number of idle units: a dynamic programme."""

from __future__ import annotations

import numpy as np

from bft.milp.exact.compiled import compiled
from bft.replay.results.bounds.work import FloatArray, IntArray


@compiled
def _add(
    before: FloatArray, worths: FloatArray, after: FloatArray, size: IntArray
) -> None:
    """Raise `after` to the value of `before` plus one job; `size`: the units of that job, 0 for no job."""
    size[:] = 0
    after[:] = np.maximum(after, before)
    for n in range(1, min(len(worths), len(before))):
        worth = worths[n]
        if worth > 0.0:
            # Slices without branches, so that the compiler uses vector instructions.
            less, here, sizes = before[: len(before) - n], after[n:], size[n:]
            for i in range(len(less)):
                more = less[i] + worth
                better = more > here[i]
                here[i] = more if better else here[i]
                sizes[i] = n if better else sizes[i]


@compiled
def _of_whom_enough(
    rates: FloatArray, prices: FloatArray, members: IntArray, cap: int, units: int
) -> tuple[FloatArray, IntArray, IntArray]:
    """The best value by size among classes with enough jobs, which class has it, and members of the other classes."""
    classes, sizes = rates.shape[0], rates.shape[1]
    best, best_class = np.zeros(sizes), np.zeros(sizes, np.int64)
    scarce = np.zeros(classes, np.int64)
    for c in range(classes):
        smallest = 0
        for n in range(sizes - 1, 0, -1):
            if rates[c, n] > 0.0:
                smallest = n
        if prices[c] <= 0.0 or smallest == 0:
            continue
        if members[c] < (cap if cap > 0 else units // smallest):
            scarce[c] = members[c]
            continue
        for n in range(smallest, sizes):
            if prices[c] * rates[c, n] > best[n]:
                best[n], best_class[n] = prices[c] * rates[c, n], c
    return best, best_class, scarce


@compiled
def _any_number(f: FloatArray, worths: FloatArray, size: IntArray) -> None:
    """Raise the value of each number of units to that of any number of jobs; `size`: of the last, 0 for a free unit."""
    for u in range(1, len(f)):
        top, last = f[u - 1], 0
        for n in range(1, min(len(worths), u + 1)):
            worth = f[u - n] + worths[n]
            if worth > top:
                top, last = worth, n
        f[u], size[u] = top, last


@compiled
def best_mixes(
    rates: FloatArray, prices: FloatArray, members: IntArray, cap: int, levels: IntArray
) -> tuple[FloatArray, FloatArray]:
    """The highest value of at most `cap` jobs on at most n units, for each n of `levels`.

    Parameters
    ----------
    rates
        Samples/s of a job of each class on 0, 1, ... units: shape (classes, sizes + 1).
    prices
        Value of a sample of each class; classes with a price <= 0 are not used.
    members
        Number of jobs of each class.
    cap
        Jobs at once, 0 for any number.
    levels
        Numbers of units, ascending: int64 of shape (levels,).

    Returns
    -------
    worth : float64 of shape (levels,)
    rate : float64 of shape (levels, classes)
        Samples/s of each class in an allocation of that value.

    f_k(u) is the highest value of k jobs on u units. Classes that cannot run out of members together add one job at a
    time, of the best class for its size; each member of another class is added once. Without a cap there is no k
    (`step` 0).
    """
    units, classes = levels[-1], rates.shape[0]
    step = 1 if cap > 0 else 0
    rows = cap + 1 if cap > 0 else 1
    best, best_class, scarce = _of_whom_enough(rates, prices, members, cap, units)
    f = np.zeros((rows, units + 1))
    first = np.zeros((rows, units + 1), np.int64)
    for k in range(step, rows):
        if step:
            _add(f[k - 1], best, f[k], first[k])
        else:
            _any_number(f[k], best, first[k])
    then = np.zeros((scarce.sum(), rows, units + 1), np.int32)
    of = np.repeat(np.arange(classes), scarce)
    added, after = np.empty(units + 1, np.int64), np.empty(units + 1)
    for r in range(len(of)):
        worths = prices[of[r]] * rates[of[r]]
        for k in range(rows - 1, step - 1, -1):
            after[:] = f[k]
            _add(f[k - step], worths, after, added)
            f[k] = after
            then[r, k] = added
    worth, done = np.empty(len(levels)), np.zeros((len(levels), classes))
    for i in range(len(levels)):
        k, u = rows - 1, levels[i]
        worth[i] = f[k, u]
        for r in range(len(of) - 1, -1, -1):
            n = then[r, k, u]
            if n:
                done[i, of[r]] += rates[of[r], n]
                k, u = k - step, u - n
        while u > 0 and k >= step:
            n = first[k, u]
            if n:
                done[i, best_class[n]] += rates[best_class[n], n]
            k, u = k - step, u - (n if n else 1 - step)
    return worth, done
