"""How long a job will run, from what is known when it is submitted (Lucid's workload estimate model, ASPLOS'23, §3.5).

What a job asks for says little, what its user ran before says more. All history is of jobs that had finished when the
job was submitted; nothing that happens later can change its features, not even by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from bft.models.cells import Rows
from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.learned.ga2m import AdditiveModel, fit_ga2m

SUBMITTED: Final = ("user", "gpu_num", "submit_time")
FINISHED: Final = (*SUBMITTED, "duration")
# Used where the table to learn from has them.
OPTIONAL: Final = ("vc", "jobname", "cpu_num")

DAY_S: Final = 86_400.0
# Seconds since the last finished job of a user without any, or with none for longer.
LONG_AGO_S: Final = 365 * DAY_S
# A model of logarithms may get beyond all bounds where it has not learnt.
LONGEST_S: Final = 10 * 365 * DAY_S
_THURSDAY: Final = 3  # 1970-01-01, Monday being 0


@dataclass(frozen=True, slots=True, eq=False)
class DurationEstimator:
    """Estimator of durations, made by `train` or read by `bft.models.learned.saved_models.read_model`.

    Tables of jobs have the columns

    | column                | meaning                                                                               |
    |-----------------------|---------------------------------------------------------------------------------------|
    | user                  | who submits                                                                           |
    | gpu_num               | units that the job asks for                                                           |
    | submit_time           | date and time (UTC where it names no zone), or seconds since 1970 or another midnight |
    | vc, jobname, cpu_num  | optional: virtual cluster, name (digits do not count: run-1 is run-2), processors      |
    | duration              | of finished jobs: seconds                                                             |
    | finish_time           | of finished jobs, optional: as submit_time; without it submit_time + duration         |

    Parameters
    ----------
    optional
        Which optional columns it learnt from, and hence wants.
    features
        Names of what the regressor looks at: gpus, cpus, hour and weekday (Monday 0, UTC) of the submission, and for
        the user's virtual cluster (vc), the user, the user's jobs of that size (user_gpus) and of that name
        (user_name), of finished jobs:

        _mean   mean of log(1 + seconds), with the mean of the next coarser group counted as one job more
        _count  log(1 + how many)
        _last   log(1 + seconds) of the one that finished last; without one, the mean
        _since  log(1 + seconds) since then; a year without one
    past
        Finished jobs: user, vc, name, gpus (empty where the table does not say), finish_s, and target, which is
        log(1 + seconds).
    regressor
        Predicts log(1 + seconds).
    """

    optional: tuple[str, ...]
    features: tuple[str, ...]
    past: pd.DataFrame
    regressor: AdditiveModel

    def __post_init__(self) -> None:
        numbers = self.past[["gpus", "finish_s", "target"]].to_numpy(dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise ValueError("past: expected finite numbers")

    @classmethod
    def train(
        cls, jobs: pd.DataFrame, *, seed: int = 0, source: str = ""
    ) -> DurationEstimator:
        """Learn from finished jobs.

        Parameters
        ----------
        jobs
            At least 20 finished jobs, in any order. They are kept as history for later predictions.
        seed
            See `bft.models.learned.ga2m.fit_ga2m`.
        source
            File to name in messages.

        Raises
        ------
        InputError
            Naming the column and row that is missing or wrong.
        """
        rows = Rows(jobs, source)
        optional = tuple(
            column for column in OPTIONAL if any(row.given(column) for row in rows)
        )
        past = _past(jobs, optional, source)
        x = _features(_submitted(jobs, optional, source), past, optional)
        regressor = fit_ga2m(x.to_numpy(), past["target"].to_numpy(), seed)
        return cls(optional, tuple(x.columns), past, regressor)

    def predict(
        self, jobs: pd.DataFrame, *, past: pd.DataFrame | None = None, source: str = ""
    ) -> FloatArray:
        """Predicted durations in seconds, >= 0, of shape (jobs,).

        Parameters
        ----------
        jobs
            Jobs at their submission. A column duration is not looked at.
        past
            Further finished jobs, none of those that it learnt from. Each counts for jobs submitted after its finish
            only, so this may be the same table as `jobs`.
        source
            File to name in messages.
        """
        x = self.inputs(jobs, past=past, source=source).to_numpy()
        return np.expm1(np.clip(self.regressor.predict(x), 0.0, np.log1p(LONGEST_S)))

    def inputs(
        self, jobs: pd.DataFrame, *, past: pd.DataFrame | None = None, source: str = ""
    ) -> pd.DataFrame:
        """The regressor's features of jobs, a column each: to explain and to draw."""
        known = self.past
        if past is not None:
            known = pd.concat([known, _past(past, self.optional, source)])
        return _features(_submitted(jobs, self.optional, source), known, self.optional)


# Predictions that need no model.
BASELINES: Final = ("user at size", "constant")


def baselines(
    before: pd.DataFrame, after: pd.DataFrame, past: pd.DataFrame, *, source: str = ""
) -> dict[str, FloatArray]:
    """Predict without a model; the tables are those of `split_in_time`.

    Returns
    -------
    dict
        Name -> seconds of shape (after,). `user at size`: the mean logarithm of the jobs of that user and size that had
        finished at the submission, with that of all the user's as one job more, and so on for all jobs. `constant`: the
        mean logarithm of all in `before`.
    """
    learnt = _past(before, (), source)
    known = pd.concat([learnt, _past(past, (), source)])
    by_user = _features(_submitted(after, (), source), known, ())["user_gpus_mean"]
    logs = (by_user.to_numpy(), np.full(len(after), learnt["target"].mean()))
    return dict(zip(BASELINES, map(np.expm1, logs), strict=True))


