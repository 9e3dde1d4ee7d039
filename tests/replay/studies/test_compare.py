"""`bft-replay compare`: the table, differences against the same by hand, reused runs, failures, and invalid input."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bft import compare
from bft.models import Curve, InputError, Job, JobTable, tables, write_jobs
from bft.replay import NodeTrace, Options, execute, from_changes
from bft.replay.cli.main import run
from bft.replay.results.figures import FIGURES
from bft.replay.studies.comparison import interval, relative
from bft.replay.studies.run_files import DAY_NS, RunFiles, lost, work_by_day
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import write_trace

FILES: dict[str, Any] = {
    "node_trace": "trace.parquet",
    "jobs": "jobs.parquet",
    "dedicated": False,
}
HERE = ["--workers", "0", "--no-u"]


def small_trace(days: float = 9, nodes: int = 4) -> NodeTrace:
    """Nodes that come and go every few hours."""
    rng = np.random.default_rng(3)
    times = np.sort(rng.integers(0, int(days * DAY_NS / SECOND_NS), 40)) * SECOND_NS
    node, idle = rng.integers(0, nodes, 40).astype(np.int32), rng.random(40) < 0.7
    idle[0] = True
    return from_changes(
        [f"n{k}" for k in range(nodes)], times, node, idle, end=round(days * DAY_NS)
    )


def small_jobs(count: int = 12) -> JobTable:
    curve = Curve([0, 1, 2, 4], [0, 10, 18, 30])
    return JobTable(
        tuple(
            Job(
                f"j{k}",
                k * 15 * 3600 * SECOND_NS,
                1,
                4,
                pmax=4e5 * (1 + k % 4),
                tcup_s=60,
                tcdw_s=30,
                scalability=curve,
                objective=curve,
                jreq=1 + k % 3,
                model="big" if k % 3 else "small",
                user="" if k == 0 else f"u{k % 2}",
            )
            for k in range(count)
        )
    )


@pytest.fixture
def files(here: Path) -> list[str]:
    write_trace(small_trace(), here / "trace.parquet")
    write_jobs(small_jobs(), here / "jobs.parquet")
    return ["-ndmap", "trace.parquet", "--jobs", "jobs.parquet"]


def document(
    capsys: pytest.CaptureFixture[str], *args: str, code: int = 0
) -> dict[str, Any]:
    assert run([*args, "--json"]) == code
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_the_table_holds_what_each_run_alone_reports(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(
        capsys, "compare", *files, *HERE, "--policy", "fifo,equal-share", "-maxJ", "3,0"
    )
    labels = [row["variant"] for row in found["variants"]]
    assert labels == [
        "fifo, -maxJ 3",
        "fifo, -maxJ 0",
        "equal-share, -maxJ 3",
        "equal-share, -maxJ 0",
    ]
    alone = execute(
        Options(**FILES, policy="fifo", max_jobs=3),
        "alone",
    )["metrics"]
    row = found["variants"][0]
    assert row["outcome"] == alone["outcome"]
    assert row["share_of_bound"] == alone["share_of_bound"]
    for path, figure in FIGURES.items():
        # What no run has, such as what only some users state, has no column.
        assert row.get(path) == (figure.of(alone) if path in row else None)
        assert path in row or not figure.of(alone)
    assert {"jct_s.mean", "longest_wait_s", "preemption_cost"} <= set(row)
    assert "costs.additional_kwh" not in row


def test_energy_money_and_co2_have_columns_where_they_are_stated(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stated = [
        "--node-watts",
        "100,500",
        "--price-per-node-hour",
        "2",
        "--co2-per-kwh",
        "300",
    ]
    found = document(
        capsys,
        "compare",
        *files,
        *HERE,
        "--policy",
        "fifo,equal-share",
        *stated,
    )
    for row in found["variants"]:
        folder = Path(found["runs"][row["variant"]][0])
        costs = json.loads((folder / "summary.json").read_text())["metrics"]["costs"]
        assert {name: row[name] for name in FIGURES if name.startswith("costs.")} == {
            "costs.additional_kwh": costs["additional_kwh"],
            "costs.additional_co2_kg": pytest.approx(costs["additional_kwh"] * 0.3),
            "costs.value_used": pytest.approx(costs["used_node_h"] * 2),
        }
    assert (
        run(
            [
                "compare",
                *files,
                *HERE,
                "--policy",
                "fifo,equal-share",
                *stated,
            ]
        )
        == 0
    )
    assert "more energy, kWh" in capsys.readouterr().out


def test_differences_are_those_of_the_runs(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, "compare", *files, *HERE, "--policy", "fifo,equal-share")
    fifo, equal = (Path(found["runs"][name][0]) for name in ("fifo", "equal-share"))
    outcome, times = found["differences"]
    works = [
        json.loads((folder / "summary.json").read_text())["metrics"]["outcome"]
        for folder in (fifo, equal)
    ]
    assert outcome["value"] == pytest.approx(works[1] / works[0] - 1)
    assert outcome["days"]["pairs"] == outcome["count_days"] == 9
    assert outcome["days"]["low"] <= outcome["value"] <= outcome["days"]["high"]
    jobs = [
        pd.read_parquet(folder / "jobs.parquet").set_index("name")["jct_s"]
        for folder in (fifo, equal)
    ]
    both = jobs[0].notna() & jobs[1].notna()
    assert times["jobs"] == both.sum()
    assert times["value"] == pytest.approx(
        jobs[1][both].sum() / jobs[0][both].sum() - 1
    )
    sentence = found["sentences"][0]
    direction = "more" if outcome["value"] > 0 else "less"
    assert (
        f"equal-share yields {abs(outcome['value']):.1%}".replace(
            "%", f" % {direction} than fifo;"
        )
        in sentence
    )
    assert "the 9 days' 95 % interval is" in sentence


def test_work_by_day_adds_up_and_is_linear_between_decisions(files: list[str]) -> None:
    summary = execute(
        Options(
            node_trace="trace.parquet",
            jobs="jobs.parquet",
            dedicated=False,
            backend="exact",
        ),
        "run",
    )
    steps = pd.read_parquet("run/steps.parquet")
    start = steps["time"].iloc[0].value
    by_day = work_by_day(RunFiles.read(Path("run")).steps, start, 10)
    assert by_day.sum() == pytest.approx(summary["metrics"]["outcome"])
    # Day by day, by hand: each row's progress, cut at midnights.
    expected = np.zeros(10)
    rows = list(zip(steps["time"].astype("int64"), steps["progress"], strict=True))
    for (begin, _), (end, progress) in pairwise(rows):
        for day in range(10):
            low, high = (
                max(begin, start + day * DAY_NS),
                min(end, start + (day + 1) * DAY_NS),
            )
            expected[day] += progress * max(high - low, 0) / max(end - begin, 1)
    assert by_day == pytest.approx(expected)


def test_an_existing_run_is_reused(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["compare", *files, *HERE, "--policy", "fifo,srtf"]
    first = document(capsys, *args)
    stamps = {
        path: path.stat().st_mtime_ns
        for path in Path("compare-study").rglob("summary.json")
    }
    assert run([*args, "--policy", "equal-share"]) == 0
    assert "3 replays, 2 done before" in capsys.readouterr().err
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert document(capsys, *args) == first
    # Another content of an input is another configuration.
    write_trace(small_trace(days=8), Path("trace.parquet"))
    assert document(capsys, *args) != first


@pytest.mark.usefixtures("files")
def test_waits_are_the_same_when_holdings_are_read_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_files = ["-ndmap", "trace.parquet", "--jobs", "jobs.parquet", "--no-u"]
    assert run(["replay", *run_files, "--policy", "equal-share", "--out", "run"]) == 0
    whole = RunFiles.read(Path("run")).waits
    assert len(pd.read_parquet("run/allocations.parquet")) > 20
    monkeypatch.setattr(tables, "ROW_GROUP", 5)
    pd.testing.assert_frame_equal(RunFiles.read(Path("run")).waits, whole)


def test_split_gives_each_group_its_own_jobs(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(
        capsys,
        "compare",
        *files,
        *HERE,
        "--policy",
        "fifo,equal-share",
        "--split",
        "model",
    )
    folder = Path(found["runs"]["fifo"][0])
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    of_fifo = RunFiles.read(folder)
    jobs = of_fifo.jobs.join(of_fifo.waits)
    assert [(row["variant"], row["model"]) for row in found["variants"]] == [
        (policy, model)
        for policy in ("fifo", "equal-share")
        for model in ("big", "small")
    ]
    for row in found["variants"][:2]:
        mine = jobs[jobs["model"] == row["model"]]
        assert row["jobs"] == len(mine)
        assert row["outcome"] == pytest.approx(mine["work"].sum())
        assert row["lost"] == pytest.approx(lost(mine).sum())
        assert row["longest_wait_s"] == pytest.approx(mine["longest_wait_s"].max())
        assert row["without_units_s.mean"] == pytest.approx(mine["waiting_s"].mean())
    assert jobs["longest_wait_s"].max() == pytest.approx(metrics["longest_wait_s"])
    # Counted from the allocations here, by the engine there.
    assert jobs["waiting_s"].mean() == pytest.approx(metrics["without_units_s"]["mean"])
    assert jobs["waiting_s"].max() == pytest.approx(
        metrics["without_units_s"]["longest"]
    )
    users = document(
        capsys,
        "compare",
        *files,
        *HERE,
        "--policy",
        "fifo,equal-share",
        "--split",
        "user",
    )
    assert {row["user"] for row in users["variants"]} == {"u0", "u1", "(none)"}
    assert (
        run(["compare", *files, *HERE, "--policy", "fifo,equal-share", "--split", "vc"])
        == 2
    )
    assert "no job states it" in capsys.readouterr().err
    sizes = document(
        capsys,
        "compare",
        *files,
        *HERE,
        "--policy",
        "fifo,equal-share",
        "--split",
        "size:1",
    )
    assert [(row["size"], row["jobs"]) for row in sizes["variants"][:2]] == [
        ("1", int((jobs["units_asked"] == 1).sum())),
        ("over 1", int((jobs["units_asked"] > 1).sum())),
    ]
    assert (
        run(
            [
                "compare",
                *files,
                *HERE,
                "--policy",
                "fifo,equal-share",
                "--split",
                "size:8,4",
            ]
        )
        == 2
    )
    assert "sizes such as size:8,64, not 'size:8,4'" in capsys.readouterr().err


def test_a_comparison_is_drawn(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    args = [
        "compare",
        *files,
        *HERE,
        "--policy",
        "fifo,equal-share",
        "--seed",
        "0:2",
    ]
    document(capsys, *args, "--split", "model", "--svg", "figures")
    names = {path.name for path in Path("figures").iterdir()}
    assert names == {
        f"compared{rest}.svg"
        for rest in (
            "",
            "-means",
            "-times",
            "-jct-by-model",
            "-without-by-model",
        )
    }
    for name in names - {
        "compared.svg",
        "compared-means.svg",
    }:  # an entry for each variant
        text = Path("figures", name).read_text()
        assert "fifo" in text, name
        assert "equal-share" in text, name
    groups = Path("figures/compared-without-by-model.svg").read_text()
    assert ">big<" in groups
    assert ">small<" in groups
    first = {path.name: path.read_bytes() for path in Path("figures").iterdir()}
    document(capsys, *args, "--split", "model", "--svg", "figures")
    assert {path.name: path.read_bytes() for path in Path("figures").iterdir()} == first


def test_seeds_are_one_variant_and_have_an_interval(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_jobs(small_jobs(3), "jobs.parquet")
    quick = [
        "--set",
        "population=4",
        "--set",
        "generations=2",
        "--set",
        "interval_s=7200",
    ]
    args = [
        "compare",
        *files,
        *HERE,
        "--policy",
        "pollux",
        "--seed",
        "0:5",
        *quick,
        "-maxJ",
        "2,0",
    ]
    found = document(capsys, *args)
    assert [row["seeds"] for row in found["variants"]] == [5, 5]
    assert found["differences"][0]["seeds"]["pairs"] == 5
    assert "the 5 seeds' 95 % interval is" in found["sentences"][0]


def test_files_of_every_kind(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [
        part
        for suffix in ("csv", "parquet", "json", "md")
        for part in ("-o", f"table.{suffix}")
    ]
    assert (
        run(["compare", *files, *HERE, "--policy", "fifo,equal-share", *outputs]) == 0
    )
    shown = capsys.readouterr().out
    frames = [pd.read_csv("table.csv"), pd.read_parquet("table.parquet")]
    assert frames[0]["outcome"].to_numpy() == pytest.approx(
        frames[1]["outcome"].to_numpy()
    )
    content = json.loads(Path("table.json").read_text())
    assert content["sentences"][0] in shown
    assert content["sentences"][0] in Path("table.md").read_text()
    text = Path("table.md").read_text()
    assert text.startswith("fifo: 4 of 12 jobs run on 3 units (Jreq)")
    assert "\n\n|  | outcome, samples |" in text
    assert (
        run(["compare", *files, *HERE, "--policy", "fifo,srtf", "-o", "table.xlsx"])
        == 2
    )
    assert "expected a name that ends in .csv" in capsys.readouterr().err


def test_named_variants_and_a_plan_file(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    named = [
        "--variant",
        "short: --policy milp --backend exact -Tfwd 10",
        "--variant",
        "queue: --policy fifo",
    ]
    by_flags = document(capsys, "compare", *files, *HERE, *named)
    Path("plan.toml").write_text(
        "[options]\nnode-trace = 'trace.parquet'\njobs = 'jobs.parquet'\n"
        "[variants.short]\npolicy = 'milp'\nbackend = 'exact'\nTfwd = 10\n[variants.queue]\npolicy = 'fifo'\n"
    )
    assert document(capsys, "compare", *HERE, "--plan", "plan.toml") == by_flags
    assert [row["variant"] for row in by_flags["variants"]] == ["short", "queue"]


def test_run_directories_are_compared_as_they_are(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for policy in ("fifo", "equal-share"):
        assert run([*files, "--no-u", "--policy", policy, "--out", policy]) == 0
    capsys.readouterr()
    found = document(capsys, "compare", "fifo", "equal-share")
    assert [row["variant"] for row in found["variants"]] == ["fifo", "equal-share"]
    assert run(["compare", "fifo"]) == 2
    assert run(["compare", "fifo", "trace.parquet"]) == 2
    assert "is not a run directory" in capsys.readouterr().err


def test_failures_are_reported_and_the_other_variants_compared(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    wide = small_jobs()
    jobs = [
        *wide,
        Job("wide", 0, 9, 9, 1.0, 0, 0, Curve([0, 9], [0, 9]), Curve([0, 9], [0, 9])),
    ]
    write_jobs(JobTable(tuple(jobs)), "jobs.parquet")  # rigid policies refuse it
    assert (
        run(["compare", *files, *HERE, "--policy", "equal-share,fifo", "-maxJ", "3,0"])
        == 3
    )
    said = capsys.readouterr()
    assert "warning: fifo, -maxJ 3 failed:" in said.err
    assert "equal-share, -maxJ 0 yields" in said.out
    assert run(["compare", *files, *HERE, "--policy", "equal-share,fifo"]) == 2
    assert "only 1 of 2 variants could be replayed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--policy", "fifo"], "only one variant"),
        (["--policy", "fifo,fivo"], "'fivo' is not one of"),
        (["-Tfwd", "10,-3"], "expected a number of seconds > 0"),
        (["--seed", "5:2"], "expected a range of 1 to"),
        (["--seed", "0:x"], "expected a range such as"),
        (["--variant", "no colon"], "expected 'NAME: OPTIONS'"),
        (
            ["--policy", "fifo,milp-sharing"],
            "milp-sharing: --policy milp-sharing shares units and needs --xi",
        ),
        (["--policy", "fifo,srtf", "-ndmap", "no.parquet"], "no.parquet"),
        (["--plan", "none.toml"], "none.toml: no such file"),
    ],
)
def test_invalid_input_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    assert run(["compare", "--workers", "0", *args]) == 2
    assert said in capsys.readouterr().err
    assert not list(here.iterdir())


def test_in_python_from_what_is_in_memory(here: Path) -> None:
    found = compare(
        small_trace(),
        small_jobs(),
        {"queue": {"policy": "fifo"}, "share": {"policy": "equal-share"}},
        dedicated=False,
        study="study",
        workers=0,
    )
    assert list(found.frame["variant"]) == ["queue", "share"]
    assert found.sentences()[0].startswith("share yields")
    with pytest.raises(InputError, match="unknown option 'polcy'"):
        compare(variants={"a": {"polcy": "fifo"}, "b": {}}, workers=0)


# --- intervals against what is known ---------------------------------------------------------------------


def test_an_interval_covers_the_truth_about_as_often_as_promised() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        base = rng.lognormal(0, 0.5, 30)
        ours = base * rng.normal(1.05, 0.1, 30)
        found = interval(ours, base, 7)
        assert found is not None
        covered += found.low <= 0.05 <= found.high
    assert (
        covered >= 51
    )  # of 60; 95 % would be 57, and fewer than 51 come once in 1,000


def test_pairs_that_differ_by_one_factor_leave_no_doubt() -> None:
    theirs = np.arange(1.0, 9.0)
    found = interval(theirs * 1.04, theirs, 7)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.04, 0.04))
    assert interval(theirs[:6], theirs[:6], 7) is None
    assert relative(theirs, theirs * 0) is None
