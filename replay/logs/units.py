"""Units of nodes such as GPUs: how many nodes have, how many of them jobs held, and which these were.

A log states the units of a job in:

- `slurm`: AllocTRES, else AllocGRES (up to 20.02), TresPerNode, AllocCPUS; which GPUs only `scontrol show job -d`
  tells, while a job runs (`--recipe slurm` has a line for cron).
- `slurm-json`: `tres.allocated`, and which by `gres_detail`.
- `pbs`: Torque's `exec_gpus` (which), else `exec_vnode`, `exec_host`, `Resource_List`.
- `lsf`: `ngpus_physical` on each host, slots. `kubernetes`: `resources` of the containers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.hosts import HostListError, expand
from bft.replay.logs.machine import some as such_as
from bft.replay.logs.records import Row, Unusable, hosts_of
from bft.replay.logs.times import Whole
from bft.replay.trace.node_trace import consecutive

WHOLE: Final = -1
MAX_UNITS: Final = 1024
_TOO_MANY = "a job has more units than its nodes"
# Jobs without GPUs from which on it is no chance that there are no others.
_ENOUGH_WITHOUT = 100
_CORES = re.compile(r"cpu:([1-9]\d{0,5})")
# gres/gpu=4, gres/gpu:a100=4 in TRES; gpu:4, gpu:a100:4(S:0-1), gres:gpu:4 in Gres and TresPerNode; gpu:2(IDX:0,3) of
# a job: what, its type, how many, and which.
_AMOUNT = re.compile(
    r"(?:^|,)(?:gres[:/])?(cpu|gpu|7696487|shard|mps)(?:[:/]([^:,(=]*[A-Za-z_][^:,(=]*))?(?:[:=](\d{1,9}))?"
    r"(?:\((?:IDX:([^)]*)|[^)]*)\))?(?=,|$)"
)
# AllocGRES of old releases has the number that Slurm makes of the letters of gpu; shard and mps are shares of GPUs.
_CALLED = {"7696487": "gpu", "shard": "shares", "mps": "shares"}


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

    def room(self, size: int) -> int:
        """The most GPUs or cores that a node of so many units can have."""
        return size * max(self.cores, 1) + max(self.cores - 1, 0)

    def held(self, amount: int | tuple[int, ...], size: int) -> Held:
        """Units that so many GPUs or cores of a node take, or just these; one whose cores are taken in part is taken.

        Raises
        ------
        Unusable
            When a node of that size does not have as many.

        Examples
        --------
        >>> Unit(4).held(9, 4), Unit(4).held(11, 2), Unit().held((0, 3), 4)
        (3, 2, (0, 3))
        """
        most = max(amount) + 1 if isinstance(amount, tuple) else amount
        if most > self.room(size):
            raise Unusable(_TOO_MANY, f"{most} of a node of {size}")
        if isinstance(amount, tuple):
            return amount
        return min(size, -(-amount // max(self.cores, 1)))


# --- what rows and lists state --------------------------------------------------------------------------------------


def amount(text: str, name: Literal["cpu", "gpu", "shares"]) -> int | None:
    """The number of CPUs, GPUs, or shares of GPUs (shards, MPS) in trackable or generic resources; None: not stated.

    Where the number of all types is stated, it counts.

    >>> amount("billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1", "gpu"), amount("cpu=8", "gpu")
    (2, None)
    >>> [amount(text, "gpu") for text in ("gpu:a100:4(S:0-1),nvme:1", "gres:gpu:2", "7696487:3", "gpu", "(null)")]
    [4, 2, 3, 1, None]
    """
    found = [
        (kind, int(count or 1))
        for what, kind, count, _ in _AMOUNT.findall(text)
        if _CALLED.get(what, what) == name
    ]
    of_all_types = [count for kind, count in found if not kind]
    counts = of_all_types or [count for _, count in found]
    return sum(counts) if counts else None


def indices(text: str) -> tuple[int, ...] | None:
    """The numbers of GPUs in `gpu:a100:3(IDX:0,2-3)`, of older releases `gpu(IDX:0,2-3)`; None: it states none.

    >>> indices("gpu:a100:3(IDX:0,2-3),nic:1(IDX:7)"), indices("gpu:0(IDX:)"), indices("gpu:2")
    ((0, 2, 3), None, None)
    """
    listed = [which for *_, which in _AMOUNT.findall(text) if which]
    try:
        return (
            tuple(sorted({number for which in listed for number in ids(which)})) or None
        )
    except HostListError:
        return None


def ids(text: object) -> tuple[int, ...]:
    """The numbers of a set such as 0-3,7; HostListError where it is none."""
    return tuple(int(name[1:]) for name in expand(f"u[{text}]" if text else ""))


class Sizes:
    """How many units, cores, and shares of all GPUs nodes have, by name, as lists of nodes state them.

    Parameters
    ----------
    unit
        What a unit is.
    default
        Units of a node of which nothing else states how many it has; None: not given.
    listed
        The rows of lists.
    """

    def __init__(self, unit: Unit, default: int | None, listed: Iterable[Row]) -> None:
        self.unit, self.default = unit, default
        rows = [(row, hosts_of(row)) for row in listed]
        self._listed = {host for _, hosts in rows for host in hosts}
        self._gpus, self._cores, self._shares = (
            _stated_of(rows, what) for what in ("gpus", "cores", "shares")
        )

    def units(self, host: str) -> int | None:
        """Units of a node; None: not known. It has none where a list states those of other nodes, and not its own."""
        stated = self._cores if self.unit.cores else self._gpus
        if host in stated:
            return stated[host] // max(self.unit.cores, 1)
        is_none = self.default is None and stated and host in self._listed
        return 0 if is_none else self.default

    def shared(self, hosts: Sequence[str], total: int) -> tuple[Held, ...] | None:
        """Return what a job with so many shares of GPUs holds; None where it is not known how many shares a GPU has."""
        shares = [self._shares.get(host, 0) for host in hosts]
        gpus = [self.units(host) or 0 for host in hosts]
        if not (all(shares) and all(gpus)):
            return None
        each = [max(1, some // many) for some, many in zip(shares, gpus, strict=True)]
        counts = zip(spread(total, shares), each, strict=True)
        return tuple(Shares(some, of) if some else 0 for some, of in counts)

    def are_full(self, hosts: Sequence[str], cores: int) -> bool:
        """Whether a job with so many cores leaves none of those of its nodes: nothing else can start there."""
        known = [self._cores.get(host, 0) for host in hosts]
        return all(known) and cores >= sum(known) > 0


def _stated_of(rows: Iterable[tuple[Row, Sequence[str]]], what: str) -> dict[str, int]:
    """How many hosts have by rows of lists; parts of one that is stated as a whole as well are not counted twice."""
    found: dict[str, list[int]] = {}
    for row, hosts in rows:
        is_part = bool(row.get("part"))
        for host in () if row.get(what) is None else hosts:
            counts = found.setdefault(host, [0, 0])
            counts[is_part] = row[what] + counts[is_part] * is_part
    return {host: max(counts) for host, counts in found.items()}


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
    everything: tuple[Held, ...] = (WHOLE,) * len(hosts)
    if stated is None or stated.alone:
        return everything
    unit = sizes.unit
    # Nodes of unknown size are refused, or none of the machine.
    known = [sizes.units(host) for host in hosts]
    rooms = [MAX_UNITS if size is None else size for size in known]
    times = len(hosts) if stated.each else 1
    total = stated.cores if unit.cores else stated.gpus
    held: tuple[Held, ...] = (0,) * len(hosts)
    if stated.named or (total and stated.each):
        amounts = dict(stated.named) or dict.fromkeys(hosts, total or 0)
        held = tuple(
            unit.held(amounts.get(host, 0), room)
            for host, room in zip(hosts, rooms, strict=True)
        )
    elif total is None and (unit.cores or not stated.shares):
        tell("a job states no resources: it counts as on all units of its nodes", True)
        return everything
    elif total:
        given = spread(total, [unit.room(size) for size in rooms])
        held = tuple(map(unit.held, given, rooms))
        if len(hosts) > 1 and list(held) != rooms:
            tell(
                f"the {unit.plural} of a job are known of all its nodes together: they count as spread evenly",
                False,
            )
    elif stated.shares and not unit.cores:
        shared = sizes.shared(hosts, stated.shares * times)
        if shared is None:
            tell(
                "how many shares (shards, MPS) a GPU has is not known (--nodes: scontrol show node says it): each job "
                "with some counts as on one GPU of each node",
                True,
            )
        return shared or (1,) * len(hosts)
    elif not unit.cores and sizes.are_full(hosts, (stated.cores or 0) * times):
        tell(
            "a job without GPUs has all cores of its nodes: it counts as on all their GPUs",
            False,
        )
        return everything
    if not any(held):
        tell(f"a job without {unit.plural} leaves those of its nodes idle", False)
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
        When of a node it is not known how many units it has, or none has any.
    """
    unit = sizes.unit
    found = np.full(len(names), -1, dtype=np.int64)
    for place, name in known:
        size = sizes.units(name)
        found[place] = max(found[place], -1 if size is None else size)
    unknown, none = (
        [names[place] for place in np.flatnonzero(found == count).tolist()]
        for count in (-1, 0)
    )
    if unknown:
        raise InputError(
            f"--unit {unit}: how many {unit.plural} a node has is not known of {such_as(unknown)}",
            hint="--nodes with what scontrol show node or pbsnodes -av prints, or --units-per-node N",
        )
    if not found.any():
        raise InputError(f"--unit {unit}: no node has {unit.plural}")
    if none:
        tell(
            f"nodes without {unit.plural} are left out",
            f"{len(none):,}, such as {such_as(none)}",
        )
    if len(np.unique(found[found > 0])) > 1:
        tell(
            f"nodes differ in their {unit.plural}: for jobs on several whole nodes only those with most count",
            f"{found.max()}",
        )
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
    if without >= _ENOUGH_WITHOUT and not unit.cores and set(held) <= {0, WHOLE}:
        raise InputError(
            f"--unit gpu: none of {without:,} jobs states a GPU",
            hint="is gres/gpu tracked (AccountingStorageTRES in slurm.conf)? --allow-few takes all GPUs for idle",
        )


