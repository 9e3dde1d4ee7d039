"""Charts: their numbers against other ways to count, and the content of a page with scripts."""

from __future__ import annotations

import builtins
import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.replay import always_idle
from bft.replay.cli.main import run
from bft.replay.report import charts_of, plotted
from bft.replay.report.chart import Bars, Curves, Heat, cumulative
from bft.replay.report.over_time import held_over_time
from bft.replay.report.trace_charts import by_hour
from bft.replay.studies.run_files import RunFiles, changes_of
from bft.replay.trace.trace_files import read_trace
from bft.replay.trace.trace_statistics import length_histogram

HOSTILE = "</script><img src=x onerror=alert(1)>$$\\alpha$$ {{x}} @y <!--"


def ran(
    folder: Path,
    name: str = "run",
    policy: str = "milp",
    jobs: int = 3,
    pmax: float = 5e4,
) -> Path:
    rows = [
        {"name": f"{HOSTILE}{k}", "Jmin": 1, "Jmax": 4, "Pmax": pmax, "Tsub": f"2021-02-10T00:{k:02}:00Z", "Tcup": 6,
         "Tcdw": 3, "Ns": [0, 1, 4], "Ps": [0, 10, 38], "Os": [0, 10, 38], "user": f"u{k % 2}{HOSTILE}", "model": "m"}
        for k in range(jobs)
    ]  # fmt: skip
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{i}{HOSTILE},1\n" for i in range(4))
        + f"2021-02-10T00:10:00Z,n0{HOSTILE},0\n2021-02-10T00:20:00Z,n0{HOSTILE},1\n"
        + f"2021-02-10T03:00:00Z,n1{HOSTILE},0\n"
    )
    inputs = [
        "-ndmap",
        str(folder / "trace.csv"),
        "--jobs",
        str(folder / "jobs.jsonl"),
        "--backend",
        "exact",
    ]
    assert (
        run(
            [
                *inputs,
                "--policy",
                policy,
                "--out",
                str(folder / name),
                "-print",
                "0",
            ]
        )
        == 0
    )
    return folder / name


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ran(tmp_path_factory.mktemp("charts"))


@pytest.fixture(scope="module")
def page(hostile: Path) -> str:
    assert run(["report", str(hostile)]) == 0
    return hostile.with_name("run.html").read_text("utf-8")


