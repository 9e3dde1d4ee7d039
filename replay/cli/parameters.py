"""What options of commands are made of: their types, those that many commands have, and the reading of --config."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from bft.models import InputError
from bft.models.checks import (
    FLAG,
    OUTPUT,
    POLICY,
    SECTIONS,
    TEXT,
    TEXTS,
    TRUST_PICKLE,
    Check,
    Name,
    Number,
    OptionField,
    Several,
    seconds,
)
from bft.models.files import read_toml
from bft.replay.cli.groups import OTHER, RARE, Command, of_key

if TYPE_CHECKING:
    _AnyType = click.ParamType[Any]
else:  # older versions of click have no such brackets
    _AnyType = click.ParamType


class Option(click.Option):
    """An option in a section of the help."""

    def __init__(self, *names: Any, section: str = OTHER, **known: Any) -> None:
        super().__init__(*names, **known)
        self.section = section


Decorator = Callable[[Any], Any]


class Checked(_AnyType):
    """A value that a check allows; texts are read first."""

    def __init__(self, check: Check) -> None:
        self.check, self.name = check, check.kind

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Return the values of a variable: files as in PATH, others with blanks between."""
        return rv.split(os.pathsep if self.check is TEXTS else None)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the value in its plain form, or fail saying what was expected."""
        try:
            return (
                self.check.read(value) if isinstance(value, str) else self.check(value)
            )
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def get_metavar(
        self, param: click.Parameter, ctx: click.Context | None = None
    ) -> str | None:
        """The names, where there are few."""
        names = self.check.names if isinstance(self.check, Name) else None
        return f"[{'|'.join(names)}]" if isinstance(names, tuple) else None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so; files and folders, where the option takes one."""
        if param.metavar in ("FILE", "DIR", "NxU|FILE"):
            return [
                CompletionItem(
                    incomplete, type="dir" if param.metavar == "DIR" else "file"
                )
            ]
        names = self.check.all_names() if isinstance(self.check, Name) else ()
        begun = incomplete.lower()
        return [CompletionItem(name) for name in names if name.startswith(begun)]


def option(field: OptionField) -> Decorator:
    """Return the option of the command line for an option of the table, or of another dataclass of options."""
    check = field.check
    known: dict[str, Any] = {"is_flag": True, "default": False}
    if field.rare or check is not FLAG:
        each = check.each if isinstance(check, Several) else check
        several = each is not check or check is TEXTS
        default = None if several or field.varies or field.rare else field.default
        known = {
            "type": Checked(each),
            "multiple": several,
            "default": default,
            "show_default": default is not None,
            "metavar": field.metavar,
        }
    section, name = field.section or OTHER, parameter_name(field)
    known |= {"cls": Option, "section": section, "help": field.described}
    return click.option(*flags_of(field), name, hidden=field.rare, **known)


def flags_of(field: OptionField) -> tuple[str, ...]:
    """Return the names of an option to click: of a rare one, what `Command` makes of --option NAME=VALUE."""
    return (f"{RARE} {field.key}",) if field.rare else field.flags


# Says that there are options which the help does not list; what is given by it goes to the options of `flags_of`.
rare_option = click.option(
    RARE,
    metavar="NAME=VALUE",
    multiple=True,
    expose_value=False,
    help="Another option, of those that `bft-replay list options` names; may be repeated.",
)


def parameter_name(field: OptionField) -> str:
    """Return the name of an option's parameter: its own, or that of its flag where this switches it off."""
    return field.flag.lstrip("-").replace("-", "_") if field.negated else field.name


def stated_options(
    fields: Mapping[str, OptionField], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options, by flat name, that are among the parameters of a command."""
    values = {name: parameters.get(parameter_name(f)) for name, f in fields.items()}
    return {
        name: not value if fields[name].negated else value
        for name, value in values.items()
        if value is not None
    }


def together(*options: Decorator) -> Decorator:
    """Several options as one decorator, in the order in which `--help` lists them."""

    def decorate(command: Any) -> Any:
        for each in reversed(options):
            command = each(command)
        return command

    return decorate


def output_option(what: str, *, required: bool = True) -> Decorator:
    """Return the option -o, whose help is `what`."""
    return click.option("-o", "--output", metavar="FILE", required=required, help=what)


def force_option(what: str = "Replace the target if it exists.") -> Decorator:
    """Return the option --force, whose help is `what`."""
    return click.option("--force", is_flag=True, help=what)


def json_option(what: str = "As JSON.") -> Decorator:
    """Return the option --json, whose help is `what`."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def seed_option(what: str) -> Decorator:
    """Return the option --seed, whose help is `what`."""
    return click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help=what,
    )


