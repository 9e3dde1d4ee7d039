"""All recorded decisions of the published replayer, and its scaling instances, against the known optima."""

from __future__ import annotations

import gzip
import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from published import decisions

from bft.milp import SolverProcess, answer, parse, solve

# Parts of a collection, so that xdist can spread them.
CHUNKS = 8
Instance = dict[str, Any]


@cache
def recorded(path: Path) -> list[Instance]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def document(instance: Instance) -> dict[str, Any]:
    """A recorded instance as a problem document."""
    names = (
        ("Jmin", "jmin"),
        ("Jmax", "jmax"),
        ("Ns", "Ns"),
        ("Os", "Os"),
        ("Tcup", "res_up"),
        ("Tcdw", "res_dw"),
        ("current", "current"),
    )
    jobs = [
        {"name": f"j{i}"} | {ours: instance[theirs][i] for ours, theirs in names}
        for i in range(instance["nJ"])
    ]
    return {"units": instance["nN"], "Tfwd": instance["Tfwd"], "jobs": jobs}


def speed(ns: list[float], os: list[float], n: float) -> float:
    """The curve at n nodes, from the lists of the instance."""
    for (n0, o0), (n1, o1) in itertools.pairwise(zip(ns, os, strict=True)):
        if n0 <= n <= n1:
            return float(o0 + (o1 - o0) * (n - n0) / (n1 - n0))
    return float(os[-1])


def value(instance: Instance, allocation: list[list[int]]) -> float:
    """What an allocation of node positions is worth, from the numbers of the instance alone."""
    total = 0.0
    for j, nodes in enumerate(allocation):
        held, n = len(instance["current"][j]), len(nodes)
        assert n == 0 or instance["jmin"][j] <= n <= instance["jmax"][j]
        rate = (
            speed(instance["Ns"][j], instance["Os"][j], held)
            if held >= instance["jmin"][j]
            else 0.0
        )
        pause = (
            instance["res_up"][j]
            if n > held
            else instance["res_dw"][j]
            if n < held
            else 0.0
        )
        total += (
            instance["Tfwd"] * speed(instance["Ns"][j], instance["Os"][j], n)
            - pause * rate
        )
    return total


def check(instance: Instance, backend: str, process: SolverProcess | None) -> float:
    """Solve an instance, compare every part of the answer with it, and return its value."""
    posed = parse(document(instance))
    solution = solve(posed.problem, backend=backend, ties="solver", process=process)
    where = (instance.get("run"), instance.get("evt"), solution)
    assert (solution.status, solution.backend, solution.note) == (
        "optimal",
        backend,
        "",
    ), where
    allocation = list(answer(posed, solution)["allocation"].values())
    assert tuple(len(nodes) for nodes in allocation) == solution.counts, where
    given = [node for nodes in allocation for node in nodes]
    assert len(given) == len(set(given)), where
    assert set(given) <= set(range(instance["nN"])), where
    for before, after in zip(
        map(set, instance["current"]), map(set, allocation), strict=True
    ):
        assert before <= after or after <= before, where
    worth = value(instance, allocation)
    assert solution.objective == pytest.approx(worth, rel=1e-9), where
    assert solution.bound >= solution.objective, where
    return worth


@pytest.mark.reference
@pytest.mark.parametrize(
    ("backend", "chunk"),
    [
        pytest.param(
            backend,
            chunk,
            marks=[pytest.mark.slow] if backend == "cbc" and chunk else [],
        )
        for backend in ("exact", "cbc")
        for chunk in range(CHUNKS)
    ],
)
def test_recorded_decisions_reach_the_known_optimum(
    reference: Path, backend: str, chunk: int, process: SolverProcess
) -> None:
    instances = recorded(reference / "bftrainer" / "milp" / "instances.jsonl.gz")
    assert len(instances) == 3707
    for instance in instances[chunk::CHUNKS]:
        worth = check(instance, backend, process)
        assert worth == pytest.approx(instance["optimum"], rel=1e-6), (
            instance["run"],
            instance["evt"],
        )


@pytest.mark.parametrize("backend", ["exact", "cbc"])
def test_corner_cases_reach_the_known_optimum(
    backend: str, process: SolverProcess
) -> None:
    for instance in decisions("corner-cases"):
        worth = check(instance, backend, process)
        assert worth == pytest.approx(instance["optimum"], rel=1e-6), instance


@pytest.mark.reference
def test_no_published_optimum_exceeds_ours(reference: Path) -> None:
    # The published big-M forbids some allocations and allows none that ours does not.
    instances = recorded(reference / "bftrainer" / "milp" / "instances.jsonl.gz")
    known = [
        instance for instance in instances if instance["published_optimum"] is not None
    ]
    assert len(known) > 3000
    for instance in known[:: CHUNKS * 4]:
        assert check(instance, "exact", None) >= instance["published_optimum"] * (
            1 - 1e-6
        )


@pytest.mark.reference
def test_the_known_counts_are_worth_the_known_optimum(reference: Path) -> None:
    # Holds the yardstick itself: our reading of the instances gives the recorded number for the recorded answer.
    for name in ("instances", "corner-cases"):
        for instance in recorded(reference / "bftrainer" / "milp" / f"{name}.jsonl.gz"):
            allocation = [list(range(n)) for n in instance["counts"]]
            assert value(instance, allocation) == pytest.approx(
                instance["optimum"], rel=1e-9
            )
            assert sum(instance["counts"]) <= instance["nN"]


@cache
def scaling(folder: Path) -> list[Instance]:
    instances = json.loads(
        gzip.decompress(
            (folder / "bftrainer" / "milp" / "scaling-instances.json.gz").read_bytes()
        )
    )
    for instance in instances:
        instance["current"] = [
            [n for n, here in enumerate(row) if here] for row in instance["cmap"]
        ]
    return list(instances)


@pytest.mark.reference
@pytest.mark.parametrize("number", range(20))
def test_scaling_instances_are_solved_alike_by_cbc_and_exact(
    reference: Path, number: int, process: SolverProcess
) -> None:
    instances = scaling(reference)
    assert len(instances) == 20
    instance = instances[number]
    exact = check(instance, "exact", None)
    assert exact > 0
    assert check(instance, "cbc", process) == pytest.approx(exact, rel=1e-6)
    # The table beside them has the optimum of the published model, to 0.1.
    table = (
        (reference / "bftrainer" / "milp" / "scaling-published-model.md")
        .read_text()
        .splitlines()
    )
    row = next(
        line.split("|")
        for line in table
        if line.startswith(f"|{instance['nJ']}|{instance['nN']}|")
    )
    assert exact == pytest.approx(float(row[11]), abs=0.06)
