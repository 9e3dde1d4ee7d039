"""Charts as Bokeh figures. page.js holds all behaviour in the browser, except the texts of hovers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models.plugins import needs
from bft.replay.report.chart import Axis, Bars, Blocks, Chart, Curves, legend

if TYPE_CHECKING:
    from bokeh.models import Model

LABEL = 22
TICKS = {"number": "0,0.[00]a", "share": "0%", "log": "0,0.[000]"}
HOVERS = {"number": "0,0.[00]", "log": "0,0.[000]", "time": "%F %H:%M", "share": "0.[00]%"}  # fmt: skip
# JavaScript: BokehJS calls it for the text of a hover, from the number of a cell.
NAME_OF = "return 0 <= value ? names[Math.min(Math.floor(value / units), names.length - 1)] : nobody"


def embedded(charts: Sequence[Chart]) -> tuple[dict[str, Any], str]:
    """The charts for a page.

    Returns
    -------
    documents
        Chart key -> a Bokeh document with its figure, for JSON; one document per chart, so that a page draws what is in
        view. Equal charts give equal text.
    library
        BokehJS, to be embedded in the page.

    Raises
    ------
    InputError
        When Bokeh is not installed; contains the command that installs it.
    """
    with needs("a page with charts to zoom", "report"):
        from bokeh.resources import Resources

    library = Resources(mode="inline", components=["bokeh"]).js_raw
    return {chart.key: _document(chart) for chart in charts}, "\n".join(library)


def _document(chart: Chart) -> Any:
    """A document with ids numbered from the start: Bokeh's own ids count up during a process.

    Keys named id belong to Bokeh: the data of charts is in lists of entries.
    """
    from bokeh.document import Document

    document = Document(title=chart.key)
    document.add_root(_figure(chart))
    numbers: dict[str, str] = {}

    def renumbered(part: dict[str, Any]) -> dict[str, Any]:
        if isinstance(part.get("id"), str):
            number = f"{chart.key}-{len(numbers)}"
            part["id"] = numbers.setdefault(part["id"], number)
        return part

    content = json.dumps(document.to_json(deferred=False))
    return json.loads(content, object_hook=renumbered)


def _figure(chart: Chart) -> Model:
    from bokeh.models import NoOverlap, NumeralTickFormatter
    from bokeh.plotting import figure

    drawing = chart.drawing
    kinds = [
        {"time": "datetime", "log": "log"}.get(axis.scale, "linear")
        for axis in (drawing.x, drawing.y)
    ]
    made = figure(
        name=chart.key, height=height(chart), sizing_mode="stretch_width", min_width=200, toolbar_location="above",
        tools="pan,box_zoom,xwheel_zoom,reset,save", active_drag="box_zoom", active_scroll=None,
        x_axis_type=kinds[0], y_axis_type=kinds[1], x_axis_label=drawing.x.label, y_axis_label=drawing.y.label,
        background_fill_alpha=0, border_fill_alpha=0, outline_line_alpha=0, lod_threshold=None,
    )  # fmt: skip
    made.toolbar.logo = None
    for axis, model in ((drawing.x, made.xaxis[0]), (drawing.y, made.yaxis[0])):
        model.axis_label_text_font_style = "normal"
        model.axis_label_text_font_size = "13px"
        model.major_label_text_font_size = "12px"
        model.major_label_policy = NoOverlap(min_distance=8)
        if axis.scale in TICKS:
            model.formatter = NumeralTickFormatter(format=TICKS[axis.scale])
    _DRAW[type(drawing)](made, drawing)
    made.x_range.tags = [drawing.x.scale]
    return made


def height(chart: Chart) -> int:
    """Height of its figure in pixels: a page reserves the space until it is drawn."""
    drawing = chart.drawing
    if isinstance(drawing, Bars):
        return 90 + len(drawing.names) * (12 + 10 * len(drawing.series))
    if isinstance(drawing, Blocks):
        return 120 + 22 * len(drawing.rows) if drawing.names_rows else 420
    return 300


def _hover(made: Any, *rows: tuple[str, str, Axis | None], **more: Any) -> None:
    """Show texts where the pointer is: of each its name, its field, and the axis whose form it has."""
    from bokeh.models import HoverTool

    formatters = more.pop("formatters", {})
    tips = []
    for name, field, axis in rows:
        if axis is not None and axis.scale == "time":
            formatters[field] = "datetime"
        form = "" if axis is None else f"{{{HOVERS[axis.scale]}}}"
        tips.append((name, field + form))
    made.add_tools(HoverTool(tooltips=tips, formatters=formatters, **more))


def _curves(made: Any, drawing: Curves) -> None:
    from bokeh.models import ColumnDataSource, DataRange1d, Range1d

    lines = []
    for number, (curve, (name, hue)) in enumerate(
        zip(drawing.curves, legend(drawing), strict=True)
    ):
        source = ColumnDataSource({"x": curve.x, "y": curve.y})
        common: dict[str, Any] = {"source": source, "name": name}
        if curve.filled:
            alpha = 0.85 if number else 0.5
            area = made.varea("x", y1=0, y2="y", fill_color=hue, fill_alpha=alpha, **common)  # fmt: skip
            area.tags = [number]
        width = 1 if curve.filled else 2
        line = made.line("x", "y", line_color=hue, line_width=width, **common)
        line.tags = [number]
        lines.append(line)
    if drawing.x.scale == "time":
        made.x_range = Range1d(*drawing.curves[0].x[[0, -1]].tolist())
    is_share = drawing.y.scale == "share"
    made.y_range = (
        Range1d(0, 1.02) if is_share else DataRange1d(start=0, only_visible=True)
    )
    rows = (
        ("", "$name", None),
        (drawing.x.label, "@x", drawing.x),
        (drawing.y.label, "@y", drawing.y),
    )
    _hover(made, *rows, renderers=lines, mode="vline", line_policy="nearest")


def _bars(made: Any, drawing: Bars) -> None:
    from bokeh.models import ColumnDataSource, Range1d

    count, thickness = len(drawing.names), 0.8 / len(drawing.series)
    places = np.arange(count, dtype=np.float64)
    for number, (name, hue) in enumerate(legend(drawing)):
        centres = places + (number - (len(drawing.series) - 1) / 2) * thickness
        columns = {"at": centres, "length": drawing.series[name], "label": list(drawing.names)}  # fmt: skip
        bars = made.hbar(
            "at", right="length", left=0, height=thickness * 0.9, source=ColumnDataSource(columns), name=name,
            fill_color=hue, line_color=None,
        )  # fmt: skip
        bars.tags = [number]
    made.y_range = Range1d(count - 0.4, -0.6)
    made.x_range.start = 0
    _named(made.yaxis[0], places, drawing.names)
    made.ygrid.visible = False
    length = (drawing.x.label, "@length", drawing.x)
    _hover(made, ("", "@label", None), ("", "$name", None), length)


def _blocks(made: Any, drawing: Blocks) -> None:
    from bokeh.models import ColumnDataSource, CustomJSHover, LinearColorMapper, Range1d

    high = len(drawing.rows) * drawing.units
    small = np.min_scalar_type(max(high, len(drawing.names) + 1))
    rows = {"who": drawing.who + 1, "first": drawing.first, "last": drawing.last + 1}
    spans = ColumnDataSource({
        **{name: values.astype(small) for name, values in rows.items()},
        **{name: getattr(drawing, name).astype(np.uint32) for name in ("begin", "end")},
    })  # fmt: skip
    whole = {"x": [drawing.origin], "y": [0], "dw": [1000.0 * drawing.seconds], "dh": [high]}  # fmt: skip
    image = ColumnDataSource({"image": [np.zeros((1, 1), dtype=small)], **whole})
    palette = ["#00000000", *drawing.colours]
    mapper = LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5)
    made.image(
        "image", x="x", y="y", dw="dw", dh="dh", source=image, color_mapper=mapper
    )
    # page.js paints what is in view.
    made.tags = [spans, image, drawing.origin, list(drawing.class_of)]
    made.x_range = Range1d(drawing.origin, drawing.origin + 1000.0 * drawing.seconds)
    made.y_range = Range1d(0, high, bounds=(0, high))
    made.grid.visible = False
    if drawing.names_rows:
        _named(made.yaxis[0], np.arange(len(drawing.rows)) + 0.5, drawing.rows)
    elif drawing.row == "job":  # the numbers of many say nothing
        made.yaxis.major_label_text_alpha = 0
        made.yaxis.major_tick_line_color = None
        made.yaxis.minor_tick_line_color = None

    def told(names: Sequence[str], units: int, nobody: str, less: str = "") -> Any:
        words = {"names": list(names), "units": units, "nobody": nobody}
        return CustomJSHover(args=words, code=less + NAME_OF)

    who = told(drawing.names, 1, drawing.empty, "value = value - 1; ")
    formatters = {"@image": who, "$y": told(drawing.rows, drawing.units, "")}
    tips = (
        ("", "@image{custom}", None),
        (drawing.row, "$y{custom}", None),
        (drawing.x.label, "$x", drawing.x),
    )
    _hover(made, *tips, formatters=formatters)


def _named(axis: Any, places: np.ndarray, names: Sequence[str]) -> None:
    """Put names on an axis, as plain text: otherwise text between dollar signs would be read as TeX."""
    from bokeh.models import FixedTicker, PlainText

    axis.ticker = FixedTicker(ticks=places.tolist(), minor_ticks=[])
    short = [n if len(n) <= LABEL else f"{n[: LABEL - 9]}…{n[-8:]}" for n in names]
    texts = [PlainText(text=name) for name in short]
    axis.major_label_overrides = dict(zip(places.tolist(), texts, strict=True))


_DRAW: dict[type, Any] = {Curves: _curves, Bars: _bars, Blocks: _blocks}
