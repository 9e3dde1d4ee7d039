"""Which unit is which, once the counts are decided. Nothing migrates.

>>> settle([[3, 1], [0]], [1, 2], free=[2])
[[3], [0, 1]]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop

from bft.milp.problem import Transfer


def settle(
    current: Sequence[Sequence[int]], counts: Sequence[int], free: Iterable[int]
) -> list[list[int]]:
    """Give each job its count: a shrinking job releases its newest units, a growing one takes free ones.

    Parameters
    ----------
    current
        Units of each job, oldest first.
    counts
        Units that each job will have.
    free
        Units without a holder; lowest numbers are taken first. Units released here become free too.

    Returns
    -------
    list of lists
        Units of each job, oldest first. Each is a prefix or an extension of what it was.

    Examples
    --------
    >>> settle([[0, 1], []], [1, 2], free=[2, 3])
    [[0], [1, 2]]
    """
    kept = [list(units[:n]) for units, n in zip(current, counts, strict=True)]
    pool = [
        *free,
        *(unit for units, n in zip(current, counts, strict=True) for unit in units[n:]),
    ]
    heapify(pool)
    for units, n in zip(kept, counts, strict=True):
        units.extend(heappop(pool) for _ in range(n - len(units)))
    return kept


def settle_shared(
    current: Sequence[Sequence[int]], transfers: Sequence[Transfer], units: int
) -> list[list[int]]:
    """Carry out transfers between classes of units 0 ... units - 1. Jobs keep the oldest units of a class.

    Parameters
    ----------
    current
        Units of each job, oldest first; a unit may appear under two jobs.
    transfers
        As in `Solution.transfers`.
    units
        Number of units.

    Returns
    -------
    list of lists
        Units of each job: what it keeps in the order it had, then what it gains.
    """
    holders: dict[int, tuple[int, ...]] = {}
    for j, held in enumerate(current):
        for unit in held:
            holders[unit] = (*holders.get(unit, ()), j)
    classes: dict[tuple[int, ...], list[int]] = {}
    for unit in holders:
        classes.setdefault(holders[unit], []).append(unit)
    classes[()] = [unit for unit in range(units) if unit not in holders]
    return move(current, classes, transfers)


def move(
    current: Sequence[Sequence[int]],
    classes: Mapping[tuple[int, ...], Sequence[int]],
    transfers: Sequence[Transfer],
) -> list[list[int]]:
    """Units of each job after the transfers; `classes` lists the units of each class, those to be kept first.

    >>> stays, goes = Transfer((0,), (0,), units=1), Transfer((0,), (1,), units=1)
    >>> move([[0, 1], []], {(0,): [0, 1]}, [stays, goes])
    [[0], [1]]
    """
    gone: list[set[int]] = [set() for _ in current]
    gained: list[list[int]] = [[] for _ in current]
    taken: dict[tuple[int, ...], int] = {}
    # The more holders keep the units of a transfer, the older the units it takes.
    for transfer in sorted(transfers, key=lambda t: -len(set(t.before) & set(t.after))):
        begin = taken.get(transfer.before, 0)
        taken[transfer.before] = begin + transfer.units
        if transfer.before == transfer.after:
            continue
        picked = classes[transfer.before][begin : begin + transfer.units]
        for j in transfer.before:
            if j not in transfer.after:
                gone[j].update(picked)
        for j in transfer.after:
            if j not in transfer.before:
                gained[j].extend(picked)
    return [
        [unit for unit in held if unit not in lost] + new
        for held, lost, new in zip(current, gone, gained, strict=True)
    ]
