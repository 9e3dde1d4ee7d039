"""Backends of other packages: installed, used from the command line, and reported when they are broken."""

import ast
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packages import ROOT, installed, plant, planted

from bft.milp.backends import registry
from bft.milp.backends.registry import describe, solver

OWN = ROOT / "examples" / "own-solver"
JOB = {"Jmin": 1, "Jmax": 4, "Ns": [0, 1, 4], "Os": [0, 10, 30], "Tcup": 20, "Tcdw": 10}
PROBLEM = {"units": 5, "Tfwd": 120, "jobs": [{"name": name, **JOB} for name in "ab"]}


@pytest.mark.slow
def test_the_documented_backend_is_installed_and_used(tmp_path: Path) -> None:
    call = installed(OWN, tmp_path)
    listed = json.loads(call("list", "backends", "--json").stdout)["dense-highs"]
    assert (listed["available"], listed["version"], listed["formulations"]) == (
        True,
        "1.0",
        ["modes", "node"],
    )
    (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))
    own = ["solve", "problem.json", "--backend", "dense-highs"]
    answered = call(*own, "--option", "formulation=node", "--option", "ties=solver")
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    assert (answer["status"], answer["backend"], answer["objective"]) == (
        "optimal",
        "dense-highs",
        4800.0,
    )
    assert "note" not in answer
    refused = call(*own, "--option", "formulation=items")
    assert refused.returncode == 2
    assert (
        "cannot solve formulation 'items': choose one of cbc, highs, gurobi"
        in refused.stderr
    )
    # A whole replay; and what it does not declare is said.
    hours, nodes = range(4), range(4)
    rows = [
        f"2024-01-01T0{h}:{n}0:00Z,n{n},{str((h + n) % 2 == 0).lower()}"
        for h in hours
        for n in nodes
    ]
    (tmp_path / "idle.csv").write_text("\n".join(["time,node,idle", *rows]))
    options = ("-ndmap", "idle.csv", "-Tfwd", "600", "--no-u", "--json", "--out", "out")
    replayed = call("--backend", "Dense-HiGHS", "--option", "threads=2", *options)
    assert replayed.returncode == 0, replayed.stderr
    summary = json.loads(replayed.stdout)
    assert summary["options"]["backend"] == "dense-highs"
    assert summary["metrics"]["verified"] > 0
    assert summary["metrics"]["verify_mismatches"] == 0
    assert (
        "--option threads has no effect with --backend dense-highs" in replayed.stderr
    )


def test_the_documented_example_is_short() -> None:
    source = ast.parse((OWN / "dense_highs.py").read_text("utf-8"))
    assert sum(isinstance(node, ast.stmt) for node in ast.walk(source)) <= 30


BROKEN = {
    "raise RuntimeError('no library')": r"cannot be loaded: RuntimeError: no library",
    "": r"cannot be loaded: AttributeError",
    "own = 3": r"is no bft.milp.Backend: it has no name, formulations, features, available, solve",
    "class own:\n def __init__(self): raise SystemExit(4)": r"cannot be loaded: SystemExit: 4",
    "class own:\n name, formulations, features = 'own', ('modes',), ()\n def available(self): ...": r"has no solve$",
}
WHOLE = """
class own:
    name, formulations, features = {stated}
    def available(self): {available}
    def solve(self, model, limits): return {answer}
"""
STATED = {
    "'other', ('modes',), ()": r"calls itself 'other': give both the same name",
    "'own', ('modes', 'lambda'), ()": r"invalid formulations lambda: expected a collection of modes, node, items",
    "'own', 'modes', ()": r"invalid formulations modes: expected a collection",
    "'own', ('modes',), ('sos',)": r"invalid features sos: expected a collection of start, threads",
}


def registered(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """A package with an entry point `own`: the name `own` in a module with this body."""
    site = plant(
        {"their_solver.py": body},
        {registry.GROUP: {"own": "their_solver:own"}},
        folder / "site",
    )
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "their_solver", raising=False)
    solver.cache_clear()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        *BROKEN.items(),
        *(
            (WHOLE.format(stated=k, available="...", answer="..."), v)
            for k, v in STATED.items()
        ),
    ],
)
def test_a_broken_package_is_named_and_hides_no_other(
    body: str,
    message: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[..., str],
) -> None:
    registered(monkeypatch, here, body)
    listing = told("list backends")
    for line in (
        "own +not available",
        rf"own .*: backend 'own' \(their_solver:own\).*{message}",
        "exact +available",
    ):
        assert re.search(f"^{line}", listing, re.MULTILINE)
    Path("problem.json").write_text(json.dumps(PROBLEM))
    for command in ("solve problem.json", "--out out"):
        said = told(f"{command} --backend own", code=2)
        assert re.search(message, said, re.MULTILINE)
        # And the list of others is whole.
        other = f"{command} --backend exact --option formulation=items"
        told(other, "choose one of cbc, highs, gurobi", code=2)
    assert not Path("out").exists()


def test_a_package_whose_available_raises_is_not_available(
    here: Path, monkeypatch: pytest.MonkeyPatch, told: Callable[..., str]
) -> None:
    raises = {"available": "raise OSError('no licence server')", "answer": "..."}
    body = WHOLE.format(stated="'own', ('modes',), ()", **raises)
    registered(monkeypatch, here, body)
    assert describe("own").how_to_get == "OSError: no licence server"
    told("--backend own --out out", "no licence server", code=2)


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("None", "TypeError: solve returned NoneType, expected a LinearAnswer"),
        (
            "LinearAnswer('Numerical trouble', None, 0.0, 0.0)",
            "answered 'Numerical trouble'",
        ),
        ("1 / 0", "raised: ZeroDivisionError"),
        ("os.abort()", r"\(signal 6\)"),
    ],
)
def test_what_another_packages_solver_does_costs_one_decision(
    answer: str, note: str, tmp_path: Path
) -> None:
    body = WHOLE.format(
        stated="'own', ('modes',), ()",
        available="return Availability('1')",
        answer=answer,
    )
    imports = "import os\nfrom bft.milp import Availability, LinearAnswer\n"
    call = planted(
        {"their_solver.py": imports + body},
        {registry.GROUP: {"own": "their_solver:own"}},
        tmp_path,
    )
    (tmp_path / "problem.json").write_text(json.dumps(PROBLEM))
    answered = call("solve", "problem.json", "--backend", "own")
    assert answered.returncode == 3, answered.stderr
    got = json.loads(answered.stdout)
    assert (got["status"], got["objective"]) == ("fallback", 4800.0)
    assert re.search(note, got["note"])
