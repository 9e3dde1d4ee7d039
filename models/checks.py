"""Valid values of options: one set of checks for the command line, config files and Python; and options as fields.

From the fields follow the checks at construction, the options of the command line and their help, the notes on
options without effect, and the reference page.
Dates and times are ISO 8601, as everything else reads differently in two countries.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from bft.models.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


# About 30 years: beyond it, products with rates and nanoseconds overflow.
MAX_S = 1e9
# Eleven days: waiting for the solver process takes milliseconds in 31 bits.
MAX_LIMIT_S = 1e6


class Check(Protocol):
    """A check of one value."""

    @property
    def kind(self) -> str:
        """Word for the kind of the value in a manual."""

    def __call__(self, value: Any) -> Any:
        """Return the value in its plain form; ValueError with what was expected when it does not fit."""

    def read(self, text: str) -> Any:
        """Return the value that a text states; ValueError as above."""
        return self(text)


@dataclass(frozen=True, slots=True)
class Number(Check):
    """A number in a range.

    Parameters
    ----------
    low, high
        Smallest and largest allowed value. NaN and infinities are never allowed.
    above, below
        Exclude `low`, or `high`, itself.
    kind
        The type in one word: `integer` for whole numbers only; `seconds` is said in messages.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    kind: str = "number"

    @property
    def expected(self) -> str:
        """A description of valid values."""
        nouns = {"integer": "a whole number", "seconds": "a number of seconds"}
        limits = []
        if self.low > -math.inf:
            limits.append(f"{'>' if self.above else '>='} {self.low:g}")
        if self.high < math.inf:
            limits.append(f"{'<' if self.below else 'at most'} {self.high:g}")
        noun = nouns.get(self.kind, "a finite number")
        return f"{noun} {' and '.join(limits)}".rstrip()

    def __call__(self, value: Any) -> Any:
        """Return an int or a float."""
        whole = self.kind == "integer"
        wanted: Any = Integral if whole else Real
        is_number = isinstance(value, wanted) and not isinstance(value, bool)
        if is_number and math.isfinite(value):
            above = value > self.low if self.above else value >= self.low
            if above and (value < self.high if self.below else value <= self.high):
                return int(value) if whole else float(value)
        raise ValueError(f"expected {self.expected}, not {value!r}")

    def read(self, text: str) -> Any:
        """Return the number that a text states."""
        try:
            return self(int(text) if self.kind == "integer" else float(text))
        except (ValueError, OverflowError):
            raise ValueError(f"expected {self.expected}, not {text!r}") from None


def seconds(*, zero: bool = False, high: float = MAX_S) -> Number:
    """A number of seconds, above 0 or (with `zero`) at least 0."""
    return Number(0, high, above=not zero, kind="seconds")


def whole(low: int, high: float = math.inf) -> Number:
    """A whole number from `low` on."""
    return Number(low, high, kind="integer")


@dataclass(frozen=True, slots=True)
class Name(Check):
    """Check that a value is one of some names, in upper or lower case.

    Parameters
    ----------
    names
        The names; or a function that yields them, called only as far as needed, for names that take time to look up.
    """

    names: tuple[str, ...] | Callable[[], Iterable[str]]
    kind: str = "name"

    def all_names(self) -> tuple[str, ...]:
        """The names, looked up."""
        return self.names if isinstance(self.names, tuple) else tuple(self.names())

    def __call__(self, value: Any) -> str:
        """Return the name in the case that the check has it in."""
        looked_up = self.names if isinstance(self.names, tuple) else self.names()
        if isinstance(value, str) and value in looked_up:
            return value
        names = self.all_names()
        same = [name for name in names if name.lower() == str(value).lower()]
        if len(same) == 1:
            return same[0]
        raise ValueError(
            f"{value!r} is not one of {', '.join(map(repr, names))}{did_you_mean(value, names)}"
        )


