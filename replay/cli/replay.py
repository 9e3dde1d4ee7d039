"""`bft-replay [replay]`: the run, and the summary that it prints."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import click

from bft.replay.cli.commands import (
    EXIT_DEGRADED,
    EXIT_INTERRUPTED,
    Command,
    fitted,
    quiet,
    say_error,
)
from bft.replay.cli.main import command_line, stop_on_interrupt
from bft.replay.cli.parameters import stated_options, table_options
from bft.replay.cli.watcher import watching
from bft.replay.options.options import FIELDS, Options

MORE = "All that --option sets: `bft-replay list options`, or docs/cli.md."


@click.command(cls=Command, epilog=MORE)
@table_options(FIELDS)
def replay(**given: Any) -> int:
    """Replay jobs on a node trace and write a run directory.

    Without -ndmap the bundled data set is replayed; without jobs a generated workload. Each option can also be
    given as an environment variable, as BFT_REPLAY_REPLAY_MAX_JOBS for --max-jobs, or in a --config file.

    Such as:
    bft-replay -ndmap trace.parquet --jobs jobs.csv --preset best
    bft-replay --cluster 16x4 --jobs jobs.csv --policy tiresias-l --out tiresias
    """
    from bft.replay.checkpoint import checkpoint_path
    from bft.replay.results.run_directory import LOG
    from bft.replay.run import execute

    folder = _folder(given["name"], given["out"])
    options = _options(given)
    if given["bound"]:
        _report_bounds(options, as_json=given["as_json"])
        return 0
    log = None if given["print_"] else io.StringIO()
    every_s = given["checkpoint_every_s"]
    with watching(log) as watcher, stop_on_interrupt() as should_stop:
        summary = execute(
            options,
            folder,
            force=given["force"],
            watcher=watcher,
            should_stop=should_stop,
            checkpoint_every_s=every_s,
        )
        interrupted = summary["metrics"]["interrupted"]
        if not interrupted:
            watcher.done()
    if log is not None:
        show(summary, folder, log)
        (folder / LOG).write_text(log.getvalue(), encoding="utf-8")
    if given["as_json"]:
        click.echo(json.dumps(summary, indent=2, sort_keys=True))
    elif log is None:
        show(summary, folder)
    if quiet() and not summary["metrics"]["outcome"]:
        say_error(f"Nothing was trained: {'; '.join(summary['notes'])}")
    if interrupted:
        say_error("Interrupted: what had been replayed is kept and marked.")
        if every_s is not None and checkpoint_path(folder).exists():
            click.echo(f"To go on from there: {command_line()}", err=True)
        return EXIT_INTERRUPTED
    if summary["degraded"]:
        why = "some decisions fell back or failed verification"
        say_error(f"Degraded: {why}; see the column status in steps.parquet.")
        return EXIT_DEGRADED
    return 0


def _report_bounds(options: Options, *, as_json: bool) -> None:
    """Print what no policy can exceed on the inputs of a replay."""
    from bft.replay.run import bounds_by

    with watching() as watcher:
        bounds, inputs = bounds_by(options, watcher)
    if as_json:
        figures = {**asdict(bounds), "jobs": len(inputs.jobs)}
        click.echo(json.dumps(figures, indent=2, sort_keys=True))
        return
    if bounds.bound is None:
        click.echo(bounds.why_none)
        return
    click.echo(f"bound                     at most {bounds.bound:,.0f} samples")
    if bounds.jct_mean_s is not None:
        hours = f"at least {bounds.jct_mean_s / 3600:,.2f} h"
        click.echo(
            f"mean job completion time  {hours}, jobs not done counted to the end"
        )
    makespan = "not all jobs can be done"
    if bounds.makespan_s is not None:
        makespan = f"at least {bounds.makespan_s / 3600:,.2f} h"
    click.echo(f"makespan                  {makespan}")


def _folder(name: str, out: str | None) -> Path:
    """Return the path of the run directory for a run's name and the option --out."""
    if not name or "/" in name:
        raise click.BadParameter(
            f"expected a name without slashes, not {name!r}", param_hint="-name"
        )
    folder = Path(out or f"{name}-itrOut")
    # "." and the like: it is made under another name first, then renamed.
    return folder.resolve() if folder.name in ("", "..") else folder


def _options(given: dict[str, Any]) -> Options:
    stated = stated_options(FIELDS, given)
    if not given["mip"]:
        if stated.get("policy", "equal-share") != "equal-share":
            raise click.UsageError(
                f"-mip 0 means --policy equal-share, but --policy is {stated['policy']}"
            )
        stated["policy"] = "equal-share"
    return Options(**stated)


def show(summary: dict[str, Any], folder: Path, stream: TextIO | None = None) -> None:
    """Print the headline metrics and where the rest is."""
    from bft.replay.results.headlines import headlines

    lines = list(headlines(summary))
    width = max(len(label) for label, _ in lines)
    out = stream or sys.stdout
    for label, value in lines:
        click.echo(fitted(f"{label:<{width}}  {value}", out), file=stream)
    if stream is None:
        _show_jobs(summary, folder)
    click.echo(f"Results: {folder}", file=stream)


def _show_jobs(summary: dict[str, Any], folder: Path) -> None:
    """List the jobs of a run where they are few, as its page does."""
    from bft.replay.cli.frames import show_table
    from bft.replay.results.headlines import FEW_JOBS
    from bft.replay.studies.run_files import RunFiles, job_cells

    if 0 < summary["metrics"].get("census", {}).get("jobs", 0) <= FEW_JOBS:
        run = RunFiles(folder, summary)
        cells = job_cells(run)
        rows = zip(*cells.values(), strict=True)
        click.echo()
        show_table(
            list(cells), [[job, *(text for _, text in row)] for job, *row in rows]
        )
        click.echo(
            f"times are {run.zone}; waited: without units; mean units: over its time in the system"
        )
        click.echo("lost: share of its work, to rescales, preemptions and so on\n")
