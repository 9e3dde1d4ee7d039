"""Rows of a table and their cells: one answer to what a cell holds, whatever table it is in.

| cell              | read as                                                                                         |
|-------------------|-------------------------------------------------------------------------------------------------|
| number            | the nearest float64, -0 as 0; text in ASCII digits with a decimal point, spaces around it       |
| whole number      | exactly, below 2^53; `4.0` and `4e0` are 4                                                      |
| name              | text without spaces around it, or a whole number by its digits                                  |
| instant           | date and time in ISO 8601 or a time stamp, UTC where no row of the column names a zone          |
| list of numbers   | a list, an array, or JSON text such as `[0, 1, 2]`                                              |

Refused as numbers: truth values, NaN and infinities, `4_0`, digits of other scripts, decimal commas (a file with
semicolons between its columns may have them: `bft.models.tables`), percent signs, separators of thousands.
Empty cells, NaN, `None`, `NA` and the like are gaps: an error where a value is required, otherwise the default. A float
is not a name: `7.0` may have been 7, 7.0 or 007.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from numbers import Real
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bft.models.checks import nearest
from bft.models.curves import FloatArray
from bft.models.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

D = TypeVar("D")

# Texts that mean a gap where a number or an instant is expected: pandas' own list.
GAPS: Final = frozenset(
    (
        "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
        "NULL", "NaN", "None", "n/a", "nan", "null",
    )
)  # fmt: skip
# Floats from here on cannot distinguish neighbouring whole numbers.
WHOLE_BELOW: Final = 2**53
SECOND_NS: Final = 1_000_000_000
# Seconds since 1970 that fit 64 bits of nanoseconds (until the year 2261).
MAX_SECONDS: Final = 9.2e9
# Names of columns at least this much alike are taken for one misspelt: with a letter swapped, missing or added.
ALIKE: Final = 0.82
# Characters of a cell that a message shows.
_SHOWN: Final = 80

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMAL_COMMA: Final = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
# pandas also reads `now`, `2021` and `20210210` as instants, which nobody means in these tables.
_INSTANT: Final = re.compile(r"(\d{4}-\d\d?-\d\d?|\d{8}(?=T))([T ].*)?", re.ASCII)
# What states the zone at the end of a time of day.
_ZONE: Final = re.compile(r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)$", re.ASCII)

# Limits of a number: at least `min`, more than `above`, at most `max`, less than `below`.
_COMPARE: Final[Mapping[str, tuple[Callable[[float, float], bool], str]]] = {
    "min": (operator.ge, ">="),
    "above": (operator.gt, ">"),
    "max": (operator.le, "<="),
    "below": (operator.lt, "<"),
}


def read_number(value: object) -> float:
    """The finite number in a cell, NaN if there is none.

    >>> read_number("1e3"), read_number(True), read_number("4_0"), read_number("1,5")
    (1000.0, nan, nan, nan)
    """
    if isinstance(value, str):
        text = value.strip()
        number = float(text) if _NUMBER.fullmatch(text) else math.nan
    elif isinstance(value, bool | np.timedelta64) or not isinstance(
        value, Real | Decimal
    ):
        return math.nan
    else:
        try:
            number = float(value)
        except (
            ValueError,
            OverflowError,
        ):  # a signalling NaN, a whole number beyond all floats
            return math.nan
    return number + 0.0 if math.isfinite(number) else math.nan


def is_empty(value: object) -> bool:
    """Whether a cell holds nothing: None, NaN, NaT, NA, or no more than spaces."""
    if isinstance(value, str):
        return not value.strip()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(
        value, float | np.floating | np.datetime64 | np.timedelta64
    ) and bool(value != value)


def is_gap(value: object) -> bool:
    """Whether a cell is empty, or holds a text that means a gap where a number is expected."""
    return is_empty(value) or (isinstance(value, str) and value.strip() in GAPS)


def shown(value: object) -> str:
    """Return a cell as a message shows it, shortened where it is long."""
    if is_empty(value):
        return (
            "an empty cell"
            if value is None or isinstance(value, str)
            else "an empty cell or NaN"
        )
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 20]} ... {text[-15:]}"


class Rows:
    """The rows of a table.

    Parameters
    ----------
    frame
        The table. Spaces around the names of its columns do not count.
    file
        The name of the table in messages.
    job
        The column that names the job of a row, for messages.
    index
        A column to make of the frame's index.

    Raises
    ------
    InputError
        When two columns have one name.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"name": ["a", "b"], "units": ["4", "4_0"]})
    >>> [row.name("name") for row in Rows(table, "jobs.csv")]
    ['a', 'b']
    >>> [row.whole("units", min=1) for row in Rows(table, "jobs.csv", job="name")]
    Traceback (most recent call last):
    ...
    bft.models.errors.InputError: jobs.csv, row 2, column units, job b: expected a whole number >= 1, not '4_0' \
