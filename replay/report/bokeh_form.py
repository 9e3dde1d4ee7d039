"""Charts as Bokeh figures. page.js holds all behaviour in the browser, except the texts of hovers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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
    shade,
)

if TYPE_CHECKING:
    from bokeh.models import Model

LABEL = 22
FORMATS = {
    "number": "0,0.[00]",
    "log": "0,0.[000]",
    "time": "%F %H:%M",
    "share": "0.[00]%",
}
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
        from bokeh.document import Document
        from bokeh.resources import Resources

    documents = {}
    for chart in charts:
        document = Document(title=chart.key)
        document.add_root(_figure(chart))
        content = document.to_json(deferred=False)
        documents[chart.key] = _renumbered(content, chart.key)
    library = Resources(mode="inline", components=["bokeh"]).js_raw
    return documents, "\n".join(library)


def _renumbered(content: Any, prefix: str) -> Any:
    """Return a document with ids numbered from the start: Bokeh's own ids count up during a process.

    Keys named id belong to Bokeh: the data of charts is in lists of entries.
    """
    numbers: dict[str, str] = {}

    def walk(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                key: numbers.setdefault(value, f"{prefix}-{len(numbers)}")
                if key == "id" and isinstance(value, str)
                else walk(value)
                for key, value in part.items()
            }
        return (
            [walk(entry) for entry in part] if isinstance(part, list | tuple) else part
        )

    return walk(content)


def _figure(chart: Chart) -> Model:
    from bokeh.models import DataRange1d, NoOverlap, Range1d
    from bokeh.plotting import figure

    drawing: Drawing = chart.drawing
    x, y = (
        (drawing.value, Axis(""))
        if isinstance(drawing, Bars)
        else (drawing.x, drawing.y)
    )
    ranges: dict[str, Any] = {}
    if isinstance(drawing, Curves) and x.scale == "time":
        instants = np.concatenate([curve.x for curve in drawing.curves])
        ranges["x_range"] = Range1d(instants.min(), instants.max())
    if isinstance(drawing, Blocks):
        end = drawing.origin + 1000.0 * drawing.seconds
        ranges["x_range"] = Range1d(drawing.origin, end)
        ranges["y_range"] = Range1d(0, drawing.height, bounds=(0, drawing.height))
    elif y.scale == "share":
        ranges["y_range"] = Range1d(0, 1.02)
    elif isinstance(drawing, Curves) and all(
        curve.y.min(initial=0.0) >= 0 for curve in drawing.curves
    ):
        ranges["y_range"] = DataRange1d(start=0, only_visible=True)
    kinds = {
        name: {"time": "datetime", "log": "log"}.get(axis.scale, "linear")
        for name, axis in (("x", x), ("y", y))
    }
    made = figure(
        name=chart.key, height=height(drawing), sizing_mode="stretch_width", min_width=200, toolbar_location="above",
        tools="pan,box_zoom,xwheel_zoom,reset,save", active_drag="box_zoom", active_scroll=None,
        x_axis_type=kinds["x"], y_axis_type=kinds["y"], x_axis_label=x.label, y_axis_label=y.label,
        background_fill_alpha=0, border_fill_alpha=0, outline_line_alpha=0, lod_threshold=None, **ranges,
    )  # fmt: skip
    made.toolbar.logo = None
    made.x_range.tags = [x.scale]
    for axis, model in ((x, made.xaxis[0]), (y, made.yaxis[0])):
        model.axis_label_text_font_style = "normal"
        model.axis_label_text_font_size = "13px"
        model.major_label_text_font_size = "12px"
        model.major_label_policy = NoOverlap(min_distance=8)
        if axis.scale != "time":
            model.formatter = _ticks(axis)
    _DRAW[type(drawing)](made, drawing)
    return made


def height(drawing: Drawing) -> int:
    """Height of its figure in pixels: a page reserves the space until it is drawn."""
    if isinstance(drawing, Bars):
        return 90 + len(drawing.names) * (12 + 10 * len(drawing.series))
    if isinstance(drawing, Heat):
        return 110 + 28 * len(drawing.down)
    if isinstance(drawing, Blocks):
        return 120 + 22 * len(drawing.rows) if drawing.names_rows else 420
    return 300


def _ticks(axis: Axis) -> Model:
    from bokeh.models import NumeralTickFormatter

    return NumeralTickFormatter(
        format={"share": "0%", "log": "0,0.[000]"}.get(axis.scale, "0,0.[00]a")
    )


def _hover(made: Any, axis: Axis, rows: list[tuple[str, str]], **more: Any) -> None:
    from bokeh.models import HoverTool

    formatters = {
        **({"@x": "datetime", "$x": "datetime"} if axis.scale == "time" else {}),
        **more.pop("formatters", {}),
    }
    made.add_tools(HoverTool(tooltips=rows, formatters=formatters, **more))


def _field(name: str, axis: Axis) -> tuple[str, str]:
    return axis.label, f"{name}{{{FORMATS[axis.scale]}}}"


def _curves(made: Any, drawing: Curves) -> None:
    from bokeh.models import ColumnDataSource

    lines = []
    for number, curve in enumerate(drawing.curves):
        source = ColumnDataSource({"x": curve.x, "y": curve.y})
        common: dict[str, Any] = {"source": source, "name": curve.name}
        hue = colour(number if curve.filled else number + 1)
        if curve.filled:
            area = made.varea(
                "x",
                y1=0,
                y2="y",
                fill_color=hue,
                fill_alpha=0.85 if number else 0.5,
                **common,
            )
            area.tags = [number]
        lines.append(
            made.line(
                "x", "y", line_color=hue, line_width=1 if curve.filled else 2, **common
            )
        )
        lines[-1].tags = [number]
    rows = [("", "$name"), _field("@x", drawing.x), _field("@y", drawing.y)]
    _hover(made, drawing.x, rows, renderers=lines, mode="vline", line_policy="nearest")


def _bars(made: Any, drawing: Bars) -> None:
    from bokeh.models import ColumnDataSource, Range1d

    count, thickness = len(drawing.names), 0.8 / len(drawing.series)
    places = np.arange(count, dtype=np.float64)
    for number, (name, lengths) in enumerate(drawing.series.items()):
        centres = places + (number - (len(drawing.series) - 1) / 2) * thickness
        source = ColumnDataSource(
            {"at": centres, "length": lengths, "label": list(drawing.names)}
        )
        bars = made.hbar(
            "at", right="length", left=0, height=thickness * 0.9, source=source, name=name,
            fill_color=colour(number + 1), line_color=None,
        )  # fmt: skip
        bars.tags = [number]
    made.y_range = Range1d(count - 0.4, -0.6)
    made.x_range.start = 0
    _named(made.yaxis[0], places.tolist(), drawing.names)
    made.ygrid.visible = False
    _hover(
        made,
        drawing.value,
        [("", "@label"), ("", "$name"), _field("@length", drawing.value)],
    )


def _blocks(made: Any, drawing: Blocks) -> None:
    from bokeh.models import ColumnDataSource, CustomJSHover, LinearColorMapper

    small = (
        np.uint16
        if drawing.height < 2**16 and len(drawing.names) < 2**16 - 1
        else np.uint32
    )
    rows = {"who": drawing.who + 1, "first": drawing.first, "last": drawing.last + 1}
    spans = ColumnDataSource({
        **{name: values.astype(small) for name, values in rows.items()},
        **{name: getattr(drawing, name).astype(np.uint32) for name in ("begin", "end")},
    })  # fmt: skip
    whole = {
        "x": [drawing.origin],
        "y": [0],
        "dw": [drawing.seconds * 1000],
        "dh": [drawing.height],
    }
    image = ColumnDataSource({"image": [np.zeros((1, 1), dtype=small)], **whole})
    palette = ["#00000000", *(drawing.hue(who) for who in range(len(drawing.names)))]
    mapper = LinearColorMapper(palette=palette, low=-0.5, high=len(drawing.names) + 0.5)
    made.image(
        "image", x="x", y="y", dw="dw", dh="dh", source=image, color_mapper=mapper
    )
    # page.js paints what is in view.
    made.tags = [spans, image, drawing.origin, list(drawing.class_of)]
    made.grid.visible = False
    if drawing.names_rows:
        middles = [row + 0.5 for row in range(len(drawing.rows))]
        _named(made.yaxis[0], middles, drawing.rows)
    elif drawing.row == "job":  # the numbers of many say nothing
        made.yaxis.major_label_text_alpha = 0
        made.yaxis.major_tick_line_color = None
        made.yaxis.minor_tick_line_color = None
    words = {"names": list(drawing.names), "units": 1, "nobody": drawing.empty}
    who = CustomJSHover(args=words, code=f"value = value - 1; {NAME_OF}")
    where = CustomJSHover(
        args={"names": list(drawing.rows), "units": drawing.units, "nobody": ""},
        code=NAME_OF,
    )
    tips = [
        ("", "@image{custom}"),
        (drawing.row, "$y{custom}"),
        ("time, UTC", "$x{%F %H:%M}"),
    ]
    _hover(made, drawing.x, tips, formatters={"@image": who, "$y": where})


def _named(axis: Any, places: list[float], names: Sequence[str]) -> None:
    """Put names on an axis, as plain text: otherwise text between dollar signs would be read as TeX."""
    from bokeh.models import FixedTicker, PlainText

    axis.ticker = FixedTicker(ticks=places, minor_ticks=[])
    short = [n if len(n) <= LABEL else f"{n[: LABEL - 9]}…{n[-8:]}" for n in names]
    texts = [PlainText(text=name) for name in short]
    axis.major_label_overrides = dict(zip(places, texts, strict=True))


def _heat(made: Any, drawing: Heat) -> None:
    from bokeh.models import ColorBar, ColumnDataSource, LinearColorMapper, Range1d

    down, across = np.nonzero(~np.isnan(drawing.values))
    values = drawing.values[down, across]
    source = ColumnDataSource({
        "x": across.astype(float), "y": down.astype(float), "value": values,
        "number": [drawing.number(value) for value in values.tolist()],
        "left": [drawing.across[k] for k in across], "top": [drawing.down[k] for k in down],
    })  # fmt: skip
    low, high = float(values.min()), float(values.max())
    shades = [shade(share) for share in np.linspace(0, 1, 256).tolist()]
    mapper = LinearColorMapper(
        palette=shades[::-1] if drawing.less_is_better else shades,
        low=low,
        high=high if high > low else low + 1,
    )
    made.rect("x", "y", width=0.96, height=0.94, source=source, line_color=None,
              fill_color={"field": "value", "transform": mapper})  # fmt: skip
    if drawing.shows_numbers:
        # page.js gives them the colour of its text.
        made.text("x", "y", "number", source=source, name="ink", text_align="center", text_baseline="middle",
                  text_font_size="12px")  # fmt: skip
    else:
        bar = ColorBar(
            color_mapper=mapper,
            width=10,
            background_fill_alpha=0,
            formatter=_ticks(drawing.value),
        )
        made.add_layout(bar, "right")
    made.x_range, made.y_range = (
        Range1d(-0.5, len(drawing.across) - 0.5),
        Range1d(len(drawing.down) - 0.5, -0.5),
    )
    for axis, names in ((made.xaxis[0], drawing.across), (made.yaxis[0], drawing.down)):
        step = 1 if len(names) <= 12 else 3
        places = [float(place) for place in range(0, len(names), step)]
        _named(axis, places, names[::step])
    made.grid.visible = False
    rows = [
        (drawing.x.label, "@left"),
        (drawing.y.label, "@top"),
        _field("@value", drawing.value),
    ]
    _hover(made, drawing.value, rows)


_DRAW: dict[type[Drawing], Any] = {
    Curves: _curves,
    Bars: _bars,
    Blocks: _blocks,
    Heat: _heat,
}
