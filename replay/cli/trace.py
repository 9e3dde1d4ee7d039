"""`bft-replay trace`: the content of node traces, and traces made of traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.files import (
    drafted,
    figure_folder,
    reading,
    refuse_existing,
)
from bft.models.writing import duration, three_digits
from bft.replay.cli.groups import Group
from bft.replay.cli.messages import say_note
from bft.replay.cli.parameters import (
    TableCommand,
    force_option,
    json_option,
    output_option,
)
from bft.replay.trace.host_jobs import file_beside
from bft.replay.trace.node_trace import NodeTrace
from bft.replay.trace.outlook import Outlook, calibration
from bft.replay.trace.parts import anonymised, cut, merged, with_nodes
from bft.replay.trace.trace_files import read_trace, write_trace
from bft.replay.trace.trace_statistics import (
    class_text,
    iso,
    trace_statistics,
)

BLOCKS = " ▁▂▃▄▅▆▇█"


@click.group(cls=Group)
def trace() -> None:
    """Look at node traces, cut windows and nodes out of them or join them, and make them fit to be shown."""


@trace.command(
    cls=TableCommand, short_help="Size, idle nodes and fragments, also as charts."
)
@click.argument("file", metavar="TRACE")
@click.option(
    "-nis",
    "--first-node",
    type=click.IntRange(min=0),
    default=0,
    help="First node to use.",
)
@click.option(
    "-nN",
    "--node-count",
    type=click.IntRange(min=1),
    help="How many nodes to use. [all]",
)
@click.option(
    "--skip-rows",
    type=click.IntRange(min=0),
    default=0,
    help="First rows to leave out.",
)
@click.option("--sort", is_flag=True, help="Accept rows that are not in order of time.")
@click.option("--expected", is_flag=True, help="Report how long nodes were expected to stay idle, by the host jobs "
              "beside the trace, and how long they did.")  # fmt: skip
@json_option()
@click.option(
    "--html",
    metavar="FILE",
    help="Write a page with charts (needs the extra `report`).",
)
@click.option(
    "--png",
    metavar="DIR",
    help="Write the charts as PNG files into DIR (needs the extra `report`).",
)
@click.option(
    "--title",
    metavar="TEXT",
    help="Of whose nodes the page is. [the machine's name in the trace]",
)
@force_option("Replace files that exist.")
def info(
    file: str,
    expected: bool,
    as_json: bool,
    html: str | None,
    png: str | None,
    title: str | None,
    force: bool,
    **given: Any,
) -> None:
    """Report size, idle nodes, idle fragments by count and node-time, and the effect of a start-up time.

    With --html or --png as charts: when nodes are idle, by hour and weekday, and for how long.
    """
    if html is not None:
        from bft.replay.report import check_page

        check_page(Path(html))
        refuse_existing(html, force=force)
    read = read_trace(file, **given)
    statistics = trace_statistics(read)
    if expected:
        whole = read_trace(file, skip_rows=given["skip_rows"], sort=given["sort"])
        if whole.host_jobs is None:
            raise InputError("--expected: no host jobs lie beside the trace", file=file)
        outlook = Outlook(whole.host_jobs, whole, read.nodes)
        statistics["expected"] = calibration(read, outlook)
    if html is not None:
        from bft.replay.report import write_trace_page

        lines = [line for line in _lines(read, statistics) if line[0] != "source"]
        with drafted(html) as draft:
            write_trace_page(read, statistics, lines, draft, title)
        click.echo(html)
    if png is not None:
        from bft.replay.report import charts_of_trace, write_charts

        with figure_folder(Path(png), force=force) as folder:
            write_charts(charts_of_trace(read), folder, "png")
        click.echo(png)
    if html is not None or png is not None:
        return
    if as_json:
        click.echo(json.dumps(statistics, indent=2))
        return
    for label, value in _lines(read, statistics):
        click.echo(f"{label:<28}{value}")


def _sparkline(means: NDArray[np.float64]) -> str:
    """Mean idle nodes over time as a line of blocks."""
    level = np.ceil(means / max(means.max(), 1e-9) * (len(BLOCKS) - 1)).astype(int)
    return "".join(BLOCKS[k] for k in level)


def _lines(read: NodeTrace, known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the statistics of a trace as labels and texts."""
    what = "unit" if "units" in known else "node"
    yield "source", known["source"]
    yield "machine", known["machine"] or "-"
    yield "nodes", f"{known['nodes']:,} ({known['nodes_never_idle']:,} never idle)"
    if what == "unit":
        yield "units", f"{known['units']:,}, up to {known['units_per_node']} a node"
    window = f"{iso(read.start, read.zone)} to {iso(read.end, read.zone)}"
    yield "observed", f"{window} ({duration(known['duration_s'])})"
    changes = f"{known['joins']:,} joins, {known['leaves']:,} leaves"
    yield "events", f"{known['events']:,} ({changes})"
    hours = f"{known[f'idle_{what}_seconds'] / 3600:,.0f} {what}-hours"
    idle = f"{hours}, {_percent(known['idle_share'])} of all"
    if what == "unit":
        beside = _percent(known["idle_share_beside_jobs"])
        idle += f"; {beside} of them on nodes that are busy in part"
    yield "idle", idle
    extremes = known[f"idle_{what}s_mean"], known[f"idle_{what}s_max"]
    yield f"idle {what}s", f"mean {extremes[0]:.1f}, max {extremes[1]:,}"
    over_time = np.array(known[f"idle_{what}s_over_time"])
    yield f"idle {what}s over time", _sparkline(over_time)
    if known.get("fragments"):
        yield from _fragment_lines(known, what)
    if "host" in known:
        host = known["host"]
        prices = host["break_even_price"].items()
        by_return = _listed((name, three_digits(price)) for name, price in prices)
        each = f"{host['idle_s_per_taken_node']:,.0f} s idle for each node taken back"
        yield "break-even price", f"{by_return}, by return time ({each})"
    for name, of in known.get("classes", {}).items():
        yield f"idle of {name}", class_text(of)
    if "host_jobs" in known:
        of = known["host_jobs"]
        limits = (
            f"{of['with_limit']:,} of the {of['begun']:,} that began with a time limit"
        )
        yield (
            "host jobs",
            f"{of['jobs']:,}, {limits}; {of['reservations']:,} reservations",
        )
    if "expected" in known:
        yield from _expected_lines(known["expected"])
    if "uncertain" in known:
        share = f"{_percent(known['uncertain']['share'])} of the {what}-time"
        reasons = known["uncertain"]["parts"].items()
        parts = ", ".join(f"{reason} {_percent(part)}" for reason, part in reasons)
        yield "uncertain", f"{share}: {parts}" if parts else share
    for note in known["notes"]:
        yield "note", note


