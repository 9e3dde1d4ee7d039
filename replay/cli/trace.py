"""`bft-replay trace`: the content of node traces, and traces made of traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.checks import option_fields
from bft.models.files import (
    drafted,
    figure_folder,
    refuse_existing,
)
from bft.models.writing import duration, three_digits
from bft.replay.cli.groups import Group
from bft.replay.cli.messages import say_note
from bft.replay.cli.parameters import (
    TableCommand,
    force_option,
    json_option,
    option,
    output_option,
    together,
)
from bft.replay.trace.host_jobs import file_beside
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.outlook import Outlook, calibration
from bft.replay.trace.parts import anonymised, cut, merged, with_nodes
from bft.replay.trace.perturbing import Perturbation, perturbed
from bft.replay.trace.trace_files import read_trace, write_trace
from bft.replay.trace.trace_statistics import (
    SPANS,
    class_text,
    fragments,
    idle_over_time,
    iso,
    trace_statistics,
)

BLOCKS = " ▁▂▃▄▅▆▇█"


@click.group(cls=Group)
def trace() -> None:
    """Look at node traces, cut windows and nodes out of them, join them, and make them fit to be shown."""


def _read(given: dict[str, Any]) -> NodeTrace:
    return read_trace(
        given["file"],
        first_node=given["first_node"],
        node_count=given["node_count"],
        skip_rows=given["skip_rows"],
        sort=given["sort"],
    )


# What to read of which trace.
_reading = together(
    click.argument("file", metavar="TRACE"),
    click.option(
        "-nis",
        "--first-node",
        type=click.IntRange(min=0),
        default=0,
        help="First node to use.",
    ),
    click.option(
        "-nN",
        "--node-count",
        type=click.IntRange(min=1),
        help="How many nodes to use. [all]",
    ),
    click.option(
        "--skip-rows",
        type=click.IntRange(min=0),
        default=0,
        help="First rows to leave out.",
    ),
    click.option(
        "--sort", is_flag=True, help="Accept rows that are not in order of time."
    ),
)


@trace.command(
    cls=TableCommand, short_help="Size, idle nodes and fragments, also as charts."
)
@_reading
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
    expected: bool,
    as_json: bool,
    html: str | None,
    png: str | None,
    title: str | None,
    force: bool,
    **given: Any,
) -> None:
    """Report size, idle nodes, idle fragments by count and node-time, and the effect of a start-up time.

    With --html or --png as charts: when nodes are idle, by hour and weekday, for how long, and which.
    """
    if html is not None:
        from bft.replay.report import check_page

        check_page(Path(html))
        refuse_existing(html, force=force)
    read = _read(given)
    statistics = trace_statistics(read)
    if expected:
        statistics["expected"] = _calibration(read, given)
    if html is not None or png is not None:
        _charted(read, statistics, html, png, title, force=force)
        return
    if as_json:
        click.echo(json.dumps(statistics, indent=2))
        return
    for label, value in _lines(read, statistics):
        click.echo(f"{label:<28}{value}")


def _calibration(read: NodeTrace, given: dict[str, Any]) -> dict[str, Any]:
    whole = _read({**given, "first_node": 0, "node_count": None})
    if whole.host_jobs is None:
        raise InputError(
            "--expected: no host jobs lie beside the trace", file=given["file"]
        )
    return calibration(read, Outlook(whole.host_jobs, whole, read.nodes))


def _charted(
    read: NodeTrace,
    statistics: dict[str, Any],
    html: str | None,
    png: str | None,
    title: str | None,
    *,
    force: bool,
) -> None:
    from bft.replay.report import charts_of_trace, write_charts, write_trace_page

    if html is not None:
        with drafted(html) as draft:
            lines = [
                (label, value)
                for label, value in _lines(read, statistics)
                if label != "source"
            ]
            write_trace_page(read, statistics, lines, draft, title)
        click.echo(html)
    if png is not None:
        with figure_folder(Path(png), force=force) as folder:
            write_charts(charts_of_trace(read), folder, "png")
        click.echo(png)


@trace.command(cls=TableCommand, short_help="Idle nodes over time, and the events.")
@_reading
@click.option(
    "--events",
    "shown",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Events to list.",
)
@json_option("Every event as one JSON object a line.")
def show(shown: int, as_json: bool, **given: Any) -> None:
    """Draw the idle nodes over time and list the first events."""
    read = _read(given)
    idle = read.idle_counts()
    joined, left = np.diff(read.joined_at), np.diff(read.left_at)
    if as_json:
        for event in range(len(read)):
            line = {
                "time": _moment(int(read.times[event])),
                "idle": int(idle[event]),
                "joined": [read.name_of(n) for n in read.joins(event).tolist()],
                "left": [read.name_of(n) for n in read.leaves(event).tolist()],
            }
            click.echo(json.dumps(line))
        return
    if len(read):
        click.echo(
            f"idle {read.turns_idle}s, {iso(read.start, read.zone)} to {iso(read.end, read.zone)}; "
            f"at most {int(idle.max())}"
        )
        click.echo(_sparkline(idle_over_time(read, SPANS)))
    width = 2 + len(iso(read.start, read.zone))
    click.echo(f"{'time':<{width}}{'joined':>8}{'left':>8}{'idle':>8}")
    for event in range(min(shown, len(read))):
        moment = iso(int(read.times[event]), read.zone)
        click.echo(
            f"{moment:<{width}}{int(joined[event]):>8}{int(left[event]):>8}{int(idle[event]):>8}"
        )
    if len(read) > shown:
        click.echo(
            f"... {len(read) - shown} more events; --events {len(read)} lists all, --json names the nodes"
        )


def _sparkline(means: NDArray[np.float64]) -> str:
    """Mean idle nodes over time as a line of blocks."""
    level = np.ceil(means / max(means.max(), 1e-9) * (len(BLOCKS) - 1)).astype(int)
    return "".join(BLOCKS[k] for k in level)


def _lines(read: NodeTrace, statistics: dict[str, Any]) -> list[tuple[str, str]]:
    observed = f"{iso(read.start, read.zone)} to {iso(read.end, read.zone)}"
    units = [key for key in ("units",) if key in statistics]
    what = "unit" if units else "node"
    idle = f"{statistics[f'idle_{what}_seconds'] / 3600:,.0f} {what}-hours, {_percent(statistics['idle_share'])} of all"
    if what == "unit":
        idle += f"; {_percent(statistics['idle_share_beside_jobs'])} of them on nodes that are busy in part"
    lines = [
        ("source", statistics["source"]),
        ("machine", statistics["machine"] or "-"),
        (
            "nodes",
            f"{statistics['nodes']:,} ({statistics['nodes_never_idle']:,} never idle)",
        ),
        *(
            (
                "units",
                f"{statistics[key]:,}, up to {statistics['units_per_node']} a node",
            )
            for key in units
        ),
        (
            "observed",
            f"{observed} ({duration(statistics['duration_s'])})",
        ),
        (
            "events",
            f"{statistics['events']:,} ({statistics['joins']:,} joins, {statistics['leaves']:,} leaves)",
        ),
        ("idle", idle),
        (
            f"idle {what}s",
            f"mean {statistics[f'idle_{what}s_mean']:.1f}, max {statistics[f'idle_{what}s_max']:,}",
        ),
        (
            f"idle {what}s over time",
            _sparkline(np.array(statistics[f"idle_{what}s_over_time"])),
        ),
    ]
    fragments = statistics.get("fragments")
    if fragments:
        quantiles = fragments["seconds_quantiles"]
        named = ", ".join(
            f"{q} {quantiles[q]:,.0f}"
            for q in ("p10", "p25", "p50", "p75", "p90", "p99")
        )
        lines += [
            (
                "fragments",
                f"{fragments['count']:,} ({fragments['censored']:,} cut by the window)",
            ),
            ("fragment seconds", f"mean {fragments['seconds_mean']:,.0f}, {named}"),
        ]
        for key, label in (
            ("up_to_10_min", "fragments <= 10 min"),
            ("up_to_1_h", "fragments <= 1 h"),
        ):
            share = fragments[key]
            of_time = _percent(share["by_node_time"])
            lines.append(
                (label, f"{share['by_count']:.1%} by count, {of_time} by {what}-time")
            )
        left = fragments["share_outliving_startup"]
        shares = ", ".join(
            f"{startup}: {_percent(share)}" for startup, share in left.items()
        )
        lines.append(("idle time after a start-up", shares))
        for kind in ("join", "leave"):
            sizes = statistics[f"{what}s_per_{kind}_event"]
            if sizes:
                lines.append(
                    (
                        f"{what}s a {kind} event",
                        ", ".join(f"{q} {size:,.0f}" for q, size in sizes.items()),
                    )
                )
    if "host" in statistics:
        host = statistics["host"]
        prices = ", ".join(
            f"{returned}: {three_digits(price)}"
            for returned, price in host["break_even_price"].items()
        )
        each = f"{host['idle_s_per_taken_node']:,.0f} s idle for each node taken back"
        lines.append(("break-even price", f"{prices}, by return time ({each})"))
    for name, of in statistics.get("classes", {}).items():
        lines.append((f"idle of {name}", class_text(of)))
    if "host_jobs" in statistics:
        known = statistics["host_jobs"]
        limits = f"{known['with_limit']:,} of the {known['begun']:,} that began with a time limit"
        rest = f"{limits}; {known['reservations']:,} reservations"
        lines.append(("host jobs", f"{known['jobs']:,}, {rest}"))
    lines += _expected_lines(statistics["expected"]) if "expected" in statistics else []
    if "uncertain" in statistics:
        stated = statistics["uncertain"]
        parts = ", ".join(
            f"{reason} {_percent(share)}" for reason, share in stated["parts"].items()
        )
        share = f"{_percent(stated['share'])} of the {what}-time"
        lines.append(("uncertain", f"{share}: {parts}" if parts else share))
    return lines + [("note", note) for note in statistics["notes"]]


def _expected_lines(known: dict[str, Any]) -> list[tuple[str, str]]:
    """Return lines that say how good expectations are."""
    of = known["expected"]
    shares = f"{_percent(of['by_count'])} of {known['fragments']:,} fragments, {_percent(of['by_node_time'])} of their"
    cut = f"{known['cut']:,} more are cut by the window"
    lines = [("expected by host jobs", f"{shares} node-time; {cut}")]
    if known["real_s"] is not None:
        medians = f"median {known['expected_s']['p50']:,.0f} s expected, {known['real_s']['p50']:,.0f} s real"
        lines.append(
            ("expected and real", f"{medians}; {known['before']:.0%} ended before")
        )
    if known["ratio"] is not None:
        ratio = ", ".join(f"{q} {value:.2f}" for q, value in known["ratio"].items())
        lines.append(("real over expected", ratio))
    return lines


def _moment(instant_ns: int) -> str:
    return str(np.datetime64(instant_ns // SECOND_NS, "s")) + "Z"


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
    secret = _secret(key)
    try:
        made = anonymised(read_trace(file), secret)
    except InputError as error:
        raise InputError(str(error), file=error.file or key) from error
    _write(made, output, force=force)


def _secret(file: str) -> bytes:
    """The content of a file with a key."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from error


