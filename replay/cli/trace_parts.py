"""`bft-replay trace slice|select|merge|anonymise|perturb`: traces made of traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.models.atomic_files import drafted, refuse_existing
from bft.models.option_fields import option_fields
from bft.replay.cli.messages import say_note
from bft.replay.cli.parameters import NamesWholeOption, option, together
from bft.replay.trace.perturbing import Perturbation

# Far more than any key has; a device such as /dev/zero has no end.
_MAX_KEY = 65_536

if TYPE_CHECKING:
    from bft.replay.trace.node_trace import NodeTrace
    from bft.replay.trace.walltimes import Walltimes


def _writing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say where its trace goes."""
    command = click.option(
        "--force", is_flag=True, help="Replace the target if it exists."
    )(command)
    what = "Target: .parquet, .csv or .csv.gz."
    return click.option("-o", "--output", metavar="FILE", required=True, help=what)(
        command
    )


def _carrying(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for the walltimes that lie beside its trace."""
    what = "Write those of the new trace here, .parquet."
    command = click.option(
        "--walltimes-output", "walltimes_output", metavar="FILE", help=what
    )(command)
    what = (
        "What the scheduler knew beside the trace, as `ingest --walltimes` writes it."
    )
    return click.option("--walltimes", metavar="FILE", help=what)(command)


class _Beside:
    """The walltimes beside the traces of a command, none or one for each trace, and where those of the new trace go.

    Raises
    ------
    InputError
        When there is not one for each trace, or their target is missing, exists, or is no Parquet file.
    """

    def __init__(
        self,
        files: Sequence[str | None],
        output: str | None,
        traces: Sequence[str],
        target: str,
        *,
        force: bool,
    ) -> None:
        self._files, self._output = [file for file in files if file is not None], output
        if bool(self._files) != (output is not None):
            raise InputError(
                "--walltimes and --walltimes-output are given together, or neither"
            )
        if self._files and len(self._files) != len(traces):
            raise InputError(
                f"--walltimes: expected one for each of the {len(traces)} traces, not {len(self._files)}"
            )
        if output is not None:
            refuse_existing(output, force=force)
            if not output.lower().endswith(".parquet"):
                raise InputError("walltimes are written as .parquet", file=output)
            if Path(output).absolute() == Path(target).absolute():
                raise InputError(
                    "--walltimes-output and --output name the same file", file=output
                )

    def read(self, traces: Sequence[NodeTrace]) -> list[Walltimes]:
        """Read the walltimes of each trace, or none when no files are named."""
        from bft.replay.trace.walltimes import check_nodes, read_walltimes

        known = [read_walltimes(file) for file in self._files]
        for walltimes, trace in zip(known, traces, strict=False):
            check_nodes(walltimes, trace)
        return known

    def write(self, made: Walltimes, of: Sequence[Walltimes]) -> None:
        """Write the walltimes of the new trace."""
        from bft.replay.trace.walltimes import write_walltimes

        if self._output is not None:
            with drafted(self._output) as draft:
                write_walltimes(made, draft)
            click.echo(
                f"{self._output}: {len(made):,} of {sum(map(len, of)):,} rows of walltimes"
            )


def _write(made: NodeTrace, output: str, known: tuple[str, ...] = ()) -> None:
    """Write a trace, and report the result; notes that its source already had are not repeated."""
    from bft.replay.trace.trace_files import write_trace

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


@click.command("slice", cls=NamesWholeOption, short_help="Cut a window out of a trace.")
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
    walltimes_output: str | None,
    output: str,
    force: bool,
) -> None:
    """Cut a window out of a node trace. Nodes that are idle when it begins turn idle then.

    Of the walltimes those rows stay that count inside the window.
    """
    from bft.replay.logs import Clock, Diagnosis
    from bft.replay.logs.from_files import instant
    from bft.replay.trace.parts import cut, cut_walltimes
    from bft.replay.trace.trace_files import read_trace

    refuse_existing(output, force=force)
    beside = _Beside([walltimes], walltimes_output, [file], output, force=force)
    clock = Clock(tz or "UTC", Diagnosis())
    source = read_trace(file)
    known = beside.read([source])
    made = cut(source, instant(begin, "--from", clock), instant(end, "--to", clock))
    _write(made, output, source.notes)
    for each in known:
        beside.write(cut_walltimes(each, made.start, made.end), known)


@click.command(cls=NamesWholeOption, short_help="Keep some nodes of a trace.")
@click.argument("file", metavar="TRACE")
@click.option("--nodes", metavar="FILE|LIST", required=True, help="Nodes to keep: a host list such as cn[001-128], or "
              "a file of names, or of what scontrol show node, sinfo -N or pbsnodes -a print.")  # fmt: skip
@_carrying
@_writing
def select(
    file: str,
    nodes: str,
    walltimes: str | None,
    walltimes_output: str | None,
    output: str,
    force: bool,
) -> None:
    """Keep some nodes of a node trace, those of a partition say, in their order in the trace.

    Of the walltimes the rows of these nodes stay, as if they were a machine of their own. Jobs that never began name
    no nodes and are left out, which is said.
    """
    from bft.replay.logs.from_files import node_list
    from bft.replay.trace.parts import walltimes_with_nodes, with_nodes
    from bft.replay.trace.trace_files import read_trace

    refuse_existing(output, force=force)
    beside = _Beside([walltimes], walltimes_output, [file], output, force=force)
    source = read_trace(file)
    known = beside.read([source])
    made = with_nodes(source, node_list(nodes))
    some = [walltimes_with_nodes(each, made.nodes) for each in known]
    _write(made, output, source.notes)
    for each, part in zip(known, some, strict=True):
        beside.write(part, known)
        counts = each.counts()
        waited = counts["jobs"] - counts["begun"]
        if waited:
            say_note(
                f"walltimes: {waited:,} jobs that never began name no nodes: they are left out of the queue"
            )


@click.command(
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
def merge(
    files: tuple[str, ...],
    walltimes: tuple[str, ...],
    walltimes_output: str | None,
    output: str,
    force: bool,
) -> None:
    """Join node traces of one machine whose windows follow one another, in any order.

    Where one ends when the next begins, a node idle in both stays idle. Between windows no node is idle: a note says
    so. Jobs that the walltimes of several traces state count once.
    """
    from bft.replay.trace.parts import merged, merged_walltimes
    from bft.replay.trace.trace_files import read_trace

    refuse_existing(output, force=force)
    beside = _Beside(walltimes, walltimes_output, files, output, force=force)
    traces = [read_trace(file) for file in files]
    known = beside.read(traces)
    _write(merged(traces), output)
    if known:
        beside.write(merged_walltimes(list(zip(known, traces, strict=True))), known)


@click.command(
    cls=NamesWholeOption,
    short_help="Rename nodes, so that a trace may be shown to others.",
)
@click.argument("file", metavar="TRACE")
@click.option("--key", metavar="FILE", required=True, help="File with a secret of at least 16 bytes, such as "
              "head -c 32 /dev/urandom makes.")  # fmt: skip
@_carrying
@_writing
def anonymise(
    file: str,
    key: str,
    walltimes: str | None,
    walltimes_output: str | None,
    output: str,
    force: bool,
) -> None:
    """Name nodes by a keyed hash (HMAC-SHA256), and leave out the names of machine and source, and notes.

    The same key gives a node the same name in every trace. Nodes come in the order of their new names; times stay, so
    that somebody who knows when a node was idle recognises it.
    """
    from bft.replay.trace.parts import anonymised, anonymised_walltimes
    from bft.replay.trace.trace_files import read_trace

    refuse_existing(output, force=force)
    beside = _Beside([walltimes], walltimes_output, [file], output, force=force)
    secret = _secret(key)
    source = read_trace(file)
    known = beside.read([source])
    try:
        made = anonymised(source, secret)
        renamed = [anonymised_walltimes(each, secret) for each in known]
    except InputError as error:
        raise InputError(str(error), file=error.file or key) from error
    _write(made, output)
    for each in renamed:
        beside.write(each, known)


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


@click.command(
    cls=NamesWholeOption, short_help="Leave out, delay and shorten idle fragments."
)
@click.argument("file", metavar="TRACE")
@together(*map(option, option_fields(Perturbation).values()))
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    required=True,
    help="Target: .parquet, which records how.",
)
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
