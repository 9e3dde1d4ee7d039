"""From busy and unavailable intervals to a node trace."""

from __future__ import annotations

import re
from array import array
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.logs.collector import OPEN, Collector, Columns, merge
from bft.replay.logs.diagnosis import Diagnosis
from bft.replay.trace import SECOND_NS, IndexArray, NodeTrace, TimeArray


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the node-time of the window of observation went to.

    Parameters
    ----------
    nodes, nodes_never_busy
        Nodes of the machine, and those among them that ran no job in the window.
    foreign_nodes
        Nodes that jobs or events name and the list of nodes does not: left out.
    node_seconds
        Nodes x seconds of observation.
    busy, unavailable, idle, short_gaps
        Shares of them, adding up to 1: jobs ran; no job ran, but the node was down, drained or reserved; idle;
        in gaps too short to count as idle.
    intervals, overlaps_merged, gaps_closed
        Node-intervals read, how many of them overlapped or touched another, and how many gaps were too short.
    """

    nodes: int
    nodes_never_busy: int
    foreign_nodes: int
    node_seconds: float
    busy: float
    unavailable: float
    idle: float
    short_gaps: float
    intervals: int
    overlaps_merged: int
    gaps_closed: int

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def node_trace(
    collected: Collector,
    diagnosis: Diagnosis,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    machine_nodes: int | None = None,
    source: str = "",
) -> tuple[NodeTrace, Coverage]:
    """The idle nodes of a machine: those of its nodes that are neither busy nor unavailable.

    Parameters
    ----------
    collected
        What the readers handed over.
    diagnosis
        Receives notes on the window and the nodes.
    start_ns, end_ns
        Window of observation. By default what the log states of itself, else from the first *end* of a job to the
        last start or end: records are kept by the end of jobs, so that of the time before the first end only
        long jobs are known, and the rest would look idle.
    source
        Name of the logs, for messages.
    machine_nodes
        Size of a machine of which the log names no nodes; by default what the log states, else the most that were
        busy at once.

    Raises
    ------
    InputError
        When no interval was read, and when the window is empty.
    """
    _place(collected, diagnosis, machine_nodes)
    if not collected.names:
        raise InputError(
            "no row names a node that was busy, down or known", file=source or None, hint=diagnosis.losses() or None
        )
    busy, unavailable, idle = collected.busy_intervals, collected.unavailable_intervals, collected.idle_intervals
    busy_read, unavailable_read, idle_read = busy.merged(), unavailable.merged(), idle.merged()
    given = busy.given + unavailable.given + idle.given
    merged = len(busy_read[0]) + len(unavailable_read[0]) + len(idle_read[0])
    start, end = _window(collected, diagnosis, start_ns, end_ns, source)
    names, index, foreign = _nodes(collected, diagnosis)
    busy_now, unavailable_now = (_clip(found, index, start, end) for found in (busy_read, unavailable_read))
    size = len(names)
    if idle.given:
        idle_now = _clip(idle_read, index, start, end)
        rest = _unstated(idle_now, busy_now, unavailable_now, size, start, end, diagnosis)
        if busy.given:
            unavailable_now = _joined(unavailable_now, rest)
        else:
            busy_now = rest
    node, begins, ends = _joined(busy_now, unavailable_now)
    taken = merge(node, begins, ends)
    idle_node, idle_start, idle_end = _gaps(taken, size, start, end)
    long = idle_end - idle_start >= collected.min_gap_ns
    short_s = float((idle_end - idle_start)[~long].sum()) / SECOND_NS
    trace = _trace(names, idle_node[long], idle_start[long], idle_end[long], start, end)
    all_s = size * (end - start) / SECOND_NS
    busy_s, taken_s = (float((found[2] - found[1]).sum()) / SECOND_NS for found in (busy_now, taken))
    coverage = Coverage(
        nodes=size,
        nodes_never_busy=size - len(np.unique(busy_now[0])),
        foreign_nodes=foreign,
        node_seconds=all_s,
        busy=busy_s / all_s,
        unavailable=(taken_s - busy_s) / all_s,
        idle=trace.idle_node_seconds() / all_s,
        short_gaps=short_s / all_s,
        intervals=given,
        overlaps_merged=given - merged - busy.closed - unavailable.closed,
        gaps_closed=int((~long).sum()) + busy.closed + unavailable.closed,
    )
    return trace, coverage


def _window(
    collected: Collector, diagnosis: Diagnosis, start_ns: int | None, end_ns: int | None, source: str
) -> tuple[int, int]:
    start, end = collected.stated or (collected.first_end, collected.last)
    if collected.stated is None and start >= end:  # all jobs ended at once: there is no better guess
        start = collected.first_start
    if start_ns is not None:
        start = start_ns
    elif collected.stated is None and collected.first_start < start < OPEN:
        diagnosis.note("the window begins with the first end of a job: of the time before only long jobs are known",
                       source, 0)  # fmt: skip
    if end_ns is not None:
        end = end_ns
    elif collected.stated is None and collected.last and not collected.running:
        diagnosis.note("no job was running when the log ended: those that ended later are missing, so that the last "
                       "hours look idler than they were", source, 0)  # fmt: skip
    if start >= end:
        raise InputError(
            "the window of observation is empty" if start < OPEN else "no job tells when the observation began",
            file=source or None,
            hint=f"--from and --to set it{'; ' if diagnosis.losses() else ''}{diagnosis.losses()}",
        )
    return start, end


def _nodes(collected: Collector, diagnosis: Diagnosis) -> tuple[list[str], NDArray[np.int64], int]:
    """Names of the machine's nodes, sorted; for each node collected its place there or -1; and how many are not."""
    everybody = list(collected.names)
    members = collected.universe or range(len(everybody))
    if not collected.universe:
        diagnosis.note("no list of nodes was given: the machine is taken to have the nodes that the logs name", "", 0)
    placed = sorted(members, key=lambda node: _natural(everybody[node]))
    index = np.full(len(everybody), -1, dtype=np.int64)
    index[placed] = np.arange(len(placed))
    foreign = len(everybody) - len(placed)
    if foreign:
        first = next(name for name, node in collected.names.items() if index[node] < 0)
        diagnosis.note("nodes that are not in the list of nodes were left out", "", 0, f"{foreign}, such as {first}")
    return [everybody[node] for node in placed], index, foreign


