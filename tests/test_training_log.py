"""Step times from training logs: what common tools print, what users' patterns find, and what is no step time."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.models import InputError
from bft.models.speed.training_log import read_log, read_step_times


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (" 45%|████▌     | 450/1000 [00:55<01:07,  8.00it/s]", 0.125),
        ("  2%|▏         | 20/1000 [00:25<20:07,  1.23s/it]", 1.23),
        ("Epoch: [0][ 10/5005]\tTime  0.289 ( 0.703)\tData 0.010 ( 0.2)", 0.289),
        ("Epoch [1][50/7330] lr: 0.002, eta: 0:12:34, time: 0.412, data_time: 0.010", 0.412),
        (" iteration 10/ 100 | elapsed time per iteration (ms): 412.5 | loss 1", 0.4125),
        ("390/390 [==============================] - 5s 12ms/step - loss: 2.3", 0.012),
        ("INFO:tensorflow:global_step/sec: 12.5", 0.08),
        ("step 3 step_time=0.12", 0.12),
        ("step_time_ms=120.5", 0.1205),
        ("iter time: 120 ms", 0.120),
        ("Step time: 1.5e-2 s", 0.015),
        ("train_step_timing in s: 5.33", 5.33),
        ("time per step: 0.25s", 0.25),
        ("time: 120 ms", 0.120),
        ("{'train_steps_per_second': 4.0}".replace("'", "").replace(": ", "="), 0.25),
    ],
)
def test_common_lines_are_recognised(line: str, seconds: float) -> None:
    found = read_step_times([line], warmup=0)
    assert found.per == "step"
    assert found.seconds.tolist() == pytest.approx([seconds], rel=1e-12)


@pytest.mark.parametrize(
    "line", ["data time: 0.1", "total time: 345 s", "time: 12:34:56", "loss 0.12", "", "eval_runtime: 12.3", "\0\1\2"]
)
def test_what_is_no_step_time_is_refused(line: str) -> None:
    with pytest.raises(InputError, match=r"tells no step times \(give a pattern"):
        read_step_times([line], warmup=0)


def test_the_number_before_a_rate_is_not_taken_for_it() -> None:
    found = read_step_times(["10\timages/sec: 341.3 +/- 0.5 (jitter = 1.2)"], warmup=0, batch_size=64)
    assert found.median_s == pytest.approx(64 / 341.3)
    assert found.throughput()[0] == pytest.approx(341.3)


def test_rates_of_samples_alone_tell_seconds_a_sample() -> None:
    found = read_step_times(["341 samples/s", "343 samples/s"], warmup=0)
    assert (found.per, found.samples) == ("sample", 1.0)
    assert found.throughput()[0] == pytest.approx(342, rel=1e-4)


def test_samples_a_step_follow_from_both_rates() -> None:
    assert read_step_times(["step 3: 512.0 samples/s, 4.0 it/s"], warmup=0).samples == 128
    assert read_step_times(["global batch size: 256", "step 3 step_time=2"], warmup=0).samples is None
    assert read_step_times(["step 3 step_time=2 | global batch size: 256"], warmup=0).throughput()[0] == 128


def test_unknown_samples_are_told() -> None:
    with pytest.raises(ValueError, match="give the batch size"):
        read_step_times(["step_time=2"], warmup=0).throughput()


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=50))
def test_durations_come_back_as_printed(seconds: list[float]) -> None:
    lines = [f"step_time={value!r}" for value in seconds]
    assert read_step_times(lines, warmup=0).seconds.tolist() == seconds
    # A progress bar overwrites its line.
    assert read_step_times(["\r".join(lines)], warmup=0).seconds.tolist() == seconds


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_holds_the_median_and_grows_with_confidence(seconds: list[float], confidence: float) -> None:
    found = read_step_times([f"step_time={value!r}" for value in seconds], warmup=0)
    low, high = found.interval_s(confidence)
    wider = found.interval_s((1 + confidence) / 2)
    assert wider[0] <= low <= found.median_s <= high <= wider[1]
    assert min(seconds) <= low
    assert high <= max(seconds)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        lines = [f"step_time={value!r}" for value in rng.lognormal(0, 1, 40).tolist()]
        low, high = read_step_times(lines, warmup=0).interval_s(0.9)
        hits += low <= 1.0 <= high
    assert hits >= 0.9 * 200 - 2 * np.sqrt(200 * 0.09)


def test_time_stamps_count_by_steps() -> None:
    lines = [f"2021-02-10 20:21:{second:02d},500 step {second * 10} loss 1" for second in range(0, 60, 3)]
    found = read_step_times(lines, warmup=0)
    assert found.seconds.tolist() == pytest.approx([0.1] * 19)
    assert found.times[0] == pytest.approx(1612988463.5)
    # Lines without a step are not steps.
    noisy = [part for line in lines for part in (line, "2021-02-10 20:21:00,600 saving")]
    assert read_step_times(noisy, warmup=0).seconds.tolist() == pytest.approx([0.1] * 19)


def test_whole_seconds_are_added_up_until_they_tell_a_step() -> None:
    # Steps of 1.4 s: single differences are 1 or 2.
    lines = [f"2021-02-10T20:{int(k * 1.4) // 60:02d}:{int(k * 1.4) % 60:02d}Z iter {k}" for k in range(400)]
    found = read_step_times(lines, warmup=0)
    assert found.median_s == pytest.approx(1.4, rel=0.05)
    assert "whole seconds" in found.notes[0]


def test_a_step_counter_that_starts_anew_makes_no_step() -> None:
    lines = [f"2021-02-10 20:2{epoch}:{second:02d}.0 it {second}" for epoch in range(2) for second in range(5)]
    found = read_step_times(lines, warmup=0)
    assert found.seconds.tolist() == [1.0] * 8
    assert found.ignored == 1


def test_warm_up_counts_steps_where_the_log_does() -> None:
    each = [f"step {k} step_time={9 if k < 10 else 1}" for k in range(100)]
    tenth = [f"step {10 * k} step_time={9 if k < 1 else 1}" for k in range(100)]
    assert set(read_step_times(each).seconds) == {1.0}
    assert read_step_times(tenth).warmup == 1
    assert read_step_times(each, warmup=0).seconds[0] == 9


def test_warm_up_leaves_half_at_least() -> None:
    found = read_step_times([f"step_time={k}" for k in range(1, 5)])
    assert found.seconds.tolist() == [3.0, 4.0]
    assert found.notes == ("few records: 2 left out as warm-up, not 4",)


def test_useless_durations_are_counted() -> None:
    found = read_step_times(["step_time=0", "step_time=1", "0.0 it/s"], warmup=0)
    assert found.seconds.tolist() == [1.0]
    assert found.ignored == 2


def test_two_logs_can_be_cut_to_the_span_of_both() -> None:
    lines = [f"2021-02-10 20:21:{second:02d}.0 step {second}" for second in range(10)]
    found = read_step_times(lines, warmup=0)
    inside = found.between(found.times[2], found.times[4])
    assert len(inside) == 3
    assert len(found.between(0, 1)) == 0


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"took (?P<seconds>[\d.]+)", "took 0.5", 0.5),
        (r"(?P<ms>\d+) millis", "250 millis", 0.25),
        (r"speed=(?P<steps_per_s>\S+)", "speed=4", 0.25),
        (r"ips=(?P<samples_per_s>\S+) bs=(?P<samples>\d+)", "ips=1,000 bs=500", 0.5),
    ],
)
def test_patterns_of_users(pattern: str, line: str, expected: float) -> None:
    assert read_step_times([line], pattern, warmup=0).median_s == pytest.approx(expected)


def test_epoch_seconds_are_stamps_too() -> None:
    lines = [f"{1_600_000_000 + 0.25 * k:.2f} s{k}" for k in range(5)]
    assert read_step_times(lines, r"^(?P<time>[\d.]+) s(?P<step>\d+)", warmup=0).median_s == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?P<seconds>", "is not a regular expression"),
        ("(?P<duration>x)", "an unknown group duration"),
        (r"step (?P<step>\d+)", "no group that measures"),
        (r"took (?P<seconds>\w+)", "row 1: expected a number in the group seconds, not 'long'"),
        (r"took (?P<time>\w+)", "row 1: expected a time stamp"),
        (r"lost (?P<seconds>\w+)", "tells no step times that the pattern finds"),
    ],
)
def test_bad_patterns_are_told(pattern: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_step_times(["took long"], pattern)
    assert message in str(error.value)


def test_files_plain_and_compressed(tmp_path: Path) -> None:
    text = "".join(f"step {k} step_time=0.{k + 1}\n" for k in range(4))
    (tmp_path / "a.log").write_text(text)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = (read_log(tmp_path / name, warmup=0) for name in ("a.log", "a.log.gz"))
    assert plain.seconds.tolist() == packed.seconds.tolist() == [0.1, 0.2, 0.3, 0.4]


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"step_time=1\n" * 1000)[:-20])
    (tmp_path / "no.log.gz").write_bytes(b"plain")
    for name in ("empty.log", "binary.log", "cut.log.gz", "no.log.gz", "missing.log", "."):
        with pytest.raises(InputError) as error:
            read_log(tmp_path / name)
        assert str(error.value).startswith(str(tmp_path / name))
