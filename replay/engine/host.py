"""The nodes that the machine's own ("host") jobs take, free ones first, and those kept for them (docs/host-jobs.md).

A node of the log is a *place* here: the log states when the node that fills the place is taken and returned. Which node
that is may change. Where free nodes go first, a start that the log puts on a node in use takes a free one instead, and
the two exchange places for good: a scheduler preempts only what it must. Idle counts, starts and their sizes stay those
of the log.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from heapq import nsmallest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.replay.engine.snapshot import NOT_STORED, StoredState
from bft.replay.engine.tables import Table
from bft.replay.engine.units import Holdings

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


@dataclass(eq=False)
class Reserve(StoredState):
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
    returns
        The table with the columns `RETURNS`; stays empty unless active.

    Attributes
    ----------
    taken
        Counts of what host jobs have taken.
    kept_units
        Units that are idle and kept from training.
    node
        The node that fills each place.
    """

    nodes: InitVar[int]
    units_per_node: int
    size: int
    active: bool
    free_first: bool
    returns: Table
    taken: Taken = field(default_factory=Taken, init=False)
    kept_units: int = field(default=0, init=False)
    node: list[int] = field(init=False)
    _let_go: dict[int, int] = field(default_factory=dict, init=False)  # by idle node
    # In the order in which they were kept.
    _kept: dict[int, None] = field(default_factory=dict, init=False)
    _place: list[int] = field(init=False, metadata=NOT_STORED)  # by node

    def __post_init__(self, nodes: int) -> None:
        self.node, self._place = list(range(nodes)), list(range(nodes))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state`."""
        super().restore(state)
        for place, node in enumerate(self.node):
            self._place[node] = place

    def let_go(self, units: Iterable[int], now: int) -> None:
        """Note that training let go of units at this instant."""
        for unit in units:
            self._let_go[unit // self.units_per_node] = now

    def take(self, places: list[int], holdings: Holdings, now: int) -> list[int]:
        """Take back the nodes that fill these places; return those that training could hold.

        Where free nodes go first, leaving nodes exchange places with free ones before: the leaving node that would be
        ready last with the free node that has been ready longest, as long as the free one is ready earlier.
        """
        if self.free_first:
            self._exchange(places, holdings, now)
        offered = []
        for place in places:
            node = self.node[place]
            self.returns.add((now, place, node, self._ready(node, holdings, now)))
            if node in self._kept:
                del self._kept[node]
                self.kept_units -= self.units_per_node
            else:
                offered.append(node)
            self._let_go.pop(node, None)
        return offered

    def top_up(self, holdings: Holdings) -> None:
        """Keep free nodes until there are enough; no job stops for it."""
        missing = self.size - len(self._kept)
        if missing > 0 and holdings.free:
            nodes = self._earliest(missing, holdings.free_nodes())
            for node in nodes:
                holdings.take_back(self._units(node))
            self._kept.update(dict.fromkeys(nodes))
            self.kept_units += len(nodes) * self.units_per_node

    def _units(self, node: int) -> range:
        return range(node * self.units_per_node, (node + 1) * self.units_per_node)

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
            place: self._ready(self.node[place], holdings, now) for place in places
        }
        latest = sorted(
            (place for place in places if ready[place] > NOT_HELD),
            key=lambda place: (-ready[place], place),
        )
        if not latest:
            return
        leaving = {self.node[place] for place in places}
        free = {*self._kept, *holdings.free_nodes()} - leaving
        for place, node in zip(latest, self._earliest(len(latest), free), strict=False):
            if self._let_go.get(node, NOT_HELD) >= ready[place]:
                break
            other, former = self._place[node], self.node[place]
            self.node[place], self.node[other] = node, former
            self._place[node], self._place[former] = place, other
