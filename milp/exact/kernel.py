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

Choices of all classes stand one after the other: that of class c with n units is `offsets[c] + n`. Its value stands
where `at` says, in a pool with others (`values.Pool`). From one decision of a replay to the next almost all tables
stay, and mostly the quantum, so scores and hulls stay with their tables (`values.Scores`). Compiled functions are in
one file, because Numba looks at the file of the called function alone to tell whether its cache is stale.
"""

import math

import numpy as np
from numpy.typing import NDArray

from bft.milp.exact.compiled import compiled
from bft.milp.jobs import FloatArray, IntArray
from bft.milp.tolerances import CHARGE_QUANTA, EQUAL_SUMS, SCORE_BITS

# The quanta that a changed job is charged, as compiled code wants them.
CHARGE = np.int64(CHARGE_QUANTA)
# A literal would have `_filled` compiled once more.
NONE = np.int64(0)
# Larger than any loss that matters; two of them can be added without overflow.
NEVER = np.int64(2**62 - 1)
# The first bound on the loss, as a part of that of the first allocation, and the factor to the next bound.
FIRST, WIDEN = 64, 2
# An odd number whose product spreads numbers over a table (the golden ratio times 2^62).
SPREAD = 5734161139222658741
# Columns of whole numbers and of floats of `Scores`.
CORNER, SCORE, SLOPE, VERTEX, RISE, TOP = range(6)
HIGH, LOW = range(2)
Stop = NDArray[np.uint8]


@compiled
def _filled(length: int, number: np.int64) -> IntArray:
    """An array of one number; NumPy's own take longer to compile."""
    array = np.empty(length, np.int64)
    array[:] = number
    return array


@compiled
def _scores(
    values: FloatArray, knots: IntArray, at: IntArray, held: IntArray, kept: IntArray, sizes: IntArray,
    whole: IntArray, known: FloatArray, quanta: FloatArray,
) -> tuple[float, IntArray]:  # fmt: skip
    """Values as whole quanta below the best of their class, less a charge for a change, where they may matter.

    Tables that have scores of this quantum keep them (`Scores`).

    Returns
    -------
    quantum
        What a score of one is worth.
    ends
        How many corners the classes before each have, and all.
    """
    ends = _filled(len(sizes) + 1, NONE)
    quantum, margin = _stakes(values, knots, at, kept, sizes, known, quanta)
    for c in range(len(sizes)):
        first, end = at[c, 1], at[c, 2]
        high = known[first, HIGH]
        matter = known[first, LOW] >= high - margin
        if not (matter and quanta[first] == quantum):
            end = _score(
                values[at[c, 0] :], knots, first, end, held[c], high, high - margin, quantum, whole
            )  # fmt: skip
            quanta[first] = quantum if matter else -1.0
        ends[c + 1] = ends[c] + end - first
    return quantum, ends


@compiled
def _stakes(
    values: FloatArray, knots: IntArray, at: IntArray, kept: IntArray, sizes: IntArray, known: FloatArray,
    quanta: FloatArray,
) -> tuple[float, float]:  # fmt: skip
    """Return the quantum, and how far below the best of its class a value may matter; note extremes of new tables."""
    stake, largest, at_stake = 0.0, 0.0, 0.0
    for c in range(len(sizes)):
        first, table = at[c, 1], values[at[c, 0] :]
        if quanta[first] == 0.0:
            high = low = table[0]
            for k in knots[first : at[c, 2]]:
                high, low = max(high, table[k]), min(low, table[k])
            quanta[first] = -1.0
            known[first, HIGH], known[first, LOW] = high, low
        high, keep = known[first, HIGH], table[kept[c]]
        stake += (high - keep) * sizes[c]
        largest = max(largest, max(abs(high), abs(keep)))
    # No optimum has what is worth less.
    margin = stake + EQUAL_SUMS * (stake + largest)
    for c in range(len(sizes)):
        first = at[c, 1]
        high, worst = known[first, HIGH], known[first, LOW]
        if worst < high - margin:
            table, worst = values[at[c, 0] :], high
            for k in knots[first : at[c, 2]]:
                if high - margin <= table[k] < worst:
                    worst = table[k]
        at_stake += (high - worst) * sizes[c]
        largest = max(largest, abs(worst))
    at_stake = max(at_stake, largest)
    half, exponent = math.frexp(at_stake)
    return math.ldexp(1.0, max(exponent - (half == 0.5) - SCORE_BITS, -1000)), margin


