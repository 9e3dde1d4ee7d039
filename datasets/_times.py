"""Instants as users write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bft.models.errors import InputError
from bft.models.instants import strict_instant

if TYPE_CHECKING:
    import pandas as pd


def utc(when: str | pd.Timestamp) -> pd.Timestamp:
    """Read an instant as `strict_instant` has it; UTC if it states no time zone."""
    import pandas as pd

    try:
        text = strict_instant(when) if isinstance(when, str) else None
        if isinstance(when, str) and text is None:
            raise ValueError("no time")
        is_epoch = text is not None and "-" not in text
        stamp = (
            pd.Timestamp(float(text), unit="s")
            if text and is_epoch
            else pd.Timestamp(text or when)
        )
    except ValueError as error:
        raise InputError(
            f"{when!r} is not a time", hint="write it as 2021-02-10T08:00:00"
        ) from error
    return stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")
