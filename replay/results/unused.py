"""Idle units that no job held: what a replay left of what the machine offered."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bft.replay.engine.ledger import Outcome
from bft.replay.trace.node_trace import TimeArray
from bft.replay.trace.trace_statistics import fragments

# A run with more intervals of single units than these is not accounted for: a year of 10,000 nodes would take
# gigabytes, and no chart shows them.
MAX_INTERVALS = 3_000_000
# Units, starts and ends (UTC ns) of intervals: int64 of shape (intervals,) each.
Intervals = tuple[NDArray[np.int64], TimeArray, TimeArray]


def unused_intervals(outcome: Outcome) -> Intervals | None:
    """Return when which single unit was idle and no job held it, within the window; None for very large runs.

    Examples
    --------
    >>> from bft.models import Curve, Job, JobTable
    >>> from bft.replay import EqualShare, Replay, always_idle
    >>> curve = Curve([0, 2], [0, 20])
    >>> job = Job("a", 0, 1, 2, pmax=2000.0, tcup_s=5.0, tcdw_s=5.0, scalability=curve, objective=curve)
    >>> outcome = Replay(always_idle(3, 0, 600 * 10**9), JobTable((job,)), EqualShare()).run()
    >>> [column.tolist() for column in unused_intervals(outcome)]  # it ran on two units for 100 s
    [[2], [0], [100000000000]]
    """
    held = outcome.allocations
    first, last = (
        held[column].to_numpy(dtype=np.int64) for column in ("first_unit", "last_unit")
    )
    if (last - first + 1).sum() + len(outcome.trace.joined) > MAX_INTERVALS:
        return None
    idle = _idle(outcome)
    starts, ends = (
        held[column].to_numpy(dtype=np.int64) for column in ("start_ns", "end_ns")
    )
    units = _each(first, last)
    rows = np.repeat(np.arange(len(held)), last - first + 1)
    return _without(idle, (units, starts[rows], ends[rows]))


def _each(first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the single units of ranges, one range after the other."""
    counts = last - first + 1
    begins = np.cumsum(counts) - counts
    within = np.arange(counts.sum()) - np.repeat(begins, counts)
    each: NDArray[np.int64] = np.repeat(first, counts) + within
    return each


def _idle(outcome: Outcome) -> Intervals:
    """Return when single units were idle within the window, on the nodes that filled the places of the log."""
    trace = outcome.trace
    returns = {} if outcome.host is None else outcome.host.returns
    pieces = fragments(trace)
    slot = pieces.node.astype(np.int64)
    start, end = pieces.start_ns, pieces.end_ns
    if len(returns.get("node", ())):
        slot, start, end = _of_nodes((slot, start, end), returns)
    start, end = (
        np.maximum(start, outcome.start_ns),
        np.minimum(end, outcome.end_ns),
    )
    slot, start, end = (column[start < end] for column in (slot, start, end))
    per = 1 if trace.by_unit else trace.units_per_node
    units = _each(slot * per, (slot + 1) * per - 1)
    return units, np.repeat(start, per), np.repeat(end, per)


def _of_nodes(places: Intervals, returns: Mapping[str, NDArray[np.int64]]) -> Intervals:
    """Return when nodes were idle, where they exchanged places: a place joins on the node that it left with before.

    `returns` has a row for each leave: time_ns, place, node.
    """
    place, start, end = places
    node_of: dict[int, int] = {}  # the node that fills a busy place
    events = sorted([
        *((at, 0, where, -1) for where, at in zip(place.tolist(), start.tolist(), strict=True)),
        *((at, 1, where, node) for at, where, node in
          zip(*(returns[name].tolist() for name in ("time_ns", "place", "node")), strict=True)),
    ])  # fmt: skip
    begun: dict[int, int] = {}
    found: list[tuple[int, int, int]] = []
    for at, is_leave, where, node in events:
        if is_leave:
            node_of[where] = node
            found.append((node, begun.pop(node), at))
        else:
            begun[node_of.get(where, where)] = at
    final = int(end.max(initial=0))
    found += [(node, at, final) for node, at in begun.items()]
    columns = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


def _without(idle: Intervals, held: Intervals) -> Intervals:
    """Return the parts of idle intervals in which no interval of `held` lies, by unit and time."""
    count, holds = len(idle[0]), len(held[0])
    unit = np.concatenate([idle[0], idle[0], held[0], held[0]])
    time = np.concatenate([idle[1], idle[2], held[1], held[2]])
    is_idle = np.repeat(np.array([1, -1, 0, 0]), (count, count, holds, holds))
    is_held = np.repeat(np.array([0, 0, 1, -1]), (count, count, holds, holds))
    order = np.lexsort((time, unit))
    unit, time = unit[order], time[order]
    # The counts of each unit end at 0, so that one sum serves all units.
    free = (np.cumsum(is_idle[order]) > 0) & (np.cumsum(is_held[order]) == 0)
    lasts = np.append((unit[1:] == unit[:-1]) & (time[1:] > time[:-1]), False)
    begins = np.flatnonzero(free & lasts)
    return unit[begins], time[begins], time[begins + 1]
