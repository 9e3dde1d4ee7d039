"""The form of `--help`: options in sections, two examples, full width of the terminal, words never split."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from bft.models.checks import did_you_mean

# Replaces hyphens while click wraps lines, so that --jobs-format stays one word.
_GLUE = "\ue000"
OTHER = "Other"

# Two command lines for each command, by its path.
EXAMPLES: dict[str, tuple[str, str]] = {
    "": (
        "bft-replay -ndmap trace.parquet --preset best",
        "bft-replay ingest slurm sacct.txt -o trace.parquet",
    ),
    "replay": (
        "bft-replay -ndmap trace.parquet --jobs jobs.csv --preset best --bound",
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
    "trace slice": (
        "bft-replay trace slice year.parquet --from 2024-02-01 --to 2024-03-01 -o february.parquet",
        "bft-replay trace slice year.parquet --from 2024-12-01 -o december.parquet "
        "--walltimes year-w.parquet --walltimes-output december-w.parquet",
    ),
    "trace select": (
        "bft-replay trace select trace.parquet --nodes cn[001-064] -o part.parquet",
        "bft-replay trace select trace.parquet --nodes partition.txt -o part.parquet",
    ),
    "trace merge": (
        "bft-replay trace merge january.parquet february.parquet -o both.parquet",
        "bft-replay trace merge 2024-01.csv 2024-02.csv 2024-03.csv -o quarter.parquet",
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
        "bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8",
    ),
    "jobs fit": (
        "bft-replay jobs fit throughputs.csv --model amdahl --max 64 --submit 2024-03-04 -o jobs.parquet",
        "bft-replay jobs fit --log run-4.log --log run-8.log --units 4,8 --batch-size 512",
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
        "bft-replay xi collect trainings.csv -o second --pairs again.csv",
    ),
    "xi merge": (
        "bft-replay xi merge measured/xi.csv second/xi.csv -o xi.csv",
        "bft-replay xi merge xi.csv new.csv -o xi.csv --force",
    ),
    "xi memory": (
        "bft-replay xi memory measured/profiles.csv -o memory.csv",
        "bft-replay xi memory one/profiles.csv two/profiles.csv -o memory.csv",
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
        "bft-replay predict evaluate submissions jobs.csv --kind ga2m --horizon 3",
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
        only = list(sections) == [OTHER]
        for title in [name for name in sections if name != OTHER] + [OTHER] * (
            OTHER in sections
        ):
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


def marked(options: Iterable[click.Parameter], title: str) -> None:
    """Put options into a section of the help; those that have one keep it."""
    for option in options:
        vars(option).setdefault("section", title)
