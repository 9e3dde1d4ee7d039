"""Commands and groups of them: the form of `--help`, what is said of an unknown word, default commands.

Nothing that reads an option is imported here: neither the list of commands nor an unknown one should wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from bft.replay.cli.messages import verbosity_options

# Replaces hyphens while click wraps lines, so that --jobs-format stays one word.
_GLUE = "\ue000"
OTHER = "Other"
# Gives an option that the help does not list: to click each is one of its own, as "--option gap".
RARE = "--option"

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
    "watch": (
        "bft-replay watch --command qhost --jobs jobs.parquet --preset best --for 8h",
        "bft-replay watch --command bhosts --every 30 --settle 60 --jobs jobs.parquet --out shadow --json",
    ),
    "compare": (
        "bft-replay compare -ndmap trace.parquet --jobs jobs.csv --policy milp,pollux,equal-share",
        "bft-replay compare mine-itrOut other-itrOut",
    ),
    "sweep": (
        "bft-replay sweep -ndmap trace.parquet -Tfwd 10,30,60 -maxJ 5,10,0 --seed 0:8",
        "bft-replay sweep --best U --by Tfwd",
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
        "bft-replay trace cut trace.parquet --from 2024-02-01 --to 2024-03-01 -o february.parquet",
    ),
    "trace info": (
        "bft-replay trace info trace.parquet",
        "bft-replay trace info trace.parquet --json",
    ),
    "trace cut": (
        "bft-replay trace cut year.parquet --from 2024-02-01 --to 2024-03-01 -o february.parquet",
        "bft-replay trace cut january.parquet february.parquet --nodes cn[001-064] -o part.parquet",
    ),
    "trace anonymise": (
        "bft-replay trace anonymise trace.parquet --key secret -o shown.parquet",
        "bft-replay trace anonymise trace.parquet --key secret -o shown.csv.gz",
    ),
    "jobs": (
        "bft-replay jobs fit throughputs.csv --submit 2024-03-04 -o jobs.parquet",
        "bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8 --unit-batch 64",
    ),
    "jobs fit": (
        "bft-replay jobs fit throughputs.csv --model amdahl --max 64 --submit 2024-03-04 -o jobs.parquet",
        "bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8 --unit-batch 64",
    ),
    "xi": (
        "bft-replay xi show xi.csv",
        "bft-replay xi measure -- python a.py -- python b.py",
    ),
    "xi build": (
        "bft-replay xi build measurements.csv -o xi.csv",
        "bft-replay xi build measurements.csv -o xi.csv --for jobs.csv",
    ),
    "xi show": (
        "bft-replay xi show xi.csv",
        "bft-replay xi show xi.csv --by batch",
    ),
    "xi measure": (
        "bft-replay xi measure -- python a.py -- python b.py",
        "bft-replay xi measure --table trainings.csv -o measured --devices 0",
    ),
    "predict": (
        "bft-replay predict durations jobs.csv",
        "bft-replay predict packing profiles.csv -o packing.json",
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
    "list": ("bft-replay list backends", "bft-replay list policies tiresias-l"),
}


class Formatter(click.HelpFormatter):
    """Breaks lines between words only, never at a hyphen."""

    def write(self, string: str) -> None:
        """Write text whose words are whole."""
        super().write(string.replace(_GLUE, "-"))

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(text.replace("-", _GLUE))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write terms and what they mean."""
        glued = [(term, text.replace("-", _GLUE)) for term, text in rows]
        super().write_dl(glued, col_max, col_spacing)


class Context(click.Context):
    """A context whose help breaks lines so."""

    formatter_class = Formatter


class Helpful(click.Command):
    """A command whose help has sections and examples."""

    context_class = Context

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
        path = ctx.command_path.partition(" ")[2]
        if path in EXAMPLES:
            with formatter.section("Examples"):
                for line in EXAMPLES[path]:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
        super().format_epilog(ctx, formatter)


class Group(Helpful, click.Group):
    """A group that suggests the command that was probably meant, and may have a default command.

    Parameters
    ----------
    default
        The command that runs where none is named; its options need no verb.
    """

    def __init__(self, *args: Any, default: str | None = None, **known: Any) -> None:
        super().__init__(*args, **known)
        self.default = default

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
            what = f"no command {word!r}; commands are {', '.join(names)}"
            raise click.UsageError(what + self.meant(word, names), ctx)
        own = {name for each in self.get_params(ctx) for name in each.opts}
        if self.default is not None and not is_command and word not in own:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def meant(self, word: str, names: list[str]) -> str:
        """Return the end of the error for an unknown command: what may have been meant."""
        from difflib import get_close_matches

        near = get_close_matches(word.lower(), names, n=1)
        return f"; did you mean {near[0]!r}?" if near else ""


class Command(Helpful):
    """A command with -v and -q.

    It names an unknown option in full; click names its first letter when it starts with one dash.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(verbosity_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown option is named with what may have been meant, and none may be given twice."""
        args = list(self._joined(args))
        try:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as error:
            from difflib import get_close_matches

            # Click may have shortened it to its first letter.
            known = [name for option in self.params for name in option.opts]
            words = (word.split("=")[0] for word in args)
            unknown = (word for word in words if word not in known)
            name = error.option_name
            whole = next((word for word in unknown if word.startswith(name)), name)
            near = get_close_matches(whole, known)
            rare = f"{RARE} {whole.lstrip('-')}"
            if rare in known:
                what = f"No such option {whole!r}; write {rare}=VALUE."
                raise click.NoSuchOption(whole, what, ctx=ctx) from None
            raise click.NoSuchOption(whole, possibilities=near, ctx=ctx) from None
        once = [
            each
            for each in given
            if isinstance(each, click.Option) and not (each.multiple or each.count)
        ]
        twice = next((each for each in once if once.count(each) > 1), None)
        if twice is not None and not ctx.resilient_parsing:
            raise click.UsageError(f"{twice.opts[0]} is given twice", ctx)
        return super().parse_args(ctx, args)

    def _joined(self, args: Iterable[str]) -> Iterator[str]:
        """Yield the words of a command line, --option and its NAME=VALUE as one; unknown names are refused."""
        rare = [each for each in self.params if each.opts[0].startswith(f"{RARE} ")]
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
                yield f"{of_key(name.strip(), rare, None).opts[0]}={value}"
            else:
                yield word


def of_key(
    key: str, options: Sequence[click.Parameter], file: str | None
) -> click.Parameter:
    """Return the option that a key of a TOML file names, with or without dashes replaced by underscores."""
    from bft.models import InputError
    from bft.models.checks import did_you_mean

    known = {
        _plain(name): each for each in options for name in (*each.opts, each.name or "")
    }
    if _plain(key) in known:
        return known[_plain(key)]
    names = sorted({_bare(max(each.opts, key=len)) for each in options})
    meant = f"; known are {', '.join(names)}{did_you_mean(key, names)}"
    raise InputError(f"unknown option {key!r}{meant}", file=file)


def _bare(name: str) -> str:
    return name.removeprefix(f"{RARE} ").lstrip("-")


def _plain(name: str) -> str:
    return _bare(name).replace("_", "-").lower()
