"""Several runs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bft.replay.report.chart import Axis, Bars, Chart, Curve, Curves, stepped
from bft.replay.report.job_charts import cumulative, label, quantiles
from bft.replay.report.over_time import mean_over_time, round_spans
from bft.replay.report.run_files import RunFiles
from bft.replay.report.time_charts import TIME, ns, stamps

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
        "share of those finished",
        "Who finishes fewer jobs can show shorter times: see how many each of them finished.",
    ),
    "queueing_s": (
        "compared-queueing",
        "Queueing times",
        "share of those started",
        "From submission to first units.",
    ),
}


def names_of(runs: Sequence[RunFiles]) -> list[str]:
    """Names of the runs: their folders, numbered where names repeat."""
    names = [label(run.name) for run in runs]
    return [
        f"{name} ({number})" if names.count(name) > 1 else name
        for number, name in enumerate(names, start=1)
    ]


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
    known = {
        name: table[column]
        for name, table in jobs.items()
        if table[column].notna().any()
    }
    curves = tuple(cumulative(name, seconds / 3600) for name, seconds in known.items())
    if not curves:
        return None
    axes = Axis("hours", "log"), Axis(share, "share")
    return Chart(
        key, f"{title} by run", note, Curves(*axes, curves), quantiles(curves, "h")
    )
