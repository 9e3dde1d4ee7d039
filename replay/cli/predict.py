"""`bft-replay predict train|evaluate|show`: models of durations, submissions, and sharing scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

import bft.models as models
from bft.models.checks import Name, Number
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.groups import Command, Group
from bft.replay.cli.parameters import (
    Checked,
    TableCommand,
    force_option,
    output_option,
    seed_option,
)

if TYPE_CHECKING:
    import pandas as pd

    from bft.models.curves import FloatArray
    from bft.models.learned.saved_models import Model

    # The later part of a log: what came, and what each way of predicting said, of shape (rows of the later part,).
    _Test = tuple[FloatArray, dict[str, FloatArray]]

# Slots that a figure shows of those predicted, the last ones: a week of ten minutes.
SHOWN_SLOTS = 1008
GA2M = "ga2m"
WHAT = ("durations", "submissions", "packing")

_what = click.argument("what", metavar="|".join(WHAT), type=Checked(Name(WHAT)))
_table = click.argument("table", metavar="TABLE")
_column = click.option("--column", default="jobs", show_default=True,
                       help="Submissions: what is counted; of a table of jobs, jobs or units.")  # fmt: skip
_horizon = click.option("--horizon", type=click.IntRange(min=1), default=5, show_default=True,
                        help="Submissions: over how many slots.")  # fmt: skip
_seed = seed_option("What chance begins with.")


@click.group(cls=Group)
def predict() -> None:
    """Learn from a log how long jobs run, how many come, and who may share units (needs the extra `ml`).

    TABLE is a .csv, .parquet or .jsonl file; docs/models.md names its columns.
    """


@predict.command(cls=TableCommand, short_help="Learn a model and save it.")
@_what
@_table
@output_option("Where to write the model: JSON.")
@_column
@_horizon
@_seed
@force_option("Replace the file if it exists.")
def train(
    what: str,
    table: str,
    output: str,
    column: str,
    horizon: int,
    seed: int,
    force: bool,
) -> None:
    """Learn a model of WHAT from TABLE: finished jobs, slots (or jobs), or labelled profiles."""
    refuse_existing(output, force=force)
    frame = _read(what, table)
    model: Model
    if what == "durations":
        model = models.DurationEstimator.train(frame, seed=seed, source=table)
    elif what == "submissions":
        model = models.Forecaster.train(
            frame, column=column, horizon=horizon, seed=seed, source=table
        )
    else:
        model = models.PackingAnalyser.train(frame, seed=seed, source=table)
    with drafted(output) as draft:
        models.write_model(model, draft)
    click.echo(f"{output}: learnt from {len(frame):,} rows")


@predict.command(
    cls=TableCommand,
    short_help="How well a model predicts the later part of a log.",
)
@_what
@_table
@click.option("--share", type=Checked(Number(0.01, 0.9)), default=0.3, show_default=True,
              help="Part of the table, the latest, that is predicted from what was known before.")  # fmt: skip
@_column
@_horizon
@_seed
@click.option(
    "--png", metavar="FILE",
    help="Submissions: draw what came in the last week, and what was predicted (needs the extra `report`).",
)  # fmt: skip
def evaluate(
    what: str,
    table: str,
    share: float,
    column: str,
    horizon: int,
    seed: int,
    png: str | None,
) -> None:
    """Learn from the earlier part of TABLE, predict the later; packing: each model from the other models' profiles.

    Below the model are predictions without one: a model that is not better has learnt nothing.
    """
    from bft.models.learned.ga2m import accuracy

    if png is not None and what != "submissions":
        raise click.UsageError("--png draws submissions")
    frame = _read(what, table)
    if what == "packing":
        _evaluate_packing(frame, table, seed)
        return
    actual, predicted = (
        _durations(frame, table, share, seed)
        if what == "durations"
        else _submissions(frame, table, share, column, horizon, seed)
    )
    click.echo(f"{'':14} {'MAE':>10} {'R2':>7} {'R2 log':>7} {'rank':>6} {'slope':>6}")
    for name, values in predicted.items():
        of = accuracy(values, actual)
        figures = f"{of.mae:10.2f} {of.r2:7.3f} {of.r2_log:7.3f} {of.rank:6.3f} {of.slope:6.2f}"
        click.echo(f"{name:14} {figures}".replace("nan", "  -"))
    if png is not None:
        came = {f"what came (mean of the next {horizon} slots)": actual}
        shown = {**came, GA2M: predicted[GA2M]}
        _draw_forecasts(frame, table, column, horizon, shown, png)


@predict.command(cls=Command, short_help="What a saved model has learnt.")
@click.argument("model", metavar="MODEL")
def show(model: str) -> None:
    """Describe MODEL, a file of `predict train`: the rules of packing, the features of a GA2M."""
    from bft.models.learned.duration import FEATURES

    learnt = models.read_model(model)
    if isinstance(learnt, models.PackingAnalyser):
        click.echo(learnt.rules())
        return
    if isinstance(learnt, models.DurationEstimator):
        features = learnt.features
        described = f"durations, from {len(learnt.past):,} finished jobs"
    else:
        features = FEATURES
        described = f"{learnt.column} per {learnt.slot_s:g} s over the next {learnt.horizon * learnt.slot_s:g} s"
    click.echo(f"{GA2M}: {described}\nfeatures: {', '.join(features)}")


def _read(what: str, table: str) -> pd.DataFrame:
    """The table; of jobs, whose submissions are asked for, the slots."""
    frame = models.read_table(table)
    if (
        what == "submissions"
        and "time" not in frame.columns
        and "submit_time" in frame.columns
    ):
        return models.submissions(frame, source=table)
    return frame


def _durations(frame: pd.DataFrame, table: str, share: float, seed: int) -> _Test:
    """Return the test of predicted durations on the last submitted jobs."""
    from bft.models.learned.duration import baselines, split_in_time

    before, after, past = split_in_time(frame, share, source=table)
    click.echo(
        f"{len(before):,} jobs had finished before the last {share:.0%} were submitted, of which {len(after):,}"
    )
    model = models.DurationEstimator.train(before, seed=seed, source=table)
    learnt = {GA2M: model.predict(after, past=past, source=table)}
    trivial = baselines(before, after, past, source=table)
    return after["duration"].to_numpy(dtype=float), learnt | trivial


def _submissions(
    frame: pd.DataFrame, table: str, share: float, column: str, horizon: int, seed: int
) -> _Test:
    """Return the test of predicted submissions in the slots after each slot."""
    import numpy as np

    from bft.models.cells import Rows
    from bft.models.learned.duration import ahead

    known = int(len(frame) * (1 - share))
    click.echo(f"{known:,} slots, and {len(frame) - known:,} after them")
    counts = Rows(frame, table).require(("time", column)).all_numbers(column, min=0)
    actual = ahead(counts, horizon)[known - 1 :]
    model = models.Forecaster.train(
        frame[:known], column=column, horizon=horizon, seed=seed, source=table
    )
    predicted = {
        GA2M: model.predict(frame, source=table)[known - 1 : -horizon],
        "last slot": counts[known - 1 : -horizon],
        "constant": np.full(len(actual), counts[:known].mean()),
    }
    return actual, predicted


def _draw_forecasts(
    frame: pd.DataFrame,
    table: str,
    column: str,
    horizon: int,
    counts: Mapping[str, FloatArray],
    png: str,
) -> None:
    """Draw what came after each of the last slots but `horizon`, and what had been predicted."""
    from bft.models.cells import Rows
    from bft.replay.report import forecast_chart, write_chart

    begins = Rows(frame, table).all_seconds("time")[:-horizon][-SHOWN_SLOTS:]
    shown = {name: values[-SHOWN_SLOTS:] for name, values in counts.items()}
    slots = min(len(begins), *map(len, shown.values()))
    chart = forecast_chart(
        begins[-slots:] * 1e3,
        {name: values[-slots:] for name, values in shown.items()},
        f"{column} per slot",
    )
    with drafted(png) as draft:
        write_chart(chart, draft)
    click.echo(f"{png}: the last {slots:,} slots")


def _evaluate_packing(frame: pd.DataFrame, table: str, seed: int) -> None:
    from bft.models.learned.packing import leave_one_model_out

    predicted = leave_one_model_out(frame, seed=seed, source=table)
    label = frame["label"].to_numpy()
    majority = frame["label"].value_counts(normalize=True).max()
    click.echo(
        f"{len(frame):,} profiles of {frame['model'].nunique():,} models, each scored by the other models' profiles\n"
        f"right          {(predicted == label).mean():.3f}\nmajority       {majority:.3f}\n"
        f"off by two     {(abs(predicted - label) == 2).mean():.3f}"
    )
