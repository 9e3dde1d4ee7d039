"""Tables of every reader: hostile cells, tables that are refused, and the jobs of other simulators."""

import csv
import gzip
import math
import re
import tomllib
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from agreeing import at
from drawing import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from refusals import refused
from toy_application import workload, write_application

from benchmarks._published import read_colocation
from bft.models import (
    DurationEstimator,
    Forecaster,
    InputError,
    Job,
    PackingAnalyser,
    jobs_from_frame,
    read_application,
    read_jobs,
    read_measurements,
    read_model,
    read_philly_jobs,
    read_pollux_jobs,
    read_published_jobs,
    read_swf_jobs,
    read_table,
    read_throughputs,
    read_tiresias_jobs,
    read_unit_memory,
    read_venus_jobs,
    read_xi,
    sharing_scores,
    submissions,
)
from bft.models.cells import Rows, read_number
from bft.models.learned.duration import _past
from bft.models.measure.xi_measurements import merged
from bft.replay.policies.lucid.submissions import read_forecast_table
from bft.replay.policies.tiresias import read_samples
from bft.replay.pools import cluster_pools
from bft.replay.trace.trace_files import read_trace

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


def cases_of(name: str) -> dict[str, Any]:
    path = Path(__file__).parents[1] / "data" / f"{name}.toml"
    return tomllib.loads(path.read_text("utf-8"))


def through(learn):
    return lambda path: learn(read_table(path), source=str(path))


# What is made of what was found, before it is compared.
MADE = {
    "": lambda found: found,
    "seconds": lambda ns: ns / S,
    "mib": lambda gib: gib and gib * 1024,
    "inverse": lambda ratio: 1 / ratio,
    "amp": lambda model: int(model.endswith("+amp")),
    "count": len,
    "list": lambda found: found,
}


def seen(found, where: str):
    path, _, made = where.partition(" ")
    return MADE[made](at(found, path))


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


def of_application(file: str):
    """Reads the measured application of which a table takes the place of one file."""

    def read(path: Path) -> Any:
        folder = path.parent / "toy"
        if not folder.exists():
            write_application(folder)
        (folder / file).write_text(path.read_text("utf-8"))
        return read_application(folder)

    return read


def pollux(path: Path) -> Any:
    if not (path.parent / "apps").exists():
        write_application(path.parent / "apps" / "toy")
    return read_pollux_jobs(path, path.parent / "apps")


CURVE_JOB = jobs_from_frame(
    pd.DataFrame(
        [{"name": "a", "Jmin": 1, "Jmax": 9, "Pmax": 7.0, "Tsub": TSUB, "Tcup": 2, "Tcdw": 3, "Ns": [0, 4],
          "Ps": [0, 10], "Os": [0, 1], "vc": "p"}]
    )
)  # fmt: skip
READ = {
    "jobs": read_jobs,
    "bounds": lambda path: read_published_jobs(path, path.parent / "curves.csv"),
    "venus": read_venus_jobs,
    "tiresias": read_tiresias_jobs,
    "pollux": pollux,
    "xi": read_xi,
    "measurements": lambda path: merged(read_measurements([path])),
    "memory": read_unit_memory,
    "throughputs": read_throughputs,
    "application": of_application("placements.csv"),
    "validation": lambda path: of_application("validation-64.csv")(path).validations[64],
    "colocation": lambda path: read_colocation(path, indifferent=()),
    "pairs": through(sharing_scores),
    "samples": read_samples,
    "forecast": read_forecast_table,
    "cluster": lambda path: cluster_pools(str(path), CURVE_JOB),
    "submissions": through(submissions),
    "finished jobs": lambda path: _past(read_table(path), (), str(path)),
    "swf": read_swf_jobs,
    "philly": read_philly_jobs,
}  # fmt: skip


def readers():
    for name, told in cases_of("cells").items():
        every = told.pop("all", {})
        rows = [row | every for row in told.pop("rows")]
        columns = {
            column: Column(*(None if each == "none" else each for each in cells))
            for column, cells in told.pop("columns").items()
        }
        yield Reader(name, rows, columns, **told)


