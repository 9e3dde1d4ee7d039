"""`bft-replay trace info|show`: the content of a node trace; and the group of all commands on traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from bft.models.atomic_files import drafted, figure_folder, refuse_existing
from bft.replay.cli.frames import refuse_other_forms
from bft.replay.cli.help import Group
from bft.replay.cli.parameters import NamesWholeOption
from bft.replay.cli.trace_parts import anonymise, merge, perturb, select, slice_
from bft.replay.trace.node_trace import SECOND_NS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bft.replay.trace.node_trace import NodeTrace

BLOCKS = " ▁▂▃▄▅▆▇█"
# The bins of `calibration`.
_EXPECTED = ("<= 1 min", "<= 10 min", "<= 1 h", "<= 6 h", "<= 1 day", "> 1 day")


@click.group(cls=Group)
def trace() -> None:
    """Look at node traces, cut windows and nodes out of them, join them, and make them fit to be shown."""


def _read(given: dict[str, Any]) -> NodeTrace:
    from bft.replay.trace.trace_files import read_trace

    return read_trace(
        given["file"],
        first_node=given["first_node"],
        node_count=given["node_count"],
        skip_rows=given["skip_rows"],
        sort=given["sort"],
    )


def _reading(command: click.Command) -> click.Command:
    """Give a command the argument and options that say what to read."""
    for option in (
        click.Option(
            ["--sort"], is_flag=True, help="Accept rows that are not in order of time."
        ),
        click.Option(
            ["--skip-rows"],
            type=click.IntRange(min=0),
            default=0,
            help="First rows to leave out.",
        ),
        click.Option(
            ["-nN", "--node-count"],
            type=click.IntRange(min=1),
            help="How many nodes to use. [all]",
        ),
        click.Option(
            ["-nis", "--first-node"],
            type=click.IntRange(min=0),
            default=0,
            help="First node to use.",
        ),
        click.Argument(["file"], metavar="TRACE"),
    ):
        command.params.insert(0, option)
    return command


@trace.command(
    cls=NamesWholeOption, short_help="Size, idle nodes and fragments, also as charts."
)
@click.option("--walltimes", metavar="FILE", help="What the batch scheduler knew, as `ingest --walltimes` writes it: "
              "report how long nodes were expected to stay idle beside how long they did.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
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
@click.option("--force", is_flag=True, help="Replace files that exist.")
def info(
    walltimes: str | None,
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
    from bft.replay.trace.trace_statistics import trace_statistics

    if html is not None:
        refuse_other_forms(Path(html))
        refuse_existing(html, force=force)
    read = _read(given)
    statistics = trace_statistics(read)
    if walltimes is not None:
        statistics["walltimes"] = _calibration(read, walltimes, given)
    if html is not None or png is not None:
        _charted(read, statistics, html, png, title, force=force)
        return
    if as_json:
        click.echo(json.dumps(statistics, indent=2))
        return
    for label, value in _lines(statistics):
        click.echo(f"{label:<28}{value}")


def _calibration(
    read: NodeTrace, walltimes: str, given: dict[str, Any]
) -> dict[str, Any]:
    from bft.replay.trace.walltimes import Outlook, calibration, read_walltimes

    whole = _read({**given, "first_node": 0, "node_count": None})
    outlook = Outlook(read_walltimes(walltimes), whole, read.nodes)
    return {
        "source": walltimes,
        "strangers": outlook.strangers,
        **calibration(read, outlook),
    }


def _charted(
    read: NodeTrace,
    statistics: dict[str, Any],
    html: str | None,
    png: str | None,
    title: str | None,
    *,
    force: bool,
) -> None:
    from bft.replay.report import write_trace_figures, write_trace_page

    if html is not None:
        with drafted(html) as draft:
            lines = [
                (label, value)
                for label, value in _lines(statistics)
                if label != "source"
            ]
            write_trace_page(read, statistics, lines, draft, title)
        click.echo(html)
    if png is not None:
        with figure_folder(Path(png), force=force) as folder:
            write_trace_figures(read, folder, "png")
        click.echo(png)


@trace.command(cls=NamesWholeOption, short_help="Idle nodes over time, and the events.")
@click.option(
    "--events",
    "shown",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Events to list.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Every event as one JSON object a line."
)
def show(shown: int, as_json: bool, **given: Any) -> None:
    """Draw the idle nodes over time and list the first events."""
    from bft.replay.trace.trace_statistics import SPANS, idle_over_time

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
            f"idle {read.turns_idle}s, {_moment(read.start)} to {_moment(read.end)}; at most {int(idle.max())}"
        )
        click.echo(_sparkline(idle_over_time(read, SPANS)))
    click.echo(f"{'time':<22}{'joined':>8}{'left':>8}{'idle':>8}")
    for event in range(min(shown, len(read))):
        moment = _moment(int(read.times[event]))
        click.echo(
            f"{moment:<22}{int(joined[event]):>8}{int(left[event]):>8}{int(idle[event]):>8}"
        )
    if len(read) > shown:
        click.echo(
            f"... {len(read) - shown} more events; --events {len(read)} lists all, --json names the nodes"
        )


_reading(info)
_reading(show)
for made_of_traces in (slice_, select, merge, anonymise, perturb):
    trace.add_command(made_of_traces)


def _sparkline(means: NDArray[np.float64]) -> str:
    """Mean idle nodes over time as a line of blocks."""
    level = np.ceil(means / max(means.max(), 1e-9) * (len(BLOCKS) - 1)).astype(int)
    return "".join(BLOCKS[k] for k in level)


def _lines(statistics: dict[str, Any]) -> list[tuple[str, str]]:
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
            f"{statistics['start']} to {statistics['end']} ({statistics['duration_s'] / 86400:.1f} days)",
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
            f"{returned}: {price:.3g}"
            for returned, price in host["break_even_price"].items()
        )
        each = f"{host['idle_s_per_taken_node']:,.0f} s idle for each node taken back"
        lines.append(("break-even price", f"{prices}, by return time ({each})"))
    lines += (
        _expected_lines(statistics["walltimes"]) if "walltimes" in statistics else []
    )
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
    of, none, ratio = known["expected"], known["none"], known["ratio"]
    lines = [
        (
            "expected by walltimes",
            f"{_percent(of['by_count'])} of {known['fragments']:,} fragments, {_percent(of['by_node_time'])} of their "
            f"node-time; {known['cut']:,} more are cut by the window",
        )
    ]
    if ratio:
        lines.append(
            (
                "real over expected",
                ", ".join(f"{q} {value:.2f}" for q, value in ratio.items()),
            )
        )
    for label, each in zip(_EXPECTED, known["bins"], strict=True):
        if each["count"]:
            expected, real = each["expected_s"]["p50"], each["real_s"]["p50"]
            medians = f"median {expected:,.0f} s expected, {real:,.0f} s real"
            lines.append(
                (
                    f"expected {label}",
                    f"{each['count']:,}: {medians}; {each['before']:.0%} ended before",
                )
            )
    if none["count"]:
        lines.append(
            (
                "nothing expected",
                f"{none['count']:,}: median {none['real_s']['p50']:,.0f} s real",
            )
        )
    if known["strangers"]:
        lines.append(
            (
                "note",
                f"{known['strangers']:,} nodes of the walltimes are not in the trace",
            )
        )
    return lines


def _moment(instant_ns: int) -> str:
    return str(np.datetime64(instant_ns // SECOND_NS, "s")) + "Z"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
