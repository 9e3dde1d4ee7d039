"""Idle fragments: how long nodes stay idle, and how much of that time is usable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.replay.trace.node_trace import SECOND_NS, IndexArray, NodeTrace, TimeArray

# Start-up times in seconds for which the usable share of idle node-time is reported.
STARTUPS_S = (30, 60, 120, 300)
# Return times in seconds for which the break-even price is reported.
RETURNS_S = (30, 120, 300, 900)
# Bounds of the bins in which lengths of fragments are counted: round numbers of seconds, minutes, hours and days.
LENGTHS_S = (0, 1, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 57_600,
             *(86_400 * days for days in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)))  # fmt: skip
# Fragments that are looked at together.
AT_ONCE = 2**21
# Equal parts of the observation for which mean idle nodes are reported.
SPANS = 72
QUANTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def half_of_idle(trace: NodeTrace) -> int:
    """Return half of the units that are idle on average, rounded down: what a rigid job of generated ones asks for.

    Two such jobs run at once on average. On traces of several machines the outcome is near the best that one size
    for all jobs gives (docs/studies.md).
    """
    if not trace.duration_s:
        return 0
    return int(trace.idle_unit_seconds() / trace.duration_s / 2)


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

    node: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    censored: NDArray[np.bool_]

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Their lengths in seconds."""
        return (self.end_ns - self.start_ns) / SECOND_NS


def fragments(trace: NodeTrace) -> Fragments:
    """The idle fragments of a trace, in order of node and time.

    Examples
    --------
    >>> from bft.replay import always_idle
    >>> pieces = fragments(always_idle(2, 0, 60 * 10**9))
    >>> pieces.seconds.tolist(), pieces.censored.tolist()  # they may have begun before and end later
    ([60.0, 60.0], [True, True])
    """
    parts = list(fragments_in_parts(trace))
    return Fragments(
        np.concatenate([part.node for part in parts]),
        np.concatenate([part.start_ns for part in parts]),
        np.concatenate([part.end_ns for part in parts]),
        np.concatenate([part.censored for part in parts]),
    )


def fragments_in_parts(trace: NodeTrace) -> Iterator[Fragments]:
    """Yield the idle fragments of a trace, those of some nodes at a time: there may be many."""
    parts = 1 + len(trace.joined) // AT_ONCE
    bounds = np.linspace(0, trace.slots, parts + 1).astype(np.int64).tolist()
    for low, high in pairwise(bounds):
        yield _fragments_of(trace, low, high)


def _fragments_of(trace: NodeTrace, low: int, high: int) -> Fragments:
    """The idle fragments of nodes (or units) low ... high - 1."""
    node, start = _by_node(trace.joined, trace.joined_at, trace, low, high)
    left_node, left_time = _by_node(trace.left, trace.left_at, trace, low, high)
    # The k-th leave of a node ends its k-th fragment; the last fragment may have none.
    size = high - low
    place, left = node - low, left_node - low
    begins = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=size))])
    ends = np.concatenate([[0], np.cumsum(np.bincount(left, minlength=size))])
    rank = np.arange(len(node)) - begins[place]
    closed = rank < (ends[place.astype(np.int64) + 1] - ends[place])
    end = np.full(len(node), trace.end, dtype=np.int64)
    end[closed] = left_time[ends[place[closed]] + rank[closed]]
    return Fragments(node, start, end, ~closed | (start == trace.start))


def _by_node(
    nodes: IndexArray, offsets: TimeArray, trace: NodeTrace, low: int, high: int
) -> tuple[IndexArray, TimeArray]:
    """Nodes low ... high - 1 that joined or left, and when, in order of node and time."""
    inside = np.flatnonzero((nodes >= low) & (nodes < high))
    of = nodes[inside]
    order = np.argsort(of, kind="stable")  # they are in order of time
    event = np.searchsorted(offsets, inside, side="right") - 1
    return of[order], trace.times[event[order]]


def idle_over_time(trace: NodeTrace, spans: int) -> NDArray[np.float64]:
    """Mean idle nodes in each of `spans` equal parts of the observation: float64 of shape (spans,).

    >>> from bft.replay import always_idle
    >>> idle_over_time(always_idle(4, 0, 60 * 10**9), 3).tolist()
    [4.0, 4.0, 4.0]
    """
    end = max(trace.end, trace.start + 1)
    # Nanoseconds since the start: exact as floats within a hundred days, and almost exact beyond.
    edges = np.linspace(0.0, end - trace.start, spans + 1)
    instants = np.concatenate(
        [[0], trace.times - trace.start, [end - trace.start]]
    ).astype(np.float64)
    held = np.concatenate(
        [
            [0.0],
            np.cumsum(np.concatenate([[0], trace.idle_counts()]) * np.diff(instants)),
        ]
    )
    means: NDArray[np.float64] = np.diff(np.interp(edges, instants, held)) / np.diff(
        edges
    )
    return means


