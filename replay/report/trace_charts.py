"""Charts of a node trace: when nodes are idle, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from bft.models.writing import duration
from bft.replay.report.chart import (
    Axis,
    Bars,
    Chart,
    Heat,
    mean_over_time,
    over_time,
    round_spans,
)
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_statistics import fragments, length_histogram

DAY_QUARTERS = 96
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# Parts of a window of which means are shown: zooming in four times still shows one a pixel.
SPANS = 2000


def charts_of_trace(trace: NodeTrace) -> list[Chart]:
    """The charts of a node trace alone."""
    lengths = length_histogram(fragments(trace).seconds)
    charts = (
        idle_nodes(trace),
        by_hour(trace),
        fragment_lengths(lengths, trace.turns_idle),
    )
    return [chart for chart in charts if chart is not None]


def fragment_lengths(
    histogram: Sequence[dict[str, float]], what: str = "node"
) -> Chart | None:
    """Chart how long nodes (or units) stay idle, by count and by node-time; None if no node was idle."""
    if not histogram:
        return None
    table = pd.DataFrame(histogram)
    shares = table[["count", "node_s"]] / table[["count", "node_s"]].sum()
    by_count, by_time = shares[table["to_s"] <= 600].sum()
    names = tuple(
        f"{duration(row['from_s'])} to {duration(row['to_s'])}" for row in histogram
    )
    series = {
        "share of fragments": shares["count"].to_numpy(),
        f"share of idle {what}-time": shares["node_s"].to_numpy(),
    }
    note = f"A fragment is a stretch during which a {what} is idle without a break. "
    note += f"{by_count:.0%} of them last at most 10 minutes, and hold {by_time:.0%} of the idle {what}-time."
    drawing = Bars(names, Axis("share", "share"), series)
    title = f"How long {what}s stay idle"
    return Chart("fragments", title, note, drawing, table.round(1))


def idle_nodes(trace: NodeTrace) -> Chart:
    """Idle nodes (or units) of a trace over time."""
    what = trace.turns_idle
    end = max(trace.end, trace.start + SECOND_NS)
    spans, length = round_spans(trace.start, end, SPANS)
    idle = trace.idle_counts().astype(np.float64)
    means = mean_over_time(trace.times, idle, spans)
    mean = np.average(means, weights=np.diff(spans))
    note = f"On average {mean:,.1f} {what}s were idle, at most {means.max():,.0f}. Means over {length}."
    title = f"Idle {what}s over time"
    return over_time(title, note, f"{what}s", spans / 1e6, {"idle": means})


def by_hour(trace: NodeTrace) -> Chart | None:
    """Mean idle nodes (or units) by weekday and hour of the day in the site's time zone; None for less than a day.

    Hours that were observed in part do not count. Offsets of time zones are multiples of a quarter of an hour.
    """
    quarter, what, zone = 900 * SECOND_NS, trace.turns_idle, trace.zone or "UTC"
    if trace.end - trace.start < DAY_QUARTERS * quarter:
        return None
    first, last = -(-trace.start // quarter), trace.end // quarter
    edges = np.arange(first, last + 1, dtype=np.int64) * quarter
    idle = trace.idle_counts().astype(np.float64)
    wall = pd.DatetimeIndex(edges[:-1], tz="UTC").tz_convert(ZoneInfo(zone))
    hour = wall.tz_localize(None).floor("h")
    means = pd.Series(mean_over_time(trace.times, idle, edges), hour)
    hours = means.groupby(level=0).agg(["mean", "size"])
    whole = hours.loc[hours["size"] >= 4, "mean"]
    at = pd.DatetimeIndex(whole.index)
    by_day = whole.groupby([at.day_of_week, at.hour]).mean().unstack()
    table = by_day.reindex(index=range(7), columns=range(24))
    across, cells = [f"{number:02d}" for number in range(24)], table.to_numpy()
    found = []
    for place in (np.nanargmax(cells), np.nanargmin(cells)):
        day, number = divmod(int(place), 24)
        found.append(f"{DAYS[day]} at {number:02d}:00 ({cells[day, number]:,.1f})")
    note = f"Mean idle {what}s. Most are idle on {found[0]}, fewest on {found[1]}, in the time of {zone}."
    texts = [["" if each != each else f"{each:,.1f}" for each in row] for row in cells.tolist()]  # fmt: skip
    axes = Axis(f"hour of the day, {zone}"), Axis("weekday")
    drawing = Heat(*axes, tuple(across), DAYS, cells, texts)
    shown = pd.DataFrame(cells.round(1), columns=across)
    shown.insert(0, "day", list(DAYS))
    return Chart("hours", f"Idle {what}s by hour and weekday", note, drawing, shown)
