"""What harvesting costs the machine's own ("host") jobs (docs/host-jobs.md).

A start that takes nodes S at instant t waits until the slowest of them is back: its delay is
max(0, max over i in S of g_i + D - t), where D is the return time and g_i the last instant at which training let go of
node i since it turned idle. All of S wait with it, so the waiting is |S| x delay.

The field `host` of summary.json has always `by_job` (whether the machine's own jobs are known), `instants` at which
nodes are taken, `nodes_taken`, of these `nodes_taken_from_training`, `waiting_node_h_per_second` (node-hours for each
second of return time), `lower_bound`; with `--return-time` or `--reserve` also `reserve` and `free_first`; with
`--return-time`:

- `return_time_s`: D.
- `delayed`, `longest_delay_s`: starts that wait (where jobs are not known, instants), and the longest wait.
- `waiting_node_h`: nodes of each start × its delay.
- `waiting_share_of_host`: over the node-hours in which host jobs ran: by the jobs, else by the share that the trace
  states; null where neither is known. `waiting_share_of_harvest`: over the node-hours of training.
- `break_even_price`: used / waiting node-hours.
- `host_price`, `net_node_h`: with `--host-price P`, used − P × waiting node-hours.
- `preempted_together`, `stopped_together`: training jobs that lose nodes, or all nodes, at one instant: `p50`, `p99`,
  `max`.

Where jobs are known also:

- `starts`, `delayed_share`; `delay_s` (`mean` over all starts, `p50`, `p95`, `max`).
- `by_size`: by `nodes` of a start `starts`, `delayed`, `mean_delay_s`, `waiting_node_h`.
- `announced`, where the log states since when jobs waited: of jobs eligible D or longer before they began
  `starts_share`, `nodes_share`, the `waiting_node_h` that announcing them would move to training, and the
  `delayed_share` of starts that would still wait.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bft.models.writing import three_digits
from bft.replay.engine.host import NOT_HELD, HostReturns
from bft.replay.engine.ledger import Outcome
from bft.replay.engine.rules import Rules
from bft.replay.results.dedicated import equivalent_nodes
from bft.replay.results.metrics import mean
from bft.replay.trace.host_jobs import NEVER, HostJobs
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace, TimeArray

# Upper ends of the classes of starts by their number of nodes; larger ones make a class of their own.
SIZES = (1, 4, 16, 64, 256)


def size_names(ends: Sequence[int]) -> list[str]:
    """Names of the classes with these upper ends, and of the larger ones.

    >>> size_names((1, 4))
    ['1', '2-4', '> 4']
    """
    begins = [1, *(end + 1 for end in ends)]
    pairs = zip(begins, ends, strict=False)
    names = [str(end) if begin == end else f"{begin}-{end}" for begin, end in pairs]
    return [*names, f"> {ends[-1]}"]


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
    """

    time_ns: TimeArray
    nodes: NDArray[np.int64]
    let_go_ns: TimeArray
    eligible_ns: TimeArray

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
    return Starts(instants, nodes.astype(np.int64), latest, unknown)


