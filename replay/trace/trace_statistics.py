"""Idle fragments: how long nodes stay idle, and how much of that time is usable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from bft.replay.trace.node_trace import (
    SECOND_NS,
    BoolArray,
    FloatArray,
    IndexArray,
    IntArray,
    NodeTrace,
    by_node,
)

# Start-up times in seconds for which the usable share of idle node-time is reported.
STARTUPS_S = (30, 60, 120, 300)
# Return times in seconds for which the break-even price is reported.
_RETURNS_S = (30, 120, 300, 900)
# Bounds of the bins in which lengths of fragments are counted: round numbers of seconds, minutes, hours and days.
LENGTHS_S = (0, 1, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 57_600,
             *(86_400 * days for days in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)))  # fmt: skip
# Equal parts of the observation for which mean idle nodes are reported.
SPANS = 72
_QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def half_of_idle(trace: NodeTrace) -> int:
    """Return half of the units that are idle on average, rounded down: what a rigid job of generated ones asks for.

    Two such jobs run at once on average. On traces of several machines the outcome is near the best that one size
    for all jobs gives (docs/studies.md).
    """
    mean = share(trace.idle_unit_seconds(), trace.duration_s) or 0.0
    return int(mean / 2)


@dataclass(frozen=True, eq=False)
class Fragments:
    """The stretches during which a node (or unit, where units turn idle one by one) is idle without a break.

    Parameters
    ----------
    node
        Index of node or unit of each, int32.
    start_ns, end_ns
        Their bounds, UTC nanoseconds.
    censored
        Whether the fragment was cut by a bound of the observation, so that its true length is unknown.
    """

    node: IndexArray
    start_ns: IntArray
    end_ns: IntArray
    censored: BoolArray

    @property
    def seconds(self) -> FloatArray:
        """Their lengths in seconds."""
        return (self.end_ns - self.start_ns) / SECOND_NS

    def within(self, start_ns: int, end_ns: int) -> Fragments:
        """Return what of them lies between two instants (UTC ns); fragments of which nothing does are left out."""
        start = np.maximum(self.start_ns, start_ns)
        end = np.minimum(self.end_ns, end_ns)
        some = start < end
        cut = self.censored | (start > self.start_ns) | (end < self.end_ns)
        return Fragments(self.node[some], start[some], end[some], cut[some])


def fragments(trace: NodeTrace) -> Fragments:
    """The idle fragments of a trace, in order of node and time.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> pieces = fragments(always_idle(2, 0, 60 * 10**9))
    >>> pieces.seconds.tolist(), pieces.censored.tolist()  # they may have begun before and end later
    ([60.0, 60.0], [True, True])
    """
    (joined, begins), (left, ends) = trace.rows()
    # What is still idle at the end of the window ends with it: the k-th leave of a node ends its k-th fragment.
    is_idle = np.bincount(joined, minlength=trace.slots)
    is_idle -= np.bincount(left, minlength=trace.slots)
    still = np.flatnonzero(is_idle)
    left = np.append(left, still)
    ends = np.append(ends, np.full(len(still), trace.end))
    order, order_left = by_node(joined), by_node(left)
    start, end = begins[order], ends[order_left]
    cut = (order_left >= len(trace.left)) | (start == trace.start)
    return Fragments(joined[order], start, end, cut)


def idle_over_time(trace: NodeTrace, spans: int) -> FloatArray:
    """Mean idle nodes in each of `spans` equal parts of the observation: float64 of shape (spans,).

    >>> from bft.replay import always_idle
    >>> idle_over_time(always_idle(4, 0, 60 * 10**9), 3).tolist()
    [4.0, 4.0, 4.0]
    """
    # Nanoseconds since the start: exact as floats within a hundred days, and almost exact beyond.
    end = float(max(trace.end - trace.start, 1))
    edges = np.linspace(0.0, end, spans + 1)
    instants = np.concatenate([[0.0], trace.times - trace.start, [end]])
    idle = np.append(0, trace.idle_counts())
    held = np.append(0.0, np.cumsum(idle * np.diff(instants)))
    means: FloatArray = np.diff(np.interp(edges, instants, held))
    return means / np.diff(edges)


def usable_share(seconds: FloatArray, startup_s: float) -> float | None:
    """Share of idle node-time left once every fragment has lost its first `startup_s` seconds; None of no time.

    >>> usable_share(np.array([60.0, 300.0]), startup_s=90.0)
    0.5833333333333334
    """
    return share(np.maximum(seconds - startup_s, 0.0).sum(), seconds.sum())


def share(part: float, whole: float) -> float | None:
    """A part of a whole; None of nothing."""
    return float(part / whole) if whole else None


def length_histogram(seconds: FloatArray) -> list[dict[str, float]]:
    """Return fragments and their node-time by length: one entry a bin from the first to the last that has any.

    A bin holds lengths of more than `from_s` and at most `to_s` seconds; the last bin holds all beyond its bounds too.

    Examples
    --------
    >>> length_histogram(np.array([5.0, 20.0, 30.0]))
    [{'from_s': 1, 'to_s': 10, 'count': 1, 'node_s': 5.0}, {'from_s': 10, 'to_s': 30, 'count': 2, 'node_s': 50.0}]
    """
    bins = np.searchsorted(LENGTHS_S, seconds, side="left") - 1
    bins = np.clip(bins, 0, len(LENGTHS_S) - 2)
    count = np.bincount(bins).tolist()
    total = np.bincount(bins, weights=seconds).tolist()
    return [
        {
            "from_s": LENGTHS_S[k],
            "to_s": LENGTHS_S[k + 1],
            "count": count[k],
            "node_s": total[k],
        }
        for k in range(bins.min(initial=len(count)), len(count))
    ]


def quantiles(
    values: NDArray[Any], which: Sequence[int] = _QUANTILES
) -> dict[str, float]:
    """Return percentiles by name: p50 is the median.

    >>> quantiles(np.array([1, 2, 3]), [50])
    {'p50': 2.0}
    """
    found = np.percentile(values, which).tolist()
    return {f"p{q}": value for q, value in zip(which, found, strict=True)}


def trace_statistics(trace: NodeTrace) -> dict[str, Any]:
    """Return statistics of a node trace: size, idle nodes, fragments by count and by node-time.

    Durations in seconds; `idle_share` is the idle part of all node-time observed. Shares of no time at all are None.
    Where units turn idle one by one, names have units in the place of nodes, and `idle_share_beside_jobs` is the part
    of the idle unit-time that lies on nodes of which other units are not idle.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> statistics = trace_statistics(always_idle(2, 0, 60 * 10**9))
    >>> statistics["nodes"], statistics["idle_node_seconds"], statistics["idle_share"]
    (2, 120.0, 1.0)
    """
    noun, idle, duration_s = trace.turns_idle, trace.idle_seconds(), trace.duration_s
    fragments_of = np.bincount(
        trace.joined // trace.slots_per_node, minlength=len(trace.nodes)
    )
    over_time = idle_over_time(trace, SPANS)
    result: dict[str, Any] = {
        "machine": trace.machine,
        "source": trace.source,
        "nodes": len(trace.nodes),
        "units_per_node": trace.units_per_node,
        "nodes_never_idle": int((fragments_of == 0).sum()),
        "start": iso(trace.start),
        "end": iso(trace.end),
        "duration_s": duration_s,
        "events": len(trace),
        "joins": len(trace.joined),
        "leaves": len(trace.left),
        f"idle_{noun}_seconds": idle,
        "idle_share": share(idle, len(trace.members()) * duration_s),
        f"idle_{noun}s_mean": share(idle, duration_s) or 0.0,
        f"idle_{noun}s_max": int(trace.idle_counts().max(initial=0)),
        f"idle_{noun}s_over_time": [round(mean, 3) for mean in over_time.tolist()],
        "notes": [*trace.assumptions, *trace.notes],
    }
    pieces = fragments(trace)
    if trace.by_unit:
        result["units"] = trace.units
        result["idle_share_beside_jobs"] = _beside_jobs(trace, pieces)
    elif len(trace.left):
        # What the machine's own jobs wait for a node that they take back is its return time.
        each_s = idle / len(trace.left)
        prices = {f"{s} s": each_s / s for s in _RETURNS_S}
        result["host"] = {"idle_s_per_taken_node": each_s, "break_even_price": prices}
    if trace.uncertain is not None:
        result["uncertain"] = trace.uncertain.as_dict()
    if classes := idle_by_class(trace, trace.start, trace.end):
        result["classes"] = classes
    if trace.host_jobs is not None:
        result["host_jobs"] = trace.host_jobs.counts()
        result["notes"] += trace.host_jobs.lacks()
    if len(pieces.node):
        result["fragments"] = _lengths(pieces)
        for kind, offsets in (("join", trace.joined_at), ("leave", trace.left_at)):
            result[f"{noun}s_per_{kind}_event"] = _batches(np.diff(offsets))
    if len(trace) > 1:
        gaps = np.diff(trace.times) / SECOND_NS
        result["event_gap_s"] = {
            "median": float(np.median(gaps)),
            "mean": float(gaps.mean()),
            "max": float(gaps.max()),
        }
    return result


def _lengths(pieces: Fragments) -> dict[str, Any]:
    seconds = pieces.seconds
    up_to = {
        name: {
            "by_count": float((seconds <= limit_s).mean()),
            "by_node_time": share(seconds[seconds <= limit_s].sum(), seconds.sum()),
        }
        for name, limit_s in (("up_to_10_min", 600), ("up_to_1_h", 3600))
    }
    return {
        "count": len(seconds),
        "censored": int(pieces.censored.sum()),
        "seconds_mean": float(seconds.mean()),
        "seconds_quantiles": quantiles(seconds),
        **up_to,
        "share_outliving_startup": {
            f"{s} s": usable_share(seconds, s) for s in STARTUPS_S
        },
    }


def _batches(sizes: IntArray) -> dict[str, float]:
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return {}
    named = quantiles(sizes, _QUANTILES[4:])
    return {**named, "mean": float(sizes.mean()), "max": float(sizes.max())}


def _beside_jobs(trace: NodeTrace, pieces: Fragments) -> float | None:
    """Share of the idle unit-time on nodes of which other units are not idle; None of no time."""
    node = np.tile(pieces.node // trace.slots_per_node, 2)
    time = np.concatenate([pieces.start_ns, pieces.end_ns])
    change = np.repeat([1, -1], len(pieces.node))
    order = np.lexsort((time, node))
    # Each node ends with none: a sum over all nodes is one of each.
    idle = np.cumsum(change[order])[:-1]
    unit_s = idle * np.diff(time[order]) / SECOND_NS
    whole = idle == np.array(trace.node_units)[node[order][:-1]]
    return share(unit_s[~whole].sum(), unit_s.sum())


def idle_by_class(trace: NodeTrace, start: int, end: int) -> dict[str, dict[str, Any]]:
    """Return nodes, idle share and mean idle nodes (or units) of each class in a window; empty without several.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> trace = replace(always_idle(3, 0, SECOND_NS), classes=("gpu", "cpu", "cpu"))
    >>> idle_by_class(trace, 0, SECOND_NS)["cpu"]
    {'nodes': 2, 'idle_share': 1.0, 'idle_mean': 2.0, 'of': 'node'}
    """
    duration_s, found = (end - start) / SECOND_NS, {}
    if len(set(trace.classes)) < 2 or not duration_s:
        return {}
    seconds = np.diff(np.append(trace.times, trace.end).clip(start, end)) / SECOND_NS
    by_class = replace(trace, kinds=trace.classes)
    slots = np.array(trace.classes)[trace.members() // trace.slots_per_node]
    for name in dict.fromkeys(trace.classes):
        mean = float(by_class.of_kind(name).idle_counts() @ seconds) / duration_s
        found[name] = {
            "nodes": trace.classes.count(name),
            "idle_share": mean / int((slots == name).sum()),
            "idle_mean": mean,
            "of": trace.turns_idle,
        }
    return found


def class_text(of: dict[str, Any]) -> str:
    """Say what `idle_by_class` has of a class."""
    worth = f"worth {of['idle_mean']:,.1f} {of['of']}s"
    return f"{of['idle_share']:.1%} of {of['nodes']:,} nodes' time, {worth}"


def iso_exact(instant_ns: int) -> str:
    """An instant to the nanosecond.

    >>> iso_exact(1_612_915_200_500_000_000)
    '2021-02-10T00:00:00.5Z'
    """
    return str(np.datetime64(instant_ns, "ns")).rstrip("0").rstrip(".") + "Z"


def iso(instant_ns: int, zone: str = "") -> str:
    """An instant to the second in a time zone, which is named, for people; UTC where none is given.

    >>> iso(1_612_915_200_500_000_000), iso(1_612_915_200_500_000_000, "Europe/Berlin")
    ('2021-02-10T00:00:00Z', '2021-02-10T01:00:00 Europe/Berlin')
    """
    local = datetime.fromtimestamp(
        instant_ns // SECOND_NS, ZoneInfo(zone) if zone else UTC
    )
    name = "Z" if zone in ("", "UTC") else f" {zone}"
    return f"{local:%Y-%m-%dT%H:%M:%S}{name}"
