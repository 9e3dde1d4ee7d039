"""`bft-replay xi`: ratios of sharing measured, and the tables made of them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import bft.models as models
from bft.models import InputError
from bft.models.checks import MAX_LIMIT_S, Name, Number, seconds
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.groups import Group
from bft.replay.cli.main import EXIT_DEGRADED
from bft.replay.cli.messages import say_note, say_progress
from bft.replay.cli.parameters import (
    Checked,
    TableCommand,
    force_option,
    json_option,
    output_option,
)

if TYPE_CHECKING:
    import pandas as pd

    from bft.models.measure.co_runs import Plan, Slowdown
    from bft.models.measure.gpu_usage import Gauge

# Beyond it a ratio is named: two jobs that only take turns slow down twofold.
IMPLAUSIBLE = 5.0
LISTED = 10


@click.group(cls=Group)
def xi() -> None:
    """How much jobs on shared units slow each other down: measure it, make a table of it, look at the table."""


@xi.command(
    cls=TableCommand, short_help="Make a xi table from solo and co-run measurements."
)
@click.argument("files", metavar="MEASUREMENTS...", nargs=-1, required=True)
@output_option("Where to write the table: .csv.")
@click.option(
    "--for",
    "jobs",
    metavar="JOBS",
    help="Also estimate what these jobs need without a measurement: a table "
    "with the columns model and, optionally, batch_size (a job table is one).",
)
@click.option(
    "--guess/--no-guess",
    default=True,
    show_default=True,
    help="With --for: whether to estimate also models that never met.",
)
@force_option("Replace the table if it exists.")
def build(
    files: tuple[str, ...], output: str, jobs: str | None, guess: bool, force: bool
) -> None:
    """Make a xi table from MEASUREMENTS: step times of jobs alone and in pairs, or ratios.

    Columns: model_a, batch_a, model_b, batch_b, units; and step_a_s, step_b_s (mean seconds of a step), or xi_a, xi_b.
    A row without model_b is a solo run. docs/models.md shows examples.
    """
    from bft.models.measure.xi_measurements import (
        merged,
        read_measurements,
        xi_to_frame,
    )
    from bft.models.sharing.xi_estimator import XiEstimator

    _check_output(output)
    refuse_existing(output, force=force)
    ratios = read_measurements(files)
    if clipped := models.XiTable(ratios).clipped:
        say_note(f"{clipped} xi below 1 are measurement noise and count as 1")
    rows = list(merged(ratios))
    summary = f"{len(rows)} pairs measured"
    if len(ratios) > len(rows):
        summary += f" ({len(ratios)} rows, of repetitions the median)"
    if jobs is not None:
        kinds, estimator = _kinds(jobs), XiEstimator(rows)
        unknown = sorted({model for model, _ in kinds} - set(estimator.models))
        if unknown:
            say_note(
                f"never measured, so only guesses are possible: {_listing(unknown)}"
            )
        filled = estimator.fill(kinds, guess=guess)
        counts = Counter(row.flag for row in filled)
        by_flag = [f"{counts[flag]} {flag}" for flag in sorted(counts)]
        summary += ", ".join(["", f"{len(filled)} estimated", *by_flag])
        rows += filled
    _write_xi(xi_to_frame(rows), output)
    click.echo(f"{output}: {summary}")


def _kinds(path: str) -> list[tuple[str, float | None]]:
    """Models and batch sizes that a table of jobs names."""
    from bft.models.cells import Rows

    rows = Rows(models.read_table(path), path).require(("model",), ("batch_size",))
    kinds = {
        (row.name("model"), row.number("batch_size", None, above=0))
        for row in rows
        if row.given("model")
    }
    if not kinds:
        raise rows.error("no row names a model", column="model")
    return sorted(kinds, key=str)


@xi.command(
    cls=TableCommand, short_help="Check a xi table, and print it, victims by partners."
)
@click.argument("file", metavar="XI")
@click.option(
    "--by",
    type=Checked(Name(("model", "batch"))),
    default="model",
    show_default=True,
    help="One row per model, or per model and batch size.",
)
@click.option(
    "--implausible",
    type=Checked(Number(1)),
    default=IMPLAUSIBLE,
    show_default=True,
    help="Name ratios above this.",
)
@click.option(
    "--retest",
    metavar="FILE",
    help="Write the pairs to measure again, for xi measure --pairs: .csv.",
)
@force_option("Replace that file if it exists.")
@json_option("What was checked as JSON, with full lists.")
def show(
    file: str,
    by: str,
    implausible: float,
    retest: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Check a xi table, and print how many times as long an iteration of the row's model takes beside the column's.

    Named are missing pairs, ratios that differ by side, below 1, or implausibly high. With --retest a table of such
    pairs is written: `xi measure --pairs FILE --again` puts new answers in their place.
    """
    from bft.models.measure.xi_measurements import check_xi, grid, retest_frame

    if retest is not None:
        refuse_existing(retest, force=force)
    table = models.read_xi(file)
    result = check_xi(table, implausible)
    suspects = [f"row {each['row']}: {each['reason']}" for each in result["retest"]]
    if retest is not None:
        frame = retest_frame(table, result["retest"])
        _write_csv(frame, retest)
        for suspect in suspects[:LISTED]:
            say_note(f"{file}: {suspect}")
        more = f"; the first {LISTED} are named here" if len(suspects) > LISTED else ""
        say_note(
            f"{retest}: {len(frame)} pairs to measure again, of {len(suspects)} rows{more}"
        )
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    estimated = _listing(
        [f"{count} {flag}" for flag, count in result["estimated"].items()]
    )
    missing = [f"{a} + {b}" for a, b in result["missing_pairs"]]
    figures = {
        "rows": f"{result['rows']:,}"
        + (f" (not measured: {estimated})" if estimated else ""),
        "models": f"{result['models']:,}, with batch sizes {result['configurations']:,}",
        "pairs of models": f"{result['pairs']:,} of {result['possible_pairs']:,}",
        "missing pairs": _counted(missing),
        "below 1": f"{result['clipped']:,} ratios, which count as 1",
        "in doubt": _counted(suspects),
    }
    for label, value in figures.items():
        click.echo(f"{label:<17}{value}")
    # As many columns at a time as fit, numbered as the rows are.
    shown = grid(table, by_batch=by == "batch")
    shown.columns = list(map(str, range(1, len(shown) + 1)))
    shown.index = [f"{k:>3} {name}" for k, name in enumerate(shown.index, start=1)]
    click.echo("\nxi of, beside (~ estimated)")
    click.echo(shown.to_string(line_width=shutil.get_terminal_size().columns))


