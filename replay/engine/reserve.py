"""Which nodes the machine's own ("host") jobs take: free ones first, and some kept free for them (docs/host-jobs.md).

A node of the log is a *place*: it says when some node is taken and returned. Which node fills a place may change.
Where free nodes go first, a start that the log puts on a node in use takes a free one instead, and the two exchange
places for good: a scheduler preempts only what it must. Idle counts, starts and their sizes stay those of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.replay.engine.history import ROWS, Columns
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
        Whether each return is recorded, as a return time or a reserve asks; else the counts `taken` are all.
    free_first
        Whether host jobs take free nodes before those that training holds.

    Attributes
    ----------
    taken
        Counts of what host jobs have taken.
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

    def outcome(self) -> HostReturns:
        """Return what was recorded."""
        return HostReturns(self.taken, self.returns.arrays(), self.preemptions.arrays())

    @property
    def kept_units(self) -> int:
        """Units that are idle and kept from training."""
        return len(self._kept) * self._per

    @property
    def nodes(self) -> list[int]:
        """The node that fills each place."""
        return self._node.copy()

    def joined(self, places: list[int]) -> list[int]:
        """Return the nodes that turn idle where these places do."""
        if not self.free_first:
            return places
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
        if not self.active:
            return places
        if self.free_first:
            self._exchange(places, holdings, now)
        offered = []
        for place in places:
            node = self._node[place]
            self.returns.append((now, place, node, self._ready(node, holdings, now)))
            if node in self._kept:
                del self._kept[node]
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
