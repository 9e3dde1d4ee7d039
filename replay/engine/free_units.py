"""Which free unit is taken next."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush


class FreeUnits:
    """The free units of a machine, those idle longest first.

    Idle fragments have a decreasing hazard: what has been idle long stays idle longer (docs/decisions/0003), so
    jobs take the oldest and release the newest. Entries of units that are no longer free stay behind and are skipped,
    so that every change costs O(log units).

    Parameters
    ----------
    units
        Number of units of the machine; unit ids are 0 ... units - 1.
    """

    def __init__(self, units: int) -> None:
        self._units = max(units, 1)
        self._free = bytearray(units)
        self._since = [0] * units
        self._heap: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, unit: int) -> bool:
        return bool(self._free[unit])

    def __iter__(self) -> Iterator[int]:
        return (unit for unit, free in enumerate(self._free) if free)

    def add(self, unit: int, since: int) -> None:
        """Add a unit that has been idle since event number `since`."""
        self._count += not self._free[unit]
        self._free[unit] = 1
        self._since[unit] = since
        heappush(self._heap, since * self._units + unit)

    def discard(self, unit: int) -> None:
        """Remove a unit that was taken back."""
        self._count -= self._free[unit]
        self._free[unit] = 0

    def take(self) -> int:
        """Remove and return the unit that has been idle longest; IndexError when none is free."""
        while True:
            since, unit = divmod(heappop(self._heap), self._units)
            if self._free[unit] and self._since[unit] == since:
                self._free[unit] = 0
                self._count -= 1
                return unit
