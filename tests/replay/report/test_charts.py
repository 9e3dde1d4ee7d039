"""Charts: their numbers against other ways to count, and the content of a page with scripts."""

import builtins
import json
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.replay.cli.main import run
from bft.replay.report import charts_of, plotted
from bft.replay.report.chart import Bars, Curves, distribution, held_over_time
from bft.replay.studies.run_files import changes_of, read_run
from bft.replay.trace.trace_statistics import length_histogram

HOSTILE = "</script><img src=x onerror=alert(1)>$$\\alpha$$ {{x}} @y <!--"
Page = Callable[..., str]
Told = Callable[..., str]
Ran = Callable[..., Path]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose jobs, users and nodes have names that would act in a page; equal-share's lies beside it."""
    folder = tmp_path_factory.mktemp("charts")
    curve = {"Ns": [0, 1, 4], "Ps": [0, 10, 38], "Os": [0, 10, 38]}
    rows = [
        {"name": f"{HOSTILE}{k}", "Jmin": 1, "Jmax": 4, "Pmax": 5e4, "Tsub": f"2021-02-10T00:{k:02}:00Z", "Tcup": 6,
         "Tcdw": 3, **curve, "user": f"u{k % 2}{HOSTILE}", "model": "m"}
        for k in range(3)
    ]  # fmt: skip
    (folder / "jobs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{i}{HOSTILE},1\n" for i in range(4))
        + f"2021-02-10T00:10:00Z,n0{HOSTILE},0\n2021-02-10T00:20:00Z,n0{HOSTILE},1\n"
        + f"2021-02-10T03:00:00Z,n1{HOSTILE},0\n"
    )
    inputs = ["-ndmap", str(folder / "trace.csv"), "--jobs", str(folder / "jobs.jsonl")]
    for name, policy in (("run", "milp"), ("other", "equal-share")):
        more = ["--backend", "exact", "--policy", policy, "--out", str(folder / name)]
        assert run([*inputs, *more, "-print", "0"]) == 0
    return folder / "run"


