"""Pollux (OSDI'21): every minute all jobs are placed anew to maximise the mean of their speed-ups.

The genetic search (§4.2) runs in compiled loops over its population. A candidate holds the replicas of each job on each
node. Its fitness is the generalised mean of the jobs' speed-ups, where jobs that would have to restart count less. If
there is not enough room, jobs in earlier rows take precedence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bft.milp.exact.dp import share_units
from bft.models.checks import Number, whole
from bft.models.speed.dynamics import ApplicationDynamics
from bft.models.speed.goodput import Speed, replica_cap, speedup_table
from bft.replay.engine.policy_api import Decision, JobView, State, Traits
from bft.replay.policies._constants import constant
from bft.replay.policies._rounds import Nodes, Rounds
from bft.replay.trace.node_trace import SECOND_NS

# Published: speed-ups are relative to this many nodes with the job's fair share of units, whatever that share is.
FAIR_NODES = 1


@dataclass
class Pollux(Rounds):
    """Maximise the generalised mean of the jobs' speed-ups over their fair share, with a penalty on restarts.

    Speed-ups are of goodput, as fitted by the jobs' agents. A job that has not run yet is expected to scale perfectly;
    a job with only a scalability curve uses that. A genetic search determines the placement. If a unit is a whole node,
    only counts matter, and the optimal counts are computed exactly instead.

    Parameters
    ----------
    delay_s
        Assumed cost of a restart in seconds.
    power
        Exponent of the mean: the lower, the more weight the slowest jobs get.
    population, generations
        Candidates of the search, and number of generations.
    avoid
        At most one job that spans several nodes has units on a node (`network_interference` is what two of them
        would cost each other).
    most_nodes, most_replicas
        Upper bounds for a job: of nodes, where these have several units, and of replicas, where its goodput is fitted.
        Nothing was measured above them.
    seed
        Seed of the search, filled from `--seed`.
    """

    delay_s: float = constant(30.0, "assumed cost of a restart in seconds", Number(0))
    power: float = constant(-1.0, "exponent of the mean of speed-ups", Number())
    population: int = constant(100, "candidates of the search", whole(2))
    generations: int = constant(100, "generations of the search", whole(1))
    avoid: bool = constant(
        default=True,
        text="let at most one job that spans several nodes have units on a node",
    )
    most_nodes: int = constant(
        16, "most nodes of a job, where nodes have several units", whole(1)
    )
    most_replicas: int = constant(
        64, "most replicas of a job whose goodput is fitted", whole(1)
    )
    seed: int = constant(0, "seed of the search", whole(0))
    name: str = field(default="pollux", init=False)
    traits: ClassVar[Traits] = Traits(migrates=True, tunes=True)
    # The last population: the jobs of its rows, the nodes of its columns, replicas by candidate, job and node.
    _jobs: tuple[str, ...] = field(default=(), init=False, repr=False)
    _nodes: tuple[int, ...] = field(default=(), init=False, repr=False)
    _states: States = field(
        default_factory=lambda: np.zeros((0, 0, 0), np.int16), init=False, repr=False
    )

    def round(self, state: State) -> Decision:
        """Place all jobs."""
        if state.machine.units_per_node == 1:
            return Decision(self._counts(state))
        return Decision.placed(self._placement(state))

    # --- a unit is a node

    def _counts(self, state: State) -> tuple[int, ...]:
        """Units for each job that maximise the mean: a sum of terms, so a multiple-choice knapsack."""
        tables, fair = [], -(-state.idle // len(state.jobs))  # units, rounded up
        for view in state.jobs:
            max_units = min(self._most(view), state.idle)
            by_nodes = speedup_table(_speed(view), 2, max_units, FAIR_NODES, fair)
            speedup = np.concatenate([by_nodes[1, :2], by_nodes[2, 2:]])
            others = np.arange(max_units + 1) != view.units
            speedup[others] *= restart_factor(view, state.time_ns, self.delay_s)
            table = mean_term(speedup, self.power)
            table[~view.job.allowed[: max_units + 1]] = -np.inf
            tables.append(table)
        return share_units(tables, state.jobs.counts.copy(), state.idle)

    # --- nodes have several units

    def _placement(self, state: State) -> dict[int, tuple[int, ...]]:
        """The units of each job that moves, by the best candidate."""
        per = state.machine.units_per_node
        # Jobs with the least service come first, and take precedence where there is not enough room.
        order = sorted(
            range(len(state.jobs)),
            key=lambda position: (
                state.jobs[position].unit_seconds,
                state.jobs[position].job.tsub_ns,
            ),
        )
        views = [state.jobs[position] for position in order]
        idle = np.array(state.machine.idle_by_node(), dtype=np.int64)
        nodes = np.flatnonzero(idle)
        most = [self._most(view) for view in views]
        fair = -(-state.idle // len(views))
        held = np.zeros((len(views), len(nodes)), dtype=np.int64)
        for row, view in enumerate(views):
            on = np.array(view.held, dtype=np.int64) // per
            np.add.at(held[row], np.searchsorted(nodes, on), 1)
        tables = [
            speedup_table(_speed(view), 2, max(most), FAIR_NODES, fair)
            for view in views
        ]
        fits = None
        if state.jobs.sized:
            # The largest count up to 0, 1, ... on which each job runs.
            sizes = range(max(most) + 1)
            fits = np.array([[view.job.at_most(n) for n in sizes] for view in views])
        moment = Moment(
            current=held,
            capacity=idle[nodes],
            speedup=np.stack(tables),
            least=np.array([view.job.jmin for view in views]),
            most=np.array(most),
            penalty=np.array(
                [restart_factor(view, state.time_ns, self.delay_s) for view in views]
            ),
            units_per_node=per,
            most_nodes=self.most_nodes,
            power=self.power,
            fits=fits,
            avoid=self.avoid,
        )
        names = tuple(view.job.name for view in views)
        # Each round has its own seed, so that a resumed replay continues identically.
        rng = np.random.default_rng([self.seed, state.time_ns])
        result, _ = search(
            moment,
            self._remembered(names, nodes),
            rng,
            population=self.population,
            generations=self.generations,
        )
        self._jobs, self._nodes, self._states = names, tuple(nodes.tolist()), result
        best = result[0]
        moved = [
            row for row in range(len(order)) if (best[row] != moment.current[row]).any()
        ]
        free = Nodes(state, set(order) - {order[row] for row in moved})
        return {
            order[row]: free.take(
                [
                    (int(nodes[column]), int(best[row, column]))
                    for column in np.flatnonzero(best[row])
                ],
                views[row].held,
            )
            for row in moved
        }

    def _remembered(self, names: Sequence[str], nodes: IntArray) -> States:
        """The last population, mapped to the present jobs and nodes."""
        states = np.zeros((len(self._states), len(names), len(nodes)), np.int16)
        row_of = {name: row for row, name in enumerate(self._jobs)}
        column_of = {node: column for column, node in enumerate(self._nodes)}
        rows = [(row, row_of[name]) for row, name in enumerate(names) if name in row_of]
        columns = [
            (column, column_of[node])
            for column, node in enumerate(nodes.tolist())
            if node in column_of
        ]
        if rows and columns:
            (to_row, from_row), (to_column, from_column) = (
                zip(*rows, strict=True),
                zip(*columns, strict=True),
            )
            states[:, np.array(to_row)[:, None], np.array(to_column)] = self._states[
                :, np.array(from_row)[:, None], np.array(from_column)
            ]
        return states

    # --- both

    def _most(self, view: JobView) -> int:
        """Largest number of replicas to try: twice the largest profiled number."""
        if isinstance(view.dynamics, ApplicationDynamics):
            limits = view.dynamics.profile.application.limits
            return min(
                replica_cap(view.dynamics.profiled, limits, self.most_replicas),
                view.job.jmax,
            )
        return view.job.jmax


def restart_factor(view: JobView, now_ns: int, delay_s: float) -> float:
    """Share of a job's life not spent on restarts, one more included, if each costs `delay_s` seconds."""
    age_s = (now_ns - view.job.tsub_ns) / SECOND_NS
    restarts = max(view.starts - 1, 0) + view.rescales
    return (
        max(age_s - delay_s * restarts, 0.0) / (age_s + delay_s)
        if age_s + delay_s
        else 0.0
    )


