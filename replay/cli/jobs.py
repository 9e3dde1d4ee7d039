"""`bft-replay jobs fit`: job tables from what was measured of models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

import bft.models as models
from bft.models import InputError
from bft.models.checks import Name, Number, seconds, strict_instant, utc
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.groups import Group
from bft.replay.cli.messages import say_note, say_warning
from bft.replay.cli.parameters import (
    Checked,
    TableCommand,
    force_option,
    output_option,
)

if TYPE_CHECKING:
    import pandas as pd

    from bft.models import JobTable
    from bft.models.measure.training_log import StepTimes
    from bft.models.speed.scalability import ScalabilityFit, Throughputs

# A batch size that differs from the log's own by more than this factor is reported.
OTHER_BATCH = 1.05
# Steps that more units shorten by less than a tenth are of batches that grow with the units.
ALIKE = 0.9

# Work of a training of the paper, samples: 100 epochs of ImageNet.
PMAX = 1.3e8

Kind = Literal["piecewise", "amdahl", "usl"]


@click.group(cls=Group)
def jobs() -> None:
    """Make job tables from measurements: scalability from throughputs or training logs."""


def _counts(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> list[int] | None:
    parts = value.split(",") if value else []
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise click.BadParameter(
            f"expected whole numbers >= 1 such as 1,2,4, not {value!r}", ctx, param
        )
    return list(map(int, parts)) or None


def _instant(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> pd.Timestamp | None:
    if value and strict_instant(value) is None:
        raise InputError(
            f"--submit: expected a date and time such as 2021-02-10T20:21:15, not {value!r}"
        )
    return utc(value) if value else None


@jobs.command(
    cls=TableCommand,
    short_help="Scalability curves from measured throughputs or logs.",
)
@click.argument("tables", metavar="[MEASUREMENTS]...", nargs=-1)
@click.option("--log", "logs", metavar="FILE", multiple=True,
              help="A training log, instead of a table or beside one; several with a --units each.")  # fmt: skip
@click.option("--pattern", metavar="NAME|REGEX",
              help="Form of the log: keras, lightning, deepspeed, ... (docs/models.md has all names), or a "
              "regular expression with named groups seconds, ms, us, steps_per_s, samples_per_s, unit_samples_per_s, "
              "or time or interval_s with step; and samples. [the first form that fits]")  # fmt: skip
@click.option("--warmup", type=click.IntRange(min=0), default=10, show_default=True,
              help="First steps of a log to leave out.")  # fmt: skip
@click.option("--model", "kind", type=Checked(Name(("piecewise", "amdahl", "usl"))), default="piecewise",
              show_default=True, help="Through medians; Amdahl's law; USL.")  # fmt: skip
@click.option(
    "--units",
    metavar="COUNTS",
    callback=_counts,
    help="Sizes of the curve, such as 1,2,4; with --log: units of each log.",
)
@click.option("--max", "max_units", type=click.IntRange(min=1),
              help="Sizes of the curve: measured ones and powers of two up to this.")  # fmt: skip
@click.option(
    "--batch-size",
    type=Checked(Number(0, above=True)),
    help="For logs: samples a step over all units.",
)
@click.option(
    "--unit-batch",
    type=Checked(Number(0, above=True)),
    help="For logs: samples a step and unit instead.",
)
@click.option(
    "--name", help="Name of the model where the table has none, and of the logs."
)
@output_option(
    "Job table: .parquet, .csv or .jsonl, one job per model.", required=False
)
@click.option(
    "--curves",
    metavar="FILE",
    help="Points of the curves as .csv, extrapolated ones marked.",
)
@click.option("--submit", metavar="TIME", callback=_instant,
              help="When the jobs are submitted (UTC); needed for -o.")  # fmt: skip
@click.option("--pmax", type=Checked(Number(0, above=True)),
              help=f"Work of a job, samples. [{PMAX:g}]")  # fmt: skip
@click.option("--sizes", metavar="COUNTS|powers-of-2",
              help="The only numbers of units on which the jobs run. [all from Jmin to Jmax]")  # fmt: skip
@click.option(
    "--jmin",
    type=click.IntRange(min=1),
    help="Fewest units of a job. [the smallest measured]",
)
@click.option(
    "--tcup",
    "tcup_s",
    type=Checked(seconds(zero=True)),
    default=18.0,
    show_default=True,
    help="Seconds to grow.",
)
@click.option(
    "--tcdw",
    "tcdw_s",
    type=Checked(seconds(zero=True)),
    default=12.0,
    show_default=True,
    help="Seconds to shrink.",
)
@force_option("Replace files that exist.")
def fit(
    tables: tuple[str, ...],
    logs: tuple[str, ...],
    pattern: str | None,
    warmup: int,
    kind: Kind,
    units: list[int] | None,
    max_units: int | None,
    batch_size: float | None,
    unit_batch: float | None,
    name: str | None,
    output: str | None,
    curves: str | None,
    submit: pd.Timestamp | None,
    force: bool,
    jmin: int | None,
    pmax: float | None,
    **further: float | str | None,
) -> None:
    """Fit a scalability curve to the measurements of each model, and report how well it fits.

    Several tables and logs make one job table. MEASUREMENTS has the columns model (or job), units, and throughput
    (samples/s) or step_time (s) with batch_size (samples a step over all units); for -o optionally pmax and submit,
    which take precedence over --pmax and --submit where a model states them. Points beyond what was measured are
    marked.
    """
    from bft.models.speed.scalability import (
        fit_scalability,
        read_throughputs,
        sizes_up_to,
    )

    if not tables and not logs:
        raise click.UsageError("give a table of measurements, or logs with --log")
    if unit_batch and (batch_size or not logs):
        raise click.UsageError("--unit-batch is for logs, and instead of --batch-size")
    if not logs and pattern is not None:
        raise click.UsageError("--pattern is for logs")
    if units and max_units and not logs:
        raise click.UsageError("give --units or --max, not both")
    for file in (output, curves):
        if file:
            refuse_existing(file, force=force)
    measured: list[Throughputs] = []
    for table in tables:
        _add(measured, read_throughputs(table, name=name), table)
    if logs:
        of_logs = _from_logs(logs, pattern, warmup, units, name, batch_size, unit_batch)
        _add(measured, [of_logs], logs[0])
        units = None
    if output:
        _check_submits(measured, submit)
    fitted = [
        fit_scalability(own, kind, sizes=units or sizes_up_to(own, max_units))
        for own in measured
    ]
    for line in _report(measured, fitted):
        click.echo(line)
    for entry in fitted:
        for warning in entry.warnings:
            say_warning(f"{entry.model}: {warning}")
    if batch_size and not logs:
        say_note("--batch-size has no effect without --log")
    if output:
        from bft.models.job_tables import write_jobs
        from bft.models.jobs import different_rates

        if pmax is None and any(own.pmax is None for own in measured):
            say_note(
                f"each job has the work of {PMAX:g} samples, where no column pmax states it: --pmax says otherwise"
            )
        further["pmax"] = pmax or PMAX
        made = _job_table(measured, fitted, jmin, submit, further)
        if text := different_rates(made):
            say_note(text)
        with drafted(output) as draft:
            write_jobs(made, draft)
        click.echo(f"{output}: {len(made)} jobs")
    if curves:
        with drafted(curves) as draft:
            points = _points(fitted)
            points.to_csv(draft, index=False, lineterminator="\n")
        click.echo(f"{curves}: {len(points)} points")


def _add(measured: list[Throughputs], more: Sequence[Throughputs], file: str) -> None:
    """Add what was measured of further models, whose names must differ."""
    known = {own.model for own in measured}
    for own in more:
        if own.model in known:
            raise InputError(
                f"the model {own.model!r} is in a file before, too; expected each once",
                file=file,
                hint="--name names the model of logs",
            )
    measured.extend(more)


def _from_logs(
    logs: Sequence[str],
    pattern: str | None,
    warmup: int,
    units: list[int] | None,
    name: str | None,
    batch_size: float | None,
    unit_batch: float | None,
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
    for log, count in zip(logs, units, strict=True):
        batch = unit_batch * count if unit_batch else batch_size
        times = read_log(log, pattern, batch_size=batch, warmup=warmup, units=count)
        if times.per == "token" and batch is not None:
            raise InputError(
                "states tokens a second only, and a batch size in samples does not give the tokens of a step",
                file=log,
                hint="leave the batch size out: the curve, and --pmax, are then in tokens",
            )
        kinds.add(times.per == "token")
        if len(kinds) > 1:
            raise InputError(
                "some of the logs state tokens a second only, others samples or steps",
                file=log,
            )
        if times.samples is None:
            raise InputError(
                "does not state samples a step",
                file=log,
                hint="give --batch-size or --unit-batch",
            )
        rate, low, high = times.rate, *times.interval_s()
        per = (
            f"{times.median_s:9.4g} {low:9.4g}-{high:9.4g}"
            if times.per == "step"
            else f"{'-':>9} {'-':>19}"
        )
        click.echo(
            f"{Path(log).name:<24} {count:>5} {len(times):>7} {per} {rate:11.5g}"
        )
        for note in _notes(times, batch):
            say_note(f"{log}: {note}")
        rates.append(rate)
        if times.basis == "step" and batch_size and not _agree(times, batch_size):
            steps[count] = times.median_s
    few, many = min(steps, default=0), max(steps, default=0)
    if few < many and steps[many] > ALIKE * steps[few]:
        raise InputError(
            f"a step takes as long on {many} units ({steps[many]:.4g} s) as on {few} ({steps[few]:.4g} s): each unit "
            f"has a batch of its own, and {batch_size:g} samples are not those of all",
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
        remarks.append(
            f"{times.ignored} of its durations are not > 0, or their step counter went back"
        )
    if batch and times.stated and not _agree(times, batch):
        remarks.append(
            f"the log states {times.stated:.5g} samples a step; {batch:g} were given, and count"
        )
    return remarks


def _report(
    measured: Sequence[Throughputs], fitted: Sequence[ScalabilityFit]
) -> list[str]:
    import numpy as np

    lines = [
        f"{'model':<20} {'runs':>4} {'median error':>12} {'max error':>9}  {'efficiency':<20} extrapolated"
    ]
    for own, entry in zip(measured, fitted, strict=True):
        ends = f"{entry.efficiency()[-1]:.0%} at {entry.curve.last:g} units"
        beyond = ",".join(map(str, entry.beyond)) or "-"
        errors = f"{np.median(entry.errors):>12.2%} {entry.errors.max():>9.2%}"
        lines.append(
            f"{own.model:<20} {len(own.units):>4} {errors}  {ends:<20} {beyond}"
        )
    for entry in fitted:
        if entry.parameters:
            lines.append(
                f"{entry.model}: "
                + ", ".join(
                    f"{key} {value:.6g}" for key, value in entry.parameters.items()
                )
            )
    return lines


def _job_table(
    measured: Sequence[Throughputs],
    fitted: Sequence[ScalabilityFit],
    jmin: int | None,
    submit: pd.Timestamp | None,
    further: dict[str, float | str | None],
) -> JobTable:
    import pandas as pd

    rows = []
    for own, entry in zip(measured, fitted, strict=True):
        last = int(entry.curve.last)
        low = jmin or min(int(own.sizes()[0]), last)
        jmax = max(entry.peak, min(low, last))
        if jmax < last:
            say_note(
                f"{entry.model}: falls beyond its peak, {entry.curve.at(jmax):.5g} samples/s at {jmax} units and "
                f"{entry.curve.ps[-1]:.5g} at {last}: Jmax is {jmax}"
            )
        when = (
            submit if own.submit_ns is None else pd.Timestamp(own.submit_ns, tz="UTC")
        )
        row = {
            "name": entry.model,
            "model": entry.model,
            "Jmin": low,
            "Jmax": jmax,
            "Pmax": further["pmax"] if own.pmax is None else own.pmax,
            "Tsub": when,
            "Tcup": further["tcup_s"],
            "Tcdw": further["tcdw_s"],
            "sizes": further["sizes"],
            "Ns": entry.curve.ns.tolist(),
            "Ps": entry.curve.ps.tolist(),
            "Os": entry.curve.ps.tolist(),
        }
        rows.append(row)
    return models.jobs_from_frame(pd.DataFrame(rows))


def _check_submits(
    measured: Sequence[Throughputs], submit: pd.Timestamp | None
) -> None:
    """Refuse a job table in which a job would have no submission, before anything is fitted."""
    for own in measured:
        if submit is None and own.submit_ns is None:
            which = f": {own.model} has none" if len(measured) > 1 else ""
            raise click.UsageError(
                f"-o needs --submit, or a column submit of the table{which}; such as the start of the trace "
                "(bft-replay trace info shows it)"
            )


def _points(fitted: Sequence[ScalabilityFit]) -> pd.DataFrame:
    """The points of the curves, one row each."""
    import pandas as pd

    rows = [
        (entry.model, int(n), float(p), float(efficiency), str(bool(beyond)).lower())
        for entry in fitted
        for n, p, efficiency, beyond in zip(
            entry.curve.ns[1:],
            entry.curve.ps[1:],
            entry.efficiency(),
            entry.extrapolated[1:],
            strict=True,
        )
    ]
    columns = ["model", "units", "throughput", "efficiency", "extrapolated"]
    return pd.DataFrame(rows, columns=columns)
