"""Types of options, and the reading of --config."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import click


class Seconds(click.ParamType[float]):
    """A finite number of seconds, above 0 or (with `zero`) at least 0."""

    name = "seconds"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail saying what was expected."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or number < 0 or (number == 0 and not self.zero):
            self.fail(f"expected a number of seconds {'>=' if self.zero else '>'} 0, not {value!r}", param, ctx)
        return number


class YesNo(click.ParamType[bool]):
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
    defaults = {}
    for key, entry in content.items():
        option = known.get(_key(key))
        if option is None or option is param:
            names = sorted({max(o.opts, key=len).lstrip("-") for o in ctx.command.params if o is not param})
            raise click.BadParameter(f"{path}: unknown option {key!r}; known are {', '.join(names)}", ctx, param)
        defaults[option.name] = entry
    ctx.default_map = {**(ctx.default_map or {}), **defaults}


def _key(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()