def starts_by_job(
    trace: NodeTrace, host: HostReturns, jobs: HostJobs, start_ns: int, end_ns: int
) -> Starts:
    """Take the nodes of one host job for one start, those that another host job handed over included.

    The nodes of jobs that begin at one instant are pooled: they go to the jobs in the order in which these became
    eligible, the ones that training let go of first before others. Leaves that no job explains have no delay. Jobs
    count that begin in the window [start_ns, end_ns) of the replay.
    """
    index = {name: position for position, name in enumerate(trace.nodes)}
    position = np.array([index.get(name, -1) for name in jobs.names], dtype=np.int64)[
        jobs.nodes
    ]
    row_of = np.repeat(np.arange(len(jobs)), jobs.sizes)
    begins = ~jobs.reserved & (jobs.start >= start_ns) & (jobs.start < end_ns)
    used = begins[row_of] & (position >= 0)
    position, row_of = position[used], row_of[used]

    let_go = _let_go_at(host, jobs.start[row_of], position)
    rows = np.unique(row_of)
    rows = rows[np.lexsort((rows, jobs.known[rows], jobs.start[rows]))]
    turn = np.empty(len(jobs), dtype=np.int64)
    turn[rows] = np.arange(len(rows))
    left = let_go < NEVER  # the others were handed over by another host job
    taken = np.bincount(turn[row_of[left]], minlength=len(rows))

    # Pooled at each instant: the earliest let-go to the job that was eligible first.
    order = np.lexsort((let_go[left], jobs.start[row_of[left]]))
    pooled = let_go[left][order]
    last = np.cumsum(taken) - 1
    latest = np.full(len(rows), NOT_HELD, dtype=np.int64)
    latest[taken > 0] = pooled[last[taken > 0]]
    return Starts(
        jobs.start[rows],
        jobs.count[rows],
        latest,
        jobs.known[rows],
    )


def _let_go_at(
    host: HostReturns, time_ns: TimeArray, place: NDArray[np.int64]
) -> TimeArray:
    """The let-go instant of places that leave at these instants; `NEVER` where a place does not leave then."""
    import pandas as pd

    returns = host.returns
    known = pd.MultiIndex.from_arrays([returns["time_ns"], returns["place"]])
    wanted = pd.MultiIndex.from_arrays([time_ns, place])
    found = pd.Series(returns["let_go_ns"], known).reindex(wanted, fill_value=NEVER)
    return found.to_numpy()


def host_metrics(
    outcome: Outcome,
    return_time_s: float | None,
    *,
    price: float | None = None,
    some_nodes_alone: bool = False,
) -> dict[str, Any]:
    """Compute what the host jobs pay for the harvest; without a return time, what each second of it would cost.

    Where the trace has the machine's own jobs, a start is one of them. Elsewhere nothing tells jobs that start at one
    instant apart, nor starts from outages, nor which nodes one job hands to another: figures are those of instants, and
    of starts there are none.

    Parameters
    ----------
    outcome
        The replay.
    return_time_s
        Seconds until a node that training held is back; None: not stated.
    price
        Worth of a node-hour that host jobs wait, in node-hours of training.
    some_nodes_alone
        Whether host jobs count with some of their nodes only.

    Returns
    -------
    dict
        The field `host` of summary.json (docs/results.md).
    """
    host, trace, jobs = outcome.host, outcome.trace, known_jobs(outcome.trace)
    if host is None:
        return {}
    taken = host.taken
    figures: dict[str, Any] = {
        "by_job": jobs is not None,
        "instants": taken.starts,
        "nodes_taken": taken.nodes,
        "nodes_taken_from_training": taken.from_training,
        "waiting_node_h_per_second": taken.waiting_nodes / 3600,
        "lower_bound": jobs is None or some_nodes_alone,
    }
    if return_time_s is None:
        return figures
    starts = starts_of(trace, host, outcome.start_ns, outcome.end_ns)
    delays_s = starts.delays_s(return_time_s)
    used_node_h = outcome.used_unit_seconds / trace.units_per_node / 3600
    host_node_h = host_node_hours(trace, outcome.start_ns, outcome.end_ns)
    figures |= waiting(starts, return_time_s, used_node_h, host_node_h)
    figures |= {
        "preempted_together": _together(host, "preempted"),
        "stopped_together": _together(host, "stopped"),
    }
    if price is not None:
        net = used_node_h - price * figures["waiting_node_h"]
        figures |= {"host_price": price, "net_node_h": net}
    if jobs is not None:
        figures |= {
            "starts": len(delays_s),
            "delayed_share": float((delays_s > 0).mean()) if len(delays_s) else None,
            "delay_s": {
                "mean": mean(delays_s),
                **_quantiles(delays_s, p50=0.5, p95=0.95),
            },
            "by_size": _by_size(starts, delays_s),
        }
        if jobs.counts()["waited"]:
            figures["announced"] = _announced(starts, delays_s, return_time_s)
    return figures


