"""How long idle nodes may be expected to stay idle, by what the scheduler knew of its jobs (docs/walltimes.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.trace.host_jobs import NEVER, HostJobs
from bft.replay.trace.node_trace import (
    SECOND_NS,
    NodeTrace,
    TimeArray,
    consecutive,
)
from bft.replay.trace.trace_statistics import fragments

_QUANTILES = (10, 50, 90)


class Outlook:
    """Forecast of how long each idle node of a machine stays idle, without knowledge of the future.

    A node stays idle until its next reservation, and until the job at the head of the queue begins, whichever comes
    first. That job is the first one that waits (by when it became eligible) and wants more nodes than are idle. It
    begins, as EASY backfilling reserves nodes for it (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001: the shadow time),
    when running jobs have returned enough nodes at the end of their time limits; one beyond its limit may end at once.
    A job that fits on the idle nodes and waits nevertheless is held back by what no log states, and is passed over; so
    is one that wants more nodes than those that are known to return.

    At each instant only those rows count that were known then, without what came of them later.

    Parameters
    ----------
    jobs
        What the scheduler knew.
    trace
        When which nodes of the whole machine are idle.
    nodes
        The nodes that are looked at, by name, in this order; by default those of the trace.

    Raises
    ------
    InputError
        When the jobs name nodes, and the trace has none of them, or is one of units.

    Examples
    --------
    Two of three nodes are idle. A job waits for three; the job on the third may run until 100 s:

    >>> import numpy as np
    >>> from bft.replay.trace.node_trace import from_fragments
    >>> from bft.replay.trace.host_jobs import from_rows
    >>> s = SECOND_NS
    >>> trace = from_fragments(["a", "b", "c"], np.array([0, 1]), np.array([0, 0]), np.array([60, 60]) * s, 0, 90 * s)
    >>> running = "job", 0, 0, 60 * s, 100 * s, 1, ["c"]
    >>> waiting = "job", 5 * s, 60 * s, NEVER, NEVER, 3, ["a", "b", "c"]
    >>> outlook = Outlook(from_rows([running, waiting]), trace)
    >>> outlook.expected(0), outlook.expected(5 * s)
    ([None, None, None], [100000000000, 100000000000, None])
    """

    def __init__(
        self, jobs: HostJobs, trace: NodeTrace, nodes: Sequence[str] | None = None
    ) -> None:
        if trace.by_unit:
            raise InputError(
                "what nodes are expected to do is known of nodes that turn idle as a whole",
                file=trace.source or None,
            )
        if jobs.names and not set(jobs.names) & set(trace.nodes):
            raise InputError(
                f"the host jobs are of other nodes than the trace: they name {jobs.names[0]!r}, the trace "
                f"{trace.nodes[0]!r}",
                file=trace.source or None,
            )
        place = {name: index for index, name in enumerate(trace.nodes)}
        places = np.array([place.get(name, -1) for name in jobs.names], dtype=np.int64)
        self.strangers = int((places < 0).sum())
        self._trace = trace
        self._shown = (
            slice(None)
            if nodes is None
            else np.array([place[name] for name in nodes], dtype=np.int64)
        )
        order = np.argsort(jobs.known, kind="stable")
        self._reserved, self._known = jobs.reserved[order], jobs.known[order]
        self._start, self._end = jobs.start[order], jobs.end[order]
        self._until, self._count = jobs.expected_end[order], jobs.count[order]
        self._sizes, self._first = jobs.sizes[order], jobs.offsets[:-1][order]
        self._nodes = places[jobs.nodes]
        self._begin()

    def _begin(self) -> None:
        """Start before the first row and event, which are taken as time goes on."""
        self._now = -NEVER
        self._rows = np.empty(0, dtype=np.int64)  # known, and not over
        self._next_row = self._next_event = 0
        self._idle = np.zeros(len(self._trace.nodes), dtype=bool)

    def expected(self, time_ns: int) -> list[int | None]:
        """Return when each node's idle time is expected to end, UTC nanoseconds; None: not idle, or not known."""
        return [None if end == NEVER else end for end in self.until(time_ns).tolist()]

    def until(self, time_ns: int) -> TimeArray:
        """Return each node's expected return as an array: int64 of shape (nodes,), `NEVER` for None."""
        rows, idle = self._at(time_ns)
        jobs, reservations = rows[~self._reserved[rows]], rows[self._reserved[rows]]
        begun = self._start[jobs] <= time_ns
        ahead = self._start[reservations] > time_ns
        # Who holds a node during a reservation, the node is not returned before the reservation ends.
        times, counts = self._returned(
            np.concatenate([jobs[begun], reservations[~ahead]]), idle, time_ns
        )
        until = np.full(
            len(idle),
            self._head_begins(jobs[~begun], int(np.count_nonzero(idle)), times, counts),
        )
        node, which = self._nodes_of(reservations[ahead])
        np.minimum.at(until, node, self._start[which])
        until[~idle] = NEVER
        return until[self._shown]

    def _at(self, time_ns: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows that are known and not over, in the order in which they were known, and which nodes are idle."""
        if time_ns < self._now:
            self._begin()
        trace, self._now = self._trace, time_ns
        until = int(np.searchsorted(self._known, time_ns, side="right"))
        rows = np.concatenate([self._rows, np.arange(self._next_row, until)])
        self._rows, self._next_row = rows[self._end[rows] > time_ns], until
        last = int(np.searchsorted(trace.times, time_ns, side="right"))
        for event in range(self._next_event, last):
            self._idle[trace.leaves(event)] = False
            self._idle[trace.joins(event)] = True
        self._next_event = last
        return self._rows, self._idle

    def _nodes_of(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Nodes of rows that the trace has, and for each the row that has it."""
        sizes = self._sizes[rows]
        which = np.repeat(rows, sizes)
        node = self._nodes[consecutive(self._first[rows], sizes)]
        there = node >= 0
        return node[there], which[there]

    def _returned(
        self, rows: NDArray[np.int64], idle: NDArray[np.bool_], time_ns: int
    ) -> tuple[TimeArray, NDArray[np.int64]]:
        """Return when nodes that are not idle are expected to be returned, and how many, in order of time."""
        node, which = self._nodes_of(rows)
        latest = np.full(len(idle), -NEVER)
        np.maximum.at(latest, node, self._until[which])  # jobs may share a node
        latest = latest[(latest > -NEVER) & ~idle]
        nameless = rows[self._sizes[rows] == 0]
        times = np.concatenate([latest, self._until[nameless]])
        counts = np.concatenate(
            [np.ones(len(latest), dtype=np.int64), self._count[nameless]]
        )
        known = times < NEVER
        times, counts = np.maximum(times[known], time_ns), counts[known]
        order = np.argsort(times, kind="stable")
        return times[order], counts[order]

    def _head_begins(
        self,
        waiting: NDArray[np.int64],
        idle: int,
        times: TimeArray,
        counts: NDArray[np.int64],
    ) -> int:
        """Return when the job at the head of the queue is expected to begin; `NEVER` without one."""
        returned = np.cumsum(counts)
        lacks = self._count[waiting] - idle
        heads = (lacks > 0) & (lacks <= (returned[-1] if len(returned) else 0))
        if not heads.any():
            return NEVER
        return int(times[np.searchsorted(returned, lacks[np.argmax(heads)])])


def calibration(trace: NodeTrace, outlook: Outlook) -> dict[str, Any]:
    """Compare expectations with the outcome: each idle fragment's at its begin, beside how long it lasted.

    Fragments that the window cuts are left out, as their lengths are not known.

    Returns
    -------
    dict
        `fragments` and `cut`, how many there are, and how many were left out; `expected`, for how many something was
        expected, as a share of all by count and by node-time; of these quantiles of the lengths `expected_s` and
        `real_s`, and of their `ratio`, and the share that ended `before`. None where nothing was expected.
    """
    pieces = fragments(trace)
    whole = ~pieces.censored
    node, begin, real_s = (
        pieces.node[whole],
        pieces.start_ns[whole],
        pieces.seconds[whole],
    )
    expected_s = np.full(len(node), np.inf)
    order = np.argsort(begin, kind="stable")
    instants, firsts = np.unique(begin[order], return_index=True)
    for instant, those in zip(
        instants.tolist(), np.split(order, firsts[1:]), strict=False
    ):
        until = outlook.until(instant)[node[those]]
        there = until < NEVER
        expected_s[those[there]] = (until[there] - instant) / SECOND_NS
    some = np.isfinite(expected_s)
    real, expected = real_s[some], expected_s[some]
    time_s = float(real_s.sum())
    return {
        "fragments": len(node),
        "cut": int((~whole).sum()),
        "expected": {
            "by_count": float(some.mean()) if len(node) else None,
            "by_node_time": float(real.sum()) / time_s if time_s else None,
        },
        "expected_s": _quantiles(expected),
        "real_s": _quantiles(real),
        "ratio": _quantiles(real[expected > 0] / expected[expected > 0]),
        "before": float((real < expected).mean()) if len(real) else None,
    }


def _quantiles(values: NDArray[np.float64]) -> dict[str, float] | None:
    """Return the quantiles by which distributions are told; None of nothing."""
    if not len(values):
        return None
    found = np.percentile(values, _QUANTILES).tolist()
    return {f"p{q}": value for q, value in zip(_QUANTILES, found, strict=True)}
