"""Sia (SOSP'23): every minute an integer programme chooses a configuration for each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from bft import milp
from bft.models import Job
from bft.models.speed.dynamics import ApplicationDynamics
from bft.models.speed.goodput import Speed, goodput_table
from bft.replay.engine.policy_api import Decision, JobView, Kind, State
from bft.replay.engine.snapshot import restore_snapshot, snapshot
from bft.replay.policies._nodes import Nodes
from bft.replay.policies._rounds import is_round, keep_what_is_left, next_round
from bft.replay.policies.pollux import restart_factor
from bft.replay.policies.solver import SolverOptions


@dataclass
class Sia:
    """Maximise the jobs' utilities; a job's utility follows from its goodput over that of its worst configuration.

    A configuration is a number of units: powers of two within a node, then whole nodes (every number where a unit is
    a node), of those that the job may have. A job that has only other sizes may have all of these. With G the goodput
    of a configuration over the job's smallest goodput, times the units of its smallest configuration, the utility is

        no_allocation - (r·G)^power  for power < 0        no_allocation + (r·G)^power  for power > 0

    and 0 without units. r is 1 for what the job holds. For another configuration of a running job it is the share of
    its life that it would not have spent on restarts, max(age - delay_s·restarts, 0) / (age + delay_s). A job gets at
    most `growth` times the most units that it has ever had, its smallest configuration at first. Where units are of
    several kinds a configuration is a number of units of a kind, and all of them are compared. The integer programme
    is a `bft.milp.Problem`. Goodput is as fitted by the job's agent, else the rate of the job's curve.

    Parameters
    ----------
    interval_s
        Seconds between decisions; 0 decides whenever something happens.
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

    interval_s: float = field(
        default=60.0, metadata={"help": "seconds between decisions, 0: at every event"}
    )
    delay_s: float = field(
        default=30.0, metadata={"help": "assumed cost of a restart in seconds"}
    )
    power: float = field(
        default=-0.5, metadata={"help": "exponent of a job's normalised goodput"}
    )
    no_allocation: float = field(
        default=1.1, metadata={"help": "what a job without units lacks"}
    )
    growth: float = field(
        default=2.0,
        metadata={"help": "how many times its most units so far a job may get"},
    )
    most_replicas: int = field(
        default=64, metadata={"help": "most replicas of a job whose goodput is fitted"}
    )
    free_moves: bool = False
    freeze: bool = field(
        default=False, metadata={"help": "leave a job its units while it restarts"}
    )
    user_batch: bool = field(
        default=False,
        metadata={"help": "judge a job by batches up to the one that its user chose"},
    )
    solver: SolverOptions = SolverOptions("auto")
    name: str = field(default="sia", init=False)
    kind: ClassVar[Kind] = Kind(migrates=True, tunes=True, kinds=True)
    _largest: dict[str, int] = field(
        default_factory=dict, init=False, repr=False
    )  # most units that a job ever had

    def __post_init__(self) -> None:
        least = 1.0 if self.power < 0 else 0.0
        for option, low in (
            ("interval_s", 0), ("delay_s", 0), ("growth", 1), ("most_replicas", 1), ("no_allocation", least)
        ):  # fmt: skip
            if not getattr(self, option) >= low:
                raise ValueError(
                    f"{option}: expected at least {low}, not {getattr(self, option)}"
                )
        if not self.power or not np.isfinite(self.power):
            raise ValueError(f"power: expected a number other than 0, not {self.power}")

    def decide(self, state: State) -> Decision:
        """Choose a configuration for every job at a round; between rounds they keep their units."""
        for name, intervals in state.ended.items():
            self._largest[name] = max(
                self._largest.get(name, 0), *(interval.units for interval in intervals)
            )
        for position in state.running:
            view = state.jobs[position]
            self._largest[view.job.name] = max(
                self._largest.get(view.job.name, 0), view.units
            )
        for view in state.finished:
            self._largest.pop(view.job.name, None)
        wake_ns = next_round(state.time_ns, self.interval_s)
        if not is_round(state.time_ns, self.interval_s) or not (
            state.idle and state.jobs
        ):
            return keep_what_is_left(state, wake_ns=wake_ns)
        open_ones = self._open(state)
        if not open_ones:
            return Decision.keep(wake_ns=wake_ns)
        solution = self.solver.solve(self.problem(state))
        counts = state.counts.tolist()
        kinds: list[str | None] = [*_kinds_held(state)]
        for position, count, kind in zip(
            open_ones, solution.counts, solution.kinds or kinds, strict=False
        ):
            counts[position], kinds[position] = count, kind
        if state.machine.units_per_node == 1:
            return Decision(
                tuple(counts),
                solution=solution,
                wake_ns=wake_ns,
                kinds=tuple(kinds) if solution.kinds else (),
            )
        placement = _placed(state, counts, kinds, anew=self.free_moves)
        return Decision(placement=placement, solution=solution, wake_ns=wake_ns)

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
        machine, now_ns = state.machine, state.time_ns
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
            offer = self.utilities(
                view, now_ns, machine.units_per_node, list(idle) or [""], kind
            )
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
            return milp.Job(
                job.name,
                1,
                1,
                np.array([0.0, 1.0]),
                np.array([0.0, -1.0]),
                0.0,
                0.0,
                job.weight,
            )
        sizes = tuple(utilities)
        ns, os = (
            np.array([0, *sizes], dtype=np.float64),
            np.array([0.0, *utilities.values()]),
        )
        return milp.Job(
            job.name, sizes[0], sizes[-1], ns, os, 0.0, 0.0, job.weight, sizes
        )

    def utilities(
        self,
        view: JobView,
        now_ns: int,
        per: int,
        kinds: Sequence[str] = ("",),
        held: str = "",
    ) -> dict[str, dict[int, float]]:
        """Utility of each configuration that a job may get at an instant, by kind and number of units, ascending.

        Parameters
        ----------
        view
            The job.
        now_ns
            UTC nanoseconds.
        per
            Units of a node.
        kinds, held
            The kinds of units, and the one that it holds; one without a name where all are alike.
        """
        goodput = {kind: self._goodput(view, view.job.on(kind), per) for kind in kinds}
        sizes = {
            kind: [n for n in _configurations(view, per) if n < len(of) and of[n] > 0]
            for kind, of in goodput.items()
        }
        all_sizes = [n for of in sizes.values() for n in of]
        if not all_sizes:
            return {kind: {} for kind in kinds}
        fewest = min(all_sizes)
        least = min(float(goodput[kind][n]) for kind, of in sizes.items() for n in of)
        keeps = (
            view.units
            if view.units
            and view.job.runs_on(view.units)
            and goodput[held][view.units] > 0
            else 0
        )
        most = max(fewest, self.growth * self._largest.get(view.job.name, 0))
        factor = 1.0
        if keeps:
            own_s = view.job.policy_restart_s
            delay_s = self.delay_s if own_s is None else own_s
            factor = restart_factor(view, now_ns, delay_s)
        result: dict[str, dict[int, float]] = {kind: {} for kind in kinds}
        for kind, of in sizes.items():
            kept_here = keeps if kind == held else 0
            for n in sorted({*of, kept_here} - {0}):
                scaled = (
                    fewest
                    * float(goodput[kind][n])
                    / least
                    * (1.0 if n == kept_here else factor)
                )
                if (n <= most or n == kept_here) and scaled > 0:
                    utility = scaled**self.power
                    result[kind][n] = self.no_allocation + (
                        utility if self.power > 0 else -utility
                    )
        return result

    def _goodput(self, view: JobView, job: Job, per: int) -> NDArray[np.float64]:
        """Goodput on 0, 1, ... units on as few nodes as possible: 0 where the job may not have so many."""
        most, speed = job.jmax, cast("Speed", job.scalability)
        if isinstance(view.dynamics, ApplicationDynamics):
            speed = view.dynamics.goodput
            most = min(self.most_replicas, view.dynamics.most, job.jmax)
            if speed is not None and self.user_batch:
                largest = view.dynamics.profile.batch
                limits = replace(speed.limits, most=largest)
                speed = replace(speed, limits=limits)
        by_nodes = goodput_table(speed, 2, most)
        table: NDArray[np.float64] = np.where(
            np.arange(most + 1) <= per, by_nodes[1], by_nodes[2]
        )
        table[~job.allowed[: most + 1]] = 0.0
        return table

    def state(self) -> dict[str, Any]:
        """The most units that each job ever had."""
        return snapshot(self, inner=True)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        restore_snapshot(self, state, inner=True)


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
        if position not in changed and nodes.has(held):
            own = nodes.of(held)
            chosen = own if len(own) <= len(chosen) else chosen
        placement[position] = nodes.take(chosen, held if anew else ())
    return placement
