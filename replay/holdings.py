"""Who holds which idle unit: nobody, one job, or two that share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bft.milp import FreeUnits

NOBODY = -1  # first holder of a free unit
BUSY = -2  # of a unit that is not idle


class Holdings:
    """The idle units of a machine and their holders, by number of unit and of job.

    Parameters
    ----------
    units
        Units of the machine.

    Attributes
    ----------
    idle
        Idle units.
    free
        Those that nobody holds.
    """

    def __init__(self, units: int) -> None:
        self.idle = 0
        self.free = FreeUnits(units)
        self._first = [BUSY] * units
        self._second: dict[int, int] = {}  # only units that two jobs hold
        self._since = [0] * units  # event at which a unit turned idle

    def state(self) -> dict[str, Any]:
        """All there is to know, for a checkpoint."""
        return {"first": self._first, "second": list(self._second.items()), "since": self._since}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` says."""
        self._first, self._since = list(state["first"]), list(state["since"])
        self._second = dict(state["second"])
        self.free = FreeUnits(len(self._first))
        for unit, holder in enumerate(self._first):
            if holder == NOBODY:
                self.free.add(unit, self._since[unit])
        self.idle = sum(holder != BUSY for holder in self._first)

    @property
    def used(self) -> int:
        """Units that somebody holds."""
        return self.idle - len(self.free)

    @property
    def shared(self) -> bool:
        """Whether any unit has two holders."""
        return bool(self._second)

    def holders(self, unit: int) -> tuple[int, ...]:
        """The jobs that hold a unit, ascending."""
        first, second = self._first[unit], self._second.get(unit)
        if second is not None:
            return (first, second) if first < second else (second, first)
        return () if first < 0 else (first,)

    def join(self, units: Iterable[int], event: int) -> None:
        """Units turn idle."""
        first, since, add = self._first, self._since, self.free.add
        before = len(self.free)
        for unit in units:
            first[unit] = NOBODY
            since[unit] = event
            add(unit, event)
        self.idle += len(self.free) - before

    def take_back(self, units: Sequence[int]) -> dict[int, set[int]]:
        """Units are no longer idle; return those that each job loses."""
        first, free = self._first, self.free
        lost: dict[int, set[int]] = {}
        for unit in units:
            holder = first[unit]
            first[unit] = BUSY
            if holder == NOBODY:
                free.discard(unit)
                continue
            lost.setdefault(holder, set()).add(unit)
            if unit in self._second:
                lost.setdefault(self._second.pop(unit), set()).add(unit)
        self.idle -= len(units)
        return lost

    def release(self, job: int, units: Iterable[int]) -> None:
        """A job gives units back; what nobody else holds becomes free."""
        first, since = self._first, self._since
        for unit in units:
            second = self._second.pop(unit, None)
            if second is None:
                first[unit] = NOBODY
                self.free.add(unit, since[unit])
            elif first[unit] == job:
                first[unit] = second

    def take(self, count: int) -> list[int]:
        """Units that nobody holds, those idle longest first; they are no longer free, so grant them."""
        return [self.free.take() for _ in range(count)]

    def grant(self, job: int, units: Iterable[int]) -> None:
        """A job gets units: free or taken ones, or such as one other job holds."""
        first, free = self._first, self.free
        for unit in units:
            if first[unit] < 0:
                first[unit] = job
                free.discard(unit)
            else:
                self._second[unit] = job
