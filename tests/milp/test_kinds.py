"""Several kinds of units, against full enumeration, in every backend, and with one kind against the usual problem."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawing import examples
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import allowed, curves, interpolated, problems, sizes

from bft.milp import (
    Job,
    Limits,
    LinearAnswer,
    LinearModel,
    Problem,
    ProblemError,
    SolverProcess,
    answer,
    keep,
    parse,
    solve,
)
from bft.milp.backends.process import SolverFailure
from bft.milp.backends.registry import describe
from bft.milp.exact.kinds import kinds_optimum
from bft.milp.tables import complaint, tables_of

BACKENDS = [name for name in ("cbc", "highs", "gurobi") if describe(name).available]
NAMES = ("a", "b", "c")


def on_kinds(problem: Problem, j: int) -> dict[str, Job]:
    """The properties of a job on each kind that it can run on."""
    assert problem.kinds is not None
    row = problem.posed.terms.on_kinds[int(problem.posed.rows[j])]
    return {k: job for k, job in zip(problem.kinds.names, row, strict=True) if job}


def stated(problem: Problem) -> dict[str, Any]:
    """What `Problem.of_kinds` was given."""
    assert problem.kinds is not None
    held = zip(problem.kinds.held, problem.current, strict=True)
    return {
        "units": problem.kinds.units,
        "tfwd": problem.tfwd,
        "jobs": [on_kinds(problem, j) for j in range(len(problem.jobs))],
        "current": tuple((kind, n) if kind else None for kind, n in held),
        "cost_model": problem.cost_model,
    }


def restated(problem: Problem, **changes: Any) -> Problem:
    """The problem with other arguments of `Problem.of_kinds`."""
    return Problem.of_kinds(**{**stated(problem), **changes})


@st.composite
def kinds_problems(
    draw: st.DrawFn, *, whole: bool = False, max_jobs: int = 3
) -> Problem:
    """Two or three kinds, jobs that hold anything; `whole`: small whole numbers, so that ties abound.

    Often some jobs are alike: the curves, bounds and costs of another one.
    """
    names = NAMES[: draw(st.integers(2, 3))]
    units = {name: draw(st.integers(0, 4)) for name in names}
    left, jobs, current = dict(units), [], []
    for index in range(draw(st.integers(1, max_jobs))):
        jmin = draw(st.integers(0, 2))
        jmax = max(1, jmin + draw(st.integers(0, 4)))
        of, weight = draw(sizes(jmin, jmax)), draw(st.sampled_from([0.0, 1.0, 2.0]))
        times = st.sampled_from([0.0, 1.0, 16.0, 64.0, 2.0**40])
        job = {}
        for name in draw(st.lists(st.sampled_from(names), min_size=1, unique=True)):
            if whole:
                ns = [0.0, 1.0, 3.0, 5.0]
                os = [0.0, *(float(draw(st.integers(-1, 4))) * 2 for _ in ns[1:])]
            else:
                ns, os = draw(curves(4))
                os[0] = 0.0
            job[name] = Job(
                f"j{index}",
                jmin,
                jmax,
                np.array(ns),
                np.array(os),
                draw(times),
                draw(times),
                weight,
                of,
            )
        if jobs and draw(st.booleans()):
            job = {
                name: replace(of, name=f"j{index}")
                for name, of in draw(st.sampled_from(jobs)).items()
            }
        kind = draw(st.sampled_from(list(job)))
        held = draw(st.just(0) | st.integers(0, left[kind]))
        left[kind] -= held
        jobs.append(job)
        current.append((kind, held))
    return Problem.of_kinds(
        units,
        64.0,
        tuple(jobs),
        tuple(current),
        draw(st.sampled_from(["bftrainer", "stall"])),
    )


def worth(problem: Problem, j: int, kind: str | None, n: int) -> float | None:
    """The value by the letter of docs/model.md; None where it is not allowed."""
    jobs, now = stated(problem)["jobs"][j], stated(problem)["current"][j]
    before = jobs[now[0]] if now else None
    held = now[1] if now else 0
    if kind is None:
        job = before or next(iter(jobs.values()))
        pause = job.tcdw if held else 0.0
    else:
        job = jobs[kind]
        if not allowed(job, n):
            return None
        stays = now is not None and now[0] == kind
        pause = (
            0.0 if stays and n == held else job.tcdw if stays and n < held else job.tcup
        )
    curve = interpolated(job.ns.tolist(), job.os.tolist(), n)
    if problem.cost_model == "stall":
        return float(job.weight * max(problem.tfwd - pause, 0.0) * curve)
    rate = 0.0
    if before is not None and (allowed(before, held) or held > before.jmax):
        rate = interpolated(before.ns.tolist(), before.os.tolist(), held)
    return float(job.weight * (problem.tfwd * curve - pause * rate))


Allocation = tuple[tuple[str | None, int], ...]


def allocations(problem: Problem) -> Iterator[tuple[Allocation, float]]:
    """All feasible allocations with their values."""
    units = stated(problem)["units"]
    kinds = list(units)
    choices = []
    for j, job in enumerate(stated(problem)["jobs"]):
        mine: list[tuple[str | None, int]] = [(None, 0)]
        mine += [
            (kind, n)
            for kind in kinds
            if kind in job
            for n in range(1, units[kind] + 1)
        ]
        choices.append(
            [(c, v) for c in mine if (v := worth(problem, j, *c)) is not None]
        )
    for choice in itertools.product(*choices):
        used = {kind: sum(n for (of, n), _ in choice if of == kind) for kind in kinds}
        if all(used[kind] <= units[kind] for kind in kinds):
            yield tuple(c for c, _ in choice), math.fsum(v for _, v in choice)


def canonical(problem: Problem) -> Allocation:
    """The best; then the fewest changed jobs; then the last job has fewest units, of the first kind, and so on."""
    kinds = [None, *stated(problem)["units"]]

    def rank(
        found: tuple[Allocation, float],
    ) -> tuple[float, int, list[tuple[int, int]]]:
        allocation, value = found
        changed = sum(
            c != (now or (None, 0))
            for c, now in zip(allocation, stated(problem)["current"], strict=True)
        )
        return (
            -value,
            changed,
            [(n, kinds.index(kind)) for kind, n in reversed(allocation)],
        )

    return min(allocations(problem), key=rank)[0]


@given(kinds_problems(whole=True))
def test_the_exact_answer_is_the_one_that_enumeration_names(
    problem: Problem,
) -> None:
    solution = solve(problem, backend="exact")
    assert tuple(zip(solution.kinds, solution.counts, strict=True)) == canonical(
        problem
    )


def worth_exactly(
    problem: Problem, job: Mapping[str, Job], choice: tuple[str | None, int]
) -> Fraction:
    """What a waiting job's choice is worth in decimals, as its table states them, and not in doubles."""
    kind, n = choice
    if kind is None:
        return Fraction(0)
    points = [
        (int(x), Fraction(str(y)))
        for x, y in zip(job[kind].ns, job[kind].os, strict=True)
    ]
    if n >= points[-1][0]:
        return points[-1][1] * Fraction(problem.tfwd)
    (x0, y0), (x1, y1) = next(
        (low, high)
        for low, high in itertools.pairwise(points)
        if low[0] <= n <= high[0]
    )
    return (y0 + (y1 - y0) * Fraction(n - x0, x1 - x0)) * Fraction(problem.tfwd)


