"""The content of a chart, independent of its form: numbers and words for the page and for the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.errors import MAX_LABEL, printable

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
        Names of the classes of entries, each with an item in the legend.
    class_of
        The class of each entry.
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
    classes: tuple[str, ...]
    class_of: tuple[int, ...]
    hues: tuple[str, ...]
    units: int = 1
    row: str = "node"
    empty: str = "nobody"

    def hue(self, who: int) -> str:
        """The colour of an entry."""
        return self.hues[self.class_of[who] % len(self.hues)]

    @property
    def names_rows(self) -> bool:
        """Whether the rows are so few that each has its name on the axis."""
        return self.units == 1 and len(self.rows) <= MAX_NAMED_ROWS

    @property
    def height(self) -> int:
        """Height of the chart in rows of units."""
        return len(self.rows) * self.units


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

    def number(self, value: float) -> str:
        """The number of a cell."""
        return f"{value:.1%}" if self.value.scale == "share" else f"{value:,.4g}"


def shade(strength: float) -> str:
    """A colour of a cell, which lets the page through, so that the numbers on it are read in light and dark.

    >>> shade(1.0), shade(0.0)
    ('#2b83c4b2', '#2b83c41a')
    """
    return f"{COLOURS[1]}{round(255 * (0.1 + 0.6 * strength)):02x}"


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


def stepped(edges: FloatArray, heights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A step function as points of a line: each height from its edge to the next.

    >>> x, y = stepped(np.array([0.0, 1.0, 3.0]), np.array([5.0, 7.0]))
    >>> x.tolist(), y.tolist()
    ([0.0, 1.0, 1.0, 3.0], [5.0, 5.0, 7.0, 7.0])
    """
    return np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)


def legend(drawing: Drawing) -> list[tuple[str, str]]:
    """Name and colour of each entry that can be taken out."""
    if isinstance(drawing, Curves):
        hues = (colour(k + (not c.filled)) for k, c in enumerate(drawing.curves))
        return [(c.name, hue) for c, hue in zip(drawing.curves, hues, strict=True)]
    if isinstance(drawing, Bars):
        return [(name, colour(k)) for k, name in enumerate(drawing.series, start=1)]
    if isinstance(drawing, Blocks):
        return list(zip(drawing.classes, cycle(drawing.hues), strict=False))
    return []


TIME = Axis("time, UTC", "time")
HOURS = Axis("hours")


def over_time(
    key: str,
    title: str,
    note: str,
    axis: Axis,
    edges: FloatArray,
    heights: Mapping[str, FloatArray],
    *,
    filled: bool = False,
) -> Chart:
    """Chart means over spans of time: `edges` in ms, of shape (spans + 1,), and by name float64 of shape (spans,)."""
    curves = tuple(
        Curve(name, *stepped(edges, means), filled=filled)
        for name, means in heights.items()
    )
    rounded = {name: means.round(2) for name, means in heights.items()}
    table = pd.DataFrame({"from": stamps(edges[:-1]), **rounded})
    return Chart(key, title, note, Curves(TIME, axis, curves), table)


def cumulative(name: str, values: pd.Series, share: float = 1.0) -> Curve:
    """Return the share of values up to each value, from the hundredth part of an hour on, at up to 200 points.

    `share`: of all jobs, those that have a value.
    """
    known = np.sort(values.dropna().to_numpy(dtype=np.float64))
    shares = np.linspace(0, 1, min(200, len(known) + 1))[1:]
    levels = np.quantile(known, shares, method="inverted_cdf")
    return Curve(name, np.maximum(levels, 0.01), shares * share)


def distribution(
    key: str, title: str, note: str, of: str, curves: Sequence[Curve]
) -> Chart:
    """Chart shares of jobs over hours (`cumulative`), and as a table the upper limit of each part of them."""
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])
    columns = {
        f"{curve.name}, h": np.interp(shares, curve.y, curve.x, right=np.nan).round(3)
        for curve in curves
    }
    told = {of: [f"{share:.0%}" for share in shares]}
    axes = Axis("hours from the submission", "log"), Axis(of, "share")
    drawing = Curves(*axes, tuple(curves))
    return Chart(key, title, note, drawing, pd.DataFrame({**told, **columns}))


def stamps(instants_ms: FloatArray) -> pd.Series:
    """Instants for a table."""
    whole = instants_ms.round().astype("int64")
    return pd.Series(pd.to_datetime(whole, unit="ms", utc=True))


def label(name: object) -> str:
    """A user's name, shortened for a label, without special characters."""
    return printable(str(name), MAX_LABEL) or "(none)"
