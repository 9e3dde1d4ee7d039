"""Runs, a comparison or a sweep as one HTML page: what the templates are filled with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.models.errors import MAX_SENTENCE, printable
from bft.models.plugins import needs
from bft.models.writing import duration, three_digits
from bft.replay.options.options import FIELDS, Options
from bft.replay.report.bokeh_form import embedded, height
from bft.replay.report.chart import Chart, label, legend
from bft.replay.report.paper_form import FORMATS
from bft.replay.report.run_charts import charts_of_run, why_unused
from bft.replay.report.study_charts import (
    answer,
    charts_of_comparison,
    charts_of_sweep,
    read_sweep,
    varied,
)
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
from bft.replay.studies.run_files import RunFiles, job_cells, read_run

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
# The template of a page, its charts, and what else it is filled with.
Page = tuple[str, list[Chart], dict[str, Any]]


def write_report(
    folders: Sequence[Path],
    target: Path,
    *,
    title: str | None = None,
    different: bool = False,
    names: Sequence[str] = (),
) -> None:
    """Write the page of one run, of a comparison of several, or of a sweep.

    Parameters
    ----------
    folders
        Run directories, of any policy but not of compat=reference, which leaves no steps; or alone the table of a
        sweep, a Parquet file with one column per option.
    target
        The HTML file; the same runs give the same bytes.
    title
        Instead of the machine's name.
    different
        Compare runs of different traces or jobs too; the page says so.
    names
        What several runs are called, instead of by what differs.

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
    template, charts, content = page_of(
        folders, title=title, different=different, names=names
    )
    text = rendered(template, charts, **content)
    target.write_text(text, "utf-8")


def check_page(path: Path) -> None:
    """Refuse a page under the name of another form than HTML, naming the option that writes that form."""
    form = path.suffix.lower().removeprefix(".")
    if form not in ("html", "htm"):
        hint = f"--{form} DIR writes its charts so" if form in FORMATS else None
        what = "a page is HTML: expected a name that ends in .html"
        raise InputError(what, file=path, hint=hint)


def rendered(
    template: str,
    charts: Sequence[Chart],
    *,
    machine: Any,
    **content: Any,
) -> str:
    """A template of a page, which extends base.html, with charts and what else it shows.

    Every text is shown as it is: nothing in a name is markup.

    Raises
    ------
    InputError
        When Bokeh is not installed.
    """
    documents, library = embedded(charts)
    name = f"the idle nodes of {machine}" if machine else "idle nodes"
    content |= {"charts": charts, "documents": documents}
    return templates().get_template(template).render(content, name=name, library=library)  # fmt: skip


@cache
def templates() -> Environment:
    """The templates of pages and texts; only those of pages are markup.

    Raises
    ------
    InputError
        When Jinja2 is not installed.
    """
    with needs("a page", "report"):
        from jinja2 import (
            Environment,
            PackageLoader,
            StrictUndefined,
            select_autoescape,
        )

    def shown(value: Any) -> Any:
        # The library of Bokeh and parts of the page are other kinds of text.
        return printable(value, MAX_SENTENCE) if type(value) is str else value

    made = Environment(
        loader=PackageLoader("bft.replay.report"),
        autoescape=select_autoescape(default=True, disabled_extensions=("txt",)),
        undefined=StrictUndefined,
        finalize=shown,
    )
    # Bokeh reads a document in its order.
    made.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}
    made.filters |= {
        "cells": _cells,
        "day": _day,
        "typed": _typed,
        "whole": "{:,.0f}".format,
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
        "zip": zip,
        "legend": legend,
        "height": height,
        "much_left": MUCH_LEFT,
        "shown_rows": ROWS,
        "at_once": AT_ONCE,
        "figure_of": FIGURES,
    }
    return made


def _typed(text: str) -> str:
    """A sentence as markup, whose options no line break tears."""
    options = r"(?<![\w-])--?[a-zA-Z][\w-]*"
    return re.sub(options, r"<code>\g<0></code>", escape(printable(text, MAX_SENTENCE)))


def _day(stamp: str) -> str:
    """An instant as `iso` writes it, to the minute: 4 March 2024, 00:10."""
    at = datetime.fromisoformat(stamp.partition(" ")[0].removesuffix("Z"))
    return f"{at.day} {at:%B %Y, %H:%M}"


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


def _idle_share(summary: Mapping[str, Any]) -> float | None:
    """The idle part of all node-time in the window; None where there is no machine or no time."""
    metrics, trace = summary["metrics"], summary["inputs"]["trace"]
    if "nodes" not in trace or not metrics["duration_s"]:
        return None
    idle = metrics["resource_integral_unit_s"] / metrics["duration_s"]
    return float(idle / trace.get("units", trace["nodes"]))


def page_of(
    folders: Sequence[Path],
    *,
    title: str | None = None,
    different: bool = False,
    names: Sequence[str] = (),
) -> Page:
    """The template of a page, its charts and what it is filled with; arguments and errors as of `write_report`."""
    if len(folders) > 1:
        found = compared_runs(folders, different=different, names=names)
        return _of_comparison(found, title)
    if folders[0].suffix != ".parquet" or not folders[0].is_file():
        return _of_run(read_run(folders[0]), title)
    table = read_sweep(folders[0])
    options = [FIELDS[option].title for option in varied(table)]
    content = {"points": len(table), "options": options, "answer": answer(table)}
    return "sweep.html", charts_of_sweep(table), {"machine": title, **content}


def _of_run(run: RunFiles, title: str | None) -> Page:
    summary, metrics = run.summary, run.metrics
    best = (metrics.get("search") or {}).get("best_over_time", [])
    content = {
        "machine": title or summary["inputs"]["trace"].get("machine"),
        "run": run,
        "why_unused": why_unused(run),
        "few": len(run.jobs) <= FEW_JOBS,
        "jobs": job_cells(run),
        "figures": list(headlines(summary)),
        "host_figures": list(host_lines(metrics.get("host") or {})),
        "search": best[-ROWS:],
        "options": _options([run]),
        "origin": _origin(run),
    }
    return "run.html", charts_of_run(run), content


def _of_comparison(comparison: Comparison, title: str | None) -> Page:
    longest, variants = comparison.longest, comparison.variants
    titles, rows = table_of(comparison)
    finishes = comparison.finishes
    content = {
        "machine": title or longest.summary["inputs"]["trace"].get("machine"),
        "names": [label(variant.label) for variant in variants],
        "comparison": comparison,
        "figures": list(zip(titles[1:], *(row[1:] for row in rows), strict=True)),
        "finishes": [] if finishes is None else finish_cells(finishes, longest.zone),
        "options": _options([variant.runs[0] for variant in variants]),
        "origin": _origin(longest),
    }
    return "comparison.html", charts_of_comparison(comparison), content


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
