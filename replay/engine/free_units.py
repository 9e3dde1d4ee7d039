"""The order in which free units are taken, if a unit is a whole node."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator


class FreeUnits:
    """The free units of a machine, those idle longest first.

    Idle fragments have a decreasing hazard: a node that has been idle for long stays idle longer (docs/decisions/0003),
    so jobs take the oldest and release the newest. They are kept as one sorted array of (event since which a unit is
    idle)
    x (units of the machine) + unit, so that a copy for a policy is one copy of memory.

    Parameters
    ----------
    units
        Number of units of the machine; unit ids are 0 ... units - 1.
    """

    def __init__(self, units: int) -> None:
        self.modulus = max(units, 1)
        self._key: list[int | None] = [None] * units
        self._line = array("q")

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, unit: int) -> bool:
        return self._key[unit] is not None

    def __iter__(self) -> Iterator[int]:
        return (unit for unit, key in enumerate(self._key) if key is not None)

    def add(self, unit: int, since: int) -> None:
        """Add a unit that has been idle since event number `since`."""
        if self._key[unit] is not None:
            self.discard(unit)
        key = self._key[unit] = since * self.modulus + unit
        insort(self._line, key)

    def discard(self, unit: int) -> None:
        """Remove a unit, if it is free."""
        key = self._key[unit]
        if key is not None:
            self._key[unit] = None
            del self._line[bisect_left(self._line, key)]

    def take(self) -> int:
        """Remove and return the unit that has been idle longest; IndexError when none is free."""
        unit = self._line.pop(0) % self.modulus
        self._key[unit] = None
        return unit

    def line(self) -> array[int]:
        """A copy of the keys, ascending: each modulo `modulus` is a unit."""
        return self._line[:]
