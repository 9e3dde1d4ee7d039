"""A comparison by virtual cluster, user, model or size of the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bft.models import InputError
from bft.replay.studies.run_tables import losses

if TYPE_CHECKING:
    import pandas as pd

SPLITS = {"vc": "vc", "user": "user", "model": "model", "size": "units_asked"}
# With more sizes than this, sizes are grouped by powers of two.
MAX_SIZES = 8
NONE = "(none)"


@dataclass(frozen=True, slots=True)
class Split:
    """The grouping of jobs in a comparison: by `vc`, `user`, `model`, `size`, or sizes up to bounds (`size:8,64`)."""

    by: str
    bounds: tuple[int, ...] = ()

    @classmethod
    def read(cls, text: str) -> Split:
        """Read a split as users write it for --split.

        Raises
        ------
        InputError
            When it is none of these, or its bounds do not rise.

        Examples
        --------
        >>> [Split.read("size:8,64").group(size) for size in (8, 9, 100)]
        ['up to 8', '9-64', 'over 64']
        """
        by, colon, bounds = text.partition(":")
        numbers = (
            [int(part) if part.strip().isdecimal() else 0 for part in bounds.split(",")]
            if colon
            else []
        )
        rising = all(low < high for low, high in pairwise([0, *numbers]))
        if by not in SPLITS or (colon and by != "size") or not rising:
            raise InputError(
                f"--split: expected one of {', '.join(SPLITS)}, or sizes such as size:8,64, not {text!r}"
            )
        return cls(by, tuple(numbers))

    def group(self, value: Any, *, coarse: bool = False) -> str:
        """The name of the group of a job; `coarse` puts sizes together by powers of two."""
        if value is None or value != value or value == "":
            return NONE
        if not self.bounds:
            return _bin(int(value)) if coarse else str(value)
        above = sum(int(value) > bound for bound in self.bounds)
        if above == len(self.bounds):
            return f"over {self.bounds[-1]}"
        low, high = self.bounds[above - 1] + 1 if above else 0, self.bounds[above]
        return f"{low}-{high}" if above else f"up to {high}"


def by_group(
    variants: Mapping[str, Sequence[pd.DataFrame]], split: str
) -> pd.DataFrame:
    """Return a table with one row per variant and group, over the jobs of all its runs (`run_tables.jobs_of`).

    Raises
    ------
    InputError
        When no job states what is asked for, or `split` is nothing that a comparison is broken down by.
    """
    import pandas as pd

    chosen = Split.read(split)
    column = SPLITS[chosen.by]
    whole = pd.concat([table for each in variants.values() for table in each])
    if whole[column].map(chosen.group).eq(NONE).all():
        raise InputError(f"--split {split}: no job states it")
    coarse = chosen.by == "size" and whole[column].nunique() > MAX_SIZES
    name = {
        value: chosen.group(value, coarse=coarse)
        for value in sorted(whole[column].dropna().unique())
    }
    names = dict.fromkeys(
        [*name.values(), *([NONE] if whole[column].isna().any() else [])]
    )
    rows = []
    for label, runs in variants.items():
        together = pd.concat(list(runs))
        groups = together[column].map(name).fillna(NONE)
        for group in names:
            rows.append(
                {
                    "variant": label,
                    chosen.by: group,
                    **_columns(together[groups == group], len(runs)),
                }
            )
    return pd.DataFrame(rows)


def _bin(size: int) -> str:
    """The power of two that stands for a size: sizes 5 to 8 are one group."""
    top = 1 << max(size - 1, 0).bit_length()
    return str(top) if top <= 2 else f"{top // 2 + 1}-{top}"


def _columns(jobs: pd.DataFrame, runs: int) -> dict[str, Any]:
    started, finished = jobs[jobs["start"].notna()], jobs[jobs["finish"].notna()]
    return {
        "jobs": len(jobs) // runs,
        "jobs_finished": len(finished) / runs,
        "outcome": float(jobs["work"].sum()) / runs,
        "losses": float(losses(jobs).sum()) / runs,
        "jct_mean_s": _of(finished["jct_s"], np.mean),
        "jct_p95_s": _of(finished["jct_s"], _p95),
        "queueing_mean_s": _of(started["queueing_s"], np.mean),
        "queueing_p95_s": _of(started["queueing_s"], _p95),
        "waiting_mean_s": _of(jobs["waiting_s"].dropna(), np.mean),
        "waiting_p999_s": _of(jobs["waiting_s"].dropna(), p999),
        "restarts_per_job": _of(started["restarts"], np.mean),
        "longest_wait_s": _of(jobs["longest_wait_s"].dropna(), np.max),
        "unit_hours": float(jobs["unit_seconds"].sum()) / 3600 / runs,
    }


def _p95(values: Any) -> Any:
    return np.percentile(values, 95)


def p999(values: Any) -> Any:
    """The value that one in a thousand exceeds."""
    return np.percentile(values, 99.9)


def _of(column: pd.Series[Any], function: Any) -> float | None:
    values = column.to_numpy(dtype=np.float64)
    return float(function(values)) if len(values) else None
