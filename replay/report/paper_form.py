"""Charts as figures for a paper, by Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models.errors import InputError
from bft.models.plugins import needs
from bft.replay.report.chart import (
    Bars,
    Blocks,
    Chart,
    Curves,
    FloatArray,
    legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The forms, and what would make the same chart other bytes.
FORMATS = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
INCHES, DPI = (6.4, 3.0), 200
# Without a salt the ids of an SVG's parts are random; text stays text, so that the figure can be edited.
STYLE = {
    "svg.hashsalt": "bft-replay",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.size": 9,
    "date.converter": "concise",
    "timezone": "UTC",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


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
    figure = plotted([chart], chart.key)
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure.savefig(file, format=form, metadata=FORMATS[form], dpi=DPI)


def plotted(charts: Sequence[Chart], key: str) -> Figure:
    """The chart of this key as a figure of Matplotlib, with its title.

    Raises
    ------
    InputError
        When there is none, or Matplotlib is not installed.
    """
    by_key = {chart.key: chart for chart in charts}
    if key not in by_key:
        raise InputError(f"no chart {key!r}: there are {', '.join(by_key)}")
    with needs("a figure", "report"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import EngFormatter

    drawing, high = by_key[key].drawing, INCHES[1]
    if isinstance(drawing, Bars):
        high = max(2.2, 1.2 + 0.11 * len(drawing.names) * (1 + len(drawing.series)))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(INCHES[0], high), layout="constrained")
        figure.suptitle(_plain(by_key[key].title, 200), x=0.01, ha="left", fontsize=10)
        axes = figure.add_subplot(
            xlabel=drawing.x.label,
            ylabel=drawing.y.label,
            xscale="log" if drawing.x.scale == "log" else "linear",
        )
        forms: dict[str, Any] = {"log": "{x:g}", "share": "{x:.0%}", "number": EngFormatter(sep="")}  # fmt: skip
        for axis, model in ((drawing.x, axes.xaxis), (drawing.y, axes.yaxis)):
            if axis.scale in forms:
                model.set_major_formatter(forms[axis.scale])
                model.set_minor_formatter("")
        _DRAW[type(drawing)](axes, drawing)
        entries = [(_plain(name), hue) for name, hue in legend(drawing)]
        if len(entries) > 1:
            columns = max(1, min(3, 90 // max(len(name) for name, _ in entries)))
            patches = [Patch(color=hue, label=name) for name, hue in entries]
            place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": columns}
            axes.legend(handles=patches, **place, frameon=False, fontsize=8)
    return figure


def _curves(axes: Axes, drawing: Curves) -> None:
    for number, (curve, (_, hue)) in enumerate(
        zip(drawing.curves, legend(drawing), strict=True)
    ):
        x = _instants(curve.x) if drawing.x.scale == "time" else curve.x
        if curve.filled:
            alpha = 0.9 if number else 0.5
            axes.fill_between(x, curve.y, color=hue, alpha=alpha, linewidth=0)
        else:
            axes.plot(x, curve.y, color=hue, linewidth=1.2)
    axes.set_ylim(0, None)


def _bars(axes: Axes, drawing: Bars) -> None:
    thickness = 0.8 / len(drawing.series)
    places = np.arange(len(drawing.names))
    for number, (name, hue) in enumerate(legend(drawing)):
        centres = places + (number - (len(drawing.series) - 1) / 2) * thickness
        axes.barh(centres, drawing.series[name], height=thickness * 0.9, color=hue)
    axes.set_yticks(places, [_plain(name) for name in drawing.names])
    axes.invert_yaxis()


def _blocks(axes: Axes, drawing: Blocks) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.dates import date2num

    left, right, whole = (
        date2num(_instants(drawing.origin + 1000.0 * np.asarray(seconds)))
        for seconds in (drawing.begin, drawing.end, [0, drawing.seconds])
    )
    low, high = drawing.first, drawing.last + 1
    corners = np.array([[left, low], [left, high], [right, high], [right, low]])
    filled = np.array(drawing.colours)[drawing.who].tolist()
    # Rasterized: as vectors a million blocks are too much for a reader of PDF.
    axes.add_collection(
        PolyCollection(
            list(corners.transpose(2, 0, 1)), facecolors=filled, rasterized=True
        )
    )
    axes.set(xlim=whole, ylim=(0, len(drawing.rows) * drawing.units))
    axes.xaxis_date()
    if drawing.names_rows:
        places = np.arange(len(drawing.rows)) + 0.5
        axes.set_yticks(places, [_plain(name) for name in drawing.rows])
    elif drawing.row == "job":
        axes.set_yticks([])


def _instants(ms: FloatArray) -> Any:
    return ms.astype("int64").astype("datetime64[ms]")


def _plain(name: str, most: int = 40) -> str:
    """The begin of a name as plain text: between dollar signs it would be read as TeX, and a leading _ hides it."""
    text = name[:most].replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


_DRAW: dict[type, Any] = {Curves: _curves, Bars: _bars, Blocks: _blocks}
