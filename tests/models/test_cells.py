"""Hostile cells in every column of every table: read right, or refused with file, row, column and job."""

import csv
import math
import re
import runpy
import tomllib
from ast import literal_eval
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from toy_application import write_application

from bft.models import (
    InputError,
    jobs_from_frame,
    read_application,
    read_jobs,
    read_measurements,
    read_published_jobs,
    read_swf_jobs,
    read_table,
    read_throughputs,
    read_tiresias_jobs,
    read_unit_memory,
    read_venus_jobs,
    read_xi,
    submissions,
)
from bft.models.cells import Rows, read_number
from bft.models.learned.duration import _past
from bft.models.learned.packing import sharing_scores
from bft.models.measure.xi_measurements import merged
from bft.models.workloads.jobs_pollux import read_pollux_jobs
from bft.replay.policies.lucid.submissions import read_forecast_table
from bft.replay.policies.tiresias import read_samples
from bft.replay.pools import cluster_pools

read_colocation = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "_published.py")
)["read_colocation"]
REQUIRED = object()
TSUB, TSUB_NS = "2021-02-10T20:21:15Z", 1_612_988_475_000_000_000
S = 1_000_000_000


class Column(NamedTuple):
    """A column of a table: what kind of cell it holds, where what was read of the last row is, and its default."""

    kind: str
    where: str
    default: Any = REQUIRED


@dataclass(frozen=True)
class Reader:
    """A reader of tables, the rows of a good one, and its columns; the last row is the one that is changed."""

    name: str
    rows: list[dict[str, Any]]
    columns: dict[str, Column]
    job: str = ""
    suffix: str = ".csv"
    others: dict[str, str] = field(default_factory=dict)  # files beside it
    least: float = -math.inf

    def read(self, path: Path) -> Any:
        return READ[self.name.partition(" of ")[0]](path)


# What is made of what was found, before it is compared.
MADE: dict[str, Callable[[Any], Any]] = {
    "": lambda found: found,
    "seconds": lambda ns: ns / S,
    "mib": lambda gib: gib and gib * 1024,
    "inverse": lambda ratio: 1 / ratio,
    "amp": lambda model: int(model.endswith("+amp")),
    "count": len,
    "list": lambda array: array.tolist(),
}


def seen(found: Any, where: str) -> Any:
    """What was read of a column."""
    path, _, made = where.partition(" ")
    for part in path.split("."):
        if re.fullmatch(r"-?\d+|\(.*\)", part):
            found = found[literal_eval(part)]
        else:
            keyed = isinstance(found, dict | pd.DataFrame)
            found = found[part] if keyed else getattr(found, part)
    return MADE[made](found)


NUMBER, WHOLE, NAME, INSTANT, LIST = "number", "whole", "name", "instant", "list"


