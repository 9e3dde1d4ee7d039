"""What commands are made of: the form of `--help`, types of options, and the reading of --config."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from bft.models import InputError
from bft.models.checks import (
    MAX_S,
    Check,
    Flag,
    Maybe,
    Name,
    Number,
    OneOrMore,
    Several,
    Text,
    did_you_mean,
    seconds,
)
from bft.models.limited_reading import read_toml
from bft.models.option_fields import OUTPUT, POLICY, SECTIONS, TRUST_PICKLE, OptionField
from bft.replay.cli.messages import verbosity_options

if TYPE_CHECKING:
    _AnyType = click.ParamType[Any]
else:  # older versions of click have no such brackets
    _AnyType = click.ParamType

# Replaces hyphens while click wraps lines, so that --jobs-format stays one word.
_GLUE = "\ue000"
OTHER = "Other"

# Two command lines for each command, by its path.
EXAMPLES: dict[str, tuple[str, str]] = {
    "": (
        "bft-replay -ndmap trace.parquet --preset best",
        "bft-replay ingest slurm sacct.txt -o trace.parquet",
    ),
    "evaluate": (
        "bft-replay evaluate jobs.sacct --nodes nodes.txt --events events.txt --tz Europe/Berlin",
        "bft-replay evaluate jobs.sacct --nodes nodes.txt --jobs trainings.csv --price-per-node-hour 0.4",
    ),
    "replay": (
        "bft-replay -ndmap trace.parquet --jobs jobs.csv --preset best",
        "bft-replay --cluster 16x4 --jobs jobs.csv --policy tiresias-l --out tiresias",
    ),
    "bound": (
        "bft-replay bound -ndmap trace.parquet --jobs jobs.csv",
        "bft-replay bound --cluster 16x4 --jobs jobs.csv",
    ),
    "compare": (
        "bft-replay compare -ndmap trace.parquet --jobs jobs.csv --policy milp,pollux,equal-share",
        "bft-replay compare mine-itrOut other-itrOut",
    ),
    "sweep": (
        "bft-replay sweep -ndmap trace.parquet -Tfwd 10,30,60 -maxJ 5,10,0 --seed 0:8",
        "bft-replay sweep best --metric U --by Tfwd",
    ),
    "sweep all": (
        "bft-replay sweep all -Tfwd 10,30,60",
        "bft-replay sweep all -Tfwd 10,30,60 --workers 2 --out study",
    ),
    "sweep best": (
        "bft-replay sweep best --metric U",
        "bft-replay sweep best --metric U --by Tfwd --out study",
    ),
    "sweep collect": (
        "bft-replay sweep collect",
        "bft-replay sweep collect --out study",
    ),
    "sweep plan": (
        "bft-replay sweep plan -Tfwd 10,30,60 --out study",
        "bft-replay sweep plan -Tfwd 10,30,60 --script slurm --out study",
    ),
    "sweep run": (
        "bft-replay sweep run --index 3 --out study",
        "bft-replay sweep run --workers 2 --out study",
    ),
    "solve": (
        "bft-replay solve problem.json",
        "bft-replay solve problems.jsonl.gz --backend highs -o answers.jsonl",
    ),
    "report": (
        "bft-replay report debug-itrOut",
        "bft-replay report debug-itrOut -o report.html --force",
    ),
    "ingest": (
        "bft-replay ingest --recipe slurm",
        "bft-replay ingest slurm sacct.txt --nodes nodes.txt --tz Europe/Berlin -o trace.parquet",
    ),
    "trace": (
        "bft-replay trace info trace.parquet",
        "bft-replay trace show trace.parquet",
    ),
    "trace info": (
        "bft-replay trace info trace.parquet",
        "bft-replay trace info trace.parquet --json",
    ),
    "trace show": (
        "bft-replay trace show trace.parquet",
        "bft-replay trace show trace.parquet -nN 64",
    ),
    "trace cut": (
        "bft-replay trace cut year.parquet --from 2024-02-01 --to 2024-03-01 -o february.parquet",
        "bft-replay trace cut january.parquet february.parquet --nodes cn[001-064] -o part.parquet",
    ),
    "trace anonymise": (
        "bft-replay trace anonymise trace.parquet --key secret -o shown.parquet",
        "bft-replay trace anonymise trace.parquet --key secret -o shown.csv.gz",
    ),
    "trace perturb": (
        "bft-replay trace perturb trace.parquet --drop 0.1 -o fewer.parquet",
        "bft-replay trace perturb trace.parquet --delay 30 --thin 0.1 --seed 7 -o other.parquet",
    ),
    "jobs": (
        "bft-replay jobs fit throughputs.csv --submit 2024-03-04 -o jobs.parquet",
        "bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8 --unit-batch 64",
    ),
    "jobs fit": (
        "bft-replay jobs fit throughputs.csv --model amdahl --max 64 --submit 2024-03-04 -o jobs.parquet",
        "bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8 --unit-batch 64",
    ),
    "jobs skew": (
        "bft-replay jobs skew layers.csv",
        "bft-replay jobs skew layers.csv --jobs jobs.csv -o skewed.csv",
    ),
    "xi": (
        "bft-replay xi check xi.csv",
        "bft-replay xi measure -- python a.py -- python b.py",
    ),
    "xi build": (
        "bft-replay xi build measurements.csv -o xi.csv",
        "bft-replay xi build measurements.csv -o xi.parquet --force",
    ),
    "xi collect": (
        "bft-replay xi collect trainings.csv -o measured --devices 0",
        "bft-replay xi collect trainings.csv -o measured --pairs again.csv --again",
    ),
    "xi check": ("bft-replay xi check xi.csv", "bft-replay xi check xi.csv --json"),
    "xi show": (
        "bft-replay xi show xi.csv",
        "bft-replay xi show xi.csv --by batch --png xi.png",
    ),
    "xi measure": (
        "bft-replay xi measure -- python a.py -- python b.py",
        "bft-replay xi measure --steps 30 -o xi.csv -- python a.py -- python b.py",
    ),
    "predict": (
        "bft-replay predict evaluate durations jobs.csv",
        "bft-replay predict train durations jobs.csv -o durations.json",
    ),
    "predict evaluate": (
        "bft-replay predict evaluate durations jobs.csv",
        "bft-replay predict evaluate submissions jobs.csv --horizon 3",
    ),
    "predict show": (
        "bft-replay predict show durations.json",
        "bft-replay predict show durations.json --table jobs.csv --png shapes.png",
    ),
    "predict train": (
        "bft-replay predict train durations jobs.csv -o durations.json",
        "bft-replay predict train packing profiles.csv -o packing.json",
    ),
    "convert": (
        "bft-replay convert trace.pkl.gz -o trace.parquet",
        "bft-replay convert jobs.csv -o jobs.parquet",
    ),
    "generate": (
        "bft-replay generate trace --nodes 1024 --days 7 -o trace.parquet",
        "bft-replay generate log slurm -o sacct.txt",
    ),
    "generate trace": (
        "bft-replay generate trace -o trace.parquet",
        "bft-replay generate trace --nodes 1024 --days 7 --seed 1 -o trace.parquet",
    ),
    "generate jobs": (
        "bft-replay generate jobs --first-submit 2021-02-10 -o jobs.parquet",
        "bft-replay generate jobs --jobs 60 --interval 1200 --first-submit 2021-02-10 -o jobs.csv",
    ),
    "generate log": (
        "bft-replay generate log slurm -o sacct.txt",
        "bft-replay generate log pbs --nodes 256 --days 14 --seed 1 -o accounting",
    ),
    "policies": ("bft-replay policies", "bft-replay policies tiresias-l"),
    "backends": ("bft-replay backends", "bft-replay backends --json"),
}


class Formatter(click.HelpFormatter):
    """Breaks lines between words only, never at a hyphen."""

    def write(self, string: str) -> None:
        """Write text whose words are whole."""
        super().write(string.replace(_GLUE, "-"))

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(text.replace("-", _GLUE))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line of usage."""
        super().write_usage(prog, args.replace("-", _GLUE), prefix)

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms and what they mean."""
        super().write_dl(
            [(term, text.replace("-", _GLUE)) for term, text in rows],
            col_max,
            col_spacing,
        )


class Context(click.Context):
    """A context whose help is as wide as the terminal."""

    formatter_class = Formatter

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"max_content_width": 10_000, **kwargs})


class Helpful(click.Command):
    """A command whose help has sections and examples."""

    context_class = Context

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the options by section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None and isinstance(option, click.Option):
                sections.setdefault(getattr(option, "section", OTHER), []).append(
                    record
                )
        for title in sorted(sections, key=(*SECTIONS, OTHER).index):
            only = len(sections) == 1 and title == OTHER
            with formatter.section("Options" if only else title):
                formatter.write_dl(sections[title])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, then the text at the end."""
        path = ctx.command_path.partition(" ")[2]
        if path in EXAMPLES:
            with formatter.section("Examples"):
                for line in EXAMPLES[path]:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class Group(Helpful, click.Group):
    """A group that suggests the command that was probably meant."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write options and commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is an error that names those that exist."""
        names = self.list_commands(ctx)
        if (
            args
            and self.get_command(ctx, args[0]) is None
            and not ctx.resilient_parsing
        ):
            what = f"no command {args[0]!r}; commands are {', '.join(names)}{did_you_mean(args[0], names)}"
            raise click.UsageError(what, ctx)
        return super().resolve_command(ctx, args)


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
        return rv.split(os.pathsep if isinstance(self.check, Text) else None)

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


