"""ξ of two commands, measured: run alone and together, in turn, and reading step times from what they print."""

from __future__ import annotations

import contextlib
import math
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import termios
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from bft.models import InputError
from bft.models.measure.gpu_usage import Gauge, Usage, usage_of
from bft.models.measure.training_log import read_step_times
from bft.models.measure.xi_measurements import mean_step_s

# Seconds that processes have to end by themselves before they are killed.
GRACE_S: Final = 5.0
POLL_S: Final = 0.05
TAIL_LINES: Final = 8
# Progress bars draw as wide as the terminal is.
TERMINAL: Final = (50, 200)
# Which GPUs a process may use, by vendor.
VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a measurement: rounds, steps, limits, devices.

    Parameters
    ----------
    repeats
        Rounds of the three runs (A alone, B alone, both), at least 2: their spread gives the interval. Every other
        round goes backwards, so that a machine that warms up or drifts favours neither.
    steps
        Least step times that count in each run.
    at_least_s
        Least seconds over which they count: jobs that take turns of several steps need many turns.
    warmup
        Step times at the start of each run that do not.
    time_limit_s
        Seconds that a run may take.
    pattern
        How to read step times, see `bft.models.read_step_times`; None: the first preset that fits.
    confidence
        Of the intervals, in (0, 1).
    devices
        GPUs that both commands may use, by their numbers; empty: as this process may.
    """

    repeats: int = 3
    steps: int = 50
    at_least_s: float = 5.0
    warmup: int = 10
    time_limit_s: float = 600.0
    pattern: str | None = None
    confidence: float = 0.95
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Slowdown:
    """ξ of one side.

    Parameters
    ----------
    xi, low, high
        Ratio and its confidence interval, each at least 1.
    raw
        The ratio before clipping; below 1 it is noise.
    alone_s, shared_s
        Mean seconds of a step in each round.
    usage
        What it did to its GPUs alone, over all rounds; None where nobody read them.
    """

    xi: float
    low: float
    high: float
    raw: float
    alone_s: tuple[float, ...]
    shared_s: tuple[float, ...]
    usage: Usage | None = None


def measure(
    commands: tuple[Sequence[str], Sequence[str]],
    plan: Plan,
    note: Callable[[str], None],
    gauge: Gauge | None = None,
) -> tuple[Slowdown, Slowdown]:
    """Run two commands alone and together, and measure how much each slows down with the other.

    Of the runs together, only steps count during which both had passed their warm-up and neither had ended.
    Both commands are ended before this returns or raises, with their children, unless these left their session.

    Parameters
    ----------
    commands
        A and B: program and arguments.
    plan
        How.
    note
        Called with what runs now.
    gauge
        Reads the GPUs while a command runs alone, after its warm-up; None: no reading.

    Raises
    ------
    InputError
        When a command cannot be started, fails, ends too early, prints no step times or runs into the time limit; with
        the end of its output.
    """
    _step_seconds([], plan.pattern)  # an invalid one is reported before anything runs
    sides = dict(zip("AB", commands, strict=True))
    alone: dict[str, list[float]] = {"A": [], "B": []}
    shared: dict[str, list[float]] = {"A": [], "B": []}
    before: dict[str, pd.DataFrame] = {}
    samples: dict[str, list[pd.DataFrame]] = {"A": [], "B": []}
    for turn in range(plan.repeats):
        for names in ("A", "B", "AB") if turn % 2 == 0 else ("AB", "B", "A"):
            doing = "both together" if names == "AB" else f"{names} alone"
            note(f"round {turn + 1} of {plan.repeats}: {doing}")
            run = {name: sides[name] for name in names}
            if names == "AB":
                seconds, _, _ = _run(run, plan, None)
            else:
                seconds, before[names], seen = _run(run, plan, gauge)
                samples[names] += seen
            for name, value in zip(names, seconds, strict=True):
                (shared if names == "AB" else alone)[name].append(value)
    # Memory counts above what was in use before the last run.
    first, second = (
        slowdown(
            alone[name],
            shared[name],
            plan.confidence,
            usage_of(before[name], samples[name]) if gauge else None,
        )
        for name in "AB"
    )
    return first, second


def slowdown(
    alone_s: Sequence[float],
    shared_s: Sequence[float],
    confidence: float,
    usage: Usage | None = None,
) -> Slowdown:
    """ξ from the mean step times of each round, seconds, alone and together.

    A round is one observation, log(shared / alone): steps of one run depend on each other, rounds hardly do. The
    ratio is the geometric mean, its interval Student's t of the paired differences of logarithms; with two or three
    rounds it is wide, and honestly so.

    Raises
    ------
    ValueError
        With fewer than two rounds.
    """
    from scipy.stats import t

    logs = np.log(shared_s) - np.log(alone_s)
    if len(logs) < 2:
        raise ValueError("an interval needs at least two rounds")
    middle = float(logs.mean())
    reach = float(
        t.ppf((1 + confidence) / 2, len(logs) - 1)
        * logs.std(ddof=1)
        / math.sqrt(len(logs))
    )
    ends = middle, middle - reach, middle + reach
    xi, low, high = (max(math.exp(x), 1.0) for x in ends)
    raw, means = math.exp(middle), (tuple(alone_s), tuple(shared_s))
    return Slowdown(xi, low, high, raw, *means, usage)


def _run(
    commands: Mapping[str, Sequence[str]], plan: Plan, gauge: Gauge | None
) -> tuple[list[float], pd.DataFrame, list[pd.DataFrame]]:
    """Mean seconds of a step of each command, over steps that began and ended while all were training.

    Also the devices before they began, and meanwhile.
    """
    before = gauge.once() if gauge else pd.DataFrame()
    doing = "alone" if len(commands) == 1 else "beside the other"
    with ExitStack() as running:
        processes = [
            running.enter_context(closing(_Process(name, command, plan.devices)))
            for name, command in commands.items()
        ]
        deadline = time.monotonic() + plan.time_limit_s
        warming = f"of warm-up {doing}"
        none = [0] * len(processes)
        _await(processes, none, plan, plan.warmup, 0.0, deadline, warming)
        since = [len(process.lines) for process in processes]
        samples = running.enter_context(gauge.watching()) if gauge else []
        # The step under way when all were warm began before: one more is needed, and dropped.
        steps = plan.steps + 1
        paces = _await(processes, since, plan, steps, plan.at_least_s, deadline, doing)
        return [mean_step_s(seconds[1:]) for seconds in paces], before, samples


def _await(
    processes: Sequence[_Process],
    since: Sequence[int],
    plan: Plan,
    wanted: int,
    at_least_s: float,
    deadline: float,
    doing: str,
) -> list[list[float]]:
    """Seconds of the steps of each process in its lines from `since` on: `wanted` or more, while all of them run."""
    until = min(time.monotonic() + at_least_s, deadline)
    while True:
        running = [process.read(POLL_S / len(processes)) for process in processes]
        matches = [
            process.step_seconds(plan.pattern, first, running=alive)
            for process, first, alive in zip(processes, since, running, strict=True)
        ]
        if all(len(seconds) >= wanted for seconds in matches):
            if time.monotonic() >= until or not all(running):
                return matches
            continue
        for process, seconds, alive in zip(processes, matches, running, strict=True):
            so_far = f"{len(seconds)} of {wanted} step times {doing}"
            for other in matches:
                so_far += "" if other is seconds else f" (which had {len(other)})"
            process.expect_more(alive, deadline, so_far)


class _Process:
    """A command whose output goes to a terminal of its own, because programs buffer what they write to a pipe."""

    def __init__(
        self, name: str, command: Sequence[str], devices: Sequence[int]
    ) -> None:
        self.name = f"{name} ({shlex.join(command)})"
        self.lines: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._rest = ""
        self._found: tuple[tuple[int, int], list[float]] = ((0, 0), [])
        self._look_after = 0.0
        visible = dict.fromkeys(VISIBLE, ",".join(map(str, devices))) if devices else {}
        self._terminal, child_end = pty.openpty()
        try:
            termios.tcsetwinsize(child_end, TERMINAL)
            self._process = subprocess.Popen(  # noqa: S603 - running the user's commands is the task
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=child_end,
                stderr=child_end,
                start_new_session=True,
                env={**os.environ, **visible, "PYTHONUNBUFFERED": "1"},
            )
        except OSError as error:
            os.close(self._terminal)
            raise InputError(
                f"command {self.name} cannot be started: {error.strerror or error}"
            ) from error
        finally:
            os.close(child_end)

    def read(self, patience_s: float) -> bool:
        """Read the command's output for `patience_s`; return whether it was running at the start."""
        running = (
            self._process.poll() is None
        )  # before reading: what an ended process printed is then all there
        until = time.monotonic() + patience_s
        while select.select(
            [self._terminal], [], [], max(until - time.monotonic(), 0.0)
        )[0]:
            chunk = b""
            with contextlib.suppress(OSError):  # the terminal's other end is closed
                chunk = os.read(self._terminal, 1 << 16)
            if not chunk:
                time.sleep(max(until - time.monotonic(), 0.0))
                break
            *whole, self._rest = re.split(
                r"[\r\n]+", self._rest + chunk.decode("utf-8", "replace")
            )
            self._tail += [line for line in whole if line.strip()]
            self.lines += [
                line for line in whole if any(map(str.isdigit, line))
            ]  # no number, no time
            if time.monotonic() >= until:
                break
        return running

    def step_seconds(
        self, pattern: str | None, first: int = 0, *, running: bool
    ) -> list[float]:
        """Seconds of each step in its lines from `first` on; of a running process they may be some lines old."""
        lines_read, now = (first, len(self.lines)), time.monotonic()
        same = self._found[0][0] == first
        if self._found[0] != lines_read and (
            not same or not running or now >= self._look_after
        ):
            self._found = lines_read, _step_seconds(self.lines[first:], pattern)
            # Reading uses the processor that is being measured: at most a fiftieth of the time.
            self._look_after = time.monotonic() + 50 * (time.monotonic() - now)
        return self._found[1]

    def expect_more(self, running: bool, deadline: float, so_far: str) -> None:
        """Raise when nothing more is to come: it has ended, or its time is up."""
        if running and time.monotonic() < deadline:
            return
        if running:
            failure = "ran into the time limit"
            advice = "--time-limit gives it longer, --pattern describes its lines; "
        elif code := self._process.wait():
            failure, advice = f"failed with exit code {code}", ""
        else:
            failure = "ended"
            advice = "let it train longer or ask for fewer --steps; --pattern describes its lines; "
        last = [*self._tail, *([self._rest] if self._rest.strip() else [])]
        printed = "".join(f"\n  | {line}" for line in last) if last else " nothing"
        raise InputError(
            f"command {self.name} {failure} after {so_far}; {advice}it printed{printed}"
        )

    def close(self) -> None:
        """End the command with its children."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                # The group lives on when its leader has ended.
                os.killpg(self._process.pid, number)
            until = time.monotonic() + GRACE_S
            while time.monotonic() < until and self._process.poll() is None:
                self.read(POLL_S)  # a process blocked on a full terminal cannot end
        os.close(self._terminal)


def _step_seconds(lines: Sequence[str], pattern: str | None) -> list[float]:
    """Seconds of each step (or of a sample, in any unit that is the same in all runs) in these lines."""
    try:
        # A batch size of 1 turns samples/s into s/sample, whether or not these lines name the batch size.
        times = read_step_times(lines, pattern, batch_size=1.0, warmup=0)
        return list(map(float, times.seconds))
    except InputError as error:
        if not error.what.startswith("tells no step times"):
            raise
        return []
