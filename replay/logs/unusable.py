"""Why a record of a log cannot be used; `records.each_record` accounts for what is raised."""

from __future__ import annotations


class Unusable(Exception):  # noqa: N818 - it ends the reading of a record, not the program
    """A record that should have said something of nodes and cannot be read; see `Diagnosis.skip`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class Foreign(Unusable):
    """A line that is no record of the format at all."""


class LeftOut(Exception):  # noqa: N818
    """A record of a kind that says nothing of nodes; see `Diagnosis.leave_out`."""
