"""`bft-replay ingest`: from a scheduler's own logs to a node trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.models.checks import FLAG, TEXT, Name, Several, seconds, whole
from bft.models.files import drafted, refuse_existing, refuse_inputs
from bft.replay.cli.commands import Command, say_warning
from bft.replay.cli.parameters import (
    Checked,
    force_option,
    json_option,
    output_option,
    setting,
    together,
)
from bft.replay.cli.watcher import watching
from bft.replay.logs.records import FILTERS

if TYPE_CHECKING:
    from bft.replay.logs.ingest import Ingested, IngestOptions

# Files that are read in a moment need no bar.
LARGE_BYTES = 8 << 20


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
    setting(
        "--nodes",
        (
            "Nodes of the machine: a host list such as cn[001-128], or what scontrol show node, "
            "sinfo, pbsnodes -a, bhosts or qhost print."
        ),
        Several(TEXT),
        metavar="FILE|LIST",
    ),
    setting(
        "--events",
        (
            "When nodes were down or drained: sacctmgr -P show event, or CSV with "
            "node,start,end,state."
        ),
        Several(TEXT),
        metavar="FILE",
    ),
    setting(
        "--reservations",
        "When nodes were reserved: scontrol or sacctmgr -P show reservation.",
        Several(TEXT),
        metavar="FILE",
    ),
    setting(
        "--tz",
        "Zone of times that state none, such as Europe/Berlin. [UTC, with a note]",
        metavar="ZONE",
    ),
    setting(
        "--from begin",
        "Begin of the window of observation, in --tz. [when the first job ended]",
        metavar="TIME",
    ),
    setting("--to end", "Its end, in --tz. [the last start of a job]", metavar="TIME"),
    setting(
        "--min-gap min_gap_s",
        "Idle gaps shorter than this many seconds do not count as idle.",
        seconds(zero=True),
        10.0,
    ),
    setting(
        "--fields",
        (
            "Names of the columns of a file without a header line, in sacct's words; xdmod for "
            "XDMoD's."
        ),
        metavar="A,B,...",
    ),
    setting(
        "--map columns",
        (
            "Names of the columns of a table, CSV or Parquet, in those of FORMAT: intervals "
            "node=nodes,start=start_time,end=end_time; or the NAME of a public data set: alcf, "
            "lassen, frontier, kestrel, acme, pm100, adastra, fugaku, mit-supercloud, "
            "alibaba-2020."
        ),
        metavar="OURS=THEIRS,...|NAME",
    ),
    setting(
        "--delimiter", "What separates columns. [as in the header]", metavar="TEXT"
    ),
    *(
        setting(f"--{name}", each.help, metavar="NAME")
        for name, each in FILTERS.items()
    ),
    setting("--processors-per-node", "For logs that count processors (SWF).", whole(1)),
    setting(
        "--machine-nodes", "Size of the machine, for logs that name no nodes.", whole(1)
    ),
    setting("--machine", "Name of the machine, for people.", metavar="NAME"),
    setting(
        "--mtime",
        (
            "snapshots: where nothing else states a snapshot's time, take that of the file's last "
            "change."
        ),
        FLAG,
    ),
    setting(
        "--uncertain",
        "What time counts as of which the logs may not show what nodes did.",
        Name(("unavailable", "idle")),
        "unavailable",
    ),
    setting(
        "--count-as",
        (
            "What states of nodes count as (idle, busy, unavailable) instead, such as "
            "completing=idle,powered_down=idle."
        ),
        metavar="WORD=STATE,...",
    ),
    setting(
        "--completing completing_s",
        "Seconds for which nodes complete when a job has ended (an epilog): busy so long.",
        seconds(zero=True),
        0.0,
    ),
    setting("--strict", "Refuse the first row that would be skipped.", FLAG),
    setting(
        "--allow-few",
        (
            "Accept files of which fewer than half of the rows can be used, logs without any job, "
            "and windows that lie mostly outside the logs."
        ),
        FLAG,
    ),
)


def ingest_options(given: dict[str, Any], **more: Any) -> IngestOptions:
    """Return what `log_options` ask for; `more` are further options of ingest."""
    from bft.replay.logs.ingest import IngestOptions

    stated = {name: value for name, value in given.items() if value is not None}
    fields = (name.strip() for name in stated.pop("fields", "").split(","))
    delimiter = stated.pop("delimiter", "").replace("\\t", "\t")
    named = tuple(name for name in fields if name)
    return IngestOptions(**stated, **more, fields=named, delimiter=delimiter)


@click.command(cls=Command)
@click.argument("log_format", metavar="FORMAT", type=Checked(Name(each_form)))
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@output_option("Target: .parquet, .csv or .csv.gz.")
@log_options
@setting(
    "--unit",
    (
        "What turns idle: whole nodes, or each GPU or N cores of a node by itself (slurm, "
        "slurm-json, pbs, lsf)."
    ),
    TEXT,
    "node",
    metavar="gpu|node|cpu:N",
)
@setting(
    "--units-per-node",
    "Units (GPUs) of a node; with --unit of the nodes of which --nodes states none. [1]",
    whole(1),
)
@setting(
    "--records",
    (
        "Write the table of records as well, .parquet or .csv: what each row states, and why "
        "it was not used."
    ),
    metavar="FILE",
)
@json_option("The account of rows as JSON.")
@force_option
@setting(
    "--recipe",
    (
        "Print the commands that export what is needed and exit: slurm, pbs, lsf, sge, "
        "cobalt, flux, oar, htcondor, kubernetes, intervals, snapshots, ..."
    ),
    Name(_recipes),
    metavar="SCHEDULER",
    is_eager=True,
    expose_value=False,
    callback=_print_recipe,
)
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

    Such as:
    bft-replay ingest --recipe slurm
    bft-replay ingest slurm sacct.txt --nodes nodes.txt --tz Europe/Berlin -o trace.parquet
    """
    from bft.replay.logs.ingest import ingested
    from bft.replay.trace.trace_files import write_trace

    read = [*files, *given["nodes"], *given["events"], *given["reservations"]]
    targets = {
        "a node trace": (output, (".parquet", ".csv", ".csv.gz")),
        "a table of records": (records, (".parquet", ".csv")),
    }
    for what, (target, suffixes) in targets.items():
        if target is not None:
            refuse_inputs(target, read)
            refuse_existing(target, force=force)
            if not target.lower().endswith(suffixes):
                expected = f"{what} is written as {', '.join(suffixes)}"
                raise InputError(expected, file=target)
    options = ingest_options(given, keep_records=records is not None)
    made = ingested(log_format, files, options, progress=_progress)
    for warning in made.account.warnings():
        say_warning(warning)
    write_trace(made.trace, output, force=force)
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
    for label, text in _summary(made):
        click.echo(f"{label:<28}{text}")
    units = f" of {made.trace.units:,} units" if made.trace.by_unit else ""
    made_of = f"{len(made.trace.nodes)} nodes{units}, {len(made.trace)} events"
    click.echo(f"{output}: {made_of}; bft-replay trace info {output} shows more")


