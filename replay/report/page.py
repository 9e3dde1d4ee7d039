"""Runs, a comparison, a sweep or a node trace as one HTML page: what the templates are filled with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.models.errors import MAX_SENTENCE, printable
from bft.models.plugins import needs
from bft.models.writing import duration, three_digits
from bft.replay.engine.ledger import BOOKS
from bft.replay.options.options import Options
from bft.replay.report.bokeh_form import embedded, height
from bft.replay.report.chart import Chart, colour, label, legend
from bft.replay.report.paper_form import FORMATS
from bft.replay.report.run_charts import charts_of_run, done_shares, why_unused
from bft.replay.report.study_charts import (
    NAMES,
    answer,
    charts_of_comparison,
    charts_of_sweep,
    is_sweep,
    read_sweep,
    varied,
)
from bft.replay.report.trace_charts import charts_of_trace
from bft.replay.results.figures import FIGURES
from bft.replay.results.headlines import (
    FEW_JOBS,
    MUCH_LEFT,
    headlines,
    host_lines,
    minute,
)
from bft.replay.results.host import host_sentence
from bft.replay.results.run_directory import plain
from bft.replay.studies.comparison import (
    Comparison,
    compared_runs,
    finish_cells,
    table_of,
)
from bft.replay.studies.run_files import RunFiles
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_statistics import iso

if TYPE_CHECKING:
    from jinja2 import Environment

# Only the file itself: a browser refuses to fetch anything. Bokeh compiles the texts of hovers in the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; base-uri 'none'; form-action 'none'"
)
# More charts than these are a click away.
AT_ONCE = 4
# More rows than this make a table that nobody reads; the files of the run have them all.
ROWS = 100
# What the figures of costs are, for their tiles.
COSTS = {
    "costs.additional_kwh": "more than if the nodes had stayed idle",
    "costs.additional_co2_kg": "of CO2 more",
    "costs.value_used": "worth of the node-hours used, by your price",
}
JOB_COLUMNS = (
    "job", "submitted", "finished", "waited, h", "took, h", "mean units", "lost", "done", "preempted", "rescaled",
)  # fmt: skip


def write_report(
    folders: Sequence[Path],
    target: Path,
    *,
    all_charts: bool = False,
    title: str | None = None,
    different: bool = False,
) -> None:
    """Write the page of one run, of a comparison of several, or of a sweep.

    Parameters
    ----------
    folders
        Run directories, of any policy but not of compat=reference, which leaves no steps; or alone the table of a
        sweep, a Parquet file with one column per option.
    target
        The HTML file; the same runs give the same bytes.
    all_charts
        Show all charts at once, not the most important four.
    title
        Instead of the machine's name.
    different
        Compare runs of different traces or jobs too; the page says so.

    Raises
    ------
    InputError
        When a folder is not a run directory, has no steps, or is damaged (names the file); when runs have different
        inputs; when Bokeh is not installed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import bft
    >>> with TemporaryDirectory() as folder:
    ...     _ = bft.replay(policy="fifo", dedicated=False, out=f"{folder}/run")
    ...     write_report([Path(folder, "run")], Path(folder, "page.html"))
    ...     Path(folder, "page.html").read_text().startswith("<!DOCTYPE html>")
    True
    """
    if is_sweep(folders):
        text = _of_sweep(folders[0], title, all_charts=all_charts)
    elif len(folders) > 1:
        found = compared_runs(folders, different=different)
        text = _of_comparison(found, title, all_charts=all_charts)
    else:
        text = _of_run(RunFiles.read(folders[0]), title, all_charts=all_charts)
    target.write_text(text, "utf-8")


def write_trace_page(
    trace: NodeTrace,
    statistics: dict[str, Any],
    lines: Sequence[tuple[str, str]],
    target: Path,
    title: str | None,
) -> None:
    """Write the page of a node trace alone.

    Parameters
    ----------
    trace
        The trace.
    statistics
        Its statistics (`bft.replay.trace.trace_statistics.trace_statistics`).
    lines
        All its figures for people, label and value.
    target
        The HTML file.
    title
        Instead of the machine's name.
    """
    text = rendered(
        "trace.html",
        charts_of_trace(trace),
        name=_machine(title or trace.machine),
        trace=trace,
        found=statistics,
        figures=lines,
        begin=iso(trace.start, trace.zone),
        end=iso(trace.end, trace.zone),
    )
    target.write_text(text, "utf-8")


def check_page(path: Path) -> None:
    """Refuse a page under the name of another form than HTML, naming the option that writes that form."""
    form = path.suffix.lower().removeprefix(".")
    if form not in ("html", "htm"):
        hint = f"--{form} DIR writes its charts so" if form in FORMATS else None
        what = "a page is HTML: expected a name that ends in .html"
        raise InputError(what, file=path, hint=hint)


def rendered(
    template: str, charts: Sequence[Chart], *, all_charts: bool = False, **content: Any
) -> str:
    """A template of a page, which extends base.html, with charts and what else it shows.

    Every text is shown as it is: nothing in a name is markup.

    Raises
    ------
    InputError
        When Bokeh is not installed.
    """
    documents, library = embedded(charts)
    content |= {"charts": charts, "all_charts": all_charts, "documents": documents}
    return _templates().get_template(template).render(content, library=library)


@cache
def _templates() -> Environment:
    with needs("a page", "report"):
        from jinja2 import Environment, PackageLoader, StrictUndefined

    def shown(value: Any) -> Any:
        # The library of Bokeh and parts of the page are other kinds of text.
        return printable(value, MAX_SENTENCE) if type(value) is str else value

    made = Environment(
        loader=PackageLoader("bft.replay.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
    )
    # Bokeh reads a document in its order.
    made.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    made.filters |= {
        "cells": _cells,
        "counted": lambda count, what: f"{count:,} {what}{'s' * (count != 1)}",
        "duration": duration,
        "host_sentence": host_sentence,
        "idle_share": _idle_share,
        "minute": minute,
        "number": three_digits,
        "share": "{:.1%}".format,
    }
    made.globals |= {
        "policy": POLICY,
        "legend": legend,
        "height": height,
        "limit_hue": colour(5),
        "much_left": MUCH_LEFT,
        "shown_rows": ROWS,
        "at_once": AT_ONCE,
    }
    return made


def _cells(table: pd.DataFrame) -> list[list[str]]:
    """The first rows of the table behind a chart."""
    return [[_cell(cell) for cell in row] for row in table.head(ROWS).itertuples(index=False)]  # fmt: skip


def _cell(value: Any) -> str:
    if pd.isna(value):
        return "-"
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if not isinstance(value, int | float | np.number):
        return str(value)
    number = float(value)
    is_whole = abs(number) >= 1e5 or number.is_integer()
    return f"{number:,.0f}" if is_whole else f"{number:,.4g}"


def _machine(name: Any) -> str:
    """The machine of a page; without a path, because the page is sent around."""
    return f"the idle nodes of {name}" if name else "idle nodes"


def _idle_share(summary: Mapping[str, Any]) -> float | None:
    """The idle part of all node-time in the window; None where there is no machine or no time."""
    metrics, trace = summary["metrics"], summary["inputs"]["trace"]
    if "nodes" not in trace or not metrics["duration_s"]:
        return None
    if "units" not in trace:
        return float(metrics["eq_nodes"] / trace["nodes"])
    idle_units = metrics["resource_integral_unit_s"] / metrics["duration_s"]
    return float(idle_units / trace["units"])


def _of_sweep(path: Path, title: str | None, *, all_charts: bool) -> str:
    table = read_sweep(path)
    return rendered(
        "sweep.html",
        charts_of_sweep(table),
        all_charts=all_charts,
        name=_machine(title),
        points=len(table),
        options=[NAMES.get(option, option) for option in varied(table)],
        answer=answer(table),
    )


def _of_run(run: RunFiles, title: str | None, *, all_charts: bool) -> str:
    summary, metrics = run.summary, run.metrics
    trace = summary["inputs"]["trace"]
    generated = summary["inputs"]["jobs"].get("generated_load")
    best = (metrics.get("search") or {}).get("best_over_time", [])
    return rendered(
        "run.html",
        charts_of_run(run),
        all_charts=all_charts,
        name=_machine(title or trace.get("machine")),
        run=run,
        why_unused=why_unused(run),
        few=len(run.jobs) <= FEW_JOBS,
        when_done=_when_done(run.jobs, run.steps["time"].max()),
        jobs=_job_rows(run.jobs),
        job_columns=JOB_COLUMNS,
        costs=[(FIGURES[path], what) for path, what in COSTS.items()],
        figures=list(headlines(metrics, generated)),
        host_figures=list(host_lines(metrics.get("host") or {})),
        kinds=_kinds(metrics.get("kinds", {})),
        search=[
            (minute(each["time"]), f"{each['score']:.4f} by {each['job']}")
            for each in best[-ROWS:]
        ],
        options=[(name, *values) for name, *values in _options([run])],
        origin=_origin(run),
    )


def _of_comparison(
    comparison: Comparison, title: str | None, *, all_charts: bool
) -> str:
    longest = comparison.longest
    runs = [variant.runs[0] for variant in comparison.variants]
    titles, rows = table_of(comparison)
    turned = zip(titles[1:], *(row[1:] for row in rows), strict=True)
    finishes = comparison.finishes
    machine = longest.summary["inputs"]["trace"].get("machine")
    return rendered(
        "comparison.html",
        charts_of_comparison(comparison),
        all_charts=all_charts,
        name=_machine(title or machine),
        names=[label(variant.label) for variant in comparison.variants],
        comparison=comparison,
        figures=list(turned),
        finishes=[] if finishes is None else finish_cells(finishes),
        options=_options(runs),
        origin=_origin(longest),
    )


def _job_rows(jobs: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The rows of the table of jobs: names, and pairs of what a cell is sorted by and what is shown."""
    total = jobs["total_work"].to_numpy(dtype=np.float64)
    lost = jobs[[f"lost_to_{book}" for book in BOOKS]].sum(axis=1)
    columns = {
        "{:%d %b %H:%M}": (jobs["submit"], jobs["finish"]),
        "{:.2f}": (jobs["queueing_s"] / 3600, jobs["jct_s"] / 3600),
        "{:.1f}": (jobs["mean_units"],),
        "{:.1%}": (lost / np.where(total > 0, total, 1.0),),
        "{:.0%}": (pd.Series(done_shares(jobs)),),
        "{:,}": (jobs["preemptions"], jobs["rescales"]),
    }
    cells = [
        [_sorted_cell(value, form) for value in values]
        for form, several in columns.items()
        for values in several
    ]
    names = [printable(str(name), MAX_SENTENCE) for name in jobs["name"]]
    return list(zip(names, *cells, strict=True))


