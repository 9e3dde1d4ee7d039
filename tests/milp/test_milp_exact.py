"""Value tables by hand, and the exact DP against enumeration and a plain dynamic programme."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from refusals import refused
from strategies import magnitude, problems, value_tables, worth

from bft.milp import (
    Job,
    Problem,
    ProblemError,
    keep,
    solve,
)

NEVER = -np.inf


def job(name: str = "a", jmin: int = 1, jmax: int = 6, **others: object) -> Job:
    """O at 0 ... 6 units is 0, 10, 20, 25, 30, 45, 60 a second: neither concave nor convex. Tcup 2 s, Tcdw 3 s."""
    fields = {
        "ns": [0, 2, 4, 6],
        "os": [0, 20, 30, 60],
        "tcup": 2.0,
        "tcdw": 3.0,
    } | others
    return Job(name, jmin, jmax, **fields)  # type: ignore[arg-type]


# --- value tables, Tfwd 10 s --------------------------------------------------------------------------------------

# Units held, units, the job; and its values with 0, 1, ... units, - where that is no choice.
BY_HAND = """
bftrainer
from 0 everything is free
0 6 | 0 100 200 250 300 450 600
r = O(2) = 20: growing costs 40, shrinking 60
2 6 | -60 40 200 210 260 410 560
at Jmax there is no growing: r = 60
6 6 | -180 -80 20 70 120 270 600
above Jmax every choice is a loss of units, at the rate of all that it holds
6 8 jmax=4 | -180 -80 20 70 120
above Jmax and beyond the curve, which is constant there
8 8 jmax=4 | -180 -80 20 70 120
above Jmax, the one above
5 8 jmax=4 | -135 -35 65 115 165
below Jmin it does not run, so nothing is lost; what it holds is no choice
2 6 jmin=3 | 0 - - 250 300 450 600
3 6 jmin=3 | -75 - - 250 250 400 550
Jmax beyond the curve
0 9 jmax=9 | 0 100 200 250 300 450 600 600 600 600
7 9 jmax=9 | -180 -80 20 70 120 270 420 600 480 480
fewer units than Jmax, than Jmin, none at all
1 3 | -30 100 180 230
0 3 jmin=4 | 0 - - -
0 0 | 0
Jmin 0 is as good as 1, and holding nothing is no rate even where O(0) > 0
0 2 jmin=0 os=[5,20,30,60] | 50 125 200
1 2 jmin=0 os=[5,20,30,60] | 12.5 125 175
weights, also none: what is not allowed stays so
2 4 weight=0.5 | -30 20 100 105 130
3 4 jmin=3 weight=0.0 | 0 - - 0 0
breakpoints between whole numbers: O(1) = 8, O(2) = 13, O(3) = 15
0 3 ns=[0,1.5,2.5] os=[0,12,14] | 0 80 130 140
no cost, and a cost beyond the window
2 3 tcup=0.0 tcdw=0.0 | 0 100 200 250
1 2 tcup=1e6 tcdw=1e6 | -1e7 100 -9999800
stall
a start stalls as well: 8 of 10 s
0 6 | 0 80 160 200 240 360 480
shrinking leaves 7 s, growing 8, staying 10
2 6 | 0 70 200 200 240 360 480
6 8 jmax=4 | 0 70 140 175 210
2 6 jmin=3 | 0 - - 200 240 360 480
longer than the window: nothing is gained, nothing is lost
2 3 tcup=10.0 | 0 70 200 0
2 4 tcup=1e9 tcdw=1e9 | 0 0 200 0 0
2 3 weight=2.0 | 0 140 400 400
1 2 os=[5,20,30,60] | 35 125 160
0 3 jmin=4 | 0 - - -
"""


def by_hand() -> Iterator[tuple[str, str]]:
    """Cost model and row."""
    model = ""
    for line in BY_HAND.strip().splitlines():
        if line in ("bftrainer", "stall"):
            model = line
        elif "|" in line:
            yield model, line


@pytest.mark.parametrize(("model", "row"), [*by_hand()])
def test_a_rescale_costs_its_time_at_the_rate_before_or_shortens_the_window(
    model: Any, row: str
) -> None:
    left, right = row.split("|")
    held, units, *stated = left.split()
    fields = dict(each.split("=") for each in stated)
    one = job(**{name: json.loads(text) for name, text in fields.items()})
    has, of = int(held), int(units)
    table = value_tables(Problem(max(of, has), 10.0, (one,), (has,), model))[0]
    expected = [NEVER if each == "-" else float(each) for each in right.split()]
    assert table[: of + 1].tolist() == pytest.approx(expected, rel=1e-12)


@given(problems(max_jobs=4, max_units=12))
def test_tables_are_the_formula_at_every_count(problem: Problem) -> None:
    for one, held, table in zip(
        problem.jobs, problem.current, value_tables(problem), strict=True
    ):
        assert len(table) == min(one.jmax, problem.units) + 1
        for n, value in enumerate(table.tolist()):
            expected = worth(one, held, n, problem.tfwd, problem.cost_model)
            slack = 1e-12 * magnitude(problem)
            assert value == (
                NEVER
                if expected is None
                else pytest.approx(expected, rel=1e-12, abs=slack)
            )


@pytest.mark.parametrize(
    ("jmin", "held", "kept"),
    [(1, 0, 0), (1, 3, 3), (1, 6, 4), (3, 2, 0), (3, 3, 3), (0, 0, 0), (0, 2, 2)],
)
def test_keeping_is_limited_by_the_bounds_of_jobs(
    jmin: int, held: int, kept: int
) -> None:
    assert keep(Problem(6, 10.0, (job(jmin=jmin, jmax=4),), (held,))) == (kept,)


# --- the exact DP ------------------------------------------------------------------------------------------


@given(problems(max_jobs=6, max_units=30))
def test_the_same_problem_has_the_same_answer_bit_for_bit(problem: Problem) -> None:
    again = replace(
        problem,
        jobs=tuple(
            replace(one, ns=one.ns.copy(), os=one.os.copy()) for one in problem.jobs
        ),
    )
    first, second = solve(problem, backend="exact"), solve(again, backend="exact")
    assert first.counts == second.counts
    assert (first.objective, first.bound) == (second.objective, second.bound)


@given(problems(max_jobs=4, max_units=12))
def test_auto_is_exact_where_exact_applies(problem: Problem) -> None:
    solution = solve(problem)
    assert solution.backend == "exact"
    assert solution.counts == solve(problem, backend="exact").counts


# --- ties ---------------------------------------------------------------------------------------------------------


def flat(name: str, jmax: int = 6, **others: object) -> Job:
    """Worth the same on 2 ... 6 units, and rescaled for nothing."""
    return job(
        name,
        1,
        jmax,
        **{"ns": [0, 2, 6], "os": [0, 20, 20], "tcup": 0.0, "tcdw": 0.0} | others,
    )


def straight(name: str) -> Job:
    """Each unit is worth the same, and rescaling is free: any split of the units ties."""
    return job(name, 1, 8, ns=[0, 8], os=[0, 80], tcup=0.0, tcdw=0.0)


@pytest.mark.parametrize(
    ("units", "jobs", "current", "expected"),
    [
        # enough for all
        (12, (flat("a"),), (0,), (2,)),
        (12, (flat("a"),), (4,), (4,)),
        (12, (flat("a"),), (1,), (2,)),
        # holding more than Jmax is no choice: least of the equals
        (12, (flat("a", jmax=5),), (7,), (2,)),
        # worth nothing: keep, else nothing
        (12, (flat("a", weight=0.0),), (3,), (3,)),
        (12, (flat("a", weight=0.0),), (0,), (0,)),
        (12, (flat("a", weight=0.0, jmax=5),), (7,), (0,)),
        (12, (job(jmin=4, weight=0.0),), (3,), (0,)),
        # too few for all
        (5, (straight("a"), straight("b")), (2, 3), (2, 3)),
        (5, (straight("a"), straight("b")), (4, 1), (4, 1)),
        (3, (flat("a", weight=0.0), straight("b")), (0, 3), (0, 3)),
    ],
)
def test_among_equals_a_job_keeps_its_units_or_takes_the_fewest(
    units: int,
    jobs: tuple[Job, ...],
    current: tuple[int, ...],
    expected: tuple[int, ...],
) -> None:
    problem = Problem(units, 10.0, jobs, current)
    assert solve(problem, backend="exact").counts == expected


def test_a_tie_is_kept_only_if_no_other_job_can_use_the_units() -> None:
    # c is worth as much on 2 units as on its 5, and the others gain 10/s with each of the 3 that it gives back.
    problem = Problem(
        8, 10.0, (straight("a"), straight("b"), flat("c", os=[0, 22, 22])), (2, 1, 5)
    )
    solution = solve(problem, backend="exact")
    assert (solution.counts[2], solution.objective) == (2, 10 * (6 * 10 + 22))


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backend": "nonsense"}, "unknown backend 'nonsense'"),
        ({"formulation": "nonsense"}, "unknown formulation 'nonsense'"),
        ({"time_limit": 0.0}, "time limit"),
        ({"time_limit": -1.0}, "time limit"),
        ({"time_limit": float("nan")}, "time limit"),
        ({"gap": -0.1}, "gap"),
        ({"gap": 1.0}, "gap"),
        ({"gap": float("nan")}, "gap"),
        ({"threads": 0}, "threads"),
    ],
)
def test_options_without_sense_are_refused(
    options: dict[str, object], says: str
) -> None:
    problem = Problem(3, 10.0, (job(),), (0,))
    refused(says, solve, problem, error=ProblemError, **options)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"jmin": -1}, "Jmin -1"),
        ({"jmin": 7}, "Jmin 7 and Jmax 6"),
        ({"jmin": 0, "jmax": 0}, "Jmax 0"),
        ({"ns": [0, 1]}, "Ns and Os must be lists of one length"),
        ({"ns": [0], "os": [0]}, "at least 2"),
        ({"ns": [[0, 1]], "os": [[0, 1]]}, "Ns and Os must be lists"),
        ({"ns": [0, 2, 4, np.nan]}, "finite"),
        ({"os": [0, 2, 4, np.inf]}, "finite"),
        ({"ns": [1, 2, 4, 6]}, "Ns must start at 0"),
        ({"ns": [0, 2, 2, 6]}, "increase"),
        ({"ns": [0, 4, 2, 6]}, "increase"),
        ({"tcup": -1.0}, "Tcup"),
        ({"tcup": np.nan}, "Tcup"),
        ({"tcdw": np.inf}, "Tcdw"),
        ({"weight": -0.5}, "weight"),
        ({"weight": np.nan}, "weight"),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_name_and_field(
    fields: dict[str, object], says: str
) -> None:
    refused(f"'a'.*{says}", job, "a", error=ProblemError, **fields)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"units": -1}, "units"),
        ({"tfwd": 0.0}, "Tfwd"),
        ({"tfwd": -1.0}, "Tfwd"),
        ({"tfwd": np.nan}, "Tfwd"),
        ({"tfwd": np.inf}, "Tfwd"),
        ({"current": (0,)}, "1 entries for 2 jobs"),
        ({"current": (-1, 0)}, "current"),
        ({"current": (3, 3)}, "hold 6 units, but only 5"),
        ({"jobs": (job("a"), job("a"))}, "unique"),
        ({"cost_model": "free"}, "cost_model"),
    ],
)
def test_a_problem_that_cannot_be_is_refused_by_field(
    fields: dict[str, object], says: str
) -> None:
    fine: dict[str, object] = {
        "units": 5,
        "tfwd": 10.0,
        "jobs": (job("a"), job("b")),
        "current": (0, 0),
    }
    Problem(**fine)  # type: ignore[arg-type]
    refused(says, Problem, error=ProblemError, **fine | fields)
