"""The optimal allocation at every event: BFTrainer's MILP (DESIGN §6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from bft import milp
from bft.models import Job
from bft.replay.policies.interface import Decision, State


@dataclass
class MilpPolicy:
    """Maximise the jobs' objective over the next `tfwd_s` seconds, rescale costs included.

    Parameters
    ----------
    tfwd_s
        Forward-looking window in seconds.
    backend, formulation, time_limit_s, gap, threads
        As `bft.milp.solve` takes them.
    cost_model
        How rescaling is priced: `bftrainer` or `stall`.
    verify
        Hold every answer against the exact programme; `mismatches` counts those that differ.
    """

    tfwd_s: float
    backend: str = "cbc"
    formulation: str = "modes"
    time_limit_s: float | None = None
    gap: float = 0.0
    threads: int = 1
    cost_model: milp.CostModel = "bftrainer"
    verify: bool = False
    name: str = field(default="milp", init=False)
    verified: int = field(default=0, init=False)
    mismatches: int = field(default=0, init=False)
    _terms: dict[str, milp.Job] = field(default_factory=dict, init=False, repr=False)

    def decide(self, state: State) -> Decision:
        """Pose the decision as a problem and solve it."""
        problem = milp.Problem(
            units=state.idle,
            tfwd=self.tfwd_s,
            jobs=tuple(self._term(view.job) for view in state.jobs),
            current=tuple(view.units for view in state.jobs),
            cost_model=self.cost_model,
        )
        solution = milp.solve(
            problem,
            backend=self.backend,
            formulation=self.formulation,
            time_limit=self.time_limit_s,
            gap=self.gap,
            threads=self.threads,
        )
        if self.verify:
            self._hold_against_exact(problem, solution)
        return Decision(
            counts=solution.counts,
            status=solution.status,
            objective=solution.objective,
            bound=solution.bound,
            backend=solution.backend,
            note=solution.note,
            seconds=solution.seconds,
        )

    def _term(self, job: Job) -> milp.Job:
        term = self._terms.get(job.name)
        if term is None:
            curve = job.objective
            term = milp.Job(job.name, job.jmin, job.jmax, curve.ns, curve.ps, job.tcup_s, job.tcdw_s, job.weight)
            self._terms[job.name] = term
        return term

    def _hold_against_exact(self, problem: milp.Problem, solution: milp.Solution) -> None:
        exact = milp.solve(problem, backend="exact")
        self.verified += 1
        if abs(exact.objective - solution.objective) > milp.TOLERANCE * max(1.0, abs(exact.objective)):
            self.mismatches += 1
