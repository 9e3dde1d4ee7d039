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
from bft.replay.cli.messages import say_note, say_progress
from bft.replay.cli.parameters import NamesWholeOption
from bft.replay.cli.xi_files import (
    gauge_of,
    measuring_options,
    plan_of,
    units_of,
    writable,
    write_xi,
)

if TYPE_CHECKING:
    import pandas as pd

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
