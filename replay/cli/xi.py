"""`bft-replay xi`: ratios of sharing measured, and the tables made of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import bft.models as models
from bft.models import InputError
from bft.models.checks import (
    FLAG,
    MAX_LIMIT_S,
    Name,
    Number,
    seconds,
    whole,
)
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.commands import EXIT_DEGRADED, Group, say_note, say_progress
from bft.replay.cli.parameters import (
    force_option,
    json_option,
    output_option,
    pickle_option,
    setting,
    wholes,
)

if TYPE_CHECKING:
    import pandas as pd

LISTED = 10


@click.group(cls=Group)
def xi() -> None:
    """How much jobs on shared units slow each other down: measure it, make a table of it, look at the table.

    Such as:
    bft-replay xi show xi.csv
    bft-replay xi measure trainings.csv -o measured
    """


@xi.command()
@click.argument("files", metavar="MEASUREMENTS...", nargs=-1, required=True)
@output_option("Where to write the table: .csv.")
@force_option
@pickle_option
def build(files: tuple[str, ...], output: str, force: bool) -> None:
    """Make a xi table from MEASUREMENTS: step times of jobs alone and in pairs, or ratios.

    Columns: model_a, batch_a, model_b, batch_b, units; and step_a_s, step_b_s (mean seconds of a step), or xi_a, xi_b.
    A row without model_b is a solo run. docs/models.md has an example.

    Such as:
    bft-replay xi build measurements.csv -o xi.csv
    bft-replay xi build alone.csv together.csv -o xi.csv --force
    """
    from bft.models.measure.xi_measurements import (
        merged,
        read_measurements,
        xi_to_frame,
    )

    if Path(output).suffix.lower() != ".csv":
        raise InputError("a xi table is written as .csv", file=output)
    refuse_existing(output, force=force)
    ratios = read_measurements(files)
    if clipped := models.XiTable(ratios).clipped:
        say_note(f"{clipped} xi below 1 are measurement noise and count as 1")
    rows = merged(ratios)
    summary = f"{len(rows)} pairs measured"
    if len(ratios) > len(rows):
        summary += f" ({len(ratios)} rows, of repetitions the median)"
    frame = xi_to_frame(rows)
    # Whole batch sizes and units as such.
    for name in frame.columns.intersection(["batch_a", "batch_b", "units"]):
        if (frame[name].dropna() % 1 == 0).all():
            frame[name] = frame[name].astype("Int64")
    _write_csv(frame.round({"xi_a": 6, "xi_b": 6}), output)
    click.echo(f"{output}: {summary}")


@xi.command()
@click.argument("file", metavar="XI")
@setting(
    "--retest",
    "Write the pairs to measure again, for xi measure --pairs: .csv.",
    metavar="FILE",
)
@json_option("What was checked as JSON, with full lists.")
@force_option
@pickle_option
def show(file: str, retest: str | None, force: bool, as_json: bool) -> None:
    """Check a xi table, and print how many times as long an iteration of the row's model takes beside the column's.

    Named are missing pairs, ratios that differ by side, below 1, or implausibly high. With --retest a table of such
    pairs is written: `xi measure --pairs FILE --again` puts new answers in their place.

    Such as:
    bft-replay xi show xi.csv
    bft-replay xi show measured/xi.csv --retest again.csv
    """
    from bft.models.measure.xi_measurements import check_xi, grid, retest_frame

    table = models.read_xi(file)
    result = check_xi(table)
    suspects = [f"row {each['row']}: {each['reason']}" for each in result["retest"]]
    if retest is not None:
        refuse_existing(retest, force=force)
        frame = retest_frame(table, result["retest"])
        _write_csv(frame, retest)
        again = f"{len(frame)} pairs to measure again, of {len(suspects)} rows"
        say_note(f"{retest}: {again}")
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    flags = [f"{count} {flag}" for flag, count in result["estimated"].items()]
    estimated = f" (not measured: {_listing(flags)})" if flags else ""
    missing = [f"{a} + {b}" for a, b in result["missing_pairs"]]
    figures = {
        "rows": f"{result['rows']:,}{estimated}",
        "models": f"{result['models']:,}, with batch sizes {result['configurations']:,}",
        "pairs of models": f"{result['pairs']:,} of {result['possible_pairs']:,}",
        "missing pairs": _counted(missing),
        "below 1": f"{result['clipped']:,} ratios, which count as 1",
        "in doubt": _counted(suspects),
    }
    for label, value in figures.items():
        click.echo(f"{label:<17}{value}")
    # As many columns at a time as fit, numbered as the rows are.
    shown = grid(table)
    shown.columns = list(map(str, range(1, len(shown) + 1)))
    shown.index = [f"{k:>3} {name}" for k, name in enumerate(shown.index, start=1)]
    click.echo("\nxi of, beside (~ estimated)")
    click.echo(shown.to_string(line_width=shutil.get_terminal_size().columns))


def _counted(entries: Sequence[str]) -> str:
    return f"{len(entries):,}" + (f": {_listing(entries)}" if entries else "")


def _listing(entries: Sequence[str]) -> str:
    more = f", and {len(entries) - LISTED} more" if len(entries) > LISTED else ""
    return ", ".join(entries[:LISTED]) + more


@xi.command()
@click.argument("table", metavar="TRAININGS")
@setting(
    "-o --output", "Folder of xi.csv and profiles.csv.", metavar="DIR", required=True
)
@setting(
    "--pairs",
    "Only these pairs, as xi show --retest writes them. [all pairs]",
    metavar="FILE",
)
@setting(
    "--again", "Measure also pairs that are in xi.csv, and replace their rows.", FLAG
)
@setting("--repeats", "Rounds of A alone, B alone, both together.", whole(2), 3)
@setting("--steps", "Least step times of each run.", whole(1), 50)
@setting(
    "--at-least at_least_s",
    "Seconds over which they are read: jobs that take turns need many turns.",
    seconds(zero=True, high=MAX_LIMIT_S),
    5.0,
)
@setting(
    "--warmup", "Step times at the start of each run that do not count.", whole(0), 10
)
@setting(
    "--time-limit time_limit_s",
    "Seconds that a run may take.",
    seconds(high=MAX_LIMIT_S),
    600.0,
)
@setting(
    "--pattern",
    (
        "How to find step times in output: the name of a form, such as keras, or a regular "
        "expression with a group seconds, ms, steps_per_s, samples_per_s or time. [the first "
        "form that fits]"
    ),
    metavar="NAME|REGEX",
)
@setting(
    "--units", "Units that they share. [the number of --devices]", Number(0, above=True)
)
@setting(
    "--gpu",
    "What reads the GPUs while a command runs alone.",
    Name(("auto", "nvidia-smi", "rocm-smi", "none")),
    "auto",
)
@setting(
    "--devices",
    "GPUs that both use, and that are read. [all, read all]",
    wholes(0),
    metavar="N,N",
)
@pickle_option
def measure(
    table: str,
    output: str,
    pairs: str | None,
    again: bool,
    units: float | None,
    gpu: str,
    devices: list[int] | None,
    **rounds: Any,
) -> int:
    """Run the commands of a table of trainings, each alone and in pairs, and keep by how much they slow down.

    TRAININGS has the columns model, command and, optionally, batch; {batch} in a command stands for the batch size.
    What is measured is kept after each pair; the same command goes on from there. Of a pair that fails the reason is
    told, and the others go on; the exit code is 3 then.

    Such as:
    bft-replay xi measure trainings.csv -o measured --devices 0
    bft-replay xi measure trainings.csv -o measured --pairs again.csv --again
    """
    from bft.models.measure.co_runs import (
        PROFILES,
        XI,
        Collection,
        Plan,
        read_configurations,
        read_pairs,
    )
    from bft.models.measure.gpu_usage import Gauge, find_tool

    configurations = read_configurations(table)
    wanted = list(combinations_with_replacement(configurations, 2))
    if pairs is not None:
        wanted = read_pairs(pairs, configurations)
    plan = Plan(**rounds, devices=tuple(dict.fromkeys(devices or ())))
    read, gauge = find_tool(gpu), None
    if read is not None:
        gauge = Gauge(read, plan.devices, 1.0)
        gauge.once()
    elif gpu != "none":
        why = "no GPU can be read here (nvidia-smi, rocm-smi)"
        say_note(f"{why}: utilisation and memory are not measured")
    collection = Collection(output, units or len(plan.devices) or None, _write_csv)
    todo = [pair for pair in wanted if again or not collection.done(pair)]
    if len(todo) < len(wanted):
        before = f"{len(wanted) - len(todo)} of {len(wanted)} pairs"
        say_note(f"{output}: {before} have been measured before")
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
    done = f"{sum(map(collection.done, wanted))} of {len(wanted)} pairs measured"
    profiles = f"profiles of trainings alone in {PROFILES}"
    click.echo(f"{Path(output) / XI}: {done}; {profiles}")
    if failures:
        click.echo(f"{failures} pairs failed; the same command tries them again")
    return EXIT_DEGRADED if failures else 0


def _write_csv(frame: pd.DataFrame, output: str | Path) -> None:
    with drafted(output) as draft:
        frame.to_csv(draft, index=False)