@st.composite
def tenths(draw: st.DrawFn) -> Problem:
    """A waiting job whose objectives are tenths, so that choices are often worth the same, and rounded differently."""
    units = {kind: draw(st.integers(0, 6)) for kind in "ab"}
    job = {}
    for kind in "ab":
        ns = [0, *sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=3)))]
        os = [0.0, *(draw(st.integers(0, 6)) / 10 for _ in ns[1:])]
        job[kind] = Job("j", 1, draw(st.integers(1, 6)), ns, os, 0.0, 0.0)
    return Problem.of_kinds(
        units, draw(st.sampled_from([64.0, 120.0])), (job,), (None,)
    )


@given(tenths())
@example(
    Problem.of_kinds(
        {"a": 6, "b": 6},
        64.0,
        (
            {
                kind: Job("j", 1, 6, [0, top], [0.0, 0.6], 0.0, 0.0)
                for kind, top in (("a", 6), ("b", 5))
            },
        ),
        (None,),
    )
)
def test_choices_that_are_worth_the_same_but_for_rounding_are_taken_by_the_rule(
    problem: Problem,
) -> None:
    job, units = stated(problem)["jobs"][0], stated(problem)["units"]
    choices: list[tuple[str | None, int]] = [(None, 0)]
    choices += [
        (kind, n)
        for kind in "ab"
        for n in range(1, min(units[kind], job[kind].jmax) + 1)
    ]
    first = min(
        choices,
        key=lambda c: (
            -worth_exactly(problem, job, c),
            c[0] is not None,
            c[1],
            c[0] or "",
        ),
    )
    solution = solve(problem, backend="exact")
    assert (solution.kinds[0], solution.counts[0]) == first


