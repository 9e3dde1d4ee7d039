"""Entry point: dispatch to sub-commands, and turn errors into exit codes."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import click
from click.shell_completion import CompletionItem

from bft.replay.cli.address_space import too_small
from bft.replay.cli.groups import RARE, Group
from bft.replay.cli.messages import on_standard_error, say_error

EXIT_BAD_INPUT, EXIT_DEGRADED, EXIT_INTERRUPTED = 2, 3, 130

# Sub-command -> its line in the list of commands. The module of the same name in this folder defines it. It is imported
# when called: neither a list nor an invalid option should wait for pandas.
COMMANDS = {
    "evaluate": "Say what a machine's idle nodes are worth, from its logs.",
    "replay": "Replay a node trace (the default command).",
    "watch": "Decide live beside a scheduler, touching nothing.",
    "compare": "Compare several replays of the same input in one table.",
    "sweep": "Replay a grid of options, on one machine or many.",
    "solve": "Solve allocation problems given as JSON.",
    "report": "Write runs as one HTML page with charts.",
    "ingest": "Make a node trace of a scheduler's logs.",
    "trace": "Look at node traces, cut, join and anonymise them.",
    "jobs": "Make job tables from measurements.",
    "xi": "Measure, build and look at xi tables.",
    "predict": "Learn durations, submissions and sharing scores from logs.",
    "convert": "Rewrite a trace or job table in the native form.",
    "generate": "Make a synthetic node trace, job table or log.",
    "list": "List policies, solvers, formats of logs, further options.",
}
# Commands whose functions have other names: those of Python's own.
FUNCTIONS = {"list": "list_"}
COMPLETION = "_BFT_REPLAY_COMPLETE"
GIVEN = "bft.replay.given"  # where click's context keeps the arguments
# Two interrupts closer than this are one: programs such as timeout signal the process and then its group.
DOUBLE_S = 0.3
# Ctrl-C, a batch system's end of the job, a lost connection: what can be kept is kept.
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
# Standard streams that were a terminal when the program began.
_terminals: list[int] = []


class _Dispatcher(Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = cmd_name.lower()
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"bft.replay.cli.{cmd_name}")
        command: click.Command = getattr(module, FUNCTIONS.get(cmd_name, cmd_name))
        _bind_variables(command, f"BFT_REPLAY_{cmd_name.upper()}")
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and not args:
            # Completion of the first word; options are those of the default command.
            words = os.environ.get("COMP_WORDS", "").split()
            if not words[-1:] or not words[-1].startswith("-"):
                return []
        ctx.meta[GIVEN] = list(args)
        return super().parse_args(ctx, args)

    def meant(self, word: str, names: list[str]) -> str:
        if Path(word).is_file():
            return f"; to replay a trace: bft-replay -ndmap {word}"
        return super().meant(word, names)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Without a command"):
            formatter.write_text(
                "`bft-replay [OPTIONS]` is `bft-replay replay [OPTIONS]`; see `bft-replay replay --help`. "
                "Without options either it replays the bundled data set."
            )
            formatter.write_paragraph()
            formatter.write_text(
                "For your own machine: bft-replay -ndmap TRACE -Tfwd 120"
            )


def _bind_variables(command: click.Command, prefix: str) -> None:
    """Let each option be set by an environment variable: prefix plus long name.

    Of itself click takes the name of the Python parameter, which for --forward-window is tfwd_s.
    """
    for name, inner in getattr(command, "commands", {}).items():
        _bind_variables(inner, f"{prefix}_{name.upper()}")
    for option in command.params:
        if isinstance(option, click.Option):
            name = max(option.opts, key=len).removeprefix(f"{RARE} ")
            name = name.lstrip("-").replace("-", "_")
            option.envvar = f"{prefix}_{name.upper()}"


@click.group(
    cls=_Dispatcher,
    default="replay",
    # Help is as wide as the terminal.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 10_000,
    },
)
@click.version_option(package_name="bft-replay", prog_name="bft-replay")
def cli() -> None:
    """Replay a supercomputer's idle-node log: which training job gets which idle node, and what that yields."""
    problem = too_small()
    if problem is not None:
        raise click.ClickException(problem)


