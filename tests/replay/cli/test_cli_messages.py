"""What a command says when a file is another than meant, a name is misspelt, or its output goes nowhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pandas as pd
import pytest
from processes import AMPLE_S, SCRIPT

from bft.models import Curve, Job, JobTable, write_jobs
from bft.replay import always_idle, write_trace
from bft.replay.cli.main import run

SECOND = 10**9


@pytest.fixture
def files(here: Path) -> list[str]:
    """A trace and a job table; the options that name them."""
    curve = Curve([0, 4], [0, 40])
    write_trace(always_idle(4, 0, 600 * SECOND), "t.parquet")
    write_jobs(
        JobTable((Job("a", 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve),)), "jobs.csv"
    )
    return ["-ndmap", "t.parquet", "--jobs", "jobs.csv", "--policy", "fifo", "--no-u"]


def told(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """The error of a command that refuses its input."""
    assert run(list(args)) == 2
    return capsys.readouterr().err


def test_a_file_of_another_kind_is_named_as_what_it_is(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "jobs.csv: is a job table, expected a node trace (give it as --jobs" in told(
        capsys, "trace", "info", "jobs.csv"
    )
    said = told(capsys, "report", "t.parquet")
    assert "t.parquet: is neither a run directory nor a table of a sweep" in said
    assert "it is a node trace: bft-replay trace info t.parquet --html FILE" in said


def test_a_report_of_a_point_of_a_sweep_says_how_whole_runs_are_kept(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*files, "--out", "run"]) == 0
    Path("run/steps.parquet").unlink()
    said = told(capsys, "report", "run")
    assert "run: has no steps.parquet" in said
    assert "--whole" in said
    assert "reference" not in said


def test_a_page_is_not_written_under_the_name_of_another_form(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*files, "--out", "run"]) == 0
    capsys.readouterr()
    said = told(capsys, "report", "run", "-o", "r.pdf")
    assert (
        said
        == "Error: r.pdf: a page is HTML: expected a name that ends in .html (--pdf DIR writes its charts so)\n"
    )
    assert "--png DIR" in told(capsys, "trace", "info", "t.parquet", "--html", "t.png")
    assert not Path("r.pdf").exists()


def test_variants_and_runs_of_one_name_are_refused(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "two variants are called 'a'" in told(
        capsys, "compare", *files, "--variant", "a: -maxJ 3", "--variant", "a:"
    )
    assert not Path("compare-study/runs").exists()
    assert run([*files, "--out", "run"]) == 0
    capsys.readouterr()
    assert "run: is named twice" in told(capsys, "compare", "run", "./run")
    # Of two folders of one name the paths distinguish them.
    assert run([*files, "--out", "other/run"]) == 0
    assert run(["compare", "run", "other/run", "-o", "table.csv"]) == 0
    assert pd.read_csv("table.csv")["variant"].tolist() == ["run", "other/run"]


@pytest.mark.parametrize(
    ("content", "meant"),
    [
        ("[options]\nmax_job = 5\n", "max-jobs"),
        ("[grid]\nforward-windw = [10]\n", "forward-window"),
        ("[gird]\n", "grid"),
    ],
)
def test_a_misspelt_key_of_a_plan_gets_a_guess(
    here: Path, content: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("plan.toml").write_text(content)
    assert f"did you mean '{meant}'?" in told(capsys, "sweep", "--plan", "plan.toml")


def test_a_full_standard_output_is_named(here: Path) -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [*SCRIPT, "list", "backends"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=AMPLE_S,
            check=False,
        )
    assert (
        process.stderr
        == "Error: standard output cannot be written: No space left on device\n"
    )
    assert process.returncode == 2


def test_what_is_generated_replaces_a_file_only_by_force(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for made in (
        ["log", "slurm", "--nodes", "2", "--days", "0.1", "-o", "log.txt"],
        ["jobs", "--jobs", "1", "--first-submit", "2021-02-10", "-o", "jobs.jsonl"],
        ["trace", "--nodes", "2", "--days", "0.1", "-o", "trace.csv"],
    ):
        Path(made[-1]).write_text("earlier")
        assert "exists; --force replaces it" in told(capsys, "generate", *made)
        assert Path(made[-1]).read_text() == "earlier"
        assert run(["generate", *made, "--force"]) == 0
        assert Path(made[-1]).read_text() != "earlier"


def test_what_an_installation_fetches_is_stated_once() -> None:
    root = Path(__file__).parents[3]
    stated = {
        line.partition(" MB come down")[0].split()[-1].lstrip("(")
        for name in ("README.md", "Makefile")
        for line in (root / name).read_text("utf-8").splitlines()
        if "MB come down" in line and "development" not in line and "379" not in line
    }
    assert stated == {"412"}
    assert "`make demo` fetches 412 MB" in (root / "docs" / "install.md").read_text(
        "utf-8"
    )
