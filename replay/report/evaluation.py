"""The page that a director reads: what idle nodes are worth, what training yields, what the machine's own jobs pay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from bft.models.plugins import needs
from bft.models.writing import three_digits
from bft.replay.report.chart import Axis, Blocks, Chart, Curves
from bft.replay.report.page import AT_ONCE, rendered, templates
from bft.replay.report.run_charts import charts_of_run
from bft.replay.results.run_directory import plain
from bft.replay.studies.run_files import read_run

Figures = dict[str, Any]
# Columns of the table: figure, title, and how it is written.
COLUMNS = (
    ("return_time_s", "return time, s", "number"),
    ("reserve", "nodes kept free", "number"),
    ("training_node_h_a_year", "training, node-h a year", "number"),
    ("delayed_share", "starts that wait", "share"),
    ("mean_delay_s", "mean delay, s", "number"),
    ("longest_delay_s", "longest delay, s", "number"),
    ("waiting_node_h_a_year", "own jobs wait, node-h a year", "number"),
    ("waiting_share_of_host", "share of their node-hours", "percent"),
    ("break_even_price", "break-even price", "number"),
    ("net_node_h_a_year", "net, node-h a year", "number"),
    ("net_value_a_year", "net, in money a year", "money"),
)
# As evaluation.js writes them.
FORMS = {
    "number": three_digits,
    "share": "{:.1%}".format,
    "percent": "{:.2%}".format,
    "money": "{:,.0f}".format,
}


def needed() -> None:
    """Raise InputError where a package is missing that the page needs, before hours of work."""
    with needs("the page of an evaluation", "report"):
        import bokeh  # noqa: F401
        import jinja2  # noqa: F401


def sentences(figures: Figures) -> Iterator[tuple[str, str]]:
    """Yield title and text of what can be read aloud, one paragraph each.

    Parameters
    ----------
    figures
        The content of evaluation.json.
    """
    text = templates().get_template("evaluation.txt").render(figures)
    for line in text.splitlines():
        title, _, sentence = line.partition(": ")
        if sentence:
            yield title, sentence


def write_evaluation(
    figures: Figures, curves: Sequence[dict[str, Any]], folder: Path, target: Path
) -> None:
    """Write the page.

    Parameters
    ----------
    figures
        The content of evaluation.json.
    curves
        What prices any return time, for each reserve.
    folder
        The run directory whose charts are shown.
    target
        The HTML file; equal figures and runs give equal bytes.
    """
    columns = [each for each in COLUMNS if each[0] in figures["table"][0]]
    shown = [(key, form) for key, _, form in columns]
    ahead, axis = _local(figures)
    charts = charts_of_run(read_run(folder))[:AT_ONCE]
    page = rendered(
        "evaluation.html",
        [_shifted(chart, ahead, axis) for chart in charts],
        figures=figures,
        sentences=list(sentences(figures)),
        columns=columns,
        forms=FORMS,
        what_if=plain({**figures, "curves": curves, "columns": shown}),
        version=metadata.version("bft-replay"),
    )
    target.write_text(page, "utf-8")


def _local(figures: Figures) -> tuple[pd.Timedelta, Axis]:
    """What the site's time is ahead of UTC when the window begins, and the axis of that time."""
    zone, stamp = figures["zone"], figures["window"]["start"]
    local = pd.Timestamp(stamp.partition(" ")[0].removesuffix("Z"))
    local = local.tz_localize(zone, ambiguous=True)
    ahead = pd.Timedelta(local.utcoffset() or 0)
    name = f"{zone}, UTC{local:%z}" if ahead else "UTC"
    return ahead, Axis(f"time, {name}", "time")


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
