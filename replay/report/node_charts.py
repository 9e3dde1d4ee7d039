"""Charts of the nodes: which job held which, how long they stay idle, and what harvesting costs host jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from bft.replay.report.chart import (
    COLOURS,
    Axis,
    Bars,
    Blocks,
    Chart,
    Curve,
    Curves,
    FloatArray,
    Heat,
    stepped,
)
from bft.replay.report.job_charts import GROUPS, SPANS, TIME, label, stamps
from bft.replay.report.over_time import mean_over_time, round_spans
from bft.replay.report.run_files import RunFiles, Spans
from bft.replay.report.study_charts import names_of
from bft.replay.results.host import host_sentence
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.trace_statistics import Fragments

MAX_NODES = 25
DAY_QUARTERS = 96
# The entry of idle units that no job held.
UNUSED = "idle, not used"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def who_held_what(run: RunFiles) -> Chart | None:
    """Chart which job held which units, and when, in the colours of classes; None if no unit was held."""
    held = run.held
    if not held.rows:
        return None
    jobs = pd.Index(held.names)
    names = [label(name) for name in jobs]
    longest = held.longest
    weights, rows = held.unit_ns, held.rows
    if run.unused is not None:
        unused = Spans.of(run.unused, np.full(len(run.unused), len(names)))
        longest = longest.with_more(unused)
        rows += len(unused)
        weights = np.append(weights, unused.unit_ns.sum())
    else:
        weights = np.append(weights, 0.0)
    classes = _classes(run, jobs, weights[:-1])
    note = classes.sentence
    if run.unused is not None:
        note += f"{weights[-1] / weights.sum():.1%} of the idle unit-time was not used (grey). Empty areas were busy. "
    else:
        note += "Empty areas were busy, or idle and not used. "
    note += "Zoom in for single units; hover shows the job."
    if len(longest) < rows:
        drawn = longest.unit_ns.sum() / weights.sum()
        note += f" The shortest are left out ({1 - drawn:.1%} of the unit-time)."
    is_unused = run.unused is not None
    blocks = Blocks(
        TIME,
        Axis("units"),
        rows=[label(node) for node in run.nodes],
        names=[*names, UNUSED],
        origin=run.begin_ns / 1e6,
        seconds=max(1, (run.end_ns - run.begin_ns) // SECOND_NS),
        who=longest.who,
        first=longest.first,
        last=longest.last,
        begin=(longest.begin - run.begin_ns) // SECOND_NS,
        end=-(-(longest.end - run.begin_ns) // SECOND_NS),
        units=run.units_per_node,
        empty="busy" if is_unused else "nobody",
        classes=(*classes.names, UNUSED) if is_unused else classes.names,
        class_of=(*classes.of, len(classes.names)),
        hues=(*COLOURS[1 : len(classes.names) + 1], COLOURS[0]),
    )
    hours = pd.DataFrame(
        {
            "job": names,
            classes.what: [classes.names[number] for number in classes.of],
            "unit-hours": (weights[:-1] / 3.6e12).round(2),
        }
    )
    table = hours.sort_values("unit-hours", ascending=False, kind="stable")
    return Chart("held", "Who held what", note, blocks, table)


@dataclass(frozen=True, slots=True)
class _Classes:
    """Meaning of the colours of jobs: the kind of class, their names, the class of each job, and who held most."""

    what: str
    names: tuple[str, ...]
    of: tuple[int, ...]
    sentence: str


def _classes(run: RunFiles, jobs: pd.Index, held: FloatArray) -> _Classes:
    """Return the models of jobs, or else users or virtual clusters, or else the jobs: the first with several values.

    `held` is the unit-time of each job. Those with little of it are one class.
    """
    known = run.jobs.drop_duplicates("name").set_index("name")
    columns = [column for column in ("model", "user", "vc") if column in known]
    values = {
        GROUPS[column]: known[column].reindex(jobs).map(label) for column in columns
    }
    several = [what for what, value in values.items() if value.nunique() > 1]
    what = several[0] if several else "job"
    value = values[what] if several else pd.Series(jobs, index=jobs).map(label)
    by_class = pd.Series(held, index=value.to_numpy()).groupby(level=0).sum()
    by_class = by_class.sort_values(ascending=False, kind="stable")
    most = len(COLOURS) - 1
    kept = list(by_class.index[: most if len(by_class) <= most else most - 1])
    names = kept if len(kept) == len(by_class) else [*kept, "others"]
    number = {name: place for place, name in enumerate(kept)}
    of = tuple(number.get(name, len(kept)) for name in value)
    share = by_class.iloc[0] / by_class.sum()
    sentence = f"A colour is a {what}; {kept[0]} held most, {share:.0%} of the unit-time given to jobs. "
    return _Classes(what, tuple(names), of, sentence)


def fragment_lengths(
    histogram: Sequence[dict[str, float]], what: str = "node"
) -> Chart | None:
    """Chart how long nodes (or units) stay idle, by count and by node-time; None if no node was idle."""
    if not histogram:
        return None
    table = pd.DataFrame(histogram)
    names = tuple(
        f"{_whole_units(row['from_s'])} to {_whole_units(row['to_s'])}"
        for row in histogram
    )
    series = {
        "share of fragments": (table["count"] / table["count"].sum()).to_numpy(),
        f"share of idle {what}-time": (
            table["node_s"] / table["node_s"].sum()
        ).to_numpy(),
    }
    short = table["to_s"] <= 600
    by_count, by_time = (
        table[column][short].sum() / table[column].sum()
        for column in ("count", "node_s")
    )
    note = f"A fragment is a stretch during which a {what} is idle without a break. "
    note += f"{by_count:.0%} of them last at most 10 minutes, and hold {by_time:.0%} of the idle {what}-time."
    drawing = Bars(names, Axis("share", "share"), series)
    return Chart(
        "fragments", f"How long {what}s stay idle", note, drawing, table.round(1)
    )


def survival(histogram: Sequence[dict[str, float]], what: str = "node") -> Chart | None:
    """Idle node-time (or unit-time) left when every fragment loses its first seconds; None if no node was idle."""
    if not histogram:
        return None
    count, time, edges = (
        np.array([row[key] for row in histogram])
        for key in ("count", "node_s", "from_s")
    )
    # The time beyond an edge, over fragments longer than it. Exact, since no fragment of a bin is shorter than its
    # edge.
    beyond = np.array(
        [
            (time[k:].sum() - edge * count[k:].sum()) / time.sum()
            for k, edge in enumerate(edges)
        ]
    )
    edges, beyond = np.append(edges, histogram[-1]["to_s"]), np.append(beyond, 0.0)
    shown = edges > 0
    curve = Curve(f"idle {what}-time left", edges[shown], beyond[shown])
    durations = [_whole_units(edge) for edge in edges]
    table = pd.DataFrame(
        {"start-up": durations, "left": [f"{share:.1%}" for share in beyond]}
    )
    note = "If every fragment lost this long to starting up (containers, data, communication), this part would be left."
    axes = Axis("start-up, seconds", "log"), Axis(f"share of idle {what}-time", "share")
    return Chart(
        "survival", "What a start-up leaves", note, Curves(*axes, (curve,)), table
    )


def idle_nodes(trace: NodeTrace) -> Chart:
    """Idle nodes (or units) of a trace over time."""
    what = trace.turns_idle
    spans, length = round_spans(
        trace.start, max(trace.end, trace.start + SECOND_NS), SPANS
    )
    idle = trace.idle_counts().astype(np.float64)
    edges, means = spans / 1e6, mean_over_time(trace.times, idle, spans)
    mean = np.average(means, weights=np.diff(edges))
    note = f"On average {mean:,.1f} {what}s were idle, at most {means.max():,.0f}. Means over {length}."
    table = pd.DataFrame({"from": stamps(edges[:-1]), "idle": means.round(2)})
    drawing = Curves(
        TIME, Axis(f"{what}s"), (Curve("idle", *stepped(edges, means), filled=True),)
    )
    return Chart("idle", f"Idle {what}s over time", note, drawing, table)


def by_hour(trace: NodeTrace) -> Chart | None:
    """Mean idle nodes (or units) by weekday and hour of the day in the site's time zone; None for less than a day.

    Hours that were observed in part do not count. Offsets of time zones are multiples of a quarter of an hour.
    """
    quarter, what = 900 * SECOND_NS, trace.turns_idle
    if trace.end - trace.start < DAY_QUARTERS * quarter:
        return None
    first, last = -(-trace.start // quarter), trace.end // quarter
    edges = np.arange(first, last + 1, dtype=np.int64) * quarter
    idle = trace.idle_counts().astype(np.float64)
    wall = pd.DatetimeIndex(edges[:-1], tz="UTC").tz_convert(
        ZoneInfo(trace.zone or "UTC")
    )
    quarters = pd.DataFrame(
        {
            "mean": mean_over_time(trace.times, idle, edges),
            "hour": wall.tz_localize(None).floor("h"),
        }
    )
    hours = quarters.groupby("hour")["mean"].agg(["mean", "size"])
    whole = hours[hours["size"] >= 4]["mean"]
    hour = pd.DatetimeIndex(whole.index)
    at = hour.day_of_week.to_numpy(), hour.hour.to_numpy()
    total, count = np.zeros((7, 24)), np.zeros((7, 24))
    np.add.at(total, at, whole.to_numpy())
    np.add.at(count, at, 1)
    cells = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    across = tuple(f"{number:02d}" for number in range(24))
    zone = trace.zone or "UTC"
    drawing = Heat(
        Axis(f"hour of the day, {zone}"),
        Axis("weekday"),
        Axis(f"mean idle {what}s"),
        across,
        DAYS,
        cells,
    )
    table = pd.DataFrame(cells.round(1), columns=list(across))
    table.insert(0, "day", list(DAYS))
    most, least = (
        np.unravel_index(find(cells), cells.shape)
        for find in (np.nanargmax, np.nanargmin)
    )
    note = f"Most are idle on {_hour(most)} ({cells[most]:,.1f}), fewest on {_hour(least)} ({cells[least]:,.1f}), in "
    note += f"the time of {zone}."
    return Chart("hours", f"Idle {what}s by hour and weekday", note, drawing, table)


def _hour(place: tuple[np.intp, ...]) -> str:
    day, hour = place
    return f"{DAYS[day]} at {hour:02d}:00"


def by_node(trace: NodeTrace, pieces: Fragments) -> Chart | None:
    """Chart which nodes are idle most; None if none is ever idle."""
    node = pieces.node // (trace.units_per_node if trace.by_unit else 1)
    hours = np.bincount(node, weights=pieces.seconds / 3600, minlength=len(trace.nodes))
    count = np.bincount(node, minlength=len(trace.nodes))
    if not hours.any():
        return None
    order = np.argsort(-hours, kind="stable")
    table = pd.DataFrame({"node": [label(trace.nodes[k]) for k in order], "idle hours": hours[order].round(2),
                          "fragments": count[order]})  # fmt: skip
    if trace.by_unit:
        table = table.rename(columns={"idle hours": "idle unit-hours"})
    shown = table.iloc[:MAX_NODES]
    tenth = hours[order][: max(1, len(hours) // 10)].sum() / hours.sum()
    note = f"The {len(shown)} of {len(hours):,} nodes with the most idle time. A tenth of them has {tenth:.0%} of the "
    note += f"idle time; {int((hours == 0).sum()):,} are never idle."
    series = {table.columns[1]: shown[table.columns[1]].to_numpy(dtype=np.float64)}
    return Chart(
        "nodes",
        "Which nodes are idle",
        note,
        Bars(tuple(shown["node"]), Axis("hours"), series),
        table,
    )


def _whole_units(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def host_jobs(runs: Sequence[RunFiles]) -> list[Chart]:
    """Return which starts wait and where the node-hours are, by size; nothing where no run states a return time."""
    found: dict[str, dict[str, Any]] = {}
    for name, run in zip(names_of(runs), runs, strict=True):
        with run.summary_used():
            host = run.summary["metrics"].get("host") or {}
            if host.get("instants") and "by_size" in host:
                found[name] = host
                _check(host)
    return _who_waits(found) if found else []


def _check(host: dict[str, Any]) -> None:
    """Use all values once, so that a damaged summary is named."""
    host_sentence(host)
    for row in host["by_size"]:
        (
            str(row["nodes"]),
            float(row["starts"]),
            float(row["delayed"]),
            float(row["waiting_node_h"]),
        )


def _who_waits(found: dict[str, dict[str, Any]]) -> list[Chart]:
    shares, hours, rows = {}, {}, []
    for name, host in found.items():
        starts, delayed, waiting = (
            np.array([row[key] for row in host["by_size"]], dtype=np.float64)
            for key in ("starts", "delayed", "waiting_node_h")
        )
        shares[_entry(name, host)] = delayed / np.maximum(starts, 1.0)
        hours[_entry(name, host)] = waiting
        rows += [{"run": name, **row} for row in host["by_size"]]
    first = next(iter(found.values()))
    sizes = tuple(f"{row['nodes']} ({row['starts']:,})" for row in first["by_size"])
    table = pd.DataFrame(rows).rename(
        columns={
            "mean_delay_s": "mean delay, s",
            "waiting_node_h": "node-hours waiting",
        }
    )
    table = table if len(found) > 1 else table.drop(columns="run")
    sentence = host_sentence(first)
    note = f"{sentence[0].upper()}{sentence[1:]}. By the nodes of a start; how many there were stands in brackets."
    other = "A reserve spares the many small starts; the few large ones hold most of the node-hours."
    waits = Bars(sizes, Axis("share of starts that wait", "share"), shares)
    costs = Bars(sizes, Axis("node-hours waiting"), hours)
    return [
        Chart("who-waits", "Which of your own jobs wait", note, waits, table.round(3)),
        Chart(
            "who-waits-hours",
            "Where their node-hours are",
            other,
            costs,
            table.round(3),
        ),
    ]


def _entry(name: str, host: dict[str, Any]) -> str:
    kept = f"{host['reserve']} nodes kept free" if host["reserve"] else "none kept free"
    return f"{name}: {kept}"
