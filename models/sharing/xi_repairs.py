"""Rows of a ξ table to measure again, and their replacement by what was measured then."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bft.models.cells import Rows
from bft.models.errors import InputError
from bft.models.sharing.xi_check import ALIKE, label
from bft.models.sharing.xi_table import (
    FLAGS,
    OPTIONAL,
    REQUIRED,
    Measurement,
    XiTable,
    measurement,
)

if TYPE_CHECKING:
    import pandas as pd

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
    repeated: dict[tuple[Any, ...], list[tuple[int, float]]] = {}
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
            place = (side.model_a, side.batch_a, side.model_b, side.batch_b, side.units)
            repeated.setdefault(place, []).append((number, max(side.xi_a, 1.0)))
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
    import pandas as pd

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


def pair_key(row: Measurement) -> tuple[tuple[str, float], tuple[str, float], float]:
    """The key of repeated measurements: models and batch sizes, in either order, and units; 0 where not stated."""
    sides = sorted(
        [(row.model_a, row.batch_a or 0.0), (row.model_b, row.batch_b or 0.0)]
    )
    return sides[0], sides[1], row.units or 0.0


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
    import pandas as pd

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