def use_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Take defaults from a TOML file; flags and environment variables win over it.

    Keys are the long names of the options, with or without dashes replaced by underscores.
    """
    if value is None:
        return
    others = [each for each in ctx.command.params if each is not param]
    defaults: dict[str, Any] = {}
    for key, entry in read_toml(value).items():
        parameter = of_key(key, others, value)
        try:
            entries = _of_toml(parameter, entry)
            parameter.type_cast_value(ctx, entries)
        except click.BadParameter as error:
            raise InputError(f"{key}: {error.message}", file=value) from None
        defaults[parameter.name or ""] = entries
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _of_toml(parameter: click.Parameter, entry: Any) -> Any:
    """Return a TOML value as click takes it; refuse what it would convert silently: true to 1 second."""
    entries = entry if parameter.multiple and isinstance(entry, list) else [entry]
    kind = parameter.type
    if isinstance(kind, Checked):
        wanted: type | tuple[type, ...] = str
        expected = "text in quotes"
        if kind.check is FLAG:
            wanted, expected = bool, "true or false"
        elif isinstance(kind.check, Number):
            wanted, expected = (int, float), "a number"
        wrong = [each for each in entries if not isinstance(each, wanted)]
        if wrong:
            raise click.BadParameter(f"expected {expected}, not {wrong[0]!r}")
    return entries if parameter.multiple else entry


class TableCommand(Command):
    """A command that reads tables, and pickles among them on the user's word."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if all(each.name != "trust_pickle" for each in self.params):
            self.params.append(
                click.Option(
                    ["--trust-pickle"],
                    is_flag=True,
                    expose_value=False,
                    callback=_trust_pickles,
                    help=TRUST_PICKLE,
                )
            )


def _trust_pickles(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    from bft.models.tables import trusting_pickles  # here: `--help` need not wait

    ctx.with_resource(trusting_pickles(value))


# Options of a replay that only the command line has.
_ONLY_HERE = (
    OptionField(
        name="name",
        flags=("-name", "--name"),
        check=TEXT,
        default="debug",
        help="Name of the run.",
        section=OUTPUT,
    ),
    OptionField(
        name="checkpoint_every_s",
        flags=("--checkpoint-every",),
        check=seconds(zero=True),
        help="Save the state so often; the same command then resumes a killed replay.",
        section=OUTPUT,
        metavar="SECONDS",
        shown="never",
    ),
    OptionField(
        name="out",
        flags=("--out",),
        check=TEXT,
        help="Run directory.",
        section=OUTPUT,
        metavar="DIR",
        shown="NAME-itrOut",
    ),
    OptionField(
        name="force",
        flags=("--force",),
        check=FLAG,
        help="Replace an earlier run in the run directory.",
        section=OUTPUT,
    ),
    OptionField(
        name="bound",
        flags=("--bound",),
        check=FLAG,
        help="Replay nothing: report the samples that no policy can exceed, and the least completion times.",
        section=OUTPUT,
    ),
    OptionField(
        name="as_json",
        flags=("--json",),
        check=FLAG,
        help="Write the summary, or with --bound the bounds, as JSON to standard output.",
        section=OUTPUT,
    ),
)


def _switch(section: str, *names: str, what: str) -> tuple[str, Decorator]:
    """Return an option that takes 0 or 1, as in the published replayer."""
    return section, click.option(
        *names,
        cls=Option,
        section=section,
        type=click.BOOL,
        metavar="BOOL",
        default=True,
        show_default=True,
        help=what,
    )


def table_options(fields: Mapping[str, OptionField]) -> Decorator:
    """Give a command all options of a table, and those of the command line alone, by section."""
    config = click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=use_config,
        section=OUTPUT,
        cls=Option,
        help="TOML file with options by their long names; flags win.",
    )
    whether = (
        "Print progress and summary; 0 writes them to replay.log in the run directory."
    )
    by_milp = "Decide by MILP; 0 is --policy equal-share."
    all_fields = (*fields.values(), *_ONLY_HERE)
    made = [
        *((field.section, option(field)) for field in all_fields),
        _switch(OUTPUT, "-print", "--print", "print_", what=whether),
        _switch(POLICY, "-mip", "--mip", what=by_milp),
        (OUTPUT, config),
        (OUTPUT, rare_option),
    ]
    made.sort(key=lambda each: SECTIONS.index(each[0]))
    return together(*(decorator for _, decorator in made))
