"""Hostile cells in every column of every table: read right, or refused with file, row, column and job."""

from __future__ import annotations

import csv
import math
import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

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
from bft.models.learned.duration import split_in_time
from bft.models.learned.packing import sharing_scores
from bft.models.measure.xi_measurements import merged
from bft.models.workloads.jobs_pollux import read_pollux_jobs
from bft.replay.policies.lucid.submissions import read_forecast_table
from bft.replay.policies.tiresias import read_samples
from bft.replay.pools import cluster_pools

read_colocation = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "_colocation.py")
)["read_colocation"]
REQUIRED = object()
TSUB, TSUB_NS = "2021-02-10T20:21:15Z", 1_612_988_475_000_000_000
S = 1_000_000_000


@dataclass(frozen=True)
class Column:
    """A column of a table: what kind of cell it holds, how to get what was read of the last row, and its default."""

    kind: str
    get: Callable[[Any], Any] | None = (
        None  # None: what was read cannot be seen, only that it was not refused
    )
    default: Any = REQUIRED
    least: float = -math.inf  # smaller numbers count as this one


@dataclass(frozen=True)
class Reader:
    """A reader of tables, the rows of a good one, and its columns; the last row is the one that is changed."""

    name: str
    read: Callable[[Path], Any]
    rows: list[dict[str, Any]]
    columns: dict[str, Column]
    job: str = ""
    suffix: str = ".csv"
    others: dict[str, str] = field(default_factory=dict)  # files beside it


def last_job(attribute: str) -> Callable[[Any], Any]:
    return lambda table: getattr(table.jobs[-1], attribute)


NUMBER, WHOLE, NAME, INSTANT, LIST = "number", "whole", "name", "instant", "list"
BOUNDS = {
    "Jmin": Column(WHOLE, last_job("jmin")),
    "Jmax": Column(WHOLE, last_job("jmax")),
    "Pmax": Column(NUMBER, last_job("pmax")),
    "Tcup": Column(NUMBER, last_job("tcup_s")),
    "Tcdw": Column(NUMBER, last_job("tcdw_s")),
    "Tsub": Column(INSTANT, last_job("tsub_ns")),
}
JOB = {"Jmin": 1, "Jmax": 9, "Pmax": 7.0, "Tsub": TSUB, "Tcup": 2, "Tcdw": 3}
CURVE = {"Ns": "[0, 4]", "Ps": "[0, 10]", "Os": "[0, 1]"}
FURTHER = {
    "Jreq": 4,
    "weight": 2.0,
    "batch_size": 8,
    "memory_gib": 2.0,
    "skew": 0.5,
    "spread_slowdown": 2.0,
}
LABELS = {"deadline": "2021-03-01T00:00:00Z", "model": "m", "user": "u", "vc": "v"}
ROOT_PAIR = {
    "model1": "A",
    "batchsize1": 8,
    "amp1": 0,
    "speed1": 0.5,
    "model2": "B",
    "batchsize2": 8,
    "amp2": 0,
}


def named(*names: str, **cells: Any) -> list[dict[str, Any]]:
    key, *values = names
    return [{key: value, **cells} for value in values]


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
        [{"name": "a", **JOB, "Ns": [0, 4], "Ps": [0, 10], "Os": [0, 1], "vc": "p"}]
    )
)
SWF = (
    "1",
    "5",
    "-1",
    "7",
    "2",
    "-1",
    "-1",
    "2",
    "9",
    "-1",
    "1",
    "3",
    "4",
    "5",
    "1",
    "-1",
    "-1",
    "-1",
)

