"""Which jobs on how many units are worth most at given prices, for every number of idle units: a dynamic programme."""

from __future__ import annotations

import numpy as np

from bft.milp.exact.compiled import compiled
from bft.replay.results.bounds.supply import FloatArray, IntArray


@compiled
def _add(before: FloatArray, worths: FloatArray, after: FloatArray, size: IntArray) -> None:
    """Raise `after` to the worth of `before` and one job more; `size`: on how many units that runs, 0 for none."""
    size[:] = 0
    after[:] = np.maximum(after, before)
    for n in range(1, min(len(worths), len(before))):
        worth = worths[n]
        if worth > 0.0:
            # Slices and no branch: it runs on several numbers at a time.
            less, here, sizes = before[: len(before) - n], after[n:], size[n:]
            for i in range(len(less)):
                more = less[i] + worth
                better = more > here[i]
                here[i] = more if better else here[i]
                sizes[i] = n if better else sizes[i]


@compiled
def best_mixes(
    rates: FloatArray, prices: FloatArray, members: IntArray, cap: int, levels: IntArray
) -> tuple[FloatArray, FloatArray]:
    """The most worth of at most `cap` jobs on at most so many units, for each of `levels`.

    Parameters
    ----------
    rates
        Samples/s of a job of each class on 0, 1, ... units: shape (classes, sizes + 1).
    prices
        Worth of a sample of each class; those <= 0 are not used.
    members
        Jobs of each class.
    cap
        Jobs at once, 0 for any number.
    levels
        Numbers of units, ascending: int64 of shape (levels,).

    Returns
    -------
    worth : float64 of shape (levels,)
    rate : float64 of shape (levels, classes)
        Samples/s of each class in an allocation that is worth as much.

    f_k(u) is the most worth of k jobs on u units. Classes with so many members that nobody runs out of them add one job
    of the best of them at a time; each member of another class is added once. Without a cap, k is left away (`step` 0).
    """
    units, classes, sizes = levels[-1], rates.shape[0], rates.shape[1] - 1
    step = 1 if cap > 0 else 0
    rows = cap + 1 if cap > 0 else 1
    # The best of the classes of which there are enough, by size.
    best, who = np.zeros(sizes + 1), np.zeros(sizes + 1, np.int64)
    scarce = np.zeros(classes, np.int64)
    for c in range(classes):
        if prices[c] <= 0.0:
            continue
        least = 0
        for n in range(1, sizes + 1):
            if rates[c, n] > 0.0:
                least = n
                break
        if least == 0:
            continue
        if members[c] >= (cap if cap > 0 else units // least):
            for n in range(least, sizes + 1):
                if prices[c] * rates[c, n] > best[n]:
                    best[n], who[n] = prices[c] * rates[c, n], c
        else:
            scarce[c] = members[c]
    rounds = scarce.sum()
    f = np.zeros((rows, units + 1))
    first = np.zeros((rows, units + 1), np.int64)
    for k in range(step, rows):
        if step:
            _add(f[k - 1], best, f[k], first[k])
            continue
        for u in range(1, units + 1):  # a job more on top of any number of them
            top, size = f[k, u - 1], 0
            for n in range(1, min(sizes, u) + 1):
                worth = f[k, u - n] + best[n]
                if worth > top:
                    top, size = worth, n
            f[k, u], first[k, u] = top, size
    then = np.zeros((rounds, rows, units + 1), np.int32)
    of = np.zeros(rounds, np.int64)
    added = np.empty(units + 1, np.int64)
    after = np.empty(units + 1)
    at = 0
    for c in range(classes):
        worths_of_size = prices[c] * rates[c]
        for _ in range(scarce[c]):
            of[at] = c
            changed = False
            for k in range(rows - 1, step - 1, -1):
                after[:] = f[k]
                _add(f[k - step], worths_of_size, after, added)
                f[k] = after
                then[at, k] = added
                if added.any():
                    changed = True
            at += 1
            if not changed:
                break
    worths, done = np.empty(len(levels)), np.zeros((len(levels), classes))
    for i in range(len(levels)):
        k, u = rows - 1, levels[i]
        worths[i] = f[k, u]
        for r in range(at - 1, -1, -1):
            n = then[r, k, u]
            if n:
                done[i, of[r]] += rates[of[r], n]
                k, u = k - step, u - n
        while u > 0 and k >= step:
            n = first[k, u]
            if n:
                done[i, who[n]] += rates[who[n], n]
            k, u = k - step, u - (n if n else 1 - step)
    return worths, done
