"""Job tables from and to files and frames: the native form and the published pair (docs/formats.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bft.models.cells import ALIKE, Row, Rows, read_number, shown
from bft.models.checks import nearest
from bft.models.curves import Curve
from bft.models.errors import InputError
from bft.models.jobs import MAX_UNITS, Job, JobTable
from bft.models.tables import read_table, trusting_pickles, write_parquet


class Column(NamedTuple):
    """A column of one value a job: the field of `Job` that it fills, how its cells are read, and what they say.

    One with a default is optional. The page on files lists the meanings.
    """

    field: str
    read: Callable[..., Any]
    meaning: str
    default: Any = ...
    bounds: Mapping[str, float] = {}


# Columns beside the name, the sizes (Jmin, Jmax, sizes) and the curves (Ns, Ps, Os).
COLUMNS: Mapping[str, Column] = {
    "Pmax": Column("pmax", Row.number, "total work, samples"),
    "Tsub": Column(
        "tsub_ns", Row.instant, "submit time, UTC; all rows with a zone, or none"
    ),
    "Tcup": Column("tcup_s", Row.number, "s lost when it grows"),
    "Tcdw": Column("tcdw_s", Row.number, "s lost when it shrinks"),
    "Jreq": Column(
        "jreq",
        Row.whole,
        "units that a rigid policy requests; else the smallest n that reaches 80 % of P(Jmax)",
        None,
        {"max": MAX_UNITS},
    ),
    "weight": Column("weight", Row.number, "factor on its objective", 1.0),
    "model": Column("model", Row.name, "what it trains, as tables of xi name it", ""),
    "batch_size": Column(
        "batch_size", Row.number, "samples of a step", None, {"above": 0}
    ),
    "memory_gib": Column(
        "memory_gib", Row.number, "GiB that it takes of a unit", None, {"min": 0}
    ),
    "user": Column("user", Row.name, "who submits it", ""),
    "vc": Column("vc", Row.name, "its virtual cluster", ""),
    "deadline": Column("deadline_ns", Row.instant, "when it should be done, UTC", None),
    "skew": Column(
        "skew", Row.number, "share of its largest tensor in its parameters", None
    ),
    "spread_slowdown": Column(
        "spread_slowdown",
        Row.number,
        "times that a step takes longer on more nodes than needed",
        1.0,
    ),
    "total_memory_gib": Column(
        "total_memory_gib",
        Row.number,
        "GiB of its units together; with `--option unit-memory=G` it runs on sizes n with n · G ≥ this",
        None,
        {"min": 0},
    ),
}
REQUIRED = ("Jmin", "Jmax", "Pmax", "Tsub", "Tcup", "Tcdw", "Ns", "Ps", "Os")
OPTIONAL = (*(name for name in COLUMNS if name not in REQUIRED), "sizes")
# A cell of the column sizes that stands for 1, 2, 4, 8 and so on.
POWERS = "powers-of-2"
BOUNDS = ("Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub")
CURVES = ("Ns", "Ps", "Os")
_KNOWN = frozenset((*REQUIRED, *OPTIONAL))
# Columns of `Job.extra` that policies of this package read (docs/formats.md, Further columns).
FOR_POLICIES = (
    "estimate_s",
    "sharing_score",
    "profiled",
    "gpu_util",
    "gmem_util",
    "gmem",
    "amp",
)
# A curve on units of one kind: the column's name, and the kind.
KIND_MARK = "@"
# Columns that may hold the job name when the file has no index of its own.
NAME_COLUMNS = ("name", "job", "Unnamed: 0", "")


def read_jobs(path: str | Path, *, trust_pickle: bool = False) -> JobTable:
    """Read a native job table (Parquet, CSV or JSON lines).

    Columns: name, Jmin, Jmax, Pmax (samples), Tsub (UTC), Tcup, Tcdw (s), Ns, Ps, Os (lists; in CSV as JSON), and
    Ps@KIND and Os@KIND where its curve differs on units of that kind; optionally those of `COLUMNS` and sizes
    (docs/formats.md). What other columns say is kept in `Job.extra`; a note of the table names those that no policy of
    this package reads.

    Raises
    ------
    InputError
        Naming file, row, column and job; also for a column whose name is a known one misspelt.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> row = '{"name": "a", "Jmin": 1, "Jmax": 4, "Pmax": 6e6, "Tsub": "2021-02-10", "Tcup": 18, "Tcdw": 9, '
    >>> curves = '"Ns": [0, 1, 4], "Ps": [0, 10, 31], "Os": [0, 10, 31]}'
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "jobs.jsonl")
    ...     _ = file.write_text(row + curves)
    ...     [job.rates.tolist() for job in read_jobs(file)]
    [[0.0, 10.0, 17.0, 24.0, 31.0]]
    """
    return jobs_from_frame(
        read_table(path, trust_pickle=trust_pickle), source=str(path)
    )


def read_published_jobs(
    bounds: str | Path, scalability: str | Path, *, trust_pickle: bool = False
) -> JobTable:
    """Read the published pair of tables: `bounds` (-bdfn) and `scalability` (-scfn), joined by job name.

    The order is that of `bounds`. Jobs that only `scalability` has are left out. A job named J00001-vgg16 trains the
    model vgg16, unless a column says otherwise. A row of `scalability` is for the job of its name, or else for all jobs
    that train the model of that name. Without a column Os the objective is throughput, Ps.

    Raises
    ------
    InputError
        Naming file, row, column and job.

    Examples
    --------
    >>> import pandas as pd
    >>> from tempfile import TemporaryDirectory
    >>> bounds = pd.DataFrame({"Jmin": 1, "Jmax": 4, "Pmax": 6e6, "Tsub": ["2021-02-10"], "Tcup": 18, "Tcdw": 9})
    >>> curves = pd.DataFrame({"Ns": [[0, 1, 4]], "Ps": [[0, 10, 31]]}, index=["vgg16"])
    >>> with TemporaryDirectory() as folder:
    ...     files = Path(folder, "bounds.pkl"), Path(folder, "curves.pkl")
    ...     bounds.set_index(pd.Index(["J00001-vgg16"])).to_pickle(files[0])
    ...     curves.to_pickle(files[1])
    ...     [(job.name, job.model, job.jmax) for job in read_published_jobs(*files, trust_pickle=True)]
    [('J00001-vgg16', 'vgg16', 4)]
    """
    with trusting_pickles(trust_pickle):
        bound_frame, curve_frame = read_table(bounds), read_table(scalability)
    bound_rows = _rows(bound_frame, str(bounds), BOUNDS)
    curve_rows = _rows(
        curve_frame,
        str(scalability),
        ("Ns", "Ps"),
        (*NAME_COLUMNS, "model"),
    )
    notes = dict.fromkeys((*_column_notes(bound_rows), *_column_notes(curve_rows)))
    curves = _by_name(curve_rows)
    named = not bound_rows.has("model")  # published names carry it: J00001-vgg16
    models = {
        name: name.partition("-")[2] if named else row.name("model", "")
        for name, row in _by_name(bound_rows).items()
    }
    missing = [
        name
        for name, model in models.items()
        if name not in curves and model not in curves
    ]
    if missing:
        raise InputError(
            f"no row for this job, which {bounds} has ({len(missing)} such jobs)",
            file=scalability,
            job=missing[0],
            hint="its rows name jobs or models; give the two tables of one set",
        )
    known = {bound_rows.job, *_KNOWN}
    jobs = (
        _job(
            row,
            curves.get(row.job) or curves[models[row.job]],
            known,
            model=models[row.job],
        )
        for row in bound_rows
    )
    return JobTable(tuple(jobs), str(bounds), tuple(notes))


def jobs_from_frame(frame: pd.DataFrame, *, source: str = "") -> JobTable:
    """Make a job table from a frame with the native columns; the name is a column or the index.

    Parameters
    ----------
    frame
        One row per job.
    source
        File to name in messages.

    Raises
    ------
    InputError
        Naming file, row, column and job; also for a column whose name is a known one misspelt.

    Examples
    --------
    >>> import pandas as pd
    >>> curve = {"Ns": [0, 1, 4], "Ps": [0, 10, 30], "Os": [0, 1, 3]}
    >>> bounds = {"Jmin": 1, "Jmax": 4, "Pmax": 1e6, "Tsub": "2021-02-10T20:21:15Z", "Tcup": 18, "Tcdw": 12}
    >>> table = jobs_from_frame(pd.DataFrame([{"name": "a", **bounds, **curve}]))
    >>> table.jobs[0].rates.round(1).tolist()  # samples/s on 0 to 4 units
    [0.0, 10.0, 16.7, 23.3, 30.0]
    """
    rows = _rows(frame, source, REQUIRED)
    known, notes = {rows.job, *_KNOWN}, _column_notes(rows)
    return JobTable(tuple(_job(row, row, known) for row in rows), source, notes)


def jobs_to_frame(table: JobTable) -> pd.DataFrame:
    """The native form of a job table, one row per job; optional columns only where a job states them.

    >>> from bft.models import Curve, Job
    >>> curve = Curve([0, 4], [0, 40])
    >>> frame = jobs_to_frame(JobTable((Job("a", 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve),)))
    >>> frame[["name", "Jmin", "Jmax", "Pmax"]].to_dict("records")
    [{'name': 'a', 'Jmin': 1, 'Jmax': 4, 'Pmax': 3000.0}]
    """
    records = []
    for job in table:
        ns = job.scalability.ns  # one abscissa serves all curves in the native form
        record: dict[str, Any] = {"name": job.name, "Jmin": job.jmin, "Jmax": job.jmax}
        for name, column in COLUMNS.items():
            value = getattr(job, column.field)
            is_instant = column.read is Row.instant and value is not None
            record[name] = pd.Timestamp(value, tz="UTC") if is_instant else value
        record["sizes"] = None if job.sizes is None else list(job.sizes)
        record["Ns"] = ns.tolist()
        for kind, curves in {
            "": (job.scalability, job.objective),
            **job.by_kind,
        }.items():
            mark = f"{KIND_MARK}{kind}" if kind else ""
            record[f"Ps{mark}"], record[f"Os{mark}"] = (
                curve.at(ns).tolist() for curve in curves
            )
        records.append({**record, **job.extra})
    columns = [
        "name",
        *REQUIRED,
        *OPTIONAL,
        *(name for each in records for name in each),
    ]
    frame = pd.DataFrame(records, columns=list(dict.fromkeys(columns)))
    defaults = {name: column.default for name, column in COLUMNS.items()}
    unused = [
        name
        for name in OPTIONAL
        if frame[name].isna().all() or (frame[name] == defaults.get(name)).all()
    ]
    return frame.drop(columns=unused)


def _job(row: Row, curves: Row, known: Collection[str], *, model: str = "") -> Job:
    """The job of a row; its curves may be in a row of another table."""
    ns = curves.numbers("Ns")
    jmin, jmax, sizes = _sizes(row)
    rates, values = (
        _curve(curves, ns, "Ps", min=0),
        _curve(curves, ns, "Os" if curves.has("Os") else "Ps"),
    )
    by_kind = _by_kind(curves, ns, rates, values)
    fields = {
        column.field: column.read(row, name, column.default, **column.bounds)
        for name, column in COLUMNS.items()
    }
    fields["model"] = fields["model"] or model
    try:
        return Job(
            name=row.job,
            jmin=jmin,
            jmax=jmax,
            scalability=rates,
            objective=values,
            sizes=sizes,
            by_kind=by_kind,
            extra={
                column: cell
                for column, cell in row.further(known).items()
                if _kind_of(column) is None
            },
            **fields,
        )
    except InputError as error:
        raise (curves if error.column in CURVES else row).placed(error) from error


def _kind_of(column: str) -> str | None:
    """The kind in the name of a column such as Ps@a100, None for other columns."""
    name, _, kind = column.partition(KIND_MARK)
    return kind if kind and name in ("Ps", "Os") else None


def _by_kind(
    row: Row, ns: list[float], rates: Curve, values: Curve
) -> dict[str, tuple[Curve, Curve]]:
    """P and O on each kind that a row has columns for; without Os@KIND the objective changes as the rate does."""
    found = {}
    for kind in dict.fromkeys(
        kind for column in row.further(_KNOWN) if (kind := _kind_of(column)) is not None
    ):
        if not row.given(f"Ps{KIND_MARK}{kind}"):
            raise row.error(
                f"Os{KIND_MARK}{kind}",
                f"expected Ps{KIND_MARK}{kind} beside it: the rate on that kind",
            )
        on = _curve(row, ns, f"Ps{KIND_MARK}{kind}", min=0)
        if row.given(f"Os{KIND_MARK}{kind}"):
            worth = _curve(row, ns, f"Os{KIND_MARK}{kind}")
        else:
            ratio = np.divide(
                on.ps, rates.ps, out=np.zeros_like(on.ps), where=rates.ps > 0
            )
            worth = Curve(
                values.ns, np.where(rates.ps > 0, values.ps * ratio, values.ps)
            )
        found[kind] = on, worth
    return found


def _sizes(row: Row) -> tuple[int, int, tuple[int, ...] | None]:
    """Jmin, Jmax, and the sizes that lie between; Jmin and Jmax are their ends where a row has sizes."""
    jmin, jmax = (
        row.whole("Jmin", min=0, max=MAX_UNITS),
        row.whole("Jmax", max=MAX_UNITS),
    )
    first, value = max(jmin, 1), row.value("sizes")
    if value is None or first > jmax:  # the latter is an error of its own
        return jmin, jmax, None
    listed: Any = value
    expected = f"whole numbers between Jmin {jmin} and Jmax {jmax} such as 1,2,4,8, or {POWERS}"
    if isinstance(value, str) and value.strip().lower() == POWERS:
        listed = [2**k for k in range(jmax.bit_length()) if first <= 2**k <= jmax]
        expected = f"a power of 2 between Jmin {jmin} and Jmax {jmax}"
    elif isinstance(value, str):
        listed = value.strip("[] ").split(",")
    elif not isinstance(value, list | tuple):
        listed = np.ravel(value).tolist()
    numbers = [read_number(n) for n in listed]
    if not numbers or not all(first <= n <= jmax and n % 1 == 0 for n in numbers):
        raise row.error("sizes", f"expected {expected}, not {shown(value)}")
    sizes = sorted({int(n) for n in numbers})
    return (jmin if first == sizes[0] else sizes[0]), sizes[-1], tuple(sizes)


def _curve(row: Row, ns: list[float], column: str, **bounds: float) -> Curve:
    values = row.numbers(column, **bounds)
    try:
        return Curve(np.array(ns), np.array(values))
    except ValueError as error:
        raise row.error("Ns" if "Ns" in str(error) else column, str(error)) from error


def _rows(
    frame: pd.DataFrame,
    file: str,
    columns: Sequence[str],
    names: Sequence[str] = NAME_COLUMNS,
) -> Rows:
    """The rows of a frame, whose job names came as one of these columns or as the index."""
    if isinstance(frame.index, pd.RangeIndex) or frame.index.dtype.kind in "iu":
        rows = Rows(frame, file)
        named = next((column for column in names if rows.has(column)), None)
        if named is None:
            hint = None
            if rows.has("throughput"):
                hint = "of measured rates bft-replay jobs fit makes a job table"
            raise rows.error(
                "no column with the job's name; expected 'name'",
                column="name",
                hint=hint,
            )
        rows.job = named
    else:
        rows = Rows(
            frame.drop(columns=["name"], errors="ignore"),
            file,
            job="name",
            index="name",
        )
    hint = "docs/formats.md lists the columns"
    if "Ns" in columns and rows.has("Jmin") and not (rows.has("Ns") or rows.has("Ps")):
        hint = (
            "a replay needs true curves, whatever the decision knows of them: give the two tables as -bdfn "
            "JOBS -scfn CURVES, whose rows name jobs or models"
        )
    rows.require(columns, OPTIONAL, hint=hint, empty=True)
    for row in rows:
        row.name(rows.job)
    return rows


def _column_notes(rows: Rows) -> tuple[str, ...]:
    """Refuse misspelt columns, and report those that are unknown to this package.

    A known column on units of one kind, such as Ps@a100, is compared without the kind.
    """
    kinds = {column for column in rows.columns if _kind_of(column) is not None}
    for column in rows.columns:
        name, mark, kind = column.partition(KIND_MARK)
        if mark and column not in kinds and name.lower() in ("ps", "os"):
            known = f"{name.capitalize()}{mark}{kind or 'KIND'}"
            raise rows.error(f"no such column; expected {known}", column=column)
    unknown = unknown_columns(
        rows, {rows.job, *NAME_COLUMNS, *_KNOWN, *FOR_POLICIES, *kinds}
    )
    if not unknown:
        return ()
    names = f"column{'s' * (len(unknown) > 1)} {', '.join(unknown)}"
    where = f" of {rows.file}" if rows.file else " of the job table"
    return (
        f"{names}{where}: unknown here, without effect unless the policy reads it from Job.extra",
    )


def _by_name(rows: Rows) -> dict[str, Row]:
    by_name: dict[str, Row] = {}
    for row in rows:
        if by_name.setdefault(row.job, row) is not row:
            raise row.error("name", "the name appears twice; expected unique names")
    return by_name


def unknown_columns(rows: Rows, known: Iterable[str]) -> list[str]:
    """Return the columns of a table that are not known, in the order of the table.

    Parameters
    ----------
    rows
        The table.
    known
        Names of all columns that its reader understands.

    Raises
    ------
    InputError
        When an unknown name is nearly that of a known one that the table lacks. (Beside gpu_num a column cpu_num means
        something else.)

    Examples
    --------
    >>> unknown_columns(Rows(pd.DataFrame({"weight": [1], "colour": "red"})), ("weight", "deadline"))
    ['colour']
    """
    names = set(known)
    unknown = [column for column in rows.columns if column not in names]
    for column in unknown:
        if meant := nearest(column, names.difference(rows.columns), ALIKE):
            raise rows.error(
                f"no such column; did you mean {meant!r}?",
                column=column,
                hint="give it another name if it is something else",
            )
    return unknown


def write_jobs(jobs: JobTable, path: str | Path) -> None:
    """Write a job table as Parquet, CSV (lists as JSON) or JSON lines, by suffix.

    >>> from tempfile import TemporaryDirectory
    >>> from bft.models import Curve, Job, read_jobs
    >>> curve = Curve([0, 4], [0, 40])
    >>> with TemporaryDirectory() as folder:
    ...     write_jobs(JobTable((Job("a", 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve),)), Path(folder, "jobs.csv"))
    ...     [job.name for job in read_jobs(Path(folder, "jobs.csv"))]
    ['a']
    """
    path = Path(path)
    frame = jobs_to_frame(jobs)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        write_parquet(frame, path)
        return
    for name in frame.select_dtypes("datetimetz"):
        frame[name] = [
            None if stamp != stamp else stamp.isoformat() for stamp in frame[name]
        ]
    if suffix == ".csv":
        for name in frame.columns.intersection(["Ns", "Ps", "Os", "sizes"]):
            frame[name] = [
                json.dumps(values) if isinstance(values, list) else None
                for values in frame[name]
            ]
        frame.to_csv(path, index=False)
    elif suffix == ".jsonl":
        # Not DataFrame.to_json: it rounds to 10 decimals.
        records = (
            frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
        )
        path.write_text(
            "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        )
    else:
        raise InputError(
            "a job table is written as .parquet, .csv or .jsonl", file=path
        )