def split_in_time(
    jobs: pd.DataFrame, share: float, *, source: str = ""
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Split finished jobs for a fair test at the instant when the last `share` of them begins to be submitted.

    Parameters
    ----------
    jobs
        See `DurationEstimator`.
    share
        Of the jobs, in (0, 1).
    source
        File to name in messages.

    Returns
    -------
    before, after, past
        Those that had finished by then, to learn from; those submitted from then on, to predict; and all that are not
        in `before`, which become known as time goes on: `train(before).predict(after, past=past)`.
    """
    finish_s = _past(jobs, (), source)["finish_s"].to_numpy()
    if not len(jobs):
        raise InputError("no jobs", file=source or None)
    submit = Rows(jobs, source).all_seconds("submit_time")
    instant = np.sort(submit)[int(len(submit) * (1 - share))]
    known = finish_s < instant
    return jobs[known], jobs[submit >= instant], jobs[~known]


def _submitted(
    frame: pd.DataFrame, optional: Sequence[str], source: str
) -> pd.DataFrame:
    """Jobs at their submission: what groups agree in, cpus where they count, and submit_s."""
    rows = Rows(frame, source).require((*SUBMITTED, *optional))
    columns = _groups(rows, optional)
    if "cpu_num" in optional:
        columns["cpus"] = rows.all_numbers("cpu_num", min=0)
    return pd.DataFrame({**columns, "submit_s": rows.all_seconds("submit_time")})


def _past(frame: pd.DataFrame, optional: Sequence[str], source: str) -> pd.DataFrame:
    """Finished jobs: what groups agree in, finish_s and target."""
    rows = Rows(frame, source).require(
        (*FINISHED, *optional), ("finish_time",), empty=True
    )
    duration = rows.all_numbers("duration", min=0)
    submit = rows.all_seconds("submit_time")
    finish = submit + duration
    if rows.has("finish_time"):
        finish = rows.all_seconds("finish_time")
    early = np.flatnonzero(finish < submit)
    if len(early):
        raise rows[int(early[0])].error(
            "finish_time", "the job finishes before it is submitted"
        )
    columns = _groups(rows, optional)
    return pd.DataFrame({**columns, "finish_s": finish, "target": np.log1p(duration)})


def _groups(rows: Rows, optional: Sequence[str]) -> dict[str, Any]:
    """The columns that groups agree in."""
    none = pd.Series([""] * len(rows), dtype=object)
    named = "jobname" in optional
    names = pd.Series(rows.all_names("jobname", ""), dtype=object) if named else none
    return {
        "user": rows.all_names("user"),
        "vc": rows.all_names("vc", "") if "vc" in optional else none,
        "name": names.str.replace(r"\d+", "#", regex=True),
        "gpus": rows.all_numbers("gpu_num", min=0),
    }


def _features(
    jobs: pd.DataFrame, past: pd.DataFrame, optional: Sequence[str]
) -> pd.DataFrame:
    """The regressor's features of jobs, see `DurationEstimator`."""
    names = dict.fromkeys(("user", "vc", "name"), object)  # else str, read from a file
    jobs = jobs.astype(names).assign(all=0).sort_values("submit_s", kind="stable")
    # Equal finishes: by duration, so that the order of the table does not matter.
    past = past.astype(names).assign(all=0)
    past = past.sort_values(["finish_s", "target"], kind="stable")
    # Groups whose history counts, from coarse to fine, and the columns that a group agrees in.
    levels = {"vc": ["vc"]} if "vc" in optional else {}
    levels |= {"user": ["user"], "user_gpus": ["user", "gpus"]}
    if "jobname" in optional:
        levels["user_name"] = ["user", "name"]

    day = np.floor(jobs["submit_s"] / DAY_S)
    features = jobs[["gpus", "cpus"] if "cpu_num" in optional else ["gpus"]].assign(
        hour=(jobs["submit_s"] - day * DAY_S) / 3600, weekday=(day + _THURSDAY) % 7
    )
    known = _known(jobs, past, ["all"])
    mean = known["total"] / (known["count"] + 1)
    for level, keys in levels.items():
        known = _known(jobs, past, keys)
        mean = (known["total"] + mean) / (known["count"] + 1)
        since = (jobs["submit_s"] - known["finish_s"]).fillna(LONG_AGO_S)
        features[f"{level}_mean"] = mean
        features[f"{level}_count"] = np.log1p(known["count"])
        features[f"{level}_last"] = known["target"].fillna(mean)
        features[f"{level}_since"] = np.log1p(since.clip(upper=LONG_AGO_S))
    return features.sort_index()


def _known(jobs: pd.DataFrame, past: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """For each job, the last past job of its group that had finished before, with the count and sum of targets by then.

    Strictly before: a job that takes no time has not finished when it is submitted.
    """
    if "name" in keys:  # jobs without a name have nothing in common
        past = past[past["name"] != ""]
    # Summed up group by group: a sum over all would carry others' later jobs in its rounding.
    groups = past.groupby(keys, sort=False)["target"]
    past = past.assign(count=groups.cumcount() + 1.0, total=groups.cumsum())
    known = pd.merge_asof(
        jobs[["submit_s", *keys]],
        past[["finish_s", *keys, "target", "count", "total"]],
        left_on="submit_s",
        right_on="finish_s",
        by=keys,
        allow_exact_matches=False,
    )
    return known.fillna({"count": 0.0, "total": 0.0}).set_index(jobs.index)
