"""Pollux' genetic search for the placement of all jobs (OSDI'21, §4.2), by compiled loops over the population.

A candidate holds the replicas of each job on each node. Its fitness is the generalised mean of the jobs' speed-ups,
where jobs that would have to restart count less. If there is not enough room, jobs in earlier rows take precedence.
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
        from bft.replay.policies._pollux_kernels import reached

        speedup = reached(
            states, self.current, self.speedup, self.penalty, self.units_per_node
        )
        return np.asarray(mean_term(speedup, self.power).mean(axis=1))

    def repair(self, states: States, rng: np.random.Generator) -> None:
        """Make candidates feasible, in place.

        With `avoid`, a node has at most one job that spans several nodes. Rows are cut at random to their limits of
        replicas and nodes. A node has no more replicas than units. A job that does not run on what it has loses some,
        or all.
        """
        from bft.replay.policies._pollux_kernels import (
            cut,
            fill,
            part_the_spread,
            too_large,
        )

        if self.avoid:
            part_the_spread(states)
        row, job = too_large(states, self.most, self.most_nodes)
        if len(row):
            order = np.argsort(rng.random((len(row), states.shape[2])), axis=1)
            cut(states, row, job, order, self.most, self.most_nodes)
        fits = np.zeros((0, 0), np.int64) if self.fits is None else self.fits
        fill(states, self.capacity, fits, self.least)

    def mutate(self, states: States, rng: np.random.Generator) -> None:
        """Change candidates at random, in place; they may become infeasible.

        Rows go back to what jobs have now, lose some of their replicas, and get others: on a node with room an element
        is raised with probability p1 + p2 - p1 p2, p1 = 1 / jobs, p2 = 1 / (jobs on this node) for these and 0 for
        others, to anything up to the capacity of the node.
        """
        from bft.replay.policies._pollux_kernels import raised, rooms, thin

        candidates, jobs, nodes = states.shape
        back = rng.random((candidates, jobs)) < BACK
        thinned = rng.random((candidates, jobs)) < THINNED
        lost = rng.random((np.count_nonzero(thinned), nodes)) < THINNED
        thin(states, self.current, back, thinned, lost)

        drawn = rng.random(states.shape, dtype=np.float32)
        crowd, there = rooms(states, self.capacity)
        position, low, high = raised(
            states, crowd, self.capacity, drawn, np.float32(1 / jobs), rng.random(there)
        )
        np.put(states, position, rng.integers(low, high))


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
    moment: Moment,
    start: States,
    rng: np.random.Generator,
    *,
    population: int = 100,
    generations: int = 100,
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
    from bft.replay.policies._pollux_kernels import cross, marks, new

    # Not of `rng`: whatever they are, the result is the same.
    weights = np.random.default_rng(0).integers(
        1, 1 << 63, size=moment.current.shape, dtype=np.uint64
    )
    states = np.concatenate(
        [moment.current[None].astype(np.int16), start.astype(np.int16)]
    )
    moment.repair(states, rng)
    marked = marks(states, weights)
    fresh = new(states, marked, states[:0], marked[:0])
    states, marked = states[fresh], marked[fresh]
    fitness = moment.fitness(states)
    for _ in range(generations - 1):
        parents = _parents(fitness, population, rng)
        children = cross(
            states, parents, _points(parents.shape[1], states.shape[1], rng)
        )
        moment.mutate(children, rng)
        moment.repair(children, rng)
        of_children = marks(children, weights)
        fresh = new(children, of_children, states, marked)
        children = children[fresh]
        states = np.concatenate([states, children])
        marked = np.concatenate([marked, of_children[fresh]])
        fitness = np.concatenate([fitness, moment.fitness(children)])
        best = np.argsort(-fitness, kind="stable")[:population]
        states, marked, fitness = states[best], marked[best], fitness[best]
    return states, fitness


def _parents(fitness: FloatArray, count: int, rng: np.random.Generator) -> IntArray:
    """Winners of tournaments between two candidates: positions, shape (2, pairs)."""
    rivals = rng.integers(len(fitness), size=(2, 2, (count + 1) // 2))
    winners: IntArray = np.where(
        fitness[rivals[0]] >= fitness[rivals[1]], rivals[0], rivals[1]
    )
    return winners


def _points(pairs: int, jobs: int, rng: np.random.Generator) -> IntArray:
    """The job before which each pair of parents exchanges rows: 0 for none, shape (pairs,)."""
    return np.where(rng.random(pairs) < CROSSED, rng.integers(jobs, size=pairs), 0)