@compiled
def _score(
    table: FloatArray, knots: IntArray, first: int, end: int, now: int, high: float, least: float, quantum: float,
    whole: IntArray,
) -> int:  # fmt: skip
    """Write the corners of a class from `first`, and the concave hull of their scores; return where they end."""
    per, filled = 1.0 / quantum, first  # exact, as it is a power of two
    before, under, last, below = 0, high, 0, CHARGE
    for i in range(first, end):
        k = knots[i]
        worth = table[k]
        if worth >= least:
            joined = k > before + 1 and table[k - 1] > -np.inf
            if joined and under < least:
                # Of the line between two knots only the end matters.
                rise = (worth - under) / (k - before)
                last = max(before + 1, k - int((worth - least) / rise))
                joined = last < k
                if joined:
                    below = round((worth - rise * (k - last) - high) * per) - CHARGE
                    whole[filled, CORNER], whole[filled, SCORE] = last, below
                    filled += 1
            level = round((worth - high) * per) - CHARGE * (k != now)
            whole[filled, CORNER], whole[filled, SCORE] = k, level
            whole[filled, SLOPE] = -NEVER
            if joined:
                whole[filled - 1, SLOPE] = (level - below) // (k - last)
            filled += 1
            last, below = k, level
        before, under = k, worth
    # The vertices of the hull, and what each unit from the one before adds; more than all others at the first.
    top, whole[first, VERTEX], whole[first, RISE] = first, first, NEVER
    for i in range(first + 1, filled):
        if whole[i, SCORE] <= whole[whole[top, VERTEX], SCORE]:
            continue
        while True:
            last = whole[top, VERTEX]
            units = whole[i, CORNER] - whole[last, CORNER]
            more = (whole[i, SCORE] - whole[last, SCORE]) // units
            if whole[top, RISE] > more:
                break
            top -= 1
        top += 1
        whole[top, VERTEX], whole[top, RISE] = i, more
    whole[first, TOP] = top
    return filled


@compiled
def _price_of(
    at: IntArray, ends: IntArray, whole: IntArray, sizes: IntArray, capacity: int
) -> tuple[int, int]:  # fmt: skip
    """The slope of the concave hulls at which so many units run out, 0 where all can have what they want.

    And how many units are left where all have the fewest that may matter.
    """
    # Of each segment of a hull what each unit raises the score by, and the units.
    most = ends[len(sizes)]
    rise, step = np.empty(most, np.int64), np.empty(most, np.int64)
    filled, left, highest = 0, capacity, 0
    for c in range(len(sizes)):
        first, size = at[c, 1], sizes[c]
        last = whole[first, CORNER]
        left -= last * size
        for i in range(first + 1, whole[first, TOP] + 1):
            k = whole[whole[i, VERTEX], CORNER]
            rise[filled], step[filled] = whole[i, RISE], (k - last) * size
            highest = max(highest, rise[filled])
            last, filled = k, filled + 1
    # The highest price at which more units are wanted than there are. It is one of the rises, or 0.
    price, above = 0, highest + 1
    while above - price > 1:
        middle = (price + above) // 2
        wanted, higher, lower = 0, highest, price
        for i in range(filled):
            more = rise[i]
            if more >= middle:
                wanted += step[i]
                higher = min(higher, more)
            else:
                lower = max(lower, more)
        if wanted > left:
            price = higher
        else:
            above = lower + 1
    return price, left


@compiled
def _losses(
    at: IntArray, ends: IntArray, whole: IntArray, offsets: IntArray, price: int, room: int, kept: IntArray
) -> tuple[IntArray, IntArray]:  # fmt: skip
    """What choices at corners lose at a price of a unit; a class may have `room` units more than at its first corner.

    Between two corners losses rise or fall evenly (`_spread`), so extremes are at corners or beside them.

    Returns
    -------
    lost
        Loss at each corner, >= 0; of those beyond what others leave it is not set.
    free
        The least and the most units without loss of each class, the least loss of more and of fewer, the most that
        others leave, the loss where it keeps what it has, and the least bound within which it has several choices:
        int64 of shape (classes, 7).
    """
    lost = np.empty(ends[len(kept)], np.int64)
    free = np.empty((len(kept), 7), np.int64)
    for c in range(len(kept)):
        begin, own = at[c, 1], lost[ends[c] : ends[c + 1]]
        corners, slope = whole[begin:, CORNER], whole[begin:, SLOPE]
        least, keeps = corners[0], kept[c]
        most = min(offsets[c + 1] - 1 - offsets[c], least + room)
        # First how much each corner is better than none at this price.
        last, best, farthest = 0, -NEVER, -NEVER
        while last < len(own) and corners[last] <= most:
            own[last] = whole[begin + last, SCORE] - price * (corners[last] - least)
            best = max(best, own[last])
            last += 1
        if slope[last - 1] > -NEVER:
            # `most` lies between two corners.
            rise = slope[last - 1] - price
            farthest = own[last - 1] + rise * (most - corners[last - 1])
            best = max(best, farthest)
        # The first and the last corner without loss; the least losses of fewer and of more units.
        low, high, below, above = last, last, NEVER, NEVER
        for i in range(last):
            loss = best - own[i]
            own[i] = loss
            if corners[i] == keeps:
                free[c, 5] = loss
            if loss:
                above = min(above, loss)
                continue
            if low == last:
                low, below = i, above
            high, above = i, NEVER
        fewest = largest = most
        if low < last:
            fewest = corners[low]
        if farthest == best:
            below, above = (above if low == last else below), NEVER
        else:
            largest, rise = corners[high], slope[high]
            if farthest > -NEVER:
                above = min(above, best - farthest)
            if rise > -NEVER and largest < most:
                above = min(above, price - rise)
        if low > 0 and slope[low - 1] > -NEVER:
            fall = price - slope[low - 1]
            below = min(below, own[low - 1] + fall * (fewest - 1 - corners[low - 1]))
        free[c, 0], free[c, 1], free[c, 2] = fewest, largest, above
        free[c, 3], free[c, 4] = below, most
        free[c, 6] = min(above, below) if fewest == largest else 0
    return lost, free


