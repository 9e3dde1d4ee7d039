"""Arguments of Python in place of options of the command line: their names, and errors that speak of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

# What a keyword may leave out at its end.
_UNITS = ("_s", "_gib")
# Flags that are no options of a replay -> the arguments that do the same.
_OTHERS = {
    "--force": "force=True",
    "--out": "out",
    "--from": "begin",
    "--to": "end",
    "--bound": "bound=True",
}


def full_names(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their whole names, paths as texts: `tfwd` is `tfwd_s`.

    Raises
    ------
    InputError
        When one option is stated by both of its names.

    Examples
    --------
    >>> full_names({"tfwd": 60, "set limits": 9})
    {'tfwd_s': 60, 'set limits': 9}
    """
    from bft.models import InputError
    from bft.replay.options.options import FIELDS

    flat: dict[str, Any] = {}
    for name, value in stated.items():
        whole = next(
            (name + unit for unit in ("", *_UNITS) if name + unit in FIELDS), name
        )
        if whole in flat:
            raise InputError(f"{name} and {whole} are one option: give it once")
        flat[whole] = str(value) if isinstance(value, Path) else value
    constants = flat.get("policy_options")
    if isinstance(constants, Mapping):
        flat["policy_options"] = tuple(
            (key, str(value)) for key, value in constants.items()
        )
    return flat


@contextmanager
def arguments_named() -> Iterator[None]:
    """Make the errors of a block speak of arguments, not of flags: `force=True`, not --force."""
    from bft.models import InputError

    try:
        yield
    except InputError as error:
        error.what = in_python(error.what)
        error.hint = None if error.hint is None else in_python(error.hint)
        error.args = (str(error),)
        raise


def in_python(text: str) -> str:
    """A message of the command line with the names of arguments.

    Examples
    --------
    >>> in_python("-Tfwd: expected a number of seconds > 0, not -1; --no-u (--force replaces it)")
    'tfwd_s: expected a number of seconds > 0, not -1; dedicated=False (force=True replaces it)'
    """
    pattern, names = _flags()
    return pattern.sub(lambda found: names[found[0]], text)


@cache
def _flags() -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern for any flag, and the argument for each."""
    from bft.models.checks import Flag
    from bft.replay.options.options import FIELDS

    names = dict(_OTHERS)
    for name, field in FIELDS.items():
        is_flag = isinstance(field.check, Flag)
        argument = f"{name}={not field.negated}" if is_flag else name
        names |= dict.fromkeys(field.flags, argument)
    longest_first = sorted(names, key=len, reverse=True)
    either = "|".join(map(re.escape, longest_first))
    return re.compile(rf"(?<![\w-])(?:{either})(?![\w-])"), names
