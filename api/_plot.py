"""A picture of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bft.models import InputError
from bft.models.extras import how_to_install
from bft.replay.report.over_time import held_over_time
from bft.replay.report.time_charts import ns

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# Of time, in the panel of jobs: as fine as a screen shows.
BINS = 600


def plotted(
    steps: pd.DataFrame, jobs: pd.DataFrame, allocations: pd.DataFrame
) -> Figure:
    """Draw two panels on one time axis: idle and used units, and how many each job held.

    Parameters
    ----------
    steps, jobs, allocations
        The tables of a run, as `Run` has them.

    Raises
    ------
    InputError
        When matplotlib is not installed, or the run has no steps.
    """
    try:
        from matplotlib.colors import LogNorm
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "a picture needs matplotlib", hint=how_to_install("report")
        ) from None

    begin = steps["time"].iloc[0]
    hours = ((steps["time"] - begin).dt.total_seconds() / 3600).to_numpy()
    figure = Figure(figsize=(9, 5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.fill_between(hours, steps["idle"], step="post", color="#d9d9d9", label="idle")
    instants, used = _used(steps, allocations)
    top.fill_between(
        instants, used, step="post", color="#1f77b4", label="given to training jobs"
    )
    top.set_ylabel("nodes")
    top.set_yscale("symlog", linthresh=10)
    top.set_ylim(0, None)
    top.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    held = _held(jobs, allocations, begin, hours[-1])
    image = bottom.imshow(
        np.where(held > 0, held, np.nan),
        aspect="auto",
        extent=(0, float(hours[-1]), len(held), 0),
        norm=LogNorm(vmin=1, vmax=max(2.0, float(held.max(initial=0)))),
        cmap="viridis_r",
        interpolation="nearest",
    )
    bottom.set_ylabel("jobs, by submission")
    bottom.set_xlabel(f"hours since {begin:%Y-%m-%d %H:%M} UTC")
    figure.colorbar(image, ax=bottom, label="nodes held")
    return figure


def _used(
    steps: pd.DataFrame, allocations: pd.DataFrame
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return hours since the first step, and the units in use from each instant to the next."""
    instants = ns(steps["time"])
    counted = [(instants, steps["used"].to_numpy(dtype=np.float64))]
    units = allocations["units"].to_numpy(dtype=np.float64)
    times, used = held_over_time(
        counted, ns(allocations["start"]), ns(allocations["end"]), units
    )
    return (times - instants[0]) / 3.6e12, used


def _held(
    jobs: pd.DataFrame, allocations: pd.DataFrame, begin: pd.Timestamp, hours: float
) -> NDArray[np.float64]:
    """Return the mean units that each job held: shape (jobs, BINS)."""
    rows = {
        name: row
        for row, name in enumerate(jobs.sort_values("submit", kind="stable").index)
    }
    start, end = (
        np.clip(
            (allocations[side] - begin).dt.total_seconds().to_numpy()
            / 3600
            / max(hours, 1e-9),
            0,
            1,
        )
        * BINS
        for side in ("start", "end")
    )
    held = np.zeros((len(rows), BINS))
    for job, first, last, units in zip(
        allocations["job"], start, end, allocations["units"], strict=True
    ):
        bins = np.arange(int(first), min(int(np.ceil(last)), BINS))
        held[rows[job], bins] += units * (
            np.minimum(bins + 1, last) - np.maximum(bins, first)
        )
    return held
