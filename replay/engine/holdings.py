"""The holders of each idle unit: none, one job, or two that share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from bft.replay.engine.free_units import FreeUnits
from bft.replay.engine.memory import NOT_KEPT, kept, remember
from bft.replay.engine.places import Places
from bft.replay.engine.rooms import Rooms

NOBODY = -1  # first holder of a free unit
BUSY = -2  # of a unit that is not idle


@dataclass(eq=False)
class Holdings:
    """The idle units of a machine and their holders, by number of unit and of job.

    Parameters
    ----------
    units
        Units of the machine.
    units_per_node
        Units of a node; free ones are then given near each other.
    kinds
        Kind of each node's units; empty where all are alike.

    Attributes
    ----------
    idle, used
        Idle units, and how many of them are held.
    """

    units: InitVar[int]
    units_per_node: int = field(default=1, metadata=NOT_KEPT)
    kinds: Sequence[str] = field(default=(), metadata=NOT_KEPT)
    idle: int = field(default=0, init=False)
    used: int = field(default=0, init=False)
    _first: list[int] = field(init=False)
    _second: dict[int, int] = field(default_factory=dict, init=False)  # only units that two jobs hold
    _since: list[int] = field(init=False)  # event at which a unit turned idle
    # What follows from these.
    _free: FreeUnits | Rooms = field(init=False, metadata=NOT_KEPT)
    _idle_on: list[int] = field(init=False, metadata=NOT_KEPT)

    def __post_init__(self, units: int) -> None:
        self._first, self._since = [BUSY] * units, [0] * units
        self._sort_in()

    def _sort_in(self) -> None:
        """Find out which units are free, and how many of each node are idle."""
        per = self.units_per_node
        self._free = FreeUnits(len(self)) if per == 1 else Rooms(per)
        self._idle_on = [0] * (len(self) // per)
        for unit, holder in enumerate(self._first):
            if holder == NOBODY:
                self._free.add(unit, self._since[unit])
            if holder != BUSY:
                self._idle_on[unit // per] += 1

    def state(self) -> dict[str, Any]:
        """The complete state, for a checkpoint."""
        return kept(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        remember(self, state)
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

    def places(self) -> Places:
        """A copy of the free units, to be handed out tentatively; nothing here changes."""
        return Places(self._free, self.units_per_node)

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

    def idle_by_kind(self) -> dict[str, int]:
        """Idle units of each kind, held by jobs or not, in the order of the nodes; empty where all are alike."""
        idle = dict.fromkeys(self.kinds, 0)
        for kind, units in zip(self.kinds, self._idle_on if self.kinds else (), strict=True):
            idle[kind] += units
        return idle

    def _take_of(self, kind: str, count: int, near: Sequence[int]) -> list[int]:
        """As `take`, of one kind."""
        free = FreeUnits(len(self)) if self.units_per_node == 1 else Rooms(self.units_per_node)
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
        return self._take_of(kind, count, near) if kind else _taken(self._free, count, near)

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
                self._free.discard(unit)
            else:
                self._second[unit] = job


def _taken(free: FreeUnits | Rooms, count: int, near: Sequence[int]) -> list[int]:
    """Units removed from the free ones, in the order of preference."""
    if isinstance(free, FreeUnits):
        return [free.take() for _ in range(count)]
    if count > len(free):
        raise IndexError(f"{count} units wanted of {len(free)} free ones")
    nodes = free.scattered(count, near) if count else []
    return [unit for node, of in nodes for unit in free.take(node, of)]
