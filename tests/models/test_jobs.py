"""Curves, jobs and job tables: every rule of the formats, and reading returns what was written."""

import json
import math
import re
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import strategies
from agreeing import agree
from drawing import examples
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from refusals import refused

from bft import milp
from bft.models import (
    Curve,
    Job,
    JobTable,
    jobs_from_frame,
    jobs_to_frame,
    read_jobs,
    read_published_jobs,
)
from bft.models.job_tables import FOR_POLICIES, write_jobs
from bft.replay.options.options import Options

TSUB_NS = 1_612_988_475_000_000_000
ROW = {
    "name": "a",
    "Jmin": 1,
    "Jmax": 4,
    "Pmax": 100.0,
    "Tsub": "2021-02-10T20:21:15Z",
    "Tcup": 18,
    "Tcdw": 12.5,
    "Ns": [0, 1, 2, 4],
    "Ps": [0, 10, 18, 30],
    "Os": [0, 1, 1.8, 3],
}
BOUNDS, CURVES = ["Tcup", "Tcdw", "Jmin", "Jmax", "Pmax", "Tsub"], ["Ns", "Ps", "Os"]


def table(*changes) -> pd.DataFrame:
    return pd.DataFrame(
        [{**ROW, "name": f"job{k}", **change} for k, change in enumerate(changes)]
    )


def job(**change) -> Job:
    return jobs_from_frame(table(change)).jobs[0]


def fields(job: Job):
    found = {
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


@given(steps, st.floats(0, 60), st.integers(0, 80))
def test_a_curve_is_linear_between_its_points_and_constant_beyond_the_last(
    points: list[tuple[int, float]], units: float, most: int
) -> None:
    curve = curve_of(points)
    assert curve.at(curve.ns).tolist() == curve.ps.tolist()
    assert float(curve.at(units)) == pytest.approx(
        float(np.interp(units, curve.ns, curve.ps)), rel=1e-9, abs=1e-9
    )
    whole = [float(curve.at(n)) for n in range(most + 1)]
    row = curve.at(np.arange(most + 1).reshape(1, -1))
    assert (curve.table(most).tolist(), row.tolist()) == (whole, [whole])
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
    refused(what, Curve, np.array(ns), np.array(ps), error=ValueError)


# --- a job ------------------------------------------------------------------------------------------------------------


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


def test_a_request_that_is_stated_or_exactly_four_fifths_is_kept() -> None:
    # P(4) = 30, and four fifths of it are reached on 3 already, which is no size of the last.
    made = [job(Jreq=2), job(Jmin=1, Jmax=4, Ps=[0, 24, 24, 30]), job(sizes="1,4")]
    assert [each.request for each in made] == [2, 1, 4]


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
    cell,
    bounds: tuple[int, int],
    expected: tuple[int, int, tuple[int, ...] | None],
) -> None:
    read = job(sizes=cell, Jmin=bounds[0], Jmax=bounds[1])
    assert (read.jmin, read.jmax, read.sizes) == expected


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
    assert one.rates.tolist() == [float(curve.at(n)) * (n in allowed) for n in range(jmax + 1)]  # fmt: skip
    posed = milp.Job("a", jmin, jmax, curve.ns, curve.ps, 0.0, 0.0, sizes=sizes)
    assert {n for low, high in posed.stretches for n in range(low, high + 1)} == allowed
    for n in range(jmax + 3):
        below = max((m for m in allowed if m <= n), default=0)
        above = min((m for m in allowed if m > n), default=None)
        found = (one.at_most(n), one.above(n), one.runs_on(n))
        assert found == (below, above, n in allowed)
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
    back, content = read_jobs(path), path.read_bytes()
    write_jobs(back, path)
    assert (path.read_bytes(), back.source) == (content, str(path))
    assert [fields(job) for job in back] == [fields(job) for job in made]


