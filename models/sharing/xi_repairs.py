"""Checks of a ξ table (gaps, implausible values), its picture, and the repair of rows by measuring them again."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models.cells import Rows
from bft.models.errors import InputError
from bft.models.plugins import extra
from bft.models.sharing.xi_table import (
    FLAGS,
    OPTIONAL,
    REQUIRED,
    Measurement,
    Place,
    XiTable,
    measurement,
)

# Ratios of one pair that differ by more than this are reported: repetitions of a measurement rarely do.
ALIKE = 0.1


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
        of models, asymmetric (ratios of the same victim and partner that differ by more than ALIKE, from both sides or
        repeated) and implausible.
    """
    models = sorted(
        {name for row in table.measurements for name in (row.model_a, row.model_b)}
    )
    configurations = {
        kind
        for row in table.measurements
        for kind in ((row.model_a, row.batch_a), (row.model_b, row.batch_b))
    }
    measured = {frozenset((row.model_a, row.model_b)) for row in table.measurements}
    possible = list(itertools.combinations_with_replacement(models, 2))
    ratios_of: dict[Place, list[float]] = {}
    high = []
    for row in table.measurements:
        for side in (row, row.swapped()):
            ratios_of.setdefault(side.place, []).append(max(side.xi_a, 1.0))
            if side.xi_a > implausible:
                high.append(
                    {
                        "victim": label(side, "a"),
                        "partner": label(side, "b"),
                        "xi": side.xi_a,
                    }
                )
    asymmetric = [
        {
            "victim": label_of(model_a, batch_a or None),
            "partner": label_of(model_b, batch_b or None),
            "units": units or None,
            "least": min(ratios),
            "most": max(ratios),
        }
        for (model_a, batch_a, model_b, batch_b, units), ratios in ratios_of.items()
        if max(ratios) > (1 + ALIKE) * min(ratios)
    ]
    return {
        "rows": len(table.measurements),
        "estimated": table.estimated,
        "clipped": table.clipped,
        "models": len(models),
        "configurations": len(configurations),
        "pairs": len(measured),
        "possible_pairs": len(possible),
        "missing_pairs": [
            list(pair) for pair in possible if frozenset(pair) not in measured
        ],
        "asymmetric": asymmetric,
        "implausible": high,
    }


def label(row: Measurement, side: str) -> str:
    """A side of a row by its model and, where stated, batch size."""
    return label_of(getattr(row, f"model_{side}"), getattr(row, f"batch_{side}"))


def label_of(model: str, batch: object) -> str:
    """Return the label of a configuration, such as bert@32."""
    return model if batch is None else f"{model}@{batch:g}"


