"""Comparisons of runs that exist: the same inputs, names by what differs, and options that do not go with them."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from processes import on_terminal
from stated import once

from bft.models import read_jobs, write_jobs
from bft.models.jobs import JobTable
from bft.replay.cli.main import run
from bft.replay.studies.comparison import Difference, Interval
from bft.replay.trace.trace_files import read_trace

Told = Callable[..., str]


@pytest.fixture
def runs(files: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Three runs: two of the same inputs, and one of one job fewer."""
    assert run([*files, "--policy", "fifo", "--out", "a"]) == 0
    assert run([*files, "--policy", "equal-share", "--out", "b"]) == 0
    write_jobs(JobTable(read_jobs("jobs.parquet").jobs[1:]), "fewer.parquet")
    other = [*files, "--jobs", "fewer.parquet", "--policy", "srtf", "--out", "c"]
    assert run(once(other)) == 0
    capsys.readouterr()
    return files


def test_runs_of_different_inputs_are_refused_by_name_of_what_differs(
    runs: list[str], told: Told
) -> None:
    """Another part of the same trace is another input too."""
    digests = [
        json.loads(Path(folder, "summary.json").read_text())["inputs"]["digests_sha256"]
        for folder in ("a", "c")
    ]
    files = [f"SHA-256 {digest['jobs'][:12]} in " for digest in digests]
    parts = ["the runs have different inputs: --jobs (SHA-256 ", *files, "number of jobs (8 in "]  # fmt: skip
    said = told("compare a c", *parts, code=2)
    assert "--node-trace" not in said
    assert "-ndmap" not in said
    warning = "warning: the runs have different inputs: --jobs"
    told("compare a c --different-inputs", warning, "srtf")
    assert run([*runs, "--policy", "fifo", "-nN", "3", "--out", "part"]) == 0
    told("compare b part", "-nN (none in ", code=2)


