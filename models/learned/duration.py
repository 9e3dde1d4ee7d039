"""How long a job will run, from what is known when it is submitted, and how many come soon (Lucid, ASPLOS'23, §3.5).

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

DAY_S: Final = 86_400
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


# --- how many jobs, or units, will be submitted soon (Lucid's throughput predict model) ---

HOUR_S: Final = 3_600
SLOT_S: Final = 600

# What the regressor sees when a slot has ended: counts of the last three slots; mean counts of the last hour, six
# hours, day and week, and of the slots that are forecast a day and a week before; hour and weekday (Monday 0, UTC) of
# their begin.
FEATURES: Final = (
    "last", "last_but_1", "last_but_2", "hour_mean", "six_hours_mean", "day_mean", "week_mean", "yesterday",
    "last_week", "hour", "weekday",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Forecaster:
    """Forecasts a count per slot; made by `train`, or read from a file by `bft.models.read_model`.

    Tables of slots have a column `time`, when a slot begins (date and time, UTC where it names no zone, or seconds
    since 1970 or another midnight), at equal distances without a gap, and the column that is forecast, >= 0.

    Parameters
    ----------
    column
        The column that is forecast.
    horizon
        Over how many slots.
    slot_s
        Length of a slot, seconds.
    regressor
        Predicts the square root of the mean count, as the variance of the root of a Poisson count does not depend on
        the count.
    """

    column: str
    horizon: int
    slot_s: float
    regressor: AdditiveModel

    @classmethod
    def train(
        cls,
        slots: pd.DataFrame,
        *,
        column: str = "jobs",
        horizon: int = 5,
        seed: int = 0,
        source: str = "",
    ) -> Forecaster:
        """Learn from past slots; the first day only serves as history.

        Raises
        ------
        InputError
            Naming the column and row that is missing or wrong, or telling that there are too few slots.
        """
        time_s, counts = _slots(slots, column, source)
        if len(time_s) < 2:
            raise InputError(
                f"{len(time_s)} slots, expected at least a day of them",
                file=source or None,
            )
        slot_s = float(time_s[1] - time_s[0])
        x = _slot_features(time_s, counts, slot_s, horizon)
        y = ahead(counts, horizon)
        first = min(round(DAY_S / slot_s), len(y))
        regressor = fit_ga2m(x.to_numpy()[first : len(y)], np.sqrt(y[first:]), seed)
        return cls(column, horizon, slot_s, regressor)

    def predict(self, slots: pd.DataFrame, *, source: str = "") -> FloatArray:
        """For each slot, the mean count per slot over the `horizon` slots after it, given it and those before it.

        Returns
        -------
        ndarray
            >= 0, float64 of shape (slots,). With less than a week before it a slot goes by what there is.
        """
        roots = self.regressor.predict(self.inputs(slots, source=source).to_numpy())
        return np.square(np.maximum(roots, 0.0))

    def inputs(self, slots: pd.DataFrame, *, source: str = "") -> pd.DataFrame:
        """The regressor's features of slots, a column each: to explain and to draw."""
        time_s, counts = _slots(slots, self.column, source, self.slot_s)
        return _slot_features(time_s, counts, self.slot_s, self.horizon)


def submissions(jobs: pd.DataFrame, *, source: str = "") -> pd.DataFrame:
    """Count submissions per slot of ten minutes.

    Parameters
    ----------
    jobs
        With the columns submit_time (as in `DurationEstimator`) and gpu_num.
    source
        File to name in messages.

    Returns
    -------
    DataFrame
        Columns time (seconds, when the slot begins), jobs and units, from the first to the last slot with a submission.

    Examples
    --------
    >>> import pandas as pd
    >>> slots = submissions(pd.DataFrame({"submit_time": [0, 30, 1300], "gpu_num": [1, 2, 4]}))
    >>> slots["jobs"].tolist(), slots["units"].tolist()
    ([2, 0, 1], [3.0, 0.0, 4.0])
    """
    rows = Rows(jobs, source).require(("submit_time", "gpu_num"))
    slot = np.floor(rows.all_seconds("submit_time") / SLOT_S).astype(np.int64)
    first = int(slot.min())
    slot -= first
    return pd.DataFrame(
        {
            "time": (first + np.arange(int(slot.max()) + 1)) * SLOT_S,
            "jobs": np.bincount(slot),
            "units": np.bincount(slot, weights=rows.all_numbers("gpu_num", min=0)),
        }
    )


def ahead(counts: FloatArray, horizon: int) -> FloatArray:
    """The mean of the `horizon` counts after each: shape (slots - horizon,), as the last ones are not known."""
    total = np.concatenate([[0.0], np.cumsum(counts)])
    return np.asarray((total[1 + horizon :] - total[1:-horizon]) / horizon)


def _slots(
    frame: pd.DataFrame, column: str, source: str, slot_s: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Begin and count of each slot; refused unless the slots follow each other at one distance."""
    rows = Rows(frame, source).require(("time", column))
    time_s, counts = rows.all_seconds("time"), rows.all_numbers(column, min=0)
    steps = np.diff(time_s)
    step = slot_s if slot_s is not None else float(steps[0]) if len(steps) else 1.0
    wrong = np.flatnonzero(~(steps > 0))
    if len(wrong):
        raise rows[int(wrong[0]) + 1].error(
            "time", "expected a later time than in the row before"
        )
    wrong = np.flatnonzero(np.abs(steps - step) > 1e-6 * step)
    if len(wrong):
        raise rows[int(wrong[0]) + 1].error(
            "time",
            f"expected a slot each {step:g} s; this one begins {steps[wrong[0]]:g} s after the one before",
            "slots without submissions need a row with 0 too",
        )
    return time_s, counts


def _slot_features(
    time_s: FloatArray, counts: FloatArray, slot_s: float, horizon: int
) -> pd.DataFrame:
    """The regressor's features at the end of each slot."""
    here = np.arange(1, len(counts) + 1)
    total = np.concatenate(
        [[0.0], np.cumsum(counts)]
    )  # forwards: what comes later changes nothing before
    overall = total[here] / here

    def mean(begin: int, end: int) -> FloatArray:
        """Mean of the slots [begin, end), counted from the one after this; of all slots if there are too few."""
        low, high = np.maximum(here + begin, 0), np.maximum(here + end, 0)
        high = np.minimum(high, here)
        known = high > low
        result = overall.copy()
        result[known] = (total[high[known]] - total[low[known]]) / (high - low)[known]
        return result

    def slots(length_s: int) -> int:
        return max(1, round(length_s / slot_s))

    day, week = slots(DAY_S), slots(7 * DAY_S)
    begins = time_s + slot_s
    days = np.floor(begins / DAY_S)
    columns = (
        *(mean(-back, 1 - back) for back in (1, 2, 3)),
        *(mean(-slots(length), 0) for length in (HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S)),
        mean(-day, horizon - day),
        mean(-week, horizon - week),
        (begins - days * DAY_S) / HOUR_S,
        (days + _THURSDAY) % 7,
    )
    return pd.DataFrame(dict(zip(FEATURES, columns, strict=True)))
