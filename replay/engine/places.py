"""Free units by node, and which of them a job should get: consolidated on the fewest nodes (DESIGN §2)."""

from __future__ import annotations

from collections.abc import Iterable


class Places:
    """Free units that can be handed out and taken back without touching anything else.

    Parameters
    ----------
    free
        The free units, those to be given first ahead: where a unit is a whole node, that is the order of handing out.
    units_per_node
        Units of a node; unit u lies on node u // units_per_node.
    """

    def __init__(self, free: Iterable[int], units_per_node: int = 1) -> None:
        self._per = units_per_node
        self._line: list[int] = []  # one unit a node: next one last
        self._on: dict[int, list[int]] = {}  # several: node -> its free units, lowest last
        if units_per_node == 1:
            self._line = list(free)[::-1]
            self._count = len(self._line)
            return
        for unit in sorted(free, reverse=True):
            self._on.setdefault(unit // units_per_node, []).append(unit)
        self._count = sum(map(len, self._on.values()))

    def __len__(self) -> int:
        return self._count

    def take(self, units: int, *, spread: bool = False, near: Iterable[int] = ()) -> tuple[int, ...] | None:
        """Remove and return so many free units, None (and nothing is removed) when they are not to be had.

        Parameters
        ----------
        units
            How many, at least 1.
        spread
            False: consolidated. What fits on one node goes to the node with the least room that suffices; more takes
            whole free nodes and the remainder on the fullest other node that suffices. True: any units will do, on as
            few nodes as possible.
        near
            Units that the job has already: `spread` fills up their nodes first.
        """
        if units > self._count:
            return None
        if self._per == 1:
            taken = tuple(self._line[: -units - 1 : -1])
            del self._line[len(self._line) - units :]
            self._count -= units
            return taken
        nodes = self._scattered(units, near) if spread else self._consolidated(units)
        if nodes is None:
            return None
        return tuple(unit for node, count in nodes for unit in self._remove(node, count))

    def give_back(self, units: Iterable[int]) -> None:
        """Units are free again; they are handed out before others."""
        for unit in units:
            self._count += 1
            if self._per == 1:
                self._line.append(unit)
            else:
                on = self._on.setdefault(unit // self._per, [])
                on.append(unit)
                on.sort(reverse=True)

    def by_node(self) -> dict[int, int]:
        """Free units of each node that has any."""
        if self._per == 1:
            return dict.fromkeys(self._line, 1)
        return {node: len(free) for node, free in self._on.items() if free}

    def _remove(self, node: int, count: int) -> list[int]:
        self._count -= count
        on = self._on[node]
        return [on.pop() for _ in range(count)]

    def _consolidated(self, units: int) -> list[tuple[int, int]] | None:
        whole, rest = divmod(units, self._per)
        chosen: list[tuple[int, int]] = []
        if whole:
            chosen = [(node, self._per) for node in sorted(self._on) if len(self._on[node]) == self._per][:whole]
            if len(chosen) < whole:
                return None
        if rest:
            taken = {node for node, _ in chosen}
            room = [(len(free), node) for node, free in self._on.items() if len(free) >= rest and node not in taken]
            if not room:
                return None
            chosen.append((min(room)[1], rest))
        return chosen

    def _scattered(self, units: int, near: Iterable[int]) -> list[tuple[int, int]]:
        own: dict[int, int] = {}
        for unit in near:
            own[unit // self._per] = own.get(unit // self._per, 0) + 1
        # Nodes where the job is already, most of it first; then the emptiest, to need few.
        on = self.by_node()
        order = sorted(on, key=lambda node: (-own.get(node, 0), -on[node], node))
        chosen: list[tuple[int, int]] = []
        for at, node in enumerate(order):
            if node not in own:  # the remainder goes where the least room suffices
                fits = [(on[other], other) for other in order[at:] if on[other] >= units]
                if fits:
                    chosen.append((min(fits)[1], units))
                    return chosen
            count = min(units, on[node])
            chosen.append((node, count))
            units -= count
            if not units:
                break
        return chosen
