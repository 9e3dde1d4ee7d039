"""Tables that only grow, stored by column: a few bytes per cell."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Rows that may wait to be put into columns together.
ROWS = 256


class Columns:
    """A table of numbers and texts; rows are added at the end.

    Parameters
    ----------
    kinds
        Type of each column by its name, as `array` names them: `i` and `q` for whole numbers of 32 and 64 bits, `d` for
        floats; empty for texts.

    Attributes
    ----------
    append
        Add a row: one value per column, in their order. It waits in a list, ten times as large, until `settle`.
    latest
        The rows that wait; whoever adds them calls `settle` when there are `ROWS`.

    Examples
    --------
    >>> table = Columns({"when": "q", "what": ""})
    >>> for row in ((5, "join"), (7, "leave"), (8, "join")):
    ...     table.append(row)
    >>> len(table), table.since(1)
    (3, {'when': [7, 8], 'what': ['leave', 'join']})
    """

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._columns: dict[str, Any] = {name: array(kind) if kind else [] for name, kind in kinds.items()}
        self._first = next(iter(self._columns.values()))
        self.latest: list[Sequence[Any]] = []
        self.append: Callable[[Sequence[Any]], None] = self.latest.append

    def __len__(self) -> int:
        return len(self._first) + len(self.latest)

    def settle(self) -> None:
        """Put the latest rows into columns."""
        if self.latest:
            for column, values in zip(self._columns.values(), zip(*self.latest, strict=True), strict=True):
                column.extend(values)
            self.latest.clear()

    def since(self, row: int) -> dict[str, list[Any]]:
        """The rows from this one on, by column, as JSON values."""
        self.settle()
        return {name: list(column[row:]) for name, column in self._columns.items()}

    def restore(self, columns: Mapping[str, list[Any]]) -> None:
        """Replace all rows by these."""
        self.latest.clear()
        for name, column in self._columns.items():
            column[:] = array(column.typecode, columns[name]) if isinstance(column, array) else columns[name]

    def hand_over(self) -> dict[str, Any]:
        """Columns by name as `arrays` has them, for whoever changes them: the table is empty afterwards."""
        arrays = self.arrays()
        for name, column in self._columns.items():
            self._columns[name] = array(column.typecode) if isinstance(column, array) else []
        self._first = next(iter(self._columns.values()))
        return arrays

    def arrays(self) -> dict[str, Any]:
        """Columns by name: numbers as arrays on the same memory, so no row can be added while one is in use."""
        self.settle()
        return {
            name: np.asarray(memoryview(column)) if isinstance(column, array) else column
            for name, column in self._columns.items()
        }
