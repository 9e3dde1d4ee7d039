"""Units of nodes such as GPUs: how many nodes have, how many of them jobs held, and which these were."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.machine import some as such_as
from bft.replay.logs.records import Unusable
from bft.replay.logs.times import Whole
from bft.replay.trace.node_trace import consecutive

WHOLE: Final = -1
MAX_UNITS: Final = 1024
_TOO_MANY = "a job has more units than its nodes"
# Jobs without GPUs from which on it is no chance that there are no others.
_ENOUGH_WITHOUT = 100
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
class Stated:
    """What a row states of the units that its job held.

    Parameters
    ----------
    gpus, cores, shares
        GPUs, cores, and shares of GPUs (shards, MPS); None: not stated.
    each
        Whether these numbers are of each of its nodes, not of all together.
    alone
        Whether it has its nodes alone, and so all of their units.
    named
        Hosts and how many units (GPUs, or cores where these are asked for) it has of each, or the numbers of its GPUs;
        hosts that are not there it has none of. Empty: not stated.
    """

    gpus: int | None = None
    cores: int | None = None
    shares: int | None = None
    each: bool = False
    alone: bool = False
    named: tuple[tuple[str, int | tuple[int, ...]], ...] = ()

    @property
    def numbered(self) -> bool:
        """Whether it states the numbers of GPUs."""
        return any(isinstance(some, tuple) for _, some in self.named)


@dataclass(frozen=True, slots=True)
class Shares:
    """So many shares of GPUs of a node (shards, MPS), of which one GPU has `of`."""

    count: int
    of: int


Held: TypeAlias = "int | tuple[int, ...] | Shares"
"""Units of one node that a job held: so many, just these (numbers from 0 on), `WHOLE`, or shares of some."""


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

    def room(self, size: int | None) -> int:
        """The most GPUs or cores that a node of so many units can have; None: it is not known."""
        units = MAX_UNITS if size is None else size
        return units * max(self.cores, 1) + max(self.cores - 1, 0)

    def held(self, amount: int, size: int | None) -> int:
        """Units that so many GPUs or cores of a node take: one whose cores are taken in part is taken.

        Raises
        ------
        Unusable
            When a node of that size does not have as many.

        Examples
        --------
        >>> Unit(4).held(9, None), Unit(4).held(11, 2), Unit().held(2, 4)
        (3, 2, 2)
        """
        if amount > self.room(size):
            raise Unusable(_TOO_MANY, f"{amount} of a node of {size}")
        units = -(-amount // max(self.cores, 1))
        return units if size is None else min(units, size)


# --- what rows and lists state --------------------------------------------------------------------------------------


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


class Sizes:
    """How many units, cores, and shares of all GPUs nodes have, by name, as lists of nodes state them.

    Parameters
    ----------
    unit
        What a unit is.
    default
        Units of a node of which nothing else states how many it has; None: not given.
    """

    def __init__(self, unit: Unit, default: int | None = None) -> None:
        self.unit, self.default = unit, default
        self._listed: set[str] = set()
        # By what is stated, host, and whether it is of a part of the host.
        self._stated: dict[tuple[str, str, bool], int] = {}

    def state(
        self, hosts: Sequence[str], gpus: int | None, cores: int | None, shares: int | None, *, part: bool = False
    ) -> None:  # fmt: skip
        """Take what a list states that nodes have, or that a part of each node has; None: it does not state it."""
        self._listed.update(hosts)
        amounts = {"gpus": gpus, "cores": cores, "shares": shares}
        for what in [what for what, amount in amounts.items() if amount is not None]:
            for host in ["", *hosts]:
                before = self._stated.get((what, host, part), 0) if part else 0
                self._stated[what, host, part] = before + (amounts[what] or 0)

    def _of(self, what: str, host: str) -> int | None:
        """What is stated of a node; the parts of one that is stated as a whole as well are not counted twice."""
        stated = (self._stated.get((what, host, part)) for part in (False, True))
        return max((each for each in stated if each is not None), default=None)

    def units(self, host: str) -> int | None:
        """Units of a node; None: not known. It has none where a list states those of other nodes, and not its own."""
        what = "cores" if self.unit.cores else "gpus"
        stated = self._of(what, host)
        if stated is not None:
            return stated // max(self.unit.cores, 1)
        lists_state_it = self._of(what, "") is not None and host in self._listed
        return 0 if lists_state_it and self.default is None else self.default

    def shared(self, hosts: Sequence[str], total: int) -> tuple[Held, ...] | None:
        """Return what a job with so many shares of GPUs holds; None where it is not known how many shares a GPU has."""
        shares = [self._of("shares", host) or 0 for host in hosts]
        gpus = [self.units(host) or 0 for host in hosts]
        if not (all(shares) and all(gpus)):
            return None
        each = [max(1, some // many) for some, many in zip(shares, gpus, strict=True)]
        counts = spread(total, shares)
        return tuple(
            Shares(*pair) if pair[0] else 0 for pair in zip(counts, each, strict=True)
        )

    def are_full(self, hosts: Sequence[str], cores: int | None) -> bool:
        """Whether a job with so many cores leaves none of those of its nodes: nothing else can start there."""
        known = [self._of("cores", host) or 0 for host in hosts]
        return bool(cores) and all(known) and (cores or 0) >= sum(known)


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
        raise Unusable(_TOO_MANY, f"{total} on nodes of {sum(rooms)}")
    given = [0] * len(rooms)
    smallest_first = sorted(range(len(rooms)), key=lambda place: (rooms[place], -place))
    for left, place in zip(range(len(rooms), 0, -1), smallest_first, strict=True):
        given[place] = min(total // left, rooms[place])
        total -= given[place]
    return tuple(given)


def held_of(
    stated: Stated | None, hosts: Sequence[str], sizes: Sizes, tell: Callable[[str, bool], None]
) -> tuple[Held, ...]:  # fmt: skip
    """Return the units that a job held of each of its nodes.

    Parameters
    ----------
    stated
        What its row states; None: it held all units of its nodes.
    hosts
        Its nodes.
    sizes
        What nodes have.
    tell
        Is told what is worth telling of the row, and whether that is a warning.

    Raises
    ------
    Unusable
        When that is more than the nodes have.
    """
    unit = sizes.unit
    everything: tuple[Held, ...] = (WHOLE,) * len(hosts)
    if stated is None or stated.alone:
        return everything
    rooms = [sizes.units(host) for host in hosts]
    times = len(hosts) if stated.each else 1
    cores = None if stated.cores is None else stated.cores * times
    total = stated.gpus
    if unit.cores:
        total = stated.cores
    held: tuple[Held, ...] = (0,) * len(hosts)
    if stated.named:
        held = _named(dict(stated.named), hosts, rooms, unit)
    elif total is None and (unit.cores or not stated.shares):
        tell("a job states no resources: it counts as on all units of its nodes", True)
        return everything
    elif total and stated.each:
        held = tuple(unit.held(total, size) for size in rooms)
    elif total:
        given = spread(total, [unit.room(size) for size in rooms])
        held = tuple(map(unit.held, given, rooms))
        if len(hosts) > 1 and list(held) != rooms:
            why = f"the {unit.plural} of a job are known of all its nodes together: they count as spread evenly"
            tell(why, False)
    elif stated.shares and not unit.cores:
        return _shared(stated.shares * times, hosts, sizes, tell)
    elif not unit.cores and sizes.are_full(hosts, cores):
        why = "a job without GPUs has all cores of its nodes: it counts as on all their GPUs"
        tell(why, False)
        return everything
    if not any(held):
        tell(f"a job without {unit.plural} leaves those of its nodes idle", False)
    return held


def _named(
    named: dict[str, int | tuple[int, ...]], hosts: Sequence[str], rooms: Sequence[int | None], unit: Unit
) -> tuple[Held, ...]:  # fmt: skip
    """Units of each host by what is stated of it."""
    held: list[Held] = []
    for host, room in zip(hosts, rooms, strict=True):
        some = named.get(host) or 0
        if isinstance(some, int):
            held.append(unit.held(some, room))
            continue
        if max(some) >= (MAX_UNITS if room is None else room):
            raise Unusable(_TOO_MANY, f"number {max(some)} of a node of {room}")
        held.append(some)
    return tuple(held)


def _shared(
    total: int, hosts: Sequence[str], sizes: Sizes, tell: Callable[[str, bool], None]
) -> tuple[Held, ...]:  # fmt: skip
    held = sizes.shared(hosts, total)
    if held is None:
        why = "how many shares (shards, MPS) a GPU has is not known (--nodes: scontrol show node says it): each job "
        tell(f"{why}with some counts as on one GPU of each node", True)
        return (1,) * len(hosts)
    return held


# --- the units of a machine -----------------------------------------------------------------------------------------


class UnitMap:
    """The units of a machine's nodes, numbered from node to node.

    Parameters
    ----------
    sizes
        Units of each node; nodes without any are no part of the trace.
    """

    def __init__(self, sizes: Whole) -> None:
        self.sizes = sizes
        self.total, self.per_node = int(sizes.sum()), int(sizes.max(initial=0))
        self.first = np.cumsum(sizes) - sizes
        # Among the nodes that have units.
        self._rank = np.cumsum(sizes > 0) - 1

    def of_nodes(
        self, node: Whole, begin: Whole, end: Whole
    ) -> tuple[Whole, Whole, Whole]:
        """Intervals of nodes as intervals of each of their units."""
        sizes = self.sizes[node]
        units = consecutive(self.first[node], sizes)
        return units, np.repeat(begin, sizes), np.repeat(end, sizes)

    def node_of(self, units: Whole) -> Whole:
        """The node of each unit."""
        return np.searchsorted(self.first + self.sizes, units, side="right")

    def slots(self, units: Whole) -> NDArray[np.int32]:
        """Number of each unit where all nodes that have any take as much room as the largest, as traces have it."""
        node = self.node_of(units)
        slots = self._rank[node] * self.per_node + units - self.first[node]
        return slots.astype(np.int32)


def units_of_machine(
    sizes: Sizes, known: Sequence[tuple[int, str]], names: Sequence[str], tell: Callable[[str, str], None]
) -> UnitMap:  # fmt: skip
    """Return the units of the machine's nodes.

    Parameters
    ----------
    sizes
        What nodes have.
    known
        Each node's place and each name by which lists or logs know it; a list may state what it has by one of them.
    names
        The machine's nodes, by their places.
    tell
        Receives warnings, with a detail.

    Raises
    ------
    InputError
        When of a node it is not known how many units it has, when one has more than any node, or none has any.
    """
    unit = sizes.unit
    found = np.full(len(names), -1, dtype=np.int64)
    for place, name in known:
        size = sizes.units(name)
        if size is not None:
            found[place] = max(size, int(found[place]))
    if (found < 0).any():
        unknown = [names[place] for place in np.flatnonzero(found < 0).tolist()]
        raise InputError(
            f"--unit {unit}: how many {unit.plural} a node has is not known of {such_as(unknown)}",
            hint="--nodes with what scontrol show node or pbsnodes -av prints, or --units-per-node N",
        )
    if found.max(initial=0) > MAX_UNITS:
        name = names[int(found.argmax())]
        raise InputError(
            f"node {name} has {found.max()} {unit.plural}; at most {MAX_UNITS} are read"
        )
    if not found.any():
        raise InputError(f"--unit {unit}: no node has {unit.plural}")
    none = [names[place] for place in np.flatnonzero(found == 0).tolist()]
    if none:
        tell(
            f"nodes without {unit.plural} are left out",
            f"{len(none):,}, such as {such_as(none)}",
        )
    if len(np.unique(found[found > 0])) > 1:
        why = f"nodes differ in their {unit.plural}: for jobs on several whole nodes only those with most count"
        tell(why, f"{found.max()}")
    return UnitMap(found)


def refuse_untracked(unit: Unit, held: Sequence[Held], without: int) -> None:
    """Refuse logs of which no job holds any GPU but for jobs that hold whole nodes: GPUs are not tracked.

    Parameters
    ----------
    unit
        What a unit is.
    held
        Each thing that any job holds of a node.
    without
        How many jobs hold nothing.
    """
    any_held = any(some and some != WHOLE for some in held)
    if without >= _ENOUGH_WITHOUT and not (unit.cores or any_held):
        raise InputError(
            f"--unit gpu: none of {without:,} jobs states a GPU",
            hint="is gres/gpu tracked (AccountingStorageTRES in slurm.conf)? --allow-few takes all GPUs for idle",
        )


# --- first fit ------------------------------------------------------------------------------------------------------


class Placed(NamedTuple):
    """Units that jobs were given.

    Parameters
    ----------
    row, unit
        Of each unit taken: the row of those that were placed, and the unit's number on the machine.
    notes
        What is to be told of it, with a detail.
    """

    row: Whole
    unit: Whole
    notes: list[tuple[str, str]]


def placed(
    node: Whole, start: Whole, end: Whole, what: Whole, held: Sequence[Held], machine: UnitMap, unit: Unit
) -> Placed:  # fmt: skip
    """Return the units of all jobs: those that are stated, else the lowest that are free when a job starts.

    Parameters
    ----------
    node, start, end, what
        Of each job and node: the node's place (-1: none of the machine), the job's start and end, and what it holds as
        an index of `held`.
    held
        Each thing that any job holds of a node.
    machine
        Numbers the units.
    unit
        What a unit is called.
    """
    from bft.replay.logs.first_fit import ALL, COUNTED, LISTED, SHARED, first_fit

    wishes, numbers = [(COUNTED, 0, 1, 0)], [0]
    for some in held:
        if isinstance(some, tuple):
            wishes.append((LISTED, len(some), 1, len(numbers)))
            numbers += some
        elif isinstance(some, Shares):
            wishes.append((SHARED, some.count, some.of, 0))
        else:
            wishes.append((ALL if some == WHOLE else COUNTED, max(some, 0), 1, 0))
    kind, count, of, begin = np.array(wishes[1:] or wishes, dtype=np.int64).T.copy()
    listed = np.array(numbers, dtype=np.int64)
    canonical = sorted(range(len(held)), key=lambda place: repr(held[place]))
    rank = np.argsort(np.array(canonical, dtype=np.int64))
    chosen = (kind == COUNTED) | (kind == SHARED)
    units = -(-count // of)
    # Of jobs that start together those that name their units come first, then the long and the large ones: the order
    # of the records does not matter.
    order = np.lexsort((rank[what], -units[what], -end, chosen[what], start, node))
    holds = (node >= 0) & ((units[what] > 0) | (kind[what] == ALL))
    order = order[holds[order]]
    what, start, end = what[order], start[order], end[order]
    low, sizes = machine.first[node[order]], machine.sizes[node[order]]
    wanted = np.where(kind[what] == ALL, sizes, units[what])
    rows = np.flatnonzero(kind[what] == LISTED)
    names = count[what[rows]]
    of_row = np.repeat(rows, names)
    number = listed[consecutive(begin[what[rows]], names)]
    there = number < sizes[of_row]
    spans = _by_unit(
        (low[of_row] + number)[there],
        start[of_row[there]],
        end[of_row[there]],
        machine.total,
    )
    taken = np.zeros((2, int(wanted.sum())), dtype=np.int64)
    jobs = start, end, low, low + sizes, what
    taken = taken[:, : first_fit(*jobs, kind, count, of, begin, listed, *spans, taken)]
    got = np.bincount(taken[0], minlength=len(order))
    some_chosen, short = np.count_nonzero(chosen[what]), np.count_nonzero(got < wanted)
    total = f"{len(order):,} jobs x nodes"
    why = f"the log states how many {unit.plural} of a node a job had, not which: each was given the lowest free ones"
    notes = [(why, f"{some_chosen:,} of {total}")] if some_chosen else []
    why = f"jobs had more {unit.plural} of a node than were free: they were given those that were"
    notes += [(why, f"{short:,} of {total}")] if short else []
    return Placed(order[taken[0]], taken[1], notes)


def _by_unit(
    unit: Whole, start: Whole, end: Whole, total: int
) -> tuple[Whole, Whole, Whole]:
    """Where the spans of each unit begin, by unit, their starts, ascending, and the latest end up to each."""
    order = np.lexsort((start, unit))
    unit = unit[order]
    ends, rank = np.unique(end[order], return_inverse=True)
    reach = np.maximum.accumulate(unit * len(ends) + rank) % max(1, len(ends))
    return np.searchsorted(unit, np.arange(total + 1)), start[order], ends[reach]
