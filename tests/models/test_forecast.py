"""Forecasts of submissions: features against a second implementation, no look into the future, the published series."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models.learned.duration import FEATURES, Forecaster, ahead, submissions
from bft.models.learned.ga2m import AdditiveModel, accuracy

START = pd.Timestamp("2020-04-01", tz="UTC")


def series(slots: int, *, minutes: int = 10, seed: int = 0) -> pd.DataFrame:
    """Poisson counts that are high by day and low by night."""
    times = START + pd.to_timedelta(np.arange(slots) * minutes, unit="min")
    rate = 4 + 3.5 * np.sin((times.hour + times.minute / 60 - 9) / 24 * 2 * np.pi)
    return pd.DataFrame(
        {"time": times, "jobs": np.random.default_rng(seed).poisson(rate)}
    )


NOTHING = AdditiveModel(0.0, ())


def inputs(slots: pd.DataFrame, horizon: int, slot_s: float) -> pd.DataFrame:
    return Forecaster("jobs", horizon, slot_s, NOTHING).inputs(slots)


def by_hand(
    counts: list[int], at: int, horizon: int, day: int, hour: int
) -> list[float]:
    """Means over windows of slots, in loops."""
    seen = counts[: at + 1]

    def mean(first: int, end: int) -> float:
        window = [seen[i] for i in range(max(first, 0), min(end, at + 1)) if i >= 0]
        return sum(window) / len(window) if window else sum(seen) / len(seen)

    lags = [mean(at - k, at - k + 1) for k in range(3)]
    means = [mean(at + 1 - length, at + 1) for length in (hour, 6 * hour, day, 7 * day)]
    return [
        *lags,
        *means,
        *(mean(at + 1 - back, at + 1 - back + horizon) for back in (day, 7 * day)),
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=70), st.integers(1, 6))
@examples(40)
def test_features_are_means_over_their_windows(counts: list[int], horizon: int) -> None:
    # Slots of four hours: six a day, so that a short series has weeks.
    slots = series(len(counts), minutes=240).assign(jobs=counts)
    found = inputs(slots, horizon, 14_400.0)
    expected = [
        by_hand(counts, at, horizon, day=6, hour=1) for at in range(len(counts))
    ]
    # Six hours are one and a half slots: rounded to two.
    for at, row in enumerate(expected):
        row[4] = np.mean(counts[max(0, at - 1) : at + 1])
    np.testing.assert_allclose(found[list(FEATURES[:9])], expected, atol=1e-12)
    begins = slots["time"] + pd.Timedelta(hours=4)
    assert found["hour"].tolist() == begins.dt.hour.tolist()
    assert found["weekday"].tolist() == begins.dt.day_of_week.tolist()


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=40),
    st.lists(st.integers(0, 10**6), max_size=20),
)
@examples(30)
def test_the_future_changes_no_bit_of_a_forecast(
    counts: list[int], future: list[int]
) -> None:
    model = FITTED
    short = series(len(counts)).assign(jobs=counts)
    long = series(len(counts) + len(future)).assign(jobs=counts + future)
    assert (
        model.predict(long)[: len(counts)].tobytes() == model.predict(short).tobytes()
    )


FITTED = Forecaster.train(series(1000))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 8))
def test_ahead_is_the_mean_of_the_next_slots(counts: list[int], horizon: int) -> None:
    expected = [
        np.mean(counts[at + 1 : at + 1 + horizon])
        for at in range(len(counts) - horizon)
    ]
    np.testing.assert_allclose(ahead(np.array(counts, dtype=float), horizon), expected)


@given(
    st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(1, 64)), min_size=1, max_size=50
    )
)
def test_submissions_lose_nobody(rows: list[tuple[int, int]]) -> None:
    jobs = pd.DataFrame(rows, columns=["submit_time", "gpu_num"])
    slots = submissions(jobs)
    assert slots["jobs"].sum() == len(jobs)
    assert slots["units"].sum() == jobs["gpu_num"].sum()
    assert (np.diff(slots["time"]) == 600).all()
    for begin, count in zip(slots["time"], slots["jobs"], strict=True):
        assert (
            jobs["submit_time"].between(begin, begin + 600, inclusive="left").sum()
            == count
        )


def test_day_and_night_are_found() -> None:
    slots = series(3000)
    model = Forecaster.train(slots[:2400], horizon=5)
    predicted = model.predict(slots)[2399:-5]
    actual = ahead(slots["jobs"].to_numpy(dtype=float), 5)[2399:]
    assert (predicted >= 0).all()
    assert accuracy(predicted, actual).r2 > 0.6
    assert predicted.mean() == pytest.approx(actual.mean(), rel=0.1)


def test_slots_may_be_counted_from_jobs() -> None:
    jobs = pd.DataFrame(
        {
            "submit_time": np.random.default_rng(0).integers(0, 600 * 2000, 9000),
            "gpu_num": 1,
        }
    )
    model = Forecaster.train(submissions(jobs), column="units", horizon=1)
    assert model.predict(submissions(jobs)).mean() == pytest.approx(4.5, rel=0.1)


def test_slots_of_another_length_are_refused() -> None:
    refused(
        "row 2, column time: expected a slot each 600 s; this one begins 1200 s",
        FITTED.predict,
        series(9, minutes=20),
    )
    assert FITTED.predict(series(1)).shape == (1,)
    few = "11 rows to learn from, expected at least 20"
    refused(few, Forecaster.train, series(160))


@pytest.mark.reference
def test_september_is_forecast_better_than_published_and_than_by_the_last_slot(
    reference: Path,
) -> None:
    slots = pd.read_csv(reference / "lucid" / "cluster_throughput.csv.gz")
    known = int((slots["time"] < "2020-09-01").sum())
    counts = slots["submit_gpu_job"].to_numpy(dtype=float)
    actual = ahead(counts, 1)[known - 1 :]
    published = pd.read_csv(reference / "lucid" / "Venus_throughput_pred.csv.gz")
    assert (published["submit_gpu_job"] == actual).all()
    model = Forecaster.train(slots[:known], column="submit_gpu_job", horizon=1)
    ours = accuracy(model.predict(slots)[known - 1 : -1], actual)
    # Measured: MAE 3.21, published 4.12, as the last slot 3.68.
    assert ours.mae < 3.5
    assert accuracy(counts[known - 1 : -1], actual).mae > 3.6
    assert accuracy(published["pred_gpu_job"].to_numpy(), actual).mae > 4
