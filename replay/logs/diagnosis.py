"""Account for every line of a log: what was used, what was not and why."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from bft.models import InputError

logger = logging.getLogger(__name__)

# Of the rows of a file that should say something of nodes, the share that has to.
LEAST_USABLE = 0.5
# Of the rows of all files, the share skipped from which on a warning is due.
MOST_SKIPPED = 0.01


@dataclass(slots=True)
class Tally:
    """How often something was met, and where first."""

    count: int
    file: str
    line: int
    detail: str = ""
    loud: bool = False

    def in_short(self) -> str:
        """Return the note without the folder of its file."""
        return str(replace(self, file=PurePath(self.file).name))

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
    allow_few
        Accept files of which fewer than half of the rows can be used, and windows that hardly overlap the logs.
    """

    def __init__(self, *, strict: bool = False, allow_few: bool = False) -> None:
        self.strict = strict
        self.allow_few = allow_few
        self.lines = 0
        self.no_record = 0
        self.rows = 0
        self.used = 0
        self.skipped: dict[str, Tally] = {}
        self.left_out: dict[str, Tally] = {}
        self.notes: dict[str, Tally] = {}
        # Of each file the rows that were used and skipped.
        self._files: list[tuple[str, int, int]] = []

    def skip(self, reason: str, file: str, line: int, detail: str = "") -> None:
        """A row that cannot be used. It counts as row already; `reason` has no values in it, `detail` has them.

        Raises
        ------
        InputError
            Under strict.
        """
        if self.strict:
            raise InputError(
                f"line {line}: {reason}{f': {detail}' if detail else ''}", file=file
            )
        logger.debug(
            "%s, line %d skipped: %s%s",
            file,
            line,
            reason,
            f": {detail}" if detail else "",
        )
        _tally(self.skipped, reason, file, line, detail)

    def leave_out(self, reason: str, file: str, line: int, *, count: int = 1) -> None:
        """Rows of a kind that says nothing of nodes; the first is at `line`. Never an error."""
        if count:
            if logger.isEnabledFor(logging.DEBUG):  # most rows of some logs
                more = f" and {count - 1:,} more" if count > 1 else ""
                logger.debug("%s, line %d%s left out: %s", file, line, more, reason)
            _tally(self.left_out, reason, file, line, "", count)

    def take_back(self, reason: str, file: str, line: int, *, count: int = 1) -> None:
        """Rows counted as used are left out, because another record says the same or more; the first is at `line`."""
        self.used -= count
        self.leave_out(reason, file, line, count=count)

    def note(
        self,
        reason: str,
        file: str,
        line: int,
        detail: str = "",
        *,
        count: int = 1,
        loud: bool = False,
    ) -> None:
        """Something worth telling about a row that is used, or (line 0) about a file. Never an error.

        With `loud` it is likely to make the trace another machine's than the user has in mind: the command line
        prints it on stderr too.
        """
        _tally(self.notes, reason, file, line, detail, count, loud=loud)

    def warnings(self) -> list[str]:
        """The loud notes, a line each."""
        return [
            f"{reason}{f': {t}' if str(t) else ''}"
            for reason, t in self.notes.items()
            if t.loud
        ]

    def assumptions(self) -> tuple[str, ...]:
        """Return skipped rows and notes, a sentence each, without the folders of files: for the trace."""
        kinds = ((self.skipped, "rows were skipped: "), (self.notes, ""))
        return tuple(
            f"{kind}{reason}{f': {tally.in_short()}' if str(tally) else ''}"
            for tallies, kind in kinds
            for reason, tally in tallies.items()
        )

    @contextmanager
    def reading(self, file: str) -> Iterator[None]:
        """Account meanwhile for the lines of this file; see `check_use`."""
        used, skipped = self.used, _sum(self.skipped)
        yield
        self._files.append((file, self.used - used, _sum(self.skipped) - skipped))

    def check_use(self) -> None:
        """Refuse files of which most rows that should say something of nodes could not be read; warn of fewer.

        Raises
        ------
        InputError
            When of a file fewer than half of the rows used or skipped were used, unless few are allowed.
        """
        for file, used, skipped in self._files:
            if used < LEAST_USABLE * (used + skipped) and not self.allow_few:
                reasons = {
                    why: tally
                    for why, tally in self.skipped.items()
                    if tally.file == file
                }
                raise InputError(
                    f"only {used:,} of {used + skipped:,} rows can be used: {_reasons(reasons or self.skipped)}",
                    file=file,
                    hint="is FORMAT the right one? --allow-few accepts such a file",
                )
        read, lost = (
            sum(used for _, used, _ in self._files),
            sum(skipped for *_, skipped in self._files),
        )
        if lost > MOST_SKIPPED * (read + lost):
            share = f"{lost / (read + lost):.1%} of the rows with information on nodes were skipped"
            self.note(
                f"{share}: the nodes of jobs among them look idle", "", 0, loud=True
            )

    def balance(self) -> None:
        """Check that every line and row is accounted for.

        Raises
        ------
        RuntimeError
            When a reader has lost count, which is a mistake of ours.
        """
        rest = _sum(self.skipped) + _sum(self.left_out)
        if self.rows != self.used + rest:
            raise RuntimeError(
                f"{self.rows} rows, but {self.used} used and {rest} skipped or left out"
            )
        if self.lines != self.rows + self.no_record:
            raise RuntimeError(
                f"{self.lines} lines, but {self.rows} rows and {self.no_record} other lines"
            )

    def losses(self) -> str:
        """Why rows were skipped or left out, in one line."""
        return _reasons({**self.skipped, **self.left_out})

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


def _tally(
    into: dict[str, Tally],
    reason: str,
    file: str,
    line: int,
    detail: str,
    count: int = 1,
    *,
    loud: bool = False,
) -> None:
    known = into.get(reason)
    if known is None:
        into[reason] = Tally(count, file, line, detail[:200], loud)
    else:
        known.count += count


def _reasons(of: dict[str, Tally]) -> str:
    return "; ".join(f"{reason}: {tally}" for reason, tally in of.items())


def _sum(of: dict[str, Tally]) -> int:
    return sum(tally.count for tally in of.values())


def _plain(of: dict[str, Tally]) -> list[dict[str, Any]]:
    return [
        {
            "reason": reason,
            "count": t.count,
            "file": t.file,
            "line": t.line,
            "detail": t.detail,
        }
        for reason, t in of.items()
    ]


class Unusable(Exception):  # noqa: N818 - it ends the reading of a record, not the program
    """A record that should have said something of nodes and cannot be read; see `Diagnosis.skip`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


class Foreign(Unusable):
    """A line that is no record of the format at all."""


class LeftOut(Exception):  # noqa: N818
    """A record of a kind that says nothing of nodes; see `Diagnosis.leave_out`."""


class OtherJob(LeftOut):
    """A record that a filter leaves out, by the name of the filter; `reason` is counted."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.filter = name