def _fragment_lines(known: dict[str, Any], what: str) -> Iterator[tuple[str, str]]:
    """Yield how long idle fragments are, and how many nodes come and go at once."""
    of = known["fragments"]
    yield "fragments", f"{of['count']:,} ({of['censored']:,} cut by the window)"
    quantiles = of["seconds_quantiles"]
    named = ("p10", "p25", "p50", "p75", "p90", "p99")
    spread = ", ".join(f"{name} {quantiles[name]:,.0f}" for name in named)
    yield "fragment seconds", f"mean {of['seconds_mean']:,.0f}, {spread}"
    for key, length in (("up_to_10_min", "10 min"), ("up_to_1_h", "1 h")):
        by_time = _percent(of[key]["by_node_time"])
        shares = f"{of[key]['by_count']:.1%} by count, {by_time} by {what}-time"
        yield f"fragments <= {length}", shares
    left = of["share_outliving_startup"].items()
    yield "idle time after a start-up", _listed((s, _percent(part)) for s, part in left)
    for kind in ("join", "leave"):
        sizes = known[f"{what}s_per_{kind}_event"]
        if sizes:
            text = ", ".join(f"{name} {size:,.0f}" for name, size in sizes.items())
            yield f"{what}s a {kind} event", text


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {text}" for name, text in pairs)


