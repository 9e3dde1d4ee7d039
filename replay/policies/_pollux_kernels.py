"""Compiled loops of Pollux' genetic search; imported only when it runs, because Numba loads slowly.

All randomness is drawn outside, by NumPy: the kernels only read it, in the order candidate, job, node.
"""

import numpy as np
from numpy.typing import NDArray

from bft.milp.exact.compiled import compiled

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
States = NDArray[np.int16]

# Distance of the candidates that are best by one of the objectives; that of others is at most 1.
FARTHEST = 2.0


@compiled
def rooms(states: States, capacity: IntArray) -> tuple[IntArray, int]:
    """The jobs on each node that has room, -1 on others: shape (candidates, nodes). Second, their sum on those."""
    crowd = np.zeros((states.shape[0], states.shape[2]), np.int64)
    total = np.empty(states.shape[2], np.int64)
    there = 0
    for c in range(states.shape[0]):
        total[:] = 0
        for j in range(states.shape[1]):
            for n in range(states.shape[2]):
                total[n] += states[c, j, n]
                crowd[c, n] += states[c, j, n] > 0
        for n in range(states.shape[2]):
            if total[n] < capacity[n]:
                there += crowd[c, n]
            else:
                crowd[c, n] = -1
    return crowd, there


@compiled
def raised(
    states: States,
    crowd: IntArray,
    capacity: IntArray,
    drawn: NDArray[np.float32],
    likely: np.float32,
    nearby: FloatArray,
) -> tuple[IntArray, IntArray, IntArray]:
    """The elements to raise: positions in the flat array, from how many replicas, and below how many.

    On nodes with room (`crowd`) an element is raised where `drawn` is below `likely`. One with replicas is also raised
    where its number of `nearby`, in [0, 1), is below 1 / crowd.
    """
    jobs, nodes = states.shape[1], states.shape[2]
    position, low, high = np.empty((3, states.size), np.int64)
    room = np.empty(nodes, np.int64)
    found, own = 0, 0
    for c in range(states.shape[0]):
        rooms_here = 0
        for n in range(nodes):
            if crowd[c, n] >= 0:
                room[rooms_here] = n
                rooms_here += 1
        for j in range(jobs):
            for n in room[:rooms_here]:
                chosen = drawn[c, j, n] < likely
                if states[c, j, n] > 0:
                    chosen |= nearby[own] * crowd[c, n] < 1
                    own += 1
                if chosen:
                    position[found] = (c * jobs + j) * nodes + n
                    low[found] = states[c, j, n]
                    high[found] = max(capacity[n], low[found]) + 1
                    found += 1
    return position[:found], low[:found], high[:found]


@compiled
def part_the_spread(states: States) -> None:
    """Leave each node to the first of the jobs there that are spread over several."""
    taken = np.empty(states.shape[2], np.bool_)
    for c in range(states.shape[0]):
        taken[:] = False
        for j in range(states.shape[1]):
            used = 0
            for n in range(states.shape[2]):
                used += states[c, j, n] > 0
            if used > 1:
                for n in range(states.shape[2]):
                    if states[c, j, n] > 0:
                        if taken[n]:
                            states[c, j, n] = 0
                        taken[n] = True


@compiled
def too_large(
    states: States, most: IntArray, most_nodes: int
) -> tuple[IntArray, IntArray]:
    """Candidate and job of the rows beyond their limits of replicas and nodes."""
    row, job = np.empty(states.size, np.int64), np.empty(states.size, np.int64)
    found = 0
    for c in range(states.shape[0]):
        for j in range(states.shape[1]):
            replicas, used = 0, 0
            for n in range(states.shape[2]):
                replicas += states[c, j, n]
                used += states[c, j, n] > 0
            if replicas > most[j] or used > most_nodes:
                row[found], job[found] = c, j
                found += 1
    return row[:found], job[:found]


@compiled
def cut(
    states: States,
    row: IntArray,
    job: IntArray,
    order: IntArray,
    most: IntArray,
    most_nodes: int,
) -> None:
    """Cut the rows (row, job) to their limits of replicas and nodes; `order` of their nodes: shape (rows, nodes)."""
    for k in range(len(row)):
        left, used = most[job[k]], 0
        for n in order[k]:
            kept = min(np.int64(states[row[k], job[k], n]), left)
            left -= kept
            used += kept > 0
            states[row[k], job[k], n] = kept if used <= most_nodes else 0


