"""The account of a log: what was used, what was not and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bft.models import InputError


@dataclass(slots=True)
class Tally:
    """How often something was met, and where first."""

    count: int
    file: str
    line: int
    detail: str = ""

    def __str__(self) -> str:
        if not self.line:  # of a file, or of all
            return self.detail
        return f"{self.count:,} (first: {self.file}, line {self.line}{f', {self.detail}' if self.detail else ''})"


class Diagnosis:
    """Accounts for every line of the logs that were read.

    A line is a **row** (the beginning of a record), or it holds none: blank, comment, header, the continuation of a
    record. Each row is **used**, **left out** because a record of its kind says nothing of nodes (a job step, a job
    that never started), or **skipped** because it should have said something and could not be read. `balance` holds
    the sums against each other: nothing is dropped silently.

    Parameters
    ----------
    strict
        Refuse the first row that would be skipped.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.lines = 0
        self.no_record = 0
        self.rows = 0
        self.used = 0
        self.skipped: dict[str, Tally] = {}
        self.left_out: dict[str, Tally] = {}
        self.notes: dict[str, Tally] = {}

    def skip(self, reason: str, file: str, line: int, detail: str = "") -> None:
        """A row that cannot be used. It counts as row already; `reason` has no values in it, `detail` has them.

        Raises
        ------
        InputError
            Under strict.
        """
        if self.strict:
            raise InputError(f"line {line}: {reason}{f': {detail}' if detail else ''}", file=file)
        _tally(self.skipped, reason, file, line, detail)

    def leave_out(self, reason: str, file: str, line: int, *, count: int = 1) -> None:
        """Rows of a kind that says nothing of nodes; the first is at `line`. Never an error."""
        if count:
            _tally(self.left_out, reason, file, line, "", count)

    def note(self, reason: str, file: str, line: int, detail: str = "") -> None:
        """Something worth telling about a row that is used, or (line 0) about a file. Never an error."""
        _tally(self.notes, reason, file, line, detail)

    def balance(self) -> None:
        """Check that every line and row is accounted for.

        Raises
        ------
        RuntimeError
            When a reader has lost count, which is a mistake of ours.
        """
        rest = _sum(self.skipped) + _sum(self.left_out)
        if self.rows != self.used + rest:
            raise RuntimeError(f"{self.rows} rows, but {self.used} used and {rest} skipped or left out")
        if self.lines != self.rows + self.no_record:
            raise RuntimeError(f"{self.lines} lines, but {self.rows} rows and {self.no_record} other lines")

    def losses(self) -> str:
        """Why rows were skipped or left out, in one line."""
        return "; ".join(f"{why}: {tally}" for why, tally in {**self.skipped, **self.left_out}.items())

    def as_dict(self) -> dict[str, Any]:
        """The account as plain values, for JSON."""
        return {
            "lines": self.lines,
            "rows": self.rows,
            "used": self.used,
            "skipped": _plain(self.skipped),
            "left_out": _plain(self.left_out),
            "notes": _plain(self.notes),
        }


def _tally(into: dict[str, Tally], reason: str, file: str, line: int, detail: str, count: int = 1) -> None:
    known = into.get(reason)
    if known is None:
        into[reason] = Tally(count, file, line, detail[:200])
    else:
        known.count += count


def _sum(of: dict[str, Tally]) -> int:
    return sum(tally.count for tally in of.values())


def _plain(of: dict[str, Tally]) -> list[dict[str, Any]]:
    return [
        {"reason": reason, "count": t.count, "file": t.file, "line": t.line, "detail": t.detail}
        for reason, t in of.items()
    ]