def test_the_same_run_gives_the_same_bytes_also_within_a_process(
    hostile: Path, page: str, tmp_path: Path
) -> None:
    assert run(["report", str(hostile), "-o", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text("utf-8") == page


def test_holders_read_in_blocks_are_those_of_the_whole(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RunFiles.read(hostile).held
    frame = pd.read_parquet(hostile / "allocations.parquet")
    length = (frame["end"] - frame["start"]).to_numpy().astype(np.int64)
    many = (frame["last_unit"] - frame["first_unit"] + 1).to_numpy()
    by_job = pd.Series(length * many).groupby(frame["job"].to_numpy()).sum()
    assert dict(zip(whole.names, whole.unit_ns.tolist(), strict=True)) == {
        **dict.fromkeys(whole.names, 0.0),
        **by_job.to_dict(),
    }
    for rows, most in ((1, 10**6), (3, 5)):
        monkeypatch.setattr("bft.models.tables.ROW_GROUP", rows)
        monkeypatch.setattr("bft.replay.studies.run_files.MAX_SPANS", most)
        held = RunFiles.read(hostile).held
        assert (held.names, held.nodes) == (whole.names, whole.nodes)
        np.testing.assert_array_equal(held.unit_ns, whole.unit_ns)
        pd.testing.assert_series_equal(held.changes, whole.changes)
        longest = np.sort(np.argsort(-length, kind="stable")[:most])
        assert held.longest["first"].tolist() == frame["first_unit"][longest].tolist()
        starts = frame["start"].astype("int64")[longest]
        assert held.longest["begin"].tolist() == starts.tolist()


def test_names_of_jobs_nodes_and_users_are_no_markup(page: str) -> None:
    """What is no script of ours holds no bracket that a name brought along."""
    assert page.count("</script>") == page.count("<script")
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "<img" not in outside
    assert "<!--" not in outside
    assert "&lt;/script&gt;&lt;img" in outside
    for content in re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', page, flags=re.DOTALL
    ):
        assert "<" not in content
        json.loads(content)


def test_what_a_page_says_of_its_origin_is_no_path(page: str, hostile: Path) -> None:
    assert str(hostile.parent) not in page
    assert "trace.csv" in page


def test_a_custom_title(hostile: Path, tmp_path: Path) -> None:
    assert (
        run(
            [
                "report",
                str(hostile),
                "-o",
                str(tmp_path / "p.html"),
                "--title",
                "Blue <Whale>",
            ]
        )
        == 0
    )
    assert (
        "<h1>What training jobs get out of the idle nodes of Blue &lt;Whale&gt;</h1>"
        in ((tmp_path / "p.html").read_text("utf-8"))
    )


def test_every_chart_has_its_numbers_as_a_table_and_a_place_in_the_page(
    hostile: Path, page: str
) -> None:
    charts = charts_of([hostile])
    assert len({chart.key for chart in charts}) == len(charts)
    assert {
        "idle",
        "held",
        "fragments",
        "progress",
        "times",
        "by-user",
    } <= {chart.key for chart in charts}
    for chart in charts:
        assert len(chart.table)
        assert f'<section id="{chart.key}">' in page
        assert f'id="data-{chart.key}"' in page


def test_four_charts_are_shown_and_the_others_are_a_click_away(
    hostile: Path, page: str, tmp_path: Path
) -> None:
    keys = [chart.key for chart in charts_of([hostile])]
    assert keys[:4] == ["idle", "held", "progress", "fragments"]
    shown, more = page.split('<details class="more">')
    for number, key in enumerate(keys):
        assert f'<section id="{key}">' in (shown if number < 4 else more)
    assert f"<summary>{len(keys) - 4} more charts</summary>" in more
    target = tmp_path / "all.html"
    assert run(["report", str(hostile), "--all-charts", "-o", str(target)]) == 0
    assert '<details class="more" open>' in target.read_text("utf-8")


def test_a_page_without_scripts_points_to_the_tables(page: str) -> None:
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert (
        "<noscript><style>.figure, .help, .legend, #all-jobs { display: none }"
        in outside
    )
    assert "the numbers stand in the tables" in outside
    assert outside.count("Data of this chart") == outside.count('class="figure"')


def test_colours_of_units_are_models_and_idle_units_that_nobody_used_are_seen(
    tmp_path: Path,
) -> None:
    """Job a, of model one, holds two of four nodes for an hour of two; b, of model two, one for half an hour."""
    rest = {"Jmin": 1, "Tsub": "2021-02-10T00:00:00Z", "Tcup": 0, "Tcdw": 0}
    line = {"Ns": [0, 4], "Ps": [0, 4], "Os": [0, 4]}
    jobs = [
        {"name": "a", "model": "one", "Jmax": 2, "Pmax": 7200.0, **rest, **line},
        {"name": "b", "model": "two", "Jmax": 1, "Pmax": 1800.0, **rest, **line},
    ]
    (tmp_path / "jobs.jsonl").write_text("\n".join(map(json.dumps, jobs)) + "\n")
    (tmp_path / "trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{i},1\n" for i in range(4))
        + "2021-02-10T01:00:00Z,n0,1\n"
    )
    inputs = ["-ndmap", str(tmp_path / "trace.csv"), "--no-u", "--backend", "exact"]
    jobs_of = ["--jobs", str(tmp_path / "jobs.jsonl"), "--out", str(tmp_path / "run")]
    assert run([*inputs, *jobs_of, "-Tfwd", "600"]) == 0
    assert run(["report", str(tmp_path / "run")]) == 0
    text = (tmp_path / "run.html").read_text("utf-8")
    held = text.partition('<section id="held">')[2].partition("</section>")[0]
    names = re.findall(r"</i>([^<]+)</button>", held)
    assert names == ["one", "two", "idle, not used"]
    assert len(set(re.findall(r'background:(#\w+)"', held))) == 3
    assert "A colour is a model; one held most, 80% of the unit-time" in held
    # 4 units for an hour, of which 2 + 0.5 unit-hours were held.
    assert "37.5% of the idle unit-time was not used (grey)" in held


@pytest.mark.parametrize("pmax", [5e4, 500.0])
def test_areas_hold_the_unit_time_of_the_summary(tmp_path: Path, pmax: float) -> None:
    """Also where jobs finish and nobody is in play: then no decision follows, which would be a row of the steps."""
    folder = ran(tmp_path, pmax=pmax)
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    areas = next(chart for chart in charts_of([folder]) if chart.key == "idle").drawing
    assert isinstance(areas, Curves)
    used = areas.curves[1]
    # Each step is two points of the line.
    area = float((used.y[::2] * (used.x[1::2] - used.x[::2])).sum()) / 1000
    assert area == pytest.approx(metrics["used_unit_s"], rel=1e-6)
    note = next(c for c in charts_of([folder]) if c.key == "idle").note
    assert f"and {metrics['used_share']:.1%} of their time was given to jobs" in note
    assert re.search(r"Means over \d+ (s|min);", note)


@given(
    st.lists(
        st.lists(st.integers(0, 30), unique=True, max_size=8).map(sorted),
        min_size=1,
        max_size=4,
    ),
    st.sets(st.integers(0, 30)),
)
def test_units_in_use_between_decisions_are_those_held(
    bounds: list[list[int]], others: set[int]
) -> None:
    """Against counting at each instant. Decisions are taken at least wherever a job gets a unit."""
    spells = [spell for of in bounds for spell in zip(of[::2], of[1::2], strict=False)]
    count = [
        float(sum(start <= now < end for start, end in spells)) for now in range(31)
    ]
    steps = np.array(sorted({0, *others, *(start for start, _ in spells)}))
    start, end = np.array(spells, dtype=np.int64).reshape(-1, 2).T
    times, used = held_over_time(
        [(steps, np.array(count)[steps])],
        changes_of(pd.DataFrame({"first": 0, "last": 0, "begin": start, "end": end})),
    )
    assert (
        used[np.searchsorted(times, np.arange(31), side="right") - 1].tolist() == count
    )


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=40))
def test_bins_of_lengths_hold_every_fragment(lengths: list[float]) -> None:
    seconds = np.array(lengths)
    histogram = length_histogram(seconds)
    assert sum(row["count"] for row in histogram) == len(lengths)
    assert sum(row["node_s"] for row in histogram) == pytest.approx(seconds.sum())
    for row in histogram:
        inside = (seconds > row["from_s"]) & (seconds <= row["to_s"])
        assert row["count"] == inside.sum()


