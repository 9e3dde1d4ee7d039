"""Charts of the jobs: progress, completion and queueing times, groups."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bft.models.errors import MAX_LABEL, printable
from bft.replay.report.chart import (
    Axis,
    Bars,
    Blocks,
    Chart,
    Curve,
    Curves,
    FloatArray,
    IntArray,
)
from bft.replay.report.run_files import RunFiles, ns
from bft.replay.report.time_charts import TIME

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
    """The upper limit of each tenth of a distribution."""
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])
    columns = {
        f"{curve.name}, {unit}": np.interp(shares, curve.y, curve.x).round(3)
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
    key = found.index.map(_from) if column == "size" else -found["jobs"].to_numpy()
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


def _from(name: str) -> int:
    return int(name.split(" ")[0])


def _seconds(instants: pd.Series, origin_ns: int, end_ns: int) -> IntArray:
    """Whole seconds since the origin, within the window."""
    seconds: IntArray = (np.clip(ns(instants), origin_ns, end_ns) - origin_ns) // 10**9
    return seconds
