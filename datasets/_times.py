"""Instants as users write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bft.models.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def utc(when: str | pd.Timestamp) -> pd.Timestamp:
    """Read an instant; UTC if it states no time zone."""
    import pandas as pd

    try:
        stamp = pd.Timestamp(when)
        if pd.isna(stamp):  # "" and "NaT" are read without an error
            raise ValueError("no time")
    except ValueError as error:
        raise InputError(f"{when!r} is not a time", hint="write it as 2021-02-10T08:00:00") from error
    return stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