class Seconds(Checked):
    """A number of seconds, above 0 or (with `zero`) at least 0, and at most `most`."""

    def __init__(self, *, zero: bool = False, high: float = MAX_S) -> None:
        super().__init__(seconds(zero=zero, high=high))


class Finite(Checked):
    """A number in a range; unlike click's ranges it refuses NaN."""

    def __init__(
        self,
        min: float | None = None,  # noqa: A002 - as click calls it
        max: float | None = None,  # noqa: A002
        *,
        min_open: bool = False,
        max_open: bool = False,
    ) -> None:
        super().__init__(Number(min, max, above=min_open, below=max_open))


class OneOf(Checked):
    """Type of one of some names, in any case; an unknown name gets a suggestion."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(Name(tuple(names)))


def option(field: OptionField) -> Decorator:
    """Return the option of the command line for an option of the table, or of another dataclass of options."""
    name, check = parameter_name(field), inner(field.check)
    if isinstance(check, Flag):
        return click.option(
            *field.flags,
            name,
            cls=Option,
            section=field.section or OTHER,
            is_flag=True,
            default=False,
            help=field.described,
        )
    several = isinstance(check, Several | OneOrMore)
    each = check.each if isinstance(check, Several | OneOrMore) else check
    default = None if several or field.varies else field.default
    return click.option(
        *field.flags,
        name,
        cls=Option,
        section=field.section or OTHER,
        type=Checked(each),
        multiple=several,
        default=default,
        show_default=default is not None,
        metavar=field.metavar,
        help=field.described,
    )


def inner(check: Check) -> Check:
    """Return the check of a value that is stated: an option that is None is left out on the command line."""
    return check.inner if isinstance(check, Maybe) else check


def parameter_name(field: OptionField) -> str:
    """Return the name of an option's parameter: its own, or that of its flag where this switches it off."""
    return field.flag.lstrip("-").replace("-", "_") if field.negated else field.name


