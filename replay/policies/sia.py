"""Sia (SOSP'23): every minute an integer programme chooses a configuration for each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
        Assumed cost of a restart in seconds.
    power
        The exponent, not 0: the lower, the more equal the jobs' utilities.
    no_allocation
        What a job without units lacks, >= 0; with power < 0 at least 1, or jobs would rather wait.
    growth
        Factor to the most units that a job ever had, >= 1.
    most_replicas
        Upper bound for a job whose goodput is fitted.
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
        solution = self.solver.solve(self.problem(state))
        if state.machine.units_per_node == 1:
            return Decision(
                solution.counts,
                solution=solution,
                wake_ns=wake_ns,
                kinds=solution.kinds,
            )
        placement = _placed(
            state, solution.counts, solution.kinds or ("",) * len(solution.counts)
        )
        return Decision(placement=placement, solution=solution, wake_ns=wake_ns)

    def problem(self, state: State) -> milp.Problem:
        """The decision as an allocation problem: one second, in which a configuration is worth its utility."""
        machine = state.machine
        idle, held = (
            machine.idle_by_kind(),
            [machine.kind_of(view.held[0]) if view.held else "" for view in state.jobs],
        )
        offers = [
            self.utilities(
                view, state.time_ns, machine.units_per_node, list(idle) or [""], kind
            )
            for view, kind in zip(state.jobs, held, strict=True)
        ]
        posed = [
            {kind: self._posed(view.job, offer[kind]) for kind in offer}
            for view, offer in zip(state.jobs, offers, strict=True)
        ]
        counts = state.counts.tolist()
        if not idle:
            return milp.Problem(
                state.idle, 1.0, tuple(job[""] for job in posed), tuple(counts)
            )
        current = list(zip(held, counts, strict=True))
        return milp.Problem.of_kinds(idle, 1.0, posed, current)

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
        factor = restart_factor(view, now_ns, self.delay_s) if keeps else 1.0
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
            speed, most = (
                view.dynamics.goodput,
                min(self.most_replicas, view.dynamics.most, job.jmax),
            )
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


def _placed(
    state: State, counts: tuple[int, ...], kinds: tuple[str | None, ...]
) -> dict[int, tuple[int, ...]]:
    """Units of the jobs whose number or kind changes: the largest first, where they fit most tightly."""
    machine = state.machine
    changed = [
        position
        for position, view in enumerate(state.jobs)
        if counts[position] != view.units
        or (view.units and machine.kind_of(view.held[0]) != kinds[position])
    ]
    nodes = Nodes(state, set(range(len(state.jobs))) - set(changed))
    changed.sort(key=lambda position: -counts[position])
    return {
        position: nodes.take(
            nodes.tightest(
                counts[position], kinds[position] if counts[position] else None
            )
        )
        for position in changed
    }
