"""Types of options, and the reading of --config."""

from __future__ import annotations

import math
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
    _BoolType = click.ParamType[bool]
else:  # older versions of click have no such brackets
    _FloatType = _BoolType = click.ParamType

# Some 30 years: beyond it, products with rates and nanoseconds overflow, and nobody means it.
MOST_S = 1e9
# Eleven days: waiting for the solver process takes milliseconds in 31 bits.
MOST_LIMIT_S = 1e6


class Seconds(_FloatType):
    """A number of seconds, above 0 or (with `zero`) at least 0, and not beyond `most`."""

    name = "seconds"

    def __init__(self, *, zero: bool = False, most: float = MOST_S) -> None:
        self.zero, self.most = zero, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail saying what was expected."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number <= self.most or (number == 0 and not self.zero):
            range_ = f"{'>=' if self.zero else '>'} 0 and at most {self.most:g}"
            self.fail(f"expected a number of seconds {range_}, not {value!r}", param, ctx)
        return number


class Finite(click.FloatRange):
    """A number in a range, and not NaN, which every range of click's lets pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail saying what was expected."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, not {value!r}", param, ctx)
        return number


class PolicyName(click.ParamType[str]):
    """A policy that there is, third parties' included."""

    name = "policy"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or fail naming those that exist."""
        from bft.replay.policies import policy_names

        names = policy_names()
        if value not in names:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, names))}", param, ctx)
        return value


class YesNo(_BoolType):
    """A truth value as the published options write it: true/false, 1/0, yes/no."""

    name = "bool"
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}  # noqa: RUF012

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Return the truth value, or fail naming those that exist."""
        if isinstance(value, bool):
            return value
        known = self.words.get(str(value).lower())
        if known is None:
            self.fail(f"expected true or false (1 or 0), not {value!r}", param, ctx)
        return known


def use_config(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Take defaults from a TOML file; flags and environment variables win over it.

    Keys are the long names of the options, with or without dashes replaced by underscores.
    """
    if value is None:
        return
    path = Path(value)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise click.BadParameter(f"{path}: no such file", ctx, param) from None
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", ctx, param) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: not TOML: {error}", ctx, param) from None
    known = {_key(name): option for option in ctx.command.params for name in (*option.opts, option.name or "")}
    defaults: dict[str, Any] = {}
    for key, entry in content.items():
        option = known.get(_key(key))
        if option is None or option is param:
            names = sorted({max(o.opts, key=len).lstrip("-") for o in ctx.command.params if o is not param})
            raise click.BadParameter(f"{path}: unknown option {key!r}; known are {', '.join(names)}", ctx, param)
        try:
            _expect_kind(option, entry)
            option.type_cast_value(ctx, entry)
        except click.BadParameter as error:
            raise click.BadParameter(f"{path}: {key}: {error.message}", ctx, param) from None
        defaults[option.name or ""] = entry
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _key(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()


def _expect_kind(option: click.Parameter, entry: Any) -> None:
    """Refuse a TOML value that click would bend into shape: 2.9 jobs into 2, true into 1 second."""
    kinds: tuple[type, ...]
    if isinstance(option.type, click.types.BoolParamType):
        kinds, expected = (bool,), "true or false"
    elif isinstance(option.type, YesNo):
        kinds, expected = (bool, int, str), "true or false"
    elif isinstance(option.type, click.IntRange):
        kinds, expected = (int,), "a whole number"
    elif isinstance(option.type, Seconds | click.FloatRange):
        kinds, expected = (int, float), "a number"
    else:
        kinds, expected = (str,), "text in quotes"
    if type(entry) not in kinds:
        raise click.BadParameter(f"expected {expected}, not {entry!r}")


class NamesWholeOption(click.Command):
    """A command that names an unknown option in full; click names its first letter when it starts with one dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and tell an unknown option with what it may have been meant to be."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [name for option in self.params if isinstance(option, click.Option) for name in option.opts]
            options = (entry.split("=")[0] for entry in given if entry.startswith("-"))
            whole = next((entry for entry in options if entry.startswith(error.option_name) and entry not in known), "")
            whole = whole or error.option_name
            raise click.NoSuchOption(whole, possibilities=get_close_matches(whole, known), ctx=ctx) from None


def bind_variables(command: click.Command, prefix: str) -> None:
    """Let each option be given as an environment variable: prefix and its long name.

    Of itself click takes the name of the Python parameter, which for --forward-window is tfwd_s.
    """
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            bind_variables(inner, f"{prefix}_{name.upper()}")
    for option in command.params:
        if isinstance(option, click.Option):
            option.envvar = f"{prefix}_{max(option.opts, key=len).lstrip('-').replace('-', '_').upper()}"
