"""What a comparison came to: figures of its variants, and of groups of jobs under each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bft.replay.report.chart import Axis, Bars, Chart, in_powers
from bft.replay.report.job_charts import label
from bft.replay.report.run_comparison import DISTRIBUTIONS, distribution

if TYPE_CHECKING:
    import pandas as pd

HOURS = Axis("hours")
# Column of a table of a comparison -> what it is.
MEANS = {
    "jct_mean_s": "mean completion time",
    "waiting_mean_s": "mean time without units",
}


def charts_of_comparison(
    whole: pd.DataFrame,
    jobs: Mapping[str, pd.DataFrame],
    groups: pd.DataFrame | None = None,
) -> list[Chart]:
    """The charts of a comparison.

    Parameters
    ----------
    whole
        One row a variant: columns variant, outcome, jct_mean_s, waiting_mean_s.
    jobs
        What became of each job, by variant: columns jct_s, queueing_s.
    groups
        One row a variant and group: columns variant, the name of what it is broken down by, jobs and the means.
    """
    names = tuple(map(label, whole["variant"]))
    axis, power = in_powers("samples", whole["outcome"].to_numpy(dtype=np.float64))
    outcome = {"outcome": whole["outcome"].to_numpy(dtype=np.float64) / power}
    means = {what: _hours(whole[column]) for column, what in MEANS.items()}
    named = {label(name): table for name, table in jobs.items()}
    distributions = (distribution(named, column) for column in DISTRIBUTIONS)
    return [
        Chart("compared", "Outcome by variant", "", Bars(names, axis, outcome), whole),
        Chart(
            "compared-means",
            "Mean times by variant",
            "",
            Bars(names, HOURS, means),
            whole,
        ),
        *(chart for chart in distributions if chart is not None),
        *(() if groups is None else (_by_group(groups, column) for column in MEANS)),
    ]


def _by_group(groups: pd.DataFrame, column: str) -> Chart:
    """A mean of each group of jobs, a bar for each variant."""
    by = str(groups.columns[1])
    rows = groups.pivot(index=by, columns="variant", values=column)
    rows = rows.reindex(index=groups[by].unique(), columns=groups["variant"].unique())
    series = {label(name): _hours(rows[name]) for name in rows}
    key = f"compared-{column.split('_')[0]}-by-{by}"
    return Chart(
        key,
        f"{MEANS[column].capitalize()} by {by}",
        "",
        Bars(tuple(map(label, rows.index)), HOURS, series),
        groups,
    )


def _hours(seconds: pd.Series) -> np.ndarray:
    return seconds.astype(float).fillna(0.0).to_numpy() / 3600
