"""`bft-replay trace`: the content of node traces, and traces made of traces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

import click
import numpy as np

from bft.models import InputError
from bft.models.checks import FLAG
from bft.models.files import reading, refuse_existing
from bft.models.writing import duration, three_digits
from bft.replay.cli.commands import Group, say_note
from bft.replay.cli.parameters import (
    force_option,
    json_option,
    option,
    output_option,
    pickle_option,
    setting,
    together,
)
from bft.replay.options.options import FIELDS
from bft.replay.trace.host_jobs import file_beside
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.outlook import Outlook, calibration
from bft.replay.trace.parts import anonymised, cut, merged, with_nodes
from bft.replay.trace.trace_files import read_trace, write_trace
from bft.replay.trace.trace_statistics import class_text, iso, trace_statistics

BLOCKS = " ▁▂▃▄▅▆▇█"
# Options of a replay by which a part of a trace is read.
PART = [
    replace(FIELDS[name], section="")
    for name in ("first_node", "node_count", "skip_rows", "sort")
]


@click.group(cls=Group)
def trace() -> None:
    """Look at node traces, cut windows and nodes out of them or join them, and make them fit to be shown.

    Such as:
    bft-replay trace info trace.parquet
    bft-replay trace cut trace.parquet --from 2024-02-01 --to 2024-03-01 -o february.parquet
    """


@trace.command()
@click.argument("file", metavar="TRACE")
@together(*map(option, PART))
@setting(
    "--expected",
    (
        "Report how long nodes were expected to stay idle, by the host jobs beside the trace, "
        "and how long they did."
    ),
    FLAG,
)
@json_option()
@pickle_option
def info(file: str, expected: bool, as_json: bool, **given: Any) -> None:
    """Report size, idle nodes, idle fragments by count and node-time, and the effect of a start-up time.

    Such as:
    bft-replay trace info trace.parquet
    bft-replay trace info trace.parquet --expected
    """
    given["skip_rows"] = given["skip_rows"] or 0
    read = read_trace(file, **given)
    statistics = trace_statistics(read)
    if expected:
        whole = read_trace(file, skip_rows=given["skip_rows"], sort=given["sort"])
        if whole.host_jobs is None:
            raise InputError("--expected: no host jobs lie beside the trace", file=file)
        outlook = Outlook(whole.host_jobs, whole, read.nodes)
        statistics["expected"] = calibration(read, outlook)
    if as_json:
        click.echo(json.dumps(statistics, indent=2))
    else:
        for label, value in _lines(read, statistics):
            click.echo(f"{label:<28}{value}")


# The lines about a trace: labels, and templates of what stands behind. One is left out where a trace lacks its figures.
LINES = {
    "source": "{source}",
    "machine": "{machine}",
    "nodes": "{nodes:,} ({nodes_never_idle:,} never idle)",
    "units": "{units:,}, up to {units_per_node} a node",
    "observed": "{window}",
    "events": "{events:,} ({joins:,} joins, {leaves:,} leaves)",
    "idle": "{hours:,.0f} {what}-hours, {idle_share:.1%} of all{beside}",
    "idle {what}s": "mean {mean:.1f}, max {most:,}",
    "idle {what}s over time": "{blocks}",
    "fragments": "{fragments[count]:,} ({fragments[censored]:,} cut by the window)",
    "fragment seconds": "mean {fragments[seconds_mean]:,.0f}, {spread}",
    "fragments <= 10 min": "{fragments[up_to_10_min][by_count]:.1%} by count, "
    "{fragments[up_to_10_min][by_node_time]:.1%} by {what}-time",
    "fragments <= 1 h": "{fragments[up_to_1_h][by_count]:.1%} by count, "
    "{fragments[up_to_1_h][by_node_time]:.1%} by {what}-time",
    "idle time after a start-up": "{outliving}",
    "{what}s a join event": "{join}",
    "{what}s a leave event": "{leave}",
    "break-even price": "{prices}, by return time ({host[idle_s_per_taken_node]:,.0f} s idle for each node taken back)",
    "classes": "{classes}",
    "host jobs": "{host_jobs[jobs]:,}, {host_jobs[with_limit]:,} of the {host_jobs[begun]:,} that began with a time "
    "limit; {host_jobs[reservations]:,} reservations",
    "expected by host jobs": "{expected[expected][by_count]:.1%} of {expected[fragments]:,} fragments, "
    "{expected[expected][by_node_time]:.1%} of their node-time; {expected[cut]:,} more are cut by the window",
    "expected and real": "median {expected[expected_s][p50]:,.0f} s expected, {expected[real_s][p50]:,.0f} s real; "
    "{expected[before]:.0%} ended before",
    "real over expected": "{ratio}",
    "uncertain": "{uncertain[share]:.1%} of the {what}-time{doubts}",
}


class _Template(Formatter):
    """Has a dash for an unknown share."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return "-" if value is None else str(super().format_field(value, format_spec))


