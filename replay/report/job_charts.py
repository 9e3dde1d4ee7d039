"""Charts of the jobs: progress, completion and queueing times, groups; and of units, work and decisions over time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.models.errors import MAX_LABEL, printable
from bft.replay.engine.ledger import BOOKS
from bft.replay.report.chart import (
    Axis,
    Bars,
    Blocks,
    Chart,
    Curve,
    Curves,
    FloatArray,
    IntArray,
    in_powers,
    stepped,
)
from bft.replay.report.over_time import (
    TimeArray,
    held_over_time,
    mean_over_time,
    round_spans,
)
from bft.replay.report.run_files import RunFiles, ns
from bft.replay.results.run_directory import HINT, TIMING

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
GROUPS = {"vc": "virtual cluster", "user": "user", "model": "model", "size": "size"}


def progress(run: RunFiles) -> Chart | None:
    """Chart when each job waited and ran, and its progress."""
    jobs = run.jobs.sort_values("submit", kind="stable")
    # The time until which a job was in the system: its finish, or the end of the replay.
    left = jobs["finish"].fillna(pd.Timestamp(run.end_ns, tz="UTC"))
    began = jobs["start"].fillna(left)
    origin = run.begin_ns
    submit, start, end = (
        _seconds(times, origin, run.end_ns) for times in (jobs["submit"], began, left)
    )
    done = done_shares(jobs)
    stage = np.where(
        jobs["finish"].notna(), FINISHED, 1 + np.minimum(done * 4, 3).astype(int)
    )
    rows = len(jobs) - 1 - np.arange(len(jobs))  # the first submitted on top
    waits, ran = submit < start, jobs["start"].notna().to_numpy()
    who = np.concatenate([np.full(int(waits.sum()), WAITED), stage[ran]])
    blocks = Blocks(
        TIME,
        Axis("jobs, first submitted on top"),
        rows=[label(name) for name in jobs["name"].iloc[::-1]],
        names=STAGES,
        classes=STAGES,
        row="job",
        empty="not there",
        origin=origin / 1e6,
        seconds=max(1, (run.end_ns - origin) // 10**9),
        who=who.astype(np.int64),
        first=np.concatenate([rows[waits], rows[ran]]),
        last=np.concatenate([rows[waits], rows[ran]]),
        begin=np.concatenate([submit[waits], start[ran]]),
        end=np.concatenate([start[waits], end[ran]]),
        hues=HUES,
    )
    table = pd.DataFrame({"job": jobs["name"], "submitted": jobs["submit"], "started": jobs["start"],
                          "finished": jobs["finish"], "done, %": (done * 100).round(1)})  # fmt: skip
    finished, jct = int(jobs["finish"].notna().sum()), jobs["jct_s"].median() / 3600
    half = f", half of them within {jct:,.1f} h of their submission" if finished else ""
    note = f"{finished:,} of {len(jobs):,} jobs finished{half}. Each runs from its submission to its finish, or to the "
    note += "end of the replay; the colour shows its progress."
    return Chart("progress", "Progress of each job", note, blocks, table)


def times(run: RunFiles) -> Chart | None:
    """Distribution of completion and queueing times; None where nothing started."""
    curves = tuple(
        cumulative(name, run.jobs[column] / 3600)
        for name, column in (
            ("job completion time (JCT)", "jct_s"),
            ("queueing time", "queueing_s"),
        )
        if run.jobs[column].notna().any()
    )
    if not curves:
        return None
    note = f"JCT of the {int(run.jobs['jct_s'].notna().sum()):,} jobs that finished, queueing of the "
    note += f"{int(run.jobs['queueing_s'].notna().sum()):,} that started: how many of them took at most that long. "
    note += "What is below 0.01 h is shown as 0.01 h."
    axes = Axis("hours", "log"), Axis("share of jobs", "share")
    return Chart(
        "times",
        "Completion and queueing times",
        note,
        Curves(*axes, curves),
        quantiles(curves, "hours"),
    )


def cumulative(name: str, values: pd.Series) -> Curve:
    """Return the share of values up to each value, from the hundredth part of an hour on, at up to 200 points."""
    known = np.sort(values.dropna().to_numpy(dtype=np.float64))
    shares = np.linspace(0, 1, min(200, len(known) + 1))[1:]
    levels = np.quantile(known, shares, method="inverted_cdf")
    return Curve(name, np.maximum(levels, 0.01), shares)


def quantiles(curves: tuple[Curve, ...], unit: str) -> pd.DataFrame:
    """Return the upper limit of each tenth of the distributions in `curves`, missing past the end of a curve."""
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])
    columns = {
        f"{curve.name}, {unit}": np.interp(
            shares, curve.y, curve.x, right=np.nan
        ).round(3)
        for curve in curves
    }
    return pd.DataFrame(
        {"share of jobs": [f"{share:.0%}" for share in shares], **columns}
    )


def by_group(run: RunFiles, column: str) -> Chart | None:
    """Mean JCT and queueing by the values of a column; None if it has only one value."""
    groups = (
        _sizes(run.jobs)
        if column == "size"
        else run.jobs[column].map(label)
        if column in run.jobs
        else None
    )
    if groups is None or groups.nunique() < 2:
        return None
    hours = (
        run.jobs[["jct_s", "queueing_s"]]
        .div(3600)
        .assign(group=groups, finished=run.jobs["jct_s"].notna())
    )
    found = hours.groupby("group", sort=False).agg(
        jobs=("finished", "size"),
        finished=("finished", "sum"),
        jct=("jct_s", "mean"),
        queueing=("queueing_s", "mean"),
    )
    key = (
        found.index.map(lambda name: int(name.split(" ")[0]))
        if column == "size"
        else -found["jobs"].to_numpy()
    )
    found = found.iloc[np.argsort(key, kind="stable")]
    shown = found.iloc[:MAX_GROUPS]
    series = {
        "mean JCT of those finished": shown["jct"].fillna(0.0).to_numpy(),
        "mean queueing of those started": shown["queueing"].fillna(0.0).to_numpy(),
    }
    what = GROUPS[column]
    note = (
        f"The {len(shown)} of {len(found):,} with most jobs; the table has more."
        if len(shown) < len(found)
        else ""
    )
    if column == "size":
        note = "By the units that a job asks for, or would be run on by a policy that does not scale."
    table = (
        found.round(3)
        .reset_index(names=what)
        .rename(columns={"jct": "mean JCT, h", "queueing": "mean queueing, h"})
    )
    title = f"Completion and queueing by {what}"
    return Chart(
        f"by-{column}",
        title,
        note,
        Bars(tuple(shown.index), Axis("hours"), series),
        table,
    )


def done_shares(jobs: pd.DataFrame) -> FloatArray:
    """The part of its work that each job has done; 1 for a job without work."""
    total = jobs["total_work"].to_numpy(dtype=np.float64)
    done: FloatArray = np.where(
        total > 0, jobs["work"].to_numpy() / np.where(total > 0, total, 1.0), 1.0
    )
    return np.clip(done, 0.0, 1.0)


def label(name: object) -> str:
    """A user's name, shortened for a label, without special characters."""
    return printable(str(name), MAX_LABEL) or "(none)"


