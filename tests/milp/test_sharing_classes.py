"""Sharing by classes and column generation: the same optimum as with every job and pair posed on its own."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from sharing_oracles import best_by_flow, together
from test_sharing import random_problem

from bft.milp import Job, Pair, Problem, ProblemError, Solution, solve
from bft.milp.formulations.column_generation import least_loss, relax, search_gap
from bft.milp.formulations.items import Items
from bft.milp.formulations.kernels import best_cell, best_together, on_hull
from bft.milp.formulations.transfers import (
    complaint_about,
    shares_of,
    value_of,
)
from bft.milp.tables import tables_of


def with_likes(rng: np.random.Generator, problem: Problem) -> Problem:
    """The problem with one to three more of some jobs that wait, which may share with each other too."""
    jobs, current, pairs, alike = (
        list(problem.jobs),
        list(problem.current),
        list(problem.pairs),
        [],
    )
    for j, job in enumerate(problem.jobs):
        if current[j] or rng.random() < 0.2:
            continue
        group = (j, *range(len(jobs), len(jobs) + int(rng.integers(1, 4))))
        jobs += [replace(job, name=f"{job.name} {k}") for k in group[1:]]
        current += [0] * len(group[1:])
        alike.append(group)
        if rng.random() < 0.7:
            xi = float(1 + rng.random())
            pairs.append(Pair(group[0], group[1], xi, xi))
    return replace(
        problem,
        jobs=tuple(jobs),
        current=tuple(current),
        pairs=tuple(pairs),
        alike=tuple(alike),
    )


def spelled_out(problem: Problem) -> Problem:
    """The same with every pair named and no groups."""
    found = (
        problem.pair_of(a, b)
        for a, b in itertools.combinations(range(len(problem.jobs)), 2)
    )
    return replace(
        problem, pairs=tuple(pair for pair in found if pair is not None), alike=()
    )


def world(seed: int, *, jobs: int = 5, units: int = 12) -> Problem:
    rng = np.random.default_rng(seed)
    while True:
        drawn = int(rng.integers(2, jobs)), int(rng.integers(2, units))
        problem = with_likes(
            rng, random_problem(rng, *drawn, by_units=bool(rng.random() < 0.3))
        )
        if problem.pairs:
            return problem


def check(problem: Problem, solution: Solution, best: float) -> None:
    assert solution.status == "optimal", solution.note
    assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert solution.bound >= solution.objective
    assert complaint_about(problem, solution.counts, solution.transfers) == ""
    assert value_of(
        problem, solution.counts, shares_of(solution.transfers)
    ) == pytest.approx(best, rel=1e-6, abs=1e-6)


@given(st.integers(0, 2**32))
@examples(15)
def test_classes_are_worth_what_the_problem_spelled_out_is(seed: int) -> None:
    problem = world(seed)
    plain = spelled_out(problem)
    best = solve(plain, backend="cbc", formulation="items")
    check(plain, best, best.objective)
    check(problem, solve(problem, backend="cbc", formulation="items"), best.objective)


@given(st.integers(0, 2**32))
@examples(8)
def test_classes_are_worth_what_a_milp_of_where_units_go_finds(seed: int) -> None:
    problem = world(seed, jobs=4, units=8)
    best = best_by_flow(spelled_out(problem))
    check(problem, solve(problem, backend="highs", formulation="items"), best)


@given(st.integers(0, 2**32))
@examples(20)
def test_the_relaxation_bounds_and_its_gap_holds_the_optimum(seed: int) -> None:
    """No MILP in between: the least loss is that of the best choice of items, and no entry loses less than nothing."""
    problem = world(seed)
    items = Items(problem)
    relaxation = relax(items)
    slack = 1e-9 * max(1.0, abs(relaxation.bound))
    assert (relaxation.loss >= -slack).all()
    found = least_loss(
        items, relaxation, relaxation.bound - items.base + slack
    )  # as much as giving nobody anything loses
    assert found is not None
    lost, choice = found
    assert items.worth(choice) == pytest.approx(
        relaxation.bound - lost, rel=1e-7, abs=slack
    )
    sought, again = search_gap(items, relaxation, relaxation.bound - items.base + slack)
    assert (sought, items.worth(again)) == pytest.approx(
        (lost, items.worth(choice)), rel=1e-7, abs=slack
    )
    assert least_loss(items, relaxation, lost / 2 - slack) in (
        (lost / 2 - slack, ()),
        None,
    )
    assert (
        relaxation.bound - lost
        >= solve(spelled_out(problem), backend="cbc", formulation="items").objective
        - slack
    )


@given(st.integers(0, 2**32))
@examples(60)
def test_the_best_of_a_pair_is_that_of_all_its_cells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    by_units = bool(rng.random() < 0.3)
    problem = random_problem(rng, 3, int(rng.integers(1, 12)), by_units=by_units)
    for pair in problem.pairs:
        both = (pair.a, pair.b)
        units = min(problem.units, sum(problem.jobs[j].jmax for j in both))
        beside = [tables_of(problem).of(j, pair) for j in both]
        if not pair.shared and rng.random() < 0.5:
            beside[0] = beside[0][: int(rng.integers(1, 13)) + 1]
        apart = [tables_of(problem).of(j) for j in both]
        held = problem.current[pair.a], problem.current[pair.b]
        cells = [*together(beside, apart, held, pair.shared)]
        found = np.empty(units + 1)
        best_together(*beside, *apart, *held, pair.shared, found)
        for n, value in enumerate(found.tolist()):
            fitting = [cell for cell in cells if cell[1] <= n and cell[0] > -np.inf]
            best = max((cell[0] for cell in fitting), default=-np.inf)
            assert value == best
            if fitting:
                # Ties go to the fewest units, then to the smallest count of the first job.
                _, union, split, *counts = min(
                    cell for cell in fitting if cell[0] == best
                )
                cell = best_cell(*beside, *apart, *held, pair.shared, n)
                assert cell == (*counts, union, split)


@given(
    st.lists(
        st.lists(st.integers(-5, 20), min_size=1, max_size=9), min_size=1, max_size=4
    )
)
def test_the_hull_holds_the_best_entry_at_every_price(tables: list[list[int]]) -> None:
    gains = np.concatenate([[-np.inf, *table] for table in tables])
    begins = np.cumsum([0, *(len(table) + 1 for table in tables)])
    hull = on_hull(gains, begins).tolist()
    for table, begin, end in zip(tables, begins, begins[1:], strict=False):
        mine = [at - begin for at in hull if begin <= at < end]
        for worth in np.linspace(0.0, 25.0, 51):
            values = [gain - worth * n for n, gain in enumerate(table, 1)]
            found = max([0.0, *(values[n - 1] for n in mine)])
            assert found == pytest.approx(max(0.0, *values), abs=1e-9)


def test_thousands_that_wait_alike_are_a_few_items() -> None:
    curve = np.arange(5.0), np.array([0.0, 10.0, 18.0, 24.0, 28.0])
    jobs = tuple(
        Job(f"j{j}", 1, 4, *curve, 20.0, 10.0, weight=1.0 + j % 3) for j in range(3000)
    )
    alike = tuple(tuple(range(kind, 3000, 3)) for kind in range(3))
    pairs = tuple(
        Pair(a, b, 1.3, 1.2)
        for a, b in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (2, 5))
    )
    problem = Problem(50, 60.0, jobs, (0,) * 3000, pairs=pairs, alike=alike)
    assert len(Items(problem).all) == 3 + 6
    solution = solve(problem, backend="cbc")
    assert (solution.status, solution.formulation) == ("optimal", "column_generation")
    # A unit each for fifty pairs of the heaviest, which come first among their likes.
    assert solution.objective == pytest.approx(50 * 60 * 10 * 3 * (1 / 1.3 + 1 / 1.2))
    assert [j for j, n in enumerate(solution.counts) if n] == list(range(2, 302, 3))
    assert set(shares_of(solution.transfers).values()) == {1}


@pytest.mark.parametrize(
    ("alike", "pairs", "what"),
    [
        (((0,),), (), "two jobs or more"),
        (((1, 0),), (), "ascending"),
        (((0, 3),), (), "hold nothing and be worth the same"),
        (((0, 2),), (), "hold nothing and be worth the same"),
        (((0, 1), (1, 4)), (), "two groups"),
        (((0, 1, 4),), (Pair(1, 3, 1.0, 1.0),), "the first of its group only"),
        (((0, 1, 4),), (Pair(0, 4, 1.0, 1.0),), "the first of its group only"),
    ],
)
def test_groups_that_make_no_sense_are_refused(
    alike: tuple[tuple[int, ...], ...], pairs: tuple[Pair, ...], what: str
) -> None:
    curve = np.arange(3.0)
    jobs = tuple(
        Job(f"j{j}", 1, 2, curve, curve, 0.0, 0.0, weight=2.0 if j == 2 else 1.0)
        for j in range(5)
    )
    with pytest.raises(ProblemError, match=what):
        Problem(6, 60.0, jobs, (0, 0, 0, 1, 0), pairs=pairs, alike=alike)
