"""How early jobs can be done: bounds on completion times."""

from __future__ import annotations

import heapq
import math

import numpy as np

from bft.replay.results.bounds.supply import FloatArray, Supply
from bft.replay.results.bounds.work import Work


def completion_bound(idle: Supply, work: Work, speed: float = 1.0) -> float:
    """The least sum over jobs of seconds from submission to completion; of those not done at the trace's end, up to it.

    In unit-seconds all idle units are one machine of varying speed, on which the job with least left to do goes first;
    and no job is done before it would be alone. `speed`: how many times faster sharing may make it.
    """
    together = math.fsum(_shortest_first(idle, work, speed).tolist())
    alone = math.fsum(np.minimum(work.alone, idle.end).tolist())
    return max(together, alone) - math.fsum(work.submit.tolist())


def _shortest_first(idle: Supply, work: Work, speed: float) -> FloatArray:
    """Completions on one machine with preemption, shortest remaining work first; at the latest the trace's end."""
    # Time is what the machine has offered so far: on that clock its speed is constant.
    release = idle.until(work.release) * speed
    needed = work.unit_seconds
    order = np.argsort(release, kind="stable")
    done = np.full(len(needed), np.inf)
    waiting: list[tuple[float, int]] = []
    now, coming = 0.0, 0
    while waiting or coming < len(order):
        if not waiting:
            now = max(now, float(release[order[coming]]))
        while coming < len(order) and release[order[coming]] <= now:
            job = int(order[coming])
            heapq.heappush(waiting, (float(needed[job]), job))
            coming += 1
        left, job = heapq.heappop(waiting)
        until = float(release[order[coming]]) if coming < len(order) else math.inf
        if now + left <= until:
            now += left
            done[job] = now
            if math.isinf(left):  # so is all that still waits
                break
        else:
            heapq.heappush(waiting, (left - (until - now), job))
            now = until
    return np.minimum(idle.when(done / speed), idle.end)


def last_completion_bound(idle: Supply, work: Work, speed: float = 1.0) -> float:
    """When all jobs can be done at the earliest, seconds since the trace's start; infinite when not all can be.

    From every instant on there must be enough unit-seconds for the jobs submitted then or later, and no job is done
    before it would be alone.
    """
    release, index = np.unique(work.release, return_inverse=True)
    needed = np.bincount(index, weights=work.unit_seconds, minlength=len(release))
    from_then_on = np.cumsum(needed[::-1])[::-1]
    together = idle.when(idle.until(release) + from_then_on / speed)
    return float(max(together.max(initial=0.0), work.alone.max(initial=0.0)))
