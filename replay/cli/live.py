"""`--live`: the state of a replay, as a table on a terminal and as lines elsewhere. Always on standard error."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import ClassVar

from rich.live import Live
from rich.table import Table

from bft.replay.cli.watcher import PlainLines, console, day
from bft.replay.results.live_figures import Figures

# Seconds of wall time between two updates of the table, and between two lines.
TABLE_S, LINES_S = 0.25, 10.0


class Viewer(ABC):
    """Keeps the clock and the figures of the running replay, and shows them at intervals of wall time."""

    every_s: ClassVar[float]
    _name: str | None = None  # a run may have several replays, one after another
    _figures: Figures | None = None  # there are none with --compat reference

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""
        self._name, self._figures = name, None
        self._start, self._span = start_ns, max(end_ns - start_ns, 1)
        self._now, self._decisions = start_ns, 0
        self._began, self._shown = time.monotonic(), -math.inf

    def follow(self, figures: Figures) -> None:
        """Show the figures of the replay that begins."""
        self._figures = figures

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""
        self._now, self._decisions = now_ns, decisions
        if time.monotonic() - self._shown >= self.every_s:
            self._show()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield label and value of all figures."""
        self._shown = time.monotonic()
        share = min(max((self._now - self._start) / self._span, 0.0), 1.0)
        speed = self._decisions / max(self._shown - self._began, 1e-9)
        yield "time", f"{day(self._now)} ({share:.0%})"
        yield "decisions", f"{self._decisions}, {speed:,.0f} per second"
        if self._figures is not None:
            yield from self._figures.lines()

    @abstractmethod
    def _show(self) -> None:
        """Show the figures, if a replay has begun."""


class LiveLines(Viewer, PlainLines):
    """A viewer that prints one line every few seconds of wall time, for logs and pipes; the last at the end."""

    every_s = LINES_S

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._show()
        super().__exit__(kind, error, trace)

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""
        self._show()
        PlainLines.stage(self, name, start_ns, end_ns)
        Viewer.stage(self, name, start_ns, end_ns)

    def _show(self) -> None:
        if self._name is not None:
            figures = (f"{label}: {value}" for label, value in self.lines())
            self._write(f"  {'  '.join(figures)}")


class LiveTable(Viewer):
    """A table that is drawn anew a few times a second; the last one stays."""

    every_s = TABLE_S

    def __init__(self) -> None:
        self._console = console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._show()
        self._live.stop()

    def note(self, text: str) -> None:
        """Something worth knowing, not an error."""
        self._console.print(f"note: {text}", markup=False, highlight=False)

    def done(self) -> None:
        """Mark all replays as done: they have come to their end."""

    def _show(self) -> None:
        if self._name is None:
            return
        table = Table(
            title=self._name,
            title_justify="left",
            show_header=False,
            box=None,
            pad_edge=False,
        )
        for label, value in self.lines():
            table.add_row(label, value)
        self._live.update(table, refresh=True)


def live() -> LiveTable | LiveLines:
    """Whoever shows how a replay stands, where standard error goes."""
    return LiveTable() if sys.stderr.isatty() else LiveLines()
