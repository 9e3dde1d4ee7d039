"""`bft-replay evaluate`: from a scheduler's logs to the page that a director reads."""

from __future__ import annotations

import json
from typing import Any

import click

from bft.models.checks import TEXT, Name, Several
from bft.replay.cli.commands import EXIT_DEGRADED, RARE, Command
from bft.replay.cli.ingest import each_form, ingest_options, log_options
from bft.replay.cli.parameters import json_option, option, setting, together
from bft.replay.cli.watcher import watching
from bft.replay.options.options import PRICES, WORLD


@click.command(cls=Command)
@click.argument("files", metavar="LOG...", nargs=-1, required=True)
@setting(
    "--format form",
    "Format of the logs: see bft-replay list formats.",
    Name(each_form),
    "auto",
    metavar="FORMAT",
)
@log_options
@together(*map(option, (*WORLD.values(), *PRICES.values())))
@setting(
    RARE,
    WORLD["align_jobs"].help,
    Several(TEXT),
    metavar="align-jobs=yes",
    expose_value=False,
)
@setting("--out", "Folder of all that is made. [LOG-evaluation]", metavar="DIR")
@json_option("The figures as JSON.")
def evaluate(
    files: tuple[str, ...], form: str, out: str | None, as_json: bool, **given: Any
) -> int:
    """Say what a machine's idle nodes are worth, what training yields there, and what the machine's own jobs pay.

    Reads LOGs as ingest does, replays with --preset best and 0, 1, 4 and 16 nodes kept free, prices what own jobs wait
    where a node takes 30, 120 or 300 s to come back, and writes a page and a table. Without --jobs the trainings are
    made up. What is done already, from the same files with the same options, is not done again.

    Such as:
    bft-replay evaluate jobs.sacct --nodes nodes.txt --events events.txt --tz Europe/Berlin
    bft-replay evaluate jobs.sacct --nodes nodes.txt --jobs trainings.csv --price-per-node-hour 0.4
    """
    from bft.replay.report.evaluation import STAGES, evaluate, sentences

    stated = {name: given.pop(name) for name in (*WORLD, *PRICES)}
    logs = ingest_options(given)
    with watching(stages=STAGES) as shown:
        if logs.tz is None:
            shown.note("no --tz: times that state no zone are taken as UTC")
        found = evaluate(form, files, logs, stated, out, watcher=shown)
    if as_json:
        click.echo(json.dumps(found.figures, indent=2))
    else:
        for title, text in sentences(found.figures):
            click.echo(f"{title}: {text}")
        click.echo(str(found.page))
    return EXIT_DEGRADED if found.degraded else 0
