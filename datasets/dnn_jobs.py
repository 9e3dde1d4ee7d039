"""Elastic training jobs: networks with published speeds on 1 to 64 Summit nodes, as a mix or as another scenario."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bft.models.checks import utc
from bft.models.errors import InputError

# The jobs of each scenario: arguments of `generate_dnn_jobs`, the network whose curve all have (none: seven in turn),
# ranges of columns, and the options with which they are replayed.
SCENARIOS: Mapping[str, Mapping[str, Any]] = {
    # Each range of seconds is filled evenly by the 1,001 published values (means 17.99 and 12.00; Kolmogorov-Smirnov
    # distance from uniform 0.020, where 0.043 would be rejected at 5 %), uncorrelated (0.03).
    "mix": {
        "jobs": 1001, "interval_s": 36.0, "pmax": 1.3e8, "jmin": 1, "model": "",
        "Tcup": (17.0, 19.0), "Tcdw": (11.0, 13.0), "replay": "",
    },
    # Trials are identical: the means of the published times.
    "hpo": {
        "jobs": 100, "interval_s": 0.0, "pmax": 1.3e8, "jmin": 1, "model": "ShuffleNet",
        "Tcup": (18.0, 18.0), "Tcdw": (12.0, 12.0), "replay": "--workload hpo",
    },
    "nas": {
        "jobs": 20, "interval_s": 0.0, "pmax": 1.3e8, "jmin": 1, "model": "MnasNet",
        "Tcup": (18.0, 18.0), "Tcdw": (12.0, 12.0), "replay": "--workload nas",
    },
    # The start-up of a large model takes seconds as published; its checkpoint takes minutes, as published, whose range
    # is our assumption.
    "llm": {
        "jobs": 5, "interval_s": 3600.0, "pmax": 2e9, "jmin": 8, "model": "VGG16",
        "Tcup": (139.0, 323.0), "Tcdw": (60.0, 300.0), "replay": "--cost-model stall",
    },
}  # fmt: skip


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
    path = Path(__file__).with_name("data") / "dnn_scalability.csv"
    curves: dict[str, dict[int, float]] = {}
    for row in csv.DictReader(path.read_text("utf-8").splitlines()):
        curve = curves.setdefault(row["model"], {})
        curve[int(row["units"])] = float(row["images_per_s"])
    return curves


def generate_dnn_jobs(
    scenario: Literal["mix", "hpo", "nas", "llm"] = "mix",
    *,
    first_submit: str | pd.Timestamp,
    jobs: int | None = None,
    seed: int = 0,
    interval_s: float | None = None,
    pmax: float | None = None,
    objective: Literal["throughput", "efficiency"] = "throughput",
    jmin: int | None = None,
    jmax: int = 64,
    model: str | None = None,
    curve: Mapping[int, float] | None = None,
) -> pd.DataFrame:
    """Generate a job table in the native form; by default it is shaped like the published ones.

    Parameters
    ----------
    scenario
        `mix`: models take turns in the published order; jobs differ in model, scaling times and submit time. `hpo`:
        identical trials of one training, for `--workload hpo`. `nas`: a first generation, for `--workload nas`. `llm`:
        few wide jobs that take minutes to start and to save; the curve that scales best stands for theirs.
    first_submit
        When the first job is submitted; UTC if it states no time zone.
    jobs
        How many, at least 1; None, here and below: as the scenario has it (`SCENARIOS`). The published tables have
        1,001.
    seed
        Seed of the scaling times: independent, Tcup uniform on 17-19 s, Tcdw uniform on 11-13 s in a mix.
    interval_s
        Seconds between one submit and the next.
    pmax
        Work of each job, in images: 1.3e8 are 100 epochs of ImageNet.
    objective
        What a policy maximises: images/s, or scaling efficiency (images/s over those of one node).
    jmin, jmax
        Smallest and largest number of units of each job.
    model
        The network whose curve all jobs have: one of the seven, or the name of the one that `curve` describes.
    curve
        Units -> samples/s of all jobs, instead of a network's.

    Returns
    -------
    pandas.DataFrame
        Columns name, model, Jmin, Jmax, Pmax (images), Tsub (datetime64[ns, UTC]), Tcup, Tcdw (s), Ns (list
        of int), Ps (list of float, images/s), Os (list of float); of large models also sizes (list of int). Sorted by
        Tsub.

    Raises
    ------
    InputError
        If a parameter is out of range, or there is no such network.

    Examples
    --------
    >>> frame = generate_dnn_jobs(jobs=3, first_submit="2021-02-10", seed=1)
    >>> frame["model"].is_unique, frame["Jmin"].tolist()
    (True, [1, 1, 1])
    >>> trials = generate_dnn_jobs("hpo", jobs=3, first_submit="2021-02-10")
    >>> trials["name"].tolist(), trials["Tsub"].nunique()
    (['J00000-ShuffleNet', 'J00001-ShuffleNet', 'J00002-ShuffleNet'], 1)
    """
    own = SCENARIOS[scenario]
    jobs = own["jobs"] if jobs is None else jobs
    interval_s = own["interval_s"] if interval_s is None else interval_s
    pmax = own["pmax"] if pmax is None else pmax
    jmin = own["jmin"] if jmin is None else jmin
    for name, value, fits, expected in (
        ("jobs", jobs, jobs >= 1, "at least 1"),
        ("seed", seed, seed >= 0, "a non-negative integer"),
        ("interval_s", interval_s, 0 <= interval_s < np.inf, "a number of seconds, 0 or more"),
        ("pmax", pmax, 0 < pmax < np.inf, "a positive number of images"),
        ("jmin", f"{jmin} and jmax is {jmax}", 1 <= jmin <= jmax, "1 <= jmin <= jmax"),
        ("objective", repr(objective), objective in ("throughput", "efficiency"), "'throughput' or 'efficiency'"),
    ):  # fmt: skip
        if not fits:
            raise InputError(f"{name} is {value}, expected {expected}")
    curves = dnn_scalability()
    model = model or ("own" if curve else own["model"])
    if curve:
        curves = {model: dict(sorted(curve.items()))}
    if model:
        if model not in curves:
            why = f"no curve of {model!r} comes with the package: choose one of {', '.join(curves)}, or a file"
            raise InputError(why)
        curves = {model: curves[model]}
        jmax = min(jmax, max(curves[model]))
    if jmax < jmin:
        raise InputError(
            f"the curve ends at {jmax} units; the scenario {scenario} needs {jmin}"
        )
    models = list(islice(cycle(curves), jobs))
    rates = [[0.0, *curves[model].values()] for model in models]
    units = [rate[1] if objective == "efficiency" else 1.0 for rate in rates]
    rng = np.random.default_rng(seed if scenario == "mix" else (seed, 1))

    up_s, down_s = (
        rng.uniform(low, high, jobs) for low, high in (own["Tcup"], own["Tcdw"])
    )
    submit_s = pd.to_timedelta(np.arange(jobs) * interval_s, unit="s")
    frame = pd.DataFrame(
        {
            "name": [f"J{i:05d}-{model}" for i, model in enumerate(models)],
            "model": models,
            "Jmin": jmin,
            "Jmax": jmax,
            "Pmax": float(pmax),
            "Tsub": (utc(first_submit) + submit_s).as_unit("ns"),
            "Tcup": up_s,
            "Tcdw": down_s,
            "Ns": [[0, *curves[model]] for model in models],
            "Ps": rates,
            "Os": [
                [value / unit for value in rate]
                for rate, unit in zip(rates, units, strict=True)
            ],
        }
    )
    if scenario == "llm":
        sizes = [size for size in (8, 16, 32, 64) if size <= jmax]
        frame["sizes"] = [sizes] * jobs
        frame["Jmax"] = sizes[-1]
    return frame
