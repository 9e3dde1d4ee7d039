"""Job traces of Tiresias' simulator: `--jobs-format tiresias` (DESIGN §4)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bft.models.errors import InputError
from bft.models.jobs import JOB_BYTES, Job, JobTable
from bft.models.sharing.xi_table import require_columns
from bft.models.tables import read_table
from bft.models.workloads.rigid_jobs import SECOND_NS, Cells, jobs_of_rows, rigid_job

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
    they are left out, and the table's notes count them.

    Raises
    ------
    InputError
        Naming file, row, column and job; also when no job is left.
    """
    frame = read_table(path, row_bytes=JOB_BYTES)
    require_columns(frame, REQUIRED, OPTIONAL, "a trace of Tiresias", str(path))
    return jobs_of_rows(frame, path, "job_id", _job)


def _job(cells: Cells) -> Job | None:
    """The job of a row, None when it needs no units or no time."""
    units, submit_s, seconds = cells.units("num_gpu"), cells.number("submit_time"), cells.number("duration")
    if not units or not seconds:
        return None
    try:
        return rigid_job(
            cells.name,
            round(submit_s * SECOND_NS),
            units,
            seconds,
            model=cells.text("model_name"),
            skew=cells.number("skew") if cells.given("skew") else None,
            spread_slowdown=cells.number("spread_slowdown") if cells.given("spread_slowdown") else 1.0,
            extra=cells.further(_FIELDS),
        )
    except InputError as error:  # Job's own checks know no file
        column = "num_gpu" if error.column == "Jmax" else error.column
        raise cells.wrong(column or "", error.what) from error
