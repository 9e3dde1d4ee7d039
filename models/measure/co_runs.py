"""ξ of two commands, measured: alone and together, in turn, by the step times that they print; and tables of it."""

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
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from bft.models.cells import Rows
from bft.models.errors import InputError
from bft.models.learned.packing import sharing_scores
from bft.models.measure.gpu_usage import Gauge, Usage, usage_of
from bft.models.measure.training_log import read_step_times
from bft.models.measure.xi_measurements import PAIR_COLUMNS, label_of, mean_step_s
from bft.models.sharing.xi_table import xi_from_frame
from bft.models.tables import read_table

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


# --- a whole table, kept after each pair: what was measured is not measured again ---

XI, PROFILES = "xi.csv", "profiles.csv"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Configuration of a training: its model, batch size (None: not stated) and command."""

    model: str
    batch: float | None
    command: tuple[str, ...]

    def __str__(self) -> str:
        return label_of(self.model, self.batch)


Pair = tuple[Configuration, Configuration]


def read_configurations(path: str | Path) -> list[Configuration]:
    r"""Read trainings: columns model, command and, optionally, batch. `{batch}` in a command is replaced by the batch.

    Raises
    ------
    InputError
        Naming file, row and column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "trainings.csv")
    ...     _ = file.write_text("model,command,batch\nbert,python bert.py --batch {batch},32\n")
    ...     read_configurations(file)[0].command
    ('python', 'bert.py', '--batch', '32')
    """
    configurations: dict[tuple[str, float | None], Configuration] = {}
    for row in Rows(read_table(path), path).require(("model", "command"), ("batch",)):
        model, batch = row.name("model"), row.number("batch", None, above=0)
        text = row.name("command")
        if "{batch}" in text and batch is None:
            raise row.error(
                "batch", "expected a number > 0, to replace {batch} in the command"
            )
        try:
            command = shlex.split(
                text.replace("{batch}", "" if batch is None else f"{batch:g}")
            )
        except ValueError as error:
            raise row.error("command", f"not a command: {error}") from None
        if (model, batch) in configurations:
            raise row.error("model", f"{label_of(model, batch)} appears twice")
        configurations[model, batch] = Configuration(model, batch, tuple(command))
    if not configurations:
        raise InputError(
            "the table is empty; expected rows with model and command", file=path
        )
    return list(configurations.values())


def read_pairs(path: str | Path, configurations: Sequence[Configuration]) -> list[Pair]:
    """Read which pairs to measure: columns model_a, model_b and, optionally, batch_a, batch_b, as `xi show` writes.

    A row without batch size means all of its model's.

    Raises
    ------
    InputError
        When a row names what the configurations do not have.
    """
    pairs: dict[frozenset[Configuration], Pair] = {}
    for row in Rows(read_table(path), path).require(
        ("model_a", "model_b"), ("batch_a", "batch_b")
    ):
        sides = []
        for side in "ab":
            model = row.name(f"model_{side}")
            batch = row.number(f"batch_{side}", None, above=0)
            named = [each for each in configurations if each.model == model]
            sides.append([each for each in named if batch in (None, each.batch)])
            if not sides[-1]:
                raise row.error(
                    f"model_{side}",
                    f"no command for {label_of(model, batch)} in the table of trainings",
                )
        for a, b in product(*sides):
            pairs.setdefault(frozenset((a, b)), (a, b))
    return list(pairs.values())


def xi_row(
    pair: Mapping[str, Any], sides: tuple[Slowdown, Slowdown], repeats: int
) -> dict[str, Any]:
    """A row of a ξ table: what was measured together, the ratios with their intervals, and how often."""
    row = {name: pair[name] for name in PAIR_COLUMNS}
    for name, side in zip(("xi_a", "xi_b"), sides, strict=True):
        row |= {name: side.xi, f"{name}_low": side.low, f"{name}_high": side.high}
    return row | {"repeats": repeats}


class Collection:
    """The measurements in a folder: ξ, and profiles of trainings alone.

    Parameters
    ----------
    folder
        Made if it is not there.
    units
        Recorded with each pair: the number of units that the two share; None: not stated.
    replace
        Writes a table in the place of a file: called with the frame and the path.
    """

    def __init__(
        self,
        folder: str | Path,
        units: float | None,
        replace: Callable[[pd.DataFrame, Path], None],
    ) -> None:
        self._folder, self._units, self._replace = Path(folder), units, replace
        self._xi, self._profiles = self._read(XI), self._read(PROFILES)
        if self._xi:
            xi_from_frame(pd.DataFrame(self._xi), source=str(self._folder / XI))

    def done(self, pair: Pair) -> bool:
        """Whether the pair has been measured."""
        return _key(self._columns(pair)) in map(_key, self._xi)

    def measure(
        self, pair: Pair, plan: Plan, note: Callable[[str], None], gauge: Gauge | None
    ) -> None:
        """Measure a pair and keep the result, in the place of an earlier one.

        Raises
        ------
        InputError
            See `bft.models.measure.co_runs.measure`.
        """
        sides = measure((pair[0].command, pair[1].command), plan, note, gauge)
        row = xi_row(self._columns(pair), sides, plan.repeats)
        self._xi = [each for each in self._xi if _key(each) != _key(row)] + [row]
        known = {(each["model"], each.get("batch")): each for each in self._profiles}
        for each, side in zip(pair, sides, strict=True):
            alone = {"model": each.model, "batch": each.batch}
            alone["step_s"] = float(np.mean(side.alone_s))
            if side.usage is not None:
                alone |= {**asdict(side.usage), "amp": int(each.model.endswith("+amp"))}
            known[each.model, each.batch] = alone
        self._profiles = list(known.values())
        self._keep(XI, self._xi)
        self._keep(PROFILES, labelled(self._profiles, self._xi))

    def _columns(self, pair: Pair) -> dict[str, Any]:
        """What a row of the ξ table names of a pair."""
        a, b = pair
        names = (a.model, a.batch, b.model, b.batch, self._units)
        return dict(zip(PAIR_COLUMNS, names, strict=True))

    def _keep(self, name: str, rows: list[dict[str, Any]]) -> None:
        frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
        self._replace(frame, self._folder / name)

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self._folder / name
        if not path.exists():
            return []
        frame = read_table(path)
        rows = frame.astype(object).where(frame.notna(), None).to_dict(orient="records")
        return [{str(key): value for key, value in row.items()} for row in rows]


def _key(row: Mapping[str, Any]) -> tuple[object, ...]:
    """What was measured together, in either order; columns without any value were not written."""
    sides = sorted(
        (row[f"model_{end}"], row.get(f"batch_{end}") or 0.0) for end in "ab"
    )
    return (*sides, row.get("units") or 0.0)


def labelled(
    profiles: Sequence[dict[str, Any]], measured: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The profiles with the column `label`, the sharing score by all pairs measured of each; sorted."""
    pairs = [
        {
            f"{name}{number}": value
            for number, end in (("1", "a"), ("2", "b"))
            for name, value in (
                ("model", row[f"model_{end}"]),
                ("batchsize", row.get(f"batch_{end}") or 0.0),
                ("amp", 0),
                ("speed", 1 / max(row[f"xi_{end}"], 1.0)),
            )
        }
        for row in measured
    ]
    scores = sharing_scores(pd.DataFrame(pairs)).set_index(["model", "batchsize"])
    keyed = {(row["model"], row.get("batch") or 0.0): row for row in profiles}
    return [{**keyed[key], "label": int(scores["label"][key])} for key in sorted(keyed)]