def _counted(entries: Sequence[str]) -> str:
    return f"{len(entries):,}" + (f": {_listing(entries)}" if entries else "")


def _listing(entries: Sequence[str]) -> str:
    more = f", and {len(entries) - LISTED} more" if len(entries) > LISTED else ""
    return ", ".join(entries[:LISTED]) + more


def _devices(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")] if value else []
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise click.BadParameter(
            f"expected numbers of GPUs with commas between, not {value!r}", ctx, param
        )
    return tuple(dict.fromkeys(map(int, parts)))


@xi.command(
    cls=TableCommand,
    short_help="Measure xi of two commands, or of a table of trainings.",
    context_settings={
        "ignore_unknown_options": False,
        "allow_interspersed_args": False,
    },
)
@click.argument(
    "commands", metavar="[-- CMD_A -- CMD_B]", nargs=-1, type=click.UNPROCESSED
)
@click.option(
    "--table",
    metavar="TRAININGS",
    help="Instead of two commands: measure each pair of a table with the "
    "columns model, command and, optionally, batch.",
)
@click.option(
    "--pairs",
    metavar="FILE",
    help="With --table: only these pairs, as xi show --retest writes them. [all pairs]",
)
@click.option(
    "--again",
    is_flag=True,
    help="With --table: measure also pairs that are in xi.csv, and replace their rows.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    help="Rounds of A alone, B alone, both together.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Least step times of each run.",
)
@click.option(
    "--at-least",
    "at_least_s",
    type=Checked(seconds(zero=True, high=MAX_LIMIT_S)),
    default=5.0,
    show_default=True,
    help="Seconds over which they are read: jobs that take turns need many turns.",
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Step times at the start of each run that do not count.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=Checked(seconds(high=MAX_LIMIT_S)),
    default=600.0,
    show_default=True,
    help="Seconds that a run may take.",
)
@click.option(
    "--confidence",
    type=Checked(Number(0.5, 0.9999)),
    default=0.95,
    show_default=True,
    help="Of the intervals.",
)
@click.option(
    "--pattern",
    metavar="NAME|REGEX",
    help="How to find step times in output: the name of a form, such as keras, "
    "or a regular expression with a group seconds, ms, steps_per_s, samples_per_s or time. [the first form that fits]",
)
@click.option(
    "--units",
    type=Checked(Number(0, above=True)),
    help="Units that they share. [the number of --devices]",
)
@click.option(
    "--gpu",
    "tool",
    type=Checked(Name(("auto", "nvidia-smi", "rocm-smi", "none"))),
    default="auto",
    show_default=True,
    help="What reads the GPUs while a command runs alone.",
)
@click.option(
    "--devices",
    callback=_devices,
    metavar="N,N",
    help="GPUs that both use, and that are read. [all, read all]",
)
@click.option(
    "--sample-every",
    "every_s",
    type=Checked(seconds(high=MAX_LIMIT_S)),
    default=1.0,
    show_default=True,
    help="Seconds between two samples of the GPUs.",
)
@click.option("--model-a", metavar="NAME", help="What command A trains. [A]")
@click.option("--model-b", metavar="NAME", help="What command B trains. [B]")
@click.option("--batch-a", type=Checked(Number(0, above=True)), help="Batch size of A.")
@click.option("--batch-b", type=Checked(Number(0, above=True)), help="Batch size of B.")
@click.option(
    "-o",
    "--output",
    metavar="FILE|DIR",
    help="Add the ratios to this xi table (.csv); with --table, the folder of "
    "xi.csv and profiles.csv.",
)
@json_option("What was measured of two commands as JSON.")
def measure(
    commands: tuple[str, ...], table: str | None, output: str | None, **given: Any
) -> int:
    """Run two commands alone and together, read step times from their output, and report xi with an interval.

    Write each command after a double dash: bft-replay xi measure --steps 30 -- python a.py -- python b.py

    With --table, {batch} in a command stands for the batch size. What is measured is kept after each pair; the same
    command goes on from there. Of a pair that fails the reason is told, and the others go on; the exit code is 3 then.
    """
    if table is not None and output is not None and not commands:
        return _measure_table(table, Path(output), given)
    if table is not None:
        raise click.UsageError(
            "--table needs -o DIR, and takes the place of two commands"
        )
    _measure_two(_two(commands), output, given)
    return 0


def _measure_two(
    pair: tuple[list[str], list[str]], output: str | None, given: dict[str, Any]
) -> None:
    from bft.models.measure.co_runs import measure, xi_row

    if output is not None and (given["model_a"] is None or given["model_b"] is None):
        raise click.UsageError(
            "-o needs --model-a and --model-b: rows of a xi table name their models"
        )
    before = [] if output is None else _earlier(output)
    plan, gauge = _measuring(given)
    sides = measure(pair, plan, say_progress, gauge)
    row = xi_row(given, sides, given["repeats"])
    if output is not None:
        import pandas as pd

        frame = pd.DataFrame([*before, row])
        optional = ["batch_a", "batch_b", "units"]
        empty = [name for name in optional if frame[name].isna().all()]
        _write_xi(frame.drop(columns=empty), output)
    if given["as_json"]:
        details = {"a": _details(sides[0]), "b": _details(sides[1])}
        click.echo(json.dumps({**row, **details}, indent=2))
        return
    names = (given["model_a"] or "A", given["model_b"] or "B")
    for (victim, partner), side in zip((names, names[::-1]), sides, strict=True):
        noise = f" (measured {side.raw:.3f}: noise)" if side.raw < 1 else ""
        interval = (
            f"{given['confidence']:.4g} interval {side.low:.3f} to {side.high:.3f}"
        )
        click.echo(f"{victim} beside {partner}: xi {side.xi:.3f}{noise}, {interval}")
        used = side.usage
        if used is not None:
            click.echo(
                f"{victim} alone: GPU {used.gpu_util:.0f} %, its memory {used.gmem_util:.0f} % busy, "
                f"{used.memory_gib:.2f} GiB at most ({used.samples} samples)"
            )


def _two(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The two commands around the double dash between them."""
    cuts = [index for index, word in enumerate(words) if word == "--"]
    if len(cuts) != 1 or cuts[0] in (0, len(words) - 1):
        raise click.UsageError(
            "expected two commands, each after a double dash: bft-replay xi measure [OPTIONS] -- CMD_A -- CMD_B"
        )
    return list(words[: cuts[0]]), list(words[cuts[0] + 1 :])


def _measuring(given: dict[str, Any]) -> tuple[Plan, Gauge | None]:
    """Return the plan that the options state, and the gauge that reads the GPUs; None where no tool does."""
    from dataclasses import fields

    from bft.models.measure.co_runs import Plan
    from bft.models.measure.gpu_usage import Gauge, find_tool

    if given["units"] is None:
        given["units"] = len(given["devices"]) or None
    plan = Plan(**{field.name: given[field.name] for field in fields(Plan)})
    read = find_tool(given["tool"])
    if read is not None:
        gauge = Gauge(read, given["devices"], given["every_s"])
        gauge.once()
        return plan, gauge
    if given["tool"] != "none":
        say_note(
            "no GPU can be read here (nvidia-smi, rocm-smi): utilisation and memory are not measured"
        )
    return plan, None


def _details(side: Slowdown) -> dict[str, Any]:
    usage = {} if side.usage is None else {"usage": asdict(side.usage)}
    times = {"alone_s": side.alone_s, "shared_s": side.shared_s}
    return {"raw": side.raw, **times, **usage}


def _earlier(output: str) -> list[dict[str, Any]]:
    """Return the rows of a xi table that is to grow; a file of another kind is refused before anything runs."""
    _check_output(output)
    if not Path(output).exists():
        return []
    frame = models.read_table(output)
    models.xi_from_frame(frame, source=output)
    return [
        {str(name): cell for name, cell in row.items()}
        for row in frame.to_dict(orient="records")
    ]


def _measure_table(table: str, folder: Path, given: dict[str, Any]) -> int:
    """Measure the pairs of a table of trainings that are not measured yet, or those that are listed."""
    from bft.models.measure.co_runs import (
        PROFILES,
        XI,
        Collection,
        read_configurations,
        read_pairs,
    )

    configurations = read_configurations(table)
    wanted = list(combinations_with_replacement(configurations, 2))
    if given["pairs"] is not None:
        wanted = read_pairs(given["pairs"], configurations)
    plan, gauge = _measuring(given)
    collection = Collection(folder, given["units"], _write_csv)
    todo = [pair for pair in wanted if given["again"] or not collection.done(pair)]
    if len(todo) < len(wanted):
        say_note(
            f"{folder}: {len(wanted) - len(todo)} of {len(wanted)} pairs have been measured before"
        )
    failures = 0
    for number, pair in enumerate(todo, start=1):
        prefix = f"pair {number} of {len(todo)}, {pair[0]} beside {pair[1]}: "

        def tell(text: str, prefix: str = prefix) -> None:
            say_progress(prefix + text)

        try:
            collection.measure(pair, plan, tell, gauge)
        except InputError as error:
            say_note(f"{prefix}{error.what}")
            failures += 1
    done = sum(collection.done(pair) for pair in wanted)
    click.echo(
        f"{folder / XI}: {done} of {len(wanted)} pairs measured; profiles of trainings alone in {PROFILES}"
    )
    if failures:
        click.echo(f"{failures} pairs failed; the same command tries them again")
    return EXIT_DEGRADED if failures else 0


def _check_output(output: str) -> None:
    """Refuse a file to which a xi table cannot be written."""
    if Path(output).suffix.lower() != ".csv":
        raise InputError("a xi table is written as .csv", file=output)


def _write_xi(frame: pd.DataFrame, output: str) -> None:
    """Write a xi table; ratios to six decimals, whole batch sizes and units as such."""
    for name in frame.columns.intersection(["batch_a", "batch_b", "units"]):
        if (frame[name].dropna() % 1 == 0).all():
            frame[name] = frame[name].astype("Int64")
    ratios = [name for name in frame.columns if str(name).startswith("xi_")]
    frame[ratios] = frame[ratios].round(6)
    _write_csv(frame, output)


def _write_csv(frame: pd.DataFrame, output: str | Path) -> None:
    with drafted(output) as draft:
        frame.to_csv(draft, index=False)
