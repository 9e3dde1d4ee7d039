"""Reading a run directory back: files that others may have copied, cut or changed are checked here, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError, read_table
from bft.models.limited_reading import read_json
from bft.models.tables import read_blocks
from bft.replay.engine.ledger import BOOKS
from bft.replay.results.run_directory import (
    ALLOCATIONS,
    FORMAT,
    JOBS,
    STEPS,
    SUMMARY,
    UNUSED,
)

if TYPE_CHECKING:
    import pandas as pd

STEPS_AT_ONCE = 2**18
HINT = "copy the run again, or replay it again"
# What the cells of a column are; those "or missing" may be empty.
ColumnKind: TypeAlias = Literal[
    "text", "instant", "instant or missing", "number", "number or missing"
]
_SPANS: dict[str, ColumnKind] = {
    "first_unit": "number",
    "last_unit": "number",
    "start": "instant",
    "end": "instant",
}
# Kinds of the columns that are read back, by file and name.
COLUMNS: dict[str, dict[str, ColumnKind]] = {
    STEPS: {
        "time": "instant",
        "idle": "number",
        "used": "number",
        "progress": "number",
        **{f"{book}_cost": "number" for book in BOOKS},
        "objective": "number or missing",
        "bound": "number or missing",
    },
    JOBS: {
        "name": "text",
        "submit": "instant",
        "start": "instant or missing",
        "finish": "instant or missing",
        "queueing_s": "number or missing",
        "jct_s": "number or missing",
        "preemptions": "number",
        "rescales": "number",
        "mean_units": "number",
        "units_asked": "number or missing",
        "unit_seconds": "number",
        "work": "number",
        "total_work": "number",
        **{f"lost_to_{book}": "number" for book in BOOKS},
    },
    ALLOCATIONS: {"job": "text", **_SPANS},
    UNUSED: _SPANS,
}


@contextmanager
def damage_named(file: Path) -> Iterator[None]:
    """Guard a block that uses values of a JSON file: a missing or wrong one is reported as damage to the file.

    A summary has some hundred values. They are checked when they are used, tables when they are read.
    """
    try:
        yield
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"damaged: it lacks {error}", file=file, hint=HINT) from error
    except (
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
    ) as error:
        what = f"damaged: it holds another kind of value: {error}"
        raise InputError(what, file=file, hint=HINT) from error


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a run directory.

    Raises
    ------
    InputError
        When `folder` is not a run directory, or its summary cannot be read.
    """
    path = folder / SUMMARY
    summary = read_json(path) if path.exists() else None
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        raise InputError("is not a run directory", file=folder)
    for part in ("metrics", "options", "inputs"):
        if not isinstance(summary.get(part), dict):
            raise InputError(f"damaged: it lacks {part!r}", file=path, hint=HINT)
    for part in ("trace", "jobs", "digests_sha256"):
        if not isinstance(summary["inputs"].get(part, {}), dict):
            what = f"damaged: it holds another kind of value: inputs.{part}"
            raise InputError(what, file=path, hint=HINT)
    return summary


def read_part(folder: Path, name: str) -> pd.DataFrame:
    """The steps, jobs or allocations of a run, with the kinds of their columns checked.

    Raises
    ------
    InputError
        When the file is missing or damaged, lacks a column of `COLUMNS`, or when a value is not of the column's kind.
    """
    import pandas as pd

    if name != STEPS:
        return _checked(read_table(folder / name), folder / name)
    # There are many in a long run, of which Arrow's copy would take as much memory again.
    parts = list(read_part_in_blocks(folder, name, STEPS_AT_ONCE))
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def read_part_in_blocks(
    folder: Path, name: str, rows: int | None = None
) -> Iterator[pd.DataFrame]:
    """Yield the same as `read_part` in blocks of rows, one of which is in memory."""
    path, count = folder / name, 0
    for frame in read_blocks(path, rows):
        try:
            yield _checked(frame, path)
        except InputError as error:
            if error.row is not None:
                error.row += count
            raise
        count += len(frame)


def job_numbers(frame: pd.DataFrame, number: Callable[[str], int]) -> NDArray[np.int64]:
    """Return the number of each row's job; `number` is asked once for each name."""
    jobs = frame["job"].astype("category").cat
    known = [number(name) for name in jobs.categories]
    return np.array(known, dtype=np.int64)[jobs.codes.to_numpy()]


def _checked(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    for column, kind in COLUMNS[path.name].items():
        if column not in frame.columns:
            what = f"damaged: it has no column {column}"
            raise InputError(what, file=path, hint=HINT)
        _check_column(frame[column], kind, path)
    return frame


def _check_column(values: pd.Series[Any], kind: ColumnKind, path: Path) -> None:
    column = str(values.name)
    expected = f"{kind.partition(' ')[0]}s"
    if not _has_dtype(values, kind):
        what = f"expected {expected}, not {values.dtype}"
        raise InputError(what, file=path, column=column, hint=HINT)
    if kind.startswith("instant"):
        try:
            values.astype("datetime64[ns, UTC]")
        except (ValueError, OverflowError) as error:
            what = f"expected instants from 1678 to 2261: {error}"
            raise InputError(what, file=path, column=column, hint=HINT) from error
    if kind == "instant":
        bad = values.isna().to_numpy()
    elif kind == "number":
        bad = ~np.isfinite(values.to_numpy(dtype=np.float64, na_value=np.nan))
    else:
        return
    if bad.any():
        what = f"a value is missing or not finite, expected {expected}"
        row = int(bad.argmax()) + 1
        raise InputError(what, file=path, row=row, column=column, hint=HINT)


def _has_dtype(values: pd.Series[Any], kind: ColumnKind) -> bool:
    import pandas as pd

    if kind.startswith("instant"):
        return isinstance(values.dtype, pd.DatetimeTZDtype)
    if kind.startswith("number"):
        number = pd.api.types.is_numeric_dtype(values.dtype)
        return number and not pd.api.types.is_bool_dtype(values.dtype)
    names = values.cat.categories if values.dtype == "category" else values
    return all(isinstance(name, str) for name in names)
