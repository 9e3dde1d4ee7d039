"""One tolerance for numbers that would be equal if arithmetic were exact.

A product, quotient or interpolation in doubles is off by about 1e-16 of its value, the sum of a long replay by up to
1e-13. Measured rates and times differ by far more than 1e-12. So what differs by less counts as equal wherever a
threshold meets a computed number: otherwise 0.8 x 564 would exceed 564 x 8 / 10, and a job would ask for a unit more.
"""

from __future__ import annotations

import math

from bft.models.tolerances import DIGITS, EQUAL


def rounded(value: float) -> float:
    """Return a number with the digits that count, so that numbers which should be equal compare equal.

    >>> 0.1 + 0.2 == 0.3, rounded(0.1 + 0.2) == rounded(0.3)
    (False, True)
    """
    return float(f"{value:.{DIGITS}g}")


def lowered(threshold: float) -> float:
    """Return the least number that reaches a threshold >= 0 but for rounding.

    >>> 564 * 8 / 10 >= 0.8 * 564, 564 * 8 / 10 >= lowered(0.8 * 564)
    (False, True)
    """
    return threshold * (1 - EQUAL)


def whole_above(value: float) -> int:
    """Return the smallest whole number that reaches a number >= 0 but for rounding.

    >>> math.ceil(2.1 / 0.7), whole_above(2.1 / 0.7)
    (4, 3)
    """
    return math.ceil(lowered(value))