def outside(text: str) -> str:
    """A page without its scripts."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def opening(text: str) -> str:
    """The first sentences of a page."""
    found = re.search(r'<p class="opening">([^<]+)</p>', text)
    assert found is not None
    return found[1]


def test_the_same_run_gives_the_same_bytes_also_within_a_process(
    hostile: Path, page: Page
) -> None:
    assert page(hostile) == page(hostile)


def test_the_longest_holdings_are_kept_and_all_are_counted(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.read_parquet(hostile / "allocations.parquet")
    length = (frame["end"] - frame["start"]).to_numpy().astype(np.int64)
    many = (frame["last_unit"] - frame["first_unit"] + 1).to_numpy()
    by_job = pd.Series(length * many).groupby(frame["job"].to_numpy()).sum()
    monkeypatch.setattr("bft.replay.studies.run_files.MAX_SPANS", 5)
    held = read_run(hostile).held
    counted = dict(zip(held.names, held.unit_ns.tolist(), strict=True))
    assert counted == dict.fromkeys(held.names, 0.0) | by_job.to_dict()
    longest = np.sort(np.argsort(-length, kind="stable")[:5])
    assert held.longest["first"].tolist() == frame["first_unit"][longest].tolist()
    starts = frame["start"].astype("int64")[longest]
    assert held.longest["begin"].tolist() == starts.tolist()


def test_names_of_jobs_nodes_and_users_are_no_markup(hostile: Path, page: Page) -> None:
    """What is no script of ours holds no bracket that a name brought along; and no path leaves the machine."""
    text = page(hostile, "--title", "Blue <Whale>")
    assert text.count("</script>") == text.count("<script")
    seen = outside(text)
    assert not [part for part in ("<img", "<!--") if part in seen]
    assert "&lt;/script&gt;&lt;img" in seen
    assert "of the idle nodes of Blue &lt;Whale&gt;</h1>" in seen
    data = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text, flags=re.DOTALL)  # fmt: skip
    assert data
    for content in data:
        assert "<" not in content
        json.loads(content)
    assert str(hostile.parent) not in text
    assert "trace.csv" in text


def test_four_charts_are_shown_and_the_others_are_a_click_away(
    hostile: Path, page: Page
) -> None:
    """Each has a place in the page, and its numbers as a table, to which a page without scripts points."""
    charts, text = charts_of([hostile]), page(hostile)
    keys = [chart.key for chart in charts]
    assert keys == ["idle", "held", "progress", "fragments", "times"]
    shown, more = text.split('<details class="more">')
    for number, chart in enumerate(charts):
        assert len(chart.table)
        assert f'<section id="{chart.key}">' in (shown if number < 4 else more)
        assert f'id="data-{chart.key}"' in text
    assert "<summary>1 more chart</summary>" in more
    seen = outside(text)
    assert "<noscript><style>.figure, .help, .legend, #all-jobs { display: none }" in seen  # fmt: skip
    assert "the numbers stand in the tables" in seen
    assert seen.count("Data of this chart") == seen.count('class="figure"')


def test_colours_of_units_are_models_and_idle_units_that_nobody_used_are_seen(
    traced: Told, ran: Ran, page: Page
) -> None:
    """Job a, of model one, holds two of four nodes for an hour of two; b, of model two, one for half an hour."""
    line = {"Ns": [0, 4], "Ps": [0, 4], "Os": [0, 4]}
    traced("abcd", "00:00 1111", "01:00 1111")
    jobs = [
        {"model": "one", "Jmax": 2, "Pmax": 7200.0, **line},
        {"model": "two", "Pmax": 1800.0, **line},
    ]
    text = page(ran(jobs, "--no-u", "--backend", "exact", "-Tfwd", "600"))
    held = text.partition('<section id="held">')[2].partition("</section>")[0]
    names = re.findall(r"</i>([^<]+)</button>", held)
    assert names == ["one", "two", "idle, not used"]
    assert len(set(re.findall(r'background:(#\w+)"', held))) == 3
    assert "A colour is a model; one held most, 80% of the node-time" in held
    # 4 nodes for an hour, of which 2 + 0.5 node-hours were held.
    assert "37.5% of the idle node-time was not used (grey)" in held


@pytest.mark.parametrize(("cluster", "what"), [("2x4", "unit"), ("4x1", "node")])
def test_charts_call_a_unit_a_node_where_jobs_get_whole_ones(
    here: Path, told: Told, page: Page, cluster: str, what: str
) -> None:
    told("generate jobs --jobs 3 --first-submit 2021-02-10 --pmax 1e6 -o jobs.csv")
    told(f"--cluster {cluster} --jobs jobs.csv --policy equal-share --no-u --out run")
    text = page(here / "run")
    for said in ("Idle and used {}s over time", "% of the {}-time given", ">{}-hours<"):
        assert said.format(what) in text


@pytest.mark.parametrize("pmax", [5e4, 500.0])
def test_areas_hold_the_unit_time_of_the_summary(
    traced: Told, ran: Ran, pmax: float
) -> None:
    """Also where jobs finish and nobody is in play: then no decision follows, which would be a row of the steps."""
    traced("abcd", "00:00 1111", "00:10 0111", "00:20 1111", "03:00 1011")
    curve = {"Ns": [0, 1, 4], "Ps": [0, 10, 38], "Os": [0, 10, 38]}
    job = {"Jmax": 4, "Pmax": pmax, "Tcup": 6, "Tcdw": 3, **curve}
    folder = ran([job] * 3, "--backend", "exact")
    metrics = json.loads((folder / "summary.json").read_text())["metrics"]
    chart = charts_of([folder])[0]
    assert isinstance(chart.drawing, Curves)
    used = chart.drawing.curves[1]
    # Each step is two points of the line.
    area = float((used.y[::2] * (used.x[1::2] - used.x[::2])).sum()) / 1000
    assert area == pytest.approx(metrics["used_unit_s"], rel=1e-6)
    assert f"and {metrics['used_share']:.1%} of their time was given to jobs" in chart.note  # fmt: skip
    assert re.search(r"Means over \d+ (s|min);", chart.note)


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


@given(st.lists(st.floats(0.02, 1e5), min_size=1, max_size=300), st.integers(0, 50))
def test_a_distribution_counts_the_values_up_to_each_point(
    values: list[float], unknown: int
) -> None:
    """Shares are of all; those without a value are above every point."""
    every = np.array([*values, *[np.inf] * unknown])
    hours = pd.Series(every).replace(np.inf, np.nan)
    chart = distribution("x", "", "", {"x": hours})
    assert chart is not None
    (curve,) = chart.drawing.curves
    for at, share in zip(curve.x, curve.y, strict=True):
        assert np.mean(every <= at) >= share - 1e-9
        assert np.mean(every < at) <= share + 1e-9
    assert curve.y[-1] == pytest.approx(len(values) / len(every))


def test_several_runs_are_compared(hostile: Path, page: Page, here: Path) -> None:
    other = hostile.with_name("other")
    charts = charts_of([hostile, other])
    assert [chart.key for chart in charts] == ["compared", "compared-means", "compared-times"]  # fmt: skip
    outcomes = [
        json.loads((folder / "summary.json").read_text())["metrics"]["outcome"]
        for folder in (hostile, other)
    ]
    assert isinstance(charts[0].drawing, Bars)
    assert charts[0].table["outcome"].tolist() == outcomes
    assert charts[0].table["variant"].tolist() == ["milp", "equal-share"]
    assert outcomes[0] == outcomes[1]
    said = opening(page(hostile, other))
    assert said.startswith("All trained as much; jobs took least time under ")
    assert "your 4 nodes were idle for" in said
    shutil.copytree(other, "cut")
    summary = json.loads(Path("cut/summary.json").read_text())
    summary["metrics"]["interrupted"] = True
    Path("cut/summary.json").write_text(json.dumps(summary))
    warning = "equal-share: The replay was interrupted: these are partial results."
    assert re.search(f"<strong>[^<]*{warning}</strong>", page(hostile, "cut"))


def test_a_sweep_has_a_bar_for_each_pair_of_what_it_varied(
    here: Path, page: Page, told: Told
) -> None:
    points = [
        {"tfwd_s": tfwd, "max_jobs": jobs, "seed": seed, "outcome": 1e9 * (tfwd + 10 * jobs + seed), "U": None}
        for tfwd in (30.0, 120.0, 600.0) for jobs in (5, 10) for seed in (0, 1)
    ]  # fmt: skip
    points[0]["outcome"] = None  # failed
    pd.DataFrame(points).to_parquet("swept.parquet")
    (chart,) = charts_of([Path("swept.parquet")])
    assert isinstance(chart.drawing, Bars)
    assert chart.drawing.names == ("-Tfwd 30", "-Tfwd 120", "-Tfwd 600")
    expected = {
        f"-maxJ {jobs}": [1e9 * (tfwd + 10 * jobs + 0.5) for tfwd in (30, 120, 600)]
        for jobs in (5, 10)
    }
    expected["-maxJ 5"][0] += 0.5e9  # only the second seed is there
    assert {n: bars.tolist() for n, bars in chart.drawing.series.items()} == expected
    assert "Best: 700,500,000,000 samples at -Tfwd 600, -maxJ 10." in chart.note
    assert chart.table["count"].tolist() == [1, 2, 2, 2, 2, 2]
    assert "Which options suit idle nodes" in page("swept.parquet")
    one = pd.DataFrame(points).assign(tfwd_s=1.0, max_jobs=1)
    for frame, said in (
        (one, "expected points that differ in an option"),
        (pd.DataFrame({"a": [1]}), "is neither a run directory nor a table of a sweep"),
    ):
        frame.to_parquet("swept.parquet")
        told("report swept.parquet --force", said, code=2)


def test_the_page_of_a_sweep_begins_with_the_answer_and_has_its_numbers(
    here: Path, page: Page
) -> None:
    """All jobs in play do 6 % more; the window changes next to nothing, and a point of it failed."""
    points = [
        {"tfwd_s": tfwd, "max_jobs": jobs, "outcome": 1e9 * (106 if jobs == 0 else 100 - jobs / 100) + tfwd * 1e5,
         "jct_s.mean": 3600.0 * (1 + jobs), "node_watts": None, "policy": "milp"}
        for tfwd in (30.0, 120.0, 600.0) for jobs in (0, 5, 10)
    ]  # fmt: skip
    points[-1]["outcome"] = None
    pd.DataFrame(points).to_parquet("swept.parquet")
    text = page("swept.parquet")
    assert opening(text) == (
        "-maxJ 0: +6.1% samples over -maxJ 10; -Tfwd hardly matters (at most 0.1% of the outcome)."
    )
    outcome, times = charts_of([Path("swept.parquet")])
    assert isinstance(outcome.drawing, Bars)
    assert list(outcome.drawing.series) == ["-maxJ 0", "-maxJ 5", "-maxJ 10"]
    bars = outcome.drawing.series["-maxJ 5"]
    assert bars == pytest.approx([99.953e9, 99.962e9, 100.01e9])
    assert ">99,953,000,000</td>" in text
    assert times.note.startswith("Best: 1 h at -Tfwd 30, -maxJ 0.")


def test_where_all_is_trained_a_sweep_answers_by_the_times_of_jobs(
    here: Path, page: Page
) -> None:
    """All jobs finish at each window, but the mean completion goes from 10.7 to 13.1 h."""
    points = [
        {"tfwd_s": tfwd, "max_jobs": 0, "outcome": 1e9, "jct_s.mean": jct_s, "jct_to_end_mean_s": jct_s}
        for tfwd, jct_s in ((10.0, 38_520.0), (60.0, 47_160.0), (300.0, 40_000.0))
    ]  # fmt: skip
    pd.DataFrame(points).to_parquet("swept.parquet")
    answer = "-Tfwd 10: as much is trained, but jobs take 10.7 h on average, not 13.1 h"
    assert f"{answer} as with -Tfwd 60." in page("swept.parquet")


def test_figures_for_a_paper_have_titles_and_say_of_what_hours_are(
    hostile: Path,
) -> None:
    runs = [hostile, hostile.with_name("other")]
    for chart in (*charts_of(runs[:1]), *charts_of(runs)):
        figure = plotted([chart], chart.key)
        assert figure.get_suptitle() == chart.title.replace("$", r"\$")
        assert "hours" not in {axes.get_xlabel() for axes in figure.axes}
        figure.canvas.draw()
        for axes in figure.axes:
            boxes = [tick.get_window_extent() for tick in axes.get_xticklabels() if tick.get_text()]  # fmt: skip
            assert all(a.x1 <= b.x0 for a, b in pairwise(boxes)), chart.key


def test_what_is_no_folder_and_no_run_is_named(
    hostile: Path, here: Path, told: Told
) -> None:
    told(f"report {hostile} --pdf fig.pdf", "is a file, expected a folder", code=2)
    assert not Path("fig.pdf").exists()
    shutil.copytree(hostile, "mine-itrOut")
    told("report mine", "there is mine-itrOut", code=2)


def test_the_page_says_why_idle_time_was_not_used(
    traced: Told, ran: Ran, page: Page
) -> None:
    """Two nodes for two hours: one job on one node for an hour, and nobody for the next."""
    traced("ab", "00:00 11", "02:00 11")
    jobs = [{"Pmax": 3600.0}, {"Pmax": 1.0, "Tsub": "2021-02-10T01:59:00Z"}]
    text = page(ran(jobs, "--no-u", "--policy", "fifo"))
    # A node-hour was spare while j ran, and two of two nodes for 59 minutes after it.
    why = "66% while no job was there; 34% while all jobs that were there ran"
    assert text.count(why) == 2  # in the first sentences and with the chart


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_figures_for_a_paper(
    hostile: Path, here: Path, told: Told, form: str, begin: bytes
) -> None:
    made = []
    for folder in ("a", "b"):
        told(f"report {hostile} --{form} {folder}")
        made.append({path.name: path.read_bytes() for path in Path(folder).iterdir()})
    assert made[0] == made[1]
    assert made[0].keys() == {f"{chart.key}.{form}" for chart in charts_of([hostile])}
    assert all(content.startswith(begin) for content in made[0].values())
    told(f"report {hostile} --{form} a", code=2)
    told(f"report {hostile} --{form} a --force")


@pytest.mark.parametrize(
    ("package", "option"), [("bokeh", "-o page.html"), ("matplotlib", "--png pictures")]
)
def test_without_the_extra_the_command_that_installs_it_is_named(
    hostile: Path, here: Path, told: Told, monkeypatch: pytest.MonkeyPatch, package: str, option: str
) -> None:  # fmt: skip
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    parts = f"needs the package {package}", "pip install bokeh jinja2 matplotlib"
    told(f"report {hostile} {option}", *parts, code=2)
