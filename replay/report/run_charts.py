"""Charts of a run: idle and used units, who held them, progress and times of the jobs, losses, and host jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bft.models.writing import duration
from bft.replay.report.chart import (
    COLOURS,
    TIME,
    Axis,
    Bars,
    Blocks,
    Chart,
    Curves,
    distribution,
    held_over_time,
    label,
    mean_over_time,
    over_time,
    round_spans,
)
from bft.replay.results.host import host_sentence
from bft.replay.studies.run_files import (
    RunFiles,
    done_shares,
    longest_of,
    ns,
    pools,
    spans_of,
    unit_ns,
)
from bft.replay.trace.node_trace import SECOND_NS

# Parts of a window of which means are shown: zooming in four times still shows one a pixel.
SPANS = 2000
# Progress of a job; the last two stages apply to the end of their block.
WAITED, FINISHED = 0, 5
HUES = ("#8a9bb0", "#cf4f5f", "#d9772b", "#c2a02c", "#23987c", "#2b83c4")
STAGES = (
    "waited",
    "began, under 25 % done",
    "25 to 50 % done",
    "50 to 75 % done",
    "over 75 % done",
    "finished",
)
# What the jobs of a chart have in common, where they differ in it.
GROUPS = {"vc": "virtual cluster", "user": "user", "model": "model"}
# The entry of idle units that no job held.
UNUSED = "idle, not used"


def charts_of_run(run: RunFiles) -> list[Chart]:
    """The charts of a run, the most important first; those that it has no data for are left out.

    Instants are in the time of the site, as far ahead of UTC as it is when the run begins.
    """
    histogram = run.metrics.get("fragments") or []
    what = "unit" if "units" in run.summary["inputs"]["trace"] else "node"
    charts = (
        idle_and_used(run),
        who_held_what(run),
        progress(run),
        host_chart({run.folder.name: run.metrics.get("host") or {}}),
        fragment_lengths(histogram, what),
        times(run),
    )
    start = pd.Timestamp(run.begin_ns, tz=run.zone)
    ahead = pd.Timedelta(start.utcoffset() or 0)
    axis = Axis(f"time, {run.zone}, UTC{start:%z}" if ahead else "time, UTC", "time")
    return [_shifted(chart, ahead, axis) for chart in charts if chart is not None]


def _shifted(chart: Chart, ahead: pd.Timedelta, axis: Axis) -> Chart:
    """A chart with its instants in the time of the site."""
    drawing, table = chart.drawing, chart.table
    ahead_ms = ahead.total_seconds() * 1000
    if isinstance(drawing, Curves) and drawing.x.scale == "time":
        curves = tuple(replace(each, x=each.x + ahead_ms) for each in drawing.curves)
        drawing = replace(drawing, x=axis, curves=curves)
    elif isinstance(drawing, Blocks):
        drawing = replace(drawing, x=axis, origin=drawing.origin + ahead_ms)
    instants = table.select_dtypes("datetimetz")
    table = table.assign(**{str(name): instants[name] + ahead for name in instants})
    return replace(chart, drawing=drawing, table=table)


def idle_and_used(run: RunFiles) -> Chart:
    """Idle units over time, and the part of them given to jobs."""
    units = f"{run.unit}s"
    spans, length = round_spans(run.begin_ns, run.end_ns, SPANS)
    # A row is about its own pool only.
    each = [(ns(pool["time"]), pool) for pool in pools(run.steps)]
    idle = [
        mean_over_time(at, pool["idle"].to_numpy(float), spans) for at, pool in each
    ]
    used = [(at, pool["used"].to_numpy(float)) for at, pool in each]
    given = mean_over_time(*held_over_time(used, run.held.changes), spans)
    means = {"idle": np.sum(idle, axis=0), "given to jobs": given}
    metrics = run.metrics
    mean = metrics["resource_integral_unit_s"] / (metrics["duration_s"] or 1)
    note = f"On average {mean:,.1f} {units} were idle, at most {means['idle'].max():,.0f}, and "
    note += f"{metrics['used_share'] or 0.0:.1%} of their time was given to jobs. Means over {length}; grey was "
    note += f"idle and not given, as of the latest decision. {why_unused(run)}"
    title = f"Idle and used {units} over time"
    return over_time(title, note, units, spans / 1e6, means)


def why_unused(run: RunFiles) -> str:
    """Say in which situation idle units were not used; nothing where all were, and with virtual clusters."""
    steps, jobs = run.steps, run.jobs
    if "vc" in steps:
        return ""
    decided = ns(steps["time"])
    submits, ends = np.sort(ns(jobs["submit"])), np.sort(ns(jobs["finish"].dropna()))
    times, held = held_over_time(
        [(decided, steps["used"].to_numpy(float))], run.held.changes
    )
    at = np.unique(np.concatenate([decided, times, submits, ends]))
    at = at[(at >= run.begin_ns) & (at <= run.end_ns)]
    there = np.searchsorted(submits, at, "right") - np.searchsorted(ends, at, "right")
    latest = steps.iloc[np.searchsorted(decided, at, "right") - 1]
    idle, in_play, running = (
        latest[name].to_numpy() for name in ("idle", "jobs", "running")
    )
    spare = np.maximum(idle - held[np.searchsorted(times, at, "right") - 1], 0.0)[:-1]
    spare *= np.diff(at)
    waits = (there > 0) & (running < in_play)
    situations = {
        "no job was there": there == 0,
        f"jobs in play waited for more {run.unit}s at once, or for a change that pays": waits,
        "all jobs in play ran, and -maxJ let no others in": (there > in_play) & ~waits,
        f"all jobs that were there ran, and more {run.unit}s would not have paid": (
            (there > 0) & (there <= in_play) & ~waits
        ),
    }  # fmt: skip
    whole = spare.sum()
    if whole <= 0:
        return ""
    shares = {
        when: spare[inside[:-1]].sum() / whole for when, inside in situations.items()
    }
    parts = [
        f"{share:.0%} while {when}" for when, share in shares.items() if share >= 0.005
    ]
    return f"Of the idle time that nobody used, {'; '.join(parts)}."


def who_held_what(run: RunFiles) -> Chart | None:
    """Chart which job held which units, and when, in the colours of classes; None if no unit was held."""
    held, longest, spare = run.held, run.held.longest, 0.0
    if longest.empty:
        return None
    names = list(map(label, held.names))
    what, classes, of, most = _classes(run)
    note = f"A colour is a {what}; {classes[0]} held most, {most:.0%} of the {run.unit}-time given to jobs. "
    empty, hues = "nobody", COLOURS[1 : len(classes) + 1]
    if run.unused is None:
        note += "Empty areas were busy, or idle and not used. "
    else:
        unused = spans_of(run.unused, np.full(len(run.unused), len(names)))
        longest = longest_of(longest, unused)
        spare = float(unit_ns(unused).sum())
        share = spare / (held.unit_ns.sum() + spare)
        note += f"{share:.1%} of the idle {run.unit}-time was not used (grey). Empty areas were busy. "
        empty, hues = "busy", (*hues, COLOURS[0])
    note += f"Zoom in for single {run.unit}s; hover shows the job."
    left_out = 1 - unit_ns(longest).sum() / (held.unit_ns.sum() + spare)
    if left_out > 1e-9:
        note += f" The shortest are left out ({left_out:.1%} of the {run.unit}-time)."
    column = {name: longest[name].to_numpy(np.int64) for name in longest}
    blocks = Blocks(
        TIME,
        Axis(f"{run.unit}s"),
        rows=list(map(label, held.nodes)),
        names=[*names, UNUSED],
        origin=run.begin_ns / 1e6,
        seconds=run.seconds,
        who=column["who"],
        first=column["first"],
        last=column["last"],
        begin=(column["begin"] - run.begin_ns) // SECOND_NS,
        end=-(-(column["end"] - run.begin_ns) // SECOND_NS),
        units=held.units_per_node,
        empty=empty,
        classes=classes if run.unused is None else (*classes, UNUSED),
        class_of=(*of, len(classes)),
        hues=hues,
    )
    table = pd.DataFrame({
        "job": names,
        what: [classes[number] for number in of],
        f"{run.unit}-hours": (held.unit_ns / 3.6e12).round(2),
    })  # fmt: skip
    table = table.sort_values(f"{run.unit}-hours", ascending=False, kind="stable")
    return Chart("held", "Who held what", note, blocks, table)


def _classes(run: RunFiles) -> tuple[str, tuple[str, ...], list[int], float]:
    """Return what the classes of jobs are, their names, the class of each holder, and the share of the first.

    They are models, or else users or virtual clusters, or else the jobs: the first with several values. The class that
    held most unit-time comes first; those with little are one.
    """
    known = run.jobs[~run.jobs.index.duplicated()].reindex(run.held.names)
    what, value = "job", known.index.to_series()
    for column in GROUPS:
        if column in known and known[column].nunique(dropna=False) > 1:
            what, value = GROUPS[column], known[column]
    value = value.map(label)
    by_class = pd.Series(run.held.unit_ns, value.to_numpy()).groupby(level=0).sum()
    by_class = by_class.sort_values(ascending=False, kind="stable")
    names, most = list(by_class.index), len(COLOURS) - 1
    if len(names) > most:
        names[most - 1 :] = ["others"]
    of = np.minimum(by_class.index.get_indexer(pd.Index(value)), len(names) - 1)
    return what, tuple(names), of.tolist(), float(by_class.iloc[0] / by_class.sum())


def progress(run: RunFiles) -> Chart:
    """Chart when each job waited and ran, and its progress."""
    jobs = run.jobs.sort_values("submit", kind="stable")
    # Until then a job was in the system: its finish, or the end of the replay.
    left = jobs["finish"].fillna(pd.Timestamp(run.end_ns, tz="UTC"))
    submit, start, end = (
        np.clip(ns(instants) - run.begin_ns, 0, run.seconds * SECOND_NS) // SECOND_NS
        for instants in (jobs["submit"], jobs["start"].fillna(left), left)
    )
    done = done_shares(jobs)
    stage = 1 + np.minimum(done * 4, 3).astype(np.int64)
    stage[jobs["finish"].notna()] = FINISHED
    rows = np.arange(len(jobs))[::-1]  # the first submitted on top
    waits, ran = submit < start, jobs["start"].notna().to_numpy()
    both = np.concatenate([rows[waits], rows[ran]])
    blocks = Blocks(
        TIME,
        Axis("jobs, first submitted on top"),
        rows=[label(name) for name in jobs.index[::-1]],
        names=STAGES,
        classes=STAGES,
        class_of=tuple(range(len(STAGES))),
        row="job",
        empty="not there",
        origin=run.begin_ns / 1e6,
        seconds=run.seconds,
        who=np.concatenate([np.full(int(waits.sum()), WAITED), stage[ran]]),
        first=both,
        last=both,
        begin=np.concatenate([submit[waits], start[ran]]),
        end=np.concatenate([start[waits], end[ran]]),
        hues=HUES,
    )
    columns = {"name": "job", "submit": "submitted", "start": "started", "finish": "finished"}  # fmt: skip
    table = jobs.reset_index()[list(columns)].rename(columns=columns)
    table["done, %"] = (done * 100).round(1)
    finished, jct_h = int(jobs["finish"].notna().sum()), jobs["jct_s"].median() / 3600
    half = f", half of them within {jct_h:,.1f} h of their submission" if finished else ""  # fmt: skip
    note = f"{finished:,} of {len(jobs):,} jobs finished{half}. Each runs from its submission to its finish, or to the "
    note += "end of the replay; the colour shows its progress."
    return Chart("progress", "Progress of each job", note, blocks, table)


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


def times(run: RunFiles) -> Chart | None:
    """Distribution of completion and queueing times; None where nothing started."""
    names = {"jct_s": "submission to finish (JCT)", "queueing_s": f"submission to first {run.unit}s"}  # fmt: skip
    hours = {name: run.jobs[column] / 3600 for column, name in names.items()}
    note = "How many of the jobs took at most that long. Where a curve ends, so many had finished, or begun. What is "
    note += "below 0.01 h is shown as 0.01 h."
    return distribution("times", "Completion and queueing times", note, hours)


def host_chart(hosts: Mapping[str, dict[str, Any]]) -> Chart | None:
    """Chart which starts of host jobs wait, by size: of runs, by their field `host`.

    None where no run states a return time, or the jobs are not known.
    """
    found = {name: host for name, host in hosts.items() if host.get("by_size")}
    if not found:
        return None
    tables = {name: pd.DataFrame(host["by_size"]) for name, host in found.items()}
    whole = pd.concat(tables, names=["run"]).reset_index("run").round(3)
    begun = whole.groupby(level=0)["starts"].max() > 0
    if not begun.any():
        return None
    shares = {}
    for name, table in tables.items():
        kept = f"{found[name]['reserve'] or 'no'} nodes kept free"
        share = table["delayed"] / table["starts"].clip(lower=1)
        title = f"{name}: {kept}" if len(found) > 1 else kept
        shares[title] = share[begun].to_numpy(float)
    first = next(iter(tables.values()))[begun]
    sizes = (first["nodes"] + first["starts"].map(" ({:,})".format)).tolist()
    sentence = host_sentence(next(iter(found.values())))
    note = f"{sentence[0].upper()}{sentence[1:]}. By the nodes of a start; how many there were stands in brackets. A "
    note += "reserve spares the many small starts; the few large ones hold most of the node-hours."
    waits = Bars(tuple(sizes), Axis("share of starts that wait", "share"), shares)
    columns = {"mean_delay_s": "mean delay, s", "waiting_node_h": "node-hours waiting"}
    table = whole.rename(columns=columns)
    return Chart("who-waits", "Which of your own jobs wait", note, waits, table)
