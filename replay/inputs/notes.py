"""Notes on a run, and those who watch it: what the library tells, and nothing of how it is shown."""

from __future__ import annotations

from typing import Protocol

from bft.models.errors import printable


class NoteTaker(Protocol):
    """An object that receives notes on everything that changes a result."""

    def note(self, text: str) -> None:
        """Something worth reporting, not an error."""


class Watcher(NoteTaker, Protocol):
    """An object that shows the progress of a run."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""


class Silent:
    """A watcher that shows nothing."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """Show nothing of a replay that begins."""

    def at(self, now_ns: int, decisions: int) -> None:
        """Show nothing of the instant that a replay has reached."""

    def note(self, text: str) -> None:
        """Show no note."""


class Notes:
    """Notes on what changes or explains a result: shown at once, and kept for the summary and the report.

    Notes that concern only this process, such as where it resumed, go to the watcher directly: a summary must not
    depend on it.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.kept: list[str] = []

    def note(self, text: str) -> None:
        """Show a sentence and keep it; repeated sentences only once."""
        text = printable(text)
        if text not in self.kept:
            self.kept.append(text)
            self._watcher.note(text)
