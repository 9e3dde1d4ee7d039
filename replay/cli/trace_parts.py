"""`bft-replay trace slice|select|merge|anonymise|perturb`: traces made of traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.replay.cli.messages import say_note
from bft.replay.cli.output import drafted, refuse_existing
from bft.replay.cli.parameters import Decorator, NamesWholeOption, option
from bft.replay.trace.perturbing import Perturbation

if TYPE_CHECKING:
    from bft.replay.trace.node_trace import NodeTrace


def _writing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where its trace goes."""
    command = click.option("--force", is_flag=True, help="Replace the target if it exists.")(command)
    what = "Target: .parquet, .csv or .csv.gz."
    return click.option("-o", "--output", metavar="FILE", required=True, help=what)(command)


def _write(made: NodeTrace, output: str, known: tuple[str, ...] = ()) -> None:
    """Write a trace, and report the result; notes that its source already had are not repeated."""
    from bft.replay.trace.trace_files import write_trace

    with drafted(output) as draft:
        write_trace(made, draft)
    for note in made.notes:
        if note not in known:
            say_note(note)
    hours = (made.idle_unit_seconds() if made.by_unit else made.idle_node_seconds()) / 3600
    units = f", {made.units} units" if made.by_unit else ""
    what = f"{hours:,.1f} idle {made.turns_idle}-hours"
    click.echo(f"{output}: {len(made.nodes)} nodes{units}, {len(made)} events, {what}")


@click.command("slice", cls=NamesWholeOption, short_help="Cut a window out of a trace.")
@click.argument("file", metavar="TRACE")
@click.option("--from", "begin", metavar="TIME", help="Begin of the window, in --tz. [the trace's]")
@click.option("--to", "end", metavar="TIME", help="Its end, in --tz. [the trace's]")
@click.option("--tz", metavar="ZONE", help="Zone of times that state none, such as Europe/Berlin. [UTC]")
@_writing
def slice_(file: str, begin: str | None, end: str | None, tz: str | None, output: str, force: bool) -> None:
    """Cut a window out of a node trace. Nodes that are idle when it begins turn idle then."""
    from bft.replay.logs import Clock, Diagnosis
    from bft.replay.logs.from_files import instant
    from bft.replay.trace.parts import cut
    from bft.replay.trace.trace_files import read_trace

    refuse_existing(output, force=force)
    clock = Clock(tz or "UTC", Diagnosis())
    source = read_trace(file)
    made = cut(source, instant(begin, "--from", clock), instant(end, "--to", clock))
    _write(made, output, source.notes)


@click.command(cls=NamesWholeOption, short_help="Keep some nodes of a trace.")
@click.argument("file", metavar="TRACE")
@click.option("--nodes", metavar="FILE|LIST", required=True, help="Nodes to keep: a host list such as cn[001-128], or "
              "a file of names, or of what scontrol show node, sinfo -N or pbsnodes -a print.")  # fmt: skip
@_writing
def select(file: str, nodes: str, output: str, force: bool) -> None:
    """Keep some nodes of a node trace, those of a partition say, in their order in the trace."""
    from bft.replay.logs.from_files import node_list
    from bft.replay.trace.parts import with_nodes
    from bft.replay.trace.trace_files import read_trace

    refuse_existing(output, force=force)
    source = read_trace(file)
    _write(with_nodes(source, node_list(nodes)), output, source.notes)


@click.command(cls=NamesWholeOption, short_help="Join traces of one machine, month by month.")
@click.argument("files", metavar="TRACE...", nargs=-1, required=True)
@_writing
def merge(files: tuple[str, ...], output: str, force: bool) -> None:
    """Join node traces of one machine whose windows follow one another, in any order.

    Where one ends when the next begins, a node idle in both stays idle. Between windows no node is idle: a note says
    so.
    """
    from bft.replay.trace.parts import merged
    from bft.replay.trace.trace_files import read_trace

    refuse_existing(output, force=force)
    _write(merged([read_trace(file) for file in files]), output)


@click.command(cls=NamesWholeOption, short_help="Rename nodes, so that a trace may be shown to others.")
@click.argument("file", metavar="TRACE")
@click.option("--key", metavar="FILE", required=True, help="File with a secret of at least 16 bytes, such as "
              "head -c 32 /dev/urandom makes.")  # fmt: skip
@_writing
def anonymise(file: str, key: str, output: str, force: bool) -> None:
    """Name nodes by a keyed hash (HMAC-SHA256), and leave out the names of machine and source, and notes.

    The same key gives a node the same name in every trace. Times and the order of nodes stay, so that replays give the
    same numbers.
    """
    from bft.replay.trace.parts import anonymised
    from bft.replay.trace.trace_files import read_trace

    refuse_existing(output, force=force)
    try:
        secret = Path(key).read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=key) from error
    try:
        made = anonymised(read_trace(file), secret)
    except InputError as error:
        raise InputError(str(error), file=error.file or key) from error
    _write(made, output)


def _of(name: str, *flags: str, **more: Any) -> Decorator:
    """An option that is a field of `Perturbation`, with its check and default."""
    field = next(field for field in fields(Perturbation) if field.name == name)
    return option(name, *flags, check=field.metadata["check"], default=field.default, **more)


@click.command(cls=NamesWholeOption, short_help="Leave out, delay and shorten idle fragments.")
@click.argument("file", metavar="TRACE")
@_of("drop", "--drop", metavar="SHARE", help="Leave out each idle fragment with this probability.")
@_of("delay_s", "--delay", metavar="SECONDS", help="Begin each fragment later, by an exponential time of this mean.")
@_of("thin", "--thin", metavar="SHARE", help="End each fragment earlier, by this share of its length.")
@_of("seed", "--seed", help="Of what is drawn at random.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Target: .parquet, which records how.")
@click.option("--force", is_flag=True, help="Replace the target if it exists.")
def perturb(file: str, output: str, force: bool, **how: Any) -> None:
    """Write the trace with its idle fragments changed at random, to see how a result depends on the trace.

    Nodes are never idle where they were not. Replays of the result report how it was made.
    """
    from bft.replay.trace.perturbing import perturbed
    from bft.replay.trace.trace_files import read_trace
    from bft.replay.trace.trace_statistics import fragments

    perturbation = Perturbation(**how)
    if perturbation == Perturbation(seed=perturbation.seed):
        raise click.UsageError("nothing to change; give --drop, --delay or --thin")
    if not output.endswith(".parquet"):
        raise InputError("expected a .parquet file, which records how the trace was perturbed", file=output)
    refuse_existing(output, force=force)
    read = read_trace(file)
    made = perturbed(read, perturbation)
    _write(made, output, read.notes)
    counts = [len(fragments(each).node) for each in (read, made)]
    before = read.idle_node_seconds()
    share = f", {made.idle_node_seconds() / before:.1%} of the idle {read.turns_idle}-hours" if before else ""
    click.echo(f"{counts[1]:,} of {counts[0]:,} fragments{share} are left; {perturbation}")
