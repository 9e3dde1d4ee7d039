"""Pollux' genetic search for the placement of all jobs (OSDI'21, §4.2), vectorised over the population.

A candidate holds the replicas of each job on each node. Its fitness is the generalised mean of the jobs' speed-ups,
where jobs that would have to restart count less. If there is not enough room, jobs in earlier rows take precedence.
where room is short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# Replicas by candidate, job and node: a large array of small whole numbers.
States = NDArray[np.int16]

# Speed-up of a job without units, per unit of a node; above 0, so that no mean is infinite (Pollux' artifact).
FLOOR = 1e-3
# Published probabilities: a row is reset to what the job has now; a row loses elements, and each of these its replicas.
BACK, THINNED = 0.1, 0.1
# Published probability that two parents exchange rows at all.
CROSSED = 0.9


@dataclass(frozen=True, eq=False)
class Moment:
    """The problem of one search: jobs, nodes, and the quality of placements.

    Parameters
    ----------
    current
        Replicas that each job has on each node now: whole numbers of shape (jobs, nodes).
    capacity
        Units of each node: shape (nodes,).
    speedup
        Speed-up of each job by nodes (none, one, several) and replicas: float64 of shape (jobs, 3, most + 1).
    least, most
        Smallest and largest number of replicas of each job that has any: shape (jobs,).
    penalty
        Factor on the speed-up of a job whose row changes: shape (jobs,).
    units_per_node
        Speed-ups count relative to a whole node.
    most_nodes
        Nodes that a job may use.
    power
        Exponent of the mean; the lower, the more weight the jobs with the smallest speed-ups get.
    fits
        The largest count up to 0, 1, ... replicas on which each job runs, 0 for none: shape (jobs, most + 1). None
        where all run on every count from `least` to `most`.
    avoid
        Whether at most one job that spans several nodes may have units on a node.
    """

    current: IntArray
    capacity: IntArray
    speedup: FloatArray
    least: IntArray
    most: IntArray
    penalty: FloatArray
    units_per_node: int
    most_nodes: int = 16
    power: float = -1.0
    fits: IntArray | None = None
    avoid: bool = True

    def fitness(self, states: States) -> FloatArray:
        """Fitness of each candidate, higher is better: float64 of shape (candidates,)."""
        replicas = states.sum(axis=2, dtype=np.int16)
        nodes = np.minimum(np.count_nonzero(states, axis=2), 2)
        reached = self.speedup[np.arange(states.shape[1]), nodes, replicas]
        changed = (states != self.current).any(axis=2)
        reached = np.where(changed, reached * self.penalty, reached) / self.units_per_node
        return np.asarray(mean_term(reached, self.power).mean(axis=1))

    def repair(self, states: States, rng: np.random.Generator) -> None:
        """Make candidates feasible, in place.

        With `avoid`, a node has at most one job that spans several nodes. Rows are cut at random to their limits of
        replicas and nodes. A node has no more replicas than units. A job that does not run on what it has loses some,
        or all.
        """
        if self.avoid:
            self._part_the_spread(states)

        replicas = states.sum(axis=2, dtype=np.int16)
        wrong = replicas > self.most
        if states.shape[2] > self.most_nodes:
            wrong |= np.count_nonzero(states, axis=2) > self.most_nodes
        row, job = np.nonzero(wrong)
        if len(row):
            states[row, job] = self._cut(states[row, job], self.most[job, None], rng)

        row, node = np.nonzero(states.sum(axis=1, dtype=np.int16) > self.capacity)
        if len(row):
            filled = np.minimum(np.cumsum(states[row, :, node], axis=1), self.capacity[node, None])
            states[row, :, node] = np.diff(filled, axis=1, prepend=0)

        if self.fits is not None:
            replicas = states.sum(axis=2, dtype=np.int16)
            fit = self.fits[np.arange(len(self.fits)), replicas]
            row, job = np.nonzero(fit < replicas)
            kept = np.minimum(np.cumsum(states[row, job], axis=1), fit[row, job, None])
            states[row, job] = np.diff(kept, axis=1, prepend=0)
        states[states.sum(axis=2, dtype=np.int16) < self.least] = 0

    @staticmethod
    def _part_the_spread(states: States) -> None:
        """Leave each node to the first of the jobs there that are spread over several."""
        used = states > 0
        spread = used & (np.count_nonzero(used, axis=2) > 1)[:, :, None]
        row, node = np.nonzero(np.count_nonzero(spread, axis=1) > 1)
        if len(row):
            taken = spread[row, :, node]
            column = states[row, :, node]
            column[taken & (np.cumsum(taken, axis=1) > 1)] = 0
            states[row, :, node] = column

    def _cut(self, rows: States, max_units: IntArray, rng: np.random.Generator) -> States:
        """Rows cut to their limits of replicas and nodes; the order of nodes is random."""
        order = np.argsort(rng.random(rows.shape), axis=1)
        shuffled = np.take_along_axis(rows, order, axis=1)
        shuffled = np.diff(np.minimum(np.cumsum(shuffled, axis=1), max_units), axis=1, prepend=0)
        shuffled[np.cumsum(shuffled > 0, axis=1) > self.most_nodes] = 0
        cut = np.empty_like(rows)
        np.put_along_axis(cut, order, shuffled, axis=1)
        return cut

    def mutate(self, states: States, rng: np.random.Generator) -> None:
        """Change candidates at random, in place; they may become infeasible.

        Rows go back to what jobs have now, lose some of their replicas, and get others: on a node with room an element
        is raised with probability p1 + p2 - p1 p2, p1 = 1 / jobs, p2 = 1 / (jobs on this node) for these and 0 for
        others, to anything up to the capacity of the node.
        """
        rows = states.shape[:2]
        row, job = np.nonzero(rng.random(rows) < BACK)
        states[row, job] = self.current[job]
        row, job = np.nonzero(rng.random(rows) < THINNED)
        thinned = states[row, job]
        thinned[rng.random(thinned.shape) < THINNED] = 0
        states[row, job] = thinned

        room = states.sum(axis=1, dtype=np.int16) < self.capacity
        raised = (rng.random(states.shape, dtype=np.float32) < 1 / rows[1]) & room[:, None, :]
        own = states > 0
        crowd = np.count_nonzero(own, axis=1)
        row, job, node = np.nonzero(own & room[:, None, :])
        nearby = rng.random(len(row)) * crowd[row, node] < 1
        raised[row[nearby], job[nearby], node[nearby]] = True
        row, job, node = np.nonzero(raised)
        low = states[row, job, node]
        states[row, job, node] = rng.integers(low, np.maximum(self.capacity[node], low) + 1)


def mean_term(speedup: FloatArray, power: float) -> FloatArray:
    """The term of a speed-up in the generalised mean (mean of x^p)^(1/p); any shape.

    The mean of the terms ranks candidates as the generalised mean does: they are x^p, its negative where p < 0, and the
    logarithm where p = 0. x is the speed-up plus a small constant, so that one job without units does not dominate.
    """
    above = speedup + FLOOR
    if power == 0:
        return np.asarray(np.log(above))
    return np.asarray(above**power if power > 0 else -(above**power))


def search(
    moment: Moment, start: States, rng: np.random.Generator, *, population: int = 100, generations: int = 100
) -> tuple[States, FloatArray]:
    """Evolve candidates and return the population, best first, with its fitness.

    Parameters
    ----------
    moment
        The problem.
    start
        Candidates to begin with, feasible or not: shape (candidates, jobs, nodes). What jobs have now is added.
    rng
        Source of all randomness; the same seed gives the same result.
    population, generations
        Candidates that survive each generation, and how many generations, the first one being `start`.
    """
    states = np.concatenate([moment.current[None].astype(np.int16), start.astype(np.int16)])
    moment.repair(states, rng)
    states = states[_new(states, set())]
    fitness = moment.fitness(states)
    for _ in range(generations - 1):
        children = _cross(states, _parents(fitness, population, rng), rng)
        moment.mutate(children, rng)
        moment.repair(children, rng)
        children = children[_new(children, {state.tobytes() for state in states})]
        states = np.concatenate([states, children])
        fitness = np.concatenate([fitness, moment.fitness(children)])
        best = np.argsort(-fitness, kind="stable")[:population]
        states, fitness = states[best], fitness[best]
    return states, fitness


def _new(states: States, known: set[bytes]) -> list[int]:
    """Positions of candidates that are new: neither known nor equal to an earlier one."""
    fresh = []
    for row, state in enumerate(states):
        key = state.tobytes()
        if key not in known:
            known.add(key)
            fresh.append(row)
    return fresh


def _parents(fitness: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    """Winners of tournaments between two candidates: positions, shape (2, pairs)."""
    rivals = rng.integers(len(fitness), size=(2, 2, (count + 1) // 2))
    winners: IntArray = np.where(fitness[rivals[0]] >= fitness[rivals[1]], rivals[0], rivals[1])
    return winners


def _cross(states: States, parents: IntArray, rng: np.random.Generator) -> States:
    """Two children of each pair of parents, which exchange the rows before a random point."""
    pairs, jobs = parents.shape[1], states.shape[1]
    point = np.where(rng.random(pairs) < CROSSED, rng.integers(jobs, size=pairs), 0)
    swapped = (np.arange(jobs) < point[:, None])[:, :, None]
    mother, father = states[parents[0]], states[parents[1]]
    return np.concatenate([np.where(swapped, father, mother), np.where(swapped, mother, father)])
