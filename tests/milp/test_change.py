"""What users may change of a decision, limits and the value, is obeyed by every method alike."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import magnitude, problems, solve_exact

from bft.milp import (
    Job,
    Limit,
    Pair,
    Problem,
    ProblemError,
    Rows,
    SolverProcess,
    solve,
    value,
)
from bft.milp.exact.dp import optimum
from bft.milp.exact.kinds import kinds_optimum
from bft.milp.tables import complaint, tables_of


def limits_on(jobs: int) -> st.SearchStrategy[list[Limit]]:
    numbers = st.dictionaries(st.integers(0, jobs - 1), st.integers(0, 2), max_size=3)
    return st.lists(st.builds(Limit, st.integers(0, 6), numbers, numbers), max_size=2)


def best_by_enumeration(problem: Problem) -> float:
    """The best value of all allocations that the units and limits allow."""
    tables = [tables_of(problem).of(j) for j in range(len(problem.jobs))]
    feasible = (
        counts
        for counts in itertools.product(*(range(len(table)) for table in tables))
        if not complaint(problem, counts)
    )
    return max(tables_of(problem).value(counts) for counts in feasible)


@examples(60)
@given(problems(max_jobs=3, max_units=6).filter(lambda one: one.jobs), st.data())
def test_limits_are_obeyed_by_exact_and_solver(
    process: SolverProcess, problem: Problem, data: st.DataObject
) -> None:
    limited = replace(problem, limits=data.draw(limits_on(len(problem.jobs))))
    best = best_by_enumeration(limited)
    slack = 1e-9 * (1 + magnitude(problem))
    exact = solve(limited, backend="exact")
    assert exact.status == "optimal"
    assert math.isclose(exact.objective, best, rel_tol=1e-9, abs_tol=slack)
    for formulation in ("modes", "node"):
        mine = solve(limited, backend="cbc", formulation=formulation, process=process)
        assert (mine.counts, mine.verified) == (exact.counts, True), mine.note
    own = solve(limited, backend="cbc", ties="solver", process=process)
    assert own.objective == pytest.approx(best, rel=1e-6, abs=1e3 * slack)
    assert not complaint(limited, own.counts)


@examples(60)
@given(problems(max_jobs=4, max_units=8).filter(lambda one: one.jobs))
def test_both_exact_programmes_name_the_same_optimum(problem: Problem) -> None:
    assert kinds_optimum(problem).counts == solve_exact(problem)


def odd(
    objective: float,
    xi: float,
    rate: float,
    n: int,
    held: int,
    tcup: float,
    tcdw: float,
    weight: float,
    tfwd: float,
    stall: bool,
) -> float:
    """Nobody loses more than half of its units; and by the window, as each function takes seconds to compile:

    no units are worth more than none (11 s), all are worth infinitely much (12 s), two are worth no number (13 s),
    those of weight 2 are an error (14 s).
    """
    if tfwd == 14.0 and weight == 2.0:
        raise ValueError("weight 2")
    if tfwd == 11.0:
        return -np.inf if n else 0.0
    if tfwd == 12.0:
        return np.inf
    if tfwd == 13.0:
        return np.nan if n == 2 else float(n)
    if n and n < held / 2:
        return -np.inf
    return value(objective, xi, rate, n, held, tcup, tcdw, weight, tfwd, stall)


@examples(40)
@given(problems(max_jobs=3, max_units=8).filter(lambda one: one.jobs))
def test_a_value_function_is_obeyed_by_exact_and_solver(
    process: SolverProcess, problem: Problem
) -> None:
    posed = replace(problem, value=odd)
    best = best_by_enumeration(posed)
    exact = solve(posed, backend="exact")
    slack = 1e-9 * (1 + magnitude(problem))
    assert math.isclose(exact.objective, best, rel_tol=1e-9, abs_tol=slack)
    mine = solve(posed, backend="cbc", process=process)
    assert (mine.counts, mine.verified) == (exact.counts, True), mine.note


def test_what_no_decision_can_obey_is_refused() -> None:
    curve = np.array([0.0, 4.0])
    jobs = tuple(Job(name, 1, 4, curve, curve, 0.0, 0.0) for name in "ab")
    problem = Problem(4, 10.0, jobs, (0, 0))
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: Limit(-1), "whole numbers >= 0"),
        (lambda: Limit(1, {0: -1}), "whole numbers >= 0"),
        (lambda: Limit(1, {0: 0.5}), "whole numbers >= 0"),  # type: ignore[dict-item]
        (lambda: replace(problem, limits=[Limit(1, {2: 1})]), "positions of jobs"),
        (
            lambda: replace(
                problem, pairs=(Pair(0, 1, 1.2, 1.2),), limits=[Limit(1, {0: 1})]
            ),
            "may share units",
        ),
        (lambda: Limit(1, {"a": 1}), "positions in .*, whole numbers >= 0, not 'a'"),  # type: ignore[dict-item]
        (lambda: solve(replace(problem, tfwd=12.0, value=odd)), "expected a number"),
        (
            lambda: solve(replace(problem, tfwd=13.0, value=odd)),
            "not nan for job 'a' with 2 units",
        ),
        (
            lambda: replace(problem, value=max_of_two),
            "a function of objective, xi, .* stall, as .*, not max_of_two: too many",
        ),
        (lambda: replace(problem, value=3), "not 3: 3 is not a callable"),  # type: ignore[arg-type]
    ]
    for make, message in refused:
        with pytest.raises(ProblemError, match=message):
            make()


def max_of_two(one: float, other: float) -> float:
    return max(one, other)


def test_a_value_that_rules_all_units_out_is_noted() -> None:
    curve = np.array([0.0, 4.0])
    jobs = tuple(Job(name, 2, 4, curve, curve, 0.0, 0.0) for name in "ab")
    problem = Problem(4, 11.0, jobs, (0, 0), value=odd)
    for backend in ("exact", "cbc"):
        found = solve(problem, backend=backend)
        note = "value: -inf for all units that a job could get"
        assert (found.counts, found.note) == ((0, 0), note)
    # Too few units are nobody's fault.
    assert not solve(replace(problem, units=1), backend="exact").note


def test_who_holds_more_than_a_limit_allows_may_have_to_stop() -> None:
    curve = np.array([0.0, 4.0])
    jobs = tuple(Job(name, 4, 4, curve, curve, 0.0, 0.0) for name in "ab")
    problem = Problem(8, 10.0, jobs, (4, 4), limits=(Limit(6, {0: 1, 1: 1}),))
    for backend in ("exact", "cbc"):
        assert solve(problem, backend=backend).counts == (4, 0)


def test_a_value_function_that_raises_leaves_the_next_decisions_as_they_are() -> None:
    curve = np.array([0.0, 4.0])
    jobs = tuple(Job(name, 1, 4, curve, curve, 1.0, 1.0) for name in "ab")
    terms = Problem(8, 14.0, jobs, (0, 0)).posed.terms

    def values(held: tuple[int, int], weight: float = 1.0) -> list[float]:
        rows = Rows(terms, np.arange(2), np.array([1.0, weight]))
        found = tables_of(Problem(8, 14.0, rows, held, value=odd)).values
        return found.tolist()

    values((1, 1))
    values((2, 1))
    with pytest.raises(ValueError, match="weight 2"):
        values((3, 1), weight=2.0)  # the table of the first job had been filled
    expected = tables_of(Problem(8, 14.0, jobs, (3, 2), value=odd)).values
    assert values((3, 2)) == expected.tolist()


@examples(60)
@given(
    problems(max_jobs=5, max_units=9).filter(lambda one: len(one.jobs) > 1), st.data()
)
def test_decisions_that_follow_each_other_are_those_of_problems_made_anew(
    problem: Problem, data: st.DataObject
) -> None:
    terms, everyone = problem.posed.terms, np.arange(len(problem.jobs))
    current, weight = np.array(problem.current), terms.weight.copy()
    idle = max(data.draw(st.sampled_from([4, 20])), int(current.sum()))
    one, seen = replace(problem, units=idle), []
    steps = ["units held", "weight", "idle", "window", "model", "value", "jobs", "pair"]
    for _ in range(data.draw(st.integers(3, 12))):
        # One thing is another than before.
        step = data.draw(st.sampled_from(steps[:3] * 3 + steps))
        j = data.draw(st.sampled_from(everyone.tolist()))
        if step == "units held":
            current[j] = data.draw(st.integers(0, int(current[j]) + 1))
        elif step == "weight":
            weight[j] = data.draw(st.sampled_from([1.0, 2.0, 1 / 3, 1e-3, 1e3]))
        some = everyone[step == "jobs" :]
        units = int(current.sum()) if step == "idle" else idle
        one = replace(
            one,
            units=max(units, int(current.sum())),
            tfwd=problem.tfwd * (1 + (step == "window")),
            jobs=Rows(terms, some, weight[some]),
            current=tuple(current[some].tolist()),
            cost_model="stall" if step == "model" else problem.cost_model,
            value=odd if step == "value" else None,
            pairs=(Pair(0, 1, 1.2, 1.5),) if step == "pair" else (),
        )
        anew = replace(one, jobs=tuple(one.jobs))
        seen.append((tables_of(one), tables_of(anew)))
        if not one.pairs:
            found, expected = optimum(one), optimum(anew)
            assert list(found.counts) == list(expected.counts)
            assert found.objective == tables_of(anew).value(expected.counts)
    # What came later has changed no table of earlier ones.
    for tables, own in seen:
        assert tables.values.tolist() == own.values.tolist()
        assert tables.line.tolist() == own.line.tolist()
        assert tables.kept.tolist() == own.kept.tolist()
        assert tables.debt == own.debt


def test_the_same_jobs_with_other_weights_are_decided_as_if_they_were_new() -> None:
    # So the quantum changes, and what is worth little comes to matter or does not any more.
    ns, held, rng = np.array([0.0, 1.0, 4.0]), (0, 1, 1, 2), np.random.default_rng(0)
    for _ in range(100):
        tcdw = rng.choice([5.0, 10.0, 15.0, 20.0, 30.0, 1e9], 4).tolist()
        jobs = tuple(
            Job(f"{power}", 1, 4, ns, ns**power, 1.0, seconds)
            for power, seconds in zip((0.4, 0.5, 0.6, 0.7), tcdw, strict=True)
        )
        terms, weight = Problem(6, 10.0, jobs, held).posed.terms, np.ones(4)
        for _ in range(12):
            weight[rng.integers(4)] = rng.choice(
                [rng.uniform(0.5, 2.0), 1e3], p=[0.9, 0.1]
            )
            rows = Rows(terms, np.arange(4), weight)
            found = optimum(Problem(6, 10.0, rows, held))
            anew = optimum(Problem(6, 10.0, tuple(rows), held))
            assert (list(found.counts), found[1:]) == (list(anew.counts), anew[1:])
