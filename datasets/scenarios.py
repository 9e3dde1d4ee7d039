"""Job tables of four scenarios: a mix of trainings, the trials and members of searches, and large models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pandas as pd

from bft.datasets.dnn_jobs import DOWN_S, UP_S, dnn_scalability, generate_dnn_jobs
from bft.models.errors import InputError

START_UP_S: Final = (139.0, 323.0)
"""Seconds that a large model's start-up takes, as published."""

CHECKPOINT_S: Final = (60.0, 300.0)
"""Seconds that its checkpoint takes: minutes, as published; the range is our assumption."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Default values for the generation of a scenario.

    Parameters
    ----------
    jobs, interval_s, pmax
        How many, seconds between submissions, samples of each.
    model
        Whose curve all have; None: the seven networks in turn.
    jmin, jmax
        Minimum and maximum number of units.
    up_s, down_s
        Ranges of Tcup and Tcdw, seconds.
    replay
        Options with which it is replayed.
    """

    jobs: int
    interval_s: float
    pmax: float
    model: str | None
    jmin: int = 1
    jmax: int = 64
    up_s: tuple[float, float] = UP_S
    down_s: tuple[float, float] = DOWN_S
    replay: str = ""


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "mix": Scenario(1001, 36.0, 1.3e8, None),
    # Trials are identical: the means of the published times.
    "hpo": Scenario(
        100,
        0.0,
        1.3e8,
        "ShuffleNet",
        up_s=(18.0, 18.0),
        down_s=(12.0, 12.0),
        replay="--workload hpo",
    ),
    "nas": Scenario(
        20,
        0.0,
        1.3e8,
        "MnasNet",
        up_s=(18.0, 18.0),
        down_s=(12.0, 12.0),
        replay="--workload nas",
    ),
    "llm": Scenario(
        5,
        3600.0,
        2e9,
        "VGG16",
        8,
        64,
        START_UP_S,
        CHECKPOINT_S,
        replay="--cost-model stall",
    ),
}


def generate_scenario(
    scenario: Literal["mix", "hpo", "nas", "llm"],
    *,
    first_submit: str | pd.Timestamp,
    jobs: int | None = None,
    seed: int = 0,
    interval_s: float | None = None,
    pmax: float | None = None,
    objective: Literal["throughput", "efficiency"] = "throughput",
    model: str | None = None,
    curve: Mapping[int, float] | None = None,
) -> pd.DataFrame:
    """Generate the job table of a scenario, in the native form.

    Parameters
    ----------
    scenario
        `mix`: the jobs of `generate_dnn_jobs`. `hpo`: identical trials of one training, for `--workload hpo`. `nas`: a
        first generation, for `--workload nas`. `llm`: few wide jobs that take minutes to start and to save; the curve
        that scales best stands for theirs.
    first_submit, jobs, seed, interval_s, pmax, objective
        As for `generate_dnn_jobs`; None takes the scenario's own (`SCENARIOS`).
    model
        The network whose curve all jobs have: one of the seven, or the name of the one that `curve` describes.
    curve
        Units -> samples/s of all jobs, instead of a network's.

    Raises
    ------
    InputError
        If a parameter is out of range, or there is no such network.

    Examples
    --------
    >>> trials = generate_scenario("hpo", jobs=3, first_submit="2021-02-10")
    >>> trials["name"].tolist(), trials["Tsub"].nunique()
    (['J00000-ShuffleNet', 'J00001-ShuffleNet', 'J00002-ShuffleNet'], 1)
    """
    import numpy as np

    own = SCENARIOS[scenario]
    frame = generate_dnn_jobs(
        jobs=own.jobs if jobs is None else jobs,
        seed=seed,
        first_submit=first_submit,
        interval_s=own.interval_s if interval_s is None else interval_s,
        pmax=own.pmax if pmax is None else pmax,
        objective=objective,
        jmin=own.jmin,
        jmax=own.jmax,
    )
    model = model or ("own" if curve else own.model)
    if model is not None:
        points = _points(model, curve)
        if max(points) < own.jmin:
            raise InputError(
                f"the curve ends at {max(points)} units; the scenario {scenario} needs {own.jmin}"
            )
        rates = [0.0, *points.values()]
        values = (
            rates if objective == "throughput" else [rate / rates[1] for rate in rates]
        )
        frame["name"] = [f"J{k:05d}-{model}" for k in range(len(frame))]
        frame["model"], frame["Jmax"] = model, min(own.jmax, max(points))
        for column, numbers in (("Ns", [0, *points]), ("Ps", rates), ("Os", values)):
            frame[column] = [list(numbers) for _ in range(len(frame))]
    if scenario != "mix":
        rng = np.random.default_rng((seed, 1))
        frame["Tcup"] = rng.uniform(*own.up_s, size=len(frame))
        frame["Tcdw"] = rng.uniform(*own.down_s, size=len(frame))
    if scenario == "llm":
        frame["sizes"] = [
            [1 << k for k in range(20) if own.jmin <= 1 << k <= jmax]
            for jmax in frame["Jmax"]
        ]
        frame["Jmax"] = [sizes[-1] for sizes in frame["sizes"]]
    return frame


def _points(model: str, curve: Mapping[int, float] | None) -> dict[int, float]:
    """Units -> samples/s, ascending."""
    if curve is not None:
        return dict(sorted(curve.items()))
    known = dnn_scalability()
    if model not in known:
        raise InputError(
            f"no curve of {model!r} comes with the package: choose one of {', '.join(known)}, or a file"
        )
    return known[model]
