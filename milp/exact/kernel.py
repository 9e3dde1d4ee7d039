"""The compiled exact dynamic programme (DP): scores of classes of jobs, a price of a unit, and a knapsack.

The values v_j(n) come as tables (`values.fill`). A value is a float, and the last bits of a sum of floats depend on the
order of adding. So values become scores, whole multiples of a quantum q. Let S be the larger of two numbers, rounded up
to a power of two: the sum over jobs of best minus worst value, and the largest value. Then

    q = S / 2^60        score_j(n) = (v_j(n) - max v_j) / q, rounded, - [n != units held] · 2^14

so a job changes only if it gains at least 2^14 q = S / 2^46; rounding errors are smaller. Between two breakpoints of
v_j the score is linear with a whole slope, rounded down. Counts that no optimum can contain are left out, also of S.

For a price λ of a unit, a whole number, let the loss of giving job j n units be
max_m (s_j(m) - λm) - (s_j(n) - λn) >= 0. The scores of any allocation add up to

    sum_j max_m (s_j(m) - λm) + λN  -  sum of losses  -  λ · units left over

so the best allocation has the smallest total loss. λ is the slope of the scores' concave hulls at which the units run
out: then almost every job has few choices with a small loss, and within a bound on the total loss a small knapsack over
these remains (the core of Dyer and of Pisinger). The bound rises until there is an allocation within it.

Arrays of all classes stand one after the other: the entry of class c for n units is `offsets[c] + n`. Compiled
functions are in one file, because Numba looks at the file of the called function alone to tell whether its cache is
stale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bft.milp.exact.compiled import compiled
from bft.milp.jobs import FloatArray, IntArray
from bft.milp.tolerances import CHARGE_QUANTA, EQUAL_SUMS, SCORE_BITS

# The quanta that a changed job is charged, as compiled code wants them.
CHARGE = np.int64(CHARGE_QUANTA)
# Larger than any loss that matters; two of them can be added without overflow.
NEVER = np.int64(2**62 - 1)
# The first bound on the loss, as a part of that of the first allocation, and the factor to the next bound.
FIRST, WIDEN = 64, 2
Stop = NDArray[np.uint8]


@compiled
def _filled(length: int, number: int | np.int64) -> IntArray:
    """An array of one number; NumPy's own take longer to compile."""
    array = np.empty(length, np.int64)
    array[:] = number
    return array


@compiled
def scores(
    values: FloatArray,
    knots: IntArray,
    offsets: IntArray,
    held: IntArray,
    kept: IntArray,
    sizes: IntArray,
) -> tuple[float, IntArray, IntArray, IntArray, IntArray]:
    """Values as whole quanta below the best of their class, less a charge for a change, where they may matter.

    Returns
    -------
    quantum
        What a score of one is worth.
    corners, ends
        Entries that may matter and between which scores lie on lines, ascending; those of class c before ends[c + 1].
        On a line that falls to what does not matter, no count is as good as the fewer units where it begins.
    score, slope
        Of each corner its score, and what each count up to the next corner adds; -NEVER where none of these may matter.
    """
    ends = _filled(len(sizes) + 1, 0)
    best, floor = np.empty(len(sizes)), np.empty(len(sizes))
    quantum = _stakes(values, knots, offsets, kept, sizes, ends, best, floor)
    per = 1.0 / quantum  # exact, as it is a power of two
    most = 2 * len(knots)
    corners, score = np.empty(most, np.int64), np.empty(most, np.int64)
    slope, filled, begin = _filled(most, -NEVER), 0, 0
    for c in range(len(sizes)):
        before = offsets[c]
        for k in knots[begin : ends[c + 1]]:
            if values[k] >= floor[c]:
                joined = k > before + 1 and values[k - 1] > -np.inf
                if joined and values[before] < floor[c]:
                    # Of the line between two knots only the end matters.
                    rise = (values[k] - values[before]) / (k - before)
                    first = max(before + 1, k - int((values[k] - floor[c]) / rise))
                    worth = values[k] - rise * (k - first) - best[c]
                    joined = first < k
                    if joined:
                        corners[filled] = first
                        score[filled] = np.int64(np.rint(worth * per)) - CHARGE
                        filled += 1
                corners[filled] = k
                score[filled] = np.int64(np.rint((values[k] - best[c]) * per))
                score[filled] -= CHARGE * (k - offsets[c] != held[c])
                if joined:
                    more = score[filled] - score[filled - 1]
                    slope[filled - 1] = more // (k - corners[filled - 1])
                filled += 1
            before = k
        begin = ends[c + 1]
        ends[c + 1] = filled
    return quantum, corners, ends, score, slope


