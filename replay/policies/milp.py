"""The optimal allocation at every event: BFTrainer's MILP."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bft import milp
from bft.models import Job, Objective, Standing, deadline_weight
from bft.models.checks import Number, check_fields, whole
from bft.replay.engine.policy_api import Decision, JobView, State, Traits
from bft.replay.engine.snapshot import NOT_STORED, StoredState
from bft.replay.policies._constants import constant
from bft.replay.policies.predictions import ESTIMATE, LearnedCurves, number_in
from bft.replay.policies.solver import SolverOptions, arguments
from bft.replay.trace.node_trace import SECOND_NS

# Remaining part of a job that has run longer than predicted; its true remainder is unknown.
LEAST_PREDICTED = 0.05
# Shortest window that expectations lead to, s: a node beyond its time has not left yet, and may stay.
LEAST_WINDOW_S = 1.0
_OWN = Objective.of("own")
# A job on each kind of units.
Pose = Callable[[Job, Sequence[str]], list[milp.Job | None]]


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

    def __post_init__(self) -> None:
        self._forget(())

    def _forget(self, table: Sequence[Job]) -> None:
        self._table, self._asked_ns = table, 0
        self._now, self._until_ns = np.empty(0), np.empty(0, np.int64)

    def now(self, state: State) -> NDArray[np.float64] | None:
        """The weights of the jobs in play, None where they are those of the jobs."""
        if not (self.objective.factors or self.deadline_boost > 1.0):
            return None
        rows, now_ns = state.jobs.rows, state.time_ns
        if (
            self._table is not state.jobs.table or now_ns < self._asked_ns
        ):  # another replay
            self._forget(state.jobs.table)
        self._asked_ns = now_ns
        new = len(state.jobs.table) - len(self._now)
        if new:
            self._now = np.append(self._now, np.ones(new))
            self._until_ns = np.append(self._until_ns, np.zeros(new, np.int64))
        (due,) = (self._until_ns[rows] <= now_ns).nonzero()
        for position in due.tolist():
            weight, until_ns = self.weight(state.jobs[position], now_ns)
            self._now[rows[position]] = weight
            self._until_ns[rows[position]] = until_ns
        return self._now[rows]

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
            seconds = number_in(view.job, ESTIMATE)
            if self.known_left:
                left = view.remaining / view.job.pmax
            elif seconds is not None and seconds > 0:
                used = view.unit_seconds / (seconds * view.job.request)
                left = max(LEAST_PREDICTED, 1.0 - used)
        return Standing(left, age_s)


class _Table:
    """The jobs of a replay as rows of terms on each kind of units: each is looked at once.

    `jobs` is the replay's own table, to which jobs are only added.
    """

    def __init__(self, jobs: Sequence[Job], kinds: Sequence[str], pose: Pose) -> None:
        self.jobs, self.kinds = jobs, tuple(kinds)
        self._pose = pose
        self._terms = milp.Terms(max(len(kinds), 1))

    def at(
        self, rows: NDArray[np.int64], weight: NDArray[np.float64] | None
    ) -> milp.Rows:
        """The jobs in some rows of the table, with their weights now."""
        terms, known = self._terms, len(self._terms)
        if known < len(self.jobs) and len(rows):
            end = int(rows[rows.argmax()]) + 1
            if end > known:
                # Twice as many, so that arrays are seldom copied.
                new = self.jobs[known : max(end, 2 * known)]
                terms.extend([self._pose(job, self.kinds) for job in new])
        return milp.Rows(terms, rows, weight)


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
        never ran cannot be compared. `profile`: nothing; a job is first measured at a few sizes (`LearnedCurves`), then
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
    profile_s: float = constant(
        60.0, "--option curves=profile: seconds at each size", Number(1e-3)
    )
    profile_sizes: int = constant(
        4, "--option curves=profile: at how many sizes a job is measured", whole(1)
    )
    profile_order: Literal["growing", "inverse"] = constant(
        "growing",
        "--option curves=profile: from the smallest size up, or from the largest down",
    )
    remaining: Literal["known", "predicted"] = constant(
        "known", "work left, for the objective srpt: known, or predicted by estimate_s"
    )
    window: Literal["fixed", "expected"] = constant(
        "fixed",
        "expected: look no further than the next node is expected to leave, by the host jobs",
    )
    by_kind: bool = constant(
        default=True,
        text="with --option kinds: use the curves of each kind; no: the usual ones on every kind",
    )
    name: str = field(default="milp", init=False)
    traits: Traits = field(default=Traits(kinds=True), init=False, metadata=NOT_STORED)
    verified: int = field(default=0, init=False)
    mismatches: int = field(default=0, init=False)
    _table: _Table | None = field(
        default=None, init=False, repr=False, compare=False, metadata=NOT_STORED
    )
    _arguments: Mapping[str, Any] = field(init=False, repr=False, metadata=NOT_STORED)
    _weights: Weights = field(init=False, repr=False, metadata=NOT_STORED)
    _learned: LearnedCurves | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        self._arguments = arguments(self.solver)
        self._weights = Weights(
            self.objective,
            self.deadline_boost,
            self.deadline_horizon_s,
            self.remaining == "known",
        )
        if self.curves != "known":
            self._learned = LearnedCurves(
                self.objective,
                self.curves == "profile",
                self.profile_s,
                self.profile_sizes,
                self.profile_order,
            )
        self.traits = replace(
            self.traits,
            clairvoyant=self.objective.uses_left and self.remaining == "known",
            expects=self.window == "expected",
            kinds=self.traits.kinds and self.curves == "known",
        )

    def decide(self, state: State) -> Decision:
        """Pose the decision as a problem and solve it."""
        learned: LearnedCurves | None = self._learned
        targets: dict[int, int] = {}
        if learned is not None:
            learned.learn(state)
            targets = learned.targets(state)
        problem, certain = measured_first(self.problem(state), targets)
        solution = milp.solve(problem, **self._arguments)
        self.verified += solution.verified is not None
        self.mismatches += solution.verified is False
        if certain:
            solution = replace(
                solution,
                objective=solution.objective - certain,
                bound=max(solution.bound, solution.objective) - certain,
            )
        decision = Decision.solved(solution)
        if learned is None or not targets:
            return decision
        stall = self.cost_model == "stall"
        return decision.waking(learned.wake_ns(state, targets, stall))

    def problem(self, state: State) -> milp.Problem:
        """The decision as an allocation problem; a subclass may pose another one (docs/change-the-milp.md)."""
        idle = state.machine.idle_by_kind()
        jobs = self._posed(state, tuple(idle))
        kinds = None
        if idle:
            held: list[str | None] = [None] * len(state.jobs)
            for position in state.jobs.running:
                held[position] = state.machine.kind_of(state.jobs[position].held[0])
            kinds = milp.UnitKinds(idle, held)
        alike = self.alike(state, jobs)
        return milp.Problem(
            units=state.idle,
            tfwd=self._window_s(state),
            jobs=jobs,
            current=milp.Counts(state.jobs.counts),
            cost_model=self.cost_model,
            pairs=self.pairs(state, alike),
            alike=alike,
            kinds=kinds,
        )

    def _window_s(self, state: State) -> float:
        """Length of the forward-looking window of a decision."""
        expected = state.expected_idle_until() if self.window == "expected" else ()
        ends = [end for end in expected if end is not None]
        if not ends:
            return self.tfwd_s
        left_s = (min(ends) - state.time_ns) / SECOND_NS
        return min(self.tfwd_s, max(left_s, LEAST_WINDOW_S))

    def alike(self, state: State, jobs: milp.Rows) -> tuple[tuple[int, ...], ...]:
        """Groups of waiting jobs that are interchangeable when jobs share units: none here."""
        return ()

    def pairs(
        self, state: State, alike: Sequence[tuple[int, ...]] = ()
    ) -> tuple[milp.Pair, ...]:
        """Pairs of jobs that may share units: none here."""
        return ()

    def _posed(self, state: State, kinds: tuple[str, ...]) -> milp.Rows:
        """The jobs in play with their curves, on each kind of units, and their weights now."""
        weight = self._weights.now(state)
        if self._learned is not None:
            jobs = [view.job for view in state.jobs]
            return _Table(jobs, kinds, self._term).at(np.arange(len(jobs)), weight)
        table = self._table
        if table is None or table.jobs is not state.jobs.table or table.kinds != kinds:
            table = self._table = _Table(state.jobs.table, kinds, self._term)
        return table.at(state.jobs.rows, weight)

    def _term(self, job: Job, kinds: Sequence[str]) -> list[milp.Job | None]:
        """A job on each kind of units, or on all where they are alike."""
        if self._learned is not None:
            curves = [self._learned.curve(job)]
        elif self.by_kind:
            curves = [self.objective.curve_on(job, kind) for kind in kinds or ("",)]
        else:
            curves = [self.objective.curve(job)] * max(len(kinds), 1)
        bounds, costs = (job.jmin, job.jmax), (job.tcup_s, job.tcdw_s)
        return [
            milp.Job(
                job.name, *bounds, curve.ns, curve.ps, *costs, job.weight, job.sizes
            )
            for curve in curves
        ]


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
        0.0 if position in targets else weight * float(np.abs(job.os).max())
        for position, (job, weight) in enumerate(
            zip(problem.jobs, problem.posed.weight.tolist(), strict=True)
        )
    ]
    # One unit more of anything is worth less than that, rescale costs, which are at most Tfwd or T, included.
    longest = max((max(job.tcup, job.tcdw) for job in problem.jobs), default=0.0)
    worth = 2.0 * math.fsum(others) * (1.0 + longest / problem.tfwd) + 1.0
    jobs, weight = list(problem.jobs), problem.posed.weight.copy()
    weight[list(targets)] = 1.0
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
    own = milp.Rows.of([(job,) for job in jobs])
    posed = milp.Rows(own.terms, own.rows, weight)
    return replace(problem, jobs=posed, pairs=pairs), certain
