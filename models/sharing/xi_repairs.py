"""Checks of a ξ table (gaps, implausible values), the pairs to measure again, and its largest ratios."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pandas as pd

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
    frame = pd.DataFrame(rows, columns=["row", *PAIR_COLUMNS, "xi", "estimated"])
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


def grid(table: XiTable, *, by_batch: bool) -> pd.DataFrame:
    """The largest ratio of each pair of models, or of models and batch sizes, as text: victims by partners.

    An estimate has a ~ before it, an unknown ratio is "-".
    """
    sides = _sides(table)
    for end in "ab":
        batches = sides[f"batch_{end}"] if by_batch else itertools.repeat(None)
        sides[end] = list(map(label_of, sides[f"model_{end}"], batches))
    named = sides.sort_values(["model_a", "batch_a"], na_position="first")
    order = named["a"].unique().tolist()
    worst = sides.sort_values(["xi", "estimated"]).groupby(["a", "b"]).last()
    marks = worst["estimated"].map({True: "~", False: ""})
    cells: Any = marks + worst["xi"].clip(lower=1.0).map("{:.2f}".format)
    shown: pd.DataFrame = cells.unstack().reindex(index=order, columns=order)
    return shown.fillna("-")
