"""Step times from training logs: lines of common tools (tests/data/training_logs), whole logs in many styles."""

import gzip
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from log_cases import row
from refusals import refused

from bft.models import InputError, StepTimes, read_log, read_step_times
from bft.models.measure.log_forms import FORMS, Form

LOGS = Path(__file__).parents[1] / "data" / "training_logs"
LINES = tomllib.loads((LOGS / "lines.toml").read_text("utf-8"))
WHOLE = tomllib.loads((LOGS / "logs.toml").read_text("utf-8"))


def of(lines, *pattern: str, **more: Any) -> StepTimes:
    """What is read of a line, or of several, none being left out as warm-up."""
    lines = [lines] if isinstance(lines, str) else lines
    return read_step_times(lines, *pattern, **{"warmup": 0, **more})


def durations(seconds) -> list[str]:
    return [f"step_time={value!r}" for value in seconds]


def stamped(what: str, count: int = 20) -> list[str]:
    """Lines 5 s apart, 10 steps each: what has {k} for the step."""
    return [
        f"2021-02-10 20:{5 * k // 60:02d}:{5 * k % 60:02d}.000 {what.format(k=10 * k)}"
        for k in range(count)
    ]


@pytest.mark.parametrize(("seconds", "line"), LINES["known"])
def test_common_lines_are_recognised(seconds: float, line: str) -> None:
    found = of(line)
    assert found.per == "step"
    assert found.seconds.tolist() == pytest.approx([seconds], rel=1e-12)


@pytest.mark.parametrize("line", LINES["refused"])
def test_what_is_no_step_time_is_refused(line: str) -> None:
    refused(
        r"(?s)^tells no step times(| for certain\. In question:\n  line 1 .*) \(give one with --pattern",
        of,
        line,
    )


@pytest.mark.parametrize("what", LINES["counters"])
def test_counters_are_read_quoted_prefixed_and_with_thousands(what: str) -> None:
    assert of(stamped(what)).seconds.tolist() == pytest.approx([0.5] * 19)


@pytest.mark.parametrize("what", LINES["others"])
def test_time_stamps_count_on_lines_with_a_step_counter_only(what: str) -> None:
    why = r"(?s)tells no step times for certain.*line 1 '2021-02-10 20:00:00\.000.*a time stamp without a step counter"
    refused(why, of, stamped(what))


@pytest.mark.parametrize(
    "line",
    ["step {k} time: 0.5{k}", "step {k} time: {k}3.25 s", "loss {k} took 41.2 s", "step {k} elapsed: {k}7.5 s"],
)  # fmt: skip
def test_a_bare_time_is_refused_whatever_it_does_from_line_to_line(line: str) -> None:
    why = "line 1 .* in no form that is known"
    refused(why, read_step_times, [line.format(k=k) for k in range(1, 9)])


@pytest.mark.parametrize(("pattern", "line", "seconds"), LINES["patterns"])
def test_patterns_of_users(pattern: str, line: str, seconds: float) -> None:
    assert of(line, pattern).median_s == pytest.approx(seconds)


@pytest.mark.parametrize(("pattern", "message"), LINES["wrong_patterns"])
def test_bad_patterns_are_reported(pattern: str, message: str) -> None:
    refused(re.escape(message), of, "took long", pattern)


@given(
    st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=50),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_durations_come_back_as_printed_and_the_interval_holds_their_median(
    seconds: list[float], confidence: float
) -> None:
    found = of(durations(seconds))
    # A progress bar overwrites its line.
    assert found.seconds.tolist() == of("\r".join(durations(seconds))).seconds.tolist() == seconds  # fmt: skip
    low, high = found.interval_s(confidence)
    wider = found.interval_s((1 + confidence) / 2)
    assert min(seconds) <= wider[0] <= low <= found.median_s <= high <= wider[1] <= max(seconds)  # fmt: skip


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    bounds = [of(durations(rng.lognormal(0, 1, 40).tolist())).interval_s(0.9) for _ in range(60)]  # fmt: skip
    hits = sum(low <= 1.0 <= high for low, high in bounds)
    assert hits >= 0.9 * 60 - 2 * np.sqrt(60 * 0.09)


