"""The compiled kernel of the exact programme at scale; imported only when it is used, as `_knapsack` is.

For a price λ on a unit, let the loss of giving job j n units be max_m (v_j(m) - λm) - (v_j(n) - λn) >= 0. Any
allocation is worth

    sum_j max_m (v_j(m) - λm) + λN  -  sum of losses  -  λ · units left over

so the best one loses least. With λ of the linear relaxation, the slope of the tables' concave envelopes at which the
units run out, almost every job has one choice without loss. From a base of such choices all that is left is a knapsack
over few others: those whose loss is below the gap (Dyer's and Pisinger's core, here for the multiple-choice knapsack).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bft.milp._compiled import compiled
from bft.milp.problem import FloatArray, IntArray

# Losses this small, relative to a job's values, are rounding: 0.
ROUNDING = 1e-13
# The first bound on the total loss, as a part of the gap, and the factor to the next when the optimum is not within.
FIRST = 1.0 / 64.0
WIDEN = 8.0
# A linear stretch of more choices than this is convolved by a sliding minimum, whose cost does not depend on them.
SHORT = 12
# Choices to keep at once (4 bytes each); beyond, they are computed a second time on the way back.
KEPT_CHOICES = 16 * 2**20


@compiled
def envelope(units: IntArray, values: FloatArray, offsets: IntArray) -> tuple[FloatArray, IntArray]:
    """Slopes above 0 and lengths (units) of the upper concave envelopes of the jobs' points, job after job."""
    slopes = np.empty(len(units))
    lengths = np.empty(len(units), np.int64)
    stack = np.empty(len(units), np.int64)
    found = 0
    for j in range(len(offsets) - 1):
        height = 0
        for k in range(offsets[j], offsets[j + 1]):
            while height > 1:
                a, b = stack[height - 2], stack[height - 1]
                before = (values[b] - values[a]) * (units[k] - units[b])
                if before > (values[k] - values[b]) * (units[b] - units[a]):
                    break
                height -= 1
            stack[height] = k
            height += 1
        for i in range(1, height):
            a, b = stack[i - 1], stack[i]
            if values[b] <= values[a]:
                break
            slopes[found] = (values[b] - values[a]) / (units[b] - units[a])
            lengths[found] = units[b] - units[a]
            found += 1
    return slopes[:found], lengths[:found]


@compiled
def losses(units: IntArray, values: FloatArray, offsets: IntArray, price: float) -> tuple[FloatArray, float]:
    """Loss at every point, and the rounding error of their sum."""
    loss = np.empty(len(units))
    slack = 0.0
    for j in range(len(offsets) - 1):
        best, scale = -np.inf, 0.0
        for k in range(offsets[j], offsets[j + 1]):
            best = max(best, values[k] - price * units[k])
            scale = max(scale, abs(values[k]) + price * units[k])
        for k in range(offsets[j], offsets[j + 1]):
            loss[k] = best - (values[k] - price * units[k])
            if loss[k] <= ROUNDING * scale:
                loss[k] = 0.0
        slack += ROUNDING * scale
    return loss, slack


@compiled
def lossless(
    units: IntArray, loss: FloatArray, offsets: IntArray, current: IntArray, capacity: int
) -> tuple[IntArray, int]:
    """Choices without loss that leave few units over, and how many they leave.

    Everybody takes least; then, from the last job to the first, who can go on as it is does; then, from the first to
    the last, each takes most: the order of preference of `best_counts`.
    """
    jobs = len(offsets) - 1
    base = np.empty(jobs, np.int64)
    left = capacity
    for j in range(jobs):
        k = offsets[j]
        while loss[k] > 0:
            k += 1
        base[j] = units[k]
        left -= base[j]
    for j in range(jobs - 1, -1, -1):
        more = current[j] - base[j]
        if 0 < more <= left and most_lossless(units, loss, offsets[j], offsets[j + 1], current[j]) == current[j]:
            left -= more
            base[j] = current[j]
    for j in range(jobs):
        if left == 0:
            break
        most = most_lossless(units, loss, offsets[j], offsets[j + 1], base[j] + left)
        if most > base[j]:
            left -= most - base[j]
            base[j] = most
    return base, left


@compiled
def most_lossless(units: IntArray, loss: FloatArray, first: int, end: int, limit: int) -> int:
    """The most units up to `limit` without loss, among the points [first, end) of a job; -1 for none."""
    most = -1
    for k in range(first, end):
        if units[k] > limit:
            # Between 0 and the next point nothing is allowed; all other points are joined by whole numbers.
            if k - 1 > first and loss[k - 1] == 0 and loss[k] == 0:
                most = limit
            break
        if loss[k] == 0:
            most = units[k]
    return most


