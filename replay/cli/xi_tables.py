"""`bft-replay xi collect|merge|memory`: whole tables, measured, repaired and summed up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.models.atomic_files import drafted, refuse_existing
from bft.models.checks import MAX_LIMIT_S
from bft.replay.cli.messages import say_note, say_progress
from bft.replay.cli.parameters import Finite, NamesWholeOption, OneOf, Seconds, together

if TYPE_CHECKING:
    import pandas as pd

    from bft.models.sharing.co_runs import Plan
    from bft.models.sharing.gpu_usage import Gauge


pattern_option = click.option(
    "--pattern",
    metavar="NAME|REGEX",
    help="How to find step times in output: the name of a form, such as keras, or a regular expression with a group "
    "seconds, ms, steps_per_s, samples_per_s or time. [the first form that fits]",
)
_PLAN = (
    "repeats",
    "steps",
    "at_least_s",
    "warmup",
    "time_limit_s",
    "pattern",
    "confidence",
)


def _devices(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")] if value else []
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise click.BadParameter(
            f"expected numbers of GPUs with commas between, not {value!r}", ctx, param
        )
    return tuple(dict.fromkeys(map(int, parts)))


measuring_options = together(
    click.option(
        "--repeats",
        type=click.IntRange(min=2),
        default=3,
        show_default=True,
        help="Rounds of A alone, B alone, both together.",
    ),
    click.option(
        "--steps",
        type=click.IntRange(min=1),
        default=50,
        show_default=True,
        help="Least step times of each run.",
    ),
    click.option(
        "--at-least",
        "at_least_s",
        type=Seconds(zero=True, high=MAX_LIMIT_S),
        default=5.0,
        show_default=True,
        help="Seconds over which they are read: jobs that take turns need many turns.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        help="Step times at the start of each run that do not count.",
    ),
    click.option(
        "--time-limit",
        "time_limit_s",
        type=Seconds(high=MAX_LIMIT_S),
        default=600.0,
        show_default=True,
        help="Seconds that a run may take.",
    ),
    click.option(
        "--confidence",
        type=Finite(min=0.5, max=0.9999),
        default=0.95,
        show_default=True,
        help="Of the intervals.",
    ),
    pattern_option,
    click.option(
        "--units",
        type=Finite(min=0, min_open=True),
        help="Units that they share. [the number of --devices]",
    ),
    click.option(
        "--gpu",
        "tool",
        type=OneOf(["auto", "nvml", "nvidia-smi", "rocm-smi", "none"]),
        default="auto",
        show_default=True,
        help="What reads the GPUs while a command runs alone.",
    ),
    click.option(
        "--devices",
        callback=_devices,
        metavar="N,N",
        help="GPUs that both use, and that are read. [all, read all]",
    ),
    click.option(
        "--sample-every",
        "every_s",
        type=Seconds(high=MAX_LIMIT_S),
        default=1.0,
        show_default=True,
        help="Seconds between two samples of the GPUs.",
    ),
)


def plan_of(given: dict[str, Any]) -> Plan:
    """Return the plan of measurement that the options state."""
    from bft.models.sharing.co_runs import Plan

    return Plan(**{name: given[name] for name in _PLAN}, devices=given["devices"])


def gauge_of(given: dict[str, Any]) -> Gauge | None:
    """Return the gauge that reads the GPUs; None, and a note, where no tool does.

    Raises
    ------
    InputError
        When the tool or a device that is asked for cannot be used.
    """
    from bft.models.sharing.gpu_usage import Gauge, find_tool

    read = find_tool(given["tool"])
    if read is None:
        if given["tool"] != "none":
            say_note(
                "no GPU can be read here (NVML, nvidia-smi, rocm-smi): utilisation and memory are not measured"
            )
        return None
    gauge = Gauge(read, given["devices"], given["every_s"])
    gauge.once()
    return gauge


def units_of(given: dict[str, Any]) -> float | None:
    """Return the number of units that two commands share."""
    return (
        given["units"] if given["units"] is not None else len(given["devices"]) or None
    )


def writable(output: str) -> str:
    """The suffix of a file to which a xi table can be written; InputError for others."""
    suffix = Path(output).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise InputError("a xi table is written as .csv or .parquet", file=output)
    return suffix


def write_xi(frame: pd.DataFrame, output: str) -> None:
    """Write a xi table; ratios to six decimals, whole batch sizes and units as such."""
    from bft.models.tables import write_parquet

    suffix = writable(output)
    for name in frame.columns.intersection(["batch_a", "batch_b", "units"]):
        if (frame[name].dropna() % 1 == 0).all():
            frame[name] = frame[name].astype("Int64")
    ratios = [name for name in frame.columns if str(name).startswith("xi_")]
    frame[ratios] = frame[ratios].round(6)
    with drafted(output) as draft:
        if suffix == ".parquet":
            write_parquet(frame, draft)
        else:
            frame.to_csv(draft, index=False)


EXIT_INCOMPLETE = 3


@contextmanager
def interruptible() -> Iterator[None]:
    """Let signals end what the block has started: a shell's background job is born ignoring SIGINT."""
    stops = (signal.SIGINT, signal.SIGTERM)
    before_us = [signal.signal(number, signal.default_int_handler) for number in stops]
    try:
        yield
    finally:
        for number, handler in zip(stops, before_us, strict=True):
            signal.signal(number, handler)