COLUMNS = [
    pytest.param(reader, name, id=f"{reader.name}-{name}")
    for reader in readers()
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
    day = other.removesuffix("Z")
    if not re.search(r"(Z|[+-]\d\d:\d\d)\s*$", cell):
        return day
    return day + ("Z" if "T" in day else "T00:00:00Z")


def attempt(reader: Reader, column: str, cell: str, folder: Path) -> Any:
    """What is read of the table with this cell in its last row, or the error; any other exception fails the test."""
    name, (*others, last) = column.split()[0], reader.rows
    if reader.columns[column].kind == INSTANT:
        others = [{**row, name: zoned_as(cell, row[name])} for row in others]
    path = written(reader, folder, [*others, {**last, name: cell}])
    try:
        return reader.read(path)
    except InputError as error:
        return error


def is_refused(reader: Reader, column: str, cell: str, folder: Path) -> None:
    error = attempt(reader, column, cell, folder)
    assert isinstance(error, InputError), f"{cell!r} was read as {error}"
    files = (f"table{reader.suffix}", "placements.csv", "validation-64.csv")
    assert Path(str(error.file)).name in files
    assert (error.row, error.column) == (len(reader.rows), column), f"{cell!r}: {error}"
    job = reader.rows[-1][reader.job] if reader.job else None
    assert column.split()[0] == reader.job or error.job == job, f"{cell!r}: {error}"


def check_value(
    reader: Reader, column: Column, found: Any, cell: str, value: Any
) -> None:
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
    kind = reader.columns[name].kind
    if kind in (NUMBER, WHOLE):
        zero_or_one = f"{reader.name}-{name}" in ("venus-amp", "colocation-amp2")
        plain = (" +1 ", "10E-1") if zero_or_one else PLAIN
        return {**NUMBERS, **{cell: Fraction(cell.strip()) for cell in plain}}, plain
    return {
        NAME: (NAMES, (" m ", "007")),
        INSTANT: (INSTANTS, tuple(INSTANTS)[:4]),
        LIST: (LISTS, tuple(LISTS)),
    }[kind]


@pytest.mark.parametrize(("reader", "name"), COLUMNS)
def test_a_cell_is_read_right_or_refused_where_it_is(
    reader: Reader, name: str, tmp_path: Path
) -> None:
    column = reader.columns[name]
    # Fields of SWF lie between spaces: there are none in them, and no gaps.
    swf = reader.suffix == ".swf"
    meaningless, gaps = {
        NUMBER: (NO_NUMBERS, NOTHING),
        WHOLE: ((*NO_NUMBERS, "1e300"), NOTHING),
        INSTANT: (NO_INSTANTS, NOTHING),
        LIST: (NO_LISTS, ()),
        NAME: ((), ("", "  ")),
    }[column.kind]
    if column.default is REQUIRED and not swf:
        meaningless += gaps
    for cell in meaningless:
        if not (swf and " " in cell):
            is_refused(reader, name, cell, tmp_path)
    for cell in () if swf or column.default is REQUIRED else gaps:
        found = attempt(reader, name, cell, tmp_path)
        assert not isinstance(found, InputError), f"{cell!r}: {found}"
        assert not column.where or seen(found, column.where) == column.default
    means, plain = means_of(reader, name)
    for cell, value in means.items():
        if not (swf and " " in cell):
            found = attempt(reader, name, cell, tmp_path)
            if not isinstance(found, InputError):
                check_value(reader, column, found, cell, value)
                continue
            assert cell not in plain, f"{cell!r}: {found}"


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
    number = math.nan
    if set(text.strip()) <= set("0123456789+-.eE"):
        with suppress(ValueError):
            number = float(text)
    expected = number if math.isfinite(number) else math.nan
    assert read_number(text) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


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
    row = Rows(
        pd.DataFrame([{"name": "a", "x": value}], dtype=object), "t.csv", job="name"
    )[0]
    if number is not None:
        assert read_number(value) == row.number("x") == number
        return
    assert math.isnan(read_number(value))
    for read in (row.number, row.whole):
        why = r"^t.csv, row 1, column x, job a: expected a (finite|whole) number"
        refused(why, read, "x")


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
    refused(
        r"row 1, column x: .* not True \(a truth value is not a number\)",
        Rows(pd.DataFrame({"x": pd.Series([True, False], dtype=dtype)})).all_numbers,
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


def test_whole_numbers_beyond_2_to_the_53_are_refused_as_floats_do_not_hold_them() -> None:  # fmt: skip
    cells = [2**53 - 1, 2**53 + 1, "9007199254740993"]
    known, *beyond = Rows(pd.DataFrame({"x": cells}, dtype=object))
    assert known.whole("x") == 2**53 - 1
    for row in beyond:
        refused("expected a whole number < 9007199254740992 in", row.whole, "x")


@pytest.mark.parametrize(
    "value", [7.0, True, [1], pd.Timestamp(TSUB), None, "  ", math.nan]
)
def test_what_is_no_name(value: Any) -> None:
    row = Rows(pd.DataFrame([{"n": value}], dtype=object))[0]
    refused("row 1, column n: expected a name", row.name, "n")


def test_columns_of_one_name_are_refused() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["x", " x "])
    refused("two columns of this name", Rows, frame, "t.csv")


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
    command: str, table: str, message: str, here: Path, told
) -> None:
    Path("t.csv").write_text(table)
    assert told(f"{command} t.csv", f"t.csv, {message}", code=2).startswith("Error")


