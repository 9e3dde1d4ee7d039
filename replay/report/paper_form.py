"""Charts as figures for a paper, by Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models.errors import InputError
from bft.models.plugins import needs
from bft.replay.report.chart import (
    Axis,
    Bars,
    Blocks,
    Chart,
    Curves,
    Drawing,
    Heat,
    colour,
    legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
INCHES, DPI = (6.4, 3.0), 200


def write_charts(charts: Sequence[Chart], target: Path, form: str) -> list[Path]:
    """Write charts as files of `FORMATS`, named by their keys, into the folder `target`; return the files.

    The same charts give the same bytes.

    Raises
    ------
    InputError
        When Matplotlib is not installed.
    """
    files = [target / f"{chart.key}.{form}" for chart in charts]
    for chart, file in zip(charts, files, strict=True):
        write_chart(chart, file, form)
    return files


def write_chart(chart: Chart, file: Path, form: str = "png") -> None:
    """Write one chart into a file."""
    with needs("a figure", "report"):
        import matplotlib as mpl
    # Without a salt the ids of an SVG's parts are random; text stays text, so that the figure can be edited.
    style = {
        "svg.hashsalt": "bft-replay",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
        "font.size": 9,
    }
    metadata = {
        "png": {"Software": None},
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }[form]
    with mpl.rc_context(style):
        _figure(chart).savefig(file, format=form, metadata=metadata, dpi=DPI)


def plotted(charts: Sequence[Chart], key: str) -> Figure:
    """The chart of this key as a figure.

    Raises
    ------
    InputError
        When there is none, or Matplotlib is not installed.
    """
    by_key = {chart.key: chart for chart in charts}
    if key not in by_key:
        raise InputError(f"no chart {key!r}: there are {', '.join(by_key)}")
    return _figure(by_key[key])


def _figure(chart: Chart) -> Figure:
    """A chart as a figure of Matplotlib, with its title."""
    with needs("a figure", "report"):
        from matplotlib.figure import Figure

    drawing, high = chart.drawing, INCHES[1]
    if isinstance(drawing, Bars):
        high = max(2.2, 1.2 + 0.11 * len(drawing.names) * (1 + len(drawing.series)))
    figure = Figure(figsize=(INCHES[0], high), layout="constrained")
    figure.suptitle(_label(chart.title), x=0.01, ha="left", fontsize=10)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    _DRAW[type(drawing)](axes, drawing)
    return figure


def _curves(axes: Axes, drawing: Curves) -> None:
    for number, curve in enumerate(drawing.curves):
        hue = colour(number if curve.filled else number + 1)
        x: Any = _instants(curve.x) if drawing.x.scale == "time" else curve.x
        if curve.filled:
            axes.fill_between(
                x,
                curve.y,
                color=hue,
                alpha=0.9 if number else 0.5,
                linewidth=0,
                label=_label(curve.name),
            )
        else:
            axes.plot(x, curve.y, color=hue, linewidth=1.2, label=_label(curve.name))
    _edges(axes, drawing.x, drawing.y)
    if all(curve.y.min(initial=0.0) >= 0 for curve in drawing.curves):
        axes.set_ylim(0, None)
    _legend(axes, len(drawing.curves))


def _bars(axes: Axes, drawing: Bars) -> None:
    thickness = 0.8 / len(drawing.series)
    places = np.arange(len(drawing.names))
    for number, (name, lengths) in enumerate(drawing.series.items()):
        centres = places + (number - (len(drawing.series) - 1) / 2) * thickness
        axes.barh(
            centres,
            lengths,
            height=thickness * 0.9,
            color=colour(number + 1),
            label=_label(name),
        )
    axes.set_yticks(places, [_label(name[:40]) for name in drawing.names])
    axes.invert_yaxis()
    _edges(axes, drawing.value, Axis(""))
    _legend(axes, len(drawing.series))


def _blocks(axes: Axes, drawing: Blocks) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.dates import date2num
    from matplotlib.patches import Patch

    left, right = (
        date2num(_instants(drawing.origin + 1000.0 * np.asarray(at)))
        for at in (drawing.begin, drawing.end)
    )
    low, high = drawing.first, drawing.last + 1
    corners = np.array([[left, low], [left, high], [right, high], [right, low]])
    filled = [drawing.hue(who) for who in drawing.who]
    # Rasterized: as vectors a million blocks are too much for a reader of PDF.
    axes.add_collection(
        PolyCollection(
            list(corners.transpose(2, 0, 1)), facecolors=filled, rasterized=True
        )
    )
    whole = np.array([drawing.origin, drawing.origin + 1000.0 * drawing.seconds])
    axes.set_xlim(*date2num(_instants(whole)))
    axes.set_ylim(0, drawing.height)
    axes.xaxis_date()
    _edges(axes, drawing.x, drawing.y)
    if drawing.names_rows:
        places = np.arange(len(drawing.rows)) + 0.5
        axes.set_yticks(places, [_label(name[:40]) for name in drawing.rows])
    elif drawing.row == "job":
        axes.set_yticks([])
    hues = legend(drawing)
    patches = [Patch(color=hue, label=_label(name[:24])) for name, hue in hues]
    _legend(axes, len(hues), handles=patches)


def _heat(axes: Axes, drawing: Heat) -> None:
    shades = "Blues_r" if drawing.less_is_better else "Blues"
    image = axes.imshow(
        drawing.values, aspect="auto", cmap=shades, interpolation="nearest", alpha=0.7
    )
    if drawing.shows_numbers:
        for (row, column), value in np.ndenumerate(drawing.values):
            if value == value:
                axes.text(column, row, drawing.number(value), ha="center", va="center")
    step = 1 if len(drawing.across) <= 12 else 3
    axes.set_xticks(
        range(0, len(drawing.across), step),
        [_label(name) for name in drawing.across[::step]],
    )
    axes.set_yticks(range(len(drawing.down)), [_label(name) for name in drawing.down])
    axes.set_xlabel(drawing.x.label)
    axes.set_ylabel(drawing.y.label)
    axes.figure.colorbar(image, ax=axes, label=drawing.value.label)


def _edges(axes: Axes, x: Axis, y: Axis) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import (
        EngFormatter,
        FuncFormatter,
        NullFormatter,
        PercentFormatter,
    )

    for axis, model, scale in (
        (x, axes.xaxis, axes.set_xscale),
        (y, axes.yaxis, axes.set_yscale),
    ):
        model.set_label_text(axis.label)
        if axis.scale == "log":
            scale("log")
            model.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            model.set_minor_formatter(NullFormatter())
        elif axis.scale == "number" and axis.label:
            model.set_major_formatter(EngFormatter(sep=""))
        elif axis.scale == "share":
            model.set_major_formatter(PercentFormatter(1.0))
        elif axis.scale == "time":
            locator = AutoDateLocator()
            model.set_major_locator(locator)
            model.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))


def _legend(axes: Axes, entries: int, **more: Any) -> None:
    if entries > 1:
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
        columns = min(entries, 3)
        axes.legend(**place, ncols=columns, frameon=False, fontsize=8, **more)


def _instants(ms: Any) -> list[datetime]:
    return [datetime.fromtimestamp(instant / 1000, UTC) for instant in ms.tolist()]


def _label(name: str) -> str:
    """A name as plain text: text between dollar signs would be read as TeX, and a leading _ hides an entry."""
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


_DRAW: dict[type[Drawing], Any] = {
    Curves: _curves,
    Bars: _bars,
    Blocks: _blocks,
    Heat: _heat,
}
