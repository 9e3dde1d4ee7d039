"""Units of nodes such as GPUs: their number on each node, and the jobs that held some of them."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.diagnosis import Diagnosis, Unusable
from bft.replay.trace.node_trace import IndexArray, TimeArray


@dataclass(frozen=True, slots=True)
class Shares:
    """So many shares of GPUs of a node (shards, MPS), of which one GPU has `of`; true if there are any."""

    count: int
    of: int

    def __bool__(self) -> bool:
        return self.count > 0


Held: TypeAlias = "int | tuple[int, ...] | Shares"
"""Units of one node that a job held: so many, just these (numbers from 0 on), `WHOLE`, or shares of some."""
WHOLE: Final = -1
MAX_UNITS: Final = 1024
_CORES = re.compile(r"cpu:([1-9]\d{0,5})")
# gres/gpu=4, gres/gpu:a100=4 in TRES; gpu:4, gpu:a100:4(S:0-1), gres:gpu:4 in Gres and TresPerNode.
_TRES = re.compile(r"(?:^|,)(?:gres/)?(gpu|cpu|shard|mps)(:[^=,]+)?=(\d{1,9})(?![^,])")
# AllocGRES of old releases has the number that Slurm makes of the letters of gpu.
_GRES = {
    kind: re.compile(
        rf"(?:^|,)(?:gres[:/])?(?:{name})(?:[:/=]([A-Za-z_][^:,(=]*))?(?:[:=](\d{{1,9}}))?(\([^)]*\))?(?=,|$)"
    )
    for kind, name in (("gpu", "gpu|7696487"), ("shares", "shard|mps"))
}
# mps and shard are shares of GPUs, with their numbers.
_INDICES = re.compile(
    r"(?:^|,)(?:gres[:/])?(?:gpu|mps|shard)(?:[:/=][^,()]*)?\(IDX:([\d,-]+)\)"
)


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a trace: a GPU, or a number of cores.

    Parameters
    ----------
    cores
        Cores of a unit; 0: a unit is a GPU.

    Examples
    --------
    >>> Unit.of("gpu"), Unit.of("cpu:8"), Unit.of("node")
    (Unit(cores=0), Unit(cores=8), None)
    """

    cores: int = 0

    def __str__(self) -> str:
        return f"cpu:{self.cores}" if self.cores else "gpu"

    @classmethod
    def of(cls, text: str) -> Unit | None:
        """The unit that `--unit` names; None for whole nodes.

        Raises
        ------
        InputError
            When it names none.
        """
        cores = _CORES.fullmatch(text)
        if text != "node" and text != "gpu" and not cores:
            raise InputError(
                f"--unit: expected node, gpu or cpu:N with N cores, not {text!r}"
            )
        return None if text == "node" else cls(int(cores[1]) if cores else 0)

    @property
    def plural(self) -> str:
        """Return the word for several units in a sentence."""
        return f"units of {self.cores} cores" if self.cores else "GPUs"

    def amount(self, gpus: int | None, cores: int | None) -> int | None:
        """Which of the two counts; None: not stated."""
        return cores if self.cores else gpus

    def room(self, size: int | None) -> int:
        """The most GPUs or cores that a node of so many units can have; None: it is not known."""
        return (MAX_UNITS if size is None else size) * max(self.cores, 1) + max(
            self.cores - 1, 0
        )

    def held(
        self, amounts: Sequence[int], sizes: Sequence[int | None]
    ) -> tuple[int, ...]:
        """Units that so many GPUs or cores of each node take: one whose cores are taken in part is taken.

        Raises
        ------
        Unusable
            When a node of that size does not have as many.

        Examples
        --------
        >>> Unit(4).held([9, 11, 11], [None, 4, 2]), Unit().held([2], [4])
        ((3, 3, 2), (2,))
        """
        for amount, size in zip(amounts, sizes, strict=True):
            if size is not None and amount > self.room(size):
                raise Unusable(
                    "a job has more units than its nodes",
                    f"{amount} of a node of {size}",
                )
        each = max(self.cores, 1)
        return tuple(
            -(-amount // each) if size is None else min(-(-amount // each), size)
            for amount, size in zip(amounts, sizes, strict=True)
        )

    def had(self, gpus: int | None, cores: int | None) -> int | None:
        """Units of a node with so many GPUs or cores; None: not stated."""
        return (
            gpus if not self.cores else None if cores is None else cores // self.cores
        )


def of_tres(text: str, *names: str) -> int | None:
    """The number of `gpu`, `cpu`, `shard` or `mps` in a list of trackable resources; by type all types.

    None: not stated.

    >>> of_tres("billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1", "gpu"), of_tres("cpu=8", "gpu")
    (2, None)
    """
    entries = [
        (kind, int(count)) for what, kind, count in _TRES.findall(text) if what in names
    ]
    if not entries:
        return None
    total = [count for kind, count in entries if not kind]
    return total[0] if total else sum(count for _, count in entries)


def of_gres(text: str, kind: Literal["gpu", "shares"] = "gpu") -> int | None:
    """The number of GPUs, or of shares of GPUs (shards, MPS), in generic resources; None: they state none.

    >>> [of_gres(text) for text in ("gpu:a100:4(S:0-1),nvme:1", "gres:gpu:2", "7696487:3", "gpu", "(null)")]
    [4, 2, 3, 1, None]
    >>> of_gres("gpu:a100:4,shard:a100:32(S:0-1)", "shares"), of_gres("gpu:4", "shares")
    (32, None)
    """
    entries = _GRES[kind].findall(text)
    return sum(int(count or 1) for _, count, _ in entries) if entries else None


def indices(text: str) -> tuple[int, ...] | None:
    """The numbers of GPUs in `gpu:a100:3(IDX:0,2-3)`, of older releases `gpu(IDX:0,2-3)`; None: it states none.

    >>> indices("gpu:a100:3(IDX:0,2-3),nic:1(IDX:7)"), indices("gpu:0(IDX:)"), indices("gpu:2")
    ((0, 2, 3), None, None)
    """
    numbers: set[int] = set()
    for listed in _INDICES.findall(text):
        for part in listed.split(","):
            low, _, high = part.partition("-")
            if not (
                low.isdecimal()
                and (high or low).isdecimal()
                and int(high or low) < MAX_UNITS
            ):
                return None
            numbers.update(range(int(low), int(high or low) + 1))
    return tuple(sorted(numbers)) or None


def spread(total: int, rooms: Sequence[int]) -> tuple[int, ...]:
    """A total over nodes with so much room, evenly, the first nodes one more; on none more than it has room for.

    Raises
    ------
    Unusable
        When all nodes together have less.

    Examples
    --------
    >>> spread(6, [4, 4]), spread(5, [9, 9]), spread(6, [2, 8])
    ((3, 3), (3, 2), (2, 4))
    """
    if total > sum(rooms):
        raise Unusable(
            "a job has more units than its nodes", f"{total} on nodes of {sum(rooms)}"
        )
    given = [0] * len(rooms)
    smallest_first = sorted(range(len(rooms)), key=lambda place: (rooms[place], -place))
    for left, place in zip(range(len(rooms), 0, -1), smallest_first, strict=True):
        given[place] = min(total // left, rooms[place])
        total -= given[place]
    return tuple(given)


def check(named: Sequence[Held], sizes: Sequence[int | None]) -> None:
    """Refuse a job with a GPU of a number that its node does not have, or with more GPUs.

    Raises
    ------
    Unusable
        When it has one.
    """
    for some, size in zip(named, sizes, strict=True):
        if isinstance(some, Shares):
            continue
        if isinstance(some, tuple) and size is not None and max(some) >= size:
            raise Unusable(
                "a job has more units than its nodes",
                f"number {max(some)} of a node of {size}",
            )
        if not isinstance(some, tuple) and some > (MAX_UNITS if size is None else size):
            raise Unusable(
                "a job has more units than its nodes", f"{some} of a node of {size}"
            )


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
    cores, shares
        Of nodes, as lists state them, cores and shares of all GPUs.
    """

    def __init__(self, unit: Unit, default: int | None = None) -> None:
        self.unit, self.default = unit, default
        self.stated: dict[int, int] = {}
        self.without: set[int] = set()
        self.cores: dict[int, int] = {}
        self.shares: dict[int, int] = {}
        self._held: dict[Held, int] = {}  # what jobs hold of a node, numbered
        # What records without an end name, by hash of the job's key and start: nodes, and what is held of each.
        self._named: dict[
            tuple[int, int], tuple[tuple[int, ...], tuple[Held, ...]]
        ] = {}
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

    def state_more(
        self, nodes: Sequence[int], cores: int | None, shares: int | None
    ) -> None:
        """A list states the cores, and the shares of GPUs, that nodes have; None: it does not."""
        if cores:
            self.cores.update(dict.fromkeys(nodes, cores))
        if shares:
            self.shares.update(dict.fromkeys(nodes, shares))

    def shared(self, nodes: Sequence[int], total: int) -> tuple[Held, ...] | None:
        """Return what a job with so many shares of GPUs holds; None where it is not known how many shares a GPU has."""
        per_gpu = []
        for node in nodes:
            shares, gpus = self.shares.get(node, 0), self.size(node)
            if not shares or not gpus:
                return None
            per_gpu.append(max(1, shares // gpus))
        counts = spread(total, [self.shares[node] for node in nodes])
        return tuple(map(Shares, counts, per_gpu))

    def are_full(self, nodes: Sequence[int], cores: int | None) -> bool:
        """Whether a job with so many cores leaves none of those of its nodes: nothing else can start there."""
        known = [self.cores[node] for node in nodes if node in self.cores]
        return bool(cores) and len(known) == len(nodes) and (cores or 0) >= sum(known)

    def names_none(self) -> int:
        """How many jobs have no units, where none has any but the whole of its nodes; otherwise 0."""
        named = any(some and some != WHOLE for some in self._held)
        return 0 if named else len(self._bare[0])

    def sizes(self, nodes: Sequence[int]) -> list[int | None]:
        """Return the units of several nodes, as `size` does of one."""
        return [self.size(node) for node in nodes]

    def add(
        self,
        key: Hashable,
        nodes: Sequence[int],
        held: Sequence[Held],
        start_ns: int,
        end_ns: int,
    ) -> None:
        """A job held units of these nodes. Of several records with one key and start the latest end counts."""
        count = len(nodes)
        if not count:
            for column, value in zip(
                self._bare, (hash(key), start_ns, end_ns), strict=True
            ):
                column.append(value)
        self._keys.extend([hash(key)] * count)
        self._starts.extend([start_ns] * count)
        self._ends.extend([end_ns] * count)
        self._nodes.extend(nodes)
        self._what.extend(self._held.setdefault(some, len(self._held)) for some in held)

    def name(
        self, key: Hashable, nodes: Sequence[int], held: Sequence[Held], start_ns: int
    ) -> None:
        """A record without an end says which units a job has: these count, whatever records with an end state."""
        if any(isinstance(some, tuple) for some in held):
            named = tuple(nodes), tuple(held)
            run = hash(key), start_ns
            self._named[run] = max(
                named, self._named.get(run, named), key=repr
            )  # in whatever order records come

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
            setattr(
                self, name, array(column.typecode, np.array(column)[kept].tobytes())
            )
        more = 0
        for run, end in ends.items():
            nodes, held = self._named[run]
            more += len(nodes) - len(before.get(run, ()))
            self.add(run[0], nodes, held, run[1], end)
        self._named.clear()
        return more

    def _columns(self) -> tuple[IndexArray, NDArray[np.int32], TimeArray, TimeArray]:
        """Node, number of what is held, start and end, of records that no other one replaces."""
        keys, starts, ends = (
            np.array(column, dtype=np.int64)
            for column in (self._keys, self._starts, self._ends)
        )
        nodes, what = (
            np.array(column, dtype=np.int32) for column in (self._nodes, self._what)
        )
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
        self,
        place: NDArray[np.int64],
        first: NDArray[np.int64],
        sizes: NDArray[np.int64],
        diagnosis: Diagnosis,
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
        many = np.array([_gpus_of(some) for some in wants] or [0])[what]
        named = np.array(
            [isinstance(some, tuple) or some == WHOLE for some in wants] or [False]
        )[what]
        # Of jobs that start together those that name their units come first, then the long and the large ones: the
        # order of the records does not matter.
        order = np.lexsort((what, -many, -ends, ~named, starts, at))
        order = order[at[order] >= 0]
        units, begins, finishes = array("q"), array("q"), array("q")
        short = chosen = 0
        for rows in (
            np.split(order, np.flatnonzero(np.diff(at[order])) + 1)
            if len(order)
            else ()
        ):
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
        return (
            np.array(units, dtype=np.int32),
            np.array(begins, dtype=np.int64),
            np.array(finishes, dtype=np.int64),
        )

    def _say(self, diagnosis: Diagnosis, chosen: int, short: int, total: int) -> None:
        what = self.unit.plural
        if chosen:
            why = f"the log states how many {what} of a node a job had, not which: each was given the lowest free ones"
            diagnosis.note(
                why, "", 0, f"{chosen:,} of {total:,} jobs x nodes", loud=True
            )
        if short:
            why = f"jobs had more {what} of a node than were free: they were given those that were"
            diagnosis.note(
                why, "", 0, f"{short:,} of {total:,} jobs x nodes", loud=True
            )


def _gpus_of(some: Held) -> int:
    """How many units that is; `WHOLE` stays."""
    if isinstance(some, Shares):
        return -(-some.count // some.of)
    return len(some) if isinstance(some, tuple) else some


class _Node:
    """The units of one node, and until when each is held. Jobs come in order of their start."""

    def __init__(self, size: int) -> None:
        self._until = [-(2**63)] * size
        # Of units that jobs name: their starts, ascending, and the latest end up to each.
        self._named: list[tuple[list[int], list[int]]] = [([], []) for _ in range(size)]
        # Of units of which jobs hold shares: until when each holds how many.
        self._shares: list[list[tuple[int, int]]] = [[] for _ in range(size)]

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
        if isinstance(some, Shares):
            got, wanted = self._shared(some, start, end), _gpus_of(some)
        elif isinstance(some, tuple):
            got, wanted = [unit for unit in some if unit < size], len(some)
        elif some == WHOLE:
            got, wanted = list(range(size)), size
        else:
            free = [unit for unit, until in enumerate(self._until) if until <= start]
            got, wanted = (
                sorted(free, key=lambda unit: self._is_named(unit, start, end))[:some],
                some,
            )
        for unit in got:
            self._until[unit] = max(self._until[unit], end)
        return got, wanted

    def _shared(self, some: Shares, start: int, end: int) -> list[int]:
        """The units on which a job gets its shares: the first with room, as in Slurm."""
        got: list[int] = []
        left = some.count
        while left > 0:
            fits: list[tuple[bool, int]] = []
            for unit, held in enumerate(self._shares):
                held[:] = [(until, count) for until, count in held if until > start]
                used = sum(count for _, count in held)
                free = not used and self._until[unit] <= start
                if (used or free) and used + min(left, some.of) <= some.of:
                    fits.append((self._is_named(unit, start, end), unit))
            if not fits:
                break
            unit = min(fits)[1]
            self._shares[unit].append((end, min(left, some.of)))
            got.append(unit)
            left -= some.of
        return got

    def _is_named(self, unit: int, start: int, end: int) -> bool:
        """Whether a job names this unit during [start, end)."""
        starts, ends = self._named[unit]
        before = bisect_left(starts, end)
        return before > 0 and ends[before - 1] > start