(write it in the digits 0 to 9, with a decimal point where it has one)
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        file: str | Path = "",
        *,
        job: str = "",
        index: str = "",
    ) -> None:
        self.file, self.job = str(file), job
        self._length = len(frame)
        self._cells: dict[str, Any] = {index: frame.index} if index else {}
        self._values: dict[str, list[Any]] = {}
        self._instants: dict[str, list[int | None]] = {}
        for label, cells in frame.items():
            name = str(label).strip()
            if name in self._cells:
                raise self.error("the table has two columns of this name", column=name)
            self._cells[name] = cells

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._cells)

    def has(self, column: str) -> bool:
        """Whether the table has a column."""
        return column in self._cells

    def require(
        self,
        columns: Sequence[str],
        optional: Sequence[str] = (),
        *,
        hint: str | None = None,
        empty: bool = False,
    ) -> Rows:
        """Refuse a table that lacks columns, or (unless `empty`) has no rows; return the rows."""
        missing = [column for column in columns if column not in self._cells]
        if missing:
            further = f" and optionally {', '.join(optional)}" if optional else ""
            for other in self._cells:
                known = other in (*columns, *optional)
                if not known and (meant := nearest(other, missing, ALIKE)):
                    hint = f"did you mean {meant} by {other}?"
            raise self.error(
                f"missing column{'s' * (len(missing) > 1)} {', '.join(missing)}; "
                f"expected {', '.join(columns)}{further}; it has {', '.join(self._cells) or 'none'}",
                hint=hint,
            )
        if not (self._length or empty):
            raise self.error("has no rows")
        return self

    def error(
        self, message: str, *, column: str | None = None, hint: str | None = None
    ) -> InputError:
        """An error that names the file."""
        return InputError(message, file=self.file or None, column=column, hint=hint)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Row:
        return Row(self, index)

    def __iter__(self) -> Iterator[Row]:
        return (Row(self, index) for index in range(self._length))

    # --- a whole column

    def all_numbers(self, column: str, **bounds: float) -> FloatArray:
        """A column of numbers: float64 of shape (rows,). InputError as `Row.number`."""
        return np.array([row.number(column, **bounds) for row in self], np.float64)

    def all_wholes(self, column: str, **bounds: float) -> FloatArray:
        """A column of whole numbers: float64 of shape (rows,). InputError as `Row.whole`."""
        return np.array([row.whole(column, **bounds) for row in self], np.float64)

    def all_names(
        self, column: str, default: str | EllipsisType = ...
    ) -> NDArray[np.object_]:
        """A column of names: str of shape (rows,), gaps as `default`. InputError as `Row.name`."""
        return np.array([row.name(column, default) for row in self], dtype=object)

    def all_seconds(self, column: str) -> FloatArray:
        """A column of instants as seconds since 1970 UTC, numbers as they are: float64 of shape (rows,)."""
        seconds = np.array(list(map(read_number, self.values(column))))
        for index in np.flatnonzero(np.isnan(seconds)):
            seconds[index] = self[int(index)].instant(column, origin_ns=0) / SECOND_NS
        return seconds

    # --- columns as Row sees them

    def values(self, column: str) -> list[Any]:
        """The cells of a column as they are; None where the table has no such column."""
        if column not in self._values:
            cells = self._cells.get(column)
            none = [None] * self._length
            self._values[column] = none if cells is None else cells.tolist()
        return self._values[column]

    def values_as_instants(self, column: str) -> list[int | None]:
        """The cells of a column as UTC nanoseconds, None for what is no instant from 1678 to 2261."""
        if column not in self._instants:
            import pandas as pd

            texts = [_as_stamp(value) for value in self.values(column)]
            self._check_zones(column, texts)
            series = pd.Series(texts, dtype=object)
            read = pd.to_datetime(series, utc=True, errors="coerce", format="ISO8601")
            low, high = pd.Timestamp.min, pd.Timestamp.max
            known = read.between(low.tz_localize("UTC"), high.tz_localize("UTC"))
            whole = read.where(known).dt.as_unit("ns").astype("int64")
            self._instants[column] = [
                value if good else None
                for value, good in zip(whole.tolist(), known.tolist(), strict=True)
            ]
        return self._instants[column]

    def _check_zones(self, column: str, texts: list[str | None]) -> None:
        """Refuse a column in which some instants state a time zone and others do not: hours may lie between them."""
        stated = [(index, text) for index, text in enumerate(texts) if text is not None]
        zoned = [_ZONE.search(text, 10) is not None for _, text in stated]
        if len(set(zoned)) == 2:
            (first, before), (index, text) = (
                stated[0],
                stated[zoned.index(not zoned[0])],
            )
            states = ("states no time zone", "states a time zone")
            other = f"row {first + 1} ({before}) {states[zoned[0]]}"
            raise self[index].error(
                column,
                f"{text} {states[not zoned[0]]}, {other}",
                "write the zone in all rows, or in none: then UTC counts",
            )