@given(st.lists(st.floats(0.02, 1e5), min_size=1, max_size=300))
def test_a_distribution_counts_the_values_up_to_each_point(values: list[float]) -> None:
    curve = cumulative("x", pd.Series(values))
    for at, share in zip(curve.x, curve.y, strict=True):
        assert np.mean(np.array(values) <= at) >= share - 1e-9
        assert np.mean(np.array(values) < at) <= share + 1e-9


def test_hours_and_weekdays_are_those_of_the_calendar() -> None:
    wednesday = int(pd.Timestamp("2021-02-10T22:30:00Z").value)
    chart = by_hour(always_idle(3, wednesday, wednesday + 26 * 3600 * 10**9))
    assert chart is not None
    shown = chart.table.set_index("day")
    assert shown.loc["Wed", "23"] == 3.0
    assert shown.loc["Thu"].eq(3.0).all()
    assert np.isnan(shown.loc["Wed", "22"])  # only a half of that hour was observed
    assert shown.drop(["Wed", "Thu"]).isna().all(axis=None)


def test_hours_are_those_of_the_site(tmp_path: Path) -> None:
    """Nodes turn idle at 8 in Kathmandu, a quarter past 2 UTC, on each of three days."""
    rows = [
        f"2021-02-{day}T{hour},n{node},{idle}\n"
        for day in (10, 11, 12) for hour, idle in (("02:15:00Z", 1), ("03:15:00Z", 0)) for node in range(5)
    ]  # fmt: skip
    path = tmp_path / "t.csv"
    path.write_text(f"time,node,idle\n{''.join(rows)}2021-02-12T09:00:00Z,n0,0\n")
    trace = replace(read_trace(path), zone="Asia/Kathmandu")
    chart = by_hour(trace)
    assert chart is not None
    assert isinstance(chart.drawing, Heat)
    assert chart.drawing.x.label == "hour of the day, Asia/Kathmandu"
    shown = chart.table.set_index("day")
    assert shown.loc[["Wed", "Thu", "Fri"], "08"].tolist() == [5.0, 5.0, 5.0]
    assert shown.loc["Thu", ["07", "09"]].tolist() == [0.0, 0.0]
    assert "Most are idle on Wed at 08:00 (5.0)" in chart.note


