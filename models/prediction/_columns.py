"""Columns of a frame as checked arrays, for the models that learn from tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bft.models.curves import FloatArray
from bft.models.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def numbers(frame: pd.DataFrame, column: str, source: str = "", *, least: float = -np.inf) -> FloatArray:
    """A column as finite numbers of at least `least`: float64 of shape (rows,)."""
    import pandas as pd

    try:
        values = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    except OverflowError as error:  # whole numbers that no float holds
        raise InputError(f"expected numbers: {error}", file=source or None, column=column) from error
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= least)))
    if len(wrong):
        found = frame[column].tolist()[wrong[0]]
        bound = "" if least == -np.inf else f" >= {least:g}"
        raise InputError(
            f"expected a finite number{bound}, not {found!r}", file=source or None, row=int(wrong[0]) + 1, column=column
        )
    return values


def texts(frame: pd.DataFrame, column: str, source: str = "", *, required: bool = False) -> NDArray[np.object_]:
    """A column as strings, empty where it has none: shape (rows,); with `required` none may be empty."""
    values = frame[column]
    result: NDArray[np.object_] = values.astype(object).where(values.notna(), "").map(str).to_numpy(dtype=object)
    if required and (empty := np.flatnonzero(result == "")).size:
        raise InputError("expected a name, it is empty", file=source or None, row=int(empty[0]) + 1, column=column)
    return result


def seconds(frame: pd.DataFrame, column: str, source: str = "") -> FloatArray:
    """A column of instants as seconds since 1970 UTC, or numbers as they are: float64 of shape (rows,).

    Whoever counts seconds from elsewhere should count from a midnight, best a Thursday's as 1970 does, so that hours
    and weekdays are right.
    """
    import pandas as pd

    values = frame[column]
    if pd.api.types.is_numeric_dtype(values):
        return numbers(frame, column, source)
    stamps = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
    wrong = np.flatnonzero(stamps.isna().to_numpy())
    if len(wrong):
        raise InputError(
            f"expected a date and time or seconds, not {values.tolist()[wrong[0]]!r}",
            file=source or None,
            row=int(wrong[0]) + 1,
            column=column,
        )
    return stamps.astype("datetime64[ns, UTC]").astype("int64").to_numpy() / 1e9