def test_runs_are_called_by_what_differs(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*runs, "--policy", "fifo", "-maxJ", "1", "--out", "d"]) == 0
    for other, named in (
        ("b", {"fifo": ["a"], "equal-share": ["b"]}),
        ("d", {"-maxJ 10": ["a"], "-maxJ 1": ["d"]}),
    ):
        capsys.readouterr()
        assert run(["compare", "a", other, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["runs"] == named


def test_runs_are_called_as_stated(runs: list[str], told: Told, here: Path) -> None:
    named = "a b --name ours --name 'the <b>other'"
    told(f"compare {named}", "the <b>other yields", "less than ours")
    told(f"report {named} -o page.html")
    assert "2 runs: ours; the &lt;b&gt;other;" in (here / "page.html").read_text()
    for wrong in ("--name ours", "--name x --name x", "--name x --name y --name y"):
        told(f"compare a b {wrong}", "--name: expected 2 different names", code=2)
    told("compare --policy fifo,srtf --name x", "--name are for RUN...", code=2)


def test_options_of_replays_do_not_go_with_runs_that_are_done(
    runs: list[str], told: Told
) -> None:
    for stated, said in (
        ("a b --policy milp", "RUN... are done"),
        ("a b --workers 1", "RUN... are done"),
        (
            "--different-inputs --policy fifo,srtf",
            "--different-inputs and --name are for RUN...",
        ),
        ("a", "name at least two run directories"),
        ("a a", "is named twice"),
        ("a trace.parquet", "is not a run directory"),
    ):
        told(f"compare {stated}", said, code=2)
    told("compare a b --split size -q")


def test_no_number_is_cut_on_a_terminal(
    runs: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each figure of the table on a pipe, which is never cut, is there whole, beside what it is of."""
    assert run(["compare", "a", "b"]) == 0
    plain = capsys.readouterr().out.splitlines()
    titles = re.split(r"\s{2,}", plain[0].strip())
    for columns in (60, 80, 120, 200):
        lines = on_terminal(["compare", "a", "b"], columns, here)
        assert max(map(len, lines)) <= columns
        assert "\u2026" not in "".join(lines)
        blocks = "\n".join(lines).split("\n\n")
        words = [
            [re.split(r"\s{2,}", line.strip()) for line in block.splitlines()]
            for block in blocks
        ]
        for row in plain[1:3]:
            name, *figures = re.split(r"\s{2,}", row.strip())
            assert len(figures) == len(titles)
            shown = {}
            for head, *rows in words:
                for each in rows:
                    if each[0] == name and len(each) == len(head) + 1:
                        shown |= dict(zip(head, each[1:], strict=True))
            assert [shown[title] for title in titles] == figures, columns


def test_a_comparison_says_when_each_of_few_jobs_was_done(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compare", "a", "b"]) == 0
    shown = capsys.readouterr().out.split("Finished (UTC):\n")[1].splitlines()
    assert shown[0].split() == ["fifo", "equal-share"]
    finishes = [pd.read_parquet(f"{each}/jobs.parquet")["finish"] for each in "ab"]
    names = pd.read_parquet("a/jobs.parquet")["name"]
    for line, name, *both in zip(shown[1:], names, *finishes, strict=True):
        cells = [
            "not done" if pd.isna(each) else f"{each:%Y-%m-%d %H:%M}" for each in both
        ]
        assert re.split(r"\s{2,}", line) == [name, *cells]
    assert run(["compare", "a", "b", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["finishes"]
    for label, finish in zip(("fifo", "equal-share"), finishes, strict=True):
        told = [found[label][name] for name in names]
        assert [each is None for each in told] == finish.isna().tolist()
        assert pd.Timestamp(told[0]) == finish[0]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (125.272, "b yields 126 times as much as a"),
        (1.5, "b yields 2.5 times as much as a"),
        (0.999, "b yields 99.9 % more than a"),
        (-0.96, "b yields 96.0 % less than a"),
        (0.0, "b yields as much as a"),
    ],
)
def test_what_is_more_than_twice_as_much_is_said_as_a_factor(
    value: float, said: str
) -> None:
    days = Interval(value - 0.25, value + 0.5, 9)
    sentence = Difference("b", "a", "outcome", value, days, None, 9, 1).sentence()
    assert sentence.startswith(f"{said}; the 9 days' 95 % interval is ")
    assert ("times" in sentence.split(";")[1]) == (value > 1)
    longer = Difference("b", "a", "jct", value, days, None, 9, 1, 4).sentence()
    if value > 1:
        factor = said.split()[2]
        assert f"both finish take {factor} times as long under b as under a" in longer


POLICIES = ("fifo", "equal-share")


def test_no_star_on_u_which_measures_a_variant_against_itself(
    here: Path, told: Told
) -> None:
    """Not even where the dedicated nodes do as much for both, as on the bundled data."""
    for policy in POLICIES:
        assert run(["--policy", policy, "--out", policy]) == 0
    runs = [json.loads((here / policy / "summary.json").read_text()) for policy in POLICIES]  # fmt: skip
    assert len({summary["metrics"]["dedicated_outcome"] for summary in runs}) == 1
    told(f"compare {' '.join(POLICIES)} -o table.md")
    titles, _, *rows = re.findall(r"^\|(.*)\|$", Path("table.md").read_text(), re.MULTILINE)  # fmt: skip
    place = titles.split("|").index(" U ")
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    assert all(any(cell.endswith("*") for cell in row) for row in cells)
    assert not any(row[place].endswith("*") for row in cells)


def test_rigid_jobs_that_ask_for_more_than_is_idle_are_said_before_the_table(
    runs: list[str], told: Told
) -> None:
    table = read_jobs("jobs.parquet")
    wide = tuple(replace(job, jreq=3 if k < 3 else 1) for k, job in enumerate(table))
    write_jobs(JobTable(wide), "wide.parquet")
    files = once([*runs, "--jobs", "wide.parquet"])
    assert run([*files, "--policy", "fifo", "--out", "wide-fifo"]) == 0
    assert run([*files, "--policy", "equal-share", "--out", "wide-share"]) == 0
    steps = pd.read_parquet("wide-fifo/steps.parquet")
    seconds = steps["time"].diff().dt.total_seconds().shift(-1).fillna(0)
    half = seconds.sum() / 2
    usual = max(n for n in range(5) if seconds[steps["idle"] >= n].sum() >= half)
    first = told("compare wide-share wide-fifo").splitlines()[0]
    assert first.startswith("fifo: 3 of 8 jobs run on 3 units (Jreq) or not at all")
    assert f"no more than {usual} are idle" in first
    # What it says to type lets no job ask for more than that.
    cap = f"--cap-units {usual}"
    assert f"{cap} lets no job ask for more" in first
    assert run([*files, "--policy", "fifo", *cap.split(), "--out", "capped"]) == 0
    assert pd.read_parquet("capped/jobs.parquet")["units_asked"].max() == usual
    # Nothing is said where requests fit, or no policy is rigid.
    assert "Jreq" not in told("compare a b")


def test_generated_jobs_ask_for_half_of_what_is_idle(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    machine = ["generate", "trace", "--nodes", "200", "-o", "idle.parquet"]
    assert run(machine) == 0
    trace = read_trace("idle.parquet")
    spans = np.diff([*trace.times, trace.end]) / 1e9
    half = int((trace.idle_counts() @ spans) / trace.duration_s / 2)
    assert 1 < half < 46
    jobs = ["generate", "jobs", "--jobs", "9", "--first-submit", "2021-02-10"]
    assert run([*jobs, "-o", "plain.csv"]) == 0
    assert run([*jobs, "--trace", "idle.parquet", "-o", "fitting.csv"]) == 0
    plain, fitting = read_jobs("plain.csv"), read_jobs("fitting.csv")
    assert min(job.request for job in plain) > half
    assert {job.request for job in fitting} == {half}
    assert [replace(job, jreq=None).pmax for job in fitting] == [
        job.pmax for job in plain
    ]
    # So do those that are generated where a trace but no jobs are given.
    made = ["-ndmap", "idle.parquet", "--policy", "fifo", "--no-u", "--out", "made"]
    assert run(made) == 0
    capsys.readouterr()
    assert set(pd.read_parquet("made/jobs.parquet")["units_asked"]) == {half}