# --- first fit ------------------------------------------------------------------------------------------------------


def placed(
    node: Whole, start: Whole, end: Whole, what: Whole, held: Sequence[Held], machine: UnitMap, unit: Unit
) -> tuple[Whole, Whole, dict[str, str]]:  # fmt: skip
    """Return the units of all jobs: those that are stated, else the lowest that are free when a job starts.

    These are the entry of each unit taken, the unit's number on the machine, and what is to be told, with a detail.

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
    from bft.replay.logs.first_fit import first_fit

    pieces = [_pieces(some, machine.per_node) for some in held]
    count = np.array([len(each) for each in pieces], dtype=np.int64)
    table = np.array([piece for each in pieces for piece in each], dtype=np.int64)
    number, part, of = table.reshape(-1, 3).T.copy()
    is_listed = np.array([isinstance(some, tuple) for some in held], dtype=bool)
    chosen = ~is_listed & np.array([some != WHOLE for some in held], dtype=bool)
    _, rank = np.unique([repr(some) for some in held], return_inverse=True)
    # Of jobs that start together those that name their units come first, then the long and the large ones: the order
    # of the records does not matter.
    order = np.lexsort((rank[what], -count[what], -end, chosen[what], start, node))
    order = order[(node[order] >= 0) & (count[what[order]] > 0)]
    what, start, end = what[order], start[order], end[order]
    low, sizes = machine.first[node[order]], machine.sizes[node[order]]
    row = np.repeat(np.arange(len(order)), count[what])
    piece = consecutive((np.cumsum(count) - count)[what], count[what])
    there = number[piece] < sizes[row]
    row, piece = row[there], piece[there]
    taken = np.where(number[piece] < 0, -1, low[row] + number[piece])
    # Of each unit where the spans begin for which jobs name it, their starts, and the latest end up to each.
    named = np.flatnonzero(is_listed[what[row]])
    named = named[np.lexsort((start[row[named]], taken[named]))]
    ends, ranked = np.unique(end[row[named]], return_inverse=True)
    reach = np.maximum.accumulate(taken[named] * len(ends) + ranked) % max(1, len(ends))
    first_fit(
        start, end, low, low + sizes, row, taken, part[piece], of[piece],
        np.searchsorted(taken[named], np.arange(machine.total + 1)), start[row[named]], ends[reach],
    )  # fmt: skip
    counts = {
        f"the log states how many {unit.plural} of a node a job had, not which: each was given the lowest free ones": (
            np.count_nonzero(chosen[what])
        ),
        f"jobs had more {unit.plural} of a node than were free: they were given those that were": (
            len(np.unique(row[taken < 0]))
        ),
    }
    total = f"{len(order):,} jobs x nodes"
    notes = {why: f"{rows:,} of {total}" for why, rows in counts.items() if rows}
    return order[row[taken >= 0]], taken[taken >= 0], notes


def _pieces(some: Held, most: int) -> list[tuple[int, int, int]]:
    """Of each unit that is held of a node with so many at the most: its number (-1: any), and shares of how many."""
    if isinstance(some, Shares):
        full, rest = divmod(some.count, some.of)
        shares = [some.of] * full + [rest] * (rest > 0)
        return [(-1, share, some.of) for share in shares]
    if isinstance(some, int):
        some = tuple(range(most)) if some == WHOLE else (-1,) * some
    return [(number, 1, 1) for number in some]
