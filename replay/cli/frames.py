"""Tables for users and for programs: on a terminal, as Markdown, CSV, Parquet or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bft.models import InputError, write_parquet
from bft.models.atomic_files import drafted
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
            frame.to_csv(draft, index=False, lineterminator="\n")
        elif suffix == ".parquet":
            write_parquet(frame, draft)
        else:
            text = markdown if suffix == ".md" else as_json(document)
            draft.write_text(text + "\n", encoding="utf-8")


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


def show_table(titles: Sequence[str], rows: Rows) -> None:
    """Print a table: with rules on a terminal, in columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for place, title in enumerate(titles):
            table.add_column(title, justify="left" if place == 0 else "right")
        for row in rows:
            table.add_row(
                *(
                    Text(cell, style="bold green" if cell.endswith("*") else "")
                    for cell in row
                )
            )
        Console().print(table, highlight=False)
        return
    widths = [
        max(len(row[place]) for row in (titles, *rows)) for place in range(len(titles))
    ]
    for row in (titles, *rows):
        cells = [
            row[0].ljust(widths[0]),
            *(
                cell.rjust(width)
                for cell, width in zip(row[1:], widths[1:], strict=True)
            ),
        ]
        click.echo("  ".join(cells).rstrip())
