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


@pytest.mark.parametrize("what", ["durations", "submissions"])
def test_a_model_is_compared_with_none(
    what: str, here: Path, capsys: pytest.CaptureFixture
) -> None:
    run(what, "jobs.csv")
    first, head, *rows = capsys.readouterr().out.splitlines()
    if what == "durations":
        jobs = pd.read_csv("jobs.csv", parse_dates=["submit_time"])
        finish = jobs["submit_time"] + pd.to_timedelta(jobs["duration"], unit="s")
        known = int((finish < jobs["submit_time"][1050]).sum())
        assert (
            first
            == f"{known:,} jobs had finished before the last 30% were submitted, of which 450"
        )
    else:
        assert first == "735 slots, and 315 after them"
    assert "MAE" in head
    figures = [row.split() for row in rows]
    trivial = ["user", "constant"] if what == "durations" else ["last", "constant"]
    assert [row[0] for row in figures] == ["ga2m", *trivial]
    assert rows[-1].split()[-2:] == ["-", "-"], "a constant orders nothing"
    if what == "durations":  # users differ by factors of e
        assert float(figures[0][3]) > 0.9
        # Durations follow the user here: the mean of the user's past is as good as a model, a constant is not.
        assert float(rows[1].split()[5]) > 0.9
        assert float(rows[2].split()[3]) < 0.1


def test_packing_is_evaluated_by_models_left_out(
    here: Path, capsys: pytest.CaptureFixture
) -> None:
    run("packing", "profiles.csv")
    right = float(capsys.readouterr().out.splitlines()[1].split()[1])
    assert right > 0.8


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
    with pytest.raises(InputError):
        run(*args)
    assert sorted(here.iterdir()) == before
