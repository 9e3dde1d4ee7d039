"""`bft-replay predict`: learn and try models from a user's own tables; invalid ones are reported."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bft.models import InputError
from bft.models.learned.duration import DurationEstimator
from bft.models.learned.saved_models import read_model
from bft.replay.cli.predict import predict


def run(*args: str) -> None:
    predict.main(args=list(args), prog_name="predict", standalone_mode=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a table of each sort."""
    monkeypatch.chdir(tmp_path)
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
    return tmp_path


def test_a_model_learnt_on_the_command_line_is_that_of_the_library(
    here: Path, capsys: pytest.CaptureFixture
) -> None:
    run("durations", "jobs.csv", "-o", "new/d.json")
    assert capsys.readouterr().out.startswith("new/d.json: learnt from 1,500 rows\n")
    jobs = pd.read_csv("jobs.csv")
    ours = DurationEstimator.train(jobs)
    assert (
        read_model("new/d.json", DurationEstimator).predict(jobs) == ours.predict(jobs)
    ).all()


def test_each_sort_is_learnt_and_shown(
    here: Path, capsys: pytest.CaptureFixture
) -> None:
    for what, table in (
        ("durations", "jobs.csv"),
        ("submissions", "jobs.csv"),
        ("packing", "profiles.csv"),
    ):
        run(what, table, "-o", f"{what}.json")
        shown = capsys.readouterr().out
        assert {
            "durations": "ga2m: durations, from 1,500 finished jobs\nfeatures: gpus, hour, weekday, user_mean, ",
            "submissions": "ga2m: jobs per 600 s over the next 3000 s\nfeatures: last, last_but_1, ",
            "packing": "gpu_util <= ",
        }[what] in shown


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
    args: tuple[str, str], message: str, here: Path
) -> None:
    before = sorted(here.iterdir())
    with pytest.raises(InputError) as caught:
        run(*args, "-o", "out/m.json")
    assert str(caught.value).startswith(message)
    assert sorted(here.iterdir()) == before
