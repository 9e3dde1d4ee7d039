"""How many jobs, or units, will be submitted soon (Lucid's throughput predict model, ASPLOS'23, §3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from bft.models.cells import Rows
from bft.models.curves import FloatArray
from bft.models.errors import InputError
from bft.models.learned.ga2m import AdditiveModel, fit_ga2m

DAY_S: Final = 86_400
HOUR_S: Final = 3_600
SLOT_S: Final = 600
_THURSDAY: Final = 3  # 1970-01-01, Monday being 0

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
        if horizon < 1:
            raise InputError(f"expected a horizon of at least 1 slot, not {horizon}")
        time_s, counts = _slots(slots, column, source)
        if len(time_s) < 2:
            raise InputError(
                f"{len(time_s)} slots, expected at least a day of them",
                file=source or None,
            )
        slot_s = float(time_s[1] - time_s[0])
        x = _features(time_s, counts, slot_s, horizon)
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
        return _features(time_s, counts, self.slot_s, self.horizon)


def submissions(
    jobs: pd.DataFrame, *, slot_s: float = SLOT_S, source: str = ""
) -> pd.DataFrame:
    """Count submissions per slot.

    Parameters
    ----------
    jobs
        With the columns submit_time (as in `DurationEstimator`) and gpu_num.
    slot_s
        Length of a slot, seconds; slots begin at its multiples.
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
    if not slot_s > 0:
        raise InputError(f"expected slots longer than {slot_s} s")
    slot = np.floor(rows.all_seconds("submit_time") / slot_s).astype(np.int64)
    first = int(slot.min())
    slot -= first
    return pd.DataFrame(
        {
            "time": (first + np.arange(int(slot.max()) + 1)) * slot_s,
            "jobs": np.bincount(slot),
            "units": np.bincount(slot, weights=rows.all_numbers("gpu_num", min=0)),
        }
    )


def ahead(counts: FloatArray, horizon: int) -> FloatArray:
    """The mean of the `horizon` counts after each: shape (slots - horizon,), as the last ones are not known."""
    total = np.concatenate([[0.0], np.cumsum(counts)])
    result: FloatArray = (total[1 + horizon :] - total[1:-horizon]) / horizon
    return result


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


def _features(
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
