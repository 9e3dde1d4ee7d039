"""First fit of jobs on units of nodes, compiled; imported only when it is used, because Numba loads slowly."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numba
import numpy as np

from bft.replay.logs.times import Whole


def _first_fit(
    start: Whole, end: Whole, low: Whole, high: Whole,
    row: Whole, taken: Whole, part: Whole, of: Whole,
    bounds: Whole, starts: Whole, reach: Whole,
) -> None:  # fmt: skip
    """Give jobs the lowest units with room, one that a job names meanwhile only where there is no other.

    Parameters
    ----------
    start, end, low, high
        Of each job on a node, by node and start: when it runs, the first unit of the node and the one after its last.
    row, taken, part, of
        Of each unit that is held: by which job, the unit, and how many shares of how many. Units of -1 are given here,
        where there is one.
    bounds, starts, reach
        Of each unit, where those jobs begin that name it: their starts, ascending, and the latest end up to each.
    """
    until = np.full(len(bounds) - 1, np.iinfo(np.int64).min)
    # How many shares of each unit are held, and what holds them.
    used = np.zeros(len(until), dtype=np.int64)
    holding = np.empty(len(row), dtype=np.int64)
    count = 0
    for entry in range(len(row)):
        job = row[entry]
        still = 0
        for other in holding[:count]:
            if end[row[other]] > start[job] and taken[other] >= low[job]:
                holding[still] = other
                still += 1
            else:
                used[taken[other]] -= part[other]
        count = still
        if entry and row[entry - 1] == job and taken[entry - 1] < 0:
            continue  # there is no room for another
        if taken[entry] < 0:
            for unit in range(low[job], high[job]):
                free = used[unit] > 0 or until[unit] <= start[job]
                if not free or used[unit] + part[entry] > of[entry]:
                    continue
                first = bounds[unit]
                mine = starts[first : bounds[unit + 1]]
                before = first + np.searchsorted(mine, end[job])
                if before == first or reach[before - 1] <= start[job]:
                    taken[entry] = unit
                    break
                if taken[entry] < 0:
                    taken[entry] = unit
        unit = taken[entry]
        if unit < 0:
            continue
        if of[entry] > 1:
            used[unit] += part[entry]
            holding[count] = entry
            count += 1
        until[unit] = max(until[unit], end[job])


first_fit: Any = numba.njit(_first_fit)
with suppress(RuntimeError):  # no folder can be written: each run compiles anew
    first_fit = numba.njit(cache=True)(_first_fit)