def known_jobs(trace: NodeTrace) -> HostJobs | None:
    """The machine's own jobs, where the trace has them and they name their nodes."""
    jobs = trace.host_jobs
    return jobs if jobs is not None and jobs.names_nodes else None


def starts_of(
    trace: NodeTrace, host: HostReturns, start_ns: int, end_ns: int
) -> Starts:
    """The starts of the window of a replay: one for each job; where jobs are not known, one for each instant."""
    jobs = known_jobs(trace)
    if jobs is None:
        return starts_by_instant(host)
    return starts_by_job(trace, host, jobs, start_ns, end_ns)


def waiting(
    starts: Starts, return_time_s: float, used_node_h: float, host_node_h: float | None
) -> dict[str, Any]:
    """Figures of what starts wait, whatever the return time was in the replay: it changes no decision.

    Parameters
    ----------
    starts
        Starts of a replay.
    return_time_s
        Seconds until a node that training held is back.
    used_node_h, host_node_h
        Node-hours that training held, and in which host jobs ran; None: not known.
    """
    delays_s = starts.delays_s(return_time_s)
    waiting_node_h = _node_h(starts.nodes, delays_s)
    of_host = waiting_node_h / host_node_h if host_node_h else None
    of_harvest = waiting_node_h / used_node_h if used_node_h else None
    return {
        "return_time_s": return_time_s,
        "delayed": int((delays_s > 0).sum()),
        "longest_delay_s": float(delays_s.max(initial=0.0)),
        "waiting_node_h": waiting_node_h,
        "waiting_share_of_host": of_host,
        "waiting_share_of_harvest": of_harvest,
        "break_even_price": used_node_h / waiting_node_h if waiting_node_h else None,
    }


def host_node_hours(trace: NodeTrace, start_ns: int, end_ns: int) -> float | None:
    """Node-hours in which host jobs ran in the window of the replay; None where that is not known.

    By the jobs; where they are not known, by the share of all node-time that the trace states.
    """
    jobs = known_jobs(trace)
    if jobs is not None:
        ran = jobs.take(np.flatnonzero(jobs.began))
        spans_ns = ran.end.clip(start_ns, end_ns) - ran.start.clip(start_ns, end_ns)
        return float(ran.count @ (spans_ns / SECOND_NS)) / 3600
    if trace.busy_share is None:
        return None
    hours = (end_ns - start_ns) / SECOND_NS / 3600
    return trace.busy_share * len(trace.nodes) * hours


def _node_h(nodes: NDArray[np.int64], seconds: NDArray[np.float64]) -> float:
    """Node-hours, whatever the order of the starts."""
    return math.fsum(nodes * seconds) / 3600


def _quantiles(values: NDArray[Any], **shares: float) -> dict[str, Any]:
    """Quantiles by name, and the largest value; None where there are no values."""
    if not len(values):
        return dict.fromkeys((*shares, "max"))
    found = np.quantile(values, list(shares.values())).tolist()
    return {**dict(zip(shares, found, strict=True)), "max": values.max().item()}


def _together(host: HostReturns, what: str) -> dict[str, Any]:
    """How many training jobs an instant hits, over the instants that hit any."""
    counts = host.preemptions[what]
    return _quantiles(counts[counts > 0], p50=0.5, p99=0.99)


