"""Problems and answers as JSON documents, and which unit is which."""

from __future__ import annotations

import contextlib
import copy
import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from drawing import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import curves, worth_of

from bft.milp import Document, ProblemError, answer, parse, settle, solve

Json = dict[str, Any]


def document(**changes: object) -> Json:
    """Two jobs on 8 units; b holds three of them."""
    a = {
        "name": "a",
        "Jmin": 1,
        "Jmax": 4,
        "Ns": [0, 1, 4],
        "Os": [0, 10, 30],
        "Tcup": 20,
        "Tcdw": 10,
    }
    b = a | {"name": "b", "weight": 2, "current": [5, 0, 7]}
    return {"units": 8, "Tfwd": 120, "jobs": [a, b]} | changes


def with_job(**changes: object) -> Json:
    """`document` with changes to its second job."""
    posed = document()
    posed["jobs"][1] |= changes
    return posed


# --- reading ------------------------------------------------------------------------------------------------------


def test_a_document_becomes_a_problem() -> None:
    parsed = parse(json.loads(json.dumps(document(cost_model="stall"))))
    problem = parsed.problem
    assert (problem.units, problem.tfwd, problem.cost_model) == (8, 120.0, "stall")
    assert parsed.current == ((), (5, 0, 7))
    assert problem.current == (0, 3)
    b = problem.jobs[1]
    assert (b.name, b.jmin, b.jmax, b.tcup, b.tcdw, b.weight) == (
        "b",
        1,
        4,
        20.0,
        10.0,
        2.0,
    )
    assert (b.ns.tolist(), b.os.tolist()) == ([0, 1, 4], [0, 10, 30])


def test_what_is_optional_has_defaults() -> None:
    problem = parse(document()).problem
    assert (problem.jobs[0].weight, problem.current[0], problem.cost_model) == (
        1.0,
        0,
        "bftrainer",
    )


def test_a_document_without_jobs_is_a_problem() -> None:
    parsed = parse({"units": 0, "Tfwd": 1, "jobs": []})
    assert (*parsed.problem.jobs, *parsed.current) == ()


def test_whole_numbers_may_be_written_as_floats() -> None:
    posed = with_job(Jmin=2.0, Jmax=3.0) | {"units": 9.0}
    problem = parse(posed).problem
    assert (problem.units, problem.jobs[1].jmin, problem.jobs[1].jmax) == (9, 2, 3)
    assert all(
        type(n) is int
        for n in (problem.units, problem.jobs[1].jmin, problem.jobs[1].jmax)
    )


def test_reading_leaves_the_document_as_it_is() -> None:
    posed = document()
    before = copy.deepcopy(posed)
    answer(parse(posed), solve(parse(posed).problem, backend="exact"))
    assert posed == before


NOT_A_NUMBER = ["7", None, True, [1], {}, float("nan"), float("inf"), -float("inf")]
NOT_WHOLE = [*NOT_A_NUMBER, 1.5, -1, -1.0, 10**10, 1e300, 10**400]
NOT_NUMBERS = [
    7,
    None,
    "0 1",
    {"0": 0},
    [0, "1", 4],
    [0, None, 4],
    [0, True, 4],
    [0, [1], 4],
]


@pytest.mark.parametrize("value", NOT_WHOLE, ids=repr)
def test_units_that_are_no_count_are_named(value: object) -> None:
    with pytest.raises(ProblemError, match=r"^units: expected a whole number"):
        parse(document(units=value))


@pytest.mark.parametrize("value", [*NOT_A_NUMBER, 0, -1.0], ids=repr)
def test_an_invalid_tfwd_is_named(value: object) -> None:
    with pytest.raises(ProblemError, match="Tfwd"):
        parse(document(Tfwd=value))


@pytest.mark.parametrize("value", [None, {}, "a", 3], ids=repr)
def test_jobs_that_are_no_list_are_named(value: object) -> None:
    with pytest.raises(ProblemError, match=r"^jobs: expected a list"):
        parse(document(jobs=value))


@pytest.mark.parametrize("value", [None, [], "a", 3], ids=repr)
def test_a_job_that_is_no_object_is_named(value: object) -> None:
    with pytest.raises(ProblemError, match=r"^jobs\[1\]: expected a job object"):
        parse(document(jobs=[document()["jobs"][0], value]))


