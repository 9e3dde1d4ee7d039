"""Jobs that state only a size and a duration, as logs of other clusters have them (docs/formats.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
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
    numbers: dict[str, int] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            made = job(row)
        except InputError as error:
            raise row.placed(error, columns.get(error.column or "")) from error
        if isinstance(made, str):
            left_out[made] += 1
        elif made is not None:
            first = numbers.setdefault(row.name(rows.job), row.index + 1)
            if first != row.index + 1:
                message = f"the name appears twice, first in row {first}; expected unique names"
                raise InputError(
                    message, file=rows.file, row=row.index + 1, job=row.job
                )
            jobs[made.name] = made
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
    if not jobs:
        raise rows.error(f"has no job to replay{': ' + reasons if reasons else ''}")
    notes = (f"jobs left out: {reasons}",) if reasons else ()
    return JobTable(tuple(jobs.values()), rows.file, notes)
