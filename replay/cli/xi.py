"""`bft-replay xi build|check|show|measure`, and the group of all commands on xi tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models.atomic_files import drafted, refuse_existing
from bft.replay.cli.help import Group
from bft.replay.cli.messages import say_note, say_progress
from bft.replay.cli.parameters import Finite, NamesWholeOption, OneOf
from bft.replay.cli.xi_tables import (
    collect,
    gauge_of,
    interruptible,
    measuring_options,
    memory,
    merge,
    pattern_option,
    plan_of,
    units_of,
    writable,
    write_xi,
)

if TYPE_CHECKING:
    import pandas as pd

    from bft.models.sharing.co_runs import Slowdown
    from bft.models.sharing.xi_repairs import Grid, Suspect

# Beyond it a ratio is named: two jobs that only take turns slow down twofold.
IMPLAUSIBLE = 5.0
LISTED = 10


@click.group(cls=Group)
def xi() -> None:
    """How much jobs on shared units slow each other down: measure it, make a table of it, look at the table."""


@xi.command(
    cls=NamesWholeOption,
    short_help="Make a xi table from solo and co-run measurements.",
)
@click.argument("files", metavar="MEASUREMENTS...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Where to write the table: .csv or .parquet.",
)
@click.option("--for", "jobs", metavar="JOBS", help="Also estimate what these jobs need without a measurement: a table "
              "with the columns model and, optionally, batch_size (a job table is one).")  # fmt: skip
@click.option("--guess/--no-guess", default=True, show_default=True,
              help="With --for: whether to estimate also models that never met.")  # fmt: skip
@click.option("--warmup", type=click.IntRange(min=0), default=10, show_default=True,
              help="Steps at the start of a log that do not count.")  # fmt: skip
@pattern_option
@click.option("--force", is_flag=True, help="Replace the table if it exists.")
def build(
    files: tuple[str, ...],
    output: str,
    jobs: str | None,
    guess: bool,
    warmup: int,
    pattern: str | None,
    force: bool,
) -> None:
    """Make a xi table from MEASUREMENTS: step times (or logs) of jobs alone and in pairs, or ratios.

    Columns: model_a, batch_a, model_b, batch_b, units; and step_a_s, step_b_s (seconds a step), or log_a, log_b
    (files), or xi_a, xi_b. A row without model_b is a solo run. docs/models.md shows examples.
    """
    from bft.models.sharing.xi_estimator import XiEstimator
    from bft.models.sharing.xi_measurements import read_measurements, xi_to_frame

    refuse_existing(output, force=force)
    measured = read_measurements(files, pattern=pattern, warmup=warmup)
    for note in measured.notes:
        say_note(note)
    if measured.clipped:
        say_note(f"{measured.clipped} xi below 1 are measurement noise and count as 1")
    rows = list(measured.measurements)
    summary = f"{len(rows)} pairs measured"
    if measured.rows > len(rows):
        summary += f" ({measured.rows} rows, of repetitions the median)"
    if jobs is not None:
        kinds, estimator = _kinds(jobs), XiEstimator(rows)
        unknown = sorted({model for model, _ in kinds} - set(estimator.models))
        filled = estimator.fill(kinds, guess=guess)
        if unknown:
            say_note(
                f"never measured, so only guesses are possible: {_listing(unknown)}"
            )
        counts = Counter(row.flag for row in filled)
        summary += f", {len(filled)} estimated" + "".join(
            f", {counts[flag]} {flag}" for flag in sorted(counts)
        )
        rows += filled
    write_xi(xi_to_frame(rows), output)
    click.echo(f"{output}: {summary}")


@xi.command(
    cls=NamesWholeOption, short_help="Validate a xi table and report what it lacks."
)
@click.argument("file", metavar="XI")
@click.option("--implausible", type=Finite(min=1), default=IMPLAUSIBLE, show_default=True,
              help="Name ratios above this.")  # fmt: skip
@click.option(
    "--retest",
    metavar="FILE",
    help="Write the pairs to measure again, for xi collect --pairs: .csv.",
)
@click.option("--force", is_flag=True, help="Replace that file if it exists.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with full lists.")
def check(
    file: str, implausible: float, retest: str | None, force: bool, as_json: bool
) -> None:
    """Validate a xi table: pairs, missing pairs, ratios that differ by side, below 1, or implausibly high.

    With --retest, rows with such ratios are named, and a table of their pairs is written: `xi collect --pairs` measures
    them again, `xi merge` puts the answers in their place.
    """
    from bft.models import read_xi
    from bft.models.sharing.xi_repairs import check_xi, suspects

    if retest is not None:
        refuse_existing(retest, force=force)
    table = read_xi(file)
    result = check_xi(table, implausible)
    if retest is not None:
        suspicious = suspects(table, implausible)
        result["retest"] = [
            {"row": each.row, "reason": each.reason} for each in suspicious
        ]
        _write_retest(file, suspicious, retest)
    if as_json:
        click.echo(json.dumps(result, indent=2))
        return
    estimated = ", ".join(
        f"{count} {flag}" for flag, count in result["estimated"].items()
    )
    missing = [f"{a} + {b}" for a, b in result["missing_pairs"]]
    asymmetric = [
        f"{entry['victim']} beside {entry['partner']} {entry['least']:.3g} to {entry['most']:.3g}"
        for entry in result["asymmetric"]
    ]
    high = [
        f"{entry['victim']} beside {entry['partner']} {entry['xi']:.3g}"
        for entry in result["implausible"]
    ]
    for label, value in (
        (
            "rows",
            f"{result['rows']:,}"
            + (f" (not measured: {estimated})" if estimated else ""),
        ),
        (
            "models",
            f"{result['models']:,}, with batch sizes {result['configurations']:,}",
        ),
        ("pairs of models", f"{result['pairs']:,} of {result['possible_pairs']:,}"),
        ("missing pairs", _counted(missing)),
        ("below 1", f"{result['clipped']:,} ratios, which count as 1"),
        ("asymmetric", _counted(asymmetric)),
        (f"above {implausible:g}", _counted(high)),
    ):
        click.echo(f"{label:<17}{value}")


def _write_retest(file: str, found: Sequence[Suspect], output: str) -> None:
    """Name the rows, and write their pairs."""
    from bft.models.sharing.xi_repairs import retest_frame

    frame = retest_frame(found)
    with drafted(output) as draft:
        frame.to_csv(draft, index=False)
    for suspect in found[:LISTED]:
        say_note(f"{file}: row {suspect.row}: {suspect.reason}")
    more = f"; the first {LISTED} are named here" if len(found) > LISTED else ""
    say_note(
        f"{output}: {len(frame)} pairs to measure again, of {len(found)} rows{more}"
    )


@xi.command(cls=NamesWholeOption, short_help="Heat map of a xi table.")
@click.argument("file", metavar="XI")
@click.option("--by", type=OneOf(["model", "batch"]), default="model", show_default=True,
              help="One row per model, or per model and batch size.")  # fmt: skip
@click.option(
    "--png",
    metavar="FILE",
    help="Draw it into a PNG file instead (needs the extra `report`).",
)
def show(file: str, by: str, png: str | None) -> None:
    """Draw a xi table: how many times as long an iteration of the row's model takes beside the column's."""
    from bft.models import read_xi
    from bft.models.sharing.xi_repairs import grid, write_png

    shown = grid(read_xi(file), by_batch=by == "batch")
    if png is None:
        _print(shown)
        return
    with drafted(png) as draft:
        write_png(shown, draft)
    click.echo(f"{png}: {len(shown.names)} x {len(shown.names)}")


@xi.command(
    cls=NamesWholeOption,
    short_help="Measure xi of two commands.",
    context_settings={
        "ignore_unknown_options": False,
        "allow_interspersed_args": False,
    },
)
@click.argument(
    "commands",
    metavar="-- CMD_A -- CMD_B",
    nargs=-1,
    type=click.UNPROCESSED,
    required=True,
)
@measuring_options
@click.option("--model-a", metavar="NAME", help="What command A trains. [A]")
@click.option("--model-b", metavar="NAME", help="What command B trains. [B]")
@click.option("--batch-a", type=Finite(min=0, min_open=True), help="Batch size of A.")
@click.option("--batch-b", type=Finite(min=0, min_open=True), help="Batch size of B.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Add the ratios to this xi table (.csv or .parquet).",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def measure(
    commands: tuple[str, ...], output: str | None, as_json: bool, **given: Any
) -> None:
    """Run two commands alone and together, read step times from their output, and report xi with an interval.

    Write each command after a double dash: bft-replay xi measure --steps 30 -- python a.py -- python b.py
    """
    from bft.models.sharing.co_runs import measure

    pair = _two(commands)
    if output is not None and (given["model_a"] is None or given["model_b"] is None):
        raise click.UsageError(
            "-o needs --model-a and --model-b: rows of a xi table name their models"
        )
    before = None if output is None else _earlier(output)
    plan, gauge = plan_of(given), gauge_of(given)
    with interruptible():
        sides = measure(pair, plan, say_progress, gauge)
    given["units"] = units_of(given)
    row = _row(sides, given)
    if output is not None:
        _add(before, row, output)
    if as_json:
        click.echo(
            json.dumps(
                {**row, "a": _details(sides[0]), "b": _details(sides[1])}, indent=2
            )
        )
        return
    for name, other, side in (("a", "b", sides[0]), ("b", "a", sides[1])):
        victim, partner = (
            given[f"model_{who}"] or who.upper() for who in (name, other)
        )
        noise = f" (measured {side.raw:.3f}: noise)" if side.raw < 1 else ""
        click.echo(
            f"{victim} beside {partner}: xi {side.xi:.3f}{noise}, {given['confidence']:.4g} interval "
            f"{side.low:.3f} to {side.high:.3f}"
        )
        if side.usage is not None:
            used = side.usage
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


def _row(sides: tuple[Slowdown, Slowdown], given: dict[str, Any]) -> dict[str, Any]:
    """A row of a xi table, with the intervals and how often it was measured."""
    row = {
        name: given[name]
        for name in ("model_a", "batch_a", "model_b", "batch_b", "units")
    }
    for name, side in zip(("xi_a", "xi_b"), sides, strict=True):
        row |= {name: side.xi, f"{name}_low": side.low, f"{name}_high": side.high}
    return row | {"repeats": given["repeats"]}


def _details(side: Slowdown) -> dict[str, Any]:
    usage = {} if side.usage is None else {"usage": asdict(side.usage)}
    return {
        "raw": side.raw,
        "alone_s": side.alone_s,
        "shared_s": side.shared_s,
        **usage,
    }


def _earlier(output: str) -> pd.DataFrame | None:
    """Return the rows of a xi table that is to grow; a file of another kind is refused before anything runs."""
    from bft.models import read_table, xi_from_frame

    writable(output)
    if not Path(output).exists():
        return None
    frame = read_table(output)
    xi_from_frame(frame, source=output)
    return frame


def _add(before: pd.DataFrame | None, row: dict[str, Any], output: str) -> None:
    import pandas as pd

    old = [] if before is None else before.to_dict(orient="records")
    frame = pd.DataFrame([*old, row])
    empty = [
        name for name in ("batch_a", "batch_b", "units") if frame[name].isna().all()
    ]
    write_xi(frame.drop(columns=empty), output)


def _kinds(path: str) -> list[tuple[str, float | None]]:
    """Models and batch sizes that a table of jobs names."""
    from bft.models import read_table
    from bft.models.cells import Rows

    rows = Rows(read_table(path), path).require(("model",), ("batch_size",))
    named = [row for row in rows if row.given("model")]
    if not named:
        raise rows.error("no row names a model", column="model")
    return sorted(
        {(row.name("model"), row.number("batch_size", None, above=0)) for row in named},
        key=str,
    )


def _print(shown: Grid) -> None:
    """A table on a terminal: as many columns at a time as fit, numbered as the rows are."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    widest = max(map(len, shown.names)) + 6
    at_once = max(1, (console.width - widest) // 7)
    for first in range(0, len(shown.names), at_once):
        columns = range(first, min(first + at_once, len(shown.names)))
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("xi of, beside", no_wrap=True)
        for column in columns:
            table.add_column(str(column + 1), justify="right", no_wrap=True)
        for row, name in enumerate(shown.names):
            cells = []
            for column in columns:
                ratio = shown.ratios[row, column]
                text = (
                    "-"
                    if np.isnan(ratio)
                    else f"{'~' if shown.estimated[row, column] else ''}{ratio:.2f}"
                )
                cells.append(Text(text, style=_colour(ratio)))
            table.add_row(f"{row + 1:>3} {name}", *cells)
        console.print(table)
    if shown.estimated.any():
        console.print("~ estimated")


def _colour(ratio: float) -> str:
    from bft.models.sharing.xi_repairs import PAYS, TURNS

    if ratio != ratio:
        return "dim"
    return (
        "green"
        if ratio < (1 + PAYS) / 2
        else "yellow"
        if ratio < PAYS
        else "red"
        if ratio < TURNS
        else "bold red"
    )


def _counted(entries: Sequence[str]) -> str:
    return f"{len(entries):,}" + (f": {_listing(entries)}" if entries else "")


def _listing(entries: Sequence[str]) -> str:
    more = f", and {len(entries) - LISTED} more" if len(entries) > LISTED else ""
    return ", ".join(entries[:LISTED]) + more


for further in (collect, memory, merge):
    xi.add_command(further)
