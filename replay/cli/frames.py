"""Tables and figures that commands write: on a terminal, as Markdown, CSV, Parquet or JSON; as PNG, SVG or PDF."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError, write_parquet
from bft.models.errors import printable
from bft.models.files import drafted, figure_folder
from bft.replay.cli.parameters import Decorator, setting, together
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


def as_markdown(titles: Sequence[str], rows: Rows) -> str:
    """A table in Markdown; numbers stand on the right."""
    lines = [titles, ["---", *["--:"] * (len(titles) - 1)], *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


def show_table(titles: Sequence[str], rows: Rows, names: int = 1) -> None:
    """Print a table; on a narrower terminal in blocks of as many columns as fit.

    Parameters
    ----------
    titles, rows
        Titles of the columns, and cells.
    names
        Number of first columns that name a row, and stand in each block; numbers stand in the others.
    """
    columns = []
    for place, texts in enumerate(zip(titles, *rows, strict=True)):
        cells = [printable(cell) for cell in texts]
        padded = str.ljust if place < names else str.rjust
        columns.append([padded(cell, max(map(len, cells))) for cell in cells])
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    blocks = [columns[:names]]
    for column in columns[names:]:
        if sum(len(each[0]) + 2 for each in blocks[-1]) + len(column[0]) > width:
            blocks.append(columns[:names])
        blocks[-1].append(column)
    for number, block in enumerate(blocks):
        lines = ["  ".join(line).rstrip() for line in zip(*block, strict=True)]
        click.echo("\n" * bool(number) + "\n".join(lines))


# As bft.replay.report.FORMATS, which would import what nobody needs who asks for help.
FORMS = ("png", "svg", "pdf")


def figure_options(what: str) -> Decorator:
    """The options of all forms; `what` is the help of the first."""
    same = {form: f"The same as {form.upper()}." for form in FORMS}
    helps = {**same, FORMS[0]: what}
    return together(
        *(setting(f"--{form}", helps[form], metavar="DIR") for form in FORMS)
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
