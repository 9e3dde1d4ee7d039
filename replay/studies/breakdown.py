"""A comparison by virtual cluster, user, model or size of the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def by_group(variants: Mapping[str, Sequence[pd.DataFrame]], split: str) -> pd.DataFrame:
    """One row per variant and group, over the jobs of all its runs, given as tables (`run_tables.jobs_of`).

    Raises
    ------
    InputError
        When no job has the attribute of the split.
    """
    import pandas as pd

    column = SPLITS[split]
    jobs_of_all = pd.concat([table for each in variants.values() for table in each])
    if jobs_of_all[column].map(_name).eq(NONE).all():
        raise InputError(f"--split {split}: no job states it")
    coarse = split == "size" and jobs_of_all[column].nunique() > MAX_SIZES
    order = _ordered(jobs_of_all[column], coarse=coarse)
    rows = []
    for label, runs in variants.items():
        named = [table.assign(group=_groups(table[column], coarse=coarse)) for table in runs]
        together = pd.concat(named)
        for group in order:
            mine = together[together["group"] == group]
            rows.append({"variant": label, split: group, **_columns(mine, len(runs))})
    return pd.DataFrame(rows)


def _groups(column: pd.Series[Any], *, coarse: bool) -> pd.Series[Any]:
    return column.map(lambda value: _bin(int(value))) if coarse else column.map(_name)


def _name(value: Any) -> str:
    return NONE if value is None or value != value or value == "" else str(value)


def _ordered(column: pd.Series[Any], *, coarse: bool) -> list[str]:
    values = sorted(column.dropna().unique())
    return list(dict.fromkeys(_bin(int(value)) if coarse else _name(value) for value in values))


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
        "restarts_per_job": _of(started["restarts"], np.mean),
        "longest_wait_s": _of(jobs["longest_wait_s"], np.max),
        "unit_hours": float(jobs["unit_seconds"].sum()) / 3600 / runs,
    }


def _p95(values: Any) -> Any:
    return np.percentile(values, 95)


def _of(column: pd.Series[Any], function: Any) -> float | None:
    values = column.to_numpy(dtype=np.float64)
    return float(function(values)) if len(values) else None