# The same of other tables, and of files in the places of those that a case states.
REFUSING = READ | {
    "durations": through(DurationEstimator.train),
    "forecasts": through(Forecaster.train),
    "profiles": through(PackingAnalyser.train),
    "shared speeds": READ["pairs"],
    "model": read_model,
    "applications": lambda path: workload(path.parent, "a,0,toy,2,128"),
    "application": lambda path: read_application(path.parent),
    "pairs": lambda path: read_measurements([path]),
    "spreadsheet": read_xi,
    "table": read_table,
    "trace": read_trace,
}


@pytest.mark.parametrize(
    ("reader", "file", "text", "said"),
    [
        pytest.param(
            name.partition(",")[0], each["file"], each.get("head", "") + text, said
        )
        for name, each in cases_of("refused").items()
        for text, said in each["cases"]
    ],
)
def test_a_table_is_refused_where_it_is_wrong(
    reader: str, file: str, text: str, said: str, here: Path
) -> None:
    write_application(here / "apps" / "toy")
    path = here / file
    path.write_text(text)
    message = str(refused("", REFUSING[reader], path))
    assert message.startswith(str(path.parent))
    assert [part for part in said.split("…") if part not in message] == []
    assert not (here / "ran").exists()  # what a pickle would have done


SECOND_NS = 10**9
OF_TEXT = {"tiresias.csv": "tiresias", "log.swf": "swf", "cluster_job_log": "philly"}


def complaint(read, path: Path) -> str:
    message = str(refused("", read, path))
    assert message.startswith(str(path))
    return message


