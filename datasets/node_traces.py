"""A machine's idle nodes over time, made up but shaped like Summit's.

A *hole* is a group of nodes that turn idle together and are taken back together: a mark (nodes, length) and a place in
time. Marks come first, from the measured quantiles, by stratified sampling: every seed meets them. Places are then
chosen so that the idle count behaves as measured, and cannot spoil the marks:

- holes of an *outage* and of the *start of a large job* end together (leave = that instant, join = leave - length);
- all others begin where the activity of the machine puts them.

Time is a circle as long as the trace: nodes that are idle at its end are idle at its start. So the process is
stationary from the first row on, and no node-second is lost at the edges.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.datasets import _summit as summit
from bft.models.checks import utc
from bft.models.errors import InputError

GENERATOR_VERSION: Final = 1
"""Changes whenever the same parameters would give another trace."""

SHORTEST_S: Final = 600.0
"""Shortest trace that can be generated, in seconds: it must hold a few of the shortest fragments."""

NODES_PER_CABINET: Final = 18
"""As on Summit; only names follow from it."""


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
    if nodes < 1:
        raise InputError(f"nodes is {nodes}, expected at least 1")
    if not (math.isfinite(days) and days * 86400 >= SHORTEST_S):
        raise InputError(
            f"days is {days}, expected at least {SHORTEST_S / 86400:.4f} (ten minutes)"
        )
    if seed < 0:
        raise InputError(f"seed is {seed}, expected a non-negative integer")
    begin, window_s = utc(start), round(days * 86400)

    rng = np.random.default_rng(seed)
    holes = draw_holes(nodes=nodes, days=window_s / 86400, outages=outages, rng=rng)
    changes = assign_nodes(holes, nodes=nodes, rng=rng)
    names = _names(nodes)
    offset_ns = np.asarray(poll_seconds(changes.poll)) * 1_000_000_000
    time = begin.to_datetime64().astype("datetime64[ns]") + offset_ns.astype(
        "timedelta64[ns]"
    )
    frame = pd.DataFrame(
        {
            "time": pd.DatetimeIndex(time).tz_localize("UTC"),
            "node": pd.Series(names).array.take(changes.node),
            "idle": changes.idle,
        }
    )
    source = (
        f"bft.datasets.generate_node_trace, version {GENERATOR_VERSION}: nodes={nodes}, days={days}, seed={seed}, "
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
    return NodeTraceTable(frame=frame, metadata=metadata)


def _names(nodes: int) -> list[str]:
    """Name nodes by cabinet and place in it: c0000n01, …, c0000n18, c0001n01 and so on."""
    return [
        f"c{i // NODES_PER_CABINET:04d}n{i % NODES_PER_CABINET + 1:02d}"
        for i in range(nodes)
    ]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of state, sorted by poll, then node.

    Parameters
    ----------
    poll
        Shape (changes,): the poll of each; poll 0 lists the nodes idle at the start.
    node
        Shape (changes,): index of the node.
    idle
        Shape (changes,): True where the node turns idle, False where it is taken back.
    """

    poll: Ints
    node: Ints
    idle: NDArray[np.bool_]