def test_optional_columns_are_written_only_where_a_job_states_them() -> None:
    assert set(jobs_to_frame(jobs_from_frame(table({}))).columns) == set(ROW)
    assert "weight" in jobs_to_frame(jobs_from_frame(table({"weight": 2.0})))


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0), (0, 0)])
@pytest.mark.parametrize("zone", ["Z", "+01:00", "+0100"])
def test_submit_times_with_and_without_a_zone_are_not_mixed(
    tmp_path: Path, first: int, second: int, zone: str
) -> None:
    stamps = [f"2021-02-10T20:21:15{zone}", "2021-02-10T20:21:15"]
    path = tmp_path / "jobs.jsonl"
    rows = [{**ROW, "name": f"{k}", "Tsub": stamps[k]} for k in {first: 0, second: 0}]
    rows += [{**rows[0], "name": "last"}] * (first == second)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if first == second:
        assert len(read_jobs(path)) == 2
        return
    other = f"{stamps[second]} states {'no' if second else 'a'} time zone, row 1"
    refused(f"row 2, column Tsub.*{re.escape(other)}", read_jobs, path)


# --- wrong cells ------------------------------------------------------------------------------------------------------

# What no text of a file can be, and what is out of its range; other cells: test_cells.py.
WRONG = {
    "Pmax": [math.nan, None, -1, 0, 10**400],
    "Jmin": [math.nan, None, -1, 1.5, True, 10**12],
    "Jmax": [-1, 0],
    "Tsub": [None, 1612988475, pd.NaT],
    "Ns": [None, "[" * 100_000, 4, [1, 2, 3, 4], [0, 2, 2, 4], [0, 2, 1, 4], [0, 1, math.nan, 4], [0, 1, None, 4],
           [0, 1, "x", 4], [0, 1, [2], 4], [0, 1, 2, 10**400]],
    "Ps": [[0, 10, 18], [0, 10, math.nan, 30], [0, 10, math.inf, 30], [0, 10, -18, 30], [5, 10, 18, 30]],
    "Os": [[0, 1, 2], [0, 1, math.nan, 3]],
    "Jreq": [5, 0],
    "weight": [-1],
    "sizes": ["0,1,2", "1,5", "1,1.5", "many", "1;2", [1, "x"], True, 9, [], {"a": 1}],
    "total_memory_gib": [-1],
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value"),
    [(column, value) for column, values in WRONG.items() for value in values],
    ids=lambda value: repr(value)[:40],
)
def test_an_invalid_cell_is_named_by_file_row_column_and_job(
    column: str, value
) -> None:
    frame = table({}, {}, {})
    frame[column] = [*([ROW.get(column, 1 if column == "Jreq" else None)] * 2), value]
    frame = frame.astype({column: object})
    error = refused("", jobs_from_frame, frame, source="jobs.csv")
    agree(error, {"file": "jobs.csv", "row": 3, "column": column, "job": "job2"})
    assert str(error).startswith(f"jobs.csv, row 3, column {column}, job job2: ")
    assert len(str(error)) < 250


def test_a_similar_column_beside_the_known_one_means_something_else() -> None:
    made = jobs_from_frame(table({"weight": 2, "Weight": 3, "Jmid": 2}))
    assert (made.jobs[0].weight, made.jobs[0].extra) == (2, {"Weight": 3, "Jmid": 2})
    assert made.notes


def test_columns_that_no_policy_reads_are_noted_and_kept() -> None:
    extra = {"colour": "red", "estimate_s": 7.0, "Ts": 4}
    made = jobs_from_frame(table({**extra, "Ps@a100": [0, 1, 2, 3]}))
    (note,) = made.notes
    assert note.startswith("columns colour, Ts of the job table:")
    assert made.jobs[0].extra == extra


