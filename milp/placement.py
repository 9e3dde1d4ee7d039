"""Which unit is which, once the counts are decided (DESIGN §6): nobody migrates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush


def settle(current: Sequence[Sequence[int]], counts: Sequence[int], free: Iterable[int]) -> list[list[int]]:
    """Give each job its count: a shrinking job releases its newest units, a growing one takes free ones.

    Parameters
    ----------
    current
        Units of each job, oldest first.
    counts
        Units that each job shall have.
    free
        Units that nobody holds; the least number is taken first. Units released here are free too.

    Returns
    -------
    list of lists
        Units of each job, oldest first. Each is a prefix or an extension of what it was.
    """
    kept = [list(units[:n]) for units, n in zip(current, counts, strict=True)]
    pool = [*free, *(unit for units, n in zip(current, counts, strict=True) for unit in units[n:])]
    heapify(pool)
    for units, n in zip(kept, counts, strict=True):
        units.extend(heappop(pool) for _ in range(n - len(units)))
    return kept


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
        self._free[unit] = 1
        self._count += 1
        heappush(self._heap, since * self._units + unit)

    def discard(self, unit: int) -> None:
        """Remove a unit that was taken back."""
        self._count -= self._free[unit]
        self._free[unit] = 0

    def take(self) -> int:
        """Remove and return the unit that has been idle longest; IndexError when none is free."""
        while True:
            unit = heappop(self._heap) % self._units
            if self._free[unit]:
                self._free[unit] = 0
                self._count -= 1
                return unit
