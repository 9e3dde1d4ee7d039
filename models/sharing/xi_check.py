"""Checks of a ξ table: its content, gaps, and implausible values."""

from __future__ import annotations

import itertools
from typing import Any

from bft.models import XiTable
from bft.models.sharing.xi_table import Measurement

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
    ratios_of: dict[tuple[object, ...], list[float]] = {}
    high = []
    for row in table.measurements:
        for side in (row, row.swapped()):
            place = (side.model_a, side.batch_a, side.model_b, side.batch_b, side.units)
            ratios_of.setdefault(place, []).append(max(side.xi_a, 1.0))
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
            "victim": label_of(str(model_a), batch_a),
            "partner": label_of(str(model_b), batch_b),
            "units": units,
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
