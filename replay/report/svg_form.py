"""Charts as SVG text, for a page without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np

from bft.replay.report.chart import (
    STRONG,
    Axis,
    Bars,
    Blocks,
    Chart,
    Curves,
    Drawing,
    FloatArray,
    Heat,
    colour,
    shade,
)
from bft.replay.report.words import markup
from bft.replay.trace.node_trace import SECOND_NS

WIDTH, HEIGHT = 900, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 45, 12, 34
# Space for the names down the side of bars.
NAMES, NAME_CHARACTERS = 190, 28
# Points of a curve, and cells of a chart of blocks: about what an eye can distinguish.
MAX_POINTS, CELLS = 700, (180, 60)
DAY_S = 86_400
# Pixels between two marks on an axis of time.
TIME_STEPS_S = (
    60,
    300,
    900,
    3600,
    10_800,
    21_600,
    43_200,
    *(DAY_S * days for days in (1, 2, 5, 10, 30, 100, 365)),
)
Marks = list[tuple[float, str]]


def drawn(chart: Chart) -> str:
    """A chart as an SVG element."""
    return str(_DRAW[type(chart.drawing)](chart.title, chart.drawing))


def _curves(title: str, drawing: Curves) -> str:
    x, y = (
        np.concatenate([getattr(curve, name) for curve in drawing.curves])
        for name in ("x", "y")
    )
    limits = list(drawing.limits.values())
    across = _Scale(drawing.x, float(x.min()), float(x.max()))
    up = _Scale(
        drawing.y, min(0.0, float(y.min())), max([0.0, float(y.max()), *limits])
    )
    parts = [
        _open(f"{title}: {drawing.y.label}"),
        *_side(drawing.y.label),
        *_marks(across, up),
    ]
    for number, curve in enumerate(drawing.curves):
        hue = colour(number if curve.filled else number + 1)
        kept = _thinned(len(curve.x))
        points = [
            f"{_x(across.share(x))},{_y(up.share(y))}"
            for x, y in zip(curve.x[kept], curve.y[kept], strict=True)
        ]
        if curve.filled:
            ground = _y(up.share(0.0))
            points = [
                f"{points[0].split(',')[0]},{ground}",
                *points,
                f"{points[-1].split(',')[0]},{ground}",
            ]
            shape = f'<polygon fill="{hue}" fill-opacity="{0.85 if number else 0.5}" points="{" ".join(points)}">'
            parts.append(f"{shape}<title>{markup(curve.name)}</title></polygon>")
        else:
            line = f'<polyline fill="none" stroke="{hue}" stroke-width="2" points="{" ".join(points)}">'
            parts.append(f"{line}<title>{markup(curve.name)}</title></polyline>")
    for name, level in drawing.limits.items():
        at = _y(up.share(level))
        line = (
            f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}">'
        )
        parts.append(f"{line}<title>{markup(name)}</title></line>")
    return "\n".join([*parts, "</svg>"])


def _bars(title: str, drawing: Bars) -> str:
    thickness = 11
    band = thickness * len(drawing.series) + 8
    height = TOP + band * len(drawing.names) + BOTTOM
    longest = max(
        float(np.max(lengths, initial=0.0)) for lengths in drawing.series.values()
    )
    scale = _Scale(drawing.value, 0.0, longest)
    room = WIDTH - NAMES - RIGHT
    parts = [_open(f"{title}: {drawing.value.label}", height)]
    for share, text in scale.marks():
        x = round(NAMES + share * room, 1)
        parts.append(
            f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        )
        parts.append(
            f'<text x="{x}" y="{height - BOTTOM + 16}" text-anchor="middle">{text}</text>'
        )
    for row, name in enumerate(drawing.names):
        top = TOP + row * band + 4
        shown = (
            name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"
        )
        at = f'x="{NAMES - 8}" y="{top + band / 2 - 4}" text-anchor="end" dominant-baseline="middle"'
        parts.append(f"<text {at}>{markup(shown)}</text>")
        for number, (series, lengths) in enumerate(drawing.series.items()):
            wide = round(max(0.0, scale.share(float(lengths[row]))) * room, 1)
            bar = f'<rect fill="{colour(number + 1)}" x="{NAMES}" y="{top + number * thickness}" width="{wide}"'
            what = markup(f"{name}, {series}: {lengths[row]:.4g}")
            parts.append(f'{bar} height="{thickness - 1}"><title>{what}</title></rect>')
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{height - 4}" text-anchor="end">{markup(drawing.value.label)}</text>'
    )
    return "\n".join([*parts, "</svg>"])


def _blocks(title: str, drawing: Blocks) -> str:
    columns, rows = CELLS
    cells = drawing.sampled(columns, rows)
    across = _Scale(drawing.x, drawing.origin, drawing.origin + drawing.seconds * 1000)
    up = _Scale(drawing.y, 0.0, float(drawing.height), exact=True)
    high = (HEIGHT - TOP - BOTTOM) / rows
    parts = [_open(f"{title}: {drawing.y.label}"), *_side(drawing.y.label)]
    parts += _marks(across, up, labels=drawing.row != "job")
    paths: dict[str, list[str]] = {}
    for row in range(rows):
        y = round(HEIGHT - BOTTOM - (row + 0.5) * high, 1)
        for who, first, last in _runs(cells[row]):
            begin, end = _x(first / columns), _x(last / columns)
            paths.setdefault(drawing.hue(who), []).append(f"M{begin} {y}H{end}")
    for hue, path in sorted(paths.items()):
        parts.append(
            f'<path stroke="{hue}" stroke-width="{high:.2f}" d="{"".join(path)}"/>'
        )
    return "\n".join([*parts, "</svg>"])


def _heat(title: str, drawing: Heat) -> str:
    high, top = 26, TOP + 8
    height = top + high * len(drawing.down) + BOTTOM
    wide = (WIDTH - LEFT - RIGHT) / len(drawing.across)
    strength = drawing.strength()
    parts = [_open(f"{title}: {drawing.value.label}", height)]
    for row, name in enumerate(drawing.down):
        y = top + row * high
        at = f'x="{LEFT - 6}" y="{y + high / 2}" text-anchor="end" dominant-baseline="middle"'
        parts.append(f"<text {at}>{markup(name)}</text>")
        for column, value in enumerate(drawing.values[row].tolist()):
            if value == value:
                what = markup(f"{name}, {drawing.across[column]}: {value:.4g}")
                strong = float(strength[row, column])
                cell = f'<rect fill="{shade(strong)}" x="{LEFT + column * wide:.1f}" y="{y}"'
                parts.append(
                    f'{cell} width="{wide - 1:.1f}" height="{high - 1}"><title>{what}</title></rect>'
                )
                if drawing.shows_numbers:
                    hue = "strong" if strong >= STRONG else "ink"
                    at = f'x="{LEFT + (column + 0.5) * wide:.1f}" y="{y + high / 2}" dominant-baseline="middle"'
                    parts.append(
                        f'<text class="{hue}" {at} text-anchor="middle">{value:.4g}</text>'
                    )
    step = 1 if len(drawing.across) <= 12 else 3
    for column in range(0, len(drawing.across), step):
        at = f'x="{LEFT + (column + 0.5) * wide:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle"'
        parts.append(f"<text {at}>{markup(drawing.across[column])}</text>")
    parts.append(
        f'<text x="{WIDTH - RIGHT}" y="{height - 2}" text-anchor="end">{markup(drawing.x.label)}</text>'
    )
    return "\n".join([*parts, "</svg>"])


class _Scale:
    """Scaling from values of an axis to shares of its length, with round marks."""

    def __init__(
        self, axis: Axis, low: float, high: float, *, exact: bool = False
    ) -> None:
        self.axis, self.low = axis, low
        ticks = [low, high] if axis.scale in ("time", "log") else round_ticks(high)
        if exact:  # the axis ends with the highest value, not with a round one
            ticks = [tick for tick in ticks if tick <= high]
        self.ticks, self.high = ticks, max(ticks[-1], high) if high > low else low + 1.0

    def share(self, value: float) -> float:
        if self.axis.scale == "log":
            return math.log(value / self.low) / (math.log(self.high / self.low) or 1.0)
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> Marks:
        if self.axis.scale == "time":
            return time_ticks(int(self.low * 1e6), int(self.high * 1e6))
        if self.axis.scale == "log":
            decades = range(
                math.ceil(math.log10(self.low) - 1e-9),
                math.floor(math.log10(self.high) + 1e-9) + 1,
            )
            return [
                (self.share(10.0**decade), f"{10.0**decade:,.10g}")
                for decade in decades
            ]
        form = ".0%" if self.axis.scale == "share" else ",.10g"
        return [(self.share(tick), f"{tick:{form}}") for tick in self.ticks]


def _marks(across: _Scale, up: _Scale, *, labels: bool = True) -> Iterator[str]:
    """Grid and marks of both axes."""
    for share, text in up.marks():
        y = _y(share)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        if labels:
            yield f'<text x="{LEFT - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{text}</text>'
    for share, text in across.marks():
        x = _x(share)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>'
    if across.axis.scale != "time":
        yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{markup(across.axis.label)}</text>'


def _side(label: str) -> Sequence[str]:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return [
        f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">{markup(label)}</text>'
    ]


def _runs(row: FloatArray | Any) -> Iterator[tuple[int, int, int]]:
    """Entry, first and end of each stretch of equal, non-empty cells."""
    cuts = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    for first, end in pairwise(cuts):
        if row[first] >= 0:
            yield int(row[first]), first, end


def _thinned(count: int) -> list[int]:
    """Thin out points to a maximum count, including the first and the last."""
    kept: list[int] = np.unique(
        np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int)
    ).tolist()
    return kept


def round_ticks(largest: float) -> list[float]:
    """About four to eight round numbers from 0 to at least `largest`.

    >>> round_ticks(23.0)
    [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]
    """
    if not largest > 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(largest / 4))
    step = next(
        factor * size for factor in (1, 2, 5, 10) if largest <= 6 * factor * size
    )
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


def time_ticks(begin: int, end: int) -> list[tuple[float, str]]:
    """Round instants of the window: their position in [0, 1], and their label.

    >>> time_ticks(0, 4 * 3600 * SECOND_NS)[-1]
    (1.0, '01 Jan 04:00')
    """
    seconds = (end - begin) / SECOND_NS
    step = next((step for step in TIME_STEPS_S if seconds / step <= 8), 3650 * DAY_S)
    marks = []
    instant = -(-begin // (step * SECOND_NS)) * step * SECOND_NS
    while instant <= end:
        when = datetime.fromtimestamp(instant // SECOND_NS, UTC)
        marks.append(
            (
                (instant - begin) / (end - begin),
                f"{when:%d %b}" if step >= DAY_S else f"{when:%d %b %H:%M}",
            )
        )
        instant += step * SECOND_NS
    return marks


def _open(title: str, height: float = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{markup(title)}">'
    )


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(share: float) -> float:
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


_DRAW: dict[type[Drawing], Any] = {
    Curves: _curves,
    Bars: _bars,
    Blocks: _blocks,
    Heat: _heat,
}
