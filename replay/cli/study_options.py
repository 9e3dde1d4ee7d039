"""Options of `compare` and `sweep`: those of a replay with several values each, and the workers; their progress."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.models.checks import (
    FLAG,
    SECTIONS,
    Name,
    Number,
    OptionField,
    Several,
    did_you_mean,
)
from bft.models.files import read_toml
from bft.models.objectives import OBJECTIVE
from bft.models.writing import duration
from bft.replay.cli.groups import Command, of_key
from bft.replay.cli.main import EXIT_INTERRUPTED, command_line
from bft.replay.cli.messages import quiet, say_error, say_progress, say_warning
from bft.replay.cli.parameters import (
    Checked,
    Decorator,
    flags_of,
    parameter_name,
    rare_option,
    together,
)
from bft.replay.cli.watcher import bar, console
from bft.replay.options.options import FIELDS

if TYPE_CHECKING:
    from rich.progress import Progress

    from bft.replay.studies.study import Plan

# Tables of a --plan file.
TABLES = ("options", "grid", "variants")
# Longer ranges are typing errors.
MAX_RANGE = 10_000


class Axis(Checked):
    """Values of an option with commas between, and of whole numbers ranges: 0:8 is 0 to 7, 0:64:16 every sixteenth.

    Of texts that may hold commas (files, pairs) it is one value; the option is repeated for others.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[Any]:
        """Return the values, or fail saying what was expected."""
        if isinstance(value, list):
            return value
        splits = self.check in (FLAG, OBJECTIVE) or isinstance(
            self.check, Number | Name
        )
        parts = [part.strip() for part in value.split(",")] if splits else [value]
        whole = self.check.kind == "integer"
        values: list[Any] = []
        for text in parts:
            values += self._range(text) if whole and ":" in text else [text]
        return [super(Axis, self).convert(each, param, ctx) for each in values]

    def _range(self, text: str) -> range:
        try:
            numbers = range(*map(int, text.split(":")))
        except (TypeError, ValueError):
            self.fail(f"expected a range such as 0:8 or 0:64:16, not {text!r}")
        if not 0 < len(numbers) <= MAX_RANGE:
            what = f"expected a range of 1 to {MAX_RANGE:,} numbers, not {text!r}"
            self.fail(what)
        return numbers


def _axis(field: OptionField) -> Decorator:
    """Return an option of several values for one of a replay."""
    known: dict[str, Any] = {"is_flag": True}
    if field.rare or field.check is not FLAG:
        check = field.check
        known = {
            "type": Checked(check.each) if isinstance(check, Several) else Axis(check),
            "multiple": True,
            "metavar": field.metavar or "VALUE,...",
        }
    known |= {"default": None, "help": field.described, "hidden": field.rare}
    return click.option(*flags_of(field), parameter_name(field), **known)


_by_section = sorted(FIELDS.values(), key=lambda each: SECTIONS.index(each.section))
_axes = together(*map(_axis, _by_section), rare_option)


@click.command(cls=Command, add_help_option=False)
@_axes
def _variant(**given: Any) -> None:
    """The options of a variant."""


plan_options: Decorator = together(
    _axes,
    click.option(
        "--variant",
        "variants",
        multiple=True,
        metavar="'NAME: OPTIONS'",
        help="Options that belong together, as in 'short: --policy milp -Tfwd 10'; may be repeated.",
    ),
    click.option(
        "--plan",
        "plan_file",
        metavar="FILE.toml",
        help="Tables [options], [grid] and [variants.NAME]; flags win.",
    ),
)
worker_options: Decorator = together(
    click.option(
        "--workers",
        type=click.IntRange(min=0),
        metavar="N",
        help="Processes of this machine; 0 for none beside this one. [as many as processors]",
    ),
)


def states_plan(given: dict[str, Any]) -> bool:
    """Whether the command line says what to replay."""
    of_replays = ("variants", "plan_file", *map(parameter_name, FIELDS.values()))
    return any(given[name] for name in of_replays)


def plan_of(given: dict[str, Any]) -> Plan:
    """The plan that the command line and --plan ask for."""
    from bft.replay.studies.study import Plan

    options, grid, variants = _of_file(given["plan_file"])
    stated, axes = _stated(given)
    for name in (*stated, *axes):
        options.pop(name, None)
        grid.pop(name, None)
    grid |= axes
    for text in given["variants"]:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not (colon and name):
            raise InputError(f"--variant: expected 'NAME: OPTIONS', not {text!r}")
        if name in variants:
            raise InputError(f"--variant: two variants are called {name!r}")
        variants[name] = _of_variant(name, rest)
    # In the order of the options, whatever the order on the command line: the same plan has the same indices.
    order = {name: place for place, name in enumerate(FIELDS)}
    grid = dict(sorted(grid.items(), key=lambda item: order.get(item[0], len(order))))
    return Plan.of({**options, **stated}, grid, variants)