# Columns that identify a pair.
PAIR_COLUMNS = ("model_a", "batch_a", "model_b", "batch_b", "units")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row that deserves another measurement.

    Parameters
    ----------
    row
        Of the table, data rows from 1.
    pair
        The measurement to check.
    reason
        Why, in words.
    """

    row: int
    pair: Measurement
    reason: str


def suspects(table: XiTable, implausible: float) -> list[Suspect]:
    """Measured rows with a ratio below 1 or above `implausible`, or that differ from their repetitions by over 10 %.

    Examples
    --------
    >>> table = XiTable([Measurement("a", "b", 0.9, 1.1), Measurement("a", "c", 1.2, 7.0)])
    >>> for suspect in suspects(table, 5.0):
    ...     print(suspect.row, suspect.reason)
    1 xi of a beside b is 0.9, below 1
    2 xi of c beside a is 7, above 5
    """
    repeated: dict[Place, list[tuple[int, float]]] = {}
    reasons: dict[int, list[str]] = {}
    measured = [
        (number, row)
        for number, row in enumerate(table.measurements, start=1)
        if row.flag == FLAGS[0]
    ]
    for number, row in measured:
        for side in (row, row.swapped()):
            reason = (
                f"xi of {label(side, 'a')} beside {label(side, 'b')} is {side.xi_a:g}"
            )
            if side.xi_a < 1:
                reasons.setdefault(number, []).append(f"{reason}, below 1")
            elif side.xi_a > implausible:
                reasons.setdefault(number, []).append(
                    f"{reason}, above {implausible:g}"
                )
            repeated.setdefault(side.place, []).append((number, max(side.xi_a, 1.0)))
    for place, ratios in repeated.items():
        low, high = min(ratio for _, ratio in ratios), max(ratio for _, ratio in ratios)
        if high > (1 + ALIKE) * low:
            for number in dict.fromkeys(number for number, _ in ratios):
                reason = f"xi of {place[0]} beside {place[2]} was measured from {low:.3g} to {high:.3g}"
                reasons.setdefault(number, []).append(reason)
    return [
        Suspect(number, row, "; ".join(reasons[number]))
        for number, row in measured
        if number in reasons
    ]


def retest_frame(found: Sequence[Suspect]) -> pd.DataFrame:
    """A table of pairs to measure again, for `bft-replay xi collect --pairs`: one row a pair, with row and reason."""
    by_pair: dict[Hashable, Suspect] = {}
    for suspect in found:
        by_pair.setdefault(pair_key(suspect.pair), suspect)
    columns = [*PAIR_COLUMNS, "row", "reason"]
    rows = [
        {
            **{name: getattr(each.pair, name) for name in PAIR_COLUMNS},
            "row": each.row,
            "reason": each.reason,
        }
        for each in by_pair.values()
    ]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.drop(columns=[name for name in OPTIONAL if frame[name].isna().all()])


def pair_key(row: Measurement) -> Place:
    """The key of repeated measurements: models and batch sizes, in either order, and units; 0 where not stated."""
    return min(row.place, row.swapped().place)


@dataclass(frozen=True, slots=True)
class Merged:
    """A ξ table with rows replaced: the table, and how many rows went and came."""

    frame: pd.DataFrame
    replaced: int
    added: int


def merge_xi(
    old: pd.DataFrame, new: pd.DataFrame, *, old_source: str = "", new_source: str = ""
) -> Merged:
    """The old table, with the rows of each pair that the new one holds too replaced by those.

    The same pair the other way round counts as the same. Other rows and columns stay; new pairs follow at the end.

    Raises
    ------
    InputError
        When one of them is not a ξ table, or the new one holds estimates: these do not replace measurements.

    Examples
    --------
    >>> import pandas as pd
    >>> old = pd.DataFrame({"model_a": ["a", "a"], "model_b": ["b", "c"], "xi_a": [0.9, 1.2], "xi_b": [1.1, 1.3]})
    >>> again = pd.DataFrame({"model_a": ["b"], "model_b": ["a"], "xi_a": [1.15], "xi_b": [1.05]})
    >>> merge_xi(old, again).frame.to_dict("list")["xi_a"]
    [1.15, 1.2]
    """
    keys = [
        [pair_key(row) for row in _rows(frame, source)]
        for frame, source in ((old, old_source), (new, new_source))
    ]
    estimated = next(
        (n for n, row in enumerate(_rows(new, new_source), 1) if row.flag != FLAGS[0]),
        None,
    )
    if estimated is not None:
        raise InputError(
            "an estimate replaces no measurement",
            file=new_source or None,
            row=estimated,
            column="flag",
        )
    fresh: dict[Hashable, list[dict[Hashable, object]]] = {}
    for key, record in zip(keys[1], new.to_dict(orient="records"), strict=True):
        fresh.setdefault(key, []).append(record)
    records, replaced = [], 0
    put: set[Hashable] = set()
    for key, record in zip(keys[0], old.to_dict(orient="records"), strict=True):
        if key not in fresh:
            records.append(record)
            continue
        replaced += 1
        if key not in put:  # where the first of the old rows stood
            records += fresh[key]
            put.add(key)
    added = [record for key, rows in fresh.items() if key not in put for record in rows]
    columns = list(dict.fromkeys([*old.columns, *new.columns]))
    return Merged(
        pd.DataFrame([*records, *added], columns=columns), replaced, len(added)
    )


def _rows(frame: pd.DataFrame, source: str) -> list[Measurement]:
    return [measurement(row) for row in Rows(frame, source).require(REQUIRED, OPTIONAL)]


# Sharing pays for equal jobs when both ratios are below 1.5 (docs: sjf-bsbf); 2 is as slow as taking turns.
PAYS, TURNS = 1.5, 2.0
# Up to this many columns the numbers in the cells are legible.
MAX_NUMBERS = 24


# A model, and its batch size where that tells rows apart.
_Kind: TypeAlias = tuple[str, float | None]


@dataclass(frozen=True, slots=True)
class Grid:
    """Ratios (n, n), NaN where unknown, of the victim in the row with the partner in the column; and their names."""

    names: tuple[str, ...]
    ratios: NDArray[np.float64]
    estimated: NDArray[np.bool_]


def grid(table: XiTable, *, by_batch: bool) -> Grid:
    """The largest ratio of each pair of models, or of models and batch sizes."""
    cells: dict[tuple[_Kind, _Kind], tuple[float, bool]] = {}
    for row in table.measurements:
        for side in (row, row.swapped()):
            victim, partner = (
                (model, batch if by_batch else None)
                for model, batch in (
                    (side.model_a, side.batch_a),
                    (side.model_b, side.batch_b),
                )
            )
            cell = max(side.xi_a, 1.0), side.flag != FLAGS[0]
            cells[victim, partner] = max(cell, cells.get((victim, partner), cell))
    kinds = sorted(
        {victim for victim, _ in cells}, key=lambda kind: (kind[0], kind[1] or 0.0)
    )
    names = tuple(label_of(*kind) for kind in kinds)
    positions = {kind: index for index, kind in enumerate(kinds)}
    ratios = np.full((len(names), len(names)), np.nan)
    estimated = np.zeros(ratios.shape, dtype=np.bool_)
    for pair, (xi, guessed) in cells.items():
        at = positions[pair[0]], positions[pair[1]]
        ratios[at], estimated[at] = xi, guessed
    return Grid(names, ratios, estimated)


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