@compiled
def survivors(
    units: IntArray, loss: FloatArray, offsets: IntArray, base: IntArray, bound: float
) -> tuple[IntArray, IntArray, IntArray, IntArray, FloatArray, FloatArray]:
    """Choices whose loss is within `bound`, as linear stretches, of the jobs that have any beside the base.

    Returns
    -------
    core
        Those jobs, ascending.
    ends
        Job core[i] has the stretches ends[i] ... ends[i+1] - 1.
    low, high
        First and last choice of a stretch, in units more than the base.
    at, step
        Loss at the first, and from one to the next.

    """
    jobs = len(offsets) - 1
    core = np.empty(jobs, np.int64)
    ends = np.zeros(jobs + 1, np.int64)
    low = np.empty(len(units), np.int64)
    high = np.empty(len(units), np.int64)
    at = np.empty(len(units))
    step = np.empty(len(units))
    count, found = 0, 0
    for j in range(jobs):
        start = found
        for k in range(offsets[j], offsets[j + 1]):
            # The stretch from this point to just before the next.
            length, slope = 1, 0.0
            if k > offsets[j] and k + 1 < offsets[j + 1]:
                length = units[k + 1] - units[k]
                slope = (loss[k + 1] - loss[k]) / length
            first, last = 0, length - 1
            if loss[k] > bound:
                if slope >= 0:
                    continue
                first = int(np.ceil(min((loss[k] - bound) / -slope, 1.0 * length)))
            elif slope > 0:
                last = min(last, int(np.floor(min((bound - loss[k]) / slope, 1.0 * length))))
            if first > last:
                continue
            low[found] = units[k] + first - base[j]
            high[found] = units[k] + last - base[j]
            at[found] = loss[k] + slope * first
            step[found] = slope
            found += 1
        if found - start == 1 and low[start] == 0 and high[start] == 0:
            found = start
        else:
            core[count] = j
            count += 1
            ends[count] = found
    return core[:count], ends[: count + 1], low[:found], high[:found], at[:found], step[:found]


@compiled
def sweep(
    first: int,
    last: int,
    before: FloatArray,
    ends: IntArray,
    low: IntArray,
    high: IntArray,
    at: FloatArray,
    step: FloatArray,
    least: IntArray,
    most: IntArray,
    origin: IntArray,
    bound: float,
    choices: NDArray[np.int32],
    places: IntArray,
) -> FloatArray:
    """Add the core jobs first ... last - 1 to the least losses `before`.

    The losses after i jobs are an array over the units used beyond the base, from origin[i] to what least[i] and
    most[i] allow; inf where nothing within `bound` leads. Whatever is to be known on the way back goes to
    choices[places[i]:], unless that array is empty.
    """
    queue = np.empty(0, np.int64)
    keys = np.empty(0)
    for i in range(first, last):
        start, end = origin[i], origin[i] + len(before)
        down, up = low[ends[i]], high[ends[i]]
        for r in range(ends[i], ends[i + 1]):
            down, up = min(down, low[r]), max(up, high[r])
        new_start = max(start + down, least[i + 1])
        new_end = min(end + up, most[i + 1] + 1)
        width = max(new_end - new_start, 0)
        after = np.full(width, np.inf)
        chosen = np.zeros(width, np.int32)
        # The base first: others must be better.
        for u in range(max(start, new_start), min(end, new_end)):
            after[u - new_start] = before[u - start]
        for r in range(ends[i], ends[i + 1]):
            if high[r] - low[r] < SHORT:
                for d in range(low[r], high[r] + 1):
                    cost = at[r] + step[r] * (d - low[r])
                    for u in range(max(start + d, new_start), min(end + d, new_end)):
                        candidate = before[u - d - start] + cost
                        if candidate < after[u - new_start]:
                            after[u - new_start] = candidate
                            chosen[u - new_start] = d
                continue
            # min over d of before(u - d) + step·d is, with w = u - d, that of before(w) - step·w: a sliding minimum.
            if len(queue) < len(before):
                queue, keys = np.empty(len(before), np.int64), np.empty(len(before))
            head, tail = 0, 0
            from_u = max(start + low[r], new_start)
            pushed = max(start, from_u - high[r])
            for u in range(from_u, min(end + high[r], new_end)):
                while pushed <= u - low[r] and pushed < end:
                    if before[pushed - start] < np.inf:
                        key = before[pushed - start] - step[r] * (pushed - start)
                        while tail > head and keys[tail - 1] > key:
                            tail -= 1
                        queue[tail], keys[tail] = pushed, key
                        tail += 1
                    pushed += 1
                while head < tail and queue[head] < u - high[r]:
                    head += 1
                if head < tail:
                    d = u - queue[head]
                    candidate = before[queue[head] - start] + (at[r] + step[r] * (d - low[r]))
                    if candidate < after[u - new_start]:
                        after[u - new_start] = candidate
                        chosen[u - new_start] = d
        # Drop what no longer can be part of a solution within the bound.
        left, right = 0, width
        while left < right and after[left] > bound:
            left += 1
        while right > left and after[right - 1] > bound:
            right -= 1
        for k in range(left, right):
            if after[k] > bound:
                after[k] = np.inf
        origin[i + 1] = new_start + left
        before = after[left:right]
        if len(choices):
            for k in range(left, right):
                choices[places[i] + k - left] = chosen[k]
    return before


