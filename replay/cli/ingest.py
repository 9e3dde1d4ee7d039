"""`bft-replay ingest`: from a scheduler's own logs to a node trace."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.models.checks import Name, seconds
from bft.models.files import drafted, refuse_existing, refuse_inputs
from bft.replay.cli.groups import Command
from bft.replay.cli.messages import quiet, say_warning
from bft.replay.cli.parameters import (
    Checked,
    force_option,
    json_option,
    output_option,
    together,
)
from bft.replay.cli.watcher import bar, console
from bft.replay.logs.records import FILTERS

if TYPE_CHECKING:
    from bft.replay.logs.ingest import IngestOptions
    from bft.replay.logs.records import Account
    from bft.replay.logs.trace import Coverage
    from bft.replay.trace.node_trace import NodeTrace


def _recipes() -> Iterator[str]:
    from bft.replay.cli.recipes import RECIPES

    yield from RECIPES


def _print_recipe(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> None:
    from bft.replay.cli.recipes import RECIPES

    if value is not None:
        click.echo(RECIPES[value], nl=False)
        ctx.exit()


def each_form() -> Iterator[str]:
    """Names of the formats of logs, auto first."""
    from bft.replay.logs.formats import each_format_name
    from bft.replay.logs.ingest import AUTO

    yield AUTO
    yield from each_format_name()


# What the logs are, and how they are read: options of all commands that read them.
log_options = together(
    click.option(
        "--nodes",
        metavar="FILE|LIST",
        multiple=True,
        help="Nodes of the machine: a host list such as "
        "cn[001-128], or what scontrol show node, sinfo, pbsnodes -a, bhosts or qhost print.",
    ),
    click.option(
        "--events",
        metavar="FILE",
        multiple=True,
        help="When nodes were down or drained: "
        "sacctmgr -P show event, or CSV with node,start,end,state.",
    ),
    click.option(
        "--reservations",
        metavar="FILE",
        multiple=True,
        help="When nodes were reserved: scontrol or sacctmgr -P show reservation.",
    ),
    click.option(
        "--tz",
        metavar="ZONE",
        help="Zone of times that state none, such as Europe/Berlin. [UTC, with a note]",
    ),
    click.option(
        "--from",
        "begin",
        metavar="TIME",
        help="Begin of the window of observation, in --tz. [when the first job ended]",
    ),
    click.option(
        "--to",
        "end",
        metavar="TIME",
        help="Its end, in --tz. [the last start of a job]",
    ),
    click.option(
        "--min-gap",
        "min_gap_s",
        type=Checked(seconds(zero=True)),
        default=10.0,
        show_default=True,
        help="Idle gaps shorter than this many seconds do not count as idle.",
    ),
    click.option(
        "--fields",
        metavar="A,B,...",
        default="",
        help="Names of the columns of a file without a header line, "
        "in sacct's words; xdmod for XDMoD's.",
    ),
    click.option(
        "--map",
        "columns",
        metavar="OURS=THEIRS,...|NAME",
        default="",
        help="Names of the columns of a table, "
        "CSV or Parquet, in those of FORMAT: intervals node=nodes,start=start_time,end=end_time; or the NAME of "
        "a public data set: alcf, lassen, frontier, kestrel, acme, pm100, adastra, fugaku, mit-supercloud, "
        "alibaba-2020.",
    ),
    click.option(
        "--delimiter",
        metavar="TEXT",
        default="",
        help="What separates columns. [as in the header]",
    ),
    together(
        *(
            click.option(
                f"--{name}",
                metavar="NAME",
                help=each.help,
            )
            for name, each in FILTERS.items()
        )
    ),
    click.option(
        "--processors-per-node",
        type=click.IntRange(min=1),
        help="For logs that count processors (SWF).",
    ),
    click.option(
        "--machine-nodes",
        type=click.IntRange(min=1),
        help="Size of the machine, for logs that name no nodes.",
    ),
    click.option(
        "--machine", metavar="NAME", default="", help="Name of the machine, for people."
    ),
    click.option(
        "--mtime",
        is_flag=True,
        help="snapshots: where nothing else states a snapshot's time, take "
        "that of the file's last change.",
    ),
    click.option(
        "--uncertain",
        metavar="unavailable|idle",
        default="unavailable",
        show_default=True,
        help="What time counts as of which the logs may not show what nodes did.",
    ),
    click.option(
        "--count-as",
        metavar="WORD=STATE,...",
        default="",
        help="What states of nodes count as "
        "(idle, busy, unavailable) instead, such as completing=idle,powered_down=idle.",
    ),
    click.option(
        "--completing",
        "completing_s",
        type=Checked(seconds(zero=True)),
        default=0.0,
        show_default=True,
        help="Seconds for which nodes complete when a job has ended (an epilog): busy so long.",
    ),
    click.option(
        "--strict", is_flag=True, help="Refuse the first row that would be skipped."
    ),
    click.option(
        "--allow-few",
        is_flag=True,
        help="Accept files of which fewer than half of the rows can be used, logs "
        "without any job, and windows that lie mostly outside the logs.",
    ),
)


def ingest_options(given: dict[str, Any], **more: Any) -> IngestOptions:
    """Return what `log_options` ask for; `more` are further options of ingest."""
    from bft.replay.logs.ingest import IngestOptions

    fields = tuple(name.strip() for name in given["fields"].split(",") if name.strip())
    delimiter = given["delimiter"].replace("\\t", "\t")
    return IngestOptions(**{**given, **more, "fields": fields, "delimiter": delimiter})


@click.command(cls=Command)
@click.argument("log_format", metavar="FORMAT", type=Checked(Name(each_form)))
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@output_option("Target: .parquet, .csv or .csv.gz.")
@log_options
@click.option("--unit", metavar="gpu|node|cpu:N", default="node", show_default=True, help="What turns idle: whole "
              "nodes, or each GPU or N cores of a node by itself (slurm, slurm-json, pbs, lsf).")  # fmt: skip
@click.option("--units-per-node", type=click.IntRange(min=1), help="Units (GPUs) of a node; with --unit of the nodes "
              "of which --nodes states none. [1]")  # fmt: skip
@click.option("--records", metavar="FILE", help="Write the table of records as well, .parquet or .csv: what each row "
              "states, and why it was not used.")  # fmt: skip
@json_option("The account of rows as JSON.")
@force_option()
@click.option("--recipe", metavar="SCHEDULER", type=Checked(Name(_recipes)), callback=_print_recipe, is_eager=True,
              expose_value=False, help="Print the commands that export what is needed and exit: slurm, pbs, lsf, sge, "
              "cobalt, flux, oar, htcondor, kubernetes, intervals, snapshots, ...")  # fmt: skip
def ingest(
    log_format: str,
    files: tuple[str, ...],
    output: str,
    records: str | None,
    as_json: bool,
    force: bool,
    **given: Any,
) -> None:
    """Make a node trace of a scheduler's logs, and report what they hold.

    FORMAT is one of slurm, slurm-json, pbs, lsf, lsf-events, sge, cobalt, swf, flux, oar, htcondor, kubernetes,
    intervals, snapshots, another package's (`bft-replay list formats`), or auto. FILEs may be compressed (gzip, xz,
    zstd, bzip2); - is standard input. A node is idle while no job runs on it and it is neither down, drained nor
    reserved, as far as --events and --reservations say. The machine's own jobs are written beside the trace, as
    TRACE.jobs.parquet.
    """
    from bft.replay.logs.ingest import ingested
    from bft.replay.trace.trace_files import write_trace

    target = Path(output)
    refuse_existing(target, force=force)
    if not target.name.lower().endswith((".parquet", ".csv", ".csv.gz")):
        raise InputError(
            "a node trace is written as .parquet, .csv or .csv.gz", file=target
        )
    read = [*files, *given["nodes"], *given["events"], *given["reservations"]]
    refuse_inputs(output, read)
    if records is not None:
        refuse_inputs(records, read)
        refuse_existing(records, force=force)
        if not records.lower().endswith((".parquet", ".csv")):
            raise InputError("records are written as .parquet or .csv", file=records)
    options = ingest_options(given, keep_records=records is not None)
    made = ingested(log_format, files, options, progress=_progress)
    for warning in made.account.warnings():
        say_warning(warning)
    write_trace(made.trace, target, force=force)
    if records is not None:
        _write_records(made.records, records)
    jobs = made.trace.host_jobs
    if as_json:
        account = {
            "output": output,
            **made.account.as_dict(),
            "coverage": made.coverage.as_dict(),
            **({} if jobs is None else {"host_jobs": jobs.counts()}),
        }
        click.echo(json.dumps(account, indent=2))
        return
    for line in _summary(made.trace, made.account, made.coverage):
        click.echo(line)
    units = f" of {made.trace.units:,} units" if made.trace.by_unit else ""
    click.echo(
        f"{output}: {len(made.trace.nodes)} nodes{units}, {len(made.trace)} events; "
        f"bft-replay trace info {output} shows more"
    )


def _write_records(records: Any, path: str) -> None:
    """Write the table of records."""
    from pyarrow import csv, parquet

    with drafted(path) as draft:
        if path.lower().endswith(".parquet"):
            parquet.write_table(records, draft)
        else:
            csv.write_csv(records, draft)


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int], None] | None]:
    """A bar by bytes read, on a terminal and for files large enough to wait for."""
    path = Path(name)
    if (
        quiet()
        or not sys.stderr.isatty()
        or name == "-"
        or not path.is_file()
        or path.stat().st_size < 8 << 20
    ):
        yield None
        return
    from rich.progress import DownloadColumn

    with bar(DownloadColumn(), console()) as shown:
        task = shown.add_task(path.name, total=path.stat().st_size, text="")
        yield lambda so_far: shown.update(task, completed=so_far, refresh=True)


def _summary(made: NodeTrace, account: Account, coverage: Coverage) -> Iterator[str]:
    """Yield the lines of the account for people."""
    from bft.replay.trace.trace_statistics import iso

    yield f"{'lines':<28}{account.lines:,}, rows {account.rows:,}"
    yield f"{'rows used':<28}{account.used:,}"
    for label, tallies in (
        ("skipped", account.skipped),
        ("left out", account.left_out),
        ("note", account.notes),
    ):
        for reason, tally in tallies.items():
            yield f"{label:<28}{reason}{f': {tally}' if str(tally) else ''}"
    window = " to ".join(iso(time, made.zone) for time in (made.start, made.end))
    yield f"{'window':<28}{window} ({made.duration_s / 86400:.2f} days)"
    yield f"{'nodes':<28}{coverage.nodes:,}, {coverage.nodes_never_busy:,} of them never busy"
    if coverage.units is not None:
        yield f"{'units':<28}{coverage.units:,}"
    yield from _classes(made)
    overlaps = f"{coverage.overlaps_merged:,} overlapped or touched another"
    closed = f"{coverage.gaps_closed:,} gaps were too short to be idle"
    yield f"{'intervals of nodes':<28}{coverage.intervals:,}; {overlaps}; {closed}"
    shares = f"busy {coverage.busy:.1%}, unavailable {coverage.unavailable:.1%}, idle {coverage.idle:.1%}"
    hours = f"{coverage.node_seconds / 3600:,.0f} h"
    yield f"{f'{made.turns_idle}-time':<28}{hours}: {shares}, short gaps {coverage.short_gaps:.2%}"
    jobs = made.host_jobs
    if jobs is not None:
        counts = jobs.counts()
        limits = f"{counts['with_limit']:,} of the {counts['begun']:,} that began with a time limit"
        yield f"{'host jobs':<28}{counts['jobs']:,} jobs, {limits}; {counts['reservations']:,} reservations"


def _classes(made: NodeTrace) -> Iterator[str]:
    """Yield a line for each class of nodes, where there are several."""
    from bft.replay.trace.trace_statistics import idle_by_class

    for name, each in idle_by_class(made, made.start, made.end).items():
        yield f"{f'class {name}':<28}{each['nodes']:,} nodes, idle {each['idle_share']:.1%}"
