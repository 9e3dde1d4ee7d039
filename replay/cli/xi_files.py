"""What the commands on xi tables share: the options of measuring, and how tables are written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.models.atomic_files import drafted
from bft.models.checks import MAX_LIMIT_S
from bft.replay.cli.messages import say_note
from bft.replay.cli.parameters import Finite, OneOf, Seconds, together

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
