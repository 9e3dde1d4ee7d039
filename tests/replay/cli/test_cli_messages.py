"""What a command says when a file is another than meant, a name is misspelt, or its output goes nowhere."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from bft.models import Curve, Job, JobTable, write_jobs
from bft.replay import always_idle, write_trace

SECOND = 10**9
INPUT = "-ndmap t.parquet --jobs jobs.csv --no-u"
FIFO = f"{INPUT} --policy fifo"
STALL = f"{INPUT} --backend exact -Tfwd 2 --option cost-model=stall"
Told = Callable[..., str]


@pytest.fixture(autouse=True)
def files(here: Path) -> None:
    """A trace and a job table."""
    curve = Curve([0, 4], [0, 40])
    write_trace(always_idle(4, 0, 600 * SECOND), "t.parquet")
    write_jobs(JobTable((Job("a", 0, 1, 4, 3000.0, 5.0, 5.0, curve, curve),)), "jobs.csv")  # fmt: skip


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("trace info jobs.csv", ["jobs.csv: is a job table, expected a node trace (give it as --jobs"]),
        ("report t.parquet", ["t.parquet: is neither a run directory nor a table of a sweep"]),
        ("report t.parquet -o t.png", ["--png DIR"]),
        (f"compare {FIFO} --variant 'a: -maxJ 3' --variant a:", ["two variants are called 'a'"]),
        ("--policy last.py", ["'last.py' is not one of 'milp'", "your own is a class package:Class"]),
        ("--option align-job=yes", ["unknown option 'align-job'; did you mean 'align-jobs'?\n"]),
        ("compare --policy milp,pollux --preset best",
         ["pollux: --preset best is for --policy milp", "--variant 'NAME: OPTIONS' gives options to one"]),
        ("evaluate none.sacct",
         ["note: no --tz: times that state no zone are taken as UTC", "none.sacct: cannot be read"]),
    ],
)  # fmt: skip
def test_what_is_refused_names_what_may_have_been_meant(told: Told, line: str, parts: list[str]) -> None:  # fmt: skip
    told(line, *parts, code=2)
    assert not Path("compare-study/runs").exists()


def test_that_nothing_was_trained_is_said_with_q_too(told: Told) -> None:
    why = "Nothing was trained: -Tfwd 2 is shorter than growing costs (Tcup, 5 s in the median)"
    told(f"{STALL} -q", why)
    assert "Nothing was trained" not in told(f"{FIFO} -q --force")


def test_traits_of_a_policy_are_listed_as_such(told: Told) -> None:
    told("list policies milp", "\n  traits: kinds\n")


def test_a_run_says_what_it_lacks_for_a_page(told: Told) -> None:
    told(f"{FIFO} --out run")
    why = "Error: r.pdf: a page is HTML: expected a name that ends in .html (--pdf DIR writes its charts so)\n"
    assert told("report run -o r.pdf", code=2) == why
    assert not Path("r.pdf").exists()
    # Of a point of a sweep the steps are not kept.
    Path("run/steps.parquet").unlink()
    said = told("report run", "run: has no steps.parquet", "--whole", code=2)
    assert "reference" not in said


def test_runs_of_one_name_are_told_apart_by_their_folders(told: Told) -> None:
    told(f"{FIFO} --out run")
    told("compare run ./run", "run: is named twice", code=2)
    told(f"{FIFO} --out other/run")
    told("compare run other/run -o table.csv")
    assert pd.read_csv("table.csv")["variant"].tolist() == ["run", "other/run"]


@pytest.mark.parametrize(
    ("made", "file"),
    [
        ("log slurm --nodes 2 --days 0.1", "log.txt"),
        ("jobs --jobs 1 --first-submit 2021-02-10", "made.jsonl"),
        ("trace --nodes 2 --days 0.1", "trace.csv"),
    ],
)
def test_what_is_generated_replaces_a_file_only_by_force(told: Told, made: str, file: str) -> None:  # fmt: skip
    Path(file).write_text("earlier")
    told(f"generate {made} -o {file}", "exists; --force replaces it", code=2)
    assert Path(file).read_text() == "earlier"
    told(f"generate {made} -o {file} --force")
    assert Path(file).read_text() != "earlier"


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
