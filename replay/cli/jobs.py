"""`bft-replay jobs fit`: job tables from what was measured of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from bft.models import InputError
from bft.models.checks import (
    TEXT,
    Form,
    Name,
    Number,
    Several,
    seconds,
    strict_instant,
    utc,
    whole,
)
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.commands import Group, say_note, say_warning
from bft.replay.cli.frames import show_table
from bft.replay.cli.parameters import force_option, pickle_option, setting, wholes

if TYPE_CHECKING:
    import pandas as pd

    from bft.models.speed.scalability import ScalabilityFit, Throughputs

Kind = Literal["piecewise", "amdahl", "usl"]
POSITIVE = Number(0, above=True)


@click.group(cls=Group)
def jobs() -> None:
    """Make job tables from measurements: scalability from throughputs or training logs.

    Such as:
    bft-replay jobs fit throughputs.csv --submit 2024-03-04 -o jobs.parquet
    bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8 --unit-batch 64
    """


def _instant(text: str) -> pd.Timestamp:
    if strict_instant(text) is None:
        what = "expected a date and time such as 2021-02-10T20:21:15"
        raise ValueError(f"{what}, not {text!r}")
    return utc(text)


@jobs.command()
@click.argument("tables", metavar="[MEASUREMENTS]...", nargs=-1)
@setting(
    "--log logs",
    "A training log, instead of a table or beside one; several with a --units each.",
    Several(TEXT),
    metavar="FILE",
)
@setting(
    "--pattern",
    (
        "Form of the log: keras, lightning, deepspeed, ... (docs/models.md has all names), or "
        "a regular expression with named groups seconds, ms, us, steps_per_s, samples_per_s, "
        "unit_samples_per_s, or time or interval_s with step; and samples. [the first form "
        "that fits]"
    ),
    metavar="NAME|REGEX",
)
@setting("--warmup", "First steps of a log to leave out.", whole(0), 10)
@setting(
    "--model kind",
    "Through medians; Amdahl's law; USL.",
    Name(("piecewise", "amdahl", "usl")),
    "piecewise",
)
@setting(
    "--units",
    "Sizes of the curve, such as 1,2,4; with --log: units of each log.",
    wholes(1),
    metavar="COUNTS",
)
@setting(
    "--max max_units",
    "Sizes of the curve: measured ones and powers of two up to this.",
    whole(1),
)
@setting("--batch-size", "For logs: samples a step over all units.", POSITIVE)
@setting("--unit-batch", "For logs: samples a step and unit instead.", POSITIVE)
@setting("--name", "Name of the model where the table has none, and of the logs.")
@setting(
    "-o --output",
    "Job table: .parquet, .csv or .jsonl, one job per model.",
    metavar="FILE",
)
@setting(
    "--submit",
    "When the jobs are submitted (UTC); needed for -o.",
    Form(_instant),
    metavar="TIME",
)
@setting("--pmax", "Work of a job, samples. [1.3e8]", POSITIVE)
@setting(
    "--sizes",
    "The only numbers of units on which the jobs run. [all from Jmin to Jmax]",
    metavar="COUNTS|powers-of-2",
)
@setting("--tcup", "Seconds to grow.", seconds(zero=True), 18.0)
@setting("--tcdw", "Seconds to shrink.", seconds(zero=True), 12.0)
@force_option
@pickle_option
def fit(
    tables: tuple[str, ...],
    logs: tuple[str, ...],
    kind: Kind,
    units: list[int] | None,
    max_units: int | None,
    name: str | None,
    output: str | None,
    force: bool,
    pmax: float | None,
    **given: Any,
) -> None:
    """Fit a scalability curve to the measurements of each model, and report how well it fits.

    Several tables and logs make one job table. MEASUREMENTS has the columns model (or job), units, and throughput
    (samples/s) or step_time (s) with batch_size (samples a step over all units); for -o optionally pmax and submit,
    which take precedence over --pmax and --submit where a model states them. Points beyond what was measured are
    marked.

    Such as:
    bft-replay jobs fit throughputs.csv --model amdahl --max 64 --submit 2024-03-04 -o jobs.parquet
    bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8 --unit-batch 64
    """
    from bft.models.job_tables import write_jobs
    from bft.models.jobs import different_rates
    from bft.models.speed.scalability import (
        PMAX,
        fit_scalability,
        fitted_jobs,
        read_throughputs,
        sizes_up_to,
    )

    if not tables and not logs:
        raise click.UsageError("give a table of measurements, or logs with --log")
    names = ("unit_batch", "batch_size", "pattern", "warmup")
    of_logs = {option: given.pop(option) for option in names}
    for option in names[:-1]:
        if of_logs[option] and not logs:
            raise click.UsageError(f"--{option.replace('_', '-')} is for logs")
    if units and max_units and not logs:
        raise click.UsageError("give --units or --max, not both")
    if output:
        refuse_existing(output, force=force)
    measured = [(own, t) for t in tables for own in read_throughputs(t, name=name)]
    if logs:
        measured.append((_from_logs(logs, units or [], name=name, **of_logs), logs[0]))
        units = None
    fitted: dict[str, tuple[Throughputs, ScalabilityFit]] = {}
    for own, file in measured:
        if own.model in fitted:
            what = (
                f"the model {own.model!r} is in a file before, too; expected each once"
            )
            raise InputError(what, file=file, hint="--name names the model of logs")
        sizes = units or sizes_up_to(own, max_units)
        fitted[own.model] = own, fit_scalability(own, kind, sizes=sizes)
    _report(fitted)
    if output:
        if pmax is None and any(own.pmax is None for own, _ in measured):
            work = f"each job has the work of {PMAX:g} samples"
            say_note(f"{work}, where no column pmax states it: --pmax says otherwise")
        made = fitted_jobs(fitted.values(), pmax=pmax or PMAX, **given)
        for note in (*made.notes, *filter(None, [different_rates(made)])):
            say_note(note)
        with drafted(output) as draft:
            write_jobs(made, draft)
        click.echo(f"{output}: {len(made)} jobs")


def _from_logs(logs: Sequence[str], units: list[int], **of_logs: Any) -> Throughputs:
    """Read logs, and report what each states."""
    from bft.models.measure.training_log import read_logs

    measured, found = read_logs(logs, units, **of_logs)
    rows = []
    for log, count, times in zip(logs, units, found, strict=True):
        per = ["-", "-"]
        if times.per == "step":
            low, high = times.interval_s()
            per = [f"{times.median_s:.4g}", f"{low:.4g}-{high:.4g}"]
        sizes = [Path(log).name, str(count), str(len(times))]
        rows.append([*sizes, *per, f"{times.rate:.5g}"])
    show_table(["log", "units", "steps", "s/step", "95 %", "samples/s"], rows)
    for log, times in zip(logs, found, strict=True):
        for note in times.remarks:
            say_note(f"{log}: {note}")
    return measured


def _report(fitted: dict[str, tuple[Throughputs, ScalabilityFit]]) -> None:
    """Show how well the curves fit."""
    import numpy as np

    titles = ["model", "runs", "median error", "max error", "efficiency", "extrapolated"]  # fmt: skip
    rows = [
        [
            model,
            str(len(own.units)),
            f"{np.median(entry.errors):.2%}",
            f"{entry.errors.max():.2%}",
            f"{entry.efficiency()[-1]:.0%} at {entry.curve.last:g} units",
            ",".join(map(str, entry.beyond)) or "-",
        ]
        for model, (own, entry) in fitted.items()
    ]
    show_table(titles, rows)
    for model, (_, entry) in fitted.items():
        if entry.parameters:
            named = (f"{key} {value:.6g}" for key, value in entry.parameters.items())
            click.echo(f"{model}: {', '.join(named)}")
        for warning in entry.warnings:
            say_warning(f"{model}: {warning}")