def _expected_lines(known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield how good expectations are."""
    of = known["expected"]
    shares = f"{_percent(of['by_count'])} of {known['fragments']:,} fragments, {_percent(of['by_node_time'])} of their"
    cut = f"{known['cut']:,} more are cut by the window"
    yield "expected by host jobs", f"{shares} node-time; {cut}"
    if known["real_s"] is not None:
        medians = f"median {known['expected_s']['p50']:,.0f} s expected, {known['real_s']['p50']:,.0f} s real"
        yield "expected and real", f"{medians}; {known['before']:.0%} ended before"
    if known["ratio"] is not None:
        ratio = (f"{name} {value:.2f}" for name, value in known["ratio"].items())
        yield "real over expected", ", ".join(ratio)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _write(made: NodeTrace, output: str, *, force: bool) -> None:
    """Write a trace with its host jobs, and report the result."""
    write_trace(made, output, force=force)
    for note in made.notes:
        say_note(note)
    hours = (
        made.idle_unit_seconds() if made.by_unit else made.idle_node_seconds()
    ) / 3600
    units = f", {made.units} units" if made.by_unit else ""
    what = f"{hours:,.1f} idle {made.turns_idle}-hours"
    click.echo(f"{output}: {len(made.nodes)} nodes{units}, {len(made)} events, {what}")
    if made.host_jobs is not None:
        click.echo(
            f"{file_beside(output)}: {made.host_jobs.counts()['jobs']:,} host jobs"
        )


@trace.command(
    "cut",
    cls=TableCommand,
    short_help="Cut a window or some nodes out of traces, month by month.",
)
@click.argument("files", metavar="TRACE...", nargs=-1, required=True)
@click.option(
    "--from",
    "begin",
    metavar="TIME",
    help="Begin of the window, in --tz. [the trace's]",
)
@click.option("--to", "end", metavar="TIME", help="Its end, in --tz. [the trace's]")
@click.option(
    "--tz",
    metavar="ZONE",
    help="Zone of times that state none, such as Europe/Berlin. [UTC]",
)
@click.option("--nodes", metavar="FILE|LIST", help="Nodes to keep: a host list such as cn[001-128], or "
              "a file of names, or of what scontrol show node, sinfo -N or pbsnodes -a print. [all]")  # fmt: skip
@output_option("Target: .parquet, .csv or .csv.gz.")
@force_option()
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
    """
    from bft.replay.logs.ingest import instant, node_list
    from bft.replay.logs.records import Account
    from bft.replay.logs.times import Clock

    if len(files) == 1 and begin is None and end is None and nodes is None:
        raise click.UsageError(
            "nothing to cut; give --from, --to or --nodes, or several traces to join"
        )
    refuse_existing(output, force=force)
    clock, account = Clock(tz or "UTC"), Account()
    window = (
        instant(begin, "--from", clock, account),
        instant(end, "--to", clock, account),
    )
    for note in account.assumptions():
        say_note(note)
    made = merged([read_trace(file) for file in files])
    if window != (None, None):
        made = cut(made, *window)
    if nodes is not None:
        made = with_nodes(made, node_list(nodes))
    _write(made, output, force=force)


@trace.command(
    cls=TableCommand,
    short_help="Rename nodes, so that a trace may be shown to others.",
)
@click.argument("file", metavar="TRACE")
@click.option("--key", metavar="FILE", required=True, help="File with a secret of at least 16 bytes, such as "
              "head -c 32 /dev/urandom makes.")  # fmt: skip
@output_option("Target: .parquet, .csv or .csv.gz.")
@force_option()
def anonymise(file: str, key: str, output: str, force: bool) -> None:
    """Name nodes by a keyed hash (HMAC-SHA256), and leave out the names of machine and source, and notes.

    The same key gives a node the same name in every trace, and in the host jobs beside it. Nodes come in the order of
    their new names; times stay, so that somebody who knows when a node was idle recognises it.
    """
    refuse_existing(output, force=force)
    with reading(key):
        secret = Path(key).read_bytes()
    try:
        made = anonymised(read_trace(file), secret)
    except InputError as error:
        raise InputError(str(error), file=error.file or key) from error
    _write(made, output, force=force)
