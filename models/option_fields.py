"""Options as fields of dataclasses: one line says what an option may be, how it is called, and what is said of it.

From these fields follow the checks at construction, the options of the command line and their help, the notes on
options without effect, and the reference page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from bft.models.checks import Check, Flag

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
        Tells from the resolved run, and the name of the policy's setting that the option fills, whether it is met.
    otherwise
        The end of the sentence "--option has no effect ..."; names of options in braces stand for their values.
    refused
        Whether stating the option is an error where the condition is not met, rather than worth a note.
    """

    holds: Callable[[Any, str], bool]
    otherwise: str
    refused: bool = False


# For options that only a policy uses: it has a field of that name.
POLICY_KNOWS = Condition(
    lambda run, setting: setting in run.policy.settings, "with --policy {policy}"
)


@dataclass(frozen=True, slots=True)
class Depends:
    """A default that follows from other options.

    Parameters
    ----------
    on
        Computes the default from the options.
    shown
        Describes the default in the help.
    """

    on: Callable[[Any], Any]
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionField:
    """Description of one option: its name, flags, check, default and help.

    Parameters
    ----------
    name
        Its flat name, as in Python and summary.json.
    part
        The field of the options that holds it; empty for the options themselves.
    flags
        Its names on the command line; messages use the first.
    check
        Its allowed values.
    default
        Its value unless stated; None where that depends on other options.
    depends
        Computes the default from the other options; None where it is constant.
    shown
        Describes a default that is None, for the help.
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
    part: str = ""
    flags: tuple[str, ...]
    check: Check
    default: Any = None
    depends: Callable[[Any], Any] | None = None
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
    def setting(self) -> str:
        """The name of the policy's field that it fills."""
        return self.part or self.name

    @property
    def negated(self) -> bool:
        """Whether its flag switches it off, as --no-u does."""
        return isinstance(self.check, Flag) and self.default is True

    @property
    def described(self) -> str:
        """The help with a description of the default, where that is not a constant."""
        return f"{self.help} [{self.shown}]" if self.shown else self.help

    def with_default(self, default: Any) -> OptionField:
        """Return the same option with another default."""
        if isinstance(default, Depends):
            return replace(self, default=None, depends=default.on, shown=default.shown)
        return replace(
            self,
            default=default,
            depends=None,
            shown="" if default is not None else self.shown,
        )

    def of(self, options: Any) -> Any:
        """Return its value among the options."""
        holder = getattr(options, self.part) if self.part else options
        return getattr(holder, self.name)

    def default_beside(self, options: Any) -> Any:
        """Return the option's default, given the values of the other options."""
        return self.default if self.depends is None else self.depends(options)


def option(
    flags: str,
    check: Check,
    default: Any = None,
    *,
    help: str,  # noqa: A002 - as click calls it
    section: str = "",
    metavar: str | None = None,
    shown: str = "",
    conditions: tuple[Condition, ...] = (),
    for_policy: bool = False,
    published: bool = False,
    input_file: bool = False,
) -> Any:
    """Return a field of a dataclass for one option.

    Parameters
    ----------
    flags
        Its names on the command line, with blanks between; messages use the first.
    check
        Its allowed values.
    default
        A constant, or how it `Depends` on other options.
    help, section, metavar, shown, conditions, for_policy, published, input_file
        As for `OptionField`; without `metavar` a file is called FILE.
    """
    known = OptionField(
        flags=tuple(flags.split()),
        check=check,
        help=help,
        section=section,
        metavar="FILE" if input_file and metavar is None else metavar,
        shown=shown,
        conditions=conditions,
        for_policy=for_policy,
        published=published,
        input_file=input_file,
    )
    if default is not None:
        known = known.with_default(default)
    metadata = {"option": known, "flag": known.flag, "check": check}
    return field(default=known.default, metadata=metadata)


def part(kind: type[Any], *, for_policy: bool = False, **defaults: Any) -> Any:
    """Return a field of a dataclass for a value that holds several options.

    Parameters
    ----------
    kind
        Its class, of which each field is an option.
    for_policy
        Whether a policy's field of this name is filled from it.
    **defaults
        Defaults that differ from those of the class, by name; a constant, or how it `Depends` on other options.
    """
    return field(
        default=None,
        metadata={"part": kind, "for_policy": for_policy, "defaults": defaults},
    )


@cache
def parts_of(table: type[Any]) -> Mapping[str, type[Any]]:
    """Return the classes of the values that hold several options, by the field that holds them."""
    return {
        each.name: each.metadata["part"]
        for each in fields(table)
        if "part" in each.metadata
    }


@cache
def option_fields(table: type[Any]) -> Mapping[str, OptionField]:
    """Return every option of a dataclass by its flat name; options of its parts come last."""
    own: dict[str, OptionField] = {}
    inner: dict[str, OptionField] = {}
    for each in fields(table):
        known = each.metadata
        if "option" in known:
            own[each.name] = replace(known["option"], name=each.name)
        elif "part" in known:
            inner |= _placed(each.name, known["part"], known["defaults"])
    return own | inner


def _placed(
    part: str, kind: Any, defaults: Mapping[str, Any]
) -> dict[str, OptionField]:
    """Return the options of a part, with the defaults that they have there."""
    placed = {}
    for name, known in option_fields(kind).items():
        if name in defaults:
            known = known.with_default(defaults[name])
        placed[name] = replace(known, part=part)
    return placed


class OptionValues:
    """Values of options, by their flat names."""

    __slots__ = ()

    def described(self) -> Mapping[str, OptionField]:
        """Return what is known of every option, by flat name."""
        table: Any = type(self)  # mypy takes no class for hashable
        return option_fields(table)

    def flat(self) -> dict[str, Any]:
        """Every option by its flat name, as summary.json records it."""
        return {name: each.of(self) for name, each in self.described().items()}

    def defaults(self) -> dict[str, Any]:
        """Return the default of each option by flat name, given the values of the other options."""
        return {
            name: each.default_beside(self) for name, each in self.described().items()
        }

    def changed(self) -> dict[str, str]:
        """Options that differ from their defaults: their flags on the command line, by flat name."""
        known, defaults = self.described(), self.defaults()
        return {
            name: known[name].flag
            for name, value in self.flat().items()
            if value != defaults[name]
        }

    def for_policy(self) -> dict[str, Any]:
        """Return the options that a policy may know, by the names of the policy's fields."""
        known = {
            name: each.of(self)
            for name, each in self.described().items()
            if each.for_policy
        }
        table: Any = self
        for each in fields(table):
            if each.metadata.get("for_policy"):
                known[each.name] = getattr(self, each.name)
        return known

    def fill_defaults(self) -> None:
        """Put a default in the place of each option and part that is None; for `__post_init__`.

        The policy comes first, as defaults of others depend on it.
        """
        table: Any = type(self)
        known = self.described().values()
        dependent = [
            each for each in known if each.depends is not None and not each.part
        ]
        dependent.sort(key=lambda each: each.name != "policy")
        for each in dependent:
            if each.of(self) is None:
                self._fill(each.name, each.default_beside(self))
        for name, kind in parts_of(table).items():
            if getattr(self, name) is None:
                inner = [each for each in known if each.part == name]
                values = {each.name: each.default_beside(self) for each in inner}
                self._fill(name, kind(**values))

    def _fill(self, name: str, value: Any) -> None:
        object.__setattr__(
            self, name, value
        )  # the dataclass is frozen, and not yet handed out
