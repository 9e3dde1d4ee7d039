"""The error for input that a user can correct."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from string import Template
from typing import Final

# Characters that a message keeps of what a user wrote: of a label such as a job's name, and of a sentence.
MAX_LABEL: Final = 200
MAX_SENTENCE: Final = 1_500


# An error names an option as `$max_jobs`: on the command line that is its flag. `replay/options` adds its own.
FLAGS: Final = {
    "batch_size": "--batch-size",
    "begin": "--from",
    "end": "--to",
    "force": "--force",
    "out": "--out",
    "pattern": "--pattern",
    "pmax": "--pmax",
    "skip_rows": "--skip-rows",
    "sort": "--sort",
    "submit": "--submit",
    "trust_pickle": "--trust-pickle",
    "unit_batch": "--unit-batch",
    "units": "--units",
}
# What the caller calls them: flags, or arguments in Python.
option_names: ContextVar[Mapping[str, str]] = ContextVar("options", default=FLAGS)


def naming_options(text: str, names: Mapping[str, str] = FLAGS) -> str:
    """Return a text with the names of the options to which it refers, as in `$max_jobs`."""
    return Template(text).safe_substitute(names)


def shortened(text: str, limit: int) -> str:
    """A text, cut in the middle when it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 3 // 4]} ... [{len(text):,} characters] ... {text[-(limit // 4) :]}"


def printable(text: str, limit: int | None = None) -> str:
    r"""A text as terminals and pages may show it: cut in the middle beyond `limit` characters, and with escapes.

    Escaped (`\u202e`) is what acts instead of being seen: control characters, what changes the direction of writing,
    other invisible formatting, halves of surrogate pairs.
    """
    if limit is not None:
        text = shortened(text, limit)
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable()
        else f"\\u{ord(char):04x}"
        if ord(char) < 2**16
        else f"\\U{ord(char):08x}"
        for char in text
    )


class InputError(ValueError):
    """Input that cannot be used, described so that its owner can correct it; the command line exits with 2.

    Parameters
    ----------
    what
        What is invalid and what was expected, in one sentence without a full stop; it names options as `$max_jobs`.
    file, row, column, job
        Where it is wrong, as far as known. `row` counts data rows from 1, as a text editor does
        after the header line.
    hint
        What to do about it.

    Examples
    --------
    >>> print(InputError("expected a number > 0, not -1", file="jobs.csv", row=3, column="Pmax", hint="see Jmin"))
    jobs.csv, row 3, column Pmax: expected a number > 0, not -1 (see Jmin)
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
        names = option_names.get()
        self.what, self.file, self.row, self.column, self.job, self.hint = (
            naming_options(what, names),
            file,
            row,
            column,
            job,
            None if hint is None else naming_options(hint, names),
        )
        super().__init__(str(self))

    def __str__(self) -> str:
        # All text from files, of any length, is shortened and escaped here and nowhere else.
        where = [] if self.file is None else [printable(str(self.file), MAX_SENTENCE)]
        for label, value in (
            ("row", self.row),
            ("column", self.column),
            ("job", self.job),
        ):
            if value is not None:
                where.append(f"{label} {printable(str(value), MAX_LABEL)}")
        place = ", ".join(where)
        what = "\n".join(
            printable(line) for line in shortened(self.what, MAX_SENTENCE).split("\n")
        )
        message = f"{place}: {what}" if where else what
        return (
            f"{message} ({printable(self.hint, MAX_SENTENCE)})"
            if self.hint
            else message
        )
