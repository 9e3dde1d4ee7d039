"""How long idle nodes may be expected to stay idle, by what the scheduler knew of its jobs (docs/host-jobs.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bft.replay.trace.host_jobs import NEVER, HostJobs
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, TimeArray, consecutive
from bft.replay.trace.trace_statistics import fragments, quantiles, share

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
        When the trace is one of units.

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
            raise trace.error(
                "what nodes are expected to do is known of nodes that turn idle as a whole"
            )
        position = {name: index for index, name in enumerate(trace.nodes)}
        self._shown = (
            slice(None) if nodes is None else [position[name] for name in nodes]
        )
        self._trace = trace
        self._jobs = jobs.take(np.argsort(jobs.known, kind="stable"))
        # Of strangers there is no idle time.
        to = [position.get(name, -1) for name in self._jobs.names]
        self._nodes = np.array(to, dtype=np.int64)[self._jobs.nodes]
        self._sizes = self._jobs.sizes
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
        self._move_to(time_ns)
        jobs, rows, idle = self._jobs, self._rows, self._idle
        begun, sizes = jobs.start[rows] <= time_ns, self._sizes[rows]
        node = self._nodes[consecutive(jobs.offsets[rows], sizes)]
        row = np.repeat(rows, sizes)[node >= 0]
        node = node[node >= 0]
        # When nodes are returned. Jobs may share one; who holds it during a reservation, it is not before that ends.
        held = jobs.start[row] <= time_ns
        latest = np.full(len(idle), -NEVER)
        np.maximum.at(latest, node[held], jobs.expected_end[row[held]])
        latest = latest[(latest > -NEVER) & ~idle]
        nameless = rows[begun & (sizes == 0)]
        times = np.concatenate([latest, jobs.expected_end[nameless]])
        counts = np.append(np.ones_like(latest), jobs.count[nameless])
        counts[times == NEVER] = 0
        # The head of the queue.
        waiting = rows[~begun & ~jobs.reserved[rows]]
        lacks = jobs.count[waiting] - np.count_nonzero(idle)
        heads = lacks[(lacks > 0) & (lacks <= counts.sum())]
        until = np.full(len(idle), NEVER)
        if len(heads):
            order = np.argsort(times)
            enough = np.searchsorted(np.cumsum(counts[order]), heads[0])
            until[:] = np.maximum(times[order][enough], time_ns)
        ahead = ~held & jobs.reserved[row]
        np.minimum.at(until, node[ahead], jobs.start[row[ahead]])
        until[~idle] = NEVER
        return until[self._shown]

    def _move_to(self, time_ns: int) -> None:
        """Find the rows that are known and not over, in the order of when they were, and which nodes are idle."""
        if time_ns < self._now:
            self._begin()
        trace, self._now = self._trace, time_ns
        until = int(np.searchsorted(self._jobs.known, time_ns, side="right"))
        rows = np.concatenate([self._rows, np.arange(self._next_row, until)])
        self._rows, self._next_row = rows[self._jobs.end[rows] > time_ns], until
        last = int(np.searchsorted(trace.times, time_ns, side="right"))
        for event in range(self._next_event, last):
            self._idle[trace.leaves(event)] = False
            self._idle[trace.joins(event)] = True
        self._next_event = last


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
        of[whole] for of in (pieces.node, pieces.start_ns, pieces.seconds)
    )
    expected_s = np.full(len(node), np.inf)
    order = np.argsort(begin, kind="stable")
    instants, firsts = np.unique(begin[order], return_index=True)
    parts = np.split(order, firsts[1:])
    for instant, here in zip(instants.tolist(), parts, strict=False):
        until = outlook.until(instant)[node[here]]
        ahead_s = (until - instant) / SECOND_NS
        expected_s[here] = np.where(until < NEVER, ahead_s, np.inf)
    some = np.isfinite(expected_s)
    real, expected = real_s[some], expected_s[some]
    ahead = expected > 0
    lengths = {
        "expected_s": expected,
        "real_s": real,
        "ratio": real[ahead] / expected[ahead],
    }
    return {
        "fragments": len(node),
        "cut": int((~whole).sum()),
        "expected": {
            "by_count": share(len(real), len(node)),
            "by_node_time": share(real.sum(), real_s.sum()),
        },
        **{
            name: quantiles(values, _QUANTILES) if len(values) else None
            for name, values in lengths.items()
        },
        "before": share((real < expected).sum(), len(real)),
    }