@pytest.mark.parametrize("backend", ["exact", *BACKENDS])
def test_a_job_gets_no_units_that_are_worth_nothing_to_it(backend: str) -> None:
    flat = {
        kind: Job("flat", 1, 4, [0, 2, 4], [0.0, 0.3, 0.3], 0.0, 0.0, 3.0)
        for kind in "ab"
    }
    steep = {
        kind: Job("steep", 1, 4, [0, 3, 4], [0.0, 0.7, 0.1 * 7], 0.0, 0.0, 0.1)
        for kind in "ab"
    }
    solution = solve(
        Problem.of_kinds({"a": 4, "b": 4}, 120.0, (flat, steep), (None, None)),
        backend=backend,
    )
    assert list(zip(solution.kinds, solution.counts, strict=True)) == [
        ("b", 2),
        ("a", 3),
    ]


@given(kinds_problems())
def test_tables_and_optimum_agree_with_enumeration(problem: Problem) -> None:
    best = max(value for _, value in allocations(problem))
    found = kinds_optimum(problem)
    assert found.proven
    scale = 1e-9 * max(1.0, *(abs(value) for _, value in allocations(problem)))
    assert found.objective == pytest.approx(best, rel=1e-9, abs=scale)
    assert found.objective >= tables_of(problem).value(keep(problem)) - scale


@examples(12)
@given(problem=kinds_problems(whole=True))
def test_every_backend_gives_the_canonical_answer(
    problem: Problem, process: SolverProcess
) -> None:
    exact = solve(problem, backend="exact")
    for backend in BACKENDS:
        found = solve(problem, backend=backend, process=process)
        assert (found.counts, found.kinds, found.status) == (
            exact.counts,
            exact.kinds,
            "optimal",
        ), backend
        own = solve(
            problem, backend=backend, process=process, ties="solver", verify=True
        )
        assert own.verified
        assert own.objective == pytest.approx(exact.objective, rel=1e-6, abs=1e-6)


@given(problems(max_jobs=3, max_units=6))
def test_one_kind_is_worth_what_the_usual_problem_is(problem: Problem) -> None:
    if not problem.jobs:
        return
    jobs = tuple({"only": job} for job in problem.jobs)
    kinds = Problem.of_kinds(
        {"only": problem.units},
        problem.tfwd,
        jobs,
        tuple(("only", n) for n in problem.current),
        problem.cost_model,
    )
    usual, found = solve(problem, backend="exact"), solve(kinds, backend="exact")
    assert (found.counts, found.objective) == (usual.counts, usual.objective)
    assert found.kinds == tuple("only" if n else None for n in usual.counts)
    assert tables_of(kinds).values.tobytes() == tables_of(problem).values.tobytes()


