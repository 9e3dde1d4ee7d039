"""Job tables of the Helios clusters as Lucid's artifact has them: `--jobs-format venus` (DESIGN §4)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bft.models.errors import InputError
from bft.models.jobs import JOB_BYTES, Job, JobTable
from bft.models.sharing.xi_table import Measurement, XiTable, require_columns
from bft.models.sharing.xi_table import records as records_of
from bft.models.tables import read_table
from bft.models.workloads.rigid_jobs import SECOND_NS, Cells, jobs_of_rows, rigid_job

REQUIRED: Final = ("job_id", "gpu_num", "submit_time", "duration")
OPTIONAL: Final = ("user", "vc", "model", "batchsize", "amp", "gmem")
# What becomes a field of Job; all other columns go to Job.extra.
_FIELDS: Final = frozenset((*REQUIRED, "user", "vc", "model", "batchsize"))
# A submit time that is a number counts seconds from here: Helios traces begin on this day.
ORIGIN: Final = "2020-04-01"
MIB_PER_GIB: Final = 1024
# Models that the artifact did not measure beside others, and takes for indifferent.
INDIFFERENT: Final = ("NeuMF", "ResNet50", "BERT", "Transformer")
_COLOCATION: Final = ("model1", "batchsize1", "amp1", "speed1", "model2", "batchsize2", "amp2", "speed2")


def read_venus_jobs(path: str | Path, *, origin: str = ORIGIN) -> JobTable:
    """Read a Helios job table (CSV, Parquet or JSON lines), one rigid job a row, in the order of the file.

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
    """
    frame = read_table(path, row_bytes=JOB_BYTES)
    require_columns(frame, REQUIRED, OPTIONAL, "a Helios job table", str(path))
    begin = _instant(origin)
    if begin is None:
        raise InputError(f"expected a date such as {ORIGIN} as origin, not {origin!r}")
    return jobs_of_rows(frame, path, "job_id", lambda cells: _job(cells, begin))


def read_colocation(path: str | Path, *, indifferent: Iterable[str] = INDIFFERENT) -> XiTable:
    """Read measured pairs of models as Lucid's artifact has them, as a ξ table for the jobs of `read_venus_jobs`.

    Columns model1, batchsize1, amp1, speed1, model2, batchsize2, amp2, speed2: speeds beside each other over speeds
    alone. ξ = 1 / speed; what goes faster together is noise, which the table clips.

    Parameters
    ----------
    path
        The table.
    indifferent
        Models that neither slow down others nor are slowed down, at any batch size.

    Raises
    ------
    InputError
        Naming file, row and column.
    """
    frame = read_table(path)
    require_columns(frame, _COLOCATION, (), "a table of measured pairs", str(path))
    if not len(frame):
        raise InputError("the table of measured pairs is empty", file=path)
    measured = []
    for record in records_of(frame, str(path)):
        a, b = (_label(record.text(f"model{side}"), record.values[f"amp{side}"]) for side in "12")
        xi_a, xi_b = (1 / record.positive(f"speed{side}") for side in "12")
        batch_a, batch_b = (record.positive(f"batchsize{side}") for side in "12")
        measured.append(Measurement(a, b, xi_a, xi_b, batch_a, batch_b))
    apart = sorted(_label(model, amp) for model in indifferent for amp in (0, 1))
    # No row twice: a pair of indifferent models is the same told from either side.
    others = sorted({name for row in measured for name in (row.model_a, row.model_b)} - set(apart))
    pairs = [(a, b) for at, a in enumerate(apart) for b in (*apart[at:], *others)]
    return XiTable([*measured, *(Measurement(a, b, 1.0, 1.0) for a, b in pairs)])


def _job(cells: Cells, begin: int) -> Job | None:
    """The job of a row, None when it needs no units or no time."""
    units, seconds, submit_ns = cells.units("gpu_num"), cells.number("duration"), _submit_ns(cells, begin)
    if not units or not seconds:
        return None
    try:
        return rigid_job(
            cells.name,
            submit_ns,
            units,
            seconds,
            model=_label(cells.text("model"), cells.record.get("amp")),
            user=cells.text("user"),
            vc=cells.text("vc"),
            batch_size=cells.number("batchsize") if cells.given("batchsize") else None,
            memory_gib=cells.number("gmem") / MIB_PER_GIB if cells.given("gmem") else None,
            extra=cells.further(_FIELDS),
        )
    except InputError as error:
        if error.row is not None:
            raise
        raise cells.wrong("gpu_num", error.what) from error  # one of Job's own checks, which know no file


def _submit_ns(cells: Cells, begin: int) -> int:
    value = cells.record["submit_time"]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return begin + round(value * SECOND_NS)
    instant = _instant(value)
    if instant is None:
        raise cells.wrong("submit_time", f"expected a date and time, or seconds from the origin, not {value!r}")
    return instant


def _label(model: str, amp: object) -> str:
    """The model's name as ξ tables know it: mixed precision is another load."""
    return f"{model}+amp" if model and amp in (1, "1", True) else model


def _instant(value: object) -> int | None:
    """UTC nanoseconds of a date and time, None when it is none."""
    import pandas as pd

    # pandas would read 10:00 and now as times of today.
    if value in (None, "", "now", "today") or isinstance(value, bool | int | float):
        return None
    try:
        stamp = pd.to_datetime(value, utc=True, format="ISO8601") if isinstance(value, str) else pd.Timestamp(value)  # type: ignore[arg-type]
        stamp = stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp
        return None if pd.isna(stamp) else int(stamp.as_unit("ns").value)
    except (ValueError, TypeError, OverflowError):
        return None