def usable_share(seconds: NDArray[np.float64], startup_s: float) -> float | None:
    """Share of idle node-time left once every fragment has lost its first `startup_s` seconds; None of no time.

    >>> usable_share(np.array([60.0, 300.0]), startup_s=90.0)
    0.5833333333333334
    """
    total = float(seconds.sum())
    return float(np.maximum(seconds - startup_s, 0.0).sum()) / total if total else None


def length_histogram(seconds: NDArray[np.float64]) -> list[dict[str, float]]:
    """Return fragments and their node-time by length: one entry a bin from the first to the last that has any.

    A bin holds lengths of more than `from_s` and at most `to_s` seconds; the last bin holds all beyond its bounds too.

    Examples
    --------
    >>> length_histogram(np.array([5.0, 20.0, 30.0]))
    [{'from_s': 1, 'to_s': 10, 'count': 1, 'node_s': 5.0}, {'from_s': 10, 'to_s': 30, 'count': 2, 'node_s': 50.0}]
    """
    bins = np.clip(
        np.searchsorted(LENGTHS_S, seconds, side="left") - 1, 0, len(LENGTHS_S) - 2
    )
    count = np.bincount(bins, minlength=1)
    total = np.bincount(bins, weights=seconds, minlength=1)
    held = np.flatnonzero(count)
    return [
        {
            "from_s": LENGTHS_S[k],
            "to_s": LENGTHS_S[k + 1],
            "count": int(count[k]),
            "node_s": float(total[k]),
        }
        for k in (range(held[0], held[-1] + 1) if len(held) else ())
    ]


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
    counts = trace.idle_counts()
    pieces = fragments(trace)
    seconds = pieces.seconds
    noun, whole = trace.turns_idle, trace.units if trace.by_unit else len(trace.nodes)
    idle = trace.idle_unit_seconds() if trace.by_unit else trace.idle_node_seconds()
    all_time = whole * trace.duration_s
    ever_idle = np.unique(
        trace.joined // (trace.units_per_node if trace.by_unit else 1)
    )
    result: dict[str, Any] = {
        "machine": trace.machine,
        "source": trace.source,
        "nodes": len(trace.nodes),
        "units_per_node": trace.units_per_node,
        **({"units": trace.units} if trace.by_unit else {}),
        "nodes_never_idle": len(trace.nodes) - len(ever_idle),
        "start": iso(trace.start),
        "end": iso(trace.end),
        "duration_s": trace.duration_s,
        "events": len(trace),
        "joins": len(trace.joined),
        "leaves": len(trace.left),
        f"idle_{noun}_seconds": idle,
        "idle_share": idle / all_time if all_time else None,
        **({"idle_share_beside_jobs": beside_jobs(trace)} if trace.by_unit else {}),
        f"idle_{noun}s_mean": idle / trace.duration_s if trace.duration_s else 0.0,
        f"idle_{noun}s_max": int(counts.max()) if len(counts) else 0,
        f"idle_{noun}s_over_time": [
            round(float(mean), 3) for mean in idle_over_time(trace, SPANS)
        ],
        "notes": [*trace.assumptions, *trace.notes],
    }
    if trace.uncertain is not None:
        result["uncertain"] = trace.uncertain.as_dict()
    if classes := idle_by_class(trace, trace.start, trace.end):
        result["classes"] = classes
    if trace.host_jobs is not None:
        result["host_jobs"] = trace.host_jobs.counts()
        result["notes"] += trace.host_jobs.lacks()
    if len(trace.left) and not trace.by_unit:
        result["host"] = host_prices(idle, len(trace.left))
    if len(seconds):
        total = seconds.sum()
        result["fragments"] = {
            "count": len(seconds),
            "censored": int(pieces.censored.sum()),
            "seconds_mean": float(seconds.mean()),
            "seconds_quantiles": {
                f"p{q}": float(v)
                for q, v in zip(
                    QUANTILES, np.percentile(seconds, QUANTILES), strict=True
                )
            },
            "up_to_10_min": {
                "by_count": float((seconds <= 600).mean()),
                "by_node_time": float(seconds[seconds <= 600].sum() / total)
                if total
                else None,
            },
            "up_to_1_h": {
                "by_count": float((seconds <= 3600).mean()),
                "by_node_time": float(seconds[seconds <= 3600].sum() / total)
                if total
                else None,
            },
            "share_outliving_startup": {
                f"{s} s": usable_share(seconds, s) for s in STARTUPS_S
            },
        }
        joins, leaves = np.diff(trace.joined_at), np.diff(trace.left_at)
        result[f"{noun}s_per_join_event"] = _batches(joins[joins > 0])
        result[f"{noun}s_per_leave_event"] = _batches(leaves[leaves > 0])
        gaps = np.diff(trace.times) / SECOND_NS
        if len(gaps):
            result["event_gap_s"] = {
                "median": float(np.median(gaps)),
                "mean": float(gaps.mean()),
                "max": float(gaps.max()),
            }
    return result


