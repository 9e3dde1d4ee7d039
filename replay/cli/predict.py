"""`bft-replay predict`: models of durations, submissions, and sharing scores, learnt or tried on a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import bft.models as models
from bft.models.checks import Name, Number
from bft.models.files import drafted, refuse_existing
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


@click.command(cls=TableCommand)
@click.argument("what", metavar="|".join(WHAT), type=Checked(Name(WHAT)))
@click.argument("table", metavar="TABLE")
@output_option(
    "Learn from all of TABLE, write the model (JSON), and describe it.", required=False
)
@click.option(
    "--share",
    type=Checked(Number(0.01, 0.9)),
    default=0.3,
    show_default=True,
    help="Part of the table, the latest, that is predicted from what was known before.",
)
@click.option(
    "--column",
    default="jobs",
    show_default=True,
    help="Submissions: what is counted; of a table of jobs, jobs or units.",
)
@click.option(
    "--horizon",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Submissions: over how many slots.",
)
@seed_option("What chance begins with.")
@click.option(
    "--png",
    metavar="FILE",
    help="Submissions: draw what came in the last week, and what was predicted "
    "(needs the extra `report`).",
)
@force_option("Replace the model if it exists.")
def predict(
    what: str,
    table: str,
    output: str | None,
    share: float,
    column: str,
    horizon: int,
    seed: int,
    png: str | None,
    force: bool,
) -> None:
    """Tell how well a log predicts durations, submissions, or who may share units (packing); with -o, save the model.

    TABLE is a .csv, .parquet or .jsonl file; docs/models.md names its columns. The model learns from the earlier part
    and predicts the later; packing: each model from the other models' profiles. Below it are predictions without one: a
    model that is not better has learnt nothing. Learning needs the extra `ml`.
    """
    if png is not None and (what != "submissions" or output is not None):
        raise click.UsageError(
            "--png draws submissions that were predicted, without -o"
        )
    if output is not None:
        refuse_existing(output, force=force)
    frame = models.read_table(table)
    slots = "time" in frame.columns or "submit_time" not in frame.columns
    if what == "submissions" and not slots:
        frame = models.submissions(frame, source=table)
    if output is not None:
        model = _learn(what, frame, table, column, horizon, seed)
        with drafted(output) as draft:
            models.write_model(model, draft)
        click.echo(f"{output}: learnt from {len(frame):,} rows")
        click.echo(_described(model))
    elif what == "packing":
        _evaluate_packing(frame, table, seed)
    else:
        actual, predicted = (
            _durations(frame, table, share, seed)
            if what == "durations"
            else _submissions(frame, table, share, column, horizon, seed)
        )
        _show_accuracy(actual, predicted)
        if png is not None:
            came = {f"what came (mean of the next {horizon} slots)": actual}
            shown = {**came, GA2M: predicted[GA2M]}
            _draw_forecasts(frame, table, column, horizon, shown, png)


def _learn(
    what: str, frame: pd.DataFrame, table: str, column: str, horizon: int, seed: int
) -> Model:
    if what == "durations":
        return models.DurationEstimator.train(frame, seed=seed, source=table)
    if what == "packing":
        return models.PackingAnalyser.train(frame, seed=seed, source=table)
    return models.Forecaster.train(
        frame, column=column, horizon=horizon, seed=seed, source=table
    )


def _described(model: Model) -> str:
    """What a model has learnt: the rules of packing, the features of a GA2M."""
    from bft.models.learned.duration import FEATURES

    if isinstance(model, models.PackingAnalyser):
        return model.rules()
    if isinstance(model, models.DurationEstimator):
        features = model.features
        learnt = f"durations, from {len(model.past):,} finished jobs"
    else:
        features = FEATURES
        learnt = f"{model.column} per {model.slot_s:g} s over the next {model.horizon * model.slot_s:g} s"
    return f"{GA2M}: {learnt}\nfeatures: {', '.join(features)}"


def _durations(frame: pd.DataFrame, table: str, share: float, seed: int) -> _Test:
    """Return the test of predicted durations on the last submitted jobs."""
    from bft.models.learned.duration import baselines, split_in_time

    before, after, past = split_in_time(frame, share, source=table)
    known = (
        f"{len(before):,} jobs had finished before the last {share:.0%} were submitted"
    )
    click.echo(f"{known}, of which {len(after):,}")
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


def _show_accuracy(actual: FloatArray, predicted: dict[str, FloatArray]) -> None:
    from bft.models.learned.ga2m import accuracy

    click.echo(f"{'':14} {'MAE':>10} {'R2':>7} {'R2 log':>7} {'rank':>6} {'slope':>6}")
    for name, values in predicted.items():
        of = accuracy(values, actual)
        figures = f"{of.mae:10.2f} {of.r2:7.3f} {of.r2_log:7.3f} {of.rank:6.3f} {of.slope:6.2f}"
        click.echo(f"{name:14} {figures}".replace("nan", "  -"))


def _draw_forecasts(
    frame: pd.DataFrame,
    table: str,
    column: str,
    horizon: int,
    counts: dict[str, FloatArray],
    png: str,
) -> None:
    """Draw what came after each of the last slots but `horizon`, and what had been predicted."""
    from bft.models.cells import Rows
    from bft.replay.report import forecast_chart, write_chart

    begins = Rows(frame, table).all_seconds("time")[:-horizon]
    slots = min(len(begins), SHOWN_SLOTS, *map(len, counts.values()))
    lately = {name: values[-slots:] for name, values in counts.items()}
    chart = forecast_chart(begins[-slots:] * 1e3, lately, f"{column} per slot")
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
