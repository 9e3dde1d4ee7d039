"""The holders of each idle unit: none, one job, or two that share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bft.replay.engine.free_units import FreeUnits
from bft.replay.engine.places import Places
from bft.replay.engine.rooms import Rooms

NOBODY = -1  # first holder of a free unit
BUSY = -2  # of a unit that is not idle


class Holdings:
    """The idle units of a machine and their holders, by number of unit and of job.

    Parameters
    ----------
    units
        Units of the machine.
    units_per_node
        Units of a node; free ones are then given near each other.

    Attributes
    ----------
    idle, used
        Idle units, and how many of them are held.
    """

    def __init__(self, units: int, units_per_node: int = 1) -> None:
        self.idle = self.used = 0
        self.units_per_node = units_per_node
        self._first = [BUSY] * units
        self._second: dict[int, int] = {}  # only units that two jobs hold
        self._since = [0] * units  # event at which a unit turned idle
        self._clear()

    def _clear(self) -> None:
        """A machine without idle units."""
        self._line = FreeUnits(len(self) if self.units_per_node == 1 else 0)
        self._rooms = Rooms(self.units_per_node)
        self._idle_on = [0] * (len(self) // self.units_per_node)

    def state(self) -> dict[str, Any]:
        """The complete state, for a checkpoint."""
        return {"first": self._first, "second": list(self._second.items()), "since": self._since}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        self._first, self._since = list(state["first"]), list(state["since"])
        self._second = dict(state["second"])
        self._clear()
        for unit, holder in enumerate(self._first):
            if holder == NOBODY:
                self._free_again(unit)
            if holder != BUSY:
                self._idle_on[unit // self.units_per_node] += 1
        self.idle = sum(self._idle_on)
        self.used = sum(holder >= 0 for holder in self._first)

    def _free_again(self, unit: int) -> None:
        if self.units_per_node == 1:
            self._line.add(unit, self._since[unit])
        else:
            self._rooms.add(unit)

    def _free_no_more(self, unit: int) -> None:
        if self.units_per_node == 1:
            self._line.discard(unit)
        else:
            self._rooms.discard(unit)

    @property
    def free(self) -> int:
        """Idle units without a holder."""
        return self.idle - self.used

    def __len__(self) -> int:
        return len(self._first)

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

    def is_idle(self, unit: int) -> bool:
        """Whether a unit is idle, held by jobs or not."""
        return self._first[unit] != BUSY

    def idle_by_node(self) -> list[int]:
        """How many units of each node are idle, held by jobs or not."""
        return self._idle_on.copy()

    def places(self) -> Places:
        """A copy of the free units, to be handed out tentatively; nothing here changes."""
        return Places(self._line if self.units_per_node == 1 else self._rooms, self.units_per_node)

    def join(self, units: Iterable[int], event: int) -> None:
        """Units turn idle."""
        for unit in units:
            if self._first[unit] == BUSY:
                self.idle += 1
                self._idle_on[unit // self.units_per_node] += 1
            self._first[unit] = NOBODY
            self._since[unit] = event
            self._free_again(unit)

    def take_back(self, units: Sequence[int]) -> dict[int, set[int]]:
        """Units are no longer idle; return the units that each job loses."""
        first = self._first
        lost: dict[int, set[int]] = {}
        for unit in units:
            holder = first[unit]
            first[unit] = BUSY
            self._idle_on[unit // self.units_per_node] -= 1
            if holder == NOBODY:
                self._free_no_more(unit)
                continue
            self.used -= 1
            lost.setdefault(holder, set()).add(unit)
            if unit in self._second:
                lost.setdefault(self._second.pop(unit), set()).add(unit)
        self.idle -= len(units)
        return lost

    def release(self, job: int, units: Iterable[int]) -> None:
        """A job gives units back; those without another holder become free."""
        first = self._first
        for unit in units:
            second = self._second.pop(unit, None)
            if second is None:
                first[unit] = NOBODY
                self.used -= 1
                self._free_again(unit)
            elif first[unit] == job:
                first[unit] = second

    def take(self, count: int, near: Sequence[int] = ()) -> list[int]:
        """Take units without a holder; they are no longer free, so they must be granted.

        The units idle longest come first; on nodes with several units, those near each other and near `near`.
        """
        if self.units_per_node == 1:
            return [self._line.take() for _ in range(count)]
        if count > self.free:
            raise IndexError(f"{count} units wanted of {self.free} free ones")
        nodes = self._rooms.scattered(count, near) if count else []
        return [unit for node, of in nodes for unit in self._rooms.take(node, of)]

    def newest(self, held: Sequence[int], count: int) -> list[int]:
        """Which of a job's units (oldest first) to release: the newest, on the nodes where it has the fewest units."""
        if self.units_per_node == 1:
            return list(held[len(held) - count :])
        on: dict[int, int] = {}
        for unit in held:
            on[unit // self.units_per_node] = on.get(unit // self.units_per_node, 0) + 1
        order = sorted(range(len(held)), key=lambda index: (on[held[index] // self.units_per_node], -index))
        return [held[index] for index in order[:count]]

    def grant(self, job: int, units: Iterable[int]) -> None:
        """A job gets units: free or taken ones, or units that one other job holds."""
        first = self._first
        for unit in units:
            if first[unit] < 0:
                first[unit] = job
                self.used += 1
                self._free_no_more(unit)
            else:
                self._second[unit] = job
