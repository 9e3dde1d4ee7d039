"""A machine's idle nodes over time, made up but shaped like Summit's.

A *hole* is a group of nodes that turn idle together and are taken back together: a mark (nodes, length) and a place in
time. Marks come first, from the measured quantiles, by stratified sampling: every seed meets them. Places are then
chosen so that the idle count behaves as measured, and cannot spoil the marks:

- holes of an *outage* and of the *start of a large job* end together (leave = that instant, join = leave - length);
- all others begin where the activity of the machine puts them.

Time is a circle as long as the trace: nodes that are idle at its end are idle at its start. So the process is
stationary from the first row on, and no node-second is lost at the edges. It is counted in polls of the batch system.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.checks import utc
from bft.models.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]

# What is called *measured* is of a Summit log, 10-24 February 2021 (4,734 nodes, 14.9 days, one row per poll at which
# a node changed). All else is chosen by hand, so that the generated process meets what is measured:
# `benchmarks/summit_like.py` prints both.
SUMMIT_NODES = 4734
# Between two polls of the batch system: 12 % of the one-poll gaps in the log are 11 s and the others 10 s, measured. A
# multiple of 1/8, so that poll times are exact.
POLL_S = 10.125


@dataclass(frozen=True, slots=True)
class NodeTraceTable:
    """A node trace in long form.

    Parameters
    ----------
    frame
        One row per change: `time` (datetime64[ns, UTC]), `node` (str), `idle` (bool), sorted by time, then
        in the order of the universe. Rows at the start of the window list the nodes that are idle then.
    metadata
        `machine`; `nodes`, the universe as a JSON list, with nodes that never change; `units_per_node`;
        `source`; `start` and `end` of the observation window (ISO 8601, UTC).

    Examples
    --------
    >>> trace = generate_node_trace(nodes=4, days=0.5, seed=1)
    >>> trace.nodes, list(trace.frame.columns)
    (['c0000n01', 'c0000n02', 'c0000n03', 'c0000n04'], ['time', 'node', 'idle'])
    """

    frame: pd.DataFrame
    metadata: dict[str, str]

    @property
    def nodes(self) -> list[str]:
        """The node universe, in order."""
        return [str(name) for name in json.loads(self.metadata["nodes"])]


def generate_node_trace(
    *,
    nodes: int = 512,
    days: float = 2.0,
    seed: int = 0,
    start: str = "2021-02-10",
    machine: str = "summit-like",
    outages: bool = True,
) -> NodeTraceTable:
    """Generate a node trace with the statistics of Summit, 10-24 February 2021.

    About 8 % of the node-time is idle, in fragments from 70 s to hours with a median of 8 minutes; nodes
    join and leave in groups with a heavy tail. `python benchmarks/summit_like.py` prints how close it is.

    Parameters
    ----------
    nodes
        Size of the machine. Holes on smaller machines are fewer and smaller; the idle share and the
        durations stay. Time and memory grow linearly with nodes × days.
    days
        Length of the observation window, in days of 86,400 s, to the second; at least ten minutes.
    seed
        Same parameters, same seed, same trace.
    start
        Start of the window; UTC if it states no time zone.
    machine
        Name of the machine, for the metadata.
    outages
        Whether, every other day, most of the machine turns idle for an hour or so. Without them the
        idle share stays the same: their holes are spread over the window.

    Returns
    -------
    NodeTraceTable
        Changes at least 10 s apart.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> trace = generate_node_trace(nodes=64, days=0.5, seed=1)
    >>> len(trace.nodes), list(trace.frame.columns)
    (64, ['time', 'node', 'idle'])
    """
    least = 600 / 86400  # it must hold a few of the shortest fragments
    for name, value, fits, expected in (
        ("nodes", nodes, nodes >= 1, "at least 1"),
        ("days", days, least <= days < np.inf, f"at least {least:.4f} (ten minutes)"),
        ("seed", seed, seed >= 0, "a non-negative integer"),
    ):
        if not fits:
            raise InputError(f"{name} is {value}, expected {expected}")
    begin, window_s = utc(start), round(days * 86400)
    changes = _changes(nodes, window_s / 86400, outages, np.random.default_rng(seed))
    # 18 nodes per cabinet, as on Summit; only names follow from it.
    names = [f"c{i // 18:04d}n{i % 18 + 1:02d}" for i in range(nodes)]
    seconds = (changes["poll"] * POLL_S).astype(int)
    frame = pd.DataFrame(
        {
            "time": (begin + pd.to_timedelta(seconds, unit="s")).dt.as_unit("ns"),
            "node": pd.Series(names).array[changes["node"].to_numpy()],
            "idle": changes["idle"],
        }
    )
    # The version changes whenever the same parameters would give another trace.
    source = (
        f"bft.datasets.generate_node_trace, version 1: nodes={nodes}, days={days}, seed={seed}, "
        f"outages={outages}; made up, statistics fitted to the Summit log of 10-24 February 2021"
    )
    metadata = {
        "machine": machine,
        "nodes": json.dumps(names),
        "units_per_node": "1",
        "source": source,
        "start": begin.isoformat(),
        "end": (begin + pd.Timedelta(seconds=window_s)).isoformat(),
    }
    return NodeTraceTable(frame, metadata)


def _changes(
    nodes: int, days: float, outages: bool, rng: np.random.Generator
) -> pd.DataFrame:
    """Give each hole its nodes, in linear time and memory; returns poll, node (by number) and idle of each change.

    Busy nodes wait in a line in which those taken back together stay together. A hole cuts a block out
    of it, at its end (the nodes taken last: a short job ended) or anywhere, and the line's end fills the
    cut. A hole for which too few nodes are busy gets those there are. About 1 % of the nodes never turn idle.
    """
    polls = int(days * 86400 / POLL_S)
    holes = _holes(nodes, days, polls, outages, rng)
    # 54 nodes of Summit never turned idle, measured.
    never = rng.permutation(nodes)[: round(54 / SUMMIT_NODES * nodes)]
    busy = np.setdiff1d(np.arange(nodes), never).tolist()
    # A hole across the end of the circle is one that is open at the start and one that is open at the end.
    across = holes[:, holes[2] > polls] - np.array([[0], [polls], [polls]])
    size, opens, closes = np.hstack([holes, np.maximum(across, 0)])
    n = len(size)
    # In one poll holes open before others close, so that no node leaves and joins at once.
    order = np.lexsort((np.repeat([0, 1], n), np.append(opens, closes)))
    # Half of the holes open where nodes were last taken: a quarter of the log's busy periods last less than six minutes
    # (measured).
    recent, where = rng.random(n) < 0.5, rng.random(n)
    members: list[list[int]] = [[]] * n
    for event in order.tolist():
        hole = event % n
        if event < n:
            rest = max(0, len(busy) - int(size[hole]))
            first = rest if recent[hole] else int(where[hole] * (rest + 1))
            last = first + len(busy) - rest
            members[hole] = busy[first:last]
            tail = busy[max(last, rest) :]
            del busy[rest:]
            busy[first : first + len(tail)] = tail
        else:
            busy += members[hole]
    sizes = [len(each) for each in members]
    node = [each for some in members for each in some]
    changes = pd.DataFrame(
        {
            "poll": np.append(np.repeat(opens, sizes), np.repeat(closes, sizes)),
            "node": node + node,
            "idle": np.repeat([True, False], len(node)),
        }
    )
    changes = changes[changes["poll"] < polls]
    return changes.sort_values(["poll", "node"], ignore_index=True)


def _holes(
    nodes: int, days: float, polls: int, outages: bool, rng: np.random.Generator
) -> Ints:
    """Draw the holes, of shape (3, holes): nodes of each, the poll at which it opens, in [0, polls), and closes.

    Node-seconds and quantiles of the durations do not depend on `outages`.
    """
    size = _sizes(nodes, days, rng)
    length = _lengths(size, polls, rng)
    activity = _activity(polls, rng)
    leave = np.full(len(size), -1)

    def gather(order: Ints, target: Floats, when: Ints) -> None:
        """Let holes end at the instants `when`, in this order, until each has its `target` of nodes."""
        owner = np.searchsorted(np.cumsum(target), np.cumsum(size[order]))
        owned = owner < len(target)
        leave[order[owned]] = when[owner[owned]]

    if outages:
        # One in 2.5 days gathers 55 to 85 % of the machine, of holes that last 1,500 to 13,000 s and are no larger than
        # 30 % of it. Chosen for the 12.7 h with more than 2,000 idle nodes (measured); traces of that length have
        # 12-18 h. One in each n-th of the circle and away from its edges, so that two rarely overlap.
        n = round(0.4 * days)
        target = rng.permutation(nodes * (0.55 + (0.85 - 0.55) * _strata(n, rng)))
        share = (np.arange(n) + 0.2 + 0.6 * rng.random(n)) / max(n, 1)
        seconds = length * POLL_S
        fits = (seconds > 1500) & (seconds < 13000) & (size <= 0.3 * nodes)
        order = rng.permutation(np.flatnonzero(fits))
        gather(order, target, _whole(share * polls))
    # 30 large jobs a day start and take many holes back at once: a log-normal share of the machine each. In the log 377
    # leaves of at least 200 nodes take 69 % of all nodes that leave (measured).
    n = round(30 * days)
    shares = np.minimum(0.08 * np.exp(0.9 * _normal(n)), 0.7)
    target = rng.permutation(nodes * shares)
    when = _placed(n, activity, polls, rng)
    # Odds grow with nodes and length. Smallest exponential clocks first: sampling without replacement with these odds.
    free = np.flatnonzero(leave < 0)
    odds = size[free] ** 0.5 * length[free] ** 0.2
    chosen = free[np.argsort(rng.exponential(size=len(free)) / odds)]
    chosen = chosen[np.cumsum(size[chosen]) <= target.sum()]
    gather(rng.permutation(chosen), target, when)
    # The others begin where the activity puts them, those of many node-seconds where a power of it does: quiet hours
    # have few and small holes (idle nodes are fewer than 81 half of the time, measured).
    rest = np.flatnonzero(leave < 0)
    if len(rest):
        weight = size[rest] * length[rest]
        heavy = weight > np.quantile(weight, 0.55)
        for mine, power in ((rest[~heavy], 1), (rest[heavy], 2.4)):
            opens = _placed(len(mine), power * activity, polls, rng)
            leave[mine] = opens + length[mine]
    join = (leave - length) % polls
    return np.array([size, join, join + length])


def _quantile(table: str, shares: Floats) -> Floats:
    """Invert a measured distribution given by knots (probability, value), log-linear between them."""
    path = Path(__file__).with_name("data") / table
    probability, value = np.loadtxt(path, delimiter=",", skiprows=1).T
    return np.asarray(np.exp(np.interp(shares, probability, np.log(value))))


def _whole(values: Floats) -> Ints:
    return np.asarray(values, dtype=np.int64)


def _strata(n: int, rng: np.random.Generator) -> Floats:
    """Draw n uniform numbers, one in each n-th of [0, 1), ascending."""
    return (np.arange(n) + rng.random(n)) / max(n, 1)


def _normal(n: int) -> Floats:
    """Return the middle of each n-th of a standard normal distribution, ascending."""
    return np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])


def _sizes(nodes: int, days: float, rng: np.random.Generator) -> Ints:
    """Nodes of each hole, ascending: measured quantiles, scaled so that fragments per node-day hold."""
    summits = nodes / SUMMIT_NODES
    # 423,354 fragments of 4,734 nodes in 14.92 days, measured.
    fragments = 5.99 * nodes * days
    # Of Summit 985 rows a day with a join (measured), and holes that share a row. A machine a tenth as large has both
    # fewer and smaller holes.
    n = max(1, round(min(1120 * days * summits**0.4, fragments)))
    raw, dither = _quantile("summit_hole_nodes.csv", _strata(n, rng)), rng.random(n)
    largest = max(1.0, 2780 / SUMMIT_NODES * nodes)  # measured

    def sizes(scale: float) -> Ints:
        rounded = np.floor(raw * scale + dither * (raw * scale > 1))
        return _whole(np.clip(rounded, 1, largest))

    low, high = 0.0, 64.0 * max(1.0, summits)
    for _ in range(50):  # bisection: the mean size grows with the scale
        middle = (low + high) / 2
        low, high = (middle, high) if sizes(middle).sum() < fragments else (low, middle)
    size = sizes(high)
    return size[np.lexsort((rng.random(n), size))]


def _lengths(size: Ints, polls: int, rng: np.random.Generator) -> Ints:
    """Polls of each hole, for sizes in ascending order, at most half of the circle.

    Weyl's sequence gives each range of sizes all the quantiles evenly. A few holes hold much of the node-time
    of a small machine, so the first of 32 starts of the sequence with the expected mean length per node, to 2 %, is
    taken.
    """

    def lengths(shares: Floats) -> Ints:
        # The last quantile is cut: the log's longest fragment is 3.1 days, but only 1 in 2,000 exceeds four hours; the
        # shortest is 70 s (measured).
        seconds = _quantile("summit_fragment_s.csv", shares % 1.0)
        return _whole(np.clip(np.rint(seconds / POLL_S), 7, polls // 2))

    expected = size.sum() * lengths((np.arange(2000) + 0.5) / 2000).mean()
    steps = (5**0.5 - 1) / 2 * np.arange(len(size))
    tries = lengths(rng.random((32, 1)) + steps)
    errors = np.abs(tries @ size / expected - 1)
    return np.asarray(tries[np.argmin(np.maximum(errors, 0.02))])


def _activity(polls: int, rng: np.random.Generator) -> Floats:
    """Log-activity per bin of the circle: normal quantiles in random order, linear between knots."""
    bins = max(1, polls // 60)  # of ten minutes
    activity = np.zeros(bins)
    # Correlation time and standard deviation of each component. The log has quiet and busy hours too: its hourly rows
    # with a join have a variance of 11 × their mean (measured).
    for correlation_s, sigma in ((86400, 0.2), (7200, 0.8)):
        knots = max(1, round(polls / int(correlation_s / POLL_S)))
        value = rng.permutation(_normal(knots))
        place = np.linspace(0, knots, bins, endpoint=False) + rng.random()
        activity += sigma * np.interp(place, np.arange(knots), value, period=knots)
    return activity


def _placed(n: int, log_density: Floats, polls: int, rng: np.random.Generator) -> Ints:
    """Draw n polls in random order, spread over the circle as exp(`log_density`)."""
    cumulative = np.append(0.0, np.cumsum(np.exp(log_density)))
    shares = rng.permutation(_strata(n, rng))
    edges = np.linspace(0, polls, len(cumulative))
    placed = np.interp(shares * cumulative[-1], cumulative, edges)
    return _whole(np.minimum(placed, polls - 1))