@pytest.mark.parametrize("backend", ["exact", *BACKENDS])
@pytest.mark.parametrize("times", [(1e9, 20.0), (20.0, 1e9)])
def test_costs_above_the_window_do_not_matter_to_a_single_kind_with_a_name(
    backend: str, times: tuple[float, float]
) -> None:
    jobs = [{"a100": Job(name, 1, 4, [0, 1, 4], [0, 10, 30], *times)} for name in "ab"]
    problem = Problem.of_kinds({"a100": 4}, 60.0, jobs, [("a100", 2), None])
    solution = solve(problem, backend=backend)
    assert (solution.kinds, solution.counts) == (("a100", "a100"), (2, 2))


def test_a_choice_is_numbered_by_kind_and_units() -> None:
    job = curve_job("j", a=[0, 1], c=[0, 2])
    problem = Problem.of_kinds({"a": 2, "b": 0, "c": 3}, 60.0, (job,), (("c", 1),))
    kinds, units = problem.kinds_and_units([0, 1, 2, 3, 4, 5])
    assert kinds.tolist() == [0, 0, 0, 2, 2, 2]
    assert units.tolist() == [0, 1, 2, 1, 2, 3]
    assert problem.named((4,)) == ((2,), ("c",))
    assert keep(problem) == (3,)


def test_answers_that_exceed_a_kind_are_told_apart() -> None:
    job = curve_job("j", a=[0, 1], b=[0, 2])
    other = {kind: replace(side, name="k") for kind, side in job.items()}
    problem = Problem.of_kinds({"a": 2, "b": 1}, 60.0, (job, other), (None, None))
    assert complaint(problem, (1, 3)) == ""
    assert complaint(problem, (3, 3)) == "2 units of kind 'b' given, 1 idle"
    assert "job 'k' gets" in complaint(problem, (0, 2))
    assert "job 'k' gets" in complaint(problem, (0, -1))


def test_a_solver_that_gives_a_job_two_kinds_is_refused() -> None:
    job = curve_job("j", a=[0, 1], b=[0, 2])
    problem = Problem.of_kinds({"a": 1, "b": 1}, 60.0, (job,), (None,))

    class Both(SolverProcess):
        def solve(
            self, model: LinearModel, backend: str, limits: Limits
        ) -> LinearAnswer:
            return LinearAnswer("optimal", np.array([0.0, 1.0, 1.0]), 180.0, 180.0)

    found = solve(problem, backend="highs", process=Both())
    assert (found.status, found.kinds) == ("fallback", ("b",))
    assert "job 'j' gets units of several kinds" in found.note


def test_kinds_of_other_jobs_are_refused() -> None:
    job = curve_job("j", a=[0, 1])
    problem = Problem.of_kinds({"a": 1, "b": 1}, 60.0, (job,), (("a", 1),))
    other = curve_job("k", a=[0, 1])["a"]
    with pytest.raises(ProblemError, match=r"Problem\.of_kinds"):
        replace(problem, jobs=(other,))


def curve_job(name: str, **of: list[float]) -> dict[str, Job]:
    ns = np.arange(len(next(iter(of.values()))), dtype=float)
    return {
        kind: Job(name, 1, len(ns) - 1, ns, np.array(os), 10.0, 5.0)
        for kind, os in of.items()
    }


