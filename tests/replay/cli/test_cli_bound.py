"""`bft-replay replay --bound`, and how close a replay comes to the bound."""

import json
from pathlib import Path

import pandas as pd
import pytest
from toy_application import write_application

from bft.replay.cli.main import run

EXACT = ["--backend", "exact", "--no-u"]


def test_a_replay_and_its_page_report_the_share_of_the_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["replay", "--bound", "--json"]) == 0
    bounds = json.loads(capsys.readouterr().out)
    assert bounds["jobs"] == 60
    out = str(tmp_path / "run")
    assert run([*EXACT, "-maxJ", "0", "-Tfwd", "60", "--out", out]) == 0
    line = next(
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("bound ")
    )
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    metrics = summary["metrics"]
    assert metrics["bound"] == bounds["bound"]
    assert metrics["share_of_bound"] == metrics["outcome"] / bounds["bound"] < 1
    assert metrics["share_of_bound"] > 0.95
    assert metrics["bounds"] == {
        name: bounds[name] for name in ("jct_mean_s", "makespan_s", "why_none")
    }
    assert metrics["jct_to_end_mean_s"] > bounds["jct_mean_s"]
    share = f"{metrics['share_of_bound']:.1%} of the bound"
    assert f"{share}, {bounds['bound']:,.0f} samples" in line
    assert run(["report", out]) == 0
    assert f"{share} was trained" in (tmp_path / "run.html").read_text()


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", "--bound"]) == 0
    labels = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert labels == ["bound", "mean job completion time", "makespan"]


@pytest.fixture
def apart(here: Path) -> Path:
    start = pd.Timestamp("2021-02-10", tz="UTC")
    rows = [
        (
            f"j{k}",
            start,
            1,
            4,
            3600.0,
            10.0,
            5.0,
            "[0, 1, 4]",
            "[0, 1, 3]",
            "[0, 1, 3]",
            "ab"[k % 2],
        )
        for k in range(4)
    ]
    columns = [
        "name",
        "Tsub",
        "Jmin",
        "Jmax",
        "Pmax",
        "Tcup",
        "Tcdw",
        "Ns",
        "Ps",
        "Os",
        "model",
    ]
    pd.DataFrame(rows, columns=columns).to_csv("jobs.csv", index=False)
    xi = pd.DataFrame(
        [("a", "b", 1.2, 1.5), ("a", "a", 1.3, 1.3)],
        columns=["model_a", "model_b", "xi_a", "xi_b"],
    )
    xi.to_csv("xi.csv", index=False)
    return here


def test_with_xi_two_jobs_may_share_each_unit(
    apart: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--cluster", "2x1", "--jobs", "jobs.csv", "--option", "oversized=cap"]
    found = {}
    for xi in ([], ["--xi", "xi.csv"]):
        assert run(["replay", "--bound", "--json", *given, *xi]) == 0
        found[bool(xi)] = json.loads(capsys.readouterr().out)
    assert found[True]["bound"] == found[False]["bound"] == pytest.approx(4 * 3600)
    # Two jobs a unit: two pairs at 1/1.3 each gain 2/1.3, the pair of a and b 1/1.2 + 1/1.5.
    assert found[False]["makespan_s"] == pytest.approx(7200)
    assert found[True]["makespan_s"] == pytest.approx(7200 / (2 / 1.3))
    for policy in ("fifo", "milp-sharing"):
        xi = ["--xi", "xi.csv"] if policy == "milp-sharing" else []
        assert run([*given, *xi, "--policy", policy, "--out", policy]) == 0
        metrics = json.loads((apart / policy / "summary.json").read_text())["metrics"]
        assert metrics["share_of_bound"] == pytest.approx(1)
        assert metrics["makespan_s"] >= metrics["bounds"]["makespan_s"]


def test_where_no_bound_is_known_none_is_given(
    apart: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_application(apart / "apps" / "toy")
    pd.DataFrame(
        {
            "name": ["toy-0"],
            "time": [0],
            "application": ["toy"],
            "num_replicas": [1],
            "batch_size": [64],
        }
    ).to_csv("pollux.csv", index=False)
    given = [
        "--cluster",
        "1x4",
        "--jobs",
        "pollux.csv",
        "--jobs-format",
        "pollux",
        "--option",
        "applications=apps",
    ]
    assert run(["replay", "--bound", *given]) == 0
    why = "no bound is known: 1 of the jobs follow a measured profile, not a curve"
    assert capsys.readouterr().out.splitlines() == [why]
    assert run([*given, "--policy", "fifo", "--out", "pollux"]) == 0
    assert why in capsys.readouterr().out
    metrics = json.loads((apart / "pollux" / "summary.json").read_text())["metrics"]
    assert metrics["bound"] is metrics["share_of_bound"] is None
    assert metrics["bounds"]["why_none"] == why


def test_a_stage_on_nodes_of_its_own_has_no_bound(apart: Path) -> None:
    lucid = [
        "--cluster",
        "2x4",
        "--jobs",
        "jobs.csv",
        "--policy",
        "lucid",
        "--out",
        "lucid",
    ]
    assert run([*lucid]) == 0
    metrics = json.loads((apart / "lucid" / "summary.json").read_text())["metrics"]
    assert metrics["bound"] is None
    assert (
        metrics["bounds"]["why_none"]
        == "no bound is known: --policy lucid runs jobs on further nodes first"
    )


def test_the_published_accounting_has_none(apart: Path) -> None:
    reference = [
        "--option",
        "compat=reference",
        "--skip-rows",
        "0",
        "--policy",
        "equal-share",
    ]
    assert run([*reference, "--out", "reference"]) == 0
    summary = json.loads((apart / "reference" / "summary.json").read_text())
    assert "bound" not in summary["metrics"]
