"""Quasi-shortest-service-first: short and small jobs first, by prediction (Helios, SC'21).

Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021, §4.2.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bft.models import Job
from bft.replay.engine.policy_api import JobView, State
from bft.replay.engine.snapshot import StoredState
from bft.replay.policies._constants import constant
from bft.replay.policies.predictions import ESTIMATE, number_in
from bft.replay.policies.rigid import Queue


@dataclass
class QuasiShortestServiceFirst(StoredState, Queue):
    """Run jobs by predicted duration x units, ascending, without preemption.

    The prediction is the job's column `estimate_s`, from a regressor trained on past jobs. A job without one, or with
    one that is not above 0, is expected to run as long as the mean of jobs finished in this replay: those of its user
    with its model and units, else of its user with its units, of its user, with its units, or of all.

    Parameters
    ----------
    fallback_s
        Expected seconds until a job has finished.
    """

    fallback_s: float = constant(1000.0, "predicted seconds while nothing is known")
    name: str = field(default="qssf", init=False)
    # Unit-seconds of jobs in play; number and mean seconds of past jobs by kind.
    _priority: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _past: dict[str, tuple[int, float]] = field(
        default_factory=dict, init=False, repr=False
    )

    def queue(self, state: State) -> Iterable[int]:
        """The waiting jobs, those with the smallest predictions first."""
        for view in state.finished:
            self._learn(view)
        for view in state.jobs:
            name, units = view.job.name, view.job.request
            if name not in self._priority:
                seconds = number_in(view.job, ESTIMATE)
                if seconds is None or seconds <= 0:  # regressors may predict this
                    kinds = (kind for kind in _kinds(view.job) if kind in self._past)
                    known = next(kinds, None)
                    seconds = self.fallback_s if known is None else self._past[known][1]
                self._priority[name] = seconds * units
        names = [view.job.name for view in state.jobs]
        return sorted(state.jobs.waiting, key=lambda each: self._priority[names[each]])

    def _learn(self, view: JobView) -> None:
        """Learn from a finished job."""
        self._priority.pop(view.job.name, None)
        for kind in _kinds(view.job):
            count, mean = self._past.get(kind, (0, 0.0))
            self._past[kind] = count + 1, mean + (view.executed_s - mean) / (count + 1)


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
