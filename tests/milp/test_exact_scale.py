"""The exact DP against plain programmes and at scale: no optimum is lost among the choices that it skips."""

import math

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    best_value,
    magnitude,
    problems,
    solve_exact,
    value_tables,
    worth,
    worth_of,
)

from bft.milp import Job, Problem, solve
from bft.milp.exact.dp import optimum
from bft.milp.tables import tables_of


def linear(name: str, units: int, worth: float) -> Job:
    """A job of `units` or no units."""
    return Job(name, units, units, [0, units], [0, worth], 0, 0)


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
        steps = rng.uniform(0.2, 1.8, len(ns) - 1) * np.diff(ns)
        jmin = int(rng.integers(1, jmax // 4 + 2))
        os = np.append(0.0, np.cumsum(steps))
        table.append(Job(f"j{j}", jmin, jmax, ns, os, *rng.uniform(5, 20, 2)))
        current.append(int(min(left, rng.integers(0, jmax))))
        left -= current[-1]
    return Problem(units, 120.0, tuple(table), tuple(current))


@given(problems(max_jobs=5, max_units=30))
def test_the_objective_equals_that_of_the_tables_to_the_bit(problem):
    found = optimum(problem)
    assert found.objective == tables_of(problem).value(found.counts)
    assert found.bound == found.objective


@examples(300)
@given(problems(max_jobs=7, max_units=40).filter(lambda problem: problem.jobs))
def test_the_optimum_is_that_of_a_plain_programme(problem):
    """Over tables by the letter of docs/model.md."""
    tables = [
        np.array(
            [
                -np.inf if value is None else value
                for n in range(problem.units + 1)
                for value in [worth(job, held, n, problem.tfwd, problem.cost_model)]
            ]
        )
        for job, held in zip(problem.jobs, problem.current, strict=True)
    ]
    solution = solve(problem, backend="exact")
    slack = 1e-11 * magnitude(problem)
    best = pytest.approx(best_value(tables, problem.units), rel=1e-12, abs=slack)
    assert (worth_of(problem, solution.counts), solution.objective) == (best, best)
    found = (solution.status, solution.bound, solution.gap, solution.note)
    assert found == ("optimal", solution.objective, 0.0, "")


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
def test_many_jobs_of_any_curves_reach_the_optimum(seed, jobs, jmax, kinks, held, part):
    problem = drawn(
        jobs, max(1, int(jobs * jmax * part)), jmax, seed, kinks=kinks, held=held
    )
    value = worth_of(problem, solve_exact(problem))
    assert value == pytest.approx(
        best_value(value_tables(problem), problem.units), rel=1e-12
    )


@examples(100)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=25),
    st.integers(1, 200),
    st.sampled_from([0, 1, 50]),
)
def test_all_or_nothing_is_solved(sizes, capacity, bonus):
    # A 0-1 knapsack with ties wherever one looks.
    jobs = tuple(linear(f"j{j}", n, n + bonus) for j, n in enumerate(sizes))
    problem = Problem(capacity, 1.0, jobs, (0,) * len(jobs))
    found = optimum(problem)
    assert sum(found.counts) <= capacity
    assert found.objective == best_value(value_tables(problem), capacity)


# --- at scale -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_thirty_jobs_on_all_of_summit_agree_with_the_plain_programme(seed):
    problem = drawn(30, 4734, 512, seed)
    value = worth_of(problem, solve_exact(problem))
    assert value == pytest.approx(
        best_value(value_tables(problem), problem.units), rel=1e-12
    )


@pytest.mark.parametrize("held", [0.0, 1.0])
def test_a_thousand_jobs_on_a_hundred_thousand_units_meet_the_bound(held):
    problem = drawn(1000, 100_000, 512, 1, held=held)
    value = worth_of(problem, solve_exact(problem))
    assert value is not None
    # At any price, everybody's best bounds the optimum; the least such bound is the linear relaxation's.
    tables = value_tables(problem)

    def bound(price: float) -> float:
        best = (
            float((table - price * np.arange(len(table))).max()) for table in tables
        )
        return math.fsum(best) + price * problem.units

    low, high = 0.0, 1000.0
    for _ in range(60):
        third, two = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, two) if bound(third) < bound(two) else (third, high)
    assert value <= bound(low) * (1 + 1e-12)
    assert value >= bound(low) * (1 - 1e-5)


def test_large_jobs_make_room_for_small_ones_that_are_worth_more():
    # 224 of the large ones and both small ones, first and last, are best: one large one must make room for them.
    large = [linear(f"large{j}", 512, 512.0) for j in range(450)]
    jobs = (linear("first", 350, 340.0), *large, linear("last", 350, 340.0))
    counts = solve_exact(Problem(224 * 512 + 700, 1.0, jobs, (0,) * 452))
    assert (counts[0], counts[-1]) == (350, 350)
    assert sorted(counts[1:-1]) == [0] * 226 + [512] * 224