def assign_nodes(holes: Holes, *, nodes: int, rng: np.random.Generator) -> Changes:
    """Give each hole its nodes, in linear time and memory.

    Busy nodes wait in a line in which those taken back together stay together. A hole cuts a block out
    of it, at its end (the nodes taken last: a short job ended) or anywhere, and the line's end fills the
    cut. A hole for which too few nodes are busy gets those there are.

    Parameters
    ----------
    holes
        What opens when, for how long.
    nodes
        Nodes of the machine; about 1 % of them, drawn at random, never turn idle.
    rng
        Source of all randomness.
    """
    never = rng.permutation(nodes)[: round(summit.NEVER_IDLE_SHARE * nodes)]
    busy = np.setdiff1d(np.arange(nodes), never)
    waiting = len(busy)

    # A hole across the end of the circle is one that is open at the start and one that is open at the end.
    wraps = np.flatnonzero(holes.join + holes.length > holes.polls)
    size = np.r_[holes.nodes, holes.nodes[wraps]]
    opens = np.r_[holes.join, np.zeros(len(wraps), dtype=np.int64)]
    closes = np.r_[
        holes.join + holes.length, (holes.join + holes.length)[wraps] - holes.polls
    ]
    n = len(size)
    # In one poll holes open before others close, so that no node leaves and joins at once.
    order = np.lexsort((np.repeat([0, 1], n), np.r_[opens, closes]))
    recent, where = rng.random(n) < summit.RECENT_SHARE, rng.random(n)

    members: list[Ints] = [busy[:0]] * n
    events: list[Ints] = []
    for event in order.tolist():
        hole = event % n
        if event < n:
            take = min(int(size[hole]), waiting)
            spare = waiting - take
            index = spare if recent[hole] else int(where[hole] * (spare + 1))
            members[hole] = busy[index : index + take].copy()
            tail = busy[max(index + take, spare) : waiting].copy()
            busy[index : index + len(tail)] = tail
            waiting = spare
        else:
            busy[waiting : waiting + len(members[hole])] = members[hole]
            waiting += len(members[hole])
        events.append(members[hole])

    lengths = np.array([len(event) for event in events], dtype=np.int64)
    poll = np.repeat(np.r_[opens, closes][order], lengths)
    idle = np.repeat(order < n, lengths)
    node = np.concatenate(events)
    seen = poll < holes.polls
    poll, idle, node = poll[seen], idle[seen], node[seen]
    by_time = np.lexsort((node, poll))
    return Changes(poll=poll[by_time], node=node[by_time], idle=idle[by_time])


Ints = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]

GOLDEN: Final = (5**0.5 - 1) / 2
"""Steps of this part of a circle spread evenly over any run of them: Weyl's low-discrepancy sequence."""

BALANCE_TRIES: Final = 32
BALANCE_ERROR: Final = 0.02
"""Number of attempts for lengths with the expected mean per node, and the tolerance."""

ACTIVITY_BIN_POLLS: Final = 60
"""Resolution of the activity, in polls (ten minutes)."""


@dataclass(frozen=True, slots=True)
class Holes:
    """Groups of nodes that are idle together, laid on a circle of `polls` polls.

    Parameters
    ----------
    polls
        Length of the circle, in polls.
    nodes
        Shape (holes,): nodes in each hole.
    join
        Shape (holes,): poll at which each hole opens, in [0, polls).
    length
        Shape (holes,): polls for which it stays open, at most half of the circle.
    """

    polls: int
    nodes: Ints
    join: Ints
    length: Ints


def poll_seconds(polls: int | Ints) -> int | Ints:
    """Time of a poll, in whole seconds since the first."""
    return polls * summit.POLL_EIGHTHS_S // 8


def polls_in(seconds: float) -> int:
    """Whole polls in a window: poll 0 is at its start, the end is excluded."""
    return int(seconds * 8 / summit.POLL_EIGHTHS_S)


