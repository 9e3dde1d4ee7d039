"""The optimal allocation at every event: BFTrainer's MILP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from bft import milp
from bft.models import Curve, Job, Objective, OnlineCurve, Standing, deadline_weight
from bft.replay.engine.policy_api import Decision, JobView, Kind, State
from bft.replay.engine.snapshot import NOT_STORED, restore_snapshot, snapshot
from bft.replay.policies.predictions import ESTIMATE, number_in
from bft.replay.policies.profiling import Advisor
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import SECOND_NS

# Remaining part of a job that has run longer than predicted; its true remainder is unknown.
LEAST_PREDICTED = 0.05
# Shortest window that expectations lead to, s: a node beyond its time has not left yet, and may stay.
LEAST_WINDOW_S = 1.0
_OWN = Objective.of("own")


@dataclass
class MilpPolicy:
    """Maximise the jobs' objective over the next `tfwd_s` seconds, rescale costs included.

    Parameters
    ----------
    tfwd_s
        Forward-looking window in seconds.
    solver
        The solver of decisions. With `verify`, `verified` counts the checked answers and `mismatches` those that were
        proved invalid.
    cost_model
        How rescaling is priced: `bftrainer` or `stall`.
    objective
        What is maximised.
    deadline_boost, deadline_horizon_s
        How much a deadline raises a job's weight, and from when on, see `bft.models.deadline_weight`; 1 disables it.
    curves
        What is known of the jobs' curves. `known`: everything. `learn`: nothing; they are learned while jobs run
        (`bft.models.OnlineCurve`). The objective is then the sum of speed-ups over one unit, because rates of jobs that
        never ran cannot be compared. `profile`: nothing; a job is first measured at a few sizes (`Advisor`), then
        scheduled by the measured curve, and learned further. Os is not known then either: `own` is P.
    profile_s, profile_sizes, profile_order
        Seconds at each size, number of sizes, and whether from the smallest up or from the largest down.
    by_kind
        Whether the decision uses the curves of each kind of units, or the usual curve on every kind (blind to kinds).
    remaining
        The remaining work used by the objective: `known`, which no real scheduler knows (the policy is then
        clairvoyant); or `predicted`, the part of estimate_s x Jreq unit-seconds that a job has not used yet. A job
        without the column `estimate_s` counts as having all its work left; one past its estimate, as having 5 % left.
    window
        `fixed`: `tfwd_s`. `expected`: at most until the next idle node is expected to leave, but no less than
        `LEAST_WINDOW_S`; `tfwd_s` where nothing is expected (`State.expected_idle_until`).

    Examples
    --------
    >>> from bft.models import Curve, Job
    >>> from bft.replay import JobView
    >>> slow, fast = Curve([0, 8], [0, 80]), Curve([0, 2, 8], [0, 60, 90])
    >>> jobs = [JobView(Job(str(n), 0, 1, 8, 1e6, 0, 0, curve, curve), 0, 0.0) for n, curve in enumerate((slow, fast))]
    >>> MilpPolicy(120.0, SolverOptions("exact")).decide(State(0, 6, jobs)).counts
    (4, 2)
    """

    tfwd_s: float
    solver: SolverOptions = SolverOptions()
    cost_model: milp.CostModel = "bftrainer"
    objective: Objective = _OWN
    deadline_boost: float = 1.0
    deadline_horizon_s: float = 86_400.0
    curves: Literal["known", "learn", "profile"] = "known"
    profile_s: float = field(
        default=60.0, metadata={"help": "--curves profile: seconds at each size"}
    )
    profile_sizes: int = field(
        default=4,
        metadata={"help": "--curves profile: at how many sizes a job is measured"},
    )
    profile_order: Literal["growing", "inverse"] = field(
        default="growing",
        metadata={
            "help": "--curves profile: from the smallest size up, or from the largest down"
        },
    )
    remaining: Literal["known", "predicted"] = field(
        default="known",
        metadata={
            "help": "work left, for the objective srpt: known, or predicted by estimate_s"
        },
    )
    window: Literal["fixed", "expected"] = field(
        default="fixed",
        metadata={
            "help": "expected: look no further than the next node is expected to leave, by --walltimes"
        },
    )
    by_kind: bool = field(
        default=True,
        metadata={
            "help": "with --kinds: use the curves of each kind; no: the usual ones on every kind"
        },
    )
    name: str = field(default="milp", init=False)
    kind: Kind = field(default=Kind(kinds=True), init=False, metadata=NOT_STORED)
    verified: int = field(default=0, init=False)
    mismatches: int = field(default=0, init=False)
    _on: dict[tuple[str, str], Curve] = field(
        default_factory=dict, init=False, repr=False, metadata=NOT_STORED
    )
    _terms: dict[str, milp.Job] = field(
        default_factory=dict, init=False, repr=False, metadata=NOT_STORED
    )
    _steady: dict[str, range] = field(
        default_factory=dict, init=False, repr=False, metadata=NOT_STORED
    )
    _learned: dict[str, OnlineCurve] = field(
        default_factory=dict, init=False, repr=False
    )
    _advisor: Advisor = field(init=False, repr=False, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        for option, low in (("profile_s", 1e-3), ("profile_sizes", 1)):
            if not getattr(self, option) >= low:
                raise ValueError(
                    f"{option}: expected at least {low}, not {getattr(self, option)}"
                )
        self._advisor = Advisor(self.profile_s, self.profile_sizes, self.profile_order)
        if self.objective.uses_left and self.remaining == "known":
            self.kind = replace(self.kind, clairvoyant=True)
        if self.window == "expected":
            self.kind = replace(self.kind, expects=True)

    def decide(self, state: State) -> Decision:
        """Pose the decision as a problem and solve it."""
        if self.curves != "known":
            self._learn(state)
        targets: dict[int, int] = {}
        if self.curves == "profile":
            targets = self._advisor.targets(state, self._learned)
        problem, certain = measured_first(self.problem(state), targets)
        solution = self._solved(problem)
        if certain:
            solution = replace(
                solution,
                objective=solution.objective - certain,
                bound=max(solution.bound, solution.objective) - certain,
            )
        decision = Decision.solved(solution)
        if not targets:
            return decision
        return decision.waking(
            self._advisor.wake_ns(
                state, targets, self._learned, self.cost_model == "stall"
            )
        )

    def _solved(self, problem: milp.Problem) -> milp.Solution:
        """Return the solver's answer to a problem; count whether it was checked, and whether it was proved invalid."""
        solution = self.solver.solve(problem)
        self.verified += solution.verified is not None
        self.mismatches += solution.verified is False
        return solution

    def state(self) -> dict[str, Any]:
        """Counts of verified and invalid answers, and the learned curves."""
        return snapshot(self, inner=True)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        restore_snapshot(self, state, inner=True)

    def problem(self, state: State) -> milp.Problem:
        """The decision as an allocation problem."""
        jobs = self._posed(state)
        tfwd_s = self.tfwd_s if self.window == "fixed" else self._expected_window(state)
        idle = state.machine.idle_by_kind()
        if idle:
            posed = [
                {kind: self._term_on(view.job, term, kind) for kind in idle}
                for view, term in zip(state.jobs, jobs, strict=True)
            ]
            now = [
                (state.machine.kind_of(view.held[0]), view.units)
                if view.units
                else None
                for view in state.jobs
            ]
            return milp.Problem.of_kinds(idle, tfwd_s, posed, now, self.cost_model)
        alike = self.alike(state, jobs)
        return milp.Problem(
            units=state.idle,
            tfwd=tfwd_s,
            jobs=jobs,
            current=tuple(state.counts.tolist()),
            cost_model=self.cost_model,
            pairs=self.pairs(state, alike),
            alike=alike,
        )

    def _expected_window(self, state: State) -> float:
        """Seconds until the next idle node is expected to leave, within `LEAST_WINDOW_S` and `tfwd_s`."""
        ends = [end for end in state.expected_idle_until() if end is not None]
        left_s = (min(ends) - state.time_ns) / SECOND_NS if ends else self.tfwd_s
        return min(self.tfwd_s, max(left_s, LEAST_WINDOW_S))

    def _term_on(self, job: Job, term: milp.Job, kind: str) -> milp.Job:
        """The terms of a job on units of a kind."""
        curve = self._curve_on(job, kind)
        return replace(term, ns=curve.ns, os=curve.ps)

    def _curve_on(self, job: Job, kind: str) -> Curve:
        known = self._on.get((job.name, kind))
        if known is None:
            known = (
                self.objective.curve_on(job, kind)
                if self.by_kind
                else self.objective.curve(job)
            )
            self._on[job.name, kind] = known
        return known

    def alike(
        self, state: State, jobs: Sequence[milp.Job]
    ) -> tuple[tuple[int, ...], ...]:
        """Groups of waiting jobs that are interchangeable when jobs share units: none here."""
        return ()

    def pairs(
        self, state: State, alike: Sequence[tuple[int, ...]] = ()
    ) -> tuple[milp.Pair, ...]:
        """Pairs of jobs that may share units: none here."""
        return ()

    def _posed(self, state: State) -> tuple[milp.Job, ...]:
        """The jobs in play with their curves and weights; unchanged jobs are the objects of the last decision."""
        if self.curves != "known":
            self._terms.clear()
        known = list(map(self._terms.get, state.positions))
        if self.objective.factors or self.deadline_boost > 1.0:
            now_ns = state.time_ns
            return tuple(
                [
                    term
                    if term and now_ns in self._steady[term.name]
                    else self._weighted(state.jobs[place], now_ns)
                    for place, term in enumerate(known)
                ]
            )
        return tuple(
            [
                term or self._term(state.jobs[place].job)
                for place, term in enumerate(known)
            ]
        )

    def _term(self, job: Job) -> milp.Job:
        curve = (
            self.objective.curve(job) if self.curves == "known" else self._believed(job)
        )
        term = milp.Job(
            job.name,
            job.jmin,
            job.jmax,
            curve.ns,
            curve.ps,
            job.tcup_s,
            job.tcdw_s,
            job.weight,
            job.sizes,
        )
        self._terms[job.name] = term
        return term

    def _weighted(self, view: JobView, now_ns: int) -> milp.Job:
        """A job at its present weight, and for how long it is that. An unchanged job keeps its terms, and its class."""
        job = view.job
        term = self._terms.get(job.name) or self._term(job)
        weight, steady_s = job.weight, 0.0
        if self.deadline_boost > 1.0:
            weight = deadline_weight(
                job,
                now_ns,
                horizon_s=self.deadline_horizon_s,
                boost=self.deadline_boost,
            )
        if self.objective.factors:
            standing = self._standing(view, now_ns)
            weight *= self.objective.factor(standing)
            if self.deadline_boost == 1.0:
                steady_s = self.objective.steady_s(standing.age_s)
        self._steady[job.name] = range(now_ns, now_ns + round(steady_s * SECOND_NS))
        if weight != term.weight:
            term = self._terms[job.name] = replace(term, weight=weight)
        return term

    def _standing(self, view: JobView, now_ns: int) -> Standing:
        left, age_s = 1.0, 0.0
        if self.objective.ageing_h:
            age_s = (now_ns - view.job.tsub_ns) / SECOND_NS
        if self.objective.uses_left:
            left = (
                view.remaining / view.job.pmax
                if self.remaining == "known"
                else _predicted_left(view)
            )
        return Standing(left, age_s)

    def _learn(self, state: State) -> None:
        """Note at which rates each job has run on the units that it has held since the last decision."""
        for position, view in enumerate(state.jobs):
            for interval in state.intervals(position):
                if (
                    view.job.runs_on(interval.units) and not interval.shared
                ):  # with partners xi changes its rate too
                    curve = self._learned.setdefault(view.job.name, OnlineCurve())
                    curve.observe(interval.units, interval.rate, interval.progressed_s)
        for view in state.finished:
            self._learned.pop(view.job.name, None)

    def _believed(self, job: Job) -> Curve:
        """The estimated objective curve of a job; where curves are only learned, its speed-up over one unit."""
        believed = self._learned.get(job.name, OnlineCurve()).estimate(job.jmax)
        if self.curves == "profile":
            return self.objective.curve(
                replace(job, scalability=believed, objective=believed)
            )
        one = float(believed.at(np.array([1.0]))[0])
        return Curve(believed.ns, believed.ps / one) if one > 0 else believed


