"""Charts as SVG text, so that a report needs neither scripts nor a drawing library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from bft.replay.report.over_time import FloatArray
from bft.replay.report.text import markup
from bft.replay.trace.node_trace import SECOND_NS

WIDTH, HEIGHT = 900, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 45, 12, 34
DAY_S = 86_400
# Between two marks on an axis of time.
TIME_STEPS_S = (60, 300, 900, 3600, 10_800, 21_600, 43_200, *(DAY_S * days for days in (1, 2, 5, 10, 30, 100, 365)))


def areas_over_time(layers: Mapping[str, FloatArray], begin: int, end: int, unit: str) -> str:
    """Areas one in front of the other, the first behind.

    Parameters
    ----------
    layers
        Legend -> means over equal spans of the window.
    begin, end
        The window, UTC ns.
    unit
        Of the vertical axis.
    """
    largest = max((float(layer.max(initial=0.0)) for layer in layers.values()), default=0.0)
    ticks = round_ticks(largest)
    top = ticks[-1]
    parts = [_open(unit)]
    for tick in ticks:
        y = _y(tick / top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{tick:,.10g}</text>')
    for share, label in time_ticks(begin, end):
        x = _x(share)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>')
    for number, (name, layer) in enumerate(layers.items()):
        points = [f"{_x(0.0)},{_y(0.0)}"]
        for at, value in enumerate(layer.tolist()):
            y = _y(value / top)
            points += [f"{_x(at / len(layer))},{y}", f"{_x((at + 1) / len(layer))},{y}"]
        points.append(f"{_x(1.0)},{_y(0.0)}")
        parts.append(
            f'<polygon class="layer{number}" points="{" ".join(points)}"><title>{markup(name)}</title></polygon>'
        )
    return "\n".join([*parts, "</svg>"])


def bars(shares: Mapping[str, float], unit: str) -> str:
    """One bar a name, of shares in [0, 1]."""
    parts = [_open(unit)]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{tick:.0%}</text>')
    for at, (name, share) in enumerate(shares.items()):
        middle, width = _x((at + 0.5) / len(shares)), (WIDTH - LEFT - RIGHT) / len(shares) * 0.5
        y = _y(min(max(share, 0.0), 1.0))
        parts.append(
            f'<rect class="layer1" x="{middle - width / 2:.1f}" y="{y}" width="{width:.1f}" '
            f'height="{HEIGHT - BOTTOM - y:.1f}"/>'
        )
        parts.append(f'<text x="{middle}" y="{y - 4:.1f}" text-anchor="middle">{share:.1%}</text>')
        parts.append(f'<text x="{middle}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{markup(name)}</text>')
    return "\n".join([*parts, "</svg>"])


def round_ticks(largest: float) -> list[float]:
    """Some four to eight round numbers from 0 to at least `largest`."""
    if not largest > 0:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(largest / 4))
    step = next(factor * size for factor in (1, 2, 5, 10) if largest <= 6 * factor * size)
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)]


def time_ticks(begin: int, end: int) -> list[tuple[float, str]]:
    """Round instants of the window: how far along each is, in [0, 1], and what it is called."""
    seconds = (end - begin) / SECOND_NS
    steps = (
        60,
        300,
        900,
        3600,
        3 * 3600,
        6 * 3600,
        12 * 3600,
        *(86_400 * days for days in (1, 2, 5, 10, 30, 100, 365)),
    )
    step = next((step for step in steps if seconds / step <= 8), 3650 * 86_400)
    marks = []
    at = -(-begin // (step * SECOND_NS)) * step * SECOND_NS
    while at <= end:
        when = datetime.fromtimestamp(at // SECOND_NS, UTC)
        marks.append(((at - begin) / (end - begin), f"{when:%d %b}" if step >= DAY_S else f"{when:%d %b %H:%M}"))
        at += step * SECOND_NS
    return marks


def _open(unit: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{markup(unit)}">\n'
        f'<text x="14" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2})">{markup(unit)}</text>'
    )


def _x(share: float) -> float:
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(share: float) -> float:
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)