def _natural(name: str) -> list[str | int]:
    """Key that sorts n2 before n10; every second entry is a number."""
    return [int(part) if k % 2 else part for k, part in enumerate(re.split(r"(\d+)", name))]


def _clip(found: Columns, index: NDArray[np.int64], start: int, end: int) -> Columns:
    """The intervals of the machine's nodes inside the window, with the nodes renumbered."""
    node, begins, ends = index[found[0]], np.maximum(found[1], start), np.minimum(found[2], end)
    inside = (node >= 0) & (begins < ends)
    return node[inside].astype(np.int32), begins[inside], ends[inside]


def _joined(*parts: Columns) -> Columns:
    node, begins, ends = (np.concatenate([part[k] for part in parts]) for k in range(3))
    return node, begins, ends


def _unstated(
    idle: Columns, busy: Columns, unavailable: Columns, size: int, start: int, end: int, diagnosis: Diagnosis
) -> Columns:
    """What no row covers in a log that states when nodes were idle; notes what that and contradictions amount to."""

    def total_ns(of: Columns) -> int:  # exact, and beyond 64 bits
        lengths = of[2] - of[1]
        return int((lengths // SECOND_NS).sum()) * SECOND_NS + int((lengths % SECOND_NS).sum())

    taken = merge(*_joined(busy, unavailable))
    covered = merge(*_joined(idle, taken))
    rest = _gaps(covered, size, start, end)
    share = total_ns(rest) / (size * (end - start))
    detail = f"{share:.1%} of the node-time"
    if not len(busy[0]):
        diagnosis.note("rows state when nodes were idle: at all other times nodes count as busy", "", 0, detail)
    elif len(rest[0]):
        diagnosis.note("rows state when nodes were idle: time that no row covers counts as unavailable", "", 0, detail)
    twice = total_ns(idle) + total_ns(taken) - total_ns(covered)
    if twice:
        diagnosis.note("idle rows overlap busy or unavailable ones: nodes count as not idle there", "", 0,
                       f"{twice / SECOND_NS / 3600:.3g} node-hours")  # fmt: skip
    return rest


def _gaps(taken: Columns, size: int, start: int, end: int) -> Columns:
    """What disjoint intervals, sorted, leave of [start, end) on each of `size` nodes; in no order."""
    node, begins, ends = taken
    first = np.ones(len(node), dtype=bool)
    first[1:] = node[1:] != node[:-1]
    last = np.append(first[1:], True)[: len(node)]
    before = np.where(first, start, np.roll(ends, 1))
    never = np.setdiff1d(np.arange(size, dtype=np.int32), node)
    gap_node = np.concatenate([node, node[last], never])
    gap_start = np.concatenate([before, ends[last], np.full(len(never), start)])
    gap_end = np.concatenate([begins, np.full(int(last.sum()) + len(never), end)])
    some = gap_start < gap_end
    return gap_node[some], gap_start[some], gap_end[some]


def _trace(names: list[str], node: IndexArray, begins: TimeArray, ends: TimeArray, start: int, end: int) -> NodeTrace:
    """A trace of disjoint idle fragments."""
    closed = ends < end  # what is still idle at the end of the window has no leave
    left, left_times = node[closed], ends[closed]
    join_order, leave_order = np.lexsort((node, begins)), np.lexsort((left, left_times))
    times = np.union1d(begins, left_times)

    def offsets(of: TimeArray) -> TimeArray:
        return np.append(np.searchsorted(of, times), len(of)).astype(np.int64)

    return NodeTrace(
        nodes=tuple(names),
        times=times,
        joined=node[join_order],
        joined_at=offsets(begins[join_order]),
        left=left[leave_order],
        left_at=offsets(left_times[leave_order]),
        start=start,
        end=end,
    )


def _place(collected: Collector, diagnosis: Diagnosis, machine_nodes: int | None) -> None:
    """Give the jobs that only count their nodes the first that are free, in order of their start.

    Schedulers place otherwise, so that fragments of single nodes are not those of the machine; how many nodes are
    idle at each instant is.
    """
    needed, starts, ends = collected.counted()
    if not len(needed):
        return
    order = np.argsort(starts, kind="stable")
    needed, starts, ends = needed[order], starts[order], ends[order]
    size = machine_nodes or collected.machine_nodes or _peak(needed, starts, ends)
    if size > collected.most_nodes:
        raise InputError(f"a machine of {size:,} nodes is beyond {collected.most_nodes:,}", hint="--machine-nodes")
    if not (machine_nodes or collected.machine_nodes):
        diagnosis.note("neither log nor --machine-nodes tell the machine's size: it is taken to be the most nodes "
                       "that were busy at once", "", 0, f"{size}")  # fmt: skip
    diagnosis.note("the log has counts of nodes, no names: each job was given the first free nodes", "", 0)
    digits = max(5, len(str(size - 1)))
    everybody = np.array(collected.indices([f"n{node:0{digits}}" for node in range(size)]), dtype=np.int32)
    collected.universe.update(everybody.tolist())
    free = np.ones(size, dtype=bool)
    held: list[tuple[int, int, NDArray[np.int64]]] = []
    short = 0
    for job, (count, begin, finish) in enumerate(zip(needed.tolist(), starts.tolist(), ends.tolist(), strict=True)):
        while held and held[0][0] <= begin:
            free[heappop(held)[2]] = True
        chosen = np.flatnonzero(free)[:count]
        short += len(chosen) < count
        free[chosen] = False
        heappush(held, (finish, job, chosen))
        collected.busy_intervals.add(array("i", everybody[chosen].tobytes()), begin, finish)
    if short:
        diagnosis.note(
            "jobs wanted more nodes than were free: --machine-nodes may be too small", "", 0, f"{short} jobs"
        )


def _peak(needed: TimeArray, starts: TimeArray, ends: TimeArray) -> int:
    """The most nodes that were busy at once; what ends at an instant makes room for what starts then."""
    times = np.concatenate([ends, starts])
    changes = np.concatenate([-needed, needed])
    return int(np.cumsum(changes[np.argsort(times, kind="stable")]).max())
