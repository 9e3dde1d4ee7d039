"""The `modes` formulation: its pieces, all its integer points, and CBC on it against the exact DP."""

import itertools
import math
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from drawing import examples
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from strategies import best_value, magnitude, problems, value_tables, worth, worth_of

from bft.milp import (
    Job,
    Limits,
    LinearAnswer,
    LinearModel,
    Problem,
    SolverProcess,
    keep,
    solve,
)
from bft.milp.exact.dp import optimum
from bft.milp.formulations import modes
from bft.milp.formulations.modes import build, concave_runs, mode_runs, prune
from bft.milp.jobs import FloatArray
from bft.milp.tables import tables_of

# --- concave runs -------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(-5, 5)), max_size=12))
def test_runs_are_concave_maximal_and_leave_nothing_out(
    steps: list[tuple[int, int]],
) -> None:
    points = [(0, 0.0)]
    for width, slope in steps:
        points.append((points[-1][0] + width, points[-1][1] + width * slope))
    runs = list(concave_runs(points))
    joined = runs[0] + [point for run in runs[1:] for point in run[1:]]
    assert joined == points
    slopes = [
        [(v1 - v0) / (n1 - n0) for (n0, v0), (n1, v1) in itertools.pairwise(run)]
        for run in runs
    ]
    assert all(own == sorted(own, reverse=True) for own in slopes)
    for before, after in itertools.pairwise(runs):
        assert before[-1] == after[0]
    for before_slopes, after_slopes in itertools.pairwise(slopes):
        assert before_slopes[-1] < after_slopes[0]


@given(problems(max_jobs=3, max_units=15))
def test_runs_of_a_job_interpolate_its_value_table(problem: Problem) -> None:
    slack = 1e-12 * magnitude(problem)
    for j, held in enumerate(problem.current):
        values = tables_of(problem).of(j)
        for run in mode_runs(values, tables_of(problem).line_of(j), held):
            ns, vs = zip(*run, strict=True)
            inside = np.arange(ns[0], ns[-1] + 1)
            assert np.interp(inside, ns, vs) == pytest.approx(
                values[ns[0] : ns[-1] + 1], rel=1e-9, abs=slack
            )


# --- the linear model, point by point -----------------------------------------------------------------------------


