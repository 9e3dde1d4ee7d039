"""How programs print tables, which benchmarks.evidence writes into pages, and how they take some of their rows."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def print_head(*names: str) -> None:
    """Print the head of a table in Markdown."""
    print_row(*names)
    print("|" + "---|" * len(names))


def print_row(*cells: object) -> None:
    """Print a row of it at once, percentages with a space as pages have them."""
    row = " | ".join(re.sub(r"(?<=\d)%", " %", str(cell)) for cell in cells)
    print(f"| {row} |", flush=True)


def program(description: str | None) -> argparse.ArgumentParser:
    """The parser of a program's options, whose help is its docstring."""
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=description, formatter_class=form)


def chosen(
    rows: Mapping[str, T], parser: argparse.ArgumentParser
) -> tuple[dict[str, T], argparse.Namespace]:
    """Parse the options, and return the rows whose label has one of the texts of --only; --list prints the labels."""
    parser.add_argument(
        "--only",
        nargs="*",
        default=[""],
        metavar="TEXT",
        help="rows whose label has one of these",
    )
    parser.add_argument("--list", action="store_true", help="print the labels")
    given = parser.parse_args()
    found = {
        label: row
        for label, row in rows.items()
        if any(text in label for text in given.only)
    }
    if given.list:
        print(*found, sep="\n")
        parser.exit()
    return found, given
