"""A replay's result does not depend on the backend (docs/decisions/0014), seen from the command line."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import bft.datasets
from bft.milp.backends.registry import describe
from bft.replay.cli.main import run

OTHERS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            not describe(name).available, reason=f"needs the extra {name}"
        ),
    )
    for name in ("cbc", "highs", "gurobi")
]


BUNDLED = Path(bft.datasets.__file__).parent / "data"
PART = (
    *(
        "-ndmap",
        str(BUNDLED / "summit-like-512.parquet"),
        "--jobs",
        str(BUNDLED / "jobs-60.parquet"),
    ),
    *("-Tfwd", "120", "--no-u"),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def replayed(folder: Path, backend: str, *options: str) -> Path:
    """The run directory of a replay, made once."""
    out = (
        folder
        / hashlib.sha256("\0".join([*options, backend]).encode()).hexdigest()[:16]
    )
    if not out.exists():
        assert (
            run(
                [
                    *options,
                    "--backend",
                    backend,
                    "--out",
                    str(out),
                    "-optTL",
                    "600",
                    "-print",
                    "0",
                ]
            )
            == 0
        )
    return out


def assert_alike_but_for_the_backend(ours: Path, theirs: Path) -> None:
    """Byte for byte, where a backend is not named."""
    for name in ("jobs.parquet", "allocations.parquet"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    steps, others = (
        pd.read_parquet(folder / "steps.parquet") for folder in (ours, theirs)
    )
    named = {"exact", "cbc", "highs", "gurobi"}
    assert (
        set(steps["backend"]) - named == set(others["backend"]) - named
    )  # those that nobody solved
    pd.testing.assert_frame_equal(
        steps.drop(columns="backend"),
        others.drop(columns="backend"),
        check_exact=True,
        check_dtype=True,
    )
    assert without_backend(ours) == without_backend(theirs)


def without_backend(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    del summary["options"]["backend"]
    return summary


@pytest.mark.parametrize("backend", OTHERS)
def test_all_backends_give_the_same_replay_of_part_of_the_bundled_trace(
    runs: Path, backend: str
) -> None:
    options = (*PART, "-nN", "12")
    assert_alike_but_for_the_backend(
        replayed(runs, "exact", *options), replayed(runs, backend, *options)
    )


@pytest.mark.slow
@pytest.mark.parametrize("backend", OTHERS)
def test_the_bundled_trace_is_replayed_alike_by_all_backends(
    runs: Path, backend: str
) -> None:
    options = ("-Tfwd", "120")
    assert_alike_but_for_the_backend(
        replayed(runs, "exact", *options), replayed(runs, backend, *options)
    )


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.parametrize(
    ("backend", "options", "most"),
    [
        # A thousand jobs in play, whose weights rise as they wait: only what an optimum can contain is posed to CBC.
        ("cbc", ("--skip-rows", "23500", "--preset", "best"), 100),
        *((name, ("--skip-rows", "22000", "-Tfwd", "120"), 200) for name in ("cbc", "highs", "gurobi")),
    ],
)  # fmt: skip
def test_the_real_log_is_replayed_alike_by_all_backends(
    reference: Path, runs: Path, backend: str, options: tuple[str, ...], most: int
) -> None:
    if not describe(backend).available:
        pytest.skip(f"needs the extra {backend}")
    log = reference / "bftrainer"
    trace = str(log / "ndstat-10sdn6-evt.tar.gz")
    bounds, curves = (
        str(log / f"ImageNet-imgps-{part}-1001J.pkl") for part in ("Jbnd", "JNPs")
    )
    inputs = ("-ndmap", trace, "-nN", "300", "-bdfn", bounds, "-scfn", curves)
    given = (*inputs, *options, "--no-u", "--option", "align-jobs=yes")
    ours, theirs = replayed(runs, "exact", *given), replayed(runs, backend, *given)
    assert_alike_but_for_the_backend(ours, theirs)
    metrics = json.loads((theirs / "summary.json").read_text())["metrics"]
    assert metrics["verified"] > most
    assert metrics["verify_mismatches"] == 0


def test_ties_are_recorded_and_verified_answers_counted(runs: Path) -> None:
    for ties, verifies in (("solver", False), ("solver", True), ("canonical", False)):
        stated = ["--option", f"ties={ties}"] if ties == "solver" else []
        stated += ["--option", "verify=yes"] if verifies else []
        folder = replayed(runs, "cbc", *PART, "-nN", "12", *stated)
        found = json.loads((folder / "summary.json").read_text())
        assert found["options"]["ties"] == ties
        if verifies or ties == "canonical":
            assert found["metrics"]["verified"] > 0
            assert found["metrics"]["verify_mismatches"] == 0
        else:
            assert "verified" not in found["metrics"]


def test_ties_canonical_without_effect_is_reported(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*PART, "-nN", "12", "--option", "gap=0.01"]
    assert run([*given, "--out", str(runs / "gap")]) == 0
    assert (
        "--option ties=canonical has no effect with --option gap"
        in capsys.readouterr().err
    )
    assert run([*given, "--option", "ties=solver", "--out", str(runs / "own")]) == 0
    assert "ties" not in capsys.readouterr().err


@pytest.mark.parametrize("backend", OTHERS)
def test_solve_answers_the_canonical_optimum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    job = {
        "Jmin": 1,
        "Jmax": 4,
        "Ns": [0, 1, 4],
        "Os": [0, 10, 10],
        "Tcup": 0,
        "Tcdw": 0,
    }
    problem = {
        "units": 5,
        "Tfwd": 10,
        "jobs": [{"name": name, **job} for name in ("a", "b")],
    }
    (tmp_path / "one.json").write_text(json.dumps(problem))
    assert run(["solve", str(tmp_path / "one.json"), "--backend", backend]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["counts"], answer["backend"], answer["status"]) == (
        {"a": 1, "b": 1},
        backend,
        "optimal",
    )
    assert (
        run(
            [
                "solve",
                str(tmp_path / "one.json"),
                "--backend",
                backend,
                "--option",
                "ties=solver",
            ]
        )
        == 0
    )
    assert json.loads(capsys.readouterr().out)["objective"] == 200.0