@compiled
def improve(
    ends: IntArray,
    low: IntArray,
    high: IntArray,
    at: FloatArray,
    step: FloatArray,
    left: int,
    price: float,
    bound: float,
    to_beat: float,
) -> tuple[float, IntArray]:
    """The least loss within `bound` and below `to_beat`, and the units beyond the base that each core job gets for it.

    Returns (to_beat, zeros) when there is none. `left` units are left over by the base, at `price` each.
    """
    jobs = len(ends) - 1
    moves = np.zeros(jobs, np.int64)
    # After i jobs, units used beyond the base lie in [least, most]: what the other jobs can still make good.
    least = np.empty(jobs + 1, np.int64)
    most = np.empty(jobs + 1, np.int64)
    most[jobs] = left
    least[jobs] = left - int(np.floor(min(bound / price, 2.0**62)))
    total = 0
    for i in range(jobs - 1, -1, -1):
        down, up = low[ends[i]], high[ends[i]]
        for r in range(ends[i], ends[i + 1]):
            down, up = min(down, low[r]), max(up, high[r])
        least[i], most[i] = least[i + 1] - up, most[i + 1] - down
    from_u, to_u = 0, 0
    places = np.zeros(jobs + 1, np.int64)
    for i in range(jobs):
        down, up = low[ends[i]], high[ends[i]]
        for r in range(ends[i], ends[i + 1]):
            down, up = min(down, low[r]), max(up, high[r])
        from_u, to_u = max(from_u + down, least[i + 1]), min(to_u + up, most[i + 1])
        total += max(to_u - from_u + 1, 0)
        places[i + 1] = total

    block = jobs
    if total > KEPT_CHOICES:
        block = max(1, int(np.sqrt(2.0 * jobs)))
    blocks = (jobs + block - 1) // block
    origin = np.zeros(jobs + 1, np.int64)
    nothing = np.empty(0, np.int32)
    losses_at = [np.zeros(1)]
    if blocks > 1:
        for b in range(blocks):
            losses_at.append(
                sweep(
                    b * block,
                    min((b + 1) * block, jobs),
                    losses_at[b],
                    ends,
                    low,
                    high,
                    at,
                    step,
                    least,
                    most,
                    origin,
                    bound,
                    nothing,
                    places,
                )
            )
    used = 0
    for b in range(blocks - 1, -1, -1):
        begin, end = b * block, min((b + 1) * block, jobs)
        here = places - places[begin]
        choices = np.empty(places[end] - places[begin], np.int32)
        after = sweep(begin, end, losses_at[b], ends, low, high, at, step, least, most, origin, bound, choices, here)
        if b == blocks - 1:
            best = -1
            for k in range(len(after)):
                loss = after[k] + price * (left - origin[jobs] - k)
                if loss < to_beat:
                    best, to_beat = k, loss
            if best < 0:
                return to_beat, moves
            used = origin[jobs] + best
        for i in range(end - 1, begin - 1, -1):
            moves[i] = choices[here[i] + used - origin[i + 1]]
            used -= moves[i]
    return to_beat, moves


@compiled
def core_counts(
    units: IntArray, values: FloatArray, offsets: IntArray, current: IntArray, capacity: int, price: float
) -> IntArray:
    """Counts of an optimal allocation.

    Parameters
    ----------
    units, values, offsets
        Points of job j's value table are [offsets[j]:offsets[j+1]], from 0 units on: linear in between, but nothing is
        allowed between the first two.
    current
        Units held.
    capacity
        Units to give.
    price
        λ of the linear relaxation, 0 if there is enough for all.

    The bound on the loss starts low and rises until the best allocation found is within it, or it reaches the loss of
    that allocation: then nothing better can exist. In the worst case nothing can be left out, and each of the last two
    rounds costs O(points x capacity) time and O(sqrt(jobs) x capacity) memory.

    """
    loss, rounding = losses(units, values, offsets, price)
    base, left = lossless(units, loss, offsets, current, capacity)
    best = price * left
    counts = base.copy()
    if best <= rounding:
        return counts
    bound = best * FIRST
    while True:
        core, ends, low, high, at, step = survivors(units, loss, offsets, base, bound)
        if len(core):
            found, moves = improve(ends, low, high, at, step, left, price, bound + rounding, best - rounding)
            if found < best - rounding:
                best = found
                counts = base.copy()
                for i in range(len(core)):
                    counts[core[i]] += moves[i]
        if best <= bound:
            return counts
        bound = best if best < 2.0 * WIDEN * bound else bound * WIDEN
