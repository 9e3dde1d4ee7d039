"""Which nodes are idle when: the node trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.trace.uncertainty import Uncertainty

if TYPE_CHECKING:
    from bft.replay.trace.host_jobs import HostJobs

IndexArray = NDArray[np.int32]
TimeArray = NDArray[np.int64]
SECOND_NS = 1_000_000_000
# Events that are made Python's numbers together.
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
    notes: tuple[str, ...] = field(default=())
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

    def __post_init__(self) -> None:
        units, classes = self.node_units, self.classes
        if classes and len(classes) != len(self.nodes):
            raise InputError(
                f"{len(classes)} classes are stated for {len(self.nodes)} nodes",
                file=self.source or None,
            )
        if units is not None and not (
            len(units) == len(self.nodes)
            and all(0 < count <= self.units_per_node for count in units)
        ):
            raise InputError(
                f"each of the {len(self.nodes)} nodes must have 1 to {self.units_per_node} units",
                file=self.source or None,
            )

    def __len__(self) -> int:
        return len(self.times)

    def __repr__(self) -> str:
        window = " to ".join(
            str(np.datetime64(instant // SECOND_NS, "s"))
            for instant in (self.start, self.end)
        )
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
        return (
            len(self.nodes) * self.units_per_node
            if self.node_units is None
            else sum(self.node_units)
        )

    @property
    def slots(self) -> int:
        """Size of the index space of `joined` and `left`: nodes, or the largest node's units times nodes."""
        return len(self.nodes) * (self.units_per_node if self.by_unit else 1)

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
        node, place = np.divmod(slots, self.units_per_node)
        return slots[place < np.array(self.node_units, dtype=np.int32)[node]]

    def name_of(self, slot: int) -> str:
        """Name of what has this number in `joined` and `left`: a node, or a unit as node/number."""
        if not self.by_unit:
            return self.nodes[slot]
        node, place = divmod(slot, self.units_per_node)
        return f"{self.nodes[node]}/{place}"

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
            span = slice(begin, begin + _AT_ONCE)
            left, joined = (
                _by_event(self.left, self.left_at, span),
                _by_event(self.joined, self.joined_at, span),
            )
            yield from zip(self.times[span].tolist(), left, joined, strict=True)

    def idle_counts(self) -> NDArray[np.int64]:
        """Idle nodes (or units) after each event: int64 of shape (events,)."""
        return np.cumsum(np.diff(self.joined_at) - np.diff(self.left_at))

    def idle_units(self) -> TimeArray:
        """Idle units after each event: int64 of shape (events,)."""
        return self.idle_counts() * (1 if self.by_unit else self.units_per_node)

    def idle_unit_seconds(self) -> float:
        """Return idle units integrated over the window of observation (the resource integral)."""
        return self._idle_seconds() * (1 if self.by_unit else self.units_per_node)

    def idle_node_seconds(self) -> float:
        """Return idle nodes of `units_per_node` units, integrated over the window of observation."""
        return self._idle_seconds() / (self.units_per_node if self.by_unit else 1)

    def _idle_seconds(self) -> float:
        if not len(self):
            return 0.0
        spans = np.diff(np.append(self.times, self.end)) / SECOND_NS
        return float(np.dot(self.idle_counts(), spans))

    def of_kind(self, kind: str) -> NodeTrace:
        """Return this trace with the events of one kind's nodes (or units) only, under their numbers.

        Examples
        --------
        >>> from dataclasses import replace
        >>> replace(always_idle(3, 0, SECOND_NS), kinds=("fast", "slow", "slow")).of_kind("slow").idle_units().tolist()
        [2]
        """
        return self.only(np.array(self.kinds) == kind)

    def only(self, chosen: NDArray[np.bool_]) -> NodeTrace:
        """Return this trace with the events of chosen nodes only, under their numbers; bool of shape (nodes,)."""
        slots = np.repeat(chosen, self.slots // max(len(self.nodes), 1))
        joined, left = slots[self.joined], slots[self.left]
        return replace(
            self,
            joined=self.joined[joined],
            joined_at=np.concatenate([[0], np.cumsum(joined)])[self.joined_at],
            left=self.left[left],
            left_at=np.concatenate([[0], np.cumsum(left)])[self.left_at],
        )

    def of_nodes(self, kept: Sequence[int]) -> NodeTrace:
        """Return the trace of some nodes alone, in the order in which their numbers are given.

        Host jobs stay as they are.

        Examples
        --------
        >>> always_idle(3, 0, SECOND_NS).of_nodes([2, 0]).nodes
        ('n00002', 'n00000')
        """
        place = np.full(len(self.nodes), -1, dtype=np.int32)
        place[list(kept)] = np.arange(len(kept), dtype=np.int32)
        joined, join_event = self._moved(self.joined, self.joined_at, place)
        left, leave_event = self._moved(self.left, self.left_at, place)
        events = _distinct(join_event, leave_event)

        def some(of_each: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(of_each[node] for node in kept) if of_each else ()

        return replace(
            self,
            nodes=some(self.nodes),
            times=self.times[events],
            joined=joined,
            joined_at=row_offsets(join_event, events),
            left=left,
            left_at=row_offsets(leave_event, events),
            node_units=some(self.node_units) if self.node_units is not None else None,
            kinds=some(self.kinds),
            classes=some(self.classes),
        )

    def _moved(
        self, slots: IndexArray, offsets: TimeArray, place: IndexArray
    ) -> tuple[IndexArray, TimeArray]:
        """Nodes (or units) that have a new place, and their events, in order of event and place."""
        event = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(offsets))
        per = np.int32(self.units_per_node if self.by_unit else 1)
        node, unit = np.divmod(slots, per)
        inside = place[node] >= 0
        moved = place[node] * per + unit
        moved, event = moved[inside], event[inside]
        order = np.lexsort((moved, event))
        return moved[order], event[order]

    def with_fragments(
        self,
        node: IndexArray,
        begins: TimeArray,
        ends: TimeArray,
        start: int | None = None,
        end: int | None = None,
    ) -> NodeTrace:
        """Return this trace with other idle fragments, and perhaps another window; see `from_fragments`."""
        first, last = (
            self.start if start is None else start,
            self.end if end is None else end,
        )
        made = from_fragments(self.nodes, node, begins, ends, first, last)
        return replace(
            self,
            times=made.times,
            joined=made.joined,
            joined_at=made.joined_at,
            left=made.left,
            left_at=made.left_at,
            start=first,
            end=last,
        )


def row_offsets(keys: TimeArray, events: TimeArray) -> TimeArray:
    """Return where the rows of each event begin among rows with ascending keys, and at last the number of rows."""
    return np.append(np.searchsorted(keys, events, side="left"), len(keys)).astype(
        np.int64
    )


def consecutive(begins: TimeArray, lengths: TimeArray) -> TimeArray:
    """Return the numbers begin, begin + 1, ... of each entry, so many as its length says, one entry after the other.

    >>> consecutive(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(begins - (ends - lengths), lengths) + np.arange(total)


def _by_event(nodes: IndexArray, offsets: TimeArray, span: slice) -> list[list[int]]:
    """Return the nodes of each event in a span, as lists."""
    ends = offsets[span.start : span.stop + 1].tolist()
    some = nodes[ends[0] : ends[-1]].tolist()
    return [some[begin - ends[0] : end - ends[0]] for begin, end in pairwise(ends)]


class TraceBuilder:
    """Makes a trace of changes that come in blocks, one after the other in time: only what changed takes memory.

    Examples
    --------
    >>> builder = TraceBuilder()
    >>> for second in (0, 30):
    ...     builder.add(np.array([second * SECOND_NS]), np.array([0], dtype=np.int32), np.array([second == 0]))
    >>> builder.trace(["n0"], end=60 * SECOND_NS).idle_node_seconds()
    30.0
    """

    def __init__(self) -> None:
        self._state = np.zeros(0, dtype=bool)
        # By block: instants, and of joins and leaves the nodes and how many each instant has.
        self._times: list[TimeArray] = []
        self._joined: list[tuple[IndexArray, NDArray[np.int32]]] = []
        self._left: list[tuple[IndexArray, NDArray[np.int32]]] = []
        self._first: int | None = None
        self._last: int | None = None
        self._repeated = self._unchanged = self._unchanged_last = 0

    def add(self, times: TimeArray, node: IndexArray, idle: NDArray[np.bool_]) -> None:
        """Add rows sorted by time, all of them later than those before; see `from_changes`."""
        count = len(times)
        if not count:
            return
        ascending = times[1:] > times[:-1]
        ascending |= (times[1:] == times[:-1]) & (node[1:] > node[:-1])
        if not ascending.all():
            # Of rows for one (time, node), keep the last: stable sort by node within time, then look one ahead.
            order = np.lexsort((node, times))
            times, node, idle = times[order], node[order], idle[order]
            last = np.ones(count, dtype=bool)
            last[:-1] = (times[1:] != times[:-1]) | (node[1:] != node[:-1])
            times, node, idle = times[last], node[last], idle[last]
            self._repeated += count - len(times)
        changed = self._changed(node, idle)
        if self._first is None:
            self._first = int(times[0])
        # The first rows state where nodes start, the last may mark the end; others that say nothing new are worth a
        # note.
        inner = ~changed & (times != self._first)
        self._last = int(times[-1])
        self._unchanged_last = int((inner & (times == self._last)).sum())
        self._unchanged += int(inner.sum())
        times, node, idle = times[changed], node[changed], idle[changed]
        instants = _distinct(times)
        self._times.append(instants)
        for store, those in ((self._joined, idle), (self._left, ~idle)):
            counts = np.diff(row_offsets(times[those], instants))
            store.append((node[those].astype(np.int32), counts.astype(np.int32)))

    def _changed(self, node: IndexArray, idle: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Tell which rows state something else than the node's row before; every node starts busy."""
        known, needed = len(self._state), int(node.max()) + 1
        if needed > known:
            self._state = np.append(self._state, np.zeros(needed - known, dtype=bool))
        by_node = np.argsort(node, kind="stable")
        state, which = idle[by_node], node[by_node]
        first = np.ones(len(state), dtype=bool)
        first[1:] = which[1:] != which[:-1]
        before = np.empty(len(state), dtype=bool)
        before[1:] = state[:-1]
        before[first] = self._state[which[first]]
        last = np.append(first[1:], True)
        self._state[which[last]] = state[last]
        changed = np.zeros(len(state), dtype=bool)
        changed[by_node] = state != before
        return changed

    def trace(
        self,
        nodes: Sequence[str],
        *,
        start: int | None = None,
        end: int | None = None,
        source: str = "",
    ) -> NodeTrace:
        """Return the trace of all changes, which are given up; parameters as `from_changes` has them.

        Raises
        ------
        InputError
            When there is no time at all, or changes lie outside the window.
        """
        instants = np.concatenate([np.zeros(0, dtype=np.int64), *self._times])
        notes = []
        if self._repeated:
            notes.append(
                f"{self._repeated} rows repeated a node at the same time: the last one counts"
            )
        if unchanged := self._unchanged - self._unchanged_last:
            notes.append(f"{unchanged} rows repeated a node's state and were dropped")
        begin = start if start is not None else self._first
        finish = end if end is not None else self._last
        if begin is None or finish is None:
            raise InputError(
                "the trace is empty: it names no time at all", file=source or None
            )
        if begin > finish:
            raise InputError(
                "the window of observation that the trace states ends before it starts",
                file=source or None,
            )
        if len(instants) and not begin <= instants[0] <= instants[-1] <= finish:
            raise InputError(
                "changes lie outside the window of observation that the trace states",
                file=source or None,
            )
        joined, joined_at = _with_offsets(self._joined)
        left, left_at = _with_offsets(self._left)
        return NodeTrace(
            nodes=tuple(nodes),
            times=instants,
            joined=joined,
            joined_at=joined_at,
            left=left,
            left_at=left_at,
            start=begin,
            end=finish,
            source=source,
            notes=tuple(notes),
        )


def from_changes(
    nodes: Sequence[str],
    times: TimeArray,
    node: IndexArray,
    idle: NDArray[np.bool_],
    *,
    start: int | None = None,
    end: int | None = None,
    machine: str = "",
    source: str = "",
    units_per_node: int = 1,
    node_units: tuple[int, ...] | None = None,
) -> NodeTrace:
    """Make a trace from one row per change.

    Parameters
    ----------
    nodes
        Names of all nodes.
    times, node, idle
        When, which node (index into `nodes`) or unit, and whether it is idle from then on. Sorted by time. Rows that
        repeat a node's state are dropped; of several rows for one node at one time the last one counts.
    start, end
        Window of observation, UTC ns; by default from the first to the last change.
    machine, source, units_per_node, node_units
        As `NodeTrace` has them.

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
    builder = TraceBuilder()
    builder.add(times, node, idle)
    trace = builder.trace(nodes, start=start, end=end, source=source)
    return replace(
        trace, machine=machine, units_per_node=units_per_node, node_units=node_units
    )


def _with_offsets(
    parts: list[tuple[IndexArray, NDArray[np.int32]]],
) -> tuple[IndexArray, TimeArray]:
    """Return the nodes of all blocks, and where each instant's begin; their list is emptied."""
    nothing = np.zeros(0, dtype=np.int32)
    nodes = np.concatenate([nothing, *(part[0] for part in parts)])
    counts = np.concatenate([nothing, *(part[1] for part in parts)])
    parts.clear()
    return nodes, np.append(0, np.cumsum(counts, dtype=np.int64))


def from_fragments(
    nodes: Sequence[str],
    node: IndexArray,
    begins: TimeArray,
    ends: TimeArray,
    start: int,
    end: int,
    *,
    units_per_node: int = 1,
    node_units: tuple[int, ...] | None = None,
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
    units_per_node, node_units
        As `NodeTrace` has them.

    Examples
    --------
    >>> node, begins, ends = np.array([0, 1]), np.array([0, 5]), np.array([10, 20])
    >>> from_fragments(["a", "b"], node, begins, ends, 0, 20).idle_counts().tolist()  # at 0, 5 and 10 ns
    [1, 2, 1]
    """
    closed = ends < end  # what is still idle at the end of the window has no leave
    joined, join_times = _in_order(node, begins)
    left, leave_times = _in_order(node[closed], ends[closed])
    times = _distinct(join_times, leave_times)
    return NodeTrace(
        nodes=tuple(nodes),
        times=times,
        joined=joined,
        joined_at=row_offsets(join_times, times),
        left=left,
        left_at=row_offsets(leave_times, times),
        start=start,
        end=end,
        units_per_node=units_per_node,
        node_units=node_units,
    )


def _in_order(node: IndexArray, times: TimeArray) -> tuple[IndexArray, TimeArray]:
    """Nodes and times in order of time and node: as one whole number each, where both fit into it."""
    if not len(node):
        return node.astype(np.int32, copy=False), times
    first, slots = int(times.min()), int(node.max()) + 1
    step = int(np.gcd.reduce(times - first)) or 1
    if (int(times.max()) - first) // step >= 2**62 // slots:
        order = np.lexsort((node, times))
        return node[order].astype(np.int32, copy=False), times[order]
    keys = (times - first) // step * slots + node
    keys.sort()
    at = keys // slots
    return (keys - at * slots).astype(np.int32), at * step + first


def _distinct(*ascending: TimeArray) -> TimeArray:
    """Return the different ones of numbers that ascend, ascending; sorting runs is faster than `np.unique`."""
    times = np.sort(np.concatenate(ascending), kind="stable")
    distinct: TimeArray = times[np.append(True, times[1:] != times[:-1])[: len(times)]]
    return distinct


def always_idle(
    nodes: int, start: int, end: int, *, units_per_node: int = 1, machine: str = ""
) -> NodeTrace:
    """A trace of `nodes` dedicated nodes, idle from start to end.

    Examples
    --------
    >>> always_idle(4, 0, 3600 * SECOND_NS, units_per_node=2).idle_node_seconds()
    14400.0
    """
    everybody = np.arange(nodes, dtype=np.int32)
    events = 1 if nodes else 0
    return NodeTrace(
        nodes=tuple(f"n{i:05d}" for i in range(nodes)),
        times=np.full(events, start, dtype=np.int64),
        joined=everybody,
        joined_at=np.array([0, nodes] if events else [0], dtype=np.int64),
        left=np.zeros(0, dtype=np.int32),
        left_at=np.zeros(events + 1, dtype=np.int64),
        start=start,
        end=end,
        machine=machine,
        source=f"{nodes} dedicated nodes",
        units_per_node=units_per_node,
    )
