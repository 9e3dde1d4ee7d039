"""Options of `compare` and `sweep`: those of a replay with several values each, and the workers; their progress."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError
from bft.models.checks import Check, Flag, Name, Number, Several, did_you_mean
from bft.models.limited_reading import read_toml
from bft.models.objectives import ObjectiveText
from bft.models.option_fields import SECTIONS, OptionField
from bft.models.writing import duration
from bft.replay.cli.main import EXIT_INTERRUPTED, command_line
from bft.replay.cli.messages import quiet, say_error, say_progress, say_warning
from bft.replay.cli.parameters import (
    Checked,
    Decorator,
    inner,
    long_names,
    name_key,
    parameter_name,
    together,
)
from bft.replay.cli.watcher import bar, console
from bft.replay.options.options import FIELDS

if TYPE_CHECKING:
    from bft.replay.studies.study import Plan

    _AnyType = click.ParamType[Any]
else:
    _AnyType = click.ParamType

# Tables of a --plan file.
TABLES = ("options", "grid", "variants")
# Longer ranges are typing errors.
MAX_RANGE = 10_000


class Axis(_AnyType):
    """Values of an option with commas between, and of whole numbers ranges: 0:8 is 0 to 7, 0:64:16 every sixteenth.

    Of texts that may hold commas (files, pairs) it is one value; the option is repeated for others.
    """

    name = "values"

    def __init__(self, check: Check) -> None:
        self.check = inner(check)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[Any]:
        """Return the values, or fail saying what was expected."""
        if isinstance(value, list):
            return value
        splits = isinstance(self.check, Number | Name | ObjectiveText)
        texts = [part.strip() for part in value.split(",")] if splits else [value]
        try:
            return [each for text in texts for each in self._values(text)]
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def _values(self, text: str) -> list[Any]:
        if not (isinstance(self.check, Number) and self.check.whole and ":" in text):
            return [self.check.read(text)]
        try:
            numbers = range(*(int(part) for part in text.split(":")))
        except (TypeError, ValueError):
            raise ValueError(
                f"expected a range such as 0:8 or 0:64:16, not {text!r}"
            ) from None
        if not 0 < len(numbers) <= MAX_RANGE:
            raise ValueError(
                f"expected a range of 1 to {MAX_RANGE:,} numbers, not {text!r}"
            )
        return [self.check(number) for number in numbers]


def _axes() -> dict[str, click.Option]:
    """Return an option of several values for each of a replay's, by flat name."""
    return {
        name: click.Option([*field.flags, parameter_name(field)], **_axis_form(field))
        for name, field in FIELDS.items()
    }


def _axis_form(field: OptionField) -> dict[str, Any]:
    """Return what click is told of an option of several values, beside its names."""
    if isinstance(field.check, Flag):
        return {"is_flag": True, "default": None, "help": field.described}
    return {
        "type": Checked(field.check.each)
        if isinstance(field.check, Several)
        else Axis(field.check),
        "multiple": True,
        "default": None,
        "metavar": field.metavar or "VALUE,...",
        "help": field.described,
    }


