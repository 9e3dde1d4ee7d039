"""Dates and times as users write them in options: ISO 8601, as everything else reads differently in two countries."""

from __future__ import annotations

import re

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)? ?(?:[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
# Seconds since 1970, from 1973 to 2286.
_EPOCH = re.compile(r"\d{9,10}(?:\.\d{1,9})?", re.ASCII)


def strict_instant(text: str) -> str | None:
    """Return a date, or a date and time, as a date and time in ISO 8601 or seconds since 1970; None for other texts.

    Parameters
    ----------
    text
        2021-02-10, 2021-02-10T20:21 with seconds, a fraction and a zone or without, or seconds since 1970.

    Examples
    --------
    >>> strict_instant("2021-02-10"), strict_instant("2021-02-10 20:21:15+01:00"), strict_instant("10/02/2021")
    ('2021-02-10T00:00:00', '2021-02-10 20:21:15+01:00', None)
    """
    text = text.strip()
    if _DAY.fullmatch(text):
        return f"{text}T00:00:00"
    return text if _INSTANT.fullmatch(text) or _EPOCH.fullmatch(text) else None
