"""The optimal allocation at every event: BFTrainer's MILP."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, repeat
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bft import milp
from bft.models import Job, Objective, Standing, deadline_weight
from bft.replay.engine.policy_api import Decision, JobView, Kind, State
from bft.replay.engine.snapshot import NOT_STORED, StoredState
from bft.replay.policies.predictions import (
    ESTIMATE,
    Advisor,
    KnownCurves,
    LearnedCurves,
    number_in,
)
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import SECOND_NS

# Remaining part of a job that has run longer than predicted; its true remainder is unknown.
LEAST_PREDICTED = 0.05
# Shortest window that expectations lead to, s: a node beyond its time has not left yet, and may stay.
LEAST_WINDOW_S = 1.0
_OWN = Objective.of("own")
_NEVER_NS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Window:
    """The forward-looking window: `tfwd_s` seconds; `expected`: at most until the next idle node is expected to leave.

    It is then no shorter than `LEAST_WINDOW_S`, and `tfwd_s` where nothing is expected (`State.expected_idle_until`).
    """

    tfwd_s: float
    expected: bool = False

    def seconds(self, state: State) -> float:
        """Length of the window of a decision."""
        if not self.expected:
            return self.tfwd_s
        ends = [end for end in state.expected_idle_until() if end is not None]
        left_s = (min(ends) - state.time_ns) / SECOND_NS if ends else self.tfwd_s
        return min(self.tfwd_s, max(left_s, LEAST_WINDOW_S))


@dataclass
class Weights:
    """Weights of jobs, which change with time where the objective has factors or deadlines raise them.

    Parameters
    ----------
    objective
        The objective, for its factors.
    deadline_boost, deadline_horizon_s
        See `bft.models.deadline_weight`; a boost of 1 disables it.
    known_left
        Whether the factors use the true remaining work, or the predicted one.
    """

    objective: Objective
    deadline_boost: float
    deadline_horizon_s: float
    known_left: bool

    @property
    def changing(self) -> bool:
        """Whether weights change with time."""
        return bool(self.objective.factors) or self.deadline_boost > 1.0

    def weight(self, view: JobView, now_ns: int) -> tuple[float, int]:
        """The present weight of a job, and the instant from which on it may be another."""
        job = view.job
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
        return weight, now_ns + round(steady_s * SECOND_NS)

    def _standing(self, view: JobView, now_ns: int) -> Standing:
        left, age_s = 1.0, 0.0
        if self.objective.ageing_h:
            age_s = (now_ns - view.job.tsub_ns) / SECOND_NS
        if self.objective.uses_left:
            left = _predicted_left(view)
            if self.known_left:
                left = view.remaining / view.job.pmax
        return Standing(left, age_s)


@dataclass(frozen=True, slots=True)
class _Posed:
    """The jobs of the last decision: when it was made, in the job table, posed, and until when each is as posed."""

    asked_ns: int = 0
    in_table: tuple[Job, ...] = ()
    jobs: tuple[milp.Job, ...] = ()
    until_ns: NDArray[np.int64] = field(
        default_factory=lambda: np.empty(0, dtype=np.int64), compare=False
    )


@dataclass
class MilpPolicy(StoredState):
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
            "help": "expected: look no further than the next node is expected to leave, by the host jobs"
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
    _last: _Posed = field(
        default_factory=_Posed, init=False, repr=False, metadata=NOT_STORED
    )
    # Terms on each kind of units, and the terms from which they follow.
    _terms_on: dict[str, tuple[milp.Job, dict[str, milp.Job]]] = field(
        default_factory=dict, init=False, repr=False, metadata=NOT_STORED
    )
    _window: Window = field(init=False, repr=False, metadata=NOT_STORED)
    _weights: Weights = field(init=False, repr=False, metadata=NOT_STORED)
    _curves: KnownCurves | LearnedCurves = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for option, low in (("profile_s", 1e-3), ("profile_sizes", 1)):
            if not getattr(self, option) >= low:
                raise ValueError(
                    f"{option}: expected at least {low}, not {getattr(self, option)}"
                )
        self._window = Window(self.tfwd_s, self.window == "expected")
        self._weights = Weights(
            self.objective,
            self.deadline_boost,
            self.deadline_horizon_s,
            self.remaining == "known",
        )
        if self.curves == "known":
            self._curves = KnownCurves(self.objective, self.by_kind)
        else:
            advisor = Advisor(self.profile_s, self.profile_sizes, self.profile_order)
            profiles = self.curves == "profile"
            self._curves = LearnedCurves(self.objective, advisor if profiles else None)
        self.kind = replace(
            self.kind,
            clairvoyant=self.objective.uses_left and self.remaining == "known",
            expects=self.window == "expected",
            kinds=self.kind.kinds and self.curves == "known",
        )

    def decide(self, state: State) -> Decision:
        """Pose the decision as a problem and solve it."""
        self._curves.learn(state)
        targets = self._curves.targets(state)
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
        stall = self.cost_model == "stall"
        return decision.waking(self._curves.wake_ns(state, targets, stall))

    def _solved(self, problem: milp.Problem) -> milp.Solution:
        """Return the solver's answer to a problem; count whether it was checked, and whether it was proved invalid."""
        solution = self.solver.solve(problem)
        self.verified += solution.verified is not None
        self.mismatches += solution.verified is False
        return solution

    def problem(self, state: State) -> milp.Problem:
        """The decision as an allocation problem."""
        jobs, tfwd_s = self._posed(state), self._window.seconds(state)
        idle = state.machine.idle_by_kind()
        if idle:
            return self._problem_of_kinds(state, jobs, tfwd_s, idle)
        alike = self.alike(state, jobs)
        return milp.Problem(
            units=state.idle,
            tfwd=tfwd_s,
            jobs=jobs,
            current=state.counts,  # type: ignore[arg-type]  # becomes a tuple
            cost_model=self.cost_model,
            pairs=self.pairs(state, alike),
            alike=alike,
        )

    def _problem_of_kinds(
        self,
        state: State,
        jobs: Sequence[milp.Job],
        tfwd_s: float,
        idle: Mapping[str, int],
    ) -> milp.Problem:
        posed, current = [], []
        for view, term in zip(state.jobs, jobs, strict=True):
            posed.append(self._on_kinds(view.job, term, idle))
            held = None
            if view.units:
                held = state.machine.kind_of(view.held[0]), view.units
            current.append(held)
        return milp.Problem.of_kinds(idle, tfwd_s, posed, current, self.cost_model)

    def _on_kinds(
        self, job: Job, term: milp.Job, idle: Mapping[str, int]
    ) -> Mapping[str, milp.Job]:
        """The terms of a job on each kind of units."""
        known = self._terms_on.get(job.name)
        if known is None or known[0] is not term:
            curves = {kind: self._curves.curve_on(job, kind) for kind in idle}
            terms = {
                kind: replace(term, ns=curve.ns, os=curve.ps)
                for kind, curve in curves.items()
            }
            known = self._terms_on[job.name] = term, terms
        return known[1]

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
        last, now_ns, in_table = self._last, state.time_ns, state.in_table
        if self._curves.changing or now_ns < last.asked_ns:
            last = _Posed()
        terms: Sequence[milp.Job | None] = last.jobs
        until_ns, jobs = last.until_ns, last.jobs
        others = in_table is not last.in_table
        if others:
            # By identity: another job may have the same name. New jobs are at -1, due, and without terms.
            known = dict(zip(map(id, last.in_table), count(), strict=False))
            at_last = map(known.get, map(id, in_table), repeat(-1))
            kept = np.fromiter(at_last, np.int64, len(in_table))
            until_ns = np.append(until_ns, now_ns)[kept]
            terms = list(map([*terms, None].__getitem__, kept.tolist()))
        changed: dict[int, milp.Job] = {}
        for at in np.flatnonzero(until_ns <= now_ns).tolist():
            term, until_ns[at] = self._term(state.jobs[at], now_ns, terms[at])
            if term is not terms[at]:
                changed[at] = term
        if others:
            posed = map(changed.get, count(), terms)
            jobs = tuple([term for term in posed if term is not None])
        elif changed:
            jobs = milp.replaced(jobs, changed)
        self._last = _Posed(now_ns, in_table, jobs, until_ns)
        return jobs

    def _term(
        self, view: JobView, now_ns: int, before: milp.Job | None
    ) -> tuple[milp.Job, int]:
        """A job at its present weight, and when that may change; at the weight of `before`, that object."""
        job = view.job
        weight, until_ns = job.weight, _NEVER_NS
        if self._weights.changing:
            weight, until_ns = self._weights.weight(view, now_ns)
        if before is not None:
            same = weight == before.weight
            return before if same else before.at_weight(weight), until_ns
        curve = self._curves.curve(job)
        bounds, costs = (job.jmin, job.jmax), (job.tcup_s, job.tcdw_s)
        term = milp.Job(
            job.name, *bounds, curve.ns, curve.ps, *costs, weight, job.sizes
        )
        return term, until_ns


# Ratio of a job that is measured and its partner of now: sharing on is worth next to nothing, so they are separated.
_SEPARATED_XI = 1e6


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
    # Those that share now stay a pair, or their units would count twice.
    pairs = tuple(
        replace(pair, xi_a=_SEPARATED_XI, xi_b=_SEPARATED_XI, at_a=(), at_b=())
        if {pair.a, pair.b} & targets.keys()
        else pair
        for pair in problem.pairs
        if pair.shared or not {pair.a, pair.b} & targets.keys()
    )
    certain = worth * problem.tfwd * sum(units > 0 for units in targets.values())
    return replace(problem.with_jobs(jobs), pairs=pairs), certain


def _predicted_left(view: JobView) -> float:
    """The part of a job's work that is left if its column `estimate_s` holds, at least LEAST_PREDICTED."""
    seconds = number_in(view.job, ESTIMATE)
    if seconds is None or seconds <= 0:
        return 1.0
    return max(LEAST_PREDICTED, 1.0 - view.unit_seconds / (seconds * view.job.request))