plan_options: Decorator = together(
    *(
        click.option(*field.flags, parameter_name(field), **_axis_form(field))
        for field in sorted(
            FIELDS.values(), key=lambda each: SECTIONS.index(each.section)
        )
    ),
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


def plan_of(given: dict[str, Any]) -> Plan:
    """The plan that the command line and --plan ask for."""
    from bft.replay.studies.study import Plan

    options, grid, variants = (
        _of_file(given["plan_file"]) if given["plan_file"] else ({}, {}, {})
    )
    stated, axes = _stated(given)
    for name in (*stated, *axes):
        options.pop(name, None)
        grid.pop(name, None)
    options |= stated
    grid |= axes
    for text in given["variants"]:
        name, colon, rest = text.partition(":")
        if not (colon and name.strip()):
            raise click.BadParameter(
                f"expected 'NAME: OPTIONS', not {text!r}", param_hint="--variant"
            )
        if name.strip() in variants:
            raise click.BadParameter(
                f"two variants are called {name.strip()!r}", param_hint="--variant"
            )
        variants[name.strip()] = _variant(name.strip(), rest)
    # In the order of the options, whatever the order on the command line: the same plan has the same indices.
    order = {name: place for place, name in enumerate(FIELDS)}
    grid = dict(sorted(grid.items(), key=lambda item: order.get(item[0], len(order))))
    return Plan.of(options, grid, variants)


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
        elif isinstance(field.check, Flag):
            options[name] = not field.negated
        elif isinstance(field.check, Several):
            options[name] = value
        else:
            grid[name] = [each for values in value for each in values]
    return options, grid


def _variant(name: str, text: str) -> dict[str, Any]:
    """Return the values that the options of a variant state, by name."""
    command = click.Command(
        "variant", params=list(_axes().values()), add_help_option=False
    )
    try:
        context = command.make_context(f"--variant {name}", shlex.split(text))
    except ValueError as error:
        raise click.BadParameter(f"{name}: {error}", param_hint="--variant") from None
    options, grid = _stated(context.params)
    several = next((axis for axis, values in grid.items() if len(values) > 1), None)
    if several is not None:
        raise click.BadParameter(
            f"{name}: expected one value of each option", param_hint="--variant"
        )
    return {**options, **{axis: values[0] for axis, values in grid.items()}}


def _of_file(path: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options, grid and variants of a TOML file, by flat names."""
    try:
        content = read_toml(path)
    except InputError as error:
        raise click.BadParameter(str(error), param_hint="--plan") from None
    unknown = next((name for name in content if name not in TABLES), None)
    tables = [table for table in content.values() if not isinstance(table, dict)]
    variants = content.get("variants", {})
    if (
        unknown is not None
        or tables
        or not all(isinstance(each, dict) for each in variants.values())
    ):
        raise click.BadParameter(
            f"{path}: expected the tables [options], [grid] and [variants.NAME]"
            + (
                f", not {unknown!r}{did_you_mean(unknown, TABLES)}"
                if unknown is not None
                else ""
            ),
            param_hint="--plan",
        )
    axes = _axes()
    options = _named(path, content.get("options", {}), axes)
    grid = {}
    for name, entry in _named(path, content.get("grid", {}), axes).items():
        grid[name] = _axis(path, name, entry, axes)
    return (
        options,
        grid,
        {name: _named(path, table, axes) for name, table in variants.items()},
    )


def _axis(path: str, name: str, entry: Any, axes: dict[str, click.Option]) -> list[Any]:
    """Values of an axis: a list, or text as on the command line."""
    if isinstance(entry, list):
        return entry
    if isinstance(entry, str) and name in axes and isinstance(axes[name].type, Axis):
        try:
            return list(axes[name].type.convert(entry, None, None))
        except click.BadParameter as error:
            raise click.BadParameter(
                f"{path}: {name}: {error.message}", param_hint="--plan"
            ) from None
    return [entry]


def _named(
    path: str, table: dict[str, Any], axes: dict[str, click.Option]
) -> dict[str, Any]:
    """A table by flat names; it has the options' names with or without dashes, as --config does."""
    known = {
        name_key(flag): name
        for name, axis in axes.items()
        for flag in (*axis.opts, axis.name or "")
    }
    named = {}
    for key, entry in table.items():
        name = known.get(name_key(key))
        if name is None and key.startswith("set "):
            name = key
        if name is None:
            meant = did_you_mean(key, long_names(axes.values()))
            raise click.BadParameter(
                f"{path}: unknown option {key!r}{meant}", param_hint="--plan"
            )
        switches_off = (
            name in FIELDS and FIELDS[name].negated and isinstance(entry, bool)
        )
        named[name] = not entry if switches_off else entry
    return named


class StudyLines:
    """Progress of a study as one line for each point, with the time left by the mean wall time of a point."""

    def __enter__(self) -> StudyLines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Leave the progress of a study, of which lines leave nothing open."""

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
        left = (
            (time.monotonic() - self._began) / self._count * (self._todo - self._count)
        )
        time_left = f", {duration(left)} left" if left else ""
        say_progress(
            f"  {self._count} of {self._todo}  {label}  {seconds:.1f} s{time_left}"
        )


class StudyBar(StudyLines):
    """A bar of the points, with the time left."""

    def __enter__(self) -> StudyBar:
        from rich.progress import MofNCompleteColumn

        self._progress = bar(MofNCompleteColumn(), console())
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._progress.stop()

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
def study_progress(*, again: bool) -> Iterator[StudyLines]:
    """Show how far a study has come while the block runs; an interrupt ends the command, saying how to go on.

    `again`: the command has --again, which would repeat what has been done.
    """
    try:
        with (
            StudyBar() if sys.stderr.isatty() and not quiet() else StudyLines() as lines
        ):
            yield lines
    except KeyboardInterrupt:
        same = "the same command without --again" if again else "the same command"
        say_error(
            f"Interrupted: replays that were done are kept, and {same} goes on from there:"
        )
        click.echo(command_line(without=("--again",)), err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