@trace.command(
    cls=TableCommand, short_help="Leave out, delay and shorten idle fragments."
)
@click.argument("file", metavar="TRACE")
@together(*map(option, option_fields(Perturbation).values()))
@output_option("Target: .parquet, which records how.")
@force_option()
def perturb(file: str, output: str, force: bool, **how: Any) -> None:
    """Write the trace with its idle fragments changed at random, to see how a result depends on the trace.

    Nodes are never idle where they were not. Replays of the result report how it was made.
    """
    perturbation = Perturbation(**how)
    if perturbation == Perturbation(seed=perturbation.seed):
        raise click.UsageError("nothing to change; give --drop, --delay or --thin")
    if not output.endswith(".parquet"):
        raise InputError(
            "expected a .parquet file, which records how the trace was perturbed",
            file=output,
        )
    refuse_existing(output, force=force)
    read = read_trace(file)
    made = perturbed(read, perturbation)
    _write(made, output, force=force)
    counts = [len(fragments(each).node) for each in (read, made)]
    before = read.idle_node_seconds()
    share = (
        f", {made.idle_node_seconds() / before:.1%} of the idle {read.turns_idle}-hours"
        if before
        else ""
    )
    click.echo(
        f"{counts[1]:,} of {counts[0]:,} fragments{share} are left; {perturbation}"
    )
