"""What host jobs take and wait, counted from a node trace alone: no replay, for jobs that hold every node they may."""

from dataclasses import dataclass

from bft.replay.trace.node_trace import SECOND_NS, NodeTrace


@dataclass(frozen=True, slots=True)
class Counted:
    """Node-seconds used, nodes preempted, starts, starts that wait, and node-seconds that they wait."""

    used_s: float
    preempted: int
    starts: int
    delayed: int
    waiting_s: float


def counted(
    trace: NodeTrace, reserve: int, return_time_s: float, start_ns: int, end_ns: int
) -> Counted:
    """Count from `start_ns` on: free nodes go first, `reserve` of them are kept, and training holds all others.

    Which node is which does not matter: a start takes nodes that return at the same instant, then kept ones, then those
    of training. A kept node was never held, since training lets go of none.
    """
    used, preempted, starts, delayed, waiting = 0, 0, 0, 0, 0.0
    idle = kept = before = 0
    for event, time in enumerate(trace.times.tolist()):
        if time > end_ns:
            break
        used += (idle - kept) * (max(time, start_ns) - max(before, start_ns))
        joined, left = len(trace.joins(event)), len(trace.leaves(event))
        if time < start_ns:  # nobody holds a node so far
            idle, before = idle + joined - left, time
            continue
        free = kept + joined if before >= start_ns else idle + joined
        lost = max(0, left - free)
        preempted += lost
        starts += left > 0
        delayed += lost > 0
        waiting += left * return_time_s if lost else 0.0
        idle += joined - left
        kept = min(reserve, max(0, free - left))
        before = time
    used += (idle - kept) * (end_ns - max(before, start_ns))
    return Counted(used / SECOND_NS, preempted, starts, delayed, waiting)