def test_several_runs_are_compared(hostile: Path, tmp_path: Path) -> None:
    other = ran(tmp_path, "other", "equal-share")
    assert (
        run(["report", str(hostile), str(other), "-o", str(tmp_path / "p.html")]) == 0
    )
    charts = charts_of([hostile, other])
    assert [chart.key for chart in charts[:3]] == [
        "compared",
        "compared-means",
        "compared-times",
    ]
    outcomes = [
        json.loads((folder / "summary.json").read_text())["metrics"]["outcome"]
        for folder in (hostile, other)
    ]
    assert isinstance(charts[0].drawing, Bars)
    table = charts[0].table
    assert table["outcome"].tolist() == outcomes
    assert table["variant"].tolist() == ["milp", "equal-share"]
    opening = re.search(r'class="opening">([^<]+)<', (tmp_path / "p.html").read_text())
    assert opening is not None
    assert outcomes[0] == outcomes[1]
    assert opening[1].startswith("All trained as much; jobs took least time under ")
    assert "your 4 nodes were idle for" in opening[1]
    cut = tmp_path / "cut"
    shutil.copytree(other, cut)
    summary = json.loads((cut / "summary.json").read_text())
    summary["metrics"]["interrupted"] = True
    (cut / "summary.json").write_text(json.dumps(summary))
    assert run(["report", str(hostile), str(cut), "-o", str(tmp_path / "q.html")]) == 0
    warning = "equal-share: The replay was interrupted: these are partial results."
    page = (tmp_path / "q.html").read_text()
    assert re.search(f"<strong>[^<]*{warning}</strong>", page)


def test_a_sweep_is_a_map_over_what_it_varied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [
        {"tfwd_s": tfwd, "max_jobs": jobs, "seed": seed, "outcome": 1e9 * (tfwd + 10 * jobs + seed), "U": None}
        for tfwd in (30.0, 120.0, 600.0) for jobs in (5, 10) for seed in (0, 1)
    ]  # fmt: skip
    points[0]["outcome"] = None  # failed
    table = tmp_path / "results.parquet"
    pd.DataFrame(points).to_parquet(table)
    (chart,) = charts_of([table])
    assert isinstance(chart.drawing, Heat)
    assert (chart.drawing.across, chart.drawing.down) == (
        ("30", "120", "600"),
        ("5", "10"),
    )
    expected = [[tfwd + 10 * jobs + 0.5 for tfwd in (30, 120, 600)] for jobs in (5, 10)]
    expected[0][0] += 0.5  # only the second seed is there
    assert chart.drawing.values.tolist() == expected
    assert "Best: 700,500,000,000 samples at Tfwd 600, maxJ 10." in chart.note
    assert "The stronger a colour, the better." in chart.note
    assert run(["report", str(table)]) == 0
    assert "Which options suit idle nodes" in (tmp_path / "results.html").read_text(
        "utf-8"
    )
    pd.DataFrame(points).assign(tfwd_s=1.0, max_jobs=1).to_parquet(table)
    assert run(["report", str(table), "--force"]) == 2
    assert "expected points that differ in an option" in capsys.readouterr().err
    pd.DataFrame({"a": [1]}).to_parquet(table)
    assert run(["report", str(table), "--force"]) == 2
    assert (
        "is neither a run directory nor a table of a sweep" in capsys.readouterr().err
    )


