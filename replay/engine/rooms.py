"""Free units by node, for nodes with several units."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import TypeAlias

NodeUnits: TypeAlias = list[tuple[int, int]]
"""Numbers of units per node: (node, units)."""


class Rooms:
    """The free units of each node, and the nodes by number of free units: the best fit needs no search.

    Parameters
    ----------
    units_per_node
        Units of a node; unit u lies on node u // units_per_node.
    """

    def __init__(self, units_per_node: int) -> None:
        self._per = units_per_node
        self._free: dict[int, int] = {}  # node -> its free units, as bits
        self._with: list[list[int]] = [[] for _ in range(units_per_node + 1)]  # so many free units: nodes, ascending
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def copy(self) -> Rooms:
        """An independent copy."""
        other = Rooms(self._per)
        other._free, other._count = self._free.copy(), self._count
        other._with = [nodes.copy() for nodes in self._with]
        return other

    def by_node(self) -> dict[int, int]:
        """Number of free units of each node with any."""
        return {node: free.bit_count() for node, free in self._free.items()}

    def add(self, unit: int, since: int = 0) -> None:
        """A unit becomes free."""
        node, place = divmod(unit, self._per)
        self._set(node, self._free.get(node, 0) | 1 << place)

    def discard(self, unit: int) -> None:
        """A unit is not free any more."""
        node, place = divmod(unit, self._per)
        self._set(node, self._free.get(node, 0) & ~(1 << place))

    def take(self, node: int, count: int) -> list[int]:
        """Remove and return this many free units of a node, the lowest numbers."""
        free = self._free[node]
        units = []
        for _ in range(count):
            lowest = free & -free
            units.append(node * self._per + lowest.bit_length() - 1)
            free ^= lowest
        self._set(node, free)
        return units

    def consolidated(self, units: int) -> NodeUnits | None:
        """Whole nodes, and the remainder on the fullest node with room; None when they are not available."""
        full_nodes, rest = divmod(units, self._per)
        chosen = [(node, self._per) for node in self._with[self._per][:full_nodes]]
        if len(chosen) < full_nodes:
            return None
        if rest:
            node = self._fitting(rest, {node for node, _ in chosen})
            if node is None:
                return None
            chosen.append((node, rest))
        return chosen

    def scattered(self, units: int, near: Iterable[int]) -> NodeUnits:
        """On few nodes: those of the units `near`, most of them first; then the emptiest, the rest where it fits best.

        At least that many units must be free.
        """
        own: dict[int, int] = {}
        for unit in near:
            own[unit // self._per] = own.get(unit // self._per, 0) + 1
        room = {node: self._free.get(node, 0).bit_count() for node in own}
        order = sorted((node for node in own if room[node]), key=lambda node: (-own[node], -room[node], node))
        chosen = []
        for node in order:
            chosen.append((node, min(units, room[node])))
            units -= chosen[-1][1]
            if not units:
                return chosen
        seen = set(own)
        for free in range(self._per, 0, -1):
            for node in self._with[free]:
                if node in seen:
                    continue
                fitting = self._fitting(units, seen)
                if fitting is not None:
                    return [*chosen, (fitting, units)]
                chosen.append((node, free))
                seen.add(node)
                units -= free
        return chosen

    def _fitting(self, units: int, but: set[int]) -> int | None:
        """The fullest node with enough room."""
        for free in range(units, self._per + 1):
            for node in self._with[free]:
                if node not in but:
                    return node
        return None

    def _set(self, node: int, free: int) -> None:
        before = self._free.get(node, 0)
        if free == before:
            return
        old, new = before.bit_count(), free.bit_count()
        if old:
            del self._with[old][bisect_left(self._with[old], node)]
        if new:
            insort(self._with[new], node)
            self._free[node] = free
        else:
            del self._free[node]
        self._count += new - old
