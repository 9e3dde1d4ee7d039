"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.replay.options.naming import names_of_runs
from bft.replay.report.chart import Axis, Bars, Chart, Curve, Curves, stepped
from bft.replay.report.job_charts import TIME, cumulative, label, stamps
from bft.replay.report.over_time import mean_over_time, round_spans
from bft.replay.report.run_files import RunFiles, ns

SPANS = 1000
# Column of the table -> the metric, by its path in the summary, and what to divide by.
FIGURES = {
    "outcome, 10⁹ samples": ("outcome", 1e9),
    "share of the bound": ("share_of_bound", 1.0),
    "U": ("U", 1.0),
    "used share": ("used_share", 1.0),
    "jobs finished": ("jobs_finished", 1.0),
    "mean JCT, h": ("jct_s.mean", 3600.0),
    "p95 JCT, h": ("jct_s.p95", 3600.0),
    "mean queueing, h": ("queueing_s.mean", 3600.0),
    "longest without units, h": ("without_units_s.longest", 3600.0),
    "lost to preemption, 10⁹": ("preemption_cost", 1e9),
    "lost to rescaling, 10⁹": ("rescale_cost", 1e9),
    "preemptions": ("preemptions", 1.0),
    "rescales": ("rescales", 1.0),
    "host starts that wait": ("host.delayed_share", 1.0),
    "host jobs wait, node-h": ("host.waiting_node_h", 1.0),
    "break-even price": ("host.break_even_price", 1.0),
}


# Column of the jobs -> key and title of the chart, of whom it is, and what to mind.
DISTRIBUTIONS = {
    "jct_s": (
        "compared-times",
        "Completion times",
        "share of all submitted jobs",
        "Where a curve ends, so many of the submitted jobs were done.",
    ),
    "queueing_s": (
        "compared-queueing",
        "Queueing times",
        "share of all submitted jobs",
        "From submission to first units. Where a curve ends, so many of the submitted jobs were started.",
    ),
}


def names_of(runs: Sequence[RunFiles]) -> list[str]:
    """Names of the runs: the options in which they differ, or their folders; numbered where names repeat."""
    for run in runs:
        with run.summary_used():
            dict(run.summary["options"])
    folders = [Path(run.name) for run in runs]
    names = [label(name) for name in names_of_runs(folders, [r.summary for r in runs])]
    return [
        f"{name} ({number})" if names.count(name) > 1 else name
        for number, name in enumerate(names, start=1)
    ]


def headline(runs: Sequence[RunFiles]) -> str:
    """Say which run trained most and by how much; or where all trained as much, under which jobs took least time."""
    outcomes = _metric(runs, "outcome").sort_values(ascending=False, kind="stable")
    best, next_best = outcomes.index[:2]
    most, second = outcomes.iloc[:2]
    if most > second:
        more = f"{most / second - 1:.1%} more" if second else "more"
        others = f", the next of {len(runs)} runs" if len(runs) > 2 else ""
        return f"{best} trained most: {most:,.0f} samples, {more} than {next_best}{others}."
    if most > outcomes.iloc[-1]:
        return f"{best} and {next_best} trained most, {most:,.0f} samples each."
    times = _metric(runs, "jct_s.mean").dropna().sort_values(kind="stable") / 3600
    if times.empty:
        return "All runs trained as much."
    return (
        f"All runs trained as much; jobs took least time under {times.index[0]}: {times.iloc[0]:,.4g} h in the mean, "
        f"against {times.iloc[-1]:,.4g} h under {times.index[-1]}."
    )


def _metric(runs: Sequence[RunFiles], path: str) -> pd.Series:
    """A metric of each run, by its name."""
    values = []
    for run in runs:
        with run.summary_used():
            values.append(_number(run.summary["metrics"], path, 1.0))
    return pd.Series(values, index=names_of(runs))


