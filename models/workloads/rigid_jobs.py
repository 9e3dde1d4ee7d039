"""Jobs that state only a size and a duration, as other clusters have them: `--jobs-format tiresias` and `venus`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from bft.models.cells import MAX_SECONDS, SECOND_NS, Row, Rows
from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.job_tables import unknown_columns
from bft.models.jobs import Job, JobTable
from bft.models.tables import read_table


def rigid_job(
    name: str, tsub_ns: int, units: int, seconds: float, **further: Any
) -> Job:
    """A job that runs on `units`, no more and no less, for `seconds`: Pmax is the duration, at a rate of 1.

    `further` are fields of `Job`. It costs nothing to start or stop it.

    >>> job = rigid_job("a", tsub_ns=0, units=4, seconds=600.0, user="u1")
    >>> job.jmin, job.jmax, float(job.rates[4]), job.user
    (4, 4, 1.0, 'u1')
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


# Why a row of a table has no job.
UNUSED = "without GPUs or duration"


@lru_cache(maxsize=4096)
def _full_rate(units: int) -> Curve:
    """A rate of 1 on all requested units."""
    return Curve(np.array([0.0, float(units)]), np.array([0.0, 1.0]))


def rigid_table(
    rows: Rows,
    job: Callable[[Row], Job | str | None],
    columns: Mapping[str, str] = MappingProxyType({}),
) -> JobTable:
    """The jobs of one file; what did not run is left out, counted by reason, and noted in the table.

    Parameters
    ----------
    rows
        The table; its job column names the jobs.
    job
        From a row to a job; the reason why it is left out; or None for a row that states none.
    columns
        What the table calls the fields that a job checks itself: name in a native table -> column.

    Raises
    ------
    InputError
        What `job` raises; also for a name that is taken, and when no job is left.
    """
    jobs: dict[str, Job] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            made = job(row)
        except InputError as error:
            raise row.placed(error, columns.get(error.column or "")) from error
        if isinstance(made, str):
            left_out[made] += 1
        elif made is not None:
            if row.name(rows.job) in jobs:
                raise row.error(rows.job, "the name appears twice; expected once")
            jobs[made.name] = made
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
    if not jobs:
        raise rows.error(f"has no job to replay{': ' + reasons if reasons else ''}")
    notes = (f"jobs left out: {reasons}",) if reasons else ()
    return JobTable(tuple(jobs.values()), rows.file, notes)


# Where seconds count from that a table of Helios has for a submit time: its traces begin on 2020-04-01 (UTC).
VENUS_ORIGIN_NS: Final = 1_585_699_200 * SECOND_NS
MIB_PER_GIB: Final = 1024


def read_tiresias_jobs(path: str | Path) -> JobTable:
    r"""Read a trace of Tiresias' simulator (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

    | column                | becomes                                                                       |
    |-----------------------|-------------------------------------------------------------------------------|
    | job_id                | name                                                                          |
    | num_gpu               | Jmin = Jmax = Jreq, in units                                                  |
    | submit_time           | Tsub: seconds from the begin of the trace, which is taken for 1970-01-01      |
    | duration              | Pmax: seconds of work at a rate of 1 on num_gpu units                         |
    | model_name            | model                                                                         |
    | skew, spread_slowdown | the same: skew is the share of a model's largest tensor in its parameters     |

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

    def fields(row: Row) -> dict[str, Any]:
        return {
            "model": row.name("model_name", ""),
            "skew": row.number("skew", None),
            "spread_slowdown": row.number("spread_slowdown", 1.0),
        }

    optional = ("model_name", "skew", "spread_slowdown", "iterations", "interval")
    return _read(path, "num_gpu", 0, fields, optional[:3], optional[3:])


def read_venus_jobs(path: str | Path) -> JobTable:
    r"""Read a Helios job table (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

    | column                        | becomes                                                                    |
    |-------------------------------|----------------------------------------------------------------------------|
    | job_id                        | name                                                                       |
    | gpu_num                       | Jmin = Jmax = Jreq, in units                                               |
    | submit_time                   | Tsub: date and time (UTC where it names no zone), or s from 2020-04-01     |
    | duration                      | Pmax: seconds of work at a rate of 1 on gpu_num units                      |
    | user, vc, batchsize           | user, vc, batch_size                                                       |
    | model, amp                    | model, with `+amp` behind it where amp is 1: it computes otherwise         |
    | gmem                          | memory_gib: memory of a unit, in MiB                                       |

    Further columns (cpu_num, state, dataset, gpu_util, gmem_util and so on), amp and gmem are kept in `Job.extra`. Jobs
    without a GPU or without duration did not run on units: they are left out, and the table's notes count them.

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

    def fields(row: Row) -> dict[str, Any]:
        memory_mib = row.number("gmem", None, min=0)
        return {
            "model": label(row.name("model", ""), mixed=is_mixed(row, "amp")),
            "user": row.name("user", ""),
            "vc": row.name("vc", ""),
            "batch_size": row.number("batchsize", None, min=0),
            "memory_gib": None if memory_mib is None else memory_mib / MIB_PER_GIB,
        }

    taken = ("model", "user", "vc", "batchsize")
    return _read(path, "gpu_num", VENUS_ORIGIN_NS, fields, taken, ("amp", "gmem"))


def _read(
    path: str | Path,
    units: str,
    origin_ns: int,
    fields: Callable[[Row], dict[str, Any]],
    taken: Sequence[str],
    kept: Sequence[str],
) -> JobTable:
    """Read a table; of its optional columns those `taken` become fields of Job, those `kept` stay in `Job.extra`."""
    required = ("job_id", units, "submit_time", "duration")
    rows = Rows(read_table(path), path, job="job_id").require(required, (*taken, *kept))
    unknown_columns(rows, (*required, *taken, *kept))  # misspelt ones are refused

    def job(row: Row) -> Job | str:
        count = row.whole(units, min=0)
        seconds = row.number("duration", min=0, below=MAX_SECONDS)
        submit_ns = row.instant("submit_time", origin_ns=origin_ns)
        if submit_ns < 0:
            raise row.error("submit_time", "expected an instant from 1970 on")
        if not count or not seconds:
            return UNUSED
        extra = row.further((*required, *taken))
        return rigid_job(row.job, submit_ns, count, seconds, extra=extra, **fields(row))

    return rigid_table(rows, job, {"Jmax": units, "model": taken[0]})


def is_mixed(row: Row, column: str) -> bool:
    """Whether a job computes in mixed precision: true for 1 or true, otherwise false."""
    value = row.value(column)
    return (
        value if isinstance(value, bool) else bool(row.whole(column, 0, min=0, max=1))
    )


def label(model: str, *, mixed: bool) -> str:
    """The model's name in ξ tables: mixed precision makes it another load."""
    return f"{model}+amp" if model and mixed else model
