"""All recorded decisions of the published replayer, and its scaling instances, against the known optima."""

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from published import Entry, decisions, posed
from strategies import worth_of

from bft.milp import SolverProcess, solve

# Parts of a collection, so that xdist can spread them.
CHUNKS = 8


def reached(entry: Entry, backend: str, process: SolverProcess | None) -> float:
    """Solve a recorded decision, and return what the answer is worth."""
    problem = posed(entry)
    solution = solve(problem, backend=backend, ties="solver", process=process)
    told = (solution.status, solution.backend, solution.note)
    assert told == ("optimal", backend, ""), entry
    worth = worth_of(problem, solution.counts)
    assert worth is not None
    assert solution.objective == pytest.approx(worth, rel=1e-9), entry
    assert solution.bound >= solution.objective, entry
    return worth


def check(entries: list[Entry], backend: str, process: SolverProcess) -> None:
    for entry in entries:
        worth = reached(entry, backend, process)
        assert worth == pytest.approx(entry["optimum"], rel=1e-6), entry
        # The published big-M forbids some allocations and allows none that ours does not.
        published = entry["published_optimum"]
        assert published is None or worth >= published - 1e-6 * abs(published), entry


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
    instances = decisions("instances")
    assert len(instances) == 3707
    check(instances[chunk::CHUNKS], backend, process)


@pytest.mark.parametrize("backend", ["exact", "cbc", "highs"])
def test_corner_cases_reach_the_known_optimum(
    backend: str, process: SolverProcess
) -> None:
    corners = decisions("corner-cases")
    check(corners[::4] if backend == "highs" else corners, backend, process)


@pytest.mark.reference
def test_the_known_counts_are_worth_the_known_optimum(reference: Path) -> None:
    # Holds the yardstick itself: our reading of the instances gives the recorded number for the recorded answer.
    for entry in (*decisions("instances"), *decisions("corner-cases")):
        worth = worth_of(posed(entry), tuple(entry["counts"]))
        assert worth == pytest.approx(entry["optimum"], rel=1e-9)


@cache
def scaling(folder: Path) -> list[Entry]:
    packed = (folder / "scaling-instances.json.gz").read_bytes()
    instances: list[Entry] = json.loads(gzip.decompress(packed))
    for instance in instances:
        instance |= {name: [*map(int, instance[name])] for name in ("jmin", "jmax")}
        instance["current"] = [
            [n for n, here in enumerate(row) if here] for row in instance["cmap"]
        ]
    return instances


@pytest.mark.reference
@pytest.mark.parametrize("number", range(20))
def test_scaling_instances_are_solved_alike_by_cbc_and_exact(
    reference: Path, number: int, process: SolverProcess
) -> None:
    folder = reference / "bftrainer" / "milp"
    assert len(scaling(folder)) == 20
    instance = scaling(folder)[number]
    exact = reached(instance, "exact", None)
    assert reached(instance, "cbc", process) == pytest.approx(exact, rel=1e-6)
    # The table beside them has the optimum of the published model, to 0.1.
    table = (folder / "scaling-published-model.md").read_text().splitlines()
    start = f"|{instance['nJ']}|{instance['nN']}|"
    row = next(line.split("|") for line in table if line.startswith(start))
    assert exact == pytest.approx(float(row[11]), abs=0.06)
