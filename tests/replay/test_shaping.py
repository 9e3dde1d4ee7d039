"""Workloads made from given jobs: repeated, capped, in another order, at other times; each with a note."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.models import Curve, InputError, Job, JobTable, jobs_to_frame, write_parquet
from bft.replay import Options, always_idle, write_trace
from bft.replay.inputs.notes import Notes, Watcher
from bft.replay.inputs.shaping import repeated, shaped, shuffled, with_arrivals
from bft.replay.trace.node_trace import SECOND_NS

DAY_NS = 86_400 * SECOND_NS


def job(
    name: str, at: float, jmin: int = 1, jmax: int = 4, due: float | None = None
) -> Job:
    curve = Curve(np.array([0.0, float(jmax)]), np.array([0.0, float(jmax)]))
    deadline = None if due is None else round(due * SECOND_NS)
    return Job(
        name,
        round(at * SECOND_NS),
        jmin,
        jmax,
        600.0,
        0.0,
        0.0,
        curve,
        curve,
        deadline_ns=deadline,
    )


@st.composite
def tables(draw: st.DrawFn) -> JobTable:
    instants = draw(st.lists(st.integers(0, 10_000), min_size=1, max_size=12))
    return JobTable(
        tuple(job(f"j{k}", at, due=at + 100 + k) for k, at in enumerate(instants))
    )


def spans(jobs: JobTable) -> list[int]:
    """What each job has from its submission to its deadline."""
    return [(each.deadline_ns or 0) - each.tsub_ns for each in jobs]


@pytest.mark.parametrize(
    ("needed", "sizes", "expected"),
    [
        (0.0, None, [1, 2, 3, 4, 5, 6, 7, 8]),
        (80.0, (1, 2, 4, 8), [1, 2, 4, 8]),
        (80.1, (1, 2, 4, 8), [2, 4, 8]),
        (241.0, None, [4, 5, 6, 7, 8]),
        (241.0, (1, 2, 4, 8), [4, 8]),
        (640.0, (1, 2, 4, 8), [8]),
    ],
)
def test_sizes_whose_units_have_too_little_memory_are_left_out(
    needed: float, sizes: tuple[int, ...] | None, expected: list[int]
) -> None:
    jobs = JobTable(
        (replace(job("a", 0, jmax=8), total_memory_gib=needed, sizes=sizes),)
    )
    (made,) = shaped(jobs, Options(unit_memory_gib=80.0), Watcher())
    assert np.flatnonzero(made.allowed)[1:].tolist() == expected


@pytest.mark.parametrize(
    ("change", "column", "what"),
    [
        (
            {"total_memory_gib": 641.0},
            "total_memory_gib",
            r"needs 641 GiB, and 8 units \(Jmax\) of 80 GiB",
        ),
        (
            {"total_memory_gib": 200.0, "jreq": 2},
            "Jreq",
            r"expected .* not 2: 200 GiB of memory in all",
        ),
    ],
)
def test_a_job_whose_memory_no_size_has_is_named(
    change: dict[str, float], column: str, what: str
) -> None:
    one = replace(job("a", 0, jmax=8), **change)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=what) as caught:
        shaped(
            JobTable((job("b", 0), one), "jobs.csv"),
            Options(unit_memory_gib=80.0),
            Watcher(),
        )
    assert (caught.value.file, caught.value.column, caught.value.job) == (
        "jobs.csv",
        column,
        "a",
    )


@given(tables(), st.integers(1, 4))
def test_repeated_jobs_come_in_rounds_that_do_not_overlap(
    jobs: JobTable, times: int
) -> None:
    result = repeated(jobs, times)
    count = len(jobs)
    assert len(result) == count * times
    assert result.jobs[:count] == jobs.jobs
    instants = [each.tsub_ns for each in jobs]
    period = max(instants) - min(instants)
    assert spans(result) == spans(jobs) * times
    for k, each in enumerate(result):
        gap = period // (count - 1) if count > 1 else 0
        assert each.tsub_ns == instants[k % count] + (k // count) * (period + gap)
        assert each.name == (
            f"j{k % count}" if k < count else f"j{k % count}~{k // count + 1}"
        )


@given(tables(), st.integers(0, 2**32))
def test_shuffled_jobs_keep_the_instants_and_the_time_to_their_deadlines(
    jobs: JobTable, seed: int
) -> None:
    result = shuffled(jobs, np.random.default_rng(seed))
    assert sorted(each.tsub_ns for each in result) == sorted(
        each.tsub_ns for each in jobs
    )
    assert [each.name for each in result] == [each.name for each in jobs]
    assert spans(result) == spans(jobs)
    again = shuffled(jobs, np.random.default_rng(seed))
    assert [each.tsub_ns for each in again] == [each.tsub_ns for each in result]


def test_every_order_of_shuffled_jobs_is_as_likely() -> None:
    jobs = JobTable(tuple(job(f"j{k}", k) for k in range(3)))
    rng = np.random.default_rng(7)
    orders = [tuple(each.tsub_ns for each in shuffled(jobs, rng)) for _ in range(1200)]
    counts = pd.Series(orders).value_counts()
    assert len(counts) == 6
    # Each expected 200 times, with a standard deviation of 13; the seed is fixed.
    assert counts.between(150, 250).all()


@given(tables(), st.floats(0.01, 1e5), st.integers(0, 2**32))
def test_poisson_arrivals_keep_first_instant_order_and_time_to_deadlines(
    jobs: JobTable, rate: float, seed: int
) -> None:
    result = with_arrivals(jobs, rate, np.random.default_rng(seed))
    assert min(each.tsub_ns for each in result) == min(each.tsub_ns for each in jobs)
    instants = [result.jobs[k].tsub_ns for k in jobs.by_submit()]
    assert instants == sorted(instants)
    assert spans(result) == spans(jobs)


def test_poisson_gaps_have_the_mean_and_the_spread_of_an_exponential_distribution() -> (
    None
):
    jobs = JobTable(tuple(job(f"j{k}", 0) for k in range(4001)))
    result = with_arrivals(jobs, 120.0, np.random.default_rng(3))
    gaps = np.diff([each.tsub_ns for each in result]) / SECOND_NS
    # 30 s each; the standard error of their mean is 0.5 s. An exponential distribution has a spread like its mean.
    assert gaps.mean() == pytest.approx(30, abs=2)
    assert gaps.std() == pytest.approx(30, abs=3)
    assert (gaps > 60).mean() == pytest.approx(np.exp(-2), abs=0.03)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), min_size=1, max_size=8),
    st.integers(1, 40),
)
def test_capped_jobs_use_no_more_units_and_others_stay(
    sizes: list[tuple[int, int]], units: int
) -> None:
    jobs = JobTable(
        tuple(job(f"j{k}", k, low, low + more) for k, (low, more) in enumerate(sizes))
    )
    notes = Notes(Watcher())
    result = shaped(jobs, Options(cap_units=units), notes)
    for before, after in zip(jobs, result, strict=True):
        if before.jmax <= units:
            assert after is before
            continue
        assert after.jmax == units
        if before.jmin == before.jmax:  # one size: as long as before
            assert after.pmax / after.rates[units] == pytest.approx(
                before.pmax / before.rates[before.jmax]
            )
        else:
            assert after.jmin == min(before.jmin, units)
            assert after.scalability is before.scalability
    assert len(notes.kept) == 1


def test_each_option_draws_for_itself_and_follows_the_seed() -> None:
    jobs = JobTable(tuple(job(f"j{k}", 10 * k) for k in range(20)))

    def instants(**options: object) -> list[int]:
        return [
            each.tsub_ns for each in shaped(jobs, Options(**options), Notes(Watcher()))
        ]  # type: ignore[arg-type]

    arrivals = instants(arrival="poisson:60")
    assert sorted(instants(arrival="poisson:60", shuffle_submits=True)) == arrivals
    assert instants(arrival="poisson:60", seed=1) != arrivals
    assert instants(shuffle_submits=True, seed=1) != instants(shuffle_submits=True)
    assert instants() == [each.tsub_ns for each in jobs]


def test_no_job_is_submitted_beyond_the_calendar() -> None:
    jobs = JobTable((job("a", 0), job("b", 1)))
    for options in (Options(arrival="poisson:1e-9"), Options(repeat=9999)):
        far = replace(jobs, jobs=(jobs.jobs[0], job("b", 80 * 365 * 86_400)))
        with pytest.raises(
            InputError, match="would be submitted after the year 2200: --option repeat"
        ):
            shaped(far, options, Notes(Watcher()))


@pytest.mark.usefixtures("here")
def test_changes_to_a_workload_are_reported_and_recorded(
    told: Callable[..., str],
) -> None:
    write_trace(always_idle(4, 0, DAY_NS), "trace.parquet")
    jobs = JobTable((job("a", 0), job("b", 60, 9, 9)))
    write_parquet(jobs_to_frame(jobs), Path("jobs.parquet"))
    notes = (
        "--option repeat=2: 4 jobs, the 2 of the table 2 times in turn, submitted over 3 min",
        "--cap-units 2: 4 of 4 jobs could use more units; 2 of them have one size and keep their duration",
        "--option shuffle-submits=yes: the 4 jobs come at the same instants in another order (--seed 4)",
        "--option arrival=poisson:60: jobs are submitted at random, 60 an hour on average, over ",
    )
    shape = "--cap-units 2 --option shuffle-submits=yes --option arrival=poisson:60 --seed 4"
    line = f"-ndmap trace.parquet --jobs jobs.parquet --option repeat=2 {shape}"
    for out in ("one", "two"):
        said = told(f"{line} --no-u --out {out} --backend exact", *notes)
    assert "--seed has no effect" not in said
    recorded = Path("one/summary.json").read_text("utf-8")
    assert all(note in recorded for note in notes)
    one, two = (Path(out, "jobs.parquet").read_bytes() for out in ("one", "two"))
    assert one == two
    made = pd.read_parquet("one/jobs.parquet")
    assert list(made["name"]) == ["a", "b", "a~2", "b~2"]
    assert list(made["Jmax"]) == [2] * 4
    told(f"--bound {line}")