def _sizes(jobs: pd.DataFrame) -> pd.Series | None:
    if "units_asked" not in jobs:
        return None
    low = 2 ** np.floor(
        np.log2(np.maximum(jobs["units_asked"].to_numpy(dtype=np.float64), 1.0))
    ).astype(int)
    names = [
        "1 unit" if size == 1 else f"{size} to {2 * size - 1} units"
        for size in low.tolist()
    ]
    return pd.Series(names, index=jobs.index)


def _seconds(instants: pd.Series, origin_ns: int, end_ns: int) -> IntArray:
    """Whole seconds since the origin, within the window."""
    seconds: IntArray = (np.clip(ns(instants), origin_ns, end_ns) - origin_ns) // 10**9
    return seconds


# Parts of the window of which means are shown: zooming in four times still shows one a pixel.
SPANS = 2000
# Losses come in single events: fewer parts, so that there is something in each.
COARSE = 250
TIME = Axis("time, UTC", "time")


def idle_and_used(run: RunFiles) -> Chart:
    """Idle units over time, and the part of them given to jobs."""
    spans, length = round_spans(run.begin_ns, run.end_ns, SPANS)
    edges = spans / 1e6
    means = {
        "idle": mean_in_pools(run, "idle", spans),
        "given to jobs": _used(run, spans),
    }
    curves = tuple(
        Curve(name, *stepped(edges, heights), filled=True)
        for name, heights in means.items()
    )
    idle, given = ((heights * np.diff(edges)).sum() for heights in means.values())
    mean, share = idle / (edges[-1] - edges[0]), given / idle if idle else 0.0
    metrics = run.summary["metrics"]
    if metrics.get("used_share") is not None and metrics.get("duration_s"):
        # Steps have idle units as of the latest decision, and none is made while no job is there.
        with run.summary_used():
            mean = metrics["resource_integral_unit_s"] / metrics["duration_s"]
            share = float(metrics["used_share"])
    note = f"On average {mean:,.1f} units were idle, at most {means['idle'].max():,.0f}, and {share:.1%} of their time "
    note += f"was given to jobs. Means over {length}; grey was idle and not given, as of the latest decision."
    table = pd.DataFrame(
        {
            "from": stamps(edges[:-1]),
            **{name: heights.round(2) for name, heights in means.items()},
        }
    )
    return Chart(
        "idle",
        "Idle and used units over time",
        note,
        Curves(TIME, Axis("units"), curves),
        table,
    )


