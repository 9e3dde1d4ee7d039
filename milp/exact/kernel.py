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
from bft.milp.jobs import BoolArray, FloatArray, IntArray
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
    line: BoolArray,
    offsets: IntArray,
    held: IntArray,
    kept: IntArray,
    sizes: IntArray,
) -> tuple[IntArray, float, IntArray, IntArray]:
    """Values as whole quanta below the best of their class, less a charge for a change, -NEVER where not allowed.

    Returns
    -------
    score, quantum
        The scores, and what one is worth.
    corners, ends
        Where scores do not lie on a line between their neighbours, ascending; those of class c before ends[c + 1].
    """
    classes = len(held)
    knots, ends, filled = np.empty(len(values), np.int64), _filled(classes + 1, 0), 0
    best, stake, largest = np.empty(classes), 0.0, 0.0
    for c in range(classes):
        best[c] = values[offsets[c]]
        for k in range(offsets[c], offsets[c + 1]):
            if not line[k] and values[k] > -np.inf:
                best[c] = max(best[c], values[k])
                knots[filled] = k
                filled += 1
        ends[c + 1] = filled
        keep = values[offsets[c] + kept[c]]
        stake += (best[c] - keep) * sizes[c]
        largest = max(largest, abs(best[c]), abs(keep))
    # No optimum has what is worth less.
    slack = EQUAL_SUMS * (stake + largest)
    floor, at_stake = np.empty(classes), 0.0
    for c in range(classes):
        floor[c] = best[c] - stake - slack
        worst = best[c]
        for k in knots[ends[c] : ends[c + 1]]:
            if floor[c] <= values[k] < worst:
                worst = values[k]
        at_stake += (best[c] - worst) * sizes[c]
        largest = max(largest, abs(worst))
    at_stake = max(at_stake, largest)
    exponent = int(np.ceil(np.log2(at_stake))) if at_stake > 0 else 0
    quantum = 2.0 ** max(exponent - SCORE_BITS, -1000)
    score = _filled(len(values), -NEVER)
    corners, filled, begin = np.empty(len(values), np.int64), 0, 0
    for c in range(classes):
        base = before = offsets[c]
        for k in knots[begin : ends[c + 1]]:
            if values[k] >= floor[c]:
                whole = np.int64(np.rint((values[k] - best[c]) / quantum))
                score[k] = whole - CHARGE * (k - base != held[c])
            if k > before + 1 and line[k - 1]:
                end = _fill(score, values, before, k, floor[c], best[c], quantum)
                if before < end < k:
                    corners[filled] = end
                    filled += 1
            if score[k] > -NEVER:
                corners[filled] = k
                filled += 1
            before = k
        begin = ends[c + 1]
        ends[c + 1] = filled
    return score, quantum, corners, ends


@compiled
def _fill(
    score: IntArray,
    values: FloatArray,
    a: int,
    b: int,
    floor: float,
    best: float,
    quantum: float,
) -> int:
    """Scores of the counts between two knots on one line, with one whole slope between those that may matter.

    Returns the end of these where it is none of the knots, else one of the knots.
    """
    if values[a] < floor and values[b] < floor:
        return a
    rise = (values[b] - values[a]) / (b - a)
    first, last = a, b
    if values[a] < floor:
        first = max(a + 1, b - int((values[b] - floor) / rise))
    elif values[b] < floor:
        last = min(b - 1, a + int((values[a] - floor) / -rise))
    for k in (first, last):
        if a < k < b:
            value = (
                values[b] - rise * (b - k) if first > a else values[a] + rise * (k - a)
            )
            score[k] = np.int64(np.rint((value - best) / quantum)) - CHARGE
    if last > first:
        slope = (score[last] - score[first]) // (last - first)
        between = score[first + 1 : last]
        for i in range(len(between)):
            between[i] = score[first] + slope * (i + 1)
    return first if first > a else last