def command_line(*, without: Sequence[str] = ()) -> str:
    """The running command as it would be typed into a shell; `without` are flags to leave out."""
    given = [
        word for word in click.get_current_context().meta[GIVEN] if word not in without
    ]
    return shlex.join(["bft-replay", *given])


def on_interrupts(
    handler: Callable[[int, FrameType | None], None],
) -> dict[signal.Signals, Any]:
    """Handle the interrupts that are not ignored, as nohup and a shell's background job ignore some.

    Returns
    -------
    dict
        The handlers that were there before, by signal.
    """
    heard = [
        number
        for number in INTERRUPTS
        if signal.getsignal(number) is not signal.SIG_IGN
    ]

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_terminals()
        handler(number, frame)

    return {number: signal.signal(number, handle) for number in heard}


def _leave_terminals() -> None:
    """Let what would be shown on a terminal go nowhere: once it is gone, each message would be an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in _terminals:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _interrupt() -> Callable[[int, FrameType | None], None]:
    """Return a handler that ends the program as Ctrl-C does: what is half written is removed after SIGTERM too."""
    raised = -math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        if time.monotonic() - raised > DOUBLE_S:
            raised = time.monotonic()
            raise KeyboardInterrupt

    return handle


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 bad input, 3 degraded, 130 interrupted (Ctrl-C, SIGTERM, SIGHUP)."""
    on_interrupts(_interrupt())
    for descriptor in range(
        3
    ):  # closed by the caller, as in <&-: a file of ours must not get its number
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            continue
        os.open(os.devnull, os.O_RDWR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as in >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open as long as we are
    _terminals[:] = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="replace"
        )  # a terminal without our block characters is no reason to fail
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    with on_standard_error():
        return _run(args)


def _run(args: list[str] | None) -> int:
    if COMPLETION in os.environ:  # a shell asks what the Tab key may write
        cli.main(args=args, prog_name="bft-replay")
    output = sys.stdout
    try:
        code = cli.main(args=args, prog_name="bft-replay", standalone_mode=False)
        sys.stdout.flush()  # a full disk or closed pipe shows here, not when Python has ended
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        is_bare = error.message.startswith("Got unexpected extra argument")
        hint = "; files are given by options: -ndmap TRACE --jobs JOBS"
        say_error(shown.getvalue().removesuffix("\n") + hint * is_bare)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        # Click takes the end of a file for the end of an answer to a prompt; we have none.
        if isinstance(error.__cause__, EOFError):
            raise error.__cause__ from None
        say_error("Interrupted.")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # `| head` closed our output: nobody is left to read it
        discard_output()
        return 0
    except SystemExit:
        # The same, noticed by click: it wraps a closed output before it exits.
        if sys.stdout is output:
            raise
        discard_output()
        return 0
    except OSError as error:  # a full disk, a file that vanished
        # Files of ours are named by then: what is left is printing.
        printing = error.filename is None and error.errno in _CANNOT_WRITE
        place = "standard output cannot be written" if printing else error.filename
        reason = error.strerror or str(error)
        say_error(f"Error: {place}: {reason}" if place else f"Error: {reason}")
        discard_output()
    except MemoryError as error:
        from bft.models.files import out_of_memory

        say_error(f"Error: {out_of_memory(error)}")
    except Exception as error:
        # Named only now, so that `--help` need not import what defines them.
        from bft.milp import ProblemError
        from bft.models import InputError
        from bft.replay.policies import PolicyError

        if not isinstance(error, InputError | ProblemError | PolicyError):
            raise
        say_error(f"Error: {error}")
    return EXIT_BAD_INPUT


def discard_output() -> None:
    """Let what is still buffered for a standard output that takes no more go to nowhere."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
