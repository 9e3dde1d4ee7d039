"""Notes on a run, and those who watch it: what the library tells, and nothing of how it is shown."""

from __future__ import annotations

from bft.models.errors import printable


class Watcher:
    """An object that shows the progress of a run and the notes on it; this one shows nothing."""

    def stage(self, name: str, start_ns: int, end_ns: int) -> None:
        """A replay of the window [start_ns, end_ns] begins."""

    def at(self, now_ns: int, decisions: int) -> None:
        """The replay has reached an instant."""

    def note(self, text: str) -> None:
        """Something worth reporting that changes or explains a result, not an error."""

    def begin(self, name: str, command: str, *, done: bool = False) -> None:
        """A stage of an evaluation begins, which this command line does as well; `done`: its output is there."""

    def share(self, done: float) -> None:
        """So much of the stage is done, from 0 to 1."""


class Notes(Watcher):
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
