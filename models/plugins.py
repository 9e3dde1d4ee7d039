"""Other packages: those of our extras, and objects that they add to ours by name, with the constants that users set."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.metadata import entry_points
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bft.models.checks import Check, did_you_mean
from bft.models.errors import InputError


@dataclass(frozen=True, slots=True)
class PluginGroup:
    """A group of objects, some in this package, which plugins of other packages may extend.

    Parameters
    ----------
    name
        The group of entry points, such as `bft.policies`.
    kind
        The word for one of them in messages, such as `policy`.
    ours
        The names that we have; no package can replace one of them.
    home
        The package in which `factory` finds ours, each as `module:name`.

    Examples
    --------
    >>> PluginGroup("bft.colours", "colour", ("red", "blue")).names()
    ('red', 'blue')
    >>> PluginGroup("bft.colours", "colour", ("red", "blue")).load("bleu")
    Traceback (most recent call last):
    bft.models.errors.InputError: unknown colour 'bleu': choose one of red, blue; did you mean 'blue'?
    """

    name: str
    kind: str
    ours: Collection[str]
    home: str = ""

    def each(self) -> Iterator[str]:
        """Yield the built-in names, then the names of other packages in alphabetical order.

        These are looked up only for who asks for more than ours: it takes tens of milliseconds where many packages are
        installed, as the metadata of each is read.
        """
        yield from self.ours
        yield from sorted(
            {point.name for point in entry_points(group=self.name)} - set(self.ours)
        )

    def names(self) -> tuple[str, ...]:
        """Return all names of `each` as a tuple."""
        return tuple(self.each())

    def load(self, name: str) -> tuple[object, str]:
        """The object that another package registers under a name, and how messages refer to it.

        Raises
        ------
        InputError
            When no package registers the name, several do, or the object cannot be loaded.
        """
        points = entry_points(group=self.name, name=name)
        if not points:
            names = self.names()
            raise InputError(
                f"unknown {self.kind} {name!r}: choose one of {', '.join(names)}{did_you_mean(name, names)}"
            )
        values = sorted({point.value for point in points})
        if len(values) > 1:
            raise InputError(
                f"{self.kind} {name!r} is registered by several packages: {', '.join(values)}",
                hint="uninstall all but one",
            )
        label = f"{self.kind} {name!r} ({values[0]})"
        try:
            return next(iter(points)).load(), label
        except (
            Exception,
            SystemExit,
        ) as error:  # third-party code may raise anything; the user must learn whose it is
            raise InputError(
                f"{label} cannot be loaded: {type(error).__name__}: {error}"
            ) from error

    def factory(self, name: str) -> Callable[..., Any]:
        """The class or function of a name, imported when it is asked for; InputError as `load`."""
        if isinstance(self.ours, Mapping) and name in self.ours:
            module, attribute = self.ours[name].split(":")
            ours: Callable[..., Any] = getattr(
                import_module(f"{self.home}.{module}"), attribute
            )
            return ours
        found, label = self.load(name)
        if not callable(found):
            raise InputError(
                f"{label} is a {type(found).__name__}, expected a class or function that makes a {self.kind}"
            )
        return found


def how_to_install(name: str) -> str:
    """The command that installs an extra of this package, in a clone as well as from a wheel.

    >>> how_to_install("gurobi")
    'pip install gurobipy'
    """
    needed = [
        line
        for line in metadata.requires("bft-replay") or []
        if f'extra == "{name}"' in line
    ]
    return " ".join(
        ["pip install", *(re.split(r"[<>=!~; ]", line)[0] for line in needed)]
    )


def extra(module: str, name: str = "ml") -> Any:
    """Import a module of an extra of ours.

    Raises
    ------
    InputError
        When it is not installed; the hint is the command that installs it.
    """
    with needs("this", name):
        return import_module(module)


@contextmanager
def needs(what: str, name: str) -> Iterator[None]:
    """Guard a block that imports a package of the extra `name`: if it is missing, InputError says how to install it."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"{what} needs the package {error.name}, which is not installed",
            hint=how_to_install(name),
        ) from error


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant that a user may set: its name, type, default, and meaning."""

    name: str
    type: Any
    default: Any
    help: str


def constant(default: Any, text: str, check: Check | None = None) -> Any:
    """A field with its default, what help says of it, and its range, which `check_fields` checks at construction."""
    metadata: dict[str, Any] = {"help": text}
    if check is not None:
        metadata["check"] = check
    return field(default=default, metadata=metadata)


def constants_of(
    factory: Callable[..., Any], settings: Sequence[str] = ()
) -> list[Constant]:
    """The constants of what a class or function makes: the fields of its dataclass, but for those in `settings`."""
    made: Any = factory  # a class with fields, or any function
    if not is_dataclass(made):
        return []
    kinds = _types(factory)
    return [
        Constant(
            each.name,
            kinds[each.name],
            None if each.default is MISSING else each.default,
            str(each.metadata.get("help", "")),
        )
        for each in fields(made)
        if each.init and not each.name.startswith("_") and each.name not in settings
    ]


# The types of a class's fields are asked for a dozen times per replay, and reading them takes long.
_types = cache(get_type_hints)


def parsed_constants(
    what: str, own: Sequence[Constant], given: Mapping[str, str]
) -> dict[str, Any]:
    """The values of constants from texts by name; `what` is who has them, in messages.

    Raises
    ------
    InputError
        When there is no such constant, or a value does not fit.
    """
    known = {constant.name: constant for constant in own}
    values = {}
    for key, text in given.items():
        if key not in known:
            raise InputError(
                f"{what} has no option {key!r}; it has {', '.join(known) or 'none'}"
            )
        try:
            values[key] = _parsed(known[key].type, text.strip())
        except ValueError as error:
            raise InputError(
                f"{what}, option {key!r}: expected {expected(known[key].type)}, not {text!r}"
            ) from error
    return values


def built(
    what: str,
    factory: Callable[..., Any],
    settings: Mapping[str, Any],
    given: Mapping[str, str],
) -> Any:
    """Call a class or function with the run's values and the user's, and return its result.

    Parameters
    ----------
    what
        Who it is, in messages.
    factory
        Its dataclass fields are its constants.
    settings
        Values from the run, by field name: fields with these names get them, and users cannot set them.
    given
        Values from the user, as texts by field name.

    Raises
    ------
    InputError
        When there is no such constant, a value does not fit, or the factory fails.
    """
    known = {constant.name for constant in constants_of(factory)}
    values = {key: value for key, value in settings.items() if key in known}
    values |= parsed_constants(what, constants_of(factory, list(settings)), given)
    try:
        return factory(**values)
    except (Exception, SystemExit) as error:  # a third party's may raise anything
        text = (
            str(error)
            if isinstance(error, ValueError | TypeError)
            else f"{type(error).__name__}: {error}"
        )
        raise InputError(f"{what}: {text}") from error


_WORDS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _parsed(kind: Any, text: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if text.lower() in ("none", "") and type(None) in arguments:
            return None
        return _parsed(next(each for each in arguments if each is not type(None)), text)
    if origin is tuple:
        parts = (part.strip() for part in text.split(","))
        return tuple(_parsed(arguments[0], part) for part in parts if part)
    if kind in (int, float, str):
        return kind(text)
    words = _WORDS if kind is bool else {str(each): each for each in arguments}
    word = text.lower() if kind is bool else text
    if word not in words:
        raise ValueError(text)
    return words[word]


def expected(kind: Any) -> str:
    """A description of the values of a type, as texts state them."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(map(expected, arguments))
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"{expected(arguments[0])}, several with commas between"
    names = {bool: "yes or no", int: "a whole number", float: "a number", str: "a text"}
    return {**names, type(None): "none"}.get(kind, str(kind))
