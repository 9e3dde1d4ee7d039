"""The backends: their descriptions, that all give one answer, and their errors."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from drawing import examples
from hypothesis import given
from strategies import magnitude, problems, solve_exact, worth_of

from bft.milp import (
    Backend,
    Feature,
    Job,
    Limits,
    LinearModel,
    Problem,
    SolverProcess,
    backend_names,
)
from bft.milp.backends.backend_api import Listed
from bft.milp.backends.process import SolverFailure
from bft.milp.backends.registry import EXACT, able, describe, listed
from bft.milp.backends.registry import SOLVERS as OURS
from bft.milp.backends.worker import dispatch, resident_bytes
from bft.milp.formulations import modes, node
from bft.replay.policies.solver import BACKENDS

MIB = 2**20


def params(names):
    return [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                not describe(name).available,
                reason=f"{name}: {describe(name).how_to_get}",
            ),
        )
        for name in names
    ]


each_solver = pytest.mark.parametrize("name", params(OURS))
needs_gurobi = pytest.mark.skipif(
    not describe("gurobi").available, reason="needs the extra gurobi"
)


def contested(jobs: int, units: int, seed: int = 0) -> Problem:
    """Curves of any shape on fewer units than wanted."""
    rng = np.random.default_rng(seed)
    ns = np.array([0, 3, 7, 12, 40, 64], dtype=np.float64)
    table = []
    for j in range(jobs):
        os = np.append(0, np.cumsum(rng.uniform(1, 9, 5) * np.diff(ns)))
        table.append(Job(f"j{j}", int(rng.integers(1, 9)), 64, ns, os, 18.0, 12.0))
    return Problem(units, 120.0, tuple(table), tuple([units // jobs] * jobs))


def knapsack(items: int, seed: int = 0) -> LinearModel:
    """Market split: hard for branch and bound at any size, feasible by taking nothing."""
    rng = np.random.default_rng(seed)
    model = LinearModel()
    weights = rng.integers(1, 100, (5, items))
    for item in range(items):
        model.variable(float(weights[:, item].sum()), 1.0)
    for row in weights:
        model.row(
            list(range(items)), row.astype(float).tolist(), "<", float(row.sum() // 2)
        )
    return model


# --- what they say of themselves ----------------------------------------------------------------------------------


def test_capabilities_are_declared():
    ours = ["cbc", "highs", "gurobi", "exact"]
    assert list(backend_names()) == ours
    assert (
        "auto",
        *ours,
    ) == BACKENDS  # written down twice, so that the command line starts without this
    assert [listed(name).name for name in ours] == ours
    assert all(isinstance(backend, Backend) for backend in OURS.values())
    assert isinstance(EXACT, Listed)
    assert not isinstance(EXACT, Backend)
    assert able("modes") == ours
    assert able("items") == ours[:-1]


def test_looking_at_backends_loads_no_solver():
    solvers = "{'mip', 'gurobipy', 'numba', 'scipy.optimize'}"
    code = f"import sys, bft.milp.backends.registry; print(sorted({solvers} & set(sys.modules)))"
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize("name", backend_names())
def test_a_backend_describes_itself(name):
    state = describe(name)
    assert state.licence
    assert state.available == bool(state.version) or name == "gurobi"
    assert state.available or state.how_to_get


@pytest.mark.parametrize(
    ("name", "extra"),
    [("gurobi", "gurobipy"), ("cbc", "mipster")],
)
def test_a_missing_package_is_no_crash_but_advice(monkeypatch, name, extra):
    monkeypatch.delenv("PMIP_CBC_LIBRARY", raising=False)
    monkeypatch.setattr("bft.milp.backends.registry.find_spec", lambda package: None)
    state = describe(name)
    assert (state.version, state.available) == ("", False)
    assert f"pip install {extra}" in state.how_to_get


@needs_gurobi
def test_gurobi_without_a_licence_is_no_crash_but_advice(monkeypatch, tmp_path):
    # A licence that cannot be read, as after a host has changed.
    licence = tmp_path / "gurobi.lic"
    licence.write_text("TYPE=NODE\nHOSTID=00000000\nKEY=ABCDEFGH\n")
    code = "from bft.milp.backends.registry import describe; print(describe('gurobi'))"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"GRB_LICENSE_FILE": str(licence)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "available=False" in told.stdout
    assert "let GRB_LICENSE_FILE name it" in told.stdout


@needs_gurobi
@pytest.mark.parametrize("limited", [True, False])
def test_gurobi_reports_its_limits(monkeypatch, limited):
    monkeypatch.setattr(
        importlib.import_module("bft.milp.backends.gurobi"),
        "size_limited",
        lambda: limited,
    )
    state = describe("gurobi")
    assert state.available
    assert ("2000 variables" in state.limits) == limited


# --- all give one answer ------------------------------------------------------------------------------------------


@each_solver
@examples(100)
@given(problem=problems(max_jobs=5, max_units=30))
def test_a_solver_and_the_exact_programme_reach_the_same_value(process, name, problem):
    built = modes.build(problem)
    answer = process.solve(built.model, name, Limits(60.0)).above(built.constant)
    assert answer.status == "optimal"
    noise = 1e-7 * (1 + magnitude(problem))
    best = worth_of(problem, solve_exact(problem))
    assert best is not None
    assert worth_of(problem, built.decode(answer.x)) == pytest.approx(
        best, rel=1e-6, abs=noise
    )
    assert answer.objective == pytest.approx(best, rel=1e-6, abs=noise)
    assert answer.bound == pytest.approx(best, rel=1e-6, abs=noise)


@each_solver
def test_the_same_question_gets_the_same_answer(process, name):
    model = modes.build(contested(12, 100)).model
    first, again = (process.solve(model, name, Limits(60.0)) for _ in range(2))
    assert first.x.tolist() == again.x.tolist()


@each_solver
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
def test_the_size_of_the_objective_does_not_matter(process, name, scale):
    problem = contested(6, 50)
    model = modes.build(problem).model
    model.objective = [scale * cost for cost in model.objective]
    answer = process.solve(model, name, Limits(60.0))
    best = worth_of(problem, solve_exact(problem))
    assert answer.objective == pytest.approx(scale * best, rel=1e-6)
    assert answer.bound == pytest.approx(scale * best, rel=1e-6)


# --- limits, starts, threads --------------------------------------------------------------------------------------


@each_solver
def test_at_the_time_limit_the_bound_holds_for_the_incumbent(process, name):
    model = knapsack(45)
    answer = process.solve(model, name, Limits(0.5))
    assert answer.status in ("feasible", "optimal")
    total = float(np.dot(model.objective, answer.x))
    assert total == pytest.approx(answer.objective, rel=1e-6)
    assert answer.bound >= answer.objective * (1 - 1e-9)
    assert answer.bound <= sum(model.objective)


@each_solver
def test_a_gap_allows_to_stop_early(process, name):
    answer = process.solve(knapsack(45), name, Limits(60.0, gap=0.2))
    assert answer.status == "optimal"
    assert answer.objective <= answer.bound * (1 + 1e-9)
    assert answer.bound - answer.objective <= 0.2 * answer.bound + 1e-6


@each_solver
def test_a_start_is_taken_and_not_believed(process, name):
    built = modes.build(contested(8, 60))
    plain = process.solve(built.model, name, Limits(60.0))
    built.model.start = [
        (i, float(round(v))) for i, v in enumerate(plain.x) if round(v)
    ]
    assert process.solve(built.model, name, Limits(60.0)).objective == pytest.approx(
        plain.objective
    )
    # One that breaks every row.
    built.model.start = [(i, upper) for i, upper in enumerate(built.model.upper)]
    assert process.solve(built.model, name, Limits(60.0)).objective == pytest.approx(
        plain.objective
    )


@pytest.mark.parametrize(
    "name", params(name for name in OURS if Feature.START in OURS[name].features)
)
def test_the_start_is_the_answer_when_time_is_short(process, name):
    # A planted solution of a market split: nobody finds it in time.
    rng = np.random.default_rng(1)
    weights, planted = rng.integers(1, 1000, (6, 60)), rng.integers(0, 2, 60)
    model = LinearModel()
    for _ in range(60):
        model.variable(float(rng.integers(1, 9)), 1.0)
    for row in weights:
        model.row(
            list(range(60)), row.astype(float).tolist(), "=", float(row @ planted)
        )
    assert process.solve(model, name, Limits(0.3)).status == "nothing"
    model.start = [(int(i), 1.0) for i in np.flatnonzero(planted)]
    answer = process.solve(model, name, Limits(0.3))
    assert answer.status == "feasible"
    assert answer.objective >= float(np.dot(model.objective, planted)) - 1e-6


@each_solver
def test_threads_may_change_from_one_question_to_the_next(process, name):
    problem = contested(8, 60)
    model = modes.build(problem).model
    values = [
        process.solve(model, name, Limits(60.0, threads=n)).objective
        for n in (1, 2, 1, 2)
    ]
    assert values == pytest.approx([worth_of(problem, solve_exact(problem))] * 4)


# --- what is amiss ------------------------------------------------------------------------------------------------


@each_solver
@pytest.mark.parametrize("whole", [True, False])
def test_what_has_no_solution_is_called_infeasible(process, name, whole):
    model = LinearModel()
    model.variable(1.0, 3.0, integer=whole)
    model.row([0], [1.0], "=", 5.0)
    assert process.solve(model, name, Limits(60.0)).status == "infeasible"


@each_solver
def test_nothing_to_decide_is_optimal(process, name):
    answer = process.solve(LinearModel(), name, Limits(60.0))
    assert (answer.status, answer.x.tolist(), answer.objective) == ("optimal", [], 0.0)


@pytest.mark.parametrize("name", params(["cbc"]))
def test_a_row_that_names_a_variable_twice_is_refused(process, name):
    # python-mip would keep the last coefficient only.
    model = LinearModel()
    model.variable(1.0, 3.0)
    model.row([0, 0], [1.0, 1.0], "<", 4.0)
    with pytest.raises(SolverFailure, match="names a variable twice"):
        process.solve(model, name, Limits(60.0))


@needs_gurobi
@pytest.mark.skipif(
    not describe("gurobi").limits, reason="this licence has no size limit"
)
def test_gurobi_reports_the_size_limit_and_what_to_do(process):
    built = node.build(contested(20, 101))
    with pytest.raises(SolverFailure) as told:
        process.solve(built.model, "gurobi", Limits(60.0))
    sizes = f"{len(built.model.objective)} variables and {len(built.model.rows)} constraints"
    assert sizes in str(told.value)
    assert "2000 of each" in str(told.value)
    assert "choose the backend exact, cbc or highs" in str(told.value)
    # and goes on
    assert (
        process.solve(
            modes.build(contested(3, 20)).model, "gurobi", Limits(60.0)
        ).status
        == "optimal"
    )


@each_solver
def test_solvers_are_quiet(name):
    code = f"""if True:
        from bft.milp import SolverProcess
        from bft.milp.formulations.linear import Limits, LinearModel
        model = LinearModel()
        model.variable(1.0, 3.0)
        model.row([0], [2.0], "<", 5.0)
        process = SolverProcess()
        print(process.solve(model, {name!r}, Limits(5.0)).objective)
        process.close()
    """
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (told.stdout.strip(), told.stderr) == ("2.0", "")


@pytest.mark.slow
@each_solver
@pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc"
)
def test_the_parent_stays_flat_while_workers_come_and_go(name):
    models = [modes.build(contested(3 + n % 5, 30 + n, n)).model for n in range(20)]
    process = SolverProcess()
    process.solve(models[0], name, Limits(60.0))
    process.close()
    memory, open_files = resident_bytes(), len(list(Path("/proc/self/fd").iterdir()))
    for n in range(300):
        process.recycle_bytes = (
            -1 if n % 60 == 59 else 64 * MIB
        )  # every sixtieth is too large, whatever its size
        process.solve(models[n % len(models)], name, Limits(60.0))
    assert process.started >= 1 + 300 // 60
    process.close()
    assert resident_bytes() - memory < 20 * MIB
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_files


@pytest.mark.parametrize("name", params(["cbc", "highs"]))
def test_a_model_that_highs_1_14_0_answers_wrongly(name: str) -> None:
    # max -2x - 3z with x + z >= 4.5, z whole: -9 at x = 4.5, z = 0; HiGHS 1.14.0 says -15, and "optimal".
    model = LinearModel([-2.0, -3.0], [10.0, 10.0], [False, True])
    model.row([0, 1], [-1.0, -1.0], "<", -4.5)
    answer = dispatch(name, model, Limits())
    assert (answer.status, answer.objective) == ("optimal", pytest.approx(-9.0))
