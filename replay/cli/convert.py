"""`bft-replay convert`: pickles, matrices and CSV into the native form."""

from __future__ import annotations

from pathlib import Path

import click

from bft.models import InputError
from bft.models.checks import FLAG
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.commands import Command, say_note
from bft.replay.cli.parameters import (
    force_option,
    output_option,
    pickle_option,
    setting,
)

JOB_MARKS = {"Jmin", "Jmax", "Pmax"}
CURVE_MARKS = {"Ns", "Ps"}


@click.command(cls=Command)
@click.argument("sources", metavar="FILE [FILE]", nargs=-1, required=True)
@output_option("Target: .parquet or .csv (jobs: .jsonl too).")
@setting("--sort", "Accept a trace whose rows are not in order of time.", FLAG)
@force_option
@pickle_option
def convert(sources: tuple[str, ...], output: str, sort: bool, force: bool) -> None:
    """Rewrite a node trace, a job table, or a published pair of job tables (bounds, scalability) in the native form.

    The target is only replaced after a complete conversion.

    Such as:
    bft-replay convert trace.pkl.gz -o trace.parquet
    bft-replay convert jobs.csv -o jobs.parquet
    """
    from bft.models import (
        JobTable,
        jobs_from_frame,
        read_published_jobs,
        read_table,
        write_jobs,
    )
    from bft.replay import NodeTrace, write_trace
    from bft.replay.trace.trace_files import trace_from_frame

    target = Path(output)
    refuse_existing(target, force=force)
    if len(sources) > 2:
        raise click.UsageError(
            "expected one file, or two: the bounds and the scalability of a published job set"
        )
    made: JobTable | NodeTrace
    if len(sources) == 2:
        made = read_published_jobs(*sources)
    else:
        frame = read_table(sources[0])
        columns = {str(column) for column in frame.columns}
        if columns >= JOB_MARKS and columns >= CURVE_MARKS:
            made = jobs_from_frame(frame, source=sources[0])
        elif columns >= JOB_MARKS or columns >= CURVE_MARKS:
            raise InputError(
                "is one half of a published job set; name both: bounds, then scalability",
                file=sources[0],
            )
        else:
            made = trace_from_frame(frame, source=sources[0], sort=sort)
    if isinstance(made, JobTable):
        with drafted(target) as draft:
            write_jobs(made, draft)
        what = f"{len(made)} jobs"
    else:
        write_trace(made, target, force=force)
        units = f" of {made.units} units" if made.by_unit else ""
        what = f"{len(made.nodes)} nodes{units}, {len(made)} events"
    for note in made.notes:
        say_note(note)
    click.echo(f"{target}: {what}")
