"""Runs, a comparison, a sweep or a node trace as one HTML page: its content, which templates/page.html lays out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from bft.replay.report import words
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
from bft.replay.results.headlines import FEW_JOBS, headlines
from bft.replay.results.host import host_lines
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


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page with its heading; `key` is what links lead to, and the others are what is there.

    - `note`: a paragraph; `items`: a list; `facts`: pairs of a name and its value.
    - `rows`: a table with `titles`; `jobs`: one that can be sorted, whose cells but the first are pairs of what they
      are sorted by (None where unknown: last) and what is shown.
    """

    key: str
    title: str
    note: str = ""
    items: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    titles: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    jobs: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page: what comes before its charts, the charts, of which `AT_ONCE` are shown, and the rest."""

    title: str
    sub: str
    opening: str
    charts: Sequence[Chart]
    warnings: Sequence[str] = ()
    tiles: Sequence[tuple[str, str]] = ()
    note: str = ""
    before: Sequence[Section] = ()
    after: Sequence[Section] = ()


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
        Run directories, of any policy but not of `--compat reference`, which leaves no steps; or alone the table of a
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
        page = _of_sweep(folders[0], title)
    elif len(folders) > 1:
        page = _of_comparison(compared_runs(folders, different=different), title)
    else:
        page = _of_run(RunFiles.read(folders[0]), title)
    target.write_text(written(page, all_charts=all_charts), "utf-8")


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
    name = _machine(title or trace.machine)
    units = f" of {trace.units:,} units" if trace.by_unit else ""
    page = Page(
        f"{name[0].upper()}{name[1:]}",
        f"{len(trace.nodes):,} nodes{units}, {iso(trace.start, trace.zone)} to {iso(trace.end, trace.zone)}",
        words.of_trace(statistics),
        charts_of_trace(trace),
        before=[Section("figures", "Figures", facts=lines)],
    )
    target.write_text(written(page), "utf-8")


def check_page(path: Path) -> None:
    """Refuse a page under the name of another form than HTML, naming the option that writes that form."""
    form = path.suffix.lower().removeprefix(".")
    if form not in ("html", "htm"):
        hint = f"--{form} DIR writes its charts so" if form in FORMATS else None
        what = "a page is HTML: expected a name that ends in .html"
        raise InputError(what, file=path, hint=hint)


def written(page: Page, *, all_charts: bool = False) -> str:
    """A page as HTML; every text in it is shown as it is, nothing in a name is markup."""
    documents, library = embedded(page.charts)
    content = {"page": page, "documents": documents, "all_charts": all_charts}
    return _templates().get_template("page.html").render(content, library=library)


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
    made.globals |= {
        "policy": POLICY,
        "glossary": words.GLOSSARY,
        "legend": legend,
        "height": height,
        "cells": _cells,
        "three_digits": three_digits,
        "limit_hue": colour(5),
        "shown_rows": ROWS,
        "at_once": AT_ONCE,
    }
    return made


def _cells(table: pd.DataFrame) -> list[list[str]]:
    """The first rows of the table behind a chart."""
    return [[_cell(cell) for cell in row] for row in table.head(ROWS).itertuples(index=False)]  # fmt: skip


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "-"
    if isinstance(value, float | np.floating):
        whole = abs(value) >= 1e5 or value == int(value)
        return f"{value:,.0f}" if whole else f"{value:,.4g}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "strftime") else str(value)


def _machine(name: Any) -> str:
    """The machine of a page; without a path, because the page is sent around."""
    return f"the idle nodes of {name}" if name else "idle nodes"


def _of_sweep(path: Path, title: str | None) -> Page:
    table = read_sweep(path)
    options = ", ".join(NAMES.get(option, option) for option in varied(table))
    sub = f"{len(table):,} replays that differ in {options}"
    heading = f"Which options suit {_machine(title)}"
    return Page(heading, sub, answer(table), charts_of_sweep(table))


def _title(run: RunFiles, title: str | None) -> str:
    machine = _machine(title or run.summary["inputs"]["trace"].get("machine"))
    return f"What training jobs get out of {machine}"


def _window(run: RunFiles) -> str:
    begin, end = (pd.Timestamp(instant) for instant in run.window)
    return f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


def _of_run(run: RunFiles, title: str | None) -> Page:
    summary, metrics = run.summary, run.metrics
    generated = summary["inputs"]["jobs"].get("generated_load")
    version = summary["versions"]["bft-replay"]
    sub = f"policy {summary['options']['policy']}; {_window(run)}; bft-replay {version}"
    jobs = _jobs(run, generated)
    few = len(run.jobs) <= FEW_JOBS
    notes, assumptions = (
        summary["notes"],
        summary["inputs"]["trace"].get("assumptions") or [],
    )
    before = [
        *([jobs] if few else []),
        Section("notes", "Notes", items=notes),
        Section(
            "assumptions", "What the trace of idle nodes assumes", items=assumptions
        ),
    ]
    figures = list(headlines(metrics, generated))
    after = [
        Section("figures", "All figures", facts=figures),
        Section("host", "Your own jobs", facts=list(host_lines(metrics.get("host") or {}))),
        _kinds(metrics.get("kinds", {})),
        _search(metrics.get("search") or {}),
        *([] if few else [jobs]),
        *_origin(summary),
    ]  # fmt: skip
    return Page(
        _title(run, title),
        sub,
        words.opening(summary, why_unused(run)),
        charts_of_run(run),
        _warnings(summary),
        list(words.tiles(summary)),
        words.beside_dedicated(metrics) or "",
        [section for section in before if section.items or section.jobs],
        [section for section in after if section.facts or section.rows or section.jobs],
    )


def _of_comparison(comparison: Comparison, title: str | None) -> Page:
    longest = comparison.longest
    names = [label(variant.label) for variant in comparison.variants]
    runs = [variant.runs[0] for variant in comparison.variants]
    inputs = "; ".join(comparison.different)
    warnings = [f"The runs have different inputs: {inputs}."] if inputs else []
    warnings += [f"{caution}." for caution in comparison.cautions()]
    for name, run in zip(names, runs, strict=True):
        warnings += [f"{name}: {warning}" for warning in _warnings(run.summary)]
    titles, rows = table_of(comparison)
    before = [
        Section("differences", "Compared with the first", items=[f"{each}." for each in comparison.sentences()]),
        Section("side-by-side", "Side by side", titles=["", *names], rows=_turned(titles, rows)),
    ]  # fmt: skip
    if comparison.finishes is not None:
        times = finish_cells(comparison.finishes)
        before.append(
            Section("finishes", "Finished (UTC)", titles=["", *names], rows=times)
        )
    origins = [
        section
        for name, run in zip(names, runs, strict=True)
        for section in _origin(run.summary, f" of {name}")
    ]
    return Page(
        _title(longest, title),
        f"{len(runs)} runs: {'; '.join(names)}; {_window(longest)}",
        f"{comparison.headline()} {words.machine_sentence(longest.summary)}",
        charts_of_comparison(comparison),
        warnings,
        before=before,
        after=origins,
    )


def _turned(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """A table of variants with a line for each figure."""
    columns = zip(titles[1:], *(row[1:] for row in rows), strict=True)
    return [list(column) for column in columns]


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    """Return warnings about a run."""
    metrics, warnings = summary["metrics"], []
    if metrics["interrupted"]:
        warnings.append("The replay was interrupted: these are partial results.")
    if metrics.get("policy_error"):
        warnings.append(metrics["policy_error"])
    if summary["degraded"]:
        warnings.append("Some decisions fell back or failed verification.")
    return warnings


JOB_COLUMNS = (
    "job", "submitted", "finished", "waited, h", "took, h", "mean units", "lost", "done", "preempted", "rescaled",
)  # fmt: skip


def _jobs(run: RunFiles, generated: float | None) -> Section:
    """The table of jobs: of few jobs also in a sentence when they were done."""
    jobs, notes = run.jobs, []
    few = len(jobs) <= FEW_JOBS
    if few:
        notes.append(_when_done(jobs, run.steps["time"].max()))
    notes.append(
        "Times are UTC. Waiting ends with a job's first units; the mean of its units counts all its time in the "
        "system, with none while it waits."
    )
    if generated is not None:
        notes.append(
            f"A generated workload (load {generated:.2f}): its times say nothing about your jobs."
        )
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
    title = "When the jobs were done" if few else "Jobs"
    names = [printable(str(name), MAX_SENTENCE) for name in jobs["name"]]
    rows = list(zip(names, *cells, strict=True))
    return Section("all", title, " ".join(notes), titles=JOB_COLUMNS, jobs=rows)


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


def _search(found: Mapping[str, Any]) -> Section:
    """The best that a search had found, over time."""
    facts = [
        (best["time"][:19].replace("T", " "), f"{best['score']:.4f} by {best['job']}")
        for best in found.get("best_over_time", ())[-ROWS:]
    ]
    return Section("search", "Best found over time", facts=facts)


def _kinds(found: Mapping[str, Mapping[str, Any]]) -> Section:
    """Units offered and used, by kind (`metrics.kinds` of summary.json)."""
    titles = ("kind", "units", "idle unit-hours", "used unit-hours", "share used")
    rows = [
        (
            kind,
            f"{of['units']:,}",
            f"{of['idle_unit_s'] / 3600:,.1f}",
            f"{of['used_unit_s'] / 3600:,.1f}",
            "-" if of["used_share"] is None else f"{of['used_share']:.1%}",
        )
        for kind, of in found.items()
    ]
    return Section("kinds", "Units by kind", titles=titles, rows=rows)


def _origin(summary: Mapping[str, Any], of: str = "") -> list[Section]:
    """Options that differ from the defaults, and inputs and versions, of a run."""
    defaults, inputs = plain(Options().flat()), summary["inputs"]
    options = [
        (option, _without_path(value))
        for option, value in sorted(summary["options"].items())
        if value != defaults.get(option)
    ]
    sources = {
        kind: _without_path(inputs[kind]["source"]) for kind in ("trace", "jobs")
    }
    digests = {f"SHA-256 of {f}": text for f, text in inputs["digests_sha256"].items()}
    versions = {
        f"version of {name}": text for name, text in summary["versions"].items()
    }
    facts = [*sources.items(), *sorted(digests.items()), *sorted(versions.items())]
    title = f"Options{of} that differ from the defaults"
    return [
        Section(f"options{of.replace(' ', '-')}", title, facts=options),
        Section(f"input{of.replace(' ', '-')}", f"Input and versions{of}", facts=facts),
    ]


def _without_path(value: Any) -> str:
    """An option's value without folders of the sender's machine."""
    text = value if isinstance(value, str) else json.dumps(value)
    return Path(text).name if isinstance(value, str) and "/" in text else text
