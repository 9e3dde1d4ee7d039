"""How a command shows its progress and notes: a bar on a terminal, plain lines elsewhere, always on standard error."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from bft.replay.inputs.notes import Watcher

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

# Seconds between two updates of the bar: a replay takes thousands of steps a second.
REFRESH_S = 0.1


class Output:
    """A stream that may be closed, full or a terminal that is gone: what is shown must not end a replay of hours.

    Parameters
    ----------
    stream
        Where text goes; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr

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


def console() -> Console:
    """Return a console on standard error, for what shows the progress of a command."""
    from rich.console import Console

    return Console(file=cast("TextIO", Output()), stderr=True)


class PlainLines(Watcher, AbstractContextManager["PlainLines"]):
    """One line for each tenth of a replay, for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = Output(stream)
        self._start = self._end = self._next = 0

    def __exit__(self, *error: object) -> None:
        self.stream.flush()

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""
        self._start, self._end, self._next = start_ns, max(end_ns, start_ns + 1), 1
        self._write(f"{name}: {day(start_ns)} to {day(end_ns)}")

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""
        tenth = (now_ns - self._start) * 10 // (self._end - self._start)
        if tenth >= self._next:
            self._next = tenth + 1
            self._write(f"  {tenth * 10} %  {day(now_ns)}  {decisions} decisions")

    def note(self, text: str) -> None:
        """Something worth knowing, not an error."""
        self._write(f"note: {text}")

    def done(self) -> None:
        """All stages have come to their end."""

    def _write(self, line: str) -> None:
        self.stream.write(f"{line}\n")
        self.stream.flush()


def bar(share: ProgressColumn, console: Console) -> Progress:
    """A bar with the time left, whatever the width: where that is small, the bar and the text behind it give way.

    It is drawn when it is told to (`refresh=True`), by the thread that works: a second one would write to a terminal
    that is gone, and be there still when Python ends.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    return Progress(
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, max_width=24),
        ),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        share,
        TimeRemainingColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn(
            "{task.fields[text]}",
            markup=False,
            table_column=Column(no_wrap=True, ratio=2),
        ),
        console=console,
        auto_refresh=False,
        expand=True,
    )


class Bar(Watcher):
    """A bar with the event's time, decisions a second and the time left."""

    def __init__(self) -> None:
        from rich.progress import TaskID, TaskProgressColumn

        self._console = console()
        self._progress = bar(TaskProgressColumn(), self._console)
        self._task: TaskID | None = None
        self._began = self._shown = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""
        self._finish()
        self._start = start_ns
        self._task = self._progress.add_task(name, total=end_ns - start_ns, text="")
        self._began = time.monotonic()

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""
        now = time.monotonic()
        if self._task is None or now - self._shown < REFRESH_S:
            return
        self._shown = now
        speed = decisions / max(now - self._began, 1e-9)
        self._progress.update(
            self._task,
            completed=now_ns - self._start,
            text=f"{day(now_ns)}  {speed:,.0f} decisions/s",
            refresh=True,
        )

    def note(self, text: str) -> None:
        """Something worth knowing, not an error."""
        self._console.print(f"note: {text}", markup=False, highlight=False)

    def done(self) -> None:
        """All stages have come to their end."""
        self._finish()

    def _finish(self) -> None:
        if self._task is not None:  # all jobs may have finished before the trace ends
            total = self._progress.tasks[self._task].total
            self._progress.update(self._task, completed=total, refresh=True)


class StageBar(Bar):
    """One bar over all stages of a command, on a terminal; the command line of each stage is a line of its own.

    Parameters
    ----------
    stages
        How many there are.
    quiet
        Whether nothing is shown.
    """

    def __init__(self, stages: int, *, quiet: bool = False) -> None:
        super().__init__()
        self._console.quiet = quiet
        self._progress.disable = quiet or not self._console.is_terminal
        self._stages, self._begun = stages, 0
        self._told: set[str] = set()
        self._all = self._progress.add_task("", total=stages, text="")

    def begin(self, name: str, command: str, *, done: bool = False) -> None:
        """A stage begins, which this command line does as well; `done`: its output is there already."""
        self._begun, self._shown = self._begun + 1, 0.0
        there = " (is there)" if done else ""
        self._line(f"{self._begun}/{self._stages} {name}{there}: {command}")
        self._progress.update(self._all, description=name)
        self.share(0.0)

    def share(self, done: float) -> None:
        """So much of the stage is done, from 0 to 1."""
        now = time.monotonic()
        if now - self._shown >= REFRESH_S or done >= 1.0:
            self._shown = now
            so_far = self._begun - 1 + done
            self._progress.update(self._all, completed=so_far, refresh=True)

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""
        self._start, self._span = start_ns, max(end_ns - start_ns, 1)

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""
        self.share((now_ns - self._start) / self._span)

    def note(self, text: str) -> None:
        """Something worth knowing, not an error; what several replays have is told once."""
        if text not in self._told:
            self._told.add(text)
            self._line(f"note: {text}")

    def _line(self, text: str) -> None:
        # Whole, so that a command can be copied.
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def day(instant_ns: int) -> str:
    """Return an instant to the second, as `2021-02-10 04:51:56`."""
    import numpy as np  # here, so that commands which replay nothing start quickly

    return (
        str(np.datetime64(instant_ns, "ns").astype("datetime64[s]")).replace("T", " ")
        if instant_ns
        else ""
    )
