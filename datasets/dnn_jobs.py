"""Elastic training jobs: seven networks with published speeds on 1 to 64 Summit nodes."""

from __future__ import annotations

import csv
import math
from importlib import resources
from typing import Final, Literal

import pandas as pd

from bft.models.checks import utc
from bft.models.errors import InputError

UP_S: Final = (17.0, 19.0)
"""Seconds to scale up. The 1,001 published values fill this range evenly (mean 17.99; Kolmogorov-Smirnov
distance from uniform 0.020, where 0.043 would be rejected at 5 %)."""

DOWN_S: Final = (11.0, 13.0)
"""Seconds to scale down. As `UP_S`: mean 12.00, distance 0.020; uncorrelated with it (0.03)."""


def dnn_scalability() -> dict[str, dict[int, float]]:
    """Read the scalability of the seven networks.

    Returns
    -------
    dict
        By model, in the published order: nodes -> images/s, ascending, without the origin.

    Examples
    --------
    >>> rates = dnn_scalability()["ResNet18"]
    >>> rates[1] < rates[2]
    True
    """
    text = (
        resources.files("bft.datasets.data")
        .joinpath("dnn_scalability.csv")
        .read_text(encoding="utf-8")
    )
    curves: dict[str, dict[int, float]] = {}
    for row in csv.DictReader(text.splitlines()):
        curves.setdefault(row["model"], {})[int(row["units"])] = float(
            row["images_per_s"]
        )
    return curves


def generate_dnn_jobs(
    *,
    jobs: int = 1001,
    seed: int = 0,
    first_submit: str | pd.Timestamp,
    interval_s: float = 36.0,
    pmax: float = 1.3e8,
    objective: Literal["throughput", "efficiency"] = "throughput",
    jmin: int = 1,
    jmax: int = 64,
) -> pd.DataFrame:
    """Generate a job table in the native form, shaped like the published ones.

    Models take turns in the published order; jobs differ in model, scaling times and submit time.

    Parameters
    ----------
    jobs
        How many, at least 1. The published tables have 1,001.
    seed
        Seed of the scaling times: Tcup uniform on 17-19 s, Tcdw uniform on 11-13 s, independent.
    first_submit
        When the first job is submitted; UTC if it states no time zone.
    interval_s
        Seconds between one submit and the next.
    pmax
        Work of each job, in images: 1.3e8 are 100 epochs of ImageNet.
    objective
        What a policy maximises: images/s, or scaling efficiency (images/s over those of one node).
    jmin, jmax
        Smallest and largest number of units of each job.

    Returns
    -------
    pandas.DataFrame
        Columns name, model, Jmin, Jmax, Pmax (images), Tsub (datetime64[ns, UTC]), Tcup, Tcdw (s), Ns (list
        of int), Ps (list of float, images/s), Os (list of float); sorted by Tsub.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> frame = generate_dnn_jobs(jobs=3, first_submit="2021-02-10", seed=1)
    >>> frame["model"].is_unique, frame["Jmin"].tolist()
    (True, [1, 1, 1])
    """
    import numpy as np

    if jobs < 1:
        raise InputError(f"jobs is {jobs}, expected at least 1")
    if seed < 0:
        raise InputError(f"seed is {seed}, expected a non-negative integer")
    if not (math.isfinite(interval_s) and interval_s >= 0):
        raise InputError(
            f"interval_s is {interval_s}, expected a number of seconds, 0 or more"
        )
    if not (math.isfinite(pmax) and pmax > 0):
        raise InputError(f"pmax is {pmax}, expected a positive number of images")
    if not 1 <= jmin <= jmax:
        raise InputError(
            f"jmin is {jmin} and jmax is {jmax}, expected 1 <= jmin <= jmax"
        )
    if objective not in ("throughput", "efficiency"):
        raise InputError(
            f"objective is {objective!r}, expected 'throughput' or 'efficiency'"
        )
    first = utc(first_submit)

    curves = dnn_scalability()
    models = [list(curves)[i % len(curves)] for i in range(jobs)]
    rng = np.random.default_rng(seed)
    rates = {model: [0.0, *curve.values()] for model, curve in curves.items()}
    values = {
        model: rate
        if objective == "throughput"
        else [value / rate[1] for value in rate]
        for model, rate in rates.items()
    }
    return pd.DataFrame(
        {
            "name": [f"J{i:05d}-{model}" for i, model in enumerate(models)],
            "model": models,
            "Jmin": jmin,
            "Jmax": jmax,
            "Pmax": float(pmax),
            "Tsub": (
                first + pd.to_timedelta(np.arange(jobs) * interval_s, unit="s")
            ).as_unit("ns"),
            "Tcup": rng.uniform(*UP_S, size=jobs),
            "Tcdw": rng.uniform(*DOWN_S, size=jobs),
            "Ns": [[0, *curves[model]] for model in models],
            "Ps": [list(rates[model]) for model in models],
            "Os": [list(values[model]) for model in models],
        }
    )
