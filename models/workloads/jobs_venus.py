"""Job tables of the Helios clusters as Lucid's artifact has them: `--jobs-format venus` (DESIGN §4)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.jobs import Job, JobTable
from bft.models.sharing.interference import Measurement, XiTable, require_columns
from bft.models.sharing.interference import records as records_of
from bft.models.tables import read_table

if TYPE_CHECKING:
    pass

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
_SECOND_NS: Final = 1_000_000_000

_log = logging.getLogger(__name__)


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
    without a GPU or without duration did not run on units: they are left out, and their number is logged.

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
    frame = read_table(path)
    require_columns(frame, REQUIRED, OPTIONAL, "a Helios job table", str(path))
    begin = _instant(origin)
    if begin is None:
        raise InputError(f"expected a date such as {ORIGIN} as origin, not {origin!r}")
    jobs = []
    for row, record in enumerate(frame.to_dict(orient="records"), start=1):
        job = _Row({str(key): value for key, value in record.items()}, row, str(path), begin).job()
        if job is not None:
            jobs.append(job)
    if not jobs:
        raise InputError("no job with gpu_num and duration above 0", file=path)
    if len(jobs) < len(frame):
        _log.info("%s: %d jobs without GPUs or duration are left out", path, len(frame) - len(jobs))
    return JobTable(tuple(jobs), str(path))


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


class _Row:
    """One row on its way to a job."""

    def __init__(self, record: Mapping[str, Any], row: int, file: str, begin: int) -> None:
        self.record, self.row, self.file, self.begin = record, row, file, begin
        self.name = self.text("job_id")
        if not self.name:
            raise self.wrong("job_id", "the job's name is missing")

    def job(self) -> Job | None:
        """The job, None when it needs no units or no time."""
        units, seconds = self.number("gpu_num"), self.number("duration")
        if not units.is_integer():
            raise self.wrong("gpu_num", f"expected a whole number, not {units:g}")
        submit = self.submit()
        if not units or not seconds:
            return None
        memory = self.number("gmem") if self.given("gmem") else None
        curve = _curve(int(units))
        try:
            return Job(
                name=self.name,
                tsub_ns=submit,
                jmin=int(units),
                jmax=int(units),
                pmax=seconds,
                tcup_s=0.0,
                tcdw_s=0.0,
                scalability=curve,
                objective=curve,
                jreq=int(units),
                model=_label(self.text("model"), self.record.get("amp")),
                user=self.text("user"),
                vc=self.text("vc"),
                batch_size=self.number("batchsize") if self.given("batchsize") else None,
                memory_gib=None if memory is None else memory / MIB_PER_GIB,
                extra={key: value for key, value in self.record.items() if key not in _FIELDS and self.given(key)},
            )
        except InputError as error:
            if error.row is not None:
                raise
            raise self.wrong("gpu_num", error.what) from error  # one of Job's own checks, which know no file

    def submit(self) -> int:
        value = self.record["submit_time"]
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return self.begin + round(value * _SECOND_NS)
        instant = _instant(value)
        if instant is None:
            raise self.wrong("submit_time", f"expected a date and time, or seconds from the origin, not {value!r}")
        return instant

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
        if not (math.isfinite(number) and number >= 0):
            raise self.wrong(column, f"expected a finite number >= 0, not {value!r}")
        return number

    def wrong(self, column: str, what: str) -> InputError:
        return InputError(what, file=self.file, row=self.row, column=column, job=getattr(self, "name", "") or None)


@lru_cache(maxsize=1024)
def _curve(units: int) -> Curve:
    """A rate of 1 on all units asked for."""
    return Curve(np.array([0.0, float(units)]), np.array([0.0, 1.0]))


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
