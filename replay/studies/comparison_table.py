"""The table of a comparison as texts."""

from __future__ import annotations

from typing import Any

from bft.replay.studies.comparison import COLUMNS, Comparison


def table_of(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Titles and cells of a comparison for people; the best of each column has a star."""
    frame = comparison.frame
    titles = {column.name: column.title for column in COLUMNS} | {
        "variant": "",
        "queueing_p95_s": "queueing p95",
        "unit_hours": "unit-hours",
    }
    best = comparison.best()
    shown = [name for name in frame if name != "seeds" or frame["seeds"].max() > 1]
    rows = []
    for place, row in enumerate(frame.to_dict("records")):
        marks = {name: "*" if marked[place] else "" for name, marked in best.items()}
        padded = {
            name: marks.get(str(name), "") or (" " if str(name) in best else "")
            for name in shown
        }
        rows.append([_cell(str(name), row[name]) + padded[name] for name in shown])
    return [titles.get(str(name), str(name)) for name in shown], rows


def _cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or value != value:
        return "-"
    if name.endswith("_s"):
        return _duration(value)
    if name in ("share_of_bound", "U", "stopped_share"):
        return f"{value:.1%}"
    if name in ("fairness", "restarts_per_job"):
        return f"{value:.2f}"
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds:.1f} s"
