"""Tables of a page and the sections around them: facts, what is behind a chart, jobs, options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bft.models.errors import MAX_SENTENCE, printable
from bft.replay.engine.ledger import BOOKS
from bft.replay.options.options import Options
from bft.replay.report.job_charts import done_shares
from bft.replay.report.run_files import RunFiles
from bft.replay.report.study_charts import names_of
from bft.replay.report.words import markup
from bft.replay.results.headlines import FEW_JOBS, duration_text, host_lines
from bft.replay.results.run_directory import plain

# More rows than this make a page that nobody reads; the files of the run have them all.
ROWS = 100
JOB_COLUMNS = (
    "job",
    "submitted",
    "finished",
    "waited, h",
    "took, h",
    "mean units",
    "lost",
    "done",
    "preempted",
    "rescaled",
)
# A cell: what it is sorted by (None where unknown: last), and what is shown.
Cell = tuple[float | None, str]


def facts(rows: Sequence[tuple[str, str]]) -> str:
    """Return an HTML table of two columns: the name of a fact and its value."""
    body = "\n".join(
        f'<tr><th scope="row">{markup(what)}</th><td>{markup(value)}</td></tr>'
        for what, value in rows
    )
    return f'<div class="scroll"><table class="facts"><tbody>\n{body}\n</tbody></table></div>'


def kinds_table(found: dict[str, dict[str, Any]]) -> str:
    """Units offered and used, by kind (`metrics.kinds` of summary.json)."""
    columns = ("kind", "units", "idle unit-hours", "used unit-hours", "share used")
    head = "".join(
        f'<th scope="col"{_number(k > 0)}>{column}</th>'
        for k, column in enumerate(columns)
    )
    rows = [
        (
            f"{of['units']:,}",
            f"{of['idle_unit_s'] / 3600:,.1f}",
            f"{of['used_unit_s'] / 3600:,.1f}",
            "-" if of["used_share"] is None else f"{of['used_share']:.1%}",
        )
        for of in found.values()
    ]
    body = "\n".join(
        f'<tr><th scope="row">{markup(kind)}</th>{"".join(_cell(text, right=True) for text in row)}</tr>'
        for kind, row in zip(found, rows, strict=True)
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def behind(table: pd.DataFrame, title: str) -> str:
    """The numbers of a chart, its first rows."""
    shown = table.head(ROWS)
    columns = [shown[column].tolist() for column in shown.columns]
    numeric = [
        all(isinstance(cell, int | float) for cell in column) for column in columns
    ]
    head = "".join(
        f'<th scope="col"{_number(right)}>{markup(str(name))}</th>'
        for name, right in zip(shown.columns, numeric, strict=True)
    )
    body = "\n".join(
        f"<tr>{''.join(_cell(_shown(cell), right=right) for cell, right in zip(row, numeric, strict=True))}</tr>"
        for row in zip(*columns, strict=True)
    )
    more = f" (the first {ROWS} of {len(table):,} rows)" if len(table) > ROWS else ""
    # A scrolling region that the keyboard reaches.
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="{markup(f"Data of: {title}")}">'
    return (
        f"<details><summary>Data of this chart{more}</summary>{region}<table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>{body}</tbody></table></div></details>"
    )


def _number(right: bool) -> str:
    return ' class="number"' if right else ""


def _cell(text: str, *, right: bool) -> str:
    return f"<td{_number(right)}>{markup(text)}</td>"


def _shown(cell: Any) -> str:
    if cell is None or cell != cell:
        return "-"
    if isinstance(cell, float):
        return (
            f"{cell:,.0f}" if abs(cell) >= 1e5 or cell == int(cell) else f"{cell:,.4g}"
        )
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return f"{cell:%Y-%m-%d %H:%M:%S}" if hasattr(cell, "strftime") else str(cell)


def job_rows(jobs: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows of the table of jobs, with the columns `JOB_COLUMNS`."""
    lost = np.zeros(len(jobs))
    for book in BOOKS:
        lost += jobs[f"lost_to_{book}"].to_numpy(dtype=np.float64)
    total = jobs["total_work"].to_numpy(dtype=np.float64)
    lost /= np.where(total > 0, total, 1.0)
    columns = (
        [_text(name) for name in jobs["name"]],
        *([_instant(at) for at in jobs[column]] for column in ("submit", "finish")),
        *(
            [_hours(seconds) for seconds in jobs[column].tolist()]
            for column in ("queueing_s", "jct_s")
        ),
        [(units, f"{units:.1f}") for units in jobs["mean_units"].round(3).tolist()],
        [(share, f"{share:.1%}") for share in lost.round(5).tolist()],
        [(share, f"{share:.0%}") for share in done_shares(jobs).round(4).tolist()],
        *(
            [(count, f"{count:,}") for count in jobs[column].tolist()]
            for column in ("preemptions", "rescales")
        ),
    )
    return list(zip(*columns, strict=True))


def when_done(jobs: pd.DataFrame, end: pd.Timestamp) -> str:
    """Say in a sentence when jobs were done, and which were not by the end of a replay."""
    finish, count = jobs["finish"], len(jobs)
    done = finish.notna()
    if not done.any():
        return f"None of the {count:,} jobs was done by {end:%d %b %H:%M}."
    last, first = finish.max(), jobs["submit"].min()
    took = duration_text((last - first).total_seconds())
    if done.all():
        all_of = "The job was" if count == 1 else f"All {count:,} jobs were"
        return (
            f"{all_of} done by {last:%d %b %H:%M}, {took} after the first submission."
        )
    left = jobs[~done]
    named = ", ".join(
        f"{_text(name)} ({share:.0%} done)"
        for name, share in zip(left["name"], done_shares(left), strict=True)
    )
    of = f"{int(done.sum()):,} of {count:,} jobs were done, the last of them by {last:%d %b %H:%M}"
    return f"{of}. By the end, {end:%d %b %H:%M}, these were not: {named}."


