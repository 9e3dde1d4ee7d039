"""Options as fields of dataclasses: one line says what an option may be, how it is called, and what is said of it.

From these fields follow the checks at construction, the options of the command line and their help, the notes on
options without effect, and the reference page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from bft.models.checks import FLAG, Check, checked

# Sections of the help, in the order in which it lists them.
INPUT, JOBS, POLICY, SOLVER, SHARING, COSTS, OUTPUT = SECTIONS = (
    "Input",
    "Jobs",
    "Policy",
    "Solver",
    "Sharing",
    "Costs and rules",
    "Output",
)

# Help of an option that replays and all other commands that read tables have.
TRUST_PICKLE = (
    "Open pickles other than the published ones: this runs any program that is in them."
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition without which an option has no effect.

    Parameters
    ----------
    holds
        Tells from the options, resolved, and the name of the option whether it is met.
    otherwise
        The end of the sentence "--option has no effect ..."; it names options as `$policy`, and their values as
        `{policy}`.
    refused
        Whether stating the option is an error where the condition is not met, rather than worth a note.
    """

    holds: Callable[[Any, str], bool]
    otherwise: str
    refused: bool = False


# For options that only a policy uses: it has a field of that name.
POLICY_KNOWS = Condition(
    lambda run, name: name in run.policy_type.settings, "with $policy {policy}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionField:
    """Description of one option: its name, flags, check, default and help.

    Parameters
    ----------
    name
        Its flat name, as in Python and summary.json.
    flags
        Its names on the command line; messages use the first.
    check
        Its allowed values.
    default
        Its value unless stated.
    varies
        Whether the default follows from other options.
    shown
        Describes a default that is None or varies, for the help.
    help
        Says in a sentence what it does.
    section
        The section of the help; empty for the only one.
    metavar
        Stands for its value in the help; None for the usual word.
    conditions
        Conditions without which it has no effect; the first that is not met is reported.
    for_policy
        Whether a policy's field of this name is filled from it.
    published
        Whether the published replayer has it.
    input_file
        Whether it names a file or folder, whose content then counts.
    """

    name: str = ""
    flags: tuple[str, ...]
    check: Check
    default: Any = None
    varies: bool = False
    shown: str = ""
    help: str
    section: str = ""
    metavar: str | None = None
    conditions: tuple[Condition, ...] = ()
    for_policy: bool = False
    published: bool = False
    input_file: bool = False

    @property
    def flag(self) -> str:
        """The name that messages use."""
        return self.flags[0]

    @property
    def negated(self) -> bool:
        """Whether its flag switches it off, as --no-u does."""
        return self.check is FLAG and self.default is True

    @property
    def described(self) -> str:
        """The help with a description of the default, where that is not a constant."""
        return f"{self.help} [{self.shown}]" if self.shown else self.help

    def checked(self, value: Any) -> Any:
        """Return a value in its plain form; InputError, which names the option, when it is not allowed."""
        return checked(f"${self.name}", self.check, value, self.default)


def option(
    flags: str,
    check: Check,
    default: Any = None,
    *,
    metavar: str | None = None,
    input_file: bool = False,
    **known: Any,
) -> Any:
    """Return a field of a dataclass for one option.

    Parameters
    ----------
    flags
        Its names on the command line, with blanks between; messages use the first.
    check
        Its allowed values.
    default
        Its value unless stated.
    metavar, input_file, **known
        As for `OptionField`; without `metavar` a file is called FILE.
    """
    made = OptionField(
        flags=tuple(flags.split()),
        check=check,
        default=default,
        metavar="FILE" if input_file and metavar is None else metavar,
        input_file=input_file,
        **known,
    )
    metadata = {"option": made, "flag": made.flag, "check": check}
    return field(default=default, metadata=metadata)


@cache
def option_fields(table: type[Any]) -> Mapping[str, OptionField]:
    """Return every option of a dataclass by its name."""
    return {
        each.name: replace(each.metadata["option"], name=each.name)
        for each in fields(table)
        if "option" in each.metadata
    }