def test_columns_that_policies_read_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
    rows = page.partition("### Further columns")[2].partition("###")[0]
    named = [
        name
        for row in re.findall(r"^\| (`.+?) \|", rows, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert tuple(named) == FOR_POLICIES


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
    pair = read_published_jobs(*published(tmp_path, frame))
    assert [*map(fields, pair)] == [*map(fields, jobs_from_frame(frame))]


def test_the_published_pair_is_joined_by_name_in_the_order_of_the_bounds(
    tmp_path: Path,
) -> None:
    frame = table({}, {"Ps": [0, 1, 2, 3]}, {})
    found = read_published_jobs(
        *published(tmp_path, frame.iloc[:2], frame.set_index("name")[CURVES].iloc[::-1])
    )
    assert [job.name for job in found] == ["job0", "job1"]
    assert found.jobs[1].scalability.ps.tolist() == [0, 1, 2, 3]


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
    for curve in ("scalability", "objective"):
        rates = [getattr(job, curve).ps.tolist() for job in found]
        assert rates == [[0, 40], [0, 2], [0, 40]]


@pytest.mark.parametrize(
    ("bounds", "curves", "what"),
    [
        ([{}, {}], [{}], "curves.parquet, .*job1: no row for this job"),
        ([{}, {"Pmax": -3}], [{}, {}], "bounds.parquet, row 2, column Pmax, job job1"),
        ([{}, {}], [{}, {"Ps": [0, -1, 2, 3]}], "curves.parquet, row 2, column Ps, job job1"),
        ([{}, {}, {"name": "job0"}], [{}, {}], "bounds.parquet, row 3, .*job0: .*twice"),
        ([{}, {}], [{}, {}, {"name": "job0"}], "curves.parquet, row 3, .*job0: .*twice"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_one_of_the_pair_is_named(
    tmp_path: Path, bounds, curves, what: str
) -> None:  # fmt: skip
    pair = published(tmp_path, table(*bounds), table(*curves).set_index("name")[CURVES])
    refused(what, read_published_jobs, *pair)


@pytest.mark.parametrize("name", ["job_bounds", "job_curves"])
def test_one_of_the_pair_alone_is_an_error(name: str) -> None:
    refused(r"-(bdfn|scfn) needs -(bdfn|scfn) with it", Options, **{name: "jobs"})


# --- tables -----------------------------------------------------------------------------------------------------------


def test_jobs_are_admitted_by_submit_time_and_then_in_the_order_of_the_table() -> None:
    late = "2021-02-11T00:00:00Z"
    found = jobs_from_frame(table({"Tsub": late}, {}, {"Tsub": late}, {}))
    assert found.by_submit() == [1, 3, 0, 2]


@pytest.mark.reference
@pytest.mark.parametrize(
    ("name", "count"),
    [("ImageNet-imgps", 1001), ("ImageNet-spdup", 1001), ("hps-shufflenet", 1000), ("hps-shufflenet", 10)],
)  # fmt: skip
def test_the_published_job_tables_load(reference: Path, name: str, count: int) -> None:
    files = [f"{name}-{what}-{count}J.pkl" for what in ("Jbnd", "JNPs")]
    found = read_published_jobs(*(reference / "bftrainer" / file for file in files))
    assert len(found) == len({job.name for job in found}) == count
    models = {job.model for job in found}
    if count < 1001:
        assert models == {""}
        return
    assert models == {"AlexNet", "vgg16", "resnet18", "DenseNet", "mnasnet1", "shufflenet", "mobilenet"}  # fmt: skip
    assert {(job.jmin, job.jmax) for job in found} == {(1, 64)}
    gaps = np.diff([job.tsub_ns for job in found]) / 1e9
    assert np.median(gaps) == pytest.approx(36, abs=1)
    if name == "ImageNet-imgps":
        sizes = [1, 2, 4, 8, 16, 32, 64]
        resnet = next(job for job in found if job.model == "resnet18")
        assert resnet.scalability.at(sizes) == pytest.approx(
            [5218.8, 10582.5, 20436.0, 39584.0, 78023.8, 144762.5, 262723.0], abs=0.05
        )