def _stated(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Options with one value, and axes, of those that the command line gives."""
    options: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}
    for name, field in FIELDS.items():
        value = given.get(parameter_name(field))
        if not value:
            continue
        if name == "policy_options":
            for constant, text in value:
                grid.setdefault(f"set {constant}", []).append(text)
        elif field.check is FLAG and not field.rare:
            options[name] = not field.negated
        elif isinstance(field.check, Several):
            options[name] = value
        else:
            grid[name] = [each for values in value for each in values]
    return options, grid


def _of_variant(name: str, text: str) -> dict[str, Any]:
    """Return the values that the options of a variant state, by name."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--variant: {name}: {error}") from None
    context = _variant.make_context(f"--variant {name}", words)
    options, grid = _stated(context.params)
    if any(len(values) > 1 for values in grid.values()):
        raise InputError(f"--variant: {name}: expected one value of each option")
    return {**options, **{axis: value for axis, [value] in grid.items()}}


def _of_file(path: str | None) -> tuple[dict[str, Any], ...]:
    """Options, grid and variants of a TOML file, by flat names; none without a file."""
    content = read_toml(path) if path else {}
    stated, axes, variants = (content.pop(name, {}) for name in TABLES)
    what = "expected the tables [options], [grid] and [variants.NAME]"
    for key in content:
        meant = did_you_mean(key, TABLES)
        raise InputError(f"{what}, not {key!r}{meant}", file=path)
    nested = variants.values() if isinstance(variants, dict) else (variants,)
    if not all(isinstance(each, dict) for each in (stated, axes, variants, *nested)):
        raise InputError(what, file=path)
    file = path or ""
    options = _named(file, stated)
    grid = {
        name: entry if isinstance(entry, list) else _values(file, name, entry)
        for name, entry in _named(file, axes).items()
    }
    return options, grid, {name: _named(file, each) for name, each in variants.items()}


def _values(path: str, name: str, entry: Any) -> list[Any]:
    """Values of an axis: text as on the command line, or one value."""
    axis = Axis(FIELDS[name].check) if name in FIELDS else None
    if (
        axis is None
        or not isinstance(entry, str)
        or isinstance(FIELDS[name].check, Several)
    ):
        return [entry]
    try:
        return axis.convert(entry, None, None)
    except click.BadParameter as error:
        raise InputError(f"{name}: {error.message}", file=path) from None


def _named(path: str, table: dict[str, Any]) -> dict[str, Any]:
    """A table by flat names; it has the options' names with or without dashes, as --config does."""
    names = {parameter_name(field): name for name, field in FIELDS.items()}
    named = {}
    for key, entry in table.items():
        if key.startswith("set "):
            named[key] = entry
            continue
        name = names[of_key(key, _variant.params, path).name or ""]
        negates = FIELDS[name].negated and isinstance(entry, bool)
        named[name] = not entry if negates else entry
    return named


class StudyLines:
    """Progress of a study as one line for each point, with the time left by the mean wall time of a point."""

    def begins(self, points: int, done: int, workers: str) -> None:
        """Show the number of replays, and how many of them were done before."""
        self._todo, self._count, self._began = points - done, 0, time.monotonic()
        there = f", {done} done before" if done else ""
        say_progress(
            f"{points} replays{there}" + (f"; by {workers}" if self._todo else "")
        )

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """Show that a point is done, or has failed."""
        self._count += 1
        if error is not None:
            say_warning(f"{label} failed: {error}")
        mean = (time.monotonic() - self._began) / self._count
        left_s = round(mean * (self._todo - self._count))
        time_left = f", {duration(left_s)} left" if left_s else ""
        done = f"{self._count} of {self._todo}"
        say_progress(f"  {done}  {label}  {seconds:.1f} s{time_left}")


class StudyBar:
    """A bar of the points, with the time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begins(self, points: int, done: int, workers: str) -> None:
        """Show the number of replays, and how many of them were done before."""
        self._task = self._progress.add_task(
            f"replays by {workers}", total=points, completed=done, text=""
        )

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """Show that a point is done, or has failed."""
        if error is not None:
            say_warning(f"{label} failed: {error}")
        self._progress.update(self._task, advance=1, text=label, refresh=True)


@contextmanager
def study_progress(*, again: bool) -> Iterator[StudyLines | StudyBar]:
    """Show how far a study has come while the block runs; an interrupt ends the command, saying how to go on.

    `again`: the command has --again, which would repeat what has been done.
    """
    try:
        if quiet() or not sys.stderr.isatty():
            yield StudyLines()
            return
        from rich.progress import MofNCompleteColumn

        with bar(MofNCompleteColumn(), console()) as progress:
            yield StudyBar(progress)
    except KeyboardInterrupt:
        same = "the same command without --again" if again else "the same command"
        say_error(
            f"Interrupted: replays that were done are kept, and {same} goes on from there:"
        )
        click.echo(command_line(without=("--again",)), err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
