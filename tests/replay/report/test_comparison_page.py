"""The page of several runs: its headline, intervals, names, and runs of different inputs."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bft.models import Curve, Job, JobTable, write_jobs
from bft.models.writing import duration
from bft.replay import from_changes, write_trace
from bft.replay.cli.main import run
from bft.replay.report import charts_of
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
    assert run(["report", "first", "second", "-o", "page.html"]) == 0
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
    assert "2 runs: fifo; equal-share" in page[:headline]
    assert "policy fifo;" not in page


def test_runs_of_different_inputs_have_no_page_unless_it_says_so(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pages = ["report", "second", "other", "-o", "page.html"]
    assert run(pages) == 2
    said = capsys.readouterr().err
    assert "the runs have different inputs: --jobs (SHA-256 " in said
    assert not Path("page.html").exists()
    assert run([*pages, "--different-inputs"]) == 0
    page = text_of("page.html")
    assert "The runs have different inputs: --jobs (SHA-256 " in page


def test_shares_of_a_distribution_are_of_all_submitted_jobs(runs: list[str]) -> None:
    folders = [Path("first"), Path("second")]
    chart = {c.key: c for c in charts_of(folders)}["compared-times"]
    for curve, folder in zip(chart.drawing.curves, folders, strict=True):
        jct_s = pd.read_parquet(folder / "jobs.parquet")["jct_s"]
        assert curve.y[-1] == pytest.approx(jct_s.notna().mean())
        assert curve.x[-1] == pytest.approx(jct_s.max() / 3600)
    assert list(chart.table) == ["share of all submitted jobs", "fifo, h", "equal-share, h"]  # fmt: skip


def test_a_page_of_several_runs_has_one_window_their_table_and_what_compares_them(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Header and sentence mean the run that ends last; there are no charts of one run alone."""
    assert run(["report", "first", "second", "-o", "page.html"]) == 0
    page = text_of("page.html")
    ends = {}
    for folder in ("first", "second"):
        metrics = json.loads(Path(folder, "summary.json").read_text())["metrics"]
        ends[metrics["window_end"]] = metrics
    last = ends[max(ends)]
    assert f"to {last['window_end'][:16].replace('T', ' ')} UTC" in page
    assert f"In {duration(last['duration_s'])} your 4 nodes" in page
    keys = [chart.key for chart in charts_of([Path("first"), Path("second")])]
    assert {key.split("-")[0] for key in keys} == {"compared"}
    for title in (
        "of the bound",
        "JCT mean",
        "longest without units",
        "Finished (UTC)",
    ):
        assert title in page
    finish = pd.read_parquet("first/jobs.parquet")["finish"].dropna().iloc[0]
    assert f"{finish:%Y-%m-%d %H:%M}" in page


def test_runs_in_which_nothing_is_trained_have_a_page(
    traced: Callable[..., str], ran: Callable[..., Path], page: Callable[..., str]
) -> None:
    """A job needs two nodes, and one is idle."""
    traced("ab", "00:00 00", "01:00 10", "02:00 10")
    job = {"Jmin": 2, "Jmax": 2, "Pmax": 100.0, "Ns": [0, 2], "Ps": [0, 2], "Os": [0, 2]}  # fmt: skip
    folders = [
        ran([job], "--policy", policy, "--no-u", out=policy)
        for policy in ("equal-share", "pollux")
    ]
    assert "All trained as much." in page(*folders)