@pytest.mark.parametrize(
    "value",
    [None, [], [document()], "{}", 3],
    ids=["null", "empty list", "list", "text", "int"],
)
def test_a_problem_that_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(ProblemError, match="a problem is a JSON object"):
        parse(value)


@pytest.mark.parametrize("field", ["units", "Tfwd", "jobs"])
def test_a_missing_field_is_named(field: str) -> None:
    posed = document()
    del posed[field]
    with pytest.raises(ProblemError, match=f"^{field}: .*(missing|nothing)"):
        parse(posed)


@pytest.mark.parametrize("field", ["name", "Jmin", "Jmax", "Ns", "Os", "Tcup", "Tcdw"])
def test_a_missing_field_of_a_job_is_named(field: str) -> None:
    posed = document()
    del posed["jobs"][1][field]
    with pytest.raises(ProblemError, match=rf"^jobs\[1\]\.{field}: "):
        parse(posed)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("name", value) for value in (None, "", 3, ["a"], True)],
        *[("Jmin", value) for value in NOT_WHOLE],
        *[("Jmax", value) for value in NOT_WHOLE],
        *[("Tcup", value) for value in NOT_A_NUMBER],
        *[("Tcdw", value) for value in NOT_A_NUMBER],
        *[("weight", value) for value in NOT_A_NUMBER],
        *[("Ns", value) for value in NOT_NUMBERS],
        *[("Os", value) for value in NOT_NUMBERS],
        *[
            ("current", value)
            for value in (None, 3, "0", {}, [0.0], ["0"], [True], [None], [[0]])
        ],
        *[("current", value) for value in ([-1], [8], [0, 9], [2**70])],
    ],
    ids=repr,
)
def test_an_invalid_field_of_a_job_is_named(field: str, value: object) -> None:
    with pytest.raises(ProblemError, match=rf"^jobs\[1\]\.{field}: "):
        parse(with_job(**{field: value}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"Jmin": 5}, "Jmin"),
        ({"Jmin": 0, "Jmax": 0}, "Jmax"),
        ({"Tcup": -1}, "Tcup"),
        ({"Tcdw": -0.1}, "Tcdw"),
        ({"weight": -1}, "weight"),
        ({"Ns": [0, 1]}, "Ns and Os"),
        ({"Ns": [], "Os": []}, "Ns and Os"),
        ({"Ns": [0], "Os": [0]}, "Ns and Os"),
        ({"Ns": [1, 2, 4]}, "Ns"),
        ({"Ns": [0, 4, 4]}, "Ns"),
        ({"Ns": [0, 4, 1]}, "Ns"),
        ({"Ns": [0, 1, float("nan")]}, "Ns"),
        ({"Ns": [0, 1, float("inf")]}, "Ns"),
        ({"Os": [0, float("nan"), 1]}, "Os"),
        ({"Os": [0, 1, float("inf")]}, "Os"),
    ],
    ids=repr,
)
def test_fields_that_do_not_fit_each_other_are_named_with_their_job(
    changes: Json, says: str
) -> None:
    with pytest.raises(ProblemError, match=rf"^jobs\[1\].*{says}"):
        parse(with_job(**changes))


@pytest.mark.parametrize(
    "posed",
    [
        document(Tfwd=10**400),
        with_job(Tcup=10**400),
        with_job(weight=-(10**400)),
        with_job(Ns=[0, 1, 10**400]),
        with_job(Os=[0, 1, 10**400]),
    ],
    ids=["Tfwd", "Tcup", "weight", "Ns", "Os"],
)
def test_a_number_beyond_floats_is_refused(posed: Json) -> None:
    with pytest.raises(ProblemError):
        parse(json.loads(json.dumps(posed)))


@pytest.mark.parametrize(
    "posed",
    [document(nodes=3), document(tfwd=3), document(**{"": 3})],
    ids=lambda p: [*p][-1],
)
def test_an_unknown_field_is_named(posed: Json) -> None:
    with pytest.raises(
        ProblemError,
        match=rf"^problem: unknown field {[*posed][-1]!r}; known are .*Tfwd",
    ):
        parse(posed)