def figures(runs: Sequence[RunFiles]) -> pd.DataFrame:
    """Return a table of figures: one row per run, one column per figure that any run has."""
    rows = []
    for run in runs:
        with run.summary_used():
            metrics = run.summary["metrics"]
            row: dict[str, Any] = {"policy": label(run.summary["options"]["policy"])}
            row |= {
                name: _number(metrics, path, unit)
                for name, (path, unit) in FIGURES.items()
            }
        rows.append(row)
    table = pd.DataFrame(rows)
    table.insert(0, "run", names_of(runs))
    return table.dropna(axis="columns", how="all")


def _number(metrics: Any, path: str, unit: float) -> float:
    for key in path.split("."):
        metrics = metrics.get(key) if isinstance(metrics, dict) else None
    return float("nan") if metrics is None else round(float(metrics) / unit, 4)


def compared(runs: Sequence[RunFiles]) -> list[Chart]:
    """Charts of several runs."""
    jobs = dict(zip(names_of(runs), (run.jobs for run in runs), strict=True))
    charts = (
        _outcomes(runs),
        _used(runs),
        *(distribution(jobs, column) for column in DISTRIBUTIONS),
    )
    return [chart for chart in charts if chart is not None]


def _outcomes(runs: Sequence[RunFiles]) -> Chart:
    table = figures(runs)
    outcome = table["outcome, 10⁹ samples"].to_numpy(dtype=np.float64)
    series = {"outcome": outcome}
    best = table["run"].iloc[int(np.argmax(outcome))]
    note = f"{best} did the most work. The table behind the chart has all figures side by side."
    drawing = Bars(tuple(table["run"]), Axis("10⁹ samples"), series)
    return Chart(
        "compared",
        "Outcome by run",
        note,
        drawing,
        table.set_index("run").T.reset_index(names="figure"),
    )


def _used(runs: Sequence[RunFiles]) -> Chart:
    curves, rows = [], []
    for name, run in zip(names_of(runs), runs, strict=True):
        # Each run over its own window: the traces may differ.
        spans, _ = round_spans(run.begin_ns, run.end_ns, SPANS)
        edges = spans / 1e6
        means = np.zeros(len(spans) - 1)
        for pool in run.pools():
            heights = pool["used"].to_numpy(dtype=np.float64)
            means += mean_over_time(ns(pool["time"]), heights, spans)
        curves.append(Curve(name, *stepped(edges, means)))
        begin, end = stamps(edges[[0, -1]])
        rows.append(
            (
                name,
                begin,
                end,
                round(float(np.average(means, weights=np.diff(edges))), 2),
                round(float(means.max()), 2),
            )
        )
    table = pd.DataFrame(
        rows,
        columns=[
            "run",
            "from",
            "to",
            "mean units",
            "largest mean over a thousandth of it",
        ],
    )
    drawing = Curves(TIME, Axis("units"), tuple(curves))
    return Chart("compared-used", "Units given to jobs, by run", "", drawing, table)


def distribution(jobs: Mapping[str, pd.DataFrame], column: str) -> Chart | None:
    """Chart how long jobs took or waited (see `DISTRIBUTIONS`) in each run, by its name; None where none did."""
    key, title, share, note = DISTRIBUTIONS[column]
    curves = tuple(
        _of_all(name, table[column] / 3600)
        for name, table in jobs.items()
        if table[column].notna().any()
    )
    if not curves:
        return None
    axes = Axis("hours", "log"), Axis(share, "share")
    return Chart(key, f"{title} by run", note, Curves(*axes, curves), _reached(curves))


def _of_all(name: str, hours: pd.Series) -> Curve:
    """The share of all jobs, those without a time included, up to each time."""
    curve = cumulative(name, hours)
    return replace(curve, y=curve.y * hours.notna().mean())


def _reached(curves: tuple[Curve, ...]) -> pd.DataFrame:
    """The hours within which each share of all jobs is reached; missing beyond the end of a curve."""
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])
    columns = {
        f"{curve.name}, h": np.interp(shares, curve.y, curve.x, right=np.nan).round(3)
        for curve in curves
    }
    named = [f"{share:.0%}" for share in shares]
    return pd.DataFrame({"share of jobs": named, **columns})
