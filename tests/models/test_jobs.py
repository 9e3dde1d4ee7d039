"""Curves, jobs and job tables: every rule of the formats, and reading returns what was written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import strategies
from drawing import examples
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from bft import milp
from bft.models import (
    Curve,
    InputError,
    Job,
    JobTable,
    jobs_from_frame,
    jobs_to_frame,
    read_jobs,
    read_published_jobs,
)
from bft.models.job_tables import FOR_POLICIES, is_misspelt, write_jobs
from bft.replay.inputs.load import load
from bft.replay.inputs.notes import Watcher
from bft.replay.options.options import Options

TSUB = "2021-02-10T20:21:15Z"
TSUB_NS = 1_612_988_475_000_000_000
ROW: dict[str, Any] = {
    "name": "a",
    "Jmin": 1,
    "Jmax": 4,
    "Pmax": 100.0,
    "Tsub": TSUB,
    "Tcup": 18,
    "Tcdw": 12.5,
    "Ns": [0, 1, 2, 4],
    "Ps": [0, 10, 18, 30],
    "Os": [0, 1, 1.8, 3],
}
BOUNDS, CURVES = ["Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub"], ["Ns", "Ps", "Os"]


def table(*changes: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(
        [{**ROW, "name": f"job{k}", **change} for k, change in enumerate(changes)]
    )


def job(**change: Any) -> Job:
    return jobs_from_frame(table(change)).jobs[0]


def fields(job: Job) -> dict[str, Any]:
    """The content of a job table for a job."""
    found: dict[str, Any] = {
        name: getattr(job, name)
        for name in Job.__dataclass_fields__
        if name not in ("scalability", "objective", "model", "user", "vc")
    }
    found["labels"] = (job.model, job.user, job.vc)
    found["curve"] = (job.scalability.ns.tolist(), job.scalability.ps.tolist())
    found["objective"] = (job.objective.ns.tolist(), job.objective.ps.tolist())
    return found


# --- curves -----------------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(st.integers(1, 9), st.floats(0, 1e6)), min_size=1, max_size=6
)


def curve_of(points: list[tuple[int, float]]) -> Curve:
    ns = np.cumsum([0, *(gap for gap, _ in points)])
    return Curve(ns, np.array([0.0, *(rate for _, rate in points)]))


@given(steps)
def test_a_curve_passes_through_its_points(points: list[tuple[int, float]]) -> None:
    curve = curve_of(points)
    assert curve.at(curve.ns).tolist() == curve.ps.tolist()


@given(steps, st.floats(0, 60))
def test_a_curve_is_linear_between_points_and_constant_beyond_the_last(
    points: list[tuple[int, float]], units: float
) -> None:
    curve = curve_of(points)
    expected = float(curve.ps[-1])
    for (n0, p0), (n1, p1) in pairwise(
        zip(curve.ns.tolist(), curve.ps.tolist(), strict=True)
    ):
        if n0 <= units <= n1:
            expected = p0 + (units - n0) / (n1 - n0) * (p1 - p0)
            break
    assert float(curve.at(units)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(steps, st.lists(st.integers(0, 80), min_size=1, max_size=20))
def test_a_curve_takes_arrays_of_any_shape(
    points: list[tuple[int, float]], units: list[int]
) -> None:
    curve = curve_of(points)
    one_by_one = [float(curve.at(n)) for n in units]
    assert curve.at(units).tolist() == one_by_one
    assert curve.at(np.array(units).reshape(1, -1)).tolist() == [one_by_one]


@given(steps, st.integers(0, 80))
def test_a_table_is_the_curve_at_all_whole_numbers(
    points: list[tuple[int, float]], most: int
) -> None:
    curve = curve_of(points)
    assert curve.table(most).tolist() == [float(curve.at(n)) for n in range(most + 1)]
    assert curve.last == curve.ns[-1]


@pytest.mark.parametrize(
    ("ns", "ps", "what"),
    [
        ([0, 1], [0], "2 unit counts for 1 rates"),
        ([0], [0], "at least two points"),
        ([], [], "at least two points"),
        ([[0, 1]], [[0, 1]], "one rate a unit count"),
        ([1, 2], [0, 1], re.escape("Ns[0] = 0")),
        ([0, 2, 2], [0, 1, 2], "2 follows 2"),
        ([0, 2, 1], [0, 1, 2], "1 follows 2"),
        ([0, math.nan], [0, 1], "NaN"),
        ([0, math.inf], [0, 1], "infinite"),
        ([0, 1], [0, math.nan], "NaN"),
        ([0, 1], [0, -1], "rates must be >= 0, not -1"),
    ],
)
def test_a_curve_that_makes_no_sense_is_refused(
    ns: list[float], ps: list[float], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        Curve(np.array(ns), np.array(ps))


# --- a job ------------------------------------------------------------------------------------------------------------


def test_rates_are_zero_below_jmin() -> None:
    assert job(Jmin=2).rates.tolist() == [0.0, 0.0, 18.0, 24.0, 30.0]


def test_rates_are_held_constant_beyond_the_curve() -> None:
    wide = job(Jmax=6)
    assert wide.rates.tolist() == [0.0, 10.0, 18.0, 24.0, 30.0, 30.0, 30.0]


def exactly(curve: Curve, n: int) -> Fraction:
    """The curve at a number of units as a fraction of the doubles that it holds; constant beyond its end."""
    points = [
        (int(x), Fraction(float(y))) for x, y in zip(curve.ns, curve.ps, strict=True)
    ]
    if n >= points[-1][0]:
        return points[-1][1]
    (x0, y0), (x1, y1) = next(
        (low, high) for low, high in pairwise(points) if low[0] <= n <= high[0]
    )
    return y0 + (y1 - y0) * Fraction(n - x0, x1 - x0)


@given(
    steps.filter(lambda points: points[-1][1] > 0),
    st.integers(0, 12),
    st.integers(0, 12),
)  # P(Jmax) > 0, or nothing is 80 % of it
@example(points=[(5, 3.0)], jmin=0, more=5)
def test_the_default_request_is_the_smallest_size_that_reaches_four_fifths(
    points: list[tuple[int, float]], jmin: int, more: int
) -> None:
    curve = curve_of(points)
    jmax = max(jmin + more, 1)
    asks = Job("a", 0, jmin, jmax, 1.0, 0.0, 0.0, curve, curve)
    # In fractions: what reaches four fifths but for rounding does.
    threshold = Fraction(4, 5) * exactly(curve, jmax) * (1 - Fraction(1, 10**12))
    enough = [
        n for n in range(max(jmin, 1), jmax + 1) if exactly(curve, n) >= threshold
    ]
    assert asks.request == asks.default_request == enough[0]


@pytest.mark.parametrize(("jmin", "request_"), [(1, 4), (4, 4)])
def test_a_default_request_by_hand(jmin: int, request_: int) -> None:
    linear = {"Ns": [0, 5], "Ps": [0, 50], "Os": [0, 50]}
    assert job(Jmin=jmin, Jmax=5, **linear).request == request_


def test_a_request_at_exactly_four_fifths_is_enough() -> None:
    assert job(Jmin=1, Jmax=4, Ps=[0, 24, 24, 30]).request == 1


def test_a_stated_request_is_kept() -> None:
    assert job(Jreq=2).request == 2


# --- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "bounds", "expected"),
    [
        ("1,2,4,8", (1, 8), (1, 8, (1, 2, 4, 8))),
        (" [4, 2] ", (1, 8), (2, 4, (2, 4))),
        ([1, 3], (0, 3), (0, 3, (1, 3))),
        (np.array([2, 5]), (2, 5), (2, 5, (2, 5))),
        (6, (1, 8), (6, 6, None)),
        ("powers-of-2", (0, 48), (0, 32, (1, 2, 4, 8, 16, 32))),
        ("Powers-of-2", (3, 16), (4, 16, (4, 8, 16))),
        # all that lie between the ends are no set at all
        ("1,2,3", (1, 4), (1, 3, None)),
        ("", (1, 4), (1, 4, None)),
    ],
)
def test_sizes_are_a_list_or_a_word_and_their_ends_are_jmin_and_jmax(
    cell: Any,
    bounds: tuple[int, int],
    expected: tuple[int, int, tuple[int, ...] | None],
) -> None:
    read = job(sizes=cell, Jmin=bounds[0], Jmax=bounds[1])
    assert (read.jmin, read.jmax, read.sizes) == expected


def test_a_word_that_stands_for_no_size_is_named() -> None:
    with pytest.raises(
        InputError, match=r"expected a power of 2 between Jmin 5 and Jmax 7"
    ) as caught:
        jobs_from_frame(
            table({}, {"sizes": "powers-of-2", "Jmin": 5, "Jmax": 7}), source="j.csv"
        )
    assert (caught.value.row, caught.value.column, caught.value.job) == (
        2,
        "sizes",
        "job1",
    )


def test_a_request_must_be_one_of_the_sizes() -> None:
    with pytest.raises(
        InputError,
        match=r"row 1, column Jreq, job job0: expected one of .* sizes, 1, 2, 4, not 3",
    ):
        jobs_from_frame(table({"sizes": "1,2,4", "Jreq": 3}), source="j.csv")
    assert (
        job(sizes="1,4").request == 4
    )  # P(4) = 30, and four fifths of it are reached on 3 already


@given(
    st.integers(0, 12).flatmap(
        lambda jmin: st.tuples(st.just(jmin), st.integers(max(jmin, 1), 15))
    ),
    st.data(),
)
def test_what_a_job_runs_on_is_one_set_however_it_is_asked(
    bounds: tuple[int, int], data: st.DataObject
) -> None:
    jmin, jmax = bounds
    sizes = data.draw(strategies.sizes(jmin, jmax))
    curve = Curve([0, 9], [0, 90])
    one = Job("a", 0, jmin, jmax, 1.0, 0.0, 0.0, curve, curve, sizes=sizes)
    allowed = set(sizes or range(max(jmin, 1), jmax + 1))
    assert set(np.flatnonzero(one.allowed).tolist()) == {0} | allowed
    assert set(np.flatnonzero(one.rates).tolist()) == allowed
    posed = milp.Job("a", jmin, jmax, curve.ns, curve.ps, 0.0, 0.0, sizes=sizes)
    assert {n for low, high in posed.stretches for n in range(low, high + 1)} == allowed
    for n in range(jmax + 3):
        below = max((m for m in allowed if m <= n), default=0)
        assert one.at_most(n) == below
        assert one.above(n) == min((m for m in allowed if m > n), default=None)
        assert one.runs_on(n) == (n in allowed)
    low, high = data.draw(st.integers(0, 16)), data.draw(st.integers(0, 16))
    left = one.between(low, high)
    assert set(np.flatnonzero(left.allowed).tolist() if left else [0]) == {0} | {
        n for n in allowed if low <= n <= high
    }


# --- round trips ------------------------------------------------------------------------------------------------------

rates = st.floats(0, 1e9, allow_subnormal=False)
words = st.sampled_from(["", "ResNet18", "a,b", 'say "x"', "Müller"])


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Job:
    ns = np.cumsum([0, *draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))])
    jmin = draw(st.integers(0, 5))
    jmax = draw(st.integers(max(jmin, 1), 12))
    sizes = draw(strategies.sizes(jmin, jmax))
    tsub_ns = TSUB_NS + draw(st.sampled_from([0, 1, 10**6, 10**12]))
    return Job(
        name=name,
        tsub_ns=tsub_ns,
        jmin=jmin,
        jmax=jmax,
        pmax=draw(st.floats(1e-9, 1e12)),
        tcup_s=draw(rates),
        tcdw_s=draw(rates),
        scalability=Curve(ns, np.array([0.0, *(draw(rates) for _ in ns[1:])])),
        objective=Curve(ns, np.array([draw(rates) for _ in ns])),
        jreq=draw(
            st.none()
            | (st.integers(jmin, jmax) if sizes is None else st.sampled_from(sizes))
        ),
        weight=draw(st.sampled_from([1.0, 0.0, 1 / 3])),
        model=draw(words),
        user=draw(words),
        vc=draw(words),
        batch_size=draw(st.none() | st.integers(1, 512).map(float)),
        memory_gib=draw(st.none() | st.floats(0, 80)),
        deadline_ns=draw(st.none() | st.sampled_from([tsub_ns, tsub_ns + 7])),
        sizes=sizes,
        total_memory_gib=draw(st.none() | st.floats(0, 640)),
    )


tables = st.lists(
    st.sampled_from(["j1", "two words", "x,y", "0042x", "Ω", '"q"']),
    unique=True,
    min_size=1,
    max_size=4,
).flatmap(lambda names: st.tuples(*(jobs(name) for name in names)).map(JobTable))


@given(tables)
def test_a_frame_gives_back_the_table_it_was_made_of(made: JobTable) -> None:
    back = jobs_from_frame(jobs_to_frame(made))
    assert [fields(job) for job in back] == [fields(job) for job in made]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@examples(
    30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(made=tables)
def test_what_is_written_is_read_back(
    tmp_path: Path, suffix: str, made: JobTable
) -> None:
    path = tmp_path / f"jobs{suffix}"
    write_jobs(made, path)
    back = read_jobs(path)
    assert [fields(job) for job in back] == [fields(job) for job in made]
    assert back.source == str(path)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_the_same_table_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    for name in "ab":
        write_jobs(
            jobs_from_frame(table({}, {"Jmax": 9})), tmp_path / f"{name}{suffix}"
        )
    assert (tmp_path / f"a{suffix}").read_bytes() == (
        tmp_path / f"b{suffix}"
    ).read_bytes()


def test_writing_under_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.parquet, \.csv or \.jsonl"):
        write_jobs(jobs_from_frame(table({})), tmp_path / "jobs.xlsx")


def test_optional_columns_are_written_only_where_a_job_states_them() -> None:
    assert set(jobs_to_frame(jobs_from_frame(table({}))).columns) == set(ROW)
    assert "weight" in jobs_to_frame(jobs_from_frame(table({"weight": 2.0})))


def test_csv_holds_lists_as_json(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n"
        'a,1,4,100,2021-02-10T20:21:15Z,18,12.5,"[0,1,2,4]","[0, 10, 18, 30]","[0,1,1.8,3]"\n'
    )
    assert fields(read_jobs(path).jobs[0]) == fields(job(name="a"))


def test_json_lines_hold_a_job_a_line(tmp_path: Path) -> None:
    path = tmp_path / "jobs.jsonl"
    path.write_text(
        "".join(json.dumps({**ROW, "name": name}) + "\n" for name in ("b", "a"))
    )
    assert [job.name for job in read_jobs(path)] == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2021-02-10T20:21:15Z", 0),
        ("2021-02-10 20:21:15", 0),
        ("2021-02-10T20:21:15+09:00", -9 * 3600),
    ],
)
def test_a_submit_time_without_zone_is_utc(text: str, seconds: int) -> None:
    assert job(Tsub=text).tsub_ns == TSUB_NS + seconds * 10**9


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("zone", ["Z", "+01:00", "+0100"])
def test_submit_times_with_and_without_a_zone_are_not_mixed(
    tmp_path: Path, order: tuple[int, int], zone: str
) -> None:
    stamps = [f"2021-02-10T20:21:15{zone}", "2021-02-10T20:21:15"]
    rows = [
        {**ROW, "name": name, "Tsub": stamps[place]}
        for name, place in zip("ab", order, strict=True)
    ]
    path = tmp_path / "jobs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="row 2, column Tsub") as caught:
        read_jobs(path)
    assert (
        f"{stamps[order[1]]} states {'a' if order[1] == 0 else 'no'} time zone, row 1"
        in str(caught.value)
    )
    pure = [
        json.dumps({**ROW, "name": name, "Tsub": stamps[0]}) + "\n" for name in "ab"
    ]
    path.write_text("".join(pure))
    assert len(read_jobs(path)) == 2


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_a_submit_time_may_be_a_timestamp_of_any_unit(unit: Any) -> None:
    assert job(Tsub=pd.Timestamp(TSUB).as_unit(unit)).tsub_ns == TSUB_NS
    assert (
        job(Tsub=pd.Timestamp(TSUB).tz_localize(None).as_unit(unit)).tsub_ns == TSUB_NS
    )


# --- wrong cells ------------------------------------------------------------------------------------------------------

WRONG: list[tuple[str, Any]] = [
    *(
        (column, value)
        for column in ("Pmax", "Tcup", "Tcdw")
        for value in (math.nan, None, "", "x", -1, math.inf)
    ),
    *(
        (column, value)
        for column in ("Jmin", "Jmax")
        for value in (math.nan, None, "", "x", -1, 1.5, True, 10**12)
    ),
    ("Pmax", 0),
    ("Pmax", 10**400),
    ("Jmax", 0),
    ("Tsub", None),
    ("Tsub", ""),
    ("Tsub", "soon"),
    ("Tsub", "now"),
    ("Tsub", "today"),
    ("Tsub", "10:00"),
    ("Tsub", "02/03/2021"),
    ("Tsub", "2021-02-30"),
    ("Tsub", "9999-01-01T00:00:00Z"),
    ("Tsub", 1612988475),
    ("Tsub", pd.NaT),
    ("Ns", None),
    ("Ns", "0 1 2 4"),
    ("Ns", "{}"),
    ("Ns", '"abc"'),
    ("Ns", "[" * 100_000),
    ("Ns", 4),
    ("Ns", [1, 2, 3, 4]),
    ("Ns", [0, 2, 2, 4]),
    ("Ns", [0, 2, 1, 4]),
    ("Ns", [0, 1, math.nan, 4]),
    ("Ns", "[0, 1, NaN, 4]"),
    ("Ns", [0, 1, None, 4]),
    ("Ns", [0, 1, "x", 4]),
    ("Ns", [0, 1, [2], 4]),
    ("Ns", [0, 1, 2, 10**400]),
    ("Ps", [0, 10, 18]),
    ("Ps", [0, 10, math.nan, 30]),
    ("Ps", [0, 10, math.inf, 30]),
    ("Ps", [0, 10, -18, 30]),
    ("Ps", [5, 10, 18, 30]),
    ("Os", [0, 1, 2]),
    ("Os", [0, 1, math.nan, 3]),
    ("Jreq", 5),
    ("Jreq", 0),
    ("Jreq", 1.5),
    ("weight", -1),
    ("weight", "heavy"),
    ("batch_size", "big"),
    ("deadline", "later"),
    *(
        ("sizes", value)
        for value in (
            "0,1,2",
            "1,5",
            "1,1.5",
            "many",
            "1;2",
            [1, "x"],
            True,
            9,
            [],
            {"a": 1},
        )
    ),
    ("total_memory_gib", -1),
]


@pytest.mark.parametrize(("column", "value"), WRONG, ids=lambda value: repr(value)[:40])
def test_an_invalid_cell_is_named_by_file_row_column_and_job(
    column: str, value: Any
) -> None:
    frame = table({}, {}, {})
    frame[column] = [*([ROW.get(column, 1 if column == "Jreq" else None)] * 2), value]
    with pytest.raises(InputError) as caught:
        jobs_from_frame(frame.astype({column: object}), source="jobs.csv")
    error = caught.value
    assert (error.file, error.row, error.column, error.job) == (
        "jobs.csv",
        3,
        column,
        "job2",
    )
    assert str(error).startswith(f"jobs.csv, row 3, column {column}, job job2: ")
    assert len(str(error)) < 250


def test_jmin_above_jmax_is_named() -> None:
    with pytest.raises(InputError, match=r"at least Jmin \(5\) and 1, not 4") as caught:
        jobs_from_frame(table({}, {"Jmin": 5}), source="j.csv")
    assert (caught.value.row, caught.value.column, caught.value.job) == (
        2,
        "Jmax",
        "job1",
    )


@pytest.mark.parametrize("name", [None, "", math.nan])
def test_a_missing_name_is_an_error(name: Any) -> None:
    with pytest.raises(
        InputError, match="expected a name, not an empty cell"
    ) as caught:
        jobs_from_frame(table({}, {"name": name}), source="j.csv")
    assert (caught.value.file, caught.value.row, caught.value.column) == (
        "j.csv",
        2,
        "name",
    )


def test_a_name_that_appears_twice_is_named() -> None:
    with pytest.raises(InputError, match="twice") as caught:
        jobs_from_frame(table({}, {}, {"name": "job0"}), source="j.csv")
    assert (caught.value.file, caught.value.row, caught.value.job) == (
        "j.csv",
        3,
        "job0",
    )


@pytest.mark.parametrize("column", [column for column in ROW if column != "name"])
def test_a_missing_column_is_named(column: str) -> None:
    with pytest.raises(InputError, match=rf"j\.csv: missing column {column};"):
        jobs_from_frame(table({}).drop(columns=column), source="j.csv")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("jreq", "Jreq"),
        ("Weight", "weight"),
        ("Deadline", "deadline"),
        ("VC", "vc"),
        ("wieght", "weight"),  # swapped
        ("dedline", "deadline"),  # missing
        ("skeww", "skew"),  # added
        ("Jrec", "Jreq"),  # changed
        ("batch size", "batch_size"),
        ("estimates_s", "estimate_s"),  # read by policies
        ("ps@a100", "Ps@a100"),
    ],
)
def test_a_misspelt_column_is_named_beside_the_one_that_was_meant(
    written: str, meant: str
) -> None:
    with pytest.raises(InputError, match="no such column") as error:
        jobs_from_frame(table({written: 1}), source="jobs.csv")
    assert (error.value.file, error.value.column) == ("jobs.csv", written)
    assert meant in error.value.what


def test_a_similar_column_beside_the_known_one_means_something_else() -> None:
    made = jobs_from_frame(table({"weight": 2, "Weight": 3, "Jmid": 2}))
    assert (made.jobs[0].weight, made.jobs[0].extra) == (2, {"Weight": 3, "Jmid": 2})
    assert made.notes


@examples(200)
@given(
    st.sampled_from(["weight", "deadline", "memory_gib"]),
    st.text("aeghidlntw_", max_size=10),
)
def test_a_column_is_misspelt_exactly_if_one_edit_of_a_letter_makes_it_known(
    known: str, name: str
) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz_"
    cuts = [(known[:k], known[k:]) for k in range(len(known) + 1)]
    missing = {a + b[1:] for a, b in cuts if b}
    changed = {a + letter + b[1:] for a, b in cuts if b for letter in letters}
    added = {a + letter + b for a, b in cuts for letter in letters}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    near = missing | changed | added | swapped
    assert all(is_misspelt(each, known) for each in near)
    assert is_misspelt(name, known) == (name in near)


def test_columns_that_no_policy_reads_are_noted_and_kept() -> None:
    made = jobs_from_frame(
        table({"colour": "red", "estimate_s": 7.0, "Ps@a100": [0, 1, 2, 3], "Ts": 4})
    )
    assert [note.partition(":")[0] for note in made.notes] == [
        "columns colour, Ts of the job table"
    ]
    assert made.jobs[0].extra == {"colour": "red", "estimate_s": 7.0, "Ts": 4}


def test_columns_that_policies_read_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
    rows = page.partition("### Further columns")[2].partition("###")[0]
    named = [
        name
        for row in re.findall(r"^\| (`.+?) \|", rows, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert tuple(named) == FOR_POLICIES


def test_a_deadline_before_the_submission_is_named() -> None:
    frame = table({}, {"deadline": "2021-02-10T20:21:14.5Z"})
    with pytest.raises(InputError) as error:
        jobs_from_frame(frame, source="jobs.csv")
    assert str(error.value) == (
        "jobs.csv, row 2, column deadline, job job1: expected an instant not before Tsub, 2021-02-10T20:21:15, not "
        "2021-02-10T20:21:14.5"
    )


def test_missing_columns_are_all_named() -> None:
    with pytest.raises(InputError, match="missing columns Jmin, Tsub;"):
        jobs_from_frame(table({}).drop(columns=["Tsub", "Jmin"]))


def test_a_table_without_names_is_an_error() -> None:
    with pytest.raises(InputError, match="no column with the job's name"):
        jobs_from_frame(table({}).drop(columns="name"))


def test_measured_rates_are_no_job_table() -> None:
    rates = pd.DataFrame({"model": ["a"], "units": [1], "throughput": [9.0]})
    with pytest.raises(InputError, match="bft-replay jobs fit makes a job table"):
        jobs_from_frame(rates)


@pytest.mark.parametrize("place", ["name", "job", "Unnamed: 0", "index"])
def test_names_may_be_a_column_or_the_index(place: str) -> None:
    frame = table({}, {}).rename(columns={"name": place})
    if place == "index":
        frame = frame.set_index("index")
    assert [job.name for job in jobs_from_frame(frame)] == ["job0", "job1"]


# --- the published pair -----------------------------------------------------------------------------------------------


def published(
    folder: Path, frame: pd.DataFrame, curves: pd.DataFrame | None = None
) -> tuple[Path, Path]:
    frame = frame.set_index("name")
    bounds_file, curves_file = folder / "bounds.parquet", folder / "curves.parquet"
    frame[BOUNDS].to_parquet(bounds_file)
    (frame[CURVES] if curves is None else curves).to_parquet(curves_file)
    return bounds_file, curves_file


def test_the_published_pair_holds_what_the_native_table_holds(tmp_path: Path) -> None:
    frame = table({}, {"Jmax": 9}, {"Pmax": 7})
    assert [
        fields(job) for job in read_published_jobs(*published(tmp_path, frame))
    ] == [fields(job) for job in jobs_from_frame(frame)]


def test_the_published_pair_is_joined_by_name_in_the_order_of_the_bounds(
    tmp_path: Path,
) -> None:
    frame = table({}, {"Ps": [0, 1, 2, 3]}, {})
    curves = frame.set_index("name")[CURVES].iloc[::-1]
    found = read_published_jobs(*published(tmp_path, frame.iloc[:2], curves))
    assert [job.name for job in found] == ["job0", "job1"]
    assert found.jobs[1].scalability.ps.tolist() == [0, 1, 2, 3]


def test_a_native_table_may_serve_as_both(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    write_jobs(jobs_from_frame(table({}, {})), path)
    assert len(read_published_jobs(path, path)) == 2


def test_curves_may_be_those_of_models_and_os_is_throughput_unless_stated(
    tmp_path: Path,
) -> None:
    frame = table(
        {"name": "J1-vgg16"}, {"name": "J2-alexnet"}, {"name": "J3-vgg16"}
    ).drop(columns=CURVES)
    curves = pd.DataFrame(
        {"model": ["vgg16", "alexnet"], "Ns": [[0, 4], [0, 2]], "Ps": [[0, 40], [0, 2]]}
    )
    frame.to_json(tmp_path / "jobs.jsonl", orient="records", lines=True)
    curves.to_json(tmp_path / "curves.jsonl", orient="records", lines=True)
    found = read_published_jobs(tmp_path / "jobs.jsonl", tmp_path / "curves.jsonl")
    assert [job.scalability.ps.tolist() for job in found] == [[0, 40], [0, 2], [0, 40]]
    assert [job.objective.ps.tolist() for job in found] == [[0, 40], [0, 2], [0, 40]]


def test_a_table_without_curves_names_the_options_that_give_them() -> None:
    with pytest.raises(
        InputError,
        match=r"missing columns Ns, Ps, Os; .*needs true curves.*-bdfn JOBS -scfn CURVES",
    ):
        jobs_from_frame(table({}).drop(columns=CURVES))


def test_a_job_without_a_curve_is_named(tmp_path: Path) -> None:
    frame = table({}, {})
    bounds, curves = published(
        tmp_path, frame, frame.set_index("name")[CURVES].iloc[:1]
    )
    with pytest.raises(InputError, match="no row for this job") as caught:
        read_published_jobs(bounds, curves)
    assert (caught.value.file, caught.value.job) == (curves, "job1")


def test_an_invalid_bound_is_named_in_the_file_of_the_bounds(tmp_path: Path) -> None:
    bounds, curves = published(tmp_path, table({}, {"Pmax": -3}))
    with pytest.raises(InputError) as caught:
        read_published_jobs(bounds, curves)
    error = caught.value
    assert (error.file, error.row, error.column, error.job) == (
        str(bounds),
        2,
        "Pmax",
        "job1",
    )


def test_an_invalid_curve_is_named_in_the_file_and_row_of_the_curves(
    tmp_path: Path,
) -> None:
    frame = table({}, {}, {"Ps": [0, -1, 2, 3]})
    bounds, curves = published(
        tmp_path, frame, frame.set_index("name")[CURVES].iloc[::-1]
    )
    with pytest.raises(InputError) as caught:
        read_published_jobs(bounds, curves)
    error = caught.value
    assert (error.file, error.row, error.column, error.job) == (
        str(curves),
        1,
        "Ps",
        "job2",
    )


@pytest.mark.parametrize("which", ["bounds", "curves"])
def test_a_name_twice_in_one_of_the_pair_is_named(tmp_path: Path, which: str) -> None:
    frame = table({}, {})
    twice = table({}, {}, {"name": "job0"})
    if which == "bounds":
        pair = published(tmp_path, twice, frame.set_index("name")[CURVES])
    else:
        pair = published(tmp_path, frame, twice.set_index("name")[CURVES])
    with pytest.raises(InputError, match="twice") as caught:
        read_published_jobs(*pair)
    assert (Path(str(caught.value.file)).stem, caught.value.row, caught.value.job) == (
        which,
        3,
        "job0",
    )


def test_a_pair_in_reverse_order_is_an_error(tmp_path: Path) -> None:
    bounds, curves = published(tmp_path, table({}))
    with pytest.raises(InputError, match=r"curves\.parquet: missing columns Tcup"):
        read_published_jobs(curves, bounds)


@pytest.mark.parametrize("given_", ["job_bounds", "job_curves"])
def test_one_of_the_pair_alone_is_an_error(tmp_path: Path, given_: str) -> None:
    bounds, _ = published(tmp_path, table({}))
    with pytest.raises(InputError, match=r"-(bdfn|scfn) needs -(bdfn|scfn) with it"):
        load(Options(**{given_: str(bounds)}), Watcher())


# --- tables -----------------------------------------------------------------------------------------------------------


def test_jobs_are_admitted_by_submit_time_and_then_in_the_order_of_the_table() -> None:
    late = "2021-02-11T00:00:00Z"
    found = jobs_from_frame(table({"Tsub": late}, {}, {"Tsub": late}, {}))
    assert found.by_submit() == [1, 3, 0, 2]


def test_a_shifted_table_is_submitted_later() -> None:
    found = jobs_from_frame(table({}, {}), source="s")
    shifted = found.at(job.tsub_ns + 5 for job in found)
    assert [job.tsub_ns for job in shifted] == [TSUB_NS + 5] * 2
    assert (shifted.source, len(shifted)) == ("s", 2)


READERS: dict[str, Callable[[Path], JobTable]] = {
    "ImageNet-imgps": lambda folder: read_published_jobs(
        folder / "ImageNet-imgps-Jbnd-1001J.pkl",
        folder / "ImageNet-imgps-JNPs-1001J.pkl",
    ),
    "ImageNet-spdup": lambda folder: read_published_jobs(
        folder / "ImageNet-spdup-Jbnd-1001J.pkl",
        folder / "ImageNet-spdup-JNPs-1001J.pkl",
    ),
    "hps-1000": lambda folder: read_published_jobs(
        folder / "hps-shufflenet-Jbnd-1000J.pkl",
        folder / "hps-shufflenet-JNPs-1000J.pkl",
    ),
    "hps-10": lambda folder: read_published_jobs(
        folder / "hps-shufflenet-Jbnd-10J.pkl", folder / "hps-shufflenet-JNPs-10J.pkl"
    ),
}


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ImageNet-imgps", 1001),
        ("ImageNet-spdup", 1001),
        ("hps-1000", 1000),
        ("hps-10", 10),
    ],
)
def test_the_published_job_tables_load(reference: Path, name: str, count: int) -> None:
    found = READERS[name](reference / "bftrainer")
    assert len(found) == count
    assert len({job.name for job in found}) == count
    assert all(job.jmax <= 64 and job.jmin >= 1 for job in found) or name.startswith(
        "hps"
    )


@pytest.mark.reference
def test_the_published_trainings_have_the_published_bounds_and_speeds(
    reference: Path,
) -> None:
    found = READERS["ImageNet-imgps"](reference / "bftrainer")
    assert {(job.jmin, job.jmax) for job in found} == {(1, 64)}
    gaps = np.diff([job.tsub_ns for job in found]) / 1e9
    assert np.median(gaps) == pytest.approx(36, abs=1)
    speeds = {
        tuple(np.round(job.scalability.at([1, 2, 4, 8, 16, 32, 64]), 1))
        for job in found
    }
    assert (
        5218.8,
        10582.5,
        20436.0,
        39584.0,
        78023.8,
        144762.5,
        262723.0,
    ) in speeds  # ResNet18
    assert len(speeds) == 7


@pytest.mark.reference
def test_published_names_carry_the_model(reference: Path) -> None:
    folder = reference / "bftrainer"
    named = read_published_jobs(
        folder / "ImageNet-imgps-Jbnd-1001J.pkl",
        folder / "ImageNet-imgps-JNPs-1001J.pkl",
    )
    assert {job.model for job in named} == {
        "AlexNet", "vgg16", "resnet18", "DenseNet", "mnasnet1", "shufflenet", "mobilenet",
    }  # fmt: skip
    plain = read_published_jobs(
        folder / "hps-shufflenet-Jbnd-10J.pkl", folder / "hps-shufflenet-JNPs-10J.pkl"
    )
    assert {job.model for job in plain} == {""}
