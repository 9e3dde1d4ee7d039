"""The error for input that a user can correct."""

from __future__ import annotations

from pathlib import Path


class InputError(ValueError):
    """Input that cannot be used, told so that its owner can mend it; the command line exits with 2.

    Parameters
    ----------
    what
        What is wrong and what was expected, in one sentence without a full stop.
    file, row, column, job
        Where it is wrong, as far as known. `row` counts data rows from 1, as a text editor does
        after the header line.
    hint
        What to do about it.
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
        job: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.what, self.file, self.row, self.column, self.job, self.hint = what, file, row, column, job, hint
        super().__init__(str(self))

    def __str__(self) -> str:
        where = [] if self.file is None else [str(self.file)]
        for label, value in (("row", self.row), ("column", self.column), ("job", self.job)):
            if value is not None:
                where.append(f"{label} {value}")
        message = f"{', '.join(where)}: {self.what}" if where else self.what
        return f"{message} ({self.hint})" if self.hint else message