def _write_records(records: Any, path: str) -> None:
    """Write the table of records."""
    from pyarrow import csv, parquet

    write = parquet.write_table if path.lower().endswith(".parquet") else csv.write_csv
    with drafted(path) as draft:
        write(records, draft)


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int], None] | None]:
    """Show the bytes read of files that are large enough to wait for."""
    path = Path(name)
    if not path.is_file() or path.stat().st_size < LARGE_BYTES:
        yield None
        return
    with watching() as shown:
        shown.start(path.name, path.stat().st_size)
        yield lambda so_far: shown.move(so_far, "")


def _summary(made: Ingested) -> Iterator[tuple[str, str]]:
    """Yield the lines of the account for people."""
    from bft.replay.trace.trace_statistics import idle_by_class, iso

    trace, account, coverage = made.trace, made.account, made.coverage
    yield "lines", f"{account.lines:,}, rows {account.rows:,}"
    yield "rows used", f"{account.used:,}"
    kinds = {"skipped": account.skipped, "left out": account.left_out}
    for label, tallies in {**kinds, "note": account.notes}.items():
        for reason, tally in tallies.items():
            yield label, f"{reason}{f': {tally}' if str(tally) else ''}"
    window = " to ".join(iso(time, trace.zone) for time in (trace.start, trace.end))
    yield "window", f"{window} ({trace.duration_s / 86400:.2f} days)"
    yield (
        "nodes",
        f"{coverage.nodes:,}, {coverage.nodes_never_busy:,} of them never busy",
    )
    if coverage.units is not None:
        yield "units", f"{coverage.units:,}"
    for name, each in idle_by_class(trace, trace.start, trace.end).items():
        yield f"class {name}", f"{each['nodes']:,} nodes, idle {each['idle_share']:.1%}"
    overlaps = f"{coverage.overlaps_merged:,} overlapped or touched another"
    closed = f"{coverage.gaps_closed:,} gaps were too short to be idle"
    yield "intervals of nodes", f"{coverage.intervals:,}; {overlaps}; {closed}"
    shares = f"busy {coverage.busy:.1%}, unavailable {coverage.unavailable:.1%}, idle {coverage.idle:.1%}"
    hours = f"{coverage.node_seconds / 3600:,.0f} h"
    text = f"{hours}: {shares}, short gaps {coverage.short_gaps:.2%}"
    yield f"{trace.turns_idle}-time", text
    if trace.host_jobs is not None:
        of = trace.host_jobs.counts()
        begun = f"{of['with_limit']:,} of the {of['begun']:,} that began"
        limits = f"{begun} with a time limit; {of['reservations']:,} reservations"
        yield "host jobs", f"{of['jobs']:,} jobs, {limits}"
