"""The page of several runs: its headline, intervals, names, and runs of different inputs."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bft.models import Curve, Job, JobTable, write_jobs
from bft.replay import from_changes, write_trace
from bft.replay.cli.main import run
from bft.replay.report.study_charts import distribution
from bft.replay.trace.node_trace import SECOND_NS

DAYS = 9


@pytest.fixture
def runs(here: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Two runs of one policy each on nodes that come and go for nine days, and one of fewer jobs."""
    rng = np.random.default_rng(3)
    seconds = np.sort(rng.integers(0, DAYS * 86_400, 40))
    idle = rng.random(40) < 0.7
    idle[0] = True
    trace = from_changes(
        [f"n{k}" for k in range(4)],
        seconds * SECOND_NS,
        rng.integers(0, 4, 40).astype(np.int32),
        idle,
        end=DAYS * 86_400 * SECOND_NS,
    )
    curve = Curve([0, 1, 2, 4], [0, 10, 18, 30])
    jobs = tuple(
        Job(
            f"j{k}",
            k * 15 * 3600 * SECOND_NS,
            1,
            4,
            4e5 * (1 + k % 4),
            60,
            30,
            curve,
            curve,
            jreq=1 + k % 3,
        )
        for k in range(12)
    )
    write_trace(trace, "trace.parquet")
    write_jobs(JobTable(jobs), "jobs.parquet")
    write_jobs(JobTable(jobs[:-1]), "fewer.parquet")
    files = ["-ndmap", "trace.parquet", "--no-u"]
    for folder, table, policy in (
        ("first", "jobs.parquet", "fifo"),
        ("second", "jobs.parquet", "equal-share"),
        ("other", "fewer.parquet", "equal-share"),
    ):
        made = [*files, "--jobs", table, "--policy", policy, "--out", folder]
        assert run(made) == 0
    capsys.readouterr()
    return files


def text_of(page: str) -> str:
    """What a page says, without scripts and tags."""
    text = Path(page).read_text("utf-8")
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_the_page_of_several_runs_begins_with_their_comparison(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "first", "second", "-o", "page.html", "--static"]) == 0
    assert run(["compare", "first", "second"]) == 0
    shown = capsys.readouterr().out
    page = text_of("page.html")
    outcomes = {
        policy: pd.read_parquet(f"{folder}/jobs.parquet")["work"].sum()
        for policy, folder in (("fifo", "first"), ("equal-share", "second"))
    }
    best, next_best = sorted(outcomes, key=lambda policy: -outcomes[policy])
    more = outcomes[best] / outcomes[next_best] - 1
    assert more > 0
    headline = page.index(f"{best} trained most: {outcomes[best]:,.0f} samples")
    assert f"{more:.1%} more than {next_best}" in page
    sentences = [line for line in shown.splitlines() if " 95 % interval is " in line]
    assert sentences
    for sentence in sentences:
        assert headline < page.index(sentence)
    # What is said of the first run alone comes after what is said of all.
    alone = page.index("fifo, the first of 2 runs")
    assert max(page.index(sentence) for sentence in sentences) < alone
    assert "2 runs: fifo; equal-share" in page[:headline]
    assert "policy fifo;" not in page


def test_runs_of_different_inputs_have_no_page_unless_it_says_so(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pages = ["report", "second", "other", "-o", "page.html", "--static"]
    assert run(pages) == 2
    said = capsys.readouterr().err
    assert "the runs have different inputs: --jobs (SHA-256 " in said
    assert not Path("page.html").exists()
    assert run([*pages, "--different-inputs"]) == 0
    page = text_of("page.html")
    assert "The runs have different inputs: --jobs (SHA-256 " in page
    assert page.index("The runs have different inputs") < page.index("the first of 2")


def test_shares_of_a_distribution_are_of_all_submitted_jobs() -> None:
    jobs = {
        "few": pd.DataFrame({"jct_s": [3600.0] + [np.nan] * 9}),
        "all": pd.DataFrame({"jct_s": np.arange(1, 11) * 3600.0}),
    }
    chart = distribution(jobs, "jct_s")
    assert chart is not None
    few, everybody = chart.drawing.curves
    assert few.y[-1] == pytest.approx(0.1)
    assert everybody.y[-1] == pytest.approx(1.0)
    table = chart.table.set_index("share of jobs")
    assert table.loc["10%", "few, h"] == 1.0
    assert np.isnan(table.loc["50%", "few, h"])
    assert table.loc["50%", "all, h"] == pytest.approx(5.0, abs=0.1)
