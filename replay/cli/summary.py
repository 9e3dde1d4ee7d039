"""The summary of a run for people: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from bft.replay.results.headlines import duration_text, headlines

if TYPE_CHECKING:
    import pandas as pd


def show(summary: dict[str, Any], folder: Path, stream: TextIO | None = None) -> None:
    """Print the headline metrics and where the rest is."""
    lines = list(
        headlines(summary["metrics"], summary["inputs"]["jobs"]["generated_load"])
    )
    if stream is None and sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(show_header=False, box=None, pad_edge=False)
        for label, value in lines:
            table.add_row(label, value)
        Console().print(table, highlight=False)
    else:
        width = max(len(label) for label, _ in lines)
        for label, value in lines:
            print(f"{label:<{width}}  {value}", file=stream)
    if stream is None:
        _show_jobs(summary, folder)
    print(f"Results: {folder}", file=stream)


def _show_jobs(summary: dict[str, Any], folder: Path) -> None:
    """List the jobs of a run where they are few, each with when it was done."""
    from bft.replay.studies.run_tables import FEW_JOBS, jobs_of

    count = (
        summary["metrics"]["census"]["jobs"] if "census" in summary["metrics"] else 0
    )
    if not 0 < count <= FEW_JOBS:
        return
    import pandas as pd

    from bft.replay.cli.frames import show_table

    jobs = jobs_of(folder, pd.Timestamp(summary["metrics"]["window_end"]).value)
    titles = ["job", "submitted (UTC)", "finished (UTC)", "waited", "units", "lost"]
    click.echo()
    show_table(titles, [_job_cells(str(name), job) for name, job in jobs.iterrows()])
    click.echo("waited: without units; units: mean while it ran")
    click.echo("lost: share of its samples, to rescales, preemptions and so on\n")


def _job_cells(name: str, job: pd.Series[Any]) -> list[str]:
    """The cells of a job: name, submitted, finished or how far it came, waited, units, lost."""
    from bft.replay.studies.run_tables import losses

    begun = job["start"] == job["start"]
    if job["finish"] == job["finish"]:
        finished = _minute(job["finish"])
    elif begun:
        finished = f"{job['work'] / job['total_work']:.0%} done"
    else:
        finished = "not begun"
    waited = job["waiting_s"]
    lost = losses(job.to_frame().T).iloc[0]
    trained = job["work"] + lost
    return [
        name,
        _minute(job["submit"]),
        finished,
        duration_text(waited) if waited == waited else "-",
        f"{job['unit_seconds'] / job['run_s']:.1f}" if begun and job["run_s"] else "-",
        f"{lost / trained:.1%}" if trained else "-",
    ]


def _minute(instant: pd.Timestamp) -> str:
    return f"{instant:%Y-%m-%d %H:%M}"
