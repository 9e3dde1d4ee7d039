"""Step times from training logs: the output of common tools, matches of users' patterns, and lines without them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models.measure.log_forms import FORMS, Form
from bft.models.measure.training_log import read_log, read_step_times


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (" 45%|████▌     | 450/1000 [00:55<01:07,  8.00it/s]", 0.125),
        ("  2%|▏         | 20/1000 [00:25<20:07,  1.23s/it]", 1.23),
        ("Epoch: [0][ 10/5005]\tTime  0.289 ( 0.703)\tData 0.010 ( 0.2)", 0.289),
        (
            "Epoch [1][50/7330] lr: 0.002, eta: 0:12:34, time: 0.412, data_time: 0.010",
            0.412,
        ),
        (
            " iteration 10/ 100 | elapsed time per iteration (ms): 412.5 | loss 1",
            0.4125,
        ),
        ("390/390 [==============================] - 5s 12ms/step - loss: 2.3", 0.012),
        ("INFO:tensorflow:global_step/sec: 12.5", 0.08),
        ("step 3 step_time=0.12", 0.12),
        ("step_time_ms=120.5", 0.1205),
        ("iter time: 120 ms", 0.120),
        ("Step time: 1.5e-2 s", 0.015),
        ("train_step_timing in s: 5.33", 5.33),
        ("time per step: 0.25s", 0.25),
        ("iter 20: loss 2.31, time 120.00ms, mfu 31.02%", 0.120),
        (
            "step   11/19560 | loss 9.9 | lr 1.10e-05 | 3276.80 ms | 55.4% bf16 MFU | 160000 tok/s",
            3.2768,
        ),
        ("step 3: train loss 4.5 (took 123.4 ms)", 0.1234),
        ("200/200 [=====] - 0s 512us/step - loss: 1.5 - val_loss: 1.6", 512e-6),
        ("390/390 ━━━━━━━━━ 2min 1min/step - loss: 1.5", 60.0),
        ("Train Epoch 0 [10/100] batch_time 0.25 data_time 0.01 loss 1.9", 0.25),
        ("step_time: 1,234 ms", 1.234),
        ('{"step": 10, "step_time": 0.25}', 0.25),
        ("{'step': 10, 'perf/step_time': 0.25}", 0.25),
        (
            "Train: 0 [  50/1251 (  4%)]  Time: 0.412s,  621.36/s  (0.512s,  500.10/s)  Data: 0.010 (0.1)",
            0.412,
        ),
        ("\x1b[32mstep 3\x1b[0m step_time=\x1b[1m0.25\x1b[0m", 0.25),
        ("1,000 ms/step", 1.0),
        ("tokens/s 12.5k, 2k it/s", 0.0005),
        ("step 3 step_time=0.50 samples/s: 256", 0.5),
        ("8.0 it/s 12 ms", 0.125),
        ("0.25 s/it 12", 0.25),
        ("{'train_steps_per_second': 4.0}".replace("'", "").replace(": ", "="), 0.25),
    ],
)
def test_common_lines_are_recognised(line: str, seconds: float) -> None:
    found = read_step_times([line], warmup=0)
    assert found.per == "step"
    assert found.seconds.tolist() == pytest.approx([seconds], rel=1e-12)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "data time: 0.1",
            "total time: 345 s",
            "time: 12:34:56",
            "loss 0.12",
            "",
            "eval_runtime: 12.3",
            "\0\1\2",
        ),
        # Alone, a time may be of anything; a counter of epochs counts no steps; 0,25 is perhaps a quarter.
        *(
            "time: 120 ms",
            "step 10 time: 0.5",
            "Epoch 3/20 time: 345 s",
            "epoch_time: 30",
            "step_time: 0,25 s",
        ),
        *(
            "micro_step_time=0.1",
            "forward step time: 0.1",
            "341 samples/s/gpu",
            "tokens_per_sec_per_device: 341",
        ),
        *(
            "step_time_max=0.1",
            "Epoch 3: 34.5s/epoch",
            "train_time: 30",
            "step time: 2 hours",
            "eval_step_time=0.1",
        ),
        *(
            "Validation: 100%|##| 10/10 [00:01<00:00, 8.2it/s]",
            "Downloading: 10%|# | 1/10 [00:01<00:00, 8.2it/s]",
        ),
        *(
            "RunningAvgSamplesPerSec=35.1",
            "step 10 samples/s 256",
            "step 10 it/s 8.0 | loss 2.3",
            "time (ms) | fwd: 401.20 | bwd: 1203.11 | step: 30.12",
        ),
    ],
)
def test_what_is_no_step_time_is_refused(line: str) -> None:
    refused(
        r"(?s)^tells no step times(| for certain\. In question:\n  line 1 .*) \(give one with --pattern",
        read_step_times,
        [line],
        warmup=0,
    )


def test_the_number_before_a_rate_is_not_taken_for_it() -> None:
    found = read_step_times(
        ["10\timages/sec: 341.3 +/- 0.5 (jitter = 1.2)"], warmup=0, batch_size=64
    )
    assert found.median_s == pytest.approx(64 / 341.3)
    assert found.throughput()[0] == pytest.approx(341.3)


def test_rates_of_samples_alone_tell_seconds_a_sample() -> None:
    found = read_step_times(["341 samples/s", "343 samples/s"], warmup=0)
    assert (found.per, found.samples) == ("sample", 1.0)
    assert found.throughput()[0] == pytest.approx(342, rel=1e-4)


def test_samples_a_step_follow_from_both_rates() -> None:
    assert (
        read_step_times(["step 3: 512.0 samples/s, 4.0 it/s"], warmup=0).samples == 128
    )
    assert (
        read_step_times(
            ["global batch size: 256", "step 3 step_time=2"], warmup=0
        ).samples
        is None
    )
    assert (
        read_step_times(
            ["step 3 step_time=2 | global batch size: 256"], warmup=0
        ).throughput()[0]
        == 128
    )


def test_unknown_samples_are_reported() -> None:
    refused(
        "give the batch size",
        read_step_times(["step_time=2"], warmup=0).throughput,
        error=ValueError,
    )


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=50))
def test_durations_come_back_as_printed(seconds: list[float]) -> None:
    lines = [f"step_time={value!r}" for value in seconds]
    assert read_step_times(lines, warmup=0).seconds.tolist() == seconds
    # A progress bar overwrites its line.
    assert read_step_times(["\r".join(lines)], warmup=0).seconds.tolist() == seconds


@given(
    st.lists(st.floats(0.01, 10), min_size=1, max_size=60),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_the_interval_holds_the_median_and_grows_with_confidence(
    seconds: list[float], confidence: float
) -> None:
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
    lines = [
        f"2021-02-10 20:21:{second:02d},500 step {second * 10} loss 1"
        for second in range(0, 60, 3)
    ]
    found = read_step_times(lines, warmup=0)
    assert found.seconds.tolist() == pytest.approx([0.1] * 19)
    # Lines without a step are not steps.
    noisy = [
        part for line in lines for part in (line, "2021-02-10 20:21:00,600 saving")
    ]
    assert read_step_times(noisy, warmup=0).seconds.tolist() == pytest.approx(
        [0.1] * 19
    )


def test_whole_seconds_are_added_up_until_they_tell_a_step() -> None:
    # Steps of 1.4 s: single differences are 1 or 2.
    lines = [
        f"2021-02-10T20:{int(k * 1.4) // 60:02d}:{int(k * 1.4) % 60:02d}Z iter {k}"
        for k in range(400)
    ]
    found = read_step_times(lines, warmup=0)
    assert found.median_s == pytest.approx(1.4, rel=0.05)
    assert "whole seconds" in found.notes[0]


def test_a_step_counter_that_restarts_gives_no_step() -> None:
    lines = [
        f"2021-02-10 20:2{epoch}:{second:02d}.0 it {second}"
        for epoch in range(2)
        for second in range(5)
    ]
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
    found = read_step_times(["0.0 s/it", "1.0 s/it", "0.0 it/s"], warmup=0)
    assert found.seconds.tolist() == [1.0]
    assert found.ignored == 2


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"took (?P<seconds>[\d.]+)", "took 0.5", 0.5),
        (r"(?P<ms>\d+) millis", "250 millis", 0.25),
        (r"(?P<us>\d+) micros", "250 micros", 0.25e-3),
        (r"speed=(?P<steps_per_s>\S+)", "speed=4", 0.25),
        (r"ips=(?P<samples_per_s>\S+) bs=(?P<samples>\d+)", "ips=1,000 bs=500", 0.5),
    ],
)
def test_patterns_of_users(pattern: str, line: str, expected: float) -> None:
    assert read_step_times([line], pattern, warmup=0).median_s == pytest.approx(
        expected
    )


def test_intervals_of_many_steps_are_divided_by_them() -> None:
    lines = [f"step {10 * k} took {5 + k % 2}.5 s" for k in range(9)]
    found = read_step_times(
        lines, r"step (?P<step>\d+) took (?P<interval_s>[\d.]+)", warmup=0
    )
    assert found.seconds.tolist() == pytest.approx([0.65, 0.55] * 4)


def test_commas_elsewhere_than_between_thousands_are_refused() -> None:
    assert (
        read_step_times(["took 1,000.5"], r"took (?P<seconds>\S+)", warmup=0).median_s
        == 1000.5
    )
    refused(
        "row 1: expected a number in the group seconds, not '0,25'",
        read_step_times,
        ["took 0,25"],
        r"took (?P<seconds>\S+)",
    )


def test_epoch_seconds_are_stamps_too() -> None:
    lines = [f"{1_600_000_000 + 0.25 * k:.2f} s{k}" for k in range(5)]
    assert read_step_times(
        lines, r"^(?P<time>[\d.]+) s(?P<step>\d+)", warmup=0
    ).median_s == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?P<seconds>", "is not a regular expression"),
        ("(?P<duration>x)", "an unknown group duration"),
        (r"step (?P<step>\d+)", "no group that measures"),
        (
            r"took (?P<seconds>\w+)",
            "row 1: expected a number in the group seconds, not 'long'",
        ),
        (r"took (?P<time>\w+)(?P<step>\d+)?", "row 1: expected a time stamp"),
        (r"took (?P<time>\w+)", "has the group time but not step, which it needs"),
        (
            r"took (?P<interval_s>\w+)",
            "has the group interval_s but not step, which it needs",
        ),
        (r"lost (?P<seconds>\w+)", "tells no step times that the pattern finds"),
    ],
)
def test_bad_patterns_are_reported(pattern: str, message: str) -> None:
    error = refused("", read_step_times, ["took long"], pattern)
    assert message in str(error)


def test_files_plain_and_compressed(tmp_path: Path) -> None:
    text = "".join(f"step {k} step_time=0.{k + 1}\n" for k in range(4))
    (tmp_path / "a.log").write_text(text)
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = (
        read_log(tmp_path / name, warmup=0) for name in ("a.log", "a.log.gz")
    )
    assert plain.seconds.tolist() == packed.seconds.tolist() == [0.1, 0.2, 0.3, 0.4]


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "cut.log.gz").write_bytes(gzip.compress(b"step_time=1\n" * 1000)[:-20])
    (tmp_path / "no.log.gz").write_bytes(b"plain")
    for name in (
        "empty.log",
        "binary.log",
        "cut.log.gz",
        "no.log.gz",
        "missing.log",
        ".",
    ):
        error = refused("", read_log, tmp_path / name)
        assert str(error).startswith(str(tmp_path / name))


def stamped(what: str, count: int = 20) -> list[str]:
    """Lines 5 s apart, 10 steps each: what has {k} for the step."""
    return [
        f"2021-02-10 20:{5 * k // 60:02d}:{5 * k % 60:02d}.000 {what.format(k=10 * k)}"
        for k in range(count)
    ]


@pytest.mark.parametrize(
    "what",
    [
        *(
            '{{"step": {k}, "loss": 2.3}}',
            "{{'step': {k}}}",
            "global_step={k} loss 2",
            "trainer/global_step: {k}",
        ),
        *(
            "[step {k}]",
            "step {k:,} loss",
            "Iteration #{k}",
            "train_step={k}, micro_step=77",
            "Epoch [1][{k}/5005] loss",
        ),
        *(
            "step {k} of 1000, max_steps=1000",
            "epoch=0/micro_step=99/global_step={k}, step: 30.12",
            '{{"step": {k}.0}}',
        ),
    ],
)
def test_counters_are_read_quoted_prefixed_and_with_thousands(what: str) -> None:
    found = read_step_times(stamped(what), warmup=0)
    assert found.seconds.tolist() == pytest.approx([0.5] * 19)


@pytest.mark.parametrize(
    "what",
    [
        *(
            "heartbeat",
            "heartbeat {k}",
            "Epoch {k}/200 loss 2.3",
            "[{k}/200] loss",
            "micro_step={k}",
            "max_steps={k}",
        ),
        *(
            "Train Epoch: 1 [{k}/60000 (1%)]",
            "skipped iterations: {k}",
            "eval step {k}",
            "step: {k}.12",
            "rank {k}/999",
        ),
    ],
)
def test_time_stamps_count_on_lines_with_a_step_counter_only(what: str) -> None:
    error = refused(
        r"(?s)tells no step times for certain.*a time stamp without a step counter",
        read_step_times,
        stamped(what),
        warmup=0,
    )
    assert "line 1 '2021-02-10 20:00:00.000" in str(error)


@pytest.mark.parametrize(
    "line",
    [
        "step {k} time: 0.5{k}",
        "step {k} time: {k}3.25 s",
        "loss {k} took 41.2 s",
        "step {k} elapsed: {k}7.5 s",
    ],
)
def test_a_bare_time_is_refused_whatever_it_does_from_line_to_line(line: str) -> None:
    refused(
        r"line 1 .* in no form that is known",
        read_step_times,
        [line.format(k=k) for k in range(1, 9)],
    )


def test_the_page_on_models_lists_each_preset_in_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    table = page.partition("| name | a line of this form |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == [
        preset.name for preset in FORMS
    ]


def test_a_preset_is_chosen_by_its_name() -> None:
    lines = ["step 3 step_time=0.50 tokens/s: 256"] * 4 + ["8.0 it/s"] * 9
    assert read_step_times(lines, warmup=0).used.startswith(
        "4 with step-time (as line 1 "
    )
    assert read_step_times(lines, "step-rate", warmup=0).seconds.tolist() == [0.125] * 9
    assert read_step_times(lines, "tokens/sec", warmup=0).per == "token"
    refused("tells no step times in the form keras", read_step_times, lines, "keras")


@pytest.mark.parametrize("preset", FORMS, ids=lambda preset: preset.name)
def test_the_example_of_each_preset_has_its_form_and_no_earlier_one(
    preset: Form,
) -> None:
    for example in preset.example.split("; "):
        lines = [example] * 3 if preset.name != "time-stamps" else stamped("step {k}")
        found = read_step_times(lines, warmup=0)
        assert f"with {preset.name} (as line" in found.used


def test_evaluation_and_epochs_are_distinguished_and_named() -> None:
    lines = [f"train step {k} step_time=0.5 val_loss 2.3" for k in range(20)]
    lines += [f"Validation: step {k} step_time=0.1" for k in range(30)]
    lines += [f"sanity check step_time=0.1 {k}" for k in range(3)] + [
        "epoch_time=10.5",
        "eval_step_time=0.1",
    ]
    found = read_step_times(lines, warmup=0)
    assert found.seconds.tolist() == [0.5] * 20
    assert (
        found.used
        == "20 with step-time (as line 1 'train step 0 step_time=0.5 val_loss 2.3')"
    )
    assert found.unused == ("30 with evaluation (line 21)",)


def test_bars_without_a_name_are_distinguished_by_their_ends() -> None:
    train = [f" 4%|▌    | {k}/1000 [00:55<01:07,  8.00it/s]" for k in range(20)]
    evaluation = [f" 4%|▌    | {k}/63 [00:55<01:07, 80.00it/s]" for k in range(40)]
    found = read_step_times([*train, *evaluation], warmup=0)
    assert found.seconds.tolist() == [0.125] * 20
    assert found.unused == ("40 with bars to 63 (line 21)",)
    refused(
        r"of training\? other bars go to 1,000", read_step_times, [*evaluation, *train]
    )
    named = [f"Train:{line}" for line in train]
    assert read_step_times([*evaluation, *named], warmup=0).median_s == 0.125


def test_tokens_are_no_samples() -> None:
    both = [f"step {k} tokens/s: 12,345 samples/s: 12.5" for k in range(5)]
    assert read_step_times(both, warmup=0, batch_size=25).throughput()[0] == 12.5
    found = read_step_times(
        [f"step {k} tokens/s: 12.5k" for k in range(5)], warmup=0, batch_size=25
    )
    assert (found.per, found.samples, found.throughput()[0]) == (
        "token",
        1.0,
        pytest.approx(12500),
    )
    assert "a sample here is a token" in found.notes[0]


def test_time_stamps_that_disagree_are_reported() -> None:
    lines = stamped("step {k} step_time=20")
    assert (
        "by the time stamps a step takes 0.5 s, by step-time 20 s"
        in read_step_times(lines).notes
    )
    assert not read_step_times(stamped("step {k} step_time=0.4")).notes


@pytest.mark.parametrize(
    ("name", "seconds", "per", "unused"),
    [
        ("trainer_state.json", 0.2, "step", ""),  # Hugging Face
        ("deepspeed.log", 1 / 256, "sample", ""),
        ("keras.log", 512e-6, "step", "1 with bars to 50"),
        ("llm-c.log", 3.2768, "step", ""),
        ("batch-time.log", 0.25, "step", "4 with evaluation"),
    ],
)
def test_logs_of_common_programs(
    name: str, seconds: float, per: str, unused: str
) -> None:
    found = read_log(Path(__file__).parents[1] / "data" / "training_logs" / name)
    assert found.median_s == pytest.approx(seconds)
    assert found.per == per
    assert unused in ", ".join(found.unused)


def test_samples_of_a_step_follow_from_a_whole_run_of_hugging_face() -> None:
    assert (
        read_log(
            Path(__file__).parents[1] / "data" / "training_logs" / "trainer_state.json"
        ).samples
        == 64
    )


def test_a_confidence_is_a_share() -> None:
    refused(
        "confidence in",
        read_step_times(["step_time=1"]).interval_s,
        1.5,
        error=ValueError,
    )
