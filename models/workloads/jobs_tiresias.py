"""Job traces of Tiresias' simulator: `--jobs-format tiresias` (docs/formats.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bft.models.cells import MAX_SECONDS, SECOND_NS, Row, Rows
from bft.models.job_tables import unknown_columns
from bft.models.jobs import Job, JobTable
from bft.models.tables import read_table
from bft.models.workloads.rigid_jobs import jobs_of_rows, rigid_job

REQUIRED: Final = ("job_id", "num_gpu", "submit_time", "duration")
OPTIONAL: Final = ("model_name", "iterations", "interval", "skew", "spread_slowdown")
# Columns that become fields of Job; all others go to Job.extra.
_FIELDS: Final = frozenset((*REQUIRED, "model_name", "skew", "spread_slowdown"))


def read_tiresias_jobs(path: str | Path) -> JobTable:
    r"""Read a trace (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

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

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "trace.csv")
    ...     _ = file.write_text("job_id,num_gpu,submit_time,duration,model_name\n1,4,60,3600,vgg19\n")
    ...     [(job.name, job.request, job.pmax) for job in read_tiresias_jobs(file)]
    [('1', 4, 3600.0)]
    """
    frame = read_table(path)
    rows = Rows(frame, path, job="job_id").require(REQUIRED, OPTIONAL)
    unknown_columns(
        rows, (*REQUIRED, *OPTIONAL)
    )  # further ones are Job.extra, misspelt ones are refused
    return jobs_of_rows(rows, _job, {"Jmax": "num_gpu", "model": "model_name"})


def _job(row: Row) -> Job | None:
    """Return the job of a row, None when it needs no units or no time."""
    units = row.whole("num_gpu", min=0)
    submit_s, seconds = (
        row.number(column, min=0, below=MAX_SECONDS)
        for column in ("submit_time", "duration")
    )
    if not units or not seconds:
        return None
    return rigid_job(
        row.job,
        round(submit_s * SECOND_NS),
        units,
        seconds,
        model=row.name("model_name", ""),
        skew=row.number("skew", None),
        spread_slowdown=row.number("spread_slowdown", 1.0),
        extra=row.further(_FIELDS),
    )
