"""How long a job will run, from what is known when it is submitted (Lucid's workload estimate model, ASPLOS'23, §3.5).

What a job asks for says little, what its user ran before says more. All history is of jobs that had finished when the
job was submitted; nothing that happens later can change its features, not even by rounding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from bft.models.cells import Rows
from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.learned._documents import floats, part, same_length, strings
from bft.models.learned.regressors import (
    Regressor,
    fit_regressor,
    regressor_from_document,
)

if TYPE_CHECKING:
    import pandas as pd

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

# Columns of jobs by name, each of shape (jobs,); what an optional one lacks is empty or 0.
# All have what groups agree in: user, vc, name, gpus. Jobs at their submission also have cpus and submit_s, finished
# ones finish_s and target, which is log(1 + seconds).
_Columns = Mapping[str, NDArray[Any]]


def _with(past: _Columns, further: _Columns) -> _Columns:
    return {
        name: np.concatenate([column, further[name]]) for name, column in past.items()
    }


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
    kind
        Of the regressor, see `bft.models.learned.regressors.KINDS`. It predicts log(1 + seconds).
    optional
        Which optional columns it learnt from, and hence wants.
    features
        Names of the regressor's features, see `feature_names`.
    """

    document_kind: ClassVar[str] = "duration"

    kind: str
    optional: tuple[str, ...]
    features: tuple[str, ...]
    past: _Columns
    regressor: Regressor

    @classmethod
    def train(
        cls, jobs: pd.DataFrame, *, kind: str = "ga2m", seed: int = 0, source: str = ""
    ) -> DurationEstimator:
        """Learn from finished jobs.

        Parameters
        ----------
        jobs
            At least 20 finished jobs, in any order. They are kept as history for later predictions.
        kind, seed
            See `bft.models.learned.regressors.fit_regressor`.
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
        regressor = fit_regressor(kind, x, past["target"], seed)
        return cls(kind, optional, feature_names(optional), past, regressor)

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
        x = self.inputs(jobs, past=past, source=source)
        logs = np.clip(self.regressor.predict(x), 0.0, np.log1p(LONGEST_S))
        return np.expm1(logs)

    def inputs(
        self, jobs: pd.DataFrame, *, past: pd.DataFrame | None = None, source: str = ""
    ) -> FloatArray:
        """The regressor's features of jobs, shape (jobs, features): to explain and to draw."""
        known = (
            self.past
            if past is None
            else _with(self.past, _past(past, self.optional, source))
        )
        return _features(_submitted(jobs, self.optional, source), known, self.optional)

    def to_document(self) -> dict[str, Any]:
        """The estimator as plain data."""
        return {
            "regressor_kind": self.kind,
            "optional": list(self.optional),
            "features": list(self.features),
            "past": {name: column.tolist() for name, column in self.past.items()},
            "regressor": self.regressor.to_document(),
        }

    @classmethod
    def from_document(cls, document: Any) -> DurationEstimator:
        """The estimator that plain data state, checked."""
        optional, features = (
            strings(document, "optional"),
            strings(document, "features"),
        )
        if any(
            column not in OPTIONAL for column in optional
        ) or features != feature_names(optional):
            raise InputError(
                "not a model that can be used: its features are not those of this version",
                hint="train it again",
            )
        stored = part(document, "past", dict)
        past: dict[str, NDArray[Any]] = {
            column: np.array(strings(stored, column), dtype=object)
            for column in ("user", "vc", "name")
        }
        past |= {
            column: floats(stored, column) for column in ("gpus", "finish_s", "target")
        }
        same_length("'past'", *past.values())
        kind = part(document, "regressor_kind", str)
        regressor = regressor_from_document(
            kind, document.get("regressor"), len(features)
        )
        return cls(kind, optional, features, past, regressor)


# Baselines by name -> the attribute they predict by.
BASELINES: Final = ("user at size", "constant")


def baselines(
    before: pd.DataFrame, after: pd.DataFrame, past: pd.DataFrame, *, source: str = ""
) -> dict[str, FloatArray]:
    """Predictions without a model, for comparison; arguments as `split_in_time` returns them.

    Returns
    -------
    dict
        Name -> seconds of shape (after,). `user at size`: the mean logarithm of the jobs of that user and size that had
        finished at the submission, with that of all the user's as one job more, and so on for all jobs. `constant`: the
        mean logarithm of all in `before`.
    """
    learnt = _past(before, (), source)
    known = _with(learnt, _past(past, (), source))
    x = _features(_submitted(after, (), source), known, ())
    by_user = x[:, feature_names(()).index("user_gpus_mean")]
    constant = np.full(len(after), float(learnt["target"].mean()))
    return dict(zip(BASELINES, (np.expm1(by_user), np.expm1(constant)), strict=True))


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
    past = _past(jobs, (), source)
    if not len(jobs):
        raise InputError("no jobs", file=source or None)
    submit = Rows(jobs, source).all_seconds("submit_time")
    instant = np.sort(submit)[int(len(submit) * (1 - share))]
    known = past["finish_s"] < instant
    return jobs[known], jobs[submit >= instant], jobs[~known]


