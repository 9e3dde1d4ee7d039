"""The units of the machine: which are idle, which jobs hold them, and which free ones a job gets.

`Reserve` states which nodes the machine's own ("host") jobs take: free ones first, and some kept free for them
(docs/host-jobs.md). A node of the log is a *place* there: the log states when the node that fills the place is taken
and returned. Which node that is may change. Where free nodes go first, a start that the log puts on a node in use takes
a free one instead, and the two exchange places for good: a scheduler preempts only what it must. Idle counts, starts
and their sizes stay those of the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.replay.engine.history import ROWS, Columns
from bft.replay.engine.snapshot import NOT_STORED, StoredState


class FreeList:
    """The free units of a machine, those idle longest first.

    Idle fragments have a decreasing hazard: a node that has been idle for long stays idle longer (docs/decisions/0003),
    so jobs take the oldest and release the newest. They are kept as one sorted array of keys, (event since which a unit
    is idle) x (units of the machine) + unit, so that a copy for a policy is one copy of memory.

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

    def free_nodes(self) -> list[int]:
        """Return the free units, which are whole nodes, those idle longest first."""
        return [key % self.modulus for key in self._line]

    def line(self) -> array[int]:
        """A copy of the keys, ascending: each modulo `modulus` is a unit."""
        return self._line[:]


NodeUnits: TypeAlias = list[tuple[int, int]]
"""Numbers of units per node: (node, units)."""


