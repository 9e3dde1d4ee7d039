"""The page of a run: its numbers, its structure, and that no content of a run can break it."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.replay import read_trace, write_trace
from bft.replay.report import charts_of
from bft.replay.report.chart import mean_over_time, round_spans

SECOND = 10**9
Page = Callable[..., str]
Told = Callable[..., str]
Ran = Callable[..., Path]
VOID = {"meta"}


class Checker(HTMLParser):
    """Sees that every element is closed, and collects text, names and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [
            value or ""
            for key, value in attrs
            if key in ("src", "href", "xlink:href") or key[:2] == "on"
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def checked(text: str) -> str:
    """What a page says without its scripts: those of Bokeh and ours, and its data."""
    page = Checker()
    text = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    page.feed(text)
    page.close()
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert all(link.startswith("#") for link in page.links)  # within the page
    assert "url(" not in text
    return " ".join(page.words)


def first_screen(text: str) -> str:
    """The text of a page up to its charts."""
    return " ".join(checked(text).partition("charts on this page")[0].split())


EVIL = "<script>alert('x')</script>&amp;\"J"
CURVE = {"Ns": [0, 1, 4], "Ps": [0, 10, 38], "Os": [0, 10, 38]}
ELASTIC = {"Jmax": 4, "Pmax": 1e5, "Tcup": 6, "Tcdw": 3, **CURVE}


@pytest.fixture
def finished(traced: Told, ran: Ran) -> Path:
    """A run of two jobs that are done, one of which has a name that would act in a page."""
    traced("abcd", "00:00 1111", "00:10 0111", "00:20 1111", "03:00 1011")
    jobs = [{"name": EVIL, **ELASTIC}, {"name": "plain", **ELASTIC}]
    return ran(jobs, "--backend", "exact", "-Tfwd", "120")


def metrics_of(folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((folder / "summary.json").read_text())[
        "metrics"
    ]
    return metrics


def test_a_page_shows_the_figures_of_the_summary_and_executes_nothing(
    finished: Path, page: Page
) -> None:
    text, metrics = page(finished), metrics_of(finished)
    assert metrics["U_at"] < metrics["window_end"]
    for told in (
        f"{metrics['outcome']:,.0f} samples",
        "your 4 nodes were idle for",
        "With these settings all jobs were done (2 of 2 jobs).",
        "of the bound was trained, as all jobs were done",
        "Tfwd",
        "2 of 2",
        EVIL,
        "120",
        f"{metrics['used_share']:.1%}",
    ):
        assert told in checked(text)
    when = metrics["U_at"][:16].replace("T", " ")
    first = first_screen(text)
    assert f"By {when} UTC, when one of the two had done all jobs" in first
    assert f"{metrics['U']:.1%} of what" in first
    assert page(finished) == text


def test_the_first_screen_says_machine_idle_share_worth_what_to_set_and_what_host_jobs_pay(
    traced: Told, ran: Ran, page: Page
) -> None:
    """20 nodes, 15 of them idle for the second of two hours; a job on at most one node cannot use them."""
    few, many = "1" * 5 + "0" * 15, "1" * 20
    rows = (f"00:00 {few}", f"01:00 {many}", f"01:30 0{many[1:]}", f"02:00 0{many[1:]}")
    traced("abcdefghijklmnopqrst", *rows)
    curve = {"Ns": [0, 1, 20], "Ps": [0, 10, 20], "Os": [0, 10, 20]}
    job = {"Jmax": 20, "Pmax": 1e9, "Tcup": 6, "Tcdw": 3, **curve}
    pages = {}
    for name, options in {
        "published": ["-maxJ", "1", "-Tfwd", "120", "--return-time", "60"],
        "best": ["--preset", "best"],
        "fifo": ["--policy", "fifo", "--option", "oversized=cap"],
    }.items():
        folder = ran([job] * 20, "--backend", "exact", *options, out=name)
        pages[name] = first_screen(page(folder))
    # (5 x 2 - 0.5 + 15 x 1) node-hours of 40.
    idle = "In 2 h your 20 nodes were idle for 61.3% of the time, which is worth 12.2 nodes."
    assert all(idle in text for text in pages.values())
    left = re.search(r"With these settings ([\d.]+)% of the bound was trained \(0 of 20 jobs\); "
                     r"--preset best is made to get the ([\d.]+)% that they leave", pages["published"])  # fmt: skip
    assert left is not None
    assert float(left[1]) + float(left[2]) == pytest.approx(100.0)
    for name, said in (
        ("published", "Your own jobs would have waited at least 0 node-hours more"),
        ("best", "no other setting can get much more"),
        ("best", "waited at least 0.000278 node-hours more for each second that a node takes to return"),
        ("fifo", "--policy milp --preset best is made to get"),
    ):  # fmt: skip
        assert said in pages[name]


def test_what_is_left_and_no_setting_gets_has_a_tile(
    traced: Told, ran: Ran, page: Page
) -> None:
    """Nodes are idle for 600 s of each 1,200 s: a growth costs an hour, losing them a tenth of a stretch."""
    rows = (f"{at // 60:02}:{at % 60:02} {'11' if at % 20 < 10 else '00'}" for at in range(0, 121, 10))  # fmt: skip
    traced("ab", *rows)
    curve = {"Ns": [0, 1, 2], "Ps": [0, 10, 20], "Os": [0, 10, 20]}
    job = {"Jmax": 2, "Pmax": 1e9, "Tcup": 3600, "Tcdw": 60, **curve}
    folder = ran([job], "--backend", "exact", "--no-u")
    metrics = metrics_of(folder)
    assert metrics["advised"] is None
    left = (
        f"{1 - metrics['share_of_bound']:.1%} left of the bound, and no setting known"
    )
    assert left in first_screen(page(folder))


def test_of_few_jobs_terminal_and_page_say_when_each_was_done(
    traced: Told, ran: Ran, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two nodes; a runs on both for 1,000 s from the start, b on what is left, c does not come to its end."""
    traced("mn", "00:00 11", "02:00 11")
    jobs = [
        {"name": name, "Pmax": work, "Tsub": f"2021-02-10T{at}:00Z", "Tcup": 6, "Tcdw": 3}
        for name, work, at in (("a", 1000, "00:00"), ("b", 1800, "00:10"), ("c", 14400, "01:00"))
    ]  # fmt: skip
    folder = ran(jobs, "--backend", "exact", "-Tfwd", "60", "--no-u")
    printed = " ".join(capsys.readouterr().out.split())
    text = first_screen(page(folder))
    rows = text.partition("rescaled")[2]
    # Submitted and finished (day, month, minute), waited and took (h), mean units, lost, done.
    for row in (
        "a 10 Feb 00:00 10 Feb 00:16 0.00 0.28 1.0 0.0% 100%",
        "b 10 Feb 00:10 10 Feb 00:40 0.00 0.50 1.0 0.0% 100%",
        "c 10 Feb 01:00 - 0.00 - 1.0 0.0% 25%",
    ):
        assert row in rows
        assert row in printed
    assert "the mean of its units counts all its time in the system" in text


@pytest.mark.parametrize("tfwd", ["5", "60"])
def test_a_window_that_is_short_against_tcup_is_said(
    traced: Told, ran: Ran, capsys: pytest.CaptureFixture[str], tfwd: str
) -> None:
    """Tcup is 6 s: with 5 s a job grows only where that makes it 2.2 times as fast."""
    traced("abcd", "00:00 1111", "03:00 1111")
    folder = ran([ELASTIC], "--backend", "exact", "--no-u", "-Tfwd", tfwd)
    said = "-Tfwd 5 is shorter than growing costs (Tcup, 6 s in the median)"
    assert (said in capsys.readouterr().err) == (tfwd == "5")
    notes = json.loads((folder / "summary.json").read_text())["notes"]
    assert any("2.2 times as fast" in note for note in notes) == (tfwd == "5")


def test_the_page_lies_beside_the_run_and_is_not_replaced(
    finished: Path, told: Told
) -> None:
    assert told("report run").strip() == str(finished.with_suffix(".html"))
    before = Path("run.html").stat().st_mtime_ns
    told("report run", "--force", code=2)
    assert Path("run.html").stat().st_mtime_ns == before
    told("report run --force")


def test_what_is_no_run_is_refused(finished: Path, told: Told) -> None:
    for name in ("empty", "broken"):
        Path(name).mkdir()
    shutil.copy("run/summary.json", "broken")
    there = sorted(Path().iterdir())
    for name in ("nowhere", "empty"):
        told(f"report {name}", "is not a run directory", code=2)
    told("report broken -o page.html", "has no steps.parquet", code=2)
    assert sorted(Path().iterdir()) == there


@pytest.mark.parametrize("name", ["summary.json", "steps.parquet", "jobs.parquet"])
def test_a_damaged_file_of_a_run_is_named(
    finished: Path, told: Told, name: str
) -> None:
    file = finished / name
    content = file.read_bytes()
    middle = len(content) // 2
    garbled = content[:middle] + bytes(byte ^ 255 for byte in content[middle:])
    for damage in (None, b"", content[:middle], garbled, b"hello\n"):
        file.unlink()
        if damage is not None:
            file.write_bytes(damage)
        said = told("report run", code=2)
        assert "run" in said
        assert name in said or "is not a run directory" in said
        file.write_bytes(content)
    file.unlink()
    file.mkdir()
    said = told("report run", code=2)
    assert name in said or "is not a run directory" in said
    assert not list(Path().glob("*.html"))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("steps.parquet", lambda f: f.drop(columns="used"), "it has no column used"),
        ("steps.parquet", lambda f: f.iloc[:0], "it has no rows"),
        ("jobs.parquet", lambda f: f.drop(columns="submit"), "it has no column submit"),
    ],
)
def test_a_table_with_other_columns_is_reported_with_file_and_column(
    finished: Path, told: Told, name: str, change: Any, said: str
) -> None:
    change(pd.read_parquet(finished / name)).to_parquet(finished / name)
    told("report run", f"run/{name}", said, code=2)


def test_names_cannot_hide_or_reverse_text_of_a_page(
    traced: Told, ran: Ran, page: Page
) -> None:
    traced("abcd", "00:00 1111", "03:00 1111")
    name = "a\u202egnp.exe\x01\u0007\u200b"
    text = page(ran([{**ELASTIC, "name": name}], "--policy", "equal-share"))
    assert "a\\u202egnp.exe\\u0001\\u0007\\u200b" in text
    assert all(char == "\n" or char.isprintable() for char in text)
    checked(text)


def test_pools_add_up(here: Path, told: Told) -> None:
    Path("jobs.csv").write_text("job_id,gpu_num,submit_time,duration,vc\na,2,0,3600,p\nb,4,0,1800,q\n")  # fmt: skip
    Path("vcs.csv").write_text("vc,nodes,units_per_node\np,1,4\nq,1,8\n")
    told(
        "--cluster vcs.csv --jobs jobs.csv --jobs-format venus --policy fifo --out run"
    )
    idle = next(c for c in charts_of([Path("run")]) if c.key == "idle")
    assert idle.table["idle"].max() == 12  # both pools' units


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.floats(0, 1e3)), min_size=1, max_size=20
    ),
    st.integers(1, 50),
    st.integers(-20, 500),
    st.integers(1, 900),
)
def test_means_over_time_keep_the_integral(
    drawn: list[tuple[int, float]], spans: int, begin: int, length: int
) -> None:
    drawn.sort(key=lambda pair: pair[0])
    times = np.array([time for time, _ in drawn], dtype=np.int64)
    values = np.array([value for _, value in drawn])
    rng = np.random.default_rng(spans)
    inner = rng.integers(begin, begin + length + 1, spans - 1)
    edges = np.unique([begin, *inner, begin + length])
    means = mean_over_time(times, values, edges)
    # Second by second, without a cumulative sum.
    heights = [
        next((v for t, v in reversed(drawn) if t <= second), 0.0)
        for second in range(begin, begin + length)
    ]
    sums = [sum(heights[a - begin : b - begin]) for a, b in pairwise(edges.tolist())]
    assert (means * np.diff(edges)).tolist() == pytest.approx(sums, abs=1e-6)
    assert means.min() >= -1e-9
    assert means.max() <= max(heights) + 1e-6


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9), st.integers(1, 3000))
def test_spans_are_round_few_and_cover_the_window(
    begin: int, seconds: int, most: int
) -> None:
    start, end = begin * SECOND + 1, (begin + seconds) * SECOND
    edges, length = round_spans(start, end, most)
    assert (edges[0], edges[-1]) == (start, end)
    lengths = np.diff(edges)
    assert (lengths > 0).all()
    count, unit = length.split()
    size = {"s": 1, "min": 60, "h": 3600, "days": 86_400}[unit] * int(count) * SECOND
    assert (lengths[1:-1] == size).all()
    assert (edges[1:-1] % size == 0).all()
    # Of a window at odd instants the first and the last span are parts.
    assert len(lengths) <= most + 1 or size == 365 * 86_400 * SECOND


def test_terminal_page_and_summary_mean_the_same_window(
    traced: Told, ran: Ran, page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine nodes idle for 2 h before the only job, two for the 3 h after: U was 40 % of six."""
    traced("abcdefghi", "00:00 111111111", "02:00 110000000", "05:00 010000000")
    curve = {"Ns": [0, 4], "Ps": [0, 40], "Os": [0, 40]}
    job = {"Jmax": 4, "Pmax": 1e9, "Tsub": "2021-02-10T02:00:00Z", **curve}
    folder = ran([job], "--policy", "equal-share", "--option", "start-overhead=36")
    printed, metrics = capsys.readouterr().out, metrics_of(folder)
    expected = {
        "U": 1.0,
        "used_share": 1.0,
        "eq_nodes": 2.0,
        "dedicated_nodes": 2,
        "duration_s": 3 * 3600.0,
        "window_start": "2021-02-10T02:00:00Z",
        "U_at": "2021-02-10T05:00:00Z",
        "offered_unit_s": 24 * 3600.0,
        "resource_integral_unit_s": 6 * 3600.0,
        "start_cost": 720.0,
        "rescale_cost": 0.0,
        "return_on_rescale": None,
    }
    assert {key: metrics[key] for key in expected} == expected
    words = checked(page(folder))
    for line in (
        "100.0% of what 2 dedicated nodes would have yielded",
        "24 idle unit-hours in the whole trace",
        "6 of them in the window, 3 h from 2021-02-10 02:00 UTC, when the first job was submitted",
        "100.0% of the resource-integral",
        "2.0 dedicated nodes would offer as much in the window",
        "lost to first starts",
    ):
        assert line in printed
        assert line in words


def test_runs_in_which_nothing_is_trained_have_a_page(
    traced: Told, ran: Ran, page: Page
) -> None:
    """A job needs two nodes, and one is idle."""
    traced("ab", "00:00 00", "01:00 10", "02:00 10")
    job = {"Jmin": 2, "Jmax": 2, "Pmax": 100.0, "Ns": [0, 2], "Ps": [0, 2], "Os": [0, 2]}  # fmt: skip
    folders = [
        ran([job], "--policy", policy, "--no-u", out=policy)
        for policy in ("equal-share", "pollux")
    ]
    assert "All trained as much." in page(*folders)


def test_terminal_pages_and_comparison_are_in_the_time_of_the_site(
    here: Path, traced: Told, ran: Ran, page: Page, told: Told
) -> None:
    """The tables of a run are UTC, whatever the site's time."""
    trace = read_trace(traced("ab", "00:00 11", "02:00 01", "03:00 00"))
    write_trace(replace(trace, zone="Asia/Tokyo"), here / "trace.parquet")
    jobs = ran([{"Pmax": 600.0}], "--no-u", "--policy", "fifo").parent / "jobs.jsonl"
    line = f"-ndmap trace.parquet --jobs {jobs} --no-u --out"
    told(
        f"{line} a --policy fifo", "from 2021-02-10 09:00 Asia/Tokyo,", "times are Asia/Tokyo",
        "10 Feb 09:00",
    )  # fmt: skip
    told(f"{line} b --policy equal-share")
    told("compare a b", "Finished (Asia/Tokyo):", "2021-02-10 09:")
    text = page(here / "a")
    assert "2021-02-10 09:00 to 2021-02-10 09:" in text
    assert "Times are Asia/Tokyo." in text
    assert "time, Asia/Tokyo, UTC+0900" in text
    assert "Finished (Asia/Tokyo)" in page(here / "a", here / "b")
    finish = pd.read_parquet(here / "a" / "jobs.parquet")["finish"]
    assert str(finish[0]).startswith("2021-02-10 00:")
