"""The lowest versions that pyproject.toml allows work: tested in an installation with exactly these."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
PACKAGES = ("api", "milp", "models", "replay", "datasets")
DEMO = ["-Tfwd", "120", "--out", "itrOut"]  # as in the Makefile
UNREACHABLE = re.compile(
    r"connection broken|Max retries exceeded|Network is unreachable|name resolution|timed out"
)


def lowest_versions() -> list[str]:
    """What pip is asked for: each dependency at its lower bound."""
    bounds = [
        re.fullmatch(r"([\w.-]+)>=([\d.]+)", dependency)
        for dependency in PROJECT["dependencies"]
    ]
    assert all(bounds), (
        f"each dependency has a lower bound and nothing else: {PROJECT['dependencies']}"
    )
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


@pytest.fixture(scope="module")
def lowest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `bft-replay` of an installation with the lowest versions; what these need in turn is the newest."""
    needed = PROJECT["requires-python"].removeprefix(">=")
    present = ".".join(map(str, sys.version_info[:2]))
    if present != needed:
        pytest.skip(
            f"the lowest versions are those for Python {needed}; this is {present}, some have no wheels for it"
        )
    source, target = (
        tmp_path_factory.mktemp("source"),
        tmp_path_factory.mktemp("lowest"),
    )
    for folder in PACKAGES:
        shutil.copytree(
            ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    subprocess.run([sys.executable, "-m", "venv", target], check=True)
    pip = [
        target / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    installed = subprocess.run(
        [*pip, "--only-binary", ":all:", *lowest_versions(), source],
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode and UNREACHABLE.search(installed.stderr):
        pytest.skip("the lowest versions cannot be installed: no package index answers")
    assert installed.returncode == 0, installed.stderr
    # Nobody gets a yanked version who does not ask for exactly that one: it is no lower bound.
    assert "yanked" not in installed.stderr
    return target / "bin" / "bft-replay"


def run(command: Path, args: list[str], folder: Path) -> str:
    """Run the command line in a folder, and return its standard output."""
    ended = subprocess.run(
        [command, *args], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "Warning" not in ended.stderr
    return ended.stdout


def test_the_demo_yields_with_the_lowest_versions_what_it_yields_with_these(
    lowest: Path, tmp_path: Path
) -> None:
    metrics = {}
    for name, command in (
        ("lowest", lowest),
        ("present", Path(sys.executable).with_name("bft-replay")),
    ):
        (tmp_path / name).mkdir()
        run(command, DEMO, tmp_path / name)
        summary = json.loads(
            (tmp_path / name / "itrOut" / "summary.json").read_text(encoding="utf-8")
        )
        metrics[name] = [
            summary["metrics"][key]
            for key in ("decisions", "jobs_finished", "outcome", "U")
        ]
    assert metrics["lowest"] == pytest.approx(metrics["present"], rel=1e-9)


@pytest.mark.parametrize("backend", ["exact", "cbc"])
def test_solve_answers_with_the_lowest_versions(
    lowest: Path, backend: str, tmp_path: Path
) -> None:
    job = {"Jmin": 1, "Jmax": 2, "Ns": [0, 1, 2], "Tcup": 0, "Tcdw": 0, "current": []}
    jobs = [
        {"name": "a", "Os": [0, 10, 15], **job},
        {"name": "b", "Os": [0, 8, 14], **job},
    ]
    (tmp_path / "p.json").write_text(
        json.dumps({"units": 3, "Tfwd": 10, "jobs": jobs}), encoding="utf-8"
    )
    answer = json.loads(
        run(lowest, ["solve", "p.json", "--backend", backend], tmp_path)
    )
    assert answer["status"] == "optimal"
    assert answer["objective"] == pytest.approx(240)  # 10 s of 10 + 14
    assert answer["counts"] == {"a": 1, "b": 2}


@pytest.mark.parametrize("model", ["piecewise", "amdahl", "usl"])
def test_jobs_fit_makes_jobs_that_replay_with_the_lowest_versions(
    lowest: Path, model: str, tmp_path: Path
) -> None:
    rows = [
        f"net,{units},{100 * units / (1 + 0.05 * (units - 1))},{32 * units}"
        for units in (1, 2, 4, 8, 16)
    ]
    (tmp_path / "runs.csv").write_text(
        "\n".join(["model,units,throughput,batch_size", *rows]), encoding="utf-8"
    )
    fit = [
        "jobs",
        "fit",
        "runs.csv",
        "--model",
        model,
        "--submit",
        "2021-02-10",
        "--pmax",
        "1000",
    ]
    told = run(lowest, [*fit, "-o", "jobs.parquet"], tmp_path)
    assert "net" in told
    run(
        lowest,
        ["--cluster", "4x1", "--jobs", "jobs.parquet", "--out", "itrOut"],
        tmp_path,
    )
    summary = json.loads(
        (tmp_path / "itrOut" / "summary.json").read_text(encoding="utf-8")
    )
    assert summary["metrics"]["jobs_finished"] == 1


def test_a_number_beyond_all_floats_is_refused_by_column_with_the_lowest_versions(
    lowest: Path, tmp_path: Path
) -> None:
    """Before 3.1 pandas raises an OverflowError of its own."""
    (tmp_path / "jobs.jsonl").write_text(
        f'{{"name": "a", "Pmax": 1{"0" * 400}}}\n', encoding="utf-8"
    )
    args = ["--cluster", "4x1", "--jobs", "jobs.jsonl"]
    ended = subprocess.run(
        [lowest, *args], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "Error: jobs.jsonl: holds a whole number beyond 1.8e308"
    )


@pytest.mark.parametrize(
    "command",
    [
        "",
        "replay",
        "solve",
        "report",
        "ingest",
        "trace",
        "jobs",
        "xi",
        "predict",
        "convert",
        "generate",
        "list",
    ],
)
def test_help_and_unknown_options_are_as_they_should_be_with_the_lowest_versions(
    lowest: Path, command: str
) -> None:
    """The oldest click: types of parameters, --help, and what is suggested for a misspelt option."""
    words = command.split()
    assert "Usage: bft-replay" in run(lowest, [*words, "--help"], ROOT)
    ended = subprocess.run(
        [lowest, *words, "--hlep"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "--hlep" in ended.stderr
    assert "Traceback" not in ended.stderr