def test_an_unknown_field_of_a_job_is_named() -> None:
    with pytest.raises(
        ProblemError, match=r"^jobs\[1\]: unknown field 'jmin'; known are .*Jmin"
    ):
        parse(with_job(jmin=1))


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(ProblemError, match="names must be unique"):
        parse(with_job(name="a"))


@pytest.mark.parametrize("value", ["free", None, 3, [], {}], ids=repr)
def test_an_unknown_cost_model_is_named(value: object) -> None:
    with pytest.raises(ProblemError, match=r"^cost_model must be"):
        parse(document(cost_model=value))


def test_a_unit_that_a_job_holds_twice_is_refused() -> None:
    with pytest.raises(
        ProblemError, match=r"^jobs\[1\]\.current: a unit appears twice"
    ):
        parse(with_job(current=[3, 1, 3]))


def test_a_unit_held_by_two_jobs_is_named_with_both() -> None:
    posed = document()
    posed["jobs"][0]["current"] = [1, 7]
    with pytest.raises(
        ProblemError, match=r"^jobs\[1\]\.current: unit 7 is held by 'a' too"
    ):
        parse(posed)


def test_a_jmax_that_means_no_limit_costs_no_memory() -> None:
    problem = parse(with_job(Jmax=10**6)).problem
    solve(parse(document()).problem, backend="exact")  # imports and compiles
    tracemalloc.start()
    try:
        solve(problem, backend="exact")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


WRECKS: list[object] = [
    *NOT_WHOLE[:-1],
    -7,
    0,
    3.7,
    "",
    [],
    [[]],
    {"a": 1},
    [0, 1],
    [-1.0],
    10**9,
]


@examples(400)
@given(st.data())
def test_whatever_stands_in_a_field_it_is_read_or_refused(data: st.DataObject) -> None:
    posed = document(cost_model="stall")
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(
            st.sampled_from(
                [
                    posed,
                    posed,
                    *[j for j in posed.get("jobs") or [] if isinstance(j, dict)],
                ]
            )
        )
        key = data.draw(st.sampled_from(sorted(target)))
        if data.draw(st.booleans()):
            target[key] = copy.deepcopy(data.draw(st.sampled_from(WRECKS)))
        elif len(target) > 1:
            del target[key]
        if not isinstance(posed.get("jobs"), list):
            break
    with contextlib.suppress(ProblemError):
        assert isinstance(parse(posed), Document)


# --- answering ----------------------------------------------------------------------------------------------------


@st.composite
def documents(draw: st.DrawFn) -> Json:
    units = draw(st.integers(0, 14))
    order = draw(st.permutations(range(units)))
    jobs = []
    for index in range(draw(st.integers(0, 5))):
        ns, os = draw(curves(14))
        jmin = draw(st.integers(0, 5))
        taken = draw(st.integers(0, len(order)) | st.just(0))
        held, order = order[:taken], order[taken:]
        seconds = st.sampled_from([0, 5, 18.5, 1000])
        entry: Json = {
            "name": f"job {index}",
            "Jmin": jmin,
            "Jmax": max(1, jmin + draw(st.integers(0, 8))),
        }
        entry |= {"Ns": ns, "Os": os, "Tcup": draw(seconds), "Tcdw": draw(seconds)}
        if held or draw(st.booleans()):
            entry["current"] = list(held)
        if draw(st.booleans()):
            entry["weight"] = draw(st.sampled_from([0, 1, 2.5]))
        jobs.append(entry)
    posed: Json = {
        "units": units,
        "Tfwd": draw(st.sampled_from([1, 30.5, 120])),
        "jobs": jobs,
    }
    if draw(st.booleans()):
        posed["cost_model"] = draw(st.sampled_from(["bftrainer", "stall"]))
    return posed