@pytest.mark.parametrize("case", WHOLE.values(), ids=WHOLE)
def test_what_is_read_of_a_log(case: dict[str, Any]) -> None:
    lines = [
        row(line, k)
        for first, last, *each in case["rows"]
        for k in range(first, last)
        for line in each
    ]
    by, options = [case["by"]] if "by" in case else [], case.get("options", {})
    if "refused" in case:
        refused(case["refused"], of, lines, *by, **options)
        return
    found = of(lines, *by, **options)
    for name, value in case["told"].items():
        read = getattr(found, name)
        if name in ("used", "unused", "notes"):
            assert value in str(read)
        else:
            expected = None if value == "none" else pytest.approx(value)
            assert (read.tolist() if name == "seconds" else read) == expected


def test_whole_seconds_are_added_up_until_they_tell_a_step() -> None:
    """Steps of 1.4 s: single differences are 1 or 2."""
    times = [divmod(int(k * 1.4), 60) for k in range(400)]
    found = of([f"2021-02-10T20:{m:02d}:{s:02d}Z iter {k}" for k, (m, s) in enumerate(times)])  # fmt: skip
    assert found.median_s == pytest.approx(1.4, rel=0.05)
    assert "whole seconds" in found.notes[0]


def test_without_samples_of_a_step_there_is_no_rate() -> None:
    with pytest.raises(ValueError, match="give the batch size"):
        _ = of("step_time=2").rate


def test_time_stamps_that_disagree_are_reported() -> None:
    said = "by the time stamps a step takes 0.5 s, by step-time 20 s"
    assert said in read_step_times(stamped("step {k} step_time=20")).notes
    assert not read_step_times(stamped("step {k} step_time=0.4")).notes


def test_warm_up_counts_steps_where_the_log_does_and_leaves_half_at_least() -> None:
    each = [f"step {k} step_time={9 if k < 10 else 1}" for k in range(100)]
    tenth = [f"step {10 * k} step_time={9 if k < 1 else 1}" for k in range(100)]
    assert set(read_step_times(each).seconds) == {1.0}
    assert (len(read_step_times(tenth)), of(each).seconds[0]) == (len(tenth) - 1, 9)
    found = read_step_times(durations(range(1, 5)))
    assert found.seconds.tolist() == [3.0, 4.0]
    assert found.notes == ("few records: 2 left out as warm-up, not 4",)


def test_files_plain_and_compressed_and_bad_ones(tmp_path: Path) -> None:
    text = "".join(f"step {k} step_time=0.{k + 1}\n" for k in range(4)).encode()
    for name, data in {"a.log": text, "a.log.gz": gzip.compress(text)}.items():
        (tmp_path / name).write_bytes(data)
        found = read_log(tmp_path / name, warmup=0).seconds.tolist()
        assert found == [0.1, 0.2, 0.3, 0.4]
    bad = {"empty.log": b"", "binary.log": bytes(range(256)) * 10, "no.log.gz": b"plain",
           "cut.log.gz": gzip.compress(b"step_time=1\n" * 1000)[:-20], "missing.log": None, ".": None}  # fmt: skip
    for name, content in bad.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        refused(f"^{re.escape(str(tmp_path / name))}", read_log, tmp_path / name)


@pytest.mark.parametrize("preset", FORMS, ids=lambda preset: preset.name)
def test_the_example_of_each_preset_has_its_form_and_no_earlier_one(preset: Form) -> None:  # fmt: skip
    for example in preset.example.split("; "):
        lines = [example] * 3 if preset.name != "time-stamps" else stamped("step {k}")
        assert f"with {preset.name} (as line" in of(lines).used


@pytest.mark.parametrize(
    ("name", "seconds", "per", "samples", "unused"),
    [
        ("trainer_state.json", 0.2, "step", 64, ""),  # Hugging Face
        ("deepspeed.log", 1 / 256, "sample", 1, ""),
        ("keras.log", 512e-6, "step", None, "1 with bars to 50"),
        ("llm-c.log", 3.2768, "step", None, ""),
        ("batch-time.log", 0.25, "step", None, "4 with evaluation"),
    ],
)
def test_logs_of_common_programs(
    name: str, seconds: float, per: str, samples: float | None, unused: str
) -> None:
    found = read_log(LOGS / name)
    assert found.median_s == pytest.approx(seconds)
    assert (found.per, found.samples) == (per, samples)
    assert unused in ", ".join(found.unused)


