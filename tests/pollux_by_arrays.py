"""Pollux' search in NumPy's arrays: the second formulation of its compiled loops, with the same random numbers."""

import numpy as np

from bft.replay.policies.pollux import (
    BACK,
    CROSSED,
    THINNED,
    FloatArray,
    IntArray,
    Moment,
    States,
    _parents,
    mean_term,
)  # fmt: skip


def objectives_of(moment: Moment, states: States) -> FloatArray:
    replicas = states.sum(axis=2, dtype=np.int16)
    nodes = np.minimum(np.count_nonzero(states, axis=2), 2)
    reached = moment.speedup[np.arange(states.shape[1]), nodes, replicas]
    # One job after the other: the order of the sum is part of what is compared to the bit.
    total = np.cumsum(reached, axis=1)[:, -1]
    used = np.where((states > 0).any(axis=1), moment.capacity, 0).sum(axis=1)
    changed = (states != moment.current).any(axis=2)
    reached = (
        np.where(changed, reached * moment.penalty, reached) / moment.units_per_node
    )
    fitness = mean_term(reached, moment.power).mean(axis=1)
    return np.column_stack([fitness, total / np.maximum(used, 1)])


def ranks_of(values: FloatArray) -> IntArray:
    """How many fronts are taken away before none dominates a candidate, by comparing all pairs."""
    no_worse = (values[:, None] >= values).all(axis=2)
    dominates = no_worse & (values[:, None] > values).any(axis=2)
    ranks = np.full(len(values), -1)
    rank = 0
    while (ranks < 0).any():
        left = ranks < 0
        ranks[left & ~dominates[left].any(axis=0)] = rank
        rank += 1
    return ranks


def distances_of(values: FloatArray, ranks: IntArray) -> FloatArray:
    """The distance of each candidate within its front."""
    distances = np.zeros(len(values))
    for rank in range(ranks.max() + 1):
        front = np.flatnonzero(ranks == rank)
        _, first = np.unique(values[front], axis=0, return_index=True)
        first = front[first]  # ascending by the first objective
        gaps = np.abs(values[first[2:]] - values[first[:-2]])
        extent = np.abs(values[first[-1]] - values[first[0]])
        distances[first[1:-1]] = (gaps / extent).sum(axis=1) / 2
        distances[first[[0, -1]]] = 2.0
    return distances


