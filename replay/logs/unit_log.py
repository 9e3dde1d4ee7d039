"""Jobs that held some units of their nodes: collected in flat arrays, and placed on units at the end."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.logs.units import WHOLE, Held, Unit
from bft.replay.trace.node_trace import IndexArray, TimeArray

NodeColumns = tuple[IndexArray, TimeArray, TimeArray]


class UnitLog:
    """Which jobs held how many units of which nodes, and how many units nodes have.

    Parameters
    ----------
    unit
        What a unit is.
    default
        Units of a node of which nothing else states how many it has; None: not given.

    Attributes
    ----------
    stated
        Units of nodes, by index of the node, as lists of nodes state them.
    without
        Nodes of which a list states no units, though it states those of others: they have none.
    """

    def __init__(self, unit: Unit, default: int | None = None) -> None:
        self.unit, self.default = unit, default
        self.stated: dict[int, int] = {}
        self.without: set[int] = set()
        self._held: dict[Held, int] = {}  # what jobs hold of a node, numbered
        # What records without an end name, by hash of the job's key and start: nodes, and what is held of each.
        self._named: dict[tuple[int, int], tuple[tuple[int, ...], tuple[Held, ...]]] = {}
        # Jobs of which a record states no units: hash of the key, start, end.
        self._bare = array("q"), array("q"), array("q")
        # One entry for each job and node: hash of the job's key, start, end, node, number of what it holds.
        self._keys, self._starts, self._ends = array("q"), array("q"), array("q")
        self._nodes, self._what = array("i"), array("i")

    def __len__(self) -> int:
        return len(self._nodes)

    def size(self, node: int) -> int | None:
        """Units of a node; None: not known."""
        none = self.default is None and bool(self.stated) and node in self.without
        return self.stated.get(node, 0 if none else self.default)

    def state_size(self, nodes: Sequence[int], size: int | None, *, part: bool) -> None:
        """A list states how many units nodes have, or a part of a node has; None: it does not."""
        for node in nodes:
            if size is None:
                self.without.add(node)
            else:
                self.stated[node] = size + (self.stated.get(node, 0) if part else 0)

    def sizes(self, nodes: Sequence[int]) -> list[int | None]:
        """The same of several."""
        return [self.size(node) for node in nodes]

    def add(self, key: Hashable, nodes: Sequence[int], held: Sequence[Held], start_ns: int, end_ns: int) -> None:
        """A job held units of these nodes. Of several records with one key and start the latest end counts."""
        count = len(nodes)
        if not count:
            for column, value in zip(self._bare, (hash(key), start_ns, end_ns), strict=True):
                column.append(value)
        self._keys.extend([hash(key)] * count)
        self._starts.extend([start_ns] * count)
        self._ends.extend([end_ns] * count)
        self._nodes.extend(nodes)
        self._what.extend(self._held.setdefault(some, len(self._held)) for some in held)

    def name(self, key: Hashable, nodes: Sequence[int], held: Sequence[Held], start_ns: int) -> None:
        """A record without an end says which units a job has: these count, whatever records with an end state."""
        if any(isinstance(some, tuple) for some in held):
            named = tuple(nodes), tuple(held)
            run = hash(key), start_ns
            self._named[run] = max(named, self._named.get(run, named), key=repr)  # in whatever order records come

    def settle(self) -> int:
        """Give jobs the units that were named for them; returns by how much that makes more entries."""
        if not self._named:
            return 0
        ends: dict[tuple[int, int], int] = {}
        before: dict[tuple[int, int], set[int]] = {}
        hashes = list({key for key, _ in self._named})
        kept = ~np.isin(np.array(self._keys, dtype=np.int64), hashes)
        for row in np.flatnonzero(~kept).tolist():
            run = self._keys[row], self._starts[row]
            kept[row] = run not in self._named
            if not kept[row]:
                ends[run] = max(self._ends[row], ends.get(run, self._ends[row]))
                before.setdefault(run, set()).add(self._nodes[row])
        for key, start, end in zip(*self._bare, strict=True):
            if (key, start) in self._named:
                ends[key, start] = max(end, ends.get((key, start), end))
        for name in ("_keys", "_starts", "_ends", "_nodes", "_what"):
            column = getattr(self, name)
            setattr(self, name, array(column.typecode, np.array(column)[kept].tobytes()))
        more = 0
        for run, end in ends.items():
            nodes, held = self._named[run]
            more += len(nodes) - len(before.get(run, ()))
            self.add(run[0], nodes, held, run[1], end)
        self._named.clear()
        return more

    def _columns(self) -> tuple[IndexArray, NDArray[np.int32], TimeArray, TimeArray]:
        """Node, number of what is held, start and end, of records that no other one replaces."""
        keys, starts, ends = (np.array(column, dtype=np.int64) for column in (self._keys, self._starts, self._ends))
        nodes, what = (np.array(column, dtype=np.int32) for column in (self._nodes, self._what))
        order = np.lexsort((-ends, nodes, starts, keys))
        same = np.zeros(len(order), dtype=bool)
        for column in (keys, starts, nodes):
            column_in_order = column[order]
            same[1:] |= column_in_order[1:] != column_in_order[:-1]
        kept = order[same | (np.arange(len(order)) == 0)]
        return nodes[kept], what[kept], starts[kept], ends[kept]

    def intervals(self) -> NodeColumns:
        """Node, start and end of each."""
        nodes, _, starts, ends = self._columns()
        return nodes, starts, ends

    def placed(
        self, place: NDArray[np.int64], first: NDArray[np.int64], sizes: NDArray[np.int64], diagnosis: Diagnosis
    ) -> NodeColumns:
        """Unit, start and end of all: the units that are stated, else the lowest that are free when a job starts.

        Parameters
        ----------
        place
            Place of each node among the machine's, or -1.
        first, sizes
            Number of the first unit of each place, and how many there are.
        diagnosis
            Receives notes on jobs for which there were too few.
        """
        nodes, what, starts, ends = self._columns()
        at = place[nodes] if len(nodes) else np.zeros(0, dtype=np.int64)
        wants = list(self._held)
        many = np.array([len(some) if isinstance(some, tuple) else some for some in wants] or [0])[what]
        named = np.array([isinstance(some, tuple) or some == WHOLE for some in wants] or [False])[what]
        # Of jobs that start together those that name their units come first, then the long and the large ones: the
        # order of the records does not matter.
        order = np.lexsort((what, -many, -ends, ~named, starts, at))
        order = order[at[order] >= 0]
        units, begins, finishes = array("q"), array("q"), array("q")
        short = chosen = 0
        for rows in np.split(order, np.flatnonzero(np.diff(at[order])) + 1) if len(order) else ():
            here = int(at[rows[0]])
            node = _Node(int(sizes[here]))
            jobs = list(zip((wants[k] for k in what[rows].tolist()), starts[rows].tolist(), ends[rows].tolist(),
                            strict=True))  # fmt: skip
            for some, start, end in jobs:
                node.will_hold(some, start, end)
            for some, start, end in jobs:
                got, wanted = node.take(some, start, end)
                short += len(got) < wanted
                chosen += not isinstance(some, tuple) and some != WHOLE
                units.extend(int(first[here]) + unit for unit in got)
                begins.extend([start] * len(got))
                finishes.extend([end] * len(got))
        self._say(diagnosis, chosen, short, len(order))
        return (np.array(units, dtype=np.int32), np.array(begins, dtype=np.int64), np.array(finishes, dtype=np.int64))

    def _say(self, diagnosis: Diagnosis, chosen: int, short: int, total: int) -> None:
        what = self.unit.plural
        if chosen:
            why = f"the log states how many {what} of a node a job had, not which: each was given the lowest free ones"
            diagnosis.note(why, "", 0, f"{chosen:,} of {total:,} jobs x nodes", loud=True)
        if short:
            why = f"jobs had more {what} of a node than were free: they were given those that were"
            diagnosis.note(why, "", 0, f"{short:,} of {total:,} jobs x nodes", loud=True)


class _Node:
    """The units of one node, and until when each is held. Jobs come in order of their start."""

    def __init__(self, size: int) -> None:
        self._until = [-(2**63)] * size
        # Of units that jobs name: their starts, ascending, and the latest end up to each.
        self._named: list[tuple[list[int], list[int]]] = [([], []) for _ in range(size)]

    def will_hold(self, some: Held, start: int, end: int) -> None:
        """A job will hold these units: others are to leave them free if they can."""
        if isinstance(some, tuple):
            for unit in some:
                if unit < len(self._named):
                    starts, ends = self._named[unit]
                    starts.append(start)
                    ends.append(max(end, ends[-1]) if ends else end)

    def take(self, some: Held, start: int, end: int) -> tuple[list[int], int]:
        """The units that a job gets, and how many it should."""
        size = len(self._until)
        if isinstance(some, tuple):
            got, wanted = [unit for unit in some if unit < size], len(some)
        elif some == WHOLE:
            got, wanted = list(range(size)), size
        else:
            free = [unit for unit, until in enumerate(self._until) if until <= start]
            got, wanted = sorted(free, key=lambda unit: self._is_named(unit, start, end))[:some], some
        for unit in got:
            self._until[unit] = max(self._until[unit], end)
        return got, wanted

    def _is_named(self, unit: int, start: int, end: int) -> bool:
        """Whether a job names this unit during [start, end)."""
        starts, ends = self._named[unit]
        before = bisect_left(starts, end)
        return before > 0 and ends[before - 1] > start
