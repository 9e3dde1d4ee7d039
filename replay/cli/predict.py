"""`bft-replay predict`: models of durations, submissions, and sharing scores, learnt from a log."""

from __future__ import annotations

import click

import bft.models as models
from bft.models.checks import Name
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.commands import Command
from bft.replay.cli.parameters import (
    Checked,
    force_option,
    output_option,
    pickle_option,
)

WHAT = ("durations", "submissions", "packing")


@click.command(cls=Command)
@click.argument("what", metavar="|".join(WHAT), type=Checked(Name(WHAT)))
@click.argument("table", metavar="TABLE")
@output_option("Where to write the model (JSON).")
@force_option
@pickle_option
def predict(what: str, table: str, output: str, force: bool) -> None:
    """Learn from a log to predict durations, submissions, or who may share units (packing), and describe the model.

    TABLE is a .csv, .parquet or .jsonl file; docs/models.md names its columns. Learning needs the extra `ml`.

    Such as:
    bft-replay predict durations jobs.csv -o durations.json
    bft-replay predict packing profiles.csv -o packing.json
    """
    from bft.models.learned.duration import FEATURES

    refuse_existing(output, force=force)
    frame = models.read_table(table)
    slots = "time" in frame.columns or "submit_time" not in frame.columns
    if what == "submissions" and not slots:
        frame = models.submissions(frame, source=table)
    model: models.DurationEstimator | models.Forecaster | models.PackingAnalyser
    if what == "durations":
        model = models.DurationEstimator.train(frame, source=table)
        learnt = f"durations, from {len(model.past):,} finished jobs"
        about = f"ga2m: {learnt}\nfeatures: {', '.join(model.features)}"
    elif what == "packing":
        model = models.PackingAnalyser.train(frame, source=table)
        about = model.rules()
    else:
        model = models.Forecaster.train(frame, source=table)
        ahead_s = model.horizon * model.slot_s
        learnt = f"{model.column} per {model.slot_s:g} s over the next {ahead_s:g} s"
        about = f"ga2m: {learnt}\nfeatures: {', '.join(FEATURES)}"
    with drafted(output) as draft:
        models.write_model(model, draft)
    click.echo(f"{output}: learnt from {len(frame):,} rows\n{about}")