def work_done(run: RunFiles) -> Chart:
    """Samples done by each instant, costs deducted."""
    steps = run.steps.sort_values("time", kind="stable")
    bins, _ = _bins(run, SPANS)
    done = np.cumsum(
        np.histogram(_ms(steps["time"]), bins, weights=steps["progress"])[0]
    )
    with run.summary_used():
        bound = run.summary["metrics"].get("bound")
        limits = {} if bound is None else {"bound": float(bound)}
    axis, power = in_powers("samples", done)
    curve = Curve("done", bins[1:], done / power)
    table = pd.DataFrame({"until": stamps(bins[1:]), "samples done": done.round(0)})
    note = "All costs are deducted; where they exceed what was done, the line falls."
    return Chart(
        "work",
        "Work done",
        note,
        Curves(
            TIME, axis, (curve,), {name: most / power for name, most in limits.items()}
        ),
        table,
    )


def losses(run: RunFiles) -> Chart | None:
    """Chart the losses by hour to preemptions, rescales and the other books; None where nothing was lost."""
    bins, length = _bins(run, COARSE)
    hours = np.diff(bins) / 3.6e6
    lost = {}
    for book in BOOKS:
        by_part = (
            np.histogram(
                _ms(run.steps["time"]), bins, weights=run.steps[f"{book}_cost"]
            )[0]
            / hours
        )
        if by_part.any():
            lost[book] = by_part
    if not lost:
        return None
    axis, power = in_powers("samples an hour", *lost.values())
    curves = tuple(
        Curve(f"by {book}", *stepped(bins, rate / power)) for book, rate in lost.items()
    )
    table = pd.DataFrame(
        {
            "from": stamps(bins[:-1]),
            **{f"by {book}": rate.round(0) for book, rate in lost.items()},
        }
    )
    note = f"Samples lost, as a rate over {length}: where the machine took nodes back, and where jobs "
    note += "paid for other sizes."
    return Chart("losses", "Losses over time", note, Curves(TIME, axis, curves), table)