READERS = [
    Reader(
        "jobs",
        read_jobs,
        named("name", "a", "b", **JOB, **CURVE, **FURTHER, **LABELS),
        {
            **BOUNDS,
            "name": Column(NAME, last_job("name")),
            "Jreq": Column(WHOLE, last_job("jreq"), None),
            "weight": Column(NUMBER, last_job("weight"), 1.0),
            "batch_size": Column(NUMBER, last_job("batch_size"), None),
            "memory_gib": Column(NUMBER, last_job("memory_gib"), None),
            "skew": Column(NUMBER, last_job("skew"), None),
            "spread_slowdown": Column(NUMBER, last_job("spread_slowdown"), 1.0),
            "deadline": Column(INSTANT, last_job("deadline_ns"), None),
            "model": Column(NAME, last_job("model"), ""),
            "user": Column(NAME, last_job("user"), ""),
            "vc": Column(NAME, last_job("vc"), ""),
            "Ns": Column(LIST, lambda table: table.jobs[-1].scalability.ns.tolist()),
            "Ps": Column(LIST, lambda table: table.jobs[-1].scalability.ps.tolist()),
            "Os": Column(LIST, lambda table: table.jobs[-1].objective.ps.tolist()),
        },
        job="name",
    ),
    Reader(
        "bounds",
        lambda path: read_published_jobs(path, path.parent / "curves.csv"),
        named("name", "a", "b", **JOB),
        BOUNDS,
        job="name",
        others={
            "curves.csv": 'name,Ns,Ps,Os\na,"[0, 4]","[0, 9]","[0, 1]"\nb,"[0, 4]","[0, 9]","[0, 1]"\n'
        },
    ),
    Reader(
        "venus",
        lambda path: read_venus_jobs(path),
        named(
            "job_id",
            "a",
            "b",
            gpu_num=4,
            submit_time=TSUB,
            duration=9,
            batchsize=8,
            amp=1,
            gmem=1024,
            model="m",
        ),
        {
            "gpu_num": Column(WHOLE, last_job("jmax")),
            "duration": Column(NUMBER, last_job("pmax")),
            "batchsize": Column(NUMBER, last_job("batch_size"), None),
            "gmem": Column(
                NUMBER,
                lambda table: (gib := table.jobs[-1].memory_gib) and gib * 1024,
                None,
            ),
            "amp": Column(WHOLE, lambda table: int(table.jobs[-1].model == "m+amp"), 0),
            "submit_time": Column(INSTANT, last_job("tsub_ns")),
            "job_id": Column(NAME, last_job("name")),
        },
        job="job_id",
    ),
    Reader(
        "tiresias",
        read_tiresias_jobs,
        named(
            "job_id",
            "a",
            "b",
            num_gpu=4,
            submit_time=5,
            duration=9,
            skew=0.5,
            spread_slowdown=2,
            model_name="m",
        ),
        {
            "num_gpu": Column(WHOLE, last_job("jmax")),
            "submit_time": Column(NUMBER, lambda table: table.jobs[-1].tsub_ns / S),
            "duration": Column(NUMBER, last_job("pmax")),
            "skew": Column(NUMBER, last_job("skew"), None),
            "spread_slowdown": Column(NUMBER, last_job("spread_slowdown"), 1.0),
            "model_name": Column(NAME, last_job("model"), ""),
        },
        job="job_id",
    ),
    Reader(
        "pollux",
        pollux,
        named(
            "name", "a", "b", time=5, application="toy", num_replicas=2, batch_size=128
        ),
        {
            "time": Column(NUMBER, lambda table: table.jobs[-1].tsub_ns / S),
            "num_replicas": Column(WHOLE, last_job("jreq")),
        },
        job="name",
    ),
    Reader(
        "xi",
        read_xi,
        named(
            "model_a",
            "a",
            "b",
            model_b="b",
            xi_a=1.5,
            xi_b=2.0,
            batch_a=8,
            batch_b=8,
            units=2,
        ),
        {
            **{
                name: Column(
                    NUMBER, lambda xi, name=name: getattr(xi.measurements[-1], name)
                )
                for name in ("xi_a", "xi_b")
            },
            **{
                name: Column(
                    NUMBER,
                    lambda xi, name=name: getattr(xi.measurements[-1], name),
                    None,
                )
                for name in ("batch_a", "batch_b", "units")
            },
            "model_b": Column(NAME, lambda xi: xi.measurements[-1].model_b),
        },
    ),
    Reader(
        "measurements",
        lambda path: merged(read_measurements([path])),
        [
            {"model_a": "a", "model_b": "", "step_a_s": 1, "step_b_s": "", "units": ""},
            {"model_a": "b", "model_b": "", "step_a_s": 1, "step_b_s": "", "units": ""},
            {"model_a": "a", "model_b": "b", "step_a_s": 5, "step_b_s": 5, "units": ""},
        ],
        {
            "step_a_s": Column(NUMBER, lambda found: found[-1].xi_a, least=1),
            "step_b_s": Column(NUMBER, lambda found: found[-1].xi_b, least=1),
            "units": Column(NUMBER, lambda found: found[-1].units, None),
        },
    ),
    Reader(
        "memory",
        read_unit_memory,
        named("model", "a", "b", batch=8, memory_gib=2.0),
        {
            "batch": Column(NUMBER, lambda memory: memory.curves["b"].batches[0]),
            "memory_gib": Column(NUMBER, lambda memory: memory.curves["b"].gib[0]),
        },
    ),
    Reader(
        "throughputs",
        read_throughputs,
        named("model", "a", "b", units=4, throughput=10.0),
        {
            "units": Column(WHOLE, lambda found: found[-1].units[-1]),
            "throughput": Column(NUMBER, lambda found: found[-1].throughput[-1]),
        },
    ),
    Reader(
        "application",
        application,
        named("placement", "1", "2", "3", local_bsz=8, step_time=10.0, sync_time=0.5),
        {
            "local_bsz": Column(WHOLE, lambda found: found.steps[3,][-1, 0]),
            "step_time": Column(NUMBER, lambda found: found.steps[3,][-1, 1]),
            "sync_time": Column(NUMBER, lambda found: found.steps[3,][-1, 2]),
        },
    ),
    Reader(
        "validation",
        validation,
        named("progress", "1", "2", iteration=1.0, grad_sqr=1.0, grad_var=1.0),
        {
            name: Column(NUMBER, lambda found, at=at: getattr(found, at)[-1])
            for name, at in (
                ("iteration", "iterations"),
                ("grad_sqr", "grad_sqr"),
                ("grad_var", "grad_var"),
            )
        },
    ),
    Reader(
        "colocation",
        lambda path: read_colocation(path, indifferent=()),
        [{**ROOT_PAIR, "speed2": 0.5}, {**ROOT_PAIR, "speed2": 0.5}],
        {
            "speed1": Column(NUMBER, lambda xi: 1 / xi.measurements[-1].xi_a),
            "batchsize2": Column(NUMBER, lambda xi: xi.measurements[-1].batch_b),
            "amp2": Column(
                WHOLE, lambda xi: int(xi.measurements[-1].model_b == "B+amp"), 0
            ),
            "model1": Column(NAME, lambda xi: xi.measurements[-1].model_a),
        },
    ),
    Reader(
        "pairs",
        lambda path: sharing_scores(read_table(path), source=str(path)),
        [{**ROOT_PAIR, "speed2": 0.5}, {**ROOT_PAIR, "model1": "Z", "speed2": 0.5}],
        {
            "speed1": Column(NUMBER, lambda scores: scores["speed"].iloc[-1]),
            "batchsize1": Column(NUMBER, lambda scores: scores["batchsize"].iloc[-1]),
        },
    ),
    Reader(
        "samples",
        read_samples,
        named("service", "1", "2", job="a"),
        {"service": Column(NUMBER, lambda found: found[-1])},
    ),
    Reader(
        "forecast",
        read_forecast_table,
        named("time", "1970-01-01", "1970-01-02", jobs=1, units=2),
        {
            "time": Column(INSTANT, lambda table: table.times_ns[-1]),
            "jobs": Column(NUMBER, lambda table: table.jobs[-1]),
            "units": Column(NUMBER, lambda table: table.units[-1]),
        },
    ),
    Reader(
        "cluster",
        lambda path: cluster_pools(str(path), CURVE_JOB),
        named("vc", "q", "p", nodes=2, units_per_node=4),
        {
            "nodes": Column(WHOLE, lambda pools: len(pools[-1].trace.nodes)),
            "units_per_node": Column(
                WHOLE, lambda pools: pools[-1].trace.units_per_node
            ),
        },
    ),
    Reader(
        "submissions",
        lambda path: submissions(read_table(path), source=str(path)),
        named("submit_time", "0", "600", gpu_num=3),
        {"gpu_num": Column(NUMBER, lambda slots: slots["units"].iloc[-1])},
    ),
    Reader(
        "finished jobs",
        lambda path: split_in_time(read_table(path), 0.5, source=str(path)),
        named("user", "u", "v", gpu_num=3, submit_time=5, duration=9.0),
        {
            "gpu_num": Column(NUMBER),
            "duration": Column(NUMBER),
            "submit_time": Column(INSTANT),
            "user": Column(NAME),
        },
    ),
    Reader(
        "swf",
        read_swf_jobs,
        [
            {str(k): cell for k, cell in enumerate(SWF, start=1)},
            {str(k): cell for k, cell in enumerate(("2", *SWF[1:]), 1)},
        ],
        {
            "2 (submit time)": Column(NUMBER, lambda table: table.jobs[-1].tsub_ns / S),
            "4 (run time)": Column(NUMBER, last_job("pmax")),
            "5 (allocated processors)": Column(NUMBER),
        },
        job="1",
        suffix=".swf",
    ),
]
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
    if column.get is None:
        return
    if reader.name in ("venus", "tiresias", "swf") and len(found) < len(reader.rows):
        assert value == 0, (
            f"{cell!r}: a job of no units or no time is left out, no other"
        )
        return
    read = column.get(found)
    if column.kind in (NAME, LIST, INSTANT):
        assert read == value, cell
        return
    right = max(float(value), column.least)
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
            assert column.get is None or column.get(found) == column.default
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
        refused("expected a whole number < 9007199254740992", row.whole, "x")


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
