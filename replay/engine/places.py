"""Tentative bookkeeping of free units, and which of them a job should get: consolidated on the fewest nodes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import islice

from bft.replay.engine.free_units import FreeUnits
from bft.replay.engine.rooms import Rooms

# Larger than any unit, so that dividing by it leaves the unit as remainder.
_NO_KEYS = 2**62


class Places:
    """Free units that can be handed out and taken back without changing anything else.

    Parameters
    ----------
    free
        The free units, in the order of preference; if a unit is a whole node, they are handed out in this order.
    units_per_node
        Units of a node; unit u lies on node u // units_per_node.
    """

    def __init__(self, free: Iterable[int] | FreeUnits | Rooms, units_per_node: int = 1) -> None:
        self._per = units_per_node
        # If a unit is a node: the order, of which the first `_next` are taken, and units given back since.
        self._line, self._modulus, self._next = array("q"), _NO_KEYS, 0
        self._back: list[int] = []
        self._rooms = Rooms(units_per_node)
        if isinstance(free, FreeUnits):
            self._line, self._modulus = free.line(), free.modulus
        elif isinstance(free, Rooms):
            self._rooms = free.copy()
        elif units_per_node == 1:
            self._line = array("q", free)
        else:
            self.give_back(free)

    def __len__(self) -> int:
        if self._per == 1:
            return len(self._back) + len(self._line) - self._next
        return len(self._rooms)

    def take(self, units: int, *, spread: bool = False, near: Iterable[int] = ()) -> tuple[int, ...] | None:
        """Remove and return this many free units; None, without removing any, when they are not available.

        Parameters
        ----------
        units
            How many, at least 1.
        spread
            False: consolidated. A job that fits on one node gets the fullest node with room; a larger one gets
            whole free nodes and the remainder on the fullest other node with room. True: any units, on as
            few nodes as possible.
        near
            Units that the job already holds: `spread` fills their nodes first.
        """
        if units > len(self):
            return None
        if self._per == 1:
            back = [self._back.pop() for _ in range(min(units, len(self._back)))]
            begin, self._next = self._next, self._next + units - len(back)
            return (*back, *(key % self._modulus for key in self._line[begin : self._next]))
        nodes = self._rooms.scattered(units, near) if spread else self._rooms.consolidated(units)
        if nodes is None:
            return None
        return tuple(unit for node, count in nodes for unit in self._rooms.take(node, count))

    def give_back(self, units: Iterable[int]) -> None:
        """Units become free again; they are handed out before others."""
        if self._per == 1:
            self._back.extend(units)
        else:
            for unit in units:
                self._rooms.add(unit)

    def by_node(self) -> dict[int, int]:
        """Free units of each node that has any; where a unit is a whole node, in the order of handing out."""
        if self._per > 1:
            return self._rooms.by_node()
        left = (key % self._modulus for key in islice(self._line, self._next, None))
        return dict.fromkeys([*reversed(self._back), *left], 1)
