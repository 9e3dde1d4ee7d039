"""The page that a director reads: what idle nodes are worth, what training yields, what the machine's own jobs pay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from bft.models.errors import MAX_SENTENCE, printable
from bft.models.plugins import needs
from bft.models.writing import three_digits
from bft.replay.report.chart import Axis, Blocks, Chart, Curves
from bft.replay.report.page import AT_ONCE, rendered
from bft.replay.report.run_charts import charts_of_run
from bft.replay.results.run_directory import plain
from bft.replay.studies.run_files import Held, RunFiles

Figures = dict[str, Any]


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
    row = _row(figures, figures["reserve"], figures["return_time_s"])
    yield "The machine", _machine(figures)
    yield "Training", _training(figures, row)
    yield "Your own jobs", _own_jobs(figures, row)
    yield "Net", _net(figures, row)
    yield "Energy and CO2", _energy(row)
    yield "What to set", _to_set(figures, row)


def _row(figures: Figures, reserve: int, return_time_s: float) -> dict[str, Any]:
    found: dict[str, Any] = next(
        row
        for row in figures["table"]
        if (row["reserve"], row["return_time_s"]) == (reserve, return_time_s)
    )
    return found


def _machine(figures: Figures) -> str:
    classes, nodes = figures["classes"], f"{figures['nodes']:,} nodes"
    if classes:
        parts = " and ".join(
            f"{of['nodes']:,} {_class(name)}" for name, of in classes.items()
        )
        nodes += f", {parts}"
    text = (
        f"{figures['machine'] or 'Your machine'} has {nodes}. From {_window(figures)} they were idle for "
        f"{figures['idle_share']:.1%} of the time, which is worth {three_digits(figures['eq_nodes'])} nodes"
    )
    worth = " and ".join(
        f"{three_digits(of['idle_mean'])} {_class(name)} nodes ({of['idle_share']:.1%})"
        for name, of in classes.items()
    )
    return f"{text}: {worth}." if classes else f"{text}."


def _class(name: str) -> str:
    return {"cpu": "CPU", "gpu": "GPU"}.get(name, name)


def _window(figures: Figures) -> str:
    start, end = (_minute(figures["window"][name]) for name in ("start", "end"))
    return f"{start} to {end} ({figures['zone']})"


def _minute(stamp: str) -> str:
    """An instant as `iso` writes it, to the minute: 4 March 2024, 00:10."""
    at = datetime.fromisoformat(stamp.partition(" ")[0].removesuffix("Z"))
    return f"{at.day} {at:%B %Y, %H:%M}"


def _training(figures: Figures, row: dict[str, Any]) -> str:
    hours, a_year = row["training_node_h"], row["training_node_h_a_year"]
    text = (
        f"Training would have used {figures['used_share']:.1%} of that: {three_digits(hours)} node-hours in "
        f"{three_digits(figures['window']['days'])} days, {three_digits(a_year)} in a year"
    )
    if "value_a_year" in row:
        text += f", worth {row['value_a_year']:,.0f} at {figures['prices']['price_per_node_hour']:g} each"
    jobs = f"{figures['jobs']:,} trainings"
    if figures["generated_load"] is not None:
        return f"{text}. The {jobs} are made up, not yours."
    if figures["jobs_finished"] == figures["jobs"]:
        return f"{text}, with your {jobs}. All were done: more would have used more."
    return f"{text}, with your {jobs}."


def _own_jobs(figures: Figures, row: dict[str, Any]) -> str:
    if not row["starts"]:
        return "None of your own jobs began in this time, so none waits."
    least = "at least " if figures["lower_bound"] else ""
    counts = f"{row['delayed']:,} of {row['starts']:,}"
    who = (
        f"{least}{counts} starts of your own jobs wait"
        if figures["by_job"]
        else f"own jobs wait at {counts} instants at which nodes are taken back"
    )
    share = row["waiting_share_of_host"]
    of_theirs = "" if share is None else f", {share:.2%} of their own node-hours"
    return (
        f"If a node takes {row['return_time_s']:g} s to come back, {who} ({row['delayed_share']:.0%}): "
        f"{row['mean_delay_s']:,.0f} s on average over all, {row['longest_delay_s']:,.0f} s at most. Together they "
        f"wait {least}{three_digits(row['waiting_node_h'])} node-hours{of_theirs}, "
        f"{three_digits(row['waiting_node_h_a_year'])} in a year."
    )


def _net(figures: Figures, row: dict[str, Any]) -> str:
    price = figures["prices"]["host_price"]
    text = (
        f"{three_digits(row['net_node_h_a_year'])} node-hours in a year, where a node-hour that your own jobs wait "
        f"counts as {price:g} of training"
    )
    if "net_value_a_year" in row:
        energy = ", less the energy" if "energy_cost_a_year" in row else ""
        text += f"; {row['net_value_a_year']:,.0f} in money{energy}"
    if row["break_even_price"] is None:
        return f"{text}."
    most = " at most" if figures["lower_bound"] else ""
    even = three_digits(row["break_even_price"])
    return f"{text}. Training pays as long as it counts as less than {even}{most}."


def _energy(row: dict[str, Any]) -> str:
    if "kwh_a_year" not in row:
        return "Not known: --node-watts IDLE,BUSY states what a node draws."
    text = f"{row['kwh_a_year'] / 1000:,.1f} MWh in a year more than if these nodes had stayed idle"
    if "energy_cost_a_year" in row:
        text += f", which cost {row['energy_cost_a_year']:,.0f}"
    if "co2_kg_a_year" in row:
        text += f"; {row['co2_kg_a_year'] / 1000:,.1f} t of CO2"
    return f"{text}."


def _to_set(figures: Figures, row: dict[str, Any]) -> str:
    net = "net_value_a_year" if "net_value_a_year" in row else "net_node_h_a_year"
    if row[net] <= 0:
        seconds = f"{row['return_time_s']:g} s"
        return f"Nothing: where a node takes {seconds} to come back, training costs more than it yields."
    if not figures["by_job"]:
        return "--preset best. How many nodes to keep free is not known, as the logs do not say which job had which."
    usual = [
        each
        for each in figures["table"]
        if each["return_time_s"] == row["return_time_s"]
    ]
    *others, last = (str(each["reserve"]) for each in usual)
    text = (
        f"Keep {_nodes(row['reserve'])} free for your own jobs (--preset best --reserve {row['reserve']}): of "
        f"{', '.join(others)} and {last} that leaves most"
    )
    more = [each for each in usual if each["delayed"] < row["delayed"]]
    if not more:
        return f"{text}."
    # The middle one: the largest spares starts that hardly anybody notices.
    other = more[len(more) // 2]
    lost = 1 - other["training_node_h"] / row["training_node_h"]
    return (
        f"{text}. With {_nodes(other['reserve'])} free {other['delayed_share']:.0%} of the starts wait instead of "
        f"{row['delayed_share']:.0%}, which costs {lost:.1%} of the training."
    )


def _nodes(count: int) -> str:
    return f"{count or 'no'} node{'s' * (count > 1)}"


# --- the page -----------------------------------------------------------------------------------------------------


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
    page = rendered(
        "evaluation.html",
        _charts(folder, figures),
        figures=figures,
        window=_window(figures),
        sentences=list(sentences(figures)),
        doubts=list(_doubts(figures)),
        columns=columns,
        written=_written,
        typed=_typed,
        what_if=plain({**figures, "curves": curves, "columns": shown}),
        version=metadata.version("bft-replay"),
    )
    target.write_text(page, "utf-8")


def _typed(text: str) -> str:
    """A sentence as markup, whose options no line break tears."""
    options = r"(?<![\w-])--?[a-zA-Z][\w-]*"
    return re.sub(options, r"<code>\g<0></code>", escape(printable(text, MAX_SENTENCE)))


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


def _written(value: float | None, form: str) -> str:
    """A cell of the table; page and script write it alike."""
    if value is None:
        return "-"
    if form == "share":
        return f"{value:.1%}"
    if form == "percent":
        return f"{value:.2%}"
    return f"{value:,.0f}" if form == "money" else three_digits(value)


def _doubts(figures: Figures) -> Iterator[str]:
    """Yield what the page does not know, then what was assumed."""
    yield (
        "Queues are not fed back: an own job that waits delays those behind it. The node-hours above hold to first "
        "order; how much longer your users wait in the queue is not known."
    )
    yield (
        "How long a node takes to come back is not in the logs: the grace time, the end of the training and a cycle "
        "of the scheduler. Measure it; docs/host-jobs.md says how to make it short."
    )
    yield f"A year is this window of {three_digits(figures['window']['days'])} days, repeated; other months may differ."
    yield (
        f"Node-hours of training are those that trainings held; what they did is "
        f"{figures['share_of_bound']:.1%} of what no scheduler can exceed."
        if figures["share_of_bound"] is not None
        else "Node-hours of training are those that trainings held."
    )
    if len(figures["classes"]) > 1:
        yield "All nodes count alike, CPU or GPU; --node-class gpu evaluates GPU nodes alone."
    yield from (f"{note[0].upper()}{note[1:]}." for note in figures["notes"])


def _charts(folder: Path, figures: Figures) -> list[Chart]:
    """The most important charts of a run, in the time of the site."""
    offset, name = _offset(figures)
    there = RunFiles.read(folder)
    axis = Axis(f"time, {name}", "time")
    return [
        replace(chart, drawing=replace(chart.drawing, x=axis))
        if isinstance(chart.drawing, Curves | Blocks)
        and chart.drawing.x.scale == "time"
        else chart
        for chart in charts_of_run(_Local(there.folder, there.summary, offset))[
            :AT_ONCE
        ]
    ]


def _offset(figures: Figures) -> tuple[pd.Timedelta, str]:
    """What the site's time is ahead of UTC when the window begins, and the name of that time."""
    zone, stamp = figures["zone"], figures["window"]["start"]
    local = pd.Timestamp(stamp.partition(" ")[0].removesuffix("Z"))
    local = local.tz_localize(zone, ambiguous=True)
    offset = pd.Timedelta(local.utcoffset() or 0)
    return offset, f"{zone}, UTC{local:%z}" if offset else "UTC"


@dataclass(frozen=True)
class _Local(RunFiles):
    """A run whose instants are later by so much."""

    offset: pd.Timedelta

    def _later(self, table: pd.DataFrame, *columns: str) -> pd.DataFrame:
        return table.assign(**{each: table[each] + self.offset for each in columns})

    @cached_property
    def steps(self) -> pd.DataFrame:
        return self._later(super().steps, "time")

    @cached_property
    def jobs(self) -> pd.DataFrame:
        return self._later(super().jobs, "submit", "start", "finish")

    @cached_property
    def unused(self) -> pd.DataFrame | None:
        unused = super().unused
        return None if unused is None else self._later(unused, "start", "end")

    @cached_property
    def held(self) -> Held:
        held, ns = super().held, self.offset.value
        spans = held.longest
        return replace(
            held,
            changes=held.changes.set_axis(held.changes.index + ns),
            longest=spans.assign(begin=spans["begin"] + ns, end=spans["end"] + ns),
        )
