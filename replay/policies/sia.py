"""Sia (SOSP'23): every minute an integer programme chooses a configuration for each job."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from bft import milp
from bft.milp.tolerances import DRAWN_TIES
from bft.models import Job
from bft.models.checks import Number, whole
from bft.models.speed.dynamics import ApplicationDynamics
from bft.models.speed.goodput import Goodput, Speed, goodput_table
from bft.replay.engine.policy_api import Decision, JobView, State, Traits
from bft.replay.policies._constants import constant
from bft.replay.policies._rounds import Nodes, Rounds
from bft.replay.policies.pollux import restart_factor
from bft.replay.policies.solver import SolverOptions


@dataclass
class Sia(Rounds):
    """Maximise the jobs' utilities; a job's utility follows from its goodput over that of its worst configuration.

    A configuration is a number of units: powers of two within a node, then whole nodes (every number where a unit is
    a node), of those that the job may have. A job that has only other sizes may have all of these. With G the goodput
    of a configuration over the smallest that is offered, times the units of the job's smallest one, the utility is

        no_allocation - (r·G)^power  for power < 0        no_allocation + (r·G)^power  for power > 0

    and 0 without units. r is 1 for what the job holds. For another configuration of a running job it is the share of
    its life that it would not have spent on restarts, max(age - delay_s·restarts, 0) / (age + delay_s). A job gets at
    most `growth` times the most units that it has ever had, its smallest configuration at first. Where units are of
    several kinds a configuration is a number of units of a kind, and all of them are compared. The integer programme
    is a `bft.milp.Problem`. Goodput is as fitted by the job's agent, else the rate of the job's curve.

    Parameters
    ----------
    delay_s
        Assumed cost of a restart in seconds, of jobs that do not state their own (`Job.policy_restart_s`).
    power
        The exponent, not 0: the lower, the more equal the jobs' utilities.
    no_allocation
        What a job without units lacks, >= 0; with power < 0 at least 1, or jobs would rather wait.
    growth
        Factor to the most units that a job ever had, >= 1.
    most_replicas
        Upper bound for a job whose goodput is fitted.
    free_moves
        Whether a move to as many units on each of other nodes costs nothing (of the run's rules): then all jobs are
        placed anew, so that none is on more nodes than it needs.
    freeze
        Leave a job what it holds while it starts, restarts or moves.
    user_batch
        Judge a job whose goodput is fitted by batches up to the one that its user chose; else up to its largest.
    quantum
        Round (r·G)^power to whole multiples of this; 0 does not round.
    ties
        0: of several optima the solver's canonical one; else the first in an order of all configurations that is drawn
        with this seed.
    solver
        The solver of decisions.

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> curve = Curve([0, 8], [0, 80])
    >>> jobs = [JobView(Job(name, 0, 1, 8, 1e6, 0, 0, curve, curve), 0, 0.0) for name in "ab"]
    >>> Sia().decide(State(0, 6, jobs)).counts  # both start on one unit
    (1, 1)
    """

    delay_s: float = constant(30.0, "assumed cost of a restart in seconds", Number(0))
    power: float = constant(-0.5, "exponent of a job's normalised goodput", Number())
    no_allocation: float = constant(1.1, "what a job without units lacks", Number(0))
    growth: float = constant(
        2.0, "how many times its most units so far a job may get", Number(1)
    )
    most_replicas: int = constant(
        64, "most replicas of a job whose goodput is fitted", whole(1)
    )
    free_moves: bool = False
    freeze: bool = constant(
        default=False, text="leave a job its units while it restarts"
    )
    user_batch: bool = constant(
        default=False, text="judge a job by batches up to the one that its user chose"
    )
    quantum: float = constant(
        0.0, "what utilities are rounded to, 0: not at all", Number(0)
    )
    ties: int = constant(0, "seed of the order of ties, 0: the canonical one", whole(0))
    solver: SolverOptions = SolverOptions("auto")
    name: str = field(default="sia", init=False)
    traits: ClassVar[Traits] = Traits(migrates=True, tunes=True, kinds=True)
    _largest: dict[str, int] = field(
        default_factory=dict, init=False, repr=False
    )  # most units that a job ever had

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.power:
            raise ValueError("power: expected a number other than 0")
        if self.power < 0 and self.no_allocation < 1:
            raise ValueError(
                f"no_allocation: expected at least 1 with power < 0, not {self.no_allocation}"
            )

    def decide(self, state: State) -> Decision:
        """Choose a configuration for every job at a round; between rounds they keep their units."""
        had = [
            (name, interval.units)
            for name, intervals in state.ended.items()
            for interval in intervals
        ]
        views = (state.jobs[position] for position in state.jobs.running)
        had += ((view.job.name, view.units) for view in views)
        for name, units in had:
            self._largest[name] = max(self._largest.get(name, 0), units)
        for view in state.finished:
            self._largest.pop(view.job.name, None)
        return super().decide(state)

    def round(self, state: State) -> Decision:
        """Choose a configuration for every job that does not keep its units while it restarts."""
        open_ones = self._open(state)
        if not open_ones:
            return Decision.keep()
        solution = self.solver.solve(self.problem(state))
        counts = state.jobs.counts.tolist()
        kinds: list[str | None] = [*_kinds_held(state)]
        for position, count, kind in zip(
            open_ones, solution.counts, solution.kinds or kinds, strict=False
        ):
            counts[position], kinds[position] = count, kind
        if state.machine.units_per_node == 1:
            of_kinds = tuple(kinds) if solution.kinds else ()
            return Decision(tuple(counts), solution=solution, kinds=of_kinds)
        placement = _placed(state, counts, kinds, anew=self.free_moves)
        return Decision(placement=placement, solution=solution)

    def _open(self, state: State) -> list[int]:
        """Positions of the jobs that a round decides: all but those that keep their units while they restart."""
        return [
            position
            for position, view in enumerate(state.jobs)
            if not (self.freeze and view.restarting and view.job.runs_on(view.units))
        ]

    def problem(self, state: State) -> milp.Problem:
        """The decision as an allocation problem: one second, in which a configuration is worth its utility.

        Jobs that keep their units while they restart are not part of it, nor are their units.
        """
        machine = state.machine
        idle, held = machine.idle_by_kind(), _kinds_held(state)
        open_ones = self._open(state)
        kept = dict.fromkeys(idle, 0)
        for position in set(range(len(state.jobs))).difference(open_ones):
            kept[held[position]] = (
                kept.get(held[position], 0) + state.jobs[position].units
            )
        posed, current = [], []
        for position in open_ones:
            view, kind = state.jobs[position], held[position]
            offer = self.utilities(view, state.time_ns, machine.units_by_kind(), kind)
            if self.ties:  # a place in the order of ties, the same at every round
                for of, utilities in offer.items():
                    for n in utilities:
                        key = f"{self.ties} {view.job.name} {of} {n}"
                        drawn = random.Random(key).random()  # noqa: S311  # nosec B311
                        utilities[n] += DRAWN_TIES * drawn
            posed.append({of: self._posed(view.job, offer[of]) for of in offer})
            current.append((kind, view.units))
        if not idle:
            return milp.Problem(
                state.idle - sum(kept.values()),
                1.0,
                tuple(job[""] for job in posed),
                tuple(units for _, units in current),
            )
        left = {kind: units - kept[kind] for kind, units in idle.items()}
        return milp.Problem.of_kinds(left, 1.0, posed, current)

    def _posed(self, job: Job, utilities: Mapping[int, float]) -> milp.Job:
        """A job on the configurations of a kind that it may get now, at their utilities."""
        if not utilities:  # it makes no progress on any
            utilities = {1: -1.0}
        sizes = tuple(utilities)
        ns = np.array([0, *sizes], dtype=np.float64)
        os = np.array([0.0, *utilities.values()])
        return milp.Job(
            job.name, sizes[0], sizes[-1], ns, os, 0.0, 0.0, job.weight, sizes
        )

    def utilities(
        self, view: JobView, now_ns: int, nodes: Mapping[str, int], held: str = ""
    ) -> dict[str, dict[int, float]]:
        """Utility of each configuration that a job may get at an instant, by kind and number of units, ascending.

        Parameters
        ----------
        view
            The job.
        now_ns
            UTC nanoseconds.
        nodes
            Units of a node of each kind; one kind without a name where all are alike.
        held
            The kind of the units that it holds.
        """
        goodput = {kind: self._goodput(view, kind, nodes) for kind in nodes}
        sizes = {
            kind: [
                n
                for n in _configurations(view, nodes[kind])
                if n < len(of) and of[n] > 0
            ]
            for kind, of in goodput.items()
        }
        fewest = min((n for of in sizes.values() for n in of), default=0)
        if not fewest:
            return {kind: {} for kind in nodes}
        most = max(fewest, self.growth * self._tried(view))
        offered = {kind: [n for n in of if n <= most] for kind, of in sizes.items()}
        least = min(float(goodput[kind][n]) for kind in nodes for n in offered[kind])
        keeps = (
            view.units
            if view.units
            and view.job.runs_on(view.units)
            and goodput[held][view.units] > 0
            else 0
        )
        factor = 1.0
        if keeps:
            own_s = view.job.policy_restart_s
            delay_s = self.delay_s if own_s is None else own_s
            factor = restart_factor(view, now_ns, delay_s)
        result: dict[str, dict[int, float]] = {kind: {} for kind in nodes}
        for kind in nodes:
            kept_here = keeps if kind == held else 0
            for n in sorted({*offered[kind], kept_here} - {0}):
                share = 1.0 if n == kept_here else factor
                scaled = fewest * float(goodput[kind][n]) / least * share
                if scaled > 0:
                    utility = scaled**self.power
                    if self.quantum:
                        utility = round(utility / self.quantum) * self.quantum
                    result[kind][n] = self.no_allocation + (
                        utility if self.power > 0 else -utility
                    )
        return result

    def _tried(self, view: JobView) -> int:
        """The most units that a job ever had, as far as its agent has seen it run on them."""
        if isinstance(view.dynamics, ApplicationDynamics):
            return view.dynamics.profiled
        return self._largest.get(view.job.name, 0)

    def _goodput(
        self, view: JobView, kind: str, nodes: Mapping[str, int]
    ) -> NDArray[np.float64]:
        """Goodput on 0, 1, ... units of a kind, on as few nodes as possible: 0 where the job may not have so many.

        On a kind where a fitted job never ran it is that of the first one where it did, by their rates on one unit.
        """
        job, dynamics = view.job.on(kind), view.dynamics
        most, of, times, batch = job.jmax, kind, 1.0, None
        speed = cast("Speed", job.scalability)
        if isinstance(dynamics, ApplicationDynamics):
            most = min(self.most_replicas, dynamics.most, job.jmax)
            seen = (each for each in (kind, *nodes) if dynamics.goodput_on(each))
            of = next(seen, kind)
            speed = dynamics.goodput_on(of)
            rates = (dynamics.profile.on(each).single_rate for each in (kind, of))
            times = next(rates) / next(rates)
            batch = dynamics.profile.batch if self.user_batch else None
        by_nodes = (
            _up_to_the_users(speed, batch, most)
            if isinstance(speed, Goodput) and batch is not None
            else goodput_table(speed, 2, most)
        )
        table: NDArray[np.float64] = times * np.where(
            np.arange(most + 1) <= nodes[of], by_nodes[1], by_nodes[2]
        )
        table[~job.allowed[: most + 1]] = 0.0
        return table


def _up_to_the_users(speed: Goodput, batch: int, most: int) -> NDArray[np.float64]:
    """As `goodput_table` on two nodes, at the best batch up to the user's, or the least that so many can share out."""
    limits, counts = speed.limits, np.arange(most + 1)
    table = goodput_table(replace(speed, limits=replace(limits, most=batch)), 2, most)
    nodes = np.minimum(np.arange(3)[:, None], np.maximum(counts, 1))
    least = speed.at(np.maximum(nodes, 1), np.maximum(counts, 1), limits.atomic_min)
    beyond = (counts * limits.atomic_min > batch) & (table == 0)
    return np.where(beyond, least, table)


def _configurations(view: JobView, per: int) -> list[int]:
    """Numbers of units that a job may get: powers of two within a node, then whole nodes; else all its sizes."""
    sizes = np.flatnonzero(view.job.allowed)[1:]
    regular = np.where(sizes <= per, (sizes & (sizes - 1)) == 0, sizes % per == 0)
    return [int(n) for n in (sizes[regular] if regular.any() else sizes)]


def _kinds_held(state: State) -> list[str]:
    """The kind of the units that each job holds, empty where it holds none or all are alike."""
    kind_of = state.machine.kind_of
    return [kind_of(view.held[0]) if view.held else "" for view in state.jobs]


def _placed(
    state: State,
    counts: Sequence[int],
    kinds: Sequence[str | None],
    *,
    anew: bool,
) -> dict[int, tuple[int, ...]]:
    """Units of the jobs whose number or kind changes: the largest first, where they fit most tightly.

    `anew`: of all jobs. One that keeps number and kind keeps its units where these are still free and on as few nodes.
    """
    machine = state.machine
    changed = {
        position
        for position, view in enumerate(state.jobs)
        if counts[position] != view.units
        or (view.units and machine.kind_of(view.held[0]) != kinds[position])
    }
    everybody = set(range(len(state.jobs)))
    nodes = Nodes(state, () if anew else everybody - changed)
    placement = {}
    for position in sorted(
        everybody if anew else changed, key=lambda each: (-counts[each], each)
    ):
        count, held = counts[position], state.jobs[position].held
        chosen = nodes.tightest(count, kinds[position] if count else None)
        own = nodes.own(held) if position not in changed else None
        if own is not None and len(own) <= len(chosen):
            chosen = own
        placement[position] = nodes.take(chosen, held if anew else ())
    return placement