def integer_points(model: LinearModel) -> np.ndarray:
    """All whole-number points within the bounds and the rows of a model, one a row."""
    axes = [np.arange(int(upper) + 1) for upper in model.upper]
    points = np.stack(
        [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1
    ).astype(float)
    for indices, coefficients, sense, right in model.rows:
        total = points[:, indices] @ np.array(coefficients)
        points = points[
            np.abs(total - right) < 1e-9 if sense == "=" else total <= right + 1e-9
        ]
    return points


def best_of_each_count(problem: Problem) -> dict[tuple[int, ...], float]:
    """The best objective that the model has for each counts that it allows, by enumeration."""
    formulated = build(problem)
    model = formulated.model
    assert all(model.integer)
    best: dict[tuple[int, ...], float] = {}
    for x in integer_points(model):
        counts = formulated.decode(x)
        value = float(x @ np.array(model.objective)) + formulated.constant
        best[counts] = max(best.get(counts, -np.inf), value)
    return best


def waiting_twice(problem: Problem) -> Problem:
    """The first job of a problem twice, and neither holds a unit."""
    job = problem.jobs[0]
    return replace(problem, jobs=(job, replace(job, name="again")), current=(0, 0))


@examples(
    200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
@given(
    problems(max_jobs=1, max_units=6)
    | problems(max_jobs=2, max_units=3)
    | problems(max_jobs=1, max_units=4)
    .filter(lambda problem: problem.jobs)
    .map(waiting_twice)
)
def test_the_model_allows_only_what_the_problem_allows_and_values_it_alike(
    problem: Problem,
) -> None:
    assume(problem.jobs)
    expected = {
        counts: value
        for counts in itertools.product(
            range(problem.units + 1), repeat=len(problem.jobs)
        )
        if (value := worth_of(problem, counts)) is not None
    }
    best = best_of_each_count(problem)
    assert best.keys() <= expected.keys()
    for counts, value in best.items():
        assert value == pytest.approx(
            expected[counts], rel=1e-9, abs=1e-12 * magnitude(problem)
        )
    # Only what is worse than changing nothing may be left out, or than the same units otherwise split in a class.
    floor = tables_of(problem).value(keep(problem))
    if all(
        value >= 0
        for table in value_tables(problem)
        for value in table
        if value > -np.inf
    ):
        floor = -np.inf
    members = tables_of(problem).classes.members()
    in_model: dict[tuple[int, ...], float] = {}
    for counts, value in best.items():
        totals = tuple(sum(counts[j] for j in each) for each in members)
        in_model[totals] = max(in_model.get(totals, -np.inf), value)
    for counts, value in expected.items():
        totals = tuple(sum(counts[j] for j in each) for each in members)
        assert value < floor or in_model[totals] >= value - 1e-9 * abs(
            value
        ) - 1e-12 * magnitude(problem)


def test_decoding_forgives_the_solver_its_rounding() -> None:
    job = Job("a", 1, 8, np.array([0.0, 8.0]), np.array([0.0, 8.0]), 1.0, 1.0)
    formulated = build(Problem(8, 10.0, (job,), (0,)))
    points = integer_points(formulated.model)
    x = next(x for x in points if formulated.decode(x) == (5,))
    assert formulated.decode(x + 1e-7) == formulated.decode(x - 1e-7) == (5,)


# --- CBC ----------------------------------------------------------------------------------------------------------


def assert_cbc_is_exact(problem: Problem, process: SolverProcess) -> None:
    exact, cbc = (
        solve(problem, backend="exact"),
        solve(problem, backend="cbc", ties="solver", process=process),
    )
    # A fallback would be right as well, but it would not be CBC's.
    assert (cbc.status, cbc.backend, cbc.formulation, cbc.note) == (
        "optimal",
        "cbc",
        "modes",
        "",
    )
    slack = 1e-9 * magnitude(problem)
    assert cbc.objective == pytest.approx(exact.objective, rel=1e-6, abs=slack)
    assert worth_of(problem, cbc.counts) == pytest.approx(
        cbc.objective, rel=1e-9, abs=slack
    )
    assert cbc.bound >= cbc.objective


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
@examples(120)
@given(data=st.data())
def test_cbc_finds_the_exact_optimum_at_any_size_of_objective(
    scale: float, data: st.DataObject, process: SolverProcess
) -> None:
    problem = data.draw(problems(max_jobs=8, max_units=60, scale=scale))
    assert_cbc_is_exact(problem, process)


def and_waiting_twins(problem: Problem) -> Problem:
    """Every job once more, without units."""
    twins = tuple(replace(job, name=f"{job.name} again") for job in problem.jobs)
    return replace(
        problem,
        jobs=(*problem.jobs, *twins),
        current=problem.current + (0,) * len(twins),
    )


@st.composite
def markets(draw: st.DrawFn) -> tuple[list[FloatArray], list[int], int]:
    """Tables, members and units: classes are alike, as running jobs of one kind are, and whole values make ties."""
    units = draw(st.integers(1, 14))
    worth = st.integers(0, 30) | st.just(-np.inf)
    shape = st.lists(worth, min_size=1, max_size=units)
    shapes = st.sampled_from(draw(st.lists(shape, min_size=1, max_size=3)))
    market = st.tuples(
        shapes, st.integers(0, 2), st.integers(0, 8), st.sampled_from([1, 1, 2, 4])
    )
    drawn = draw(st.lists(market, min_size=1, max_size=9))
    tables = [
        np.array([0.0, *shape]) - charge * (np.arange(len(shape) + 1) != held)
        for shape, held, charge, _ in drawn
    ]
    return tables, [members for *_, members in drawn], units


@examples(400)
@given(markets(), st.sampled_from([0.0, 0.5, 1.0]))
def test_an_optimum_remains_of_what_is_pruned(
    market: tuple[list[FloatArray], list[int], int], part: float
) -> None:
    tables, sizes, units = market

    def best(of: list[FloatArray]) -> float:
        each = zip(of, sizes, strict=True)
        return best_value([table for table, m in each for _ in range(m)], units)

    idle = sum(m * float(table[0]) for table, m in zip(tables, sizes, strict=True))
    known = idle + part * (best(tables) - idle)
    left = prune(tables, np.array(sizes), units, known)
    for table, pruned in zip(tables, left, strict=True):
        assert ((pruned == -np.inf) | (pruned == table)).all()
    assert best(left) == best(tables)


@given(slope=st.floats(0.01, 100.0), units=st.integers(1, 9))
def test_counts_of_a_straight_curve_are_all_in_an_optimum(
    slope: float, units: int
) -> None:
    # At its price every count is worth nothing but rounding errors.
    table = slope * np.arange(units + 1) * 120.0
    (left,) = prune([table], np.array([2]), units, float(table[-1]))
    assert np.isfinite(left).all()


@examples(100)
@given(data=st.data())
def test_cbc_has_the_exact_optimum_of_what_pruning_leaves(
    data: st.DataObject, process: SolverProcess
) -> None:
    some, alike = (
        problems(max_jobs=8, max_units=60),
        problems(max_jobs=4, max_units=30).map(and_waiting_twins),
    )
    problem = data.draw(some | alike)
    with patch.object(modes, "POSED_WHOLE", 0):
        assert_cbc_is_exact(problem, process)


@pytest.mark.parametrize("cost_model", ["bftrainer", "stall"])
@pytest.mark.parametrize("seed", range(3))
def test_of_hundreds_of_running_jobs_hardly_any_is_left_to_the_solver(
    seed: int, cost_model: Any, process: SolverProcess
) -> None:
    random = np.random.default_rng(seed)
    shapes = ["convex", "flat", "step between whole numbers", "falling", "straight"]
    jobs = tuple(
        shaped(f"j{j}", shapes[j % 5], tcup=float(random.uniform(17, 19)))
        for j in range(400)
    )
    current = [int(n) for n in random.multinomial(450, [1 / 100] * 100)] + [0] * 300
    problem = Problem(500, 60.0, jobs, tuple(current), cost_model)
    assert_cbc_is_exact(problem, process)
    assert len(build(problem, optimum(problem).objective).model.objective) < 200


@pytest.mark.parametrize(("spare", "posed"), [(1, 0), (17, 60)])
def test_of_running_jobs_with_a_few_units_to_spare_few_are_left_to_the_solver(
    spare: int, posed: int, process: SolverProcess
) -> None:
    # Growing pays from some eight units on, about as much for each, and nobody gives units up for another's sake.
    random = np.random.default_rng(1)
    ns, os = (
        np.array([0.0, 1.0, 2.0, 4.0, 8.0, 16.0]),
        np.array([0.0, 10.0, 20.0, 39.9, 79.0, 156.0]),
    )
    jobs = tuple(
        Job(f"j{j}", 1, 16, ns, os, float(random.uniform(39, 40)), 60.0)
        for j in range(120)
    )
    problem = Problem(120 + spare, 60.0, jobs, (1,) * 120)
    assert_cbc_is_exact(problem, process)
    assert len(build(problem, optimum(problem).objective).model.objective) <= posed


def shaped(name: str, shape: str, **others: object) -> Job:
    ns, os = {
        "convex": ([0, 8, 16, 24, 32], [0, 10, 40, 90, 160]),
        "flat": ([0, 4, 8, 12, 16], [0, 40, 40, 80, 80]),
        "step between whole numbers": ([0, 3.5, 3.6, 9.25, 9.75], [0, 1, 50, 51, 120]),
        "falling": ([0, 4, 12, 16], [0, 50, 20, 60]),
        "straight": ([0, 64], [0, 333.3]),
    }[shape]
    fields: dict[str, object] = {"tcup": 18.0, "tcdw": 12.0} | others
    return Job(
        name, 1, 32, np.array(ns, dtype=float), np.array(os, dtype=float), **fields
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("cost_model", ["bftrainer", "stall"])
@pytest.mark.parametrize(
    "shape", ["convex", "flat", "step between whole numbers", "falling", "straight"]
)
@pytest.mark.parametrize("units", [9, 37, 60])
def test_cbc_finds_the_exact_optimum_on_curves_that_are_not_concave(
    shape: str, units: int, cost_model: str, process: SolverProcess
) -> None:
    jobs = tuple(shaped(f"j{i}", shape, weight=1 + 0.1 * i) for i in range(6))
    for current in [(0,) * 6, (3, 0, 2, 1, 3, 0), (0, 0, 9, 0, 0, 0)]:
        assert_cbc_is_exact(Problem(units, 40.0, jobs, current, cost_model), process)  # type: ignore[arg-type]


# --- limits -------------------------------------------------------------------------------------------------------


def assert_fair_under_limits(
    problem: Problem, process: SolverProcess, gap: float, **limits: float
) -> None:
    exact = solve(problem, backend="exact").objective
    solution = solve(
        problem, backend="cbc", ties="solver", process=process, gap=gap, **limits
    )  # type: ignore[arg-type]
    slack = 1e-9 * magnitude(problem) + 1e-6 * abs(exact)
    if (
        gap and solution.status == "fallback"
    ):  # see test_milp_process: an incumbent within the gap, worse than keeping
        assert "but keeping has" in solution.note
        return
    assert solution.status in ("optimal", "feasible")
    assert worth_of(problem, solution.counts) == pytest.approx(
        solution.objective, rel=1e-9, abs=slack
    )
    assert (
        tables_of(problem).value(keep(problem)) - slack
        <= solution.objective
        <= exact + slack
    )
    assert solution.bound >= exact - slack
    if solution.status == "optimal":
        assert (
            solution.objective
            >= exact - gap * max(abs(exact), abs(solution.objective)) - slack
        )
    else:
        assert solution.note


@pytest.mark.parametrize("time_limit", [1e-9, 1e-5, 1e-3])
@examples(40)
@given(data=st.data())
def test_an_absurd_time_limit_yields_an_answer_no_worse_than_keeping(
    time_limit: float, data: st.DataObject, process: SolverProcess
) -> None:
    problem = data.draw(problems(max_jobs=8, max_units=60))
    assert_fair_under_limits(problem, process, gap=0.0, time_limit=time_limit)


class OutOfTime(SolverProcess):
    """A solver that has found nothing when its time is up. Real ones differ by machine: CBC may need less than 1 ms."""

    def solve(self, model: LinearModel, backend: str, limits: Limits) -> LinearAnswer:
        return LinearAnswer("NO_SOLUTION_FOUND", None, math.nan, math.nan)


@pytest.mark.parametrize("formulation", ["modes", "node"])
def test_jobs_keep_their_units_when_a_solver_finds_nothing_in_time(
    formulation: str,
) -> None:
    jobs = tuple(shaped(f"j{i}", "convex") for i in range(8))
    problem = Problem(60, 40.0, jobs, (5, 0, 9, 1, 0, 0, 7, 2))
    limits: dict[str, Any] = {
        "formulation": formulation,
        "ties": "solver",
        "time_limit": 1.0,
    }
    solution = solve(problem, backend="cbc", process=OutOfTime(), **limits)
    assert (solution.status, solution.counts) == ("feasible", problem.current)
    assert "kept" in solution.note
    assert (
        solution.bound >= solve(problem, backend="exact").objective > solution.objective
    )


@examples(80)
@given(
    problem=problems(max_jobs=8, max_units=60),
    gap=st.sampled_from([1e-3, 0.1, 0.5, 0.99]),
)
def test_an_answer_within_the_gap_has_a_bound_that_holds(
    problem: Problem, gap: float, process: SolverProcess
) -> None:
    assert_fair_under_limits(problem, process, gap=gap)


@pytest.mark.parametrize("time_limit", [3600.0, 1e7, float("inf")])
def test_a_generous_time_limit_is_no_limit(
    time_limit: float, process: SolverProcess
) -> None:
    problem = Problem(8, 10.0, (shaped("a", "flat"), shaped("b", "convex")), (0, 1))
    limits: dict[str, Any] = {"process": process, "time_limit": time_limit}
    solution = solve(problem, backend="cbc", ties="solver", **limits)
    best = pytest.approx(solve(problem).objective)
    assert (solution.status, solution.objective) == ("optimal", best)


def test_a_table_entry_has_the_value_of_the_formula_at_the_kinks() -> None:
    # The model is built at breakpoints only: a job whose kinks lie between whole numbers must not lose the tops.
    job = shaped("a", "step between whole numbers")
    problem = Problem(12, 40.0, (job,), (4,))
    best = {counts[0]: value for counts, value in best_of_each_count(problem).items()}
    assert best == pytest.approx(
        {n: worth(job, 4, n, 40.0, "bftrainer") for n in range(13)}, rel=1e-9
    )
