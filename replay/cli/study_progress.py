"""What a user sees while a study runs: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import click

from bft.replay.cli.main import EXIT_INTERRUPTED, command_line
from bft.replay.cli.messages import quiet, say_error, say_progress, say_warning
from bft.replay.engine.watcher import bar


class StudyLines:
    """Progress of a study as one line for each point, with the time left by the mean wall time of a point."""

    def __enter__(self) -> StudyLines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Leave the progress of a study, of which lines leave nothing open."""

    def begins(self, points: int, done: int, workers: str) -> None:
        """Show the number of replays, and how many of them were done before."""
        self._todo, self._count, self._began = points - done, 0, time.monotonic()
        there = f", {done} done before" if done else ""
        say_progress(
            f"{points} replays{there}" + (f"; by {workers}" if self._todo else "")
        )

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """Show that a point is done, or has failed."""
        self._count += 1
        if error is not None:
            say_warning(f"{label} failed: {error}")
        left = (
            (time.monotonic() - self._began) / self._count * (self._todo - self._count)
        )
        time_left = f", {_time_left(left)} left" if left else ""
        say_progress(
            f"  {self._count} of {self._todo}  {label}  {seconds:.1f} s{time_left}"
        )


class StudyBar(StudyLines):
    """A bar of the points, with the time left."""

    def __enter__(self) -> StudyBar:
        from rich.console import Console
        from rich.progress import MofNCompleteColumn

        self._progress = bar(MofNCompleteColumn(), Console(stderr=True))
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def begins(self, points: int, done: int, workers: str) -> None:
        """Show the number of replays, and how many of them were done before."""
        self._task = self._progress.add_task(
            f"replays by {workers}", total=points, completed=done, text=""
        )

    def ended(self, label: str, error: str | None, seconds: float) -> None:
        """Show that a point is done, or has failed."""
        if error is not None:
            say_warning(f"{label} failed: {error}")
        self._progress.update(self._task, advance=1, text=label)


@contextmanager
def study_progress(*, again: bool) -> Iterator[StudyLines]:
    """Show how far a study has come while the block runs; an interrupt ends the command, saying how to go on.

    `again`: the command has --again, which would repeat what has been done.
    """
    try:
        with (
            StudyBar() if sys.stderr.isatty() and not quiet() else StudyLines() as lines
        ):
            yield lines
    except KeyboardInterrupt:
        same = "the same command without --again" if again else "the same command"
        say_error(
            f"Interrupted: replays that were done are kept, and {same} goes on from there:"
        )
        click.echo(command_line(without=("--again",)), err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def _time_left(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
