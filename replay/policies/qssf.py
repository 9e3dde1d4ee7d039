"""Quasi-shortest-service-first: short and small jobs first, by prediction (Helios, SC'21).

Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021, §4.2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from bft.models import Job
from bft.replay.engine.policy_api import Decision, JobView, Kind, State
from bft.replay.engine.snapshot import StoredState
from bft.replay.policies.predictions import ESTIMATE, number_in
from bft.replay.policies.rigid import start


@dataclass
class QuasiShortestServiceFirst(StoredState):
    """Run jobs by predicted duration x units, ascending, without preemption.

    The prediction is the job's column `estimate_s`, from a regressor trained on past jobs. A job without one, or with
    one that is not above 0, is expected to run as long as the mean of jobs finished in this replay: those of its user
    with its model and units, else of its user with its units, of its user, with its units, or of all.

    Parameters
    ----------
    fallback_s
        Expected seconds until a job has finished.
    backfill
        Skip a job that does not fit, and continue.
    consolidate
        Place each job on as few nodes as possible; otherwise on any units.
    """

    fallback_s: float = field(
        default=1000.0, metadata={"help": "predicted seconds while nothing is known"}
    )
    backfill: bool = field(
        default=False, metadata={"help": "skip jobs that do not fit, and continue"}
    )
    consolidate: bool = field(
        default=True, metadata={"help": "place each job on as few nodes as it needs"}
    )
    name: str = field(default="qssf", init=False)
    kind: ClassVar[Kind] = Kind(rigid=True)
    _priority: dict[str, float] = field(
        default_factory=dict, init=False, repr=False
    )  # of jobs in play
    _past: dict[str, tuple[int, float]] = field(
        default_factory=dict, init=False, repr=False
    )  # jobs and mean, by kind

    def decide(self, state: State) -> Decision:
        """Start the jobs with the smallest predictions."""
        for view in state.finished:
            self._learn(view)
        for view in state.jobs:
            if view.job.name not in self._priority:
                self._priority[view.job.name] = (
                    self._predicted_s(view.job) * view.job.request
                )
        waiting = sorted(
            state.waiting,
            key=lambda position: self._priority[state.jobs[position].job.name],
        )
        return start(
            state,
            waiting,
            spreads=lambda job: not self.consolidate,
            blocks=not self.backfill,
        )

    def _learn(self, view: JobView) -> None:
        """Learn from a finished job."""
        self._priority.pop(view.job.name, None)
        for kind in _kinds(view.job):
            count, mean = self._past.get(kind, (0, 0.0))
            self._past[kind] = count + 1, mean + (view.executed_s - mean) / (count + 1)

    def _predicted_s(self, job: Job) -> float:
        seconds = number_in(job, ESTIMATE)
        if (
            seconds is None or seconds <= 0
        ):  # regressors may predict this for short jobs
            seconds = next(
                (self._past[kind][1] for kind in _kinds(job) if kind in self._past),
                self.fallback_s,
            )
        return seconds


def _kinds(job: Job) -> list[str]:
    """Descriptions of a job, from the most specific to none; as texts, which a checkpoint can hold."""
    user, units = f"user {job.user!r}", f"{job.request} units"
    return [
        f"{user}, model {job.model!r}, {units}",
        f"{user}, {units}",
        user,
        units,
        "",
    ]
