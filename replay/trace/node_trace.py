"""Which nodes are idle when: the node trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.trace.uncertainty import Uncertainty

if TYPE_CHECKING:
    from bft.replay.trace.host_jobs import HostJobs

IndexArray: TypeAlias = NDArray[np.int32]
TimeArray: TypeAlias = NDArray[np.int64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = tuple[IndexArray, TimeArray]
"""Node (or unit) and instant of each join, or of each leave."""
SECOND_NS = 1_000_000_000
# Events of which lists are made at a time.
_AT_ONCE = 1024


@dataclass(frozen=True, eq=False, repr=False)
class NodeTrace:
    """The idle nodes of a machine over a window of observation.

    Event e happens at times[e]: nodes left[left_at[e]:left_at[e+1]] are taken back, then nodes
    joined[joined_at[e]:joined_at[e+1]] turn idle. Before the first event no node is idle. Memory grows with the
    number of changes, not with nodes x events.

    Parameters
    ----------
    nodes
        Names of all nodes of the machine, also of those never idle.
    times
        UTC nanoseconds since 1970 of the events, int64 of shape (events,), increasing.
    joined, left
        Node indices, int32; with `node_units` units, of which number u is on node u // units_per_node.
    joined_at, left_at
        Offsets into them, int64 of shape (events + 1,).
    start, end
        The window of observation, UTC nanoseconds; start <= times[0], times[-1] <= end.
    machine, source
        For people.
    units_per_node
        Units (GPUs) of a node; 1 when a unit is a whole node. With `node_units` of the largest node.
    node_units
        How many units each node has, the lowest numbers of those that are its; None: nodes turn idle as a whole, and
        have `units_per_node` each.
    notes
        What reading did to the input, in sentences: rows merged, dropped, and so on.
    altered
        How it was perturbed (`perturbing`), for people; empty for a trace as observed.
    kinds
        Kind of each node's units, such as a type of GPU; empty where all are alike.
    uncertain
        How much of the node-time its logs leave open; None: not stated.
    assumptions
        What making it from a log assumed, in sentences. They travel with its file.
    zone
        Time zone of the machine's site, such as Europe/Berlin; empty where it is not known.
    classes
        Class of each node as its list of nodes states it, such as gpu or gpu/debug; empty where none is stated.
    busy_share, unavailable_share
        Parts of the node-time in which jobs ran, and in which nodes were down, drained or reserved; None: not known.
    host_jobs
        The machine's own jobs; None: not known. They lie in a file of their own beside that of the trace.

    Examples
    --------
    >>> trace = always_idle(4, 0, 3600 * SECOND_NS)
    >>> trace.duration_s, trace.joins(0).tolist(), trace.idle_counts().tolist(), trace.idle_node_seconds()
    (3600.0, [0, 1, 2, 3], [4], 14400.0)
    """

    nodes: tuple[str, ...]
    times: TimeArray
    joined: IndexArray
    joined_at: TimeArray
    left: IndexArray
    left_at: TimeArray
    start: int
    end: int
    machine: str = ""
    source: str = ""
    units_per_node: int = 1
    notes: tuple[str, ...] = ()
    altered: str = ""
    node_units: tuple[int, ...] | None = None
    kinds: tuple[str, ...] = ()
    uncertain: Uncertainty | None = None
    assumptions: tuple[str, ...] = ()
    zone: str = ""
    classes: tuple[str, ...] = ()
    busy_share: float | None = None
    unavailable_share: float | None = None
    host_jobs: HostJobs | None = None

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        bounds = np.array([self.start, self.end]).astype("datetime64[ns]")
        window = " to ".join(bounds.astype("datetime64[s]").astype(str))
        return f"<NodeTrace: {len(self.nodes):,} nodes, {len(self):,} events, {window}>"

    @property
    def duration_s(self) -> float:
        """Duration of the observation in seconds."""
        return (self.end - self.start) / SECOND_NS

    @property
    def by_unit(self) -> bool:
        """Whether the units of a node turn idle one by one."""
        return self.node_units is not None

    @property
    def turns_idle(self) -> Literal["node", "unit"]:
        """A word for what turns idle."""
        return "unit" if self.by_unit else "node"

    @property
    def units(self) -> int:
        """Units of all nodes."""
        return sum(self.node_units or (self.units_per_node,) * len(self.nodes))

    @property
    def slots_per_node(self) -> int:
        """Indices in `joined` and `left` that a node has: one, or those of the largest node's units."""
        return self.units_per_node if self.by_unit else 1

    @property
    def slots(self) -> int:
        """Size of the index space of `joined` and `left`."""
        return len(self.nodes) * self.slots_per_node

    def members(self) -> IndexArray:
        """Return the indices that may turn idle, ascending: of nodes, or of the units that nodes have.

        Examples
        --------
        >>> from dataclasses import replace
        >>> pair = always_idle(2, 0, SECOND_NS, units_per_node=4)
        >>> pair.members().tolist(), replace(pair, node_units=(4, 1)).members().tolist()
        ([0, 1], [0, 1, 2, 3, 4])
        """
        slots = np.arange(self.slots, dtype=np.int32)
        if self.node_units is None:
            return slots
        size = np.repeat(self.node_units, self.slots_per_node)
        return slots[slots % self.slots_per_node < size]

    def name_of(self, slot: int) -> str:
        """Name of what has this number in `joined` and `left`: a node, or a unit as node/number."""
        node, unit = divmod(slot, self.slots_per_node)
        return f"{self.nodes[node]}/{unit}" if self.by_unit else self.nodes[node]

    def joins(self, event: int) -> IndexArray:
        """Nodes (or units) that turn idle at an event."""
        return self.joined[self.joined_at[event] : self.joined_at[event + 1]]

    def leaves(self, event: int) -> IndexArray:
        """Nodes (or units) taken back at an event."""
        return self.left[self.left_at[event] : self.left_at[event + 1]]

    def events(self, first: int = 0) -> Iterator[tuple[int, list[int], list[int]]]:
        """Instant (UTC ns), nodes (or units) taken back and that turn idle, of each event from number `first` on.

        Examples
        --------
        >>> list(always_idle(2, 5, 9).events())
        [(5, [], [0, 1])]
        """
        for begin in range(first, len(self), _AT_ONCE):
            end = min(begin + _AT_ONCE, len(self))
            left = _by_event(self.left, self.left_at[begin : end + 1])
            joined = _by_event(self.joined, self.joined_at[begin : end + 1])
            yield from zip(self.times[begin:end].tolist(), left, joined, strict=True)

    def rows(self) -> tuple[Rows, Rows]:
        """Return all joins and all leaves, in order of time."""
        joined_times = np.repeat(self.times, np.diff(self.joined_at))
        left_times = np.repeat(self.times, np.diff(self.left_at))
        return (self.joined, joined_times), (self.left, left_times)

    def idle_counts(self) -> IntArray:
        """Idle nodes (or units) after each event: int64 of shape (events,)."""
        return np.cumsum(np.diff(self.joined_at) - np.diff(self.left_at))

    def idle_units(self) -> TimeArray:
        """Idle units after each event: int64 of shape (events,)."""
        return self.idle_counts() * (self.units_per_node // self.slots_per_node)

    def idle_unit_seconds(self) -> float:
        """Return idle units integrated over the window of observation (the resource integral)."""
        return self.idle_seconds() * (self.units_per_node // self.slots_per_node)

    def idle_node_seconds(self) -> float:
        """Return idle nodes of `units_per_node` units, integrated over the window of observation."""
        return self.idle_seconds() / self.slots_per_node

    def idle_seconds(self) -> float:
        """Return idle nodes (or units) integrated over the window of observation."""
        spans = np.diff(np.append(self.times, self.end)) / SECOND_NS
        return float(np.dot(self.idle_counts(), spans))

    def error(self, what: str, hint: str | None = None) -> InputError:
        """Return an error that names the file of the trace."""
        return InputError(what, file=self.source or None, hint=hint)

    def of_kind(self, kind: str) -> NodeTrace:
        """Return this trace with the events of one kind's nodes (or units) only, under their numbers.

        Examples
        --------
        >>> from dataclasses import replace
        >>> replace(always_idle(3, 0, SECOND_NS), kinds=("fast", "slow", "slow")).of_kind("slow").idle_units().tolist()
        [2]
        """
        chosen = np.repeat(np.array(self.kinds) == kind, self.slots_per_node)
        joined, left = chosen[self.joined], chosen[self.left]
        return replace(
            self,
            joined=self.joined[joined],
            joined_at=np.append(0, np.cumsum(joined))[self.joined_at],
            left=self.left[left],
            left_at=np.append(0, np.cumsum(left))[self.left_at],
        )

    def of_nodes(self, kept: Sequence[int]) -> NodeTrace:
        """Return the trace of some nodes alone, in the order in which their numbers are given.

        Host jobs stay as they are.

        Examples
        --------
        >>> always_idle(3, 0, SECOND_NS).of_nodes([2, 0]).nodes
        ('n00002', 'n00000')
        """
        per = self.slots_per_node
        position = np.full(len(self.nodes), -1)
        position[list(kept)] = np.arange(len(kept))
        moved = []
        for slot, times in self.rows():
            to = position[slot // per]
            here = to >= 0
            moved.append(((to * per + slot % per)[here], times[here]))
        of_each: dict[str, Any] = {
            name: tuple(values[node] for node in kept)
            for name in ("nodes", "node_units", "kinds", "classes")
            if (values := getattr(self, name))
        }
        return replace(self, **events_of(*moved), **of_each)


def consecutive(begins: TimeArray, lengths: TimeArray) -> TimeArray:
    """Return the numbers begin, begin + 1, ... of each entry, so many as its length says, one entry after the other.

    >>> consecutive(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(total)


def _by_event(slots: IndexArray, bounds: TimeArray) -> list[list[int]]:
    """Return the slots of each event as Python's numbers, made of all at once: several times as fast."""
    first = int(bounds[0])
    numbers = slots[first : bounds[-1]].tolist()
    offsets = pairwise((bounds - first).tolist())
    return [numbers[begin:end] for begin, end in offsets]


def events_of(joins: Rows, leaves: Rows) -> dict[str, Any]:
    """Return the fields of a trace that hold its events, made of joins and leaves in any order."""
    joined, join_times = in_order(*joins)
    left, leave_times = in_order(*leaves)
    times = distinct(np.concatenate([distinct(join_times), distinct(leave_times)]))
    return {
        "times": times,
        "joined": joined,
        "joined_at": np.append(np.searchsorted(join_times, times), len(joined)),
        "left": left,
        "left_at": np.append(np.searchsorted(leave_times, times), len(left)),
    }


def in_order(slot: IndexArray, times: TimeArray) -> Rows:
    """Sort by time and node: as one whole number each, where both fit into it."""
    if _ascending(times, slot):
        return slot.astype(np.int32), times
    first, slots = int(times.min()), int(slot.max()) + 1
    step = int(np.gcd.reduce(times - first)) or 1
    if (int(times.max()) - first) // step >= 2**62 // slots:
        order = np.lexsort((slot, times))
        return slot[order].astype(np.int32), times[order]
    keys = times - first  # in place: years of large machines have tens of millions
    keys //= step
    keys *= slots
    keys += slot
    keys.sort(kind="stable")
    moved = (keys % slots).astype(np.int32)
    keys //= slots
    keys *= step
    keys += first
    return moved, keys


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The different values, ascending; for many of them a sort, which merges runs, is faster than NumPy's hashes."""
    ordered = np.sort(values, kind="stable")
    is_new = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    each: NDArray[np.int64] = ordered[is_new]
    return each


def _ascending(times: TimeArray, node: IndexArray) -> bool:
    """Tell whether rows are in order of time and node, and none repeats another."""
    later, same = times[1:] > times[:-1], times[1:] == times[:-1]
    return bool((later | (same & (node[1:] > node[:-1]))).all())


def by_node(node: IndexArray) -> IntArray:
    """Return the order of node, and within a node as before; NumPy sorts small whole numbers by their digits."""
    small = node.max(initial=0) < 2**16
    return np.argsort(node.astype(np.uint16) if small else node, kind="stable")


def from_changes(
    nodes: Sequence[str],
    times: TimeArray,
    node: IndexArray,
    idle: BoolArray,
    *,
    start: int | None = None,
    end: int | None = None,
    **fields: Any,
) -> NodeTrace:
    """Make a trace from one row per change.

    Parameters
    ----------
    nodes
        Names of all nodes.
    times, node, idle
        When, which node (index into `nodes`) or unit, and whether it is idle from then on. Rows that repeat a node's
        state are dropped; of several rows for one node at one time the last one counts, which a note says.
    start, end
        Window of observation, UTC ns; by default from the first to the last row in time.
    fields
        Other fields of `NodeTrace`.

    Raises
    ------
    InputError
        When there is no time at all, or changes lie outside the window.

    Examples
    --------
    >>> import numpy as np
    >>> second = 10**9
    >>> trace = from_changes(
    ...     ["n0", "n1"],
    ...     np.array([0, 0, 60, 90]) * second,
    ...     np.array([0, 1, 0, 0], dtype=np.int32),
    ...     np.array([True, True, False, True]),
    ...     end=120 * second,
    ... )
    >>> trace.idle_counts().tolist(), trace.idle_node_seconds()
    ([2, 1, 2], 210.0)
    """
    count = len(times)
    if not _ascending(times, node):
        order = np.lexsort((node, times))
        times, node, idle = times[order], node[order], idle[order]
        last = np.append((times[1:] != times[:-1]) | (node[1:] != node[:-1]), True)
        times, node, idle = times[last], node[last], idle[last]
    if len(times):
        start = int(times[0]) if start is None else start
        end = int(times[-1]) if end is None else end
    if start is None or end is None:
        raise InputError(
            "the trace is empty: it names no time at all, as a header alone"
        )
    order = by_node(node)
    state = idle[order]
    # Every node starts busy.
    before = np.roll(state, 1)
    firsts = np.append(0, np.cumsum(np.bincount(node)))
    before[firsts[firsts < len(node)]] = False
    joins, leaves = np.zeros((2, len(node)), dtype=bool)
    joins[order], leaves[order] = state & ~before, before & ~state
    events = events_of((node[joins], times[joins]), (node[leaves], times[leaves]))
    made = NodeTrace(tuple(nodes), **events, start=start, end=end, **fields)
    if len(node) < count:
        told = f"{count - len(node)} rows repeated a node at the same time: the last one counts"
        made = replace(made, notes=(told, *made.notes))
    if (np.diff(np.concatenate([[start], made.times, [end]])) < 0).any():
        raise made.error(
            "the window of observation ends before it starts, or changes lie outside the window"
        )
    return made


def from_fragments(
    nodes: Sequence[str],
    node: IndexArray,
    begins: TimeArray,
    ends: TimeArray,
    start: int,
    end: int,
    **fields: Any,
) -> NodeTrace:
    """A trace of disjoint idle fragments [begins, ends) within [start, end); those that end with the window stay open.

    Parameters
    ----------
    nodes
        Names of all nodes.
    node, begins, ends
        Index of node or unit, and UTC nanoseconds of begin and end of each fragment, in any order.
    start, end
        The window of observation, UTC nanoseconds.
    fields
        Other fields of `NodeTrace`.

    Examples
    --------
    >>> node, begins, ends = np.array([0, 1]), np.array([0, 5]), np.array([10, 20])
    >>> from_fragments(["a", "b"], node, begins, ends, 0, 20).idle_counts().tolist()  # at 0, 5 and 10 ns
    [1, 2, 1]
    """
    events = fragment_events(node, begins, ends, end)
    return NodeTrace(tuple(nodes), **events, start=start, end=end, **fields)


def fragment_events(
    node: IndexArray, begins: TimeArray, ends: TimeArray, end: int
) -> dict[str, Any]:
    """Return the fields of a trace that hold its events; see `from_fragments`."""
    closed = ends < end  # what is still idle at the end of the window has no leave
    return events_of((node, begins), (node[closed], ends[closed]))


def always_idle(
    nodes: int, start: int, end: int, *, units_per_node: int = 1, machine: str = ""
) -> NodeTrace:
    """A trace of `nodes` dedicated nodes, idle from start to end.

    Examples
    --------
    >>> always_idle(4, 0, 3600 * SECOND_NS, units_per_node=2).idle_node_seconds()
    14400.0
    """
    return from_fragments(
        [f"n{i:05d}" for i in range(nodes)],
        np.arange(nodes, dtype=np.int32),
        np.full(nodes, start, dtype=np.int64),
        np.full(nodes, end, dtype=np.int64),
        start,
        end,
        machine=machine,
        source=f"{nodes} dedicated nodes",
        units_per_node=units_per_node,
    )
