"""`bft-replay report`: a run as a page to show to others."""

from __future__ import annotations

from pathlib import Path

import click

from bft.replay.cli.messages import say_note
from bft.replay.cli.output import drafted, refuse_existing
from bft.replay.cli.parameters import NamesWholeOption


@click.command(cls=NamesWholeOption)
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Where to write it. [RUN.html]")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def report(run: str, output: str | None, force: bool) -> None:
    """Write the run directory RUN as one HTML page: headline numbers, idle and used units over time, jobs, options.

    The page has no scripts and loads nothing, so it can be sent around.
    """
    from bft.replay.claim import mended
    from bft.replay.report import write_report

    folder = Path(run)
    for note in mended(folder):
        say_note(note)
    target = Path(output) if output is not None else folder.resolve().with_name(f"{folder.resolve().name}.html")
    refuse_existing(target, force=force)
    with drafted(target) as draft:
        write_report(folder, draft)
    click.echo(str(target))
