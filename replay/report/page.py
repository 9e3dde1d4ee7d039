"""Runs, or a node trace, as an HTML page: with embedded scripts, or without scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from bft.replay.report import words
from bft.replay.report.bokeh_form import embedded, height
from bft.replay.report.chart import Bars, Blocks, Chart, Curves, colour
from bft.replay.report.run_charts import charts_of, charts_of_trace
from bft.replay.report.run_files import RunFiles, read_run
from bft.replay.report.study_charts import (
    NAMES,
    answer,
    charts_of_sweep,
    headline,
    is_sweep,
    names_of,
    read_sweep,
    varied,
)
from bft.replay.report.svg_form import drawn
from bft.replay.report.tables import (
    behind,
    data,
    facts,
    host_section,
    jobs_section,
    kinds_section,
    parameters,
    search_section,
    section,
)
from bft.replay.report.words import markup
from bft.replay.results.headlines import FEW_JOBS, headlines
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.trace_statistics import iso

# Only the file itself: a browser refuses to fetch anything. Bokeh compiles the texts of hovers in the page.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; base-uri 'none'; form-action 'none'"
)


# More charts than these are a click away.
AT_ONCE = 4

Compare = Callable[[], tuple[Sequence[str], Sequence[str]]]
"""Returns warnings and sentences on several runs."""


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page: a title, the parts before the charts, the charts, and the parts after them.

    The first `AT_ONCE` charts are shown at once, the others when the reader asks for them.
    """

    title: str
    sub: str
    before: Sequence[str]
    charts: Sequence[Chart]
    after: Sequence[str]


def write_report(
    folders: Sequence[Path],
    target: Path,
    *,
    static: bool = False,
    all_charts: bool = False,
    title: str | None = None,
    compare: Compare | None = None,
) -> None:
    """Write the page of one run, of several side by side, or of a sweep.

    Parameters
    ----------
    folders
        Run directories, of any policy but not of `--compat reference`, which leaves no steps; or alone the table of a
        sweep, a Parquet file with one column per option.
    target
        The HTML file; the same runs give the same bytes.
    static
        Without scripts, and with charts as SVG.
    all_charts
        Show all charts at once, not the most important four.
    title
        Instead of the machine's name.
    compare
        Of several runs: what to mind, and how the others compare with the first; called when the files are checked.

    Raises
    ------
    InputError
        When a folder is not a run directory, has no steps, or is damaged (names the file); when Bokeh is not installed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import bft
    >>> with TemporaryDirectory() as folder:
    ...     _ = bft.replay(policy="fifo", dedicated=False, out=f"{folder}/run")
    ...     write_report([Path(folder, "run")], Path(folder, "page.html"), static=True)
    ...     Path(folder, "page.html").read_text().startswith("<!DOCTYPE html>")
    True
    """
    if is_sweep(folders):
        page = _of_sweep(folders[0], title)
    else:
        runs = [read_run(folder) for folder in folders]
        page = _of_runs(runs, title, compare, static=static)
    text = written(page, static=static, all_charts=all_charts)
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
    name = _machine(title or trace.machine)
    units = f" of {trace.units:,} units" if trace.by_unit else ""
    page = Page(
        f"{name[0].upper()}{name[1:]}",
        f"{len(trace.nodes):,} nodes{units}, {iso(trace.start, trace.zone)} to {iso(trace.end, trace.zone)}",
        [
            f'<p class="opening">{markup(words.of_trace(statistics))}</p>',
            section("figures", "Figures", facts(lines)),
        ],
        charts_of_trace(trace),
        [_glossary()],
    )
    target.write_text(written(page, static=False), "utf-8")


def _of_sweep(path: Path, title: str | None) -> Page:
    table = read_sweep(path)
    name = _machine(title)
    options = ", ".join(NAMES.get(option, option) for option in varied(table))
    sub = f"{len(table):,} replays that differ in {options or 'nothing'}"
    return Page(
        f"Which options suit {name}",
        sub,
        [f'<p class="opening">{markup(answer(table))}</p>'],
        charts_of_sweep(table),
        [_glossary()],
    )


