"""A picture of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bft.models import InputError
from bft.models.plugins import how_to_install
from bft.replay.report.over_time import changes_of, held_over_time
from bft.replay.report.run_files import ns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of time, in the panel of jobs: as fine as a screen shows.
BINS = 600
# Up to so many jobs each has a line of its own colour, and its name.
FEW_LINES = 10


def plotted(
    steps: pd.DataFrame, jobs: pd.DataFrame, allocations: pd.DataFrame
) -> Figure:
    """Draw two panels on one time axis: idle and used units, and how many each job held.

    Up to ten jobs are lines with their names; more are rows of an image.

    Parameters
    ----------
    steps, jobs, allocations
        The tables of a run, as `Run` has them.

    Raises
    ------
    InputError
        When matplotlib is not installed, or the run has no steps.
    """
    figure = _figure()
    begin = steps["time"].iloc[0]
    hours = ((steps["time"] - begin).dt.total_seconds() / 3600).to_numpy()
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
    bottom.set_xlabel(f"hours since {begin:%Y-%m-%d %H:%M} UTC")
    if len(jobs) <= FEW_LINES:
        _lines(bottom, jobs, allocations, begin, hours[-1])
    else:
        _rows(figure, bottom, jobs, allocations, begin, hours[-1])
    return figure


def plotted_comparison(
    whole: pd.DataFrame, jobs: Mapping[str, Sequence[pd.DataFrame]]
) -> Figure:
    """Draw the outcome of each variant, and the share of all submitted jobs that were done within so many hours.

    Parameters
    ----------
    whole
        One row per variant, with the columns variant and outcome.
    jobs
        By variant the tables of jobs of its runs, with the column jct_s, which is missing for jobs not done.

    Raises
    ------
    InputError
        When matplotlib is not installed.
    """
    figure = _figure()
    left, right = figure.subplots(1, 2)
    left.barh(whole["variant"], whole["outcome"], color="#1f77b4")
    left.invert_yaxis()
    left.set_xlabel("outcome, samples")
    for label, tables in jobs.items():
        times = np.concatenate([table["jct_s"].to_numpy() for table in tables]) / 3600
        done = np.sort(times[~np.isnan(times)])
        shares = np.arange(len(done) + 1) / max(len(times), 1)
        right.step([0.0, *done], shares, where="post", label=label)
    right.set_ylim(0, 1.02)
    right.set_xlabel("hours from submission to finish")
    right.set_ylabel("share of all submitted jobs")
    right.legend(frameon=False)
    return figure


def _figure() -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "a picture needs matplotlib", hint=how_to_install("report")
        ) from None
    return Figure(figsize=(9, 5), layout="constrained")


def _lines(
    axes: Axes,
    jobs: pd.DataFrame,
    allocations: pd.DataFrame,
    begin: pd.Timestamp,
    hours: float,
) -> None:
    """Draw how many units each job held, a line with its name for each."""
    no_limit = np.array([begin.value]), np.array([np.inf])
    for name in jobs.sort_values("submit", kind="stable").index:
        own = allocations[allocations["job"] == name]
        start, end = ns(own["start"]), ns(own["end"])
        units = own["units"].to_numpy(dtype=np.float64)
        times, held = held_over_time([no_limit], *changes_of(start, end, units))
        instants = [0.0, *((times - begin.value) / 3.6e12), hours]
        axes.step(instants, [0.0, *held, 0.0], where="post", label=str(name))
    axes.set_ylabel("nodes held")
    axes.set_ylim(0, None)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def _rows(
    figure: Figure,
    axes: Axes,
    jobs: pd.DataFrame,
    allocations: pd.DataFrame,
    begin: pd.Timestamp,
    hours: float,
) -> None:
    """Draw how many units each job held, a row of an image for each."""
    from matplotlib.colors import LogNorm

    held = _held(jobs, allocations, begin, hours)
    image = axes.imshow(
        np.where(held > 0, held, np.nan),
        aspect="auto",
        extent=(0, float(hours), len(held), 0),
        norm=LogNorm(vmin=1, vmax=max(2.0, float(held.max(initial=0)))),
        cmap="viridis_r",
        interpolation="nearest",
    )
    axes.set_ylabel("jobs, by submission")
    figure.colorbar(image, ax=axes, label="nodes held")


def _used(
    steps: pd.DataFrame, allocations: pd.DataFrame
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return hours since the first step, and the units in use from each instant to the next."""
    instants = ns(steps["time"])
    counted = [(instants, steps["used"].to_numpy(dtype=np.float64))]
    units = allocations["units"].to_numpy(dtype=np.float64)
    changes = changes_of(ns(allocations["start"]), ns(allocations["end"]), units)
    times, used = held_over_time(counted, *changes)
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
