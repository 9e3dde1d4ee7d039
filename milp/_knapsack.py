"""The compiled kernel of the exact programme; imported only when it is used, because Numba takes its time."""

from __future__ import annotations

import numpy as np

from bft.milp._compiled import compiled
from bft.milp.problem import FloatArray, IntArray


@compiled
def best_counts(values: FloatArray, offsets: IntArray, current: IntArray, units: int) -> IntArray:
    """Counts that maximise the sum of value tables, at most `units` in total.

    Parameters
    ----------
    values, offsets
        Job j's table is values[offsets[j]:offsets[j+1]], entry n its value on n units, -inf where not allowed;
        entry 0 is finite.
    current
        Units held. Among equal values a job keeps what it has, else takes least: ties are broken alike everywhere.
    units
        Units to give.

    Max-plus dynamic programme: f_j(u) = max_n f_{j-1}(u - n) + v_j(n), u up to the units that jobs 0..j can use.
    O(sum over jobs of table length x usable units) time, O(jobs x usable units) memory.
    """
    jobs = len(current)
    counts = np.empty(jobs, np.int64)
    wanted = 0
    for j in range(jobs):
        table = values[offsets[j] : offsets[j + 1]]
        best = current[j] if current[j] < len(table) else 0
        for n in range(len(table)):
            if table[n] > table[best]:
                best = n
        counts[j] = best
        wanted += best
    if wanted <= units:  # nobody stands in another's way
        return counts

    usable = 0
    for j in range(jobs):
        usable += offsets[j + 1] - offsets[j] - 1
    usable = min(usable, units)
    best_value = np.zeros((jobs + 1, usable + 1))
    reach = 0
    for j in range(jobs):
        table = values[offsets[j] : offsets[j + 1]]
        before, after = best_value[j], best_value[j + 1]
        new_reach = min(reach + len(table) - 1, usable)
        for u in range(reach + 1, new_reach + 1):
            before[u] = before[reach]
        for u in range(new_reach + 1):
            after[u] = before[u] + table[0]
        for n in range(1, len(table)):
            value = table[n]
            if value == -np.inf:
                continue
            for u in range(n, new_reach + 1):
                candidate = before[u - n] + value
                if candidate > after[u]:
                    after[u] = candidate
        reach = new_reach

    left = usable
    for j in range(jobs - 1, -1, -1):
        table = values[offsets[j] : offsets[j + 1]]
        # Row j is filled up to what jobs 0..j-1 can use; beyond that more units change nothing.
        reach = 0
        for i in range(j):
            reach += offsets[i + 1] - offsets[i] - 1
        own = min(left, reach + len(table) - 1)
        target = best_value[j + 1, own]
        chosen = -1
        held = current[j]
        if held < len(table) and held <= own and best_value[j, min(own - held, usable)] + table[held] == target:
            chosen = held
        n = 0
        while chosen < 0:
            if best_value[j, own - n] + table[n] == target:
                chosen = n
            n += 1
        counts[j] = chosen
        left = own - chosen
    return counts