def written(page: Page, *, static: bool, all_charts: bool = False) -> str:
    """A page as HTML."""
    documents, library = ({}, "") if static else embedded(page.charts)
    figure: Callable[[Chart], str] = drawn if static else placeholder
    switch = "" if static else BUTTONS
    contents = "".join(
        f'<li><a href="#{chart.key}">{markup(chart.title)}</a></li>'
        for chart in page.charts
    )
    meta = (
        ""
        if static
        else f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    )
    sections = [
        chart_section(chart, figure(chart), static=static) for chart in page.charts
    ]
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8">{meta}',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{markup(page.title)}</title><style>{_asset('page.css')}</style>{'' if static else UNSCRIPTED}",
        "</head><body>",
        f'<header><div class="bar"><h1>{markup(page.title)}</h1>{switch}</div><p class="sub">{markup(page.sub)}</p>',
        "</header><main>",
        *page.before,
        f'<nav aria-label="Charts"><details><summary>{len(page.charts)} charts on this page</summary>'
        f'<ul class="contents">{contents}</ul></details></nav>',
        "" if static else f'<p class="note help">{HELP}</p>',
        *sections[:AT_ONCE],
        *_a_click_away(sections[AT_ONCE:], is_open=all_charts),
        *page.after,
        "</main>",
    ]
    if not static:
        parts += [data(f"data-{key}", document) for key, document in documents.items()]
        parts += [
            f"<script>{library}</script>",
            f"<script>{_asset('page.js')}</script>",
        ]
    return "\n".join([*parts, "</body></html>", ""])


BUTTONS = (
    '<div class="buttons"><button type="button" id="theme" hidden>Light or dark</button>'
    '<button type="button" id="print" hidden>Print</button></div>'
)
HELP = (
    "Charts over time zoom together: draw a box on one, or put the keyboard on it (arrow keys move, + and − zoom, "
    "0 shows all). A legend's buttons take entries out and put them back."
)


# Without scripts the drawings of the static page take the place of charts that zoom.
UNSCRIPTED = (
    "<noscript><style>.figure, .help { display: none } "
    ".legend button { pointer-events: none }</style></noscript>"
)


def _a_click_away(sections: Sequence[str], *, is_open: bool) -> list[str]:
    if not sections:
        return []
    count = f"{len(sections)} more chart{'s' * (len(sections) > 1)}"
    opened = " open" if is_open else ""
    head = f'<details class="more"{opened}><summary>{count}</summary>'
    return [head, *sections, "</details>"]


def chart_section(chart: Chart, figure: str, *, static: bool = False) -> str:
    """A chart with its title, note and legend, and the table behind it, as HTML."""
    note = f'<p class="note">{markup(chart.note)}</p>' if chart.note else ""
    return section(
        chart.key,
        chart.title,
        f"{note}{_legend(chart, static=static)}{figure}{behind(chart.table, chart.title)}",
    )


def placeholder(chart: Chart) -> str:
    """Return the HTML of a figure that page.js draws when it is about to be seen."""
    name = markup(
        f"{chart.title}. Arrow keys move, plus and minus zoom, 0 shows all. Its data is in the table below."
    )
    return (
        f'<div class="figure" data-chart="{chart.key}" tabindex="0" role="group" aria-label="{name}">'
        f'<div style="min-height:{height(chart.drawing)}px"></div></div>'
        f"<noscript>{drawn(chart)}</noscript>"
    )


def _legend(chart: Chart, *, static: bool) -> str:
    """The legend; its entries are buttons where they can be switched off."""
    drawing = chart.drawing
    entries: list[tuple[str, str]] = []
    if isinstance(drawing, Curves):
        entries = [
            (c.name, colour(k if c.filled else k + 1))
            for k, c in enumerate(drawing.curves)
        ]
    elif isinstance(drawing, Bars):
        entries = [
            (name, colour(number + 1)) for number, name in enumerate(drawing.series)
        ]
    elif isinstance(drawing, Blocks):
        entries = drawing.legend()
    items = []
    for number, (name, hue) in enumerate(entries):
        key = f'<i style="background:{hue}"></i>{markup(name)}'
        if static or len(entries) == 1:
            items.append(f'<li class="plain">{key}</li>')
        else:
            button = f'<button type="button" aria-pressed="true" data-chart="{chart.key}" data-entry="{number}">'
            items.append(f"<li>{button}{key}</button></li>")
    if isinstance(drawing, Curves):
        for name, level in drawing.limits.items():
            items.append(
                f'<li class="plain"><i style="background:{colour(5)}"></i>{markup(f"{name}: {level:,.4g}")}</li>'
            )
    return f'<ul class="legend">{"".join(items)}</ul>' if items else ""


