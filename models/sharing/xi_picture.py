"""Heat map of a ξ table: victims in rows, partners in columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bft.models import InputError, XiTable
from bft.models.extras import how_to_install
from bft.models.sharing.xi_check import label
from bft.models.sharing.xi_table import FLAGS

# Sharing pays for equal jobs when both ratios are below 1.5 (docs: sjf-bsbf); 2 is as slow as taking turns.
PAYS, TURNS = 1.5, 2.0
# Up to this many columns the numbers in the cells are legible.
MAX_NUMBERS = 24


@dataclass(frozen=True, slots=True)
class Grid:
    """Ratios (n, n), NaN where unknown, of the victim in the row with the partner in the column; and their names."""

    names: tuple[str, ...]
    ratios: NDArray[np.float64]
    estimated: NDArray[np.bool_]


def grid(table: XiTable, *, by_batch: bool) -> Grid:
    """The largest ratio of each pair of models, or of models and batch sizes."""
    cells: dict[tuple[str, str], tuple[float, bool]] = {}
    for row in table.measurements:
        for side in (row, row.swapped()):
            pair = (
                (label(side, "a"), label(side, "b"))
                if by_batch
                else (side.model_a, side.model_b)
            )
            cell = max(side.xi_a, 1.0), side.flag != FLAGS[0]
            cells[pair] = max(cell, cells.get(pair, cell))
    if by_batch:
        kinds = {
            (m, b)
            for row in table.measurements
            for m, b in ((row.model_a, row.batch_a), (row.model_b, row.batch_b))
        }
        ordered = sorted(kinds, key=lambda kind: (kind[0], kind[1] or 0.0))
        names = tuple(
            model if batch is None else f"{model}@{batch:g}" for model, batch in ordered
        )
    else:
        names = tuple(sorted({name for pair in cells for name in pair}))
    positions = {name: index for index, name in enumerate(names)}
    ratios = np.full((len(names), len(names)), np.nan)
    estimated = np.zeros(ratios.shape, dtype=np.bool_)
    for (victim, partner), (xi, guessed) in cells.items():
        ratios[positions[victim], positions[partner]] = xi
        estimated[positions[victim], positions[partner]] = guessed
    return Grid(names, ratios, estimated)


def write_png(shown: Grid, path: Path) -> None:
    """Draw a grid with matplotlib; the same grid gives the same bytes.

    Raises
    ------
    InputError
        When matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "a picture needs matplotlib", hint=how_to_install("report")
        ) from None

    count = len(shown.names)
    side = max(4.0, 0.5 * count if count <= MAX_NUMBERS else 0.22 * count)
    figure = Figure(figsize=(side + 2.5, side + 1.2), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_facecolor("0.88")
    known = shown.ratios[~np.isnan(shown.ratios)]
    limit = max(TURNS, float(known.max())) if len(known) else TURNS
    image = axes.imshow(shown.ratios, vmin=1.0, vmax=limit, cmap="YlOrRd")
    small = 8 if count <= MAX_NUMBERS else 6
    axes.set_xticks(range(count), shown.names, rotation=90, fontsize=small)
    axes.set_yticks(range(count), shown.names, fontsize=small)
    axes.set_xlabel("beside")
    axes.set_ylabel("an iteration of")
    if count <= MAX_NUMBERS:
        for (row, column), xi in np.ndenumerate(shown.ratios):
            if not np.isnan(xi):
                text = f"{'~' if shown.estimated[row, column] else ''}{xi:.2f}"
                bright = (xi - 1) / (limit - 1) < 0.6
                axes.text(
                    column,
                    row,
                    text,
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="black" if bright else "white",
                )
    notes = ["~ estimated"] * bool(shown.estimated.any()) + ["grey: not known"] * bool(
        np.isnan(shown.ratios).any()
    )
    axes.set_title(
        "; ".join(["ξ: takes so many times as long", *notes]), fontsize=10, loc="left"
    )
    figure.colorbar(image, ax=axes, shrink=0.7, label="ξ")
    figure.savefig(path, format="png", metadata={"Software": None})