@compiled
def _price_of(
    score: IntArray, corners: IntArray, ends: IntArray, offsets: IntArray, sizes: IntArray, capacity: int
) -> int:  # fmt: skip
    """The slope of the concave hulls at which so many units run out, 0 where all can have what they want."""
    # Of each segment of a hull the units, and what each of them raises the score by.
    rise, step = np.empty(len(corners), np.int64), np.empty(len(corners), np.int64)
    hull = np.empty(len(corners), np.int64)
    filled, left, highest = 0, capacity, np.int64(0)
    for c in range(len(sizes)):
        height = 0
        for k in corners[ends[c] : ends[c + 1]]:
            if height and score[k] <= score[hull[height - 1]]:
                continue
            while height > 1:
                a, b = hull[height - 2], hull[height - 1]
                before = float(score[b] - score[a]) * (k - b)
                if before > float(score[k] - score[b]) * (b - a):
                    break
                height -= 1
            hull[height] = k
            height += 1
        left -= (hull[0] - offsets[c]) * sizes[c]
        for i in range(1, height):
            units = hull[i] - hull[i - 1]
            rise[filled] = (score[hull[i]] - score[hull[i - 1]]) // units
            step[filled] = units * sizes[c]
            highest = max(highest, rise[filled])
            filled += 1
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
    score: IntArray, corners: IntArray, ends: IntArray, offsets: IntArray, price: int, capacity: int, sizes: IntArray
) -> tuple[IntArray, IntArray]:  # fmt: skip
    """What choices lose at a price of a unit.

    Between two corners losses rise or fall evenly, so extremes are at corners or beside where one begins to look.

    Returns
    -------
    loss
        Loss of each choice, >= 0; NEVER where not allowed or beyond what others leave.
    free
        The least and the most units without loss of each class, and the least loss of more and of fewer: int64 of shape
        (classes, 4).
    """
    loss, free = _filled(len(score), NEVER), np.empty((len(sizes), 4), np.int64)
    room = capacity
    for c in range(len(sizes)):
        room -= (corners[ends[c]] - offsets[c]) * sizes[c]
    for c in range(len(sizes)):
        least, most = corners[ends[c]], min(offsets[c + 1] - 1, corners[ends[c]] + room)
        last, best = ends[c], -NEVER
        for k in corners[ends[c] : ends[c + 1]]:
            if k <= most:
                best = max(best, score[k] - price * (k - least))
                last += 1
        if score[most] > -NEVER:
            best = max(best, score[most] - price * (most - least))
        # A slice and a count from 0 let the compiler do several at once.
        own, lost = score[least : most + 1], loss[least : most + 1]
        for i in range(len(own)):
            lost[i] = best - (own[i] - price * i) if own[i] > -NEVER else NEVER
        low, high = NEVER, least
        for k in corners[ends[c] : last]:
            if loss[k] == 0:
                low, high = min(low, k), k
        if loss[most] == 0:
            low, high = min(low, most), most
        above = below = NEVER
        if high < most:
            above = min(loss[high + 1], loss[most])
        if low > least:
            below = loss[low - 1]
        for k in corners[ends[c] : last]:
            if k > high:
                above = min(above, loss[k])
            elif k < low:
                below = min(below, loss[k])
        free[c, 0], free[c, 1] = low - offsets[c], high - offsets[c]
        free[c, 2], free[c, 3] = above, below
    return loss, free


@compiled
def _start(
    of: IntArray,
    offsets: IntArray,
    loss: IntArray,
    kept: IntArray,
    price: int,
    capacity: int,
    counts: IntArray,
) -> int:
    """Write an allocation of little loss to `counts`, and return what it loses.

    All keep what they have, or get the fewest units of little loss, then more.
    """
    slack = max(capacity, 1)
    left = capacity
    lost = price * capacity  # where all keep
    for j in range(len(of)):
        base, keeps = offsets[of[j]], kept[of[j]]
        n = 0
        while loss[base + n] > slack:
            n += 1
        counts[j] = n
        left -= n
        lost += loss[base + keeps] - price * keeps
    total = price * left
    for j in range(len(of)):
        base, most = offsets[of[j]], counts[j]
        end = min(offsets[of[j] + 1] - base, counts[j] + left + 1)
        for n in range(counts[j] + 1, end):
            if loss[base + n] <= slack:
                most = n
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
        more[c] = bound // free[c, 2]
        fewer[c] = sizes[c] - bound // free[c, 3]
    # The fewest units of each job; the jobs that have several choices, and the least and most units of these.
    fewest, undecided = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    span, several = np.empty((jobs, 2), np.int64), 0
    left, steps, low_sum, high_sum = capacity, 0, 0, 0
    for j in range(jobs):
        c = of[j]
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
    of: IntArray, sizes: IntArray, offsets: IntArray, values: FloatArray, line: BoolArray, held: IntArray,
    kept: IntArray, capacity: int, most_steps: int, stop: Stop, counts: IntArray, worth: FloatArray,
) -> tuple[bool, int, float]:  # fmt: skip
    """Find the canonical allocation, or one of little loss where it cannot be proven.

    Parameters
    ----------
    of, sizes, offsets, values, line, held, kept
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
    score, quantum, corners, ends = scores(values, line, offsets, held, kept, sizes)
    price = _price_of(score, corners, ends, offsets, sizes, capacity)
    loss, free = _losses(score, corners, ends, offsets, price, capacity, sizes)
    total = _start(of, offsets, loss, kept, price, capacity, counts)
    bound = total if total <= capacity * FIRST else total // FIRST
    excluded, found = 0, 0
    while True:
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
