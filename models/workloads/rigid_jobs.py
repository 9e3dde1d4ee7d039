"""Jobs that state only a size and a duration, as logs of other clusters have them (DESIGN §4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.jobs import Job, JobTable

if TYPE_CHECKING:
    import pandas as pd

SECOND_NS = 1_000_000_000
# Neither an epoch in milliseconds nor a duration beyond the range of nanoseconds (1677 to 2262).
MOST_SECONDS = 9.2e9


def rigid_job(name: str, tsub_ns: int, units: int, seconds: float, **further: Any) -> Job:
    """A job that runs on `units`, no more and no less, for `seconds`: Pmax is the duration, at a rate of 1.

    `further` are fields of `Job`. It costs nothing to start or stop it.
    """
    curve = _full_rate(units)
    return Job(
        name=name,
        tsub_ns=tsub_ns,
        jmin=units,
        jmax=units,
        pmax=seconds,
        tcup_s=0.0,
        tcdw_s=0.0,
        scalability=curve,
        objective=curve,
        jreq=units,
        **further,
    )


@lru_cache(maxsize=4096)
def _full_rate(units: int) -> Curve:
    """A rate of 1 on all units asked for."""
    return Curve(np.array([0.0, float(units)]), np.array([0.0, 1.0]))


class Cells:
    """One row of a table on its way to a job; every message names file, row, column and job.

    Parameters
    ----------
    record, row, file
        The row's cells by column, its number from 1 on, and whose it is.
    name
        The column with the job's name.
    """

    def __init__(self, record: Mapping[Any, Any], row: int, file: str, name: str) -> None:
        self.record = {str(key): value for key, value in record.items()}
        self.row, self.file, self.name = row, file, ""
        self.name = self.text(name)
        if not self.name:
            raise self.wrong(name, "the job's name is missing")

    def given(self, column: str) -> bool:
        """Whether the cell holds anything."""
        value = self.record.get(column)
        return value is not None and value == value and value != ""

    def text(self, column: str) -> str:
        """The cell as text, empty where it holds nothing."""
        return str(self.record[column]) if self.given(column) else ""

    def number(self, column: str) -> float:
        """The cell as a number that is no negative one, and fits an instant when it is seconds."""
        value = self.record[column]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not 0 <= number < MOST_SECONDS:
            raise self.wrong(column, f"expected a finite number >= 0, not {value!r}")
        return number

    def units(self, column: str) -> int:
        """The cell as a number of units."""
        units = self.number(column)
        if not units.is_integer():
            raise self.wrong(column, f"expected a whole number, not {units:g}")
        return int(units)

    def further(self, fields: Collection[str]) -> dict[str, Any]:
        """The cells that hold something and are none of `fields`."""
        return {key: value for key, value in self.record.items() if key not in fields and self.given(key)}

    def wrong(self, column: str, what: str) -> InputError:
        """An error in a cell."""
        return InputError(what, file=self.file, row=self.row, column=column, job=self.name or None)


class RigidTable:
    """Collects the jobs of one file; what did not run is left out, counted by reason, and noted in the table."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._jobs: list[Job] = []
        self._rows: dict[str, int] = {}
        self._left_out: Counter[str] = Counter()

    def add(self, job: Job, row: int) -> None:
        """Take a job; InputError when its name is taken."""
        if job.name in self._rows:
            what = f"the name appears twice, first in row {self._rows[job.name]}; expected unique names"
            raise InputError(what, file=self.path, row=row, job=job.name)
        self._rows[job.name] = row
        self._jobs.append(job)

    def leave_out(self, why: str) -> None:
        """Count a job that cannot be replayed."""
        self._left_out[why] += 1

    def table(self) -> JobTable:
        """All of them; InputError when there is none."""
        reasons = ", ".join(f"{count} {why}" for why, count in sorted(self._left_out.items()))
        if not self._jobs:
            raise InputError(f"has no job to replay{': ' + reasons if reasons else ''}", file=self.path)
        return JobTable(tuple(self._jobs), self.path, (f"jobs left out: {reasons}",) if reasons else ())


def jobs_of_rows(frame: pd.DataFrame, path: str | Path, name: str, job: Callable[[Cells], Job | None]) -> JobTable:
    """The jobs of a table, one a row.

    Parameters
    ----------
    frame, path
        The table, and whose it is.
    name
        The column with the job's name.
    job
        From a row to a job; None where it used no units or no time.

    Raises
    ------
    InputError
        What `job` raises; also for a name that is taken, and when no job is left.
    """
    found = RigidTable(path)
    for row, record in enumerate(frame.to_dict(orient="records"), start=1):
        made = job(Cells(record, row, str(path), name))
        if made is None:
            found.leave_out("without GPUs or duration")
        else:
            found.add(made, row)
    return found.table()