@given(kinds_problems(max_jobs=4), st.sampled_from([0, 3, 30]), st.booleans())
def test_at_a_limit_the_best_known_answer_has_a_bound(
    problem: Problem, rows: int, in_time: bool
) -> None:
    best = kinds_optimum(problem)
    with pytest.MonkeyPatch.context() as limited:
        limited.setattr("bft.milp.exact.kinds.MAX_ROWS", rows if in_time else 2**20)
        found = kinds_optimum(problem, None if in_time else 1e-9)
    scale = 1e-9 * max(1.0, abs(best.bound))
    kinds = list(stated(problem)["units"])
    choices = [
        units + (int(problem.firsts[kinds.index(kind)]) if kind else 0)
        for kind, units in zip(found.kinds, found.counts, strict=True)
    ]
    assert complaint(problem, choices) == ""
    assert found.objective == tables_of(problem).value(choices)
    assert (
        tables_of(problem).value(keep(problem)) - scale
        <= found.objective
        <= best.objective + scale
    )
    assert best.objective - scale <= found.bound
    if found.proven:
        assert (found.counts, found.kinds, found.limit) == (best.counts, best.kinds, "")
    else:
        assert found.limit == ("too many combinations" if in_time else "time limit")


def large_problem(
    seed: int, jobs: int, units: int, classes: int, *, concave: bool
) -> Problem:
    """Jobs of a few classes on two kinds, some of them running."""
    rng = np.random.default_rng(seed)
    left, made, current = {"fast": units, "slow": units}, [], []
    ns = np.array([0, 1, 5, 17, 40], dtype=float)
    curves = [{kind: factor * np.cumsum(rng.uniform(0.2, 1.0, 5)) for kind, factor in (("fast", 3), ("slow", 1))}
              for _ in range(classes)]  # fmt: skip
    for j in range(jobs):
        job = {}
        for kind, steps in curves[j % classes].items():
            os = np.concatenate(
                [
                    [0.0],
                    np.sort(np.diff(steps))[::-1].cumsum()
                    if concave
                    else steps[1:] ** 2,
                ]
            )
            job[kind] = Job(f"j{j}", 1, 40, ns, os, 20.0, 10.0)
        kind = "slow" if rng.random() < 0.5 else "fast"
        held = int(min(left[kind], rng.integers(1, 20))) if rng.random() < 0.4 else 0
        left[kind] -= held
        made.append(job)
        current.append((kind, held))
    return Problem.of_kinds(
        {"fast": units, "slow": units}, 120.0, tuple(made), tuple(current)
    )


@pytest.mark.parametrize("concave", [True, False])
def test_what_no_enumeration_reaches_agrees_with_a_solver(
    concave: bool, process: SolverProcess
) -> None:
    for seed, classes in ((1, 4), (2, 40)):
        problem = large_problem(seed, 40, 200, classes, concave=concave)
        exact = solve(problem, backend="exact")
        assert (exact.status, exact.backend) == ("optimal", "exact")
        own = solve(problem, backend="cbc", ties="solver", process=process)
        assert own.objective == pytest.approx(exact.objective, rel=1e-6)


class Dead(SolverProcess):
    """Always fails."""

    def solve(self, *given: Any) -> LinearAnswer:
        raise SolverFailure("it died")


class Late(SolverProcess):
    """Has no answer at its time limit."""

    def solve(self, *given: Any) -> LinearAnswer:
        return LinearAnswer("nothing", None, math.nan, math.nan)


