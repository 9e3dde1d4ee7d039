"""Units of nodes, as `ingest --unit` names them: how many a node has, and how many of them a job held."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from bft.models import InputError
from bft.replay.logs.diagnosis import Unusable

Held: TypeAlias = "int | tuple[int, ...]"
"""Units of one node that a job held: so many, just these (numbers from 0 on), or `WHOLE`."""
WHOLE: Final = -1
MAX_UNITS: Final = 1024
_CORES = re.compile(r"cpu:([1-9]\d{0,5})")
# gres/gpu=4, gres/gpu:a100=4 in TRES; gpu:4, gpu:a100:4(S:0-1), gres:gpu:4 in Gres and TresPerNode.
_TRES = re.compile(r"(?:^|,)(?:gres/)?(gpu|cpu)(:[^=,]+)?=(\d{1,9})(?![^,])")
_GRES = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?:[:/=]([A-Za-z_][^:,(=]*))?(?:[:=](\d{1,9}))?(\([^)]*\))?(?=,|$)")
# mps and shard are shares of GPUs, with their numbers.
_INDICES = re.compile(r"(?:^|,)(?:gres[:/])?(?:gpu|mps|shard)(?:[:/=][^,()]*)?\(IDX:([\d,-]+)\)")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit of the trace is: a GPU, or so many cores.

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
            raise InputError(f"--unit: expected node, gpu or cpu:N with N cores, not {text!r}")
        return None if text == "node" else cls(int(cores[1]) if cores else 0)

    @property
    def plural(self) -> str:
        """What units are, in a sentence."""
        return f"units of {self.cores} cores" if self.cores else "GPUs"

    def amount(self, gpus: int | None, cores: int | None) -> int | None:
        """Which of the two counts; None: not stated."""
        return cores if self.cores else gpus

    def room(self, size: int | None) -> int:
        """The most GPUs or cores that a node of so many units can have; None: it is not known."""
        return (MAX_UNITS if size is None else size) * max(self.cores, 1) + max(self.cores - 1, 0)

    def held(self, amounts: Sequence[int], sizes: Sequence[int | None]) -> tuple[int, ...]:
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
                raise Unusable("a job has more units than its nodes", f"{amount} of a node of {size}")
        each = max(self.cores, 1)
        return tuple(
            -(-amount // each) if size is None else min(-(-amount // each), size)
            for amount, size in zip(amounts, sizes, strict=True)
        )

    def had(self, gpus: int | None, cores: int | None) -> int | None:
        """Units of a node with so many GPUs or cores; None: not stated."""
        return gpus if not self.cores else None if cores is None else cores // self.cores


def of_tres(text: str, name: str) -> int | None:
    """The number of `gpu` or `cpu` in a list of trackable resources; of GPUs by type all types. None: not stated.

    >>> of_tres("billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1", "gpu"), of_tres("cpu=8", "gpu")
    (2, None)
    """
    entries = [(kind, int(count)) for what, kind, count in _TRES.findall(text) if what == name]
    if not entries:
        return None
    total = [count for kind, count in entries if not kind]
    return total[0] if total else sum(count for _, count in entries)


def of_gres(text: str) -> int | None:
    """The number of GPUs in generic resources of a node; None: it states none.

    >>> of_gres("gpu:a100:4(S:0-1),nvme:1"), of_gres("gres:gpu:2"), of_gres("gpu"), of_gres("(null)")
    (4, 2, 1, None)
    """
    entries = _GRES.findall(text)
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
            if not (low.isdecimal() and (high or low).isdecimal() and int(high or low) < MAX_UNITS):
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
        raise Unusable("a job has more units than its nodes", f"{total} on nodes of {sum(rooms)}")
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
        if isinstance(some, tuple) and size is not None and max(some) >= size:
            raise Unusable("a job has more units than its nodes", f"number {max(some)} of a node of {size}")
        if not isinstance(some, tuple) and some > (MAX_UNITS if size is None else size):
            raise Unusable("a job has more units than its nodes", f"{some} of a node of {size}")
