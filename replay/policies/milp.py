"""The optimal allocation at every event: BFTrainer's MILP (DESIGN §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bft import milp
from bft.models import OBJECTIVES, Job, Objective, deadline_weight
from bft.replay.policies.interface import Decision, State


@dataclass
class MilpPolicy:
    """Maximise the jobs' objective over the next `tfwd_s` seconds, rescale costs included.

    Parameters
    ----------
    tfwd_s
        Forward-looking window in seconds.
    backend, formulation, strict_reference, time_limit_s, gap, threads
        As `bft.milp.solve` takes them.
    cost_model
        How rescaling is priced: `bftrainer` or `stall`.
    objective
        What is maximised: a function from a job to a curve, see `bft.models.OBJECTIVES`.
    deadline_boost, deadline_horizon_s
        How far and from when on a deadline raises a job's weight, see `bft.models.deadline_weight`; 1 is not at all.
    verify
        Hold every answer against the exact programme; `mismatches` counts those that differ.
    """

    tfwd_s: float
    backend: str = "cbc"
    formulation: str = "auto"
    strict_reference: bool = False
    time_limit_s: float | None = None
    gap: float = 0.0
    threads: int = 1
    cost_model: milp.CostModel = "bftrainer"
    verify: bool = False
    objective: Objective = OBJECTIVES["own"]
    deadline_boost: float = 1.0
    deadline_horizon_s: float = 86_400.0
    name: str = field(default="milp", init=False)
    verified: int = field(default=0, init=False)
    mismatches: int = field(default=0, init=False)
    _terms: dict[str, milp.Job] = field(default_factory=dict, init=False, repr=False)

    def decide(self, state: State) -> Decision:
        """Pose the decision as a problem and solve it."""
        problem = self.problem(state)
        solution = milp.solve(
            problem,
            backend=self.backend,
            formulation=self.formulation,
            strict_reference=self.strict_reference,
            time_limit=self.time_limit_s,
            gap=self.gap,
            threads=self.threads,
        )
        if self.verify and not problem.pairs:  # the exact programme knows no sharing
            self._hold_against_exact(problem, solution)
        return Decision(
            counts=solution.counts,
            status=solution.status,
            objective=solution.objective,
            bound=solution.bound,
            backend=solution.backend,
            note=solution.note,
            seconds=solution.seconds,
            transfers=solution.transfers,
        )

    def state(self) -> dict[str, Any]:
        """How many answers have been verified, and how many were wrong."""
        return {"verified": self.verified, "mismatches": self.mismatches}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on counting from `state`."""
        self.verified, self.mismatches = state["verified"], state["mismatches"]

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
        term = self._terms.get(job.name)
        if term is None:
            curve = self.objective(job)
            term = milp.Job(job.name, job.jmin, job.jmax, curve.ns, curve.ps, job.tcup_s, job.tcdw_s, job.weight)
            self._terms[job.name] = term
        if job.deadline_ns is None or self.deadline_boost == 1.0:
            return term
        weight = deadline_weight(job, now_ns, horizon_s=self.deadline_horizon_s, boost=self.deadline_boost)
        return replace(term, weight=weight)

    def _hold_against_exact(self, problem: milp.Problem, solution: milp.Solution) -> None:
        exact = milp.solve(problem, backend="exact")
        self.verified += 1
        if abs(exact.objective - solution.objective) > milp.TOLERANCE * max(1.0, abs(exact.objective)):
            self.mismatches += 1
