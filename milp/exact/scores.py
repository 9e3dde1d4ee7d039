"""Values as whole numbers, so that the order of adding never changes a sum of the exact DP.

A value v_j(n) is a float, and the last bits of a sum of floats depend on the order of adding. So the better of two
equally good allocations would depend on the algorithm. Therefore values become scores, whole multiples of a quantum q.
Let S be the larger of two numbers, rounded up to a power of two: the sum over jobs of best minus worst value, and the
largest value. Then

    q = S / 2^60        score_j(n) = (v_j(n) - max v_j) / q, rounded, - [n != units held] · 2^14

so a job changes only if it gains at least 2^14 q = S / 2^46, about 1.4e-14 of S; rounding errors are smaller. Between
two breakpoints of v_j the score is linear with a whole slope, rounded down. Counts that no optimum can contain, however
much the other jobs gain, are left out, both of S and of the choices.

Points and scores are made once per class of interchangeable jobs (`classes`). S is a sum over jobs: it is added up in
whole multiples of a power of two, rounded up, so that it does not depend on how jobs are grouped.
"""

from __future__ import annotations

import numpy as np

from bft.milp.exact.compiled import compiled, inlined
from bft.milp.exact.knapsack import GAP
from bft.milp.problem import BoolArray, FloatArray, IntArray
from bft.milp.tolerances import CHARGE_QUANTA, EQUAL_SUMS, SCORE_BITS

# The quanta that a changed job is charged, as compiled code wants them.
CHARGE = np.int64(CHARGE_QUANTA)
# S is added up in multiples of the largest value divided by this: room for 2^28 jobs in 62 bits.
GRAINS = 2.0**32
# The jobs of a problem as arrays for compiled code (`classes.JobArrays`): the kind of each job; breakpoints, the
# objective there, its slope up to the next (0 at the last), and where a kind's curve ends; first and last count of each
# stretch of counts, and where a kind's stretches end; Tcup, Tcdw and weight of each job.
Curves = tuple[FloatArray, FloatArray, FloatArray, IntArray]
Terms = tuple[
    IntArray,
    Curves,
    tuple[IntArray, IntArray, IntArray],
    tuple[FloatArray, FloatArray, FloatArray],
]


