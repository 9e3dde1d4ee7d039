"""Charts of a run: idle and used units, who held them, progress and times of the jobs, losses, and host jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bft.replay.report.chart import (
    COLOURS,
    TIME,
    Axis,
    Bars,
    Blocks,
    Chart,
    Curve,
    Curves,
    FloatArray,
    IntArray,
    cumulative,
    distribution,
    label,
    over_time,
    stamps,
)
from bft.replay.report.over_time import (
    held_over_time,
    mean_over_time,
    round_spans,
)
from bft.replay.report.trace_charts import SPANS, fragment_lengths
from bft.replay.results.host import host_sentence
from bft.replay.studies.run_files import RunFiles, longest_of, ns, spans_of, unit_ns
from bft.replay.trace.node_trace import SECOND_NS

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
# A chart with more bars is hard to read; the table has all rows.
MAX_GROUPS = 15
GROUPS = {"vc": "virtual cluster", "user": "user", "model": "model"}
# The entry of idle units that no job held.
UNUSED = "idle, not used"


def charts_of_run(run: RunFiles) -> list[Chart]:
    """The charts of a run, the most important first; those that it has no data for are left out."""
    histogram = run.metrics.get("fragments") or []
    what = "unit" if "units" in run.summary["inputs"]["trace"] else "node"
    charts = (
        idle_and_used(run),
        who_held_what(run),
        progress(run),
        host_chart({run.folder.name: run.metrics.get("host") or {}}),
        fragment_lengths(histogram, what),
        times(run),
        *(by_group(run, column) for column in GROUPS),
    )
    return [chart for chart in charts if chart is not None]


def idle_and_used(run: RunFiles) -> Chart:
    """Idle units over time, and the part of them given to jobs."""
    spans, length = round_spans(run.begin_ns, run.end_ns, SPANS)
    # A row is about its own pool only.
    pools = [(ns(pool["time"]), pool) for pool in run.pools()]
    idle = [
        mean_over_time(at, pool["idle"].to_numpy(float), spans) for at, pool in pools
    ]
    used = [(at, pool["used"].to_numpy(float)) for at, pool in pools]
    given = mean_over_time(*held_over_time(used, run.held.changes), spans)
    means = {"idle": np.sum(idle, axis=0), "given to jobs": given}
    metrics = run.metrics
    note = f"On average {metrics['resource_integral_unit_s'] / (metrics['duration_s'] or 1):,.1f} units were idle, at "
    note += f"most {means['idle'].max():,.0f}, and {metrics['used_share'] or 0.0:.1%} of their time was given to jobs"
    note += f". Means over {length}; grey was idle and not given, as of the latest decision. {why_unused(run)}"
    axis, edges = Axis("units"), spans / 1e6
    title = "Idle and used units over time"
    return over_time("idle", title, note, axis, edges, means, filled=True)


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
        "jobs in play waited for more units at once, or for a change that pays": waits,
        "all jobs in play ran, and -maxJ let no others in": (there > in_play) & ~waits,
        "all jobs that were there ran, and more units would not have paid": (there > 0) & (there <= in_play) & ~waits,
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
    held = run.held
    if held.longest.empty:
        return None
    jobs = pd.Index(held.names)
    names = [label(name) for name in jobs]
    longest, spare = held.longest, 0.0
    if run.unused is not None:
        unused = spans_of(run.unused, np.full(len(run.unused), len(names)))
        longest = longest_of(longest, unused)
        spare = float(unit_ns(unused).sum())
    whole = held.unit_ns.sum() + spare
    what, classes, of, most = _classes(run, jobs, held.unit_ns)
    note = f"A colour is a {what}; {classes[0]} held most, {most:.0%} of the unit-time given to jobs. "
    if run.unused is not None:
        note += f"{spare / whole:.1%} of the idle unit-time was not used (grey). Empty areas were busy. "
    else:
        note += "Empty areas were busy, or idle and not used. "
    note += "Zoom in for single units; hover shows the job."
    left_out = 1 - unit_ns(longest).sum() / whole
    if left_out > 1e-9:
        note += f" The shortest are left out ({left_out:.1%} of the unit-time)."
    column = {name: longest[name].to_numpy(np.int64) for name in longest}
    blocks = Blocks(
        TIME,
        Axis("units"),
        rows=[label(node) for node in held.nodes],
        names=[*names, UNUSED],
        origin=run.begin_ns / 1e6,
        seconds=max(1, (run.end_ns - run.begin_ns) // SECOND_NS),
        who=column["who"],
        first=column["first"],
        last=column["last"],
        begin=(column["begin"] - run.begin_ns) // SECOND_NS,
        end=-(-(column["end"] - run.begin_ns) // SECOND_NS),
        units=held.units_per_node,
        empty="nobody" if run.unused is None else "busy",
        classes=classes if run.unused is None else (*classes, UNUSED),
        class_of=(*of, len(classes)),
        hues=(*COLOURS[1 : len(classes) + 1], COLOURS[0]),
    )
    columns = {
        "job": names,
        what: [classes[number] for number in of],
        "unit-hours": (held.unit_ns / 3.6e12).round(2),
    }
    table = pd.DataFrame(columns)
    table = table.sort_values("unit-hours", ascending=False, kind="stable")
    return Chart("held", "Who held what", note, blocks, table)


def _classes(
    run: RunFiles, jobs: pd.Index, held: FloatArray
) -> tuple[str, tuple[str, ...], tuple[int, ...], float]:
    """Return what the classes of jobs are, their names, the class of each job, and the share of the first.

    They are models, or else users or virtual clusters, or else the jobs: the first with several values. `held` is the
    unit-time of each job. The class with most of it comes first; those with little are one.
    """
    known = run.jobs[~run.jobs.index.duplicated()].reindex(jobs)
    what, value = "job", pd.Series(jobs, jobs).map(label)
    for column in GROUPS:
        if column in known and known[column].nunique(dropna=False) > 1:
            what, value = GROUPS[column], known[column].map(label)
    by_class = pd.Series(held, value.to_numpy()).groupby(level=0).sum()
    by_class = by_class.sort_values(ascending=False, kind="stable")
    most = len(COLOURS) - 1
    names = list(by_class.index)
    if len(names) > most:
        names[most - 1 :] = ["others"]
    number = {name: place for place, name in enumerate(by_class.index)}
    of = tuple(min(number[name], len(names) - 1) for name in value)
    return what, tuple(names), of, float(by_class.iloc[0] / by_class.sum())


def progress(run: RunFiles) -> Chart | None:
    """Chart when each job waited and ran, and its progress."""
    jobs = run.jobs.sort_values("submit", kind="stable")
    # The time until which a job was in the system: its finish, or the end of the replay.
    left = jobs["finish"].fillna(pd.Timestamp(run.end_ns, tz="UTC"))
    began = jobs["start"].fillna(left)
    submit, start, end = (
        _seconds(times, run.begin_ns, run.end_ns)
        for times in (jobs["submit"], began, left)
    )
    done = done_shares(jobs)
    ongoing = 1 + np.minimum(done * 4, 3).astype(int)
    stage = np.where(jobs["finish"].notna(), FINISHED, ongoing)
    rows = len(jobs) - 1 - np.arange(len(jobs))  # the first submitted on top
    waits, ran = submit < start, jobs["start"].notna().to_numpy()
    both = np.concatenate([rows[waits], rows[ran]])
    who = np.concatenate([np.full(int(waits.sum()), WAITED), stage[ran]])
    blocks = Blocks(
        TIME,
        Axis("jobs, first submitted on top"),
        rows=[label(name) for name in jobs["name"].iloc[::-1]],
        names=STAGES,
        classes=STAGES,
        class_of=tuple(range(len(STAGES))),
        row="job",
        empty="not there",
        origin=run.begin_ns / 1e6,
        seconds=max(1, (run.end_ns - run.begin_ns) // SECOND_NS),
        who=who.astype(np.int64),
        first=both,
        last=both,
        begin=np.concatenate([submit[waits], start[ran]]),
        end=np.concatenate([start[waits], end[ran]]),
        hues=HUES,
    )
    columns = {"name": "job", "submit": "submitted", "start": "started", "finish": "finished"}  # fmt: skip
    table = jobs[list(columns)].rename(columns=columns)
    table["done, %"] = (done * 100).round(1)
    finished, jct = int(jobs["finish"].notna().sum()), jobs["jct_s"].median() / 3600
    half = f", half of them within {jct:,.1f} h of their submission" if finished else ""
    note = f"{finished:,} of {len(jobs):,} jobs finished{half}. Each runs from its submission to its finish, or to the "
    note += "end of the replay; the colour shows its progress."
    return Chart("progress", "Progress of each job", note, blocks, table)


def times(run: RunFiles) -> Chart | None:
    """Distribution of completion and queueing times; None where nothing started."""
    names = {"jct_s": "job completion time (JCT)", "queueing_s": "queueing time"}
    known = {column: int(run.jobs[column].notna().sum()) for column in names}
    curves = [
        cumulative(name, run.jobs[column] / 3600)
        for column, name in names.items()
        if known[column]
    ]
    if not curves:
        return None
    note = f"JCT of the {known['jct_s']:,} jobs that finished, queueing of the {known['queueing_s']:,} that started: "
    note += "how many of them took at most that long. What is below 0.01 h is shown as 0.01 h."
    title = "Completion and queueing times"
    return distribution("times", title, note, "share of jobs", curves)


def by_group(run: RunFiles, column: str) -> Chart | None:
    """Mean JCT and queueing by the values of a column; None if it has only one value."""
    jobs, what = run.jobs, GROUPS[column]
    if column not in jobs or jobs[column].nunique(dropna=False) < 2:
        return None
    hours = jobs[["jct_s", "queueing_s"]] / 3600
    hours["finished"] = jobs["jct_s"].notna()
    found = hours.groupby(jobs[column].map(label).to_numpy(), sort=False).agg(
        jobs=("finished", "size"),
        finished=("finished", "sum"),
        jct=("jct_s", "mean"),
        queueing=("queueing_s", "mean"),
    )
    found = found.sort_values("jobs", ascending=False, kind="stable")
    shown, note = found.iloc[:MAX_GROUPS], ""
    if len(shown) < len(found):
        note = f"The {len(shown)} of {len(found):,} with most jobs; the table has more."
    series = {
        "mean JCT of those finished": shown["jct"].fillna(0.0).to_numpy(),
        "mean queueing of those started": shown["queueing"].fillna(0.0).to_numpy(),
    }
    names = {"jct": "mean JCT, h", "queueing": "mean queueing, h"}
    table = found.round(3).reset_index(names=what).rename(columns=names)
    axis = Axis("mean hours from the submission")
    drawing = Bars(tuple(shown.index), axis, series)
    title = f"Completion and queueing by {what}"
    return Chart(f"by-{column}", title, note, drawing, table)


def done_shares(jobs: pd.DataFrame) -> FloatArray:
    """The part of its work that each job has done; 1 for a job without work."""
    total = jobs["total_work"].to_numpy(dtype=np.float64)
    work = np.where(total > 0, jobs["work"], 1.0) / np.where(total > 0, total, 1.0)
    done: FloatArray = np.clip(work, 0.0, 1.0)
    return done


def _seconds(instants: pd.Series, origin_ns: int, end_ns: int) -> IntArray:
    """Whole seconds since the origin, within the window."""
    seconds: IntArray = (np.clip(ns(instants), origin_ns, end_ns) - origin_ns) // 10**9
    return seconds


def host_chart(hosts: Mapping[str, dict[str, Any]]) -> Chart | None:
    """Chart which starts of host jobs wait, by size: of runs, by their field `host`.

    None where no run states a return time, or the jobs are not known.
    """
    found = {name: host for name, host in hosts.items() if host.get("by_size")}
    tables = {name: pd.DataFrame(host["by_size"]) for name, host in found.items()}
    begun = np.any([table["starts"] > 0 for table in tables.values()], axis=0)
    if not np.any(begun):
        return None
    shares = {}
    for name, table in tables.items():
        kept = f"{found[name]['reserve'] or 'no'} nodes kept free"
        share = table["delayed"] / table["starts"].clip(lower=1)
        title = f"{name}: {kept}" if len(found) > 1 else kept
        shares[title] = share[begun].to_numpy(float)
    columns = {"mean_delay_s": "mean delay, s", "waiting_node_h": "node-hours waiting"}
    whole = pd.concat(tables, names=["run"]).reset_index("run").round(3)
    first = next(iter(tables.values()))[begun]
    pairs = zip(first["nodes"], first["starts"], strict=True)
    sizes = tuple(f"{nodes} ({starts:,})" for nodes, starts in pairs)
    sentence = host_sentence(next(iter(found.values())))
    note = f"{sentence[0].upper()}{sentence[1:]}. By the nodes of a start; how many there were stands in brackets. A "
    note += "reserve spares the many small starts; the few large ones hold most of the node-hours."
    waits = Bars(sizes, Axis("share of starts that wait", "share"), shares)
    title, table = "Which of your own jobs wait", whole.rename(columns=columns)
    return Chart("who-waits", title, note, waits, table)


def forecast_chart(
    ms: FloatArray, counts: Mapping[str, FloatArray], what: str
) -> Chart:
    """Counts over time.

    Parameters
    ----------
    ms
        Instants, ms since 1970: float64 of shape (slots,).
    counts
        What is drawn, by name, the first one as an area: float64 of shape (slots,).
    what
        Label of the axis of counts.
    """
    curves = tuple(
        Curve(name, ms, values, filled=number == 0)
        for number, (name, values) in enumerate(counts.items())
    )
    table = pd.DataFrame({"time": stamps(ms), **counts})
    drawing = Curves(TIME, Axis(what), curves)
    return Chart("forecast", "What came, and what was predicted", "", drawing, table)
