"""The published per-node model: equal to the others when its big-M is large enough, as published when it is not."""

import itertools
import math

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from published import decisions, posed, some_of
from strategies import magnitude, problems, solve_exact, worth_of

from bft.milp import Job, Limits, Pair, Problem, ProblemError
from bft.milp.formulations import node

CHUNKS = 8
# Of many recorded decisions
SOME = 40


def answered(process, problem: Problem, *, strict: bool = False, solver: str = "cbc"):
    """Status and counts; the objective that the solver claims must be what the counts are worth."""
    built = node.build(problem, strict_reference=strict)
    answer = process.solve(built.model, solver, Limits(60.0)).above(built.constant)
    if answer.x is None:
        return answer.status, None
    counts = built.decode(answer.x)
    assert answer.objective == pytest.approx(
        worth_of(problem, counts), rel=1e-6, abs=1e-6 * (1 + magnitude(problem))
    )
    return answer.status, counts


def ramp(name: str, jmin: int = 1, jmax: int = 8, tcup: float = 0.0) -> Job:
    """10 a second for each node."""
    return Job(name, jmin, jmax, np.array([0, 8]), np.array([0, 80]), tcup, 0.0)


@examples(60)
@given(problems(max_jobs=3, max_units=5))
def test_strict_is_enumeration_without_large_changes(process, problem):
    # Changes of more than half of M = N + 1 are forbidden, and a Jmin above M makes all infeasible.
    most = problem.units + 1
    allowed = [
        [n for n in range(most) if 2 * abs(n - held) <= most and job.jmin <= most]
        for job, held in zip(problem.jobs, problem.current, strict=True)
    ]
    values = [worth_of(problem, counts) for counts in itertools.product(*allowed)]
    best = max((value for value in values if value is not None), default=None)
    status, counts = answered(process, problem, strict=True)
    if best is None:
        assert (status, counts) == ("infeasible", None)
    else:
        assert status == "optimal"
        assert worth_of(problem, counts) == pytest.approx(
            best, rel=1e-6, abs=1e-7 * (1 + magnitude(problem))
        )


@pytest.mark.parametrize(("units", "most"), [(2, 1), (3, 2), (4, 2), (5, 3), (8, 4)])
def test_the_published_big_m_halves_what_a_job_can_gain_at_once(process, units, most):
    problem = Problem(units, 10.0, (ramp("a"),), (0,))
    assert answered(process, problem) == ("optimal", (units,))
    assert answered(process, problem, strict=True) == ("optimal", (most,))


def test_the_published_big_m_keeps_a_job_from_giving_up_many_nodes(process):
    # b is worth more per node, but a may lose only ⌊9/2⌋ of its 8.
    b = Job("b", 1, 8, np.array([0, 8]), np.array([0, 800]), 0.0, 0.0)
    problem = Problem(8, 10.0, (ramp("a"), b), (8, 0))
    assert answered(process, problem) == ("optimal", (0, 8))
    assert answered(process, problem, strict=True) == ("optimal", (4, 4))


@pytest.mark.parametrize(("jmin", "status"), [(4, "optimal"), (5, "infeasible")])
def test_with_the_published_big_m_a_jmin_above_it_makes_all_infeasible(
    process, jmin, status
):
    problem = Problem(3, 10.0, (ramp("a"), ramp("b", jmin=jmin)), (0, 0))
    assert answered(process, problem)[0] == "optimal"
    assert answered(process, problem, strict=True)[0] == status


@pytest.mark.parametrize(("job", "first", "held"), [(0, 0, 3), (1, 3, 1)])
def test_no_job_gains_and_loses_nodes_at_once(process, job, first, held):
    # Even where that costs nothing: each job keeps all it has or takes nothing new.
    built = node.build(Problem(6, 10.0, (ramp("a", jmax=3), ramp("b", jmax=4)), (3, 1)))
    given = np.flatnonzero(_binaries(built, job, 6)).tolist()
    kept, new = given[first : first + held], given[:first] + given[first + held :]
    built.model.row(kept, [1.0] * held, "<", held - 1.0)
    assert process.solve(built.model, "cbc", Limits()).status == "optimal"
    built.model.row(new, [-1.0] * len(new), "<", -1.0)
    assert process.solve(built.model, "cbc", Limits()).status == "infeasible"