def test_the_page_of_a_sweep_begins_with_the_answer_and_has_numbers_in_its_cells(
    tmp_path: Path,
) -> None:
    """All jobs in play do 6 % more; the window changes next to nothing, and a point of it failed."""
    points = [
        {"tfwd_s": tfwd, "max_jobs": jobs, "outcome": 1e9 * (106 if jobs == 0 else 100 - jobs / 100) + tfwd * 1e5,
         "jct_s.mean": 3600.0 * (1 + jobs), "node_watts": None, "policy": "milp"}
        for tfwd in (30.0, 120.0, 600.0) for jobs in (0, 5, 10)
    ]  # fmt: skip
    points[-1]["outcome"] = None
    table = tmp_path / "results.parquet"
    pd.DataFrame(points).to_parquet(table)
    argv = ["report", str(table), "-o", str(tmp_path / "sweep.html")]
    assert run(argv) == 0
    text = (tmp_path / "sweep.html").read_text("utf-8")
    opening = re.search(r'<p class="opening">([^<]+)</p>', text)
    assert opening is not None
    assert opening[1] == (
        "All jobs in play: +6.1% samples over maxJ 10; Tfwd hardly matters (at most 0.1% of the outcome)."
    )
    drawings = {chart.key: chart.drawing for chart in charts_of([table])}
    outcome, times = drawings["sweep-outcome"], drawings["sweep-jct_s-mean"]
    assert isinstance(outcome, Heat)
    assert isinstance(times, Heat)
    assert outcome.down == ("5", "10", "no limit")
    assert outcome.values[0] == pytest.approx([99.953, 99.962, 100.01])
    assert times.less_is_better


def test_where_all_is_trained_a_sweep_answers_by_the_times_of_jobs(
    tmp_path: Path,
) -> None:
    """All jobs finish at each window, but the mean completion goes from 10.7 to 13.1 h."""
    points = [
        {"tfwd_s": tfwd, "max_jobs": 0, "outcome": 1e9, "jct_s.mean": jct_s, "jct_to_end_mean_s": jct_s}
        for tfwd, jct_s in ((10.0, 38_520.0), (60.0, 47_160.0), (300.0, 40_000.0))
    ]  # fmt: skip
    table = tmp_path / "results.parquet"
    pd.DataFrame(points).to_parquet(table)
    assert run(["report", str(table), "-o", str(tmp_path / "sweep.html")]) == 0
    text = (tmp_path / "sweep.html").read_text("utf-8")
    answer = "Tfwd 10: as much is trained, but jobs take 10.7 h on average, not 13.1 h"
    assert f"{answer} as with Tfwd 60." in text


def test_figures_for_a_paper_have_titles_and_say_of_what_hours_are(
    hostile: Path,
) -> None:
    for chart in charts_of([hostile]):
        figure = plotted([chart], chart.key)
        assert figure.get_suptitle() == chart.title.replace("$", r"\$")
        labels = {axes.get_xlabel() for axes in figure.axes}
        assert "hours" not in labels
        figure.canvas.draw()
        for axes in figure.axes:
            boxes = [tick.get_window_extent() for tick in axes.get_xticklabels() if tick.get_text()]  # fmt: skip
            assert all(a.x1 <= b.x0 for a, b in pairwise(boxes)), chart.key


def test_a_figure_is_no_folder(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(hostile), "--pdf", str(tmp_path / "fig.pdf")]) == 2
    assert "is a file, expected a folder" in capsys.readouterr().err
    assert not (tmp_path / "fig.pdf").exists()


