"""Training logs of known step times, written in many styles with other output between, and read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bft.models import InputError
from bft.models.measure.step_times import StepTimes
from bft.models.measure.training_log import read_step_times


@dataclass(frozen=True)
class Truth:
    """A training: steps of `seconds`, `batch` samples of `length` tokens each, logged every `every` steps."""

    seconds: float
    batch: int
    length: int
    every: int
    lines: int
    start: int


@dataclass(frozen=True)
class At:
    """One line of it."""

    truth: Truth
    step: int
    total: int

    @property
    def stamp(self) -> str:
        moment = datetime(2024, 3, 5, tzinfo=UTC) + timedelta(
            seconds=self.step * self.truth.seconds
        )
        return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    @property
    def ms(self) -> float:
        return 1e3 * self.truth.seconds

    @property
    def samples_s(self) -> float:
        return self.truth.batch / self.truth.seconds

    @property
    def bar(self) -> str:
        speed = (
            f"{self.truth.seconds:.3f}s/it"
            if self.truth.seconds > 1
            else f"{1 / self.truth.seconds:.3f}it/s"
        )
        return f"{100 * self.step // self.total:3d}%|###   | {self.step}/{self.total} [00:55<01:07, {speed}, loss=2.3]"


Style = Callable[[At], str]
STEPS: dict[str, Style] = {
    "step_time": lambda a: (
        f"step {a.step} loss 2.345 step_time={a.truth.seconds:.5f} lr 1e-4"
    ),
    "step_time in ms": lambda a: (
        f"Step {a.step:,}: loss=2.345, step_time_ms={a.ms:,.2f}, data_time=0.01"
    ),
    "thousands": lambda a: (
        f"iter {a.step:,} | iter time: {a.ms:,.1f} ms | {a.truth.length * a.samples_s:,.0f} tokens/s"
    ),
    "json": lambda a: json.dumps(
        {
            "step": a.step,
            "loss": 2.3,
            "step_time": round(a.truth.seconds, 6),
            "split": "train",
        }
    ),
    "python": lambda a: (
        f"{{'loss': 2.3, 'global_step': {a.step}, 'perf/step_time': {a.truth.seconds:.5f}, 'epoch': 0.1}}"
    ),
    "bar": lambda a: f"Epoch 0: {a.bar}",
    "bar, train": lambda a: f"Training: {a.bar}",
    "bar without a name": lambda a: f"{a.bar}",
    "keras": lambda a: (
        f"{a.step}/{a.total} [====] - 4s {1e6 * a.truth.seconds:.0f}us/step - loss: 2.3 - val_loss: 2.4"
    ),
    "keras 3": lambda a: (
        f"{a.step}/{a.total} ━━━━━━ 4s {a.ms:.3f}ms/step - accuracy: 0.1 - loss: 2.3"
    ),
    "megatron": lambda a: (
        f"[{a.stamp}] iteration {a.step:8d}/{a.total:8d} | consumed samples: {a.step * a.truth.batch:12d} | elapsed "
        f"time per iteration (ms): {a.ms:.2f} | global batch size: {a.truth.batch:5d} | number of nan iterations:   0 |"
    ),
    "llm.c": lambda a: (
        f"step {a.step:4d}/{a.total} | loss 7.5 (+nanz)| norm 1.2 (+nanz)| lr 1e-04 | {a.ms:.2f} ms | 55.6% bf16 MFU | "
        f"{a.truth.length * a.samples_s:.0f} tok/s"
    ),
    "nanogpt": lambda a: f"iter {a.step}: loss 2.3, time {a.ms:.2f}ms, mfu 3.21%",
    "imagenet": lambda a: (
        f"Epoch: [0][{a.step:4d}/{a.total}]\tTime {a.truth.seconds:6.5f} ({a.truth.seconds:6.5f})\tData  0.010 ( 0.012)"
    ),
    "mmengine": lambda a: (
        f"{a.stamp} - mmengine - INFO - Epoch(train)  [1][{a.step}/{a.total}]  lr: 2e-02  eta: 10:00:00  "
        f"time: {a.truth.seconds:.5f}  data_time: 0.010  memory: 4000"
    ),
    "slim": lambda a: (
        f"INFO:tensorflow:global step {a.step}: loss = 2.3456 ({a.truth.seconds:.5f} sec/step)"
    ),
    "estimator": lambda a: (
        f"INFO:tensorflow:global_step/sec: {1 / a.truth.seconds:.6f}"
    ),
    "deepspeed pipeline": lambda a: (
        f"steps: {a.step} loss: 2.3 iter time (s): {a.truth.seconds:.5f} samples/sec: {a.samples_s:.3f}"
    ),
}
RATES: dict[str, Style] = {
    "images/sec": lambda a: (
        f"{a.step}\timages/sec: {a.samples_s:.4f} +/- 0.5 (jitter = 1.2)\t7.6"
    ),
    "ips": lambda a: (
        f"global step {a.step}, loss: 2.3, ips: {a.samples_s:,.4f} sequences/s, lr: 1e-4"
    ),
    "deepspeed": lambda a: (
        f"[{a.stamp}] [INFO] [timer.py:260:stop] epoch=0/micro_step={4 * a.step}/global_step={a.step}, "
        f"RunningAvgSamplesPerSec={a.samples_s / 2:.4f}, CurrSamplesPerSec={a.samples_s:.5f}, MemAllocated=11.2GB"
    ),
    "samples beside tokens": lambda a: (
        f"step={a.step} tokens_per_sec={a.truth.length * a.samples_s:.1f} samples_per_sec={a.samples_s:.5f}"
    ),
}
CLOCKS: dict[str, Style] = {
    "stamps": lambda a: f"{a.stamp} | INFO | step {a.step} | loss 2.3",
    "stamps, python": lambda a: f"{a.stamp} INFO {{'loss': 2.3, 'step': {a.step:,}}}",
    "stamps of an epoch": lambda a: (
        f"[{a.stamp}] Epoch [1][{a.step}/{a.total}] loss: 2.3"
    ),
    "stamps, json": lambda a: json.dumps(
        {
            "timestamp": 1.6e9 + a.step * a.truth.seconds,
            "global_step": a.step,
            "loss": 2,
        }
    ),
}
# What may be read only with a pattern: a wrong answer is the one thing not allowed.
DOUBTFUL: dict[str, Style] = {
    "since the start": lambda a: (
        f"step {a.step} loss 2.3 time: {7 + a.step * a.truth.seconds:.4f}"
    ),
    "elapsed": lambda a: (
        f"step {a.step} loss 2.3 elapsed: {7 + a.step * a.truth.seconds:.4f} s"
    ),
    "time of the lines between": lambda a: (
        f"step {a.step} loss 2.3 time: {a.truth.seconds * a.truth.every:.4f}"
    ),
    "a time of something": lambda a: (
        f"loss 2.3 time: {a.truth.seconds * a.truth.every:.4f}"
    ),
    "heartbeat": lambda a: f"{a.stamp} heartbeat",
    "samples as a counter": lambda a: (
        f"{a.stamp} Train Epoch: 1 [{a.step * a.truth.batch}/999999999 (3%)]\tLoss: 2.3"
    ),
    "epochs": lambda a: (
        f"{a.stamp} Epoch {a.step}/{a.total} loss 2.3 time: {a.truth.seconds * 500:.4f}s"
    ),
    "a unit's rate": lambda a: f"step {a.step} {a.samples_s / 8:.4f} samples/s/gpu",
    "decimal comma": lambda a: f"step {a.step} step_time={a.truth.seconds:.4f}".replace(
        ".", ","
    ),
    "tokens": lambda a: (
        f"step {a.step} loss 2.3 {a.truth.length * a.samples_s:.4f} tokens/s"
    ),
}
# Lines that tell nothing of a training step, at speeds of their own.
NOISE = (
    "Loading checkpoint shards: 100%|######| 2/2 [00:05<00:00,  2.77s/it]",
    "Sanity Checking DataLoader 0:  50%|#####     | 1/2 [00:00<00:00, 97.5it/s]",
    "Validation DataLoader 0:  50%|#####     | 5/10 [00:00<00:00, 97.5it/s]",
    "Validation: step 5 step_time=0.0009",
    "Test: [ 10/196]\tTime 0.00091 (0.00093)\tAcc@1 12.5",
    "{'eval_loss': 2.1, 'eval_runtime': 12.5, 'eval_samples_per_second': 80000.0, 'eval_steps_per_second': 5001.3}",
    '{"epoch_time": 77.7, "val_step_time": 0.0008}',
    "Epoch 3 finished, epoch time: 777.7 s",
    "total time: 7777 s",
    "2024-03-05 00:00:00.000 saving checkpoint",
    "mmengine - INFO - Epoch(val)  [1][5/10]  eta: 0:00:01  time: 0.0008  data_time: 0.0001",
    "val loss 2.4, val acc 71.3",
    "max_steps=1000 warmup_steps=10 batch_size=32",
    "forward step time: 0.0007, optimizer_step_time=0.0006",
)

truths = st.builds(
    Truth,
    st.floats(0.02, 90),
    st.integers(1, 4096),
    st.integers(16, 4096),
    st.sampled_from([1, 2, 10, 50, 100]),
    st.integers(8, 25),
    st.sampled_from([0, 10, 995, 12_000]),
)


def write(style: Style, truth: Truth, noise: list[tuple[int, str]]) -> list[str]:
    """The log, each noise before one of its lines."""
    total = truth.start + truth.every * truth.lines
    own = [
        style(At(truth, truth.start + truth.every * k, total))
        for k in range(truth.lines)
    ]
    for at, text in noise:
        own.insert(at % truth.lines, text)
    return own


def read(lines: list[str], truth: Truth) -> StepTimes:
    return read_step_times(lines, warmup=0, batch_size=truth.batch)


noises = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(NOISE)), max_size=12)


@pytest.mark.parametrize("name", [*STEPS, *RATES, *CLOCKS])
@examples(25)
@given(truth=truths, noise=noises)
def test_what_was_written_in_a_known_style_is_read_back(
    name: str, truth: Truth, noise: list[tuple[int, str]]
) -> None:
    style = (STEPS | RATES | CLOCKS)[name]
    found = read(write(style, truth, noise), truth)
    assert found.per == "step"
    assert found.median_s == pytest.approx(truth.seconds, rel=0.05)
    if name in STEPS:
        assert len(found) == truth.lines


@pytest.mark.parametrize("name", DOUBTFUL)
@examples(25)
@given(truth=truths, noise=noises)
def test_what_is_in_doubt_is_refused_or_right(
    name: str, truth: Truth, noise: list[tuple[int, str]]
) -> None:
    lines = write(DOUBTFUL[name], truth, noise)
    try:
        found = read(lines, truth)
    except InputError:
        refused("In question:\n  line", read, lines, truth)
    else:
        of_step = truth.seconds / (
            truth.batch * truth.length if found.per == "token" else 1
        )
        assert found.median_s == pytest.approx(of_step, rel=0.05)


@examples(25)
@given(truth=truths, noise=st.lists(st.sampled_from(NOISE), min_size=1, max_size=30))
def test_noise_alone_is_refused(truth: Truth, noise: list[str]) -> None:
    refused("tells no step times", read, noise, truth)


@pytest.mark.parametrize("name", [*STEPS, *RATES])
@examples(25)
@given(truth=truths)
def test_single_characters_that_change_do_no_more_than_their_line(
    name: str, truth: Truth
) -> None:
    lines = write((STEPS | RATES)[name], truth, [])
    rng = np.random.default_rng(truth.lines)
    at = int(rng.integers(len(lines)))
    cut = int(rng.integers(len(lines[at])))
    lines[at] = lines[at][
        :cut
    ]  # a log whose last line was cut short, or two programs writing to one
    found = read(lines, truth)
    assert found.median_s == pytest.approx(truth.seconds, rel=0.05)
