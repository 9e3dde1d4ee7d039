"""Checks of a ξ table (gaps, implausible values), the pairs to measure again, and its picture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.plugins import extra
from bft.models.sharing.xi_table import FLAGS, OPTIONAL, XiTable

# Ratios of one pair that differ by more than this are reported: repetitions of a measurement rarely do.
ALIKE = 0.1
# Columns that identify a pair.
PAIR_COLUMNS = ("model_a", "batch_a", "model_b", "batch_b", "units")


def label_of(model: str, batch: float | None) -> str:
    """Return the label of a configuration, such as bert@32."""
    return model if batch is None or pd.isna(batch) else f"{model}@{batch:g}"


def _sides(table: XiTable) -> pd.DataFrame:
    """Both sides of each row: its number from 1, victim and partner, the victim's ratio, whether it is an estimate."""
    rows = [
        (number, side.model_a, side.batch_a, side.model_b, side.batch_b, side.units, side.xi_a, side.flag != FLAGS[0])
        for number, row in enumerate(table.measurements, start=1)
        for side in (row, row.swapped())
    ]  # fmt: skip
    columns = ["row", *PAIR_COLUMNS, "xi", "estimated"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype(dict.fromkeys(("batch_a", "batch_b", "units"), float))


def check_xi(table: XiTable, implausible: float) -> dict[str, Any]:
    """Findings, ready for JSON.

    Parameters
    ----------
    table
        The table to check.
    implausible
        Ratios above it are named: two jobs that only take turns slow down twofold.

    Returns
    -------
    dict
        Counts: rows, estimated (by flag), clipped, models, configurations, pairs, possible_pairs; lists: missing_pairs
        of models, of what was measured asymmetric (ratios of the same victim and partner that differ by more than
        ALIKE, from both sides or repeated) and implausible, and retest (each row with one of these or a ratio below 1,
        and the reason).

    Examples
    --------
    >>> from bft.models.sharing.xi_table import Measurement
    >>> table = XiTable([Measurement("a", "b", 0.9, 1.1), Measurement("a", "c", 1.2, 7.0)])
    >>> for suspect in check_xi(table, 5.0)["retest"]:
    ...     print(suspect["row"], suspect["reason"])
    1 xi of a beside b is 0.9, below 1
    2 xi of c beside a is 7, above 5
    """
    sides = _sides(table)
    measured = sides[~sides["estimated"]]
    pairs = set(map(frozenset, zip(sides["model_a"], sides["model_b"], strict=True)))
    models = sorted(sides["model_a"].unique())
    possible = list(itertools.combinations_with_replacement(models, 2))
    reasons: dict[int, list[str]] = {}
    high = []
    side: Any
    for side in measured.itertuples():
        victim = label_of(side.model_a, side.batch_a)
        partner = label_of(side.model_b, side.batch_b)
        reason = f"xi of {victim} beside {partner} is {side.xi:g}"
        if side.xi < 1:
            reasons.setdefault(side.row, []).append(f"{reason}, below 1")
        elif side.xi > implausible:
            reasons.setdefault(side.row, []).append(f"{reason}, above {implausible:g}")
            high.append({"victim": victim, "partner": partner, "xi": side.xi})
    asymmetric = []
    key: Any
    for key, group in measured.groupby(list(PAIR_COLUMNS), dropna=False, sort=False):
        model_a, batch_a, model_b, batch_b, units = key
        ratios = group["xi"].clip(lower=1.0)
        low, most = float(ratios.min()), float(ratios.max())
        if most <= (1 + ALIKE) * low:
            continue
        found = {
            "victim": label_of(model_a, batch_a),
            "partner": label_of(model_b, batch_b),
            "units": None if pd.isna(units) else units,
            "least": low,
            "most": most,
        }
        asymmetric.append(found)
        for row in group["row"].unique():
            reason = f"xi of {model_a} beside {model_b} was measured from {low:.3g} to {most:.3g}"
            reasons.setdefault(row, []).append(reason)
    return {
        "rows": len(table.measurements),
        "estimated": table.estimated,
        "clipped": table.clipped,
        "models": len(models),
        "configurations": len(sides[["model_a", "batch_a"]].drop_duplicates()),
        "pairs": len(pairs),
        "possible_pairs": len(possible),
        "missing_pairs": [
            list(each) for each in possible if frozenset(each) not in pairs
        ],
        "asymmetric": asymmetric,
        "implausible": high,
        "retest": [
            {"row": int(row), "reason": "; ".join(reasons[row])}
            for row in sorted(reasons)
        ],
    }


def retest_frame(table: XiTable, found: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """A table of pairs to measure again, for `bft-replay xi collect --pairs`: one row a pair, with row and reason."""
    rows: dict[object, dict[str, Any]] = {}
    for suspect in found:
        pair = table.measurements[suspect["row"] - 1]
        names = {name: getattr(pair, name) for name in PAIR_COLUMNS}
        rows.setdefault(min(pair.place, pair.swapped().place), {**names, **suspect})
    frame = pd.DataFrame(list(rows.values()), columns=[*PAIR_COLUMNS, "row", "reason"])
    return frame.drop(columns=[name for name in OPTIONAL if frame[name].isna().all()])


# As slow as taking turns.
TURNS = 2.0
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
    sides = _sides(table)
    for end in "ab":
        batches = sides[f"batch_{end}"] if by_batch else itertools.repeat(None)
        sides[end] = list(map(label_of, sides[f"model_{end}"], batches))
    named = sides.sort_values(["model_a", "batch_a"], na_position="first")
    order = named["a"].unique().tolist()
    cells = sides.sort_values(["xi", "estimated"]).groupby(["a", "b"])[
        ["xi", "estimated"]
    ]
    worst: Any = cells.last().unstack().reindex(index=order)
    ratios = worst["xi"].reindex(columns=order).clip(lower=1.0)
    estimated = worst["estimated"].reindex(columns=order).fillna(False).astype(bool)
    return Grid(tuple(order), ratios.to_numpy(dtype=float), estimated.to_numpy())


def write_png(shown: Grid, path: Path) -> None:
    """Draw a grid with matplotlib; the same grid gives the same bytes.

    Raises
    ------
    InputError
        When matplotlib is not installed.
    """
    agg = extra("matplotlib.backends.backend_agg", "report")
    figures = extra("matplotlib.figure", "report")
    count = len(shown.names)
    side = max(4.0, 0.5 * count if count <= MAX_NUMBERS else 0.22 * count)
    figure = figures.Figure(
        figsize=(side + 2.5, side + 1.2), dpi=100, layout="constrained"
    )
    agg.FigureCanvasAgg(figure)
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
