"""Tables that only grow, stored by column: a few bytes per cell."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

# Number of rows that are moved into columns at a time.
ROWS = 256


class Columns:
    """A table of numbers and texts; rows are added at the end.

    Parameters
    ----------
    kinds
        Type of each column by its name, as `array` names them: `i` and `q` for whole numbers of 32 and 64 bits, `d` for
        floats; empty for texts.

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
        self._rows: list[Sequence[Any]] = []  # the latest, not yet put into columns

    def __len__(self) -> int:
        return len(self._first) + len(self._rows)

    def append(self, row: Sequence[Any]) -> None:
        """Add a row: one value per column, in order."""
        self._rows.append(row)
        if len(self._rows) == ROWS:
            self._settle()

    def since(self, row: int) -> dict[str, list[Any]]:
        """The rows from this one on, by column, as JSON values."""
        self._settle()
        return {name: list(column[row:]) for name, column in self._columns.items()}

    def restore(self, columns: Mapping[str, list[Any]]) -> None:
        """Replace all rows by these."""
        self._rows.clear()
        for name, column in self._columns.items():
            column[:] = array(column.typecode, columns[name]) if isinstance(column, array) else columns[name]

    def arrays(self) -> dict[str, Any]:
        """Columns by name: numbers as arrays on the same memory, so no row can be added while one is in use."""
        self._settle()
        return {
            name: np.asarray(memoryview(column)) if isinstance(column, array) else column
            for name, column in self._columns.items()
        }

    def _settle(self) -> None:
        if self._rows:
            for column, values in zip(self._columns.values(), zip(*self._rows, strict=True), strict=True):
                column.extend(values)
            self._rows.clear()
