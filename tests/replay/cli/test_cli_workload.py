"""`--workload` on the command line: reports, comparisons, checkpoints, and refusals."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from packages import plant

import bft
from bft.replay.cli.main import run

FIRST = ["--first-submit", "2021-02-10"]
FIRST_WINS = '''
from dataclasses import dataclass, field
from bft.models import Orders

@dataclass
class FirstWins:
    """Stop all others when one has finished."""

    name: str = field(default="first-wins", init=False)

    def rungs(self, job):
        return ()

    def on(self, event):
        others = [name for name in event.jobs if name != event.job.name]
        return Orders(cancel=others if event.type == "finish" else ())
'''


@pytest.fixture(autouse=True)
def here(here: Path) -> Path:
    assert (
        run(["generate", "trace", "--nodes", "16", "--days", "0.25", "-o", "t.parquet"])
        == 0
    )
    assert (
        run(
            [
                "generate",
                "jobs",
                "--scenario",
                "hpo",
                "--jobs",
                "12",
                "--pmax",
                "4e6",
                *FIRST,
                "-o",
                "j.csv",
            ]
        )
        == 0
    )
    return here


REPLAY = [
    "-ndmap",
    "t.parquet",
    "--jobs",
    "j.csv",
    "--policy",
    "equal-share",
    "-maxJ",
    "0",
    "--no-u",
]


def test_a_search_is_reported_kept_and_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*REPLAY, "--workload", "hpo:eta=2,levels=2", "--out", "run"]) == 0
    out = capsys.readouterr().out
    metrics = json.loads(Path("run/summary.json").read_text())["metrics"]
    search, jobs = metrics["search"], pd.read_parquet("run/jobs.parquet")
    stopped = jobs[jobs["cancelled"].notna()]
    assert search["finished"] + search["stopped"] == 12 == metrics["jobs"]
    assert search["stopped"] == len(stopped) > 3
    assert search["stopped_samples"] == pytest.approx(stopped["work"].sum())
    assert (
        search["finished"] == jobs["finish"].notna().sum() == metrics["jobs_finished"]
    )
    assert f"{search['finished']} done, {search['stopped']} stopped; " in out
    assert "no bound is known: which jobs --workload submits" in out
    scores = pd.read_parquet("run/search.parquet")
    assert list(scores) == ["time", "job", "progress", "score", "best"]
    assert scores["time"].is_monotonic_increasing
    assert search["best"]["score"] == scores["score"].max() == scores["best"].iloc[-1]
    assert len(search["best_over_time"]) == scores["best"].nunique()
    assert (
        f"best found             {search['best']['score']:.4f} by {search['best']['job']} at 2021-02-10"
        in out
    )
    assert run(["report", "run", "-o", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "Best found over time" in page
    assert f"{search['best']['score']:.4f} by {search['best']['job']}" in page
    assert run([*REPLAY, "--workload", "hpo", "--seed", "1", "--out", "other"]) == 0
    assert run(["compare", "run", "other", "--different-inputs"]) == 0
    assert "best found" in capsys.readouterr().out


def test_python_takes_the_same_words() -> None:
    made = bft.replay(
        "t.parquet",
        "j.csv",
        workload="hpo:eta=4",
        policy="equal-share",
        max_jobs=0,
        dedicated=False,
    )
    assert made.metrics["search"]["stopped"] > 6
    assert made.summary["options"]["workload"] == "hpo:eta=4"


def test_another_package_brings_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = {
        "bft.workloads": {"first-wins": "theirs:FirstWins", "none": "theirs:Orders"}
    }
    monkeypatch.syspath_prepend(
        plant({"theirs.py": FIRST_WINS}, points, tmp_path / "site")
    )
    assert run([*REPLAY, "--workload", "first-wins"]) == 0
    assert "trials                 1 done, 11 stopped; " in capsys.readouterr().out
    assert run([*REPLAY, "--workload", "none"]) == 2
    assert "workload 'none': expected a dataclass" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--workload", "hpp"],
            "unknown workload 'hpp': choose one of hpo, nas; did you mean 'hpo'?",
        ),
        (
            ["--workload", "hpo:eta=1"],
            "workload 'hpo': eta: expected a whole number >= 2, not 1",
        ),
        (
            ["--workload", "hpo:eta=x"],
            "workload 'hpo', option 'eta': expected a whole number, not 'x'",
        ),
        (["--workload", "hpo:eta"], "expected NAME=VALUE behind the colon, not 'eta'"),
        (
            ["--workload", "nas:size=3"],
            "has no option 'size'; it has children, population, sample, step, growth",
        ),
        (
            ["--workload", "nas", "--option", "compat=reference"],
            "the published replayer knows --policy milp and equal-share",
        ),
        (
            ["--workload", "nas:step=-1"],
            "step: expected a finite number >= 0, not -1.0",
        ),
    ],
)
def test_what_is_no_workload_is_refused_by_name(
    given: list[str], message: str, refused: Callable[..., str]
) -> None:
    assert message in " ".join(refused([*REPLAY, *given]).split())


def test_virtual_clusters_take_no_workload(capsys: pytest.CaptureFixture[str]) -> None:
    Path("vcs.csv").write_text("vc,nodes,units_per_node\na,4,1\nb,4,1\n")
    jobs = pd.read_csv("j.csv")
    jobs["vc"] = ["a", "b"] * 6
    jobs.to_csv("vcs-jobs.csv", index=False)
    args = [
        "--cluster",
        "vcs.csv",
        "--jobs",
        "vcs-jobs.csv",
        "--policy",
        "fifo",
        "--option",
        "oversized=cap",
    ]
    assert run([*args, "--workload", "hpo"]) == 2
    assert "does not go with several virtual clusters" in capsys.readouterr().err
