"""Messages of a command on standard error: errors always, notes unless --quiet, details with --verbose."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, TextIO

import click

from bft.models.errors import printable

# Of the package, not of its programs: other libraries report their warnings only.
_OURS = logging.getLogger("bft")
_VERBOSE = (logging.WARNING, logging.INFO, logging.DEBUG)


class _ToStandardError(logging.Handler):
    """Writes lines to the current standard error; a progress bar replaces it and prints them above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        # A closed pipe or a full disk must not end a replay of hours; there is no other place for the message.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{record.levelname.lower()}: {self.format(record)}\n")
            sys.stderr.flush()


@contextlib.contextmanager
def on_standard_error() -> Iterator[None]:
    """Messages of `logging` go to standard error while the block runs: warnings, and what --verbose asks for."""
    root, before = logging.getLogger(), _OURS.level
    handler = _ToStandardError()
    # Other libraries' records from the level warning on, whatever level they set.
    handler.addFilter(
        lambda record: (
            record.name.partition(".")[0] == _OURS.name
            or record.levelno >= logging.WARNING
        )
    )
    root.addHandler(handler)
    _OURS.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        _OURS.setLevel(before)


def quiet() -> bool:
    """Whether only errors are shown."""
    return not _OURS.isEnabledFor(logging.WARNING)


def say_note(text: str) -> None:
    """Show a note: worth knowing, but no error."""
    _say(f"note: {text}")


def say_warning(text: str) -> None:
    """Show a warning: probably not intended."""
    _say(f"warning: {text}")


def say_progress(text: str) -> None:
    """Show progress of the work."""
    _say(text)


def say_error(text: str) -> None:
    """Say why there is no result, whatever is wanted otherwise."""
    click.echo(fitted(text, sys.stderr), err=True)


def _say(line: str) -> None:
    if not quiet():
        click.echo(fitted(line, sys.stderr), err=True)


def fitted(text: str, stream: TextIO) -> str:
    """Printable lines, broken between words where a terminal would break them anywhere; as they are where nobody looks.

    Words that are longer than a line, such as paths and commands, stay whole: they are there to be copied.
    """
    lines = [printable(line) for line in text.split("\n")]
    if stream.isatty():
        width = shutil.get_terminal_size().columns
        wrapper = textwrap.TextWrapper(
            width, break_long_words=False, break_on_hyphens=False
        )
        lines = [wrapper.fill(line) for line in lines]
    return "\n".join(lines)


def verbosity_options() -> list[click.Parameter]:
    """The options -v and -q of every command."""
    louder = "Show more on standard error: -v events (solver processes, checkpoints), -vv details."
    return [
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_set_verbose,
            help=louder,
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_set_quiet,
            help="Only errors.",
        ),
    ]


def _set_verbose(ctx: click.Context, param: click.Parameter, value: int) -> None:
    if value:
        _OURS.setLevel(_VERBOSE[min(value, len(_VERBOSE) - 1)])


def _set_quiet(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if not value:
        return
    if _OURS.isEnabledFor(logging.INFO):
        raise click.UsageError("give either --verbose or --quiet", ctx)
    _OURS.setLevel(logging.ERROR)