def _binaries(built, job: int, nodes: int) -> np.ndarray:
    """Mask of x[job, *]: the variables of the rows in which a node serves one job."""
    rows = [
        row
        for row in built.model.rows
        if row[2] == "<" and row[3] == 1.0 and set(row[1]) == {1.0}
    ][-nodes:]
    mask = np.zeros(len(built.model.objective), dtype=bool)
    mask[[row[0][job] for row in rows]] = True
    return mask


def test_a_binary_for_every_job_and_node():
    problem = Problem(50, 10.0, tuple(ramp(f"j{j}") for j in range(5)), (0,) * 5)
    binaries = [i for i, whole in enumerate(node.build(problem).model.integer) if whole]
    assert len(binaries) == 5 * 50 + 5 * 4  # up, down, off and one run each


def test_the_stalling_cost_model_is_the_same_in_both(process):
    # Growing from 2 to 8 nodes: 4 s of 10 are lost, 6 s x 80 against 10 s x 20.
    jobs = (ramp("a", tcup=4.0), ramp("b", tcup=9.9))
    problem = Problem(10, 10.0, jobs, (2, 2), "stall")
    assert (
        answered(process, problem)
        == ("optimal", solve_exact(problem))
        == ("optimal", (8, 2))
    )


def test_a_stall_longer_than_the_horizon_loses_the_horizon_and_no_more(process):
    # Off is worth -5 a second: a stall of twice the horizon must not turn that into a gain.
    job = Job("a", 1, 2, np.array([0, 1, 2]), np.array([-5, -1, 1]), 0.0, 20.0)
    problem = Problem(2, 10.0, (job,), (2,), "stall")
    assert (
        answered(process, problem)
        == ("optimal", solve_exact(problem))
        == ("optimal", (2,))
    )


def test_no_job_pretends_to_grow_or_shrink(process):
    # At a negative rate a rescale earns: a would like to be up without gaining, b to be down without losing.
    a = Job("a", 1, 1, np.array([0, 1]), np.array([0, -1]), 12.0, 0.0)
    b = Job("b", 1, 2, np.array([0, 1, 2]), np.array([-9, -1, -1]), 0.0, 0.5)
    problem = Problem(2, 1.0, (a, b), (1, 1))
    assert answered(process, problem) == ("optimal", solve_exact(problem))


def test_sharing_is_refused():
    problem = Problem(
        4, 10.0, (ramp("a"), ramp("b")), (0, 0), pairs=(Pair(0, 1, 1.1, 1.2),)
    )
    with pytest.raises(ProblemError, match="gives every unit to one job"):
        node.build(problem)


# --- recorded decisions -------------------------------------------------------------------------------------------


def check(process, entries: list, *, strict: bool) -> None:
    for entry in entries:
        expected = entry["published_optimum" if strict else "optimum"]
        problem = posed(entry)
        status, counts = answered(process, problem, strict=strict)
        if expected is None:
            assert (status, counts) == ("infeasible", None), entry
        else:
            assert status == "optimal", entry
            assert math.isclose(
                worth_of(problem, counts), expected, rel_tol=1e-6, abs_tol=1e-6
            ), entry


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("strict", [False, True])
def test_recorded_corner_cases(process, chunk, strict):
    check(process, decisions("corner-cases")[chunk::CHUNKS], strict=strict)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("strict", [False, True])
def test_recorded_decisions(process, chunk, strict):
    every = [
        entry
        for entry in decisions("instances")
        if entry["published_optimum"] is not None
    ]
    # Those that the published big-M spoils, and a sample of the others.
    spoiled = [
        e
        for e in every
        if not math.isclose(e["published_optimum"], e["optimum"], rel_tol=1e-6)
    ]
    some = some_of(spoiled, SOME)[chunk::CHUNKS] + some_of(every, SOME)[chunk::CHUNKS]
    assert len(some) >= 2
    check(process, some, strict=strict)
