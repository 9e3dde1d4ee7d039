"""Job tables from files and frames: the native form and the published pair (DESIGN §4)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.jobs import JOB_BYTES, Job, JobTable
from bft.models.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("Jmin", "Jmax", "Pmax", "Tsub", "Tcup", "Tcdw", "Ns", "Ps", "Os")
OPTIONAL = (
    "Jreq",
    "weight",
    "model",
    "batch_size",
    "memory_gib",
    "user",
    "vc",
    "deadline",
    "skew",
    "spread_slowdown",
)
BOUNDS = ("Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub")
CURVES = ("Ns", "Ps", "Os")
_KNOWN = frozenset((*REQUIRED, *OPTIONAL))
# Columns that may hold the job name when the file has no index of its own.
NAME_COLUMNS = ("name", "job", "Unnamed: 0", "")


def read_jobs(path: str | Path) -> JobTable:
    """Read a native job table (Parquet, CSV or JSON lines).

    Columns: name, Jmin, Jmax, Pmax (samples), Tsub (UTC), Tcup, Tcdw (s), Ns, Ps, Os (lists; in CSV as JSON), and
    optionally Jreq, weight, model, batch_size, memory_gib, user, vc, deadline (UTC), skew, spread_slowdown. What other
    columns say is kept in `Job.extra`.

    Raises
    ------
    InputError
        Naming file, row, column and job.
    """
    return jobs_from_frame(read_table(path, row_bytes=JOB_BYTES), source=str(path))


def read_published_jobs(bounds: str | Path, scalability: str | Path) -> JobTable:
    """Read the published pair of tables: `bounds` (-bdfn) and `scalability` (-scfn), joined by job name.

    The order is that of `bounds`. Jobs that only `scalability` has are left out. A job named J00001-vgg16 trains the
    model vgg16, unless a column says otherwise.

    Raises
    ------
    InputError
        Naming file, row, column and job.
    """
    bound_frame = _named(read_table(bounds, row_bytes=JOB_BYTES), str(bounds))
    curve_frame = _named(read_table(scalability), str(scalability))
    _require(bound_frame, BOUNDS, str(bounds))
    _require(curve_frame, CURVES, str(scalability))
    for frame, file in ((bound_frame, bounds), (curve_frame, scalability)):
        _unique(frame, str(file))
    missing = bound_frame.index.difference(curve_frame.index, sort=False)
    if len(missing):
        raise InputError(
            f"no row for this job, which {bounds} has ({len(missing)} such jobs)",
            file=scalability,
            job=str(missing[0]),
            hint="give the two tables of one published set",
        )
    joined = bound_frame.drop(columns=list(CURVES), errors="ignore").join(curve_frame[list(CURVES)])
    if "model" not in joined.columns:  # published names carry it: J00001-vgg16
        joined = joined.assign(model=[name.partition("-")[2] for name in joined.index])
    curve_rows = (curve_frame.index.get_indexer(joined.index) + 1).tolist()
    return jobs_from_frame(joined, source=str(bounds), curves_from=str(scalability), curve_rows=curve_rows)


def jobs_from_frame(
    frame: pd.DataFrame, *, source: str = "", curves_from: str = "", curve_rows: Sequence[int] | None = None
) -> JobTable:
    """Make a job table from a frame with the native columns; the name is a column or the index.

    Parameters
    ----------
    frame
        One row a job.
    source, curves_from, curve_rows
        Files to name in messages; where Ns, Ps and Os come from another file, that one and the row of each job in it.
    """
    frame = _named(frame, source)
    _require(frame, REQUIRED, source)
    columns = {str(column): frame[column].tolist() for column in frame.columns}
    jobs = []
    for row, name in enumerate(frame.index.tolist(), start=1):
        record = {column: values[row - 1] for column, values in columns.items()}
        curve_row = row if curve_rows is None else curve_rows[row - 1]
        jobs.append(_Row(record, str(name), (source, row), (curves_from or source, curve_row)).job())
    return JobTable(tuple(jobs), source)


def jobs_to_frame(table: JobTable) -> pd.DataFrame:
    """The native form of a job table, one row a job; optional columns only where a job states them."""
    import pandas as pd

    records = []
    for job in table:
        record: dict[str, Any] = {
            "name": job.name,
            "model": job.model,
            "Jmin": job.jmin,
            "Jmax": job.jmax,
            "Pmax": job.pmax,
            "Tsub": pd.Timestamp(job.tsub_ns, unit="ns", tz="UTC"),
            "Tcup": job.tcup_s,
            "Tcdw": job.tcdw_s,
            "Ns": job.scalability.ns.tolist(),
            "Ps": job.scalability.ps.tolist(),
            # One abscissa serves both curves in the native form.
            "Os": job.objective.at(job.scalability.ns).tolist(),
            "Jreq": job.jreq,
            "weight": job.weight,
            "batch_size": job.batch_size,
            "memory_gib": job.memory_gib,
            "user": job.user,
            "vc": job.vc,
            "deadline": None if job.deadline_ns is None else pd.Timestamp(job.deadline_ns, unit="ns", tz="UTC"),
            "skew": job.skew,
            "spread_slowdown": job.spread_slowdown,
            **job.extra,
        }
        records.append(record)
    further = dict.fromkeys(column for job in table for column in job.extra)
    frame = pd.DataFrame(records, columns=["name", *REQUIRED, *OPTIONAL, *further])
    unused = [column for column in OPTIONAL if frame[column].isna().all() or (frame[column] == "").all()]
    unused += [column for column in ("weight", "spread_slowdown") if (frame[column] == 1.0).all()]
    return frame.drop(columns=unused)


class _Row:
    """One row on its way to a Job; every message names file, row, column and job."""

    def __init__(self, record: Mapping[str, Any], name: str, place: tuple[str, int], curve_place: tuple[str, int]):
        self.record, self.name, self.place, self.curve_place = record, name, place, curve_place

    def wrong(self, column: str, what: str) -> InputError:
        file, row = self.curve_place if column in CURVES else self.place
        return InputError(what, file=file or None, row=row, column=column, job=self.name)

    def job(self) -> Job:
        ns = self.numbers("Ns")
        try:
            return Job(
                name=self.name,
                tsub_ns=self.instant("Tsub"),
                jmin=self.whole("Jmin"),
                jmax=self.whole("Jmax"),
                pmax=self.number("Pmax"),
                tcup_s=self.number("Tcup"),
                tcdw_s=self.number("Tcdw"),
                scalability=self.curve(ns, "Ps"),
                objective=self.curve(ns, "Os", signed=True),
                jreq=self.whole("Jreq") if self.given("Jreq") else None,
                weight=self.number("weight") if self.given("weight") else 1.0,
                model=self.text("model"),
                user=self.text("user"),
                vc=self.text("vc"),
                batch_size=self.number("batch_size") if self.given("batch_size") else None,
                memory_gib=self.number("memory_gib") if self.given("memory_gib") else None,
                deadline_ns=self.instant("deadline") if self.given("deadline") else None,
                skew=self.number("skew") if self.given("skew") else None,
                spread_slowdown=self.number("spread_slowdown") if self.given("spread_slowdown") else 1.0,
                extra={key: value for key, value in self.record.items() if key not in _KNOWN and self.given(key)},
            )
        except InputError as error:
            if error.row is None:
                raise self.wrong(error.column or "", error.what) from error
            raise

    def given(self, column: str) -> bool:
        value = self.record.get(column)
        if value is None or isinstance(value, list | np.ndarray):
            return value is not None
        return not (value == "" or value != value)

    def text(self, column: str) -> str:
        return str(self.record[column]) if self.given(column) else ""

    def number(self, column: str) -> float:
        value = self.record[column]
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if isinstance(value, bool) or not math.isfinite(number):
            raise self.wrong(column, f"expected a finite number, not {_shown(value)}")
        return number

    def whole(self, column: str) -> int:
        number = self.number(column)
        if not number.is_integer() or abs(number) > 2**31:
            raise self.wrong(column, f"expected a whole number, not {_shown(self.record[column])}")
        return int(number)

    def instant(self, column: str) -> int:
        import pandas as pd

        value = self.record[column]
        wrong = self.wrong(column, f"expected a date and time such as 2021-02-10T20:21:15Z, not {_shown(value)}")
        # pandas would read 10:00 and now as times of today.
        if isinstance(value, int | float) or not self.given(column) or value in ("now", "today"):
            raise wrong
        try:
            if isinstance(value, str):
                stamp = pd.to_datetime(value, utc=True, format="ISO8601")
            else:
                stamp = pd.Timestamp(value)
                stamp = stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
            return int(stamp.as_unit("ns").value)
        except (ValueError, TypeError, OverflowError) as error:
            raise wrong from error

    def numbers(self, column: str) -> list[float]:
        value = self.record[column]
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                raise self.wrong(column, f"expected a list such as [0, 1, 2, 4], not {_shown(value)}") from None
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.wrong(column, f"expected a list of numbers, not {_shown(value)}")
        try:
            numbers = [float(entry) for entry in value]
        except (TypeError, ValueError, OverflowError):
            raise self.wrong(column, f"expected a list of numbers, not {_shown(value)}") from None
        if not all(map(math.isfinite, numbers)):
            raise self.wrong(column, f"expected finite numbers, not {_shown(value)}")
        return numbers

    def curve(self, ns: list[float], column: str, *, signed: bool = False) -> Curve:
        values = self.numbers(column)
        if not signed and any(value < 0 for value in values):
            raise self.wrong(column, f"rates must be >= 0, not {min(values):g}")
        try:
            return Curve(np.array(ns), np.array(values))
        except ValueError as error:
            raise self.wrong("Ns" if "Ns" in str(error) else column, str(error)) from error


def _shown(value: object) -> str:
    """A value as a message shows it: not the whole of what may be long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-15:]}"


