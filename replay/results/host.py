"""What harvesting costs the machine's own ("host") jobs (docs/host-jobs.md).

A start that takes nodes S at instant t waits until the slowest of them is back: its delay is
max(0, max over i in S of g_i + D - t), where D is the return time and g_i the last instant at which training let go of
node i since it turned idle. All of S wait with it, so the waiting is |S| x delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.replay.engine.ledger import Outcome
from bft.replay.engine.reserve import NOT_HELD, HostReturns
from bft.replay.trace.node_trace import SECOND_NS, TimeArray
from bft.replay.trace.walltimes import NEVER, Walltimes

# Upper ends of the classes of starts by their number of nodes; larger ones make a class of their own.
SIZES = (1, 4, 16, 64, 256)
SIZE_NAMES = ("1", "2-4", "5-16", "17-64", "65-256", "> 256")


@dataclass(frozen=True, eq=False)
class Starts:
    """Starts of host jobs; arrays of shape (starts,).

    Parameters
    ----------
    time_ns
        When each began in the log, UTC ns.
    nodes
        How many nodes it takes.
    let_go_ns
        The last instant at which training let go of one of them; `NOT_HELD` where it held none.
    eligible_ns
        When each could have begun; `NEVER` where that is not known.
    from_jobs
        Whether a start is one job; else it is all nodes that leave at one instant.
    """

    time_ns: TimeArray
    nodes: NDArray[np.int64]
    let_go_ns: TimeArray
    eligible_ns: TimeArray
    from_jobs: bool

    def delays_s(self, return_time_s: float) -> NDArray[np.float64]:
        """Seconds that each start waits, float64 of shape (starts,)."""
        held = self.let_go_ns > NOT_HELD
        ago_ns = np.where(held, self.time_ns - np.where(held, self.let_go_ns, 0), 0)
        return np.where(held, np.maximum(0.0, return_time_s - ago_ns / SECOND_NS), 0.0)


def starts_by_instant(host: HostReturns) -> Starts:
    """Take all nodes that leave at one instant for one start."""
    time_ns, let_go_ns = host.returns["time_ns"], host.returns["let_go_ns"]
    instants, first, nodes = np.unique(time_ns, return_index=True, return_counts=True)
    latest = np.maximum.reduceat(let_go_ns, first) if len(first) else let_go_ns
    unknown = np.full(len(instants), NEVER, dtype=np.int64)
    return Starts(instants, nodes.astype(np.int64), latest, unknown, from_jobs=False)


def starts_by_job(outcome: Outcome, host: HostReturns, walltimes: Walltimes) -> Starts:
    """Take the nodes of one host job for one start, those that another host job handed over included.

    The nodes of jobs that begin at one instant are pooled: they go to the jobs in the order in which these became
    eligible, the ones that training let go of first before others. Leaves that no job explains have no delay.
    """
    index = {name: position for position, name in enumerate(outcome.trace.nodes)}
    position = np.array([index.get(name, -1) for name in walltimes.names], dtype=np.int64)[walltimes.nodes]
    row_of = np.repeat(np.arange(len(walltimes)), np.diff(walltimes.offsets))
    begins = ~walltimes.reserved & (walltimes.start >= outcome.start_ns) & (walltimes.start < outcome.end_ns)
    used = begins[row_of] & (position >= 0)
    position, row_of = position[used], row_of[used]

    let_go = _let_go_at(host, len(outcome.trace.nodes), walltimes.start[row_of], position)
    rows = np.unique(row_of)
    rows = rows[np.lexsort((rows, walltimes.known[rows], walltimes.start[rows]))]
    turn = np.empty(len(walltimes), dtype=np.int64)
    turn[rows] = np.arange(len(rows))
    left = let_go < NEVER  # the others were handed over by another host job
    taken = np.bincount(turn[row_of[left]], minlength=len(rows))

    # Pooled at each instant: the earliest let-go to the job that was eligible first.
    order = np.lexsort((let_go[left], walltimes.start[row_of[left]]))
    pooled = let_go[left][order]
    last = np.cumsum(taken) - 1
    latest = np.full(len(rows), NOT_HELD, dtype=np.int64)
    latest[taken > 0] = pooled[last[taken > 0]]
    return Starts(walltimes.start[rows], walltimes.count[rows], latest, walltimes.known[rows], from_jobs=True)


def _let_go_at(host: HostReturns, nodes: int, time_ns: TimeArray, place: NDArray[np.int64]) -> TimeArray:
    """The let-go instant of places that leave at these instants; `NEVER` where a place does not leave then."""
    instants = np.unique(host.returns["time_ns"])
    keys = np.searchsorted(instants, host.returns["time_ns"]) * nodes + host.returns["place"]
    order = np.argsort(keys)
    at = np.searchsorted(instants, time_ns)
    known = at < len(instants)
    known[known] = instants[at[known]] == time_ns[known]
    wanted = at * nodes + place
    found = np.searchsorted(keys[order], wanted)
    known &= found < len(keys)
    known[known] = keys[order][found[known]] == wanted[known]
    let_go = np.full(len(time_ns), NEVER, dtype=np.int64)
    let_go[known] = host.returns["let_go_ns"][order][found[known]]
    return let_go


def host_metrics(
    outcome: Outcome,
    return_time_s: float | None,
    *,
    price: float | None = None,
    walltimes: Walltimes | None = None,
    part_of_machine: bool = False,
) -> dict[str, Any]:
    """What the host jobs pay for the harvest, by the return time; without one, what each second of it would cost.

    Parameters
    ----------
    outcome
        The replay.
    return_time_s
        Seconds until a node that training held is back; None: not stated.
    price
        Worth of a node-hour that host jobs wait, in node-hours of training.
    walltimes
        The host jobs, where they are known.
    part_of_machine
        Whether the trace holds a part of the machine's nodes only.

    Returns
    -------
    dict
        The field `host` of summary.json (docs/results.md).
    """
    host = outcome.host
    if host is None:
        return {}
    taken = host.taken
    counts = {
        "starts": taken.starts,
        "nodes_taken": taken.nodes,
        "nodes_taken_from_training": taken.from_training,
        "waiting_node_h_per_second": taken.waiting_nodes / 3600,
        "lower_bound": part_of_machine,
    }
    if return_time_s is None:
        return counts
    starts = starts_by_instant(host) if walltimes is None else starts_by_job(outcome, host, walltimes)
    delays_s = starts.delays_s(return_time_s)
    waiting_node_h = float((starts.nodes * delays_s).sum()) / 3600
    used_node_h = outcome.used_unit_seconds / outcome.trace.units_per_node / 3600
    idle_node_h = outcome.idle_unit_seconds / outcome.trace.units_per_node / 3600
    host_node_h = len(outcome.trace.nodes) * outcome.duration_s / 3600 - idle_node_h
    delayed = delays_s > 0
    return {
        **counts,
        "return_time_s": return_time_s,
        "by_job": starts.from_jobs,
        "starts": len(delays_s),
        "delayed": int(delayed.sum()),
        "delayed_share": float(delayed.mean()) if len(delays_s) else None,
        "delay_s": _delays(delays_s),
        "waiting_node_h": waiting_node_h,
        "waiting_share_of_host": waiting_node_h / host_node_h if host_node_h > 0 else None,
        "waiting_share_of_harvest": waiting_node_h / used_node_h if used_node_h else None,
        "break_even_price": used_node_h / waiting_node_h if waiting_node_h else None,
        **({} if price is None else {"host_price": price, "net_node_h": used_node_h - price * waiting_node_h}),
        "by_size": _by_size(starts, delays_s),
        **({} if walltimes is None else {"announced": _announced(starts, delays_s, return_time_s)}),
        "preempted_together": _together(host.preemptions["preempted"]),
        "stopped_together": _together(host.preemptions["stopped"]),
    }


def _delays(delays_s: NDArray[np.float64]) -> dict[str, float | None]:
    """The mean over all starts, delayed or not, and quantiles."""
    if not len(delays_s):
        return dict.fromkeys(("mean", "p50", "p95", "max"))
    median, upper = np.quantile(delays_s, (0.5, 0.95)).tolist()
    return {"mean": float(delays_s.mean()), "p50": median, "p95": upper, "max": float(delays_s.max())}


def _by_size(starts: Starts, delays_s: NDArray[np.float64]) -> list[dict[str, Any]]:
    """The same figures for each class of sizes, the smallest first."""
    classes = np.searchsorted(SIZES, starts.nodes)
    rows = []
    for number, name in enumerate(SIZE_NAMES):
        inside = classes == number
        delays = delays_s[inside]
        rows.append(
            {
                "nodes": name,
                "starts": int(inside.sum()),
                "delayed": int((delays > 0).sum()),
                "mean_delay_s": float(delays.mean()) if len(delays) else None,
                "waiting_node_h": float((starts.nodes[inside] * delays).sum()) / 3600,
            }
        )
    return rows


def _announced(starts: Starts, delays_s: NDArray[np.float64], return_time_s: float) -> dict[str, Any]:
    """What could be known ahead: jobs that were eligible a return time or longer before they started.

    Announcing a start moves its waiting to training, one to one: its nodes are given back before they are wanted.
    """
    ahead = starts.time_ns - starts.eligible_ns >= return_time_s * SECOND_NS
    nodes = int(starts.nodes.sum())
    return {
        "starts_share": float(ahead.mean()) if len(ahead) else None,
        "nodes_share": float(starts.nodes[ahead].sum()) / nodes if nodes else None,
        "waiting_node_h": float((starts.nodes * delays_s)[ahead].sum()) / 3600,
    }


def _together(counts: NDArray[np.int64]) -> dict[str, float | None]:
    """How many jobs an instant hits, over the instants that hit any."""
    some = counts[counts > 0]
    if not len(some):
        return dict.fromkeys(("p50", "p99", "max"))
    median, upper = np.quantile(some, (0.5, 0.99)).tolist()
    return {"p50": median, "p99": upper, "max": int(some.max())}
