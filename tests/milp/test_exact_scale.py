"""The core of the exact DP: the choices that it skips, and that no optimum is lost."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import magnitude, problems, worth_of

from bft.milp import Job, Problem, SolverProcess, total_value, value_tables
from bft.milp.backends.registry import describe
from bft.milp.exact import dp as programme
from bft.milp.exact.dp import (
    objective,
    solve_core,
    solve_exact,
    solve_plain,
    value_points,
)
from bft.milp.formulations import modes
from bft.milp.formulations.linear import Limits


def linear(name: str, units: int, worth: float, *, jmin: int | None = None) -> Job:
    """A job of `units` or no units; `jmin` allows fewer."""
    return Job(
        name,
        units if jmin is None else jmin,
        units,
        np.array([0, units]),
        np.array([0, worth]),
        0,
        0,
    )


def drawn(
    jobs: int, units: int, jmax: int, seed: int, *, kinks: int = 5, held: float = 0.5
) -> Problem:
    """Curves of any shape with real-valued points, so that no two allocations are worth the same."""
    rng = np.random.default_rng(seed)
    table, current = [], []
    left = int(units * held)
    for j in range(jobs):
        inner = rng.choice(np.arange(1, jmax), size=min(kinks, jmax - 1), replace=False)
        ns = np.array([0, *sorted(inner), jmax], dtype=np.float64)
        os = np.concatenate(
            ([0.0], np.cumsum(rng.uniform(0.2, 1.8, len(ns) - 1) * np.diff(ns)))
        )
        table.append(
            Job(
                f"j{j}",
                int(rng.integers(1, jmax // 4 + 2)),
                jmax,
                ns,
                os,
                *rng.uniform(5, 20, 2),
            )
        )
        current.append(int(min(left, rng.integers(0, jmax))))
        left -= current[-1]
    return Problem(units, 120.0, tuple(table), tuple(current))


# --- points instead of tables -------------------------------------------------------------------------------------


@given(problems(max_jobs=4, max_units=30))
def test_compiled_values_are_those_of_the_table_to_the_bit(problem):
    tables = value_tables(problem)
    for j, table in enumerate(tables):
        counts = [0] * len(tables)
        others = math.fsum(float(other[0]) for other in tables[:j] + tables[j + 1 :])
        for n in np.flatnonzero(table > -np.inf).tolist():
            counts[j] = n
            alone = replace(
                problem,
                jobs=problem.jobs[j : j + 1],
                current=problem.current[j : j + 1],
            )
            assert objective(alone, [n]) == table[n]
            assert objective(problem, counts) == pytest.approx(others + table[n])


@given(problems(max_jobs=4, max_units=30))
def test_the_points_define_the_whole_table(problem):
    points = value_points(problem) if problem.jobs else []
    for j, (table, (counts, values, _)) in enumerate(
        zip(value_tables(problem), points, strict=True)
    ):
        assert counts[0] == 0
        assert (np.diff(counts) > 0).all()
        job, held = problem.jobs[j], problem.current[j]
        if held and held > job.jmax and problem.cost_model == "bftrainer":
            # It must shrink in any case: the points leave that cost out.
            table = table + job.weight * job.tcdw * job.rate(held)
            np.testing.assert_allclose(values, table[counts], rtol=1e-9, atol=1e-9)
        else:
            assert values.tobytes() == table[counts].tobytes()
        between = np.interp(np.arange(len(table)), counts, values)
        allowed = np.array(
            [n == 0 or problem.jobs[j].at_most(n) == n for n in range(len(table))]
        )
        assert (table[~allowed] == -np.inf).all()
        between[~allowed] = -np.inf
        np.testing.assert_allclose(
            between,
            table,
            rtol=1e-12,
            atol=1e-12 * np.abs(table[table > -np.inf]).max(),
        )


@given(problems(max_jobs=5, max_units=30))
def test_the_objective_without_tables_equals_that_with_to_the_bit(problem):
    counts = solve_plain(problem) if problem.jobs else ()
    assert objective(problem, counts) == total_value(value_tables(problem), counts)


# --- the core against the plain programme -------------------------------------------------------------------------


@pytest.mark.slow
@examples(300)
@given(problems(max_jobs=7, max_units=40).filter(lambda problem: problem.jobs))
def test_core_and_plain_reach_the_same_value(problem):
    plain, core = (
        worth_of(problem, solve_plain(problem)),
        worth_of(problem, solve_core(problem)),
    )
    assert plain is not None
    assert core is not None
    assert abs(core - plain) <= 1e-11 * magnitude(problem)


@pytest.mark.slow
@examples(100)
@given(
    st.integers(0, 10**6),
    st.integers(2, 40),
    st.integers(2, 60),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.floats(0.1, 1.1),
)
def test_core_and_plain_give_the_same_counts_without_ties(
    seed, jobs, jmax, kinks, held, part
):
    problem = drawn(
        jobs, max(1, int(jobs * jmax * part)), jmax, seed, kinks=kinks, held=held
    )
    assert solve_core(problem) == solve_plain(problem)


@examples(100)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=25),
    st.integers(1, 200),
    st.sampled_from([0, 1, 50]),
)
def test_core_solves_all_or_nothing(sizes, capacity, bonus):
    # A 0-1 knapsack with ties wherever one looks.
    jobs = tuple(linear(f"j{j}", n, n + bonus) for j, n in enumerate(sizes))
    problem = Problem(capacity, 1.0, jobs, (0,) * len(jobs))
    best = np.full(capacity + 1, 0.0)
    for n in sizes:
        if n <= capacity:
            best[n:] = np.maximum(best[n:], best[: capacity + 1 - n] + n + bonus)
    counts = solve_core(problem)
    assert sum(counts) <= capacity
    assert objective(problem, counts) == best[-1]


def test_jobs_keep_what_they_have_among_equals():
    jobs = tuple(linear(f"j{j}", 10, 50.0, jmin=1) for j in range(4))
    problem = Problem(20, 1.0, jobs, (3, 0, 5, 2))
    assert solve_plain(problem) == solve_core(problem)
    assert solve_core(problem)[2:] == (5, 2)


def test_without_jobs_and_units_there_is_nothing_to_decide():
    assert solve_exact(Problem(5, 1.0, (), ())) == ()
    assert solve_core(Problem(0, 1.0, (linear("a", 3, 1.0),), (0,))) == (0,)


# --- at scale -----------------------------------------------------------------------------------------------------


def test_large_problems_go_to_the_core_and_small_ones_do_not(monkeypatch):
    taken = []
    for name, called in (("core", "_compile_core"), ("plain", "_plain")):
        real = getattr(programme, called)
        monkeypatch.setattr(
            programme,
            called,
            lambda *posed, name=name, real=real: taken.append(name) or real(*posed),
        )
    solve_exact(drawn(10, 500, 64, 0))
    solve_exact(drawn(30, 4734, 64, 0))
    solve_exact(drawn(30, 4734, 512, 0))
    assert taken == ["plain", "plain", "core"]


@pytest.mark.parametrize("seed", range(3))
def test_thirty_jobs_on_all_of_summit_agree_with_the_plain_programme(seed):
    problem = drawn(30, 4734, 512, seed)
    assert solve_core(problem) == solve_plain(problem)


@pytest.mark.parametrize("held", [0.0, 1.0])
def test_a_thousand_jobs_on_a_hundred_thousand_units_meet_the_bound(held):
    problem = drawn(1000, 100_000, 512, 1, held=held)
    counts = solve_exact(problem)
    value = worth_of(problem, counts)
    assert value is not None
    # At any price, everybody's best bounds the optimum; the least such bound is the linear relaxation's.
    points = [(counts, values) for counts, values, _ in value_points(problem)]

    def bound(price: float) -> float:
        return (
            math.fsum(float((values - price * n).max()) for n, values in points)
            + price * problem.units
        )

    low, high = 0.0, 1000.0
    for _ in range(60):
        third, two = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, two) if bound(third) < bound(two) else (third, high)
    assert value <= bound(low) * (1 + 1e-12)
    assert value >= bound(low) * (1 - 1e-5)


def test_no_table_is_made_where_jmax_is_huge():
    ns, os = np.array([0.0, 1000, 100_000]), np.array([0.0, 900, 50_000])
    jobs = tuple(
        Job(f"j{j}", 1, 100_000, ns, os * (1 + j / 1000), 18.0, 12.0)
        for j in range(300)
    )
    counts = solve_exact(Problem(100_000, 120.0, jobs, (10,) * 300))
    assert sum(counts) == 100_000
    assert not any("table" in vars(job) for job in jobs)


def test_choices_that_do_not_fit_in_memory_are_computed_again_on_the_way_back():
    # 224 of the large ones and both small ones, first and last, are best: one large one must make room for them.
    # Ties make the window of the programme so wide that choices are computed block by block.
    large = [linear(f"large{j}", 512, 512.0) for j in range(450)]
    jobs = (linear("first", 350, 340.0), *large, linear("last", 350, 340.0))
    counts = solve_core(Problem(224 * 512 + 700, 1.0, jobs, (0,) * 452))
    assert (counts[0], counts[-1]) == (350, 350)
    assert sorted(counts[1:-1]) == [0] * 226 + [512] * 224


@pytest.mark.skipif(not describe("highs").available, reason="needs the extra highs")
def test_a_solver_agrees_at_scale():
    problem = drawn(200, 20_000, 512, 3)
    process = SolverProcess()
    built = modes.build(problem)
    answer = process.solve(built.model, "highs", Limits(60.0, gap=1e-7))
    process.close()
    assert answer.status == "optimal"
    best = objective(problem, solve_exact(problem))
    assert best == pytest.approx(answer.above(built.constant).objective, rel=2e-7)
