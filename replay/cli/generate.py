"""`bft-replay generate`: synthetic node traces, job tables and scheduler logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import click

from bft.models import InputError
from bft.models.checks import Name, Number, seconds
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.groups import Command, Group
from bft.replay.cli.parameters import Checked, force_option, output_option, seed_option

ScenarioName = Literal["mix", "hpo", "nas", "llm"]


@click.group(cls=Group)
def generate() -> None:
    """Make a synthetic node trace or job table, calibrated to the Summit log of February 2021; or a scheduler's log."""


@generate.command(cls=Command, name="trace", short_help="A Summit-like node trace.")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Size of the machine.",
)
@click.option(
    "--days",
    type=Checked(Number(0, above=True)),
    default=2.0,
    show_default=True,
    help="Length.",
)
@seed_option("Same seed, same trace.")
@click.option(
    "--start", default="2021-02-10", show_default=True, help="First day (UTC)."
)
@output_option("Target: .parquet, .csv or .csv.gz.")
@force_option()
def node_trace(
    nodes: int, days: float, seed: int, start: str, output: str, force: bool
) -> None:
    """Make a node trace like Summit's, of any size and length."""
    from bft.datasets import generate_node_trace
    from bft.replay.trace.trace_files import trace_from_frame, write_trace

    refuse_existing(output, force=force)
    with _in_range("--start, --days"):
        table = generate_node_trace(nodes=nodes, days=days, seed=seed, start=start)
        made = trace_from_frame(table.frame, metadata=table.metadata)
    write_trace(made, output)
    click.echo(f"{output}: {nodes} nodes, {len(made)} events")


@generate.command(cls=Command, name="jobs", short_help="A table of DNN trainings.")
@click.option("--scenario", type=Checked(Name(("mix", "hpo", "nas", "llm"))), default="mix", show_default=True,
              help="mix: seven DNNs in turn; hpo: identical trials of a search; nas: a search's first generation; "
              "llm: few wide jobs with start-ups of minutes.")  # fmt: skip
@click.option(
    "--jobs",
    "count",
    type=click.IntRange(min=1),
    help="How many. [mix 1001, hpo 100, nas 20, llm 5]",
)
@seed_option("Same seed, same jobs.")
@click.option(
    "--first-submit",
    required=True,
    metavar="TIME",
    help="When the first job is submitted (UTC).",
)
@click.option("--interval", "interval_s", type=Checked(seconds(zero=True)),
              help="Seconds between submissions. [mix 36, llm 3600, else 0]")  # fmt: skip
@click.option(
    "--pmax",
    type=Checked(Number(0, above=True)),
    help="Work of a job, samples. [1.3e8; llm 2e9]",
)
@click.option("--objective", type=Checked(Name(("throughput", "efficiency"))), default="throughput", show_default=True,
              help="What the jobs optimise.")  # fmt: skip
@click.option(
    "--model",
    help="The network whose curve all jobs have. [hpo ShuffleNet, nas MnasNet, llm VGG16]",
)
@click.option("--curve", metavar="FILE",
              help="Measured throughputs (model, units, throughput) of all jobs; --model picks one.")  # fmt: skip
@click.option("--trace", metavar="FILE",
              help="Node trace: jobs ask (Jreq) for at most half of the units that are idle on average.")  # fmt: skip