@compiled
def _stakes(
    values: FloatArray, knots: IntArray, offsets: IntArray, kept: IntArray, sizes: IntArray,
    ends: IntArray, best: FloatArray, floor: FloatArray,
) -> float:  # fmt: skip
    """Find where the knots of each class end, its best value, and the least that may matter; return the quantum."""
    i, stake, largest = 0, 0.0, 0.0
    for c in range(len(sizes)):
        best[c] = values[offsets[c]]
        while i < len(knots) and knots[i] < offsets[c + 1]:
            best[c] = max(best[c], values[knots[i]])
            i += 1
        ends[c + 1] = i
        keep = values[offsets[c] + kept[c]]
        stake += (best[c] - keep) * sizes[c]
        largest = max(largest, abs(best[c]), abs(keep))
    # No optimum has what is worth less.
    slack = EQUAL_SUMS * (stake + largest)
    at_stake = 0.0
    for c in range(len(sizes)):
        floor[c] = best[c] - stake - slack
        worst = best[c]
        for k in knots[ends[c] : ends[c + 1]]:
            if floor[c] <= values[k] < worst:
                worst = values[k]
        at_stake += (best[c] - worst) * sizes[c]
        largest = max(largest, abs(worst))
    at_stake = max(at_stake, largest)
    exponent = int(np.ceil(np.log2(at_stake))) if at_stake > 0 else 0
    return 2.0 ** max(exponent - SCORE_BITS, -1000)


@compiled
def _price_of(
    corners: IntArray, ends: IntArray, score: IntArray, slope: IntArray, offsets: IntArray, sizes: IntArray,
    capacity: int,
) -> int:  # fmt: skip
    """The slope of the concave hulls at which so many units run out, 0 where all can have what they want."""
    # Of each segment of a hull the corner where it begins, what each unit raises the score by, and the units.
    most = ends[len(sizes)]
    begin, rise = np.empty(most, np.int64), np.empty(most, np.int64)
    step = np.empty(most, np.int64)
    filled, left, highest = 0, capacity, np.int64(0)
    for c in range(len(sizes)):
        last, hull = ends[c], filled
        left -= (corners[last] - offsets[c]) * sizes[c]
        for i in range(last + 1, ends[c + 1]):
            if score[i] <= score[last]:
                continue
            more = slope[i - 1]
            if last < i - 1 or more == -NEVER:
                more = (score[i] - score[last]) // (corners[i] - corners[last])
            while filled > hull and rise[filled - 1] <= more:
                filled -= 1
                last = begin[filled]
                more = (score[i] - score[last]) // (corners[i] - corners[last])
            begin[filled], rise[filled] = last, more
            step[filled] = (corners[i] - corners[last]) * sizes[c]
            filled += 1
            last = i
        if filled > hull:
            highest = max(highest, rise[hull])
    # The highest price at which more units are wanted than there are. It is one of the rises, or 0.
    price, above = np.int64(0), highest + 1
    while above - price > 1:
        middle = (price + above) // 2
        wanted, higher, lower = 0, highest, price
        for i in range(filled):
            if rise[i] >= middle:
                wanted += step[i]
                higher = min(higher, rise[i])
            else:
                lower = max(lower, rise[i])
        if wanted > left:
            price = higher
        else:
            above = lower + 1
    return int(price)