class NodeFreeList:
    """The free units of each node, and the nodes by number of free units: the best fit needs no search.

    Parameters
    ----------
    units_per_node
        Units of a node; unit u lies on node u // units_per_node.
    """

    def __init__(self, units_per_node: int) -> None:
        self._per = units_per_node
        self._free: dict[int, int] = {}  # node -> its free units, as bits
        self._with: list[list[int]] = [
            [] for _ in range(units_per_node + 1)
        ]  # so many free units: nodes, ascending
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def copy(self) -> NodeFreeList:
        """An independent copy."""
        other = NodeFreeList(self._per)
        other._free, other._count = self._free.copy(), self._count
        other._with = [nodes.copy() for nodes in self._with]
        return other

    def by_node(self) -> dict[int, int]:
        """Number of free units of each node with any."""
        return {node: free.bit_count() for node, free in self._free.items()}

    def free_nodes(self) -> list[int]:
        """Return the nodes of which every unit is free."""
        return list(self._with[self._per])

    def add(self, unit: int, since: int = 0) -> None:
        """A unit becomes free."""
        node, bit = divmod(unit, self._per)
        free = self._free.get(node, 0)
        self._set(node, free | 1 << bit)

    def discard(self, unit: int) -> None:
        """A unit is not free any more."""
        node, bit = divmod(unit, self._per)
        free = self._free.get(node, 0)
        self._set(node, free & ~(1 << bit))

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
        """Choose whole nodes, and the fullest node with room for the remainder; None when they are not available."""
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
        """Choose as few nodes as possible: first those of the units `near`, then the emptiest, the rest by best fit.

        At least that many units must be free.
        """
        own = Counter(unit // self._per for unit in near)
        room = {node: self._free.get(node, 0).bit_count() for node in own}
        with_room = [node for node in own if room[node]]
        with_room.sort(key=lambda node: (-own[node], -room[node], node))
        chosen = []
        for node in with_room:
            count = min(units, room[node])
            chosen.append((node, count))
            units -= count
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

    def _fitting(self, units: int, excluded: set[int]) -> int | None:
        """Return the fullest node with enough room."""
        for free in range(units, self._per + 1):
            for node in self._with[free]:
                if node not in excluded:
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


# Larger than any unit, so that dividing by it leaves the unit as remainder.
_NO_KEYS = 2**62


class Placement:
    """Free units that can be handed out and taken back without changing anything else.

    Parameters
    ----------
    free
        The free units, in the order of preference; if a unit is a whole node, they are handed out in this order.
    units_per_node
        Units of a node; unit u lies on node u // units_per_node.
    """

    def __init__(
        self, free: Iterable[int] | FreeList | NodeFreeList, units_per_node: int = 1
    ) -> None:
        self._per = units_per_node
        # If a unit is a node: the order, of which the first `_next` are taken, and units given back since.
        self._line, self._modulus, self._next = array("q"), _NO_KEYS, 0
        self._back: list[int] = []
        self._by_node = NodeFreeList(units_per_node)
        if isinstance(free, FreeList):
            self._line, self._modulus = free.line(), free.modulus
        elif isinstance(free, NodeFreeList):
            self._by_node = free.copy()
        elif units_per_node == 1:
            self._line = array("q", free)
        else:
            self.give_back(free)

    def __len__(self) -> int:
        if self._per == 1:
            return len(self._back) + len(self._line) - self._next
        return len(self._by_node)

    def take(
        self, units: int, *, spread: bool = False, near: Iterable[int] = ()
    ) -> tuple[int, ...] | None:
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
            begin = self._next
            self._next += units - len(back)
            keys = self._line[begin : self._next]
            return (*back, *(key % self._modulus for key in keys))
        nodes = (
            self._by_node.scattered(units, near)
            if spread
            else self._by_node.consolidated(units)
        )
        if nodes is None:
            return None
        return tuple(
            unit for node, count in nodes for unit in self._by_node.take(node, count)
        )

    def give_back(self, units: Iterable[int]) -> None:
        """Units become free again; they are handed out before others."""
        if self._per == 1:
            self._back.extend(units)
        else:
            for unit in units:
                self._by_node.add(unit)

    def by_node(self) -> dict[int, int]:
        """Free units of each node that has any; where a unit is a whole node, in the order of handing out."""
        if self._per > 1:
            return self._by_node.by_node()
        left = (key % self._modulus for key in islice(self._line, self._next, None))
        return dict.fromkeys([*reversed(self._back), *left], 1)


NOBODY = -1  # first holder of a free unit
BUSY = -2  # of a unit that is not idle


@dataclass(eq=False)
class Holdings(StoredState):
    """The idle units of a machine and their holders, by number of unit and of job.

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

    Attributes
    ----------
    idle, used
        Idle units, and how many of them are held.
    """

    units: InitVar[int]
    units_per_node: int = 1
    kinds: Sequence[str] = ()
    node_units: Sequence[int] | None = None
    idle: int = field(default=0, init=False)
    used: int = field(default=0, init=False)
    _first: list[int] = field(init=False)
    _second: dict[int, int] = field(
        default_factory=dict, init=False
    )  # only units that two jobs hold
    _since: list[int] = field(init=False)  # event at which a unit turned idle
    # What follows from these.
    _free: FreeList | NodeFreeList = field(init=False, metadata=NOT_STORED)
    _idle_on: list[int] = field(init=False, metadata=NOT_STORED)

    def __post_init__(self, units: int) -> None:
        self._first, self._since = [BUSY] * units, [0] * units
        self._sort_in()

    def _sort_in(self) -> None:
        """Find out which units are free, and how many of each node are idle."""
        per = self.units_per_node
        self._free = FreeList(len(self)) if per == 1 else NodeFreeList(per)
        self._idle_on = [0] * (len(self) // per)
        for unit, holder in enumerate(self._first):
            if holder == NOBODY:
                self._free.add(unit, self._since[unit])
            if holder != BUSY:
                self._idle_on[unit // per] += 1

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        super().restore(state)
        self._sort_in()

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

    def all_idle(self, units: Iterable[int]) -> bool:
        """Whether they are units of the machine and idle, held by jobs or not."""
        first = self._first
        for unit in units:  # noqa: SIM110  # a generator takes longer for few units
            if not 0 <= unit < len(first) or first[unit] == BUSY:
                return False
        return True

    def count(self, unit: int) -> int:
        """How many jobs hold a unit."""
        return (self._first[unit] >= 0) + (unit in self._second)

    def idle_by_node(self) -> list[int]:
        """How many units of each node are idle, held by jobs or not."""
        return self._idle_on.copy()

    def free_nodes(self) -> list[int]:
        """Return the nodes of which every unit is free."""
        return self._free.free_nodes()

    def placement(self) -> Placement:
        """A copy of the free units, to be handed out tentatively; nothing here changes."""
        return Placement(self._free, self.units_per_node)

    def join(self, units: Iterable[int], event: int) -> None:
        """Units turn idle."""
        for unit in units:
            if self._first[unit] == BUSY:
                self.idle += 1
                self._idle_on[unit // self.units_per_node] += 1
            self._first[unit] = NOBODY
            self._since[unit] = event
            self._free.add(unit, event)

    def take_back(self, units: Sequence[int]) -> dict[int, set[int]]:
        """Units are no longer idle; return the units that each job loses."""
        first = self._first
        lost: dict[int, set[int]] = {}
        for unit in units:
            holder = first[unit]
            first[unit] = BUSY
            self._idle_on[unit // self.units_per_node] -= 1
            if holder == NOBODY:
                self._free.discard(unit)
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
                self._free.add(unit, self._since[unit])
            elif first[unit] == job:
                first[unit] = second

    def kind_of(self, unit: int) -> str:
        """The kind of a unit; empty where all are alike."""
        return self.kinds[unit // self.units_per_node] if self.kinds else ""

    def shape(self, units: Sequence[int]) -> tuple[str, list[int]]:
        """The kind of some units, and how many of them are on each of their nodes, ascending."""
        on_node = Counter(unit // self.units_per_node for unit in units)
        return self.kind_of(units[0]), sorted(on_node.values())

    def idle_by_kind(self) -> dict[str, int]:
        """Idle units of each kind, held by jobs or not, in the order of the nodes; empty where all are alike."""
        idle = dict.fromkeys(self.kinds, 0)
        for kind, units in zip(
            self.kinds, self._idle_on if self.kinds else (), strict=True
        ):
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

    def _take_of(self, kind: str, count: int, near: Sequence[int]) -> list[int]:
        """Take free units of one kind, as `take` does."""
        free = (
            FreeList(len(self))
            if self.units_per_node == 1
            else NodeFreeList(self.units_per_node)
        )
        for unit, holder in enumerate(self._first):
            if holder == NOBODY and self.kind_of(unit) == kind:
                free.add(unit, self._since[unit])
        taken = _taken(free, count, near)
        for unit in taken:
            self._free.discard(unit)
        return taken

    def take(self, count: int, near: Sequence[int] = (), kind: str = "") -> list[int]:
        """Take units without a holder; they are no longer free, so they must be granted.

        The units idle longest come first; on nodes with several units, those near each other and near `near`.
        `kind`: of which kind, where there are several.
        """
        return (
            self._take_of(kind, count, near)
            if kind
            else _taken(self._free, count, near)
        )

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
                self._free.discard(unit)
            else:
                self._second[unit] = job


def _taken(free: FreeList | NodeFreeList, count: int, near: Sequence[int]) -> list[int]:
    """Units removed from the free ones, in the order of preference."""
    if isinstance(free, FreeList):
        return [free.take() for _ in range(count)]
    if count > len(free):
        raise IndexError(f"{count} units wanted of {len(free)} free ones")
    if not count:
        return []
    taken: list[int] = []
    for node, on_node in free.scattered(count, near):
        taken += free.take(node, on_node)
    return taken


# Let-go instant of a node that training has not held since it turned idle.
NOT_HELD = -(2**63 - 1)
# Type of each column of the table of returns: when a place was taken back, the node that filled it, and when training
# last let go of that node (`NOT_HELD`: not since it turned idle).
RETURNS = {"time_ns": "q", "place": "i", "node": "i", "let_go_ns": "q"}
# The same for the preemptions of an instant: jobs that lost nodes, and those that lost all of them.
PREEMPTIONS = {"time_ns": "q", "preempted": "i", "stopped": "i"}


@dataclass(slots=True)
class Taken:
    """How many nodes host jobs have taken so far, with nothing assumed about how long a node takes to return.

    Parameters
    ----------
    starts
        Instants at which nodes were taken.
    nodes
        Nodes taken at all of them.
    from_training
        Of these, nodes that training held until that instant.
    waiting_nodes
        Nodes of the starts that took at least one such node: each second of return time makes all of them wait.
    """

    starts: int = 0
    nodes: int = 0
    from_training: int = 0
    waiting_nodes: int = 0

    def add(self, nodes: int, from_training: int) -> None:
        """Count a start of host jobs, the nodes that it took, and those of them that training held."""
        self.starts += 1
        self.nodes += nodes
        self.from_training += from_training
        if from_training:
            self.waiting_nodes += nodes


@dataclass(frozen=True, eq=False)
class HostReturns:
    """Record of the nodes that host jobs took in a replay.

    Parameters
    ----------
    taken
        The counts.
    returns, preemptions
        Arrays by name as in `RETURNS` and `PREEMPTIONS`, int64 or int32 of shape (rows,), in order of time; empty
        unless a return time or a reserve was stated.
    """

    taken: Taken
    returns: Mapping[str, NDArray[np.int64]]
    preemptions: Mapping[str, NDArray[np.int64]]


class Reserve:
    """The node that fills each place, the nodes kept free, and when training let go of each.

    Kept nodes are not among the idle units of `Holdings`, so that no policy sees them.

    Parameters
    ----------
    nodes
        Number of nodes of the machine.
    units_per_node
        Units of each.
    size
        Nodes to keep free.
    active
        Whether each return is recorded, as a return time or a reserve asks; else `taken` is all that is kept here.
    free_first
        Whether host jobs take free nodes before those that training holds.

    Attributes
    ----------
    taken
        Counts of what host jobs have taken.
    kept_units
        Units that are idle and kept from training.
    returns, preemptions
        Tables with the columns `RETURNS` and `PREEMPTIONS`; empty unless active.
    """

    def __init__(
        self,
        nodes: int,
        units_per_node: int,
        size: int,
        *,
        active: bool,
        free_first: bool,
    ) -> None:
        self.active, self.free_first = active, free_first
        self.taken = Taken()
        self.returns, self.preemptions = Columns(RETURNS), Columns(PREEMPTIONS)
        self._size = size
        self._per = units_per_node
        self._node = list(range(nodes))  # by place
        self._place = list(range(nodes))  # by node
        self._let_go: dict[int, int] = {}  # by idle node
        self._kept: dict[int, None] = {}  # in the order in which they were kept
        self.kept_units = 0

    def outcome(self) -> HostReturns:
        """Return what was recorded."""
        return HostReturns(self.taken, self.returns.arrays(), self.preemptions.arrays())

    @property
    def nodes(self) -> list[int]:
        """The node that fills each place."""
        return self._node.copy()

    def joined(self, places: list[int]) -> list[int]:
        """Return the nodes that turn idle where these places do, where free nodes go first."""
        return [self._node[place] for place in places]

    def let_go(self, units: Iterable[int], now: int) -> None:
        """Note that training let go of units at this instant."""
        for unit in units:
            self._let_go[unit // self._per] = now

    def take(self, places: list[int], holdings: Holdings, now: int) -> list[int]:
        """Take back the nodes that fill these places; return those that training could hold.

        Where free nodes go first, leaving nodes exchange places with free ones before: the leaving node that would be
        ready last with the free node that has been ready longest, as long as the free one is ready earlier.
        """
        if self.free_first:
            self._exchange(places, holdings, now)
        offered = []
        for place in places:
            node = self._node[place]
            self.returns.append((now, place, node, self._ready(node, holdings, now)))
            if node in self._kept:
                del self._kept[node]
                self.kept_units -= self._per
            else:
                offered.append(node)
            self._let_go.pop(node, None)
        if len(self.returns.latest) >= ROWS:
            self.returns.settle()
        return offered

    def top_up(self, holdings: Holdings) -> None:
        """Keep free nodes until there are enough; no job stops for it."""
        missing = self._size - len(self._kept)
        if missing <= 0 or not holdings.free:
            return
        for node in self._earliest(missing, holdings.free_nodes()):
            holdings.take_back(self._units(node))
            self._kept[node] = None
            self.kept_units += self._per

    def preempted(self, now: int, jobs: int, stopped: int) -> None:
        """Record that jobs lost nodes at this instant, and how many of them lost all."""
        self.preemptions.append((now, jobs, stopped))
        if len(self.preemptions.latest) >= ROWS:
            self.preemptions.settle()

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, without the tables."""
        taken = self.taken
        return {
            "node": self._node if self.free_first else [],
            "let_go": list(self._let_go.items()),
            "kept": list(self._kept),
            "taken": [
                taken.starts,
                taken.nodes,
                taken.from_training,
                taken.waiting_nodes,
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        if self.free_first:
            self._node = list(state["node"])
            for place, node in enumerate(self._node):
                self._place[node] = place
        self._let_go = dict(state["let_go"])
        self._kept = dict.fromkeys(state["kept"])
        self.kept_units = len(self._kept) * self._per
        self.taken = Taken(*state["taken"])

    def _units(self, node: int) -> list[int]:
        return list(range(node * self._per, (node + 1) * self._per))

    def _ready(self, node: int, holdings: Holdings, now: int) -> int:
        """The instant at which training let go of an idle node; now where it holds a unit of it."""
        if node not in self._kept and any(map(holdings.count, self._units(node))):
            return now
        return self._let_go.get(node, NOT_HELD)

    def _earliest(self, count: int, nodes: Iterable[int]) -> list[int]:
        """Return those nodes that training let go of first."""
        return nsmallest(
            count, nodes, key=lambda node: (self._let_go.get(node, NOT_HELD), node)
        )

    def _exchange(self, places: Sequence[int], holdings: Holdings, now: int) -> None:
        """Let free nodes fill leaving places, see `take`."""
        ready = {
            place: self._ready(self._node[place], holdings, now) for place in places
        }
        latest = sorted(
            (place for place in places if ready[place] > NOT_HELD),
            key=lambda place: (-ready[place], place),
        )
        if not latest:
            return
        leaving = {self._node[place] for place in places}
        free = [
            node
            for node in (*self._kept, *holdings.free_nodes())
            if node not in leaving
        ]
        for place, node in zip(latest, self._earliest(len(latest), free), strict=False):
            if self._let_go.get(node, NOT_HELD) >= ready[place]:
                break
            other, former = self._place[node], self._node[place]
            self._node[place], self._node[other] = node, former
            self._place[node], self._place[former] = place, other
