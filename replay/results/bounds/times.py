"""How early jobs can be done: lower bounds on completion times."""

from __future__ import annotations

import heapq
import math

import numpy as np

from bft.replay.results.bounds.supply import FloatArray, Supply
from bft.replay.results.bounds.work import Work


def completion_bound(idle: Supply, work: Work, speed: float = 1.0) -> float:
    """The smallest sum over jobs of seconds from submission to completion; for jobs not done, up to the trace's end.

    Measured in unit-seconds, all idle units are one machine of varying speed, which serves the job with the least
    remaining work first; and no job is done before it would be alone. `speed`: the largest speed-up by sharing.
    """
    together = math.fsum(_shortest_first(idle, work, speed).tolist())
    alone = math.fsum(np.minimum(work.alone, idle.end).tolist())
    return max(together, alone) - math.fsum(work.submit.tolist())


def _shortest_first(idle: Supply, work: Work, speed: float) -> FloatArray:
    """Completions on one machine with preemption, shortest remaining work first; the trace's end for jobs not done."""
    # The clock counts the work that the machine has offered so far: on it the speed is constant.
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
            if math.isinf(left):  # then so are all waiting jobs
                break
        else:
            heapq.heappush(waiting, (left - (until - now), job))
            now = until
    return np.minimum(idle.when(done / speed), idle.end)


def last_completion_bound(idle: Supply, work: Work, speed: float = 1.0) -> float:
    """The earliest time at which all jobs can be done, seconds since the trace's start; infinite when not all can be.

    From every instant on there must be enough unit-seconds for the jobs submitted then or later, and no job is done
    before it would be alone.
    """
    release, index = np.unique(work.release, return_inverse=True)
    needed = np.bincount(index, weights=work.unit_seconds, minlength=len(release))
    from_then_on = np.cumsum(needed[::-1])[::-1]
    together = idle.when(idle.until(release) + from_then_on / speed)
    return float(max(together.max(initial=0.0), work.alone.max(initial=0.0)))