def measured_first(
    problem: milp.Problem, targets: Mapping[int, int]
) -> tuple[milp.Problem, float]:
    """Return the problem in which jobs to be measured get their units at any price, and the value of doing so.

    Parameters
    ----------
    problem
        Of all jobs in play.
    targets
        Units by position, 0 for none; in all no more than there are.
    """
    if not targets:
        return problem, 0.0
    others = [
        0.0 if position in targets else job.weight * float(np.abs(job.os).max())
        for position, job in enumerate(problem.jobs)
    ]
    # One unit more of anything is worth less than that, rescale costs, which are at most Tfwd or T, included.
    longest = max((max(job.tcup, job.tcdw) for job in problem.jobs), default=0.0)
    worth = 2.0 * math.fsum(others) * (1.0 + longest / problem.tfwd) + 1.0
    jobs = list(problem.jobs)
    for position, units in targets.items():
        curve = (
            np.array([0.0, max(units, 1)]),
            np.array([0.0, worth if units else -1.0]),
        )
        jobs[position] = milp.Job(
            jobs[position].name, max(units, 1), max(units, 1), *curve, 0.0, 0.0
        )
    pairs = tuple(
        pair for pair in problem.pairs if not {pair.a, pair.b} & targets.keys()
    )
    certain = worth * problem.tfwd * sum(units > 0 for units in targets.values())
    return replace(problem, jobs=tuple(jobs), pairs=pairs), certain


def _predicted_left(view: JobView) -> float:
    """The part of a job's work that is left if its column `estimate_s` holds, at least LEAST_PREDICTED."""
    seconds = number_in(view.job, ESTIMATE)
    if seconds is None or seconds <= 0:
        return 1.0
    return max(LEAST_PREDICTED, 1.0 - view.unit_seconds / (seconds * view.job.request))
