"""The optimal allocation at every event: BFTrainer's MILP (DESIGN §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bft import milp
from bft.models import OBJECTIVES, Curve, Job, Objective, OnlineCurve, deadline_weight
from bft.replay.engine.port import Decision, State
from bft.replay.policies.solver import SolverOptions
from bft.replay.trace.node_trace import SECOND_NS


@dataclass
class MilpPolicy:
    """Maximise the jobs' objective over the next `tfwd_s` seconds, rescale costs included.

    Parameters
    ----------
    tfwd_s
        Forward-looking window in seconds.
    solver
        What solves a decision. With `verify`, `verified` counts the answers that were checked, `mismatches` those that
        were proved wrong.
    cost_model
        How rescaling is priced: `bftrainer` or `stall`.
    objective
        What is maximised: a function from a job to a curve, see `bft.models.OBJECTIVES`.
    deadline_boost, deadline_horizon_s
        How far and from when on a deadline raises a job's weight, see `bft.models.deadline_weight`; 1 is not at all.
    learn_curves
        Do not look at the jobs' curves, but learn them while they run (`bft.models.OnlineCurve`). What is maximised is
        then the sum of the speed-ups over one unit, as rates of jobs that never ran cannot be compared.
    """

    tfwd_s: float
    solver: SolverOptions = SolverOptions()
    cost_model: milp.CostModel = "bftrainer"
    objective: Objective = OBJECTIVES["own"]
    deadline_boost: float = 1.0
    deadline_horizon_s: float = 86_400.0
    learn_curves: bool = field(
        default=False, metadata={"help": "learn the jobs' curves while they run; maximises speed-ups then"}
    )
    name: str = field(default="milp", init=False)
    verified: int = field(default=0, init=False)
    mismatches: int = field(default=0, init=False)
    _terms: dict[str, milp.Job] = field(default_factory=dict, init=False, repr=False)
    _learned: dict[str, OnlineCurve] = field(default_factory=dict, init=False, repr=False)
    _seen_ns: int = field(default=0, init=False, repr=False)

    def decide(self, state: State) -> Decision:
        """Pose the decision as a problem and solve it."""
        if self.learn_curves:
            self._learn(state)
        problem = self.problem(state)
        solution = self.solver.solve(problem)
        self.verified += solution.verified is not None
        self.mismatches += solution.verified is False
        return Decision(
            counts=solution.counts,
            status=solution.status,
            objective=solution.objective,
            bound=solution.bound,
            backend=solution.backend,
            note=solution.note,
            transfers=solution.transfers,
        )

    def state(self) -> dict[str, Any]:
        """How many answers have been verified, how many were wrong, and what has been learned of curves."""
        return {
            "verified": self.verified,
            "mismatches": self.mismatches,
            "seen_ns": self._seen_ns,
            "learned": {name: curve.state() for name, curve in self._learned.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on counting and learning from `state`."""
        self.verified, self.mismatches = state["verified"], state["mismatches"]
        self._seen_ns = state["seen_ns"]
        self._learned = {name: OnlineCurve.restored(seen) for name, seen in state["learned"].items()}

    def problem(self, state: State) -> milp.Problem:
        """The decision as an allocation problem."""
        return milp.Problem(
            units=state.idle,
            tfwd=self.tfwd_s,
            jobs=tuple(self._term(view.job, state.time_ns) for view in state.jobs),
            current=tuple(view.units for view in state.jobs),
            cost_model=self.cost_model,
            pairs=self.pairs(state),
        )

    def pairs(self, state: State) -> tuple[milp.Pair, ...]:
        """Jobs that may share units: none here."""
        return ()

    def _term(self, job: Job, now_ns: int) -> milp.Job:
        term = None if self.learn_curves else self._terms.get(job.name)
        if term is None:
            curve = self._speed_up(job) if self.learn_curves else self.objective(job)
            term = milp.Job(job.name, job.jmin, job.jmax, curve.ns, curve.ps, job.tcup_s, job.tcdw_s, job.weight)
            self._terms[job.name] = term
        if job.deadline_ns is None or self.deadline_boost == 1.0:
            return term
        weight = deadline_weight(job, now_ns, horizon_s=self.deadline_horizon_s, boost=self.deadline_boost)
        return replace(term, weight=weight)

    def _learn(self, state: State) -> None:
        """Note at which rate each job has run on its present units since the last decision, or since it got them."""
        for view in state.jobs:
            if view.rate and view.since_ns is not None and not view.partners:  # beside others it tells of xi too
                seconds = (state.time_ns - max(view.since_ns, self._seen_ns)) / SECOND_NS
                self._learned.setdefault(view.job.name, OnlineCurve()).observe(view.units, view.rate, seconds)
        for view in state.finished:
            self._learned.pop(view.job.name, None)
        self._seen_ns = state.time_ns

    def _speed_up(self, job: Job) -> Curve:
        """What is believed of a job's speed-up over one unit."""
        believed = self._learned.get(job.name, OnlineCurve()).estimate(job.jmax)
        one = float(believed.at(np.array([1.0]))[0])
        return Curve(believed.ns, believed.ps / one) if one > 0 else believed