@click.command(
    cls=NamesWholeOption,
    short_help="Measure xi of a whole table of trainings; resumable.",
)
@click.argument("table", metavar="TRAININGS")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    required=True,
    help="Folder of xi.csv, profiles.csv and failed.csv.",
)
@click.option(
    "--pairs",
    metavar="FILE",
    help="Only these pairs, as xi check --retest writes them. [all pairs]",
)
@click.option(
    "--again",
    is_flag=True,
    help="Measure also pairs that are in xi.csv: a further row each.",
)
@click.option("--retry", is_flag=True, help="Try pairs again that failed before.")
@measuring_options
def collect(
    table: str, output: str, pairs: str | None, again: bool, retry: bool, **given: Any
) -> None:
    """Measure each pair of TRAININGS, a table with the columns model, command and, optionally, batch.

    {batch} in a command stands for the batch size. What is measured is kept after each pair; the same command goes on
    from there. Both commands of a pair run on the same --devices. A pair that fails is kept in failed.csv with the
    reason, and the others go on; the exit code is 3 then.
    """
    from bft.models.sharing.collecting import (
        FAILED,
        PROFILES,
        XI,
        Collection,
        all_pairs,
        read_configurations,
        read_pairs,
    )

    configurations = read_configurations(table)
    wanted = (
        all_pairs(configurations)
        if pairs is None
        else read_pairs(pairs, configurations)
    )
    plan, gauge = plan_of(given), gauge_of(given)
    folder = Path(output)
    collection = Collection(folder, units_of(given), _replace)
    todo = [
        pair
        for pair in wanted
        if (again or not collection.done(pair))
        and (retry or again or not collection.failed(pair))
    ]
    if len(todo) < len(wanted):
        say_note(
            f"{folder}: {len(wanted) - len(todo)} of {len(wanted)} pairs have been measured, or failed, before"
        )
    with interruptible():
        for number, pair in enumerate(todo, start=1):
            prefix = f"pair {number} of {len(todo)}, {pair[0]} beside {pair[1]}: "
            failed = collection.measure(
                pair,
                plan,
                lambda text, prefix=prefix: say_progress(prefix + text),  # type: ignore[misc]
                gauge,
            )
            if failed is not None:
                say_note(f"{prefix}{failed}")
    failures = [pair for pair in wanted if collection.failed(pair)]
    done = sum(collection.done(pair) for pair in wanted)
    click.echo(
        f"{folder / XI}: {done} of {len(wanted)} pairs measured; profiles of trainings alone in {PROFILES}"
    )
    if failures:
        click.echo(
            f"{folder / FAILED}: {len(failures)} pairs failed; --retry tries them again"
        )
        click.get_current_context().exit(EXIT_INCOMPLETE)


@click.command(
    cls=NamesWholeOption, short_help="Replace rows of a xi table by newer measurements."
)
@click.argument("old", metavar="TABLE")
@click.argument("new", metavar="NEW")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Where to write the table: .csv or .parquet.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace the output if it exists; it may be TABLE itself.",
)
def merge(old: str, new: str, output: str, force: bool) -> None:
    """Put the rows of NEW in the place of TABLE's rows of the same pair, either way round; new pairs follow.

    The same pair means the same models, batch sizes and units.
    """
    from bft.models import read_table
    from bft.models.sharing.xi_repairs import merge_xi

    writable(output)
    refuse_existing(output, force=force)
    merged = merge_xi(read_table(old), read_table(new), old_source=old, new_source=new)
    write_xi(merged.frame, output)
    click.echo(
        f"{output}: {len(merged.frame)} rows; {merged.replaced} replaced, {merged.added} added"
    )


@click.command(cls=NamesWholeOption, short_help="Make a memory table of profiles.")
@click.argument("profiles", metavar="PROFILES...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Where to write the table: .csv.",
)
@click.option("--force", is_flag=True, help="Replace the table if it exists.")
def memory(profiles: tuple[str, ...], output: str, force: bool) -> None:
    """Make the table that --memory-table takes: the largest memory by model and batch size in PROFILES.

    Columns: model, batch, memory_gib, as xi collect writes them. Rows without memory are left out.
    """
    import pandas as pd

    from bft.models import read_table
    from bft.models.cells import Rows
    from bft.models.sharing.unit_memory import COLUMNS, unit_memory_from_frame

    refuse_existing(output, force=force)
    rows, without = [], 0
    for path in profiles:
        for row in Rows(read_table(path), path).require(
            ("model",), ("batch", "memory_gib")
        ):
            gib = row.number(
                "memory_gib", 0.0, min=0
            )  # 0: none above what was in use before
            if gib and row.given("batch"):
                rows.append((row.name("model"), row.number("batch", above=0), gib))
            else:
                without += 1
    if without:
        say_note(f"{without} rows state no batch size or no memory, and are left out")
    if not rows:
        hint = "xi collect measures memory where it can read a GPU"
        raise InputError(
            "no row states model, batch and memory_gib", file=profiles[0], hint=hint
        )
    curves = unit_memory_from_frame(pd.DataFrame(rows, columns=list(COLUMNS))).curves
    table = [
        (model, batch, gib)
        for model, each in curves.items()
        for batch, gib in zip(each.batches, each.gib, strict=True)
    ]
    with drafted(output) as draft:
        pd.DataFrame(table, columns=list(COLUMNS)).to_csv(draft, index=False)
    click.echo(f"{output}: {len(table)} batch sizes of {len(curves)} models")


def _replace(frame: pd.DataFrame, path: Path) -> None:
    with drafted(path) as draft:
        frame.to_csv(draft, index=False)
