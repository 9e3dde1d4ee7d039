"""The points of a study: fully specified replays in a fixed order."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bft.models import InputError
from bft.models.checks import did_you_mean
from bft.replay.inputs.files import INPUTS, Files, input_digests
from bft.replay.options.naming import VARIANT, label_of
from bft.replay.options.options import FIELDS, Options
from bft.replay.results.run_directory import plain
from bft.replay.run import versions

# More points than this are a typing error in a range.
MAX_POINTS = 100_000


@dataclass(frozen=True, slots=True)
class Point:
    """One fully specified replay.

    Parameters
    ----------
    index
        Position in the plan, from 0.
    options
        All options that determine the result.
    varied
        What distinguishes it from other points: stated values by flat option name; `variant` for the name of a
        variant, and `set NAME` for a constant of the policy.
    """

    index: int
    options: Options
    varied: dict[str, Any]

    @property
    def label(self) -> str:
        """Label of the point for users: its varied values."""
        return label_of(self.varied)


@dataclass(frozen=True, slots=True)
class Plan:
    """The points of a study, in order.

    Parameters
    ----------
    points
        Points; `index` is their position.

    Examples
    --------
    >>> plan = Plan.of({"policy": "fifo"}, {"tfwd_s": [30, 60], "max_jobs": [5, 0]})
    >>> [point.label for point in plan.points]
    ['-Tfwd 30, -maxJ 5', '-Tfwd 30, -maxJ 0', '-Tfwd 60, -maxJ 5', '-Tfwd 60, -maxJ 0']
    """

    points: tuple[Point, ...]

    @classmethod
    def of(
        cls,
        options: Mapping[str, Any] | None = None,
        grid: Mapping[str, Sequence[Any]] | None = None,
        variants: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Plan:
        """Return all combinations of the grid's values, for each variant; the last option varies fastest.

        Parameters
        ----------
        options
            Options of all points, by flat name.
        grid
            Values by flat option name; `set NAME` for a constant of the policy.
        variants
            Named sets of options. They override `options`; the grid overrides both.

        Raises
        ------
        InputError
            When a value is not allowed or given twice, or a combination contradicts itself; names the point.
        """
        axes = {name: list(values) for name, values in (grid or {}).items()}
        for name, values in axes.items():
            if name not in FIELDS and not name.startswith("set "):
                raise InputError(f"unknown option {name!r}{did_you_mean(name, FIELDS)}")
            if not values:
                raise InputError(f"{_flag(name)}: expected at least one value")
            twice = next((each for each in values if values.count(each) > 1), None)
            if twice is not None:
                raise InputError(f"{_flag(name)}: {twice} is given twice")
        named = dict(variants or {"": {}})
        count = len(named)
        for values in axes.values():
            count *= len(values)
        if count > MAX_POINTS:
            raise InputError(
                f"the plan has {count:,} points; expected at most {MAX_POINTS:,}"
            )
        return cls(tuple(_points(options or {}, axes, named)))

    @property
    def varied(self) -> tuple[str, ...]:
        """Names of the options that vary."""
        return tuple(
            dict.fromkeys(name for point in self.points for name in point.varied)
        )

    def document(self, keys: Sequence[str]) -> dict[str, Any]:
        """The plan for JSON, with the key of each point's configuration."""
        listed = [
            {
                "index": point.index,
                "key": key,
                "varied": point.varied,
                "options": point.options.flat(),
            }
            for point, key in zip(self.points, keys, strict=True)
        ]
        return {"points": plain(listed), "varied": list(self.varied)}

    @classmethod
    def from_document(cls, content: Mapping[str, Any]) -> Plan:
        """The plan from its JSON document."""
        return cls(tuple(map(_from_document, itertools.count(), content["points"])))


def _from_document(index: int, content: Mapping[str, Any]) -> Point:
    options = Options.of(**content["options"])
    values = options.flat()
    varied = {
        name: values.get(name, str(value) if name == VARIANT else value)
        for name, value in content["varied"].items()
    }
    return Point(index, options, varied)


def _points(
    options: Mapping[str, Any],
    axes: Mapping[str, list[Any]],
    variants: Mapping[str, Mapping[str, Any]],
) -> Iterator[Point]:
    combinations = itertools.product(variants.items(), *axes.values())
    for index, ((variant, own), *values) in enumerate(combinations):
        chosen = dict(zip(axes, values, strict=True))
        varied = {VARIANT: variant} if variant else {}
        varied |= {name: value for name, value in chosen.items() if len(axes[name]) > 1}
        try:
            yield Point(
                index, _absolute(Options.of(**_merged(options, own, chosen))), varied
            )
        except InputError as error:
            where = f"{label_of(varied)}: " if varied else ""
            raise InputError(f"{where}{error.what}", hint=error.hint) from None


def _merged(*stated: Mapping[str, Any]) -> dict[str, Any]:
    """Merge options by flat name, later ones override; constants of the policy are merged by name."""
    merged: dict[str, Any] = {}
    constants: dict[str, str] = {}
    for each in stated:
        for name, value in each.items():
            if name == "policy_options":
                constants |= dict(value)
            elif name.startswith("set "):
                constants[name.removeprefix("set ")] = value
            else:
                merged[name] = value
    return (
        {**merged, "policy_options": tuple(constants.items())} if constants else merged
    )


def _absolute(options: Options) -> Options:
    """Return options with absolute paths: a worker may run in another folder."""
    given = options.flat()
    paths = {
        name: str(Path(given[name]).absolute())
        for name in INPUTS
        if given[name] is not None
        and not (name == "cluster" and not Path(given[name]).is_file())
    }
    return Options.of(**{**given, **paths})


def _flag(name: str) -> str:
    return FIELDS[name].flag if name in FIELDS else f"--{name}"


def key_of(options: Options, files: Files) -> str:
    """The key of a replay's configuration: a digest of its options, the content of its inputs, and versions.

    The location of the inputs does not matter.

    Raises
    ------
    InputError
        When an input is missing or cannot be read.
    """
    try:
        digests = input_digests(options, files)
    except OSError as error:
        raise InputError(
            (error.strerror or str(error)).lower(), file=error.filename
        ) from error
    stated = {
        name: value for name, value in options.flat().items() if name not in digests
    }
    content = {"options": plain(stated), "inputs": digests, "versions": versions()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