@examples(300)
@given(documents())
def test_an_answer_names_the_units_of_each_job_without_migration(posed: Json) -> None:
    parsed = parse(json.loads(json.dumps(posed)))
    solution = solve(parsed.problem, backend="exact")
    written = json.loads(json.dumps(answer(parsed, solution), allow_nan=False))

    assert (
        list(written["counts"])
        == list(written["allocation"])
        == [entry["name"] for entry in posed["jobs"]]
    )
    assert tuple(written["counts"].values()) == solution.counts
    for entry in posed["jobs"]:
        before, after = (
            set(entry.get("current", [])),
            written["allocation"][entry["name"]],
        )
        assert len(after) == written["counts"][entry["name"]]
        assert after == sorted(after)
        assert before <= set(after) or before >= set(after)
    given_units = [unit for units in written["allocation"].values() for unit in units]
    assert len(set(given_units)) == len(given_units)
    assert set(given_units) <= set(range(posed["units"]))
    assert written["objective"] == pytest.approx(
        worth_of(parsed.problem, solution.counts), rel=1e-9, abs=1e-6
    )


def test_an_answer_has_the_documented_fields() -> None:
    parsed = parse(document())
    written = answer(parsed, solve(parsed.problem, backend="exact"))
    assert written.pop("seconds") >= 0
    # Both get all they can use: a 30/s for 120 s, b the same less 20 s at the 70/3 a second before, twice.
    optimum = 120 * 30 + 2 * (120 * 30 - 20 * 70 / 3)
    assert written.pop("objective") == pytest.approx(optimum)
    assert written.pop("bound") == pytest.approx(optimum)
    assert written == {
        "status": "optimal",
        "counts": {"a": 4, "b": 4},
        "allocation": {"a": [1, 2, 3, 4], "b": [0, 5, 6, 7]},
        "backend": "exact",
        "formulation": "modes",
    }


def test_the_units_given_back_are_the_newest() -> None:
    posed = with_job(Jmax=2, current=[5, 0, 7])
    parsed = parse(posed)
    written = answer(parsed, solve(parsed.problem, backend="exact"))
    assert written["allocation"]["b"] == [0, 5]


def test_the_note_is_written_where_there_is_one() -> None:
    parsed = parse(document())
    solution = solve(parsed.problem, backend="exact")
    assert "note" not in answer(parsed, solution)
    assert (
        answer(parsed, replace(solution, status="fallback", note="CBC died"))["note"]
        == "CBC died"
    )


# --- settling -----------------------------------------------------------------------------------------------------


@st.composite
def settlements(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int]]:
    """Units held, future counts, and free units, which suffice."""
    units = draw(st.permutations(range(draw(st.integers(0, 16)))))
    current, counts = [], []
    left = len(units)
    for _ in range(draw(st.integers(0, 5))):
        taken = draw(st.integers(0, len(units)))
        current.append(units[:taken])
        units = units[taken:]
        counts.append(draw(st.integers(0, left)))
        left -= counts[-1]
    return current, counts, units


@examples(300)
@given(settlements())
def test_settling_keeps_the_oldest_and_takes_the_least_of_what_is_free(
    posed: tuple[list[list[int]], list[int], list[int]],
) -> None:
    current, counts, free = posed
    before = copy.deepcopy(posed)
    settled = settle(current, counts, iter(free))
    assert posed == before

    pool = sorted(
        free
        + [unit for units, n in zip(current, counts, strict=True) for unit in units[n:]]
    )
    for held, n, new in zip(current, counts, settled, strict=True):
        grown = max(n - len(held), 0)
        assert new == held[:n] + pool[:grown]
        pool = pool[grown:]


def test_what_one_job_releases_another_may_take_in_any_order() -> None:
    assert settle([[3], [9, 1, 2]], [3, 1], []) == [[3, 1, 2], [9]]
    assert settle([[9, 1, 2], [3]], [1, 3], []) == [[9], [3, 1, 2]]


def test_more_units_than_there_are_cannot_be_settled() -> None:
    with pytest.raises(IndexError):
        settle([[0], [1]], [1, 3], [2])


@pytest.mark.parametrize("name", ["night 7", 12, {"run": "a", "evt": 3}])
def test_the_id_of_a_problem_is_repeated_in_its_answer(name: object) -> None:
    posed = parse(document(id=name))
    assert answer(posed, solve(posed.problem, backend="exact"))["id"] == name
    assert "id" not in answer(parse(document()), solve(posed.problem, backend="exact"))