class Row:
    """A row of a table; an error in a cell names file, row, column and job."""

    __slots__ = ("_rows", "index")

    def __init__(self, rows: Rows, index: int) -> None:
        self._rows, self.index = rows, index

    @property
    def job(self) -> str:
        """Name of the row's job as far as it is known; empty otherwise."""
        return _as_name(self._rows.values(self._rows.job)[self.index])

    def has(self, column: str) -> bool:
        """Whether its table has such a column."""
        return self._rows.has(column)

    def value(self, column: str) -> Any:
        """Return the cell of a column as it is, None where it is empty or missing."""
        value = self._rows.values(column)[self.index]
        return None if is_empty(value) else value

    def given(self, column: str) -> bool:
        """Whether the cell holds anything."""
        return self.value(column) is not None

    def further(self, known: Collection[str]) -> dict[str, Any]:
        """The cells that hold something, of all columns but the `known` ones."""
        return {
            column: value
            for column in self._rows.columns
            if column not in known and (value := self.value(column)) is not None
        }

    def number(
        self, column: str, default: D | EllipsisType = ..., **bounds: float
    ) -> float | D:
        """The finite number in a cell; `default` for a gap."""
        value = read_number(self._rows.values(column)[self.index])
        if value == value and _within(value, bounds):
            return value
        return self._default(column, default, "a finite number", bounds)

    def whole(
        self, column: str, default: D | EllipsisType = ..., **bounds: float
    ) -> int | D:
        """The whole number in a cell; `default` for a gap."""
        value = read_number(self._rows.values(column)[self.index])
        if value.is_integer() and abs(value) < WHOLE_BELOW and _within(value, bounds):
            return int(value)
        large = f" < {WHOLE_BELOW} in size" if abs(value) >= WHOLE_BELOW else ""
        return self._default(column, default, f"a whole number{large}", bounds)

    def name(self, column: str, default: D | EllipsisType = ...) -> str | D:
        """The text in a cell without spaces around it, or the digits of a whole number; `default` for an empty cell."""
        value = self._rows.values(column)[self.index]
        if text := _as_name(value):
            return text
        if is_empty(value) and not isinstance(default, EllipsisType):
            return default
        hint = (
            "a whole number in a column with gaps? store names as text"
            if isinstance(value, Real)
            else None
        )
        raise self.error(
            column,
            f"expected a name, not {shown(value)}",
            None if is_empty(value) else hint,
        )

    def instant(
        self,
        column: str,
        default: D | EllipsisType = ...,
        *,
        origin_ns: int | None = None,
    ) -> int | D:
        """The instant in a cell, UTC nanoseconds; `default` for a gap.

        With `origin_ns` a number counts seconds from there.
        """
        expected = "a date and time such as 2021-02-10T20:21:15Z"
        instant = self._rows.values_as_instants(column)[self.index]
        if instant is not None:
            return instant
        if origin_ns is not None:
            expected += ", or seconds"
            seconds = read_number(self._rows.values(column)[self.index])
            if abs(seconds + origin_ns / SECOND_NS) < MAX_SECONDS:
                return origin_ns + round(seconds * SECOND_NS)
        return self._default(column, default, expected, {})

    def numbers(self, column: str, **bounds: float) -> list[float]:
        """The list of finite numbers in a cell."""
        value = listed = self._rows.values(column)[self.index]
        if isinstance(value, str):
            with suppress(ValueError, RecursionError):
                listed = json.loads(value)
        elif isinstance(value, np.ndarray):
            listed = value.tolist()
        if not isinstance(listed, list | tuple):
            raise self.error(
                column,
                f"expected a list of numbers such as [0, 1, 2, 4], not {shown(value)}",
            )
        numbers = [read_number(entry) for entry in listed]
        for entry, number in zip(listed, numbers, strict=True):
            if not (number == number and _within(number, bounds)):
                raise self.error(
                    column,
                    f"expected a list of {_expected('finite numbers', bounds)}, not one with {shown(entry)}",
                    _hint(entry),
                )
        return numbers

    def error(self, column: str, message: str, hint: str | None = None) -> InputError:
        """An error in a cell."""
        rows = self._rows
        return InputError(
            message,
            file=rows.file or None,
            row=self.index + 1,
            column=column,
            job=self.job or None,
            hint=hint,
        )

    def placed(self, error: InputError, column: str | None = None) -> InputError:
        """Complete an error from a value that does not know its row: the same error, naming this row.

        `column` is the one to name instead of the error's own.
        """
        if error.row is not None:
            return error
        return self.error(column or error.column or "", error.what, error.hint)

    def _default(
        self,
        column: str,
        default: D | EllipsisType,
        expected: str,
        bounds: Mapping[str, float],
    ) -> D:
        value = self._rows.values(column)[self.index]
        if not isinstance(default, EllipsisType) and is_gap(value):
            return default
        raise self.error(
            column,
            f"expected {_expected(expected, bounds)}, not {shown(value)}",
            _hint(value),
        )