def written(reader: Reader, folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The table as a file of its suffix: text is written as it is, and quoted where CSV needs it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in reader.others.items():
        (folder / name).write_text(text)
    path = folder / f"table{reader.suffix}"
    if reader.suffix == ".swf":
        path.write_text(
            "".join(" ".join(map(str, row.values())) + "\n" for row in rows)
        )
        return path
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def application(path: Path) -> Any:
    folder = path.parent / "toy"
    if not folder.exists():
        write_application(folder)
    (folder / "placements.csv").write_text(path.read_text("utf-8"))
    return read_application(folder)


def validation(path: Path) -> Any:
    folder = path.parent / "toy"
    if not folder.exists():
        write_application(folder)
    (folder / "validation-64.csv").write_text(path.read_text("utf-8"))
    return read_application(folder).validations[64]


def pollux(path: Path) -> Any:
    folder = path.parent / "apps" / "toy"
    if not folder.exists():
        write_application(folder)
    return read_pollux_jobs(path, path.parent / "apps")


CURVE_JOB = jobs_from_frame(
    pd.DataFrame(
        [{"name": "a", "Jmin": 1, "Jmax": 9, "Pmax": 7.0, "Tsub": TSUB, "Tcup": 2, "Tcdw": 3, "Ns": [0, 4],
          "Ps": [0, 10], "Os": [0, 1], "vc": "p"}]
    )
)  # fmt: skip
READ: dict[str, Callable[[Path], Any]] = {
    "jobs": read_jobs,
    "bounds": lambda path: read_published_jobs(path, path.parent / "curves.csv"),
    "venus": read_venus_jobs,
    "tiresias": read_tiresias_jobs,
    "pollux": pollux,
    "xi": read_xi,
    "measurements": lambda path: merged(read_measurements([path])),
    "memory": read_unit_memory,
    "throughputs": read_throughputs,
    "application": application,
    "validation": validation,
    "colocation": lambda path: read_colocation(path, indifferent=()),
    "pairs": lambda path: sharing_scores(read_table(path), source=str(path)),
    "samples": read_samples,
    "forecast": read_forecast_table,
    "cluster": lambda path: cluster_pools(str(path), CURVE_JOB),
    "submissions": lambda path: submissions(read_table(path), source=str(path)),
    "finished jobs": lambda path: _past(read_table(path), (), str(path)),
    "swf": read_swf_jobs,
}  # fmt: skip


def readers() -> Iterator[Reader]:
    """The tables of tests/data/cells.toml."""
    text = (Path(__file__).parents[1] / "data" / "cells.toml").read_text("utf-8")
    for name, told in tomllib.loads(text).items():
        every = told.pop("all", {})
        rows = [row | every for row in told.pop("rows")]
        columns = {
            column: Column(*(None if each == "none" else each for each in cells))
            for column, cells in told.pop("columns").items()
        }
        yield Reader(name, rows, columns, **told)


READERS = [*readers()]
COLUMNS = [
    pytest.param(reader, name, id=f"{reader.name}-{name}")
    for reader in READERS
    for name in reader.columns
]

NOTHING = ("", "  ", "NaN", "None")
# In every column of numbers of every table, and all that follow in the one function that reads numbers.
NO_NUMBERS = ("True", "4_0", "٤", "inf", "1,5", "4 GiB", "[4]")
FURTHER_NO_NUMBERS = (
    "1_000", "４", "4٫5", "-inf", "1e400", "0x10", "4%", "1 000", "--4", "4e", "1.5.2", "four", "1,500", "4\u00a0000",
    "nan", "", "1e", "e1", ".", "+", "4f", "4d0", "½", "²", "0b1", "infinity", "4-", "4 4", "1e5.0",
)  # fmt: skip
# What these mean, as nobody doubts.
NUMBERS = {
    "4": 4, " +4 ": 4, "4.": 4, "40E-1": 4, "0004": 4, "1.5": Fraction(3, 2), "-0": 0, "-4": -4,
    "9007199254740993": 2**53 + 1, "1e-320": Fraction("1e-320"), "123456789012345678901": 123456789012345678901,
}  # fmt: skip
# In range of nearly every column.
PLAIN = (" +4 ", "40E-1", "0004")
INSTANTS = {
    "2021-02-10T20:21:15Z": TSUB_NS, "2021-02-10 20:21:15": TSUB_NS, "2021-02-10T21:21:15+01:00": TSUB_NS,
    " 2021-02-10 20:21:15.5 ": TSUB_NS + S // 2, "2021-02-10": 1_612_915_200 * S,
    "2021-02-10T20:21:15.000000001Z": TSUB_NS + 1,
}  # fmt: skip
NO_INSTANTS = (
    "now", "10:00", "02/03/2021", "10.02.2021", "2021-02-30", "9999-01-01", "٢٠٢١-02-10", "2021-W05-1", "True", "4_0",
    "1,5",
)  # fmt: skip
LISTS = {" [0,4] ": [0, 4], "[0.0, 4e0]": [0, 4]}
NO_LISTS = (
    "0 4", "[0, 4", "[0, true]", "[0, null]", "[0, NaN]", "[0, 1e999]", '[0, "4_0"]', "[0, [4]]", "{}", "4", "[0; 4]",
    "", "NA",
)  # fmt: skip
NAMES = {
    "007": "007",
    "NA": "NA",
    "1e5": "1e5",
    "True": "True",
    " m ": "m",
    "1.0": "1.0",
}


def zoned_as(cell: str, other: Any) -> Any:
    """Another instant of the column, with or without a time zone as this one: a column that mixes both is refused."""
    if not isinstance(other, str):
        return other
    has_zone = re.compile(r"(Z|[+-]\d\d:\d\d)\s*$")
    day = other.removesuffix("Z")
    if not has_zone.search(cell):
        return day
    return day + ("Z" if "T" in day else "T00:00:00Z")


def attempt(
    reader: Reader, column: str, cell: Any, folder: Path
) -> tuple[Any, InputError | None]:
    """What is read of the table with this cell in its last row, or the error; any other exception fails the test."""
    name = column.split()[0]
    others = reader.rows[:-1]
    if (
        isinstance(cell, str)
        and column in reader.columns
        and reader.columns[column].kind == INSTANT
    ):
        others = [{**row, name: zoned_as(cell, row[name])} for row in others]
    path = written(reader, folder, [*others, {**reader.rows[-1], name: cell}])
    try:
        return reader.read(path), None
    except InputError as error:
        return None, error


def is_refused(reader: Reader, column: str, cell: str, folder: Path) -> None:
    found, error = attempt(reader, column, cell, folder)
    assert error is not None, f"{cell!r} was read as {found}"
    files = (f"table{reader.suffix}", "placements.csv", "validation-64.csv")
    assert Path(str(error.file)).name in files
    assert (error.row, error.column) == (len(reader.rows), column), f"{cell!r}: {error}"
    if column.split()[0] != reader.job:
        assert error.job == (reader.rows[-1][reader.job] if reader.job else None), (
            f"{cell!r}: {error}"
        )


def check_value(
    reader: Reader, column: Column, found: Any, cell: str, value: Any
) -> None:
    """Compare what was read with what the cell means."""
    if not column.where:
        return
    if reader.name in ("venus", "tiresias", "swf") and len(found) < len(reader.rows):
        assert value == 0, (
            f"{cell!r}: a job of no units or no time is left out, no other"
        )
        return
    read = seen(found, column.where)
    if column.kind in (NAME, LIST, INSTANT):
        assert read == value, cell
        return
    right = max(float(value), reader.least)
    assert math.isclose(read, right, rel_tol=1e-15, abs_tol=1e-9), cell
    if column.kind == NUMBER and right == 0:
        assert math.copysign(1.0, read) == 1.0, "-0 is 0"


def means_of(reader: Reader, name: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What cells mean in a column, and those of them that are in its range."""
    kind = reader.columns[name].kind
    if kind == NAME:
        return NAMES, (" m ", "007")
    if kind == INSTANT:
        return INSTANTS, tuple(INSTANTS)[:4]
    if kind == LIST:
        return LISTS, tuple(LISTS)
    ranges = {
        "venus-amp": (" +1 ", "10E-1"),
        "colocation-amp2": (" +1 ", "10E-1"),
    }
    plain = ranges.get(f"{reader.name}-{name}", PLAIN)
    return {**NUMBERS, **{cell: Fraction(cell.strip()) for cell in plain}}, plain


@pytest.mark.parametrize(("reader", "name"), COLUMNS)
def test_a_cell_is_read_right_or_refused_where_it_is(
    reader: Reader, name: str, tmp_path: Path
) -> None:
    column = reader.columns[name]
    meaningless = {
        NUMBER: NO_NUMBERS,
        WHOLE: (*NO_NUMBERS, "1e300"),
        INSTANT: NO_INSTANTS,
        LIST: NO_LISTS,
        NAME: (),
    }
    gaps = {LIST: (), NAME: ("", "  ")}.get(column.kind, NOTHING)
    means, plain = means_of(reader, name)
    # Fields of SWF lie between spaces: there are none in them, and no gaps.
    swf = reader.suffix == ".swf"
    for cell in (
        cell for cell in meaningless[column.kind] if not (swf and " " in cell)
    ):
        is_refused(reader, name, cell, tmp_path)
    for cell in () if swf else gaps:
        if column.default is REQUIRED:
            is_refused(reader, name, cell, tmp_path)
        else:
            found, error = attempt(reader, name, cell, tmp_path)
            assert error is None, f"{cell!r}: {error}"
            assert not column.where or seen(found, column.where) == column.default
    for cell, value in means.items():
        if not (swf and " " in cell):
            found, error = attempt(reader, name, cell, tmp_path)
            assert error is None or cell not in plain, f"{cell!r}: {error}"
            if error is None:
                check_value(reader, column, found, cell, value)


# --- one cell ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*NO_NUMBERS, *FURTHER_NO_NUMBERS])
def test_text_that_is_no_number(text: str) -> None:
    assert math.isnan(read_number(text))


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(("", " ", "\t"))
)
def test_a_number_is_read_as_it_was_written(number: float, space: str) -> None:
    assert read_number(f"{space}{number!r}{space}") == number
    assert read_number(number) == number


@given(st.text(max_size=8))
def test_what_is_read_of_a_text_is_what_python_reads_of_plain_digits(text: str) -> None:
    plain = text.strip()
    if set(plain) <= set("0123456789+-.eE"):
        try:
            number = float(plain)
        except ValueError:
            number = math.nan
        assert read_number(text) == number or (
            math.isnan(read_number(text)) and not math.isfinite(number)
        )
    else:
        assert math.isnan(read_number(text))


TYPED = [
    (True, None), (np.True_, None), (b"4", None), ([4], None), (4 + 0j, None), (None, None), (pd.NA, None),
    (pd.NaT, None), (pd.Timestamp(TSUB), None), (np.timedelta64(4, "s"), None), (10**400, None), (Decimal("NaN"), None),
    (Decimal("sNaN"), None), (Decimal("Infinity"), None), (math.nan, None), (np.float64("inf"), None), ({}, None),
    (np.float32(0.5), 0.5), (np.int8(4), 4.0), (np.uint64(2**63), 2.0**63), (Decimal("1.5"), 1.5), (2**53 + 1, 2.0**53),
    (Fraction(1, 2), 0.5), (np.float16(2), 2.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "number"),
    TYPED,
    ids=lambda value: f"{type(value).__name__} {value!r:.20}",
)
def test_values_of_any_type(value: Any, number: float | None) -> None:
    assert (
        read_number(value) == number
        if number is not None
        else math.isnan(read_number(value))
    )
    row = Rows(
        pd.DataFrame([{"name": "a", "x": value}], dtype=object), "t.csv", job="name"
    )[0]
    if number is not None:
        assert row.number("x") == number
        return
    for read in (row.number, row.whole):
        refused(
            r"^t.csv, row 1, column x, job a: expected a (finite|whole) number",
            read,
            "x",
        )


@pytest.mark.parametrize(
    "dtype",
    [
        "Int64",
        "Float64",
        "float32",
        "int16",
        "uint8",
        "object",
        "int64[pyarrow]",
        "category",
    ],
)
def test_columns_of_any_type(dtype: str) -> None:
    frame = pd.DataFrame({"x": pd.Series([4, 2], dtype=dtype)})
    assert [row.whole("x") for row in Rows(frame)] == [4, 2]
    assert Rows(frame).all_numbers("x", min=0).tolist() == [4.0, 2.0]
    if dtype in ("Int64", "Float64", "object", "int64[pyarrow]"):
        gap = pd.DataFrame({"x": pd.Series([4, None], dtype=dtype)})
        assert [row.number("x", None) for row in Rows(gap)] == [4.0, None]
        refused(
            "row 2, column x: expected a finite number, not an empty cell",
            Rows(gap).all_numbers,
            "x",
        )


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]", "object"])
def test_truth_values_are_no_numbers(dtype: str) -> None:
    rows = Rows(pd.DataFrame({"x": pd.Series([True, False], dtype=dtype)}))
    refused(
        r"row 1, column x: .* not True \(a truth value is not a number\)",
        rows.all_numbers,
        "x",
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_time_stamps_of_any_unit_and_zone(unit: str, zone: str | None) -> None:
    stamps = pd.Series(pd.DatetimeIndex([TSUB, None]).as_unit(unit)).dt.tz_convert(zone)
    for column in (stamps, stamps.astype(object)):
        rows = Rows(pd.DataFrame({"t": column}))
        assert [row.instant("t", None) for row in rows] == [TSUB_NS, None]
    assert Rows(pd.DataFrame({"t": stamps[:1]})).all_seconds("t").tolist() == [
        TSUB_NS / S
    ]


def test_whole_numbers_beyond_2_to_the_53_are_refused_as_floats_do_not_hold_them() -> (
    None
):
    rows = Rows(
        pd.DataFrame({"x": [2**53 - 1, 2**53 + 1, "9007199254740993"]}, dtype=object)
    )
    assert rows[0].whole("x") == 2**53 - 1
    for row in (rows[1], rows[2]):
        refused("expected a whole number < 9007199254740992 in", row.whole, "x")


@pytest.mark.parametrize(
    "value", [7.0, True, [1], pd.Timestamp(TSUB), None, "  ", math.nan]
)
def test_what_is_no_name(value: Any) -> None:
    row = Rows(pd.DataFrame([{"n": value}], dtype=object))[0]
    refused("row 1, column n: expected a name", row.name, "n")


def test_columns_of_one_name_are_refused() -> None:
    refused(
        "two columns of this name",
        Rows,
        pd.DataFrame([[1, 2]], columns=["x", " x "]),
        "t.csv",
    )


# --- tables of spreadsheets -------------------------------------------------------------------------------------------

SHEET = "model_a;model_b;xi_a;xi_b\nbert;vgg;1,5;2,25\n"


@pytest.mark.parametrize(
    "text",
    [
        SHEET,
        "\ufeff" + SHEET,
        SHEET.replace(";", "\t"),
        SHEET.replace("\n", "\r\n"),
        SHEET.replace("model_a;model_b", '"model_a" ; " model_b"'),
        SHEET.replace(",", "."),
        SHEET.replace(",", ".").replace(";", ","),
        SHEET.replace(",", ".").replace(";", " , "),
        SHEET.replace("1,5", '"1,5"'),
        "\n" + SHEET,
    ],
)
def test_tables_of_spreadsheets_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "xi.csv"
    path.write_bytes(text.encode())
    (row,) = read_xi(path).measurements
    assert (row.model_a, row.model_b, row.xi_a, row.xi_b) == ("bert", "vgg", 1.5, 2.25)


# --- where the user stands --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "table", "message"),
    [
        (
            "xi show",
            "model_a,model_b,xi_a,xi_b\na,b,4_0,1\n",
            "row 1, column xi_a: expected a finite number > 0, not '4_0'",
        ),
        (
            "jobs fit",
            "model,units,throughput\na,1,True\na,2,1\n",
            "row 1, column throughput: expected a finite number > 0, not 'True'",
        ),
        (
            "convert -o out.csv",
            'name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\na,1,4,"1,5",2021-02-10,1,1,"[0, 4]","[0, 4]","[0, 4]"\n',
            "row 1, column Pmax, job a: expected a finite number, not '1,5' (a decimal comma?",
        ),
    ],
)
def test_the_command_line_names_the_cell(
    command: str, table: str, message: str, here: Path, told: Callable[..., str]
) -> None:
    Path("t.csv").write_text(table)
    assert told(f"{command} t.csv", f"t.csv, {message}", code=2).startswith("Error")
