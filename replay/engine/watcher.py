"""Whoever shows how far a replay has come."""

from __future__ import annotations

from typing import Protocol


class NoteTaker(Protocol):
    """Whoever receives the notes on what changes a result."""

    def note(self, text: str) -> None:
        """Something worth reporting, not an error."""


class Watcher(NoteTaker, Protocol):
    """Whoever shows how far a run has come."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""


class Silent:
    """A watcher that shows nothing."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """Show nothing."""

    def at(self, now_ns: int, decisions: int) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


class Notes:
    """What changes a result, or explains it: shown at once, and kept for the summary and the report.

    What concerns this process alone, such as from where it resumed, goes to the watcher itself: a summary must not
    depend on it.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self.kept: list[str] = []

    def note(self, text: str) -> None:
        """Show a sentence and keep it; once, however often it is said."""
        if text not in self.kept:
            self.kept.append(text)
            self._watcher.note(text)