@compiled
def _losses(
    corners: IntArray, ends: IntArray, score: IntArray, slope: IntArray, offsets: IntArray, price: int, capacity: int,
    sizes: IntArray,
) -> tuple[IntArray, IntArray]:  # fmt: skip
    """What choices at corners lose at a price of a unit.

    Between two corners losses rise or fall evenly (`_spread`), so extremes are at corners or beside them.

    Returns
    -------
    loss
        Loss of each choice at a corner, >= 0; NEVER elsewhere, and beyond what others leave.
    free
        The least and the most units without loss of each class, the least loss of more and of fewer, and the most that
        others leave: int64 of shape (classes, 5).
    """
    loss = _filled(offsets[len(sizes)], NEVER)
    free = np.empty((len(sizes), 5), np.int64)
    room = capacity
    for c in range(len(sizes)):
        room -= (corners[ends[c]] - offsets[c]) * sizes[c]
    for c in range(len(sizes)):
        least, most = corners[ends[c]], min(offsets[c + 1] - 1, corners[ends[c]] + room)
        last, best, farthest = ends[c], -NEVER, -NEVER
        while last < ends[c + 1] and corners[last] <= most:
            best = max(best, score[last] - price * (corners[last] - least))
            last += 1
        if slope[last - 1] > -NEVER:
            # `most` lies between two corners.
            farthest = score[last - 1] + slope[last - 1] * (most - corners[last - 1])
            farthest -= price * (most - least)
            best = max(best, farthest)
        # The first and the last corner without loss; the least losses of fewer and of more units.
        low, high, below, above = last, last, NEVER, NEVER
        for i in range(ends[c], last):
            lost = best - (score[i] - price * (corners[i] - least))
            loss[corners[i]] = lost
            if lost:
                above = min(above, lost)
                continue
            if low == last:
                low, below = i, above
            high, above = i, NEVER
        if farthest == best:
            if low == last:
                fewest, below = most, above
            else:
                fewest = corners[low]
            largest, above = most, NEVER
        else:
            fewest, largest = corners[low], corners[high]
            if farthest > -NEVER:
                above = min(above, best - farthest)
            if slope[high] > -NEVER and largest < most:
                above = min(above, price - slope[high])
        if low > ends[c] and slope[low - 1] > -NEVER:
            k, fall = corners[low - 1], price - slope[low - 1]
            below = min(below, loss[k] + fall * (fewest - 1 - k))
        free[c, 0], free[c, 1] = fewest - offsets[c], largest - offsets[c]
        free[c, 2], free[c, 3], free[c, 4] = above, below, most - offsets[c]
    return loss, free


@compiled
def _spread(
    corners: IntArray, ends: IntArray, slope: IntArray, offsets: IntArray, price: int, free: IntArray, bound: int,
    loss: IntArray,
) -> None:  # fmt: skip
    """Write the losses between corners, of classes of which several choices lose at most `bound`."""
    for c in range(len(free)):
        if free[c, 0] == free[c, 1] and bound < min(free[c, 2], free[c, 3]):
            continue
        after = offsets[c] + free[c, 4] + 1
        for i in range(ends[c], ends[c + 1]):
            if slope[i] == -NEVER or corners[i] >= after:
                continue
            first, fall = loss[corners[i]], price - slope[i]
            # A slice and a count from 0 let the compiler do several at once.
            between = loss[corners[i] + 1 : min(corners[i + 1], after)]
            for u in range(len(between)):
                between[u] = first + fall * (u + 1)


