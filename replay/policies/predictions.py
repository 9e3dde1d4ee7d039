"""Predictions of saved models, written before a replay to columns that policies read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from bft.models import InputError, Job, JobTable
from bft.models.cells import is_gap, read_number, shown
from bft.replay.trace.node_trace import SECOND_NS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

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
        A saved `bft.models.prediction.duration.DurationEstimator`.

    Raises
    ------
    InputError
        When the file is no such model, or a job lacks a required column.
    """
    from bft.models.prediction.duration import DurationEstimator
    from bft.models.prediction.saved_models import read_model

    estimator = read_model(model, DurationEstimator)
    wanted = [
        position for position, job in enumerate(jobs) if ESTIMATE not in job.extra
    ]
    return _with_column(
        jobs,
        ESTIMATE,
        wanted,
        lambda frame: estimator.predict(frame, source=jobs.source),
        _submission,
    )


def with_scores(jobs: JobTable, model: str | Path) -> JobTable:
    """Predict sharing scores into the column `sharing_score`, for jobs that have a profile and no score.

    A profile is the columns gpu_util, gmem_util, gmem and amp.

    Parameters
    ----------
    jobs
        The jobs.
    model
        A saved `bft.models.prediction.packing.PackingAnalyser`.

    Raises
    ------
    InputError
        When the file is no such model, or a profile is invalid.
    """
    from bft.models.prediction.packing import PackingAnalyser
    from bft.models.prediction.saved_models import read_model

    analyser = read_model(model, PackingAnalyser)
    wanted = [
        position
        for position, job in enumerate(jobs)
        if SCORE not in job.extra and all(column in job.extra for column in _PROFILE)
    ]
    return _with_column(
        jobs,
        SCORE,
        wanted,
        lambda frame: analyser.scores(frame, source=jobs.source),
        lambda job: dict(job.extra),
    )


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


def _submission(job: Job) -> Mapping[str, Any]:
    """The attributes of a job at submission, as the estimator expects them."""
    known = {
        "user": job.user,
        "vc": job.vc,
        "gpu_num": job.request,
        "submit_time": job.tsub_ns / SECOND_NS,
    }
    return {**job.extra, **known}


def _with_column(
    jobs: JobTable,
    column: str,
    wanted: Sequence[int],
    predict: Callable[[pd.DataFrame], np.ndarray[Any, Any]],
    row: Callable[[Job], Mapping[str, Any]],
) -> JobTable:
    import pandas as pd

    if not wanted:
        return jobs
    predicted = predict(
        pd.DataFrame([row(jobs.jobs[position]) for position in wanted])
    ).tolist()
    completed = list(jobs.jobs)
    for position, value in zip(wanted, predicted, strict=True):
        completed[position] = replace(
            completed[position],
            extra=MappingProxyType({**completed[position].extra, column: value}),
        )
    return JobTable(tuple(completed), jobs.source)