@pytest.mark.parametrize(
    "case", cases_of("read")["case"], ids=lambda case: case["reader"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_jobs_of_a_table(case: dict[str, Any], packed: bool, tmp_path: Path) -> None:  # fmt: skip
    path = (
        tmp_path
        / f"table.{'swf' if case['reader'] == 'swf' else 'csv'}{'.gz' * packed}"
    )
    text = case["text"].encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    found = READ[case["reader"]](path, **case.get("options", {}))
    assert list(found.notes) == case.get("notes", [])
    for job, told in zip(found, case["jobs"], strict=True):
        for name, value in told.items():
            read = job.rates.tolist() if name == "rates" else getattr(job, name)
            assert read == (None if value == "none" else value), name


@pytest.mark.parametrize("name", OF_TEXT)
def test_what_is_no_file_of_text(tmp_path: Path, name: str) -> None:
    path, read = tmp_path / name, READ[OF_TEXT[name]]
    assert "no such file" in complaint(read, path).lower()
    path.mkdir()
    assert "is a directory" in complaint(read, path)
    path.rmdir()
    contents = {b"": "empty", bytes(range(256)): "", b"PAR1" + bytes(100): ""}
    if name != "tiresias.csv":
        contents[gzip.compress(b"1 " * 10_000)[:-20]] = "damaged or cut short"
    for content, why in contents.items():
        path.write_bytes(content)
        assert why in complaint(read, path)


@pytest.mark.parametrize("name", OF_TEXT)
@examples(
    30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(content=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_anything_is_a_table_or_an_input_error(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    complaint(READ[OF_TEXT[name]], path)


@pytest.mark.reference
@pytest.mark.parametrize(("name", "jobs"), [("60_job", 60), ("venus_vcHvQ", 2654)])
def test_published_traces(reference: Path, name: str, jobs: int) -> None:
    path = reference / "tiresias" / f"{name}.csv"
    found = [
        (job.name, job.tsub_ns, job.request, job.pmax, job.model)
        for job in read_tiresias_jobs(path)
    ]
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = ("job_id", "submit_time", "num_gpu", "duration", "model_name")
    told = [tuple(row[column] for column in columns) for row in rows]
    assert len(found) == jobs
    assert found == [
        (name, int(at) * SECOND_NS, int(gpus), float(took), model)
        for name, at, gpus, took, model in told
    ]


@pytest.mark.reference
def test_a_published_workload(reference: Path) -> None:
    found = read_swf_jobs(reference / "logs" / "swf" / "alea-hpc2n-excerpt.swf.gz")
    assert len(found) == 3145
    first = found.jobs[0]
    assert (first.tsub_ns, first.request, first.pmax) == (
        1_027_839_845 * SECOND_NS,
        30,
        31405.0,
    )
    assert max(job.request for job in found) <= 240


PAIRS = "model1,batchsize1,amp1,speed1,model2,batchsize2,amp2,speed2"


def job(tmp_path: Path, model: str, batch: int, amp: int) -> Job:
    path = tmp_path / "one.csv"
    row = f"a,1,0,1,{model},{batch},{amp}\n"
    path.write_text(f"job_id,gpu_num,submit_time,duration,model,batchsize,amp\n{row}")
    return read_venus_jobs(path).jobs[0]


def ratios(table, a: Job, b: Job) -> tuple[float, float] | None:
    sides = table.sides(a, b)
    return None if sides is None else (sides[0].of(), sides[1].of())


def test_speeds_become_ratios(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(f"{PAIRS}\nA,32,0,0.8,B,64,1,1.25\n")
    xi = read_colocation(path, indifferent=["Big"])
    assert xi.clipped == 1  # faster together is noise
    for one, other, expected in (
        (("A", 32, 0), ("B", 64, 1), (1.25, 1.0)),
        (("B", 64, 1), ("A", 32, 0), (1.0, 1.25)),
        (("A", 32, 0), ("B", 64, 0), None),  # mixed precision is another load
        (("A", 32, 0), ("B", 32, 1), None),
        (("A", 32, 0), ("A", 32, 0), None),
        (("A", 32, 0), ("Big", 7, 1), (1.0, 1.0)),
        (("Big", 7, 1), ("B", 64, 1), (1.0, 1.0)),
        (("Big", 7, 1), ("Big", 7, 1), (1.0, 1.0)),
    ):
        jobs = job(tmp_path, *one), job(tmp_path, *other)
        assert ratios(xi, *jobs) == expected, (one, other)


@pytest.mark.reference
def test_the_venus_trace(reference: Path) -> None:
    folder = reference / "lucid"
    jobs = read_venus_jobs(folder / "venus_sept_jobs_relative.csv.gz")
    with gzip.open(folder / "venus_sept_original_order.txt.gz", "rt") as lines:
        assert [job.name for job in jobs] == lines.read().split()
    assert (len(jobs), len({job.vc for job in jobs})) == (23_859, 15)
    assert jobs.by_submit() == list(range(len(jobs)))
    xi = read_colocation(folder / "colocate_info.csv")
    kinds = list(
        {(job.model, job.batch_size): job for job in jobs if job.request <= 8}.values()
    )
    assert len(kinds) == 66
    assert all(ratios(xi, a, b) is not None for a in kinds for b in kinds)