@compiled
def _start(
    of: IntArray,
    offsets: IntArray,
    loss: IntArray,
    free: IntArray,
    kept: IntArray,
    price: int,
    capacity: int,
    slack: int,
    counts: IntArray,
) -> int:
    """Write an allocation of little loss to `counts`, and return what it loses.

    All keep what they have, or get the fewest units that lose at most `slack`, then more.
    """
    left = capacity
    lost = price * capacity  # where all keep
    for j in range(len(of)):
        c, base, keeps = of[j], offsets[of[j]], kept[of[j]]
        n = free[c, 0] if slack < free[c, 3] else 0
        while loss[base + n] > slack:
            n += 1
        counts[j] = n
        left -= n
        lost += loss[base + keeps] - price * keeps
    total = price * left
    for j in range(len(of)):
        c, base = of[j], offsets[of[j]]
        most = free[c, 1] if slack < free[c, 2] else offsets[c + 1] - 1 - base
        most = max(counts[j], min(most, counts[j] + left))
        while loss[base + most] > slack:
            most -= 1
        more = most - counts[j]
        left -= more
        total += loss[base + most] - price * more
        counts[j] = most
    if left < 0 or lost < total:
        for j in range(len(of)):
            counts[j] = kept[of[j]]
        return lost
    return total


@compiled
def _narrowed(
    loss: IntArray, base: int, low: int, high: int, bound: int
) -> tuple[int, int]:
    """The range of choices from low to high without those at its ends that lose more than `bound`."""
    while loss[base + low] > bound:
        low += 1
    while loss[base + high] > bound:
        high -= 1
    return low, high


@compiled
def _within(
    of: IntArray, offsets: IntArray, loss: IntArray, free: IntArray, sizes: IntArray, price: int, capacity: int,
    bound: int, most_steps: int, stop: Stop, counts: IntArray,
) -> int:  # fmt: skip
    """Write the canonical allocation of least loss to `counts` if it loses at most `bound`: 1; 0: none; -1: stopped."""
    jobs, rank = len(of), _filled(len(sizes), 0)
    # Canonical allocations give units to first members: how many of these may have more than what is without loss, and
    # from which on they may have less.
    more, fewer = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    for c in range(len(sizes)):
        if free[c, 0] == free[c, 1] and bound < min(free[c, 2], free[c, 3]):
            rank[c] = -1  # all have the same
        else:
            more[c] = bound // free[c, 2]
            fewer[c] = sizes[c] - bound // free[c, 3]
    # The fewest units of each job; the jobs that have several choices, and the least and most units of these.
    fewest, undecided = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    span, several = np.empty((jobs, 2), np.int64), 0
    left, steps, low_sum, high_sum = capacity, 0, 0, 0
    for j in range(jobs):
        c = of[j]
        if rank[c] < 0:
            fewest[j] = free[c, 0]
            left -= free[c, 0]
            continue
        base, member = offsets[c], rank[c]
        rank[c] += 1
        low = 0 if member >= fewer[c] else free[c, 0]
        high = offsets[c + 1] - 1 - base if member < more[c] else free[c, 1]
        low, high = _narrowed(loss, base, low, high, bound)
        fewest[j] = low
        if low == high:
            left -= low
            continue
        undecided[several] = j
        span[several, 0], span[several, 1] = low, high
        several += 1
        low_sum += low
        high_sum += high
        steps += high - low
    if left < low_sum:
        return 0
    if steps * (left + 1) > most_steps:
        return -1
    # The least loss of the jobs so far with u units, those that nobody gets included.
    least = _filled(left + 1, NEVER)
    for u in range(max(0, left - high_sum), left - low_sum + 1):
        least[u] = price * u
    chosen = np.empty((several, left + 1), np.int32)
    for i in range(several):
        if stop[0]:
            return -1
        base, low, high = offsets[of[undecided[i]]], span[i, 0], span[i, 1]
        low_sum -= low
        high_sum -= high
        begin, end = max(0, left - high_sum), left - low_sum
        after = _filled(left + 1, NEVER)
        for n in range(low, high + 1):
            lost = loss[base + n]
            if lost <= bound:
                for u in range(max(begin, n), end + 1):
                    if least[u - n] <= bound and least[u - n] + lost < after[u]:
                        after[u] = least[u - n] + lost
                        chosen[i, u] = n
        least = after
    if least[left] > bound:
        return 0
    for j in range(jobs):
        counts[j] = fewest[j]
    for i in range(several - 1, -1, -1):
        counts[undecided[i]] = chosen[i, left]
        left -= chosen[i, left]
    return 1


