"""Numbers and durations as people read them."""

from __future__ import annotations


def three_digits(value: float) -> str:
    """Write a number for people, with three digits, or as a whole number from 1,000 on.

    >>> three_digits(0.3051), three_digits(6219.4)
    ('0.305', '6,219')
    """
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Write a duration for people, in days from two on, else in the largest unit that it reaches.

    >>> duration(90), duration(129_600), duration(1_209_600), duration(0.25)
    ('1.5 min', '36 h', '14 days', '0.25 s')
    """
    for size, since, unit in ((86_400, 2, "days"), (3_600, 1, "h"), (60, 1, "min")):
        if seconds >= since * size:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds)} s"