def _lines(read: NodeTrace, known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the statistics of a trace as labels and texts, its source first."""
    what, formatter = read.turns_idle, _Template()
    window = f"{iso(read.start, read.zone)} to {iso(read.end, read.zone)}"
    means = np.array(known[f"idle_{what}s_over_time"])
    level = np.ceil(means / max(means.max(), 1e-9) * (len(BLOCKS) - 1)).astype(int)
    figures = known | {
        "what": what,
        "machine": known["machine"] or "-",
        "window": f"{window} ({duration(known['duration_s'])})",
        "hours": known[f"idle_{what}_seconds"] / 3600,
        "beside": "",
        "mean": known[f"idle_{what}s_mean"],
        "most": known[f"idle_{what}s_max"],
        "blocks": "".join(BLOCKS[k] for k in level),
        "doubts": "",
    }
    if read.by_unit:
        beside = formatter.format("{:.1%}", known["idle_share_beside_jobs"])
        figures["beside"] = f"; {beside} of them on nodes that are busy in part"
    if "fragments" in known:
        of = known["fragments"]
        quantiles = ("p10", "p25", "p50", "p75", "p90", "p99")
        spread = {name: of["seconds_quantiles"][name] for name in quantiles}
        left = of["share_outliving_startup"]
        join, leave = (known[f"{what}s_per_{kind}_event"] for kind in ("join", "leave"))
        figures["spread"] = _listed("{} {:,.0f}", spread)
        figures["outliving"] = _listed("{}: {:.1%}", left)
        figures |= {"join": _listed("{} {:,.0f}", join)} if join else {}
        figures |= {"leave": _listed("{} {:,.0f}", leave)} if leave else {}
    if "host" in known:
        prices = known["host"]["break_even_price"].items()
        of_three = {name: three_digits(price) for name, price in prices}
        figures["prices"] = _listed("{}: {}", of_three)
    if known.get("expected", {}).get("ratio") is not None:
        figures["ratio"] = _listed("{} {:.2f}", known["expected"]["ratio"])
    if known.get("uncertain", {}).get("parts"):
        doubts = _listed("{} {:.1%}", known["uncertain"]["parts"])
        figures["doubts"] = f": {doubts}"
    for label, template in LINES.items():
        if label == "classes":
            for name, of in known.get("classes", {}).items():
                yield f"idle of {name}", class_text(of)
            continue
        with suppress(KeyError, TypeError):  # a figure that this trace lacks
            yield label.format_map(figures), formatter.vformat(template, (), figures)
    for note in known["notes"]:
        yield "note", note


def _listed(template: str, figures: Mapping[str, Any]) -> str:
    formatter = _Template()
    return ", ".join(formatter.format(template, *item) for item in figures.items())


def _write(made: NodeTrace, output: str, *, force: bool) -> None:
    """Write a trace with its host jobs, and report the result."""
    write_trace(made, output, force=force)
    for note in made.notes:
        say_note(note)
    seconds = made.idle_unit_seconds() if made.by_unit else made.idle_node_seconds()
    units = f", {made.units} units" if made.by_unit else ""
    what = f"{seconds / 3600:,.1f} idle {made.turns_idle}-hours"
    click.echo(f"{output}: {len(made.nodes)} nodes{units}, {len(made)} events, {what}")
    if made.host_jobs is not None:
        jobs = f"{made.host_jobs.counts()['jobs']:,} host jobs"
        click.echo(f"{file_beside(output)}: {jobs}")


@trace.command("cut")
@click.argument("files", metavar="TRACE...", nargs=-1, required=True)
@setting("--from begin", "Begin of the window, in --tz. [the trace's]", metavar="TIME")
@setting("--to end", "Its end, in --tz. [the trace's]", metavar="TIME")
@setting(
    "--tz",
    "Zone of times that state none, such as Europe/Berlin. [UTC]",
    metavar="ZONE",
)
@setting(
    "--nodes",
    (
        "Nodes to keep: a host list such as cn[001-128], or a file of names, or of what "
        "scontrol show node, sinfo -N or pbsnodes -a print. [all]"
    ),
    metavar="FILE|LIST",
)
@output_option("Target: .parquet, .csv or .csv.gz.")
@force_option
@pickle_option
def cut_(
    files: tuple[str, ...],
    begin: str | None,
    end: str | None,
    tz: str | None,
    nodes: str | None,
    output: str,
    force: bool,
) -> None:
    """Cut a window, or some nodes such as those of a partition, out of a node trace, with its host jobs.

    Several traces of one machine whose windows follow one another are joined first. Where one ends when the next
    begins, a node idle in both stays idle; between windows no node is idle, which a note says. Nodes that are idle when
    the window begins turn idle then. With --nodes the nodes are as a machine of their own: host jobs count with their
    nodes among them.

    Such as:
    bft-replay trace cut year.parquet --from 2024-02-01 --to 2024-03-01 -o february.parquet
    bft-replay trace cut january.parquet february.parquet --nodes cn[001-064] -o part.parquet
    """
    from bft.replay.logs.ingest import instant, node_list
    from bft.replay.logs.records import Account
    from bft.replay.logs.times import Clock

    if len(files) == 1 and begin is None and end is None and nodes is None:
        what = "give --from, --to or --nodes, or several traces to join"
        raise click.UsageError(f"nothing to cut; {what}")
    refuse_existing(output, force=force)
    clock, account = Clock(tz or "UTC"), Account()
    given = (("--from", begin), ("--to", end))
    window = [instant(text, flag, clock, account) for flag, text in given]
    for note in account.assumptions():
        say_note(note)
    made = merged([read_trace(file) for file in files])
    if window != [None, None]:
        made = cut(made, *window)
    if nodes is not None:
        made = with_nodes(made, node_list(nodes))
    _write(made, output, force=force)


@trace.command()
@click.argument("file", metavar="TRACE")
@setting(
    "--key",
    "File with a secret of at least 16 bytes, such as head -c 32 /dev/urandom makes.",
    metavar="FILE",
    required=True,
)
@output_option("Target: .parquet, .csv or .csv.gz.")
@force_option
@pickle_option
def anonymise(file: str, key: str, output: str, force: bool) -> None:
    """Name nodes by a keyed hash (HMAC-SHA256), and leave out the names of machine and source, and notes.

    The same key gives a node the same name in every trace, and in the host jobs beside it. Nodes come in the order of
    their new names; times stay, so that somebody who knows when a node was idle recognises it.

    Such as:
    bft-replay trace anonymise trace.parquet --key secret -o shown.parquet
    bft-replay trace anonymise trace.parquet --key secret -o shown.csv.gz
    """
    refuse_existing(output, force=force)
    with reading(key):
        secret = Path(key).read_bytes()
    try:
        made = anonymised(read_trace(file), secret)
    except InputError as error:
        raise InputError(str(error), file=error.file or key) from error
    _write(made, output, force=force)