@compiled
def search(
    of: IntArray, sizes: IntArray, offsets: IntArray, values: FloatArray, knots: IntArray, held: IntArray,
    kept: IntArray, capacity: int, most_steps: int, stop: Stop, counts: IntArray, worth: FloatArray,
) -> tuple[bool, int, float]:  # fmt: skip
    """Find the canonical allocation, or one of little loss where it cannot be proven.

    Parameters
    ----------
    of, sizes, offsets, values, knots, held, kept
        The classes and their tables (`Classes`, `Tables`), and the units that the jobs of each hold.
    capacity, most_steps, stop
        Idle units; the search ends unproven after so many steps, or when `stop` is set.
    counts, worth
        Filled with the units of each job, and their values but those that are 0.

    Returns
    -------
    proven, filled, more
        Whether it is proven, how many values there are, and how much more another allocation may be worth.
    """
    quantum, corners, ends, score, slope = scores(
        values, knots, offsets, held, kept, sizes
    )
    price = _price_of(corners, ends, score, slope, offsets, sizes, capacity)
    loss, free = _losses(corners, ends, score, slope, offsets, price, capacity, sizes)
    slack = max(capacity, 1)
    _spread(corners, ends, slope, offsets, price, free, slack, loss)
    total = _start(of, offsets, loss, free, kept, price, capacity, slack, counts)
    bound = total if total <= capacity * FIRST else total // FIRST
    excluded, found = 0, 0
    while True:
        _spread(corners, ends, slope, offsets, price, free, bound, loss)
        found = _within(
            of, offsets, loss, free, sizes, price, capacity, bound, most_steps, stop, counts
        )  # fmt: skip
        if found or bound >= total:  # of which the latter cannot be
            break
        excluded = bound + 1
        bound = total if total < 2 * WIDEN * bound else bound * WIDEN
    filled = 0
    for j in range(len(of)):
        worth[filled] = values[offsets[of[j]] + counts[j]]
        filled += worth[filled] != 0.0
    more = quantum * (total - excluded + len(of) * (CHARGE + capacity))
    return found > 0, filled, 0.0 if found > 0 else more


@compiled
def group(
    like: IntArray, numbers: int, alone: IntArray, terms: FloatArray, of: IntArray, first: IntArray, sizes: IntArray
) -> int:  # fmt: skip
    """Number the classes of jobs in the order of their first members; return how many there are.

    Parameters
    ----------
    like, numbers, terms
        A number below `numbers`, and a row of numbers, for each job; equal for jobs of one class.
    alone
        Not 0 for jobs that are a class of their own.
    of, first, sizes
        Filled with the class of each job; the first member of each class, and how many it has.
    """
    jobs, found = len(like), 0
    # Of the classes of one `like`, which differ by terms: the latest, and the one before each.
    latest, before = _filled(numbers, -1), np.empty(jobs, np.int64)
    for j in range(jobs):
        c = -1 if alone[j] else latest[like[j]]
        while c >= 0:
            same = True
            for k in range(terms.shape[1]):
                same &= terms[first[c], k] == terms[j, k]
            if same:
                break
            c = before[c]
        if c < 0:
            c = found
            first[c], sizes[c] = j, 0
            found += 1
            if not alone[j]:
                before[c] = latest[like[j]]
                latest[like[j]] = c
        of[j] = c
        sizes[c] += 1
    return found