def stated_options(
    fields: Mapping[str, OptionField], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options, by flat name, that are among the parameters of a command."""
    stated = {}
    for name, field in fields.items():
        parameter = parameter_name(field)
        if parameter in parameters:
            stated[name] = (
                not parameters[parameter] if field.negated else parameters[parameter]
            )
    return stated


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
    try:
        content = read_toml(value)
    except InputError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    others = [each for each in ctx.command.params if each is not param]
    known = {
        name_key(name): each
        for each in others
        for name in (*each.opts, each.name or "")
    }
    defaults: dict[str, Any] = {}
    for key, entry in content.items():
        parameter = known.get(name_key(key))
        if parameter is None:
            names = long_names(others)
            what = f"unknown option {key!r}; known are {', '.join(names)}{did_you_mean(key, names)}"
            raise click.BadParameter(f"{value}: {what}", ctx, param)
        try:
            entries = _of_toml(parameter, entry)
            parameter.type_cast_value(ctx, entries)
        except click.BadParameter as error:
            what = f"{value}: {key}: {error.message}"
            raise click.BadParameter(what, ctx, param) from None
        defaults[parameter.name or ""] = entries
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def long_names(options: Iterable[click.Parameter]) -> list[str]:
    """The long name of each option without dashes, in alphabetical order."""
    return sorted({max(each.opts, key=len).lstrip("-") for each in options})


def name_key(name: str) -> str:
    """Return a name of an option in the form in which it is found, with or without dashes replaced by underscores."""
    return name.lstrip("-").replace("_", "-").lower()


def _of_toml(parameter: click.Parameter, entry: Any) -> Any:
    """Return a TOML value as click takes it; refuse what it would convert silently: true to 1 second."""
    entries = entry if parameter.multiple and isinstance(entry, list) else [entry]
    kind = parameter.type
    if isinstance(kind, Checked):
        counts = isinstance(kind.check, Number)
        wrong = [each for each in entries if isinstance(each, str) == counts]
        if wrong:
            expected = "a number" if counts else "text in quotes"
            raise click.BadParameter(f"expected {expected}, not {wrong[0]!r}")
    return entries if parameter.multiple else entry


class Command(Helpful):
    """A command with -v and -q.

    It names an unknown option in full; click names its first letter when it starts with one dash.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(verbosity_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown option is named with what may have been meant, and none may be given twice."""
        try:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            raise self._unknown(ctx, args, error.option_name) from None
        once = [
            each
            for each in given
            if isinstance(each, click.Option) and not (each.multiple or each.count)
        ]
        twice = next((each for each in once if once.count(each) > 1), None)
        if twice is not None and not ctx.resilient_parsing:
            raise click.UsageError(f"{twice.opts[0]} is given twice", ctx)
        return super().parse_args(ctx, args)

    def _unknown(
        self, ctx: click.Context, args: list[str], name: str
    ) -> click.NoSuchOption:
        """Return the error for an unknown option, which click may have shortened to its first letter."""
        from difflib import get_close_matches

        known = [name for option in self.params for name in option.opts]
        words = (word.split("=")[0] for word in args)
        unknown = (
            word for word in words if word.startswith(name) and word not in known
        )
        whole = next(unknown, name)
        near = get_close_matches(whole, known)
        return click.NoSuchOption(whole, possibilities=near, ctx=ctx)


class NamesWholeOption(Command):
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


def bind_variables(command: click.Command, prefix: str) -> None:
    """Let each option be set by an environment variable: prefix plus long name.

    Of itself click takes the name of the Python parameter, which for --forward-window is tfwd_s.
    """
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            bind_variables(inner, f"{prefix}_{name.upper()}")
    for option in command.params:
        if isinstance(option, click.Option):
            option.envvar = f"{prefix}_{max(option.opts, key=len).lstrip('-').replace('-', '_').upper()}"


# Options of the command line alone that begin their section, and that end it.
_FIRST: tuple[Decorator, ...] = (
    click.option(
        "-name",
        "--name",
        type=Checked(Text()),
        default="debug",
        show_default=True,
        section=OUTPUT,
        cls=Option,
        help="Name of the run.",
    ),
    click.option(
        "-print",
        "--print",
        "print_",
        type=click.BOOL,
        metavar="BOOL",
        default=True,
        show_default=True,
        section=OUTPUT,
        cls=Option,
        help="Print progress and summary; 0 writes them to replay.log in the run directory.",
    ),
)
_LAST: tuple[Decorator, ...] = (
    click.option(
        "-mip",
        "--mip",
        type=click.BOOL,
        metavar="BOOL",
        default=True,
        show_default=True,
        section=POLICY,
        cls=Option,
        help="Decide by MILP; 0 is --policy equal-share.",
    ),
    click.option(
        "--checkpoint-every",
        "checkpoint_every_s",
        type=Seconds(zero=True),
        metavar="SECONDS",
        section=OUTPUT,
        cls=Option,
        help="Save the state so often; the same command then resumes a killed replay. [never]",
    ),
    click.option(
        "--out",
        metavar="DIR",
        type=Checked(Text()),
        section=OUTPUT,
        cls=Option,
        help="Run directory. [NAME-itrOut]",
    ),
    click.option(
        "--force",
        is_flag=True,
        section=OUTPUT,
        cls=Option,
        help="Replace an earlier run in the run directory.",
    ),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        section=OUTPUT,
        cls=Option,
        help="Write the summary as JSON to standard output.",
    ),
    click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=use_config,
        section=OUTPUT,
        cls=Option,
        help="TOML file with options by their long names; flags win.",
    ),
)


def table_options(fields: Mapping[str, OptionField]) -> Decorator:
    """Give a command all options of a table, in sections, with those of the command line alone among them."""
    return together(*_FIRST, *map(option, fields.values()), *_LAST)
