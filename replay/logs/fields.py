"""One line of a table into its fields."""

from __future__ import annotations

import csv


def split_fields(line: str, delimiter: str) -> list[str]:
    """Fields of a line, quoted ones (CSV) without their quotes; none for a field beyond the csv module's limit."""
    if '"' not in line or len(delimiter) != 1:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