@output_option("Target: .parquet, .csv or .jsonl.")
@force_option()
def job_table(
    scenario: ScenarioName,
    curve: str | None,
    model: str | None,
    count: int | None,
    trace: str | None,
    output: str,
    force: bool,
    **given: Any,
) -> None:
    """Make a table of trainings with measured scalability: a mix, a search's trials or members, or large models."""
    from bft.datasets import generate_dnn_jobs
    from bft.datasets.dnn_jobs import SCENARIOS
    from bft.models import jobs_from_frame
    from bft.models.job_tables import write_jobs
    from bft.replay.trace.trace_files import read_trace
    from bft.replay.trace.trace_statistics import half_of_idle

    refuse_existing(output, force=force)
    points = None
    if curve is not None:
        model, points = _measured(curve, model)
    with _in_range("--first-submit, --interval, --jobs"):
        frame = generate_dnn_jobs(
            scenario, jobs=count, model=model, curve=points, **given
        )
    made = jobs_from_frame(frame)
    if trace is not None:
        made = made.asking_at_most(half_of_idle(read_trace(trace)))
    with drafted(output) as draft:
        write_jobs(made, draft)
    click.echo(f"{output}: {len(made)} jobs")
    if SCENARIOS[scenario]["replay"]:
        click.echo(f"replay them with {SCENARIOS[scenario]['replay']}")


def _measured(path: str, model: str | None) -> tuple[str, dict[int, float]]:
    """The median throughput by units of the only model in a table, or of the one that is named."""
    from bft.models import read_throughputs

    by_model = {each.model: each for each in read_throughputs(path)}
    if model is None and len(by_model) > 1:
        raise InputError(
            f"holds {len(by_model)} models: choose one by --model",
            file=path,
            column="model",
        )
    name = next(iter(by_model)) if model is None else model
    if name not in by_model:
        raise InputError(
            f"has no model {name!r}, but {', '.join(by_model)}",
            file=path,
            column="model",
        )
    measured = by_model[name]
    return name, dict(
        zip(map(int, measured.sizes()), map(float, measured.medians()), strict=True)
    )


@generate.command(cls=Command, name="log", short_help="A scheduler's log.")
@click.argument(
    "scheduler", type=Checked(Name(("slurm", "pbs", "lsf", "sge", "cobalt", "flux")))
)
@click.option(
    "--nodes",
    type=click.IntRange(min=2),
    default=64,
    show_default=True,
    help="Size of the machine.",
)
@click.option(
    "--days",
    type=Checked(Number(0, 366, above=True)),
    default=3.0,
    show_default=True,
    help="Length.",
)
@seed_option("Same seed, same jobs.")
@click.option("--gpus-per-node", type=click.IntRange(min=1, max=1024), default=None, metavar="N",
              help="slurm: jobs want GPUs, some of one node or all of several, for `ingest --unit gpu`.")  # fmt: skip
@output_option("Target, a text file.")
@force_option()
def scheduler_log(
    scheduler: str,
    nodes: int,
    days: float,
    seed: int,
    gpus_per_node: int | None,
    output: str,
    force: bool,
) -> None:
    """Make a log as SCHEDULER writes it, of a machine that is made up: to try `bft-replay ingest` on.

    slurm is what `sacct -P` prints, pbs and sge are accounting files, lsf is lsb.acct, cobalt is ALCF's job table,
    flux is what `flux jobs -o` prints.
    """
    from bft.datasets import generate_log

    refuse_existing(output, force=force)
    how: dict[str, Any] = {
        "seed": seed,
        "gpus_per_node": gpus_per_node or 0,
    }
    text = generate_log(scheduler, nodes=nodes, days=days, **how)
    with drafted(output) as draft:
        draft.write_text(text, encoding="utf-8")
    click.echo(
        f"{output}: log of {nodes} nodes for {days:g} days, {len(text.splitlines()):,} lines, synthetic"
    )


@contextmanager
def _in_range(options: str) -> Iterator[None]:
    """Refuse times that a table in nanoseconds cannot hold."""
    from pandas.errors import OutOfBoundsDatetime, OutOfBoundsTimedelta

    beyond = (OutOfBoundsDatetime, OutOfBoundsTimedelta, OverflowError)
    try:
        yield
    except (*beyond, InputError) as error:
        if isinstance(error, InputError) and not isinstance(error.__cause__, beyond):
            raise
        raise InputError(
            f"{options}: the times leave the years 1678 to 2261"
        ) from error