def _as_name(value: object) -> str:
    """The text in a cell or the digits of a whole number; empty where it is no name."""
    if isinstance(value, str):
        return value.strip()
    # A truth value and NumPy's time spans are whole numbers to Python.
    is_whole = type(value) is int or (
        isinstance(value, np.integer) and not isinstance(value, np.timedelta64)
    )
    return str(value) if is_whole else ""


def _within(value: float, bounds: Mapping[str, float]) -> bool:
    return all(_COMPARE[bound][0](value, limit) for bound, limit in bounds.items())


def _expected(noun: str, bounds: Mapping[str, float]) -> str:
    """The limits of a number in words."""
    limits = " and ".join(
        f"{_COMPARE[bound][1]} {limit:.16g}" for bound, limit in bounds.items()
    )
    return f"{noun} {limits}" if limits else noun


def _hint(value: object) -> str | None:
    """A guess at the meaning of a cell that is not a number."""
    if isinstance(value, bool | np.bool_):
        return "a truth value is not a number"
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _DECIMAL_COMMA.fullmatch(text):
        return "a decimal comma? write a point, or put semicolons between the columns"
    if "_" in text or (not text.isascii() and any(char.isdigit() for char in text)):
        return "write it in the digits 0 to 9, with a decimal point where it has one"
    return None


def _as_stamp(value: object) -> Any:
    """Return the value that pandas is to read as an instant, or None when it is no instant."""
    if isinstance(value, str):
        text = value.strip()
        return text if _INSTANT.fullmatch(text) else None
    if is_empty(value) or not isinstance(
        value, date | np.datetime64
    ):  # a datetime is a date, too
        return None
    import pandas as pd

    try:
        return pd.Timestamp(value).isoformat()
    except (ValueError, OverflowError):
        return None