@compiled
def fill(states: States, capacity: IntArray, fits: IntArray, least: IntArray) -> None:
    """Place no more replicas on a node than units, earlier jobs first, and jobs only on sizes on which they run.

    `fits`: as of `Moment`, with no row where jobs run on each count.
    """
    left = np.empty(states.shape[2], np.int64)
    for c in range(states.shape[0]):
        left[:] = capacity
        for j in range(states.shape[1]):
            replicas = 0
            for n in range(states.shape[2]):
                kept = min(np.int64(states[c, j, n]), left[n])
                left[n] -= kept
                replicas += kept
                states[c, j, n] = kept
            if len(fits) and fits[j, replicas] < replicas:
                replicas = fits[j, replicas]
                over = replicas
                for n in range(states.shape[2]):
                    kept = min(np.int64(states[c, j, n]), over)
                    over -= kept
                    states[c, j, n] = kept
            if replicas < least[j]:
                states[c, j] = 0


@compiled
def reached(
    states: States,
    current: IntArray,
    speedup: FloatArray,
    penalty: FloatArray,
    units_per_node: int,
) -> tuple[FloatArray, FloatArray]:
    """The speed-up of each job in each candidate in whole nodes, less where its row changes: (candidates, jobs).

    Second, the sum of the speed-ups of each candidate, whatever changes: (candidates,).
    """
    result = np.empty(states.shape[:2])
    total = np.zeros(len(states))
    for c in range(states.shape[0]):
        for j in range(states.shape[1]):
            replicas, used, changed = 0, 0, False
            for n in range(states.shape[2]):
                replicas += states[c, j, n]
                used += states[c, j, n] > 0
                changed |= states[c, j, n] != current[j, n]
            value = speedup[j, min(used, 2), replicas]
            total[c] += value
            result[c, j] = (value * penalty[j] if changed else value) / units_per_node
    return result, total


@compiled
def ranked(
    values: FloatArray, order: IntArray, count: int
) -> tuple[IntArray, IntArray, FloatArray]:
    """The `count` best candidates by two objectives, higher is better: positions, rank from 0, and distance.

    Candidates that none other dominates have rank 0, those that only these dominate rank 1, and so on. Within a rank,
    the distance is how far apart the neighbours on both sides are as a share of the range, `FARTHEST` for the best by
    one objective, and 0 for candidates equal to one before.

    Parameters
    ----------
    values
        Both objectives: (candidates, 2).
    order
        Positions by the first objective, then by the second one, both descending.
    count
        How many to return, if there are so many.
    """
    rank = np.empty(len(values), np.int64)
    # By rank: the last candidate, whose second objective is the highest, the first one having it, and how many.
    high, first = np.empty(len(values)), np.empty(len(values))
    size = np.zeros(len(values), np.int64)
    ranks = 0
    for p in order:
        one, other = values[p]
        r = 0
        while r < ranks and (high[r] > other or (high[r] == other and first[r] > one)):
            r += 1
        if r == ranks:
            ranks += 1
        if size[r] == 0 or other > high[r]:
            high[r], first[r] = other, one
        size[r] += 1
        rank[p] = r
    best = np.empty(min(count, len(values)), np.int64)
    distance = np.zeros(len(values))
    filled = 0
    for r in range(ranks):
        if filled == len(best):
            break
        front = np.empty(size[r], np.int64)
        k = 0
        for p in order:
            if rank[p] == r:
                front[k] = p
                k += 1
        _distances(values, front, distance)
        room = len(best) - filled
        if len(front) > room:
            # A stable sort, so that the answer does not depend on the algorithm.
            front = front[np.argsort(-distance[front], kind="mergesort")[:room]]
        best[filled : filled + len(front)] = front
        filled += len(front)
    return best, rank[best], distance[best]


@compiled
def _distances(values: FloatArray, front: IntArray, distance: FloatArray) -> None:
    """Write the distance of each candidate of a front, which is in descending order of the first objective."""
    unique = np.empty(len(front), np.int64)
    count = 0
    for p in front:
        if count and (values[p] == values[unique[count - 1]]).all():
            distance[p] = 0.0
        else:
            unique[count] = p
            count += 1
    ends = values[unique[0]] - values[unique[count - 1]]
    for k in range(count):
        if k in (0, count - 1):
            distance[unique[k]] = FARTHEST
        else:
            apart = values[unique[k - 1]] - values[unique[k + 1]]
            distance[unique[k]] = (apart[0] / ends[0] + apart[1] / ends[1]) / 2