def best_of(values: FloatArray, count: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Positions of the best by rank; where not all of a rank have room, the most distant ones. Rank and distance."""
    ranks = ranks_of(values)
    distances = distances_of(values, ranks)
    order = np.lexsort((-values[:, 1], -values[:, 0], ranks))
    over = ranks[order[count - 1]] if count < len(order) else -1
    if np.count_nonzero(ranks <= over) > count:
        whole, cut = order[ranks[order] < over], order[ranks[order] == over]
        cut = cut[np.argsort(-distances[cut], kind="stable")]
        order = np.concatenate([whole, cut])
    order = order[:count]
    return order, ranks[order], distances[order]


def repair(moment: Moment, states: States, rng: np.random.Generator) -> None:
    if moment.avoid:
        part_the_spread(states)

    replicas = states.sum(axis=2, dtype=np.int16)
    wrong = replicas > moment.most
    if states.shape[2] > moment.most_nodes:
        wrong |= np.count_nonzero(states, axis=2) > moment.most_nodes
    row, job = np.nonzero(wrong)
    if len(row):
        states[row, job] = cut_rows(
            moment, states[row, job], moment.most[job, None], rng
        )

    row, node = np.nonzero(states.sum(axis=1, dtype=np.int16) > moment.capacity)
    if len(row):
        filled = np.minimum(
            np.cumsum(states[row, :, node], axis=1), moment.capacity[node, None]
        )
        states[row, :, node] = np.diff(filled, axis=1, prepend=0)

    if moment.fits is not None:
        replicas = states.sum(axis=2, dtype=np.int16)
        fit = moment.fits[np.arange(len(moment.fits)), replicas]
        row, job = np.nonzero(fit < replicas)
        kept = np.minimum(np.cumsum(states[row, job], axis=1), fit[row, job, None])
        states[row, job] = np.diff(kept, axis=1, prepend=0)
    states[states.sum(axis=2, dtype=np.int16) < moment.least] = 0


def part_the_spread(states: States) -> None:
    used = states > 0
    spread = used & (np.count_nonzero(used, axis=2) > 1)[:, :, None]
    row, node = np.nonzero(np.count_nonzero(spread, axis=1) > 1)
    if len(row):
        taken = spread[row, :, node]
        column = states[row, :, node]
        column[taken & (np.cumsum(taken, axis=1) > 1)] = 0
        states[row, :, node] = column


def cut_rows(
    moment: Moment, rows: States, max_units: IntArray, rng: np.random.Generator
) -> States:
    order = np.argsort(rng.random(rows.shape), axis=1)
    shuffled = np.take_along_axis(rows, order, axis=1)
    shuffled = np.diff(
        np.minimum(np.cumsum(shuffled, axis=1), max_units), axis=1, prepend=0
    )
    shuffled[np.cumsum(shuffled > 0, axis=1) > moment.most_nodes] = 0
    cut = np.empty_like(rows)
    np.put_along_axis(cut, order, shuffled, axis=1)
    return cut


def mutate(moment: Moment, states: States, rng: np.random.Generator) -> None:
    rows = states.shape[:2]
    row, job = np.nonzero(rng.random(rows) < BACK)
    states[row, job] = moment.current[job]
    row, job = np.nonzero(rng.random(rows) < THINNED)
    thinned = states[row, job]
    thinned[rng.random(thinned.shape) < THINNED] = 0
    states[row, job] = thinned

    room = states.sum(axis=1, dtype=np.int16) < moment.capacity
    raised = (rng.random(states.shape, dtype=np.float32) < 1 / rows[1]) & room[
        :, None, :
    ]
    own = states > 0
    crowd = np.count_nonzero(own, axis=1)
    row, job, node = np.nonzero(own & room[:, None, :])
    nearby = rng.random(len(row)) * crowd[row, node] < 1
    raised[row[nearby], job[nearby], node[nearby]] = True
    row, job, node = np.nonzero(raised)
    low = states[row, job, node]
    states[row, job, node] = rng.integers(
        low, np.maximum(moment.capacity[node], low) + 1
    )


def search(
    moment: Moment,
    start: States,
    rng: np.random.Generator,
    *,
    population: int,
    generations: int,
) -> tuple[States, FloatArray]:
    states = np.concatenate(
        [moment.current[None].astype(np.int16), start.astype(np.int16)]
    )
    repair(moment, states, rng)
    states = states[new(states, set())]
    values = objectives_of(moment, states)
    best, ranks, distances = best_of(values, len(states))
    states, values = states[best], values[best]
    for _ in range(generations - 1):
        children = cross(states, _parents(values, distances, population, rng), rng)
        mutate(moment, children, rng)
        repair(moment, children, rng)
        children = children[new(children, {state.tobytes() for state in states})]
        states = np.concatenate([states, children])
        values = np.concatenate([values, objectives_of(moment, children)])
        best, ranks, distances = best_of(values, population)
        states, values = states[best], values[best]
    front = np.flatnonzero(ranks == 0)
    front = front[np.lexsort((-values[front, 1], -values[front, 0]))]
    return states[front], values[front, 0]


def new(states: States, known: set[bytes]) -> list[int]:
    """Positions of candidates that are new: neither known nor equal to an earlier one."""
    fresh = []
    for row, state in enumerate(states):
        key = state.tobytes()
        if key not in known:
            known.add(key)
            fresh.append(row)
    return fresh


def cross(states: States, parents: IntArray, rng: np.random.Generator) -> States:
    """Two children of each pair of parents, which exchange the rows before a random point."""
    pairs, jobs = parents.shape[1], states.shape[1]
    point = np.where(rng.random(pairs) < CROSSED, rng.integers(jobs, size=pairs), 0)
    swapped = (np.arange(jobs) < point[:, None])[:, :, None]
    mother, father = states[parents[0]], states[parents[1]]
    return np.concatenate(
        [np.where(swapped, father, mother), np.where(swapped, mother, father)]
    )