@compiled
def _spread(
    at: IntArray, ends: IntArray, whole: IntArray, lost: IntArray, offsets: IntArray, price: int, free: IntArray,
    bound: int, loss: IntArray,
) -> None:  # fmt: skip
    """Write the losses of all choices of the classes of which several lose at most `bound`."""
    for c in range(len(free)):
        if bound < free[c, 6]:
            continue
        base = offsets[c]
        table = loss[base : base + free[c, 4] + 1]
        loss[base : offsets[c + 1]] = NEVER
        to_corner = at[c, 1] - ends[c]
        for i in range(ends[c], ends[c + 1]):
            k, slope = whole[to_corner + i, CORNER], whole[to_corner + i, SLOPE]
            if k >= len(table):
                break
            table[k] = here = lost[i]
            if slope > -NEVER:
                fall = price - slope
                end = min(whole[to_corner + i + 1, CORNER], len(table))
                for n in range(k + 1, end):
                    table[n] = here + fall * (n - k)


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
        c = of[j]
        n = free[c, 0]
        if slack >= free[c, 3]:
            n = 0
            while loss[offsets[c] + n] > slack:
                n += 1
        counts[j] = n
        left -= n
        lost += free[c, 5] - price * kept[c]
    total = price * left
    for j in range(len(of)):
        c, least = of[j], counts[j]
        if slack < free[c, 6]:
            continue
        base = offsets[c]
        most = free[c, 1] if slack < free[c, 2] else offsets[c + 1] - 1 - base
        most = max(least, min(most, least + left))
        while loss[base + most] > slack:
            most -= 1
        left -= most - least
        total += loss[base + most] - price * (most - least)
        counts[j] = most
    if left < 0 or lost < total:
        for j in range(len(of)):
            counts[j] = kept[of[j]]
        return lost
    return total


@compiled
def _within(
    of: IntArray, offsets: IntArray, loss: IntArray, free: IntArray, sizes: IntArray, price: int, capacity: int,
    bound: int, most_steps: int, stop: Stop, counts: IntArray,
) -> int:  # fmt: skip
    """Write the canonical allocation of least loss to `counts` if it loses at most `bound`: 1; 0: none; -1: stopped."""
    jobs, rank = len(of), _filled(len(sizes), NONE)
    # The fewest units of each job; the jobs that have several choices, and the most units of these.
    fewest, undecided = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    largest, several = np.empty(jobs, np.int64), 0
    left, steps, low_sum, high_sum = capacity, 0, 0, 0
    for j in range(jobs):
        c = of[j]
        low, high = free[c, 0], free[c, 1]
        if bound >= free[c, 6]:
            base, member = offsets[c], rank[c]
            rank[c] = member + 1
            # Canonical allocations give units to first members: only so many of these may have more than what is
            # without loss, and only so many of the last may have less.
            if member >= sizes[c] - bound // free[c, 3]:
                low = 0
            if member < bound // free[c, 2]:
                high = offsets[c + 1] - 1 - base
            while loss[base + low] > bound:
                low += 1
            while loss[base + high] > bound:
                high -= 1
        fewest[j] = low
        if low == high:
            left -= low
            continue
        undecided[several], largest[several] = j, high
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
    chosen = np.empty((several, left + 1), np.int64)
    for i in range(several):
        if stop[0]:
            return -1
        j, high = undecided[i], largest[i]
        base, low = offsets[of[j]], fewest[j]
        low_sum -= low
        high_sum -= high
        begin, end = max(0, left - high_sum), left - low_sum
        after = _filled(left + 1, NEVER)
        for n in range(low, high + 1):
            lost = loss[base + n]
            if lost <= bound:
                for u in range(max(begin, n), end + 1):
                    so_far = least[u - n]
                    if so_far <= bound and so_far + lost < after[u]:
                        after[u] = so_far + lost
                        chosen[i, u] = n
        least = after
    if least[left] > bound:
        return 0
    for j in range(jobs):
        counts[j] = fewest[j]
    for i in range(several - 1, -1, -1):
        n = chosen[i, left]
        counts[undecided[i]] = n
        left -= n
    return 1