def _instant(at: Any) -> Cell:
    if at != at:
        return None, "-"
    return float(at.timestamp()), f"{at:%d %b %H:%M}"


def _hours(seconds: float) -> Cell:
    return (
        (round(seconds, 1), f"{seconds / 3600:.2f}")
        if seconds == seconds
        else (None, "-")
    )


def _text(name: object) -> str:
    """A name as text: for JSON, whose reader makes no markup of it."""
    return printable(str(name), MAX_SENTENCE)


def jobs_table(jobs: pd.DataFrame, *, sortable: bool) -> str:
    """The first jobs; sortable ones bring all of them as data for page.js."""
    rows = job_rows(jobs)
    name = '<button type="button">{}</button>' if sortable else "{}"
    head = "".join(
        f'<th scope="col"{_number(k > 0)}>{name.format(markup(column))}</th>'
        for k, column in enumerate(JOB_COLUMNS)
    )
    body = "\n".join(
        f'<tr><th scope="row">{markup(name)}</th>{"".join(_cell(text, right=True) for _, text in cells)}</tr>'
        for name, *cells in rows[:ROWS]
    )
    region = '<div class="scroll" tabindex="0" role="region" aria-label="Jobs">'
    parts = [
        f'{region}<table class="jobs"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'
    ]
    if sortable:
        if len(rows) > ROWS:
            parts.append(
                f'<p><button type="button" id="all-jobs">Show all {len(rows):,} jobs</button></p>'
            )
        parts.append(data("jobs", json.dumps(rows, separators=(",", ":"))))
    elif len(rows) > ROWS:
        parts.append(f"<p>{len(rows) - ROWS:,} more are in jobs.parquet.</p>")
    return "\n".join(parts)


def data(key: str, content: str) -> str:
    """JSON in a page: no name that stands in it can end the element."""
    safe = (
        content.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    )
    return f'<script type="application/json" id="{key}">{safe}</script>'


def section(key: str, title: str, content: str) -> str:
    """A part of a page with its heading; `key` is what links lead to."""
    return f'<section id="{key}"><h2>{markup(title)}</h2>{content}</section>'


def jobs_section(run: RunFiles, generated: float | None, *, sortable: bool) -> str:
    """The table of jobs: of few jobs also in a sentence when they were done."""
    notes = [
        "Times are UTC. Waiting ends with a job's first units; the mean of its units counts all its time in the "
        "system, with none while it waits."
    ]
    few = len(run.jobs) <= FEW_JOBS
    if generated is not None:
        notes.append(
            f"A generated workload (load {generated:.2f}): its times say nothing about your jobs."
        )
    if few:
        notes.insert(0, when_done(run.jobs, run.steps["time"].max()))
    note = f'<p class="note">{markup(" ".join(notes))}</p>'
    title = "When the jobs were done" if few else "Jobs"
    return section("all", title, note + jobs_table(run.jobs, sortable=sortable))


def search_section(found: dict[str, Any] | None) -> list[str]:
    """The best that a search had found, over time."""
    if found is None or not found["best_over_time"]:
        return []
    rows = [
        (
            f"{best['time'][:19].replace('T', ' ')}",
            f"{best['score']:.4f} by {best['job']}",
        )
        for best in found["best_over_time"][-ROWS:]
    ]
    return [section("search", "Best found over time", facts(rows))]


def host_section(found: dict[str, Any]) -> list[str]:
    """Return the section on what harvesting costs the machine's own jobs."""
    lines = list(host_lines(found))
    return [section("host", "Your own jobs", facts(lines))] if lines else []


def kinds_section(found: dict[str, Any]) -> list[str]:
    """Units offered and used, by kind."""
    if not found:
        return []
    return [section("kinds", "Units by kind", kinds_table(found))]


def parameters(runs: Sequence[RunFiles]) -> list[str]:
    """Options that differ from the defaults, and inputs and versions, of each run."""
    defaults = plain(Options().flat())
    parts: list[str] = []
    for name, run in zip(names_of(runs), runs, strict=True):
        with run.summary_used():
            summary = run.summary
            given = [
                (option, _without_path(value))
                for option, value in sorted(summary["options"].items())
                if value != defaults.get(option)
            ]
            inputs = summary["inputs"]
            rows = [
                (kind, _without_path(str(inputs[kind]["source"])))
                for kind in ("trace", "jobs")
            ]
            rows += [
                (f"SHA-256 of {file}", digest)
                for file, digest in sorted(inputs["digests_sha256"].items())
            ]
            rows += [
                (f"version of {package}", version)
                for package, version in sorted(summary["versions"].items())
            ]
        of = f" of {name}" if len(runs) > 1 else ""
        number = len(parts) // 2
        options = facts(given) if given else "<p>None.</p>"
        parts.append(
            section(
                f"options-{number}",
                f"Options{of} that differ from the defaults",
                options,
            )
        )
        parts.append(section(f"input-{number}", f"Input and versions{of}", facts(rows)))
    return parts


def _without_path(value: Any) -> str:
    """An option's value without folders of the sender's machine."""
    text = value if isinstance(value, str) else json.dumps(value)
    return Path(text).name if isinstance(value, str) and "/" in text else text