def nearest(value: object, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that may have been meant by one that is not known; `cutoff` is the least likeness, 1 for the same."""
    # Here: who makes no mistake need not wait for it.
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in names}
    near = get_close_matches(str(value).lower(), by_lower, 1, cutoff)
    return by_lower[near[0]] if near else None


def did_you_mean(value: object, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the name that may have been meant, or nothing."""
    meant = nearest(value, names)
    return f"; did you mean {meant!r}?" if meant else ""


def refuse_unknown(options: Iterable[str], known: Collection[str]) -> None:
    """Raise InputError for the first option that is not known, with the one that may have been meant."""
    for name in options:
        if name not in known:
            raise InputError(f"unknown option {name!r}{did_you_mean(name, known)}")


@dataclass(frozen=True, slots=True)
class Form(Check):
    """A value that a function converts to its plain form; it raises ValueError where the value does not fit."""

    convert: Callable[[Any], Any]
    kind: str = "text"
    words: Mapping[str, object] = field(default_factory=dict, hash=False)
    """What a text stands for, in lower case."""

    def read(self, text: str) -> Any:
        """Return what a text states."""
        return self(self.words.get(text.lower(), text))

    def __call__(self, value: Any) -> Any:
        """Return what the function makes of the value."""
        return self.convert(value)


def _text(value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"expected text, not {value!r}")
    text = os.fspath(value)
    try:
        if not isinstance(text, str) or "\0" in text:
            raise UnicodeError
        text.encode()
    except UnicodeError:
        raise ValueError(f"expected UTF-8 text, not {text!r}; rename it") from None
    return text


def _texts(value: Any) -> Any:
    if not isinstance(value, tuple | list):
        return _text(value)
    texts = tuple(map(_text, value))
    return texts if len(texts) > 1 else next(iter(texts), None)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, not {value!r}")
    return value


def _pair(value: Any) -> tuple[str, str]:
    parts = value.split(",") if isinstance(value, str) else value
    try:
        first, second = (part.strip() for part in parts)
    except (AttributeError, TypeError, ValueError):
        first = second = ""
    if not (first and second):
        raise ValueError(f"expected two models with a comma between, not {value!r}")
    return first, second


def _assignment(value: Any) -> tuple[str, str]:
    parts = value.split("=", 1) if isinstance(value, str) else value
    try:
        name, given = parts
    except (TypeError, ValueError):
        name, given = "", None
    if not str(name).strip():
        raise ValueError(f"expected NAME=VALUE, not {value!r}")
    words = {True: "yes", False: "no", None: "none"}
    text = words[given] if given is None or isinstance(given, bool) else str(given)
    return str(name).strip().replace("-", "_"), text


@dataclass(frozen=True, slots=True)
class Several(Check):
    """Any number of values of one kind in a tuple; a mapping counts as its pairs."""

    each: Check
    kind: str = "several"

    def __call__(self, value: Any) -> tuple[Any, ...]:
        """Return the values as a tuple."""
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ValueError(f"expected several values, not {value!r}")
        entries = value.items() if isinstance(value, Mapping) else value
        return tuple(self.each(entry) for entry in entries)


def _seconds_by_size(value: Any) -> tuple[tuple[int, float], ...]:
    """Return pairs (number of units up to which the seconds apply, seconds), ascending."""
    pairs = ((sys.maxsize, value),) if isinstance(value, Real) else value
    try:
        if isinstance(value, str):
            parts = [part.rpartition(":") for part in value.split(",")]
            pairs = [
                (int(units) if colon else sys.maxsize, float(spent))
                for units, colon, spent in parts
            ]
        check = seconds(zero=True, high=MAX_LIMIT_S)
        checked = sorted((whole(1)(units), check(spent)) for units, spent in pairs)
    except (TypeError, ValueError):
        expected = "expected seconds, or UNITS:SECONDS with commas between"
        raise ValueError(f"{expected}, not {value!r}") from None
    if len({units for units, _ in checked}) < len(checked):
        raise ValueError(f"expected each number of units once, not {value!r}")
    return tuple(checked)


def _watts(value: Any) -> tuple[float, float]:
    try:
        parts = map(float, value.split(",")) if isinstance(value, str) else value
        idle, busy = (Number(0, 1e6)(watts) for watts in parts)
        if idle <= busy:
            return idle, busy
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"expected IDLE,BUSY: watts of an idle node, and of a busy one, which draws no less; not {value!r}"
    )


def _arrival(value: Any) -> str:
    name, _, rate = str(value).partition(":")
    if name.strip().lower() != "poisson":
        raise ValueError(
            f"expected poisson:RATE, not {value!r}{did_you_mean(name, ('poisson',))}"
        )
    try:
        per_hour = Number(0, MAX_S, above=True).read(rate)
    except ValueError as error:
        raise ValueError(f"poisson: jobs an hour: {error}") from None
    return f"poisson:{str(per_hour).removesuffix('.0')}"


# True or false; as text also yes or no.
FLAG = Form(_flag, "flag", {"yes": True, "true": True, "no": False, "false": False})
# A text, or a path, that a result can record.
TEXT = Form(_text)
# One such text, or several in a tuple.
TEXTS = Form(_texts)
# Two names, also as text with a comma between.
PAIR = Form(_pair, "pair")
# A value by a name, both as text: a pair, or text NAME=VALUE.
ASSIGNMENT = Form(_assignment, "assignment")
# Seconds by number of units, also as text such as 8:40,64:60; or one number of seconds for any size.
SECONDS_BY_SIZE = Form(_seconds_by_size, "seconds")
# Power of a node that is idle and of one that is busy, also as text IDLE,BUSY.
WATTS = Form(_watts, "watts")
# A process of arrivals as text: poisson:RATE, in jobs an hour.
ARRIVAL = Form(_arrival, "arrival")


