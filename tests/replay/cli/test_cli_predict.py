"""`bft-replay predict`: learn and try models from a user's own tables; invalid ones are reported."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bft.models.learned.duration import DurationEstimator
from bft.models.learned.saved_models import read_model


@pytest.fixture
def here(here: Path) -> Path:
    """A working folder with a table of each sort."""
    rng = np.random.default_rng(0)
    user = rng.integers(0, 5, 1500)
    jobs = pd.DataFrame(
        {
            "user": [f"u{u}" for u in user],
            "gpu_num": rng.choice([1, 8], 1500),
            "submit_time": pd.date_range("2024-03-01", periods=1500, freq="7min"),
            "duration": np.round(np.exp(4 + user + 0.2 * rng.normal(size=1500))),
        }
    )
    jobs.to_csv("jobs.csv", index=False)
    profiles = pd.DataFrame(
        {name: rng.uniform(0, 100, 60) for name in ("gpu_util", "gmem_util", "gmem")}
    )
    label = (profiles["gpu_util"] // 34).astype(int)
    profiles.assign(amp=0, label=label, model=[f"m{i % 6}" for i in range(60)]).to_csv(
        "profiles.csv", index=False
    )
    return here


def test_a_model_learnt_on_the_command_line_is_that_of_the_library(
    here: Path, told: Callable[..., str]
) -> None:
    said = told("predict durations jobs.csv -o new/d.json")
    assert said.startswith("new/d.json: learnt from 1,500 rows\n")
    jobs = pd.read_csv("jobs.csv")
    ours = DurationEstimator.train(jobs)
    assert (
        read_model("new/d.json", DurationEstimator).predict(jobs) == ours.predict(jobs)
    ).all()


def test_each_sort_is_learnt_and_shown(here: Path, told: Callable[..., str]) -> None:
    features = "ga2m: durations, from 1,500 finished jobs\nfeatures: gpus, hour, weekday, user_mean, "
    told("predict durations jobs.csv -o d.json", features)
    slots = "ga2m: jobs per 600 s over the next 3000 s\nfeatures: last, last_but_1, "
    told("predict submissions jobs.csv -o s.json", slots)
    told("predict packing profiles.csv -o p.json", "gpu_util <= ")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("durations", "profiles.csv"),
            "profiles.csv: missing columns user, gpu_num, submit_time, duration",
        ),
        (
            ("submissions", "profiles.csv"),
            "profiles.csv: missing columns time, jobs; expected time, jobs",
        ),
        (
            ("packing", "jobs.csv"),
            "jobs.csv: missing columns gpu_util, gmem_util, gmem, amp, label; expected gpu_util",
        ),
        (("durations", "none.csv"), "none.csv: no such file"),
    ],
)
def test_bad_tables_are_reported_and_leave_nothing(
    args: tuple[str, str], message: str, here: Path, refused: Callable[..., str]
) -> None:
    said = refused(["predict", *args, "-o", "out/m.json"], message)
    assert said.startswith(f"Error: {message}")
