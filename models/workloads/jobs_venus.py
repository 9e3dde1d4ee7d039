"""Job tables of the Helios clusters as Lucid's artifact has them: `--jobs-format venus` (docs/formats.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bft.models.cells import MAX_SECONDS, Row, Rows
from bft.models.errors import InputError
from bft.models.job_tables import unknown_columns
from bft.models.jobs import Job, JobTable
from bft.models.tables import read_table
from bft.models.workloads.rigid_jobs import UNUSED, rigid_job, rigid_table

REQUIRED: Final = ("job_id", "gpu_num", "submit_time", "duration")
OPTIONAL: Final = ("user", "vc", "model", "batchsize", "amp", "gmem")
# Columns that become fields of Job; all others go to Job.extra.
_FIELDS: Final = frozenset((*REQUIRED, "user", "vc", "model", "batchsize"))
# A submit time that is a number counts seconds from here: Helios traces begin on this day.
ORIGIN: Final = "2020-04-01"
MIB_PER_GIB: Final = 1024


def read_venus_jobs(path: str | Path, *, origin: str = ORIGIN) -> JobTable:
    r"""Read a Helios job table (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

    | column                        | becomes                                                                    |
    |-------------------------------|----------------------------------------------------------------------------|
    | job_id                        | name                                                                       |
    | gpu_num                       | Jmin = Jmax = Jreq, in units                                               |
    | submit_time                   | Tsub: a date and time (UTC where it names no zone), or seconds from origin |
    | duration                      | Pmax: seconds of work at a rate of 1 on gpu_num units                      |
    | user, vc, batchsize           | user, vc, batch_size                                                       |
    | model, amp                    | model, with `+amp` behind it where amp is 1: it computes otherwise         |
    | gmem                          | memory_gib: memory of a unit, in MiB                                       |

    Further columns (cpu_num, state, dataset, gpu_util, gmem_util and so on), amp and gmem are kept in `Job.extra`. Jobs
    without a GPU or without duration did not run on units: they are left out, and the table's notes count them.

    Parameters
    ----------
    path
        The table.
    origin
        The date from which a submit time counts that is a number.

    Raises
    ------
    InputError
        Naming file, row, column and job; also when no job is left.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "venus.csv")
    ...     _ = file.write_text("job_id,gpu_num,submit_time,duration,user,vc\n1,8,2020-09-01 08:00,600,u1,vc1\n")
    ...     [(job.request, job.pmax, job.vc) for job in read_venus_jobs(file)]
    [(8, 600.0, 'vc1')]
    """
    frame = read_table(path)
    rows = Rows(frame, path, job="job_id").require(REQUIRED, OPTIONAL)
    unknown_columns(
        rows, (*REQUIRED, *OPTIONAL)
    )  # further ones are Job.extra, misspelt ones are refused
    begin_ns = Rows.of([{"origin": origin}])[0].instant("origin", None)
    if begin_ns is None:
        raise InputError(f"expected a date such as {ORIGIN} as origin, not {origin!r}")
    return rigid_table(rows, lambda row: _job(row, begin_ns), {"Jmax": "gpu_num"})


def _job(row: Row, begin_ns: int) -> Job | str:
    """Return the job of a row, or why it is left out."""
    units, seconds = (
        row.whole("gpu_num", min=0),
        row.number("duration", min=0, below=MAX_SECONDS),
    )
    submit_ns = row.instant("submit_time", origin_ns=begin_ns)
    if not units or not seconds:
        return UNUSED
    memory_mib = row.number("gmem", None, min=0)
    return rigid_job(
        row.job,
        submit_ns,
        units,
        seconds,
        model=label(row.name("model", ""), mixed=is_mixed(row, "amp")),
        user=row.name("user", ""),
        vc=row.name("vc", ""),
        batch_size=row.number("batchsize", None, min=0),
        memory_gib=None if memory_mib is None else memory_mib / MIB_PER_GIB,
        extra=row.further(_FIELDS),
    )


def is_mixed(row: Row, column: str) -> bool:
    """Whether a job computes in mixed precision: true for 1 or true, otherwise false."""
    value = row.value(column)
    return (
        value if isinstance(value, bool) else bool(row.whole(column, 0, min=0, max=1))
    )


def label(model: str, *, mixed: bool) -> str:
    """The model's name in ξ tables: mixed precision makes it another load."""
    return f"{model}+amp" if model and mixed else model