def test_a_run_that_is_called_without_its_ending_is_named(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(hostile, tmp_path / "mine-itrOut")
    assert run(["report", str(tmp_path / "mine")]) == 2
    assert f"there is {tmp_path / 'mine-itrOut'}" in capsys.readouterr().err


def test_the_page_says_why_idle_time_was_not_used(tmp_path: Path) -> None:
    """Two nodes for two hours: one job on one node for an hour, and nobody for the next."""
    (tmp_path / "trace.csv").write_text(
        "time,a,b\n2021-02-10T00:00:00Z,1,1\n2021-02-10T02:00:00Z,1,1\n"
    )
    job = {
        "name": "j",
        "Jmin": 1,
        "Jmax": 1,
        "Pmax": 3600.0,
        "Tsub": "2021-02-10T00:00:00Z",
        "Tcup": 0,
        "Tcdw": 0,
    }
    late = {**job, "name": "k", "Pmax": 1.0, "Tsub": "2021-02-10T01:59:00Z"}
    rows = [
        json.dumps({**each, "Ns": [0, 1], "Ps": [0, 1], "Os": [0, 1]})
        for each in (job, late)
    ]
    (tmp_path / "jobs.jsonl").write_text("\n".join(rows) + "\n")
    inputs = [
        "-ndmap",
        str(tmp_path / "trace.csv"),
        "--jobs",
        str(tmp_path / "jobs.jsonl"),
        "--no-u",
    ]
    assert run([*inputs, "--policy", "fifo", "--out", str(tmp_path / "run")]) == 0
    note = charts_of([tmp_path / "run"])[0].note
    # A node-hour was spare while j ran, and two of two nodes for 59 minutes after it.
    assert "66% while no job was there; 34% while all jobs that were there ran" in note
    assert run(["report", str(tmp_path / "run")]) == 0
    assert "34% while all jobs that were there" in (tmp_path / "run.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_figures_for_a_paper(hostile: Path, tmp_path: Path, form: str) -> None:
    made = []
    for folder in ("a", "b"):
        assert run(["report", str(hostile), f"--{form}", str(tmp_path / folder)]) == 0
        made.append(
            {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}
        )
    assert made[0] == made[1]
    assert {Path(name).suffix for name in made[0]} == {f".{form}"}
    assert {Path(name).stem for name in made[0]} == {
        chart.key for chart in charts_of([hostile])
    }
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    assert all(content.startswith(starts[form]) for content in made[0].values())
    assert run(["report", str(hostile), f"--{form}", str(tmp_path / "a")]) == 2
    assert (
        run(["report", str(hostile), f"--{form}", str(tmp_path / "a"), "--force"]) == 0
    )


@pytest.mark.parametrize(
    ("package", "option"), [("bokeh", "-o page.html"), ("matplotlib", "--png pictures")]
)
def test_without_the_extra_the_command_that_installs_it_is_named(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str,
    option: str,
) -> None:  # fmt: skip
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    flag, target = option.split()
    assert run(["report", str(hostile), flag, str(tmp_path / target)]) == 2
    err = capsys.readouterr().err
    assert f"needs the package {package}" in err
    assert "pip install bokeh jinja2 matplotlib" in err


def test_a_trace_alone_has_a_page(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(hostile.with_name("trace.csv"))
    capsys.readouterr()
    page = str(tmp_path / "t.html")
    assert run(["trace", "info", trace, "--html", page]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    text = (tmp_path / "t.html").read_text("utf-8")
    for key in ("idle", "fragments", "nodes"):
        assert f'<section id="{key}">' in text
    assert "onerror" not in re.sub(
        r"<script.*?</script>|&lt;img src=x onerror", "", text, flags=re.DOTALL
    )
    assert run(["trace", "info", trace, "--html", str(tmp_path / "t.html")]) == 2
    assert "--force replaces it" in capsys.readouterr().err


def test_the_page_of_a_trace_begins_with_its_headline_and_figures(
    tmp_path: Path,
) -> None:
    """Four nodes of five hours: one idle for two, one for a minute; the first is taken back."""
    (tmp_path / "t.csv").write_text(
        "time,a,b,c,d\n2021-02-10T00:00:00Z,1,0,0,0\n2021-02-10T02:00:00Z,0,0,0,0\n"
        "2021-02-10T04:59:00Z,0,1,0,0\n2021-02-10T05:00:00Z,0,0,0,0\n"
    )
    argv = ["trace", "info", str(tmp_path / "t.csv"), "--html"]
    assert run([*argv, str(tmp_path / "t.html")]) == 0
    text = (tmp_path / "t.html").read_text("utf-8")
    opening, figures, chart = (
        text.index(part) for part in ('class="opening"', 'id="figures"', 'id="idle"')
    )
    assert opening < figures < chart
    headline = text[opening:figures]
    assert (
        "Your 4 nodes were idle for 10.1% of 5 h, which is worth 0.403 nodes."
        in headline
    )
    assert "60 s to start on a node, 98.3% of the idle time is left" in headline
    assert "If a node takes 120 s to return, training yields up to 30.2 node-hours" in headline  # fmt: skip


def test_a_node_that_was_never_idle_leaves_a_page(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "time,a,b\n2021-02-10T00:00:00Z,0,0\n2021-02-10T01:00:00Z,0,0\n"
    )
    assert (
        run(
            [
                "trace",
                "info",
                str(tmp_path / "t.csv"),
                "--html",
                str(tmp_path / "t.html"),
            ]
        )
        == 0
    )
    text = (tmp_path / "t.html").read_text("utf-8")
    assert "Your 2 nodes were never idle in 1 h." in text
