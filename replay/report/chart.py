"""The content of a chart, independent of its form: numbers and words for the page and for the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.errors import MAX_LABEL, printable
from bft.models.writing import duration
from bft.replay.trace.node_trace import SECOND_NS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
# Instants are milliseconds since 1970, UTC, as browsers count; shares lie in [0, 1].
Scale = Literal["number", "log", "time", "share"]
# Distinguishable on white and on black, and by most colour-blind readers. The first is for the area of what is
# available.
COLOURS = (
    "#8a9bb0", "#2b83c4", "#d9772b", "#23987c", "#b561b0", "#cf4f5f", "#7d76d3", "#9a7f1e", "#5b8f2f", "#b0705a",
)  # fmt: skip
# More rows than these have no names on the axis.
MAX_NAMED_ROWS = 20


@dataclass(frozen=True, slots=True)
class Axis:
    """The quantity along an edge of a chart."""

    label: str
    scale: Scale = "number"


TIME = Axis("time, UTC", "time")


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
    x: Axis
    series: Mapping[str, FloatArray]
    y: Axis = Axis("")


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

    @property
    def colours(self) -> list[str]:
        """The colour of each entry."""
        return [self.hues[of % len(self.hues)] for of in self.class_of]

    @property
    def names_rows(self) -> bool:
        """Whether the rows are so few that each has its name on the axis."""
        return self.units == 1 and len(self.rows) <= MAX_NAMED_ROWS


Drawing = Curves | Bars | Blocks


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


def legend(drawing: Drawing) -> list[tuple[str, str]]:
    """Name and colour of each entry, in order."""
    if isinstance(drawing, Blocks):
        return list(zip(drawing.classes, cycle(drawing.hues), strict=False))
    # The first colour is for an area behind the others.
    lines = cycle(COLOURS[1:])
    if isinstance(drawing, Bars):
        return list(zip(drawing.series, lines, strict=False))
    hues = cycle(COLOURS) if drawing.curves[0].filled else lines
    return [(curve.name, next(hues)) for curve in drawing.curves]


def over_time(
    title: str,
    note: str,
    what: str,
    edges: FloatArray,
    heights: Mapping[str, FloatArray],
) -> Chart:
    """Chart means over spans of time: `edges` in ms, of shape (spans + 1,), and by name float64 of shape (spans,)."""
    x = np.repeat(edges, 2)[1:-1]  # each height from its edge to the next
    curves = (Curve(name, x, np.repeat(each, 2), True) for name, each in heights.items())  # fmt: skip
    rounded = {name: means.round(2) for name, means in heights.items()}
    table = pd.DataFrame({"from": stamps(edges[:-1]), **rounded})
    drawing = Curves(TIME, Axis(what), tuple(curves))
    return Chart("idle", title, note, drawing, table)


# Lengths of spans that read as round: seconds, minutes, hours, days.
ROUND_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86_400 * days for days in (1, 2, 7, 30, 365)),
)


def round_spans(begin: int, end: int, most: int) -> tuple[IntArray, str]:
    """Divide a window into at most `most` spans of a round length, which begin at round instants (UTC).

    Parameters
    ----------
    begin, end
        The window, ns; end > begin. It cuts the first and the last span.
    most
        From which the length follows: the smallest round one that is long enough.

    Returns
    -------
    Edges of the spans, ns, int64 of shape (spans + 1,), and the length in words.

    Examples
    --------
    >>> second = 10**9
    >>> edges, length = round_spans(50 * second, 400 * second, most=6)
    >>> (edges // second).tolist(), length
    ([50, 120, 240, 360, 400], '2 min')
    """

    def spans(length_s: int) -> int:
        length = length_s * SECOND_NS
        return -(-end // length) - begin // length

    length_s = next((each for each in ROUND_S if spans(each) <= most), ROUND_S[-1])
    length = length_s * SECOND_NS
    inner = np.arange(begin // length + 1, -(-end // length), dtype=np.int64) * length
    return np.concatenate([[begin], inner, [end]]), duration(length_s)


def mean_over_time(times: IntArray, values: FloatArray, edges: IntArray) -> FloatArray:
    """Mean of a step function over spans.

    Parameters
    ----------
    times, values
        Each value holds from its instant (ns, ascending) to the next; 0 before the first, the last value to the end.
        Among several values at one instant the last one counts.
    edges
        Edges of the spans, ns, ascending: int64 of shape (spans + 1,).

    Returns
    -------
    array of shape (spans,)
        The sum of means times lengths of spans equals the integral of the function.

    Examples
    --------
    >>> second = 10**9
    >>> times, values = np.array([0, 5 * second]), np.array([2.0, 4.0])
    >>> mean_over_time(times, values, np.array([0, 5, 10]) * second).tolist()
    [2.0, 4.0]
    """
    begin, end = int(edges[0]), int(edges[-1])
    since = (edges - begin).astype(np.float64)
    # The integral from begin, interpolated at the edges: it is piecewise linear between instants.
    inside = np.clip(times, begin, end) - begin
    instants = np.concatenate([[0], inside, [end - begin]]).astype(np.float64)
    heights = np.concatenate([[0.0], values])
    integral = np.concatenate([[0.0], np.cumsum(heights * np.diff(instants))])
    means: FloatArray = np.diff(np.interp(since, instants, integral)) / np.diff(since)
    return means


def held_over_time(
    counted: Iterable[tuple[IntArray, FloatArray]], changes: pd.Series[float]
) -> tuple[IntArray, FloatArray]:
    """Units in use between decisions too, when jobs finish and give theirs back without a row in the steps.

    Parameters
    ----------
    counted
        For each pool the instants of its steps (ns, ascending) and the units in use from then on.
    changes
        How many more units are held from an instant on. Units that two jobs share count twice.

    Returns
    -------
    Instants, ascending, and the units in use from each to the next: those of the steps, and never more than are held.

    Examples
    --------
    >>> steps = np.array([0, 10]), np.array([4.0, 0.0])
    >>> times, used = held_over_time([steps], pd.Series([4.0, -3.0, -1.0], [0, 6, 10]))
    >>> times.tolist(), used.tolist()
    ([0, 6, 10], [4.0, 1.0, 0.0])
    """
    by_pool = [pd.Series(used, at).groupby(level=0).last() for at, used in counted]
    times = changes.index.union(pd.concat(by_pool).index).unique()
    used = pd.Series(0.0, times)
    for pool in by_pool:
        used += pool.reindex(times, method="ffill").fillna(0.0)
    held = changes.reindex(times, fill_value=0.0).cumsum()
    counts = np.minimum(used.to_numpy(), held.to_numpy()).astype(np.float64)
    return times.to_numpy(np.int64), counts


def distribution(
    key: str, title: str, note: str, hours: Mapping[str, pd.Series]
) -> Chart | None:
    """Chart which share of all jobs took up to how many hours; None where no job has a time.

    A curve has up to 200 points from the hundredth part of an hour on, and ends at the share of jobs that have a time;
    as a table the upper limit of each part of the jobs.
    """
    curves = []
    for name, values in hours.items():
        known = np.sort(values.dropna().to_numpy(dtype=np.float64))
        if len(known):
            shares = np.linspace(0, 1, min(200, len(known) + 1))[1:]
            levels = np.quantile(known, shares, method="inverted_cdf")
            done = shares * len(known) / len(values)
            curves.append(Curve(name, np.maximum(levels, 0.01), done))
    if not curves:
        return None
    parts = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0])
    what = "share of all submitted jobs"
    table = pd.DataFrame({what: [f"{part:.0%}" for part in parts]})
    for curve in curves:
        upper = np.interp(parts, curve.y, curve.x, right=np.nan)
        table[f"{curve.name}, h"] = upper.round(3)
    axes = Axis("hours from the submission", "log"), Axis(what, "share")
    return Chart(key, title, note, Curves(*axes, tuple(curves)), table)


def stamps(instants_ms: FloatArray) -> pd.Series:
    """Instants for a table."""
    whole = instants_ms.round().astype("int64")
    return pd.Series(pd.to_datetime(whole, unit="ms", utc=True))


def label(name: object) -> str:
    """A user's name, shortened for a label, without special characters."""
    return printable(str(name), MAX_LABEL) or "(none)"