def test_too_many_combinations_are_left_to_a_solver_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: Callable[..., str]
) -> None:
    problem = large_problem(1, 10, 30, 4, concave=False)
    best = solve(problem, backend="exact")
    other = "cbc" if describe("cbc").available else "highs"
    (tmp_path / "problem.json").write_text(json.dumps(DOCUMENT))
    monkeypatch.setattr("bft.milp.exact.kinds.MAX_ROWS", 3)
    many = "too many combinations"
    for backend in ("auto", "exact"):
        found = solve(problem, backend=backend)
        assert found.objective == pytest.approx(best.objective)
        assert (found.status, found.backend) == ("optimal", other)
        assert found.note == f"exact DP: {many}; {other}'s own optimum"
    told(f"solve {tmp_path / 'problem.json'} --backend exact", many)
    # Without an answer of the solver the best known allocation counts, as where it has none in time.
    for process, status, note in (
        (Dead(), "fallback", "it died"),
        (Late(), "feasible", f"{many}: best known"),
    ):
        found = solve(problem, process=process)
        assert found.status == status
        assert note in found.note
        assert found.objective <= best.objective <= found.bound


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"units": {}}, "at least one kind"),
        ({"units": {"a": -1, "b": 2}}, "units of kind 'a' must be >= 0"),
        ({"units": {"a": 1}}, "unknown kind 'b'"),
        ({"units": {"a": 0, "b": 2}}, "hold 1 units of kind 'a', but only 0 are idle"),
        ({"tfwd": 0.0}, "Tfwd"),
        ({"current": ()}, "0 entries for 1 jobs"),
        ({"current": (("c", 1),)}, "on which it cannot run"),
        ({"jobs": ({},)}, "at least one kind"),
        ({"cost_model": "free"}, "cost_model"),
    ],
)
def test_what_cannot_be_posed_is_refused(change: dict[str, Any], message: str) -> None:
    problem = Problem.of_kinds(
        {"a": 1, "b": 2}, 60.0, (curve_job("j", a=[0, 1], b=[0, 2]),), (("a", 1),)
    )
    with pytest.raises(ProblemError, match=message):
        restated(problem, **change)


def test_other_formulations_are_refused() -> None:
    problem = Problem.of_kinds({"a": 1}, 60.0, (curve_job("j", a=[0, 1]),), (None,))
    with pytest.raises(ProblemError, match="expected formulation 'modes'"):
        solve(problem, formulation="node")


DOCUMENT = {
    "units": {"a100": 2, "v100": 3},
    "Tfwd": 100,
    "jobs": [
        {"name": "x", "Jmin": 1, "Jmax": 2, "Ns": [0, 2], "Os": {"a100": [0, 24], "v100": [0, 10]},
         "Tcup": 10, "Tcdw": 5, "current": [2, 3]},
        {"name": "y", "Jmin": 1, "Jmax": 2, "Ns": [0, 2], "Os": {"a100": [0, 20]}, "Tcup": 10, "Tcdw": 5},
        {"name": "z", "Jmin": 1, "Jmax": 2, "Ns": [0, 2], "Os": [0, 3], "Tcup": 10, "Tcdw": 5},
    ],
}  # fmt: skip


def test_documents_have_kinds(tmp_path: Path, told: Callable[..., str]) -> None:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(DOCUMENT))
    found = json.loads(told(f"solve {file}"))
    assert found["kinds"] == {"x": "v100", "y": "a100", "z": "v100"}
    assert found["allocation"] == {"x": [2, 3], "y": [0, 1], "z": [4]}
    others = [job for job in DOCUMENT["jobs"] if job["name"] != "y"]
    document = parse({**DOCUMENT, "jobs": others})
    given = answer(document, solve(document.problem))["allocation"]
    assert given == {"x": [0, 1], "z": [2, 3]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Os": {"h100": [0, 1]}}, r"jobs\[0\].Os: unknown kind 'h100'"),
        ({"Os": {}}, r"jobs\[0\].Os: expected the curve of at least one kind"),
        (
            {"Os": {"a100": [0, 1], "v100": "x"}},
            r"jobs\[0\].Os.v100: expected a list of numbers",
        ),
        ({"current": [1, 2]}, "unit 2 is of another kind than unit 1"),
        ({"current": [5]}, r"unit 5 lies outside 0 ... 4"),
    ],
)
def test_documents_that_are_invalid_name_the_field(
    change: dict[str, Any], message: str
) -> None:
    jobs = [{**DOCUMENT["jobs"][0], **change}, *DOCUMENT["jobs"][1:]]
    with pytest.raises(ProblemError, match=message):
        parse({**DOCUMENT, "jobs": jobs})
    with pytest.raises(ProblemError, match="cannot share"):
        parse({**DOCUMENT, "xi": [{"a": "x", "b": "y", "xi_a": 1, "xi_b": 1}]})
