"""`bft-replay report`: runs as a page to show to others, or as figures for a paper."""

from __future__ import annotations

from pathlib import Path

import click

from bft.models.checks import FLAG, TEXT, Several
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.commands import Command
from bft.replay.cli.frames import figure_options, write_into
from bft.replay.cli.parameters import force_option, setting


@click.command(cls=Command)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@setting("-o --output", "Where to write it. [RUN.html]", metavar="FILE")
@setting(
    "--title",
    "Of whose nodes the page is. [the machine's name in the trace]",
    metavar="TEXT",
)
@setting(
    "--different-inputs",
    "Compare runs of different traces or jobs too; the page says so.",
    FLAG,
)
@setting(
    "--name names",
    "What the next of several RUNs is called; repeated for each. [what differs]",
    Several(TEXT),
    metavar="TEXT",
)
@figure_options("Write the charts as PNG files into DIR, instead of a page.")
@force_option
def report(
    runs: tuple[str, ...],
    output: str | None,
    title: str | None,
    different_inputs: bool,
    names: tuple[str, ...],
    force: bool,
    **figures: str | None,
) -> None:
    """Write run directories as one HTML page: what they come to, charts to zoom, jobs, options.

    Several runs, which had the same trace and jobs, are compared. RUN may be the results.parquet of a sweep, alone:
    each figure is then shown over the options that it varied.

    The page loads nothing, so it can be sent around. It needs the extra `report`: pip install bokeh matplotlib.

    Such as:
    bft-replay report debug-itrOut
    bft-replay report debug-itrOut -o report.html --force
    """
    from bft.replay.report import charts_of, check_page, write_charts, write_report

    folders = [Path(run) for run in runs]

    def draw(folder: Path, form: str) -> None:
        charts = charts_of(folders, different=different_inputs, names=names)
        write_charts(charts, folder, form)

    drawn = write_into(figures, draw, force=force)
    for filled in drawn:
        click.echo(filled)
    if drawn and output is None:
        return
    first = folders[0].resolve()
    beside = first.with_name(f"{first.name.removesuffix('.parquet')}.html")
    page = beside if output is None else Path(output)
    check_page(page)
    refuse_existing(page, force=force)
    with drafted(page) as draft:
        write_report(
            folders,
            draft,
            title=title,
            different=different_inputs,
            names=names,
        )
    click.echo(str(page))
