"""`bft-replay compare`: the table, differences against the same by hand, reused runs, failures, and invalid input."""

import html
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bft import compare
from bft.models import Curve, InputError, Job, JobTable, write_jobs
from bft.models.writing import duration
from bft.replay import NodeTrace, Options, execute, from_changes
from bft.replay.cli.main import run
from bft.replay.report import charts_of
from bft.replay.results.figures import FIGURES
from bft.replay.studies.comparison import interval, relative
from bft.replay.studies.run_files import DAY_NS, lost, read_run, work_by_day
from bft.replay.trace.node_trace import SECOND_NS
from bft.replay.trace.trace_files import write_trace

FILES: dict[str, Any] = {
    "node_trace": "trace.parquet",
    "jobs": "jobs.parquet",
    "dedicated": False,
}
HERE = ["--workers", "0", "--no-u", "--policy"]
TWO = [*HERE, "fifo,equal-share"]


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
    capsys: pytest.CaptureFixture[str],
    files: list[str],
    *args: str,
    of: str = "fifo,equal-share",
) -> dict[str, Any]:
    """What `compare` finds out of policies, as JSON."""
    assert run(["compare", *files, *HERE, of, *args, "--json"]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def summary_of(folder: str | Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return content


def test_the_table_holds_what_each_run_alone_reports(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = document(capsys, files, "-maxJ", "3,0")["variants"]
    assert [row["variant"] for row in rows] == [
        f"{policy}, -maxJ {most}" for policy in ("fifo", "equal-share") for most in (3, 0)
    ]  # fmt: skip
    alone = execute(Options(**FILES, policy="fifo", max_jobs=3), "alone")["metrics"]
    for path, figure in FIGURES.items():
        # What no run has, such as what only some users state, has no column.
        assert rows[0].get(path) == (figure.of(alone) if path in rows[0] else None)
        assert path in rows[0] or not figure.of(alone)
    assert {"outcome", "share_of_bound", "jct_s.mean", "longest_wait_s", "preemption_cost"} <= set(rows[0])  # fmt: skip
    assert "costs.additional_kwh" not in rows[0]


def test_energy_money_and_co2_have_columns_where_they_are_stated(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stated = ["--node-watts", "100,500", "--price-per-node-hour", "2", "--co2-per-kwh", "300"]  # fmt: skip
    found = document(capsys, files, *stated)
    for row in found["variants"]:
        costs = summary_of(found["runs"][row["variant"]][0])["metrics"]["costs"]
        assert {name: row[name] for name in FIGURES if name.startswith("costs.")} == {
            "costs.additional_kwh": costs["additional_kwh"],
            "costs.additional_co2_kg": pytest.approx(costs["additional_kwh"] * 0.3),
            "costs.value_used": pytest.approx(costs["used_node_h"] * 2),
        }
    assert run(["compare", *files, *TWO, *stated]) == 0
    assert "more energy, kWh" in capsys.readouterr().out


def test_differences_are_those_of_the_runs(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, files)
    folders = [Path(found["runs"][name][0]) for name in ("fifo", "equal-share")]
    outcome, times = found["differences"]
    one, other = (summary_of(folder)["metrics"]["outcome"] for folder in folders)
    assert outcome["value"] == pytest.approx(other / one - 1)
    assert outcome["days"]["pairs"] == outcome["count_days"] == 9
    assert outcome["days"]["low"] <= outcome["value"] <= outcome["days"]["high"]
    jobs = [pd.read_parquet(each / "jobs.parquet").set_index("name")["jct_s"] for each in folders]  # fmt: skip
    both = jobs[0].notna() & jobs[1].notna()
    assert times["jobs"] == both.sum()
    longer = jobs[1][both].sum() / jobs[0][both].sum() - 1
    assert times["value"] == pytest.approx(longer)
    direction = "more" if outcome["value"] > 0 else "less"
    told = f"equal-share yields {100 * abs(outcome['value']):.1f} % {direction} than fifo;"  # fmt: skip
    assert told in found["sentences"][0]
    assert "the 9 days' 95 % interval is" in found["sentences"][0]


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
    by_day = work_by_day(read_run(Path("run")).steps, start, 10)
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
    first = document(capsys, files)
    stamps = {path: path.stat().st_mtime_ns for path in Path("compare-study").rglob("summary.json")}  # fmt: skip
    assert run(["compare", *files, *TWO[:-1], "fifo,equal-share,srtf"]) == 0
    assert "3 replays, 2 done before" in capsys.readouterr().err
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert document(capsys, files) == first
    # Another content of an input is another configuration.
    write_trace(small_trace(days=8), Path("trace.parquet"))
    assert document(capsys, files) != first


def test_split_gives_each_group_its_own_jobs(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, files, "--split", "model")
    folder = Path(found["runs"]["fifo"][0])
    jobs = pd.read_parquet(folder / "jobs.parquet").set_index("name")
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
        waits = mine["without_units_s"].mean()
        assert row["without_units_s.mean"] == pytest.approx(waits)
    whole = summary_of(folder)["metrics"]["without_units_s"]
    assert jobs["without_units_s"].mean() == pytest.approx(whole["mean"])
    assert jobs["without_units_s"].max() == pytest.approx(whole["longest"])
    users = document(capsys, files, "--split", "user")["variants"]
    assert {row["user"] for row in users} == {"u0", "u1", "(none)"}
    sizes = document(capsys, files, "--split", "size")["variants"]
    assert [(row["size"], row["jobs"]) for row in sizes[:2]] == [
        ("1", int((jobs["units_asked"] == 1).sum())),
        ("2-4", int((jobs["units_asked"] > 1).sum())),
    ]
    sizes = document(capsys, files, "--split", "size:1")["variants"]
    assert [row["size"] for row in sizes[:2]] == ["1", "> 1"]
    for split, said in (
        ("vc", "no job states it"),
        ("queue", "expected one of vc, user, model, size, or sizes"),
        ("size:8,4", "as in size:8,64, not 'size:8,4'"),
        ("vc:8", "not 'vc:8'"),
    ):
        assert run(["compare", *files, *TWO, "--split", split]) == 2
        assert said in capsys.readouterr().err


def test_seconds_without_units_are_those_that_no_allocation_covers(
    files: list[str],
) -> None:
    """Counted by the engine there, from the allocations here."""
    assert run([*files, "--no-u", "--policy", "equal-share", "--out", "run"]) == 0
    held = pd.read_parquet("run/allocations.parquet")
    end = pd.Timestamp(summary_of("run")["metrics"]["window_end"])
    for _, job in pd.read_parquet("run/jobs.parquet").iterrows():
        left = min(job["finish"], end) if pd.notna(job["finish"]) else end
        mine = held[held["job"] == job["name"]].sort_values("start")
        waited, reached = pd.Timedelta(0), job["submit"]
        for start, stop in zip(mine["start"], mine["end"], strict=True):
            waited += max(start - reached, pd.Timedelta(0))
            reached = max(reached, stop)
        waited += max(left - reached, pd.Timedelta(0))
        assert job["without_units_s"] == pytest.approx(waited.total_seconds(), abs=1e-6)


def test_a_comparison_is_drawn(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--seed", "0:2", "--split", "model", "--svg", "figures"]
    drawn = []
    for _ in range(2):
        document(capsys, files, *args)
        drawn.append({path.stem: path.read_text() for path in Path("figures").iterdir()})  # fmt: skip
    assert drawn[0] == drawn[1]
    rest = ("", "-means", "-times", "-jct-by-model", "-without-by-model")
    assert drawn[0].keys() == {f"compared{each}" for each in rest}
    for key in ("-times", "-jct-by-model", "-without-by-model"):  # an entry for each
        assert all(name in drawn[0][f"compared{key}"] for name in ("fifo", "equal-share"))  # fmt: skip
    groups = drawn[0]["compared-without-by-model"]
    assert ">big<" in groups
    assert ">small<" in groups


def test_seeds_are_one_variant_and_have_an_interval(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_jobs(small_jobs(3), "jobs.parquet")
    few = ("population=4", "generations=2", "interval_s=7200")
    quick = [part for each in few for part in ("--set", each)]
    seeds = ["--seed", "0:5", "-maxJ", "2,0"]
    found = document(capsys, files, *quick, *seeds, of="pollux")
    assert [row["seeds"] for row in found["variants"]] == [5, 5]
    assert found["differences"][0]["seeds"]["pairs"] == 5
    assert "the 5 seeds' 95 % interval is" in found["sentences"][0]


def test_files_of_every_kind(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = ("csv", "parquet", "json", "md")
    outputs = [part for kind in kinds for part in ("-o", f"table.{kind}")]
    assert run(["compare", *files, *TWO, *outputs]) == 0
    shown = capsys.readouterr().out
    frames = pd.read_csv("table.csv"), pd.read_parquet("table.parquet")
    assert frames[0]["outcome"].tolist() == pytest.approx(frames[1]["outcome"].tolist())
    sentence = json.loads(Path("table.json").read_text())["sentences"][0]
    text = Path("table.md").read_text()
    assert sentence in shown
    assert sentence in text
    assert text.startswith("fifo: 4 of 12 jobs run on 3 units (Jreq)")
    assert "\n\n|  | outcome, samples |" in text
    assert run(["compare", *files, *TWO, "-o", "table.xlsx"]) == 2
    assert "expected a name that ends in .csv" in capsys.readouterr().err


def test_variants_have_names_and_options_of_their_own(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    variants = ("short: --policy milp --backend exact -Tfwd 10", "queue: --policy fifo")
    named = [part for each in variants for part in ("--variant", each)]
    assert run(["compare", *files, *named, "--workers", "0", "--no-u", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["variants"]
    assert [row["variant"] for row in rows] == ["short", "queue"]


def test_failures_are_reported_and_the_other_variants_compared(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    curve = Curve([0, 9], [0, 9])
    jobs = (*small_jobs(), Job("wide", 0, 9, 9, 1.0, 0, 0, curve, curve))
    write_jobs(JobTable(jobs), "jobs.parquet")  # rigid policies refuse it
    assert run(["compare", *files, *TWO, "-maxJ", "3,0"]) == 3
    said = capsys.readouterr()
    assert "warning: fifo, -maxJ 3 failed:" in said.err
    assert "equal-share, -maxJ 0 yields" in said.out
    assert run(["compare", *files, *TWO]) == 2
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
        (["--policy", "fifo,milp-sharing"], "milp-sharing: --policy milp-sharing shares units and needs --xi"),
        (["--policy", "fifo,srtf", "-ndmap", "no.parquet"], "no.parquet"),
        (["--variant", "a: --policy fifo", "--variant", "a: --policy srtf"], "two variants are called 'a'"),
        (["--policy", "fifo,srtf,fifo"], "--policy: fifo is given twice"),
    ],
)  # fmt: skip
def test_invalid_input_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    assert run(["compare", "--workers", "0", *args]) == 2
    assert said in capsys.readouterr().err
    assert not list(here.iterdir())


def test_in_python_from_what_is_in_memory(here: Path) -> None:
    named = {"queue": {"policy": "fifo"}, "share": {"policy": "equal-share"}}
    found = compare(small_trace(), small_jobs(), named, dedicated=False, study="study", workers=0)  # fmt: skip
    assert list(found.frame["variant"]) == ["queue", "share"]
    assert found.sentences()[0].startswith("share yields")
    with pytest.raises(InputError, match="unknown option 'polcy'"):
        compare(variants={"a": {"polcy": "fifo"}, "b": {}}, workers=0)


# --- the page ------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(files: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Two runs of one policy each, and one of fewer jobs."""
    write_jobs(small_jobs(11), "fewer.parquet")
    for folder, table, policy in (
        ("first", "jobs", "fifo"),
        ("second", "jobs", "equal-share"),
        ("other", "fewer", "equal-share"),
    ):
        made = [*files[:2], "--jobs", f"{table}.parquet", "--no-u", "--policy", policy]
        assert run([*made, "--out", folder]) == 0
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
        "longest stretch without",
        "Finished (UTC)",
    ):
        assert title in page
    finish = pd.read_parquet("first/jobs.parquet")["finish"].dropna().iloc[0]
    assert f"{finish:%Y-%m-%d %H:%M}" in page


# --- intervals against what is known ---------------------------------------------------------------------


def test_an_interval_covers_the_truth_about_as_often_as_promised() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        base = rng.lognormal(0, 0.5, 30)
        ours = base * rng.normal(1.05, 0.1, 30)
        found = interval(ours, base, least=7)
        assert found is not None
        covered += found.low <= 0.05 <= found.high
    assert (
        covered >= 51
    )  # of 60; 95 % would be 57, and fewer than 51 come once in 1,000


def test_pairs_that_differ_by_one_factor_leave_no_doubt() -> None:
    theirs = np.arange(1.0, 9.0)
    found = interval(theirs * 1.04, theirs, least=7)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.04, 0.04))
    assert interval(theirs[:6], theirs[:6], least=7) is None
    assert relative(theirs, theirs * 0) is None
