"""What all commands share: the form of `--help`, what is said of an unknown word, messages and exit codes.

Nothing that reads an option is imported here: neither the list of commands nor an unknown one should wait for it.
Messages go to standard error: errors always, notes unless --quiet, details with --verbose.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO, TypeVar

import click

from bft.models.errors import printable

EXIT_BAD_INPUT, EXIT_DEGRADED, EXIT_INTERRUPTED = 2, 3, 130
OTHER = "Other"
# Gives an option that the help does not list: to click each is one of its own, as "--option gap".
RARE = "--option"
Known = TypeVar("Known")
# Of the package, not of its programs: other libraries report their warnings only.
_OURS = logging.getLogger("bft")
_VERBOSE = (logging.WARNING, logging.INFO, logging.DEBUG)


class Helpful(click.Command):
    """A command whose help has sections, and as examples the lines of its docstring below "Such as:"."""

    def __init__(self, name: str | None = None, **known: Any) -> None:
        described = inspect.cleandoc(known.pop("help", None) or "")
        text, _, lines = described.partition("\nSuch as:\n")
        super().__init__(name, help=text, **known)
        self.examples = lines.splitlines()

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options by section, in the order in which sections come first."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and isinstance(option, click.Option):
                title = getattr(option, "section", OTHER)
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section("Options" if list(sections) == [OTHER] else title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the text at the end."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"  {line.strip()}\n")
        super().format_epilog(ctx, formatter)


class Command(Helpful):
    """A command with -v and -q.

    It names an unknown option in full; click names its first letter when it starts with one dash.
    """

    def __init__(self, name: str | None = None, **known: Any) -> None:
        super().__init__(name, **known)
        louder = "Show more on standard error: -v events (solver processes, checkpoints), -vv details."
        verbose = click.Option(["-v", "--verbose"], count=True, help=louder)
        quiet = click.Option(["-q", "--quiet"], is_flag=True, help="Only errors.")
        self.params += [verbose, quiet]

    def invoke(self, ctx: click.Context) -> Any:
        """Run, and show what -v and -q ask for."""
        set_level(ctx.params.pop("verbose"), ctx.params.pop("quiet"))
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown option is named with what may have been meant, and none may be given twice."""
        args = list(self._joined(args))
        try:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            from bft.models.checks import did_you_mean

            known = [name for option in self.params for name in option.opts]
            words = {word.split("=")[0] for word in args}.difference(known)
            # Click may have shortened it to its first letter.
            whole = next(w for w in words if w.startswith(error.option_name))
            what = f"No such option {whole!r}"
            if (rare := f"{RARE} {_bare(whole)}") in known:
                raise click.UsageError(f"{what}; write {rare}=VALUE", ctx) from None
            raise click.UsageError(what + did_you_mean(whole, known), ctx) from None
        once = (e for e in given if not (e.multiple or getattr(e, "count", False)))
        for each, times in Counter(once).items():
            if times > 1 and not ctx.resilient_parsing:
                raise click.UsageError(f"{each.opts[0]} is given twice", ctx)
        return super().parse_args(ctx, args)

    def _joined(self, args: Iterable[str]) -> Iterator[str]:
        """Yield the words of a command line, --option and its NAME=VALUE as one; unknown names are refused."""
        names = [each.opts[0] for each in self.params]
        rare = {_bare(name): name for name in names if name.startswith(f"{RARE} ")}
        words = iter(args)
        for word in words:
            if word == "--":
                yield from (word, *words)
            elif rare and word.partition("=")[0] == RARE:
                stated = word.partition("=")[2] if "=" in word else next(words, "")
                name, equals, value = stated.partition("=")
                if not equals:
                    what = f"expected {RARE} NAME=VALUE, such as {RARE} gap=0.01"
                    raise click.UsageError(f"{what}, not {stated!r}")
                yield f"{of_key(name.strip(), rare, None)}={value}"
            else:
                yield word


class Group(Helpful, click.Group):
    """A group that suggests the command that was probably meant."""

    command_class = Command

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write options and commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown command is an error that names those that exist."""
        word, names = next(iter(args), ""), self.list_commands(ctx)
        is_command = self.get_command(ctx, word) is not None
        if word and word[0] != "-" and not (is_command or ctx.resilient_parsing):
            from bft.models.checks import did_you_mean

            what = f"no command {word!r}; commands are {', '.join(names)}"
            raise click.UsageError(what + did_you_mean(word, names), ctx)
        return super().parse_args(ctx, args)


def of_key(key: str, known: Mapping[str, Known], file: str | None) -> Known:
    """Return what a key of a file, or of --option, names; with or without dashes replaced by underscores.

    Raises
    ------
    InputError
        For an unknown key, with the name that may have been meant, or else all of them.
    """
    from bft.models import InputError
    from bft.models.checks import did_you_mean

    names = {_bare(name).replace("_", "-"): each for name, each in known.items()}
    plain = {name.lower(): each for name, each in names.items()}
    found = plain.get(key.replace("_", "-").lower())
    if found is None:
        near = did_you_mean(key, names) or f"; known are {', '.join(sorted(names))}"
        raise InputError(f"unknown option {key!r}{near}", file=file)
    return found


def _bare(name: str) -> str:
    return name.removeprefix(f"{RARE} ").lstrip("-")


class _ToStandardError(logging.Handler):
    """Writes lines to the current standard error; a progress bar replaces it and prints them above itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        # Other libraries' records from the level warning on, whatever level they set.
        ours = record.name.partition(".")[0] == _OURS.name
        return ours or record.levelno >= logging.WARNING

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
    say_progress(f"note: {text}")


def say_warning(text: str) -> None:
    """Show a warning: probably not intended."""
    say_progress(f"warning: {text}")


def say_progress(text: str) -> None:
    """Show progress of the work."""
    if not quiet():
        say_error(text)


def say_error(text: str) -> None:
    """Say why there is no result, whatever is wanted otherwise."""
    click.echo(fitted(text, sys.stderr), err=True)


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


def set_level(verbose: int, quietly: bool) -> None:
    """Show what --verbose and --quiet ask for."""
    if verbose and quietly:
        raise click.UsageError("give either --verbose or --quiet")
    if verbose:
        _OURS.setLevel(_VERBOSE[min(verbose, len(_VERBOSE) - 1)])
    if quietly:
        _OURS.setLevel(logging.ERROR)
