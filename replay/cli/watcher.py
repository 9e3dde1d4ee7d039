"""How a command shows its progress and notes: a bar on a terminal, plain lines elsewhere, always on standard error."""

from __future__ import annotations

import io
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from bft.replay.cli.commands import fitted, quiet, say_warning
from bft.replay.inputs.notes import Watcher

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

# Seconds between two updates of the bar: a replay takes thousands of steps a second.
REFRESH_S = 0.1


class Output:
    """A stream that may be closed, full or a terminal that is gone: what is shown must not end a replay of hours."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text, where the stream takes it."""
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what the stream has kept back."""
        with suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)  # what rich asks of a file: isatty, encoding


def bar(console: Console) -> Progress:
    """A bar with the time left, whatever the width: where that is small, the bar and the text behind it give way.

    It is drawn when it is told to (`refresh=True`), by the thread that works: a second one would write to a terminal
    that is gone, and be there still when Python ends.
    """
    from rich import progress
    from rich.table import Column

    name, text = Column(no_wrap=True, max_width=24), Column(no_wrap=True, ratio=2)
    left = Column(no_wrap=True, min_width=7)
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False, table_column=name),
        progress.BarColumn(bar_width=None, table_column=Column(ratio=1)),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(table_column=left),
        progress.TextColumn("{task.fields[text]}", markup=False, table_column=text),
        console=console,
        auto_refresh=False,
        expand=True,
    )


class Shown(Watcher):
    """Shows how far a replay, a study or an evaluation is, and notes on it.

    Parameters
    ----------
    stream
        Where a line is written for each tenth; None: standard error, where a terminal gets a bar.
    drawn
        Whether there is a bar. [on a terminal]
    stages
        How many stages an evaluation has.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        drawn: bool | None = None,
        stages: int = 0,
    ) -> None:
        self._out = cast("TextIO", Output(stream or sys.stderr))
        self._bar: Progress | None = None
        if drawn or (drawn is None and stream is None and sys.stderr.isatty()):
            from rich.console import Console

            self._bar = bar(Console(file=self._out, stderr=True))
        self._task: TaskID | None = None
        self._stages, self._begun = stages, 0
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, name: str, total: float, text: str = "") -> None:
        """Something begins that will have come to `total`."""
        self.done()
        self._total, self._shown, self._tenth = max(total, 1), 0.0, 1
        if self._bar is None:
            self.line(f"{name}: {text}")
        else:
            self._task = self._bar.add_task(name, total=total, text=text)

    def move(self, done: float, text: str) -> None:
        """It has come so far."""
        if self._due(done):
            self._show(done, text)

    def _due(self, done: float) -> bool:
        if self._bar is None:
            return done * 10 >= self._tenth * self._total
        return time.monotonic() - self._shown >= REFRESH_S or done >= self._total

    def _show(self, done: float, text: str) -> None:
        if self._bar is None:
            tenth = int(done * 10 // self._total)
            self._tenth = tenth + 1
            self.line(f"  {tenth * 10} %  {text}")
        elif self._task is not None:
            self._shown = time.monotonic()
            self._bar.update(self._task, completed=done, text=text, refresh=True)

    def done(self) -> None:
        """It has come to its end, as when all jobs have finished before the trace ends."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._total, refresh=True)

    def line(self, text: str) -> None:
        """Show a line, whole, so that a command can be copied."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self._out.write(f"{text}\n")
            self._out.flush()

    def note(self, text: str) -> None:
        """Something worth knowing, not an error; what several replays have is told once."""
        if text not in self._told:
            self._told.add(text)
            self.line(fitted(f"note: {text}", self._out))

    # A replay.

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""
        self._start_ns, self._span = start_ns, max(end_ns - start_ns, 1)
        if not self._stages:
            self.start(name, self._span, f"{day(start_ns)} to {day(end_ns)}")

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""
        done = now_ns - self._start_ns
        if self._stages:
            self.share(done / self._span)
        elif self._due(done):
            self._show(done, f"{day(now_ns)}  {decisions} decisions")

    # A study.

    def begins(self, points: int, done: int, workers: str) -> None:
        """A study of so many replays begins, of which some were done before."""
        self._points, self._done = points, done
        there = f", {done} done before" if done else ""
        by = f"by {workers}" if points > done else ""
        self.start(f"{points} replays{there}", points, by)

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """A replay of a study is done, or has failed."""
        if error is not None:
            say_warning(f"{label} failed: {error}")
        self._done += 1
        self.move(self._done, f"{self._done} of {self._points}  {label}")

    # An evaluation.

    def begin(self, name: str, command: str, *, done: bool = False) -> None:
        """A stage begins, which this command line does as well; `done`: its output is there already."""
        if not self._begun:
            self.start("evaluation", self._stages)
        self._begun, self._name = self._begun + 1, name
        there = " (is there)" if done else ""
        self.line(f"{self._begun}/{self._stages} {name}{there}: {command}")

    def share(self, done: float) -> None:
        """So much of the stage is done, from 0 to 1."""
        self.move(self._begun - 1 + done, self._name)


def watching(log: TextIO | None = None, *, stages: int = 0) -> Shown:
    """Return what shows the progress of a command on standard error, or in a log; nothing with --quiet."""
    return Shown(io.StringIO() if log is None and quiet() else log, stages=stages)


def day(instant_ns: int) -> str:
    """Return an instant to the second, as `2021-02-10 04:51:56`."""
    import numpy as np  # here, so that commands which replay nothing start quickly

    if not instant_ns:
        return ""
    return str(np.datetime64(instant_ns, "ns").astype("datetime64[s]")).replace(
        "T", " "
    )
