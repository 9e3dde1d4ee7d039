"""What options of commands are made of: their types, those that many commands have, and the reading of --config."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    Form,
    Name,
    OptionField,
    Several,
    seconds,
    whole,
)
from bft.models.files import read_toml
from bft.replay.cli.commands import OTHER, RARE, of_key

if TYPE_CHECKING:
    _AnyType = click.ParamType[Any]
else:  # older versions of click have no such brackets
    _AnyType = click.ParamType

Decorator = Callable[[Any], Any]


class Option(click.Option):
    """An option in a section of the help."""

    def __init__(self, *names: Any, section: str = OTHER, **known: Any) -> None:
        super().__init__(*names, **known)
        self.section = section


class Checked(_AnyType):
    """A value that a check allows; texts are read first."""

    def __init__(self, check: Check) -> None:
        self.check, self.name = check, check.kind

    def split_envvar_value(self, rv: str) -> Sequence[str]:
        """Return the values of a variable: files as in PATH, others with blanks between."""
        return rv.split(os.pathsep if self.check in (TEXT, TEXTS) else None)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the value in its plain form, or fail saying what was expected."""
        try:
            if isinstance(value, str):
                return self.check.read(value)
            return self.check(value)
        except ValueError as error:
            own = param is not None and param.name == "policy" and "." in str(value)
            how = (
                "; your own is a class package:Class that a package registers (docs/policies.md#your-own)"
                if own
                else ""
            )
            self.fail(f"{error}{how}", param, ctx)

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
        kind = {"FILE": "file", "NxU|FILE": "file", "DIR": "dir"}.get(
            param.metavar or ""
        )
        if kind is not None:
            return [CompletionItem(incomplete, type=kind)]
        names = self.check.all_names() if isinstance(self.check, Name) else ()
        begun = incomplete.lower()
        return [CompletionItem(name) for name in names if name.startswith(begun)]


def option(field: OptionField, **known: Any) -> Decorator:
    """Return the option of the command line for an option of the table; `known` is what click is told besides."""
    check = field.check
    named = (parameter_name(field),) if field.name else ()
    if field.rare or check is not FLAG:
        each = check.each if isinstance(check, Several) else check
        several = each is not check or check is TEXTS
        usual: dict[str, Any] = {"type": Checked(each), "multiple": several}
        usual["metavar"] = field.metavar
        constant = not several and not (field.varies or field.rare)
        if constant and field.default is not None:
            usual |= {"default": field.default, "show_default": True}
    else:
        usual = {"is_flag": True, "default": False}
    usual |= {"section": field.section or OTHER, "help": field.described}
    hidden = {"hidden": field.rare, "cls": Option}
    return click.option(*flags_of(field), *named, **{**usual, **hidden, **known})


def setting(
    flags: str,
    what: str,
    check: Check = TEXT,
    default: Any = None,
    *,
    metavar: str | None = None,
    section: str = "",
    **known: Any,
) -> Decorator:
    """Return an option that only the command line has.

    Parameters
    ----------
    flags
        Its names, with blanks between; one without dashes is that of the parameter.
    what
        Its help.
    check, default, metavar, section
        As for `OptionField`.
    **known
        What click is told besides.
    """
    field = OptionField(
        flags=tuple(flags.split()),
        check=check,
        default=default,
        help=what,
        metavar=metavar,
        section=section,
    )
    return option(field, **known)


def flags_of(field: OptionField) -> tuple[str, ...]:
    """Return the names of an option to click: of a rare one, what `Command` makes of --option NAME=VALUE."""
    return (f"{RARE} {field.key}",) if field.rare else field.flags


