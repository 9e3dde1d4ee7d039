"""Running sums without drift."""

from __future__ import annotations

import math


class ExactSum:
    """A sum of floats whose terms come and go: always the correctly rounded sum of the present terms.

    The sum is kept as floats that do not overlap (Shewchuk 1997, "Adaptive precision floating-point arithmetic", the
    method of `math.fsum`), so that a term added and later subtracted leaves no error.

    Attributes
    ----------
    value
        The sum.

    Examples
    --------
    >>> total = ExactSum()
    >>> for term in (0.1, 1e20, -1e20, -0.1):
    ...     total.add(term)
    >>> total.value
    0.0
    """

    __slots__ = ("_parts", "value")

    def __init__(self) -> None:
        self._parts: list[float] = []
        self.value = 0.0

    def add(self, term: float) -> None:
        """Add a finite term, or subtract one by its negative."""
        parts = []
        for part in self._parts:
            if abs(term) < abs(part):
                term, part = part, term
            high = term + part
            low = part - (high - term)
            if low:
                parts.append(low)
            term = high
        if term:
            parts.append(term)
        self._parts = parts
        self.value = math.fsum(parts)