def _by_size(starts: Starts, delays_s: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Return starts, delays and waiting of each class of start sizes, the smallest first."""
    classes = np.searchsorted(SIZES, starts.nodes)
    rows = []
    for number, name in enumerate(size_names(SIZES)):
        inside = classes == number
        delays = delays_s[inside]
        rows.append(
            {
                "nodes": name,
                "starts": int(inside.sum()),
                "delayed": int((delays > 0).sum()),
                "mean_delay_s": mean(delays),
                "waiting_node_h": _node_h(starts.nodes[inside], delays),
            }
        )
    return rows


def _announced(
    starts: Starts, delays_s: NDArray[np.float64], return_time_s: float
) -> dict[str, Any]:
    """Return what announcing starts would give: of jobs eligible a return time or longer before they started.

    Announcing a start moves its waiting to training, one to one: its nodes are given back before they are wanted.
    """
    ahead = starts.time_ns - starts.eligible_ns >= return_time_s * SECOND_NS
    nodes = int(starts.nodes.sum())
    return {
        "starts_share": float(ahead.mean()) if len(ahead) else None,
        "nodes_share": float(starts.nodes[ahead].sum()) / nodes if nodes else None,
        "waiting_node_h": _node_h(starts.nodes[ahead], delays_s[ahead]),
        "delayed_share": float((delays_s[~ahead] > 0).sum()) / len(ahead)
        if len(ahead)
        else None,
    }


def host_notes(host: dict[str, Any], outcome: Outcome, rules: Rules) -> Iterator[str]:
    """Yield what has to be known to read the figures of host jobs, by their field `host`."""
    idle_nodes = equivalent_nodes(outcome)
    if rules.reserve >= idle_nodes:
        yield (
            f"--reserve {rules.reserve} is not below the {idle_nodes:.1f} nodes that are idle on average: training "
            "gets only what is idle beyond them"
        )
    if rules.return_time_s is None:
        return
    if not host["by_job"]:
        yield (
            "the machine's own jobs are not known: what they wait is at least that of the nodes which leave at one "
            "instant, outages included, and no share of their starts is known; ingest writes the jobs of a log "
            "beside its trace (docs/host-jobs.md)"
        )
    elif host["lower_bound"]:
        yield (
            "the replay has some of the machine's nodes: what host jobs wait is a lower bound, since their nodes "
            "outside these wait with them"
        )
    if host["waiting_share_of_host"] is None:
        yield "the node-time of host jobs is not known: the trace does not tell it from outages"
    price = host.get("host_price", 1.0)
    if host["break_even_price"] is not None and host["break_even_price"] < price:
        mean_s = idle_nodes * outcome.duration_s / host["nodes_taken"]
        yield (
            f"harvesting costs host jobs more than it yields: {host['break_even_price']:.2g} node-hours of training "
            f"for each that they wait, at a price of {price:g} (--return-time {rules.return_time_s:g}; a node that "
            f"they take was idle for {mean_s:,.0f} s on average)"
        )


def host_sentence(host: dict[str, Any]) -> str:
    """Say in a sentence what host jobs pay."""
    at_least = "at least " if host["lower_bound"] else ""
    if "waiting_node_h" not in host:
        return (
            f"at {host['instants']:,} instants they took {host['nodes_taken']:,} nodes, "
            f"{host['nodes_taken_from_training']:,} of them from training; each second that a node takes to return "
            f"makes them wait {at_least}{three_digits(host['waiting_node_h_per_second'])} node-hours"
        )
    share = host["waiting_share_of_host"]
    of_time = "" if share is None else f"{share:.2%} of their node-time; "
    text = (
        f"your own jobs would have waited {at_least}{host['waiting_node_h']:,.0f} node-hours more ({of_time}"
        f"{host['return_time_s']:g} s for a node to return)"
    )
    if host["break_even_price"] is not None:
        at_most = "at most " if host["lower_bound"] else ""
        text += f": {at_most}{host['break_even_price']:,.1f} node-hours of training for each node-hour that they wait"
    if host["reserve"] and host.get("delayed_share") is not None:
        nodes = f"{host['reserve']} node{'s' * (host['reserve'] != 1)}"
        text += f"; with {nodes} kept free, {1 - host['delayed_share']:.0%} of their starts would not have noticed"
    return text