def _levels(optional: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Groups of jobs whose history counts, from coarse to fine: name -> columns that a group agrees in."""
    levels: dict[str, tuple[str, ...]] = {"vc": ("vc",)} if "vc" in optional else {}
    levels |= {"user": ("user",), "user_gpus": ("user", "gpus")}
    return levels | ({"user_name": ("user", "name")} if "jobname" in optional else {})


def feature_names(optional: Sequence[str]) -> tuple[str, ...]:
    """The regressor's features, for given optional columns.

    gpus, cpus, hour and weekday (Monday 0, UTC) of the submission, and for the user's virtual cluster (vc), the user,
    the user's jobs of that size (user_gpus) and of that name (user_name), of finished jobs:

    _mean   mean of log(1 + seconds), with the mean of the next coarser group counted as one job more
    _count  log(1 + how many)
    _last   log(1 + seconds) of the one that finished last; without one, the mean
    _since  log(1 + seconds) since then; a year without one
    """
    cpus = ("cpus",) if "cpu_num" in optional else ()
    history = tuple(
        f"{level}_{statistic}"
        for level in _levels(optional)
        for statistic in ("mean", "count", "last", "since")
    )
    return ("gpus", *cpus, "hour", "weekday", *history)


def _submitted(frame: pd.DataFrame, optional: Sequence[str], source: str) -> _Columns:
    rows = Rows(frame, source).require((*SUBMITTED, *optional))
    cpus = "cpu_num" in optional
    return {
        **_groups(rows, optional),
        "cpus": rows.all_numbers("cpu_num", min=0) if cpus else np.zeros(len(rows)),
        "submit_s": rows.all_seconds("submit_time"),
    }


def _past(frame: pd.DataFrame, optional: Sequence[str], source: str) -> _Columns:
    rows = Rows(frame, source).require(
        (*FINISHED, *optional), ("finish_time",), empty=True
    )
    duration = rows.all_numbers("duration", min=0)
    submit = rows.all_seconds("submit_time")
    finish = (
        rows.all_seconds("finish_time")
        if rows.has("finish_time")
        else submit + duration
    )
    early = np.flatnonzero(finish < submit)
    if len(early):
        raise rows[int(early[0])].error(
            "finish_time", "the job finishes before it is submitted"
        )
    return {
        **_groups(rows, optional),
        "finish_s": finish,
        "target": np.log1p(duration),
    }


def _groups(rows: Rows, optional: Sequence[str]) -> _Columns:
    """The columns that groups agree in."""
    none = np.full(len(rows), "", dtype=object)
    names = (
        [re.sub(r"\d+", "#", name) for name in rows.all_names("jobname", "")]
        if "jobname" in optional
        else none
    )
    return {
        "user": rows.all_names("user"),
        "vc": rows.all_names("vc", "") if "vc" in optional else none,
        "name": np.array(names, dtype=object),
        "gpus": rows.all_numbers("gpu_num", min=0),
    }


def _features(jobs: _Columns, past: _Columns, optional: Sequence[str]) -> FloatArray:
    """The regressor's features of jobs, shape (jobs, features), in the order of `feature_names`."""
    columns = [jobs["gpus"]]
    if "cpu_num" in optional:
        columns.append(jobs["cpus"])
    day = np.floor(jobs["submit_s"] / DAY_S)
    columns += [(jobs["submit_s"] - day * DAY_S) / 3600, (day + _THURSDAY) % 7]
    coarser = _History(jobs, past, ()).mean(0.0)
    for keys in _levels(optional).values():
        history = _History(jobs, past, keys)
        coarser = history.mean(coarser)
        columns += [
            coarser,
            np.log1p(history.count),
            history.last(coarser),
            history.since(),
        ]
    return np.column_stack(columns)


class _History:
    """For each job, the past jobs of its group that had finished before it was submitted.

    Strictly before: a job that takes no time has not finished when it is submitted.
    """

    def __init__(self, jobs: _Columns, past: _Columns, keys: Sequence[str]) -> None:
        import pandas as pd

        code = np.zeros(len(past["user"]) + len(jobs["user"]), dtype=np.int64)
        for key in keys:
            values, distinct = pd.factorize(np.concatenate([past[key], jobs[key]]))
            code = pd.factorize(code * len(distinct) + values)[0]
        of_past, of_jobs = np.split(code, [len(past["user"])])
        # One sorted array of (group, instant) serves all groups; instants become their ranks.
        instants = np.unique(np.concatenate([past["finish_s"], jobs["submit_s"]]))
        # Equal finishes: by duration, so that the order of the table does not matter.
        order = np.lexsort((past["target"], past["finish_s"], of_past))
        sorted_keys = of_past[order] * len(instants) + np.searchsorted(
            instants, past["finish_s"][order]
        )
        first = np.searchsorted(sorted_keys, of_jobs * len(instants))
        end = np.searchsorted(
            sorted_keys,
            of_jobs * len(instants) + np.searchsorted(instants, jobs["submit_s"]),
        )
        if "name" in keys:  # jobs without a name have nothing in common
            end = np.where(jobs["name"] == "", first, end)
        self.count = (end - first).astype(np.float64)
        self._target, self._finish, self._submit = (
            past["target"][order],
            past["finish_s"][order],
            jobs["submit_s"],
        )
        # Summed up group by group: a sum over all would carry others' later jobs in its rounding.
        self._sum = (
            pd.Series(self._target)
            .groupby(of_past[order])
            .cumsum()
            .to_numpy(dtype=np.float64)
        )
        self._some = self.count > 0
        self._at = end[self._some] - 1

    def mean(self, coarser: FloatArray | float) -> FloatArray:
        total = np.zeros(len(self.count))
        total[self._some] = self._sum[self._at]
        result: FloatArray = (total + coarser) / (self.count + 1)
        return result

    def last(self, otherwise: FloatArray) -> FloatArray:
        result = otherwise.copy()
        result[self._some] = self._target[self._at]
        return result

    def since(self) -> FloatArray:
        result = np.full(len(self.count), LONG_AGO_S)
        result[self._some] = np.minimum(
            self._submit[self._some] - self._finish[self._at], LONG_AGO_S
        )
        logs: FloatArray = np.log1p(result)
        return logs
