"""Problems and answers as JSON documents, and which unit is which."""

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


def test_a_document_becomes_a_problem_with_defaults() -> None:
    """Whole numbers may be written as floats."""
    posed = with_job(Jmin=1.0) | {"units": 8.0, "cost_model": "stall"}
    parsed = parse(json.loads(json.dumps(posed)))
    problem = parsed.problem
    assert (problem.units, problem.tfwd, problem.cost_model) == (8, 120.0, "stall")
    assert (parsed.current, problem.current) == (((), (5, 0, 7)), (0, 3))
    a, b = problem.jobs
    found = (b.name, b.jmin, b.jmax, b.tcup, b.tcdw, b.weight)
    assert found == ("b", 1, 4, 20.0, 10.0, 2.0)
    assert (b.ns.tolist(), b.os.tolist()) == ([0, 1, 4], [0, 10, 30])
    assert type(problem.units) is type(b.jmin) is int
    assert (a.weight, parse(document()).problem.cost_model) == (1.0, "bftrainer")
    empty = parse({"units": 0, "Tfwd": 1, "jobs": []})
    assert (*empty.problem.jobs, *empty.current) == ()


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


NEVER = "this field is not there"
NOT_OBJECTS = [None, [], "a", 3]
# A field of the problem, values that it cannot have, and what is said of them.
OF_PROBLEM: list[tuple[str, list[object], str]] = [
    ("units", [*NOT_WHOLE, NEVER], "^units: (expected a whole number|.*missing)"),
    ("Tfwd", [*NOT_A_NUMBER, 0, -1.0, 10**400, NEVER], "Tfwd"),
    ("jobs", [None, {}, "a", 3, NEVER], "^jobs: (expected a list|.*missing|.*nothing)"),
    (
        "jobs",
        [[{}, each] for each in NOT_OBJECTS],
        r"^jobs\[[01]\](: expected a job object|.)",
    ),
    ("cost_model", ["free", None, 3, [], {}], "^cost_model must be"),
    ("nodes", [3], "^problem: unknown field 'nodes'; known are .*Tfwd"),
    ("tfwd", [3], "^problem: unknown field 'tfwd'; known are .*Tfwd"),
    ("", [3], "^problem: unknown field ''; known are .*Tfwd"),
]
# The same of its second job.
NO_UNITS = [None, 3, "0", {}, [0.0], ["0"], [True], [None], [[0]]]
OF_JOB: list[tuple[str, list[object], str]] = [
    ("name", [None, "", 3, ["a"], True, NEVER], r"^jobs\[1\]\.name: "),
    ("name", ["a"], "names must be unique"),
    *((of, [*NOT_WHOLE, NEVER], rf"^jobs\[1\]\.{of}: ") for of in ("Jmin", "Jmax")),
    *((of, [*NOT_A_NUMBER, NEVER], rf"^jobs\[1\]\.{of}: ") for of in ("Tcup", "Tcdw")),
    ("weight", NOT_A_NUMBER, r"^jobs\[1\]\.weight: "),
    *((of, [*NOT_NUMBERS, NEVER], rf"^jobs\[1\]\.{of}: ") for of in ("Ns", "Os")),
    ("current", [*NO_UNITS, [-1], [8], [0, 9], [2**70]], r"^jobs\[1\]\.current: "),
    ("current", [[3, 1, 3]], r"^jobs\[1\]\.current: a unit appears twice"),
    # What does not fit other fields.
    ("Jmin", [5], r"^jobs\[1\].*Jmin"),
    ("Tcup", [-1, 10**400], r"^jobs\[1\].*Tcup"),
    ("Tcdw", [-0.1], r"^jobs\[1\].*Tcdw"),
    ("weight", [-1, -(10**400)], r"^jobs\[1\].*weight"),
    ("Ns", [[], [0], [0, 1]], r"^jobs\[1\].*Ns and Os"),
    ("Ns", [[1, 2, 4], [0, 4, 4], [0, 4, 1], [0, 1, 10**400]], r"^jobs\[1\].*Ns"),
    ("Ns", [[0, 1, float("nan")], [0, 1, float("inf")]], r"^jobs\[1\].*Ns"),
    ("Os", [[0, float("nan"), 1], [0, 1, float("inf")], [0, 1, 10**400]], r"^jobs\[1\].*Os"),
    ("jmin", [1], r"^jobs\[1\]: unknown field 'jmin'; known are .*Jmin"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of_job", "field", "value", "says"),
    [
        (of_job, field, value, says)
        for of_job, rows in ((False, OF_PROBLEM), (True, OF_JOB))
        for field, values, says in rows
        for value in values
    ],
    ids=repr,
)
def test_an_invalid_field_is_named(
    of_job: bool, field: str, value: object, says: str
) -> None:
    posed = document()
    target = posed["jobs"][1] if of_job else posed
    target[field] = value
    if value == NEVER:
        del target[field]
    with pytest.raises(ProblemError, match=says):
        parse(posed)


@pytest.mark.parametrize("value", [None, [], [{}], "{}", 3], ids=repr)
def test_a_problem_that_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(ProblemError, match="a problem is a JSON object"):
        parse(value)


def test_a_unit_held_by_two_jobs_is_named_with_both() -> None:
    posed = document()
    posed["jobs"][0]["current"] = [1, 7]
    held_too = r"^jobs\[1\]\.current: unit 7 is held by 'a' too"
    with pytest.raises(ProblemError, match=held_too):
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
    parsed = parse(with_job(Jmax=2, current=[5, 0, 7]))
    written = answer(parsed, solve(parsed.problem, backend="exact"))
    assert written["allocation"]["b"] == [0, 5]


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


def test_more_units_than_there_are_cannot_be_settled() -> None:
    with pytest.raises(IndexError):
        settle([[0], [1]], [1, 3], [2])


@pytest.mark.parametrize("name", ["night 7", 12, {"run": "a", "evt": 3}])
def test_the_id_of_a_problem_is_repeated_in_its_answer_and_a_note_written(
    name: object,
) -> None:
    posed = parse(document(id=name))
    lost = replace(solve(posed.problem, backend="exact"), note="CBC died")
    written = answer(posed, lost)
    assert (written["id"], written["note"]) == (name, "CBC died")
