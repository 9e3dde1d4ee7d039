"""From a run directory to an HTML page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.replay.engine.ledger import BOOKS
from bft.replay.options.options import Options
from bft.replay.report.charts import areas_over_time, bars
from bft.replay.report.over_time import FloatArray, TimeArray, mean_over_time
from bft.replay.report.run_files import RunFiles, read_run
from bft.replay.report.text import markup
from bft.replay.results.headlines import headlines
from bft.replay.results.run_directory import JOBS

if TYPE_CHECKING:
    import pandas as pd

SPANS = 600
# More rows than this make a page that nobody reads; jobs.parquet has them all.
MOST_JOBS = 200
# Read on paper as on a screen.
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2733; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.sub { color: #5b6776; margin-top: .2rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; }
table.jobs td, table.jobs th { text-align: right; font-size: 13px; border-bottom: 1px solid #e3e7ec; }
table.jobs td:first-child, table.jobs th:first-child { text-align: left; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #5b6776; }
.grid { stroke: #e3e7ec; } .layer0 { fill: #c9d4e0; } .layer1 { fill: #2f6f9f; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
"""


def write_report(folder: Path, target: Path) -> None:
    """Write the page of a run.

    Parameters
    ----------
    folder
        A run directory, of any policy but not of `--compat reference`, which leaves no steps.
    target
        The HTML file; the same run gives the same bytes.

    Raises
    ------
    InputError
        When `folder` is no run of ours, one without steps, or damaged: naming the file.
    """
    target.write_text(_page(read_run(folder)), "utf-8")


def _page(run: RunFiles) -> str:
    steps = run.steps
    times = _instants(steps)
    window = f"{steps['time'].iloc[0]:%Y-%m-%d %H:%M} to {steps['time'].iloc[-1]:%Y-%m-%d %H:%M} UTC"
    with run.summary_used():
        head, shares, options = _head(run.summary, window), _left_after_startup(run.summary), _options(run.summary)
        generated = run.summary["inputs"]["jobs"].get("generated_load")
    over_time = _idle_over_time(steps, int(times[0]), int(times[-1])) if times[-1] > times[0] else []
    return "\n".join([*head, *over_time, *shares, *_jobs(run.jobs, generated), *options, "</body></html>", ""])


def _head(summary: dict[str, Any], window: str) -> list[str]:
    options, metrics, trace = summary["options"], summary["metrics"], summary["inputs"]["trace"]
    machine = markup(trace.get("machine") or trace.get("source") or "a machine")
    sub = f"policy {options['policy']}; {window}; bft-replay {summary['versions']['bft-replay']}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>Idle nodes of {machine}</title><style>{STYLE}</style></head><body>",
        f'<h1>What training jobs get out of the idle nodes of {machine}</h1><p class="sub">{markup(sub)}</p>',
    ]
    if metrics["interrupted"]:
        parts.append("<p><strong>The replay was interrupted: this is a part of it.</strong></p>")
    if metrics.get("policy_error"):
        parts.append(f"<p><strong>{markup(metrics['policy_error'])}</strong></p>")
    if summary["degraded"]:
        parts.append("<p><strong>Some decisions fell back or failed verification.</strong></p>")
    parts.append(_table(list(headlines(metrics, summary["inputs"]["jobs"].get("generated_load")))))
    if summary.get("notes"):
        parts.append(f"<h2>Notes</h2><ul>{''.join(f'<li>{markup(note)}</li>' for note in summary['notes'])}</ul>")
    return parts


def _left_after_startup(summary: dict[str, Any]) -> list[str]:
    left = {name: share for name, share in summary["metrics"]["share_outliving_startup"].items() if share is not None}
    if not left:
        return []
    shares = sorted(left.items(), key=lambda item: float(item[0].split()[0]))
    return ["<h2>Idle node-time that is left after a start-up</h2>", bars(dict(shares), "share of idle node-time")]


def _options(summary: dict[str, Any]) -> list[str]:
    defaults = Options().flat()
    given = [
        (name, json.dumps(value))
        for name, value in sorted(summary["options"].items())
        if value != _plain(defaults.get(name))
    ]
    inputs = summary["inputs"]
    rows = [("trace", str(inputs["trace"]["source"])), ("jobs", str(inputs["jobs"]["source"]))]
    rows += [(f"SHA-256 of {name}", digest) for name, digest in sorted(inputs["digests_sha256"].items())]
    return [
        "<h2>Options that differ from the defaults</h2>",
        _table(given) if given else "<p>None.</p>",
        "<h2>Input</h2>",
        _table(rows),
    ]


def _idle_over_time(steps: pd.DataFrame, begin: int, end: int) -> list[str]:
    pools = [pool for _, pool in steps.groupby("vc", sort=True)] if "vc" in steps else [steps]
    layers: dict[str, FloatArray] = {}
    for name, column in (("idle", "idle"), ("given to jobs", "used")):
        total = np.zeros(SPANS)
        for pool in pools:  # a step is about its own pool only
            total += mean_over_time(_instants(pool), pool[column].to_numpy(dtype=np.float64), begin, end, SPANS)
        layers[name] = total
    keys = "".join(
        f'<span class="key" style="background:{colour}"></span>{name}'
        for name, colour in zip(layers, ("#c9d4e0", "#2f6f9f"), strict=True)
    )
    return ["<h2>Idle units over time</h2>", areas_over_time(layers, begin, end, "units"), f"<p>{keys}</p>"]


def _instants(steps: pd.DataFrame) -> TimeArray:
    instants: TimeArray = np.asarray(steps["time"].astype("datetime64[ns, UTC]").astype("int64"), dtype=np.int64)
    return instants


def _jobs(jobs: pd.DataFrame, generated_load: float | None) -> list[str]:
    shown = jobs.head(MOST_JOBS)
    columns = ("job", "submitted", "waited, h", "took, h", "done", "lost", "preempted", "rescaled", "mean units")
    rows = []
    for job in shown.to_dict(orient="records"):
        done = job["work"] / job["total_work"] if job["total_work"] else 0.0
        lost = sum(job[f"lost_to_{book}"] for book in BOOKS) / job["total_work"] if job["total_work"] else 0.0
        rows.append(
            (
                str(job["name"]),
                f"{job['submit']:%d %b %H:%M}",
                _hours(job["queueing_s"]),
                _hours(job["jct_s"]),
                f"{done:.0%}",
                f"{lost:.1%}",
                str(job["preemptions"]),
                str(job["rescales"]),
                f"{job['mean_units']:.1f}",
            )
        )
    left = len(jobs) - len(shown)
    more = [f"<p>{left:,} more are in {JOBS}.</p>"] if left else []
    origin = []
    if generated_load is not None:
        origin = [
            f"<p>A generated workload (load {generated_load:.2f}): how long its jobs wait and take says nothing of "
            "yours.</p>"
        ]
    return ["<h2>Jobs</h2>", *origin, _table(rows, header=columns, kind="jobs"), *more]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f}" if seconds == seconds else "-"


def _plain(value: Any) -> Any:
    """A default as JSON gives it back."""
    return json.loads(json.dumps(value))


def _table(rows: Sequence[Sequence[str]], *, header: Sequence[str] = (), kind: str = "") -> str:
    head = f"<tr>{''.join(f'<th>{markup(cell)}</th>' for cell in header)}</tr>\n" if header else ""
    body = "\n".join(f"<tr>{''.join(f'<td>{markup(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="{kind or "facts"}">\n{head}{body}\n</table>'
