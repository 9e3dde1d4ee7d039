"""Draw the README's picture from a run directory: `python docs/picture.py demo-itrOut docs/demo.png`."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd


def main(run: Path, picture: Path) -> None:
    """Two panels on one time axis: idle and used nodes, and who held them."""
    steps = pd.read_parquet(run / "steps.parquet")
    held = pd.read_parquet(run / "allocations.parquet")
    jobs = pd.read_parquet(run / "jobs.parquet")
    hours = (steps["time"] - steps["time"].iloc[0]).dt.total_seconds() / 3600
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 5), sharex=True, height_ratios=(1, 1), layout="constrained")
    top.fill_between(hours, steps["idle"], step="post", color="#d9d9d9", label="idle")
    top.fill_between(hours, steps["used"], step="post", color="#1f77b4", label="given to training jobs")
    top.set_ylabel("nodes")
    top.set_yscale("symlog", linthresh=10)
    top.set_ylim(0, None)
    top.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    order = {name: row for row, name in enumerate(jobs["name"])}
    start = (held["start"] - steps["time"].iloc[0]).dt.total_seconds() / 3600
    end = (held["end"] - steps["time"].iloc[0]).dt.total_seconds() / 3600
    width = held["last_unit"] - held["first_unit"] + 1
    rows = held["job"].astype(str).map(order)
    # One band a job; its darkness is how many nodes the job held.
    bins = np.linspace(0, hours.iloc[-1], 600)
    units = np.zeros((len(order), len(bins) - 1))
    for row, begin, finish, count in zip(rows, start, end, width, strict=True):
        first, last = np.searchsorted(bins, [begin, finish], side="right") - 1
        edges = np.clip([begin, finish], bins[0], bins[-1])
        if first >= last:
            units[row, min(first, units.shape[1] - 1)] += count * (edges[1] - edges[0]) / (bins[1] - bins[0])
            continue
        units[row, first] += count * (bins[first + 1] - edges[0]) / (bins[1] - bins[0])
        units[row, first + 1 : last] += count
        if last < units.shape[1]:
            units[row, last] += count * (edges[1] - bins[last]) / (bins[1] - bins[0])
    image = bottom.imshow(
        np.where(units > 0, units, np.nan),
        aspect="auto",
        extent=(0, hours.iloc[-1], len(order), 0),
        norm=mpl.colors.LogNorm(vmin=1, vmax=64),
        cmap="viridis_r",
        interpolation="nearest",
    )
    bottom.set_ylabel("jobs, by submission")
    bottom.set_xlabel("hours")
    figure.colorbar(image, ax=bottom, label="nodes held", ticks=[1, 4, 16, 64], format="%d")
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
