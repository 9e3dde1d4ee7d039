"""The compiled kernel of the exact DP; imported only when it is used, because Numba loads slowly."""

from __future__ import annotations

import numpy as np

from bft.milp.exact.compiled import compiled
from bft.milp.problem import IntArray

# The slope of a point after which no count is allowed until the next point (`scores`).
GAP = np.int64(-(2**63))
IMPOSSIBLE = np.int64(-(2**62))


@compiled
def best_counts(
    of: IntArray,
    units: IntArray,
    scores: IntArray,
    slopes: IntArray,
    offsets: IntArray,
    capacity: int,
) -> IntArray:
    """Counts with the highest sum of scores, at most `capacity` units in total; the canonical ones among equals.

    Parameters
    ----------
    of
        The class of each job.
    units, scores, slopes, offsets
        Class c has the points [offsets[c]:offsets[c+1]], as made by `scores.scores`.
    capacity
        Units to distribute.

    Returns
    -------
    int64, one number per job
        Among the highest sums, the counts that give the last job fewest units, then the job before it, and so on.

    Max-plus dynamic programme: f_j(u) = max_n f_{j-1}(u - n) + score_j(n), u up to the units that jobs 0..j can use.
    O(sum over jobs of table length x usable units) time, O(jobs x usable units) memory.
    """
    jobs = len(of)
    first, last = offsets[:-1][of], offsets[1:][of]
    counts = np.empty(jobs, np.int64)
    wanted = 0
    for j in range(jobs):
        best = first[j]
        for k in range(first[j], last[j]):
            if scores[k] > scores[best]:
                best = k
        counts[j] = units[best]
        wanted += units[best]
    if wanted <= capacity:  # enough for all
        return counts

    usable = np.zeros(jobs + 1, np.int64)  # by jobs 0 ... j - 1
    for j in range(jobs):
        usable[j + 1] = min(usable[j] + units[last[j] - 1], capacity)
    # Sums of scores are above -2^61: an impossible sum stays below that, however much is added to it.
    best_score = np.full((jobs + 1, usable[jobs] + 1), IMPOSSIBLE)
    best_score[0] = 0
    for j in range(jobs):
        before, after = best_score[j], best_score[j + 1]
        for u in range(usable[j] + 1, usable[j + 1] + 1):
            before[u] = before[usable[j]]
        for k in range(first[j], last[j]):
            end = units[k] + 1 if slopes[k] == GAP else units[k + 1]
            for n in range(units[k], min(end, usable[j + 1] + 1)):
                score = (
                    scores[k]
                    if n == units[k]
                    else scores[k] + slopes[k] * (n - units[k])
                )
                for u in range(n, usable[j + 1] + 1):
                    candidate = before[u - n] + score
                    if candidate > after[u]:
                        after[u] = candidate

    left = usable[jobs]
    for j in range(jobs - 1, -1, -1):
        # More units than jobs 0 ... j can use change nothing.
        left = min(left, usable[j + 1])
        target = best_score[j + 1, left]
        chosen, k = -1, first[j]
        while chosen < 0:
            end = units[k] + 1 if slopes[k] == GAP else units[k + 1]
            for n in range(units[k], min(end, left + 1)):
                score = (
                    scores[k]
                    if n == units[k]
                    else scores[k] + slopes[k] * (n - units[k])
                )
                if best_score[j, left - n] + score == target:
                    chosen = n
                    break
            k += 1
        counts[j] = chosen
        left -= chosen
    return counts
