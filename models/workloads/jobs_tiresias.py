"""Job traces of Tiresias' simulator: `--jobs-format tiresias` (DESIGN §4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bft.models.errors import InputError
from bft.models.jobs import Job, JobTable
from bft.models.sharing.interference import require_columns
from bft.models.tables import read_table
from bft.models.workloads.rigid_jobs import MOST_SECONDS, SECOND_NS, RigidTable, rigid_job

REQUIRED: Final = ("job_id", "num_gpu", "submit_time", "duration")
OPTIONAL: Final = ("model_name", "iterations", "interval", "skew", "spread_slowdown")
# What becomes a field of Job; all other columns go to Job.extra.
_FIELDS: Final = frozenset((*REQUIRED, "model_name", "skew", "spread_slowdown"))


def read_tiresias_jobs(path: str | Path) -> JobTable:
    """Read a trace (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

    | column                | becomes                                                                       |
    |-----------------------|-------------------------------------------------------------------------------|
    | job_id                | name                                                                          |
    | num_gpu               | Jmin = Jmax = Jreq, in units                                                  |
    | submit_time           | Tsub: seconds from the begin of the trace, which is taken for 1970-01-01      |
    | duration              | Pmax: seconds of work at a rate of 1 on num_gpu units                         |
    | model_name            | model                                                                         |
    | skew, spread_slowdown | the same, where a table says so: see `bft-replay jobs skew`                   |

    Further columns (iterations, interval) are kept in `Job.extra`. Jobs without a GPU or without duration did not run:
    they are left out, and their number is logged.

    Raises
    ------
    InputError
        Naming file, row, column and job; also when no job is left.
    """
    frame = read_table(path)
    require_columns(frame, REQUIRED, OPTIONAL, "a trace of Tiresias", str(path))
    found = RigidTable(path)
    for row, record in enumerate(frame.to_dict(orient="records"), start=1):
        cells = _Cells({str(key): value for key, value in record.items()}, row, str(path))
        job = cells.job()
        if job is None:
            found.leave_out("without GPUs or duration")
        else:
            found.add(job, row)
    return found.table()


class _Cells:
    """One row on its way to a job."""

    def __init__(self, record: Mapping[str, Any], row: int, file: str) -> None:
        self.record, self.row, self.file, self.name = record, row, file, ""
        self.name = self.text("job_id")
        if not self.name:
            raise self.wrong("job_id", "the job's name is missing")

    def job(self) -> Job | None:
        """The job, None when it needs no units or no time."""
        units, submit_s, seconds = (self.number(column) for column in ("num_gpu", "submit_time", "duration"))
        if not units.is_integer():
            raise self.wrong("num_gpu", f"expected a whole number, not {units:g}")
        if not units or not seconds:
            return None
        try:
            return rigid_job(
                self.name,
                round(submit_s * SECOND_NS),
                int(units),
                seconds,
                model=self.text("model_name"),
                skew=self.number("skew") if self.given("skew") else None,
                spread_slowdown=self.number("spread_slowdown") if self.given("spread_slowdown") else 1.0,
                extra={key: value for key, value in self.record.items() if key not in _FIELDS and self.given(key)},
            )
        except InputError as error:  # Job's own checks know no file
            column = "num_gpu" if error.column == "Jmax" else error.column
            raise self.wrong(column or "", error.what) from error

    def given(self, column: str) -> bool:
        value = self.record.get(column)
        return value is not None and value == value and value != ""

    def text(self, column: str) -> str:
        return str(self.record[column]) if self.given(column) else ""

    def number(self, column: str) -> float:
        value = self.record[column]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not 0 <= number < MOST_SECONDS:
            raise self.wrong(column, f"expected a finite number >= 0, not {value!r}")
        return number

    def wrong(self, column: str, what: str) -> InputError:
        return InputError(what, file=self.file, row=self.row, column=column, job=self.name or None)
