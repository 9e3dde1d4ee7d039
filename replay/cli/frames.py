"""Tables and figures that commands write: on a terminal, as Markdown, CSV, Parquet or JSON; as PNG, SVG or PDF."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError, write_parquet
from bft.models.atomic_files import drafted, figure_folder
from bft.models.errors import printable
from bft.replay.cli.parameters import Decorator, together
from bft.replay.results.run_directory import plain

if TYPE_CHECKING:
    import pandas as pd


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
    if not sys.stdout.isatty():
        for line in _in_columns(titles, rows, names):
            click.echo("  ".join(line).rstrip())
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for line in table_lines(titles, rows, names, console.width):
        text = Text()
        for place, cell in enumerate(line):
            best = cell.rstrip().endswith("*")
            text.append(("  " if place else "") + cell, "bold green" if best else "")
        text.rstrip()
        console.print(text, soft_wrap=True)


def show_text(text: str) -> None:
    """Print a text, whose lines break between words on a terminal."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(
            text, width, break_long_words=False, break_on_hyphens=False
        )
    click.echo(text)


def table_lines(
    titles: Sequence[str], rows: Rows, names: int, width: int
) -> list[list[str]]:
    """Return the padded cells of a table's lines, none of which is wider than `width` as long as its words are not.

    A table that fits has a line for each row. Another one is turned: it has a line for each column and beside each
    other as many rows as fit, and then those that are left.

    Examples
    --------
    >>> rows = [["milp", "12 h", "3"], ["fifo, -maxJ 5", "7 h", "4"]]
    >>> for line in table_lines(["", "JCT", "finished"], rows, 1, 20):
    ...     print("  ".join(line).rstrip())
              milp
    JCT       12 h
    finished     3
    <BLANKLINE>
                fifo,
              -maxJ 5
    JCT           7 h
    finished        4
    """
    lines = _in_columns(titles, rows, names)
    if max(sum(map(len, line)) + 2 * (len(line) - 1) for line in lines) <= width:
        return lines
    figures = [str(title) for title in titles[names:]]
    label = max(map(len, figures), default=0)
    blocks: list[list[list[str]]] = []
    block: list[list[str]] = []
    room = 0
    for row in rows:
        column = _turned(row, names, max(width - label - 2, 1))
        needed = max(map(len, column)) + 2
        if not block or needed > room:
            block = []
            blocks.append(block)
            room = width - label
        block.append(column)
        room -= needed
    turned: list[list[str]] = []
    for block in blocks:
        turned += (
            [[], *_side_by_side(figures, block)]
            if turned
            else _side_by_side(figures, block)
        )
    return turned


def _turned(row: Sequence[str], names: int, width: int) -> list[str]:
    """A row as the cells of a column: the lines of its name, and its figures."""
    parts = [
        part for name in row[:names] for part in name.replace(", ", ",\n").split("\n")
    ]
    title = [line for part in parts for line in textwrap.wrap(part, width) or [""]]
    return [*title, *row[names:]]


def _side_by_side(figures: Sequence[str], columns: list[list[str]]) -> list[list[str]]:
    """Lines of a block of columns whose last cells are the figures, and whose others are their names."""
    height = max(map(len, columns))
    labels = [""] * (height - len(figures)) + list(figures)
    filled = [[""] * (height - len(column)) + column for column in columns]
    left = [each.ljust(max(map(len, labels))) for each in labels]
    cells = [
        [each.rjust(max(map(len, column))) for each in column] for column in filled
    ]
    return [list(line) for line in zip(left, *cells, strict=True)]


def _in_columns(titles: Sequence[str], rows: Rows, names: int) -> list[list[str]]:
    """The padded cells of a table with a line for each row; names stand on the left, numbers on the right."""
    columns = list(zip(titles, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for row in (titles, *rows):
        named = [
            cell.ljust(width) for cell, width in zip(row[:names], widths, strict=False)
        ]
        numbers = zip(row[names:], widths[names:], strict=True)
        lines.append([*named, *(cell.rjust(width) for cell, width in numbers)])
    return lines


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
