"""Pollux' search in NumPy's arrays: the second formulation of its compiled loops, with the same random numbers."""

from __future__ import annotations

import numpy as np

from bft.replay.policies._pollux_search import (
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


def fitness_of(moment: Moment, states: States) -> FloatArray:
    replicas = states.sum(axis=2, dtype=np.int16)
    nodes = np.minimum(np.count_nonzero(states, axis=2), 2)
    reached = moment.speedup[np.arange(states.shape[1]), nodes, replicas]
    changed = (states != moment.current).any(axis=2)
    reached = (
        np.where(changed, reached * moment.penalty, reached) / moment.units_per_node
    )
    return np.asarray(mean_term(reached, moment.power).mean(axis=1))


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
    fitness = fitness_of(moment, states)
    for _ in range(generations - 1):
        children = cross(states, _parents(fitness, population, rng), rng)
        mutate(moment, children, rng)
        repair(moment, children, rng)
        children = children[new(children, {state.tobytes() for state in states})]
        states = np.concatenate([states, children])
        fitness = np.concatenate([fitness, fitness_of(moment, children)])
        best = np.argsort(-fitness, kind="stable")[:population]
        states, fitness = states[best], fitness[best]
    return states, fitness


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
