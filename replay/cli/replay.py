"""`bft-replay [replay]`: the run, and the summary that it prints."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import click

from bft.replay.cli.main import (
    DOUBLE_S,
    EXIT_DEGRADED,
    EXIT_INTERRUPTED,
    command_line,
    on_interrupts,
)
from bft.replay.cli.messages import quiet, say_error
from bft.replay.cli.parameters import (
    TableCommand,
    stated_options,
    table_options,
)
from bft.replay.options.options import FIELDS, Options

if TYPE_CHECKING:
    import pandas as pd

    from bft.replay.cli.watcher import Bar, PlainLines


replay_options = table_options(FIELDS)
MORE = "All that --option sets: `bft-replay list options`, or docs/cli.md."


@click.command(cls=TableCommand, epilog=MORE)
@replay_options
def replay(**given: Any) -> int:
    """Replay jobs on a node trace and write a run directory.

    Without -ndmap the bundled data set is replayed; without jobs a generated workload. Each option can also be
    given as an environment variable, as BFT_REPLAY_REPLAY_MAX_JOBS for --max-jobs, or in a --config file.
    """
    from bft.replay.results.run_directory import LOG

    folder = _folder(given["name"], given["out"])
    options = _options(given)
    if given["bound"]:
        _report_bounds(options, as_json=given["as_json"])
        return 0
    log = None if given["print_"] else io.StringIO()
    summary = _executed(options, folder, given, log)
    if log is not None:
        show(summary, folder, log)
        (folder / LOG).write_text(log.getvalue(), encoding="utf-8")
    if given["as_json"]:
        click.echo(json.dumps(summary, indent=2, sort_keys=True))
    elif log is None:
        show(summary, folder)
    return _exit_code(summary, folder, saved=given["checkpoint_every_s"] is not None)


def _report_bounds(options: Options, *, as_json: bool) -> None:
    """Print what no policy can exceed on the inputs of a replay."""
    from bft.replay.run import bounds_by

    with watching(None) as watcher:
        bounds, inputs = bounds_by(options, watcher)
    if as_json:
        figures = {**asdict(bounds), "jobs": len(inputs.jobs)}
        click.echo(json.dumps(figures, indent=2, sort_keys=True))
        return
    if bounds.bound is None:
        click.echo(bounds.why_none)
        return
    click.echo(f"{'bound':<26}at most {bounds.bound:,.0f} samples")
    if bounds.jct_mean_s is not None:
        least = f"at least {bounds.jct_mean_s / 3600:,.2f} h"
        click.echo(
            f"{'mean job completion time':<26}{least}, jobs not done counted to the end"
        )
    if bounds.makespan_s is None:
        makespan = "not all jobs can be done"
    else:
        makespan = f"at least {bounds.makespan_s / 3600:,.2f} h"
    click.echo(f"{'makespan':<26}{makespan}")


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


def _executed(
    options: Options, folder: Path, given: dict[str, Any], log: io.StringIO | None
) -> dict[str, Any]:
    """The summary of the run, whose progress has been shown."""
    from bft.replay.run import execute

    with (
        watching(log) as watcher,
        stop_on_interrupt() as should_stop,
    ):
        summary = execute(
            options,
            folder,
            force=given["force"],
            watcher=watcher,
            should_stop=should_stop,
            checkpoint_every_s=given["checkpoint_every_s"],
        )
        if not summary["metrics"]["interrupted"]:
            watcher.done()
    return summary


def _exit_code(summary: dict[str, Any], folder: Path, *, saved: bool) -> int:
    from bft.replay.checkpoint import checkpoint_path

    if summary["metrics"]["interrupted"]:
        say_error("Interrupted: what had been replayed is kept and marked.")
        if saved and checkpoint_path(folder).exists():
            click.echo(f"To go on from there: {command_line()}", err=True)
        return EXIT_INTERRUPTED
    if summary["degraded"]:
        say_error(
            "Degraded: some decisions fell back or failed verification; see the column status in steps.parquet."
        )
        return EXIT_DEGRADED
    return 0


def watching(log: io.StringIO | None) -> Bar | PlainLines:
    """Return what shows the progress of a run: a bar on a terminal, else lines, in a log where there is one."""
    from bft.replay.cli.watcher import Bar, PlainLines

    if log is None and quiet():
        log = io.StringIO()  # which nobody reads
    return Bar() if log is None and sys.stderr.isatty() else PlainLines(log)


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether to stop: Ctrl-C, SIGTERM or SIGHUP came since it was first asked.

    Before that nothing has been replayed that could be kept, and an interrupt ends the program as any; so does a second
    one. What follows within DOUBLE_S counts as the same.
    """
    pressed: float | None = None
    asked = False
    before: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        now = time.monotonic()
        if pressed is None:
            pressed = now
        elif now - pressed > DOUBLE_S:
            raise KeyboardInterrupt

    def should_stop() -> bool:
        nonlocal asked
        if not asked:
            asked = True
            before.update(on_interrupts(handle))
        return pressed is not None

    try:
        yield should_stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show(summary: dict[str, Any], folder: Path, stream: TextIO | None = None) -> None:
    """Print the headline metrics and where the rest is."""
    from bft.replay.results.headlines import headlines

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
    from bft.replay.results.headlines import FEW_JOBS

    count = (
        summary["metrics"]["census"]["jobs"] if "census" in summary["metrics"] else 0
    )
    if not 0 < count <= FEW_JOBS:
        return
    from bft.replay.cli.frames import show_table
    from bft.replay.studies.run_files import RunFiles

    run = RunFiles(folder, summary)
    titles = ["job", "submitted (UTC)", "finished (UTC)", "waited", "units", "lost"]
    click.echo()
    rows = [_job_cells(str(name), job) for name, job in run.jobs.iterrows()]
    show_table(titles, rows)
    click.echo("waited: time without units; units: mean over its time in the system")
    click.echo("lost: share of its samples, to rescales, preemptions and so on\n")


def _job_cells(name: str, job: pd.Series[Any]) -> list[str]:
    """The cells of a job: name, submitted, finished or how far it came, waited, units, lost."""
    from bft.models.writing import duration
    from bft.replay.studies.run_files import lost

    begun = job["start"] == job["start"]
    if job["finish"] == job["finish"]:
        finished = _minute(job["finish"])
    elif begun:
        finished = f"{job['work'] / job['total_work']:.0%} done"
    else:
        finished = "not begun"
    waited = job["without_units_s"]
    samples = lost(job.to_frame().T).iloc[0]
    trained = job["work"] + samples
    return [
        name,
        _minute(job["submit"]),
        finished,
        duration(waited) if waited == waited else "-",
        f"{job['mean_units']:.1f}" if begun else "-",
        f"{samples / trained:.1%}" if trained else "-",
    ]


def _minute(instant: pd.Timestamp) -> str:
    return f"{instant:%Y-%m-%d %H:%M}"
