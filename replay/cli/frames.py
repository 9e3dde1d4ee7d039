"""Tables and figures that commands write: on a terminal, as Markdown, CSV, Parquet or JSON; as PNG, SVG or PDF."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError, write_parquet
from bft.models.errors import printable
from bft.models.files import drafted, figure_folder
from bft.replay.cli.parameters import Decorator, together
from bft.replay.results.run_directory import plain

if TYPE_CHECKING:
    import pandas as pd


# Characters of a name in one line above a column.
MAX_NAME = 16
SUFFIXES = (".csv", ".parquet", ".json", ".md")
Rows = Sequence[Sequence[str]]


def check_suffixes(outputs: Sequence[str]) -> None:
    """Refuse unknown file types before the work."""
    for output in outputs:
        if Path(output).suffix.lower() not in SUFFIXES:
            raise InputError(
                f"expected a name that ends in {', '.join(SUFFIXES)}", file=output
            )


def write_frame(
    frame: pd.DataFrame, output: str, markdown: str, document: dict[str, Any]
) -> None:
    """Write a table in the format of its file name; Markdown and JSON texts are passed in."""
    suffix = Path(output).suffix.lower()
    with drafted(output) as draft:
        if suffix == ".csv":
            inert = frame.apply(lambda column: column.map(_inert))
            inert.to_csv(draft, index=False, lineterminator="\n")
        elif suffix == ".parquet":
            write_parquet(frame, draft)
        else:
            text = markdown if suffix == ".md" else as_json(document)
            draft.write_text(text + "\n", encoding="utf-8")


def _inert(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    formula = isinstance(cell, str) and cell.startswith(("=", "+", "@", "\t", "\r"))
    return f"'{cell}" if formula else cell


def as_json(document: dict[str, Any]) -> str:
    """JSON with sorted keys; missing values are null."""
    return json.dumps(
        plain(document), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False
    )


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON."""
    return [
        {str(name): value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]


def as_markdown(titles: Sequence[str], rows: Rows) -> str:
    """A table in Markdown; numbers stand on the right."""
    lines = [titles, ["---", *["--:"] * (len(titles) - 1)], *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


def show_table(titles: Sequence[str], rows: Rows, names: int = 1) -> None:
    """Print a table: in columns, or on a terminal that is narrower with one row for each of them.

    Parameters
    ----------
    titles, rows
        Titles of the columns, and cells.
    names
        Number of first columns that name a row; numbers stand in the others.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    lines = _in_columns(titles, rows, names)
    if sys.stdout.isatty():
        lines = table_lines(titles, rows, names, shutil.get_terminal_size().columns)
    plain_terminal = os.environ.get("TERM") == "dumb" or "NO_COLOR" in os.environ
    for line in lines:
        cells = [
            click.style(cell, fg="green", bold=True) if cell.endswith("*") else cell
            for cell in line
        ]
        text = "  ".join(cells).rstrip()
        click.echo(text, color=False if plain_terminal else None)


def table_lines(
    titles: Sequence[str], rows: Rows, names: int, width: int
) -> list[list[str]]:
    """Return the padded cells of a table's lines, none of which is wider than `width` as long as its words are not.

    A table that fits has a line for each row. Another one is turned: it has a line for each column and beside each
    other as many rows as fit, and then those that are left.

    Examples
    --------
    >>> rows = [["milp", "12 h", "3", "0.91"], ["fifo, -maxJ 5", "7 h", "4", "0.88"]]
    >>> for line in table_lines(["", "JCT", "finished", "U"], rows, 1, 30):
    ...     print("  ".join(line).rstrip())
              milp  fifo, -maxJ 5
    JCT       12 h            7 h
    finished     3              4
    U         0.91           0.88
    """
    lines = _in_columns(titles, rows, names)
    if _width(lines) <= width:
        return lines
    turned: list[list[str]] = []
    left = list(rows)
    while left:
        beside = len(left)
        while beside > 1 and _width(_turned(titles, left[:beside], names)) > width:
            beside -= 1
        turned += [[]] * bool(turned) + _turned(titles, left[:beside], names)
        left = left[beside:]
    return turned


def _width(lines: list[list[str]]) -> int:
    return max(sum(map(len, line)) + 2 * (len(line) - 1) for line in lines)


def _turned(titles: Sequence[str], rows: Rows, names: int) -> list[list[str]]:
    """Return the lines of a table with a column for each row, whose names are broken between words."""
    heads = [
        textwrap.wrap(", ".join(row[:names]), MAX_NAME, break_on_hyphens=False) or [""]
        for row in rows
    ]
    height = max(map(len, heads))
    columns = [
        [""] * (height - len(head)) + head + list(row[names:])
        for head, row in zip(heads, rows, strict=True)
    ]
    first = [""] * height + list(titles[names:])
    lines = [list(line) for line in zip(first, *columns, strict=True)]
    return _in_columns(lines[0], lines[1:], 1)


def _in_columns(titles: Sequence[str], rows: Rows, names: int) -> list[list[str]]:
    """The padded cells of a table with a line for each row; names stand on the left, numbers on the right."""
    columns = []
    for place, column in enumerate(zip(titles, *rows, strict=True)):
        width = max(map(len, column))
        padded = str.ljust if place < names else str.rjust
        columns.append([padded(cell, width) for cell in column])
    return [list(line) for line in zip(*columns, strict=True)]


# As bft.replay.report.FORMATS, which would import what nobody needs who asks for help.
FORMS = ("png", "svg", "pdf")


def figure_options(what: str) -> Decorator:
    """The options of all forms; `what` is the help of the first."""
    first, *others = FORMS
    return together(
        click.option(f"--{first}", metavar="DIR", help=what),
        *(
            click.option(
                f"--{form}", metavar="DIR", help=f"The same as {form.upper()}."
            )
            for form in others
        ),
    )


def write_into(
    given: Mapping[str, str | None],
    write: Callable[[Path, str], object],
    *,
    force: bool,
) -> list[str]:
    """Call `write` with a folder and the form for each form that is given; the folders that were filled."""
    stated = {form: folder for form in FORMS if (folder := given[form]) is not None}
    for form, folder in stated.items():
        with figure_folder(Path(folder), force=force) as draft:
            write(draft, form)
    return list(stated.values())