def _named(frame: pd.DataFrame, file: str) -> pd.DataFrame:
    """The frame with job names as index, whether they came as a column or as the index."""
    import pandas as pd

    if isinstance(frame.index, pd.RangeIndex) or frame.index.dtype.kind in "iu":
        for column in NAME_COLUMNS:
            if column in frame.columns:
                frame = frame.set_index(column)
                break
        else:
            raise InputError("no column with the job's name; expected 'name'", file=file or None, column="name")
    nameless = np.flatnonzero(np.asarray(frame.index.isna()) | np.asarray(frame.index == ""))
    if len(nameless):
        raise InputError("the job's name is missing", file=file or None, row=int(nameless[0]) + 1, column="name")
    names = pd.Index([str(name) for name in frame.index], dtype=object)
    return frame.set_axis(names, axis=0)


def _require(frame: pd.DataFrame, columns: Sequence[str], file: str) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(
            f"missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
            f"it has {', '.join(map(str, frame.columns)) or 'none'}",
            file=file or None,
            hint="docs/formats.md lists the columns",
        )


def _unique(frame: pd.DataFrame, file: str) -> None:
    twice = frame.index[frame.index.duplicated()]
    if len(twice):
        row = int(np.flatnonzero(frame.index == twice[0])[1]) + 1
        raise InputError("the name appears twice; expected unique names", file=file, row=row, job=str(twice[0]))
