"""Whoever shows how far a replay has come."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Whoever shows how far a run has come."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""

    def note(self, text: str) -> None:
        """Something worth telling, not an error."""


class Silent:
    """A watcher that shows nothing."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """Show nothing."""

    def at(self, now_ns: int, decisions: int) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""
