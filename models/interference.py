"""ξ: how much two jobs slow each other down when they share units (DESIGN §4, ξ table)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bft.models.errors import InputError
from bft.models.jobs import Job
from bft.models.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("model_a", "model_b", "xi_a", "xi_b")
OPTIONAL = ("batch_a", "batch_b", "units")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Two models measured together: an iteration of a takes xi_a times as long beside b, one of b xi_b times."""

    model_a: str
    model_b: str
    xi_a: float
    xi_b: float
    batch_a: float | None = None
    batch_b: float | None = None
    units: float | None = None

    def swapped(self) -> Measurement:
        """The same measurement, told from b's side."""
        return Measurement(self.model_b, self.model_a, self.xi_b, self.xi_a, self.batch_b, self.batch_a, self.units)


class XiTable:
    """Measured interference ratios, asked by pairs of jobs.

    Parameters
    ----------
    measurements
        Each says nothing about batch sizes where it has none: it then serves any. Ratios below 1 are noise and count
        as 1.

    Attributes
    ----------
    clipped
        How many ratios were below 1.
    """

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self.clipped = 0
        self._rows: dict[tuple[str, str], list[Measurement]] = {}
        for row in measurements:
            self.clipped += (row.xi_a < 1) + (row.xi_b < 1)
            for told in (row, row.swapped()):
                self._rows.setdefault((told.model_a, told.model_b), []).append(told)

    def __len__(self) -> int:
        return len(self._rows)

    def xi(self, a: Job, b: Job) -> tuple[float, float] | None:
        """Ratios (xi_a, xi_b) of two jobs by their models and batch sizes, None when they were never measured.

        Where several rows fit (other unit counts, a batch size that the job does not state), the largest ratios
        count: a decision should not hope.
        """
        rows = [
            row
            for row in self._rows.get((a.model, b.model), ())
            if _fits(row.batch_a, a.batch_size) and _fits(row.batch_b, b.batch_size)
        ]
        if not rows:
            return None
        return max(1.0, *(row.xi_a for row in rows)), max(1.0, *(row.xi_b for row in rows))


def read_xi(path: str | Path) -> XiTable:
    """Read a ξ table: columns model_a, model_b, xi_a, xi_b, and optionally batch_a, batch_b, units.

    Raises
    ------
    InputError
        Naming file, row and column, for ratios that are no positive finite numbers among others.
    """
    return xi_from_frame(read_table(path), source=str(path))


def xi_from_frame(frame: pd.DataFrame, *, source: str = "") -> XiTable:
    """Make a ξ table from a frame; see `read_xi`."""
    missing = [column for column in REQUIRED if column not in frame.columns]
    if missing:
        raise InputError(
            f"missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; a xi table has "
            f"{', '.join(REQUIRED)} and optionally {', '.join(OPTIONAL)}",
            file=source or None,
        )
    if not len(frame):
        raise InputError("the xi table is empty", file=source or None)

    def number(value: Any, row: int, column: str) -> float:
        try:
            result = float(value)
        except (TypeError, ValueError):
            result = math.nan
        if not (math.isfinite(result) and result > 0):
            raise InputError(f"expected a number > 0, not {value!r}", file=source or None, row=row, column=column)
        return result

    def given(value: Any) -> bool:
        return value is not None and value == value and value != ""

    rows = []
    for at, record in enumerate(frame.to_dict(orient="records"), start=1):
        optional = {
            column: number(record[column], at, column) if column in record and given(record[column]) else None
            for column in OPTIONAL
        }
        for column in ("model_a", "model_b"):
            if not given(record[column]):
                raise InputError("expected the name of a model", file=source or None, row=at, column=column)
        rows.append(
            Measurement(
                str(record["model_a"]),
                str(record["model_b"]),
                number(record["xi_a"], at, "xi_a"),
                number(record["xi_b"], at, "xi_b"),
                **optional,
            )
        )
    return XiTable(rows)


def _fits(measured: float | None, of_job: float | None) -> bool:
    return measured is None or of_job is None or measured == of_job
