"""`bft-replay trace`: the content of node traces, and traces made of traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.atomic_files import drafted, figure_folder, refuse_existing
from bft.models.option_fields import option_fields
from bft.replay.cli.frames import refuse_other_forms
from bft.replay.cli.messages import say_note
from bft.replay.cli.parameters import (
    Group,
    NamesWholeOption,
    force_option,
    json_option,
    option,
    output_option,
    together,
)
from bft.replay.logs import Clock, Diagnosis
from bft.replay.logs.from_files import instant, node_list
from bft.replay.results.host import three_digits
from bft.replay.trace.node_trace import SECOND_NS, NodeTrace
from bft.replay.trace.parts import (
    anonymised,
    anonymised_walltimes,
    cut,
    cut_walltimes,
    merged,
    merged_walltimes,
    walltimes_with_nodes,
    with_nodes,
)
from bft.replay.trace.perturbing import Perturbation, perturbed
from bft.replay.trace.trace_files import read_trace, write_trace
from bft.replay.trace.trace_statistics import (
    SPANS,
    fragments,
    idle_over_time,
    trace_statistics,
)
from bft.replay.trace.walltimes import (
    Outlook,
    Walltimes,
    calibration,
    check_nodes,
    read_walltimes,
    write_walltimes,
)

BLOCKS = " ▁▂▃▄▅▆▇█"
# The bins of `calibration`.
_EXPECTED = ("<= 1 min", "<= 10 min", "<= 1 h", "<= 6 h", "<= 1 day", "> 1 day")


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
    cls=NamesWholeOption, short_help="Size, idle nodes and fragments, also as charts."
)
@_reading
@click.option("--walltimes", metavar="FILE", help="What the batch scheduler knew, as `ingest --walltimes` writes it: "
              "report how long nodes were expected to stay idle beside how long they did.")  # fmt: skip
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
            f"{returned}: {three_digits(price)}"
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


# Far more than any key has; a device such as /dev/zero has no end.
_MAX_KEY = 65_536


# Where a trace goes, and the walltimes that lie beside the old trace and the new one.
_writing = together(
    output_option("Target: .parquet, .csv or .csv.gz."),
    force_option(),
)
_carrying = together(
    click.option(
        "--walltimes",
        metavar="FILE",
        help="What the scheduler knew beside the trace, as `ingest --walltimes` writes it.",
    ),
    click.option(
        "--walltimes-output",
        "walltimes_output",
        metavar="FILE",
        help="Write those of the new trace here, .parquet.",
    ),
)


def _remade(
    files: Sequence[str],
    walltimes: Sequence[str | None],
    given: dict[str, Any],
    make: Callable[[list[NodeTrace]], NodeTrace],
    carry: Callable[[list[Walltimes], list[NodeTrace], NodeTrace], Walltimes],
    *,
    with_notes: bool = False,
) -> list[Walltimes]:
    """Write a trace that is made of traces, and the walltimes beside it that are made of those beside them.

    Parameters
    ----------
    files, walltimes
        The traces, and what the scheduler knew beside each: none or one for each trace.
    given
        The options output, walltimes_output and force.
    make, carry
        Make the new trace, and its walltimes from those of the traces.
    with_notes
        Whether to say all notes of the new trace; else only those that its only source did not have.

    Returns
    -------
    The walltimes that were read.

    Raises
    ------
    InputError
        When there are not walltimes for each trace, or their target is missing, exists, or is no Parquet file.
    """
    named = [file for file in walltimes if file is not None]
    _check_beside(named, files, given)
    sources = [read_trace(file) for file in files]
    known = [read_walltimes(file) for file in named]
    for each, source in zip(known, sources, strict=False):
        check_nodes(each, source)
    made = make(sources)
    carried = carry(known, sources, made) if known else None
    _write(made, given["output"], () if with_notes else sources[0].notes)
    if carried is not None:
        with drafted(given["walltimes_output"]) as draft:
            write_walltimes(carried, draft)
        click.echo(
            f"{given['walltimes_output']}: {len(carried):,} of {sum(map(len, known)):,} rows of walltimes"
        )
    return known


def _check_beside(
    walltimes: Sequence[str], files: Sequence[str], given: dict[str, Any]
) -> None:
    """Refuse targets that exist, and walltimes that do not fit the traces, before anything is read."""
    output, beside = given["output"], given["walltimes_output"]
    refuse_existing(output, force=given["force"])
    if bool(walltimes) != (beside is not None):
        raise InputError(
            "--walltimes and --walltimes-output are given together, or neither"
        )
    if walltimes and len(walltimes) != len(files):
        raise InputError(
            f"--walltimes: expected one for each of the {len(files)} traces, not {len(walltimes)}"
        )
    if beside is None:
        return
    refuse_existing(beside, force=given["force"])
    if not beside.lower().endswith(".parquet"):
        raise InputError("walltimes are written as .parquet", file=beside)
    if Path(beside).absolute() == Path(output).absolute():
        raise InputError(
            "--walltimes-output and --output name the same file", file=beside
        )


def _write(made: NodeTrace, output: str, known: tuple[str, ...] = ()) -> None:
    """Write a trace, and report the result; notes that its source already had are not repeated."""
    with drafted(output) as draft:
        write_trace(made, draft)
    for note in made.notes:
        if note not in known:
            say_note(note)
    hours = (
        made.idle_unit_seconds() if made.by_unit else made.idle_node_seconds()
    ) / 3600
    units = f", {made.units} units" if made.by_unit else ""
    what = f"{hours:,.1f} idle {made.turns_idle}-hours"
    click.echo(f"{output}: {len(made.nodes)} nodes{units}, {len(made)} events, {what}")


@trace.command("slice", cls=NamesWholeOption, short_help="Cut a window out of a trace.")
@click.argument("file", metavar="TRACE")
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
@_carrying
@_writing
def slice_(
    file: str,
    begin: str | None,
    end: str | None,
    tz: str | None,
    walltimes: str | None,
    **given: Any,
) -> None:
    """Cut a window out of a node trace. Nodes that are idle when it begins turn idle then.

    Of the walltimes those rows stay that count inside the window.
    """
    clock = Clock(tz or "UTC", Diagnosis())

    def make(sources: list[NodeTrace]) -> NodeTrace:
        window = instant(begin, "--from", clock), instant(end, "--to", clock)
        return cut(sources[0], *window)

    _remade(
        [file],
        [walltimes],
        given,
        make,
        lambda known, _, made: cut_walltimes(known[0], made.start, made.end),
    )


@trace.command(cls=NamesWholeOption, short_help="Keep some nodes of a trace.")
@click.argument("file", metavar="TRACE")
@click.option("--nodes", metavar="FILE|LIST", required=True, help="Nodes to keep: a host list such as cn[001-128], or "
              "a file of names, or of what scontrol show node, sinfo -N or pbsnodes -a print.")  # fmt: skip
@_carrying
@_writing
def select(file: str, nodes: str, walltimes: str | None, **given: Any) -> None:
    """Keep some nodes of a node trace, those of a partition say, in their order in the trace.

    Of the walltimes the rows of these nodes stay, as if they were a machine of their own. Jobs that never began name
    no nodes and are left out, which is said.
    """
    known = _remade(
        [file],
        [walltimes],
        given,
        lambda sources: with_nodes(sources[0], node_list(nodes)),
        lambda known, _, made: walltimes_with_nodes(known[0], made.nodes),
    )
    for each in known:
        counts = each.counts()
        waited = counts["jobs"] - counts["begun"]
        if waited:
            say_note(
                f"walltimes: {waited:,} jobs that never began name no nodes: they are left out of the queue"
            )


@trace.command(
    cls=NamesWholeOption, short_help="Join traces of one machine, month by month."
)
@click.argument("files", metavar="TRACE...", nargs=-1, required=True)
@click.option("--walltimes", metavar="FILE", multiple=True,
              help="What the scheduler knew beside a trace; once for each TRACE, in their order.")  # fmt: skip
@click.option(
    "--walltimes-output",
    "walltimes_output",
    metavar="FILE",
    help="Write those of all here, .parquet.",
)
@_writing
def merge(files: tuple[str, ...], walltimes: tuple[str, ...], **given: Any) -> None:
    """Join node traces of one machine whose windows follow one another, in any order.

    Where one ends when the next begins, a node idle in both stays idle. Between windows no node is idle: a note says
    so. Jobs that the walltimes of several traces state count once.
    """
    _remade(
        files,
        walltimes,
        given,
        merged,
        lambda known, traces, _: merged_walltimes(
            list(zip(known, traces, strict=True))
        ),
        with_notes=True,
    )


@trace.command(
    cls=NamesWholeOption,
    short_help="Rename nodes, so that a trace may be shown to others.",
)
@click.argument("file", metavar="TRACE")
@click.option("--key", metavar="FILE", required=True, help="File with a secret of at least 16 bytes, such as "
              "head -c 32 /dev/urandom makes.")  # fmt: skip
@_carrying
@_writing
def anonymise(file: str, key: str, walltimes: str | None, **given: Any) -> None:
    """Name nodes by a keyed hash (HMAC-SHA256), and leave out the names of machine and source, and notes.

    The same key gives a node the same name in every trace. Nodes come in the order of their new names; times stay, so
    that somebody who knows when a node was idle recognises it.
    """
    secret = _secret(key)

    def make(sources: list[NodeTrace]) -> NodeTrace:
        try:
            return anonymised(sources[0], secret)
        except InputError as error:
            raise InputError(str(error), file=error.file or key) from error

    _remade(
        [file],
        [walltimes],
        given,
        make,
        lambda known, *_: anonymised_walltimes(known[0], secret),
        with_notes=True,
    )


def _secret(file: str) -> bytes:
    """The content of a file with a key."""
    try:
        with Path(file).open("rb") as stream:
            secret = stream.read(_MAX_KEY + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from error
    if len(secret) > _MAX_KEY:
        what = f"holds more than {_MAX_KEY:,} bytes, expected a key such as head -c 32 /dev/urandom makes"
        raise InputError(what, file=file)
    return secret


@trace.command(
    cls=NamesWholeOption, short_help="Leave out, delay and shorten idle fragments."
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
    _write(made, output, read.notes)
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
