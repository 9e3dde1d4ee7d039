"""The options of `bft-replay replay`: those of the table by section, and those that decide no result."""

from __future__ import annotations

from collections.abc import Mapping

import click

from bft.models.checks import Text
from bft.models.option_fields import (
    INPUT,
    JOBS,
    OUTPUT,
    POLICY,
    POLICY_KNOWS,
    SECTIONS,
    SHARING,
    OptionField,
)
from bft.replay.cli.parameters import (
    Checked,
    Decorator,
    Seconds,
    YesNo,
    option,
    section,
    together,
    use_config,
)
from bft.replay.options.options import FIELDS

# Options of the command line alone, by the section that they begin.
_FIRST: dict[str, tuple[Decorator, ...]] = {
    OUTPUT: (
        click.option(
            "-name",
            "--name",
            type=Checked(Text()),
            default="debug",
            show_default=True,
            help="Name of the run.",
        ),
        click.option(
            "-print",
            "--print",
            "print_",
            type=YesNo(),
            metavar="BOOL",
            default=True,
            show_default=True,
            help="Print progress and summary; 0 writes them to replay.log in the run directory.",
        ),
        click.option(
            "--live",
            is_flag=True,
            help="Show how the replay stands: units, jobs, rate, last decision; on a terminal as a table.",
        ),
    ),
}
# The same by the section that they end.
_LAST: dict[str, tuple[Decorator, ...]] = {
    POLICY: (
        click.option(
            "-mip",
            "--mip",
            type=YesNo(),
            metavar="BOOL",
            default=True,
            show_default=True,
            help="Decide by MILP; 0 is --policy equal-share.",
        ),
    ),
    OUTPUT: (
        click.option(
            "--checkpoint-every",
            "checkpoint_every_s",
            type=Seconds(zero=True),
            metavar="SECONDS",
            help="Save the state so often; the same command then resumes a killed replay. [never]",
        ),
        click.option(
            "--out",
            metavar="DIR",
            type=Checked(Text()),
            help="Run directory. [NAME-itrOut]",
        ),
        click.option(
            "--force", is_flag=True, help="Replace an earlier run in the run directory."
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Write the summary as JSON to standard output.",
        ),
        click.option(
            "--config",
            metavar="FILE",
            is_eager=True,
            expose_value=False,
            callback=use_config,
            help="TOML file with options by their long names; flags win.",
        ),
    ),
}


def by_section(fields: Mapping[str, OptionField]) -> dict[str, list[Decorator]]:
    """Return the options of the command line for options of a table, by section of the help."""
    sections: dict[str, list[Decorator]] = {title: [] for title in SECTIONS}
    for field in fields.values():
        sections[field.section].append(option(field))
    return sections


def table_options(fields: Mapping[str, OptionField]) -> Decorator:
    """Give a command all options of a table, in sections, with those of the command line alone among them."""
    sections = (
        section(title, *_FIRST.get(title, ()), *options, *_LAST.get(title, ()))
        for title, options in by_section(fields).items()
    )
    return together(*sections)


def _limits_bounds(field: OptionField) -> bool:
    """Tell whether bounds depend on an option, whoever decides."""
    describes_inputs = field.section in (INPUT, JOBS, SHARING)
    return field.name == "max_jobs" or (
        describes_inputs and POLICY_KNOWS not in field.conditions
    )


replay_options = table_options(FIELDS)
_of_bounds = {name: field for name, field in FIELDS.items() if _limits_bounds(field)}
bound_options = together(
    *(
        section(title, *options)
        for title, options in by_section(_of_bounds).items()
        if options
    )
)
