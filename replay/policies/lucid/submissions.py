"""How many submissions Lucid expects soon, and whether jobs may share units until then (ASPLOS'23)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from bft.models import read_table
from bft.models.cells import Rows
from bft.replay.engine.policy_api import JobView
from bft.replay.engine.snapshot import NOT_STORED, StoredState
from bft.replay.trace.node_trace import SECOND_NS

if TYPE_CHECKING:
    from bft.models.learned.duration import Forecaster

NEVER: Final = 2**63 - 1
# Counts are per ten minutes, the time step of the published forecasts.
STEP_S: Final = 600
WEEK_S: Final = 7 * 86_400
COLUMNS: Final = ("time", "jobs", "units")


@dataclass(frozen=True, slots=True)
class Expected:
    """Jobs and units submitted per ten minutes, and until when (UTC ns) that is valid if nothing is submitted."""

    jobs: float
    units: float
    until_ns: int


@dataclass(frozen=True, eq=False)
class ForecastTable:
    """Forecast from a table: the mean of the predicted submissions over the next `horizon_s` seconds.

    Parameters
    ----------
    times_ns
        Beginnings of steps of ten minutes, UTC ns, increasing: int64 of shape (n,).
    jobs, units
        The prediction for each step: float64 of shape (n,).
    horizon_s
        Length of the horizon; rows count that begin after now and within the horizon.
    """

    times_ns: npt.NDArray[np.int64]
    jobs: npt.NDArray[np.float64]
    units: npt.NDArray[np.float64]
    horizon_s: float = 3000.0

    def expect(self, now_ns: int) -> Expected:
        """Beyond the last row many jobs without units are expected, so that sharing and shrinking stay allowed."""
        times = self.times_ns
        horizon = round(self.horizon_s * SECOND_NS)
        first, last = bisect_right(times, now_ns), bisect_right(times, now_ns + horizon)
        until = int(times[first]) if first < len(times) else NEVER
        if last < len(times):
            until = min(until, int(times[last]) - horizon)
        if first == last:
            return Expected(float("inf"), 0.0, until)
        jobs, units = (
            math.fsum(column[first:last]) / (last - first)
            for column in (self.jobs, self.units)
        )
        return Expected(jobs, units, until)


def read_forecast_table(
    path: str | Path, *, horizon_s: float = 3000.0
) -> ForecastTable:
    """Read predicted submissions: columns time (UTC), jobs and units, one row per ten minutes.

    Raises
    ------
    InputError
        Naming file, row and column: a missing column, invalid or non-increasing times, invalid numbers.
    """
    rows = Rows(read_table(path), path).require(COLUMNS)
    times_ns = np.array([row.instant("time") for row in rows], np.int64)
    backwards = np.flatnonzero(np.diff(times_ns) <= 0)
    if len(backwards):
        raise rows[int(backwards[0]) + 1].error(
            "time", "expected a date and time after that of the row before"
        )
    # Regressors may predict values below 0.
    return ForecastTable(
        times_ns, rows.all_numbers("jobs"), rows.all_numbers("units"), horizon_s
    )


@dataclass(eq=False)
class RecentSubmissions(StoredState):
    """Forecast without a model: the coming submissions are expected to equal those of the last `horizon_s` seconds."""

    horizon_s: InitVar[float] = 3000.0
    _horizon: int = field(init=False, metadata=NOT_STORED)
    _kept: int = field(init=False, metadata=NOT_STORED)
    _seen: deque[tuple[int, int]] = field(
        default_factory=deque, init=False
    )  # (submit time, units), in order
    _last_ns: int = field(default=-NEVER, init=False)
    _names: set[str] = field(
        default_factory=set, init=False
    )  # of jobs submitted at _last_ns

    def __post_init__(self, horizon_s: float) -> None:
        self._horizon = self._kept = round(horizon_s * SECOND_NS)

    def see(self, jobs: Sequence[JobView]) -> None:
        """Record the new jobs; they come last in the state."""
        new = []
        for view in reversed(jobs):
            job = view.job
            if job.tsub_ns < self._last_ns:
                break
            if job.tsub_ns > self._last_ns or job.name not in self._names:
                new.append(job)
        for job in reversed(new):
            if job.tsub_ns > self._last_ns:
                self._last_ns, self._names = job.tsub_ns, set()
            self._names.add(job.name)
            self._seen.append((job.tsub_ns, job.request))
        # Twice the horizon: a switch looks back from its last setting, not from now.
        while self._seen and self._seen[0][0] < self._last_ns - 2 * self._kept:
            self._seen.popleft()

    def expect(self, now_ns: int) -> Expected:
        """Means over the horizon; nothing is submitted before a replay."""
        counted = [
            (instant, units)
            for instant, units in self._seen
            if now_ns - self._horizon < instant <= now_ns
        ]
        steps = self._horizon / (STEP_S * SECOND_NS)
        until = counted[0][0] + self._horizon if counted else NEVER
        return Expected(
            len(counted) / steps, sum(units for _, units in counted) / steps, until
        )


class LearntForecast(RecentSubmissions):
    """Jobs from a saved model that forecasts them from the last week's submissions; units as in `RecentSubmissions`.

    Parameters
    ----------
    model
        Forecasts the number of jobs per slot.
    """

    def __init__(self, model: Forecaster, horizon_s: float = 3000.0) -> None:
        super().__init__(horizon_s)
        self._model = model
        self._slot = round(model.slot_s * SECOND_NS)
        self._kept = max(self._kept, WEEK_S * SECOND_NS + self._slot)
        self._last: tuple[int, float] | None = None  # slot, and the forecast made in it

    def expect(self, now_ns: int) -> Expected:
        """The model's forecast at the end of the last slot; before the first such slot, the recent mean."""
        recent = super().expect(now_ns)
        slot = now_ns // self._slot
        if not self._seen or self._seen[0][0] // self._slot >= slot:
            return recent
        if self._last is None or self._last[0] != slot:
            self._last = slot, self._forecast(slot)
        return Expected(
            self._last[1], recent.units, min(recent.until_ns, (slot + 1) * self._slot)
        )

    def _forecast(self, slot: int) -> float:
        """Jobs per ten minutes, by the slots before this one."""
        import pandas as pd

        first = max(
            self._seen[0][0] // self._slot, slot - WEEK_S * SECOND_NS // self._slot
        )
        counts = np.zeros(slot - first)
        for instant, _ in self._seen:
            if first <= instant // self._slot < slot:
                counts[instant // self._slot - first] += 1
        begins = np.arange(first, slot) * self._model.slot_s
        slots = pd.DataFrame({"time": begins, self._model.column: counts})
        return float(self._model.predict(slots)[-1]) * STEP_S / self._model.slot_s


def sharing_at(
    now_ns: int,
    expect: Callable[[int], Expected],
    every_s: float,
    quiet_jobs: float,
) -> tuple[bool, int | None]:
    """Whether jobs may begin to share units, and when that may change if nothing is submitted (UTC ns; None: never).

    They may unless few submissions are expected; that is set only at full multiples of `every_s`.

    Parameters
    ----------
    now_ns
        UTC nanoseconds.
    expect
        The submissions that are expected at an instant.
    every_s
        Seconds between two settings, counted from 1970.
    quiet_jobs
        Sharing is off while at most this many jobs are expected per ten minutes.
    """
    every = max(1, round(every_s * SECOND_NS))
    turn = now_ns // every
    expected = expect(turn * every)
    is_on, until = expected.jobs > quiet_jobs, expected.until_ns
    if until == NEVER:
        return is_on, None
    return is_on, max(-(-until // every), turn + 1) * every