@compiled
def search(
    of: IntArray, sizes: IntArray, offsets: IntArray, values: FloatArray, knots: IntArray, at: IntArray,
    held: IntArray, kept: IntArray, whole: IntArray, known: FloatArray, quanta: FloatArray, capacity: int,
    most_steps: int, stop: Stop, counts: IntArray, worth: FloatArray,
) -> tuple[bool, int, float]:  # fmt: skip
    """Find the canonical allocation, or one of little loss where it cannot be proven.

    Parameters
    ----------
    of, sizes, offsets, values, knots, at, held, kept
        The classes and their tables (`Classes`, `Tables`), and the units that the jobs of each hold.
    whole, known, quanta
        The scores of tables (`Scores`), to which those of this search are added.
    capacity, most_steps, stop
        Idle units; the search ends unproven after so many steps, or when `stop` is set.
    counts, worth
        Filled with the units of each job, and with few numbers whose sum is exactly that of their values.

    Returns
    -------
    proven, filled, more
        Whether it is proven, how many of these numbers there are, and how much more another allocation may be worth.
    """
    quantum, ends = _scores(values, knots, at, held, kept, sizes, whole, known, quanta)
    price, room = _price_of(at, ends, whole, sizes, capacity)
    lost, free = _losses(at, ends, whole, offsets, price, room, kept)
    slack, loss = max(capacity, 1), np.empty(offsets[len(sizes)], np.int64)
    _spread(at, ends, whole, lost, offsets, price, free, slack, loss)
    total = _start(of, offsets, loss, free, kept, price, capacity, slack, counts)
    bound = total if total <= capacity * FIRST else total // FIRST
    excluded, found = 0, 0
    while True:
        _spread(at, ends, whole, lost, offsets, price, free, bound, loss)
        found = _within(
            of, offsets, loss, free, sizes, price, capacity, bound, most_steps, stop, counts
        )  # fmt: skip
        if found or bound >= total:  # of which the latter cannot be
            break
        excluded = bound + 1
        bound = total if total < 2 * WIDEN * bound else bound * WIDEN
    # As `math.fsum` adds up: each term goes through the parts of the sum so far, and what a sum lacks is kept.
    filled = 0
    for j in range(len(of)):
        term, parts = values[at[of[j], 0] + counts[j]], filled
        if term == 0.0:
            continue
        filled = 0
        for i in range(parts):
            rest = worth[i]
            both = term + rest
            larger = abs(term) >= abs(rest)
            lacks = rest - (both - term) if larger else term - (both - rest)
            worth[filled] = lacks
            filled += lacks != 0.0
            term = both
        worth[filled] = term
        filled += 1
    more = quantum * (total - excluded + len(of) * (CHARGE + capacity))
    return found > 0, filled, 0.0 if found > 0 else more


@compiled
def group(
    like: IntArray, alone: IntArray, terms: IntArray, of: IntArray, first: IntArray, sizes: IntArray
) -> int:  # fmt: skip
    """Number the classes of jobs in the order of their first members; return how many there are.

    Parameters
    ----------
    like, terms
        A number, and a row of numbers, for each job; equal for jobs of one class.
    alone
        Not 0 for jobs that are a class of their own.
    of, first, sizes
        Filled with the class of each job; the first member of each class, and how many it has.
    """
    jobs, found, slots = len(like), 0, 1
    while slots < 2 * jobs:
        slots *= 2
    # A hash table: a class stands where its numbers lead, or in the next free slot.
    class_in, slot = _filled(slots, ~NONE), NONE
    for j in range(jobs):
        c = -1
        if not alone[j]:
            code = like[j]
            for term in terms[j]:
                # The upper bits of a float differ, and a product spreads the lower ones.
                code = (code ^ term ^ (term >> 32)) * SPREAD
            slot = (code >> 40) & (slots - 1)
            c = class_in[slot]
            while c >= 0:
                same = like[first[c]] == like[j]
                for k in range(terms.shape[1]):
                    same &= terms[first[c], k] == terms[j, k]
                if same:
                    break
                slot = (slot + 1) & (slots - 1)
                c = class_in[slot]
        if c < 0:
            c = found
            first[c], sizes[c] = j, 0
            found += 1
            if not alone[j]:
                class_in[slot] = c
        of[j] = c
        sizes[c] += 1
    return found
