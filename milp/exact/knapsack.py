"""The compiled step of the exact DP over several resources.

Imported only when used, because Numba loads slowly.
"""

import numpy as np
from numpy.typing import NDArray

from bft.milp.exact.compiled import compiled
from bft.milp.exact.kernel import SPREAD
from bft.milp.jobs import IntArray

# What a job's choices use of each resource, what they lose, and their ranks.
Choices = tuple[IntArray, IntArray, IntArray]


@compiled
def add_job(
    used: IntArray,
    lost: IntArray,
    choices: Choices,
    window: tuple[IntArray, IntArray],
    prices: IntArray,
    bound: int,
    strides: IntArray,
    slots: int,
    budget: int,
    stop: NDArray[np.uint8],
) -> tuple[int, IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Add a job to all vectors of what is used; vectors that become equal are merged, and the least loss counts.

    Parameters
    ----------
    used, lost
        What earlier jobs use of each resource, shape (vectors, resources), and what they lose by that.
    choices
        The job's choices: use, losses, least first, and ranks; of equal losses the lowest rank is taken.
    window
        By resource: the most that may be used after this job, and so much that later jobs can use the rest.
    prices, bound
        Price of a unit; what would lose more than `bound`, units included that must remain unused, is dropped.
    strides
        The number of a vector is its product with these.
    slots
        Size of the hash table, a power of two; at most half of it is filled.
    budget, stop
        Ends early after so many rows, or when `stop` is set.

    Returns
    -------
    rows, used, lost, least, before, rank
        Number of choices examined, negative where the table is too small. Then of each vector: units, loss, loss with
        units that must remain unused, which vector was before, and the rank of the job's choice.
    """
    use, losses, ranks = choices
    high, floor = window
    width, mask, rows, filled, full = used.shape[1], slots - 1, 0, 0, False
    slot_of = np.full(slots, -1, np.int32)
    room = slots // 2
    codes, loss_of, least_of = (
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )
    before, rank = np.empty(room, np.int64), np.empty(room, np.int64)
    for s in range(len(lost)):
        if stop[0] or rows > budget:
            break
        code = 0
        for k in range(width):
            code += used[s, k] * strides[k]
        for i in range(len(losses)):
            loss = lost[s] + losses[i]
            if loss > bound:
                break
            rows += 1
            own, least, fits = code, loss, True
            for k in range(width):
                after = used[s, k] + use[i, k]
                fits &= after <= high[k]
                own += use[i, k] * strides[k]
                if floor[k] > after:
                    least += prices[k] * (floor[k] - after)
            if not fits or least > bound:
                continue
            slot = ((own * SPREAD) >> 24) & mask
            while slot_of[slot] >= 0 and codes[slot_of[slot]] != own:
                slot = (slot + 1) & mask
            at = slot_of[slot]
            if at < 0:
                if filled == room:
                    full = True
                    break
                at = slot_of[slot] = filled
                filled += 1
                codes[at], least_of[at] = own, least
            elif loss > loss_of[at] or (loss == loss_of[at] and ranks[i] > rank[at]):
                continue
            loss_of[at], least_of[at], before[at], rank[at] = loss, least, s, ranks[i]
        if full:
            filled, rows = 0, -rows
            break
    found = np.empty((filled, width), np.int64)
    for at in range(filled):
        code = codes[at]
        for k in range(width - 1, -1, -1):
            found[at, k] = code // strides[k]
            code -= found[at, k] * strides[k]
    return (
        rows,
        found,
        loss_of[:filled].copy(),
        least_of[:filled].copy(),
        before[:filled].copy(),
        rank[:filled].copy(),
    )