@compiled
def in_order(
    kinds: IntArray, count: int, alone: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Number the classes of jobs in the order of their first members.

    Parameters
    ----------
    kinds, count
        A number below `count` for each job, equal for jobs of one class.
    alone
        Not 0 for jobs that are a class of their own.

    Returns
    -------
    of, first, sizes
        The class of each job; the first member of each class, and how many it has.

    """
    jobs = len(kinds)
    number = np.full(count, -1)
    of, first = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    sizes = np.zeros(jobs, np.int64)
    found = 0
    for j in range(jobs):
        c = -1 if alone[j] else number[kinds[j]]
        if c < 0:
            c = found
            first[c] = j
            found += 1
            if not alone[j]:
                number[kinds[j]] = c
        of[j] = c
        sizes[c] += 1
    return of, first[:found].copy(), sizes[:found].copy()


@compiled
def value_points(
    terms: Terms,
    first: IntArray,
    held: IntArray,
    units: int,
    tfwd: float,
    stall: bool,
) -> tuple[IntArray, FloatArray, BoolArray, IntArray]:
    """Few points that define every v_j: counts ascending from 0, values, linearity, and offsets per class.

    Linearity: whether v_j is linear to the next point; else no count between the two is allowed. `first` is the first
    member of each class, `held` what each member holds.
    A cost that is the same for every count of a job is left out, because it would hide the differences: a job that
    holds more than it may keep must shrink in any case.
    """
    kinds, curves, (lows, highs, stretch_ends), (tcup, tcdw, weight) = terms
    ns, _, _, ends = curves
    classes = len(held)
    offsets = np.zeros(classes + 1, np.int64)
    room = 5 * classes
    for j in first:
        kind = kinds[j]
        room += 2 * (ends[kind + 1] - ends[kind])
        room += 2 * (stretch_ends[kind + 1] - stretch_ends[kind])
    counts = np.empty(room, np.int64)
    values = np.empty(room)
    linear = np.zeros(room, np.bool_)
    filled = 0
    for c in range(classes):
        j, kind = first[c], kinds[first[c]]
        begin, end = ends[kind], ends[kind + 1]
        start, rate = filled, 0.0
        counts[filled] = 0
        filled += 1
        for i in range(stretch_ends[kind], stretch_ends[kind + 1]):
            min_units, max_units = lows[i], min(highs[i], units)
            if min_units > max_units:
                break
            lowest = filled
            filled = _break_points(
                ns, begin, end, min_units, max_units, held[c], counts, filled
            )
            for k in range(lowest, filled - 1):
                linear[k] = True
            if min_units <= held[c] <= max_units and not stall:
                rate = _on(curves, begin, end, float(held[c]))[0]
        offsets[c + 1] = filled
        place = begin
        for k in range(start, filled):
            o, place = _on(curves, place, end, float(counts[k]))
            seconds = _lost_s(counts[k], held[c], tcup[j], tcdw[j])
            values[k] = _value(o, seconds, rate, weight[j], tfwd, stall)
    return counts[:filled], values[:filled], linear[:filled], offsets


@compiled
def kept_counts(
    terms: Terms, first: IntArray, held: IntArray
) -> tuple[IntArray, BoolArray]:
    """The most units up to those held that each class may have, and whether it makes progress on what it holds.

    As `Job.at_most` and `Job.runs_on`.
    """
    kinds, _, (lows, highs, stretch_ends), _ = terms
    kept = np.zeros(len(held), np.int64)
    runs = np.zeros(len(held), np.bool_)
    for c in range(len(held)):
        begin, end = stretch_ends[kinds[first[c]]], stretch_ends[kinds[first[c]] + 1]
        for i in range(begin, end):
            if lows[i] <= held[c]:
                kept[c] = min(held[c], highs[i])
        runs[c] = held[c] > 0 and min(held[c], highs[end - 1]) == kept[c]
    return kept, runs


@compiled
def _break_points(
    ns: FloatArray,
    first: int,
    end: int,
    min_units: int,
    max_units: int,
    held: int,
    counts: IntArray,
    filled: int,
) -> int:
    """Write the counts in [min_units, max_units] between which a job's value is linear to counts[filled:].

    Returns the new number of filled entries.

    These counts are the whole numbers next to the curve's breakpoints ns[first:end]; `held` and its neighbours are
    among them, because a change costs.
    """
    around = np.empty(3, np.int64)
    beside = 0
    for n in range(held - 1, held + 2):
        if min_units < n < max_units:
            around[beside] = n
            beside += 1
    counts[filled] = min_units
    filled += 1
    index = 0
    for k in range(first, end):
        if ns[k] <= min_units:
            continue
        if ns[k] >= max_units:
            break
        whole = int(ns[k])  # as floor: it is above 0
        for n in range(whole, whole + 1 + (ns[k] > whole)):
            while index < beside and around[index] <= n:
                if around[index] > counts[filled - 1]:
                    counts[filled] = around[index]
                    filled += 1
                index += 1
            if n > counts[filled - 1]:
                counts[filled] = n
                filled += 1
    while index < beside:
        if around[index] > counts[filled - 1]:
            counts[filled] = around[index]
            filled += 1
        index += 1
    if max_units > counts[filled - 1]:
        counts[filled] = max_units
        filled += 1
    return filled


@compiled
def values_of(
    terms: Terms,
    first: IntArray,
    held: IntArray,
    runs: BoolArray,
    of: IntArray,
    counts: IntArray,
    tfwd: float,
    stall: bool,
) -> FloatArray:
    """All v_j(n_j) that are not 0, bit by bit as in `values.value_tables`; job j is of class of[j].

    `runs`: whether a job makes progress on what it holds, so that a change has a cost.
    """
    kinds, curves, _, (tcup, tcdw, weight) = terms
    _, os, _, ends = curves
    values = np.empty(len(of))
    filled = 0
    idle = np.empty(len(held), np.bool_)  # holds nothing, and is worth nothing then
    for c in range(len(held)):
        idle[c] = held[c] == 0 and os[ends[kinds[first[c]]]] == 0.0
    for j in range(len(of)):
        c, n = of[j], counts[j]
        if n == 0 and idle[c]:
            continue
        like = first[c]
        begin, end = ends[kinds[like]], ends[kinds[like] + 1]
        seconds = _lost_s(n, held[c], tcup[like], tcdw[like])
        rate = 0.0
        if seconds and runs[c] and not stall:
            rate = _on(curves, begin, end, float(held[c]))[0]
        o = _on(curves, begin, end, float(n))[0]
        values[filled] = _value(o, seconds, rate, weight[like], tfwd, stall)
        # Most jobs that wait are worth 0, which a sum need not have.
        if values[filled] != 0.0:
            filled += 1
    return values[:filled]


@compiled
def _lost_s(n: int, held: int, tcup: float, tcdw: float) -> float:
    """Seconds that a job loses which gets n units: Tcup or Tcdw where it grows or shrinks."""
    if n == held:
        return 0.0
    return tcdw if n < held else tcup


@compiled
def _value(
    objective: float,
    seconds: float,
    rate: float,
    weight: float,
    tfwd: float,
    stall: bool,
) -> float:
    """v_j(n) from O(n), bit by bit as in `values.value_table`; a change loses `seconds` at `rate`."""
    value = tfwd * objective
    if stall:
        value *= max(tfwd - seconds, 0.0) / tfwd
    else:
        value -= seconds * rate
    return value * weight


@compiled
def _on(curves: Curves, place: int, end: int, n: float) -> tuple[float, int]:
    """A curve at n, and the index of its breakpoint before n. Call with rising n, each time from the returned index."""
    ns, os, slopes, _ = curves
    while place + 1 < end and ns[place + 1] <= n:
        place += 1
    return slopes[place] * (n - ns[place]) + os[place], place


@compiled
def _total(amounts: FloatArray, sizes: IntArray, largest: float) -> float:
    """Sum of amounts, each counted `sizes` times, rounded up independently of the grouping; none exceeds 2·largest."""
    if largest == 0.0:
        return 0.0
    grain = 2.0 ** max(np.ceil(np.log2(largest)), -900.0) / GRAINS
    total = 0
    for j in range(len(amounts)):
        total += int(np.ceil(amounts[j] / grain)) * sizes[j]
    return float(total * grain)


@compiled
def scores(
    counts: IntArray,
    values: FloatArray,
    linear: BoolArray,
    offsets: IntArray,
    held: IntArray,
    kept: IntArray,
    sizes: IntArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray, float]:
    """The points of `value_points` as scores, without those that no optimum can contain.

    Parameters
    ----------
    counts, values, linear, offsets
        Points of class j are [offsets[j]:offsets[j+1]], ascending; values are linear to the next point, or no count
        between the two is allowed.
    held
        Units that each member holds.
    kept
        For each class, one of its counts such that all jobs can have theirs together: a lower bound of any optimum.
    sizes
        Members of each class.

    Returns
    -------
    units, scores, slopes, offsets
        As above. From a point up to just before the next, the score rises by `slopes` per unit, or no count is allowed
        there (GAP). It never exceeds the straight line between the two.
    quantum
        Value of a score of 1.

    """
    classes = len(held)
    best, gain = np.empty(classes), np.empty(classes)
    largest = 0.0
    for j in range(classes):
        best[j], keep = -np.inf, 0.0
        for k in range(offsets[j], offsets[j + 1]):
            best[j] = max(best[j], values[k])
            if counts[k] == kept[j]:
                keep = values[k]
        gain[j] = best[j] - keep
        largest = max(largest, abs(best[j]), abs(keep))
    stake = _total(gain, sizes, largest)
    hopeless = stake + EQUAL_SUMS * (stake + largest)
    units, left, slopes, ends = _hopeful(
        counts, values, linear, offsets, best, hopeless
    )

    spread = np.empty(classes)
    for j in range(classes):
        worst = best[j]
        for k in range(ends[j], ends[j + 1]):
            worst = min(worst, left[k])
        largest = max(largest, abs(worst))
        spread[j] = best[j] - worst
    at_stake = max(_total(spread, sizes, largest), largest)
    exponent = int(np.ceil(np.log2(at_stake))) if at_stake > 0 else 0
    quantum = 2.0 ** max(exponent - SCORE_BITS, -1000)
    scored = np.empty(len(units), np.int64)
    for j in range(classes):
        for k in range(ends[j], ends[j + 1]):
            scored[k] = np.int64(np.rint((left[k] - best[j]) / quantum))
            if units[k] != held[j]:
                scored[k] -= CHARGE
        for k in range(ends[j], ends[j + 1]):
            if slopes[k] != GAP:
                slopes[k] = (scored[k + 1] - scored[k]) // (units[k + 1] - units[k])
    return units, scored, slopes, ends, quantum


@inlined
def scores_of(
    terms: Terms,
    first: IntArray,
    held: IntArray,
    kept: IntArray,
    sizes: IntArray,
    units: int,
    tfwd: float,
    stall: bool,
) -> tuple[IntArray, IntArray, IntArray, IntArray, float]:
    """The `scores` of the `value_points` of all classes, in one call."""
    counts, values, linear, offsets = value_points(
        terms, first, held, units, tfwd, stall
    )
    return scores(counts, values, linear, offsets, held, kept, sizes)


@compiled
def _all_hopeful(
    values: FloatArray, offsets: IntArray, best: FloatArray, hopeless: float
) -> bool:
    """Whether all values are at most so much below the best of their classes."""
    for j in range(len(best)):
        for k in range(offsets[j], offsets[j + 1]):
            if values[k] < best[j] - hopeless:
                return False
    return True


@compiled
def _hopeful(
    counts: IntArray,
    values: FloatArray,
    linear: BoolArray,
    offsets: IntArray,
    best: FloatArray,
    hopeless: float,
) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """The points that are at most `hopeless` below the best: counts, values, slopes (GAP or still 0), offsets."""
    if _all_hopeful(values, offsets, best, hopeless):
        flat = np.zeros(len(counts), np.int64)
        for k in range(len(counts)):
            if not linear[k]:
                flat[k] = GAP
        return counts, values, flat, offsets
    room = 2 * len(counts)
    units, kept_values, slopes = (
        np.empty(room, np.int64),
        np.empty(room),
        np.zeros(room, np.int64),
    )
    ends = np.zeros(len(offsets), np.int64)
    filled = 0
    for j in range(len(best)):
        floor = best[j] - hopeless
        for k in range(offsets[j], offsets[j + 1]):
            if k > offsets[j] and linear[k - 1]:
                n0, n1, v0, v1 = counts[k - 1], counts[k], values[k - 1], values[k]
                if (
                    v0 < floor <= v1
                ):  # crosses the floor: begin there, as seen from the upper end
                    n = n1 - int((v1 - floor) / ((v1 - v0) / (n1 - n0)))
                    if n0 < n < n1:
                        units[filled], kept_values[filled] = (
                            n,
                            v1 - (v1 - v0) / (n1 - n0) * (n1 - n),
                        )
                        filled += 1
                elif v1 < floor <= v0:
                    n = n0 + int((v0 - floor) / ((v0 - v1) / (n1 - n0)))
                    if n0 < n < n1:
                        units[filled], kept_values[filled] = (
                            n,
                            v0 - (v0 - v1) / (n1 - n0) * (n - n0),
                        )
                        filled += 1
                    slopes[filled - 1] = GAP
            if values[k] >= floor:
                units[filled], kept_values[filled] = counts[k], values[k]
                slopes[filled] = 0 if linear[k] else GAP
                filled += 1
        ends[j + 1] = filled
        slopes[filled - 1] = GAP
    return units[:filled], kept_values[:filled], slopes[:filled], ends
