"""The content of a chart, independent of its form: numbers and words for the page, the SVG and the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# Instants are milliseconds since 1970, UTC, as browsers count; shares lie in [0, 1].
Scale = Literal["number", "log", "time", "share"]
# Distinguishable on white and on black, and by most colour-blind readers. The first is for the area of what is
# available.
COLOURS = (
    "#8a9bb0", "#2b83c4", "#d9772b", "#23987c", "#b561b0", "#cf4f5f", "#7d76d3", "#9a7f1e", "#5b8f2f", "#b0705a",
)  # fmt: skip


# More columns of cells than these have no numbers in them.
MAX_NUMBERED = 12
# More rows than these have no names on the axis.
MAX_NAMED_ROWS = 20


def colour(number: int) -> str:
    """The colour of an entry, by its number; colours repeat."""
    return COLOURS[number % len(COLOURS)]


@dataclass(frozen=True, slots=True)
class Axis:
    """The quantity along an edge of a chart."""

    label: str
    scale: Scale = "number"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A curve with an entry in the legend: y over x, both float64 of shape (points,); `filled` down to 0."""

    name: str
    x: FloatArray
    y: FloatArray
    filled: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """A chart of curves, as lines and areas; the first curve is behind the others."""

    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    # Upper bounds, by name.
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Bars:
    """Names down the side, and for each name one bar per series: series -> float64 of shape (names,)."""

    names: tuple[str, ...]
    value: Axis
    series: Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Rectangles of time and rows: which entry was where, and when.

    Block b covers rows first[b] to last[b] (inclusive) from begin[b] to end[b], whole seconds since `origin`
    (ms since 1970), in the colour of the class of entry who[b].

    Parameters
    ----------
    x, y
        The axes; rows are counted upwards.
    rows
        Name of each row, or of each group of `units` rows.
    names
        Names of the entries, indexed by `who`.
    row
        A word for what a row is.
    empty
        What it means that no entry is there.
    classes
        Names of the classes of entries, each with an item in the legend; none: an entry is a class of its own.
    class_of
        The class of each entry; empty: that of its number.
    hues
        Colours of the classes; they repeat when there are more classes.
    """

    x: Axis
    y: Axis
    rows: Sequence[str]
    names: Sequence[str]
    origin: float
    seconds: int
    who: IntArray
    first: IntArray
    last: IntArray
    begin: IntArray
    end: IntArray
    units: int = 1
    row: str = "node"
    empty: str = "nobody"
    classes: tuple[str, ...] = ()
    class_of: tuple[int, ...] = ()
    hues: tuple[str, ...] = COLOURS[1:]

    def hue(self, who: int) -> str:
        """The colour of an entry."""
        number = self.class_of[who] if self.class_of else who
        return self.hues[number % len(self.hues)]

    def legend(self) -> list[tuple[str, str]]:
        """Name and colour of each class."""
        return list(zip(self.classes, cycle(self.hues), strict=False))

    @property
    def names_rows(self) -> bool:
        """Whether the rows are so few that each has its name on the axis."""
        return self.units == 1 and len(self.rows) <= MAX_NAMED_ROWS

    @property
    def height(self) -> int:
        """Height of the chart in rows of units."""
        return len(self.rows) * self.units

    def sampled(self, columns: int, rows: int) -> IntArray:
        """The entry in the middle of each cell of a grid over the whole chart, -1 for none: shape (rows, columns).

        The page does the same for the visible part, so that zooming in shows every block.
        """
        cells = np.full((rows, columns), -1, dtype=np.int64)
        width, height = self.seconds / columns, self.height / rows
        left, right = (
            np.clip(np.ceil(at / width - 0.5), 0, columns).astype(int)
            for at in (self.begin, self.end)
        )
        low, high = (
            np.clip(np.ceil(at / height - 0.5), 0, rows).astype(int)
            for at in (self.first, self.last + 1)
        )
        for block in np.flatnonzero((left < right) & (low < high)):
            cells[low[block] : high[block], left[block] : right[block]] = self.who[
                block
            ]
        return cells


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """A number for each pair of names: float64 of shape (down, across), NaN where there is none.

    What is better has the stronger colour: large numbers, or small ones where `less_is_better`.
    """

    x: Axis
    y: Axis
    value: Axis
    across: tuple[str, ...]
    down: tuple[str, ...]
    values: FloatArray
    less_is_better: bool = False

    @property
    def shows_numbers(self) -> bool:
        """Whether the cells are so few that each has its number."""
        return len(self.across) <= MAX_NUMBERED

    def strength(self) -> FloatArray:
        """How strong the colour of each cell is, from 0 to 1: the best has 1."""
        low, high = float(np.nanmin(self.values)), float(np.nanmax(self.values))
        shares: FloatArray = (self.values - low) / (high - low or 1.0)
        return 1 - shares if self.less_is_better else shares


def shade(strength: float) -> str:
    """A colour of a cell, which lets the page through where it is weak.

    >>> shade(1.0), shade(0.0)
    ('#2b83c4ff', '#2b83c41a')
    """
    return f"{COLOURS[1]}{round(255 * (0.1 + 0.9 * strength)):02x}"


# Cells at least this strong have white numbers on them.
STRONG = 0.85


Drawing = Curves | Bars | Blocks | Heat


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """A drawing with its title, note and data.

    Parameters
    ----------
    key
        Its name in files and links.
    title, note
        The note is a sentence on what is shown, or how to read it.
    table
        The data as numbers, for readers who cannot see the drawing or want to compute with it.
    """

    key: str
    title: str
    note: str
    drawing: Drawing
    table: pd.DataFrame


def in_powers(what: str, *values: FloatArray) -> tuple[Axis, float]:
    """An axis for large numbers, with the power of ten to divide by: `10⁹ samples`.

    >>> axis, power = in_powers("samples", np.array([0.0, 2.5e9]))
    >>> axis.label, power
    ('10⁹ samples', 1000000000.0)
    """
    largest = max(
        (float(np.abs(array).max(initial=0.0)) for array in values), default=0.0
    )
    power, mark = next(
        (
            (10.0**p, mark)
            for p, mark in ((12, "10¹² "), (9, "10⁹ "), (6, "10⁶ "))
            if largest >= 10.0**p
        ),
        (1.0, ""),
    )
    return Axis(f"{mark}{what}"), power


def stepped(edges: FloatArray, heights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A step function as points of a line: each height from its edge to the next.

    >>> x, y = stepped(np.array([0.0, 1.0, 3.0]), np.array([5.0, 7.0]))
    >>> x.tolist(), y.tolist()
    ([0.0, 1.0, 1.0, 3.0], [5.0, 5.0, 7.0, 7.0])
    """
    return np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)