def _speed(view: JobView) -> Speed:
    """The speed-up model of a job."""
    if isinstance(view.dynamics, ApplicationDynamics):
        return view.dynamics.goodput
    return view.job.scalability


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

    def objectives(self, states: States) -> FloatArray:
        """Fitness and utilisation of each candidate, higher is better: float64 of shape (candidates, 2).

        The utilisation is the sum of the speed-ups per unit of the nodes in use, without the penalty on restarts.
        """
        from bft.replay.policies._pollux_kernels import reached

        speedup, total = reached(
            states, self.current, self.speedup, self.penalty, self.units_per_node
        )
        fitness = mean_term(speedup, self.power).mean(axis=1)
        units = (states > 0).any(axis=1) @ self.capacity
        return np.column_stack([fitness, total / np.maximum(units, 1)])

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
        from bft.replay.policies._pollux_kernels import raised, rooms

        candidates, jobs, nodes = states.shape
        back = rng.random((candidates, jobs)) < BACK
        thinned = rng.random((candidates, jobs)) < THINNED
        lost = rng.random((np.count_nonzero(thinned), nodes)) < THINNED
        candidate, job = np.nonzero(back)
        states[candidate, job] = self.current[job]
        states[thinned] = np.where(lost, 0, states[thinned])

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
    from bft.replay.policies._pollux_kernels import ranked

    states = np.concatenate(
        [moment.current[None].astype(np.int16), start.astype(np.int16)]
    )
    moment.repair(states, rng)
    states, known = _new(states, [])
    values = moment.objectives(states)
    best, rank, distance = ranked(values, _descending(values), len(states))
    for _ in range(generations - 1):
        states, values = states[best], values[best]
        known = [known[each] for each in best.tolist()]
        parents = _parents(values, distance, population, rng)
        # The job before which each pair of parents exchanges rows, 0 for none.
        pairs, jobs = parents.shape[1], states.shape[1]
        crossed = rng.random(pairs) < CROSSED
        point = np.where(crossed, rng.integers(jobs, size=pairs), 0)
        one, other = parents[:, :, None]
        rows = np.arange(jobs)
        before = rows < point[:, None]
        sources = np.where(before, other, one), np.where(before, one, other)
        children = states[np.concatenate(sources), rows]
        moment.mutate(children, rng)
        moment.repair(children, rng)
        children, of_children = _new(children, known)
        states = np.concatenate([states, children])
        known += of_children
        values = np.concatenate([values, moment.objectives(children)])
        best, rank, distance = ranked(values, _descending(values), population)
    states, values = states[best], values[best]
    front = np.flatnonzero(rank == 0)
    front = front[_descending(values[front])]
    return states[front], values[front, 0]