class Truth(NamedTuple):
    """A training: steps of `seconds`, `batch` samples of `length` tokens each, logged every `every` steps."""

    seconds: float
    batch: int
    length: int
    every: int
    lines: int
    start: int


STYLES = tomllib.loads((LOGS / "styles.toml").read_text("utf-8"))
NOISE = STYLES["noise"]["lines"]
KNOWN = STYLES["steps"] | STYLES["rates"] | STYLES["clocks"]
truths = st.builds(
    Truth,
    st.floats(0.02, 90),
    st.integers(1, 4096),
    st.integers(16, 4096),
    st.sampled_from([1, 2, 10, 50, 100]),
    st.integers(8, 25),
    st.sampled_from([0, 10, 995, 12_000]),
)


def write(style: str, truth: Truth, noise=()) -> list[str]:
    """The log, each noise before one of its lines."""
    seconds, samples = truth.seconds, truth.batch / truth.seconds
    total = truth.start + truth.every * truth.lines
    speed = f"{seconds:.3f}s/it" if seconds > 1 else f"{1 / seconds:.3f}it/s"
    told = {
        "seconds": seconds, "ms": 1e3 * seconds, "us": 1e6 * seconds, "per_s": 1 / seconds, "batch": truth.batch,
        "samples": samples, "tokens": truth.length * samples, "of_gpu": samples / 8, "between": seconds * truth.every,
        "epoch": 500 * seconds, "comma": f"{seconds:.4f}".replace(".", ","), "total": total,
    }  # fmt: skip
    own = []
    for step in range(truth.start, total, truth.every):
        now = 1_709_596_800 + step * seconds
        stamp = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
        bar = f"{100 * step // total:3d}%|###   | {step}/{total} [00:55<01:07, {speed}, loss=2.3]"
        at = {"step": step, "stamp": stamp, "clock": now, "bar": bar, "seen": step * truth.batch}  # fmt: skip
        own.append(style.format(**told, **at, since=7 + step * seconds))
    for place, text in noise:
        own.insert(place % truth.lines, text)
    return own


def read(lines: list[str], truth: Truth) -> StepTimes:
    return read_step_times(lines, warmup=0, batch_size=truth.batch)


noises = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(NOISE)), max_size=12)


@pytest.mark.parametrize("name", KNOWN)
@examples(25, quick=8)
@given(truth=truths, noise=noises)
def test_what_was_written_in_a_known_style_is_read_back(
    name: str, truth: Truth, noise: list[tuple[int, str]]
) -> None:
    found = read(write(KNOWN[name], truth, noise), truth)
    assert found.per == "step"
    assert found.median_s == pytest.approx(truth.seconds, rel=0.05)
    if name in STYLES["steps"]:
        assert len(found) == truth.lines


@pytest.mark.parametrize("name", STYLES["doubtful"])
@examples(25, quick=8)
@given(truth=truths, noise=noises)
def test_what_is_in_doubt_is_refused_or_right(
    name: str, truth: Truth, noise: list[tuple[int, str]]
) -> None:
    lines = write(STYLES["doubtful"][name], truth, noise)
    try:
        found = read(lines, truth)
    except InputError:
        refused("In question:\n  line", read, lines, truth)
    else:
        of_step = truth.seconds / (
            truth.batch * truth.length if found.per == "token" else 1
        )
        assert found.median_s == pytest.approx(of_step, rel=0.05)


@examples(25, quick=8)
@given(truth=truths, noise=st.lists(st.sampled_from(NOISE), min_size=1, max_size=30))
def test_noise_alone_is_refused(truth: Truth, noise: list[str]) -> None:
    refused("tells no step times", read, noise, truth)


@pytest.mark.parametrize("name", [*STYLES["steps"], *STYLES["rates"]])
@examples(25, quick=8)
@given(truth=truths)
def test_single_characters_that_change_do_no_more_than_their_line(
    name: str, truth: Truth
) -> None:
    lines = write(KNOWN[name], truth)
    rng = np.random.default_rng(truth.lines)
    at = int(rng.integers(len(lines)))
    # A log whose last line was cut short, or two programs writing to one.
    lines[at] = lines[at][: int(rng.integers(len(lines[at])))]
    assert read(lines, truth).median_s == pytest.approx(truth.seconds, rel=0.05)
