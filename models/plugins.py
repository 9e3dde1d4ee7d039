"""Objects that other packages add to those of this one: by name, registered as entry points."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points

from bft.models.checks import did_you_mean
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
            meant = did_you_mean(name, names)
            raise InputError(
                f"unknown {self.kind} {name!r}: choose one of {', '.join(names)}{meant}"
            )
        values = sorted({point.value for point in points})
        if len(values) > 1:
            message = f"{self.kind} {name!r} is registered by several packages: {', '.join(values)}"
            raise InputError(message, hint="uninstall all but one")
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