def idle_by_class(trace: NodeTrace, start: int, end: int) -> dict[str, dict[str, Any]]:
    """Return nodes, idle share and mean idle nodes (or units) of each class in a window; empty without several.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from bft.replay import always_idle
    >>> trace = replace(always_idle(3, 0, SECOND_NS), classes=("gpu", "cpu", "cpu"))
    >>> idle_by_class(trace, 0, SECOND_NS)["cpu"]
    {'nodes': 2, 'idle_share': 1.0, 'idle_mean': 2.0, 'of': 'node'}
    """
    names, classes = dict.fromkeys(trace.classes), np.array(trace.classes)
    seconds = np.diff(np.append(trace.times, trace.end).clip(start, end)) / SECOND_NS
    sizes = np.array(trace.node_units or (1,) * len(trace.nodes))
    duration_s = (end - start) / SECOND_NS
    if len(names) < 2 or not duration_s:
        return {}
    found = {}
    for name in names:
        of_class = classes == name
        mean = float(trace.only(of_class).idle_counts() @ seconds) / duration_s
        found[name] = {
            "nodes": int(of_class.sum()),
            "idle_share": mean / int(sizes[of_class].sum()),
            "idle_mean": mean,
            "of": trace.turns_idle,
        }
    return found


def class_text(of: dict[str, Any]) -> str:
    """Say what `idle_by_class` has of a class."""
    share, worth = f"{of['idle_share']:.1%}", f"{of['idle_mean']:,.1f} {of['of']}s"
    return f"{share} of {of['nodes']:,} nodes' time, worth {worth}"


def host_prices(idle_node_s: float, taken: int) -> dict[str, Any]:
    """Node-hours of training for each that the machine's own jobs wait, if training holds every idle node.

    A node that is taken back makes them wait for its return time D, so this is the mean idle time per node taken / D.

    Parameters
    ----------
    idle_node_s
        Idle node-seconds.
    taken
        Nodes that were taken back.

    Examples
    --------
    >>> host_prices(12_000.0, 10)["break_even_price"]
    {'30 s': 40.0, '120 s': 10.0, '300 s': 4.0, '900 s': 1.3333333333333333}
    """
    mean_s = idle_node_s / taken
    return {
        "idle_s_per_taken_node": mean_s,
        "break_even_price": {f"{s} s": mean_s / s for s in RETURNS_S},
    }


def beside_jobs(trace: NodeTrace) -> float | None:
    """Share of the idle unit-time on nodes of which other units are not idle; None of no time.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from bft.replay import always_idle
    >>> pair = always_idle(2, 0, SECOND_NS)  # of one unit each; now the two units of one node, and one of another
    >>> beside_jobs(replace(pair, nodes=("a",), units_per_node=2, node_units=(2,)))
    0.0
    >>> beside_jobs(replace(pair, nodes=("a",), units_per_node=3, node_units=(3,)))
    1.0
    """
    pieces = fragments(trace)
    node = pieces.node // (trace.units_per_node if trace.by_unit else 1)
    time = np.concatenate([pieces.start_ns, pieces.end_ns])
    change = np.concatenate(
        [np.ones(len(node), dtype=np.int64), np.full(len(node), -1)]
    )
    node = np.concatenate([node, node])
    order = np.lexsort((time, node))
    node, idle = (
        node[order],
        np.cumsum(change[order]),
    )  # each node ends with none: sums of its own
    unit_s = idle[:-1] * np.diff(time[order]) / SECOND_NS
    size = np.array(
        trace.node_units if trace.node_units is not None else (1,) * len(trace.nodes),
        dtype=np.int64,
    )
    total = float(unit_s.sum())
    return float(unit_s[idle[:-1] < size[node[:-1]]].sum()) / total if total else None


def _batches(sizes: NDArray[np.int64]) -> dict[str, float]:
    if not len(sizes):
        return {}
    named = {
        f"p{q}": float(v)
        for q, v in zip(QUANTILES[4:], np.percentile(sizes, QUANTILES[4:]), strict=True)
    }
    return {**named, "mean": float(sizes.mean()), "max": float(sizes.max())}


def iso_exact(instant_ns: int) -> str:
    """An instant to the nanosecond.

    >>> iso_exact(1_612_915_200_500_000_000)
    '2021-02-10T00:00:00.5Z'
    """
    return str(np.datetime64(instant_ns, "ns")).rstrip("0").rstrip(".") + "Z"


def zone_of(name: str) -> ZoneInfo:
    """The time zone that a trace states; UTC where it states none.

    Raises
    ------
    InputError
        When there is no zone of that name.
    """
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:
        raise InputError(
            f"the metadata state a time zone that is not known here: {name!r}"
        ) from error


def iso(instant_ns: int, zone: str = "") -> str:
    """An instant to the second in a time zone, which is named, for people; UTC where none is given.

    >>> iso(1_612_915_200_500_000_000), iso(1_612_915_200_500_000_000, "Europe/Berlin")
    ('2021-02-10T00:00:00Z', '2021-02-10T01:00:00 Europe/Berlin')
    """
    if zone in ("", "UTC"):
        return str(np.datetime64(instant_ns, "ns")).split(".")[0] + "Z"
    local = datetime.fromtimestamp(instant_ns // SECOND_NS, zone_of(zone))
    return f"{local:%Y-%m-%dT%H:%M:%S} {zone}"
