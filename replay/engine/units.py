"""The units of the machine: which are idle, which jobs hold them, and which free ones a job gets."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from bft.replay.engine.snapshot import NOT_STORED, StoredState
from bft.replay.trace.outlook import Outlook

# The lower bits of a key in `FreeList` are a node, the upper ones since when it is idle.
_NODE_BITS = 32
_NODE = (1 << _NODE_BITS) - 1


class FreeList:
    """Free units, in the order in which they are handed out.

    Idle fragments have a decreasing hazard: a node that has been idle for long stays idle longer (docs/decisions/0003),
    so where a unit is a node those idle longest come first. On nodes of several units those near each other do.

    Parameters
    ----------
    free
        Free units, the first ones first.
    units_per_node
        Units of a node; unit u lies on node u // units_per_node.
    """

    def __init__(self, free: Iterable[int] = (), units_per_node: int = 1) -> None:
        self._per = units_per_node
        self._free = bytearray()  # by unit, whether it is free
        # By number of free units: nodes, ascending, where a unit is a node with the event since which it is idle.
        self._nodes = [array("q") for _ in range(units_per_node + 1)]
        self._rooms: dict[int, int] = {}  # free units of nodes of several
        self._given_back = 0
        self._count = 0
        for place, unit in enumerate(free):
            self.add(unit, place)

    def __len__(self) -> int:
        return self._count

    def copy(self) -> FreeList:
        """Return an independent copy, to hand units out tentatively."""
        other = FreeList((), self._per)
        other._free, other._count = self._free[:], self._count
        other._nodes = [nodes[:] for nodes in self._nodes]
        other._rooms = self._rooms.copy()
        return other

    def by_node(self) -> dict[int, int]:
        """Return the number of free units of each node with any; nodes of one unit in the order of handing out."""
        return {
            key & _NODE: count for count, keys in enumerate(self._nodes) for key in keys
        }

    def free_nodes(self) -> list[int]:
        """Return the nodes of which every unit is free."""
        return [key & _NODE for key in self._nodes[self._per]]

    def add(self, unit: int, since: int = 0) -> None:
        """A unit becomes free that has been idle since event number `since`."""
        per = self._per
        if unit >= len(self._free):
            self._free.extend(bytes((unit // per + 1) * per - len(self._free)))
        if per == 1:
            insort(self._nodes[1], since << _NODE_BITS | unit)
        else:
            self._change_room(unit // per, 1)
        self._free[unit] = True
        self._count += 1

    def discard(self, unit: int, since: int = 0) -> None:
        """A unit that has been idle since event number `since` is not free any more, if it was."""
        if unit >= len(self._free) or not self._free[unit]:
            return
        if self._per == 1:
            nodes = self._nodes[1]
            del nodes[bisect_left(nodes, since << _NODE_BITS | unit)]
        else:
            self._change_room(unit // self._per, -1)
        self._free[unit] = False
        self._count -= 1

    def _change_room(self, node: int, more: int) -> None:
        """A node of several units has this many more free ones."""
        room = self._room(node)
        self._rooms[node] = room + more
        if room:
            nodes = self._nodes[room]
            del nodes[bisect_left(nodes, node)]
        if room + more:
            insort(self._nodes[room + more], node)

    def _room(self, node: int) -> int:
        """How many units of a node are free."""
        return self._rooms.get(node, 0)

    def give_back(self, units: Iterable[int]) -> None:
        """Units become free again; where a unit is a node, they are handed out before others, the last one first."""
        for unit in units:
            self._given_back -= 1
            self.add(unit, self._given_back)

    def take(
        self, units: int, *, spread: bool = False, near: Iterable[int] = ()
    ) -> tuple[int, ...] | None:
        """Remove and return this many free units; None, without removing any, when they are not available.

        Parameters
        ----------
        units
            How many.
        spread
            False: consolidated. A job that fits on one node gets the fullest node with room; a larger one gets
            whole free nodes and the remainder on the fullest other node with room. True: any units, on as
            few nodes as possible.
        near
            Units that the job already holds: `spread` fills their nodes first.
        """
        if spread and self._per > 1:
            chosen = self._scattered(units, near) if units <= len(self) else None
            return None if chosen is None else self._taken(chosen)
        full_nodes, rest = divmod(units, self._per)
        whole = self._nodes[self._per]
        nodes = [key & _NODE for key in whole[:full_nodes]]
        last = self._fullest(rest, set(nodes)) if rest else []
        if len(nodes) < full_nodes or last is None:
            return None
        del whole[:full_nodes]
        taken = nodes
        if self._per > 1:
            taken = [unit for node in nodes for unit in self._units_of(node)]
            self._rooms.update(dict.fromkeys(nodes, 0))
        for unit in taken:
            self._free[unit] = False
        self._count -= len(taken)
        return (*taken, *self._taken(last)) if last else tuple(taken)

    def _taken(self, nodes: Iterable[tuple[int, int]]) -> tuple[int, ...]:
        """Remove and return numbers of units of some nodes, the lowest ones."""
        taken: list[int] = []
        for node, count in nodes:
            free = [unit for unit in self._units_of(node) if self._free[unit]]
            for unit in free[:count]:
                self.discard(unit)
                taken.append(unit)
        return tuple(taken)

    def _scattered(self, units: int, near: Iterable[int]) -> list[tuple[int, int]]:
        """Choose numbers of units on as few nodes as possible: those of `near`, the emptiest, the rest by best fit."""
        own = Counter(unit // self._per for unit in near)
        room = {node: self._room(node) for node in own}
        with_room = [node for node in room if room[node]]
        with_room.sort(key=lambda node: (-own[node], -room[node], node))
        chosen = []
        for node in with_room:
            chosen.append((node, min(units, room[node])))
            units -= chosen[-1][1]
        seen = set(own)
        emptiest = (
            (node, free)
            for free in range(self._per, 0, -1)
            for node in self._nodes[free]
            if node not in seen
        )
        for node, free in emptiest:
            if not units:
                break
            last = self._fullest(units, seen)
            if last is not None:
                return [*chosen, *last]
            chosen.append((node, free))
            seen.add(node)
            units -= free
        return chosen

    def _fullest(self, units: int, others: set[int]) -> list[tuple[int, int]] | None:
        """Return the fullest node with room for this many units that is none of the others, None without."""
        for nodes in self._nodes[units:]:
            for key in nodes:
                if key & _NODE not in others:
                    return [(key & _NODE, units)]
        return None

    def _units_of(self, node: int) -> range:
        return range(node * self._per, (node + 1) * self._per)


NOBODY = -1  # first holder of a free unit
BUSY = -2  # of a unit that is not idle


@dataclass(eq=False)
class Machine:
    """The machine as a policy sees it: which units are idle, and which are free.

    Parameters
    ----------
    units
        Units of the machine.
    units_per_node
        Units of a node; free ones are then given near each other.
    kinds
        Kind of each node's units; empty where all are alike.
    node_units
        Units of each node, where they differ; None: all have `units_per_node`.
    outlook
        Until when nodes may be expected to stay idle; None: nothing is known of that.

    Attributes
    ----------
    idle, used
        Idle units, and how many of them are held.
    """

    units: InitVar[int]
    units_per_node: int = 1
    kinds: Sequence[str] = ()
    node_units: Sequence[int] | None = None
    outlook: Outlook | None = None
    idle: int = field(default=0, init=False)
    used: int = field(default=0, init=False)
    _first: list[int] = field(init=False)
    # Only units that two jobs hold.
    _second: dict[int, int] = field(default_factory=dict, init=False)
    _since: list[int] = field(init=False)  # event at which a unit turned idle
    # What follows from these: free units by kind, and those of the kind of each node.
    _free: dict[str, FreeList] = field(init=False, metadata=NOT_STORED)
    _free_on: list[FreeList] = field(init=False, metadata=NOT_STORED)
    _idle_on: list[int] = field(init=False, metadata=NOT_STORED)

    def __post_init__(self, units: int) -> None:
        self._first, self._since = [BUSY] * units, [0] * units
        kinds = dict.fromkeys(self.kinds or ("",))
        self._free = {kind: FreeList((), self.units_per_node) for kind in kinds}
        if self.kinds:
            self._free_on = [self._free[kind] for kind in self.kinds]
        else:
            self._free_on = [self._free[""]] * self.nodes
        self._idle_on = [0] * self.nodes

    def __len__(self) -> int:
        return len(self._first)

    @property
    def nodes(self) -> int:
        """Nodes of the machine, idle or not."""
        return len(self) // self.units_per_node

    @property
    def free(self) -> int:
        """Idle units without a holder."""
        return self.idle - self.used

    def is_idle(self, unit: int) -> bool:
        """Whether a unit is idle, held by jobs or not."""
        return self._first[unit] != BUSY

    def idle_by_node(self) -> list[int]:
        """How many units of each node are idle, held by jobs or not."""
        return self._idle_on.copy()

    def kind_of(self, unit: int) -> str:
        """The kind of a unit; empty where all are alike."""
        return self.kinds[unit // self.units_per_node] if self.kinds else ""

    def idle_by_kind(self) -> dict[str, int]:
        """Idle units of each kind, held by jobs or not, in the order of the nodes; empty where all are alike."""
        idle = dict.fromkeys(self.kinds, 0)
        for kind, units in zip(self.kinds, self._idle_on, strict=False):
            idle[kind] += units
        return idle

    def units_by_kind(self) -> dict[str, int]:
        """Units of the largest node of each kind, in the order of the nodes; of one without a name if all are alike."""
        per = self.units_per_node
        largest = dict.fromkeys(self.kinds, 0) or {"": per}
        for node, kind in enumerate(self.kinds):
            units = per if self.node_units is None else self.node_units[node]
            largest[kind] = max(largest[kind], units)
        return largest

    def free_by_kind(self) -> dict[str, int]:
        """Units without a holder by kind, which is empty where all are alike."""
        if not self.kinds:
            return {"": self.free}
        return {kind: len(free) for kind, free in self._free.items()}

    def placement(self, kind: str = "") -> FreeList:
        """Return a copy of the free units of a kind, to be handed out tentatively before an answer names them."""
        return self._free[kind].copy()

    def expected_idle_until(self, time_ns: int) -> list[int | None]:
        """See `State.expected_idle_until`; of now or an earlier instant, as later ones are not known."""
        if self.outlook is None:
            return [None] * self.nodes
        return self.outlook.expected(time_ns)


class Holdings(Machine, StoredState):
    """The idle units of a machine and their holders, by number of unit and of job: what the engine changes."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        super().restore(state)
        for unit, holder in enumerate(self._first):
            if holder == NOBODY:
                self._free_on[unit // self.units_per_node].add(unit, self._since[unit])
            if holder != BUSY:
                self._idle_on[unit // self.units_per_node] += 1

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

    def count(self, unit: int) -> int:
        """How many jobs hold a unit."""
        return (self._first[unit] >= 0) + (unit in self._second)

    def all_idle(self, units: Iterable[int]) -> bool:
        """Whether they are units of the machine and idle, held by jobs or not."""
        first = self._first
        for unit in units:  # noqa: SIM110  # a generator takes longer for few units
            if not 0 <= unit < len(first) or first[unit] == BUSY:
                return False
        return True

    def shape(self, units: Sequence[int]) -> tuple[str, list[int]]:
        """The kind of some units, and how many of them are on each of their nodes, ascending."""
        on_node = Counter(unit // self.units_per_node for unit in units)
        return self.kind_of(units[0]), sorted(on_node.values())

    def free_nodes(self) -> list[int]:
        """Return the nodes of which every unit is free."""
        return [node for free in self._free.values() for node in free.free_nodes()]

    def join(self, units: Sequence[int], event: int) -> None:
        """Units turn idle."""
        for unit in units:
            node = unit // self.units_per_node
            self._idle_on[node] += 1
            self._first[unit] = NOBODY
            self._since[unit] = event
            self._free_on[node].add(unit, event)
        self.idle += len(units)

    def take_back(self, units: Sequence[int]) -> dict[int, set[int]]:
        """Units are no longer idle; return the units that each job loses."""
        first = self._first
        lost: dict[int, set[int]] = {}
        for unit in units:
            holder = first[unit]
            first[unit] = BUSY
            node = unit // self.units_per_node
            self._idle_on[node] -= 1
            if holder == NOBODY:
                self._free_on[node].discard(unit, self._since[unit])
                continue
            self.used -= 1
            lost.setdefault(holder, set()).add(unit)
            if unit in self._second:
                lost.setdefault(self._second.pop(unit), set()).add(unit)
        self.idle -= len(units)
        return lost

    def take(
        self, count: int, near: Sequence[int] = (), kind: str = ""
    ) -> tuple[int, ...]:
        """Take units without a holder; they are no longer free, so they must be granted.

        The units idle longest come first; on nodes with several units, those near each other and near `near`.
        `kind`: of which kind, where there are several.
        """
        taken = self._free[kind].take(count, spread=True, near=near)
        if taken is None:
            raise IndexError(f"{count} units wanted of {self.free_by_kind()[kind]}")
        return taken

    def newest(self, held: Sequence[int], count: int) -> list[int]:
        """Which of a job's units (oldest first) to release: the newest, on the nodes where it has the fewest units."""
        if self.units_per_node == 1:
            return list(held[len(held) - count :])
        nodes = [unit // self.units_per_node for unit in held]
        units_on = Counter(nodes)
        order = sorted(
            range(len(held)), key=lambda index: (units_on[nodes[index]], -index)
        )
        return [held[index] for index in order[:count]]

    def grant(self, job: int, units: Iterable[int]) -> None:
        """A job gets units: free or taken ones, or units that one other job holds."""
        first = self._first
        for unit in units:
            if first[unit] < 0:
                first[unit] = job
                self.used += 1
                node = unit // self.units_per_node
                self._free_on[node].discard(unit, self._since[unit])
            else:
                self._second[unit] = job

    def release(self, job: int, units: Iterable[int]) -> None:
        """A job gives units back; those without another holder become free."""
        first = self._first
        for unit in units:
            second = self._second.pop(unit, None)
            if second is None:
                first[unit] = NOBODY
                self.used -= 1
                node = unit // self.units_per_node
                self._free_on[node].add(unit, self._since[unit])
            elif first[unit] == job:
                first[unit] = second