def _new(states: States, known: Sequence[bytes]) -> tuple[States, list[bytes]]:
    """The candidates that are neither known nor equal to an earlier one, and their bytes."""
    seen = dict.fromkeys(known, -1)
    for c, state in enumerate(states):
        seen.setdefault(state.tobytes(), c)
    fresh = [c for c in seen.values() if c >= 0]
    return states[fresh], [content for content, c in seen.items() if c >= 0]


def _descending(values: FloatArray) -> IntArray:
    """Positions by the first objective, then by the second one, the highest first."""
    return np.lexsort((-values[:, 1], -values[:, 0]))


def _parents(
    values: FloatArray, distance: FloatArray, count: int, rng: np.random.Generator
) -> IntArray:
    """Winners of tournaments between two candidates: positions, shape (2, pairs).

    The one that dominates the other wins, else the one with the larger distance.
    """
    rivals = rng.integers(len(values), size=(2, 2, (count + 1) // 2))
    one, other = values[rivals[0]], values[rivals[1]]
    lead = (one > other).any(axis=-1).astype(int) - (one < other).any(axis=-1)
    tied = np.where(distance[rivals[0]] >= distance[rivals[1]], 1, -1)
    winners: IntArray = np.where(lead + (lead == 0) * tied > 0, rivals[0], rivals[1])
    return winners
