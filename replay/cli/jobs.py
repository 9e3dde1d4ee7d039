"""`bft-replay jobs fit`: job tables from what was measured of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

import bft.models as models
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
from bft.replay.cli.parameters import force_option, pickle_option, setting

if TYPE_CHECKING:
    import pandas as pd

    from bft.models import JobTable
    from bft.models.measure.training_log import StepTimes
    from bft.models.speed.scalability import ScalabilityFit, Throughputs

# A batch size that differs from the log's own by more than this factor is reported.
OTHER_BATCH = 1.05
# Steps that more units shorten by less than a tenth are of batches that grow with the units.
ALIKE = 0.9

Kind = Literal["piecewise", "amdahl", "usl"]
POSITIVE = Number(0, above=True)
# Work of a training of the paper, samples: 100 epochs of ImageNet.
PMAX = 1.3e8


@click.group(cls=Group)
def jobs() -> None:
    """Make job tables from measurements: scalability from throughputs or training logs.

    Such as:
    bft-replay jobs fit throughputs.csv --submit 2024-03-04 -o jobs.parquet
    bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8 --unit-batch 64
    """


def _counts(text: str) -> list[int]:
    try:
        return [whole(1).read(part) for part in text.split(",")]
    except ValueError:
        what = "expected whole numbers >= 1 such as 1,2,4"
        raise ValueError(f"{what}, not {text!r}") from None


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
    Form(_counts),
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
@setting("--pmax", f"Work of a job, samples. [{PMAX:g}]", POSITIVE)
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
        fit_scalability,
        read_throughputs,
        sizes_up_to,
    )

    if not tables and not logs:
        raise click.UsageError("give a table of measurements, or logs with --log")
    if given["unit_batch"] and given["batch_size"]:
        raise click.UsageError("give --unit-batch or --batch-size, not both")
    for option in ("unit_batch", "batch_size", "pattern"):
        if given[option] and not logs:
            raise click.UsageError(f"--{option.replace('_', '-')} is for logs")
    if units and max_units and not logs:
        raise click.UsageError("give --units or --max, not both")
    if output:
        refuse_existing(output, force=force)
    measured = [(own, t) for t in tables for own in read_throughputs(t, name=name)]
    if logs:
        measured.append((_from_logs(logs, units, name, given), logs[0]))
        units = None
    known: set[str] = set()
    for own, file in measured:
        if own.model in known:
            what = (
                f"the model {own.model!r} is in a file before, too; expected each once"
            )
            raise InputError(what, file=file, hint="--name names the model of logs")
        known.add(own.model)
        if output and given["submit"] is None and own.submit_ns is None:
            raise click.UsageError(
                f"-o needs --submit, or a column submit of the table: {own.model} has none; such as the start of the "
                "trace (bft-replay trace info shows it)"
            )
    fitted = [
        (own, fit_scalability(own, kind, sizes=units or sizes_up_to(own, max_units)))
        for own, _ in measured
    ]
    _report(fitted)
    if output:
        if given["pmax"] is None and any(own.pmax is None for own, _ in measured):
            work = f"each job has the work of {PMAX:g} samples"
            say_note(f"{work}, where no column pmax states it: --pmax says otherwise")
        made = _job_table(fitted, given)
        if text := different_rates(made):
            say_note(text)
        with drafted(output) as draft:
            write_jobs(made, draft)
        click.echo(f"{output}: {len(made)} jobs")


def _from_logs(
    logs: Sequence[str],
    units: list[int] | None,
    name: str | None,
    given: dict[str, Any],
) -> Throughputs:
    """Read one measurement from each log, and report each as it is read."""
    import numpy as np

    from bft.models.measure.training_log import read_log
    from bft.models.speed.scalability import Throughputs

    if not units or len(units) != len(logs):
        raise click.UsageError(
            f"--units must give the units of each log: {len(logs)} of them, as in --units 4,8"
        )
    rates, kinds = [], set()
    steps: dict[int, float] = {}
    click.echo(
        f"{'log':<24} {'units':>5} {'steps':>7} {'s/step':>9} {'95 %':>19} {'samples/s':>11}"
    )
    size, warmup = given["batch_size"], given["warmup"]
    for log, count in zip(logs, units, strict=True):
        batch = given["unit_batch"] * count if given["unit_batch"] else size
        times = read_log(
            log, given["pattern"], batch_size=batch, warmup=warmup, units=count
        )
        kinds.add(times.per == "token")
        what = hint = ""
        if times.per == "token" and batch is not None:
            what = "states tokens a second only, and a batch size in samples does not give the tokens of a step"
            hint = "leave the batch size out: the curve, and --pmax, are then in tokens"
        elif len(kinds) > 1:
            what = (
                "some of the logs state tokens a second only, others samples or steps"
            )
        elif times.samples is None:
            what = "does not state samples a step"
            hint = "give --batch-size or --unit-batch"
        if what:
            raise InputError(what, file=log, hint=hint)
        rate, low, high = times.rate, *times.interval_s()
        per = f"{'-':>9} {'-':>19}"
        if times.per == "step":
            per = f"{times.median_s:9.4g} {low:9.4g}-{high:9.4g}"
        shown = f"{Path(log).name:<24} {count:>5} {len(times):>7} {per} {rate:11.5g}"
        click.echo(shown)
        for note in _notes(times, batch):
            say_note(f"{log}: {note}")
        rates.append(rate)
        if times.basis == "step" and size and not _agree(times, size):
            steps[count] = times.median_s
    few, many = min(steps, default=0), max(steps, default=0)
    if few < many and steps[many] > ALIKE * steps[few]:
        raise InputError(
            f"a step takes as long on {many} units ({steps[many]:.4g} s) as on {few} ({steps[few]:.4g} s): each unit "
            f"has a batch of its own, and {size:g} samples are not those of all",
            hint="give --unit-batch, the samples of a step and unit, instead of --batch-size",
        )
    model = name or Path(logs[0]).name.split(".")[0]
    return Throughputs(model, np.array(units), np.array(rates))


def _agree(times: StepTimes, batch: float) -> bool:
    """Whether a log states itself the samples a step that are given."""
    stated = times.stated or 0.0
    return 1 / OTHER_BATCH < stated / batch < OTHER_BATCH


def _notes(times: StepTimes, batch: float | None) -> list[str]:
    """Report what was read from a log, what was not, and what is unusual."""
    remarks = [f"read {times.used}", *times.notes]
    if times.unused:
        remarks.append(f"not used: {', '.join(times.unused)}")
    if times.ignored:
        why = "durations are not > 0, or their step counter went back"
        remarks.append(f"{times.ignored} of its {why}")
    if batch and times.stated and not _agree(times, batch):
        stated = f"the log states {times.stated:.5g} samples a step"
        remarks.append(f"{stated}; {batch:g} were given, and count")
    return remarks


def _report(fitted: Sequence[tuple[Throughputs, ScalabilityFit]]) -> None:
    """Show how well the curves fit."""
    import numpy as np

    click.echo(
        f"{'model':<20} {'runs':>4} {'median error':>12} {'max error':>9}  {'efficiency':<20} extrapolated"
    )
    for own, entry in fitted:
        ends = f"{entry.efficiency()[-1]:.0%} at {entry.curve.last:g} units"
        beyond = ",".join(map(str, entry.beyond)) or "-"
        errors = f"{np.median(entry.errors):>12.2%} {entry.errors.max():>9.2%}"
        sizes = f"{own.model:<20} {len(own.units):>4}"
        click.echo(f"{sizes} {errors}  {ends:<20} {beyond}")
    for own, entry in fitted:
        if entry.parameters:
            named = (f"{key} {value:.6g}" for key, value in entry.parameters.items())
            click.echo(f"{own.model}: {', '.join(named)}")
        for warning in entry.warnings:
            say_warning(f"{own.model}: {warning}")


def _job_table(
    fitted: Sequence[tuple[Throughputs, ScalabilityFit]], given: dict[str, Any]
) -> JobTable:
    import pandas as pd

    rows = []
    for own, entry in fitted:
        curve, last = entry.curve, int(entry.curve.last)
        low = min(int(own.sizes()[0]), last)
        jmax = max(entry.peak, low)
        if jmax < last:
            say_note(
                f"{entry.model}: falls beyond its peak, {curve.at(jmax):.5g} samples/s at {jmax} units and "
                f"{curve.ps[-1]:.5g} at {last}: Jmax is {jmax}"
            )
        when = given["submit"]
        if own.submit_ns is not None:
            when = pd.Timestamp(own.submit_ns, tz="UTC")
        row = {
            "name": entry.model,
            "model": entry.model,
            "Jmin": low,
            "Jmax": jmax,
            "Pmax": (given["pmax"] or PMAX) if own.pmax is None else own.pmax,
            "Tsub": when,
            "Tcup": given["tcup"],
            "Tcdw": given["tcdw"],
            "sizes": given["sizes"],
            "Ns": curve.ns.tolist(),
            "Ps": curve.ps.tolist(),
            "Os": curve.ps.tolist(),
        }
        rows.append(row)
    return models.jobs_from_frame(pd.DataFrame(rows))