def checked(flag: str, check: Check, value: Any, default: Any = ...) -> Any:
    """Return a value in its plain form; InputError, which names the option, when it is not allowed.

    None stands for itself where it is the default.
    """
    try:
        return None if value is None is default else check(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{flag}: {error}") from None


def check_fields(made: Any) -> None:
    """Hold every field of a dataclass against its check, and put its plain form in its place.

    Raises
    ------
    InputError
        For the first field that does not fit, by the name that the command line has for it, else by its own.
    """
    for each in fields(made):
        if check := each.metadata.get("check"):
            flag = each.metadata.get("flag", each.name)
            value = checked(flag, check, getattr(made, each.name), each.default)
            # The dataclass is frozen, and not yet handed out.
            object.__setattr__(made, each.name, value)


_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)? ?(?:[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
# Seconds since 1970, from 1973 to 2286.
_EPOCH = re.compile(r"\d{9,10}(?:\.\d{1,9})?", re.ASCII)


def strict_instant(text: str) -> str | None:
    """Return a date, or a date and time, as a date and time in ISO 8601 or seconds since 1970; None for other texts.

    Parameters
    ----------
    text
        2021-02-10, 2021-02-10T20:21 with seconds, a fraction and a zone or without, or seconds since 1970.

    Examples
    --------
    >>> strict_instant("2021-02-10"), strict_instant("2021-02-10 20:21:15+01:00"), strict_instant("10/02/2021")
    ('2021-02-10T00:00:00', '2021-02-10 20:21:15+01:00', None)
    """
    text = text.strip()
    if _DAY.fullmatch(text):
        return f"{text}T00:00:00"
    return text if _INSTANT.fullmatch(text) or _EPOCH.fullmatch(text) else None


def utc(when: str | pd.Timestamp) -> pd.Timestamp:
    """Read an instant as `strict_instant` has it; UTC if it states no time zone."""
    import pandas as pd

    try:
        text = strict_instant(when) or "" if isinstance(when, str) else when
        is_epoch = isinstance(text, str) and "-" not in text
        stamp = pd.Timestamp(float(text), unit="s") if is_epoch else pd.Timestamp(text)
    except ValueError as error:
        raise InputError(
            f"{when!r} is not a time", hint="write it as 2021-02-10T08:00:00"
        ) from error
    return stamp.tz_localize("UTC") if stamp.tzinfo is None else stamp.tz_convert("UTC")


_SIZE = re.compile(r"(\d+)x(\d+)(?::([^+]+))?", re.ASCII)
# Units of all pools together: several times those of any machine, and some 400 MB.
MAX_UNITS = 1_000_000


class Nodes(NamedTuple):
    """Equal nodes of a cluster: how many, the units of each, and their kind, empty where all units are alike."""

    nodes: int
    units: int
    kind: str


def cluster_nodes(cluster: str) -> list[Nodes] | None:
    """The nodes of a cluster such as 8x8 or 6x4:t4+2x8:a100; None when it is not written like that.

    Raises
    ------
    InputError
        When there are too many units, or some nodes of several sizes have no kind.

    Examples
    --------
    >>> cluster_nodes("6x4:t4+2x8:a100")
    [Nodes(nodes=6, units=4, kind='t4'), Nodes(nodes=2, units=8, kind='a100')]
    """
    parts = []
    for text in cluster.split("+"):
        match = _SIZE.fullmatch(text)
        if match is None:
            return None
        # Python refuses to read a number of thousands of digits; these are beyond the limit with ten.
        nodes, units = (int(n.lstrip("0")[:10] or "0") for n in match.group(1, 2))
        parts.append(Nodes(nodes, units, match[3] or ""))
    if len(parts) > 1 and not all(part.kind for part in parts):
        raise InputError(
            "nodes of several sizes or kinds each need a kind",
            file=cluster,
            hint="such as 6x4:t4+2x8:a100",
        )
    check_total(sum(part.nodes * part.units for part in parts), cluster)
    return parts


def check_total(units: int, cluster: str) -> None:
    """Refuse a cluster of more units than any machine has."""
    if units > MAX_UNITS:
        raise InputError(
            f"a cluster may have {MAX_UNITS:,} units (nodes x units of each), no more",
            file=cluster,
        )


# --- options as fields of dataclasses: what one may be, how it is called, what is said of it ---

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
    rare
        Whether the command line takes it as --option NAME=VALUE, and does not list it in the help of a command.
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
    rare: bool = False

    @property
    def key(self) -> str:
        """Its long name without dashes, as in files and after --option."""
        return max(self.flags, key=len).lstrip("-")

    @property
    def title(self) -> str:
        """What tables and labels call it: its flag, or its name where it is rare."""
        return self.key if self.rare else self.flags[0]

    @property
    def flag(self) -> str:
        """The name that messages use, of a switch with what it is switched to."""
        if not self.rare:
            return self.flags[0]
        switched = "no" if self.default is True else "yes"
        value = f"={switched}" if self.check is FLAG else ""
        return f"--option {self.key}{value}"

    @property
    def negated(self) -> bool:
        """Whether its flag switches it off, as --no-u does."""
        return self.check is FLAG and self.default is True and not self.rare

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
