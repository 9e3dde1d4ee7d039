"""Durations, and submissions to come: features against a second implementation, no look into the future."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models.learned.duration import (
    DAY_S,
    FEATURES,
    LONG_AGO_S,
    LONGEST_S,
    OPTIONAL,
    DurationEstimator,
    Forecaster,
    ahead,
    submissions,
)
from bft.models.learned.ga2m import AdditiveModel, accuracy

START = 1_600_000_000


def nothing(says: float = 0.0) -> AdditiveModel:
    return AdditiveModel(says, ())


def log(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Users who each run jobs of their own length, longer ones in the night."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 8, rows)
    return pd.DataFrame(
        {
            "user": [f"u{u}" for u in user],
            "vc": [f"vc{u % 3}" for u in user],
            "jobname": [f"run-{u % 2}-{i}" for i, u in enumerate(user)],
            "gpu_num": rng.choice([1, 2, 8], rows),
            "cpu_num": rng.choice([4, 8], rows),
            "submit_time": START + np.sort(rng.integers(0, 20 * 86400, rows)),
            "duration": np.round(np.exp(4 + user / 2 + 0.3 * rng.normal(size=rows))),
        }
    )


@cache
def trained():
    return DurationEstimator.train(log())


def inputs(
    jobs: pd.DataFrame, past: pd.DataFrame, optional: tuple[str, ...] = OPTIONAL
) -> pd.DataFrame:
    return DurationEstimator(optional, (), trained().past[:0], nothing()).inputs(
        jobs, past=past
    )


def by_hand(job: pd.Series, past: pd.DataFrame) -> dict[str, float]:
    """The features of a job, as their documentation puts it, one loop a group."""
    finish = past.get("finish_time", past["submit_time"] + past["duration"])
    known = past.assign(finish=finish, y=np.log1p(past["duration"]))
    known = known[finish < job.submit_time]
    known = known.sort_values(["finish", "duration"], kind="stable")
    hashed = known["jobname"].str.replace(r"\d+", "#", regex=True)
    name = pd.Series([job.jobname]).str.replace(r"\d+", "#", regex=True)[0]
    groups = {
        "vc": known[known["vc"] == job.vc],
        "user": known[known["user"] == job.user],
        "user_gpus": known[
            (known["user"] == job.user) & (known["gpu_num"] == job.gpu_num)
        ],
        "user_name": known[
            (known["user"] == job.user) & (hashed == name) & (name != "")
        ],
    }
    time = pd.Timestamp(job.submit_time, unit="s")
    told = {
        "gpus": job.gpu_num,
        "cpus": job.cpu_num,
        "hour": time.hour + time.minute / 60 + time.second / 3600,
        "weekday": time.weekday(),
    }
    mean = known["y"].sum() / (len(known) + 1)
    for group, rows in groups.items():
        mean = (rows["y"].sum() + mean) / (len(rows) + 1)
        last = rows.iloc[-1] if len(rows) else None
        ago_s = LONG_AGO_S if last is None else job.submit_time - last.finish
        told |= {
            f"{group}_mean": mean,
            f"{group}_count": np.log1p(len(rows)),
            f"{group}_last": mean if last is None else last.y,
            f"{group}_since": np.log1p(min(ago_s, LONG_AGO_S)),
        }
    return told


# Few instants, users and lengths, so that all ties come up, zero durations among them.
tables = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["v", "w"]),
        st.sampled_from(["", "x1", "x22", "y"]),
        st.sampled_from([1, 2]),
        st.integers(0, 6).map(lambda slot: START + 3600 * slot),
        st.sampled_from([0, 1, 3600, 7200]),
    ),
    min_size=1,
    max_size=12,
).map(
    lambda rows: pd.DataFrame(
        rows, columns=["user", "vc", "jobname", "gpu_num", "submit_time", "duration"]
    ).assign(cpu_num=4)
)


@given(tables)
@examples(25)
def test_features_are_those_of_the_documentation(jobs: pd.DataFrame) -> None:
    found = inputs(jobs, jobs)
    expected = pd.DataFrame([by_hand(job, jobs) for job in jobs.itertuples()])
    pd.testing.assert_frame_equal(
        found, expected[list(found.columns)], check_dtype=False, rtol=1e-12
    )


@given(tables, tables, st.integers(0, 6))
@examples(40)
def test_the_future_changes_no_bit_of_a_feature(
    jobs: pd.DataFrame, other: pd.DataFrame, slot: int
) -> None:
    now = START + 3600 * slot
    jobs = jobs[jobs["submit_time"] <= now]
    if not len(jobs):
        return
    # Whatever finishes from now on is replaced by something else, in another order and number.
    finished = jobs["submit_time"] + jobs["duration"] < now
    later = other.assign(submit_time=now, duration=other["duration"] * 3)
    one, two = jobs, pd.concat([later, jobs[finished], later])
    assert (
        inputs(jobs, one).to_numpy().tobytes() == inputs(jobs, two).to_numpy().tobytes()
    )


def test_a_job_has_no_ratio_with_itself() -> None:
    job = pd.DataFrame(
        {"user": ["a"], "gpu_num": [1], "submit_time": [START], "duration": [0]}
    )
    assert inputs(job, job, ())["user_count"].tolist() == [0.0]


def test_finish_times_count_where_they_are_given() -> None:
    past = log(1).assign(duration=60.0)
    queued = past.assign(finish_time=past["submit_time"] + 7200)
    soon = past.assign(submit_time=past["submit_time"] + 3600)
    assert inputs(soon, past)["user_count"].iloc[0] > 0
    assert inputs(soon, queued)["user_count"].iloc[0] == 0


def test_dates_seconds_and_zones_give_the_same_instants() -> None:
    jobs = log(50)
    stamps = jobs.assign(
        submit_time=pd.to_datetime(jobs["submit_time"], unit="s", utc=True)
    )
    shown = jobs.assign(
        submit_time=stamps["submit_time"].dt.tz_convert("Asia/Tokyo").map(str)
    )
    expected = inputs(jobs, jobs)
    for other in (stamps, shown):
        pd.testing.assert_frame_equal(inputs(other, other), expected)


def test_users_with_long_and_short_jobs_are_distinguished() -> None:
    jobs = log(900)
    later = jobs["submit_time"] > START + 14 * DAY_S
    model = DurationEstimator.train(jobs[~later])
    predicted = model.predict(jobs[later], past=jobs[later])
    assert predicted.dtype == np.float64
    assert accuracy(predicted, jobs["duration"][later].to_numpy()).rank > 0.7


def test_durations_of_the_jobs_predicted_are_not_looked_at() -> None:
    jobs = log()
    model = DurationEstimator.train(jobs[:200])
    later = jobs[200:]
    expected = model.predict(later)
    assert (model.predict(later.drop(columns="duration")) == expected).all()
    assert (model.predict(later.assign(duration=-1.0)) == expected).all()
    assert (model.predict(later, past=later) != expected).any()


@pytest.mark.parametrize("says", [-1e6, np.inf, 1e300])
def test_predictions_stay_durations_whatever_a_regressor_says(says: float) -> None:
    predicted = replace(trained(), regressor=nothing(says)).predict(log(5))
    assert ((predicted >= 0) & (predicted <= LONGEST_S * (1 + 1e-9))).all()


def test_columns_learnt_from_are_wanted_later_and_empty_ones_not() -> None:
    jobs = log().assign(jobname=None)
    model = DurationEstimator.train(jobs)
    assert model.optional == ("vc", "cpu_num")
    model.predict(jobs.drop(columns=["jobname", "duration"]))
    refused(
        "missing column vc; expected user, gpu_num",
        model.predict,
        jobs.drop(columns="vc"),
    )
    refused(
        "missing column duration",
        model.predict,
        jobs,
        past=jobs.drop(columns="duration"),
    )


@pytest.mark.reference
def test_later_jobs_of_venus_are_ordered_better_than_by_the_published_estimates(
    reference,
) -> None:
    jobs = pd.read_csv(reference / "lucid" / "venus_sept_jobs_relative.csv.gz")
    until = jobs["submit_time"].min() // DAY_S * DAY_S + 20 * DAY_S
    known = jobs["submit_time"] + jobs["duration"] < until
    test = jobs["submit_time"] >= until
    predicted = DurationEstimator.train(jobs[known]).predict(
        jobs[test], past=jobs[~known]
    )
    told = pd.read_csv(
        reference / "lucid" / "Venus_Sept_ebm_weekly_updated.csv.gz"
    ).drop_duplicates("job_id")
    told = (
        told.set_index("job_id")["priority"]
        .reindex(jobs["job_id"][test])
        .to_numpy(dtype=float)
    )
    actual = jobs["duration"][test].to_numpy(dtype=float)
    ours, published = accuracy(predicted, actual), accuracy(told, actual)
    # Measured: rank 0.440 against 0.258, R² of the logarithm 0.201 against -1.9, slope 1.00.
    assert ours.rank > published.rank + 0.1
    assert ours.r2_log > 0.1 > published.r2_log
    assert 0.8 < ours.slope < 1.2
    # In seconds the published ones are better (0.494 against -0.027): they hit the few very long jobs. What they were
    # learnt from is not told; perhaps names of jobs, which the trace does not have.
    assert published.r2 > ours.r2


def series(slots: int, *, minutes: int = 10, seed: int = 0) -> pd.DataFrame:
    """Poisson counts that are high by day and low by night."""
    times = pd.Timestamp("2020-04-01", tz="UTC") + pd.to_timedelta(
        np.arange(slots) * minutes, unit="min"
    )
    rate = 4 + 3.5 * np.sin((times.hour + times.minute / 60 - 9) / 24 * 2 * np.pi)
    return pd.DataFrame(
        {"time": times, "jobs": np.random.default_rng(seed).poisson(rate)}
    )


def inputs_of_slots(slots: pd.DataFrame, horizon: int, slot_s: float) -> pd.DataFrame:
    return Forecaster("jobs", horizon, slot_s, AdditiveModel(0.0, ())).inputs(slots)


def windows_by_hand(
    counts: list[int], at: int, horizon: int, day: int, hour: int
) -> list[float]:
    seen = counts[: at + 1]

    def mean(first: int, end: int) -> float:
        window = [seen[i] for i in range(max(first, 0), min(end, at + 1)) if i >= 0]
        return sum(window) / len(window) if window else sum(seen) / len(seen)

    return [
        *[mean(at - k, at - k + 1) for k in range(3)],
        *[mean(at + 1 - length, at + 1) for length in (hour, 6 * hour, day, 7 * day)],
        *(mean(at + 1 - back, at + 1 - back + horizon) for back in (day, 7 * day)),
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=70), st.integers(1, 6))
@examples(40)
def test_features_are_means_over_their_windows(counts: list[int], horizon: int) -> None:
    # Slots of four hours: six a day, so that a short series has weeks.
    slots = series(len(counts), minutes=240).assign(jobs=counts)
    found = inputs_of_slots(slots, horizon, 14_400.0)
    expected = [
        windows_by_hand(counts, at, horizon, day=6, hour=1) for at in range(len(counts))
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
    model = fitted()
    short = series(len(counts)).assign(jobs=counts)
    long = series(len(counts) + len(future)).assign(jobs=counts + future)
    assert (
        model.predict(long)[: len(counts)].tobytes() == model.predict(short).tobytes()
    )


@cache
def fitted() -> Forecaster:
    return Forecaster.train(series(1000))


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
    assert slots["jobs"].tolist() == [
        jobs["submit_time"].between(begin, begin + 600, inclusive="left").sum()
        for begin in slots["time"]
    ]


def test_day_and_night_are_found() -> None:
    slots = series(3000)
    predicted = Forecaster.train(slots[:2400], horizon=5).predict(slots)[2399:-5]
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
        fitted().predict,
        series(9, minutes=20),
    )
    assert fitted().predict(series(1)).shape == (1,)
    refused(
        "11 rows to learn from, expected at least 20", Forecaster.train, series(160)
    )


@pytest.mark.reference
def test_september_is_forecast_better_than_published_and_than_by_the_last_slot(
    reference,
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
