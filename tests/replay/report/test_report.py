"""The page of a run: its numbers, its structure, and that no content of a run can break it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bft.replay.cli.main import run
from bft.replay.report import charts_of
from bft.replay.report.over_time import mean_over_time, round_spans

SECOND = 10**9
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


def checked(path: Path) -> Checker:
    """What a page is and says without its scripts: those of Bokeh and ours, and its data."""
    page = Checker()
    text = path.read_text("utf-8")
    text = re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)
    page.feed(text)
    page.close()
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert all(link.startswith("#") for link in page.links)  # within the page
    assert "url(" not in text
    return page


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    evil = "<script>alert('x')</script>&amp;\"J"
    doubled = evil.replace('"', '""')
    rest = '1,4,1e5,2021-02-10T00:00:00Z,6,3,"[0,1,4]","[0,10,38]","[0,10,38]"'
    (folder / "jobs.csv").write_text(
        f'name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n"{doubled}",{rest}\nplain,{rest}\n',
        "utf-8",
    )
    (folder / "trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{i},1\n" for i in range(4))
        + "2021-02-10T00:10:00Z,n0,0\n2021-02-10T00:20:00Z,n0,1\n2021-02-10T03:00:00Z,n1,0\n",
        "utf-8",
    )
    inputs = [
        "-ndmap",
        str(folder / "trace.csv"),
        "--jobs",
        str(folder / "jobs.csv"),
        "--backend",
        "exact",
    ]
    assert run([*inputs, "-Tfwd", "120", "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_a_page_shows_the_figures_of_the_summary_and_executes_nothing(
    finished: Path, tmp_path: Path
) -> None:
    target = tmp_path / "deep" / "page.html"
    assert run(["report", str(finished), "-o", str(target)]) == 0
    text = " ".join(checked(target).words)
    metrics = json.loads((finished / "summary.json").read_text())["metrics"]
    for told in (
        f"{metrics['outcome']:,.0f} samples",
        "your 4 nodes were idle for",
        "With these settings all jobs were done (2 of 2 jobs).",
        "Tfwd",
        "2 of 2",
        "<script>alert('x')</script>&amp;\"J",
        "120",
    ):
        assert told in text
    assert f"{metrics['used_share']:.1%}" in text
    again = tmp_path / "again.html"
    assert run(["report", str(finished), "-o", str(again)]) == 0
    assert again.read_bytes() == target.read_bytes()


def first_screen(page: Path) -> str:
    """The text of a page up to its charts."""
    words = " ".join(checked(page).words)
    return words.partition("charts on this page")[0]


def test_the_first_screen_says_machine_idle_share_worth_what_to_set_and_what_host_jobs_pay(
    tmp_path: Path,
) -> None:
    """20 nodes, 15 of them idle for the second of two hours; a job on at most one node cannot use them."""
    (tmp_path / "trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{i},{int(i < 5)}\n" for i in range(20))
        + "".join(f"2021-02-10T01:00:00Z,n{i},1\n" for i in range(5, 20))
        + "2021-02-10T01:30:00Z,n0,0\n2021-02-10T02:00:00Z,n0,0\n"
    )
    job = {"Jmin": 1, "Jmax": 20, "Pmax": 1e9, "Tsub": "2021-02-10T00:00:00Z",
           "Tcup": 6, "Tcdw": 3, "Ns": [0, 1, 20], "Ps": [0, 10, 20], "Os": [0, 10, 20]}  # fmt: skip
    rows = [json.dumps({"name": f"job {k}", **job}) for k in range(20)]
    (tmp_path / "jobs.jsonl").write_text("\n".join(rows) + "\n")
    inputs = ["-ndmap", "trace.csv", "--jobs", "jobs.jsonl", "--backend", "exact"]
    pages = {}
    for name, options in {
        "published": ["-maxJ", "1", "-Tfwd", "120", "--return-time", "60"],
        "best": ["--preset", "best"],
        "fifo": ["--policy", "fifo", "--option", "oversized=cap"],
    }.items():
        with contextlib.chdir(tmp_path):
            assert run([*inputs, *options, "--out", name]) == 0
            assert run(["report", name]) == 0
        pages[name] = first_screen(tmp_path / f"{name}.html")
    # (5 x 2 - 0.5 + 15 x 1) node-hours of 40.
    idle = "In 2 h your 20 nodes were idle for 61.3% of the time, which is worth 12.2 nodes."
    assert all(idle in text for text in pages.values())
    left = re.search(r"With these settings ([\d.]+)% of the bound was trained \(0 of 20 jobs\); "
                     r"--preset best is made to get the ([\d.]+)% that they leave", pages["published"])  # fmt: skip
    assert left is not None
    assert float(left[1]) + float(left[2]) == pytest.approx(100.0)
    assert (
        "Your own jobs would have waited at least 0 node-hours more"
        in pages["published"]
    )
    assert "no other setting can get much more" in pages["best"]
    assert "--policy milp --preset best is made to get" in pages["fifo"]
    each = "waited at least 0.000278 node-hours more for each second that a node takes to return"
    assert each in pages["best"]


def test_what_is_left_and_no_setting_gets_has_a_tile(tmp_path: Path) -> None:
    """Nodes are idle for 600 s of each 1,200 s: a growth costs an hour, losing them a tenth of a stretch."""
    rows = "".join(
        f"2021-02-10T{minute // 60:02}:{minute % 60:02}:00Z,n{node},{int(minute % 20 < 10)}\n"
        for minute in range(0, 121, 10) for node in (0, 1)
    )  # fmt: skip
    (tmp_path / "trace.csv").write_text(f"time,node,idle\n{rows}")
    (tmp_path / "jobs.csv").write_text(
        "name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n"
        'a,1,2,1e9,2021-02-10T00:00:00Z,3600,60,"[0,1,2]","[0,10,20]","[0,10,20]"\n'
    )
    with contextlib.chdir(tmp_path):
        inputs = ["-ndmap", "trace.csv", "--jobs", "jobs.csv", "--backend", "exact", "--no-u"]  # fmt: skip
        assert run([*inputs, "--out", "run"]) == 0
        assert run(["report", "run"]) == 0
        metrics = json.loads(Path("run/summary.json").read_text())["metrics"]
    assert metrics["advised"] is None
    left = f"{1 - metrics['share_of_bound']:.1%} left"
    assert f"{left} of the bound, and no setting known" in " ".join(
        first_screen(tmp_path / "run.html").split()
    )


def test_of_few_jobs_the_page_begins_with_when_each_was_done(tmp_path: Path) -> None:
    """Two nodes; a runs on both for 1,000 s from the start, b on what is left, c does not come to its end."""
    (tmp_path / "trace.csv").write_text(
        "time,node,idle\n2021-02-10T00:00:00Z,n0,1\n2021-02-10T00:00:00Z,n1,1\n"
        "2021-02-10T02:00:00Z,n0,1\n"
    )
    rest = '6,3,"[0,1]","[0,1]","[0,1]"'
    (tmp_path / "jobs.csv").write_text(
        "name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\n"
        f"a,1,1,1000,2021-02-10T00:00:00Z,{rest}\n"
        f"b,1,1,1800,2021-02-10T00:10:00Z,{rest}\n"
        f"c,1,1,14400,2021-02-10T01:00:00Z,{rest}\n"
    )
    with contextlib.chdir(tmp_path):
        inputs = ["-ndmap", "trace.csv", "--jobs", "jobs.csv", "--backend", "exact"]
        assert run([*inputs, "-Tfwd", "60", "--no-u", "--out", "run"]) == 0
        assert run(["report", "run"]) == 0
    text = first_screen(tmp_path / "run.html")
    rows = text.partition("rescaled")[2].split()
    cells = {name: rows[rows.index(name) + 1 :] for name in "abc"}
    # Submitted and finished (day, month, minute), waited and took (h), mean units, lost, done.
    assert " ".join(cells["a"][:11]) == (
        "10 Feb 00:00 10 Feb 00:16 0.00 0.28 1.0 0.0% 100%"
    )
    assert " ".join(cells["b"][:11]) == (
        "10 Feb 00:10 10 Feb 00:40 0.00 0.50 1.0 0.0% 100%"
    )
    assert " ".join(cells["c"][:9]) == "10 Feb 01:00 - 0.00 - 1.0 0.0% 25%"
    assert "the mean of its units counts all its time in the system" in text


@pytest.mark.parametrize("tfwd", ["5", "60"])
def test_a_window_that_is_short_against_tcup_is_said(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], tfwd: str
) -> None:
    """Tcup is 6 s: with 5 s a job grows only where that makes it 2.2 times as fast."""
    files = [str(finished.with_name(name)) for name in ("trace.csv", "jobs.csv")]
    inputs = ["-ndmap", files[0], "--jobs", files[1], "--backend", "exact", "--no-u"]
    assert run([*inputs, "-Tfwd", tfwd, "--out", str(tmp_path / "run")]) == 0
    said = "-Tfwd 5 is shorter than growing costs (Tcup, 6 s in the median)"
    assert (said in capsys.readouterr().err) == (tfwd == "5")
    notes = json.loads((tmp_path / "run" / "summary.json").read_text())["notes"]
    assert any("2.2 times as fast" in note for note in notes) == (tfwd == "5")


def test_u_is_said_to_hold_up_to_the_instant_at_which_all_jobs_were_done(
    finished: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    assert run(["report", str(finished), "-o", str(page)]) == 0
    metrics = json.loads((finished / "summary.json").read_text())["metrics"]
    assert metrics["U_at"] < metrics["window_end"]
    when = metrics["U_at"][:16].replace("T", " ")
    assert f"By {when}, when one of the two had done all jobs" in first_screen(page)
    assert f"{metrics['U']:.1%} of what" in first_screen(page)


def test_the_page_lies_beside_the_run_and_is_not_replaced(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside = finished.with_name("run.html")
    assert run(["report", str(finished)]) == 0
    assert capsys.readouterr().out.strip() == str(beside)
    before = beside.stat().st_mtime_ns
    assert run(["report", str(finished)]) == 2
    assert "--force" in capsys.readouterr().err
    assert beside.stat().st_mtime_ns == before
    assert run(["report", str(finished), "--force"]) == 0


def test_what_is_no_run_is_refused(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("nowhere", "empty"):
        assert run(["report", str(tmp_path / folder)]) == 2
        assert "is not a run directory" in capsys.readouterr().err
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "summary.json").write_bytes((finished / "summary.json").read_bytes())
    assert run(["report", str(broken), "-o", str(tmp_path / "page.html")]) == 2
    assert "has no steps.parquet" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "empty"]


def copied(run_folder: Path, target: Path) -> Path:
    shutil.copytree(run_folder, target)
    return target


@pytest.mark.parametrize("name", ["summary.json", "steps.parquet", "jobs.parquet"])
@pytest.mark.parametrize(
    "damage", ["missing", "empty", "cut", "garbled", "text", "folder"]
)
def test_a_damaged_file_of_a_run_is_named(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    damage: str,
) -> None:
    file = copied(finished, tmp_path / "run") / name
    content = file.read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage != "missing":
        middle = len(content) // 2
        garbled = content[:middle] + bytes(byte ^ 255 for byte in content[middle:])
        file.write_bytes(
            {
                "empty": b"",
                "cut": content[:middle],
                "garbled": garbled,
                "text": b"hello\n",
            }[damage]
        )
    assert run(["report", str(file.parent)]) == 2
    err = capsys.readouterr().err
    assert str(file.parent) in err
    assert name in err or "is not a run directory" in err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("steps.parquet", lambda f: f.drop(columns="used"), "it has no column used"),
        ("steps.parquet", lambda f: f.iloc[:0], "it has no rows"),
        ("jobs.parquet", lambda f: f.drop(columns="submit"), "it has no column submit"),
    ],
)
def test_a_table_with_other_columns_is_reported_with_file_and_column(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    change: Callable[[pd.DataFrame], pd.DataFrame],
    told: str,
) -> None:
    folder = copied(finished, tmp_path / "run")
    change(pd.read_parquet(folder / name)).to_parquet(folder / name)
    assert run(["report", str(folder)]) == 2
    err = capsys.readouterr().err
    assert str(folder / name) in err
    assert told in err


REST = {"Jmin": 1, "Jmax": 4, "Pmax": 1e4, "Tsub": "2021-02-10T00:00:00Z", "Tcup": 6, "Tcdw": 3,
        "Ns": [0, 1, 4], "Ps": [0, 10, 38], "Os": [0, 10, 38]}  # fmt: skip


def test_names_cannot_hide_or_reverse_text_of_a_page(tmp_path: Path) -> None:
    name = "a\u202egnp.exe\x01\u0007\u200b"
    (tmp_path / "jobs.jsonl").write_text(json.dumps({"name": name, **REST}) + "\n")
    args = [
        "--cluster",
        "2x2",
        "--jobs",
        str(tmp_path / "jobs.jsonl"),
        "--policy",
        "equal-share",
    ]
    assert run([*args, "--out", str(tmp_path / "run")]) == 0
    assert run(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run.html").read_text("utf-8")
    assert "a\\u202egnp.exe\\u0001\\u0007\\u200b" in page
    assert all(char == "\n" or char.isprintable() for char in page)
    checked(tmp_path / "run.html")


def test_pools_add_up(finished: Path, tmp_path: Path) -> None:
    jobs = pd.DataFrame(
        {
            "job_id": ["a", "b"],
            "gpu_num": [2, 4],
            "submit_time": [0, 0],
            "duration": [3600, 1800],
            "vc": ["p", "q"],
        }
    )
    jobs.to_csv(tmp_path / "jobs.csv", index=False)
    (tmp_path / "vcs.csv").write_text("vc,nodes,units_per_node\np,1,4\nq,1,8\n")
    out = ["--out", str(tmp_path / "run")]
    venus = [
        "--cluster",
        str(tmp_path / "vcs.csv"),
        "--jobs",
        str(tmp_path / "jobs.csv"),
        "--jobs-format",
        "venus",
    ]
    assert run([*venus, "--policy", "fifo", *out]) == 0
    idle = next(c for c in charts_of([tmp_path / "run"]) if c.key == "idle")
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
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nine nodes idle for 2 h before the only job, two for the 3 h after: U was 40 % of six."""
    (tmp_path / "trace.csv").write_text(
        "time,node,idle\n"
        + "".join(f"2021-02-10T00:00:00Z,n{k},1\n" for k in range(9))
        + "".join(f"2021-02-10T02:00:00Z,n{k},0\n" for k in range(2, 9))
        + "2021-02-10T05:00:00Z,n0,0\n",
        "utf-8",
    )
    (tmp_path / "jobs.csv").write_text(
        'name,Jmin,Jmax,Pmax,Tsub,Tcup,Tcdw,Ns,Ps,Os\nj,1,4,1e9,2021-02-10T02:00:00Z,0,0,"[0,4]","[0,40]","[0,40]"\n',
        "utf-8",
    )
    out = tmp_path / "run"
    inputs = [
        "-ndmap",
        str(tmp_path / "trace.csv"),
        "--jobs",
        str(tmp_path / "jobs.csv"),
        "--out",
        str(out),
    ]
    assert (
        run([*inputs, "--policy", "equal-share", "--option", "start-overhead=36"]) == 0
    )
    printed = capsys.readouterr().out
    metrics = json.loads((out / "summary.json").read_text())["metrics"]
    assert {key: metrics[key] for key in ("U", "used_share", "eq_nodes", "dedicated_nodes", "duration_s")} == {
        "U": 1.0, "used_share": 1.0, "eq_nodes": 2.0, "dedicated_nodes": 2, "duration_s": 3 * 3600.0
    }  # fmt: skip
    assert (metrics["window_start"], metrics["U_at"]) == (
        "2021-02-10T02:00:00Z",
        "2021-02-10T05:00:00Z",
    )
    assert (metrics["offered_unit_s"], metrics["resource_integral_unit_s"]) == (
        24 * 3600.0,
        6 * 3600.0,
    )
    assert (
        metrics["start_cost"],
        metrics["rescale_cost"],
        metrics["return_on_rescale"],
    ) == (720.0, 0.0, None)
    assert run(["report", str(out)]) == 0
    words = " ".join(checked(tmp_path / "run.html").words)
    for line in (
        "100.0% of what 2 dedicated nodes would have yielded",
        "24 idle unit-hours in the whole trace",
        "6 of them in the window, 3 h from 2021-02-10 02:00, when the first job was submitted",
        "100.0% of the resource-integral",
        "2.0 dedicated nodes would offer as much in the window",
        "lost to first starts",
    ):
        assert line in printed
        assert line in words