def draw_holes(
    *, nodes: int, days: float, outages: bool, rng: np.random.Generator
) -> Holes:
    """Draw the holes of a machine of `nodes` nodes over `days` days.

    Parameters
    ----------
    nodes
        Nodes of the machine, at least 1.
    days
        Length of the trace in days, at least 20 polls.
    outages
        Whether long holes also gather into outages of half the machine and more.
    rng
        Source of all randomness.

    Returns
    -------
    Holes
        Node-seconds and duration quantiles do not depend on `outages`.
    """
    polls = polls_in(days * 86400)
    size = _sizes(nodes, days, rng)
    length = _lengths(size, polls, rng)
    activity = _activity(polls, rng)
    leave = np.full(len(size), -1, dtype=np.int64)
    if outages:
        _end_in_outages(
            leave, size, length, nodes=nodes, days=days, polls=polls, rng=rng
        )
    _end_in_large_starts(
        leave, size, length, activity, nodes=nodes, days=days, polls=polls, rng=rng
    )

    rest = np.flatnonzero(leave < 0)
    weight = size[rest] * length[rest]
    heavy = (
        weight > np.quantile(weight, summit.HEAVY_QUANTILE) if len(rest) else weight > 0
    )
    join = np.empty(len(rest), dtype=np.int64)
    join[~heavy] = _place(int((~heavy).sum()), activity, polls, rng)
    join[heavy] = _place(int(heavy.sum()), summit.HEAVY_EXPONENT * activity, polls, rng)
    leave[rest] = join + length[rest]
    return Holes(polls=polls, nodes=size, join=(leave - length) % polls, length=length)


def _quantile(knots: tuple[tuple[float, float], ...], shares: Floats) -> Floats:
    """Invert a distribution given by knots (probability, value), log-linear between them."""
    probability, value = np.array(knots).T
    return np.asarray(
        np.exp(np.interp(shares, probability, np.log(value))), dtype=np.float64
    )


def _strata(n: int, rng: np.random.Generator) -> Floats:
    """Draw n uniform numbers, one in each n-th of [0, 1), ascending."""
    return (np.arange(n) + rng.random(n)) / max(n, 1)


def _sizes(nodes: int, days: float, rng: np.random.Generator) -> Ints:
    """Nodes of each hole, ascending: measured quantiles, scaled so that fragments per node-day hold."""
    fragments = summit.FRAGMENTS_PER_NODE_DAY * nodes * days
    scaled = (
        summit.HOLES_PER_DAY
        * days
        * (nodes / summit.SUMMIT_NODES) ** summit.HOLE_COUNT_EXPONENT
    )
    n = max(1, round(min(scaled, fragments)))
    raw, dither = _quantile(summit.HOLE_NODES, _strata(n, rng)), rng.random(n)
    largest = max(1.0, summit.LARGEST_HOLE_SHARE * nodes)

    def sizes(scale: float) -> Ints:
        rounded = np.floor(raw * scale + dither * (raw * scale > 1))
        whole: Ints = np.clip(rounded, 1, largest).astype(np.int64)
        return whole

    low, high = 0.0, 64.0 * max(1.0, nodes / summit.SUMMIT_NODES)
    for _ in range(50):  # bisection: the mean size grows with the scale
        middle = (low + high) / 2
        low, high = (middle, high) if sizes(middle).sum() < fragments else (low, middle)
    size = sizes(high)
    return size[np.lexsort((rng.random(n), size))]


def _lengths(size: Ints, polls: int, rng: np.random.Generator) -> Ints:
    """Polls of each hole, for sizes in ascending order.

    Weyl's sequence gives each range of sizes all the quantiles evenly. A few holes hold much of the node-time
    of a small machine, so the first start of the sequence with the expected mean length per node is taken.
    """

    def lengths(shares: Floats) -> Ints:
        polled = np.rint(
            _quantile(summit.FRAGMENT_S, shares % 1.0) * 8 / summit.POLL_EIGHTHS_S
        )
        whole: Ints = np.clip(polled, summit.MIN_FRAGMENT_POLLS, polls // 2).astype(
            np.int64
        )
        return whole

    expected = float(lengths((np.arange(2000) + 0.5) / 2000).mean())
    step = GOLDEN * np.arange(len(size))
    best, best_error = lengths(step), np.inf
    for start in rng.random(BALANCE_TRIES):
        candidate = lengths(start + step)
        error = abs(float(candidate @ size) / (float(size.sum()) * expected) - 1)
        if error < best_error:
            best, best_error = candidate, error
        if error < BALANCE_ERROR:
            break
    return best


