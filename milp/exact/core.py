"""The compiled kernel of the exact DP for large problems; imported only when it is used, like `knapsack`.

For a price λ on a unit, let the loss of giving job j n units be max_m (s_j(m) - λm) - (s_j(n) - λn) >= 0, with s_j its
scores (`scores`) and λ a whole number. The scores of any allocation add up to

    sum_j max_m (s_j(m) - λm) + λN  -  sum of losses  -  λ · units left over

so the best allocation has the smallest total loss. Take λ from the linear relaxation: the slope of the scores' concave
envelopes at which the units run out. Then almost every job has few choices with a small loss. Given a bound on the
total loss, only choices whose own loss is within it matter, and a knapsack over them remains (the core of Dyer and of
Pisinger, here for the multiple-choice knapsack). All numbers are whole, so bounds and ties are exact.

Prices, losses and choices are computed once per class of interchangeable jobs (`classes`); `blocks` determines which
members have a choice at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bft.milp.exact.compiled import compiled, inlined
from bft.milp.exact.knapsack import GAP
from bft.milp.problem import FloatArray, IntArray

# A linear stretch with more choices than this is convolved by a sliding minimum, whose cost does not depend on them.
SHORT = 12
# Choices to store (4 bytes each); if there are more, they are computed a second time on the way back.
KEPT_CHOICES = 16 * 2**20
# Larger than any loss that matters; two of them can be added without overflow.
NEVER = np.int64(2**62 - 1)


@compiled
def price_of(
    units: IntArray, scores: IntArray, offsets: IntArray, sizes: IntArray, capacity: int
) -> int:
    """λ of the linear relaxation, rounded down to a whole number; 0 if all jobs can have what they want."""
    first = np.empty(len(units), np.int64)
    last = np.empty(len(units), np.int64)
    times = np.empty(len(units), np.int64)
    slopes = np.empty(len(units))
    stack = np.empty(len(units), np.int64)
    filled = 0
    left = capacity
    for j in range(len(offsets) - 1):
        left -= units[offsets[j]] * sizes[j]
        height = 0
        for k in range(offsets[j], offsets[j + 1]):
            while height > 1:
                a, b = stack[height - 2], stack[height - 1]
                before = float(scores[b] - scores[a]) * (units[k] - units[b])
                if before > float(scores[k] - scores[b]) * (units[b] - units[a]):
                    break
                height -= 1
            stack[height] = k
            height += 1
        for i in range(1, height):
            a, b = stack[i - 1], stack[i]
            if scores[b] <= scores[a]:
                break
            first[filled], last[filled], times[filled] = a, b, sizes[j]
            slopes[filled] = -float(scores[b] - scores[a]) / (units[b] - units[a])
            filled += 1
    return _price_at(
        left, slopes[:filled], first[:filled], last[:filled], times, units, scores
    )


@compiled
def _price_at(
    left: int,
    slopes: FloatArray,
    first: IntArray,
    last: IntArray,
    times: IntArray,
    units: IntArray,
    scores: IntArray,
) -> int:
    """The slope at which so many units run out, if they go to the steepest segments (least `slopes`) first, else 0.

    Found as a quickselect finds a median; of equal slopes the first segment comes first.
    """
    count = len(slopes)
    active, below = np.empty(count, np.int64), np.empty(count, np.int64)
    above, equal = np.empty(count, np.int64), np.empty(count, np.int64)
    for i in range(count):
        active[i] = i
    while count:
        pivot = slopes[active[count // 2]]
        wanted, lower, same, higher = 0, 0, 0, 0
        for i in active[:count]:
            if slopes[i] < pivot:
                wanted += (units[last[i]] - units[first[i]]) * times[i]
                below[lower] = i
                lower += 1
            elif slopes[i] > pivot:
                above[higher] = i
                higher += 1
            else:
                equal[same] = i
                same += 1
        if wanted > left:
            active, below, count = below, active, lower
            continue
        left -= wanted
        for i in equal[:same]:
            a, b = first[i], last[i]
            left -= (units[b] - units[a]) * times[i]
            if left < 0:
                return int((scores[b] - scores[a]) // (units[b] - units[a]))
        active, above, count = above, active, higher
    return 0


@compiled
def losses(
    units: IntArray,
    scores: IntArray,
    slopes: IntArray,
    offsets: IntArray,
    sizes: IntArray,
    price: int,
    capacity: int,
) -> tuple[IntArray, IntArray]:
    """Loss at every point (NEVER above the largest count a member can have), and that largest count."""
    loss = np.empty(len(units), np.int64)
    jobs = len(offsets) - 1
    max_units = np.empty(jobs, np.int64)
    room = capacity
    for j in range(jobs):
        room -= units[offsets[j]] * sizes[j]
    for j in range(jobs):
        first, best = units[offsets[j]], -NEVER
        max_units[j] = first + room
        for k in range(offsets[j], offsets[j + 1]):
            if units[k] > max_units[j]:
                if slopes[k - 1] != GAP:
                    end = (
                        scores[k - 1]
                        + slopes[k - 1] * (max_units[j] - units[k - 1])
                        - price * room
                    )
                    best = max(best, end)
                break
            best = max(best, scores[k] - price * (units[k] - first))
        for k in range(offsets[j], offsets[j + 1]):
            loss[k] = NEVER
            if units[k] <= max_units[j]:
                loss[k] = best - (scores[k] - price * (units[k] - first))
    return loss, max_units


@compiled
def start(
    of: IntArray,
    units: IntArray,
    slopes: IntArray,
    loss: IntArray,
    offsets: IntArray,
    kept: IntArray,
    price: int,
    capacity: int,
) -> tuple[IntArray, int]:
    """A feasible allocation and its total loss, which is small where the jobs hardly compete.

    Every job begins with its smallest count without loss. Then, from the last job to the first, each job that can keep
    what it has does so. Then, from the first job to the last, each takes as many units as possible.
    """
    slack = max(capacity, 1)  # rounding of slopes and price can cost this much
    frugal = np.empty(len(kept), np.int64)
    for c in range(len(kept)):
        k = offsets[c]
        while k + 1 < offsets[c + 1] and loss[k] > slack:
            k += 1
        frugal[c] = units[k]
    goes_on, base = np.empty(len(of), np.int64), np.empty(len(of), np.int64)
    left, lost = capacity, price * capacity
    for j in range(len(of)):
        goes_on[j], base[j] = kept[of[j]], frugal[of[j]]
        left -= base[j]
        lost -= price * goes_on[j]
    if left < 0:  # only possible through rounding in the envelopes
        left = capacity
        for j in range(len(of)):
            base[j] = goes_on[j]
            left -= base[j]
    for j in range(len(of) - 1, -1, -1):
        c, more = of[j], goes_on[j] - base[j]
        if (
            0 < more <= left
            and loss_at(units, slopes, loss, offsets[c], offsets[c + 1], price, kept[c])
            <= slack
        ):
            left -= more
            base[j] = kept[c]
    for j in range(len(of)):
        if left == 0:
            break
        limit, max_units = base[j] + left, base[j]
        for k in range(offsets[of[j]], offsets[of[j] + 1]):
            if units[k] > limit:
                break
            if loss[k] <= slack:
                max_units = max(max_units, units[k])
            if slopes[k] != GAP and loss[k] < NEVER:
                end = min(units[k + 1] - 1, limit)
                if loss[k] + (price - slopes[k]) * (end - units[k]) <= slack:
                    max_units = max(max_units, end)
        left -= max_units - base[j]
        base[j] = max_units
    total = price * left
    for j in range(len(of)):
        first, end = offsets[of[j]], offsets[of[j] + 1]
        total += loss_at(units, slopes, loss, first, end, price, base[j])
        lost += loss_at(units, slopes, loss, first, end, price, goes_on[j])
    return (goes_on, lost) if lost < total else (base, total)


@compiled
def loss_at(
    units: IntArray,
    slopes: IntArray,
    loss: IntArray,
    first: int,
    end: int,
    price: int,
    n: int,
) -> int:
    """Loss of n units for the job with the points [first, end); NEVER if n is not a choice."""
    for k in range(first, end):
        if units[k] == n:
            return int(loss[k])
        if units[k] < n and k + 1 < end and n < units[k + 1]:
            if slopes[k] == GAP or loss[k] == NEVER:
                return int(NEVER)
            return int(loss[k] + (price - slopes[k]) * (n - units[k]))
    return int(NEVER)


@compiled
def survivors(
    units: IntArray,
    slopes: IntArray,
    loss: IntArray,
    offsets: IntArray,
    max_units: IntArray,
    price: int,
    bound: int,
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Choices whose loss is within `bound`, as linear stretches.

    Returns
    -------
    ends
        Job j has the stretches ends[j] ... ends[j+1] - 1, ascending.
    low, high
        First and last choice of a stretch, in units.
    first_loss, step
        Loss at the first, and from one to the next.

    """
    jobs = len(offsets) - 1  # number of classes
    ends = np.zeros(jobs + 1, np.int64)
    low = np.empty(len(units), np.int64)
    high = np.empty(len(units), np.int64)
    first_loss = np.empty(len(units), np.int64)
    step = np.empty(len(units), np.int64)
    filled = 0
    for j in range(jobs):
        for k in range(offsets[j], offsets[j + 1]):
            if units[k] > max_units[j]:
                break
            # The stretch from this point to just before the next.
            last, slope = 0, 0
            if slopes[k] != GAP:
                last = min(units[k + 1] - 1, max_units[j]) - units[k]
                slope = price - slopes[k]
            first = 0
            if loss[k] > bound:
                if slope >= 0:
                    continue
                first = (loss[k] - bound - slope - 1) // -slope
            elif slope > 0:
                last = min(last, (bound - loss[k]) // slope)
            if first > last:
                continue
            low[filled], high[filled] = units[k] + first, units[k] + last
            first_loss[filled], step[filled] = loss[k] + slope * first, slope
            filled += 1
        ends[j + 1] = filled
    return ends, low[:filled], high[:filled], first_loss[:filled], step[:filled]


@compiled
def _step(
    before: IntArray,
    start: int,
    low: int,
    high: int,
    first_loss: int,
    step: int,
    new_start: int,
    new_end: int,
    after: IntArray,
    chosen: NDArray[np.int32],
) -> None:
    """Add a stretch of few choices to `after`, the least losses on new_start ... new_end - 1 units, and to `chosen`."""
    for d in range(low, high + 1):
        cost = first_loss + step * (d - low)
        for u in range(
            max(start + d, new_start), min(start + len(before) + d, new_end)
        ):
            candidate = before[u - d - start] + cost
            if candidate < after[u - new_start]:
                after[u - new_start] = candidate
                chosen[u - new_start] = d


@compiled
def _slide(
    before: IntArray,
    start: int,
    low: int,
    high: int,
    first_loss: int,
    step: int,
    new_start: int,
    new_end: int,
    after: IntArray,
    chosen: NDArray[np.int32],
    queue: IntArray,
) -> None:
    """Like `_step`, at a cost that does not depend on the length of the stretch.

    min over d of before(u - d) + step·d is, with w = u - d, a sliding minimum of before(w) - step·w. Only differences
    of w within the window are multiplied, so nothing overflows.
    """
    end = start + len(before)
    head, tail = 0, 0
    from_u = max(start + low, new_start)
    pushed = max(start, from_u - high)
    for u in range(from_u, min(end + high, new_end)):
        while pushed <= u - low and pushed < end:
            own = before[pushed - start]
            if own < NEVER:
                while tail > head and pushed - queue[tail - 1] > high - low:
                    head = tail  # out of reach, like everything before it
                while (
                    tail > head
                    and before[queue[tail - 1] - start]
                    + step * (pushed - queue[tail - 1])
                    >= own
                ):
                    tail -= 1
                queue[tail] = pushed
                tail += 1
            pushed += 1
        while head < tail and queue[head] < u - high:
            head += 1
        if head < tail:
            d = u - queue[head]
            candidate = before[queue[head] - start] + (first_loss + step * (d - low))
            if candidate < after[u - new_start]:
                after[u - new_start] = candidate
                chosen[u - new_start] = d


@compiled
def sweep(
    first: int,
    last: int,
    before: IntArray,
    ends: IntArray,
    low: IntArray,
    high: IntArray,
    first_loss: IntArray,
    step: IntArray,
    min_units: IntArray,
    max_units: IntArray,
    origin: IntArray,
    bound: int,
    choices: NDArray[np.int32],
    places: IntArray,
    stop: NDArray[np.uint8],
) -> IntArray:
    """Add the core jobs first ... last - 1 to the least losses `before`.

    The losses after i jobs are an array indexed by the units given so far, units left over included, from origin[i] to
    what min_units[i] and max_units[i] allow; NEVER where no solution within `bound` leads. Of equal losses the one with
    fewest units for the last job is kept. Choices for the way back are written to choices[places[i]:], unless that
    array is empty. Ends early, with nothing, when `stop` is set.
    """
    queue = np.empty(0, np.int64)
    for i in range(first, last):
        start, end = origin[i], origin[i] + len(before)
        down, up = low[ends[i]], high[ends[i + 1] - 1]
        new_start = max(start + down, min_units[i + 1])
        new_end = min(end + up, max_units[i + 1] + 1)
        width = max(new_end - new_start, 0)
        after = np.full(width, NEVER)
        chosen = np.zeros(width, np.int32)
        for r in range(ends[i], ends[i + 1]):
            if stop[0]:
                return np.empty(0, np.int64)
            if high[r] - low[r] < SHORT:
                _step(
                    before,
                    start,
                    low[r],
                    high[r],
                    first_loss[r],
                    step[r],
                    new_start,
                    new_end,
                    after,
                    chosen,
                )
            else:
                if len(queue) < len(before):
                    queue = np.empty(len(before), np.int64)
                _slide(
                    before,
                    start,
                    low[r],
                    high[r],
                    first_loss[r],
                    step[r],
                    new_start,
                    new_end,
                    after,
                    chosen,
                    queue,
                )
        # Drop totals that can no longer be part of a solution within the bound.
        left, right = 0, width
        while left < right and after[left] > bound:
            left += 1
        while right > left and after[right - 1] > bound:
            right -= 1
        for k in range(left, right):
            if after[k] > bound:
                after[k] = NEVER
        origin[i + 1] = new_start + left
        before = after[left:right]
        if len(choices):
            for k in range(left, right):
                choices[places[i] + k - left] = chosen[k]
    return before


@compiled
def _places(
    ends: IntArray,
    low: IntArray,
    high: IntArray,
    min_units: IntArray,
    max_units: IntArray,
    start: int,
    end: int,
) -> IntArray:
    """Return where each job's choices begin in one array, if the units given so far at first span start ... end."""
    places = np.zeros(len(ends), np.int64)
    for i in range(len(ends) - 1):
        start = max(start + low[ends[i]], min_units[i + 1])
        end = min(end + high[ends[i + 1] - 1], max_units[i + 1])
        places[i + 1] = places[i] + max(end - start + 1, 0)
    return places


@inlined
def improve(
    ends: IntArray,
    low: IntArray,
    high: IntArray,
    first_loss: IntArray,
    step: IntArray,
    capacity: int,
    price: int,
    bound: int,
    stop: NDArray[np.uint8],
) -> tuple[bool, IntArray]:
    """The canonical allocation with the least loss among the stretches; False if all lose more than `bound`.

    Also False when `stop` is set during the search.
    """
    jobs = len(ends) - 1
    counts = np.zeros(jobs, np.int64)
    # After i jobs, the units given and left over lie in [min_units, max_units]: the other jobs can make up the rest.
    min_units = np.full(jobs + 1, capacity)
    max_units = np.full(jobs + 1, capacity)
    for i in range(jobs - 1, -1, -1):
        min_units[i] = min_units[i + 1] - high[ends[i + 1] - 1]
        max_units[i] = max_units[i + 1] - low[ends[i]]
    # Units left over, at a loss of λ each, come first.
    idle = max_units[0] if price == 0 else min(max_units[0], bound // price)
    origin = np.zeros(jobs + 1, np.int64)
    origin[0] = max(min_units[0], 0)
    if idle < origin[0]:
        return False, counts
    places = _places(ends, low, high, min_units, max_units, origin[0], idle)

    block = max(jobs, 1)
    if places[jobs] > KEPT_CHOICES:
        block = max(1, int(np.sqrt(2.0 * jobs)))
    unkept = np.empty(0, np.int32)
    losses_at = [price * np.arange(origin[0], idle + 1)]
    for begin in range(0, jobs - block, block):
        losses_at.append(
            sweep(
                begin,
                begin + block,
                losses_at[-1],
                ends,
                low,
                high,
                first_loss,
                step,
                min_units,
                max_units,
                origin,
                bound,
                unkept,
                places,
                stop,
            )
        )
    used = capacity
    for begin in range((jobs - 1) // block * block, -1, -block):
        end = min(begin + block, jobs)
        here = places - places[begin]
        choices = np.empty(here[end], np.int32)
        after = sweep(
            begin,
            end,
            losses_at.pop(),
            ends,
            low,
            high,
            first_loss,
            step,
            min_units,
            max_units,
            origin,
            bound,
            choices,
            here,
            stop,
        )
        if stop[0]:
            return False, counts
        if end == jobs:
            last = capacity - origin[jobs]
            if not 0 <= last < len(after) or after[last] > bound:
                return False, counts
        for i in range(end - 1, begin - 1, -1):
            counts[i] = choices[here[i] + used - origin[i + 1]]
            used -= counts[i]
    return True, counts
