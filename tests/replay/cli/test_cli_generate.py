"""`bft-replay generate`: the same seed gives the same file, and generated files can be replayed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bft.replay.cli.main import run

TRACE = ["generate", "trace", "--nodes", "40", "--days", "0.25"]
JOBS = [
    "generate",
    "jobs",
    "--jobs",
    "7",
    "--first-submit",
    "2021-02-10T00:05:00",
    "--pmax",
    "1e6",
]


pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("command", "suffix"),
    # gzip writes the file's name into its header
    [(TRACE, ".parquet"), (TRACE, ".csv"), (TRACE, ".csv.gz"), (JOBS, ".parquet"), (JOBS, ".csv")],
)  # fmt: skip
def test_the_seed_decides(command: list[str], suffix: str) -> None:
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert run([*command, "--seed", seed, "-o", f"{name}/x{suffix}"]) == 0
    first, again, other = (Path(name, f"x{suffix}").read_bytes() for name in "abc")
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("trace", "jobs"),
    [("t.parquet", "j.parquet"), ("t.csv", "j.csv"), ("t.csv.gz", "j.jsonl")],
)
def test_what_is_generated_can_be_replayed(
    trace: str, jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*TRACE, "-o", trace]) == 0
    assert run([*JOBS, "--interval", "60", "-o", jobs]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{trace}: 40 nodes, ")
    assert out.endswith(f"{jobs}: 7 jobs\n")
    assert err == ""
    assert (
        run(["-ndmap", trace, "--jobs", jobs, "--backend", "exact", "-Tfwd", "120"])
        == 0
    )
    metrics = json.loads(Path("debug-itrOut/summary.json").read_text())["metrics"]
    assert metrics["jobs"] == 7
    assert metrics["jobs_finished"] > 0


def test_all_forms_give_the_same_replay() -> None:
    results = []
    for suffix, jobs in (
        (".parquet", ".parquet"),
        (".csv", ".jsonl"),
        (".csv.gz", ".csv"),
    ):
        assert run([*TRACE, "-o", f"t{suffix}"]) == 0
        assert run([*JOBS, "-o", f"j{suffix}{jobs}"]) == 0
        args = [
            "-ndmap",
            f"t{suffix}",
            "--jobs",
            f"j{suffix}{jobs}",
            "--backend",
            "exact",
            "--no-u",
            "--force",
        ]
        assert run(args) == 0
        results.append(Path("debug-itrOut/steps.parquet").read_bytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("command", "args", "told"),
    [
        (TRACE, ["-o", "x.xlsx"], ["Error: x.xlsx: ", ".parquet"]),
        (TRACE, ["-o", "."], [".: exists"]),
        (TRACE, ["-o", "file.csv"], ["file.csv: exists"]),
        (JOBS, ["-o", "file.csv"], ["file.csv: exists"]),
        (TRACE, ["-o", "file.csv/x.csv"], ["file.csv/x.csv", "cannot be written"]),
        (TRACE, [], ["-o"]),
        (TRACE, ["-o", "x.csv", "--nodes", "0"], ["--nodes", "0"]),
        (TRACE, ["-o", "x.csv", "--days", "nan"], ["--days", "finite"]),
        (TRACE, ["-o", "x.csv", "--days", "inf"], ["--days", "finite"]),
        (TRACE, ["-o", "x.csv", "--days", "0"], ["--days", "0"]),
        (TRACE, ["-o", "x.csv", "--days", "0.0001"], ["days", "0.0001", "0.0069"]),
        (TRACE, ["-o", "x.csv", "--seed", "-1"], ["--seed", "-1"]),
        (TRACE, ["-o", "x.csv", "--start", "someday"], ["'someday'", "2021-02-10"]),
        (TRACE, ["-o", "x.csv", "--start", "9999-01-01"], ["--start", "2261"]),
        (JOBS, ["-o", "x.xlsx"], ["Error: x.xlsx: ", ".parquet"]),
        (JOBS, ["-o", "file.csv/x.csv"], ["file.csv/x.csv", "cannot be written"]),
        (JOBS[:4], ["-o", "x.csv"], ["--first-submit"]),
        (JOBS, ["-o", "x.csv", "--jobs", "0"], ["--jobs", "0"]),
        (JOBS, ["-o", "x.csv", "--pmax", "nan"], ["--pmax", "finite"]),
        (JOBS, ["-o", "x.csv", "--pmax", "0"], ["--pmax", "0"]),
        (JOBS, ["-o", "x.csv", "--interval", "-1"], ["--interval", ">= 0"]),
        (JOBS, ["-o", "x.csv", "--interval", "1e300"], ["--interval", "at most"]),
        (
            JOBS,
            ["-o", "x.csv", "--jobs", "100", "--interval", "1e9"],
            ["--interval", "2261"],
        ),
        (JOBS, ["-o", "x.csv", "--first-submit", "soon"], ["'soon'"]),
        (
            JOBS,
            ["-o", "x.csv", "--first-submit", "9999-01-01"],
            ["--first-submit", "2261"],
        ),
        (["generate", "nodes"], [], ["'nodes'"]),
    ],
)
def test_invalid_input_is_reported_and_nothing_written(
    refused: Callable[..., str], command: list[str], args: list[str], told: list[str]
) -> None:
    Path("file.csv").write_text("precious")
    refused([*command, *args], *told)
