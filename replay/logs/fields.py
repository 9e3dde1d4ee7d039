"""One line of a table into its fields."""

from __future__ import annotations

import csv


def split_fields(line: str, delimiter: str) -> list[str]:
    """Fields of a line, quoted ones (CSV) without their quotes, however long; none when they are no CSV.

    >>> split_fields('1,"cn[1,2]",idle', ",")
    ['1', 'cn[1,2]', 'idle']
    """
    if '"' not in line or len(delimiter) != 1:
        return line.split(delimiter)
    limit = csv.field_size_limit()
    try:
        if len(line) > limit:  # the host list of a large job; whoever reads lines bounds their length
            csv.field_size_limit(len(line))
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
    finally:
        csv.field_size_limit(limit)