def _activity(polls: int, rng: np.random.Generator) -> Floats:
    """Log-activity per bin of the circle: normal quantiles in random order, linear between knots."""
    bins = max(1, polls // ACTIVITY_BIN_POLLS)
    activity = np.zeros(bins)
    for correlation_s, sigma in summit.ACTIVITY:
        knots = max(1, round(polls / polls_in(correlation_s)))
        value = np.array(
            [NormalDist().inv_cdf((i + 0.5) / knots) for i in range(knots)]
        )
        rng.shuffle(value)
        knot = (np.linspace(0, knots, bins, endpoint=False) + rng.random()) % knots
        activity += sigma * np.interp(
            knot, np.arange(knots + 1), np.r_[value, value[:1]]
        )
    return activity


def _place(n: int, log_density: Floats, polls: int, rng: np.random.Generator) -> Ints:
    """Draw n polls in random order, spread over the circle as exp(`log_density`)."""
    cumulative = np.r_[0.0, np.cumsum(np.exp(log_density))]
    shares = _strata(n, rng)
    rng.shuffle(shares)
    edges = np.linspace(0, polls, len(cumulative))
    placed: Ints = np.interp(shares * cumulative[-1], cumulative, edges).astype(
        np.int64
    )
    return np.minimum(placed, polls - 1)


def _end_in_outages(
    leave: Ints,
    size: Ints,
    length: Ints,
    *,
    nodes: int,
    days: float,
    polls: int,
    rng: np.random.Generator,
) -> None:
    """Let long holes end together, in outages that hold half the machine and more; sets `leave`."""
    n = round(summit.OUTAGES_PER_DAY * days)
    low, high = summit.OUTAGE_SHARE
    target = nodes * (low + (high - low) * _strata(n, rng))
    rng.shuffle(target)
    # One in each n-th of the circle and away from its edges, so that two rarely overlap.
    when = ((np.arange(n) + 0.2 + 0.6 * rng.random(n)) / max(n, 1) * polls).astype(
        np.int64
    )
    seconds = length * summit.POLL_EIGHTHS_S / 8
    shortest, longest = summit.OUTAGE_FRAGMENT_S
    fits = (
        (shortest < seconds)
        & (seconds < longest)
        & (size <= summit.OUTAGE_HOLE_SHARE * nodes)
    )
    _gather(leave, rng.permutation(np.flatnonzero(fits)), size, target, when)


def _end_in_large_starts(
    leave: Ints,
    size: Ints,
    length: Ints,
    activity: Floats,
    *,
    nodes: int,
    days: float,
    polls: int,
    rng: np.random.Generator,
) -> None:
    """Let many of the holes that are left end together, where a large job starts; sets `leave`."""
    n = round(summit.LARGE_STARTS_PER_DAY * days)
    z = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    share = np.minimum(
        summit.LARGE_START_SHARE * np.exp(summit.LARGE_START_SIGMA * z),
        summit.LARGE_START_MAX_SHARE,
    )
    target = nodes * share
    rng.shuffle(target)
    when = _place(n, activity, polls, rng)
    free = np.flatnonzero(leave < 0)
    odds = (
        size[free] ** summit.LARGE_START_SIZE_EXPONENT
        * length[free] ** summit.LARGE_START_LENGTH_EXPONENT
    )
    # Smallest exponential clocks first: sampling without replacement with these odds.
    chosen = free[np.argsort(rng.exponential(size=len(free)) / odds)]
    chosen = chosen[np.cumsum(size[chosen]) <= target.sum()]
    _gather(leave, rng.permutation(chosen), size, target, when)


def _gather(leave: Ints, order: Ints, size: Ints, target: Floats, when: Ints) -> None:
    """Give the holes in `order` to the instants `when`, until each has its `target` of nodes; sets `leave`."""
    owner = np.searchsorted(np.cumsum(target), np.cumsum(size[order]))
    owned = owner < len(target)
    leave[order[owned]] = when[owner[owned]]
