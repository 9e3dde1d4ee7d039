"""`bft-replay generate`: synthetic node traces, job tables and scheduler logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import click

from bft.models import InputError
from bft.models.checks import TEXT, Name, Number, seconds, whole
from bft.models.files import drafted, refuse_existing
from bft.replay.cli.commands import Group
from bft.replay.cli.parameters import Checked, force_option, output_option, setting

SCHEDULERS = ("slurm", "pbs", "lsf", "sge", "cobalt", "flux")
seed_option = setting("--seed", "Same seed, same file.", whole(0), 0)


@click.group(cls=Group)
def generate() -> None:
    """Make a synthetic node trace or job table, calibrated to the Summit log of February 2021; or a scheduler's log.

    Such as:
    bft-replay generate trace --nodes 1024 --days 7 -o trace.parquet
    bft-replay generate log slurm -o sacct.txt
    """


@generate.command(name="trace")
@setting("--nodes", "Size of the machine.", whole(1), 512)
@setting("--days", "Length.", Number(0, above=True), 2.0)
@setting("--start", "First day (UTC).", TEXT, "2021-02-10")
@output_option("Target: .parquet, .csv or .csv.gz.")
@seed_option
@force_option
def node_trace(output: str, force: bool, **given: Any) -> None:
    """Make a node trace like Summit's, of any size and length.

    Such as:
    bft-replay generate trace -o trace.parquet
    bft-replay generate trace --nodes 1024 --days 7 --seed 1 -o trace.parquet
    """
    from bft.datasets import generate_node_trace
    from bft.replay.trace.trace_files import trace_from_frame, write_trace

    refuse_existing(output, force=force)
    with _in_range("--start, --days"):
        table = generate_node_trace(**given)
        made = trace_from_frame(table.frame, metadata=table.metadata)
    write_trace(made, output)
    click.echo(f"{output}: {given['nodes']} nodes, {len(made)} events")


@generate.command(name="jobs")
@setting(
    "--scenario",
    (
        "mix: seven DNNs in turn; hpo: identical trials of a search; nas: a search's first "
        "generation; llm: few wide jobs with start-ups of minutes."
    ),
    Name(("mix", "hpo", "nas", "llm")),
    "mix",
)
@setting("--jobs", "How many. [mix 1001, hpo 100, nas 20, llm 5]", whole(1))
@setting(
    "--first-submit",
    "When the first job is submitted (UTC).",
    metavar="TIME",
    required=True,
)
@setting(
    "--interval interval_s",
    "Seconds between submissions. [mix 36, llm 3600, else 0]",
    seconds(zero=True),
)
@setting("--pmax", "Work of a job, samples. [1.3e8; llm 2e9]", Number(0, above=True))
@setting(
    "--model",
    "The network whose curve all jobs have. [hpo ShuffleNet, nas MnasNet, llm VGG16]",
)
@setting(
    "--trace",
    "Node trace: jobs ask (Jreq) for at most half of the units that are idle on average.",
    metavar="FILE",
)
@output_option("Target: .parquet, .csv or .jsonl.")
@seed_option
@force_option
def job_table(
    scenario: Literal["mix", "hpo", "nas", "llm"],
    trace: str | None,
    output: str,
    force: bool,
    **given: Any,
) -> None:
    """Make a table of trainings with measured scalability: a mix, a search's trials or members, or large models.

    Such as:
    bft-replay generate jobs --first-submit 2021-02-10 -o jobs.parquet
    bft-replay generate jobs --jobs 60 --interval 1200 --first-submit 2021-02-10 -o jobs.csv
    """
    from bft.datasets import generate_dnn_jobs
    from bft.datasets.dnn_jobs import SCENARIOS
    from bft.models import jobs_from_frame
    from bft.models.job_tables import write_jobs
    from bft.replay.trace.trace_files import read_trace
    from bft.replay.trace.trace_statistics import half_of_idle

    refuse_existing(output, force=force)
    with _in_range("--first-submit, --interval, --jobs"):
        made = jobs_from_frame(generate_dnn_jobs(scenario, **given))
    if trace is not None:
        made = made.asking_at_most(half_of_idle(read_trace(trace)))
    with drafted(output) as draft:
        write_jobs(made, draft)
    click.echo(f"{output}: {len(made)} jobs")
    if SCENARIOS[scenario]["replay"]:
        click.echo(f"replay them with {SCENARIOS[scenario]['replay']}")


@generate.command(name="log")
@click.argument("scheduler", type=Checked(Name(SCHEDULERS)))
@setting("--nodes", "Size of the machine.", whole(2), 64)
@setting("--days", "Length.", Number(0, 366, above=True), 3.0)
@setting(
    "--gpus-per-node",
    "slurm: jobs want GPUs, some of one node or all of several, for `ingest --unit gpu`.",
    whole(1, 1024),
    metavar="N",
)
@output_option("Target, a text file.")
@seed_option
@force_option
def scheduler_log(
    scheduler: str,
    gpus_per_node: int | None,
    output: str,
    force: bool,
    **given: Any,
) -> None:
    """Make a log as SCHEDULER writes it, of a machine that is made up: to try `bft-replay ingest` on.

    slurm is what `sacct -P` prints, pbs and sge are accounting files, lsf is lsb.acct, cobalt is ALCF's job table,
    flux is what `flux jobs -o` prints.

    Such as:
    bft-replay generate log slurm -o sacct.txt
    bft-replay generate log pbs --nodes 256 --days 14 --seed 1 -o accounting
    """
    from bft.datasets import generate_log

    refuse_existing(output, force=force)
    text = generate_log(scheduler, gpus_per_node=gpus_per_node or 0, **given)
    with drafted(output) as draft:
        draft.write_text(text, encoding="utf-8")
    machine = f"log of {given['nodes']} nodes for {given['days']:g} days"
    lines = f"{len(text.splitlines()):,} lines, synthetic"
    click.echo(f"{output}: {machine}, {lines}")


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