def _of_runs(
    runs: Sequence[RunFiles],
    title: str | None,
    compare: Compare | None,
    *,
    static: bool,
) -> Page:
    run = runs[0]
    charts = charts_of(runs)
    with run.summary_used():
        summary = run.summary
        machine = _machine(title or summary["inputs"]["trace"].get("machine"))
        generated = summary["inputs"]["jobs"].get("generated_load")
        window = f"{run.steps['time'].min():%Y-%m-%d %H:%M} to {run.steps['time'].max():%Y-%m-%d %H:%M} UTC"
        sub = f"policy {summary['options']['policy']}; {window}; bft-replay {summary['versions']['bft-replay']}"
        before, notes, after = _opening(summary), _notes(summary), parameters(runs)
        lines = facts(list(headlines(summary["metrics"], generated)))
        search = search_section(summary["metrics"].get("search"))
        kinds = kinds_section(summary["metrics"].get("kinds", {}))
        host = host_section(summary["metrics"].get("host") or {})
    figures = "All figures"
    if len(runs) > 1:
        names = names_of(runs)
        before, sub = (
            _opening_of_all(runs, compare),
            f"{len(runs)} runs: {'; '.join(names)}; {window}",
        )
        figures = f"All figures of {names[0]}, the first of {len(runs)} runs"
    jobs = jobs_section(run, generated, sortable=not static)
    if len(runs) == 1 and len(run.jobs) <= FEW_JOBS:
        before = [*before, jobs]
    else:
        after = [jobs, *after]
    before = [*before, *notes]
    return Page(
        f"What training jobs get out of {machine}",
        sub,
        before,
        charts,
        [
            section("figures", figures, lines),
            *host,
            *kinds,
            *search,
            *after,
            _glossary(),
        ],
    )


def _opening_of_all(runs: Sequence[RunFiles], compare: Compare | None) -> list[str]:
    """Return what several runs come to, what to mind, and how the others compare with the first."""
    warnings, sentences = ([], []) if compare is None else compare()
    parts = [
        f'<p class="warning"><strong>{markup(warning)}</strong></p>'
        for warning in warnings
    ]
    for name, run in zip(names_of(runs), runs, strict=True):
        with run.summary_used():
            parts += _warnings(run.summary, f"{name}: ")
            machine = words.machine_sentence(run.summary)
    opening = f'<p class="opening">{markup(f"{headline(runs)} {machine}")}</p>'
    items = "".join(f"<li>{markup(sentence)}</li>" for sentence in sentences)
    return [opening, *parts, *([f"<ul>{items}</ul>"] if items else [])]


def _warnings(summary: dict[str, Any], of: str = "") -> list[str]:
    """Return warnings about a run; `of` names it among several."""
    metrics = summary["metrics"]
    warnings = (
        ["The replay was interrupted: these are partial results."]
        if metrics["interrupted"]
        else []
    )
    warnings += [metrics["policy_error"]] if metrics.get("policy_error") else []
    warnings += (
        ["Some decisions fell back or failed verification."]
        if summary["degraded"]
        else []
    )
    return [
        f'<p class="warning"><strong>{markup(f"{of}{warning}")}</strong></p>'
        for warning in warnings
    ]


def _opening(summary: dict[str, Any]) -> list[str]:
    metrics = summary["metrics"]
    parts = [f'<p class="opening">{markup(words.opening(summary))}</p>']
    parts += _warnings(summary)
    tiles = "".join(
        f"<li><strong>{markup(value)}</strong><span>{markup(what)}</span></li>"
        for value, what in words.tiles(summary)
    )
    parts.append(f'<ul class="tiles">{tiles}</ul>')
    beside = words.beside_dedicated(metrics)
    parts += [f'<p class="note">{markup(beside)}</p>'] if beside else []
    return parts


def _notes(summary: dict[str, Any]) -> list[str]:
    """Notes of the replay, and what was assumed when its trace was made."""
    parts = []
    assumptions = summary["inputs"]["trace"].get("assumptions") or []
    for key, title, notes in (
        ("notes", "Notes", summary.get("notes") or []),
        ("assumptions", "What the trace of idle nodes assumes", assumptions),
    ):
        items = "".join(f"<li>{markup(note)}</li>" for note in notes)
        parts += [section(key, title, f"<ul>{items}</ul>")] if items else []
    return parts


def _glossary() -> str:
    entries = "".join(
        f"<dt>{markup(term)}</dt><dd>{markup(meaning)}</dd>"
        for term, meaning in words.GLOSSARY
    )
    return section("glossary", "What the words mean", f"<dl>{entries}</dl>")


def _machine(name: Any) -> str:
    """The machine of a page; without a path, because the page is sent around."""
    return f"the idle nodes of {name}" if name else "idle nodes"


def _asset(name: str) -> str:
    return resources.files("bft.replay.report").joinpath(name).read_text("utf-8")