def decisions(run: RunFiles) -> Chart | None:
    """Chart each decision's objective beside the solver's bound; None where all are optimal, or no bound is stated."""
    steps = run.steps
    if not {"objective", "bound", "status"} <= set(steps.columns):
        return None
    solved = steps[steps["bound"].notna() & steps["objective"].notna()]
    optimal = int((solved["status"] == "optimal").sum())
    if optimal == len(solved):
        return None
    bins, length = _bins(run, COARSE)
    instants = _ms(solved["time"])
    count = np.histogram(instants, bins)[0]
    held = count > 0
    means = {
        name: np.histogram(instants, bins, weights=solved[column])[0][held]
        / count[held]
        for name, column in (
            ("bound of the solver", "bound"),
            ("decision taken", "objective"),
        )
    }
    middles = ((bins[:-1] + bins[1:]) / 2)[held]
    axis, power = in_powers("samples within Tfwd", *means.values())
    curves = tuple(Curve(name, middles, mean / power) for name, mean in means.items())
    note = f"{optimal:,} of {len(solved):,} decisions were proven optimal: there the two lines are one. Means over "
    note += f"{length} of what a decision promised for its window Tfwd."
    table = pd.DataFrame(
        {"around": stamps(middles), "decisions": count[held], **means}
    ).round(0)
    return Chart(
        "decisions",
        "What each decision was worth",
        note,
        Curves(TIME, axis, curves),
        table,
    )


def mean_in_pools(run: RunFiles, column: str, edges: TimeArray) -> FloatArray:
    """Return the mean of a column of the steps over spans, of all pools together: a row is about its own pool only."""
    total = np.zeros(len(edges) - 1)
    for pool in run.pools():
        heights = pool[column].to_numpy(dtype=np.float64)
        total += mean_over_time(ns(pool["time"]), heights, edges)
    return total


def _used(run: RunFiles, edges: TimeArray) -> FloatArray:
    """Mean units in use over spans, of all pools together."""
    counted = [
        (ns(pool["time"]), pool["used"].to_numpy(dtype=np.float64))
        for pool in run.pools()
    ]
    times, used = held_over_time(counted, run.held.instants, run.held.change)
    return mean_over_time(times, used, edges)


def _ms(times: pd.Series) -> FloatArray:
    instants: FloatArray = ns(times) / 1e6
    return instants


def _bins(run: RunFiles, spans: int) -> tuple[FloatArray, str]:
    """Return edges of round spans in ms, so that none of the rows lies outside, and their length in words."""
    edges, length = round_spans(run.begin_ns, run.end_ns, spans)
    bins: FloatArray = edges / 1e6
    bins[-1] = np.nextafter(bins[-1], np.inf)
    return bins, length


def stamps(instants_ms: FloatArray) -> pd.Series:
    """Instants for a table."""
    return pd.Series(
        pd.to_datetime(instants_ms.round().astype("int64"), unit="ms", utc=True)
    ).dt.strftime("%Y-%m-%d %H:%M:%S")


def solve_times(run: RunFiles) -> Chart | None:
    """Distribution of the policy's time per decision; None if it is not known."""
    try:
        quantiles = run.decision_s.get("quantiles", {})
        shares = np.array([float(share) for share in quantiles])
        seconds = np.array([float(value) for value in quantiles.values()])
        if not len(shares):
            return None
        total, count = float(run.decision_s["sum"]), int(run.decision_s["count"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            "damaged: decision_s", file=run.folder / TIMING, hint=HINT
        ) from error
    order = np.argsort(shares)
    shares, seconds = shares[order], np.maximum(seconds[order], 1e-6)
    table = pd.DataFrame({"share of decisions": [f"{share:.1%}" for share in shares],
                          "milliseconds": (seconds * 1000).round(3)})  # fmt: skip
    note = f"{count:,} decisions took {total:,.1f} s of wall-clock time on the machine that replayed: "
    note += (
        "the only figures on this page that another replay of the same input changes."
    )
    curve = Curve("decisions", seconds * 1000, shares)
    axes = Axis("milliseconds", "log"), Axis("share of decisions", "share")
    return Chart(
        "solving", "What a decision takes", note, Curves(*axes, (curve,)), table
    )


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
    return Chart(
        "forecast",
        "What came, and what was predicted",
        "",
        Curves(TIME, Axis(what), curves),
        table,
    )
