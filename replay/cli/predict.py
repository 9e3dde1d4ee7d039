"""`bft-replay predict`: models of durations, submissions, and sharing scores, learnt or tried on a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import bft.models as models
from bft.models.checks import Name
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.commands import Command
from bft.replay.cli.parameters import Checked, force_option, pickle_option, setting

if TYPE_CHECKING:
    import pandas as pd

    from bft.models.curves import FloatArray

    # The later part of a log: what came, and what each way of predicting said, of shape (rows of the later part,).
    _Test = tuple[FloatArray, dict[str, FloatArray]]

# The latest part of a log, which is predicted from what was known before.
SHARE = 0.3
GA2M = "ga2m"
WHAT = ("durations", "submissions", "packing")


@click.command(cls=Command)
@click.argument("what", metavar="|".join(WHAT), type=Checked(Name(WHAT)))
@click.argument("table", metavar="TABLE")
@setting(
    "-o --output",
    "Learn from all of TABLE, write the model (JSON), and describe it.",
    metavar="FILE",
)
@force_option
@pickle_option
def predict(what: str, table: str, output: str | None, force: bool) -> None:
    """Tell how well a log predicts durations, submissions, or who may share units (packing); with -o, save the model.

    TABLE is a .csv, .parquet or .jsonl file; docs/models.md names its columns. The model learns from the earlier part
    and predicts the later; packing: each model from the other models' profiles. Below it are predictions without one: a
    model that is not better has learnt nothing. Learning needs the extra `ml`.

    Such as:
    bft-replay predict durations jobs.csv
    bft-replay predict packing profiles.csv -o packing.json
    """
    if output is not None:
        refuse_existing(output, force=force)
    frame = models.read_table(table)
    slots = "time" in frame.columns or "submit_time" not in frame.columns
    if what == "submissions" and not slots:
        frame = models.submissions(frame, source=table)
    if output is not None:
        _learn(what, frame, table, output)
    elif what == "packing":
        _evaluate_packing(frame, table)
    else:
        test = _durations if what == "durations" else _submissions
        _show_accuracy(*test(frame, table))


def _learn(what: str, frame: pd.DataFrame, table: str, output: str) -> None:
    """Write a model of all of a table, and describe it: the rules of packing, the features of a GA2M."""
    from bft.models.learned.duration import FEATURES

    model: models.DurationEstimator | models.Forecaster | models.PackingAnalyser
    if what == "durations":
        model = models.DurationEstimator.train(frame, source=table)
        learnt = f"durations, from {len(model.past):,} finished jobs"
        about = f"{GA2M}: {learnt}\nfeatures: {', '.join(model.features)}"
    elif what == "packing":
        model = models.PackingAnalyser.train(frame, source=table)
        about = model.rules()
    else:
        model = models.Forecaster.train(frame, source=table)
        ahead_s = model.horizon * model.slot_s
        learnt = f"{model.column} per {model.slot_s:g} s over the next {ahead_s:g} s"
        about = f"{GA2M}: {learnt}\nfeatures: {', '.join(FEATURES)}"
    with drafted(output) as draft:
        models.write_model(model, draft)
    click.echo(f"{output}: learnt from {len(frame):,} rows\n{about}")


def _durations(frame: pd.DataFrame, table: str) -> _Test:
    """Return the test of predicted durations on the last submitted jobs."""
    from bft.models.learned.duration import baselines, split_in_time

    before, after, past = split_in_time(frame, SHARE, source=table)
    known = f"{len(before):,} jobs had finished before the last {SHARE:.0%}"
    click.echo(f"{known} were submitted, of which {len(after):,}")
    model = models.DurationEstimator.train(before, source=table)
    learnt = {GA2M: model.predict(after, past=past, source=table)}
    trivial = baselines(before, after, past, source=table)
    return after["duration"].to_numpy(dtype=float), learnt | trivial


def _submissions(frame: pd.DataFrame, table: str) -> _Test:
    """Return the test of predicted submissions in the slots after each slot."""
    import numpy as np

    from bft.models.cells import Rows
    from bft.models.learned.duration import ahead

    known = int(len(frame) * (1 - SHARE))
    click.echo(f"{known:,} slots, and {len(frame) - known:,} after them")
    model = models.Forecaster.train(frame[:known], source=table)
    column, horizon = model.column, model.horizon
    counts = Rows(frame, table).require(("time", column)).all_numbers(column, min=0)
    actual = ahead(counts, horizon)[known - 1 :]
    predicted = {
        GA2M: model.predict(frame, source=table)[known - 1 : -horizon],
        "last slot": counts[known - 1 : -horizon],
        "constant": np.full(len(actual), counts[:known].mean()),
    }
    return actual, predicted


def _show_accuracy(actual: FloatArray, predicted: dict[str, FloatArray]) -> None:
    from bft.models.learned.ga2m import accuracy

    click.echo(f"{'':14} {'MAE':>10} {'R2':>7} {'R2 log':>7} {'rank':>6} {'slope':>6}")
    for name, values in predicted.items():
        of = accuracy(values, actual)
        figures = f"{of.mae:10.2f} {of.r2:7.3f} {of.r2_log:7.3f} {of.rank:6.3f} {of.slope:6.2f}"
        click.echo(f"{name:14} {figures}".replace("nan", "  -"))


def _evaluate_packing(frame: pd.DataFrame, table: str) -> None:
    from bft.models.learned.packing import leave_one_model_out

    predicted = leave_one_model_out(frame, source=table)
    label = frame["label"].to_numpy()
    majority = frame["label"].value_counts(normalize=True).max()
    click.echo(
        f"{len(frame):,} profiles of {frame['model'].nunique():,} models, each scored by the other models' profiles\n"
        f"right          {(predicted == label).mean():.3f}\nmajority       {majority:.3f}\n"
        f"off by two     {(abs(predicted - label) == 2).mean():.3f}"
    )