def _sorted_cell(value: Any, form: str) -> tuple[float | None, str]:
    if value != value:
        return None, "-"
    number = value.timestamp() if isinstance(value, pd.Timestamp) else value
    return round(float(number), 4), form.format(value)


def _when_done(jobs: pd.DataFrame, end: pd.Timestamp) -> str:
    """Say in a sentence when jobs were done, and which were not by the end of a replay."""
    finish, count = jobs["finish"], len(jobs)
    done = finish.notna()
    if not done.any():
        return f"None of the {count:,} jobs was done by {end:%d %b %H:%M}."
    last = finish.max()
    if done.all():
        took = duration((last - jobs["submit"].min()).total_seconds())
        whole = "The job was" if count == 1 else f"All {count:,} jobs were"
        return f"{whole} done by {last:%d %b %H:%M}, {took} after the first submission."
    left = jobs[~done]
    shares = zip(left["name"], done_shares(left), strict=True)
    named = ", ".join(f"{name} ({share:.0%} done)" for name, share in shares)
    of = f"{int(done.sum()):,} of {count:,} jobs were done, the last of them by {last:%d %b %H:%M}"
    return f"{of}. By the end, {end:%d %b %H:%M}, these were not: {named}."


def _kinds(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Units offered and used, by kind (`metrics.kinds` of summary.json)."""
    return [
        (
            kind,
            f"{of['units']:,}",
            f"{of['idle_unit_s'] / 3600:,.1f}",
            f"{of['used_unit_s'] / 3600:,.1f}",
            "-" if of["used_share"] is None else f"{of['used_share']:.1%}",
        )
        for kind, of in found.items()
    ]


def _options(runs: Sequence[RunFiles]) -> list[list[str]]:
    """Options that differ from the defaults in any run, with their values in each."""
    stated = [run.summary["options"] for run in runs]
    defaults = plain(Options().flat())
    return [
        [name, *(_without_path(options.get(name)) for options in stated)]
        for name in sorted({name for options in stated for name in options})
        if any(options.get(name) != defaults.get(name) for options in stated)
    ]


def _origin(run: RunFiles) -> list[tuple[str, str]]:
    """Inputs of a run and their digests, and versions."""
    inputs, versions = run.summary["inputs"], run.summary["versions"]
    digests = sorted(inputs["digests_sha256"].items())
    return [
        *((kind, _without_path(inputs[kind]["source"])) for kind in ("trace", "jobs")),
        *((f"SHA-256 of {file}", digest) for file, digest in digests),
        *((f"version of {name}", text) for name, text in sorted(versions.items())),
    ]


def _without_path(value: Any) -> str:
    """An option's value without folders of the sender's machine."""
    text = value if isinstance(value, str) else json.dumps(value)
    return Path(text).name if isinstance(value, str) and "/" in text else text
