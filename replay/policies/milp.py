"""The optimal allocation at every event: BFTrainer's MILP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from bft import milp
from bft.models import Curve, Job, Objective, OnlineCurve, Standing, deadline_weight
from bft.replay.engine.memory import NOT_KEPT, kept, remember
from bft.replay.engine.port import Decision, JobView, Kind, State
from bft.replay.policies.predictions import ESTIMATE, number_in
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import SECOND_NS

# Remaining part of a job that has run longer than predicted; its true remainder is unknown.
LEAST_PREDICTED = 0.05
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
    learn_curves
        Ignore the jobs' curves and learn them while they run (`bft.models.OnlineCurve`). The objective is then the sum
        of speed-ups over one unit, because rates of jobs that never ran cannot be compared.
    remaining
        The remaining work used by the objective: `known`, which no real scheduler knows (the policy is then
        clairvoyant); or `predicted`, the part of estimate_s x Jreq unit-seconds that a job has not used yet. A job
        without the column `estimate_s` counts as having all its work left; one past its estimate, as having 5 % left.

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
    learn_curves: bool = field(
        default=False, metadata={"help": "learn the jobs' curves while they run; maximises speed-ups then"}
    )
    remaining: Literal["known", "predicted"] = field(
        default="known", metadata={"help": "work left, for the objective srpt: known, or predicted by estimate_s"}
    )
    name: str = field(default="milp", init=False)
    kind: Kind = field(default=Kind(), init=False, metadata=NOT_KEPT)
    verified: int = field(default=0, init=False)
    mismatches: int = field(default=0, init=False)
    _terms: dict[str, milp.Job] = field(default_factory=dict, init=False, repr=False, metadata=NOT_KEPT)
    _learned: dict[str, OnlineCurve] = field(default_factory=dict, init=False, repr=False)
    _seen_ns: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.objective.uses_left and self.remaining == "known":
            self.kind = replace(self.kind, clairvoyant=True)

    def decide(self, state: State) -> Decision:
        """Pose the decision as a problem and solve it."""
        if self.learn_curves:
            self._learn(state)
        problem = self.problem(state)
        solution = self.solver.solve(problem)
        self.verified += solution.verified is not None
        self.mismatches += solution.verified is False
        return Decision.solved(solution)

    def state(self) -> dict[str, Any]:
        """Counts of verified and invalid answers, and the learned curves."""
        return kept(self, inner=True)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        remember(self, state, inner=True)

    def problem(self, state: State) -> milp.Problem:
        """The decision as an allocation problem."""
        return milp.Problem(
            units=state.idle,
            tfwd=self.tfwd_s,
            jobs=self._posed(state),
            current=tuple(state.counts.tolist()),
            cost_model=self.cost_model,
            pairs=self.pairs(state),
        )

    def pairs(self, state: State) -> tuple[milp.Pair, ...]:
        """Pairs of jobs that may share units: none here."""
        return ()

    def _posed(self, state: State) -> tuple[milp.Job, ...]:
        """The jobs in play with their curves and weights; unchanged jobs are the objects of the last decision."""
        if self.learn_curves:
            self._terms.clear()
        if self.objective.factors or self.deadline_boost > 1.0:
            return tuple([self._weighted(view, state.time_ns) for view in state.jobs])
        known = list(map(self._terms.get, state.positions))
        return tuple([term or self._term(state.jobs[position].job) for position, term in enumerate(known)])

    def _term(self, job: Job) -> milp.Job:
        curve = self._speed_up(job) if self.learn_curves else self.objective.curve(job)
        term = milp.Job(job.name, job.jmin, job.jmax, curve.ns, curve.ps, job.tcup_s, job.tcdw_s, job.weight, job.sizes)
        self._terms[job.name] = term
        return term

    def _weighted(self, view: JobView, now_ns: int) -> milp.Job:
        """A job at its present weight. An unchanged job keeps its terms, and thereby its class."""
        job = view.job
        term = self._terms.get(job.name) or self._term(job)
        weight = job.weight
        if self.deadline_boost > 1.0:
            weight = deadline_weight(job, now_ns, horizon_s=self.deadline_horizon_s, boost=self.deadline_boost)
        if self.objective.factors:
            weight *= self.objective.factor(self._standing(view, now_ns))
        if weight != term.weight:
            term = self._terms[job.name] = replace(term, weight=weight)
        return term

    def _standing(self, view: JobView, now_ns: int) -> Standing:
        left, age_s = 1.0, 0.0
        if self.objective.uses_age:
            age_s = (now_ns - view.job.tsub_ns) / SECOND_NS
        if self.objective.uses_left:
            left = view.remaining / view.job.pmax if self.remaining == "known" else _predicted_left(view)
        return Standing(left, age_s)

    def _learn(self, state: State) -> None:
        """Note at which rate each job has run on its present units since the last decision, or since it got them."""
        for view in state.jobs:
            if view.rate and view.since_ns is not None and not view.partners:  # with partners it depends on xi
                seconds = (state.time_ns - max(view.since_ns, self._seen_ns)) / SECOND_NS
                self._learned.setdefault(view.job.name, OnlineCurve()).observe(view.units, view.rate, seconds)
        for view in state.finished:
            self._learned.pop(view.job.name, None)
        self._seen_ns = state.time_ns

    def _speed_up(self, job: Job) -> Curve:
        """The learned speed-up of a job over one unit."""
        believed = self._learned.get(job.name, OnlineCurve()).estimate(job.jmax)
        one = float(believed.at(np.array([1.0]))[0])
        return Curve(believed.ns, believed.ps / one) if one > 0 else believed


def _predicted_left(view: JobView) -> float:
    """The part of a job's work that is left if its column `estimate_s` holds, at least LEAST_PREDICTED."""
    seconds = number_in(view.job, ESTIMATE)
    if seconds is None or seconds <= 0:
        return 1.0
    return max(LEAST_PREDICTED, 1.0 - view.unit_seconds / (seconds * view.job.request))
