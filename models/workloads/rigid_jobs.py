"""Jobs that state only a size and a duration, as logs of other clusters have them (docs/formats.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bft.models.cells import Row, Rows
from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.jobs import Job, JobTable


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


@lru_cache(maxsize=4096)
def _full_rate(units: int) -> Curve:
    """A rate of 1 on all requested units."""
    return Curve(np.array([0.0, float(units)]), np.array([0.0, 1.0]))


def rigid_table(path: str | Path, entries: Iterable[tuple[int, Job | str]]) -> JobTable:
    """The jobs of one file; what did not run is left out, counted by reason, and noted in the table.

    Parameters
    ----------
    path
        The file.
    entries
        The number of a row, and its job or the reason why it has none.

    Raises
    ------
    InputError
        When a name appears twice, or there are no jobs.
    """
    jobs: dict[str, Job] = {}
    rows: dict[str, int] = {}
    left_out: Counter[str] = Counter()
    for row, job in entries:
        if isinstance(job, str):
            left_out[job] += 1
        elif job.name in rows:
            message = f"the name appears twice, first in row {rows[job.name]}; expected unique names"
            raise InputError(message, file=path, row=row, job=job.name)
        else:
            rows[job.name], jobs[job.name] = row, job
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
    if not jobs:
        raise InputError(
            f"has no job to replay{': ' + reasons if reasons else ''}", file=path
        )
    notes = (f"jobs left out: {reasons}",) if reasons else ()
    return JobTable(tuple(jobs.values()), str(path), notes)


def jobs_of_rows(
    rows: Rows, job: Callable[[Row], Job | None], columns: Mapping[str, str]
) -> JobTable:
    """The jobs of a table, one per row.

    Parameters
    ----------
    rows
        The table.
    job
        From a row to a job; None where it used no units or no time.
    columns
        What the table calls the fields that a job checks itself: name in a native table -> column.

    Raises
    ------
    InputError
        What `job` raises; also for a name that is taken, and when no job is left.
    """

    def entry(row: Row) -> tuple[int, Job | str]:
        row.name(rows.job)
        try:
            made = job(row)
        except InputError as error:
            raise row.placed(error, columns.get(error.column or "")) from error
        return row.index + 1, made or "without GPUs or duration"

    return rigid_table(rows.file, map(entry, rows))
