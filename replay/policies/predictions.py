"""Predictions of saved models, written before a replay to columns that policies read; and curves learned in a replay.

Jobs may be measured before they are scheduled, as by MalleTrain's job profiling advisor.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from bft.models import Curve, InputError, Job, JobTable, Objective, OnlineCurve
from bft.models.cells import is_gap, read_number, shown
from bft.models.tolerances import MEASURED_S
from bft.replay.engine.policy_api import State
from bft.replay.engine.snapshot import StoredState
from bft.replay.trace.node_trace import SECOND_NS

ESTIMATE: Final = "estimate_s"
SCORE: Final = "sharing_score"
_PROFILE: Final = ("gpu_util", "gmem_util", "gmem", "amp")


def with_estimates(jobs: JobTable, model: str | Path) -> JobTable:
    """Predict seconds at the request into the column `estimate_s`, for jobs without an estimate.

    All at once: a prediction depends only on the submission and the trained model, which does not learn from jobs of
    the replay.

    Parameters
    ----------
    jobs
        The jobs.
    model
        A saved `bft.models.learned.duration.DurationEstimator`.

    Raises
    ------
    InputError
        When the file is no such model, or a job lacks a required column.
    """
    from bft.models.learned.duration import DurationEstimator
    from bft.models.learned.saved_models import read_model

    estimator = read_model(model, DurationEstimator)
    rows = {
        position: {
            **job.extra,
            "user": job.user,
            "vc": job.vc,
            "gpu_num": job.request,
            "submit_time": job.tsub_ns / SECOND_NS,
        }
        for position, job in enumerate(jobs)
        if ESTIMATE not in job.extra
    }
    return _with_column(jobs, ESTIMATE, rows, estimator.predict)


def with_scores(jobs: JobTable, model: str | Path) -> JobTable:
    """Predict sharing scores into the column `sharing_score`, for jobs that have a profile and no score.

    A profile is the columns gpu_util, gmem_util, gmem and amp.

    Parameters
    ----------
    jobs
        The jobs.
    model
        A saved `bft.models.learned.packing.PackingAnalyser`.

    Raises
    ------
    InputError
        When the file is no such model, or a profile is invalid.
    """
    from bft.models.learned.packing import PackingAnalyser
    from bft.models.learned.saved_models import read_model

    analyser = read_model(model, PackingAnalyser)
    rows = {
        position: dict(job.extra)
        for position, job in enumerate(jobs)
        if SCORE not in job.extra and all(column in job.extra for column in _PROFILE)
    }
    return _with_column(jobs, SCORE, rows, analyser.scores)


def number_in(job: Job, column: str) -> float | None:
    """A number in one of a job's additional columns, None if it is empty.

    Raises
    ------
    InputError
        When the cell is not a number.
    """
    value = job.extra.get(column)
    if is_gap(value):
        return None
    number = read_number(value)
    if math.isnan(number):
        raise InputError(
            f"expected a finite number, not {shown(value)}", column=column, job=job.name
        )
    return number


def _with_column(
    jobs: JobTable,
    column: str,
    rows: Mapping[int, Mapping[str, Any]],
    predict: Callable[..., np.ndarray[Any, Any]],
) -> JobTable:
    """The jobs, those at some positions with what a model predicts of their rows in a further column."""
    import pandas as pd

    if not rows:
        return jobs
    predicted = predict(pd.DataFrame(list(rows.values())), source=jobs.source).tolist()
    completed = list(jobs.jobs)
    for position, value in zip(rows, predicted, strict=True):
        job = completed[position]
        extra = MappingProxyType({**job.extra, column: value})
        completed[position] = replace(job, extra=extra)
    return JobTable(tuple(completed), jobs.source)


@dataclass
class LearnedCurves(StoredState):
    """Objective curves that are learned from the rates at which jobs have run, or (`measured`) are measured at first.

    A job is measured on its smallest size, about twice that, and so on, `count` of its sizes. Each is measured for
    `seconds` of progress in total, over all interruptions. Meanwhile it trains: what measuring costs are the rescales,
    and that its size is not the best. `growing` goes from the smallest size up, `inverse` from the largest down, as
    published: one growth, and then shrinks, of which each takes Tcdw and not Tcup seconds. No job is measured on more
    than its equal share of the idle units, unless its smallest size is larger; a larger size waits until it fits, and
    meanwhile the job is scheduled by the sizes that are measured.

    Parameters
    ----------
    objective
        The objective of what is learned, where jobs are measured. Without that it is the speed-up over one unit,
        because rates of jobs that never ran cannot be compared.
    measured
        Whether jobs are measured before they are scheduled; otherwise only what the decisions give is learned.
    seconds
        For each size.
    count
        How many sizes.
    order
        Which of them comes first.

    Attributes
    ----------
    learned
        The curve of each job in play that has run.
    """

    objective: Objective
    measured: bool
    seconds: float
    count: int
    order: Literal["growing", "inverse"]
    learned: dict[str, OnlineCurve] = field(
        default_factory=dict, init=False, repr=False
    )

    def learn(self, state: State) -> None:
        """Note at which rates each job has run on the units that it has held since the last decision."""
        for position, view in enumerate(state.jobs):
            for interval in state.intervals(position):
                # With partners xi changes its rate too.
                if view.job.runs_on(interval.units) and not interval.shared:
                    curve = self.learned.setdefault(view.job.name, OnlineCurve())
                    curve.observe(interval.units, interval.rate, interval.progressed_s)
        for view in state.finished:
            self.learned.pop(view.job.name, None)

    def of(self, job: Job) -> OnlineCurve:
        """What has been measured of a job."""
        return self.learned.get(job.name, OnlineCurve())

    def curve(self, job: Job) -> Curve:
        """The objective curve of a job as far as it is known."""
        believed = self.of(job).estimate(job.jmax)
        if self.measured:
            return self.objective.curve(
                replace(job, scalability=believed, objective=believed)
            )
        one = float(believed.at(np.array([1.0]))[0])
        return Curve(believed.ns, believed.ps / one) if one > 0 else believed

    def sizes(self, job: Job) -> list[int]:
        """The sizes at which a job is to be measured, ascending.

        >>> curve, objective = Curve([0, 64], [0, 64]), Objective.of("own")
        >>> LearnedCurves(objective, True, 60.0, 4, "growing").sizes(Job("a", 0, 3, 20, 1e6, 0, 0, curve, curve))
        [3, 6, 12, 20]
        """
        first = max(job.jmin, 1)
        return sorted(
            {job.at_most(min(first * 2**k, job.jmax)) for k in range(self.count)}
        )

    def targets(self, state: State) -> dict[int, int]:
        """Units for each job that is measured now, 0 while it must wait for that; by position in `state.jobs`.

        A job of which nothing fits now is scheduled by what is measured of it, and measured further once it fits.
        """
        left, targets = state.idle, dict[int, int]()
        share = state.idle // max(len(state.jobs), 1)
        for position, view in enumerate(state.jobs if self.measured else ()):
            curve, sizes = self.of(view.job), self.sizes(view.job)
            most = min(left, max(share, sizes[0]))
            fits = [n for n in sizes if n <= most and self._lacks(curve, n) > 0]
            if fits:
                targets[position] = max(fits) if self.order == "inverse" else min(fits)
                left -= targets[position]
            elif not curve.sizes:
                targets[position] = 0
        return targets

    def wake_ns(
        self, state: State, targets: Mapping[int, int], stall: bool
    ) -> int | None:
        """Return when the next of some jobs will have been measured for long enough, if nothing happens before.

        Parameters
        ----------
        state, targets
            As for `targets`, and its answer.
        stall
            Whether a change stops a job for Tcup or Tcdw seconds, in which nothing can be measured.
        """
        seconds = []
        for position, units in targets.items():
            if units:
                job, now = state.jobs[position].job, state.jobs[position].units
                lacks = self._lacks(self.of(job), units)
                if stall and units != now:
                    lacks += job.tcup_s if units > now else job.tcdw_s
                seconds.append(lacks)
        if not seconds:
            return None
        return state.time_ns + max(math.ceil(min(seconds) * SECOND_NS), 1)

    def _lacks(self, curve: OnlineCurve, units: int) -> float:
        """Return the seconds for which a job is still to be measured on a number of units."""
        lacking = self.seconds - curve.seconds(units)
        return lacking if lacking > MEASURED_S else 0.0
