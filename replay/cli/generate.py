"""`bft-replay generate`: synthetic node traces, job tables and scheduler logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import click

from bft.models import InputError
from bft.replay.cli.help import Group
from bft.replay.cli.output import drafted
from bft.replay.cli.parameters import Command, Finite, OneOf, Seconds

Objective = Literal["throughput", "efficiency"]


@click.group(cls=Group)
def generate() -> None:
    """Make a synthetic node trace or job table, calibrated to the Summit log of February 2021; or a scheduler's log."""


@generate.command(cls=Command, name="trace", short_help="A Summit-like node trace.")
@click.option("--nodes", type=click.IntRange(min=1), default=512, show_default=True, help="Size of the machine.")
@click.option("--days", type=Finite(min=0, min_open=True), default=2.0, show_default=True, help="Length.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same trace.")
@click.option("--start", default="2021-02-10", show_default=True, help="First day (UTC).")
@click.option("-o", "--output", metavar="FILE", required=True, help="Target: .parquet, .csv or .csv.gz.")
def node_trace(nodes: int, days: float, seed: int, start: str, output: str) -> None:
    """Make a node trace like Summit's, of any size and length."""
    from bft.datasets import generate_node_trace
    from bft.replay.trace.trace_files import trace_from_frame, write_trace

    _refuse_existing(output)
    with _in_range("--start, --days"):
        table = generate_node_trace(nodes=nodes, days=days, seed=seed, start=start)
        made = trace_from_frame(table.frame, metadata=table.metadata)
    with drafted(output) as draft:
        write_trace(made, draft)
    click.echo(f"{output}: {nodes} nodes, {len(made)} events")


@generate.command(cls=Command, name="jobs", short_help="A table of DNN trainings.")
@click.option("--jobs", "count", type=click.IntRange(min=1), default=1001, show_default=True, help="How many.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same jobs.")
@click.option("--first-submit", required=True, metavar="TIME", help="When the first job is submitted (UTC).")
@click.option("--interval", "interval_s", type=Seconds(zero=True), default=36.0, show_default=True,
              help="Seconds between submissions.")  # fmt: skip
@click.option("--pmax", type=Finite(min=0, min_open=True), default=1.3e8, show_default=True,
              help="Work of a job, samples.")  # fmt: skip
@click.option("--objective", type=OneOf(["throughput", "efficiency"]), default="throughput", show_default=True,
              help="What the jobs optimise.")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", required=True, help="Target: .parquet, .csv or .jsonl.")
def job_table(
    count: int, seed: int, first_submit: str, interval_s: float, pmax: float, objective: Objective, output: str
) -> None:
    """Make a table of image-recognition trainings: seven DNNs with measured scalability."""
    from bft.datasets import generate_dnn_jobs
    from bft.models import jobs_from_frame
    from bft.models.job_files import write_jobs

    _refuse_existing(output)
    with _in_range("--first-submit, --interval, --jobs"):
        frame = generate_dnn_jobs(
            jobs=count, seed=seed, first_submit=first_submit, interval_s=interval_s, pmax=pmax, objective=objective
        )
    made = jobs_from_frame(frame)
    with drafted(output) as draft:
        write_jobs(made, draft)
    click.echo(f"{output}: {count} jobs")


@generate.command(cls=Command, name="log", short_help="A scheduler's log.")
@click.argument("scheduler", type=OneOf(["slurm", "pbs", "lsf", "sge", "cobalt", "flux"]))
@click.option("--nodes", type=click.IntRange(min=2), default=64, show_default=True, help="Size of the machine.")
@click.option("--days", type=Finite(min=0, min_open=True, max=366), default=3.0, show_default=True, help="Length.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Same seed, same jobs.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Target, a text file.")
def scheduler_log(scheduler: str, nodes: int, days: float, seed: int, output: str) -> None:
    """Make a log as SCHEDULER writes it, of a machine that is made up: to try `bft-replay ingest` on.

    slurm is what `sacct -P` prints, pbs and sge are accounting files, lsf is lsb.acct, cobalt is ALCF's job table,
    flux is what `flux jobs -o` prints.
    """
    from bft.datasets import generate_log

    _refuse_existing(output)
    text = generate_log(scheduler, nodes=nodes, days=days, seed=seed)
    with drafted(output) as draft:
        draft.write_text(text, encoding="utf-8")
    click.echo(f"{output}: log of {nodes} nodes for {days:g} days, {len(text.splitlines()):,} lines, synthetic")


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
        raise InputError(f"{options}: the times leave the years 1678 to 2261") from error


def _refuse_existing(output: str) -> None:
    if Path(output).exists():
        raise InputError("exists; remove it or choose another -o", file=output)
