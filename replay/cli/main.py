"""Entry point: dispatch to sub-commands, and turn errors into exit codes."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import FrameType

import click
from click.shell_completion import CompletionItem

from bft.replay.cli.commands import (
    EXIT_BAD_INPUT,
    EXIT_INTERRUPTED,
    RARE,
    Group,
    on_standard_error,
    say_error,
)

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
# Where those are that have no module, or function, of their own name.
PLACES = {"compare": "studies:compare", "sweep": "studies:sweep", "list": "list:list_"}
COMPLETION = "_BFT_REPLAY_COMPLETE"
GIVEN = "bft.replay.given"  # where click's context keeps the arguments
DOUBLE_S = 0.3
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
# Standard streams that were a terminal when the program began.
_terminals: list[int] = []


class _Dispatcher(Group):
    """A group whose commands are imported when they are called, one of which runs where none is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = cmd_name.lower()
        if cmd_name not in COMMANDS:
            return None
        place = PLACES.get(cmd_name, f"{cmd_name}:{cmd_name}")
        module, _, name = place.partition(":")
        command: click.Command = getattr(
            import_module(f"bft.replay.cli.{module}"), name
        )
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
        begun = (name for name in COMMANDS if name.startswith(incomplete))
        return [CompletionItem(name, help=COMMANDS[name]) for name in begun]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[GIVEN] = list(args)
        word = next(iter(args), "")
        if (
            word
            and word[0] != "-"
            and word.lower() not in COMMANDS
            and Path(word).is_file()
        ):
            what = f"no command {word!r}; to replay a trace: bft-replay -ndmap {word}"
            raise click.UsageError(what, ctx)
        own = {name for each in self.get_params(ctx) for name in each.opts}
        is_option = not word or (word[0] == "-" and word not in own)
        if is_option and (args or not ctx.resilient_parsing):
            args = ["replay", *args]
        return super().parse_args(ctx, args)


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
    # Help is as wide as the terminal.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 10_000,
    },
)
@click.version_option(package_name="bft-replay", prog_name="bft-replay")
def cli() -> None:
    """Replay a supercomputer's idle-node log: which training job gets which idle node, and what that yields.

    Without a command, `bft-replay [OPTIONS]` is `bft-replay replay [OPTIONS]`; see `bft-replay replay --help`. Without
    options either it replays the bundled data set.

    Such as:
    bft-replay -ndmap trace.parquet --preset best
    bft-replay ingest slurm sacct.txt -o trace.parquet
    """


def command_line(*, without: Sequence[str] = ()) -> str:
    """The running command as it would be typed into a shell; `without` are flags to leave out."""
    given = [
        word for word in click.get_current_context().meta[GIVEN] if word not in without
    ]
    return shlex.join(["bft-replay", *given])


class _Interrupts:
    """Ctrl-C, a batch system's end of the job, a lost connection: they end the program, or ask a replay to stop first.

    Two that are closer than DOUBLE_S are one: programs such as timeout signal the process and then its group.
    """

    def __init__(self) -> None:
        self._pressed: float | None = None
        self._asked = False

    def listen(self) -> None:
        """Handle those that are not ignored, as nohup and a shell's background job ignore some."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            # Once a terminal is gone, each message on it would be an error.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for descriptor in _terminals:
                os.dup2(nowhere, descriptor)
        now, before = time.monotonic(), self._pressed
        if before is not None and now - before <= DOUBLE_S:
            return
        self._pressed = now
        if before is not None or not self._asked:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def stopping(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that says whether to stop: an interrupt came since it was first asked.

        Before that nothing has been replayed that could be kept, and an interrupt ends the program as any; so does a
        second one.
        """

        def should_stop() -> bool:
            self._asked = True
            return self._pressed is not None

        try:
            yield should_stop
        finally:
            self._asked = False


_interrupts = _Interrupts()
stop_on_interrupt = _interrupts.stopping


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 bad input, 3 degraded, 130 interrupted (Ctrl-C, SIGTERM, SIGHUP)."""
    _interrupts.listen()
    # Closed by the caller, as in <&-: a file of ours must not get its number.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as in >&-
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open as long as we are
    _terminals[:] = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without our block characters is no reason to fail.
        sys.stdout.reconfigure(errors="replace")
    if COMPLETION in os.environ:  # a shell asks what the Tab key may write
        cli.main(prog_name="bft-replay")
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: list[str]) -> int:
    """Run the command line and return its exit code."""
    with on_standard_error():
        try:
            with cli.make_context("bft-replay", list(args)) as context:
                code = cli.invoke(context)
            sys.stdout.flush()  # a full disk or closed pipe shows here, not when Python has ended
            return code if isinstance(code, int) else 0
        except click.exceptions.Exit as request:
            return request.exit_code
        except KeyboardInterrupt:
            say_error("Interrupted.")
            return EXIT_INTERRUPTED
        except BrokenPipeError:  # `| head` closed our output: nobody is left to read it
            return 0
        except Exception as error:
            say_error(_told(error))
            return EXIT_BAD_INPUT
        finally:
            discard_output()  # Python's own flush at the end could change the exit code


def _told(error: Exception) -> str:
    """What to say of an error for which the user's input or machine is the reason; others are raised again."""
    if isinstance(error, click.ClickException):
        shown = io.StringIO()
        error.show(shown)
        is_bare = error.message.startswith("Got unexpected extra argument")
        hint = "; files are given by options: -ndmap TRACE --jobs JOBS"
        return shown.getvalue().removesuffix("\n") + hint * is_bare
    if isinstance(error, OSError):  # a full disk, a file that vanished
        # Files of ours are named by then: what is left is printing.
        printing = error.filename is None and error.errno in _CANNOT_WRITE
        place = "standard output cannot be written" if printing else error.filename
        reason = error.strerror or str(error)
        return f"Error: {place}: {reason}" if place else f"Error: {reason}"
    # Named only now, so that `--help` need not import what defines them.
    from bft.milp import ProblemError
    from bft.models import InputError
    from bft.models.files import out_of_memory
    from bft.replay.policies import PolicyError

    if isinstance(error, MemoryError):
        return f"Error: {out_of_memory(error)}"
    if isinstance(error, InputError | ProblemError | PolicyError):
        return f"Error: {error}"
    raise error


def discard_output() -> None:
    """Let what is still buffered for a standard stream that takes no more go to nowhere."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
