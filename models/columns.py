"""Names of optional columns: a misspelt one would be ignored, and nobody would notice."""

from __future__ import annotations

from collections.abc import Iterable

from bft.models.cells import Rows

# In shorter names another letter makes another word: Ns, Ps and Os are three columns.
_MIN_LETTERS = 4


def unknown_columns(rows: Rows, known: Iterable[str]) -> list[str]:
    """Return the columns of a table that are not known, in the order of the table.

    Parameters
    ----------
    rows
        The table.
    known
        Names of all columns that its reader understands.

    Raises
    ------
    InputError
        When an unknown name differs only by upper and lower case, or by one letter, from a known one that the table
        lacks. (Beside gpu_num a column cpu_num means something else.)

    Examples
    --------
    >>> unknown_columns(Rows.of([{"weight": 1, "colour": "red"}]), ("weight", "deadline"))
    ['colour']
    """
    names = set(known)
    unknown = [column for column in rows.columns if column not in names]
    lacking = sorted(names.difference(rows.columns))
    for column in unknown:
        meant = next((name for name in lacking if is_misspelt(column, name)), None)
        if meant is not None:
            difference = (
                "by upper and lower case"
                if column.lower() == meant.lower()
                else "by one letter"
            )
            raise rows.error(
                f"no such column; it differs from {meant!r} {difference}",
                column=column,
                hint=f"call it {meant}, or give it another name if it is something else",
            )
    return unknown


def is_misspelt(name: str, known: str) -> bool:
    """Whether a name differs from a known one by case, or by one letter: changed, missing, added or swapped.

    >>> [is_misspelt(name, "weight") for name in ("Weight", "weigth", "wieghts", "load")]
    [True, True, False, False]
    """
    name, known = name.lower(), known.lower()
    if name == known:
        return True
    if min(len(name), len(known)) < _MIN_LETTERS:
        return False
    same = 0
    while same < min(len(name), len(known)) and name[same] == known[same]:
        same += 1
    rest, known_rest = name[same:], known[same:]
    changed = rest[1:] == known_rest[1:]
    added, missing = rest[1:] == known_rest, rest == known_rest[1:]
    swapped = rest[:2] == known_rest[1::-1] and rest[2:] == known_rest[2:]
    return changed or added or missing or swapped
