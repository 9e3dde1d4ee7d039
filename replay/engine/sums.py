"""Running sums without drift."""

from __future__ import annotations

from math import fsum

# Terms that may wait to be made few again: adding them up takes as long as a step of Python.
_MANY = 24


class ExactSum:
    """A sum of floats whose terms come and go: always the correctly rounded sum of the present terms.

    The latest terms are kept as they came, and `math.fsum` adds them up exactly. When there are many they are replaced
    by few that have the same sum: its rounded value, what that lacks, what this lacks in turn, and so on.

    Attributes
    ----------
    value
        The sum.

    Examples
    --------
    >>> total = ExactSum()
    >>> total.add(0.1)
    >>> total.change(0.1, 1e20)
    >>> total.change(1e20, 0.25)
    >>> total.value
    0.25
    """

    __slots__ = ("_terms", "value")

    def __init__(self) -> None:
        self._terms: list[float] = []
        self.value = 0.0

    def add(self, term: float) -> None:
        """Add a finite term."""
        self.change(0.0, term)

    def change(self, before: float, after: float) -> None:
        """A term has become another one."""
        terms = self._terms
        terms.append(-before)
        terms.append(after)
        if len(terms) > _MANY:
            self._make_few()
        self.value = fsum(self._terms)

    def _make_few(self) -> None:
        few: list[float] = []
        while rest := fsum(self._terms):
            few.append(rest)
            self._terms.append(-rest)
        self._terms = few