# Says that there are options which the help does not list; what is given by it goes to the options of `flags_of`.
rare_option = setting(
    RARE,
    "Another option, of those that `bft-replay list options` names; may be repeated.",
    Several(TEXT),
    metavar="NAME=VALUE",
    expose_value=False,
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


def output_option(what: str) -> Decorator:
    """Return the option -o, whose help is `what`."""
    return setting("-o --output", what, metavar="FILE", required=True)


def json_option(what: str = "As JSON.") -> Decorator:
    """Return the option --json, whose help is `what`."""
    return setting("--json as_json", what, FLAG)


force_option = setting("--force", "Replace files that exist.", FLAG)


def _trust_pickles(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    from bft.models.tables import trusting_pickles  # here: `--help` need not wait

    ctx.with_resource(trusting_pickles(value))


# Of commands that read tables, and pickles among them on the user's word.
pickle_option = setting(
    "--trust-pickle", TRUST_PICKLE, FLAG, expose_value=False, callback=_trust_pickles
)


def use_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Take defaults from a TOML file; flags and environment variables win over it.

    Keys are the long names of the options, with or without dashes replaced by underscores.
    """
    if value is None:
        return
    others = spelt(each for each in ctx.command.params if each is not param)
    defaults: dict[str, Any] = {}
    for key, entry in read_toml(value).items():
        parameter = of_key(key, others, value)
        listed = not parameter.multiple or isinstance(entry, list)
        entries = entry if listed else [entry]
        try:
            parameter.type_cast_value(ctx, entries)
        except click.BadParameter as error:
            raise InputError(f"{key}: {error.message}", file=value) from None
        defaults[parameter.name or ""] = entries
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def spelt(options: Iterable[click.Parameter]) -> dict[str, click.Parameter]:
    """Return options by all their names, as `of_key` takes them."""
    return {n: each for each in options for n in (*each.opts, each.name or "")}


def wholes(least: int) -> Form:
    """Return a check of whole numbers with commas between, as a list."""

    def read(text: str) -> list[int]:
        return [whole(least).read(part) for part in text.split(",")]

    return Form(read)


# True or false, also as the published replayer has it.
ZERO_OR_ONE = Form(FLAG.convert, FLAG.kind, {**FLAG.words, "0": False, "1": True})
# Options of a replay that only the command line has.
_ONLY_HERE = (
    setting(
        "-mip --mip",
        "Decide by MILP; 0 is --policy equal-share.",
        ZERO_OR_ONE,
        True,
        metavar="BOOL",
        section=POLICY,
    ),
    setting("-name --name", "Name of the run.", TEXT, "debug", section=OUTPUT),
    setting(
        "--checkpoint-every checkpoint_every_s",
        "Save the state so often; the same command then resumes a killed replay. [never]",
        seconds(zero=True),
        metavar="SECONDS",
        section=OUTPUT,
    ),
    setting("--out", "Run directory. [NAME-itrOut]", metavar="DIR", section=OUTPUT),
    setting(
        "--force", "Replace an earlier run in the run directory.", FLAG, section=OUTPUT
    ),
    setting(
        "--bound",
        (
            "Replay nothing: report the samples that no policy can exceed, and the least "
            "completion times."
        ),
        FLAG,
        section=OUTPUT,
    ),
    setting(
        "--json as_json",
        "Write the summary, or with --bound the bounds, as JSON to standard output.",
        FLAG,
        section=OUTPUT,
    ),
    setting(
        "-print --print print_",
        "Print progress and summary; 0 writes them to replay.log in the run directory.",
        ZERO_OR_ONE,
        True,
        metavar="BOOL",
        section=OUTPUT,
    ),
    setting(
        "--config",
        "TOML file with options by their long names; flags win.",
        metavar="FILE",
        section=OUTPUT,
        is_eager=True,
        expose_value=False,
        callback=use_config,
    ),
    rare_option,
)


def table_options(fields: Mapping[str, OptionField]) -> Decorator:
    """Give a command all options of a table, by section, and those of the command line alone."""
    ordered = sorted(fields.values(), key=lambda each: SECTIONS.index(each.section))
    return together(*map(option, ordered), *_ONLY_HERE)
